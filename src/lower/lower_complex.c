/* Complex tensors become pairs of reals, on an axis of 2 at the end: what moves elements moves pairs, what computes is
 * written in reals. Complex values stay where a graph begins and ends: inputs, weights, outputs.
 *
 *     view_as_real(z)   (..., n) c64 -> (..., n, 2) f32: a view
 *     transpose(z)      view_as_complex(transpose(pairs))
 *     sum(z)            sum(re), sum(im)
 *
 * The word COMPLEX of an op's row names the function that writes it (complex_NAME); COMPLEX_FORMULA is an expression
 * that does. It is called for an op of a file and for a row that a lowering emits alike, so that composites work with
 * complex operands, too.
 */
#include <string.h>
#include "facts/axes.h"
#include "lower/complex.h"
#include "lower/lower_table.h"
#include "op/formula.h"
#include "shape/shape.h"

/* Few rows have the word: cases take less room than a table of all rows. */
static LowerFn *writer(OpId op)
{
    switch (op) {
#define COMPLEX(f) return complex_##f;
#define COMPLEX_FORMULA(text) return complex_formula;
#define OP(id, name, schema, ...)                                                                                      \
    case OP_##id: __VA_ARGS__ break;
#include "op/ops.def"
    default: break;
    }
    return NULL;
}

DType complex_real_of(DType t) { return t == DT_C128 ? DT_F64 : t == DT_C32 ? DT_F16 : DT_F32; }
DType complex_of(DType t) { return t == DT_F64 ? DT_C128 : t == DT_F16 ? DT_C32 : DT_C64; }

static bool is_complex(const Value *v) { return v && dtype_is_complex(v->dtype); }

static bool any_complex(int n, const Arg *arg)
{
    for (int i = 0; i < n; i++) {
        if (arg[i].kind == ARG_DTYPE && dtype_is_complex(arg[i].dtype)) return true;
        if (arg[i].kind == ARG_VALUE && is_complex(arg[i].v)) return true;
        for (int k = 0; arg[i].kind == ARG_VALUES && k < arg[i].n; k++)
            if (is_complex(arg[i].vs[k])) return true;
    }
    return false;
}

bool lower_is_complex(OpId op, int n, const Arg *arg) { return any_complex(n, arg) && writer(op); }

bool lower_complex_operands(Lower *L, bool *taken)
{
    *taken = lower_is_complex(L->op->id, L->op->schema->nparams, L->arg);
    if (*taken) return writer(L->op->id)(L);
    for (int i = 0; i < L->op->schema->nparams && !L->op->alias_of; i++)
        if (L->op->schema->params[i].type == PT_SCALAR && L->arg[i].kind == ARG_VALUE)
            return lower_fail(L, i, "found a complex number, expected a real one");
    return true;
}

bool lower_complex_nodes(const Lower *L, const Node *from)
{
    for (const Node *n = from ? from->next : L->g->first; n; n = n->next) {
        bool border = n->op->id == OP_view_dtype || n->op->id == OP_reshape || n->op->id == OP_detach;
        if (!border && any_complex(n->op->schema->nparams, n->arg))
            return fail(L->err, E_UNSUPPORTED, "%s of complex numbers", n->op->name);
    }
    return true;
}

bool complex_plainly(Lower *L) { return lower_row(L); }

/* The row's own lowering of these arguments, which are real. */
static bool again(Lower *L, const Arg *arg)
{
    Lower M = *L;
    M.arg = arg;
    TRY(lower_op(&M));
    L->result = M.result;
    return true;
}

/* ------------------------------------------------------------------ formulas */

/* The text of COMPLEX_FORMULA, or of FORMULA in a row that says COMPLEX(formula) or LOWER(formula). */
static const char *formula_of(OpId op)
{
    bool whole = false;
    switch (op) {
#define LOWER(f) whole = lower_##f == lower_formula;
#define COMPLEX(f) whole = complex_##f == complex_formula;
#define COMPLEX_FORMULA(text) return text;
#define FORMULA(text)                                                                                                  \
    if (whole) return text;
#define OP(id, name, schema, ...)                                                                                      \
    case OP_##id: __VA_ARGS__ break;
#include "op/ops.def"
    default: break;
    }
    return NULL;
}

