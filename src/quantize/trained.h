/* Quantizers that a model was trained with: weights are rounded for good, the scales stay.
 *
 *     dequantize(clamp(quantize(w, s), -8, 7), s)     ->  dequantize(w4, s)
 *
 *     n = trained_weights(g)         weights that quantizers read: constants from here on
 *     fold_constants(g, err)         program/constants.h: what depends on constants alone is computed
 *     trained_settle(g, err)         blocks and 4 bits as they are written; views move integers
 */
#ifndef QKV_QUANTIZE_TRAINED_H
#define QKV_QUANTIZE_TRAINED_H
#include "ir/graph.h"

int trained_weights(Graph *g);
bool trained_settle(Graph *g, Err *err);
#endif
