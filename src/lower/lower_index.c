/* Lowering of joining, indexing, writing and repeating.
 *
 *     stack([x, y], 1)      -> cat of reshaped tensors
 *     x[mask]               -> index(x, [columns of nonzero(mask)])
 *     x.repeat(2, 1)        -> reshape, expand, reshape
 */
#include <string.h>
#include "lower/lower_table.h"
#include "shape/shape.h"

static bool want(Lower *L, Value **x)
{
    *x = lower_value(L, 0);
    return *x || lower_fail(L, 0, "expected a tensor");
}

/* ------------------------------------------------------------------ joining */

static Value *join(Lower *L, int n, Value *const *v, int dim)
{
    Promote p = {DT_NONE, DT_NONE, DT_NONE};
    Value **list = arena_array(L->g->arena, Value *, n + 1);
    int m = 0;
    if (!list) return NULL;
    for (int i = 0; i < n; i++) {
        if (!v[i]) return NULL;
        promote_value(&p, v[i]);
    }
    DType t = promote_result(&p);
    for (int i = 0; i < n; i++) { /* the empty vector that old PyTorch code starts with joins to anything */
        if (n > 1 && v[i]->rank == 1 && ex_equals_int(v[i]->dim[0], 0)) continue;
        if (!(list[m++] = lower_cast(L, v[i], t))) return NULL;
    }
    if (m == 0 && !(list[m++] = lower_cast(L, v[0], t))) return NULL;
    return m == 1 ? list[0] : EMIT(L, cat, arg_values(L->g, m, list), arg_int(L->g, dim));
}

bool lower_cat(Lower *L)
{
    const Arg *a = &L->arg[0];
    int d, rank = 0;
    if (a->kind != ARG_VALUES || a->n < 1) return lower_fail(L, 0, "an empty list");
    for (int i = 0; i < a->n; i++)
        if (a->vs[i] && a->vs[i]->rank > rank) rank = a->vs[i]->rank;
    TRY(lower_dim(L, 1, rank, &d));
    return lower_return(L, join(L, a->n, a->vs, d));
}

static Value *with_one(Lower *L, Value *x, int at)
{
    Expr *dim[MAX_RANK];
    if (!x) return NULL;
    if (x->rank >= MAX_RANK) {
        fail(L->err, E_UNSUPPORTED, "rank %d: at most %d is supported", x->rank + 1, MAX_RANK);
        return NULL;
    }
    for (int i = 0, k = 0; i <= x->rank; i++) dim[i] = i == at ? ex_int(L->ex, 1) : x->dim[k++];
    return lower_reshape(L, x, x->rank + 1, dim);
}

bool lower_stack(Lower *L)
{
    const Arg *a = &L->arg[0];
    int d;
    if (a->kind != ARG_VALUES || a->n < 1 || !a->vs[0]) return lower_fail(L, 0, "an empty list");
    const int rank = a->vs[0]->rank;
    TRY(lower_dim(L, 1, rank + 1, &d));
    Value **list = arena_array(L->g->arena, Value *, a->n);
    for (int i = 0; list && i < a->n; i++) {
        if (!a->vs[i] || a->vs[i]->rank != rank)
            return lower_fail(L, 0, "tensor %d has %d dims, the first %d", i, a->vs[i] ? a->vs[i]->rank : 0, rank);
        TRY(list[i] = with_one(L, a->vs[i], d));
    }
    return list && lower_return(L, join(L, a->n, list, d));
}

/* Each tensor in chunks of one size, zeros at the end of the last: (..., chunks, elements), beside each other. */
bool lower_chunk_cat(Lower *L)
{
    const Arg *a = &L->arg[0];
    int d;
    int64_t chunks;
    if (a->kind != ARG_VALUES || a->n < 1 || !a->vs[0]) return lower_fail(L, 0, "an empty list");
    TRY(lower_dim(L, 1, a->vs[0]->rank, &d) && lower_const_int(L, 2, &chunks));
    if (chunks < 1) return lower_fail(L, 2, "found %lld, expected at least 1", (long long)chunks);
    Value **list = arena_array(L->g->arena, Value *, a->n);
    Expr *count = ex_int(L->ex, chunks);
    for (int i = 0; list && i < a->n; i++) {
        Value *x = a->vs[i];
        if (!x || x->rank <= d) return lower_fail(L, 0, "tensor %d has no dim %d", i, d);
        Expr *each = ex_floordiv(L->ex, ex_sub(L->ex, ex_add(L->ex, x->dim[d], count), ex_int(L->ex, 1)), count);
        if (d + 2 > MAX_RANK) return lower_fail(L, 0, "tensor %d: at most %d dims are supported", i, MAX_RANK);
        Expr *pad[2 * MAX_RANK], *dim[MAX_RANK], *rest = each;
        int n = 2 * (x->rank - d);
        for (int k = 0; k < n; k++) pad[k] = ex_int(L->ex, 0);
        pad[n - 1] = ex_sub(L->ex, ex_mul(L->ex, each, count), x->dim[d]);
        x = AS(L, constant_pad_nd, arg_value(x), arg_exprs(L->g, n, pad));
        TRY(x);
        for (int k = 0; k < d; k++) dim[k] = x->dim[k];
        for (int k = d + 1; k < x->rank; k++) rest = ex_mul(L->ex, rest, x->dim[k]);
        dim[d] = count;
        dim[d + 1] = rest;
        TRY(list[i] = lower_reshape(L, x, d + 2, dim));
    }
    return list && lower_return(L, join(L, a->n, list, d + 1));
}

