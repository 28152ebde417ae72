/* Lowering of convolutions.
 *
 *     conv2d(x, w, b, padding="same")    -> convolution(x, w, b, stride, padding, dilation, false, ...)
 *     conv1d of (C, N)                   -> reshape to (1, C, N), convolution, reshape
 *     as many groups as a size says      -> products of weights and windows, or, transposed, of weights and pixels,
 *                                           laid over each other
 */
#include "lower/lower_table.h"

/* A list of n numbers; one number stands for all. */
static Arg spatial(Lower *L, const Arg *a, int n, int64_t otherwise)
{
    Expr *e[3];
    if (n < 0 || n > 3) n = 0; /* refused later */
    for (int i = 0; i < n; i++) {
        if (a->kind == ARG_EXPRS && a->n) e[i] = a->es[a->n == 1 ? 0 : i < a->n ? i : a->n - 1];
        else e[i] = a->kind == ARG_EXPR ? a->e : ex_int(L->ex, otherwise);
    }
    return arg_exprs(L->g, n, e);
}

/* How a convolution goes over pictures: along two axes, as lists of numbers. */
typedef struct Steps {
    Arg kernel, stride, pad, dilation;
    Expr *out[2]; /* sizes of the result */
} Steps;

/* n is 1 or 2; a line is a picture of one row. */
static bool steps_of(Lower *L, const Value *x, int n, const Value *w, const Arg *stride, const Arg *pad,
                     const Arg *dilation, const Arg *extra, bool transposed, Steps *s)
{
    Expr *one = ex_int(L->ex, 1), *zero = ex_int(L->ex, 0), *to[4][2];
    s->out[0] = one;
    for (int i = 0; i < 2; i++) {
        int k = i - (2 - n);
        Expr *size = k < 0 ? one : w->dim[2 + k], *step = k < 0 ? one : stride->es[k],
             *margin = k < 0 ? zero : pad->es[k], *apart = k < 0 ? one : dilation->es[k];
        to[0][i] = size, to[1][i] = step, to[2][i] = margin, to[3][i] = apart;
        if (k < 0) continue;
        Expr *in = x->dim[2 + k], *twice = ex_add(L->ex, margin, margin),
             *span = ex_add(L->ex, ex_mul(L->ex, apart, ex_sub(L->ex, size, one)), one);
        if (!ex_is_int(size)) return lower_fail(L, 1, "kernel sizes must be constant");
        if (!transposed && (!ex_is_int(step) || step->i < 1)) return lower_fail(L, 3, "expected at least 1");
        Expr *room = ex_sub(L->ex, ex_add(L->ex, in, twice), span),
             *far = ex_sub(L->ex, ex_mul(L->ex, ex_sub(L->ex, in, one), step), twice);
        s->out[i] = transposed ? ex_add(L->ex, ex_add(L->ex, far, span), extra->es[k])
                               : ex_add(L->ex, ex_floordiv(L->ex, room, step), one);
    }
    s->kernel = arg_exprs(L->g, 2, to[0]);
    s->stride = arg_exprs(L->g, 2, to[1]);
    s->pad = arg_exprs(L->g, 2, to[2]);
    s->dilation = arg_exprs(L->g, 2, to[3]);
    return arg_built(&s->kernel) || oom(L->err);
}

/* x (N, groups * c, pixels), w (groups * o, c, window) or, transposed, (groups * c, o, window). Weights of each sample
 * are such groups (StyleGAN). */
