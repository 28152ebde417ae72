/* Weights that are one: by name, memory or content. Contract in graph.h. */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "ir/graph.h"

static bool is_target(const Graph *g, const Value *v)
{
    for (int i = 0; i < g->nmutation; i++)
        if (g->mutation[i].target == v) return true;
    return false;
}

bool graph_writes(const Graph *g, const Value *v) { return v->changes || is_target(g, v); }

/* By value id: is it a target? NULL: no memory. */
static bool *find_targets(const Graph *g)
{
    bool *target = mem_zeroed((size_t)g->next_id + 1, sizeof *target);
    for (int i = 0; target && i < g->nmutation; i++) target[g->mutation[i].target->id] = true;
    return target;
}

/* The same memory, read in the same way. */
static bool same_tensor(const Tensor *a, const Tensor *b)
{
    bool same = a && b && a->data && a->data == b->data && a->dtype == b->dtype && a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) same = a->shape[i] == b->shape[i] && a->stride[i] == b->stride[i];
    return same;
}

Value *graph_first_name(const Graph *g, const Value *weight)
{
    bool shared = weight->weight == W_PARAMETER && !is_target(g, weight);
    for (int i = 0; shared && i < g->nweight; i++) {
        Value *w = g->weight[i];
        if (w->weight == W_PARAMETER && w->frozen == weight->frozen && same_tensor(w->data, weight->data) &&
            !is_target(g, w))
            return w;
    }
    return (Value *)weight;
}

static uint64_t hash_of(const Tensor *t)
{
    int64_t all[2 * MAX_RANK + 3] = {(int64_t)(uintptr_t)t->data, t->dtype, t->rank};
    for (int i = 0; i < t->rank; i++) all[3 + 2 * i] = t->shape[i], all[4 + 2 * i] = t->stride[i];
    return hash_keyed(all, (size_t)(3 + 2 * t->rank) * sizeof *all);
}

/* The number of a weight in `seen`, frozen or not (-1: either), that shows t's memory; -1: none. */
static int seen_at(const Graph *g, const Lookup *seen, const Tensor *t, int frozen)
{
    size_t tried = 0;
    uint64_t h = t && t->data ? hash_of(t) : 0;
    int64_t k = -1;
    while (t && t->data && (k = lookup_next(seen, h, &tried)) >= 0)
        if (same_tensor(g->weight[k]->data, t) && (frozen < 0 || g->weight[k]->frozen == frozen)) break;
    return (int)k;
}

static bool add_seen(const Graph *g, Lookup *seen, int i)
{
    const Tensor *t = g->weight[i]->data;
    return !t || !t->data || lookup_add(seen, hash_of(t), (size_t)i);
}

bool graph_first_names(const Graph *g, Value **first)
{
    Lookup seen = {0};
    bool *target = find_targets(g), ok = target;
    for (int i = 0; ok && i < g->nweight; i++) {
        Value *w = first[i] = g->weight[i];
        if (w->weight != W_PARAMETER || target[w->id]) continue;
        int k = seen_at(g, &seen, w->data, w->frozen);
        if (k >= 0) first[i] = g->weight[k];
        else ok = add_seen(g, &seen, i);
    }
    lookup_free(&seen);
    mem_free(target);
    return ok;
}

bool graph_weights_by_memory(const Graph *g, Lookup *first)
{
    bool *target = find_targets(g), ok = target;
    for (int i = 0; ok && i < g->nweight; i++) {
        const Value *w = g->weight[i];
        if (!w->changes && !target[w->id] && seen_at(g, first, w->data, -1) < 0) ok = add_seen(g, first, i);
    }
    mem_free(target);
    if (!ok) lookup_free(first);
    return ok;
}

int graph_weight_that_shows(const Graph *g, const Lookup *first, const Tensor *t) { return seen_at(g, first, t, -1); }

bool graph_same_parameter(const Graph *g, const Value *a, const Value *b)
{
    return a == b || (same_tensor(a->data, b->data) && graph_first_name(g, a) == graph_first_name(g, b));
}

/* By dtype, sizes and bits. */
static bool same_content(const Tensor *a, const Tensor *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) same = a->shape[i] == b->shape[i];
    return same && !memcmp(a->data, b->data, tensor_bytes(a));
}

static bool small_constant(const Value *v) { return v->weight == W_CONSTANT && tensor_bytes(v->data) <= 1 << 12; }

static bool has_content(const Value *v)
{
    return v->data && v->data->data && tensor_contiguous(v->data) && !v->changes;
}

bool graph_equal_weights(const Graph *g, bool constants, Value **first)
{
    Lookup by_content = {0};
    bool *target = find_targets(g), ok = target;
    for (int i = 0; ok && i < g->nweight; i++) {
        Value *w = first[i] = g->weight[i];
        if (!has_content(w) || target[w->id] || (constants && !small_constant(w))) continue;
        uint64_t h = hash_keyed(w->data->data, tensor_bytes(w->data));
        size_t tried = 0;
        int64_t k;
        while ((k = lookup_next(&by_content, h, &tried)) >= 0 && !same_content(g->weight[k]->data, w->data)) continue;
        if (k >= 0) first[i] = g->weight[k];
        else ok = lookup_add(&by_content, h, (size_t)i);
    }
    lookup_free(&by_content);
    mem_free(target);
    return ok;
}

bool graph_merge_constants(Graph *g)
{
    Value **first = mem_zeroed((size_t)g->nweight + 1, sizeof *first),
          **by = mem_zeroed((size_t)g->next_id + 1, sizeof *by);
    bool ok = first && by && graph_equal_weights(g, true, first);
    for (int i = 0; ok && i < g->nweight; i++) by[g->weight[i]->id] = first[i];
    if (ok) graph_replace_all(g, by);
    mem_free(first);
    mem_free(by);
    return ok;
}

typedef struct Spot {
    uintptr_t data;
    int64_t numel;
    int weight;
} Spot;

static int by_memory(const void *a, const void *b)
{
    const Spot *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    if (x->numel != y->numel) return x->numel < y->numel ? -1 : 1;
    return x->weight - y->weight;
}

bool graph_tied_weights(const Graph *g, bool *tied)
{
    Spot *spot = mem_zeroed((size_t)g->nweight + 1, sizeof *spot);
    if (!spot) return false;
    for (int i = 0; i < g->nweight; i++) {
        const Tensor *t = g->weight[i]->data;
        spot[i] = (Spot){(uintptr_t)t->data, tensor_numel(t), i};
    }
    qsort(spot, (size_t)g->nweight, sizeof *spot, by_memory);
    for (int i = 0; i < g->nweight; i++)
        tied[spot[i].weight] =
            i && spot[i].data && spot[i].data == spot[i - 1].data && spot[i].numel == spot[i - 1].numel;
    mem_free(spot);
    return true;
}
