/* Products, convolution, norms, recurrent layers in ONNX's words. Half types are worked on in float32 where a row is
 * more than one node.
 *
 *     aten.linear(x, w, b)   ->  Gemm(x, w, b, transB=1) of two axes; else Add(MatMul(x, Transpose(w)), b)
 */
#include <math.h>
#include <string.h>
#include "onnx/write/write_impl.h"

enum {
    MAX_GROUPS = 1024
};


/* bf16 where the runtime has no such op: one rounding at the end. */
static Ref worked(Onnx *o, const char *op, Ref x)
{
    const TypeRule *r = type_rule(op);
    return *x.name && x.t == DT_BF16 && r && !type_taken(o, r, x.t) ? cast(o, x, DT_F32) : x;
}

/* Are these rows of half width whose axes before the last one were put in another order? */
static bool rows_in_other_order(const Value *v)
{
    while (v->def && (v->def->op->id == OP_to_copy || v->def->op->id == OP_reshape)) v = v->def->arg[0].v;
    if (!v->def || v->def->op->id != OP_permute || dtype_size(v->dtype) != 2) return false;
    const Arg *perm = &v->def->arg[1];
    return ex_equals_int(perm->es[perm->n - 1], v->rank - 1);
}

/* The matrix that rows v are multiplied with. ONNX Runtime (1.31) ends the process where it moves a Cast of such rows
 * before their Transpose and then the Transpose into a product with a constant of two axes; of three it leaves it. */
static Ref matrix_for(Onnx *o, const Value *v, const Value *w, Ref matrix)
{
    return for_ort(o) && v->rank > 2 && w->rank == 2 && rows_in_other_order(v) ? unsqueeze(o, matrix, 0) : matrix;
}

void out_matmul(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Ref matrix = matrix_for(o, arg_v(n, 0), arg_v(n, 1), arg_ref(o, n, 1));
    give(o, n, 0, bin(o, "MatMul", arg_ref(o, n, 0), matrix));
}

/* One product a group, as many as there are matrices: rows (or columns) up to offs[i], and zeros for rows after the
 * last group. */
typedef struct Groups {
    Onnx *o;
    bool inner; /* groups are columns of the first operand and rows of the second one */
    int count;
    Ref *bound; /* where group i begins, and all ends; 1-D */
    Ref w;      /* matrices, one a group */
    Expr *wide;
} Groups;

static Ref one_group(const Groups *q, int i, Ref rows, Ref with)
{
    Onnx *o = q->o;
    if (q->inner) return unsqueeze(o, bin(o, "MatMul", rows, with), 0);
    if (i < q->count)
        return bin(o, "MatMul", rows, squeeze(o, slice(o, q->w, 0, INTS(o, i), INTS(o, i + 1), 1), 0));
    Ref left = slice(o, NODE(o, "Shape", DT_I64, rows), 0, INTS(o, 0), INTS(o, 1), 1), wide = size_of(o, q->wide);
    attr_int(o, "axis", 0);
    Ref shape = NODE(o, "Concat", DT_I64, left, wide);
    return NODE(o, "Expand", rows.t, number(o, rows.t, 0), shape);
}

/* Many groups are split and put together in steps, so that no size is a long sum. */
static Ref groups(const Groups *q, int from, int to, Ref rows, Ref with)
{
    enum { AT_ONCE = 16 };
    Onnx *o = q->o;
    if (to - from == 1) return one_group(q, from, rows, with);
    int step = 1, n = 0;
    while ((to - from + step - 1) / step > AT_ONCE) step *= AT_ONCE;
    Ref length[AT_ONCE], part[AT_ONCE], other[AT_ONCE];
    for (int i = from; i < to; i += step) {
        int end = i + step < to ? i + step : to;
        length[n++] = bin(o, "Sub", q->bound[end], q->bound[i]);
    }
    attr_int(o, "axis", 0);
    Ref lengths = node_of(o, "Concat", DT_I64, n, length);
    split(o, rows, q->inner ? 1 : 0, lengths, n, part);
    if (q->inner) split(o, with, 0, lengths, n, other);
    for (int k = 0, i = from; k < n; k++, i += step)
        part[k] = groups(q, i, i + step < to ? i + step : to, part[k], q->inner ? other[k] : with);
    attr_int(o, "axis", 0);
    return node_of(o, "Concat", rows.t, n, part);
}

