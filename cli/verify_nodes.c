/* qkv verify --per-node FILE: the first node whose value differs from the one in FILE; with --all every node, by
 * module.
 *
 * FILE holds what every node of the file gave in PyTorch, a tensor per node by the node's name (a node with several
 * results: its first by
 * name, the k-th also as "name.k"). qkv runs the model without fusion and compares in the order of execution. Nodes
 * that one of the two
 * sides lacks (casts that import inserted, nodes that became sizes) are passed over.
 */
#include "verify.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_SLACK = 10 }; /* a softmax of large scores differs more than the output that follows it */

/* The nodes of one module. */
typedef struct Row {
    char *name, *worst, *first; /* worst, first: nodes; first: the first that differs, NULL: none */
    int nodes, differ;
    double of_peak, max_abs; /* of the worst */
} Row;

typedef struct Walk {
    const VerifyOptions *o;
    const qkv_model *model;
    Row *row;
    int nrow, differ;
    const qkv_tensors *trace;
    int ran, agreed, code;
    bool found;
    char node[256], op[128], name[288];
    json_t *json;
} Walk;

/* ------------------------------------------------------------------ all nodes */

static Row *row_of(Walk *w, const char *node)
{
    const char *path = qkv_model_node_module(w->model, node), *name = !path ? "-" : *path ? path : "(model)";
    for (int i = 0; i < w->nrow; i++)
        if (!strcmp(w->row[i].name, name)) return &w->row[i];
    w->row = must(realloc(w->row, ((size_t)w->nrow + 1) * sizeof *w->row));
    w->row[w->nrow] = (Row){.name = must(strdup(name)), .of_peak = -1};
    return &w->row[w->nrow++];
}

static void print_node(const Walk *w, const char *node, const char *op, const Compared *c)
{
    if (w->o->common.json || w->o->common.verbose < 1) return;
    printf("%s%-8s%s %.3g of peak  %s (%s)\n", color_on(c->differs ? RED : GREEN), c->differs ? "DIFFERS" : "ok",
           color_off(c->differs ? RED : GREEN), c->d.max_abs_over_peak, node, op);
}

static void note_node(Walk *w, const char *node, const char *op, const Compared *c)
{
    Row *r = row_of(w, node);
    double worst = c->same_shape ? c->d.max_abs_over_peak : INFINITY;
    r->nodes++;
    r->differ += c->differs;
    w->differ += c->differs;
    if (c->differs && !r->first) r->first = must(strdup(node));
    if (!(worst <= r->of_peak)) {
        free(r->worst);
        r->worst = must(strdup(node));
        r->of_peak = worst;
        r->max_abs = c->d.max_abs;
    }
    print_node(w, node, op, c);
}

static void print_rows(const Walk *w)
{
    static const char *const head[] = {"module", "nodes", "differ", "of peak", "max abs", "at", "first that differs"};
    Table *t = table_new("lrrrrll");
    for (int i = 0; i < 7; i++) table_cell(t, "%s", head[i]);
    for (int i = 0; i < w->nrow; i++) {
        const Row *r = &w->row[i];
        table_cell(t, "%s", r->name);
        table_cell(t, "%d", r->nodes);
        table_cell(t, "%d", r->differ);
        table_color(t, r->differ ? RED : GREEN);
        table_cell(t, "%.3g", r->of_peak);
        table_cell(t, "%.3g", r->max_abs);
        table_cell(t, "%s", r->worst ? r->worst : "-");
        table_cell(t, "%s", r->first ? r->first : "-");
    }
    putchar('\n');
    table_print(t);
    printf("\n%d of %d compared nodes differ\n", w->differ, w->agreed + w->differ);
}

static json_t *json_rows(const Walk *w)
{
    json_t *rows = json_array();
    for (int i = 0; i < w->nrow; i++) {
        const Row *r = &w->row[i];
        json_array_append_new(rows,
                              json_pack("{s:s, s:i, s:i, s:o, s:o, s:s*, s:s*}", "module", r->name, "nodes", r->nodes,
                                        "differ", r->differ, "max_abs_over_peak", json_number(r->of_peak), "max_abs",
                                        json_number(r->max_abs), "at", r->worst, "first", r->first));
    }
    return rows;
}

