/* Lowering: the table from op to lower function, and what those functions share. Contract in lower.h. */
#include "lower/lower.h"
#include <stdarg.h>
#include <stdio.h>
#include "base/mem.h"
#include "base/number.h"
#include "facts/axes.h"
#include "lower/lower_table.h"
#include "shape/shape.h"

static const struct {
    LowerFn *fn;
    OpId op;
} table[OP_COUNT] = {
#define LOWER(f) .fn = lower_##f,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

/* To ATen a number is a tensor of rank 0. Only these rows know what to do with one. */
static bool takes_numbers(const Op *op)
{
    static LowerFn *const those[] = {lower_promote,      lower_add,   lower_div_mode, lower_float2,
                                     lower_floor_divide, lower_where, lower_alias,    lower_to};
    for (size_t i = 0; i < sizeof those / sizeof *those; i++)
        if (table[op->id].fn == those[i]) return true;
    return false;
}

/* Rows that stand for those of other ranks, too, whose lists are longer than the schema says. */
static bool of_any_rank(const Op *op) { return op->id == OP_reflection_pad1d || op->id == OP_replication_pad1d; }

/* A list of int[3] holds three numbers, or one for all; none where it may be left out. */
static bool check_args(Lower *L)
{
    for (int i = 0; i < L->op->schema->nparams; i++) {
        const Param *p = &L->op->schema->params[i];
        const Arg *a = &L->arg[i];
        if (!arg_built(a)) return fail(L->err, E_LIMIT, "a size expression is too large");
        if (p->type == PT_TENSOR && a->kind == ARG_EXPR && !takes_numbers(L->op))
            return lower_fail(L, i, "found a number, expected a tensor");
        if (p->fixed_len > 1 && a->kind == ARG_EXPRS && a->n > 1 && a->n != p->fixed_len && !of_any_rank(L->op))
            return lower_fail(L, i, "found %d values, expected %d", a->n, p->fixed_len);
    }
    return true;
}

enum { DEEPEST = 32 };

bool lower_row(Lower *L) { return table[L->op->id].fn(L); }

/* A function that has no words for a refusal (a number where its tensor should be, mostly) says false alone. */
bool lower_op(Lower *L)
{
    TRY(check_args(L));
    bool taken;
    const Node *last = L->g->last;
    bool ok = lower_complex_operands(L, &taken) && (taken || lower_row(L)) && lower_complex_nodes(L, last);
    if (mem_ran_out()) return oom(L->err);
    ok = ok && L->err->code != E_LIMIT; /* an operand that may be left out: without memory it would be */
    return ok || (L->err->code == E_OK ? fail(L->err, E_UNSUPPORTED, "%s with these arguments", L->op->name) : false);
}

/* In-place rows: the functionaliser replaces them by their pure form before lowering. */
bool lower_inplace(Lower *L) { return fail(L->err, E_UNSUPPORTED, "%s has no pure form", L->op->name); }

bool lower_keep(Lower *L)
{
    Node *n = lower_emit_node(L, L->op->id, L->op->schema->nparams, L->arg);
    if (!n) return false;
    if (n->op->schema->returns_list || n->nout != 1) return lower_return_values(L, n->nout, n->out);
    return lower_return(L, n->out[0]);
}

bool lower_drop(Lower *L) { return lower_return(L, lower_value(L, 0)); }

bool lower_ignore(Lower *L)
{
    L->result = arg_none();
    return true;
}

/* ------------------------------------------------------------------ arguments */

Value *lower_value(Lower *L, int i) { return L->arg[i].kind == ARG_VALUE ? L->arg[i].v : NULL; }
bool lower_is_none(const Lower *L, int i) { return L->arg[i].kind == ARG_NONE; }
Expr *lower_expr(Lower *L, int i) { return L->arg[i].kind == ARG_EXPR ? L->arg[i].e : NULL; }

bool lower_fail(Lower *L, int i, const char *fmt, ...)
{
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return fail(L->err, E_FORMAT, "argument '%s': %s", L->op->schema->params[i].name, what);
}

bool lower_const_int(Lower *L, int i, int64_t *out)
{
    Expr *e = lower_expr(L, i);
    if (!e || !ex_is_const(e) || e->is_float) return lower_fail(L, i, "must be a constant integer");
    *out = e->i;
    return true;
}

bool lower_const_bool(Lower *L, int i, bool *out)
{
    int64_t v = 0;
    TRY(lower_const_int(L, i, &v));
    *out = v != 0;
    return true;
}

bool lower_dim(Lower *L, int i, int rank, int *dim)
{
    int64_t d = 0;
    int n = rank ? rank : 1;
    TRY(lower_const_int(L, i, &d));
    if (d < -n || d >= n)
        return lower_fail(L, i, "dim %lld is out of range for rank %d (allowed %d to %d)", (long long)d, rank, -n,
                          n - 1);
    *dim = (int)(d < 0 ? d + n : d);
    return true;
}

/* ------------------------------------------------------------------ emitting */

Node *lower_emit_node(Lower *L, OpId op, int n, const Arg *args)
{
    if (op == L->op->id && L->declared && (L->op->flags & OPF_DATA_SIZE)) {
        Node *node = graph_add(L->g, op, n, args, L->name, L->err);
        return node && shape_declare(L->g, node, L->declared_rank, L->declared, L->err) ? node : NULL;
    }
    return graph_add(L->g, op, n, args, L->name, L->err);
}

Value *lower_emit(Lower *L, OpId op, int n, const Arg *args)
{
    for (int i = 0; i < n; i++) { /* a NULL from an earlier emit: the error is set already */
        bool lost = (args[i].kind == ARG_VALUE && !args[i].v) || !arg_built(&args[i]);
        if (lost && L->err->code == E_OK) fail(L->err, E_LIMIT, "a size expression is too large");
        if (lost) return NULL;
    }
    if (lower_is_complex(op, n, args)) return lower_as(L, op, n, args);
    if (op == OP_expand && args[1].kind == ARG_EXPRS && has_dims(args[0].v, args[1].n, args[1].es)) return args[0].v;
    Node *node = lower_emit_node(L, op, n, args);
    return node ? node->out[0] : NULL;
}

static bool lowered(Lower *L, OpId op, int n, const Arg *args, Arg *result)
{
    Lower M = *L;
    M.op = op_get(op);
    M.declared = NULL;
    M.declared_number = NULL;
    M.nout_names = 0;
    if (++M.depth > DEEPEST) /* a complex operand where none is taken is what its parts are made of again */
        return fail(L->err, E_UNSUPPORTED, "%s with operands of these types", M.op->name);
    Arg *arg = mem_zeroed((size_t)M.op->schema->nparams + 1, sizeof *arg);
    if (!arg) return oom(L->err);
    M.arg = arg;
    bool ok = L->err->code == E_OK && op_fit_args(L->g, M.op, n, args, arg, L->err) && lower_op(&M);
    if (ok) *result = M.result;
    mem_free(arg);
    return ok;
}

Value *lower_as(Lower *L, OpId op, int n, const Arg *args)
{
    Arg y;
    if (!lowered(L, op, n, args, &y)) return NULL;
    return y.kind == ARG_VALUE ? y.v : y.kind == ARG_VALUES ? y.vs[0] : NULL;
}

Value *const *lower_all(Lower *L, OpId op, int n, const Arg *args)
{
    Arg y;
    return lowered(L, op, n, args, &y) && y.kind == ARG_VALUES ? y.vs : NULL;
}

bool lower_return(Lower *L, Value *v)
{
    if (!v) return L->err->code == E_OK ? fail(L->err, E_FORMAT, "expected a tensor operand") : false;
    L->result = arg_value(v);
    return true;
}

bool lower_return_values(Lower *L, int n, Value *const *vs)
{
    L->result = arg_values(L->g, n, vs);
    return L->result.vs || oom(L->err);
}

Value *lower_reshape(Lower *L, Value *x, int rank, Expr *const *dim)
{
    if (!x) return NULL;
    bool same = x->rank == rank;
    for (int i = 0; i < rank && same; i++) same = x->dim[i] == dim[i];
    return same ? x : EMIT(L, reshape, arg_value(x), arg_exprs(L->g, rank, dim));
}

Value *lower_only_if(Lower *L, Value *valid, Value *y)
{
    Arg first = arg_int(L->g, 0);
    Value *row = AS(L, logical_not, v(AS(L, all, v(valid)))), *rows = AS(L, unsqueeze, v(y), first);
    row = row ? lower_reshape(L, lower_cast(L, row, DT_I64), 1, (Expr *[]){ex_int(L->ex, 1)}) : NULL;
    return AS(L, squeeze_dim, v(AS(L, index_select, v(rows), first, v(row))), first);
}

Value *lower_among(Lower *L, Value *x, Expr *n)
{
    if (!x) return NULL;
    Expr *all = ex_int(L->ex, 1);
    for (int i = 0; i < x->rank; i++) all = ex_mul(L->ex, all, x->dim[i]);
    Value *row = lower_reshape(L, lower_cast(L, x, DT_I64), 1, &all);
    row = AS(L, index_select, v(AS(L, arange, arg_expr(n))), arg_int(L->g, 0), v(row));
    return lower_reshape(L, row, x->rank, x->dim);
}

Value *lower_permute(Lower *L, Value *x, const int *perm)
{
    if (!x) return NULL;
    int64_t d[MAX_RANK];
    bool same = true;
    for (int i = 0; i < x->rank; i++) {
        d[i] = perm[i];
        same &= perm[i] == i;
    }
    return same ? x : EMIT(L, permute, arg_value(x), arg_ints(L->g, x->rank, d));
}

Value *lower_cast(Lower *L, Value *x, DType t)
{
    if (!x || x->dtype == t) return x;
    if (dtype_is_complex(x->dtype) || dtype_is_complex(t)) return lower_complex_cast(L, x, t);
    return EMIT(L, to_copy, arg_value(x), arg_dtype(t));
}

bool lower_widened(Lower *L, int n, DType *t)
{
    int all = L->op->schema->nparams;
    Arg *arg = arena_array(L->g->arena, Arg, all);
    for (int i = 0; i < n; i++)
        if (!lower_value(L, i)) return lower_fail(L, i, "expected a tensor");
    if (!arg) return oom(L->err);
    *t = lower_value(L, 0)->dtype;
    for (int i = 0; i < all; i++) {
        Value *x = lower_value(L, i);
        bool half = x && (x->dtype == DT_F16 || x->dtype == DT_BF16);
        arg[i] = half ? arg_value(lower_cast(L, x, DT_F32)) : L->arg[i];
        if (half && !arg[i].v) return false;
    }
    L->arg = arg;
    return true;
}

Arg lower_number_as(Lower *L, Arg number, DType t)
{
    if (!dtype_is_int(t) || number.kind != ARG_EXPR) return number;
    return arg_expr(ex_make(L->ex, EX_TRUNC, number.e, NULL, NULL));
}

bool lower_is_number(const Arg *a, double v)
{
    return a->kind == ARG_NONE ? v == 1 : a->kind == ARG_EXPR && ex_is_const(a->e) && ex_number(a->e) == v;
}

bool lower_two(Lower *L, int i, int k, Value **a, Value **b)
{
    *a = lower_value(L, i);
    *b = lower_value(L, k);
    return (*a && *b) || lower_fail(L, *a ? k : i, "expected a tensor");
}
