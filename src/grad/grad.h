/* Reverse-mode differentiation on the graph: forward and backward become one graph.
 *
 *     JointOptions o = {.loss = "output_0"};
 *     if (!graph_joint(g, &o, err)) ...       g has further outputs: the gradients of its parameters, then of inputs
 *
 * The graph is one that import made, before kernels are chosen: every row of the op table that runs says in its word
 * GRAD what its gradient is, in rows of the op table. So a joint graph is a graph like any other: it runs, is
 * rewritten, and is written as .pt2 or ONNX. Nodes are added only where a wanted leaf reaches the loss. A float operand
 * that a node needs again is read again, not saved under another name: what a softmax, an exponential or a norm needs
 * of its result is its result.
 */
#ifndef QKV_GRAD_GRAD_H
#define QKV_GRAD_GRAD_H
#include "ir/graph.h"

typedef enum Decompose {
    DECOMPOSE_NONE,
    DECOMPOSE_CORE, /* attention as for math, then every row that ATen's core has not as rows that it has; the .pt2
                       holds core ops alone */
    DECOMPOSE_MATH,
} Decompose;

/* What of the forward pass is computed again after it, so that it need not be kept until then. The values are the same:
 * random numbers are drawn once. */
typedef enum Recompute {
    RECOMPUTE_NONE,
    RECOMPUTE_CHEAP, /* results of ops that cost no product (norms, activations, softmax, casts) and follow from what is
                        kept anyway */
    RECOMPUTE_BLOCKS, /* all between cuts of the forward pass where the least is alive, as torch.utils.checkpoint around
                         blocks; cuts such that the least is kept at `sizes` */
} Recompute;

typedef struct JointOptions {
    const char *loss;    /* an output's name, or that of its value */
    Decompose decompose; /* of attention: its gradient is one op, as it is, or products and a softmax that the backward
                            pass reads; of all else, after it */
    const char *const *inputs; /* whose gradients are wanted, beside those of parameters; "*": all of floats */
    int ninputs;
    bool inputs_only; /* no gradients of parameters */
    Recompute recompute;
    const Binding *sizes; /* for which recompute weighs bytes; NULL with RECOMPUTE_NONE */
} JointOptions;

/* Errors: E_USAGE (no such output or input, a loss that is not one number, an integer parameter or input, nothing to
 * differentiate), E_UNSUPPORTED (an op without a gradient: named, with its path from the loss), E_LIMIT. After an
 * error the graph is of no more use. */
bool graph_joint(Graph *g, const JointOptions *o, Err *err);

/* The same for a joint graph: border is the last node of its forward pass. E_LIMIT. */
bool graph_recompute(Graph *g, const Node *border, Recompute how, const Binding *sizes, Err *err);

/* Every qkv.tangent becomes what it asks for: the derivative of its operand along the tangents of the qkv.make_dual of
 * its region, of which none is left. For graphs as they are imported. Errors: E_UNSUPPORTED (an op without such a
 * derivative, a region in a body), E_LIMIT. */
bool graph_tangents(Graph *g, Err *err);

/* For formats without a gradient of attention: every qkv.sdpa_backward becomes products and a softmax, and each
 * qkv.sdpa_lse whose logarithms nothing else reads becomes scaled_dot_product_attention. Errors: E_LIMIT. */
bool attention_written_out(Graph *g, Err *err);
/* For formats that have loops and no factors of matrices: every row with the word LOOPS becomes loops of plainer rows.
 * Errors: E_LIMIT. */
bool written_as_loops(Graph *g, Err *err);

/* Has its row the word GRAD? *kind: "formula", "code", "zero" or "never". For tests and docs. */
bool gradient_known(OpId op, const char **kind);
#endif
