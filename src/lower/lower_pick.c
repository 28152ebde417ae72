/* Lowering of what picks, counts and collects by index: unique elements, bags of rows, segments, pairs.
 *
 *     unique(x)               -> masked_select(s, s != s shifted by one), s = sort(x)
 *     embedding_bag(w, i, o)  -> index_add(zeros, bag of each i, w[i])
 *     pdist(x)                -> vector_norm(x[i] - x[j]), (i, j) = triu_indices
 */
#include <math.h>
#include <string.h>
#include "base/elementary.h"
#include "facts/axes.h"
#include "lower/lower_table.h"
#include "shape/shape.h"

enum { MAX_KEYS = 256 }; /* elements by which rows are put into order: a sort each */

static Arg num(Lower *L, int64_t n) { return arg_int(L->g, n); }

static bool tensors(Lower *L, int n)
{
    for (int i = 0; i < n; i++)
        if (!lower_value(L, i)) return lower_fail(L, i, "expected a tensor");
    return true;
}

static Value *flat(Lower *L, Value *x)
{
    Expr *n = product_of(L->ex, x->rank, x->dim);
    return lower_reshape(L, x, 1, &n);
}

static Value *filled(Lower *L, int rank, Expr *const *dim, double x, DType t)
{
    return AS(L, full, arg_exprs(L->g, rank, dim), arg_float(L->g, x), arg_dtype(t));
}

/* ------------------------------------------------------------------ unique elements */

/* Where an element (or a row) is another one than that before it. */
static Value *changes(Lower *L, Value *x)
{
    Value *at = AS(L, arange, arg_expr(x->dim[0]));
    Value *before = AS(L, clamp, v(AS(L, sub_Tensor, v(at), num(L, 1))), num(L, 0));
    Value *other = AS(L, ne_Tensor, v(x), v(AS(L, index_select, v(x), num(L, 0), v(before))));
    if (x->rank > 1) other = AS(L, any_dim, v(other), num(L, 1));
    return AS(L, logical_or, v(AS(L, eq_Tensor, v(at), num(L, 0))), v(other));
}

/* Differences of the places in `first` (k), the last one up to n */
static Value *counts(Lower *L, Value *first, Expr *n)
{
    Value *end = AS(L, full, arg_ints(L->g, 1, (int64_t[]){1}), arg_expr(n), arg_dtype(DT_I64));
    Value *all = AS(L, cat, arg_values(L->g, 2, (Value *[]){first, end}), num(L, 0));
    return all ? AS(L, diff, v(all)) : NULL;
}

/* The places of rows (n, width) in their order by the first element, then by the second ...: sorted by the last one
 * first, each time without changing what is equal. */
static Value *order_of_rows(Lower *L, Value *rows)
{
    Value *order = AS(L, arange, arg_expr(rows->dim[0]));
    Expr *width = rows->rank > 1 ? rows->dim[1] : ex_int(L->ex, 1);
    if (!ex_is_int(width) || width->i > MAX_KEYS) {
        lower_fail(L, 0, "rows must have a constant width of at most %d", MAX_KEYS);
        return NULL;
    }
    for (int64_t k = width->i - 1; k >= 0 && order; k--) {
        Value *key = rows->rank > 1 ? AS(L, select_int, v(rows), num(L, 1), num(L, k)) : rows;
        key = key ? AS(L, index_select, v(key), num(L, 0), v(order)) : NULL;
        Value *by = key ? AS(L, argsort_stable, v(key), arg_bool(L->g, true), num(L, 0)) : NULL;
        order = by ? AS(L, index_select, v(order), num(L, 0), v(by)) : NULL;
    }
    return order;
}

