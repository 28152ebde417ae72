/* Data-dependent sizes: an item (a number read from a tensor), or how many nonzero gives. What a symbol needs is run
 * first, by a plan of just those nodes; the whole graph is planned when all symbols are known.
 *
 *     symbol u0 = item %n        the plan of %n runs, its number is u0
 *     symbol zuf0 = item %x      the same of a float
 *     symbol u1 = size %at 0     the operands of %at's node run, then the node itself without memory for its result:
 *                                it only counts
 *
 * Symbols that do not need each other are found by one plan, a stage. Random numbers are drawn in the order of the
 * graph: a stage that draws some draws those before them, too. Which nodes those are is found once a session; a run
 * whose sizes came before allocates nothing.
 *
 * More than MAX_STAGES stages, each of which would compute again what those before it did, and stages that once counted
 * other than the plan of the whole graph, which fuses nodes and rounds less, are the parts of one plan
 * that grows (plan/growing.h): every node is computed once, in the order of stages, and the plan of the whole graph is
 * given what they computed, so that it has but the other nodes. That plan computes all of them again where somebody
 * looks at every node, or where outputs become inputs.
 */
#include <stdlib.h>
#include <string.h>
#include "run/session_impl.h"
#include "base/mem.h"
#include "base/vec.h"
#include "shape/solve.h"

static bool from_data(const Symbol *s) { return s->value && symbol_out_of_data(s); }

/* Of values, by id: how many stages must have run before they can be computed, whether random numbers are below, the
 * place of their node. Of symbols: the stage that finds them. */
typedef struct Levels {
    const Graph *g;
    int *value, *symbol, *place, *first, *next; /* first, next: the symbols of a value */
    unsigned char *random;
    int drawn;      /* stages before the last node that draws */
    uint64_t known; /* Bloom mask of symbols out of data */
    int most;       /* of the operands that are looked at */
    bool any_random;
} Levels;

static void see_operand(void *user, Value **slot)
{
    Levels *l = user;
    if (l->value[(*slot)->id] > l->most) l->most = l->value[(*slot)->id];
    l->any_random |= l->random[(*slot)->id];
}

static void see_expr(Levels *l, const Expr *e)
{
    if (!e || !(e->symbols & l->known)) return;
    if (e->kind == EX_SYM && from_data(expr_symbol(l->g->ex, (int)e->i)) && l->symbol[e->i] + 1 > l->most)
        l->most = l->symbol[e->i] + 1;
    for (int i = 0; i < e->nargs; i++) see_expr(l, e->args[i]);
}

static void see_sizes(Levels *l, const Value *v)
{
    for (int i = 0; i < v->rank; i++) see_expr(l, v->dim[i]);
}

static void see_node(Levels *l, Node *n)
{
    l->most = 0;
    l->any_random = (n->op->flags & OPF_RANDOM) != 0;
    bool draws = l->any_random;
    node_each_operand(n, see_operand, l);
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *a = &n->arg[i];
        if (a->kind == ARG_EXPR) see_expr(l, a->e);
        for (int k = 0; a->kind == ARG_EXPRS && k < a->n; k++) see_expr(l, a->es[k]);
    }
    int found = l->most;
    for (int k = 0; k < n->nout; k++) /* of sizes: before there are results */
        for (int i = l->first[n->out[k]->id]; i; i = l->next[i - 1])
            if (expr_symbol(l->g->ex, i - 1)->source == SYM_SIZE) l->symbol[i - 1] = found;
    for (int k = 0; k < n->nout; k++) see_sizes(l, n->out[k]);
    if (draws && l->drawn > l->most) l->most = l->drawn;
    if (draws) l->drawn = l->most;
    for (int k = 0; k < n->nout; k++) {
        l->value[n->out[k]->id] = l->most;
        l->random[n->out[k]->id] = l->any_random;
        for (int i = l->first[n->out[k]->id]; i; i = l->next[i - 1])
            if (expr_symbol(l->g->ex, i - 1)->source == SYM_ITEM) l->symbol[i - 1] = l->most;
    }
}

