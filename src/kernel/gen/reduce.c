/* Row kernels, portable; compiled once per ISA level. Contract in kernel/reduce.h. */
#include "kernel/reduce.h"
#include "base/elementary.h"
#include "kernel/gen/vmath.h"
#include "kernel/variant.h"

#define T float
#define ACC float
#define NAME(x) x##_f32
#define EXP vm_exp_down /* of differences to the largest */
#include "kernel/gen/reduce_tmpl.h"

void KERNEL(reduce_fill)(ReduceKernels *k);

void KERNEL(reduce_fill)(ReduceKernels *k)
{
    k->softmax_f32 = softmax_f32;
    k->norm_f32 = norm_f32;
    k->sum_f32 = sum_f32;
    k->extreme_f32 = extreme_f32;
    k->columns_f32 = columns_f32;
    k->norm_back_f32 = norm_back_f32;
}
