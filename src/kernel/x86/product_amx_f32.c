/* Products of f32 by AMX's tiles of bf16. A float is the sum of three bf16, x = x0 + x1 + x2, each the rest rounded to
 * nearest: 24 bits and more. Of the nine products of the parts the six with i + j <= 2 are summed, each of them exact;
 * what is left out is less than 2^-24 of |a b| (Henry, Tang, Heinecke 2019, "Leveraging the bfloat16 artificial
 * intelligence datatype for higher-precision computations"). A tile sums 16 pairs from zero and adds that to the sum,
 * so that less is rounded than by one multiply-add a term: sums are nearer to the exact ones than the other kernels'.
 * At six times the work tiles are 2.4 times as fast as AVX-512 on Sapphire Rapids.
 *
 * Parts and their products below 2^-126 are zero: nothing is lost of operands and products from 2^-102 on. Infinities
 * and NaN, whose products with parts mean nothing, and what overflows are seen in the sums; those elements are summed
 * again, from the parts, by multiply-adds.
 */
#include <math.h>
#include "kernel/x86/product_tiles.h"

enum { PARTS = 3, WORDS = TILE / 4 };

/* 16 floats as three of bf16, each in the upper half of a word. */
typedef struct Parts {
    __m512i part[PARTS];
} Parts;

__attribute__((always_inline)) static inline Parts parts_of(__m512 x)
{
    /* the largest floats would round to infinity */
    __m512i bits = _mm512_castps_si512(x),
            above = _mm512_sub_epi32(_mm512_and_epi32(bits, _mm512_set1_epi32(0x7fffffff)),
                                     _mm512_set1_epi32(0x7f7f8000));
    __m512i first = _mm512_mask_and_epi32(bits, _mm512_cmplt_epu32_mask(above, _mm512_set1_epi32(0x8000)), bits,
                                          _mm512_set1_epi32((int)0xffff0000));
    __m512 rest = _mm512_castsi512_ps(first);
    Parts p;
    for (int i = 0; i < PARTS; i++) {
        p.part[i] = _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(rest)), 16);
        rest = _mm512_sub_ps(i ? rest : x, _mm512_castsi512_ps(p.part[i]));
        rest = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(rest, rest, _CMP_ORD_Q),
                                   rest); /* infinity and NaN leave nothing */
    }
    return p;
}

static inline float f32_element(const ProductIn *x, int64_t at)
{
    return x->dtype == DT_F32 ? ((const float *)x->data)[at] : bf16_value(((const uint16_t *)x->data)[at]);
}

/* n elements from `at` on, `step` apart; the rest of the line is zero. */
static inline const float *floats_of(float *to, const ProductIn *x, int64_t at, int64_t step, int n)
{
    if (n == CHUNK && step == 1 && x->dtype == DT_F32) return (const float *)x->data + at;
    for (int i = 0; i < CHUNK; i++) to[i] = i < n ? f32_element(x, at + i * step) : 0;
    return to;
}

/* A line's parts, `apart` elements from each other. */
static inline void split_line(uint16_t *to, int64_t apart, const float *from)
{
    Parts low = parts_of(_mm512_loadu_ps(from)), high = parts_of(_mm512_loadu_ps(from + LANES));
    for (int i = 0; i < PARTS; i++) {
        _mm256_storeu_si256((__m256i *)(void *)(to + i * apart),
                            _mm512_cvtepi32_epi16(_mm512_srli_epi32(low.part[i], 16)));
        _mm256_storeu_si256((__m256i *)(void *)(to + i * apart + LANES),
                            _mm512_cvtepi32_epi16(_mm512_srli_epi32(high.part[i], 16)));
    }
}

/* A tile is [K / 32][3 parts][rows / 16][16][32], rows padded to 16 with zeros. */
static void pack_a(void *to, const ProductIn *a, int64_t row, int rows, int64_t K)
{
    int high = (rows + T - 1) / T * T;
    uint16_t *p = to;
    float line[CHUNK];
    for (int64_t k = 0; k < K; k += CHUNK, p += PARTS * high * CHUNK) {
        int n = K - k < CHUNK ? (int)(K - k) : CHUNK;
        for (int r = 0; r < rows; r++)
            split_line(p + r * CHUNK, high * CHUNK, floats_of(line, a, (row + r) * a->rs + k * a->cs, a->cs, n));
        for (int i = 0; i < PARTS && rows < high; i++)
            memset(p + (i * high + rows) * CHUNK, 0, (size_t)(high - rows) * LINE);
    }
}

/* A cell is [K / 32][3 parts][32]. */
static void cell_a(void *to, const ProductIn *a, int64_t rows, int64_t K, int64_t step)
{
    float line[CHUNK];
    for (int64_t r = 0; r < rows; r++) {
        uint16_t *p = (uint16_t *)(void *)((char *)to + r * step);
        for (int64_t k = 0; k < K; k += CHUNK, p += PARTS * CHUNK) {
            int n = K - k < CHUNK ? (int)(K - k) : CHUNK;
            split_line(p, CHUNK, floats_of(line, a, r * a->rs + k * a->cs, a->cs, n));
        }
    }
}