static Value *emit_groups(Lower *L, Value *x, int n, Value *w, const Arg *bias, const Arg *stride, const Arg *pad,
                          const Arg *dilation, const Arg *extra, bool transposed, Expr *groups)
{
    Steps s;
    if (n > 2) return lower_fail(L, 8, "must be a constant integer in three dimensions"), NULL;
    if (x->rank != n + 2) return lower_fail(L, 0, "rank %d, expected %d", x->rank, n + 2), NULL;
    if (!steps_of(L, x, n, w, stride, pad, dilation, extra, transposed, &s)) return NULL;
    Expr *window = ex_mul(L->ex, s.kernel.es[0], s.kernel.es[1]), *own = ex_floordiv(L->ex, w->dim[0], groups),
         *inner = ex_mul(L->ex, w->dim[1], window), *one = ex_int(L->ex, 1), *pixels = one;
    for (int i = 0; i < n; i++) pixels = ex_mul(L->ex, pixels, x->dim[2 + i]);
    Expr *channels = transposed ? ex_mul(L->ex, groups, w->dim[1]) : w->dim[0];
    Value *each = lower_reshape(L, w, 3, (Expr *[]){groups, own, inner}), *y;
    if (transposed) {
        static const int turned[] = {0, 2, 1};
        Value *of = lower_reshape(L, x, 4, (Expr *[]){x->dim[0], groups, own, pixels});
        each = each ? lower_permute(L, each, turned) : NULL;
        y = each && of ? AS(L, matmul, arg_value(each), arg_value(of)) : NULL;
        y = y ? lower_reshape(L, y, 3, (Expr *[]){x->dim[0], ex_mul(L->ex, channels, window), pixels}) : NULL;
        y = y ? AS(L, col2im, arg_value(y), arg_exprs(L->g, 2, s.out), s.kernel, s.dilation, s.pad, s.stride) : NULL;
    } else {
        Expr *row[] = {x->dim[0], x->dim[1], one, x->dim[2]};
        Value *picture = n == 1 ? lower_reshape(L, x, 4, row) : x,
              *of = picture ? AS(L, im2col, arg_value(picture), s.kernel, s.dilation, s.pad, s.stride) : NULL;
        of = of ? lower_reshape(L, of, 4, (Expr *[]){x->dim[0], groups, inner, of->dim[2]}) : NULL;
        y = each && of ? AS(L, matmul, arg_value(each), arg_value(of)) : NULL;
    }
    Expr *dim[] = {x->dim[0], channels, s.out[2 - n], s.out[1]}, *along[] = {channels, one, one};
    y = y ? lower_reshape(L, y, n + 2, dim) : NULL;
    if (y && bias->kind == ARG_VALUE && bias->v) {
        Value *b = lower_reshape(L, bias->v, n + 1, along);
        y = b ? AS(L, add_Tensor, arg_value(y), arg_value(b)) : NULL;
    }
    return y;
}

/* An input without batch gets one for the convolution. */
static bool emit_conv(Lower *L, Value *x, int n, const Arg *w, const Arg *bias, Arg stride, Arg pad, Arg dilation,
                      bool transposed, Arg extra, const Arg *groups)
{
    bool lone = x->rank == n + 1;
    Expr *dim[MAX_RANK];
    if (n < 1 || n > 3) return lower_fail(L, 0, "rank %d, expected 3 to 5", x->rank);
    if (!arg_built(&stride) || !arg_built(&pad) || !arg_built(&dilation) || !arg_built(&extra)) return oom(L->err);
    if (lone) {
        dim[0] = ex_int(L->ex, 1);
        for (int i = 0; i < x->rank; i++) dim[i + 1] = x->dim[i];
        TRY(x = lower_reshape(L, x, n + 2, dim));
    }
    Value *y = groups->kind == ARG_EXPR && !ex_is_const(groups->e)
                   ? emit_groups(L, x, n, w->v, bias, &stride, &pad, &dilation, &extra, transposed, groups->e)
                   : EMIT(L, convolution, arg_value(x), *w, *bias, stride, pad, dilation, arg_bool(L->g, transposed),
                          extra, *groups);
    return y && lower_return(L, lone ? lower_reshape(L, y, n + 1, y->dim + 1) : y);
}

bool lower_convnd(Lower *L)
{
    Value *x, *w;
    TRY(lower_two(L, 0, 1, &x, &w));
    int n = w->rank - 2;
    Arg none = arg_none();
    return emit_conv(L, x, n, &L->arg[1], &L->arg[2], spatial(L, &L->arg[3], n, 1), spatial(L, &L->arg[4], n, 0),
                     spatial(L, &L->arg[5], n, 1), false, spatial(L, &none, n, 0), &L->arg[6]);
}

/* padding 'same': as many outputs as inputs; where the total is odd, one more after */
bool lower_conv_padding(Lower *L)
{
    Value *x, *w;
    TRY(lower_two(L, 0, 1, &x, &w));
    int n = w->rank - 2;
    Arg none = arg_none(), dilation = spatial(L, &L->arg[5], n, 1), zero = spatial(L, &none, n, 0);
    bool same = L->arg[4].kind == ARG_STR && !strcmp(L->arg[4].s, "same");
    if (n < 1 || n > 3) return lower_fail(L, 1, "rank %d, expected 3 to 5", w->rank);
    if (!arg_built(&dilation)) return oom(L->err);
    int64_t pad[6], lo[3];
    bool odd = false;
    for (int i = 0; i < n; i++) {
        if (!ex_is_int(w->dim[2 + i]) || !ex_is_int(dilation.es[i]))
            return lower_fail(L, 1, "kernel sizes must be constant");
        int64_t total = 0;
        if (same && !mul_i64(dilation.es[i]->i, w->dim[2 + i]->i - 1, &total))
            return lower_fail(L, 5, "found %lld", (long long)dilation.es[i]->i);
        lo[i] = total / 2;
        pad[2 * (n - 1 - i)] = 0;
        pad[2 * (n - 1 - i) + 1] = total - 2 * lo[i];
        odd |= total % 2 != 0;
    }
    if (odd) TRY(x = EMIT(L, constant_pad_nd, arg_value(x), arg_ints(L->g, 2 * n, pad), arg_int(L->g, 0)));
    return emit_conv(L, x, n, &L->arg[1], &L->arg[2], spatial(L, &L->arg[3], n, 1), arg_ints(L->g, n, lo), dilation,
                     false, zero, &L->arg[6]);
}

