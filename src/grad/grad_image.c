/* Gradients of convolution, pooling and resampling.
 *
 *     y = conv(x, w):   dx = conv_transpose(dy, w),   dw = dy unfold(x)^T
 */
#include <stdlib.h>
#include <string.h>
#include "base/number.h"
#include "grad/grad_impl.h"

/* ------------------------------------------------------------------ convolution */

/* Does the result of a transposed convolution, by its output padding, have more windows along axis i than the input
 * has elements? Those are read by none. */
static bool surplus(const Arg *arg, int i)
{
    const Expr *extra = i < arg[7].n ? arg[7].es[i] : NULL, *stride = arg[3].es[i];
    return extra && ex_is_int(extra) && ex_is_int(stride) && extra->i >= stride->i;
}

/* x (N, C, ...) padded, as windows (groups, N positions, kernel * C / groups) of a convolution with kernel
 * sizes k[]: channels are innermost, as they lie in memory. */
static Value *windows(Grad *d, Value *x, int64_t groups, int n, Expr *const *k, Expr *const *positions)
{
    const Arg *arg = d->node->arg;
    Expr *pad[2 * MAX_RANK], *dim[MAX_RANK], *rows = NULL, *columns;
    int perm[MAX_RANK];
    bool pads = false;
    for (int i = 0; i < n; i++) {
        pad[2 * (n - 1 - i)] = pad[2 * (n - 1 - i) + 1] = arg[4].es[i];
        pads |= !ex_equals_int(arg[4].es[i], 0);
    }
    if (pads) x = GD(d, constant_pad_nd, V(x), arg_exprs(d->g, 2 * n, pad), arg_float(d->g, 0));
    for (int i = 0; i < n && x; i++) {
        Expr *dilation = arg[5].es[i],
             *span = ex_add(d->ex, ex_mul(d->ex, dilation, ex_sub(d->ex, k[i], gd_int(d, 1))), gd_int(d, 1));
        x = GD(d, unfold, V(x), arg_int(d->g, 2 + i), arg_expr(span), arg_expr(arg[3].es[i]));
        if (x && surplus(arg, i))
            x = GD(d, slice_Tensor, V(x), arg_int(d->g, 2 + i), arg_int(d->g, 0), arg_expr(positions[i]),
                   arg_int(d->g, 1));
        if (x && !ex_equals_int(dilation, 1))
            x = GD(d, slice_Tensor, V(x), arg_int(d->g, x->rank - 1), arg_int(d->g, 0), arg_expr(span),
                   arg_expr(dilation));
    }
    if (!x) return NULL; /* (N, C, out..., kernel...) */
    Expr *each = ex_floordiv(d->ex, x->dim[1], gd_int(d, groups));
    dim[0] = x->dim[0];
    dim[1] = gd_int(d, groups);
    dim[2] = each;
    for (int i = 2; i < x->rank; i++) dim[i + 1] = x->dim[i];
    rows = x->dim[0];
    columns = each;
    perm[0] = 1;
    perm[1] = 0;
    for (int i = 0; i < n; i++) {
        rows = ex_mul(d->ex, rows, x->dim[2 + i]);
        columns = ex_mul(d->ex, columns, x->dim[2 + n + i]);
        perm[2 + i] = 3 + i;
        perm[2 + n + i] = 3 + n + i;
    }
    perm[2 + 2 * n] = 2;
    x = gd_permute(d, gd_reshape(d, x, x->rank + 1, dim), perm);
    return gd_reshape(d, x, 3, (Expr *[]){gd_int(d, groups), rows, columns});
}

/* g (N, C, ...) as (groups, C / groups, N positions) */
static Value *by_channel(Grad *d, Value *g, int64_t groups)
{
    Expr *dim[MAX_RANK], *each = ex_floordiv(d->ex, g->dim[1], gd_int(d, groups)), *rows = g->dim[0];
    int perm[MAX_RANK] = {1, 2, 0};
    dim[0] = g->dim[0];
    dim[1] = gd_int(d, groups);
    dim[2] = each;
    for (int i = 2; i < g->rank; i++) {
        dim[i + 1] = g->dim[i];
        perm[i + 1] = i + 1;
        rows = ex_mul(d->ex, rows, g->dim[i]);
    }
    return gd_reshape(d, gd_permute(d, gd_reshape(d, g, g->rank + 1, dim), perm), 3,
                      (Expr *[]){gd_int(d, groups), each, rows});
}

