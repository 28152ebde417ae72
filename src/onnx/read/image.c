/* ONNX's convolutions, pools and pads. Contract in onnx_impl.h.
 *
 *     Conv(x, w, pads=[1, 1, 1, 1])                        ->  aten.convolution(x, w, padding=[1, 1])
 *     AveragePool(x, auto_pad="SAME_UPPER")                ->  a pad, windows, their sum over their count
 *
 * ATen pads both ends of an axis alike; where ONNX asks for something else the input is padded first, just as far as
 * windows reach.
 */
#include <math.h>
#include <string.h>
#include "onnx/read/read_impl.h"
#include "shape/shape.h"

enum { AXES = 4 };

typedef struct Windows {
    int n; /* axes */
    int64_t kernel[AXES], stride[AXES], dilation[AXES];
    Expr *before[AXES], *after[AXES]; /* what the node asks to pad with */
    Expr *out[AXES];                  /* how many windows */
    Expr *reach[AXES];                /* axis `before` + input + what is after it, as far as the last window reaches */
    bool plain, ceil;                 /* pads are constant and alike at both ends, and the count is ATen's */
} Windows;

static Expr *num(OnnxOp *o, int64_t n) { return ex_int(o->ex, n); }

static bool constant(const Expr *e, int64_t *out)
{
    if (!ex_is_int(e)) return false;
    *out = e->i;
    return true;
}

static bool constants_alike(const Expr *a, const Expr *b) { return ex_is_int(a) && ex_is_int(b) && a->i == b->i; }

/* auto_pad, pads, ceil_mode: sizes before, after, out and reach of each axis */
static bool place_windows(OnnxOp *o, const Value *x, Windows *w)
{
    const char *same;
    int64_t pads[2 * AXES], ceil;
    TRY(op_attr_sizes(o, "strides", w->n, 1, 1, w->stride) && op_attr_sizes(o, "dilations", w->n, 1, 1, w->dilation) &&
        op_attr_sizes(o, "pads", 2 * w->n, 0, 0, pads) && op_attr_string(o, "auto_pad", "NOTSET", &same) &&
        op_attr_int(o, "ceil_mode", 0, &ceil));
    bool lower = !strcmp(same, "SAME_LOWER"), as_given = !strcmp(same, "NOTSET"), valid = !strcmp(same, "VALID");
    if (!lower && !as_given && !valid && strcmp(same, "SAME_UPPER"))
        return fail(o->im->err, E_FORMAT, "attribute 'auto_pad' is '%.40s'", same);
    w->plain = true;
    w->ceil = ceil != 0;
    for (int i = 0; i < w->n; i++) {
        Expr *in = x->dim[2 + i], *step = num(o, w->stride[i]), *one = num(o, 1), *zero = num(o, 0);
        int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1;
        if (lower || (!as_given && !valid)) {
            w->out[i] = ex_floordiv(o->ex, ex_add(o->ex, in, num(o, w->stride[i] - 1)), step);
            Expr *all = ex_max(
                o->ex,
                ex_sub(o->ex, ex_add(o->ex, ex_mul(o->ex, ex_sub(o->ex, w->out[i], one), step), num(o, span)), in),
                zero);
            if (w->stride[i] == 1) all = num(o, span - 1);
            Expr *half = ex_floordiv(o->ex, all, num(o, 2));
            w->before[i] = lower ? ex_sub(o->ex, all, half) : half;
            w->after[i] = ex_sub(o->ex, all, w->before[i]);
        } else {
            w->before[i] = num(o, as_given ? pads[i] : 0);
            w->after[i] = num(o, as_given ? pads[w->n + i] : 0);
            Expr *room = ex_sub(o->ex, ex_add(o->ex, ex_add(o->ex, in, w->before[i]), w->after[i]), num(o, span));
            w->out[i] = ex_add(
                o->ex, ex_floordiv(o->ex, ceil ? ex_add(o->ex, room, num(o, w->stride[i] - 1)) : room, step), one);
            if (ceil) { /* no window begins after the input and what is padded before it */
                Expr *last = ex_mul(o->ex, ex_sub(o->ex, w->out[i], one), step);
                Expr *over = ex_make(o->ex, EX_LE, ex_add(o->ex, in, w->before[i]), last, NULL);
                w->out[i] = ex_is_const(over)
                                ? (over->i ? ex_sub(o->ex, w->out[i], one) : w->out[i])
                                : ex_make(o->ex, EX_WHERE, over, ex_sub(o->ex, w->out[i], one), w->out[i]);
            }
        }
        if (!w->out[i]) return fail(o->im->err, E_LIMIT, "a size expression is too large");
        w->reach[i] = ex_add(o->ex, ex_mul(o->ex, ex_sub(o->ex, w->out[i], one), step), num(o, span));
        w->plain = w->plain && constants_alike(w->before[i], w->after[i]);
    }
    return true;
}

