/* Cutting a part out of a graph. Contract in extract.h.
 *
 * Walked backward from the results to the named inputs: what is reached stays. Then everything is copied into a new
 * graph, whose expressions are built again; a size that the new inputs cannot tell is stood for by a new symbol.
 */
#include "extract/extract.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "base/number.h"
#include "shape/solve.h"

enum { NEAR = 3 };

typedef struct Cut {
    const Graph *g;
    Graph *to;
    Err *err;
    bool named; /* the inputs were given; else they are found */
    Value **from;
    int nfrom;
    Value **result;
    int nresult;
    bool *scalar;          /* by scalar input: it stays */
    bool *known;           /* by symbol: the inputs of the cut tell it */
    bool *needed;          /* by symbol */
    bool *boundary, *kept; /* by value */
    bool *seen;            /* by expression */
    Value **copy;          /* by value, in the new graph */
    Expr **memo;           /* by expression, in the new graph */
    const Value **stack;
    int depth;          /* values to look at */
    const Value *asker; /* whose operands are looked at */
    int nsymbols;
} Cut;

/* ------------------------------------------------------------------ names */

static bool plain_same(const char *name, const char *given)
{
    for (; *name && *given; name++, given++)
        if (*name != *given && (*name != '_' || is_alnum(*given))) return false;
    return !*name && !*given;
}

/* Edits from one word to the other, at most `most`. */
static int edits(const char *a, const char *b, int most)
{
    enum { LONGEST = 64 };
    int row[LONGEST + 1], n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST || abs(n - m) > most) return most + 1;
    for (int k = 0; k <= m; k++) row[k] = k;
    for (int i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = i;
        for (int k = 1; k <= m; k++) {
            int best = corner + (a[i - 1] != b[k - 1]);
            corner = row[k];
            if (row[k] + 1 < best) best = row[k] + 1;
            if (row[k - 1] + 1 < best) best = row[k - 1] + 1;
            row[k] = best;
        }
    }
    return row[m];
}

/* Values that are not in the graph any more keep their names' places. */
static bool lives(const Cut *c, const Value *v)
{
    if (v->kind != V_NODE) return true;
    for (const Node *n = c->g->first; n; n = n->next)
        if (n == v->def) return true;
    return false;
}

