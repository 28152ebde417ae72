/* Integer products by AVX-VNNI (Alder Lake and its followers, Zen 5). Contract in kernel/integer.h. */
#include <immintrin.h>
#include <stdint.h>

enum { W = 8, NV = 2, NR = W * NV };
#define MR 6
#define DOT(sum, b, a) ((S)_mm256_dpbusd_avx_epi32((__m256i)(sum), (__m256i)(b), (__m256i)(a)))
#define EVERY(word) ((S)_mm256_set1_epi32(word))
#include "kernel/x86/integer_vnni.h"

void integer_fill_avxvnni(IntegerKernels *k);
void integer_fill_avxvnni(IntegerKernels *k) { fill(k); }