/* _unique, _unique2 and unique_dim sort; unique_consecutive does not. The last two may look at slices along a dim. */
bool lower_unique(Lower *L)
{
    bool sorts = L->op->id == OP_unique2 || L->op->id == OP_unique;
    int returns = L->op->schema->nreturns, dim = op_param(L->op, "dim"), d = 0;
    TRY(tensors(L, 1));
    Value *x = lower_value(L, 0), *order = NULL, *rows;
    if (dim >= 0 && !lower_is_none(L, dim)) {
        TRY(lower_dim(L, dim, x->rank, &d));
        rows = AS(L, movedim_int, v(x), num(L, d), num(L, 0));
        if (rows && x->rank > 1) {
            Expr *rest = product_of(L->ex, rows->rank - 1, rows->dim + 1);
            rows = lower_reshape(L, rows, 2, (Expr *[]){rows->dim[0], rest});
        }
    } else {
        dim = -1;
        rows = flat(L, x);
    }
    if (sorts) {
        TRY(rows = AS(L, sort, v(rows)));
        order = rows->def->out[1];
    }
    bool by_rows = L->op->id == OP_unique_dim;
    if (by_rows) {
        TRY(rows && (order = order_of_rows(L, rows)));
        TRY(rows = AS(L, index_select, v(rows), num(L, 0), v(order)));
    }
    Value *first = rows ? changes(L, rows) : NULL, *label = first ? AS(L, cumsum, v(first), num(L, 0)) : NULL;
    label = label ? AS(L, sub_Tensor, v(label), num(L, 1)) : NULL;
    Value *at = label ? EMIT(L, nonzero, v(first)) : NULL;
    at = at ? EMIT(L, select_int, v(at), num(L, 1), num(L, 0)) : NULL;
    if (!at) return false;
    Value *from = by_rows ? AS(L, index_select, v(order), num(L, 0), v(at)) : at;
    TRY(from);
    Value *y = dim >= 0 ? AS(L, index_select, v(x), num(L, d), v(from))
                        : AS(L, index_select, v(rows), num(L, 0), v(at));
    if (order) label = AS(L, scatter_src, v(AS(L, zeros_like, v(order))), num(L, 0), v(order), v(label));
    bool where, many = false;
    TRY(lower_const_bool(L, op_param(L->op, "return_inverse"), &where) &&
        (returns < 3 || lower_const_bool(L, op_param(L->op, "return_counts"), &many)));
    Expr *none = ex_int(L->ex, 0);
    where |= dim >= 0; /* along a dim PyTorch gives them in any case */
    many |= dim >= 0;
    Value *inverse = !where     ? filled(L, 1, &none, 0, DT_I64)
                     : dim >= 0 ? label
                                : lower_reshape(L, label, x->rank, x->dim);
    Value *count = many ? counts(L, at, rows->dim[0]) : filled(L, 1, &none, 0, DT_I64);
    TRY(y && inverse && count && lower_declare_sizes(L, y));
    return lower_return_values(L, returns, (Value *[]){y, inverse, count});
}

/* The places of what is not zero, cut or filled up to `size` rows. */
bool lower_nonzero_static(Lower *L)
{
    TRY(tensors(L, 1));
    Value *x = lower_value(L, 0), *at = EMIT(L, nonzero, v(x));
    Expr *dim[2] = {lower_expr(L, 1), ex_int(L->ex, x->rank)};
    Value *rest = AS(L, full, arg_exprs(L->g, 2, dim), L->arg[2], arg_dtype(DT_I64));
    Value *all = at && rest ? AS(L, cat, arg_values(L->g, 2, (Value *[]){at, rest}), num(L, 0)) : NULL;
    return all && lower_return(L, AS(L, slice_Tensor, v(all), num(L, 0), num(L, 0), L->arg[1], num(L, 1)));
}

/* ------------------------------------------------------------------ pairs */

/* The bag of each of n elements: bags begin at `start`. */
static Value *bag_of(Lower *L, Value *start, Expr *n)
{
    Value *at = AS(L, arange, arg_expr(n));
    at = at && start ? AS(L, searchsorted_Tensor, v(lower_cast(L, start, DT_I64)), v(at), arg_bool(L->g, false),
                          arg_bool(L->g, true))
                     : NULL;
    return at ? AS(L, sub_Tensor, v(at), num(L, 1)) : NULL;
}

/* The rows i and j of all pairs i < j, or i <= j, of n rows. Where n is known, triu_indices; else the pair's row i is
 * the last one whose pairs begin at it or before: those of i begin at i (2n - i - 1) / 2, or at i (2n - i + 1) / 2. */
static bool pair_rows(Lower *L, Expr *n, bool equal, Value *row[2])
{
    if (ex_is_int(n)) {
        Value *at = AS(L, triu_indices, arg_expr(n), arg_expr(n), num(L, equal ? 0 : 1));
        for (int i = 0; i < 2; i++) TRY(row[i] = at ? AS(L, select_int, v(at), num(L, 0), num(L, i)) : NULL);
        return true;
    }
    Expr *two = ex_int(L->ex, 2), *side = ex_int(L->ex, equal ? 1 : -1);
    Expr *all = ex_floordiv(L->ex, ex_mul(L->ex, n, ex_add(L->ex, n, side)), two);
    Value *i = AS(L, arange, arg_expr(n)), *at = AS(L, arange, arg_expr(all));
    Value *left = AS(L, rsub_Scalar, v(i), arg_expr(ex_add(L->ex, ex_mul(L->ex, two, n), side)));
    Value *start = AS(L, bitwise_right_shift_Tensor, v(AS(L, mul_Tensor, v(i), v(left))), num(L, 1));
    TRY(row[0] = bag_of(L, start, all));
    at = AS(L, sub_Tensor, v(at), v(AS(L, index_select, v(start), num(L, 0), v(row[0]))));
    at = AS(L, add_Tensor, v(at), v(row[0]));
    return (row[1] = equal ? at : AS(L, add_Tensor, v(at), num(L, 1))) != NULL;
}

