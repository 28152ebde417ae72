/* ONNX's LSTM, GRU and RNN. Contract in onnx_impl.h.
 *
 *     LSTM(X, W, R, B)          ->  aten.lstm of one layer a direction, the gates in PyTorch's order
 *
 * What PyTorch's networks lack (peepholes, sequence_lens, a clip, a GRU whose reset gate comes before the product,
 * other activations) is written step by step, which needs a fixed number of steps.
 */
#include <string.h>
#include "onnx/read/read_impl.h"

enum { MAX_STEPS = 1024, MAX_GATES = 4 };
typedef enum Kind { LSTM, GRU, RNN } Kind;

typedef struct Network {
    OnnxOp *o;
    Kind kind;
    int gates; /* 4, 3, 1 */
    int directions;
    Value *x;                       /* (T, B, I) */
    Value *w, *r, *b, *h0, *c0, *p; /* with the axis of directions first, NULL where left out */
    Value *lens;                    /* (B), or NULL */
    Expr *hidden;
    double clip;      /* 0: none */
    bool reset_after; /* linear_before_reset */
    const OnnxAttr *activations;
} Network;

static Value *pick(OnnxOp *o, Value *x, int at)
{
    return x ? AS(&o->L, select_int, v(x), arg_int(o->g, 0), arg_int(o->g, at)) : NULL;
}
static Value *add(OnnxOp *o, Value *a, Value *b) { return AS(&o->L, add_Tensor, v(a), v(b)); }
static Value *mul(OnnxOp *o, Value *a, Value *b) { return AS(&o->L, mul_Tensor, v(a), v(b)); }

/* Part k of an axis that is n times as long as the hidden size */
static Value *part(Network *n, Value *x, int axis, int k)
{
    OnnxOp *o = n->o;
    Expr *from = ex_mul(o->ex, n->hidden, ex_int(o->ex, k)), *to = ex_mul(o->ex, n->hidden, ex_int(o->ex, k + 1));
    return x ? AS(&o->L, slice_Tensor, v(x), arg_int(o->g, axis), arg_expr(from), arg_expr(to), arg_int(o->g, 1))
             : NULL;
}

/* Gates along the first axis in PyTorch's order: (i, o, f, c) -> (i, f, c, o), (z, r, h) -> (r, z, h) */
static Value *reordered(Network *n, Value *x, int first)
{
    static const int lstm[] = {0, 2, 3, 1}, gru[] = {1, 0, 2};
    Value *all[MAX_GATES];
    if (!x) return NULL;
    if (n->kind == RNN) return part(n, x, 0, first);
    for (int i = 0; i < n->gates; i++) TRY_NULL(all[i] = part(n, x, 0, first + (n->kind == LSTM ? lstm[i] : gru[i])));
    return AS(&n->o->L, cat, arg_values(n->o->g, n->gates, all), arg_int(n->o->g, 0));
}

static const char *activation(const Network *n, int direction, int k)
{
    static const char *const usual[][3] = {{"Sigmoid", "Tanh", "Tanh"}, {"Sigmoid", "Tanh", ""}, {"Tanh", "", ""}};
    static const int count[] = {3, 2, 1};
    const OnnxAttr *a = n->activations;
    int at = direction * count[n->kind] + k;
    return a && at < (int)a->n ? a->strings[at] : usual[n->kind][k];
}

static bool usual_activations(const Network *n, int d)
{
    if (n->kind == LSTM)
        return !strcmp(activation(n, d, 0), "Sigmoid") && !strcmp(activation(n, d, 1), "Tanh") &&
               !strcmp(activation(n, d, 2), "Tanh");
    if (n->kind == GRU) return !strcmp(activation(n, d, 0), "Sigmoid") && !strcmp(activation(n, d, 1), "Tanh");
    return !strcmp(activation(n, d, 0), "Tanh") || !strcmp(activation(n, d, 0), "Relu");
}

static Value *zeros(Network *n)
{
    return AS(&n->o->L, full, arg_exprs(n->o->g, 2, (Expr *[]){n->x->dim[1], n->hidden}), arg_int(n->o->g, 0),
              arg_dtype(n->x->dtype));
}