static bool levels_make(Levels *l, const Graph *g)
{
    int n = expr_symbol_count(g->ex), k = 0;
    size_t values = (size_t)g->next_id + 1, symbols = (size_t)n + 1;
    *l = (Levels){.g = g,
                  .value = mem_zeroed(values, sizeof(int)),
                  .place = mem_zeroed(values, sizeof(int)),
                  .first = mem_zeroed(values, sizeof(int)),
                  .random = mem_zeroed(values, 1),
                  .symbol = mem_zeroed(symbols, sizeof(int)),
                  .next = mem_zeroed(symbols, sizeof(int))};
    if (!l->value || !l->place || !l->first || !l->random || !l->symbol || !l->next) return false;
    for (int i = 0; i < n; i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        if (!from_data(s)) continue;
        l->next[i] = l->first[s->value->id];
        l->first[s->value->id] = i + 1;
        l->known |= s->expr->symbols;
    }
    for (Node *node = g->first; node; node = node->next, k++) {
        for (int o = 0; o < node->nout; o++) l->place[node->out[o]->id] = k;
        see_node(l, node);
    }
    return true;
}

static void levels_free(Levels *l)
{
    mem_free(l->value);
    mem_free(l->place);
    mem_free(l->first);
    mem_free(l->random);
    mem_free(l->symbol);
    mem_free(l->next);
}

static void want_operand(void *user, Value **slot) { ((unsigned char *)user)[(*slot)->id] = 1; }

/* The random nodes before the last that the stage needs: none of them waits for a later stage. */
static void want_draws(const Levels *l, Stage *s, int level)
{
    int last = -1;
    for (int i = 0; i < s->n; i++) {
        const Value *v = expr_symbol(l->g->ex, s->symbol[i])->value;
        if (v->def && l->random[v->id] && l->place[v->id] > last) last = l->place[v->id];
    }
    for (const Node *n = l->g->first; n && last >= 0; n = n->next)
        if (n->nout && n->op->flags & OPF_RANDOM && l->place[n->out[0]->id] < last &&
            l->value[n->out[0]->id] <= level)
            s->wanted[n->out[0]->id] = 1;
}

static bool add(int **list, int *n, int i)
{
    int *grown = vec_grow(*list, *n, sizeof *grown);
    if (!grown) return false;
    *list = grown;
    grown[(*n)++] = i;
    return true;
}

/* Where the last symbol of each requirement is found. */
static bool add_requires(Session *s, Levels *l)
{
    for (int i = 0; i < s->g->nrequire; i++) {
        l->most = 0;
        see_expr(l, s->g->require[i].cond);
        Stage *stage = l->most ? &s->stage[l->most - 1] : NULL;
        if (stage && !add(&stage->require, &stage->nrequire, i)) return false;
    }
    return true;
}

/* The values that a symbol is found from. */
static void each_source(const Symbol *s, void (*f)(void *user, Value **slot), void *user)
{
    Value *v = s->value;
    if (s->source == SYM_ITEM || !v->def) f(user, &v);
    else node_each_operand(v->def, f, user);
}

/* What a stage of a plan of its own wants. */
static bool stage_want(const Levels *l, Stage *s, int level)
{
    s->wanted = mem_zeroed((size_t)l->g->next_id + 1, 1);
    if (!s->wanted) return false;
    for (int i = 0; i < s->n; i++) each_source(expr_symbol(l->g->ex, s->symbol[i]), want_operand, s->wanted);
    want_draws(l, s, level);
    return true;
}

typedef struct Reading {
    int *reader, stage;
    unsigned char *wanted;
} Reading;

static void read_operand(void *user, Value **slot)
{
    Reading *r = user;
    int id = (*slot)->id;
    r->wanted[id] = 1;
    if (r->reader[id] < r->stage) r->reader[id] = r->stage;
}

