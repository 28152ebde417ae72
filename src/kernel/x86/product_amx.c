/* Products of bf16 by AMX: tiles of 16 rows of 64 bytes; 2 x 2 of them are summed at once, so that a tile is loaded for
 * each that is multiplied. Permission for the tile registers was asked for in base/cpu.c.
 */
#include "kernel/x86/product_tiles.h"

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
static void pack_b(void *to, const ProductIn *b, int64_t col, int cols, int64_t K)
{
    for (int half = 0; half < 2; half++) {
        int left = cols - half * T, some = left < 0 ? 0 : left < T ? left : T;
        pack_words((uint32_t *)to + half * TILE / 4, T, 2 * TILE / 4, b, K, some ? col + half * T : 0, some);
    }
}

#define LOAD(operand, tile, from, step)                                                                               \
    do {                                                                                                               \
        if (once == (operand)) _tile_stream_loadd(tile, from, step);                                                   \
        else _tile_loadd(tile, from, step);                                                                            \
    } while (0)

/* tm x tn tiles; the sums are registers 0 to 3, a's 4 and 5, b's 6 and 7. Packed rows are one run whose chunks are tm
 * tiles apart. The tile unit leaves the vector units free: some rows of the tile before are finished with every
 * chunk. */
__attribute__((always_inline)) static inline void tile_of(int tm, int tn, const ProductTile *t)
{
    const char *b = t->b, *ahead = t->ahead;
    float *acc = t->acc;
    const ProductOnce once = t->once;
    int64_t chunks = (t->n + CHUNK - 1) / CHUNK, each = chunks ? (t->lines + chunks - 1) / chunks : 0;
    int64_t step = t->step ? t->step : LINE, lower = T * step, next = t->step ? LINE : tm * TILE;
    int pending = t->done ? t->done->rows : 0, share = chunks ? (int)((pending + chunks - 1) / chunks) : 0, ready = 0;
    Soon soon = soon_of(t, chunks);
    int64_t most = t->step ? t->run / CHUNK : chunks, run = t->step && t->from ? t->from / t->run : 0,
            in = t->step && t->from ? t->from % t->run / CHUNK : 0;
    sums_begin(tm, tn, acc, t->add);
    for (int64_t left = chunks; left > 0; run++, in = 0) {
        int64_t n = most - in < left ? most - in : left;
        const char *a = (const char *)t->a + (t->step ? t->jump[run] : 0) + in * next;
        left -= n;
        for (int64_t i = 0; i < n; i++, a += next, b += 2 * TILE) {
            LOAD(PRODUCT_B, 6, b, LINE);
            LOAD(PRODUCT_A, 4, a, step);
            _tile_dpbf16ps(0, 4, 6);
            if (tn > 1) {
                LOAD(PRODUCT_B, 7, b + TILE, LINE);
                _tile_dpbf16ps(1, 4, 7);
            }
            if (tm > 1) {
                LOAD(PRODUCT_A, 5, a + lower, step);
                _tile_dpbf16ps(2, 5, 6);
                if (tn > 1) _tile_dpbf16ps(3, 5, 7);
            }
            fetch_soon(&soon);
            for (int64_t k = 0; k < each; k++, ahead += LINE) __builtin_prefetch(ahead, 0, 2);
            if (ready < pending) {
                int end = ready + share < pending ? ready + share : pending;
                finish_rows(t->done, NR, ready, end, finish_some);
                ready = end;
            }
        }
    }
    sums_end(tm, tn, acc);
}

static void tile(const ProductTile *t)
{
    if (t->rows > T) {
        if (t->cols > T) tile_of(2, 2, t);
        else tile_of(2, 1, t);
    } else if (t->cols > T) tile_of(1, 2, t);
    else tile_of(1, 1, t);
}

/* Words of K of a sliver of plain floats: two multiply-adds a cycle want it near, unlike Zen 4's (product_bf16.c). */
enum { IN_L1 = 128 };

void product_fill_amx_f32(ProductKernels *k);
void product_fill_amx(ProductKernels *k);
void product_fill_amx(ProductKernels *k)
{
    product_fill_amx_f32(k);
    k->f32.kc = IN_L1;
    k->bf16 = (ProductKernel){.layout = "bf16 tiles of 16 x 32",
                              .mr = MR,
                              .unit = T,
                              .nr = NR,
                              .chunk = CHUNK,
                              .size = 2,
                              .kc = 512,
                              .nc = 4 * NR,
                              .mc = 16 * MR,
                              .pack_a = pack_a,
                              .pack_b = pack_b,
                              .tile = tile,
                              .begin = begin,
                              .end = end,
                              .finish = finish,
                              .overlaps = true,
                              .fetches = true,
                              .in_place = true};
}
