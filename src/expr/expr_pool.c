/* The pool of expressions: equal nodes are one, and symbols have names. */
#include "expr/expr_impl.h"
#include <string.h>
#include "base/mem.h"
#include "base/vec.h"

enum { MAX_NODES = 1 << 22, MAX_DEPTH = 200, FEWEST_SLOTS = 32 }; /* the graph of a branch has few */

ExprPool *expr_pool(Arena *a)
{
    ExprPool *p = arena_new(a, ExprPool);
    if (!p) return NULL;
    p->arena = a;
    p->nslots = FEWEST_SLOTS;
    p->slots = mem_zeroed(p->nslots, sizeof *p->slots);
    p->stamp = 1;
    return p->slots ? p : NULL;
}

void expr_pool_free(ExprPool *p)
{
    if (!p) return;
    mem_free(p->slots);
    mem_free(p->symbols);
    map_free(&p->by_name);
}

int expr_symbol_count(const ExprPool *p) { return p->nsymbols; }
Symbol *expr_symbol(const ExprPool *p, int i) { return p->symbols[i]; }
uint32_t expr_node_count(const ExprPool *p) { return p->count; }

Symbol *expr_find_symbol(const ExprPool *p, const char *name) { return map_get(&p->by_name, name); }

/* ------------------------------------------------------------------ hash-consing */

static uint64_t hash_node(const Expr *e)
{
    uint64_t own[3] = {(uint64_t)e->kind, (uint64_t)e->i, 0};
    memcpy(&own[2], &e->f, 8);
    uint64_t h = hash_keyed(own, sizeof own);
    for (int i = 0; i < e->nargs; i++) h = hash_keyed((uint64_t[]){h, e->args[i]->id}, 16);
    return h;
}

static bool same_node(const Expr *a, const Expr *b)
{
    if (a->kind != b->kind || a->i != b->i || memcmp(&a->f, &b->f, 8) || a->nargs != b->nargs ||
        a->is_float != b->is_float)
        return false;
    for (int i = 0; i < a->nargs; i++)
        if (a->args[i] != b->args[i]) return false;
    return true;
}

static bool grow(ExprPool *p)
{
    size_t n = p->nslots * 2;
    Expr **s = mem_zeroed(n, sizeof *s);
    if (!s) return false;
    for (size_t i = 0; i < p->nslots; i++) {
        if (!p->slots[i]) continue;
        size_t k = hash_node(p->slots[i]) & (n - 1);
        while (s[k]) k = (k + 1) & (n - 1);
        s[k] = p->slots[i];
    }
    mem_free(p->slots);
    p->slots = s;
    p->nslots = n;
    return true;
}

Expr *expr_intern(ExprPool *p, const Expr *want)
{
    size_t k = hash_node(want) & (p->nslots - 1);
    for (; p->slots[k]; k = (k + 1) & (p->nslots - 1))
        if (same_node(p->slots[k], want)) return p->slots[k];
    if (p->count >= MAX_NODES) return NULL;
    Expr *e = arena_new(p->arena, Expr);
    if (!e) return NULL;
    *e = *want;
    e->args = NULL;
    if (want->nargs) {
        e->args = arena_array(p->arena, Expr *, want->nargs);
        if (!e->args) return NULL;
        memcpy(e->args, want->args, (size_t)want->nargs * sizeof *e->args);
        for (int i = 0; i < e->nargs; i++) {
            e->symbols |= e->args[i]->symbols;
            if (e->args[i]->depth >= e->depth) e->depth = e->args[i]->depth + 1;
        }
        if (e->depth > MAX_DEPTH) return NULL;
    } else if (e->kind == EX_SYM) e->symbols = 1ull << (e->i % 64);
    e->id = p->count++;
    p->slots[k] = e;
    if (p->count * 2 > p->nslots && !grow(p)) return NULL;
    return e;
}

Expr *ex_int(ExprPool *p, int64_t v) { return expr_intern(p, &(Expr){.kind = EX_INT, .i = v}); }
Expr *ex_float(ExprPool *p, double v) { return expr_intern(p, &(Expr){.kind = EX_FLOAT, .f = v, .is_float = true}); }
Expr *ex_bool(ExprPool *p, bool v) { return expr_intern(p, &(Expr){.kind = EX_BOOL, .i = v, .is_bool = true}); }

bool expr_names_float(const char *symbol)
{
    size_t digits = strncmp(symbol, "zuf", 3) ? 0 : strspn(symbol + 3, "0123456789");
    return digits && !symbol[3 + digits];
}

Expr *ex_symbol(ExprPool *p, const char *name)
{
    Symbol *known = expr_find_symbol(p, name);
    if (known) return known->expr;
    Symbol **all = vec_grow(p->symbols, p->nsymbols, sizeof *all);
    if (!all) return NULL;
    p->symbols = all;
    Symbol *s = arena_new(p->arena, Symbol);
    char *copy = arena_strdup(p->arena, name);
    Expr *e = expr_intern(p, &(Expr){.kind = EX_SYM, .i = p->nsymbols, .is_float = expr_names_float(name)});
    if (!s || !copy || !e || !map_put(&p->by_name, copy, s)) return NULL;
    *s = (Symbol){.name = copy, .lo = INT64_MIN, .hi = INT64_MAX, .expr = e};
    p->symbols[p->nsymbols++] = s;
    return e;
}

bool expr_rename_symbol(ExprPool *p, const char *from, const char *to, Err *err)
{
    Symbol *s = expr_find_symbol(p, from), *other = expr_find_symbol(p, to);
    if (!s || s->source == SYM_GONE) return fail(err, E_USAGE, "no size is called '%.80s'", from);
    if (!expr_is_name(to) || expr_names_float(to) != s->expr->is_float)
        return fail(err, E_USAGE, "size '%s': '%.80s' is not a name; expected at most %d letters, digits and '_'", from,
                    to, EXPR_NAME_MOST);
    if (other == s) return true;
    if (other) return fail(err, E_USAGE, "size '%s': '%s' is already the name of another size", from, to);
    const char *copy = arena_strdup(p->arena, to);
    if (!copy || !map_put(&p->by_name, copy, s)) return oom(err);
    s->name = copy;
    return true;
}

void expr_merge_symbol(ExprPool *p, const Expr *from, const Expr *to)
{
    Symbol *gone = p->symbols[from->i], *s = p->symbols[to->i];
    for (size_t i = 0; i < p->by_name.count; i++)
        if (p->by_name.entries[i].value == gone) p->by_name.entries[i].value = s;
    expr_set_range(p, (int)to->i, gone->lo > s->lo ? gone->lo : s->lo, gone->hi < s->hi ? gone->hi : s->hi);
    gone->source = SYM_GONE;
    int n = 0; /* what is made from now on must not have it */
    for (int i = 0; i < p->nequal; i++)
        if (!ex_mentions(p->equal[i].lead, from) && !ex_mentions(p->equal[i].rest, from)) p->equal[n++] = p->equal[i];
    p->nequal = n;
}
