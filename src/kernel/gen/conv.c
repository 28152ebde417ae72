/* Convolutions' tiles, depthwise rows and columns in portable C: registers are vectors of the compiler's, as wide as
 * the ISA level's. Contract in kernel/conv.h.
 */
#include "kernel/gen/fused.h"
#include "kernel/gen/product_impl.h"
#include "kernel/kernel.h"
#include "kernel/variant.h"

#if defined(__AVX512F__)
enum { W = 16 };
#define MR 9
#define NV 3
#define MR4 6
#elif defined(__AVX2__)
enum { W = 8 };
#define MR 6
#define NV 2
#define MR4 0
#elif defined(QKV_FUSED)
enum { W = 8 };
#define MR 1
#define NV 1
#define MR4 0
#elif defined(__aarch64__)
enum { W = 4 };
#define MR 8
#define NV 3
#define MR4 0
#else
enum { W = 4 };
#define MR 4
#define NV 3
#define MR4 0
#endif
enum { PER_WORD = 1 };
#define MULTIPLY(sum, one, y) fused(sum, every(one), y)
#include "kernel/gen/conv_tile.h"

#include "kernel/gen/gradient_tile.h"

/* ------------------------------------------------------------------ packing */

/* Rows whose columns are nearer than the rows are to each other: those of a gradient's weights. */
static void pack_rows(float *p, const ProductIn *b, int64_t K, int64_t col, int cols, int width)
{
    const float *f = (const float *)b->data + col * b->cs;
    const uint16_t *h = (const uint16_t *)b->data + col * b->cs;
    int64_t size = b->dtype == DT_BF16 ? 2 : 4, ahead = (b->cs == 1 ? 16 : 4) * b->rs * size,
            bytes = cols * b->cs * size;
    for (int64_t k = 0; k < K; k++, p += width, f += b->rs, h += b->rs) {
        const char *next = (b->dtype == DT_BF16 ? (const char *)h : (const char *)f) + ahead; /* rows are far apart */
        for (int64_t at = 0; at < bytes; at += LINE) __builtin_prefetch(next + at, 0, 3);
        if (b->dtype == DT_BF16)
            for (int j = 0; j < cols; j++) p[j] = bf16_value(h[j * b->cs]);
        else if (b->cs == 1) memcpy(p, f, (size_t)cols * sizeof *p);
        else
            for (int j = 0; j < cols; j++) p[j] = f[j * b->cs];
    }
}

/* Columns are read sixteen by sixteen words and turned. */
static void pack(void *to, const ProductIn *b, int64_t K, int64_t col, int cols, int width)
{
    float *p = to, line[LANES][LANES];
    const float *from[LANES];
    if (cols < width) memset(to, 0, (size_t)(K * width) * sizeof *p);
    if (b->cs < b->rs) {
        pack_rows(p, b, K, col, cols, width);
        return;
    }
    for (int j = 0; j < cols; j += LANES) {
        int some = cols - j < LANES ? cols - j : LANES;
        for (int64_t k = 0; k < K; k += LANES) {
            int n = K - k < LANES ? (int)(K - k) : LANES;
            for (int i = 0; i < some; i++) {
                int64_t at = k * b->rs + (col + j + i) * b->cs;
                from[i] = line[i];
                if (n == LANES && b->rs == 1 && b->dtype == DT_F32) from[i] = (const float *)b->data + at;
                else
                    for (int m = 0; m < n; m++) line[i][m] = element(b, at + m * b->rs);
            }
            if (n == LANES) turn_lines(p + k * width + j, width, from, some);
            else
                for (int m = 0; m < n; m++)
                    for (int i = 0; i < some; i++) p[(k + m) * width + j + i] = line[i][m];
        }
    }
}

#if defined(__AVX512F__)
/* Sixteen columns by a line of words that has their taps are turned at a time. */
static void pack_taps(void *to, int64_t apart, const ProductIn *b, const int *at, int taps, int64_t K, int64_t col,
                      int cols, int width)
{
    const float *from = (const float *)b->data + col * b->cs, *row[LANES];
    const float none[LANES] = {0};
    F16 line[LANES];
    int n = 0;
    for (int t = 0; t < taps; t++) n = at[t] >= n ? at[t] + 1 : n;
    __mmask16 there = (__mmask16)((1u << n) - 1);
    for (int64_t k = 0; k < K; k++, from += b->rs)
        for (int j = 0; j < width; j += LANES) {
            char *p = (char *)to + (k * width + j) * 4;
            for (int i = 0; i < LANES; i++) {
                bool in = j + i < cols;
                const float *x = in ? from + (j + i) * b->cs : none;
                row[i] = x;
                __builtin_prefetch(x + (in ? b->rs : 0), 0, 3);
            }
            for (int i = 0; i < LANES; i++) line[i] = (F16)_mm512_maskz_loadu_ps(there, row[i]);
            turn_vectors(line);
            for (int t = 0; t < taps; t++) *(F16 *)(void *)(p + t * apart) = line[at[t]];
        }
}
#endif

