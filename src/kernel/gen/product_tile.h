/* Tiles of MR x NV vectors of W words, one function per height so that the sums stay in registers. Included with W, MR,
 * NV, NR, PER_WORD and MULTIPLY(sum, word of a, vector of b); a and b are packed along K: [K][rows of the tile],
 * [K][NR], in words (a float, or two bf16).
 */
typedef float V __attribute__((vector_size(W * 4)));
#include "kernel/gen/above.h"

INLINE void sums_begin(int rows, int nv, const float *acc, bool add, V s[MR][NV])
{
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) s[r][v] = add ? *(const V *)(acc + r * NR + v * W) : (V){0};
}

INLINE void sums_end(int rows, int nv, float *acc, V s[MR][NV])
{
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) *(V *)(acc + r * NR + v * W) = s[r][v];
}

typedef const float __attribute__((may_alias)) Word; /* of a: a float, or two bf16 */

/* One word of K: s[r] += a[r * step bytes] * y[0..nv). */
INLINE void sums_times(int rows, int nv, const char *a, int64_t step, const V *y, V s[MR][NV])
{
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        float one = *(Word *)(const void *)(a + r * step);
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) s[r][v] = MULTIPLY(s[r][v], one, y[v]);
    }
}

INLINE void sums_add(int rows, int nv, const char *a, int64_t step, const float *b, V s[MR][NV])
{
    V y[NV];
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++) y[v] = *(const V *)(b + v * W);
    sums_times(rows, nv, a, step, y, s);
}

typedef float Anywhere __attribute__((vector_size(W * 4), aligned(4), may_alias));

/* A vector of c, of the residual or of the bias: floats, or, of `halves`, bf16. */
INLINE V out_vector(const char *from, DType t)
{
#ifdef __AVX512BF16__
    if (t == DT_BF16) {
        __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)from);
        return (V)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
    }
#endif
    (void)t;
    return *(const Anywhere *)(const void *)from;
}

INLINE void put_vector(char *to, DType t, V x)
{
#ifdef __AVX512BF16__
    if (t == DT_BF16) {
        _mm256_storeu_si256((__m256i *)(void *)to, (__m256i)_mm512_cvtneps_pbh((__m512)x));
        return;
    }
#endif
    (void)t;
    *(Anywhere *)(void *)to = x;
}

INLINE int64_t size_of(DType t) { return t == DT_BF16 ? 2 : 4; }

/* What tiles do with sums but to add a bias. */
typedef enum Ending { PLAIN, RELU, RESIDUAL, RELU_RESIDUAL, RESIDUAL_RELU } Ending;

INLINE Ending ending_of(const ProductOut *o)
{
    bool relu = o->act == GEMM_RELU;
    if (!o->residual) return relu ? RELU : PLAIN;
    return relu ? o->act_last ? RESIDUAL_RELU : RELU_RESIDUAL : RESIDUAL;
}

/* Sums into c, from `row` on. Dtypes and endings that the compiler knows: a test for each vector is as long as the
 * rest. */
INLINE void sums_as(int rows, int nv, const ProductTile *t, int64_t row, V s[MR][NV], const V *b, DType own,
                    DType other, Ending e)
{
    const ProductOut *o = t->into;
    int64_t c_step = o->c_step * size_of(own), step = o->residual_step * size_of(other);
    char *to = (char *)o->c + row * c_step + t->col * size_of(own);
    const char *from = e >= RESIDUAL ? (const char *)o->residual + row * step + t->col * size_of(other) : to;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++, to += c_step, from += step)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) {
            V x = s[r][v] + b[v];
            if (e == RELU || e == RELU_RESIDUAL) x = above((V){0}, x);
            if (e >= RESIDUAL) x += out_vector(from + v * W * size_of(other), other);
            if (e == RESIDUAL_RELU) x = above((V){0}, x);
            put_vector(to + v * W * size_of(own), own, x);
        }
}

/* Dtypes that the compiler knows, but for a residual of another dtype. */
INLINE void sums_of(int rows, int nv, const ProductTile *t, int64_t row, V s[MR][NV], const V *b, DType own)
{
    const ProductOut *o = t->into;
    Ending e = ending_of(o);
    if (e == PLAIN) sums_as(rows, nv, t, row, s, b, own, own, PLAIN);
    else if (e == RELU) sums_as(rows, nv, t, row, s, b, own, own, RELU);
    else if (e == RESIDUAL && o->residual_type == own) sums_as(rows, nv, t, row, s, b, own, own, RESIDUAL);
    else if (e == RESIDUAL_RELU && o->residual_type == own) sums_as(rows, nv, t, row, s, b, own, own, RESIDUAL_RELU);
    else sums_as(rows, nv, t, row, s, b, own, o->residual_type, e);
}

