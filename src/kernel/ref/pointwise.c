/* Reference: float operations computed in double by libm and rounded once. The other types are gen's, which are plain
 * C already, as are the operations that depend on the type's own grid (nextafter, sinc between its zeros). */
#include "kernel/pointwise.h"

void pointwise_fill_gen(PointwiseKernels *k);
void pointwise_fill_ref(PointwiseKernels *k);

enum { CHUNK = 256 };

static PointwiseKernels plain;

static void widen(double *out, const float *in, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = in[i];
}

static bool unary_ref(PointwiseOp op, float *out, const float *x, int64_t n, const double *p)
{
    double a[CHUNK], y[CHUNK];
    if (op == PW_sinc) return plain.unary_f32(op, out, x, n, p);
    for (int64_t at = 0; at == 0 || at < n; at += CHUNK) { /* once for no elements too: is there such an operation? */
        int64_t m = n - at < CHUNK ? n - at : CHUNK;
        widen(a, x + at, m);
        if (!plain.unary_f64(op, y, a, m, p)) return false;
        for (int64_t i = 0; i < m; i++) out[at + i] = (float)y[i];
    }
    return true;
}

static bool binary_ref(PointwiseOp op, float *out, const float *x, const float *z, int64_t n)
{
    double a[CHUNK], b[CHUNK], y[CHUNK];
    if (op == PW_nextafter) return plain.binary_f32(op, out, x, z, n);
    for (int64_t at = 0; at == 0 || at < n; at += CHUNK) {
        int64_t m = n - at < CHUNK ? n - at : CHUNK;
        widen(a, x + at, m);
        widen(b, z + at, m);
        if (!plain.binary_f64(op, y, a, b, m)) return false;
        for (int64_t i = 0; i < m; i++) out[at + i] = (float)y[i];
    }
    return true;
}

void pointwise_fill_ref(PointwiseKernels *k)
{
    pointwise_fill_gen(k);
    plain = *k;
    k->unary_f32 = unary_ref;
    k->binary_f32 = binary_ref;
}