static bool unknown(Cut *c, const char *name)
{
    const char *near[NEAR] = {NULL};
    int far[NEAR], n = 0;
    char text[3 * 140] = "";
    for (size_t i = 0; i < c->g->names.count; i++) {
        const Value *v = c->g->names.entries[i].value;
        if (graph_find_value(c->g, v->name) != v || strcmp(v->name, c->g->names.entries[i].key)) continue;
        int d = edits(name, v->name, 4), at = n;
        if (d > 4 || 2 * d > (int)strlen(name) + 1 || !lives(c, v)) continue;
        while (at > 0 && far[at - 1] > d) at--;
        if (at == NEAR) continue;
        if (n < NEAR) n++;
        for (int k = n - 1; k > at; k--) near[k] = near[k - 1], far[k] = far[k - 1];
        near[at] = v->name;
        far[at] = d;
    }
    for (int k = 0, used = 0; k < n; k++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s'%.120s'", k ? ", " : "", near[k]);
    return fail(c->err, E_USAGE, "there is no value '%.200s'%s%s", name,
                n ? "; near it: " : " (qkv graph shows all names)", text);
}

static Value *find(const Cut *c, const char *name)
{
    const Graph *g = c->g;
    Value *v = graph_find_value(g, name);
    for (int i = 0; !v && i < g->ninput; i++)
        if (!strcmp(value_label(g->input[i]), name)) v = g->input[i];
    for (int i = 0; !v && i < g->noutput; i++)
        if (!strcmp(g->output[i].value_name, name) || graph_find_output(g, name) == i) v = g->output[i].value;
    for (size_t i = 0; !v && i < g->names.count; i++) {
        Value *w = g->names.entries[i].value;
        if (plain_same(w->name, name)) v = w;
    }
    return v;
}

static bool named_value(Cut *c, const char *name, Value **out)
{
    *out = find(c, name);
    return (*out && lives(c, *out)) || unknown(c, name);
}

static bool resolve(Cut *c, const char *const *from, int nfrom, const char *const *to, int nto)
{
    const Graph *g = c->g;
    c->named = nfrom > 0;
    c->from = arena_array(c->to->arena, Value *, nfrom + g->ninput + 1);
    c->result = arena_array(c->to->arena, Value *, nto + g->noutput + 1);
    if (!c->from || !c->result) return oom(c->err);
    for (int i = 0; i < nfrom; i++) {
        Value *v;
        int k = 0;
        while (k < g->nscalar_input && strcmp(g->scalar_input[k].name, from[i])) k++;
        if (k < g->nscalar_input) {
            c->scalar[k] = true;
            continue;
        }
        TRY(named_value(c, from[i], &v));
        if (c->boundary[v->id]) return fail(c->err, E_USAGE, "'%.200s' is named twice as an input", from[i]);
        c->boundary[v->id] = true;
        c->from[c->nfrom++] = v;
    }
    for (int i = 0; i < nto; i++) {
        Value *v;
        TRY(named_value(c, to[i], &v));
        for (int k = 0; k < c->nresult; k++)
            if (c->result[k] == v) return fail(c->err, E_USAGE, "'%.200s' is named twice as a result", to[i]);
        c->result[c->nresult++] = v;
    }
    for (int i = 0; nto == 0 && i < g->noutput; i++) c->result[c->nresult++] = g->output[i].value;
    return c->nresult > 0 || fail(c->err, E_USAGE, "the graph has no outputs");
}

/* ------------------------------------------------------------------ sizes that the inputs tell */

static Symbol *symbol_of(const Cut *c, int i) { return expr_symbol(c->g->ex, i); }

/* The one symbol of e that is not known; -1: there are none, -2: more. */
static int only_unknown(const Cut *c, const Expr *e)
{
    int found = -1;
    for (int i = 0; i < c->nsymbols; i++) {
        if (c->known[i] || !ex_mentions(e, symbol_of(c, i)->expr)) continue;
        if (found >= 0) return -2;
        found = i;
    }
    return found;
}

static void tell_sizes(Cut *c)
{
    for (int i = 0; i < c->g->nscalar_input; i++) {
        const Arg *a = &c->g->scalar_input[i].value;
        if (c->scalar[i] && a->kind == ARG_EXPR && a->e->kind == EX_SYM) c->known[a->e->i] = true;
    }
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < c->nfrom; i++)
            for (int d = 0; d < c->from[i]->rank; d++) {
                const Expr *e = c->from[i]->dim[d];
                int s = ex_is_const(e) ? -1 : only_unknown(c, e);
                if (s < 0 || !expr_linear_in(e, symbol_of(c, s)->expr)) continue;
                c->known[s] = more = true;
            }
    }
}

/* The number that a condition says e is; -1: none does. */
static int64_t required_number(const Cut *c, const Expr *e)
{
    for (int i = 0; i < c->g->nrequire; i++) {
        const Expr *r = c->g->require[i].cond;
        if (r->kind != EX_EQ || (r->args[0] != e && r->args[1] != e)) continue;
        const Expr *other = r->args[r->args[0] == e];
        if (ex_is_int(other) && other->i >= 0) return other->i;
    }
    return -1;
}

/* Sizes of inputs with symbols that stay unknown become symbols, or the numbers that they must be. */
static bool new_sizes(Cut *c)
{
    for (int i = 0; i < c->nfrom; i++)
        for (int d = 0; d < c->from[i]->rank; d++) {
            const Expr *e = c->from[i]->dim[d];
            int64_t lo, hi;
            if (c->memo[e->id] || ex_is_const(e) || only_unknown(c, e) == -1) continue;
            int64_t number = required_number(c, e);
            if (number >= 0) {
                if (!(c->memo[e->id] = ex_int(c->to->ex, number))) return oom(c->err);
                continue;
            }
            char *name = arena_printf(c->to->arena, "%s_%d", c->from[i]->name, d);
            while (name && expr_find_symbol(c->g->ex, name)) name = arena_printf(c->to->arena, "%s_", name);
            Expr *s = name ? ex_symbol(c->to->ex, name) : NULL;
            if (!s) return oom(c->err);
            ex_range(c->g->ex, e, &lo, &hi);
            expr_set_range(c->to->ex, (int)s->i, lo > 0 ? lo : 0, hi);
            c->memo[e->id] = s;
        }
    return true;
}

/* ------------------------------------------------------------------ what is reached */

