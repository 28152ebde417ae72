/* Lowering of quantiles, integrals by the trapezoid rule, renorm and the norms by a batch's own statistics.
 *
 *     quantile(x, q, -1)      -> lerp of gather(sort(x), floor(q (n - 1))) and gather(sort(x), ceil(q (n - 1)))
 *     trapezoid(y, x)         -> sum((y[:-1] + y[1:]) (x[1:] - x[:-1])) / 2
 *     trapezoid(y, dx)        -> (sum(y) - (sum(y[:1]) + sum(y[-1:])) / 2) dx
 *     gradient(x)             -> cat(x[1] - x[0], slopes of parabolas through three neighbours, x[-1] - x[-2])
 */
#include <string.h>
#include "lower/lower_table.h"

static Value *add(Lower *L, Value *a, Value *b) { return AS(L, add_Tensor, v(a), v(b)); }
static Value *mul(Lower *L, Value *a, Value *b) { return AS(L, mul_Tensor, v(a), v(b)); }
static Value *half(Lower *L, Value *a) { return AS(L, mul_Tensor, v(a), arg_float(L->g, 0.5)); }

static bool want(Lower *L, Value **x)
{
    *x = lower_value(L, 0);
    return *x || lower_fail(L, 0, "expected a tensor");
}

/* ------------------------------------------------------------------ quantiles */

/* Positions among the n sorted values of the last dim; NaN anywhere takes the last (a NaN), or is not counted. */
static Value *ranks(Lower *L, Value *sorted, Value *q, bool skip_nan)
{
    Arg last = arg_expr(ex_sub(L->ex, sorted->dim[sorted->rank - 1], ex_int(L->ex, 1))), dim = arg_int(L->g, -1),
        keep = arg_bool(L->g, true);
    Value *nan = AS(L, isnan, v(sorted));
    if (!skip_nan)
        return AS(L, where_self, v(AS(L, any_dim, v(nan), dim, keep)), last, v(AS(L, mul_Tensor, v(q), last)));
    Value *n = AS(L, sum_dim_IntList, v(AS(L, logical_not, v(nan))), arg_ints(L->g, 1, (int64_t[]){-1}), keep);
    return AS(L, clamp, v(mul(L, q, AS(L, sub_Tensor, v(n), arg_int(L->g, 1)))), arg_int(L->g, 0));
}

static Value *at_rank(Lower *L, Value *sorted, Value *rank)
{
    return rank ? AS(L, gather, v(sorted), arg_int(L->g, -1), v(lower_cast(L, rank, DT_I64))) : NULL;
}

