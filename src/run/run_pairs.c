/* Running log-sum-exp of complex numbers, pairs of reals (..., 2).
 *
 *     y_0 = x_0,  y_i = log(exp(x_i) + exp(y_(i - 1)))
 *
 * Each step is log1p(exp(less - more)) + more, by real parts, as PyTorch has it: phases add up, and are not brought
 * back into a turn.
 */
#include <complex.h>
#include <math.h>
#include "base/elementary.h"
#include "run/product.h"
#include "run/pointwise.h"
#include "run/run_table.h"

typedef double complex Num;

static bool is_nan(Num x) { return isnan(creal(x)) || isnan(cimag(x)); }
static Num number(double re, double im)
{
    Num x;
    ((double *)&x)[0] = re; /* re + im * I is NaN where one part is infinite */
    ((double *)&x)[1] = im;
    return x;
}

static Num exponential(Num x)
{
    double size = real_exp(creal(x)), im = cimag(x);
    return number(size * real_cos(im), im == 0 ? im : size * real_sin(im));
}

static Num log_of_more(Num x) /* log(1 + x) */
{
    double re = creal(x), im = cimag(x), phase = real_atan2(im, re + 1), r = re * (2 + re) + im * im;
    if (real_hypot(re, im) >= 0.5) return number(real_log(real_hypot(re + 1, im)), phase);
    return number(r == 0 ? re : 0.5 * real_log1p(r), phase);
}

static Num log_add_exp(Num x, Num y)
{
    if (is_nan(x) || is_nan(y)) return number(NAN, NAN);
    Num less = creal(x) < creal(y) ? x : y, more = creal(x) < creal(y) ? y : x;
    if (isinf(creal(less)) && creal(less) == creal(more)) {
        if (creal(less) < 0) return less;
        Num a = exponential(less), b = exponential(more);
        double re = creal(a) + creal(b), im = cimag(a) + cimag(b);
        return number(real_log(real_hypot(re, im)), real_atan2(im, re));
    }
    double re = creal(less) - creal(more), im = cimag(less) - cimag(more);
    Num part = isfinite(re) ? exponential(number(re, im)) : re < 0 ? 0 : number(re, im);
    Num by = log_of_more(part);
    return number(creal(by) + creal(more), cimag(by) + cimag(more));
}

/* (pairs, dim) */
bool run_logcumsumexp_pairs(Call *c, Err *err)
{
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_F64, err);
    Tensor *out = call_out(c, 0);
    int64_t dim = call_dim(c, 1, call_in(c, 0)->rank - 1), outer = 1, inner = 1;
    TRY(x);
    int64_t n = x->rank > 1 ? x->shape[dim] : 1;
    for (int d = 0; d < x->rank - 1; d++) {
        if (d < dim) outer *= x->shape[d];
        if (d > dim) inner *= x->shape[d];
    }
    const double *in = x->data;
    size_t size = dtype_size(out->dtype);
    for (int64_t line = 0; line < outer * inner; line++) {
        Num y = number(-INFINITY, 0);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = 2 * ((line / inner * n + i) * inner + line % inner);
            y = log_add_exp(number(in[at], in[at + 1]), y);
            store_f64(out->dtype, (char *)out->data + (size_t)at * size, creal(y));
            store_f64(out->dtype, (char *)out->data + (size_t)(at + 1) * size, cimag(y));
        }
    }
    return true;
}
