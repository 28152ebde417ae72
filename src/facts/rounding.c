/* Rounding on the way to a value. Contract in rounding.h. */
#include "facts/rounding.h"
#include "base/mem.h"
#include "tensor/tolerance.h"

typedef struct Walk {
    const DType *to;
    const bool *made;
    DType most; /* of what a node reads */
    bool any;   /* does it read what was computed? */
} Walk;

static double allowed(DType t) { return tolerance_of(TOLERANCE_MODEL, t); }
static DType coarser(DType a, DType b) { return allowed(b) > allowed(a) ? b : a; }

static void look(void *user, Value **slot)
{
    Walk *w = user;
    if (!w->made[(*slot)->id]) return;
    w->any = true;
    w->most = coarser(w->most, w->to[(*slot)->id]);
}

/* The same of everything that a body computes. */
static DType of_body(const Graph *g, DType t)
{
    for (const Node *n = g->first; n; n = n->next) {
        for (int k = 0; k < n->nout; k++) t = coarser(t, n->out[k]->dtype);
        for (int i = 0; i < n->op->schema->nparams; i++)
            if (n->arg[i].kind == ARG_GRAPH) t = of_body(n->arg[i].g, t);
    }
    return t;
}

bool rounded_to(const Graph *g, DType *to, Err *err)
{
    bool *made = mem_zeroed((size_t)g->next_id + 1, sizeof *made); /* computed: neither given nor a view of it */
    if (!made) return oom(err);
    for (int i = 0; i < g->ninput; i++) to[g->input[i]->id] = g->input[i]->dtype;
    for (int i = 0; i < g->nweight; i++) to[g->weight[i]->id] = g->weight[i]->dtype;
    for (Node *n = g->first; n; n = n->next) {
        Walk w = {to, made, DT_BOOL, false};
        node_each_operand(n, look, &w);
        for (int i = 0; i < n->op->schema->nparams; i++)
            if (n->arg[i].kind == ARG_GRAPH) w.most = of_body(n->arg[i].g, w.most);
        bool moves = n->op->flags & OPF_VIEW || n->op->id == OP_to_copy;
        for (int k = 0; k < n->nout; k++) {
            const Value *v = n->out[k];
            made[v->id] = !moves || w.any;
            to[v->id] = coarser(v->dtype, w.most);
        }
    }
    mem_free(made);
    return true;
}
