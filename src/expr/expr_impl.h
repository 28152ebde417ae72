/* The pool of expressions: for expr.c, expr_pool.c and expr_range.c. */
#ifndef QKV_EXPR_EXPR_IMPL_H
#define QKV_EXPR_EXPR_IMPL_H
#include "expr/expr.h"
#include "base/map.h"

/* lo <= e <= hi; a sum has no constant term */
typedef struct Fact {
    const Expr *e;
    int64_t lo, hi;
} Fact;

/* lead == rest, where lead is a product of anything but one symbol alone, or 4*(x//4); of one that says that the sum
 * `whole` is a number, the two as well (whole NULL: it does not). */
typedef struct Equality {
    Expr *lead, *rest, *whole;
    int64_t number;
} Equality;

enum { MAX_TERMS = 64 /* of a sum, and more than factors of a product */, MAX_FACTS = 256, MAX_EQUALITIES = 64 };

struct ExprPool {
    Arena *arena;
    Expr **slots;
    size_t nslots;
    uint32_t count;
    Symbol **symbols;
    int nsymbols;
    Map by_name;
    uint32_t stamp;
    Fact *facts;
    int nfacts;
    Equality *equal;
    int nequal, divides; /* equalities; quotients that are being made, one for the other */
};
/* The node equal to *want, made if new; NULL: out of memory, or too many or too deep. want->args may be a temporary
 * array. */
Expr *expr_intern(ExprPool *p, const Expr *want);
/* Sums and products have the rest of a == b in place of its lead from now on; false: no term of a - b can be the lead,
 * or there is no room. */
bool expr_equate(ExprPool *p, Expr *a, Expr *b);
Expr *expr_reduced(ExprPool *p, Expr *e); /* e as these equalities make it */
bool expr_at_most(ExprPool *p, Expr *a, Expr *b, int depth); /* a <= b for all sizes? */
#endif
