/* The two ways of gemm.c, for tests and measurements that compare them. */
#ifndef QKV_KERNEL_GEMM_IMPL_H
#define QKV_KERNEL_GEMM_IMPL_H
#include "kernel/gemm.h"
#include "kernel/kernel.h"

/* Own products. The layout of kernel k for weights; see kernel/product.h. */
typedef struct Packed Packed;
typedef struct PackedWeights PackedWeights;
PackedWeights *packed_weights_create(Err *err);
void packed_weights_free(PackedWeights *p);
size_t packed_weights_bytes(const PackedWeights *p);
/* NULL without an error: the rung has no kernel for it. */
Packed *packed_matmul(PackedWeights *p, const Kernels *k, const GemmMatmul *d, Err *err);
void packed_free(Packed *g);
size_t packed_scratch(const Packed *g);
bool packed_run(const Packed *g, const GemmBuffers *m, void *scratch, Err *err);
const ProductKernel *packed_kernel(const Kernels *k, const Tensor *b, bool rounded);
size_t packed_bytes(const ProductKernel *k, int64_t K, int64_t N);
void packed_pack(const ProductKernel *k, void *to, const Tensor *b, bool rounded, int threads);
bool packed_give(PackedWeights *p, const ProductKernel *k, const Tensor *b, bool rounded, const void *packed, Err *err);
void packed_each(const PackedWeights *p, void (*f)(void *user, const Tensor *b, bool rounded, size_t bytes), void *user);

/* oneDNN: all dtypes equal (the bias may be f32), c and residual contiguous. */
typedef struct OneDnn OneDnn;
typedef struct OneDnnPool OneDnnPool;
OneDnnPool *onednn_pool_create(Err *err);
void onednn_pool_free(OneDnnPool *p);
size_t onednn_pool_bytes(const OneDnnPool *p);
OneDnn *onednn_matmul(OneDnnPool *p, const GemmMatmul *d, Err *err);
OneDnn *onednn_conv(OneDnnPool *p, const GemmConv *d, Err *err);
void onednn_free(OneDnn *g);
size_t onednn_scratch(const OneDnn *g);
bool onednn_run(OneDnn *g, const GemmBuffers *m, void *scratch, Err *err);
#endif
