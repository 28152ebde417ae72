/* Lowering of the ops of backward passes, which a file holds that was exported with autograd inside (forces that are
 * the gradient of an energy) or by PyTorch's own export of joint graphs. What is a formula of elements is one in its
 * row (the word FORMULA). Half types are worked on in float32, as ATen does.
 *
 *     select_backward(g, [4, 5], 0, 2)     -> select_scatter(zeros(4, 5), g, 0, 2)
 *     upsample_nearest1d_backward(g, ..)   -> g and a matrix of zeros and ones
 */
#include <math.h>
#include <string.h>
#include "facts/axes.h"
#include "lower/backward.h"
#include "lower/lower_table.h"

/* All axes of x but one. */
static Arg all_but(Lower *L, const Value *x, int axis)
{
    int64_t dims[MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != axis) dims[n++] = i;
    return arg_ints(L->g, n, dims);
}

static bool give(Lower *L, Value *y, DType t) { return y && lower_return(L, lower_cast(L, y, t)); }

/* ------------------------------------------------------------------ parts of a tensor */

bool lower_select_backward(Lower *L)
{
    Value *g = lower_value(L, 0), *zeros = g ? blank(L, L->arg[1], g->dtype) : NULL;
    if (!g) return lower_fail(L, 0, "expected a tensor");
    if (!zeros) return false;
    if (L->op->id == OP_select_backward)
        return lower_return(L, AS(L, select_scatter, v(zeros), v(g), L->arg[2], L->arg[3]));
    if (L->op->id == OP_slice_backward)
        return lower_return(L, AS(L, slice_scatter, v(zeros), v(g), L->arg[2], L->arg[3], L->arg[4], L->arg[5]));
    if (L->op->id == OP_diagonal_backward)
        return lower_return(L, AS(L, diagonal_scatter, v(zeros), v(g), L->arg[2], L->arg[3], L->arg[4]));
    return lower_return(L, AS(L, index_add, v(zeros), L->arg[2], L->arg[3], v(g)));
}

/* To where it was found along an axis: by the index of a maximum, a median, a gather, a running maximum. */
bool lower_selected_backward(Lower *L)
{
    OpId id = L->op->id;
    bool one = id == OP_value_selecting_reduction_backward, keeps = true;
    int at = id == OP_gather_backward ? 3 : 2, dim,
        axis = id == OP_cummaxmin_backward ? 3 : id == OP_gather_backward ? 2 : 1;
    Value *g = lower_value(L, 0), *index = lower_value(L, at), *x = one ? NULL : lower_value(L, 1);
    if (!g || !index || (!one && !x)) return lower_fail(L, 0, "expected tensors");
    int rank = one ? L->arg[3].n : x->rank;
    if (!rank) return lower_return(L, g);
    TRY(lower_dim(L, axis, rank, &dim) && (!one || lower_const_bool(L, 4, &keeps)));
    if (!keeps) g = unsqueezed(L, g, dim), index = unsqueezed(L, index, dim);
    Value *zeros = g ? blank(L, one ? L->arg[3] : arg_exprs(L->g, rank, x->dim), g->dtype) : NULL;
    return zeros && index &&
           lower_return(L, AS(L, scatter_add, v(zeros), arg_int(L->g, dim), v(index), v(g)));
}

bool lower_trace_backward(Lower *L)
{
    Value *g = lower_value(L, 0);
    if (!g || L->arg[1].n != 2) return lower_fail(L, 1, "expected two sizes");
    Expr *const *n = L->arg[1].es;
    return lower_return(L, times(L, AS(L, eye_m, arg_expr(n[0]), arg_expr(n[1]), arg_dtype(g->dtype)), g));
}

/* Where the mask is set, element k of the source was written k-th. */
bool lower_masked_scatter_backward(Lower *L)
{
    Value *g = lower_value(L, 0), *mask = lower_value(L, 1);
    if (!g || !mask) return lower_fail(L, 0, "expected tensors");
    Expr *n = product_of(L->ex, L->arg[2].n, L->arg[2].es), *more = ex_add(L->ex, n, ex_int(L->ex, 1));
    Arg along = arg_int(L->g, 0);
    mask = AS(L, ravel, v(AS(L, expand, v(mask), arg_exprs(L->g, g->rank, g->dim))));
    Value *at = mask ? AS(L, cumsum, v(lower_cast(L, mask, DT_I64)), along) : NULL;
    at = at ? where(L, mask, v(AS(L, sub_Tensor, v(at), arg_int(L->g, 1))), arg_expr(n)) : NULL; /* n: dropped */
    Value *zeros = at ? blank(L, arg_exprs(L->g, 1, &more), g->dtype) : NULL;
    Value *y = zeros ? AS(L, index_add, v(zeros), along, v(at), v(AS(L, ravel, v(g)))) : NULL;
    y = y ? AS(L, slice_Tensor, v(y), along, along, arg_expr(n), arg_int(L->g, 1)) : NULL;
    return y && lower_return(L, lower_reshape(L, y, L->arg[2].n, L->arg[2].es));
}

