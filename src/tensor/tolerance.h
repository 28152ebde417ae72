/* When results count as equal: tolerance_of(TOLERANCE_MODEL, DT_F32) is 2e-5 of the largest expected value
 * (tolerance.def). */
#ifndef QKV_TENSOR_TOLERANCE_H
#define QKV_TENSOR_TOLERANCE_H
#include "tensor/dtype.h"

typedef enum Tolerance {
#define TOLERANCE(WHAT, f64, f32, f16, bf16) TOLERANCE_##WHAT,
#include "tensor/tolerance.def"
#undef TOLERANCE
} Tolerance;

static inline double tolerance_of(Tolerance what, DType t)
{
    static const double share[][DT_COUNT] = {
#define TOLERANCE(WHAT, f64, f32, f16, bf16) \
    {[DT_F64] = f64, [DT_F32] = f32, [DT_F16] = f16, [DT_BF16] = bf16, [DT_C128] = f64, [DT_C64] = f32, [DT_C32] = f16},
#include "tensor/tolerance.def"
#undef TOLERANCE
    };
    return share[what][t];
}
#endif
