/* Lowering of pointwise ops: type promotion made explicit, number overloads onto the tensor rows, composites onto plain
 * ones.
 *
 *     add(i64, f32)             -> add(_to_copy(i64, f32), f32)
 *     masked_fill(x, m, -1e9)   -> where(m, -1e9, x)
 *     add(x, y, alpha=2)        -> add(x, mul(y, 2))
 */
#include <math.h>
#include <string.h>
#include "facts/axes.h"
#include "lower/lower_table.h"
#include "shape/shape.h"

/* ------------------------------------------------------------------ promotion */

/* Casts the tensors among arg[from .. from + n) to t; numbers stay as they are. */
static bool cast_args(Lower *L, Arg *arg, int from, int n, DType t)
{
    for (int i = from; i < from + n; i++)
        if (arg[i].kind == ARG_VALUE) {
            if (dtype_is_complex(arg[i].v->dtype) && !dtype_is_complex(t))
                return fail(L->err, E_UNSUPPORTED, "%s of complex numbers", L->op->name);
            Value *v = lower_cast(L, arg[i].v, t);
            TRY(v);
            arg[i] = arg_value(v);
        }
    return true;
}

static DType common(const Arg *arg, int from, int n)
{
    Promote p = {DT_NONE, DT_NONE, DT_NONE};
    for (int i = from; i < from + n; i++) {
        if (arg[i].kind == ARG_VALUE) promote_value(&p, arg[i].v);
        if (arg[i].kind == ARG_EXPR) promote_expr(&p, arg[i].e);
    }
    return promote_result(&p);
}

/* How many leading parameters are tensors. */
static int leading_tensors(const Op *op)
{
    int n = 0;
    while (n < op->schema->nparams && op->schema->params[n].type == PT_TENSOR) n++;
    return n;
}

enum { MOST_ARGS = 8 };

/* A negative number beside bytes is what ATen makes of it: the byte of its last eight bits. */
static Arg number_beside(Lower *L, Arg a, DType t)
{
    bool wraps = t == DT_U8 && a.kind == ARG_EXPR && ex_is_const(a.e) && !a.e->is_float && a.e->i < 0;
    return wraps ? arg_int(L->g, (uint8_t)a.e->i) : a;
}

static bool emit_promoted(Lower *L, OpId op, const Arg *from, bool to_float)
{
    const Op *o = op_get(op);
    Arg arg[MOST_ARGS];
    int np = o->schema->nparams, n = leading_tensors(o);
    if (np > MOST_ARGS) return fail(L->err, E_UNSUPPORTED, "%s has too many arguments", o->name);
    for (int i = 0; i < np; i++) arg[i] = from[i];
    DType t = common(arg, 0, n);
    if (t == DT_NONE) return fail(L->err, E_FORMAT, "the operands have no common dtype");
    if (to_float && !dtype_is_float(t) && !dtype_is_complex(t)) t = DT_F32;
    TRY(cast_args(L, arg, 0, n, t));
    for (int i = 0; i < n; i++) arg[i] = number_beside(L, arg[i], t);
    return lower_return(L, lower_emit(L, op, np, arg));
}

bool lower_promote(Lower *L) { return emit_promoted(L, L->op->id, L->arg, false); }
bool lower_float2(Lower *L) { return emit_promoted(L, L->op->id, L->arg, true); }

/* (grad_output, self, approximate) */
bool lower_gelu_backward(Lower *L)
{
    Arg arg[3] = {L->arg[0], L->arg[1], L->arg[2]};
    DType t = common(arg, 0, 2);
    return cast_args(L, arg, 0, 2, t) && lower_return(L, lower_emit(L, L->op->id, 3, arg));
}

/* Ops of one tensor whose integer operands become float32. */
bool lower_float(Lower *L)
{
    Arg arg[MOST_ARGS];
    Value *x = lower_value(L, 0);
    if (!x) return lower_fail(L, 0, "expected a tensor");
    for (int i = 0; i < L->op->schema->nparams; i++) arg[i] = L->arg[i];
    if (!dtype_is_float(x->dtype)) TRY(cast_args(L, arg, 0, 1, DT_F32));
    return lower_return(L, lower_emit(L, L->op->id, L->op->schema->nparams, arg));
}

/* floor, ceil, round, trunc of integers are the integers. */
bool lower_keep_int(Lower *L)
{
    Value *x = lower_value(L, 0);
    if (x && !dtype_is_float(x->dtype)) return lower_return(L, x);
    return lower_keep(L);
}

/* ------------------------------------------------------------------ other names */

static bool again(Lower *L, OpId op, const Arg *arg)
{
    Lower M = *L;
    M.op = op_get(op);
    M.arg = arg;
    TRY(lower_op(&M));
    L->result = M.result;
    return true;
}

/* A second name of a row, arguments alike but for a generator, of which a file has none; numbers are operands of rows
 * for tensors. */
bool lower_alias(Lower *L)
{
    const Op *of = op_get(L->op->alias_of);
    Arg arg[MOST_ARGS];
    int generator = op_param(of, "generator") < 0 ? op_param(L->op, "generator") : -1, n = 0;
    if (generator < 0) return again(L, of->id, L->arg);
    for (int i = 0; i < L->op->schema->nparams; i++)
        if (i != generator) arg[n++] = L->arg[i];
    return again(L, of->id, arg);
}

