/* Reductions, scans, softmax and order in ONNX's words.
 *
 *     aten.cumprod(x, 1)   ->  ReduceProd(Where(triangle, x[..., None, :], 1))        ONNX has a running sum, and no
 *                              other
 */
#include <math.h>
#include <string.h>
#include "onnx/write/write_impl.h"

static Ref equals(Onnx *o, Ref a, double v) { return NODE(o, "Equal", DT_BOOL, a, like(o, a, v)); }
static Ref wide(Onnx *o, Ref x) { return x.t == DT_F16 || x.t == DT_BF16 ? cast(o, x, DT_F32) : x; }

/* Which axes, and does the result keep them? A list of none, and an absent one, are all. */
typedef struct Axes {
    int n;
    int64_t axis[MAX_RANK];
    bool keep;
} Axes;

static Axes axes_of(Onnx *o, const Node *n, int dim, int keep)
{
    Axes a = {.keep = keep >= 0 && arg_b(n, keep)};
    a.n = arg_axes(o, n, dim, arg_v(n, 0)->rank, a.axis);
    return a;
}

static Ref over(Onnx *o, const char *op, Ref x, const Axes *a) { return reduce(o, op, x, a->n, a->axis, a->keep); }
static Ref over_kept(Onnx *o, const char *op, Ref x, const Axes *a) { return reduce(o, op, x, a->n, a->axis, true); }

/* Takes the reduced axes away. */
static Ref drop(Onnx *o, Ref x, const Axes *a)
{
    return a->keep || !a->n ? x : NODE(o, "Squeeze", x.t, x, ints(o, a->n, a->axis));
}

/* ------------------------------------------------------------------ sums and extremes */

void out_reduce(Onnx *o, const Node *n, const char *op)
{
    DType t = n->out[0]->dtype;
    Axes a = axes_of(o, n, 1, 2);
    Ref x = cast(o, arg_ref(o, n, 0), t == DT_BF16 || t == DT_F16 ? DT_F32 : t);
    const Value *v = arg_v(n, 0);
    bool nothing = false;
    for (int i = 0; i < a.n; i++) nothing |= ex_equals_int(v->dim[a.axis[i]], 0);
    if (nothing && !strcmp(op, "ReduceMean"))
        give(o, n, 0, bin(o, "Div", over(o, "ReduceSum", x, &a), like(o, x, 0))); /* NaN; ONNX leaves it open */
    else give(o, n, 0, over(o, op, x, &a));
}

/* NaN anywhere makes the extreme NaN. */
static Ref extreme(Onnx *o, const char *op, Ref x, const Axes *a)
{
    Ref y = over(o, op, x, a);
    if (!dtype_is_float(x.t) || !a->n) return y;
    Ref bad = cast(o, NODE(o, "IsNaN", DT_BOOL, x), DT_I32);
    return where(o, cast(o, over(o, "ReduceMax", bad, a), DT_BOOL), like(o, x, NAN), y);
}

/* A constant number; 0 where it is none. */
static double constant_of(const Arg *a)
{
    if (a->kind == ARG_EXPR) return a->e->kind == EX_FLOAT ? a->e->f : 0;
    const Tensor *t = a->kind == ARG_VALUE && a->v->kind == V_WEIGHT ? a->v->data : NULL;
    return t && t->rank == 0 && dtype_is_float(t->dtype) ? tensor_get(t, 0) : 0;
}

/* Is v used as where(_, NaN, v), or compared with -inf, alone? Then the graph came out of a file of ours,
 * which says so itself. */
static bool guarded(const Onnx *o, const Value *v)
{
    int uses = 0;
    for (const Node *n = o->g->first; n; n = n->next)
        for (int i = 0; i < n->op->schema->nparams; i++) {
            if (n->arg[i].kind != ARG_VALUE || n->arg[i].v != v) continue;
            bool known = (n->op->id == OP_where_self && i == 2 && isnan(constant_of(&n->arg[1]))) ||
                         (n->op->id == OP_eq_Tensor && !i && constant_of(&n->arg[1]) == -INFINITY);
            if (!known) return false;
            uses++;
        }
    return uses > 0;
}