/* quantile, nanquantile(self, q, dim, keepdim, interpolation): q's dim comes first, a number has none. */
bool lower_quantile(Lower *L)
{
    Value *x, *q = lower_value(L, 1);
    bool keep, skip_nan = L->op->id == OP_nanquantile || L->op->id == OP_nanquantile_scalar, number = !q || !q->rank;
    int rank, d = 0, m = 0, perm[MAX_RANK];
    Expr *one = ex_int(L->ex, 1), *dim[MAX_RANK + 1];
    TRY(want(L, &x) && lower_const_bool(L, 3, &keep));
    const char *how = L->arg[4].kind == ARG_STR ? L->arg[4].s : "linear";
    bool all = lower_is_none(L, 2);
    rank = x->rank;
    if (rank + 1 > MAX_RANK || (q && q->rank > 1)) return lower_fail(L, 0, "rank %d", rank);
    if (!all) TRY(lower_dim(L, 2, rank, &d));
    for (int i = 0; i < rank; i++)
        if (keep || (!all && i != d)) dim[m++] = all || i == d ? one : x->dim[i];
    x = all || !rank ? AS(L, ravel, v(x)) : AS(L, movedim_int, v(x), arg_int(L->g, d), arg_int(L->g, -1));
    x = AS(L, sort, v(x));
    TRY(x);
    if (q) {
        Value *above = AS(L, ge_Tensor, v(q), arg_int(L->g, 0)), *below = AS(L, le_Tensor, v(q), arg_int(L->g, 1));
        q = lower_only_if(L, AS(L, logical_and, v(above), v(below)), q);
    } else q = AS(L, full, arg_ints(L->g, 0, NULL), L->arg[1], arg_dtype(x->dtype));
    q = AS(L, ravel, v(q));
    Value *r = ranks(L, x, q, skip_nan), *low;
    if (!strcmp(how, "lower")) r = AS(L, floor, v(r));
    else if (!strcmp(how, "higher")) r = AS(L, ceil, v(r));
    else if (!strcmp(how, "nearest")) r = AS(L, round, v(r));
    Value *y = low = at_rank(L, x, r);
    if (!strcmp(how, "linear"))
        y = AS(L, lerp_Tensor, v(low), v(at_rank(L, x, AS(L, ceil, v(r)))), v(AS(L, frac, v(r))));
    if (!strcmp(how, "midpoint"))
        y = AS(L, lerp_Scalar, v(low), v(at_rank(L, x, AS(L, ceil, v(r)))), arg_float(L->g, 0.5));
    TRY(y);
    for (int i = 0; i < y->rank; i++) perm[i] = i ? i - 1 : y->rank - 1;
    if (number) return lower_return(L, lower_reshape(L, y, m, dim));
    memmove(dim + 1, dim, (size_t)m * sizeof *dim);
    dim[0] = q->dim[0];
    return lower_return(L, lower_reshape(L, lower_permute(L, y, perm), m + 1, dim));
}

/* ------------------------------------------------------------------ integrals */

static Value *part(Lower *L, Value *x, int d, int64_t from, int64_t to)
{
    return AS(L, slice_Tensor, v(x), arg_int(L->g, d), arg_int(L->g, from), arg_int(L->g, to));
}

/* With equal steps: all of them less half of the first and the last, times the step, as PyTorch adds them up. */
static bool integral(Lower *L, Value *y, int d)
{
    Arg axis = arg_ints(L->g, 1, (int64_t[]){d});
    Value *sum = AS(L, sum_dim_IntList, v(y), axis), *first = AS(L, sum_dim_IntList, v(part(L, y, d, 0, 1)), axis),
          *last = AS(L, sum_dim_IntList, v(part(L, y, d, -1, INT64_MAX)), axis);
    Value *inner = AS(L, sub_Tensor, v(sum), v(half(L, add(L, first, last))));
    return lower_return(L, AS(L, mul_Tensor, v(inner), L->arg[op_param(L->op, "dx")]));
}

/* trapezoid and cumulative_trapezoid, with a step dx or points x (a vector, or a tensor that broadcasts) */
bool lower_trapezoid(Lower *L)
{
    Value *y, *dx;
    int d;
    bool points = op_param(L->op, "x") >= 0, running = !strncmp(L->op->name, "aten.cumulative", 15);
    TRY(want(L, &y) && lower_dim(L, op_param(L->op, "dim"), y->rank, &d));
    if (!y->rank) return lower_fail(L, 0, "expected a tensor of rank 1 or more");
    if (!points && !running) return integral(L, y, d);
    Value *pair = add(L, part(L, y, d, 0, -1), part(L, y, d, 1, INT64_MAX));
    if (points) {
        Value *x = lower_value(L, 1);
        Expr *dim[MAX_RANK];
        if (!x || (x->rank > 1 && x->rank != y->rank))
            return lower_fail(L, 1, "rank %d, expected 1 or %d", x ? x->rank : 0, y->rank);
        for (int i = 0; x->rank == 1 && i < y->rank; i++) dim[i] = i == d ? x->dim[0] : ex_int(L->ex, 1);
        if (x->rank == 1) TRY(x = lower_reshape(L, x, y->rank, dim));
        dx = AS(L, sub_Tensor, v(part(L, x, d, 1, INT64_MAX)), v(part(L, x, d, 0, -1)));
        pair = mul(L, pair, dx);
    } else {
        pair = AS(L, mul_Tensor, v(pair), L->arg[op_param(L->op, "dx")]);
    }
    if (running) return lower_return(L, half(L, AS(L, cumsum, v(pair), arg_int(L->g, d))));
    return lower_return(L, half(L, AS(L, sum_dim_IntList, v(pair), arg_ints(L->g, 1, (int64_t[]){d}))));
}

