/* ONNX's norms over channels, groups and instances. Contract in onnx_impl.h. Formulas: ONNX's operator schemas.
 *
 *     GroupNormalization(x, scale, bias, num_groups=4)     ->  aten.group_norm(x, 4, scale, bias, eps)
 *
 * What has no op in ATen is written with means and products, in float32 where ONNX says so (stash_type).
 */
#include "onnx/read/read_impl.h"
#include "shape/shape.h"

/* A vector of channels as (1, C, 1, 1 ...) for rank. */
static Value *per_channel(OnnxOp *o, Value *w, int rank)
{
    Expr *dim[MAX_RANK];
    if (!w || w->rank != 1) return w;
    for (int i = 0; i < rank; i++) dim[i] = i == 1 ? w->dim[0] : ex_int(o->ex, 1);
    return lower_reshape(&o->L, w, rank, dim);
}

/* (x - mean) / sqrt(mean((x - mean)^2) + eps) over axes; *mean and *variance keep the axes */
static Value *standardized(OnnxOp *o, Value *x, const Arg *axes, double eps, Value **mean, Value **variance)
{
    Arg keep = arg_bool(o->g, true);
    *mean = AS(&o->L, mean_dim, v(x), *axes, keep);
    Value *centred = AS(&o->L, sub_Tensor, v(x), v(*mean));
    *variance = AS(&o->L, mean_dim, v(AS(&o->L, mul_Tensor, v(centred), v(centred))), *axes, keep);
    return AS(&o->L, mul_Tensor, v(centred),
              v(AS(&o->L, rsqrt, v(AS(&o->L, add_Tensor, v(*variance), arg_float(o->g, eps))))));
}

/* x / sqrt(mean(x^2) + eps) * w over the axes from `axis` on, the mean in stash_type */
bool onnx_rms_norm(OnnxOp *o)
{
    Value *x, *w;
    int64_t a, axes[MAX_RANK];
    double eps;
    int axis;
    DType stash;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &w) && op_attr_int(o, "axis", -1, &a) &&
        op_axis(o, "axis", a, x->rank, &axis) && op_attr_float(o, "epsilon", 1e-5, &eps) &&
        op_attr_dtype(o, "stash_type", DT_F32, &stash));
    int n = x->rank - axis;
    bool plain = w->rank == n && w->dtype == x->dtype &&
                 (stash == x->dtype || (stash == DT_F32 && dtype_size(x->dtype) == 2));
    for (int i = 0; plain && i < n; i++) plain = w->dim[i] == x->dim[axis + i];
    if (plain && stash == x->dtype)
        return op_return(o, 0,
                         AS(&o->L, rms_norm, v(x), arg_exprs(o->g, n, x->dim + axis), v(w), arg_float(o->g, eps)));
    for (int i = 0; i < n; i++) axes[i] = axis + i;
    Value *wide = lower_cast(&o->L, x, stash);
    Value *square = AS(&o->L, mean_dim, v(AS(&o->L, mul_Tensor, v(wide), v(wide))), arg_ints(o->g, n, axes),
                       arg_bool(o->g, true));
    Value *root = AS(&o->L, rsqrt, v(AS(&o->L, add_Tensor, v(square), arg_float(o->g, eps))));
    Value *y = lower_cast(&o->L, AS(&o->L, mul_Tensor, v(wide), v(root)), x->dtype);
    return op_return(o, 0, AS(&o->L, mul_Tensor, v(lower_cast(&o->L, y, w->dtype)), v(w)));
}

bool onnx_instance_norm(OnnxOp *o)
{
    Value *x, *w, *b;
    double eps;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &w) && op_tensor(o, 2, &b) && op_attr_float(o, "epsilon", 1e-5, &eps));
    if (x->rank < 3) return op_fail(o, 0, "rank %d, expected at least 3", x->rank);
    if (!ex_is_int(x->dim[1])) { /* as groups their number would have to be fixed */
        int64_t axes[MAX_RANK];
        Value *mean, *variance;
        for (int i = 2; i < x->rank; i++) axes[i - 2] = i;
        Arg over = arg_ints(o->g, x->rank - 2, axes);
        Value *y = standardized(o, x, &over, eps, &mean, &variance);
        y = AS(&o->L, mul_Tensor, v(y), v(per_channel(o, w, x->rank)));
        return op_return(o, 0, AS(&o->L, add_Tensor, v(y), v(per_channel(o, b, x->rank))));
    }
    return op_return(o, 0,
                     AS(&o->L, instance_norm, v(x), v(w), v(b), arg_none(), arg_none(), arg_bool(o->g, true),
                        arg_float(o->g, 0.1), arg_float(o->g, eps), arg_bool(o->g, false)));
}

