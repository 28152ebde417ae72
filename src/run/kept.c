/* Inputs that stay from run to run, and what depends on them alone: the picture of many questions, the text of many
 * pictures.
 *
 *     session_keep(s, 0, err);               input 0 is kept
 *     session_set_input(s, 0, &picture, err);
 *     session_set_input(s, 1, &first, err);  session_run(s, err);     the encoder of pictures runs
 *     session_set_input(s, 1, &second, err); session_run(s, err);     and now it does not
 *
 * Nodes whose tensors come from kept inputs and weights and whose sizes come from kept inputs' are kept; so is a fused
 * group if all of it is, that the values be those of a run without keeping. Those of their results that others read are
 * wanted of a plan of their own (stage KEPT), which lays them beside the arena; plans of the whole graph, whatever
 * their other sizes, are given them at addresses after those of the inputs. That plan runs again when a kept input was
 * set, or when a size that it was made for is another one.
 */
#include <string.h>
#include "run/session_impl.h"
#include "base/mem.h"

enum { OTHER, FIXED, STAYS }; /* what a value depends on: anything; weights; weights and kept inputs */

typedef struct Sorting {
    Session *s;
    unsigned char *sort;  /* by value id */
    unsigned char *never; /* by value id: is OTHER, whatever its operands */
    unsigned char *live;  /* by value id: something needs it */
    uint64_t sizes;       /* symbols of kept inputs, as Expr.symbols has them */
    bool any_other, any_stays;
} Sorting;

static void mark_symbols(const Expr *e, bool *symbol)
{
    if (e->kind == EX_SYM) symbol[e->i] = true;
    for (int i = 0; i < e->nargs; i++) mark_symbols(e->args[i], symbol);
}

/* The symbols of kept inputs. A bit of Expr.symbols that others share is left out. */
static uint64_t size_symbols(Session *s)
{
    const Graph *g = s->g;
    bool *symbol = s->keep->symbol;
    uint64_t mine = 0, others = 0;
    int n = expr_symbol_count(g->ex);
    memset(symbol, 0, (size_t)n * sizeof *symbol);
    for (int i = 0; i < g->ninput; i++)
        for (int k = 0; s->keep->input[i] && k < g->input[i]->rank; k++) mark_symbols(g->input[i]->dim[k], symbol);
    for (int i = 0; i < n; i++) {
        uint64_t bit = expr_symbol(g->ex, i)->expr ? expr_symbol(g->ex, i)->expr->symbols : 0;
        if (symbol[i]) mine |= bit;
        else others |= bit;
    }
    return mine & ~others;
}

static void sort_operand(void *user, Value **slot)
{
    Sorting *t = user;
    t->any_other |= t->sort[(*slot)->id] == OTHER;
    t->any_stays |= t->sort[(*slot)->id] == STAYS;
}

static bool known_sizes(const Sorting *t, const Node *n)
{
    uint64_t symbols = 0;
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *a = &n->arg[i];
        if (a->kind == ARG_EXPR) symbols |= a->e->symbols;
        for (int k = 0; a->kind == ARG_EXPRS && k < a->n; k++) symbols |= a->es[k]->symbols;
    }
    for (int k = 0; k < n->nout; k++)
        for (int d = 0; d < n->out[k]->rank; d++) symbols |= n->out[k]->dim[d]->symbols;
    return !(symbols & ~t->sizes);
}

static int sort_of(Sorting *t, Node *n)
{
    t->any_other = t->any_stays = false;
    node_each_operand(n, sort_operand, t);
    bool other = t->any_other || t->never[n->out[0]->id] ||
                 (n->op->flags & (OPF_RANDOM | OPF_EFFECT | OPF_DATA_SIZE)) || !known_sizes(t, n);
    return other ? OTHER : t->any_stays ? STAYS : FIXED;
}

static void sort_values(Sorting *t)
{
    const Session *s = t->s;
    const Graph *g = s->g;
    memset(t->sort, OTHER, (size_t)g->next_id);
    for (int i = 0; i < g->ninput; i++) t->sort[g->input[i]->id] = s->keep->input[i] ? STAYS : OTHER;
    for (int i = 0; i < g->next_id; i++)
        if (s->given[i] && s->stable[i]) t->sort[i] = FIXED;
    for (Node *n = g->first; n; n = n->next)
        for (int k = 0, sort = n->nout ? sort_of(t, n) : OTHER; k < n->nout; k++)
            if (!(s->given[n->out[k]->id] && s->stable[n->out[k]->id])) t->sort[n->out[k]->id] = (unsigned char)sort;
}