void out_extreme(Onnx *o, const Node *n, const char *op)
{
    Axes a = axes_of(o, n, 1, 2);
    Ref x = arg_ref(o, n, 0);
    give(o, n, 0, guarded(o, n->out[0]) ? over(o, op, x, &a) : extreme(o, op, x, &a));
}

/* For an argmax: NaN is above all (for argmin: below). */
static Ref nan_first(Onnx *o, Ref x, bool most)
{
    if (!dtype_is_float(x.t)) return x;
    Ref nan = NODE(o, "IsNaN", DT_BOOL, x), far = like(o, x, most ? INFINITY : -INFINITY),
        near = like(o, x, most ? 3.4028234663852886e38 : -3.4028234663852886e38);
    if (x.t == DT_F16 || x.t == DT_BF16) return nan_first(o, cast(o, x, DT_F32), most);
    Ref finite = bin(o, most ? "Min" : "Max", where(o, nan, like(o, x, 0), x),
                     near); /* an infinity must not win over NaN */
    return x.t == DT_F64 ? where(o, nan, far, x) : where(o, nan, far, finite);
}

static Ref arg_extreme(Onnx *o, Ref x, int64_t axis, bool keep, bool most)
{
    x = nan_first(o, x, most);
    attr_int(o, "axis", axis);
    attr_int(o, "keepdims", keep);
    return NODE(o, most ? "ArgMax" : "ArgMin", DT_I64, x);
}

void out_arg(Onnx *o, const Node *n, const char *text)
{
    const Value *v = arg_v(n, 0);
    bool keep = arg_b(n, 2), most = !strcmp(text, "max");
    Ref x = arg_ref(o, n, 0);
    if (given(n, 1) && v->rank) {
        give(o, n, 0, arg_extreme(o, x, arg_axis(o, n, 1, v->rank), keep, most));
        return;
    }
    Ref y = arg_extreme(o, flat(o, x), 0, true, most);
    give(o, n, 0, reshape(o, y, 1, (Expr *[]){ex_int(o->p, 1)}, n->out[0]->rank, n->out[0]->dim));
}

/* Values and their places. */
void out_extreme_pair(Onnx *o, const Node *n, const char *text)
{
    const Value *v = arg_v(n, 0);
    Ref x = arg_ref(o, n, 0);
    if (!v->rank) {
        give(o, n, 0, x);
        give(o, n, 1, integer(o, 0));
        return;
    }
    Axes a = {.n = 1, .axis = {arg_axis(o, n, 1, v->rank)}, .keep = arg_b(n, 2)};
    bool most = !strcmp(text, "max");
    give(o, n, 0, extreme(o, most ? "ReduceMax" : "ReduceMin", x, &a));
    give(o, n, 1, arg_extreme(o, x, a.axis[0], a.keep, most));
}

/* x as the dtype t would round it */
static Ref rounded_as(Onnx *o, Ref x, DType t) { return cast(o, cast(o, x, t), x.t); }

/* Where a range is of no width it is the data's, and one to each side where they are all equal. */
static void histogram_range(Onnx *o, Ref x, double min, double max, Ref *lo, Ref *hi)
{
    Ref one = like(o, x, 1);
    *lo = like(o, x, min);
    *hi = like(o, x, max);
    if (min != max) return;
    *lo = reduce(o, "ReduceMin", x, 1, (int64_t[]){0}, false);
    *hi = reduce(o, "ReduceMax", x, 1, (int64_t[]){0}, false);
    Ref flat_range = NODE(o, "Equal", DT_BOOL, *lo, *hi);
    *lo = where(o, flat_range, bin(o, "Sub", *lo, one), *lo);
    *hi = where(o, flat_range, bin(o, "Add", *hi, one), *hi);
}

