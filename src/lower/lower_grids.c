/* Lowering of samples of pictures and volumes: the gradient of grid_sample by name, deformable convolutions.
 *
 *     grid_sampler_2d_backward(g, x, grid, ..)   -> scatter_add(zeros, taps of each place, g times their weights), and
 *                                                   sums over taps and channels of g, x and the weights' slopes
 */
#include "facts/axes.h"
#include "lower/backward.h"
#include "lower/lower_table.h"

typedef struct Taps {                     /* the elements along one axis that make a sample: (N, .., taps, .., P) */
    Value *at, *inside, *weight, *slope;  /* index, moved inside; was it there?; d weight / d place */
    Value *moves, *sign;                  /* (N, P); NULL: the place follows the grid everywhere, and its way */
    Expr *n;                              /* how many elements there are */
} Taps;

/* Back and forth between the middles of the outer elements (aligned), or between their edges. */
static Value *reflected(Lower *L, Value *place, Expr *n, bool aligned, Value **sign)
{
    Expr *span = aligned ? ex_add(L->ex, n, ex_int(L->ex, -1)) : n,
         *turn = ex_max(L->ex, ex_mul(L->ex, span, ex_int(L->ex, 2)), ex_int(L->ex, 1));
    Arg low = num(L, aligned ? 0 : 0.5);
    Value *from = AS(L, add_Tensor, v(place), low);
    Value *back = from ? AS(L, remainder_Scalar, v(AS(L, abs, v(from))), arg_expr(turn)) : NULL;
    back = back ? AS(L, sub_Tensor, v(back), arg_expr(span)) : NULL;
    *sign = back ? scaled(L, times(L, AS(L, sign, v(from)), AS(L, sign, v(back))), num(L, -1)) : NULL;
    Value *y = back ? AS(L, rsub_Scalar, v(AS(L, abs, v(back))), arg_expr(span)) : NULL;
    return y ? AS(L, sub_Tensor, v(y), low) : NULL;
}

/* c3 s^3 + c2 s^2 + c1 s + c0 */
static Value *polynomial(Lower *L, Value *s, double c3, double c2, double c1, double c0)
{
    const double c[] = {c2, c1, c0};
    Value *y = scaled(L, s, num(L, c3));
    for (int i = 0; i < 3 && y; i++) {
        if (i) y = times(L, y, s);
        y = y ? AS(L, add_Tensor, v(y), num(L, c[i])) : NULL;
    }
    return y;
}

enum { BILINEAR, NEAREST, BICUBIC };
enum { ZEROS, BORDER, REFLECTION };

