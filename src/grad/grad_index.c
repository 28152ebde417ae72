/* Gradients of looking up and of writing by index: what was read several times adds up.
 *
 *     embedding(weight, ids)  ->  zeros with grad added to the rows ids
 */
#include <string.h>
#include "grad/grad_impl.h"

static Value *zeros_like(Grad *d, const Value *x) { return gd_zeros(d, d->grad->dtype, x->rank, x->dim); }

/* Rows of the padding index learn nothing. */
bool grad_embedding(Grad *d)
{
    Value *w = gd_value(d, 0), *ids = gd_value(d, 1), *grad = d->grad;
    const Expr *padding = d->node->arg[2].e;
    Expr *dim[MAX_RANK];
    if (gd_truth(d, 3)) return gd_refuse(d, "scale_grad_by_freq counts how often each row occurs");
    if (!ex_equals_int(padding, -1)) {
        for (int i = 0; i < ids->rank; i++) dim[i] = ids->dim[i];
        dim[ids->rank] = gd_int(d, 1);
        Value *real = GD(d, ne_Tensor, V(ids), arg_expr(d->node->arg[2].e));
        grad = gd_where(d, gd_reshape(d, real, ids->rank + 1, dim), grad, 0);
    }
    return gd_send(d, w,
                   GD(d, index_put, V(zeros_like(d, w)), arg_values(d->g, 1, &ids), V(grad), arg_bool(d->g, true)));
}

bool grad_gather(Grad *d)
{
    Value *x = gd_value(d, 0), *index = gd_value(d, 2);
    if (x->rank != index->rank) return gd_refuse(d, "operand and index have ranks %d and %d", x->rank, index->rank);
    return gd_send(d, x, GD(d, scatter_add, V(zeros_like(d, x)), d->node->arg[1], V(index), V(d->grad)));
}

bool grad_index_select(Grad *d)
{
    Value *x = gd_value(d, 0), *at[MAX_RANK] = {NULL}, *index = gd_value(d, 2);
    if (!x->rank) return gd_send(d, x, d->grad);
    int axis = gd_dim(d, 1, x->rank);
    at[axis] = gd_reshape(d, index, 1, &d->grad->dim[axis]);
    return gd_send(d, x,
                   !at[axis] ? NULL
                             : GD(d, index_put, V(zeros_like(d, x)), arg_values(d->g, axis + 1, at), V(d->grad),
                                  arg_bool(d->g, true)));
}

bool grad_index(Grad *d)
{
    Value *x = gd_value(d, 0);
    return gd_send(d, x, GD(d, index_put, V(zeros_like(d, x)), d->node->arg[1], V(d->grad), arg_bool(d->g, true)));
}

bool grad_index_put(Grad *d)
{
    Value *x = gd_value(d, 0), *values = gd_value(d, 2);
    const Arg *at = &d->node->arg[1];
    if (gd_wants(d, x))
        TRY(gd_send(d, x,
                    gd_truth(d, 3) ? d->grad
                                   : GD(d, index_put, V(d->grad), *at, V(gd_zeros(d, d->grad->dtype, 0, NULL)),
                                        arg_bool(d->g, false))));
    return !gd_wants(d, values) || gd_send(d, values, GD(d, index_Tensor, V(d->grad), *at));
}

/* x with zeros after its ends, or without its ends, so that it has the sizes of like: a source may be larger than its
 * index, and what lies outside is not written. */
static Value *fitted(Grad *d, Value *x, const Value *like)
{
    Expr *pad[2 * MAX_RANK];
    if (!x || same_dims(x, like)) return x;
    if (x->rank != like->rank) {
        gd_refuse(d, "source and index have ranks %d and %d", x->rank, like->rank);
        return NULL;
    }
    for (int k = 0; k < x->rank; k++) {
        Expr **end = &pad[2 * (x->rank - 1 - k)];
        end[0] = gd_int(d, 0);
        end[1] = ex_sub(d->ex, like->dim[k], x->dim[k]);
    }
    return GD(d, constant_pad_nd, V(x), arg_exprs(d->g, 2 * x->rank, pad), arg_float(d->g, 0));
}

/* g has the index's sizes. */
static bool send_source(Grad *d, Value *g)
{
    Value *src = gd_value(d, 3);
    return gd_send(d, src, fitted(d, g, src));
}

bool grad_scatter(Grad *d)
{
    Value *x = gd_value(d, 0), *index = gd_value(d, 2), *src = gd_value(d, 3);
    bool add = d->node->op->id == OP_scatter_add;
    if (gd_wants(d, x))
        TRY(gd_send(
            d, x, add ? d->grad : GD(d, scatter_src, V(d->grad), d->node->arg[1], V(index), V(zeros_like(d, index)))));
    return !gd_wants(d, src) || send_source(d, GD(d, gather, V(d->grad), d->node->arg[1], V(index)));
}

bool grad_slice_scatter(Grad *d)
{
    Value *x = gd_value(d, 0), *src = gd_value(d, 1);
    const Arg *a = d->node->arg;
    if (gd_wants(d, x))
        TRY(gd_send(d, x, GD(d, slice_scatter, V(d->grad), V(zeros_like(d, src)), a[2], a[3], a[4], a[5])));
    return !gd_wants(d, src) || gd_send(d, src, GD(d, slice_Tensor, V(d->grad), a[2], a[3], a[4], a[5]));
}

bool grad_select_scatter(Grad *d)
{
    Value *x = gd_value(d, 0), *src = gd_value(d, 1);
    const Arg *a = d->node->arg;
    if (gd_wants(d, x)) TRY(gd_send(d, x, GD(d, select_scatter, V(d->grad), V(zeros_like(d, src)), a[2], a[3])));
    return !gd_wants(d, src) || gd_send(d, src, GD(d, select_int, V(d->grad), a[2], a[3]));
}

