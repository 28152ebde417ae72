/* Arithmetic, functions, comparisons and products of complex tensors, in reals. Contract in lower/complex.h.
 *
 *     mul(a, b)      re = ar br - ai bi, im = ar bi + ai br; the imaginary part of a real operand is 0, and 0 times an
 *                    infinity NaN
 *     matmul(a, b)   the same with products of matrices
 *
 * Functions of one number are formulas of their rows (COMPLEX_FORMULA).
 */
#include <float.h>
#include <math.h>
#include "lower/complex.h"
#include "lower/lower_table.h"
#include "lower/words.h"
#include "shape/shape.h"

static Value *over(Lower *L, Value *a, Value *b) { return AS(L, div_Tensor, v(a), v(b)); }
static Value *scaled(Lower *L, Value *x, Arg by) { return AS(L, mul_Tensor, v(x), by); }
static Value *negative(Lower *L, Value *a) { return AS(L, neg, v(a)); }
static Value *zero_like(Lower *L, Value *x) { return AS(L, zeros_like, v(x)); }
static Value *size_of(Lower *L, Parts z) { return AS(L, modulus, v(z.re), v(z.im)); }
static Value *angle_of(Lower *L, Parts z) { return AS(L, atan2, v(z.im), v(z.re)); }

static bool polar(Lower *L, Value *r, Value *t)
{
    return complex_return(L, times(L, r, AS(L, cos, v(t))), times(L, r, AS(L, sin, v(t))));
}

static bool first(Lower *L, Parts *z)
{
    return complex_parts(L, lower_value(L, 0), z) && (z->im || lower_fail(L, 0, "expected a complex tensor"));
}

/* A number stands for a tensor of rank 0: it does not widen the other operand. No complex dtype has bf16 parts. */
static Value *operand(Lower *L, int i)
{
    Value *x = lower_value(L, i);
    if (x && x->dtype == DT_BF16) return lower_cast(L, x, DT_F32);
    if (L->arg[i].kind != ARG_EXPR) return x;
    DType other = lower_value(L, 1 - i)->dtype;
    return AS(L, full, arg_exprs(L->g, 0, NULL), L->arg[i], arg_dtype(complex_real_of(other)));
}

static bool operands(Lower *L, Parts *a, Parts *b)
{
    return complex_parts(L, operand(L, 0), a) && complex_parts(L, operand(L, 1), b);
}

/* ------------------------------------------------------------------ + - * / */

/* add and sub: the third argument is a factor of the second */
bool complex_add(Lower *L)
{
    bool less = L->op->id == OP_sub_Tensor;
    Parts a, b;
    TRY(operands(L, &a, &b));
    if (!lower_is_number(&L->arg[2], 1)) TRY(complex_parts(L, AS(L, mul_Tensor, v(operand(L, 1)), L->arg[2]), &b));
    Value *re = less ? minus(L, a.re, b.re) : plus(L, a.re, b.re), *ai = a.im ? a.im : zero_like(L, a.re),
          *bi = b.im ? b.im : zero_like(L, b.re);
    return complex_return(L, re, less ? minus(L, ai, bi) : plus(L, ai, bi));
}

/* The second argument less the first times the third */
bool complex_rsub(Lower *L)
{
    Value *less = operand(L, 0), *from = operand(L, 1);
    if (!lower_is_number(&L->arg[2], 1)) less = AS(L, mul_Tensor, v(less), L->arg[2]);
    return lower_return(L, AS(L, sub_Tensor, v(from), v(less)));
}

Value *complex_product(Lower *L, OpId op, Parts a, Parts b)
{
    Value *rr = lower_as(L, op, 2, (Arg[]){v(a.re), v(b.re)});
    Value *ri = b.im ? lower_as(L, op, 2, (Arg[]){v(a.re), v(b.im)}) : NULL;
    Value *ir = a.im ? lower_as(L, op, 2, (Arg[]){v(a.im), v(b.re)}) : NULL;
    if (!a.im || !b.im) return L->err->code == E_OK ? complex_joined(L, rr, a.im ? ir : ri) : NULL;
    Value *ii = lower_as(L, op, 2, (Arg[]){v(a.im), v(b.im)});
    Value *re = minus(L, rr, ii), *im = plus(L, ri, ir);
    return re && im ? complex_joined(L, re, im) : NULL;
}

