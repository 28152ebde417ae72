/* What the writers of attention share: an attention's parts as values of the file. NULL, false: e->err. */
#ifndef QKV_PT2_WRITE_ATTENTION_H
#define QKV_PT2_WRITE_ATTENTION_H
#include "pt2/write/write_impl.h"

typedef struct Attention {
    Emit *e;
    const Node *n;
    Value *q, *k, *v, *mask;
    Expr *lower, *upper; /* key j for query i: i + lower <= j <= i + upper; NULL = no bound */
    Arg scale;           /* none: 1 / sqrt(head size) */
} Attention;

Value *pair_cast(Emit *e, Value *x, DType t);
/* With the last axis contiguous. */
Value *pair_rows(Emit *e, Value *x);
/* (B, Hkv, M, D) with each head as often as queries share it, and what comes back to such heads, summed. */
Value *pair_every_head(Attention *a, Value *x);
Value *pair_shared_heads(const Attention *a, Value *x, const Value *like);
Arg pair_scale(const Attention *a);
/* What mask and bounds allow, additive in the query's dtype, of 2 or 4 axes; NULL for none, and where is_causal says
 * all. */
bool pair_mask(Attention *a, bool causal, Value **out);
Value *pair_mask_gradient(const Attention *a, Value *ds); /* summed where the mask broadcasts */
bool pair_finish(Emit *e, Value *x, Value *out);          /* x, in the dtype and sizes of a result of the node */

/* kernels.c: the pair as PyTorch's ops for a GPU; kernel: "flash", "efficient" or "cudnn". */
bool write_kernel(Attention *a, const char *kernel, bool causal);
bool write_kernel_backward(Attention *a, const char *kernel, bool causal);
#endif
