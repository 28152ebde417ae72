/* Complex tensors in reals, for the files lower_complex*.c. Contract of lower_complex_operands and the like: lower.h.
 *
 *     Parts z;
 *     TRY(complex_parts(L, lower_value(L, 0), &z));
 *     return lower_return(L, complex_joined(L, z.re, negative of z.im));
 */
#ifndef QKV_LOWER_COMPLEX_H
#define QKV_LOWER_COMPLEX_H
#include "lower/lower.h"

#define COMPLEX(f) LowerFn complex_##f;
LowerFn complex_formula;
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"

typedef struct Parts { /* im is NULL for a real tensor */
    Value *re, *im;
} Parts;

DType complex_real_of(DType t); /* c64 -> f32 */
DType complex_of(DType t);      /* f32 -> c64 */
/* (...) complex -> (..., 2) reals, and back; of what the one made, the other takes the operand. NULL gives NULL. */
Value *complex_pairs(Lower *L, Value *z);
Value *complex_from_pairs(Lower *L, Value *pairs);
bool complex_parts(Lower *L, Value *z, Parts *p);
/* re and im of one shape and dtype, as a complex tensor; a missing im is 0. */
Value *complex_joined(Lower *L, Value *re, Value *im);
/* Argument i as a complex tensor: real ones are cast, a number is one of rank 0 and as wide as dtype `other`. */
Value *complex_value(Lower *L, int i, DType other);
bool complex_return(Lower *L, Value *re, Value *im);
/* Matrices (lower_complex_matrix.c): of squares, of columns and back; NULL gives NULL. */
Value *complex_whole(Lower *L, Value *z);
Value *complex_columns(Lower *L, Value *z);
Value *complex_of_columns(Lower *L, Value *x);
Value *complex_order(Lower *L, Value *info);
Value *complex_product(Lower *L, OpId op, Parts a, Parts b); /* op: mul.Tensor or matmul */
/* A copy of the row's arguments, to be changed; NULL: out of memory. */
Arg *complex_args(Lower *L);
#endif
