/* ONNX's quantized ops, and casts to small types. Contract in onnx_impl.h.
 *
 *     DequantizeLinear(w, scale, zero_point, axis=0)       ->  qkv.dequantize_linear(w, scale, zero_point, 0)
 *     MatMulInteger(a, b, a_zero, b_zero)                  ->  matmuls of the differences in float32, b in two parts,
 *                                                              so that sums are exact
 *
 * QuantizeLinear and DequantizeLinear stay ops of their own, so that ONNX can be written again as it was.
 */
#include <math.h>
#include <string.h>
#include "onnx/read/read_impl.h"

/* ------------------------------------------------------------------ casts */

static bool is_float8(DType t) { return t == DT_F8E4M3 || t == DT_F8E5M2 || t == DT_F8E4M3FNUZ || t == DT_F8E5M2FNUZ; }

/* The exponent of float32, one more where digits follow it: "up"; where they are at least a half: "nearest". */
static Value *to_power_of_two(OnnxOp *o, Value *x, bool saturate, const char *mode)
{
    bool is_signed = true;
    Value *bits = AS(&o->L, view_dtype, v(lower_cast(&o->L, x, DT_F32)), arg_dtype(DT_I32));
    Value *e = AS(&o->L, bitwise_and_Tensor,
                  v(AS(&o->L, bitwise_right_shift_Tensor, v(bits), v(op_number(o, DT_I32, 23)))),
                  v(op_number(o, DT_I32, 255)));
    Value *fraction = AS(&o->L, bitwise_and_Tensor, v(bits), v(op_number(o, DT_I32, 0x7fffff))), *more = NULL;
    if (!strcmp(mode, "up")) more = AS(&o->L, gt_Tensor, v(fraction), v(op_number(o, DT_I32, 0)));
    else if (!strcmp(mode, "nearest")) { /* a half goes up, but from 0 */
        Value *above = AS(&o->L, gt_Tensor, v(fraction), v(op_number(o, DT_I32, 0x400000))),
              *half = AS(&o->L, eq_Tensor, v(fraction), v(op_number(o, DT_I32, 0x400000)));
        more = AS(&o->L, logical_or, v(above),
                  v(AS(&o->L, logical_and, v(half), v(AS(&o->L, gt_Tensor, v(e), v(op_number(o, DT_I32, 0)))))));
    } else is_signed = !strcmp(mode, "down");
    if (!is_signed) {
        fail(o->im->err, E_FORMAT, "attribute 'round_mode' is '%.40s'", mode);
        return NULL;
    }
    if (more) {
        more = AS(&o->L, logical_and, v(more),
                  v(AS(&o->L, lt_Tensor, v(e), v(op_number(o, DT_I32, saturate ? 254 : 255)))));
        e = AS(&o->L, add_Tensor, v(e), v(lower_cast(&o->L, more, DT_I32)));
    }
    return AS(&o->L, view_dtype, v(lower_cast(&o->L, e, DT_U8)), arg_dtype(DT_F8E8M0));
}

/* Floats too large for float8 become the largest unless saturate is 0; integers of few bits keep their last bits. */
Value *op_cast(OnnxOp *o, Value *x, DType to)
{
    int64_t saturate;
    const char *mode;
    if (!op_attr_int(o, "saturate", 1, &saturate) || !op_attr_string(o, "round_mode", "up", &mode)) return NULL;
    if (x->dtype == to) return x;
    if (to == DT_F8E8M0) return to_power_of_two(o, x, saturate != 0, mode);
    if (to == DT_F8E4M3 && !saturate) { /* which ATen always does */
        if (!dtype_is_float(x->dtype) || dtype_size(x->dtype) == 1) TRY_NULL(x = lower_cast(&o->L, x, DT_F32));
        Value *far = AS(&o->L, gt_Tensor, v(AS(&o->L, abs, v(x))), v(op_number(o, x->dtype, 464)));
        x = AS(&o->L, where_self, v(far), v(op_number(o, x->dtype, NAN)), v(x));
    } else if (is_float8(to) && saturate && to != DT_F8E4M3) {
        double most = to == DT_F8E4M3FNUZ ? 240 : 57344;
        if (!dtype_is_float(x->dtype) || dtype_size(x->dtype) == 1) TRY_NULL(x = lower_cast(&o->L, x, DT_F32));
        x = AS(&o->L, clamp, v(x), arg_float(o->g, -most), arg_float(o->g, most));
    }
    if (dtype_is_int(to) && dtype_bits(to) < 8 && dtype_is_float(x->dtype)) x = lower_cast(&o->L, x, DT_I64);
    return x ? lower_cast(&o->L, x, to) : NULL;
}

