/* Folding for files. Contract in constants.h. */
#include "program/constants.h"
#include <string.h>
#include "base/cpu.h"
#include "base/map.h"
#include "base/mem.h"
#include "ir/copy.h"
#include "run/session.h"

enum { CONSTANT = 1, COMPUTED = 2, WANTED = 4, AT_END = 8 }; /* AT_END: what the graph gives stays a node's */

typedef struct Folding {
    Graph *g;
    unsigned char *mark; /* by value id: a sum of the above */
    bool constant, computed, any;
    int64_t bytes; /* of what is computed */
    Err *err;
} Folding;

static void look(void *user, Value **slot)
{
    Folding *f = user;
    f->any = true;
    f->constant &= (f->mark[(*slot)->id] & CONSTANT) != 0;
    f->computed |= (f->mark[(*slot)->id] & COMPUTED) != 0;
}

static void want(void *user, Value **slot)
{
    Folding *f = user;
    if (f->mark[(*slot)->id] & COMPUTED) f->mark[(*slot)->id] |= WANTED;
}

static bool fixed_args(const Node *n)
{
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *x = &n->arg[i];
        if (x->kind == ARG_GRAPH || (x->kind == ARG_EXPR && x->e->symbols)) return false;
        for (int k = 0; x->kind == ARG_EXPRS && k < x->n; k++)
            if (x->es[k]->symbols) return false;
    }
    return true;
}

/* Of known size, at most FOLD_MOST bytes, and a type that files hold: its bytes; else -1. */
static int64_t small(const Value *v)
{
    int64_t bytes = (int64_t)dtype_size(v->dtype);
    for (int i = 0; i < v->rank; i++) {
        if (!ex_is_int(v->dim[i]) || v->dim[i]->i > FOLD_MOST) return -1;
        bytes *= v->dim[i]->i;
        if (bytes > FOLD_MOST) return -1;
    }
    return dtype_is_complex(v->dtype) ? -1 : bytes;
}

/* Marks what is constant, and of that what it takes more to know than a view or a repeated value. */
static void mark_node(Folding *f, Node *n)
{
    bool fits = n->nout > 0 && !(n->op->flags & (OPF_RANDOM | OPF_EFFECT | OPF_DATA_SIZE)) && fixed_args(n) &&
                n->op->id != OP_dequantize_linear; /* weights in few bits stay so */
    for (int k = 0; k < n->nout; k++) fits = fits && small(n->out[k]) >= 0 && !(f->mark[n->out[k]->id] & AT_END);
    f->constant = true;
    f->computed = f->any = false;
    node_each_operand(n, look, f);
    if (!fits || !f->constant) return;
    bool view = n->op->flags & OPF_VIEW && f->any && n->arg[0].kind == ARG_VALUE &&
                n->arg[0].v->dtype == n->out[0]->dtype;
    bool computes = f->computed || (!view && n->op->id != OP_full);
    for (int k = 0; k < n->nout; k++) {
        f->mark[n->out[k]->id] = computes ? CONSTANT | COMPUTED : CONSTANT;
        f->bytes += computes ? small(n->out[k]) : 0;
    }
}

/* What is read from outside of the constants. */
static int find_wanted(Folding *f)
{
    const Graph *g = f->g;
    int n = 0;
    for (int i = 0; i < g->nweight; i++)
        if (g->weight[i]->weight != W_PARAMETER && !graph_writes(g, g->weight[i])) f->mark[g->weight[i]->id] = CONSTANT;
    for (int i = 0; i < g->noutput; i++) f->mark[g->output[i].value->id] = AT_END;
    for (int i = 0; i < graph_mutations(g); i++) f->mark[graph_mutation(g, i)->value->id] = AT_END;
    for (Node *x = g->first; x; x = x->next) {
        mark_node(f, x);
        if (!x->nout || !(f->mark[x->out[0]->id] & COMPUTED)) node_each_operand(x, want, f);
    }
    for (int i = 0; i < g->next_id; i++) n += (f->mark[i] & WANTED) != 0;
    return n;
}

