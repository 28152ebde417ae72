/* Sums of products of pairs of int16, by the instruction where the ISA level has one: it multiplies exactly and adds
 * two products in 32 bits, where multiply-adds of bytes would saturate.
 *
 *     Pairs b = pairs_of(bytes);                  WIDE columns, two elements each
 *     sum = madd(sum, both(a0, a1), b);           sum[i] += a0 * b[2 i] + a1 * b[2 i + 1]
 */
#ifndef QKV_KERNEL_GEN_MADD_H
#define QKV_KERNEL_GEN_MADD_H
#include <stdint.h>
#include <string.h>

#if defined(__AVX512BW__)
#include <immintrin.h>
enum { WIDE = 16 };
typedef __m512i Sums, Pairs;
static inline Sums no_sums(void) { return _mm512_setzero_si512(); }
static inline Pairs pairs_of(const int8_t *b) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)b)); }
static inline Pairs both(const int16_t *a)
{
    int32_t x;
    memcpy(&x, a, sizeof x);
    return _mm512_set1_epi32(x);
}
static inline Sums madd(Sums s, Pairs a, Pairs b) { return _mm512_add_epi32(s, _mm512_madd_epi16(a, b)); }
static inline void keep(int32_t *to, Sums s) { _mm512_storeu_si512((void *)to, s); }
#elif defined(__AVX2__)
#include <immintrin.h>
enum { WIDE = 8 };
typedef __m256i Sums, Pairs;
static inline Sums no_sums(void) { return _mm256_setzero_si256(); }
static inline Pairs pairs_of(const int8_t *b) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)b)); }
static inline Pairs both(const int16_t *a)
{
    int32_t x;
    memcpy(&x, a, sizeof x);
    return _mm256_set1_epi32(x);
}
static inline Sums madd(Sums s, Pairs a, Pairs b) { return _mm256_add_epi32(s, _mm256_madd_epi16(a, b)); }
static inline void keep(int32_t *to, Sums s) { _mm256_storeu_si256((void *)to, s); }
#else
enum { WIDE = 4 };
typedef int32_t Sums __attribute__((vector_size(16)));
typedef struct Pairs {
    Sums first, second;
} Pairs;
static inline Sums no_sums(void) { return (Sums){0}; }
static inline Pairs pairs_of(const int8_t *b) { return (Pairs){{b[0], b[2], b[4], b[6]}, {b[1], b[3], b[5], b[7]}}; }
static inline Pairs both(const int16_t *a) { return (Pairs){{a[0], a[0], a[0], a[0]}, {a[1], a[1], a[1], a[1]}}; }
static inline Sums madd(Sums s, Pairs a, Pairs b) { return s + a.first * b.first + a.second * b.second; }
static inline void keep(int32_t *to, Sums s) { memcpy(to, &s, sizeof s); }
#endif
#endif
