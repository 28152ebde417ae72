/* Optimizers, portable; compiled once per ISA level. Contract in kernel/optim.h. */
#include "kernel/optim.h"
#include <math.h>
#include "kernel/variant.h"

#define T float
#define ACC float
#define SQRT sqrtf
#define NAME(x) x##_f32
#include "kernel/gen/optim_tmpl.h"
#undef T
#undef ACC
#undef SQRT
#undef NAME

#define T double
#define ACC double
#define SQRT sqrt
#define NAME(x) x##_f64
#include "kernel/gen/optim_tmpl.h"

void KERNEL(optim_fill)(OptimKernels *k);

void KERNEL(optim_fill)(OptimKernels *k)
{
    *k = (OptimKernels){adam_f32, adam_f64, sgd_f32, sgd_f64, squares_f32, squares_f64};
}
