/* Graphs at one choice of sizes. Contract in sizes.h. */
#include "prove/sizes.h"
#include "base/mem.h"

static bool number(Graph *to, const ExprPool *from, const Binding *b, const Expr *e, Expr **out, Err *err)
{
    Scalar s = {0};
    TRY(ex_eval(from, e, b, &s, err));
    *out = s.kind == SC_INT    ? ex_int(to->ex, s.i)
           : s.kind == SC_BOOL ? ex_bool(to->ex, s.i != 0)
                               : ex_float(to->ex, s.f);
    return *out || oom(err);
}

bool sizes_at(Graph *to, const ExprPool *from, const Binding *b, const Value *v, Expr **dim, Err *err)
{
    for (int i = 0; i < v->rank; i++) TRY(number(to, from, b, v->dim[i], &dim[i], err));
    return true;
}

bool arg_at_sizes(Graph *to, const ExprPool *from, const Binding *b, Value *const *map, const Arg *a, Arg *out,
                  Err *err)
{
    *out = *a;
    if (a->kind == ARG_GRAPH) return fail(err, E_UNSUPPORTED, "a loop or branch");
    if (a->kind == ARG_VALUE) out->v = map[a->v->id];
    if (a->kind == ARG_EXPR) TRY(number(to, from, b, a->e, &out->e, err));
    if (a->kind == ARG_VALUES) {
        *out = arg_values(to, a->n, a->vs);
        if (!arg_built(out)) return oom(err);
        for (int i = 0; i < a->n; i++) out->vs[i] = a->vs[i] ? map[a->vs[i]->id] : NULL;
    }
    if (a->kind == ARG_EXPRS) {
        *out = arg_exprs(to, a->n, a->es);
        if (!arg_built(out)) return oom(err);
        for (int i = 0; i < a->n; i++) TRY(number(to, from, b, a->es[i], &out->es[i], err));
    }
    return true;
}

bool node_at_sizes(Graph *to, const ExprPool *from, const Binding *b, Value **map, const Node *n, Err *err)
{
    enum { MOST = 64 };
    Arg a[MOST];
    int count = n->op->schema->nparams;
    for (int k = 0; k < count; k++) TRY(arg_at_sizes(to, from, b, map, &n->arg[k], &a[k], err));
    const Node *made = graph_add(to, n->op->id, count, a, n->name, err);
    TRY(made);
    for (int k = 0; k < n->nout; k++) map[n->out[k]->id] = made->out[k];
    return true;
}

static bool fill(Graph *to, const Graph *g, const Binding *b, Value **map, Err *err)
{
    Expr *dim[MAX_RANK];
    for (int i = 0; i < g->ninput; i++) {
        const Value *v = g->input[i];
        TRY(sizes_at(to, g->ex, b, v, dim, err));
        if (!(map[v->id] = graph_add_input(to, v->name, v->dtype, v->rank, dim))) return oom(err);
    }
    for (int i = 0; i < g->nweight; i++) {
        const Value *v = g->weight[i];
        if (!(map[v->id] = graph_add_weight(to, v->name, v->fqn, v->data))) return oom(err);
    }
    for (const Node *n = g->first; n; n = n->next) TRY(node_at_sizes(to, g->ex, b, map, n, err));
    for (int i = 0; i < g->noutput; i++) TRY(graph_add_output(to, g->output[i].name, map[g->output[i].value->id], err));
    return true;
}

Graph *graph_at_sizes(const Graph *g, const Binding *b, Err *err)
{
    Graph *to = graph_create();
    Value **map = mem_zeroed((size_t)g->next_id + 1, sizeof *map);
    bool ok = to && map ? fill(to, g, b, map, err) : oom(err);
    mem_free(map);
    if (ok) return to;
    graph_free(to);
    return NULL;
}
