/* ONNX's pointwise ops. Contract in onnx_impl.h; formulas: ONNX's operator schemas (onnx/docs/Operators.md). */
#include <string.h>
#include "onnx/read/read_impl.h"

bool onnx_unary(OnnxOp *o)
{
    Value *x;
    Arg arg;
    TRY(op_tensor(o, 0, &x));
    arg = arg_value(x);
    return op_return(o, 0, lower_as(&o->L, o->row.aten, 1, &arg));
}

static bool two(OnnxOp *o, Value **a, Value **b)
{
    TRY(op_tensor(o, 0, a) && op_tensor(o, 1, b));
    if (o->opset < 7 && op_attr(o, "axis"))
        return op_unsupported(o, "broadcasting along attribute 'axis', as opsets before 7 have it");
    return (*a)->dtype == (*b)->dtype ||
           op_fail(o, 1, "%s, but input 0 is %s", dtype_name((*b)->dtype), dtype_name((*a)->dtype));
}

bool onnx_binary(OnnxOp *o)
{
    Value *a, *b;
    TRY(two(o, &a, &b));
    Arg arg[] = {v(a), v(b)};
    return op_return(o, 0, lower_as(&o->L, o->row.aten, 2, arg));
}

/* Integers: rounded toward zero, as C does. */
bool onnx_div(OnnxOp *o)
{
    Value *a, *b;
    TRY(two(o, &a, &b));
    if (dtype_is_float(a->dtype)) return op_return(o, 0, AS(&o->L, div_Tensor, v(a), v(b)));
    return op_return(o, 0, AS(&o->L, div_Tensor_mode, v(a), v(b), arg_str(o->g, "trunc")));
}

/* fmod 0: the sign of the divisor (Python's %), 1: of the dividend (C's fmod) */
bool onnx_mod(OnnxOp *o)
{
    Value *a, *b;
    int64_t fmod;
    TRY(two(o, &a, &b) && op_attr_int(o, "fmod", 0, &fmod));
    return op_return(o, 0, fmod ? AS(&o->L, fmod_Tensor, v(a), v(b)) : AS(&o->L, remainder_Tensor, v(a), v(b)));
}

/* The result has the dtype of the base. */
bool onnx_pow(OnnxOp *o)
{
    Value *a, *b, *y;
    TRY(op_tensor(o, 0, &a) && op_tensor(o, 1, &b));
    if (dtype_is_float(a->dtype)) y = AS(&o->L, pow_Tensor_Tensor, v(a), v(lower_cast(&o->L, b, a->dtype)));
    else if (dtype_is_float(b->dtype))
        y = AS(&o->L, pow_Tensor_Tensor, v(lower_cast(&o->L, a, DT_F64)), v(lower_cast(&o->L, b, DT_F64)));
    else y = AS(&o->L, pow_Tensor_Tensor, v(a), v(lower_cast(&o->L, b, a->dtype)));
    return op_return(o, 0, lower_cast(&o->L, y, a->dtype));
}

bool onnx_prelu(OnnxOp *o)
{
    Value *x, *slope;
    TRY(two(o, &x, &slope));
    Value *zero = op_number(o, x->dtype, 0);
    return op_return(
        o, 0,
        AS(&o->L, where_self, v(AS(&o->L, lt_Tensor, v(x), v(zero))), v(AS(&o->L, mul_Tensor, v(x), v(slope))), v(x)));
}

/* Max, Min, Sum, Mean of any number of inputs */
bool onnx_variadic(OnnxOp *o)
{
    Value *all, *x;
    TRY(op_tensor(o, 0, &all));
    bool mean = o->row.aten == OP_mean_dim;
    for (int i = 1; i < o->node->ninput; i++) {
        TRY(op_tensor(o, i, &x));
        if (x->dtype != all->dtype)
            return op_fail(o, i, "%s, but input 0 is %s", dtype_name(x->dtype), dtype_name(all->dtype));
        Arg arg[] = {v(all), v(x)};
        TRY(all = lower_as(&o->L, mean ? OP_add_Tensor : o->row.aten, 2, arg));
    }
    if (mean) all = AS(&o->L, div_Tensor, v(all), v(op_number(o, all->dtype, o->node->ninput)));
    return op_return(o, 0, all);
}

/* Cast, CastLike. To bool: not 0; floats to integers: toward zero. */
bool onnx_cast(OnnxOp *o)
{
    Value *x;
    DType to;
    TRY(op_tensor(o, 0, &x));
    if (!strcmp(o->node->op, "CastLike")) {
        if (!op_has(o, 1)) return op_fail(o, 1, "left out");
        to = cell_dtype(o->in[1]);
    } else TRY(op_attr_dtype(o, "to", DT_NONE, &to));
    if (to == DT_NONE) return fail(o->im->err, E_FORMAT, "attribute 'to' is missing");
    return op_return(o, 0, op_cast(o, x, to));
}