/* ------------------------------------------------------------------ to few bits and back */

static bool quantizes(DType t) { return is_float8(t) || t == DT_F4E2M1 || (dtype_is_int(t) && dtype_bits(t) <= 16); }

static bool one_scale(const Value *scale)
{
    return !scale->rank || (scale->rank == 1 && ex_equals_int(scale->dim[0], 1));
}

static bool axis_and_block(OnnxOp *o, const Value *x, const Value *scale, int *axis, int64_t *block)
{
    int64_t a;
    TRY(op_attr_int(o, "axis", 1, &a) && op_attr_int(o, "block_size", 0, block));
    *axis = 0;
    return one_scale(scale) || op_axis(o, "axis", a, x->rank, axis);
}

bool onnx_quantize_linear(OnnxOp *o)
{
    Value *x, *scale, *zero;
    int64_t block, saturate;
    int axis;
    DType t, precision;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &scale) && op_optional(o, 2, &zero) &&
        axis_and_block(o, x, scale, &axis, &block) && op_attr_int(o, "saturate", 1, &saturate));
    const OnnxAttr *p = op_attr(o, "precision"), *d = op_attr(o, "output_dtype");
    precision = t = DT_NONE;
    if (p && p->i) TRY(op_attr_dtype(o, "precision", DT_NONE, &precision));
    if (precision != DT_NONE && !dtype_is_float(precision))
        return fail(o->im->err, E_FORMAT, "attribute 'precision' is %s, expected a float type", dtype_name(precision));
    if (d && d->i) TRY(op_attr_dtype(o, "output_dtype", DT_NONE, &t));
    if (zero && t != DT_NONE && t != zero->dtype)
        return op_fail(o, 2, "%s, but attribute 'output_dtype' says %s", dtype_name(zero->dtype), dtype_name(t));
    if (zero) t = zero->dtype;
    if (t == DT_NONE) t = DT_U8;
    if (!quantizes(t)) return op_unsupported(o, "quantizing to %s", dtype_name(t));
    return op_return(o, 0,
                     AS(&o->L, quantize_linear, v(x), v(scale), zero ? v(zero) : arg_none(), arg_dtype(t),
                        arg_int(o->g, axis), arg_int(o->g, block), arg_bool(o->g, saturate || !is_float8(t)),
                        precision == DT_NONE ? arg_none() : arg_dtype(precision)));
}

bool onnx_dequantize_linear(OnnxOp *o)
{
    Value *x, *scale, *zero;
    int64_t block;
    int axis;
    DType t = DT_NONE;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &scale) && op_optional(o, 2, &zero) &&
        axis_and_block(o, x, scale, &axis, &block));
    const OnnxAttr *d = op_attr(o, "output_dtype");
    if (d && d->i) TRY(op_attr_dtype(o, "output_dtype", DT_NONE, &t));
    if (!quantizes(x->dtype) && x->dtype != DT_I32) return op_unsupported(o, "dequantizing %s", dtype_name(x->dtype));
    const bool turned = o->in[0]->transposed && x->def && !block; /* as it was: (N, K) first, then the view */
    if (turned) x = x->def->arg[0].v;
    if (turned && !one_scale(scale)) axis = 1 - axis;
    Value *y = AS(&o->L, dequantize_linear, v(x), v(scale), zero ? v(zero) : arg_none(), arg_int(o->g, axis),
                  arg_int(o->g, block), t == DT_NONE ? arg_none() : arg_dtype(t));
    return op_return(o, 0, turned && y ? lower_permute(&o->L, y, (int[]){1, 0}) : y);
}

