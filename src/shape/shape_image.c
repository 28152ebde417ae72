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
    if (!dtype_is_float(x->dtype) && x->dtype != DT_U8)
        return shape_fail(s, 0, "dtype %s, expected a float", dtype_name(x->dtype));
    dim[0] = x->dim[0];
    dim[1] = x->dim[1];
    for (int i = 0; i < size->n; i++) dim[2 + i] = size->es[i];
    return shape_out(s, 0, x->dtype, x->rank, dim);
}

/* input (N, C, h, w) with grid (N, H, W, 2), or (N, C, d, h, w) with (N, D, H, W, 3) */
bool shape_grid_sampler(Shape *s)
{
    Value *x, *grid;
    Expr *dim[5];
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 1, &grid));
    int n = x->rank - 2;
    if ((n != 2 && n != 3) || grid->rank != x->rank)
        return shape_fail(s, 1, "rank %d for an input of rank %d, expected equal ranks of 4 or 5", grid->rank, x->rank);
    TRY(shape_require_equal(s, x->dim[0], grid->dim[0], "batches of input and grid") &&
        shape_require_equal(s, grid->dim[n + 1], ex_int(s->ex, n), "coordinates of the grid"));
    dim[0] = x->dim[0];
    dim[1] = x->dim[1];
    for (int i = 0; i < n; i++) dim[2 + i] = grid->dim[1 + i];
    return shape_out(s, 0, x->dtype, x->rank, dim);
}

/* theta (N, n, n + 1), size (N, C, spatial...) -> (N, spatial..., n) */
bool shape_affine_grid(Shape *s)
{
    Value *theta;
    Expr *dim[5];
    const Arg *size = shape_arg(s, 1);
    TRY(shape_want_value(s, 0, &theta));
    int n = size->n - 2;
    if ((n != 2 && n != 3) || theta->rank != 3)
        return shape_fail(s, 1, "%d sizes for a theta of rank %d, expected 4 or 5 and 3", size->n, theta->rank);
    TRY(shape_require_equal(s, theta->dim[0], size->es[0], "batches of theta and size") &&
        shape_require_equal(s, theta->dim[1], ex_int(s->ex, n), "rows of theta") &&
        shape_require_equal(s, theta->dim[2], ex_int(s->ex, n + 1), "columns of theta"));
    dim[0] = size->es[0];
    for (int i = 0; i < n; i++) dim[1 + i] = size->es[2 + i];
    dim[n + 1] = ex_int(s->ex, n);
    return shape_out(s, 0, theta->dtype, n + 2, dim);
}

static Expr *list_at(const Arg *a, int i, Expr *otherwise)
{
    if (a->kind == ARG_EXPR) return a->e;
    return a->kind == ARG_EXPRS && a->n ? a->es[a->n == 1 ? 0 : i] : otherwise;
}

/* aten/src/ATen/native/Pool.h: pooling_output_shape. With ceil_mode the last window must start inside the input or
 * its left padding. */
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

/* How many axes are pooled: the fixed length of the op's sizes. */
static int pool_axes(Shape *s, const Value *x)
{
    int n = s->node->op->schema->params[1].fixed_len;
    return x->rank == n + 1 || x->rank == n + 2
               ? n
               : (shape_fail(s, 0, "rank %d, expected %d or %d", x->rank, n + 1, n + 2), 0);
}

