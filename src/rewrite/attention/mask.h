/* What an attention mask says: bands around the diagonal (causal, sliding windows) apart from the rest. */
#ifndef QKV_REWRITE_ATTENTION_MASK_H
#define QKV_REWRITE_ATTENTION_MASK_H
#include "rewrite/build.h"

/* Is (v != 0) == wanted exactly where i + lower <= j <= i + upper, for queries i of N and keys j of M? Narrows *lower and *upper (NULL:
 * unbounded) then, and leaves them alone otherwise. */
bool mask_band(Rewrite *rw, const Value *v, bool wanted, Expr *N, Expr *M, Expr **lower, Expr **upper);
/* The same for an additive mask: 0 where allowed, a number that hides elsewhere. */
bool mask_additive_band(Rewrite *rw, Value *v, Expr *N, Expr *M, Expr **lower, Expr **upper);
GraftFn
    make_banded; /* a scaled_dot_product_attention with a mask: the same with lower, upper or is_causal instead, as far as that is exact */
#endif