bool complex_multiply(Lower *L)
{
    Parts a, b;
    TRY(operands(L, &a, &b));
    if (a.im && b.im) return lower_return(L, complex_product(L, OP_mul_Tensor, a, b));
    Parts z = a.im ? a : b;
    Value *r = a.im ? b.re : a.re, *re = minus(L, times(L, z.re, r), scaled(L, z.im, arg_float(L->g, 0)));
    return complex_return(L, re, plus(L, scaled(L, z.re, arg_float(L->g, 0)), times(L, z.im, r)));
}

bool complex_matmul(Lower *L)
{
    Parts a, b;
    return operands(L, &a, &b) && lower_return(L, complex_product(L, OP_matmul, a, b));
}

/* 1 / z by its larger part, as NumPy and PyTorch divide: nothing overflows, 1 / inf is 0, 1 / 0 is inf + nan i. */
static Parts inverse(Lower *L, Parts z)
{
    Value *wide = AS(L, ge_Tensor, v(AS(L, abs, v(z.re))), v(AS(L, abs, v(z.im))));
    Value *large = AS(L, where_self, v(wide), v(z.re), v(z.im)), *small = AS(L, where_self, v(wide), v(z.im), v(z.re));
    Value *ratio = over(L, small, large), *scale = AS(L, reciprocal, v(plus(L, large, times(L, small, ratio))));
    Value *re = times(L, AS(L, where_ScalarSelf, v(wide), arg_float(L->g, 1), v(ratio)), scale);
    Value *im = times(L, AS(L, where_ScalarOther, v(wide), v(negative(L, ratio)), arg_float(L->g, -1)), scale);
    Value *zero = AS(L, logical_and, v(AS(L, eq_Scalar, v(z.re), arg_int(L->g, 0))),
                     v(AS(L, eq_Scalar, v(z.im), arg_int(L->g, 0))));
    return (Parts){AS(L, where_ScalarSelf, v(zero), arg_float(L->g, INFINITY), v(re)), im};
}

bool complex_divide(Lower *L)
{
    Parts a, b;
    TRY(operands(L, &a, &b));
    if (!b.im) { /* as PyTorch: 0 is that without a sign, beside which 0 times an infinity is not looked at */
        const Arg none = arg_float(L->g, 0);
        const Expr *number = lower_expr(L, 1);
        Value *re = plus(L, a.re, scaled(L, a.im, none)), *im = minus(L, a.im, scaled(L, a.re, none));
        if (number && ex_is_const(number) && ex_number(number) != 0)
            return complex_return(L, over(L, re, b.re), over(L, im, b.re));
        Value *zero = AS(L, eq_Scalar, v(b.re), none), *by = AS(L, where_ScalarSelf, v(zero), none, v(b.re));
        re = AS(L, where_self, v(zero), v(a.re), v(re));
        im = AS(L, where_self, v(zero), v(a.im), v(im));
        return complex_return(L, over(L, re, by), over(L, im, by));
    }
    return lower_return(L, complex_product(L, OP_mul_Tensor, a, inverse(L, b)));
}

bool complex_reciprocal(Lower *L)
{
    Parts z;
    TRY(first(L, &z));
    z = inverse(L, z);
    return complex_return(L, z.re, z.im);
}

bool complex_square(Lower *L)
{
    Parts z;
    return first(L, &z) && lower_return(L, complex_product(L, OP_mul_Tensor, z, z));
}

/* ------------------------------------------------------------------ functions */

bool complex_abs(Lower *L)
{
    Parts z;
    return first(L, &z) && lower_return(L, size_of(L, z));
}

