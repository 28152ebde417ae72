/* Joining, looking up and writing by index in ONNX's words.
 *
 *     x[:, i, j]        ->  GatherND(x with axes 1, 2 in front, [i, j] as pairs), transposed
 *     x[i, j] = y       ->  ScatterND
 */
#include <math.h>
#include <string.h>
#include "onnx/write/write_impl.h"

void out_cat(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = n->out[0];
    const Arg *a = &n->arg[0];
    Ref *part = arena_array(o->a, Ref, a->n + 1);
    int count = 0;
    if (!part) {
        out_of_memory(o);
        return;
    }
    for (int i = 0; i < a->n; i++) {
        if (a->vs[i]->rank == 1 && v->rank != 1) continue; /* PyTorch's empty list that fits anywhere */
        part[count++] = cast(o, ref(o, a->vs[i]), v->dtype);
    }
    int axis = arg_axis(o, n, 1, v->rank);
    if (count != 1) attr_int(o, "axis", axis);
    give(o, n, 0, count == 1 ? part[0] : node_of(o, "Concat", v->dtype, count, part));
}

static Ref gather(Onnx *o, Ref x, Ref at, int64_t axis)
{
    attr_int(o, "axis", axis);
    return NODE(o, "Gather", x.t, x, at);
}

void out_embedding(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    give(o, n, 0, gather(o, arg_ref(o, n, 0), index_of(o, arg_v(n, 1)), 0));
}

void out_index_select(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0), *i = arg_v(n, 2);
    Ref x = arg_ref(o, n, 0), at = index_of(o, i);
    if (!v->rank) x = flat(o, x);
    if (!i->rank) at = flat(o, at);
    Ref y = gather(o, x, at, arg_axis(o, n, 1, v->rank));
    give(o, n, 0, v->rank ? y : NODE(o, "Reshape", y.t, y, ints(o, 0, NULL)));
}

/* 0-d tensors as lists of one; back again with back(). */
static Ref at_least_1d(Onnx *o, Ref x, int rank) { return rank ? x : flat(o, x); }
static Ref back(Onnx *o, Ref x, int rank) { return rank ? x : NODE(o, "Reshape", x.t, x, ints(o, 0, NULL)); }

void out_gather(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0), *i = arg_v(n, 2);
    Ref x = at_least_1d(o, arg_ref(o, n, 0), v->rank), at = at_least_1d(o, index_of(o, i), i->rank);
    attr_int(o, "axis", arg_axis(o, n, 1, v->rank));
    give(o, n, 0, back(o, NODE(o, "GatherElements", x.t, x, at), i->rank));
}

/* ------------------------------------------------------------------ lists of indices */

typedef struct Indexing {
    int count, first, rank; /* indexed axes, the first of them, axes of the tensor */
    bool together;          /* next to each other: their result takes their place */
    int64_t perm[MAX_RANK]; /* indexed axes in front */
    int common_rank;
    Expr *common[MAX_RANK]; /* sizes of the indices broadcast together */
    Ref place[MAX_RANK];
    const Value *index[MAX_RANK];
} Indexing;

static void broadcast_into(int *rank, Expr **dim, const Value *v)
{
    Expr *out[MAX_RANK];
    int r = v->rank > *rank ? v->rank : *rank;
    for (int i = 1; i <= r; i++) {
        Expr *a = i <= *rank ? dim[*rank - i] : NULL, *b = i <= v->rank ? v->dim[v->rank - i] : NULL;
        out[r - i] = !a || (b && ex_equals_int(a, 1)) ? b : a;
    }
    *rank = r;
    memcpy(dim, out, (size_t)r * sizeof *dim);
}