/* A convolution of (time, batch, channels) by (kernel, channels in, channels out) */
bool lower_conv_tbc(Lower *L)
{
    static const int to_ncw[] = {1, 2, 0}, to_tbc[] = {2, 0, 1}, swapped[] = {2, 1, 0};
    Value *x, *w;
    TRY(lower_two(L, 0, 1, &x, &w));
    if (x->rank != 3 || w->rank != 3)
        return lower_fail(L, x->rank != 3 ? 0 : 1, "rank %d, expected 3", x->rank != 3 ? x->rank : w->rank);
    x = lower_permute(L, x, to_ncw);
    w = lower_permute(L, w, swapped);
    Value *y = AS(L, conv1d, arg_value(x), arg_value(w), L->arg[2], arg_int(L->g, 1), L->arg[3]);
    return y && lower_return(L, lower_permute(L, y, to_tbc));
}

/* conv_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation) */
bool lower_conv_transpose(Lower *L)
{
    Value *x, *w;
    TRY(lower_two(L, 0, 1, &x, &w));
    int n = w->rank - 2;
    return emit_conv(L, x, n, &L->arg[1], &L->arg[2], spatial(L, &L->arg[3], n, 1), spatial(L, &L->arg[4], n, 0),
                     spatial(L, &L->arg[7], n, 1), true, spatial(L, &L->arg[5], n, 0), &L->arg[6]);
}

/* convolution, and _convolution with cuDNN's flags after it; a list of one value is for all dims, as "valid" decomposes
 * to a padding of [0] */
bool lower_conv_full(Lower *L)
{
    Value *x, *w;
    bool transposed;
    TRY(lower_two(L, 0, 1, &x, &w) && lower_const_bool(L, 6, &transposed));
    int n = w->rank - 2;
    for (int k = 3; k < 8; k++)
        if (L->arg[k].kind == ARG_EXPRS && L->arg[k].n != 1 && L->arg[k].n != n)
            return lower_fail(L, k, "found %d values, expected %d", L->arg[k].n, n);
    return emit_conv(L, x, n, &L->arg[1], &L->arg[2], spatial(L, &L->arg[3], n, 1), spatial(L, &L->arg[4], n, 0),
                     spatial(L, &L->arg[5], n, 1), transposed, spatial(L, &L->arg[7], n, 0), &L->arg[8]);
}

/* w = v * (g / |v|), the norm over all dims but one; _weight_norm's -1 is the norm of the whole */
bool lower_weight_norm(Lower *L)
{
    Value *v, *g;
    int d, n = 0;
    int64_t dims[MAX_RANK];
    TRY(lower_two(L, 0, 1, &v, &g) && lower_dim(L, 2, v->rank, &d));
    bool whole = L->op->id == OP_weight_norm && ex_equals_int(L->arg[2].e, -1);
    for (int i = 0; i < v->rank; i++)
        if (whole || i != d) dims[n++] = i;
    Value *norm = EMIT(L, linalg_vector_norm, arg_value(v), arg_int(L->g, 2), arg_ints(L->g, n, dims),
                       arg_bool(L->g, true));
    Value *ratio = norm ? EMIT(L, div_Tensor, arg_value(g), arg_value(norm)) : NULL;
    Value *w = ratio ? EMIT(L, mul_Tensor, arg_value(v), arg_value(ratio)) : NULL;
    if (L->op->id == OP_weight_norm) return lower_return(L, w);
    return w && lower_return_values(L, 2, (Value *[]){w, norm});
}

/* ------------------------------------------------------------------ gradients */

/* The gradient of weights (B, A / groups, kernel): small pictures (N, B, ...) lie over large ones (N, A, ...) as
 * kernels, their batch as channels. Strides and dilations change places. */
