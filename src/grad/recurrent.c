/* Recurrent layers as loops over their steps, before gradients go back over them: the gradient of a loop is one
 * (grad_control.c), and every format has loops. ONNX, whose LSTM has no projection, gets those with one so, too.
 *
 *     out = rnn_layer(gates, w, b, h, "tanh", false)
 *     h', out = loop([h], [w, b], h' = tanh(gate + linear(h, w, b)), limit=T, sure, sequences=[gates])
 */
#include <string.h>
#include "grad/loops.h"
#include "ir/bodies.h"

typedef struct Step {
    Grad d; /* of the body */
    const Node *layer;
    Value *gate, *h, *c, *w, *bias, *projection; /* inputs of the body */
} Step;

static Value *sigmoid(Grad *d, Value *x) { return x ? GD(d, sigmoid, V(x)) : NULL; }
static Value *tanh_of(Grad *d, Value *x) { return x ? GD(d, tanh, V(x)) : NULL; }

/* Part k of n of the gates */
static Value *part(Grad *d, Value *x, int k, int n)
{
    int64_t width = x ? x->dim[1]->i / n : 0;
    return x ? gd_slice(d, x, 1, gd_int(d, k * width), gd_int(d, (k + 1) * width)) : NULL;
}

static Value *from_state(Grad *d, const Step *s)
{
    return s->bias ? GD(d, linear, V(s->h), V(s->w), V(s->bias)) : GD(d, linear, V(s->h), V(s->w), arg_none());
}

/* i, f, g, o = gates: c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c'), projected if there is a projection */
static Value *lstm_step(Grad *d, const Step *s, Value **c)
{
    Value *z = gd_plus(d, s->gate, from_state(d, s));
    *c = gd_plus(d, gd_mul(d, sigmoid(d, part(d, z, 1, 4)), s->c),
                 gd_mul(d, sigmoid(d, part(d, z, 0, 4)), tanh_of(d, part(d, z, 2, 4))));
    Value *h = gd_mul(d, sigmoid(d, part(d, z, 3, 4)), tanh_of(d, *c));
    return h && s->projection ? GD(d, linear, V(h), V(s->projection), arg_none()) : h;
}

/* r, z, n = gates: n = tanh(x_n + s(r) h_n), h' = n + s(z) (h - n) */
static Value *gru_step(Grad *d, const Step *s)
{
    Value *y = from_state(d, s);
    Value *r = sigmoid(d, gd_plus(d, part(d, s->gate, 0, 3), part(d, y, 0, 3))),
          *z = sigmoid(d, gd_plus(d, part(d, s->gate, 1, 3), part(d, y, 1, 3)));
    Value *n = tanh_of(d, gd_plus(d, part(d, s->gate, 2, 3), gd_mul(d, r, part(d, y, 2, 3))));
    return gd_plus(d, n, gd_mul(d, z, gd_minus(d, s->h, n)));
}

static Value *step(Step *s, Value **c)
{
    Grad *d = &s->d;
    if (s->layer->op->id == OP_lstm_layer) return lstm_step(d, s, c);
    const char *kind = s->layer->arg[4].s;
    if (*kind == 'g') return gru_step(d, s);
    Value *z = gd_plus(d, s->gate, from_state(d, s));
    return !z ? NULL : *kind == 't' ? GD(d, tanh, V(z)) : GD(d, relu, V(z));
}

/* An input of the body for an operand of the layer; the batch is that of the gates. NULL for none. */
static bool input(Step *s, int arg, const char *name, bool batch, Value **out)
{
    const Value *v = s->layer->arg[arg].kind == ARG_VALUE ? s->layer->arg[arg].v : NULL;
    Expr *dim[MAX_RANK];
    *out = NULL;
    for (int i = 0; v && i < v->rank; i++)
        dim[i] = batch && i == 0 ? s->gate->dim[0] : ex_int(s->d.ex, v->dim[i]->i);
    if (v) *out = graph_add_input(s->d.g, name, v->dtype, v->rank, dim);
    return !v || *out || oom(s->d.err);
}

static bool output(Step *s, Value *v)
{
    char *name = v ? arena_printf(s->d.g->arena, "output_%d", s->d.g->noutput) : NULL;
    if (!name) return s->d.err->code == E_OK ? oom(s->d.err) : false;
    return graph_add_output(s->d.g, name, v, s->d.err);
}

