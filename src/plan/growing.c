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
    int *last;  /* by value id: the last part that reads it; parts->n: it is given to the plan of the other nodes */
    int *tensors; /* by part: 1 + the first value whose tensor goes after it */
    int *then;    /* by value id: 1 + another one of its list */
    int *until; /* by block: the last part that reads what is in it, as far as that is known */
    int *next;  /* by block: 1 + another one of its list */
    int *ends;  /* by part: 1 + the first block of its list, those whose memory may be free after it */
    int unused; /* 1 + the first of the blocks that may be others */
    size_t bytes; /* that blocks take now */
};

typedef struct Reader {
    GrowingPlan *g;
    int part;
    unsigned char *need; /* by value id: of the plan of the other nodes */
} Reader;

static void read_operand(void *user, Value **slot)
{
    Reader *r = user;
    if (r->g->last[(*slot)->id] < r->part) r->g->last[(*slot)->id] = r->part;
}

/* Do the parts compute a node, as its first result has it? The plan of the other nodes takes of it what it needs: of a
 * group that it fuses the result alone, for what is inside has no reader outside, and is run where the result is. */
static bool runs(const GrowingPlan *g, const Node *n)
{
    bool needed = false;
    for (int k = 0; k < n->nout; k++) needed |= g->b.need[n->out[k]->id] && !g->in.given[n->out[k]->id];
    return needed && g->parts->part[n->out[0]->id] < g->parts->n;
}

