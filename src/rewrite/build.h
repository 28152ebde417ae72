/* Builders for grafts and graft functions: nodes that are not in the graph until a rule fires, folded as they are made,
 * so that rules see few spellings: a reshape of a reshape is one, a permute that undoes another is nothing, a cast to
 * the same dtype is nothing. The same op with the same arguments is made once.
 *
 * NULL: refused (rewrite_refuse says why) or failed (rw->hard). NULL operands give NULL, so calls can be nested.
 */
#ifndef QKV_REWRITE_BUILD_H
#define QKV_REWRITE_BUILD_H
#include "facts/axes.h"
#include "facts/constant.h"
#include "rewrite/rewrite.h"

/* The node made before with this op and these arguments, NULL when there is none; and how one becomes such a node. */
Node *rewrite_made(Rewrite *rw, const Op *op, const Arg *arg);
bool rewrite_remember(Rewrite *rw, Node *n);
Value *rw_add(Rewrite *rw, OpId op, int n, const Arg *args);
#define RW(rw, op, ...) rw_add((rw), OP_##op, (int)(sizeof((Arg[]){__VA_ARGS__}) / sizeof(Arg)), (Arg[]){__VA_ARGS__})
Value *rw_reshape(Rewrite *rw, Value *v, int rank, Expr *const *dim);
Value *rw_permute(Rewrite *rw, Value *v, const int *perm);
Value *rw_swap_last(Rewrite *rw, Value *v); /* transposes the last two axes */
Value *rw_expand(Rewrite *rw, Value *v, int rank, Expr *const *dim);
/* The reshape, permutation or expansion that `node` is, of v in place of its operand. v NULL: NULL. */
Value *rw_view_again(Rewrite *rw, const Node *node, Value *v);
Value *rw_cast(Rewrite *rw, Value *v, DType t);
Value *rw_binary(Rewrite *rw, OpId op, Value *v, Arg other); /* add, sub, mul, div with alpha = 1 */
Value *rw_pad_rank(Rewrite *rw, Value *v, int rank);         /* axes of 1 in front */
/* x over axes from[] as the same elements over to[]; both have the same product, x broadcasts to from[] (+ `tail`
 * more axes, kept). Axes of 1 stay 1 wherever a whole group of axes is 1. */
Value *rw_regroup(Rewrite *rw, Value *x, int nfrom, Expr *const *from, int nto, Expr *const *to, int tail);
#endif
