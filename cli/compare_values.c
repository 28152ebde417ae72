/* The values of two models, node by node. Nodes are partners when they have the same name and equal values (PyTorch's
 * exporters keep many names in ONNX); else when their values are equal; else when name, op and sizes are the same; else
 * when op and sizes are, at the same place between two partners. The first pair that differs is where one model leaves
 * the other.
 *
 *     {"a": "linear_3", "b": "node_linear_3", "by": "value", "agrees": true, "max_abs": 2.4e-07, ...}
 */
#include "compare.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "verify.h"

enum { NODE_SLACK = 10 };                         /* as qkv verify --per-node */
static const size_t most_bytes = (size_t)1 << 30; /* of values held of each model */

typedef struct Kept {
    char *name, *op;
    qkv_tensor t;
    int64_t shape[QKV_MAX_RANK], count;
    double sum, square; /* of its finite elements */
    int partner;        /* -1: none */
} Kept;

typedef struct Side {
    Kept *node;
    int n, left_out;
    size_t bytes;
} Side;

static void side_free(Side *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->node[i].name);
        free(s->node[i].op);
        free(s->node[i].t.data);
    }
    free(s->node);
}

/* A contiguous copy of a value, with what tells it from others. */
static void keep(Side *s, const char *name, const char *op, const qkv_tensor *t)
{
    int64_t n = tensor_count(t);
    size_t size = qkv_dtype_size(t->dtype), bytes = (size_t)n * size;
    if (!n || s->bytes + bytes > most_bytes) {
        s->left_out++;
        return;
    }
    if ((s->n & (s->n - 1)) == 0) s->node = must(realloc(s->node, (size_t)(s->n ? 2 * s->n : 1) * sizeof *s->node));
    Kept *k = &s->node[s->n++];
    *k = (Kept){must(strdup(name)), must(strdup(op)), *t, {0}, n, 0, 0, -1};
    s->bytes += bytes;
    memcpy(k->shape, t->shape, (size_t)t->rank * sizeof *k->shape);
    char *data = must(malloc(bytes));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, step = 1, flat = i;
        for (int d = t->rank - 1; d >= 0; d--) {
            at += flat % t->shape[d] * (t->strides ? t->strides[d] : step);
            flat /= t->shape[d];
            step *= t->shape[d];
        }
        memcpy(data + (size_t)i * size, (const char *)t->data + (size_t)at * size, size);
        double v = tensor_number(t, i);
        if (!isfinite(v)) continue;
        k->sum += v;
        k->square += v * v;
    }
    k->t.data = data;
    k->t.strides = NULL;
}

static int on_node(void *user, const char *node, const char *op, const qkv_tensor *outputs, int n)
{
    if (n > 0) keep(user, node, op, &outputs[0]);
    return 0;
}

static int run_nodes(Loaded *m, Side *s)
{
    qkv_error e;
    qkv_session_on_node(m->session, on_node, s);
    qkv_status status = qkv_session_run(m->session, &e);
    qkv_session_on_node(m->session, NULL, NULL);
    qkv_session_reset(m->session);
    for (int i = 0; i < s->n; i++) s->node[i].t.shape = s->node[i].shape; /* the array has moved */
    return status ? problem_of(&e) : 0;
}

/* ------------------------------------------------------------------ partners */

static void join(Side *a, Side *b, int i, int k)
{
    a->node[i].partner = k;
    b->node[k].partner = i;
}

static int by_name(const void *x, const void *y)
{
    const Kept *const *a = x, *const *b = y;
    return strcmp((*a)->name, (*b)->name);
}

static bool nearly(double x, double y, double scale) { return fabs(x - y) <= 1e-3 * scale + 1e-12; }

static bool same_values(const Kept *x, const Kept *y)
{
    if (x->count != y->count || x->count < 2) return false;
    double scale = sqrt(x->square * (double)x->count);
    if (!nearly(x->square, y->square, x->square) || !nearly(x->sum, y->sum, scale)) return false;
    qkv_difference d;
    qkv_tensor p = {x->t.dtype, 1, &x->count, NULL, x->t.data}, q = {y->t.dtype, 1, &y->count, NULL, y->t.data};
    qkv_status s = qkv_compare(&p, &q, NODE_SLACK * qkv_tolerance(x->t.dtype) * sqrt(x->square), 0, &d, NULL);
    return s == QKV_OK;
}

/* Nodes of one name, if fits(a's, b's). */
static void join_by_name(Side *a, Side *b, bool (*fits)(const Kept *x, const Kept *y))
{
    const Kept **order = must(calloc((size_t)a->n + 1, sizeof *order));
    for (int i = 0; i < a->n; i++) order[i] = &a->node[i];
    qsort(order, (size_t)a->n, sizeof *order, by_name);
    for (int k = 0; k < b->n; k++) {
        const Kept *wanted = &b->node[k];
        if (wanted->partner >= 0) continue;
        const Kept **found = bsearch(&wanted, order, (size_t)a->n, sizeof *order, by_name);
        if (found && (*found)->partner < 0 && fits(*found, wanted)) join(a, b, (int)(*found - a->node), k);
    }
    free(order);
}