bool lower_hstack(Lower *L)
{
    const Arg *a = &L->arg[0];
    bool vertical = L->op->id != OP_hstack;
    if (a->kind != ARG_VALUES || a->n < 1 || !a->vs[0]) return lower_fail(L, 0, "an empty list");
    Value **list = arena_array(L->g->arena, Value *, a->n);
    for (int i = 0; list && i < a->n; i++) {
        list[i] = a->vs[i];
        while (list[i] && list[i]->rank < (vertical ? 2 : 1)) TRY(list[i] = with_one(L, list[i], 0));
    }
    return list && lower_return(L, join(L, a->n, list, vertical || list[0]->rank == 1 ? 0 : 1));
}

/* ------------------------------------------------------------------ indices */

/* Truth masks become the columns of their nonzero; integers become i64. */
static bool plain_indices(Lower *L, const Arg *a, Arg *out)
{
    Value *list[MAX_RANK] = {NULL};
    int n = 0;
    for (int i = 0; i < a->n; i++) {
        Value *v = a->vs[i];
        if (v && (v->dtype == DT_BOOL || v->dtype == DT_U8)) {
            Value *where = EMIT(L, nonzero, arg_value(v));
            TRY(where);
            if (n + v->rank > MAX_RANK) return lower_fail(L, 1, "more indices than dims");
            for (int k = 0; k < v->rank; k++)
                TRY(list[n++] = EMIT(L, select_int, arg_value(where), arg_int(L->g, 1), arg_int(L->g, k)));
            continue;
        }
        if (n == MAX_RANK) return lower_fail(L, 1, "more indices than dims");
        list[n++] = v ? lower_cast(L, v, DT_I64) : NULL;
        if (v && !list[n - 1]) return false;
    }
    *out = arg_values(L->g, n, list);
    return true;
}

bool lower_declare_sizes(Lower *L, Value *y)
{
    for (int i = 0; L->declared && i < y->rank && i < L->declared_rank; i++) {
        if (y->dim[i]->kind != EX_SYM || L->declared[i]->kind != EX_SYM || y->dim[i] == L->declared[i]) continue;
        Symbol *mine = expr_symbol(L->ex, (int)y->dim[i]->i), *file = expr_symbol(L->ex, (int)L->declared[i]->i);
        if (mine->source != SYM_SIZE || file->source != SYM_FREE) continue;
        file->source = SYM_SIZE; /* both names are bound from the same tensor */
        file->value = mine->value;
        file->dim = mine->dim;
    }
    return true;
}

bool lower_index(Lower *L)
{
    Arg list;
    TRY(plain_indices(L, &L->arg[1], &list));
    Value *y = EMIT(L, index_Tensor, L->arg[0], list);
    return y && lower_declare_sizes(L, y) && lower_return(L, y);
}

/* x as wide as it and the mask are together. */
static Value *broadcast_with(Lower *L, Value *x, Value *mask)
{
    Value *like = EMIT(L, bitwise_or_Tensor, arg_value(mask), arg_value(mask));
    return like ? EMIT(L, where_self, arg_value(like), arg_value(x), arg_value(x)) : NULL;
}

bool lower_masked_select(Lower *L)
{
    Value *x, *m = lower_value(L, 1);
    TRY(want(L, &x));
    if (!m) return lower_fail(L, 1, "expected a tensor");
    Value *wide = broadcast_with(L, x, m);
    TRY(wide);
    if (!wide->rank) { /* a number: one element of a vector, or none */
        Expr *one = ex_int(L->ex, 1);
        TRY((wide = lower_reshape(L, wide, 1, &one)) && (m = lower_reshape(L, m, 1, &one)));
    }
    if (m->rank != wide->rank) TRY(m = EMIT(L, expand, arg_value(m), arg_exprs(L->g, wide->rank, wide->dim)));
    Arg list;
    TRY(plain_indices(L, &(Arg){.kind = ARG_VALUES, .n = 1, .vs = &m}, &list));
    Value *y = EMIT(L, index_Tensor, arg_value(wide), list);
    return y && lower_declare_sizes(L, y) && lower_return(L, y);
}

/* Operand i of an op by index; a number beside a list is a list of one, as in PyTorch. */
static Value *listed(Lower *L, int i, bool list)
{
    Value *x = lower_value(L, i);
    Expr *one = ex_int(L->ex, 1);
    return x && list && x->rank == 0 ? lower_reshape(L, x, 1, &one) : x;
}

/* scatter, scatter_add, scatter_reduce */
bool lower_scatter(Lower *L)
{
    const Value *x = lower_value(L, 0);
    bool list = false;
    Arg arg[6];
    int n = L->op->schema->nparams;
    if (!x) return lower_fail(L, 0, "expected a tensor");
    for (int i = 0; i < n; i++) list |= lower_value(L, i) && lower_value(L, i)->rank == 1;
    for (int i = 0; i < n; i++) {
        arg[i] = L->arg[i];
        if (lower_value(L, i)) TRY(arg[i].v = listed(L, i, list));
    }
    Value *y = lower_emit(L, L->op->id, n, arg);
    return y && lower_return(L, lower_reshape(L, y, x->rank, x->dim));
}

