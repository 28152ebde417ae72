/* Lowering of tensors put together from numbers and vectors: windows, powers, diagonals, blocks, products of sets.
 *
 *     hann_window(n)          -> 0.5 - 0.5 cos(2 pi arange(n) / n)
 *     vander(x, 3)            -> flip(cat(1, cumprod(x, x)))
 *     block_diag(a, b)        -> cat(pad(a), pad(b))
 */
#include "lower/lower_table.h"
#include "shape/shape.h"

static bool want(Lower *L, Value **x)
{
    *x = lower_value(L, 0);
    return *x || lower_fail(L, 0, "expected a tensor");
}

static bool want_list(Lower *L, const Arg **list)
{
    *list = &L->arg[0];
    bool ok = (*list)->kind == ARG_VALUES && (*list)->n > 0;
    for (int i = 0; ok && i < (*list)->n; i++) ok = (*list)->vs[i] != NULL;
    return ok || lower_fail(L, 0, "expected a list of tensors");
}

/* ------------------------------------------------------------------ of numbers */

/* start + i * step for i in 0 .. length - 1 */
bool lower_iota(Lower *L)
{
    Arg length = L->arg[0], start = L->arg[1], step = L->arg[2];
    Expr *end = ex_add(L->ex, start.e, ex_mul(L->ex, length.e, step.e));
    return lower_return(L, EMIT(L, arange_start_step, start, arg_expr(end), step, L->arg[op_param(L->op, "dtype")]));
}

bool lower_linspace(Lower *L)
{
    DType t = L->arg[3].kind == ARG_DTYPE ? L->arg[3].dtype : DT_F32;
    Arg start = lower_number_as(L, L->arg[0], t), end = lower_number_as(L, L->arg[1], t);
    return lower_return(L, EMIT(L, linspace, start, end, L->arg[2], arg_dtype(t)));
}

bool lower_eye(Lower *L)
{
    int at = op_param(L->op, "dtype");
    Arg t = L->arg[at].kind == ARG_DTYPE ? L->arg[at] : arg_dtype(DT_F32);
    return lower_return(L, EMIT(L, eye_m, L->arg[0], L->op->id == OP_eye ? L->arg[0] : L->arg[1], t));
}

/* ------------------------------------------------------------------ windows */

static DType dtype_or(const Lower *L, DType otherwise)
{
    const Arg *t = &L->arg[op_param(L->op, "dtype")];
    return t->kind == ARG_DTYPE ? t->dtype : otherwise;
}

static Value *times(Lower *L, Value *x, double f) { return AS(L, mul_Tensor, v(x), arg_float(L->g, f)); }
static Value *plus(Lower *L, Value *x, double f) { return AS(L, add_Tensor, v(x), arg_float(L->g, f)); }

/* Positions 0, scale, 2 scale, ... in float64, with `scale` over (length - 1);
 * a periodic window is one longer and loses its last. */
static bool positions(Lower *L, double scale, Value **x, bool *trivial)
{
    int64_t n;
    int at = op_param(L->op, "periodic");
    bool periodic = true;
    TRY(lower_const_int(L, 0, &n) && (at < 0 || lower_const_bool(L, at, &periodic)));
    if (n < 0) return lower_fail(L, 0, "found %lld, expected 0 or more", (long long)n);
    *trivial = n <= 1;
    if (*trivial) *x = AS(L, full, arg_ints(L->g, 1, &n), arg_int(L->g, 1), arg_dtype(dtype_or(L, DT_F32)));
    else *x = times(L, AS(L, arange, arg_int(L->g, n), arg_dtype(DT_F64)), scale / (double)(n - !periodic));
    return *x != NULL;
}

static bool return_window(Lower *L, Value *w) { return w && lower_return(L, lower_cast(L, w, dtype_or(L, DT_F32))); }

static double number(Lower *L, const char *name, double otherwise)
{
    int at = op_param(L->op, name);
    const Expr *e = at < 0 ? NULL : lower_expr(L, at);
    return !e || !ex_is_const(e) ? otherwise : ex_number(e);
}

static const double pi = 3.14159265358979323846;