static bool named(Lower *L, const char *name, Parts *z, Arg *out)
{
    bool re = !strcmp(name, "x");
    if (!re && strcmp(name, "y")) {
        int i = op_param(L->op, name);
        if (i < 0) return fail(L->err, E_UNSUPPORTED, "no parameter '%s' in %s", name, L->op->name);
        *out = L->arg[i];
        return true;
    }
    if (!z->re) TRY(complex_parts(L, lower_value(L, 0), z));
    if (!z->im) TRY(z->im = AS(L, zeros_like, arg_value(z->re)));
    *out = arg_value(re ? z->re : z->im);
    return true;
}

static OpId meant(const FormulaNode *x)
{
    const Op *op = x->kind == '(' ? formula_row(x) : NULL;
    return op               ? op->id
           : x->kind == '+' ? OP_add_Tensor
           : x->kind == '*' ? OP_mul_Tensor
           : x->kind == '/' ? OP_div_Tensor
           : x->n == 1      ? OP_neg
                            : OP_sub_Tensor;
}

bool complex_formula(Lower *L)
{
    Formula f;
    Arg done[FORMULA_NODES];
    Parts z = {NULL, NULL};
    const char *text = formula_of(L->op->id);
    if (!formula_read(&f, text)) return fail(L->err, E_UNSUPPORTED, "formula '%s': %s at '%s'", text, f.wrong, f.at);
    for (int i = 0; i < f.n; i++) {
        const FormulaNode *x = &f.node[i];
        Arg arg[FORMULA_ARGS];
        for (int k = 0; k < x->n; k++) arg[k] = done[x->arg[k]];
        bool minus = x->kind == '-' && x->n == 1 && arg[0].kind == ARG_EXPR;
        if (x->kind == 'x') TRY(named(L, x->name, &z, &done[i]));
        else if (minus) done[i] = arg_float(L->g, -ex_number(arg[0].e));
        else done[i] = x->kind == '0' ? arg_float(L->g, x->number) : arg_value(lower_as(L, meant(x), x->n, arg));
        if (L->err->code != E_OK) return false;
        if (!arg_built(&done[i])) return oom(L->err);
    }
    return lower_return(L, done[f.root].v);
}

/* A composite's FORMULA, of half types in float32. */
bool lower_formula(Lower *L)
{
    DType t;
    return lower_widened(L, 1, &t) && complex_formula(L) && lower_return(L, lower_cast(L, L->result.v, t));
}

/* ------------------------------------------------------------------ pairs */

/* A row as it is: complex values are looked at as pairs, and pairs as complex values, by rows of their own. */
static Value *plain(Lower *L, OpId op, Value *x, Arg second)
{
    Node *n = x ? graph_add(L->g, op, 2, (Arg[]){arg_value(x), second}, L->name, L->err) : NULL;
    return n ? n->out[0] : NULL;
}

/* The pairs that complex_from_pairs was given; NULL: z comes from elsewhere. */
static Value *pairs_of(const Value *z)
{
    const Node *n = z->def, *below = n && n->op->id == OP_reshape ? n->arg[0].v->def : NULL;
    Value *pairs = below && below->op->id == OP_view_dtype ? below->arg[0].v : NULL;
    if (!pairs || pairs->dtype != complex_real_of(z->dtype) || pairs->rank != z->rank + 1) return NULL;
    return ex_equals_int(pairs->dim[z->rank], 2) && has_dims(z, z->rank, pairs->dim) ? pairs : NULL;
}

/* The pairs of z that were made before; NULL: none were. */
static Value *pairs_before(const Graph *g, const Value *z)
{
    for (const Node *n = z->def ? z->def->next : g->first; n; n = n->next) {
        const Node *wide = n->op->id == OP_view_dtype ? n->arg[0].v->def : NULL;
        if (wide && wide->op->id == OP_reshape && wide->arg[0].v == z && n->out[0]->rank == z->rank + 1 &&
            n->out[0]->dtype == complex_real_of(z->dtype))
            return n->out[0];
    }
    return NULL;
}

