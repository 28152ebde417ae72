/* Matrix products and convolutions. Weights that never change are packed once.
 *
 *     Gemm *g = gemm_matmul(pool, &desc, err);          NULL with the error set: nothing here takes these dtypes
 *     gemm_run(g, &buffers, scratch);
 *     gemm_free(g);
 *
 * Products are made of the tiles of kernel/product.h (gemm_packed.c), convolutions of those of kernel/conv.h
 * (gemm_taps.c, gemm_depthwise.c) or, on AMX, of products' (gemm_conv.c). Loops (gemm_direct.c), or oneDNN where it is
 * built in (gemm_onednn.c), take what has no kernel. gemm.c chooses.
 * A GemmPool belongs to a session: the packed weights, shared by all products that want the same bytes in the same
 * layout. A weight is packed for keeps when it is used for the second time (gemm_weights.c): its plain bytes must stay
 * where they are.
 */
#ifndef QKV_KERNEL_GEMM_H
#define QKV_KERNEL_GEMM_H
#include "tensor/tensor.h"

typedef struct GemmPool GemmPool;
GemmPool *gemm_pool_create(Err *err);
void gemm_pool_free(GemmPool *p);
size_t gemm_pool_bytes(const GemmPool *p); /* of packed weights */

/* GEMM_QUICK_GELU: x sigmoid(1.702 x) (Hendrycks and Gimpel 2016, section 2) */
typedef enum GemmAct { GEMM_NONE, GEMM_RELU, GEMM_GELU_ERF, GEMM_GELU_TANH, GEMM_SILU, GEMM_QUICK_GELU } GemmAct;

/* c (..., M, N) = act(a (..., M, K) @ b (..., K, N) + bias (N)) + residual (or, `times`, * residual); batch dims
 * broadcast. Shapes and strides are the tensors'; ranks of a, b and c are equal. The last dim of c, residual and bias
 * is contiguous, their other dims may have any stride; residual has c's shape. a, b, c, bias, residual: f32 or bf16,
 * each its own. The product is of bf16 values (sums in f32) if b is bf16 or
 * `rounded`: a and b that are f32 are rounded first; else it is of f32 values. A row of c depends on its row of a and
 * on least_rows alone, bit for bit: not on M, the row's place, or the number of threads. On AMX float32 products that
 * always have so many rows (and weights that were not given packed) are summed otherwise than others
 * (x86/product_amx_f32.c), no less exactly.
 * windows: where the elements of b (batch, K, N) are when no strides of three axes say it, as windows of a picture that
 * overlap; b is its dtype and shape then. Its first axis is b's, the next `along` axes together are K, the others N:
 *
 *     a weight's gradient      (groups, N positions, window, C)      along = axes of N positions */
typedef struct GemmMatmul {
    const Tensor *a, *b, *c, *bias,
        *residual; /* bias, residual may be NULL; data is not read here but for a constant b */
    const Tensor *windows; /* NULL: b has strides */
    int along;
    int64_t first; /* position of windows that K begins at */
    bool b_constant, rounded, times, act_last; /* act_last: c = act(a @ b + bias + residual) */
    GemmAct act;
    int64_t least_rows; /* M (with the batch dims) in every call that has to give the same bits, at least; 0: not known.
                           The choice may rest on it, not on M: a batch of one is as a batch of many */
} GemmMatmul;

/* y = act(conv(x, w) + bias), or with `sum` act(conv(x, w) + bias + y).
 * x (N, C, spatial...), w (O, C/groups, k...) or, transposed, (C, O/groups, k...). x, y contiguous or channels-last
 * (tensor_channels_last), each its own; all f32, or all bf16 (the bias f32 or bf16). */
typedef struct GemmConv {
    const Tensor *x, *w, *bias, *y;
    int spatial;
    const int64_t *stride, *padding, *padding_end, *dilation;
    int64_t groups;
    bool transposed, w_constant, sum;
    GemmAct act;
} GemmConv;

typedef struct Gemm Gemm;
Gemm *gemm_matmul(GemmPool *p, const GemmMatmul *d, Err *err);
Gemm *gemm_conv(GemmPool *p, const GemmConv *d, Err *err);
void gemm_free(Gemm *g);
size_t gemm_scratch(const Gemm *g); /* bytes that gemm_run needs, 64-byte aligned */

typedef struct GemmBuffers {
    const void *a, *b, *bias, *residual; /* b is ignored when it was constant */
    void *c;
} GemmBuffers;
bool gemm_run(Gemm *g, const GemmBuffers *m, void *scratch, Err *err);

/* Weights between file and file + size, which are mapped read-only, are given back to the system as they are packed
 * for keeps: read again, they come from the file again. */
void gemm_pool_mapped(GemmPool *p, const void *file, size_t size);

/* Packed weights in files: what a matmul with the constant b (K, N) (by its strides:
 * a linear's weight turned) would pack.
 *
 *     const char *layout = gemm_layout(b, rounded);      names the bytes' layout:
 *                                                        what another CPU level may lay out differently
 *     gemm_pack(memory, b, rounded);                      gemm_packed_bytes(b) of them, 64-byte aligned
 *     gemm_pool_give(pool, b, rounded, memory, err);      a later gemm_matmul on the same b->data and strides takes
 *                                                         them as they are
 *
 * What was given stays the caller's and must outlive the pool; b->data is then a name only and never read.
 * NULL for a layout: nothing is packed for b. */
const char *gemm_layout(const Tensor *b, bool rounded);
size_t gemm_packed_bytes(const Tensor *b, bool rounded);
void gemm_pack(void *to, const Tensor *b, bool rounded);
bool gemm_pool_give(GemmPool *p, const Tensor *b, bool rounded, const void *packed, Err *err);
/* Every constant b (K, N) that a product was made of, and what it takes packed, for writing them. */
void gemm_pool_each(const GemmPool *p, void (*f)(void *user, const Tensor *b, bool rounded, size_t bytes), void *user);
#endif