/* alpha - beta cos(2 pi i / (n - 1)) */
bool lower_cosine_window(Lower *L)
{
    Value *x;
    bool trivial, hann = L->op->id == OP_hann_window || L->op->id == OP_hann_window_periodic;
    TRY(positions(L, 2 * pi, &x, &trivial));
    if (trivial) return lower_return(L, x);
    return return_window(L, plus(L, times(L, AS(L, cos, v(x)), -number(L, "beta", hann ? 0.5 : 0.46)),
                                 number(L, "alpha", hann ? 0.5 : 0.54)));
}

/* 0.42 - 0.5 cos(2 pi i / (n - 1)) + 0.08 cos(4 pi i / (n - 1)) */
bool lower_blackman_window(Lower *L)
{
    Value *x;
    bool trivial;
    TRY(positions(L, 2 * pi, &x, &trivial));
    if (trivial) return lower_return(L, x);
    Value *one = times(L, AS(L, cos, v(x)), -0.5), *two = times(L, AS(L, cos, v(times(L, x, 2))), 0.08);
    return return_window(L, plus(L, AS(L, add_Tensor, v(one), v(two)), 0.42));
}

/* 1 - |2 i / (n - 1) - 1| */
bool lower_bartlett_window(Lower *L)
{
    Value *x;
    bool trivial;
    TRY(positions(L, 2, &x, &trivial));
    if (trivial) return lower_return(L, x);
    return return_window(L, plus(L, times(L, AS(L, abs, v(plus(L, x, -1))), -1), 1));
}

/* i0(beta sqrt(1 - (2 i / (n - 1) - 1)^2)) / i0(beta) */
bool lower_kaiser_window(Lower *L)
{
    Value *x;
    bool trivial;
    double beta = number(L, "beta", 12);
    TRY(positions(L, 2, &x, &trivial));
    if (trivial) return lower_return(L, x);
    Value *bow = AS(L, sqrt, v(plus(L, times(L, AS(L, square, v(plus(L, x, -1))), -1), 1)));
    Value *top = AS(L, full, arg_ints(L->g, 0, NULL), arg_float(L->g, beta), arg_dtype(DT_F64));
    return return_window(L, AS(L, div_Tensor, v(AS(L, i0, v(times(L, bow, beta)))), v(AS(L, i0, v(top)))));
}

/* ------------------------------------------------------------------ powers */

/* base^linspace; integers are the whole part of what float64 gives between the whole parts of the ends */
bool lower_logspace(Lower *L)
{
    DType t = dtype_or(L, DT_F32), wide = dtype_is_float(t) ? t : DT_F64;
    Arg start = lower_number_as(L, L->arg[0], t), end = lower_number_as(L, L->arg[1], t);
    Value *x = AS(L, linspace, start, end, L->arg[2], arg_dtype(wide));
    x = AS(L, pow_Scalar, L->arg[3], v(x));
    return x && lower_return(L, lower_cast(L, x, t));
}

/* (..., n) -> (..., n, N): columns 1, x, x^2, ... */
bool lower_vander(Lower *L)
{
    Value *x;
    bool increasing = true;
    Expr *dim[MAX_RANK + 1];
    TRY(want(L, &x) && (L->op->id == OP_linalg_vander || lower_const_bool(L, 2, &increasing)));
    if (x->rank >= MAX_RANK) return lower_fail(L, 0, "rank %d", x->rank);
    if (!x->rank) TRY(x = lower_reshape(L, x, 1, (Expr *[]){ex_int(L->ex, 1)}));
    if (dtype_is_int(x->dtype) || x->dtype == DT_BOOL) TRY(x = lower_cast(L, x, DT_I64));
    Expr *n = lower_expr(L, 1) ? lower_expr(L, 1) : x->dim[x->rank - 1];
    for (int i = 0; i < x->rank; i++) dim[i] = x->dim[i];
    dim[x->rank] = ex_int(L->ex, 1);
    Value *one = AS(L, full, arg_exprs(L->g, x->rank + 1, dim), arg_int(L->g, 1), arg_dtype(x->dtype));
    dim[x->rank] = ex_max(L->ex, ex_sub(L->ex, n, ex_int(L->ex, 1)), ex_int(L->ex, 0));
    Value *wide = AS(L, expand, v(AS(L, unsqueeze, v(x), arg_int(L->g, -1))), arg_exprs(L->g, x->rank + 1, dim));
    wide = AS(L, cumprod, v(wide), arg_int(L->g, -1));
    TRY(wide);
    Value *y = AS(L, cat, arg_values(L->g, 2, (Value *[]){one, wide}), arg_int(L->g, -1));
    y = AS(L, slice_Tensor, v(y), arg_int(L->g, -1), arg_int(L->g, 0), arg_expr(n), arg_int(L->g, 1));
    return lower_return(L, increasing ? y : AS(L, flip, v(y), arg_ints(L->g, 1, (int64_t[]){-1})));
}

