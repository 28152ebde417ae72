/* Complex tensors: they are viewed as pairs of reals, computed on in reals, and viewed as complex again. Only ops that
 * move elements take them as they are.
 *
 *     view_as_real(z)   (..., n) c64 -> (..., n, 2) f32: a view
 *     mul(a, b)         re = ar*br - ai*bi, im = ar*bi + ai*br
 *     polar(r, t)       r*cos(t), r*sin(t)
 *
 * So a rotary embedding by complex factors runs in the kernels for reals.
 */
#include "facts/axes.h"
#include "lower/lower_table.h"
#include "shape/shape.h"

static DType real_of(DType t) { return t == DT_C128 ? DT_F64 : t == DT_C32 ? DT_F16 : DT_F32; }
static DType complex_of(DType t) { return t == DT_F64 ? DT_C128 : t == DT_F16 ? DT_C32 : DT_C64; }

static Value *as_real(Lower *L, Value *z)
{
    Expr *dim[MAX_RANK];
    if (!z || z->rank >= MAX_RANK) return NULL;
    for (int i = 0; i < z->rank; i++) dim[i] = z->dim[i];
    dim[z->rank] = ex_int(L->ex, 1);
    return EMIT(L, view_dtype, arg_value(lower_reshape(L, z, z->rank + 1, dim)), arg_dtype(real_of(z->dtype)));
}

static Value *as_complex(Lower *L, Value *pairs)
{
    if (!pairs) return NULL;
    Value *z = EMIT(L, view_dtype, arg_value(pairs), arg_dtype(complex_of(pairs->dtype)));
    return z ? lower_reshape(L, z, z->rank - 1, z->dim) : NULL;
}

bool lower_view_as_real(Lower *L)
{
    Value *z = lower_value(L, 0);
    if (!z || !dtype_is_complex(z->dtype)) return lower_fail(L, 0, "expected a complex tensor");
    return lower_return(L, as_real(L, z));
}

bool lower_view_as_complex(Lower *L)
{
    Value *x = lower_value(L, 0);
    if (!x || !dtype_is_float(x->dtype) || !x->rank || !ex_equals_int(x->dim[x->rank - 1], 2))
        return lower_fail(L, 0, "expected floats with a last size of 2");
    return lower_return(L, as_complex(L, x));
}

/* A number: im is NULL for a real one. */
typedef struct Parts {
    Value *re, *im;
} Parts;

static bool parts(Lower *L, Value *z, Parts *p)
{
    *p = (Parts){z, NULL};
    if (!z) return false;
    if (!dtype_is_complex(z->dtype)) return true;
    Value *both = as_real(L, z);
    p->re = EMIT(L, select_int, arg_value(both), arg_int(L->g, z->rank), arg_int(L->g, 0));
    p->im = EMIT(L, select_int, arg_value(both), arg_int(L->g, z->rank), arg_int(L->g, 1));
    return p->re && p->im;
}

/* re and im of one shape and dtype, as a complex tensor. */
static Value *joined(Lower *L, Value *re, Value *im)
{
    return re && im ? as_complex(L, AS(L, stack, arg_values(L->g, 2, (Value *[]){re, im}), arg_int(L->g, -1))) : NULL;
}

static Value *times(Lower *L, Value *a, Value *b) { return AS(L, mul_Tensor, arg_value(a), arg_value(b)); }
static Value *plus(Lower *L, Value *a, Value *b) { return AS(L, add_Tensor, arg_value(a), arg_value(b)); }
static Value *minus(Lower *L, Value *a, Value *b) { return AS(L, sub_Tensor, arg_value(a), arg_value(b)); }
static Value *zero_like(Lower *L, Value *x) { return AS(L, zeros_like, arg_value(x)); }

Value *lower_complex_cast(Lower *L, Value *x, DType t)
{
    Parts p;
    bool from = dtype_is_complex(x->dtype), to = dtype_is_complex(t);
    if (from && to) return as_complex(L, lower_cast(L, as_real(L, x), real_of(t)));
    if (!parts(L, x, &p)) return NULL;
    Value *re = lower_cast(L, p.re, from ? t : real_of(t));
    return from ? re : joined(L, re, zero_like(L, re));
}

