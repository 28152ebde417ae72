/* Resampling to the nearest by division and by the reciprocal. Contract in nearest.h. */
#include <math.h>
#include "facts/nearest.h"

enum { ENOUGH = 65536 };

bool nearest_agrees(const Expr *in, const Expr *out, const Expr *scale, bool exact, bool flat)
{
    bool sizes = ex_is_int(in) && ex_is_int(out) && in->i > 0 && out->i > 0, shortcut = flat && !exact;
    if (scale ? !ex_is_const(scale) : !sizes) return true;
    double f = scale ? ex_number(scale) : 0;
    if (scale && !(f > 0)) return false;
    if (shortcut && !sizes && f > 1 && f < 3 && f != 2) return false; /* a size may be kept or doubled */
    if (exact && f > 1 && f < 2 && (!sizes || out->i == in->i)) return false; /* kept: ORT copies */
    float by = scale ? (float)f : (float)out->i / (float)in->i;
    float back = scale ? (float)(1 / f) : (float)in->i / (float)out->i, last = sizes ? (float)(in->i - 1) : INFINITY;
    if (shortcut && sizes && out->i == in->i) back = 1;
    if (shortcut && sizes && out->i == 2 * in->i) back = 0.5f;
    int64_t n = sizes && out->i < ENOUGH ? out->i : ENOUGH;
    for (int64_t j = 0; j < n; j++) {
        float p = exact ? ((float)j + 0.5f) * back : (float)j * back;
        float q = exact ? roundf(((float)j + 0.5f) / by - 0.5f) : floorf((float)j / by);
        if (fminf(floorf(p), last) != fmaxf(fminf(q, last), 0)) return false;
    }
    return true;
}
