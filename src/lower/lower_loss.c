/* Lowering of losses: the formula of each on plain rows, then `reduction` (0 none, 1 mean, 2 sum).
 *
 *     huber_loss(x, y, 1, d)  -> mean(where(|x - y| <= d, (x - y)^2 / 2, d (|x - y| - d / 2)))
 *     nll_loss(x, t)          -> sum(-gather(x, t)) / count of the targets that are not ignored
 */
#include "lower/lower_table.h"

static Arg num(Lower *L, double n) { return arg_float(L->g, n); }
static Value *add(Lower *L, Arg a, Arg b) { return AS(L, add_Tensor, a, b); }
static Value *sub(Lower *L, Arg a, Arg b) { return AS(L, sub_Tensor, a, b); }
static Value *mul(Lower *L, Arg a, Arg b) { return AS(L, mul_Tensor, a, b); }
static Value *quotient(Lower *L, Arg a, Arg b) { return AS(L, div_Tensor, a, b); }
static Value *neg(Lower *L, Value *x) { return AS(L, neg, v(x)); }
static Value *choose(Lower *L, Value *c, Arg a, Arg b) { return AS(L, where_self, v(c), a, b); }
static Value *at_least(Lower *L, Value *x, double low) { return AS(L, clamp, v(x), num(L, low)); }
static Value *above_0(Lower *L, Value *x) /* 0 of NaN, and no slope at 0 */
{
    return choose(L, AS(L, gt_Tensor, v(x), num(L, 0)), v(x), num(L, 0));
}
static Value *sum_all(Lower *L, Value *x) { return AS(L, sum, v(x)); }
static Value *sum_dim(Lower *L, Value *x, int d)
{
    return AS(L, sum_dim_IntList, v(x), arg_ints(L->g, 1, (int64_t[]){d}));
}

static bool tensors(Lower *L, int n)
{
    for (int i = 0; i < n; i++)
        if (!lower_value(L, i)) return lower_fail(L, i, "expected a tensor");
    return true;
}

static bool reduction(Lower *L, int64_t *how) { return lower_const_int(L, op_param(L->op, "reduction"), how); }

static bool finish(Lower *L, Value *loss)
{
    int64_t how;
    TRY(reduction(L, &how));
    return lower_return(L, how == 0 ? loss : how == 1 ? AS(L, mean, v(loss)) : sum_all(L, loss));
}

/* ------------------------------------------------------------------ of differences */

bool lower_mse_loss(Lower *L)
{
    Value *d = sub(L, L->arg[0], L->arg[1]);
    return finish(L, L->op->id == OP_mse_loss ? AS(L, square, v(d)) : AS(L, abs, v(d)));
}

/* d^2 / 2 up to delta, a line of slope delta beyond; smooth_l1 is the same over beta */
bool lower_huber_loss(Lower *L)
{
    bool smooth = L->op->id == OP_smooth_l1_loss;
    Arg edge = L->arg[3], half_edge = arg_expr(ex_mul(L->ex, edge.e, ex_float(L->ex, 0.5)));
    Value *d = AS(L, abs, v(sub(L, L->arg[0], L->arg[1])));
    /* the bow of an infinite d would have NaN as its gradient */
    Value *near = AS(L, where_ScalarSelf, v(AS(L, gt_Scalar, v(d), edge)), edge, v(d));
    Value *bow = mul(L, v(mul(L, v(near), num(L, 0.5))), v(near)), *line = sub(L, v(d), half_edge);
    if (smooth) return finish(L, choose(L, AS(L, lt_Tensor, v(d), edge), v(quotient(L, v(bow), edge)), v(line)));
    Value *loss = choose(L, AS(L, le_Tensor, v(d), edge), v(bow), v(mul(L, v(line), edge)));
    return loss &&
           finish(L,
                  lower_cast(L, loss, lower_value(L, 0)->dtype)); /* huber_loss alone keeps the first operand's dtype */
}

/* ------------------------------------------------------------------ of probabilities */

static Value *weighted(Lower *L, Value *loss, int i) { return lower_is_none(L, i) ? loss : mul(L, v(loss), L->arg[i]); }

