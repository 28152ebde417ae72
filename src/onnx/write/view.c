/* Views in ONNX's words. Complex tensors are pairs of reals: one more axis, of size 2.
 *
 *     aten.unfold(x, 1, 4, 2)   ->  Gather(x, [[0, 1, 2, 3], [2, 3, 4, 5], ...], axis=1), transposed
 */
#include <stdlib.h>
#include <string.h>
#include "onnx/write/write_impl.h"

/* The axes that v has in the file. */
static int axes_of(Onnx *o, const Value *v, Expr **dim)
{
    for (int i = 0; i < v->rank; i++) dim[i] = v->dim[i];
    if (!dtype_is_complex(v->dtype)) return v->rank;
    if (v->rank == MAX_RANK - 1) refuse(o, "too many axes");
    dim[v->rank] = ex_int(o->p, 2);
    return v->rank + 1;
}

void out_reshape(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Expr *from[MAX_RANK + 1], *to[MAX_RANK + 1];
    const Value *v = arg_v(n, 0);
    int from_rank = axes_of(o, v, from), rank = axes_of(o, n->out[0], to);
    const Expr *size = v->kind == V_NODE && v->def->op->id == OP_full && v->rank == 1 && ex_equals_int(v->dim[0], 1) &&
                               !rank
                           ? arg_e(v->def, 1)
                           : NULL;
    if (size && !ex_is_const(size))
        give(o, n, 0, size_scalar(o, (Expr *)(uintptr_t)size, v->dtype)); /* a size as a number */
    else give(o, n, 0, reshape(o, arg_ref(o, n, 0), from_rank, from, rank, to));
}

void out_expand(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Expr *from[MAX_RANK + 1], *to[MAX_RANK + 1];
    int from_rank = axes_of(o, arg_v(n, 0), from), rank = axes_of(o, n->out[0], to);
    give(o, n, 0, expand(o, arg_ref(o, n, 0), from_rank, from, rank, to));
}

void out_same(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    give(o, n, 0, arg_ref(o, n, 0));
}

void out_permute(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    int64_t perm[2 * MAX_RANK];
    int rank = arg_ints_of(o, n, 1, perm);
    for (int i = 0; i < rank; i++) perm[i] += perm[i] < 0 ? rank : 0;
    if (dtype_is_complex(v->dtype)) perm[rank] = rank;
    give(o, n, 0, transpose(o, arg_ref(o, n, 0), rank + dtype_is_complex(v->dtype), perm));
}

void out_select(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = arg_ref(o, n, 0), at = operand(o, n, 2, DT_I64);
    attr_int(o, "axis", arg_axis(o, n, 1, arg_v(n, 0)->rank));
    give(o, n, 0, NODE(o, "Gather", x.t, x, at));
}

/* size - k, and max(0, size - k), are -k in ONNX as in Python: how much is cut from the end. */
static int64_t from_end(Onnx *o, Expr *x, Expr *size)
{
    for (int i = 0; x->kind == EX_MAX && x->nargs == 2 && i < 2; i++)
        if (ex_equals_int(x->args[1 - i], 0)) return from_end(o, x->args[i], size);
    Expr *k = ex_sub(o->p, size, x);
    return k && ex_is_int(k) && !ex_is_int(x) && k->i >= 0 ? k->i : -1;
}

/* Where a slice begins or ends: 1-D. */
static Ref bound(Onnx *o, const Node *n, int i, int64_t otherwise, Expr *size)
{
    Expr *x = arg_e(n, i);
    int64_t k = x ? from_end(o, x, size) : -1;
    if (!x || (k == 0 && otherwise)) return INTS(o, otherwise);
    return k > 0 ? INTS(o, -k) : size_of(o, x);
}

static Expr *slice_start(Onnx *o, const Node *n) { return given(n, 2) ? arg_e(n, 2) : ex_int(o->p, 0); }
static Expr *slice_end(const Node *n, Expr *size) { return given(n, 3) ? arg_e(n, 3) : size; }

/* A slice of step 1: what it cuts, and where it begins. */
typedef struct SliceAt {
    int of, axis, order; /* of: value id; order: its place in the graph */
    uint32_t start;      /* Expr id */
    const Node *n;
} SliceAt;

