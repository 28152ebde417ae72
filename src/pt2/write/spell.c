/* Rows of the plain form that ATen spells otherwise.
 *
 *     qkv.upsample(x, [h, w], "linear", scales=[2, 2])  ->  aten.upsample_bilinear2d(x, [h, w], False, 2.0, 2.0)
 *     aten.view.dtype(x, f32)                           ->  aten.view.dtype(aten.contiguous(x), f32): PyTorch looks
 *                                                           at strides
 *     qkv.sort(x, 1, False, True)                       ->  aten.sort.stable(x, stable=True, dim=1, descending=False)
 *     linear, qkv.lstm_layer                            ->  aten.lstm of one layer, which does both
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include "pt2/write/write_impl.h"
#include "base/mem.h"

static Arg integer(const Emit *e, int64_t v) { return arg_expr(ex_int(e->g->ex, v)); }
static Arg truth(const Emit *e, bool v) { return arg_expr(ex_bool(e->g->ex, v)); }

/* ------------------------------------------------------------------ resampling, padding */

static const struct {
    const char *mode;
    int axes;
    OpId op;
} resamples[OP_COUNT] = {
#define RESAMPLES(mode_, axes_) .mode = mode_, .axes = axes_,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

/* (input, size, mode, align_corners, scales) -> (self, output_size, [align_corners,] scale of each axis) */
static bool spell_upsample(Emit *e, const Node *n)
{
    const Value *x = n->arg[0].v;
    const Op *op = NULL;
    for (OpId id = OP_NONE + 1; id < OP_COUNT && !op; id++)
        if (resamples[id].mode && resamples[id].axes == x->rank - 2 && !strcmp(resamples[id].mode, n->arg[2].s))
            op = op_get(id);
    if (!op) return fail(e->err, E_UNSUPPORTED, "ATen has no resampling '%s' of rank %d", n->arg[2].s, x->rank);
    Arg args[8] = {n->arg[0], n->arg[1]};
    int corners = op_param(op, "align_corners"), at = corners < 0 ? 2 : corners + 1;
    if (corners >= 0) args[corners] = n->arg[3];
    const Arg *scales = &n->arg[4];
    for (int i = 0; scales->kind == ARG_EXPRS && i < scales->n; i++) {
        const Expr *s = scales->es[i];
        bool none = ex_is_const(s) && s->f == 0 && s->i == 0;
        if (!none) args[at + i] = arg_expr(scales->es[i]);
    }
    return write_node(e, op, args, 1, n->out);
}

/* One row pads one, two or three axes. */
static bool spell_pad(Emit *e, const Node *n)
{
    int axes = n->arg[1].n / 2;
    char name[48];
    snprintf(name, sizeof name, "aten.%s_pad%dd.default",
             n->op->id == OP_replication_pad1d ? "replication" : "reflection", axes);
    const Op *op = op_find(name);
    return op ? write_node(e, op, n->arg, 1, n->out)
              : fail(e->err, E_UNSUPPORTED, "ATen pads one to three axes, not %d", axes);
}

/* ------------------------------------------------------------------ strides and bounds */

/* PyTorch reads these through the strides of their operand; here an operand is contiguous. */
static bool spell_contiguous(Emit *e, const Node *n)
{
    Arg args[8] = {{0}};
    Value *x = n->arg[0].v, *whole = PUT(e, contiguous, x->name, x->dtype, x->rank, x->dim, arg_value(x));
    TRY(whole);
    for (int i = 0; i < n->op->schema->nparams; i++) args[i] = n->arg[i];
    args[0] = arg_value(whole);
    return write_node(e, n->op, args, n->nout, n->out);
}

/* aten.slice cuts its bounds to the tensor, and who reads it must reckon with that; narrow says that they are
 * inside. */
static bool spell_slice(Emit *e, const Node *n, bool *done)
{
    ExprPool *p = e->g->ex;
    const Value *x = n->arg[0].v;
    Expr *start = n->arg[2].e, *end = n->arg[3].e;
    int64_t lo, hi, d = n->arg[1].e->i;
    *done = false;
    if (n->arg[2].kind != ARG_EXPR || n->arg[3].kind != ARG_EXPR || !ex_equals_int(n->arg[4].e, 1) ||
        (ex_is_int(start) && ex_is_int(end)))
        return true;
    Expr *size = x->dim[d < 0 ? d + x->rank : d], *from = ex_min(p, ex_max(p, ex_int(p, 0), start), size),
         *to = from ? ex_max(p, from, ex_min(p, end, size)) : NULL;
    Expr *length = ex_sub(p, end, start);
    if (!to || !length) return fail(e->err, E_LIMIT, "a size expression is too large");
    ex_range(p, start, &lo, &hi);
    if ((from == start && to == end) || lo < 0) return true;
    *done = true;
    return write_node(e, op_get(OP_narrow), (Arg[4]){n->arg[0], n->arg[1], n->arg[2], arg_expr(length)}, 1, n->out);
}

/* ------------------------------------------------------------------ recurrent layers */

/* What a layer's gates are made of, where they are a linear that nothing else reads: the parts become one op of
 * ATen's. */
typedef struct Gates {
    const Node *linear;
    const Node *moved; /* permute or reshape of its result, or NULL */
} Gates;

static bool is_layer(const Node *n) { return n->op->id == OP_lstm_layer || n->op->id == OP_rnn_layer; }

static bool swaps_first(const Node *n)
{
    const Arg *a = &n->arg[1];
    return n->op->id == OP_permute && a->n == 3 && ex_equals_int(a->es[0], 1) && ex_equals_int(a->es[1], 0) &&
           ex_equals_int(a->es[2], 2);
}

/* (B, G) as (1, B, G) */
static bool adds_first(const Node *n)
{
    const Value *x = n->arg[0].v, *y = n->out[0];
    return n->op->id == OP_reshape && x->rank == 2 && y->rank == 3 && ex_equals_int(y->dim[0], 1) &&
           y->dim[1] == x->dim[0] && y->dim[2] == x->dim[1];
}

static Gates gates_of(const Node *n, const int *uses)
{
    Gates none = {NULL, NULL}, found = none;
    const Value *v = n->arg[0].v;
    if (v->kind != V_NODE || uses[v->id] != 1) return none;
    if (swaps_first(v->def) || adds_first(v->def)) {
        found.moved = v->def;
        v = v->def->arg[0].v;
    }
    if (v->kind != V_NODE || uses[v->id] != 1 || v->def->op->id != OP_linear || (!found.moved && v->rank != 3))
        return none;
    found.linear = v->def;
    return found;
}

bool find_absorbed(Emit *e)
{
    const Graph *g = e->g;
    bool any = false;
    e->absorbed = arena_array(e->arena, bool, g->next_id + 1);
    if (!e->absorbed) return oom(e->err);
    for (const Node *n = g->first; n; n = n->next) any |= is_layer(n) || n->op->id == OP_dequantize_linear;
    for (int i = 0; i < g->noutput; i++) any |= g->output[i].number;
    if (!any) return true;
    int *uses = mem_zeroed((size_t)g->next_id + 1, sizeof *uses);
    if (!uses) return oom(e->err);
    graph_count_uses(g, uses);
    for (const Node *n = g->first; n; n = n->next) {
        Gates gates = is_layer(n) ? gates_of(n, uses) : (Gates){NULL, NULL};
        if (gates.linear) e->absorbed[gates.linear->out[0]->id] = true;
        if (gates.linear && gates.moved) e->absorbed[gates.moved->out[0]->id] = true;
        if (n->op->id == OP_dequantize_linear) absorb_fake_quantizer(e, n, uses);
    }
    for (int i = 0; i < g->noutput; i++) { /* the file has the number, not the tensor of it */
        const Value *v = g->output[i].value;
        if (g->output[i].number && uses[v->id] == 1) e->absorbed[v->id] = true;
    }
    mem_free(uses);
    return true;
}

static Value *moved(Emit *e, const Node *n, Value *x)
{
    if (!n || !x) return x;
    Expr *swapped[3] = {x->rank > 1 ? x->dim[1] : NULL, x->dim[0], x->rank > 2 ? x->dim[2] : NULL},
         *first[3] = {ex_int(e->g->ex, 1), x->dim[0], x->dim[1]};
    if (n->op->id == OP_permute) return PUT(e, permute, x->name, x->dtype, 3, swapped, arg_value(x), n->arg[1]);
    return PUT(e, reshape, x->name, x->dtype, 3, first, arg_value(x), (Arg){.kind = ARG_EXPRS, .n = 3, .es = first});
}

static Value *first_axis(Emit *e, Value *x)
{
    Expr *dim[3] = {ex_int(e->g->ex, 1), x->dim[0], x->dim[1]};
    return PUT(e, reshape, x->name, x->dtype, 3, dim, arg_value(x), (Arg){.kind = ARG_EXPRS, .n = 3, .es = dim});
}

static Value *time_reversed(Emit *e, Value *x)
{
    Expr *axis = ex_int(e->g->ex, 0);
    return PUT(e, flip, x->name, x->dtype, x->rank, x->dim, arg_value(x),
               (Arg){.kind = ARG_EXPRS, .n = 1, .es = &axis});
}

static Value *zeros(Emit *e, DType t, Expr *n)
{
    return PUT(e, full, "bias", t, 1, &n, (Arg){.kind = ARG_EXPRS, .n = 1, .es = &n}, integer(e, 0), arg_dtype(t));
}

/* The input, its weight and bias: those of the absorbed linear, or the gates as they are and an identity. */
static bool layer_input(Emit *e, const Node *n, Value **x, Value **w, Value **bias)
{
    Value *gates = n->arg[0].v;
    *x = gates;
    *bias = NULL;
    if (e->absorbed[gates->id]) {
        const Node *linear = gates->def->op->id == OP_linear ? gates->def : gates->def->arg[0].v->def;
        *w = linear->arg[1].v;
        *bias = linear->arg[2].kind == ARG_VALUE ? linear->arg[2].v : NULL;
        *x = moved(e, linear == gates->def ? NULL : gates->def, linear->arg[0].v);
        return *x != NULL;
    }
    Expr *G = gates->dim[2], *square[2] = {G, G};
    return (*w = PUT(e, eye_m, "identity", gates->dtype, 2, square, arg_expr(G), arg_expr(G),
                     arg_dtype(gates->dtype))) != NULL;
}

/* (gates, weight, bias, h, [c, projection | kind], reverse) -> aten.lstm.input and its like,
 * one layer in one direction */
static bool spell_layer(Emit *e, const Node *n)
{
    bool lstm = n->op->id == OP_lstm_layer;
    const char *kind = lstm ? "" : n->arg[4].s;
    OpId op = lstm                    ? OP_lstm_input
              : !strcmp(kind, "gru")  ? OP_gru_input
              : !strcmp(kind, "tanh") ? OP_rnn_tanh_input
                                      : OP_rnn_relu_input;
    bool reverse = n->arg[lstm ? 6 : 5].e->i != 0;
    Value *x, *params[5], *bias, *own = n->arg[2].kind == ARG_VALUE ? n->arg[2].v : NULL, *out = n->out[0],
                                 *h = first_axis(e, n->arg[3].v);
    Value *c = lstm ? first_axis(e, n->arg[4].v) : NULL, *state[2] = {h, c}, *results[3];
    TRY(h && (c || !lstm) && layer_input(e, n, &x, &params[0], &bias));
    params[1] = n->arg[1].v;
    int count = 2;
    if (bias || own) {
        TRY(params[2] = bias ? bias : zeros(e, out->dtype, params[1]->dim[0]));
        TRY(params[3] = own ? own : zeros(e, out->dtype, params[1]->dim[0]));
        count = 4;
    }
    if (lstm && n->arg[5].kind == ARG_VALUE) params[count++] = n->arg[5].v;
    if (reverse) TRY(x = time_reversed(e, x));
    Arg list = {.kind = ARG_VALUES, .n = count, .vs = params},
        hx = lstm ? (Arg){.kind = ARG_VALUES, .n = 2, .vs = state} : arg_value(h);
    Arg args[9] = {arg_value(x),
                   hx,
                   list,
                   truth(e, bias || own),
                   integer(e, 1),
                   arg_expr(ex_float(e->g->ex, 0)),
                   truth(e, false),
                   truth(e, false),
                   truth(e, false)};
    results[0] = reverse ? new_value(e, out->name, out->dtype, out->rank, out->dim) : out;
    results[1] = new_value(e, "h_n", h->dtype, h->rank, h->dim);
    results[2] = lstm ? new_value(e, "c_n", c->dtype, c->rank, c->dim) : NULL;
    TRY(results[0] && results[1] && (results[2] || !lstm) && write_node(e, op_get(op), args, 2 + lstm, results));
    if (reverse) {
        Expr *axis = ex_int(e->g->ex, 0);
        TRY(write_node(e, op_get(OP_flip), (Arg[2]){arg_value(results[0]), {.kind = ARG_EXPRS, .n = 1, .es = &axis}}, 1,
                       &n->out[0]));
    }
    return !lstm || write_node(e, op_get(OP_reshape),
                               (Arg[2]){arg_value(results[2]), {.kind = ARG_EXPRS, .n = 2, .es = n->out[1]->dim}}, 1,
                               &n->out[1]);
}

/* ------------------------------------------------------------------ rotary embedding */

static Arg list_of(int n, Value **v) { return (Arg){.kind = ARG_VALUES, .n = n, .vs = v}; }
static Arg sizes_of(int n, Expr **dim) { return (Arg){.kind = ARG_EXPRS, .n = n, .es = dim}; }

static Value *part(Emit *e, Value *x, Expr *from, Expr *to)
{
    Expr *dim[MAX_RANK];
    memcpy(dim, x->dim, (size_t)x->rank * sizeof *dim);
    dim[x->rank - 1] = ex_sub(e->g->ex, to, from);
    return PUT(e, slice_Tensor, "part", x->dtype, x->rank, dim, arg_value(x), integer(e, x->rank - 1), arg_expr(from),
               arg_expr(to), integer(e, 1));
}

/* a and b along the last axis, then as sizes `dim` of a rank of their own. */
static Value *joined(Emit *e, Value *a, Value *b, int rank, Expr **dim)
{
    Expr *wide[MAX_RANK];
    if (!a || !b) return NULL;
    memcpy(wide, a->dim, (size_t)a->rank * sizeof *wide);
    wide[a->rank - 1] = ex_add(e->g->ex, a->dim[a->rank - 1], b->dim[a->rank - 1]);
    Value *v = PUT(e, cat, "joined", a->dtype, a->rank, wide, list_of(2, (Value *[]){a, b}), integer(e, a->rank - 1));
    if (!v || (rank == v->rank && !memcmp(dim, wide, (size_t)rank * sizeof *dim))) return v;
    return PUT(e, reshape, "joined", v->dtype, rank, dim, arg_value(v), sizes_of(rank, dim));
}

/* The last axis as pairs. */
static Value *paired(Emit *e, Value *x, Expr *pairs, Expr *each)
{
    Expr *dim[MAX_RANK];
    if (x->rank == MAX_RANK) {
        fail(e->err, E_UNSUPPORTED, "pairs of a tensor of rank %d: at most %d is supported", x->rank, MAX_RANK - 1);
        return NULL;
    }
    memcpy(dim, x->dim, (size_t)x->rank * sizeof *dim);
    dim[x->rank - 1] = pairs;
    dim[x->rank] = each;
    return PUT(e, reshape, "pairs", x->dtype, x->rank + 1, dim, arg_value(x), sizes_of(x->rank + 1, dim));
}

/* cos or sin with a number for each element of the last axis. */
static Value *whole_table(Emit *e, Value *t, Expr *D, bool interleaved)
{
    Expr *dim[MAX_RANK], *one = ex_int(e->g->ex, 1);
    if (t->dim[t->rank - 1] == D) return t;
    memcpy(dim, t->dim, (size_t)t->rank * sizeof *dim);
    dim[t->rank - 1] = D;
    if (interleaved) {
        Value *each = paired(e, t, t->dim[t->rank - 1], one);
        return joined(e, each, each, t->rank, dim);
    }
    return joined(e, t, t, t->rank, dim);
}

/* x * cos + turned(x) * sin; turned: (-x2, x1) of halves, or of each pair */
static bool spell_rotary(Emit *e, const Node *n)
{
    ExprPool *p = e->g->ex;
    bool interleaved = n->arg[3].e->i != 0;
    Value *x = n->arg[0].v, *from = x, *a, *b;
    Expr *D = x->dim[x->rank - 1], *half = ex_floordiv(p, D, ex_int(p, 2)), *zero = ex_int(p, 0), *one = ex_int(p, 1),
         *two = ex_int(p, 2);
    Value *c = whole_table(e, n->arg[1].v, D, interleaved), *s = whole_table(e, n->arg[2].v, D, interleaved);
    if (interleaved) from = paired(e, x, half, two);
    TRY(c && s && from);
    TRY((a = part(e, from, zero, interleaved ? one : half)) &&
        (b = part(e, from, interleaved ? one : half, interleaved ? two : D)));
    TRY(b = PUT(e, neg, "turned", b->dtype, b->rank, b->dim, arg_value(b)));
    Value *turned = joined(e, b, a, x->rank, x->dim);
    TRY(turned && (a = PUT(e, mul_Tensor, "part", x->dtype, x->rank, x->dim, arg_value(x), arg_value(c))));
    TRY(b = PUT(e, mul_Tensor, "turned", x->dtype, x->rank, x->dim, arg_value(turned), arg_value(s)));
    return write_node(e, op_get(OP_add_Tensor), (Arg[3]){arg_value(a), arg_value(b), integer(e, 1)}, 1, n->out);
}

/* ------------------------------------------------------------------ few bits and a scale */

/* A scale or zero point in dtype t, so that it broadcasts with x: a vector along axis, blocks repeated along it. */
static Value *beside(Emit *e, Value *v, const Value *x, int axis, int64_t block, DType t)
{
    Expr *dim[MAX_RANK], *one = ex_int(e->g->ex, 1), *all = one;
    if (v->dtype != t) v = PUT(e, to_copy, "wide", t, v->rank, v->dim, arg_value(v), arg_dtype(t));
    for (int i = 0; v && i < v->rank; i++) all = ex_mul(e->g->ex, all, v->dim[i]);
    if (!v || v->rank == 0) return v;
    if (ex_equals_int(all, 1)) return PUT(e, reshape, "one", t, 0, NULL, arg_value(v), sizes_of(0, NULL));
    if (!block) {
        for (int i = 0; i < x->rank; i++) dim[i] = i == axis ? v->dim[0] : one;
        return PUT(e, reshape, "along", t, x->rank, dim, arg_value(v), sizes_of(x->rank, dim));
    }
    memcpy(dim, v->dim, (size_t)v->rank * sizeof *dim);
    dim[axis] = ex_mul(e->g->ex, v->dim[axis], ex_int(e->g->ex, block));
    v = PUT(e, repeat_interleave_self_int, "each", t, v->rank, dim, arg_value(v), integer(e, block), integer(e, axis));
    return v ? PUT(e, slice_Tensor, "each", t, x->rank, x->dim, arg_value(v), integer(e, axis), integer(e, 0),
                   arg_expr(x->dim[axis]), integer(e, 1))
             : NULL;
}

/* The zero points of a quantizer of PyTorch: integers, as many as there are scales. */
static Value *zero_points(Emit *e, Value *zero, const Value *scale)
{
    Arg size = {.kind = ARG_EXPRS, .n = scale->rank, .es = scale->dim};
    return zero ? PUT(e, to_copy, "zeros", DT_I64, zero->rank, zero->dim, arg_value(zero), arg_dtype(DT_I64))
                : PUT(e, full, "zeros", DT_I64, scale->rank, scale->dim, size, integer(e, 0), arg_dtype(DT_I64));
}

/* A quantizer, or (to: DT_NONE) its inverse, as PyTorch's own op; *done: it has one. x's integers are of dtype t. */
static bool spell_quantizer(Emit *e, const Node *n, Value *x, int axis, int64_t block, DType t, DType to, bool *done)
{
    Value *scale = n->arg[1].v, *zero = n->arg[2].kind == ARG_VALUE ? n->arg[2].v : NULL;
    Expr *all = ex_int(e->g->ex, 1);
    bool back = to != DT_NONE;
    for (int i = 0; i < scale->rank; i++) all = ex_mul(e->g->ex, all, scale->dim[i]);
    const Expr *K = axis < x->rank ? x->dim[axis] : NULL;
    bool one = ex_equals_int(all, 1), token = block && axis == x->rank - 1 && ex_equals_int(x->dim[axis], block),
         groups = block && !token && x->rank == 2 && axis == 1 && ex_is_int(K) && K->i % block == 0;
    DType held = back ? held_as(x) : t;
    *done = (held == DT_I8 || held == DT_U8 || held == DT_I16) && scale->dtype == DT_F32 &&
            (one || !block || token || groups) && (back ? to == DT_F32 : x->dtype == DT_F32);
    if (!*done) return true;
    TRY(zero = zero_points(e, zero, scale));
    Arg low = integer(e, (int64_t)dtype_lowest(t)), high = integer(e, (int64_t)dtype_highest(t));
    if (groups && !one) {
        Arg args[8] = {arg_value(x), arg_value(scale), arg_value(zero),   low,
                       high,         arg_dtype(held),  integer(e, block), back ? arg_dtype(to) : arg_none()};
        return write_node(e, op_get(back ? OP_dequantize_per_channel_group : OP_quantize_per_channel_group), args, 1,
                          n->out);
    }
    if (one || block) {
        OpId id = !one   ? back ? OP_dequantize_per_token : OP_quantize_per_token
                  : back ? OP_dequantize_per_tensor_tensor
                         : OP_quantize_per_tensor_tensor;
        Arg args[7] = {arg_value(x),
                       arg_value(scale),
                       arg_value(zero),
                       low,
                       high,
                       arg_dtype(held),
                       !one && back ? arg_dtype(to) : arg_none()};
        return write_node(e, op_get(id), args, 1, n->out);
    }
    Arg args[8] = {arg_value(x), arg_value(scale), arg_value(zero), integer(e, axis), low, high, arg_dtype(held)};
    return write_node(e, op_get(back ? OP_dequantize_per_channel : OP_quantize_per_channel), args, 1, n->out);
}

static bool spell_dequantize(Emit *e, const Node *n)
{
    Value *x = n->arg[0].v, *zero = n->arg[2].kind == ARG_VALUE ? n->arg[2].v : NULL, *y, *scale;
    int axis = (int)n->arg[3].e->i;
    int64_t block = n->arg[4].e->i;
    bool done;
    if (e->absorbed[x->id]) return spell_fake_quantizer(e, n);
    TRY(spell_quantizer(e, n, x, axis < 0 ? axis + x->rank : axis, block, x->dtype, n->out[0]->dtype, &done));
    if (done) return true;
    TRY(y = PUT(e, to_copy, "wide", DT_F32, x->rank, x->dim, arg_value(x), arg_dtype(DT_F32)));
    if (zero)
        TRY((zero = beside(e, zero, x, axis, block, DT_F32)) &&
            (y = PUT(e, sub_Tensor, "shifted", DT_F32, x->rank, x->dim, arg_value(y), arg_value(zero), integer(e, 1))));
    TRY(scale = beside(e, n->arg[1].v, x, axis, block, DT_F32));
    if (n->out[0]->dtype == DT_F32)
        return write_node(e, op_get(OP_mul_Tensor), (Arg[2]){arg_value(y), arg_value(scale)}, 1, n->out);
    TRY(y = PUT(e, mul_Tensor, "scaled", DT_F32, x->rank, x->dim, arg_value(y), arg_value(scale)));
    return write_node(e, op_get(OP_to_copy), (Arg[7]){arg_value(y), arg_dtype(n->out[0]->dtype)}, 1, n->out);
}

static bool spell_quantize(Emit *e, const Node *n)
{
    Value *x = n->arg[0].v, *zero = n->arg[2].kind == ARG_VALUE ? n->arg[2].v : NULL, *y = x, *scale;
    DType t = n->out[0]->dtype, precise = n->arg[7].kind == ARG_DTYPE ? n->arg[7].dtype
                                          : dtype_is_float(x->dtype)  ? dtype_promote(x->dtype, n->arg[1].v->dtype)
                                                                      : n->arg[1].v->dtype;
    int axis = (int)n->arg[4].e->i;
    int64_t block = n->arg[5].e->i;
    bool is_float = dtype_is_float(t);
    bool done = false; /* PyTorch's quantizers multiply by the inverse */
    if (n->arg[9].e->i) { /* a faked one whose inverse is elsewhere: NaN is its lowest */
        Value *number = PUT(e, eq_Tensor, "number", DT_BOOL, x->rank, x->dim, arg_value(x), arg_value(x));
        Arg lowest = arg_expr(ex_float(e->g->ex, -INFINITY));
        TRY(number && (y = PUT(e, where_ScalarOther, "lowest", x->dtype, x->rank, x->dim, arg_value(number),
                               arg_value(x), lowest)));
    }
    if (n->arg[8].e->i && n->arg[7].kind == ARG_NONE)
        TRY(spell_quantizer(e, n, y, axis < 0 ? axis + x->rank : axis, block, t, DT_NONE, &done));
    if (done) return true;
    if (x->dtype != precise)
        TRY(y = PUT(e, to_copy, "wide", precise, x->rank, x->dim, arg_value(y), arg_dtype(precise)));
    TRY(scale = beside(e, n->arg[1].v, x, axis, block, precise));
    if (n->arg[8].e->i)
        TRY((scale = PUT(e, reciprocal, "inverse", precise, scale->rank, scale->dim, arg_value(scale))) &&
            (y = PUT(e, mul_Tensor, "quotient", precise, x->rank, x->dim, arg_value(y), arg_value(scale))));
    else TRY(y = PUT(e, div_Tensor, "quotient", precise, x->rank, x->dim, arg_value(y), arg_value(scale)));
    if (precise != DT_F64) TRY(y = PUT(e, to_copy, "wide", DT_F64, x->rank, x->dim, arg_value(y), arg_dtype(DT_F64)));
    if (!is_float) TRY(y = PUT(e, round, "rounded", DT_F64, x->rank, x->dim, arg_value(y)));
    if (zero)
        TRY((zero = beside(e, zero, x, axis, block, DT_F64)) &&
            (y = PUT(e, add_Tensor, "shifted", DT_F64, x->rank, x->dim, arg_value(y), arg_value(zero), integer(e, 1))));
    if (!is_float || n->arg[6].e->i)
        TRY(y = PUT(e, clamp, "saturated", DT_F64, x->rank, x->dim, arg_value(y),
                    arg_expr(ex_float(e->g->ex, dtype_lowest(t))), arg_expr(ex_float(e->g->ex, dtype_highest(t)))));
    return write_node(e, op_get(OP_to_copy), (Arg[7]){arg_value(y), arg_dtype(t)}, 1, n->out);
}

/* ------------------------------------------------------------------ gradients of norms */

static bool sum_leading(Emit *e, Value *v, int lead, Value *out)
{
    Expr *first[MAX_RANK];
    for (int i = 0; i < lead; i++) first[i] = ex_int(e->g->ex, i);
    Value *s = lead ? PUT(e, sum_dim_IntList, "sum", v->dtype, out->rank, out->dim, arg_value(v), sizes_of(lead, first),
                          truth(e, false))
                    : v;
    return s && write_node(e, op_get(OP_to_copy), (Arg[7]){arg_value(s), arg_dtype(out->dtype)}, 1, &out);
}

/* ATen has the gradient of an RMS norm for CUDA alone: by its formula, in float32 for half types. */
static bool spell_rms_backward(Emit *e, const Node *n)
{
    Value *x = n->arg[1].v, *w = n->arg[3].v, *dy = n->arg[0].v;
    DType t = dtype_size(x->dtype) == 2 ? DT_F32 : x->dtype;
    Expr *one[MAX_RANK], *last[MAX_RANK];
    int axes = n->arg[2].n, lead = x->rank - axes;
    for (int i = 0; i < x->rank; i++) one[i] = i < lead ? x->dim[i] : ex_int(e->g->ex, 1);
    for (int i = 0; i < axes; i++) last[i] = ex_int(e->g->ex, lead + i);
    Arg dims = sizes_of(axes, last), keep = truth(e, true);
#define WIDE(v)                                                                                                        \
    TRY((v)->dtype == t || ((v) = PUT(e, to_copy, "wide", t, (v)->rank, (v)->dim, arg_value(v), arg_dtype(t))))
#define FULL(op, a, b) PUT(e, op, "norm_backward", t, x->rank, x->dim, arg_value(a), arg_value(b))
#define ROWS(op, ...) PUT(e, op, "norm_backward", t, x->rank, one, __VA_ARGS__)
    WIDE(x);
    WIDE(w);
    WIDE(dy);
    Value *square = FULL(mul_Tensor, x, x), *rstd = square ? ROWS(mean_dim, arg_value(square), dims, keep) : NULL;
    rstd = rstd ? ROWS(add_Tensor, arg_value(rstd), n->arg[4]) : NULL;
    rstd = rstd ? ROWS(rsqrt, arg_value(rstd)) : NULL;
    Value *h = rstd ? FULL(mul_Tensor, x, rstd) : NULL, *g = h ? FULL(mul_Tensor, dy, w) : NULL,
          *gh = g ? FULL(mul_Tensor, g, h) : NULL;
    Value *along = gh ? ROWS(mean_dim, arg_value(gh), dims, keep) : NULL,
          *part = along ? FULL(mul_Tensor, h, along) : NULL;
    Value *dx = part ? FULL(sub_Tensor, g, part) : NULL, *dw = dx ? FULL(mul_Tensor, dy, h) : NULL;
    dx = dw ? FULL(mul_Tensor, dx, rstd) : NULL;
#undef WIDE
#undef FULL
#undef ROWS
    return dx && write_node(e, op_get(OP_to_copy), (Arg[7]){arg_value(dx), arg_dtype(n->out[0]->dtype)}, 1, n->out) &&
           sum_leading(e, dw, lead, n->out[1]) && sum_leading(e, dy, lead, n->out[2]);
}

/* The statistics by native_layer_norm, on CPUs of the input's type, the gradient from them.
 * Its bias is looked at for its sizes alone: the weight has them. */
static bool spell_norm_backward(Emit *e, const Node *n)
{
    Value *x = n->arg[1].v, *all[3];
    Expr *one[MAX_RANK], *yes[3] = {ex_bool(e->g->ex, true), ex_bool(e->g->ex, true), ex_bool(e->g->ex, true)};
    if (n->arg[5].e->i) return spell_rms_backward(e, n);
    for (int i = 0; i < x->rank; i++) one[i] = i < x->rank - n->arg[2].n ? x->dim[i] : ex_int(e->g->ex, 1);
    all[0] = new_value(e, "normalized", x->dtype, x->rank, x->dim);
    all[1] = new_value(e, "mean", x->dtype, x->rank, one);
    all[2] = new_value(e, "rstd", x->dtype, x->rank, one);
    TRY(all[0] && all[1] && all[2] &&
        write_node(e, op_get(OP_native_layer_norm), (Arg[5]){n->arg[1], n->arg[2], n->arg[3], arg_none(), n->arg[4]}, 3,
                   all));
    return write_node(e, op_get(OP_native_layer_norm_backward),
                      (Arg[8]){n->arg[0], n->arg[1], n->arg[2], arg_value(all[1]), arg_value(all[2]), n->arg[3],
                               n->arg[3], sizes_of(3, yes)},
                      3, n->out);
}

/* ------------------------------------------------------------------ Fourier transforms */

static DType complex_for(DType t) { return t == DT_F64 ? DT_C128 : DT_C64; }

/* On complex tensors, which are looked at as pairs outside. */
static bool spell_fft(Emit *e, const Node *n)
{
    Value *x = n->arg[0].v, *y = n->out[0];
    bool from_real = n->op->id == OP_fft_real, to_real = n->op->id == OP_fft_to_real;
    DType t = complex_for(x->dtype);
    if (!from_real) {
        TRY(x = PUT(e, contiguous, x->name, x->dtype, x->rank, x->dim, arg_value(x)));
        TRY(x = PUT(e, view_as_complex, "complex", t, x->rank - 1, x->dim, arg_value(x)));
    }
    Arg args[4] = {arg_value(x), n->arg[1], n->arg[2], n->arg[3]};
    if (to_real) return write_node(e, op_get(OP__fft_c2r), args, 1, n->out);
    Value *z = put(e, from_real ? OP__fft_r2c : OP__fft_c2c, 4, args, "complex", t, y->rank - 1, y->dim);
    return z && write_node(e, op_get(OP_view_as_real), (Arg[]){arg_value(z)}, 1, n->out);
}

static const struct {
    OpId aten, op;
    const char *in, *out; /* a letter for each operand and result, p: pairs */
} of_pairs[OP_COUNT] = {
#define OF_PAIRS(aten_, in_, out_) .aten = OP_##aten_, .in = in_, .out = out_,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

/* By ATen's row for complex numbers, which are looked at as pairs outside. */
static bool spell_of_pairs(Emit *e, const Node *n)
{
    const char *in = of_pairs[n->op->id].in, *of_out = of_pairs[n->op->id].out;
    Arg args[4] = {0};
    Value *out[3];
    memcpy(args, n->arg, (size_t)n->op->schema->nparams * sizeof *args);
    for (int i = 0; in[i]; i++) {
        Value *x = n->arg[i].v;
        if (in[i] != 'p') continue;
        TRY(x = PUT(e, contiguous, x->name, x->dtype, x->rank, x->dim, arg_value(x)));
        TRY(x = PUT(e, view_as_complex, "complex", complex_for(x->dtype), x->rank - 1, x->dim, arg_value(x)));
        args[i] = arg_value(x);
    }
    for (int i = 0; i < n->nout; i++) {
        const Value *y = n->out[i];
        out[i] = n->out[i];
        if (of_out[i] == 'p')
            TRY(out[i] = new_value(e, "complex", complex_for(y->dtype), y->rank - 1, y->dim));
    }
    TRY(write_node(e, op_get(of_pairs[n->op->id].aten), args, n->nout, out));
    for (int i = 0; i < n->nout; i++)
        if (of_out[i] == 'p')
            TRY(write_node(e, op_get(OP_view_as_real), (Arg[]){arg_value(out[i])}, 1, &n->out[i]));
    return true;
}

/* By abs, whose gradient at 0 hypot does not have. */
static bool spell_modulus(Emit *e, const Node *n)
{
    const Value *y = n->out[0];
    if (dtype_size(y->dtype) < 4) return write_node(e, op_get(OP_hypot), n->arg, 1, n->out);
    Value *z = PUT(e, complex, "complex", complex_for(y->dtype), y->rank, y->dim, n->arg[0], n->arg[1]);
    return z && write_node(e, op_get(OP_abs), (Arg[]){arg_value(z)}, 1, n->out);
}

static bool spell_sort(Emit *e, const Node *n)
{
    bool stable = n->arg[3].e && n->arg[3].e->i;
    Arg kept[] = {n->arg[0], truth(e, true), n->arg[1], n->arg[2]};
    return stable ? write_node(e, op_get(OP_sort_stable), kept, 2, n->out)
                  : write_node(e, op_get(OP_sort_default), n->arg, 2, n->out);
}

/* ------------------------------------------------------------------ all of them */

bool spell_node(Emit *e, const Node *n, bool *done)
{
    *done = true;
    switch (n->op->id) {
    case OP_upsample: return spell_upsample(e, n);
    case OP_reflection_pad1d:
    case OP_replication_pad1d: return spell_pad(e, n);
    case OP_view_dtype:
    case OP_as_strided:
    case OP_as_strided_scatter: return spell_contiguous(e, n);
    case OP_fft_complex:
    case OP_fft_real:
    case OP_fft_to_real: return spell_fft(e, n);
    case OP_modulus: return spell_modulus(e, n);
    case OP_sort: return spell_sort(e, n);
    case OP_slice_Tensor: return spell_slice(e, n, done);
    case OP_lstm_layer:
    case OP_rnn_layer: return spell_layer(e, n);
    case OP_scaled_dot_product_attention: return spell_attention(e, n);
    case OP_sdpa_lse: return spell_sdpa_lse(e, n);
    case OP_sdpa_backward: return spell_sdpa_backward(e, n);
    case OP_rotary: return spell_rotary(e, n);
    case OP_norm_backward: return spell_norm_backward(e, n);
    case OP_branch: return spell_branch(e, n);
    case OP_loop: return spell_loop(e, n);
    case OP_sdpa_varlen:
        return fail(
            e->err, E_UNSUPPORTED,
            "ATen has no attention over sequences of different lengths: write the model before padding is skipped");
    case OP_sdpa_quantized: return spell_sdpa_quantized(e, n);
    case OP_quantize_linear: return spell_quantize(e, n);
    case OP_linear_integer:
    case OP_linear_blocks:
        return fail(e->err, E_UNSUPPORTED,
                    "ATen has no linear layer of integers: write the model before it is prepared");
    case OP_convolution_integer:
        return fail(e->err, E_UNSUPPORTED,
                    "ATen has no convolution of integers: write the model before it is prepared");
    case OP_quantize_rows:
        return fail(e->err, E_UNSUPPORTED,
                    "ATen has no quantizer that finds its scales: write the model before it is prepared");
    case OP_seeded_uniform: return fail(e->err, E_UNSUPPORTED, "ATen has no random numbers with a seed of their own");
    case OP_dequantize_linear: return spell_dequantize(e, n);
    default: break;
    }
    if (of_pairs[n->op->id].aten) return spell_of_pairs(e, n);
    *done = false;
    return true;
}