static bool read_indices(Onnx *o, const Node *n, const Value *x, Indexing *ix)
{
    const Arg *list = &n->arg[1];
    int last = -1, k = 0;
    *ix = (Indexing){.rank = x->rank, .first = -1, .together = true};
    for (int i = 0; i < list->n && i < x->rank; i++) {
        if (!list->vs[i]) continue;
        if (list->vs[i]->dtype == DT_BOOL || list->vs[i]->dtype == DT_U8) {
            refuse(o, "indexed by a mask");
            return false;
        }
        if (ix->first < 0) ix->first = i;
        ix->together &= last < 0 || last == i - 1;
        last = i;
        ix->index[ix->count] = list->vs[i];
        ix->perm[ix->count++] = i;
        broadcast_into(&ix->common_rank, ix->common, list->vs[i]);
    }
    k = ix->count;
    for (int i = 0; i < x->rank; i++)
        if (i >= list->n || !list->vs[i]) ix->perm[k++] = i;
    for (int i = 0; i < ix->count; i++) ix->place[i] = cast(o, index_of(o, ix->index[i]), DT_I64);
    return true;
}

/* The tensor whose last axis the indices are, one after the other, as import spells GatherND;
 * NULL when they are not. */
static Value *tuples_of(const Indexing *ix)
{
    Value *all = NULL;
    for (int i = 0; i < ix->count; i++) {
        const Value *v = plain_index(ix->index[i]);
        const Node *n = v->kind == V_NODE && v->def->op->id == OP_select_int ? v->def : NULL;
        Value *from = n ? arg_v(n, 0) : NULL;
        const Expr *axis = n ? arg_e(n, 1) : NULL, *at = n ? arg_e(n, 2) : NULL;
        bool last = from && (ex_equals_int(axis, from->rank - 1) || ex_equals_int(axis, -1)) && ex_equals_int(at, i) &&
                    from->dtype == DT_I64;
        if (!last || (all && all != from) || !ex_equals_int(from->dim[from->rank - 1], ix->count) ||
            ix->common_rank != from->rank - 1)
            return NULL;
        all = from;
    }
    return all;
}

/* The indices as one tensor of tuples: common sizes, then one axis of count. */
static Ref tuples(Onnx *o, const Indexing *ix)
{
    Ref part[MAX_RANK];
    Value *whole = tuples_of(ix);
    if (whole) return ref(o, whole);
    for (int i = 0; i < ix->count; i++) {
        const Value *v = ix->index[i];
        part[i] = unsqueeze(o, expand(o, ix->place[i], v->rank, v->dim, ix->common_rank, ix->common), ix->common_rank);
    }
    if (ix->count == 1) return part[0];
    attr_int(o, "axis", ix->common_rank);
    return node_of(o, "Concat", DT_I64, ix->count, part);
}

/* The order of axes that puts those of the indices to their place: from common, rest to the result's. */
static int place_order(const Indexing *ix, int64_t *perm)
{
    int front = ix->together ? ix->first : 0, k = 0, rest = ix->rank - ix->count;
    for (int i = 0; i < front; i++) perm[k++] = ix->common_rank + i;
    for (int i = 0; i < ix->common_rank; i++) perm[k++] = i;
    for (int i = front; i < rest; i++) perm[k++] = ix->common_rank + i;
    return k;
}

void out_index(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    Indexing ix;
    if (!read_indices(o, n, v, &ix)) return;
    Ref x = arg_ref(o, n, 0);
    if (!ix.count) {
        give(o, n, 0, x);
        return;
    }
    if (ix.count == 1) {
        give(o, n, 0, gather(o, x, ix.place[0], ix.first));
        return;
    }
    x = transpose(o, x, v->rank, ix.perm);
    Ref y = NODE(o, "GatherND", x.t, x, tuples(o, &ix));
    int64_t perm[2 * MAX_RANK];
    int rank = place_order(&ix, perm);
    give(o, n, 0, transpose(o, y, rank, perm));
}

