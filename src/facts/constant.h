/* Constants: values that follow from numbers and constant weights, whatever the inputs are.
 *
 *     constant_of(g, &node->arg[1], &x)        x = 0.125 for full([], 1) / sqrt(64), for a weight of one element ...
 *     number_of(g, &node->arg[1])              the same; also sizes: 2*N
 *     zero_or_one(g, mask)                     all elements are 0 or 1: a bool, tril(full([N, N], 1.0)) ...
 *     constant_numbers(g, v, C, out, why)      out[C]: a batch norm's gamma / sqrt(var + eps) as (1, C, 1, 1)
 *
 * A weight that a run writes is not a constant.
 */
#ifndef QKV_FACTS_CONSTANT_H
#define QKV_FACTS_CONSTANT_H
#include "ir/graph.h"

/* The elements of a weight that no run changes; NULL for all else and for complex numbers. */
const Tensor *constant_tensor(const Graph *g, const Value *v);
/* Is v a weight that no run changes? False: why not. */
bool constant_weight(const Graph *g, const Value *v, Err *why);

/* A number, or a tensor whose elements are all the same one that follows from constants and sizes; NULL otherwise. */
Expr *number_of(const Graph *g, const Arg *a);
bool constant_of(const Graph *g, const Arg *a, double *x); /* number_of, and it is a constant */
bool constant_value(const Graph *g, const Value *v, double *x);
/* The integer that all elements of v are, each step rounded to its dtype: what a run would read there. */
bool constant_integer(const Graph *g, const Value *v, int64_t *x);
/* What an op makes of numbers; false: it is none of those that are worked out ahead. */
bool op_of_number(OpId op, double x, double *y);
bool op_of_numbers(OpId op, double a, double b, double *y);

/* out[0 .. n): a value that depends on constant weights alone and varies along one axis of size n at most. */
bool constant_numbers(const Graph *g, const Value *v, int64_t n, double *out, Err *why);
/* Does every element of v hold 0 or 1 (a bool tensor does)? */
bool zero_or_one(const Graph *g, const Value *v);
#endif