/* What all stages want, and the nodes that give it by stages. Nodes that no stage waits for are left out. */
static bool parts_make(Session *s, const Levels *l)
{
    const Graph *g = s->g;
    PlanParts *p = &s->parts;
    size_t values = (size_t)g->next_id + 1;
    p->node = mem_zeroed((size_t)g->nnodes + 1, sizeof *p->node);
    p->begin = mem_zeroed((size_t)s->nstages + 2, sizeof *p->begin);
    p->part = mem_zeroed(values, sizeof *p->part);
    p->reader = mem_zeroed(values, sizeof *p->reader);
    s->parts_wanted = mem_zeroed(values, 1);
    if (!p->node || !p->begin || !p->part || !p->reader || !s->parts_wanted) return false;
    p->n = s->nstages;
    memcpy(p->part, l->value, values * sizeof *p->part);
    Reading r = {.reader = p->reader, .wanted = s->parts_wanted};
    for (r.stage = 0; r.stage < s->nstages; r.stage++)
        for (int i = 0; i < s->stage[r.stage].n; i++)
            each_source(expr_symbol(g->ex, s->stage[r.stage].symbol[i]), read_operand, &r);
    for (const Node *n = g->first; n; n = n->next)
        if (n->nout && l->value[n->out[0]->id] < p->n) p->begin[l->value[n->out[0]->id] + 2]++;
    for (int i = 2; i <= p->n + 1; i++) p->begin[i] += p->begin[i - 1];
    for (const Node *n = g->first; n; n = n->next)
        if (n->nout && l->value[n->out[0]->id] < p->n) p->node[p->begin[l->value[n->out[0]->id] + 1]++] = n;
    return true;
}

void stages_want(const Session *s, unsigned char *wanted)
{
    for (int k = 0; s->parts.n && k < s->g->next_id; k++) wanted[k] |= s->parts_wanted[k];
    for (int i = 0; i < s->nstages && !s->parts.n; i++)
        for (int k = 0; k < s->g->next_id; k++) wanted[k] |= s->stage[i].wanted[k];
}

bool stages_make(Session *s, Err *err)
{
    const Graph *g = s->g;
    Levels l = {0};
    int n = expr_symbol_count(g->ex), count = 0;
    for (int i = 0; i < n; i++) count += from_data(expr_symbol(g->ex, i));
    if (!count) return true;
    bool ok = levels_make(&l, g);
    for (int i = 0; ok && i < n; i++)
        if (from_data(expr_symbol(g->ex, i)) && l.symbol[i] >= s->nstages) s->nstages = l.symbol[i] + 1;
    s->stage = ok ? mem_zeroed((size_t)s->nstages, sizeof *s->stage) : NULL;
    if (!s->stage) s->nstages = 0;
    ok = s->stage != NULL;
    for (int i = 0; ok && i < n; i++)
        if (from_data(expr_symbol(g->ex, i))) ok = add(&s->stage[l.symbol[i]].symbol, &s->stage[l.symbol[i]].n, i);
    ok = ok && add_requires(s, &l);
    bool many = s->nstages > MAX_STAGES;
    if (ok && many) ok = parts_make(s, &l);
    for (int i = 0; ok && !many && i < s->nstages; i++) ok = stage_want(&l, &s->stage[i], i);
    levels_free(&l);
    return ok || oom(err);
}

static void parts_free(Session *s)
{
    mem_free((void *)(uintptr_t)s->parts.node);
    mem_free(s->parts.begin);
    mem_free(s->parts.part);
    mem_free(s->parts.reader);
    mem_free(s->parts_wanted);
    s->parts = (PlanParts){0};
    s->parts_wanted = NULL;
}

bool stages_once(Session *s, Err *err)
{
    Levels l = {0};
    parts_free(s); /* of a try that found no memory */
    bool ok = levels_make(&l, s->g) && parts_make(s, &l);
    levels_free(&l);
    session_forget_sizes(s);
    return ok || oom(err);
}

void stages_let_go(Session *s)
{
    growing_free(s->found.plan);
    s->found.plan = NULL;
    s->found.n = 0;
}

