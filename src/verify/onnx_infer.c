/* Types and sizes of ONNX nodes. Contract in onnx_infer.h. Order: element types from the schema, then sizes by families of ops. */
#include "verify/onnx_infer.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

OnnxShape onnx_shape_unknown(void) { return (OnnxShape){.kind = ONNX_KIND_NONE, .rank = -1, .n = -1}; }

OnnxShape *onnx_shape_keep(Check *c, const OnnxShape *s)
{
    size_t bytes = offsetof(OnnxShape, dim) + (size_t)(s->rank > 0 ? s->rank : 0) * sizeof *s->dim;
    OnnxShape *copy = arena_alloc(c->arena, 1, bytes);
    if (copy) memcpy(copy, s, bytes);
    c->failed |= !copy;
    return copy;
}

/* A copy to change, of one that may be kept. */
static OnnxShape copy_of(const OnnxShape *s)
{
    OnnxShape c = {.kind = s->kind, .elem = s->elem, .rank = s->rank, .n = s->n, .data = s->data};
    for (int i = 0; i < s->rank; i++) c.dim[i] = s->dim[i];
    return c;
}

static OnnxSize number(int64_t v) { return (OnnxSize){SIZE_NUMBER, v}; }
static OnnxSize unknown(void) { return (OnnxSize){SIZE_UNKNOWN, 0}; }
static bool is_number(OnnxSize s) { return s.kind == SIZE_NUMBER; }
static bool is_one(OnnxSize s) { return s.kind == SIZE_NUMBER && s.v == 1; }
static bool differ(OnnxSize a, OnnxSize b) { return is_number(a) && is_number(b) && a.v != b.v; }

static bool one_of(const char *name, const char *list)
{
    size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p += n)
        if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ' ')) return n > 0;
    return false;
}

static void refuse(OnnxInfer *f, const char *fmt, ...) QKV_PRINTF(2, 3);
static void refuse(OnnxInfer *f, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    check_add(f->c, Q(204), f->place, "%s", text);
    f->bad = true;
}

/* ------------------------------------------------------------------ reading a node */

static const OnnxShape *input(const OnnxInfer *f, int i) { return i < f->node->ninput ? f->in[i] : NULL; }
static bool ranked(const OnnxInfer *f, int i) { return input(f, i) && input(f, i)->rank >= 0; }

static int64_t attr_int(const OnnxInfer *f, const char *name, int64_t otherwise)
{
    const OnnxAttr *a = onnx_attr(f->node, name);
    return a && a->type == ONNX_ATTR_INT && !*a->ref ? a->i : otherwise;
}

static const OnnxAttr *attr_ints(const OnnxInfer *f, const char *name)
{
    const OnnxAttr *a = onnx_attr(f->node, name);
    return a && a->type == ONNX_ATTR_INTS ? a : NULL;
}

static bool attr_is(const OnnxInfer *f, const char *name, const char *text)
{
    const OnnxAttr *a = onnx_attr(f->node, name);
    return a && a->type == ONNX_ATTR_STRING && !*a->ref && !strcmp(a->s, text);
}

/* An axis in -rank .. rank - 1, normalised; -1 after a finding. */
static int axis_of(OnnxInfer *f, int64_t axis, int rank)
{
    if (axis < -rank || axis >= rank) {
        refuse(f, "axis %lld of %d axes", (long long)axis, rank);
        return -1;
    }
    return (int)(axis < 0 ? axis + rank : axis);
}

/* Elements of input i as numbers; -1 when they are not all known. */
static int input_numbers(const OnnxInfer *f, int i, int64_t *v, int cap)
{
    const OnnxShape *s = input(f, i);
    if (!s || s->n < 0 || s->n > cap) return -1;
    for (int k = 0; k < s->n; k++) {
        if (!is_number(s->data[k])) return -1;
        v[k] = s->data[k].v;
    }
    return s->n;
}

/* "axes" as attribute or as input `i`; -1: not given, -2: not known. */
static int axes_of(const OnnxInfer *f, int i, int64_t *v)
{
    const OnnxAttr *a = attr_ints(f, "axes");
    if (a) {
        if (a->n > MAX_RANK) return -2;
        memcpy(v, a->ints, (size_t)a->n * sizeof *v);
        return a->n;
    }
    if (i >= f->node->ninput || !*f->node->input[i]) return -1;
    int n = input_numbers(f, i, v, MAX_RANK);
    return n < 0 ? -2 : n;
}

/* ------------------------------------------------------------------ giving results */

static OnnxShape *output(OnnxInfer *f, int k) { return k < f->node->noutput ? &f->out[k] : NULL; }

static void give_rank(OnnxInfer *f, int k, int rank)
{
    OnnxShape *o = output(f, k);
    if (!o || rank < 0 || rank > MAX_RANK) return;
    o->rank = rank;
    for (int i = 0; i < rank; i++) o->dim[i] = unknown();
}

static void give(OnnxInfer *f, int k, int rank, const OnnxSize *dim)
{
    give_rank(f, k, rank);
    OnnxShape *o = output(f, k);
    for (int i = 0; o && o->rank == rank && i < rank; i++) o->dim[i] = dim[i];
}

static void give_same(OnnxInfer *f, int k, int i)
{
    if (ranked(f, i)) give(f, k, input(f, i)->rank, input(f, i)->dim);
}

static OnnxSize *room(OnnxInfer *f, int n)
{
    OnnxSize *d = n <= ONNX_FOLLOWED ? arena_array(f->c->arena, OnnxSize, n + 1) : NULL;
    f->c->failed |= !d && n <= ONNX_FOLLOWED;
    return d;
}

static void give_data(OnnxInfer *f, int n, const OnnxSize *data)
{
    OnnxShape *o = output(f, 0);
    OnnxSize *d = o ? room(f, n) : NULL;
    if (!d) return;
    memcpy(d, data, (size_t)n * sizeof *d);
    o->n = n;
    o->data = d;
}

/* ------------------------------------------------------------------ element types */

static bool in_set(const OnnxTypes *t, const OnnxShape *s)
{
    uint64_t bits = s->kind == ONNX_TENSOR || s->kind == ONNX_SPARSE ? t->tensor : s->kind == ONNX_SEQUENCE ? t->sequence : s->kind == ONNX_OPTIONAL ? t->optional | t->optional_sequence : ~0ull;
    if (s->kind == ONNX_MAP || s->kind == ONNX_OPAQUE) return t->other;
    return s->elem == ONNX_UNDEFINED ? bits != 0 : s->elem > 63 || (bits >> s->elem & 1);
}

static int only_type(const OnnxTypes *t)
{
    if (t->sequence || t->optional || t->optional_sequence || t->other || !t->tensor || (t->tensor & (t->tensor - 1))) return ONNX_UNDEFINED;
    return __builtin_ctzll(t->tensor);
}

typedef struct Bound {
    char name[16];
    int kind, elem, from;
} Bound;

static const char *kind_name(int kind) { return kind == ONNX_SEQUENCE ? "a sequence of " : kind == ONNX_OPTIONAL ? "an optional " : ""; }

