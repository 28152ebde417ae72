/* Gradients of factors and solutions (Giles 2008; Walter and Lehmann 2012).
 *
 *     X = A^-1 B:   dB = A^-T dX,  dA = -dB X^T
 *     A = L L^T:    dA = L^-T phi(L^T dL) L^-1, phi: lower triangle, half the diagonal
 */
#include "grad/grad_impl.h"

static Value *turned(Grad *d, Value *x) { return gd_swap(d, x, -1, -2); }
static Value *negative(Grad *d, Value *x) { return gd_scale(d, x, gd_float(d, -1)); }
static Value *lower(Grad *d, Value *x, int diagonal) { return GD(d, tril, V(x), arg_int(d->g, diagonal)); }

static Value *solve(Grad *d, Value *a, Value *b)
{
    return a && b ? GD(d, linalg_solve_ex, V(a), V(b), arg_bool(d->g, true), arg_bool(d->g, false)) : NULL;
}

static Value *triangular(Grad *d, Value *a, Value *b, bool upper, bool one)
{
    return a && b ? GD(d, linalg_solve_triangular, V(a), V(b), arg_bool(d->g, upper), arg_bool(d->g, true),
                       arg_bool(d->g, one))
                  : NULL;
}

/* Truth values (n, n): the diagonal */
static Value *diagonal(Grad *d, Expr *n)
{
    Value *at = gd_arange(d, n);
    return at ? GD(d, eq_Tensor, V(gd_insert_axis(d, at, 1)), V(at)) : NULL;
}

bool grad_solve(Grad *d)
{
    Value *a = gd_value(d, 0), *b = gd_value(d, 1), *y = solve(d, turned(d, a), d->grads[0]);
    if (gd_wants(d, b)) TRY(gd_send(d, b, y));
    return !gd_wants(d, a) || gd_send(d, a, negative(d, gd_matmul(d, y, turned(d, d->node->out[0]))));
}

bool grad_solve_triangular(Grad *d)
{
    Value *a = gd_value(d, 0), *b = gd_value(d, 1);
    bool upper = gd_truth(d, 2), one = gd_truth(d, 4);
    Value *y = triangular(d, turned(d, a), d->grad, !upper, one);
    if (gd_wants(d, b)) TRY(gd_send(d, b, y));
    if (!gd_wants(d, a)) return true;
    Value *whole = negative(d, gd_matmul(d, y, turned(d, d->node->out[0])));
    return gd_send(d, a, upper ? GD(d, triu, V(whole), arg_int(d->g, one)) : lower(d, whole, -one));
}

bool grad_slogdet(Grad *d)
{
    Value *a = gd_value(d, 0), *g = d->grads[1];
    if (!g) return true; /* the sign is constant */
    Value *one = gd_expand(d, gd_cast(d, diagonal(d, a->dim[a->rank - 1]), a->dtype), a->rank, a->dim);
    g = gd_insert_axis(d, gd_insert_axis(d, g, g->rank), g->rank + 1);
    return gd_send(d, a, gd_mul(d, solve(d, turned(d, a), one), g));
}

bool grad_cholesky(Grad *d)
{
    Value *a = gd_value(d, 0), *l = d->node->out[0], *g = d->grads[0];
    if (gd_truth(d, 1)) l = turned(d, l), g = turned(d, g);
    Value *s = gd_matmul(d, turned(d, l), g);
    Value *phi = gd_scale(d, gd_plus(d, lower(d, s, 0), lower(d, s, -1)), gd_float(d, 0.5));
    Value *x = triangular(d, turned(d, l), phi, true, false);                     /* L^-T phi */
    Value *y = turned(d, triangular(d, turned(d, l), turned(d, x), true, false)); /* times L^-1 */
    return gd_send(d, a, gd_scale(d, gd_plus(d, y, turned(d, y)), gd_float(d, 0.5)));
}

/* M = R dR^T - dQ^T Q;  dA = (dQ + Q (lower(M) + lower(M, -1)^T)) R^-T */
bool grad_qr(Grad *d)
{
    Value *a = gd_value(d, 0), *q = d->node->out[0], *r = d->node->out[1], *gq = d->grads[0], *gr = d->grads[1];
    if (r->dim[r->rank - 2] != r->dim[r->rank - 1] || q->rank < 2)
        return gd_refuse(d, "only that of as many rows as columns, or more, is unique, and of the reduced mode");
    Value *m = gr ? gd_matmul(d, r, turned(d, gr)) : NULL, *n = gq ? gd_matmul(d, turned(d, gq), q) : NULL;
    m = m && n ? gd_minus(d, m, n) : m ? m : negative(d, n);
    Value *x = gd_matmul(d, q, gd_plus(d, lower(d, m, 0), turned(d, lower(d, m, -1))));
    if (gq) x = gd_plus(d, x, gq);
    return gd_send(d, a, turned(d, triangular(d, r, turned(d, x), true, false)));
}

/* dA = V (diag(dw) + V^T dV / (w_j - w_i)) V^T */
bool grad_eigh(Grad *d)
{
    Value *a = gd_value(d, 0), *w = d->node->out[0], *v = d->node->out[1], *gw = d->grads[0], *gv = d->grads[1];
    Value *on = diagonal(d, a->dim[a->rank - 1]), *inner = NULL;
    if (gv) {
        Value *gap = gd_minus(d, gd_insert_axis(d, w, w->rank - 1), gd_insert_axis(d, w, w->rank));
        gap = GD(d, where_self, V(on), arg_float(d->g, 1), V(gap));
        inner = GD(d, div_Tensor, V(gd_matmul(d, turned(d, v), gv)), V(gap));
    }
    if (gw) gw = gd_expand(d, gd_insert_axis(d, gw, gw->rank - 1), a->rank, a->dim);
    if (inner)
        inner = gw ? GD(d, where_self, V(on), V(gw), V(inner)) : GD(d, where_self, V(on), arg_float(d->g, 0), V(inner));
    else inner = gd_where(d, on, gw, 0);
    return gd_send(d, a, gd_matmul(d, gd_matmul(d, v, inner), turned(d, v)));
}

/* dA = U diag(dS) Vh */
bool grad_singular_values(Grad *d)
{
    Value *a = gd_value(d, 0), *u = GD(d, linalg_svd, V(a), arg_bool(d->g, false));
    if (!u) return false;
    return gd_send(d, a, gd_matmul(d, gd_mul(d, u, gd_insert_axis(d, d->grad, d->grad->rank - 1)), u->def->out[2]));
}

/* The upper right block of exp((A^T, G), (0, A^T)) */
bool grad_matrix_exp(Grad *d)
{
    Value *a = gd_value(d, 0), *t = turned(d, a), *zero = gd_zeros(d, a->dtype, a->rank, a->dim);
    if (!t || !zero) return false;
    Expr *n = a->dim[a->rank - 1], *two = ex_mul(d->ex, n, gd_int(d, 2));
    Value *top = GD(d, cat, arg_values(d->g, 2, (Value *[]){t, d->grad}), arg_int(d->g, -1));
    Value *low = GD(d, cat, arg_values(d->g, 2, (Value *[]){zero, t}), arg_int(d->g, -1));
    Value *all = top && low ? GD(d, cat, arg_values(d->g, 2, (Value *[]){top, low}), arg_int(d->g, -2)) : NULL;
    Value *y = all ? GD(d, matrix_exp, V(all)) : NULL;
    return y && gd_send(d, a, gd_slice(d, gd_slice(d, y, a->rank - 2, gd_int(d, 0), n), a->rank - 1, n, two));
}