Value *complex_pairs(Lower *L, Value *z)
{
    Expr *dim[MAX_RANK];
    if (!z) return NULL;
    if (pairs_of(z)) return pairs_of(z);
    if (z->rank >= MAX_RANK) {
        fail(L->err, E_UNSUPPORTED, "complex numbers of rank %d, at most %d is supported", z->rank, MAX_RANK - 1);
        return NULL;
    }
    if (pairs_before(L->g, z)) return pairs_before(L->g, z);
    for (int i = 0; i < z->rank; i++) dim[i] = z->dim[i];
    dim[z->rank] = ex_int(L->ex, 1);
    z = plain(L, OP_reshape, z, arg_exprs(L->g, z->rank + 1, dim));
    return z ? plain(L, OP_view_dtype, z, arg_dtype(complex_real_of(z->dtype))) : NULL;
}

Value *complex_from_pairs(Lower *L, Value *pairs)
{
    if (!pairs) return NULL;
    Value *z = plain(L, OP_view_dtype, pairs, arg_dtype(complex_of(pairs->dtype)));
    return z ? plain(L, OP_reshape, z, arg_exprs(L->g, z->rank - 1, z->dim)) : NULL;
}

bool lower_view_as_real(Lower *L)
{
    Value *z = lower_value(L, 0);
    if (!is_complex(z)) return lower_fail(L, 0, "expected a complex tensor");
    return lower_return(L, complex_pairs(L, z));
}

bool lower_view_as_complex(Lower *L)
{
    Value *x = lower_value(L, 0);
    if (!x || !dtype_is_float(x->dtype) || !x->rank || !ex_equals_int(x->dim[x->rank - 1], 2))
        return lower_fail(L, 0, "expected floats with a last size of 2");
    return lower_return(L, complex_from_pairs(L, x));
}

/* x with these sizes but the last, and then one or two more. */
static Value *with_last(Lower *L, Value *x, const Value *sizes, int n, Expr *const *last)
{
    Expr *dim[MAX_RANK];
    for (int i = 0; i < sizes->rank - 1; i++) dim[i] = sizes->dim[i];
    for (int i = 0; i < n; i++) dim[sizes->rank - 1 + i] = last[i];
    return x ? AS(L, reshape, arg_value(x), arg_exprs(L->g, sizes->rank - 1 + n, dim)) : NULL;
}

/* Complex numbers as twice as many reals, reals as complex numbers: pairs of another shape, so that a file that qkv
 * wrote gives the graph it was written from. Another width than that of the reals is a look at their bytes. */
bool complex_view_dtype(Lower *L)
{
    Value *x = lower_value(L, 0);
    DType t = L->arg[1].dtype, real = dtype_is_complex(t) ? complex_real_of(t) : t;
    if (!x || !x->rank || x->rank >= MAX_RANK) return lower_row(L);
    Expr *two = ex_int(L->ex, 2), *last = ex_mul(L->ex, x->dim[x->rank - 1], two);
    Value *y = is_complex(x) ? with_last(L, complex_pairs(L, x), x, 1, &last) : x;
    if (y && y->dtype != real) y = AS(L, view_dtype, arg_value(y), arg_dtype(real));
    if (!y || real == t) return y && lower_return(L, y);
    last = y->dim[y->rank - 1];
    Expr *half = ex_floordiv(L->ex, last, two);
    if (last != ex_mul(L->ex, half, two)) return lower_row(L);
    return lower_return(L, complex_from_pairs(L, with_last(L, y, y, 2, (Expr *[]){half, two})));
}

/* ------------------------------------------------------------------ parts */

/* What complex_joined put at position i of the last axis; NULL: the pairs come from elsewhere. */
static Value *part_of(const Value *pairs, int i)
{
    const Node *n = pairs->def;
    int last = pairs->rank - 1;
    if (!n || n->op->id != OP_cat || n->arg[0].n != 2) return NULL;
    const Value *one = n->arg[0].vs[i];
    if (!one->def || one->def->op->id != OP_reshape || !ex_equals_int(one->dim[last], 1)) return NULL;
    Value *part = one->def->arg[0].v;
    return part->rank == last && has_dims(part, last, pairs->dim) ? part : NULL;
}

