/* Lowering of reductions, scans, softmax and norms: dtype arguments become casts, whole-tensor forms name all dims,
 * variants with several results become plain ones.
 */
#include <math.h>
#include <string.h>
#include "lower/lower_table.h"
#include "shape/shape.h"

static bool want(Lower *L, Value **x)
{
    *x = lower_value(L, 0);
    return *x || lower_fail(L, 0, "expected a tensor");
}

static Arg argument(Lower *L, const char *name)
{
    int at = op_param(L->op, name);
    return at >= 0 ? L->arg[at] : arg_none();
}

/* The first operand in the dtype argument's type, if there is one. */
static bool cast_input(Lower *L, Value **x)
{
    Arg t = argument(L, "dtype");
    TRY(want(L, x));
    if (t.kind == ARG_DTYPE) *x = lower_cast(L, *x, t.dtype);
    return *x != NULL;
}

/* A result in the dtype argument's type: sums of small integers are made in i64 first. */
static Value *in_dtype(Lower *L, Value *v)
{
    Arg t = argument(L, "dtype");
    return v && t.kind == ARG_DTYPE ? lower_cast(L, v, t.dtype) : v;
}

static Arg keepdim(Lower *L)
{
    Arg k = argument(L, "keepdim");
    return k.kind == ARG_EXPR ? k : arg_bool(L->g, false);
}

static Arg dims_of(Lower *L)
{
    Arg d = argument(L, "dim");
    return d.kind == ARG_EXPR ? arg_exprs(L->g, 1, &d.e) : d;
}

static Value *count(Lower *L, const Value *x, const Arg *dims, Expr **n)
{
    *n = ex_int(L->ex, 1);
    bool all = dims->kind != ARG_EXPRS || dims->n == 0;
    for (int i = 0; i < x->rank && all; i++) *n = ex_mul(L->ex, *n, x->dim[i]);
    for (int i = 0; !all && i < dims->n; i++) {
        int64_t d = dims->es[i]->i < 0 ? dims->es[i]->i + x->rank : dims->es[i]->i;
        if (!ex_is_int(dims->es[i]) || d < 0 || d >= (x->rank ? x->rank : 1)) {
            lower_fail(L, 1, "dim out of range for rank %d", x->rank);
            return NULL;
        }
        if (x->rank) *n = ex_mul(L->ex, *n, x->dim[d]);
    }
    return (Value *)(uintptr_t)x;
}

/* ------------------------------------------------------------------ sums */

static Value *sum(Lower *L, Value *x, Arg dims, Arg keep)
{
    return x ? EMIT(L, sum_dim_IntList, arg_value(x), dims, keep) : NULL;
}
static Value *mean(Lower *L, Value *x, Arg dims, Arg keep)
{
    return x ? EMIT(L, mean_dim, arg_value(x), dims, keep) : NULL;
}

bool lower_sum(Lower *L)
{
    Value *x;
    TRY(cast_input(L, &x));
    return lower_return(L, in_dtype(L, sum(L, x, dims_of(L), keepdim(L))));
}

bool lower_mean(Lower *L)
{
    Value *x;
    TRY(cast_input(L, &x));
    if (!dtype_is_float(x->dtype)) return lower_fail(L, 0, "mean of %s: expected a float dtype", dtype_name(x->dtype));
    return lower_return(L, mean(L, x, dims_of(L), keepdim(L)));
}

static Value *without_nan(Lower *L, Value *x)
{
    Value *nan = EMIT(L, isnan, arg_value(x));
    return nan ? EMIT(L, where_self, arg_value(nan), arg_int(L->g, 0), arg_value(x)) : NULL;
}

bool lower_nansum(Lower *L)
{
    Value *x;
    TRY(cast_input(L, &x));
    return lower_return(L, sum(L, without_nan(L, x), dims_of(L), keepdim(L)));
}

bool lower_nanmean(Lower *L)
{
    Value *x;
    TRY(cast_input(L, &x));
    Value *s = sum(L, without_nan(L, x), dims_of(L), keepdim(L)), *nan = EMIT(L, isnan, arg_value(x));
    Value *ok = nan ? EMIT(L, logical_not, arg_value(nan)) : NULL, *n = sum(L, ok, dims_of(L), keepdim(L));
    n = n ? lower_cast(L, n, x->dtype) : NULL;
    return s && n && lower_return(L, EMIT(L, div_Tensor, arg_value(s), arg_value(n)));
}

/* Of a vector, the axis is 0 where it is the product of all elements, and -1 where the axis is named: beside two zeros
 * PyTorch's gradients of the two differ (grad_prod). */