/* x[i], x[j] of all pairs */
static bool pairs(Lower *L, Value *x, bool equal, Value *pair[2])
{
    Value *row[2];
    TRY(pair_rows(L, x->dim[0], equal, row));
    for (int i = 0; i < 2; i++) TRY(pair[i] = AS(L, index_select, v(x), num(L, 0), v(row[i])));
    return true;
}

bool lower_combinations(Lower *L)
{
    int64_t r;
    bool equal;
    Value *pair[2];
    TRY(tensors(L, 1) && lower_const_int(L, 1, &r) && lower_const_bool(L, 2, &equal));
    Value *x = lower_value(L, 0);
    if (r == 1) return lower_return(L, AS(L, unsqueeze, v(x), num(L, 1)));
    if (!r) return lower_return(L, AS(L, full, arg_ints(L->g, 1, (int64_t[]){0}), num(L, 0), arg_dtype(x->dtype)));
    if (r != 2) return fail(L->err, E_UNSUPPORTED, "combinations of %lld, expected 0, 1 or 2", (long long)r);
    return pairs(L, x, equal, pair) && lower_return(L, AS(L, stack, arg_values(L->g, 2, pair), num(L, 1)));
}

bool lower_pdist(Lower *L)
{
    Value *pair[2];
    TRY(tensors(L, 1) && pairs(L, lower_value(L, 0), false, pair));
    Value *gap = AS(L, sub_Tensor, v(pair[0]), v(pair[1]));
    return lower_return(L, AS(L, linalg_vector_norm, v(gap), L->arg[1], arg_ints(L->g, 1, (int64_t[]){-1})));
}

/* ------------------------------------------------------------------ writing */

/* An index vector along dim d in the shape of x */
static Value *along(Lower *L, Value *index, const Value *x, int d)
{
    Expr *dim[MAX_RANK];
    TRY_NULL(index);
    for (int i = 0; i < x->rank; i++) dim[i] = i == d && index->rank ? index->dim[0] : ex_int(L->ex, 1);
    Value *wide = lower_reshape(L, index, x->rank, dim);
    return wide ? AS(L, expand, v(wide), arg_exprs(L->g, x->rank, x->dim)) : NULL;
}

bool lower_index_reduce(Lower *L)
{
    int d;
    TRY(tensors(L, 1) && lower_dim(L, 1, lower_value(L, 0)->rank, &d));
    Value *i = lower_value(L, 2), *src = lower_value(L, 3);
    if (!i || !src) return lower_fail(L, 2, "expected tensors");
    i = along(L, lower_cast(L, i, DT_I64), src, d); /* PyTorch's scatter_reduce takes no other */
    return i && lower_return(L, AS(L, scatter_reduce_two, L->arg[0], num(L, d), v(i), v(src), L->arg[4], L->arg[5]));
}

/* scatter(..., reduce="add" or "multiply"); the source may be a number */
bool lower_scatter_old(Lower *L)
{
    Value *x = lower_value(L, 0), *i = lower_value(L, 2), *src = lower_value(L, 3);
    if (!x || !i) return lower_fail(L, 0, "expected tensors");
    const char *how = L->arg[4].kind == ARG_STR ? L->arg[4].s : "";
    bool add = !strcmp(how, "add");
    if (!add && strcmp(how, "multiply")) return lower_fail(L, 4, "found '%s', expected add or multiply", how);
    if (!src) TRY(src = AS(L, full, arg_exprs(L->g, i->rank, i->dim), L->arg[3], arg_dtype(x->dtype)));
    if (add) return lower_return(L, AS(L, scatter_add, v(x), L->arg[1], v(i), v(src)));
    return lower_return(L, AS(L, scatter_reduce_two, v(x), L->arg[1], v(i), v(src), arg_str(L->g, "prod")));
}

/* x read as a vector, elements written at index */
bool lower_put(Lower *L)
{
    TRY(tensors(L, 3));
    Value *x = lower_value(L, 0), *i = flat(L, lower_value(L, 1)), *src = flat(L, lower_value(L, 2)), *f = flat(L, x);
    Value *y = i && src && f ? AS(L, index_put, v(f), arg_values(L->g, 1, &i), v(src), L->arg[3]) : NULL;
    return y && lower_return(L, lower_reshape(L, y, x->rank, x->dim));
}

