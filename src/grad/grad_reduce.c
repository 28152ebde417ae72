/* Gradients of reductions, scans, softmax and sorting.
 *
 *     softmax: y * (grad - sum(grad * y))
 */
#include <math.h>
#include <stdlib.h>
#include "base/number.h"
#include "grad/grad_impl.h"

/* The gradient, with axes of 1 where the reduction took them. */
static Value *kept(Grad *d, Value *x, const bool *set) { return gd_keep_axes(d, d->grad, x->rank, set); }

/* The same for all axes: one number broadcasts by itself. */
static Value *spread(Grad *d, Value *x, const bool *set) { return d->grad->rank ? kept(d, x, set) : d->grad; }

static Value *result_kept(Grad *d, Value *x, const bool *set) { return gd_keep_axes(d, d->node->out[0], x->rank, set); }

static Expr *count_of(Grad *d, const Value *x, const bool *set)
{
    Expr *n = gd_int(d, 1);
    for (int i = 0; i < x->rank; i++)
        if (set[i]) n = ex_mul(d->ex, n, x->dim[i]);
    return n;
}

bool grad_sum(Grad *d)
{
    Value *x = gd_value(d, 0);
    bool set[MAX_RANK];
    gd_dims(&d->node->arg[1], x->rank, set);
    return gd_send(d, x, gd_expand(d, spread(d, x, set), x->rank, x->dim));
}

bool grad_mean(Grad *d)
{
    Value *x = gd_value(d, 0);
    bool set[MAX_RANK];
    gd_dims(&d->node->arg[1], x->rank, set);
    Value *each = GD(d, div_Tensor, V(spread(d, x, set)), arg_expr(count_of(d, x, set)));
    return gd_send(d, x, gd_expand(d, each, x->rank, x->dim));
}

/* The product of all elements before one: a running product from a 1 on, without its last. */
static Value *product_before(Grad *d, Value *x, int axis)
{
    Expr *dim[MAX_RANK];
    for (int i = 0; i < x->rank; i++) dim[i] = i == axis ? gd_int(d, 1) : x->dim[i];
    Value *piece[2] = {gd_full(d, 1, x->dtype, x->rank, dim), x};
    if (!piece[0]) return NULL;
    Value *all = GD(d, cumprod, V(GD(d, cat, arg_values(d->g, 2, piece), arg_int(d->g, axis))), arg_int(d->g, axis));
    return gd_slice(d, all, axis, gd_int(d, 0), x->dim[axis]);
}

/* Is any element 0? */
static Value *any_zero(Grad *d, Value *zero)
{
    Value *flat = gd_reshape(d, zero, 1, (Expr *[]){gd_product(d, zero->rank, zero->dim)});
    return GD(d, any_dim, V(flat), arg_int(d->g, 0));
}

/* The result over each element, infinities and NaN included, and where the tensor has a zero the product of the others:
 * as PyTorch. Of the product of all elements, several of which are zeros, nothing but zeros is left. */
bool grad_prod(Grad *d)
{
    Value *x = gd_value(d, 0);
    int axis = gd_dim(d, 1, x->rank);
    bool set[MAX_RANK] = {false};
    if (!x->rank) return gd_send(d, x, d->grad);
    set[axis] = true;
    Arg axes = arg_ints(d->g, 1, (int64_t[]){axis});
    Value *zero = GD(d, eq_Tensor, V(x), arg_int(d->g, 0)), *grad = kept(d, x, set), *result = result_kept(d, x, set);
    Value *after = GD(d, flip, V(product_before(d, GD(d, flip, V(x), axes), axis)), axes), *one = NULL;
    Value *others = gd_mul(d, product_before(d, x, axis), after), *each = GD(d, div_Tensor, V(result), V(x));
    TRY(zero && others);
    if (x->rank == 1 && ex_equals_int(d->node->arg[1].e, 0)) {
        TRY(one = GD(d, le_Tensor, V(gd_sum(d, zero, 1, &axis, false)), arg_int(d->g, 1)));
        TRY(others = gd_where(d, one, others, 0));
    }
    each = gd_mul(d, GD(d, where_self, V(any_zero(d, zero)), V(others), V(each)), grad);
    return gd_send(d, x, one ? gd_where(d, one, each, 0) : each);
}

/* Of several largest elements each gets its share. NaN as a result: without axes, as max() is, the NaNs do; along axes
 * every element's gradient is NaN, as in PyTorch. */
