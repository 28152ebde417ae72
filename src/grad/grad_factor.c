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
    Value *inverse = solve(d, turned(d, a), one), *some = GD(d, ne_Tensor, V(g), arg_float(d->g, 0));
    inverse = gd_where(d, some, inverse, 0); /* a determinant that is 0 passes 0 on; there is no inverse */
    return gd_send(d, a, gd_mul(d, inverse, g));
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

static Value *upper(Grad *d, Value *x, int diagonal) { return GD(d, triu, V(x), arg_int(d->g, diagonal)); }

/* x over rows (axis -2) or columns (-1) from..to; to NULL: to the end */
static Value *band(Grad *d, Value *x, int axis, Expr *from, Expr *to)
{
    axis += x ? x->rank : 0;
    return x ? gd_slice(d, x, axis, from, to ? to : x->dim[axis]) : NULL;
}

static Value *joined(Grad *d, Value *a, Value *b, int axis)
{
    return a && b ? GD(d, cat, arg_values(d->g, 2, (Value *[]){a, b}), arg_int(d->g, axis)) : NULL;
}

/* X with X T = B for a triangular T: T^T X^T = B^T */
static Value *triangular_right(Grad *d, Value *t, Value *b, bool is_upper, bool one)
{
    return turned(d, triangular(d, turned(d, t), turned(d, b), !is_upper, one));
}

/* From gradients of L and U, given together as those of LU, to that of A = P L U (PyTorch's plu_backward): for a square
 * one P L^-T (tril(L^T dL, -1) + triu(dU U^T)) U^-T; what a wide or tall one has beyond is solved for first. */
bool grad_lu_factor(Grad *d)
{
    Value *a = gd_value(d, 0), *lu = d->node->out[0], *g = d->grads[0];
    if (!g) return true;
    Value *p = GD(d, lu_unpack, V(lu), V(d->node->out[1])), *l = p ? p->def->out[1] : NULL,
          *u = p ? p->def->out[2] : NULL, *x;
    TRY(p);
    Expr *m = a->dim[a->rank - 2], *n = a->dim[a->rank - 1], *k = ex_min(d->ex, m, n), *zero = gd_int(d, 0);
    Value *gl = lower(d, band(d, g, -1, zero, k), -1), *gu = upper(d, band(d, g, -2, zero, k), 0);
    Value *from_l = gd_matmul(d, turned(d, l), gl), *from_u = gd_matmul(d, gu, turned(d, u));
    if (m == n) {
        x = gd_plus(d, lower(d, from_l, -1), upper(d, from_u, 0));
        x = triangular(d, turned(d, l), triangular_right(d, turned(d, u), x, false, false), true, true);
    } else if (!ex_is_int(m) || !ex_is_int(n)) {
        return gd_refuse(d, "of a matrix that may be wide or tall: its sizes must be constants");
    } else if (k == m) {
        x = lower(d, gd_minus(d, from_l, from_u), -1);
        x = triangular_right(d, turned(d, band(d, u, -1, zero, k)), x, false, false);
        x = joined(d, gd_plus(d, x, band(d, gu, -1, zero, k)), band(d, gu, -1, k, NULL), -1);
        x = triangular(d, turned(d, l), x, true, true);
    } else {
        x = upper(d, gd_minus(d, from_u, from_l), 0);
        x = triangular(d, turned(d, band(d, l, -2, zero, k)), x, true, true);
        x = joined(d, gd_plus(d, x, band(d, gl, -2, zero, k)), band(d, gl, -2, k, NULL), -2);
        x = triangular_right(d, turned(d, u), x, false, false);
    }
    return gd_send(d, a, gd_matmul(d, p, x));
}