/* n elements of K from k on, 16 columns at most of which `cols` are b's:
 * [3 parts][16 words][16 columns], parts two tiles apart. */
static void pack_tile(uint32_t *to, const ProductIn *b, int64_t k, int n, int64_t col, int cols)
{
    if (b->cs == 1 && b->dtype == DT_F32) {
        __mmask16 some = (__mmask16)((1u << cols) - 1);
        const float *from = (const float *)b->data + k * b->rs + col;
        for (int p = 0; p < LANES; p++, to += T, from += 2 * b->rs) {
            Parts even = parts_of(_mm512_maskz_loadu_ps(2 * p < n ? some : 0, from)),
                  odd = parts_of(_mm512_maskz_loadu_ps(2 * p + 1 < n ? some : 0, from + b->rs));
            for (int i = 0; i < PARTS; i++)
                _mm512_storeu_si512(to + i * 2 * WORDS,
                                    _mm512_or_epi32(_mm512_srli_epi32(even.part[i], 16), odd.part[i]));
        }
        return;
    }
    uint16_t line[PARTS][T][CHUNK];
    float floats[CHUNK];
    const float *from[PARTS][T];
    for (int j = 0; j < T; j++) {
        split_line(line[0][j], T * CHUNK, floats_of(floats, b, k * b->rs + (col + j) * b->cs, b->rs, j < cols ? n : 0));
        for (int i = 0; i < PARTS; i++) from[i][j] = (const float *)(const void *)line[i][j];
    }
    for (int i = 0; i < PARTS; i++) turn_lines((float *)to + i * 2 * WORDS, T, from[i], T);
}

/* A panel is [K / 32][3 parts][2][16 words][16]. */
static void pack_b(void *to, const ProductIn *b, int64_t col, int cols, int64_t K)
{
    for (int half = 0; half < 2; half++) {
        int left = cols - half * T, some = left < 0 ? 0 : left < T ? left : T;
        uint32_t *p = (uint32_t *)to + half * WORDS;
        for (int64_t k = 0; k < K; k += CHUNK, p += PARTS * 2 * WORDS)
            pack_tile(p, b, k, K - k < CHUNK ? (int)(K - k) : CHUNK, some ? col + half * T : 0, some);
    }
}

/* ------------------------------------------------------------------ a tile */

/* How rows of a lie: bytes from a row, a part, the upper tile and a chunk to the next; chunks of a run. */
typedef struct Lie {
    int64_t row, part, lower, chunk, run;
} Lie;

static inline Lie lie_of(const ProductTile *t, int tm)
{
    if (t->step) return (Lie){t->step, LINE, T * t->step, PARTS * LINE, t->run / CHUNK};
    return (Lie){LINE, tm * TILE, TILE, PARTS * tm * TILE, INT64_MAX};
}

/* Where the rows of chunk i of K are. */
static inline const char *chunk_of(const ProductTile *t, const Lie *l, int64_t i)
{
    i += t->step ? t->from / CHUNK : 0;
    return (const char *)t->a + (t->step ? t->jump[i / l->run] : 0) + i % l->run * l->chunk;
}

/* Elements of `now` that are not finite, by multiply-adds. */
static void sum_again(const ProductTile *t, float *now)
{
    int64_t chunks = (t->n + CHUNK - 1) / CHUNK;
    Lie l = lie_of(t, (t->rows + T - 1) / T);
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->cols; c++) {
            if (isfinite(now[r * NR + c])) continue;
            float sum = t->add ? t->acc[r * NR + c] : 0;
            for (int64_t k = 0; k < chunks * CHUNK; k++) {
                const char *a = chunk_of(t, &l, k / CHUNK) + r * l.row + k % CHUNK * 2;
                const uint16_t *b = (const uint16_t *)t->b + k / CHUNK * PARTS * 4 * WORDS + c / T * 2 * WORDS +
                                    (k % CHUNK / 2 * T + c % T) * 2 + k % 2;
                float x = 0, y = bf16_value(b[8 * WORDS]) + bf16_value(b[4 * WORDS]) + bf16_value(b[0]);
                for (int i = PARTS - 1; i >= 0; i--)
                    x += bf16_value(*(const uint16_t *)(const void *)(a + i * l.part));
                sum = fmaf(x, y, sum);
            }
            now[r * NR + c] = sum;
        }
}

/* One of a part of a and one of b; a part that is there already is not loaded again. */
#define LOAD_A(i)                                                                                                      \
    _tile_loadd(4, a + (i)*l.part, l.row);                                                                             \
    if (tm > 1) _tile_loadd(5, a + (i)*l.part + l.lower, l.row)