/* What a transposed convolution adds at the end so that its result has the sizes of x. */
static Arg missing(Grad *d, const Value *x, const Value *g, int n, Expr *const *k)
{
    const Arg *arg = d->node->arg;
    ExprPool *p = d->ex;
    Expr *extra[3], *one = gd_int(d, 1);
    for (int i = 0; i < n; i++) {
        Expr *covered = ex_add(p, ex_mul(p, ex_sub(p, g->dim[2 + i], one), arg[3].es[i]),
                               ex_mul(p, arg[5].es[i], ex_sub(p, k[i], one)));
        extra[i] = ex_sub(p, ex_sub(p, ex_add(p, x->dim[2 + i], ex_mul(p, arg[4].es[i], gd_int(d, 2))), covered), one);
    }
    return arg_exprs(d->g, n, extra);
}

bool grad_convolution(Grad *d)
{
    Value *x = gd_value(d, 0), *w = gd_value(d, 1), *b = gd_value(d, 2), *g = d->grad;
    const Arg *arg = d->node->arg;
    bool transposed = gd_truth(d, 6);
    int n = x->rank - 2, dims[MAX_RANK] = {0};
    int64_t groups = arg[8].e->i, none[3] = {0, 0, 0};
    if (gd_wants(d, x)) {
        Arg extra = transposed ? arg_ints(d->g, n, none) : missing(d, x, g, n, w->dim + 2);
        Value *dx = GD(d, convolution, V(g), V(w), arg_none(), arg[3], arg[4], arg[5], arg_bool(d->g, !transposed),
                       extra, arg[8]);
        for (int i = 0; i < n; i++)
            if (surplus(arg, i))
                dx = GD(d, slice_Tensor, V(dx), arg_int(d->g, 2 + i), arg_int(d->g, 0), arg_expr(x->dim[2 + i]),
                        arg_int(d->g, 1));
        TRY(gd_send(d, x, dx));
    }
    if (gd_wants(d, w)) {
        Value *large = transposed ? g : x, *small = transposed ? x : g,
              *rows = windows(d, large, groups, n, w->dim + 2, small->dim + 2);
        Expr *last[MAX_RANK] = {w->dim[0]};
        int perm[MAX_RANK] = {0, 1 + n};
        for (int i = 0; i < n; i++) last[1 + i] = w->dim[2 + i], perm[2 + i] = 1 + i;
        last[1 + n] = w->dim[1];
        Value *dw = gd_reshape(d, gd_matmul(d, by_channel(d, small, groups), rows), w->rank, last);
        TRY(gd_send(d, w, gd_permute(d, dw, perm)));
    }
    for (int i = 0; i < n; i++) dims[1 + i] = 2 + i;
    return !gd_wants(d, b) || gd_send(d, b, gd_sum(d, g, n + 1, dims, false));
}

/* ------------------------------------------------------------------ pooling */

/* The last n axes as one. */
static Value *flat(Grad *d, Value *x, int n)
{
    Expr *dim[MAX_RANK];
    int lead = x->rank - n;
    for (int i = 0; i < lead; i++) dim[i] = x->dim[i];
    dim[lead] = gd_product(d, n, x->dim + lead);
    return gd_reshape(d, x, lead + 1, dim);
}

/* (values, indices): an index counts through the last text axes */
bool grad_max_pool(Grad *d)
{
    Value *x = gd_value(d, 0);
    int n = (int)parse_int(d->text, NULL), lead = x->rank - n;
    Expr *dim[MAX_RANK];
    for (int i = 0; i < lead; i++) dim[i] = x->dim[i];
    dim[lead] = gd_product(d, n, x->dim + lead);
    Value *sum = GD(d, scatter_add, V(gd_zeros(d, d->grad->dtype, lead + 1, dim)), arg_int(d->g, lead),
                    V(flat(d, d->node->out[1], n)), V(flat(d, d->grad, n)));
    return gd_send(d, x, gd_reshape(d, sum, x->rank, x->dim));
}

static Expr *number_at(const Arg *a, int i, Expr *otherwise)
{
    return a->kind == ARG_EXPRS && a->n ? a->es[a->n == 1 ? 0 : i] : otherwise;
}

/* avg_pool2d(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor):
 * every element of a window gets its share */
