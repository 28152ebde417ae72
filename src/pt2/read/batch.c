/* A map whose body's ops have a form with one more axis in front: those that work element by element or along named
 * axes, matrix products and attention. Contract in body.h.
 *
 *     map(lambda q: (k <= q) & (k > q - 4), qs)      le(k, qs[:, None]) ... of all q at once
 *     map(lambda q, k: softmax(q @ k.T, -1), qs, ks)    softmax(qs @ permute(ks, [0, 2, 1]), 2)
 *
 * A value of the body is the same for all of the batch, or has the batch as its first axis. Ops without a form for the
 * latter leave the map a loop.
 */
#include <string.h>
#include "expr/translate.h"
#include "facts/axes.h"
#include "pt2/read/body.h"

typedef struct Batch {
    Graph *g;
    const Graph *body;
    const Arg *loop;
    Expr *size;
    Value **value; /* by id of the body's value: what it is outside */
    bool *batched;
    Err *err;
} Batch;

static Expr *outside(void *user, const Expr *inner)
{
    const Batch *b = user;
    for (int i = 2; i < b->body->ninput; i++) {
        const Value *v = b->body->input[i], *outer = b->value[v->id];
        for (int d = 0; d < v->rank; d++)
            if (v->dim[d] == inner) return outer->dim[d + b->batched[v->id]];
    }
    return NULL;
}

static Expr *size_of(Batch *b, const Expr *e) { return expr_translate(b->g->ex, e, outside, b); }

/* Its second argument names axes of its first operand, which alone has the batch. */
static bool names_axes(const Node *n)
{
    return n->op->flags & (OPF_ALONG_DIM | OPF_REDUCES) || n->op->id == OP_permute || n->op->id == OP_select_int ||
           n->op->id == OP_cumsum;
}

static bool axes_are_known(const Batch *b, const Node *n)
{
    const Arg *x = &n->arg[0], *axes = &n->arg[1];
    if (x->kind != ARG_VALUE || !b->batched[x->v->id] || !x->v->rank) return false;
    for (int i = 1; i < n->op->schema->nparams; i++)
        if (n->arg[i].kind == ARG_VALUE || n->arg[i].kind == ARG_VALUES) return false;
    if (axes->kind == ARG_EXPR) return ex_is_int(axes->e);
    for (int k = 0; axes->kind == ARG_EXPRS && k < axes->n; k++)
        if (!ex_is_int(axes->es[k])) return false;
    return axes->kind == ARG_EXPRS || (axes->kind == ARG_NONE && n->op->flags & OPF_REDUCES);
}

/* A matrix product whose operands' batches broadcast, or one by weights, which are the same for all. */
static bool product_has_form(const Batch *b, const Node *n)
{
    bool own = false;
    for (int i = 0; i < n->op->schema->nparams; i++) {
        if (n->arg[i].kind != ARG_VALUE) continue;
        if (n->op->id == OP_matmul && n->arg[i].v->rank < 2) return false;
        own |= i && b->batched[n->arg[i].v->id];
    }
    return n->op->id == OP_matmul || (n->op->id == OP_linear && !own);
}

/* Attention has four axes: the batch and the first of them become one. Queries, keys and values have the batch, and a
 * mask has the same first axis, or none where that of the queries is 1. */
static bool attention_has_form(const Batch *b, const Node *n)
{
    if (n->op->id != OP_scaled_dot_product_attention) return false;
    const Expr *first = n->arg[0].v->dim[0];
    for (int i = 0; i < 3; i++)
        if (!b->batched[n->arg[i].v->id] || n->arg[i].v->rank != 4 || n->arg[i].v->dim[0] != first) return false;
    const Value *mask = n->arg[3].kind == ARG_VALUE ? n->arg[3].v : NULL;
    if (!mask) return true;
    bool own = mask->rank == 4 && !is_one(mask->dim[0]);
    return b->batched[mask->id] ? is_one(first) || (own && mask->dim[0] == first) : !own;
}

/* x[i, j]: indices without a gap, from the first axis on where they have the batch, which is in front then. */
static bool index_has_form(const Batch *b, const Arg *indices)
{
    int first = -1, last = -1, count = 0;
    bool own = false;
    for (int k = 0; k < indices->n; k++) {
        if (!indices->vs[k]) continue;
        own |= b->batched[indices->vs[k]->id];
        if (first < 0) first = k;
        last = k, count++;
    }
    return count == last - first + 1 && (!own || !first);
}

/* Which rows have a form with a batch. */
static bool has_form(const Batch *b, const Node *n)
{
    bool any = false;
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *a = &n->arg[i];
        if (a->kind == ARG_GRAPH) return false;
        if (a->kind == ARG_VALUE) any |= b->batched[a->v->id];
        for (int k = 0; a->kind == ARG_VALUES && k < a->n; k++) any |= a->vs[k] && b->batched[a->vs[k]->id];
    }
    if (n->op->flags & (OPF_RANDOM | OPF_DATA_SIZE | OPF_EFFECT) || n->nout != 1) return false;
    if (any && n->out[0]->rank == MAX_RANK) return false;
    if (!any || n->op->flags & OPF_POINTWISE) return true;
    if (n->op->id == OP_reshape || n->op->id == OP_expand) return true;
    if (names_axes(n)) return axes_are_known(b, n);
    if (product_has_form(b, n) || attention_has_form(b, n)) return true;
    return n->op->id == OP_index_Tensor && index_has_form(b, &n->arg[1]);
}