bool lower_polar(Lower *L)
{
    Value *r = lower_value(L, 0), *t = lower_value(L, 1);
    return r && t &&
           lower_return(L, joined(L, times(L, r, AS(L, cos, arg_value(t))), times(L, r, AS(L, sin, arg_value(t)))));
}

bool lower_complex(Lower *L)
{
    Value *re = lower_value(L, 0), *im = lower_value(L, 1);
    if (!re || !im) return false;
    if (same_dims(re, im)) return lower_return(L, joined(L, re, im));
    return lower_return(L, joined(L, plus(L, re, zero_like(L, im)), plus(L, im, zero_like(L, re))));
}

/* real, imag, angle: of a complex tensor */
/* 0, or pi for a negative number; NaN stays. */
static Value *angle_of_real(Lower *L, Value *x)
{
    if (!dtype_is_float(x->dtype)) x = lower_cast(L, x, DT_F32);
    Value *negative = x ? AS(L, lt_Tensor, arg_value(x), arg_int(L->g, 0)) : NULL,
          *same = x ? AS(L, eq_Tensor, arg_value(x), arg_value(x)) : NULL;
    Arg pi = arg_value(
        AS(L, full, arg_exprs(L->g, 0, NULL), arg_float(L->g, 3.14159265358979323846), arg_dtype(x->dtype)));
    Arg none = arg_value(AS(L, full, arg_exprs(L->g, 0, NULL), arg_float(L->g, 0), arg_dtype(x->dtype)));
    Value *y = negative && pi.v && none.v ? AS(L, where_self, arg_value(negative), pi, none) : NULL;
    return y && same ? AS(L, where_self, arg_value(same), arg_value(y), arg_value(x)) : NULL;
}

bool lower_part(Lower *L)
{
    Value *z = lower_value(L, 0);
    Parts p;
    bool real = L->op->id == OP_real;
    if (z && real && !dtype_is_complex(z->dtype)) return lower_return(L, z);
    if (z && L->op->id == OP_angle && !dtype_is_complex(z->dtype)) return lower_return(L, angle_of_real(L, z));
    if (!z || !dtype_is_complex(z->dtype)) return lower_fail(L, 0, "expected a complex tensor");
    TRY(parts(L, z, &p));
    if (L->op->id == OP_angle) return lower_return(L, AS(L, atan2, arg_value(p.im), arg_value(p.re)));
    return lower_return(L, real ? p.re : p.im);
}

bool lower_conj(Lower *L)
{
    Value *z = lower_value(L, 0);
    Parts p;
    if (!z || !dtype_is_complex(z->dtype)) return lower_return(L, z);
    return parts(L, z, &p) && lower_return(L, joined(L, p.re, AS(L, neg, arg_value(p.im))));
}

/* ------------------------------------------------------------------ arithmetic */

static bool add(Lower *L, Parts a, Parts b)
{
    bool less = L->op->id == OP_sub_Tensor;
    if (!ex_equals_int(L->arg[2].e, 1)) {
        b.re = AS(L, mul_Tensor, arg_value(b.re), L->arg[2]);
        if (b.im) b.im = AS(L, mul_Tensor, arg_value(b.im), L->arg[2]);
    }
    Value *re = less ? minus(L, a.re, b.re) : plus(L, a.re, b.re), *ai = a.im ? a.im : zero_like(L, a.re),
          *bi = b.im ? b.im : zero_like(L, b.re);
    return lower_return(L, joined(L, re, less ? minus(L, ai, bi) : plus(L, ai, bi)));
}

static bool multiply(Lower *L, Parts a, Parts b)
{
    if (!a.im || !b.im) {
        Value *re = times(L, a.re, b.re);
        return lower_return(L, joined(L, re, a.im ? times(L, a.im, b.re) : times(L, a.re, b.im)));
    }
    Value *re = minus(L, times(L, a.re, b.re), times(L, a.im, b.im)),
          *im = plus(L, times(L, a.re, b.im), times(L, a.im, b.re));
    return lower_return(L, joined(L, re, im));
}

