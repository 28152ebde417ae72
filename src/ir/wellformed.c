/* The graph checker: what must hold between any two passes. Names the first violation. */
#include <stdint.h>
#include <string.h>
#include "ir/graph.h"
#include "base/mem.h"

typedef struct Check {
    const Graph *g;
    const Node *node;
    unsigned char *defined; /* by value id */
    const Value *bad;
} Check;

static void see_operand(void *user, Value **slot)
{
    Check *c = user;
    const Value *v = *slot;
    if (!c->bad && (v->id < 0 || v->id >= c->g->next_id || !c->defined[v->id])) c->bad = v;
}

static bool check_nodes(Check *c, Err *err)
{
    const Graph *g = c->g;
    int count = 0;
    Arg fit[64];
    for (Node *n = g->first; n; n = n->next, count++) {
        if (n->next ? n->next->prev != n : g->last != n) return fail(err, E_FORMAT, "node '%s': broken list", n->name);
        node_each_operand(n, see_operand, c);
        if (c->bad) return fail(err, E_FORMAT, "node '%s' uses '%s' before it is defined", n->name, c->bad->name);
        TRY(op_fit_args((Graph *)(uintptr_t)g, n->op, n->op->schema->nparams, n->arg, fit, err) ||
            within(err, "node '%s'", n->name));
        if (!n->op->schema->returns_list && n->nout != n->op->schema->nreturns)
            return fail(err, E_FORMAT, "node '%s' has %d results, %s gives %d", n->name, n->nout, n->op->name,
                        n->op->schema->nreturns);
        for (int k = 0; k < n->nout; k++) {
            const Value *v = n->out[k];
            if (v->def != n || v->out != k)
                return fail(err, E_FORMAT, "node '%s': result %d belongs to another node", n->name, k);
            if (c->defined[v->id]) return fail(err, E_FORMAT, "value '%s' is defined twice", v->name);
            c->defined[v->id] = 1;
            if (graph_find_value(g, v->name) != v) return fail(err, E_FORMAT, "two values are called '%s'", v->name);
        }
    }
    if (count != g->nnodes) return fail(err, E_FORMAT, "%d nodes are linked, %d are counted", count, g->nnodes);
    return true;
}

static bool takes(const Value *buffer, const Value *v)
{
    bool fits = buffer->kind == V_WEIGHT && buffer->rank == v->rank;
    for (int i = 0; fits && i < v->rank; i++) fits = buffer->dim[i] == v->dim[i];
    return fits;
}

bool graph_check(const Graph *g, Err *err)
{
    Check c = {.g = g, .defined = mem_zeroed((size_t)g->next_id + 1, 1)};
    if (!c.defined) return oom(err);
    for (int i = 0; i < g->ninput; i++) c.defined[g->input[i]->id] = 1;
    for (int i = 0; i < g->nweight; i++) c.defined[g->weight[i]->id] = 1;
    bool ok = check_nodes(&c, err);
    for (int i = 0; ok && i < g->noutput; i++)
        if (!c.defined[g->output[i].value->id])
            ok = fail(err, E_FORMAT, "output '%s' is never computed", g->output[i].name);
    for (int i = 0; ok && i < graph_mutations(g); i++) {
        const Mutation *m = graph_mutation(g, i);
        if (!c.defined[m->value->id])
            ok = fail(err, E_FORMAT, "the new value of '%s' is never computed", m->target->name);
        else if (i < g->nmutation && !takes(m->target, m->value))
            ok = fail(err, E_FORMAT, "'%s' is not a buffer of the sizes of '%s', which is to be written into it",
                      m->target->name, m->value->name);
    }
    mem_free(c.defined);
    return ok && (!mem_ran_out() || oom(err));
}
