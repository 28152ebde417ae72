/* Indexing, writing, padding. Indices that come from data are checked,
 * negative ones counted from the end where ATen does. */
#include <stdlib.h>
#include <string.h>
#include "kernel/kernel.h"
#include "run/pointwise.h"
#include "run/run_table.h"

static bool copied(Call *c, Tensor *out, const Tensor *in, Err *err)
{
    return run_copy_tensor(out, in, c->env->threads) ||
           call_fail(c, E_UNSUPPORTED, err, "a copy of %s", dtype_name(in->dtype));
}

/* view = src element by element; the view may have any strides, src is contiguous and of the same dtype and sizes. */
static void write_view(const Tensor *view, const Tensor *src)
{
    size_t size = dtype_size(view->dtype);
    int64_t inner = view->rank ? view->shape[view->rank - 1] : 1, rows = inner ? tensor_numel(view) / inner : 0;
    int64_t step = view->rank ? view->stride[view->rank - 1] : 1;
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = r, offset = 0;
        for (int d = view->rank - 2; d >= 0; d--) {
            offset += at % view->shape[d] * view->stride[d];
            at /= view->shape[d];
        }
        char *to = (char *)view->data + offset * (int64_t)size;
        const char *from = (const char *)src->data + (size_t)(r * inner) * size;
        if (step == 1) memcpy(to, from, (size_t)inner * size);
        else
            for (int64_t i = 0; i < inner; i++) memcpy(to + i * step * (int64_t)size, from + (size_t)i * size, size);
    }
}

/* ------------------------------------------------------------------ looking up */

/* The indices as i64, checked against [low, n); those below 0 are counted from the end. */
static const int64_t *checked(Call *c, const Tensor *index, int64_t n, bool negative, const char *what, Err *err)
{
    int64_t count = tensor_numel(index), low = negative ? -n : 0;
    int64_t *out = call_scratch(c, (size_t)count * sizeof *out, err);
    const Tensor *flat = out ? call_contiguous(c, index, DT_I64, err) : NULL;
    if (!flat) return NULL;
    const int64_t *from = flat->data;
    for (int64_t i = 0; i < count; i++) {
        if (from[i] < low || from[i] >= n) {
            call_fail(c, E_USAGE, err, "%s %lld at position %lld is out of range: allowed is %lld to %lld", what,
                      (long long)from[i], (long long)i, (long long)low, (long long)(n - 1));
            return NULL;
        }
        out[i] = from[i] < 0 ? from[i] + n : from[i];
    }
    return out;
}

bool run_embedding(Call *c, Err *err)
{
    const Tensor *w = call_in(c, 0);
    if (tensor_numel(call_out(c, 0)) == 0) return true;
    if (!(w->stride[1] == 1 && w->stride[0] == w->shape[1])) TRY(w = call_contiguous(c, w, DT_NONE, err));
    const int64_t *index = checked(c, call_in(c, 1), w->shape[0], false, "index", err);
    TRY(index);
    kernels()->index.rows(call_out(c, 0)->data, w->data, index, tensor_numel(call_in(c, 1)),
                          (size_t)w->shape[1] * dtype_size(w->dtype), c->env->threads);
    return true;
}

bool run_index_select(Call *c, Err *err)
{
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_NONE, err);
    Tensor *out = call_out(c, 0);
    TRY(x);
    int d = call_dim(c, 1, x->rank);
    int64_t outer = 1, inner = 1, n = x->rank ? x->shape[d] : 1, m = tensor_numel(call_in(c, 2));
    const int64_t *index = checked(c, call_in(c, 2), n, false, "index", err);
    TRY(index);
    for (int i = 0; i < d; i++) outer *= x->shape[i];
    for (int i = d + 1; i < x->rank; i++) inner *= x->shape[i];
    size_t bytes = (size_t)inner * dtype_size(x->dtype);
    for (int64_t o = 0; o < outer && bytes; o++)
        kernels()->index.rows((char *)out->data + (size_t)(o * m) * bytes,
                              (const char *)x->data + (size_t)(o * n) * bytes, index, m, bytes, c->env->threads);
    return true;
}