static bool same_call(const Kept *x, const Kept *y)
{
    return !strcmp(x->op, y->op) && x->t.rank == y->t.rank &&
           !memcmp(x->shape, y->shape, (size_t)x->t.rank * sizeof *x->shape);
}

static void join_equal_names(Side *a, Side *b) { join_by_name(a, b, same_values); }
static void join_names(Side *a, Side *b) { join_by_name(a, b, same_call); }

/* For each node of b without a partner the nearest one of a, looking both ways from where the last one was found. */
static void join_values(Side *a, Side *b)
{
    enum { REACH = 200 };
    int at = 0;
    for (int k = 0; k < b->n; k++) {
        if (b->node[k].partner >= 0) {
            at = b->node[k].partner;
            continue;
        }
        for (int away = 0; away < 2 * REACH && b->node[k].partner < 0; away++) {
            int i = at + (away % 2 ? -(away + 1) / 2 : away / 2);
            if (i < 0 || i >= a->n || a->node[i].partner >= 0 || !same_values(&a->node[i], &b->node[k])) continue;
            join(a, b, i, k);
            at = i;
        }
    }
}

/* Between two partners, in order. */
static void join_places(Side *a, Side *b)
{
    int at = 0;
    for (int k = 0; k < b->n; k++) {
        if (b->node[k].partner >= 0) {
            if (b->node[k].partner >= at) at = b->node[k].partner + 1;
            continue;
        }
        for (int i = at; i < a->n && a->node[i].partner < 0; i++) {
            if (!same_call(&a->node[i], &b->node[k])) continue;
            join(a, b, i, k);
            at = i + 1;
            break;
        }
    }
}

/* ------------------------------------------------------------------ what is told */

static int put_pair(Page *p, Kept *x, const Kept *y, const char *by, bool *differs)
{
    static const VerifyOptions usual;
    Compared c;
    qkv_tensor want = y->t;
    if (x->t.rank != want.rank || memcmp(x->shape, y->shape, (size_t)want.rank * sizeof *x->shape)) {
        want.rank = x->t.rank; /* the same elements with other axes */
        want.shape = x->shape;
    }
    int code = compare(&usual, x->name, x->name, &x->t, &want, NODE_SLACK, 0, &c);
    if (code) return code;
    json_t *j = compared_json(&c);
    json_object_del(j, "name");
    json_object_update_new(j, json_pack("{s:o, s:o, s:o, s:o, s:s}", "a", json_text(x->name), "b", json_text(y->name),
                                        "op_a", json_text(x->op), "op_b", json_text(y->op), "by", by));
    page_value(p, NULL, j);
    *differs = c.differs;
    return 0;
}

static void put_lonely(Page *p, const char *key, const Side *s)
{
    page_open(p, key, '[');
    for (int i = 0; i < s->n; i++)
        if (s->node[i].partner < 0) page_value(p, NULL, json_text(s->node[i].name));
    page_close(p, "]");
}

static int put_pairs(Page *p, const Side *x, const Side *y, const char *const *how, Differing *d)
{
    json_int_t first = -1;
    int code = 0;
    page_open(p, "pairs", '[');
    for (int i = 0; i < x->n && !code; i++) {
        bool differs = false;
        if (x->node[i].partner < 0) continue;
        const Kept *of = &y->node[x->node[i].partner];
        code = put_pair(p, &x->node[i], of, how[i], &differs);
        if (differs && first < 0) {
            first = (json_int_t)d->pairs;
            d->a = must(strdup(x->node[i].name));
            d->b = must(strdup(of->name));
        }
        d->pairs++;
    }
    page_close(p, "]");
    page_value(p, "first", first < 0 ? json_null() : json_integer(first));
    return code;
}

int compare_values(Page *p, Loaded *a, Loaded *b, Differing *first)
{
    Side x = {0}, y = {0};
    int code = run_nodes(a, &x);
    if (!code) code = run_nodes(b, &y);
    const char *by[4] = {"name", "value", "name", "place"}, **how = must(calloc((size_t)x.n + 1, sizeof *how));
    void (*const joins[])(Side *, Side *) = {join_equal_names, join_values, join_names, join_places};
    for (int k = 0; k < 4 && !code; k++) {
        joins[k](&x, &y);
        for (int i = 0; i < x.n; i++)
            if (x.node[i].partner >= 0 && !how[i]) how[i] = by[k];
    }
    page_open(p, "values", '{');
    if (!code) code = put_pairs(p, &x, &y, how, first);
    put_lonely(p, "left_a", &x);
    put_lonely(p, "left_b", &y);
    page_value(p, "not_kept", json_integer(x.left_out + y.left_out));
    page_close(p, "}");
    free(how);
    side_free(&x);
    side_free(&y);
    return code;
}
