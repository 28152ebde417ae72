/* What the backward pass computes again instead of keeping it. Contract in grad.h.
 *
 *     forward:   h = layer_norm(x);  y = linear(h, w)          backward:  dw = dy^T h
 *     cheap:     forward as it was;                            backward:  h' = layer_norm(x);  dw = dy^T h'
 *
 * A value's storage is that of its root: the value itself, or what it is a view of. All that is decided here is decided
 * for roots. A node that draws random numbers, has an effect or makes sizes is never computed twice.
 */
#include <stdlib.h>
#include <string.h>
#include "grad/grad_impl.h"
#include "facts/views.h"

enum { MOST_CHEAP = 8, MOST_BLOCKS = 64 }; /* cheap nodes after each other; stretches that are tried */

typedef struct Root {
    const Node *node;
    double bytes;
    int at, last; /* its place among the nodes of the forward pass, and that of the last node there that reads it or a
                     view of it */
    bool needed;  /* by the backward pass */
    bool output;  /* it is there at the end in any case */
    bool anew;
    int depth; /* cheap nodes from what is kept to it */
} Root;

typedef struct Recomputing {
    Graph *g;
    const Node *border; /* the last node of the forward pass */
    const Binding *sizes;
    Root *root;          /* by value id; node NULL: not of the forward pass */
    Value **copy;        /* by value id: what stands for it in the backward pass */
    const Value **order; /* roots in order of their nodes */
    double *crossing;    /* bytes of roots that are read on both sides of node i's end */
    int n, nodes, next_id;
    Node *at; /* copies are put in front of it */
    Err *err;
} Recomputing;

static bool once_only(const Op *op) { return op->flags & (OPF_RANDOM | OPF_EFFECT | OPF_DATA_SIZE); }

static bool cheap(const Op *op) { return !(op->flags & OPF_DEAR) && !once_only(op); }

static double bytes_of(const Recomputing *r, const Value *v)
{
    double n = (double)dtype_size(v->dtype);
    for (int i = 0; i < v->rank; i++) {
        Scalar x;
        Err unbound = {0};
        n *= ex_eval(r->g->ex, v->dim[i], r->sizes, &x, &unbound) ? (double)scalar_i64(x) : 1;
    }
    return n;
}

typedef struct Reader {
    Recomputing *r;
    int at; /* the node's place; -1: in the backward pass */
} Reader;

static void note_read(void *user, Value **slot)
{
    Reader *me = user;
    Root *root = &me->r->root[through_views(*slot)->id];
    if (me->at < 0) root->needed = true;
    else if (root->last < me->at) root->last = me->at;
}

static bool survey(Recomputing *r)
{
    Graph *g = r->g;
    bool forward = true;
    for (Node *n = g->first; n; n = n->next) {
        for (int i = 0; forward && i < n->nout; i++) {
            Value *v = n->out[i];
            if (through_views(v) != v) continue;
            r->root[v->id] = (Root){.node = n, .bytes = bytes_of(r, v), .at = r->nodes, .last = r->nodes};
            r->order[r->n++] = v;
        }
        node_each_operand(n, note_read, &(Reader){r, forward ? r->nodes : -1});
        r->nodes += forward;
        forward = forward && n != r->border;
    }
    for (int i = 0; i < g->noutput; i++) r->root[through_views(g->output[i].value)->id].output = true;
    for (int i = 0; i < graph_mutations(g); i++) r->root[through_views(graph_mutation(g, i)->value)->id].output = true;
    r->crossing = arena_array(g->arena, double, r->nodes + 1);
    if (!r->crossing) return oom(r->err);
    for (int i = 0; i < r->n; i++) {
        const Root *x = &r->root[r->order[i]->id];
        r->crossing[x->at] += x->bytes;
        r->crossing[x->last] -= x->bytes;
    }
    for (int i = 1; i < r->nodes; i++) r->crossing[i] += r->crossing[i - 1];
    return true;
}

/* ------------------------------------------------------------------ cheap: from what is kept anyway */

typedef struct Operands {
    const Recomputing *r;
    bool there;
    int depth;
} Operands;

static void look(void *user, Value **slot)
{
    Operands *o = user;
    const Root *x = &o->r->root[through_views(*slot)->id];
    if (!x->node || x->output) return;
    if (x->depth && x->depth >= o->depth) o->depth = x->depth + 1;
    o->there = o->there && (x->depth || x->needed);
}

/* In order, so that what a node reads is decided. depth > 0: it could be computed again. */
static void choose_cheap(Recomputing *r)
{
    for (int i = 0; i < r->n; i++) {
        Root *x = &r->root[r->order[i]->id];
        Operands o = {r, cheap(x->node->op) && !x->output, 1};
        if (o.there) node_each_operand((Node *)(uintptr_t)x->node, look, &o);
        x->depth = o.there && o.depth <= MOST_CHEAP ? o.depth : 0;
        x->anew = x->depth > 0;
    }
}

/* ------------------------------------------------------------------ blocks: all between cuts */

/* The end of a node near `want` of the bytes that the backward pass needs, where the least is alive. */
static int cut_near(const Recomputing *r, const double *before, double want, double reach)
{
    int best = -1;
    for (int i = 0; i < r->nodes - 1; i++) {
        if (before[i] < want - reach || before[i] > want + reach) continue;
        if (best < 0 || r->crossing[i] < r->crossing[best]) best = i;
    }
    return best;
}