static void infer_types(OnnxInfer *f)
{
    Bound bound[16];
    int n = 0;
    OnnxParam p;
    for (int i = 0; i < f->node->ninput; i++) {
        const OnnxShape *s = input(f, i);
        if (!s || s->kind == ONNX_KIND_NONE || !onnx_param(f->schema->in, i, &p)) continue;
        const OnnxTypes *t = onnx_types(f->schema, p.type);
        if (t && !in_set(t, s)) {
            check_add(f->c, Q(205), f->place, "input %d, '%.100s', is %s%s, which %s does not take there", i, f->node->input[i], kind_name(s->kind), onnx_type_name(s->elem), f->node->op);
            f->bad = true;
            continue;
        }
        if (p.option == '~' || s->elem == ONNX_UNDEFINED) continue;
        int k = 0;
        while (k < n && strcmp(bound[k].name, p.type)) k++;
        if (k == n && n < 16) {
            bound[n] = (Bound){.kind = (int)s->kind, .elem = s->elem, .from = i};
            memcpy(bound[n++].name, p.type, sizeof p.type);
        } else if (k < n && (bound[k].elem != s->elem || bound[k].kind != (int)s->kind)) {
            check_add(f->c, Q(205), f->place, "input %d is %s and input %d is %s; %s wants one type", bound[k].from, onnx_type_name(bound[k].elem), i, onnx_type_name(s->elem), f->node->op);
            f->bad = true;
        }
    }
    for (int k = 0; k < f->node->noutput; k++) {
        if (!onnx_param(f->schema->out, k, &p) || p.option == '~') continue;
        const OnnxTypes *t = onnx_types(f->schema, p.type);
        OnnxShape *o = &f->out[k];
        int only = t ? only_type(t) : ONNX_UNDEFINED;
        for (int b = 0; b < n; b++)
            if (!strcmp(bound[b].name, p.type)) {
                o->kind = (OnnxKind)bound[b].kind;
                o->elem = bound[b].elem;
            }
        if (o->kind == ONNX_KIND_NONE && only != ONNX_UNDEFINED) {
            o->kind = ONNX_TENSOR;
            o->elem = only;
        }
        if (o->kind == ONNX_KIND_NONE && t && t->tensor && !t->sequence && !t->optional && !t->other) o->kind = ONNX_TENSOR;
    }
}

static void set_elem(OnnxInfer *f, int k, int64_t elem)
{
    OnnxShape *o = output(f, k);
    if (!o) return;
    OnnxParam p;
    const OnnxTypes *t = onnx_param(f->schema->out, k, &p) ? onnx_types(f->schema, p.type) : NULL;
    if (elem <= 0 || elem > 63 || (t && !(t->tensor >> elem & 1))) {
        check_add(f->c, Q(120), f->place, "element type %lld, which %s does not give", (long long)elem, f->node->op);
        f->bad = true;
        return;
    }
    o->kind = ONNX_TENSOR;
    o->elem = (int)elem;
}

/* Results whose type is an attribute's or another input's. */
static void infer_odd_types(OnnxInfer *f)
{
    const char *op = f->node->op;
    const OnnxAttr *value;
    if (!strcmp(op, "Cast") && f->opset >= 6 && onnx_attr(f->node, "to") && !*onnx_attr(f->node, "to")->ref) set_elem(f, 0, attr_int(f, "to", 0));
    else if (one_of(op, "CastLike RandomUniformLike RandomNormalLike EyeLike Bernoulli")) {
        int from = strcmp(op, "CastLike") ? 0 : 1;
        if (onnx_attr(f->node, "dtype")) set_elem(f, 0, attr_int(f, "dtype", 0));
        else if (input(f, from) && input(f, from)->elem) set_elem(f, 0, input(f, from)->elem);
    } else if (one_of(op, "RandomUniform RandomNormal")) set_elem(f, 0, attr_int(f, "dtype", ONNX_FLOAT));
    else if (!strcmp(op, "ConstantOfShape")) {
        value = onnx_attr(f->node, "value");
        set_elem(f, 0, value && value->t ? value->t->type : ONNX_FLOAT);
    } else if (!strcmp(op, "QuantizeLinear")) {
        int64_t to = attr_int(f, "output_dtype", 0);
        if (to) set_elem(f, 0, to);
        else if (!input(f, 2) && f->node->ninput < 3) set_elem(f, 0, ONNX_UINT8);
    } else if (one_of(op, "HannWindow HammingWindow BlackmanWindow")) set_elem(f, 0, attr_int(f, "output_datatype", ONNX_FLOAT));
}

/* ------------------------------------------------------------------ families of ops */

static bool broadcast(OnnxInfer *f, OnnxShape *into, const OnnxShape *s)
{
    int rank = into->rank > s->rank ? into->rank : s->rank;
    OnnxSize d[MAX_RANK];
    for (int i = 0; i < rank; i++) {
        int a = i - (rank - into->rank), b = i - (rank - s->rank);
        OnnxSize x = a < 0 ? number(1) : into->dim[a], y = b < 0 ? number(1) : s->dim[b];
        if (differ(x, y) && x.v != 1 && y.v != 1) {
            refuse(f, "axis %d from the end: sizes %lld and %lld do not broadcast", rank - i, (long long)x.v, (long long)y.v);
            return false;
        }
        if (is_one(x)) d[i] = y;
        else if (is_one(y)) d[i] = x;
        else if (is_number(x)) d[i] = x;
        else if (is_number(y)) d[i] = y;
        else d[i] = x.kind == SIZE_SYMBOL && y.kind == SIZE_SYMBOL && x.v == y.v ? x : unknown();
    }
    into->rank = rank;
    memcpy(into->dim, d, (size_t)rank * sizeof *d);
    return true;
}

static void infer_broadcast(OnnxInfer *f, int from, int count)
{
    OnnxShape out = {.rank = 0};
    for (int i = from; i < from + count && i < f->node->ninput; i++) {
        if (!*f->node->input[i]) continue;
        if (!ranked(f, i)) return;
        if (!broadcast(f, &out, input(f, i))) return;
    }
    give(f, 0, out.rank, out.dim);
}

static void infer_arithmetic(OnnxInfer *f)
{
    infer_broadcast(f, 0, 2);
    const OnnxShape *a = input(f, 0), *b = input(f, 1);
    OnnxSize d[ONNX_FOLLOWED];
    if (!a || !b || a->n < 0 || b->n < 0 || (a->n != b->n && a->n != 1 && b->n != 1) || !one_of(f->node->op, "Add Sub Mul Div")) return;
    int n = a->n > b->n ? a->n : b->n;
    for (int i = 0; i < n; i++) {
        OnnxSize x = a->data[a->n == 1 ? 0 : i], y = b->data[b->n == 1 ? 0 : i];
        int64_t v = 0;
        bool ok = is_number(x) && is_number(y);
        char op = f->node->op[0];
        if (ok && op == 'A') ok = add_i64(x.v, y.v, &v);
        else if (ok && op == 'S') ok = !__builtin_sub_overflow(x.v, y.v, &v);
        else if (ok && op == 'M') ok = mul_i64(x.v, y.v, &v);
        else if (ok && (ok = y.v != 0 && y.v != -1)) v = x.v / y.v;
        d[i] = ok ? number(v) : op == 'M' && is_one(y) ? x : op == 'M' && is_one(x) ? y : unknown();
    }
    give_data(f, n, d);
}