static int compare_start(const SliceAt *a, const SliceAt *b)
{
    if (a->of != b->of) return a->of < b->of ? -1 : 1;
    if (a->axis != b->axis) return a->axis < b->axis ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

static int by_start(const void *a, const void *b)
{
    const SliceAt *x = a, *y = b;
    int same = compare_start(x, y);
    return same ? same : x->order < y->order ? -1 : x->order > y->order;
}

/* All slices of step 1, by where they begin, and how often values are read: made when the first slice or sort asks. */
static bool index_slices(Onnx *o)
{
    if (o->slices) return true;
    SliceAt *at = arena_array(o->a, SliceAt, o->g->nnodes + 1);
    if (!at || !(o->uses = arena_array(o->a, int, o->g->next_id))) return false;
    graph_count_uses(o->g, o->uses);
    int k = 0, order = 0;
    for (const Node *n = o->g->first; n; n = n->next, order++) {
        if (n->op->id != OP_slice_Tensor || (given(n, 4) && !ex_equals_int(arg_e(n, 4), 1))) continue;
        const Value *v = arg_v(n, 0);
        const Expr *start = slice_start(o, n);
        if (!start) return false;
        at[k++] = (SliceAt){v->id, arg_axis(o, n, 1, v->rank), order, start->id, n};
    }
    qsort(at, (size_t)k, sizeof *at, by_start);
    o->slices = at;
    o->nslices = k;
    return true;
}

/* The first slice of this axis of v from `start`. */
static const Node *slice_from(const Onnx *o, const Value *v, int axis, const Expr *start)
{
    const SliceAt wanted = {.of = v->id, .axis = axis, .start = start->id};
    int low = 0, high = o->nslices;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (compare_start(&o->slices[middle], &wanted) < 0) low = middle + 1;
        else high = middle;
    }
    return low < o->nslices && !compare_start(&o->slices[low], &wanted) ? o->slices[low].n : NULL;
}

static bool same_size(const Onnx *o, Expr *a, Expr *b)
{
    const Expr *ab = ex_make(o->p, EX_EQ, a, b, NULL), *ba = ex_make(o->p, EX_EQ, b, a, NULL);
    bool same = a == b;
    for (int i = 0; i < o->g->nrequire && !same; i++)
        same = o->g->require[i].cond == ab || o->g->require[i].cond == ba;
    return same;
}

/* Is all that a size is read from in the file? A part may depend on the parts before it. */
static bool written_size(const Onnx *o, const Expr *x)
{
    for (int i = 0; i < expr_symbol_count(o->p); i++) {
        const Symbol *s = expr_symbol(o->p, i);
        bool data = symbol_out_of_data(s);
        if (data && ex_mentions(x, s->expr) && !o->written[s->value->id]) return false;
    }
    return true;
}

/* Min(n, k) of n elements, where the graph requires k <= n. */
static Expr *without_bound(const Onnx *o, Expr *x, const Expr *n)
{
    if (x->kind != EX_MIN || x->nargs != 2 || (x->args[0] != n && x->args[1] != n)) return x;
    Expr *k = x->args[x->args[0] == n], *size = x->args[x->args[0] != n];
    const Expr *enough = ex_make(o->p, EX_LE, k, size, NULL);
    for (int i = 0; i < o->g->nrequire; i++)
        if (o->g->require[i].cond == enough) return k;
    return x;
}

/* Of v, only its first `count` elements along an axis are read: the slice that takes them. NULL: more is, or no memory.
 */
const Node *front_of(Onnx *o, const Value *v, int axis, Expr **count)
{
    if (!index_slices(o)) out_of_memory(o);
    if (o->broken || o->uses[v->id] != 1) return NULL;
    const Node *n = slice_from(o, v, axis, ex_int(o->p, 0));
    if (!n || o->asked[n->out[0]->id]) return NULL;
    *count = without_bound(o, n->out[0]->dim[axis], v->dim[axis]);
    return written_size(o, *count) ? n : NULL;
}

enum { PARTS_MAX = 1024 };

/* x[:u0], x[u0:u0 + u1], x[u0 + u1:] with u0 and u1 from data, as all experts' rows: one Split, of which n is a part.
 * Its readers know that no part is longer than what is left; a Slice clamps each end. 0: n is not of such a row. */