static Arg ints(OnnxOp *o, int n, const int64_t *list) { return arg_ints(o->g, n, list); }

/* before of each axis, where they are constant */
static Arg padding(OnnxOp *o, const Windows *w)
{
    int64_t p[AXES];
    for (int i = 0; i < w->n; i++) p[i] = w->before[i]->i;
    return ints(o, w->n, p);
}

/* The last axes padded; negative numbers cut. Amounts of 0 leave x as it is. */
static Value *padded(OnnxOp *o, Value *x, int n, Expr *const *before, Expr *const *after, Arg fill)
{
    Expr *list[2 * MAX_RANK];
    bool none = true;
    for (int i = 0; i < n; i++) {
        list[2 * (n - 1 - i)] = before[i];
        list[2 * (n - 1 - i) + 1] = after[i];
        none = none && ex_equals_int(before[i], 0) && ex_equals_int(after[i], 0);
    }
    return none ? x : AS(&o->L, constant_pad_nd, v(x), arg_exprs(o->g, 2 * n, list), fill);
}

/* The input as far as windows reach. */
static Value *reached(OnnxOp *o, Value *x, const Windows *w, Arg fill)
{
    Expr *after[AXES];
    for (int i = 0; i < w->n; i++) after[i] = ex_sub(o->ex, ex_sub(o->ex, w->reach[i], x->dim[2 + i]), w->before[i]);
    return padded(o, x, w->n, w->before, after, fill);
}

/* ------------------------------------------------------------------ convolution */

static bool kernel_of(OnnxOp *o, const Value *x, const Value *weight, Windows *w)
{
    int64_t given[AXES];
    w->n = x->rank - 2;
    if (w->n < 1 || w->n > 3)
        return op_unsupported(o, "an input of rank %d; convolutions of 1 to 3 axes are supported", x->rank);
    if (weight->rank != x->rank) return op_fail(o, 1, "rank %d, but input 0 has rank %d", weight->rank, x->rank);
    for (int i = 0; i < w->n; i++)
        if (!constant(weight->dim[2 + i], &w->kernel[i]))
            return op_fail(o, 1, "axis %d of the kernel is not constant", 2 + i);
    for (int i = 0; i < w->n; i++)
        if (w->kernel[i] > MAX_WINDOW)
            return op_fail(o, 1, "axis %d of the kernel has %lld elements, expected at most %d", 2 + i,
                           (long long)w->kernel[i], MAX_WINDOW);
    TRY(op_attr_sizes(o, "kernel_shape", w->n, 0, 0, given));
    for (int i = 0; i < w->n && op_attr(o, "kernel_shape"); i++)
        if (given[i] != w->kernel[i])
            return fail(o->im->err, E_FORMAT, "attribute 'kernel_shape' says %lld for axis %d, the weight has %lld",
                        (long long)given[i], 2 + i, (long long)w->kernel[i]);
    return true;
}

static Value *convolve(OnnxOp *o, Value *x, Value *weight, Value *bias, const Windows *w, int64_t groups)
{
    static const int64_t zeros[AXES];
    if (!w->plain) TRY_NULL(x = padded(o, x, w->n, w->before, w->after, arg_int(o->g, 0)));
    return AS(&o->L, convolution, v(x), v(weight), bias ? v(bias) : arg_none(), ints(o, w->n, w->stride),
              w->plain ? padding(o, w) : ints(o, w->n, zeros), ints(o, w->n, w->dilation), arg_bool(o->g, false),
              ints(o, w->n, zeros), arg_int(o->g, groups));
}

