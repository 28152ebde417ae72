/* Low bytes of 32-bit words side by side. gcc 12 moves them one by one where the language alone says so, and what is
 * left over of a loop over bytes is done one by one, too.
 *
 *     int32_t word[NARROW] __attribute__((aligned(64)));
 *     low_bytes(to, word);         NARROW bytes, of words from 0 to 255
 */
#ifndef QKV_KERNEL_GEN_NARROW_H
#define QKV_KERNEL_GEN_NARROW_H
#include <stdint.h>
#if defined(__AVX512BW__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { NARROW = 16 };

#if defined(__AVX512BW__)
static inline void low_bytes(void *to, const int32_t *word)
{
    _mm_storeu_si128(to, _mm512_cvtepi32_epi8(_mm512_load_si512(word)));
}
#elif defined(__SSE2__)
static inline void low_bytes(void *to, const int32_t *word)
{
    const __m128i *w = (const __m128i *)(const void *)word;
    _mm_storeu_si128(to, _mm_packus_epi16(_mm_packs_epi32(w[0], w[1]), _mm_packs_epi32(w[2], w[3])));
}
#else
static inline void low_bytes(void *to, const int32_t *word)
{
    for (int i = 0; i < NARROW; i++) ((uint8_t *)to)[i] = (uint8_t)word[i];
}
#endif
#endif
