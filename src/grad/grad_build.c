/* Builders of nodes for gradients. What changes nothing makes no node, and a product with a constant that was spread
 * over all elements is one with a number: the gradient of the loss is 1.
 *
 *     gd_mul(d, d->grad, GD(d, cos, V(x)))
 */
#include <stdio.h>
#include <string.h>
#include "facts/views.h"
#include "grad/grad_impl.h"

enum { RECENT = 48, MAX_PARAMS = 16 };

Arg gd_arg(Grad *d, Value *v)
{
    if (!v && d->err->code == E_OK) oom(d->err);
    return arg_value(v);
}

/* The same node, made a moment ago: terms of a formula occur in several places. */
static Value *made_before(const Grad *d, OpId op, const Arg *args)
{
    int k = 0;
    for (const Node *n = d->at ? d->at->prev : d->g->last; n && k < RECENT && n->nout && n->out[0]->id >= d->nleaf;
         n = n->prev, k++) {
        if (n->op->id != op) continue;
        bool same = true;
        for (int i = 0; i < n->op->schema->nparams && same; i++) same = arg_same(&n->arg[i], &args[i]);
        if (same) return n->out[0];
    }
    return NULL;
}

Value *gd_add_node(Grad *d, OpId op, int n, const Arg *args)
{
    Arg fit[MAX_PARAMS];
    if (d->err->code != E_OK) return NULL;
    if (op_get(op)->schema->nparams <= MAX_PARAMS) {
        if (!op_fit_args(d->g, op_get(op), n, args, fit, d->err)) return NULL;
        Value *v = made_before(d, op, fit);
        if (v) return v;
    }
    const char *name = d->node ? arena_printf(d->g->arena, "%s_grad", d->node->name) : NULL;
    d->g->module = d->node ? d->node->module : NULL;
    Node *made = graph_add_before(d->g, d->at, op, n, args, name, d->err);
    d->g->module = NULL;
    return made ? made->out[0] : NULL;
}

Expr *gd_int(Grad *d, int64_t i) { return ex_int(d->ex, i); }
Expr *gd_float(Grad *d, double x) { return ex_float(d->ex, x); }

Expr *gd_product(Grad *d, int n, Expr *const *dim) { return product_of(d->ex, n, dim); }

static bool repeats(const Node *n, const void *user)
{
    (void)user;
    return n->op->id == OP_expand || n->op->id == OP_reshape;
}

/* Is every element the same constant? */
static bool filled(const Value *v, double *c)
{
    const Node *n = value_below(v, repeats, NULL)->def;
    if (!n || n->op->id != OP_full || n->arg[1].kind != ARG_EXPR || !ex_is_const(n->arg[1].e)) return false;
    *c = ex_number(n->arg[1].e);
    return true;
}

Value *gd_scale(Grad *d, Value *a, Expr *c)
{
    if (!a || !c) return NULL;
    if ((c->kind == EX_FLOAT && c->f == 1) || ex_equals_int(c, 1)) return a;
    return GD(d, mul_Tensor, V(a), arg_expr(c));
}

Value *gd_mul(Grad *d, Value *a, Value *b)
{
    double c;
    if (!a || !b) return NULL;
    if (filled(b, &c) && b->dtype == a->dtype && (has_dims(a, b->rank, b->dim) || !b->rank))
        return gd_scale(d, a, gd_float(d, c));
    if (filled(a, &c) && b->dtype == a->dtype && (has_dims(a, b->rank, b->dim) || !a->rank))
        return gd_scale(d, b, gd_float(d, c));
    return GD(d, mul_Tensor, V(a), V(b));
}

/* The pairs of a complex value, with an axis of 1 for the view, or the value of such pairs. */
static Value *seen_as(Grad *d, Value *v, DType t, int rank, Expr *const *dim)
{
    Value *wide = dtype_is_complex(v->dtype) ? gd_insert_axis(d, v, v->rank) : v;
    wide = wide ? GD(d, view_dtype, V(wide), arg_dtype(t)) : NULL;
    return dtype_is_complex(t) ? gd_reshape(d, wide, rank, dim) : wide;
}

/* Of complex inputs and weights that are used more than once */
static Value *complex_plus(Grad *d, Value *a, Value *b)
{
    DType real = a->dtype == DT_C128 ? DT_F64 : DT_F32;
    Value *p = seen_as(d, a, real, 0, NULL), *q = seen_as(d, b, real, 0, NULL);
    Value *sum = p && q ? GD(d, add_Tensor, V(p), V(q)) : NULL;
    return sum ? seen_as(d, sum, a->dtype, a->rank, a->dim) : NULL;
}

Value *gd_plus(Grad *d, Value *a, Value *b)
{
    if (!a || !b) return NULL;
    return dtype_is_complex(a->dtype) ? complex_plus(d, a, b) : GD(d, add_Tensor, V(a), V(b));
}

Value *gd_minus(Grad *d, Value *a, Value *b) { return a && b ? GD(d, sub_Tensor, V(a), V(b)) : NULL; }

Value *gd_full(Grad *d, double x, DType t, int rank, Expr *const *dim)
{
    Arg number = dtype_is_float(t) ? arg_float(d->g, x) : arg_int(d->g, (int64_t)x);
    return GD(d, full, arg_exprs(d->g, rank, dim), number, arg_dtype(t));
}

