/* Products between quantizers as products of integers: the last thing done to a graph before it is planned for runs.
 *
 *     linear(dequantize(x8, s), dequantize(w8, t, axis 0), b)      ->  qkv.linear_integer(x8, s, w8, t, b)
 *     convolution(dequantize(x8, s), dequantize(w8, t), b)         ->  qkv.convolution_integer(x8, s, w8, t, b, ...)
 *     quantize(max_pool(x), s)                                     ->  max_pool(quantize(x, s))
 *     linear(x, dequantize(w4, t, blocks of 32), b)                ->  qkv.linear_blocks(x, none, w4, t, none, 32, ...)
 *     sdpa_quantized(dequantize(q8, s), ...)                       ->  sdpa_quantized(q8, ..., scale_q = s, ...)
 *
 * Values change by the rounding of float sums alone: integer sums are exact. What has another form stays as it is, and
 * runs in floats.
 */
#ifndef QKV_QUANTIZE_INTEGERS_H
#define QKV_QUANTIZE_INTEGERS_H
#include "ir/graph.h"

bool quantize_integers(Graph *g, Err *err);

bool quantize_one_number(const Value *v);                    /* is it of one element? */
bool quantize_all_zero(const Graph *g, const Arg *zero);     /* zero points: none, or constants that are all 0 */
bool quantize_within_4_bits(const Graph *g, const Value *v); /* a constant of i8 from -8 to 7 */
bool quantize_moves(const Node *n, const void *user);        /* a view that moves every element of a tensor */
#endif