static Value *reshaped(Batch *b, Value *v, int rank, Expr **dim)
{
    Arg arg[] = {arg_value(v), arg_exprs(b->g, rank, dim)};
    Node *n = graph_add(b->g, OP_reshape, 2, arg, v->name, b->err);
    return n ? n->out[0] : NULL;
}

/* v with the batch in front of `rank` axes; as it is where it is the same for all. */
static Value *aligned(Batch *b, const Value *v, int rank)
{
    Value *outer = b->value[v->id];
    if (!b->batched[v->id] || v->rank >= rank) return outer;
    Expr *dim[MAX_RANK];
    dim[0] = b->size;
    for (int i = 0; i < rank; i++)
        dim[1 + i] = i < rank - v->rank ? ex_int(b->g->ex, 1) : outer->dim[1 + i - (rank - v->rank)];
    return reshaped(b, outer, rank + 1, dim);
}

/* v of four axes or fewer, the batch and the first of them as one. */
static Value *merged(Batch *b, const Value *v)
{
    Value *outer = aligned(b, v, 4);
    if (!outer || !b->batched[v->id]) return outer;
    Expr *dim[4] = {ex_mul(b->g->ex, outer->dim[0], outer->dim[1]), outer->dim[2], outer->dim[3], outer->dim[4]};
    if (!dim[0]) {
        fail(b->err, E_LIMIT, "a size is too large");
        return NULL;
    }
    return reshaped(b, outer, 4, dim);
}

/* The result of an attention on what was merged, taken apart again. */
static Value *apart(Batch *b, const Node *n, Value *v)
{
    Expr *dim[5] = {b->size};
    for (int i = 0; i < 4; i++)
        if (!(dim[1 + i] = size_of(b, n->out[0]->dim[i]))) return NULL;
    return reshaped(b, v, 5, dim);
}

/* An axis, or axes, of an operand with a batch in front; a permutation keeps the batch there. */
static bool shift_axes(Batch *b, const Node *n, Arg *axes)
{
    int64_t rank = n->arg[0].v->rank, before = n->op->id == OP_permute;
    ExprPool *p = b->g->ex;
    if (axes->kind == ARG_EXPR) axes->e = ex_int(p, axes->e->i + 1 + (axes->e->i < 0 ? rank : 0));
    if (axes->kind == ARG_EXPR) return axes->e || oom(b->err);
    bool all = n->op->flags & OPF_REDUCES && (axes->kind == ARG_NONE || !axes->n);
    int count = all ? (int)rank : axes->n;
    Expr **es = arena_array(b->g->arena, Expr *, count + 1);
    if (!es) return oom(b->err);
    es[0] = ex_int(p, 0);
    for (int k = 0; k < count; k++) {
        int64_t axis = all ? k : axes->es[k]->i;
        es[before + k] = ex_int(p, axis + 1 + (axis < 0 ? rank : 0));
    }
    *axes = arg_exprs(b->g, count + (int)before, es);
    return true;
}

static int most_axes(const Arg *list)
{
    int most = 0;
    for (int i = 0; i < list->n; i++)
        if (list->vs[i] && list->vs[i]->rank > most) most = list->vs[i]->rank;
    return most;
}

/* The positions 0, 1, ... of the batch, as an index beside others of `rank` axes. */
static Value *turns(Batch *b, int rank, const char *name)
{
    ExprPool *p = b->g->ex;
    Lower L = {.g = b->g, .ex = p, .op = op_get(OP_arange), .name = name, .err = b->err};
    Value *v = AS(&L, arange, arg_expr(b->size));
    Expr *dim[MAX_RANK];
    for (int i = 0; i <= rank; i++) dim[i] = i ? ex_int(p, 1) : b->size;
    return v ? reshaped(b, v, rank + 1, dim) : NULL;
}

/* Of an x with the batch, each of it by its own indices. */
static bool take_indices(Batch *b, const Node *n, Arg *out)
{
    const Arg *a = &n->arg[1];
    int rank = most_axes(a), own = b->batched[n->arg[0].v->id];
    Value **vs = arena_array(b->g->arena, Value *, a->n + 1);
    if (!vs) return oom(b->err);
    vs[0] = NULL;
    bool any = false;
    for (int k = 0; k < a->n; k++) {
        vs[own + k] = a->vs[k];
        if (!a->vs[k]) continue;
        any |= b->batched[a->vs[k]->id];
        TRY(vs[own + k] = aligned(b, a->vs[k], rank));
    }
    if (own && any) TRY(vs[0] = turns(b, rank, n->name));
    *out = arg_values(b->g, a->n + own, vs);
    return out->vs || oom(b->err);
}