static int row_of_parts(Onnx *o, const Node *n, int axis, const Node **part, Expr **length)
{
    const Value *v = arg_v(n, 0);
    Expr *size = v->dim[axis], *at = ex_int(o->p, 0);
    bool has_n = false;
    int k = 0;
    while (k == 0 || !same_size(o, at, size)) {
        const Node *next = k < PARTS_MAX ? slice_from(o, v, axis, at) : NULL;
        if (!next || slice_end(next, size) == at || o->written[next->out[0]->id]) return 0;
        has_n |= next == n;
        length[k] = next->out[0]->dim[axis];
        if (!written_size(o, length[k])) return 0;
        part[k++] = next;
        at = slice_end(next, size);
    }
    return has_n && k > 1 ? k : 0;
}

static bool out_parts(Onnx *o, const Node *n, int axis)
{
    const Expr *start = slice_start(o, n), *end = slice_end(n, NULL);
    if (!ex_data_dependent(o->p, start) && !(end && ex_data_dependent(o->p, end))) return false;
    if (!index_slices(o)) {
        out_of_memory(o);
        return true;
    }
    const Node *part[PARTS_MAX];
    Expr *length[PARTS_MAX];
    int count = row_of_parts(o, n, axis, part, length);
    if (!count) return false;
    Ref *out = arena_array(o->a, Ref, count);
    if (!out) {
        out_of_memory(o);
        return true;
    }
    Ref x = arg_ref(o, n, 0);
    for (int i = 0; i < count; i++) out[i] = size_of(o, length[i]);
    attr_int(o, "axis", 0);
    split(o, x, axis, node_of(o, "Concat", DT_I64, count, out), count, out);
    for (int i = 0; i < count; i++) {
        o->asked[part[i]->out[0]->id] = true;
        give(o, part[i], 0, out[i]);
    }
    return true;
}

void out_slice(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    int axis = arg_axis(o, n, 1, v->rank);
    if (v->dim[axis] == n->out[0]->dim[axis] && ex_is_int(v->dim[axis])) {
        give(o, n, 0, arg_ref(o, n, 0)); /* all of it */
        return;
    }
    if (out_parts(o, n, axis)) return;
    give(o, n, 0,
         slice(o, arg_ref(o, n, 0), axis, bound(o, n, 2, 0, v->dim[axis]), bound(o, n, 3, INT64_MAX, v->dim[axis]),
               arg_i(o, n, 4, 1)));
}

/* offset + sum of i_k * stride_k, of the sizes in dim: places in the tensor as it is laid out. */
static Ref places(Onnx *o, const Node *n, int size, int stride, int offset)
{
    const Arg *dims = &n->arg[size], *strides = &n->arg[stride];
    Expr *first = arg_e(n, offset);
    Ref at = first ? size_scalar(o, first, DT_I64) : integer(o, 0);
    for (int k = 0; k < dims->n; k++) {
        Ref i = positions(o, size_of(o, dims->es[k]));
        i = NODE(o, "Mul", DT_I64, i, size_of(o, strides->es[k]));
        int64_t shape[MAX_RANK];
        for (int j = 0; j < dims->n; j++) shape[j] = j == k ? -1 : 1;
        at = NODE(o, "Add", DT_I64, at, NODE(o, "Reshape", DT_I64, i, ints(o, dims->n, shape)));
    }
    return at;
}

void out_as_strided(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = flat(o, arg_ref(o, n, 0)), at = places(o, n, 1, 2, 3);
    attr_int(o, "axis", 0);
    give(o, n, 0, NODE(o, "Gather", x.t, x, at));
}

void out_as_strided_scatter(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = n->out[0];
    Ref x = arg_ref(o, n, 0), src = flat(o, cast(o, arg_ref(o, n, 1), x.t)),
        at = unsqueeze(o, flat(o, places(o, n, 2, 3, 4)), 1);
    Ref y = NODE(o, "ScatterND", x.t, flat(o, x), at, src);
    give(o, n, 0, to_shape(o, y, v->rank, v->dim));
}

/* Two axes to the end. */
static void to_end(int rank, int a, int b, int64_t *perm)
{
    int k = 0;
    for (int i = 0; i < rank; i++)
        if (i != a && i != b) perm[k++] = i;
    perm[k++] = a;
    perm[k] = b;
}

/* Places of a diagonal in the last two axes as one; `from`: the tensor, `count`: how long it is. */
static Ref diagonal_places(Onnx *o, Expr *columns, Expr *count, int64_t offset)
{
    Ref i = positions(o, size_of(o, count)), step = size_of(o, ex_add(o->p, columns, ex_int(o->p, 1)));
    i = NODE(o, "Mul", DT_I64, i, step);
    Ref first = offset >= 0 ? INTS(o, offset) : size_of(o, ex_neg(o->p, ex_mul(o->p, columns, ex_int(o->p, offset))));
    return NODE(o, "Add", DT_I64, i, first);
}