static void find_last(GrowingPlan *g)
{
    const Graph *graph = g->in.graph;
    Reader r = {.g = g};
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

static void need_of_rest(void *user, Value **slot)
{
    Reader *r = user;
    const Value *v = *slot;
    r->need[v->id] = 1;
    if (v->def && runs(r->g, v->def)) r->g->last[v->id] = r->part;
}

/* What the plan of the other nodes reads: it computes what it needs and is not given, and draws what was not drawn. */
static bool find_rest(GrowingPlan *g, Err *err)
{
    const Graph *graph = g->in.graph;
    Reader r = {.g = g, .part = g->parts->n, .need = mem_zeroed((size_t)graph->next_id + 1, 1)};
    if (!r.need) return oom(err);
    for (int i = 0; i < graph->noutput; i++) need_of_rest(&r, &graph->output[i].value);
    for (int i = 0; i < graph->nmutation; i++) need_of_rest(&r, &graph->mutation[i].value);
    for (Node *n = graph->last; n; n = n->prev) {
        bool used = !n->nout || n->op->flags & OPF_RANDOM;
        for (int k = 0; k < n->nout; k++) used |= r.need[n->out[k]->id] && !g->in.given[n->out[k]->id];
        if (used && !runs(g, n)) node_each_operand(n, need_of_rest, &r);
    }
    mem_free(r.need);
    return true;
}

/* Most nodes of a part. */
static int largest(const PlanParts *p)
{
    int most = 1;
    for (int i = 0; i < p->n; i++)
        if (p->begin[i + 1] - p->begin[i] > most) most = p->begin[i + 1] - p->begin[i];
    return most;
}

GrowingPlan *growing_create(const PlanInput *in, const Binding *b, const PlanParts *parts, void *const *address,
                            bool gives_rest, Err *err)
{
    size_t values = (size_t)in->graph->next_id + 1, ends = (size_t)parts->n + 1;
    GrowingPlan *g = mem_zeroed(1, sizeof *g);
    if (!g) {
        oom(err);
        return NULL;
    }
    g->in = *in;
    g->parts = parts;
    g->b = (Builder){.in = &g->in, .g = in->graph, .b = b, .growing = g, .address = address, .most = largest(parts),
                     .err = err};
    g->last = mem_zeroed(values, sizeof *g->last);
    g->then = mem_zeroed(values, sizeof *g->then);
    g->ends = mem_zeroed(ends, sizeof *g->ends);
    g->tensors = mem_zeroed(ends, sizeof *g->tensors);
    if (!g->last || !g->then || !g->ends || !g->tensors) oom(err);
    else if (builder_begin(&g->b)) {
        g->b.p->constants_done = true; /* there are none */
        find_last(g);
        if (!gives_rest || find_rest(g, err)) return g;
    }
    growing_free(g);
    return NULL;
}

static void free_tensors(GrowingPlan *g, int part)
{
    for (int id = g->tensors[part] - 1; id >= 0; id = g->then[id] - 1) {
        mem_free(g->b.p->value[id]);
        g->b.p->value[id] = NULL;
    }
    g->tensors[part] = 0;
}

/* Those of the part that ran. */
static void drop_steps(GrowingPlan *g)
{
    Plan *p = g->b.p;
    for (int i = 0; i < p->nsteps; i++)
        if (p->step[i].call.state_free) p->step[i].call.state_free(p->step[i].call.state);
    p->nsteps = p->nnodes = 0;
    arena_destroy(g->b.calls);
    g->b.calls = NULL;
}

void growing_free(GrowingPlan *g)
{
    if (!g) return;
    if (g->b.p) {
        for (int i = 0; i <= g->parts->n; i++) free_tensors(g, i);
        drop_steps(g);
        builder_free(&g->b);
    }
    plan_free(g->b.p);
    mem_free(g->last);
    mem_free(g->then);
    mem_free(g->tensors);
    mem_free(g->until);
    mem_free(g->next);
    mem_free(g->ends);
    mem_free(g);
}

Plan *growing_plan(const GrowingPlan *g) { return g->b.p; }

Tensor *growing_tensor(Builder *s, const Value *v)
{
    GrowingPlan *g = s->growing;
    Tensor *t = mem_zeroed(1, sizeof *t);
    if (!t) return NULL;
    int *list = &g->tensors[g->last[v->id]];
    g->then[v->id] = *list;
    *list = v->id + 1;
    return s->p->value[v->id] = t;
}

static void enlist(GrowingPlan *g, int block)
{
    int *list = &g->ends[g->until[block]];
    g->next[block] = *list;
    *list = block + 1;
}

/* One that nothing uses any more, or another: its number, or -1. */
static int free_block(GrowingPlan *g)
{
    Plan *p = g->b.p;
    int at = g->unused - 1;
    if (at >= 0) {
        g->unused = g->next[at];
        return at;
    }
    void **data = vec_grow(p->const_data, p->nconst, sizeof *data);
    if (data) p->const_data = data;
    int *until = data ? vec_grow(g->until, p->nconst, sizeof *until) : NULL;
    if (until) g->until = until;
    int *next = until ? vec_grow(g->next, p->nconst, sizeof *next) : NULL;
    if (next) g->next = next;
    return next ? builder_owned(&g->b, 0, true) : (oom(g->b.err), -1);
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
    void *memory = bytes <= SIZE_MAX - ALIGN ? mem_aligned(ALIGN, (bytes + ALIGN) / ALIGN * ALIGN) : NULL;
    if (!memory) return fail(s->err, E_LIMIT, "out of memory: %zu bytes", bytes);
    int at = free_block(g);
    if (at < 0) {
        mem_free(memory);
        return false;
    }
    g->bytes = all;
    p->const_size[at] = bytes;
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
    if (!(g->b.calls = arena_create(0))) return oom(err);
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
        g->next[at] = g->unused;
        g->unused = at + 1;
    }
    drop_steps(g);
    free_tensors(g, part);
}

int growing_give(const GrowingPlan *g, const Tensor **given, int *slot, int first, void **address)
{
    static const Tensor drawn = {.dtype = DT_F32};
    int count = 0;
    for (const Node *n = g->in.graph->first; n; n = n->next) {
        if (!n->nout || !runs(g, n)) continue;
        for (int k = 0; k < n->nout; k++) {
            int id = n->out[k]->id;
            const Tensor *t = g->last[id] == g->parts->n ? g->b.p->value[id] : NULL;
            bool own = t && g->b.p->place[id].home == HOME_CONST;
            if (own || n->op->flags & OPF_RANDOM) given[id] = own ? t : &drawn;
            if (!own) continue;
            slot[id] = first + count;
            if (address) address[count] = t->data;
            count++;
        }
    }
    return count;
}

size_t growing_bytes(const GrowingPlan *g) { return g->bytes; }