bool grad_avg_pool(Grad *d)
{
    Value *x = gd_value(d, 0), *g = d->grad;
    const Arg *arg = d->node->arg;
    if (gd_truth(d, 4)) return grad_avg_pool_axes(d);
    bool padded = false;
    Expr *k[2], *stride[2], *pad[2], *area = gd_int(d, 1),
                                     *lead = x->rank == 4 ? ex_mul(d->ex, x->dim[0], x->dim[1]) : x->dim[0];
    for (int i = 0; i < 2; i++) {
        k[i] = number_at(&arg[1], i, NULL);
        stride[i] = number_at(&arg[2], i, k[i]);
        pad[i] = number_at(&arg[3], i, gd_int(d, 0));
        padded |= !ex_equals_int(pad[i], 0);
        area = ex_mul(d->ex, area, k[i]);
    }
    if (arg[6].kind == ARG_EXPR) g = GD(d, div_Tensor, V(g), arg[6]);
    else if (padded &&
             !gd_truth(
                 d,
                 5)) { /* how many elements of a window there are: the mean of ones, padding counted, times its area */
        Value *share = GD(d, avg_pool2d, V(gd_full(d, 1, g->dtype, x->rank, x->dim)), arg[1], arg[2], arg[3], arg[4],
                          arg_bool(d->g, true));
        g = GD(d, div_Tensor, V(g), V(gd_scale(d, share, area)));
    } else g = GD(d, div_Tensor, V(g), arg_expr(area));
    if (!g) return false;
    Expr *places = ex_mul(d->ex, g->dim[g->rank - 2], g->dim[g->rank - 1]), *one = gd_int(d, 1);
    g = gd_expand(d, gd_reshape(d, g, 3, (Expr *[]){lead, one, places}), 3, (Expr *[]){lead, area, places});
    Value *sum = GD(d, col2im, V(g), arg_exprs(d->g, 2, &x->dim[x->rank - 2]), arg_exprs(d->g, 2, k),
                    arg_ints(d->g, 2, (int64_t[]){1, 1}), arg_exprs(d->g, 2, pad), arg_exprs(d->g, 2, stride));
    return gd_send(d, x, gd_reshape(d, sum, x->rank, x->dim));
}

/* ------------------------------------------------------------------ linear maps, axis by axis */

/* The op itself on the unit vectors of an axis of n elements: a matrix (n, results). They lie along the last axis,
 * where the op gets what it has for that one; the others have one element. (Of pictures one element wide, PyTorch's own
 * antialiased resampling computes other values, at least to 2.13.) */
typedef Value *AxisFn(Grad *d, Value *unit, int axis, int axes);

static Value *matrix_of(Grad *d, AxisFn *apply, const Value *x, int axis, int axes)
{
    Expr *n = x->dim[x->rank - axes + axis], *one = gd_int(d, 1), *dim[MAX_RANK] = {one, n};
    for (int i = 0; i < axes; i++) dim[2 + i] = i == axes - 1 ? n : one;
    Value *unit = gd_reshape(d, GD(d, eye_m, arg_expr(n), arg_expr(n), arg_dtype(d->grad->dtype)), axes + 2, dim);
    Value *y = unit ? apply(d, unit, axis, axes) : NULL;
    return y ? gd_reshape(d, y, 2, (Expr *[]){n, y->dim[1 + axes]}) : NULL;
}

static bool axis_by_axis(Grad *d, AxisFn *apply, int axes)
{
    Value *x = gd_value(d, 0), *g = d->grad;
    for (int i = axes - 1; i >= 0; i--) {
        int at = x->rank - axes + i, last = x->rank - 1;
        if (x->dim[at] == d->node->out[0]->dim[at] && ex_equals_int(x->dim[at], 1)) continue;
        Value *m = matrix_of(d, apply, x, i, axes);
        g = gd_swap(d, gd_matmul(d, gd_swap(d, g, at, last), gd_swap(d, m, 0, 1)), at, last);
    }
    return gd_send(d, x, g);
}

static Arg last_of(Grad *d, const Arg *a, int axis, int axes, Expr *otherwise)
{
    Expr *list[3] = {otherwise, otherwise, otherwise};
    if (a->kind != ARG_EXPRS) return *a;
    list[axes - 1] = a->es[axis];
    return arg_exprs(d->g, a->n, list);
}

static Value *upsampled(Grad *d, Value *unit, int axis, int axes)
{
    const Arg *a = d->node->arg;
    return GD(d, upsample, V(unit), last_of(d, &a[1], axis, axes, gd_int(d, 1)), a[2], a[3],
              last_of(d, &a[4], axis, axes, gd_float(d, 1)));
}

bool grad_upsample(Grad *d) { return axis_by_axis(d, upsampled, d->node->arg[1].n); }

static Value *averaged(Grad *d, Value *unit, int axis, int axes)
{
    Arg size = last_of(d, &d->node->arg[1], axis, axes, gd_int(d, 1));
    return axes == 2 ? GD(d, _adaptive_avg_pool2d, V(unit), size) : GD(d, _adaptive_avg_pool3d, V(unit), size);
}

bool grad_adaptive_avg(Grad *d) { return axis_by_axis(d, averaged, (int)parse_int(d->text, NULL)); }

