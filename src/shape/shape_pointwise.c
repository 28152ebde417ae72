/* Shapes and dtypes of pointwise ops, and PyTorch's type promotion (c10/core/ScalarType.h,
 * aten/src/ATen/native/TypeProperties.cpp). */
#include <math.h>
#include "shape/shape_table.h"

static DType wider(DType a, DType b) { return a == DT_NONE ? b : b == DT_NONE ? a : dtype_promote(a, b); }

void promote_value(Promote *p, const Value *v)
{
    if (v->rank) p->dim = wider(p->dim, v->dtype);
    else p->zero = wider(p->zero, v->dtype);
}

void promote_expr(Promote *p, const Expr *e)
{
    if (e) p->number = wider(p->number, e->is_bool ? DT_BOOL : e->is_float ? DT_F32 : DT_I64);
}

/* A lower priority changes the dtype only if it is of a higher kind: bool < integer < float < complex. */
static DType combine(DType higher, DType lower)
{
    if (dtype_is_complex(higher)) return higher;
    if (dtype_is_float(higher))
        return !dtype_is_complex(lower) ? higher : higher == DT_F16 ? DT_C32 : higher == DT_F64 ? DT_C128 : DT_C64;
    if (higher == DT_BOOL || dtype_is_float(lower) || dtype_is_complex(lower)) return wider(higher, lower);
    return higher != DT_NONE ? higher : lower;
}

DType promote_result(const Promote *p) { return combine(combine(p->dim, p->zero), p->number); }

bool shape_unary(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x));
    return shape_out_like(s, 0, x, x->dtype);
}

bool shape_rrelu(Shape *s)
{
    Value *x = shape_value(s, 0);
    return shape_unary(s) && shape_out_like(s, 1, x, x->dtype);
}

/* What PyTorch draws in: half types too for one operand, for two of one dtype the others. */
bool shape_poisson(Shape *s)
{
    TRY(shape_unary(s));
    DType t = shape_value(s, 0)->dtype;
    return t == DT_F16 || t == DT_BF16 || t == DT_F32 || t == DT_F64 ||
           shape_fail(s, 0, "%s, expected a float", dtype_name(t));
}

bool shape_binomial(Shape *s)
{
    Value *n, *p;
    TRY(shape_want_value(s, 0, &n) && shape_want_value(s, 1, &p));
    if (n->dtype != DT_F32 && n->dtype != DT_F64)
        return shape_fail(s, 0, "%s, expected f32 or f64", dtype_name(n->dtype));
    if (p->dtype != n->dtype) return shape_fail(s, 1, "%s for %s", dtype_name(p->dtype), dtype_name(n->dtype));
    return shape_binary(s);
}

bool shape_truth(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x));
    return shape_out_like(s, 0, x, DT_BOOL);
}

/* The operands from .. from + n, broadcast. */
static bool broadcast_operands(Shape *s, int from, int n, int *rank, Expr **dim, Promote *p)
{
    *rank = 0;
    *p = (Promote){DT_NONE, DT_NONE, DT_NONE};
    for (int i = from; i < from + n; i++) {
        const Arg *a = shape_arg(s, i);
        if (a->kind == ARG_EXPR) promote_expr(p, a->e);
        if (a->kind != ARG_VALUE) continue;
        promote_value(p, a->v);
        TRY(shape_broadcast(s, rank, dim, a->v->rank, a->v->dim, "broadcast sizes"));
    }
    return true;
}

bool shape_binary(Shape *s)
{
    int rank;
    Expr *dim[MAX_RANK];
    Promote p;
    TRY(broadcast_operands(s, 0, 2, &rank, dim, &p));
    return shape_out(s, 0, promote_result(&p), rank, dim);
}

bool shape_truth2(Shape *s)
{
    int rank;
    Expr *dim[MAX_RANK];
    Promote p;
    TRY(broadcast_operands(s, 0, 2, &rank, dim, &p));
    return shape_out(s, 0, DT_BOOL, rank, dim);
}

bool shape_where(Shape *s)
{
    int rank, all;
    Expr *dim[MAX_RANK];
    Promote p, any;
    const Value *c = shape_value(s, 0);
    if (c && c->dtype != DT_BOOL && c->dtype != DT_U8)
        return shape_fail(s, 0, "found %s, expected bool", dtype_name(c->dtype));
    TRY(broadcast_operands(s, 1, 2, &rank, dim, &p));
    TRY(broadcast_operands(s, 0, 3, &all, dim, &any));
    return shape_out(s, 0, promote_result(&p), all, dim);
}

bool shape_to_copy(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x));
    return shape_out_like(s, 0, x, shape_dtype(s, op_param(s->node->op, "dtype"), x->dtype));
}