/* a / b = a * conj(b) / |b|^2 */
static bool divide(Lower *L, Parts a, Parts b)
{
    if (b.im) {
        Value *size = plus(L, times(L, b.re, b.re), times(L, b.im, b.im));
        b.re = AS(L, div_Tensor, arg_value(b.re), arg_value(size));
        b.im = AS(L, neg, arg_value(AS(L, div_Tensor, arg_value(b.im), arg_value(size))));
        return multiply(L, a, b);
    }
    Value *re = AS(L, div_Tensor, arg_value(a.re), arg_value(b.re));
    return lower_return(L, joined(L, re, AS(L, div_Tensor, arg_value(a.im), arg_value(b.re))));
}

/* A number stands for a tensor of rank 0: it does not widen the other operand. */
static Value *operand(Lower *L, int i)
{
    if (L->arg[i].kind != ARG_EXPR) return lower_value(L, i);
    DType other = lower_value(L, 1 - i)->dtype;
    return AS(L, full, arg_exprs(L->g, 0, NULL), L->arg[i], arg_dtype(real_of(other)));
}

/* The same op on both parts: it is linear. */
static bool by_parts(Lower *L, Parts a)
{
    Arg *arg = arena_array(L->g->arena, Arg, L->op->schema->nparams + 1);
    if (!arg) return false;
    for (int i = 1; i < L->op->schema->nparams; i++) arg[i] = L->arg[i];
    arg[0] = arg_value(a.re);
    Value *re = lower_as(L, L->op->id, L->op->schema->nparams, arg), *im;
    arg[0] = arg_value(a.im);
    im = lower_as(L, L->op->id, L->op->schema->nparams, arg);
    return lower_return(L, joined(L, re, im));
}

bool lower_complex_operands(Lower *L, bool *taken)
{
    bool any = false;
    for (int i = 0; i < 2 && i < L->op->schema->nparams; i++)
        any |= L->arg[i].kind == ARG_VALUE && dtype_is_complex(L->arg[i].v->dtype);
    *taken = false;
    if (!any) return true;
    Parts a = {0}, b = {0};
    if (L->op->flags & OPF_ARITHMETIC) {
        *taken = true;
        TRY(parts(L, operand(L, 0), &a) && parts(L, operand(L, 1), &b));
        return L->op->id == OP_mul_Tensor   ? multiply(L, a, b)
               : L->op->id == OP_div_Tensor ? divide(L, a, b)
                                            : add(L, a, b);
    }
    *taken = L->op->flags & OPF_BY_PARTS || L->op->id == OP_abs || L->op->id == OP_exp;
    if (!*taken) return true;
    TRY(parts(L, lower_value(L, 0), &a));
    if (L->op->id == OP_abs) return lower_return(L, AS(L, hypot, arg_value(a.re), arg_value(a.im)));
    if (L->op->id != OP_exp) return by_parts(L, a);
    b.re = AS(L, exp, arg_value(a.re));
    return lower_return(
        L, joined(L, times(L, b.re, AS(L, cos, arg_value(a.im))), times(L, b.re, AS(L, sin, arg_value(a.im)))));
}

bool lower_complex_nodes(const Lower *L, const Node *from)
{
    for (const Node *n = from ? from->next : L->g->first; n; n = n->next) {
        bool moves = n->op->flags & (OPF_VIEW | OPF_PICKS) || n->op->id == OP_cat;
        for (int i = 0; !moves && i < n->op->schema->nparams; i++) {
            const Arg *a = &n->arg[i];
            bool z = a->kind == ARG_VALUE && dtype_is_complex(a->v->dtype);
            for (int k = 0; a->kind == ARG_VALUES && k < a->n; k++) z |= a->vs[k] && dtype_is_complex(a->vs[k]->dtype);
            if (z) return fail(L->err, E_UNSUPPORTED, "%s of complex numbers", n->op->name);
        }
    }
    return true;
}
