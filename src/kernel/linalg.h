/* Rotary embedding, and the portable matrix product for what gemm.h does not take (double, integers, the reference ISA
 * level). */
#ifndef QKV_KERNEL_LINALG_H
#define QKV_KERNEL_LINALG_H
#include "tensor/tensor.h"

enum { ROTARY_WIDEST = 512 }; /* the longest rows (D) of bf16 */

/* Pairs (a, b) of a row become (a cos - b sin, b cos + a sin): Su et al. 2021. The pairs are x[i], x[i + D / 2], or
 * x[2 i], x[2 i + 1] when interleaved. cos and sin have a number for each element, or (`one`) for each pair. Strides
 * of the leading axes in elements, 0 where cos and sin broadcast; the last axis is contiguous. Rows go in the order of
 * the axes. */
typedef struct Rotary {
    DType t;          /* of cos, sin and the arithmetic: f32, f64 */
    DType x_t, out_t; /* t, or with f32: bf16 */
    int rank;         /* leading axes */
    int64_t shape[MAX_RANK], D;
    const void *x, *cos, *sin;
    void *out;
    int64_t xs[MAX_RANK], cs[MAX_RANK], ss[MAX_RANK], ys[MAX_RANK];
    bool one_cos, one_sin, interleaved;
} Rotary;

typedef struct LinalgKernels {
    /* c (M, N) = a (M, K) b (K, N), strides in elements; c contiguous; accumulation in double / exact in 64 bits */
    void (*matmul_f32)(float *c, const float *a, const float *b, int64_t M, int64_t N, int64_t K, int64_t ars,
                       int64_t acs, int64_t brs, int64_t bcs);
    void (*matmul_f64)(double *c, const double *a, const double *b, int64_t M, int64_t N, int64_t K, int64_t ars,
                       int64_t acs, int64_t brs, int64_t bcs);
    void (*matmul_i64)(int64_t *c, const int64_t *a, const int64_t *b, int64_t M, int64_t N, int64_t K, int64_t ars,
                       int64_t acs, int64_t brs, int64_t bcs);
    void (*rotary_f32)(const Rotary *r, int threads);
    void (*rotary_f64)(const Rotary *r, int threads);
} LinalgKernels;
#endif
