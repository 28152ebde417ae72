/* Ops that move elements, exactly: views, joins, indices, pads. Sizes are the node's; only the index is computed here.
 *
 *     exact_permute: out[i, j] = self[j, i], by strides of self in the order of out's axes
 */
#include <math.h>
#include <string.h>
#include "prove/impl.h"

/* out[at] = from[first + sum at * stride] */
static bool strided(Exact *x, const Node *n, int64_t first, const int64_t *stride, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    ExactTensor *out = exact_out(x, n, 0, err);
    int64_t at[MAX_RANK] = {0};
    if (!out || !exact_work(x, (double)out->n, err)) return false;
    for (int64_t i = 0; i < out->n; i++, exact_next(out->rank, out->shape, at)) {
        int64_t j = first;
        for (int d = 0; d < out->rank; d++) j += at[d] * stride[d];
        if (j < 0 || j >= from->n) return exact_unsupported(n, "an index outside of its tensor", err);
        elem_move(out, i, from, j);
    }
    return true;
}

bool exact_reshape(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    ExactTensor *out = exact_out(x, n, 0, err);
    for (int64_t i = 0; out && i < out->n; i++) elem_move(out, i, from, i);
    return out != NULL;
}

bool exact_permute(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    int64_t own[MAX_RANK], stride[MAX_RANK], dims[MAX_RANK];
    exact_strides(from->rank, from->shape, own);
    exact_ints(n, 1, dims);
    for (int i = 0; i < from->rank; i++) stride[i] = own[exact_dim(dims[i], from->rank)];
    return strided(x, n, 0, stride, err);
}

bool exact_expand(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    int64_t own[MAX_RANK], stride[MAX_RANK] = {0};
    exact_strides(from->rank, from->shape, own);
    int more = n->out[0]->rank - from->rank;
    for (int i = 0; i < from->rank; i++) stride[more + i] = from->shape[i] == 1 ? 0 : own[i];
    return strided(x, n, 0, stride, err);
}

bool exact_select(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    int64_t own[MAX_RANK], at = exact_int(n, 2, 0);
    int d = exact_dim(exact_int(n, 1, 0), from->rank);
    exact_strides(from->rank, from->shape, own);
    int64_t step = own[d];
    if (at < 0) at += from->shape[d];
    memmove(own + d, own + d + 1, (size_t)(from->rank - d - 1) * sizeof *own);
    return strided(x, n, at * step, own, err);
}

/* Where a slice begins. */
static int64_t first_of(const Node *n, int k, int64_t size)
{
    int64_t start = exact_int(n, k, 0);
    if (start < 0) start += size;
    return start < 0 ? 0 : start > size ? size : start;
}

bool exact_slice(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    int64_t own[MAX_RANK];
    int d = exact_dim(exact_int(n, 1, 0), from->rank);
    exact_strides(from->rank, from->shape, own);
    int64_t first = first_of(n, 2, from->shape[d]) * own[d];
    own[d] *= exact_int(n, 4, 1);
    return strided(x, n, first, own, err);
}

bool exact_as_strided(Exact *x, const Node *n, Err *err)
{
    int64_t stride[MAX_RANK];
    exact_ints(n, 2, stride);
    return strided(x, n, exact_int(n, 3, 0), stride, err);
}

bool exact_diagonal(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    int64_t own[MAX_RANK], stride[MAX_RANK], offset = exact_int(n, 1, 0);
    int a = exact_dim(exact_int(n, 2, 0), from->rank), b = exact_dim(exact_int(n, 3, 1), from->rank), k = 0;
    exact_strides(from->rank, from->shape, own);
    for (int i = 0; i < from->rank; i++)
        if (i != a && i != b) stride[k++] = own[i];
    stride[k] = own[a] + own[b];
    return strided(x, n, offset >= 0 ? offset * own[b] : -offset * own[a], stride, err);
}

bool exact_unfold(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    int64_t stride[MAX_RANK];
    int d = exact_dim(exact_int(n, 1, 0), from->rank);
    exact_strides(from->rank, from->shape, stride);
    stride[from->rank] = stride[d];
    stride[d] *= exact_int(n, 3, 1);
    return strided(x, n, 0, stride, err);
}

