/* From pool to pool, from symbol to symbol. Contract and example in translate.h. */
#include "expr/translate.h"

enum { MAX_DEPTH = 64 }; /* of expressions that are taken over */

Expr *expr_translate(ExprPool *to, const Expr *e, SymbolFn *symbol, void *user)
{
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
        Expr *x = expr_translate(to, e->args[i], symbol, user);
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

Expr *expr_replace(ExprPool *p, Expr *e, Expr *const *by, Expr **known)
{
    if (e->kind == EX_SYM) return by[e->i] ? by[e->i] : e;
    if (!e->symbols) return e;
    if (known[e->id]) return known[e->id];
    Expr *arg[3] = {0}, *all = NULL;
    bool same = true;
    for (int i = 0; i < e->nargs; i++) {
        Expr *x = expr_replace(p, e->args[i], by, known);
        if (!x) return NULL;
        same &= x == e->args[i];
        if (i < 3) arg[i] = x;
        all = !i ? x : e->kind == EX_ADD ? ex_add(p, all, x) : e->kind == EX_MUL ? ex_mul(p, all, x) : all;
    }
    if (same) all = e; /* a condition that is assumed folds to true when it is made once more */
    else if (e->kind != EX_ADD && e->kind != EX_MUL) all = ex_make(p, e->kind, arg[0], arg[1], arg[2]);
    return known[e->id] = all;
}
