/* Products of bf16 by AMX: tiles of 16 rows of 64 bytes; 2 x 2 of them are summed at once, so that a tile is loaded for each that is multiplied.
 * Permission for the tile registers was asked for in base/cpu.c.
 */
#include <immintrin.h>
#include "kernel/kernel.h"
#include "kernel/x86/product_pairs.h"

enum { T = 16, MR = 2 * T, NR = 2 * T, TILE = T * LINE }; /* TILE in bytes */

/* A tile is [K / 32][rows / 16][16][32], rows padded to 16 with zeros. */
static void pack_a(void *to, const ProductIn *a, int64_t row, int rows, int64_t K)
{
    int high = (rows + T - 1) / T * T;
    uint16_t *p = to;
    for (int64_t k = 0; k < K; k += CHUNK, p += high * CHUNK) {
        int n = K - k < CHUNK ? (int)(K - k) : CHUNK;
        for (int r = 0; r < rows; r++) line_of(p + r * CHUNK, a, (row + r) * a->rs + k * a->cs, a->cs, n);
        if (rows < high) memset(p + rows * CHUNK, 0, (size_t)(high - rows) * LINE);
    }
}

/* A panel is [K / 32][2][16 words][16]. */
static void pack_b(void *to, const ProductIn *b, int64_t panel, int64_t K, int64_t N)
{
    for (int64_t half = 0; half < 2; half++) {
        int64_t col = panel * NR + half * T, left = N - col;
        pack_words((uint32_t *)to + half * TILE / 4, T, 2 * TILE / 4, b, K, left > 0 ? col : 0, left < 0 ? 0 : left < T ? (int)left : T);
    }
}

static void begin(void)
{
    struct {
        uint8_t palette, start, zero[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } all = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        all.bytes[i] = LINE;
        all.rows[i] = T;
    }
    __asm__ volatile("" : : "r"(&all) : "memory"); /* gcc 12's intrinsic says that it reads 8 bytes */
    _tile_loadconfig(&all);
}

static void end(void) { _tile_release(); }

static inline __m512 wide(const void *from, DType t, int64_t at)
{
    if (t == DT_F32) return _mm512_loadu_ps((const float *)from + at);
    return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)from + at))), 16);
}

static inline __m512 above_zero(__m512 x) { return _mm512_max_ps(_mm512_setzero_ps(), x); } /* NaN stays */

/* A whole panel without an activation or with ReLU: at a short K this takes as long as the tile. */
__attribute__((always_inline)) static inline void finish_plain(const ProductOut *o, const float *acc, int64_t row, int64_t col, int rows, bool more, bool relu)
{
    __m512 zero = _mm512_set1_ps(-0.0f), left = o->bias ? wide(o->bias, o->bias_type, col) : zero, right = o->bias ? wide(o->bias, o->bias_type, col + T) : zero;
    for (int64_t r = row; r < row + rows; r++, acc += NR) {
        __m512 x = _mm512_add_ps(_mm512_loadu_ps(acc), left), y = _mm512_add_ps(_mm512_loadu_ps(acc + T), right);
        if (more) {
            x = _mm512_add_ps(x, wide(o->residual, o->residual_type, r * o->residual_step + col));
            y = _mm512_add_ps(y, wide(o->residual, o->residual_type, r * o->residual_step + col + T));
        }
        if (relu) x = above_zero(x), y = above_zero(y);
        int64_t at = r * o->c_step + col;
        if (o->c_type == DT_BF16) _mm512_storeu_si512((uint16_t *)o->c + at, (__m512i)_mm512_cvtne2ps_pbh(y, x));
        else {
            _mm512_storeu_ps((float *)o->c + at, x);
            _mm512_storeu_ps((float *)o->c + at + T, y);
        }
    }
}