bool exact_flip(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    int64_t stride[MAX_RANK], dims[MAX_RANK], first = 0;
    int count = exact_ints(n, 1, dims);
    exact_strides(from->rank, from->shape, stride);
    for (int i = 0; i < count; i++) {
        int d = exact_dim(dims[i], from->rank);
        first += (from->shape[d] - 1) * stride[d];
        stride[d] = -stride[d];
    }
    return strided(x, n, first, stride, err);
}

/* Complex numbers as pairs of reals, and back; other reinterpretations of bytes have no meaning here. */
bool exact_view_dtype(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out) return false;
    if (!from->r || !out->r || from->n * from->width != out->n * out->width)
        return exact_unsupported(n, "a look at bytes", err);
    memcpy(out->r, from->r, (size_t)(out->n * out->width) * sizeof *out->r);
    memcpy(out->v, from->v, (size_t)(out->n * out->width) * sizeof *out->v);
    return true;
}

/* Is it made of weights and numbers alone? */
static bool is_constant(const Value *v, int depth)
{
    if (v->kind != V_NODE) return v->kind == V_WEIGHT;
    const Node *n = v->def;
    bool all = depth < 8 && !(n->op->flags & OPF_RANDOM);
    for (int i = 0; all && i < n->op->schema->nparams; i++)
        all = n->arg[i].kind != ARG_VALUES && (n->arg[i].kind != ARG_VALUE || is_constant(n->arg[i].v, depth + 1));
    return all;
}

/* A cast is exact, but for what a narrower dtype cannot hold: that is infinite. A constant number is what the dtype
 * holds of it: rules take it so, as PyTorch does. */
bool exact_to_copy(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out) return false;
    if (out->width != from->width) return exact_unsupported(n, "a cast of complex numbers", err);
    bool rounds = out->r && from->r && dtype_size(out->dtype) < dtype_size(from->dtype) && from->n == 1 &&
                  is_constant(n->arg[0].v, 0);
    for (int64_t i = 0; i < out->n * out->width; i++) {
        Elem e = elem_get(from, i);
        if (e.kind == FLOAT && out->r && fabs(e.v) > dtype_highest(out->dtype) * (1 + dtype_epsilon(out->dtype) / 4))
            e = elem_float(0, copysign(INFINITY, e.v));
        else if (e.kind == FLOAT && rounds) {
            double held;
            store_f64(out->dtype, &held, e.v);
            e = elem_number(load_f64(out->dtype, &held));
        }
        elem_set(out, i, e);
    }
    return true;
}

/* ------------------------------------------------------------------ joining, padding */

/* out[at + offset along d] = from[at], step apart */
static void put_block(ExactTensor *out, const ExactTensor *from, const int64_t *offset, int d, int64_t step)
{
    int64_t own[MAX_RANK], at[MAX_RANK] = {0};
    exact_strides(out->rank, out->shape, own);
    for (int64_t i = 0; i < from->n; i++, exact_next(from->rank, from->shape, at)) {
        int64_t j = 0;
        for (int k = 0; k < out->rank; k++) j += (at[k] * (k == d ? step : 1) + offset[k]) * own[k];
        elem_move(out, j, from, i);
    }
}

bool exact_cat(Exact *x, const Node *n, Err *err)
{
    ExactTensor *out = exact_out(x, n, 0, err);
    int64_t offset[MAX_RANK] = {0};
    if (!out || !exact_work(x, (double)out->n, err)) return false;
    int d = exact_dim(exact_int(n, 1, 0), out->rank);
    for (int i = 0; i < n->arg[0].n; i++) {
        const ExactTensor *from = exact_in(x, n->arg[0].vs[i]);
        if (from->rank != out->rank) continue; /* an empty one of rank 1 */
        put_block(out, from, offset, d, 1);
        offset[d] += from->shape[d];
    }
    return true;
}

bool exact_constant_pad_nd(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    ExactTensor *out = exact_out(x, n, 0, err);
    int64_t pad[2 * MAX_RANK], own[MAX_RANK], at[MAX_RANK] = {0};
    if (!out) return false;
    const Arg *a = &n->arg[1];
    int count = a->kind == ARG_EXPRS ? a->n : 0;
    for (int i = 0; i < count; i++) pad[i] = a->es[i]->i;
    Elem fill = elem_number(exact_number(n, 2, 0));
    exact_strides(from->rank, from->shape, own);
    for (int64_t i = 0; i < out->n; i++, exact_next(out->rank, out->shape, at)) {
        int64_t j = 0;
        bool inside = true;
        for (int d = 0; d < out->rank; d++) {
            int back = out->rank - 1 - d;
            int64_t k = at[d] - (2 * back < count ? pad[2 * back] : 0);
            inside = inside && k >= 0 && k < from->shape[d];
            j += k * own[d];
        }
        if (inside) elem_move(out, i, from, j);
        else elem_set(out, i, fill);
    }
    return true;
}