/* x[indices] where mask, else a number: indices are clamped to x. With values they are added to x there. */
bool lower_masked_index(Lower *L)
{
    TRY(tensors(L, 2));
    Value *x = lower_value(L, 0), *at[MAX_RANK] = {NULL}, *not_it = AS(L, logical_not, L->arg[1]);
    const Arg *list = &L->arg[2];
    bool writes = L->op->id == OP_unsafe_masked_index_put_accumulate;
    if (list->kind != ARG_VALUES || list->n > x->rank) return lower_fail(L, 2, "expected at most %d indices", x->rank);
    for (int i = 0; i < list->n; i++) {
        Expr *n = x->dim[i];
        if (list->vs[i])
            TRY(at[i] = AS(L, clamp, v(list->vs[i]), arg_expr(ex_neg(L->ex, n)),
                           arg_expr(ex_sub(L->ex, n, ex_int(L->ex, 1)))));
    }
    Arg index = arg_values(L->g, list->n, at);
    if (!writes)
        return lower_return(L, AS(L, masked_fill_Scalar, v(AS(L, index_Tensor, v(x), index)), v(not_it), L->arg[3]));
    Value *added = AS(L, masked_fill_Scalar, L->arg[3], v(not_it), num(L, 0));
    return lower_return(L, AS(L, index_put, v(x), index, v(added), arg_bool(L->g, true)));
}

/* Places of a picture's last n axes as one axis: zeros, the elements at their places. The backward pass adds there. */
static Value *placed(Lower *L, Value *x, Value *at, int n, Expr *const *size, bool add)
{
    Expr *dim[MAX_RANK], *out[MAX_RANK], *all = ex_int(L->ex, 1);
    int lead = x->rank - n;
    for (int i = 0; i < n; i++) all = ex_mul(L->ex, all, size[i]);
    for (int i = 0; i < lead; i++) dim[i] = out[i] = x->dim[i];
    for (int i = 0; i < n; i++) out[lead + i] = size[i];
    dim[lead] = all;
    Value *zero = filled(L, lead + 1, dim, 0, x->dtype);
    dim[lead] = product_of(L->ex, x->rank - lead, x->dim + lead);
    x = lower_reshape(L, x, lead + 1, dim);
    at = lower_reshape(L, at, lead + 1, dim);
    if (!zero || !x || !at) return NULL;
    Value *y = add ? AS(L, scatter_add, v(zero), num(L, -1), v(at), v(x))
                   : AS(L, scatter_src, v(zero), num(L, -1), v(at), v(x));
    return lower_reshape(L, y, lead + n, out);
}

bool lower_max_unpool(Lower *L)
{
    TRY(tensors(L, 2));
    Value *x = lower_value(L, 0);
    const Arg *size = &L->arg[2];
    if (size->kind != ARG_EXPRS || size->n >= x->rank) return lower_fail(L, 2, "expected a list of sizes");
    return lower_return(L, placed(L, x, lower_value(L, 1), size->n, size->es, false));
}

bool lower_max_pool_backward(Lower *L)
{
    TRY(tensors(L, 2));
    Value *x = lower_value(L, 1), *at = lower_value(L, op_param(L->op, "indices"));
    int n = strstr(L->op->name, "3d") ? 3 : 2;
    if (!at || x->rank <= n) return lower_fail(L, 1, "expected pictures and indices");
    return lower_return(L, placed(L, lower_value(L, 0), at, n, x->dim + x->rank - n, true));
}

/* ------------------------------------------------------------------ bags and segments */

/* Where bags or segments start: none before the one before it */
static Value *rising(Lower *L, Value *start)
{
    return lower_only_if(L, AS(L, ge_Tensor, v(AS(L, diff, v(start))), num(L, 0)), start);
}

/* The first of the largest of each bag, (bags, width): NaN where the bag begins with it, which is passed over
 * elsewhere; 0 of none. The gradient is that of its row. counted: which rows count, NULL: all do */