bool complex_parts(Lower *L, Value *z, Parts *p)
{
    *p = (Parts){z, NULL};
    if (!z) return false;
    if (!is_complex(z)) return true;
    Value *both = complex_pairs(L, z);
    TRY(both);
    *p = (Parts){part_of(both, 0), part_of(both, 1)};
    if (p->re && p->im) return true;
    p->re = EMIT(L, select_int, arg_value(both), arg_int(L->g, z->rank), arg_int(L->g, 0));
    p->im = EMIT(L, select_int, arg_value(both), arg_int(L->g, z->rank), arg_int(L->g, 1));
    return p->re && p->im;
}

Value *complex_joined(Lower *L, Value *re, Value *im)
{
    if (re && !im && L->err->code == E_OK) im = AS(L, zeros_like, arg_value(re));
    if (!re || !im) return NULL;
    return complex_from_pairs(L, AS(L, stack, arg_values(L->g, 2, (Value *[]){re, im}), arg_int(L->g, -1)));
}

bool complex_return(Lower *L, Value *re, Value *im) { return re && im && lower_return(L, complex_joined(L, re, im)); }

Value *lower_complex_cast(Lower *L, Value *x, DType t)
{
    Parts p;
    bool from = dtype_is_complex(x->dtype), to = dtype_is_complex(t);
    if (from && to) return complex_from_pairs(L, lower_cast(L, complex_pairs(L, x), complex_real_of(t)));
    if (from && t == DT_BOOL) return AS(L, ne_Tensor, arg_value(x), arg_int(L->g, 0));
    if (!complex_parts(L, x, &p)) return NULL;
    Value *re = lower_cast(L, p.re, from ? t : complex_real_of(t));
    return from ? re : complex_joined(L, re, NULL);
}

bool lower_chalf(Lower *L)
{
    Value *x = lower_value(L, 0);
    return x ? lower_return(L, lower_cast(L, x, DT_C32)) : lower_fail(L, 0, "expected a tensor");
}

Value *complex_value(Lower *L, int i, DType other)
{
    Value *x = lower_value(L, i);
    if (L->arg[i].kind == ARG_EXPR)
        x = AS(L, full, arg_exprs(L->g, 0, NULL), L->arg[i], arg_dtype(complex_real_of(other)));
    return !x || is_complex(x) ? x : lower_cast(L, x, complex_of(x->dtype));
}

bool lower_polar(Lower *L)
{
    Value *r, *t;
    TRY(lower_two(L, 0, 1, &r, &t));
    return complex_return(L, AS(L, mul_Tensor, arg_value(r), arg_value(AS(L, cos, arg_value(t)))),
                          AS(L, mul_Tensor, arg_value(r), arg_value(AS(L, sin, arg_value(t)))));
}

bool lower_complex(Lower *L)
{
    Value *re, *im;
    TRY(lower_two(L, 0, 1, &re, &im));
    if (re->dtype != im->dtype)
        return lower_fail(L, 1, "%s beside %s", dtype_name(im->dtype), dtype_name(re->dtype));
    if (same_dims(re, im)) return complex_return(L, re, im);
    return complex_return(L, AS(L, add_Tensor, arg_value(re), arg_value(AS(L, zeros_like, arg_value(im)))),
                          AS(L, add_Tensor, arg_value(im), arg_value(AS(L, zeros_like, arg_value(re)))));
}

/* 0, or pi for a negative number; NaN stays. */
static Value *angle_of_real(Lower *L, Value *x)
{
    if (!dtype_is_float(x->dtype)) x = lower_cast(L, x, DT_F32);
    if (!x) return NULL;
    Value *negative = AS(L, lt_Tensor, arg_value(x), arg_int(L->g, 0)),
          *same = AS(L, eq_Tensor, arg_value(x), arg_value(x));
    Arg pi = arg_value(
        AS(L, full, arg_exprs(L->g, 0, NULL), arg_float(L->g, 3.14159265358979323846), arg_dtype(x->dtype)));
    Arg none = arg_value(AS(L, full, arg_exprs(L->g, 0, NULL), arg_float(L->g, 0), arg_dtype(x->dtype)));
    Value *y = negative && pi.v && none.v ? AS(L, where_self, arg_value(negative), pi, none) : NULL;
    return y && same ? AS(L, where_self, arg_value(same), arg_value(y), arg_value(x)) : NULL;
}