/* ------------------------------------------------------------------ derivatives */

static Value *minus(Lower *L, Value *a, Value *b) { return AS(L, sub_Tensor, v(a), v(b)); }
static Value *over(Lower *L, Value *a, Value *b) { return AS(L, div_Tensor, v(a), v(b)); }

/* Weights of the parabola through three points at distances p and q: its slope at the point that is first (0), in the
 * middle (1) or last (2). */
static bool slopes(Lower *L, Value *p, Value *q, int at, Value **w)
{
    Value *both = add(L, p, q), *pp = mul(L, p, both), *pq = mul(L, p, q), *qq = mul(L, q, both);
    Value *top[3][3] = {{NULL, both, NULL}, {NULL, NULL, p}, {q, NULL, NULL}};
    if (at == 0) top[0][0] = AS(L, neg, v(add(L, p, both))), top[0][2] = AS(L, neg, v(p));
    if (at == 1) top[1][0] = AS(L, neg, v(q)), top[1][1] = minus(L, q, p);
    if (at == 2) top[2][1] = AS(L, neg, v(both)), top[2][2] = add(L, q, both);
    w[0] = over(L, top[at][0], pp);
    w[1] = over(L, top[at][1], pq);
    w[2] = over(L, top[at][2], qq);
    return w[0] && w[1] && w[2];
}

/* The slope from three neighbours each, parts of x along d that begin at `from` and end at `to`. */
static Value *slope(Lower *L, Value *x, int d, Value *p, Value *q, int at, const int64_t *from, const int64_t *to)
{
    Value *w[3], *y = NULL;
    if (!p || !q || !slopes(L, p, q, at, w)) return NULL;
    for (int i = 0; i < 3; i++) {
        Value *term = mul(L, w[i], part(L, x, d, from[i], to[i]));
        y = i ? add(L, y, term) : term;
    }
    return y;
}

/* Central differences along d, of one or two neighbours at the ends. steps: distances of neighbours along d, one fewer
 * than x has elements, or one for all. */
static Value *differences(Lower *L, Value *x, int d, Value *steps, int64_t edge)
{
    enum { END = INT64_MAX };
    bool even = !steps->rank;
    Value *p = even ? steps : part(L, steps, d, 0, -1), *q = even ? steps : part(L, steps, d, 1, END);
    Value *first = even ? steps : part(L, steps, d, 0, 1), *second = even ? steps : part(L, steps, d, 1, 2);
    Value *last = even ? steps : part(L, steps, d, -1, END), *before = even ? steps : part(L, steps, d, -2, -1);
    Value *mid = slope(L, x, d, p, q, 1, (int64_t[]){0, 1, 2}, (int64_t[]){-2, -1, END});
    Value *low = edge == 1 ? over(L, minus(L, part(L, x, d, 1, 2), part(L, x, d, 0, 1)), first)
                           : slope(L, x, d, first, second, 0, (int64_t[]){0, 1, 2}, (int64_t[]){1, 2, 3});
    Value *high = edge == 1 ? over(L, minus(L, part(L, x, d, -1, END), part(L, x, d, -2, -1)), last)
                            : slope(L, x, d, before, last, 2, (int64_t[]){-3, -2, -1}, (int64_t[]){-2, -1, END});
    return low && mid && high ? AS(L, cat, arg_values(L->g, 3, (Value *[]){low, mid, high}), arg_int(L->g, d)) : NULL;
}