static Value *largest(Lower *L, Value *rows, Value *bag, Value *counted, Expr *bags)
{
    Expr *n = rows->dim[0], *dim[2] = {bags, rows->dim[1]}, *one[2] = {ex_int(L->ex, 1), rows->dim[1]};
    Value *own = along(L, bag, rows, 0), *row = along(L, AS(L, arange, arg_expr(n)), rows, 0), *here = row;
    Value *none = AS(L, full, arg_exprs(L->g, 2, dim), arg_expr(n), arg_dtype(DT_I64));
    TRY_NULL(own && row && none);
    if (counted) here = AS(L, where_ScalarOther, v(along(L, counted, rows, 0)), v(row), arg_expr(n));
    const Arg axis = num(L, 0), low = arg_float(L->g, -INFINITY), amin = arg_str(L->g, "amin");
    Value *first = AS(L, scatter_reduce_two, v(none), axis, v(own), v(here), amin);
    first = AS(L, eq_Tensor, v(row), v(AS(L, gather, v(first), axis, v(own))));
    Value *nan = AS(L, where_ScalarOther, v(first), v(filled(L, 0, NULL, INFINITY, rows->dtype)), low);
    Value *x = AS(L, where_self, v(AS(L, isnan, v(rows))), v(nan), v(rows));
    Value *most = filled(L, 2, dim, -INFINITY, rows->dtype);
    most = AS(L, scatter_reduce_two, v(most), axis, v(own), v(x), arg_str(L->g, "amax"));
    Value *hit = AS(L, eq_Tensor, v(x), v(AS(L, gather, v(most), axis, v(own))));
    hit = AS(L, where_ScalarOther, v(hit), v(here), arg_expr(n));
    Value *at = AS(L, scatter_reduce_two, v(none), axis, v(own), v(hit), amin);
    Value *list[2] = {rows, filled(L, 2, one, 0, rows->dtype)};
    return AS(L, gather, v(AS(L, cat, arg_values(L->g, 2, list), axis)), axis, v(at));
}

/* Rows of weight: sum, mean or maximum (mode 0, 1, 2) of each bag; those of the padding index do not count. */
bool lower_embedding_bag(Lower *L)
{
    int64_t mode;
    bool last;
    int padding = op_param(L->op, "padding_idx");
    TRY(tensors(L, 3) && lower_const_int(L, 4, &mode) && lower_const_bool(L, 7, &last));
    Value *w = lower_value(L, 0), *i = lower_value(L, 1), *start = lower_value(L, 2), *scale = lower_value(L, 6), *y;
    if (w->rank != 2 || i->rank != 1) return lower_fail(L, 1, "expected a table and a vector of indices");
    Expr *bags = last ? ex_sub(L->ex, start->dim[0], ex_int(L->ex, 1)) : start->dim[0];
    TRY(start = lower_among(L, rising(L, start), ex_add(L->ex, i->dim[0], ex_int(L->ex, 1))));
    if (last) start = AS(L, slice_Tensor, v(start), num(L, 0), num(L, 0), arg_expr(bags), num(L, 1));
    Value *bag = bag_of(L, start, i->dim[0]), *rows = AS(L, index_select, v(w), num(L, 0), v(i)), *counted = NULL;
    Expr *pad = padding < 0 ? NULL : lower_expr(L, padding), *dim[2] = {bags, w->dim[1]};
    bool from_end = L->op->id == OP_embedding_bag_padding_idx; /* of the others -1 means none */
    if (pad && ex_is_int(pad) && (from_end || pad->i >= 0)) {
        if (pad->i < 0) pad = ex_add(L->ex, pad, w->dim[0]);
        counted = AS(L, ne_Tensor, v(i), arg_expr(pad));
        Value *wide = AS(L, unsqueeze, v(counted), num(L, 1));
        rows = AS(L, where_ScalarOther, v(wide), v(rows), arg_float(L->g, mode == 2 ? -INFINITY : 0));
    }
    TRY(rows && bag);
    if (scale) rows = AS(L, mul_Tensor, v(rows), v(AS(L, unsqueeze, v(scale), num(L, 1))));
    TRY(rows);
    if (mode == 2) y = largest(L, rows, bag, counted, bags);
    else y = AS(L, index_add, v(filled(L, 2, dim, 0, w->dtype)), num(L, 0), v(bag), v(rows));
    if (mode == 1) {
        counted = counted ? lower_cast(L, counted, w->dtype) : filled(L, 1, i->dim, 1, w->dtype);
        Value *n = AS(L, index_add, v(filled(L, 1, &bags, 0, w->dtype)), num(L, 0), v(bag), v(counted));
        y = AS(L, div_Tensor, v(y), v(AS(L, unsqueeze, v(AS(L, clamp, v(n), num(L, 1))), num(L, 1))));
    }
    return y && lower_return_values(L, 4, (Value *[4]){y});
}

