/* Shapes of the plain view ops: reshape, permute, expand, select, slice, as_strided, diagonal, unfold, view.dtype.
 * Import has already resolved -1, negative dims and open ends (src/lower/lower_view.c); what arrives here is explicit.
 */
#include "shape/shape_table.h"

bool shape_reshape(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x));
    const Arg *a = shape_arg(s, 1);
    Expr *n = ex_int(s->ex, 1);
    for (int i = 0; i < a->n; i++) n = ex_mul(s->ex, n, a->es[i]);
    TRY(shape_require_equal(s, shape_numel(s, x), n, "number of elements before and after reshape"));
    return shape_out(s, 0, x->dtype, a->n, a->es);
}

bool shape_permute(Shape *s)
{
    Value *x;
    bool seen[MAX_RANK];
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x));
    TRY(shape_dims(s, 1, x->rank, seen));
    const Arg *a = shape_arg(s, 1);
    if (a->n != x->rank) return shape_fail(s, 1, "found %d dims for a tensor of rank %d", a->n, x->rank);
    for (int i = 0; i < a->n; i++) dim[i] = x->dim[a->es[i]->i < 0 ? a->es[i]->i + x->rank : a->es[i]->i];
    return shape_out(s, 0, x->dtype, x->rank, dim);
}

bool shape_expand(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x));
    const Arg *a = shape_arg(s, 1);
    int lead = a->n - x->rank;
    if (lead < 0) return shape_fail(s, 1, "found %d sizes for a tensor of rank %d", a->n, x->rank);
    for (int i = 0; i < x->rank; i++)
        if (!ex_equals_int(x->dim[i], 1)) {
            bool one = shape_stands_for_one(s, x->dim[i], a->es[lead + i]);
            TRY(shape_require_equal(s, x->dim[i], one ? ex_int(s->ex, 1) : a->es[lead + i], "size that expand keeps"));
        }
    return shape_out(s, 0, x->dtype, a->n, a->es);
}

bool shape_select(Shape *s)
{
    Value *x;
    int d;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x));
    if (x->rank == 0) return shape_fail(s, 0, "a tensor of rank 0 has nothing to select from");
    TRY(shape_dim(s, 1, x->rank, &d));
    Expr *index = shape_arg(s, 2)->e;
    TRY(graph_require(s->g, ex_make(s->ex, EX_LT, index, x->dim[d], NULL), s->err,
                      "node '%s': index below size of dim %d", s->node->name, d));
    TRY(graph_require(s->g, ex_make(s->ex, EX_LE, ex_int(s->ex, 0), index, NULL), s->err,
                      "node '%s': index not negative", s->node->name));
    for (int i = 0, k = 0; i < x->rank; i++)
        if (i != d) dim[k++] = x->dim[i];
    return shape_out(s, 0, x->dtype, x->rank - 1, dim);
}

/* end - max(0, end - k): the last k, or all of fewer */
static Expr *span_of(Shape *s, Expr *start, Expr *end)
{
    if (start->kind == EX_MAX && start->nargs == 2)
        for (int i = 0; i < 2; i++) {
            Expr *k = ex_sub(s->ex, end, start->args[i]);
            if (ex_equals_int(start->args[1 - i], 0) && k && ex_is_int(k) && k->i > 0) return ex_min(s->ex, end, k);
        }
    return ex_sub(s->ex, end, start);
}

bool shape_slice(Shape *s)
{
    Value *x;
    int d;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x));
    TRY(shape_dim(s, 1, x->rank, &d));
    Expr *start = shape_arg(s, 2)->e, *end = shape_arg(s, 3)->e, *step = shape_arg(s, 4)->e;
    int64_t lo, hi;
    ex_range(s->ex, step, &lo, &hi);
    if (hi < 1 || step->is_float || step->is_bool) return shape_fail(s, 4, "must be an integer of at least 1");
    for (int i = 0; i < x->rank; i++) dim[i] = x->dim[i];
    Expr *span = span_of(s, start, end); /* lowering made 0 <= start <= end <= size */
    dim[d] = ex_floordiv(s->ex, ex_sub(s->ex, ex_add(s->ex, span, step), ex_int(s->ex, 1)), step);
    return shape_out(s, 0, x->dtype, x->rank, dim);
}