/* Opset 18: scale and bias one number a group; from 21 on one a channel. */
bool onnx_group_norm(OnnxOp *o)
{
    Value *x, *w, *b;
    int64_t groups;
    double eps;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &w) && op_tensor(o, 2, &b) && op_attr_int(o, "num_groups", 0, &groups) &&
        op_attr_float(o, "epsilon", 1e-5, &eps));
    if (x->rank < 2) return op_fail(o, 0, "rank %d, expected at least 2", x->rank);
    if (groups < 1 || w->rank != 1 || b->rank != 1)
        return fail(o->im->err, E_FORMAT, "%lld groups, scale and bias of ranks %d and %d, expected vectors",
                    (long long)groups, w->rank, b->rank);
    if (o->opset < 21) {
        Expr *each = ex_floordiv(o->ex, x->dim[1], ex_int(o->ex, groups));
        w = AS(&o->L, repeat_interleave_self_int, v(w), arg_expr(each), arg_int(o->g, 0));
        b = AS(&o->L, repeat_interleave_self_int, v(b), arg_expr(each), arg_int(o->g, 0));
    }
    return op_return(o, 0, AS(&o->L, group_norm, v(x), arg_int(o->g, groups), v(w), v(b), arg_float(o->g, eps)));
}

/* In training mode the statistics are the batch's, and the running ones are results:
 * momentum * old + (1 - momentum) * the batch's. */
static bool batch_training(OnnxOp *o, Value *x, Value *const *p, double eps, double momentum)
{
    int64_t axes[MAX_RANK];
    int n = 0;
    Value *now[2];
    for (int i = 0; i < x->rank; i++)
        if (i != 1) axes[n++] = i;
    Arg over = arg_ints(o->g, n, axes);
    DType wide = dtype_size(x->dtype) == 2 ? DT_F32 : x->dtype;
    Value *y = standardized(o, lower_cast(&o->L, x, wide), &over, eps, &now[0], &now[1]);
    y = AS(&o->L, mul_Tensor, v(y), v(per_channel(o, lower_cast(&o->L, p[0], wide), x->rank)));
    y = AS(&o->L, add_Tensor, v(y), v(per_channel(o, lower_cast(&o->L, p[1], wide), x->rank)));
    TRY(op_return(o, 0, lower_cast(&o->L, y, x->dtype)));
    for (int i = 0; i < 2; i++) {
        if (!op_wants(o, 1 + i)) continue;
        Value *old = p[2 + i], *fresh = lower_cast(&o->L, lower_reshape(&o->L, now[i], 1, old->dim), old->dtype);
        TRY(op_return(o, 1 + i,
                      AS(&o->L, add_Tensor, v(AS(&o->L, mul_Tensor, v(old), arg_float(o->g, momentum))),
                         v(AS(&o->L, mul_Tensor, v(fresh), arg_float(o->g, 1 - momentum))))));
    }
    return true;
}

bool onnx_batch_norm(OnnxOp *o)
{
    Value *x, *p[4];
    double eps, momentum;
    int64_t training;
    TRY(op_tensor(o, 0, &x) && op_attr_float(o, "epsilon", 1e-5, &eps) &&
        op_attr_float(o, "momentum", 0.9, &momentum) && op_attr_int(o, "training_mode", 0, &training));
    for (int i = 0; i < 4; i++) {
        TRY(op_tensor(o, 1 + i, &p[i]));
        if (p[i]->rank != 1) return op_fail(o, 1 + i, "rank %d, expected a vector of channels", p[i]->rank);
    }
    if (x->rank < 2) return op_fail(o, 0, "rank %d, expected at least 2", x->rank);
    if (training) return batch_training(o, x, p, eps, momentum);
    for (int i = 0; i < 4; i++) TRY(p[i] = lower_cast(&o->L, p[i], x->dtype));
    return op_return(o, 0,
                     AS(&o->L, batch_norm, v(x), v(p[0]), v(p[1]), v(p[2]), v(p[3]), arg_bool(o->g, false),
                        arg_float(o->g, 1 - momentum), arg_float(o->g, eps), arg_bool(o->g, false)));
}