bool lower_prod(Lower *L)
{
    Value *x;
    TRY(cast_input(L, &x));
    Arg dim = argument(L, "dim");
    if (dim.kind == ARG_EXPR && x->rank == 1 && ex_equals_int(dim.e, 0)) dim = arg_int(L->g, -1);
    if (dim.kind == ARG_EXPR) return lower_return(L, in_dtype(L, EMIT(L, prod_dim_int, arg_value(x), dim, keepdim(L))));
    Expr *n;
    TRY(count(L, x, &dim, &n));
    x = lower_reshape(L, x, 1, &n);
    return x &&
           lower_return(L, in_dtype(L, EMIT(L, prod_dim_int, arg_value(x), arg_int(L->g, 0), arg_bool(L->g, false))));
}

bool lower_extreme(Lower *L)
{
    return lower_return(L, lower_emit(L, L->op->id == OP_max ? OP_amax : OP_amin, 3,
                                      (Arg[]){L->arg[0], arg_ints(L->g, 0, NULL), arg_bool(L->g, false)}));
}

/* The axes of an extreme; all of them are named: without axes it is max(), whose gradient at NaN is another. */
static Arg axes_of(Lower *L, const Value *x)
{
    Arg d = dims_of(L);
    int64_t every[MAX_RANK];
    for (int i = 0; i < x->rank; i++) every[i] = i;
    return d.kind == ARG_NONE || !d.n ? arg_ints(L->g, x->rank, every) : d;
}

bool lower_amax(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    return lower_return(L, lower_emit(L, L->op->id, 3, (Arg[]){v(x), axes_of(L, x), L->arg[2]}));
}

bool lower_aminmax(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    Arg d = axes_of(L, x), k = keepdim(L);
    Value *lo = EMIT(L, amin, L->arg[0], d, k), *hi = EMIT(L, amax, L->arg[0], d, k);
    return lo && hi && lower_return_values(L, 2, (Value *[]){lo, hi});
}

static Value *truth(Lower *L, bool all, Value *x, Arg dim, Arg keep)
{
    return x ? lower_emit(L, all ? OP_all_dim : OP_any_dim, 3, (Arg[]){arg_value(x), dim, keep}) : NULL;
}

bool lower_truth_all(Lower *L)
{
    Value *x;
    Expr *n;
    Arg none = arg_none();
    TRY(want(L, &x) && count(L, x, &none, &n));
    return lower_return(L, truth(L, L->op->id == OP_all || L->op->id == OP_is_all_true, lower_reshape(L, x, 1, &n),
                                 arg_int(L->g, 0), arg_bool(L->g, false)));
}

bool lower_any_dims(Lower *L)
{
    Value *x;
    bool set[MAX_RANK] = {false}, keep;
    const Arg *a = &L->arg[1];
    TRY(want(L, &x) && lower_const_bool(L, 2, &keep));
    bool all = a->kind != ARG_EXPRS; /* an empty list reduces nothing */
    for (int i = 0; !all && i < a->n; i++) {
        int64_t d = a->es[i]->i < 0 ? a->es[i]->i + x->rank : a->es[i]->i;
        if (!ex_is_int(a->es[i]) || d < (x->rank ? 0 : -1) || d >= (x->rank ? x->rank : 1))
            return lower_fail(L, 1, "dim out of range for rank %d", x->rank);
        if (x->rank) set[d] = true;
    }
    for (int i = x->rank - 1; i >= 0; i--) /* from the back, so that the dims before keep their numbers */
        if (all || set[i]) TRY(x = truth(L, L->op->id == OP_all_dims, x, arg_int(L->g, i), arg_bool(L->g, keep)));
    if (x->dtype != DT_U8) return lower_return(L, lower_cast(L, x, DT_BOOL));
    return lower_return(L, x == lower_value(L, 0) ? lower_cast(L, lower_cast(L, x, DT_BOOL), DT_U8) : x);
}

bool lower_count_nonzero(Lower *L)
{
    Value *x = EMIT(L, ne_Tensor, L->arg[0], arg_int(L->g, 0));
    return lower_return(L, sum(L, x, dims_of(L), arg_bool(L->g, false)));
}

bool lower_logsumexp_alias(Lower *L) { return lower_return(L, EMIT(L, logsumexp, L->arg[0], L->arg[1], L->arg[2])); }

/* ------------------------------------------------------------------ variance */

/* correction: as given, or from `unbiased`, or 1 */
static Arg correction(Lower *L)
{
    Arg c = argument(L, "correction"), u = argument(L, "unbiased");
    if (c.kind == ARG_EXPR) return c;
    if (u.kind == ARG_EXPR && ex_is_const(u.e)) return arg_int(L->g, u.e->i != 0);
    return arg_int(L->g, 1);
}

static Value *about_mean(Lower *L, OpId op)
{
    Value *x = lower_value(L, 0);
    if (x && (dtype_is_float(x->dtype) || dtype_is_complex(x->dtype)))
        return lower_emit(L, op, 4, (Arg[]){L->arg[0], dims_of(L), correction(L), keepdim(L)});
    lower_fail(L, 0, "%s, expected floats or complex numbers", x ? dtype_name(x->dtype) : "no tensor");
    return NULL;
}

