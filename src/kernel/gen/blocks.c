/* Products with weights of few bits in portable C; compiled once per ISA level. Contract in kernel/blocks.h. */
#include <stdint.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif
#include "kernel/variant.h"

#if defined(__AVX512BW__)
enum { W = 16, NV = 3 };
#define MR 4
#elif defined(__AVX2__)
enum { W = 8, NV = 2 };
#define MR 2
#elif defined(QKV_FUSED)
enum { W = 8, NV = 1 };
#define MR 2
#else
enum { W = 4, NV = 3 };
#define MR 2
#endif
#define DOT(sum, b, a) dot(sum, b, a)
#define DOT_HALVES(sum, b, a) dot_halves(sum, b, a)
typedef int32_t Sums __attribute__((vector_size(W * 4)));
typedef uint32_t Bytes __attribute__((vector_size(W * 4)));

/* Bytes as pairs of 16 bits, even and odd ones, whose products are added in 32 bits: exactly, for all bytes. */
INLINE Sums dot(Sums sum, Bytes b, int32_t a)
{
#if defined(__AVX512BW__)
    const __m512i x = _mm512_set1_epi32(a), y = (__m512i)b;
    __m512i even = _mm512_madd_epi16(_mm512_and_si512(y, _mm512_set1_epi16(255)),
                                     _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8)),
            odd = _mm512_madd_epi16(_mm512_srli_epi16(y, 8), _mm512_srai_epi16(x, 8));
    return sum + (Sums)even + (Sums)odd;
#elif defined(__AVX2__)
    const __m256i x = _mm256_set1_epi32(a), y = (__m256i)b;
    __m256i even = _mm256_madd_epi16(_mm256_and_si256(y, _mm256_set1_epi16(255)),
                                     _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8)),
            odd = _mm256_madd_epi16(_mm256_srli_epi16(y, 8), _mm256_srai_epi16(x, 8));
    return sum + (Sums)even + (Sums)odd;
#else
    for (int i = 0; i < 4; i++) sum += (Sums)(b >> (8 * i) & 255u) * (int32_t)(int8_t)(uint8_t)((uint32_t)a >> (8 * i));
    return sum;
#endif
}

/* Below 16 the sum of two products of bytes fits into 16 bits: 2 * 15 * 128. */
INLINE Sums dot_halves(Sums sum, Bytes b, int32_t a)
{
#if defined(__AVX512BW__)
    __m512i pairs = _mm512_maddubs_epi16((__m512i)b, _mm512_set1_epi32(a));
    return sum + (Sums)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVX2__)
    __m256i pairs = _mm256_maddubs_epi16((__m256i)b, _mm256_set1_epi32(a));
    return sum + (Sums)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
    return dot(sum, b, a);
#endif
}

#include "kernel/gen/blocks_tile.h"

HEIGHTS(floats)

void KERNEL(blocks_fill)(BlockKernels *k);
void KERNEL(blocks_fill)(BlockKernels *k)
{
    *k = (BlockKernels){.mr = MR, .nr = COLS, .floats = floats, .integers = integers};
}
