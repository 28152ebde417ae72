/* Shapes of reductions, scans, softmax, norms and sorting. Columns:
 * dim is argument 1 and keepdim argument 2 unless said otherwise. */
#include "shape/shape_table.h"

/* x without the dims that are set, or with 1 in their place. */
static bool reduced(Shape *s, int k, const Value *x, const bool *set, bool keep, DType t)
{
    Expr *dim[MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->rank; i++) {
        if (!set[i]) dim[n++] = x->dim[i];
        else if (keep) dim[n++] = ex_int(s->ex, 1);
    }
    return shape_out(s, k, t, n, dim);
}

static bool reduce_over(Shape *s, int dims, int keepdim, DType t)
{
    Value *x;
    bool set[MAX_RANK], keep = false;
    TRY(shape_want_value(s, 0, &x) && shape_dims(s, dims, x->rank, set));
    if (keepdim >= 0) TRY(shape_const_bool(s, keepdim, &keep));
    return reduced(s, 0, x, set, keep, t == DT_NONE ? x->dtype : t);
}

bool shape_reduce(Shape *s) { return reduce_over(s, 1, 2, DT_NONE); }
/* any and all of u8 are u8, of everything else bool */
bool shape_reduce_truth(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x));
    return reduce_over(s, 1, 2, x->dtype == DT_U8 ? DT_U8 : DT_BOOL);
}
bool shape_reduce_arg(Shape *s) { return reduce_over(s, 1, 2, DT_I64); }
bool shape_reduce_var(Shape *s) { return reduce_over(s, 1, 3, DT_NONE); }
bool shape_reduce_norm(Shape *s) { return reduce_over(s, 2, 3, DT_NONE); }

/* Integers and bools add up in i64. */
static DType sum_dtype(const Value *x)
{
    return dtype_is_float(x->dtype) || dtype_is_complex(x->dtype) ? x->dtype : DT_I64;
}

bool shape_reduce_sum(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x));
    return reduce_over(s, 1, 2, sum_dtype(x));
}

bool shape_reduce_prod(Shape *s) { return shape_reduce_sum(s); }

static bool value_and_position(Shape *s, int dim, int keepdim)
{
    Value *x;
    int d;
    bool set[MAX_RANK] = {false}, keep;
    TRY(shape_want_value(s, 0, &x) && shape_dim(s, dim, x->rank, &d) && shape_const_bool(s, keepdim, &keep));
    set[d] = true;
    return reduced(s, 0, x, set, keep, x->dtype) && reduced(s, 1, x, set, keep, DT_I64);
}

bool shape_reduce_pair(Shape *s) { return value_and_position(s, 1, 2); }
bool shape_kthvalue(Shape *s) { return value_and_position(s, 2, 3); }

bool shape_median(Shape *s)
{
    Value *x;
    return shape_want_value(s, 0, &x) && shape_out(s, 0, x->dtype, 0, NULL);
}

/* As many bins as the largest number says, at least minlength. */
bool shape_bincount(Shape *s)
{
    Value *x, *w = shape_value(s, 1);
    TRY(shape_want_value(s, 0, &x));
    if (x->rank != 1 || dtype_is_float(x->dtype))
        return shape_fail(s, 0, "%s of rank %d, expected integers of rank 1", dtype_name(x->dtype), x->rank);
    if (w && w->rank != 1) return shape_fail(s, 1, "rank %d, expected 1", w->rank);
    Expr *n = shape_fresh_symbol(s);
    if (!n) return oom(s->err);
    return shape_out(s, 0, !w ? DT_I64 : w->dtype == DT_F32 ? DT_F32 : DT_F64, 1, &n) && shape_size_of(s, n, 0, 0);
}

/* x (..., P, M), y (..., R, M) -> (..., P, R) */
bool shape_cdist(Shape *s)
{
    Value *x, *y;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 1, &y));
    if (x->rank < 2 || y->rank < 2) return shape_fail(s, 0, "ranks %d and %d, expected at least 2", x->rank, y->rank);
    if (x->dtype != y->dtype || !dtype_is_float(x->dtype))
        return shape_fail(s, 1, "dtypes %s and %s, expected one float", dtype_name(x->dtype), dtype_name(y->dtype));
    TRY(shape_require_equal(s, x->dim[x->rank - 1], y->dim[y->rank - 1], "sizes of the two points"));
    int rank = x->rank - 2;
    for (int i = 0; i < rank; i++) dim[i] = x->dim[i];
    TRY(shape_broadcast(s, &rank, dim, y->rank - 2, y->dim, "batches of the points"));
    dim[rank++] = x->dim[x->rank - 2];
    dim[rank++] = y->dim[y->rank - 2];
    return shape_out(s, 0, x->dtype, rank, dim);
}

bool shape_scan(Shape *s)
{
    Value *x;
    int d;
    TRY(shape_want_value(s, 0, &x) && shape_dim(s, 1, x->rank, &d));
    return shape_out_like(s, 0, x, sum_dtype(x));
}

bool shape_softmax(Shape *s)
{
    Value *x;
    int d;
    TRY(shape_want_value(s, 0, &x) && shape_dim(s, 1, x->rank, &d));
    return shape_out_like(s, 0, x, x->dtype);
}

/* (pairs, dim): of complex numbers, whose last axis is not the pairs' */
bool shape_scan_pairs(Shape *s)
{
    Value *x;
    int d;
    TRY(shape_want_value(s, 0, &x));
    if (!dtype_is_float(x->dtype) || !x->rank || !ex_equals_int(x->dim[x->rank - 1], 2))
        return shape_fail(s, 0, "%s of rank %d, expected pairs of floats", dtype_name(x->dtype), x->rank);
    return shape_dim(s, 1, x->rank - 1, &d) && shape_out_like(s, 0, x, x->dtype);
}