/* The graph of one step: turn, condition, h, [c,] gates, w, ... -> condition, h, [c,] h to be stacked */
static bool make_step(Step *s)
{
    const Node *n = s->layer;
    Graph *g = s->d.g;
    const Value *gates = n->arg[0].v;
    bool lstm = n->op->id == OP_lstm_layer;
    Value *c = NULL;
    if (!graph_add_input(g, "turn", DT_I64, 0, NULL) || !graph_add_input(g, "condition", DT_BOOL, 0, NULL))
        return oom(s->d.err);
    s->gate = gd_body_input(g, "gates", gates->dtype, 2, gates->dim + 1, false);
    if (!s->gate) return oom(s->d.err);
    TRY(input(s, 3, "h", true, &s->h) && (!lstm || input(s, 4, "c", true, &s->c)));
    TRY(input(s, 1, "w", false, &s->w) && input(s, 2, "bias", false, &s->bias));
    TRY(!lstm || input(s, 5, "projection", false, &s->projection));
    Value *order[8];
    int k = 2; /* carried values stand before slices */
    order[k++] = s->h;
    if (lstm) order[k++] = s->c;
    order[k++] = s->gate;
    memcpy(g->input + 2, order + 2, (size_t)(k - 2) * sizeof *order);
    Value *h = step(s, &c);
    return graph_add_output(g, "output_0", g->input[1], s->d.err) && output(s, h) && (!lstm || output(s, c)) &&
           output(s, h) && graph_check(g, s->d.err);
}

/* Is a size other than that of batch and time not a constant? */
static bool varies(const Node *n)
{
    bool lstm = n->op->id == OP_lstm_layer, any = !ex_is_int(n->arg[0].v->dim[2]);
    for (int i = 1; i < (lstm ? 6 : 4); i++)
        for (int k = 0; n->arg[i].kind == ARG_VALUE && k < n->arg[i].v->rank; k++)
            any |= !ex_is_int(n->arg[i].v->dim[k]) && (k || (i != 3 && i != 4));
    return any;
}

static Value *flipped(Grad *d, Value *v) { return v ? GD(d, flip, V(v), arg_ints(d->g, 1, (int64_t[]){0})) : NULL; }

static bool write_loop(Grad *d, const Node *n)
{
    bool lstm = n->op->id == OP_lstm_layer, back = n->arg[lstm ? 6 : 5].e->i;
    Step s = {.d = {.g = graph_create(), .err = d->err, .o = d->o}, .layer = n};
    if (!s.d.g) return oom(d->err);
    s.d.ex = s.d.g->ex;
    if (!make_step(&s)) {
        graph_free(s.d.g);
        return false;
    }
    Arg body = arg_graph(d->g, s.d.g);
    if (body.kind != ARG_GRAPH) return oom(d->err);
    Value *gates = back ? flipped(d, n->arg[0].v) : n->arg[0].v, *captured[3];
    TRY(gates);
    int m = 0;
    captured[m++] = n->arg[1].v;
    if (s.bias) captured[m++] = n->arg[2].v;
    if (s.projection) captured[m++] = n->arg[5].v;
    Arg arg[] = {arg_none(),
                 arg_values(d->g, 1 + lstm, (Value *[]){n->arg[3].v, lstm ? n->arg[4].v : NULL}),
                 arg_values(d->g, m, captured),
                 body,
                 arg_expr(gates->dim[0]),
                 arg_bool(d->g, true),
                 arg_values(d->g, 1, &gates)};
    Node *loop = graph_add_before(d->g, d->at, OP_loop, 7, arg, n->name, d->err);
    TRY(loop);
    Value *out = loop->out[1 + lstm];
    if (back) TRY(out = flipped(d, out));
    graph_replace_uses(d->g, n->out[0], out);
    if (lstm) graph_replace_uses(d->g, n->out[1], loop->out[1]);
    return true;
}

bool recurrent_loops(Grad *d)
{
    bool any = false;
    for (Node *n = d->g->first; n; n = n->next) {
        if (n->op->id != OP_lstm_layer && n->op->id != OP_rnn_layer) continue;
        if (varies(n))
            return fail(d->err, E_UNSUPPORTED, "node '%s' (%s) has no gradient: its sizes are not constants", n->name,
                        n->op->name);
        d->at = n;
        d->node = NULL;
        bool ok = write_loop(d, n);
        d->at = NULL;
        TRY(ok);
        any = true;
    }
    if (any) graph_dce(d->g);
    return true;
}

bool loops_lstm_layer(Grad *d)
{
    const Node *n = d->node;
    return n->arg[5].kind != ARG_VALUE || varies(n) || write_loop(d, n);
}