/* PyTorch does not look at an index that takes nothing: its dtype and rank may be any. */
bool lower_gather(Lower *L)
{
    Value *x = lower_value(L, 0), *i = lower_value(L, 2);
    if (!x || !i) return lower_fail(L, x ? 2 : 0, "expected a tensor");
    bool empty = false;
    for (int d = 0; d < i->rank; d++) empty |= ex_equals_int(i->dim[d], 0);
    if (empty && (i->dtype != DT_I64 || i->rank != x->rank))
        return lower_return(L, EMIT(L, full, arg_exprs(L->g, i->rank, i->dim), arg_int(L->g, 0), arg_dtype(x->dtype)));
    bool list = x->rank == 1 || i->rank == 1;
    Value *from = listed(L, 0, list), *at = listed(L, 2, list);
    Value *y = from && at ? EMIT(L, gather, v(from), L->arg[1], v(at), L->arg[3]) : NULL;
    return y && lower_return(L, lower_reshape(L, y, i->rank, i->dim));
}

bool lower_take_along(Lower *L)
{
    Value *x, *i = lower_value(L, 1);
    TRY(want(L, &x));
    if (!i) return lower_fail(L, 1, "expected a tensor");
    if (!lower_is_none(L, 2)) { /* all dims but the one broadcast */
        int d;
        Expr *dx[MAX_RANK], *di[MAX_RANK];
        TRY(lower_dim(L, 2, x->rank, &d));
        if (i->rank != x->rank) return lower_fail(L, 1, "rank %d, expected %d", i->rank, x->rank);
        for (int k = 0; k < x->rank; k++) {
            Expr *wide = ex_equals_int(x->dim[k], 1) ? i->dim[k] : x->dim[k];
            dx[k] = k == d ? x->dim[k] : wide;
            di[k] = k == d ? i->dim[k] : wide;
        }
        x = EMIT(L, expand, arg_value(x), arg_exprs(L->g, x->rank, dx));
        i = EMIT(L, expand, arg_value(i), arg_exprs(L->g, i->rank, di));
        i = x && i ? AS(L, remainder_Scalar, arg_value(i), arg_expr(x->dim[d])) : NULL; /* -1 is the last */
        return i && lower_return(L, EMIT(L, gather, arg_value(x), L->arg[2], arg_value(i)));
    }
    Expr *n = ex_int(L->ex, 1), *m = n;
    for (int k = 0; k < x->rank; k++) n = ex_mul(L->ex, n, x->dim[k]);
    for (int k = 0; k < i->rank; k++) m = ex_mul(L->ex, m, i->dim[k]);
    x = lower_reshape(L, x, 1, &n);
    i = lower_reshape(L, i, 1, &m);
    return x && i && lower_return(L, EMIT(L, gather, arg_value(x), arg_int(L->g, 0), arg_value(i)));
}

/* The places of what is not zero: a row each, or for as_tuple=True and where(x) a vector for each axis. */
bool lower_argwhere(Lower *L)
{
    Value *x, *list[MAX_RANK];
    TRY(want(L, &x));
    bool rows = L->op->id == OP_argwhere;
    if (!rows && !x->rank) TRY(x = lower_reshape(L, x, 1, (Expr *[]){ex_int(L->ex, 1)}));
    Value *at = EMIT(L, nonzero, arg_value(x));
    TRY(at);
    if (rows) return lower_declare_sizes(L, at) && lower_return(L, at);
    for (int k = 0; k < x->rank; k++)
        TRY(list[k] = EMIT(L, select_int, arg_value(at), arg_int(L->g, 1), arg_int(L->g, k)));
    return lower_declare_sizes(L, list[0]) && lower_return_values(L, x->rank, list);
}

/* x read as a vector, negative indices from its end */
bool lower_take(Lower *L)
{
    Value *x;
    Expr *n = ex_int(L->ex, 1);
    TRY(want(L, &x));
    for (int k = 0; k < x->rank; k++) n = ex_mul(L->ex, n, x->dim[k]);
    x = lower_reshape(L, x, 1, &n);
    return x &&
           lower_return(L, EMIT(L, index_Tensor, arg_value(x), arg_values(L->g, 1, (Value *[]){lower_value(L, 1)})));
}

/* a number is equal to any element of t */
static Value *number_in(Lower *L, const Arg *number, Value *t)
{
    Value *same = lower_as(L, OP_eq_Scalar, 2, (Arg[]){arg_value(t), *number});
    return same ? AS(L, any, arg_value(same)) : NULL;
}

/* any over the test elements of x == test */
bool lower_isin(Lower *L)
{
    Value *x = lower_value(L, 0), *t = lower_value(L, 1), *any;
    bool invert;
    Expr *n = ex_int(L->ex, 1);
    TRY(lower_const_bool(L, 3, &invert));
    if (!x && !t) return lower_fail(L, 1, "expected a tensor");
    if (!x || !t) {
        any = x ? lower_as(L, OP_eq_Scalar, 2, L->arg) : number_in(L, &L->arg[0], t);
        return any && lower_return(L, invert ? EMIT(L, logical_not, arg_value(any)) : any);
    }
    for (int k = 0; k < t->rank; k++) n = ex_mul(L->ex, n, t->dim[k]);
    Promote p = {DT_NONE, DT_NONE, DT_NONE};
    promote_value(&p, x);
    promote_value(&p, t);
    Value *wide = with_one(L, lower_cast(L, x, promote_result(&p)), x->rank);
    t = lower_reshape(L, lower_cast(L, t, promote_result(&p)), 1, &n);
    Value *same = wide && t ? EMIT(L, eq_Tensor, arg_value(wide), arg_value(t)) : NULL;
    any = same ? EMIT(L, any_dim, arg_value(same), arg_int(L->g, -1), arg_bool(L->g, false)) : NULL;
    return any && lower_return(L, invert ? EMIT(L, logical_not, arg_value(any)) : any);
}

