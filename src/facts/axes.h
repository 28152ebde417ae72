/* The axes of values and their sizes: which are equal, which correspond to each other.
 *
 *     same_dims(x, y)                         (B, 1, N) and (B, 1, N)
 *     same_but_ones(x, y)                     (B, 1, N) and (B, N)
 *     axis_groups((B, N, H * D) to (B * N, H, D))      two groups: (B, N) to (B * N), (H * D) to (H, D)
 *
 * Sizes are expressions; equal means the same pointer.
 */
#ifndef QKV_FACTS_AXES_H
#define QKV_FACTS_AXES_H
#include "ir/graph.h"

bool is_one(const Expr *e);
bool exprs_same(int n, Expr *const *a, Expr *const *b);
bool has_dims(const Value *v, int rank, Expr *const *dim);
bool same_dims(const Value *x, const Value *y);
int wide_axes(const Value *v, int *axis);           /* those other than 1, in order; how many */
bool same_but_ones(const Value *x, const Value *y); /* the same axes in order, but for those of 1 */
Expr *product_of(ExprPool *p, int n, Expr *const *dim);
/* The permutation of a permute node, axes from the front; false if n is none. */
bool permutation_of(const Node *n, int *perm);
/* Groups of axes with equal products: from[f[i] .. f[i + 1]) and to[t[i] .. t[i + 1]). The number of groups, or -1. */
int axis_groups(ExprPool *p, int nfrom, Expr *const *from, int nto, Expr *const *to, int *f, int *t);
#endif
