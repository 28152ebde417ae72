/* Words for formulas of tensors and matrices; NULL of NULL. */
#ifndef QKV_LOWER_WORDS_H
#define QKV_LOWER_WORDS_H
#include "lower/lower.h"

static inline Value *times(Lower *L, Value *a, Value *b)
{
    return a && b ? AS(L, mul_Tensor, arg_value(a), arg_value(b)) : NULL;
}

static inline Value *plus(Lower *L, Value *a, Value *b)
{
    return a && b ? AS(L, add_Tensor, arg_value(a), arg_value(b)) : NULL;
}

static inline Value *minus(Lower *L, Value *a, Value *b)
{
    return a && b ? AS(L, sub_Tensor, arg_value(a), arg_value(b)) : NULL;
}

static inline Value *product(Lower *L, Value *a, Value *b)
{
    return a && b ? AS(L, matmul, arg_value(a), arg_value(b)) : NULL;
}

static inline Value *adjoint(Lower *L, Value *a) { return a ? AS(L, mH, arg_value(a)) : NULL; }
#endif