/* Strides of the dims of `index` in a contiguous tensor x of the same rank; the stride along d apart. */
static int64_t position(const Tensor *index, const Tensor *x, int d, int64_t i, int64_t along)
{
    int64_t offset = 0;
    for (int k = index->rank - 1; k >= 0; k--) {
        offset += (k == d ? along : i % index->shape[k]) * x->stride[k];
        i /= index->shape[k];
    }
    return offset;
}

bool run_gather(Call *c, Err *err)
{
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_NONE, err), *index = call_in(c, 2);
    Tensor *out = call_out(c, 0);
    TRY(x);
    int d = call_dim(c, 1, x->rank);
    const int64_t *at = checked(c, index, x->rank ? x->shape[d] : 1, false, "index", err);
    TRY(at);
    size_t size = dtype_size(x->dtype);
    for (int k = 0; k < index->rank && k < x->rank; k++)
        if (k != d && index->shape[k] > x->shape[k])
            return call_fail(c, E_USAGE, err, "index has size %lld in dim %d, the tensor %lld",
                             (long long)index->shape[k], k, (long long)x->shape[k]);
    for (int64_t i = 0; i < tensor_numel(out); i++) {
        int64_t p = x->rank ? position(index, x, d, i, at[i]) : 0;
        memcpy((char *)out->data + (size_t)i * size, (const char *)x->data + (size_t)p * size, size);
    }
    return true;
}

/* ------------------------------------------------------------------ advanced indexing */

/* Where x[indices] is: `count` offsets of index tuples, and the dims that are not indexed. */
typedef struct Picked {
    int64_t count, *offset;
    int before, rank, first;                   /* dims kept before / in all; where the index dims stand in the result */
    int64_t shape[MAX_RANK], stride[MAX_RANK]; /* kept dims */
} Picked;

static bool pick(Call *c, const Tensor *x, const CallArg *list, Picked *p, Err *err)
{
    const Tensor *index[MAX_RANK];
    int dim[MAX_RANK], n = 0, rank = 0;
    int64_t shape[MAX_RANK];
    bool apart = false;
    for (int i = 0; i < list->n; i++) {
        if (!list->ts[i]) continue;
        apart |= n && dim[n - 1] != i - 1;
        index[n] = list->ts[i];
        dim[n++] = i;
    }
    for (int k = 0; k < n; k++)
        if (index[k]->rank > rank) rank = index[k]->rank;
    for (int d = 0; d < rank; d++) shape[d] = 1;
    for (int k = 0; k < n; k++)
        for (int d = 0; d < index[k]->rank; d++)
            if (index[k]->shape[d] != 1) shape[rank - index[k]->rank + d] = index[k]->shape[d];
    p->count = 1;
    for (int d = 0; d < rank; d++) p->count *= shape[d];
    p->offset = call_scratch(c, (size_t)p->count * sizeof *p->offset, err);
    TRY(p->offset);
    memset(p->offset, 0, (size_t)p->count * sizeof *p->offset);
    for (int k = 0; k < n; k++) {
        Tensor wide = *index[k];
        wide.rank = rank;
        for (int d = 0; d < rank; d++) {
            int from = d - (rank - index[k]->rank);
            wide.shape[d] = shape[d];
            wide.stride[d] = from < 0 || index[k]->shape[from] == 1 ? 0 : index[k]->stride[from];
        }
        const int64_t *at = checked(c, &wide, x->shape[dim[k]], true, "index", err);
        TRY(at);
        for (int64_t i = 0; i < p->count; i++) p->offset[i] += at[i] * x->stride[dim[k]];
    }
    p->rank = p->before = 0;
    for (int i = 0, k = 0; i < x->rank; i++) {
        if (k < n && dim[k] == i) {
            k++;
            continue;
        }
        if (!apart && i < dim[0]) p->before++;
        p->shape[p->rank] = x->shape[i];
        p->stride[p->rank++] = x->stride[i];
    }
    return true;
}

/* Walks the result in order and hands out runs of elements that are contiguous in x. */
typedef void EachRun(void *user, int64_t in_result, int64_t in_x, int64_t n);