/* The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x) */
bool lower_polygamma(Lower *L)
{
    int64_t n;
    TRY(lower_const_int(L, 0, &n));
    if (n < 0) return lower_fail(L, 0, "found %lld, expected at least 0", (long long)n);
    if (!n) return lower_return(L, AS(L, digamma, L->arg[1]));
    Value *x = lower_value(L, 1);
    if (!x) return lower_fail(L, 1, "expected a tensor");
    DType t = x->dtype;
    bool half = dtype_is_float(t) && dtype_size(t) == 2; /* PyTorch has no zeta of these */
    Value *zeta = AS(L, special_zeta, arg_float(L->g, (double)n + 1), arg_value(half ? lower_cast(L, x, DT_F32) : x));
    double factor = n % 2 ? 1 : -1;
    for (int64_t k = 2; k <= n && isfinite(factor); k++) factor *= (double)k;
    Value *y = AS(L, mul_Tensor, arg_value(zeta), arg_float(L->g, factor));
    return y && lower_return(L, half ? lower_cast(L, y, t) : y);
}

/* ------------------------------------------------------------------ arithmetic */

static bool alpha_is_one(const Arg *a)
{
    if (a->kind != ARG_EXPR) return a->kind == ARG_NONE;
    return (a->e->kind == EX_INT && a->e->i == 1) || (a->e->kind == EX_FLOAT && a->e->f == 1);
}

static Expr *number_of(Lower *L, Expr *e) { return e->kind == EX_BOOL ? ex_int(L->ex, e->i) : e; }

/* other * alpha, a number or a tensor, computed in the dtype t of the sum */
static bool scaled(Lower *L, DType t, const Arg *other, const Arg *alpha, Arg *out)
{
    *out = *other;
    if (alpha->kind == ARG_EXPR && alpha->e->is_float && !dtype_is_float(t) && !dtype_is_complex(t))
        return lower_fail(L, 2, "found a floating-point number, expected an integer: the result is %s", dtype_name(t));
    if (alpha_is_one(alpha) || t == DT_NONE) return true;
    if (alpha->kind == ARG_EXPR && alpha->e->is_bool && t != DT_BOOL)
        return lower_fail(L, 2, "found a truth value, expected a number: the result is %s", dtype_name(t));
    if (other->kind == ARG_EXPR) {
        Expr *e = ex_mul(L->ex, number_of(L, other->e), number_of(L, alpha->e));
        if (!e) return fail(L->err, E_LIMIT, "a number expression is too large");
        *out = t == DT_BOOL && ex_is_const(e) ? arg_bool(L->g, ex_number(e) != 0) : arg_expr(e);
        if (t == DT_BOOL) *out = arg_value(EMIT(L, full, arg_ints(L->g, 0, NULL), *out, arg_dtype(t)));
        return out->kind == ARG_EXPR || out->v;
    }
    Value *v = lower_cast(L, other->v, t);
    v = v ? EMIT(L, mul_Tensor, arg_value(v), *alpha) : NULL;
    if (v && t == DT_BOOL) v = lower_cast(L, v, t);
    *out = arg_value(v);
    return v != NULL;
}

bool lower_add(Lower *L)
{
    Arg arg[3] = {L->arg[0], arg_none(), arg_int(L->g, 1)};
    TRY(scaled(L, common(L->arg, 0, 2), &L->arg[1], &L->arg[2], &arg[1]));
    return emit_promoted(L, L->op->id, arg, false);
}

bool lower_rsub(Lower *L)
{
    Arg arg[3] = {L->arg[1], arg_none(), arg_int(L->g, 1)};
    TRY(scaled(L, common(L->arg, 0, 2), &L->arg[0], &L->arg[2], &arg[1]));
    return emit_promoted(L, OP_sub_Tensor, arg, false);
}

bool lower_div_mode(Lower *L)
{
    bool plain = L->arg[2].kind != ARG_STR;
    if (plain) return emit_promoted(L, OP_div_Tensor, L->arg, true);
    if (strcmp(L->arg[2].s, "floor") && strcmp(L->arg[2].s, "trunc"))
        return lower_fail(L, 2, "found '%.20s', expected 'floor' or 'trunc'", L->arg[2].s);
    DType t = common(L->arg, 0, 2);
    if (dtype_is_float(t) && dtype_size(t) == 2 &&
        !strcmp(L->arg[2].s, "trunc")) { /* the quotient is rounded before it is cut */
        TRY(emit_promoted(L, OP_div_Tensor, L->arg, true));
        return lower_return(L, AS(L, trunc, arg_value(L->result.v)));
    }
    return emit_promoted(L, OP_div_Tensor_mode, L->arg, false);
}

bool lower_floor_divide(Lower *L)
{
    return emit_promoted(L, OP_div_Tensor_mode, (Arg[]){L->arg[0], L->arg[1], arg_str(L->g, "floor")}, false);
}

/* x ** number: the cases that exports are full of have rows of their own, exact and fast. */
bool lower_pow(Lower *L)
{
    const Expr *e = lower_expr(L, 1);
    Value *x = lower_value(L, 0);
    double p = e && ex_is_const(e) ? ex_number(e) : NAN;
    bool is_float = x && dtype_is_float(x->dtype), by_root = is_float && x->dtype != DT_F16; /* as PyTorch: of -inf */
    L->other_dtype = x && x->dtype == DT_BOOL && e && e->is_bool; /* truth values, which a file declares as integers */
    if (is_float && p == 2) return lower_return(L, EMIT(L, square, arg_value(x)));
    if (by_root && p == 0.5) return lower_return(L, EMIT(L, sqrt, arg_value(x)));
    if (by_root && p == -0.5) return lower_return(L, EMIT(L, rsqrt, arg_value(x)));
    if (is_float && p == 1) return lower_return(L, x);
    return emit_promoted(L, OP_pow_Tensor_Tensor, L->arg, false);
}

/* a truth value squared is an integer */
bool lower_square(Lower *L)
{
    Value *x = lower_value(L, 0);
    if (x && x->dtype == DT_BOOL) x = lower_cast(L, x, DT_I64);
    return x && lower_return(L, EMIT(L, square, arg_value(x)));
}

bool lower_as_pow(Lower *L) { return emit_promoted(L, OP_pow_Tensor_Tensor, L->arg, false); }