/* Each element's bin, that of others one past the last; ones are added there. */
void out_histc(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    DType t = v->dtype;
    int64_t bins = arg_i(o, n, 1, 100);
    for (int i = 0; i < v->rank; i++)
        if (ex_equals_int(v->dim[i], 0)) {
            give(o, n, 0, NODE(o, "Expand", t, number(o, t, 0), INTS(o, bins)));
            return;
        }
    Ref x = flat(o, wide(o, arg_ref(o, n, 0))), lo, hi;
    histogram_range(o, x, arg_f(o, n, 2, 0), arg_f(o, n, 3, 0), &lo, &hi);
    lo = rounded_as(o, lo, t);
    hi = rounded_as(o, hi, t);
    Ref part = rounded_as(o, bin(o, "Sub", x, lo), t), count = rounded_as(o, like(o, x, (double)bins), t);
    Ref at = bin(o, "Div", rounded_as(o, bin(o, "Mul", part, count), t), rounded_as(o, bin(o, "Sub", hi, lo), t));
    at = NODE(o, "Min", x.t, rounded_as(o, at, t), like(o, x, (double)(bins - 1)));
    Ref out = NODE(o, "Or", DT_BOOL, NODE(o, "Less", DT_BOOL, x, lo), NODE(o, "Greater", DT_BOOL, x, hi));
    at = where(o, NODE(o, "Or", DT_BOOL, out, is_nan(o, x)), like(o, x, (double)bins), at);
    Ref none = NODE(o, "Expand", x.t, number(o, x.t, 0), INTS(o, bins + 1)),
        ones = NODE(o, "Expand", x.t, number(o, x.t, 1), NODE(o, "Shape", DT_I64, x));
    attr_int(o, "axis", 0);
    attr_str(o, "reduction", "add");
    Ref y = NODE(o, "ScatterElements", x.t, none, cast(o, at, DT_I64), ones);
    give(o, n, 0, slice(o, y, 0, INTS(o, 0), INTS(o, bins), 1));
}

void out_any_all(Onnx *o, const Node *n, const char *text)
{
    Axes a = axes_of(o, n, 1, 2);
    Ref x = arg_ref(o, n, 0);
    bool any = !strcmp(text, "any");
    Ref no = equals(o, x, 0), count = over(o, "ReduceSum", cast(o, any ? negated(o, no) : no, DT_I64), &a),
        none_there = equals(o, count, 0);
    give(o, n, 0, any ? negated(o, none_there) : none_there);
}

/* max + log(sum(exp(x - max))): TensorRT takes the sum of ReduceLogSumExp without the largest, which overflows. */
static Ref log_sum_exp(Onnx *o, Ref x, const Axes *a)
{
    Ref m = over_kept(o, "ReduceMax", x, a);
    m = where(o, NODE(o, "Less", DT_BOOL, un(o, "Abs", m), like(o, m, INFINITY)), m, like(o, m, 0));
    Ref s = un(o, "Log", over_kept(o, "ReduceSum", un(o, "Exp", bin(o, "Sub", x, m)), a));
    return drop(o, bin(o, "Add", s, m), a);
}

/* Of no elements it is minus infinity, and there is no largest. */
void out_logsumexp(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Axes a = axes_of(o, n, 1, 2);
    bool empty = false;
    for (int i = 0; i < a.n; i++) empty |= may_be_empty(o, arg_v(n, 0)->dim[a.axis[i]]);
    Ref x = wide(o, arg_ref(o, n, 0));
    give(o, n, 0, empty ? over(o, "ReduceLogSumExp", x, &a) : log_sum_exp(o, x, &a));
}

