/* Shapes of joining, indexing, writing and padding. */
#include "shape/shape_table.h"

bool shape_cat(Shape *s)
{
    const Arg *a = shape_arg(s, 0);
    int d;
    Expr *dim[MAX_RANK];
    if (a->n < 1 || !a->vs[0]) return shape_fail(s, 0, "an empty list");
    Value *x = a->vs[0];
    if (!x->rank) return shape_fail(s, 0, "tensors of rank 0, which cannot be joined");
    TRY(shape_dim(s, 1, x->rank, &d));
    for (int i = 0; i < x->rank; i++) dim[i] = x->dim[i];
    for (int k = 1; k < a->n; k++) {
        Value *v = a->vs[k];
        if (!v || v->rank != x->rank || v->dtype != x->dtype)
            return shape_fail(s, 0, "element %d has another rank or dtype than the first", k);
        for (int i = 0; i < x->rank; i++) {
            if (i == d) dim[i] = ex_add(s->ex, dim[i], v->dim[i]);
            else TRY(shape_require_equal(s, dim[i], v->dim[i], "sizes of joined tensors"));
        }
    }
    return shape_out(s, 0, x->dtype, x->rank, dim);
}

static bool integers(Shape *s, int i, const Value *v)
{
    return v->dtype == DT_I64 || v->dtype == DT_I32 ||
           shape_fail(s, i, "dtype %s, expected i64 or i32", dtype_name(v->dtype));
}

bool shape_embedding(Shape *s)
{
    Value *w, *ids;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &w) && shape_want_value(s, 1, &ids) && integers(s, 1, ids));
    if (w->rank != 2 || ids->rank >= MAX_RANK) return shape_fail(s, 0, "rank %d, expected 2", w->rank);
    for (int i = 0; i < ids->rank; i++) dim[i] = ids->dim[i];
    dim[ids->rank] = w->dim[1];
    return shape_out(s, 0, w->dtype, ids->rank + 1, dim);
}

bool shape_gather(Shape *s)
{
    Value *x, *index;
    int d;
    TRY(shape_want_value(s, 0, &x) && shape_dim(s, 1, x->rank, &d) && shape_want_value(s, 2, &index) &&
        integers(s, 2, index));
    if (x->rank != index->rank && x->rank && index->rank)
        return shape_fail(s, 2, "rank %d, expected %d", index->rank, x->rank);
    return shape_out_like(s, 0, index, x->dtype);
}

bool shape_index_select(Shape *s)
{
    Value *x, *index;
    int d;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x) && shape_dim(s, 1, x->rank, &d) && shape_want_value(s, 2, &index) &&
        integers(s, 2, index));
    if (index->rank > 1) return shape_fail(s, 2, "rank %d, expected 0 or 1", index->rank);
    for (int i = 0; i < x->rank; i++) dim[i] = x->dim[i];
    if (x->rank) dim[d] = index->rank ? index->dim[0] : ex_int(s->ex, 1);
    return shape_out(s, 0, x->dtype, x->rank, dim);
}

/* Where the common sizes of the index tensors go: in place of the indexed dims if those are neighbours,
 * else in front. */
static bool indexed(Shape *s, const Value *x, int *rank, Expr **dim)
{
    const Arg *a = shape_arg(s, 1);
    int first = -1, last = -1, common = 0, n = 0;
    Expr *shape[MAX_RANK];
    if (a->n > x->rank) return shape_fail(s, 1, "%d indices for a tensor of rank %d", a->n, x->rank);
    bool apart = false;
    for (int i = 0; i < a->n; i++) {
        if (!a->vs[i]) continue;
        TRY(integers(s, 1, a->vs[i]) &&
            shape_broadcast(s, &common, shape, a->vs[i]->rank, a->vs[i]->dim, "sizes of indices"));
        apart |= last >= 0 && i != last + 1;
        if (first < 0) first = i;
        last = i;
    }
    if (first < 0) return shape_fail(s, 1, "no index is given");
    int kept = 0;
    for (int i = 0; i < x->rank; i++) kept += i >= a->n || !a->vs[i];
    if (common + kept > MAX_RANK)
        return shape_fail(s, 1, "a result of rank %d: at most %d is supported", common + kept, MAX_RANK);
    for (int i = 0; apart && i < common; i++) dim[n++] = shape[i];
    for (int i = 0; i < x->rank; i++) {
        if (!apart && i == first)
            for (int k = 0; k < common; k++) dim[n++] = shape[k];
        if (i >= a->n || !a->vs[i]) dim[n++] = x->dim[i];
    }
    *rank = n;
    return true;
}