/* The row of the absolute values: norms */
bool complex_of_size(Lower *L)
{
    Parts z;
    int n = L->op->schema->nparams;
    Arg *arg = arena_array(L->g->arena, Arg, n + 1);
    if (!arg) return oom(L->err);
    for (int i = 1; i < n; i++) /* the dtype is one of the absolute values */
        arg[i] = L->arg[i].kind == ARG_DTYPE && dtype_is_complex(L->arg[i].dtype)
                     ? arg_dtype(complex_real_of(L->arg[i].dtype))
                     : L->arg[i];
    TRY(complex_parts(L, lower_value(L, 0), &z));
    arg[0] = v(z.im ? size_of(L, z) : z.re);
    return arg[0].v && lower_return(L, lower_as(L, L->op->id, n, arg));
}

/* z / |z|; z / inf for 0, whose gradient is then 0, too */
bool complex_sgn(Lower *L)
{
    Parts z;
    TRY(first(L, &z));
    Value *size = size_of(L, z), *none = AS(L, eq_Tensor, v(size), arg_int(L->g, 0));
    size = none ? AS(L, masked_fill_Scalar, v(size), v(none), arg_float(L->g, INFINITY)) : NULL;
    return size && complex_return(L, over(L, z.re, size), over(L, z.im, size));
}

/* z^n for an integer n >= 1, by squares */
static Value *whole_power(Lower *L, Parts z, int n)
{
    Value *y = NULL;
    for (Parts square = z; n && L->err->code == E_OK; n >>= 1) {
        Parts done;
        if (n & 1 && !y) y = complex_joined(L, square.re, square.im);
        else if (n & 1 && complex_parts(L, y, &done)) y = complex_product(L, OP_mul_Tensor, done, square);
        Value *next = n > 1 ? complex_product(L, OP_mul_Tensor, square, square) : NULL;
        if (n > 1 && !complex_parts(L, next, &square)) return NULL;
    }
    return L->err->code == E_OK ? y : NULL;
}

enum { MOST_FACTORS = 32 };

/* A real exponent: |z|^p turned by p angle(z), but for the roots and whole powers that PyTorch sees */
static bool real_power(Lower *L, Parts z, Arg p)
{
    const Expr *e = p.kind == ARG_EXPR ? p.e : NULL;
    double n = e && ex_is_const(e) ? ex_number(e) : 0;
    if (n == 0.5) return lower_return(L, AS(L, sqrt, L->arg[0]));
    if (n == -0.5) return lower_return(L, AS(L, rsqrt, L->arg[0]));
    if (n >= 1 && n <= MOST_FACTORS && n == (int)n) return lower_return(L, whole_power(L, z, (int)n));
    if (n <= -1 && n >= -MOST_FACTORS && n == (int)n) return lower_return(L, whole_power(L, inverse(L, z), (int)-n));
    Value *r = AS(L, pow_Tensor_Tensor, v(size_of(L, z)), p);
    return r && polar(L, r, scaled(L, angle_of(L, z), p));
}

/* a^b = exp(b log a); 0^b is 0 but for b = 0 */
static bool complex_power(Lower *L, Parts a, Parts b)
{
    if (!a.im) a.im = zero_like(L, a.re);
    Value *size = size_of(L, a);
    Value *y = complex_product(L, OP_mul_Tensor, b, (Parts){AS(L, log, v(size)), angle_of(L, a)});
    y = y ? AS(L, exp, v(y)) : NULL;
    Value *none = AS(L, eq_Tensor, v(size), arg_int(L->g, 0));
    Value *zero = y ? AS(L, eq_Tensor, v(complex_joined(L, b.re, b.im)), arg_int(L->g, 0)) : NULL;
    zero = zero ? lower_cast(L, lower_cast(L, zero, complex_real_of(y->dtype)), y->dtype) : NULL;
    return zero && none && lower_return(L, AS(L, where_self, v(none), v(zero), v(y)));
}

