/* Resampling along one axis, as weighted sums of neighbours; pooling over windows. */
#ifndef QKV_KERNEL_IMAGE_H
#define QKV_KERNEL_IMAGE_H
#include "tensor/tensor.h"

typedef struct ImageKernels {
    /* out (outer, n_out, inner) = for each j the sum over k < taps of weight[j * taps + k] * in (outer, at[j * taps +
     * k], inner); in (outer, n_in, inner), both contiguous. Order of the sum: k ascending. */
    void (*resample_f32)(float *out, const float *in, int64_t outer, int64_t n_in, int64_t n_out, int64_t inner,
                         int64_t taps, const int64_t *at, const double *weight, int threads);
    void (*resample_f64)(double *out, const double *in, int64_t outer, int64_t n_in, int64_t n_out, int64_t inner,
                         int64_t taps, const int64_t *at, const double *weight, int threads);
    /* One row of a pooling: out[i] = the largest, or the mean, of in[tap[k] + i * step] over k < taps, for i < n; out
     * contiguous, bf16 as its bits. Channels-last, a row is the channels of a pixel (step 1); contiguous,
     * neighbouring pixels (the stride), whose
     * windows are laid out alike. largest: NaN wins, of equal values the first; taps > 0. mean: sums in double, divided
     * by `divisor`. */
    void (*largest_f32)(float *out, const float *in, const int64_t *tap, int64_t taps, int64_t n, int64_t step);
    void (*largest_bf16)(uint16_t *out, const uint16_t *in, const int64_t *tap, int64_t taps, int64_t n, int64_t step);
    /* The same of bytes, signed or not, at step 1. */
    void (*largest_i8)(int8_t *out, const int8_t *in, const int64_t *tap, int64_t taps, int64_t n);
    void (*largest_u8)(uint8_t *out, const uint8_t *in, const int64_t *tap, int64_t taps, int64_t n);
    void (*mean_f32)(float *out, const float *in, const int64_t *tap, int64_t taps, int64_t n, int64_t step,
                     double divisor);
    void (*mean_bf16)(uint16_t *out, const uint16_t *in, const int64_t *tap, int64_t taps, int64_t n, int64_t step,
                      double divisor);
} ImageKernels;
#endif
