/* Gradients of pointwise rows that one formula does not express.
 *
 *     clamp(x, 0, 6): grad where 0 <= x <= 6
 */
#include <math.h>
#include <string.h>
#include "grad/grad_impl.h"

bool grad_gelu(Grad *d)
{
    Value *x = gd_value(d, 0);
    return !gd_wants(d, x) || gd_send(d, x, GD(d, gelu_backward, V(d->grad), V(x), d->node->arg[1]));
}

/* Linear in the first operand alone. */
bool grad_gelu_backward(Grad *d)
{
    if (gd_wants(d, gd_value(d, 1))) return gd_refuse(d, "not written yet: %s", d->text);
    return gd_send(d, gd_value(d, 0), GD(d, gelu_backward, V(d->grad), V(gd_value(d, 1)), d->node->arg[2]));
}

bool grad_clamp(Grad *d)
{
    bool min = d->node->arg[1].kind != ARG_NONE, max = d->node->arg[2].kind != ARG_NONE;
    d->text = min && max ? "keep(logical_and(ge(self, min), le(self, max)), grad)"
              : min      ? "keep(ge(self, min), grad)"
              : max      ? "keep(le(self, max), grad)"
                         : "grad";
    return grad_formula(d);
}

bool grad_rrelu(Grad *d)
{
    return !d->grads[0] || gd_send(d, gd_value(d, 0), gd_mul(d, d->grads[0], d->node->out[1]));
}

bool grad_to_copy(Grad *d) { return gd_send(d, gd_value(d, 0), d->grad); }

/* d x^y / dx = y x^(y - 1), 0 for y = 0; d x^y / dy = x^y log x, 0 for x = 0 and y >= 0 */
bool grad_pow(Grad *d)
{
    Value *x = gd_value(d, 0), *y = gd_value(d, 1);
    const Expr *ye = y ? NULL : d->node->arg[1].e, *xe = x ? NULL : d->node->arg[0].e;
    if (gd_wants(d, x)) {
        bool zero = ye && (ye->kind == EX_FLOAT ? ye->f == 0 : ex_equals_int(ye, 0)),
             two = ye && (ye->kind == EX_FLOAT ? ye->f == 2 : ex_equals_int(ye, 2));
        const char *text = zero  ? "grad * 0"
                           : two ? "grad * (self * 2)"
                           : ye  ? "grad * (pow(self, exponent - 1) * exponent)"
                                 : "keep(ne(exponent, 0), grad * (exponent * pow(self, exponent - 1)))";
        TRY(gd_send(d, x, gd_formula(d, text)));
    }
    if (!gd_wants(d, y)) return true;
    if (!xe)
        return gd_send(
            d, y, gd_formula(d, "where(logical_and(eq(self, 0), ge(exponent, 0)), 0, grad * (result * log(self)))"));
    if (!ex_is_const(xe)) { /* a size */
        Value *size = GD(d, full, arg_exprs(d->g, 0, NULL), d->node->arg[0], arg_dtype(y->dtype));
        Value *log = size ? GD(d, log, V(size)) : NULL;
        Value *none = size ? GD(d, eq_Tensor, V(size), arg_int(d->g, 0)) : NULL;
        log = log && none ? GD(d, where_self, V(none), arg_float(d->g, 0), V(log)) : NULL;
        return log && gd_send(d, y, gd_mul(d, gd_mul(d, d->grad, d->node->out[0]), log));
    }
    double base = ex_number(xe);
    Value *slope = gd_scale(d, gd_mul(d, d->grad, d->node->out[0]), gd_float(d, log(base)));
    if (base == 0) slope = GD(d, where_self, V(gd_formula(d, "ge(exponent, 0)")), arg_float(d->g, 0), V(slope));
    return gd_send(d, y, slope);
}

/* Of zeta(x, q) and the shares of the gamma function, by the second operand; PyTorch has none by the first. */
static bool by_second(Grad *d, const char *text)
{
    Value *x = gd_value(d, 0), *y = gd_value(d, 1);
    if (x && gd_wants(d, x)) return gd_refuse(d, "PyTorch has no derivative by its first operand");
    return !y || gd_send(d, y, gd_formula(d, text));
}

bool grad_zeta(Grad *d) { return by_second(d, "-(grad * self * special_zeta(self + 1, other))"); }

bool grad_igamma(Grad *d)
{
    return by_second(d, *d->text ? "-(grad * exp((self - 1) * log(other) - other - lgamma(self)))"
                                 : "grad * exp((self - 1) * log(other) - other - lgamma(self))");
}

bool grad_where(Grad *d)
{
    Value *c = gd_value(d, 0), *x = gd_value(d, 1), *y = gd_value(d, 2);
    if (!c) return gd_refuse(d, "its condition is a number");
    if (gd_wants(d, x)) TRY(gd_send(d, x, gd_where(d, c, d->grad, 0)));
    if (gd_wants(d, y)) TRY(gd_send(d, y, GD(d, where_self, V(c), arg_float(d->g, 0), V(d->grad))));
    return true;
}

/* The weight is one number, or one for each channel (axis 1). */
bool grad_prelu(Grad *d)
{
    Value *x = gd_value(d, 0), *w = gd_value(d, 1);
    Expr *dim[MAX_RANK];
    for (int i = 0; i < x->rank; i++) dim[i] = gd_int(d, 1);
    if (x->rank) dim[x->rank > 1] = w->rank ? w->dim[0] : gd_int(d, 1);
    Value *positive = GD(d, gt_Tensor, V(x), arg_int(d->g, 0));
    if (gd_wants(d, x)) {
        Value *slope = gd_mul(d, d->grad, gd_reshape(d, w, x->rank, dim));
        TRY(gd_send(d, x, positive && slope ? GD(d, where_self, V(positive), V(d->grad), V(slope)) : NULL));
    }
    if (!gd_wants(d, w)) return true;
    Value *below = GD(d, where_self, V(positive), arg_float(d->g, 0), V(gd_mul(d, d->grad, x)));
    return gd_send(d, w, gd_reshape(d, gd_sum_to(d, below, x->rank, dim), w->rank, w->dim));
}