static Value *pooled(Grad *d, Value *unit, int axis, int axes)
{
    const Arg *arg = d->node->arg;
    Expr *one = gd_int(d, 1), *zero = gd_int(d, 0), *k[3] = {one, one, one}, *stride[3] = {one, one, one},
         *pad[3] = {zero, zero, zero};
    int last = axes - 1;
    k[last] = number_at(&arg[1], axis, NULL);
    stride[last] = number_at(&arg[2], axis, k[last]);
    pad[last] = number_at(&arg[3], axis, zero);
    Arg sum = arg[6].kind == ARG_EXPR ? arg_int(d->g, 1) : arg_none(); /* its own divisor is for all axes together */
    Arg kernel = arg_exprs(d->g, axes, k), step = arg_exprs(d->g, axes, stride), padding = arg_exprs(d->g, axes, pad);
    return axes == 2 ? GD(d, avg_pool2d, V(unit), kernel, step, padding, arg[4], arg[5], sum)
                     : GD(d, avg_pool3d, V(unit), kernel, step, padding, arg[4], arg[5], sum);
}

/* Windows of volumes, and those that reach over the end: how many elements one has is a product over axes. */
bool grad_avg_pool_axes(Grad *d)
{
    if (d->node->arg[6].kind == ARG_EXPR) d->grad = GD(d, div_Tensor, V(d->grad), d->node->arg[6]);
    return d->grad && axis_by_axis(d, pooled, d->node->op->id == OP_avg_pool2d ? 2 : 3);
}

/* Sums of windows back into a picture: each element of a window is read where it was added. */
bool grad_col2im(Grad *d)
{
    Value *x = gd_value(d, 0), *g = d->grad;
    const Arg *arg = d->node->arg;
    bool batch = x->rank == 3;
    Expr *N = batch ? x->dim[0] : gd_int(d, 1), *C = g->dim[batch], *pad[4];
    g = gd_reshape(d, g, 4, (Expr *[]){N, C, g->dim[g->rank - 2], g->dim[g->rank - 1]});
    for (int i = 0; i < 2; i++) pad[2 - 2 * i] = pad[3 - 2 * i] = number_at(&arg[4], i, gd_int(d, 0));
    g = GD(d, constant_pad_nd, V(g), arg_exprs(d->g, 4, pad), arg_float(d->g, 0));
    for (int i = 0; i < 2 && g; i++) {
        Expr *dilation = number_at(&arg[3], i, gd_int(d, 1)), *k = number_at(&arg[2], i, NULL),
             *span = ex_add(d->ex, ex_mul(d->ex, dilation, ex_sub(d->ex, k, gd_int(d, 1))), gd_int(d, 1));
        g = GD(d, unfold, V(g), arg_int(d->g, 2 + i), arg_expr(span), arg_expr(number_at(&arg[5], i, gd_int(d, 1))));
        if (g && !ex_equals_int(dilation, 1))
            g = GD(d, slice_Tensor, V(g), arg_int(d->g, g->rank - 1), arg_int(d->g, 0), arg_expr(span),
                   arg_expr(dilation));
    }
    g = gd_permute(d, g, (int[]){0, 1, 4, 5, 2, 3}); /* (N, C, kernel.., windows..) */
    if (!g) return false;
    return gd_send(d, x, gd_reshape(d, g, x->rank, x->dim));
}

/* A grid is a fixed one of places (H W, axes + 1) times theta (N, axes, axes + 1):
 * places by the op itself, of a theta that changes nothing. */
bool grad_affine_grid(Grad *d)
{
    Value *theta = gd_value(d, 0), *g = d->grad, *part[2];
    int axes = g->rank - 2;
    Expr *one = gd_int(d, 1), *size[5], *dim[5], *places = gd_product(d, axes, g->dim + 1), *wide = gd_int(d, axes + 1);
    for (int i = 0; i < axes + 2; i++) size[i] = i ? d->node->arg[1].es[i] : one;
    Value *unit = gd_reshape(d, GD(d, eye_m, arg_int(d->g, axes), arg_int(d->g, axes + 1), arg_dtype(g->dtype)), 3,
                             (Expr *[]){one, gd_int(d, axes), wide});
    part[0] = GD(d, affine_grid_generator, V(unit), arg_exprs(d->g, axes + 2, size), d->node->arg[2]);
    for (int i = 0; i <= axes; i++) dim[i] = i ? g->dim[i] : one;
    dim[axes + 1] = one;
    part[1] = gd_full(d, 1, g->dtype, axes + 2, dim);
    if (!part[0] || !part[1]) return false;
    Value *base = gd_reshape(d, GD(d, cat, arg_values(d->g, 2, part), arg_int(d->g, axes + 1)), 2,
                             (Expr *[]){places, wide});
    return gd_send(
        d, theta,
        gd_matmul(d, gd_swap(d, gd_reshape(d, g, 3, (Expr *[]){g->dim[0], places, gd_int(d, axes)}), 1, 2), base));
}