/* real, imag, angle */
bool lower_part(Lower *L)
{
    Value *z = lower_value(L, 0);
    Parts p;
    bool real = L->op->id == OP_real;
    if (z && real && !is_complex(z)) return lower_return(L, z);
    if (z && L->op->id == OP_angle && !is_complex(z)) return lower_return(L, angle_of_real(L, z));
    if (!is_complex(z)) return lower_fail(L, 0, "expected a complex tensor");
    if (L->op->id != OP_angle) { /* a view, through which the file may write */
        Value *both = complex_pairs(L, z);
        return both &&
               lower_return(L, EMIT(L, select_int, arg_value(both), arg_int(L->g, z->rank), arg_int(L->g, !real)));
    }
    return complex_parts(L, z, &p) && lower_return(L, AS(L, atan2, arg_value(p.im), arg_value(p.re)));
}

bool lower_conj(Lower *L)
{
    Value *z = lower_value(L, 0);
    Parts p;
    if (!is_complex(z)) return lower_return(L, z);
    return complex_parts(L, z, &p) && complex_return(L, p.re, AS(L, neg, arg_value(p.im)));
}

/* ------------------------------------------------------------------ what moves elements */

/* The row, its first operand and its list of sizes with the axis of 2 added. */
static bool with_axis(Lower *L, Expr *last)
{
    Expr *e[MAX_RANK + 1];
    const Arg *a = &L->arg[1];
    if (a->n >= MAX_RANK) return lower_fail(L, 1, "rank %d, at most %d is supported", a->n, MAX_RANK - 1);
    for (int i = 0; i < a->n; i++) e[i] = a->es[i];
    e[a->n] = last;
    return lower_return(L, complex_from_pairs(L, lower_as(L, L->op->id, 2,
                                                          (Arg[]){arg_value(complex_pairs(L, lower_value(L, 0))),
                                                                  arg_exprs(L->g, a->n + 1, e)})));
}

bool complex_sizes(Lower *L) { return with_axis(L, ex_int(L->ex, 2)); }

bool complex_permute(Lower *L)
{
    const Arg *a = &L->arg[1];
    Expr *e[MAX_RANK + 1];
    int rank = lower_value(L, 0)->rank;
    if (a->n != rank) return lower_fail(L, 1, "%d dims for a tensor of rank %d", a->n, rank);
    for (int i = 0; i < rank; i++) e[i] = a->es[i]->i < 0 ? ex_int(L->ex, a->es[i]->i + rank) : a->es[i];
    e[rank] = ex_int(L->ex, rank);
    Value *pairs = complex_pairs(L, lower_value(L, 0));
    return pairs &&
           lower_return(L, complex_from_pairs(L, AS(L, permute, arg_value(pairs), arg_exprs(L->g, rank + 1, e))));
}

/* The row on pairs, its second argument a dim. */
bool complex_along_dim(Lower *L)
{
    Value *z = lower_value(L, 0);
    int d, n = L->op->schema->nparams;
    Arg *arg = arena_array(L->g->arena, Arg, n + 1);
    if (!is_complex(z)) return lower_fail(L, 0, "expected a complex tensor");
    TRY(lower_dim(L, 1, z->rank, &d));
    if (!arg) return oom(L->err);
    if (!z->rank) return complex_by_parts(L);
    for (int i = 2; i < n; i++) arg[i] = L->arg[i];
    arg[0] = arg_value(complex_pairs(L, z));
    arg[1] = arg_int(L->g, d);
    return arg[0].v && lower_return(L, complex_from_pairs(L, lower_as(L, L->op->id, n, arg)));
}

/* Pairs whose axis of 2 a view has left before the last one */
static bool pair_before_last(Lower *L, Value *pairs)
{
    return pairs && lower_return(L, complex_from_pairs(L, AS(L, transpose_int, arg_value(pairs), arg_int(L->g, -1),
                                                             arg_int(L->g, -2))));
}