/* 1 / (x (1 - x)); beyond eps zero, beyond 0 and 1 NaN where there is none */
bool lower_logit_backward(Lower *L)
{
    DType t;
    TRY(lower_widened(L, 2, &t));
    Value *x = lower_value(L, 1), *slope = times(L, x, AS(L, rsub_Scalar, v(x), num(L, 1))),
          *y = over_value(L, lower_value(L, 0), slope);
    bool cut = !lower_is_none(L, 2);
    Expr *low = cut ? L->arg[2].e : ex_int(L->ex, 0);
    Arg beyond = num(L, cut ? 0 : NAN), high = arg_expr(ex_sub(L->ex, ex_int(L->ex, 1), low));
    y = y ? where(L, AS(L, lt_Tensor, v(x), arg_expr(low)), beyond, v(y)) : NULL;
    return give(L, y ? where(L, AS(L, gt_Tensor, v(x), high), beyond, v(y)) : NULL, t);
}

/* Element j of window i came from i step + j. */
bool lower_unfold_backward(Lower *L)
{
    Value *g = lower_value(L, 0);
    int axis;
    if (!g) return lower_fail(L, 0, "expected a tensor");
    TRY(lower_dim(L, 2, g->rank - 1, &axis));
    Arg d = arg_int(L->g, axis), next = arg_int(L->g, axis + 1);
    Value *step = AS(L, mul_Tensor, v(AS(L, arange, arg_expr(g->dim[axis]))), L->arg[4]),
          *at = plus(L, unsqueezed(L, step, 1), AS(L, arange, L->arg[3])),
          *windows = AS(L, flatten_using_ints, v(AS(L, movedim_int, v(g), arg_int(L->g, -1), next)), d, next),
          *zeros = at && windows ? blank(L, L->arg[1], g->dtype) : NULL;
    return zeros && lower_return(L, AS(L, index_add, v(zeros), d, v(AS(L, ravel, v(at))), v(windows)));
}

/* Where padding took its elements from, axis by axis. */
bool lower_pad_backward(Lower *L)
{
    bool mirrors = L->op->id == OP_reflection_pad1d_backward || L->op->id == OP_reflection_pad2d_backward ||
                   L->op->id == OP_reflection_pad3d_backward;
    DType t;
    TRY(lower_widened(L, 2, &t));
    Value *g = lower_value(L, 0), *x = lower_value(L, 1);
    for (int k = 0; g && k < L->arg[2].n / 2; k++) {
        int axis = x->rank - 1 - k;
        if (axis < 0) return lower_fail(L, 2, "%d numbers for rank %d", L->arg[2].n, x->rank);
        Expr *n = x->dim[axis], *low = L->arg[2].es[2 * k], *high = L->arg[2].es[2 * k + 1], *dim[MAX_RANK];
        Arg last = arg_expr(ex_add(L->ex, n, ex_int(L->ex, -1)));
        Value *at = AS(L, arange_start, arg_expr(ex_mul(L->ex, low, ex_int(L->ex, -1))),
                       arg_expr(ex_add(L->ex, n, high)));
        if (!at) return false;
        if (!mirrors) at = AS(L, clamp, v(at), arg_int(L->g, 0), last);
        else {
            Value *from_last = AS(L, abs, v(AS(L, rsub_Scalar, v(AS(L, abs, v(at))), last)));
            at = AS(L, rsub_Scalar, v(from_last), last);
        }
        for (int i = 0; i < g->rank; i++) dim[i] = i == axis ? n : g->dim[i];
        Value *zeros = at ? blank(L, arg_exprs(L->g, g->rank, dim), g->dtype) : NULL;
        g = zeros ? AS(L, index_add, v(zeros), arg_int(L->g, axis), v(at), v(g)) : NULL;
    }
    return give(L, g, t);
}