/* Rows that are looked up and longer than max_norm are scaled to it. */
bool lower_embedding_renorm(Lower *L)
{
    TRY(tensors(L, 2));
    Value *w = lower_value(L, 0), *i = flat(L, lower_value(L, 1));
    Value *hit = filled(L, 1, w->dim, 0, DT_BOOL), *yes = filled(L, 0, NULL, 1, DT_BOOL);
    hit = i && hit ? AS(L, index_put, v(hit), arg_values(L->g, 1, &i), v(yes)) : NULL;
    Value *norm = AS(L, linalg_vector_norm, v(w), L->arg[3], arg_ints(L->g, 1, (int64_t[]){1}), arg_bool(L->g, true));
    Value *scale = AS(L, div_Tensor, v(filled(L, 0, NULL, 1, w->dtype)),
                      v(AS(L, add_Tensor, v(norm), arg_float(L->g, 1e-7))));
    scale = AS(L, mul_Tensor, v(scale), L->arg[2]);
    Value *where = AS(L, logical_and, v(AS(L, unsqueeze, v(hit), num(L, 1))), v(AS(L, gt_Tensor, v(norm), L->arg[2])));
    return lower_return(L, AS(L, where_self, v(where), v(AS(L, mul_Tensor, v(w), v(scale))), v(w)));
}

/* The segment of each of n elements, counted from 1: (..., S + 1) where segments start and the last ends -> (..., n).
 * 0 and S + 1: it is in none. */
static Value *segment_of(Lower *L, Value *edge, Expr *n)
{
    Expr *dim[MAX_RANK];
    for (int i = 0; i < edge->rank; i++) dim[i] = i < edge->rank - 1 ? edge->dim[i] : n;
    Value *at = AS(L, expand, v(AS(L, arange, arg_expr(n))), arg_exprs(L->g, edge->rank, dim));
    return AS(L, searchsorted_Tensor, v(lower_cast(L, edge, DT_I64)), v(at), arg_bool(L->g, false),
              arg_bool(L->g, true));
}

/* index (..., n) over the axes of x that come after its own */
static Value *over_rest(Lower *L, Value *index, const Value *x)
{
    for (int i = index->rank; index && i < x->rank; i++) index = AS(L, unsqueeze, v(index), num(L, -1));
    return index ? AS(L, expand, v(index), arg_exprs(L->g, x->rank, x->dim)) : NULL;
}

/* Where segments start and the last ends: none of negative length, and together they are all n, if that is checked. */
static Value *edges(Lower *L, Value *length, Expr *n, bool unsafe)
{
    Arg last = num(L, -1);
    Value *y = AS(L, constant_pad_nd, v(AS(L, cumsum, v(length), last)), arg_ints(L->g, 2, (int64_t[]){1, 0}));
    if (unsafe || !y) return y;
    Value *sum = AS(L, sum_dim_IntList, v(length), arg_ints(L->g, 1, (int64_t[]){-1}), arg_bool(L->g, true));
    Value *all = AS(L, eq_Tensor, v(sum), arg_expr(n)), *some = AS(L, ge_Tensor, v(length), num(L, 0));
    return all && some ? lower_only_if(L, AS(L, logical_and, v(some), v(all)), y) : NULL;
}

/* (data, reduce, lengths, indices, offsets, axis, unsafe, initial): of consecutive elements along the axis, which is
 * the last of lengths or offsets; the axes before are theirs, too */
bool lower_segment_reduce(Lower *L)
{
    TRY(tensors(L, 1));
    Value *x = lower_value(L, 0), *start = lower_value(L, 4), *length = lower_value(L, 2), *y;
    const char *how = L->arg[1].s;
    Expr *dim[MAX_RANK];
    int d;
    bool unsafe;
    TRY(lower_dim(L, 5, x->rank, &d) && lower_const_bool(L, 6, &unsafe));
    if (!start == !length || (start ? start : length)->rank != d + 1)
        return lower_fail(L, start ? 4 : 2, "expected either lengths or offsets, of rank %d", d + 1);
    Arg axis = num(L, d);
    Expr *n = start ? ex_sub(L->ex, start->dim[d], ex_int(L->ex, 1)) : length->dim[d];
    if (!start) TRY(start = edges(L, length, x->dim[d], unsafe));
    else start = rising(L, start);
    Value *of = start ? segment_of(L, start, x->dim[d]) : NULL, *at = of ? over_rest(L, of, x) : NULL;
    TRY(at);
    for (int i = 0; i < x->rank; i++) dim[i] = i == d ? ex_add(L->ex, n, ex_int(L->ex, 2)) : x->dim[i];
    bool mean = !strcmp(how, "mean");
    const char *word = mean || !strcmp(how, "sum") ? "sum" : *how == 'p' ? "prod" : how[1] == 'a' ? "amax" : "amin";
    double first = *word == 's' ? 0 : *word == 'p' ? 1 : word[2] == 'a' ? -INFINITY : INFINITY;
    Arg initial = lower_is_none(L, 7) ? arg_float(L->g, first) : L->arg[7];
    Value *base = AS(L, full, arg_exprs(L->g, x->rank, dim), initial, arg_dtype(x->dtype));
    y = AS(L, scatter_reduce_two, v(base), axis, v(at), v(x), arg_str(L->g, word));
    if (mean) {
        Value *one = filled(L, x->rank, x->dim, 1, x->dtype);
        Value *count = AS(L, scatter_add, v(filled(L, x->rank, dim, 0, x->dtype)), axis, v(at), v(one));
        Value *some = AS(L, gt_Scalar, v(count), num(L, 0));
        y = AS(L, where_ScalarOther, v(some), v(AS(L, div_Tensor, v(y), v(count))),
               lower_is_none(L, 7) ? arg_float(L->g, NAN) : L->arg[7]);
    }
    Arg end = arg_expr(ex_add(L->ex, n, ex_int(L->ex, 1)));
    return y && lower_return(L, AS(L, slice_Tensor, v(y), axis, num(L, 1), end, num(L, 1)));
}

