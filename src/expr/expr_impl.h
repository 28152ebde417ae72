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

enum { MAX_FACTS = 64 };

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
};
/* The node equal to *want, made if new; NULL: out of memory, or too many or too deep. want->args may be a temporary
 * array. */
Expr *expr_intern(ExprPool *p, const Expr *want);
bool expr_is_name(const char *s); /* what prints as one word and reads back as the same symbol */
#endif
