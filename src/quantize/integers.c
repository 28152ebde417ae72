/* Products of integers. Contract in integers.h. */
#include "quantize/integers.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "facts/constant.h"
#include "facts/views.h"
#include "kernel/blocks.h"
#include "kernel/integer.h"

enum { MAX_ARGS = 32 };

bool quantize_one_number(const Value *v)
{
    for (int i = 0; i < v->rank; i++)
        if (!ex_equals_int(v->dim[i], 1)) return false;
    return true;
}

static bool few_bits(const Value *v) { return v->dtype == DT_I8 || v->dtype == DT_U8; }

bool quantize_moves(const Node *n, const void *user)
{
    (void)user;
    return n->op->id == OP_reshape || n->op->id == OP_permute;
}

/* float32, or halves: products of integers have scales and results of float32, which become halves again */
static bool are_floats(const Value *v) { return v->dtype == DT_F32 || v->dtype == DT_F16 || v->dtype == DT_BF16; }

/* The inverse of a quantizer that gives v, through views that move whole tensors; NULL: it is none. */
static const Node *inverse_of(const Value *v)
{
    const Node *n = value_below(v, quantize_moves, NULL)->def;
    bool is = n && n->op->id == OP_dequantize_linear && are_floats(v) && few_bits(n->arg[0].v) &&
              n->arg[1].v->dtype == v->dtype;
    return is ? n : NULL;
}

static bool zero_is_one(const Node *inverse)
{
    return inverse->arg[2].kind == ARG_NONE || quantize_one_number(inverse->arg[2].v);
}

bool quantize_all_zero(const Graph *g, const Arg *zero)
{
    double number;
    if (zero->kind == ARG_NONE) return true;
    const Value *v = through_casts(zero->v); /* 0 stays 0 */
    const Tensor *t = constant_tensor(g, v);
    if (!t) return constant_value(g, v, &number) && number == 0;
    int64_t n = tensor_numel(t);
    bool none = true;
    for (int64_t i = 0; i < n && none; i++) none = !tensor_get_i64(t, i);
    return none;
}

/* Does it have one scale? */
static bool of_one(const Value *v)
{
    const Node *n = inverse_of(v);
    return n && quantize_one_number(n->arg[1].v) && zero_is_one(n);
}