void out_grouped_mm(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *a = arg_v(n, 0), *b = arg_v(n, 1), *offs = arg_v(n, 2);
    bool inner = b->rank == 2;
    Expr *count = inner || ex_is_int(offs->dim[0]) ? offs->dim[0] : b->dim[0];
    if (!ex_is_int(count) || count->i < inner || count->i > MAX_GROUPS) {
        refuse(o, "as many products as there are groups are written: their count must be a constant of at most %d",
               MAX_GROUPS);
        return;
    }
    Ref x = worked(o, "MatMul", arg_ref(o, n, 0)), w = worked(o, "MatMul", arg_ref(o, n, 1)),
        end = cast(o, arg_ref(o, n, 2), DT_I64);
    Groups q = {o, inner, (int)count->i, arena_array(o->a, Ref, count->i + 2), w, b->dim[b->rank - 1]};
    if (!q.bound) {
        out_of_memory(o);
        return;
    }
    q.bound[0] = INTS(o, 0);
    for (int i = 0; i < q.count; i++) q.bound[i + 1] = slice(o, end, 0, INTS(o, i), INTS(o, i + 1), 1);
    if (inner) { /* what comes after the last group is in none */
        Ref all = q.bound[q.count], first = slice(o, x, 1, q.bound[0], all, 1),
            second = slice(o, w, 0, q.bound[0], all, 1);
        give(o, n, 0, groups(&q, 0, q.count, first, second));
        return;
    }
    q.bound[q.count + 1] = size_of(o, a->dim[0]);
    give(o, n, 0, groups(&q, 0, q.count + 1, x, w));
}

/* Does v come from the inverse of a quantizer to bytes? */
static bool from_bytes(const Value *v)
{
    while (v->def && (v->def->op->id == OP_reshape || v->def->op->id == OP_permute)) v = v->def->arg[0].v;
    return v->def && v->def->op->id == OP_dequantize_linear && dtype_size(v->def->arg[0].v->dtype) == 1;
}

/* The bias of a product of more than two axes. ONNX Runtime (1.31) makes a Gemm between reshapes of MatMul and Add with
 * a vector, and moves quantizers in front of it beyond the reshape: without a product of integers, and from opset 21 on
 * as QuantizeLinear of two types, which it refuses. A bias of two axes it leaves. */
static Ref bias_of(Onnx *o, const Node *n, Ref bias)
{
    const Value *b = arg_v(n, 2);
    return b && b->rank == 1 && (for_ort(o) || o->opt.opset >= HAS_BLOCKS) && from_bytes(arg_v(n, 0))
               ? unsqueeze(o, bias, 0)
               : bias;
}

void out_linear(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0), *w = arg_v(n, 1);
    if (out_nbits(o, n)) return;
    Ref x = worked(o, "MatMul", arg_ref(o, n, 0)), weight = worked(o, "MatMul", arg_ref(o, n, 1)),
        bias = worked(o, "MatMul", arg_ref(o, n, 2));
    if (v->rank == 2 && w->rank == 2 && dtype_is_float(x.t)) {
        attr_int(o, "transB", 1);
        give(o, n, 0, NODE(o, "Gemm", x.t, x, weight, bias));
        return;
    }
    Ref matrix = transpose(o, weight, w->rank, (int64_t[]){1, 0});
    Ref y = bin(o, "MatMul", x, matrix_for(o, v, w, matrix));
    give(o, n, 0, *bias.name ? bin(o, "Add", y, bias_of(o, n, bias)) : y);
}

/* ------------------------------------------------------------------ convolution */