bool shape_full(Shape *s)
{
    const Arg *a = shape_arg(s, 0);
    return shape_out(s, 0, shape_dtype(s, op_param(s->node->op, "dtype"), DT_F32), a->n, a->es);
}

/* (low, high, size, dtype) */
bool shape_randint(Shape *s)
{
    const Arg *a = shape_arg(s, 2);
    return shape_out(s, 0, shape_dtype(s, op_param(s->node->op, "dtype"), DT_I64), a->n, a->es);
}

bool shape_randperm(Shape *s)
{
    return shape_out(s, 0, shape_dtype(s, op_param(s->node->op, "dtype"), DT_I64), 1, &shape_arg(s, 0)->e);
}

static bool is_one(const Expr *e) { return ex_equals_int(e, 1) || (e->kind == EX_FLOAT && e->f == 1); }

static Expr *cut_to_whole(ExprPool *p, Expr *e)
{
    if (e->kind == EX_FLOAT && fabs(e->f) < 0x1p53) return ex_int(p, (int64_t)e->f);
    return e->is_float ? ex_make(p, EX_TRUNC, e, NULL, NULL) : e;
}

/* ceil((end - start) / step); arange(0.5, n) has n elements for every n, which the quotient of floats would not give.
 * PyTorch cuts all three to whole numbers first for int64, though for no other integers. */
bool shape_arange(Shape *s)
{
    ExprPool *p = s->ex;
    Expr *start = shape_arg(s, 0)->e, *end = shape_arg(s, 1)->e, *step = shape_arg(s, 2)->e, *n;
    DType t = shape_dtype(s, op_param(s->node->op, "dtype"), DT_I64);
    if (t == DT_I64) {
        start = cut_to_whole(p, start);
        end = cut_to_whole(p, end);
        step = cut_to_whole(p, step);
        if (!start || !end || !step) return fail(s->err, E_LIMIT, "a size expression is too large");
        if (ex_equals_int(step, 0)) return shape_fail(s, 2, "a step of 0 when cut to a whole number");
    }
    Expr *whole = end->kind == EX_TOFLOAT ? end->args[0] : end;
    if (is_one(step) && !whole->is_float && start->kind == EX_FLOAT && fabs(start->f) < 0x1p53)
        n = ex_sub(p, whole, ex_int(p, (int64_t)floor(start->f)));
    else if (start->is_float || end->is_float || step->is_float)
        n = ex_make(p, EX_CEIL,
                    ex_make(p, EX_TRUEDIV, ex_make(p, EX_TOFLOAT, ex_sub(p, end, start), NULL, NULL),
                            ex_make(p, EX_TOFLOAT, step, NULL, NULL), NULL),
                    NULL, NULL);
    else n = ex_neg(p, ex_floordiv(p, ex_sub(p, start, end), step));
    n = n ? ex_max(p, n, ex_int(p, 0)) : NULL;
    return shape_out(s, 0, t, 1, &n);
}

bool shape_linspace(Shape *s)
{
    Expr *n = shape_arg(s, 2)->e;
    return shape_out(s, 0, shape_dtype(s, op_param(s->node->op, "dtype"), DT_F32), 1, &n);
}

bool shape_eye(Shape *s)
{
    Expr *dim[2] = {shape_arg(s, 0)->e, shape_arg(s, 1)->e};
    return shape_out(s, 0, shape_dtype(s, op_param(s->node->op, "dtype"), DT_F32), 2, dim);
}

/* One weight, or one for each channel. */
bool shape_prelu(Shape *s)
{
    Value *x, *w;
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 1, &w));
    if (w->rank > 1) return shape_fail(s, 1, "rank %d, expected 0 or 1", w->rank);
    if (w->rank && !ex_equals_int(w->dim[0], 1))
        TRY(shape_require_equal(s, w->dim[0], x->rank ? x->dim[x->rank > 1] : ex_int(s->ex, 1),
                                "weights and channels"));
    return shape_out_like(s, 0, x, x->dtype);
}

bool shape_triangle(Shape *s)
{
    Value *x;
    TRY(shape_want_value(s, 0, &x));
    if (x->rank < 2) return shape_fail(s, 0, "rank %d, expected at least 2", x->rank);
    return shape_out_like(s, 0, x, x->dtype);
}

/* How many pairs (r, c) of rows x cols have c <= r + offset: rows before the diagonal enters, a trapezoid,
 * full rows. */
static int64_t triangle_size(int64_t rows, int64_t cols, int64_t offset)
{
    if (rows == 0 || cols == 0) return 0;
    int64_t first = offset >= 0 ? (offset + 1 < cols ? offset + 1 : cols) : rows + offset > 0;
    int64_t last = rows + offset < 0 ? 0 : rows + offset < cols ? rows + offset : cols;
    int64_t all = rows + offset < 0 ? 0 : offset < 0 ? rows + offset : rows, sloped = last - first + 1;
    return (first + last) * sloped / 2 + (all > sloped ? (all - sloped) * cols : 0);
}

