/* A model in another float type, for files: weights with their ops. Contract in precision.h. */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "precision/precision.h"

/* ------------------------------------------------------------------ weights */

typedef struct Weights {
    Graph *g;
    DType t;
    const Tensor **was, **now; /* by position: as the file has it, and converted; NULL: not yet */
    int *uses;                 /* by value id */
    Lookup by_memory;           /* those that are converted */
    Err *err;
} Weights;

static bool same_view(const Tensor *a, const Tensor *b)
{
    if (a->data != b->data || a->rank != b->rank || a->dtype != b->dtype) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i] || a->stride[i] != b->stride[i]) return false;
    return true;
}

/* Is a finite value infinite in the narrow type? */
static bool overflows(const Tensor *from, const Tensor *to, double *value)
{
    for (int64_t i = 0, n = tensor_numel(from); i < n; i++) {
        *value = tensor_get(from, i);
        if (isfinite(*value) && !isfinite(tensor_get(to, i))) return true;
    }
    return false;
}

static uint64_t hash_of(const Tensor *t)
{
    return hash_keyed((uint64_t[]){(uintptr_t)t->data, hash_keyed(t->shape, (size_t)t->rank * sizeof *t->shape)}, 16);
}

/* What a weight of the same memory, read in the same way, became; NULL: there is none yet. */
static const Tensor *converted_before(const Weights *w, const Tensor *from)
{
    size_t tried = 0;
    int64_t i;
    while ((i = lookup_next(&w->by_memory, hash_of(from), &tried)) >= 0)
        if (same_view(w->was[i], from)) return w->now[i];
    return NULL;
}

/* The weight's values in t, in the graph's arena; those of a tied weight are shared. NULL on error. */
static const Tensor *converted(Weights *w, int at, DType t)
{
    const Tensor *from = w->was[at], *before = converted_before(w, from);
    if (before) return before;
    Tensor *to = arena_new(w->g->arena, Tensor);
    double big;
    if (to) {
        *to = tensor_of(t, from->rank, from->shape, NULL);
        to->data = arena_alloc(w->g->arena, tensor_bytes(to) + 1, 1);
    }
    if (!to || !to->data) return oom(w->err), NULL;
    tensor_copy(to, from);
    if (t == DT_F16 && overflows(from, to, &big)) {
        fail(w->err, E_USAGE, "weight '%s' holds %g, which f16 cannot: take bf16", w->g->weight[at]->fqn, big);
        return NULL;
    }
    if (!lookup_add(&w->by_memory, hash_of(from), (size_t)at)) return oom(w->err), NULL;
    return w->now[at] = to;
}

static bool weights_open(Weights *w)
{
    const Graph *g = w->g;
    w->was = arena_array(g->arena, const Tensor *, 2 * g->nweight + 2);
    w->now = arena_array(g->arena, const Tensor *, 2 * g->nweight + 2);
    w->uses = arena_array(g->arena, int, g->next_id + 1);
    if (!w->was || !w->now || !w->uses) return oom(w->err);
    for (int i = 0; i < g->nweight; i++) w->was[i] = g->weight[i]->data;
    graph_count_uses(g, w->uses);
    return true;
}

/* The weight itself where nothing else reads it, else one beside it: "fc.weight.f16". */
static Value *narrow_weight(Weights *w, int at, int casts)
{
    Graph *g = w->g;
    Value *v = g->weight[at];
    const Tensor *t = converted(w, at, w->t);
    if (!t) return NULL;
    if (casts == w->uses[v->id]) {
        v->data = t;
        v->dtype = w->t;
        return v;
    }
    const char *fqn = arena_printf(g->arena, "%s.%s", v->fqn ? v->fqn : v->name, dtype_name(w->t));
    Value *made = fqn ? graph_add_weight(g, v->name, fqn, t) : NULL;
    if (!made) return oom(w->err), NULL;
    made->weight = v->weight;
    made->persistent = v->persistent;
    made->frozen = v->frozen;
    return made;
}

/* The weight that a node casts to the narrow type; NULL: it does not. */
static const Value *cast_weight(const Weights *w, const Node *n)
{
    bool cast = n->op->id == OP_to_copy && n->out[0]->dtype == w->t && n->arg[0].v->kind == V_WEIGHT;
    return cast ? n->arg[0].v : NULL;
}

