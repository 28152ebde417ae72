/* Shapes of Fourier transforms. A transform of no elements is refused when sizes are bound. */
#include "shape/shape_table.h"

/* Argument 1: dims of the first `rank` axes; the last one in the list in *last. */
static bool transformed(Shape *s, int rank, int *last)
{
    const Arg *a = shape_arg(s, 1);
    bool set[MAX_RANK] = {false};
    if (!a->n) return shape_fail(s, 1, "expected at least one dim");
    for (int i = 0; i < a->n; i++) {
        int64_t d = ex_is_int(a->es[i]) ? a->es[i]->i : -1;
        if (d < 0 || d >= rank || set[d]) return shape_fail(s, 1, "dim %lld of rank %d", (long long)d, rank);
        set[d] = true;
        *last = (int)d;
    }
    int64_t norm;
    TRY(shape_const_int(s, 2, &norm));
    return (norm >= 0 && norm <= 2) || shape_fail(s, 2, "found %lld, expected 0, 1 or 2", (long long)norm);
}

static bool floats(Shape *s, Value **x)
{
    TRY(shape_want_value(s, 0, x));
    bool ok = (*x)->dtype == DT_F32 || (*x)->dtype == DT_F64;
    return ok || shape_fail(s, 0, "%s, expected f32 or f64", dtype_name((*x)->dtype));
}

static bool pairs(Shape *s, Value **x)
{
    TRY(floats(s, x));
    if (!(*x)->rank) return shape_fail(s, 0, "rank 0, expected pairs on the last axis");
    return shape_require_equal(s, (*x)->dim[(*x)->rank - 1], ex_int(s->ex, 2), "last axis and a pair");
}

bool shape_fft_complex(Shape *s)
{
    Value *x;
    int last;
    return pairs(s, &x) && transformed(s, x->rank - 1, &last) && shape_out_like(s, 0, x, x->dtype);
}

static Expr *bins(Shape *s, Expr *n)
{
    return ex_add(s->ex, ex_floordiv(s->ex, n, ex_int(s->ex, 2)), ex_int(s->ex, 1));
}

bool shape_fft_real(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    int last;
    bool onesided;
    TRY(floats(s, &x) && transformed(s, x->rank, &last) && shape_const_bool(s, 3, &onesided));
    if (x->rank >= MAX_RANK) return shape_fail(s, 0, "rank %d is too large", x->rank);
    for (int i = 0; i < x->rank; i++) dim[i] = i == last && onesided ? bins(s, x->dim[i]) : x->dim[i];
    dim[x->rank] = ex_int(s->ex, 2);
    return shape_out(s, 0, x->dtype, x->rank + 1, dim);
}

bool shape_fft_to_real(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK], *n = shape_arg(s, 3)->e;
    int last;
    TRY(pairs(s, &x) && transformed(s, x->rank - 1, &last));
    if (shape_arg(s, 3)->kind != ARG_EXPR || n->is_float) return shape_fail(s, 3, "expected a size");
    TRY(shape_require_equal(s, x->dim[last], bins(s, n), "bins of the last dim and those that its size has"));
    for (int i = 0; i < x->rank - 1; i++) dim[i] = i == last ? n : x->dim[i];
    return shape_out(s, 0, x->dtype, x->rank - 1, dim);
}
