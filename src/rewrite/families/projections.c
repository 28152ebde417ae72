/* The module rules' graft functions. Contract in projections.h.
 *
 *     reshape(permute(reshape(select(permute(reshape(y))))))       permute(reshape(slice(y)))
 *     linear(x, wq), linear(x, wk), linear(x, wv)                  slices of linear(x, cat(wq, wk, wv))
 */
#include "rewrite/families/projections.h"
#include <string.h>
#include "base/mem.h"
#include "rewrite/families/weights.h"

enum { MAX_CHAIN = 24 };

/* ------------------------------------------------------------------ views */

static bool full_range(const Value *v, int d, const Expr *start, const Expr *end)
{
    return ex_equals_int(start, 0) && end == v->dim[d];
}

/* v[..., start:end, ...] along d, taken below the views that v is made by. */
static Value *slice_below(Rewrite *rw, Value *v, int d, Expr *start, Expr *end, int depth);

/* The same of reshape(x): the axis is one of x, too, or what was split off in front of one. */
static Value *slice_reshaped(Rewrite *rw, Value *v, int d, Expr *start, Expr *end, int depth)
{
    Value *x = v->def->arg[0].v;
    int f[MAX_RANK * 2 + 2], t[MAX_RANK * 2 + 2];
    Expr *dim[MAX_RANK];
    int groups = axis_groups(rw->ex, x->rank, x->dim, v->rank, v->dim, f, t);
    for (int g = 0; g < groups; g++) {
        if (d < t[g] || d >= t[g + 1]) continue;
        if (f[g + 1] != f[g] + 1) return NULL;
        for (int i = t[g]; i < d; i++)
            if (!is_one(v->dim[i])) return NULL;
        Expr *inner = product_of(rw->ex, t[g + 1] - d - 1, v->dim + d + 1);
        Value *s = slice_below(rw, x, f[g], ex_mul(rw->ex, start, inner), ex_mul(rw->ex, end, inner), depth + 1);
        memcpy(dim, v->dim, (size_t)v->rank * sizeof *dim);
        dim[d] = ex_sub(rw->ex, end, start);
        return s ? rw_reshape(rw, s, v->rank, dim) : NULL;
    }
    return NULL;
}

static Value *slice_below(Rewrite *rw, Value *v, int d, Expr *start, Expr *end, int depth)
{
    int perm[MAX_RANK];
    TRY_NULL(start && end);
    if (full_range(v, d, start, end)) return v;
    if (v->def && depth < MAX_CHAIN && permutation_of(v->def, perm)) {
        Value *s = slice_below(rw, v->def->arg[0].v, perm[d], start, end, depth + 1);
        return rw_permute(rw, s, perm);
    }
    if (v->def && depth < MAX_CHAIN && v->def->op->id == OP_reshape) {
        Value *s = slice_reshaped(rw, v, d, start, end, depth);
        if (s) return s;
    }
    return RW(rw, slice_Tensor, arg_value(v), arg_int(rw->g, d), arg_expr(start), arg_expr(end), arg_int(rw->g, 1));
}

static bool is_view(const Value *v)
{
    const Op *op = v->def ? v->def->op : op_get(OP_NONE);
    return op->flags & OPF_VIEW &&
           (op->flags & OPF_REARRANGES ? op->id != OP_expand : op->id == OP_select_int || op->id == OP_slice_Tensor);
}

static int64_t axis_of(const Arg *a, const Value *x)
{
    return ex_is_int(a->e) ? a->e->i < 0 ? a->e->i + x->rank : a->e->i : -1;
}

/* The view that `node` is, of y in place of its operand. */
static Value *view_of(Rewrite *rw, const Node *node, Value *y)
{
    const Value *v = node->out[0];
    TRY_NULL(y);
    if (node->op->flags & OPF_REARRANGES) return rw_view_again(rw, node, y);
    int64_t d = axis_of(&node->arg[1], y);
    if (d < 0 || d >= y->rank || node->arg[2].kind != ARG_EXPR) return NULL;
    Expr *start = node->arg[2].e;
    if (node->op->id == OP_select_int) {
        if (!ex_is_int(start) || start->i < 0) return NULL;
        return rw_reshape(rw, slice_below(rw, y, (int)d, start, ex_int(rw->ex, start->i + 1), 0), v->rank, v->dim);
    }
    if (node->arg[3].kind != ARG_EXPR || !ex_equals_int(node->arg[4].e, 1)) return NULL;
    return slice_below(rw, y, (int)d, start, node->arg[3].e, 0);
}

/* Does the view keep the last axis where it is, as it is? */
static bool keeps_last(Rewrite *rw, const Node *node, const Value *x)
{
    int perm[MAX_RANK], f[MAX_RANK * 2 + 2], t[MAX_RANK * 2 + 2];
    const Value *v = node->out[0];
    if (!v->rank || !x->rank || v->dim[v->rank - 1] != x->dim[x->rank - 1]) return false;
    if (permutation_of(node, perm)) return perm[v->rank - 1] == v->rank - 1;
    if (node->op->id != OP_reshape) return false;
    int groups = axis_groups(rw->ex, x->rank, x->dim, v->rank, v->dim, f, t);
    return groups > 0 && f[groups - 1] == x->rank - 1 && t[groups - 1] == v->rank - 1;
}