#define LOAD_B(i)                                                                                                      \
    _tile_loadd(6, b + (i)*2 * TILE, LINE);                                                                            \
    if (tn > 1) _tile_loadd(7, b + (i)*2 * TILE + TILE, LINE)

/* Meanwhile rows of the next chunk of a, the sixth of number `step`, come into L1. */
__attribute__((always_inline)) static inline void multiply(int tm, int tn, const char *soon, const Lie *l, int step)
{
    _tile_dpbf16ps(0, 4, 6);
    if (tn > 1) _tile_dpbf16ps(1, 4, 7);
    for (int r = tm * T * step / 6; r < tm * T * (step + 1) / 6; r++)
        for (int i = 0; i < PARTS; i++) __builtin_prefetch(soon + r * l->row + i * l->part, 0, 3);
    if (tm > 1) _tile_dpbf16ps(2, 5, 6);
    if (tm > 1 && tn > 1) _tile_dpbf16ps(3, 5, 7);
}

/* As in product_amx.c: sums in registers 0 to 3, rows of the tile before are finished meanwhile.
 * Each step changes one of the two parts, the small ones come first. */
__attribute__((always_inline)) static inline void tile_of(int tm, int tn, const ProductTile *t)
{
    const char *b = t->b, *ahead = t->ahead;
    _Alignas(LINE) float now[MR * NR];
    int64_t chunks = (t->n + CHUNK - 1) / CHUNK, each = chunks ? (t->lines + chunks - 1) / chunks : 0;
    int pending = t->done ? t->done->rows : 0, share = chunks ? (int)((pending + chunks - 1) / chunks) : 0, ready = 0;
    Soon rows = soon_of(t, chunks);
    Lie l = lie_of(t, tm);
    sums_begin(tm, tn, t->acc, t->add);
    const char *a = chunk_of(t, &l, 0), *soon;
    int64_t left = t->step ? l.run - t->from / CHUNK % l.run : chunks;
    for (int64_t i = 0; i < chunks; i++, a = soon, b += PARTS * 2 * TILE) {
        soon = i + 1 == chunks ? t->next_a : --left ? a + l.chunk : chunk_of(t, &l, i + 1);
        if (!left) left = l.run;
        LOAD_A(0);
        LOAD_B(2);
        multiply(tm, tn, soon, &l, 0);
        LOAD_B(1);
        multiply(tm, tn, soon, &l, 1);
        LOAD_A(1);
        multiply(tm, tn, soon, &l, 2);
        LOAD_B(0);
        multiply(tm, tn, soon, &l, 3);
        LOAD_A(2);
        multiply(tm, tn, soon, &l, 4);
        LOAD_A(0);
        multiply(tm, tn, soon, &l, 5);
        fetch_soon(&rows);
        for (int64_t k = 0; k < each; k++, ahead += LINE) __builtin_prefetch(ahead, 0, 2);
        if (ready < pending) {
            int end = ready + share < pending ? ready + share : pending;
            finish_rows(t->done, NR, ready, end, finish_some);
            ready = end;
        }
    }
    sums_end(tm, tn, now);
    __m512i odd = _mm512_setzero_si512(), exponent = _mm512_set1_epi32(0x7f800000);
    for (int r = 0; r < tm * T; r++)
        for (int h = 0; h < tn; h++)
            odd = _mm512_max_epu32(odd, _mm512_and_epi32(_mm512_load_si512(now + r * NR + h * T), exponent));
    if (_mm512_cmpeq_epi32_mask(odd, exponent)) sum_again(t, now);
    for (int r = 0; r < tm * T; r++)
        for (int h = 0; h < tn; h++) _mm512_storeu_ps(t->acc + r * NR + h * T, _mm512_load_ps(now + r * NR + h * T));
}

static void tile(const ProductTile *t)
{
    if (t->rows > T) {
        if (t->cols > T) tile_of(2, 2, t);
        else tile_of(2, 1, t);
    } else if (t->cols > T) tile_of(1, 2, t);
    else tile_of(1, 1, t);
}

void product_fill_amx_f32(ProductKernels *k);
void product_fill_amx_f32(ProductKernels *k)
{
    k->f32_tiles = (ProductKernel){.layout = "f32 as three tiles of bf16",
                                   .mr = MR,
                                   .unit = T,
                                   .nr = NR,
                                   .chunk = CHUNK,
                                   .size = 2 * PARTS,
                                   .kc = 512,
                                   .nc = 16 * NR,
                                   .mc = 8 * MR,
                                   .pack_a = pack_a,
                                   .cell_a = cell_a,
                                   .pack_b = pack_b,
                                   .tile = tile,
                                   .begin = begin,
                                   .end = end,
                                   .finish = finish,
                                   .overlaps = true,
                                   .fetches = true};
}
