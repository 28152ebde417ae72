/* Quasi-affine index expressions: polynomials over sizes and index variables, with floor divisions as atoms.
 *
 *     Expr *i = ix_var(&x, "o", 0, extent);         0 <= o0 < extent, 0 where the extent is 1
 *     ix_div(&x, ix_mul(8 * i + j), 8)              i, where 0 <= j < 8 is known
 *
 * One form each: a remainder is x - n * (x // n), so that 8 * (x // 8) + x % 8 is x. NULL: too large; NULL operands
 * give NULL. What is assumed of a size is its declared range.
 */
#ifndef QKV_CERTIFY_INDEX_H
#define QKV_CERTIFY_INDEX_H
#include "expr/expr.h"

enum { INDEX_MEMO = 1 << 12 };

typedef struct Index {
    ExprPool *p;
    Arena *arena;
    Expr **extent; /* by symbol: of an index variable; NULL of a size */
    int n;
    struct {
        const Expr *e, *n; /* n: NULL of what is asked to be 0 or more */
        Expr *is;
    } *memo; /* INDEX_MEMO of them */
    int steps; /* of the question that is asked now, against a limit */
    int asked; /* steps and terms of all questions of the claim, against a limit */
} Index;

/* Called o0#7: no size of a file has such a name. */
Expr *ix_var(Index *x, const char *prefix, int number, Expr *extent);
Expr *ix_div(Index *x, Expr *e, Expr *n); /* floor(e / n), n >= 1 */
Expr *ix_mod(Index *x, Expr *e, Expr *n);
/* A size with its remainders by numbers as quotients: s0 + -s0 % 8 is 8 * ((s0 + 7) // 8). */
Expr *ix_plain(Index *x, Expr *e);
Expr *ix_subst(Index *x, Expr *e, const Expr *var, Expr *by);
/* Does an index variable occur in e, or are its symbols sizes alone? */
bool ix_varies(const Index *x, const Expr *e);
/* Provably e >= 0; 0 <= e < n; for all sizes in range and all values of index variables. */
bool ix_nonneg(Index *x, Expr *e);
bool ix_within(Index *x, Expr *e, Expr *n);
#endif