/* The row without weight and reduction: its gradient is PyTorch's, which has a bound where the logarithm's has none. */
bool lower_bce(Lower *L)
{
    Arg x[] = {L->arg[0], L->arg[1], arg_none(), arg_int(L->g, 0)};
    Value *p, *t;
    TRY(lower_two(L, 0, 1, &p, &t));
    if (p->dtype != t->dtype)
        return lower_fail(L, 1, "%s for an input of %s", dtype_name(t->dtype), dtype_name(p->dtype));
    return finish(L, weighted(L, lower_emit(L, L->op->id, 4, x), 2));
}

/* (1 - t) x - (1 + (pos_weight - 1) t) log(sigmoid(x)) */
bool lower_bce_logits(Lower *L)
{
    Value *yes = AS(L, log_sigmoid, L->arg[0]);
    if (!lower_is_none(L, 3))
        yes = mul(L, v(yes), v(add(L, v(mul(L, v(sub(L, L->arg[3], num(L, 1))), L->arg[1])), num(L, 1))));
    Value *no = mul(L, v(sub(L, num(L, 1), L->arg[1])), L->arg[0]);
    return finish(L, weighted(L, sub(L, v(no), v(yes)), 2));
}

/* t (log t - x); with log_target: exp(t) (t - x) */
bool lower_kl_div(Lower *L)
{
    bool log_target;
    TRY(lower_const_bool(L, 3, &log_target));
    if (log_target) return finish(L, mul(L, v(AS(L, exp, L->arg[1])), v(sub(L, L->arg[1], L->arg[0]))));
    return finish(L, sub(L, v(AS(L, xlogy_Tensor, L->arg[1], L->arg[1])), v(mul(L, L->arg[1], L->arg[0]))));
}

/* exp(x) - t x, or x - t log(x + eps); full: plus Stirling's log t! above 1 */
bool lower_poisson_nll_loss(Lower *L)
{
    bool log_input, full;
    Arg x = L->arg[0], t = L->arg[1];
    TRY(lower_const_bool(L, 2, &log_input) && lower_const_bool(L, 3, &full));
    Value *loss = log_input ? sub(L, v(AS(L, exp, x)), v(mul(L, t, x)))
                            : sub(L, x, v(mul(L, t, v(AS(L, log, v(add(L, x, L->arg[4])))))));
    if (full) {
        Value *tail = mul(L, v(AS(L, log, v(mul(L, t, num(L, 6.283185307179586476925))))), num(L, 0.5));
        Value *more = add(L, v(sub(L, v(mul(L, t, v(AS(L, log, t)))), t)), v(tail));
        loss = add(L, v(loss), v(choose(L, AS(L, le_Tensor, t, num(L, 1)), num(L, 0), v(more))));
    }
    return finish(L, loss);
}

/* ------------------------------------------------------------------ of margins */

/* 1 - cos where the target is 1, cos - margin (at least 0) where it is -1 */
bool lower_cosine_embedding_loss(Lower *L)
{
    TRY(tensors(L, 3));
    Value *a = lower_value(L, 0), *b = lower_value(L, 1), *t = lower_value(L, 2);
    int d = t->rank ? 1 : 0;
    Value *na = add(L, v(sum_dim(L, AS(L, square, v(a)), d)), num(L, 1e-12)),
          *nb = add(L, v(sum_dim(L, AS(L, square, v(b)), d)), num(L, 1e-12));
    Value *c = quotient(L, v(sum_dim(L, mul(L, v(a), v(b)), d)), v(AS(L, sqrt, v(mul(L, v(na), v(nb))))));
    Value *near = choose(L, AS(L, eq_Tensor, v(t), num(L, 1)), v(sub(L, num(L, 1), v(c))), num(L, 0));
    Value *far = choose(L, AS(L, eq_Tensor, v(t), num(L, -1)), v(at_least(L, sub(L, v(c), L->arg[3]), 0)), num(L, 0));
    return finish(L, add(L, v(near), v(far)));
}