static bool copied(Exact *x, const Node *n, ExactTensor **out, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    *out = exact_out(x, n, 0, err);
    for (int64_t i = 0; *out && i < from->n; i++) elem_move(*out, i, from, i);
    return *out != NULL;
}

bool exact_slice_scatter(Exact *x, const Node *n, Err *err)
{
    ExactTensor *out;
    int64_t offset[MAX_RANK] = {0};
    if (!copied(x, n, &out, err)) return false;
    int d = exact_dim(exact_int(n, 2, 0), out->rank);
    offset[d] = first_of(n, 3, out->shape[d]);
    put_block(out, exact_arg(x, n, 1), offset, d, exact_int(n, 5, 1));
    return true;
}

bool exact_select_scatter(Exact *x, const Node *n, Err *err)
{
    ExactTensor *out;
    int64_t own[MAX_RANK], at[MAX_RANK] = {0}, where = exact_int(n, 3, 0);
    if (!copied(x, n, &out, err)) return false;
    const ExactTensor *from = exact_arg(x, n, 1);
    int d = exact_dim(exact_int(n, 2, 0), out->rank);
    exact_strides(out->rank, out->shape, own);
    if (where < 0) where += out->shape[d];
    for (int64_t i = 0; i < from->n; i++, exact_next(from->rank, from->shape, at)) {
        int64_t j = where * own[d];
        for (int k = 0; k < from->rank; k++) j += at[k] * own[k < d ? k : k + 1];
        elem_move(out, j, from, i);
    }
    return true;
}

/* ------------------------------------------------------------------ indices */

static bool within_size(const Node *n, int64_t *i, int64_t size, Err *err)
{
    if (*i < 0) *i += size;
    return (*i >= 0 && *i < size) || exact_unsupported(n, "an index outside of its tensor", err);
}

/* out[..., k, ...] = from[..., index[k], ...] along d; the index's axes take d's place */
static bool rows_of(Exact *x, const Node *n, const ExactTensor *from, const ExactTensor *index, int d, Err *err)
{
    ExactTensor *out = exact_out(x, n, 0, err);
    if (!out || !exact_work(x, (double)out->n, err)) return false;
    int64_t before = exact_count(d, from->shape), size = from->rank ? from->shape[d] : 1;
    int64_t after = exact_count(from->rank - d - (from->rank > 0), from->shape + d + 1);
    for (int64_t b = 0; b < before; b++)
        for (int64_t k = 0; k < index->n; k++) {
            int64_t i = index->i[k];
            if (!within_size(n, &i, size, err)) return false;
            for (int64_t a = 0; a < after; a++)
                elem_move(out, (b * index->n + k) * after + a, from, (b * size + i) * after + a);
        }
    return true;
}

bool exact_embedding(Exact *x, const Node *n, Err *err)
{
    return rows_of(x, n, exact_arg(x, n, 0), exact_arg(x, n, 1), 0, err);
}

bool exact_index_select(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    return rows_of(x, n, from, exact_arg(x, n, 2), exact_dim(exact_int(n, 1, 0), from->rank), err);
}

/* gather: out[at] = from[at, d: index[at]]; scatter: the other way, added or not */
static bool along(Exact *x, const Node *n, bool writes, bool adds, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, writes ? 3 : 0), *index = exact_arg(x, n, 2);
    ExactTensor *out;
    if (writes ? !copied(x, n, &out, err) : !(out = exact_out(x, n, 0, err))) return false;
    const ExactTensor *picked = writes ? out : from;
    int64_t own[MAX_RANK], other[MAX_RANK], at[MAX_RANK] = {0};
    int d = exact_dim(exact_int(n, 1, 0), picked->rank);
    exact_strides(picked->rank, picked->shape, own);
    exact_strides(from->rank, from->shape, other);
    for (int64_t k = 0; k < index->n; k++, exact_next(index->rank, index->shape, at)) {
        int64_t i = index->i[k], j = 0, s = 0;
        if (!within_size(n, &i, picked->rank ? picked->shape[d] : 1, err)) return false;
        for (int a = 0; a < index->rank; a++) {
            j += (a == d ? i : at[a]) * own[a];
            s += at[a] * other[a];
        }
        if (!writes) elem_move(out, k, from, j);
        else if (adds) elem_set(out, j, elem_add(x, elem_get(out, j), elem_get(from, s)));
        else elem_move(out, j, from, s);
    }
    return true;
}

