/* A graph as JSON. A node:
 *
 *     {"name": "linear", "op": "aten.linear.default", "module": "proj", "line": 0, "inputs": {"input": "x",
 *      "weight": "p_weight"}, "attributes": {}, "results": [{"name": "linear", "dtype": "f32", "shape": ["s0", 8]}]}
 */
#include "program/graph_report.h"
#include "base/jsonw.h"
#include "program/describe.h"

static void put_value(const Graph *g, const Value *v, Buf *out)
{
    jw_put(out, "{'name': %s, 'dtype': %s", v->name, dtype_name(v->dtype));
    describe_sizes(g, "shape", v->rank, v->dim, out);
    jw_close(out, "}");
}

static void put_weights(const Graph *g, Buf *out)
{
    static const char *const kinds[] = {"parameter", "buffer", "constant"};
    jw_open(out, "weights", '[');
    for (int i = 0; i < g->nweight; i++) {
        const Value *w = g->weight[i];
        jw_put(out, "{'name': %s, 'path': %s, 'kind': %s, 'dtype': %s", w->name, w->fqn, kinds[w->weight],
               dtype_name(w->dtype));
        describe_sizes(g, "shape", w->rank, w->dim, out);
        jw_close(out, "}");
    }
    jw_close(out, "]");
}

static void put_inputs(const Node *n, Buf *out)
{
    jw_open(out, "inputs", '{');
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *a = &n->arg[i];
        const char *key = n->op->schema->params[i].name;
        if (a->kind == ARG_VALUE) jw_text(out, key, a->v->name);
        if (a->kind != ARG_VALUES) continue;
        jw_open(out, key, '[');
        for (int k = 0; k < a->n; k++) jw_text(out, NULL, a->vs[k] ? a->vs[k]->name : NULL);
        jw_close(out, "]");
    }
    jw_close(out, "}");
}

static void put_attributes(const Graph *g, const Node *n, Buf *out)
{
    jw_open(out, "attributes", '{');
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *a = &n->arg[i];
        const char *key = n->op->schema->params[i].name;
        if (a->kind == ARG_DTYPE) jw_text(out, key, dtype_name(a->dtype));
        else if (a->kind == ARG_GRAPH) jw_int(out, key, a->g->nnodes); /* how many nodes its body has */
        else if (a->kind == ARG_EXPRS) describe_sizes(g, key, a->n, a->es, out);
        else if (a->kind == ARG_EXPR || a->kind == ARG_STR) describe_arg(g, key, a, out);
    }
    jw_close(out, "}");
}

typedef struct Lines { /* each once, in the order of the nodes */
    Map index;         /* line -> 1 + its number, as a pointer */
    Buf text;
} Lines;

/* The number of a line; -1: there is none. */
static bool line_number(Lines *l, const char *line, int *out, Err *err)
{
    *out = -1;
    if (!line) return true;
    if (!map_has(&l->index, line)) {
        if (!map_put(&l->index, line, (void *)(uintptr_t)(l->index.count + 1))) return oom(err);
        jw_text(&l->text, NULL, line);
    }
    *out = (int)((uintptr_t)map_get(&l->index, line) - 1);
    return true;
}

static bool put_node(const Source *s, const Graph *g, const Node *n, Lines *lines, Buf *out, Err *err)
{
    int line;
    TRY(line_number(lines, source_line(s, n->name), &line, err));
    jw_line(out);
    jw_put(out, "{'name': %s, 'op': %s", n->name, n->op->name);
    jw_text(out, "module", n->module ? n->module->path : NULL);
    if (line < 0) jw_text(out, "line", NULL);
    else jw_int(out, "line", line);
    put_inputs(n, out);
    put_attributes(g, n, out);
    jw_open(out, "results", '[');
    for (int k = 0; k < n->nout; k++) put_value(g, n->out[k], out);
    jw_close(out, "]}");
    return true;
}

bool graph_report(const Source *s, const Graph *g, Buf *out, Err *err)
{
    Lines lines = {0};
    bool ok = true;
    jw_report(out);
    jw_open(out, "inputs", '[');
    for (int i = 0; i < g->ninput; i++) put_value(g, g->input[i], out);
    jw_close(out, "]");
    put_weights(g, out);
    jw_open(out, "outputs", '[');
    for (int i = 0; i < g->noutput; i++)
        jw_put(out, "{'name': %s, 'label': %s, 'value': %s}", g->output[i].name, output_label(&g->output[i]),
               g->output[i].value->name);
    jw_close(out, "]");
    jw_open(out, "nodes", '[');
    for (const Node *n = g->first; n && ok; n = n->next) ok = put_node(s, g, n, &lines, out, err);
    jw_close(out, "]");
    jw_list(out, "lines", '[', &lines.text);
    jw_close(out, "}");
    bool failed = lines.text.failed;
    map_free(&lines.index);
    buf_free(&lines.text);
    return ok && (failed || out->failed ? oom(err) : true);
}
