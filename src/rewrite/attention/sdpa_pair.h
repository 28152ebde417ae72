/* The backward pass of an attention that is spelled out, found together with its forward pass and made qkv.sdpa_lse and
 * qkv.sdpa_backward.
 *
 *     P = softmax(S),  dP = dO v^T,  dS = P (dP - sum(P dP)),  dv = P^T dO,  dq = s dS k,  dk = s dS^T q        Dao et
 * al. 2022, appendix B.2
 *
 * The rules of rules/attention.rules give dS the form qkv.softmax_backward(P, dP), whose operands are forms qkv.scores.
 * From there every reader of P and dS is followed through views, numbers and masks that hide nothing more, until it is
 * a product that is one of the gradients, or the gradient of an additive mask. Only when all are, and P is not read
 * elsewhere, the gradients are replaced: rule sdpa_backward, then the forward pass: sdpa_lse. Both are logged and
 * proven like rules of the files.
 */
#ifndef QKV_REWRITE_ATTENTION_SDPA_PAIR_H
#define QKV_REWRITE_ATTENTION_SDPA_PAIR_H
#include "rewrite/rewrite.h"

GraftFn make_softmax_backward; /* probabilities, the gradient of them: both with forms qkv.scores */

/* Pass `pair` of program/passes.c. After the rules of a phase have come to rest, when all forms are there.
 * *changed: something fired. False: rw->err. */
bool sdpa_pairs(Rewrite *rw, bool *changed);
/* The name of the rule, under which a softmax says why its backward pass stayed as it is. */
extern const char sdpa_backward_rule[];
#endif
