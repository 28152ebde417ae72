/* Weights of 4 bits that a file holds in bytes, as a .pt2 does, as weights of i4.
 *
 *     dequantize_linear(w: i8 (N, K), scale (N, K / 32), axis 1, block 32)   ->  the same of w: i4
 */
#ifndef QKV_QUANTIZE_FOUR_BITS_H
#define QKV_QUANTIZE_FOUR_BITS_H
#include "ir/graph.h"

/* Constants that inverses of quantizers alone read, by a scale a block, or a row of what a product with floats takes.
 * Their elements stay where they are: i4 has a byte an element in memory, too. */
bool weights_in_four_bits(Graph *g, Err *err);
#endif