/* ------------------------------------------------------------------ sampling at places */

typedef struct Places { /* of one axis, (N, positions) each */
    Value *place;       /* where, in elements */
    Value *below, *far; /* the element before it, as a float; how far after that it is */
    Expr *n;
    Expr *slope;  /* d place / d grid */
    Value *moves; /* border and reflection: where the place follows the grid */
    Value *sign;  /* reflection: 1 where it goes the grid's way, else -1 */
} Places;

/* Back and forth between the middles of the outer elements (aligned), or between their edges:
 * |((place - low) mod 2 span) - span|, as GridSampler.h's reflect_coordinates. */
static Value *reflected(Grad *d, Value *place, Expr *n, bool aligned, Value **sign)
{
    Expr *span = aligned ? ex_sub(d->ex, n, gd_int(d, 1)) : n,
         *turn = ex_make(d->ex, EX_MAX, ex_mul(d->ex, span, gd_int(d, 2)), gd_int(d, 1),
                         NULL); /* one element: all is there */
    Arg low = arg_float(d->g, aligned ? 0 : 0.5);
    Value *from = GD(d, add_Tensor, V(place), low),
          *back = GD(d, sub_Tensor, V(GD(d, remainder_Tensor, V(GD(d, abs, V(from))), arg_expr(turn))),
                       arg_expr(span));
    *sign = GD(d, neg, V(gd_mul(d, GD(d, sign, V(from)), GD(d, sign, V(back)))));
    return GD(d, sub_Tensor, V(GD(d, sub_Tensor, arg_expr(span), V(GD(d, abs, V(back))))), low);
}

static bool places(Grad *d, int axis, Places *p)
{
    Value *x = gd_value(d, 0), *grid = gd_value(d, 1);
    bool aligned = gd_truth(d, 4),
         cubic = ex_equals_int(d->node->arg[2].e, 2); /* whose elements are moved inside one by one */
    Expr *last;
    int n = x->rank - 2;
    p->n = x->dim[n + 1 - axis]; /* coordinate 0 is x, the last axis */
    last = ex_sub(d->ex, p->n, gd_int(d, 1));
    Value *u = GD(d, select_int, V(grid), arg_int(d->g, n + 1), arg_int(d->g, axis));
    u = u ? gd_reshape(d, u, 2, (Expr *[]){grid->dim[0], gd_product(d, n, grid->dim + 1)}) : NULL;
    Value *up = GD(d, add_Tensor, V(u), arg_float(d->g, 1));
    if (aligned) p->place = gd_scale(d, GD(d, div_Tensor, V(up), arg_float(d->g, 2)), last);
    else
        p->place = GD(d, div_Tensor, V(GD(d, sub_Tensor, V(gd_scale(d, up, p->n)), arg_float(d->g, 1))),
                      arg_float(d->g, 2));
    p->slope = ex_make(d->ex, EX_TRUEDIV, ex_make(d->ex, EX_TOFLOAT, aligned ? last : p->n, NULL, NULL), gd_float(d, 2),
                       NULL);
    if (ex_equals_int(d->node->arg[3].e, 2) && !cubic) p->place = reflected(d, p->place, p->n, aligned, &p->sign);
    if (!ex_equals_int(d->node->arg[3].e, 0) && !cubic) {
        p->moves = GD(d, logical_and, V(GD(d, gt_Tensor, V(p->place), arg_int(d->g, 0))),
                      V(GD(d, lt_Tensor, V(p->place), arg_expr(last))));
        p->place = GD(d, clamp, V(p->place), arg_int(d->g, 0), arg_expr(last));
    }
    p->below = GD(d, floor, V(p->place));
    p->far = gd_minus(d, p->place, p->below);
    return p->far != NULL;
}

/* at, moved inside the axis; *inside: was it there? */
static Value *moved_inside(Grad *d, const Places *p, Value *at, Value **inside)
{
    Expr *last = ex_sub(d->ex, p->n, gd_int(d, 1));
    *inside = GD(d, logical_and, V(GD(d, ge_Tensor, V(at), arg_int(d->g, 0))),
                 V(GD(d, le_Tensor, V(at), arg_expr(last))));
    return GD(d, clamp, V(at), arg_int(d->g, 0), arg_expr(last));
}

