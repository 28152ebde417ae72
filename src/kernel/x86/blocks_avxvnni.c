/* Rows of integers by weights of few bits, by AVX-VNNI (Alder Lake, Zen 5). Contract in kernel/blocks.h. */
#include <immintrin.h>
#include <stdint.h>

enum { W = 8, NV = 2 };
#define MR 2
#define DOT(sum, b, a) ((S)_mm256_dpbusd_avx_epi32((__m256i)(sum), (__m256i)(b), _mm256_set1_epi32(a)))
#define DOT_HALVES(sum, b, a) DOT(sum, b, a)
#include "kernel/gen/blocks_tile.h"

void blocks_fill_avxvnni(BlockKernels *k);
void blocks_fill_avxvnni(BlockKernels *k) { k->integers = integers; }
