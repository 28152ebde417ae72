/* Elementary functions in float that gcc vectorises: straight-line code, no tables, no branches that calls hide behind.
 * Errors against libm in double: exp 0.58 ulp (0.571 over all floats; 0.77 where a denormal result rounds twice), tanh
 * 2 ulp, erf 1.5 ulp (tests/kernel/test_pointwise.c, every 4099th float).
 */
#ifndef QKV_KERNEL_GEN_VMATH_H
#define QKV_KERNEL_GEN_VMATH_H
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float vm_bits(int32_t i)
{
    float f;
    memcpy(&f, &i, 4);
    return f;
}

static inline int32_t vm_int(float f)
{
    int32_t i;
    memcpy(&i, &f, 4);
    return i;
}

/* x = n ln 2 + r, of which r = rough + low: rough is exact, as x is a multiple of 2^-24 where n is not 0 and so is the
 * first part of ln 2. exp(r) = 1 + r + r^2 / 2 + r^3 times a polynomial in the order in which fewest roundings count:
 * 1 + rough with its rest, r^2 / 2 by a fused multiply-add, and low last, times all of it. 2^n in two steps so that
 * denormal results are right, by the low bits of n + 254 + 1.5 * 2^23; NaN goes all the way through. */
static inline float vm_exp(float x)
{
    float c = x > 88.8f ? 88.8f : x;
    c = c < -104.0f ? -104.0f : c;
    float shifted = c * 1.44269504f + 12583166.0f; /* rounds to an integer */
    float n = shifted - 12583166.0f;
    float rough = fmaf(n, -0.693147182f, c), low = n * 1.90465421e-9f;
    float p = 1.9729713676e-4f;
    p = fmaf(p, rough, 1.3934411108e-3f);
    p = fmaf(p, rough, 8.3335824311e-3f);
    p = fmaf(p, rough, 4.1666470468e-2f);
    p = fmaf(p, rough, 1.6666665673e-1f);
    float first = 1.0f + rough;
    p = fmaf(rough * p, rough * rough, rough - (first - 1.0f));
    p = fmaf(0.5f * rough, rough, p);
    p = first + fmaf(low, first + p, p);
    int32_t k = vm_int(shifted), half = k >> 1;
    return p * vm_bits((int32_t)((uint32_t)half << 23)) * vm_bits((int32_t)((uint32_t)(k - half) << 23));
}

/* 2^n for n > -127, of n + 1.5 * 2^23: its low bits are n. */
static inline float vm_power_of_two(float shifted)
{
    return vm_bits((int32_t)(((uint32_t)vm_int(shifted) << 23) + 0x3f800000u));
}

/* exp(x) for x <= 0 with less work: 0 below the normal numbers, which is nothing beside a softmax's largest 1,
 * while products with subnormal numbers take a hundred times as long (masks of -100 make them). NaN stays. */
static inline float vm_exp_down(float x)
{
    float c = x < -87.0f ? -87.0f : x;
    float shifted = c * 1.44269504f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = fmaf(n, -0.693359375f, c);
    r = fmaf(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = fmaf(p, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = fmaf(p, r * r, r) + 1.0f;
    float e = p * vm_power_of_two(shifted);
    return x < -87.0f ? 0 : e;
}

/* 1 - 2 / (exp(2x) + 1) away from 0, an odd polynomial near it. */
static inline float vm_tanh(float x)
{
    float a = fabsf(x), s = x * x;
    float p = -5.70498872745e-3f;
    p = fmaf(p, s, 2.06390887954e-2f);
    p = fmaf(p, s, -5.37397155531e-2f);
    p = fmaf(p, s, 1.33314422036e-1f);
    p = fmaf(p, s, -3.33332819422e-1f);
    p = fmaf(p * s, x, x);
    float e = 1.0f - 2.0f / (vm_exp(2.0f * a) + 1.0f);
    return copysignf(a < 0.625f ? p : e, x); /* -0.0 too, which p loses */
}

/* Two polynomials: near 0, and 1 - exp(-q(|x|)) beyond (after N. Juffa). */
static inline float vm_erf(float x)
{
    float t = fabsf(x), s = x * x;
    float r = fmaf(-1.72853470e-5f, t, 3.83197126e-4f);
    float u = fmaf(-3.88396438e-3f, t, 2.42546219e-2f);
    r = fmaf(r, s, u);
    r = fmaf(r, t, -1.06777877e-1f);
    r = fmaf(r, t, -6.34846687e-1f);
    r = fmaf(r, t, -1.28717512e-1f);
    r = fmaf(r, t, -t);
    r = r < -80.0f ? -80.0f : r; /* subnormal powers take a hundred times as long, and are nothing beside 1 */
    float far = copysignf(1.0f - vm_exp(r), x);
    float q = -5.96761703e-4f;
    q = fmaf(q, s, 4.99119423e-3f);
    q = fmaf(q, s, -2.67681349e-2f);
    q = fmaf(q, s, 1.12819925e-1f);
    q = fmaf(q, s, -3.76125336e-1f);
    q = fmaf(q, s, 1.28379166e-1f);
    q = fmaf(q, x, x);
    return t > 0.927734375f ? (t > 4.0f ? copysignf(1.0f, x) : far) : (x != x ? x : q);
}

static inline float vm_sigmoid(float x) { return 1.0f / (1.0f + vm_exp(-x)); }
static inline float vm_silu(float x) { return x / (1.0f + vm_exp(-x)); }
/* x * Phi(x); aten gelu, approximate='none' */
static inline float vm_gelu(float x) { return 0.5f * x * (1.0f + vm_erf(x * 0.70710678118654752f)); }
/* aten gelu, approximate='tanh' */
static inline float vm_gelu_tanh(float x)
{
    return 0.5f * x * (1.0f + vm_tanh(0.79788456080286536f * fmaf(0.044715f * x * x, x, x)));
}
#endif
