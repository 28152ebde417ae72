/* qkv verify --per-node FILE: the first node whose value differs from the one in FILE.
 *
 * FILE holds what every node of the file gave in PyTorch, a tensor per node by the node's name (a node with several
 * results: its first by
 * name, the k-th also as "name.k"). qkv runs the model without fusion and compares in the order of execution. Nodes
 * that one of the two
 * sides lacks (casts that import inserted, nodes that became sizes) are passed over.
 */
#include "verify.h"
#include <stdio.h>
#include <string.h>

enum { NODE_SLACK = 10 }; /* a softmax of large scores differs more than the output that follows it */

typedef struct Walk {
    const VerifyOptions *o;
    const qkv_tensors *trace;
    int ran, agreed, code;
    bool found;
    char node[256], op[128], name[288];
    json_t *json;
} Walk;

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
    printf("%snode '%s' (%s) is the first that differs%s\n", color_on(RED), node, op, color_off(RED));
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
        if ((w->code = compare(w->o, node, node, &outputs[k], want, NODE_SLACK, &c))) return 1;
        if (!c.differs) continue;
        keep_difference(w, node, op, &c);
        return 1;
    }
    w->agreed += compared;
    return 0;
}

int verify_nodes(const VerifyOptions *o, Loaded *m, bool *differs, json_t **json)
{
    qkv_error e;
    Walk w = {.o = o};
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
        if (w.found)
            printf("  %d node%s before it agree%s\n", w.agreed, w.agreed == 1 ? "" : "s", w.agreed == 1 ? "s" : "");
        else
            printf("%sall %d compared nodes agree%s (%d ran, %d in the trace)\n", color_on(GREEN), w.agreed,
                   color_off(GREEN), w.ran, known);
    }
    if (!code && o->common.json) {
        *json = json_pack("{s:b, s:i, s:i}", "differs", w.found, "agreed", w.agreed, "in_trace", known);
        if (w.found) json_object_update_new(*json, json_pack("{s:s, s:s}", "node", w.node, "op", w.op));
        if (w.json) json_object_set(*json, "difference", w.json);
    }
    json_decref(w.json);
    *differs |= w.found;
    qkv_tensors_free(trace);
    return code;
}
