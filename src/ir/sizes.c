/* The sizes of a graph: which input gives them a value, what they are called, which of them are one. Contract in
 * graph.h. */
#include <string.h>
#include "base/buf.h"
#include "base/mem.h"
#include "expr/translate.h"
#include "ir/graph.h"

/* seen: by Expr id; what is shared is looked at once. */
static void bind_inside(ExprPool *ex, const Expr *e, Value *v, int d, unsigned char *seen)
{
    if (seen[e->id]) return;
    seen[e->id] = 1;
    for (int i = 0; i < e->nargs; i++) bind_inside(ex, e->args[i], v, d, seen);
    if (e->kind != EX_SYM) return;
    Symbol *s = expr_symbol(ex, (int)e->i);
    if (s->source != SYM_FREE) return;
    s->source = SYM_INPUT;
    s->value = v;
    s->dim = d;
}

bool graph_bind_sizes(Graph *g, Err *err)
{
    unsigned char *seen = mem_zeroed((size_t)expr_node_count(g->ex) + 1, 1);
    if (!seen) return oom(err);
    for (int plain = 1; plain >= 0; plain--)
        for (int k = 0; k < g->ninput; k++)
            for (int d = 0; d < g->input[k]->rank; d++)
                if (!plain || g->input[k]->dim[d]->kind == EX_SYM)
                    bind_inside(g->ex, g->input[k]->dim[d], g->input[k], d, seen);
    mem_free(seen);
    return true;
}

/* ------------------------------------------------------------------ names */

/* The text of a declared range says what it is of. */
static bool name_range(Graph *g, Require *r, Err *err)
{
    size_t n = strlen(RANGE_OF);
    Expr *e = strncmp(r->where, RANGE_OF, n) ? NULL : ex_parse(g->ex, r->where + n, NULL, NULL, err);
    Buf b = {0};
    if (!e) return strncmp(r->where, RANGE_OF, n) != 0;
    buf_puts(&b, RANGE_OF);
    ex_print(g->ex, e, &b);
    const char *where = b.failed ? NULL : arena_strdup(g->arena, b.data);
    buf_free(&b);
    if (where) r->where = where;
    return where || oom(err);
}

static bool name_ranges(Graph *g, Err *err)
{
    for (int i = 0; i < g->nrequire; i++) TRY(name_range(g, &g->require[i], err));
    return true;
}

bool graph_rename_size(Graph *g, const char *from, const char *to, Err *err)
{
    return expr_rename_symbol(g->ex, from, to, err) && name_ranges(g, err);
}

/* ------------------------------------------------------------------ sizes that are one */

typedef struct Unify {
    Graph *g;
    Expr **by;     /* by symbol: what stands for it; NULL: itself */
    Expr **inputs; /* the same without those of numbers that are read from data */
    Expr **known, **known_inputs; /* by expression id: what it became */
    bool changed;
    Err *err;
} Unify;

static Symbol *symbol_of(const Unify *u, const Expr *e) { return expr_symbol(u->g->ex, (int)e->i); }

static Expr *root(const Unify *u, Expr *e)
{
    while (u->by[e->i]) e = u->by[e->i];
    return e;
}

/* An int that is an input of its own has no axis against which it is checked. */
static bool is_number(const Graph *g, const Expr *e)
{
    for (int i = 0; i < g->nscalar_input; i++) {
        const Arg *a = &g->scalar_input[i].value;
        if (a->kind == ARG_EXPR && a->e == e) return true;
    }
    return false;
}

/* Two names of one axis of one value: the file's, and shape inference's own where an op is lowered to several. */
static bool unite_axes(Unify *u)
{
    ExprPool *ex = u->g->ex;
    int n = expr_symbol_count(ex);
    int *latest = mem_zeroed((size_t)u->g->next_id + 1, sizeof *latest); /* by value: 1 + the last of its sizes */
    int *before = mem_zeroed((size_t)n + 1, sizeof *before);             /* by symbol: 1 + its value's one before */
    bool ok = latest && before;
    for (int i = 0; ok && i < n; i++) {
        const Symbol *s = expr_symbol(ex, i);
        if (s->source != SYM_SIZE || !s->value) continue;
        int *of = &latest[s->value->id], k = *of;
        while (k && expr_symbol(ex, k - 1)->dim != s->dim) k = before[k - 1];
        if (!k) {
            before[i] = *of;
            *of = i + 1;
            continue;
        }
        const Symbol *first = expr_symbol(ex, k - 1);
        u->by[i] = u->inputs[i] = first->expr;
        expr_merge_symbol(ex, s->expr, first->expr);
        u->changed = true;
    }
    mem_free(latest);
    mem_free(before);
    return ok;
}

/* May `to`, which is known no later, stand for `from`? The size of a result (SYM_SIZE) is what shape inference gives
 * it. */
static bool stands_for(const Unify *u, const Expr *to, const Expr *from)
{
    const Symbol *t = symbol_of(u, to), *f = symbol_of(u, from);
    if (f->source == SYM_INPUT && !is_number(u->g, from))
        return t->source == SYM_INPUT && (t->expr->i < f->expr->i || is_number(u->g, to)) &&
               (t->lo > f->lo ? t->lo : f->lo) <= (t->hi < f->hi ? t->hi : f->hi);
    if (f->source != SYM_ITEM || !f->value) return false;
    bool data = symbol_out_of_data(t) && t->value;
    return t->source == SYM_INPUT || (data && t->value->id < f->value->id);
}

