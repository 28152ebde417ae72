/* Shapes of resampling, pooling and detection. */
#include "shape/shape_table.h"

/* upsample(input (N, C, spatial...), size, mode, align_corners, scales) */
bool shape_upsample(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    const Arg *size = shape_arg(s, 1);
    TRY(shape_want_value(s, 0, &x));
    if (x->rank != size->n + 2) return shape_fail(s, 1, "%d sizes for a tensor of rank %d", size->n, x->rank);
    if (!dtype_is_float(x->dtype) && x->dtype != DT_U8) return shape_fail(s, 0, "dtype %s, expected a float", dtype_name(x->dtype));
    dim[0] = x->dim[0];
    dim[1] = x->dim[1];
    for (int i = 0; i < size->n; i++) dim[2 + i] = size->es[i];
    return shape_out(s, 0, x->dtype, x->rank, dim);
}

bool shape_grid_sampler(Shape *s)
{
    Value *x, *grid;
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 1, &grid));
    if (x->rank != 4 || grid->rank != 4) return fail(s->err, E_UNSUPPORTED, "grid_sampler of rank %d; rank 4 is built", x->rank);
    TRY(shape_require_equal(s, x->dim[0], grid->dim[0], "batches of input and grid") &&
        shape_require_equal(s, grid->dim[3], ex_int(s->ex, 2), "coordinates of the grid"));
    return shape_out(s, 0, x->dtype, 4, (Expr *[]){x->dim[0], x->dim[1], grid->dim[1], grid->dim[2]});
}

static Expr *list_at(const Arg *a, int i, Expr *otherwise)
{
    if (a->kind == ARG_EXPR) return a->e;
    return a->kind == ARG_EXPRS && a->n ? a->es[a->n == 1 ? 0 : i] : otherwise;
}

/* aten/src/ATen/native/Pool.h: pooling_output_shape. With ceil_mode the last window must start inside the input or its left padding. */
static Expr *pooled(Shape *s, Expr *in, Expr *kernel, Expr *stride, Expr *pad, Expr *dilation, bool ceil)
{
    ExprPool *p = s->ex;
    Expr *one = ex_int(p, 1), *span = ex_mul(p, dilation, ex_sub(p, kernel, one));
    Expr *room = ex_sub(p, ex_sub(p, ex_add(p, in, ex_mul(p, pad, ex_int(p, 2))), span), one);
    if (ceil) room = ex_add(p, room, ex_sub(p, stride, one));
    Expr *n = ex_add(p, ex_floordiv(p, room, stride), one);
    if (!ceil || !n) return n;
    Expr *over = ex_make(p, EX_LE, ex_add(p, in, pad), ex_mul(p, ex_sub(p, n, one), stride), NULL);
    return ex_make(p, EX_WHERE, over, ex_sub(p, n, one), n);
}

/* The last two dims of a tensor of rank 3 or 4. */
static bool pool_shape(Shape *s, const Value *x, int dilation, int ceil_arg, Expr **dim)
{
    bool ceil;
    Expr *one = ex_int(s->ex, 1), *zero = ex_int(s->ex, 0);
    if (x->rank != 4 && x->rank != 3) return shape_fail(s, 0, "rank %d, expected 3 or 4", x->rank);
    TRY(shape_const_bool(s, ceil_arg, &ceil));
    for (int i = 0; i < x->rank; i++) dim[i] = x->dim[i];
    for (int i = 0; i < 2; i++) {
        Expr *kernel = list_at(shape_arg(s, 1), i, one), *stride = list_at(shape_arg(s, 2), i, kernel);
        int64_t lo, hi;
        ex_range(s->ex, stride, &lo, &hi);
        if (hi < 1) return shape_fail(s, 2, "must be at least 1");
        int at = x->rank - 2 + i;
        dim[at] = pooled(s, x->dim[at], kernel, stride, list_at(shape_arg(s, 3), i, zero), dilation ? list_at(shape_arg(s, dilation), i, one) : one, ceil);
    }
    return true;
}

bool shape_max_pool(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x) && pool_shape(s, x, 4, 5, dim));
    return shape_out(s, 0, x->dtype, x->rank, dim) && shape_out(s, 1, DT_I64, x->rank, dim);
}

bool shape_avg_pool(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x) && pool_shape(s, x, 0, 4, dim));
    return shape_out(s, 0, x->dtype, x->rank, dim);
}

bool shape_adaptive_avg(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    const Arg *a = shape_arg(s, 1);
    TRY(shape_want_value(s, 0, &x));
    if ((x->rank != 4 && x->rank != 3) || a->n != 2) return shape_fail(s, 0, "rank %d, expected 3 or 4", x->rank);
    for (int i = 0; i < x->rank; i++) dim[i] = i < x->rank - 2 ? x->dim[i] : a->es[i - (x->rank - 2)];
    return shape_out(s, 0, x->dtype, x->rank, dim);
}

bool shape_roi_align(Shape *s)
{
    Value *x, *rois;
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 1, &rois));
    if (x->rank != 4 || rois->rank != 2) return shape_fail(s, 1, "ranks %d and %d, expected 4 and 2", x->rank, rois->rank);
    TRY(shape_require_equal(s, rois->dim[1], ex_int(s->ex, 5), "numbers of a region (image, x1, y1, x2, y2)"));
    return shape_out(s, 0, x->dtype, 4, (Expr *[]){rois->dim[0], x->dim[1], shape_arg(s, 3)->e, shape_arg(s, 4)->e});
}

bool shape_nms(Shape *s)
{
    Value *boxes;
    TRY(shape_want_value(s, 0, &boxes));
    Expr *n = shape_fresh_symbol(s);
    if (!n) return fail(s->err, E_LIMIT, "out of memory");
    return shape_out(s, 0, DT_I64, 1, &n) && shape_size_of(s, n, 0, 0);
}