/* x where the target is 1, margin - x (at least 0) where it is -1, their sum elsewhere */
bool lower_hinge_embedding_loss(Lower *L)
{
    Arg x = L->arg[0], t = L->arg[1];
    Value *far = choose(L, AS(L, ne_Tensor, t, num(L, 1)), v(at_least(L, sub(L, L->arg[2], x), 0)), num(L, 0));
    return finish(L, add(L, v(far), v(choose(L, AS(L, ne_Tensor, t, num(L, -1)), x, num(L, 0)))));
}

bool lower_margin_ranking_loss(Lower *L)
{
    Value *d = mul(L, L->arg[2], v(sub(L, L->arg[1], L->arg[0])));
    return finish(L, at_least(L, add(L, v(d), L->arg[3]), 0));
}

bool lower_soft_margin_loss(Lower *L)
{
    Value *x = neg(L, mul(L, L->arg[0], L->arg[1]));
    return finish(L, AS(L, log1p, v(AS(L, exp, v(x)))));
}

bool lower_triplet_margin_loss(Lower *L)
{
    bool swap;
    TRY(lower_const_bool(L, 6, &swap));
    Value *near = AS(L, pairwise_distance, L->arg[0], L->arg[1], L->arg[4], L->arg[5]);
    Value *far = AS(L, pairwise_distance, L->arg[0], L->arg[2], L->arg[4], L->arg[5]);
    if (swap) far = AS(L, minimum, v(far), v(AS(L, pairwise_distance, L->arg[1], L->arg[2], L->arg[4], L->arg[5])));
    return finish(L, at_least(L, add(L, v(sub(L, v(near), v(far))), L->arg[3]), 0));
}

/* ------------------------------------------------------------------ of classes */

/* What the losses of classes share: (C), (N, C) or (N, C, ...) against (), (N) or (N, ...). */
typedef struct Classes {
    Value *x, *valid, *safe; /* target that is not ignored; target, 0 where ignored */
    Value *weight;           /* of each target, 0 where ignored */
    int dim;
} Classes;

static bool classes(Lower *L, Value *x, Value *t, Arg weight, Arg ignore, Classes *c)
{
    if (!x || !t || !x->rank || t->rank != x->rank - 1)
        return lower_fail(L, 1, "rank %d for an input of rank %d", t ? t->rank : 0, x ? x->rank : 0);
    t = lower_cast(L, t, DT_I64);
    *c = (Classes){.x = x, .dim = x->rank > 1};
    c->valid = AS(L, ne_Tensor, v(t), ignore);
    c->safe = choose(L, c->valid, v(t), arg_int(L->g, 0));
    TRY(c->safe);
    if (weight.kind == ARG_NONE) c->weight = lower_cast(L, c->valid, x->dtype);
    else c->weight = choose(L, c->valid, v(AS(L, index_Tensor, weight, arg_values(L->g, 1, &c->safe))), num(L, 0));
    return c->weight != NULL;
}

static Value *of_target(Lower *L, const Classes *c)
{
    Value *at = AS(L, unsqueeze, v(c->safe), arg_int(L->g, c->dim));
    return AS(L, squeeze_dim, v(AS(L, gather, v(c->x), arg_int(L->g, c->dim), v(at))), arg_int(L->g, c->dim));
}

/* The mean is weighted; the sum of weights is a result of its own. */
static Value *nll(Lower *L, const Classes *c, int64_t how, Value **total)
{
    Value *loss = choose(L, c->valid, v(neg(L, mul(L, v(of_target(L, c)), v(c->weight)))), num(L, 0));
    *total = how == 0 ? AS(L, full, arg_ints(L->g, 0, NULL), arg_int(L->g, 0), arg_dtype(c->x->dtype))
                      : sum_all(L, c->weight);
    return how == 0 ? loss : how == 1 ? quotient(L, v(sum_all(L, loss)), v(*total)) : sum_all(L, loss);
}

