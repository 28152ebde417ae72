/* Tiles of products with weights of few bits. Contract in kernel/blocks.h. Included with W (words of a vector), NV, MR
 * and, after this file or as macros,
 *     DOT(sum, b, a)    sum[i] += the dot product of four bytes of b, unsigned, and of the word a, signed
 *     DOT_HALVES        the same where b is below 16
 */
#include <string.h>
#include "kernel/blocks.h"
#include "kernel/gen/fused.h"
#include "kernel/kernel.h"
#include "kernel/variant.h"

enum { COLS = W * NV, ROW_LINE = 64 };
typedef int32_t S __attribute__((vector_size(W * 4)));
typedef uint32_t U __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef float V __attribute__((vector_size(W * 4), aligned(4), may_alias));
enum { FAR = 8192 }; /* bytes in front of the words in use that are fetched */
#define AHEAD(words)                                                                                                   \
    for (int line = 0; line < COLS * bits; line += ROW_LINE) __builtin_prefetch((words) + FAR + line, 0, 3)

typedef struct Panel {
    const char *scales, *zeros, *words;
} Panel;

static size_t whole_lines(size_t n) { return (n + ROW_LINE - 1) / ROW_LINE * ROW_LINE; }

static Panel panel_of(const BlockTile *t)
{
    const size_t numbers = (size_t)blocks_of_row(t->form) * COLS;
    Panel p = {.scales = t->panel};
    p.zeros = p.scales + whole_lines(numbers * (t->form->halves ? 2 : 4));
    p.words = p.zeros + (t->form->zeros ? whole_lines(numbers) : 0);
    return p;
}

#if defined(__AVX512F__) /* which the compiler does not find in a conversion of vectors */
INLINE U wide_halves(const char *x) { return (U)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x)); }
INLINE S wide_bytes(const char *x) { return (S)_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)x)); }
#elif defined(__AVX2__)
INLINE U wide_halves(const char *x) { return (U)_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)x)); }
INLINE S wide_bytes(const char *x) { return (S)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)x)); }
#else
typedef uint16_t Narrow __attribute__((vector_size(W * 2), aligned(2), may_alias));
typedef int8_t Narrowest __attribute__((vector_size(W), aligned(1), may_alias));
INLINE U wide_halves(const char *x) { return __builtin_convertvector(*(const Narrow *)(const void *)x, U); }
INLINE S wide_bytes(const char *x) { return __builtin_convertvector(*(const Narrowest *)(const void *)x, S); }
#endif

INLINE V scale_at(const Panel *p, const BlockForm *f, int64_t i)
{
    return f->halves ? (V)(wide_halves(p->scales + 2 * i) << 16) : *(const V *)(const void *)(p->scales + 4 * i);
}

/* Zero points of columns from number i on. */
INLINE S zero_at(const Panel *p, int64_t i) { return wide_bytes(p->zeros + i); }

/* ------------------------------------------------------------------ rows of floats */

/* Element `at` (of eight halves, or four bytes) of every word. */
INLINE V number(U words, int bits, int at)
{
#if defined(__AVX512F__)
    static const float signed_halves[] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    if (bits == 4) return _mm512_permutexvar_ps((__m512i)(words >> (4 * at)), _mm512_loadu_ps(signed_halves));
#endif
    U flipped = words ^ (bits == 4 ? 0x88888888u : 0x80808080u); /* two's complement */
    return __builtin_convertvector((S)(flipped << (32 - bits * (at + 1))) >> (32 - bits), V);
}

/* Sums over a block of x times the integers, then times the scale. */
INLINE void floats_of(const BlockTile *t, const int rows, const int bits, const bool zeros)
{
    const BlockForm *f = t->form;
    const Panel p = panel_of(t);
    const int64_t step = (int64_t)(whole_lines((size_t)row_eights(f) * 8 * sizeof(float)) / sizeof(float));
    const char *words = p.words;
    const float *x = t->x;
    V sum[MR][NV];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) sum[r][v] = (V){0};
    for (int64_t b = 0, blocks = blocks_of_row(f); b < blocks; b++) {
        V zero[NV], s[MR][NV];
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) {
            if (zeros) zero[v] = __builtin_convertvector(zero_at(&p, b * COLS + v * W), V);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) s[r][v] = (V){0};
        }
        for (int64_t i = block_eights(f, b); i; i--, x += 8, words += COLS * bits) {
            AHEAD(words);
#pragma GCC unroll 8
            for (int k = 0; k < 8; k++) {
                const char *from = words + (bits == 8 && k > 3 ? COLS * 4 : 0);
#pragma GCC unroll 4
                for (int v = 0; v < NV; v++) {
                    V y = number(*(const U *)(const void *)(from + v * W * 4), bits,
                                 bits == 8 ? k & 3 : 2 * (k & 3) + (k >> 2));
                    if (zeros) y -= zero[v];
#pragma GCC unroll 4
                    for (int r = 0; r < rows; r++) s[r][v] = fused(s[r][v], every(x[k + (int64_t)r * step]), y);
                }
            }
        }
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) {
            const V scale = scale_at(&p, f, b * COLS + v * W);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) sum[r][v] = fused(sum[r][v], scale, s[r][v]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) *(V *)(void *)(t->acc + r * COLS + v * W) = sum[r][v];
}

