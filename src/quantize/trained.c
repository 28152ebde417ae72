/* Models that were trained with quantizers. Contract in trained.h. */
#include "quantize/trained.h"
#include <string.h>
#include "facts/constant.h"
#include "facts/views.h"
#include "quantize/integers.h"
#include "quantize/place.h"

enum { MAX_ARGS = 32 };

int trained_weights(Graph *g)
{
    int found = 0;
    for (Node *n = g->first; n; n = n->next) {
        Err why = {0};
        Value *w = n->op->id == OP_quantize_linear ? value_below(n->arg[0].v, quantize_moves, NULL) : NULL;
        if (!w || !constant_weight(g, w, &why)) continue;
        found += w->weight == W_PARAMETER;
        w->weight = W_BUFFER;
    }
    return found;
}

/* ------------------------------------------------------------------ weights */

/* The elements of `from` as a weight of other sizes (and of i4, a byte an element as well). */
static Value *another(Graph *g, const Value *from, DType t, int rank, const int64_t *shape, Err *err)
{
    Value *v = quantize_buffer(g, from->fqn ? from->fqn : from->name, t, rank, shape, err);
    Tensor flat;
    if (!v) return NULL;
    flat = tensor_of(from->data->dtype, from->data->rank, from->data->shape, v->data->data);
    tensor_copy(&flat, from->data);
    return v;
}

/* Integers (R, G) with a scale a row that a reshape makes (N, K) of are blocks of G along K. */
static bool as_blocks(Graph *g, Node *view, const Value *ints, const Value *scale, DType t, Err *err)
{
    const int64_t *from = ints->data->shape, N = view->out[0]->dim[0]->i, K = view->out[0]->dim[1]->i, G = from[1];
    const bool whole = G == K;
    Value *w = another(g, ints, t, 2, (int64_t[]){N, K}, err),
          *s = w ? another(g, scale, DT_F32, whole ? 1 : 2, (int64_t[]){N, whole ? N : K / G}, err) : NULL;
    Arg args[5] = {arg_value(w), arg_value(s), arg_none(), arg_int(g, whole ? 0 : 1), arg_int(g, whole ? 0 : G)};
    Node *back = s ? graph_add_before(g, view, OP_dequantize_linear, 5, args, view->out[0]->name, err) : NULL;
    TRY(back);
    graph_replace_uses(g, view->out[0], back->out[0]);
    return true;
}

static bool is_blocks(const Graph *g, const Node *view, const Node *d)
{
    const Value *w = d->arg[0].v, *out = view->out[0];
    return view->op->id == OP_reshape && out->rank == 2 && w->rank == 2 && d->arg[1].v->rank == 1 && !d->arg[4].e->i &&
           !d->arg[3].e->i && ex_is_int(out->dim[0]) && ex_is_int(out->dim[1]) && quantize_all_zero(g, &d->arg[2]) &&
           out->dim[1]->i % w->data->shape[1] == 0;
}

/* d gives a weight of integers as floats. */
static bool settle_weight(Graph *g, Node *d, Err *err)
{
    const Value *w = d->arg[0].v, *scale = through_views(d->arg[1].v);
    const DType t = quantize_within_4_bits(g, w) ? DT_I4 : w->dtype;
    for (Node *view = d->next, *next; view; view = next) {
        next = view->next;
        if (!view->nout || view->arg[0].kind != ARG_VALUE || view->arg[0].v != d->out[0] || !is_blocks(g, view, d) ||
            !constant_tensor(g, scale))
            continue;
        TRY(as_blocks(g, view, w, scale, t, err));
    }
    if (t == w->dtype || !quantize_all_zero(g, &d->arg[2])) return true;
    Value *four = another(g, w, t, w->rank, w->data->shape, err);
    TRY(four);
    d->arg[0] = arg_value(four);
    d->arg[2] = arg_none();
    return true;
}

/* ------------------------------------------------------------------ views */

/* view(dequantize(q, s))  ->  dequantize(view(q), s): integers move, and inverses stand at the products. */
static bool sink(Graph *g, Node *view, const Node *d, Err *err)
{
    Arg arg[MAX_ARGS];
    int n = view->op->schema->nparams;
    memcpy(arg, view->arg, (size_t)n * sizeof *arg);
    arg[0] = d->arg[0];
    Node *moved = graph_add_before(g, view, view->op->id, n, arg, view->out[0]->name, err);
    TRY(moved);
    memcpy(arg, d->arg, (size_t)d->op->schema->nparams * sizeof *arg);
    arg[0] = arg_value(moved->out[0]);
    Node *back = graph_add_before(g, view, d->op->id, d->op->schema->nparams, arg, view->out[0]->name, err);
    TRY(back);
    graph_replace_uses(g, view->out[0], back->out[0]);
    return true;
}

bool trained_settle(Graph *g, Err *err)
{
    for (Node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (n->op->id == OP_dequantize_linear && n->arg[0].v->kind == V_WEIGHT && n->arg[0].v->dtype == DT_I8)
            TRY(settle_weight(g, n, err));
        const Node *d = quantize_moves(n, NULL) ? n->arg[0].v->def : NULL;
        if (d && d->op->id == OP_dequantize_linear && d->arg[0].v->kind != V_WEIGHT && quantize_one_number(d->arg[1].v))
            TRY(sink(g, n, d, err));
    }
    graph_dce(g);
    return true;
}