/* narrow: by id of a weight, what is read in place of its casts. */
static bool replace_casts(Weights *w, Value **narrow)
{
    Graph *g = w->g;
    Value **by = mem_zeroed((size_t)g->next_id + 1, sizeof *by);
    if (!by) return oom(w->err);
    for (Node *x = g->first, *next; x; x = next) {
        const Value *v = cast_weight(w, x);
        next = x->next;
        if (!v || !narrow[v->id]) continue;
        by[x->out[0]->id] = narrow[v->id];
        graph_remove(g, x);
    }
    graph_replace_all(g, by);
    mem_free(by);
    return true;
}

static bool narrow_weights(Weights *w)
{
    Graph *g = w->g;
    int values = g->next_id, *casts = mem_zeroed((size_t)values + 1, sizeof *casts);
    Value **narrow = mem_zeroed(2 * ((size_t)values + 1), sizeof *narrow); /* by id; each weight adds one at most */
    bool ok = (casts && narrow) || oom(w->err);
    for (const Node *x = g->first; ok && x; x = x->next) {
        const Value *v = cast_weight(w, x);
        if (v) casts[v->id]++;
    }
    for (int i = 0, n = g->nweight; ok && i < n; i++) {
        const Value *v = g->weight[i];
        if (!casts[v->id] || v->dtype != DT_F32 || graph_writes(g, v)) continue;
        ok = (narrow[v->id] = narrow_weight(w, i, casts[v->id])) != NULL;
    }
    ok = ok && replace_casts(w, narrow);
    mem_free(casts);
    mem_free(narrow);
    return ok;
}

/* ------------------------------------------------------------------ to float32 */

static bool is_half(DType t) { return t == DT_F16 || t == DT_BF16; }

/* The node's results have the dtypes that its operands now give. */
static bool infer_again(Graph *g, Node *n, Err *err)
{
    for (int i = 0; i < n->op->schema->nparams; i++)
        if (n->arg[i].kind == ARG_DTYPE && is_half(n->arg[i].dtype)) n->arg[i].dtype = DT_F32;
    bool floats = false;
    for (int k = 0; k < n->nout; k++) floats |= is_half(n->out[k]->dtype);
    if (!floats || n->op->flags & OPF_DATA_SIZE) {
        for (int k = 0; k < n->nout; k++)
            if (is_half(n->out[k]->dtype)) n->out[k]->dtype = DT_F32;
        return true;
    }
    int nrequire = g->nrequire;
    Node *made = graph_add_before(g, n, n->op->id, n->op->schema->nparams, n->arg, NULL, err);
    if (!made) return false;
    g->nrequire = nrequire; /* said of the node that stays */
    for (int k = 0; k < n->nout && k < made->nout; k++) n->out[k]->dtype = made->out[k]->dtype;
    graph_remove(g, made);
    return true;
}

/* Casts of values to the dtype that they have. */
static bool drop_casts(Graph *g, Err *err)
{
    Value **by = mem_zeroed((size_t)g->next_id + 1, sizeof *by);
    if (!by) return oom(err);
    for (Node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (n->op->id != OP_to_copy || n->arg[0].v->dtype != n->out[0]->dtype) continue;
        Value *from = n->arg[0].v;
        by[n->out[0]->id] = by[from->id] ? by[from->id] : from;
        graph_remove(g, n);
    }
    graph_replace_all(g, by);
    mem_free(by);
    return true;
}

static bool widen(Weights *w)
{
    Graph *g = w->g;
    for (int i = 0; i < g->nweight; i++) {
        if (!is_half(g->weight[i]->dtype)) continue;
        const Tensor *t = converted(w, i, DT_F32);
        if (!t) return false;
        g->weight[i]->data = t;
        g->weight[i]->dtype = DT_F32;
    }
    for (int i = 0; i < g->ninput; i++)
        if (is_half(g->input[i]->dtype)) g->input[i]->dtype = DT_F32;
    for (Node *n = g->first; n; n = n->next) TRY(infer_again(g, n, w->err));
    return drop_casts(g, w->err);
}

/* ------------------------------------------------------------------ */

bool convert_precision(Graph *g, DType t, Err *err)
{
    if (g->bodies)
        return fail(err, E_UNSUPPORTED, "a model with loops or branches cannot be converted to %s", dtype_name(t));
    Weights w = {.g = g, .t = t, .err = err};
    if (t != DT_F32) TRY(lower_products_of(g, t, true, err));
    bool ok = weights_open(&w) && (t == DT_F32 ? widen(&w) : narrow_weights(&w)) && graph_check(g, err);
    lookup_free(&w.by_memory);
    return ok;
}
