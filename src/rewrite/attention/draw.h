/* The hooks of the family for proofs (rewrite/family.h): the mask of an attention, and numbers for it. */
#ifndef QKV_REWRITE_ATTENTION_DRAW_H
#define QKV_REWRITE_ATTENTION_DRAW_H
#include "rewrite/family.h"

const Value *attention_drawn(const Node *n);
void attention_draw(Tensor *t, int seed, Waiver waiver, uint64_t *random);
/* Rows of a safe softmax: a row without a number is what makes it safe. */
const Value *softmax_rows_drawn(const Node *n);
void softmax_rows_draw(Tensor *t, int seed, Waiver waiver, uint64_t *random);
#endif