/* The view that `node` is of v, whose last axis is another one. */
static Value *view_beside(Rewrite *rw, const Node *node, Value *v)
{
    Expr *dim[MAX_RANK];
    const Value *to = node->out[0];
    TRY_NULL(v);
    if (node->op->id != OP_reshape) return view_of(rw, node, v);
    memcpy(dim, to->dim, (size_t)to->rank * sizeof *dim);
    dim[to->rank - 1] = v->dim[v->rank - 1];
    return rw_reshape(rw, v, to->rank, dim);
}

static Value *rebuilt(Rewrite *rw, Value *v, int depth);

/* Views of a linear's result that keep its channels are views of its input. */
static Value *views_before(Rewrite *rw, const Node *linear, const Node *const *view, int n, int depth)
{
    Value *x = rebuilt(rw, linear->arg[0].v, depth + 1);
    while (n--) x = view_beside(rw, view[n], x);
    return x ? RW(rw, linear, arg_value(x), linear->arg[1], linear->arg[2]) : NULL;
}

/* v once more, from what is below its views. */
static Value *rebuilt(Rewrite *rw, Value *v, int depth)
{
    if (depth > MAX_CHAIN || !is_view(v)) return v;
    return view_of(rw, v->def, rebuilt(rw, v->def->arg[0].v, depth + 1));
}

bool make_views(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    const Node *view[MAX_CHAIN];
    int k = 0;
    (void)n;
    if (a[0].kind != ARG_VALUE || !is_view(a[0].v)) return false;
    Value *v = a[0].v, *y = NULL;
    while (k < MAX_CHAIN && is_view(v) && keeps_last(rw, v->def, v->def->arg[0].v)) {
        view[k++] = v->def;
        v = v->def->arg[0].v;
    }
    if (v->def && v->def->op->id == OP_linear && rewrite_info(rw, v)->uses == 1)
        y = views_before(rw, v->def, view, k, 0);
    else if (is_view(a[0].v->def->arg[0].v)) y = rebuilt(rw, a[0].v, 0);
    *out = arg_value(y);
    return y != NULL;
}

bool make_linear_first(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    const Node *linear = a[0].kind == ARG_VALUE ? a[0].v->def : NULL, *p = linear ? linear->arg[0].v->def : NULL;
    if (!p || !is_view(linear->arg[0].v) || !keeps_last(rw, p, p->arg[0].v))
        return rewrite_refuse(rw, "the permute moves the axis that is summed");
    Value *y = view_beside(rw, p, RW(rw, linear, p->arg[0], linear->arg[1], linear->arg[2]));
    *out = arg_value(y);
    return y != NULL;
}

/* ------------------------------------------------------------------ packing */

enum { MAX_PACK = 3, MAX_AHEAD = 512 };

typedef struct Feeds {
    unsigned char *bits; /* by value id: which of the linears it is computed from, without another product in between */
    unsigned char found;
} Feeds;

static void gather(void *user, Value **slot)
{
    Feeds *f = user;
    f->found |= f->bits[(*slot)->id];
}

static bool is_product(const Node *n)
{
    return n->op->flags & OPF_PRODUCT || n->op->id == OP_softmax_int || n->op->id == OP_safe_softmax;
}

static int bit_of(unsigned bits) { return bits == 1 ? 0 : bits == 2 ? 1 : bits == 4 ? 2 : -1; }

/* The attention that all n feed; order[i]: the linear that gives its queries, keys, values (or, of two, keys and
 * values). */
static bool feed_attention(Rewrite *rw, int n, Value *const *y, int *order)
{
    Feeds f = {mem_zeroed((size_t)rw->g->next_id + 1, 1), 0};
    const Node *at = y[0]->def, *end = NULL;
    if (!f.bits) return false;
    for (int i = 0; i < n; i++) f.bits[y[i]->id] = (unsigned char)(1u << i);
    for (int k = 0; at && k < MAX_AHEAD && !end; at = at->next, k++) {
        f.found = 0;
        node_each_operand((Node *)(uintptr_t)at, gather, &f);
        if (!f.found) continue;
        if (at->op->id == OP_scaled_dot_product_attention) end = at;
        if (is_product(at)) continue;
        for (int o = 0; o < at->nout; o++) f.bits[at->out[o]->id] |= f.found;
    }
    bool fine = end != NULL;
    unsigned all = 0;
    for (int i = 0; fine && i < 3; i++) {
        unsigned bits = end->arg[i].kind == ARG_VALUE ? f.bits[end->arg[i].v->id] : 0;
        if (n == 2 && i == 0) {
            fine = bits == 0;
            continue;
        }
        fine = bit_of(bits) >= 0 && bit_of(bits) < n && !(all & bits);
        all |= bits;
        if (fine) order[i - (n == 2)] = bit_of(bits);
    }
    mem_free(f.bits);
    return fine || rewrite_refuse(rw, "they are not the queries, keys and values of one attention");
}