/* To uint8 by the range of the whole tensor, 0 within it: the values, their scale, the zero point */
static bool by_range(OnnxOp *o, Value *x, Value **q)
{
    Value *none = op_number(o, x->dtype, 0), *steps = op_number(o, x->dtype, 255);
    Arg all = arg_ints(o->g, 0, NULL);
    Value *high = AS(&o->L, maximum, v(AS(&o->L, amax, v(x), all)), v(none)),
          *low = AS(&o->L, minimum, v(AS(&o->L, amin, v(x), all)), v(none));
    Value *span = AS(&o->L, sub_Tensor, v(high), v(low));
    Value *flat = AS(&o->L, eq_Tensor, v(span), v(none));
    q[1] = AS(&o->L, div_Tensor, v(AS(&o->L, where_self, v(flat), v(op_number(o, x->dtype, 1)), v(span))), v(steps));
    Value *zero = AS(&o->L, sub_Tensor, v(none), v(AS(&o->L, div_Tensor, v(low), v(q[1]))));
    q[2] = lower_cast(&o->L, AS(&o->L, round, v(AS(&o->L, clamp, v(zero), arg_int(o->g, 0), arg_int(o->g, 255)))),
                      DT_U8);
    return (q[0] = AS(&o->L, quantize_linear, v(x), v(q[1]), v(q[2]), arg_dtype(DT_U8))) != NULL;
}

bool onnx_dynamic_quantize_linear(OnnxOp *o)
{
    Value *x, *q[3];
    TRY(op_tensor(o, 0, &x) && by_range(o, x, q));
    return op_return(o, 0, q[0]) && op_return(o, 1, q[1]) && op_return(o, 2, q[2]);
}

/* ------------------------------------------------------------------ integer products */

bool op_two_factors(OnnxOp *o, Value *w, const Expr *terms, Value **high, Value **low)
{
    if (!ex_is_int(terms) || terms->i > (1 << 24) / (255 * 16) || !w) return false;
    *high = AS(&o->L, floor, v(AS(&o->L, mul_Tensor, v(w), arg_float(o->g, 1.0 / 16))));
    *low = AS(&o->L, sub_Tensor, v(w), v(AS(&o->L, mul_Tensor, v(*high), arg_float(o->g, 16))));
    return *high && *low;
}

/* x - zero in dtype t; a zero point a row of A (its last but one axis), or a column of B. */
static Value *unshifted(OnnxOp *o, Value *x, Value *zero, bool rows, DType t)
{
    Value *y = lower_cast(&o->L, x, t);
    if (!zero) return y;
    Value *z = lower_cast(&o->L, zero, t);
    if (z && z->rank == 1 && rows && x->rank > 1 && !ex_equals_int(z->dim[0], 1))
        z = lower_reshape(&o->L, z, 2, (Expr *[]){z->dim[0], ex_int(o->ex, 1)});
    return z ? AS(&o->L, sub_Tensor, v(y), v(z)) : NULL;
}

/* The exact product as int32: two float32 products, or one in float64 */
static Value *whole_product(OnnxOp *o, Value *a, Value *b, Value *a0, Value *b0)
{
    Value *high = NULL, *low = NULL;
    const Expr *terms = a->rank ? a->dim[a->rank - 1] : NULL;
    bool bytes = dtype_size(a->dtype) == 1 && dtype_size(b->dtype) == 1 && !dtype_is_float(a->dtype) &&
                 !dtype_is_float(b->dtype);
    if (bytes && terms && op_two_factors(o, unshifted(o, b, b0, false, DT_F32), terms, &high, &low)) {
        Value *x = unshifted(o, a, a0, true, DT_F32);
        high = lower_cast(&o->L, AS(&o->L, matmul, v(x), v(high)), DT_I32);
        low = lower_cast(&o->L, AS(&o->L, matmul, v(x), v(low)), DT_I32);
        return AS(&o->L, add_Tensor, v(AS(&o->L, mul_Tensor, v(high), arg_int(o->g, 16))), v(low));
    }
    if (o->im->err->code) return NULL;
    return lower_cast(
        &o->L, AS(&o->L, matmul, v(unshifted(o, a, a0, true, DT_F64)), v(unshifted(o, b, b0, false, DT_F64))), DT_I32);
}