/* Element below + step as an index inside the axis; *inside: was it there? */
static Value *element(Grad *d, const Places *p, int step, Value **inside)
{
    Value *at = gd_cast(d, p->below, DT_I64);
    if (step) at = GD(d, add_Tensor, V(at), arg_int(d->g, step));
    return moved_inside(d, p, at, inside);
}

static Value *weight_of(Grad *d, const Places *p, int step)
{
    return step ? p->far : GD(d, sub_Tensor, arg_float(d->g, 1), V(p->far));
}

/* slope[k] (N, positions): the derivative by the place along axis k of n */
static bool send_grid(Grad *d, const Places *p, int n, Value **slope)
{
    Value *grid = gd_value(d, 1);
    Expr *dim[5];
    for (int i = 0; i <= n; i++) dim[i] = grid->dim[i];
    dim[n + 1] = gd_int(d, 1);
    for (int k = 0; k < n; k++) {
        slope[k] = gd_scale(d, slope[k], p[k].slope);
        if (p[k].sign) slope[k] = gd_mul(d, slope[k], p[k].sign);
        if (p[k].moves) slope[k] = gd_where(d, p[k].moves, slope[k], 0);
        slope[k] = gd_reshape(d, slope[k], n + 2, dim);
        if (!slope[k]) return false;
    }
    return gd_send(d, grid, GD(d, cat, arg_values(d->g, n, slope), arg_int(d->g, n + 1)));
}

/* c3 x^3 + c2 x^2 + c1 x + c0 */
static Value *polynomial(Grad *d, Value *x, double c3, double c2, double c1, double c0)
{
    Value *y = GD(d, add_Tensor, V(gd_scale(d, x, gd_float(d, c3))), arg_float(d->g, c2));
    y = GD(d, add_Tensor, V(gd_mul(d, y, x)), arg_float(d->g, c1));
    return GD(d, add_Tensor, V(gd_mul(d, y, x)), arg_float(d->g, c0));
}

typedef struct Taps {      /* of one axis: the elements from below - 1 to below + 2, (N, 4, positions) each */
    Value *at, *inside;    /* index, moved inside as padding says; NULL: all count */
    Value *weight, *slope; /* slope: d weight / d place */
} Taps;

/* Convolution with Keys' cubic, a = -3/4 (UpSample.h), of the distance s to each tap. */
static bool taps(Grad *d, const Places *p, Taps *t)
{
    const double a = -0.75;
    bool aligned = gd_truth(d, 4), zeros = ex_equals_int(d->node->arg[3].e, 0);
    Value *sign, *inside, *step = GD(d, sub_Tensor, V(gd_arange(d, gd_int(d, 4))), arg_int(d->g, 1));
    step = gd_cast(d, gd_reshape(d, step, 3, (Expr *[]){gd_int(d, 1), gd_int(d, 4), gd_int(d, 1)}), p->far->dtype);
    Value *place = gd_plus(d, gd_insert_axis(d, p->below, 1), step),
          *apart = gd_minus(d, gd_insert_axis(d, p->far, 1), step), *s = GD(d, abs, V(apart));
    if (ex_equals_int(d->node->arg[3].e, 2)) place = reflected(d, place, p->n, aligned, &sign);
    t->at = moved_inside(d, p, gd_cast(d, place, DT_I64), &inside);
    t->inside = zeros ? inside : NULL;
    Value *near = GD(d, le_Tensor, V(s), arg_int(d->g, 1));
    t->weight = GD(d, where_self, V(near), V(polynomial(d, s, a + 2, -(a + 3), 0, 1)),
                   V(polynomial(d, s, a, -5 * a, 8 * a, -4 * a)));
    t->slope = GD(d, where_self, V(near), V(polynomial(d, s, 0, 3 * (a + 2), -2 * (a + 3), 0)),
                  V(polynomial(d, s, 0, 3 * a, -10 * a, 8 * a)));
    t->slope = gd_mul(d, t->slope, GD(d, sign, V(apart)));
    return t->at && t->weight && t->slope && (!zeros || inside);
}

/* The taps of some axes (N, A, P) with those of the next (N, 4, P): (N, 4 A, P); of none: the next */
static Value *with_axis(Grad *d, OpId op, Value *some, Value *next)
{
    if (!some) return next;
    Value *all = gd_add_node(d, op, 2, (Arg[]){V(gd_insert_axis(d, some, 2)), V(gd_insert_axis(d, next, 1))});
    Expr *both = all ? ex_mul(d->ex, all->dim[1], all->dim[2]) : NULL;
    return all ? gd_reshape(d, all, 3, (Expr *[]){all->dim[0], both, all->dim[3]}) : NULL;
}

