/* sum + x * y rounded once, in vectors of the rung's width, where the rung has an instruction for it. It is asked for
 * by name: left to contraction, compilers fuse some terms of a sum and not others (gcc 14 breaks chains of 256 bits),
 * each function its own way, and a row's bits would depend on the tile that it is in.
 *
 *     Vec sum = fused(sum, every(a[k]), row_of_b);
 *
 * QKV_FUSED is set where kernels that fuse are built for CPUs without the instruction (see table.c): vectors of AVX2's
 * width, element by element by the C library, which is exact and slow.
 */
#ifndef QKV_KERNEL_GEN_FUSED_H
#define QKV_KERNEL_GEN_FUSED_H
#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(QKV_FUSED)
#include <math.h>
typedef float Eight __attribute__((vector_size(32), aligned(4)));
static inline Eight every(float x) { return x + (Eight){0}; }
static __attribute__((noinline, unused)) Eight fused(Eight sum, Eight x, Eight y)
{
    for (int i = 0; i < 8; i++) sum[i] = fmaf(x[i], y[i], sum[i]);
    return sum;
}
#elif defined(__AVX512F__)
static inline __m512 every(float x) { return _mm512_set1_ps(x); }
static inline __m512 fused(__m512 sum, __m512 x, __m512 y) { return _mm512_fmadd_ps(x, y, sum); }
#elif defined(__FMA__)
static inline __m256 every(float x) { return _mm256_set1_ps(x); }
static inline __m256 fused(__m256 sum, __m256 x, __m256 y) { return _mm256_fmadd_ps(x, y, sum); }
#elif defined(__aarch64__)
static inline float32x4_t every(float x) { return vdupq_n_f32(x); }
static inline float32x4_t fused(float32x4_t sum, float32x4_t x, float32x4_t y) { return vfmaq_f32(sum, x, y); }
#else /* without such an instruction nothing can be contracted */
typedef float Four __attribute__((vector_size(16)));
static inline Four every(float x) { return (Four){x, x, x, x}; }
static inline Four fused(Four sum, Four x, Four y) { return sum + x * y; }
#endif
#endif
