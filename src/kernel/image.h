/* Resampling along one axis, as weighted sums of neighbours. */
#ifndef QKV_KERNEL_IMAGE_H
#define QKV_KERNEL_IMAGE_H
#include "tensor/tensor.h"

typedef struct ImageKernels {
    /* out (outer, n_out, inner) = for each j the sum over k < taps of weight[j * taps + k] * in (outer, at[j * taps + k], inner);
     * in (outer, n_in, inner), both contiguous. Order of the sum: k ascending. */
    void (*resample_f32)(float *out, const float *in, int64_t outer, int64_t n_in, int64_t n_out, int64_t inner, int64_t taps, const int64_t *at,
                         const double *weight, int threads);
    void (*resample_f64)(double *out, const double *in, int64_t outer, int64_t n_in, int64_t n_out, int64_t inner, int64_t taps, const int64_t *at,
                         const double *weight, int threads);
} ImageKernels;
#endif
