/* Lowering of recurrent networks: each layer and direction is a linear over all steps and one row that runs the steps.
 *
 *     lstm(x, (h0, c0), weights)  -> linear, select, qkv.lstm_layer, cat; h_n is the last (reverse: first) step of
 *                                 the outputs
 */
#include "lower/lower_table.h"

typedef struct Network {
    Lower *L;
    const char *kind; /* NULL for an LSTM */
    Value *h0, *c0;   /* (layers * directions, batch, size) */
    const Arg *params;
    int per; /* params of a layer in one direction: w_ih, w_hh [, b_ih, b_hh] [, w_hr] */
    bool biases;
    DType t; /* of the work: half types run in float32, with one rounding at the end */
} Network;

static DType work_type(DType t) { return t == DT_F64 ? DT_F64 : DT_F32; }

static const char *kind_of(const Lower *L)
{
    switch (L->op->id) {
    case OP_gru_input:
    case OP_gru_cell: return "gru";
    case OP_rnn_tanh_input:
    case OP_rnn_tanh_cell: return "tanh";
    case OP_rnn_relu_input:
    case OP_rnn_relu_cell: return "relu";
    default: return NULL;
    }
}

/* One layer in one direction; gates (T, B, G). Gives outputs (T, B, P) and, for an LSTM, the last cell state. */
static bool run_layer(Lower *L, const char *kind, Value *gates, Value *w, Value *bias, Value *h, Value *c,
                      Value *projection, bool reverse, Value **out, Value **cell)
{
    Arg bias_arg = bias ? arg_value(bias) : arg_none(), back = arg_bool(L->g, reverse);
    TRY(gates && w && h && (kind || c));
    if (kind)
        return (*out = EMIT(L, rnn_layer, arg_value(gates), arg_value(w), bias_arg, arg_value(h), arg_str(L->g, kind),
                            back)) != NULL;
    Node *n = lower_emit_node(L, OP_lstm_layer, 7,
                              (Arg[]){arg_value(gates), arg_value(w), bias_arg, arg_value(h), arg_value(c),
                                      projection ? arg_value(projection) : arg_none(), back});
    TRY(n);
    *out = n->out[0];
    *cell = n->out[1];
    return true;
}

static Value *select(Lower *L, Value *x, Expr *i)
{
    return x ? EMIT(L, select_int, arg_value(x), arg_int(L->g, 0), arg_expr(i)) : NULL;
}

static Value *swap_first(Lower *L, Value *x) { return lower_permute(L, x, (int[]){1, 0, 2}); }

/* values[0], values[1], ... of equal shape (B, P) as (n, B, P) */
static Value *stacked(Lower *L, int n, Value **values)
{
    for (int i = 0; i < n; i++)
        TRY(values[i] = values[i] ? lower_reshape(L, values[i], 3,
                                                  (Expr *[]){ex_int(L->ex, 1), values[i]->dim[0], values[i]->dim[1]})
                                  : NULL);
    return n == 1 ? values[0] : EMIT(L, cat, arg_values(L->g, n, values), arg_int(L->g, 0));
}

/* Layer `at` (counting directions), in one direction. */
static bool direction(Network *net, Value *x, int at, bool swap, bool reverse, Value **out, Value **h, Value **c)
{
    Lower *L = net->L;
    Value *p[5] = {NULL};
    int n = net->per, bias = net->biases ? 2 : 0;
    for (int i = 0; i < n; i++) TRY(p[i] = lower_cast(L, net->params->vs[at * n + i], net->t));
    Value *gates = EMIT(L, linear, arg_value(x), arg_value(p[0]), bias ? arg_value(p[bias]) : arg_none());
    if (swap) gates = swap_first(L, gates);
    Expr *i = ex_int(L->ex, at);
    TRY(run_layer(L, net->kind, gates, p[1], bias ? p[3] : NULL, select(L, net->h0, i),
                  net->c0 ? select(L, net->c0, i) : NULL, n == bias + 3 ? p[n - 1] : NULL, reverse, out, c));
    *h = select(L, *out, reverse ? ex_int(L->ex, 0) : ex_sub(L->ex, (*out)->dim[0], ex_int(L->ex, 1)));
    return *h != NULL;
}

enum { MAX_CELLS = 64 };