bool complex_pow(Lower *L)
{
    Parts a, b;
    if (L->arg[1].kind == ARG_EXPR) return first(L, &a) && real_power(L, a, L->arg[1]);
    TRY(operands(L, &a, &b));
    return b.im ? complex_power(L, a, b) : real_power(L, a, v(b.re));
}

/* ------------------------------------------------------------------ comparisons */

/* eq and ne, of both parts */
bool complex_same(Lower *L)
{
    Parts a, b;
    bool equal = L->op->id == OP_eq_Tensor;
    TRY(operands(L, &a, &b));
    if (!a.im) a.im = zero_like(L, a.re);
    if (!b.im) b.im = zero_like(L, b.re);
    Value *re = lower_as(L, L->op->id, 2, (Arg[]){v(a.re), v(b.re)}),
          *im = lower_as(L, L->op->id, 2, (Arg[]){v(a.im), v(b.im)});
    return re && im && lower_return(L, equal ? AS(L, logical_and, v(re), v(im)) : AS(L, logical_or, v(re), v(im)));
}

/* A test that one part passes */
static bool test_parts(Lower *L, bool both)
{
    Parts z;
    TRY(first(L, &z));
    Value *re = lower_as(L, L->op->id, 1, (Arg[]){v(z.re)}), *im = lower_as(L, L->op->id, 1, (Arg[]){v(z.im)});
    return re && im && lower_return(L, both ? AS(L, logical_and, v(re), v(im)) : AS(L, logical_or, v(re), v(im)));
}

bool complex_either(Lower *L) { return test_parts(L, false); }
bool complex_both(Lower *L) { return test_parts(L, true); }

/* ------------------------------------------------------------------ reductions and products */

/* prod, cumprod: of the absolute values, turned by the sum of the angles */
bool complex_prod(Lower *L)
{
    Parts z;
    bool scan = L->op->id == OP_cumprod;
    TRY(first(L, &z));
    Value *r = size_of(L, z), *t = angle_of(L, z);
    r = scan ? AS(L, cumprod, v(r), L->arg[1]) : AS(L, prod_dim_int, v(r), L->arg[1], L->arg[2]);
    Arg dim = scan ? L->arg[1] : arg_exprs(L->g, 1, (Expr *[]){L->arg[1].e});
    t = scan ? AS(L, cumsum, v(t), dim) : AS(L, sum_dim_IntList, v(t), dim, L->arg[2]);
    return r && t && polar(L, r, t);
}

/* log(sum(exp(z - m))) + m, m the largest real part */
bool complex_logsumexp(Lower *L)
{
    Parts z;
    TRY(first(L, &z));
    Value *m = AS(L, detach, v(AS(L, amax, v(z.re), L->arg[1], arg_bool(L->g, true))));
    m = m ? AS(L, masked_fill_Scalar, v(m), v(AS(L, isinf, v(m))), arg_float(L->g, 0)) : NULL;
    Value *y = m ? AS(L, exp, v(minus(L, lower_value(L, 0), m))) : NULL;
    y = y ? AS(L, log, v(AS(L, sum_dim_IntList, v(y), L->arg[1], arg_bool(L->g, true)))) : NULL;
    y = y ? plus(L, y, m) : NULL;
    bool keep;
    TRY(y && lower_const_bool(L, 2, &keep));
    return lower_return(L, keep ? y : AS(L, squeeze_dims, v(y), L->arg[1]));
}

/* (input, normalized_shape, weight, eps): z / sqrt(mean(z^2) + eps) */
bool complex_rms_norm(Lower *L)
{
    Value *z = lower_value(L, 0);
    int64_t dims[MAX_RANK];
    for (int i = 0; i < L->arg[1].n; i++) dims[i] = i - L->arg[1].n;
    double least = z->dtype == DT_C128 ? DBL_EPSILON : (double)FLT_EPSILON;
    Arg eps = lower_is_none(L, 3) ? arg_float(L->g, least) : L->arg[3];
    Value *m = AS(L, mean_dim, v(AS(L, square, v(z))), arg_ints(L->g, L->arg[1].n, dims), arg_bool(L->g, true));
    Value *y = m ? times(L, z, AS(L, rsqrt, v(plus(L, m, AS(L, full, arg_exprs(L->g, 0, NULL), eps))))) : NULL;
    return y && lower_return(L, lower_is_none(L, 2) ? y : AS(L, mul_Tensor, v(y), L->arg[2]));
}