static Value *variance(Lower *L) { return about_mean(L, OP_var_correction); }

/* An op of its own: where it is 0 its gradient is, too, and not that of a square root. */
static Value *deviation(Lower *L) { return about_mean(L, OP_std_correction); }

bool lower_var(Lower *L) { return lower_return(L, variance(L)); }
bool lower_std(Lower *L) { return lower_return(L, deviation(L)); }

bool lower_var_mean(Lower *L)
{
    Value *x;
    OpId id = L->op->id;
    bool std = id == OP_std_mean || id == OP_std_mean_dim || id == OP_std_mean_correction;
    TRY(want(L, &x));
    Value *v = std ? deviation(L) : variance(L), *m = mean(L, x, dims_of(L), keepdim(L));
    return v && m && lower_return_values(L, 2, (Value *[]){v, m});
}

/* ------------------------------------------------------------------ norms of vectors */

/* Floats or complex numbers, in the dtype argument's type, which is the same kind and not narrower. */
static bool norm_input(Lower *L, Value **x)
{
    Arg t = argument(L, "dtype");
    TRY(want(L, x));
    DType from = (*x)->dtype;
    bool complex = dtype_is_complex(from);
    if (!complex && !dtype_is_float(from))
        return lower_fail(L, 0, "norm of %s: expected a float dtype", dtype_name(from));
    if (t.kind != ARG_DTYPE) return true;
    if (dtype_is_complex(t.dtype) != complex || dtype_promote(from, t.dtype) != t.dtype)
        return lower_fail(L, op_param(L->op, "dtype"), "%s, expected a %s dtype that holds all of %s",
                          dtype_name(t.dtype), complex ? "complex" : "float", dtype_name(from));
    return (*x = lower_cast(L, *x, t.dtype)) != NULL;
}

bool lower_vector_norm(Lower *L)
{
    Value *x;
    TRY(norm_input(L, &x));
    return lower_return(L, EMIT(L, linalg_vector_norm, arg_value(x), L->arg[1], dims_of(L), keepdim(L)));
}

bool lower_norm(Lower *L)
{
    Value *x;
    TRY(norm_input(L, &x));
    Arg p = argument(L, "p"), d = dims_of(L);
    return lower_return(
        L, EMIT(L, linalg_vector_norm, arg_value(x), p.kind == ARG_EXPR ? p : arg_int(L->g, 2), d, keepdim(L)));
}

/* The largest or smallest along dim d, which stays; the largest of no norms is 0. */
static Value *extreme(Lower *L, Value *x, bool largest, int d)
{
    Arg over = arg_ints(L->g, 1, (int64_t[]){d}), keep = arg_bool(L->g, true);
    if (!x) return NULL;
    if (largest && ex_equals_int(x->dim[d], 0)) return sum(L, x, over, keep);
    return lower_emit(L, largest ? OP_amax : OP_amin, 3, (Arg[]){arg_value(x), over, keep});
}

/* Norms of the matrices in dims a (rows) and b (columns); p NaN: the sum of the singular values.
 * Dims stay, with size 1. */
static Value *matrix_norm(Lower *L, Value *x, double p, int a, int b)
{
    Arg keep = arg_bool(L->g, true);
    bool largest = p != p || p > 0;
    if (fabs(p) == 1 || isinf(p)) { /* the largest sum over a column, or a row */
        int over = isinf(p) ? b : a;
        x = EMIT(L, abs, arg_value(x));
        x = sum(L, x, arg_ints(L->g, 1, (int64_t[]){over}), keep);
        return extreme(L, x, largest, over == a ? b : a);
    }
    if (p == p && fabs(p) != 2) {
        lower_fail(L, 1, "%g is not an order of a matrix norm", p);
        return NULL;
    }
    int perm[MAX_RANK], n = 0;
    Expr *dim[MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        dim[i] = i == a || i == b ? ex_int(L->ex, 1) : x->dim[i];
        if (i != a && i != b) perm[n++] = i;
    }
    perm[n++] = a;
    perm[n++] = b;
    Value *s = lower_permute(L, x, perm);
    s = s ? EMIT(L, linalg_svdvals, arg_value(s)) : NULL;
    Arg last = arg_ints(L->g, 1, (int64_t[]){-1});
    if (p != p) s = sum(L, s, last, keep);
    else s = extreme(L, s, largest, x->rank - 2);
    return lower_reshape(L, s, x->rank, dim);
}

/* linalg_norm and linalg_matrix_norm: of vectors, or of matrices when an order is given with two dims (or none for
 * a matrix). */
