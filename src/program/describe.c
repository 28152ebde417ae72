/* Describing a model in JSON. */
#include "program/describe.h"
#include <stdlib.h>
#include <string.h>
#include "facts/attention.h"
#include "format/json.h"

static void put_expr(const Graph *g, const Expr *e, Buf *out)
{
    if (ex_is_int(e)) {
        buf_printf(out, "%lld", (long long)e->i);
        return;
    }
    Buf b = {0};
    ex_print(g->ex, e, &b);
    json_put_string(out, b.data ? b.data : "");
    buf_free(&b);
}

static void put_shape(const Graph *g, const Value *v, Buf *out)
{
    buf_puts(out, "[");
    for (int i = 0; i < v->rank; i++) {
        if (i) buf_puts(out, ", ");
        put_expr(g, v->dim[i], out);
    }
    buf_puts(out, "]");
}

static void put_value(const Graph *g, const char *name, const char *value, const Value *v, Buf *out)
{
    buf_puts(out, "{\"name\": ");
    json_put_string(out, name);
    if (value) {
        buf_puts(out, ", \"value\": ");
        json_put_string(out, value);
    }
    buf_printf(out, ", \"dtype\": \"%s\", \"shape\": ", dtype_name(v->dtype));
    put_shape(g, v, out);
    buf_puts(out, "}");
}

static void put_scalar(const Graph *g, const ScalarInput *s, Buf *out)
{
    buf_puts(out, "{\"name\": ");
    json_put_string(out, s->name);
    buf_puts(out, ", \"value\": ");
    if (s->value.kind == ARG_STR) json_put_string(out, s->value.s);
    else if (s->value.kind != ARG_EXPR) buf_puts(out, "null");
    else if (s->value.e->kind == EX_BOOL) buf_puts(out, s->value.e->i ? "true" : "false");
    else if (s->value.e->kind == EX_FLOAT) json_put_number(out, s->value.e->f);
    else put_expr(g, s->value.e, out);
    buf_puts(out, "}");
}

static void put_bound(int64_t v, bool finite, Buf *out)
{
    if (finite) buf_printf(out, "%lld", (long long)v);
    else buf_puts(out, "null");
}

static void put_symbols(const Graph *g, Buf *out)
{
    bool first = true;
    for (int i = 0; i < expr_symbol_count(g->ex); i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        if (s->source == SYM_FREE) continue;
        buf_puts(out, first ? "{\"name\": " : ", {\"name\": ");
        first = false;
        json_put_string(out, s->name);
        buf_puts(out, ", \"min\": ");
        put_bound(s->lo, s->lo != INT64_MIN, out);
        buf_puts(out, ", \"max\": ");
        put_bound(s->hi, s->hi != INT64_MAX, out);
        buf_puts(out, ", \"bound_by\": ");
        Buf by = {0};
        if (s->source == SYM_ITEM) buf_printf(&by, "value %s", s->value->name);
        else if (s->source == SYM_SIZE) buf_printf(&by, "size %d of %s", s->dim, s->value->name);
        else if (s->value) buf_printf(&by, "%s.%d", s->value->name, s->dim);
        json_put_string(out, by.data ? by.data : "");
        buf_free(&by);
        buf_puts(out, "}");
    }
}

/* Count and bytes of the weights of one kind; tied weights (the same bytes) count once. */
static void put_weights(const Graph *g, Buf *out)
{
    long long count[3] = {0}, bytes[3] = {0};
    int tensors[3] = {0};
    for (int i = 0; i < g->nweight; i++) {
        const Value *w = g->weight[i];
        bool tied = false;
        for (int k = 0; k < i && !tied; k++)
            tied = g->weight[k]->data->data == w->data->data && w->data->data &&
                   tensor_numel(w->data) == tensor_numel(g->weight[k]->data);
        if (tied) continue;
        tensors[w->weight]++;
        count[w->weight] += tensor_numel(w->data);
        bytes[w->weight] += (long long)tensor_bytes(w->data);
    }
    static const char *const names[] = {"parameter", "buffer", "constant"};
    for (int k = 0; k < 3; k++)
        buf_printf(out, "\"%ss\": %lld, \"%s_bytes\": %lld, \"%s_tensors\": %d, ", names[k], count[k], names[k],
                   bytes[k], names[k], tensors[k]);
}

static void put_ops(const Graph *g, Buf *out)
{
    int count[OP_COUNT] = {0};
    bool first = true;
    for (const Node *n = g->first; n; n = n->next) count[n->op->id]++;
    for (;;) { /* most frequent first */
        int best = 0;
        for (int i = 1; i < OP_COUNT; i++)
            if (count[i] > count[best]) best = i;
        if (!count[best]) return;
        buf_printf(out, "%s\"%s\": %d", first ? "" : ", ", op_get((OpId)best)->name, count[best]);
        first = false;
        count[best] = 0;
    }
}

