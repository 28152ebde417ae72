/* Lowering of random numbers that are functions of uniform and normal ones, drawn as PyTorch draws them.
 *
 *     exponential_(lambd)  -> -log1p(-u) / lambd, u = rand in float64
 *     multinomial(p, n)    -> topk(p / exponential, n); with replacement searchsorted(cumsum(p), u)
 *     log_normal_(m, s)    -> exp(z * s + m), z by Box and Muller (1958) from pairs of uniform numbers in float64
 */
#include <math.h>
#include "facts/axes.h"
#include "lower/lower_table.h"
#include "shape/shape.h"

static Arg num(Lower *L, double x) { return arg_float(L->g, x); }
static Arg sizes(Lower *L, const Value *x) { return arg_exprs(L->g, x->rank, x->dim); }

static bool want(Lower *L, Value **x)
{
    *x = lower_value(L, 0);
    return *x || lower_fail(L, 0, "expected a tensor");
}

static Value *uniform(Lower *L, const Value *like, DType t) { return AS(L, rand, sizes(L, like), arg_dtype(t)); }
static Value *normal(Lower *L, const Value *like) { return AS(L, randn, sizes(L, like), arg_dtype(like->dtype)); }

/* -log1p(-u) / lambd */
static Value *exponential(Lower *L, const Value *like, Arg lambd)
{
    Value *y = AS(L, log1p, v(AS(L, neg, v(uniform(L, like, DT_F64)))));
    y = AS(L, mul_Tensor, v(y),
           v(AS(L, reciprocal, v(AS(L, full, arg_ints(L->g, 0, NULL), lambd, arg_dtype(DT_F64))))));
    return lower_cast(L, AS(L, neg, v(y)), like->dtype);
}

bool lower_exponential(Lower *L)
{
    Value *x;
    return want(L, &x) && lower_return(L, exponential(L, x, L->arg[1]));
}

/* ceil(log(u) / log(1 - p)) */
bool lower_geometric(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    Value *p = AS(L, full, arg_ints(L->g, 0, NULL), L->arg[1], arg_dtype(DT_F64));
    Value *y = AS(L, div_Tensor, v(AS(L, log, v(uniform(L, x, DT_F64)))), v(AS(L, log1p, v(AS(L, neg, v(p))))));
    y = AS(L, ceil, v(y));
    return y && lower_return(L, lower_cast(L, y, x->dtype));
}

/* median + sigma * tan(pi (u - 1/2)) */
bool lower_cauchy(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    Value *y = AS(L, sub_Tensor, v(uniform(L, x, DT_F64)), num(L, 0.5));
    y = AS(L, tan, v(AS(L, mul_Tensor, v(y), num(L, 3.14159265358979323846))));
    y = AS(L, add_Tensor, v(AS(L, mul_Tensor, v(y), L->arg[2])), L->arg[1]);
    return y && lower_return(L, lower_cast(L, y, x->dtype));
}

/* How many whole numbers from 0 on a dtype has: of floats, those without a gap; 0: PyTorch draws all of them in another
 * way than a range */
static int64_t whole_numbers(DType t)
{
    switch (t) {
    case DT_F64: return ((int64_t)1 << 53) + 1;
    case DT_F32: return ((int64_t)1 << 24) + 1;
    case DT_F16: return ((int64_t)1 << 11) + 1;
    case DT_BF16: return ((int64_t)1 << 8) + 1;
    case DT_BOOL: return 2;
    default: return dtype_is_float(t) || dtype_highest(t) >= 0x1p28 ? 0 : (int64_t)dtype_highest(t) + 1;
    }
}

