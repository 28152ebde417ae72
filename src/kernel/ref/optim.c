/* Reference optimizers: float in double. Contract in kernel/optim.h. */
#include "kernel/optim.h"
#include <math.h>

#define T float
#define ACC double
#define SQRT sqrt
#define NAME(x) x##_f32
#include "kernel/gen/optim_tmpl.h"
#undef T
#undef NAME

#define T double
#define NAME(x) x##_f64
#include "kernel/gen/optim_tmpl.h"

void optim_fill_ref(OptimKernels *k);

void optim_fill_ref(OptimKernels *k)
{
    *k = (OptimKernels){adam_f32, adam_f64, sgd_f32, sgd_f64, squares_f32, squares_f64};
}
