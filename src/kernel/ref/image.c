/* Reference resampling and pooling: double accumulators; resampling of doubles is this on every ISA level. */
#include "kernel/image.h"
#include <math.h>

#define T double
#define ACC double
#define NAME(x) x##_f64
#include "kernel/gen/image_tmpl.h"
#undef T
#undef NAME
#define T float
#define NAME(x) x##_f32
#include "kernel/gen/image_tmpl.h"

static double largest(DType t, const void *in, const int64_t *tap, int64_t taps, int64_t at)
{
    double best = 0;
    for (int64_t k = 0; k < taps; k++) {
        double v = load_f64(t, (const char *)in + (tap[k] + at) * (int64_t)dtype_size(t));
        if (k == 0 || v > best || isnan(v)) best = v;
    }
    return best;
}

static double mean(DType t, const void *in, const int64_t *tap, int64_t taps, int64_t at, double divisor)
{
    double sum = 0;
    for (int64_t k = 0; k < taps; k++) sum += load_f64(t, (const char *)in + (tap[k] + at) * (int64_t)dtype_size(t));
    return sum / divisor;
}

static void largest_f32(float *out, const float *in, const int64_t *tap, int64_t taps, int64_t n, int64_t step)
{
    for (int64_t i = 0; i < n; i++) out[i] = (float)largest(DT_F32, in, tap, taps, i * step);
}

static void largest_bf16(uint16_t *out, const uint16_t *in, const int64_t *tap, int64_t taps, int64_t n, int64_t step)
{
    for (int64_t i = 0; i < n; i++) store_f64(DT_BF16, out + i, largest(DT_BF16, in, tap, taps, i * step));
}

static void largest_i8(int8_t *out, const int8_t *in, const int64_t *tap, int64_t taps, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = (int8_t)largest(DT_I8, in, tap, taps, i);
}

static void largest_u8(uint8_t *out, const uint8_t *in, const int64_t *tap, int64_t taps, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = (uint8_t)largest(DT_U8, in, tap, taps, i);
}

static void mean_f32(float *out, const float *in, const int64_t *tap, int64_t taps, int64_t n, int64_t step,
                     double divisor)
{
    for (int64_t i = 0; i < n; i++) out[i] = (float)mean(DT_F32, in, tap, taps, i * step, divisor);
}

static void mean_bf16(uint16_t *out, const uint16_t *in, const int64_t *tap, int64_t taps, int64_t n, int64_t step,
                      double divisor)
{
    for (int64_t i = 0; i < n; i++) store_f64(DT_BF16, out + i, mean(DT_BF16, in, tap, taps, i * step, divisor));
}

void image_fill_ref(ImageKernels *k);

void image_fill_ref(ImageKernels *k)
{
    *k = (ImageKernels){resample_f32, resample_f64, largest_f32, largest_bf16, largest_i8, largest_u8, mean_f32,
                        mean_bf16};
}