bool onnx_matmul_integer(OnnxOp *o)
{
    Value *a, *b, *a0, *b0;
    TRY(op_tensor(o, 0, &a) && op_tensor(o, 1, &b) && op_optional(o, 2, &a0) && op_optional(o, 3, &b0));
    Value *y = whole_product(o, a, b, a0, b0);
    return op_return(o, 0, y) && op_remember_product(o, y, a, a0, b, b0);
}

static bool one_number(const Value *x)
{
    for (int i = 0; i < x->rank; i++)
        if (!ex_equals_int(x->dim[i], 1)) return false;
    return true;
}

static bool bytes(DType t) { return t == DT_I8 || t == DT_U8; }

Value *op_dequantized(OnnxOp *o, Value *const *p, int axis)
{
    const Value *x = p[0], *scale = p[1], *zero = p[2];
    bool one = one_number(scale), vector = scale->rank == 1 && axis >= 0 && axis < x->rank;
    if (!bytes(x->dtype) || zero->dtype != x->dtype || scale->dtype != DT_F32 || (!one && !vector) ||
        one != one_number(zero) || (!one && zero->rank != 1))
        return NULL;
    return AS(&o->L, dequantize_linear, v(p[0]), v(p[1]), v(p[2]), arg_int(o->g, one ? 0 : axis));
}

Value *op_quantized(OnnxOp *o, Value *y, Value *scale, Value *zero)
{
    if (!y || scale->dtype != DT_F32 || !bytes(zero->dtype) || !one_number(scale) || !one_number(zero)) return NULL;
    return AS(&o->L, quantize_linear, v(y), v(scale), v(zero), arg_dtype(zero->dtype), arg_int(o->g, 0));
}

/* The product between quantizers, as Q/DQ models have it. NULL without an error: it has another form. */
static Value *between_quantizers(OnnxOp *o, Value *const *p)
{
    Value *a = op_dequantized(o, p, p[0]->rank - 2), *b = a ? op_dequantized(o, p + 3, p[3]->rank - 1) : NULL;
    return b ? op_quantized(o, AS(&o->L, matmul, v(a), v(b)), p[6], p[7]) : NULL;
}

/* a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero: round(product * (a_scale * b_scale / y_scale) + y_zero),
 * saturated */
bool onnx_qlinear_matmul(OnnxOp *o)
{
    Value *p[8];
    for (int i = 0; i < 8; i++) TRY(op_tensor(o, i, &p[i]));
    bool floats = is_float8(p[0]->dtype);
    Value *between = floats ? NULL : between_quantizers(o, p);
    if (between) return op_return(o, 0, between);
    TRY(!o->im->err->code);
    Value *product = floats ? AS(&o->L, matmul, v(unshifted(o, p[0], p[2], true, DT_F64)),
                                 v(unshifted(o, p[3], p[5], false, DT_F64)))
                            : whole_product(o, p[0], p[3], p[2], p[5]);
    TRY(product && (product = lower_cast(&o->L, product, DT_F64)));
    Value *a = p[1];
    if (a->rank == 1 && p[0]->rank > 1 && !ex_equals_int(a->dim[0], 1))
        TRY(a = lower_reshape(&o->L, a, 2, (Expr *[]){a->dim[0], ex_int(o->ex, 1)}));
    Value *scale = AS(&o->L, div_Tensor, v(AS(&o->L, mul_Tensor, v(a), v(p[4]))),
                      v(p[6])); /* rounded to the scales' dtype */
    Value *y = AS(&o->L, mul_Tensor, v(product), v(lower_cast(&o->L, scale, DT_F64)));
    DType t = p[7]->dtype;
    if (!quantizes(t) || (!is_float8(t) && dtype_bits(t) != 8))
        return op_unsupported(o, "a result of %s", dtype_name(t));
    y = AS(&o->L, add_Tensor, v(y), v(lower_cast(&o->L, p[7], DT_F64)));
    if (is_float8(t)) return op_return(o, 0, op_cast(o, y, t));
    y = AS(&o->L, clamp, v(AS(&o->L, round, v(y))), arg_int(o->g, t == DT_I8 ? -128 : 0),
           arg_int(o->g, t == DT_I8 ? 127 : 255));
    return op_return(o, 0, y ? lower_cast(&o->L, lower_reshape(&o->L, y, product->rank, product->dim), t) : NULL);
}