static Value *weight_gradient(Lower *L, Value *large, Value *small, const Value *w, Arg stride, Arg pad, Arg dilation,
                              Arg zero, Expr *groups)
{
    int n = w->rank - 2, perm[MAX_RANK] = {2, 1, 0}, swapped[MAX_RANK] = {1, 0};
    Expr *part = ex_floordiv(L->ex, large->dim[1], groups), *split[MAX_RANK] = {large->dim[0], groups, part},
         *joined[MAX_RANK] = {part, ex_mul(L->ex, groups, large->dim[0])};
    for (int i = 0; i < n; i++) {
        perm[3 + i] = 3 + i, swapped[2 + i] = 2 + i;
        split[3 + i] = joined[2 + i] = large->dim[2 + i];
    }
    Value *picture = lower_reshape(L, lower_permute(L, lower_reshape(L, large, n + 3, split), perm), n + 2, joined),
          *kernel = lower_permute(L, small, swapped),
          *y = picture && kernel ? AS(L, convolution, arg_value(picture), arg_value(kernel), arg_none(), dilation, pad,
                                      stride, arg_bool(L->g, false), zero, arg_expr(groups))
                                 : NULL;
    for (int i = 0; y && i < n; i++)
        y = AS(L, narrow, arg_value(y), arg_int(L->g, 2 + i), arg_int(L->g, 0), arg_expr(w->dim[2 + i]));
    return lower_permute(L, y, swapped);
}

/* (grad, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask) */
bool lower_convolution_backward(Lower *L)
{
    Value *g = lower_value(L, 0), *x, *w;
    bool transposed;
    int64_t mask[3] = {1, 1, 1}, axes[MAX_RANK] = {0};
    TRY(lower_two(L, 1, 2, &x, &w) && lower_const_bool(L, 7, &transposed));
    int n = w->rank - 2;
    if (!g) return lower_fail(L, 0, "expected a tensor");
    if (n < 1 || n > 3 || x->rank != n + 2 || g->rank != n + 2)
        return lower_fail(L, 2, "rank %d beside %d, expected 3 to 5 and the same", w->rank, x->rank);
    for (int i = 0; i < 3 && L->arg[10].kind == ARG_EXPRS && i < L->arg[10].n; i++)
        if (ex_is_const(L->arg[10].es[i])) mask[i] = ex_number(L->arg[10].es[i]) != 0;
    Arg none = arg_none(), stride = spatial(L, &L->arg[4], n, 1), pad = spatial(L, &L->arg[5], n, 0),
        dilation = spatial(L, &L->arg[6], n, 1), zero = spatial(L, &none, n, 0), extra = zero;
    Expr *missing[3], *groups = L->arg[9].e;
    if (!arg_built(&stride) || !arg_built(&pad) || !arg_built(&dilation)) return oom(L->err);
    for (int i = 0; i < n && !transposed; i++) {
        Expr *back = ex_mul(L->ex, ex_add(L->ex, g->dim[2 + i], ex_int(L->ex, -1)), stride.es[i]),
             *reach = ex_mul(L->ex, dilation.es[i], ex_add(L->ex, w->dim[2 + i], ex_int(L->ex, -1)));
        back = ex_add(L->ex, ex_add(L->ex, back, reach), ex_int(L->ex, 1));
        back = ex_add(L->ex, back, ex_mul(L->ex, pad.es[i], ex_int(L->ex, -2)));
        missing[i] = ex_add(L->ex, x->dim[2 + i], ex_mul(L->ex, back, ex_int(L->ex, -1)));
    }
    if (!transposed) extra = arg_exprs(L->g, n, missing);
    Value *dx = x, *dw = w, *db = g;
    if (mask[0]) {
        dx = AS(L, convolution, arg_value(g), arg_value(w), arg_none(), stride, pad, dilation,
                arg_bool(L->g, !transposed), extra, arg_expr(groups));
        for (int i = 0; dx && transposed && i < n; i++)
            dx = AS(L, narrow, arg_value(dx), arg_int(L->g, 2 + i), arg_int(L->g, 0), arg_expr(x->dim[2 + i]));
    }
    if (mask[1])
        dw = transposed ? weight_gradient(L, g, x, w, stride, pad, dilation, zero, groups)
                        : weight_gradient(L, x, g, w, stride, pad, dilation, zero, groups);
    for (int i = 0; i < n; i++) axes[1 + i] = 2 + i;
    if (mask[2]) db = AS(L, sum_dim_IntList, arg_value(g), arg_ints(L->g, n + 1, axes));
    return dx && dw && db && lower_return_values(L, 3, (Value *[]){dx, dw, db});
}
