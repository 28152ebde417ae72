/* Lowering of resampling, pooling and pixels moved between axes: every interpolate is one row (qkv.upsample),
 * one-dimensional pools are two-dimensional ones. */
#include <math.h>
#include <string.h>
#include "lower/lower_table.h"

static bool want(Lower *L, Value **x)
{
    *x = lower_value(L, 0);
    return *x || lower_fail(L, 0, "expected a tensor");
}

/* size * scale, rounded towards 0; exactly where the scale is a whole number. */
static Expr *scaled_size(Lower *L, Expr *size, Expr *scale)
{
    double f = ex_is_const(scale) ? ex_number(scale) : 0.5;
    if (fabs(f) < 0x1p62 && f == floor(f)) return ex_mul(L->ex, size, ex_int(L->ex, (int64_t)f));
    return ex_make(L->ex, EX_TRUNC, ex_mul(L->ex, ex_make(L->ex, EX_TOFLOAT, size, NULL, NULL), scale), NULL, NULL);
}

static bool upsample(Lower *L, const char *mode)
{
    Value *x;
    Expr *size[3], *scale[3];
    int corners = op_param(L->op, "align_corners"), factors = op_param(L->op, "scale_factors"),
        at = op_param(L->op, "output_size");
    TRY(want(L, &x));
    int n = x->rank - 2;
    bool scaled = false;
    if (n < 1 || n > 3) return lower_fail(L, 0, "rank %d, expected 3 to 5", x->rank);
    int axes = L->op->schema->params[at].fixed_len;
    if (axes && axes != n) return lower_fail(L, 0, "rank %d, expected %d", x->rank, axes + 2);
    const Arg *given = &L->arg[at], *by = factors >= 0 ? &L->arg[factors] : NULL;
    if (given->kind == ARG_EXPRS && given->n > 1 && given->n != n)
        return lower_fail(L, at, "%d sizes, expected %d", given->n, n);
    if (by && by->kind == ARG_EXPRS && by->n > 1 && by->n != n)
        return lower_fail(L, factors, "%d factors, expected %d", by->n, n);
    for (int i = 0; i < n; i++) {
        scale[i] = ex_float(L->ex, 0);
        if (by && by->kind == ARG_EXPRS && by->n) {
            scale[i] = by->es[by->n == 1 ? 0 : i];
            scaled = true;
        } else if (!by && at + 1 + i + (corners >= 0) < L->op->schema->nparams &&
                   lower_expr(L, at + 1 + i + (corners >= 0))) {
            scale[i] = lower_expr(L, at + 1 + i + (corners >= 0));
            scaled = true;
        }
        bool sized = given->kind == ARG_EXPRS && given->n;
        if (!sized && scaled && ex_is_const(scale[i]) && !(ex_number(scale[i]) > 0))
            return lower_fail(L, factors, "a factor of %g, expected more than 0", ex_number(scale[i]));
        if (sized) size[i] = given->es[given->n == 1 ? 0 : i];
        else if (scaled) size[i] = scaled_size(L, x->dim[2 + i], scale[i]);
        else return lower_fail(L, at, "neither sizes nor scale factors are given");
    }
    Arg align = corners >= 0 ? L->arg[corners] : arg_bool(L->g, false);
    return lower_return(L, EMIT(L, upsample, arg_value(x), arg_exprs(L->g, n, size), arg_str(L->g, mode), align,
                                scaled ? arg_exprs(L->g, n, scale) : arg_none()));
}

bool lower_nearest(Lower *L) { return upsample(L, strstr(L->op->name, "exact") ? "nearest-exact" : "nearest"); }

bool lower_resample(Lower *L)
{
    bool cubic = strstr(L->op->name, "bicubic") != NULL, aa = strstr(L->op->name, "_aa.") != NULL;
    if (strstr(L->op->name, "lanczos")) return upsample(L, "lanczos-aa");
    return upsample(L, cubic ? (aa ? "cubic-aa" : "cubic") : aa ? "linear-aa" : "linear");
}

bool lower_grid_alias(Lower *L) { return lower_return(L, lower_emit(L, OP_grid_sampler, 5, L->arg)); }