static bool taps_along(Lower *L, Value *grid, int k, int n, int64_t mode, int64_t padding, bool aligned, Taps *t)
{
    int count = mode == NEAREST ? 1 : mode == BILINEAR ? 2 : 4;
    Expr *last = ex_add(L->ex, t->n, ex_int(L->ex, -1)), *one = ex_int(L->ex, 1),
         *flat[] = {grid->dim[0], product_of(L->ex, n, grid->dim + 1)}, *dim[6];
    Value *u = AS(L, select_int, v(grid), arg_int(L->g, n + 1), arg_int(L->g, k));
    u = u ? AS(L, add_Tensor, v(lower_reshape(L, u, 2, flat)), num(L, 1)) : NULL;
    Value *place = scaled(L, u, arg_expr(aligned ? last : t->n));
    if (place && !aligned) place = AS(L, sub_Tensor, v(place), num(L, 1));
    if (!(place = over(L, place, num(L, 2)))) return false;
    if (padding == REFLECTION && mode != BICUBIC) TRY(place = reflected(L, place, t->n, aligned, &t->sign));
    if (padding != ZEROS && mode != BICUBIC) {
        t->moves = AS(L, logical_and, v(AS(L, gt_Tensor, v(place), num(L, 0))),
                      v(AS(L, lt_Tensor, v(place), arg_expr(last))));
        TRY(place = AS(L, clamp, v(place), num(L, 0), arg_expr(last)));
    }
    Value *base = mode == NEAREST ? AS(L, round, v(place)) : AS(L, floor, v(place)),
          *step = lower_cast(L, unsqueezed(L, AS(L, arange, arg_int(L->g, count)), 1), grid->dtype);
    if (step && mode == BICUBIC) step = AS(L, sub_Tensor, v(step), num(L, 1));
    Value *at = plus(L, unsqueezed(L, base, 1), step), *apart = minus(L, unsqueezed(L, place, 1), at),
          *s = apart ? AS(L, abs, v(apart)) : NULL, *ignored;
    if (!s) return false;
    if (mode == NEAREST) t->weight = AS(L, ones_like, v(s)), t->slope = AS(L, zeros_like, v(s));
    else if (mode == BILINEAR) {
        t->weight = AS(L, rsub_Scalar, v(s), num(L, 1));
        Value *side = AS(L, sub_Tensor, v(scaled(L, step, num(L, 2))), num(L, 1));
        t->slope = side ? AS(L, expand_as, v(side), v(s)) : NULL;
    } else { /* Keys' cubic */
        const double a = -0.75;
        Value *near = AS(L, le_Tensor, v(s), num(L, 1));
        t->weight = where(L, near, v(polynomial(L, s, a + 2, -(a + 3), 0, 1)),
                          v(polynomial(L, s, a, -5 * a, 8 * a, -4 * a)));
        t->slope = times(L, where(L, near, v(polynomial(L, s, 0, 3 * (a + 2), -2 * (a + 3), 0)),
                                  v(polynomial(L, s, 0, 3 * a, -10 * a, 8 * a))),
                         AS(L, sign, v(apart)));
        if (padding == REFLECTION) at = reflected(L, at, t->n, aligned, &ignored);
    }
    if (!at) return false;
    t->inside = padding != ZEROS ? AS(L, ones_like, v(at), arg_dtype(DT_BOOL))
                                 : AS(L, logical_and, v(AS(L, ge_Tensor, v(at), num(L, 0))),
                                      v(AS(L, le_Tensor, v(at), arg_expr(last))));
    at = AS(L, clamp, v(at), num(L, 0), arg_expr(last));
    t->at = at ? lower_cast(L, at, DT_I64) : NULL;
    for (int i = 0; i < n; i++) dim[1 + i] = i == k ? ex_int(L->ex, count) : one;
    dim[0] = flat[0], dim[n + 1] = flat[1];
    Value **all[] = {&t->at, &t->inside, &t->weight, &t->slope};
    for (int i = 0; i < 4; i++) TRY(*all[i] && (*all[i] = lower_reshape(L, *all[i], n + 2, dim)));
    return true;
}

/* (grad, input, grid, mode, padding, align_corners, mask): each sample is a sum over taps of axes, from the last one */
bool lower_grid_sampler_backward(Lower *L)
{
    DType t;
    int64_t mode, padding;
    bool aligned;
    TRY(lower_widened(L, 3, &t) && lower_const_int(L, 3, &mode) && lower_const_int(L, 4, &padding) &&
        lower_const_bool(L, 5, &aligned));
    Value *x = lower_value(L, 1), *grid = lower_value(L, 2), *at = NULL, *inside = NULL, *w = NULL, *to[3];
    int n = x->rank - 2;
    if (n < 2 || n > 3 || grid->rank != x->rank)
        return lower_fail(L, 2, "ranks %d and %d, expected 4 or 5", x->rank, grid->rank);
    Taps tap[3] = {0};
    for (int k = n - 1; k >= 0; k--) {
        tap[k].n = x->dim[n + 1 - k];
        TRY(taps_along(L, grid, k, n, mode, padding, aligned, &tap[k]));
        at = at ? plus(L, scaled(L, at, arg_expr(tap[k].n)), tap[k].at) : tap[k].at;
        inside = inside ? AS(L, logical_and, v(inside), v(tap[k].inside)) : tap[k].inside;
        w = w ? times(L, w, tap[k].weight) : tap[k].weight;
    }
    if (!at || !inside || !(w = where(L, inside, v(w), num(L, 0)))) return false;
    /* (N, C, taps .., P), and with taps and places as one axis */
    Expr *N = x->dim[0], *C = x->dim[1], *one = ex_int(L->ex, 1), *P = w->dim[n + 1], *wide[6] = {N, C},
         *dim[6] = {N, C}, *all = product_of(L->ex, n + 1, w->dim + 1),
         *pixels[] = {N, C, product_of(L->ex, n, x->dim + 2)},
         *every[] = {N, C, all}, *once[] = {N, one, all};
    for (int i = 0; i < n; i++) wide[2 + i] = w->dim[1 + i], dim[2 + i] = one;
    wide[2 + n] = dim[2 + n] = P;
    Value *g = lower_reshape(L, lower_value(L, 0), n + 3, dim);
    at = lower_reshape(L, at, 3, once);
    at = at ? AS(L, expand, v(at), arg_exprs(L->g, 3, every)) : NULL;
    Value *shares = times(L, g, unsqueezed(L, w, 1)), *zeros = blank(L, arg_exprs(L->g, 3, pixels), x->dtype);
    if (!at || !shares || !zeros) return false;
    Value *dx = AS(L, scatter_add, v(zeros), arg_int(L->g, 2), v(at), v(lower_reshape(L, shares, 3, every)));
    Value *here = AS(L, gather, v(lower_reshape(L, x, 3, pixels)), arg_int(L->g, 2), v(at));
    here = here ? times(L, g, lower_reshape(L, here, n + 3, wide)) : NULL;
    here = here ? AS(L, sum_dim_IntList, v(here), arg_ints(L->g, 1, (int64_t[]){1})) : NULL;
    here = here ? where(L, inside, v(here), num(L, 0)) : NULL;
    int64_t over_taps[] = {1, 2, 3};
    for (int k = 0; k < n && here; k++) {
        Value *y = here;
        for (int i = 0; i < n; i++) y = times(L, y, i == k ? tap[i].slope : tap[i].weight);
        y = y ? AS(L, sum_dim_IntList, v(y), arg_ints(L->g, n, over_taps)) : NULL;
        Expr *size = aligned ? ex_add(L->ex, tap[k].n, ex_int(L->ex, -1)) : tap[k].n;
        y = over(L, scaled(L, y, arg_expr(size)), num(L, 2));
        if (tap[k].sign) y = times(L, y, tap[k].sign);
        if (tap[k].moves) y = y ? where(L, tap[k].moves, v(y), num(L, 0)) : NULL;
        TRY(y && (to[k] = lower_reshape(L, y, n + 1, grid->dim)));
    }
    Value *dgrid = here ? AS(L, stack, arg_values(L->g, n, to), arg_int(L->g, -1)) : NULL;
    return dx && dgrid && give_all(L, 2, (Value *[]){shaped(L, dx, x), dgrid}, t);
}