static Arg index_dtype(Lower *L, int i)
{
    const Expr *small = lower_expr(L, i);
    return arg_dtype(small && ex_is_const(small) && small->i ? DT_I32 : DT_I64);
}

/* bucketize(x, boundaries) is searchsorted(boundaries, x) */
static bool search(Lower *L, Value *sorted, Value *x, bool right, Arg dtype)
{
    if (!sorted || !x) return lower_fail(L, 0, "expected tensors");
    Promote p = {DT_NONE, DT_NONE, DT_NONE};
    promote_value(&p, sorted);
    promote_value(&p, x);
    DType t = promote_result(&p);
    Value *y = EMIT(L, searchsorted_Tensor, arg_value(lower_cast(L, sorted, t)), arg_value(lower_cast(L, x, t)),
                    arg_bool(L->g, false), arg_bool(L->g, right));
    return y && lower_return(L, lower_cast(L, y, dtype.dtype));
}

/* The argument that is searched for: a tensor, or a number in the dtype that it has beside the boundaries. */
static Value *searched(Lower *L, int i, const Value *sorted)
{
    if (lower_value(L, i) || !sorted || !lower_expr(L, i)) return lower_value(L, i);
    bool wide = lower_expr(L, i)->is_float && !dtype_is_float(sorted->dtype);
    return AS(L, full, arg_ints(L->g, 0, NULL), L->arg[i], arg_dtype(wide ? DT_F32 : sorted->dtype));
}

bool lower_bucketize(Lower *L)
{
    bool right;
    TRY(lower_const_bool(L, 3, &right));
    Value *sorted = lower_value(L, 1);
    return search(L, sorted, searched(L, 0, sorted), right, index_dtype(L, 2));
}

bool lower_searchsorted(Lower *L)
{
    bool right;
    TRY(lower_const_bool(L, 3, &right));
    if (L->arg[4].kind == ARG_STR) right = !strcmp(L->arg[4].s, "right");
    Value *sorted = lower_value(L, 0);
    if (lower_value(L, 5)) sorted = EMIT(L, gather, L->arg[0], arg_int(L->g, -1), L->arg[5]);
    return search(L, sorted, searched(L, 1, sorted), right, index_dtype(L, 2));
}

bool lower_one_hot(Lower *L)
{
    Value *x;
    int64_t n;
    TRY(want(L, &x) && lower_const_int(L, 1, &n));
    if (n < 0) return lower_fail(L, 1, "must be given: the number of classes cannot depend on data");
    Value *all = EMIT(L, arange_start_step, arg_int(L->g, 0), arg_int(L->g, n), arg_int(L->g, 1), arg_dtype(DT_I64));
    x = lower_among(L, x, ex_int(L->ex, n));
    x = x ? with_one(L, x, x->rank) : NULL;
    Value *hit = x && all ? EMIT(L, eq_Tensor, arg_value(x), arg_value(all)) : NULL;
    return hit && lower_return(L, lower_cast(L, hit, DT_I64));
}

/* ------------------------------------------------------------------ writing */

/* x[mask] = one number: where(mask, number, x). *taken: it was that. */
static bool put_masked(Lower *L, Value *x, Value *v, bool *taken)
{
    const Arg *list = &L->arg[1];
    Value *mask = NULL;
    int before = 0;
    Expr *dim[MAX_RANK];
    *taken = false;
    for (int i = 0; i < list->n; i++) {
        if (list->vs[i] && mask) return true;
        if (list->vs[i]) mask = list->vs[i];
        else if (!mask) before++;
    }
    bool accumulate = false;
    TRY(L->arg[3].kind != ARG_EXPR || lower_const_bool(L, 3, &accumulate));
    for (int i = 0; v && i < v->rank; i++)
        if (!ex_equals_int(v->dim[i], 1)) return true;
    if (!mask || mask->dtype != DT_BOOL || !mask->rank || accumulate || before + mask->rank > x->rank) return true;
    *taken = true;
    int rank = x->rank - before; /* the mask's axes, then 1 for those of x after them */
    for (int i = 0; i < rank; i++) dim[i] = i < mask->rank ? mask->dim[i] : ex_int(L->ex, 1);
    mask = lower_reshape(L, mask, rank, dim);
    Value *number = v ? lower_reshape(L, lower_cast(L, v, x->dtype), 0, NULL)
                      : lower_filled(L, 0, NULL, L->arg[2], x->dtype);
    return mask && number && lower_return(L, EMIT(L, where_self, arg_value(mask), arg_value(number), arg_value(x)));
}

bool lower_index_put(Lower *L)
{
    Value *x, *v = lower_value(L, 2);
    Arg list;
    bool taken;
    TRY(want(L, &x) && put_masked(L, x, v, &taken));
    if (taken) return true;
    TRY(want(L, &x) && plain_indices(L, &L->arg[1], &list));
    if (!v) TRY(v = lower_filled(L, 0, NULL, L->arg[2], x->dtype));
    return lower_return(L, EMIT(L, index_put, arg_value(x), list, arg_value(lower_cast(L, v, x->dtype)), L->arg[3]));
}