/* ------------------------------------------------------------------ pools */

/* (..., L) as (..., 1, L) */
static Value *as_plane(Lower *L, Value *x)
{
    Expr *dim[MAX_RANK];
    if (x->rank >= MAX_RANK || x->rank < 2) {
        lower_fail(L, 0, "rank %d, expected 2 or 3", x->rank);
        return NULL;
    }
    for (int i = 0; i < x->rank - 1; i++) dim[i] = x->dim[i];
    dim[x->rank - 1] = ex_int(L->ex, 1);
    dim[x->rank] = x->dim[x->rank - 1];
    return lower_reshape(L, x, x->rank + 1, dim);
}

static Value *as_line(Lower *L, Value *y)
{
    Expr *dim[MAX_RANK];
    if (!y) return NULL;
    for (int i = 0; i < y->rank - 2; i++) dim[i] = y->dim[i];
    dim[y->rank - 2] = y->dim[y->rank - 1];
    return lower_reshape(L, y, y->rank - 1, dim);
}

/* One number of a line's argument beside the number that leaves the other axis alone. */
static Arg pair(Lower *L, const Arg *a, int64_t first)
{
    Expr *e = a->kind == ARG_EXPR ? a->e : a->kind == ARG_EXPRS && a->n ? a->es[0] : NULL;
    return e ? arg_exprs(L->g, 2, (Expr *[]){ex_int(L->ex, first), e}) : *a;
}

/* Values, or values and positions in a line, which are those in the plane. */
static bool return_lines(Lower *L, Node *n)
{
    Value *y = n ? as_line(L, n->out[0]) : NULL;
    if (L->op->schema->nreturns == 1) return lower_return(L, y);
    Value *at = y ? as_line(L, n->out[1]) : NULL;
    return at && lower_return_values(L, 2, (Value *[]){y, at});
}

bool lower_max_pool(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    if (L->op->id == OP_max_pool2d) return lower_return(L, lower_emit(L, OP_max_pool2d_with_indices, 6, L->arg));
    if (L->op->id == OP_max_pool3d) return lower_return(L, lower_emit(L, OP_max_pool3d_with_indices, 6, L->arg));
    TRY(x = as_plane(L, x));
    return return_lines(L, lower_emit_node(L, OP_max_pool2d_with_indices, 6,
                                           (Arg[]){arg_value(x), pair(L, &L->arg[1], 1), pair(L, &L->arg[2], 1),
                                                   pair(L, &L->arg[3], 0), pair(L, &L->arg[4], 1), L->arg[5]}));
}

static bool is_zero(const Arg *a)
{
    bool zero = a->kind == ARG_EXPRS || (a->kind == ARG_EXPR && ex_equals_int(a->e, 0));
    for (int i = 0; a->kind == ARG_EXPRS && i < a->n; i++) zero &= ex_equals_int(a->es[i], 0);
    return zero;
}

/* One spelling: steps are those of the windows where none are given; without padding it does not matter what counts. */
bool lower_averages(Lower *L)
{
    Arg a[7];
    memcpy(a, L->arg, sizeof a);
    if (a[2].kind != ARG_EXPR && !a[2].n) a[2] = a[1];
    if (is_zero(&a[3])) a[5] = arg_bool(L->g, true);
    return lower_return(L, lower_emit(L, L->op->id, 7, a));
}

bool lower_avg_pool(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    x = as_plane(L, x);
    Value *y = x ? AS(L, avg_pool2d, arg_value(x), pair(L, &L->arg[1], 1), pair(L, &L->arg[2], 1),
                      pair(L, &L->arg[3], 0), L->arg[4], L->arg[5])
                 : NULL;
    return lower_return(L, as_line(L, y));
}

bool lower_adaptive_avg(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    if (L->op->id == OP_adaptive_avg_pool2d) return lower_return(L, lower_emit(L, OP__adaptive_avg_pool2d, 2, L->arg));
    if (L->op->id == OP_adaptive_avg_pool3d) return lower_return(L, lower_emit(L, OP__adaptive_avg_pool3d, 2, L->arg));
    x = as_plane(L, x);
    Value *y = x ? EMIT(L, _adaptive_avg_pool2d, arg_value(x), pair(L, &L->arg[1], 1)) : NULL;
    return lower_return(L, as_line(L, y));
}

