/* Copies of matrices, element by element: what PointwiseKernels.copy_2d is. Where rows of the result are columns of
 * what is read, squares of vectors are transposed in registers.
 */
#ifndef QKV_KERNEL_GEN_COPIES_H
#define QKV_KERNEL_GEN_COPIES_H
#include "kernel/gen/sdpa_vec.h"

/* FEW: columns that go one after the other, in runs of rows: three of bytes are the channels of a picture. */
enum { COPY_TILE = 32, COPY_FEW = 8, COPY_RUN = 1024 };

typedef struct Wide {
    uint64_t half[2];
} Wide;

/* out[r * cols + c] = in[r * rs + c * cs] of rows [r0, r1) and columns [c0, c1). */
#define COPY_PIECE(name, E)                                                                                            \
    static void name##_piece(E *out, const E *in, int64_t r0, int64_t r1, int64_t c0, int64_t c1, int64_t cols,        \
                             int64_t rs, int64_t cs)                                                                   \
    {                                                                                                                  \
        for (int64_t r = r0; c1 - c0 >= COPY_FEW && r < r1; r++)                                                       \
            for (int64_t c = c0; c < c1; c++) out[r * cols + c] = in[r * rs + c * cs];                                 \
        for (int64_t c = c0; c1 - c0 < COPY_FEW && c < c1; c++)                                                        \
            for (int64_t r = r0; r < r1; r++) out[r * cols + c] = in[r * rs + c * cs];                                 \
    }

#define COPY_TILES(name, E)                                                                                            \
    COPY_PIECE(name, E)                                                                                                \
    static void name(E *out, const E *in, int64_t rows, int64_t cols, int64_t rs, int64_t cs)                          \
    {                                                                                                                  \
        int64_t high = cols < COPY_FEW ? COPY_RUN : COPY_TILE;                                                         \
        for (int64_t r = 0, end; r < rows; r = end) {                                                                  \
            end = rows - r < high ? rows : r + high;                                                                   \
            for (int64_t c = 0, w; c < cols; c = w) {                                                                  \
                w = cols - c < COPY_TILE ? cols : c + COPY_TILE;                                                       \
                name##_piece(out, in, r, end, c, w, cols, rs, cs);                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }

/* The same of elements of 4 bytes or fewer, in squares where rs is 1. Sixteen rows go together: a line of what is read
 * has so many of 4 bytes. */
#define COPY_SQUARES(name, E)                                                                                          \
    COPY_TILES(name, E)                                                                                                \
    typedef E name##_lanes __attribute__((vector_size(LANES * sizeof(E)), aligned(sizeof(E)), may_alias));             \
    INLINE void name##_square(E *out, const E *in, int64_t cols, int64_t cs)                                           \
    {                                                                                                                  \
        Vec x[LANES];                                                                                                  \
        _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) x[i] =                                                \
            (Vec)__builtin_convertvector(*(const name##_lanes *)(in + i * cs), UVec);                                  \
        vec_transpose(x);                                                                                              \
        _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++) * (name##_lanes *)(out + i * cols) =                  \
            __builtin_convertvector((UVec)x[i], name##_lanes);                                                         \
    }                                                                                                                  \
    static void name##_turned(E *out, const E *in, int64_t rows, int64_t cols, int64_t rs, int64_t cs)                 \
    {                                                                                                                  \
        enum { TOGETHER = 16 };                                                                                        \
        if (rs != 1 || rows < LANES || cols < LANES) {                                                                 \
            name(out, in, rows, cols, rs, cs);                                                                         \
            return;                                                                                                    \
        }                                                                                                              \
        int64_t whole = rows / LANES * LANES, wide = cols / LANES * LANES;                                             \
        for (int64_t r0 = 0; r0 < whole; r0 += TOGETHER)                                                               \
            for (int64_t c = 0; c < wide; c += LANES)                                                                  \
                for (int64_t r = r0; r < whole && r < r0 + TOGETHER; r += LANES)                                       \
                    name##_square(out + r * cols + c, in + r + c * cs, cols, cs);                                      \
        name##_piece(out, in, 0, whole, wide, cols, cols, rs, cs);                                                     \
        name##_piece(out, in, whole, rows, 0, cols, cols, rs, cs);                                                     \
    }

COPY_SQUARES(copy_bytes, uint8_t)
COPY_SQUARES(copy_halves, uint16_t)
COPY_SQUARES(copy_words, uint32_t)
COPY_TILES(copy_longs, uint64_t)
COPY_TILES(copy_wides, Wide)

static bool copy_2d(void *out, const void *in, int64_t rows, int64_t cols, int64_t rs, int64_t cs, size_t size)
{
    if (cs == 1) {
        for (int64_t r = 0; r < rows; r++)
            memcpy((char *)out + (size_t)(r * cols) * size, (const char *)in + r * rs * (int64_t)size,
                   (size_t)cols * size);
        return true;
    }
    switch (size) {
    case 1: copy_bytes_turned(out, in, rows, cols, rs, cs); break;
    case 2: copy_halves_turned(out, in, rows, cols, rs, cs); break;
    case 4: copy_words_turned(out, in, rows, cols, rs, cs); break;
    case 8: copy_longs(out, in, rows, cols, rs, cs); break;
    case 16: copy_wides(out, in, rows, cols, rs, cs); break;
    default: return false;
    }
    return true;
}
#endif