static void each_run(const Picked *p, EachRun *f, void *user)
{
    int64_t outer = 1, inner = 1, run = 1;
    for (int i = 0; i < p->before; i++) outer *= p->shape[i];
    for (int i = p->before; i < p->rank; i++) inner *= p->shape[i];
    int last = p->rank; /* trailing kept dims that are contiguous make a run */
    while (last > p->before && p->stride[last - 1] == run) run *= p->shape[--last];
    if (outer * inner * p->count == 0) return;
    for (int64_t o = 0; o < outer; o++) {
        int64_t at = o, base = 0;
        for (int i = p->before - 1; i >= 0; i--) {
            base += at % p->shape[i] * p->stride[i];
            at /= p->shape[i];
        }
        for (int64_t k = 0; k < p->count; k++)
            for (int64_t r = 0; r < inner / run; r++) {
                int64_t rest = r, more = 0;
                for (int i = last - 1; i >= p->before; i--) {
                    more += rest % p->shape[i] * p->stride[i];
                    rest /= p->shape[i];
                }
                f(user, ((o * p->count + k) * (inner / run) + r) * run, base + p->offset[k] + more, run);
            }
    }
}

typedef struct Moving {
    char *result, *x;
    size_t size;
    DType t;
} Moving;

static void take_run(void *user, int64_t result, int64_t x, int64_t n)
{
    Moving *m = user;
    memcpy(m->result + (size_t)result * m->size, m->x + (size_t)x * m->size, (size_t)n * m->size);
}

static void put_run(void *user, int64_t result, int64_t x, int64_t n)
{
    Moving *m = user;
    memcpy(m->x + (size_t)x * m->size, m->result + (size_t)result * m->size, (size_t)n * m->size);
}

static void add_element(DType t, void *to, const void *from)
{
    if (dtype_is_float(t)) store_f64(t, to, load_f64(t, to) + load_f64(t, from));
    else store_i64(t, to, (int64_t)((uint64_t)load_i64(t, to) + (uint64_t)load_i64(t, from)));
}

static void add_run(void *user, int64_t result, int64_t x, int64_t n)
{
    Moving *m = user;
    for (int64_t i = 0; i < n; i++)
        add_element(m->t, m->x + (size_t)(x + i) * m->size, m->result + (size_t)(result + i) * m->size);
}

bool run_index(Call *c, Err *err)
{
    Picked p;
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_NONE, err);
    TRY(x && pick(c, x, &c->arg[1], &p, err));
    Moving m = {call_out(c, 0)->data, x->data, dtype_size(x->dtype), x->dtype};
    each_run(&p, take_run, &m);
    return true;
}

bool run_index_put(Call *c, Err *err)
{
    Picked p;
    Tensor *out = call_out(c, 0), wide;
    TRY(copied(c, out, call_in(c, 0), err) && pick(c, out, &c->arg[1], &p, err));
    const Tensor *v = call_in(c, 2);
    /* values broadcast to the shape of x[indices]: kept dims before, index dims, kept dims after */
    const CallArg *list = &c->arg[1];
    int common = 0, n = 0;
    int64_t shape[MAX_RANK];
    for (int i = 0; i < list->n; i++)
        if (list->ts[i] && list->ts[i]->rank > common) common = list->ts[i]->rank;
    for (int i = 0; i < p.before; i++) shape[n++] = p.shape[i];
    int at = n;
    for (int i = 0; i < common; i++) shape[n++] = 1;
    for (int i = 0; i < list->n; i++)
        for (int d = 0; list->ts[i] && d < list->ts[i]->rank; d++)
            if (list->ts[i]->shape[d] != 1) shape[at + common - list->ts[i]->rank + d] = list->ts[i]->shape[d];
    for (int i = p.before; i < p.rank; i++) shape[n++] = p.shape[i];
    wide = *v;
    wide.rank = n;
    for (int d = 0; d < n; d++) {
        int from = d - (n - v->rank);
        wide.shape[d] = shape[d];
        wide.stride[d] = from < 0 || v->shape[from] == 1 ? 0 : v->stride[from];
    }
    const Tensor *flat = call_contiguous(c, &wide, DT_NONE, err);
    TRY(flat);
    Moving m = {flat->data, out->data, dtype_size(out->dtype), out->dtype};
    each_run(&p, call_bool(c, 3) ? add_run : put_run, &m);
    return true;
}

bool call_counted(Call *c, int64_t found, Err *err)
{
    Tensor *out = call_out(c, 0);
    if (!out->data) out->shape[0] = found;
    c->env->recount |= out->shape[0] != found;
    return out->shape[0] == found || call_fail(c, E_USAGE, err, "%lld results, where %lld were counted before",
                                               (long long)found, (long long)out->shape[0]);
}