bool lower_adaptive_max(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    TRY(x = as_plane(L, x));
    return return_lines(L,
                        lower_emit_node(L, OP_adaptive_max_pool2d, 2, (Arg[]){arg_value(x), pair(L, &L->arg[1], 1)}));
}

/* ------------------------------------------------------------------ columns */

bool lower_channel_shuffle(Lower *L)
{
    Value *x;
    int64_t g;
    Expr *split[MAX_RANK + 1];
    int perm[MAX_RANK + 1];
    TRY(want(L, &x) && lower_const_int(L, 1, &g));
    if (x->rank < 3 || x->rank >= MAX_RANK || g < 1) return lower_fail(L, 0, "rank %d", x->rank);
    for (int i = 0; i <= x->rank; i++) {
        split[i] = i == 0   ? x->dim[0]
                   : i == 1 ? ex_int(L->ex, g)
                   : i == 2 ? ex_floordiv(L->ex, x->dim[1], ex_int(L->ex, g))
                            : x->dim[i - 1];
        perm[i] = i == 1 ? 2 : i == 2 ? 1 : i;
    }
    Value *y = lower_permute(L, lower_reshape(L, x, x->rank + 1, split), perm);
    return y && lower_return(L, lower_reshape(L, y, x->rank, x->dim));
}

/* nn.Unfold: (N, C, H, W) -> pad, unfold both axes (dilation by slicing), (N, C kh kw, L) */
bool lower_im2col(Lower *L)
{
    Value *x;
    int64_t v[4][2];
    TRY(want(L, &x));
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 2; i++) {
            const Arg *a = &L->arg[1 + k];
            const Expr *e = a->kind == ARG_EXPRS && a->n ? a->es[a->n == 1 ? 0 : i] : NULL;
            if (!e || !ex_is_int(e)) return lower_fail(L, 1 + k, "must be constant integers");
            v[k][i] = e->i;
            if (e->i < (k != 2) || e->i > 1 << 20)
                return lower_fail(L, 1 + k, "found %lld, allowed is %d to 2^20", (long long)e->i, k != 2);
        }
    int n = x->rank - 3;
    if (n != 0 && n != 1) return lower_fail(L, 0, "rank %d, expected 3 or 4", x->rank);
    x = EMIT(L, constant_pad_nd, arg_value(x), arg_ints(L->g, 4, (int64_t[]){v[2][1], v[2][1], v[2][0], v[2][0]}),
             arg_int(L->g, 0));
    for (int i = 0; x && i < 2; i++) { /* axis n + 1 + i gets its windows as a last dim */
        int64_t span = v[1][i] * (v[0][i] - 1) + 1;
        x = EMIT(L, unfold, arg_value(x), arg_int(L->g, n + 1 + i), arg_int(L->g, span), arg_int(L->g, v[3][i]));
        if (x && v[1][i] > 1)
            x = EMIT(L, slice_Tensor, arg_value(x), arg_int(L->g, x->rank - 1), arg_int(L->g, 0), arg_int(L->g, span),
                     arg_int(L->g, v[1][i]));
    }
    TRY(x);
    int perm[MAX_RANK] = {0}; /* (N, C, oh, ow, kh, kw) -> (N, C, kh, kw, oh, ow) */
    static const int order[] = {0, 3, 4, 1, 2};
    for (int i = 0; i < 5; i++) perm[n + i] = n + order[i];
    Expr *dim[3];
    if (n) dim[0] = x->dim[0];
    dim[n] = ex_mul(L->ex, x->dim[n], ex_int(L->ex, v[0][0] * v[0][1]));
    dim[n + 1] = ex_mul(L->ex, x->dim[n + 1], x->dim[n + 2]);
    x = lower_permute(L, x, perm);
    return x && lower_return(L, lower_reshape(L, x, n + 2, dim));
}

