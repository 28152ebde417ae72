/* Products with packed weights of few bits (kernel/blocks.h) put together of tiles. A row of the result depends on its
 * row of x alone, bit for bit: not on how many rows there are, nor on threads. */
#ifndef QKV_KERNEL_GEMM_BLOCKS_H
#define QKV_KERNEL_GEMM_BLOCKS_H
#include "kernel/blocks.h"
#include "kernel/product.h"

/* Whether the form's scales are bf16 exactly, and zeros are worth keeping: what pack writes. */
BlockForm blocks_form(const BlockWeight *w, int64_t N, int64_t K, int64_t block, int bits);
size_t blocks_bytes(const BlockForm *f);
void blocks_pack(void *to, const BlockForm *f, const BlockWeight *w, int threads);

typedef struct BlockMatmul {
    const BlockForm *form;
    const void *packed;
    int64_t M;
    const void *x;        /* (M, K) contiguous: float32, or i8 with scale_x */
    const float *scale_x; /* (M) with step_x 1, one with 0; NULL: x is float32 */
    int64_t step_x;
    ProductOut out;
} BlockMatmul;

size_t blocks_scratch(const BlockMatmul *m);
void blocks_matmul(const BlockMatmul *m, void *scratch, int threads);
#endif