bool shape_as_strided(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x));
    if (shape_arg(s, 1)->n != shape_arg(s, 2)->n)
        return shape_fail(s, 2, "found %d strides for %d sizes", shape_arg(s, 2)->n, shape_arg(s, 1)->n);
    return shape_out(s, 0, x->dtype, shape_arg(s, 1)->n, shape_arg(s, 1)->es);
}

bool shape_diagonal(Shape *s)
{
    Value *x;
    int64_t offset;
    int d1, d2, k = 0;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x));
    TRY(shape_const_int(s, 1, &offset));
    TRY(shape_dim(s, 2, x->rank, &d1));
    TRY(shape_dim(s, 3, x->rank, &d2));
    if (d1 == d2) return shape_fail(s, 3, "the two dims are the same (%d)", d1);
    for (int i = 0; i < x->rank; i++)
        if (i != d1 && i != d2) dim[k++] = x->dim[i];
    Expr *rows = x->dim[d1], *cols = x->dim[d2], *off = ex_int(s->ex, offset);
    if (offset >= 0) cols = ex_sub(s->ex, cols, off);
    else rows = ex_add(s->ex, rows, off);
    dim[k++] = ex_max(s->ex, ex_int(s->ex, 0), ex_min(s->ex, rows, cols));
    return shape_out(s, 0, x->dtype, k, dim);
}

bool shape_unfold(Shape *s)
{
    Value *x;
    int d;
    int64_t size, step;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x));
    TRY(shape_dim(s, 1, x->rank, &d));
    TRY(shape_const_int(s, 2, &size));
    TRY(shape_const_int(s, 3, &step));
    if (size < 0 || step < 1)
        return shape_fail(s, 3, "size %lld, step %lld: expected size >= 0 and step >= 1", (long long)size,
                          (long long)step);
    if (x->rank >= MAX_RANK) return shape_fail(s, 0, "rank %d is too large", x->rank);
    Expr *have = x->rank ? x->dim[d] : ex_int(s->ex, 1);
    TRY(graph_require(s->g, ex_make(s->ex, EX_LE, ex_int(s->ex, size), have, NULL), s->err,
                      "node '%s': window no longer than dim %d", s->node->name, d));
    for (int i = 0; i < x->rank; i++) dim[i] = x->dim[i];
    if (x->rank)
        dim[d] = ex_add(s->ex, ex_floordiv(s->ex, ex_sub(s->ex, have, ex_int(s->ex, size)), ex_int(s->ex, step)),
                        ex_int(s->ex, 1));
    dim[x->rank] = ex_int(s->ex, size);
    return shape_out(s, 0, x->dtype, x->rank + 1, dim);
}

bool shape_view_dtype(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x));
    DType t = shape_dtype(s, 1, DT_NONE);
    int64_t from = (int64_t)dtype_size(x->dtype), to = (int64_t)dtype_size(t);
    if (!to) return shape_fail(s, 1, "expected a dtype");
    if (from == to) return shape_out_like(s, 0, x, t);
    if (!x->rank)
        return shape_fail(s, 0, "%s of rank 0 cannot be seen as %s, of another size", dtype_name(x->dtype),
                          dtype_name(t));
    Expr *dim[MAX_RANK], **last = &dim[x->rank - 1];
    memcpy(dim, x->dim, (size_t)x->rank * sizeof *dim);
    if (from > to) *last = ex_mul(s->ex, *last, ex_int(s->ex, from / to));
    else {
        Expr *whole = ex_floordiv(s->ex, *last, ex_int(s->ex, to / from));
        TRY(shape_require_equal(s, *last, ex_mul(s->ex, whole, ex_int(s->ex, to / from)),
                                "last size and the elements that it makes"));
        *last = whole;
    }
    return shape_out(s, 0, t, x->rank, dim);
}