/* ------------------------------------------------------------------ what ONNX Runtime's quantizer writes
 * (com.microsoft) */

/* Input i with its scale and zero point at i + 1 and i + 2, as float32 */
static Value *read_quantized(OnnxOp *o, int i)
{
    Value *x, *scale, *zero;
    if (!op_tensor(o, i, &x) || !op_tensor(o, i + 1, &scale) || !op_optional(o, i + 2, &zero)) return NULL;
    return AS(&o->L, dequantize_linear, v(x), v(scale), zero ? v(zero) : arg_none(), arg_int(o->g, 0));
}

/* By the scale and zero point at i and i + 1; without a zero point the dtype of input 0 */
static bool give_quantized(OnnxOp *o, Value *y, int i)
{
    Value *scale, *zero;
    TRY(y && op_tensor(o, i, &scale) && op_optional(o, i + 1, &zero));
    DType t = zero ? zero->dtype : cell_dtype(o->in[0]);
    return op_return(
        o, 0, AS(&o->L, quantize_linear, v(y), v(scale), zero ? v(zero) : arg_none(), arg_dtype(t), arg_int(o->g, 0)));
}

/* QLinearAdd, QLinearMul */
bool onnx_qlinear_binary(OnnxOp *o)
{
    Value *a = read_quantized(o, 0), *b = a ? read_quantized(o, 3) : NULL;
    TRY(b);
    return give_quantized(
        o, o->row.aten == OP_add_Tensor ? AS(&o->L, add_Tensor, v(a), v(b)) : AS(&o->L, mul_Tensor, v(a), v(b)), 6);
}

/* QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax */
bool onnx_qlinear_unary(OnnxOp *o)
{
    Value *x = read_quantized(o, 0);
    double alpha;
    int64_t a, opset;
    int axis;
    TRY(x && op_attr_float(o, "alpha", 0.01, &alpha) && op_attr_int(o, "opset", 13, &opset) &&
        op_attr_int(o, "axis", -1, &a));
    switch ((int)o->row.aten) {
    case OP_sigmoid: return give_quantized(o, AS(&o->L, sigmoid, v(x)), 3);
    case OP_leaky_relu: return give_quantized(o, AS(&o->L, leaky_relu, v(x), arg_float(o->g, alpha)), 3);
    default:
        TRY(op_axis(o, "axis", a, x->rank, &axis));
        if (opset < 13 && axis != x->rank - 1)
            return op_unsupported(o, "a softmax over several axes, as opsets before 13 have it");
        return give_quantized(o, AS(&o->L, softmax_int, v(x), arg_int(o->g, axis)), 3);
    }
}

/* y_scale, y_zero, then x, scale, zero for each part */
bool onnx_qlinear_concat(OnnxOp *o)
{
    int n = (o->node->ninput - 2) / 3, axis;
    int64_t a;
    Value **all = arena_array(o->g->arena, Value *, n > 0 ? n : 1), *scale, *zero;
    if (!all) return oom(o->im->err);
    if (n < 1 || o->node->ninput != 2 + 3 * n)
        return fail(o->im->err, E_FORMAT, "%d inputs, expected a scale, a zero point and three a part",
                    o->node->ninput);
    for (int i = 0; i < n; i++) TRY(all[i] = read_quantized(o, 2 + 3 * i));
    TRY(op_tensor(o, 0, &scale) && op_tensor(o, 1, &zero) && op_attr_int(o, "axis", 0, &a) &&
        op_axis(o, "axis", a, all[0]->rank, &axis));
    Value *y = AS(&o->L, cat, arg_values(o->g, n, all), arg_int(o->g, axis));
    return op_return(o, 0, AS(&o->L, quantize_linear, v(y), v(scale), v(zero), arg_dtype(zero->dtype)));
}

/* The floats that they stand for multiplied, where runs multiply the integers. NULL without an error: they do not. */
static Value *product_in_integers(OnnxOp *o, Value *a, Value *b, Value *a_scale, Value *b_scale, Value *a0, Value *b0)
{
    if (!bytes(a->dtype) || !one_number(a_scale) || (a0 && !one_number(a0)) || a_scale->dtype != DT_F32 ||
        !op_symmetric_columns(o, b, b_scale, b0))
        return NULL;
    Value *x = AS(&o->L, dequantize_linear, v(a), v(a_scale), a0 ? v(a0) : arg_none(), arg_int(o->g, 0)),
          *w = AS(&o->L, dequantize_linear, v(b), v(b_scale), arg_none(), arg_int(o->g, b_scale->rank ? 1 : 0));
    return AS(&o->L, matmul, v(x), v(w));
}