/* Without memory for its result it counts only: that is how the session finds the size (data_sizes.c). */
bool run_nonzero(Call *c, Err *err)
{
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_NONE, err);
    Tensor *out = call_out(c, 0);
    TRY(x);
    int64_t n = tensor_numel(x), found = 0, *to = out->data;
    size_t size = dtype_size(x->dtype);
    for (int64_t i = 0; i < n; i++) {
        const char *p = (const char *)x->data + (size_t)i * size;
        if (dtype_is_float(x->dtype) ? load_f64(x->dtype, p) == 0 : load_i64(x->dtype, p) == 0) continue;
        int64_t at = i;
        bool room = to && found < out->shape[0];
        for (int d = x->rank - 1; d >= 0 && room; d--) {
            to[found * x->rank + d] = at % x->shape[d];
            at /= x->shape[d];
        }
        found++;
    }
    if (!to) out->shape[1] = x->rank;
    return call_counted(c, found, err);
}

/* Positions 0, 1, ... each as often as its count says. Without memory for its result it counts only. */
bool run_repeats(Call *c, Err *err)
{
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_I64, err);
    Tensor *out = call_out(c, 0);
    TRY(x);
    const int64_t *n = x->data;
    int64_t total = 0, *to = out->data;
    for (int64_t i = 0; i < tensor_numel(x); i++) {
        if (n[i] < 0)
            return call_fail(c, E_USAGE, err, "repeat count %lld at position %lld is negative", (long long)n[i],
                             (long long)i);
        if (n[i] > INT64_MAX - total || (to && total + n[i] > out->shape[0]))
            return call_fail(c, E_USAGE, err, "more repeats than the given output size %lld", (long long)out->shape[0]);
        for (int64_t k = 0; k < n[i] && to; k++) to[total + k] = i;
        total += n[i];
    }
    if (to && total < out->shape[0])
        return call_fail(c, E_USAGE, err, "%lld repeats, fewer than the given output size %lld", (long long)total,
                         (long long)out->shape[0]);
    if (!to) out->shape[0] = total;
    return true;
}

/* The first position in a sorted row whose element is not below x (right: is above x). */
bool run_searchsorted(Call *c, Err *err)
{
    const Tensor *s = call_contiguous(c, call_in(c, 0), DT_NONE, err),
                 *x = s ? call_contiguous(c, call_in(c, 1), DT_NONE, err) : NULL;
    Tensor *out = call_out(c, 0);
    if (!s || !x) return false;
    bool right = call_bool(c, 3), is_float = dtype_is_float(s->dtype);
    int64_t n = s->shape[s->rank - 1], per_row = s->rank > 1 && x->rank ? x->shape[x->rank - 1] : tensor_numel(x);
    size_t size = dtype_size(s->dtype);
    for (int64_t i = 0; i < tensor_numel(x); i++) {
        const char *row = (const char *)s->data + (size_t)(i / per_row * n) * size,
                   *v = (const char *)x->data + (size_t)i * size;
        int64_t lo = 0, hi = n;
        while (lo < hi) {
            int64_t mid = (lo + hi) / 2;
            const char *m = row + (size_t)mid * size;
            bool below = is_float ? (right ? !(load_f64(s->dtype, m) > load_f64(s->dtype, v))
                                           : !(load_f64(s->dtype, m) >= load_f64(s->dtype, v)))
                                  : (right ? load_i64(s->dtype, m) <= load_i64(s->dtype, v)
                                           : load_i64(s->dtype, m) < load_i64(s->dtype, v));
            if (below) lo = mid + 1;
            else hi = mid;
        }
        ((int64_t *)out->data)[i] = lo;
    }
    return true;
}

/* ------------------------------------------------------------------ writing */

/* One element combined with another: scatter_reduce's sum, prod, amax, amin (mean divides afterwards). */
typedef enum Combine { COMBINE_SET, COMBINE_ADD, COMBINE_PROD, COMBINE_MAX, COMBINE_MIN } Combine;

