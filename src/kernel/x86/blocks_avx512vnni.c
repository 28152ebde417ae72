/* Rows of integers by weights of few bits, by AVX512_VNNI (Cascade Lake, Zen 4). Contract in kernel/blocks.h. */
#include <immintrin.h>
#include <stdint.h>

enum { W = 16, NV = 3 };
#define MR 4
#define DOT(sum, b, a) ((S)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(b), _mm512_set1_epi32(a)))
#define DOT_HALVES(sum, b, a) DOT(sum, b, a)
#include "kernel/gen/blocks_tile.h"

void blocks_fill_avx512vnni(BlockKernels *k);
void blocks_fill_avx512vnni(BlockKernels *k) { k->integers = integers; }
