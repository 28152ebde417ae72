/* Reference resampling: double accumulators; the double one is this on every rung. */
#include "kernel/image.h"

#define T double
#define ACC double
#define NAME(x) x##_f64
#include "kernel/gen/image_tmpl.h"
#undef T
#undef NAME
#define T float
#define NAME(x) x##_f32
#include "kernel/gen/image_tmpl.h"

void image_fill_ref(ImageKernels *k);

void image_fill_ref(ImageKernels *k) { *k = (ImageKernels){resample_f32, resample_f64}; }
