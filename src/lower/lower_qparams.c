/* Scales and zero points that are found in a run: quantized_decomposed.choose_qparams and its kin, in other ops.
 *
 *     choose_qparams_symmetric(x, -127, 127, eps, int8)   ->  max(max(-min(x), max(x)) / 127, eps), 0
 *     choose_qparams_per_token(x, int8)                   ->  clamp(amax(abs(x), -1), 1e-5) / 127, 0
 *
 * Formulas: determine_qparams of torch/ao/quantization/utils.py, and torch/ao/quantization/fx/_decomposed.py.
 */
#include <math.h>
#include "lower/lower_table.h"

static Arg f(Lower *L, double x) { return arg_float(L->g, x); }

typedef struct Extremes {
    Value *low, *high; /* the least and the largest element, and 0 */
} Extremes;

static bool extremes(Lower *L, Value *x, Arg dims, bool keep, Extremes *e)
{
    Arg zero = f(L, 0);
    TRY(e->low = AS(L, amin, v(x), dims, arg_bool(L->g, keep)));
    TRY(e->high = AS(L, amax, v(x), dims, arg_bool(L->g, keep)));
    return (e->low = AS(L, clamp, v(e->low), arg_none(), zero)) && (e->high = AS(L, clamp, v(e->high), zero));
}

/* (input, quant_min, quant_max, eps, dtype): scale and zero point, each of one element */
bool lower_choose_qparams(Lower *L)
{
    Value *x = lower_value(L, 0), *scale, *zero;
    int64_t low, high;
    Extremes e;
    Expr *eps = lower_expr(L, 3), *one = ex_int(L->ex, 1);
    bool symmetric = L->op->id == OP_choose_qparams_symmetric;
    if (!x) return lower_fail(L, 0, "expected a tensor");
    TRY(lower_const_int(L, 1, &low) && lower_const_int(L, 2, &high));
    if (!eps || !ex_is_const(eps)) return lower_fail(L, 3, "must be a constant");
    if (low >= high) return lower_fail(L, 2, "%lld with a least value of %lld", (long long)high, (long long)low);
    TRY(extremes(L, x, arg_ints(L->g, 0, NULL), false, &e));
    Arg span = f(L, (double)(high - low) / (symmetric ? 2 : 1));
    if (symmetric) scale = AS(L, maximum, v(AS(L, neg, v(e.low))), v(e.high));
    else scale = AS(L, sub_Tensor, v(e.high), v(e.low));
    scale = AS(L, clamp, v(AS(L, div_Tensor, v(scale), span)), f(L, (double)(float)ex_number(eps)));
    TRY(scale);
    if (symmetric) {
        int64_t middle = L->arg[4].dtype == DT_U8 ? 128 : 0;
        zero = AS(L, full, arg_exprs(L->g, 1, &one), arg_int(L->g, middle), arg_dtype(DT_I64));
    } else {
        zero = AS(L, round, v(AS(L, div_Tensor, v(e.low), v(scale))));
        zero = AS(L, add_Tensor, v(AS(L, neg, v(zero))), f(L, (double)low));
        zero = lower_cast(L, AS(L, clamp, v(zero), f(L, (double)low), f(L, (double)high)), DT_I64);
        zero = zero ? lower_reshape(L, zero, 1, &one) : NULL;
    }
    scale = lower_cast(L, lower_reshape(L, scale, 1, &one), DT_F64);
    return scale && zero && lower_return_values(L, 2, (Value *[]){scale, zero});
}

bool lower_choose_qparams_per_token(Lower *L)
{
    Value *x = lower_value(L, 0);
    L->other_dtype = true; /* float64 and int64 */
    if (!x) return lower_fail(L, 0, "expected a tensor");
    if (L->arg[1].dtype != DT_I8) return lower_fail(L, 1, "%s, expected int8", dtype_name(L->arg[1].dtype));
    Value *most = AS(L, amax, v(AS(L, abs, v(x))), arg_ints(L->g, 1, (int64_t[]){-1}), arg_bool(L->g, true));
    if (most && x->dtype == DT_F16) most = lower_cast(L, most, DT_F32);
    Value *scale = AS(L, div_Tensor, v(AS(L, clamp, v(most), f(L, 1e-5))), f(L, 127));
    Value *zero = scale ? AS(L, full, arg_exprs(L->g, scale->rank, scale->dim), f(L, 0), arg_dtype(scale->dtype))
                        : NULL;
    return zero && lower_return_values(L, 2, (Value *[]){scale, zero});
}

/* As XNNPACK: the zero point from the end of the range that it rounds less. */
bool lower_choose_qparams_per_token_asymmetric(Lower *L)
{
    enum { LOW = -128, HIGH = 127 };
    Value *x = lower_value(L, 0);
    Extremes e;
    if (!x) return lower_fail(L, 0, "expected a tensor");
    TRY(extremes(L, x, arg_ints(L->g, 1, (int64_t[]){-1}), true, &e));
    Value *scale = AS(L, div_Tensor, v(AS(L, sub_Tensor, v(e.high), v(e.low))), f(L, HIGH - LOW));
    scale = AS(L, clamp, v(scale), f(L, 1.1920928955078125e-07)); /* torch.finfo(torch.float32).eps */
    Value *low = AS(L, div_Tensor, v(e.low), v(scale)), *high = AS(L, div_Tensor, v(e.high), v(scale));
    Value *errors = AS(L, add_Tensor, v(AS(L, add_Tensor, v(low), f(L, LOW))),
                       v(AS(L, add_Tensor, v(high), f(L, HIGH))));
    Value *from_low = AS(L, add_Tensor, v(AS(L, neg, v(low))), f(L, LOW)),
          *from_high = AS(L, add_Tensor, v(AS(L, neg, v(high))), f(L, HIGH));
    Value *zero = AS(L, where_self, v(AS(L, gt_Tensor, v(errors), f(L, 0))), v(from_low), v(from_high));
    zero = AS(L, round, v(AS(L, clamp, v(zero), f(L, LOW), f(L, HIGH))));
    TRY(zero);
    return lower_return_values(L, 2, (Value *[]){lower_cast(L, scale, DT_F64), lower_cast(L, zero, DT_I64)});
}