/* Integers from `from` (0) to before `to`, or all that the dtype has */
bool lower_random(Lower *L)
{
    Value *x;
    int from = op_param(L->op, "from"), to = op_param(L->op, "to");
    TRY(want(L, &x));
    int64_t all = whole_numbers(x->dtype);
    Arg high = to < 0 || lower_is_none(L, to) ? arg_int(L->g, all) : L->arg[to];
    if ((to < 0 || lower_is_none(L, to)) && !all)
        return lower_fail(L, 0, "%s, of which no range is drawn here; give one", dtype_name(x->dtype));
    return lower_return(L, AS(L, randint_low, from < 0 ? arg_int(L->g, 0) : L->arg[from], high, sizes(L, x),
                              arg_dtype(x->dtype)));
}

/* z * std + mean, in the shape of self, of both together, or of the given size */
bool lower_normal(Lower *L)
{
    Value *a = lower_value(L, 0), *b = lower_value(L, 1), *like = a;
    int size = op_param(L->op, "size"), at = op_param(L->op, "mean"), dtype = op_param(L->op, "dtype");
    if (size >= 0) like = AS(L, empty_memory_format, L->arg[size], L->arg[dtype]);
    else if (a && b) like = AS(L, add_Tensor, v(a), v(b));
    else if (!a) like = b;
    if (!like) return lower_fail(L, 0, "expected a tensor");
    bool pairs = dtype_is_complex(like->dtype); /* both parts have the mean, and half of the variance */
    Arg mean = L->arg[at], std = L->arg[at + 1]; /* PyTorch's gradients of them are zero */
    if (pairs) TRY(like = AS(L, view_as_real, v(like)));
    if (mean.kind == ARG_VALUE) mean = v(AS(L, detach, mean));
    if (std.kind == ARG_VALUE) std = v(AS(L, detach, std));
    Value *y = normal(L, like);
    if (pairs) y = AS(L, mul_Tensor, v(y), arg_float(L->g, 0.70710678118654752440));
    y = AS(L, add_Tensor, v(AS(L, mul_Tensor, v(y), std)), mean);
    return lower_return(L, pairs ? AS(L, view_as_complex, v(y)) : y);
}

/* n normal numbers one pair after the other, as log_normal_ draws them whatever n is, and normal_ where memory is in
 * another order: radius from the second uniform number of a pair, angle from the first */
static Value *normal_pairs(Lower *L, Expr *n)
{
    Expr *half = ex_floordiv(L->ex, ex_add(L->ex, n, ex_int(L->ex, 1)), ex_int(L->ex, 2));
    Arg last = arg_int(L->g, 1);
    Value *u = AS(L, rand, arg_exprs(L->g, 2, (Expr *[]){half, ex_int(L->ex, 2)}), arg_dtype(DT_F64));
    Value *angle = AS(L, mul_Tensor, v(AS(L, select_int, v(u), last, arg_int(L->g, 0))), num(L, 6.283185307179586477));
    Value *radius = AS(L, log1p, v(AS(L, neg, v(AS(L, select_int, v(u), last, last)))));
    radius = AS(L, sqrt, v(AS(L, mul_Tensor, v(radius), num(L, -2))));
    Value *even = AS(L, mul_Tensor, v(radius), v(AS(L, cos, v(angle)))),
          *odd = AS(L, mul_Tensor, v(radius), v(AS(L, sin, v(angle))));
    Value *z = even && odd ? AS(L, stack, arg_values(L->g, 2, (Value *[]){even, odd}), last) : NULL;
    return AS(L, slice_Tensor, v(AS(L, ravel, v(z))), arg_int(L->g, 0), arg_int(L->g, 0), arg_expr(n));
}

Value *lower_normal_pairs(Lower *L, const Value *like, DType t)
{
    Value *z = normal_pairs(L, product_of(L->ex, like->rank, like->dim));
    return lower_reshape(L, lower_cast(L, z, t), like->rank, like->dim);
}

bool lower_log_normal(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    Value *z = normal_pairs(L, product_of(L->ex, x->rank, x->dim));
    z = AS(L, add_Tensor, v(AS(L, mul_Tensor, v(z), L->arg[2])), L->arg[1]);
    z = lower_reshape(L, lower_cast(L, AS(L, exp, v(z)), x->dtype), x->rank, x->dim);
    return lower_return(L, z);
}

