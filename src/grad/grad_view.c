/* Gradients of views, joining and padding: the way back of where elements went.
 *
 *     slice(x, 1, 2, 5)  ->  a part of x's gradient (grad.c joins parts that tile an axis)
 */
#include "grad/grad_impl.h"

bool grad_reshape(Grad *d)
{
    Value *x = gd_value(d, 0);
    return gd_send(d, x, gd_reshape(d, d->grad, x->rank, x->dim));
}

/* Complex tensors as pairs, and back: PyTorch's gradient of a complex value is that of its pair. */
bool grad_view_dtype(Grad *d)
{
    Value *x = gd_value(d, 0);
    if (dtype_is_complex(x->dtype) == dtype_is_complex(d->grad->dtype))
        return gd_refuse(d, "the bits of a value have no derivative");
    return gd_send(d, x, GD(d, view_dtype, V(d->grad), arg_dtype(x->dtype)));
}

bool grad_permute(Grad *d)
{
    const Arg *a = &d->node->arg[1];
    int back[MAX_RANK];
    for (int i = 0; i < a->n; i++) back[a->es[i]->i < 0 ? a->es[i]->i + a->n : a->es[i]->i] = i;
    return gd_send(d, gd_value(d, 0), gd_permute(d, d->grad, back));
}

bool grad_expand(Grad *d) { return gd_send(d, gd_value(d, 0), d->grad); } /* summed there */

bool grad_select(Grad *d)
{
    Value *x = gd_value(d, 0);
    int axis = gd_dim(d, 1, x->rank);
    bool gone[MAX_RANK] = {false};
    gone[axis] = true;
    return gd_send_part(d, x, axis, d->node->arg[2].e, gd_int(d, 1), gd_keep_axes(d, d->grad, x->rank, gone));
}

bool grad_slice(Grad *d)
{
    Value *x = gd_value(d, 0);
    const Arg *a = d->node->arg;
    int axis = gd_dim(d, 1, x->rank);
    if (ex_equals_int(a[4].e, 1)) return gd_send_part(d, x, axis, a[2].e, d->grad->dim[axis], d->grad);
    return gd_send(d, x,
                   GD(d, slice_scatter, V(gd_zeros(d, d->grad->dtype, x->rank, x->dim)), V(d->grad),
                      arg_int(d->g, axis), a[2], a[3], a[4]));
}

bool grad_diagonal(Grad *d)
{
    Value *x = gd_value(d, 0);
    const Arg *a = d->node->arg;
    return gd_send(
        d, x, GD(d, diagonal_scatter, V(gd_zeros(d, d->grad->dtype, x->rank, x->dim)), V(d->grad), a[1], a[2], a[3]));
}

/* Windows: window i holds x[i * step + j] as its element j, on an axis at the end. */
bool grad_unfold(Grad *d)
{
    Value *x = gd_value(d, 0), *at[MAX_RANK] = {NULL}, *grad = d->grad;
    const Arg *a = d->node->arg;
    int axis = gd_dim(d, 1, x->rank), perm[MAX_RANK];
    if (!x->rank) return gd_send(d, x, gd_reshape(d, grad, 0, NULL));
    Value *first = gd_scale(d, gd_arange(d, grad->dim[axis]), a[3].e);
    at[axis] = gd_plus(d, gd_reshape(d, first, 2, (Expr *[]){grad->dim[axis], gd_int(d, 1)}), gd_arange(d, a[2].e));
    for (int i = 0; i <= x->rank; i++) perm[i] = i <= axis ? i : i == axis + 1 ? x->rank : i - 1;
    return gd_send(d, x,
                   !at[axis] ? NULL
                             : GD(d, index_put, V(gd_zeros(d, grad->dtype, x->rank, x->dim)),
                                  arg_values(d->g, axis + 1, at), V(gd_permute(d, grad, perm)), arg_bool(d->g, true)));
}

bool grad_cat(Grad *d)
{
    const Arg *a = &d->node->arg[0];
    int axis = gd_dim(d, 1, d->grad->rank);
    Expr *at = gd_int(d, 0);
    for (int i = 0; i < a->n; i++) {
        Expr *end = ex_add(d->ex, at, a->vs[i]->dim[axis]);
        if (gd_wants(d, a->vs[i])) TRY(gd_send(d, a->vs[i], gd_slice(d, d->grad, axis, at, end)));
        at = end;
    }
    return true;
}