void stages_free(Session *s)
{
    mem_free((void *)(uintptr_t)s->found.given);
    mem_free(s->found.slot);
    for (int i = 0; i < s->nstages; i++) {
        mem_free(s->stage[i].wanted);
        mem_free(s->stage[i].symbol);
        mem_free(s->stage[i].require);
    }
    mem_free(s->stage);
    parts_free(s);
}

/* The node that is asked for its sizes: its operands are the plan's, its results have dtype and rank and no memory. */
static bool make_count(Session *s, Cached *k, Arena *a, Call *c, const Node *n, Err *err)
{
    Tensor *out = arena_array(a, Tensor, n->nout + 1);
    if (!out) return oom(err);
    TRY(plan_call(a, s->g, n, k->plan->value, &s->binding, c, err));
    for (int i = 0; i < n->nout; i++) c->out[i] = &out[i];
    return true;
}

static bool count(Session *s, Cached *k, Arena *a, const Symbol *sym, int symbol, int at, Err *err)
{
    const Node *n = sym->value->def;
    Binding *b = &s->binding;
    Call *c = &k->count[at];
    if (!c->node) TRY(make_count(s, k, a, c, n, err));
    for (int i = 0; i < n->nout; i++) *c->out[i] = (Tensor){.dtype = n->out[i]->dtype, .rank = n->out[i]->rank};
    TRY(session_call(s, c, k->plan->arena_bytes, SIZE_MAX, &k->scratch, err));
    for (int i = 0; i < n->nout; i++)
        for (int d = 0; d < n->out[i]->rank; d++) {
            const Expr *e = n->out[i]->dim[d];
            const Symbol *o = e->kind == EX_SYM ? expr_symbol(s->g->ex, (int)e->i) : NULL;
            if (o && o->source == SYM_SIZE && o->value == n->out[i] && o->dim == d)
                binding_set(b, (int)e->i, c->out[i]->shape[d]);
        }
    if (!b->bound[symbol]) binding_set(b, symbol, c->out[sym->value->out]->shape[sym->dim]);
    return true;
}

static bool find_symbol(Session *s, Cached *k, Arena *a, const Stage *stage, int at, Err *err)
{
    Binding *b = &s->binding;
    int symbol = stage->symbol[at];
    const Symbol *sym = expr_symbol(s->g->ex, symbol);
    Value *v = sym->value;
    if (sym->source == SYM_SIZE) {
        if (!b->bound[symbol]) TRY(count(s, k, a, sym, symbol, at, err)); /* all sizes of its node */
    } else if (b->bound[symbol]) return true;
    else if (sym->expr->is_float) binding_set_float(b, symbol, tensor_get(k->plan->value[v->id], 0));
    else binding_set(b, symbol, tensor_get_i64(k->plan->value[v->id], 0));
    if (!sym->expr->is_float && (b->value[symbol] < sym->lo || b->value[symbol] > sym->hi))
        return fail(err, E_USAGE, "value '%s' gives %s = %lld, allowed is %lld to %lld", v->name, sym->name,
                    (long long)b->value[symbol], (long long)sym->lo, (long long)sym->hi);
    return true;
}

/* a: where what is found stays that the calls of k need. */
static bool find_symbols(Session *s, Cached *k, Arena *a, const Stage *stage, Err *err)
{
    if (!stage->n) return true;
    if (!k->count) k->count = arena_array(a, Call, stage->n);
    if (!k->count) return oom(err);
    k->ncount = stage->n;
    for (int i = 0; i < stage->n; i++) TRY(find_symbol(s, k, a, stage, i, err));
    return true;
}

static bool of_stage(const Session *s, const Stage *stage, Err *err)
{
    const char *name = expr_symbol(s->g->ex, stage->symbol[0])->name;
    return stage->n == 1 ? within(err, "data-dependent size '%s'", name)
                         : within(err, "data-dependent size '%s' and %d others", name, stage->n - 1);
}

static bool stage_holds(const Session *s, const Stage *stage, Err *err)
{
    for (int i = 0; i < stage->nrequire; i++) TRY(check_require(s->g, stage->require[i], &s->binding, err));
    return true;
}