bool lower_nll_loss(Lower *L)
{
    Classes c;
    int64_t how;
    TRY(reduction(L, &how) && classes(L, lower_value(L, 0), lower_value(L, 1), L->arg[2], L->arg[4], &c));
    Value *total, *loss = nll(L, &c, how, &total);
    return loss && total &&
           (L->op->schema->nreturns == 1 ? lower_return(L, loss) : lower_return_values(L, 2, (Value *[]){loss, total}));
}

/* The weights (C) along dim d of a tensor of that rank. */
static Value *weights_along(Lower *L, Value *w, int d, int rank)
{
    Expr *dim[MAX_RANK];
    for (int i = 0; i < rank; i++) dim[i] = i == d ? w->dim[0] : ex_int(L->ex, 1);
    return lower_reshape(L, w, rank, dim);
}

/* Targets are class numbers or probabilities; label smoothing mixes in the mean over the classes. */
bool lower_cross_entropy_loss(Lower *L)
{
    int64_t how;
    TRY(tensors(L, 2) && reduction(L, &how));
    Value *x = lower_value(L, 0), *t = lower_value(L, 1), *w = lower_value(L, 2), *total;
    int d = x->rank > 1;
    if (!x->rank || (w && w->rank != 1)) return lower_fail(L, 0, "expected a tensor of rank 1 or more");
    Expr *smooth = lower_expr(L, 5), *rest = ex_sub(L->ex, ex_float(L->ex, 1), smooth),
         *each = ex_make(L->ex, EX_TRUEDIV, smooth, x->dim[d], NULL);
    bool smoothed = !(ex_is_const(smooth) && (smooth->is_float ? smooth->f == 0 : smooth->i == 0));
    TRY(x = AS(L, log_softmax_int, v(x), arg_int(L->g, d)));
    Value *wx = w ? mul(L, v(x), v(weights_along(L, w, d, x->rank))) : x;
    if (dtype_is_float(t->dtype)) {
        if (smoothed) t = add(L, v(mul(L, v(t), arg_expr(rest))), arg_expr(each));
        Value *loss = neg(L, sum_dim(L, mul(L, v(wx), v(t)), d));
        return finish(L, loss); /* the mean is over all but the classes */
    }
    Classes c;
    TRY(classes(L, x, t, L->arg[2], L->arg[4], &c));
    Value *loss = nll(L, &c, how, &total);
    if (!smoothed) return lower_return(L, loss);
    Value *flat = choose(L, c.valid, v(neg(L, sum_dim(L, wx, d))), num(L, 0));
    if (how) flat = sum_all(L, flat);
    if (how == 1) flat = quotient(L, v(flat), v(total));
    return lower_return(L, add(L, v(mul(L, v(loss), arg_expr(rest))), v(mul(L, v(flat), arg_expr(each)))));
}

static Arg cast(Lower *L, int i, DType t)
{
    Value *x = lower_value(L, i);
    return x ? v(lower_cast(L, x, t)) : L->arg[i];
}

/* Of input @ linear_weight^T + linear_bias in acc_dtype; policies that spare memory keep float16's logits in float16.
 * Its gradients are results, too, which only PyTorch's autograd reads. */
bool lower_linear_cross_entropy(Lower *L)
{
    int at = op_param(L->op, "reduction"), smoothing = op_param(L->op, "label_smoothing");
    const char *how = at < 0 ? "none" : L->arg[at].s, *policy = L->arg[op_param(L->op, "acc_policy")].s;
    TRY(tensors(L, 3));
    DType own = lower_value(L, 0)->dtype, acc = L->arg[op_param(L->op, "acc_dtype")].dtype;
    bool kept = own == DT_F16 && (!strcmp(policy, "balanced") || !strcmp(policy, "compact"));
    DType t = kept ? own : acc;
    Value *logits = lower_cast(L, AS(L, linear, cast(L, 0, t), cast(L, 1, t), cast(L, 3, t)), acc);
    Value *loss = AS(L, cross_entropy_loss, v(logits), L->arg[2], cast(L, 4, acc),
                     arg_int(L->g, *how == 'n'   ? 0
                                   : *how == 'm' ? 1
                                                 : 2),
                     L->arg[op_param(L->op, "ignore_index")], smoothing < 0 ? num(L, 0) : L->arg[smoothing]);
    loss = lower_cast(L, loss, own);
    if (at < 0) return lower_return(L, loss);
    return loss && lower_return_values(L, 4, (Value *[4]){loss});
}

