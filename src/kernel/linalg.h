/* Attention, and the portable matrix product and convolution for what oneDNN does not take (double, integers, the reference rung). */
#ifndef QKV_KERNEL_LINALG_H
#define QKV_KERNEL_LINALG_H
#include "tensor/tensor.h"

/* out (B, H, N, E) = softmax(scale * q k^T + mask) v, row-wise over keys; a row with no allowed key gives 0, as PyTorch's SDPA does.
 * q (B, H, N, D), k (B, Hkv, M, D), v (B, Hkv, M, E), Hkv divides H. Strides in elements; the last dim of q, k, v is contiguous.
 * mask: additive float or truth (non-zero = attend), by strides over (B, H, N, M), 0 where it broadcasts; NULL for none.
 * Key j is allowed for query i when i + lower <= j <= i + upper: SDPA_ANY bounds nothing, upper = 0 is aten's is_causal (top-left aligned).
 * softcap c > 0: scores s become c * tanh(s / c) before the mask (Gemma 2, section 2).
 * Formula: online softmax over blocks of keys (Milakov and Gimelshein 2018; Dao et al. 2022). No (N, M) matrix is made. */
enum { SDPA_ANY = 1 << 30 }; /* as lower: -SDPA_ANY */

typedef struct Sdpa {
    int64_t B, H, Hkv, N, M, D, E;
    const float *q, *k, *v;
    float *out; /* contiguous */
    int64_t qs[3], ks[3], vs[3]; /* strides of batch, head, row */
    const float *mask;
    const uint8_t *truth;
    int64_t ms[4];
    float scale, softcap;
    int64_t lower, upper;
} Sdpa;

/* Pairs (a, b) of a row become (a cos - b sin, b cos + a sin): Su et al. 2021. The pairs are x[i], x[i + D / 2], or x[2 i], x[2 i + 1] when
 * interleaved. cos and sin have a number for each element, or (`one`) for each pair. Strides of the leading axes in elements, 0 where cos and
 * sin broadcast; the last axis is contiguous, and out is throughout. */
typedef struct Rotary {
    DType t; /* f32, f64 */
    int rank; /* leading axes */
    int64_t shape[MAX_RANK], D;
    const void *x, *cos, *sin;
    void *out;
    int64_t xs[MAX_RANK], cs[MAX_RANK], ss[MAX_RANK];
    bool one_cos, one_sin, interleaved;
} Rotary;

/* Workspace in floats per thread. */
typedef struct LinalgKernels {
    int64_t (*sdpa_workspace)(const Sdpa *a);
    void (*sdpa_f32)(const Sdpa *a, float *workspace, int threads);
    /* c (M, N) = a (M, K) b (K, N), strides in elements; c contiguous; accumulation in double / exact in 64 bits */
    void (*matmul_f32)(float *c, const float *a, const float *b, int64_t M, int64_t N, int64_t K, int64_t ars, int64_t acs, int64_t brs, int64_t bcs);
    void (*matmul_f64)(double *c, const double *a, const double *b, int64_t M, int64_t N, int64_t K, int64_t ars, int64_t acs, int64_t brs, int64_t bcs);
    void (*matmul_i64)(int64_t *c, const int64_t *a, const int64_t *b, int64_t M, int64_t N, int64_t K, int64_t ars, int64_t acs, int64_t brs, int64_t bcs);
    void (*rotary_f32)(const Rotary *r, int threads);
    void (*rotary_f64)(const Rotary *r, int threads);
} LinalgKernels;
#endif