static bool run_stage(Session *s, int number, Err *err)
{
    const Stage *stage = &s->stage[number];
    bool bound = true;
    for (int i = 0; i < stage->n; i++) bound &= s->binding.bound[stage->symbol[i]];
    if (bound) return true;
    Cached *k = session_plan(s, &s->binding, number, stage->wanted, err);
    bool ok = k && session_ready(s, k->plan, err) && session_run_steps(s, k->plan, 0, false, err);
    return ok ? find_symbols(s, k, k->plan->arena, stage, err) : of_stage(s, stage, err);
}

static bool run_part(Session *s, GrowingPlan *g, int number, Err *err)
{
    const Stage *stage = &s->stage[number];
    Cached k = {.plan = growing_plan(g)};
    Arena *a = arena_create(0);
    bool ok = a ? growing_add(g, number, err) && session_run_steps(s, k.plan, 0, false, err) : oom(err);
    if (!ok && stage->n) of_stage(s, stage, err);
    ok = ok && find_symbols(s, &k, a, stage, err);
    for (int i = 0; i < k.ncount; i++)
        if (k.count[i].state_free) k.count[i].state_free(k.count[i].state);
    arena_destroy(a);
    growing_release(g, number);
    return ok;
}

/* Memory for n addresses after those of outputs. */
static bool found_room(Session *s, int n)
{
    if (n <= s->found.room) return true;
    size_t before = (size_t)(session_output_place(s) + s->g->noutput), all = before + (size_t)n;
    void **data = mem_grow(s->input_data, all * sizeof *data);
    if (data) s->input_data = data;
    void **placed = data ? mem_grow(s->placed_input, all * sizeof *placed) : NULL;
    if (!placed) return false;
    s->placed_input = placed;
    memset(placed + before, 0, (size_t)n * sizeof *placed);
    s->found.room = n;
    return true;
}

/* What the plan of the whole graph is given. */
static bool give_found(Session *s, const PlanInput *in, Err *err)
{
    Found *f = &s->found;
    size_t n = (size_t)s->g->next_id + 1;
    int first = session_output_place(s) + s->g->noutput;
    if (!f->given) f->given = mem_zeroed(n, sizeof *f->given);
    if (!f->slot) f->slot = mem_zeroed(n, sizeof *f->slot);
    if (!f->given || !f->slot) return oom(err);
    memcpy(f->given, in->given, (n - 1) * sizeof *f->given);
    if (in->slot) memcpy(f->slot, in->slot, (n - 1) * sizeof *f->slot);
    else memset(f->slot, 0, (n - 1) * sizeof *f->slot);
    f->n = growing_give(f->plan, f->given, f->slot, first - s->g->ninput + 1, NULL);
    if (!found_room(s, f->n)) {
        f->n = 0;
        return oom(err);
    }
    growing_give(f->plan, f->given, f->slot, first - s->g->ninput + 1, s->input_data + first);
    return true;
}

static bool run_parts(Session *s, Err *err)
{
    stages_let_go(s);
    bool gives = !s->on_node && !s->feeding;
    PlanInput in = session_plan_input(s, 0, s->parts_wanted);
    GrowingPlan *g = growing_create(&in, &s->binding, &s->parts, s->input_data, gives, err);
    bool ok = g && session_ready(s, growing_plan(g), err);
    for (int i = 0; ok && i < s->nstages; i++) ok = run_part(s, g, i, err) && stage_holds(s, &s->stage[i], err);
    s->current = NULL;
    if (ok && gives) {
        s->found.plan = g;
        return give_found(s, &in, err);
    }
    growing_free(g);
    return ok;
}

bool stages_run(Session *s, Err *err)
{
    Rng before = s->rng; /* random ops draw the same again when they are run again */
    bool ok = !s->parts.n || run_parts(s, err);
    for (int i = 0; ok && i < s->nstages && !s->parts.n; i++) {
        ok = run_stage(s, i, err) && stage_holds(s, &s->stage[i], err);
        s->rng = before;
    }
    if (!s->found.plan) s->rng = before;
    return ok;
}