bool lower_scatter_value(Lower *L)
{
    Value *x, *i = lower_value(L, 2);
    TRY(want(L, &x));
    if (!i) return lower_fail(L, 2, "expected a tensor");
    Value *src = lower_filled(L, i->rank, i->dim, L->arg[3], x->dtype);
    return src && lower_return(L, AS(L, scatter_src, arg_value(x), L->arg[1], arg_value(i), arg_value(src)));
}

/* An index vector along dim d in the shape of `like`. */
static Value *along(Lower *L, Value *index, const Value *like, int d)
{
    Expr *dim[MAX_RANK];
    for (int i = 0; i < like->rank; i++) dim[i] = i == d && index->rank ? index->dim[0] : ex_int(L->ex, 1);
    Value *v = lower_reshape(L, index, like->rank, dim);
    return v ? EMIT(L, expand, arg_value(v), arg_exprs(L->g, like->rank, like->dim)) : NULL;
}

bool lower_index_add(Lower *L)
{
    Value *x, *i = lower_value(L, 2), *src = lower_value(L, 3);
    int d;
    TRY(want(L, &x) && lower_dim(L, 1, x->rank, &d));
    if (!i || !src) return lower_fail(L, 2, "expected tensors");
    const Expr *alpha = lower_expr(L, 4);
    if (alpha && !(ex_is_const(alpha) && (alpha->kind == EX_FLOAT ? alpha->f == 1 : alpha->i == 1)))
        TRY(src = EMIT(L, mul_Tensor, arg_value(src), L->arg[4]));
    i = along(L, i, src, d);
    return i && lower_return(L, EMIT(L, scatter_add, arg_value(x), arg_int(L->g, d), arg_value(i),
                                     arg_value(lower_cast(L, src, x->dtype))));
}

/* A tensor of rank 0 where an index names the place, which counts once for its gradient however often it is named */
static bool fill_with(Lower *L, Value *x, Value *i, int d, Value *number)
{
    Expr *dim[MAX_RANK], *one = ex_int(L->ex, 1);
    Arg none = arg_bool(L->g, false);
    if (!i->rank) TRY(i = lower_reshape(L, i, 1, &one));
    Value *hit = AS(L, full, arg_exprs(L->g, 1, &x->dim[d]), none, arg_dtype(DT_BOOL)),
          *yes = AS(L, full, arg_ints(L->g, 0, NULL), arg_bool(L->g, true), arg_dtype(DT_BOOL));
    hit = hit && yes ? AS(L, index_put, arg_value(hit), arg_values(L->g, 1, &i), arg_value(yes)) : NULL;
    for (int k = 0; k < x->rank; k++) dim[k] = k == d ? x->dim[d] : one;
    hit = lower_reshape(L, hit, x->rank, dim);
    return lower_return(L, AS(L, where_self, arg_value(hit), arg_value(number), arg_value(x)));
}

bool lower_index_fill(Lower *L)
{
    Value *x, *i = lower_value(L, 2);
    int d;
    Expr *dim[MAX_RANK];
    TRY(want(L, &x) && lower_dim(L, 1, x->rank, &d));
    if (!i) return lower_fail(L, 2, "expected a tensor");
    for (int k = 0; k < x->rank; k++) dim[k] = x->dim[k];
    if (x->rank) { /* negative indices count from the end */
        Value *below = AS(L, lt_Scalar, arg_value(i), arg_int(L->g, 0));
        Value *from_end = AS(L, add_Scalar, arg_value(i), arg_expr(x->dim[d]));
        i = below && from_end ? AS(L, where_self, arg_value(below), arg_value(from_end), arg_value(i)) : NULL;
        TRY(i);
        dim[d] = i->rank ? i->dim[0] : ex_int(L->ex, 1);
    }
    Value *number = lower_value(L, 3);
    if (number && x->rank) return fill_with(L, x, i, d, lower_cast(L, number, x->dtype));
    Value *src = number ? lower_cast(L, number, x->dtype) : lower_filled(L, x->rank, dim, L->arg[3], x->dtype);
    if (!x->rank && i->rank && !ex_equals_int(i->dim[0], 1)) { /* one element, which several indices or none may name */
        Value *count = lower_filled(L, 0, NULL, arg_expr(i->dim[0]), DT_I64);
        Value *named = count ? AS(L, gt_Scalar, arg_value(count), arg_int(L->g, 0)) : NULL;
        return named && src &&
               lower_return(L, EMIT(L, where_self, arg_value(named), arg_value(src), arg_value(x)));
    }
    i = src ? along(L, i, src, d) : NULL;
    return i && lower_return(L, EMIT(L, scatter_src, arg_value(x), arg_int(L->g, d), arg_value(i), arg_value(src)));
}

bool lower_index_copy(Lower *L)
{
    Value *x, *i = lower_value(L, 2), *src = lower_value(L, 3);
    int d;
    TRY(want(L, &x) && lower_dim(L, 1, x->rank, &d));
    if (!i || !src) return lower_fail(L, 2, "expected tensors");
    i = along(L, i, src, d);
    return i && lower_return(L, AS(L, scatter_src, arg_value(x), arg_int(L->g, d), arg_value(i),
                                   arg_value(lower_cast(L, src, x->dtype))));
}

/* Element k of the source goes to the k-th true position: where(mask, source[cumsum(mask) - 1], x). A source that may
 * be empty has another element before it, for positions that none is taken for. */