/* A grid is a fixed one of places (H W, axes + 1) times theta (N, axes, axes + 1):
 * places by the op itself, of a theta that changes nothing. */
bool lower_affine_grid_backward(Lower *L)
{
    Value *g = lower_value(L, 0), *part[2];
    int axes = L->arg[1].n - 2;
    if (!g || axes < 2 || axes > 3 || g->rank != axes + 2) return lower_fail(L, 0, "expected the gradient of a grid");
    Expr *one = ex_int(L->ex, 1), *wide = ex_int(L->ex, axes + 1), *size[5], *dim[5],
         *places = product_of(L->ex, axes, g->dim + 1), *theta[] = {one, ex_int(L->ex, axes), wide},
         *flat[] = {g->dim[0], places, ex_int(L->ex, axes)};
    for (int i = 0; i < axes + 2; i++) size[i] = i ? L->arg[1].es[i] : one;
    for (int i = 0; i < axes + 2; i++) dim[i] = i && i <= axes ? g->dim[i] : one;
    Value *unit = AS(L, eye_m, arg_int(L->g, axes), arg_int(L->g, axes + 1), arg_dtype(g->dtype));
    unit = unit ? lower_reshape(L, unit, 3, theta) : NULL;
    part[0] = unit ? AS(L, affine_grid_generator, v(unit), arg_exprs(L->g, axes + 2, size), L->arg[2]) : NULL;
    part[1] = AS(L, full, arg_exprs(L->g, axes + 2, dim), num(L, 1), arg_dtype(g->dtype));
    if (!part[0] || !part[1]) return false;
    Value *base = AS(L, cat, arg_values(L->g, 2, part), arg_int(L->g, axes + 1));
    base = base ? lower_reshape(L, base, 2, (Expr *[]){places, wide}) : NULL;
    return lower_return(L, product(L, AS(L, mT, v(lower_reshape(L, g, 3, flat))), base));
}

/* Pixel y of n in the words of a grid whose edges are those of the outer pixels */
static Value *in_grid(Lower *L, Value *y, Expr *n)
{
    Value *twice = AS(L, add_Tensor, v(scaled(L, y, num(L, 2))), num(L, 1));
    return AS(L, sub_Tensor, v(over(L, twice, arg_expr(n))), num(L, 1));
}