/* min(max(x, low), high): a low above high gives high. */
bool onnx_clip(OnnxOp *o)
{
    Value *x, *low = NULL, *high = NULL;
    TRY(op_tensor(o, 0, &x));
    if (o->opset >= 11) TRY(op_optional(o, 1, &low) && op_optional(o, 2, &high));
    else {
        double a, b;
        TRY(op_attr_float(o, "min", 0, &a) && op_attr_float(o, "max", 0, &b));
        if (op_attr(o, "min")) TRY(low = op_number(o, x->dtype, a));
        if (op_attr(o, "max")) TRY(high = op_number(o, x->dtype, b));
    }
    Value *y = x;
    if (low) TRY(y = AS(&o->L, maximum, v(y), v(low)));
    if (high) TRY(y = AS(&o->L, minimum, v(y), v(high)));
    return op_return(o, 0, y);
}

bool onnx_where(OnnxOp *o)
{
    Value *c, *a, *b;
    TRY(op_tensor(o, 0, &c) && op_tensor(o, 1, &a) && op_tensor(o, 2, &b));
    if (c->dtype != DT_BOOL) return op_fail(o, 0, "%s, expected bool", dtype_name(c->dtype));
    if (a->dtype != b->dtype) return op_fail(o, 2, "%s, but input 1 is %s", dtype_name(b->dtype), dtype_name(a->dtype));
    return op_return(o, 0, AS(&o->L, where_self, v(c), v(a), v(b)));
}

bool onnx_gelu(OnnxOp *o)
{
    Value *x;
    const char *how;
    TRY(op_tensor(o, 0, &x) && op_attr_string(o, "approximate", "none", &how));
    if (strcmp(how, "none") && strcmp(how, "tanh"))
        return fail(o->im->err, E_FORMAT, "attribute 'approximate' is '%.40s', expected 'none' or 'tanh'", how);
    return op_return(o, 0, AS(&o->L, gelu, v(x), arg_str(o->g, how)));
}

/* Elu, Celu, Selu, LeakyRelu: their defaults are ONNX's */
bool onnx_elu(OnnxOp *o)
{
    Value *x;
    double alpha, gamma;
    TRY(op_tensor(o, 0, &x));
    switch ((int)o->row.aten) {
    case OP_leaky_relu:
        TRY(op_attr_float(o, "alpha", 0.01, &alpha));
        return op_return(o, 0, AS(&o->L, leaky_relu, v(x), arg_float(o->g, alpha)));
    case OP_celu:
        TRY(op_attr_float(o, "alpha", 1, &alpha));
        return op_return(o, 0, AS(&o->L, celu, v(x), arg_float(o->g, alpha)));
    case OP_selu:
        TRY(op_attr_float(o, "alpha", 1.67326319217681884765625, &alpha) &&
            op_attr_float(o, "gamma", 1.05070102214813232421875, &gamma));
        return op_return(o, 0, AS(&o->L, elu, v(x), arg_float(o->g, alpha), arg_float(o->g, gamma)));
    default:
        TRY(op_attr_float(o, "alpha", 1, &alpha));
        return op_return(o, 0, AS(&o->L, elu, v(x), arg_float(o->g, alpha)));
    }
}

/* max(0, min(1, alpha x + beta)) */
bool onnx_hard_sigmoid(OnnxOp *o)
{
    Value *x;
    double alpha, beta;
    TRY(op_tensor(o, 0, &x) && op_attr_float(o, "alpha", 0.2, &alpha) && op_attr_float(o, "beta", 0.5, &beta));
    Value *y = AS(&o->L, add_Tensor, v(AS(&o->L, mul_Tensor, v(x), arg_float(o->g, alpha))), arg_float(o->g, beta));
    return op_return(o, 0, AS(&o->L, clamp, v(y), arg_float(o->g, 0), arg_float(o->g, 1)));
}

bool onnx_thresholded_relu(OnnxOp *o)
{
    Value *x;
    double alpha;
    TRY(op_tensor(o, 0, &x) && op_attr_float(o, "alpha", 1, &alpha));
    Value *above = AS(&o->L, gt_Tensor, v(x), v(op_number(o, x->dtype, alpha)));
    return op_return(o, 0, AS(&o->L, where_self, v(above), v(x), v(op_number(o, x->dtype, 0))));
}

