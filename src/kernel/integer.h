/* Products of integers of 8 bits, with exact sums, and the rounding of floats to such integers.
 *
 * acc (rows, cols) = (a - zero_a) (rows, K) (b - zero_b) (K, cols), in int32: for K up to INTEGER_DEEPEST no sum can
 * overflow, and no step in between saturates. a and b are i8 or u8, zero points in their range.
 *
 * Rows of a are cut into tiles of at most `mr` rows, columns of b into panels of `nr` columns, K into pairs (or, where
 * the ISA level has dot products of bytes, into fours: x86/integer_vnni.h):
 *     a packed: sums of the rows, then pairs of int16 (the zero point taken off), row after row in a pair of K
 *     b packed: panel after panel, pairs of int8 (u8 less 128), column after column in a pair of K; padded with zeros
 * nr is that of the ISA level's float32 product (kernel/product.h), whose epilogue `finish` takes the sums through.
 * Sums are integers: bits depend neither on the tile that a row is in nor on the number of threads.
 */
#ifndef QKV_KERNEL_INTEGER_H
#define QKV_KERNEL_INTEGER_H
#include "tensor/tensor.h"

enum {
    INTEGER_DEEPEST = 32768, /* 255 * 255 * K < 2^31 */
    DEPTHWISE_DEEPEST = 512  /* 255 * 127 * K < 2^24: whole numbers that floats hold */
};

/* Element (i, j) at data + i * rs + j * cs, less `zero`. */
typedef struct IntegerIn {
    const void *data;
    DType t; /* i8 or u8 */
    int zero;
    int64_t rs, cs;
    const void *zeros; /* NULL, or of type t: a zero point a row in place of `zero`; of a alone */
} IntegerIn;

static inline int integer_zero_of(const IntegerIn *a, int64_t row)
{
    if (!a->zeros) return a->zero;
    return a->t == DT_U8 ? ((const uint8_t *)a->zeros)[row] : ((const int8_t *)a->zeros)[row];
}

/* y = clamp(round_half_even(x / scale) + zero), or of x * (1 / scale) where by_inverse; NaN gives `none`: PyTorch has
 * 0, and where it fakes quantizers in floats the lowest. */
typedef struct Rounding {
    float scale;
    int zero, low, high;
    bool by_inverse;
    int none;
} Rounding;

/* Rows of i8 where they are: row r is, for each tap k, `each` bytes from at + r * step + jump[k] on, K = taps * each.
 */
typedef struct IntegerRows {
    const char *at; /* NULL: rows are packed */
    int64_t step, taps, each;
    const int64_t *jump;
} IntegerRows;

/* One call of a tile: acc (rows, nr) = the exact sums. */
typedef struct IntegerTile {
    int32_t *acc;               /* (mr, nr): rows from `rows` on may be written, too */
    const void *a, *b;          /* packed; of rows that are not, a is what `look` made */
    IntegerRows from;
    const char *next;           /* from.at of the tile that follows */
    int64_t panel, K;           /* panel: of b */
    int rows, cols;             /* columns from `cols` on need not be computed */
    int zero_b;                 /* of b as it was given, that is of u8 less 128 here already */
    int lines;                  /* cache lines to fetch from `ahead` on: a share of the panel that follows */
    const void *ahead, *next_a; /* next_a: the tile that follows; both for prefetching alone */
} IntegerTile;

/* A row of attention: p (n) = round(softmax(s + mask) / scale) + zero. s and p have room for n up to a multiple of
 * 64; s is written over. Where all of s is -inf, p is zero everywhere. p NULL: s becomes the softmax, 0 where all
 * was -inf. */
typedef struct IntegerSoftmax {
    float *s;
    void *p;
    int64_t n;
    const float *mask; /* NULL, or n to be added */
    Rounding rounding;
} IntegerSoftmax;

struct IntegerMatmul;

typedef struct IntegerKernels {
    int mr, nr;                              /* 0: this ISA level has no such kernels */
    size_t (*a_bytes)(int64_t K);            /* of one tile */
    size_t (*b_bytes)(int64_t K, int64_t N); /* of all panels; a multiple of 64 */
    void (*pack_a)(void *to, const IntegerIn *a, int64_t row, int rows, int64_t K);
    /* What a tile needs to know of rows of i8 that are not packed, `look_bytes`; NULL: it takes packed ones alone. */
    void (*look)(void *to, const IntegerRows *from, int zero, int rows);
    size_t look_bytes;
    void (*pack_b)(void *to, const IntegerIn *b, int64_t K, int64_t N);
    void (*tile)(const IntegerTile *t);
    void (*begin)(void); /* before the first and after the last tile on a thread; NULL: nothing to do */
    void (*end)(void);
    /* sums (rows, nr) through the epilogue (kernel/gemm_integer.h), to (row, col) of the result */
    void (*finish)(const struct IntegerMatmul *m, const int32_t *acc, int64_t row, int64_t col, int rows, int cols);
    /* y (n) and its scale, which the row's largest absolute value, or `least`, over 127 is; of u8 the row's range (with
     * zero) over 255, and its zero point. A row with NaN has the scale NaN. x * (1 / scale) is rounded. */
    void (*row_i8)(int8_t *y, const float *x, int64_t n, float least, float *scale);
    void (*row_u8)(uint8_t *y, const float *x, int64_t n, float least, float *scale, uint8_t *zero);
    void (*round_i8)(int8_t *y, const float *x, int64_t n, const Rounding *r);
    void (*round_u8)(uint8_t *y, const float *x, int64_t n, const Rounding *r);
    /* s (rows, nr), step `wide`, = by * acc (rows, nr) */
    void (*scores)(float *s, int64_t wide, const int32_t *acc, int rows, float by);
    void (*softmax)(const IntegerSoftmax *x);
} IntegerKernels;

/* What is left of a zero point of b once u8 has 128 taken off. */
static inline int integer_zero(const IntegerIn *b) { return b->t == DT_U8 ? b->zero - 128 : b->zero; }
#endif