bool exact_gather(Exact *x, const Node *n, Err *err) { return along(x, n, false, false, err); }
bool exact_scatter_src(Exact *x, const Node *n, Err *err) { return along(x, n, true, false, err); }
bool exact_scatter_add(Exact *x, const Node *n, Err *err) { return along(x, n, true, true, err); }

/* Where x[indices] reads: the linear index in x for each place of the result, whose sizes are `shape`. */
typedef struct Picked {
    const ExactTensor *index[MAX_RANK]; /* by axis of x; NULL: not indexed */
    int rank, common, place;            /* of the result; axes of the indices together, and where they stand */
    int64_t shape[MAX_RANK];
} Picked;

static bool broadcast_indices(Picked *p, const Node *n, Err *err)
{
    int64_t common[MAX_RANK];
    for (int i = 0; i < p->common; i++) common[i] = 1;
    for (int i = 0; i < MAX_RANK; i++)
        for (int k = 0; p->index[i] && k < p->index[i]->rank; k++) {
            int to = p->common - p->index[i]->rank + k;
            if (p->index[i]->shape[k] != 1) common[to] = p->index[i]->shape[k];
        }
    if (p->rank + p->common > MAX_RANK) return exact_unsupported(n, "its rank", err);
    memmove(p->shape + p->place + p->common, p->shape + p->place, (size_t)(p->rank - p->place) * sizeof *p->shape);
    memcpy(p->shape + p->place, common, (size_t)p->common * sizeof *common);
    p->rank += p->common;
    return true;
}

static bool picks(Exact *x, const Node *n, const ExactTensor *of, Picked *p, Err *err)
{
    int first = -1, last = -1;
    bool apart = false;
    *p = (Picked){0};
    for (int i = 0; i < of->rank; i++) {
        const Value *v = i < n->arg[1].n ? n->arg[1].vs[i] : NULL;
        if (!v) {
            p->shape[p->rank++] = of->shape[i];
            continue;
        }
        p->index[i] = exact_in(x, v);
        if (p->index[i]->dtype == DT_BOOL) return exact_unsupported(n, "a mask as index", err);
        if (p->index[i]->rank > p->common) p->common = p->index[i]->rank;
        apart |= last >= 0 && i != last + 1;
        if (first < 0) first = i;
        last = i;
    }
    p->place = apart ? 0 : first;
    return broadcast_indices(p, n, err);
}

static bool picked_at(const Node *n, const ExactTensor *of, const Picked *p, const int64_t *at, int64_t *j, Err *err)
{
    int64_t own[MAX_RANK];
    int free_axis = 0;
    exact_strides(of->rank, of->shape, own);
    *j = 0;
    for (int i = 0; i < of->rank; i++) {
        const ExactTensor *index = p->index[i];
        if (!index) {
            if (free_axis == p->place) free_axis += p->common;
            *j += at[free_axis++] * own[i];
            continue;
        }
        int64_t k = 0, stride[MAX_RANK];
        exact_strides(index->rank, index->shape, stride);
        for (int a = 0; a < index->rank; a++)
            if (index->shape[a] != 1) k += at[p->place + p->common - index->rank + a] * stride[a];
        int64_t where = index->i[k];
        if (!within_size(n, &where, of->shape[i], err)) return false;
        *j += where * own[i];
    }
    return true;
}

bool exact_index(Exact *x, const Node *n, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    ExactTensor *out = exact_out(x, n, 0, err);
    Picked p;
    int64_t at[MAX_RANK] = {0}, j;
    if (!out || !picks(x, n, from, &p, err) || !exact_work(x, 4 * (double)out->n, err)) return false;
    for (int64_t i = 0; i < out->n; i++, exact_next(p.rank, p.shape, at)) {
        if (!picked_at(n, from, &p, at, &j, err)) return false;
        elem_move(out, i, from, j);
    }
    return true;
}