static bool pool_shape(Shape *s, const Value *x, int dilation, int ceil_arg, Expr **dim)
{
    bool ceil;
    int n = pool_axes(s, x);
    Expr *one = ex_int(s->ex, 1), *zero = ex_int(s->ex, 0);
    TRY(n && shape_const_bool(s, ceil_arg, &ceil));
    const int lists[4] = {1, 2, 3, dilation ? dilation : 1};
    for (int k = 0; k < 4; k++) {
        const Arg *a = shape_arg(s, lists[k]);
        if (a->kind == ARG_EXPRS && a->n > 1 && a->n != n)
            return shape_fail(s, lists[k], "found %d values, expected %d", a->n, n);
    }
    for (int i = 0; i < x->rank; i++) dim[i] = x->dim[i];
    for (int i = 0; i < n; i++) {
        Expr *kernel = list_at(shape_arg(s, 1), i, one), *stride = list_at(shape_arg(s, 2), i, kernel);
        Expr *pad = list_at(shape_arg(s, 3), i, zero),
             *apart = dilation ? list_at(shape_arg(s, dilation), i, one) : one;
        if (!ex_is_int(kernel) || !ex_is_int(pad) || !ex_is_int(apart))
            return shape_fail(s, 1, "window, padding and dilation must be constant");
        TRY(shape_window(s, 2, stride, 1));
        if (kernel->i < 1 || apart->i < 1)
            return shape_fail(s, 1, "a window of %lld, dilated %lld", (long long)kernel->i, (long long)apart->i);
        if (pad->i < 0 || pad->i > kernel->i / 2)
            return shape_fail(s, 3, "found %lld, allowed is 0 to half the window of %lld", (long long)pad->i,
                              (long long)kernel->i);
        TRY(shape_window(s, 1, kernel, 1) && shape_window(s, dilation, apart, 1));
        int at = x->rank - n + i;
        dim[at] = pooled(s, x->dim[at], kernel, stride, pad, apart, ceil);
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

static bool adaptive_shape(Shape *s, Value **x, Expr **dim)
{
    const Arg *a = shape_arg(s, 1);
    TRY(shape_want_value(s, 0, x));
    int n = pool_axes(s, *x), lead = (*x)->rank - n;
    if (n && a->n != n) return shape_fail(s, 1, "found %d sizes, expected %d", a->n, n);
    for (int i = 0; n && i < (*x)->rank; i++) dim[i] = i < lead ? (*x)->dim[i] : a->es[i - lead];
    return n != 0;
}

bool shape_adaptive_avg(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    return adaptive_shape(s, &x, dim) && shape_out(s, 0, x->dtype, x->rank, dim);
}

bool shape_adaptive_max(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    return adaptive_shape(s, &x, dim) && shape_out(s, 0, x->dtype, x->rank, dim) &&
           shape_out(s, 1, DT_I64, x->rank, dim);
}

/* (N, C kh kw, L) -> (N, C, h, w), N may be missing */
bool shape_col2im(Shape *s)
{
    Value *x;
    Expr *dim[4], *kernel = ex_int(s->ex, 1);
    TRY(shape_want_value(s, 0, &x));
    int n = x->rank - 2;
    if (n != 0 && n != 1) return shape_fail(s, 0, "rank %d, expected 2 or 3", x->rank);
    for (int i = 0; i < 2; i++) {
        dim[n + 1 + i] = list_at(shape_arg(s, 1), i, NULL);
        kernel = ex_mul(s->ex, kernel, list_at(shape_arg(s, 2), i, NULL));
    }
    if (!kernel || !dim[n + 1] || !ex_is_int(kernel) || kernel->i < 1)
        return shape_fail(s, 2, "expected two constant sizes of at least 1");
    dim[0] = x->dim[0];
    dim[n] = ex_floordiv(s->ex, x->dim[n], kernel);
    TRY(shape_require_equal(s, ex_mul(s->ex, dim[n], kernel), x->dim[n], "rows as multiples of the kernel's size"));
    Expr *one = ex_int(s->ex, 1), *zero = ex_int(s->ex, 0), *windows = one;
    for (int i = 0; i < 2; i++) {
        Expr *k = list_at(shape_arg(s, 2), i, one), *apart = list_at(shape_arg(s, 3), i, one),
             *pad = list_at(shape_arg(s, 4), i, zero);
        Expr *step = list_at(shape_arg(s, 5), i, one);
        if (!ex_is_int(k) || !ex_is_int(apart) || !ex_is_int(pad) || !ex_is_int(step))
            return shape_fail(s, 2, "window, dilation, padding and stride must be constant");
        int64_t most = 1 << 20; /* as the kernel has it */
        if (k->i < 1 || k->i > most || apart->i < 1 || apart->i > most || pad->i < 0 || pad->i > most || step->i < 1 ||
            step->i > most)
            return shape_fail(s, 2, "window, dilation, padding and stride must be from 1 (padding 0) to 2^20");
        Expr *room = ex_add(s->ex, dim[n + 1 + i], ex_int(s->ex, 2 * pad->i - apart->i * (k->i - 1) - 1));
        windows = ex_mul(s->ex, windows, ex_add(s->ex, ex_floordiv(s->ex, room, step), ex_int(s->ex, 1)));
    }
    TRY(shape_require_equal(s, windows, x->dim[n + 1], "windows of the output"));
    return shape_out(s, 0, x->dtype, n + 3, dim);
}

/* Each bin takes so many samples a side, squared: a file must not ask for hours of them. */
static bool few_samples(Shape *s, int i)
{
    enum { MOST = 1024 };
    int64_t ratio = 0;
    TRY(shape_const_int(s, i, &ratio));
    return ratio <= MOST ||
           fail(s->err, E_LIMIT, "argument 'sampling_ratio': found %lld, at most %d samples a side are taken",
                (long long)ratio, MOST);
}

bool shape_roi_align(Shape *s)
{
    Value *x, *rois;
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 1, &rois));
    if (x->rank != 4 || rois->rank != 2)
        return shape_fail(s, 1, "ranks %d and %d, expected 4 and 2", x->rank, rois->rank);
    TRY(few_samples(s, 5) &&
        shape_require_equal(s, rois->dim[1], ex_int(s->ex, 5), "values of a region (image, x1, y1, x2, y2)"));
    return shape_out(s, 0, x->dtype, 4, (Expr *[]){rois->dim[0], x->dim[1], shape_arg(s, 3)->e, shape_arg(s, 4)->e});
}