/* ------------------------------------------------------------------ sums */

/* Summed over axes that the size lacks or has as 1 */
bool lower_sum_to_size(Lower *L)
{
    TRY(tensors(L, 1));
    Value *x = lower_value(L, 0);
    const Arg *size = &L->arg[1];
    int64_t gone[MAX_RANK];
    int n = 0, lead = x->rank - size->n;
    if (size->kind != ARG_EXPRS || lead < 0) return lower_fail(L, 1, "more sizes than the %d dims", x->rank);
    for (int i = 0; i < x->rank; i++)
        if (i < lead || (ex_equals_int(size->es[i - lead], 1) && !ex_equals_int(x->dim[i], 1))) gone[n++] = i;
    if (!size->n) return lower_return(L, AS(L, sum, v(x))); /* of one number too, whose dtype is then a sum's */
    if (n) TRY(x = AS(L, sum_dim_IntList, v(x), arg_ints(L->g, n, gone)));
    return lower_return(L, lower_reshape(L, x, size->n, size->es));
}

/* The bits of all elements, as float64 or int64, each added without a carry */
bool lower_hash_tensor(Lower *L)
{
    int64_t mode;
    TRY(tensors(L, 1) && lower_const_int(L, op_param(L->op, "mode"), &mode));
    if (mode) return lower_fail(L, op_param(L->op, "mode"), "%lld, expected 0", (long long)mode);
    Value *x = lower_value(L, 0);
    bool real = dtype_is_float(x->dtype);
    x = lower_cast(L, x, real ? DT_F64 : DT_I64);
    if (real) x = AS(L, view_dtype, v(x), arg_dtype(DT_I64));
    Value *places = AS(L, arange, num(L, 64));
    x = AS(L, bitwise_right_shift_Tensor, v(AS(L, unsqueeze, v(x), num(L, -1))), v(places));
    x = AS(L, bitwise_and_Scalar, v(x), num(L, 1));
    int64_t dims[MAX_RANK];
    int n = 0, rank = lower_value(L, 0)->rank;
    const Arg *given = &L->arg[1];
    for (; rank && n < given->n && n < MAX_RANK; n++) {
        if (!ex_is_int(given->es[n])) return lower_fail(L, 1, "must be constant integers");
        dims[n] = given->es[n]->i < 0 ? given->es[n]->i + rank : given->es[n]->i;
    }
    for (; !given->n && n < rank; n++) dims[n] = n;
    if (n) x = AS(L, sum_dim_IntList, v(x), arg_ints(L->g, n, dims), L->arg[2]);
    x = AS(L, bitwise_left_shift_Tensor, v(AS(L, bitwise_and_Scalar, v(x), num(L, 1))), v(places));
    x = AS(L, sum_dim_IntList, v(x), arg_ints(L->g, 1, (int64_t[]){-1}));
    return lower_return(L, AS(L, view_dtype, v(x), arg_dtype(DT_U64)));
}

/* A real number is real, and a complex one without an imaginary part. */
bool lower_isreal(Lower *L)
{
    TRY(tensors(L, 1));
    Value *x = lower_value(L, 0);
    if (!dtype_is_complex(x->dtype)) return lower_return(L, filled(L, x->rank, x->dim, 1, DT_BOOL));
    Value *imaginary = AS(L, imag, L->arg[0]);
    return imaginary && lower_return(L, AS(L, eq_Tensor, v(imaginary), num(L, 0)));
}