void out_index_put(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0), *s = arg_v(n, 2);
    Indexing ix;
    if (!read_indices(o, n, v, &ix)) return;
    if (!ix.count) {
        refuse(o, "without an index");
        return;
    }
    int64_t perm[2 * MAX_RANK], turn[2 * MAX_RANK], home[MAX_RANK];
    int rank = place_order(&ix, perm);
    Expr *dim[2 * MAX_RANK], *placed[2 * MAX_RANK];
    for (int i = 0; i < ix.common_rank; i++) dim[i] = ix.common[i];
    for (int i = ix.count; i < v->rank; i++) dim[ix.common_rank + i - ix.count] = v->dim[ix.perm[i]];
    for (int i = 0; i < rank; i++) placed[i] = dim[perm[i]];
    Ref src = expand(o, cast(o, arg_ref(o, n, 2), v->dtype), s->rank, s->dim, rank, placed);
    for (int i = 0; i < rank; i++) turn[perm[i]] = i;
    src = transpose(o, src, rank, turn);
    Ref x = transpose(o, arg_ref(o, n, 0), v->rank, ix.perm), at = tuples(o, &ix);
    if (arg_b(n, 3) && (x.t == DT_F16 || x.t == DT_BF16)) {
        x = cast(o, x, DT_F32);
        src = cast(o, src, DT_F32);
    }
    if (arg_b(n, 3)) attr_str(o, "reduction", "add");
    Ref y = NODE(o, "ScatterND", x.t, x, at, src);
    for (int i = 0; i < v->rank; i++) home[ix.perm[i]] = i;
    give(o, n, 0, transpose(o, y, v->rank, home));
}

void out_nonzero(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = arg_ref(o, n, 0);
    int rank = arg_v(n, 0)->rank;
    x = negated(o, NODE(o, "Equal", DT_BOOL, x, like(o, x, 0)));
    if (!rank) {
        Ref y = NODE(o, "NonZero", DT_I64, flat(o, x)); /* (1, n) of no axes: (n, 0) */
        give(o, n, 0, slice(o, transpose(o, y, 2, (int64_t[]){1, 0}), 1, INTS(o, 0), INTS(o, 0), 1));
        return;
    }
    give(o, n, 0, transpose(o, NODE(o, "NonZero", DT_I64, x), 2, (int64_t[]){1, 0}));
}

/* How many of the row are before the value: sums of comparisons. */
void out_searchsorted(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *row = arg_v(n, 0), *v = arg_v(n, 1);
    bool right = arg_b(n, 3) || !strcmp(arg_s(n, 4, ""), "right");
    Ref r = arg_ref(o, n, 0), x = arg_ref(o, n, 1);
    if (given(n, 5)) {
        attr_int(o, "axis", row->rank - 1);
        r = NODE(o, "GatherElements", r.t, r, arg_ref(o, n, 5));
    }
    if (row->rank > 1) r = unsqueeze(o, r, row->rank - 1);
    x = unsqueeze(o, x, v->rank);
    Ref before = negated(o, NODE(o, right ? "Greater" : "GreaterOrEqual", DT_BOOL, r, x)); /* NaN comes after all */
    give(o, n, 0, reduce(o, "ReduceSum", cast(o, before, DT_I64), 1, (int64_t[]){v->rank}, false));
}

/* ------------------------------------------------------------------ writing */

/* src cut to the sizes of the index. */
static Ref cut(Onnx *o, Ref src, const Value *s, const Value *i)
{
    for (int k = 0; k < s->rank; k++)
        if (s->dim[k] != i->dim[k]) src = slice(o, src, k, INTS(o, 0), size_of(o, i->dim[k]), 1);
    return src;
}

static Ref scattered(Onnx *o, Ref x, Ref at, Ref src, int64_t axis, const char *how)
{
    bool half = how && (x.t == DT_F16 || x.t == DT_BF16); /* sums of halves are made in float32 */
    if (half) return cast(o, scattered(o, cast(o, x, DT_F32), at, cast(o, src, DT_F32), axis, how), x.t);
    if (how && x.t == DT_BOOL) /* ONNX Runtime reduces no truth values */
        return cast(o, scattered(o, cast(o, x, DT_I32), at, cast(o, src, DT_I32), axis, how), x.t);
    attr_int(o, "axis", axis);
    if (how) attr_str(o, "reduction", how);
    return NODE(o, "ScatterElements", x.t, x, at, src);
}