static void finish_some(const ProductOut *o, const float *acc, int64_t row, int64_t col, int rows, int cols)
{
    bool relu = o->act == GEMM_RELU, plain = cols == NR && !(o->residual && o->times);
    if (plain && o->act == GEMM_NONE && !o->residual) finish_plain(o, acc, row, col, rows, false, false);
    else if (plain && o->act == GEMM_NONE) finish_plain(o, acc, row, col, rows, true, false);
    else if (plain && relu && !o->residual) finish_plain(o, acc, row, col, rows, false, true);
    else if (plain && relu && o->act_last) finish_plain(o, acc, row, col, rows, true, true);
    else if (cols == NR) finish_cols(o, acc, row, col, rows, NR, NR);
    else finish_cols(o, acc, row, col, rows, NR, cols);
}

static void finish(const ProductDone *d) { finish_rows(d, NR, 0, d->rows, finish_some); }

/* tm x tn tiles; the sums are registers 0 to 3, a's 4 and 5, b's 6 and 7. Packed rows are one run whose chunks lie tm tiles apart. The tile
 * unit leaves the vector units free: some rows of the tile before are finished with every chunk. */
__attribute__((always_inline)) static inline void tile_of(int tm, int tn, const ProductTile *t)
{
    const char *b = t->b, *ahead = t->ahead;
    float *acc = t->acc;
    int64_t chunks = (t->n + CHUNK - 1) / CHUNK, each = chunks ? (t->lines + chunks - 1) / chunks : 0;
    int64_t step = t->step ? t->step : LINE, lower = T * step, next = t->step ? LINE : tm * TILE;
    int pending = t->done ? t->done->rows : 0, share = chunks ? (int)((pending + chunks - 1) / chunks) : 0, ready = 0;
    int64_t most = t->step ? t->run / CHUNK : chunks, run = t->step && t->from ? t->from / t->run : 0, in = t->step && t->from ? t->from % t->run / CHUNK : 0;
    if (t->add) {
        _tile_loadd(0, acc, NR * 4);
        if (tn > 1) _tile_loadd(1, acc + T, NR * 4);
        if (tm > 1) _tile_loadd(2, acc + T * NR, NR * 4);
        if (tm > 1 && tn > 1) _tile_loadd(3, acc + T * NR + T, NR * 4);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t left = chunks; left > 0; run++, in = 0) {
        int64_t n = most - in < left ? most - in : left;
        const char *a = (const char *)t->a + (t->step ? t->jump[run] : 0) + in * next;
        left -= n;
        for (int64_t i = 0; i < n; i++, a += next, b += 2 * TILE) {
            _tile_loadd(6, b, LINE);
            _tile_loadd(4, a, step);
            _tile_dpbf16ps(0, 4, 6);
            if (tn > 1) {
                _tile_loadd(7, b + TILE, LINE);
                _tile_dpbf16ps(1, 4, 7);
            }
            if (tm > 1) {
                _tile_loadd(5, a + lower, step);
                _tile_dpbf16ps(2, 5, 6);
                if (tn > 1) _tile_dpbf16ps(3, 5, 7);
            }
            for (int64_t k = 0; k < each; k++, ahead += LINE) __builtin_prefetch(ahead, 0, 2);
            if (ready < pending) {
                int end = ready + share < pending ? ready + share : pending;
                finish_rows(t->done, NR, ready, end, finish_some);
                ready = end;
            }
        }
    }
    _tile_stored(0, acc, NR * 4);
    if (tn > 1) _tile_stored(1, acc + T, NR * 4);
    if (tm > 1) _tile_stored(2, acc + T * NR, NR * 4);
    if (tm > 1 && tn > 1) _tile_stored(3, acc + T * NR + T, NR * 4);
}

static void tile(const ProductTile *t)
{
    if (t->rows > T) {
        if (t->cols > T) tile_of(2, 2, t);
        else tile_of(2, 1, t);
    } else if (t->cols > T) tile_of(1, 2, t);
    else tile_of(1, 1, t);
}

void product_fill_amx(ProductKernels *k);
void product_fill_amx(ProductKernels *k)
{
    k->bf16 = (ProductKernel){.layout = "bf16 tiles of 16 x 32", .mr = MR, .unit = T, .nr = NR, .chunk = CHUNK, .size = 2, .kc = 1024, .nc = 4 * NR, .mc = 16 * MR,
                              .pack_a = pack_a, .pack_b = pack_b, .tile = tile, .begin = begin, .end = end, .finish = finish, .overlaps = true, .in_place = true};
}
