/* A map whose body works element by element, as the same ops with one more axis in front. Contract in body.h.
 *
 *     map(lambda q: (k <= q) & (k > q - 4), qs)      le(k, qs[:, None]) ... of all q at once
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

/* Which rows have a form with a batch. */
static bool has_form(const Batch *b, const Node *n)
{
    bool any = false, first = false;
    for (int i = 0; i < n->op->schema->nparams; i++) {
        const Arg *a = &n->arg[i];
        if (a->kind == ARG_GRAPH) return false;
        if (a->kind == ARG_VALUE) any |= b->batched[a->v->id], first |= !i && b->batched[a->v->id];
        for (int k = 0; a->kind == ARG_VALUES && k < a->n; k++) any |= a->vs[k] && b->batched[a->vs[k]->id];
    }
    if (n->op->flags & (OPF_RANDOM | OPF_DATA_SIZE | OPF_EFFECT) || n->nout != 1) return false;
    if (any && n->out[0]->rank == MAX_RANK) return false;
    if (!any || n->op->flags & OPF_POINTWISE) return true;
    if (n->op->id == OP_reshape || n->op->id == OP_expand) return true;
    if (n->op->id != OP_index_Tensor || first) return false;
    for (int k = 0, gap = 0; k < n->arg[1].n; k++) { /* x[i, j]: indices from the first axis on, without a gap */
        if (n->arg[1].vs[k] && gap) return false;
        gap |= !n->arg[1].vs[k];
    }
    return true;
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
    Arg arg[] = {arg_value(outer), arg_exprs(b->g, rank + 1, dim)};
    Node *n = graph_add(b->g, OP_reshape, 2, arg, v->name, b->err);
    return n ? n->out[0] : NULL;
}

static int most_axes(const Arg *list)
{
    int most = 0;
    for (int i = 0; i < list->n; i++)
        if (list->vs[i] && list->vs[i]->rank > most) most = list->vs[i]->rank;
    return most;
}

static bool take_arg(Batch *b, const Node *n, int i, bool batched, Arg *out)
{
    const Arg *a = &n->arg[i];
    int rank = n->op->id == OP_index_Tensor ? most_axes(&n->arg[1]) : n->out[0]->rank;
    bool as_is = n->op->id == OP_reshape || n->op->id == OP_expand || (n->op->id == OP_index_Tensor && !i);
    bool sizes = batched && as_is && a->kind == ARG_EXPRS;
    *out = *a;
    switch (a->kind) {
    case ARG_VALUE:
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
    b->value[n->out[0]->id] = made->out[0];
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
