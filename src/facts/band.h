/* Masks that follow from positions alone: "key j is allowed for query i when i + lower <= j <= i + upper" is proven
 * from how the mask is computed (arange and comparisons, tril, triu, constants whose elements are looked at), for all
 * sizes.
 *
 *     Band b = band_within(g, N, M, NULL, NULL);
 *     band_of(&b, v, true)                     v = le(arange(M), arange(N)[:, None]):  upper = 0
 *     band_of_bias(&b, w)                      w = triu(full([N, M], -inf), 1): the same
 */
#ifndef QKV_FACTS_BAND_H
#define QKV_FACTS_BAND_H
#include "ir/graph.h"

typedef struct Band {
    const Graph *g;
    Expr *N, *M;         /* queries and keys */
    Expr *lower, *upper; /* NULL: unbounded */
    int budget; /* values that questions may still look at, shared ones each time; beyond it the answer is no */
} Band;

Band band_within(const Graph *g, Expr *N, Expr *M, Expr *lower, Expr *upper);
void band_at_most(Band *b, Expr *upper);
void band_at_least(Band *b, Expr *lower);
/* Is (v != 0) == wanted exactly where a band allows? Narrows b to it then, and leaves its bounds alone otherwise. */
bool band_of(Band *b, const Value *v, bool wanted);
/* The same for an additive mask: 0 where allowed, a number that hides elsewhere. */
bool band_of_bias(Band *b, const Value *m);
#endif