bool lower_float_power(Lower *L)
{
    Arg arg[2] = {L->arg[0], L->arg[1]};
    TRY(cast_args(L, arg, 0, 2, dtype_is_complex(common(arg, 0, 2)) ? DT_C128 : DT_F64));
    return lower_return(L, lower_emit(L, OP_pow_Tensor_Tensor, 2, arg));
}

static Value *times(Lower *L, Value *a, Arg b) { return a ? EMIT(L, mul_Tensor, arg_value(a), b) : NULL; }
static Value *plus(Lower *L, Value *a, Arg b) { return a ? EMIT(L, add_Tensor, arg_value(a), b) : NULL; }

/* x * 2^n. Of a float and a whole number it is exact, however far 2^n is from x's range: products in float64, by equal
 * parts of 2^n where x is one, of which only the last rounds. */
bool lower_ldexp(Lower *L)
{
    Value *x = lower_value(L, 0), *n = lower_value(L, 1);
    if (!x || !n || !dtype_is_float(x->dtype) || !dtype_is_int(n->dtype))
        return lower_return(L, AS(L, mul_Tensor, L->arg[0], v(AS(L, pow_Scalar, arg_float(L->g, 2), L->arg[1]))));
    int parts = x->dtype == DT_F64 ? 3 : 1;
    int64_t most = parts * 700; /* beyond it all is 0 or infinite */
    Value *y = lower_cast(L, x, DT_F64), *i = lower_cast(L, n, DT_I64);
    i = AS(L, clamp, v(i), arg_int(L->g, -most), arg_int(L->g, most));
    for (int k = parts; k > 0; k--) {
        Value *part = k > 1 ? AS(L, div_Tensor_mode, v(i), arg_int(L->g, k), arg_str(L->g, "trunc")) : i;
        y = AS(L, mul_Tensor, v(y), v(AS(L, pow_Scalar, arg_float(L->g, 2), v(lower_cast(L, part, DT_F64)))));
        i = AS(L, sub_Tensor, v(i), v(part));
    }
    return y && lower_return(L, lower_cast(L, y, x->dtype));
}

/* What ATen's kernels of several steps compute numbers of half width in: they round once, at the end. */
static DType worked_in(DType t) { return t == DT_F16 || t == DT_BF16 ? DT_F32 : t; }

/* self + value * tensor1 * tensor2, or / tensor2, in this order */
bool lower_addcmul(Lower *L)
{
    Arg arg[3] = {L->arg[0], L->arg[1], L->arg[2]};
    DType t = common(arg, 0, 3);
    bool divides = L->op->id == OP_addcdiv;
    if (divides && !dtype_is_float(t) && !dtype_is_complex(t)) t = DT_F32;
    TRY(cast_args(L, arg, 0, 3, worked_in(t)));
    if (!alpha_is_one(&L->arg[3])) TRY(arg[1].v = times(L, arg[1].v, L->arg[3]));
    Value *p = lower_emit(L, divides ? OP_div_Tensor : OP_mul_Tensor, 2, &arg[1]);
    p = p ? EMIT(L, add_Tensor, arg[0], arg_value(p)) : NULL;
    return p && lower_return(L, lower_cast(L, p, t));
}

/* a * b + c, rounded twice: torch.compile's own op of decomposed graphs */
bool lower_fma(Lower *L)
{
    return lower_return(L, AS(L, add_Tensor, arg_value(AS(L, mul_Tensor, L->arg[0], L->arg[1])), L->arg[2]));
}

/* a + w (b - a) for |w| < 0.5, else b - (1 - w) (b - a): each end is met exactly */
bool lower_lerp(Lower *L)
{
    Arg arg[3] = {L->arg[0], L->arg[1], L->arg[2]}, rest;
    DType t = common(arg, 0, 2);
    TRY(cast_args(L, arg, 0, 3, worked_in(t)));
    Arg a = arg[0], b = arg[1], w = arg[2];
    bool number = w.kind == ARG_EXPR, large = number && ex_is_const(w.e) && fabs(ex_number(w.e)) >= 0.5;
    rest = number ? arg_expr(ex_sub(L->ex, ex_float(L->ex, 1), w.e))
                  : arg_value(AS(L, sub_Tensor, arg_int(L->g, 1), w));
    Value *d = AS(L, sub_Tensor, b, a);
    Value *near = large ? NULL : AS(L, add_Tensor, a, arg_value(AS(L, mul_Tensor, arg_value(d), w)));
    Value *far = number && !large ? NULL : AS(L, sub_Tensor, b, arg_value(AS(L, mul_Tensor, arg_value(d), rest)));
    Value *y = large ? far : near;
    if (!number) {
        Value *pick = AS(L, lt_Tensor, arg_value(AS(L, abs, w)), arg_float(L->g, 0.5));
        y = AS(L, where_self, arg_value(pick), arg_value(near), arg_value(far));
    }
    return y && lower_return(L, lower_cast(L, y, t));
}