/* a b a_scale b_scale + bias */
static Value *scaled_product(OnnxOp *o, Value *a, Value *b, Value *a_scale, Value *b_scale, Value *a0, Value *b0,
                             Value *bias)
{
    Value *between = product_in_integers(o, a, b, a_scale, b_scale, a0, b0);
    if (between || o->im->err->code)
        return between && bias ? AS(&o->L, add_Tensor, v(between), v(bias)) : between;
    Value *y = lower_cast(&o->L, whole_product(o, a, b, a0, b0), DT_F32);
    y = AS(&o->L, mul_Tensor, v(y), v(AS(&o->L, mul_Tensor, v(a_scale), v(b_scale))));
    return bias ? AS(&o->L, add_Tensor, v(y), v(bias)) : y;
}

bool onnx_matmul_integer_to_float(OnnxOp *o)
{
    Value *p[7];
    for (int i = 0; i < 7; i++) TRY(i < 4 ? op_tensor(o, i, &p[i]) : op_optional(o, i, &p[i]));
    return op_return(o, 0, scaled_product(o, p[0], p[1], p[2], p[3], p[4], p[5], p[6]));
}

/* A as DynamicQuantizeLinear makes it: A, B, b_scale, b_zero, bias */
bool onnx_dynamic_quantize_matmul(OnnxOp *o)
{
    Value *a, *b, *b_scale, *b0, *bias, *q[3];
    TRY(op_tensor(o, 0, &a) && op_tensor(o, 1, &b) && op_tensor(o, 2, &b_scale) && op_optional(o, 3, &b0) &&
        op_optional(o, 4, &bias));
    TRY(by_range(o, a, q));
    return op_return(o, 0, scaled_product(o, q[0], b, q[1], b_scale, q[2], b0, bias));
}

/* A, a_scale, a_zero, B, b_scale, b_zero, C (int32, of scale a_scale b_scale), y_scale, y_zero:
 * float32 without the last two */
bool onnx_qgemm(OnnxOp *o)
{
    Value *p[9];
    int64_t ta, tb;
    double alpha;
    for (int i = 0; i < 9; i++) TRY(i < 6 ? op_tensor(o, i, &p[i]) : op_optional(o, i, &p[i]));
    TRY(op_attr_int(o, "transA", 0, &ta) && op_attr_int(o, "transB", 0, &tb) && op_attr_float(o, "alpha", 1, &alpha));
    if (p[0]->rank != 2 || p[3]->rank != 2)
        return op_fail(o, 0, "ranks %d and %d, expected matrices", p[0]->rank, p[3]->rank);
    if (ta) TRY(p[0] = lower_permute(&o->L, p[0], (int[]){1, 0}));
    if (tb) TRY(p[3] = lower_permute(&o->L, p[3], (int[]){1, 0}));
    Value *by = AS(&o->L, mul_Tensor, v(p[1]), v(p[4])),
          *y = alpha == 1 ? product_in_integers(o, p[0], p[3], p[1], p[4], p[2], p[5]) : NULL;
    TRY(by && !o->im->err->code);
    if (y && p[6]) {
        Value *bias = AS(&o->L, dequantize_linear, v(p[6]), v(by), arg_none(), arg_int(o->g, p[6]->rank - 1));
        y = AS(&o->L, add_Tensor, v(y), v(bias));
    } else if (!y) {
        Value *sum = whole_product(o, p[0], p[3], p[2], p[5]);
        if (p[6]) sum = AS(&o->L, add_Tensor, v(sum), v(p[6]));
        if (alpha != 1) by = AS(&o->L, mul_Tensor, v(by), arg_float(o->g, alpha));
        y = AS(&o->L, mul_Tensor, v(lower_cast(&o->L, sum, DT_F32)), v(by));
    }
    return op_has(o, 7) ? give_quantized(o, y, 7) : op_return(o, 0, y);
}
