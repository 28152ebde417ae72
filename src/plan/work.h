/* What a step does, from its bound shapes: floating-point operations and bytes that must move at least once.
 *
 *     Work w = work_of(&step->call);
 *     w.flops / ms / 1e6        GFLOP/s
 *
 * Operations: a product counts 2 M N K, a convolution and attention likewise; attention counts the pairs of query and
 * key that its bounds allow, so that a causal one counts half, whatever a mask forbids; a row of normalisation or
 * softmax has a fixed number an element; a pointwise op has one; copies and indexing have none. Bytes: every operand's
 * elements once (a broadcast axis counts once, a gather counts what it takes) and the results.
 */
#ifndef QKV_PLAN_WORK_H
#define QKV_PLAN_WORK_H
#include "plan/call.h"

typedef struct Work {
    double flops, bytes;
    bool half; /* the operations are products of bf16 or f16 values */
} Work;

Work work_of(const Call *c);
#endif