static bool normalized(Shape *s, const Value *x)
{
    const Arg *a = shape_arg(s, 1);
    if (a->n < 1 || a->n > x->rank) return shape_fail(s, 1, "found %d sizes for a tensor of rank %d", a->n, x->rank);
    for (int i = 0; i < a->n; i++) TRY(shape_require_equal(s, x->dim[x->rank - a->n + i], a->es[i], "normalized size"));
    for (int k = 2; k < 4; k++) {
        Value *w = s->node->op->schema->params[k].type == PT_TENSOR ? shape_value(s, k) : NULL;
        if (!w) continue;
        if (w->rank != a->n) return shape_fail(s, k, "rank %d, expected %d", w->rank, a->n);
        for (int i = 0; i < a->n; i++) TRY(shape_require_equal(s, w->dim[i], a->es[i], "size of weight or bias"));
    }
    return true;
}

bool shape_layer_norm(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x) && normalized(s, x));
    return shape_out_like(s, 0, x, x->dtype);
}

bool shape_rms_norm(Shape *s) { return shape_layer_norm(s); }

/* (grad_output, input, sizes, weight) -> gradients of input, weight and bias */
bool shape_norm_backward(Shape *s)
{
    Value *g, *x, *w;
    TRY(shape_want_value(s, 0, &g) && shape_want_value(s, 1, &x) && shape_want_value(s, 3, &w));
    const Arg *a = shape_arg(s, 2);
    if (a->n < 1 || a->n > x->rank) return shape_fail(s, 2, "found %d sizes for a tensor of rank %d", a->n, x->rank);
    if (g->rank != x->rank) return shape_fail(s, 0, "rank %d, expected %d", g->rank, x->rank);
    if (w->rank != a->n) return shape_fail(s, 3, "rank %d, expected %d", w->rank, a->n);
    for (int i = 0; i < x->rank; i++) TRY(shape_require_equal(s, g->dim[i], x->dim[i], "sizes of the gradient"));
    for (int i = 0; i < a->n; i++)
        TRY(shape_require_equal(s, x->dim[x->rank - a->n + i], a->es[i], "normalized size") &&
            shape_require_equal(s, w->dim[i], a->es[i], "size of the weight"));
    return shape_out_like(s, 0, x, x->dtype) && shape_out(s, 1, w->dtype, w->rank, w->dim) &&
           shape_out(s, 2, w->dtype, w->rank, w->dim);
}

static bool channels(Shape *s, const Value *x, int first, int last)
{
    if (x->rank < 2) return shape_fail(s, 0, "rank %d, expected at least 2", x->rank);
    for (int k = first; k <= last; k++) {
        Value *w = shape_value(s, k);
        if (!w) continue;
        if (w->rank != 1) return shape_fail(s, k, "rank %d, expected 1", w->rank);
        TRY(shape_require_equal(s, w->dim[0], x->dim[1], "channels"));
    }
    return true;
}

bool shape_group_norm(Shape *s)
{
    Value *x;
    int64_t groups;
    TRY(shape_want_value(s, 0, &x) && shape_const_int(s, 1, &groups) && channels(s, x, 2, 3));
    if (groups < 1) return shape_fail(s, 1, "found %lld, expected at least 1", (long long)groups);
    TRY(graph_require(s->g,
                      ex_make(s->ex, EX_EQ, ex_mod(s->ex, x->dim[1], ex_int(s->ex, groups)), ex_int(s->ex, 0), NULL),
                      s->err, "node '%s': groups divide the channels", s->node->name));
    return shape_out_like(s, 0, x, x->dtype);
}

bool shape_batch_norm(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x) && channels(s, x, 1, 4));
    if (!dtype_is_float(x->dtype)) return shape_fail(s, 0, "%s, expected floats", dtype_name(x->dtype));
    for (int k = 3; k <= 4; k++)
        if (!shape_value(s, k)) return shape_fail(s, k, "expected a tensor: no statistics are computed here");
    return shape_out_like(s, 0, x, x->dtype);
}

bool shape_sort(Shape *s)
{
    Value *x;
    int d;
    TRY(shape_want_value(s, 0, &x) && shape_dim(s, 1, x->rank, &d));
    return shape_out_like(s, 0, x, x->dtype) && shape_out_like(s, 1, x, DT_I64);
}

bool shape_histc(Shape *s)
{
    Value *x;
    const Arg *bins = shape_arg(s, 1);
    TRY(shape_want_value(s, 0, &x));
    if (!dtype_is_float(x->dtype)) return shape_fail(s, 0, "%s, expected floats", dtype_name(x->dtype));
    return shape_out(s, 0, x->dtype, 1, (Expr *const *)&bins->e);
}

bool shape_topk(Shape *s)
{
    Value *x;
    int d;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x) && shape_dim(s, 2, x->rank, &d));
    for (int i = 0; i < x->rank; i++) dim[i] = x->dim[i];
    Expr *k = shape_arg(s, 1)->e;
    if (x->rank) {
        TRY(graph_require(s->g, ex_make(s->ex, EX_LE, k, x->dim[d], NULL), s->err, "node '%s': k no larger than dim %d",
                          s->node->name, d));
        dim[d] = k;
    }
    return shape_out(s, 0, x->dtype, x->rank, dim) && shape_out(s, 1, DT_I64, x->rank, dim);
}