/* mean over the other classes of weight (margin - x[t] + x)^p, at least 0 */
bool lower_multi_margin_loss(Lower *L)
{
    Classes c;
    int64_t p;
    TRY(tensors(L, 2) && lower_const_int(L, 2, &p));
    Value *x = lower_value(L, 0), *t = lower_value(L, 1);
    if (p != 1 && p != 2) return lower_fail(L, 2, "found %lld, expected 1 or 2", (long long)p);
    if (!x->rank) TRY(x = lower_reshape(L, x, 1, (Expr *[]){ex_int(L->ex, 1)})); /* one class */
    bool one = t->rank == 1 && x->rank == 1; /* of one input; its loss has the target's rank */
    if (one) TRY(t = lower_reshape(L, t, 0, NULL));
    TRY(classes(L, x, t, L->arg[4], arg_int(L->g, INT64_MIN), &c));
    Arg last = arg_int(L->g, -1);
    Value *z = above_0(L, add(L, v(sub(L, v(x), v(AS(L, unsqueeze, v(of_target(L, &c)), last)))), L->arg[3]));
    if (p == 2) z = AS(L, square, v(z));
    if (!lower_is_none(L, 4)) z = mul(L, v(z), v(AS(L, unsqueeze, v(c.weight), last)));
    Value *all = AS(L, arange, arg_expr(c.x->dim[c.dim]));
    z = choose(L, AS(L, ne_Tensor, v(all), v(AS(L, unsqueeze, v(c.safe), last))), v(z), num(L, 0));
    Value *loss = AS(L, mean_dim, v(z), arg_ints(L->g, 1, (int64_t[]){-1}));
    if (one && loss) loss = lower_reshape(L, loss, 1, (Expr *[]){ex_int(L->ex, 1)});
    return finish(L, loss);
}

/* The targets are the labels before the first -1: for each of them and each other class i, margin 1 - x[t] + x[i], at
 * least 0; their sum over the number of classes. */
bool lower_multilabel_margin_loss(Lower *L)
{
    TRY(tensors(L, 2));
    Value *x = lower_value(L, 0), *t = lower_value(L, 1);
    Expr *one = ex_int(L->ex, 1);
    if (!x->rank) TRY(x = lower_reshape(L, x, 1, &one));
    if (!t->rank) TRY(t = lower_reshape(L, t, 1, &one));
    Arg last = arg_int(L->g, -1), before = arg_int(L->g, -2), next = arg_int(L->g, 1);
    t = lower_among(L, add(L, v(t), next), ex_add(L->ex, x->dim[x->rank - 1], one));
    t = sub(L, v(t), next);
    Value *valid = AS(L, cumprod, v(lower_cast(L, AS(L, ge_Tensor, v(t), num(L, 0)), DT_I64)), last);
    Value *safe = mul(L, v(t), v(valid));
    Value *none = AS(L, zeros_like, v(valid)), *is_target = AS(L, scatter_add, v(none), last, v(safe), v(valid));
    Value *other = AS(L, eq_Tensor, v(is_target), num(L, 0)), *own = AS(L, gather, v(x), last, v(safe));
    Value *z = sub(L, v(AS(L, unsqueeze, v(x), before)), v(AS(L, unsqueeze, v(own), last)));
    z = above_0(L, add(L, v(z), num(L, 1)));
    Value *counted = AS(L, logical_and, v(AS(L, unsqueeze, v(lower_cast(L, valid, DT_BOOL)), last)),
                        v(AS(L, unsqueeze, v(other), before)));
    Arg pairs = arg_ints(L->g, 2, (int64_t[]){-2, -1});
    Value *sums = AS(L, sum_dim_IntList, v(choose(L, counted, v(z), num(L, 0))), pairs);
    return finish(L, quotient(L, v(sums), arg_expr(x->dim[x->rank - 1])));
}
