/* Moving elements by index tables. Sizes of elements: 1, 2, 4, 8, 16 bytes. */
#ifndef QKV_KERNEL_INDEX_H
#define QKV_KERNEL_INDEX_H
#include "tensor/tensor.h"

typedef struct IndexKernels {
    /* out[i0, i1, ...] = in[map[0][i0], map[1][i1], ...], or *fill where a map holds -1. out contiguous of sizes n[0
     * .. rank), in with strides in elements. Padding, flipping, reflecting and nearest resampling are such maps. */
    void (*map)(void *out, const void *in, int rank, const int64_t *n, const int64_t *in_stride,
                const int64_t *const *map, const void *fill, size_t size, int threads);
    /* out[i] = rows[index[i]] for rows of `bytes` bytes; indices are checked by the caller */
    void (*rows)(void *out, const void *rows, const int64_t *index, int64_t n, size_t bytes, int threads);
} IndexKernels;
#endif