bool lower_embedding_dense_backward(Lower *L)
{
    bool by_count;
    DType t;
    TRY(lower_const_bool(L, 4, &by_count) && lower_widened(L, 2, &t));
    Value *g = lower_value(L, 0), *ids = lower_value(L, 1);
    if (!g->rank) return lower_fail(L, 0, "rank 0, expected 1 or more");
    if (!ex_equals_int(L->arg[3].e, -1)) {
        Value *real = unsqueezed(L, AS(L, ne_Tensor, v(ids), L->arg[3]), ids->rank);
        TRY(g = where(L, real, v(g), num(L, 0)));
    }
    Arg rows = arg_values(L->g, 1, &ids);
    if (by_count) { /* how often a row occurs divides its gradient */
        Value *none = blank(L, arg_exprs(L->g, 1, &L->arg[2].e), g->dtype),
              *one = AS(L, full, arg_ints(L->g, 0, NULL), num(L, 1), arg_dtype(g->dtype)),
              *count = none && one ? AS(L, index_put, v(none), rows, v(one), arg_bool(L->g, true)) : NULL;
        g = count ? over_value(L, g, unsqueezed(L, AS(L, index_Tensor, v(count), rows), ids->rank)) : NULL;
        if (!g) return false;
    }
    Value *zeros = blank(L, arg_exprs(L->g, 2, (Expr *[]){L->arg[2].e, g->dim[g->rank - 1]}), g->dtype);
    return zeros && give(L, AS(L, index_put, v(zeros), rows, v(g), arg_bool(L->g, true)), t);
}

/* ------------------------------------------------------------------ losses */

/* The gradient of each element of the loss before it is reduced. */
static Value *of_each(Lower *L, Value *g, const Value *x)
{
    int64_t how;
    if (!g || !lower_const_int(L, op_param(L->op, "reduction"), &how)) return NULL;
    return how == 1 ? over(L, g, arg_expr(product_of(L->ex, x->rank, x->dim))) : g;
}

bool lower_difference_backward(Lower *L)
{
    DType t;
    TRY(lower_widened(L, 3, &t));
    Value *x = lower_value(L, 1), *d = minus(L, x, lower_value(L, 2)), *g = of_each(L, lower_value(L, 0), x);
    if (!d || !g) return false;
    if (L->op->id == OP_mse_loss_backward) return give(L, times(L, g, scaled(L, d, num(L, 2))), t);
    if (L->op->id == OP_binary_cross_entropy_backward) {
        Value *slope = times(L, AS(L, rsub_Scalar, v(x), num(L, 1)), x);
        slope = slope ? AS(L, clamp, v(slope), num(L, 1e-12)) : NULL;
        g = over_value(L, times(L, g, d), slope);
        return give(L, lower_is_none(L, 3) ? g : times(L, g, lower_value(L, 3)), t);
    }
    Expr *edge = L->arg[4].e;
    Arg high = arg_expr(edge), low = arg_expr(ex_mul(L->ex, edge, ex_int(L->ex, -1)));
    if (L->op->id == OP_huber_loss_backward) return give(L, times(L, g, AS(L, clamp, v(d), low, high)), t);
    Value *line = over(L, d, high);
    line = line ? where(L, AS(L, ge_Tensor, v(d), high), num(L, 1), v(line)) : NULL;
    line = line ? where(L, AS(L, le_Tensor, v(d), low), num(L, -1), v(line)) : NULL;
    return give(L, times(L, g, line), t);
}

/* of log(1 + exp(-target x)) */
bool lower_soft_margin_loss_backward(Lower *L)
{
    DType t;
    TRY(lower_widened(L, 3, &t));
    Value *x = lower_value(L, 1), *side = scaled(L, lower_value(L, 2), num(L, -1)),
          *g = of_each(L, lower_value(L, 0), x), *far = times(L, side, x);
    return far && give(L, times(L, times(L, g, side), AS(L, sigmoid, v(far))), t);
}