/* Does this requirement make two symbols one? *stays: it must still be checked. */
static bool unite(Unify *u, const Expr *cond, bool *stays)
{
    Expr *a, *b;
    if (cond->kind == EX_AND) {
        bool left = unite(u, cond->args[0], stays), right = unite(u, cond->args[1], stays);
        return left || right;
    }
    if (!expr_same_symbols(u->g->ex, cond, &a, &b)) return false;
    a = root(u, a);
    b = root(u, b);
    if (a == b) return false;
    Expr *from = stands_for(u, a, b) ? b : stands_for(u, b, a) ? a : NULL;
    if (!from) return false;
    Expr *to = from == a ? b : a;
    u->by[from->i] = to;
    if (symbol_of(u, from)->source == SYM_INPUT) {
        u->inputs[from->i] = to;
        expr_merge_symbol(u->g->ex, from, to);
    } else {
        *stays = true;
    }
    return true;
}

static bool replace(Unify *u, Expr **e)
{
    Expr *x = *e ? expr_replace(u->g->ex, *e, u->by, u->known) : NULL;
    if (*e && !x) return fail(u->err, E_LIMIT, "a size expression is too large");
    *e = x;
    return true;
}

static bool replace_arg(Unify *u, Arg *a)
{
    if (a->kind == ARG_EXPR) return replace(u, &a->e);
    for (int i = 0; a->kind == ARG_EXPRS && i < a->n; i++) TRY(replace(u, &a->es[i]));
    return true;
}

static bool replace_value(Unify *u, Value *v)
{
    for (int i = 0; i < v->rank; i++) TRY(replace(u, &v->dim[i]));
    return true;
}

static bool among(const Require *all, int n, const Expr *cond)
{
    for (int i = 0; i < n; i++)
        if (all[i].cond == cond) return true;
    return false;
}

/* The requirements as they are now; what always holds is left out. stays[i]: it says that a number that is read from
 * data is another size, and is not replaced by what it says. */
static bool replace_requires(Unify *u, Require *all, int *count, const bool *stays)
{
    int n = 0;
    for (int i = 0; i < *count; i++) {
        Expr *e = expr_replace(u->g->ex, all[i].cond, stays[i] ? u->inputs : u->by,
                               stays[i] ? u->known_inputs : u->known);
        if (!e) return fail(u->err, E_LIMIT, "%s: condition too large", all[i].where);
        if (e->kind == EX_BOOL && !e->i) return fail(u->err, E_FORMAT, "%s: can never hold", all[i].where);
        if (e->kind != EX_BOOL && !among(all, n, e)) all[n++] = (Require){e, all[i].where};
    }
    *count = n;
    return true;
}

static bool replace_all(Unify *u, Require *also, int *nalso, const bool *stays)
{
    Graph *g = u->g;
    TRY(replace_requires(u, also, nalso, stays + g->nrequire) &&
        replace_requires(u, g->require, &g->nrequire, stays));
    for (int i = 0; i < g->ninput; i++) TRY(replace_value(u, g->input[i]));
    for (int i = 0; i < g->nscalar_input; i++) TRY(replace_arg(u, &g->scalar_input[i].value));
    for (int i = 0; i < g->nscalar_output; i++) TRY(replace_arg(u, &g->scalar_output[i].value));
    for (Node *n = g->first; n; n = n->next) {
        for (int k = 0; k < n->op->schema->nparams; k++) TRY(replace_arg(u, &n->arg[k]));
        for (int k = 0; k < n->nout; k++) TRY(replace_value(u, n->out[k]));
    }
    return true;
}

/* Each symbol with its last stand-in, so that one step leads there. */
static void settle(Unify *u, Expr **by)
{
    for (int i = 0; i < expr_symbol_count(u->g->ex); i++)
        while (by[i] && by[by[i]->i]) by[i] = by[by[i]->i];
}

bool graph_unify_sizes(Graph *g, Require *also, int *nalso, Err *err)
{
    int symbols = expr_symbol_count(g->ex), n = g->nrequire + *nalso, guards = 0;
    Unify u = {.g = g, .err = err, .by = mem_zeroed((size_t)symbols + 1, sizeof(Expr *)),
               .inputs = mem_zeroed((size_t)symbols + 1, sizeof(Expr *))};
    bool *stays = mem_zeroed((size_t)n + 1, sizeof *stays), ok = u.by && u.inputs && stays;
    ok = ok && unite_axes(&u);
    for (int i = 0; ok && i < n; i++)
        u.changed |= unite(&u, (i < g->nrequire ? &g->require[i] : &also[i - g->nrequire])->cond, &stays[i]);
    if (ok && u.changed) {
        settle(&u, u.by);
        settle(&u, u.inputs);
        u.known = mem_zeroed((size_t)expr_node_count(g->ex) + 1, sizeof(Expr *));
        u.known_inputs = mem_zeroed((size_t)expr_node_count(g->ex) + 1, sizeof(Expr *));
        ok = u.known && u.known_inputs;
    }
    ok = ok || oom(err);
    if (ok && u.changed) ok = replace_all(&u, also, nalso, stays) && name_ranges(g, err);
    for (; ok && u.changed && guards < g->nrequire; guards++)
        if (!strncmp(g->require[guards].where, "guard ", 6)) expr_assume(g->ex, g->require[guards].cond);
    mem_free(stays);
    mem_free(u.by);
    mem_free(u.inputs);
    mem_free(u.known);
    mem_free(u.known_inputs);
    return ok;
}