/* L below the diagonal of LU, U on it and above */
bool grad_lu_unpack(Grad *d)
{
    Value *lu = gd_value(d, 0), *gl = d->grads[1], *gu = d->grads[2], *sum = NULL;
    Expr *m = lu->dim[lu->rank - 2], *n = lu->dim[lu->rank - 1];
    int last = lu->rank - 1;
    for (int i = 0; i < 2; i++) {
        Value *g = i ? gu : gl, *x;
        if (!g) continue;
        x = i ? upper(d, g, 0) : lower(d, g, -1);
        Expr *more = i ? ex_sub(d->ex, m, g->dim[last - 1]) : ex_sub(d->ex, n, g->dim[last]);
        Arg pad[] = {arg_exprs(d->g, 4, (Expr *[]){gd_int(d, 0), i ? gd_int(d, 0) : more, gd_int(d, 0),
                                                   i ? more : gd_int(d, 0)})};
        x = x ? GD(d, constant_pad_nd, V(x), pad[0], arg_float(d->g, 0)) : NULL;
        sum = sum ? gd_plus(d, sum, x) : x;
    }
    return !sum ? d->err->code == E_OK : gd_send(d, lu, sum);
}

/* dA = U (skew(U^T dU) / E S + S skew(V^T dV) / E + diag(dS)) V^T, skew(X) = X - X^T, E_ij = s_j^2 - s_i^2; and what of
 * dU and dV is orthogonal to U and V. Vectors beyond the first min(m, n) are not unique and have none. */
bool grad_svd(Grad *d)
{
    Value *a = gd_value(d, 0), *s = d->node->out[1], *gs = d->grads[1];
    Expr *m = a->dim[a->rank - 2], *n = a->dim[a->rank - 1], *k = s->dim[s->rank - 1], *zero = gd_int(d, 0);
    Value *u = band(d, d->node->out[0], -1, zero, k), *vh = band(d, d->node->out[2], -2, zero, k);
    Value *gu = band(d, d->grads[0], -1, zero, k), *gvh = band(d, d->grads[2], -2, zero, k);
    Value *row = gd_insert_axis(d, s, s->rank - 1), *column = gd_insert_axis(d, s, s->rank), *on = diagonal(d, k);
    Value *gap = gd_minus(d, gd_mul(d, row, row), gd_mul(d, column, column)), *x = NULL, *y;
    TRY(u && vh && gap && on);
    gap = GD(d, where_self, V(on), arg_float(d->g, 1), V(gap));
    Value *mu = gu ? gd_matmul(d, turned(d, u), gu) : NULL, *mv = gvh ? gd_matmul(d, vh, turned(d, gvh)) : NULL;
    if (mu) x = gd_mul(d, GD(d, div_Tensor, V(gd_minus(d, mu, turned(d, mu))), V(gap)), row);
    if (mv) {
        y = gd_mul(d, column, GD(d, div_Tensor, V(gd_minus(d, mv, turned(d, mv))), V(gap)));
        x = x ? gd_plus(d, x, y) : y;
    }
    if (gs) {
        y = gd_expand(d, gd_insert_axis(d, gs, gs->rank), gap->rank, gap->dim);
        y = gd_where(d, on, y, 0);
        x = x ? gd_plus(d, x, y) : y;
    }
    x = gd_matmul(d, u, x);
    if (gu && m != k) x = gd_plus(d, x, GD(d, div_Tensor, V(gd_minus(d, gu, gd_matmul(d, u, mu))), V(row)));
    x = gd_matmul(d, x, vh);
    if (gvh && n != k) {
        y = gd_minus(d, gvh, gd_matmul(d, turned(d, mv), vh));
        x = gd_plus(d, x, gd_matmul(d, GD(d, div_Tensor, V(u), V(row)), y));
    }
    return gd_send(d, a, x);
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

/* dA = V (diag(dw) + skew(V^T dV) / (w_j - w_i)) V^T, skew(X) = (X - X^T) / 2 */
bool grad_eigh(Grad *d)
{
    Value *a = gd_value(d, 0), *w = d->node->out[0], *v = d->node->out[1], *gw = d->grads[0], *gv = d->grads[1];
    Value *on = diagonal(d, a->dim[a->rank - 1]), *inner = NULL;
    if (gv) {
        Value *gap = gd_minus(d, gd_insert_axis(d, w, w->rank - 1), gd_insert_axis(d, w, w->rank));
        gap = GD(d, where_self, V(on), arg_float(d->g, 1), V(gap));
        Value *m = gd_matmul(d, turned(d, v), gv), *skew = gd_scale(d, gd_minus(d, m, turned(d, m)), gd_float(d, 0.5));
        inner = GD(d, div_Tensor, V(skew), V(gap));
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
