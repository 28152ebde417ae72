/* A pool as it is, once more: the same nodes with the same ids, so that what is canonical there is canonical here.
 * Contract in expr.h. */
#include <string.h>
#include "base/mem.h"
#include "base/vec.h"
#include "expr/expr_impl.h"

static Expr *moved(const Expr *e, Expr *all) { return e ? &all[e->id] : NULL; }

static bool copy_nodes(ExprPool *to, const ExprPool *from, Expr *all)
{
    to->slots = mem_zeroed(from->nslots, sizeof(Expr *));
    if (!to->slots) return false;
    to->nslots = from->nslots;
    to->count = from->count;
    to->stamp = from->stamp;
    for (size_t i = 0; i < from->nslots; i++) {
        const Expr *e = from->slots[i];
        if (!e) continue;
        Expr *mine = to->slots[i] = &all[e->id];
        *mine = *e;
        if (!e->nargs) continue;
        mine->args = arena_array(to->arena, Expr *, e->nargs);
        if (!mine->args) return false;
        for (int k = 0; k < e->nargs; k++) mine->args[k] = &all[e->args[k]->id];
    }
    return true;
}

static bool copy_symbols(ExprPool *to, const ExprPool *from, Expr *all)
{
    for (int i = 0; i < from->nsymbols; i++) {
        Symbol **grown = vec_grow(to->symbols, i, sizeof *grown), *s = arena_new(to->arena, Symbol);
        if (grown) to->symbols = grown;
        if (!grown || !s) return false;
        *s = *from->symbols[i];
        s->expr = moved(s->expr, all);
        s->name = arena_strdup(to->arena, s->name);
        if (!s->name || !map_put(&to->by_name, s->name, s)) return false;
        to->symbols[to->nsymbols++] = s;
    }
    for (size_t i = 0; i < from->by_name.count; i++) { /* names that they had before */
        const Symbol *s = from->by_name.entries[i].value;
        const char *name = arena_strdup(to->arena, from->by_name.entries[i].key);
        if (!name || !map_put(&to->by_name, name, to->symbols[s->expr->i])) return false;
    }
    return true;
}

static bool copy_facts(ExprPool *to, const ExprPool *from, Expr *all)
{
    if (!from->nfacts) return true;
    to->facts = arena_array(to->arena, Fact, MAX_FACTS);
    if (!to->facts) return false;
    for (; to->nfacts < from->nfacts; to->nfacts++) {
        to->facts[to->nfacts] = from->facts[to->nfacts];
        to->facts[to->nfacts].e = moved(from->facts[to->nfacts].e, all);
    }
    return true;
}

static bool copy_equalities(ExprPool *to, const ExprPool *from, Expr *all)
{
    if (!from->nequal) return true;
    to->equal = arena_array(to->arena, Equality, MAX_EQUALITIES);
    if (!to->equal) return false;
    for (; to->nequal < from->nequal; to->nequal++) {
        const Equality *e = &from->equal[to->nequal];
        to->equal[to->nequal] = (Equality){moved(e->lead, all), moved(e->rest, all), moved(e->whole, all), e->number};
    }
    return true;
}

ExprPool *expr_pool_copy(const ExprPool *from, Arena *a, Expr **nodes)
{
    ExprPool *to = arena_new(a, ExprPool);
    Expr *all = arena_array(a, Expr, (size_t)from->count + 1);
    if (!to || !all) return NULL;
    to->arena = a;
    *nodes = all;
    if (copy_nodes(to, from, all) && copy_symbols(to, from, all) && copy_facts(to, from, all) &&
        copy_equalities(to, from, all))
        return to;
    expr_pool_free(to);
    return NULL;
}
