/* What an attention's mask says of its keys alone: which tokens are padding. For skip_padding.c.
 *
 *     where(and(causal, padding[:, None, None, :] == 0), 0, -3.4e38)    =    upper = 0, and the part `padding == 0`
 */
#ifndef QKV_PADDING_KEY_MASK_H
#define QKV_PADDING_KEY_MASK_H
#include "rewrite/attention/mask.h"

enum { MAX_KEY_PARTS = 8 };

/* Tokens are real where every part says so. A part is a value that does not vary along heads and queries. */
typedef struct KeyPart {
    Value *v;
    bool additive; /* real where v is above what hides; else v is bool, and real where it is not `negated` */
    bool negated;
    bool biased; /* additive: real tokens may have another number than 0 there, which is added to their scores */
} KeyPart;

typedef struct KeyMask {
    KeyPart part[MAX_KEY_PARTS];
    int n;
    Expr *lower, *upper; /* bounds of positions beside them; NULL: unbounded */
    char why[200];       /* why it is not such a mask */
} KeyMask;

/* The mask of a scaled_dot_product_attention taken apart. False: it hides in another way, why says what stands in
 * the way. */
bool key_mask_of(Rewrite *rw, const Node *attention, KeyMask *m);
/* The same of a qkv.sdpa_varlen of an earlier skip_padding. False: its offsets come from elsewhere. */
bool key_mask_of_packed(Rewrite *rw, const Node *attention, KeyMask *m);
bool key_mask_same(const KeyMask *a, const KeyMask *b); /* the same tokens are real */
/* New nodes at the end of the graph: bool (B, S), true where a token is real; what is added to the scores of a key,
 * (B, S), NULL when that is 0 throughout (*bias). NULL: an error. */
Value *key_mask_real(Graph *g, const KeyMask *m, Expr *B, Expr *S, Err *err);
bool key_mask_bias(Graph *g, const KeyMask *m, Expr *B, Expr *S, Value **bias, Err *err);
/* Values that the mask is made of, by id: 1 where they are 0 at padding and only there, 2 where they are 0 at real
 * tokens and only there. A mask of integers is 0s and 1s. Returns the first of them, an input where there is one. */
const Value *key_mask_witnesses(Rewrite *rw, const KeyMask *m, unsigned char *witness);
/* What v is made of, one step below, where v is 0 just where that is, or (*other) just where that is not; NULL: v is
 * made in another way. */
const Value *key_mask_below(Rewrite *rw, const Value *v, bool *other);
#endif
