/* Tokens through a graph. Contract in skip_tokens.h. */
#include "padding/skip_tokens.h"
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ which ops treat tokens one by one */

static bool is_pointwise(const Node *n) { return n->op->flags & OPF_POINTWISE; }

bool token_op(const Node *n)
{
    if (n->nout != 1) return false;
    if (n->op->id == OP_matmul) return n->arg[1].v->rank == 2 && n->arg[0].v->rank > 2;
    return n->op->flags & (OPF_BY_TOKEN | OPF_POINTWISE);
}

static bool aligned(const Node *n) { return is_pointwise(n) || n->op->id == OP_expand || n->op->id == OP_rotary; }

/* The operand that the tokens come from, where it is a certain one; NULL: any. */
static Value *main_operand(const Node *n)
{
    return aligned(n) || n->op->id == OP_cat ? NULL : n->arg[n->op->id == OP_embedding].v;
}

static int axis_of(const Expr *e, int rank) { return (int)(e->i < 0 ? e->i + rank : e->i); }

/* The dims argument of a reduction has this axis (none: all have). */
static bool reduces(const Node *n, int a)
{
    const Arg *dims = &n->arg[1];
    int rank = n->arg[0].v->rank;
    if (dims->kind != ARG_EXPRS || !dims->n) return true;
    for (int i = 0; i < dims->n; i++)
        if (axis_of(dims->es[i], rank) == a) return true;
    return false;
}

/* Where axis a of operand v goes in n's result; -1 where it is mixed, dropped or spread. */
static int to_result(const Node *n, const Value *v, int a)
{
    const Value *y = n->out[0];
    int perm[MAX_RANK], before = 0;
    if (aligned(n)) {
        int k = a + y->rank - v->rank;
        bool turned = n->op->id == OP_rotary && a == v->rank - 1;
        return !turned && k >= 0 && y->dim[k] == v->dim[a] ? k : -1;
    }
    if (n->op->flags & OPF_ALONG_DIM) return axis_of(n->arg[1].e, v->rank) != a ? a : -1;
    if (n->op->flags & OPF_REDUCES) {
        if (reduces(n, a)) return -1;
        for (int i = 0; i < a; i++) before += reduces(n, i);
        return n->arg[2].e->i ? a : a - before;
    }
    switch (n->op->id) {
    case OP_layer_norm:
    case OP_rms_norm: return a < v->rank - n->arg[1].n ? a : -1;
    case OP_linear:
    case OP_matmul: return a < v->rank - 1 ? a : -1;
    case OP_embedding: return a;
    case OP_select_int: return axis_of(n->arg[1].e, v->rank) == a ? -1 : a - (a > axis_of(n->arg[1].e, v->rank));
    case OP_permute:
        permutation_of(n, perm);
        for (int i = 0; i < v->rank; i++)
            if (perm[i] == a) return i;
        return -1;
    default: return -1;
    }
}

static bool known(Tag t) { return t.b >= 0; }
static bool same_tag(Tag a, Tag b) { return a.b == b.b && a.s == b.s; }
static const Tag unknown = {-1, -1};

/* Tags across a reshape from x to y, either of which may be its operand. */
static Tag reshaped(Tokens *t, const Value *x, const Value *y, Tag in)
{
    int f[MAX_RANK * 2 + 2], to[MAX_RANK * 2 + 2], gb = -1, gs = -1;
    int groups = axis_groups(t->g->ex, x->rank, x->dim, y->rank, y->dim, f, to);
    for (int k = 0; k < groups; k++) {
        if (in.b >= f[k] && in.b < f[k + 1]) gb = k;
        if (in.s >= f[k] && in.s < f[k + 1]) gs = k;
    }
    if (gb < 0 || gs < 0) return unknown;
    int nb = to[gb + 1] - to[gb], ns = to[gs + 1] - to[gs];
    if (gb != gs)
        return f[gb + 1] - f[gb] == 1 && f[gs + 1] - f[gs] == 1 && nb == 1 && ns == 1
                   ? (Tag){(signed char)to[gb], (signed char)to[gs]}
                   : unknown;
    int from = f[gb + 1] - f[gb];
    if (in.b != in.s)
        return from == 2 && in.s == in.b + 1 && nb == 1 ? (Tag){(signed char)to[gb], (signed char)to[gb]} : unknown;
    if (from != 1) return unknown;
    if (nb == 1) return (Tag){(signed char)to[gb], (signed char)to[gb]};
    return nb == 2 && y->dim[to[gb]] == t->B && y->dim[to[gb] + 1] == t->S
               ? (Tag){(signed char)to[gb], (signed char)(to[gb] + 1)}
               : unknown;
}