/* Distances along d of the k-th dim that is asked for: one number, a number for each, or coordinates. */
static Value *steps_along(Lower *L, const Value *x, int d, int k)
{
    int at = op_param(L->op, "spacing");
    const Arg *a = at < 0 ? NULL : &L->arg[at];
    Expr *dim[MAX_RANK];
    if (a && a->kind == ARG_VALUES) {
        if (k >= a->n || a->vs[k]->rank != 1) return lower_fail(L, at, "expected a vector for each dim"), NULL;
        for (int i = 0; i < x->rank; i++) dim[i] = i == d ? a->vs[k]->dim[0] : ex_int(L->ex, 1);
        Value *wide = lower_reshape(L, a->vs[k], x->rank, dim);
        return wide ? minus(L, part(L, wide, d, 1, INT64_MAX), part(L, wide, d, 0, -1)) : NULL;
    }
    if (a && a->kind == ARG_EXPRS && k >= a->n) return lower_fail(L, at, "expected a number for each dim"), NULL;
    Arg step = !a || a->kind == ARG_NONE ? arg_int(L->g, 1) : a->kind == ARG_EXPRS ? arg_expr(a->es[k]) : *a;
    return AS(L, full, arg_ints(L->g, 0, NULL), step, arg_dtype(dtype_is_float(x->dtype) ? x->dtype : DT_F32));
}

bool lower_gradient(Lower *L)
{
    Value *x, *out[MAX_RANK];
    int at = op_param(L->op, "dim"), n = 0, d[MAX_RANK];
    int64_t edge;
    TRY(want(L, &x) && lower_const_int(L, op_param(L->op, "edge_order"), &edge));
    if (edge != 1 && edge != 2)
        return lower_fail(L, op_param(L->op, "edge_order"), "%lld, expected 1 or 2", (long long)edge);
    const Arg *dims = &L->arg[at];
    if (dims->kind == ARG_EXPRS) {
        for (; n < dims->n && n < MAX_RANK; n++) {
            if (!ex_is_int(dims->es[n])) return lower_fail(L, at, "must be constant integers");
            d[n] = (int)(dims->es[n]->i < 0 ? dims->es[n]->i + x->rank : dims->es[n]->i);
            if (d[n] < 0 || d[n] >= x->rank) return lower_fail(L, at, "out of range for rank %d", x->rank);
        }
    } else if (dims->kind == ARG_NONE) {
        for (; n < x->rank; n++) d[n] = n;
    } else {
        TRY(lower_dim(L, at, x->rank, &d[n++]));
    }
    for (int k = 0; k < n; k++) {
        Value *steps = steps_along(L, x, d[k], k);
        TRY(steps && (out[k] = differences(L, x, d[k], steps, edge)));
    }
    return lower_return_values(L, n, out);
}

/* ------------------------------------------------------------------ norms */

/* Slices along dim whose p-norm is above maxnorm are scaled down to it. */
bool lower_renorm(Lower *L)
{
    Value *x;
    int d, n = 0;
    int64_t dims[MAX_RANK];
    TRY(want(L, &x) && lower_dim(L, 2, x->rank, &d));
    if (x->rank < 2) return lower_fail(L, 0, "rank %d, expected at least 2", x->rank);
    for (int i = 0; i < x->rank; i++)
        if (i != d) dims[n++] = i;
    DType acc = dtype_size(x->dtype) == 2 ? DT_F32 : x->dtype;
    Value *norm = AS(L, linalg_vector_norm, v(x), L->arg[1], arg_ints(L->g, n, dims), arg_bool(L->g, true),
                     arg_dtype(acc));
    Value *scale = AS(L, mul_Tensor, v(AS(L, reciprocal, v(AS(L, add_Tensor, v(norm), arg_float(L->g, 1e-7))))),
                      L->arg[3]);
    scale = AS(L, where_self, v(AS(L, gt_Tensor, v(norm), L->arg[3])), v(scale), arg_float(L->g, 1));
    return scale && lower_return(L, mul(L, x, lower_cast(L, scale, x->dtype)));
}