static void push(Cut *c, const Value *v)
{
    if (c->kept[v->id]) return;
    c->kept[v->id] = true;
    c->stack[c->depth++] = v;
}

static void push_operand(void *user, Value **slot) { push(user, *slot); }

static bool missing_size(Cut *c, const Symbol *s, const Expr *e)
{
    Buf b = {0};
    ex_print(c->g->ex, e, &b);
    fail(c->err, E_USAGE, "'%s' needs the size %s%s%.100s%s, which the given inputs do not tell%s%s%s",
         c->asker ? c->asker->name : "a result", s->name, e == s->expr ? "" : " (in ",
         e == s->expr ? ""
         : b.data     ? b.data
                      : "?",
         e == s->expr ? "" : ")", s->value ? "; '" : "", s->value ? value_label(s->value) : "",
         s->value ? "' has it" : "");
    buf_free(&b);
    return false;
}

static bool reach_expr(Cut *c, const Expr *e, const Expr *whole)
{
    if (c->seen[e->id] || c->memo[e->id]) return true;
    c->seen[e->id] = true;
    for (int i = 0; i < e->nargs; i++) TRY(reach_expr(c, e->args[i], whole));
    if (e->kind != EX_SYM) return true;
    const Symbol *s = symbol_of(c, (int)e->i);
    c->needed[e->i] = true;
    if (c->known[e->i]) return true;
    if (symbol_out_of_data(s) && s->value) {
        push(c, s->value);
        return true;
    }
    return !c->named || missing_size(c, s, whole);
}

static bool reach_node(Cut *c, Node *n)
{
    node_each_operand(n, push_operand, c);
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *a = &n->arg[i];
        if (a->kind == ARG_EXPR) TRY(reach_expr(c, a->e, a->e));
        for (int k = 0; a->kind == ARG_EXPRS && k < a->n; k++) TRY(reach_expr(c, a->es[k], a->es[k]));
    }
    for (int k = 0; k < n->nout; k++)
        for (int d = 0; d < n->out[k]->rank; d++) TRY(reach_expr(c, n->out[k]->dim[d], n->out[k]->dim[d]));
    return true;
}

static bool reach_value(Cut *c, const Value *v)
{
    if (c->boundary[v->id]) return true;
    if (v->kind == V_NODE) {
        for (int k = 0; k < v->def->nout; k++) c->kept[v->def->out[k]->id] = true; /* all results of a node, once */
        c->asker = v->def->out[0];
        return reach_node(c, v->def);
    }
    for (int i = 0; v->kind == V_WEIGHT && i < c->g->nmutation;
         i++) /* a buffer that a run changes comes with what it becomes */
        if (c->g->mutation[i].target == v) push(c, c->g->mutation[i].value);
    if (v->kind != V_INPUT) return true;
    if (!c->named) {
        c->boundary[v->id] = true;
        c->from[c->nfrom++] = (Value *)(uintptr_t)v;
        return true;
    }
    for (const Node *n = c->g->last; n; n = n->prev) {
        if (!n->nout || !c->kept[n->out[0]->id] || c->boundary[n->out[0]->id]) continue;
        for (int i = 0; i < n->op->schema->nparams; i++) {
            bool uses = n->arg[i].kind == ARG_VALUE && n->arg[i].v == v;
            for (int k = 0; n->arg[i].kind == ARG_VALUES && k < n->arg[i].n; k++) uses |= n->arg[i].vs[k] == v;
            if (uses)
                return fail(c->err, E_USAGE,
                            "the results need the input '%s' (through '%s'), which is not among the given ones",
                            value_label(v), n->name);
        }
    }
    return fail(c->err, E_USAGE, "the results need the input '%s', which is not among the given ones", value_label(v));
}

static bool reach(Cut *c)
{
    for (int i = 0; i < c->nresult; i++) push(c, c->result[i]);
    while (c->depth) TRY(reach_value(c, c->stack[--c->depth]));
    return true;
}