static Value *one_first(OnnxOp *o, Value *x)
{
    return x ? lower_reshape(&o->L, x, 3, (Expr *[]){ex_int(o->ex, 1), x->dim[0], x->dim[1]}) : NULL;
}
static Value *without_first(OnnxOp *o, Value *x) { return x ? lower_reshape(&o->L, x, x->rank - 1, x->dim + 1) : NULL; }

/* ------------------------------------------------------------------ by PyTorch's layers */

static bool by_layer(Network *n, int d, bool reverse, Value **y, Value **h, Value **c)
{
    OnnxOp *o = n->o;
    Graph *g = o->g;
    Value *params[4], *bias = pick(o, n->b, d), *x = n->x, *state[2];
    Arg first = arg_ints(g, 1, (int64_t[]){0});
    int count = bias ? 4 : 2;
    TRY((params[0] = reordered(n, pick(o, n->w, d), 0)) && (params[1] = reordered(n, pick(o, n->r, d), 0)));
    if (bias) TRY((params[2] = reordered(n, bias, 0)) && (params[3] = reordered(n, bias, n->gates)));
    state[0] = one_first(o, n->h0 ? pick(o, n->h0, d) : zeros(n));
    state[1] = n->kind == LSTM ? one_first(o, n->c0 ? pick(o, n->c0, d) : zeros(n)) : NULL;
    if (reverse) x = AS(&o->L, flip, v(x), first);
    TRY(x && state[0] && (state[1] || n->kind != LSTM));
    OpId op = n->kind == LSTM                        ? OP_lstm_input
              : n->kind == GRU                       ? OP_gru_input
              : !strcmp(activation(n, d, 0), "Relu") ? OP_rnn_relu_input
                                                     : OP_rnn_tanh_input;
    Arg no = arg_bool(g, false), arg[] = {v(x),
                                          n->kind == LSTM ? arg_values(g, 2, state) : v(state[0]),
                                          arg_values(g, count, params),
                                          arg_bool(g, bias != NULL),
                                          arg_int(g, 1),
                                          arg_float(g, 0),
                                          no,
                                          no,
                                          no};
    Lower L = o->L;
    L.op = op_get(op);
    L.arg = arg;
    TRY(lower_op(&L));
    *y = reverse ? AS(&o->L, flip, v(L.result.vs[0]), first) : L.result.vs[0];
    *h = without_first(o, L.result.vs[1]);
    *c = n->kind == LSTM ? without_first(o, L.result.vs[2]) : NULL;
    return *y && *h && (*c || n->kind != LSTM);
}

/* ------------------------------------------------------------------ step by step */

static Value *activated(Network *n, int d, int k, Value *x)
{
    OnnxOp *o = n->o;
    const char *f = activation(n, d, k);
    if (x && n->clip > 0) x = AS(&o->L, clamp, v(x), arg_float(o->g, -n->clip), arg_float(o->g, n->clip));
    if (!strcmp(f, "Sigmoid")) return AS(&o->L, sigmoid, v(x));
    if (!strcmp(f, "Tanh")) return AS(&o->L, tanh, v(x));
    if (!strcmp(f, "Relu")) return AS(&o->L, relu, v(x));
    if (!strcmp(f, "Softplus")) return AS(&o->L, softplus, v(x));
    op_unsupported(o, "activation '%.40s'", f);
    return NULL;
}

static Value *product(Network *n, Value *x, Value *w, Value *bias)
{
    OnnxOp *o = n->o;
    return AS(&o->L, linear, v(x), v(w), bias ? v(bias) : arg_none());
}

typedef struct Weights {
    Value *w, *r, *wb, *rb, *p; /* (G H, I), (G H, H), (G H), (G H), (3 H) */
} Weights;

static Value *peeped(Network *n, const Weights *w, int k, Value *gate, Value *c)
{
    return w->p ? add(n->o, gate, mul(n->o, part(n, w->p, 0, k), c)) : gate;
}