/* 1 where a uniform number is below the probability: self's own, or a tensor's */
bool lower_bernoulli(Lower *L)
{
    Value *x, *p;
    TRY(want(L, &x));
    p = op_param(L->op, "p") > 0 ? lower_value(L, 1) : x;
    if (!p) return lower_fail(L, 1, "expected a tensor");
    Value *y = AS(L, lt_Tensor, v(uniform(L, x, p->dtype == DT_F64 ? DT_F64 : DT_F32)), v(p));
    return y && lower_return(L, lower_cast(L, y, x->dtype));
}

/* Of each of n uniform numbers the first class whose sum of probabilities reaches it */
static Value *drawn_again(Lower *L, Value *x, int64_t n)
{
    Arg last = arg_int(L->g, -1), one = arg_int(L->g, 1);
    Expr *dim[MAX_RANK], *classes = x->dim[x->rank - 1];
    for (int i = 0; i < x->rank; i++) dim[i] = i == x->rank - 1 ? ex_int(L->ex, n) : x->dim[i];
    Value *sums = AS(L, cumsum, v(lower_cast(L, x, x->dtype == DT_F64 ? DT_F64 : DT_F32)), last);
    TRY(sums);
    Value *sum = AS(L, narrow, v(sums), last, arg_expr(ex_sub(L->ex, classes, ex_int(L->ex, 1))), one);
    sums = lower_cast(L, AS(L, div_Tensor, v(sums), v(sum)), DT_F64);
    Value *u = AS(L, rand, arg_exprs(L->g, x->rank, dim), arg_dtype(DT_F64));
    Value *at = sums && u ? AS(L, searchsorted_Tensor, v(sums), v(u)) : NULL;
    return AS(L, clamp_max, v(at), arg_expr(ex_sub(L->ex, classes, ex_int(L->ex, 1))));
}

/* Not negative, not infinite, and not all 0: what multinomial draws by */
static Value *weights(Lower *L, Value *x)
{
    Value *sums = AS(L, sum_dim_IntList, v(x), arg_ints(L->g, 1, (int64_t[]){-1}), arg_bool(L->g, true));
    Value *above = AS(L, ge_Tensor, v(x), num(L, 0)), *below = AS(L, lt_Tensor, v(x), num(L, (double)INFINITY));
    Value *some = AS(L, gt_Tensor, v(sums), num(L, 0)), *each = AS(L, logical_and, v(above), v(below));
    return some && each ? AS(L, logical_and, v(each), v(some)) : NULL;
}

/* The places of the n largest p / exponential: without replacement, or one draw */
bool lower_multinomial(Lower *L)
{
    Value *x;
    int64_t n;
    bool again;
    TRY(want(L, &x) && lower_const_int(L, 1, &n) && lower_const_bool(L, 2, &again));
    if (x->rank < 1 || x->rank > 2) return lower_fail(L, 0, "rank %d, expected 1 or 2", x->rank);
    if (!dtype_is_float(x->dtype)) return lower_fail(L, 0, "%s, expected floats", dtype_name(x->dtype));
    if (n < 1) return lower_fail(L, 1, "found %lld, expected 1 or more", (long long)n);
    Value *valid = weights(L, x);
    if (again && n > 1) return lower_return(L, lower_only_if(L, valid, drawn_again(L, x, n)));
    Value *y = AS(L, div_Tensor, v(x), v(exponential(L, x, num(L, 1))));
    Arg last = arg_int(L->g, -1);
    if (n == 1) return lower_return(L, lower_only_if(L, valid, AS(L, argmax, v(y), last, arg_bool(L->g, true))));
    y = AS(L, topk, v(y), L->arg[1], last);
    return y && lower_return(L, lower_only_if(L, valid, y->def->out[1]));
}