void out_convolution(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0), *w = arg_v(n, 1);
    int64_t stride[32], padding[32], dilation[32], extra[32], pads[64];
    bool transposed = arg_b(n, 6), batched = v->rank == w->rank;
    int axes = w->rank - 2, ns = arg_ints_of(o, n, 3, stride), np = arg_ints_of(o, n, 4, padding),
        nd = arg_ints_of(o, n, 5, dilation), ne = arg_ints_of(o, n, 7, extra);
    for (int i = 0; i < axes; i++) {
        if (ns < axes) stride[i] = stride[0];
        if (np < axes) padding[i] = padding[0];
        if (nd < axes) dilation[i] = dilation[0];
        if (ne < axes) extra[i] = ne ? extra[0] : 0;
        pads[i] = pads[axes + i] = padding[i];
    }
    const char *op = transposed ? "ConvTranspose" : "Conv";
    Ref x = worked(o, op, arg_ref(o, n, 0)), weight = worked(o, op, arg_ref(o, n, 1)),
        bias = worked(o, op, arg_ref(o, n, 2));
    if (!batched) x = unsqueeze(o, x, 0);
    int64_t groups = arg_i(o, n, 8, 1);
    attr_ints(o, "strides", axes, stride);
    attr_ints(o, "pads", 2 * axes, pads);
    attr_ints(o, "dilations", axes, dilation);
    attr_int(o, "group", groups);
    if (transposed) attr_ints(o, "output_padding", axes, extra);
    Ref y = NODE(o, op, x.t, x, weight, bias);
    give(o, n, 0, batched ? y : squeeze(o, y, 0));
}

/* ------------------------------------------------------------------ norms */

static Ref filled(Onnx *o, DType t, double v, int rank, Expr *const *dim)
{
    return NODE(o, "Expand", t, number(o, t, v), shape_of(o, rank, dim));
}

/* (x - mean) / sqrt(var + eps) over axes. */
static Ref standardised(Onnx *o, Ref x, int n, const int64_t *axis, double eps)
{
    Ref d = bin(o, "Sub", x, reduce(o, "ReduceMean", x, n, axis, true)),
        var = reduce(o, "ReduceMean", bin(o, "Mul", d, d), n, axis, true);
    return bin(o, "Div", d, un(o, "Sqrt", bin(o, "Add", var, like(o, var, eps))));
}

void out_layer_norm(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    int axes = n->arg[1].n;
    int64_t axis[MAX_RANK];
    Ref x = worked(o, "LayerNormalization", arg_ref(o, n, 0)), w = arg_ref(o, n, 2), b = arg_ref(o, n, 3);
    double eps = arg_f(o, n, 4, 1e-5);
    if (x.t == DT_F64 || o->opt.opset < 17) { /* the op's statistics are float32; it came with opset 17 */
        for (int i = 0; i < axes; i++) axis[i] = v->rank - axes + i;
        if (x.t != DT_F64) x = cast(o, x, DT_F32);
        if (*w.name) w = cast(o, w, x.t);
        if (*b.name) b = cast(o, b, x.t);
        Ref y = standardised(o, x, axes, axis, eps);
        if (*w.name) y = bin(o, "Mul", y, w);
        give(o, n, 0, *b.name ? bin(o, "Add", y, b) : y);
        return;
    }
    w = *w.name ? cast(o, w, x.t) : filled(o, x.t, 1, axes, v->dim + v->rank - axes);
    if (*b.name) b = cast(o, b, x.t);
    attr_int(o, "axis", -axes);
    attr_float(o, "epsilon", eps);
    give(o, n, 0, NODE(o, "LayerNormalization", x.t, x, w, b));
}

void out_rms_norm(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    int axes = n->arg[1].n;
    int64_t axis[MAX_RANK];
    Ref x = arg_ref(o, n, 0), w = arg_ref(o, n, 2);
    bool half = x.t == DT_F16 || x.t == DT_BF16;
    double eps = arg_f(o, n, 3, dtype_epsilon(half ? DT_F32 : x.t));
    if (o->opt.opset >= 23 && o->opt.profile == ONNX_FOR_SPEC && x.t != DT_F64) {
        w = *w.name ? cast(o, w, x.t) : filled(o, x.t, 1, axes, v->dim + v->rank - axes);
        attr_int(o, "axis", -axes);
        attr_float(o, "epsilon", eps);
        give(o, n, 0, NODE(o, "RMSNormalization", x.t, x, w));
        return;
    }
    if (half) x = cast(o, x, DT_F32);
    for (int i = 0; i < axes; i++) axis[i] = v->rank - axes + i;
    Ref ms = reduce(o, "ReduceMean", bin(o, "Mul", x, x), axes, axis, true);
    Ref y = bin(o, "Mul", x, un(o, "Reciprocal", un(o, "Sqrt", bin(o, "Add", ms, like(o, ms, eps)))));
    give(o, n, 0, *w.name ? bin(o, "Mul", y, cast(o, w, y.t)) : y);
}