/* Inputs that nothing reads, but that tell a size. */
static bool reach_sizes(Cut *c)
{
    for (bool more = !c->named; more;) {
        more = false;
        tell_sizes(c);
        for (int i = 0; i < c->nfrom; i++)
            for (int d = 0; d < c->from[i]->rank; d++) TRY(reach_expr(c, c->from[i]->dim[d], c->from[i]->dim[d]));
        for (int i = 0; i < c->nsymbols; i++) {
            const Symbol *s = symbol_of(c, i);
            if (!c->needed[i] || c->known[i] || symbol_out_of_data(s)) continue;
            for (int k = 0; k < c->g->nscalar_input; k++) {
                const Arg *a = &c->g->scalar_input[k].value;
                if (c->scalar[k] || a->kind != ARG_EXPR || !ex_mentions(a->e, s->expr)) continue;
                c->scalar[k] = more = true;
            }
            if (!s->value || c->boundary[s->value->id] || s->value->kind != V_INPUT) continue;
            c->boundary[s->value->id] = more = true;
            c->from[c->nfrom++] = (Value *)(uintptr_t)s->value;
        }
    }
    return true;
}

/* ------------------------------------------------------------------ copying */

static Expr *copy_expr(Cut *c, const Expr *e)
{
    ExprPool *p = c->to->ex;
    Expr *r = c->memo[e->id], *a[3] = {NULL, NULL, NULL};
    if (r) return r;
    switch (e->kind) {
    case EX_INT: r = ex_int(p, e->i); break;
    case EX_FLOAT: r = ex_float(p, e->f); break;
    case EX_BOOL: r = ex_bool(p, e->i != 0); break;
    case EX_SYM: {
        const Symbol *s = symbol_of(c, (int)e->i);
        r = ex_symbol(p, s->name);
        if (!r) break;
        Symbol *mine = expr_symbol(p, (int)r->i);
        mine->has_hint = s->has_hint;
        mine->hint = s->hint;
        expr_set_range(p, (int)r->i, s->lo, s->hi);
        break;
    }
    case EX_WHERE:
        for (int i = 0; i < 3; i++)
            if (!(a[i] = copy_expr(c, e->args[i]))) return NULL;
        r = ex_make(p, EX_WHERE, a[0], a[1], a[2]);
        break;
    default:
        for (int i = 0; i < e->nargs; i++) {
            Expr *x = copy_expr(c, e->args[i]);
            if (!x) return NULL;
            r = i == 0 && e->nargs > 1 ? x
                : e->nargs == 1        ? ex_make(p, e->kind, x, NULL, NULL)
                : e->kind == EX_ADD    ? ex_add(p, r, x)
                : e->kind == EX_MUL    ? ex_mul(p, r, x)
                                       : ex_make(p, e->kind, r, x, NULL);
        }
        break;
    }
    return c->memo[e->id] = r;
}

static bool copy_dims(Cut *c, const Value *v, Expr **dim)
{
    for (int d = 0; d < v->rank; d++)
        if (!(dim[d] = copy_expr(c, v->dim[d]))) return oom(c->err);
    return true;
}

static bool copy_inputs(Cut *c)
{
    Expr *dim[MAX_RANK];
    const Graph *g = c->g;
    for (int i = 0; i < (c->named ? c->nfrom : g->ninput); i++) { /* as given; else in the graph's order */
        const Value *v = c->named ? c->from[i] : g->input[i];
        if (!c->boundary[v->id]) continue;
        Value *mine = copy_dims(c, v, dim) ? graph_add_input(c->to, v->name, v->dtype, v->rank, dim) : NULL;
        if (!mine) return oom(c->err);
        if (v->label) mine->label = arena_strdup(c->to->arena, v->label);
        c->copy[v->id] = mine;
        for (int d = 0; d < v->rank; d++) { /* a plain size binds its symbol */
            Symbol *s = dim[d]->kind == EX_SYM ? expr_symbol(c->to->ex, (int)dim[d]->i) : NULL;
            if (!s || s->source != SYM_FREE) continue;
            s->source = SYM_INPUT;
            s->value = mine;
            s->dim = d;
        }
    }
    c->to->scalar_input = arena_array(c->to->arena, ScalarInput, g->nscalar_input + 1);
    if (!c->to->scalar_input) return oom(c->err);
    for (int i = 0; i < g->nscalar_input; i++) {
        const ScalarInput *s = &g->scalar_input[i];
        if (!c->scalar[i]) continue;
        ScalarInput *mine = &c->to->scalar_input[c->to->nscalar_input];
        *mine = (ScalarInput){arena_strdup(c->to->arena, s->name), s->value, c->to->ninput + c->to->nscalar_input};
        c->to->nscalar_input++;
        if (s->value.kind == ARG_STR) mine->value.s = arena_strdup(c->to->arena, s->value.s);
        if (s->value.kind == ARG_EXPR && !(mine->value.e = copy_expr(c, s->value.e))) return oom(c->err);
        Symbol *bound = s->value.kind == ARG_EXPR && mine->value.e->kind == EX_SYM
                            ? expr_symbol(c->to->ex, (int)mine->value.e->i)
                            : NULL;
        if (bound && bound->source == SYM_FREE) bound->source = SYM_INPUT;
    }
    for (int i = 0; i < expr_symbol_count(c->to->ex); i++) { /* symbols that are solved for: 14*s1 */
        Symbol *s = expr_symbol(c->to->ex, i);
        for (int k = 0; k < c->to->ninput && s->source == SYM_FREE; k++)
            for (int d = 0; d < c->to->input[k]->rank && s->source == SYM_FREE; d++)
                if (ex_mentions(c->to->input[k]->dim[d], s->expr)) {
                    s->source = SYM_INPUT;
                    s->value = c->to->input[k];
                    s->dim = d;
                }
    }
    return true;
}