/* One number per channel (dim 1 of x) in a shape that broadcasts. */
static Value *per_channel(Lower *L, Value *w, const Value *x)
{
    Expr *dim[MAX_RANK];
    for (int i = 0; i < x->rank; i++) dim[i] = i == 1 ? x->dim[1] : ex_int(L->ex, 1);
    return w ? lower_reshape(L, w, x->rank, dim) : NULL;
}

/* (1 - momentum) * running + momentum * now */
static Value *moved(Lower *L, Value *running, Value *now, Expr *momentum)
{
    Expr *rest = ex_sub(L->ex, ex_float(L->ex, 1), momentum);
    if (!running || !now || !rest) return NULL;
    return lower_cast(L,
                      add(L, AS(L, mul_Tensor, v(running), arg_expr(rest)),
                          AS(L, mul_Tensor, v(lower_cast(L, now, running->dtype)), arg_expr(momentum))),
                      running->dtype);
}

/* Running statistics after a step: of the mean, and of the variance with n - 1 below.
 * As results of the functional form, or written. */
static bool move_running(Lower *L, const Value *x, Value *mean, Value *var, Value **moved_mean, Value **moved_var)
{
    int m = op_param(L->op, "momentum");
    Expr *n = ex_int(L->ex, 1), *momentum = m < 0 ? NULL : lower_expr(L, m);
    for (int i = 0; i < x->rank; i++)
        if (i != 1) n = ex_mul(L->ex, n, x->dim[i]);
    if (!momentum || !n)
        return fail(L->err, E_UNSUPPORTED, "%s in training mode: call model.eval() before exporting", L->op->name);
    Expr *ratio = ex_make(L->ex, EX_TRUEDIV, ex_make(L->ex, EX_TOFLOAT, n, NULL, NULL),
                          ex_make(L->ex, EX_TOFLOAT, ex_sub(L->ex, n, ex_int(L->ex, 1)), NULL, NULL), NULL);
    *moved_mean = moved(L, lower_value(L, 3), mean, momentum);
    *moved_var = moved(L, lower_value(L, 4), ratio ? AS(L, mul_Tensor, v(var), arg_expr(ratio)) : NULL, momentum);
    return *moved_mean && *moved_var;
}

/* Batch norm by the mean and variance over all dims but 1; those and 1 / sqrt(var + eps) are results of the native
 * form. In training, running statistics, where there are any, move towards those of the batch. */