static void combine(Combine how, DType t, void *to, const void *from)
{
    if (how == COMBINE_SET) memcpy(to, from, dtype_size(t));
    else if (how == COMBINE_ADD) add_element(t, to, from);
    else if (dtype_is_float(t)) {
        double a = load_f64(t, to), b = load_f64(t, from);
        store_f64(t, to,
                  how == COMBINE_PROD               ? a * b
                  : a != a                          ? a
                  : b != b                          ? b
                  : (how == COMBINE_MAX) == (a > b) ? a
                                                    : b);
    } else {
        int64_t a = load_i64(t, to), b = load_i64(t, from);
        store_i64(t, to,
                  how == COMBINE_PROD               ? (int64_t)((uint64_t)a * (uint64_t)b)
                  : (how == COMBINE_MAX) == (a > b) ? a
                                                    : b);
    }
}

/* counts, if given: how often each element of the result was written. fresh: the first write sets. */
static bool scatter(Call *c, Combine how, int64_t *counts, bool fresh, Err *err)
{
    Tensor *out = call_out(c, 0);
    const Tensor *index = call_in(c, 2), *src = call_in(c, 3);
    int d = call_dim(c, 1, out->rank);
    TRY(copied(c, out, call_in(c, 0), err));
    const int64_t *at = checked(c, index, out->rank ? out->shape[d] : 1, false, "index", err);
    TRY(at && (src = call_contiguous(c, src, DT_NONE, err)));
    size_t size = dtype_size(out->dtype);
    for (int k = 0; k < index->rank; k++)
        if (index->shape[k] > src->shape[k] || (k != d && index->shape[k] > out->shape[k]))
            return call_fail(c, E_USAGE, err, "index has size %lld in dim %d, more than the tensors",
                             (long long)index->shape[k], k);
    for (int64_t i = 0; i < tensor_numel(index); i++) {
        int64_t to = position(index, out, d, i, at[i]), rest = i, from = 0;
        for (int k = index->rank - 1; k >= 0; k--) {
            from += rest % index->shape[k] * src->stride[k];
            rest /= index->shape[k];
        }
        char *p = (char *)out->data + (size_t)to * size;
        const char *q = (const char *)src->data + (size_t)from * size;
        combine(fresh && counts[to] == 0 ? COMBINE_SET : how, out->dtype, p, q);
        if (counts) counts[to]++;
    }
    return true;
}

bool run_scatter(Call *c, Err *err) { return scatter(c, COMBINE_SET, NULL, false, err); }
bool run_scatter_add(Call *c, Err *err) { return scatter(c, COMBINE_ADD, NULL, false, err); }

bool run_scatter_reduce(Call *c, Err *err)
{
    static const struct {
        const char *name;
        Combine how;
    } kinds[] = {{"sum", COMBINE_ADD},
                 {"mean", COMBINE_ADD},
                 {"prod", COMBINE_PROD},
                 {"amax", COMBINE_MAX},
                 {"amin", COMBINE_MIN}};
    Tensor *out = call_out(c, 0);
    int k = 0;
    while (strcmp(kinds[k].name, c->arg[4].str)) k++;
    int64_t n = tensor_numel(out), *counts = call_scratch(c, (size_t)n * sizeof *counts, err);
    TRY(counts);
    memset(counts, 0, (size_t)n * sizeof *counts);
    bool include = call_bool(c, 5);
    TRY(scatter(c, kinds[k].how, counts, !include, err));
    for (int64_t i = 0; k == 1 && i < n; i++) {
        char *p = (char *)out->data + (size_t)i * dtype_size(out->dtype);
        int64_t m = counts[i] + include, v = load_i64(out->dtype, p);
        if (m < 2) continue;
        if (dtype_is_float(out->dtype)) store_f64(out->dtype, p, load_f64(out->dtype, p) / (double)m);
        else store_i64(out->dtype, p, v / m - (v % m != 0 && v < 0));
    }
    return true;
}

/* out = self with src written where a view of it is */
static bool write_part(Call *c, Tensor view, Err *err)
{
    const Tensor *src = call_in(c, 1);
    Tensor wide = *src;
    wide.rank = view.rank;
    for (int d = 0; d < view.rank; d++) {
        int from = d - (view.rank - src->rank);
        if (from >= 0 && src->shape[from] != 1 && src->shape[from] != view.shape[d])
            return call_fail(c, E_USAGE, err, "size %lld in dim %d of what is written, expected %lld",
                             (long long)src->shape[from], from, (long long)view.shape[d]);
        wide.shape[d] = view.shape[d];
        wide.stride[d] = from < 0 || src->shape[from] == 1 ? 0 : src->stride[from];
    }
    const Tensor *flat = call_contiguous(c, &wide, view.dtype, err);
    TRY(flat);
    write_view(&view, flat);
    return true;
}