/* (input, weight, bias, ...): products of parts, the bias with the first of each sum */
bool complex_convolution(Lower *L)
{
    Parts x, w, b = {NULL, NULL};
    int n = L->op->schema->nparams;
    Value *part[2][2] = {{NULL}};
    Arg *arg = complex_args(L);
    if (!arg) return false;
    TRY(complex_parts(L, lower_value(L, 0), &x) && complex_parts(L, lower_value(L, 1), &w));
    if (!lower_is_none(L, 2)) TRY(complex_parts(L, lower_value(L, 2), &b));
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) {
            Value *of[] = {i ? x.im : x.re, k ? w.im : w.re, i ? NULL : k ? b.im : b.re};
            for (int j = 0; j < 3; j++) arg[j] = of[j] ? v(of[j]) : arg_none();
            if (of[0] && of[1]) TRY(part[i][k] = lower_as(L, L->op->id, n, arg));
        }
    Value *re = part[1][1] ? minus(L, part[0][0], part[1][1]) : part[0][0];
    Value *im = part[0][1] && part[1][0] ? plus(L, part[0][1], part[1][0]) : part[0][1] ? part[0][1] : part[1][0];
    if (!part[0][1] && b.im) return lower_fail(L, 2, "a complex bias of a real weight");
    return complex_return(L, re, im);
}

/* (input, weight, bias) */
bool complex_linear(Lower *L)
{
    Value *w = complex_value(L, 1, DT_NONE), *x = lower_value(L, 0);
    if (!w || !x) return lower_fail(L, w ? 0 : 1, "expected a tensor");
    Value *y = AS(L, matmul, v(x), v(w->rank < 2 ? w : AS(L, t, v(w))));
    return lower_return(L, lower_is_none(L, 2) || !y ? y : AS(L, add_Tensor, v(y), L->arg[2]));
}

/* The conjugate of the first operand, then the row that is not conjugated. */
bool complex_vdot(Lower *L)
{
    Value *a, *b;
    TRY(lower_two(L, 0, 1, &a, &b));
    return lower_return(L, AS(L, dot, v(AS(L, conj, v(a))), v(b)));
}

bool complex_vecdot(Lower *L)
{
    Value *a, *b;
    TRY(lower_two(L, 0, 1, &a, &b));
    Value *p = times(L, AS(L, conj, v(a)), b);
    return p && lower_return(L, AS(L, sum_dim_IntList, v(p), arg_exprs(L->g, 1, (Expr *[]){L->arg[2].e})));
}

/* var, with the mean of both parts: the sum of their variances */
/* Of both parts together. */
static Value *variance(Lower *L)
{
    Parts z;
    int n = L->op->schema->nparams;
    Arg *arg = arena_array(L->g->arena, Arg, n + 1);
    if (!arg) {
        oom(L->err);
        return NULL;
    }
    for (int i = 1; i < n; i++) arg[i] = L->arg[i];
    if (!first(L, &z)) return NULL;
    arg[0] = v(z.re);
    Value *re = lower_as(L, OP_var_correction, n, arg);
    arg[0] = v(z.im);
    Value *im = lower_as(L, OP_var_correction, n, arg);
    return re && im ? plus(L, re, im) : NULL;
}

bool complex_var(Lower *L) { return lower_return(L, variance(L)); }
bool complex_std(Lower *L) { return lower_return(L, AS(L, sqrt, v(variance(L)))); }

/* mH, adjoint, matrix_H */
bool complex_adjoint(Lower *L) { return lower_return(L, AS(L, conj, v(AS(L, mT, L->arg[0])))); }