/* Inputs i and k as factors. */
static void infer_matmul(OnnxInfer *f, int i, int k)
{
    if (!ranked(f, i) || !ranked(f, k)) return;
    OnnxShape a = copy_of(input(f, i)), b = copy_of(input(f, k));
    if (!a.rank || !b.rank) {
        refuse(f, "a product of a number: both inputs need an axis");
        return;
    }
    OnnxSize x = a.dim[a.rank - 1], y = b.dim[b.rank > 1 ? b.rank - 2 : 0];
    if (differ(x, y)) {
        refuse(f, "the inner sizes are %lld and %lld", (long long)x.v, (long long)y.v);
        return;
    }
    OnnxSize tail[2];
    int n = 0;
    if (a.rank > 1) tail[n++] = a.dim[a.rank - 2];
    if (b.rank > 1) tail[n++] = b.dim[b.rank - 1];
    a.rank = a.rank > 2 ? a.rank - 2 : 0;
    b.rank = b.rank > 2 ? b.rank - 2 : 0;
    if (!broadcast(f, &a, &b) || a.rank + n > MAX_RANK) return;
    memcpy(a.dim + a.rank, tail, (size_t)n * sizeof *tail);
    give(f, 0, a.rank + n, a.dim);
}

static void infer_gemm(OnnxInfer *f)
{
    if (!ranked(f, 0) || !ranked(f, 1)) return;
    const OnnxShape *a = input(f, 0), *b = input(f, 1);
    if (a->rank != 2 || b->rank != 2) {
        refuse(f, "ranks %d and %d; Gemm takes matrices", a->rank, b->rank);
        return;
    }
    bool ta = attr_int(f, "transA", 0) != 0, tb = attr_int(f, "transB", 0) != 0;
    OnnxSize inner = a->dim[!ta], other = b->dim[tb], out[2] = {a->dim[ta], b->dim[!tb]};
    if (differ(inner, other)) refuse(f, "the inner sizes are %lld and %lld", (long long)inner.v, (long long)other.v);
    give(f, 0, 2, out);
}

static void infer_transpose(OnnxInfer *f)
{
    if (!ranked(f, 0)) return;
    const OnnxShape *x = input(f, 0);
    const OnnxAttr *perm = attr_ints(f, "perm");
    OnnxSize d[MAX_RANK];
    bool seen[MAX_RANK] = {0};
    if (perm && perm->n != x->rank) {
        refuse(f, "perm has %d entries for %d axes", perm->n, x->rank);
        return;
    }
    for (int i = 0; i < x->rank; i++) {
        int64_t from = perm ? perm->ints[i] : x->rank - 1 - i;
        if (from < 0 || from >= x->rank || seen[from]) {
            refuse(f, "perm[%d] is %lld: no order of %d axes", i, (long long)from, x->rank);
            return;
        }
        seen[from] = true;
        d[i] = x->dim[from];
    }
    give(f, 0, x->rank, d);
}

static void infer_concat(OnnxInfer *f)
{
    const OnnxNode *n = f->node;
    OnnxSize d[MAX_RANK], data[ONNX_FOLLOWED];
    int rank = -1, axis = 0, count = 0;
    for (int i = 0; i < n->ninput; i++) { /* elements, where all are followed */
        const OnnxShape *s = input(f, i);
        if (!s || s->n < 0 || s->rank > 1 || count + s->n > ONNX_FOLLOWED) count = ONNX_FOLLOWED + 1;
        for (int k = 0; s && count <= ONNX_FOLLOWED && k < s->n; k++) data[count++] = s->data[k];
    }
    if (count <= ONNX_FOLLOWED && n->ninput) give_data(f, count, data);
    for (int i = 0; i < n->ninput; i++) {
        if (!ranked(f, i)) {
            if (rank >= 0) d[axis] = unknown();
            return;
        }
        const OnnxShape *s = input(f, i);
        if (rank < 0) {
            rank = s->rank;
            memcpy(d, s->dim, (size_t)rank * sizeof *d);
            axis = axis_of(f, attr_int(f, "axis", 1), rank);
            if (axis < 0) return;
            continue;
        }
        if (s->rank != rank) {
            refuse(f, "input %d has %d axes, the first has %d", i, s->rank, rank);
            return;
        }
        for (int k = 0; k < rank; k++) {
            if (k == axis) d[k] = is_number(d[k]) && is_number(s->dim[k]) ? number(d[k].v + s->dim[k].v) : unknown();
            else if (differ(d[k], s->dim[k])) {
                refuse(f, "axis %d is %lld in input %d and %lld before", k, (long long)s->dim[k].v, i, (long long)d[k].v);
                return;
            } else if (is_number(s->dim[k])) d[k] = s->dim[k];
        }
    }
    if (rank >= 0) give(f, 0, rank, d);
}

/* Product of known sizes; false when one is unknown. */
static bool product(int rank, const OnnxSize *d, int64_t *out)
{
    *out = 1;
    for (int i = 0; i < rank; i++)
        if (!is_number(d[i]) || !mul_i64(*out, d[i].v, out)) return false;
    return true;
}

static void infer_reshape(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *shape = input(f, 1);
    const OnnxAttr *old = attr_ints(f, "shape");
    OnnxSize d[MAX_RANK];
    int n = old ? old->n : shape ? shape->n : -1, wild = -1;
    if (n < 0) {
        if (shape && shape->rank == 1 && is_number(shape->dim[0])) give_rank(f, 0, shape->dim[0].v <= MAX_RANK ? (int)shape->dim[0].v : -1);
        return;
    }
    if (n > MAX_RANK) return;
    bool exact = attr_int(f, "allowzero", 0) != 0;
    int64_t have, want = 1;
    for (int i = 0; i < n; i++) {
        d[i] = old ? number(old->ints[i]) : shape->data[i];
        if (!is_number(d[i])) continue;
        if (d[i].v == -1) {
            if (wild >= 0) {
                refuse(f, "two sizes are -1");
                return;
            }
            wild = i;
        } else if (d[i].v < -1) {
            refuse(f, "size %d is %lld", i, (long long)d[i].v);
            return;
        } else if (d[i].v == 0 && !exact) {
            if (x && x->rank >= 0 && i >= x->rank) {
                refuse(f, "size %d is copied from an axis that the input does not have", i);
                return;
            }
            d[i] = x && x->rank >= 0 ? x->dim[i] : unknown();
        }
    }
    bool known = x && x->rank >= 0 && product(x->rank, x->dim, &have);
    for (int i = 0; i < n && known; i++)
        if (i != wild) known = is_number(d[i]) && mul_i64(want, d[i].v, &want);
    if (wild >= 0) d[wild] = unknown();
    if (known && wild >= 0 && want && have % want) refuse(f, "%lld elements do not divide into rows of %lld", (long long)have, (long long)want);
    else if (known && wild >= 0 && want) d[wild] = number(have / want);
    else if (known && wild < 0 && want != have) refuse(f, "%lld elements cannot become %lld", (long long)have, (long long)want);
    give(f, 0, n, d);
    if (shape && f->in[0] && f->in[0]->n >= 0) give_data(f, f->in[0]->n, f->in[0]->data);
}