bool onnx_conv(OnnxOp *o)
{
    Value *x, *weight, *bias;
    Windows w;
    int64_t groups;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &weight) && op_optional(o, 2, &bias) &&
        op_attr_int(o, "group", 1, &groups));
    TRY(kernel_of(o, x, weight, &w) && place_windows(o, x, &w));
    return op_return(o, 0, convolve(o, x, weight, bias, &w, groups));
}

/* x - zero point in dtype t; the weight's may be one a channel of the output */
static Value *unshifted(OnnxOp *o, Value *x, Value *zero, bool per_row, DType t)
{
    Expr *dim[MAX_RANK];
    Value *y = lower_cast(&o->L, x, t);
    if (!zero) return y;
    if (zero->rank && per_row) {
        for (int i = 0; i < x->rank; i++) dim[i] = i == 0 ? zero->dim[0] : num(o, 1);
        TRY_NULL(zero = lower_reshape(&o->L, zero, x->rank, dim));
    } else if (zero->rank) TRY_NULL(zero = lower_reshape(&o->L, zero, 0, NULL));
    return AS(&o->L, sub_Tensor, v(y), v(lower_cast(&o->L, zero, t)));
}

/* (x - x0) * (weight - w0) exactly, as int32: two float32 convolutions, or one in float64 */
static Value *whole_convolution(OnnxOp *o, Value *x, Value *weight, Value *x0, Value *w0, const Windows *w,
                                int64_t groups)
{
    Value *high, *low;
    Expr *terms = weight->dim[1];
    for (int i = 0; i < w->n; i++) terms = ex_mul(o->ex, terms, num(o, w->kernel[i]));
    if (op_two_factors(o, unshifted(o, weight, w0, true, DT_F32), terms, &high, &low)) {
        TRY_NULL(x = unshifted(o, x, x0, false, DT_F32));
        high = lower_cast(&o->L, convolve(o, x, high, NULL, w, groups), DT_I32);
        low = lower_cast(&o->L, convolve(o, x, low, NULL, w, groups), DT_I32);
        return AS(&o->L, add_Tensor, v(AS(&o->L, mul_Tensor, v(high), arg_int(o->g, 16))), v(low));
    }
    if (o->im->err->code) return NULL;
    TRY_NULL((x = unshifted(o, x, x0, false, DT_F64)) && (weight = unshifted(o, weight, w0, true, DT_F64)));
    return lower_cast(&o->L, convolve(o, x, weight, NULL, w, groups), DT_I32);
}

/* ConvInteger: (x - x_zero_point) * (w - w_zero_point), summed as int32 */
bool onnx_conv_integer(OnnxOp *o)
{
    Value *x, *weight, *x0, *w0;
    Windows w;
    int64_t groups;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &weight) && op_optional(o, 2, &x0) && op_optional(o, 3, &w0) &&
        op_attr_int(o, "group", 1, &groups));
    TRY(kernel_of(o, x, weight, &w) && place_windows(o, x, &w));
    return op_return(o, 0, whole_convolution(o, x, weight, x0, w0, &w, groups));
}

/* One number a channel of the output, beside rank */
static Value *along_channels(OnnxOp *o, Value *x, int rank)
{
    Expr *dim[MAX_RANK];
    if (!x || !x->rank) return x;
    for (int i = 0; i < rank; i++) dim[i] = i == 1 ? x->dim[0] : num(o, 1);
    return lower_reshape(&o->L, x, rank, dim);
}

/* The convolution between quantizers, as Q/DQ models have it. NULL without an error: it has another form. */
static Value *convolve_between(OnnxOp *o, Value *const *p, const Windows *w, int64_t groups)
{
    Value *x = op_dequantized(o, p, -1), *weight = x ? op_dequantized(o, p + 3, 0) : NULL, *bias = NULL;
    TRY_NULL(weight);
    if (p[8]) {
        Value *scale = AS(&o->L, mul_Tensor, v(p[1]->rank ? lower_reshape(&o->L, p[1], 0, NULL) : p[1]), v(p[4]));
        TRY_NULL(scale);
        bias = AS(&o->L, dequantize_linear, v(p[8]), v(scale), arg_none(), arg_int(o->g, 0));
        TRY_NULL(bias);
    }
    return op_quantized(o, convolve(o, x, weight, bias, w, groups), p[6], p[7]);
}

