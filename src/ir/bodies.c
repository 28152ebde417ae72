/* Weights in and out of bodies. Contract in bodies.h.
 *
 * A loop's captured values are its body's last inputs; a branch has those of one half, then those of the other.
 */
#include "ir/bodies.h"
#include <string.h>

Graph *body_at(const Node *n, int i)
{
    for (int k = 0; k < n->op->schema->nparams; k++)
        if (n->arg[k].kind == ARG_GRAPH && !i--) return n->arg[k].g;
    return NULL;
}

bool has_bodies(const Graph *g)
{
    for (const Node *n = g->first; n; n = n->next)
        if (body_at(n, 0)) return true;
    return false;
}

/* The list of captured values; *start: where body i's begin; *first: the body's input that gets the first of them. */
static Arg *captured_of(Node *n, int i, int *start, int *first)
{
    bool branch = n->op->id == OP_branch;
    Arg *list = &n->arg[branch ? 1 : 2];
    *start = branch && i ? body_at(n, 0)->ninput : 0;
    *first = branch ? 0 : body_at(n, i)->ninput - list->n;
    return list;
}

static Value *same_weight(const Graph *g, const Value *w)
{
    for (int i = 0; i < g->nweight; i++) {
        Value *mine = g->weight[i];
        bool named = mine->fqn && w->fqn && !strcmp(mine->fqn, w->fqn);
        if (mine->data && w->data && mine->data->data == w->data->data && named) return mine;
    }
    return NULL;
}

static Value *take_weight(Graph *g, const Value *w)
{
    Value *mine = same_weight(g, w);
    if (mine) return mine;
    mine = graph_add_weight(g, w->name, w->fqn ? arena_strdup(g->arena, w->fqn) : NULL, w->data);
    if (!mine) return NULL;
    mine->weight = w->weight;
    mine->persistent = w->persistent;
    mine->frozen = w->frozen;
    return mine;
}

static bool insert(Graph *g, Arg *list, int at, Value *v)
{
    Value **all = arena_array(g->arena, Value *, list->n + 2);
    if (!all) return false;
    for (int i = 0; i <= list->n; i++) all[i] = i < at ? list->vs[i] : i == at ? v : list->vs[i - 1];
    list->vs = all;
    list->n++;
    return true;
}

static bool lift_from(Graph *g, Node *n, int i, bool parameters)
{
    Graph *body = body_at(n, i);
    int kept = 0, start, first;
    for (int k = 0; k < body->nweight; k++) {
        Value *w = body->weight[k];
        if (parameters && (w->weight != W_PARAMETER || w->frozen)) {
            body->weight[kept++] = w;
            continue;
        }
        Arg *list = captured_of(n, i, &start, &first);
        Value *outer = take_weight(g, w), **inputs = arena_array(body->arena, Value *, body->ninput + 2);
        if (!outer || !inputs || !insert(g, list, start + body->ninput - first, outer)) return false;
        memcpy(inputs, body->input, (size_t)body->ninput * sizeof *inputs);
        inputs[body->ninput++] = w;
        body->input = inputs;
        w->kind = V_INPUT;
        w->data = NULL;
        w->fqn = NULL;
    }
    body->nweight = kept;
    return true;
}

bool bodies_lift(Graph *g, bool parameters, Err *err)
{
    for (Node *n = g->first; n; n = n->next)
        for (int i = 0; body_at(n, i); i++)
            TRY(bodies_lift(body_at(n, i), parameters, err) && (lift_from(g, n, i, parameters) || oom(err)));
    return true;
}

static void leave_out(Value **v, int *n, int at)
{
    memmove(v + at, v + at + 1, (size_t)(*n - at - 1) * sizeof(Value *));
    --*n;
}

static bool sink_into(const Graph *g, Node *n, int i)
{
    Graph *body = body_at(n, i);
    int start, first;
    Arg *list = captured_of(n, i, &start, &first);
    for (int k = first; k < body->ninput;) {
        Value *outer = list->vs[start + k - first], *v = body->input[k];
        if (outer->kind != V_WEIGHT || graph_writes(g, outer)) {
            k++;
            continue;
        }
        Value **weights = arena_array(body->arena, Value *, body->nweight + 2);
        const char *fqn = outer->fqn ? arena_strdup(body->arena, outer->fqn) : NULL;
        if (!weights || (outer->fqn && !fqn)) return false;
        if (body->nweight) memcpy(weights, body->weight, (size_t)body->nweight * sizeof *weights);
        weights[body->nweight++] = v;
        body->weight = weights;
        v->kind = V_WEIGHT;
        v->data = outer->data;
        v->fqn = fqn;
        v->weight = outer->weight;
        v->persistent = outer->persistent;
        v->frozen = outer->frozen;
        leave_out(body->input, &body->ninput, k);
        leave_out(list->vs, &list->n, start + k - first);
    }
    return true;
}

bool bodies_sink(Graph *g, Err *err)
{
    for (Node *n = g->first; n; n = n->next)
        for (int i = 0; body_at(n, i); i++) TRY((sink_into(g, n, i) || oom(err)) && bodies_sink(body_at(n, i), err));
    return true;
}
