/* Matrix products and convolutions through oneDNN, in one file (gemm_onednn.c). Weights that never change are packed once.
 *
 *     Gemm *g = gemm_matmul(pool, &desc, err);          NULL without error set: oneDNN has nothing for this; use the portable kernel
 *     gemm_run(g, &buffers, scratch);
 *     gemm_free(g);
 *
 * A GemmPool belongs to a session: an engine, a stream, and the packed weights, shared by all products that want the same bytes in the
 * same layout.
 */
#ifndef QKV_KERNEL_GEMM_H
#define QKV_KERNEL_GEMM_H
#include "tensor/tensor.h"

typedef struct GemmPool GemmPool;
GemmPool *gemm_pool_create(Err *err);
void gemm_pool_free(GemmPool *p);
size_t gemm_pool_bytes(const GemmPool *p); /* of packed weights */

typedef enum GemmAct { GEMM_NONE, GEMM_RELU, GEMM_GELU_ERF, GEMM_GELU_TANH, GEMM_SILU } GemmAct;

/* c (..., M, N) = act(a (..., M, K) @ b (..., K, N) + bias (N)) + residual; batch dims broadcast. Shapes and strides are the tensors';
 * c is contiguous. dtypes: a, b, c f32 or all bf16; bias f32 or as c. */
typedef struct GemmMatmul {
    const Tensor *a, *b, *c, *bias, *residual; /* bias, residual may be NULL; data is not read here but for a constant b */
    bool b_constant;
    GemmAct act;
} GemmMatmul;

/* y = conv(x, w) + bias; x (N, C, spatial...), w (O, C/groups, k...) or, transposed, (C, O/groups, k...). x, y contiguous. */
typedef struct GemmConv {
    const Tensor *x, *w, *bias, *y;
    int spatial;
    const int64_t *stride, *padding, *padding_end, *dilation;
    int64_t groups;
    bool transposed, w_constant;
    GemmAct act;
} GemmConv;

typedef struct Gemm Gemm;
Gemm *gemm_matmul(GemmPool *p, const GemmMatmul *d, Err *err);
Gemm *gemm_conv(GemmPool *p, const GemmConv *d, Err *err);
void gemm_free(Gemm *g);
size_t gemm_scratch(const Gemm *g); /* bytes that gemm_run needs */

typedef struct GemmBuffers {
    const void *a, *b, *bias, *residual; /* b is ignored when it was constant */
    void *c;
} GemmBuffers;
bool gemm_run(Gemm *g, const GemmBuffers *m, void *scratch, Err *err);
#endif
