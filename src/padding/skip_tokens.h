/* Tokens through a graph: where the batch and token axes of values lie, and the same computation on the real tokens
 * alone.
 *
 *     linear(layer_norm(x (B, S, E)))    ->    linear(layer_norm(index_select(x (B*S, E), 0, real)))      (T, ...)
 *
 * A packed value has the T real tokens, batch by batch, as its first axis, and the others of the dense one after it in
 * their order.
 */
#ifndef QKV_PADDING_SKIP_TOKENS_H
#define QKV_PADDING_SKIP_TOKENS_H
#include "padding/key_mask.h"

typedef struct Tag {
    signed char b, s; /* axes of batch and tokens; equal: one axis of both, batch first; negative: unknown */
} Tag;

typedef struct Tokens {
    Graph *g;
    Rewrite *rw;
    Err *err;
    Expr *B, *S, *T;
    Tag *tag;                /* by value id, of the values that there were at first */
    Value **packed;          /* by value id: the packed one, once it was made */
    unsigned char *constant; /* by value id: depends on no input */
    int nvalues;
    Value *real; /* bool (B, S) */
    Value *index, *position, *batch,
        *offsets; /* of real tokens (T): in B*S, in S, in B; (B + 1): where samples begin among them */
} Tokens;

/* Does the op treat tokens one by one where its operands have the tags that are known? Tags of the result from those
 * of an operand, and the other way round. */
bool token_op(const Node *n);
bool tag_forward(Tokens *t, const Node *n); /* true when something is new */
bool tag_backward(Tokens *t, const Node *n);
/* All tags that n needs are known and agree. */
bool token_node(Tokens *t, const Node *n);

bool tokens_start(Tokens *t, const KeyMask *m); /* real, T, index, offsets */
Value *token_packed(Tokens *t, Value *v);       /* of a tagged value: made before, or gathered */
bool token_build(Tokens *t, const Node *n);     /* the packed result of a token_node */
Value *token_padded(Tokens *t, Value *v);       /* dense again: zeros at padding */
#endif