/* Four elements of each axis around each place, all at once. */
static bool cubic(Grad *d, const Places *p, int n)
{
    Value *x = gd_value(d, 0), *grid = gd_value(d, 1), *slope[3], *at = NULL, *inside = NULL, *w = NULL;
    Taps t[3];
    for (int k = n - 1; k >= 0; k--) {
        TRY(taps(d, &p[k], &t[k]));
        at = at ? with_axis(d, OP_add_Tensor, gd_scale(d, at, p[k].n), t[k].at) : t[k].at;
        inside = t[k].inside ? with_axis(d, OP_logical_and, inside, t[k].inside) : NULL;
        w = with_axis(d, OP_mul_Tensor, w, t[k].weight);
    }
    Expr *P = t[0].at->dim[2], *N = x->dim[0], *C = x->dim[1], *one = gd_int(d, 1), *wide = gd_int(d, n == 3 ? 64 : 16),
         *all = ex_mul(d->ex, wide, P);
    Value *g = gd_reshape(d, d->grad, 4, (Expr *[]){N, C, one, P}), *pixels = flat(d, x, n);
    at = gd_expand(d, gd_reshape(d, at, 3, (Expr *[]){N, one, all}), 3, (Expr *[]){N, C, all});
    if (!g || !pixels || !at || !w || (t[0].inside && !inside)) return false;
    if (gd_wants(d, x)) {
        if (inside) w = gd_where(d, inside, w, 0);
        Value *shares = gd_reshape(d, gd_mul(d, g, gd_insert_axis(d, w, 1)), 3, (Expr *[]){N, C, all});
        Value *sum = GD(d, scatter_add, V(gd_zeros(d, g->dtype, 3, pixels->dim)), arg_int(d->g, 2), V(at), V(shares));
        TRY(gd_send(d, x, gd_reshape(d, sum, n + 2, x->dim)));
    }
    if (!gd_wants(d, grid)) return true;
    Value *here = gd_reshape(d, GD(d, gather, V(pixels), arg_int(d->g, 2), V(at)), 4,
                             (Expr *[]){N, C, wide, P}); /* sum over channels of grad times the element */
    here = gd_sum(d, gd_mul(d, g, here), 1, (int[]){1}, false);
    if (inside) here = gd_where(d, inside, here, 0);
    for (int k = 0; k < n; k++) {
        w = NULL;
        for (int i = n - 1; i >= 0; i--) w = with_axis(d, OP_mul_Tensor, w, i == k ? t[i].slope : t[i].weight);
        slope[k] = gd_sum(d, gd_mul(d, here, w), 1, (int[]){1}, false);
    }
    return send_grid(d, p, n, slope);
}

typedef struct Corner { /* of a cell: bit k says whether it is the far one along axis k */
    Value *at, *inside; /* (N, positions): index among all elements; was it there? */
} Corner;

static bool corner_of(Grad *d, const Places *p, int n, int corner, Corner *c)
{
    *c = (Corner){0};
    for (int k = n - 1; k >= 0; k--) {
        Value *inside, *at = element(d, &p[k], corner >> k & 1, &inside);
        c->at = c->at ? gd_plus(d, gd_scale(d, c->at, p[k].n), at) : at;
        c->inside = c->inside ? GD(d, logical_and, V(c->inside), V(inside)) : inside;
    }
    return c->at && c->inside;
}

/* The product of a corner's weights along all axes but `without` (-1: all). */
static Value *corner_weight(Grad *d, const Places *p, int n, int corner, int without)
{
    Value *all = NULL;
    for (int k = 0; k < n; k++) {
        if (k == without) continue;
        Value *w = weight_of(d, &p[k], corner >> k & 1);
        all = all ? gd_mul(d, all, w) : w;
    }
    return all;
}

/* Pictures and volumes. Nearest: one element, and a grid that does not matter. Linear: four or eight elements around
 * each place, those outside count as 0 (zeros), or the place is moved inside (border, reflection). */