static bool take_arg(Batch *b, const Node *n, int i, bool batched, Arg *out)
{
    const Arg *a = &n->arg[i];
    int rank = n->out[0]->rank;
    bool as_is = n->op->id == OP_reshape || n->op->id == OP_expand;
    if (!i) as_is |= n->op->id == OP_index_Tensor || names_axes(n);
    bool sizes = batched && as_is && a->kind == ARG_EXPRS;
    *out = *a;
    if (batched && i == 1 && names_axes(n)) return shift_axes(b, n, out);
    if (i == 1 && n->op->id == OP_index_Tensor) return take_indices(b, n, out);
    switch (a->kind) {
    case ARG_VALUE:
        if (batched && n->op->id == OP_scaled_dot_product_attention) return (out->v = merged(b, a->v)) != NULL;
        if (n->op->id == OP_expand) rank = n->out[0]->rank, as_is = false;
        return (out->v = as_is ? b->value[a->v->id] : aligned(b, a->v, rank)) != NULL;
    case ARG_VALUES:
        *out = arg_values(b->g, a->n, a->vs);
        for (int k = 0; k < a->n && out->vs; k++)
            if (a->vs[k]) TRY(out->vs[k] = aligned(b, a->vs[k], rank));
        return out->vs || oom(b->err);
    case ARG_EXPR: return (out->e = size_of(b, a->e)) != NULL || fail(b->err, E_LIMIT, "a size is too large");
    case ARG_EXPRS: {
        Expr **es = arena_array(b->g->arena, Expr *, a->n + 2);
        if (!es) return oom(b->err);
        if (sizes) es[0] = b->size;
        for (int k = 0; k < a->n; k++)
            if (!(es[k + sizes] = size_of(b, a->es[k]))) return fail(b->err, E_LIMIT, "a size is too large");
        *out = arg_exprs(b->g, a->n + sizes, es);
        return true;
    }
    case ARG_STR: *out = arg_str(b->g, a->s); return true;
    default: return true;
    }
}

static void see_batched(void *user, Value **slot)
{
    bool **state = user;
    state[1][0] |= state[0][(*slot)->id];
}

static bool take_node(Batch *b, Node *n)
{
    Arg arg[16] = {{0}};
    bool any = false, *state[] = {b->batched, &any};
    node_each_operand(n, see_batched, state);
    if (n->op->schema->nparams > 16) return fail(b->err, E_UNSUPPORTED, "%s in a batch", n->op->name);
    for (int i = 0; i < n->op->schema->nparams; i++) TRY(take_arg(b, n, i, any, &arg[i]));
    Node *made = graph_add(b->g, n->op->id, n->op->schema->nparams, arg, n->name, b->err);
    TRY(made);
    Value *out = made->out[0];
    if (any && n->op->id == OP_scaled_dot_product_attention) TRY(out = apart(b, n, out));
    b->value[n->out[0]->id] = out;
    b->batched[n->out[0]->id] = any;
    return true;
}

/* Sizes that only the body knows cannot be named outside. */
static bool knows_sizes(Batch *b, const Node *n)
{
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *a = &n->arg[i];
        if (a->kind == ARG_EXPR && !size_of(b, a->e)) return false;
        for (int k = 0; a->kind == ARG_EXPRS && k < a->n; k++)
            if (!size_of(b, a->es[k])) return false;
    }
    return true;
}

static bool set_inputs(Batch *b)
{
    const Arg *captured = &b->loop[2], *sequences = &b->loop[6];
    for (int i = 0; i < sequences->n + captured->n; i++) {
        int id = b->body->input[2 + i]->id;
        b->batched[id] = i < sequences->n;
        b->value[id] = i < sequences->n ? sequences->vs[i] : captured->vs[i - sequences->n];
    }
    return true;
}

bool map_batched(Graph *g, const Graph *body, const Arg *loop, Value **out, bool *done, Err *err)
{
    Batch b = {.g = g, .body = body, .loop = loop, .size = loop[4].e, .err = err};
    b.value = arena_array(g->arena, Value *, body->next_id + 1);
    b.batched = arena_array(g->arena, bool, body->next_id + 1);
    *done = false;
    if (!b.value || !b.batched) return oom(err);
    if (body->nweight || !set_inputs(&b)) return true;
    for (Node *n = body->first; n; n = n->next) { /* before anything is made */
        bool any = false, *state[] = {b.batched, &any};
        if (!has_form(&b, n) || !knows_sizes(&b, n)) return true;
        node_each_operand(n, see_batched, state);
        for (int k = 0; k < n->nout; k++) b.batched[n->out[k]->id] = any;
    }
    for (int i = 1; i < body->noutput; i++)
        if (!b.batched[body->output[i].value->id]) return true;
    for (Node *n = body->first; n; n = n->next) TRY(take_node(&b, n));
    for (int i = 1; i < body->noutput; i++) out[i - 1] = b.value[body->output[i].value->id];
    *done = true;
    return true;
}