static bool step(Network *n, int d, const Weights *w, Value *x, Value **h, Value **c)
{
    OnnxOp *o = n->o;
    Value *from_x = product(n, x, w->w, w->wb), *a[MAX_GATES];
    if (n->kind == GRU) {
        Value *z = activated(n, d, 0,
                             add(o, part(n, from_x, 1, 0), product(n, *h, part(n, w->r, 0, 0), part(n, w->rb, 0, 0))));
        Value *r = activated(n, d, 0,
                             add(o, part(n, from_x, 1, 1), product(n, *h, part(n, w->r, 0, 1), part(n, w->rb, 0, 1))));
        Value *rh = part(n, w->r, 0, 2), *bh = part(n, w->rb, 0, 2);
        TRY(z && r && rh);
        Value *inner = n->reset_after ? mul(o, r, product(n, *h, rh, bh)) : product(n, mul(o, r, *h), rh, bh);
        Value *fresh = activated(n, d, 1, add(o, part(n, from_x, 1, 2), inner));
        return (*h = add(o, fresh, mul(o, z, AS(&o->L, sub_Tensor, v(*h), v(fresh))))) != NULL;
    }
    Value *all = add(o, from_x, product(n, *h, w->r, w->rb));
    if (n->kind == RNN) return (*h = activated(n, d, 0, all)) != NULL;
    for (int i = 0; i < 4; i++) TRY(a[i] = part(n, all, 1, i)); /* i, o, f, c */
    Value *i = activated(n, d, 0, peeped(n, w, 0, a[0], *c)), *f = activated(n, d, 0, peeped(n, w, 2, a[2], *c)),
          *g = activated(n, d, 1, a[3]);
    TRY(*c = add(o, mul(o, f, *c), mul(o, i, g)));
    Value *out = activated(n, d, 0, peeped(n, w, 1, a[1], *c));
    return (*h = mul(o, out, activated(n, d, 2, *c))) != NULL;
}

static bool by_steps(Network *n, int d, bool reverse, Value **y, Value **h, Value **c)
{
    OnnxOp *o = n->o;
    const Expr *T = n->x->dim[0];
    if (!ex_is_int(T) || T->i < 1 || T->i > MAX_STEPS)
        return op_unsupported(o,
                              "peepholes, sequence_lens, clip, other activations and linear_before_reset=0 need a "
                              "fixed number of steps (up to %d)",
                              MAX_STEPS);
    Value **all = arena_array(o->g->arena, Value *, T->i), *bias = pick(o, n->b, d), *wb[MAX_GATES], *rb[MAX_GATES],
          *lens = NULL, *none = zeros(n);
    if (!all) return oom(o->im->err);
    Weights w = {.w = pick(o, n->w, d), .r = pick(o, n->r, d), .p = pick(o, n->p, d)};
    for (int i = 0; bias && i < n->gates; i++)
        TRY((wb[i] = part(n, bias, 0, i)) && (rb[i] = part(n, bias, 0, n->gates + i)));
    if (bias)
        TRY((w.wb = AS(&o->L, cat, arg_values(o->g, n->gates, wb))) &&
            (w.rb = AS(&o->L, cat, arg_values(o->g, n->gates, rb))));
    *h = n->h0 ? pick(o, n->h0, d) : none;
    *c = n->kind == LSTM ? (n->c0 ? pick(o, n->c0, d) : none) : NULL;
    if (n->lens)
        TRY(lens = lower_reshape(&o->L, lower_cast(&o->L, n->lens, DT_I64), 2,
                                 (Expr *[]){n->x->dim[1], ex_int(o->ex, 1)}));
    TRY(w.w && w.r && *h);
    for (int64_t t = 0; t < T->i; t++) {
        int64_t at = reverse ? T->i - 1 - t : t;
        Value *old_h = *h, *old_c = *c;
        TRY(step(n, d, &w, AS(&o->L, select_int, v(n->x), arg_int(o->g, 0), arg_int(o->g, at)), h, c));
        all[at] = *h;
        TRY(onnx_fits(o->im));
        if (!lens) continue;
        Value *inside = AS(&o->L, gt_Tensor, v(lens), v(op_number(o, DT_I64, (double)at)));
        all[at] = AS(&o->L, where_self, v(inside), v(*h), v(none));
        *h = AS(&o->L, where_self, v(inside), v(*h), v(old_h));
        if (*c) *c = AS(&o->L, where_self, v(inside), v(*c), v(old_c));
    }
    return (*y = AS(&o->L, stack, arg_values(o->g, (int)T->i, all), arg_int(o->g, 0))) != NULL;
}