/* grad (n, C, ph, pw) of n regions -> (batch, C, height, width), the gradient of what they were read from */
bool shape_roi_align_backward(Shape *s)
{
    Value *g, *rois;
    TRY(shape_want_value(s, 0, &g) && shape_want_value(s, 1, &rois));
    if (g->rank != 4 || rois->rank != 2)
        return shape_fail(s, 1, "ranks %d and %d, expected 4 and 2", g->rank, rois->rank);
    TRY(few_samples(s, 9) &&
        shape_require_equal(s, rois->dim[1], ex_int(s->ex, 5), "values of a region (image, x1, y1, x2, y2)") &&
        shape_require_equal(s, rois->dim[0], g->dim[0], "regions and gradients") &&
        shape_require_equal(s, shape_arg(s, 3)->e, g->dim[2], "rows of a region") &&
        shape_require_equal(s, shape_arg(s, 4)->e, g->dim[3], "columns of a region") &&
        shape_require_equal(s, shape_arg(s, 6)->e, g->dim[1], "channels"));
    Expr *dim[4];
    for (int i = 0; i < 4; i++) dim[i] = shape_arg(s, 5 + i)->e;
    return shape_out(s, 0, g->dtype, 4, dim);
}

bool shape_roi_pool(Shape *s)
{
    Value *x, *rois;
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 1, &rois));
    if (x->rank != 4 || rois->rank != 2)
        return shape_fail(s, 1, "ranks %d and %d, expected 4 and 2", x->rank, rois->rank);
    TRY(shape_require_equal(s, rois->dim[1], ex_int(s->ex, 5), "values of a region (image, x1, y1, x2, y2)"));
    Expr *dim[4] = {rois->dim[0], x->dim[1], shape_arg(s, 3)->e, shape_arg(s, 4)->e};
    return shape_out(s, 0, x->dtype, 4, dim) && shape_out(s, 1, DT_I32, 4, dim);
}

bool shape_nms(Shape *s)
{
    Value *boxes, *scores;
    TRY(shape_want_value(s, 0, &boxes) && shape_want_value(s, 1, &scores));
    if (boxes->rank != 2 || scores->rank != 1)
        return shape_fail(s, 0, "ranks %d and %d of boxes and scores, expected 2 and 1", boxes->rank, scores->rank);
    TRY(shape_require_equal(s, boxes->dim[1], ex_int(s->ex, 4), "corners of a box") &&
        shape_require_equal(s, boxes->dim[0], scores->dim[0], "boxes and scores"));
    Expr *n = shape_fresh_symbol(s);
    if (!n) return oom(s->err);
    return shape_out(s, 0, DT_I64, 1, &n) && shape_size_of(s, n, 0, 0);
}
