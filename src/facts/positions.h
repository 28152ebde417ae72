/* Integers that are linear in positions, for all sizes at once.
 *
 *     arange(M) + 3                                  3 + 1 * (index along the last axis)
 *     arange(N)[:, None] - 2 * arange(M)             0 - 2 * (index along the last axis) + 1 * (along the one before)
 */
#ifndef QKV_FACTS_POSITIONS_H
#define QKV_FACTS_POSITIONS_H
#include "ir/graph.h"

/* c + sum of factor[a] * (index along axis a), axes counted from the last. */
typedef struct Linear {
    Expr *c;
    int64_t factor[MAX_RANK];
} Linear;

/* Is a (a number or a tensor) linear in positions? *budget: how many values are looked at, shared ones each time; less
 * by those afterwards. Beyond it the answer is no. */
bool linear_in_positions(const Graph *g, const Arg *a, Linear *l, int *budget);
/* x of where(x < 0, x + n, x), as indices of ONNX are spelled; v itself where it is none. */
const Value *index_from_end(const Graph *g, const Value *v);
bool linear_times(ExprPool *p, Linear *l, int64_t by);
bool linear_plus(ExprPool *p, Linear *l, const Linear *m, int64_t by); /* l += by * m */
#endif
