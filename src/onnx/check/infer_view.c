/* Sizes of ONNX ops that move elements, and of those that compute with sizes: Shape, Gather, Concat, Slice, Reshape.
 * Their elements are followed, so that Reshape(x, Concat(Shape(x)[0:1], [4, 8])) is known. */
#include "onnx/check/infer_impl.h"

void infer_op_transpose(OnnxInfer *f)
{
    if (!ranked(f, 0)) return;
    const OnnxShape *x = input(f, 0);
    const OnnxAttr *perm = infer_ints(f, "perm");
    OnnxSize d[MAX_RANK];
    bool seen[MAX_RANK] = {0};
    if (perm && perm->n != x->rank) {
        infer_refuse(f, "perm has %d entries for %d axes", perm->n, x->rank);
        return;
    }
    for (int i = 0; i < x->rank; i++) {
        int64_t from = perm ? perm->ints[i] : x->rank - 1 - i;
        if (from < 0 || from >= x->rank || seen[from]) {
            infer_refuse(f, "perm[%d] is %lld: not a permutation of %d axes", i, (long long)from, x->rank);
            return;
        }
        seen[from] = true;
        d[i] = x->dim[from];
    }
    give(f, 0, x->rank, d);
}

void infer_op_concat(OnnxInfer *f)
{
    const OnnxNode *n = f->node;
    OnnxSize d[MAX_RANK], data[ONNX_FOLLOWED];
    int rank = -1, axis = 0, count = 0;
    for (int i = 0; i < n->ninput; i++) { /* elements, where all are followed */
        const OnnxShape *s = input(f, i);
        if (!s || s->n < 0 || s->rank > 1 || count + s->n > ONNX_FOLLOWED) count = ONNX_FOLLOWED + 1;
        for (int k = 0; s && count <= ONNX_FOLLOWED && k < s->n; k++) data[count++] = s->data[k];
    }
    if (count <= ONNX_FOLLOWED && n->ninput) infer_give_data(f, count, data);
    for (int i = 0; i < n->ninput; i++) {
        if (!ranked(f, i)) {
            if (rank >= 0) d[axis] = unknown();
            return;
        }
        const OnnxShape *s = input(f, i);
        if (rank < 0) {
            rank = s->rank;
            memcpy(d, s->dim, (size_t)rank * sizeof *d);
            axis = infer_axis(f, infer_int(f, "axis", 1), rank);
            if (axis < 0) return;
            continue;
        }
        if (s->rank != rank) {
            infer_refuse(f, "input %d has %d axes, the first has %d", i, s->rank, rank);
            return;
        }
        for (int k = 0; k < rank; k++) {
            if (k == axis) d[k] = is_number(d[k]) && is_number(s->dim[k]) ? number(d[k].v + s->dim[k].v) : unknown();
            else if (differ(d[k], s->dim[k])) {
                infer_refuse(f, "axis %d is %lld in input %d and %lld before", k, (long long)s->dim[k].v, i,
                             (long long)d[k].v);
                return;
            } else if (is_number(s->dim[k])) d[k] = s->dim[k];
        }
    }
    if (rank >= 0) give(f, 0, rank, d);
}

void infer_op_reshape(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *shape = input(f, 1);
    const OnnxAttr *old = infer_ints(f, "shape");
    OnnxSize d[MAX_RANK];
    int n = old ? old->n : shape ? shape->n : -1, wild = -1;
    if (n < 0) {
        if (shape && shape->rank == 1 && is_number(shape->dim[0]))
            give_rank(f, 0, shape->dim[0].v <= MAX_RANK ? (int)shape->dim[0].v : -1);
        return;
    }
    if (n > MAX_RANK) return;
    bool exact = infer_int(f, "allowzero", 0) != 0;
    int64_t have, want = 1;
    for (int i = 0; i < n; i++) {
        d[i] = old ? number(old->ints[i]) : shape->data[i];
        if (!is_number(d[i])) continue;
        if (d[i].v == -1) {
            if (wild >= 0) {
                infer_refuse(f, "two sizes are -1");
                return;
            }
            wild = i;
        } else if (d[i].v < -1) {
            infer_refuse(f, "size %d is %lld", i, (long long)d[i].v);
            return;
        } else if (d[i].v == 0 && !exact) {
            if (x && x->rank >= 0 && i >= x->rank) {
                infer_refuse(f, "size %d is copied from an axis that the input does not have", i);
                return;
            }
            d[i] = x && x->rank >= 0 ? x->dim[i] : unknown();
        }
    }
    bool known = x && x->rank >= 0 && infer_numel(x->rank, x->dim, &have);
    for (int i = 0; i < n && known; i++)
        if (i != wild) known = is_number(d[i]) && mul_i64(want, d[i].v, &want);
    if (wild >= 0) d[wild] = unknown();
    if (known && wild >= 0 && want && have % want)
        infer_refuse(f, "%lld elements do not divide into rows of %lld", (long long)have, (long long)want);
    else if (known && wild >= 0 && want) d[wild] = number(have / want);
    else if (known && wild < 0 && want != have)
        infer_refuse(f, "%lld elements cannot become %lld", (long long)have, (long long)want);
    give(f, 0, n, d);
    if (shape && f->in[0] && f->in[0]->n >= 0) infer_give_data(f, f->in[0]->n, f->in[0]->data);
}

