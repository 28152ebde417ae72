/* Vectors of float for attention, as wide as the ISA level has registers: loads of any dtype, exp2, maxima, transposes.
 *
 *     Vec x = vec_load(DT_BF16, p), y = vec_exp2(x * vec_set(1.44269504f));
 */
#ifndef QKV_KERNEL_GEN_SDPA_VEC_H
#define QKV_KERNEL_GEN_SDPA_VEC_H
#include <math.h>
#include <string.h>
#include "kernel/gen/fused.h"
#include "kernel/variant.h"
#include "tensor/dtype.h"
#if defined(__AVX2__) || defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__) || defined(QKV_FUSED)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

typedef float Vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t IVec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint32_t UVec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint16_t HVec __attribute__((vector_size(LANES * 2), aligned(2), may_alias));
typedef uint16_t Half __attribute__((may_alias)); /* rows of halves pass through buffers of other types (vec_load_some):
                                                     without may_alias reads overtake what is written there */

INLINE Vec vec_set(float x) { return x + (Vec){0}; }
INLINE Vec vec_at(const float *p) { return *(const Vec *)p; }
INLINE void vec_put(float *p, Vec x) { *(Vec *)p = x; }

/* The larger; b where one is NaN. */
INLINE Vec vec_max(Vec a, Vec b)
{
#if defined(__AVX512F__)
    return (Vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__) && !defined(QKV_FUSED)
    return (Vec)_mm_max_ps((__m128)a, (__m128)b);
#else
    IVec more = a > b;
    return (Vec)(((IVec)a & more) | ((IVec)b & ~more));
#endif
}

INLINE float vec_largest(Vec x)
{
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#else
    float part[LANES];
    vec_put(part, x);
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) part[i] = part[i] > part[i + n] ? part[i] : part[i + n];
    return part[0];
#endif
}

INLINE float vec_total(Vec x)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)x);
#else
    float part[LANES];
    vec_put(part, x);
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) part[i] += part[i + n];
    return part[0];
#endif
}

/* 2^z, 0 below the normal numbers, which is nothing beside a softmax's largest 1, while products with subnormal
 * numbers take a hundred times as long (masks of -100 make them). NaN stays. z <= 127. Relative error 1.7e-7 at most,
 * and 2^0 is 1, so that a row with one visible key gives its value exactly: a polynomial for 2^r on [0, 1) (AVX-512,
 * whose vreduceps and vscalefps do the rest) or [-1/2, 1/2], the best of those that are 1 at 0. */
INLINE Vec vec_exp2(Vec z)
{
#if defined(__AVX512F__)
    Vec r = (Vec)_mm512_reduce_ps((__m512)z, 1);
    Vec p = fused(every(9.014884571e-3f), r, every(1.868956337e-3f));
    p = fused(every(5.579930073e-2f), p, r);
    p = fused(every(2.401656511e-1f), p, r);
    p = fused(every(6.931510675e-1f), p, r);
    p = fused(every(1.0f), p, r);
    return (Vec)_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask((__m512)z, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ), (__m512)p,
                                       (__m512)z);
#else
    Vec c = vec_max(vec_set(-126.0f), z),
        shifted = c + 12582912.0f; /* 1.5 * 2^23: the low bits are the rounded number */
    Vec r = c - (shifted - 12582912.0f);
    Vec p = fused(every(9.67196168e-3f), r, every(1.327463337e-3f));
    p = fused(every(5.550678369e-2f), p, r);
    p = fused(every(2.402223532e-1f), p, r);
    p = fused(every(6.931470616e-1f), p, r);
    p = fused(every(1.0f), p, r);
    p *= (Vec)(((UVec)shifted << 23) + 0x3f800000u); /* unsigned: a NaN's bits may wrap */
    return (Vec)((IVec)p & ~(IVec)(z < vec_set(-126.0f)));
#endif
}

/* ------------------------------------------------------------------ dtypes */

/* LANES elements of dtype t from p as floats. */
INLINE Vec vec_load(DType t, const void *p)
{
    if (t == DT_F32) return *(const Vec *)p;
#if defined(__AVX512F__)
    if (t == DT_BF16) return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16);
#endif
    if (t == DT_BF16) return (Vec)(__builtin_convertvector(*(const HVec *)p, UVec) << 16);
#if defined(__AVX512F__)
    return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256(p));
#elif defined(__AVX2__)
    return (Vec)_mm256_cvtph_ps(_mm_loadu_si128(p));
#else
    Vec x = {0};
    for (int i = 0; i < LANES; i++) x[i] = f16_to_f32(((const Half *)p)[i]);
    return x;
#endif
}

/* n <= LANES elements, 0 after them. */
INLINE Vec vec_load_some(DType t, const void *p, int64_t n)
{
    uint32_t room[LANES] = {0};
#if defined(__AVX512F__)
    if (t == DT_F32) return (Vec)_mm512_maskz_loadu_ps((__mmask16)((1U << n) - 1), p);
    _mm256_storeu_si256((__m256i *)(void *)room, _mm256_maskz_loadu_epi16((__mmask16)((1U << n) - 1), p));
#else
    memcpy(room, p, (size_t)n * (t == DT_F32 ? 4 : 2));
#endif
    return vec_load(t, room);
}

