/* A graph in rows that ATen's core has: --decompose core. Which rows become what: core.def.
 *
 *     silu(x)  ->  x * sigmoid(x)
 *
 * Each row's nodes are put in front of it and looked at next, so that a row may be said in rows that have a core form
 * themselves.
 */
#include <float.h>
#include <math.h>
#include <string.h>
#include "grad/grad_impl.h"

typedef Value *CoreFn(Grad *d); /* the row's first result; the result itself: it is core as it stands; NULL on error */
static CoreFn core_formula;
#define CORE(f, text) static CoreFn core_##f;
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"

static const struct {
    CoreFn *fn;
    const char *text;
    OpId op;
} rows[OP_COUNT] = {
#define CORE(f, text_) .fn = core_##f, .text = text_,
#define FORMULA(text_) .fn = core_formula, .text = text_,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

static DType worked_in(DType t) { return t == DT_F16 || t == DT_BF16 ? DT_F32 : t; }

static Value *core_formula(Grad *d)
{
    const Node *n = d->node;
    Node wide = *n;
    int params = n->op->schema->nparams;
    DType t = worked_in(n->out[0]->dtype);
    wide.arg = arena_array(d->g->arena, Arg, params + 1);
    if (!wide.arg) return NULL;
    for (int i = 0; i < params; i++) {
        wide.arg[i] = n->arg[i];
        if (n->arg[i].kind == ARG_VALUE && dtype_is_float(t)) wide.arg[i] = V(gd_cast(d, n->arg[i].v, t));
    }
    d->node = &wide;
    Value *out = gd_formula(d, d->text);
    d->node = n;
    return out;
}

static Value *core_gelu_backward(Grad *d)
{
    const Arg *a = &d->node->arg[2];
    bool tanh = a->kind == ARG_STR && !strcmp(a->s, "tanh");
    /* u = sqrt(2/pi) (x + 0.044715 x^3) */
#define TANH_U "tanh(self * 0.7978845608028654 + self * self * self * 0.035677408136300125)"
    d->text = tanh ? "grad_output * ((1 + " TANH_U ") * 0.5 + self * (1 - " TANH_U " * " TANH_U
                     ") * (self * self * 0.053516112204450186 + 0.3989422804014327))"
                   : "grad_output * ((erf(self * 0.7071067811865476) + 1) * 0.5 + self * exp(self * self * -0.5) * "
                     "0.3989422804014327)";
#undef TANH_U
    return core_formula(d);
}

static Arg zero_of(Grad *d, DType t) { return dtype_is_float(t) ? arg_float(d->g, 0) : arg_int(d->g, 0); }

static Value *core_nan_to_num(Grad *d)
{
    Value *x = gd_value(d, 0), *y = x;
    const Arg *a = d->node->arg;
    if (!dtype_is_float(x->dtype)) return x;
    double most = dtype_highest(x->dtype);
    y = GD(d, where_self, V(GD(d, isnan, V(x))), a[1].kind == ARG_EXPR ? a[1] : arg_float(d->g, 0), V(y));
    y = GD(d, where_self, V(GD(d, eq_Tensor, V(x), arg_float(d->g, INFINITY))),
           a[2].kind == ARG_EXPR ? a[2] : arg_float(d->g, most), V(y));
    return GD(d, where_self, V(GD(d, eq_Tensor, V(x), arg_float(d->g, -INFINITY))),
              a[3].kind == ARG_EXPR ? a[3] : arg_float(d->g, -most), V(y));
}

/* The weight is one number, or one for each channel (axis 1). */
static Value *core_prelu(Grad *d)
{
    Value *x = gd_value(d, 0), *w = gd_value(d, 1);
    Expr *dim[MAX_RANK];
    for (int i = 0; i < x->rank; i++) dim[i] = i == 1 && w->rank ? w->dim[0] : gd_int(d, 1);
    if (x->rank == 1 && w->rank) dim[0] = w->dim[0];
    return GD(d, where_self, V(GD(d, gt_Tensor, V(x), arg_int(d->g, 0))), V(x),
              V(gd_mul(d, x, gd_reshape(d, w, x->rank, dim))));
}

static Value *core_linear(Grad *d)
{
    Value *w = gd_value(d, 1), *b = gd_value(d, 2),
          *y = gd_matmul(d, gd_value(d, 0), w->rank == 2 ? gd_swap(d, w, 0, 1) : w);
    return b ? gd_plus(d, y, b) : y;
}

/* Rows of -inf alone are 0. */
static Value *core_safe_softmax(Grad *d)
{
    Value *x = gd_value(d, 0), *y = GD(d, softmax_int, V(x), d->node->arg[1]);
    Value *most = GD(d, amax, V(x), arg_ints(d->g, 1, (int64_t[]){gd_dim(d, 1, x->rank)}), arg_bool(d->g, true));
    return GD(d, where_self, V(GD(d, eq_Tensor, V(most), arg_float(d->g, -INFINITY))), arg_float(d->g, 0), V(y));
}

static Value *core_rms_norm(Grad *d)
{
    Value *x = gd_value(d, 0), *w = gd_value(d, 2), *wide = gd_cast(d, x, worked_in(x->dtype));
    Arg eps = d->node->arg[3].kind == ARG_EXPR ? d->node->arg[3] : arg_float(d->g, dtype_epsilon(x->dtype));
    int dims[MAX_RANK], n = d->node->arg[1].n;
    for (int i = 0; i < n; i++) dims[i] = x->rank - n + i;
    Value *square = gd_mean(d, gd_mul(d, wide, wide), n, dims, true);
    Value *y = gd_mul(d, wide, GD(d, rsqrt, V(GD(d, add_Tensor, V(square), eps))));
    return w ? gd_mul(d, y, gd_cast(d, w, worked_in(x->dtype))) : y;
}

static Value *without(Grad *d, Value *v, const bool *gone, bool keep)
{
    Expr *dim[MAX_RANK];
    int n = 0;
    if (!v || keep) return v;
    for (int i = 0; i < v->rank; i++)
        if (!gone[i]) dim[n++] = v->dim[i];
    return gd_reshape(d, v, n, dim);
}

static Arg list_arg(Grad *d, int n, const int *dims)
{
    int64_t list[MAX_RANK];
    for (int i = 0; i < n; i++) list[i] = dims[i];
    return arg_ints(d->g, n, list);
}

/* log(sum(exp(x - m))) + m, with m the largest, 0 where that is infinite */
static Value *core_logsumexp(Grad *d)
{
    Value *x = gd_value(d, 0);
    bool set[MAX_RANK];
    int dims[MAX_RANK];
    gd_dims(&d->node->arg[1], x->rank, set);
    int n = gd_list(set, x->rank, dims);
    Value *most = GD(d, amax, V(x), list_arg(d, n, dims), arg_bool(d->g, true));
    most = GD(d, where_self, V(GD(d, eq_Tensor, V(GD(d, abs, V(most))), arg_float(d->g, INFINITY))), arg_float(d->g, 0),
              V(most));
    Value *sum = gd_sum(d, GD(d, exp, V(gd_minus(d, x, most))), n, dims, true);
    return without(d, gd_plus(d, GD(d, log, V(sum)), most), set, gd_truth(d, 2));
}

static Value *core_std(Grad *d)
{
    const Arg *a = d->node->arg;
    Value *x = gd_cast(d, gd_value(d, 0), worked_in(d->node->out[0]->dtype));
    return GD(d, sqrt, V(GD(d, var_correction, V(x), a[1], a[2], a[3])));
}

/* Of axes `set` of x, their axes kept. */
static Value *norm_of(Grad *d, Value *x, double p, const bool *set)
{
    int dims[MAX_RANK], n = gd_list(set, x->rank, dims);
    Value *each = p == 2   ? gd_mul(d, x, x)
                  : p == 0 ? gd_cast(d, GD(d, ne_Tensor, V(x), arg_int(d->g, 0)), x->dtype)
                           : GD(d, abs, V(x));
    if (isinf(p))
        return p > 0 ? GD(d, amax, V(each), list_arg(d, n, dims), arg_bool(d->g, true))
                     : GD(d, amin, V(each), list_arg(d, n, dims), arg_bool(d->g, true));
    if (p == 0 || p == 1) return gd_sum(d, each, n, dims, true);
    if (p == 2) return GD(d, sqrt, V(gd_sum(d, each, n, dims, true)));
    Value *sum = gd_sum(d, GD(d, pow_Tensor_Tensor, V(each), arg_float(d->g, p)), n, dims, true);
    return GD(d, pow_Tensor_Tensor, V(sum), arg_float(d->g, 1 / p));
}

static bool order_of(const Arg *a, double *p)
{
    if (a->kind != ARG_EXPR || !ex_is_const(a->e)) return false;
    *p = ex_number(a->e);
    return true;
}

static Value *core_vector_norm(Grad *d)
{
    Value *x = gd_cast(d, gd_value(d, 0), worked_in(d->node->out[0]->dtype));
    bool set[MAX_RANK];
    double p;
    if (!x || !order_of(&d->node->arg[1], &p)) return d->node->out[0];
    gd_dims(&d->node->arg[2], x->rank, set);
    return without(d, norm_of(d, x, p, set), set, gd_truth(d, 3));
}

/* Distances of rows: the norm of all differences, as memory of (.., P, R, M). */
static Value *core_cdist(Grad *d)
{
    Value *x = gd_value(d, 0), *y = gd_value(d, 1);
    bool set[MAX_RANK] = {false};
    double p;
    if (x->rank >= MAX_RANK || y->rank >= MAX_RANK || !order_of(&d->node->arg[2], &p)) return d->node->out[0];
    Value *apart = gd_minus(d, gd_insert_axis(d, x, x->rank - 1), gd_insert_axis(d, y, y->rank - 2));
    if (!apart) return NULL;
    set[apart->rank - 1] = true;
    return without(d, norm_of(d, apart, p, set), set, false);
}

static Value *core_all(Grad *d)
{
    const Arg *a = d->node->arg;
    return GD(d, logical_not, V(GD(d, any_dim, V(GD(d, logical_not, a[0])), a[1], a[2])));
}

/* j - i for rows i and columns j */
static Value *right_of_diagonal(Grad *d, Expr *rows_, Expr *columns)
{
    Value *i = gd_reshape(d, gd_arange(d, rows_), 2, (Expr *[]){rows_, gd_int(d, 1)});
    return gd_minus(d, gd_arange(d, columns), i);
}

static Value *core_triangle(Grad *d)
{
    Value *x = gd_value(d, 0), *apart = right_of_diagonal(d, x->dim[x->rank - 2], x->dim[x->rank - 1]);
    Value *in = d->node->op->id == OP_tril ? GD(d, le_Tensor, V(apart), d->node->arg[1])
                                           : GD(d, ge_Tensor, V(apart), d->node->arg[1]);
    return x->dtype == DT_BOOL ? GD(d, logical_and, V(x), V(in)) : GD(d, where_self, V(in), V(x), zero_of(d, x->dtype));
}

/* u (to - from) + from, rounded once; what is rounded up to `to` is `from`. u has 24 bits, and so has the difference of
 * two floats: their product is exact in double. */
static Value *core_uniform(Grad *d)
{
    const Value *out = d->node->out[0];
    DType t = out->dtype == DT_F64 ? DT_F64 : DT_F32;
    const Arg *a = d->node->arg;
    Expr *from = a[1].e, *width = ex_sub(d->ex, a[2].e, from);
    if (t == DT_F32 && ex_is_const(from) && ex_is_const(a[2].e)) {
        float low = (float)ex_number(from);
        from = gd_float(d, low);
        width = gd_float(d, (float)ex_number(a[2].e) - low);
    }
    Value *u = gd_cast(d, GD(d, rand, arg_exprs(d->g, out->rank, out->dim), arg_dtype(t)), DT_F64);
    Value *y = GD(d, add_Tensor, V(GD(d, mul_Tensor, V(u), arg_expr(width))), arg_expr(from));
    y = gd_cast(d, gd_cast(d, y, t), out->dtype);
    Value *end = GD(d, full, arg_ints(d->g, 0, NULL), a[2], arg_dtype(out->dtype)),
          *start = GD(d, full, arg_ints(d->g, 0, NULL), a[1], arg_dtype(out->dtype));
    return GD(d, where_self, V(GD(d, eq_Tensor, V(y), V(end))), V(start), V(y));
}

static Value *core_eye(Grad *d)
{
    const Arg *a = d->node->arg;
    return GD(d, eq_Tensor, V(right_of_diagonal(d, a[0].e, a[1].e)), arg_int(d->g, 0));
}

/* From both ends to the middle, as PyTorch counts. */
static Value *core_linspace(Grad *d)
{
    const Value *out = d->node->out[0];
    const Arg *a = d->node->arg;
    ExprPool *p = d->ex;
    Expr *one = gd_int(d, 1), *steps = a[2].e, *last = ex_sub(p, steps, one),
         *start = ex_make(p, EX_TOFLOAT, a[0].e, NULL, NULL), *end = ex_make(p, EX_TOFLOAT, a[1].e, NULL, NULL);
    if (!dtype_is_float(out->dtype)) return d->node->out[0];
    Expr *step = ex_make(p, EX_TRUEDIV, ex_sub(p, end, start), ex_make(p, EX_TOFLOAT, ex_max(p, last, one), NULL, NULL),
                         NULL);
    Value *i = gd_arange(d, steps), *x = gd_cast(d, i, worked_in(out->dtype)),
          *back = GD(d, sub_Tensor, arg_expr(last), V(x));
    Value *low = GD(d, add_Tensor, V(gd_scale(d, x, step)), arg_expr(start)),
          *high = GD(d, sub_Tensor, arg_expr(end), V(gd_scale(d, back, step)));
    return GD(d, where_self, V(GD(d, lt_Tensor, V(i), arg_expr(ex_max(p, ex_floordiv(p, steps, gd_int(d, 2)), one)))),
              V(low), V(high));
}

/* x with the axes of the diagonal in front, written at (i, i + offset). */
static Value *core_diagonal_scatter(Grad *d)
{
    Value *x = gd_value(d, 0), *src = gd_value(d, 1), *at[2];
    int a = gd_dim(d, 3, x->rank), b = gd_dim(d, 4, x->rank), perm[MAX_RANK] = {a, b}, back[MAX_RANK], front[MAX_RANK],
        n = 2;
    int64_t offset = d->node->arg[2].e->i;
    for (int i = 0; i < x->rank; i++)
        if (i != a && i != b) perm[n++] = i;
    for (int i = 0; i < n; i++) back[perm[i]] = i;
    for (int i = 0; i < src->rank; i++) front[i] = i ? i - 1 : src->rank - 1; /* its diagonal is its last axis */
    Value *along = gd_arange(d, src->dim[src->rank - 1]);
    at[0] = offset < 0 ? GD(d, add_Tensor, V(along), arg_int(d->g, -offset)) : along;
    at[1] = offset > 0 ? GD(d, add_Tensor, V(along), arg_int(d->g, offset)) : along;
    if (!at[0] || !at[1]) return NULL;
    return gd_permute(
        d, GD(d, index_put, V(gd_permute(d, x, perm)), arg_values(d->g, 2, at), V(gd_permute(d, src, front))), back);
}

/* One axis: ATen's core pads two and three in this way. */
static Value *core_replication(Grad *d)
{
    Value *x = gd_value(d, 0), *at[MAX_RANK] = {NULL};
    int axis = x->rank - 1;
    if (d->node->arg[1].n != 2) return d->node->out[0];
    Value *j = GD(d, sub_Tensor, V(gd_arange(d, d->node->out[0]->dim[axis])), arg_expr(d->node->arg[1].es[0]));
    at[axis] = GD(d, clamp, V(j), arg_int(d->g, 0), arg_expr(ex_sub(d->ex, x->dim[axis], gd_int(d, 1))));
    return at[axis] ? GD(d, index_Tensor, V(x), arg_values(d->g, axis + 1, at)) : NULL;
}

bool formulas_beside(Grad *d)
{
    Graph *g = d->g;
    d->beside = arena_array(g->arena, Value *, g->next_id + 1);
    if (!d->beside) return oom(d->err);
    for (Node *n = g->first; n; n = n->next) {
        const char *kind;
        if (!gradient_known(n->op->id, &kind) || strcmp(kind, "follows")) continue;
        d->node = n;
        d->at = n;
        d->text = rows[n->op->id].text;
        Value *v = core_formula(d);
        if (v) v = gd_cast(d, v, n->out[0]->dtype);
        if (!v) return d->err->code == E_OK ? oom(d->err) : within(d->err, "the formula of node '%s'", n->name);
        d->beside[n->out[0]->id] = v;
    }
    d->at = NULL;
    d->node = NULL;
    return true;
}

bool decompose_core(Grad *d)
{
    Graph *g = d->g;
    d->nleaf = g->next_id; /* what is made before is not looked up */
    for (Node *n = g->first, *next; n; n = next) {
        Node *before = n->prev;
        next = n->next;
        if (!rows[n->op->id].fn || n->op->flags & OPF_ATEN_CORE) continue;
        d->node = n;
        d->at = n;
        d->text = rows[n->op->id].text;
        Value *out = rows[n->op->id].fn(d);
        if (out == n->out[0]) continue;
        if (out) out = gd_cast(d, out, n->out[0]->dtype);
        if (!out) return d->err->code == E_OK ? oom(d->err) : within(d->err, "node '%s' in core ops", n->name);
        graph_replace_uses(g, n->out[0], out);
        graph_remove(g, n);
        next = before ? before->next : g->first;
    }
    d->at = NULL;
    d->node = NULL;
    graph_dce(g);
    g->core = true;
    return true;
}