/* QLinearConv: x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias (int32, of scale x_scale w_scale) */
bool onnx_qlinear_conv(OnnxOp *o)
{
    Value *p[9];
    Windows w;
    int64_t groups;
    for (int i = 0; i < 9; i++) TRY(i == 8 ? op_optional(o, i, &p[i]) : op_tensor(o, i, &p[i]));
    TRY(op_attr_int(o, "group", 1, &groups) && kernel_of(o, p[0], p[3], &w) && place_windows(o, p[0], &w));
    Value *between = convolve_between(o, p, &w, groups);
    if (between) return op_return(o, 0, between);
    TRY(!o->im->err->code);
    Value *sum = whole_convolution(o, p[0], p[3], p[2], p[5], &w, groups);
    if (p[8]) sum = AS(&o->L, add_Tensor, v(sum), v(along_channels(o, p[8], p[0]->rank)));
    Value *scale = AS(&o->L, div_Tensor,
                      v(AS(&o->L, mul_Tensor, v(lower_cast(&o->L, p[1], DT_F64)), v(lower_cast(&o->L, p[4], DT_F64)))),
                      v(lower_cast(&o->L, p[6], DT_F64)));
    Value *y = AS(&o->L, round, v(AS(&o->L, mul_Tensor, v(sum), v(along_channels(o, scale, p[0]->rank)))));
    y = AS(&o->L, add_Tensor, v(y), v(lower_cast(&o->L, lower_reshape(&o->L, p[7], 0, NULL), DT_F64)));
    bool is_signed = p[7]->dtype == DT_I8;
    y = AS(&o->L, clamp, v(y), arg_int(o->g, is_signed ? -128 : 0), arg_int(o->g, is_signed ? 127 : 255));
    return op_return(o, 0, lower_cast(&o->L, y, p[7]->dtype));
}

/* stride (in - 1) + output_padding + the kernel's span, less what `pads` (or output_shape) cuts away at both ends */
bool onnx_conv_transpose(OnnxOp *o)
{
    Value *x, *weight, *bias;
    Windows w;
    int64_t groups, extra[AXES], pads[2 * AXES], shape[AXES];
    const char *same;
    static const int64_t zeros[AXES];
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &weight) && op_optional(o, 2, &bias) &&
        op_attr_int(o, "group", 1, &groups) && kernel_of(o, x, weight, &w) &&
        op_attr_string(o, "auto_pad", "NOTSET", &same) && op_attr_sizes(o, "strides", w.n, 1, 1, w.stride) &&
        op_attr_sizes(o, "dilations", w.n, 1, 1, w.dilation) && op_attr_sizes(o, "pads", 2 * w.n, 0, 0, pads) &&
        op_attr_sizes(o, "output_padding", w.n, 0, 0, extra) && op_attr_sizes(o, "output_shape", w.n, 0, 0, shape));
    bool sized = op_attr(o, "output_shape") != NULL, auto_same = !strncmp(same, "SAME", 4), alike = true;
    for (int i = 0; i < w.n; i++) {
        Expr *full = ex_add(o->ex, ex_mul(o->ex, ex_sub(o->ex, x->dim[2 + i], num(o, 1)), num(o, w.stride[i])),
                            num(o, extra[i] + (w.kernel[i] - 1) * w.dilation[i] + 1));
        if (sized || auto_same) {
            Expr *want = sized ? num(o, shape[i]) : ex_mul(o->ex, x->dim[2 + i], num(o, w.stride[i])),
                 *all = ex_sub(o->ex, full, want);
            if (!sized) all = ex_max(o->ex, all, num(o, 0));
            Expr *half = ex_floordiv(o->ex, all, num(o, 2)), *rest = ex_sub(o->ex, all, half);
            w.before[i] = strcmp(same, "SAME_UPPER") ? rest : half;
            w.after[i] = strcmp(same, "SAME_UPPER") ? half : rest;
        } else {
            w.before[i] = num(o, pads[i]);
            w.after[i] = num(o, pads[w.n + i]);
        }
        alike = alike && constants_alike(w.before[i], w.after[i]) && w.before[i]->i >= 0;
    }
    Value *y = AS(&o->L, convolution, v(x), v(weight), bias ? v(bias) : arg_none(), ints(o, w.n, w.stride),
                  alike ? padding(o, &w) : ints(o, w.n, zeros), ints(o, w.n, w.dilation), arg_bool(o->g, true),
                  ints(o, w.n, extra), arg_int(o->g, groups));
    TRY(y);
    for (int i = 0; i < w.n && !alike; i++) {
        w.before[i] = ex_neg(o->ex, w.before[i]);
        w.after[i] = ex_neg(o->ex, w.after[i]);
    }
    return op_return(o, 0, alike ? y : padded(o, y, w.n, w.before, w.after, arg_int(o->g, 0)));
}