/* Pictures (..., C, H, W) with five sizes for the last three, those in another order, and three sizes again. */
static bool reordered(Lower *L, Value *x, Expr *const *tail, const int *order, Expr *const *last)
{
    int n = x->rank - 3, perm[MAX_RANK];
    Expr *split[MAX_RANK], *out[MAX_RANK];
    for (int i = 0; i < n; i++) {
        split[i] = out[i] = x->dim[i];
        perm[i] = i;
    }
    for (int i = 0; i < 5; i++) {
        split[n + i] = tail[i];
        perm[n + i] = n + order[i];
    }
    for (int i = 0; i < 3; i++) out[n + i] = last[i];
    Value *y = lower_permute(L, lower_reshape(L, x, n + 5, split), perm);
    return y && lower_return(L, lower_reshape(L, y, n + 3, out));
}

/* (..., C r r, H, W) -> (..., C, H r, W r) */
bool lower_pixel_shuffle(Lower *L)
{
    Value *x;
    int64_t r;
    TRY(want(L, &x) && lower_const_int(L, 1, &r));
    if (x->rank < 3 || x->rank + 2 > MAX_RANK) return lower_fail(L, 0, "rank %d", x->rank);
    if (r < 1 || r > 1 << 20) return lower_fail(L, 1, "found %lld, allowed is 1 to 2^20", (long long)r);
    Expr *const *d = x->dim + x->rank - 3, *f = ex_int(L->ex, r), *c = ex_floordiv(L->ex, d[0], ex_mul(L->ex, f, f));
    return reordered(L, x, (Expr *[]){c, f, f, d[1], d[2]}, (int[]){0, 3, 1, 4, 2},
                     (Expr *[]){c, ex_mul(L->ex, d[1], f), ex_mul(L->ex, d[2], f)});
}

bool lower_pixel_unshuffle(Lower *L)
{
    Value *x;
    int64_t r;
    TRY(want(L, &x) && lower_const_int(L, 1, &r));
    if (x->rank < 3 || x->rank + 2 > MAX_RANK) return lower_fail(L, 0, "rank %d", x->rank);
    if (r < 1 || r > 1 << 20) return lower_fail(L, 1, "found %lld, allowed is 1 to 2^20", (long long)r);
    Expr *const *d = x->dim + x->rank - 3, *f = ex_int(L->ex, r), *h = ex_floordiv(L->ex, d[1], f),
                *w = ex_floordiv(L->ex, d[2], f);
    return reordered(L, x, (Expr *[]){d[0], h, f, w, f}, (int[]){0, 2, 4, 1, 3},
                     (Expr *[]){ex_mul(L->ex, d[0], ex_mul(L->ex, f, f)), h, w});
}

/* ------------------------------------------------------------------ pools at drawn places */

/* Where the windows of n places begin along an axis of `size`, by a number u (planes) between 0 and 1 (Graham 2014,
 * with a constant step): trunc((i + u) step) - trunc(u step), the last at the end -> (planes, n) */
static Value *drawn_starts(Lower *L, Value *u, Expr *size, int64_t window, int64_t n)
{
    Expr *room = ex_sub(L->ex, size, ex_int(L->ex, window)), *planes = u->dim[0];
    Value *end = AS(L, full, arg_exprs(L->g, 2, (Expr *[]){planes, ex_int(L->ex, 1)}), arg_expr(room),
                    arg_dtype(DT_I64));
    if (n == 1) return end;
    Value *step = AS(L, full, arg_ints(L->g, 0, NULL), arg_expr(room), arg_dtype(u->dtype));
    step = AS(L, div_Tensor, v(step), arg_int(L->g, n - 1));
    u = AS(L, unsqueeze, v(u), arg_int(L->g, 1));
    Value *at = AS(L, add_Tensor, v(AS(L, arange, arg_int(L->g, n - 1))), v(u));
    at = AS(L, trunc, v(AS(L, mul_Tensor, v(at), v(step))));
    at = AS(L, sub_Tensor, v(at), v(AS(L, trunc, v(AS(L, mul_Tensor, v(u), v(step))))));
    at = at ? lower_cast(L, at, DT_I64) : NULL;
    return at && end ? AS(L, cat, arg_values(L->g, 2, (Value *[]){at, end}), arg_int(L->g, 1)) : NULL;
}