void out_scatter(Onnx *o, const Node *n, const char *text)
{
    const Value *v = arg_v(n, 0), *i = arg_v(n, 2), *s = arg_v(n, 3);
    Ref x = at_least_1d(o, arg_ref(o, n, 0), v->rank), at = at_least_1d(o, cast(o, arg_ref(o, n, 2), DT_I64), i->rank);
    Ref src = at_least_1d(o, cut(o, cast(o, arg_ref(o, n, 3), v->dtype), s, i), s->rank);
    give(o, n, 0, back(o, scattered(o, x, at, src, arg_axis(o, n, 1, v->rank), *text ? text : NULL), v->rank));
}

void out_scatter_reduce(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0), *i = arg_v(n, 2), *s = arg_v(n, 3);
    const char *how = arg_s(n, 4, "");
    bool self = arg_b(n, 5), mean = !strcmp(how, "mean"), sum = mean || !strcmp(how, "sum"),
         prod = !strcmp(how, "prod"), most = !strcmp(how, "amax");
    int axis = arg_axis(o, n, 1, v->rank);
    if (!sum && o->opt.opset < 18) {
        refuse(o, "ONNX writes products and extremes from opset 18 on");
        return;
    }
    Ref x = at_least_1d(o, arg_ref(o, n, 0), v->rank), at = at_least_1d(o, cast(o, arg_ref(o, n, 2), DT_I64), i->rank);
    Ref src = at_least_1d(o, cut(o, arg_ref(o, n, 3), s, i), s->rank), ones = none();
    if (mean) ones = where(o, NODE(o, "Equal", DT_BOOL, at, at), like(o, src, 1), like(o, src, 1));
    if (!self) {
        bool real = dtype_is_float(x.t);
        double low = real ? -INFINITY : dtype_lowest(x.t), high = real ? INFINITY : dtype_highest(x.t);
        Ref first = like(o, x, sum ? 0 : prod ? 1 : most ? low : high);
        Ref all = where(o, NODE(o, "Equal", DT_BOOL, at, at), first, first);
        x = scattered(o, x, at, all, axis, NULL);
    }
    Ref y = scattered(o, x, at, src, axis, sum ? "add" : prod ? "mul" : most ? "max" : "min");
    if (mean) {
        Ref one = where(o, NODE(o, "Equal", DT_BOOL, x, x), like(o, x, 1), like(o, x, 1)), base = one;
        if (!self) {
            Ref none_yet = where(o, NODE(o, "Equal", DT_BOOL, at, at), like(o, x, 0), like(o, x, 0));
            base = scattered(o, one, at, none_yet, axis, NULL);
        }
        Ref count = scattered(o, base, at, ones, axis, "add");
        if (dtype_is_float(y.t)) y = NODE(o, "Div", y.t, y, count);
        else y = NODE(o, "Div", y.t, NODE(o, "Sub", y.t, y, NODE(o, "Mod", y.t, y, count)), count);
    }
    give(o, n, 0, back(o, y, v->rank));
}

/* x with src at the places (1-D) of one axis. */
static Ref put_along(Onnx *o, Ref x, int rank, int axis, Ref at, Ref src)
{
    int64_t perm[MAX_RANK], home[MAX_RANK];
    perm[0] = axis;
    for (int i = 0, k = 1; i < rank; i++)
        if (i != axis) perm[k++] = i;
    for (int i = 0; i < rank; i++) home[perm[i]] = i;
    Ref y = NODE(o, "ScatterND", x.t, transpose(o, x, rank, perm), unsqueeze(o, at, 1), transpose(o, src, rank, perm));
    return transpose(o, y, rank, home);
}

/* What is before a slice of step 1, its new elements, what is after them; false: where they are is not known. */
static bool put_between(Onnx *o, const Node *n, Ref x, Ref src, int axis, Ref *whole)
{
    const Expr *start = given(n, 3) ? arg_e(n, 3) : NULL, *end = given(n, 4) ? arg_e(n, 4) : NULL;
    if ((start && !ex_is_int(start)) || (end && !ex_is_int(end)) || arg_i(o, n, 5, 1) != 1) return false;
    int64_t from = start ? start->i : 0, to = end ? end->i : 0;
    if (end && (to < from || (to < 0) != (from < 0))) return false; /* there may be none, in two places */
    Ref part[3];
    int count = 0;
    if (from) part[count++] = slice(o, x, axis, INTS(o, 0), INTS(o, from), 1);
    part[count++] = src;
    if (end) part[count++] = slice(o, x, axis, INTS(o, to), INTS(o, INT64_MAX), 1);
    if (count > 1) attr_int(o, "axis", axis);
    *whole = count > 1 ? node_of(o, "Concat", x.t, count, part) : src;
    return true;
}

