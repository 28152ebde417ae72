/* Words of gradients by name, beside those of formulas; NULL of NULL. */
#ifndef QKV_LOWER_BACKWARD_H
#define QKV_LOWER_BACKWARD_H
#include "lower/words.h"

static inline Arg num(Lower *L, double n) { return arg_float(L->g, n); }
static inline Value *scaled(Lower *L, Value *x, Arg n) { return x ? AS(L, mul_Tensor, v(x), n) : NULL; }
static inline Value *over(Lower *L, Value *x, Arg n) { return x ? AS(L, div_Tensor, v(x), n) : NULL; }
static inline Value *over_value(Lower *L, Value *x, Value *y) { return y ? over(L, x, v(y)) : NULL; }
static inline Value *blank(Lower *L, Arg size, DType t) { return AS(L, full, size, num(L, 0), arg_dtype(t)); }
static inline Value *shaped(Lower *L, Value *x, const Value *like)
{
    return lower_reshape(L, x, like->rank, like->dim);
}
static inline Value *where(Lower *L, Value *c, Arg a, Arg b) { return c ? AS(L, where_self, v(c), a, b) : NULL; }
static inline Value *unsqueezed(Lower *L, Value *x, int at)
{
    return x ? AS(L, unsqueeze, v(x), arg_int(L->g, at)) : NULL;
}

/* The n results, in dtype t. */
static inline bool give_all(Lower *L, int n, Value **y, DType t)
{
    for (int i = 0; i < n; i++) TRY(y[i] && (y[i] = lower_cast(L, y[i], t)));
    return lower_return_values(L, n, y);
}
#endif
