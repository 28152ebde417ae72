/* What an attention mask says: bands around the diagonal (causal, sliding windows) apart from the rest. */
#ifndef QKV_REWRITE_ATTENTION_MASK_H
#define QKV_REWRITE_ATTENTION_MASK_H
#include "rewrite/build.h"

/* A scaled_dot_product_attention with a mask: the same with lower, upper or is_causal instead, as far as that is
 * exact. */
GraftFn make_banded;
#endif