bool grad_extreme(Grad *d)
{
    Value *x = gd_value(d, 0);
    bool set[MAX_RANK], all = d->node->op->id == OP_median || d->node->op->id == OP_nanmedian;
    int dims[MAX_RANK];
    gd_dims(all ? &(Arg){.kind = ARG_NONE} : &d->node->arg[1], x->rank, set);
    Value *result = result_kept(d, x, set), *hit = GD(d, eq_Tensor, V(x), V(result));
    int n = gd_list(set, x->rank, dims);
    all |= !d->node->arg[1].n;
    if (all) hit = GD(d, logical_or, V(hit), V(GD(d, logical_and, V(GD(d, isnan, V(x))), V(GD(d, isnan, V(result))))));
    Value *mask = gd_cast(d, hit, x->dtype), *count = gd_sum(d, mask, n, dims, true);
    if (all) { /* others' gradient is 0, whatever the result's is */
        Value *share = count ? GD(d, div_Tensor, V(kept(d, x, set)), V(count)) : NULL;
        return gd_send(d, x, GD(d, where_self, V(hit), V(share), V(gd_zeros(d, x->dtype, 0, NULL))));
    }
    return gd_send(d, x, count ? GD(d, div_Tensor, V(gd_mul(d, mask, kept(d, x, set))), V(count)) : NULL);
}

static bool scattered(Grad *d, Value *x, int axis, Value *grad, Value *index)
{
    return gd_send(
        d, x, GD(d, scatter_add, V(gd_zeros(d, grad->dtype, x->rank, x->dim)), arg_int(d->g, axis), V(index), V(grad)));
}

/* (values, indices) of one dim, which is argument number text */
bool grad_picked(Grad *d)
{
    Value *x = gd_value(d, 0);
    int axis = gd_dim(d, (int)parse_int(d->text, NULL), x->rank);
    bool set[MAX_RANK] = {false};
    if (!x->rank) return gd_send(d, x, d->grad);
    set[axis] = true;
    Value *index = gd_keep_axes(d, d->node->out[1], x->rank, set), *grad = kept(d, x, set);
    return index && grad ? scattered(d, x, axis, grad, index) : false;
}

bool grad_sorted(Grad *d)
{
    Value *x = gd_value(d, 0);
    return x->rank ? scattered(d, x, gd_dim(d, (int)parse_int(d->text, NULL), x->rank), d->grad, d->node->out[1])
                   : gd_send(d, x, d->grad);
}

bool grad_logsumexp(Grad *d)
{
    Value *x = gd_value(d, 0);
    bool set[MAX_RANK];
    gd_dims(&d->node->arg[1], x->rank, set);
    return gd_send(d, x, gd_mul(d, GD(d, exp, V(gd_minus(d, x, result_kept(d, x, set)))), kept(d, x, set)));
}

/* Sends 2 / (n - correction) * (x - mean) * grad, grad being that of a variance. PyTorch gives infinities and NaN where
 * the variance of all elements has no degree of freedom. */
static bool send_variance(Grad *d, Value *grad)
{
    Value *x = gd_value(d, 0);
    const Arg *a = d->node->arg;
    bool set[MAX_RANK], all = a[1].kind == ARG_NONE || !x->rank;
    int dims[MAX_RANK];
    gd_dims(&a[1], x->rank, set);
    Expr *n = ex_make(d->ex, EX_TOFLOAT, count_of(d, x, set), NULL, NULL),
         *less = a[2].kind == ARG_EXPR ? ex_make(d->ex, EX_TOFLOAT, a[2].e, NULL, NULL) : gd_float(d, 1),
         *freedom = ex_sub(d->ex, n, less);
    Value *mean = gd_mean(d, x, gd_list(set, x->rank, dims), dims, true);
    grad = gd_keep_axes(d, grad, x->rank, set);
    if (all && freedom && ex_is_const(freedom) && ex_number(freedom) <= 0) {
        Value *none = gd_where(d, GD(d, ne_Tensor, V(x), V(mean)), gd_full(d, INFINITY, x->dtype, 0, NULL), NAN);
        return gd_send(d, x, gd_mul(d, none, grad));
    }
    Value *each = GD(d, div_Tensor, V(gd_scale(d, grad, gd_float(d, 2))), arg_expr(freedom));
    return gd_send(d, x, gd_mul(d, gd_minus(d, x, mean), each));
}

bool grad_var(Grad *d) { return send_variance(d, d->grad); }