bool run_slice_scatter(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0), view = *out;
    int d = call_dim(c, 2, out->rank);
    int64_t start = call_i64(c, 3), end = call_i64(c, 4), step = call_i64(c, 5);
    TRY(copied(c, out, call_in(c, 0), err));
    view.shape[d] = end > start ? 1 + (end - start - 1) / step : 0;
    if (!mul_i64(view.stride[d], step, &view.stride[d])) view.stride[d] = 0; /* nothing is a step so large away */
    view.data = (char *)out->data + start * out->stride[d] * (int64_t)dtype_size(out->dtype);
    return write_part(c, view, err);
}

bool run_select_scatter(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0), view = *out;
    int d = call_dim(c, 2, out->rank);
    TRY(copied(c, out, call_in(c, 0), err));
    view.data = (char *)out->data + call_i64(c, 3) * out->stride[d] * (int64_t)dtype_size(out->dtype);
    view.rank--;
    for (int i = d; i < view.rank; i++) {
        view.shape[i] = view.shape[i + 1];
        view.stride[i] = view.stride[i + 1];
    }
    return write_part(c, view, err);
}

bool run_diagonal_scatter(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0), view = *out;
    int64_t offset = call_i64(c, 2);
    int d1 = call_dim(c, 3, out->rank), d2 = call_dim(c, 4, out->rank), k = 0;
    TRY(copied(c, out, call_in(c, 0), err));
    int64_t rows = out->shape[d1] + (offset < 0 ? offset : 0), cols = out->shape[d2] - (offset > 0 ? offset : 0),
            n = rows < cols ? rows : cols;
    if (n <= 0) return true;
    for (int i = 0; i < out->rank; i++)
        if (i != d1 && i != d2) {
            view.shape[k] = out->shape[i];
            view.stride[k++] = out->stride[i];
        }
    view.shape[k] = n;
    view.stride[k++] = out->stride[d1] + out->stride[d2];
    view.rank = k;
    int64_t first = offset >= 0 ? offset * out->stride[d2] : -offset * out->stride[d1];
    view.data = (char *)out->data + first * (int64_t)dtype_size(out->dtype);
    return write_part(c, view, err);
}

bool run_as_strided_scatter(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0), view = *out;
    TRY(copied(c, out, call_in(c, 0), err));
    view.rank = call_ints(c, 2, view.shape, MAX_RANK);
    call_ints(c, 3, view.stride, MAX_RANK);
    int64_t offset = call_i64_or(c, 4, 0);
    if (!view_in_storage(&view, offset, tensor_bytes(out)))
        return call_fail(c, E_USAGE, err, "sizes and strides reach beyond the tensor");
    view.data = (char *)out->data + offset * (int64_t)dtype_size(out->dtype);
    return write_part(c, view, err);
}

/* ------------------------------------------------------------------ maps */

/* map[d][i]: which element of dim d lands at i of the output; -1: the fill */
typedef struct Maps {
    int64_t *map[MAX_RANK];
} Maps;

static bool make_maps(Call *c, const Tensor *out, Maps *m, Err *err)
{
    for (int d = 0; d < out->rank; d++) TRY(m->map[d] = call_scratch(c, (size_t)out->shape[d] * sizeof(int64_t), err));
    return true;
}

static void apply_maps(Call *c, const Tensor *in, Tensor *out, const Maps *m, const void *fill)
{
    if (tensor_numel(out) == 0) return;
    kernels()->index.map(out->data, in->data, out->rank, out->shape, in->stride, (const int64_t *const *)m->map, fill,
                         dtype_size(out->dtype), c->env->threads);
}

bool run_flip(Call *c, Err *err)
{
    Tensor *out = call_out(c, 0);
    int64_t dims[MAX_RANK];
    int n = call_ints(c, 1, dims, MAX_RANK);
    Maps m;
    TRY(make_maps(c, out, &m, err));
    for (int d = 0; d < out->rank; d++) {
        bool flipped = false;
        for (int k = 0; k < n; k++) flipped |= (dims[k] < 0 ? dims[k] + out->rank : dims[k]) == d;
        for (int64_t i = 0; i < out->shape[d]; i++) m.map[d][i] = flipped ? out->shape[d] - 1 - i : i;
    }
    apply_maps(c, call_in(c, 0), out, &m, NULL);
    return true;
}

