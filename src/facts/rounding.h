/* Which floats the values of a graph are rounded to on their way.
 *
 *     linear (f32) -> _to_copy bf16 -> softmax bf16 -> _to_copy f32 -> add (f32)        the sum: bf16
 *
 * A last bit of float32 decides how such a value is rounded, so that two right ways to compute the sum differ as two
 * bf16 results do. Numbers that a file or a caller gives in bf16 are exact.
 */
#ifndef QKV_FACTS_ROUNDING_H
#define QKV_FACTS_ROUNDING_H
#include "ir/graph.h"

/* to[id of a value], g->next_id of them: the one of which most is allowed (tensor/tolerance.def) of its own dtype and
 * those of the computed values that it follows from. */
bool rounded_to(const Graph *g, DType *to, Err *err);
#endif