bool shape_tri_indices(Shape *s)
{
    int64_t v[3];
    bool upper = s->node->op->id == OP_triu_indices;
    for (int i = 0; i < 3; i++) {
        TRY(shape_const_int(s, i, &v[i]));
        if ((i < 2 && v[i] < 0) || v[i] > INT32_MAX || v[i] < -INT32_MAX)
            return shape_fail(s, i, "found %lld", (long long)v[i]);
    }
    int64_t n = upper ? v[0] * v[1] - triangle_size(v[0], v[1], v[2] - 1) : triangle_size(v[0], v[1], v[2]);
    Expr *dim[2] = {ex_int(s->ex, 2), ex_int(s->ex, n)};
    return shape_out(s, 0, shape_dtype(s, 3, DT_I64), 2, dim);
}

/* scale and zero point: one number, one an index of axis, or one a block of block_size along it */
static bool scale_fits(Shape *s, int i, const Value *x, int axis_arg)
{
    const Value *v = shape_value(s, i);
    int64_t block;
    int axis;
    bool one = true;
    if (!v) return true;
    for (int d = 0; d < v->rank; d++) one = one && ex_equals_int(v->dim[d], 1);
    TRY(shape_const_int(s, axis_arg + 1, &block));
    if (one) return true;
    TRY(shape_dim(s, axis_arg, x->rank, &axis));
    if (block < 0) return shape_fail(s, axis_arg + 1, "found %lld, expected 0 or more", (long long)block);
    if (!block) {
        if (v->rank != 1) return shape_fail(s, i, "rank %d without blocks, expected a number or a vector", v->rank);
        return shape_require_equal(s, v->dim[0], x->dim[axis], "scales for the quantized axis");
    }
    if (v->rank != x->rank)
        return shape_fail(s, i, "rank %d with blocks, expected the input's rank %d", v->rank, x->rank);
    for (int d = 0; d < x->rank; d++) {
        Expr *n = x->dim[d];
        if (d == axis) n = ex_floordiv(s->ex, ex_add(s->ex, n, ex_int(s->ex, block - 1)), ex_int(s->ex, block));
        TRY(shape_require_equal(s, v->dim[d], n, "scales for the quantized blocks"));
    }
    return true;
}

bool shape_quantize_linear(Shape *s)
{
    Value *x, *scale;
    bool quantize = s->node->op->id == OP_quantize_linear;
    int axis = quantize ? 4 : 3;
    TRY(shape_want_value(s, 0, &x) && shape_want_value(s, 1, &scale));
    const Value *zero = shape_value(s, 2);
    DType t = quantize ? shape_dtype(s, 3, DT_NONE) : shape_dtype(s, 5, scale->dtype), narrow = quantize ? t : x->dtype;
    if (!dtype_is_float(scale->dtype)) return shape_fail(s, 1, "%s, expected a float", dtype_name(scale->dtype));
    if (t == DT_NONE || dtype_is_complex(narrow) || narrow == DT_BOOL || (quantize && dtype_size(t) > 4))
        return shape_fail(s, 0, "%s cannot be quantized", dtype_name(narrow));
    if (zero && zero->dtype != narrow)
        return shape_fail(s, 2, "%s, expected %s", dtype_name(zero->dtype), dtype_name(narrow));
    bool one = zero && ex_equals_int(shape_numel(s, zero), 1) && ex_equals_int(shape_numel(s, scale), 1);
    if (zero && !one && scale->rank == 0) {
        TRY(shape_require_equal(s, shape_numel(s, zero), ex_int(s->ex, 1), "zero points of one scale"));
        one = true;
    }
    if (zero && !one && zero->rank != scale->rank)
        return shape_fail(s, 2, "rank %d, the scale has rank %d", zero->rank, scale->rank);
    for (int d = 0; zero && !one && d < zero->rank; d++)
        TRY(shape_require_equal(s, zero->dim[d], scale->dim[d], "zero points and scales"));
    TRY(scale_fits(s, 1, x, axis));
    return shape_out(s, 0, t, x->rank, x->dim);
}

bool shape_seeded_uniform(Shape *s)
{
    const Arg *size = shape_arg(s, 0);
    int64_t seed;
    TRY(shape_const_int(s, 1, &seed));
    if (seed < 0 || seed > UINT32_MAX) return shape_fail(s, 1, "found %lld, expected 0 to 2^32 - 1", (long long)seed);
    if (size->n > MAX_RANK) return shape_fail(s, 0, "rank %d: at most %d is supported", size->n, MAX_RANK);
    return shape_out(s, 0, DT_F64, size->n, size->es);
}