static Ref variance(Onnx *o, const Node *n)
{
    const Value *v = arg_v(n, 0);
    Axes a = axes_of(o, n, 1, 3);
    Ref x = wide(o, arg_ref(o, n, 0)), d = bin(o, "Sub", x, over_kept(o, "ReduceMean", x, &a)),
        s = over(o, "ReduceSum", bin(o, "Mul", d, d), &a);
    Expr *count = ex_int(o->p, 1);
    for (int i = 0; i < a.n; i++) count = ex_mul(o->p, count, v->dim[a.axis[i]]);
    double correction = arg_f(o, n, 2, 1);
    Ref free_ones = ex_is_int(count)
                        ? number(o, x.t, fmax(0, (double)count->i - correction))
                        : bin(o, "Max", bin(o, "Sub", size_scalar(o, count, x.t), number(o, x.t, correction)),
                              number(o, x.t, 0));
    return bin(o, "Div", s, free_ones);
}

void out_var(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    give(o, n, 0, variance(o, n));
}

void out_std(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    give(o, n, 0, un(o, "Sqrt", variance(o, n)));
}

/* (sum |x|^p)^(1/p) */
static Ref p_norm(Onnx *o, Ref x, double p, const Axes *a)
{
    Ref y = un(o, "Abs", x);
    if (isinf(p)) return extreme(o, p > 0 ? "ReduceMax" : "ReduceMin", y, a);
    if (p == 0) return over(o, "ReduceSum", cast(o, negated(o, equals(o, x, 0)), x.t), a);
    if (p == 1) return over(o, "ReduceSum", y, a);
    if (p == 2) return un(o, "Sqrt", over(o, "ReduceSum", bin(o, "Mul", x, x), a));
    return bin(o, "Pow", over(o, "ReduceSum", bin(o, "Pow", y, like(o, y, p)), a), like(o, y, 1 / p));
}

void out_vector_norm(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Axes a = axes_of(o, n, 2, 3);
    Ref x = wide(o, cast(o, arg_ref(o, n, 0), n->out[0]->dtype));
    give(o, n, 0, p_norm(o, x, arg_f(o, n, 1, 2), &a));
}

void out_cdist(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = n->out[0];
    Ref a = unsqueeze(o, wide(o, arg_ref(o, n, 0)), arg_v(n, 0)->rank - 1),
        b = unsqueeze(o, wide(o, arg_ref(o, n, 1)), arg_v(n, 1)->rank - 2);
    Axes last = {.n = 1, .axis = {v->rank}};
    give(o, n, 0, p_norm(o, bin(o, "Sub", a, b), arg_f(o, n, 2, 2), &last));
}

/* ------------------------------------------------------------------ scans */

void out_cumsum(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    DType t = n->out[0]->dtype;
    Ref x = cast(o, arg_ref(o, n, 0), t == DT_F16 || t == DT_BF16 ? DT_F32 : t);
    give(o, n, 0, v->rank ? NODE(o, "CumSum", x.t, x, integer(o, arg_axis(o, n, 1, v->rank))) : x);
}

/* (..., n) as (..., n, n) where row i holds the elements up to i, and `otherwise` after them; the scanned axis is
 * brought to the end. */
static Ref triangle(Onnx *o, Ref x, const Value *v, int axis, double otherwise, int64_t *perm)
{
    int k = 0;
    for (int i = 0; i < v->rank; i++)
        if (i != axis) perm[k++] = i;
    perm[k] = axis;
    Ref i = positions(o, size_of(o, v->dim[axis]));
    Ref upto = NODE(o, "LessOrEqual", DT_BOOL, unsqueeze(o, i, 0), unsqueeze(o, i, 1));
    return where(o, upto, unsqueeze(o, transpose(o, x, v->rank, perm), v->rank - 1), like(o, x, otherwise));
}

static Ref put_back(Onnx *o, Ref x, int rank, const int64_t *perm)
{
    int64_t back[MAX_RANK];
    for (int i = 0; i < rank; i++) back[perm[i]] = i;
    return transpose(o, x, rank, back);
}

