/* Tiles of convolutions of bf16 by AVX512_BF16: those of f32, a word being two neighbours along K. Depthwise rows are
 * those of AVX-512, whose results of bf16 are rounded by an instruction here.
 */
#include <immintrin.h>
#include "kernel/gen/fused.h"
#include "kernel/kernel.h"
#include "kernel/gen/product_pairs.h"

enum { W = LANES, PER_WORD = 2 };
#define MR 9
#define NV 3
#define MR4 6
#define MULTIPLY(sum, one, y) ((V)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)_mm512_set1_ps(one), (__m512bh)(y)))
#include "kernel/gen/conv_tile.h"
#include "kernel/gen/depthwise.h"

static void pack(void *to, const ProductIn *b, int64_t K, int64_t col, int cols, int width)
{
    uint32_t *p = to, part[LANES * LANES];
    int64_t whole = K / CHUNK * CHUNK;
    if (cols < width) memset(to, 0, (size_t)((K + 1) / 2 * width) * sizeof *p);
    for (int j = 0; j < cols; j += LANES) {
        int some = cols - j < LANES ? cols - j : LANES;
        pack_words(p + j, width, LANES * width, b, whole, col + j, some);
        if (whole == K) continue;
        pack_chunk(part, LANES, b, whole, (int)(K - whole), col + j, some);
        for (int64_t m = 0; m < (K - whole + 1) / 2; m++)
            memcpy(p + (whole / 2 + m) * width + j, part + m * LANES, LANES * sizeof *p);
    }
}

void conv_fill_avx512bf16(ConvKernels *k);
void conv_fill_avx512bf16(ConvKernels *k)
{
    k->bf16 = (ConvKernel){.mr = {MR, MR4},
                           .width = {NV * W, 4 * W},
                           .size = 2,
                           .per_word = 2,
                           .pack = pack,
                           .tile = {conv_tile_any, wide_any}};
    k->depthwise = depthwise;
    k->widen = widen;
}