/* (grad, self, target, weight, reduction, ignore_index, total_weight): -weight where the target is */
bool lower_nll_loss_backward(Lower *L)
{
    DType t;
    int64_t how;
    TRY(lower_widened(L, 3, &t) && lower_const_int(L, 4, &how));
    Value *g = lower_value(L, 0), *x = lower_value(L, 1), *target = lower_value(L, 2), *weight = lower_value(L, 3);
    int axis = x->rank == 1 ? 0 : 1;
    Value *ignored = AS(L, eq_Tensor, v(target), L->arg[5]),
          *at = where(L, ignored, arg_int(L->g, 0), v(target));
    if (!at) return false;
    g = scaled(L, g, num(L, -1));
    if (weight) g = times(L, g, AS(L, index_Tensor, v(weight), arg_values(L->g, 1, &at)));
    if (how == 1) g = over_value(L, g, lower_value(L, 6));
    g = g ? where(L, ignored, num(L, 0), v(g)) : NULL;
    Value *zeros = g ? AS(L, zeros_like, v(x)) : NULL;
    return zeros && give(L,
                         AS(L, scatter_src, v(zeros), arg_int(L->g, axis), v(unsqueezed(L, at, axis)),
                            v(unsqueezed(L, g, axis))),
                         t);
}

/* (grad, alpha, scale, input_scale, is_result, x or the result) */
bool lower_elu_backward(Lower *L)
{
    bool result;
    Value *g = lower_value(L, 0), *x = lower_value(L, 5);
    TRY(lower_const_bool(L, 4, &result));
    if (!g || !x) return lower_fail(L, g ? 5 : 0, "expected a tensor");
    DType t = g->dtype, wide = t == DT_F16 || t == DT_BF16 ? DT_F32 : t;
    TRY((g = lower_cast(L, g, wide)) && (x = lower_cast(L, x, wide)));
    Arg depth = arg_expr(ex_mul(L->ex, L->arg[1].e, L->arg[2].e));
    Value *above = scaled(L, g, L->arg[2]), *below = scaled(L, g, L->arg[3]), *slope = NULL;
    if (result) slope = AS(L, add_Tensor, v(x), depth);
    else slope = scaled(L, AS(L, exp, v(scaled(L, x, L->arg[3]))), depth);
    below = times(L, below, slope);
    return above && below && give(L, where(L, AS(L, le_Tensor, v(x), num(L, 0)), v(below), v(above)), t);
}

/* (a sigmoid(b)) of halves a and b */
bool lower_glu_backward(Lower *L)
{
    DType t;
    int axis;
    TRY(lower_widened(L, 2, &t));
    Value *g = lower_value(L, 0), *x = lower_value(L, 1);
    TRY(lower_dim(L, 2, x->rank, &axis));
    Expr *half = ex_floordiv(L->ex, x->dim[axis], ex_int(L->ex, 2));
    Arg d = arg_int(L->g, axis);
    Value *a = AS(L, narrow, v(x), d, arg_int(L->g, 0), arg_expr(half)),
          *gate = a ? AS(L, sigmoid, v(AS(L, narrow, v(x), d, arg_expr(half), arg_expr(half)))) : NULL,
          *first = times(L, g, gate), *rest = gate ? AS(L, rsub_Scalar, v(gate), num(L, 1)) : NULL,
          *second = times(L, times(L, first, rest), a);
    return second && give(L, AS(L, cat, arg_values(L->g, 2, (Value *[]){first, second}), d), t);
}

bool lower_prelu_backward(Lower *L)
{
    DType t;
    TRY(lower_widened(L, 3, &t));
    Value *g = lower_value(L, 0), *x = lower_value(L, 1), *w = lower_value(L, 2),
          *above = AS(L, gt_Tensor, v(x), num(L, 0)), *down = times(L, g, w), *along = times(L, g, x);
    if (!above || !down || !along) return false;
    return give_all(L, 2,
                    (Value *[]){where(L, above, v(g), v(down)), where(L, above, num(L, 0), v(along))}, t);
}

/* ------------------------------------------------------------------ norms */

/* (g - mean(g) - h mean(g h)) rstd over some axes; without the first mean where it is a root mean square */
static Value *through_norm(Lower *L, Value *g, Value *h, Value *rstd, Arg dims, bool centred)
{
    Value *gh = times(L, g, h), *along = gh ? AS(L, mean_dim, v(gh), dims, arg_bool(L->g, true)) : NULL,
          *dx = minus(L, g, times(L, h, along));
    if (centred) dx = dx ? minus(L, dx, AS(L, mean_dim, v(g), dims, arg_bool(L->g, true))) : NULL;
    return times(L, dx, rstd);
}

static Value *per_channel(Lower *L, Value *w, const Value *x)
{
    Expr *dim[MAX_RANK];
    for (int i = 0; i < x->rank; i++) dim[i] = i == 1 ? x->dim[1] : ex_int(L->ex, 1);
    return w ? lower_reshape(L, w, x->rank, dim) : NULL;
}

