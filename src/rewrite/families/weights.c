/* New weights. Contract in weights.h. */
#include "rewrite/families/weights.h"
#include <math.h>
#include <string.h>

enum { MAX_FROM = 8, MAX_SEARCHED = 500 };

typedef struct NewWeight {
    const char *how;
    int n;
    Value *from[MAX_FROM], *v;
    struct NewWeight *next;
} NewWeight;

static bool constant(Rewrite *rw, const Value *v)
{
    if (v->kind != V_WEIGHT || !v->data || !v->data->data) return rewrite_refuse(rw, "'%s' is not a weight", v->name);
    if (graph_writes(rw->g, v)) return rewrite_refuse(rw, "a run changes '%s'", v->name);
    return true;
}

bool weight_own(Rewrite *rw, const Value *v)
{
    TRY(constant(rw, v));
    if (rewrite_info(rw, v)->uses != 1)
        return rewrite_refuse(rw, "the weight '%s' is used %d times", v->name, rewrite_info(rw, v)->uses);
    for (int i = 0; i < rw->g->nweight; i++) {
        const Value *w = rw->g->weight[i];
        if (w != v && w->data && w->data->data == v->data->data)
            return rewrite_refuse(rw, "the weights '%s' and '%s' are tied", v->name, w->name);
    }
    return true;
}

Value *weight_made(Rewrite *rw, const char *how, int n, Value *const *from)
{
    for (const NewWeight *w = rw->new_weights; w; w = w->next)
        if (w->n == n && !strcmp(w->how, how) && !memcmp(w->from, from, (size_t)n * sizeof *from)) return w->v;
    return NULL;
}

static void *no_memory(Rewrite *rw)
{
    oom(rw->err);
    rw->hard = true;
    return NULL;
}

Tensor *weight_room(Rewrite *rw, DType t, int rank, const int64_t *shape)
{
    size_t bytes;
    Err e = {0};
    Tensor *x = arena_new(rw->g->arena, Tensor);
    void *data = x && shape_bytes(t, rank, shape, &bytes, &e) ? arena_alloc(rw->g->arena, bytes + 64, 1) : NULL;
    if (!data) return no_memory(rw);
    *x = tensor_of(t, rank, shape, data);
    return x;
}

static bool taken(const Graph *g, const char *fqn)
{
    for (int i = 0; i < g->nweight; i++)
        if (g->weight[i]->fqn && !strcmp(g->weight[i]->fqn, fqn)) return true;
    return false;
}

Value *weight_add(Rewrite *rw, const char *how, int n, Value *const *from, const char *fqn, const Tensor *data)
{
    Graph *g = rw->g;
    NewWeight *w = arena_new(rw->scratch, NewWeight);
    const char *base = fqn;
    for (int k = 1; fqn && taken(g, fqn); k++) fqn = arena_printf(g->arena, "%s_%d", base, k);
    char *name = fqn ? arena_printf(g->arena, "p_%s", fqn) : NULL;
    for (char *p = name; p && *p; p++)
        if (*p == '.') *p = '_';
    if (!w || !name) return no_memory(rw);
    Value *v = graph_add_weight(g, name, fqn, data);
    if (!v || !rewrite_info(rw, v)) return no_memory(rw);
    v->weight = W_PARAMETER;
    v->frozen = true;
    for (int i = 0; i < n; i++) v->frozen &= !from[i] || from[i]->weight != W_PARAMETER || from[i]->frozen;
    *w = (NewWeight){.how = how, .n = n, .v = v, .next = rw->new_weights};
    memcpy(w->from, from, (size_t)n * sizeof *from);
    rw->new_weights = w;
    return v;
}

const char *weight_sibling(Rewrite *rw, const Value *w, const char *name)
{
    const char *fqn = w->fqn ? w->fqn : w->name, *dot = strrchr(fqn, '.');
    return arena_printf(rw->g->arena, "%.*s%s", dot ? (int)(dot - fqn + 1) : 0, fqn, name);
}

/* ------------------------------------------------------------------ numbers along one axis */

/* Element c of v; every value on the way varies along one axis at most, so the elements that meet in an op are those of the same index. */
static bool number_at(Rewrite *rw, const Value *v, int64_t n, int64_t c, double *out)
{
    bool one = true;
    for (int i = 0; i < v->rank; i++) {
        if (is_one(v->dim[i])) continue;
        if (!one || !ex_equals_int(v->dim[i], n))
            return rewrite_refuse(rw, "'%s' varies along other axes than the channels", v->name);
        one = false;
    }
    if (--rw->budget < 0 || !dtype_is_float(v->dtype))
        return rewrite_refuse(rw, "'%s' is not a constant along the channels", v->name);
    if (v->kind == V_WEIGHT) {
        TRY(constant(rw, v));
        *out = tensor_get(v->data, one ? 0 : c);
        return true;
    }
    const Node *node = v->def;
    double x = 0, y = 0, alpha = 1;
    for (int i = 0; node && i < 2 && i < node->op->schema->nparams; i++) {
        const Arg *a = &node->arg[i];
        double *to = i ? &y : &x;
        if (a->kind == ARG_VALUE) TRY(number_at(rw, a->v, n, c, to));
        if (a->kind == ARG_EXPR && !constant_of(rw, a, to)) return rewrite_refuse(rw, "'%s' depends on sizes", v->name);
    }
    if (!node) return rewrite_refuse(rw, "'%s' is not a constant", v->name);
    if (node->op->id == OP_full) return constant_of(rw, &node->arg[1], out);
    *out = x;
    if (node->op->flags & OPF_REARRANGES || node->op->id == OP_to_copy) return true;
    if ((node->op->id == OP_add_Tensor || node->op->id == OP_sub_Tensor) && !constant_of(rw, &node->arg[2], &alpha))
        return false;
    return op_of_number(node->op->id, x, out) || op_of_numbers(node->op->id, x, alpha * y, out) ||
           rewrite_refuse(rw, "'%s' is not a constant", v->name);
}

bool weight_numbers(Rewrite *rw, const Value *v, int64_t n, double *out)
{
    for (int64_t c = 0; c < n; c++) {
        rw->budget = MAX_SEARCHED;
        TRY(number_at(rw, v, n, c, &out[c]));
        if (!isfinite(out[c])) return rewrite_refuse(rw, "'%s' is not finite", v->name);
    }
    return true;
}
