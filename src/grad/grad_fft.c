/* Gradients of Fourier transforms, on pairs of reals: the transposed matrices.
 *
 *     y = F x            dx = conj(F) dy: the other direction, with the same norm
 *     y = half of F x    dx = Re(conj(F) dy): to reals, of the bins weighed 1, 1/2, ..., 1/2, (1)
 *     x = to real(y)     dy = F dx, its bins weighed 1, 2, ..., 2, (1)
 */
#include "grad/grad_impl.h"

static Expr *last_dim(const Grad *d, int *axis)
{
    const Arg *a = &d->node->arg[1];
    *axis = (int)a->es[a->n - 1]->i;
    return d->node->arg[0].v->dim[*axis];
}

/* Pairs times 1 in the bins of axis that are their own conjugate's, 0 and n / 2 for even n, and times w elsewhere. */
static Value *weighed(Grad *d, Value *pairs, int axis, Expr *n, double w)
{
    Expr *dim[MAX_RANK];
    if (!pairs) return NULL;
    for (int i = 0; i < pairs->rank; i++) dim[i] = i == axis ? pairs->dim[i] : gd_int(d, 1);
    Value *k = gd_arange(d, pairs->dim[axis]);
    Value *own = GD(d, logical_or, V(GD(d, eq_Tensor, V(k), arg_int(d->g, 0))),
                    V(GD(d, eq_Tensor, V(gd_scale(d, k, gd_int(d, 2))), arg_expr(n))));
    own = gd_reshape(d, own, pairs->rank, dim);
    return own ? GD(d, where_self, V(own), V(pairs), V(gd_scale(d, pairs, gd_float(d, w)))) : NULL;
}

bool grad_fft_complex(Grad *d)
{
    const Arg *a = d->node->arg;
    return gd_send(d, gd_value(d, 0), GD(d, fft_complex, V(d->grad), a[1], a[2], arg_bool(d->g, !gd_truth(d, 3))));
}

bool grad_fft_real(Grad *d)
{
    const Arg *a = d->node->arg;
    Value *x = gd_value(d, 0);
    int axis;
    Expr *n = last_dim(d, &axis);
    if (gd_truth(d, 3)) {
        Value *half = weighed(d, d->grad, axis, n, 0.5);
        return gd_send(d, x, half ? GD(d, fft_to_real, V(half), a[1], a[2], arg_expr(n)) : NULL);
    }
    Value *pairs = GD(d, fft_complex, V(d->grad), a[1], a[2], arg_bool(d->g, false));
    return pairs && gd_send(d, x, GD(d, select_int, V(pairs), arg_int(d->g, x->rank), arg_int(d->g, 0)));
}

bool grad_fft_to_real(Grad *d)
{
    const Arg *a = d->node->arg;
    int axis;
    last_dim(d, &axis);
    Value *bins = GD(d, fft_real, V(d->grad), a[1], a[2], arg_bool(d->g, true));
    return gd_send(d, gd_value(d, 0), weighed(d, bins, axis, a[3].e, 2));
}
