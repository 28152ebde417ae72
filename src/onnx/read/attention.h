/* Attention as the ops of ai.onnx and com.microsoft share it. All tensors (B, heads, length, head size). */
#ifndef QKV_ONNX_READ_ATTENTION_H
#define QKV_ONNX_READ_ATTENTION_H
#include "onnx/read/read_impl.h"

enum { MAX_HEADS = 1 << 20 };

typedef struct Attend {
    Value *q, *k, *v;      /* (B, H, N, D), (B, Hkv, M, D), (B, Hkv, M, E) */
    Value *mask;           /* bool (true: attend), or floats that are added; broadcasts to (B, H, N, M); may be NULL */
    Expr *lower, *upper;   /* key j only where i + lower <= j <= i + upper; NULL: no bound */
    double scale, softcap; /* scale 0: 1 / sqrt(D); softcap 0: none */
    Value *sink;           /* (H): one more score per head that takes probability and gives no value; may be NULL */
} Attend;

/* (B, N, H) with `heads` heads, or (B, heads, N, D) as it is -> (B, heads, N, D);
 * false with a message when heads do not divide. */
bool split_heads(OnnxOp *o, int input, int64_t heads, Value **x);
Value *merge_heads(OnnxOp *o, Value *x);   /* (B, H, N, E) -> (B, N, H * E) */
Value *attend(OnnxOp *o, const Attend *a); /* (B, H, N, E) */
/* The additive form of a mask: 0 or `fill` where bool; t is its dtype. */
Value *additive_mask(OnnxOp *o, Value *mask, DType t, double fill);
Value *both_masks(OnnxOp *o, Value *a, Value *b); /* either may be NULL; bools intersect, floats add */
/* Keys j (of M) against queries i (of N), as (..., N, M): j - i - shift, with shift (B) or NULL. */
Value *distance(OnnxOp *o, Expr *N, Expr *M, Value *shift);
/* x (B, H, N, D) rotated by cos, sin (1 or B, 1, N, D / 2): the first `dim` elements of each head (0: all). */
Value *rotate(OnnxOp *o, Value *x, Value *cos, Value *sin, int64_t dim, bool interleaved);
/* Rows of a table (max length, D / 2) at positions (1 or B, N) -> (1 or B, 1, N, D / 2). */
Value *angles(OnnxOp *o, Value *table, Value *positions);
#endif