/* |a - b| <= atol + rtol * |b|, or equal (infinities) */
bool lower_isclose(Lower *L)
{
    Arg arg[2] = {L->arg[0], L->arg[1]};
    DType t = common(arg, 0, 2);
    if (!dtype_is_float(t) && !dtype_is_complex(t)) t = DT_F64;
    TRY(cast_args(L, arg, 0, 2, t));
    Value *same = lower_emit(L, OP_eq_Tensor, 2, arg), *d = lower_emit(L, OP_sub_Tensor, 2, arg);
    d = d ? EMIT(L, abs, arg_value(d)) : NULL;
    Value *limit = EMIT(L, abs, arg[1]);
    limit = plus(L, times(L, limit, L->arg[2]), L->arg[3]);
    Value *near = d && limit ? EMIT(L, le_Tensor, arg_value(d), arg_value(limit)) : NULL;
    Value *finite = d ? EMIT(L, isfinite, arg_value(d)) : NULL;
    near = near && finite ? EMIT(L, logical_and, arg_value(near), arg_value(finite)) : NULL;
    Value *r = near && same ? EMIT(L, logical_or, arg_value(near), arg_value(same)) : NULL;
    bool equal_nan;
    TRY(r && lower_const_bool(L, 4, &equal_nan));
    if (equal_nan) {
        Value *a = EMIT(L, isnan, arg[0]), *b = EMIT(L, isnan, arg[1]);
        Value *both = a && b ? EMIT(L, logical_and, arg_value(a), arg_value(b)) : NULL;
        r = both ? EMIT(L, logical_or, arg_value(r), arg_value(both)) : NULL;
    }
    return lower_return(L, r);
}

/* ------------------------------------------------------------------ choosing */

bool lower_where(Lower *L)
{
    Arg arg[3] = {L->arg[0], L->arg[1], L->arg[2]};
    DType t = common(arg, 1, 2);
    if (t == DT_NONE) return fail(L->err, E_FORMAT, "the operands have no common dtype");
    TRY(cast_args(L, arg, 1, 2, t));
    return lower_return(L, lower_emit(L, OP_where_self, 3, arg));
}

bool lower_as_where(Lower *L) { return again(L, OP_where_self, L->arg); }

Expr *lower_number_for(Lower *L, Expr *e, DType t)
{
    if (t == DT_BOOL && ex_is_const(e)) return ex_bool(L->ex, e->kind == EX_FLOAT ? e->f != 0 : e->i != 0);
    if (!dtype_is_float(t) && e->is_float) return ex_make(L->ex, EX_TRUNC, e, NULL, NULL);
    return e;
}

bool lower_masked_fill(Lower *L)
{
    Value *x = lower_value(L, 0);
    Arg fill = L->arg[2];
    if (!x) return lower_fail(L, 0, "expected a tensor");
    if (fill.kind == ARG_VALUE) {
        Value *v = lower_cast(L, fill.v, x->dtype);
        TRY(v);
        fill = arg_value(v);
    } else {
        fill = arg_expr(lower_number_for(L, fill.e, x->dtype));
    }
    return lower_return(L, EMIT(L, where_self, L->arg[1], fill, arg_value(x)));
}

bool lower_clamp(Lower *L)
{
    OpId id = L->op->id;
    Arg lo = L->arg[1], hi = id == OP_clamp_min || id == OP_clamp_max ? arg_none() : L->arg[2], x = L->arg[0];
    if (id == OP_clamp_max) {
        hi = lo;
        lo = arg_none();
    }
    if (!arg_built(&lo) || !arg_built(&hi)) return oom(L->err);
    bool to_float = (lo.kind == ARG_EXPR && lo.e->is_float) || (hi.kind == ARG_EXPR && hi.e->is_float);
    if (x.kind == ARG_VALUE && x.v->dtype == DT_BOOL && !to_float) TRY(cast_args(L, &x, 0, 1, DT_I64));
    if (to_float && x.kind == ARG_VALUE && !dtype_is_float(x.v->dtype)) TRY(cast_args(L, &x, 0, 1, DT_F32));
    return lower_return(L, EMIT(L, clamp, x, lo, hi));
}

/* The greater of x and a bound, or the lesser; where they are equal the gradient is that of x, where one is NaN, or the
 * other bound is the same, neither has one. `above` (or NULL): where a greatest bound has one, though x may be NaN. */
static Value *bounded(Lower *L, Arg x, Arg bound, bool least, Arg other_bound, Value *above)
{
    Arg pair[] = {x, bound};
    Value *in = lower_emit(L, least ? OP_ge_Tensor : OP_le_Tensor, 2, pair);
    Value *other = lower_emit(L, least ? OP_maximum : OP_minimum, 2, pair);
    if (other && dtype_is_float(other->dtype)) {
        Value *out = above ? above : lower_emit(L, least ? OP_lt_Tensor : OP_gt_Tensor, 2, pair);
        Value *fixed = AS(L, detach, arg_value(other));
        if (above) bound = arg_value(AS(L, minimum, arg_value(AS(L, detach, x)), bound)); /* NaN if x is */
        if (other_bound.kind != ARG_NONE) {
            Value *apart = AS(L, ne_Tensor, bound, other_bound);
            out = AS(L, logical_and, arg_value(out), arg_value(apart));
        }
        other = out && fixed ? EMIT(L, where_self, arg_value(out), bound, arg_value(fixed)) : NULL;
    }
    return in && other ? EMIT(L, where_self, arg_value(in), x, arg_value(other)) : NULL;
}

/* What equals a bound passes all of the gradient on, unlike maximum's; a rule makes it one once gradients are built. */
bool lower_clamp_tensor(Lower *L)
{
    OpId id = L->op->id;
    bool only_min = id == OP_clamp_min_Tensor, only_max = id == OP_clamp_max_Tensor;
    Arg at[3] = {L->arg[0], only_max ? arg_none() : L->arg[1],
                 only_max   ? L->arg[1]
                 : only_min ? arg_none()
                            : L->arg[2]};
    DType t = common(at, 0, 3);
    TRY(cast_args(L, at, 0, 3, t));
    Arg x = at[0];
    Value *above = NULL;
    if (at[1].kind != ARG_NONE && at[2].kind != ARG_NONE && dtype_is_float(t))
        TRY(above = AS(L, logical_or, arg_value(AS(L, gt_Tensor, x, at[2])),
                       arg_value(AS(L, gt_Tensor, at[1], at[2]))));
    for (int i = 1; i < 3; i++)
        if (at[i].kind != ARG_NONE) {
            Value *v = bounded(L, x, at[i], i == 1, i == 1 ? at[2] : arg_none(), i == 1 ? NULL : above);
            TRY(v);
            x = arg_value(v);
        }
    return lower_return(L, x.v);
}