/* Products that stay, but whose fused result does not: another round without them. */
static bool split_groups(Sorting *t)
{
    bool any = false;
    for (const Node *n = t->s->g->first; n && t->s->fusion; n = n->next) {
        const Value *result = n->nout ? t->s->fusion->node[n->out[0]->id].result : NULL;
        if (!result || t->sort[n->out[0]->id] != STAYS || t->sort[result->id] == STAYS) continue;
        t->never[n->out[0]->id] = 1;
        any = true;
    }
    return any;
}

static void mark_live(void *user, Value **slot) { ((unsigned char *)user)[(*slot)->id] = 1; }

static void want(Sorting *t, const Value *v)
{
    if (t->sort[v->id] == STAYS && v->kind == V_NODE)
        t->s->keep->wanted[v->id] = 1; /* kept inputs are there as inputs */
}

static void want_operand(void *user, Value **slot) { want(user, *slot); }

/* Results that stay and are read by what does not, by the caller, or by a data-dependent size. */
static void find_wanted(Sorting *t)
{
    Session *s = t->s;
    const Graph *g = s->g;
    memset(s->keep->wanted, 0, (size_t)g->next_id);
    for (int i = 0; i < g->noutput; i++) t->live[g->output[i].value->id] = 1;
    for (int i = 0; i < g->nmutation; i++) t->live[g->mutation[i].value->id] = 1;
    stages_want(s, t->live);
    for (Node *n = g->first; n; n = n->next)
        for (int k = 0; k < n->nout; k++)
            if (t->live[n->out[k]->id]) want(t, n->out[k]);
    for (Node *n = g->last; n; n = n->prev) {
        bool live = n->nout == 0;
        for (int k = 0; k < n->nout; k++) live |= t->live[n->out[k]->id];
        if (!live) continue;
        node_each_operand(n, mark_live, t->live);
        if (!n->nout || t->sort[n->out[0]->id] == OTHER) node_each_operand(n, want_operand, t);
    }
}

/* The wanted values as a list, each with a slot after the inputs. */
static bool list_wanted(Session *s, Err *err)
{
    Keeping *k = s->keep;
    const Graph *g = s->g;
    k->n = 0;
    for (int i = 0; i < g->next_id; i++) k->n += k->wanted[i];
    size_t total = (size_t)(g->ninput + k->n + g->noutput) + 1;
    mem_free(k->value);
    mem_free(s->input_data);
    mem_free(s->placed_input);
    k->value = mem_zeroed((size_t)k->n + 1, sizeof *k->value);
    s->input_data = mem_zeroed(total, sizeof *s->input_data);
    s->placed_input = mem_zeroed(total, sizeof *s->placed_input);
    if (!k->value || !s->input_data || !s->placed_input) return oom(err);
    s->found.room = 0;
    memcpy(k->given, s->given, (size_t)g->next_id * sizeof *k->given);
    memset(k->slot, 0, (size_t)g->next_id * sizeof *k->slot);
    int at = 0;
    for (const Node *n = g->first; n; n = n->next)
        for (int o = 0; o < n->nout; o++) {
            if (!k->wanted[n->out[o]->id]) continue;
            k->value[at] = n->out[o];
            k->slot[n->out[o]->id] = ++at;
        }
    return true;
}

static bool find_kept(Session *s, Err *err)
{
    size_t n = (size_t)s->g->next_id + 1;
    Sorting t = {.s = s,
                 .sort = mem_zeroed(n, 1),
                 .never = mem_zeroed(n, 1),
                 .live = mem_zeroed(n, 1),
                 .sizes = size_symbols(s)};
    bool ok = (t.sort && t.never && t.live) || oom(err);
    if (ok) {
        do sort_values(&t);
        while (split_groups(&t));
        find_wanted(&t);
    }
    mem_free(t.sort);
    mem_free(t.never);
    mem_free(t.live);
    return ok && list_wanted(s, err);
}

static bool keeping_make(Session *s, Err *err)
{
    size_t n = (size_t)s->g->next_id + 1, m = (size_t)s->g->ninput + 1;
    Keeping *k = s->keep = mem_zeroed(1, sizeof *k);
    if (!k) return oom(err);
    k->input = mem_zeroed(m, sizeof *k->input);
    k->fresh = mem_zeroed(m, sizeof *k->fresh);
    k->wanted = mem_zeroed(n, 1);
    k->slot = mem_zeroed(n, sizeof *k->slot);
    k->given = mem_zeroed(n, sizeof *k->given);
    k->symbol = mem_zeroed((size_t)expr_symbol_count(s->g->ex) + 1, sizeof *k->symbol);
    if (!k->input || !k->fresh || !k->wanted || !k->slot || !k->given || !k->symbol) return oom(err);
    return binding_init(&k->sizes, s->g->ex, err);
}

