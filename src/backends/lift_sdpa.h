/* Attention in the form for which PyTorch has a fast kernel: what keeps it from one is changed, where the values stay.
 *
 *     RewriteLog log = {0};
 *     lift_rank(g, &source, prover, &log, err)        attention of other axes, which import made
 *                                                     (batch, heads, length, size)
 *     lift_sdpa(g, &device, prover, &log, err)      after the rules
 *
 * masks get 4 axes; head sizes are padded with zeros, scale kept, and the result is cut; operands whose last axis is
 * turned are made contiguous. Only what brings a better kernel on the device (backends/sdpa_choice.h) is done, and
 * nothing more of it than needed.
 */
#ifndef QKV_BACKENDS_LIFT_SDPA_H
#define QKV_BACKENDS_LIFT_SDPA_H
#include "backends/sdpa_choice.h"
#include "rewrite/prove.h"

/* An attention as the file has it, and the value that import made of it. */
typedef struct LiftSource {
    const char *node;
    Value *q, *k, *v, *mask, *out;
    bool causal, gqa;
    Expr *scale; /* NULL: 1 / sqrt(head size) */
} LiftSource;

/* Logs the 4 axes as a firing; with a prover, softmax(q k^T) v of the file's axes is evaluated against them. Where
 * out is not in the graph, nothing. */
bool lift_rank(Graph *g, const LiftSource *s, const Prover *prover, RewriteLog *log, Err *err);
bool lift_sdpa(Graph *g, const SdpaDevice *d, const Prover *prover, RewriteLog *log, Err *err);
#endif