static bool counts_of(Lower *L, int i, int n, int64_t *out)
{
    const Arg *a = &L->arg[i];
    if (a->kind != ARG_EXPRS || (a->n != 1 && a->n != n)) return lower_fail(L, i, "expected %d integers", n);
    for (int k = 0; k < n; k++) {
        const Expr *e = a->es[a->n == 1 ? 0 : k];
        if (!ex_is_int(e) || e->i < 1 || e->i > 1 << 20) return lower_fail(L, i, "expected positive constants");
        out[k] = e->i;
    }
    return true;
}

/* Samples (N, C, n) are for the axes from the last in two dimensions, from the first in three. */
bool lower_fractional_max_pool(Lower *L)
{
    Value *x, *u = lower_value(L, 3);
    int n = L->op->id == OP_fractional_max_pool2d ? 2 : 3;
    int64_t window[3], out[3], area = 1, places = 1;
    TRY(want(L, &x) && counts_of(L, 1, n, window) && counts_of(L, 2, n, out));
    if ((x->rank != n + 1 && x->rank != n + 2) || !u || u->rank != 3)
        return lower_fail(L, 0, "rank %d, expected %d or %d, and samples of rank 3", x->rank, n + 1, n + 2);
    int lead = x->rank - n;
    Expr *planes = ex_int(L->ex, 1), *pixels = planes, *dim[MAX_RANK];
    for (int i = 0; i < x->rank; i++)
        if (i < lead) planes = ex_mul(L->ex, planes, x->dim[i]);
        else pixels = ex_mul(L->ex, pixels, x->dim[i]);
    if (lead == 1 && !ex_equals_int(u->dim[0], 1)) /* samples of a batch: the picture takes the first ones */
        TRY(u = AS(L, slice_Tensor, v(u), arg_int(L->g, 0), arg_int(L->g, 0), arg_int(L->g, 1), arg_int(L->g, 1)));
    TRY(u = lower_reshape(L, u, 2, (Expr *[]){planes, ex_int(L->ex, n)}));
    Value *at = NULL; /* (planes, places so far, window so far): of each element of each window */
    for (int i = 0; i < n; i++) {
        Expr *size = x->dim[lead + i];
        Value *own = AS(L, select_int, v(u), arg_int(L->g, 1), arg_int(L->g, n == 2 ? 1 - i : i));
        own = own ? drawn_starts(L, own, size, window[i], out[i]) : NULL;
        Value *inside = AS(L, arange, arg_int(L->g, window[i]));
        own = AS(L, add_Tensor, v(AS(L, unsqueeze, v(own), arg_int(L->g, 2))), v(inside));
        TRY(own); /* (planes, out, window) */
        if (at) {
            at = AS(L, mul_Tensor, v(at), arg_expr(size));
            at = AS(L, unsqueeze, v(AS(L, unsqueeze, v(at), arg_int(L->g, 2))), arg_int(L->g, 4));
            own = AS(L, unsqueeze, v(AS(L, unsqueeze, v(own), arg_int(L->g, 1))), arg_int(L->g, 3));
            own = AS(L, add_Tensor, v(at), v(own));
        }
        places *= out[i];
        area *= window[i];
        at = lower_reshape(L, own, 3, (Expr *[]){planes, ex_int(L->ex, places), ex_int(L->ex, area)});
        TRY(at);
    }
    Arg last = arg_int(L->g, 2);
    Value *flat = AS(L, expand, v(lower_reshape(L, x, 3, (Expr *[]){planes, ex_int(L->ex, 1), pixels})),
                     arg_exprs(L->g, 3, (Expr *[]){planes, ex_int(L->ex, places), pixels}));
    Value *best = AS(L, max_dim, v(AS(L, gather, v(flat), last, v(at))), last, arg_bool(L->g, true));
    TRY(best);
    Value *index = AS(L, gather, v(at), last, v(best->def->out[1]));
    for (int i = 0; i < x->rank; i++) dim[i] = i < lead ? x->dim[i] : ex_int(L->ex, out[i - lead]);
    best = lower_reshape(L, best, x->rank, dim);
    index = lower_reshape(L, index, x->rank, dim);
    return best && index && lower_return_values(L, 2, (Value *[]){best, index});
}
