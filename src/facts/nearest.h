/* Whether ONNX Runtime and PyTorch take the same elements where they resample to the nearest.
 *
 *     nearest_agrees(in, out, ex_float(ex, 2), false, true)        true
 *     nearest_agrees(in, out, ex_float(ex, 1.7), false, true)      false: 17 / 1.7 is 10, 17 * (1 / 1.7) less
 */
#ifndef QKV_FACTS_NEAREST_H
#define QKV_FACTS_NEAREST_H
#include "expr/expr.h"

/* An axis from size in to size out, by scale, or, where it is NULL, by the sizes' ratio. ONNX Runtime divides a place
 * by the scale, PyTorch multiplies by its reciprocal, both in float32. PyTorch disregards the scale where a line or a
 * picture (flat: not a volume) keeps or doubles its size, ONNX Runtime where all axes keep it. exact: nearest-exact,
 * the middles of pixels. Sizes that vary are asked for the first 65,536 elements; their ratio is taken to agree. */
bool nearest_agrees(const Expr *in, const Expr *out, const Expr *scale, bool exact, bool flat);
#endif