/* The last place up to each where x is the running extreme y, which is in triangle's order of axes. */
static Ref last_place(Onnx *o, Ref x, Ref y, const Value *v, const int64_t *perm)
{
    Ref i = positions(o, size_of(o, v->dim[perm[v->rank - 1]])),
        row = unsqueeze(o, transpose(o, x, v->rank, perm), v->rank - 1), column = unsqueeze(o, y, v->rank);
    Ref same = NODE(o, "Equal", DT_BOOL, row, column);
    if (dtype_is_float(x.t))
        same = NODE(o, "Or", DT_BOOL, same,
                    NODE(o, "And", DT_BOOL, NODE(o, "IsNaN", DT_BOOL, row), NODE(o, "IsNaN", DT_BOOL, column)));
    Ref here = NODE(o, "And", DT_BOOL, same, NODE(o, "LessOrEqual", DT_BOOL, unsqueeze(o, i, 0), unsqueeze(o, i, 1)));
    int64_t last = v->rank;
    return reduce(o, "ReduceMax", where(o, here, unsqueeze(o, i, 0), integer(o, 0)), 1, &last, false);
}

static double lowest(DType t) { return dtype_is_float(t) ? -INFINITY : dtype_lowest(t); }
static double highest(DType t) { return dtype_is_float(t) ? INFINITY : dtype_highest(t); }

void out_scan(Onnx *o, const Node *n, const char *text)
{
    const Value *v = arg_v(n, 0);
    Ref x = wide(o, cast(o, arg_ref(o, n, 0), n->out[0]->dtype));
    bool pair = n->nout == 2, most = !strcmp(text, "max"), product = !strcmp(text, "prod");
    if (!v->rank) {
        give(o, n, 0, x);
        if (pair) give(o, n, 1, integer(o, 0));
        return;
    }
    int64_t perm[MAX_RANK];
    Axes last = {.n = 1, .axis = {v->rank}};
    Ref wide_x = triangle(o, x, v, arg_axis(o, n, 1, v->rank),
                          product         ? 1
                          : pair && !most ? highest(x.t)
                                          : lowest(x.t),
                          perm);
    Ref y = product ? over(o, "ReduceProd", wide_x, &last)
            : pair  ? extreme(o, most ? "ReduceMax" : "ReduceMin", wide_x, &last)
                    : log_sum_exp(o, wide_x, &last);
    Ref at = pair ? put_back(o, last_place(o, x, y, v, perm), v->rank, perm) : none();
    give(o, n, 0, put_back(o, y, v->rank, perm));
    if (pair) give(o, n, 1, at);
}

/* ------------------------------------------------------------------ softmax */

void out_softmax(Onnx *o, const Node *n, const char *op)
{
    const Value *v = arg_v(n, 0);
    DType t = n->out[0]->dtype;
    Ref x = cast(o, arg_ref(o, n, 0), t);
    if (!v->rank) x = flat(o, x);
    attr_int(o, "axis", arg_axis(o, n, 1, v->rank));
    Ref y = NODE(o, op, t, x);
    give(o, n, 0, v->rank ? y : NODE(o, "Reshape", t, y, ints(o, 0, NULL)));
}

/* Rows of -inf alone give 0. */
void out_safe_softmax(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    DType t = n->out[0]->dtype;
    Ref x = cast(o, arg_ref(o, n, 0), t);
    if (!v->rank) x = flat(o, x);
    int64_t axis = arg_axis(o, n, 1, v->rank);
    Ref dead = all_minus_infinity(o, x, axis, v->rank ? v->dim[axis] : ex_int(o->p, 1));
    attr_int(o, "axis", axis);
    Ref y = NODE(o, "Softmax", t, x);
    y = where(o, dead, like(o, y, 0), y);
    give(o, n, 0, v->rank ? y : NODE(o, "Reshape", t, y, ints(o, 0, NULL)));
}

/* ------------------------------------------------------------------ order */