/* A list over channels beside (N, C, ...). */
static Ref beside_channels(Onnx *o, Ref w, int rank)
{
    int64_t shape[MAX_RANK];
    if (rank <= 2) return w;
    shape[0] = -1;
    for (int i = 1; i < rank - 1; i++) shape[i] = 1;
    return NODE(o, "Reshape", w.t, w, ints(o, rank - 1, shape));
}

static Ref affine(Onnx *o, Ref y, Ref w, Ref b, int rank)
{
    if (*w.name) y = bin(o, "Mul", y, beside_channels(o, cast(o, w, y.t), rank));
    return *b.name ? bin(o, "Add", y, beside_channels(o, cast(o, b, y.t), rank)) : y;
}

void out_group_norm(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    Ref x = arg_ref(o, n, 0), w = arg_ref(o, n, 2), b = arg_ref(o, n, 3);
    int64_t groups = arg_i(o, n, 1, 1);
    double eps = arg_f(o, n, 4, 1e-5);
    if (o->opt.opset >= 21 && x.t != DT_F64 && x.t != DT_BF16 && v->rank > 2 && o->opt.profile == ONNX_FOR_SPEC) {
        w = *w.name ? cast(o, w, x.t) : filled(o, x.t, 1, 1, &v->dim[1]);
        b = *b.name ? cast(o, b, x.t) : filled(o, x.t, 0, 1, &v->dim[1]);
        attr_int(o, "num_groups", groups);
        attr_float(o, "epsilon", eps);
        give(o, n, 0, NODE(o, "GroupNormalization", x.t, x, w, b));
        return;
    }
    if (x.t == DT_F16 || x.t == DT_BF16) x = cast(o, x, DT_F32);
    bool written_out = x.t == DT_F64;
    for (int i = 0; i < v->rank; i++) written_out |= ex_equals_int(v->dim[i], 0); /* which ends ONNX Runtime */
    if (v->rank > 2 && ex_equals_int(v->dim[1], groups) && !written_out) {
        w = *w.name ? cast(o, w, x.t) : filled(o, x.t, 1, 1, &v->dim[1]);
        b = *b.name ? cast(o, b, x.t) : filled(o, x.t, 0, 1, &v->dim[1]);
        attr_float(o, "epsilon", eps);
        give(o, n, 0, NODE(o, "InstanceNormalization", x.t, x, w, b));
        return;
    }
    Expr *rest = ex_floordiv(o->p, v->dim[1], ex_int(o->p, groups));
    for (int i = 2; i < v->rank; i++) rest = ex_mul(o->p, rest, v->dim[i]);
    Ref y = reshape(o, x, v->rank, v->dim, 3, (Expr *[]){v->dim[0], ex_int(o->p, groups), rest});
    if (written_out) {
        y = standardised(o, y, 1, (int64_t[]){2}, eps);
    } else {
        Expr *g = ex_int(o->p, groups);
        Ref one = filled(o, x.t, 1, 1, &g), zero = filled(o, x.t, 0, 1, &g);
        attr_float(o, "epsilon", eps);
        y = NODE(o, "InstanceNormalization", x.t, y, one, zero);
    }
    y = to_shape(o, y, v->rank, v->dim);
    give(o, n, 0, affine(o, y, w, b, v->rank));
}

void out_batch_norm(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    Ref x = arg_ref(o, n, 0), w = arg_ref(o, n, 1), b = arg_ref(o, n, 2), mean = arg_ref(o, n, 3),
        var = arg_ref(o, n, 4);
    double eps = arg_f(o, n, 7, 1e-5);
    bool half = x.t == DT_F16 || x.t == DT_BF16;
    if (half) x = cast(o, x, DT_F32);
    if (arg_b(n, 5) || !*mean.name) {
        int64_t axis[MAX_RANK];
        int k = 0;
        for (int i = 0; i < v->rank; i++)
            if (i != 1) axis[k++] = i;
        give(o, n, 0, affine(o, standardised(o, x, k, axis, eps), w, b, v->rank));
        return;
    }
    w = *w.name ? cast(o, w, x.t) : filled(o, x.t, 1, 1, &v->dim[1]);
    b = *b.name ? cast(o, b, x.t) : filled(o, x.t, 0, 1, &v->dim[1]);
    mean = cast(o, mean, x.t);
    var = cast(o, var, x.t);
    if (x.t == DT_F64) { /* epsilon is a float32 there */
        Ref d = bin(o, "Sub", x, beside_channels(o, mean, v->rank)),
            s = un(o, "Sqrt", bin(o, "Add", var, like(o, var, eps)));
        give(o, n, 0, affine(o, bin(o, "Div", d, beside_channels(o, s, v->rank)), w, b, v->rank));
        return;
    }
    attr_float(o, "epsilon", eps);
    give(o, n, 0, NODE(o, "BatchNormalization", x.t, x, w, b, mean, var));
}