/* Where a convolution's taps are along an axis (taps, out, 1) or (taps, 1, out): i step - pad + tap apart */
static Value *tap_places(Lower *L, int axis, Expr *taps, Expr *across, Expr *out)
{
    Expr *one = ex_int(L->ex, 1), *wide[] = {one, axis ? one : out, axis ? out : one};
    Value *tap = AS(L, arange, arg_expr(taps)), *at = AS(L, arange, arg_expr(out));
    Arg width = arg_expr(across);
    tap = axis ? AS(L, remainder_Scalar, v(tap), width) : AS(L, floor_divide_Scalar, v(tap), width);
    tap = lower_reshape(L, scaled(L, tap, L->arg[9 + axis]), 3, (Expr *[]){taps, one, one});
    at = AS(L, sub_Tensor, v(scaled(L, at, L->arg[5 + axis])), L->arg[7 + axis]);
    return AS(L, add_Tensor, v(tap), v(lower_reshape(L, at, 3, wide)));
}

/* (input, weight, offset, mask, bias, strides, pads, dilations, groups, offset groups, masked?): samples of the picture
 * at moved taps (N, channels taps, places), a grid for each offset group; then a product with the weights. */
bool lower_deform_conv(Lower *L)
{
    bool masked;
    Value *x = lower_value(L, 0), *w = lower_value(L, 1), *move = lower_value(L, 2), *mask = lower_value(L, 3), *at[2];
    if (!x || !w || !move || !mask || !lower_value(L, 4)) return lower_fail(L, 0, "expected tensors");
    if (x->rank != 4 || w->rank != 4 || move->rank != 4)
        return lower_fail(L, 2, "ranks %d, %d and %d, expected 4", x->rank, w->rank, move->rank);
    TRY(lower_const_bool(L, 13, &masked));
    for (int i = 5; i < 13; i++) { /* strides, pads, dilations, groups */
        int64_t least = i != 7 && i != 8, n;
        TRY(lower_const_int(L, i, &n));
        if (n < least || n > INT32_MAX)
            return lower_fail(L, i, "found %lld, expected %d to 2^31", (long long)n, (int)least);
    }
    ExprPool *p = L->ex;
    Expr *one = ex_int(p, 1), *N = x->dim[0], *C = x->dim[1], *groups = lower_expr(L, 11), *parts = lower_expr(L, 12),
         *taps = ex_mul(p, w->dim[2], w->dim[3]), *oh = move->dim[2], *ow = move->dim[3],
         *each = ex_floordiv(p, C, parts), *rows = ex_mul(p, taps, oh), *pictures = ex_mul(p, N, parts),
         *depth = ex_mul(p, w->dim[1], taps), *places = ex_mul(p, oh, ow), *outs = w->dim[0];
    Expr *shares[] = {N, parts, one, ex_mul(p, rows, ow)};
    DType t = x->dtype, wide = dtype_size(t) == 2 ? DT_F32 : t;
    move = lower_reshape(L, lower_cast(L, move, wide), 6, (Expr *[]){N, parts, taps, ex_int(p, 2), oh, ow});
    for (int i = 0; i < 2; i++) {
        TRY(move);
        Value *by = AS(L, select_int, v(move), arg_int(L->g, 3), arg_int(L->g, i));
        TRY(at[i] = plus(L, by, tap_places(L, i, taps, w->dim[3], move->dim[4 + i])));
        at[i] = in_grid(L, at[i], x->dim[2 + i]);
    }
    Value *grid = AS(L, stack, arg_values(L->g, 2, (Value *[]){at[1], at[0]}), arg_int(L->g, -1));
    grid = lower_reshape(L, grid, 4, (Expr *[]){pictures, rows, ow, ex_int(p, 2)});
    Value *y = lower_reshape(L, lower_cast(L, x, wide), 4, (Expr *[]){pictures, each, x->dim[2], x->dim[3]});
    const Arg zero = arg_int(L->g, 0);
    y = AS(L, grid_sampler, v(y), v(grid), zero, zero, arg_bool(L->g, false));
    y = lower_reshape(L, y, 4, (Expr *[]){N, parts, each, ex_mul(p, rows, ow)});
    if (masked) y = times(L, y, lower_reshape(L, lower_cast(L, mask, wide), 4, shares));
    y = lower_reshape(L, lower_cast(L, y, t), 4, (Expr *[]){N, groups, depth, places});
    y = product(L, lower_reshape(L, w, 3, (Expr *[]){groups, ex_floordiv(p, outs, groups), depth}), y);
    y = lower_reshape(L, y, 4, (Expr *[]){N, outs, oh, ow});
    return lower_return(L, plus(L, y, lower_reshape(L, lower_value(L, 4), 3, (Expr *[]){outs, one, one})));
}