/* ------------------------------------------------------------------ pools */

static bool pool_of(OnnxOp *o, Value **x, Windows *w)
{
    TRY(op_tensor(o, 0, x));
    w->n = (*x)->rank - 2;
    if (w->n < 1 || w->n > 3)
        return op_unsupported(o, "an input of rank %d; pools of 1 to 3 axes are supported", (*x)->rank);
    if (!op_attr(o, "kernel_shape")) return fail(o->im->err, E_FORMAT, "attribute 'kernel_shape' is missing");
    TRY(op_attr_sizes(o, "kernel_shape", w->n, 1, 1, w->kernel) && place_windows(o, *x, w));
    for (int i = 0; i < w->n && w->plain; i++) w->plain = w->before[i]->i <= w->kernel[i] / 2; /* as ATen wants it */
    return true;
}

/* Positions in a (padded) plane of pooled sizes `wide`, shifted by `before`, become positions in the whole input:
 * ((n C + c) D1 + d1) D2 ... */
static Value *positions(OnnxOp *o, const Value *x, const Windows *w, Value *at, Expr *const *wide, bool shifted,
                        bool column_major)
{
    Value *all = NULL, *coordinate[AXES];
    for (int i = w->n - 1; i >= 0; i--) {
        Value *rest = i ? AS(&o->L, div_Tensor_mode, v(at),
                             v(AS(&o->L, full, ints(o, 0, NULL), arg_expr(wide[i]), arg_dtype(DT_I64))),
                             arg_str(o->g, "floor"))
                        : NULL;
        Value *here = i ? AS(&o->L, sub_Tensor, v(at), v(AS(&o->L, mul_Tensor, v(rest), arg_expr(wide[i])))) : at;
        TRY_NULL(coordinate[i] = shifted ? AS(&o->L, sub_Tensor, v(here), arg_expr(w->before[i])) : here);
        if (i) TRY_NULL(at = rest);
    }
    for (int k = 0; k < w->n; k++) {
        int i = column_major ? w->n - 1 - k : k;
        Value *scaled = all ? AS(&o->L, mul_Tensor, v(all), arg_expr(x->dim[2 + i])) : NULL;
        TRY_NULL(all = scaled ? AS(&o->L, add_Tensor, v(scaled), v(coordinate[i])) : coordinate[i]);
    }
    Expr *plane = num(o, 1), *dim[MAX_RANK];
    for (int i = 0; i < w->n; i++) plane = ex_mul(o->ex, plane, x->dim[2 + i]);
    Value *first = AS(&o->L, arange_start_step, arg_int(o->g, 0), arg_expr(ex_mul(o->ex, x->dim[0], x->dim[1])),
                      arg_int(o->g, 1), arg_dtype(DT_I64));
    first = AS(&o->L, mul_Tensor, v(first), arg_expr(plane));
    for (int i = 0; i < x->rank; i++) dim[i] = i < 2 ? x->dim[i] : num(o, 1);
    return AS(&o->L, add_Tensor, v(all), v(lower_reshape(&o->L, first, x->rank, dim)));
}

bool onnx_max_pool(OnnxOp *o)
{
    Value *x;
    Windows w;
    int64_t column_major;
    static const int64_t zeros[AXES];
    static const OpId ops[] = {OP_max_pool1d_with_indices, OP_max_pool2d_with_indices, OP_max_pool3d_with_indices};
    TRY(pool_of(o, &x, &w) && op_attr_int(o, "storage_order", 0, &column_major));
    Value *from = x;
    if (!w.plain)
        TRY(from = reached(o, x, &w,
                           dtype_is_float(x->dtype) ? arg_float(o->g, -INFINITY)
                                                    : arg_int(o->g, (int64_t)dtype_lowest(x->dtype))));
    Arg arg[] = {v(from),
                 ints(o, w.n, w.kernel),
                 ints(o, w.n, w.stride),
                 w.plain ? padding(o, &w) : ints(o, w.n, zeros),
                 ints(o, w.n, w.dilation),
                 arg_bool(o->g, w.plain && w.ceil)};
    Lower L = o->L;
    L.op = op_get(ops[w.n - 1]);
    L.arg = arg;
    TRY(lower_op(&L));
    TRY(op_return(o, 0, L.result.vs[0]));
    return !op_wants(o, 1) ||
           op_return(o, 1, positions(o, x, &w, L.result.vs[1], from->dim + 2, !w.plain, column_major != 0));
}