static bool crosses(const Root *x, const int *cut, int n)
{
    for (int i = 0; i < n; i++)
        if (x->at <= cut[i] && x->last > cut[i]) return true;
    return false;
}

static bool stays(const Root *x, const int *cut, int n)
{
    return x->output || once_only(x->node->op) || x->at > cut[n - 1] || crosses(x, cut, n);
}

/* Bytes that are kept from one pass to the other, and the most that one stretch computes again beside them. */
static double cost_of(const Recomputing *r, const int *cut, int n)
{
    double kept = 0, most = 0, here = 0;
    for (int i = 0, k = 0; i < r->n; i++) {
        const Root *x = &r->root[r->order[i]->id];
        for (; k < n && x->at > cut[k]; k++) here = 0;
        if (stays(x, cut, n)) kept += x->needed || x->at <= cut[n - 1] ? x->bytes : 0;
        else here += x->needed ? x->bytes : 0;
        if (here > most) most = here;
    }
    return kept + most;
}

static bool choose_blocks(Recomputing *r)
{
    int cut[MOST_BLOCKS], best[MOST_BLOCKS], nbest = 0;
    double *before = arena_array(r->g->arena, double, r->nodes + 1), least = 0, all = 0;
    if (!before) return oom(r->err);
    for (int i = 0; i < r->n; i++) {
        const Root *x = &r->root[r->order[i]->id];
        if (x->needed) before[x->at] += x->bytes;
    }
    for (int i = 0; i < r->nodes; i++) before[i] = all += before[i];
    for (int stretches = 2; stretches <= MOST_BLOCKS; stretches++) {
        int n = 0;
        for (int k = 1; k < stretches; k++) {
            int i = cut_near(r, before, all * k / stretches, all / stretches / 2);
            if (i >= 0 && (!n || i > cut[n - 1])) cut[n++] = i;
        }
        double cost = n ? cost_of(r, cut, n) : 0;
        if (!n || (nbest && cost >= least)) continue;
        least = cost;
        nbest = n;
        memcpy(best, cut, (size_t)n * sizeof *cut);
    }
    for (int i = 0; i < r->n && nbest; i++) {
        Root *x = &r->root[r->order[i]->id];
        x->anew = !stays(x, best, nbest);
    }
    return true;
}

/* ------------------------------------------------------------------ the copies */

static bool copied(Recomputing *r, Value **slot);

typedef struct Copying {
    Recomputing *r;
    bool ok;
} Copying;

static void copy_operand(void *user, Value **slot)
{
    Copying *c = user;
    c->ok = c->ok && copied(c->r, slot);
}

/* The node once more, in front of r->at. */
static bool copy_node(Recomputing *r, const Node *n)
{
    Graph *g = r->g;
    int params = n->op->schema->nparams;
    Arg *arg = arena_array(g->arena, Arg, params + 1);
    if (!arg) return oom(r->err);
    for (int i = 0; i < params; i++) {
        arg[i] = n->arg[i];
        if (arg[i].kind == ARG_VALUES) arg[i] = arg_values(g, n->arg[i].n, n->arg[i].vs);
    }
    Node with = *n;
    with.arg = arg;
    Copying c = {r, true};
    node_each_operand(&with, copy_operand, &c);
    TRY(c.ok);
    g->module = n->module;
    Node *made = graph_add_before(g, r->at, n->op->id, params, arg, arena_printf(g->arena, "%s_again", n->name),
                                  r->err);
    g->module = NULL;
    TRY(made);
    for (int i = 0; i < n->nout; i++) r->copy[n->out[i]->id] = made->out[i];
    return true;
}

/* Puts what stands for a value in the backward pass into the slot, made now if it is read for the first time. */
static bool copied(Recomputing *r, Value **slot)
{
    Value *v = *slot;
    if (v->id >= r->next_id || v->kind != V_NODE) return true;
    int root = through_views(v)->id; /* that of a view of the backward pass may be a copy by now */
    if (root >= r->next_id || !r->root[root].anew) return true;
    if (!r->copy[v->id]) TRY(copy_node(r, v->def));
    *slot = r->copy[v->id];
    return true;
}

bool graph_recompute(Graph *g, const Node *border, Recompute how, const Binding *sizes, Err *err)
{
    Recomputing r = {.g = g, .border = border, .sizes = sizes, .next_id = g->next_id, .err = err};
    if (how == RECOMPUTE_NONE) return true;
    r.root = arena_array(g->arena, Root, g->next_id + 1);
    r.copy = arena_array(g->arena, Value *, g->next_id + 1);
    r.order = arena_array(g->arena, const Value *, g->next_id + 1);
    if (!r.root || !r.copy || !r.order) return oom(err);
    TRY(survey(&r));
    if (how == RECOMPUTE_CHEAP) choose_cheap(&r);
    else TRY(choose_blocks(&r));
    Copying c = {&r, true};
    for (Node *n = border->next; n && c.ok; n = n->next) {
        r.at = n;
        node_each_operand(n, copy_operand, &c);
    }
    TRY(c.ok);
    graph_dce(g);
    return true;
}
