/* Resampling, portable; compiled once per rung. Contract in kernel/image.h. */
#include "kernel/image.h"
#include "kernel/variant.h"

#define T float
#define ACC float
#define NAME(x) x##_f32
#include "kernel/gen/image_tmpl.h"

void KERNEL(image_fill)(ImageKernels *k);

void KERNEL(image_fill)(ImageKernels *k) { k->resample_f32 = resample_f32; }