void keeping_free(Session *s)
{
    Keeping *k = s->keep;
    if (!k) return;
    mem_free(k->input);
    mem_free(k->fresh);
    mem_free(k->wanted);
    mem_free(k->value);
    mem_free(k->slot);
    mem_free(k->given);
    mem_free(k->symbol);
    binding_free(&k->sizes);
    mem_free(k);
    s->keep = NULL;
}

bool session_keep(Session *s, int i, Err *err)
{
    if (i < 0 || i >= s->g->ninput) return fail(err, E_USAGE, "the model has no input %d", i);
    if (s->keep && s->keep->input[i]) return true;
    if (s->feeding && s->feeding->input[i].from)
        return fail(err, E_USAGE, "input '%s' is fed from an output; it cannot be kept as well", s->g->input[i]->name);
    if (!s->keep && !keeping_make(s, err)) {
        keeping_free(s);
        return false;
    }
    session_forget_plans(s);
    s->keep->input[i] = true;
    s->keep->stale = true;
    s->input_set[i] = false; /* what was set may be gone */
    return find_kept(s, err);
}

/* ------------------------------------------------------------------ results of other values, kept by the caller */

/* All blocks of the plan of stage KEPT, which hold those results and nothing that a run does not write. */
struct KeptResults {
    const Session *of;
    int plan, n;
    size_t bytes;
    size_t *size;
    void **data;
};

void kept_results_free(KeptResults *r)
{
    if (!r) return;
    for (int i = 0; r->data && i < r->n; i++) mem_free(r->data[i]);
    mem_free(r->data);
    mem_free(r->size);
    mem_free(r);
}

size_t kept_results_bytes(const KeptResults *r) { return r->bytes; }

static bool copy_blocks(KeptResults *r, const Plan *p, Err *err)
{
    r->size = mem_zeroed((size_t)p->nconst + 1, sizeof *r->size);
    r->data = mem_zeroed((size_t)p->nconst + 1, sizeof *r->data);
    if (!r->size || !r->data) return oom(err);
    for (r->n = 0; r->n < p->nconst; r->n++) {
        int i = r->n;
        if (!p->const_data[i]) continue;
        r->size[i] = p->const_size[i];
        r->data[i] = mem_alloc(r->size[i] + 1);
        if (!r->data[i]) return oom(err);
        memcpy(r->data[i], p->const_data[i], r->size[i]);
        r->bytes += r->size[i];
    }
    return true;
}

KeptResults *session_kept_results(Session *s, Err *err)
{
    const Plan *p = NULL;
    for (int i = 0; i < s->ncached; i++)
        if (s->cached[i].stage == KEPT) p = s->cached[i].plan;
    if (!s->keep || !s->keep->n || !p || s->keep->stale) {
        fail(err, E_USAGE, "there are no results of kept inputs alone: keep an input, and run first");
        return NULL;
    }
    KeptResults *r = mem_zeroed(1, sizeof *r);
    if (!r) {
        oom(err);
        return NULL;
    }
    r->of = s;
    r->plan = s->keep->plan;
    if (copy_blocks(r, p, err)) return r;
    kept_results_free(r);
    return NULL;
}

void session_use_kept(Session *s, const KeptResults *r)
{
    if (s->keep) s->keep->use = r;
}

static bool put_back(const Keeping *k, const Session *s, Plan *p, const KeptResults *r)
{
    if (!r || r->of != s || r->plan != k->plan || r->n != p->nconst) return false;
    for (int i = 0; i < r->n; i++)
        if (r->data[i] && (!p->const_data[i] || p->const_size[i] != r->size[i])) return false;
    for (int i = 0; i < r->n; i++)
        if (r->data[i]) memcpy(p->const_data[i], r->data[i], r->size[i]);
    return true;
}

bool keeping_run(Session *s, Err *err)
{
    Keeping *k = s->keep;
    const KeptResults *use = k->use;
    k->use = NULL;
    if (!k->n) return true;
    binding_clear(&k->sizes);
    for (int i = 0; i < k->sizes.n; i++)
        if (k->symbol[i] && s->binding.bound[i]) binding_set(&k->sizes, i, s->binding.value[i]);
    int made = s->plans_made;
    Cached *c = session_plan(s, &k->sizes, KEPT, k->wanted, err);
    if (!c) return false;
    if (s->plans_made != made) {
        k->stale = true;
        k->plan = s->plans_made;
    } else if (k->stale && put_back(k, s, c->plan, use)) k->stale = false;
    if (k->stale) {
        TRY(session_ready(s, c->plan, err));
        profile_part(&s->profile, PART_PLAN);
        TRY(session_run_steps(s, c->plan, 0, false, err) && plan_settle(c->plan, err));
        k->stale = false;
    }
    for (int i = 0; i < k->n; i++) {
        const Tensor *t = c->plan->value[k->value[i]->id];
        k->given[k->value[i]->id] = t;
        s->input_data[s->g->ninput + i] = t->data;
    }
    return true;
}