static Value *over_channels(Lower *L, Value *x)
{
    return x ? AS(L, sum_dim_IntList, v(x), all_but(L, x, 1)) : NULL;
}

/* (grad, input, mean, rstd, weight, N, C, HxW, groups, mask) */
bool lower_group_norm_backward(Lower *L)
{
    DType t;
    TRY(lower_widened(L, 4, &t));
    Value *g = lower_value(L, 0), *x = lower_value(L, 1), *w = lower_value(L, 4);
    if (x->rank < 2) return lower_fail(L, 1, "rank %d, expected 2 or more", x->rank);
    Expr *groups = L->arg[8].e, *one = ex_int(L->ex, 1),
         *rest = ex_mul(L->ex, ex_floordiv(L->ex, x->dim[1], groups), product_of(L->ex, x->rank - 2, x->dim + 2));
    Expr *dim[] = {x->dim[0], groups, rest}, *flat[] = {x->dim[0], groups, one};
    Value *mean = lower_reshape(L, lower_value(L, 2), 3, flat), *rstd = lower_reshape(L, lower_value(L, 3), 3, flat),
          *h = mean && rstd ? times(L, minus(L, lower_reshape(L, x, 3, dim), mean), rstd) : NULL,
          *gw = w ? times(L, g, per_channel(L, w, x)) : g,
          *dx = gw ? through_norm(L, lower_reshape(L, gw, 3, dim), h, rstd, arg_ints(L->g, 1, (int64_t[]){2}), true)
                   : NULL;
    if (!dx) return false;
    Value *out[] = {shaped(L, dx, x), over_channels(L, times(L, g, shaped(L, h, x))), over_channels(L, g)};
    return give_all(L, 3, out, t);
}

/* (grad, input, weight, running mean, running variance, mean, rstd, train, eps, mask): without training both are the
 * running ones */
bool lower_batch_norm_backward(Lower *L)
{
    DType t;
    bool train;
    TRY(lower_widened(L, 2, &t) && lower_const_bool(L, 7, &train));
    Value *g = lower_value(L, 0), *x = lower_value(L, 1), *w = lower_value(L, 2);
    Value *mean = lower_value(L, train ? 5 : 3), *rstd = lower_value(L, train ? 6 : 4);
    if (x->rank < 2) return lower_fail(L, 1, "rank %d, expected 2 or more", x->rank);
    if (!mean || !rstd) return lower_fail(L, train ? 5 : 3, "expected a tensor");
    if (!train) rstd = AS(L, rsqrt, v(AS(L, add_Tensor, v(rstd), L->arg[8])));
    rstd = per_channel(L, rstd, x);
    Value *h = times(L, minus(L, x, per_channel(L, mean, x)), rstd), *gw = w ? times(L, g, per_channel(L, w, x)) : g,
          *dx = !train ? times(L, gw, rstd) : through_norm(L, gw, h, rstd, all_but(L, x, 1), true);
    return give_all(L, 3, (Value *[]){dx, over_channels(L, times(L, g, h)), over_channels(L, g)}, t);
}

/* (grad, input, normalized_shape, rstd, weight, mask) */
bool lower_rms_norm_backward(Lower *L)
{
    DType t;
    TRY(lower_widened(L, 2, &t));
    Value *g = lower_value(L, 0), *x = lower_value(L, 1), *rstd = lower_value(L, 3), *w = lower_value(L, 4);
    int n = L->arg[2].n, lead = x->rank - n;
    if (!rstd) return lower_fail(L, 3, "expected a tensor");
    if (n > x->rank) return lower_fail(L, 2, "%d sizes for rank %d", n, x->rank);
    int64_t last[MAX_RANK], first[MAX_RANK];
    for (int i = 0; i < n; i++) last[i] = lead + i;
    for (int i = 0; i < lead; i++) first[i] = i;
    Value *h = times(L, x, rstd), *gw = w ? times(L, g, w) : g,
          *dx = through_norm(L, gw, h, rstd, arg_ints(L->g, n, last), false), *dw = times(L, g, h);
    if (dw && lead) dw = AS(L, sum_dim_IntList, v(dw), arg_ints(L->g, lead, first));
    return give_all(L, 2, (Value *[]){dx, dw}, t);
}