/* ------------------------------------------------------------------ activations */

/* A clamp whose bounds pass no gradient on; a rule makes it one once gradients are built. */
bool lower_hardtanh(Lower *L)
{
    Arg x = L->arg[0];
    if (x.kind != ARG_VALUE) return lower_fail(L, 0, "expected a tensor");
    Arg lo = lower_number_as(L, L->arg[1], x.v->dtype), hi = lower_number_as(L, L->arg[2], x.v->dtype);
    if (!arg_built(&lo) || !arg_built(&hi)) return oom(L->err);
    return lower_return(L, dtype_is_float(x.v->dtype) ? EMIT(L, hardtanh, x, lo, hi) : EMIT(L, clamp, x, lo, hi));
}

bool lower_relu6(Lower *L)
{
    return again(L, OP_hardtanh, (Arg[]){L->arg[0], arg_int(L->g, 0), arg_int(L->g, 6)});
}

bool lower_selu(Lower *L)
{
    return lower_return(L, AS(L, elu, L->arg[0], arg_float(L->g, 1.6732632423543772848170429916717),
                              arg_float(L->g, 1.0507009873554804934193349852946), arg_float(L->g, 1)));
}

bool lower_celu(Lower *L)
{
    Expr *a = lower_expr(L, 1);
    if (!a || (ex_is_const(a) && ex_number(a) == 0)) return lower_fail(L, 1, "must be a number other than 0");
    Expr *over = ex_is_const(a) ? ex_float(L->ex, 1 / ex_number(a))
                                : ex_make(L->ex, EX_TRUEDIV, ex_float(L->ex, 1), a, NULL);
    return over && lower_return(L, AS(L, elu, L->arg[0], ex_is_const(a) ? arg_float(L->g, ex_number(a)) : L->arg[1],
                                      arg_float(L->g, 1), arg_expr(over)));
}

bool lower_deg2rad(Lower *L)
{
    double f = L->op->id == OP_deg2rad ? 0.017453292519943295769 : 57.295779513082320877;
    return emit_promoted(L, OP_mul_Tensor, (Arg[]){L->arg[0], arg_float(L->g, f)}, true);
}

/* In evaluation the slope is the middle, and the noise stays as it was; in training slopes are drawn. */
bool lower_rrelu(Lower *L)
{
    bool training;
    int lower = op_param(L->op, "lower");
    TRY(lower_const_bool(L, lower + 2, &training));
    if (training) {
        Value *x = lower_value(L, 0);
        Value *y = EMIT(L, rrelu_with_noise_functional, L->arg[0], L->arg[0], L->arg[lower], L->arg[lower + 1],
                        L->arg[lower + 2]);
        TRY(x && y);
        if (L->op->id == OP_rrelu_with_noise) L->write[L->nwrites++] = (LowerWrite){1, y->def->out[1]};
        return L->op->schema->nreturns == 2 ? lower_return_values(L, 2, y->def->out) : lower_return(L, y);
    }
    Expr *slope = ex_make(L->ex, EX_TRUEDIV, ex_add(L->ex, lower_expr(L, lower), lower_expr(L, lower + 1)),
                          ex_int(L->ex, 2), NULL);
    Value *y = EMIT(L, leaky_relu, L->arg[0], arg_expr(slope));
    if (L->op->id != OP_rrelu_with_noise_functional) return lower_return(L, y);
    return y && lower_return_values(L, 2, (Value *[]){y, lower_value(L, 1)});
}

/* 2 to the power of -e in two factors, which do not overflow where e is that of the smallest numbers */
static Value *without_exponent(Lower *L, Value *x, Value *e)
{
    Value *half = AS(L, floor, arg_value(AS(L, mul_Tensor, arg_value(e), arg_float(L->g, 0.5))));
    Value *rest = AS(L, sub_Tensor, arg_value(e), arg_value(half));
    x = AS(L, mul_Tensor, arg_value(x), arg_value(AS(L, exp2, arg_value(AS(L, neg, arg_value(half))))));
    return AS(L, mul_Tensor, arg_value(x), arg_value(AS(L, exp2, arg_value(AS(L, neg, arg_value(rest))))));
}

/* x = mantissa * 2^exponent, 1/2 <= |mantissa| < 1: the exponent from the logarithm, then one up or down where that
 * rounded wrongly. 0 of 0, infinities and NaN. */
bool lower_frexp(Lower *L)
{
    Value *x = lower_value(L, 0);
    if (!x || !dtype_is_float(x->dtype)) return lower_fail(L, 0, "expected a tensor of floats");
    Value *size = AS(L, abs, arg_value(x)), *zero = AS(L, zeros_like, arg_value(x));
    Value *some = AS(L, logical_and, arg_value(AS(L, gt_Scalar, arg_value(size), arg_int(L->g, 0))),
                     arg_value(AS(L, lt_Scalar, arg_value(size), arg_float(L->g, INFINITY))));
    Value *e = AS(L, floor, arg_value(AS(L, log2, arg_value(size))));
    e = AS(L, where_self, arg_value(some), arg_value(AS(L, add_Tensor, arg_value(e), arg_int(L->g, 1))),
           arg_value(zero));
    Value *m = AS(L, abs, arg_value(without_exponent(L, x, e)));
    Value *up = AS(L, ge_Scalar, arg_value(m), arg_int(L->g, 1)),
          *down = AS(L, lt_Scalar, arg_value(m), arg_float(L->g, 0.5));
    Value *by = AS(L, sub_Tensor, arg_value(lower_cast(L, up, x->dtype)), arg_value(lower_cast(L, down, x->dtype)));
    by = AS(L, where_self, arg_value(some), arg_value(by), arg_value(zero));
    e = AS(L, add_Tensor, arg_value(e), arg_value(by));
    Value *mantissa = AS(L, where_self, arg_value(some), arg_value(without_exponent(L, x, e)), arg_value(x));
    return mantissa && lower_return_values(L, 2, (Value *[]){mantissa, lower_cast(L, e, DT_I32)});
}