/* ------------------------------------------------------------------ the op */

static bool read_network(Network *n, int64_t *layout)
{
    OnnxOp *o = n->o;
    int64_t reset;
    bool lstm = n->kind == LSTM;
    TRY(op_tensor(o, 0, &n->x) && op_tensor(o, 1, &n->w) && op_tensor(o, 2, &n->r) && op_optional(o, 3, &n->b) &&
        op_optional(o, 4, &n->lens) && op_optional(o, 5, &n->h0) && op_attr_int(o, "layout", 0, layout) &&
        op_attr_float(o, "clip", 0, &n->clip) && op_attr_int(o, "linear_before_reset", 0, &reset));
    if (lstm) TRY(op_optional(o, 6, &n->c0) && op_optional(o, 7, &n->p));
    if (n->x->rank != 3 || n->w->rank != 3 || n->r->rank != 3)
        return op_fail(o, 0, "ranks %d, %d and %d of X, W and R, expected 3", n->x->rank, n->w->rank, n->r->rank);
    n->reset_after = reset != 0;
    n->gates = lstm ? 4 : n->kind == GRU ? 3 : 1;
    n->hidden = n->r->dim[2];
    const OnnxAttr *a = n->activations = op_attr(o, "activations");
    bool one = a && !a->n && a->type != ONNX_ATTR_UNDEFINED && a->type < ONNX_ATTR_FLOATS; /* no list */
    if (a && (one || (a->n && a->type != ONNX_ATTR_STRINGS)))
        return fail(o->im->err, E_FORMAT, "attribute 'activations' is not a list of strings");
    int64_t forget;
    TRY(op_attr_int(o, "input_forget", 0, &forget));
    if (forget) return op_unsupported(o, "input_forget");
    static const int swap[] = {1, 0, 2};
    if (*layout) TRY(n->x = lower_permute(&o->L, n->x, swap));
    if (*layout && n->h0) TRY(n->h0 = lower_permute(&o->L, n->h0, swap));
    if (*layout && n->c0) TRY(n->c0 = lower_permute(&o->L, n->c0, swap));
    return true;
}

bool onnx_recurrent(OnnxOp *o)
{
    Network n = {.o = o, .kind = o->row.aten == OP_lstm_input ? LSTM : o->row.aten == OP_gru_input ? GRU : RNN};
    const char *direction;
    int64_t layout;
    Value *y[2], *h[2], *c[2] = {NULL, NULL};
    TRY(op_attr_string(o, "direction", "forward", &direction) && read_network(&n, &layout));
    bool both = !strcmp(direction, "bidirectional"), back = !strcmp(direction, "reverse");
    if (!both && !back && strcmp(direction, "forward"))
        return fail(o->im->err, E_FORMAT, "attribute 'direction' is '%.40s'", direction);
    n.directions = both ? 2 : 1;
    TRY(graph_require(o->g, ex_make(o->ex, EX_EQ, n.w->dim[0], ex_int(o->ex, n.directions), NULL), o->im->err,
                      "node '%s': directions of the weights", o->L.name));
    for (int d = 0; d < n.directions; d++) {
        bool plain = !n.lens && !n.p && n.clip <= 0 && usual_activations(&n, d) && (n.kind != GRU || n.reset_after);
        TRY(plain ? by_layer(&n, d, back || d == 1, &y[d], &h[d], &c[d])
                  : by_steps(&n, d, back || d == 1, &y[d], &h[d], &c[d]));
    }
    Arg axis = arg_int(o->g, layout ? 2 : 1), first = arg_int(o->g, layout ? 1 : 0);
    for (int d = 0; layout && d < n.directions; d++) TRY(y[d] = lower_permute(&o->L, y[d], (int[]){1, 0, 2}));
    if (op_wants(o, 0)) TRY(op_return(o, 0, AS(&o->L, stack, arg_values(o->g, n.directions, y), axis)));
    if (op_wants(o, 1)) TRY(op_return(o, 1, AS(&o->L, stack, arg_values(o->g, n.directions, h), first)));
    return !op_wants(o, 2) || op_return(o, 2, AS(&o->L, stack, arg_values(o->g, n.directions, c), first));
}
