/* ONNX's reductions, softmax and scans. Contract in onnx_impl.h. */
#include <math.h>
#include "onnx/read/read_impl.h"

static Value *sum(OnnxOp *o, Value *x, const Arg *axes, bool keep)
{
    return AS(&o->L, sum_dim_IntList, v(x), *axes, arg_bool(o->g, keep), x ? arg_dtype(x->dtype) : arg_none());
}

static Value *product(OnnxOp *o, Value *x, int n, const int *axis, bool keep)
{
    DType t = x->dtype;
    for (int k = x->rank - 1; k >= 0 && x; k--)
        for (int i = 0; i < n; i++)
            if (axis[i] == k)
                TRY_NULL(x = AS(&o->L, prod_dim_int, v(x), arg_int(o->g, k), arg_bool(o->g, keep), arg_dtype(t)));
    return x;
}

/* What the largest (smallest) of no elements is */
static Value *extreme_of_none(OnnxOp *o, const Value *x, const Arg *axes, bool keep, bool max)
{
    Expr *dim[MAX_RANK];
    int rank = 0;
    for (int i = 0; i < x->rank; i++) {
        bool gone = false;
        for (int k = 0; k < axes->n; k++) gone = gone || axes->es[k]->i == i;
        if (!gone || keep) dim[rank++] = gone ? ex_int(o->ex, 1) : x->dim[i];
    }
    int bits = dtype_bits(x->dtype);
    bool is_signed = x->dtype == DT_I64 || x->dtype == DT_I32 || x->dtype == DT_I16 || x->dtype == DT_I8;
    int64_t high = bits >= 64  ? INT64_MAX
                   : is_signed ? (INT64_C(1) << (bits - 1)) - 1
                               : (INT64_C(1) << bits) - 1,
            low = is_signed ? -high - 1 : 0;
    Arg fill = x->dtype == DT_BOOL        ? arg_bool(o->g, !max)
               : dtype_is_float(x->dtype) ? arg_float(o->g, max ? -INFINITY : INFINITY)
                                          : arg_int(o->g, max ? low : high);
    return AS(&o->L, full, arg_exprs(o->g, rank, dim), fill, arg_dtype(x->dtype));
}

/* Max and Min of bools are Or and And. */
static Value *extreme(OnnxOp *o, Value *x, const Arg *axes, bool keep)
{
    bool max = o->row.aten == OP_amax, truth = x->dtype == DT_BOOL;
    for (int i = 0; i < axes->n; i++)
        if (ex_equals_int(x->dim[axes->es[i]->i], 0)) return extreme_of_none(o, x, axes, keep, max);
    if (truth) x = lower_cast(&o->L, x, DT_U8);
    Value *y = max ? AS(&o->L, amax, v(x), *axes, arg_bool(o->g, keep))
                   : AS(&o->L, amin, v(x), *axes, arg_bool(o->g, keep));
    return truth ? lower_cast(&o->L, y, DT_BOOL) : y;
}

/* Axes: an attribute before opset 18 (ReduceSum: 13), none = all unless noop_with_empty_axes. */
bool onnx_reduce(OnnxOp *o)
{
    Value *x, *y;
    int64_t keep, noop;
    int n, axis[MAX_RANK];
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "keepdims", 1, &keep) &&
        op_attr_int(o, "noop_with_empty_axes", 0, &noop));
    OpId f = o->row.aten;
    TRY(op_axes(o, f == OP_sum_dim_IntList ? 13 : 18, 1, x->rank, &n, axis));
    bool none = n <= 0;
    if (none && noop) n = 0;
    else if (none)
        for (n = 0; n < x->rank; n++) axis[n] = n;
    int64_t list[MAX_RANK];
    for (int i = 0; i < n; i++) list[i] = axis[i];
    Arg axes = arg_ints(o->g, n, list);
    if (!arg_built(&axes)) return oom(o->im->err);
    bool pure = n == 0; /* what is done to each element stays, nothing is summed */
    switch ((int)f) {
    case OP_sum_dim_IntList: y = pure ? x : sum(o, x, &axes, keep); break;
    case OP_mean_dim:
        if (pure || dtype_is_float(x->dtype)) y = pure ? x : AS(&o->L, mean_dim, v(x), axes, arg_bool(o->g, keep));
        else
            y = lower_cast(&o->L, AS(&o->L, mean_dim, v(lower_cast(&o->L, x, DT_F64)), axes, arg_bool(o->g, keep)),
                           x->dtype);
        break;
    case OP_amax:
    case OP_amin: y = pure ? x : extreme(o, x, &axes, keep); break;
    case OP_prod_dim_int: y = product(o, x, n, axis, keep); break;
    case OP_square:
    case OP_sqrt:
        y = AS(&o->L, mul_Tensor, v(x), v(x));
        if (!pure && y) y = sum(o, y, &axes, keep);
        if (f == OP_sqrt)
            y = lower_cast(&o->L, AS(&o->L, sqrt, v(dtype_is_float(x->dtype) ? y : lower_cast(&o->L, y, DT_F64))),
                           x->dtype);
        break;
    case OP_abs:
        y = AS(&o->L, abs, v(x));
        if (!pure && y) y = sum(o, y, &axes, keep);
        break;
    case OP_log:
        y = pure ? x : sum(o, x, &axes, keep);
        y = lower_cast(&o->L, AS(&o->L, log, v(dtype_is_float(x->dtype) ? y : lower_cast(&o->L, y, DT_F64))), x->dtype);
        break;
    default:
        y = dtype_is_float(x->dtype) ? x : lower_cast(&o->L, x, DT_F64);
        if (!pure) y = lower_cast(&o->L, AS(&o->L, logsumexp, v(y), axes, arg_bool(o->g, keep)), x->dtype);
        else y = x;
    }
    return op_return(o, 0, y);
}

