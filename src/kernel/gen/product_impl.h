/* What the kernels of products share on every ISA level: elements, turned lines, the epilogue. Contract in
 * kernel/product.h. */
#ifndef QKV_KERNEL_GEN_PRODUCT_IMPL_H
#define QKV_KERNEL_GEN_PRODUCT_IMPL_H
#include <string.h>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif
#include "kernel/gemm.h"
#include "kernel/gen/vmath.h"
#include "kernel/product.h"
#include "kernel/variant.h"

enum { LINE = 64, LANES = 16, MOST_COLS = 64 }; /* LANES: 32-bit words of a line */

/* ------------------------------------------------------------------ elements */

static inline float bf16_value(uint16_t h) { return vm_bits((int32_t)((uint32_t)h << 16)); }

/* f32_to_bf16 (tensor/dtype.h) without a branch: to nearest even, NaN stays NaN. */
static inline uint16_t bf16_bits(float f)
{
    uint32_t u = (uint32_t)vm_int(f), rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)(f != f ? u >> 16 | 0x40 : rounded);
}

static inline float element(const ProductIn *x, int64_t at)
{
    if (x->dtype == DT_BF16) return bf16_value(((const uint16_t *)x->data)[at]);
    float f = ((const float *)x->data)[at];
    return x->rounded ? bf16_value(bf16_bits(f)) : f;
}

/* ------------------------------------------------------------------ lines turned into columns */

/* Words are moved, whatever they are: a float, or two bf16. */
typedef float F4 __attribute__((vector_size(16), aligned(4)));

/* to[k * step + r] = row[r][k] for r < 4 and a line of k. */
static inline void turn_four(float *to, int64_t step, const float *const *row)
{
    for (int k = 0; k < LANES; k += 4, to += 4 * step) {
        F4 a = *(const F4 *)(row[0] + k), b = *(const F4 *)(row[1] + k), c = *(const F4 *)(row[2] + k),
           d = *(const F4 *)(row[3] + k);
        F4 p = __builtin_shufflevector(a, b, 0, 4, 1, 5), q = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        F4 r = __builtin_shufflevector(a, b, 2, 6, 3, 7), s = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        *(F4 *)to = __builtin_shufflevector(p, q, 0, 1, 4, 5);
        *(F4 *)(to + step) = __builtin_shufflevector(p, q, 2, 3, 6, 7);
        *(F4 *)(to + 2 * step) = __builtin_shufflevector(r, s, 0, 1, 4, 5);
        *(F4 *)(to + 3 * step) = __builtin_shufflevector(r, s, 2, 3, 6, 7);
    }
}

#ifdef __AVX512F__
typedef float F16 __attribute__((vector_size(64), aligned(4)));

/* 16 rows become columns: four perfect shuffles of the lines, each of which moves one bit of a word's place from the
 * row to the column. */