/* (grad, v, g, norms, axis) of w = v g / |v| */
bool lower_weight_norm_backward(Lower *L)
{
    DType t;
    TRY(lower_widened(L, 4, &t));
    Value *grad = lower_value(L, 0), *x = lower_value(L, 1), *norm = lower_value(L, 3);
    int axis;
    TRY(lower_dim(L, 4, x->rank, &axis));
    Value *part = times(L, grad, x),
          *sum = part ? AS(L, sum_dim_IntList, v(part), all_but(L, x, axis), arg_bool(L->g, true)) : NULL,
          *dg = over_value(L, sum, norm), *unit = over_value(L, x, norm),
          *across = minus(L, grad, times(L, unit, dg)), *dx = over_value(L, times(L, across, lower_value(L, 2)), norm);
    return give_all(L, 2, (Value *[]){dx, dg}, t);
}

/* ------------------------------------------------------------------ pooling, resizing */

/* g by a matrix of (outputs, inputs) along axis -i */
static Value *by_matrix(Lower *L, Value *g, Value *m, int i)
{
    if (!g || !m) return NULL;
    if (i == 2) return product(L, AS(L, mT, v(m)), g);
    Arg axis = arg_int(L->g, -i), last = arg_int(L->g, -1);
    Value *y = product(L, i == 1 ? g : AS(L, movedim_int, v(g), axis, last), m);
    return i == 1 ? y : AS(L, movedim_int, v(y), last, axis);
}

/* Of output o the mean of inputs from o n / m to (o + 1) n / m, rounded outwards. */
static Value *adaptive_matrix(Lower *L, Expr *n, Expr *m, DType t)
{
    Arg one = arg_int(L->g, 1), all = arg_expr(n), outs = arg_expr(m);
    Value *in = AS(L, arange, all), *out = unsqueezed(L, AS(L, arange, outs), 1);
    if (!in || !out) return NULL;
    Value *low = AS(L, floor_divide, v(AS(L, mul_Tensor, v(out), all)), outs),
          *end = scaled(L, AS(L, add_Tensor, v(out), one), all);
    end = end ? AS(L, floor_divide, v(AS(L, sub_Tensor, v(AS(L, add_Tensor, v(end), outs)), one)), outs) : NULL;
    Value *count = minus(L, end, low);
    if (!count) return NULL;
    Value *inside = AS(L, logical_and, v(AS(L, ge_Tensor, v(in), v(low))), v(AS(L, lt_Tensor, v(in), v(end))));
    return where(L, inside, v(AS(L, reciprocal, v(lower_cast(L, count, t)))), num(L, 0));
}

bool lower_adaptive_avg_pool_backward(Lower *L)
{
    DType t;
    TRY(lower_widened(L, 2, &t));
    Value *g = lower_value(L, 0), *x = lower_value(L, 1);
    int n = L->op->id == OP__adaptive_avg_pool3d_backward ? 3 : 2;
    if (x->rank < n || g->rank != x->rank) return lower_fail(L, 1, "rank %d, expected %d or %d", x->rank, n + 1, n + 2);
    for (int i = 1; g && i <= n; i++)
        g = by_matrix(L, g, adaptive_matrix(L, x->dim[x->rank - i], g->dim[x->rank - i], g->dtype), i);
    return give(L, g, t);
}

/* (grad, self, kernel, stride, padding, ceil_mode, count_include_pad, divisor): each output adds its share to every
 * element of its window */