bool lower_batch_statistics(Lower *L)
{
    Value *x, *w = lower_value(L, 1), *b = lower_value(L, 2), *moved_mean = NULL, *moved_var = NULL;
    int n = 0, returns = L->op->schema->nreturns;
    int64_t dims[MAX_RANK];
    TRY(want(L, &x));
    if (x->rank < 2) return lower_fail(L, 0, "rank %d, expected at least 2", x->rank);
    for (int i = 0; i < x->rank; i++)
        if (i != 1) dims[n++] = i;
    Arg d = arg_ints(L->g, n, dims);
    Value *wide = dtype_size(x->dtype) == 2 ? lower_cast(L, x, DT_F32) : x;
    TRY(wide);
    Value *mean = AS(L, mean_dim, v(wide), d), *var = AS(L, var_correction, v(wide), d, arg_int(L->g, 0));
    Value *scale = AS(L, rsqrt, v(AS(L, add_Tensor, v(var), L->arg[op_param(L->op, "eps")])));
    if (op_param(L->op, "running_mean") >= 0 && lower_value(L, 3))
        TRY(move_running(L, x, mean, var, &moved_mean, &moved_var));
    DType t = w ? w->dtype : x->dtype; /* of the statistics as PyTorch keeps them, and normalises with them */
    mean = lower_cast(L, lower_cast(L, mean, t), wide->dtype);
    scale = lower_cast(L, lower_cast(L, scale, t), wide->dtype);
    Value *y = mul(L, AS(L, sub_Tensor, v(wide), v(per_channel(L, mean, x))), per_channel(L, scale, x));
    if (w) y = mul(L, y, per_channel(L, w, x));
    if (b) y = add(L, y, per_channel(L, b, x));
    TRY(y && (y = lower_cast(L, y, x->dtype)));
    if (moved_mean && returns < 5) { /* not of a functional form */
        L->write[L->nwrites++] = (LowerWrite){3, moved_mean};
        L->write[L->nwrites++] = (LowerWrite){4, moved_var};
    }
    if (returns == 1) return lower_return(L, y);
    Value *reserve = AS(L, full, arg_ints(L->g, 1, (int64_t[]){0}), arg_int(L->g, 0), arg_dtype(DT_U8));
    Value *out[6] = {y, lower_cast(L, mean, t), lower_cast(L, scale, t), reserve, moved_mean, moved_var};
    if (returns == 5) out[3] = moved_mean, out[4] = moved_var;
    return lower_return_values(L, returns, out);
}

/* ------------------------------------------------------------------ covariance */

/* Weights of observations: how often each counts, how much it does, or both; NULL without. */
static Value *weights(Lower *L)
{
    Value *often = lower_value(L, 2), *much = lower_value(L, 3);
    return often && much ? mul(L, often, much) : often ? often : much;
}

/* What the sum of products is divided by: the weights' sum less the correction, at least 0 */
static Value *freedom(Lower *L, Value *w, Value *total)
{
    Value *much = w ? lower_value(L, 3) : NULL;
    Arg one = arg_int(L->g, 1), less = op_param(L->op, "correction") < 0 ? one : L->arg[1];
    if (much) less = v(AS(L, mul_Tensor, v(over(L, AS(L, sum, v(mul(L, w, much))), total)), less));
    return AS(L, clamp, v(AS(L, sub_Tensor, v(total), less)), arg_int(L->g, 0));
}

/* Of variables (rows, or one vector) over observations: (x - mean) w (x - mean)^T / (sum(w) - correction) */
static Value *covariance(Lower *L, Value *x, Value *w)
{
    Expr *dim[2] = {ex_int(L->ex, 1), NULL};
    Arg last = arg_ints(L->g, 1, (int64_t[]){1}), keep = arg_bool(L->g, true);
    dim[1] = x->rank ? x->dim[x->rank - 1] : dim[0];
    bool one = x->rank < 2 || ex_equals_int(x->dim[0], 1);
    if (x->rank < 2) x = lower_reshape(L, x, 2, dim);
    Value *total = w ? AS(L, sum, v(w)) : AS(L, full, arg_ints(L->g, 0, NULL), arg_expr(dim[1]), arg_dtype(DT_I64));
    Value *mean = over(L, AS(L, sum_dim_IntList, v(w ? mul(L, x, w) : x), last, keep), total);
    Value *gap = x ? minus(L, x, mean) : NULL, *heavy = w ? mul(L, gap, w) : gap;
    Value *y = over(L, AS(L, mm, v(gap), v(AS(L, t, v(heavy)))), freedom(L, w, total));
    return one && y ? lower_reshape(L, y, 0, NULL) : y;
}

bool lower_cov(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    if (x->rank > 2) return lower_fail(L, 0, "rank %d, expected at most 2", x->rank);
    return lower_return(L, covariance(L, x, weights(L)));
}