bool lower_masked_scatter(Lower *L)
{
    Value *x, *m = lower_value(L, 1), *src = lower_value(L, 2);
    TRY(want(L, &x));
    if (!m || !src) return lower_fail(L, 1, "expected tensors");
    if (m->dtype != DT_BOOL) return lower_fail(L, 1, "%s, expected bool", dtype_name(m->dtype));
    bool narrow = m->rank > x->rank;
    for (int i = 1; i <= x->rank && i <= m->rank; i++)
        narrow |= ex_equals_int(x->dim[x->rank - i], 1) && !ex_equals_int(m->dim[m->rank - i], 1);
    if (narrow) TRY(x = broadcast_with(L, x, m));
    Expr *n = ex_int(L->ex, 1), *k = n;
    for (int i = 0; i < x->rank; i++) n = ex_mul(L->ex, n, x->dim[i]);
    for (int i = 0; i < src->rank; i++) k = ex_mul(L->ex, k, src->dim[i]);
    m = EMIT(L, expand, arg_value(m), arg_exprs(L->g, x->rank, x->dim));
    m = m ? lower_reshape(L, m, 1, &n) : NULL;
    Value *order = m ? EMIT(L, cumsum, arg_value(m), arg_int(L->g, 0)) : NULL;
    src = lower_reshape(L, lower_cast(L, src, x->dtype), 1, &k);
    int64_t least, most;
    if (k) ex_range(L->ex, k, &least, &most);
    if (src && least < 1) {
        Value *none = EMIT(L, full, arg_ints(L->g, 1, (int64_t[]){1}), arg_int(L->g, 0), arg_dtype(x->dtype));
        TRY(none);
        src = EMIT(L, cat, arg_values(L->g, 2, (Value *[]){none, src}), arg_int(L->g, 0));
    } else {
        order = order ? EMIT(L, sub_Tensor, arg_value(order), arg_int(L->g, 1)) : NULL;
        order = order ? EMIT(L, clamp, arg_value(order), arg_int(L->g, 0), arg_none()) : NULL;
    }
    Value *taken = src && order ? EMIT(L, index_select, arg_value(src), arg_int(L->g, 0), arg_value(order)) : NULL;
    Value *flat = lower_reshape(L, x, 1, &n);
    Value *y = taken && flat ? EMIT(L, where_self, arg_value(m), arg_value(taken), arg_value(flat)) : NULL;
    return y && lower_return(L, lower_reshape(L, y, x->rank, x->dim));
}

/* What is written has the sizes of the part that it takes the place of. */
static bool fits_part(Lower *L, const Value *src, const Value *part)
{
    if (src->rank != part->rank) return lower_fail(L, 1, "rank %d, expected %d", src->rank, part->rank);
    for (int i = 0; i < src->rank; i++)
        TRY(graph_require(L->g, ex_make(L->ex, EX_EQ, src->dim[i], part->dim[i], NULL), L->err,
                          "node '%s': size of dim %d of the source", L->name, i));
    return true;
}

/* Bounds made explicit as slicing does, and the source in the slice's dtype. */
bool lower_slice_scatter(Lower *L)
{
    Value *x, *src = lower_value(L, 1);
    TRY(want(L, &x));
    if (!src) return lower_fail(L, 1, "expected a tensor");
    Lower M = *L;
    Arg arg[5] = {L->arg[0], L->arg[2], L->arg[3], L->arg[4], L->arg[5]};
    M.op = op_get(OP_slice_Tensor);
    M.arg = arg;
    TRY(lower_op(&M));
    Value *part = M.result.v;
    TRY(fits_part(L, src, part));
    src = lower_cast(L, src, x->dtype);
    if (part == x) return lower_return(L, src);
    const Arg *a = part->def->arg;
    return src && lower_return(L, EMIT(L, slice_scatter, arg_value(x), arg_value(src), a[1], a[2], a[3], a[4]));
}

bool lower_select_scatter(Lower *L)
{
    Value *x, *src = lower_value(L, 1);
    TRY(want(L, &x));
    Lower M = *L;
    M.op = op_get(OP_select_int);
    M.arg = (Arg[]){L->arg[0], L->arg[2], L->arg[3]};
    if (!src) return lower_fail(L, 1, "expected a tensor");
    TRY(lower_op(&M) && fits_part(L, src, M.result.v));
    const Node *part = M.result.v->def;
    TRY(src = lower_cast(L, src, x->dtype));
    if (!part || part->op->id != OP_select_int || part->arg[0].v != x) /* all of it */
        return lower_return(L, lower_reshape(L, src, x->rank, x->dim));
    return lower_return(L, EMIT(L, select_scatter, arg_value(x), arg_value(src), part->arg[1], part->arg[2]));
}

/* The diagonal itself says which dims there are, and what the source's sizes must be. */
bool lower_diagonal_scatter(Lower *L)
{
    Value *x, *src = lower_value(L, 1);
    TRY(want(L, &x));
    if (!src) return lower_fail(L, 1, "expected a tensor");
    Value *part = EMIT(L, diagonal, arg_value(x), L->arg[2], L->arg[3], L->arg[4]);
    TRY(part && fits_part(L, src, part));
    src = lower_cast(L, src, x->dtype);
    return src &&
           lower_return(L, EMIT(L, diagonal_scatter, arg_value(x), arg_value(src), L->arg[2], L->arg[3], L->arg[4]));
}

/* ------------------------------------------------------------------ repeating and moving */