static bool alike(const Value *a, const Value *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

/* Or one a row of v, which it gives directly, with zero points a row or without? */
static bool of_rows(const Graph *g, const Value *v)
{
    const Node *n = inverse_of(v);
    if (!n || n->out[0] != v || n->arg[4].e->i <= 0) return false;
    if (!quantize_all_zero(g, &n->arg[2]) && !alike(n->arg[2].v, n->arg[1].v)) return false;
    int64_t axis = n->arg[3].e->i, block = n->arg[4].e->i;
    return (axis == v->rank - 1 || axis == -1) && ex_equals_int(v->dim[v->rank - 1], block);
}

/* The integers that v is made of, under v's views, made in front of `at`. NULL: an error. */
static Value *integers(Graph *g, Node *at, Value *v, Err *err)
{
    if (v->def->op->id == OP_dequantize_linear) return v->def->arg[0].v;
    Arg arg[MAX_ARGS];
    int n = v->def->op->schema->nparams;
    memcpy(arg, v->def->arg, (size_t)n * sizeof *arg);
    if (!(arg[0].v = integers(g, at, v->def->arg[0].v, err))) return NULL;
    Node *view = graph_add_before(g, at, v->def->op->id, n, arg, v->name, err);
    return view ? view->out[0] : NULL;
}

/* The inverse that gives a weight of i8, symmetric, by a scale for each index of `axis` or one; NULL: none. */
static const Node *symmetric_inverse(const Graph *g, const Value *w, int axis)
{
    const Node *n = w->def && w->def->op->id == OP_dequantize_linear ? w->def : NULL;
    if (!n || !are_floats(w) || n->arg[0].v->dtype != DT_I8 || n->arg[1].v->dtype != w->dtype || n->arg[4].e->i ||
        !quantize_all_zero(g, &n->arg[2]))
        return NULL;
    int64_t along = n->arg[3].e->i;
    bool channels = n->arg[1].v->rank == 1 && (along < 0 ? along + w->rank : along) == axis;
    return channels || quantize_one_number(n->arg[1].v) ? n : NULL;
}

/* The same of a matrix whose results are along `axis`; *turned: along the other axis of the integers. */
static const Node *weight_of(const Graph *g, const Value *w, int axis, bool *turned)
{
    *turned = w->rank == 2 && w->def && w->def->op->id == OP_permute && ex_equals_int(w->def->arg[1].es[0], 1);
    if (*turned) {
        w = w->def->arg[0].v;
        axis = 1 - axis;
    }
    return w->rank == 2 ? symmetric_inverse(g, w, axis) : NULL;
}

/* A node in n's place, under its name. */
static bool take_place(Graph *g, Node *n, Node *made, Err *err)
{
    TRY(made);
    graph_replace_uses(g, n->out[0], made->out[0]);
    TRY(graph_rename(g, made->out[0], n->out[0]->name, err));
    graph_remove(g, n);
    return true;
}

/* An argument in dtype t, cast in front of `at`. */
static bool cast_to(Graph *g, Node *at, Arg *a, DType t, Err *err)
{
    if (a->kind != ARG_VALUE || a->v->dtype == t) return true;
    Node *n = graph_add_before(g, at, OP_to_copy, 2, (Arg[]){*a, arg_dtype(t)}, a->v->name, err);
    return n && (a->v = n->out[0]);
}

/* The product y of float32 in place of n, which may give halves. */
static bool instead(Graph *g, Node *n, Node *y, Err *err)
{
    Arg result = y ? arg_value(y->out[0]) : arg_none();
    return y && cast_to(g, n, &result, n->out[0]->dtype, err) && take_place(g, n, result.v->def, err);
}

static bool linear(Graph *g, Node *n, bool *done, Err *err)
{
    bool product = n->op->id == OP_matmul, turned;
    Value *x = n->arg[0].v;
    const Node *w = weight_of(g, n->arg[1].v, product, &turned), *in = inverse_of(x);
    if (!w || !in || !are_floats(n->out[0]) || !(of_one(x) || of_rows(g, x))) return true;
    const Expr *K = n->arg[1].v->dim[!product];
    if (!ex_is_int(K) || K->i > INTEGER_DEEPEST) return true;
    Value *ints = integers(g, n, x, err), *weight = w->arg[0].v;
    TRY(ints);
    if (turned != product) {
        Node *t = graph_add_before(g, n, OP_permute, 2, (Arg[]){arg_value(weight), arg_ints(g, 2, (int64_t[]){1, 0})},
                                   weight->name, err);
        TRY(t);
        weight = t->out[0];
    }
    *done = true;
    Arg bias = product ? arg_none() : n->arg[2];
    Arg zero = quantize_all_zero(g, &in->arg[2]) ? arg_none() : in->arg[2];
    Arg args[6] = {arg_value(ints), in->arg[1], zero, arg_value(weight), w->arg[1], bias};
    TRY(cast_to(g, n, &args[1], DT_F32, err) && cast_to(g, n, &args[4], DT_F32, err) &&
        cast_to(g, n, &args[5], DT_F32, err));
    return instead(g, n, graph_add_before(g, n, OP_linear_integer, 6, args, n->out[0]->name, err), err);
}

/* ------------------------------------------------------------------ convolutions */

typedef struct Window { /* of an axis of a picture */
    int64_t size, stride, padding, dilation;
} Window;

static bool window_of(const Node *n, int axis, Window *w)
{
    const Value *weight = n->arg[1].v;
    const Arg *a = &n->arg[3];
    for (int i = 0; i < 3; i++)
        if (axis >= a[i].n || !ex_is_int(a[i].es[axis])) return false;
    if (!ex_is_int(weight->dim[2 + axis])) return false;
    *w = (Window){weight->dim[2 + axis]->i, a[0].es[axis]->i, a[1].es[axis]->i, a[2].es[axis]->i};
    return w->size > 0 && w->padding >= 0;
}

typedef struct Rows { /* builds in front of `at` */
    Graph *g;
    Node *at;
    Err *err;
    int axes;
} Rows;

static Value *put(const Rows *r, OpId op, int n, const Arg *arg)
{
    Node *made = graph_add_before(r->g, r->at, op, n, arg, r->at->out[0]->name, r->err);
    return made ? made->out[0] : NULL;
}

/* v with channels last. */
static Value *channels_last(const Rows *r, Value *v)
{
    int64_t order[MAX_RANK] = {0};
    for (int i = 1; i <= r->axes; i++) order[i] = i + 1;
    order[r->axes + 1] = 1;
    return put(r, OP_permute, 2, (Arg[]){arg_value(v), arg_ints(r->g, r->axes + 2, order)});
}

/* The last `n` axes of v as one of K. */
static Value *joined(const Rows *r, Value *v, int n, int64_t K)
{
    Expr *dim[MAX_RANK];
    memcpy(dim, v->dim, (size_t)v->rank * sizeof *dim);
    dim[v->rank - n] = ex_int(r->g->ex, K);
    return put(r, OP_reshape, 2, (Arg[]){arg_value(v), arg_exprs(r->g, v->rank - n + 1, dim)});
}

/* Without groups, or with one for each channel and result. */
static bool fits(const Node *n, bool *depthwise)
{
    const Expr *groups = n->arg[8].e;
    *depthwise = ex_is_int(groups) && groups->i > 1 && n->arg[0].v->dim[1] == groups && n->out[0]->dim[1] == groups;
    return *depthwise || ex_equals_int(groups, 1);
}

/* Is the zero point of a quantizer or its inverse a number? */
static bool number_of_zero(const Graph *g, const Node *q, int64_t *zero)
{
    double is = 0;
    if (q->arg[2].kind != ARG_NONE && !constant_value(g, q->arg[2].v, &is)) return false;
    *zero = (int64_t)is;
    return true;
}

/* What x has edges of its zero point around, as many before as after: they become the convolution's. */
static Value *within_edges(const Graph *g, Value *x, const Node *in, int axes, int64_t *padding)
{
    const Node *pad = x->def && x->def->op->id == OP_constant_pad_nd ? x->def : NULL;
    int64_t zero, around[3] = {0};
    double of;
    if (!pad || !number_of_zero(g, in, &zero) || pad->arg[2].kind != ARG_EXPR || !ex_is_const(pad->arg[2].e)) return x;
    of = ex_number(pad->arg[2].e);
    if (of != (double)zero || pad->arg[1].n > 2 * axes) return x;
    for (int i = 0; i < pad->arg[1].n; i += 2) {
        const Expr *before = pad->arg[1].es[i];
        if (!ex_is_int(before) || before->i < 0 || pad->arg[1].es[i + 1] != before) return x;
        around[axes - 1 - i / 2] = before->i;
    }
    for (int i = 0; i < axes; i++) padding[i] += around[i];
    return pad->arg[0].v;
}

/* Between quantizers with one scale for the picture. */
static bool convolution(Graph *g, Node *n, Err *err)
{
    const Rows r = {g, n, err, n->out[0]->rank - 2};
    const Node *in = inverse_of(n->arg[0].v), *k = symmetric_inverse(g, n->arg[1].v, 0);
    int64_t list[4][3], K = 1;
    bool depthwise;
    if (!in || !k || !of_one(n->arg[0].v) || n->arg[6].e->i || !fits(n, &depthwise) || r.axes < 1 || r.axes > 3 ||
        !ex_is_int(n->arg[1].v->dim[1]))
        return true;
    for (int i = 0; i < r.axes; i++) {
        Window w;
        if (!window_of(n, i, &w)) return true;
        list[0][i] = w.size;
        list[1][i] = w.stride;
        list[2][i] = w.padding;
        list[3][i] = w.dilation;
        K *= w.size;
    }
    K *= n->arg[1].v->dim[1]->i;
    if (K < 1 || K > (depthwise ? DEPTHWISE_DEEPEST : INTEGER_DEEPEST)) return true;
    Value *x = integers(g, n, n->arg[0].v, err), *weight = x ? channels_last(&r, k->arg[0].v) : NULL;
    if (x) x = within_edges(g, x, in, r.axes, list[2]);
    TRY(weight && (weight = joined(&r, weight, r.axes + 1, K)));
    Arg args[11] = {arg_value(x), in->arg[1], quantize_all_zero(g, &in->arg[2]) ? arg_none() : in->arg[2],
                    arg_value(weight), k->arg[1], n->arg[2]};
    for (int i = 0; i < 4; i++) args[6 + i] = arg_ints(g, r.axes, list[i]);
    args[10] = n->arg[8];
    Node *made = graph_add_before(g, n, OP_convolution_integer, 11, args, n->out[0]->name, err);
    TRY(made);
    return !alike(made->out[0], n->out[0]) || take_place(g, n, made, err);
}

/* ------------------------------------------------------------------ weights with a scale a block */

enum { FOLLOWED = 16 };

static void is_fixed(void *user, Value **slot);

typedef struct Fixed {
    const Graph *g;
    int depth;
    bool is;
} Fixed;

/* Does v follow from weights that no run changes, by a few ops? */
static bool fixed(const Graph *g, Value *v, int depth)
{
    Err why = {0};
    Fixed f = {g, depth + 1, true};
    if (v->kind == V_WEIGHT) return constant_weight(g, v, &why);
    if (!v->def || depth > FOLLOWED) return false;
    node_each_operand(v->def, is_fixed, &f);
    return f.is;
}

static void is_fixed(void *user, Value **slot)
{
    Fixed *f = user;
    f->is = f->is && fixed(f->g, *slot, f->depth);
}

bool quantize_within_4_bits(const Graph *g, const Value *v)
{
    while (v->def && v->def->op->id == OP_reshape) v = v->def->arg[0].v;
    const Tensor *t = constant_tensor(g, v);
    int64_t n = t ? tensor_numel(t) : 0;
    if (!t || t->dtype != DT_I8) return false;
    for (int64_t i = 0; i < n; i++)
        if (((const int8_t *)t->data)[i] < -8 || ((const int8_t *)t->data)[i] > 7) return false;
    return true;
}

typedef struct BlockedWeight {
    const Node *inverse;
    Value *zero; /* NULL: all are 0 */
    bool turned; /* the integers are (K, N) */
    int64_t N, K, block;
    int bits;
} BlockedWeight;

/* Weights (N, K) of i4, u4, i8 or u8 with a scale a block of K, or (one block) a row. product: w is (K, N). */
static bool blocked(const Graph *g, Value *w, bool product, BlockedWeight *b)
{
    bool permuted = w->rank == 2 && w->def && w->def->op->id == OP_permute && ex_equals_int(w->def->arg[1].es[0], 1);
    if (permuted) w = w->def->arg[0].v;
    const Node *n = w->def && w->def->op->id == OP_dequantize_linear ? w->def : NULL;
    *b = (BlockedWeight){.inverse = n, .turned = permuted != product};
    if (!n || w->rank != 2 || !are_floats(w) || n->arg[1].v->dtype != w->dtype) return false;
    Value *ints = n->arg[0].v, *scale = n->arg[1].v, *zero = n->arg[2].kind == ARG_VALUE ? n->arg[2].v : NULL;
    const Expr *N = ints->dim[b->turned], *K = ints->dim[!b->turned];
    int64_t axis = n->arg[3].e->i < 0 ? n->arg[3].e->i + 2 : n->arg[3].e->i;
    bool four = ints->dtype == DT_I4 || ints->dtype == DT_U4, rows = !n->arg[4].e->i;
    if ((!four && !few_bits(ints)) || !ex_is_int(N) || !ex_is_int(K) || !fixed(g, w, 0)) return false;
    b->N = N->i;
    b->K = K->i;
    b->block = rows ? K->i : n->arg[4].e->i;
    b->zero = zero && !quantize_all_zero(g, &n->arg[2]) ? zero : NULL;
    b->bits = four || (quantize_within_4_bits(g, ints) && (!b->zero || quantize_within_4_bits(g, b->zero))) ? 4 : 8;
    if (rows ? scale->rank != 1 || axis != b->turned : scale->rank != 2 || axis == b->turned) return false;
    return b->block >= b->K ? b->K <= BLOCKS_DEEPEST : b->block % 8 == 0 && b->block <= BLOCKS_DEEPEST;
}

/* The integers, scales or zero points of such a weight with its rows first. */
static Value *rows_first(Graph *g, Node *at, Value *v, const BlockedWeight *b, Err *err)
{
    Node *n;
    if (v->rank == 1) {
        n = graph_add_before(g, at, OP_reshape, 2, (Arg[]){arg_value(v), arg_ints(g, 2, (int64_t[]){b->N, 1})}, v->name,
                             err);
        return n ? n->out[0] : NULL;
    }
    if (!b->turned) return v;
    n = graph_add_before(g, at, OP_permute, 2, (Arg[]){arg_value(v), arg_ints(g, 2, (int64_t[]){1, 0})}, v->name, err);
    return n ? n->out[0] : NULL;
}

/* A constant (N * K / 32, 32) with a scale a row, seen as (N, K), has a scale a block: where ONNX has no blocks, they
 * are written so (onnx/write/nbits.c). n: what makes (N, K) of it. */
static bool blocks_of_rows(Graph *g, Node *n, Err *err)
{
    const Node *d = n->arg[0].v->def;
    Value *v = n->out[0];
    if (!d || d->op->id != OP_dequantize_linear || d->arg[0].v->rank != 2 || d->arg[1].v->rank != 1 || v->rank != 2)
        return true;
    const Expr *K = v->dim[1], *block = d->arg[0].v->dim[1];
    const int64_t axis = d->arg[3].e->i;
    if ((axis != 0 && axis != -2) || d->arg[4].e->i || d->arg[2].kind != ARG_NONE || !ex_is_int(v->dim[0]) ||
        !ex_is_int(K) || !ex_is_int(block) || block->i < 1 || K->i % block->i || !fixed(g, d->arg[0].v, 0))
        return true;
    const int64_t whole[] = {v->dim[0]->i, K->i}, scales[] = {v->dim[0]->i, K->i / block->i};
    Arg args[MAX_ARGS];
    memcpy(args, d->arg, (size_t)d->op->schema->nparams * sizeof *args);
    Node *w = graph_add_before(g, n, OP_reshape, 2, (Arg[]){d->arg[0], arg_ints(g, 2, whole)}, v->name, err),
         *by = w ? graph_add_before(g, n, OP_reshape, 2, (Arg[]){d->arg[1], arg_ints(g, 2, scales)}, v->name, err)
                 : NULL;
    TRY(by);
    args[0] = arg_value(w->out[0]);
    args[1] = arg_value(by->out[0]);
    args[3] = arg_int(g, 1);
    args[4] = arg_int(g, block->i);
    return take_place(g, n, graph_add_before(g, n, d->op->id, d->op->schema->nparams, args, v->name, err), err);
}

static bool linear_of_blocks(Graph *g, Node *n, Err *err)
{
    bool product = n->op->id == OP_matmul;
    Value *x = n->arg[0].v;
    const Node *in = inverse_of(x);
    BlockedWeight b;
    if (!are_floats(n->out[0]) || x->dtype != n->out[0]->dtype || !blocked(g, n->arg[1].v, product, &b)) return true;
    Arg scale = arg_none(), zero = b.zero ? arg_value(b.zero) : arg_none();
    bool integer = in && in->arg[0].v->dtype == DT_I8 && quantize_all_zero(g, &in->arg[2]) &&
                   (of_one(x) || of_rows(g, x));
    Value *a = integer ? integers(g, n, x, err) : x, *w = a ? rows_first(g, n, b.inverse->arg[0].v, &b, err) : NULL,
          *by = w ? rows_first(g, n, b.inverse->arg[1].v, &b, err) : NULL;
    TRY(by);
    if (zero.kind == ARG_VALUE) TRY(zero.v = rows_first(g, n, zero.v, &b, err));
    if (integer) scale = in->arg[1];
    Arg args[8] = {arg_value(a),
                   scale,
                   arg_value(w),
                   arg_value(by),
                   zero,
                   arg_int(g, b.block),
                   arg_int(g, b.bits),
                   product ? arg_none() : n->arg[2]};
    TRY((integer || cast_to(g, n, &args[0], DT_F32, err)) && cast_to(g, n, &args[1], DT_F32, err) &&
        cast_to(g, n, &args[3], DT_F32, err) && cast_to(g, n, &args[7], DT_F32, err));
    return instead(g, n, graph_add_before(g, n, OP_linear_blocks, 8, args, n->out[0]->name, err), err);
}

/* ------------------------------------------------------------------ scales that are found in a run */

static bool number(const Graph *g, const Arg *a, double *x)
{
    if (a->kind == ARG_VALUE) return constant_value(g, a->v, x);
    bool is = a->kind == ARG_EXPR && ex_is_const(a->e);
    if (is) *x = ex_number(a->e);
    return is;
}

static bool is_number(const Graph *g, const Arg *a, double x)
{
    double is;
    return number(g, a, &is) && is == x;
}

/* v is op(x, ...): its node. */
static const Node *made_by(const Value *v, OpId op) { return v && v->def && v->def->op->id == op ? v->def : NULL; }

/* v is the largest or least element of each row of x, or of `of`'s; NULL: it is not that. */
static const Value *of_each_row(const Value *v, OpId op)
{
    const Node *n = made_by(v, op);
    if (!n || n->arg[1].kind != ARG_EXPRS || n->arg[1].n != 1 || !n->arg[2].e->i) return NULL;
    const Value *x = n->arg[0].v;
    return ex_equals_int(n->arg[1].es[0], -1) || ex_equals_int(n->arg[1].es[0], x->rank - 1) ? x : NULL;
}

/* clamp(x, low, high) with these bounds, `least` found where it is given; NAN: none. */
static const Value *clamped(const Graph *g, const Value *v, double low, double high, double *least)
{
    const Node *n = made_by(v, OP_clamp), *relu = made_by(v, OP_relu);
    if (!n) return relu && !least && low == 0 && high != high ? relu->arg[0].v : NULL;
    if (least        ? !number(g, &n->arg[1], least)
        : low == low ? !is_number(g, &n->arg[1], low)
                     : n->arg[1].kind != ARG_NONE)
        return NULL;
    return (high == high ? is_number(g, &n->arg[2], high) : n->arg[2].kind == ARG_NONE) ? n->arg[0].v : NULL;
}

static const Value *divided(const Graph *g, const Value *v, double by)
{
    const Node *n = made_by(v, OP_div_Tensor);
    return n && is_number(g, &n->arg[1], by) ? n->arg[0].v : NULL;
}

/* scale = clamp(amax(abs(x)), least) / 127 */
static bool symmetric_rows(const Graph *g, const Node *n, double *least)
{
    const Node *abs = made_by(of_each_row(clamped(g, divided(g, n->arg[1].v, 127), 0, NAN, least), OP_amax), OP_abs);
    return abs && abs->arg[0].v == n->arg[0].v && quantize_all_zero(g, &n->arg[2]);
}

/* scale = clamp((high - low) / 255, least), zero = clamp(round(-low / scale), 0, 255), low and high with 0 */
static bool asymmetric_rows(const Graph *g, const Node *n, double *least)
{
    const Node *wide = made_by(divided(g, clamped(g, n->arg[1].v, 0, NAN, least), 255), OP_sub_Tensor);
    const Value *x = n->arg[0].v, *zero = n->arg[2].kind == ARG_VALUE ? n->arg[2].v : NULL;
    if (!wide || wide->arg[1].kind != ARG_VALUE) return false;
    const Value *low = wide->arg[1].v;
    const Node *round = zero ? made_by(clamped(g, through_casts(zero), 0, 255, NULL), OP_round) : NULL,
               *by = round ? made_by(round->arg[0].v, OP_div_Tensor) : NULL;
    const Node *neg = by && by->arg[1].kind == ARG_VALUE && by->arg[1].v == n->arg[1].v ? made_by(by->arg[0].v, OP_neg)
                                                                                        : NULL;
    return neg && neg->arg[0].v == low && of_each_row(clamped(g, low, NAN, 0, NULL), OP_amin) == x &&
           of_each_row(clamped(g, wide->arg[0].v, 0, NAN, NULL), OP_amax) == x;
}

/* A quantizer whose scales are those of the rows' own ranges. */
static bool rows(Graph *g, Node *n, Err *err)
{
    Value *x = n->arg[0].v, *scale = n->arg[1].v, *zero = n->arg[2].kind == ARG_VALUE ? n->arg[2].v : NULL;
    DType t = n->out[0]->dtype;
    double least;
    int64_t axis = n->arg[4].e->i, K = x->rank && ex_is_int(x->dim[x->rank - 1]) ? x->dim[x->rank - 1]->i : -1;
    if (x->dtype != DT_F32 || K <= 0 || n->arg[5].e->i != K || (axis != -1 && axis != x->rank - 1) ||
        n->arg[7].kind != ARG_NONE || !n->arg[8].e->i)
        return true;
    if (!(t == DT_I8 ? symmetric_rows(g, n, &least) : t == DT_U8 && asymmetric_rows(g, n, &least))) return true;
    Node *made = graph_add_before(g, n, OP_quantize_rows, 3, (Arg[]){arg_value(x), arg_dtype(t), arg_float(g, least)},
                                  x->name, err);
    TRY(made);
    /* the scales were computed in front of n, where others may read them, too */
    for (Node *at = n->next; at; at = at->next)
        if (at->op->id == OP_dequantize_linear && at->arg[0].v == n->out[0] && at->arg[1].v == scale) {
            at->arg[1] = arg_value(made->out[1]);
            if (zero && t == DT_U8 && at->arg[2].kind == ARG_VALUE &&
                through_casts(at->arg[2].v) == through_casts(zero))
                at->arg[2] = arg_value(made->out[2]);
        }
    graph_replace_uses(g, n->out[0], made->out[0]);
    graph_remove(g, n);
    return true;
}

static bool attention(Graph *g, Node *n, Err *err)
{
    Arg args[MAX_ARGS];
    DType t = DT_NONE;
    for (int i = 0; i < 3; i++) {
        if (!of_one(n->arg[i].v)) return true;
        DType of = inverse_of(n->arg[i].v)->arg[0].v->dtype;
        if (i && of != t) return true;
        t = of;
    }
    const Expr *D = n->arg[0].v->dim[3];
    if (!ex_is_int(D) || D->i > INTEGER_DEEPEST) return true;
    memcpy(args, n->arg, (size_t)n->op->schema->nparams * sizeof *args);
    for (int i = 0; i < 3; i++) {
        const Node *in = inverse_of(n->arg[i].v);
        TRY(args[i].v = integers(g, n, n->arg[i].v, err));
        args[11 + 2 * i] = in->arg[1];
        args[12 + 2 * i] = in->arg[2];
    }
    Node *made = graph_add_before(g, n, n->op->id, n->op->schema->nparams, args, n->out[0]->name, err);
    return take_place(g, n, made, err);
}

/* quantize(max_pool(x)) where nothing else reads either: the largest of what is quantized first, which is the same, as
 * rounding keeps the order; a picture of bytes is pooled. */
static bool pooled(Graph *g, Node *n, Err *err)
{
    Node *pool = n->arg[0].v->def;
    if (!pool || (pool->op->id != OP_max_pool2d_with_indices && pool->op->id != OP_max_pool3d_with_indices) ||
        n->arg[0].v != pool->out[0] || n->arg[0].v->dtype != DT_F32 || !few_bits(n->out[0]) ||
        !quantize_one_number(n->arg[1].v) || (n->arg[2].kind == ARG_VALUE && !quantize_one_number(n->arg[2].v)))
        return true;
    int *uses = mem_zeroed((size_t)g->next_id + 1, sizeof *uses);
    if (!uses) return oom(err);
    graph_count_uses(g, uses);
    bool alone = uses[pool->out[0]->id] == 1 && !uses[pool->out[1]->id] && uses[pool->arg[0].v->id] == 1;
    mem_free(uses);
    if (!alone) return true;
    Arg arg[MAX_ARGS], window[MAX_ARGS];
    memcpy(arg, n->arg, (size_t)n->op->schema->nparams * sizeof *arg);
    memcpy(window, pool->arg, (size_t)pool->op->schema->nparams * sizeof *window);
    arg[0] = pool->arg[0];
    Node *q = graph_add_before(g, n, n->op->id, n->op->schema->nparams, arg, pool->arg[0].v->name, err);
    TRY(q);
    window[0] = arg_value(q->out[0]);
    pool = graph_add_before(g, n, pool->op->id, pool->op->schema->nparams, window, n->out[0]->name, err);
    return take_place(g, n, pool, err);
}

/* quantize(constant_pad_nd(x, 0)), which nothing else reads: zeros around integers, which 0 is. */
static bool around(Graph *g, Node *n, Err *err)
{
    Node *pad = n->arg[0].v->def;
    int64_t zero;
    if (!pad || pad->op->id != OP_constant_pad_nd || n->arg[0].v->dtype != DT_F32 || !few_bits(n->out[0]) ||
        !quantize_one_number(n->arg[1].v) || !is_number(g, &pad->arg[2], 0) || !number_of_zero(g, n, &zero))
        return true;
    int *uses = mem_zeroed((size_t)g->next_id + 1, sizeof *uses);
    if (!uses) return oom(err);
    graph_count_uses(g, uses);
    const bool alone = uses[pad->out[0]->id] == 1 && uses[pad->arg[0].v->id] == 1;
    mem_free(uses);
    if (!alone) return true;
    Arg arg[MAX_ARGS], edges[3] = {arg_none(), pad->arg[1], arg_int(g, zero)};
    memcpy(arg, n->arg, (size_t)n->op->schema->nparams * sizeof *arg);
    arg[0] = pad->arg[0];
    Node *q = graph_add_before(g, n, n->op->id, n->op->schema->nparams, arg, pad->arg[0].v->name, err);
    TRY(q);
    edges[0] = arg_value(q->out[0]);
    return take_place(g, n, graph_add_before(g, n, OP_constant_pad_nd, 3, edges, n->out[0]->name, err), err);
}

bool quantize_integers(Graph *g, Err *err)
{
    bool any = false;
    for (Node *n = g->first, *next; n; n = next) {
        next = n->next;
        any |= n->op->id == OP_dequantize_linear;
        if (n->op->id == OP_quantize_linear && n->out[0]->dtype == DT_I8 && quantize_all_zero(g, &n->arg[2]))
            n->arg[2] = arg_none();
        if (n->op->id == OP_quantize_linear && n->arg[5].e->i) {
            TRY(rows(g, n, err));
            continue;
        }
        if (n->op->id == OP_quantize_linear) {
            TRY(pooled(g, n, err) && around(g, n, err));
            continue;
        }
        if (!any) continue;
        if (n->op->id == OP_reshape) TRY(blocks_of_rows(g, n, err));
        else if (n->op->id == OP_linear || (n->op->id == OP_matmul && n->arg[1].v->rank == 2)) {
            bool done = false;
            TRY(linear(g, n, &done, err) && (done || linear_of_blocks(g, n, err)));
        } else if (n->op->id == OP_convolution && n->out[0]->dtype == DT_F32) TRY(convolution(g, n, err));
        else if (n->op->id == OP_sdpa_quantized && n->arg[0].v->dtype == DT_F32) TRY(attention(g, n, err));
    }
    if (any) graph_dce(g);
    return true;
}
