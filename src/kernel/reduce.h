/* Rows of contiguous values: softmax, norms and sums. x (rows, n); float computes in float with several accumulators in
 * a fixed order (results do not depend on the number of threads), double in double. */
#ifndef QKV_KERNEL_REDUCE_H
#define QKV_KERNEL_REDUCE_H
#include "tensor/tensor.h"

typedef struct ReduceKernels {
    /* softmax; log: its logarithm; safe: a row of -inf gives 0 instead of NaN (aten::_safe_softmax) */
    void (*softmax_f32)(float *out, const float *x, int64_t rows, int64_t n, bool log, bool safe, int threads);
    void (*softmax_f64)(double *out, const double *x, int64_t rows, int64_t n, bool log, bool safe, int threads);
    /* (x - mean) / sqrt(var + eps) * w + b; rms: x / sqrt(mean(x^2) + eps) * w.
     * w, b (n) or NULL; mean, rstd (rows) or NULL */
    void (*norm_f32)(float *out, const float *x, const float *w, const float *b, int64_t rows, int64_t n, double eps,
                     bool rms, float *mean, float *rstd, int threads);
    void (*norm_f64)(double *out, const double *x, const double *w, const double *b, int64_t rows, int64_t n,
                     double eps, bool rms, double *mean, double *rstd, int threads);
    double (*sum_f32)(const float *x, int64_t n);
    double (*sum_f64)(const double *x, int64_t n);
    /* largest (or, neg, smallest) element; NaN wins; *at: its first position */
    double (*extreme_f32)(const float *x, int64_t n, bool smallest, int64_t *at);
    double (*extreme_f64)(const double *x, int64_t n, bool smallest, int64_t *at);
    /* sum[j] = the sum over rows of x[r * step + j], or, with `mean` (n), of its square about mean[j]; j < n */
    void (*columns_f32)(double *sum, const float *x, const float *mean, int64_t rows, int64_t step, int64_t n);
    void (*columns_f64)(double *sum, const double *x, const double *mean, int64_t rows, int64_t step, int64_t n);
    /* The gradient of norm: with h = (x - mean) rstd (rms: x rstd) and g = dy w, dx = (g - mean(g) - h mean(g h))
     * rstd (rms: without mean(g)), and dw += dy h, db += dy over the rows (Ba et al. 2016). w, dw, db (n); the rest
     * (rows, n). No two of them overlap. */
    void (*norm_back_f32)(float *dx, double *dw, double *db, const float *dy, const float *x, const float *w,
                          int64_t rows, int64_t n, double eps, bool rms);
    void (*norm_back_f64)(double *dx, double *dw, double *db, const double *dy, const double *x, const double *w,
                          int64_t rows, int64_t n, double eps, bool rms);
} ReduceKernels;
#endif
