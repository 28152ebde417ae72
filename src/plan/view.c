/* Views: what the plain view ops do to strides, at no cost. Column `view` of ops.def; contract in plan/call.h. */
#include <string.h>
#include "plan/view_table.h"

static void take_sizes(const Call *c, int i, Tensor *out)
{
    out->rank = c->arg[i].n;
    for (int k = 0; k < out->rank; k++) out->shape[k] = scalar_i64(c->arg[i].ss[k]);
}

/* To the element at `index` along a stride. May wrap: view_within refuses what is outside. */
static void move(Tensor *t, int64_t index, int64_t stride)
{
    if (t->data) t->data = (void *)((uintptr_t)t->data + (uintptr_t)index * (uintptr_t)stride * dtype_size(t->dtype));
}

bool view_same(const Call *c, Tensor *out)
{
    *out = *call_in(c, 0);
    return true;
}

/* Padding by nothing, as Swin's windows do where the size divides. */
bool view_constant_pad_nd(const Call *c, Tensor *out)
{
    for (int i = 0; i < c->arg[1].n; i++)
        if (scalar_i64(c->arg[1].ss[i])) return false;
    *out = *call_in(c, 0);
    return true;
}

/* Runs of input dims that are one dim in memory are re-split; at::detail::computeStride. */
bool view_reshape(const Call *c, Tensor *out)
{
    const Tensor *x = call_in(c, 0);
    *out = *x;
    take_sizes(c, 1, out);
    if (tensor_numel(x) == 0 || tensor_contiguous(x)) {
        strides_contiguous(out->rank, out->shape, out->stride);
        return true;
    }
    int o = out->rank - 1;
    int64_t chunk = x->stride[x->rank - 1], in_run = 1, out_run = 1;
    for (int d = x->rank - 1; d >= 0; d--) {
        in_run *= x->shape[d];
        if (d > 0 && (x->shape[d - 1] == 1 || x->stride[d - 1] == in_run * chunk)) continue;
        while (o >= 0 && (out_run < in_run || out->shape[o] == 1)) {
            out->stride[o] = out_run * chunk;
            out_run *= out->shape[o--];
        }
        if (out_run != in_run) return false;
        if (d > 0) {
            chunk = x->stride[d - 1];
            in_run = out_run = 1;
        }
    }
    return o < 0;
}

bool view_permute(const Call *c, Tensor *out)
{
    const Tensor *x = call_in(c, 0);
    *out = *x;
    for (int i = 0; i < x->rank; i++) {
        int64_t d = scalar_i64(c->arg[1].ss[i]);
        if (d < 0) d += x->rank;
        out->shape[i] = x->shape[d];
        out->stride[i] = x->stride[d];
    }
    return true;
}

bool view_expand(const Call *c, Tensor *out)
{
    const Tensor *x = call_in(c, 0);
    *out = *x;
    take_sizes(c, 1, out);
    int lead = out->rank - x->rank;
    for (int i = 0; i < out->rank; i++)
        out->stride[i] = i < lead || x->shape[i - lead] != out->shape[i] ? 0 : x->stride[i - lead];
    return true;
}

bool view_select(const Call *c, Tensor *out)
{
    const Tensor *x = call_in(c, 0);
    int d = call_dim(c, 1, x->rank);
    *out = *x;
    out->rank--;
    for (int i = d; i < out->rank; i++) {
        out->shape[i] = x->shape[i + 1];
        out->stride[i] = x->stride[i + 1];
    }
    move(out, call_i64(c, 2), x->stride[d]);
    return true;
}

bool view_slice(const Call *c, Tensor *out)
{
    const Tensor *x = call_in(c, 0);
    int d = call_dim(c, 1, x->rank);
    int64_t start = call_i64(c, 2), end = call_i64(c, 3), step = call_i64(c, 4);
    *out = *x;
    out->shape[d] = end > start ? 1 + (end - start - 1) / step : 0;
    if (!mul_i64(x->stride[d], step, &out->stride[d])) out->stride[d] = 0; /* nothing is a step so large away */
    move(out, start, x->stride[d]);
    return true;
}