bool grad_diagonal_scatter(Grad *d)
{
    Value *x = gd_value(d, 0), *src = gd_value(d, 1);
    const Arg *a = d->node->arg;
    if (gd_wants(d, x))
        TRY(gd_send(d, x, GD(d, diagonal_scatter, V(d->grad), V(zeros_like(d, src)), a[2], a[3], a[4])));
    return !gd_wants(d, src) || gd_send(d, src, GD(d, diagonal, V(d->grad), a[2], a[3], a[4]));
}

/* Of those that are largest (or smallest) each gets its share;
 * a mean is a sum whose gradient is divided by how many there were. */
/* x without its zeros, which are 1 */
static Value *without_zeros(Grad *d, Value *x, Value **zero)
{
    *zero = GD(d, eq_Tensor, V(x), arg_int(d->g, 0));
    return GD(d, where_self, V(*zero), arg_int(d->g, 1), V(x));
}

/* What a factor's gradient is multiplied by: the product of the others. Where it is the only 0 of its place that is the
 * product without zeros, where another factor is 0 it is 0, else the product over the factor. */
static bool of_products(Grad *d, Value *src, bool self)
{
    Value *x = gd_value(d, 0), *index = gd_value(d, 2), *zero_x, *zero_src;
    const Arg axis = d->node->arg[1], how = d->node->arg[4], with = arg_bool(d->g, true);
    Value *bare_x = without_zeros(d, x, &zero_x), *bare = without_zeros(d, src, &zero_src);
    TRY(bare_x && bare);
    if (!self) { /* places that are written to begin with 1 */
        Value *one = gd_full(d, 1, x->dtype, src->rank, src->dim);
        bare_x = GD(d, scatter_src, V(bare_x), axis, V(index), V(one));
        zero_x = GD(d, eq_Tensor, V(GD(d, scatter_src, V(x), axis, V(index), V(one))), arg_int(d->g, 0));
    }
    Value *all = GD(d, scatter_reduce_two, V(bare_x), axis, V(index), V(bare), how, with);
    Value *own = gd_cast(d, zero_x, x->dtype), *given = gd_cast(d, zero_src, x->dtype);
    Value *zeros = GD(d, scatter_add, V(own), axis, V(index), V(given));
    TRY(all && zeros);
    if (gd_wants(d, x)) { /* others of this factor's place are 0: none but itself */
        Value *others = gd_minus(d, zeros, own);
        Value *rest = GD(d, div_Tensor, V(all), V(bare_x));
        rest = gd_where(d, GD(d, eq_Tensor, V(others), arg_int(d->g, 0)), rest, 0);
        Value *g = gd_mul(d, d->grad, rest);
        TRY(gd_send(d, x, self ? g : GD(d, scatter_src, V(g), axis, V(index), V(zeros_like(d, index)))));
    }
    if (!gd_wants(d, gd_value(d, 3))) return true;
    Value *others = gd_minus(d, GD(d, gather, V(zeros), axis, V(index)), given);
    Value *rest = GD(d, div_Tensor, V(GD(d, gather, V(all), axis, V(index))), V(bare));
    rest = gd_where(d, GD(d, eq_Tensor, V(others), arg_int(d->g, 0)), rest, 0);
    return send_source(d, gd_mul(d, GD(d, gather, V(d->grad), axis, V(index)), rest));
}

bool grad_scatter_reduce(Grad *d)
{
    Value *x = gd_value(d, 0), *index = gd_value(d, 2), *src = fitted(d, gd_value(d, 3), index), *y = d->node->out[0],
          *grad = d->grad, *from = NULL, *in_x = NULL, *in_src = NULL;
    const Arg *axis = &d->node->arg[1];
    const char *reduce = d->node->arg[4].s;
    bool self = gd_truth(d, 5);
    if (!src) return false;
    if (!strcmp(reduce, "prod")) return of_products(d, src, self);
    if (!strcmp(reduce, "mean")) {
        Value *start = self ? gd_full(d, 1, grad->dtype, x->rank, x->dim) : zeros_like(d, x);
        Value *count = GD(d, scatter_add, V(start), *axis, V(index),
                          V(gd_full(d, 1, grad->dtype, src->rank, src->dim)));
        grad = GD(d, div_Tensor, V(grad), V(GD(d, clamp, V(count), arg_int(d->g, 1), arg_none())));
    } else if (strcmp(reduce, "sum")) {
        in_x = GD(d, eq_Tensor, V(x), V(y));
        in_src = GD(d, eq_Tensor, V(src), V(GD(d, gather, V(y), *axis, V(index))));
        Value *count = GD(d, scatter_add, V(gd_cast(d, in_x, grad->dtype)), *axis, V(index),
                          V(gd_cast(d, in_src, grad->dtype)));
        grad = GD(d, div_Tensor, V(grad), V(GD(d, clamp, V(count), arg_int(d->g, 1), arg_none())));
    }
    if (!grad) return false;
    if (gd_wants(d, x)) {
        from = in_x ? gd_where(d, in_x, grad, 0) : grad;
        TRY(gd_send(d, x, self ? from : GD(d, scatter_src, V(from), *axis, V(index), V(zeros_like(d, index)))));
    }
    if (!gd_wants(d, gd_value(d, 3))) return true;
    from = GD(d, gather, V(grad), *axis, V(index));
    return send_source(d, in_src ? gd_where(d, in_src, from, 0) : from);
}
