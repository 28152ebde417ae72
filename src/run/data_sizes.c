/* Data-dependent sizes: an item (a number read from a tensor), or how many nonzero gives. What a symbol needs is run
 * first, by a plan of just those nodes; the whole graph is planned when all symbols are known.
 *
 *     symbol u0 = item %n        the plan of %n runs, its number is u0
 *     symbol zuf0 = item %x      the same of a float
 *     symbol u1 = size %at 0     the operands of %at's node run, then the node itself without memory for its result:
 *                                it only counts
 *
 * Which nodes those are is found once a session; a run whose sizes came before allocates nothing.
 */
#include <stdlib.h>
#include <string.h>
#include "run/session_impl.h"
#include "base/mem.h"

static void want_operand(void *user, Value **slot) { ((unsigned char *)user)[(*slot)->id] = 1; }

static bool from_data(const Symbol *s) { return s->value && symbol_out_of_data(s); }

static int by_place(const void *a, const void *b)
{
    const Stage *x = a, *y = b;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : x->symbol - y->symbol;
}

bool stages_make(Session *s, Err *err)
{
    const Graph *g = s->g;
    int n = expr_symbol_count(g->ex), k = 0, count = 0;
    for (int i = 0; i < n; i++) count += from_data(expr_symbol(g->ex, i));
    if (!count) return true;
    int *at = mem_zeroed((size_t)g->next_id + 1, sizeof *at);
    s->stage = mem_zeroed((size_t)count, sizeof *s->stage);
    bool ok = at && s->stage;
    for (const Node *node = g->first; ok && node; node = node->next, k++)
        for (int o = 0; o < node->nout; o++) at[node->out[o]->id] = k;
    for (int i = 0; ok && i < n; i++) {
        const Symbol *sym = expr_symbol(g->ex, i);
        if (!from_data(sym)) continue;
        Stage *stage = &s->stage[s->nstages++];
        *stage = (Stage){.symbol = i,
                         .at = sym->value->def ? at[sym->value->id] : -1,
                         .wanted = mem_zeroed((size_t)g->next_id + 1, 1)};
        if (!(ok = stage->wanted != NULL)) break;
        if (sym->source == SYM_ITEM || !sym->value->def) stage->wanted[sym->value->id] = 1;
        else node_each_operand(sym->value->def, want_operand, stage->wanted);
    }
    mem_free(at);
    if (!ok) return oom(err);
    qsort(s->stage, (size_t)s->nstages, sizeof *s->stage, by_place);
    return true;
}

void stages_free(Session *s)
{
    for (int i = 0; i < s->nstages; i++) mem_free(s->stage[i].wanted);
    mem_free(s->stage);
}

/* The node that is asked for its sizes: its operands are the plan's, its results have dtype and rank and no memory. */
static bool make_count(Session *s, Cached *k, const Node *n, const Binding *b, Err *err)
{
    Call *c = &k->count;
    Tensor *out = arena_array(k->plan->arena, Tensor, n->nout + 1);
    if (!out) return oom(err);
    TRY(plan_call(k->plan->arena, s->g, n, k->plan->value, b, c, err));
    for (int i = 0; i < n->nout; i++) c->out[i] = &out[i];
    return true;
}

static bool count(Session *s, Cached *k, Binding *b, const Symbol *sym, int symbol, Err *err)
{
    const Node *n = sym->value->def;
    Call *c = &k->count;
    if (!c->node) TRY(make_count(s, k, n, b, err));
    for (int i = 0; i < n->nout; i++) *c->out[i] = (Tensor){.dtype = n->out[i]->dtype, .rank = n->out[i]->rank};
    TRY(session_call(s, c, k->plan->arena_bytes, SIZE_MAX, &k->scratch, err));
    for (int i = 0; i < expr_symbol_count(s->g->ex); i++) {
        const Symbol *o = expr_symbol(s->g->ex, i);
        if (o->source == SYM_SIZE && o->value && o->value->def == n)
            binding_set(b, i, c->out[o->value->out]->shape[o->dim]);
    }
    if (!b->bound[symbol]) binding_set(b, symbol, c->out[sym->value->out]->shape[sym->dim]);
    return true;
}

static bool find_symbol(Session *s, const Stage *stage, Err *err)
{
    Binding *b = &s->binding;
    int symbol = stage->symbol;
    const Symbol *sym = expr_symbol(s->g->ex, symbol);
    Value *v = sym->value;
    Cached *k = session_plan(s, b, symbol, stage->wanted, err);
    Rng before = s->rng; /* random ops draw the same again when the whole graph runs */
    if (!k || !session_ready(s, k->plan, err) || !session_run_steps(s, k->plan, false, err))
        return within(err, "data-dependent size '%s'", sym->name);
    s->rng = before;
    if (sym->source == SYM_SIZE) TRY(count(s, k, b, sym, symbol, err));
    else if (sym->expr->is_float) binding_set_float(b, symbol, tensor_get(k->plan->value[v->id], 0));
    else binding_set(b, symbol, tensor_get_i64(k->plan->value[v->id], 0));
    if (!sym->expr->is_float && (b->value[symbol] < sym->lo || b->value[symbol] > sym->hi))
        return fail(err, E_USAGE, "value '%s' gives %s = %lld, allowed is %lld to %lld", v->name, sym->name,
                    (long long)b->value[symbol], (long long)sym->lo, (long long)sym->hi);
    return true;
}

bool stages_run(Session *s, Err *err)
{
    for (int i = 0; i < s->nstages; i++)
        if (!s->binding.bound[s->stage[i].symbol]) TRY(find_symbol(s, &s->stage[i], err));
    return true;
}
