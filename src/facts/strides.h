/* Strides as PyTorch gives them when the graph runs there. Here strides are the planner's business; there they decide
 * which kernels run, and they stand in a .pt2 beside the sizes.
 *
 *     Expr *stride[MAX_RANK];
 *     value_strides(g->ex, q, stride);         q = permute(reshape(linear), (0, 2, 1, 3)):  (N*H*D, D, H*D, 1)
 *
 * Views move the strides of their operand; a reshape that cannot is a copy; what computes element by element follows
 * the first operand of its sizes (TensorIterator keeps the order of memory); everything else is contiguous.
 */
#ifndef QKV_FACTS_STRIDES_H
#define QKV_FACTS_STRIDES_H
#include "ir/graph.h"

/* stride: room for v->rank. False when out of memory. */
bool value_strides(ExprPool *p, const Value *v, Expr **stride);
/* Of a contiguous tensor of these sizes. */
bool expr_strides(ExprPool *p, int rank, Expr *const *dim, Expr **stride);
/* Of a view of x, whose strides are old, in the sizes of v. False: no view can be it, and a reshape copies. */
bool reshaped_strides(ExprPool *p, const Value *x, Expr *const *old, const Value *v, Expr **stride);
#endif
