/* Integer products by AVX512_VNNI (Cascade Lake, Zen 4). Contract in kernel/integer.h. */
#include <immintrin.h>
#include <stdint.h>

enum { W = 16, NV = 3, NR = W * NV };
#define MR 9
#define DOT(sum, b, a) ((S)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(b), (__m512i)(a)))
#define EVERY(word) ((S)_mm512_set1_epi32(word))
#include "kernel/x86/integer_vnni.h"

void integer_fill_avx512vnni(IntegerKernels *k);
void integer_fill_avx512vnni(IntegerKernels *k) { fill(k); }
