/* Shape inference: the table from op to shape function, and what the functions share. Contract in shape.h. */
#include <stdarg.h>
#include <stdio.h>
#include "base/number.h"
#include "shape/shape.h"
#include "shape/shape_table.h"

static const struct {
    ShapeFn *fn;
    OpId op;
} table[OP_COUNT] = {
#define SHAPE(f) .fn = shape_##f,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

/* Rows whose kernels take a number for a tensor of rank 0. */
static bool takes_numbers(const Op *op)
{
    return table[op->id].fn == shape_binary || table[op->id].fn == shape_truth2 || table[op->id].fn == shape_where;
}

static bool check_tensors(Shape *s)
{
    const Op *op = s->node->op;
    for (int i = 0; i < op->schema->nparams; i++)
        if (op->schema->params[i].type == PT_TENSOR && shape_arg(s, i)->kind == ARG_EXPR && !takes_numbers(op))
            return shape_fail(s, i, "found a number, expected a tensor");
    return true;
}

bool graph_infer(Graph *g, Node *n, Err *err)
{
    Shape s = {.g = g, .ex = g->ex, .node = n, .err = err};
    TRY(check_tensors(&s));
    if (!n->op->plain) return fail(err, E_UNSUPPORTED, "%s is not in plain form: import lowers it", n->op->name);
    TRY(table[n->op->id].fn(&s));
    for (int k = 0; k < n->nout; k++)
        for (int i = 0; i < n->out[k]->rank; i++) {
            int64_t lo, hi;
            ex_range(g->ex, n->out[k]->dim[i], &lo, &hi);
            if (hi < 0) return fail(err, E_FORMAT, "size %d of result %d evaluates to %lld", i, k, (long long)hi);
        }
    return true;
}

/* ------------------------------------------------------------------ arguments */

const Arg *shape_arg(const Shape *s, int i) { return &s->node->arg[i]; }

Value *shape_value(const Shape *s, int i) { return s->node->arg[i].kind == ARG_VALUE ? s->node->arg[i].v : NULL; }

bool shape_window(Shape *s, int i, const Expr *e, int64_t least)
{
    int64_t lo, hi;
    ex_range(s->ex, e, &lo, &hi);
    if (hi < least) return shape_fail(s, i, "must be at least %lld", (long long)least);
    return lo <= MAX_WINDOW || shape_fail(s, i, "found %lld, expected at most %d", (long long)lo, MAX_WINDOW);
}

bool shape_fail(Shape *s, int i, const char *fmt, ...)
{
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return fail(s->err, E_FORMAT, "argument '%s': %s", s->node->op->schema->params[i].name, what);
}

bool shape_want_value(Shape *s, int i, Value **out)
{
    *out = shape_value(s, i);
    return *out || shape_fail(s, i, "found a number or None, expected a tensor");
}

bool shape_const_int(Shape *s, int i, int64_t *out)
{
    const Arg *a = shape_arg(s, i);
    if (a->kind != ARG_EXPR || !ex_is_const(a->e)) return shape_fail(s, i, "must be a constant integer");
    *out = a->e->i;
    return true;
}

bool shape_const_bool(Shape *s, int i, bool *out)
{
    int64_t v = 0;
    TRY(shape_const_int(s, i, &v));
    *out = v != 0;
    return true;
}

DType shape_dtype(const Shape *s, int i, DType otherwise)
{
    return s->node->arg[i].kind == ARG_DTYPE ? s->node->arg[i].dtype : otherwise;
}

static bool normal_dim(Shape *s, int i, int64_t d, int rank, int *dim)
{
    int n = rank ? rank : 1;
    if (d < -n || d >= n)
        return shape_fail(s, i, "dim %lld is out of range for rank %d (allowed %d to %d)", (long long)d, rank, -n,
                          n - 1);
    *dim = (int)(d < 0 ? d + n : d);
    return true;
}

bool shape_dim(Shape *s, int i, int rank, int *dim)
{
    int64_t d = 0;
    TRY(shape_const_int(s, i, &d));
    return normal_dim(s, i, d, rank, dim);
}

bool shape_dims(Shape *s, int i, int rank, bool *set)
{
    const Arg *a = shape_arg(s, i);
    bool all = a->kind == ARG_NONE || (a->kind == ARG_EXPRS && a->n == 0);
    for (int k = 0; k < MAX_RANK; k++) set[k] = all && k < rank;
    int n = a->kind == ARG_EXPR ? 1 : a->kind == ARG_EXPRS ? a->n : 0, d = 0;
    for (int k = 0; k < n; k++) {
        const Expr *e = a->kind == ARG_EXPR ? a->e : a->es[k];
        if (!ex_is_int(e)) return shape_fail(s, i, "must be constant integers");
        TRY(normal_dim(s, i, e->i, rank, &d));
        if (set[d]) return shape_fail(s, i, "dim %d appears twice", d);
        set[d] = true;
    }
    return true;
}

/* ------------------------------------------------------------------ results */

bool shape_out(Shape *s, int k, DType t, int rank, Expr *const *dim)
{
    if (t == DT_NONE) return fail(s->err, E_FORMAT, "the operands have no common dtype");
    return node_set_out(s->g, s->node, k, t, rank, dim, s->err);
}

bool shape_out_like(Shape *s, int k, const Value *v, DType t) { return shape_out(s, k, t, v->rank, v->dim); }

static const char *shown(Shape *s, const Expr *e, Buf *b)
{
    b->len = 0;
    if (e) ex_print(s->ex, e, b);
    return b->data ? b->data : "?";
}

bool shape_require_equal(Shape *s, Expr *a, Expr *b, const char *what)
{
    if (a == b && a) return true;
    Expr *same = ex_make(s->ex, EX_EQ, a, b, NULL);
    if (!same) return fail(s->err, E_LIMIT, "%s: sizes too large to compare", what);
    if (same->kind == EX_BOOL && !same->i) {
        Buf x = {0}, y = {0};
        fail(s->err, E_FORMAT, "%s: sizes %s and %s differ", what, shown(s, a, &x), shown(s, b, &y));
        buf_free(&x);
        buf_free(&y);
        return false;
    }
    return graph_require(s->g, same, s->err, "node '%s': %s", s->node->name, what);
}

bool shape_stands_for_one(Shape *s, const Expr *from, const Expr *to)
{
    int64_t lo = 0, hi_from = 0, hi_to = 0;
    ex_range(s->ex, from, &lo, &hi_from);
    ex_range(s->ex, to, &lo, &hi_to);
    return hi_from <= 1 && hi_to > 1;
}

/* Of two sizes, the one that must be 1: it is at most that and the other may be more, or they are never the same and it
 * may be 1; NULL: neither. */
static Expr *one_of(Shape *s, Expr *a, Expr *b)
{
    int64_t low, high, from, to;
    if (shape_stands_for_one(s, a, b)) return a;
    if (shape_stands_for_one(s, b, a)) return b;
    ex_range(s->ex, a, &low, &high);
    ex_range(s->ex, b, &from, &to);
    if (high >= from && to >= low) return NULL;
    return low <= 1 && high >= 1 ? a : from <= 1 && to >= 1 ? b : NULL;
}

bool shape_broadcast(Shape *s, int *rank, Expr **dim, int rank_b, Expr *const *dim_b, const char *what)
{
    int n = *rank > rank_b ? *rank : rank_b;
    if (n > MAX_RANK) return fail(s->err, E_UNSUPPORTED, "%s: rank %d, at most %d is supported", what, n, MAX_RANK);
    Expr *out[MAX_RANK];
    for (int i = 0; i < n; i++) {
        int ia = i - (n - *rank), ib = i - (n - rank_b);
        Expr *a = ia >= 0 ? dim[ia] : NULL, *b = ib >= 0 ? dim_b[ib] : NULL;
        if (!a || !b) out[i] = a ? a : b;
        else if (a == b || ex_equals_int(b, 1)) out[i] = a;
        else if (ex_equals_int(a, 1)) out[i] = b;
        else {
            Expr *one = one_of(s, a, b);
            TRY(shape_require_equal(s, one ? one : a, one ? ex_int(s->ex, 1) : b, what));
            if (one) out[i] = one == a ? b : a;
            else out[i] = ex_is_int(b) || b->depth < a->depth ? b : a; /* equal: the simpler one goes on */
        }
    }
    for (int i = 0; i < n; i++) dim[i] = out[i];
    *rank = n;
    return true;
}

Expr *shape_numel(Shape *s, const Value *v)
{
    Expr *n = ex_int(s->ex, 1);
    for (int i = 0; i < v->rank; i++) n = ex_mul(s->ex, n, v->dim[i]);
    return n;
}

/* ------------------------------------------------------------------ data-dependent sizes */

Expr *shape_fresh_symbol(Shape *s)
{
    char name[32];
    int k = expr_symbol_count(s->ex);
    do snprintf(name, sizeof name, "n%d", k++);
    while (expr_find_symbol(s->ex, name));
    Expr *e = ex_symbol(s->ex, name);
    if (e) expr_set_range(s->ex, (int)e->i, 0, INT64_MAX);
    return e;
}

bool shape_size_of(Shape *s, Expr *symbol, int k, int dim)
{
    if (!symbol) return oom(s->err);
    Symbol *sym = expr_symbol(s->ex, (int)symbol->i);
    sym->source = SYM_SIZE;
    sym->value = s->node->out[k];
    sym->dim = dim;
    return true;
}

bool shape_declare(Graph *g, Node *n, int rank, Expr *const *declared, Err *err)
{
    Value *v = n->out[0];
    if (rank != v->rank) return fail(err, E_FORMAT, "the file declares rank %d, the op gives %d", rank, v->rank);
    for (int i = 0; i < rank; i++) {
        if (v->dim[i]->kind != EX_SYM || !declared || declared[i]->kind != EX_SYM) continue;
        Symbol *mine = expr_symbol(g->ex, (int)v->dim[i]->i), *file = expr_symbol(g->ex, (int)declared[i]->i);
        if (mine == file || mine->source != SYM_SIZE || mine->value != v) continue;
        if (file->source != SYM_FREE) continue; /* already bound elsewhere: keep both, they agree at run time */
        file->source = SYM_SIZE;
        file->value = v;
        file->dim = i;
        mine->source = SYM_GONE;
        for (int k = 0; k < n->nout; k++)
            for (int d = 0; d < n->out[k]->rank; d++)
                if (n->out[k]->dim[d] == mine->expr) n->out[k]->dim[d] = file->expr;
    }
    return true;
}