/* log(x / (1 - x)), x clamped to [eps, 1 - eps]; of an eps above a half to eps where x is less, else to 1 - eps */
bool lower_logit(Lower *L)
{
    Value *x = lower_value(L, 0);
    if (!x) return lower_fail(L, 0, "expected a tensor");
    x = dtype_is_float(x->dtype) ? x : lower_cast(L, x, DT_F32);
    if (lower_expr(L, 1)) { /* NaN and its gradient pass, unlike those of clamp */
        Arg low = arg_expr(lower_expr(L, 1)), high = arg_expr(ex_sub(L->ex, ex_float(L->ex, 1), low.e));
        Value *below = AS(L, lt_Scalar, arg_value(x), low), *above = AS(L, gt_Scalar, arg_value(x), high);
        x = AS(L, where_ScalarSelf, arg_value(above), high, arg_value(x));
        x = AS(L, where_ScalarSelf, arg_value(below), low, arg_value(x));
    }
    return x && lower_return(L, EMIT(L, logit, arg_value(x), arg_none()));
}

/* a * sigmoid(b), the halves along dim */
bool lower_glu(Lower *L)
{
    Value *x = lower_value(L, 0);
    int d;
    if (!x || !x->rank) return lower_fail(L, 0, "expected a tensor of rank 1 or more");
    TRY(lower_dim(L, 1, x->rank, &d));
    Expr *half = ex_floordiv(L->ex, x->dim[d], ex_int(L->ex, 2)), *one = ex_int(L->ex, 1);
    Value *a = EMIT(L, slice_Tensor, arg_value(x), arg_int(L->g, d), arg_int(L->g, 0), arg_expr(half), arg_expr(one));
    Value *b = EMIT(L, slice_Tensor, arg_value(x), arg_int(L->g, d), arg_expr(half), arg_expr(x->dim[d]),
                    arg_expr(one));
    b = b ? EMIT(L, sigmoid, arg_value(b)) : NULL;
    return a && b && lower_return(L, EMIT(L, mul_Tensor, arg_value(a), arg_value(b)));
}

bool lower_prelu_kernel(Lower *L)
{
    Value *w = lower_value(L, 1);
    Value *x = lower_value(L, 0);
    if (!x || !w) return lower_fail(L, 0, "expected tensors");
    Value *neg = EMIT(L, clamp, arg_value(x), arg_none(), arg_int(L->g, 0)), *pos = EMIT(L, relu, arg_value(x));
    neg = neg ? EMIT(L, mul_Tensor, arg_value(neg), arg_value(w)) : NULL;
    return neg && pos && lower_return(L, EMIT(L, add_Tensor, arg_value(pos), arg_value(neg)));
}

/* ------------------------------------------------------------------ casts */

bool lower_to(Lower *L)
{
    Value *x = lower_value(L, 0);
    int at = op_param(L->op, "dtype"), other = op_param(L->op, "other");
    DType t = at >= 0 && L->arg[at].kind == ARG_DTYPE ? L->arg[at].dtype : DT_NONE;
    if (other >= 0 && L->arg[other].kind == ARG_VALUE) t = L->arg[other].v->dtype;
    bool number = !x && L->arg[0].kind == ARG_EXPR && t != DT_NONE;
    if (number) return lower_return(L, lower_filled(L, 0, NULL, L->arg[0], t));
    if (!x) return lower_fail(L, 0, "expected a tensor");
    return lower_return(L, t == DT_NONE ? x : lower_cast(L, x, t));
}

static Value *expand_to(Lower *L, Value *v, const Value *like)
{
    return !v || same_dims(v, like) ? v : EMIT(L, expand, arg_value(v), arg_exprs(L->g, like->rank, like->dim));
}

/* copy(self, src): src in self's shape and dtype */
bool lower_copy(Lower *L)
{
    Value *self = lower_value(L, 0), *src = lower_value(L, 1);
    if (!self) return lower_fail(L, 0, "expected a tensor");
    if (!src) return lower_return(L, lower_filled(L, self->rank, self->dim, L->arg[1], self->dtype));
    return lower_return(L, expand_to(L, lower_cast(L, src, self->dtype), self));
}

bool lower_fill(Lower *L)
{
    Value *self = lower_value(L, 0);
    if (!self) return lower_fail(L, 0, "expected a tensor");
    if (L->op->id == OP_fill_Tensor && L->arg[1].kind == ARG_VALUE) return lower_copy(L);
    Arg v = L->op->id == OP_zero ? arg_int(L->g, 0) : L->arg[1];
    return lower_return(L, lower_filled(L, self->rank, self->dim, v, self->dtype));
}

/* ------------------------------------------------------------------ creation */

static DType number_dtype(const Expr *e) { return e->is_bool ? DT_BOOL : e->is_float ? DT_F32 : DT_I64; }

Value *lower_filled(Lower *L, int rank, Expr *const *dim, Arg value, DType t)
{
    if (value.kind == ARG_EXPR && value.e) value = arg_expr(lower_number_for(L, value.e, t));
    else if (value.kind != ARG_VALUE) {
        fail(L->err, E_FORMAT, "expected a number to fill with");
        return NULL;
    }
    return EMIT(L, full, arg_exprs(L->g, rank, dim), value, arg_dtype(t));
}

static bool filled(Lower *L, int rank, Expr *const *dim, Arg value, DType t)
{
    return lower_return(L, lower_filled(L, rank, dim, value, t));
}

