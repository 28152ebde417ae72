/* New weights. Contract in weights.h. */
#include "rewrite/families/weights.h"
#include <string.h>

enum { MAX_FROM = 8 };

typedef struct NewWeight {
    const char *how;
    int n;
    Value *from[MAX_FROM], *v;
    struct NewWeight *next;
} NewWeight;

bool weight_own(Rewrite *rw, const Value *v)
{
    Err why = {0};
    if (!constant_weight(rw->g, v, &why)) return rewrite_refuse(rw, "%s", why.msg);
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

void weight_means(Rewrite *rw, const Value *v, Value *meaning)
{
    Info *info = rewrite_info(rw, v);
    if (info) info->meaning = meaning;
}

const char *weight_sibling(Rewrite *rw, const Value *w, const char *name)
{
    const char *fqn = w->fqn ? w->fqn : w->name, *dot = strrchr(fqn, '.');
    return arena_printf(rw->g->arena, "%.*s%s", dot ? (int)(dot - fqn + 1) : 0, fqn, name);
}

bool weight_numbers(Rewrite *rw, const Value *v, int64_t n, double *out)
{
    Err why = {0};
    return constant_numbers(rw->g, v, n, out, &why) || (why.msg[0] && rewrite_refuse(rw, "%s", why.msg));
}