bool exact_index_put(Exact *x, const Node *n, Err *err)
{
    ExactTensor *out;
    Picked p;
    const ExactTensor *values = exact_arg(x, n, 2);
    int64_t at[MAX_RANK] = {0}, own[MAX_RANK], j;
    if (!copied(x, n, &out, err) || !picks(x, n, out, &p, err)) return false;
    bool adds = exact_int(n, 3, 0) != 0;
    exact_strides(values->rank, values->shape, own);
    int64_t places = exact_count(p.rank, p.shape);
    for (int64_t i = 0; i < places; i++, exact_next(p.rank, p.shape, at)) {
        int64_t s = 0;
        if (!picked_at(n, out, &p, at, &j, err)) return false;
        for (int a = 0; a < values->rank; a++)
            if (values->shape[a] != 1) s += at[p.rank - values->rank + a] * own[a];
        if (adds) elem_set(out, j, elem_add(x, elem_get(out, j), elem_get(values, s)));
        else elem_move(out, j, values, s);
    }
    return true;
}

/* ------------------------------------------------------------------ made of numbers */

bool exact_full(Exact *x, const Node *n, Err *err)
{
    ExactTensor *out = exact_out(x, n, 0, err);
    const Arg *a = &n->arg[1];
    Elem e = a->kind == ARG_EXPR && a->e->kind != EX_FLOAT ? elem_int(a->e->i) : elem_number(exact_number(n, 1, 0));
    for (int64_t i = 0; out && i < out->n * out->width; i++) elem_set(out, i, i % out->width ? elem_int(0) : e);
    return out != NULL;
}

static Elem number_at(const Node *n, int k, double missing)
{
    const Arg *a = &n->arg[k];
    return a->kind == ARG_EXPR && a->e->kind != EX_FLOAT ? elem_int(a->e->i) : elem_number(exact_number(n, k, missing));
}

bool exact_arange(Exact *x, const Node *n, Err *err)
{
    ExactTensor *out = exact_out(x, n, 0, err);
    Elem start = number_at(n, 0, 0), step = n->arg[2].kind == ARG_EXPR ? number_at(n, 2, 1) : elem_int(1);
    if (out && !out->r) {
        start = elem_int((int64_t)exact_number(n, 0, 0));
        step = elem_int((int64_t)exact_number(n, 2, 1));
    }
    for (int64_t i = 0; out && i < out->n; i++) elem_set(out, i, elem_add(x, start, elem_mul(x, elem_int(i), step)));
    return out != NULL;
}

bool exact_linspace(Exact *x, const Node *n, Err *err)
{
    ExactTensor *out = exact_out(x, n, 0, err);
    Elem start = number_at(n, 0, 0), range = elem_sub(x, number_at(n, 1, 0), start);
    for (int64_t i = 0; out && i < out->n; i++) {
        Elem part = out->n > 1 ? elem_div(x, elem_int(i), elem_int(out->n - 1)) : elem_int(0);
        elem_set(out, i, elem_add(x, start, elem_mul(x, range, part)));
    }
    return out != NULL;
}

bool exact_eye(Exact *x, const Node *n, Err *err)
{
    ExactTensor *out = exact_out(x, n, 0, err);
    for (int64_t i = 0; out && i < out->n; i++) elem_set(out, i, elem_int(i / out->shape[1] == i % out->shape[1]));
    return out != NULL;
}

static bool triangle(Exact *x, const Node *n, bool lower, Err *err)
{
    const ExactTensor *from = exact_arg(x, n, 0);
    ExactTensor *out = exact_out(x, n, 0, err);
    int64_t diagonal = exact_int(n, 1, 0);
    for (int64_t i = 0; out && i < out->n; i++) {
        int64_t cols = out->shape[out->rank - 1], row = i / cols % out->shape[out->rank - 2], off = i % cols - row;
        if (lower ? off <= diagonal : off >= diagonal) elem_move(out, i, from, i);
    }
    return out != NULL;
}

bool exact_tril(Exact *x, const Node *n, Err *err) { return triangle(x, n, true, err); }
bool exact_triu(Exact *x, const Node *n, Err *err) { return triangle(x, n, false, err); }