/* (d0, d1) repeated (r0, r1): (1, d0, 1, d1) expanded to (r0, d0, r1, d1) */
bool lower_repeat(Lower *L)
{
    Value *x;
    const Arg *r = &L->arg[1];
    Expr *thin[MAX_RANK], *wide[MAX_RANK], *flat[MAX_RANK], *one = ex_int(L->ex, 1);
    TRY(want(L, &x));
    int n = r->n > x->rank ? r->n : x->rank, k = 0;
    if ((r->n < x->rank && L->op->id == OP_repeat) || n > MAX_RANK)
        return lower_fail(L, 1, "%d repeats for a tensor of rank %d", r->n, x->rank);
    for (int i = 0; i < n; i++) {
        Expr *times = i - (n - r->n) >= 0 ? r->es[i - (n - r->n)] : one,
             *size = i - (n - x->rank) >= 0 ? x->dim[i - (n - x->rank)] : one;
        flat[i] = ex_mul(L->ex, times, size);
        if (k + 2 > MAX_RANK) return lower_fail(L, 1, "rank too large");
        if (!ex_equals_int(times, 1)) {
            thin[k] = one;
            wide[k++] = times;
        }
        thin[k] = wide[k] = size;
        k++;
    }
    Value *y = lower_reshape(L, x, k, thin);
    y = y ? EMIT(L, expand, arg_value(y), arg_exprs(L->g, k, wide)) : NULL;
    return y && lower_return(L, lower_reshape(L, y, n, flat));
}

bool lower_repeat_interleave(Lower *L)
{
    Value *x;
    int d = 0;
    Expr *wide[MAX_RANK + 1], *flat[MAX_RANK], *times = lower_expr(L, 1);
    TRY(want(L, &x) && times);
    if (lower_is_none(L, 2)) {
        Expr *n = ex_int(L->ex, 1);
        for (int i = 0; i < x->rank; i++) n = ex_mul(L->ex, n, x->dim[i]);
        TRY(x = lower_reshape(L, x, 1, &n));
    } else {
        TRY(lower_dim(L, 2, x->rank, &d));
    }
    Value *y = with_one(L, x, d + 1);
    TRY(y);
    for (int i = 0; i < y->rank; i++) wide[i] = i == d + 1 ? times : y->dim[i];
    for (int i = 0; i < x->rank; i++) flat[i] = i == d ? ex_mul(L->ex, x->dim[i], times) : x->dim[i];
    y = EMIT(L, expand, arg_value(y), arg_exprs(L->g, y->rank, wide));
    return y && lower_return(L, lower_reshape(L, y, x->rank, flat));
}

/* Each element as often as its own count says: index_select with the positions repeated */
bool lower_repeat_interleave_tensor(Lower *L)
{
    Value *x, *times = lower_value(L, 1);
    int d = 0;
    TRY(want(L, &x));
    if (!times) return lower_fail(L, 1, "expected a tensor");
    if (lower_is_none(L, 2)) {
        Expr *n = ex_int(L->ex, 1);
        for (int i = 0; i < x->rank; i++) n = ex_mul(L->ex, n, x->dim[i]);
        TRY(x = lower_reshape(L, x, 1, &n));
    } else {
        TRY(lower_dim(L, 2, x->rank, &d));
    }
    times = lower_reshape(L, lower_cast(L, times, DT_I64), 1,
                          (Expr *[]){times->rank ? times->dim[0] : ex_int(L->ex, 1)});
    times = times ? EMIT(L, expand, arg_value(times), arg_exprs(L->g, 1, &x->dim[d])) : NULL;
    Value *at = times ? EMIT(L, repeat_interleave_Tensor, arg_value(times), L->arg[3]) : NULL;
    Value *y = at ? EMIT(L, index_select, arg_value(x), arg_int(L->g, d), arg_value(at)) : NULL;
    return y && lower_declare_sizes(L, y) && lower_return(L, y);
}

bool lower_flip_name(Lower *L)
{
    return lower_return(L, EMIT(L, flip, L->arg[0], arg_ints(L->g, 1, (int64_t[]){L->op->id == OP_fliplr})));
}

/* k quarter turns from dim a to dim b */
bool lower_rot90(Lower *L)
{
    Value *x;
    int64_t k, d[2];
    int perm[MAX_RANK];
    const Arg *dims = &L->arg[2];
    TRY(want(L, &x) && lower_const_int(L, 1, &k));
    if (dims->kind != ARG_EXPRS || dims->n != 2) return lower_fail(L, 2, "expected two dims");
    for (int i = 0; i < 2; i++) {
        d[i] = dims->es[i]->i < 0 ? dims->es[i]->i + x->rank : dims->es[i]->i;
        if (!ex_is_int(dims->es[i]) || d[i] < 0 || d[i] >= x->rank)
            return lower_fail(L, 2, "dim out of range for rank %d", x->rank);
    }
    if (d[0] == d[1]) return lower_fail(L, 2, "the two dims are the same (%lld)", (long long)d[0]);
    k = (k % 4 + 4) % 4;
    if (k == 0) return lower_return(L, x);
    x = EMIT(L, flip, arg_value(x), k == 2 ? arg_ints(L->g, 2, d) : arg_ints(L->g, 1, &d[k == 1]));
    if (!x || k == 2) return lower_return(L, x);
    for (int i = 0; i < x->rank; i++) perm[i] = i == d[0] ? (int)d[1] : i == d[1] ? (int)d[0] : i;
    return lower_return(L, lower_permute(L, x, perm));
}

Value *lower_piece(Lower *L, Value *x, int d, Expr *from, Expr *to)
{
    return EMIT(L, slice_Tensor, arg_value(x), arg_int(L->g, d), arg_expr(from), arg_expr(to), arg_int(L->g, 1));
}