/* x with the axes a and b last, and as one. */
static Ref plane(Onnx *o, Ref x, const Value *v, int a, int b, int64_t *perm, Expr **dim)
{
    to_end(v->rank, a, b, perm);
    for (int i = 0; i < v->rank; i++) dim[i] = v->dim[perm[i]];
    x = transpose(o, x, v->rank, perm);
    Expr *joined[MAX_RANK];
    for (int i = 0; i < v->rank - 2; i++) joined[i] = dim[i];
    joined[v->rank - 2] = ex_mul(o->p, dim[v->rank - 2], dim[v->rank - 1]);
    return reshape(o, x, v->rank, dim, v->rank - 1, joined);
}

void out_diagonal(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    int64_t perm[MAX_RANK];
    Expr *dim[MAX_RANK];
    Ref x = plane(o, arg_ref(o, n, 0), v, arg_axis(o, n, 2, v->rank), arg_axis(o, n, 3, v->rank), perm, dim);
    Ref at = diagonal_places(o, dim[v->rank - 1], n->out[0]->dim[v->rank - 2], arg_i(o, n, 1, 0));
    attr_int(o, "axis", v->rank - 2);
    give(o, n, 0, NODE(o, "Gather", x.t, x, at));
}

void out_diagonal_scatter(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0), *s = arg_v(n, 1);
    int64_t perm[MAX_RANK], back[MAX_RANK];
    Expr *dim[MAX_RANK];
    Ref x = plane(o, arg_ref(o, n, 0), v, arg_axis(o, n, 3, v->rank), arg_axis(o, n, 4, v->rank), perm, dim);
    Ref at = diagonal_places(o, dim[v->rank - 1], s->dim[s->rank - 1], arg_i(o, n, 2, 0));
    at = NODE(o, "Expand", DT_I64, at, shape_of(o, s->rank, s->dim));
    attr_int(o, "axis", v->rank - 2);
    Ref y = NODE(o, "ScatterElements", x.t, x, at, cast(o, arg_ref(o, n, 1), x.t));
    y = to_shape(o, y, v->rank, dim);
    for (int i = 0; i < v->rank; i++) back[perm[i]] = i;
    give(o, n, 0, transpose(o, y, v->rank, back));
}

void out_unfold(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    if (!v->rank) {
        give(o, n, 0, flat(o, arg_ref(o, n, 0)));
        return;
    }
    int axis = arg_axis(o, n, 1, v->rank);
    int64_t size = arg_i(o, n, 2, 1), step = arg_i(o, n, 3, 1), perm[MAX_RANK];
    Ref i = positions(o, size_of(o, n->out[0]->dim[axis])), x = arg_ref(o, n, 0);
    i = NODE(o, "Mul", DT_I64, i, INTS(o, step));
    Ref at = NODE(o, "Add", DT_I64, unsqueeze(o, i, 1), positions(o, INTS(o, size)));
    attr_int(o, "axis", axis);
    Ref y = NODE(o, "Gather", x.t, x, at);
    for (int k = 0, j = 0; k <= v->rank; k++)
        if (k != axis + 1) perm[j++] = k;
    perm[v->rank] = axis + 1;
    give(o, n, 0, transpose(o, y, v->rank + 1, perm));
}

void out_view_dtype(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref x = arg_ref(o, n, 0);
    DType to = n->out[0]->dtype;
    DType whole = dtype_is_complex(to) ? to : x.t, part = whole == to ? x.t : to;
    bool pair = dtype_is_complex(whole) && dtype_is_float(part) && dtype_size(whole) == 2 * dtype_size(part);
    if (x.t == to) {
        give(o, n, 0, x);
    } else if (pair) { /* the axis of 2 is there already, in one as in the other */
        Expr *dim[MAX_RANK + 1];
        int rank = axes_of(o, n->out[0], dim);
        Expr *from[MAX_RANK + 1];
        int from_rank = axes_of(o, arg_v(n, 0), from);
        give(o, n, 0, reshape(o, (Ref){x.name, to}, from_rank, from, rank, dim));
    } else {
        refuse(o, "ONNX does not look at %s as %s", dtype_name(x.t), dtype_name(to));
    }
}
