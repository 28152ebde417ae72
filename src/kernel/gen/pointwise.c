/* Pointwise kernels, portable; compiled once per ISA level. Contract in kernel/pointwise.h. */
#include "kernel/pointwise.h"
#include <float.h>
#include "base/arena.h"
#include "base/elementary.h"
#include "kernel/gen/copies.h"
#include "kernel/gen/special.h"
#include "kernel/gen/vmath.h"
#include "kernel/variant.h"
#include "op/formulas.h"

/* Inverse error function: Giles' approximation, two Newton steps in double. */
static double erf_inverse(double y)
{
    if (y != y || y < -1 || y > 1) return NAN;
    if (y == 1 || y == -1) return y * INFINITY;
    double w = -real_log((1 - y) * (1 + y)), x;
    if (w < 5) {
        w -= 2.5;
        x = 2.81022636e-08;
        x = 3.43273939e-07 + x * w;
        x = -3.5233877e-06 + x * w;
        x = -4.39150654e-06 + x * w;
        x = 0.00021858087 + x * w;
        x = -0.00125372503 + x * w;
        x = -0.00417768164 + x * w;
        x = 0.246640727 + x * w;
        x = 1.50140941 + x * w;
    } else {
        w = sqrt(w) - 3;
        x = -0.000200214257;
        x = 0.000100950558 + x * w;
        x = 0.00134934322 + x * w;
        x = -0.00367342844 + x * w;
        x = 0.00573950773 + x * w;
        x = -0.0076224613 + x * w;
        x = 0.00943887047 + x * w;
        x = 1.00167406 + x * w;
        x = 2.83297682 + x * w;
    }
    x *= y;
    for (int k = 0; k < 2; k++) x -= (real_erf(x) - y) / (1.12837916709551257390 * real_exp(-x * x));
    return x;
}

/* Derivative of log gamma (Cephes' psi): reflection below 0, recurrence up to 10, asymptotic series. */
static double digamma(double x)
{
    static const double series[] = {8.33333333333333333333e-2,  -2.10927960927960927961e-2, 7.57575757575757575758e-3,
                                    -4.16666666666666666667e-3, 3.96825396825396825397e-3,  -8.33333333333333333333e-3,
                                    8.33333333333333333333e-2};
    if (x == 0) return copysign(INFINITY, -x);
    double sum = 0, whole, y = 0;
    if (x < 0) {
        double part = modf(x, &whole);
        if (part == 0) return NAN;
        sum = -3.14159265358979323846 / real_tan(3.14159265358979323846 * part);
        x = 1 - x;
    }
    for (; x < 10; x++) sum -= 1 / x;
    double z = 1 / (x * x);
    for (int k = 0; k < 7; k++) y = y * z + series[k];
    return sum + real_log(x) - 0.5 / x - y * z;
}

/* Modified Bessel function of order 0: the sum of (x^2 / 4)^k / k!^2, all terms positive. */
static double bessel_i0(double x)
{
    double term = 1, sum = 1, q = x * x / 4;
    if (fabs(x) > 720) return isinf(x) ? (double)NAN : INFINITY; /* of infinity: NaN, as ATen's */
    for (int k = 1; term > sum * 1e-18; k++) sum += term *= q / ((double)k * k);
    return x == x ? sum : x;
}

/* Of order 1, the derivative of order 0: x / 2 times the sum of (x^2 / 4)^k / (k! (k + 1)!). */
static double bessel_i1(double x)
{
    double term = 1, sum = 1, q = x * x / 4;
    if (fabs(x) > 720) return isinf(x) ? (double)NAN : copysign(INFINITY, x); /* of infinity: NaN, as ATen's */
    for (int k = 1; term > sum * 1e-18; k++) sum += term *= q / ((double)k * (k + 1));
    return x == x ? x / 2 * sum : x;
}

/* The next number of a short dtype after a towards b. */
static float next_short(double a, double b, DType t)
{
    if (a != a || b != b || a == b) return (float)(a == b ? b : NAN);
    float from = (float)a, least = t == DT_F16 ? 0x1p-24f : 0x1p-133f;
    if (from == 0) return copysignf(least, (float)b);
    int step = (a < b) == (a > 0) ? 1 : -1;
    return t == DT_F16 ? f16_to_f32((uint16_t)(f32_to_f16(from) + step))
                       : bf16_to_f32((uint16_t)(f32_to_bf16(from) + step));
}