/* The covariance over both standard deviations; of one variable 1, or NaN */
bool lower_corrcoef(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    if (x->rank > 2) return lower_fail(L, 0, "rank %d, expected at most 2", x->rank);
    Value *c = covariance(L, x, NULL);
    if (!c || !c->rank) return c && lower_return(L, over(L, c, c));
    Value *width = AS(L, sqrt, v(AS(L, diag, v(c))));
    c = over(L, over(L, c, AS(L, unsqueeze, v(width), arg_int(L->g, 1))), width);
    return lower_return(L, AS(L, clamp, v(c), arg_int(L->g, -1), arg_int(L->g, 1)));
}

/* ------------------------------------------------------------------ histograms */

/* Bounds between bins: as many steps over a range, which is that of the elements if none is given, 0 to 1 of none. A
 * range of no width gets half to each side, one that is not finite is refused. */
static Value *bounds(Lower *L, Value *x, Expr *bins, Expr *const *range)
{
    Arg type = arg_dtype(x->dtype);
    Expr *unit[2] = {ex_int(L->ex, 0), ex_int(L->ex, 1)};
    if (!range && ex_equals_int(x->dim[0], 0)) range = unit;
    Value *lo = range ? AS(L, full, arg_ints(L->g, 0, NULL), arg_expr(range[0]), type) : AS(L, amin, v(x));
    Value *hi = range ? AS(L, full, arg_ints(L->g, 0, NULL), arg_expr(range[1]), type) : AS(L, amax, v(x));
    if (!lo || !hi) return NULL;
    Value *more = AS(L, mul_Tensor, v(AS(L, eq_Tensor, v(lo), v(hi))), arg_float(L->g, 0.5));
    Arg steps = arg_expr(ex_add(L->ex, bins, ex_int(L->ex, 1)));
    Value *e = AS(L, linspace_Tensor_Tensor, v(AS(L, sub_Tensor, v(lo), v(more))), v(add(L, hi, more)), steps, type);
    return range ? e : lower_only_if(L, AS(L, isfinite, v(e)), e);
}

/* Weights (ones) are added at the bin of each element, whose coordinates are x[0] .. x[n - 1], and those of others one
 * bin further; the last bins hold their upper bounds, too. density: over their sum and the bins' widths. */
static Value *histogram(Lower *L, int n, Value *const *x, Value *const *edges, Value *weight, bool density)
{
    Arg first = arg_int(L->g, 0), one = arg_int(L->g, 1), last = arg_int(L->g, -1), right = arg_bool(L->g, true);
    Value *at = NULL, *inside = NULL, *size = NULL;
    Expr *bins[MAX_RANK], *all = ex_int(L->ex, 1);
    for (int i = 0; i < n; i++) {
        Value *e = edges[i];
        bins[i] = ex_sub(L->ex, e->dim[0], ex_int(L->ex, 1));
        all = ex_mul(L->ex, all, bins[i]);
        Value *k = AS(L, searchsorted_Tensor, v(e), v(x[i]), arg_bool(L->g, false), right);
        k = AS(L, clamp, v(AS(L, sub_Tensor, v(k), one)), arg_none(),
               arg_expr(ex_sub(L->ex, bins[i], ex_int(L->ex, 1))));
        Value *low = AS(L, select_int, v(e), first, first), *high = AS(L, select_int, v(e), first, last);
        Value *in = AS(L, logical_and, v(AS(L, ge_Tensor, v(x[i]), v(low))), v(AS(L, le_Tensor, v(x[i]), v(high))));
        Value *width = AS(L, diff, v(e));
        if (!k || !in || !width) return NULL;
        at = at ? add(L, AS(L, mul_Tensor, v(at), arg_expr(bins[i])), k) : k;
        inside = inside ? AS(L, logical_and, v(inside), v(in)) : in;
        size = size ? mul(L, AS(L, unsqueeze, v(size), last), width) : width;
    }
    if (!at) return NULL;
    at = AS(L, where_self, v(inside), v(at), arg_expr(all));
    Expr *room = ex_add(L->ex, all, ex_int(L->ex, 1));
    Value *part = weight ? AS(L, ravel, v(weight)) : AS(L, ones_like, v(x[0]));
    Value *none = AS(L, full, arg_exprs(L->g, 1, &room), first, arg_dtype(x[0]->dtype));
    Value *hist = AS(L, scatter_add, v(none), first, v(at), v(part));
    hist = AS(L, slice_Tensor, v(hist), first, first, arg_expr(all), one);
    hist = hist ? lower_reshape(L, hist, n, bins) : NULL;
    if (density) hist = AS(L, div_Tensor, v(hist), v(mul(L, AS(L, sum, v(hist)), size)));
    return hist;
}

