/* Products with a weight of 4 or 8 bits whose rows have a scale a block, read as it is packed: few rows take as long as
 * the memory needs to bring the weight.
 *
 *     y (rows, N) = x (rows, K) w^T,   w[n][k] = (q[n][k] - zero[n][k / block]) scale[n][k / block]
 *
 * x is float32, or i8 with a scale a row: then the sums over a block are integers, exactly.
 *
 * Packed, for panels of `nr` columns (those of the ISA level's float32 product, kernel/product.h):
 *     scales (blocks, nr), bf16 where every scale is one exactly, else float32
 *     zeros  (blocks, nr) as i8, where they are not all 0
 *     words  eights of K, block by block, the last eight of a block padded: of 8 bits two words of four bytes a column;
 *            of 4 bits one, whose low halves are elements 0 to 3 of the eight, and whose high halves are 4 to 7
 * Elements have 128 (of 4 bits 8) added, so that they are unsigned. One copy serves one row and many.
 */
#ifndef QKV_KERNEL_BLOCKS_H
#define QKV_KERNEL_BLOCKS_H
#include "tensor/tensor.h"

enum { BLOCKS_DEEPEST = 32768 }; /* 255 * 128 * block < 2^31 */

typedef struct BlockForm {
    int64_t N, K, block; /* block: of 8 elements and more, a multiple of 8 unless it is K */
    int bits;            /* 4 or 8 */
    bool halves, zeros;  /* scales are bf16; there are zero points */
} BlockForm;

/* A byte an element: of 4 bits -8 to 7 (i4, i8) or 0 to 15 (u4), of 8 bits i8 or u8. */
typedef struct BlockWeight {
    const void *data;
    DType t;
    int64_t rs, cs;     /* of n, of k */
    const float *scale; /* (N, blocks) */
    const void *zero;   /* NULL, or of type t, (N, blocks) */
} BlockWeight;

/* A tile of rows by a panel: acc (rows, nr). */
typedef struct BlockTile {
    const BlockForm *form;
    float *acc;
    const void *panel;
    const void *x;        /* rows, packed (blocks_row_bytes apart) */
    const float *scale_x; /* of rows of i8; NULL: x is float32 */
    int rows;             /* at most mr */
} BlockTile;

typedef struct BlockKernels {
    int mr, nr; /* 0: this ISA level has no such kernels */
    void (*floats)(const BlockTile *t);
    void (*integers)(const BlockTile *t);
} BlockKernels;

static inline int64_t blocks_of_row(const BlockForm *f) { return f->block ? (f->K + f->block - 1) / f->block : 0; }

/* Eights of block i. */
static inline int64_t block_eights(const BlockForm *f, int64_t i)
{
    int64_t left = f->K - i * f->block;
    return ((left < f->block ? left : f->block) + 7) / 8;
}

/* Of a whole row; only the last block may be padded. */
static inline int64_t row_eights(const BlockForm *f) { return (f->K + 7) / 8; }
#endif
