/* New weights. Contract in weights.h. */
#include "rewrite/families/weights.h"
#include <string.h>
#include "base/vec.h"

enum { MAX_FROM = 8 };

typedef struct NewWeight {
    const char *how;
    int n;
    Value *from[MAX_FROM], *v;
} NewWeight;

static void *no_memory(Rewrite *rw)
{
    oom(rw->err);
    rw->hard = true;
    return NULL;
}

static uint64_t hash_of_memory(const Tensor *t) { return hash_keyed(&t->data, sizeof t->data); }

/* Weights of the graph that came since are found, too. */
static bool know_all(Rewrite *rw)
{
    WeightsMade *made = &rw->made;
    for (; made->known < rw->g->nweight; made->known++) {
        const Value *w = rw->g->weight[made->known];
        bool ok = !w->data || lookup_add(&made->by_memory, hash_of_memory(w->data), (size_t)made->known);
        if (w->fqn && !map_has(&made->by_name, w->fqn)) ok = ok && map_put(&made->by_name, w->fqn, NULL);
        if (!ok) return no_memory(rw) != NULL;
    }
    return true;
}

bool weight_own(Rewrite *rw, const Value *v)
{
    Err why = {0};
    size_t tried = 0;
    int64_t i;
    if (!constant_weight(rw->g, v, &why)) return rewrite_refuse(rw, "%s", why.msg);
    if (rewrite_info(rw, v)->uses != 1)
        return rewrite_refuse(rw, "the weight '%s' is used %d times", v->name, rewrite_info(rw, v)->uses);
    TRY(know_all(rw));
    while ((i = lookup_next(&rw->made.by_memory, hash_of_memory(v->data), &tried)) >= 0) {
        const Value *w = rw->g->weight[i];
        if (w != v && w->data->data == v->data->data)
            return rewrite_refuse(rw, "the weights '%s' and '%s' are tied", v->name, w->name);
    }
    return true;
}

static uint64_t hash_of_source(const char *how, int n, Value *const *from)
{
    return hash_keyed(how, strlen(how)) ^ hash_keyed(from, (size_t)n * sizeof *from);
}

Value *weight_made(Rewrite *rw, const char *how, int n, Value *const *from)
{
    size_t tried = 0;
    int64_t i;
    while ((i = lookup_next(&rw->made.by_source, hash_of_source(how, n, from), &tried)) >= 0) {
        const NewWeight *w = &rw->made.list[i];
        if (w->n == n && !strcmp(w->how, how) && !memcmp(w->from, from, (size_t)n * sizeof *from)) return w->v;
    }
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

/* fqn, or with the first number after it that no weight has. */
static const char *free_name(Rewrite *rw, const char *fqn)
{
    Map *names = &rw->made.by_name;
    if (!know_all(rw)) return NULL;
    if (!map_has(names, fqn)) return fqn;
    const char *name = fqn;
    for (uintptr_t k = (uintptr_t)map_get(names, fqn) + 1; name && map_has(names, name); k++) {
        name = arena_printf(rw->g->arena, "%s_%d", fqn, (int)k);
        if (!map_put(names, fqn, (void *)k)) return NULL; /* those before it stay taken */
    }
    return name;
}

Value *weight_add(Rewrite *rw, const char *how, int n, Value *const *from, const char *fqn, const Tensor *data)
{
    Graph *g = rw->g;
    WeightsMade *made = &rw->made;
    NewWeight *list = vec_room(rw->scratch, made->list, made->n, sizeof *list);
    fqn = fqn ? free_name(rw, fqn) : NULL;
    char *name = fqn ? arena_printf(g->arena, "p_%s", fqn) : NULL;
    for (char *p = name; p && *p; p++)
        if (*p == '.') *p = '_';
    if (!list || !name) return no_memory(rw);
    made->list = list;
    Value *v = graph_add_weight(g, name, fqn, data);
    if (!v || !rewrite_info(rw, v)) return no_memory(rw);
    v->weight = W_PARAMETER;
    v->frozen = true;
    for (int i = 0; i < n; i++) v->frozen &= !from[i] || from[i]->weight != W_PARAMETER || from[i]->frozen;
    NewWeight *w = &list[made->n];
    *w = (NewWeight){.how = how, .n = n, .v = v};
    memcpy(w->from, from, (size_t)n * sizeof *from);
    return lookup_add(&made->by_source, hash_of_source(how, n, from), (size_t)made->n++) ? v : no_memory(rw);
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