INLINE void turn_vectors(F16 *a)
{
    F16 b[LANES];
#pragma GCC unroll 4
    for (int bit = 0; bit < 4; bit++) {
#pragma GCC unroll 8
        for (int r = 0; r < LANES / 2; r++) {
            b[2 * r] = __builtin_shufflevector(a[r], a[r + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            b[2 * r + 1] = __builtin_shufflevector(a[r], a[r + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30,
                                                   15, 31);
        }
#pragma GCC unroll 16
        for (int r = 0; r < LANES; r++) a[r] = b[r];
    }
}

/* As turn_four, of 16 rows. */
static inline void turn_sixteen(float *to, int64_t step, const float *const *row)
{
    F16 a[LANES];
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++) a[r] = *(const F16 *)row[r];
    turn_vectors(a);
#pragma GCC unroll 16
    for (int k = 0; k < LANES; k++) *(F16 *)(to + k * step) = a[k];
}
#endif

static inline void turn(float *to, int64_t step, const float *const *row, int rows)
{
    int r = 0;
    for (; r + 4 <= rows; r += 4) turn_four(to + r, step, row + r);
    if (rows - r > 1 && rows >= 4) {
        turn_four(to + rows - 4, step, row + rows - 4);
        return;
    }
    for (; r < rows; r++)
        for (int k = 0; k < LANES; k++) to[k * step + r] = row[r][k];
}

/* The same for up to 16 rows. */
static inline void turn_lines(float *to, int64_t step, const float *const *row, int rows)
{
#ifdef __AVX512F__
    if (rows == LANES) {
        turn_sixteen(to, step, row);
        return;
    }
#endif
    turn(to, step, row, rows);
}

/* ------------------------------------------------------------------ epilogue */

/* A line of bf16 and its floats, n <= LANES elements. Loops of LANES are one vector each; one over a whole row would be
 * vectors of 32 elements and single ones after them. */
INLINE void load_bf16(float *restrict to, const uint16_t *from, int n)
{
    if (n == LANES)
        for (int i = 0; i < LANES; i++) to[i] = bf16_value(from[i]);
    else
        for (int i = 0; i < n; i++) to[i] = bf16_value(from[i]);
}

INLINE void store_bf16(uint16_t *restrict to, const float *from, int n)
{
    if (n == LANES)
#ifdef __AVX512BF16__
        _mm256_storeu_si256((__m256i *)(void *)to, (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from)));
#else
        for (int i = 0; i < LANES; i++) to[i] = bf16_bits(from[i]);
#endif
    else
        for (int i = 0; i < n; i++) to[i] = bf16_bits(from[i]);
}

INLINE void load_row(float *to, const void *from, DType t, int64_t at, int n)
{
    if (t == DT_F32) memcpy(to, (const float *)from + at, (size_t)n * sizeof *to);
    else
        for (int i = 0; i < n; i += LANES)
            load_bf16(to + i, (const uint16_t *)from + at + i, n - i < LANES ? n - i : LANES);
}

INLINE void store_row(void *to, DType t, int64_t at, const float *from, int n)
{
    if (t == DT_F32) memcpy((float *)to + at, from, (size_t)n * sizeof *from);
    else
        for (int i = 0; i < n; i += LANES)
            store_bf16((uint16_t *)to + at + i, from + i, n - i < LANES ? n - i : LANES);
}

/* x Phi(x) without a quotient, which takes as long as ten multiply-adds: Phi(x) - 1/2 is x times a polynomial in x^2,
 * the best for |x| <= 5.2, beyond which it passes 1/2. Wrong by 2^-22 |x| at most. */
INLINE float gelu_of(float x)
{
    float s = x * x, z = fmaf(s, 2 / 27.04f, -1.0f), p = 2.03069383e-4f;
    p = fmaf(p, z, -5.6282795e-4f);
    p = fmaf(p, z, 5.98733182e-4f);
    p = fmaf(p, z, -9.76979854e-4f);
    p = fmaf(p, z, 2.66477793e-3f);
    p = fmaf(p, z, -5.06903771e-3f);
    p = fmaf(p, z, 8.00878185e-3f);
    p = fmaf(p, z, -1.2352499e-2f);
    p = fmaf(p, z, 1.81342891e-2f);
    p = fmaf(p, z, -2.4763662e-2f);
    p = fmaf(p, z, 3.19622758e-2f);
    p = fmaf(p, z, -3.99253754e-2f);
    p = fmaf(p, z, 5.00261121e-2f);
    p = fmaf(p, z, -6.77438062e-2f);
    p = fmaf(p, z, 1.35949978e-1f);
    int32_t t = vm_int(x * p), size = t & INT32_MAX, half = vm_int(0.5f); /* as integers: one instruction each */
    return x * (0.5f + vm_bits((size < half ? size : half) | (t & INT32_MIN)));
}

/* 1 / (1 + exp(-x)) by an exponential that does not overflow. */
INLINE float sigmoid_of(float x)
{
    float e = vm_exp_down(-fabsf(x)), s = 1.0f / (1.0f + e);
    return x < 0 ? e * s : s;
}

/* Twice what aten gelu, approximate='tanh', takes the tangent of: (1 + tanh(u)) / 2 is sigmoid(2 u). */
#define TWICE_TANH_OF(x) (1.59576912160573072f * ((x) + 0.044715f * (x) * (x) * (x)))

#ifdef __AVX512BF16__
/* gelu_of for results that become bf16, by Phi(-|x|) = 2^polynomial: relative error 2^-11.9. */
INLINE float gelu_short(float x)
{
    float u = fabsf(x), z = -2.69918844e-4f;
    z = fmaf(z, u, 5.29736144e-3f);
    z = fmaf(z, u, -4.63193926e-2f);
    z = fmaf(z, u, -4.66907368e-1f);
    z = fmaf(z, u, -1.14778894f);
    z = fmaf(z, u, -1.00022834f);
    z = z > -127.0f ? z : -127.0f;
    float shifted = z + 12582912.0f, r = z - (shifted - 12582912.0f); /* 1.5 * 2^23: the low bits are the integer */
    float p = fmaf(5.50116203e-2f, r, 2.42210664e-1f);
    p = fmaf(p, r, 6.93282341e-1f);
    p = fmaf(p, r, 1.0f);
    float tail = vm_bits((int32_t)((uint32_t)vm_int(p) + ((uint32_t)vm_int(shifted) << 23))); /* 0 for 2^-127 */
    return x * (x > 0 ? 1.0f - tail : tail);
}

/* sigmoid_of for results that become bf16: relative error 2^-12.9. */
INLINE __m512 sigmoid_short(__m512 x)
{
    __m512 z = _mm512_max_ps(_mm512_set1_ps(-127.0f), _mm512_abs_ps(x) * _mm512_set1_ps(-1.44269504f)),
           shifted = z + _mm512_set1_ps(12582912.0f), r = z - (shifted - _mm512_set1_ps(12582912.0f));
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(5.50116203e-2f), r, _mm512_set1_ps(2.42210664e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.93282341e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    __m512 e = (__m512)_mm512_add_epi32((__m512i)p, _mm512_slli_epi32((__m512i)shifted, 23));
    __m512 s = _mm512_rcp14_ps(_mm512_set1_ps(1.0f) + e);
    return _mm512_mask_mul_ps(s, _mm512_movepi32_mask((__m512i)x), e, s);
}
#endif

#define EACH(value)                                                                                                    \
    _Pragma("GCC ivdep") for (int i = 0; i < n; i++)                                                                   \
    {                                                                                                                  \
        float x = a[i] + b[i];                                                                                         \
        t[i] = value;                                                                                                  \
    }                                                                                                                  \
    break
#define EACH_SHORT(value)                                                                                              \
    for (int i = 0; i < n; i += LANES) {                                                                               \
        __m512 x = _mm512_loadu_ps(a + i) + _mm512_loadu_ps(b + i);                                                    \
        _mm512_storeu_ps(t + i, value);                                                                                \
    }                                                                                                                  \
    break

/* Of a + b, n of them, whole lines; t may be a. A negative `act`: for results that become bf16. */
INLINE void activate(float *t, const float *a, const float *b, int n, int act)
{
    switch (act) {
    case GEMM_RELU: EACH(x < 0 ? 0 : x);
    case GEMM_GELU_ERF: EACH(gelu_of(x));
#ifdef __AVX512BF16__
    case -GEMM_GELU_ERF: EACH(gelu_short(x));
    case -GEMM_GELU_TANH: EACH_SHORT(x *sigmoid_short(TWICE_TANH_OF(x)));
    case -GEMM_SILU: EACH_SHORT(x *sigmoid_short(x));
    case -GEMM_QUICK_GELU: EACH_SHORT(x *sigmoid_short(1.702f * x));
#endif
    case GEMM_GELU_TANH: EACH(x *sigmoid_of(TWICE_TANH_OF(x)));
    case GEMM_SILU: EACH(x *sigmoid_of(x));
    case GEMM_QUICK_GELU: EACH(x *sigmoid_of(1.702f * x));
    default: EACH(x);
    }
}

/* A row of sums is `width` floats, of which the first `cols` are wanted; all are computed, by loops whose length the
 * compiler knows. Where `act` is written out, a row stays in registers. */
INLINE void finish_lines(const ProductOut *o, const float *restrict acc, int64_t row, int64_t col, int rows, int width,
                         int cols, int act)
{
    float none[MOST_COLS], bias[MOST_COLS], more[MOST_COLS], t[MOST_COLS];
    for (int i = 0; i < width; i++) none[i] = -0.0f; /* x + -0 is x, for -0 too */
    if (cols < width) memset(bias, 0, (size_t)width * sizeof *bias), memset(more, 0, (size_t)width * sizeof *more);
    if (o->bias) load_row(bias, o->bias, o->bias_type, col, cols);
    else memcpy(bias, none, (size_t)width * sizeof *bias);
    for (int r = 0; r < rows; r++, acc += width) {
        if (o->residual) load_row(more, o->residual, o->residual_type, (row + r) * o->residual_step + col, cols);
        const float *from = acc, *and = bias;
        if (o->residual && o->act_last) {
            for (int i = 0; i < width; i++) t[i] = acc[i] + bias[i] + more[i];
            from = t;
            and = none;
        }
        activate(t, from, and, width, act);
        if (o->residual && !o->act_last && o->times)
            for (int i = 0; i < width; i++) t[i] *= more[i];
        else if (o->residual && !o->act_last)
            for (int i = 0; i < width; i++) t[i] += more[i];
        store_row(o->c, o->c_type, (row + r) * o->c_step + col, t, cols);
    }
}

INLINE void finish_cols(const ProductOut *o, const float *acc, int64_t row, int64_t col, int rows, int width, int cols)
{
    int act = o->act;
#ifdef __AVX512BF16__
    if (act > GEMM_RELU && o->c_type == DT_BF16) act = -act;
#endif
    if (cols < width) finish_lines(o, acc, row, col, rows, width, cols, act);
    else if (act) finish_lines(o, acc, row, col, rows, width, width, act);
    else finish_lines(o, acc, row, col, rows, width, width, GEMM_NONE);
}

/* Rows [from, to) of a tile that is done; `some` is the file's own for whole rows of c that follow each other. */
typedef void FinishSome(const ProductOut *o, const float *acc, int64_t row, int64_t col, int rows, int cols);

INLINE void finish_rows(const ProductDone *d, int step, int from, int to, FinishSome *some)
{
    if (!d->at) some(d->out, d->acc + from * step, d->row + from, d->col, to - from, d->cols);
    for (int r = from, n; d->at && r < to; r += n) {
        for (n = 1; r + n < to && d->at[r] >= 0 && d->at[r + n] == d->at[r] + n; n++) {
        }
        if (d->at[r] >= 0) some(d->out, d->acc + r * step, d->at[r], d->col, n, d->cols);
    }
}
#endif