static void top_k(Onnx *o, Ref x, Ref k, int64_t axis, bool most, Ref *out)
{
    attr_int(o, "axis", axis);
    attr_int(o, "largest", most);
    nodes_of(o, "TopK", 2, (DType[]){x.t, DT_I64}, out, 2, (Ref[]){x, k});
}

/* NaN is the greatest; ONNX says nothing about it: a key that puts it there, then the values by place. */
static void ordered(Onnx *o, Ref x, Ref k, int64_t axis, bool most, Ref *out)
{
    if (!dtype_is_float(x.t)) {
        top_k(o, x, k, axis, most, out);
        return;
    }
    Ref key = nan_first(o, x, true);
    top_k(o, key, k, axis, most, out);
    attr_int(o, "axis", axis);
    out[0] = NODE(o, "GatherElements", x.t, x, out[1]);
}

/* Of a sorted row the first elements alone are taken, as reading TopK makes it: TopK again, of which a reader asks
 * that there be so many. A Slice would take what there is. */
static bool out_first(Onnx *o, const Node *n, Ref x, int axis, bool most)
{
    const Node *part[2] = {NULL, NULL};
    Expr *count = NULL;
    Ref out[2];
    for (int i = 0; i < 2; i++) {
        Expr *taken = count;
        part[i] = front_of(o, n->out[i], axis, &taken);
        if (!part[i] && (o->broken || o->uses[n->out[i]->id])) return false;
        if (count && taken != count) return false;
        count = taken;
    }
    if (!count) return false;
    ordered(o, x, size_of(o, count), axis, most, out);
    for (int i = 0; i < 2; i++) {
        if (!part[i]) continue;
        o->asked[part[i]->out[0]->id] = true;
        give(o, part[i], 0, out[i]);
    }
    return true;
}

void out_sort(Onnx *o, const Node *n, const char *text)
{
    const Value *v = arg_v(n, 0);
    bool top = !strcmp(text, "topk"), most = top ? arg_b(n, 3) : arg_b(n, 2);
    Ref x = arg_ref(o, n, 0), out[2];
    if (!v->rank) x = flat(o, x);
    int axis = arg_axis(o, n, top ? 2 : 1, v->rank);
    if (!top && v->rank && out_first(o, n, x, axis, most)) return;
    Ref k = top ? size_of(o, arg_e(n, 1)) : v->rank ? size_of(o, v->dim[axis]) : INTS(o, 1);
    ordered(o, x, k, axis, most, out);
    for (int i = 0; i < 2; i++)
        give(o, n, i, v->rank ? out[i] : NODE(o, "Reshape", out[i].t, out[i], ints(o, 0, NULL)));
}

/* The element at place k of the sorted row, counted from 1; and where it was. */
static void pick(Onnx *o, const Node *n, Ref x, Ref k, int64_t axis, bool keep)
{
    Ref out[2];
    ordered(o, x, k, axis, false, out);
    for (int i = 0; i < 2 && i < n->nout; i++) {
        Ref y = slice(o, out[i], axis, INTS(o, -1), INTS(o, INT64_MAX), 1);
        give(o, n, i, keep ? y : squeeze(o, y, axis));
    }
}

void out_kthvalue(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    if (!v->rank) {
        give(o, n, 0, arg_ref(o, n, 0));
        give(o, n, 1, integer(o, 0));
        return;
    }
    pick(o, n, arg_ref(o, n, 0), size_of(o, arg_e(n, 1)), arg_axis(o, n, 2, v->rank), arg_b(n, 3));
}

