/* Describing a model in JSON. */
#include "program/describe.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/jsonw.h"
#include "base/mem.h"
#include "facts/attention.h"

static void put_expr(const Graph *g, const char *key, const Expr *e, Buf *out)
{
    Buf b = {0};
    if (ex_is_int(e)) {
        jw_int(out, key, e->i);
        return;
    }
    ex_print(g->ex, e, &b);
    jw_take(out, key, &b);
}

void describe_sizes(const Graph *g, const char *key, int rank, Expr *const *dim, Buf *out)
{
    jw_open(out, key, '[');
    for (int i = 0; i < rank; i++) put_expr(g, NULL, dim[i], out);
    jw_close(out, "]");
}

static void put_value(const Graph *g, const char *name, const char *label, const char *value, const Value *v, Buf *out)
{
    jw_put(out, "{'name': %s", name);
    if (label) jw_text(out, "label", label);
    if (value) jw_text(out, "value", value);
    jw_text(out, "dtype", dtype_name(v->dtype));
    describe_sizes(g, "shape", v->rank, v->dim, out);
    jw_close(out, "}");
}

void describe_arg(const Graph *g, const char *key, const Arg *a, Buf *out)
{
    if (a->kind == ARG_VALUE) describe_sizes(g, key, a->v->rank, a->v->dim, out);
    else if (a->kind == ARG_STR) jw_text(out, key, a->s);
    else if (a->kind != ARG_EXPR) jw_text(out, key, NULL);
    else if (a->e->kind == EX_BOOL) jw_bool(out, key, a->e->i);
    else if (a->e->kind == EX_FLOAT) jw_number(out, key, a->e->f);
    else put_expr(g, key, a->e, out);
}

static void put_bound(const char *key, int64_t v, bool finite, Buf *out)
{
    if (finite) jw_int(out, key, v);
    else jw_text(out, key, NULL);
}

static void put_symbols(const Graph *g, Buf *out)
{
    for (int i = 0; i < expr_symbol_count(g->ex); i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        Buf by = {0};
        if (s->source == SYM_FREE) continue;
        jw_put(out, "{'name': %s", s->name);
        put_bound("min", s->lo, s->lo != INT64_MIN, out);
        put_bound("max", s->hi, s->hi != INT64_MAX, out);
        if (s->source == SYM_ITEM) buf_printf(&by, "value %s", s->value->name);
        else if (s->source == SYM_SIZE) buf_printf(&by, "size %d of %s", s->dim, s->value->name);
        else if (s->value) buf_printf(&by, "%s.%d", s->value->name, s->dim);
        jw_take(out, "bound_by", &by);
        jw_close(out, "}");
    }
}

/* Count and bytes of the weights of one kind; tied weights (the same bytes) count once. */
static void put_weights(const Graph *g, Buf *out)
{
    long long count[3] = {0}, bytes[3] = {0};
    int tensors[3] = {0};
    bool *tied = mem_zeroed((size_t)g->nweight + 1, sizeof *tied);
    out->failed |= !tied || !graph_tied_weights(g, tied);
    for (int i = 0; i < g->nweight && !out->failed; i++) {
        const Value *w = g->weight[i];
        if (tied[i]) continue;
        tensors[w->weight]++;
        count[w->weight] += tensor_numel(w->data);
        bytes[w->weight] += (long long)tensor_bytes(w->data);
    }
    mem_free(tied);
    static const char *const names[][3] = {{"parameters", "parameter_bytes", "parameter_tensors"},
                                           {"buffers", "buffer_bytes", "buffer_tensors"},
                                           {"constants", "constant_bytes", "constant_tensors"}};
    for (int k = 0; k < 3; k++) {
        jw_int(out, names[k][0], count[k]);
        jw_int(out, names[k][1], bytes[k]);
        jw_int(out, names[k][2], tensors[k]);
    }
}

static void put_ops(const Graph *g, Buf *out)
{
    int count[OP_COUNT] = {0};
    for (const Node *n = g->first; n; n = n->next) count[n->op->id]++;
    for (;;) { /* most frequent first */
        int best = 0;
        for (int i = 1; i < OP_COUNT; i++)
            if (count[i] > count[best]) best = i;
        if (!count[best]) return;
        jw_int(out, op_get((OpId)best)->name, count[best]);
        count[best] = 0;
    }
}

