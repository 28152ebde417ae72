/* What an attention mask says: bands around the diagonal (causal, sliding windows) apart from the rest. */
#ifndef QKV_REWRITE_MASK_H
#define QKV_REWRITE_MASK_H
#include "rewrite/build.h"

/* Does every element of v hold 0 or 1 (a bool tensor does)? */
bool mask_zero_one(const Graph *g, const Value *v);
GraftFn make_banded; /* a scaled_dot_product_attention with a mask: the same with lower, upper or is_causal instead, as far as that is exact */
#endif