/* (z, size, stride, offset) */
bool complex_as_strided(Lower *L)
{
    Expr *size[MAX_RANK + 1], *stride[MAX_RANK + 1], *two = ex_int(L->ex, 2);
    int n = L->arg[1].n;
    Value *pairs = complex_pairs(L, lower_value(L, 0));
    if (n >= MAX_RANK) return lower_fail(L, 1, "rank %d, at most %d is supported", n, MAX_RANK - 1);
    if (L->arg[2].n != n) return lower_fail(L, 2, "%d strides for %d sizes", L->arg[2].n, n);
    for (int i = 0; i < n; i++) {
        size[i] = L->arg[1].es[i];
        if (!(stride[i] = ex_mul(L->ex, L->arg[2].es[i], two))) return oom(L->err);
    }
    size[n] = two;
    stride[n] = ex_int(L->ex, 1);
    Arg offset = lower_is_none(L, 3) ? L->arg[3] : arg_expr(ex_mul(L->ex, lower_expr(L, 3), two));
    Value *y = pairs ? AS(L, as_strided, arg_value(pairs), arg_exprs(L->g, n + 1, size),
                          arg_exprs(L->g, n + 1, stride), offset)
                     : NULL;
    return y && lower_return(L, complex_from_pairs(L, y));
}

/* (z, offset, dim1, dim2) */
bool complex_diagonal(Lower *L)
{
    Value *z = lower_value(L, 0), *pairs = complex_pairs(L, z);
    int a, b;
    TRY(pairs && lower_dim(L, 2, z->rank, &a) && lower_dim(L, 3, z->rank, &b));
    return pair_before_last(
        L, AS(L, diagonal, arg_value(pairs), L->arg[1], arg_int(L->g, a), arg_int(L->g, b)));
}

/* (z, dim, size, step) */
bool complex_unfold(Lower *L)
{
    Value *z = lower_value(L, 0);
    int d;
    TRY(z && lower_dim(L, 1, z->rank, &d));
    if (!z->rank) return complex_by_parts(L);
    Value *pairs = complex_pairs(L, z);
    return pairs && pair_before_last(L, AS(L, unfold, arg_value(pairs), arg_int(L->g, d), L->arg[2], L->arg[3]));
}

static DType common_dtype(const Arg *list)
{
    DType t = DT_NONE;
    for (int i = 0; i < list->n; i++) t = t == DT_NONE ? list->vs[i]->dtype : dtype_promote(t, list->vs[i]->dtype);
    return t;
}

bool complex_cat(Lower *L)
{
    const Arg *list = &L->arg[0];
    int d, rank = 1;
    DType t = common_dtype(list);
    Value **pairs = arena_array(L->g->arena, Value *, list->n + 1);
    if (!pairs) return oom(L->err);
    for (int i = 0; i < list->n; i++) {
        TRY(pairs[i] = complex_pairs(L, lower_cast(L, list->vs[i], t)));
        if (list->vs[i]->rank > rank) rank = list->vs[i]->rank;
    }
    TRY(lower_dim(L, 1, rank, &d));
    return lower_return(L, complex_from_pairs(L, AS(L, cat, arg_values(L->g, list->n, pairs), arg_int(L->g, d))));
}

/* ------------------------------------------------------------------ the same of both parts */

/* Arguments with the real or the imaginary part of each complex one in its place. */
static bool take_part(Lower *L, bool imaginary, Arg *arg)
{
    bool any = false;
    for (int i = 0; i < L->op->schema->nparams; i++) {
        const Arg *a = &L->arg[i];
        Parts p;
        arg[i] = *a;
        if (a->kind == ARG_DTYPE && !dtype_is_complex(a->dtype)) return lower_fail(L, i, "a real dtype");
        if (a->kind == ARG_DTYPE) arg[i] = arg_dtype(complex_real_of(a->dtype));
        if (a->kind != ARG_VALUE || !a->v) continue;
        if (dtype_is_float(a->v->dtype)) return lower_fail(L, i, "a real tensor beside complex ones");
        if (!is_complex(a->v)) continue;
        any = true;
        TRY(complex_parts(L, a->v, &p));
        arg[i] = arg_value(imaginary ? p.im : p.re);
    }
    return any || fail(L->err, E_UNSUPPORTED, "%s of real numbers with a complex result", L->op->name);
}