/* ------------------------------------------------------------------ rotary positions */

void out_rotary(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    const Value *v = arg_v(n, 0);
    ExprPool *p = o->p;
    Expr *D = v->dim[v->rank - 1], *half = ex_floordiv(p, D, ex_int(p, 2));
    bool pairs = arg_b(n, 3);
    Ref x = arg_ref(o, n, 0), cos_sin[2] = {arg_ref(o, n, 1), arg_ref(o, n, 2)}, turned;
    if (x.t == DT_F16 || x.t == DT_BF16) x = cast(o, x, DT_F32);
    for (int i = 0; i < 2; i++) {
        const Value *c = arg_v(n, 1 + i);
        cos_sin[i] = cast(o, cos_sin[i], x.t);
        if (c->dim[c->rank - 1] == D) continue; /* half as many angles: each is of two elements */
        Ref r = cos_sin[i], part[2] = {r, r};
        if (pairs) {
            Expr *twice[MAX_RANK];
            for (int k = 0; k < c->rank; k++) twice[k] = c->dim[k];
            twice[c->rank - 1] = D;
            for (int k = 0; k < 2; k++) part[k] = unsqueeze(o, r, c->rank);
            attr_int(o, "axis", c->rank);
            r = node_of(o, "Concat", x.t, 2, part);
            cos_sin[i] = to_shape(o, r, c->rank, twice);
        } else {
            attr_int(o, "axis", c->rank - 1);
            cos_sin[i] = node_of(o, "Concat", x.t, 2, part);
        }
    }
    Ref part[2];
    if (pairs) { /* (a, b) -> (-b, a) */
        Expr *split[MAX_RANK + 1];
        for (int k = 0; k < v->rank - 1; k++) split[k] = v->dim[k];
        split[v->rank - 1] = half;
        split[v->rank] = ex_int(p, 2);
        Ref y = reshape(o, x, v->rank, v->dim, v->rank + 1, split);
        part[0] = un(o, "Neg", slice(o, y, v->rank, INTS(o, 1), INTS(o, 2), 1));
        part[1] = slice(o, y, v->rank, INTS(o, 0), INTS(o, 1), 1);
        attr_int(o, "axis", v->rank);
        turned = node_of(o, "Concat", x.t, 2, part);
        turned = reshape(o, turned, v->rank + 1, split, v->rank, v->dim);
    } else {
        part[0] = un(o, "Neg", slice(o, x, v->rank - 1, size_of(o, half), INTS(o, INT64_MAX), 1));
        part[1] = slice(o, x, v->rank - 1, INTS(o, 0), size_of(o, half), 1);
        attr_int(o, "axis", v->rank - 1);
        turned = node_of(o, "Concat", x.t, 2, part);
    }
    give(o, n, 0, bin(o, "Add", bin(o, "Mul", x, cos_sin[0]), bin(o, "Mul", turned, cos_sin[1])));
}

/* ------------------------------------------------------------------ recurrent layers */

/* Blocks of the first axis in another order, with an axis of one direction in front. */
static Ref reordered(Onnx *o, Ref w, int blocks, const int *order, int64_t size)
{
    Ref part[4];
    if (!*w.name) return w;
    for (int i = 0; i < blocks; i++)
        part[i] = slice(o, w, 0, INTS(o, order[i] * size), INTS(o, (order[i] + 1) * size), 1);
    if (blocks > 1) {
        attr_int(o, "axis", 0);
        w = node_of(o, "Concat", w.t, blocks, part);
    }
    return unsqueeze(o, w, 0);
}