bool lower_avg_pool_backward(Lower *L)
{
    DType t;
    bool ceil_mode, padded;
    TRY(lower_widened(L, 2, &t) && lower_const_bool(L, 5, &ceil_mode) && lower_const_bool(L, 6, &padded));
    Value *g = lower_value(L, 0), *x = lower_value(L, 1);
    int n = L->op->id == OP_avg_pool3d_backward ? 3 : 2, lead = x->rank - n;
    const Arg *k = &L->arg[2], *s = L->arg[3].n ? &L->arg[3] : k, *p = &L->arg[4];
    if (lead < 0 || !k->n) return lower_fail(L, 1, "rank %d, expected %d or more", x->rank, n);
    if (g->rank != x->rank) return lower_fail(L, 0, "rank %d, expected %d", g->rank, x->rank);
    Expr *one = ex_int(L->ex, 1), *minus_one = ex_int(L->ex, -1), *outs[5],
         *flat[5] = {product_of(L->ex, lead, x->dim), one}, *ones[5] = {one, one}, *extra[3], *stride[3], *pad[3],
         *area = one, *crop[6], *around[6];
    outs[0] = flat[0], outs[1] = one;
    for (int i = 0; i < n; i++) {
        Expr *size = k->es[k->n == 1 ? 0 : i], *in = x->dim[lead + i], *out = g->dim[lead + i];
        stride[i] = s->es[s->n == 1 ? 0 : i], pad[i] = p->n ? p->es[p->n == 1 ? 0 : i] : ex_int(L->ex, 0);
        ones[2 + i] = size, flat[2 + i] = in, outs[2 + i] = out, area = ex_mul(L->ex, area, size);
        Expr *covered = ex_add(L->ex, ex_mul(L->ex, ex_add(L->ex, out, minus_one), stride[i]), size);
        covered = ex_add(L->ex, covered, ex_mul(L->ex, pad[i], ex_int(L->ex, -2)));
        extra[i] = ex_add(L->ex, in, ex_mul(L->ex, covered, minus_one));
        Expr *past = ex_mul(L->ex, extra[i], minus_one); /* ceil_mode: how far the last windows reach beyond it */
        int at = 2 * (n - 1 - i);
        crop[at] = ex_mul(L->ex, pad[i], minus_one), crop[at + 1] = ex_sub(L->ex, extra[i], pad[i]);
        around[at] = padded ? ex_int(L->ex, 0) : pad[i], around[at + 1] = ex_add(L->ex, past, around[at]);
        if (ceil_mode && padded) flat[2 + i] = ex_add(L->ex, in, ex_mul(L->ex, pad[i], ex_int(L->ex, 2)));
        if (ceil_mode) extra[i] = pad[i] = ex_int(L->ex, 0);
    }
    Arg kernel = v(AS(L, full, arg_exprs(L->g, 2 + n, ones), num(L, 1), arg_dtype(g->dtype))),
        stride_arg = arg_exprs(L->g, n, stride), pad_arg = arg_exprs(L->g, n, pad),
        single = arg_ints(L->g, n, (int64_t[]){1, 1, 1}), none = arg_ints(L->g, n, (int64_t[]){0, 0, 0});
    if (!kernel.v) return false;
    g = lower_reshape(L, g, 2 + n, outs);
    if (!lower_is_none(L, 7)) g = over(L, g, L->arg[7]);
    else if (padded && !ceil_mode) g = over(L, g, arg_expr(area));
    else {
        flat[0] = one;
        Value *all = AS(L, full, arg_exprs(L->g, 2 + n, flat), num(L, 1), arg_dtype(kernel.v->dtype));
        if (all && ceil_mode) all = AS(L, constant_pad_nd, v(all), arg_exprs(L->g, 2 * n, around));
        Value *count = all ? AS(L, convolution, v(all), kernel, arg_none(), stride_arg, pad_arg, single,
                                arg_bool(L->g, false), none, arg_int(L->g, 1))
                           : NULL;
        g = over_value(L, g, count);
    }
    Value *dx = g ? AS(L, convolution, v(g), kernel, arg_none(), stride_arg, pad_arg, single, arg_bool(L->g, true),
                       arg_exprs(L->g, n, extra), arg_int(L->g, 1))
                  : NULL;
    if (dx && ceil_mode) dx = AS(L, constant_pad_nd, v(dx), arg_exprs(L->g, 2 * n, crop));
    return dx && give(L, shaped(L, dx, x), t);
}

/* What resampling axis k of n makes of each input alone: (outputs, inputs). */
static Value *resize_matrix(Lower *L, const Op *forward, int k, int n, DType t)
{
    Expr *in = L->arg[2].es[2 + k], *out = L->arg[1].es[k], *one = ex_int(L->ex, 1), *size[3] = {one, one, one},
         *unit[5] = {in, one, one, one, one};
    Arg arg[6];
    int to_corners = op_param(L->op, "align_corners"), nargs = 2;
    unit[2 + k] = in, size[k] = out;
    arg[0] = v(lower_reshape(L, AS(L, eye, arg_expr(in), arg_dtype(t)), 2 + n, unit));
    arg[1] = arg_exprs(L->g, n, size);
    if (to_corners >= 0) arg[nargs++] = L->arg[to_corners];
    Arg scale = L->arg[L->op->schema->nparams - n + k];
    for (int i = 0; i < n; i++) arg[nargs++] = i == k || scale.kind == ARG_NONE ? scale : num(L, 1);
    Value *y = arg[0].v ? lower_as(L, forward->id, nargs, arg) : NULL;
    return y ? AS(L, mT, v(lower_reshape(L, y, 2, (Expr *[]){in, out}))) : NULL;
}