/* ------------------------------------------------------------------ columns */

static void columns_4(void *to, int64_t step, const void *const *from, int rows, int64_t n)
{
    float *p = to;
    int64_t whole = n / LANES * LANES;
    for (int e = 0; e < rows; e += LANES) {
        int some = rows - e < LANES ? rows - e : LANES;
        const float *line[LANES];
        for (int64_t j = 0; j < whole; j += LANES) {
            for (int i = 0; i < some; i++) line[i] = (const float *)from[e + i] + j;
            turn_lines(p + j * step + e, step, line, some);
        }
        for (int64_t j = whole; j < n; j++)
            for (int i = 0; i < some; i++) p[j * step + e + i] = ((const float *)from[e + i])[j];
    }
}

/* Words of neighbours in two rows; high NULL: of one row, and zeros. */
INLINE void pair_rows(uint32_t *to, const uint16_t *low, const uint16_t *high)
{
    if (high)
        for (int m = 0; m < LANES; m++) to[m] = (uint32_t)low[m] | (uint32_t)high[m] << 16;
    else
        for (int m = 0; m < LANES; m++) to[m] = low[m];
}

/* Pairs of rows are interleaved to words first, so that words are turned. */
static void columns_2(void *to, int64_t step, const void *const *from, int rows, int64_t n)
{
    uint16_t *p = to;
    int64_t whole = step % 2 ? 0 : n / LANES * LANES;
    int pairs = (rows + 1) / 2;
    for (int e = 0; e < pairs; e += LANES) {
        int some = pairs - e < LANES ? pairs - e : LANES;
        uint32_t word[LANES][LANES];
        const float *line[LANES];
        for (int64_t j = 0; j < whole; j += LANES) {
            for (int i = 0; i < some; i++) {
                int row = 2 * (e + i);
                pair_rows(word[i], (const uint16_t *)from[row] + j,
                          row + 1 < rows ? (const uint16_t *)from[row + 1] + j : NULL);
                line[i] = (const float *)(const void *)word[i];
            }
            turn_lines((float *)(void *)(p + j * step) + e, step / 2, line, some);
        }
    }
    for (int64_t j = whole; j < n; j++) {
        for (int e = 0; e < rows; e++) p[j * step + e] = ((const uint16_t *)from[e])[j];
        if (rows % 2) p[j * step + rows] = 0;
    }
}

#include "kernel/gen/depthwise.h"
#include "kernel/gen/correlate.h"

INLINE void whole_line(float *to, const uint8_t *x, bool with_sign, int zero, int64_t C)
{
    int64_t c = 0;
    for (; c + LANES <= C; c += LANES)
        for (int i = 0; i < LANES; i++) to[c + i] = (float)((with_sign ? (int8_t)x[c + i] : x[c + i]) - zero);
    for (; c < C; c++) to[c] = (float)((with_sign ? (int8_t)x[c] : x[c]) - zero);
}

static void whole(float *to, const void *x, DType t, int zero, int64_t step, int64_t n, int64_t C)
{
    const uint8_t *from = x;
    for (int64_t j = 0; j < n; j++, to += C, from += step)
        if (t == DT_I8) whole_line(to, from, true, zero, C);
        else whole_line(to, from, false, zero, C);
}

void KERNEL(conv_fill)(ConvKernels *k);
void KERNEL(conv_fill)(ConvKernels *k)
{
    k->f32 = (ConvKernel){.mr = {MR, MR4},
                          .width = {NV * W, MR4 ? 4 * W : 0},
                          .size = 4,
                          .per_word = 1,
                          .pack = pack,
                          .tile = {conv_tile_any},
                          .gradient = {gradient_any}};
#if defined(__AVX512F__)
    k->f32.pack_taps = pack_taps;
#endif
#if MR4
    k->f32.tile[1] = wide_any;
    k->f32.gradient[1] = wide_gradient_any;
#endif
    k->depthwise = depthwise;
    k->correlate = correlate;
    k->widen = widen;
    k->whole = whole;
    k->columns_4 = columns_4;
    k->columns_2 = columns_2;
}
