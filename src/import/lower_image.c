/* Lowering of resampling and pooling: every interpolate is one row (qkv.upsample), one-dimensional pools are two-dimensional ones. */
#include <string.h>
#include "import/lower_table.h"

static bool want(Lower *L, Value **x)
{
    *x = lower_value(L, 0);
    return *x || lower_fail(L, 0, "expected a tensor");
}

/* size * scale, rounded towards 0; exactly where the scale is a whole number. */
static Expr *scaled_size(Lower *L, Expr *size, Expr *scale)
{
    double f = ex_is_const(scale) ? (scale->kind == EX_FLOAT ? scale->f : (double)scale->i) : 0.5;
    if (f == (double)(int64_t)f) return ex_mul(L->ex, size, ex_int(L->ex, (int64_t)f));
    return ex_make(L->ex, EX_TRUNC, ex_mul(L->ex, ex_make(L->ex, EX_TOFLOAT, size, NULL, NULL), scale), NULL, NULL);
}

static bool upsample(Lower *L, const char *mode)
{
    Value *x;
    Expr *size[3], *scale[3];
    int corners = op_param(L->op, "align_corners"), factors = op_param(L->op, "scale_factors"), at = op_param(L->op, "output_size");
    TRY(want(L, &x));
    int n = x->rank - 2;
    bool scaled = false;
    if (n < 1 || n > 3) return lower_fail(L, 0, "rank %d, expected 3 to 5", x->rank);
    const Arg *given = &L->arg[at], *by = factors >= 0 ? &L->arg[factors] : NULL;
    if (given->kind == ARG_EXPRS && given->n > 1 && given->n != n) return lower_fail(L, at, "%d sizes, expected %d", given->n, n);
    if (by && by->kind == ARG_EXPRS && by->n > 1 && by->n != n) return lower_fail(L, factors, "%d factors, expected %d", by->n, n);
    for (int i = 0; i < n; i++) {
        scale[i] = ex_float(L->ex, 0);
        if (by && by->kind == ARG_EXPRS && by->n) {
            scale[i] = by->es[by->n == 1 ? 0 : i];
            scaled = true;
        } else if (!by && at + 1 + i + (corners >= 0) < L->op->schema->nparams && lower_expr(L, at + 1 + i + (corners >= 0))) {
            scale[i] = lower_expr(L, at + 1 + i + (corners >= 0));
            scaled = true;
        }
        if (given->kind == ARG_EXPRS && given->n) size[i] = given->es[given->n == 1 ? 0 : i];
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
                                           (Arg[]){arg_value(x), pair(L, &L->arg[1], 1), pair(L, &L->arg[2], 1), pair(L, &L->arg[3], 0), pair(L, &L->arg[4], 1), L->arg[5]}));
}

bool lower_avg_pool(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    x = as_plane(L, x);
    Value *y = x ? EMIT(L, avg_pool2d, arg_value(x), pair(L, &L->arg[1], 1), pair(L, &L->arg[2], 1), pair(L, &L->arg[3], 0), L->arg[4], L->arg[5]) : NULL;
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
    return return_lines(L, lower_emit_node(L, OP_adaptive_max_pool2d, 2, (Arg[]){arg_value(x), pair(L, &L->arg[1], 1)}));
}
