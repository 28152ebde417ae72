/* Plans that grow. Contract in growing.h. */
#include "plan/growing.h"
#include "base/mem.h"
#include "base/vec.h"
#include "plan/plan_impl.h"

enum { ALIGN = 64 };

struct GrowingPlan {
    PlanInput in;
    Builder b;
    const PlanParts *parts;
    int *last;  /* by value id: the last part that reads it */
    int *until; /* by block: the last part that reads what is in it, as far as that is known */
    int *next;  /* by block: 1 + another one of its list */
    int *ends;  /* by part: 1 + the first block of its list, those whose memory may be free after it */
    size_t bytes; /* that blocks take now */
};

typedef struct Reader {
    int *last, part;
} Reader;

static void read_operand(void *user, Value **slot)
{
    Reader *r = user;
    if (r->last[(*slot)->id] < r->part) r->last[(*slot)->id] = r->part;
}

static void find_last(GrowingPlan *g)
{
    const Graph *graph = g->in.graph;
    Reader r = {.last = g->last};
    for (int i = 0; i < graph->next_id; i++) g->last[i] = g->parts->reader[i];
    for (Node *n = graph->first; n; n = n->next) {
        bool needed = false;
        for (int k = 0; k < n->nout; k++) {
            int id = n->out[k]->id;
            needed |= g->b.need[id] != 0;
            r.part = g->parts->part[id];
            if (g->last[id] < r.part) g->last[id] = r.part;
        }
        if (needed) node_each_operand(n, read_operand, &r);
    }
}

GrowingPlan *growing_create(const PlanInput *in, const Binding *b, const PlanParts *parts, void *const *address,
                            Err *err)
{
    GrowingPlan *g = mem_zeroed(1, sizeof *g);
    if (!g) {
        oom(err);
        return NULL;
    }
    g->in = *in;
    g->parts = parts;
    g->b = (Builder){.in = &g->in, .g = in->graph, .b = b, .growing = g, .address = address, .err = err};
    g->last = mem_zeroed((size_t)in->graph->next_id + 1, sizeof *g->last);
    g->ends = mem_zeroed((size_t)parts->n + 1, sizeof *g->ends);
    if (!g->last || !g->ends) oom(err);
    else if (builder_begin(&g->b)) {
        g->b.p->constants_done = true; /* there are none */
        find_last(g);
        return g;
    }
    growing_free(g);
    return NULL;
}

void growing_free(GrowingPlan *g)
{
    if (!g) return;
    if (g->b.p) builder_free(&g->b);
    plan_free(g->b.p);
    mem_free(g->last);
    mem_free(g->until);
    mem_free(g->next);
    mem_free(g->ends);
    mem_free(g);
}

Plan *growing_plan(const GrowingPlan *g) { return g->b.p; }

static void enlist(GrowingPlan *g, int block)
{
    int *list = &g->ends[g->until[block]];
    g->next[block] = *list;
    *list = block + 1;
}

bool growing_storage(Builder *s, const Value *v, Tensor *t, size_t bytes)
{
    GrowingPlan *g = s->growing;
    Plan *p = s->p;
    size_t limit = g->in.memory_limit, all;
    if (!add_size(g->bytes, bytes, &all)) all = SIZE_MAX;
    if (limit && (all > limit || g->in.held > limit - all))
        return fail(s->err, E_LIMIT, "these sizes need %zu bytes of activations%s, the limit is %zu", all,
                    g->in.held ? " beside the inputs" : "", limit);
    void **data = vec_grow(p->const_data, p->nconst, sizeof *data);
    if (data) p->const_data = data;
    int *until = data ? vec_grow(g->until, p->nconst, sizeof *until) : NULL;
    if (until) g->until = until;
    int *next = until ? vec_grow(g->next, p->nconst, sizeof *next) : NULL;
    if (!next) return oom(s->err);
    g->next = next;
    void *memory = bytes <= SIZE_MAX - ALIGN ? mem_aligned(ALIGN, (bytes + ALIGN) / ALIGN * ALIGN) : NULL;
    if (!memory) return fail(s->err, E_LIMIT, "out of memory: %zu bytes", bytes);
    int at = builder_owned(s, bytes, true);
    if (at < 0) {
        mem_free(memory);
        return false;
    }
    g->bytes = all;
    t->data = p->const_data[at] = memory;
    p->place[v->id] = (Place){HOME_CONST, at, 0};
    g->until[at] = g->last[v->id];
    enlist(g, at);
    return true;
}

void growing_view(Builder *s, const Value *v)
{
    Place at = s->p->place[v->id];
    GrowingPlan *g = s->growing;
    if (at.home == HOME_CONST && g->until[at.index] < g->last[v->id]) g->until[at.index] = g->last[v->id];
}

bool growing_add(GrowingPlan *g, int part, Err *err)
{
    g->b.err = err;
    for (int i = g->parts->begin[part]; i < g->parts->begin[part + 1]; i++)
        TRY(builder_add(&g->b, g->parts->node[i]));
    return true;
}

void growing_release(GrowingPlan *g, int part)
{
    Plan *p = g->b.p;
    int at = g->ends[part] - 1;
    for (int next; at >= 0; at = next) {
        next = g->next[at] - 1;
        if (g->until[at] > part) {
            enlist(g, at);
            continue;
        }
        mem_free(p->const_data[at]);
        p->const_data[at] = NULL;
        g->bytes -= p->const_size[at];
    }
}