/* ------------------------------------------------------------------ attentions */

static void put_operand(const Graph *g, const char *name, const Arg *a, Buf *out)
{
    buf_printf(out, ", \"%s\": ", name);
    if (a->kind == ARG_VALUE) put_shape(g, a->v, out);
    else if (a->kind == ARG_EXPR && a->e->kind == EX_BOOL) buf_puts(out, a->e->i ? "true" : "false");
    else if (a->kind == ARG_EXPR && a->e->kind == EX_FLOAT) json_put_number(out, a->e->f);
    else if (a->kind == ARG_EXPR) put_expr(g, a->e, out);
    else buf_puts(out, "null");
}

static void put_attentions(const Graph *g, Buf *out)
{
    bool first = true;
    AttentionFinder f;
    AttentionParts a = {.n = 0};
    Err err = {0};
    if (!attention_finder(&f, g, &err)) {
        out->failed = true;
        return;
    }
    for (const Node *n = g->first; n; n = n->next) {
        bool sdpa = n->op->id == OP_scaled_dot_product_attention;
        bool spelled = is_softmax(n) && attention_parts(&f, n, &a) && a.values;
        if (!sdpa && !spelled) continue;
        buf_printf(out, "%s{\"node\": ", first ? "" : ", ");
        first = false;
        json_put_string(out, n->name);
        buf_printf(out, ", \"op\": \"%s\"",
                   sdpa                          ? "scaled_dot_product_attention"
                   : n->op->id == OP_softmax_int ? "softmax"
                                                 : "_safe_softmax");
        const Node *at = sdpa ? n : a.scores;
        put_operand(g, "query", &at->arg[0], out);
        put_operand(g, "key", &at->arg[1], out);
        if (sdpa) {
            put_operand(g, "value", &n->arg[2], out);
            put_operand(g, "mask", &n->arg[3], out);
            put_operand(g, "causal", &n->arg[5], out);
            put_operand(g, "scale", &n->arg[6], out);
        }
        buf_puts(out, "}");
    }
    attention_finder_free(&f);
}

void describe_model(const char *path, const Source *p, Buf *out)
{
    const Graph *g = p->graph;
    buf_puts(out, JSON_REPORT "\"file\": ");
    json_put_string(out, path);
    buf_printf(out, ", \"format\": \"%s\", \"torch\": ", p->opset ? "onnx" : "pt2");
    json_put_string(out, p->torch_version);
    buf_printf(out, ", \"schema_version\": \"%d.%d\", \"producer\": ", p->schema_major, p->schema_minor);
    json_put_string(out, p->producer);
    buf_printf(out, ", \"opset\": %lld, \"inputs\": [", (long long)p->opset);
    for (int i = 0; i < g->ninput; i++) {
        if (i) buf_puts(out, ", ");
        put_value(g, value_label(g->input[i]), NULL, g->input[i], out);
    }
    buf_puts(out, "], \"scalar_inputs\": [");
    for (int i = 0; i < g->nscalar_input; i++) {
        if (i) buf_puts(out, ", ");
        put_scalar(g, &g->scalar_input[i], out);
    }
    buf_puts(out, "], \"outputs\": [");
    for (int i = 0; i < g->noutput; i++) {
        if (i) buf_puts(out, ", ");
        put_value(g, g->output[i].name, g->output[i].value_name, g->output[i].value, out);
    }
    buf_puts(out, "], \"symbols\": [");
    put_symbols(g, out);
    buf_puts(out, "], ");
    put_weights(g, out);
    buf_printf(out, "\"nodes\": %d, \"ops\": {", g->nnodes);
    put_ops(g, out);
    buf_puts(out, "}, \"attentions\": [");
    put_attentions(g, out);
    buf_puts(out, "], \"requirements\": [");
    for (int i = 0; i < g->nrequire; i++) {
        Buf b = {0};
        ex_print(g->ex, g->require[i].cond, &b);
        buf_puts(out, i ? ", {\"condition\": " : "{\"condition\": ");
        json_put_string(out, b.data ? b.data : "");
        buf_puts(out, ", \"where\": ");
        json_put_string(out, g->require[i].where);
        buf_puts(out, "}");
        buf_free(&b);
    }
    buf_printf(out, "], \"guards\": %d, \"guards_ignored\": %d, \"written_buffers\": [", p->nguards,
               p->nguards_ignored);
    for (int i = 0; i < g->nmutation; i++) {
        if (i) buf_puts(out, ", ");
        json_put_string(out, g->mutation[i].target->fqn);
    }
    buf_puts(out, "], \"ignored_entries\": [");
    for (int i = 0; i < p->nignored; i++) {
        if (i) buf_puts(out, ", ");
        json_put_string(out, p->ignored[i]);
    }
    buf_puts(out, "]}");
}