void out_slice_scatter(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    int axis = arg_axis(o, n, 2, v->rank);
    Ref x = arg_ref(o, n, 0), src = cast(o, arg_ref(o, n, 1), v->dtype), whole;
    if (put_between(o, n, x, src, axis, &whole)) {
        give(o, n, 0, whole);
        return;
    }
    Ref all = positions(o, size_of(o, v->dim[axis]));
    Ref from = given(n, 3) ? size_of(o, arg_e(n, 3)) : INTS(o, 0),
        to = given(n, 4) ? size_of(o, arg_e(n, 4)) : INTS(o, INT64_MAX);
    give(o, n, 0, put_along(o, x, v->rank, axis, slice(o, all, 0, from, to, arg_i(o, n, 5, 1)), src));
}

void out_select_scatter(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    int axis = arg_axis(o, n, 2, v->rank);
    Ref src = unsqueeze(o, cast(o, arg_ref(o, n, 1), v->dtype), axis);
    give(o, n, 0, put_along(o, arg_ref(o, n, 0), v->rank, axis, size_of(o, arg_e(n, 3)), src));
}

/* ------------------------------------------------------------------ repeating, moving, padding */

/* Row j of the result is the first i whose running total is above j. */
void out_repeats(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref r = cast(o, arg_ref(o, n, 0), DT_I64), total = reduce(o, "ReduceSum", r, 1, (int64_t[]){0}, true);
    Ref upto = NODE(o, "CumSum", DT_I64, r, integer(o, 0)), j = unsqueeze(o, positions(o, total), 1);
    Ref before = NODE(o, "LessOrEqual", DT_BOOL, unsqueeze(o, upto, 0), j);
    give(o, n, 0, reduce(o, "ReduceSum", cast(o, before, DT_I64), 1, (int64_t[]){1}, false));
}

void out_flip(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    int64_t axis[MAX_RANK];
    int count = n->arg[1].n ? arg_axes(o, n, 1, v->rank, axis) : 0;
    Ref x = arg_ref(o, n, 0);
    for (int i = 0; i < count; i++) x = slice(o, x, axis[i], INTS(o, -1), INTS(o, INT64_MIN), -1);
    give(o, n, 0, x);
}

/* ONNX Runtime (1.31) makes zeros around the input of a MaxPool the MaxPool's own padding, which is minus infinity; it
 * leaves those alone that name their axes. */
static bool pooled(const Onnx *o, const Node *n)
{
    for (const Node *reader = n->next; reader; reader = reader->next) {
        OpId op = reader->op->id;
        bool pools = op == OP_max_pool2d_with_indices || op == OP_max_pool3d_with_indices;
        if (pools && reader->arg[0].v == n->out[0]) return for_ort(o) && o->opt.opset >= 18;
    }
    return false;
}

/* What PyTorch cuts off after it repeated elements, ONNX cuts off before. cut: by axis, from where on, NULL: nothing */
static Ref cut_after(Onnx *o, const Value *v, Ref x, Expr *const *cut)
{
    for (int i = 0; i < v->rank; i++)
        if (cut[i]) {
            Expr *end = ex_add(o->p, cut[i], v->dim[i]);
            x = slice(o, x, i, shape_of(o, 1, &cut[i]), shape_of(o, 1, &end), 1);
        }
    return x;
}