/* ------------------------------------------------------------------ rows of integers */

typedef const int32_t __attribute__((may_alias, aligned(1))) Word;

INLINE void integers_of(const BlockTile *t, const int rows, const int bits, const bool zeros)
{
    const BlockForm *f = t->form;
    const Panel p = panel_of(t);
    const size_t n = whole_lines((size_t)row_eights(f) * 8),
                 step = n + whole_lines((size_t)blocks_of_row(f) * sizeof(int32_t));
    const char *words = p.words, *x = t->x;
    V sum[MR][NV];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) sum[r][v] = (V){0};
    for (int64_t b = 0, blocks = blocks_of_row(f); b < blocks; b++) {
        S s[MR][NV];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const int32_t of_row = ((const int32_t *)(const void *)((const char *)t->x + (size_t)r * step + n))[b];
#pragma GCC unroll 4
            for (int v = 0; v < NV; v++) {
                S offset = (S){0} + (bits == 4 ? 8 : 128);
                if (zeros) offset += zero_at(&p, b * COLS + v * W);
                s[r][v] = -offset * of_row;
            }
        }
        for (int64_t i = block_eights(f, b); i; i--, x += 8, words += COLS * bits) {
            AHEAD(words);
#pragma GCC unroll 4
            for (int v = 0; v < NV; v++) {
                const U y = *(const U *)(const void *)(words + v * W * 4),
                        z = bits == 8 ? *(const U *)(const void *)(words + (COLS + v * W) * 4) : y >> 4;
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++) {
                    const char *at = x + (size_t)r * step;
                    if (bits == 8) {
                        s[r][v] = DOT(s[r][v], y, *(Word *)(const void *)at);
                        s[r][v] = DOT(s[r][v], z, *(Word *)(const void *)(at + 4));
                    } else {
                        s[r][v] = DOT_HALVES(s[r][v], y & 0x0f0f0f0fu, *(Word *)(const void *)at);
                        s[r][v] = DOT_HALVES(s[r][v], z & 0x0f0f0f0fu, *(Word *)(const void *)(at + 4));
                    }
                }
            }
        }
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) {
            const V scale = scale_at(&p, f, b * COLS + v * W);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) sum[r][v] = fused(sum[r][v], scale, __builtin_convertvector(s[r][v], V));
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) *(V *)(void *)(t->acc + r * COLS + v * W) = sum[r][v] * every(t->scale_x[r]);
}

/* ------------------------------------------------------------------ one function a form */

#define FORMS(name, rows)                                                                                              \
    static void name##_##rows(const BlockTile *t)                                                                      \
    {                                                                                                                  \
        if (t->form->bits == 4 && t->form->zeros) name##_of(t, rows, 4, true);                                         \
        else if (t->form->bits == 4) name##_of(t, rows, 4, false);                                                     \
        else if (t->form->zeros) name##_of(t, rows, 8, true);                                                          \
        else name##_of(t, rows, 8, false);                                                                             \
    }

/* `name`, a tile of t->rows rows */
_Static_assert(MR == 2 || MR == 4, "heights of tiles");
#if MR == 4
#define HEIGHTS(name)                                                                                                  \
    FORMS(name, 1)                                                                                                     \
    FORMS(name, 2)                                                                                                     \
    FORMS(name, 3)                                                                                                     \
    FORMS(name, 4)                                                                                                     \
    static void name(const BlockTile *t)                                                                               \
    {                                                                                                                  \
        static void (*const of[])(const BlockTile *) = {name##_1, name##_2, name##_3, name##_4};                       \
        of[t->rows - 1](t);                                                                                            \
    }
#else
#define HEIGHTS(name)                                                                                                  \
    FORMS(name, 1)                                                                                                     \
    FORMS(name, 2)                                                                                                     \
    static void name(const BlockTile *t)                                                                               \
    {                                                                                                                  \
        static void (*const of[])(const BlockTile *) = {name##_1, name##_2};                                           \
        of[t->rows - 1](t);                                                                                            \
    }
#endif

HEIGHTS(integers)