bool lower_linalg_norm(Lower *L)
{
    Value *x;
    bool keep, set[MAX_RANK] = {false};
    TRY(norm_input(L, &x) && lower_const_bool(L, 3, &keep));
    const Arg *o = &L->arg[1], *d = &L->arg[2];
    int given = d->kind == ARG_EXPRS ? d->n : 0, n = given ? given : x->rank, dim[MAX_RANK];
    const char *word = o->kind == ARG_STR ? o->s : "";
    bool frobenius = !strcmp(word, "fro"), nuclear = !strcmp(word, "nuc"), number = o->kind == ARG_EXPR;
    if (*word && !frobenius && !nuclear) return lower_fail(L, 1, "'%s', expected 'fro', 'nuc' or a number", word);
    if (frobenius || (!number && !nuclear) || (number && n == 1))
        return lower_return(L,
                            EMIT(L, linalg_vector_norm, arg_value(x), number ? *o : arg_int(L->g, 2), *d, L->arg[3]));
    if (n != 2) return lower_fail(L, 2, "%d dims, expected 1 or 2", n);
    for (int i = 0; i < 2; i++) {
        int64_t k = given ? d->es[i]->i : i;
        dim[i] = (int)(k < 0 ? k + x->rank : k);
        if (dim[i] < 0 || dim[i] >= x->rank || set[dim[i]])
            return lower_fail(L, 2, "dim %lld for rank %d", (long long)k, x->rank);
        set[dim[i]] = true;
    }
    if (number && !ex_is_const(o->e)) return lower_fail(L, 1, "must be constant");
    Value *y = matrix_norm(L, x, nuclear ? NAN : ex_number(o->e), dim[0], dim[1]);
    Expr *left[MAX_RANK];
    int m = 0;
    for (int i = 0; i < x->rank; i++)
        if (!set[i]) left[m++] = x->dim[i];
    return lower_return(L, keep ? y : lower_reshape(L, y, m, left));
}

bool lower_dist(Lower *L)
{
    Promote p = {DT_NONE, DT_NONE, DT_NONE};
    Value *a = lower_value(L, 0), *b = lower_value(L, 1);
    if (!a || !b) return lower_fail(L, 0, "expected tensors");
    promote_value(&p, a);
    promote_value(&p, b);
    DType t = promote_result(&p);
    if (!dtype_is_float(t) && !dtype_is_complex(t))
        return lower_fail(L, 0, "distance of %s: expected a float dtype", dtype_name(t));
    a = lower_cast(L, a, t);
    b = lower_cast(L, b, t);
    a = a && b ? EMIT(L, sub_Tensor, arg_value(a), arg_value(b)) : NULL;
    return a && lower_return(L, EMIT(L, linalg_vector_norm, arg_value(a), L->arg[2]));
}

bool lower_cdist_alias(Lower *L)
{
    return lower_return(
        L, EMIT(L, cdist, L->arg[0], L->arg[1], L->op->id == OP_cdist_forward ? L->arg[2] : arg_float(L->g, 2)));
}

bool lower_trace(Lower *L)
{
    Value *d = EMIT(L, diagonal, L->arg[0], arg_int(L->g, 0), arg_int(L->g, 0), arg_int(L->g, 1));
    return lower_return(L, sum(L, d, arg_none(), arg_bool(L->g, false)));
}

/* x as long as other along the axis `from_end` (1: the last), where it has an element or no axis. */
static Value *as_long_as(Lower *L, Value *x, const Value *other, int from_end)
{
    int rank = x->rank > from_end ? x->rank : from_end, at = rank - from_end, more = rank - x->rank;
    Expr *dim[MAX_RANK];
    for (int i = 0; i < rank; i++) dim[i] = i < more ? ex_int(L->ex, 1) : x->dim[i - more];
    if (other->rank < from_end || (!more && !ex_equals_int(dim[at], 1))) return x;
    dim[at] = other->dim[other->rank - from_end];
    return EMIT(L, expand, v(x), arg_exprs(L->g, rank, dim));
}

/* max(n, least), whose gradient is n's wherever n is: PyTorch clamps in place, unseen by autograd. A rule makes it a
 * clamp once gradients are built. */
static Value *raised(Lower *L, Value *n, Arg least)
{
    Value *low = AS(L, lt_Scalar, v(n), least), *gap = AS(L, detach, v(AS(L, sub_Tensor, least, v(n))));
    Value *high = AS(L, add_Tensor, v(n), v(gap));
    return AS(L, where_self, v(low), v(high), v(n));
}

/* sum(a / max(|a|, eps) * b / max(|b|, eps)): products of what is not divided yet would overflow in half types. */
bool lower_cosine_similarity(Lower *L)
{
    int d;
    Value *x[2];
    TRY(lower_two(L, 0, 1, &x[0], &x[1]));
    int rank = x[0]->rank > x[1]->rank ? x[0]->rank : x[1]->rank;
    TRY(lower_dim(L, 2, rank, &d));
    Arg dim = arg_ints(L->g, 1, (int64_t[]){d - rank}), keep = arg_bool(L->g, true);
    for (int i = 0; i < 2; i++) {
        Value *wide = rank ? as_long_as(L, x[i], x[!i], rank - d) : x[i];
        Value *norm = AS(L, linalg_vector_norm, v(wide), arg_int(L->g, 2), dim, keep);
        x[i] = AS(L, div_Tensor, v(wide), v(raised(L, norm, L->arg[3])));
        TRY(x[i]);
    }
    Value *y = AS(L, mul_Tensor, v(x[0]), v(x[1]));
    return y && lower_return(L, sum(L, y, dim, arg_bool(L->g, false)));
}