/* Windows of each axis as last axes: (N, C, out ..., kernel ...) */
static Value *windows(OnnxOp *o, Value *x, const Windows *w)
{
    for (int i = 0; i < w->n; i++) {
        int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1;
        TRY_NULL(x = AS(&o->L, unfold, v(x), arg_int(o->g, 2 + i), arg_int(o->g, span), arg_int(o->g, w->stride[i])));
        if (w->dilation[i] > 1)
            TRY_NULL(x = AS(&o->L, slice_Tensor, v(x), arg_int(o->g, x->rank - 1), arg_int(o->g, 0),
                            arg_int(o->g, span), arg_int(o->g, w->dilation[i])));
    }
    return x;
}

static Value *window_sums(OnnxOp *o, Value *x, const Windows *w)
{
    int64_t axes[AXES];
    for (int i = 0; i < w->n; i++) axes[i] = 2 + w->n + i;
    Value *all = windows(o, x, w);
    return all ? AS(&o->L, sum_dim_IntList, v(all), ints(o, w->n, axes), arg_bool(o->g, false), arg_dtype(x->dtype))
               : NULL;
}

bool onnx_average_pool(OnnxOp *o)
{
    Value *x;
    Windows w;
    int64_t count_pad;
    bool apart = false;
    TRY(pool_of(o, &x, &w) && op_attr_int(o, "count_include_pad", 0, &count_pad));
    for (int i = 0; i < w.n; i++) apart = apart || w.dilation[i] > 1;
    if (w.plain && !apart) {
        static const OpId ops[] = {OP_avg_pool1d, OP_avg_pool2d, OP_avg_pool3d};
        Arg arg[] = {v(x),           ints(o, w.n, w.kernel), ints(o, w.n, w.stride),
                     padding(o, &w), arg_bool(o->g, w.ceil), arg_bool(o->g, count_pad != 0)};
        return op_return(o, 0, lower_as(&o->L, ops[w.n - 1], 6, arg));
    }
    Expr *dim[MAX_RANK], *after[AXES], *none[AXES];
    for (int i = 0; i < x->rank; i++) dim[i] = i < 2 ? num(o, 1) : x->dim[i];
    Value *ones = AS(&o->L, full, arg_exprs(o->g, x->rank, dim), arg_float(o->g, 1), arg_dtype(x->dtype));
    for (int i = 0; i < w.n; i++) none[i] = num(o, 0);
    if (count_pad) TRY(ones = padded(o, ones, w.n, w.before, w.after, arg_float(o->g, 1)));
    for (int i = 0; i < w.n; i++)
        after[i] = ex_sub(o->ex, ex_sub(o->ex, w.reach[i], ones->dim[2 + i]), count_pad ? none[i] : w.before[i]);
    TRY(ones = padded(o, ones, w.n, count_pad ? none : w.before, after, arg_float(o->g, 0)));
    TRY(x = reached(o, x, &w, arg_float(o->g, 0)));
    return op_return(o, 0, AS(&o->L, div_Tensor, v(window_sums(o, x, &w)), v(window_sums(o, ones, &w))));
}

/* (the sum of |x|^p in a window)^(1/p) */
bool onnx_lp_pool(OnnxOp *o)
{
    Value *x;
    Windows w;
    int64_t p;
    TRY(pool_of(o, &x, &w) && op_attr_int(o, "p", 2, &p));
    TRY(x = reached(o, x, &w, arg_float(o->g, 0)));
    x = AS(&o->L, pow_Tensor_Scalar, v(AS(&o->L, abs, v(x))), arg_int(o->g, p));
    TRY(x);
    return op_return(o, 0, AS(&o->L, pow_Tensor_Scalar, v(window_sums(o, x, &w)), arg_float(o->g, 1.0 / (double)p)));
}

