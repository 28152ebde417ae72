/* Weights in and out of bodies. Contract in bodies.h.
 *
 * A loop's captured values are its body's last inputs; a branch has those of one half, then those of the other.
 */
#include "ir/bodies.h"
#include <string.h>
#include "base/vec.h"

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

/* Weights of one name in the same memory are one. */
static uint64_t hash_of(const Value *w)
{
    return hash_keyed(w->fqn, strlen(w->fqn)) ^ (uint64_t)(uintptr_t)w->data->data;
}

static bool is_named(const Value *w) { return w->fqn && w->data && w->data->data; }

static bool add_named(const Graph *g, Lookup *named, int i)
{
    return !is_named(g->weight[i]) || lookup_add(named, hash_of(g->weight[i]), (size_t)i);
}

/* named: those of g. */
static Value *take_weight(Graph *g, Lookup *named, const Value *w)
{
    size_t tried = 0;
    int64_t i;
    while (is_named(w) && (i = lookup_next(named, hash_of(w), &tried)) >= 0)
        if (g->weight[i]->data->data == w->data->data && !strcmp(g->weight[i]->fqn, w->fqn)) return g->weight[i];
    Value *mine = graph_add_weight(g, w->name, w->fqn ? arena_strdup(g->arena, w->fqn) : NULL, w->data);
    if (!mine || !add_named(g, named, g->nweight - 1)) return NULL;
    mine->weight = w->weight;
    mine->persistent = w->persistent;
    mine->frozen = w->frozen;
    return mine;
}

/* Readers and rules may add to the list later. */
static bool append(Arena *a, Value ***list, int *n, Value *v)
{
    Value **all = vec_room(a, *list, *n, sizeof *all);
    if (!all) return false;
    all[(*n)++] = v;
    *list = all;
    return true;
}

static bool lift_from(Graph *g, Lookup *named, Node *n, int i, bool parameters)
{
    Graph *body = body_at(n, i);
    int kept = 0, start, first;
    if (!body->nweight) return true;
    Arg *list = captured_of(n, i, &start, &first);
    int at = start + body->ninput - first, after = list->n - at;
    Value **all = arena_array(g->arena, Value *, list->n + body->nweight + 1);
    if (!all) return false;
    if (at) memcpy(all, list->vs, (size_t)at * sizeof *all);
    for (int k = 0; k < body->nweight; k++) {
        Value *w = body->weight[k];
        if (parameters && (w->weight != W_PARAMETER || w->frozen)) {
            body->weight[kept++] = w;
            continue;
        }
        Value *outer = take_weight(g, named, w);
        if (!outer || !append(body->arena, &body->input, &body->ninput, w)) return false;
        all[at++] = outer;
        w->kind = V_INPUT;
        w->data = NULL;
        w->fqn = NULL;
    }
    if (after) memcpy(all + at, list->vs + list->n - after, (size_t)after * sizeof *all);
    list->vs = all;
    list->n = at + after;
    body->nweight = kept;
    return true;
}

bool bodies_lift(Graph *g, bool parameters, Err *err)
{
    Lookup named = {0};
    bool ok = true, any = has_bodies(g);
    for (int i = 0; ok && any && i < g->nweight; i++) ok = add_named(g, &named, i) || oom(err);
    for (Node *n = g->first; ok && any && n; n = n->next)
        for (int i = 0; ok && body_at(n, i); i++)
            ok = bodies_lift(body_at(n, i), parameters, err) && (lift_from(g, &named, n, i, parameters) || oom(err));
    lookup_free(&named);
    return ok;
}

static bool sink_into(const Graph *g, Node *n, int i)
{
    Graph *body = body_at(n, i);
    int start, first;
    Arg *list = captured_of(n, i, &start, &first);
    int inputs = first, at = start, end = start + body->ninput - first;
    for (int k = start; k < end; k++) {
        Value *outer = list->vs[k], *v = body->input[first + k - start];
        if (outer->kind != V_WEIGHT || graph_writes(g, outer)) {
            body->input[inputs++] = v;
            list->vs[at++] = outer;
            continue;
        }
        const char *fqn = outer->fqn ? arena_strdup(body->arena, outer->fqn) : NULL;
        if ((outer->fqn && !fqn) || !append(body->arena, &body->weight, &body->nweight, v)) return false;
        v->kind = V_WEIGHT;
        v->data = outer->data;
        v->fqn = fqn;
        v->weight = outer->weight;
        v->persistent = outer->persistent;
        v->frozen = outer->frozen;
    }
    if (list->n > end) memmove(list->vs + at, list->vs + end, (size_t)(list->n - end) * sizeof *list->vs);
    list->n -= end - at;
    body->ninput = inputs;
    return true;
}

bool bodies_sink(Graph *g, Err *err)
{
    for (Node *n = g->first; n; n = n->next)
        for (int i = 0; body_at(n, i); i++) TRY((sink_into(g, n, i) || oom(err)) && bodies_sink(body_at(n, i), err));
    return true;
}

bool graph_asks_derivatives(const Graph *g)
{
    const Graph *body;
    for (const Node *n = g->first; n; n = n->next) {
        if (n->op->id == OP_make_dual || n->op->id == OP_tangent) return true;
        for (int i = 0; (body = body_at(n, i)); i++)
            if (graph_asks_derivatives(body)) return true;
    }
    return false;
}
