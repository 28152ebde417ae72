/* Sessions. Contract in session.h. */
#include "run/session.h"
#include <math.h>
#include <string.h>
#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/vec.h"
#include "run/gemm_cache.h"
#include "run/run_table.h"
#include "run/session_impl.h"
#include "shape/solve.h"

enum {
    ALIGN = 64,
    SLACK = 1 << 26
}; /* SLACK: addresses after the arena, for scratch whose size is not known before the first run */

static const struct {
    RunFn *fn;
    OpId op;
} run_table[OP_COUNT] = {
#define RUN(f) .fn = run_##f,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

void *session_block(size_t n) { return mem_aligned(ALIGN, (n + ALIGN) / ALIGN * ALIGN); }

static void *own(Session *s, size_t n)
{
    void **all = vec_grow(s->owned, s->nowned, sizeof *all);
    if (!all) return NULL;
    s->owned = all;
    void *p = session_block(n);
    if (p) s->owned[s->nowned++] = p;
    return p;
}

void *session_room(Room *r, size_t n)
{
    if (r->data && n <= r->size) return r->data;
    mem_free(r->data);
    r->data = session_block(n);
    r->size = r->data ? n : 0;
    return r->data;
}

/* ------------------------------------------------------------------ running a plan's steps */

/* Steps of one plan in the order of their nodes; between two of them no scratch is alive. */
bool session_call(Session *s, Call *c, size_t top, size_t room, size_t *scratch, Err *err)
{
    RunEnv *e = &s->env;
    c->env = e;
    e->scratch = s->arena.data + top;
    e->scratch_size = s->arena.size - top < room ? s->arena.size - top : room;
    e->scratch_used = 0;
    RunFn *run = run_table[c->node->op->id].fn;
    bool ok = run ? run(c, err) : call_fail(c, E_UNSUPPORTED, err, "%s cannot be run", c->node->op->name);
    if (e->scratch_used > *scratch) *scratch = e->scratch_used;
    if (room == SIZE_MAX && top + e->scratch_used > s->needed) s->needed = top + e->scratch_used;
    while (e->noverflow) mem_free(e->overflow[--e->noverflow]);
    if (team_stopped()) return fail(err, E_LIMIT, "the run was cancelled");
    if (!ok && err->code == E_OK) oom(err);
    return ok;
}

/* What a step takes, roughly: in the time of moving a byte a CPU does some 16 operations. */
static double cost(const Step *step)
{
    Work w = work_of(&step->call);
    return w.flops + 16 * w.bytes;
}

static void tell_progress(Session *s, const Step *step)
{
    s->on_progress(s->on_progress_user, s->module ? s->module[step->node->out[0]->id] : "",
                   s->work > 0 ? s->done / s->work : 0);
    s->done += cost(step);
}

static bool run_step(Session *s, Step *step, Err *err)
{
    if (s->on_progress) tell_progress(s, step);
    bool ok = session_call(s, &step->call, step->top, step->room, &step->scratch, err);
    profile_step(&s->profile, step);
    return ok || within(err, "%s", step->call.node->op->name);
}

bool session_run_steps(Session *s, Plan *p, int from, bool constants, Err *err)
{
    for (int i = from; i < p->nsteps; i++)
        if (p->step[i].constant == constants) TRY(run_step(s, &p->step[i], err));
    return true;
}

/* The same in node order, telling the observer of every node, views included. */
static bool run_observed(Session *s, Plan *p, Err *err)
{
    for (int i = 0; i < p->nnodes; i++) {
        const Node *n = p->node[i].node;
        Tensor *out[64];
        if (p->node[i].step >= 0 && !p->step[p->node[i].step].constant)
            TRY(run_step(s, &p->step[p->node[i].step], err));
        for (int k = 0; k < n->nout && k < 64; k++) out[k] = p->value[n->out[k]->id];
        if (!s->on_node(s->on_node_user, n, out)) return fail(err, E_MISMATCH, "stopped at node '%s'", n->name);
    }
    return true;
}

static size_t constant_bytes(const Plan *p)
{
    size_t n = 0;
    for (int i = 0; i < p->nconst; i++) n += p->const_data[i] ? p->const_size[i] : 0;
    return n;
}

/* Constants of plans beside this one take at most CONSTANT_BYTES: the least recently used ones compute theirs again. */
static void release_constants(Session *s, const Plan *but)
{
    for (;;) {
        Cached *oldest = NULL;
        size_t total = 0;
        for (int i = 0; i < s->ncached; i++) {
            Cached *k = &s->cached[i];
            size_t n = k->stage == KEPT || k->plan == but ? 0 : constant_bytes(k->plan);
            total += n;
            if (n && (!oldest || k->used < oldest->used)) oldest = k;
        }
        if (!oldest || total <= CONSTANT_BYTES) return;
        for (int i = 0; i < oldest->plan->nconst; i++) {
            mem_free(oldest->plan->const_data[i]);
            oldest->plan->const_data[i] = NULL;
        }
        oldest->plan->constants_done = false;
        if (s->current == oldest->plan) s->current = NULL;
    }
}

/* There is no memory for a constant of a plan: the message names the node that computes it. */
static bool no_constant(const Plan *p, int i, Err *err)
{
    fail(err, E_LIMIT, "out of memory: %zu bytes, computed of constants", p->const_size[i]);
    for (int k = 0; k < p->nnodes; k++)
        for (int r = 0; r < p->node[k].node->nout; r++) {
            Place at = p->place[p->node[k].node->out[r]->id];
            if (at.home == HOME_CONST && at.index == i) return within(err, "node '%s'", p->node[k].node->name);
        }
    return false;
}

/* Constants of a plan: each in memory of its own, those that only other constants needed are freed again. */
static bool compute_constants(Session *s, Plan *p, Err *err)
{
    if (p->constants_done) return true;
    release_constants(s, p);
    for (int i = 0; i < p->nconst; i++)
        if (!(p->const_data[i] = session_block(p->const_size[i]))) return no_constant(p, i, err);
    plan_place(p, s->arena.data, s->input_data);
    TRY(session_run_steps(s, p, 0, true, err));
    for (int i = 0; i < p->nconst && !s->on_node; i++)
        if (!p->const_kept[i]) {
            mem_free(p->const_data[i]);
            p->const_data[i] = NULL;
        }
    p->constants_done = true;
    return true;
}

int session_output_place(const Session *s) { return s->g->ninput + (s->keep ? s->keep->n : 0); }

bool session_ready(Session *s, Plan *p, Err *err)
{
    size_t need = p->arena_bytes > s->needed ? p->arena_bytes : s->needed;
    if (need > s->arena.size || !s->arena.data)
        if (!pages_take(&s->arena, need, SLACK))
            return fail(err, E_LIMIT, "out of memory: these sizes need %zu bytes of activations", need);
    TRY(compute_constants(s, p, err));
    size_t bytes = (size_t)(session_output_place(s) + s->g->noutput + s->found.n) * sizeof *s->input_data;
    if (s->current != p || p->base != s->arena.data || (bytes && memcmp(s->placed_input, s->input_data, bytes))) {
        plan_place(p, s->arena.data, s->input_data);
        if (bytes) memcpy(s->placed_input, s->input_data, bytes);
    }
    s->current = p;
    return true;
}

/* ------------------------------------------------------------------ plans */

static bool same_binding(const Binding *a, const Binding *b)
{
    for (int i = 0; i < a->n; i++)
        if (a->bound[i] != b->bound[i] || (a->bound[i] && a->value[i] != b->value[i])) return false;
    return true;
}

static void forget(Cached *k)
{
    for (int i = 0; i < k->ncount; i++)
        if (k->count[i].state_free) k->count[i].state_free(k->count[i].state);
    plan_free(k->plan);
    *k = (Cached){0};
}

void session_forget_plans(Session *s)
{
    for (int i = 0; i < s->ncached; i++) forget(&s->cached[i]);
    s->ncached = 0;
    s->current = NULL;
    stages_let_go(s);
}

void session_forget_sizes(Session *s)
{
    int n = 0;
    for (int i = 0; i < s->ncached; i++) {
        if (s->cached[i].stage != KEPT) forget(&s->cached[i]);
        else if (i != n) s->cached[n] = s->cached[i];
        n += s->cached[i].stage == KEPT;
    }
    s->ncached = n;
    s->current = NULL;
}

/* Where a new plan goes: after the others, or in place of the least recently used one; that of kept inputs, to whose
 * results others look, where the last one was. */
static Cached *free_place(Session *s, int stage)
{
    Cached *at = NULL, *oldest = NULL;
    for (int i = 0; i < s->ncached; i++) {
        Cached *k = &s->cached[i];
        if (k->stage == KEPT) at = stage == KEPT ? k : at;
        else if (!oldest || k->used < oldest->used) oldest = k;
    }
    if (!at) at = s->ncached < MAX_PLANS ? &s->cached[s->ncached++] : oldest;
    if (at->plan && at->plan == s->current) s->current = NULL;
    forget(at);
    return at;
}

size_t session_held(const Session *s)
{
    size_t n = feeding_bytes(s);
    for (int i = 0; i < s->g->ninput; i++) n += s->own_input[i].size;
    return n;
}

PlanInput session_plan_input(const Session *s, int stage, const unsigned char *wanted)
{
    const Keeping *keep = s->on_node || stage == KEPT ? NULL : s->keep;
    const Found *found = stage == WHOLE && s->found.plan ? &s->found : NULL;
    return (PlanInput){.graph = s->g,
                       .fusion = s->on_node || (wanted && stage != KEPT) ? NULL : s->fusion,
                       .wanted = wanted,
                       .given = found ? found->given : keep ? keep->given : (const Tensor *const *)s->given,
                       .stable = s->stable,
                       .slot = found ? found->slot : keep ? keep->slot : NULL,
                       .apart = stage == KEPT,
                       .outputs = stage == WHOLE && (s->memory || s->feeding) ? 1 + session_output_place(s) : 0,
                       .elsewhere = s->elsewhere,
                       .grown = feeding_grown(s),
                       .memory_limit = s->env.memory_limit,
                       .held = session_held(s) + (found ? growing_bytes(found->plan) : 0)};
}

Cached *session_plan(Session *s, const Binding *b, int stage, const unsigned char *wanted, Err *err)
{
    for (int i = 0; i < s->ncached; i++) {
        Cached *k = &s->cached[i];
        if (k->stage != stage || !same_binding(&k->plan->binding, b)) continue;
        k->used = ++s->clock;
        return k;
    }
    double start = clock_ms();
    PlanInput in = session_plan_input(s, stage, wanted);
    Plan *p = plan_build(&in, b, err);
    if (!p) return NULL;
    s->plan_ms = clock_ms() - start;
    s->plans_made++;
    Cached *at = free_place(s, stage);
    *at = (Cached){.plan = p, .stage = stage, .used = ++s->clock};
    return at;
}

/* ------------------------------------------------------------------ session */

/* Weights that training changes: a copy of the session's own, or the lender's. */
static bool init_changing(Session *s, const Session *lender, Err *err)
{
    s->changing = mem_zeroed((size_t)s->g->nweight + 1, sizeof *s->changing);
    if (!s->changing) return oom(err);
    for (int i = 0; i < s->g->nweight; i++) {
        const Value *w = s->g->weight[i];
        const Tensor *lent = lender ? session_weight(lender, w->name) : NULL;
        if (!w->changes) continue;
        Tensor *t = &s->changing[i];
        *t = lent ? *lent : tensor_of(w->data->dtype, w->data->rank, w->data->shape, own(s, tensor_bytes(w->data)));
        if (!t->data) return oom(err);
        if (!lent) tensor_copy(t, w->data);
        s->given[w->id] = t;
        s->stable[w->id] = 0;
    }
    return true;
}

/* Weights that no node writes are given as they are; a written buffer starts as a copy that the session owns. */
static bool init_weights(Session *s, const Session *lender, Err *err)
{
    for (int i = 0; i < s->g->nweight; i++) {
        Value *w = s->g->weight[i];
        s->given[w->id] = (Tensor *)(uintptr_t)w->data;
        s->stable[w->id] = 1;
    }
    s->state = mem_zeroed((size_t)s->g->nmutation + 1, sizeof *s->state);
    s->early = mem_zeroed((size_t)s->g->nmutation + 1, sizeof *s->early);
    s->kept = mem_zeroed((size_t)s->g->noutput + 1, sizeof *s->kept);
    if (!s->state || !s->early || !s->kept) return oom(err);
    for (int i = 0; i < s->g->nmutation; i++) {
        Value *w = s->g->mutation[i].target;
        Tensor *t = &s->state[i];
        *t = tensor_of(w->data->dtype, w->data->rank, w->data->shape, NULL);
        t->data = own(s, tensor_bytes(t));
        if (!t->data) return oom(err);
        s->given[w->id] = t;
        s->stable[w->id] = 0;
    }
    TRY(init_changing(s, lender, err));
    for (const Node *n = s->g->first; n && s->fusion;
         n = n->next) { /* products round these weights as they pack them */
        if (!n->nout || !s->fusion->node[n->out[0]->id].rounds_weight) continue;
        s->given[n->out[0]->id] = s->given[n->arg[0].v->id];
        s->stable[n->out[0]->id] = 1;
    }
    session_reset(s);
    return true;
}

void session_seed(Session *s, uint64_t seed) { rng_seed(&s->rng, seed); }

void session_reset(Session *s)
{
    feeding_let_go(s);
    for (int i = 0; i < s->g->nmutation; i++) tensor_copy(&s->state[i], s->g->mutation[i].target->data);
}

typedef struct Folding {
    unsigned char *fold, *wanted; /* by value id: depends on weights alone; is used by a node that does not */
    bool all;
} Folding;

static void folded_operand(void *user, Value **slot)
{
    Folding *f = user;
    f->all &= f->fold[(*slot)->id] != 0;
}

static void want_folded(void *user, Value **slot)
{
    Folding *f = user;
    if (f->fold[(*slot)->id]) f->wanted[(*slot)->id] = 1;
}

/* The plan's result becomes the session's: a copy of its own, or the weight itself where it is a view of one. */
static bool keep_folded(Session *s, const Plan *p, const Value *v, const unsigned char *wanted, Err *err)
{
    const Tensor *t = p->value[v->id];
    if (!wanted[v->id] || s->given[v->id] || !t) return true;
    Tensor *mine = own(s, sizeof *mine);
    if (!mine) return oom(err);
    *mine = *t;
    if (p->place[v->id].home != HOME_GIVEN) {
        *mine = tensor_of(t->dtype, t->rank, t->shape, NULL);
        mine->data = own(s, tensor_bytes(t));
        if (!mine->data) return oom(err);
        tensor_copy(mine, t);
    }
    s->given[v->id] = mine;
    s->stable[v->id] = 1;
    return true;
}

/* What depends on weights alone (casts of weights, folded tables) is computed once, here, and shared by all sizes. */
static bool fold_weights(Session *s, Err *err)
{
    const Graph *g = s->g;
    unsigned char *fold = mem_zeroed((size_t)g->next_id + 1, 1), *wanted = mem_zeroed((size_t)g->next_id + 1, 1);
    if (!fold || !wanted) {
        mem_free(fold);
        mem_free(wanted);
        return oom(err);
    }
    bool any = false;
    for (int i = 0; i < g->nweight; i++) fold[g->weight[i]->id] = s->stable[g->weight[i]->id];
    for (Node *n = g->first; n; n = n->next) {
        bool fixed = n->nout > 0 && !(n->op->flags & (OPF_RANDOM | OPF_EFFECT | OPF_DATA_SIZE));
        Folding f = {fold, wanted, true};
        node_each_operand(n, folded_operand, &f);
        fixed = fixed && f.all;
        for (int i = 0; fixed && i < n->op->schema->nparams; i++) {
            const Arg *x = &n->arg[i];
            if (x->kind == ARG_EXPR) fixed &= x->e->symbols == 0;
            for (int k = 0; x->kind == ARG_EXPRS && k < x->n; k++) fixed &= x->es[k]->symbols == 0;
        }
        for (int k = 0; fixed && k < n->nout; k++) fold[n->out[k]->id] = 1;
        if (!fixed) node_each_operand(n, want_folded, &f);
    }
    for (int i = 0; i < g->noutput; i++)
        if (fold[g->output[i].value->id]) wanted[g->output[i].value->id] = 1;
    for (int i = 0; i < g->next_id; i++) any |= wanted[i] && !s->given[i];
    binding_clear(&s->binding);
    PlanInput in = {.graph = g,
                    .wanted = wanted,
                    .given = (const Tensor *const *)s->given,
                    .stable = s->stable,
                    .memory_limit = s->env.memory_limit};
    Plan *p = any ? plan_build(&in, &s->binding, err) : NULL;
    bool ok = !any || p;
    ok = ok && (!p || session_ready(s, p, err));
    for (const Node *n = g->first; ok && p && n; n = n->next)
        for (int k = 0; ok && k < n->nout; k++) ok = keep_folded(s, p, n->out[k], wanted, err);
    s->current = NULL;
    if (p) plan_free(p);
    mem_free(fold);
    mem_free(wanted);
    return ok;
}

/* turns > 0: as many as loops may take, where `env` does not say. */
static Session *create(const RunEnv *env, int64_t turns, const Session *lender, const Graph *g, const Fusion *fusion,
                       Err *err)
{
    Session *s = mem_zeroed(1, sizeof *s);
    size_t n = (size_t)g->next_id + 1, m = (size_t)g->ninput + (size_t)g->noutput + 1;
    if (!s) {
        oom(err);
        return NULL;
    }
    s->g = g;
    s->fusion = fusion;
    s->env = *env;
    if (s->env.threads < 1) s->env.threads = 1;
    s->turns = turns;
    if (turns > 0) s->env.turns = &s->turns;
    s->portable = lender ? lender->portable : cpu_is_portable();
    s->env.rng = &s->rng;
    rng_seed(&s->rng, 0);
    s->input = mem_zeroed(m, sizeof *s->input);
    s->input_set = mem_zeroed(m, sizeof *s->input_set);
    s->sizes = mem_zeroed(m, sizeof *s->sizes);
    s->own_input = mem_zeroed(m, sizeof *s->own_input);
    s->input_data = mem_zeroed(m, sizeof *s->input_data);
    s->placed_input = mem_zeroed(m, sizeof *s->placed_input);
    s->output_data = mem_zeroed(m, sizeof *s->output_data);
    s->elsewhere = mem_zeroed(m, sizeof *s->elsewhere);
    s->scalar = mem_zeroed((size_t)g->nscalar_input + 1, sizeof *s->scalar);
    s->given = mem_zeroed(n, sizeof *s->given);
    s->stable = mem_zeroed(n, 1);
    bool ok = s->input && s->input_set && s->sizes && s->own_input && s->input_data && s->placed_input &&
              s->output_data && s->elsewhere && s->scalar && s->given && s->stable;
    if (!ok) oom(err);
    for (int i = 0; ok && i < g->ninput; i++) s->sizes[i] = &s->input[i];
    ok = ok && binding_init(&s->binding, g->ex, err) && stages_make(s, err);
    SessionStay before = session_enter(s);
    ok = ok && gemm_cache_create(&s->env, err) && init_weights(s, lender, err) && fold_weights(s, err);
    session_leave(before);
    if (ok) return s;
    session_free(s);
    return NULL;
}

Session *session_create(const Graph *g, const Fusion *fusion, int threads, size_t memory_limit, Err *err)
{
    return session_create_bounded(g, fusion, threads, memory_limit, 0, err);
}

Session *session_create_bounded(const Graph *g, const Fusion *fusion, int threads, size_t memory_limit, int64_t turns,
                                Err *err)
{
    RunEnv env = {.threads = threads, .executor = team_executor(), .memory_limit = memory_limit};
    return create(&env, turns, NULL, g, fusion, err);
}

Session *session_create_body(const RunEnv *around, const Graph *g, const Fusion *fusion, Err *err)
{
    RunEnv env = {.threads = around->threads,
                  .executor = team_executor(),
                  .memory_limit = around->memory_limit,
                  .turns = around->turns};
    return create(&env, 0, NULL, g, fusion, err);
}

Session *session_create_beside(const Session *lender, const Graph *g, const Fusion *fusion, int threads,
                               size_t memory_limit, Err *err)
{
    RunEnv env = {.threads = threads, .executor = lender->env.executor, .memory_limit = memory_limit};
    return create(&env, 0, lender, g, fusion, err);
}

void session_free(Session *s)
{
    if (!s) return;
    session_forget_plans(s);
    keeping_free(s);
    feeding_free(s);
    profile_free(&s->profile);
    for (int i = 0; i < s->nowned; i++) mem_free(s->owned[i]);
    for (int i = 0; s->own_input && i < s->g->ninput; i++) mem_free(s->own_input[i].data);
    for (int i = 0; s->early && i < s->g->nmutation; i++) mem_free(s->early[i].data);
    for (int i = 0; s->kept && i < s->g->noutput; i++) mem_free(s->kept[i].room.data);
    stages_free(s);
    binding_free(&s->binding);
    gemm_cache_free(&s->env);
    mem_free(s->env.overflow);
    pages_free(&s->arena);
    mem_free(s->owned);
    mem_free(s->state);
    mem_free(s->changing);
    mem_free(s->early);
    mem_free(s->kept);
    mem_free(s->stable);
    mem_free(s->given);
    mem_free(s->module);
    mem_free(s->scalar);
    mem_free(s->placed_input);
    mem_free(s->output_data);
    mem_free(s->elsewhere);
    mem_free(s->input_data);
    mem_free(s->own_input);
    mem_free(s->sizes);
    mem_free(s->input_set);
    mem_free(s->input);
    mem_free(s);
}

bool session_set_input(Session *s, int i, const Tensor *t, Err *err)
{
    const Value *v = s->g->input[i];
    if (t->dtype != v->dtype)
        return fail(err, E_USAGE, "input '%s': dtype is %s, expected %s", v->name, dtype_name(t->dtype),
                    dtype_name(v->dtype));
    if (t->rank != v->rank) return fail(err, E_USAGE, "input '%s': rank is %d, expected %d", v->name, t->rank, v->rank);
    for (int k = 0; k < t->rank; k++)
        if (t->shape[k] < 0)
            return fail(err, E_USAGE, "input '%s': axis %d is %lld", v->name, k, (long long)t->shape[k]);
    s->input[i] = *t;
    s->input_set[i] = true;
    if (s->keep) s->keep->fresh[i] = true;
    if (s->keep && s->keep->input[i]) s->keep->use = NULL;
    feeding_was_set(s, i);
    return true;
}

void session_clear_inputs(Session *s)
{
    for (int i = 0; i < s->g->ninput; i++)
        s->input_set[i] &= feeding_holds(s, i) || (s->keep && s->keep->input[i] && !s->keep->fresh[i]);
    for (int i = 0; i < s->g->nscalar_input; i++) s->scalar[i] = 0;
}

bool session_set_scalar(Session *s, int i, int64_t value)
{
    if (i < 0 || i >= s->g->nscalar_input) return false;
    s->scalar[i] = value;
    return true;
}

const Tensor *session_input(const Session *s, int i)
{
    return i >= 0 && i < s->g->ninput && s->input_set[i] ? &s->input[i] : NULL;
}

const Graph *session_graph(const Session *s) { return s->g; }

const Tensor *session_constant(const Session *s, const Value *v)
{
    return v->kind == V_NODE && s->stable[v->id] ? s->given[v->id] : NULL;
}

struct GemmPool *session_products(const Session *s) { return s->env.gemm; }

void *session_own_input(Session *s, int i, size_t bytes, Err *err)
{
    size_t limit = s->env.memory_limit, others = limit ? session_held(s) - s->own_input[i].size : 0;
    if (limit && (others > limit || bytes > limit - others)) {
        fail(err, E_LIMIT, "input '%s': %zu bytes beside %zu of other inputs, the limit is %zu", s->g->input[i]->name,
             bytes, others, limit);
        return NULL;
    }
    void *p = session_room(&s->own_input[i], bytes);
    if (!p) fail(err, E_LIMIT, "input '%s': out of memory", s->g->input[i]->name);
    return p;
}

/* Addresses for this run: the caller's memory where it is contiguous and aligned for its dtype, else a copy. */
static bool take_inputs(Session *s, Err *err)
{
    for (int i = 0; i < s->g->ninput; i++) {
        Tensor *t = &s->input[i];
        if (!s->input_set[i] && !feeding_start_empty(s, i))
            return fail(err, E_USAGE, "input '%s' is not given", s->g->input[i]->name);
        s->input_data[i] = t->data;
        bool kept = s->keep && s->keep->input[i],
             direct = tensor_contiguous(t) && (uintptr_t)t->data % dtype_size(t->dtype) == 0;
        if (kept && s->keep->fresh[i]) {
            s->keep->stale = true;
            direct &= t->data == s->own_input[i].data;
        }
        if (direct || feeding_grows(s, i)) continue;
        Tensor copy = tensor_of(t->dtype, t->rank, t->shape, NULL);
        size_t bytes;
        TRY(shape_bytes(t->dtype, t->rank, t->shape, &bytes, err) || within(err, "input '%s'", s->g->input[i]->name));
        if (t->data == s->own_input[i].data && t->data)
            return fail(err, E_USAGE, "input '%s' overlaps the session's memory", s->g->input[i]->name);
        copy.data = session_own_input(s, i, bytes, err);
        TRY(copy.data);
        tensor_copy(&copy, t);
        s->input_data[i] = copy.data;
        if (kept) *t = copy;
    }
    for (int i = 0; s->keep && i < s->g->ninput; i++) s->keep->fresh[i] = false;
    return true;
}

/* Every symbol of s->binding, from the inputs' sizes and then from data; in between, what kept inputs give. */
static bool bind(Session *s, Err *err)
{
    binding_clear(&s->binding);
    TRY(solve_sizes(s->g, s->sizes, s->scalar, &s->binding, err) && feeding_reserve(s, err));
    for (int i = 0; s->feeding && i < s->g->ninput; i++)
        if (feeding_grows(s, i)) s->input_data[i] = s->input[i].data;
    TRY(!s->keep || s->on_node || keeping_run(s, err));
    return !s->nstages || (stages_run(s, err) && check_requires(s->g, &s->binding, true, err));
}

static bool overlap(const Tensor *a, const Tensor *b)
{
    uintptr_t from = (uintptr_t)b->data, at = (uintptr_t)a->data;
    return at >= from && at < from + tensor_bytes(b);
}

/* Does t look at the memory of a written buffer, or of a weight that changes between runs? */
static bool looks_at_state(const Session *s, const Tensor *t)
{
    for (int i = 0; t && i < s->g->nmutation; i++)
        if (overlap(t, &s->state[i])) return true;
    for (int i = 0; t && i < s->g->nweight; i++)
        if (s->changing[i].data && overlap(t, &s->changing[i])) return true;
    return false;
}

/* The caller's memory for outputs. */
static bool take_outputs(Session *s, const Plan *p, Err *err)
{
    for (int i = 0; i < s->g->noutput; i++) {
        if (!s->elsewhere[i]) continue;
        const Value *v = s->g->output[i].value;
        const Tensor *made = p->value[v->id];
        Tensor t = tensor_of(made->dtype, made->rank, made->shape, NULL);
        int at = session_output_place(s) + i;
        bool fed = feeding_apart(s, i);
        s->output_data[i] = fed ? feeding_memory(s, i, tensor_bytes(&t)) : s->memory(s->memory_user, i, &t);
        if (!s->output_data[i])
            return fail(err, E_LIMIT,
                        fed ? "output %d: no memory for its %zu bytes"
                            : "output %d: no memory was given for its %zu bytes",
                        i, tensor_bytes(&t));
        if ((uintptr_t)s->output_data[i] % ALIGN)
            return fail(err, E_USAGE, "output %d: its memory is not aligned to %d bytes", i, ALIGN);
        s->input_data[at] = plan_lies_at(p, v, at) ? s->output_data[i] : NULL;
    }
    return true;
}

static bool keep_outputs(Session *s, Err *err)
{
    for (int i = 0; i < s->g->noutput; i++) {
        const Value *v = s->g->output[i].value;
        const Tensor *t = s->current->value[v->id];
        Kept *k = &s->kept[i];
        k->used = s->elsewhere[i] ? !plan_lies_at(s->current, v, session_output_place(s) + i)
                                  : s->current->place[v->id].home == HOME_GIVEN && looks_at_state(s, t);
        if (!k->used) continue;
        void *p = s->elsewhere[i] ? s->output_data[i] : session_room(&k->room, tensor_bytes(t));
        if (!p) return oom(err) || within(err, "output '%s'", s->g->output[i].name);
        k->copy = tensor_of(t->dtype, t->rank, t->shape, p);
        tensor_copy(&k->copy, t);
    }
    return true;
}

/* New values that look at buffers (two that change places) are all read before the first is written. */
static bool write_buffers(Session *s, Err *err)
{
    for (int i = 0; i < s->g->nmutation; i++) {
        const Tensor *v = s->current->value[s->g->mutation[i].value->id];
        if (!v || !looks_at_state(s, v)) continue;
        Tensor copy = tensor_of(v->dtype, v->rank, v->shape, session_room(&s->early[i], tensor_bytes(v)));
        if (!copy.data) return oom(err);
        tensor_copy(&copy, v);
    }
    for (int i = 0; i < s->g->nmutation; i++) {
        const Tensor *v = s->current->value[s->g->mutation[i].value->id];
        if (!v) continue;
        Tensor copy = tensor_of(v->dtype, v->rank, v->shape, s->early[i].data);
        tensor_copy(&s->state[i], looks_at_state(s, v) ? &copy : v);
    }
    return true;
}

static bool run_wanted(Session *s, Err *err)
{
    profile_begin(&s->profile);
    s->work = s->done = 0;
    TRY(take_inputs(s, err));
    profile_part(&s->profile, PART_INPUTS);
    TRY(bind(s, err));
    profile_part(&s->profile, PART_SIZES);
    Cached *k = session_plan(s, &s->binding, WHOLE, NULL, err);
    TRY(k && take_outputs(s, k->plan, err) && session_ready(s, k->plan, err));
    profile_part(&s->profile, PART_PLAN);
    s->done = 0;
    for (int i = 0; s->on_progress && i < k->plan->nsteps; i++)
        s->work += k->plan->step[i].constant ? 0 : cost(&k->plan->step[i]);
    TRY(s->on_node ? run_observed(s, k->plan, err) : session_run_steps(s, k->plan, 0, false, err));
    TRY(plan_settle(k->plan, err) && keep_outputs(s, err) && (!s->g->nmutation || s->hold || write_buffers(s, err)));
    feeding_pass(s);
    profile_part(&s->profile, PART_BUFFERS);
    profile_end(&s->profile);
    return true;
}

bool session_run(Session *s, Err *err)
{
    SessionStay before = session_enter(s);
    if (team_heed(&s->stop)) atomic_store(&s->stop.seen, false);
    Rng drawn = s->rng;
    s->env.recount = false;
    bool ok = run_wanted(s, err);
    if (!ok && s->env.recount && !s->parts.n) {
        *err = (Err){0};
        s->rng = drawn;
        ok = stages_once(s, err) && run_wanted(s, err);
    }
    if (!ok && team_stopped()) s->current = NULL;
    session_leave(before);
    return ok;
}

Tensor *session_weight(const Session *s, const char *name)
{
    const Value *v = graph_find_value(s->g, name);
    bool own = v && v->kind == V_WEIGHT && !strcmp(v->name, name) && graph_writes(s->g, v);
    return own ? s->given[v->id] : NULL;
}

void session_hold(Session *s, bool on) { s->hold = on; }
bool session_commit(Session *s, Err *err) { return !s->current || write_buffers(s, err); }
void session_cancel(Session *s, bool on) { atomic_store(&s->stop.asked, on); }
Rng *session_generator(Session *s) { return &s->rng; }
int session_threads(const Session *s) { return s->env.threads; }

SessionStay session_enter(const Session *s)
{
    return (SessionStay){team_enter(s->env.threads, s->env.executor), cpu_portable(s->portable)};
}

void session_leave(SessionStay before)
{
    cpu_portable(before.portable);
    team_leave(before.team);
}

const Tensor *session_output(const Session *s, int i)
{
    if (!s->current || i < 0 || i >= s->g->noutput) return NULL;
    return s->kept[i].used ? &s->kept[i].copy : s->current->value[s->g->output[i].value->id];
}

void session_output_memory(Session *s, OutputMemory *f, void *user)
{
    if ((s->memory == NULL) != (f == NULL)) session_forget_plans(s); /* in which outputs are elsewhere */
    s->memory = f;
    s->memory_user = user;
    session_sort_outputs(s);
}

void session_sort_outputs(Session *s)
{
    for (int i = 0; i < s->g->noutput; i++)
        s->elsewhere[i] = feeding_output(s, i) ? feeding_apart(s, i) : s->memory != NULL;
}

bool session_is_fed(const Session *s, int output) { return feeding_output(s, output); }