/* over everything after the channels */
bool onnx_global_pool(OnnxOp *o)
{
    Value *x;
    int64_t axes[MAX_RANK], p;
    int n = 0;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "p", 2, &p));
    for (int i = 2; i < x->rank; i++) axes[n++] = i;
    if (!n) return op_fail(o, 0, "rank %d, expected at least 3", x->rank);
    Arg over = arg_ints(o->g, n, axes), keep = arg_bool(o->g, true);
    switch ((int)o->row.aten) {
    case OP_amax: return op_return(o, 0, AS(&o->L, amax, v(x), over, keep));
    case OP_mean_dim: return op_return(o, 0, AS(&o->L, mean_dim, v(x), over, keep));
    default: return op_return(o, 0, AS(&o->L, linalg_vector_norm, v(x), arg_int(o->g, p), over, keep));
    }
}

/* ------------------------------------------------------------------ pads */

/* One axis by position: reflect has the period 2 (n - 1), wrap n of what negative amounts leave, edge stays at the
 * ends. */
static Value *repeated(OnnxOp *o, Value *x, int axis, Expr *before, Expr *after, const char *mode)
{
    if (!strcmp(mode, "wrap")) {
        Expr *zero = num(o, 0), *from = ex_max(o->ex, ex_neg(o->ex, before), zero),
             *to = ex_add(o->ex, x->dim[axis], ex_min(o->ex, after, zero));
        if (from != zero || to != x->dim[axis]) TRY_NULL(x = lower_piece(&o->L, x, axis, from, to));
        before = ex_max(o->ex, before, zero), after = ex_max(o->ex, after, zero);
    }
    Expr *n = x->dim[axis], *last = ex_sub(o->ex, n, num(o, 1));
    Value *at = AS(&o->L, arange_start_step, arg_expr(ex_neg(o->ex, before)), arg_expr(ex_add(o->ex, n, after)),
                   arg_int(o->g, 1), arg_dtype(DT_I64));
    if (!strcmp(mode, "edge")) at = AS(&o->L, clamp, v(at), arg_int(o->g, 0), arg_expr(last));
    else if (!strcmp(mode, "wrap")) at = AS(&o->L, remainder_Scalar, v(at), arg_expr(n));
    else {
        Expr *period = ex_max(o->ex, ex_mul(o->ex, last, num(o, 2)), num(o, 1));
        at = AS(&o->L, remainder_Scalar, v(at), arg_expr(period));
        Value *back = AS(&o->L, add_Tensor, v(AS(&o->L, neg, v(at))), arg_expr(period));
        at = AS(&o->L, minimum, v(at), v(back));
    }
    return AS(&o->L, index_select, v(x), arg_int(o->g, axis), v(at));
}

/* A fill that is only known when running: what is padded is marked, and chosen. */
static Value *filled(OnnxOp *o, Value *x, Value *y, int n, Expr *const *before, Expr *const *after, Value *fill)
{
    Value *inside = AS(&o->L, full, arg_exprs(o->g, x->rank, x->dim), arg_bool(o->g, true), arg_dtype(DT_BOOL));
    TRY_NULL(inside = padded(o, inside, n, before, after, arg_bool(o->g, false)));
    return AS(&o->L, where_self, v(inside), v(y), v(lower_reshape(&o->L, fill, 0, NULL)));
}