typedef enum PadMode { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE } PadMode;

static int64_t padded_index(int64_t i, int64_t n, PadMode mode)
{
    if (i >= 0 && i < n) return i;
    if (mode == PAD_CONSTANT) return -1;
    if (mode == PAD_REPLICATE) return i < 0 ? 0 : n - 1;
    return i < 0 ? -i : 2 * (n - 1) - i;
}

/* n elements of `size` bytes, all alike: twice as many by each copy. */
static void fill_with(char *to, int64_t n, const void *fill, size_t size)
{
    const size_t all = (size_t)n * size;
    if (!n) return;
    memcpy(to, fill, size);
    for (size_t done = size; done < all; done *= 2) memcpy(to + done, to, all - done < done ? all - done : done);
}

/* A constant before and after the elements of one dim d: what is between is copied, rows of d by blocks small enough
 * that an operand whose axes are in another order is read from the cache for each of the outer dims' indices. */
static void pad_one(const Call *c, int d, int64_t before, const void *fill)
{
    enum { BLOCK = 1 << 18 };
    const Tensor *x = call_in(c, 0);
    Tensor *out = call_out(c, 0);
    int64_t outer = 1, inner = 1, n = x->shape[d], all = out->shape[d];
    for (int k = 0; k < d; k++) outer *= x->shape[k];
    for (int k = d + 1; k < x->rank; k++) inner *= x->shape[k];
    size_t size = dtype_size(out->dtype);
    int64_t fit = BLOCK / (outer * inner * (int64_t)size), each = fit > 1 ? fit : 1, blocks = (n + each - 1) / each,
            pads = all - n > 0;
#pragma omp parallel for num_threads(c->env->threads) if (tensor_numel(out) > 1 << 15) schedule(static)
    for (int64_t i = 0; i < blocks + pads; i++)
        for (int64_t o = 0; o < outer; o++) {
            char *to = (char *)out->data + (size_t)(o * all * inner) * size;
            if (i == blocks) {
                fill_with(to, before * inner, fill, size);
                fill_with(to + (size_t)((before + n) * inner) * size, (all - n - before) * inner, fill, size);
                continue;
            }
            Tensor from = {.dtype = x->dtype, .rank = x->rank - d, .data = x->data}, part = from;
            for (int64_t k = d - 1, at = o; k >= 0; at /= x->shape[k--])
                from.data = (char *)from.data + at % x->shape[k] * x->stride[k] * (int64_t)size;
            for (int k = d; k < x->rank; k++) {
                from.shape[k - d] = part.shape[k - d] = k > d ? x->shape[k] : i + 1 < blocks ? each : n - i * each;
                from.stride[k - d] = x->stride[k];
            }
            strides_contiguous(part.rank, part.shape, part.stride);
            from.data = (char *)from.data + i * each * x->stride[d] * (int64_t)size;
            part.data = to + (size_t)((before + i * each) * inner) * size;
            run_copy_tensor(&part, &from, 1);
        }
}

/* A constant around a picture, channels-last before and after: it goes everywhere first, then rows of pixels. */
static void pad_picture(const Call *c, const int64_t *pad, int n, const void *fill)
{
    const Tensor *x = call_in(c, 0);
    Tensor *out = call_out(c, 0);
    int64_t size = (int64_t)dtype_size(out->dtype), all = tensor_numel(out), C = x->shape[1], rows = x->shape[0];
    int last = x->rank - 1;
    fill_with(out->data, all, fill, (size_t)size);
    for (int d = 2; d < last; d++) rows *= x->shape[d];
#pragma omp parallel for num_threads(c->env->threads) if (all > 1 << 15) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        int64_t from = 0, to = n ? pad[0] * out->stride[last] : 0, at = i;
        for (int d = last - 1; d >= 0; d--) {
            int64_t size_d = d == 1 ? 1 : x->shape[d], k = 2 * (last - d), before = d > 1 && k < n ? pad[k] : 0;
            from += at % size_d * x->stride[d];
            to += (at % size_d + before) * out->stride[d];
            at /= size_d;
        }
        memcpy((char *)out->data + to * size, (const char *)x->data + from * size, (size_t)(x->shape[last] * C * size));
    }
}

