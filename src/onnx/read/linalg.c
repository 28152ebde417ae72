/* ONNX's products and norms. Contract in onnx_impl.h. */
#include "onnx/read/read_impl.h"

bool onnx_matmul(OnnxOp *o)
{
    Value *a, *b;
    TRY(op_tensor(o, 0, &a) && op_tensor(o, 1, &b));
    if (!a->rank || !b->rank) return op_fail(o, a->rank ? 1 : 0, "a number, expected a tensor");
    return op_return(o, 0, AS(&o->L, matmul, v(a), v(b)));
}

static Value *turned(OnnxOp *o, Value *x, bool turn) { return turn ? lower_permute(&o->L, x, (int[]){1, 0}) : x; }

/* alpha A' B' + beta C */
bool onnx_gemm(OnnxOp *o)
{
    Value *a, *b, *c;
    int64_t ta, tb;
    double alpha, beta;
    TRY(op_tensor(o, 0, &a) && op_tensor(o, 1, &b) && op_optional(o, 2, &c) && op_attr_int(o, "transA", 0, &ta) &&
        op_attr_int(o, "transB", 0, &tb) && op_attr_float(o, "alpha", 1, &alpha) && op_attr_float(o, "beta", 1, &beta));
    if (a->rank != 2 || b->rank != 2)
        return op_fail(o, a->rank == 2, "rank %d, expected a matrix", a->rank == 2 ? b->rank : a->rank);
    TRY(a = turned(o, a, ta != 0));
    bool vector = c && c->rank == 1 && c->dim[0] == (tb ? b->dim[0] : b->dim[1]);
    if (tb && alpha == 1 && beta == 1 && (!c || vector) && dtype_is_float(a->dtype))
        return op_return(o, 0, AS(&o->L, linear, v(a), v(b), c ? v(c) : arg_none()));
    Value *y = AS(&o->L, matmul, v(a), v(turned(o, b, tb != 0)));
    if (alpha != 1) y = AS(&o->L, mul_Tensor, v(y), arg_float(o->g, alpha));
    if (c && beta != 1) c = AS(&o->L, mul_Tensor, v(c), arg_float(o->g, beta));
    if (c) y = AS(&o->L, add_Tensor, v(y), v(c));
    return op_return(o, 0, lower_cast(&o->L, y, a->dtype));
}

bool onnx_det(OnnxOp *o)
{
    Value *x;
    TRY(op_tensor(o, 0, &x));
    return op_return(o, 0, AS(&o->L, linalg_det, v(x)));
}

bool onnx_einsum(OnnxOp *o)
{
    const char *equation;
    Value **all = arena_array(o->g->arena, Value *, o->node->ninput + 1);
    if (!all) return oom(o->im->err);
    TRY(op_attr_string(o, "equation", NULL, &equation));
    if (!equation) return fail(o->im->err, E_FORMAT, "attribute 'equation' is missing");
    for (int i = 0; i < o->node->ninput; i++) TRY(op_tensor(o, i, &all[i]));
    return op_return(o, 0, AS(&o->L, einsum, arg_str(o->g, equation), arg_values(o->g, o->node->ninput, all)));
}

/* Normalised over the axes from `axis` on; the second and third result are the mean and 1 / standard deviation (in
 * stash_type: float32). */
bool onnx_layer_norm(OnnxOp *o)
{
    Value *x, *w, *b;
    int64_t a, stash;
    double eps;
    int axis;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &w) && op_optional(o, 2, &b) && op_attr_int(o, "axis", -1, &a) &&
        op_axis(o, "axis", a, x->rank, &axis) && op_attr_float(o, "epsilon", 1e-5, &eps) &&
        op_attr_int(o, "stash_type", 1, &stash));
    int n = x->rank - axis;
    bool plain = !op_wants(o, 1) && !op_wants(o, 2) && w->rank == n && (!b || b->rank == n) && w->dtype == x->dtype;
    for (int i = 0; plain && i < n; i++) plain = w->dim[i] == x->dim[axis + i] && (!b || b->dim[i] == x->dim[axis + i]);
    if (plain)
        return op_return(o, 0,
                         AS(&o->L, layer_norm, v(x), arg_exprs(o->g, n, x->dim + axis), v(w), b ? v(b) : arg_none(),
                            arg_float(o->g, eps)));
    int64_t axes[MAX_RANK];
    for (int i = 0; i < n; i++) axes[i] = axis + i;
    Arg over = arg_ints(o->g, n, axes), keep = arg_bool(o->g, true);
    Value *wide = x->dtype == DT_F64 ? x : lower_cast(&o->L, x, DT_F32);
    Value *mean = AS(&o->L, mean_dim, v(wide), over, keep);
    Value *centred = AS(&o->L, sub_Tensor, v(wide), v(mean));
    Value *variance = AS(&o->L, mean_dim, v(AS(&o->L, mul_Tensor, v(centred), v(centred))), over, keep);
    Value *inverse = AS(&o->L, reciprocal,
                        v(AS(&o->L, sqrt, v(AS(&o->L, add_Tensor, v(variance), arg_float(o->g, eps))))));
    Value *y = lower_cast(&o->L, AS(&o->L, mul_Tensor, v(centred), v(inverse)), x->dtype);
    y = AS(&o->L, mul_Tensor, v(y), v(lower_cast(&o->L, w, x->dtype)));
    if (b) y = AS(&o->L, add_Tensor, v(y), v(lower_cast(&o->L, b, x->dtype)));
    TRY(op_return(o, 0, y));
    if (op_wants(o, 1)) TRY(op_return(o, 1, mean));
    return !op_wants(o, 2) || op_return(o, 2, inverse);
}