/* The last `shift` elements come first. */
static Value *rolled(Lower *L, Value *x, int d, Expr *shift)
{
    Expr *n = x->dim[d], *cut = ex_mod(L->ex, ex_neg(L->ex, shift), ex_max(L->ex, n, ex_int(L->ex, 1)));
    if (!cut || ex_equals_int(cut, 0)) return cut ? x : NULL;
    Value *a = lower_piece(L, x, d, cut, n), *b = lower_piece(L, x, d, ex_int(L->ex, 0), cut);
    return a && b ? EMIT(L, cat, arg_values(L->g, 2, (Value *[]){a, b}), arg_int(L->g, d)) : NULL;
}

bool lower_roll(Lower *L)
{
    Value *x, *y;
    const Arg *shift = &L->arg[1], *dims = &L->arg[2];
    TRY(want(L, &x));
    y = x;
    if (dims->n == 0) {
        Expr *n = ex_int(L->ex, 1);
        for (int i = 0; i < x->rank; i++) n = ex_mul(L->ex, n, x->dim[i]);
        y = lower_reshape(L, x, 1, &n);
        y = y ? rolled(L, y, 0, shift->es[0]) : NULL;
        return y && lower_return(L, lower_reshape(L, y, x->rank, x->dim));
    }
    if (shift->n != dims->n) return lower_fail(L, 2, "%d shifts for %d dims", shift->n, dims->n);
    for (int k = 0; y && k < dims->n; k++) {
        int64_t d = dims->es[k]->i < 0 ? dims->es[k]->i + x->rank : dims->es[k]->i;
        if (!ex_is_int(dims->es[k]) || d < 0 || d >= x->rank)
            return lower_fail(L, 2, "dim out of range for rank %d", x->rank);
        y = rolled(L, y, (int)d, shift->es[k]);
    }
    return lower_return(L, y);
}

bool lower_meshgrid(Lower *L)
{
    const Arg *a = &L->arg[0];
    bool xy = L->op->id == OP_meshgrid_indexing && L->arg[1].kind == ARG_STR && !strcmp(L->arg[1].s, "xy");
    Expr *size[MAX_RANK], *dim[MAX_RANK];
    if (a->n < 1 || a->n > MAX_RANK) return lower_fail(L, 0, "%d tensors", a->n);
    Arg list = arg_values(L->g, a->n, a->vs);
    if (!arg_built(&list)) return oom(L->err);
    int order[MAX_RANK];
    for (int i = 0; i < a->n; i++) order[i] = xy && a->n > 1 && i < 2 ? 1 - i : i;
    for (int i = 0; i < a->n; i++) size[order[i]] = a->vs[i]->rank ? a->vs[i]->dim[0] : ex_int(L->ex, 1);
    for (int i = 0; i < a->n; i++) {
        for (int k = 0; k < a->n; k++) dim[k] = k == order[i] ? size[k] : ex_int(L->ex, 1);
        Value *v = lower_reshape(L, a->vs[i], a->n, dim);
        TRY(list.vs[i] = v ? EMIT(L, expand, arg_value(v), arg_exprs(L->g, a->n, size)) : NULL);
    }
    L->result = list;
    return true;
}

bool lower_broadcast_tensors(Lower *L)
{
    const Arg *a = &L->arg[0];
    int rank = 0;
    Expr *dim[MAX_RANK];
    for (int i = 0; i < a->n; i++)
        for (int d = 0, n = a->vs[i]->rank; d < n; d++) { /* the largest of the aligned sizes, 1 gives way */
            if (n > rank) {
                for (int k = rank - 1; k >= 0; k--) dim[k + n - rank] = dim[k];
                for (int k = 0; k < n - rank; k++) dim[k] = ex_int(L->ex, 1);
                rank = n;
            }
            if (ex_equals_int(dim[rank - n + d], 1)) dim[rank - n + d] = a->vs[i]->dim[d];
        }
    Arg list = arg_values(L->g, a->n, a->vs);
    if (!arg_built(&list)) return oom(L->err);
    for (int i = 0; i < a->n; i++) TRY(list.vs[i] = EMIT(L, expand, arg_value(a->vs[i]), arg_exprs(L->g, rank, dim)));
    L->result = list;
    return true;
}

/* zeros with the values written on the diagonal */
bool lower_diag_embed(Lower *L)
{
    Value *x;
    int64_t offset;
    int d1, d2, k = 0;
    Expr *dim[MAX_RANK];
    TRY(want(L, &x) && lower_const_int(L, 1, &offset) && lower_dim(L, 2, x->rank + 1, &d1) &&
        lower_dim(L, 3, x->rank + 1, &d2));
    if (!x->rank || x->rank >= MAX_RANK || d1 == d2) return lower_fail(L, 0, "rank %d", x->rank);
    Expr *off = ex_int(L->ex, offset), *n = ex_add(L->ex, x->dim[x->rank - 1], offset < 0 ? ex_neg(L->ex, off) : off);
    for (int i = 0; i <= x->rank; i++) dim[i] = i == d1 || i == d2 ? n : x->dim[k++];
    Value *zero = EMIT(L, full, arg_exprs(L->g, x->rank + 1, dim), arg_int(L->g, 0), arg_dtype(x->dtype));
    return zero &&
           lower_return(L, EMIT(L, diagonal_scatter, arg_value(zero), arg_value(x), L->arg[1], L->arg[2], L->arg[3]));
}
