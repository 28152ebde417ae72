/* Products of bf16 by AVX512_BF16 (Zen 4, Cooper Lake): vdpbf16ps adds two products to a sum. Tiles as those of f32, a
 * word being two neighbours along K.
 */
#include <immintrin.h>
#include "kernel/kernel.h"
#include "kernel/gen/product_pairs.h"

enum { W = LANES, MR = 9, NV = 3, NR = W * NV, PER_WORD = 2 };
/* Words of K that a tile takes at once. Zen 4 multiplies by halves of a vector, 27 cycles a word, and L2 gives it the
 * three lines of b in seven: slivers need not stay in L1, and sums are seldom put aside. Zen 5 does both twice as fast;
 * there it was not measured. */
enum { FROM_L2 = 1024 };
#define MULTIPLY(sum, one, y) ((V)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)_mm512_set1_ps(one), (__m512bh)(y)))
#include "kernel/gen/product_tile.h"

/* Tiles are [K / 2][rows]. */
static void pack_a(void *to, const ProductIn *a, int64_t row, int rows, int64_t K)
{
    float *p = to;
    uint16_t line[MR][CHUNK];
    const float *from[MR];
    for (int64_t k = 0; k < K; k += CHUNK, p += rows * LANES) {
        int n = K - k < CHUNK ? (int)(K - k) : CHUNK;
        for (int r = 0; r < rows; r++) {
            line_of(line[r], a, (row + r) * a->rs + k * a->cs, a->cs, n);
            from[r] = (const float *)(const void *)line[r];
        }
        turn(p, rows, from, rows);
    }
}

static void pack_b(void *to, const ProductIn *b, int64_t col, int cols, int64_t K)
{
    pack_pairs(to, NR, b, col, cols, K);
}

static void finish_some(const ProductOut *o, const float *acc, int64_t row, int64_t col, int rows, int cols)
{
    finish_cols(o, acc, row, col, rows, NR, cols);
}

static void finish(const ProductDone *d) { finish_rows(d, NR, 0, d->rows, finish_some); }

void product_fill_avx512bf16(ProductKernels *k);
void product_fill_avx512bf16(ProductKernels *k)
{
    k->f32.kc = FROM_L2;
    k->bf16 = (ProductKernel){.layout = "bf16 pairs, panels of 48 or 32",
                              .mr = MR,
                              .unit = 1,
                              .nr = NR,
                              .chunk = CHUNK,
                              .size = 2,
                              .kc = 2 * FROM_L2,
                              .nc = 4 * NR,
                              .mc = 32 * MR,
                              .pack_a = pack_a,
                              .pack_b = pack_b,
                              .tile = tile,
                              .few = FEW,
                              .beside = beside,
                              .finish = finish,
                              .fetches = true,
                              .straight = W,
                              .halves = true,
                              .evens = W};
}
