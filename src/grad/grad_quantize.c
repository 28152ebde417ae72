/* Gradients of quantizers: straight through (Bengio et al. 2013), as that of PyTorch's fake_quantize.
 *
 *     dequantize_linear(quantize_linear(x, s, z), s, z)    ->  grad where round(x / s) + z is in range, else 0
 *
 * Integers in between carry the gradient of the floats that they stand for. Scales and zero points have none.
 */
#include "grad/grad_impl.h"

bool grad_dequantize_linear(Grad *d) { return gd_send(d, gd_value(d, 0), d->grad); }

/* x as (..., blocks, block, ...) where its scales are one a block of axis; else as it is. */
static Value *in_blocks(Grad *d, Value *x, const Value *scale, int axis, int64_t block)
{
    Expr *dim[MAX_RANK + 1];
    if (!block || scale->rank != x->rank || ex_equals_int(scale->dim[axis], 1)) return x;
    for (int i = 0; i <= x->rank; i++) dim[i] = i <= axis ? x->dim[i] : x->dim[i - 1];
    dim[axis] = scale->dim[axis];
    dim[axis + 1] = gd_int(d, block);
    return gd_reshape(d, x, x->rank + 1, dim);
}

/* Scales or zero points of x, in its dtype, so that they broadcast with what in_blocks makes of it. */
static Value *beside(Grad *d, const Value *x, Value *v, int axis, bool blocks)
{
    Expr *dim[MAX_RANK];
    if (blocks) v = gd_insert_axis(d, v, axis + 1);
    else if (v->rank != x->rank) {
        for (int i = 0; i < x->rank; i++) dim[i] = i == axis && v->rank ? v->dim[0] : gd_int(d, 1);
        v = gd_reshape(d, v, x->rank, dim);
    }
    return v ? gd_cast(d, v, x->dtype) : NULL;
}

bool grad_quantize_linear(Grad *d)
{
    Value *x = gd_value(d, 0), *zero = gd_value(d, 2);
    const DType t = d->node->out[0]->dtype;
    const int axis = gd_dim(d, 4, x->rank);
    if (!gd_wants(d, x)) return true;
    Value *at = in_blocks(d, x, gd_value(d, 1), axis, d->node->arg[5].e->i);
    const bool blocks = at && at != x;
    if (blocks && gd_product(d, at->rank, at->dim) != gd_product(d, x->rank, x->dim))
        return gd_refuse(d, "its last block is smaller than the others");
    Value *scale = at ? beside(d, x, gd_value(d, 1), axis, blocks) : NULL,
          *y = !scale           ? NULL
               : gd_truth(d, 8) ? gd_mul(d, at, GD(d, reciprocal, V(scale)))
                                : GD(d, div_Tensor, V(at), V(scale));
    if (y && !dtype_is_float(t)) y = GD(d, round, V(y));
    if (y && zero) y = gd_plus(d, y, beside(d, x, zero, axis, blocks));
    if (y && blocks) y = gd_reshape(d, y, x->rank, x->dim);
    Value *inside = y ? GD(d, logical_and, V(GD(d, ge_Tensor, V(y), arg_float(d->g, dtype_lowest(t)))),
                           V(GD(d, le_Tensor, V(y), arg_float(d->g, dtype_highest(t)))))
                      : NULL;
    return gd_send(d, x, inside ? gd_where(d, inside, d->grad, 0) : NULL);
}