/* (grad, output_size, input_size, [align_corners,] a scale an axis): resampling is linear, axis by axis */
bool lower_upsample_backward(Lower *L)
{
    DType t;
    TRY(lower_widened(L, 1, &t));
    Value *g = lower_value(L, 0);
    int n = L->arg[1].n, rank = g->rank, before = (int)(strstr(L->op->name, "_backward") - L->op->name);
    const char *name = arena_printf(L->g->arena, "%.*s.default", before, L->op->name);
    if (!name) return oom(L->err);
    const Op *forward = op_find(name);
    if (!forward || n > 3 || rank != n + 2 || L->arg[2].n != rank)
        return lower_fail(L, 0, "rank %d, expected %d", rank, n + 2);
    for (int i = 1; g && i <= n; i++) g = by_matrix(L, g, resize_matrix(L, forward, n - i, n, g->dtype), i);
    return give(L, g, t);
}

/* ------------------------------------------------------------------ distances */

/* sum over j of g[i, j] times the derivative of |a[i] - b[j]| by a[i], of norm p */
static Value *through_distances(Lower *L, Value *g, Value *a, Value *b, Value *far, Arg norm)
{
    double p = norm.kind == ARG_EXPR && ex_is_const(norm.e) ? ex_number(norm.e) : -1;
    if (!(p >= 0)) {
        fail(L->err, E_UNSUPPORTED, "the gradient of distances of a norm that is not a constant of 0 or more");
        return NULL;
    }
    Value *d = minus(L, unsqueezed(L, a, a->rank - 1), unsqueezed(L, b, b->rank - 2));
    g = unsqueezed(L, g, a->rank), far = unsqueezed(L, far, a->rank);
    if (!d || !g || !far) return NULL;
    Value *side = AS(L, sign, v(d)), *away = AS(L, abs, v(d)), *same = AS(L, eq_Tensor, v(far), num(L, 0));
    if (p == 0) d = scaled(L, side, num(L, 0));
    else if (p == 1) d = side;
    else if (isinf(p)) {
        Value *most = AS(L, amax, v(away), arg_ints(L->g, 1, (int64_t[]){-1}), arg_bool(L->g, true));
        d = where(L, AS(L, eq_Tensor, v(away), v(most)), v(side), num(L, 0));
    }
    else {
        Value *part = over_value(L, away, far);
        part = part ? AS(L, pow_Tensor_Scalar, v(part), num(L, p - 1)) : NULL;
        if (p < 1 && away) same = AS(L, logical_or, v(same), v(AS(L, eq_Tensor, v(away), num(L, 0))));
        d = times(L, side, part);
        d = d ? where(L, same, num(L, 0), v(d)) : NULL;
    }
    d = times(L, d, g);
    return d ? AS(L, sum_dim_IntList, v(d), arg_ints(L->g, 1, (int64_t[]){-2})) : NULL;
}

/* (grad, a, b, p, distances) */
bool lower_cdist_backward(Lower *L)
{
    DType t;
    TRY(lower_widened(L, 3, &t));
    Value *far = lower_value(L, 4);
    if (!far) return lower_fail(L, 4, "expected a tensor");
    return give(L, through_distances(L, lower_value(L, 0), lower_value(L, 1), lower_value(L, 2), far, L->arg[3]), t);
}

/* The elements of all pairs i < j as a symmetric matrix. */
static Value *both_ways(Lower *L, Value *pairs, Expr *n)
{
    Value *at = AS(L, arange, arg_expr(n)), *above = AS(L, gt_Tensor, v(at), v(unsqueezed(L, at, 1)));
    Value *zeros = blank(L, arg_exprs(L->g, 2, (Expr *[]){n, n}), pairs->dtype),
          *half = above && zeros ? AS(L, masked_scatter, v(zeros), v(above), v(pairs)) : NULL;
    return half ? plus(L, half, AS(L, mT, v(half))) : NULL;
}

/* (grad, x, p, distances) of all pairs of rows */
bool lower_pdist_backward(Lower *L)
{
    DType t;
    TRY(lower_widened(L, 2, &t));
    Value *g = lower_value(L, 0), *x = lower_value(L, 1), *far = lower_value(L, 3);
    if (!far || x->rank != 2) return lower_fail(L, far ? 1 : 3, "expected a matrix, and distances");
    g = both_ways(L, g, x->dim[0]), far = both_ways(L, far, x->dim[0]);
    return g && far && give(L, through_distances(L, g, x, x, far, L->arg[2]), t);
}