void out_pad(Onnx *o, const Node *n, const char *mode)
{
    const Value *v = arg_v(n, 0);
    bool repeats = strcmp(mode, "constant") != 0;
    Expr *pads[2 * MAX_RANK], *cut[MAX_RANK] = {NULL}, *zero = ex_int(o->p, 0);
    const Arg *a = &n->arg[1];
    for (int i = 0; i < 2 * v->rank; i++) pads[i] = ex_int(o->p, 0);
    for (int i = 0; i + 1 < a->n; i += 2) { /* PyTorch: (before, after) from the last axis on */
        pads[v->rank - 1 - i / 2] = a->es[i];
        pads[2 * v->rank - 1 - i / 2] = a->es[i + 1];
    }
    for (int k = 0; repeats && k < 2 * v->rank; k++) {
        bool less = ex_is_int(pads[k]) && pads[k]->i < 0, before = k < v->rank;
        if (!less) continue;
        if (before || !cut[k % v->rank]) cut[k % v->rank] = before ? ex_neg(o->p, pads[k]) : zero;
        pads[k] = zero;
    }
    Ref x = arg_ref(o, n, 0), amounts = none(), part[2 * MAX_RANK];
    if (v->rank * 2 <= MAX_RANK) amounts = shape_of(o, 2 * v->rank, pads);
    else {
        for (int i = 0; i < 2; i++) part[i] = shape_of(o, v->rank, pads + i * v->rank);
        attr_int(o, "axis", 0);
        amounts = node_of(o, "Concat", DT_I64, 2, part);
    }
    if (repeats) attr_str(o, "mode", mode);
    Ref fill = repeats ? none() : operand(o, n, 2, x.t);
    if (!pooled(o, n)) {
        give(o, n, 0, cut_after(o, n->out[0], NODE(o, "Pad", x.t, x, amounts, fill), cut));
        return;
    }
    int64_t axes[MAX_RANK];
    for (int i = 0; i < v->rank; i++) axes[i] = i;
    x = NODE(o, "Pad", x.t, x, amounts, fill, ints(o, v->rank, axes));
    give(o, n, 0, cut_after(o, n->out[0], x, cut));
}

void out_col2im(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    int64_t kernel[32], dilation[32], padding[32], stride[32];
    if (o->opt.opset < 18) {
        refuse(o, "ONNX has Col2Im from opset 18 on");
        return;
    }
    int k = arg_ints_of(o, n, 2, kernel);
    arg_ints_of(o, n, 3, dilation);
    arg_ints_of(o, n, 4, padding);
    arg_ints_of(o, n, 5, stride);
    Ref x = arg_ref(o, n, 0), size = shape_of(o, n->arg[1].n, n->arg[1].es);
    if (v->rank == 2) x = unsqueeze(o, x, 0);
    int64_t pads[4] = {padding[0], padding[1], padding[0], padding[1]};
    Ref block = ints(o, k, kernel);
    attr_ints(o, "dilations", k, dilation);
    attr_ints(o, "pads", 4, pads);
    attr_ints(o, "strides", k, stride);
    Ref y = NODE(o, "Col2Im", x.t, x, size, block);
    give(o, n, 0, v->rank == 2 ? squeeze(o, y, 0) : y);
}

/* Zeros as many as the largest number and one more, or minlength; then one (or its weight) added for each. */
void out_bincount(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = cast(o, arg_ref(o, n, 0), DT_I64), weights = arg_ref(o, n, 1);
    DType t = n->out[0]->dtype;
    Ref padded_parts[2] = {x, INTS(o, -1)};
    attr_int(o, "axis", 0);
    Ref padded = node_of(o, "Concat", DT_I64, 2, padded_parts),
        top = reduce(o, "ReduceMax", padded, 1, (int64_t[]){0}, true);
    Ref least = given(n, 2) ? size_of(o, arg_e(n, 2)) : INTS(o, 0),
        count = NODE(o, "Max", DT_I64, NODE(o, "Add", DT_I64, top, INTS(o, 1)), least);
    Ref zeros = NODE(o, "Expand", t, number(o, t, 0), count);
    Ref one = *weights.name ? cast(o, weights, t)
                            : where(o, NODE(o, "Equal", DT_BOOL, x, x), number(o, t, 1), number(o, t, 1));
    give(o, n, 0, scattered(o, zeros, x, one, 0, "add"));
}
