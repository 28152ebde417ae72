/* Sessions. Contract in session.h. */
#include "run/session.h"
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "run/gemm.h"
#include "run/rng.h"
#include "run/run_table.h"
#include "run/session_impl.h"
#include "shape/solve.h"

enum { MAX_PLANS = 64, ALIGN = 64 };

static RunFn *const run_table[OP_COUNT] = {
#define OP(id, name, schema, lower, shape, view, run, flags) [OP_##id] = run_##run,
#include "ir/ops.def"
#undef OP
};

/* A plan and what it was made for. */
typedef struct Cached {
    Plan *plan;
    int stage; /* -1: the whole graph; else the symbol that this partial plan finds */
    long used;
} Cached;

/* An output that is a view of a buffer as it was before the run: a copy, owned. */
typedef struct Kept {
    Tensor copy;
    size_t size;
    bool used; /* in the last run */
} Kept;

struct Session {
    const Graph *g;
    const Fusion *fusion;
    RunEnv env;
    Rng rng;
    Tensor *input;          /* what the caller set */
    bool *input_set;
    void **own_input;       /* contiguous copies, and random inputs */
    size_t *own_size;
    void **input_data;      /* address per input for the current run */
    void **placed_input;    /* the addresses that the current plan was placed at */
    int64_t *scalar;
    Tensor **given;         /* by value id: weights, session constants, buffers */
    unsigned char *stable;
    void **owned;           /* memory of session constants and buffers */
    int nowned, cap_owned;
    Tensor *state;          /* per mutation: the buffer's value, owned */
    Kept *kept;             /* per output */
    unsigned char *arena;
    size_t arena_size;
    Cached cached[MAX_PLANS];
    int ncached;
    long clock;
    Plan *current;
    int plans_made;
    double plan_ms;
    bool profile;
    NodeFn *on_node;
    void *on_node_user;
    pid_t pid;
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void *aligned(size_t n) { return aligned_alloc(ALIGN, (n + ALIGN) / ALIGN * ALIGN); }

static bool no_memory(Err *err) { return fail(err, E_LIMIT, "out of memory"); }

static void *own(Session *s, size_t n)
{
    if (s->nowned == s->cap_owned) {
        int cap = s->cap_owned ? s->cap_owned * 2 : 16;
        void **p = realloc(s->owned, (size_t)cap * sizeof *p);
        if (!p) return NULL;
        s->owned = p;
        s->cap_owned = cap;
    }
    void *p = aligned(n);
    if (p) s->owned[s->nowned++] = p;
    return p;
}

/* ------------------------------------------------------------------ running a plan's steps */

static void end_step(RunEnv *e)
{
    e->scratch_used = 0;
    for (int i = 0; i < e->noverflow; i++) free(e->overflow[i]);
    e->noverflow = 0;
}

static bool grow_scratch(RunEnv *e, Err *err)
{
    if (e->scratch_peak <= e->scratch_size) return true;
    free(e->scratch);
    e->scratch = aligned(e->scratch_peak);
    e->scratch_size = e->scratch ? e->scratch_peak : 0;
    return e->scratch || no_memory(err);
}

static bool run_step(Session *s, Step *step, Err *err)
{
    step->call.env = &s->env;
    double start = s->profile ? now_ms() : 0;
    bool ok = run_table[step->call.node->op->id](&step->call, err);
    end_step(&s->env);
    if (s->profile) {
        step->ms += now_ms() - start;
        step->calls++;
    }
    return ok || within(err, "%s", step->call.node->op->name);
}

static bool run_steps(Session *s, Plan *p, bool constants, Err *err)
{
    for (int i = 0; i < p->nsteps; i++)
        if (p->step[i].constant == constants) TRY(run_step(s, &p->step[i], err));
    return true;
}

/* The same in node order, telling the observer of every node, views included. */
static bool run_observed(Session *s, Plan *p, Err *err)
{
    for (int i = 0; i < p->nnodes; i++) {
        const Node *n = p->node[i].node;
        Tensor *out[64];
        if (p->node[i].step >= 0 && !p->step[p->node[i].step].constant) TRY(run_step(s, &p->step[p->node[i].step], err));
        for (int k = 0; k < n->nout && k < 64; k++) out[k] = p->value[n->out[k]->id];
        if (!s->on_node(s->on_node_user, n, out)) return fail(err, E_MISMATCH, "stopped at node '%s'", n->name);
    }
    return true;
}

/* Constants of a plan: each in memory of its own, those that only other constants needed are freed again. */
static bool compute_constants(Session *s, Plan *p, Err *err)
{
    if (p->constants_done) return true;
    for (int i = 0; i < p->nconst; i++)
        if (!(p->const_data[i] = aligned(p->const_size[i]))) return no_memory(err);
    plan_place(p, s->arena, s->input_data);
    TRY(run_steps(s, p, true, err));
    for (int i = 0; i < p->nconst && !s->on_node; i++)
        if (!p->const_kept[i]) {
            free(p->const_data[i]);
            p->const_data[i] = NULL;
        }
    p->constants_done = true;
    return true;
}

static bool ready(Session *s, Plan *p, Err *err)
{
    if (p->arena_bytes > s->arena_size) {
        free(s->arena);
        s->arena = aligned(p->arena_bytes);
        s->arena_size = s->arena ? p->arena_bytes : 0;
        if (!s->arena) return fail(err, E_LIMIT, "out of memory: %zu bytes of activations", p->arena_bytes);
    }
    TRY(grow_scratch(&s->env, err));
    TRY(compute_constants(s, p, err));
    size_t bytes = (size_t)s->g->ninput * sizeof *s->input_data;
    if (s->current != p || p->base != s->arena || (bytes && memcmp(s->placed_input, s->input_data, bytes))) {
        plan_place(p, s->arena, s->input_data);
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

static Plan *find_plan(Session *s, const Binding *b, int stage, const unsigned char *wanted, Err *err)
{
    int oldest = 0;
    for (int i = 0; i < s->ncached; i++) {
        if (s->cached[i].stage == stage && same_binding(&s->cached[i].plan->binding, b)) {
            s->cached[i].used = ++s->clock;
            return s->cached[i].plan;
        }
        if (s->cached[i].used < s->cached[oldest].used) oldest = i;
    }
    double start = now_ms();
    PlanInput in = {.graph = s->g, .fusion = s->on_node || wanted ? NULL : s->fusion, .wanted = wanted, .given = (const Tensor *const *)s->given,
                    .stable = s->stable, .memory_limit = s->env.memory_limit};
    Plan *p = plan_build(&in, b, err);
    if (!p) return NULL;
    s->plan_ms = now_ms() - start;
    s->plans_made++;
    int at = s->ncached < MAX_PLANS ? s->ncached++ : oldest;
    if (s->cached[at].plan == s->current && s->cached[at].plan) s->current = NULL;
    plan_free(s->cached[at].plan);
    s->cached[at] = (Cached){p, stage, ++s->clock};
    return p;
}

/* ------------------------------------------------------------------ sizes that come out of data */

static int position(const Graph *g, const Value *v)
{
    int k = 0;
    for (const Node *n = g->first; n; n = n->next, k++)
        if (n == v->def) return k;
    return -1;
}

/* The unbound symbol whose source comes first in the graph; -1 when all are bound. */
static int next_symbol(const Session *s, const Binding *b)
{
    int best = -1, best_at = 0;
    for (int i = 0; i < expr_symbol_count(s->g->ex); i++) {
        const Symbol *sym = expr_symbol(s->g->ex, i);
        if (b->bound[i] || !sym->value || (sym->source != SYM_ITEM && sym->source != SYM_SIZE)) continue;
        int at = position(s->g, sym->value);
        if (best < 0 || at < best_at) {
            best = i;
            best_at = at;
        }
    }
    return best;
}

static void want_operand(void *user, Value **slot) { ((unsigned char *)user)[(*slot)->id] = 1; }

/* Runs what `symbol` needs and binds it; for a size, the node itself runs without memory for its result and only counts. */
static bool find_symbol(Session *s, Binding *b, int symbol, Err *err)
{
    const Symbol *sym = expr_symbol(s->g->ex, symbol);
    Value *v = sym->value;
    unsigned char *wanted = calloc((size_t)s->g->next_id + 1, 1);
    if (!wanted) return no_memory(err);
    bool item = sym->source == SYM_ITEM;
    if (item) wanted[v->id] = 1;
    else node_each_operand(v->def, want_operand, wanted);
    Plan *p = find_plan(s, b, symbol, wanted, err);
    Rng before = s->rng; /* random ops draw the same again when the whole graph runs */
    free(wanted);
    if (!p || !ready(s, p, err) || !run_steps(s, p, false, err)) return within(err, "size '%s', which comes out of data", sym->name);
    s->rng = before;
    if (item) {
        const Tensor *t = p->value[v->id];
        binding_set(b, symbol, tensor_get_i64(t, 0));
    } else {
        Arena *a = arena_create(0);
        Call c = {0};
        Tensor *out = a ? arena_array(a, Tensor, v->def->nout + 1) : NULL;
        bool ok = out || no_memory(err);
        ok = ok && plan_call(a, s->g, v->def, p->value, b, &c, err);
        for (int k = 0; ok && k < c.nout; k++) {
            out[k].dtype = v->def->out[k]->dtype;
            out[k].rank = v->def->out[k]->rank;
            c.out[k] = &out[k];
        }
        c.env = &s->env;
        ok = ok && run_table[v->def->op->id](&c, err);
        end_step(&s->env);
        if (c.state_free) c.state_free(c.state);
        for (int i = 0; ok && i < expr_symbol_count(s->g->ex); i++) {
            const Symbol *o = expr_symbol(s->g->ex, i);
            if (o->source == SYM_SIZE && o->value && o->value->def == v->def) binding_set(b, i, out[o->value->out].shape[o->dim]);
        }
        if (ok && !b->bound[symbol]) binding_set(b, symbol, out[v->out].shape[sym->dim]);
        arena_destroy(a);
        TRY(ok);
    }
    if (b->value[symbol] < sym->lo || b->value[symbol] > sym->hi)
        return fail(err, E_USAGE, "value '%s' gives %s = %lld, allowed is %lld to %lld", v->name, sym->name, (long long)b->value[symbol],
                    (long long)sym->lo, (long long)sym->hi);
    return true;
}

/* ------------------------------------------------------------------ session */

/* Weights that no node writes are given as they are; a written buffer starts as a copy that the session owns. */
static bool init_weights(Session *s, Err *err)
{
    for (int i = 0; i < s->g->nweight; i++) {
        Value *w = s->g->weight[i];
        s->given[w->id] = (Tensor *)(uintptr_t)w->data;
        s->stable[w->id] = 1;
    }
    s->state = calloc((size_t)s->g->nmutation + 1, sizeof *s->state);
    s->kept = calloc((size_t)s->g->noutput + 1, sizeof *s->kept);
    if (!s->state || !s->kept) return no_memory(err);
    for (int i = 0; i < s->g->nmutation; i++) {
        Value *w = s->g->mutation[i].target;
        Tensor *t = &s->state[i];
        *t = tensor_of(w->data->dtype, w->data->rank, w->data->shape, NULL);
        t->data = own(s, tensor_bytes(t));
        if (!t->data) return no_memory(err);
        s->given[w->id] = t;
        s->stable[w->id] = 0;
    }
    session_reset(s);
    return true;
}

void session_seed(Session *s, uint64_t seed) { rng_seed(&s->rng, seed); }

void session_reset(Session *s)
{
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
    if (!mine) return no_memory(err);
    *mine = *t;
    if (p->place[v->id].home != HOME_GIVEN) {
        *mine = tensor_of(t->dtype, t->rank, t->shape, NULL);
        mine->data = own(s, tensor_bytes(t));
        if (!mine->data) return no_memory(err);
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
    unsigned char *fold = calloc((size_t)g->next_id + 1, 1), *wanted = calloc((size_t)g->next_id + 1, 1);
    if (!fold || !wanted) {
        free(fold);
        free(wanted);
        return no_memory(err);
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
    Binding none;
    bool ok = binding_init(&none, g->ex, err);
    PlanInput in = {.graph = g, .wanted = wanted, .given = (const Tensor *const *)s->given, .stable = s->stable,
                    .memory_limit = s->env.memory_limit};
    Plan *p = ok && any ? plan_build(&in, &none, err) : NULL;
    ok = ok && (!any || p);
    ok = ok && (!p || ready(s, p, err));
    for (const Node *n = g->first; ok && p && n; n = n->next)
        for (int k = 0; ok && k < n->nout; k++) ok = keep_folded(s, p, n->out[k], wanted, err);
    s->current = NULL;
    if (p) plan_free(p);
    binding_free(&none);
    free(fold);
    free(wanted);
    return ok;
}

Session *session_create(const Graph *g, const Fusion *fusion, int threads, size_t memory_limit, Err *err)
{
    Session *s = calloc(1, sizeof *s);
    size_t n = (size_t)g->next_id + 1, m = (size_t)g->ninput + 1;
    if (!s) {
        no_memory(err);
        return NULL;
    }
    s->g = g;
    s->fusion = fusion;
    s->env.threads = threads > 0 ? threads : 1;
    s->env.memory_limit = memory_limit;
    s->env.rng = &s->rng;
    rng_seed(&s->rng, 0);
    s->pid = getpid();
    s->input = calloc(m, sizeof *s->input);
    s->input_set = calloc(m, sizeof *s->input_set);
    s->own_input = calloc(m, sizeof *s->own_input);
    s->own_size = calloc(m, sizeof *s->own_size);
    s->input_data = calloc(m, sizeof *s->input_data);
    s->placed_input = calloc(m, sizeof *s->placed_input);
    s->scalar = calloc((size_t)g->nscalar_input + 1, sizeof *s->scalar);
    s->given = calloc(n, sizeof *s->given);
    s->stable = calloc(n, 1);
    bool ok = s->input && s->input_set && s->own_input && s->own_size && s->input_data && s->placed_input && s->scalar && s->given && s->stable;
    if (!ok) no_memory(err);
    ok = ok && gemm_cache_create(&s->env, err) && init_weights(s, err) && fold_weights(s, err);
    if (ok) return s;
    session_free(s);
    return NULL;
}

void session_free(Session *s)
{
    if (!s) return;
    for (int i = 0; i < s->ncached; i++) plan_free(s->cached[i].plan);
    for (int i = 0; i < s->nowned; i++) free(s->owned[i]);
    for (int i = 0; s->own_input && i < s->g->ninput; i++) free(s->own_input[i]);
    gemm_cache_free(&s->env);
    end_step(&s->env);
    free(s->env.overflow);
    free(s->env.scratch);
    free(s->arena);
    free(s->owned);
    free(s->state);
    free(s->kept);
    free(s->stable);
    free(s->given);
    free(s->scalar);
    free(s->placed_input);
    free(s->input_data);
    free(s->own_size);
    free(s->own_input);
    free(s->input_set);
    free(s->input);
    free(s);
}

bool session_set_input(Session *s, int i, const Tensor *t, Err *err)
{
    const Value *v = s->g->input[i];
    if (t->dtype != v->dtype)
        return fail(err, E_USAGE, "input '%s': dtype is %s, expected %s", v->name, dtype_name(t->dtype), dtype_name(v->dtype));
    if (t->rank != v->rank) return fail(err, E_USAGE, "input '%s': rank is %d, expected %d", v->name, t->rank, v->rank);
    for (int k = 0; k < t->rank; k++)
        if (t->shape[k] < 0) return fail(err, E_USAGE, "input '%s': axis %d is %lld", v->name, k, (long long)t->shape[k]);
    s->input[i] = *t;
    s->input_set[i] = true;
    return true;
}

bool session_set_scalar(Session *s, int i, int64_t value)
{
    if (i < 0 || i >= s->g->nscalar_input) return false;
    s->scalar[i] = value;
    return true;
}

const Tensor *session_input(const Session *s, int i) { return i >= 0 && i < s->g->ninput && s->input_set[i] ? &s->input[i] : NULL; }

const Graph *session_graph(const Session *s) { return s->g; }

void *session_own_input(Session *s, int i, size_t bytes)
{
    if (s->own_size[i] < bytes || !s->own_input[i]) {
        free(s->own_input[i]);
        s->own_input[i] = aligned(bytes);
        s->own_size[i] = s->own_input[i] ? bytes : 0;
    }
    return s->own_input[i];
}

/* Addresses for this run: the caller's memory where it is contiguous and aligned for its dtype, else a copy. */
static bool take_inputs(Session *s, Err *err)
{
    for (int i = 0; i < s->g->ninput; i++) {
        Tensor *t = &s->input[i];
        if (!s->input_set[i]) return fail(err, E_USAGE, "input '%s' is not given", s->g->input[i]->name);
        s->input_data[i] = t->data;
        bool direct = tensor_contiguous(t) && (uintptr_t)t->data % dtype_size(t->dtype) == 0;
        if (direct) continue;
        Tensor copy = tensor_of(t->dtype, t->rank, t->shape, NULL);
        size_t bytes;
        TRY(shape_bytes(t->dtype, t->rank, t->shape, &bytes, err) || within(err, "input '%s'", s->g->input[i]->name));
        if (t->data == s->own_input[i] && t->data) return fail(err, E_USAGE, "input '%s' overlaps the session's memory", s->g->input[i]->name);
        copy.data = session_own_input(s, i, bytes);
        if (!copy.data) return no_memory(err);
        tensor_copy(&copy, t);
        s->input_data[i] = copy.data;
    }
    return true;
}

static bool bind(Session *s, Binding *b, Err *err)
{
    const Tensor **in = calloc((size_t)s->g->ninput + 1, sizeof *in);
    if (!in) return no_memory(err);
    for (int i = 0; i < s->g->ninput; i++) in[i] = &s->input[i];
    bool ok = solve_sizes(s->g, in, s->scalar, b, err);
    free(in);
    TRY(ok);
    int symbol;
    bool data = false;
    while ((symbol = next_symbol(s, b)) >= 0) {
        TRY(find_symbol(s, b, symbol, err));
        data = true;
    }
    return !data || check_requires(s->g, b, true, err);
}

/* Does t look at the memory of a written buffer? */
static bool looks_at_state(const Session *s, const Tensor *t)
{
    for (int i = 0; t && i < s->g->nmutation; i++) {
        uintptr_t from = (uintptr_t)s->state[i].data, at = (uintptr_t)t->data;
        if (at >= from && at < from + tensor_bytes(&s->state[i])) return true;
    }
    return false;
}

static bool keep_outputs(Session *s, Err *err)
{
    for (int i = 0; i < s->g->noutput; i++) {
        const Tensor *t = s->current->value[s->g->output[i].value->id];
        Kept *k = &s->kept[i];
        k->used = looks_at_state(s, t);
        if (!k->used) continue;
        size_t n = tensor_bytes(t);
        void *p = k->copy.data && n <= k->size ? k->copy.data : own(s, n);
        if (!p) return no_memory(err);
        if (p != k->copy.data) k->size = n;
        k->copy = tensor_of(t->dtype, t->rank, t->shape, p);
        tensor_copy(&k->copy, t);
    }
    return true;
}

/* New values that look at buffers (two that change places) are all read before the first is written. */
static bool write_buffers(Session *s, Err *err)
{
    void **early = calloc((size_t)s->g->nmutation + 1, sizeof *early);
    bool ok = early || no_memory(err);
    for (int i = 0; ok && i < s->g->nmutation; i++) {
        const Tensor *v = s->current->value[s->g->mutation[i].value->id];
        if (!v || !looks_at_state(s, v)) continue;
        early[i] = aligned(tensor_bytes(v));
        if (!early[i]) ok = no_memory(err);
        Tensor copy = tensor_of(v->dtype, v->rank, v->shape, early[i]);
        if (ok) tensor_copy(&copy, v);
    }
    for (int i = 0; ok && i < s->g->nmutation; i++) {
        const Tensor *v = s->current->value[s->g->mutation[i].value->id];
        if (!v) continue;
        Tensor copy = tensor_of(v->dtype, v->rank, v->shape, early[i]);
        tensor_copy(&s->state[i], early[i] ? &copy : v);
    }
    for (int i = 0; early && i < s->g->nmutation; i++) free(early[i]);
    free(early);
    return ok;
}

/* After fork() the child has none of OpenMP's threads: it runs with one instead of waiting for them. */
static void after_fork(Session *s)
{
    if (s->pid == getpid()) return;
    s->pid = getpid();
    s->env.threads = 1;
}

bool session_run(Session *s, Err *err)
{
    Binding b;
    after_fork(s);
    omp_set_num_threads(s->env.threads);
    TRY(take_inputs(s, err));
    TRY(binding_init(&b, s->g->ex, err));
    bool ok = bind(s, &b, err);
    Plan *p = ok ? find_plan(s, &b, -1, NULL, err) : NULL;
    binding_free(&b);
    ok = p && ready(s, p, err) && (s->on_node ? run_observed(s, p, err) : run_steps(s, p, false, err));
    return ok && (!s->g->nmutation || (keep_outputs(s, err) && write_buffers(s, err)));
}

const Tensor *session_output(const Session *s, int i)
{
    if (!s->current || i < 0 || i >= s->g->noutput) return NULL;
    return s->kept[i].used ? &s->kept[i].copy : s->current->value[s->g->output[i].value->id];
}

/* ------------------------------------------------------------------ looking in */

void session_stats(const Session *s, SessionStats *out)
{
    *out = (SessionStats){.plan_ms = s->plan_ms, .plans = s->plans_made, .packed_bytes = gemm_cache_bytes(&s->env),
                          .scratch_bytes = s->env.scratch_size, .threads = s->env.threads};
    const Plan *p = s->current;
    if (!p) return;
    out->arena_bytes = p->arena_bytes;
    out->bound_bytes = p->bound_bytes;
    for (int i = 0; i < p->nconst; i++)
        if (p->const_data[i]) out->constant_bytes += p->const_size[i];
    for (int i = 0; i < p->nsteps; i++) out->steps += !p->step[i].constant;
}

void session_profile(Session *s, bool on)
{
    s->profile = on;
    for (int i = 0; i < s->ncached; i++)
        for (int k = 0; k < s->cached[i].plan->nsteps; k++) {
            s->cached[i].plan->step[k].ms = 0;
            s->cached[i].plan->step[k].calls = 0;
        }
}

void session_each_step(const Session *s, void (*f)(void *user, const Node *n, const char *op, long calls, double ms, const Tensor *out), void *user)
{
    for (int i = 0; s->current && i < s->current->nsteps; i++) {
        const Step *step = &s->current->step[i];
        f(user, step->node, step->call.node->op->name, step->calls, step->ms, step->call.nout ? step->call.out[0] : NULL);
    }
}

void session_on_node(Session *s, NodeFn *f, void *user)
{
    if ((s->on_node == NULL) != (f == NULL)) { /* plans differ: without fusion, and with all constants kept */
        for (int i = 0; i < s->ncached; i++) {
            plan_free(s->cached[i].plan);
            s->cached[i].plan = NULL;
        }
        s->ncached = 0;
        s->current = NULL;
    }
    s->on_node = f;
    s->on_node_user = user;
}