/* PyTorch's strides count in the storage of a contiguous tensor; only such an input can be aliased. */
bool view_as_strided(const Call *c, Tensor *out)
{
    const Tensor *x = call_in(c, 0);
    if (!tensor_contiguous(x)) return false;
    *out = *x;
    take_sizes(c, 1, out);
    for (int i = 0; i < out->rank; i++) out->stride[i] = scalar_i64(c->arg[2].ss[i]);
    int64_t offset = call_i64_or(c, 3, 0);
    if (!view_in_storage(out, offset, tensor_bytes(x))) return false;
    move(out, offset, 1);
    return true;
}

bool view_diagonal(const Call *c, Tensor *out)
{
    const Tensor *x = call_in(c, 0);
    int64_t offset = call_i64(c, 1);
    int d1 = call_dim(c, 2, x->rank), d2 = call_dim(c, 3, x->rank), k = 0;
    int64_t rows = x->shape[d1] + (offset < 0 ? offset : 0), cols = x->shape[d2] - (offset > 0 ? offset : 0);
    *out = *x;
    out->rank--;
    for (int i = 0; i < x->rank; i++)
        if (i != d1 && i != d2) {
            out->shape[k] = x->shape[i];
            out->stride[k++] = x->stride[i];
        }
    int64_t n = rows < cols ? rows : cols;
    out->shape[k] = n < 0 ? 0 : n;
    out->stride[k] = x->stride[d1] + x->stride[d2];
    if (n > 0) move(out, offset >= 0 ? offset : -offset, x->stride[offset >= 0 ? d2 : d1]);
    return true;
}

bool view_unfold(const Call *c, Tensor *out)
{
    const Tensor *x = call_in(c, 0);
    int d = call_dim(c, 1, x->rank);
    int64_t size = call_i64(c, 2), step = call_i64(c, 3);
    *out = *x;
    out->rank++;
    out->shape[x->rank] = size;
    out->stride[x->rank] = x->rank ? x->stride[d] : 1;
    if (x->rank) {
        out->shape[d] = (x->shape[d] - size) / step + 1;
        if (!mul_i64(x->stride[d], step, &out->stride[d])) out->stride[d] = 0; /* nothing is a step so large away */
    }
    return true;
}

bool view_view_dtype(const Call *c, Tensor *out)
{
    const Tensor *x = call_in(c, 0);
    int64_t from = (int64_t)dtype_size(x->dtype), to = (int64_t)dtype_size(c->arg[1].dtype), last = x->rank - 1;
    *out = *x;
    out->dtype = c->arg[1].dtype;
    if (from == to) return true;
    if (x->stride[last] != 1 && x->shape[last] != 1) return false;
    if (from < to && (uintptr_t)x->data % (size_t)to != 0) return false;
    for (int i = 0; i < x->rank; i++) {
        if (i != last && x->stride[i] * from % to != 0) return false;
        out->stride[i] = i == last ? 1 : x->stride[i] * from / to;
    }
    out->shape[last] = x->shape[last] * from / to;
    return true;
}

/* From the lowest to one past the highest byte of t's elements, counted from its first; false when that overflows. */
static bool extent(const Tensor *t, int64_t *lo, int64_t *hi)
{
    int64_t size = (int64_t)dtype_size(t->dtype), span;
    *lo = 0;
    *hi = size;
    for (int i = 0; i < t->rank; i++)
        if (!mul_i64(t->shape[i] - 1, t->stride[i], &span) || !mul_i64(span, size, &span) ||
            !add_i64(span < 0 ? *lo : *hi, span, span < 0 ? lo : hi))
            return false;
    return true;
}

bool view_within(const Tensor *x, const Tensor *view, int64_t shift)
{
    int64_t xlo, xhi, lo, hi;
    bool empty = false;
    for (int i = 0; i < view->rank; i++) {
        if (view->shape[i] < 0) return false;
        empty |= view->shape[i] == 0;
    }
    if (empty) return true;
    return tensor_numel(x) && extent(x, &xlo, &xhi) && extent(view, &lo, &hi) && add_i64(lo, shift, &lo) &&
           add_i64(hi, shift, &hi) && lo >= xlo && hi <= xhi;
}