static bool copy_weights(Cut *c)
{
    for (int i = 0; i < c->g->nweight; i++) {
        const Value *v = c->g->weight[i];
        if (!c->kept[v->id] || c->boundary[v->id]) continue;
        Tensor *data = arena_new(c->to->arena, Tensor);
        const char *fqn = v->fqn ? arena_strdup(c->to->arena, v->fqn) : NULL;
        if (!data || (v->fqn && !fqn)) return oom(c->err);
        *data = *v->data;
        Value *mine = graph_add_weight(c->to, v->name, fqn, data);
        if (!mine) return oom(c->err);
        mine->weight = v->weight;
        mine->persistent = v->persistent;
        mine->frozen = v->frozen;
        c->copy[v->id] = mine;
    }
    return true;
}

static bool copy_arg(Cut *c, const Arg *from, Arg *to)
{
    Arena *a = c->to->arena;
    *to = *from;
    switch (from->kind) {
    case ARG_VALUE: to->v = c->copy[from->v->id]; return true;
    case ARG_STR: return (to->s = arena_strdup(a, from->s)) || oom(c->err);
    case ARG_EXPR: return (to->e = copy_expr(c, from->e)) || oom(c->err);
    case ARG_VALUES:
        to->vs = arena_array(a, Value *, from->n + 1);
        for (int i = 0; to->vs && i < from->n; i++) to->vs[i] = from->vs[i] ? c->copy[from->vs[i]->id] : NULL;
        return to->vs || oom(c->err);
    case ARG_EXPRS:
        to->es = arena_array(a, Expr *, from->n + 1);
        for (int i = 0; to->es && i < from->n; i++)
            if (!(to->es[i] = copy_expr(c, from->es[i]))) return oom(c->err);
        return to->es || oom(c->err);
    default: return true; /* what a loop runs stays the whole graph's, as weights do */
    }
}

static bool copy_node(Cut *c, const Node *n)
{
    Arg *args = arena_array(c->to->arena, Arg, n->op->schema->nparams + 1);
    Expr *dim[MAX_RANK];
    if (!args) return oom(c->err);
    for (int i = 0; i < n->op->schema->nparams; i++) TRY(copy_arg(c, &n->arg[i], &args[i]));
    c->to->module = n->module ? graph_module(c->to, n->module->path, n->module->stack) : NULL;
    Node *mine = graph_add_declared(c->to, n->op, args, n->nout, n->name, c->err);
    TRY(mine);
    for (int k = 0; k < n->nout; k++) {
        const Value *v = n->out[k];
        TRY(copy_dims(c, v, dim) && node_set_out(c->to, mine, k, v->dtype, v->rank, dim, c->err));
        /* a result that is an input of the cut is computed again only beside others; its name is the input's */
        if (c->boundary[v->id]) continue;
        TRY(graph_rename(c->to, mine->out[k], v->name, c->err));
        c->copy[v->id] = mine->out[k];
    }
    return true;
}

