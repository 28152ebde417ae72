/* Structural copies. Contract in copy.h. Values are numbered in the order inputs, weights, results of nodes,
 * as a reader of the text does. */
#include "ir/copy.h"
#include <string.h>
#include "base/mem.h"
#include "base/vec.h"

typedef struct Copier {
    const Graph *from;
    Graph *to;
    GraphCopy map;
    bool failed; /* out of memory */
} Copier;

static void *got(Copier *c, void *p)
{
    if (!p) c->failed = true;
    return p;
}

static const char *string(Copier *c, const char *s) { return s ? got(c, arena_strdup(c->to->arena, s)) : NULL; }
static Expr *expr_of(const Copier *c, const Expr *e) { return e ? &c->map.expr[e->id] : NULL; }
static Value *value_of(const Copier *c, const Value *v) { return v ? c->map.value[v->id] : NULL; }

/* Room for n elements and, as vec_room expects it, for those that are added later. */
static void *list(Copier *c, int n, size_t size)
{
    void *all = NULL;
    for (int i = 0; i < n && !c->failed; i = i ? 2 * i : 1) all = got(c, vec_room(c->to->arena, all, i, size));
    return all;
}

/* ------------------------------------------------------------------ values */

static Value *add_value(Copier *c, const Value *v)
{
    Graph *g = c->to;
    Value *mine = got(c, arena_new(g->arena, Value));
    Expr **dim = got(c, arena_array(g->arena, Expr *, v->rank));
    if (c->failed) return NULL;
    *mine = *v;
    mine->name = string(c, v->name);
    mine->label = string(c, v->label);
    mine->fqn = string(c, v->fqn);
    mine->dim = dim;
    mine->def = NULL;
    mine->id = g->next_id++;
    for (int i = 0; i < v->rank; i++) dim[i] = expr_of(c, v->dim[i]);
    g->nvalues++;
    c->map.value[v->id] = mine;
    if (c->failed || !map_put(&g->names, mine->name, mine)) c->failed = true;
    return mine;
}

static void add_values(Copier *c, Value *const *from, int n, Value ***to, int *count)
{
    *to = list(c, n, sizeof **to);
    for (int i = 0; i < n && !c->failed; i++) (*to)[(*count)++] = add_value(c, from[i]);
}

/* ------------------------------------------------------------------ nodes */

static void copy_arg(Copier *c, const Arg *from, Arg *to)
{
    Arena *a = c->to->arena;
    *to = *from;
    switch (from->kind) {
    case ARG_VALUE: to->v = value_of(c, from->v); break;
    case ARG_EXPR: to->e = expr_of(c, from->e); break;
    case ARG_STR: to->s = string(c, from->s); break;
    case ARG_VALUES:
        to->vs = got(c, arena_array(a, Value *, from->n + 1));
        for (int i = 0; i < from->n && to->vs; i++) to->vs[i] = value_of(c, from->vs[i]);
        break;
    case ARG_EXPRS:
        to->es = got(c, arena_array(a, Expr *, from->n + 1));
        for (int i = 0; i < from->n && to->es; i++) to->es[i] = expr_of(c, from->es[i]);
        break;
    case ARG_GRAPH: {
        Err ignored;
        Graph *body = graph_copy(from->g, &ignored);
        *to = body ? arg_graph(c->to, body) : arg_none();
        if (to->kind != ARG_GRAPH) c->failed = true;
        break;
    }
    case ARG_NONE:
    case ARG_DTYPE: break;
    }
}

bool graph_copy_arg(Graph *to, const GraphCopy *map, const Arg *from, Arg *out)
{
    Copier c = {.to = to, .map = *map};
    copy_arg(&c, from, out);
    return !c.failed;
}

static void add_node(Copier *c, const Node *n)
{
    Graph *g = c->to;
    int nparams = n->op->schema->nparams;
    Node *mine = got(c, arena_new(g->arena, Node));
    Arg *arg = got(c, arena_array(g->arena, Arg, nparams));
    Value **out = got(c, arena_array(g->arena, Value *, n->nout + 1));
    if (c->failed) return;
    *mine = (Node){.op = n->op, .arg = arg, .out = out, .nout = n->nout, .prev = g->last};
    if (n->module) mine->module = got(c, (void *)(uintptr_t)graph_module(g, n->module->path, n->module->stack));
    *(g->last ? &g->last->next : &g->first) = mine;
    g->last = mine;
    g->nnodes++;
    for (int i = 0; i < nparams && !c->failed; i++) copy_arg(c, &n->arg[i], &arg[i]);
    for (int k = 0; k < n->nout && !c->failed; k++) {
        out[k] = add_value(c, n->out[k]);
        if (out[k]) out[k]->def = mine;
    }
    if (c->failed) return;
    mine->name = n->nout && n->name == n->out[0]->name ? out[0]->name : string(c, n->name);
}