static void infer_squeeze(OnnxInfer *f, bool unsqueeze)
{
    const OnnxShape *x = input(f, 0);
    int64_t v[MAX_RANK];
    bool at[MAX_RANK] = {0};
    OnnxSize d[MAX_RANK];
    int n = axes_of(f, 1, v);
    if (x && x->n >= 0) give_data(f, x->n, x->data);
    if (!x || x->rank < 0 || n == -2 || (unsqueeze && n < 0)) return;
    int rank = unsqueeze ? x->rank + n : x->rank;
    if (rank > MAX_RANK) return;
    for (int i = 0; i < n; i++) {
        int k = axis_of(f, v[i], rank);
        if (k < 0) return;
        if (at[k]) refuse(f, "axis %d is listed twice", k);
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
        if (drop && is_number(x->dim[i]) && x->dim[i].v != 1) refuse(f, "axis %d has size %lld, which cannot be squeezed", i, (long long)x->dim[i].v);
        if (!drop) d[m++] = x->dim[i];
    }
    give(f, 0, m, d);
}

static void infer_gather(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *index = input(f, 1);
    if (!x || !index || x->rank < 0) return;
    int axis = axis_of(f, attr_int(f, "axis", 0), x->rank);
    if (axis < 0) return;
    if (index->n >= 0 && is_number(x->dim[axis]))
        for (int i = 0; i < index->n; i++)
            if (is_number(index->data[i]) && (index->data[i].v >= x->dim[axis].v || index->data[i].v < -x->dim[axis].v)) {
                refuse(f, "index %lld of an axis of size %lld", (long long)index->data[i].v, (long long)x->dim[axis].v);
                return;
            }
    if (x->n >= 0 && x->rank == 1 && index->n >= 0) {
        OnnxSize d[ONNX_FOLLOWED];
        for (int i = 0; i < index->n; i++) {
            int64_t k = is_number(index->data[i]) ? index->data[i].v : INT64_MAX;
            k = k < 0 ? k + x->n : k;
            d[i] = k >= 0 && k < x->n ? x->data[k] : unknown();
        }
        give_data(f, index->n, d);
    }
    if (index->rank < 0 || x->rank - 1 + index->rank > MAX_RANK) return;
    OnnxSize d[MAX_RANK];
    int n = 0;
    for (int i = 0; i < axis; i++) d[n++] = x->dim[i];
    for (int i = 0; i < index->rank; i++) d[n++] = index->dim[i];
    for (int i = axis + 1; i < x->rank; i++) d[n++] = x->dim[i];
    give(f, 0, n, d);
}

static void infer_reduce(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    int64_t v[MAX_RANK];
    bool at[MAX_RANK] = {0}, arg = !strncmp(f->node->op, "Arg", 3);
    OnnxSize d[MAX_RANK];
    if (!x || x->rank < 0) return;
    int n = arg ? 1 : axes_of(f, 1, v), m = 0;
    if (arg) v[0] = attr_int(f, "axis", 0);
    bool keep = attr_int(f, "keepdims", 1) == 1;
    if (n == -2) {
        if (keep) give_rank(f, 0, x->rank);
        return;
    }
    if (n <= 0 && attr_int(f, "noop_with_empty_axes", 0)) {
        give_same(f, 0, 0);
        return;
    }
    for (int i = 0; i < n; i++) {
        int k = axis_of(f, v[i], x->rank);
        if (k < 0) return;
        at[k] = true;
    }
    for (int i = 0; i < x->rank; i++)
        if (!at[i] && n > 0) d[m++] = x->dim[i];
        else if (keep) d[m++] = number(1);
    give(f, 0, m, d);
}