bool shape_index(Shape *s)
{
    Value *x;
    int rank;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x) && indexed(s, x, &rank, dim));
    return shape_out(s, 0, x->dtype, rank, dim);
}

bool shape_index_put(Shape *s)
{
    Value *x, *v;
    int rank;
    Expr *dim[MAX_RANK];
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 2, &v) && indexed(s, x, &rank, dim));
    int before = rank;
    TRY(shape_broadcast(s, &rank, dim, v->rank, v->dim, "values to the indexed sizes"));
    if (rank != before || v->dtype != x->dtype) return shape_fail(s, 2, "rank or dtype that does not fit");
    return shape_out_like(s, 0, x, x->dtype);
}

bool shape_scatter(Shape *s)
{
    Value *x, *index, *src;
    int d;
    TRY(shape_want_value(s, 0, &x) && shape_dim(s, 1, x->rank, &d) && shape_want_value(s, 2, &index) &&
        integers(s, 2, index));
    TRY(shape_want_value(s, 3, &src));
    if (index->rank != x->rank || src->rank != x->rank || src->dtype != x->dtype)
        return shape_fail(s, 3, "rank or dtype that does not fit");
    return shape_out_like(s, 0, x, x->dtype);
}

bool shape_flip(Shape *s)
{
    Value *x;
    bool set[MAX_RANK];
    TRY(shape_want_value(s, 0, &x) && shape_dims(s, 1, x->rank, set));
    return shape_out_like(s, 0, x, x->dtype);
}

bool shape_nonzero(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x));
    Expr *n = shape_fresh_symbol(s);
    if (!n) return oom(s->err);
    return shape_out(s, 0, DT_I64, 2, (Expr *[]){n, ex_int(s->ex, x->rank)}) && shape_size_of(s, n, 0, 0);
}

bool shape_searchsorted(Shape *s)
{
    Value *sorted, *x;
    TRY(shape_want_value(s, 0, &sorted) && shape_want_value(s, 1, &x));
    if (!sorted->rank || (sorted->rank > 1 && sorted->rank != x->rank))
        return shape_fail(s, 0, "rank %d, expected 1 or that of the values, %d", sorted->rank, x->rank);
    if (sorted->dtype != x->dtype)
        return shape_fail(s, 1, "found %s, expected %s", dtype_name(x->dtype), dtype_name(sorted->dtype));
    for (int i = 0; i + 1 < sorted->rank; i++)
        TRY(shape_require_equal(s, sorted->dim[i], x->dim[i], "rows of the sorted sequence and of the values"));
    return shape_out_like(s, 0, x, DT_I64);
}

bool shape_repeats(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x));
    const Arg *size = shape_arg(s, 1);
    if (size->kind == ARG_EXPR) return shape_out(s, 0, DT_I64, 1, (Expr *const *)&size->e);
    Expr *n = shape_fresh_symbol(s);
    if (!n) return oom(s->err);
    return shape_out(s, 0, DT_I64, 1, &n) && shape_size_of(s, n, 0, 0);
}

/* pad: pairs (before, after) from the last dim backwards */
bool shape_pad(Shape *s)
{
    Value *x;
    Expr *dim[MAX_RANK];
    const Arg *p = shape_arg(s, 1);
    TRY(shape_want_value(s, 0, &x));
    if (p->n % 2 || p->n / 2 > x->rank) return shape_fail(s, 1, "%d values for a tensor of rank %d", p->n, x->rank);
    for (int i = 0; i < x->rank; i++) {
        int k = x->rank - 1 - i;
        dim[i] = x->dim[i];
        if (2 * k + 1 < p->n) dim[i] = ex_add(s->ex, dim[i], ex_add(s->ex, p->es[2 * k], p->es[2 * k + 1]));
    }
    return shape_out(s, 0, x->dtype, x->rank, dim);
}
