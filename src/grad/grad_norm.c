/* Gradients of layer, group, RMS and batch norm. With h = (x - mean) / deviation and g the gradient times the weight:
 *
 *     dx = (g - mean(g) - h mean(g h)) / deviation        means over what was normalised together
 */
#include "grad/grad_impl.h"

typedef struct Norm {
    Value *x; /* in the shape in which it is normalised over dims */
    int n, dims[MAX_RANK];
    bool centred; /* its mean is taken away */
    Expr *eps;
    Value *h, *rstd;
} Norm;

static bool normalise(Grad *d, Norm *m)
{
    Value *x = m->x;
    if (m->centred) x = gd_minus(d, x, gd_mean(d, x, m->n, m->dims, true));
    Value *square = gd_mean(d, gd_mul(d, x, x), m->n, m->dims, true);
    m->rstd = GD(d, rsqrt, V(GD(d, add_Tensor, V(square), arg_expr(m->eps))));
    m->h = gd_mul(d, x, m->rstd);
    return m->h != NULL;
}

static Value *back(Grad *d, const Norm *m, Value *g)
{
    Value *along = gd_mul(d, m->h, gd_mean(d, gd_mul(d, g, m->h), m->n, m->dims, true));
    if (m->centred) g = gd_minus(d, g, gd_mean(d, g, m->n, m->dims, true));
    return gd_mul(d, gd_minus(d, g, along), m->rstd);
}

static bool last_axes(Grad *d, Value *w, Value *b, Norm *m)
{
    Value *x = m->x;
    int n = d->node->arg[1].n;
    /* One row, one pass. Not for RMS norms: ATen has no word for it on the CPU,
     * and a file that is written must give the same bits when it is read. */
    if (m->centred && w && w->dtype == x->dtype && d->o->decompose != DECOMPOSE_CORE) {
        Value *dx = GD(d, norm_backward, V(d->grad), V(x), d->node->arg[1], V(w), arg_expr(m->eps),
                       arg_bool(d->g, false));
        TRY(dx && (!gd_wants(d, x) || gd_send(d, x, dx)) && (!gd_wants(d, w) || gd_send(d, w, dx->def->out[1])));
        return !gd_wants(d, b) || gd_send(d, b, dx->def->out[2]);
    }
    for (int i = 0; i < n; i++) m->dims[m->n++] = x->rank - n + i;
    if (gd_wants(d, x) || gd_wants(d, w)) TRY(normalise(d, m));
    if (gd_wants(d, x)) TRY(gd_send(d, x, back(d, m, w ? gd_mul(d, d->grad, w) : d->grad)));
    if (gd_wants(d, w)) TRY(gd_send(d, w, gd_mul(d, d->grad, m->h)));
    return !gd_wants(d, b) || gd_send(d, b, d->grad);
}

bool grad_layer_norm(Grad *d)
{
    Norm m = {.x = gd_value(d, 0), .centred = true, .eps = d->node->arg[4].e};
    return last_axes(d, gd_value(d, 2), gd_value(d, 3), &m);
}

bool grad_rms_norm(Grad *d)
{
    Norm m = {.x = gd_value(d, 0), .eps = d->node->arg[3].e};
    if (d->node->arg[3].kind != ARG_EXPR) m.eps = gd_float(d, dtype_epsilon(m.x->dtype));
    return last_axes(d, gd_value(d, 2), NULL, &m);
}

/* One number a channel, beside (N, C, ...) */
static Value *per_channel(Grad *d, Value *w, const Value *x)
{
    Expr *dim[MAX_RANK];
    for (int i = 0; i < x->rank; i++) dim[i] = i == 1 ? x->dim[1] : gd_int(d, 1);
    return gd_reshape(d, w, x->rank, dim);
}

static bool send_channels(Grad *d, Value *w, const Value *x, Value *grad)
{
    int dims[MAX_RANK], n = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != 1) dims[n++] = i;
    return gd_send(d, w, gd_reshape(d, gd_sum(d, grad, n, dims, false), 1, w->dim));
}

/* Over channels and pixels of a group: x as (N, groups, the rest) */
bool grad_group_norm(Grad *d)
{
    Value *x = gd_value(d, 0), *w = gd_value(d, 2), *b = gd_value(d, 3);
    Expr *groups = d->node->arg[1].e, *rest = ex_floordiv(d->ex, x->dim[1], groups);
    for (int i = 2; i < x->rank; i++) rest = ex_mul(d->ex, rest, x->dim[i]);
    Expr *dim[3] = {x->dim[0], groups, rest};
    Norm m = {.x = gd_reshape(d, x, 3, dim), .n = 1, .dims = {2}, .centred = true, .eps = d->node->arg[4].e};
    if (!m.x) return false;
    if (gd_wants(d, x) || gd_wants(d, w)) TRY(normalise(d, &m));
    if (gd_wants(d, x)) {
        Value *g = w ? gd_mul(d, d->grad, per_channel(d, w, x)) : d->grad;
        TRY(gd_send(d, x, gd_reshape(d, back(d, &m, gd_reshape(d, g, 3, dim)), x->rank, x->dim)));
    }
    if (gd_wants(d, w)) TRY(send_channels(d, w, x, gd_mul(d, d->grad, gd_reshape(d, m.h, x->rank, x->dim))));
    return !gd_wants(d, b) || send_channels(d, b, x, d->grad);
}

/* (x, weight, bias, running mean, running variance, training, momentum, eps):
 * by running statistics, as import takes no other. */
bool grad_batch_norm(Grad *d)
{
    Value *x = gd_value(d, 0), *w = gd_value(d, 1), *b = gd_value(d, 2), *mean = gd_value(d, 3), *var = gd_value(d, 4),
          *rstd = NULL, *h = NULL;
    if (gd_truth(d, 5)) return gd_refuse(d, "it is in training mode");
    if (gd_wants(d, mean) || gd_wants(d, var)) return gd_refuse(d, "running statistics are not parameters");
    if (gd_wants(d, x) || gd_wants(d, w))
        rstd = per_channel(d, GD(d, rsqrt, V(GD(d, add_Tensor, V(var), d->node->arg[7]))), x);
    if (gd_wants(d, x)) TRY(gd_send(d, x, gd_mul(d, w ? gd_mul(d, d->grad, per_channel(d, w, x)) : d->grad, rstd)));
    if (gd_wants(d, w)) {
        h = gd_mul(d, gd_minus(d, x, per_channel(d, mean, x)), rstd);
        TRY(send_channels(d, w, x, gd_mul(d, d->grad, h)));
    }
    return !gd_wants(d, b) || send_channels(d, b, x, d->grad);
}

/* Linear in the first operand: dx = back(grad w), and back is symmetric. */
bool grad_norm_backward(Grad *d)
{
    Value *grad = gd_value(d, 0), *x = gd_value(d, 1), *w = gd_value(d, 3);
    if (gd_wants(d, x) || gd_wants(d, w)) return gd_refuse(d, "not written yet: %s", d->text);
    Norm m = {.x = x, .centred = !gd_truth(d, 5), .eps = d->node->arg[4].e};
    for (int n = d->node->arg[2].n; m.n < n; m.n++) m.dims[m.n] = x->rank - n + m.n;
    TRY(normalise(d, &m));
    if (d->grads[0]) TRY(gd_send(d, grad, gd_mul(d, back(d, &m, d->grads[0]), w)));
    if (d->grads[1]) TRY(gd_send(d, grad, gd_mul(d, m.h, d->grads[1])));
    return !d->grads[2] || gd_send(d, grad, gd_expand(d, d->grads[2], grad->rank, grad->dim));
}