bool lower_pairwise_distance(Lower *L)
{
    Value *d = EMIT(L, sub_Tensor, L->arg[0], L->arg[1]);
    d = d ? EMIT(L, add_Tensor, arg_value(d), L->arg[3]) : NULL;
    return d && lower_return(L, EMIT(L, linalg_vector_norm, arg_value(d), L->arg[2], arg_ints(L->g, 1, (int64_t[]){-1}),
                                     L->arg[4]));
}

/* ------------------------------------------------------------------ scans */

bool lower_scan(Lower *L)
{
    Value *x;
    TRY(cast_input(L, &x));
    return lower_return(L, in_dtype(L, lower_emit(L, L->op->id, 2, (Arg[]){arg_value(x), L->arg[1]})));
}

static Value *part(Lower *L, Value *x, int d, int64_t from, int64_t cut)
{
    Expr *end = ex_sub(L->ex, x->dim[d], ex_int(L->ex, cut));
    return EMIT(L, slice_Tensor, arg_value(x), arg_int(L->g, d), arg_int(L->g, from), arg_expr(end), arg_int(L->g, 1));
}

bool lower_diff(Lower *L)
{
    Value *x;
    int d;
    int64_t n;
    TRY(want(L, &x) && lower_dim(L, 2, x->rank, &d) && lower_const_int(L, 1, &n));
    if (n < 0 || n > 1000) return lower_fail(L, 1, "found %lld, supported are 0 to 1000", (long long)n);
    Value *list[3];
    int m = 0;
    if (!n) return lower_return(L, x); /* as ATen: without what would be put before and after */
    if (lower_value(L, 3)) list[m++] = lower_value(L, 3);
    list[m++] = x;
    if (lower_value(L, 4)) list[m++] = lower_value(L, 4);
    if (m > 1) TRY((x = EMIT(L, cat, arg_values(L->g, m, list), arg_int(L->g, d))));
    if (ex_is_int(x->dim[d]) && n > x->dim[d]->i) n = x->dim[d]->i; /* no more is left */
    for (; x && n > 0; n--) {
        Value *a = part(L, x, d, 1, 0), *b = part(L, x, d, 0, 1);
        x = a && b ? lower_emit(L, x->dtype == DT_BOOL ? OP_logical_xor : OP_sub_Tensor, 2,
                                (Arg[]){arg_value(a), arg_value(b)})
                   : NULL;
    }
    return lower_return(L, x);
}

/* ------------------------------------------------------------------ softmax */

static bool softmax(Lower *L, OpId op, Arg dtype)
{
    Value *x;
    TRY(want(L, &x));
    if (dtype.kind == ARG_DTYPE) TRY(x = lower_cast(L, x, dtype.dtype));
    if (!dtype_is_float(x->dtype)) TRY(x = lower_cast(L, x, DT_F32));
    return lower_return(L, lower_emit(L, op, 2, (Arg[]){arg_value(x), L->arg[1]}));
}

bool lower_softmax(Lower *L) { return softmax(L, OP_softmax_int, argument(L, "dtype")); }
bool lower_log_softmax(Lower *L) { return softmax(L, OP_log_softmax_int, argument(L, "dtype")); }
bool lower_keep_safe(Lower *L) { return softmax(L, OP_safe_softmax, argument(L, "dtype")); }
bool lower_softmax_alias(Lower *L)
{
    return softmax(L, L->op->id == OP_special_softmax ? OP_softmax_int : OP_log_softmax_int, argument(L, "dtype"));
}

bool lower_softmax_half(Lower *L)
{
    bool to_float;
    TRY(lower_const_bool(L, 2, &to_float));
    return softmax(L, L->op->id == OP__softmax ? OP_softmax_int : OP_log_softmax_int,
                   to_float ? arg_dtype(DT_F32) : arg_none());
}

/* What comes back through y = softmax(x): y (dy - sum(y dy)); through y = log_softmax(x): dy - exp(y) sum(dy).
 * Computed in float32 for half types, as ATen does. */