/* Rows of the i-th linear, all sizes being known and alike. */
static bool fits(Rewrite *rw, int n, Value *const *y, int64_t *rows, bool *bias)
{
    const Value *first = y[0]->def->arg[1].v;
    *bias = false;
    for (int i = 0; i < n; i++) {
        const Arg *a = y[i]->def->arg;
        TRY(weight_own(rw, a[1].v));
        if (a[1].v->rank != 2 || a[1].v->dtype != first->dtype || a[1].v->dim[1] != first->dim[1])
            return rewrite_refuse(rw, "the weights do not fit on top of each other");
        rows[i] = a[1].v->data->shape[0];
        if (a[2].kind != ARG_VALUE) continue;
        TRY(weight_own(rw, a[2].v));
        if (a[2].v->rank != 1 || a[2].v->dtype != first->dtype)
            return rewrite_refuse(rw, "the biases do not fit on top of each other");
        *bias = true;
    }
    return true;
}

/* "a.b.q.weight", "a.b.k.weight" -> "a.b.NAME" */
static const char *common_name(Rewrite *rw, int n, Value *const *from, const char *name)
{
    const char *fqn = from[0]->fqn ? from[0]->fqn : "";
    size_t same = strlen(fqn);
    for (int i = 1; i < n; i++) {
        size_t k = 0;
        while (from[i]->fqn && k < same && from[i]->fqn[k] == fqn[k]) k++;
        same = k;
    }
    while (same && fqn[same - 1] != '.') same--;
    return arena_printf(rw->g->arena, "%.*s%s", (int)same, fqn, name);
}

/* Parts on top of each other; those that are missing are zeros. */
static Value *stacked(Rewrite *rw, int n, Value *const *part, const int64_t *rows, int rank, const Value *like,
                      const char *name)
{
    Value *v = weight_made(rw, "stacked", n, part), *named[MAX_PACK] = {NULL};
    int64_t shape[2] = {0, rank == 2 ? like->data->shape[1] : 1}, at = 0;
    int k = 0;
    if (v) return v;
    for (int i = 0; i < n; i++) {
        shape[0] += rows[i];
        if (part[i]) named[k++] = part[i];
    }
    Tensor *t = weight_room(rw, like->dtype, rank, shape);
    const char *fqn = common_name(rw, k, named, name);
    TRY_NULL(t && fqn);
    for (int i = 0; i < n; at += rows[i++]) {
        int64_t own[2] = {rows[i], shape[1]};
        Tensor to = tensor_of(like->dtype, rank, own,
                              (char *)t->data + (size_t)(at * shape[1]) * dtype_size(like->dtype));
        if (part[i]) tensor_copy(&to, part[i]->data);
    }
    return weight_add(rw, "stacked", n, part, fqn, t);
}

bool make_packed(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Value *y[MAX_PACK] = {NULL}, *w[MAX_PACK], *b[MAX_PACK];
    int64_t rows[MAX_PACK], own[MAX_PACK], at = 0;
    int order[MAX_PACK], which = (int)a[0].e->i;
    bool bias;
    n--;
    if (which < 0 || which >= n) return false;
    for (int i = 0; i < n; i++) {
        if (a[1 + i].kind != ARG_VALUE) return false;
        y[i] = a[1 + i].v;
    }
    TRY(fits(rw, n, y, own, &bias) && feed_attention(rw, n, y, order));
    for (int i = 0; i < n; i++) {
        const Arg *of = y[order[i]]->def->arg;
        w[i] = of[1].v;
        b[i] = of[2].kind == ARG_VALUE ? of[2].v : NULL;
        rows[i] = own[order[i]];
    }
    Value *weight = stacked(rw, n, w, rows, 2, w[0], n == 3 ? "qkv_packed.weight" : "kv_packed.weight");
    Value *shift = weight && bias ? stacked(rw, n, b, rows, 1, w[0], n == 3 ? "qkv_packed.bias" : "kv_packed.bias")
                                  : NULL;
    if (!weight || (bias && !shift)) return false;
    Value *all = RW(rw, linear, y[0]->def->arg[0], arg_value(weight), shift ? arg_value(shift) : arg_none());
    TRY(all);
    for (int i = 0; i < n && order[i] != which; i++) at += rows[i];
    Value *v = RW(rw, slice_Tensor, arg_value(all), arg_int(rw->g, all->rank - 1), arg_int(rw->g, at),
                  arg_int(rw->g, at + own[which]), arg_int(rw->g, 1));
    *out = arg_value(v);
    return v != NULL;
}