/* The row is linear in its complex operands together: it takes both parts, each for itself. */
bool complex_by_parts(Lower *L)
{
    int n = L->op->schema->nparams;
    Arg *re = arena_array(L->g->arena, Arg, n + 1), *im = arena_array(L->g->arena, Arg, n + 1);
    if (!re || !im) return oom(L->err);
    TRY(take_part(L, false, re) && take_part(L, true, im));
    Value *real = lower_as(L, L->op->id, n, re);
    return real && complex_return(L, real, lower_as(L, L->op->id, n, im));
}

/* (x, sizes, number) */
bool complex_pad(Lower *L)
{
    Parts z;
    TRY(complex_parts(L, lower_value(L, 0), &z));
    if (L->arg[2].kind == ARG_VALUE) { /* a complex number where what is padded with ones is not zero */
        Arg ones = arg_value(AS(L, zeros_like, arg_value(z.re)));
        ones = arg_value(AS(L, ne_Tensor, arg_value(AS(L, constant_pad_nd, ones, L->arg[1], arg_int(L->g, 1))),
                            arg_int(L->g, 0)));
        Value *y = AS(L, constant_pad_nd, L->arg[0], L->arg[1], arg_int(L->g, 0));
        return y && ones.v && lower_return(L, AS(L, masked_fill_Scalar, arg_value(y), ones, L->arg[2]));
    }
    Value *re = AS(L, constant_pad_nd, arg_value(z.re), L->arg[1], L->arg[2]);
    return re && complex_return(L, re, AS(L, constant_pad_nd, arg_value(z.im), L->arg[1], arg_int(L->g, 0)));
}

/* (sizes, number, dtype) */
bool complex_full(Lower *L)
{
    bool number = L->arg[1].kind == ARG_VALUE;
    DType whole = L->arg[2].kind == ARG_DTYPE ? L->arg[2].dtype : number ? DT_C64 : DT_NONE;
    if (!dtype_is_complex(whole)) return lower_fail(L, 1, "a complex number in a real tensor");
    if (number) return lower_return(L, AS(L, expand, arg_value(lower_cast(L, L->arg[1].v, whole)), L->arg[0]));
    Arg t = arg_dtype(complex_real_of(whole));
    Value *re = AS(L, full, L->arg[0], L->arg[1], t);
    return re && complex_return(L, re, AS(L, full, L->arg[0], arg_int(L->g, 0), t));
}

Arg *complex_args(Lower *L)
{
    int n = L->op->schema->nparams;
    Arg *arg = arena_array(L->g->arena, Arg, n + 1);
    if (!arg) oom(L->err);
    else memcpy(arg, L->arg, (size_t)n * sizeof *arg);
    return arg;
}

/* A row that makes real numbers of the dtype that is asked for */
bool complex_made(Lower *L)
{
    int n = L->op->schema->nparams;
    Arg *arg = complex_args(L);
    if (!arg) return false;
    for (int i = 0; i < n; i++) {
        if (arg[i].kind == ARG_DTYPE) arg[i] = arg_dtype(complex_real_of(arg[i].dtype));
    }
    return lower_return(L, complex_joined(L, lower_as(L, L->op->id, n, arg), NULL));
}

/* (start, end, steps, dtype): of both parts of complex ends */
bool complex_linspace(Lower *L)
{
    Value *line[2];
    Arg t = arg_dtype(complex_real_of(L->arg[3].kind == ARG_DTYPE ? L->arg[3].dtype : DT_C64));
    for (int i = 0; i < 2; i++) {
        Arg end[2];
        for (int k = 0; k < 2; k++) {
            Parts z = {NULL, NULL};
            bool number = L->arg[k].kind != ARG_VALUE;
            if (!number) TRY(complex_parts(L, L->arg[k].v, &z));
            end[k] = number ? i ? arg_int(L->g, 0) : L->arg[k] : arg_value(i ? z.im : z.re);
            if (number) end[k] = arg_value(AS(L, full, arg_exprs(L->g, 0, NULL), end[k], t));
        }
        TRY(line[i] = AS(L, linspace_Tensor_Tensor, end[0], end[1], L->arg[2], t));
    }
    return complex_return(L, line[0], line[1]);
}