/* x / its p-norm along an axis (0 where the norm is 0) */
bool onnx_lp_norm(OnnxOp *o)
{
    Value *x;
    int64_t a, p;
    int axis;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "axis", -1, &a) && op_axis(o, "axis", a, x->rank, &axis) &&
        op_attr_int(o, "p", 2, &p));
    if (p != 1 && p != 2) return fail(o->im->err, E_FORMAT, "attribute 'p' is %lld, expected 1 or 2", (long long)p);
    Value *norm = AS(&o->L, linalg_vector_norm, v(x), arg_int(o->g, p), arg_ints(o->g, 1, (int64_t[]){axis}),
                     arg_bool(o->g, true));
    Value *zero = AS(&o->L, eq_Tensor, v(norm), v(op_number(o, x->dtype, 0)));
    return op_return(
        o, 0, AS(&o->L, where_self, v(zero), v(op_number(o, x->dtype, 0)), v(AS(&o->L, div_Tensor, v(x), v(norm)))));
}

/* (x - mean) / (standard deviation + 1e-9) over axes */
bool onnx_mean_variance_norm(OnnxOp *o)
{
    Value *x;
    const int64_t *axes, usual[] = {0, 2, 3};
    int n;
    TRY(op_tensor(o, 0, &x) && op_attr_ints(o, "axes", &axes, &n));
    Arg over = axes ? arg_ints(o->g, n, axes) : arg_ints(o->g, 3, usual), keep = arg_bool(o->g, true);
    Value *mean = AS(&o->L, mean_dim, v(x), over, keep), *centred = AS(&o->L, sub_Tensor, v(x), v(mean));
    Value *spread = AS(&o->L, sqrt,
                       v(AS(&o->L, mean_dim, v(AS(&o->L, mul_Tensor, v(centred), v(centred))), over, keep)));
    return op_return(o, 0,
                     AS(&o->L, div_Tensor, v(centred), v(AS(&o->L, add_Tensor, v(spread), arg_float(o->g, 1e-9)))));
}

/* x / (bias + alpha / size * the sum of squares over `size` channels around)^beta */
bool onnx_lrn(OnnxOp *o)
{
    Value *x;
    int64_t size;
    double alpha, beta, bias;
    TRY(op_tensor(o, 0, &x) && op_attr_int(o, "size", 0, &size) && op_attr_float(o, "alpha", 1e-4, &alpha) &&
        op_attr_float(o, "beta", 0.75, &beta) && op_attr_float(o, "bias", 1, &bias));
    if (size < 1 || size > MAX_WINDOW || x->rank < 3)
        return fail(o->im->err, E_FORMAT, "size %lld over an input of rank %d", (long long)size, x->rank);
    int64_t pad[2 * MAX_RANK] = {0}, before = (size - 1) / 2, after = size - 1 - before,
            others = ex_is_int(x->dim[1]) && x->dim[1]->i > 0 ? x->dim[1]->i - 1 : INT64_MAX;
    int n = 2 * (x->rank - 1);
    pad[n - 2] = before = before < others ? before : others; /* a window may be far larger than there are channels */
    pad[n - 1] = after = after < others ? after : others;
    Value *square = AS(&o->L, constant_pad_nd, v(AS(&o->L, mul_Tensor, v(x), v(x))), arg_ints(o->g, n, pad));
    square = AS(&o->L, unfold, v(square), arg_int(o->g, 1), arg_int(o->g, before + 1 + after), arg_int(o->g, 1));
    TRY(square);
    square = AS(&o->L, sum_dim_IntList, v(square), arg_ints(o->g, 1, (int64_t[]){square->rank - 1}));
    Value *scale = AS(&o->L, add_Tensor, v(AS(&o->L, mul_Tensor, v(square), arg_float(o->g, alpha / (double)size))),
                      arg_float(o->g, bias));
    return op_return(o, 0,
                     AS(&o->L, div_Tensor, v(x), v(AS(&o->L, pow_Tensor_Scalar, v(scale), arg_float(o->g, beta)))));
}