/* x sigmoid(alpha x) */
bool onnx_swish(OnnxOp *o)
{
    Value *x;
    double alpha;
    TRY(op_tensor(o, 0, &x) && op_attr_float(o, "alpha", 1, &alpha));
    if (alpha == 1) return op_return(o, 0, AS(&o->L, silu, v(x)));
    return op_return(
        o, 0,
        AS(&o->L, mul_Tensor, v(x), v(AS(&o->L, sigmoid, v(AS(&o->L, mul_Tensor, v(x), arg_float(o->g, alpha)))))));
}

bool onnx_softplus(OnnxOp *o)
{
    Value *x; /* log(1 + exp(x)), which ATen's threshold of 20 would cut short in float64 */
    TRY(op_tensor(o, 0, &x));
    return op_return(o, 0, AS(&o->L, logaddexp, v(x), v(op_number(o, x->dtype, 0))));
}

/* x / (1 + |x|) */
bool onnx_softsign(OnnxOp *o)
{
    Value *x;
    TRY(op_tensor(o, 0, &x));
    return op_return(
        o, 0, AS(&o->L, div_Tensor, v(x), v(AS(&o->L, add_Tensor, v(AS(&o->L, abs, v(x))), arg_float(o->g, 1)))));
}

bool onnx_isinf(OnnxOp *o)
{
    Value *x;
    int64_t low, high;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "detect_negative", 1, &low) &&
        op_attr_int(o, "detect_positive", 1, &high));
    if (low && high) return op_return(o, 0, AS(&o->L, isinf, v(x)));
    if (low) return op_return(o, 0, AS(&o->L, isneginf, v(x)));
    if (high) return op_return(o, 0, AS(&o->L, isposinf, v(x)));
    return op_return(o, 0,
                     AS(&o->L, full, arg_exprs(o->g, x->rank, x->dim), arg_bool(o->g, false), arg_dtype(DT_BOOL)));
}

bool onnx_identity(OnnxOp *o)
{
    if (!op_has(o, 0)) return op_fail(o, 0, "left out");
    return op_return_cell(o, 0, o->in[0]);
}

bool onnx_bit_shift(OnnxOp *o)
{
    Value *a, *b;
    const char *direction;
    TRY(two(o, &a, &b) && op_attr_string(o, "direction", "", &direction));
    bool left = !strcmp(direction, "LEFT");
    if (!left && strcmp(direction, "RIGHT"))
        return fail(o->im->err, E_FORMAT, "attribute 'direction' is '%.40s', expected LEFT or RIGHT", direction);
    return op_return(o, 0,
                     left ? AS(&o->L, bitwise_left_shift_Tensor, v(a), v(b))
                          : AS(&o->L, bitwise_right_shift_Tensor, v(a), v(b)));
}

/* x < -lambd: x + bias; x > lambd: x - bias; 0 between */
bool onnx_shrink(OnnxOp *o)
{
    Value *x;
    double bias, lambd;
    TRY(op_tensor(o, 0, &x) && op_attr_float(o, "bias", 0, &bias) && op_attr_float(o, "lambd", 0.5, &lambd));
    Value *low = AS(&o->L, lt_Tensor, v(x), v(op_number(o, x->dtype, -lambd))),
          *high = AS(&o->L, gt_Tensor, v(x), v(op_number(o, x->dtype, lambd)));
    Value *off = op_number(o, x->dtype, bias),
          *inner = AS(&o->L, where_self, v(high), v(AS(&o->L, sub_Tensor, v(x), v(off))), v(op_number(o, x->dtype, 0)));
    return op_return(o, 0, AS(&o->L, where_self, v(low), v(AS(&o->L, add_Tensor, v(x), v(off))), v(inner)));
}

/* a sigmoid(alpha a) b */
bool onnx_swiglu(OnnxOp *o)
{
    Value *a, *b;
    double alpha;
    TRY(two(o, &a, &b) && op_attr_float(o, "alpha", 1, &alpha));
    Value *gate = alpha == 1 ? AS(&o->L, silu, v(a))
                             : AS(&o->L, mul_Tensor, v(a),
                                  v(AS(&o->L, sigmoid, v(AS(&o->L, mul_Tensor, v(a), arg_float(o->g, alpha))))));
    return op_return(o, 0, AS(&o->L, mul_Tensor, v(gate), v(b)));
}

/* The same bytes as another dtype of that size */
bool onnx_bit_cast(OnnxOp *o)
{
    Value *x;
    DType to;
    TRY(op_tensor(o, 0, &x) && op_attr_dtype(o, "to", DT_NONE, &to));
    if (to == DT_NONE) return fail(o->im->err, E_FORMAT, "attribute 'to' is missing");
    if (dtype_bits(to) != dtype_bits(x->dtype) || dtype_bits(to) < 8)
        return op_unsupported(o, "from %s to %s", dtype_name(x->dtype), dtype_name(to));
    return op_return(o, 0, AS(&o->L, view_dtype, v(x), arg_dtype(to)));
}
