/* From pool to pool, from symbol to symbol. Contract and example in translate.h. */
#include "expr/translate.h"

enum { MAX_DEPTH = 64, MAX_PARTS = 4096 }; /* of expressions that are taken over; a part counts wherever it stands */

static Expr *translate(ExprPool *to, const Expr *e, SymbolFn *symbol, void *user, int *parts)
{
    if (++*parts > MAX_PARTS) return NULL;
    switch (e->kind) {
    case EX_INT: return ex_int(to, e->i);
    case EX_FLOAT: return ex_float(to, e->f);
    case EX_BOOL: return ex_bool(to, e->i != 0);
    case EX_SYM: return symbol(user, e);
    default: break;
    }
    Expr *arg[3] = {0};
    if (e->depth > MAX_DEPTH) return NULL;
    for (int i = 0; i < e->nargs; i++) {
        Expr *x = translate(to, e->args[i], symbol, user, parts);
        if (!x) return NULL;
        if (i < 2 || e->kind == EX_WHERE) arg[i] = x;
        else arg[1] = x;
        if (i && e->kind != EX_WHERE && i + 1 < e->nargs) { /* sums and products of many */
            arg[0] = ex_make(to, e->kind, arg[0], arg[1], NULL);
            arg[1] = NULL;
        }
    }
    return ex_make(to, e->kind, arg[0], arg[1], arg[2]);
}

Expr *expr_translate(ExprPool *to, const Expr *e, SymbolFn *symbol, void *user)
{
    int parts = 0;
    return translate(to, e, symbol, user, &parts);
}

Expr *expr_map(ExprPool *p, Expr *e, Expr *(*f)(void *user, Expr *arg), void *user)
{
    Expr *arg[3] = {0}, *all = NULL;
    bool same = true, many = e->kind == EX_ADD || e->kind == EX_MUL;
    for (int i = 0; i < e->nargs; i++) {
        Expr *x = f(user, e->args[i]);
        if (!x) return NULL;
        same &= x == e->args[i];
        if (i < 3) arg[i] = x;
        all = !i ? x : e->kind == EX_ADD ? ex_add(p, all, x) : e->kind == EX_MUL ? ex_mul(p, all, x) : all;
    }
    if (same) return e; /* a condition that is assumed folds to true when it is made once more */
    return many ? all : ex_make(p, e->kind, arg[0], arg[1], arg[2]);
}

typedef struct Replace {
    ExprPool *p;
    Expr *const *by;
    Expr **known;
} Replace;

static Expr *replaced(void *user, Expr *e)
{
    const Replace *r = user;
    return expr_replace(r->p, e, r->by, r->known);
}

Expr *expr_replace(ExprPool *p, Expr *e, Expr *const *by, Expr **known)
{
    if (e->kind == EX_SYM) return by[e->i] ? by[e->i] : e;
    if (!e->symbols) return e;
    if (!known[e->id]) known[e->id] = expr_map(p, e, replaced, &(Replace){p, by, known});
    return known[e->id];
}