Value *gd_zeros(Grad *d, DType t, int rank, Expr *const *dim) { return gd_full(d, 0, t, rank, dim); }

Value *gd_reshape(Grad *d, Value *v, int rank, Expr *const *dim)
{
    if (!v || has_dims(v, rank, dim)) return v;
    return GD(d, reshape, V(v), arg_exprs(d->g, rank, dim));
}

Value *gd_insert_axis(Grad *d, Value *v, int at)
{
    Expr *dim[MAX_RANK + 1];
    if (!v) return NULL;
    for (int i = 0; i <= v->rank; i++) dim[i] = i < at ? v->dim[i] : i == at ? gd_int(d, 1) : v->dim[i - 1];
    return gd_reshape(d, v, v->rank + 1, dim);
}

Value *gd_permute(Grad *d, Value *v, const int *perm)
{
    int64_t p[MAX_RANK];
    bool moves = false;
    if (!v) return NULL;
    for (int i = 0; i < v->rank; i++) {
        p[i] = perm[i];
        moves |= perm[i] != i;
    }
    return moves ? GD(d, permute, V(v), arg_ints(d->g, v->rank, p)) : v;
}

Value *gd_swap(Grad *d, Value *v, int a, int b)
{
    int perm[MAX_RANK];
    if (!v) return NULL;
    a += a < 0 ? v->rank : 0;
    b += b < 0 ? v->rank : 0;
    for (int i = 0; i < v->rank; i++) perm[i] = i == a ? b : i == b ? a : i;
    return gd_permute(d, v, perm);
}

Value *gd_expand(Grad *d, Value *v, int rank, Expr *const *dim)
{
    if (!v || has_dims(v, rank, dim)) return v;
    return GD(d, expand, V(v), arg_exprs(d->g, rank, dim));
}

Value *gd_cast(Grad *d, Value *v, DType t) { return !v || v->dtype == t ? v : GD(d, to_copy, V(v), arg_dtype(t)); }
Value *gd_matmul(Grad *d, Value *a, Value *b) { return a && b ? GD(d, matmul, V(a), V(b)) : NULL; }

Value *gd_slice(Grad *d, Value *v, int axis, Expr *start, Expr *end)
{
    if (!v || (ex_equals_int(start, 0) && end == v->dim[axis])) return v;
    return GD(d, slice_Tensor, V(v), arg_int(d->g, axis), arg_expr(start), arg_expr(end), arg_int(d->g, 1));
}

static Arg dims_arg(Grad *d, int n, const int *dims)
{
    int64_t list[MAX_RANK];
    for (int i = 0; i < n; i++) list[i] = dims[i];
    return arg_ints(d->g, n, list);
}

Value *gd_sum(Grad *d, Value *v, int n, const int *dims, bool keep)
{
    if (!v || !n) return v;
    return GD(d, sum_dim_IntList, V(v), dims_arg(d, n, dims), arg_bool(d->g, keep));
}

Value *gd_mean(Grad *d, Value *v, int n, const int *dims, bool keep)
{
    if (!v || !n) return v;
    return GD(d, mean_dim, V(v), dims_arg(d, n, dims), arg_bool(d->g, keep));
}

Value *gd_sum_to(Grad *d, Value *v, int rank, Expr *const *dim)
{
    int dims[MAX_RANK], n = 0;
    if (!v || has_dims(v, rank, dim)) return v;
    int lead = v->rank - rank;
    bool wider = lead < 0;
    for (int i = 0; i < v->rank; i++) {
        bool one = i >= lead && ex_equals_int(dim[i - lead], 1), mine = ex_equals_int(v->dim[i], 1);
        if (i < lead || (one && !mine)) dims[n++] = i;
        wider |= i >= lead && mine && !one;
    }
    if (n) v = gd_reshape(d, gd_sum(d, v, n, dims, false), rank, dim);
    return wider ? gd_expand(d, v, rank, dim) : v;
}

Value *gd_keep_axes(Grad *d, Value *v, int rank, const bool *gone)
{
    Expr *dim[MAX_RANK];
    if (!v || v->rank == rank) return v;
    for (int i = 0, k = 0; i < rank; i++) dim[i] = gone[i] ? gd_int(d, 1) : v->dim[k++];
    return gd_reshape(d, v, rank, dim);
}

Value *gd_arange(Grad *d, Expr *n)
{
    return GD(d, arange_start_step, arg_int(d->g, 0), arg_expr(n), arg_int(d->g, 1), arg_dtype(DT_I64));
}

Value *gd_where(Grad *d, Value *cond, Value *x, double otherwise)
{
    return cond && x ? GD(d, where_self, V(cond), V(x), arg_float(d->g, otherwise)) : NULL;
}

void gd_dims(const Arg *a, int rank, bool *set)
{
    bool all = a->kind == ARG_NONE || (a->kind == ARG_EXPRS && a->n == 0);
    for (int i = 0; i < rank; i++) set[i] = all;
    if (all) return;
    int n = a->kind == ARG_EXPRS ? a->n : 1;
    for (int i = 0; i < n; i++) {
        int64_t k = (a->kind == ARG_EXPRS ? a->es[i] : a->e)->i;
        if (rank) set[k < 0 ? k + rank : k] = true;
    }
}

int gd_list(const bool *set, int rank, int *dims)
{
    int n = 0;
    for (int i = 0; i < rank; i++)
        if (set[i]) dims[n++] = i;
    return n;
}