/* ------------------------------------------------------------------ diagonals, blocks, sets */

/* A vector becomes a matrix, a matrix gives its diagonal. */
bool lower_diag(Lower *L)
{
    Value *x;
    TRY(want(L, &x));
    if (L->op->id == OP_diagflat) return lower_return(L, AS(L, diag_embed, v(AS(L, ravel, v(x))), L->arg[1]));
    if (x->rank != 1 && x->rank != 2) return lower_fail(L, 0, "rank %d, expected 1 or 2", x->rank);
    return lower_return(L, x->rank == 1 ? AS(L, diag_embed, v(x), L->arg[1]) : AS(L, diagonal, v(x), L->arg[1]));
}

bool lower_block_diag(Lower *L)
{
    const Arg *a;
    TRY(want_list(L, &a));
    Promote p = {DT_NONE, DT_NONE, DT_NONE};
    Value **block = arena_array(L->g->arena, Value *, a->n);
    for (int i = 0; i < a->n; i++) promote_value(&p, a->vs[i]);
    Expr *zero = ex_int(L->ex, 0), *width = zero, *at = zero;
    for (int i = 0; block && i < a->n; i++) {
        TRY(block[i] = AS(L, atleast_2d, v(lower_cast(L, a->vs[i], promote_result(&p)))));
        if (block[i]->rank != 2) return lower_fail(L, 0, "rank %d, expected at most 2", block[i]->rank);
        width = ex_add(L->ex, width, block[i]->dim[1]);
    }
    for (int i = 0; block && i < a->n; i++) {
        Expr *end = ex_add(L->ex, at, block[i]->dim[1]);
        TRY(block[i] = AS(L, constant_pad_nd, v(block[i]),
                          arg_exprs(L->g, 2, (Expr *[]){at, ex_sub(L->ex, width, end)})));
        at = end;
    }
    return block && lower_return(L, AS(L, cat, arg_values(L->g, a->n, block)));
}

/* One row for each choice of one element of each vector. */
bool lower_cartesian_prod(Lower *L)
{
    const Arg *a;
    TRY(want_list(L, &a));
    if (a->n == 1) return lower_return(L, a->vs[0]);
    Lower M = *L;
    M.op = op_get(OP_meshgrid);
    M.arg = a;
    TRY(lower_op(&M));
    for (int i = 0; i < M.result.n; i++) TRY(M.result.vs[i] = AS(L, ravel, v(M.result.vs[i])));
    return lower_return(L, AS(L, stack, M.result, arg_int(L->g, 1)));
}

/* dstack joins along a third dim, column_stack vectors as columns */
bool lower_dstack(Lower *L)
{
    const Arg *a;
    bool deep = L->op->id == OP_dstack;
    TRY(want_list(L, &a));
    Value **list = arena_array(L->g->arena, Value *, a->n);
    for (int i = 0; list && i < a->n; i++) {
        if (deep) list[i] = AS(L, atleast_3d, v(a->vs[i]));
        else list[i] = a->vs[i]->rank > 1 ? a->vs[i] : AS(L, unsqueeze, v(AS(L, ravel, v(a->vs[i]))), arg_int(L->g, 1));
        TRY(list[i]);
    }
    return list && lower_return(L, AS(L, cat, arg_values(L->g, a->n, list), arg_int(L->g, deep ? 2 : 1)));
}