void infer_op_squeeze(OnnxInfer *f, bool unsqueeze)
{
    const OnnxShape *x = input(f, 0);
    int64_t v[MAX_RANK];
    bool at[MAX_RANK] = {0};
    OnnxSize d[MAX_RANK];
    int n = infer_axes(f, 1, v);
    if (x && x->n >= 0) infer_give_data(f, x->n, x->data);
    if (!x || x->rank < 0 || n == -2 || (unsqueeze && n < 0)) return;
    int rank = unsqueeze ? x->rank + n : x->rank;
    if (rank > MAX_RANK) return;
    for (int i = 0; i < n; i++) {
        int k = infer_axis(f, v[i], rank);
        if (k < 0) return;
        if (at[k]) infer_refuse(f, "axis %d is listed twice", k);
        at[k] = true;
    }
    int m = 0;
    if (unsqueeze) {
        for (int i = 0, k = 0; i < rank; i++) d[i] = at[i] ? number(1) : x->dim[k++];
        give(f, 0, rank, d);
        return;
    }
    for (int i = 0; i < rank; i++) {
        if (n < 0 && !is_number(x->dim[i])) return; /* whether it is 1 is not known */
        bool drop = n < 0 ? is_one(x->dim[i]) : at[i];
        if (drop && is_number(x->dim[i]) && x->dim[i].v != 1)
            infer_refuse(f, "axis %d has size %lld, which cannot be squeezed", i, (long long)x->dim[i].v);
        if (!drop) d[m++] = x->dim[i];
    }
    give(f, 0, m, d);
}

void infer_op_gather(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *index = input(f, 1);
    if (!x || !index || x->rank < 0) return;
    int axis = infer_axis(f, infer_int(f, "axis", 0), x->rank);
    if (axis < 0) return;
    if (index->n >= 0 && is_number(x->dim[axis]))
        for (int i = 0; i < index->n; i++)
            if (is_number(index->data[i]) &&
                (index->data[i].v >= x->dim[axis].v || index->data[i].v < -x->dim[axis].v)) {
                infer_refuse(f, "index %lld of an axis of size %lld", (long long)index->data[i].v,
                             (long long)x->dim[axis].v);
                return;
            }
    if (x->n >= 0 && x->rank == 1 && index->n >= 0) {
        OnnxSize d[ONNX_FOLLOWED];
        for (int i = 0; i < index->n; i++) {
            int64_t k = is_number(index->data[i]) ? index->data[i].v : INT64_MAX;
            k = k < 0 ? k + x->n : k;
            d[i] = k >= 0 && k < x->n ? x->data[k] : unknown();
        }
        infer_give_data(f, index->n, d);
    }
    if (index->rank < 0 || x->rank - 1 + index->rank > MAX_RANK) return;
    OnnxSize d[MAX_RANK];
    int n = 0;
    for (int i = 0; i < axis; i++) d[n++] = x->dim[i];
    for (int i = 0; i < index->rank; i++) d[n++] = index->dim[i];
    for (int i = axis + 1; i < x->rank; i++) d[n++] = x->dim[i];
    give(f, 0, n, d);
}