/* Not negative; 0 where one of both is. A product beyond 64 bits wraps around, as ATen's. */
static int64_t least_multiple(int64_t a, int64_t b)
{
    int64_t g = gcd_i64(a, b);
    int64_t product = g ? (int64_t)((uint64_t)(a / g) * (uint64_t)b) : 0;
    return product < 0 ? (int64_t)(0 - (uint64_t)product) : product;
}

/* ATen's floor division and remainder of floats (c10/util/generic_math.h: div_floor_floating). */
static double floor_div_float(double a, double b)
{
    if (b == 0) return a / b;
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
    if (div == 0) return copysign(0, a / b);
    double fl = floor(div);
    return div - fl > 0.5 ? fl + 1 : fl;
}

static float floor_div_float32(float a, float b)
{
    if (b == 0) return a / b;
    float mod = fmodf(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
    if (div == 0) return copysignf(0, a / b);
    float fl = floorf(div);
    return div - fl > 0.5f ? fl + 1 : fl;
}

static double remainder_float(double a, double b)
{
    double m = fmod(a, b);
    return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}

static float remainder_float32(float a, float b)
{
    float m = fmodf(a, b);
    return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}

/* Numbers beyond 64 bits become the ends: 2^63 as a bound is none. */
static int64_t nearest_int(double v) { return v >= 0x1p63 ? INT64_MAX : v <= -0x1p63 ? INT64_MIN : (int64_t)v; }

/* Integer division by zero gives 0 here; the caller refuses it before. */
static int64_t floor_div_int(int64_t a, int64_t b)
{
    if (b == 0 || b == -1) return b ? (int64_t)(0 - (uint64_t)a) : 0;
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static int64_t trunc_div_int(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b; }
static int64_t fmod_int(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

static int64_t remainder_int(int64_t a, int64_t b)
{
    int64_t m = fmod_int(a, b);
    return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}

/* aten/src/ATen/native/Pow.h: powi; a negative exponent is 0 except for bases 1 and -1. */
static int64_t power_int(int64_t a, int64_t b)
{
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t r = 1, x = (uint64_t)a;
    for (; b; b >>= 1, x *= x)
        if (b & 1) r *= x;
    return (int64_t)r;
}

/* As PyTorch's kernels: small whole exponents by products, which are many times as fast as the function. */
static inline float power_f32(float a, float b)
{
    if (b == 2) return a * a;
    if (b == 3) return a * a * a;
    if (b == -1) return 1 / a;
    return b == -2 ? 1 / (a * a) : real_powf(a, b);
}

static inline double power_f64(double a, double b)
{
    if (b == 2) return a * a;
    if (b == 3) return a * a * a;
    if (b == -1) return 1 / a;
    return b == -2 ? 1 / (a * a) : real_pow(a, b);
}

/* Out-of-range floats are undefined in C; x86's conversion gives the smallest integer, as PyTorch does there.
 * Dtypes of up to 32 bits take the low bits of an int32. */
static inline int64_t float_to_int(double v) { return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN; }
static inline int32_t float_to_i32(double v) { return v > -0x1p31 - 1 && v < 0x1p31 ? (int32_t)v : INT32_MIN; }
static inline uint64_t float_to_u64(double v)
{
    return v >= 0x1p63 && v < 0x1p64 ? (uint64_t)v : (uint64_t)float_to_int(v);
}

#define FLOAT_OPS
#define NEG(x) -(x)
#define ABS(x) F(fabs)(x)
#define NUMBER(v) (T)(v)
#define ADD(a, b) (a) + (b)
#define SUB(a, b) (a) - (b)
#define MUL(a, b) (a) * (b)
#define IS_INF(x) (isinf(x) != 0)
#define IS_FINITE(x) (isfinite(x) != 0)
#define SIGN_BIT(x) (signbit(x) != 0)
#define FROM_FLOAT(v) (v)
#define FROM_F16(v) f16_to_f32(v)
#define FROM_BF16(v) bf16_to_f32(v)
#define TO_F16(v) f32_to_f16((float)(v))
#define TO_BF16(v) f32_to_bf16((float)(v))
#define TO_INT(v) float_to_int((double)(v))
#define TO_I32(v) float_to_i32((double)(v))
#define TO_U64(v) float_to_u64((double)(v))

#define T float
#define NAME(x) x##_f32
#define F(fn) real_##fn##f
#define F_EXP(x) vm_exp(x)
#define F_TANH(x) vm_tanh(x)
#define F_ERF(x) vm_erf(x)
#define F_ERFINV(x) (float)erf_inverse((double)(x))
#define F_MAX FLT_MAX
#define HERMITE_MAX 128
#define POWER(a, b) power_f32(a, b)
#define DIV_FLOOR(a, b) floor_div_float32(a, b)
#define DIV_TRUNC(a, b) truncf((a) / (b))
#define REMAINDER(a, b) remainder_float32(a, b)
#define FMOD(a, b) fmodf(a, b)
#include "kernel/gen/pointwise_tmpl.h"
#undef T
#undef NAME
#undef F
#undef F_EXP
#undef F_TANH
#undef F_ERF
#undef F_ERFINV
#undef F_MAX
#undef HERMITE_MAX
#undef POWER
#undef DIV_FLOOR
#undef DIV_TRUNC
#undef REMAINDER
#undef FMOD

#define T double
#define NAME(x) x##_f64
#define F(fn) real_##fn
#define F_EXP(x) real_exp(x)
#define F_TANH(x) real_tanh(x)
#define F_ERF(x) real_erf(x)
#define F_ERFINV(x) erf_inverse(x)
#define F_MAX DBL_MAX
#define HERMITE_MAX 512
#define POWER(a, b) power_f64(a, b)
#define DIV_FLOOR(a, b) floor_div_float(a, b)
#define DIV_TRUNC(a, b) trunc((a) / (b))
#define REMAINDER(a, b) remainder_float(a, b)
#define FMOD(a, b) fmod(a, b)
#include "kernel/gen/pointwise_tmpl.h"
#undef T
#undef NAME
#undef F
#undef POWER
#undef DIV_FLOOR
#undef DIV_TRUNC
#undef REMAINDER
#undef FMOD
#undef FLOAT_OPS
#undef NEG
#undef ABS
#undef NUMBER
#undef ADD
#undef SUB
#undef MUL
#undef IS_INF
#undef IS_FINITE
#undef SIGN_BIT
#undef FROM_FLOAT
#undef FROM_F16
#undef FROM_BF16
#undef TO_F16
#undef TO_BF16
#undef TO_INT
#undef TO_I32
#undef TO_U64

#define T int64_t
#define NAME(x) x##_i64
#define NEG(x) (int64_t)(0 - (uint64_t)(x))
#define ABS(x) ((x) < 0 ? NEG(x) : (x))
#define NUMBER(v) nearest_int(v)
#define ADD(a, b) (int64_t)((uint64_t)(a) + (uint64_t)(b))
#define SUB(a, b) (int64_t)((uint64_t)(a) - (uint64_t)(b))
#define MUL(a, b) (int64_t)((uint64_t)(a) * (uint64_t)(b))
#define POWER(a, b) power_int(a, b)
#define DIV_FLOOR(a, b) floor_div_int(a, b)
#define DIV_TRUNC(a, b) trunc_div_int(a, b)
#define REMAINDER(a, b) remainder_int(a, b)
#define FMOD(a, b) fmod_int(a, b)
#define IS_INF(x) ((void)(x), 0)
#define IS_FINITE(x) ((void)(x), 1)
#define SIGN_BIT(x) ((x) < 0)
#define FROM_FLOAT(v) float_to_int((double)(v))
#define FROM_F16(v) float_to_int((double)f16_to_f32(v))
#define FROM_BF16(v) float_to_int((double)bf16_to_f32(v))
#define TO_F16(v) f32_to_f16((float)(v))
#define TO_BF16(v) f32_to_bf16((float)(v))
#define TO_INT(v) (v)
#define TO_I32(v) (v)
#define TO_U64(v) (v)
#include "kernel/gen/pointwise_tmpl.h"

void KERNEL(pointwise_fill)(PointwiseKernels *k);

void KERNEL(pointwise_fill)(PointwiseKernels *k)
{
    *k = (PointwiseKernels){
        .unary_f32 = unary_f32,
        .unary_f64 = unary_f64,
        .unary_i64 = unary_i64,
        .binary_f32 = binary_f32,
        .binary_f64 = binary_f64,
        .binary_i64 = binary_i64,
        .compare_f32 = compare_f32,
        .compare_f64 = compare_f64,
        .compare_i64 = compare_i64,
        .test_f32 = test_f32,
        .test_f64 = test_f64,
        .test_i64 = test_i64,
        .where_f32 = where_f32,
        .where_f64 = where_f64,
        .where_i64 = where_i64,
        .load_f32 = load_row_f32,
        .load_f64 = load_row_f64,
        .load_i64 = load_row_i64,
        .store_f32 = store_row_f32,
        .store_f64 = store_row_f64,
        .store_i64 = store_row_i64,
        .copy_2d = copy_2d,
    };
}