bool lower_full(Lower *L)
{
    Expr *v = lower_expr(L, 1);
    if (!v) return lower_fail(L, 1, "expected a number");
    DType t = L->arg[2].kind == ARG_DTYPE ? L->arg[2].dtype : number_dtype(v);
    return filled(L, L->arg[0].n, L->arg[0].es, L->arg[1], t);
}

/* zeros, ones, empty (zeros: what it holds is not defined), their _like and new_ forms, full_like, scalar_tensor */
bool lower_like(Lower *L)
{
    int at = op_param(L->op, "dtype"), self = op_param(L->op, "self"), size = op_param(L->op, "size"),
        fill = op_param(L->op, "fill_value");
    if (L->op->id == OP_scalar_tensor || L->op->id == OP_prims_scalar_tensor)
        return filled(L, 0, NULL, L->arg[0], L->arg[at].kind == ARG_DTYPE ? L->arg[at].dtype : DT_F32);
    Value *x = self >= 0 ? lower_value(L, self) : NULL;
    DType t = at >= 0 && L->arg[at].kind == ARG_DTYPE ? L->arg[at].dtype : x ? x->dtype : DT_F32;
    bool ones = strstr(L->op->name, "ones") != NULL;
    Arg v = fill >= 0 ? L->arg[fill] : arg_int(L->g, ones);
    if (size >= 0 && L->arg[size].kind == ARG_EXPRS) return filled(L, L->arg[size].n, L->arg[size].es, v, t);
    if (!x) return lower_fail(L, 0, "expected a tensor");
    return filled(L, x->rank, x->dim, v, t);
}

bool lower_arange(Lower *L)
{
    OpId id = L->op->id;
    Arg start = id == OP_arange ? arg_int(L->g, 0) : L->arg[0], end = id == OP_arange ? L->arg[0] : L->arg[1];
    Arg step = id == OP_arange_start_step ? L->arg[2] : arg_int(L->g, 1);
    int at = op_param(L->op, "dtype");
    if (!start.e || !end.e || !step.e) return oom(L->err);
    bool is_float = start.e->is_float || end.e->is_float || step.e->is_float;
    DType t = L->arg[at].kind == ARG_DTYPE ? L->arg[at].dtype : is_float ? DT_F32 : DT_I64;
    return lower_return(L, EMIT(L, arange_start_step, start, end, step, arg_dtype(t)));
}

/* start + i * step while that is not beyond the end, worked on in float64, of half types in float32 */
bool lower_range(Lower *L)
{
    int at = op_param(L->op, "dtype");
    DType t = L->arg[at].kind == ARG_DTYPE ? L->arg[at].dtype : DT_F32,
          wide = !dtype_is_float(t) ? DT_I64 : dtype_size(t) == 2 ? DT_F32 : DT_F64;
    Expr *start = L->arg[0].e, *step = L->op->id == OP_range_step ? L->arg[2].e : ex_int(L->ex, 1),
         *gaps = ex_make(L->ex, EX_TRUEDIV, ex_sub(L->ex, L->arg[1].e, start), step, NULL),
         *n = ex_add(L->ex, ex_make(L->ex, EX_FLOOR, gaps, NULL, NULL), ex_int(L->ex, 1));
    Value *i = n ? AS(L, arange, arg_expr(n), arg_dtype(wide)) : NULL;
    Value *y = i ? AS(L, mul_Tensor, arg_value(i), lower_number_as(L, arg_expr(step), wide)) : NULL;
    y = y ? AS(L, add_Tensor, arg_value(y), lower_number_as(L, arg_expr(start), wide)) : NULL;
    return y && lower_return(L, lower_cast(L, y, t));
}

/* ------------------------------------------------------------------ dropout */

static double dropout_p(Lower *L, int i)
{
    const Expr *p = lower_expr(L, i);
    return ex_number(p);
}

static bool dropout_rate(Lower *L, int i)
{
    const Expr *p = lower_expr(L, i);
    bool ok = p && ex_is_const(p) && dropout_p(L, i) >= 0 && dropout_p(L, i) <= 1;
    return ok || lower_fail(L, i, "expected a number from 0 to 1");
}

static bool active(Lower *L, bool *yes)
{
    int at = op_param(L->op, "train");
    const Expr *p = lower_expr(L, 1), *train = at >= 0 ? lower_expr(L, at) : NULL;
    bool zero = p && ex_is_const(p) && (p->kind == EX_FLOAT ? p->f == 0 : p->i == 0);
    *yes = !zero && (L->arg[at].kind == ARG_NONE || (train && ex_is_const(train) && train->i != 0));
    return true;
}

/* Ones and zeros of x's dtype, one with probability 1 - p: of x's shape, or one a feature (batch, feature, 1, ...).
 * They are drawn in the order of memory (empty_like keeps strides): that of what x is a permutation of. */
static Value *kept(Lower *L, Value *x, double p, bool features)
{
    if (x->kind == V_NODE && x->def->op->id == OP_permute && !features) {
        Value *drawn = kept(L, x->def->arg[0].v, p, false);
        return drawn ? EMIT(L, permute, arg_value(drawn), x->def->arg[1]) : NULL;
    }
    Expr *dim[MAX_RANK];
    for (int i = 0; i < x->rank; i++) dim[i] = features && i > 1 ? ex_int(L->ex, 1) : x->dim[i];
    Value *shape = features ? EMIT(L, full, arg_exprs(L->g, x->rank, dim), arg_int(L->g, 0), arg_dtype(x->dtype)) : x;
    return shape ? EMIT(L, bernoulli_p, arg_value(shape), arg_float(L->g, 1 - p), arg_none()) : NULL;
}