void infer_op_slice(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    int64_t start[MAX_RANK], end[MAX_RANK], axis[MAX_RANK], step[MAX_RANK];
    if (!x || x->rank < 0) return;
    give_same(f, 0, 0);
    OnnxShape *o = output(f, 0);
    const OnnxAttr *s = infer_ints(f, "starts"), *e = infer_ints(f, "ends");
    int n = s ? s->n : infer_numbers(f, 1, start, MAX_RANK), m = e ? e->n : infer_numbers(f, 2, end, MAX_RANK);
    int a = infer_axes(f, 3, axis), t = input(f, 4) ? infer_numbers(f, 4, step, MAX_RANK) : -1;
    bool given = f->node->ninput > 4 && *f->node->input[4], steps = !given || t >= 0;
    if (s && n <= MAX_RANK) memcpy(start, s->ints, (size_t)n * sizeof *start);
    if (e && m <= MAX_RANK) memcpy(end, e->ints, (size_t)m * sizeof *end);
    for (int i = 0; i < x->rank; i++) o->dim[i] = a == -2 || (a == -1 && n < 0) ? unknown() : o->dim[i];
    if (a == -2) return;
    int count = a >= 0 ? a : n;
    for (int i = 0; i < count && i < MAX_RANK; i++) {
        int k = infer_axis(f, a >= 0 ? axis[i] : i, x->rank);
        if (k < 0) return;
        o->dim[k] = unknown();
        int64_t d = is_number(x->dim[k]) ? x->dim[k].v : -1, by = t > i ? step[i] : 1;
        if (d < 0 || n <= i || m <= i || !steps) continue;
        if (by == 0) {
            infer_refuse(f, "step 0 along axis %d", k);
            return;
        }
        int64_t lo = start[i] < 0 ? start[i] + d : start[i], hi = end[i] < 0 ? (end[i] < -d ? -1 : end[i] + d) : end[i];
        if (by > 0) {
            lo = lo < 0 ? 0 : lo > d ? d : lo;
            hi = hi < 0 ? 0 : hi > d ? d : hi;
        } else {
            lo = lo < 0 ? 0 : lo > d - 1 ? d - 1 : lo;
            hi = hi < -1 ? -1 : hi > d - 1 ? d - 1 : hi;
        }
        if (by > d || by < -d) by = by > 0 ? d + 1 : -d - 1; /* one element at most */
        int64_t len = by > 0 ? (hi - lo + by - 1) / by : by > -(1 << 30) ? (lo - hi - by - 1) / -by : 1;
        o->dim[k] = number(len > 0 ? len : 0);
        if (x->n >= 0 && x->rank == 1 && by == 1 && count == 1 && len > 0 && lo + len <= x->n)
            infer_give_data(f, (int)len, x->data + lo);
    }
}

void infer_op_split(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    int64_t v[ONNX_FOLLOWED], sum = 0;
    if (!x || x->rank < 0) return;
    int axis = infer_axis(f, infer_int(f, "axis", 0), x->rank), outs = f->node->noutput;
    if (axis < 0) return;
    const OnnxAttr *split = infer_ints(f, "split");
    bool given = split || (f->node->ninput > 1 && *f->node->input[1]);
    int n = split ? split->n : infer_numbers(f, 1, v, ONNX_FOLLOWED);
    if (split && n <= ONNX_FOLLOWED) memcpy(v, split->ints, (size_t)n * sizeof *v);
    if (given && n >= 0 && n != outs) infer_refuse(f, "%d sizes for %d outputs", n, outs);
    for (int k = 0; k < n && k < outs; k++)
        if (!add_i64(sum, v[k], &sum)) sum = -1;
    if (given && n == outs && is_number(x->dim[axis]) && sum != x->dim[axis].v)
        infer_refuse(f, "the parts have %lld elements, axis %d has %lld", (long long)sum, axis,
                     (long long)x->dim[axis].v);
    int64_t parts = infer_int(f, "num_outputs", outs);
    if (parts != outs) infer_refuse(f, "num_outputs is %lld for %d outputs", (long long)parts, outs);
    for (int k = 0; k < outs; k++) {
        give_same(f, k, 0);
        OnnxSize *d = &f->out[k].dim[axis];
        *d = unknown();
        if (given && n == outs) *d = number(v[k]);
        else if (!given && is_number(x->dim[axis]) && outs) {
            int64_t each = (x->dim[axis].v + outs - 1) / outs, last = x->dim[axis].v - each * (outs - 1);
            if (last >= 0) *d = number(k == outs - 1 ? last : each);
        }
    }
}

void infer_op_expand(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *shape = input(f, 1);
    if (!x || x->rank < 0 || !shape || shape->n < 0 || shape->n > MAX_RANK) return;
    OnnxShape out = {.rank = shape->n};
    for (int i = 0; i < shape->n; i++) out.dim[i] = shape->data[i];
    if (infer_broadcast_into(f, &out, x)) give(f, 0, out.rank, out.dim);
}

void infer_op_shape_of(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    OnnxSize d[1] = {unknown()};
    if (!x || x->rank < 0) {
        give_rank(f, 0, 1);
        return;
    }
    int64_t lo = infer_int(f, "start", 0), hi = infer_int(f, "end", x->rank);
    lo = lo < 0 ? lo + x->rank : lo;
    hi = hi < 0 ? hi + x->rank : hi;
    lo = lo < 0 ? 0 : lo > x->rank ? x->rank : lo;
    hi = hi < lo ? lo : hi > x->rank ? x->rank : hi;
    d[0] = number(hi - lo);
    give(f, 0, 1, d);
    infer_give_data(f, (int)(hi - lo), x->dim + lo);
}

