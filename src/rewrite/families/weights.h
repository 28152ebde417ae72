/* Weights that rules make out of others while they rewrite: scaled, joined. They live as long as the graph; those that
 * no firing used, and old ones that no node uses any more, leave the graph when the rewriting ends.
 *
 *     Value *from[] = {w, scale};
 *     Value *v = weight_made(rw, "scaled", 2, from);
 *     if (!v) v = weight_add(rw, "scaled", 2, from, "conv1.folded_weight",
 *                             weight_room(rw, DT_F32, 4, shape) ... filled);
 */
#ifndef QKV_REWRITE_FAMILIES_WEIGHTS_H
#define QKV_REWRITE_FAMILIES_WEIGHTS_H
#include "rewrite/build.h"

/* A weight that no run changes, used once, whose bytes no other weight has. False says why (rewrite_refuse). */
bool weight_own(Rewrite *rw, const Value *v);
/* The new weight that was made in this way from these (NULL among them is fine), NULL when there is none yet. */
Value *weight_made(Rewrite *rw, const char *how, int n, Value *const *from);
/* Contiguous room for a new one. */
Tensor *weight_room(Rewrite *rw, DType t, int rank, const int64_t *shape);
/* A parameter named fqn, or fqn_1, fqn_2 ... when that is taken. */
Value *weight_add(Rewrite *rw, const char *how, int n, Value *const *from, const char *fqn, const Tensor *data);
/* What v, made by weight_add, is in ops, made by rw_add: for proofs, as its numbers are rounded. May be NULL. */
void weight_means(Rewrite *rw, const Value *v, Value *meaning);
/* "a.b.weight" -> "a.b.NAME"; "weight" -> "NAME". */
const char *weight_sibling(Rewrite *rw, const Value *w, const char *name);
/* out[0 .. n): a value that depends on constant weights alone and varies along one axis of size n at most. False
 * says why. */
bool weight_numbers(Rewrite *rw, const Value *v, int64_t n, double *out);
#endif