static void rows_free(Walk *w)
{
    for (int i = 0; i < w->nrow; i++) {
        free(w->row[i].name);
        free(w->row[i].worst);
        free(w->row[i].first);
    }
    free(w->row);
}

/* ------------------------------------------------------------------ the first */

static void keep_difference(Walk *w, const char *node, const char *op, const Compared *c)
{
    char at[256], got[256], want[256];
    const qkv_difference *d = &c->d;
    snprintf(w->node, sizeof w->node, "%s", node);
    snprintf(w->op, sizeof w->op, "%s", op);
    w->found = true;
    if (w->o->common.json) {
        w->json = compared_json(c);
        return;
    }
    const char *path = qkv_model_node_module(w->model, node);
    printf("%snode '%s' (%s%s%s) is the first that differs%s\n", color_on(RED), node, op, path && *path ? " in " : "",
           path ? path : "", color_off(RED));
    if (!c->same_shape)
        printf("  shape %s, expected %s\n", shape_text(&c->got, got, sizeof got),
               shape_text(&c->expected, want, sizeof want));
    else {
        printf("  at %s: %.9g, expected %.9g\n", index_text(&c->got, d->index, at, sizeof at), d->a, d->b);
        printf("  max abs %.3g, max rel %.3g, of peak %.3g, cosine %.7f; %lld of %lld elements differ\n", d->max_abs,
               d->max_rel, d->max_abs_over_peak, d->cosine, (long long)d->failed, (long long)tensor_count(&c->got));
    }
}

static int on_node(void *user, const char *node, const char *op, const qkv_tensor *outputs, int n)
{
    Walk *w = user;
    bool compared = false;
    w->ran++;
    for (int k = 0; k < n; k++) {
        Compared c;
        snprintf(w->name, sizeof w->name, "%s.%d", node, k);
        const qkv_tensor *want = qkv_tensors_find(w->trace, w->name);
        if (!want && k == 0) want = qkv_tensors_find(w->trace, node);
        if (!want) continue;
        compared = true;
        if ((w->code = compare(w->o, node, node, &outputs[k], want, NODE_SLACK, 0, &c))) return 1;
        if (w->o->all) note_node(w, node, op, &c);
        if (!c.differs) continue;
        if (!w->found) keep_difference(w, node, op, &c);
        if (!w->o->all) return 1;
        compared = false;
    }
    w->agreed += compared;
    return 0;
}

int verify_nodes(const VerifyOptions *o, Loaded *m, bool *differs, json_t **json)
{
    qkv_error e;
    Walk w = {.o = o, .model = m->model};
    qkv_tensors *trace = qkv_tensors_open(o->nodes, &e);
    if (!trace) return problem_of(&e);
    w.trace = trace;
    qkv_session_on_node(m->session, on_node, &w);
    qkv_status s = qkv_session_run(m->session, &e);
    qkv_session_on_node(m->session, NULL, NULL);
    qkv_session_reset(m->session); /* buffers that the run changed: outputs are compared by a run of their own */
    int code = w.code ? w.code : s && !w.found ? problem_of(&e) : 0;
    int known = qkv_tensors_count(trace);
    if (!code && !w.found && !w.agreed)
        code = problem(QKV_USAGE, "%s: none of its %d tensors has the name of a node of the model", o->nodes, known);
    if (!code && !o->common.json) {
        if (o->all) print_rows(&w);
        else if (w.found)
            printf("  %d node%s before it agree%s\n", w.agreed, w.agreed == 1 ? "" : "s", w.agreed == 1 ? "s" : "");
        else
            printf("%sall %d compared nodes agree%s (%d ran, %d in the trace)\n", color_on(GREEN), w.agreed,
                   color_off(GREEN), w.ran, known);
    }
    if (!code && o->common.json) {
        *json = json_pack("{s:b, s:i, s:i}", "differs", w.found, "agreed", w.agreed, "in_trace", known);
        if (w.found) json_object_update_new(*json, json_pack("{s:s, s:s}", "node", w.node, "op", w.op));
        if (w.json) json_object_set(*json, "difference", w.json);
        if (o->all) json_object_set_new(*json, "by_module", json_rows(&w));
    }
    rows_free(&w);
    json_decref(w.json);
    *differs |= w.found;
    qkv_tensors_free(trace);
    return code;
}