bool lower_softmax_backward(Lower *L)
{
    Value *dy, *y = lower_value(L, 1);
    TRY(want(L, &dy));
    if (!y) return lower_fail(L, 1, "expected a tensor");
    bool logarithm = L->op->id == OP__log_softmax_backward_data;
    Arg to = argument(L, "input_dtype"), keep = arg_bool(L->g, true),
        dim = y->rank ? arg_exprs(L->g, 1, (Expr *[]){L->arg[2].e}) : arg_exprs(L->g, 0, NULL);
    DType t = dy->dtype == DT_F64 || y->dtype == DT_F64 ? DT_F64 : DT_F32;
    TRY(dy = lower_cast(L, dy, t));
    TRY(y = lower_cast(L, y, t));
    Value *part = logarithm ? dy : EMIT(L, mul_Tensor, arg_value(dy), arg_value(y));
    Value *sum = part ? EMIT(L, sum_dim_IntList, arg_value(part), dim, keep) : NULL,
          *weight = logarithm ? EMIT(L, exp, arg_value(y)) : y;
    Value *mean = sum && weight ? EMIT(L, mul_Tensor, arg_value(weight), arg_value(sum)) : NULL;
    Value *dx = mean ? EMIT(L, sub_Tensor, arg_value(part), arg_value(mean)) : NULL;
    return dx && lower_return(L, lower_cast(L, dx, to.kind == ARG_DTYPE ? to.dtype : t));
}

/* ------------------------------------------------------------------ norms */

/* Operands in one dtype: under autocast a float32 weight meets a bfloat16 input (ATen computes in float and rounds to
 * the input's). */
static bool norm(Lower *L, OpId op, int n, Arg *arg, int first, int last)
{
    Value *x = arg[0].v;
    for (int i = first; i <= last; i++)
        if (arg[i].kind == ARG_VALUE && arg[i].v->dtype != x->dtype) {
            Value *v = lower_cast(L, arg[i].v, x->dtype);
            TRY(v);
            arg[i] = arg_value(v);
        }
    return lower_return(L, lower_emit(L, op, n, arg));
}

bool lower_layer_norm(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    return norm(L, OP_layer_norm, 5, (Arg[]){L->arg[0], L->arg[1], L->arg[2], L->arg[3], L->arg[4]}, 2, 3);
}

/* mean and 1/sqrt(var + eps) are results, too; they are made where somebody uses them */
bool lower_native_layer_norm(Lower *L)
{
    Value *x, *y;
    TRY(lower_layer_norm(L) && want(L, &x));
    y = L->result.v;
    int n = L->arg[1].n;
    int64_t dims[MAX_RANK];
    for (int i = 0; i < n; i++) dims[i] = x->rank - n + i;
    Arg d = arg_ints(L->g, n, dims), keep = arg_bool(L->g, true);
    Value *m = mean(L, x, d, keep), *v = EMIT(L, var_correction, arg_value(x), d, arg_int(L->g, 0), keep);
    v = v ? EMIT(L, add_Tensor, arg_value(v), L->arg[4]) : NULL;
    v = v ? EMIT(L, rsqrt, arg_value(v)) : NULL;
    return m && v && lower_return_values(L, 3, (Value *[]){y, m, v});
}

/* The number that was added to the variance, where rstd is 1/sqrt(var + eps) of this very x as
 * lower_native_layer_norm makes it. */
static const Expr *epsilon_within(const Value *rstd, const Value *x)
{
    const Node *n = rstd->kind == V_NODE && rstd->def->op->id == OP_rsqrt ? rstd->def : NULL;
    n = n && n->arg[0].v->kind == V_NODE && n->arg[0].v->def->op->id == OP_add_Tensor ? n->arg[0].v->def : NULL;
    if (!n || n->arg[0].kind != ARG_VALUE || n->arg[1].kind != ARG_EXPR || n->arg[0].v->kind != V_NODE) return NULL;
    const Node *var = n->arg[0].v->def;
    return var->op->id == OP_var_correction && var->arg[0].v == x ? n->arg[1].e : NULL;
}

/* (grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask): one row where the statistics are the
 * input's, else dx = (g - mean(g) - h mean(g h)) rstd with h = (x - mean) rstd and g = dy w. */