void infer_op_constant(OnnxInfer *f)
{
    static const struct {
        const char *name;
        int elem;
        bool list;
    } plain[] = {{"value_int", ONNX_INT64, false},     {"value_ints", ONNX_INT64, true},
                 {"value_float", ONNX_FLOAT, false},   {"value_floats", ONNX_FLOAT, true},
                 {"value_string", ONNX_STRING, false}, {"value_strings", ONNX_STRING, true}};
    const OnnxAttr *value = onnx_attr(f->node, "value");
    int given = f->node->nattr;
    if (given != 1) {
        check_add(f->c, Q(120), f->place, "a Constant with %d values", given);
        f->bad = true;
        return;
    }
    if (value && value->t && f->node->noutput) f->out[0] = onnx_shape_of_tensor(f->c, value->t);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        const OnnxAttr *a = onnx_attr(f->node, plain[i].name);
        if (!a || *a->ref || !f->node->noutput) continue;
        OnnxSize d[ONNX_FOLLOWED] = {number(plain[i].list ? a->n : a->i)};
        f->out[0].kind = ONNX_TENSOR;
        f->out[0].elem = plain[i].elem;
        give(f, 0, plain[i].list, d);
        if (plain[i].elem != ONNX_INT64 || (plain[i].list && a->n > ONNX_FOLLOWED)) continue;
        for (int k = 0; plain[i].list && k < a->n; k++) d[k] = number(a->ints[k]);
        infer_give_data(f, plain[i].list ? a->n : 1, d);
    }
}

void infer_op_depth(OnnxInfer *f, bool to_space)
{
    const OnnxShape *x = input(f, 0);
    int64_t b = infer_int(f, "blocksize", 0);
    if (!x || x->rank < 0) return;
    if (x->rank != 4 || b <= 0) {
        infer_refuse(f, "%d axes and a block of %lld; 4 axes and a block above 0 are needed", x->rank, (long long)b);
        return;
    }
    OnnxSize d[4] = {x->dim[0], unknown(), unknown(), unknown()};
    if (b < 1 << 15)
        for (int i = 1; i < 4; i++)
            if (is_number(x->dim[i]) && x->dim[i].v < 1LL << 30)
                d[i] = number((i == 1) == to_space ? x->dim[i].v / (i == 1 ? b * b : b)
                                                   : x->dim[i].v * (i == 1 ? b * b : b));
    give(f, 0, 4, d);
}

void infer_op_flatten(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    if (!x || x->rank < 0) return;
    int64_t axis = infer_int(f, "axis", 1), v;
    if (axis < -x->rank || axis > x->rank) {
        infer_refuse(f, "axis %lld of %d axes", (long long)axis, x->rank);
        return;
    }
    int at = (int)(axis < 0 ? axis + x->rank : axis);
    OnnxSize d[2] = {unknown(), unknown()};
    if (infer_numel(at, x->dim, &v)) d[0] = number(v);
    if (infer_numel(x->rank - at, x->dim + at, &v)) d[1] = number(v);
    give(f, 0, 2, d);
}

/* ConstantOfShape */
void infer_op_from_sizes(OnnxInfer *f)
{
    const OnnxShape *s = input(f, 0);
    if (s && s->n < 0 && s->rank == 1 && is_number(s->dim[0]) && s->dim[0].v <= MAX_RANK)
        give_rank(f, 0, (int)s->dim[0].v);
    if (!s || s->n < 0 || s->n > MAX_RANK) return;
    for (int i = 0; i < s->n; i++)
        if (is_number(s->data[i]) && s->data[i].v < 0) {
            infer_refuse(f, "size %d is %lld", i, (long long)s->data[i].v);
            return;
        }
    give(f, 0, s->n, s->data);
}

void infer_op_pad_tile(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    int64_t v[2 * MAX_RANK];
    bool tile = !strcmp(f->node->op, "Tile");
    if (!x || x->rank < 0) return;
    give_rank(f, 0, x->rank);
    const OnnxAttr *pads = tile ? NULL : infer_ints(f, "pads");
    int n = pads ? pads->n : infer_numbers(f, 1, v, 2 * MAX_RANK);
    if (pads && n <= 2 * MAX_RANK) memcpy(v, pads->ints, (size_t)n * sizeof *v);
    bool axes = !tile && f->node->ninput > 3 && *f->node->input[3];
    if (n < 0 || axes || n > 2 * MAX_RANK) return;
    if (n != (tile ? x->rank : 2 * x->rank)) {
        infer_refuse(f, "%d values for %d axes", n, x->rank);
        return;
    }
    for (int i = 0; i < x->rank; i++) {
        int64_t out = 0;
        bool ok = is_number(x->dim[i]) &&
                  (tile ? mul_i64(x->dim[i].v, v[i], &out)
                        : add_i64(x->dim[i].v, v[i], &out) && add_i64(out, v[i + x->rank], &out));
        if (ok && out >= 0) output(f, 0)->dim[i] = number(out);
        else if (!is_number(x->dim[i]) && (tile ? v[i] == 1 : !v[i] && !v[i + x->rank]))
            output(f, 0)->dim[i] = x->dim[i];
    }
}