static bool copy_nodes(Cut *c)
{
    for (const Node *n = c->g->first; n; n = n->next) {
        bool keep = false;
        for (int k = 0; k < n->nout; k++) keep |= c->kept[n->out[k]->id] && !c->boundary[n->out[k]->id];
        if (keep) TRY(copy_node(c, n));
    }
    for (int i = 0; i < c->nsymbols; i++) { /* sizes out of data */
        const Symbol *s = symbol_of(c, i);
        Expr *e = c->memo[s->expr->id];
        Symbol *mine = e && e->kind == EX_SYM ? expr_symbol(c->to->ex, (int)e->i) : NULL;
        if (!mine || mine->source != SYM_FREE || (s->source != SYM_ITEM && s->source != SYM_SIZE)) continue;
        mine->source = s->source;
        mine->value = s->value ? c->copy[s->value->id] : NULL;
        mine->dim = s->dim;
        if (!mine->value) return missing_size(c, s, s->expr);
    }
    return true;
}

/* Can a condition be said of the cut? */
static bool sayable(const Cut *c, const Expr *e)
{
    if (c->memo[e->id] || ex_is_const(e)) return true;
    if (e->kind == EX_SYM) return false;
    for (int i = 0; i < e->nargs; i++)
        if (!sayable(c, e->args[i])) return false;
    return true;
}

static bool copy_ends(Cut *c)
{
    for (int i = 0; i < c->nresult; i++) { /* one that is an input, too, leaves its name to that */
        const Value *v = c->copy[c->result[i]->id];
        char name[32];
        snprintf(name, sizeof name, "output_%d", i);
        TRY(graph_add_output(c->to, v->kind == V_INPUT ? name : v->name, c->copy[c->result[i]->id], c->err));
    }
    for (int i = 0; i < c->g->nmutation; i++) {
        const Mutation *m = &c->g->mutation[i];
        if (c->boundary[m->target->id] || !c->copy[m->target->id]) continue;
        TRY(graph_add_mutation(c->to, c->copy[m->target->id], c->copy[m->value->id], c->err));
    }
    for (int i = 0; i < c->g->nrequire; i++) {
        const Require *r = &c->g->require[i];
        if (sayable(c, r->cond)) TRY(graph_require(c->to, copy_expr(c, r->cond), c->err, "%s", r->where));
    }
    for (int i = 0; i < c->to->nrequire; i++)
        if (!strncmp(c->to->require[i].where, "guard ", 6)) expr_assume(c->to->ex, c->to->require[i].cond);
    return true;
}

static bool cut(Cut *c, const char *const *from, int nfrom, const char *const *to, int nto)
{
    TRY(resolve(c, from, nfrom, to, nto));
    if (c->named) tell_sizes(c);
    if (c->named) TRY(new_sizes(c));
    TRY(reach(c) && reach_sizes(c) && reach(c));
    return copy_inputs(c) && copy_weights(c) && copy_nodes(c) && copy_ends(c);
}

Graph *graph_extract(const Graph *g, const char *const *from, int nfrom, const char *const *to, int nto, Err *err)
{
    size_t values = (size_t)g->next_id + 1, exprs = (size_t)expr_node_count(g->ex) + 1,
           symbols = (size_t)expr_symbol_count(g->ex) + 1;
    Cut c = {.g = g, .to = graph_create(), .err = err, .nsymbols = expr_symbol_count(g->ex)};
    c.scalar = mem_zeroed((size_t)g->nscalar_input + 1, sizeof *c.scalar);
    c.known = mem_zeroed(symbols, sizeof *c.known);
    c.needed = mem_zeroed(symbols, sizeof *c.needed);
    c.boundary = mem_zeroed(values, sizeof *c.boundary);
    c.kept = mem_zeroed(values, sizeof *c.kept);
    c.seen = mem_zeroed(exprs, sizeof *c.seen);
    c.copy = mem_zeroed(values, sizeof *c.copy);
    c.memo = mem_zeroed(exprs, sizeof *c.memo);
    c.stack = mem_zeroed(values, sizeof *c.stack);
    bool ok = (c.to && c.scalar && c.known && c.needed && c.boundary && c.kept && c.seen && c.copy && c.memo &&
               c.stack) ||
              oom(err);
    ok = ok && cut(&c, from, nfrom, to, nto);
    void *parts[] = {c.scalar, c.known, c.needed, c.boundary, c.kept, c.seen, c.copy, c.memo, c.stack};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) mem_free(parts[i]);
    if (ok) return c.to;
    graph_free(c.to);
    return NULL;
}