/* Softmax in float16 as the standard defines it, by a function whose every step is in the dtype of the input:
 * exponentials and their sum are rounded, too. `qkv rewrite` makes one op of it again. */
static Value *softmax_by_steps(OnnxOp *o, Value *x, int axis)
{
    Arg axes = arg_ints(o->g, 1, (int64_t[]){axis}), keep = arg_bool(o->g, true);
    Value *e = AS(&o->L, exp, v(AS(&o->L, sub_Tensor, v(x), v(AS(&o->L, amax, v(x), axes, keep)))));
    return AS(&o->L, div_Tensor, v(e), v(AS(&o->L, sum_dim_IntList, v(e), axes, keep)));
}

/* Before opset 13 everything from axis on was one axis. */
bool onnx_softmax(OnnxOp *o)
{
    Value *x, *y;
    int64_t a;
    int axis;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "axis", o->opset >= 13 ? -1 : 1, &a) &&
        op_axis(o, "axis", a, x->rank, &axis));
    Value *flat = x;
    if (o->opset < 13 && axis != x->rank - 1) {
        Expr *rows = ex_int(o->ex, 1), *columns = ex_int(o->ex, 1);
        for (int i = 0; i < axis; i++) rows = ex_mul(o->ex, rows, x->dim[i]);
        for (int i = axis; i < x->rank; i++) columns = ex_mul(o->ex, columns, x->dim[i]);
        TRY(flat = lower_reshape(&o->L, x, 2, (Expr *[]){rows, columns}));
        axis = 1;
    }
    Arg arg[] = {v(flat), arg_int(o->g, axis)};
    bool steps = x->dtype == DT_F16 && x->rank && o->row.aten == OP_softmax_int;
    TRY(y = steps ? softmax_by_steps(o, flat, axis) : lower_as(&o->L, o->row.aten, 2, arg));
    return op_return(o, 0, lower_reshape(&o->L, y, x->rank, x->dim));
}

bool onnx_arg_extreme(OnnxOp *o)
{
    Value *x, *y;
    int64_t a, keep, last;
    int axis;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "axis", 0, &a) && op_axis(o, "axis", a, x->rank, &axis) &&
        op_attr_int(o, "keepdims", 1, &keep) && op_attr_int(o, "select_last_index", 0, &last));
    if (last) TRY(x = AS(&o->L, flip, v(x), arg_ints(o->g, 1, (int64_t[]){axis})));
    Arg arg[] = {v(x), arg_int(o->g, axis), arg_bool(o->g, keep != 0)};
    TRY(y = lower_as(&o->L, o->row.aten, 3, arg));
    if (last)
        y = AS(&o->L, add_Tensor, v(AS(&o->L, neg, v(y))), arg_expr(ex_sub(o->ex, x->dim[axis], ex_int(o->ex, 1))));
    return op_return(o, 0, y);
}

/* CumSum and CumProd; exclusive: without the element itself, which is shifted in as 0 or 1 */
bool onnx_cumulative(OnnxOp *o)
{
    Value *x, *y;
    int64_t exclusive, reverse;
    const int64_t *a;
    int n, axis;
    TRY(op_tensor(o, 0, &x) && op_const_ints(o, 1, &n, &a) && op_attr_int(o, "exclusive", 0, &exclusive) &&
        op_attr_int(o, "reverse", 0, &reverse));
    if (n != 1) return op_fail(o, 1, "%d elements, expected one axis", n);
    TRY(op_axis(o, "axis", a[0], x->rank, &axis));
    bool sums = o->row.aten == OP_cumsum;
    Arg flip = arg_ints(o->g, 1, (int64_t[]){axis});
    Value *z = reverse ? AS(&o->L, flip, v(x), flip) : x;
    if (exclusive && x->rank) {
        int64_t pad[2 * MAX_RANK] = {0};
        int last = 2 * (x->rank - 1 - axis);
        pad[last] = 1;
        pad[last + 1] = -1;
        z = AS(&o->L, constant_pad_nd, v(z), arg_ints(o->g, last + 2, pad),
               dtype_is_float(x->dtype) ? arg_float(o->g, !sums) : arg_int(o->g, !sums));
    }
    y = sums ? AS(&o->L, cumsum, v(z), arg_int(o->g, axis), arg_dtype(x->dtype))
             : AS(&o->L, cumprod, v(z), arg_int(o->g, axis), arg_dtype(x->dtype));
    return op_return(o, 0, reverse ? AS(&o->L, flip, v(y), flip) : y);
}