bool grad_grid_sampler(Grad *d)
{
    Value *x = gd_value(d, 0), *grid = gd_value(d, 1);
    const Arg *arg = d->node->arg;
    bool nearest = ex_equals_int(arg[2].e, 1);
    int n = x->rank - 2;
    Places p[3] = {0};
    for (int k = 0; k < n; k++) TRY(places(d, k, &p[k]));
    if (ex_equals_int(arg[2].e, 2)) return cubic(d, p, n);
    Expr *P = gd_product(d, n, grid->dim + 1), *N = x->dim[0], *C = x->dim[1], *one = gd_int(d, 1);
    Value *g = gd_reshape(d, d->grad, 3, (Expr *[]){N, C, P}), *pixels = flat(d, x, n), *to_x = NULL,
          *slope[3] = {NULL, NULL, NULL};
    if (!g || !pixels) return false;
    if (gd_wants(d, x)) to_x = gd_zeros(d, g->dtype, 3, pixels->dim);
    for (int k = 0; k < n && nearest; k++) p[k].below = GD(d, round, V(p[k].place));
    for (int corner = 0; corner < (nearest ? 1 : 1 << n); corner++) {
        Corner c;
        TRY(corner_of(d, p, n, corner, &c));
        Value *at = gd_expand(d, gd_reshape(d, c.at, 3, (Expr *[]){N, one, P}), 3, (Expr *[]){N, C, P});
        if (to_x) {
            Value *w = nearest ? gd_cast(d, c.inside, g->dtype)
                               : gd_where(d, c.inside, corner_weight(d, p, n, corner, -1), 0);
            w = gd_reshape(d, w, 3, (Expr *[]){N, one, P});
            to_x = GD(d, scatter_add, V(to_x), arg_int(d->g, 2), V(at), V(gd_mul(d, g, w)));
        }
        if (!gd_wants(d, grid) || nearest) continue;
        /* sum over channels of grad times the element */
        Value *here = gd_where(
            d, c.inside,
            gd_sum(d, gd_mul(d, g, GD(d, gather, V(pixels), arg_int(d->g, 2), V(at))), 1, (int[]){1}, false), 0);
        for (int k = 0; k < n; k++) {
            Value *part = gd_mul(d, here, corner_weight(d, p, n, corner, k));
            if (!(corner >> k & 1)) part = part ? GD(d, neg, V(part)) : NULL;
            slope[k] = slope[k] ? gd_plus(d, slope[k], part) : part;
        }
    }
    if (to_x) TRY(gd_send(d, x, gd_reshape(d, to_x, x->rank, x->dim)));
    if (!gd_wants(d, grid)) return true;
    return nearest ? gd_send(d, grid, gd_zeros(d, g->dtype, n + 2, grid->dim)) : send_grid(d, p, n, slope);
}

/* To the places that the second result names; regions have none, as in torchvision. */
bool grad_roi_pool(Grad *d)
{
    Value *x = gd_value(d, 0), *rois = gd_value(d, 1), *g = d->grads[0], *place = d->node->out[1];
    if (!g || !gd_wants(d, x)) return true;
    Expr *one = gd_int(d, 1), *pixels = ex_mul(d->ex, x->dim[2], x->dim[3]);
    Expr *dim[] = {g->dim[0], g->dim[1], ex_mul(d->ex, g->dim[2], g->dim[3])};
    Value *image = gd_cast(d, gd_slice(d, rois, 1, gd_int(d, 0), one), DT_I64);
    Value *channel = gd_reshape(d, gd_arange(d, x->dim[1]), 2, (Expr *[]){x->dim[1], one});
    place = gd_reshape(d, gd_cast(d, place, DT_I64), 3, dim);
    Value *given = gd_where(d, GD(d, ge_Tensor, V(place), arg_int(d->g, 0)), gd_reshape(d, g, 3, dim), 0);
    Value *at[3] = {gd_reshape(d, image, 3, (Expr *[]){rois->dim[0], one, one}), channel,
                    GD(d, clamp, V(place), arg_int(d->g, 0), arg_none())};
    Value *zeros = gd_zeros(d, g->dtype, 3, (Expr *[]){x->dim[0], x->dim[1], pixels});
    if (!at[0] || !at[1] || !at[2]) return false;
    Value *sum = GD(d, index_put, V(zeros), arg_values(d->g, 3, at), V(given), arg_bool(d->g, true));
    return gd_send(d, x, gd_reshape(d, sum, 4, x->dim));
}

/* Regions have none, as in torchvision. */
bool grad_roi_align(Grad *d)
{
    Value *x = gd_value(d, 0);
    const Arg *arg = d->node->arg;
    Expr *const *dim = x->dim;
    if (!gd_wants(d, x)) return true;
    return gd_send(d, x,
                   GD(d, torchvision_roi_align_backward, V(d->grad), arg[1], arg[2], arg[3], arg[4], arg_expr(dim[0]),
                      arg_expr(dim[1]), arg_expr(dim[2]), arg_expr(dim[3]), arg[5], arg[6]));
}

/* Linear in the gradient: what it sends back is sampled as the picture was. */
bool grad_roi_align_backward(Grad *d)
{
    const Arg *arg = d->node->arg;
    return gd_send(d, gd_value(d, 0),
                   GD(d, torchvision_roi_align, V(d->grad), arg[1], arg[2], arg[3], arg[4], arg[9], arg[10]));
}
