/* What products on AMX's tiles share: configuration, the epilogue of 32 columns. */
#ifndef QKV_KERNEL_X86_PRODUCT_TILES_H
#define QKV_KERNEL_X86_PRODUCT_TILES_H
#include <immintrin.h>
#include "kernel/kernel.h"
#include "kernel/gen/product_pairs.h"
#include "kernel/x86/tiles.h"

enum { T = 16, MR = 2 * T, NR = 2 * T, TILE = T * LINE }; /* TILE in bytes */

static void begin(void) { tiles_configure(T); }
static void end(void) { _tile_release(); }

/* The sums of tm x tn tiles, registers 0 to 3: zero, or from rows of NR floats. */
__attribute__((always_inline)) static inline void sums_begin(int tm, int tn, const float *from, bool add)
{
    if (!add) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, from, NR * 4);
    if (tn > 1) _tile_loadd(1, from + T, NR * 4);
    if (tm > 1) _tile_loadd(2, from + T * NR, NR * 4);
    if (tm > 1 && tn > 1) _tile_loadd(3, from + T * NR + T, NR * 4);
}

__attribute__((always_inline)) static inline void sums_end(int tm, int tn, float *to)
{
    _tile_stored(0, to, NR * 4);
    if (tn > 1) _tile_stored(1, to + T, NR * 4);
    if (tm > 1) _tile_stored(2, to + T * NR, NR * 4);
    if (tm > 1 && tn > 1) _tile_stored(3, to + T * NR + T, NR * 4);
}

/* Rows that finish will touch, some with every chunk. */
typedef struct Soon {
    const ProductRows *rows, *end; /* what is left of */
    int64_t row, each;
    int lines;
    bool far;
} Soon;

static inline Soon soon_of(const ProductTile *t, int64_t chunks)
{
    int64_t n = 0;
    for (int i = 0; i < PRODUCT_SOON; i++) n += t->soon[i].n;
    return (Soon){.rows = t->soon,
                  .end = t->soon + PRODUCT_SOON,
                  .each = chunks ? (n + chunks - 1) / chunks : 0,
                  .lines = t->soon_lines,
                  .far = t->soon_far};
}

static inline void fetch_soon(Soon *s)
{
    for (int64_t k = 0; k < s->each && s->rows < s->end;) {
        if (s->row == s->rows->n) {
            s->rows++, s->row = 0;
            continue;
        }
        const char *at = s->rows->at + s->row++ * s->rows->step;
        for (int i = 0; i < s->lines && s->far; i++) __builtin_prefetch(at + i * LINE, 0, 2);
        for (int i = 0; i < s->lines && !s->far; i++) __builtin_prefetch(at + i * LINE, 1, 3);
        k++;
    }
}

static inline __m512 wide(const void *from, DType t, int64_t at)
{
    if (t == DT_F32) return _mm512_loadu_ps((const float *)from + at);
    return (__m512)_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)from + at))), 16);
}

static inline __m512 above_zero(__m512 x) { return _mm512_max_ps(_mm512_setzero_ps(), x); } /* NaN stays */

/* A whole panel without an activation or with ReLU: at a short K this takes as long as the tile. c (`half`) and the
 * residual (`halves`) are bf16, or f32. */
__attribute__((always_inline)) static inline void finish_plain(const ProductOut *o, const float *acc, int64_t row,
                                                               int64_t col, int rows, bool more, bool relu, bool half,
                                                               bool halves)
{
    __m512 zero = _mm512_set1_ps(-0.0f), left = o->bias ? wide(o->bias, o->bias_type, col) : zero,
           right = o->bias ? wide(o->bias, o->bias_type, col + T) : zero;
    int64_t size = half ? 2 : 4, step = o->c_step * size, from = halves ? 2 : 4, each = o->residual_step * from;
    char *c = (char *)o->c + row * step + col * size;
    const char *residual = more ? (const char *)o->residual + row * each + col * from : NULL;
    for (int r = 0; r < rows; r++, acc += NR, c += step) {
        __m512 x = _mm512_add_ps(_mm512_loadu_ps(acc), left), y = _mm512_add_ps(_mm512_loadu_ps(acc + T), right);
        if (more) {
            x = _mm512_add_ps(x, wide(residual, halves ? DT_BF16 : DT_F32, 0));
            y = _mm512_add_ps(y, wide(residual, halves ? DT_BF16 : DT_F32, T));
            residual += each;
        }
        if (relu) x = above_zero(x), y = above_zero(y);
        if (half) _mm512_storeu_si512(c, (__m512i)_mm512_cvtne2ps_pbh(y, x));
        else {
            _mm512_storeu_ps(c, x);
            _mm512_storeu_ps(c + 4 * T, y);
        }
    }
}

#define PLAIN(more, relu)                                                                                              \
    do {                                                                                                               \
        bool half = o->c_type == DT_BF16, halves = (more) && o->residual_type == DT_BF16;                              \
        if (half && halves) finish_plain(o, acc, row, col, rows, more, relu, true, true);                              \
        else if (half) finish_plain(o, acc, row, col, rows, more, relu, true, false);                                  \
        else if (halves) finish_plain(o, acc, row, col, rows, more, relu, false, true);                                \
        else finish_plain(o, acc, row, col, rows, more, relu, false, false);                                           \
    } while (0)
static void finish_some(const ProductOut *o, const float *acc, int64_t row, int64_t col, int rows, int cols)
{
    bool relu = o->act == GEMM_RELU, plain = cols == NR && !(o->residual && o->times);
    if (plain && o->act == GEMM_NONE && !o->residual) PLAIN(false, false);
    else if (plain && o->act == GEMM_NONE) PLAIN(true, false);
    else if (plain && relu && !o->residual) PLAIN(false, true);
    else if (plain && relu && o->act_last) PLAIN(true, true);
    else finish_cols(o, acc, row, col, rows, NR, cols);
}

static void finish(const ProductDone *d) { finish_rows(d, NR, 0, d->rows, finish_some); }
#endif