/* rand and randn (sizes, dtype): both parts are drawn one after the other; a normal number has the variance 1 */
bool complex_random(Lower *L)
{
    Expr *e[MAX_RANK + 1];
    const Arg *a = &L->arg[0];
    if (a->n >= MAX_RANK) return lower_fail(L, 0, "rank %d, at most %d is supported", a->n, MAX_RANK - 1);
    for (int i = 0; i < a->n; i++) e[i] = a->es[i];
    e[a->n] = ex_int(L->ex, 2);
    Arg arg[] = {arg_exprs(L->g, a->n + 1, e), arg_dtype(complex_real_of(L->arg[1].dtype))};
    Value *x = lower_as(L, L->op->id, 2, arg);
    if (L->op->id == OP_randn) x = AS(L, mul_Tensor, arg_value(x), arg_float(L->g, 0.70710678118654752440));
    return lower_return(L, complex_from_pairs(L, x));
}

bool complex_uniform(Lower *L)
{
    Value *pairs = complex_pairs(L, lower_value(L, 0));
    return lower_return(L, complex_from_pairs(L, AS(L, uniform, arg_value(pairs), L->arg[1], L->arg[2])));
}

/* (condition, self, other): both complex, of their common dtype */
bool complex_where(Lower *L)
{
    DType other = L->arg[1].kind == ARG_VALUE ? L->arg[1].v->dtype : L->arg[2].v->dtype;
    Value *a = complex_value(L, 1, other), *b = complex_value(L, 2, other);
    Parts p, q;
    if (!a || !b) return lower_fail(L, a ? 2 : 1, "expected a tensor");
    if (L->arg[0].kind == ARG_VALUE && is_complex(L->arg[0].v))
        return lower_fail(L, 0, "%s, expected a condition of bool", dtype_name(L->arg[0].v->dtype));
    Promote promote = {DT_NONE, DT_NONE, DT_NONE};
    for (int i = 1; i < 3; i++) {
        if (L->arg[i].kind == ARG_VALUE) promote_value(&promote, L->arg[i].v);
        if (L->arg[i].kind == ARG_EXPR) promote_expr(&promote, L->arg[i].e);
    }
    DType t = promote_result(&promote);
    TRY(complex_parts(L, lower_cast(L, a, t), &p) && complex_parts(L, lower_cast(L, b, t), &q));
    return complex_return(L, AS(L, where_self, L->arg[0], arg_value(p.re), arg_value(q.re)),
                          AS(L, where_self, L->arg[0], arg_value(p.im), arg_value(q.im)));
}

/* What .imag of a conjugate is */
bool lower_neg_view(Lower *L) { return lower_return(L, AS(L, neg, L->arg[0])); }

/* The row asks which numbers are not 0. */
bool complex_truth(Lower *L)
{
    int n = L->op->schema->nparams;
    Arg *arg = complex_args(L);
    if (!arg) return false;
    for (int i = 0; i < n; i++) {
        if (arg[i].kind == ARG_VALUE && is_complex(arg[i].v))
            TRY((arg[i] = arg_value(AS(L, ne_Tensor, L->arg[i], arg_int(L->g, 0)))).v);
    }
    return again(L, arg);
}

/* ------------------------------------------------------------------ for readers of files */

Value *lower_shown(Graph *g, Value *v, Err *err)
{
    Lower L = {.g = g, .ex = g->ex, .name = v->name, .err = err};
    return is_complex(v) ? complex_pairs(&L, v) : v;
}

Value *lower_hidden(Graph *g, Value *pairs, Err *err)
{
    Lower L = {.g = g, .ex = g->ex, .name = pairs->name, .err = err};
    return complex_from_pairs(&L, pairs);
}

Value *lower_complex_number(Graph *g, double re, double im, Err *err)
{
    Lower L = {.g = g, .ex = g->ex, .op = op_get(OP_complex), .name = "number", .err = err};
    bool exact = (double)(float)re == re && (double)(float)im == im;
    Arg t = arg_dtype(exact ? DT_F32 : DT_F64), none = arg_exprs(g, 0, NULL);
    Value *r = AS(&L, full, none, arg_float(g, re), t), *i = r ? AS(&L, full, none, arg_float(g, im), t) : NULL;
    return i ? complex_joined(&L, r, i) : NULL;
}