/* The linear over all steps that made the gates, through a swap of batch and time; NULL when something else did. */
static const Node *gates_from(const Value *gates, bool *swapped)
{
    const Node *n = gates->def;
    *swapped = n && n->op->id == OP_permute && gates->rank == 3 && n->arg[0].kind == ARG_VALUE;
    if (*swapped) {
        const Arg *perm = &n->arg[1];
        if (perm->es[0]->i != 1 || perm->es[1]->i != 0) return NULL;
        n = n->arg[0].v->def;
    }
    return n && n->op->id == OP_linear && n->arg[0].v->rank == 3 ? n : NULL;
}

void out_recurrent(Onnx *o, const Node *n, const char *text)
{
    static const int lstm_order[] = {0, 3, 1, 2}, gru_order[] = {1, 0, 2},
                     plain_order[] = {0}; /* i f g o -> i o f c; r z n -> z r h */
    bool lstm = !strcmp(text, "lstm"), swapped = false;
    const char *kind = lstm ? "lstm" : arg_s(n, 4, "tanh");
    bool gru = !strcmp(kind, "gru");
    int blocks = lstm ? 4 : gru ? 3 : 1;
    const int *order = lstm ? lstm_order : gru ? gru_order : plain_order;
    const Value *w = arg_v(n, 1), *gates = arg_v(n, 0);
    const Node *made = gates_from(gates, &swapped);
    if (!ex_is_int(w->dim[0]) || (lstm && given(n, 5))) {
        refuse(o, "a hidden size that varies");
        return;
    }
    int64_t size = w->dim[0]->i / blocks;
    Ref x, wx, bx = none(), bh = arg_ref(o, n, 2), wh = arg_ref(o, n, 1);
    if (made) {
        x = ref(o, made->arg[0].v);
        if (swapped) x = transpose(o, x, 3, (int64_t[]){1, 0, 2});
        wx = ref(o, made->arg[1].v);
        bx = arg_ref(o, made, 2);
    } else { /* the gates are the input, and W gives them back */
        Ref i = positions(o, INTS(o, blocks * size));
        x = arg_ref(o, n, 0);
        wx = cast(o, NODE(o, "Equal", DT_BOOL, unsqueeze(o, i, 0), unsqueeze(o, i, 1)), x.t);
    }
    Ref bias = none();
    if (*bx.name || *bh.name) {
        Ref zero = NODE(o, "Expand", x.t, number(o, x.t, 0), INTS(o, 1, blocks * size)), part[2] = {zero, zero};
        if (*bx.name) part[0] = reordered(o, bx, blocks, order, size);
        if (*bh.name) part[1] = reordered(o, bh, blocks, order, size);
        attr_int(o, "axis", 1);
        bias = node_of(o, "Concat", x.t, 2, part);
    }
    Ref W = reordered(o, wx, blocks, order, size), R = reordered(o, wh, blocks, order, size),
        h = unsqueeze(o, arg_ref(o, n, 3), 0), c = lstm ? unsqueeze(o, arg_ref(o, n, 4), 0) : none();
    bool reverse = arg_b(n, lstm ? 6 : 5),
         flipped = reverse &&
                   o->opt.profile == ONNX_FOR_OPENVINO; /* it confuses two layers that differ in direction alone */
    if (flipped) x = slice(o, x, 0, INTS(o, -1), INTS(o, INT64_MIN), -1);
    attr_int(o, "hidden_size", size);
    if (reverse && !flipped) attr_str(o, "direction", "reverse");
    if (gru) attr_int(o, "linear_before_reset", 1);
    if (!strcmp(kind, "relu")) {
        static const char *const relu[] = {"Relu"};
        attr_strs(o, "activations", 1, relu);
    }
    Ref out[3];
    DType types[3] = {x.t, DT_NONE, x.t};
    nodes_of(o,
             lstm  ? "LSTM"
             : gru ? "GRU"
                   : "RNN",
             lstm ? 3 : 1, types, out, lstm ? 7 : 6, (Ref[]){x, W, R, bias, none(), h, c});
    out[0] = squeeze(o, out[0], 1);
    give(o, n, 0, flipped ? slice(o, out[0], 0, INTS(o, -1), INTS(o, INT64_MIN), -1) : out[0]);
    if (lstm) give(o, n, 1, squeeze(o, out[2], 0));
}