/* Sums that need a bias, a ReLU and a residual at most go from registers into c. */
INLINE void sums_into_c(int rows, int nv, const ProductTile *t, int64_t row, V s[MR][NV])
{
    const ProductOut *o = t->into;
    V b[NV];
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++)
        b[v] = o->bias ? out_vector((const char *)o->bias + (t->col + v * W) * size_of(o->bias_type), o->bias_type)
                       : (V){0} - 0.0f;
#ifdef __AVX512BF16__
    if (o->c_type == DT_BF16) {
        sums_of(rows, nv, t, row, s, b, DT_BF16);
        return;
    }
#endif
    sums_of(rows, nv, t, row, s, b, DT_F32);
}

INLINE void sums_done(int rows, int nv, const ProductTile *t, int64_t i, V s[MR][NV]) /* of tile i */
{
    if (t->into) sums_into_c(rows, nv, t, t->row + i * rows, s);
    else sums_end(rows, nv, t->acc + i * MR * NR, s);
}

INLINE void fetch_row(int nv, const char *row)
{
    for (int at = 0; at < nv * W * 4; at += LINE) __builtin_prefetch(row + at, 1, 3);
}

/* GROUP: words of K for which lines are fetched together. A word's multiply-adds take 6 cycles of AVX2, in which a
 * Zen 3 begins 36 instructions: to fetch for each word would take a third of them. */
#if defined(__AVX512F__)
enum { GROUP = 1 };
#else
enum { GROUP = 4 };
#endif

/* Lines of `bytes` from `at` on. */
INLINE void fetch_lines(const char *at, int64_t bytes)
{
    int64_t line = 0;
    do __builtin_prefetch(at + line, 0, 2);
    while ((line += LINE) < bytes);
}

/* Rows of c, then of the residual (`more`), one after the other; from then on the last of them again. */
typedef struct Soon {
    const char *at, *more;
    int64_t step, left;
} Soon;

/* Of tile i. Sums that wait in acc, which is near, touch nothing else. */
INLINE Soon soon_of(const ProductTile *t, int64_t i)
{
    const ProductRows *c = &t->soon[0], *more = &t->soon[1];
    if (!c->n) return (Soon){.at = (const char *)t->acc};
    return (Soon){c->at + i * c->n * c->step, more->n ? more->at + i * more->n * more->step : NULL, c->step, c->n};
}

INLINE void fetch_soon(int nv, const ProductTile *t, Soon *s)
{
    fetch_row(nv, s->at);
    if (--s->left > 0) s->at += s->step;
    else if (!s->left && s->more) s->at = s->more, s->step = t->soon[1].step, s->left = t->soon[1].n, s->more = NULL;
}

/* rows x nv vectors, t->count times. While it runs, the next tile's rows come into L1 and lines of the next sliver of b
 * into L2, evenly spread: a branch that is guessed wrong once in sixteen terms costs a twentieth. */
INLINE void tile_of(int rows, int nv, const ProductTile *t)
{
    int64_t words = (t->n + PER_WORD - 1) / PER_WORD, groups = words / GROUP,
            pace = groups ? t->lines * LINE / groups : 0;
    const char *first = t->a;
    for (int64_t i = 0; i < t->count; i++) {
        const float *a = (const float *)(const void *)first, *b = t->b, *end = a + groups * GROUP * rows,
                    *next = i + 1 < t->count ? (const float *)(const void *)(first + t->apart) : t->next_a;
        const char *ahead = t->ahead + i * t->lines * LINE;
        Soon soon = soon_of(t, i);
        V s[MR][NV];
        sums_begin(rows, nv, t->acc + i * MR * NR, t->add, s);
        for (; a < end; ahead += pace) {
            for (int k = 0; k < GROUP * rows; k += LINE / 4) __builtin_prefetch(next + k, 0, 3);
            next += GROUP * rows;
            fetch_lines(ahead, pace); /* of few rows, which wait for memory, more than a line */
            fetch_soon(nv, t, &soon);
#pragma GCC unroll 1
            for (int k = 0; k < GROUP; k++, a += rows, b += NR) sums_add(rows, nv, (const char *)a, 4, b, s);
        }
        for (int64_t k = groups * GROUP; k < words; k++, a += rows, b += NR)
            sums_add(rows, nv, (const char *)a, 4, b, s);
        sums_done(rows, nv, t, i, s);
        first += t->apart;
    }
}

