/* Proofs of skipped padding by evaluation: a region's borders, dense and packed, as functions of the model's inputs,
 * with masks of several kinds: all real, padding after, before, in between, a sample of padding alone.
 */
#ifndef QKV_PADDING_SKIP_PROVE_H
#define QKV_PADDING_SKIP_PROVE_H
#include "padding/skip_padding.h"
#include "padding/skip_tokens.h"

typedef struct SkipBorder {
    Value *dense, *padded; /* what the region gives; what takes its place: zeros at padding */
    Tag tag;
} SkipBorder;

typedef struct SkipClaim {
    const Graph *g; /* with both */
    Expr *B, *S;
    const Value *source; /* what the mask is made of: drawn, where it is not an input, too */
    int sign;            /* key_mask_witnesses: 1, 2; 0: added to scores */
    Value *real;         /* bool (B, S) */
    int n;
    const SkipBorder *border;
} SkipClaim;

/* False: they differ (E_MISMATCH). p->skipped and p->why when nothing could be evaluated. */
bool skip_prove(const Prover *prover, const SkipClaim *c, Proof *p, Err *err);
#endif