bool lower_histogram(Lower *L)
{
    Value *x, *edges = lower_value(L, 1), *weight = lower_value(L, op_param(L->op, "weight"));
    bool density;
    int range = op_param(L->op, "range");
    TRY(want(L, &x) && lower_const_bool(L, op_param(L->op, "density"), &density));
    TRY((x = AS(L, ravel, v(x))));
    bool fixed = range >= 0 && L->arg[range].kind == ARG_EXPRS && L->arg[range].n == 2;
    if (!edges) edges = bounds(L, x, L->arg[1].e, fixed ? L->arg[range].es : NULL);
    TRY(edges);
    Value *hist = histogram(L, 1, &x, &edges, weight, density);
    return hist && lower_return_values(L, 2, (Value *[]){hist, edges});
}

/* Of points (..., D), with bins along each axis; bins: tensors of bounds, a number for each axis, or one for all */
bool lower_histogramdd(Lower *L)
{
    Value *points, *weight = lower_value(L, op_param(L->op, "weight")), *x[MAX_RANK], *result[MAX_RANK + 1];
    bool density;
    static const Arg none = {.kind = ARG_NONE};
    int at = op_param(L->op, "range");
    const Arg *bins = &L->arg[1], *range = at < 0 ? &none : &L->arg[at];
    TRY(want(L, &points) && lower_const_bool(L, op_param(L->op, "density"), &density));
    const Expr *axes = points->rank > 1 ? points->dim[points->rank - 1] : NULL;
    if (!axes || !ex_is_int(axes) || axes->i < 1 || axes->i > MAX_RANK)
        return lower_fail(L, 0, "expected points of 1 to %d coordinates", MAX_RANK);
    int n = (int)axes->i;
    if (bins->kind != ARG_EXPR && bins->n != n)
        return lower_fail(L, 1, "bins for %d axes, expected %d", bins->n, n);
    if (range->kind == ARG_EXPRS && range->n != 2 * n)
        return lower_fail(L, 2, "%d bounds, expected %d", range->n, 2 * n);
    Expr *rows = ex_int(L->ex, 1);
    for (int i = 0; i < points->rank - 1; i++) rows = ex_mul(L->ex, rows, points->dim[i]);
    TRY((points = lower_reshape(L, points, 2, (Expr *[]){rows, ex_int(L->ex, n)})));
    for (int i = 0; i < n; i++) {
        TRY((x[i] = AS(L, select_int, v(points), arg_int(L->g, 1), arg_int(L->g, i))));
        Expr *const *fixed = range->kind == ARG_EXPRS ? range->es + (ptrdiff_t)2 * i : NULL;
        if (bins->kind == ARG_VALUES) result[i + 1] = bins->vs[i];
        else result[i + 1] = bounds(L, x[i], bins->kind == ARG_EXPR ? bins->e : bins->es[i], fixed);
        TRY(result[i + 1]);
    }
    if (L->op->id == OP__histogramdd_bin_edges) return lower_return_values(L, n, result + 1);
    result[0] = histogram(L, n, x, result + 1, weight, density);
    if (L->op->schema->nreturns == 1) return lower_return(L, result[0]);
    return result[0] && lower_return_values(L, n + 1, result);
}