static void infer_slice(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    int64_t start[MAX_RANK], end[MAX_RANK], axis[MAX_RANK], step[MAX_RANK];
    if (!x || x->rank < 0) return;
    give_same(f, 0, 0);
    OnnxShape *o = output(f, 0);
    const OnnxAttr *s = attr_ints(f, "starts"), *e = attr_ints(f, "ends");
    int n = s ? s->n : input_numbers(f, 1, start, MAX_RANK), m = e ? e->n : input_numbers(f, 2, end, MAX_RANK);
    int a = axes_of(f, 3, axis), t = input(f, 4) ? input_numbers(f, 4, step, MAX_RANK) : -1;
    bool given = f->node->ninput > 4 && *f->node->input[4], steps = !given || t >= 0;
    if (s && n <= MAX_RANK) memcpy(start, s->ints, (size_t)n * sizeof *start);
    if (e && m <= MAX_RANK) memcpy(end, e->ints, (size_t)m * sizeof *end);
    for (int i = 0; i < x->rank; i++) o->dim[i] = a == -2 || (a == -1 && n < 0) ? unknown() : o->dim[i];
    if (a == -2) return;
    int count = a >= 0 ? a : n;
    for (int i = 0; i < count && i < MAX_RANK; i++) {
        int k = axis_of(f, a >= 0 ? axis[i] : i, x->rank);
        if (k < 0) return;
        o->dim[k] = unknown();
        int64_t d = is_number(x->dim[k]) ? x->dim[k].v : -1, by = t > i ? step[i] : 1;
        if (d < 0 || n <= i || m <= i || !steps) continue;
        if (by == 0) {
            refuse(f, "step 0 along axis %d", k);
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
        int64_t len = by > 0 ? (hi - lo + by - 1) / by : by > -(1 << 30) ? (lo - hi - by - 1) / -by : 1;
        o->dim[k] = number(len > 0 ? len : 0);
        if (x->n >= 0 && x->rank == 1 && by == 1 && count == 1 && len > 0 && lo + len <= x->n) give_data(f, (int)len, x->data + lo);
    }
}

static void infer_split(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    int64_t v[ONNX_FOLLOWED], sum = 0;
    if (!x || x->rank < 0) return;
    int axis = axis_of(f, attr_int(f, "axis", 0), x->rank), outs = f->node->noutput;
    if (axis < 0) return;
    const OnnxAttr *split = attr_ints(f, "split");
    bool given = split || (f->node->ninput > 1 && *f->node->input[1]);
    int n = split ? split->n : input_numbers(f, 1, v, ONNX_FOLLOWED);
    if (split && n <= ONNX_FOLLOWED) memcpy(v, split->ints, (size_t)n * sizeof *v);
    if (given && n >= 0 && n != outs) refuse(f, "%d sizes for %d outputs", n, outs);
    for (int k = 0; k < n && k < outs; k++) sum += v[k];
    if (given && n == outs && is_number(x->dim[axis]) && sum != x->dim[axis].v) refuse(f, "the parts have %lld elements, axis %d has %lld", (long long)sum, axis, (long long)x->dim[axis].v);
    int64_t parts = attr_int(f, "num_outputs", outs);
    if (parts != outs) refuse(f, "num_outputs is %lld for %d outputs", (long long)parts, outs);
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

static void infer_expand(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *shape = input(f, 1);
    if (!x || x->rank < 0 || !shape || shape->n < 0 || shape->n > MAX_RANK) return;
    OnnxShape out = {.rank = shape->n};
    for (int i = 0; i < shape->n; i++) out.dim[i] = shape->data[i];
    if (broadcast(f, &out, x)) give(f, 0, out.rank, out.dim);
}

static void infer_conv(OnnxInfer *f, bool pool)
{
    const OnnxShape *x = input(f, 0), *w = pool ? NULL : input(f, 1);
    if (!x || x->rank < 0 || (!pool && (!w || w->rank < 0))) return;
    if (x->rank < 3 || (!pool && w->rank != x->rank)) {
        refuse(f, pool ? "an input of %d axes; at least 3 are needed" : "an input of %d axes and weights of %d", x->rank, w ? w->rank : 0);
        return;
    }
    int n = x->rank - 2;
    const OnnxAttr *kernel = attr_ints(f, "kernel_shape"), *stride = attr_ints(f, "strides"), *dilation = attr_ints(f, "dilations"), *pads = attr_ints(f, "pads"), *how = onnx_attr(f->node, "auto_pad");
    const char *pad = how && how->type == ONNX_ATTR_STRING ? how->s : "NOTSET";
    OnnxSize d[MAX_RANK];
    int64_t group = attr_int(f, "group", 1);
    if ((kernel && kernel->n != n) || (stride && stride->n != n) || (dilation && dilation->n != n) || (pads && pads->n != 2 * n)) {
        refuse(f, "kernel_shape, strides, dilations or pads do not fit %d axes", n);
        return;
    }
    if (!pool && is_number(w->dim[1]) && is_number(x->dim[1]) && w->dim[1].v * group != x->dim[1].v)
        refuse(f, "%lld channels for weights of %lld in %lld groups", (long long)x->dim[1].v, (long long)w->dim[1].v, (long long)group);
    d[0] = x->dim[0];
    d[1] = pool ? x->dim[1] : w->dim[0];
    for (int i = 0; i < n; i++) {
        OnnxSize size = x->dim[i + 2], k = kernel ? number(kernel->ints[i]) : w ? w->dim[i + 2] : unknown();
        int64_t s = stride ? stride->ints[i] : 1, dil = dilation ? dilation->ints[i] : 1, p = pads ? pads->ints[i] + pads->ints[i + n] : 0;
        d[i + 2] = unknown();
        if (s <= 0 || dil <= 0) {
            refuse(f, "stride %lld and dilation %lld", (long long)s, (long long)dil);
            return;
        }
        if (!is_number(size) || !is_number(k) || attr_int(f, "ceil_mode", 0)) continue;
        int64_t span = size.v + p - dil * (k.v - 1) - 1;
        if (!strncmp(pad, "SAME", 4)) d[i + 2] = number((size.v + s - 1) / s);
        else if (span < 0) refuse(f, "the kernel reaches over %lld elements, the input has %lld", (long long)(dil * (k.v - 1) + 1), (long long)(size.v + p));
        else d[i + 2] = number(span / s + 1);
    }
    give(f, 0, x->rank, d);
    if (pool) give(f, 1, x->rank, d); /* where the largest were */
}

static void infer_grid(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *grid = input(f, 1);
    OnnxSize d[MAX_RANK];
    if (!x || !grid || x->rank < 0 || grid->rank < 0) return;
    if (x->rank < 3 || grid->rank != x->rank) {
        refuse(f, "an input of %d axes and a grid of %d", x->rank, grid->rank);
        return;
    }
    memcpy(d, x->dim, 2 * sizeof *d);
    for (int i = 2; i < x->rank; i++) d[i] = grid->dim[i - 1];
    give(f, 0, x->rank, d);
}

static void infer_shape_of(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    OnnxSize d[1] = {unknown()};
    if (!x || x->rank < 0) {
        give_rank(f, 0, 1);
        return;
    }
    int64_t lo = attr_int(f, "start", 0), hi = attr_int(f, "end", x->rank);
    lo = lo < 0 ? lo + x->rank : lo;
    hi = hi < 0 ? hi + x->rank : hi;
    lo = lo < 0 ? 0 : lo > x->rank ? x->rank : lo;
    hi = hi < lo ? lo : hi > x->rank ? x->rank : hi;
    d[0] = number(hi - lo);
    give(f, 0, 1, d);
    give_data(f, (int)(hi - lo), x->dim + lo);
}

static void infer_constant(OnnxInfer *f)
{
    static const struct {
        const char *name;
        int elem;
        bool list;
    } plain[] = {{"value_int", ONNX_INT64, false}, {"value_ints", ONNX_INT64, true}, {"value_float", ONNX_FLOAT, false}, {"value_floats", ONNX_FLOAT, true}, {"value_string", ONNX_STRING, false},
                 {"value_strings", ONNX_STRING, true}};
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
        give_data(f, plain[i].list ? a->n : 1, d);
    }
}

static void infer_norm(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    give_same(f, 0, 0);
    if (!x || x->rank < 0) return;
    if (!strcmp(f->node->op, "BatchNormalization")) {
        bool training = f->opset < 14 || attr_int(f, "training_mode", 0);
        if (f->opset >= 14 && f->node->noutput > (training ? 3 : 1)) refuse(f, "%d outputs; outside training it has one", f->node->noutput);
        if (f->opset >= 14 && f->node->noutput == 2) refuse(f, "2 outputs; it has one, or three in training");
        for (int k = 1; k < f->node->noutput; k++) give(f, k, 1, &(OnnxSize){x->rank > 1 ? x->dim[1].kind : SIZE_UNKNOWN, x->rank > 1 ? x->dim[1].v : 0});
        for (int k = 1; k < 5 && x->rank > 1; k++)
            if (ranked(f, k) && (input(f, k)->rank != 1 || differ(input(f, k)->dim[0], x->dim[1]))) refuse(f, "input %d is no list of one number a channel", k);
        return;
    }
    int axis = axis_of(f, attr_int(f, "axis", -1), x->rank);
    for (int k = 1; k < f->node->noutput && axis >= 0; k++) { /* mean and deviation: 1 along the axes that are normalised */
        give_same(f, k, 0);
        for (int i = axis; i < x->rank; i++) f->out[k].dim[i] = number(1);
    }
}

static void infer_resize(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *scales = input(f, f->opset < 11 ? 1 : 2), *sizes = f->opset < 11 ? NULL : input(f, 3);
    bool has_scales = scales && !(scales->rank == 1 && is_number(scales->dim[0]) && !scales->dim[0].v), axes = attr_ints(f, "axes") != NULL;
    if (f->opset >= 11 && has_scales && sizes) refuse(f, "both scales and sizes are given");
    if (f->opset >= 11 && f->node->ninput < 3) refuse(f, "neither scales nor sizes are given");
    for (int k = 0; k < 2; k++) {
        const OnnxShape *s = k ? sizes : has_scales ? scales : NULL;
        if (!s || s->rank < 0) continue;
        if (s->rank != 1) refuse(f, "%s have %d axes", k ? "sizes" : "scales", s->rank);
        else if (x && x->rank >= 0 && !axes && is_number(s->dim[0]) && s->dim[0].v != x->rank) refuse(f, "%lld %s for %d axes", (long long)s->dim[0].v, k ? "sizes" : "scales", x->rank);
    }
    if (!x || x->rank < 0) return;
    give_rank(f, 0, x->rank);
    if (sizes && sizes->n == x->rank && !axes && !attr_is(f, "keep_aspect_ratio_policy", "not_larger") && !attr_is(f, "keep_aspect_ratio_policy", "not_smaller")) give(f, 0, x->rank, sizes->data);
}

/* Y (steps, directions, batch, hidden), then the last states. */
static void infer_rnn(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *w = input(f, 1), *r = input(f, 2);
    for (int i = 0; i < 3; i++)
        if (ranked(f, i) && input(f, i)->rank != 3) {
            refuse(f, "input %d has %d axes, 3 are needed", i, input(f, i)->rank);
            return;
        }
    if (!x || x->rank < 0) return;
    bool last = attr_int(f, "layout", 0) != 0;
    int64_t hidden = attr_int(f, "hidden_size", 0), directions = attr_is(f, "direction", "bidirectional") ? 2 : 1;
    OnnxSize h = hidden > 0 ? number(hidden) : r && r->rank == 3 ? r->dim[2] : unknown(), d = number(directions), steps = x->dim[last], batch = x->dim[!last];
    if (w && w->rank == 3 && differ(w->dim[0], d)) refuse(f, "weights of %lld directions, the node has %lld", (long long)w->dim[0].v, (long long)directions);
    give(f, 0, 4, last ? (OnnxSize[]){batch, steps, d, h} : (OnnxSize[]){steps, d, batch, h});
    for (int k = 1; k < 3; k++) give(f, k, 3, last ? (OnnxSize[]){batch, d, h} : (OnnxSize[]){d, batch, h});
}

/* Letters of a term in order; false for what cannot be followed: "...", or a rank that does not fit. */
static bool einsum_term(OnnxInfer *f, const char **p, int i, OnnxSize *of, bool *known)
{
    const OnnxShape *x = input(f, i);
    int k = 0;
    for (; **p && **p != ',' && !(**p == '-' && (*p)[1] == '>'); (*p)++) {
        if (**p == ' ') continue;
        if (!((**p >= 'a' && **p <= 'z') || (**p >= 'A' && **p <= 'Z')) || !x || x->rank < 0) return false;
        if (k == x->rank) {
            refuse(f, "the equation gives input %d more than its %d axes", i, x->rank);
            return false;
        }
        int letter = **p & 0x7f;
        if (known[letter] && differ(of[letter], x->dim[k]) && of[letter].v != 1 && x->dim[k].v != 1) {
            refuse(f, "'%c' is %lld and %lld", letter, (long long)of[letter].v, (long long)x->dim[k].v);
            return false;
        }
        if (!known[letter] || (is_one(of[letter]) || !is_number(of[letter]))) of[letter] = x->dim[k];
        known[letter] = true;
        k++;
    }
    if (x && x->rank >= 0 && k != x->rank) refuse(f, "the equation gives input %d %d axes, it has %d", i, k, x->rank);
    return x && k == x->rank;
}

static void infer_einsum(OnnxInfer *f)
{
    const OnnxAttr *a = onnx_attr(f->node, "equation");
    OnnxSize of[128], d[MAX_RANK];
    bool known[128] = {0};
    int n = 0, i = 0;
    if (!a || a->type != ONNX_ATTR_STRING) return;
    const char *p = a->s, *arrow = strstr(p, "->");
    if (!arrow || strchr(p, '.')) return; /* letters that occur once, in order; broadcast axes: not followed */
    for (;; p++, i++) {
        if (i >= f->node->ninput) {
            refuse(f, "the equation has more terms than there are inputs");
            return;
        }
        if (!einsum_term(f, &p, i, of, known)) return;
        if (*p != ',') break;
    }
    if (i + 1 != f->node->ninput) {
        refuse(f, "%d inputs for %d terms", f->node->ninput, i + 1);
        return;
    }
    for (p = arrow + 2; *p; p++) {
        if (*p == ' ') continue;
        if (n == MAX_RANK || !known[*p & 0x7f]) {
            refuse(f, "the equation's result has '%c', which no input has", *p);
            return;
        }
        d[n++] = of[*p & 0x7f];
    }
    give(f, 0, n, d);
}

static void infer_depth(OnnxInfer *f, bool to_space)
{
    const OnnxShape *x = input(f, 0);
    int64_t b = attr_int(f, "blocksize", 0);
    if (!x || x->rank < 0) return;
    if (x->rank != 4 || b <= 0) {
        refuse(f, "%d axes and a block of %lld; 4 axes and a block above 0 are needed", x->rank, (long long)b);
        return;
    }
    OnnxSize d[4] = {x->dim[0], unknown(), unknown(), unknown()};
    if (b < 1 << 15)
        for (int i = 1; i < 4; i++)
            if (is_number(x->dim[i]) && x->dim[i].v < 1LL << 30) d[i] = number((i == 1) == to_space ? x->dim[i].v / (i == 1 ? b * b : b) : x->dim[i].v * (i == 1 ? b * b : b));
    give(f, 0, 4, d);
}

/* One number an axis behind the channels. */
static void infer_global_pool(OnnxInfer *f)
{
    give_same(f, 0, 0);
    OnnxShape *o = output(f, 0);
    for (int i = 2; o && i < o->rank; i++) o->dim[i] = number(1);
}

static void infer_loss(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *t = input(f, 1);
    bool none = attr_is(f, "reduction", "none");
    if (x && x->rank >= 0 && x->rank < 2) refuse(f, "scores of %d axes, at least 2 are needed", x->rank);
    else if (x && t && x->rank >= 0 && t->rank >= 0) {
        if (t->rank != x->rank - 1) refuse(f, "targets of %d axes for scores of %d", t->rank, x->rank);
        for (int i = 0; i < t->rank && t->rank == x->rank - 1; i++)
            if (differ(t->dim[i], x->dim[i ? i + 1 : 0])) refuse(f, "axis %d of the targets is %lld, of the scores %lld", i, (long long)t->dim[i].v, (long long)x->dim[i ? i + 1 : 0].v);
    }
    if (f->bad) return;
    if (!none) give_rank(f, 0, 0);
    else give_same(f, 0, 1);
    if (f->node->noutput > 1) give_same(f, 1, 0);
}

/* Y has Q's sizes, but for the head size, which is V's. */
static void infer_attention(OnnxInfer *f)
{
    const OnnxShape *q = input(f, 0), *k = input(f, 1), *v = input(f, 2);
    int64_t heads = attr_int(f, "q_num_heads", 0), kv = attr_int(f, "kv_num_heads", 0);
    if (!q || q->rank < 0 || !k || k->rank < 0 || !v || v->rank < 0) return;
    if (q->rank != k->rank || q->rank != v->rank || (q->rank != 3 && q->rank != 4)) {
        refuse(f, "Q, K and V have %d, %d and %d axes; all have 3, or all have 4", q->rank, k->rank, v->rank);
        return;
    }
    if (q->rank == 3 && (heads <= 0 || kv <= 0)) {
        refuse(f, "with 3 axes, q_num_heads and kv_num_heads must be above 0: %lld and %lld", (long long)heads, (long long)kv);
        return;
    }
    int last = q->rank - 1;
    OnnxSize d[4] = {q->dim[0], q->dim[1], q->dim[2], v->dim[last]}, hq = q->rank == 4 ? q->dim[1] : number(heads), hk = k->rank == 4 ? k->dim[1] : number(kv);
    if (is_number(hq) && is_number(hk) && hk.v > 0 && hq.v % hk.v) refuse(f, "%lld query heads do not divide among %lld", (long long)hq.v, (long long)hk.v);
    if (q->rank == 4 && differ(q->dim[3], k->dim[3])) refuse(f, "queries have head size %lld, keys %lld", (long long)q->dim[3].v, (long long)k->dim[3].v);
    if (q->rank == 3) {
        if (is_number(q->dim[2]) && q->dim[2].v % heads) refuse(f, "%lld channels do not divide among %lld heads", (long long)q->dim[2].v, (long long)heads);
        d[2] = is_number(v->dim[2]) ? number(v->dim[2].v / kv * heads) : unknown();
    }
    give(f, 0, q->rank, d);
    for (int i = 1; i < 4; i++) give_rank(f, i, 4); /* present keys and values, scores */
    const OnnxNode *n = f->node;
    bool key = n->noutput > 1 && *n->output[1], value = n->noutput > 2 && *n->output[2], past = input(f, 4) != NULL, past_value = input(f, 5) != NULL;
    if (key != value && past) refuse(f, "present_key and present_value are given together or not at all");
    if (past != past_value) refuse(f, "past_key and past_value are given together or not at all");
    const OnnxShape *p = input(f, 4), *next = NULL;
    for (int i = 0; i < 2; i++) {
        p = input(f, 4 + i);
        next = i ? v : k;
        if (p && p->rank >= 0 && p->rank != 4) refuse(f, "past_%s has %d axes, 4 are needed", i ? "value" : "key", p->rank);
        OnnxShape *o = output(f, 1 + i);
        if (!o || o->rank != 4) continue;
        o->dim[0] = next->dim[0];
        o->dim[1] = hk;
        OnnxSize length = next->rank == 4 ? next->dim[2] : next->dim[1], before = p && p->rank == 4 ? p->dim[2] : past ? unknown() : number(0);
        o->dim[2] = is_number(length) && is_number(before) ? number(length.v + before.v) : unknown();
        o->dim[3] = next->rank == 4 ? next->dim[3] : is_number(next->dim[2]) ? number(next->dim[2].v / kv) : unknown();
    }
}

static void infer_topk(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *k = input(f, 1);
    if (!x || x->rank < 0) return;
    int axis = axis_of(f, attr_int(f, "axis", -1), x->rank);
    if (axis < 0) return;
    for (int i = 0; i < 2; i++) {
        give_same(f, i, 0);
        if (output(f, i)) output(f, i)->dim[axis] = k && k->n == 1 ? k->data[0] : unknown();
    }
    if (k && k->n == 1 && is_number(k->data[0]) && is_number(x->dim[axis]) && k->data[0].v > x->dim[axis].v)
        refuse(f, "the largest %lld of %lld", (long long)k->data[0].v, (long long)x->dim[axis].v);
}

static void infer_flatten(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    if (!x || x->rank < 0) return;
    int64_t axis = attr_int(f, "axis", 1), v;
    if (axis < -x->rank || axis > x->rank) {
        refuse(f, "axis %lld of %d axes", (long long)axis, x->rank);
        return;
    }
    int at = (int)(axis < 0 ? axis + x->rank : axis);
    OnnxSize d[2] = {unknown(), unknown()};
    if (product(at, x->dim, &v)) d[0] = number(v);
    if (product(x->rank - at, x->dim + at, &v)) d[1] = number(v);
    give(f, 0, 2, d);
}

static void infer_from_sizes(OnnxInfer *f) /* ConstantOfShape */
{
    const OnnxShape *s = input(f, 0);
    if (s && s->n < 0 && s->rank == 1 && is_number(s->dim[0]) && s->dim[0].v <= MAX_RANK) give_rank(f, 0, (int)s->dim[0].v);
    if (!s || s->n < 0 || s->n > MAX_RANK) return;
    for (int i = 0; i < s->n; i++)
        if (is_number(s->data[i]) && s->data[i].v < 0) {
            refuse(f, "size %d is %lld", i, (long long)s->data[i].v);
            return;
        }
    give(f, 0, s->n, s->data);
}

static void infer_pad_tile(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    int64_t v[2 * MAX_RANK];
    bool tile = !strcmp(f->node->op, "Tile");
    if (!x || x->rank < 0) return;
    give_rank(f, 0, x->rank);
    const OnnxAttr *pads = tile ? NULL : attr_ints(f, "pads");
    int n = pads ? pads->n : input_numbers(f, 1, v, 2 * MAX_RANK);
    if (pads && n <= 2 * MAX_RANK) memcpy(v, pads->ints, (size_t)n * sizeof *v);
    bool axes = !tile && f->node->ninput > 3 && *f->node->input[3];
    if (n < 0 || axes || n > 2 * MAX_RANK) return;
    if (n != (tile ? x->rank : 2 * x->rank)) {
        refuse(f, "%d numbers for %d axes", n, x->rank);
        return;
    }
    for (int i = 0; i < x->rank; i++) {
        int64_t out = 0;
        bool ok = is_number(x->dim[i]) && (tile ? mul_i64(x->dim[i].v, v[i], &out) : add_i64(x->dim[i].v, v[i], &out) && add_i64(out, v[i + x->rank], &out));
        if (ok && out >= 0) output(f, 0)->dim[i] = number(out);
        else if (!is_number(x->dim[i]) && (tile ? v[i] == 1 : !v[i] && !v[i + x->rank])) output(f, 0)->dim[i] = x->dim[i];
    }
}

static void infer_unique(OnnxInfer *f)
{
    bool flat = !onnx_attr(f->node, "axis");
    if (flat) give_rank(f, 0, 1);
    else if (ranked(f, 0) && axis_of(f, attr_int(f, "axis", 0), input(f, 0)->rank) >= 0) give_rank(f, 0, input(f, 0)->rank);
    for (int k = 1; k < 4; k++) give_rank(f, k, 1);
}

/* Ops whose result has its input's rank and other sizes; the ranks that their inputs must have, "3 3 1" ('-': any). */
static void infer_ranks(OnnxInfer *f)
{
    static const char *const needs[][2] = {{"CausalConvWithState", "331"}, {"FlexAttention", "444"}, {"RoiAlign", "421"}, {"LinearAttention", "333"}, {"DFT", ""}, {"BitCast", ""}, {"MaxUnpool", ""}, {"SwiGLU", ""}, {"ConvTranspose", ""}};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        if (strcmp(needs[i][0], f->node->op)) continue;
        for (int k = 0; needs[i][1][k]; k++)
            if (ranked(f, k) && input(f, k)->rank != needs[i][1][k] - '0') {
                refuse(f, "input %d has %d axes, %c are needed", k, input(f, k)->rank, needs[i][1][k]);
                return;
            }
        if (ranked(f, 0)) give_rank(f, 0, input(f, 0)->rank);
    }
}

