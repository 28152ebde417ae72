/* Rounding to integers of 8 bits: rows by a scale that is given, or by their own largest element. Contract in
 * kernel/integer.h.
 *
 *     round_i8(y, x, n, &(Rounding){scale, zero, -128, 127, true, 0})   y = clamp(round(x / scale) + zero)
 *     row_i8(y, x, n, least, &scale)                                    the same; scale is the row's
 */
#ifndef QKV_KERNEL_GEN_ROUNDING_H
#define QKV_KERNEL_GEN_ROUNDING_H
#include <math.h>
#include "kernel/gen/madd.h"
#include "kernel/gen/narrow.h"
#include "kernel/gen/product_impl.h"
#include "kernel/integer.h"

#if defined(__AVX512BW__)
typedef struct Steps { /* a Rounding */
    __m512 by, low, high;
    __m512i zero, none;
    bool inverse, plain; /* plain: i8 without a zero point, whose lower end is where a narrowing saturates */
} Steps;

INLINE Steps steps_of(const Rounding *r)
{
    return (Steps){_mm512_set1_ps(r->by_inverse ? (float)(1.0 / (double)r->scale) : r->scale),
                   _mm512_set1_ps((float)(r->low - r->zero)), _mm512_set1_ps((float)(r->high - r->zero)),
                   _mm512_set1_epi32(r->zero), _mm512_set1_epi32(r->none), r->by_inverse,
                   r->low == INT8_MIN && r->high == INT8_MAX && !r->zero};
}

/* Quotients clamped and rounded as in round_group, in words. */
INLINE __m512i clamped(__m512 q, const Steps *s, bool plain)
{
    q = _mm512_min_ps(s->high, q); /* the second operand where it is NaN */
    if (!plain) q = _mm512_max_ps(s->low, q);
    const __mmask16 number = _mm512_cmp_ps_mask(q, q, _CMP_ORD_Q);
    const __m512i i = _mm512_mask_cvtps_epi32(s->none, number, q);
    return plain ? i : _mm512_mask_add_epi32(s->none, number, i, s->zero);
}

INLINE __m512i words_of(__m512 x, const Steps *s, bool inverse, bool plain)
{
    return clamped(inverse ? _mm512_mul_ps(x, s->by) : _mm512_div_ps(x, s->by), s, plain);
}

INLINE __m128i few_of(__m512 x, const Steps *s)
{
    const __m512i i = words_of(x, s, s->inverse, s->plain);
    return s->plain ? _mm512_cvtsepi32_epi8(i) : _mm512_cvtepi32_epi8(i);
}

/* Words of 64 elements as their bytes, saturated. */
INLINE __m512i bytes_of(const __m512i *word, bool with_sign)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                  low = _mm512_packs_epi32(word[0], word[1]), high = _mm512_packs_epi32(word[2], word[3]);
    return _mm512_permutexvar_epi32(order, with_sign ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high));
}

INLINE __mmask16 first_of(int64_t n) { return n < WIDE ? (__mmask16)((1u << n) - 1) : (__mmask16)0xffff; }

INLINE void round_lines(int8_t *y, const float *x, int64_t n, const Steps *s, bool inverse, bool plain, bool with_sign)
{
    int64_t i = 0;
    for (; i + 4 * WIDE <= n; i += 4 * WIDE) {
        __m512i word[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) word[k] = words_of(_mm512_loadu_ps(x + i + k * WIDE), s, inverse, plain);
        _mm512_storeu_si512(y + i, bytes_of(word, with_sign));
    }
    for (; i < n; i += WIDE)
        _mm_mask_storeu_epi8(y + i, first_of(n - i), few_of(_mm512_maskz_loadu_ps(first_of(n - i), x + i), s));
}

INLINE void round_row(int8_t *y, const float *x, int64_t n, const Rounding *r, bool inverse)
{
    const Steps s = steps_of(r);
    if (s.plain) round_lines(y, x, n, &s, inverse, true, true);
    else if (r->low < 0) round_lines(y, x, n, &s, inverse, false, true);
    else round_lines(y, x, n, &s, inverse, false, false);
}
#else
/* Rows go by groups of elements whatever their length is: a loop over bytes whose rest is done one by one takes longer
 * for that rest than for all before it. */
typedef struct Grid {
    float by, low, high, none; /* without the zero point; of NaN */
    int zero;
} Grid;

/* Quotients as integers to nearest even, plus zero. They are clamped to whole numbers before, which gives the same;
 * adding 1.5 * 2^23 leaves the integer in the low bits. Each choice is one instruction's. */