/* The same of any axes, where rows of the last one lie side by side before and after. */
static void pad_rows(const Call *c, const int64_t *pad, int n, const void *fill)
{
    const Tensor *x = call_in(c, 0);
    Tensor *out = call_out(c, 0);
    const int last = x->rank - 1;
    const size_t size = dtype_size(out->dtype), row = (size_t)x->shape[last] * size;
    const int64_t all = tensor_numel(out), rows = tensor_numel(x) / x->shape[last];
    fill_with(out->data, all, fill, size);
#pragma omp parallel for num_threads(c->env->threads) if (all > 1 << 15) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        int64_t from = 0, to = n ? pad[0] : 0, at = i;
        for (int d = last - 1; d >= 0; at /= x->shape[d--]) {
            const int k = 2 * (last - d);
            from += at % x->shape[d] * x->stride[d];
            to += (at % x->shape[d] + (k < n ? pad[k] : 0)) * out->stride[d];
        }
        memcpy((char *)out->data + (size_t)to * size, (const char *)x->data + (size_t)from * size, row);
    }
}

/* The only dim that grows, none shrinking; -1: there is none, or more. */
static int one_dim(const Call *c)
{
    const Tensor *x = call_in(c, 0);
    int only = -1, grows = 0;
    for (int d = 0; d < x->rank; d++) {
        if (call_out(c, 0)->shape[d] == x->shape[d]) continue;
        only = d;
        grows++;
    }
    return grows == 1 ? only : -1;
}

static bool padded(Call *c, PadMode mode, const void *fill, Err *err)
{
    const Tensor *x = call_in(c, 0);
    Tensor *out = call_out(c, 0);
    int64_t pad[2 * MAX_RANK];
    int n = call_ints(c, 1, pad, 2 * MAX_RANK);
    bool grows = mode == PAD_CONSTANT && tensor_numel(x) > 0;
    for (int k = 0; k < n; k++) grows &= pad[k] >= 0;
    if (grows && !tensor_contiguous(out)) { /* as plan/layout.c wants it */
        pad_picture(c, pad, n, fill);
        return true;
    }
    int only = grows ? one_dim(c) : -1;
    if (only >= 0) {
        pad_one(c, only, 2 * (x->rank - 1 - only) < n ? pad[2 * (x->rank - 1 - only)] : 0, fill);
        return true;
    }
    if (grows && x->rank && x->stride[x->rank - 1] == 1) {
        pad_rows(c, pad, n, fill);
        return true;
    }
    Maps m;
    TRY(make_maps(c, out, &m, err));
    for (int d = 0; d < x->rank; d++) {
        int k = 2 * (x->rank - 1 - d);
        int64_t before = k < n ? pad[k] : 0, after = k < n ? pad[k + 1] : 0,
                most = mode != PAD_REFLECT ? INT64_MAX : x->shape[d] ? x->shape[d] - 1 : 0;
        if (mode != PAD_CONSTANT && (before > most || after > most || (x->shape[d] == 0 && (before > 0 || after > 0))))
            return call_fail(c, E_USAGE, err, "padding of %lld and %lld for size %lld of dim %d", (long long)before,
                             (long long)after, (long long)x->shape[d], d);
        for (int64_t i = 0; i < out->shape[d]; i++) m.map[d][i] = padded_index(i - before, x->shape[d], mode);
    }
    apply_maps(c, x, out, &m, fill);
    return true;
}

bool run_constant_pad_nd(Call *c, Err *err)
{
    unsigned char fill[16] = {0};
    DType t = call_out(c, 0)->dtype;
    if (dtype_is_float(t)) store_f64(t, fill, call_f64(c, 2));
    else store_i64(t, fill, c->arg[2].s.kind == SC_FLOAT ? (int64_t)c->arg[2].s.f : c->arg[2].s.i);
    return padded(c, PAD_CONSTANT, fill, err);
}

bool run_reflection_pad(Call *c, Err *err) { return padded(c, PAD_REFLECT, NULL, err); }
bool run_replication_pad(Call *c, Err *err) { return padded(c, PAD_REPLICATE, NULL, err); }