/* x * (noise * a) + ((noise - 1) * (c * a) + c * a * p): mean and variance of SELU's values stay */
static Value *alpha_dropout(Lower *L, Value *x, Value *noise, double p)
{
    double c = 1.7580993408473766, a = 1 / sqrt((c * c * p + 1) * (1 - p));
    Value *b = EMIT(L, add_Tensor, arg_value(noise), arg_int(L->g, -1));
    b = b ? EMIT(L, mul_Tensor, arg_value(b), arg_float(L->g, c * a)) : NULL;
    b = b ? EMIT(L, add_Tensor, arg_value(b), arg_float(L->g, c * a * p)) : NULL;
    noise = EMIT(L, mul_Tensor, arg_value(noise), arg_float(L->g, a));
    Value *y = b && noise ? EMIT(L, mul_Tensor, arg_value(x), arg_value(noise)) : NULL;
    return y ? EMIT(L, add_Tensor, arg_value(y), arg_value(b)) : NULL;
}

/* x * (noise / (1 - p)), as aten/src/ATen/native/Dropout.cpp computes it; p = 1 gives x * 0. */
bool lower_dropout(Lower *L)
{
    bool yes;
    Value *x = lower_value(L, 0), *noise;
    TRY(active(L, &yes));
    if (!yes || !x) return lower_return(L, x);
    if (!dropout_rate(L, 1)) return false;
    double p = dropout_p(L, 1);
    bool features = L->op->id == OP_feature_dropout || L->op->id == OP_feature_alpha_dropout;
    if (p == 1) return lower_return(L, EMIT(L, mul_Tensor, arg_value(x), arg_int(L->g, 0)));
    TRY(noise = kept(L, x, p, features));
    if (L->op->id == OP_alpha_dropout || L->op->id == OP_feature_alpha_dropout)
        return lower_return(L, alpha_dropout(L, x, noise, p));
    TRY(noise = EMIT(L, div_Tensor, arg_value(noise), arg_float(L->g, 1 - p)));
    return lower_return(L, EMIT(L, mul_Tensor, arg_value(x), arg_value(noise)));
}

/* Does a permutation change the order of the axes that have more than one element? */
static bool reorders(const Node *permute)
{
    const Value *x = permute->arg[0].v;
    int perm[MAX_RANK], last = -1;
    bool any = !permutation_of(permute, perm);
    for (int i = 0; i < x->rank && !any; i++) {
        if (ex_equals_int(x->dim[perm[i]], 1)) continue;
        any = perm[i] < last;
        last = perm[i];
    }
    return any;
}

/* rand_like, randn_like, randint, randint_like as the form that takes a size. */
bool lower_random_like(Lower *L)
{
    int at = op_param(L->op, "dtype"), self = op_param(L->op, "self"), high = op_param(L->op, "high");
    Value *x = self >= 0 ? lower_value(L, self) : NULL;
    Arg t = L->arg[at].kind == ARG_DTYPE || !x ? L->arg[at] : arg_dtype(x->dtype);
    if (x && x->kind == V_NODE && x->def->op->id == OP_permute) { /* in the order of memory, as kept() */
        if (L->op->id == OP_randn_like && dtype_is_float(t.dtype) && reorders(x->def)) {
            Value *z = lower_normal_pairs(L, x->def->arg[0].v, t.dtype);
            return z && lower_return(L, EMIT(L, permute, arg_value(z), x->def->arg[1]));
        }
        Arg again[4] = {x->def->arg[0]};
        int n = 1;
        for (int i = op_param(L->op, "low") >= 0 ? 1 : high; i >= 0 && i <= high; i++) again[n++] = L->arg[i];
        again[n++] = t;
        Value *drawn = lower_as(L, L->op->id, n, again);
        return drawn && lower_return(L, EMIT(L, permute, arg_value(drawn), x->def->arg[1]));
    }
    Arg size = x ? arg_exprs(L->g, x->rank, x->dim) : L->arg[op_param(L->op, "size")];
    Arg low = op_param(L->op, "low") < 0 ? arg_int(L->g, 0) : L->arg[1];
    if (high >= 0) return lower_return(L, EMIT(L, randint_low, low, L->arg[high], size, t));
    return lower_return(L, L->op->id == OP_rand_like ? EMIT(L, rand, size, t) : EMIT(L, randn, size, t));
}

bool lower_native_dropout(Lower *L)
{
    bool yes;
    Value *x = lower_value(L, 0);
    TRY(active(L, &yes));
    if (!x) return lower_fail(L, 0, "expected a tensor");
    if (yes) { /* x * mask * (1 / (1 - p)) */
        TRY(dropout_rate(L, 1));
        double p = dropout_p(L, 1);
        Value *noise = kept(L, x, p, false), *keep = noise ? lower_cast(L, noise, DT_BOOL) : NULL;
        Value *y = keep ? EMIT(L, mul_Tensor, arg_value(x), arg_value(noise)) : NULL;
        y = y ? EMIT(L, mul_Tensor, arg_value(y), arg_float(L->g, p == 1 ? 0 : 1 / (1 - p))) : NULL;
        return y && lower_return_values(L, 2, (Value *[]){y, keep});
    }
    Value *mask = EMIT(L, full, arg_exprs(L->g, x->rank, x->dim), arg_bool(L->g, true), arg_dtype(DT_BOOL));
    return mask && lower_return_values(L, 2, (Value *[]){x, mask});
}

/* log_sigmoid and exp(-|x|), which PyTorch's backward pass reads */
bool lower_log_sigmoid_forward(Lower *L)
{
    Value *y = AS(L, log_sigmoid, L->arg[0]), *size = AS(L, abs, L->arg[0]);
    Value *z = size ? AS(L, exp, arg_value(AS(L, neg, arg_value(size)))) : NULL;
    return y && z && lower_return_values(L, 2, (Value *[]){y, z});
}
