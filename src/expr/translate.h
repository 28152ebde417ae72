/* An expression of one pool in another, or with other symbols.
 *
 *     expr_translate(inner, 2*s0, symbol_inside, map)      2*d0, where symbol_inside gives d0 for s0
 *
 * `symbol` gives what stands for a symbol of the first pool; NULL where nothing does, and then the result is NULL.
 * It is NULL, too, of an expression that is very deep or, written out, very long.
 */
#ifndef QKV_EXPR_TRANSLATE_H
#define QKV_EXPR_TRANSLATE_H
#include "expr/expr.h"

typedef Expr *SymbolFn(void *user, const Expr *symbol);
Expr *expr_translate(ExprPool *to, const Expr *e, SymbolFn *symbol, void *user);
/* e with what f makes of each argument in its place; e itself where that changes none. NULL where f gives NULL, or the
 * result is too large. */
Expr *expr_map(ExprPool *p, Expr *e, Expr *(*f)(void *user, Expr *arg), void *user);
/* The same within one pool: by[i] stands for symbol i, itself where that is NULL. known has room for all nodes there
 * are at the first call, zeroed; what shared parts became is kept in it. An expression without such symbols is itself;
 * NULL: the result is too large. */
Expr *expr_replace(ExprPool *p, Expr *e, Expr *const *by, Expr **known);
#endif