static Tag result_tag(Tokens *t, const Node *n, const Value *v, Tag in)
{
    if (n->op->id == OP_reshape) return reshaped(t, v, n->out[0], in);
    int b = to_result(n, v, in.b), s = to_result(n, v, in.s);
    return b < 0 || s < 0 ? unknown : (Tag){(signed char)b, (signed char)s};
}

static Tag operand_tag(Tokens *t, const Node *n, const Value *v, Tag out)
{
    if (n->op->id == OP_reshape) return reshaped(t, n->out[0], v, out);
    Tag in = unknown;
    for (int a = 0; a < v->rank; a++) {
        int k = to_result(n, v, a);
        if (k == out.b) in.b = (signed char)a;
        if (k == out.s) in.s = (signed char)a;
    }
    return in.b < 0 || in.s < 0 ? unknown : in;
}

typedef struct Visit {
    Tokens *t;
    const Node *n;
    bool changed, fits, any;
} Visit;

static bool may_have(const Tokens *t, const Value *v) { return v->id < t->nvalues && v->kind != V_WEIGHT; }

static bool carries(const Node *n, const Value *v) { return !main_operand(n) || main_operand(n) == v; }

static void forward(void *user, Value **slot)
{
    Visit *x = user;
    Value *y = x->n->out[0];
    if (!may_have(x->t, *slot) || !may_have(x->t, y) || !carries(x->n, *slot) || !known(x->t->tag[(*slot)->id]) ||
        known(x->t->tag[y->id]))
        return;
    Tag r = result_tag(x->t, x->n, *slot, x->t->tag[(*slot)->id]);
    if (!known(r)) return;
    x->t->tag[y->id] = r;
    x->changed = true;
}

static void backward(void *user, Value **slot)
{
    Visit *x = user;
    if (!may_have(x->t, *slot) || !carries(x->n, *slot) || known(x->t->tag[(*slot)->id])) return;
    Tag r = operand_tag(x->t, x->n, *slot, x->t->tag[x->n->out[0]->id]);
    if (!known(r)) return;
    x->t->tag[(*slot)->id] = r;
    x->changed = true;
}

bool tag_forward(Tokens *t, const Node *n)
{
    Visit x = {.t = t, .n = n};
    if (token_op(n)) node_each_operand((Node *)(uintptr_t)n, forward, &x);
    return x.changed;
}

bool tag_backward(Tokens *t, const Node *n)
{
    Visit x = {.t = t, .n = n};
    if (token_op(n) && may_have(t, n->out[0]) && known(t->tag[n->out[0]->id]))
        node_each_operand((Node *)(uintptr_t)n, backward, &x);
    return x.changed;
}

static void agrees(void *user, Value **slot)
{
    Visit *x = user;
    const Value *v = *slot;
    Tag in = may_have(x->t, v) ? x->t->tag[v->id] : unknown;
    if (!known(in)) {
        x->fits &= aligned(x->n) || !carries(x->n, v); /* others broadcast, or are gathered */
        return;
    }
    if (!carries(x->n, v)) x->fits = false;
    x->any = true;
    x->fits &= same_tag(result_tag(x->t, x->n, v, in), x->t->tag[x->n->out[0]->id]);
}