/* ------------------------------------------------------------------ what stands beside the nodes */

static void copy_symbols(Copier *c)
{
    for (int i = 0; i < expr_symbol_count(c->to->ex); i++) {
        Symbol *s = expr_symbol(c->to->ex, i);
        s->value = value_of(c, s->value);
    }
}

static void copy_mutations(Copier *c, const Mutation *from, int n, Mutation **to, int *count)
{
    *to = list(c, n, sizeof **to);
    for (int i = 0; i < n && !c->failed; i++)
        (*to)[(*count)++] = (Mutation){value_of(c, from[i].target), value_of(c, from[i].value)};
}

static void copy_outputs(Copier *c)
{
    const Graph *g = c->from;
    c->to->output = list(c, g->noutput, sizeof *g->output);
    for (int i = 0; i < g->noutput && !c->failed; i++) {
        const Output *o = &g->output[i];
        c->to->output[c->to->noutput++] = (Output){.name = string(c, o->name),
                                                   .value_name = string(c, o->value_name),
                                                   .label = string(c, o->label),
                                                   .value = value_of(c, o->value),
                                                   .number = o->number,
                                                   .loss = o->loss,
                                                   .gradient_of = value_of(c, o->gradient_of)};
    }
}

static void copy_requirements(Copier *c)
{
    const Graph *g = c->from;
    for (int i = 0; i < g->nrequire; i++) {
        Require *all = got(c, vec_grow(c->to->require, i, sizeof *all));
        if (c->failed) return;
        c->to->require = all;
        all[c->to->nrequire++] = (Require){expr_of(c, g->require[i].cond), string(c, g->require[i].where)};
    }
}

static void copy_scalars(Copier *c)
{
    const Graph *g = c->from;
    Graph *to = c->to;
    to->scalar_input = got(c, arena_array(to->arena, ScalarInput, g->nscalar_input + 1));
    to->scalar_output = got(c, arena_array(to->arena, ScalarOutput, g->nscalar_output + 1));
    for (int i = 0; i < g->nscalar_input && !c->failed; i++) {
        ScalarInput *s = &to->scalar_input[to->nscalar_input++];
        *s = g->scalar_input[i];
        s->name = string(c, s->name);
        copy_arg(c, &g->scalar_input[i].value, &s->value);
    }
    for (int i = 0; i < g->nscalar_output && !c->failed; i++) {
        ScalarOutput *s = &to->scalar_output[to->nscalar_output++];
        *s = g->scalar_output[i];
        copy_arg(c, &g->scalar_output[i].value, &s->value);
    }
}

static void copy_all(Copier *c)
{
    const Graph *g = c->from;
    Graph *to = c->to;
    add_values(c, g->input, g->ninput, &to->input, &to->ninput);
    add_values(c, g->weight, g->nweight, &to->weight, &to->nweight);
    for (const Node *n = g->first; n && !c->failed; n = n->next) add_node(c, n);
    if (c->failed) return;
    copy_symbols(c);
    copy_outputs(c);
    copy_mutations(c, g->mutation, g->nmutation, &to->mutation, &to->nmutation);
    copy_mutations(c, g->input_mutation, g->ninput_mutation, &to->input_mutation, &to->ninput_mutation);
    copy_requirements(c);
    copy_scalars(c);
    to->core = g->core;
    to->in_spec = string(c, g->in_spec);
    to->out_spec = string(c, g->out_spec);
    to->forward_args = string(c, g->forward_args);
    to->namedtuples = string(c, g->namedtuples);
}

Graph *graph_copy_with(const Graph *g, GraphCopy *map, Err *err)
{
    Copier c = {.from = g, .to = graph_create()};
    if (!c.to) return oom(err), NULL;
    ExprPool *ex = expr_pool_copy(g->ex, c.to->arena, &c.map.expr);
    c.map.value = arena_array(c.to->arena, Value *, g->next_id + 1);
    if (ex) {
        expr_pool_free(c.to->ex);
        c.to->ex = ex;
    }
    c.failed = !ex || !c.map.value;
    if (!c.failed) copy_all(&c);
    *map = c.map;
    if (!c.failed) return c.to;
    graph_free(c.to);
    oom(err);
    return NULL;
}

Graph *graph_copy(const Graph *g, Err *err)
{
    GraphCopy ignored;
    return graph_copy_with(g, &ignored, err);
}

bool graph_compact(Graph **g, Err *err)
{
    if ((*g)->next_id / 2 <= (*g)->nvalues) return true;
    Graph *copy = graph_copy(*g, err);
    TRY(copy);
    graph_free(*g);
    *g = copy;
    return true;
}
