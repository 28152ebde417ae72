/* Matrix products, convolutions and attention in a narrower float, the rest in float32: what PyTorch's autocast does,
 * on a finished graph.
 *
 *     lower_precision(g, DT_BF16, err)          linear(x, w) becomes _to_copy(linear(_to_copy(x, bf16), _to_copy(w,
 *                                               bf16)), f32)
 *
 * Values between two such ops are narrow only where they are rounded anyway: casts move over views, towards the op that
 * computes the value or the ops that use it. The graph's inputs and outputs keep their dtypes. Attention of at most
 * four queries to keys and values that come in as float32 stays in float32: a step of a decoder reads its caches once.
 */
#ifndef QKV_PRECISION_PRECISION_H
#define QKV_PRECISION_PRECISION_H
#include "ir/graph.h"

/* t: DT_BF16 or DT_F16. Operands in other floats than float32 stay as they are. Errors: E_LIMIT. */
bool lower_precision(Graph *g, DType t, Err *err);
/* file: bias, float masks (not below the narrow type's least value) and embedding tables become narrow as well. */
bool lower_products_of(Graph *g, DType t, bool file, Err *err);

/* A model for a file: as lower_products_of, and the weights that only narrow ops read have the narrow type (narrow.c).
 * t DT_F32: every f16 or bf16 of the model becomes float32, inputs and outputs too. Errors: E_USAGE (a weight that f16
 * cannot hold), E_UNSUPPORTED, E_LIMIT. */
bool convert_precision(Graph *g, DType t, Err *err);
#endif