/* p (p - 1) / 4 log(pi) + sum of lgamma(x - i / 2) */
bool lower_mvlgamma(Lower *L)
{
    int64_t p;
    TRY(tensors(L, 1) && lower_const_int(L, 1, &p));
    Value *y = NULL;
    for (int64_t i = 0; i < p; i++) {
        Value *x = AS(L, sub_Tensor, L->arg[0], arg_float(L->g, 0.5 * (double)i));
        x = AS(L, lgamma, v(x));
        TRY(y = y ? AS(L, add_Tensor, v(y), v(x)) : x);
    }
    if (!y) return lower_fail(L, 1, "found %lld, expected 1 or more", (long long)p);
    double factor = 0.25 * (double)(p * (p - 1)) * real_log(real_acos(-1));
    return lower_return(L, AS(L, add_Tensor, v(y), arg_float(L->g, factor)));
}

bool lower_native_dropout_backward(Lower *L)
{
    TRY(tensors(L, 2));
    Value *g = AS(L, mul_Tensor, L->arg[0], v(lower_cast(L, lower_value(L, 1), lower_value(L, 0)->dtype)));
    return lower_return(L, AS(L, mul_Tensor, v(g), L->arg[2]));
}

/* linspace and logspace between tensors: from both ends, as between numbers; the ends of integers are integers. A float
 * rounds product and sum at once: in double, which holds the product. */
bool lower_linspace_tensor(Lower *L)
{
    const Expr *steps = lower_expr(L, 2);
    int at = op_param(L->op, "dtype"), base = op_param(L->op, "base");
    DType t = L->arg[at].kind == ARG_DTYPE ? L->arg[at].dtype : DT_F32, wide = t == DT_F32 ? t : DT_F64;
    DType whole = base < 0 || dtype_is_int(t) ? t : wide, stepped = dtype_is_int(t) ? DT_F64 : whole,
          summed = base < 0 && t == DT_F32 ? DT_F64 : stepped;
    Value *end[2];
    if (!ex_is_int(steps) || steps->i < 0) return lower_fail(L, 2, "must be a constant");
    for (int i = 0; i < 2; i++) {
        Value *x = lower_value(L, i);
        x = x ? lower_cast(L, x, whole) : AS(L, full, arg_ints(L->g, 0, NULL), L->arg[i], arg_dtype(whole));
        TRY(end[i] = lower_cast(L, x, stepped));
    }
    Value *k = AS(L, arange, arg_expr(lower_expr(L, 2)), arg_dtype(DT_I64));
    Value *back = lower_cast(L, AS(L, sub_Tensor, arg_int(L->g, steps->i - 1), v(k)), summed);
    Value *width = AS(L, sub_Tensor, v(end[1]), v(end[0]));
    width = lower_cast(L, AS(L, div_Tensor, v(width), num(L, steps->i > 1 ? steps->i - 1 : 1)), summed);
    for (int i = 0; i < 2; i++) TRY(end[i] = lower_cast(L, end[i], summed));
    Value *low = AS(L, mul_Tensor, v(width), v(lower_cast(L, k, summed)));
    low = AS(L, add_Tensor, v(end[0]), v(low));
    Value *high = AS(L, sub_Tensor, v(end[1]), v(AS(L, mul_Tensor, v(width), v(back))));
    Arg half = arg_int(L->g, steps->i > 1 ? steps->i / 2 : 1);
    Value *y = AS(L, where_self, v(AS(L, lt_Scalar, v(k), half)), v(low), v(high));
    if (base >= 0) y = AS(L, pow_Scalar, L->arg[base], v(y));
    return y && lower_return(L, lower_cast(L, y, t));
}

/* A number where all positions are equal; wrap: of a matrix that is tall, again after each square and a row */
bool lower_fill_diagonal(Lower *L)
{
    Value *x = lower_value(L, 0), *mask = NULL;
    bool wrap;
    TRY(tensors(L, 1) && lower_const_bool(L, 2, &wrap));
    if (x->rank < 2) return lower_fail(L, 0, "rank %d, expected 2 or more", x->rank);
    Value *first = AS(L, arange, arg_expr(x->dim[0]));
    Expr *period = ex_add(L->ex, x->dim[1], ex_int(L->ex, 1));
    if (wrap && x->rank == 2) first = AS(L, remainder_Scalar, v(first), arg_expr(period));
    for (int i = 1; i < x->rank; i++) {
        Expr *down[MAX_RANK], *across[MAX_RANK];
        for (int d = 0; d < x->rank; d++) down[d] = across[d] = ex_int(L->ex, 1);
        down[0] = x->dim[0];
        across[i] = x->dim[i];
        Value *at = lower_reshape(L, AS(L, arange, arg_expr(x->dim[i])), x->rank, across);
        Value *same = AS(L, eq_Tensor, v(lower_reshape(L, first, x->rank, down)), v(at));
        TRY(same);
        mask = mask ? AS(L, logical_and, v(mask), v(same)) : same;
    }
    return lower_return(L, AS(L, where_ScalarSelf, v(mask), L->arg[1], v(x)));
}