/* grad / (2 * std), 0 where that is 0 */
bool grad_std(Grad *d)
{
    Value *std = d->node->out[0], *real = GD(d, ne_Tensor, V(std), arg_float(d->g, 0));
    Value *each = GD(d, div_Tensor, V(d->grad), V(gd_scale(d, gd_where(d, real, std, 1), gd_float(d, 2))));
    return send_variance(d, gd_where(d, real, each, 0));
}

/* (sum |x|^p)^(1/p): x |x|^(p - 2) / norm^(p - 1), 0 where the norm is 0, and of p < 1 where x is. The factor of the
 * gradient is finite there, too: a forward derivative is multiplied by it. */
bool grad_vector_norm(Grad *d)
{
    Value *x = gd_value(d, 0);
    const Arg *a = d->node->arg;
    bool set[MAX_RANK];
    gd_dims(&a[2], x->rank, set);
    if (!ex_is_const(a[1].e)) return gd_refuse(d, "its order is a size");
    double p = ex_number(a[1].e);
    Value *grad = kept(d, x, set), *norm = result_kept(d, x, set), *sign = GD(d, sign, V(x)), *each;
    if (p == 0) return true;
    if (p == 1) return gd_send(d, x, gd_mul(d, sign, grad));
    if (isinf(p)) {
        Value *hit = GD(d, eq_Tensor, V(GD(d, abs, V(x))), V(norm));
        int dims[MAX_RANK];
        Value *count = gd_sum(d, gd_cast(d, hit, x->dtype), gd_list(set, x->rank, dims), dims, true);
        return gd_send(d, x, gd_where(d, hit, count ? gd_mul(d, sign, GD(d, div_Tensor, V(grad), V(count))) : NULL, 0));
    }
    Value *real = GD(d, ne_Tensor, V(norm), arg_float(d->g, 0));
    norm = gd_where(d, real, norm, 1);
    if (p == 2) each = GD(d, div_Tensor, V(x), V(norm));
    else
        each = gd_mul(
            d, sign,
            GD(d, pow_Tensor_Tensor, V(GD(d, div_Tensor, V(GD(d, abs, V(x))), V(norm))), arg_float(d->g, p - 1)));
    if (p < 1)
        each = GD(d, where_self, V(GD(d, ne_Tensor, V(x), arg_float(d->g, 0))), V(each),
                  V(gd_scale(d, norm, gd_float(d, 0))));
    return gd_send(d, x, gd_where(d, real, gd_mul(d, each, grad), 0));
}

/* Sums from each element on. */
static Value *sum_from(Grad *d, Value *x, int axis)
{
    Arg axes = arg_ints(d->g, 1, (int64_t[]){axis});
    return GD(d, flip, V(GD(d, cumsum, V(GD(d, flip, V(x), axes)), arg_int(d->g, axis))), axes);
}

bool grad_cumsum(Grad *d)
{
    Value *x = gd_value(d, 0);
    if (!x->rank) return gd_send(d, x, d->grad);
    return gd_send(d, x, sum_from(d, d->grad, gd_dim(d, 1, x->rank)));
}

bool grad_softmax(Grad *d)
{
    Value *y = d->node->out[0], *each = gd_mul(d, d->grad, y);
    int axis = gd_dim(d, 1, y->rank);
    return gd_send(d, gd_value(d, 0), gd_minus(d, each, gd_mul(d, y, gd_sum(d, each, y->rank ? 1 : 0, &axis, true))));
}

bool grad_log_softmax(Grad *d)
{
    Value *y = d->node->out[0];
    int axis = gd_dim(d, 1, y->rank);
    return gd_send(d, gd_value(d, 0),
                   gd_minus(d, d->grad, gd_mul(d, GD(d, exp, V(y)), gd_sum(d, d->grad, y->rank ? 1 : 0, &axis, true))));
}

/* Distances of rows x_i, y_j: with u = x_i - y_j, d |u|_p = sign(u) |u|^(p - 1) / |u|_p^(p - 1),
 * 0 where the distance is 0. Memory of (.., P, R, M). */