INLINE void round_group(int8_t *y, const float *x, const Grid *g, bool inverse)
{
    int32_t bits[NARROW] __attribute__((aligned(LINE)));
#pragma omp simd
    for (int l = 0; l < NARROW; l++) {
        const float q = inverse ? x[l] * g->by : x[l] / g->by, up = q > g->low ? q : g->low,
                    in = up < g->high ? up : g->high;
        bits[l] = (vm_int((q == q ? in : g->none) + 12582912.0f) - 0x4b400000 + g->zero) & 255;
    }
    low_bytes(y, bits);
}

INLINE void round_row(int8_t *restrict y, const float *restrict x, int64_t n, const Rounding *r, bool inverse)
{
    const Grid g = {inverse ? (float)(1.0 / (double)r->scale) : r->scale, (float)(r->low - r->zero),
                    (float)(r->high - r->zero), (float)(r->none - r->zero), r->zero};
    int64_t i = 0;
    for (; i + NARROW <= n; i += NARROW) round_group(y + i, x + i, &g, inverse);
    if (i == n) return;
    float rest[NARROW] = {0};
    int8_t bytes[NARROW];
    memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);
    round_group(bytes, rest, &g, inverse);
    memcpy(y + i, bytes, (size_t)(n - i));
}
#endif

#define OUTLINE __attribute__((noinline)) /* one copy of each: programs are to be small */
static OUTLINE void round_i8(int8_t *y, const float *x, int64_t n, const Rounding *r)
{
    if (r->by_inverse) round_row(y, x, n, r, true);
    else round_row(y, x, n, r, false);
}

static void round_u8(uint8_t *y, const float *x, int64_t n, const Rounding *r) { round_i8((int8_t *)y, x, n, r); }

/* Bits of floats as integers of the same order, NaN outermost. */
static inline int32_t ordered(int32_t bits) { return bits ^ (bits >> 31 & 0x7fffffff); }

#if defined(__AVX512BW__)
/* A row whose scale is a number: no quotient is NaN or beyond 127, so that nothing is clamped. */
INLINE void round_known(int8_t *y, const float *x, int64_t n, float scale)
{
    const __m512 by = _mm512_set1_ps((float)(1.0 / (double)scale));
    int64_t i = 0;
    for (; i + 4 * WIDE <= n; i += 4 * WIDE) {
        __m512i word[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) word[k] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i + k * WIDE), by));
        _mm512_storeu_si512(y + i, bytes_of(word, true));
    }
    for (; i < n; i += WIDE) {
        const __m512 q = _mm512_mul_ps(_mm512_maskz_loadu_ps(first_of(n - i), x + i), by);
        _mm_mask_storeu_epi8(y + i, first_of(n - i), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(q)));
    }
}

/* Bits of the largest absolute value. */
INLINE int32_t most_of(const float *x, int64_t n)
{
    const __m512i size = _mm512_set1_epi32(INT32_MAX);
    __m512i most = _mm512_setzero_si512();
    int64_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        most = _mm512_max_epi32(most, _mm512_and_si512(_mm512_loadu_si512(x + i), size));
    if (i < n)
        most = _mm512_max_epi32(most, _mm512_and_si512(_mm512_maskz_loadu_epi32(first_of(n - i), x + i), size));
    return _mm512_reduce_max_epi32(most);
}
#else
INLINE int32_t most_of(const float *x, int64_t n)
{
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t bits = vm_int(x[i]) & 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}
#endif

static void row_i8(int8_t *y, const float *x, int64_t n, float least, float *scale)
{
    float top = vm_bits(most_of(x, n));
    *scale = (top < least ? least : top) / 127;
#if defined(__AVX512BW__)
    if (*scale >= 0x1p-120f && *scale <= 0x1p120f) { /* neither it nor its inverse is rounded to 0 or infinite */
        round_known(y, x, n, *scale);
        return;
    }
#endif
    round_i8(y, x, n, &(Rounding){*scale, 0, -128, 127, true, 0});
}

static void row_u8(uint8_t *y, const float *x, int64_t n, float least, float *scale, uint8_t *zero)
{
    int32_t low = 0, high = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t v = ordered(vm_int(x[i]));
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    float from = vm_bits(ordered(low)), by = (vm_bits(high) - from) / 255, at;
    *scale = by < least ? least : by;
    at = rintf(-from / *scale);
    *zero = (uint8_t)(at > 0 ? at > 255 ? 255 : at : 0);
    round_u8(y, x, n, &(Rounding){*scale, *zero, 0, 255, true, 0});
}
#endif