/* The same for rows that stay in place: of the next tile's, sixteen words of a row each. */
INLINE void rows_of_tile(int rows, int nv, const ProductTile *t)
{
    const int each = (rows * GROUP + LANES - 1) / LANES; /* rows of the next tile for a group */
    int64_t words = t->n / PER_WORD, pace = words ? t->lines * LINE * GROUP / words : 0;
    const char *first = t->a;
    for (int64_t i = 0; i < t->count; i++) {
        const float *b = t->b;
        const char *ahead = t->ahead + i * t->lines * LINE, *next = i + 1 < t->count ? first + t->apart : t->next_a;
        int64_t run = t->from ? t->from / t->run : 0, in = t->from ? t->from % t->run : 0;
        Soon soon = soon_of(t, i);
        V s[MR][NV];
        sums_begin(rows, nv, t->acc + i * MR * NR, t->add, s);
        for (int64_t left = t->n; left > 0; run++, in = 0) {
            int64_t n = t->run - in < left ? t->run - in : left;
            const char *a = first + t->jump[run] + in * (4 / PER_WORD), *end = a + n * (4 / PER_WORD);
            left -= n;
            for (; a < end; next += LINE) {
                const char *row = next;
                for (int k = 0; k < LANES; k += GROUP, ahead += pace) {
                    for (int r = 0; r < each; r++, row += k / GROUP * each + r < rows - 1 ? t->step : 0)
                        __builtin_prefetch(row, 0, 3);
                    fetch_lines(ahead, pace);
                    fetch_soon(nv, t, &soon);
#pragma GCC unroll 1
                    for (int w = 0; w < GROUP; w++, a += 4, b += NR) sums_add(rows, nv, a, t->step, b, s);
                }
            }
        }
        sums_done(rows, nv, t, i, s);
        first += t->apart;
    }
}

#if defined(__AVX2__)
/* FEW: rows whose sums of some panels stay in registers. WORDS: how far ahead of each panel's reading its lines are
 * fetched; a quarter or four times as many gain less. */
enum { FEW = W == 16 ? 4 : 3, WORDS = 16 };

/* rows x NV vectors of each of some panels. */
INLINE void panels_of_tile(int rows, int panels, const ProductTile *t, int64_t apart)
{
    const char *a = t->a;
    const float *b = t->b;
    int64_t step = t->step ? t->step : 4, word = t->step ? 4 : 4 * rows, next = apart / (int64_t)sizeof *b;
    V s[4][MR][NV] = {0};
    for (int64_t left = (t->n + PER_WORD - 1) / PER_WORD; left > 0; left--, a += word, b += NR)
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) {
            fetch_lines((const char *)(b + p * next + WORDS * NR), NR * 4);
            sums_add(rows, NV, a, step, b + p * next, s[p]);
        }
#pragma GCC unroll 4
    for (int p = 0; p < panels; p++)
        sums_end(rows, NV, t->acc + p * rows * NR, s[p]);
}

#define BESIDE(rows, panels)                                                                                           \
    case 8 * (rows) + (panels): panels_of_tile(rows, panels, t, apart); break
static void beside(const ProductTile *t, int panels, int64_t apart)
{
    switch (8 * t->rows + panels) {
        BESIDE(1, 1);
        BESIDE(1, 2);
        BESIDE(1, 3);
        BESIDE(1, 4);
        BESIDE(2, 1);
        BESIDE(2, 2);
        BESIDE(2, 3);
        BESIDE(3, 1);
        BESIDE(3, 2);
#if defined(__AVX512F__)
        BESIDE(4, 1);
        BESIDE(4, 2);
#endif
    }
}
#undef BESIDE
#endif

/* One function per height, so that the sums stay in registers. */
#define TILE(rows)                                                                                                     \
    static void tile_##rows(const ProductTile *t)                                                                      \
    {                                                                                                                  \
        if (t->step) {                                                                                                 \
            if (t->cols > 2 * W) rows_of_tile(rows, NV, t);                                                            \
            else if (NV > 1 && t->cols > W) rows_of_tile(rows, 2, t);                                                  \
            else rows_of_tile(rows, 1, t);                                                                             \
        } else if (t->cols > 2 * W) tile_of(rows, NV, t);                                                              \
        else if (NV > 1 && t->cols > W) tile_of(rows, 2, t);                                                           \
        else tile_of(rows, 1, t);                                                                                      \
    }
TILE(1)
#if !defined(QKV_FUSED)
TILE(2)
TILE(3)
TILE(4)
#endif
#if defined(__AVX2__) || defined(__aarch64__)
    TILE(5) TILE(6)
#endif
#if defined(__AVX512F__) || defined(__aarch64__)
        TILE(7) TILE(8)
#endif
#if defined(__AVX512F__)
            TILE(9)
#endif

                static void tile(const ProductTile *t)
{
    static void (*const of[])(const ProductTile *t) = {
        NULL,
        tile_1,
#if !defined(QKV_FUSED)
        tile_2,
        tile_3,
        tile_4,
#endif
#if defined(__AVX2__) || defined(__aarch64__)
        tile_5,
        tile_6,
#endif
#if defined(__AVX512F__) || defined(__aarch64__)
        tile_7,
        tile_8,
#endif
#if defined(__AVX512F__)
        tile_9,
#endif
    };
    of[t->rows](t);
}