/* n elements times `factor` into whole vectors, 0 after them. */
INLINE void vec_row_of(DType t, float *to, const char *p, int64_t n, float factor)
{
    int64_t i = 0, size = t == DT_F32 ? 4 : 2;
    for (; i + LANES <= n; i += LANES) vec_put(to + i, vec_load(t, p + i * size) * factor);
    if (i < n) vec_put(to + i, vec_load_some(t, p + i * size, n - i) * factor);
}

INLINE void vec_row(DType t, float *to, const char *p, int64_t n, float factor)
{
    if (t == DT_F32) vec_row_of(DT_F32, to, p, n, factor);
    else if (t == DT_BF16) vec_row_of(DT_BF16, to, p, n, factor);
    else vec_row_of(DT_F16, to, p, n, factor);
}

/* x where from <= j + lane < to, else -inf. */
INLINE Vec vec_between(Vec x, int64_t j, int64_t from, int64_t to)
{
    IVec lane, outside;
    for (int i = 0; i < LANES; i++) lane[i] = i;
    from = from - j < 0 ? 0 : from - j > LANES ? LANES : from - j;
    to = to - j < 0 ? 0 : to - j > LANES ? LANES : to - j;
    outside = (lane < (int32_t)from) | (lane >= (int32_t)to);
    return (Vec)(((IVec)x & ~outside) | ((IVec)vec_set(-INFINITY) & outside));
}

INLINE void vec_store(DType t, void *p, Vec x)
{
    if (t == DT_F32) *(Vec *)p = x;
    else if (t == DT_BF16) {
        UVec u = (UVec)x, nan = (UVec)(x != x), rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
        *(HVec *)p = __builtin_convertvector((nan & 0x7fc0) | (~nan & rounded), HVec);
    } else
        for (int i = 0; i < LANES; i++) ((Half *)p)[i] = f32_to_f16(x[i]);
}

INLINE void vec_store_some(DType t, void *p, Vec x, int64_t n)
{
    uint32_t room[LANES];
#if defined(__AVX512F__)
    if (t == DT_F32) {
        _mm512_mask_storeu_ps(p, (__mmask16)((1U << n) - 1), (__m512)x);
        return;
    }
#endif
    vec_store(t, room, x);
    memcpy(p, room, (size_t)n * (t == DT_F32 ? 4 : 2));
}

/* ------------------------------------------------------------------ transposes */

#if defined(__clang__)
#define VEC_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define VEC_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (IVec){__VA_ARGS__})
#endif

/* Rows a and b whose blocks of `step` elements trade places: a gets b's even blocks at its odd ones,
 * b gets a's odd blocks at its even ones. */
INLINE void vec_trade(Vec *a, Vec *b, int step)
{
    Vec x = *a, y = *b;
#if defined(__AVX512F__)
    switch (step) {
    case 1:
        *a = VEC_SHUFFLE(x, y, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
        *b = VEC_SHUFFLE(x, y, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
        break;
    case 2:
        *a = VEC_SHUFFLE(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
        *b = VEC_SHUFFLE(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
        break;
    case 4:
        *a = VEC_SHUFFLE(x, y, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
        *b = VEC_SHUFFLE(x, y, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
        break;
    default:
        *a = VEC_SHUFFLE(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        *b = VEC_SHUFFLE(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    }
#elif defined(__AVX2__) || defined(QKV_FUSED)
    switch (step) {
    case 1:
        *a = VEC_SHUFFLE(x, y, 0, 8, 2, 10, 4, 12, 6, 14);
        *b = VEC_SHUFFLE(x, y, 1, 9, 3, 11, 5, 13, 7, 15);
        break;
    case 2:
        *a = VEC_SHUFFLE(x, y, 0, 1, 8, 9, 4, 5, 12, 13);
        *b = VEC_SHUFFLE(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
        break;
    default: *a = VEC_SHUFFLE(x, y, 0, 1, 2, 3, 8, 9, 10, 11); *b = VEC_SHUFFLE(x, y, 4, 5, 6, 7, 12, 13, 14, 15);
    }
#else
    *a = step == 1 ? VEC_SHUFFLE(x, y, 0, 4, 2, 6) : VEC_SHUFFLE(x, y, 0, 1, 4, 5);
    *b = step == 1 ? VEC_SHUFFLE(x, y, 1, 5, 3, 7) : VEC_SHUFFLE(x, y, 2, 3, 6, 7);
#endif
}

#ifdef QKV_FUSED /* small: few CPUs run it */
#define UNROLLED
#define TRANSPOSE static __attribute__((noinline, unused))
#else
#define UNROLLED _Pragma("GCC unroll 8")
#define TRANSPOSE INLINE
#endif
/* Of a tile of accumulators, which must be registers: unrolled whatever the compiler thinks of it. */
#define EACH_ROW UNROLLED for (int r = 0; r < rows; r++)
#define EACH_VECTOR UNROLLED for (int v = 0; v < vectors; v++)

/* A square of LANES vectors. */
TRANSPOSE void vec_transpose(Vec *x)
{
#pragma GCC unroll 8
    for (int step = 1; step < LANES; step *= 2)
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            if (!(i & step)) vec_trade(&x[i], &x[i + step], step);
}
#endif