static void infer_sizes(OnnxInfer *f)
{
    static const char same[] = "Abs Acos Acosh Asin Asinh Atan Atanh Bernoulli BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh CumProd CumSum DequantizeLinear Elu Erf Exp EyeLike Floor Gelu HardSigmoid HardSwish "
        "Hardmax Identity IsInf IsNaN LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg Not QuantizeLinear RandomNormalLike RandomUniformLike Reciprocal Relu ReverseSequence "
        "RotaryEmbedding Round ScatterElements ScatterND Scatter Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh TensorScatter ThresholdedRelu Trilu GroupNormalization "
        "InstanceNormalization LRN QuickGelu FastGelu BiasGelu SkipLayerNormalization SkipSimplifiedLayerNormalization";
    const char *op = f->node->op;
    bool plain = !*f->schema->domain || !strcmp(op, "FlexAttention");
    if (one_of(op, same)) {
        give_same(f, 0, 0);
        if (one_of(op, "Identity Cast") && input(f, 0) && input(f, 0)->n >= 0) give_data(f, input(f, 0)->n, input(f, 0)->data);
        if (one_of(op, "Softmax LogSoftmax Hardmax") && ranked(f, 0)) axis_of(f, attr_int(f, "axis", f->opset < 13 ? 1 : -1), input(f, 0)->rank ? input(f, 0)->rank : 1);
        return;
    }
    if (!plain) return;
    if (one_of(op, "Add Sub Mul Div Pow PRelu And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual Mod BitShift BitwiseAnd BitwiseOr BitwiseXor") && f->opset >= 7) infer_arithmetic(f);
    else if (one_of(op, "Max Min Sum Mean Where") && f->opset >= 8) infer_broadcast(f, 0, f->node->ninput);
    else if (one_of(op, "MatMul MatMulInteger")) infer_matmul(f, 0, 1);
    else if (!strcmp(op, "QLinearMatMul")) infer_matmul(f, 0, 3);
    else if (!strcmp(op, "Gemm")) infer_gemm(f);
    else if (!strcmp(op, "Transpose")) infer_transpose(f);
    else if (!strcmp(op, "Concat")) infer_concat(f);
    else if (!strcmp(op, "Reshape")) infer_reshape(f);
    else if (!strcmp(op, "Squeeze")) infer_squeeze(f, false);
    else if (!strcmp(op, "Unsqueeze")) infer_squeeze(f, true);
    else if (!strcmp(op, "Gather")) infer_gather(f);
    else if (!strcmp(op, "GatherElements")) give_same(f, 0, 1);
    else if (!strncmp(op, "Reduce", 6) || one_of(op, "ArgMax ArgMin")) infer_reduce(f);
    else if (!strcmp(op, "Slice")) infer_slice(f);
    else if (!strcmp(op, "Split")) infer_split(f);
    else if (!strcmp(op, "Expand")) infer_expand(f);
    else if (one_of(op, "Conv ConvInteger")) infer_conv(f, false);
    else if (!strcmp(op, "GridSample")) infer_grid(f);
    else if (one_of(op, "MaxPool AveragePool LpPool")) infer_conv(f, true);
    else if (!strcmp(op, "Shape")) infer_shape_of(f);
    else if (!strcmp(op, "Size")) give_rank(f, 0, 0);
    else if (!strcmp(op, "Constant")) infer_constant(f);
    else if (!strcmp(op, "ConstantOfShape")) infer_from_sizes(f);
    else if (one_of(op, "LayerNormalization RMSNormalization BatchNormalization")) infer_norm(f);
    else if (!strcmp(op, "Attention")) infer_attention(f);
    else if (!strcmp(op, "TopK")) infer_topk(f);
    else if (!strcmp(op, "Flatten")) infer_flatten(f);
    else if (one_of(op, "Pad Tile")) infer_pad_tile(f);
    else if (!strcmp(op, "Resize") && f->opset >= 10) infer_resize(f);
    else if (one_of(op, "RNN LSTM GRU")) infer_rnn(f);
    else if (!strcmp(op, "Einsum")) infer_einsum(f);
    else if (one_of(op, "SpaceToDepth DepthToSpace")) infer_depth(f, *op == 'D');
    else if (one_of(op, "GlobalMaxPool GlobalAveragePool GlobalLpPool")) infer_global_pool(f);
    else if (one_of(op, "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss")) infer_loss(f);
    else if (!strcmp(op, "StringConcat")) infer_broadcast(f, 0, 2);
    else if (!strcmp(op, "Unique")) infer_unique(f);
    else if (!strcmp(op, "Dropout")) {
        give_same(f, 0, 0);
        give_same(f, 1, 0);
        for (int i = 1; i < 3; i++)
            if (ranked(f, i) && input(f, i)->rank) refuse(f, "input %d has %d axes, a number is needed", i, input(f, i)->rank);
    } else if (!strcmp(op, "Range")) give_rank(f, 0, 1);
    else if (!strcmp(op, "NonZero")) give_rank(f, 0, 2);
    else if (!strcmp(op, "OneHot") && ranked(f, 0)) give_rank(f, 0, input(f, 0)->rank + 1);
    else infer_ranks(f);
}

void onnx_infer(OnnxInfer *f)
{
    infer_types(f);
    infer_odd_types(f);
    if (!f->bad) infer_sizes(f);
}

OnnxShape onnx_shape_of_tensor(Check *c, const OnnxTensor *t)
{
    OnnxShape s = onnx_shape_unknown();
    s.kind = ONNX_TENSOR;
    s.elem = t->type;
    s.rank = t->t.rank;
    for (int i = 0; i < s.rank; i++) s.dim[i] = number(t->t.shape[i]);
    bool integer = t->type == ONNX_INT64 || t->type == ONNX_INT32;
    int64_t n = integer ? tensor_numel(&t->t) : -1;
    if (!integer || s.rank > 1 || n > ONNX_FOLLOWED || (n && !t->t.data)) return s;
    s.data = arena_array(c->arena, OnnxSize, n + 1);
    if (!s.data) {
        c->failed = true;
        return s;
    }
    s.n = (int)n;
    for (int i = 0; i < s.n; i++) s.data[i] = number(tensor_get_i64(&t->t, i));
    return s;
}
