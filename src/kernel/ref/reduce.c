/* Reference row kernels: double accumulators; the double ones are these on every ISA level. */
#include "kernel/reduce.h"
#include <math.h>
#include "base/elementary.h"

#define T double
#define ACC double
#define NAME(x) x##_f64
#define EXP real_exp
#include "kernel/gen/reduce_tmpl.h"
#undef T
#undef NAME
#undef EXP
#undef ACC

#define T float
#define ACC double
#define NAME(x) x##_f32
#define EXP(x) (float)real_exp((double)(x))
#include "kernel/gen/reduce_tmpl.h"

void reduce_fill_ref(ReduceKernels *k);

void reduce_fill_ref(ReduceKernels *k)
{
    *k = (ReduceKernels){softmax_f32, softmax_f64, norm_f32,    norm_f64,    sum_f32,       sum_f64,
                         extreme_f32, extreme_f64, columns_f32, columns_f64, norm_back_f32, norm_back_f64};
}
