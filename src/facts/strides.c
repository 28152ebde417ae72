/* Strides in PyTorch. Contract in strides.h. */
#include "facts/strides.h"
#include <string.h>
#include "facts/axes.h"

enum { MAX_CHAIN = 200 };

bool expr_strides(ExprPool *p, int rank, Expr *const *dim, Expr **stride)
{
    Expr *step = ex_int(p, 1);
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = step;
        if (!ex_equals_int(dim[i], 0)) step = ex_mul(p, step, dim[i]); /* ATen counts an empty axis as one of 1 */
        if (!step) return false;
    }
    return true;
}

/* at::detail::computeStride: the old axes in runs that follow each other in memory, each split again. */
bool reshaped_strides(ExprPool *p, const Value *x, Expr *const *old, const Value *v, Expr **stride)
{
    int at = v->rank - 1;
    if (!x->rank || !v->rank) return expr_strides(p, v->rank, v->dim, stride);
    Expr *base = old[x->rank - 1], *have = ex_int(p, 1), *made = ex_int(p, 1);
    for (int i = x->rank - 1; i >= 0; i--) {
        have = ex_mul(p, have, x->dim[i]);
        if (!have || !base) return false;
        if (i > 0 && (ex_equals_int(x->dim[i - 1], 1) || old[i - 1] == ex_mul(p, have, base))) continue;
        while (at >= 0 && (made != have || ex_equals_int(v->dim[at], 1))) {
            stride[at] = ex_mul(p, made, base);
            made = ex_mul(p, made, v->dim[at--]);
            if (!made) return false;
        }
        if (made != have) return false;
        if (i > 0) base = old[i - 1];
        have = made = ex_int(p, 1);
    }
    return at < 0;
}

static const Value *same_sizes(const Node *n, const Value *v)
{
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Value *x = n->arg[i].kind == ARG_VALUE ? n->arg[i].v : NULL;
        if (x && same_dims(x, v)) return x;
    }
    return NULL;
}

static int axis_of(const Arg *a, int rank)
{
    int64_t d = a->kind == ARG_EXPR && ex_is_int(a->e) ? a->e->i : 0;
    d += d < 0 ? rank : 0;
    return d < 0 || d >= rank ? 0 : (int)d;
}

static bool strides_of(ExprPool *p, const Value *v, Expr **stride, int depth);

/* (B, H, N, D) that lies in memory as (B, N, H, D). */
static bool rows_first(ExprPool *p, Expr *const *dim, Expr **stride)
{
    Expr *order[4] = {dim[0], dim[2], dim[1], dim[3]}, *step[4];
    if (!expr_strides(p, 4, order, step)) return false;
    for (int i = 0; i < 4; i++) stride[i] = step[i == 1 ? 2 : i == 2 ? 1 : i];
    return true;
}

/* torch.empty_like: a tensor of v's sizes whose axes follow each other as those of x. */
static bool like(ExprPool *p, const Value *x, const Value *v, Expr **stride, int depth)
{
    Expr *old[MAX_RANK], *apart;
    int64_t lo = -1, hi;
    if (!strides_of(p, x, old, depth + 1)) return false;
    if ((apart = ex_sub(p, old[2], old[1]))) ex_range(p, apart, &lo, &hi);
    bool contiguous = old[1] == ex_mul(p, x->dim[2], old[2]);
    return !contiguous && lo >= 0 ? rows_first(p, v->dim, stride) : expr_strides(p, 4, v->dim, stride);
}

/* What PyTorch's kernels of attention and its gradient give (the `kernel` of the node; none: the CPU's). */
static bool attention_strides(ExprPool *p, const Value *v, Expr **stride, int depth)
{
    const Node *n = v->def;
    const Arg *kernel = &n->arg[op_param(n->op, "kernel")];
    bool back = n->op->id == OP_sdpa_backward, cpu = kernel->kind != ARG_STR;
    bool efficient = !cpu && !strcmp(kernel->s, "efficient"), math = !cpu && !strcmp(kernel->s, "math");
    if (math || v->rank != 4 || (back && v->out > 2)) {
        if (math || !cpu || v->rank != 3) return expr_strides(p, v->rank, v->dim, stride);
        Expr *order[3] = {v->dim[0], v->dim[2], v->dim[1]}, *step[3]; /* logarithms, (B, H, N) out of (B, N, H) */
        if (!expr_strides(p, 3, order, step)) return false;
        stride[0] = step[0], stride[1] = step[2], stride[2] = step[1];
        return true;
    }
    if (efficient || (cpu && back)) return rows_first(p, v->dim, stride);
    return like(p, n->arg[back ? 1 + v->out : 0].v, v, stride, depth);
}

static bool strides_of(ExprPool *p, const Value *v, Expr **stride, int depth)
{
    const Node *n = v->kind == V_NODE ? v->def : NULL;
    if (n && (n->op->id == OP_sdpa_lse || n->op->id == OP_sdpa_backward) && depth <= MAX_CHAIN)
        return attention_strides(p, v, stride, depth);
    bool given = v->kind == V_WEIGHT && v->data;
    for (int i = 0; given && i < v->rank; i++) given = v->data->stride[i] >= 0; /* PyTorch has no others */
    for (int i = 0; given && i < v->rank; i++)
        if (!(stride[i] = ex_int(p, v->data->stride[i]))) return false;
    if (given) return true;
    const Value *x = n && n->arg && n->op->schema->nparams && n->arg[0].kind == ARG_VALUE ? n->arg[0].v : NULL;
    if (x && !(n->op->flags & OPF_VIEW)) x = n->op->flags & OPF_POINTWISE ? same_sizes(n, v) : NULL;
    Expr *old[MAX_RANK];
    if (!x || depth > MAX_CHAIN) return expr_strides(p, v->rank, v->dim, stride);
    if (!strides_of(p, x, old, depth + 1)) return false;
    int d = 0;
    switch (n->op->id) {
    case OP_permute:
        for (int i = 0; i < v->rank; i++) {
            Arg one = {.kind = ARG_EXPR, .e = n->arg[1].es[i]};
            stride[i] = old[axis_of(&one, x->rank)];
        }
        return true;
    case OP_expand:
        for (int i = 0; i < v->rank; i++) {
            int from = i - (v->rank - x->rank);
            bool grown = from < 0 || (ex_equals_int(x->dim[from], 1) && x->dim[from] != v->dim[i]);
            if (!(stride[i] = grown ? ex_int(p, 0) : old[from])) return false;
        }
        return true;
    case OP_select_int:
        d = axis_of(&n->arg[1], x->rank);
        for (int i = 0; i < v->rank; i++) stride[i] = old[i + (i >= d)];
        return true;
    case OP_slice_Tensor:
        d = axis_of(&n->arg[1], x->rank);
        for (int i = 0; i < v->rank; i++)
            if (!(stride[i] = i == d && n->arg[4].kind == ARG_EXPR ? ex_mul(p, old[i], n->arg[4].e) : old[i]))
                return false;
        return true;
    case OP_reshape: return reshaped_strides(p, x, old, v, stride) || expr_strides(p, v->rank, v->dim, stride);
    default:
        if (n->op->flags & OPF_VIEW) return expr_strides(p, v->rank, v->dim, stride);
        for (int i = 0; i < v->rank; i++) stride[i] = old[i];
        return true;
    }
}

bool value_strides(ExprPool *p, const Value *v, Expr **stride) { return strides_of(p, v, stride, 0); }