/* A graph that gives what is wanted, and nothing else. */
static Graph *wanted_graph(Folding *f)
{
    GraphCopy map;
    Graph *own = graph_copy_with(f->g, &map, f->err);
    bool ok = own != NULL;
    if (!ok) return NULL;
    own->noutput = own->nmutation = own->ninput_mutation = own->nrequire = 0;
    for (const Node *n = f->g->first; ok && n; n = n->next)
        for (int k = 0; ok && k < n->nout; k++)
            if (f->mark[n->out[k]->id] & WANTED)
                ok = graph_add_output(own, n->out[k]->name, map.value[n->out[k]->id], f->err);
    graph_dce(own);
    own->ninput = own->nscalar_input = 0;
    int kept = 0, *uses = ok ? mem_zeroed((size_t)own->next_id + 1, sizeof *uses) : NULL;
    if (ok && !uses) ok = oom(f->err);
    if (ok) graph_count_uses(own, uses);
    for (int i = 0; ok && i < own->nweight; i++)
        if (uses[own->weight[i]->id]) own->weight[kept++] = own->weight[i];
    own->nweight = kept;
    mem_free(uses);
    if (ok) return own;
    graph_free(own);
    return NULL;
}

/* A name in the state dict, taken from now on. PyTorch makes it an attribute of a module, which has methods called 'to'
 * and 'float'. */
static const char *free_fqn(Graph *g, Map *taken, const char *name)
{
    const char *fqn = arena_printf(g->arena, "folded_%s", name);
    while (fqn && map_has(taken, fqn)) fqn = arena_printf(g->arena, "%s_", fqn);
    return fqn && map_put(taken, fqn, g) ? fqn : NULL;
}

/* A weight that holds t and has v's name. */
static Value *weight_of(Folding *f, Map *taken, const Value *v, const Tensor *t)
{
    Graph *g = f->g;
    Tensor *own = arena_new(g->arena, Tensor);
    if (own) {
        *own = tensor_of(t->dtype, t->rank, t->shape, NULL);
        own->data = arena_alloc(g->arena, tensor_bytes(own) + 1, 1);
    }
    const char *fqn = free_fqn(g, taken, v->name), *name = v->name;
    Value *w = own && own->data && fqn ? graph_add_weight(g, name, fqn, own) : NULL;
    if (!w) return oom(f->err), NULL;
    tensor_copy(own, t);
    w->weight = W_CONSTANT;
    return graph_rename(g, w, name, f->err) ? w : NULL;
}

static bool fold(Folding *f, const Graph *own, Session *s)
{
    Graph *g = f->g;
    int at = 0;
    Map taken = {0};
    Value **by = mem_zeroed((size_t)g->next_id + 1, sizeof *by);
    bool ok = by != NULL;
    for (int i = 0; ok && i < g->nweight; i++) ok = !g->weight[i]->fqn || map_put(&taken, g->weight[i]->fqn, g);
    if (!ok) oom(f->err);
    for (const Node *n = g->first; ok && n; n = n->next)
        for (int k = 0; ok && k < n->nout; k++) {
            if (!(f->mark[n->out[k]->id] & WANTED)) continue;
            const Tensor *t = session_constant(s, own->output[at++].value);
            if (t) ok = (by[n->out[k]->id] = weight_of(f, &taken, n->out[k], t)) != NULL;
        }
    if (ok) graph_replace_all(g, by);
    mem_free(by);
    map_free(&taken);
    return ok;
}

/* The most bytes of results that constants of this graph are worth. */
static int64_t allowed(const Graph *g)
{
    int64_t most = FOLD_MOST;
    for (int i = 0; i < g->nweight && most < FOLD_ALL; i++) {
        size_t n = tensor_bytes(g->weight[i]->data);
        most += FOLD_TIMES * (int64_t)(n < FOLD_ALL ? n : FOLD_ALL);
    }
    return most < FOLD_ALL ? most : FOLD_ALL;
}

bool fold_constants(Graph *g, Err *err)
{
    Folding f = {.g = g, .mark = mem_zeroed((size_t)g->next_id + 1, 1), .err = err};
    if (!f.mark) return oom(err);
    bool ok = true;
    if (!g->bodies && find_wanted(&f) && f.bytes <= allowed(g)) {
        Graph *own = wanted_graph(&f);
        Session *s = own ? session_create(own, NULL, cpu_count(), 0, err) : NULL;
        ok = s && fold(&f, own, s);
        session_free(s);
        graph_free(own);
        if (ok) graph_dce(g);
    }
    mem_free(f.mark);
    return ok;
}