/* The lower of the two in the middle; NaN where there is one. */
void out_median(Onnx *o, const Node *n, const char *text)
{
    const Value *v = arg_v(n, 0);
    bool along = n->nout == 2;
    Ref x = arg_ref(o, n, 0), count, out[2];
    int64_t axis = along ? arg_axis(o, n, 1, v->rank) : 0;
    Expr *size = ex_int(o->p, 1);
    for (int i = 0; i < v->rank; i++) size = !along || i == axis ? ex_mul(o->p, size, v->dim[i]) : size;
    if (ex_equals_int(size, 0)) {
        refuse(o, "of nothing");
        return;
    }
    if (!along || !v->rank) x = flat(o, x);
    bool keep = along && arg_b(n, 2) && v->rank, real = dtype_is_float(x.t);
    count = size_of(o, size);
    Ref nan = real ? NODE(o, "IsNaN", DT_BOOL, x) : none(), good = none();
    if (!strcmp(text, "nan") && real) { /* what is not NaN counts; where nothing is, the first */
        good = reduce(o, "ReduceSum", cast(o, negated(o, nan), DT_I64), 1, &axis, true);
        ordered(o, x, count, axis, false, out);
        Ref at = NODE(o, "Max", DT_I64, NODE(o, "Div", DT_I64, NODE(o, "Sub", DT_I64, good, INTS(o, 1)), INTS(o, 2)),
                      INTS(o, 0));
        for (int i = 0; i < n->nout; i++) {
            attr_int(o, "axis", axis);
            Ref y = NODE(o, "GatherElements", out[i].t, out[i], at);
            give(o, n, i, keep ? y : squeeze(o, y, axis));
        }
        return;
    }
    Expr *middle = ex_floordiv(o->p, ex_add(o->p, size, ex_int(o->p, 1)), ex_int(o->p, 2));
    Ref k = size_of(o, middle);
    if (!real) {
        pick(o, n, x, k, axis, keep);
        return;
    }
    ordered(o, x, k, axis, false, out);
    Ref some = cast(o, reduce(o, "ReduceMax", cast(o, nan, DT_I32), 1, &axis, true), DT_BOOL);
    Ref value = slice(o, out[0], axis, INTS(o, -1), INTS(o, INT64_MAX), 1),
        at = slice(o, out[1], axis, INTS(o, -1), INTS(o, INT64_MAX), 1);
    value = where(o, some, like(o, x, NAN), value);
    give(o, n, 0, keep ? value : squeeze(o, value, axis));
    if (!along) return;
    at = where(o, some, arg_extreme(o, x, axis, true, true), at);
    give(o, n, 1, keep ? at : squeeze(o, at, axis));
}

/* (grad_output, input, sizes, weight, eps, rms): with h = (x - mean) rstd and g = dy w,
 * dx = (g - mean(g) - h mean(g h)) rstd. */
void out_norm_backward(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 1);
    int axes = n->arg[2].n, lead = v->rank - axes;
    int64_t last[MAX_RANK], first[MAX_RANK];
    bool rms = n->arg[5].e->i;
    for (int i = 0; i < axes; i++) last[i] = lead + i;
    for (int i = 0; i < lead; i++) first[i] = i;
    Ref dy = wide(o, arg_ref(o, n, 0)), x = wide(o, arg_ref(o, n, 1)), g = bin(o, "Mul", dy, wide(o, arg_ref(o, n, 3)));
    if (!rms) x = bin(o, "Sub", x, reduce(o, "ReduceMean", x, axes, last, true));
    Ref var = reduce(o, "ReduceMean", bin(o, "Mul", x, x), axes, last, true);
    Ref rstd = un(o, "Reciprocal", un(o, "Sqrt", bin(o, "Add", var, like(o, var, arg_f(o, n, 4, 1e-5))))),
        h = bin(o, "Mul", x, rstd);
    Ref along = bin(o, "Mul", h, reduce(o, "ReduceMean", bin(o, "Mul", g, h), axes, last, true));
    if (!rms) g = bin(o, "Sub", g, reduce(o, "ReduceMean", g, axes, last, true));
    give(o, n, 0, bin(o, "Mul", bin(o, "Sub", g, along), rstd));
    give(o, n, 1, reduce(o, "ReduceSum", bin(o, "Mul", dy, h), lead, first, false));
    give(o, n, 2, lead ? reduce(o, "ReduceSum", dy, lead, first, false) : un(o, "Identity", dy));
}
