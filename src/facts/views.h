/* What a value shows: the value whose elements it is made of, followed down through first operands.
 *
 *     through_casts(permute(_to_copy(x)))        x
 *     through_views(permute(_to_copy(x)))        _to_copy(x)
 *     value_below(v, only_expand, NULL)          what v is an expand of, however often; v itself when it is none
 *
 * A view (OPF_VIEW) has elements of its first operand alone, perhaps in another order, fewer or repeated; a cast has
 * the same ones in another dtype. Views of bytes (view.dtype) and detach are views, too. A NULL value gives NULL.
 */
#ifndef QKV_FACTS_VIEWS_H
#define QKV_FACTS_VIEWS_H
#include "ir/graph.h"

/* May a walk go on from this node to its first operand? */
typedef bool PassFn(const Node *n, const void *user);

Value *value_below(const Value *v, PassFn *passes, const void *user);
Value *through_views(const Value *v);
Value *through_casts(const Value *v); /* and views */
/* Is v `from`, or reached from it by views alone? */
bool is_view_of(const Value *v, const Value *from);
#endif