bool grad_flip(Grad *d) { return gd_send(d, gd_value(d, 0), GD(d, flip, V(d->grad), d->node->arg[1])); }

bool grad_triangle(Grad *d)
{
    const Arg *a = &d->node->arg[1];
    return gd_send(d, gd_value(d, 0),
                   d->node->op->id == OP_tril ? GD(d, tril, V(d->grad), *a) : GD(d, triu, V(d->grad), *a));
}

bool grad_pad(Grad *d)
{
    const Arg *a = &d->node->arg[1];
    Expr *pad[2 * MAX_RANK];
    for (int i = 0; i < a->n; i++) pad[i] = ex_neg(d->ex, a->es[i]);
    return gd_send(d, gd_value(d, 0),
                   GD(d, constant_pad_nd, V(d->grad), arg_exprs(d->g, a->n, pad), arg_float(d->g, 0)));
}

/* Axes from the last on, extended by their edge (replication) or mirrored at it: result j is x[source(j - left)]. */
bool grad_index_pad(Grad *d)
{
    Value *x = gd_value(d, 0), *at[MAX_RANK] = {NULL};
    const Arg *pad = &d->node->arg[1];
    for (int k = 0; 2 * k < pad->n; k++) {
        int axis = x->rank - 1 - k;
        Expr *last = ex_sub(d->ex, x->dim[axis], gd_int(d, 1)), *dim[MAX_RANK];
        Value *j = GD(d, sub_Tensor, V(gd_arange(d, d->grad->dim[axis])), arg_expr(pad->es[2 * k]));
        if (d->node->op->id == OP_replication_pad1d) j = GD(d, clamp, V(j), arg_int(d->g, 0), arg_expr(last));
        else {
            j = GD(d, sub_Tensor, arg_expr(last), V(GD(d, abs, V(j))));
            j = GD(d, sub_Tensor, arg_expr(last), V(GD(d, abs, V(j))));
        }
        for (int i = 0; i <= k; i++) dim[i] = i ? gd_int(d, 1) : d->grad->dim[axis];
        TRY(at[axis] = gd_reshape(d, j, k + 1, dim));
    }
    return gd_send(d, x, GD(d, index_put, V(gd_zeros(d, d->grad->dtype, x->rank, x->dim)),
                            arg_values(d->g, x->rank, at), V(d->grad), arg_bool(d->g, true)));
}

/* Element (i, j, ..) is x's element offset + i * stride_0 + j * stride_1 + ..
 * in memory, x contiguous: what is seen several times adds up. */
bool grad_as_strided(Grad *d)
{
    Value *x = gd_value(d, 0), *at = NULL, *grad = d->grad;
    const Arg *a = d->node->arg;
    Expr *all = gd_product(d, x->rank, x->dim), *n = gd_product(d, grad->rank, grad->dim), *dim[MAX_RANK];
    for (int i = 0; i < grad->rank; i++) {
        for (int k = 0; k < grad->rank; k++) dim[k] = k == i ? grad->dim[i] : gd_int(d, 1);
        Value *along = gd_reshape(d, gd_scale(d, gd_arange(d, grad->dim[i]), a[2].es[i]), grad->rank, dim);
        at = at ? gd_plus(d, at, along) : along;
    }
    if (!at) at = GD(d, full, arg_exprs(d->g, 0, NULL), arg_int(d->g, 0), arg_dtype(DT_I64));
    if (a[3].kind == ARG_EXPR) at = GD(d, add_Tensor, V(at), a[3]);
    at = gd_reshape(d, gd_expand(d, at, grad->rank, grad->dim), 1, &n);
    Value *sum = !at ? NULL
                     : GD(d, index_put, V(gd_zeros(d, grad->dtype, 1, &all)), arg_values(d->g, 1, &at),
                          V(gd_reshape(d, grad, 1, &n)), arg_bool(d->g, true));
    return gd_send(d, x, gd_reshape(d, sum, x->rank, x->dim));
}

bool grad_as_strided_scatter(Grad *d)
{
    Value *x = gd_value(d, 0), *src = gd_value(d, 1);
    const Arg *a = d->node->arg;
    if (gd_wants(d, x))
        TRY(gd_send(d, x,
                    GD(d, as_strided_scatter, V(d->grad), V(gd_zeros(d, d->grad->dtype, src->rank, src->dim)), a[2],
                       a[3], a[4])));
    return !gd_wants(d, src) || gd_send(d, src, GD(d, as_strided, V(d->grad), a[2], a[3], a[4]));
}