/* (input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first) */
bool lower_rnn(Lower *L)
{
    Value *x = lower_value(L, 0), *h[MAX_CELLS], *c[MAX_CELLS], *out[2];
    bool train, both, batch_first;
    int64_t layers;
    Network net = {.L = L, .kind = kind_of(L), .params = &L->arg[2]};
    TRY(lower_const_bool(L, 3, &net.biases) && lower_const_int(L, 4, &layers) && lower_const_bool(L, 6, &train) &&
        lower_const_bool(L, 7, &both) && lower_const_bool(L, 8, &batch_first));
    if (!x || x->rank != 3) return lower_fail(L, 0, "expected a tensor of rank 3");
    const Arg *hx = &L->arg[1];
    bool lstm = !net.kind;
    if (lstm && (hx->kind != ARG_VALUES || hx->n != 2 || !hx->vs[0] || !hx->vs[1]))
        return lower_fail(L, 1, "expected two tensors");
    net.h0 = lstm ? hx->vs[0] : lower_value(L, 1);
    net.c0 = lstm ? hx->vs[1] : NULL;
    if (layers < 1 || layers > MAX_CELLS / 2)
        return lower_fail(L, 4, "found %lld, expected 1 to %d", (long long)layers, MAX_CELLS / 2);
    int directions = both ? 2 : 1, cells = (int)layers * directions;
    net.per = net.params->kind == ARG_VALUES ? net.params->n / cells : 0;
    int least = net.biases ? 4 : 2;
    if (net.per * cells != net.params->n || net.per < least || net.per > least + lstm)
        return lower_fail(L, 2, "found %d weights for %d layers", net.params->n, cells);
    Expr *p = lower_expr(L, 5);
    if (train && layers > 1 && p && (p->f != 0 || p->i != 0))
        return fail(L->err, E_UNSUPPORTED,
                    "a recurrent network with dropout in training mode; call model.eval() before exporting");
    DType given = x->dtype;
    net.t = work_type(given);
    x = lower_cast(L, x, net.t);
    net.h0 = lower_cast(L, net.h0, net.t);
    if (lstm) net.c0 = lower_cast(L, net.c0, net.t);
    TRY(x && net.h0 && (!lstm || net.c0));
    for (int l = 0; l < layers; l++) {
        for (int d = 0; d < directions; d++)
            TRY(direction(&net, x, l * directions + d, batch_first && l == 0, d == 1, &out[d], &h[l * directions + d],
                          &c[l * directions + d]));
        TRY(x = both ? EMIT(L, cat, arg_values(L->g, 2, out), arg_int(L->g, 2)) : out[0]);
    }
    Value *results[3] = {batch_first ? swap_first(L, x) : x, stacked(L, cells, h), lstm ? stacked(L, cells, c) : NULL};
    for (int i = 0; i < 2 + lstm; i++) TRY(results[i] = results[i] ? lower_cast(L, results[i], given) : NULL);
    return lower_return_values(L, 2 + lstm, results);
}

/* (input, hx, w_ih, w_hh, b_ih, b_hh): a network of one step */
bool lower_rnn_cell(Lower *L)
{
    const char *kind = kind_of(L);
    const Arg *hx = &L->arg[1];
    Value *x = lower_value(L, 0), *h = lower_value(L, 1), *c = NULL, *out, *cell = NULL, *w[4];
    if (!kind && (hx->kind != ARG_VALUES || hx->n != 2)) return lower_fail(L, 1, "expected two tensors");
    if (!kind) {
        h = hx->vs[0];
        c = hx->vs[1];
    }
    if (!x || x->rank != 2 || !h) return lower_fail(L, 0, "expected tensors of rank 2");
    DType given = x->dtype, t = work_type(given);
    for (int i = 0; i < 4; i++) {
        w[i] = lower_cast(L, lower_value(L, 2 + i), t);
        if (i < 2 && !w[i]) return lower_fail(L, 2 + i, "expected a tensor");
    }
    x = lower_cast(L, x, t);
    Value *gates = x ? EMIT(L, linear, arg_value(x), arg_value(w[0]), w[2] ? arg_value(w[2]) : arg_none()) : NULL;
    TRY(gates);
    gates = lower_reshape(L, gates, 3, (Expr *[]){ex_int(L->ex, 1), gates->dim[0], gates->dim[1]});
    TRY(run_layer(L, kind, gates, w[1], w[3], lower_cast(L, h, t), lower_cast(L, c, t), NULL, false, &out, &cell));
    out = lower_cast(L, lower_reshape(L, out, 2, out->dim + 1), given);
    if (kind) return lower_return(L, out);
    cell = lower_cast(L, cell, given);
    return out && cell && lower_return_values(L, 2, (Value *[]){out, cell});
}