/* ------------------------------------------------------------------ attentions */

static void put_attentions(const Graph *g, Buf *out)
{
    AttentionFinder f;
    AttentionParts a = {.n = 0};
    Err err = {0};
    if (!attention_finder(&f, g, &err)) {
        out->failed = true;
        return;
    }
    for (const Node *n = g->first; n; n = n->next) {
        bool sdpa = n->op->id == OP_scaled_dot_product_attention;
        bool spelled = attention_begins(&f, n, &a) && a.values;
        if (!sdpa && !spelled) continue;
        jw_put(out, "{'node': %s", n->name);
        size_t length;
        char op[64];
        const char *base = op_base(n->op, &length);
        snprintf(op, sizeof op, "%.*s", (int)length, base);
        jw_text(out, "op", op);
        const Node *at = sdpa ? n : a.scores;
        describe_arg(g, "query", &at->arg[0], out);
        describe_arg(g, "key", &at->arg[1], out);
        if (sdpa) {
            describe_arg(g, "value", &n->arg[2], out);
            describe_arg(g, "mask", &n->arg[3], out);
            describe_arg(g, "causal", &n->arg[5], out);
            describe_arg(g, "scale", &n->arg[6], out);
        }
        jw_close(out, "}");
    }
    attention_finder_free(&f);
}

/* An ONNX file's own, of the file that p's graph comes from. */
static void put_metadata(const Source *p, Buf *out)
{
    while (p && !p->onnx) p = p->origin;
    jw_open(out, "metadata", '{');
    for (int i = 0; p && i < p->onnx->model.nmetadata; i++)
        jw_text(out, p->onnx->model.metadata[i].key, p->onnx->model.metadata[i].value);
    jw_close(out, "}");
}

void describe_model(const char *path, const Source *p, Buf *out)
{
    const Graph *g = p->graph;
    jw_report(out);
    jw_put(out, "'file': %s, 'format': %s, 'torch': %s", path, p->opset ? "onnx" : "pt2", p->torch_version);
    jw_put(out, "'schema_version': '%d.%d', 'producer': %s, 'opset': %lld, 'inputs': [", p->schema_major,
           p->schema_minor, p->producer, (long long)p->opset);
    for (int i = 0; i < g->ninput; i++) put_value(g, value_label(g->input[i]), NULL, NULL, g->input[i], out);
    jw_put(out, "], 'scalar_inputs': [");
    for (int i = 0; i < g->nscalar_input; i++) {
        jw_put(out, "{'name': %s", g->scalar_input[i].name);
        describe_arg(g, "value", &g->scalar_input[i].value, out);
        jw_close(out, "}");
    }
    jw_put(out, "], 'outputs': [");
    for (int i = 0; i < g->noutput; i++)
        put_value(g, g->output[i].name, g->output[i].label, g->output[i].value_name, g->output[i].value, out);
    jw_put(out, "], 'symbols': [");
    put_symbols(g, out);
    jw_close(out, "]");
    put_weights(g, out);
    jw_int(out, "nodes", g->nnodes);
    jw_open(out, "ops", '{');
    put_ops(g, out);
    jw_put(out, "}, 'attentions': [");
    put_attentions(g, out);
    jw_put(out, "], 'modules': [");
    describe_modules(g, out);
    jw_put(out, "], 'requirements': [");
    for (int i = 0; i < g->nrequire; i++) {
        Buf b = {0};
        ex_print(g->ex, g->require[i].cond, &b);
        jw_open(out, NULL, '{');
        jw_take(out, "condition", &b);
        jw_text(out, "where", g->require[i].where);
        jw_close(out, "}");
    }
    jw_put(out, "], 'guards': %d, 'guards_ignored': %d, 'written_buffers': [", p->nguards, p->nguards_ignored);
    for (int i = 0; i < g->nmutation; i++) jw_text(out, NULL, g->mutation[i].target->fqn);
    jw_close(out, "]");
    jw_texts(out, "ignored_entries", p->ignored, p->nignored);
    put_metadata(p, out);
    jw_close(out, "}");
}
