/* Fusion: which nodes vanish into others. Decided once per graph, used by every plan.
 *
 *     linear -> gelu            linear -> add(residual)            linear -> gelu -> _to_copy -> add(residual)
 *     linear -> silu -> mul(linear)                  x sigmoid(1.702 x) after a linear
 *     convolution -> relu       convolution -> add(residual)       convolution -> add(residual) -> relu
 *     linear_integer -> gelu -> quantize_linear
 *     convolution_integer -> add(dequantize_linear) -> relu -> quantize_linear
 *     convolution_integer -> clamp -> quantize_linear
 *     unfold -> unfold -> permute -> reshape -> matmul
 *     layer_norm -> _to_copy(bf16)                                 add(_to_copy(x, f32), y)
 *
 * Epilogues: a linear, matmul or convolution takes what follows it; a cast of a result is taken by the op that computes
 * it. The step of the fused node runs where its last absorbed node stood, so that the residual is there. Casts to
 * float32 whose users read any float vanish, too: the users read what was cast.
 */
#ifndef QKV_PLAN_FUSE_H
#define QKV_PLAN_FUSE_H
#include "plan/call.h"

typedef struct FusedNode {
    bool absorbed;      /* this node makes no step: another one computes it */
    bool rounds_weight; /* a cast of a float32 weight to bf16 for linears alone: they are given the weight and round it
                           when they pack it */
    bool transparent;   /* a cast that makes no step: its value is the tensor that it would cast */
    bool windows;       /* a reshape to three axes that only a matmul reads, as its second operand: where strides cannot
                           say it, the matmul gets what is reshaped (Call.windows) instead of a copy */
    bool times;             /* on the producer: the residual is multiplied with */
    bool act_last;          /* on the producer: the activation comes after the residual */
    unsigned char act;      /* on the producer: ACT_* of Call.epilogue */
    const Node *producer; /* set on the LAST absorbed node: the linear/convolution/matmul whose step stands here and
                             writes this result */
    Value *residual;      /* on the producer: added after the activation; NULL = none */
    const Node *inverse;  /* on the producer: the dequantize_linear of one scale whose integers are the residual, and
                             which makes no step; NULL: none */
    int64_t least_rows; /* of a linear or matmul: rows of its result at the least sizes of the inputs, whatever they are
                           in a run */
    const Node *rounds; /* on the producer: the quantize_linear of one scale that its epilogue ends in; NULL: none */
    const Node *clamps; /* on the producer: the clamp between numbers in front of that; NULL: none */
    Value *result;      /* on the producer: the value its step writes; NULL = its own output (nothing fused) */
} FusedNode;

typedef struct Fusion {
    FusedNode *node; /* by id of the node's first output value; graph->next_id of them */
    int n;
} Fusion;

bool fuse_graph(const Graph *g, Fusion *f, Err *err);
void fusion_free(Fusion *f);
#endif