bool lower_native_layer_norm_backward(Lower *L)
{
    Value *dy = lower_value(L, 0), *x = lower_value(L, 1), *m = lower_value(L, 3), *rstd = lower_value(L, 4),
          *w = lower_value(L, 5), *g = dy;
    if (!dy || !x || !m || !rstd) return lower_fail(L, 0, "expected tensors");
    if (L->arg[2].n > x->rank) return lower_fail(L, 2, "%d sizes for rank %d", L->arg[2].n, x->rank);
    const Expr *eps = epsilon_within(rstd, x);
    if (w && eps && w->dtype == x->dtype) {
        Value *dx = EMIT(L, norm_backward, arg_value(dy), arg_value(x), L->arg[2], arg_value(w),
                         arg_expr((Expr *)(uintptr_t)eps), arg_bool(L->g, false));
        return dx && lower_return_values(L, 3, (Value *[]){dx, dx->def->out[1], dx->def->out[2]});
    }
    DType t = dtype_size(x->dtype) == 2 ? DT_F32 : x->dtype; /* statistics of half types are float */
    int n = L->arg[2].n;
    int64_t last[MAX_RANK], first[MAX_RANK];
    for (int i = 0; i < n; i++) last[i] = x->rank - n + i;
    for (int i = 0; i < x->rank - n; i++) first[i] = i;
    Arg dims = arg_ints(L->g, n, last), lead = arg_ints(L->g, x->rank - n, first), keep = arg_bool(L->g, true),
        drop = arg_bool(L->g, false);
    TRY((dy = lower_cast(L, dy, t)) && (m = lower_cast(L, m, t)) && (rstd = lower_cast(L, rstd, t)));
    Value *wide = lower_cast(L, x, t), *h = wide ? EMIT(L, sub_Tensor, arg_value(wide), arg_value(m)) : NULL;
    h = h ? EMIT(L, mul_Tensor, arg_value(h), arg_value(rstd)) : NULL;
    if (w && h) w = lower_cast(L, w, t);
    g = !h ? NULL : w ? EMIT(L, mul_Tensor, arg_value(dy), arg_value(w)) : dy;
    Value *gh = g ? EMIT(L, mul_Tensor, arg_value(g), arg_value(h)) : NULL, *along = mean(L, gh, dims, keep),
          *all = along ? mean(L, g, dims, keep) : NULL;
    along = all ? EMIT(L, mul_Tensor, arg_value(h), arg_value(along)) : NULL;
    Value *dx = along ? EMIT(L, sub_Tensor, arg_value(g), arg_value(all)) : NULL;
    dx = dx ? EMIT(L, sub_Tensor, arg_value(dx), arg_value(along)) : NULL;
    dx = dx ? EMIT(L, mul_Tensor, arg_value(dx), arg_value(rstd)) : NULL;
    dx = dx ? lower_cast(L, dx, x->dtype) : NULL;
    Value *dw = dx ? EMIT(L, mul_Tensor, arg_value(dy), arg_value(h)) : NULL, *db = dy;
    if (dw && x->rank > n) {
        dw = sum(L, dw, lead, drop);
        db = dw ? sum(L, db, lead, drop) : NULL;
    }
    dw = dw && db ? lower_cast(L, dw, x->dtype) : NULL;
    db = dw ? lower_cast(L, db, x->dtype) : NULL;
    return db && lower_return_values(L, 3, (Value *[]){dx, dw, db});
}

bool lower_rms_norm(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    Arg eps = L->arg[3].kind == ARG_EXPR ? L->arg[3] : arg_float(L->g, dtype_epsilon(x->dtype));
    return norm(L, OP_rms_norm, 4, (Arg[]){L->arg[0], L->arg[1], L->arg[2], eps}, 2, 2);
}

bool lower_fused_rms_norm(Lower *L)
{
    Value *x, *y;
    TRY(lower_rms_norm(L) && want(L, &x));
    y = L->result.v;
    int n = L->arg[1].n;
    int64_t dims[MAX_RANK];
    for (int i = 0; i < n; i++) dims[i] = x->rank - n + i;
    Arg eps = L->arg[3].kind == ARG_EXPR ? L->arg[3] : arg_float(L->g, dtype_epsilon(x->dtype));
    Value *s = dtype_size(x->dtype) == 2 ? lower_cast(L, x, DT_F32) : x; /* statistics of half types are float */
    s = s ? EMIT(L, square, arg_value(s)) : NULL;
    s = mean(L, s, arg_ints(L->g, n, dims), arg_bool(L->g, true));
    s = s ? EMIT(L, add_Tensor, arg_value(s), eps) : NULL;
    s = s ? EMIT(L, rsqrt, arg_value(s)) : NULL;
    return s && lower_return_values(L, 2, (Value *[]){y, s});
}

/* native_group_norm(x, weight, bias, N, C, HxW, group, eps) */
bool lower_native_group_norm(Lower *L)
{
    Value *x, *y;
    int64_t g;
    TRY(want(L, &x) && lower_const_int(L, 6, &g));
    y = EMIT(L, group_norm, L->arg[0], L->arg[6], L->arg[1], L->arg[2], L->arg[7]);
    TRY(y);
    Expr *groups = ex_int(L->ex, g),
         *dim[3] = {x->dim[0], groups, ex_floordiv(L->ex, ex_mul(L->ex, L->arg[4].e, L->arg[5].e), groups)};
    Value *flat = lower_reshape(L, x, 3, dim);
    Arg d = arg_ints(L->g, 1, (int64_t[]){2}), no = arg_bool(L->g, false);
    Value *m = mean(L, flat, d, no),
          *v = flat ? EMIT(L, var_correction, arg_value(flat), d, arg_int(L->g, 0), no) : NULL;
    v = v ? EMIT(L, add_Tensor, arg_value(v), L->arg[7]) : NULL;
    v = v ? EMIT(L, rsqrt, arg_value(v)) : NULL;
    return m && v && lower_return_values(L, 3, (Value *[]){y, m, v});
}