bool grad_cdist(Grad *d)
{
    Value *x = gd_value(d, 0), *y = gd_value(d, 1), *norm = d->node->out[0];
    const Arg *a = &d->node->arg[2];
    if (a->kind != ARG_EXPR || !ex_is_const(a->e)) return gd_refuse(d, "its order is a size");
    double p = ex_number(a->e);
    if (x->rank >= MAX_RANK || y->rank >= MAX_RANK) return gd_refuse(d, "its operands have rank %d", x->rank);
    if (p == 0) return true;
    Value *apart = gd_minus(d, gd_insert_axis(d, x, x->rank - 1), gd_insert_axis(d, y, y->rank - 2)), *each;
    Value *grad = gd_insert_axis(d, d->grad, d->grad->rank), *far = gd_insert_axis(d, norm, norm->rank),
          *sign = p == 2 ? NULL : GD(d, sign, V(apart));
    if (p == 2) each = gd_mul(d, apart, GD(d, div_Tensor, V(grad), V(far)));
    else if (p == 1) each = gd_mul(d, sign, grad);
    else if (isinf(p)) each = gd_mul(d, gd_where(d, GD(d, eq_Tensor, V(GD(d, abs, V(apart))), V(far)), sign, 0), grad);
    else
        each = gd_mul(d,
                      gd_mul(d, sign,
                             GD(d, pow_Tensor_Tensor, V(GD(d, div_Tensor, V(GD(d, abs, V(apart))), V(far))),
                                arg_float(d->g, p - 1))),
                      grad);
    each = gd_where(d, GD(d, ne_Tensor, V(far), arg_float(d->g, 0)), each, 0);
    if (!each) return false;
    if (gd_wants(d, x)) TRY(gd_send(d, x, gd_sum(d, each, 1, (int[]){each->rank - 2}, false)));
    return !gd_wants(d, y) || gd_send(d, y, GD(d, neg, V(gd_sum(d, each, 1, (int[]){each->rank - 3}, false))));
}

/* y_i = x_0 .. x_i:  dx_j = sum over i >= j of dy_i y_i / x_j  before the first zero,
 *                    x_0 .. x_(j - 1) times the sum over i >= j of dy_i x_(j + 1) .. x_i  at it, up to the second,
 *                    0 after it */
bool grad_cumprod(Grad *d)
{
    Value *x = gd_value(d, 0);
    int axis = x->rank ? gd_dim(d, 1, x->rank) : 0;
    if (!x->rank || ex_equals_int(x->dim[axis], 1)) return gd_send(d, x, d->grad);
    Value *zero = GD(d, eq_Tensor, V(x), arg_int(d->g, 0)), *zeros = GD(d, cumsum, V(zero), arg_int(d->g, axis));
    Value *before = GD(d, eq_Tensor, V(zeros), arg_int(d->g, 0)), *from = GD(d, eq_Tensor, V(zeros), arg_int(d->g, 1));
    Value *first = GD(d, logical_and, V(from), V(zero)), *after = GD(d, gt_Tensor, V(from), V(zero));
    TRY(before && first && after);
    Value *plain = sum_from(d, gd_where(d, before, gd_mul(d, d->grad, d->node->out[0]), 0), axis);
    Value *rest = GD(d, cumprod, V(gd_where(d, after, x, 1)), arg_int(d->g, axis));
    TRY(rest);
    Value *sum = gd_sum(d, gd_mul(d, rest, gd_where(d, from, d->grad, 0)), 1, &axis, true);
    Value *at = gd_where(d, first, gd_mul(d, product_before(d, x, axis), sum), 0);
    return gd_send(d, x, GD(d, where_self, V(before), V(GD(d, div_Tensor, V(plain), V(x))), V(at)));
}

/* y_i = log(sum over j <= i of exp(x_j)):  dx_j = sum over i >= j of dy_i exp(x_j - y_i).
 *                                          Differences of i and j are taken before exp, so that none of them
 * leaves the range: memory of n for each element. */
bool grad_logcumsumexp(Grad *d)
{
    Value *x = gd_value(d, 0);
    if (!x->rank) return gd_send(d, x, d->grad);
    int axis = gd_dim(d, 1, x->rank), last = x->rank;
    if (x->rank >= MAX_RANK) return gd_refuse(d, "its operand has rank %d", x->rank);
    Value *rows = gd_swap(d, x, axis, last - 1), *grad = gd_swap(d, d->grad, axis, last - 1),
          *y = gd_swap(d, d->node->out[0], axis, last - 1);
    Expr *n = x->dim[axis];
    Value *j = gd_reshape(d, gd_arange(d, n), 2, (Expr *[]){n, gd_int(d, 1)}), *i = gd_arange(d, n),
          *from = GD(d, ge_Tensor, V(i), V(j));
    Value *apart = gd_where(d, from, gd_minus(d, gd_insert_axis(d, rows, last), gd_insert_axis(d, y, last - 1)),
                            -INFINITY);
    Value *each = apart ? gd_mul(d, GD(d, exp, V(apart)), gd_insert_axis(d, grad, last - 1)) : NULL;
    return gd_send(d, x, gd_swap(d, gd_sum(d, each, 1, &last, false), axis, last - 1));
}