bool token_node(Tokens *t, const Node *n)
{
    Visit x = {.t = t, .n = n, .fits = true};
    if (!token_op(n) || !may_have(t, n->out[0]) || !known(t->tag[n->out[0]->id])) return false;
    node_each_operand((Node *)(uintptr_t)n, agrees, &x);
    return x.fits && x.any;
}

/* ------------------------------------------------------------------ building */

static Value *put(Tokens *t, OpId op, int n, const Arg *args, const char *name)
{
    for (int i = 0; i < n; i++)
        if ((args[i].kind == ARG_VALUE && !args[i].v) || (args[i].kind == ARG_EXPR && !args[i].e)) return NULL;
    const Node *node = graph_add(t->g, op, n, args, name, t->err);
    return node ? node->out[0] : NULL;
}
#define PUT(t, op, name, ...)                                                                                          \
    put((t), OP_##op, (int)(sizeof((Arg[]){__VA_ARGS__}) / sizeof(Arg)), (Arg[]){__VA_ARGS__}, (name))

static Value *reshape(Tokens *t, Value *v, int rank, Expr *const *dim, const char *name)
{
    if (!v || (v->rank == rank && exprs_same(rank, v->dim, dim))) return v;
    return PUT(t, reshape, name, arg_value(v), arg_exprs(t->g, rank, dim));
}

static Value *permute(Tokens *t, Value *v, const int64_t *perm, const char *name)
{
    bool same = true;
    for (int i = 0; v && i < v->rank; i++) same &= perm[i] == i;
    return !v || same ? v : PUT(t, permute, name, arg_value(v), arg_ints(t->g, v->rank, perm));
}

bool tokens_start(Tokens *t, const KeyMask *m)
{
    Graph *g = t->g;
    Expr *all = ex_mul(g->ex, t->B, t->S), *zero = ex_int(g->ex, 0), *one = ex_int(g->ex, 1);
    TRY(t->real = key_mask_real(g, m, t->B, t->S, t->err));
    Value *found = PUT(t, nonzero, "real_at", arg_value(reshape(t, t->real, 1, &all, "real_flat")));
    TRY(found);
    t->T = found->dim[0];
    TRY(t->index = reshape(t, found, 1, &t->T, "real_tokens"));
    Value *count = PUT(t, sum_dim_IntList, "real_count",
                       arg_value(PUT(t, to_copy, "real_ones", arg_value(t->real), arg_dtype(DT_I64))),
                       arg_exprs(g, 1, &one), arg_bool(g, false));
    Value *ends = PUT(t, cumsum, "real_ends", arg_value(count), arg_expr(zero));
    t->offsets = PUT(t, constant_pad_nd, "real_offsets", arg_value(ends), arg_exprs(g, 2, (Expr *[]){one, zero}),
                     arg_expr(zero));
    return t->offsets != NULL;
}

static Value *positions(Tokens *t)
{
    if (!t->position) t->position = PUT(t, remainder_Tensor, "real_position", arg_value(t->index), arg_expr(t->S));
    return t->position;
}

static Value *batches(Tokens *t)
{
    if (!t->batch)
        t->batch = PUT(t, div_Tensor_mode, "real_batch", arg_value(t->index), arg_expr(t->S), arg_str(t->g, "floor"));
    return t->batch;
}

/* v with these axes in front (others after them in order), the first `n` of them as one axis of this size, picked by
 * index. */
static Value *gather(Tokens *t, Value *v, int n, const int *front, Expr *size, Value *index)
{
    int64_t perm[MAX_RANK];
    Expr *dim[MAX_RANK];
    int k = 0, rank = 0;
    for (int i = 0; i < n; i++) perm[k++] = front[i];
    dim[rank++] = size;
    for (int a = 0; a < v->rank; a++) {
        bool moved = false;
        for (int i = 0; i < n; i++) moved |= front[i] == a;
        if (moved) continue;
        perm[k++] = a;
        dim[rank++] = v->dim[a];
    }
    v = reshape(t, permute(t, v, perm, "tokens_first"), rank, dim, "tokens_flat");
    return PUT(t, index_select, "tokens", arg_value(v), arg_int(t->g, 0), arg_value(index));
}

Value *token_packed(Tokens *t, Value *v)
{
    Tag in = t->tag[v->id];
    if (!t->packed[v->id])
        t->packed[v->id] = gather(t, v, in.b == in.s ? 1 : 2, (int[]){in.b, in.s}, ex_mul(t->g->ex, t->B, t->S),
                                  t->index);
    return t->packed[v->id];
}

/* Operand v of an op that broadcasts to `rank` axes with tokens at `out`: what it takes on packed tensors. */
static Value *spread(Tokens *t, Value *v, int rank, Tag out)
{
    Expr *dim[MAX_RANK], *one = ex_int(t->g->ex, 1);
    int shift = rank - v->rank, b = out.b - shift, s = out.s - shift, kept = 0,
        lacking = shift - (b < 0) - (s < 0 && s != b);
    bool has_b = b >= 0 && !is_one(v->dim[b]), has_s = s >= 0 && !is_one(v->dim[s]);
    bool tagged = may_have(t, v) && known(t->tag[v->id]);
    for (int a = 0; a < v->rank; a++)
        if (a != b && a != s) dim[kept++] = v->dim[a];
    if (!tagged && !has_b && !has_s) return reshape(t, v, kept, dim, "each_token");
    Value *p;
    if (tagged) p = token_packed(t, v);
    else if (b == s) p = gather(t, v, 1, (int[]){b}, v->dim[b], t->index);
    else if (has_b && has_s) p = gather(t, v, 2, (int[]){b, s}, ex_mul(t->g->ex, t->B, t->S), t->index);
    else if (has_s) p = gather(t, v, b < 0 ? 1 : 2, b < 0 ? (int[]){s, s} : (int[]){b, s}, v->dim[s], positions(t));
    else p = gather(t, v, s < 0 ? 1 : 2, s < 0 ? (int[]){b, b} : (int[]){b, s}, v->dim[b], batches(t));
    if (!p || lacking <= 0) return p;
    for (int i = kept; i > 0; i--)
        dim[i + lacking] = p->dim[i]; /* axes that v lacks come between the tokens and its own */
    dim[0] = p->dim[0];
    for (int i = 1; i <= lacking; i++) dim[i] = one;
    return reshape(t, p, kept + 1 + lacking, dim, "each_token");
}

static int packed_axis(Tag in, int a) { return 1 + a - (a > in.b) - (a > in.s && in.s != in.b); }

/* The packed sizes of y. */
static int packed_sizes(const Tokens *t, const Value *y, Expr **dim)
{
    Tag out = t->tag[y->id];
    int n = 0;
    dim[n++] = t->T;
    for (int a = 0; a < y->rank; a++)
        if (a != out.b && a != out.s) dim[n++] = y->dim[a];
    return n;
}

static Value *build_permute(Tokens *t, const Node *n)
{
    int perm[MAX_RANK], k = 0;
    int64_t to[MAX_RANK];
    Tag in = t->tag[n->arg[0].v->id], out = t->tag[n->out[0]->id];
    permutation_of(n, perm);
    to[k++] = 0;
    for (int i = 0; i < n->out[0]->rank; i++)
        if (i != out.b && i != out.s) to[k++] = packed_axis(in, perm[i]);
    return permute(t, token_packed(t, n->arg[0].v), to, n->name);
}

static Value *build_other(Tokens *t, const Node *n)
{
    Arg arg[32];
    int np = n->op->schema->nparams;
    const Value *y = n->out[0];
    if (np > 32) return NULL;
    memcpy(arg, n->arg, (size_t)np * sizeof *arg);
    if (aligned(n)) {
        for (int i = 0; i < np; i++)
            if (arg[i].kind == ARG_VALUE && !(arg[i] = arg_value(spread(t, arg[i].v, y->rank, t->tag[y->id]))).v)
                return NULL;
        return put(t, n->op->id, np, arg, n->name);
    }
    if (n->op->id == OP_cat) {
        Tag in = t->tag[y->id];
        arg[0] = arg_values(t->g, n->arg[0].n, n->arg[0].vs);
        for (int i = 0; i < arg[0].n; i++)
            if (!(arg[0].vs[i] = token_packed(t, arg[0].vs[i]))) return NULL;
        arg[1] = arg_int(t->g, packed_axis(in, axis_of(n->arg[1].e, y->rank)));
        return put(t, n->op->id, np, arg, n->name);
    }
    const Value *x = main_operand(n);
    Tag in = t->tag[x->id];
    int at = n->op->id == OP_embedding;
    arg[at] = arg_value(token_packed(t, n->arg[at].v));
    int64_t dims[MAX_RANK];
    if (n->op->flags & OPF_ALONG_DIM || n->op->id == OP_select_int)
        arg[1] = arg_int(t->g, packed_axis(in, axis_of(n->arg[1].e, x->rank)));
    if (n->op->flags & OPF_REDUCES) {
        for (int i = 0; i < n->arg[1].n; i++) dims[i] = packed_axis(in, axis_of(n->arg[1].es[i], x->rank));
        arg[1] = arg_ints(t->g, n->arg[1].n, dims);
    }
    return put(t, n->op->id, np, arg, n->name);
}

bool token_build(Tokens *t, const Node *n)
{
    Expr *dim[MAX_RANK];
    Value *y = n->out[0], *p;
    int rank = packed_sizes(t, y, dim);
    if (n->op->id == OP_reshape) p = reshape(t, token_packed(t, n->arg[0].v), rank, dim, n->name);
    else if (n->op->id == OP_permute) p = build_permute(t, n);
    else if (n->op->id == OP_expand) {
        p = spread(t, n->arg[0].v, y->rank, t->tag[y->id]);
        if (p && (p->rank != rank || !exprs_same(rank, p->dim, dim)))
            p = PUT(t, expand, n->name, arg_value(p), arg_exprs(t->g, rank, dim));
    } else p = build_other(t, n);
    if (p && (p->rank != rank || !exprs_same(rank, p->dim, dim) || p->dtype != y->dtype))
        p = PUT(t, expand, n->name, arg_value(p), arg_exprs(t->g, rank, dim));
    t->packed[y->id] = p;
    return p != NULL;
}

Value *token_padded(Tokens *t, Value *v)
{
    Tag in = t->tag[v->id];
    Value *p = token_packed(t, v);
    Expr *dim[MAX_RANK];
    int64_t perm[MAX_RANK];
    int n = p ? p->rank : 0, k = 1, wide = 0;
    if (!p) return NULL;
    memcpy(dim, p->dim, (size_t)n * sizeof *dim);
    dim[0] = ex_mul(t->g->ex, t->B, t->S);
    Value *zeros = PUT(t, full, "padding", arg_exprs(t->g, n, dim),
                       v->dtype == DT_BOOL        ? arg_bool(t->g, false)
                       : dtype_is_float(v->dtype) ? arg_float(t->g, 0)
                                                  : arg_int(t->g, 0),
                       arg_dtype(v->dtype));
    Value *y = PUT(t, index_put, "padded", arg_value(zeros), arg_values(t->g, 1, &t->index), arg_value(p));
    if (!y) return NULL;
    if (in.b != in.s) { /* (B*S, others) -> (B, S, others) */
        memmove(&dim[2], &p->dim[1], (size_t)(n - 1) * sizeof *dim);
        dim[0] = t->B;
        dim[1] = t->S;
        y = reshape(t, y, n + 1, dim, "padded");
        k = 2;
    }
    for (int a = 0; a < v->rank; a++) perm[a] = a == in.b ? 0 : a == in.s ? 1 : k + wide++;
    return permute(t, y, perm, v->name);
}