static bool in_training(Lower *L)
{
    Arg t = argument(L, "training");
    return t.kind == ARG_EXPR && ex_is_const(t.e) && t.e->i;
}

static Value *batch_norm(Lower *L, Arg eps)
{
    return EMIT(L, batch_norm, L->arg[0], L->arg[1], L->arg[2], L->arg[3], L->arg[4], arg_bool(L->g, false),
                arg_float(L->g, 0), eps, arg_bool(L->g, false));
}

bool lower_batch_norm(Lower *L)
{
    if (lower_is_none(L, 3) && lower_is_none(L, 4)) return lower_batch_statistics(L);
    if (!lower_value(L, 3) || !lower_value(L, 4))
        return fail(L->err, E_UNSUPPORTED, "batch norm with one running statistic of two");
    if (in_training(L)) return lower_batch_statistics(L);
    return lower_return(L, batch_norm(L, L->arg[7]));
}

/* The saved statistics are empty in evaluation. */
bool lower_native_batch_norm(Lower *L)
{
    int returns = L->op->schema->nreturns;
    if (in_training(L) && returns == 4)
        return fail(L->err, E_UNSUPPORTED, "cuDNN's batch norm in training mode; export the model on the CPU");
    if (in_training(L)) return lower_batch_statistics(L);
    Arg eps = argument(L, "eps"), e2 = argument(L, "epsilon");
    Value *y = batch_norm(L, eps.kind == ARG_EXPR ? eps : e2);
    Value *none = y ? EMIT(L, full, arg_ints(L->g, 1, (int64_t[]){0}), arg_int(L->g, 0), arg_dtype(y->dtype)) : NULL;
    return y && none &&
           lower_return_values(L, returns,
                               (Value *[]){y, none, none, returns == 5 ? lower_value(L, 3) : none, lower_value(L, 4)});
}

/* Without running statistics it is a group norm with one channel a group. */
/* Each channel as a row, where groups would have to be constant: the number of channels is a size. */
static Value *channels_as_rows(Lower *L, Value *x, Arg eps)
{
    Expr *pixels = ex_int(L->ex, 1), *dim[MAX_RANK], *along[MAX_RANK];
    for (int i = 2; i < x->rank; i++) pixels = ex_mul(L->ex, pixels, x->dim[i]);
    for (int i = 0; i < x->rank; i++) dim[i] = x->dim[i], along[i] = ex_int(L->ex, 1);
    along[1] = x->dim[1];
    Value *rows = lower_reshape(L, x, 3, (Expr *[]){x->dim[0], x->dim[1], pixels});
    rows = rows ? AS(L, layer_norm, arg_value(rows), arg_exprs(L->g, 1, &pixels), arg_none(), arg_none(), eps) : NULL;
    Value *y = rows ? lower_reshape(L, rows, x->rank, dim) : NULL;
    for (int k = 1; y && k <= 2; k++) {
        Value *of = lower_value(L, k);
        if (of && (of = lower_reshape(L, of, x->rank, along)))
            y = lower_as(L, k == 1 ? OP_mul_Tensor : OP_add_Tensor, 2, (Arg[]){arg_value(y), arg_value(of)});
        else if (!lower_is_none(L, k)) y = NULL;
    }
    return y;
}

bool lower_instance_norm(Lower *L)
{
    Value *x;
    bool use_input;
    TRY(want(L, &x) && lower_const_bool(L, 5, &use_input));
    if (!use_input) return lower_return(L, batch_norm(L, L->arg[7]));
    if (x->rank >= 2 && !ex_is_int(x->dim[1])) return lower_return(L, channels_as_rows(L, x, L->arg[7]));
    return lower_return(L, EMIT(L, group_norm, L->arg[0], arg_expr(x->dim[1]), L->arg[1], L->arg[2], L->arg[7]));
}

/* ------------------------------------------------------------------ order */

static Node *sorted(Lower *L)
{
    int at = op_param(L->op, "stable"), dim = op_param(L->op, "dim"), down = op_param(L->op, "descending");
    bool stable = false;
    if (at >= 0 && L->arg[at].kind != ARG_NONE && !lower_const_bool(L, at, &stable)) return NULL;
    return lower_emit_node(L, OP_sort, 4, (Arg[]){L->arg[0], L->arg[dim], L->arg[down], arg_bool(L->g, stable)});
}

bool lower_sort(Lower *L)
{
    Node *n = sorted(L);
    return n && lower_return_values(L, 2, n->out);
}

bool lower_argsort(Lower *L)
{
    Node *n = sorted(L);
    return n && lower_return(L, n->out[1]);
}

bool lower_msort(Lower *L)
{
    Node *n = lower_emit_node(L, OP_sort, 3, (Arg[]){L->arg[0], arg_int(L->g, 0), arg_bool(L->g, false)});
    return n && lower_return(L, n->out[0]);
}
