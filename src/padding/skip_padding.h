/* No work for padding: where a key padding mask marks tokens, what treats tokens one by one runs on the real ones
 * alone, and attention on real queries and keys alone (qkv.sdpa_varlen).
 *
 *     SkipLog log = {0};
 *     skip_padding(graph, prover, &log, err);       after rewrite_graph, when attention is scaled_dot_product_attention
 *     log.mask[0].applied, .nodes, .stop[0].node ...
 *     skip_log_free(&log);
 *
 * A region is what hangs together through ops that treat tokens one by one, attentions with that mask among them. It is
 * rebuilt on packed tensors, (T, ...) for the T real tokens; at its borders values are dense again, zeros at padding.
 * That is right at real tokens if nothing outside reads padded positions: an output may (zeros by definition), one
 * token of each sample may be picked, an attention may that hides them, and anybody where the dense value is 0 there,
 * too (multiplied by the mask before it is summed). Where somebody else does, the region stays dense, and the log says
 * who. With a prover, every region's borders are evaluated, dense and packed, on random inputs, with masks of several
 * kinds, before anything changes.
 */
#ifndef QKV_PADDING_SKIP_PADDING_H
#define QKV_PADDING_SKIP_PADDING_H
#include "rewrite/prove.h"

typedef struct SkipStop {
    const char *node, *op; /* who reads it; op NULL: node is an output's name */
    const char *value;     /* what is dense again */
    const char *why;
} SkipStop;

typedef struct SkipMask {
    const char *mask; /* the value that it comes from */
    bool applied, before;  /* before: when the file was packed */
    const char *why;       /* why not */
    int attentions, nodes; /* that run on real tokens */
    int nstops;
    SkipStop *stop;
    Proof proof;
} SkipMask;

typedef struct SkipLog {
    Arena *arena;
    int nmasks;
    SkipMask *mask;
    const char *nothing; /* set when there is no mask at all: why */
} SkipLog;

/* g stays as it is where nothing applies. A graph that runs on real tokens already has entries of its masks.
 * prover may be NULL. Errors: E_MISMATCH (a proof), E_LIMIT. */
bool skip_padding(Graph *g, const Prover *prover, SkipLog *log, Err *err);
void skip_log_free(SkipLog *log);
#endif