/* Amounts for all axes, or for `axes`; before opset 11 they and the value were attributes. */
bool onnx_pad(OnnxOp *o)
{
    Value *x, *fill = NULL;
    const char *mode;
    int n, count;
    Expr **e, *before[MAX_RANK], *after[MAX_RANK];
    const int64_t *axes = NULL;
    double attr_value = 0;
    TRY(op_tensor(o, 0, &x) && op_attr_string(o, "mode", "constant", &mode));
    if (o->opset >= 11) TRY(op_sizes(o, 1, &n, &e) && op_optional(o, 2, &fill));
    else {
        const int64_t *given;
        TRY(op_attr_ints(o, "pads", &given, &n) && op_attr_float(o, "value", 0, &attr_value));
        if (!(e = arg_ints(o->g, n, given).es)) return oom(o->im->err);
    }
    count = x->rank;
    if (op_has(o, 3)) TRY(op_const_ints(o, 3, &count, &axes));
    if (n != 2 * count || count > MAX_RANK) return op_fail(o, 1, "%d amounts for %d axes", n, count);
    for (int i = 0; i < x->rank; i++) before[i] = after[i] = num(o, 0);
    for (int i = 0; i < count; i++) {
        int axis;
        TRY(op_axis(o, "axis", axes ? axes[i] : i, x->rank, &axis));
        before[axis] = e[i];
        after[axis] = e[count + i];
    }
    bool other = strcmp(mode, "constant") != 0;
    if (other && strcmp(mode, "reflect") && strcmp(mode, "edge") && strcmp(mode, "wrap"))
        return fail(o->im->err, E_FORMAT, "attribute 'mode' is '%.40s'", mode);
    for (int i = 0; other && i < x->rank; i++)
        if (!ex_equals_int(before[i], 0) || !ex_equals_int(after[i], 0))
            TRY(x = repeated(o, x, i, before[i], after[i], mode));
    if (other) return op_return(o, 0, x);
    const Cell *known = op_known(o, 2);
    bool constant_fill = !fill || (known && known->n == 1 && ex_is_const(known->e[0]));
    Arg value = !fill ? (dtype_is_float(x->dtype) ? arg_float(o->g, attr_value) : arg_int(o->g, (int64_t)attr_value))
                : constant_fill ? arg_expr(known->e[0])
                                : arg_int(o->g, 0);
    Value *y = padded(o, x, x->rank, before, after, value);
    return op_return(o, 0, constant_fill || !y ? y : filled(o, x, y, x->rank, before, after, fill));
}

/* ------------------------------------------------------------------ pixels */

/* DCR: channels are (block, block, C'); CRD: (C', block, block) */
static bool read_blocks(OnnxOp *o, Value **x, int64_t *b, bool *crd)
{
    const char *mode;
    TRY(op_tensor(o, 0, x) && op_attr_int(o, "blocksize", 0, b) && op_attr_string(o, "mode", "DCR", &mode));
    if ((*x)->rank != 4 || *b < 1 || *b > 1 << 20)
        return op_fail(o, 0, "rank %d with blocks of %lld, expected rank 4 and blocks of 1 to 2^20", (*x)->rank,
                       (long long)*b);
    *crd = !strcmp(mode, "CRD");
    return true;
}

bool onnx_depth_to_space(OnnxOp *o)
{
    Value *x;
    int64_t b;
    bool crd;
    TRY(read_blocks(o, &x, &b, &crd));
    if (crd) return op_return(o, 0, AS(&o->L, pixel_shuffle, v(x), arg_int(o->g, b)));
    Expr *f = num(o, b), *c = ex_floordiv(o->ex, x->dim[1], ex_mul(o->ex, f, f)), *h = x->dim[2], *w = x->dim[3];
    Value *y = lower_reshape(&o->L, x, 6, (Expr *[]){x->dim[0], f, f, c, h, w});
    y = y ? lower_permute(&o->L, y, (int[]){0, 3, 4, 1, 5, 2}) : NULL;
    return op_return(o, 0,
                     y ? lower_reshape(&o->L, y, 4, (Expr *[]){x->dim[0], c, ex_mul(o->ex, h, f), ex_mul(o->ex, w, f)})
                       : NULL);
}

bool onnx_space_to_depth(OnnxOp *o)
{
    Value *x;
    int64_t b;
    bool crd;
    TRY(read_blocks(o, &x, &b, &crd));
    if (crd) return op_return(o, 0, AS(&o->L, pixel_unshuffle, v(x), arg_int(o->g, b)));
    Expr *f = num(o, b), *h = ex_floordiv(o->ex, x->dim[2], f), *w = ex_floordiv(o->ex, x->dim[3], f);
    Value *y = lower_reshape(&o->L, x, 6, (Expr *[]){x->dim[0], x->dim[1], h, f, w, f});
    y = y ? lower_permute(&o->L, y, (int[]){0, 3, 5, 1, 2, 4}) : NULL;
    return op_return(
        o, 0,
        y ? lower_reshape(&o->L, y, 4, (Expr *[]){x->dim[0], ex_mul(o->ex, x->dim[1], ex_mul(o->ex, f, f)), h, w})
          : NULL);
}
