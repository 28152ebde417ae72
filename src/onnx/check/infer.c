/* Types and sizes of ONNX nodes. Contract in onnx_infer.h. Element types follow from the schema;
 * sizes by families of ops (onnx_infer_view.c, onnx_infer_layers.c). */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/number.h"
#include "onnx/check/infer_impl.h"

OnnxShape onnx_shape_unknown(void) { return (OnnxShape){.kind = ONNX_KIND_NONE, .rank = -1, .n = -1}; }

OnnxShape *onnx_shape_keep(Check *c, const OnnxShape *s)
{
    size_t bytes = offsetof(OnnxShape, dim) + (size_t)(s->rank > 0 ? s->rank : 0) * sizeof *s->dim;
    OnnxShape *copy = arena_alloc(c->arena, 1, bytes);
    if (copy) memcpy(copy, s, bytes);
    c->failed |= !copy;
    return copy;
}

/* A copy to change, of one that may be kept. */
OnnxShape infer_copy(const OnnxShape *s)
{
    OnnxShape c = {.kind = s->kind, .elem = s->elem, .rank = s->rank, .n = s->n, .data = s->data};
    for (int i = 0; i < s->rank; i++) c.dim[i] = s->dim[i];
    return c;
}

bool infer_among(const char *name, const char *list)
{
    size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p += n)
        if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ' ')) return n > 0;
    return false;
}

void infer_refuse(OnnxInfer *f, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    text_vprintf(text, sizeof text, fmt, args);
    va_end(args);
    check_add(f->c, Q(204), f->place, "%s", text);
    f->bad = true;
}

/* ------------------------------------------------------------------ reading a node */

int64_t infer_int(const OnnxInfer *f, const char *name, int64_t otherwise)
{
    const OnnxAttr *a = onnx_attr(f->node, name);
    return a && a->type == ONNX_ATTR_INT && !*a->ref ? a->i : otherwise;
}

const OnnxAttr *infer_ints(const OnnxInfer *f, const char *name)
{
    const OnnxAttr *a = onnx_attr(f->node, name);
    return a && a->type == ONNX_ATTR_INTS ? a : NULL;
}

bool infer_is(const OnnxInfer *f, const char *name, const char *text)
{
    const OnnxAttr *a = onnx_attr(f->node, name);
    return a && a->type == ONNX_ATTR_STRING && !*a->ref && !strcmp(a->s, text);
}

/* An axis in -rank .. rank - 1, normalised; -1 after a finding. */
int infer_axis(OnnxInfer *f, int64_t axis, int rank)
{
    if (axis < -rank || axis >= rank) {
        infer_refuse(f, "axis %lld of %d axes", (long long)axis, rank);
        return -1;
    }
    return (int)(axis < 0 ? axis + rank : axis);
}

/* Elements of input i as integers; -1 when they are not all known. */
int infer_numbers(const OnnxInfer *f, int i, int64_t *v, int cap)
{
    const OnnxShape *s = input(f, i);
    if (!s || s->n < 0 || s->n > cap) return -1;
    for (int k = 0; k < s->n; k++) {
        if (!is_number(s->data[k])) return -1;
        v[k] = s->data[k].v;
    }
    return s->n;
}

/* "axes" as attribute or as input `i`; -1: not given, -2: not known. */
int infer_axes(const OnnxInfer *f, int i, int64_t *v)
{
    const OnnxAttr *a = infer_ints(f, "axes");
    if (a) {
        if (a->n > MAX_RANK) return -2;
        memcpy(v, a->ints, (size_t)a->n * sizeof *v);
        return a->n;
    }
    if (i >= f->node->ninput || !*f->node->input[i]) return -1;
    int n = infer_numbers(f, i, v, MAX_RANK);
    return n < 0 ? -2 : n;
}

/* ------------------------------------------------------------------ giving results */

static OnnxSize *data_room(OnnxInfer *f, int n)
{
    OnnxSize *d = n <= ONNX_FOLLOWED ? arena_array(f->c->arena, OnnxSize, n + 1) : NULL;
    f->c->failed |= !d && n <= ONNX_FOLLOWED;
    return d;
}

void infer_give_data(OnnxInfer *f, int n, const OnnxSize *data)
{
    OnnxShape *o = output(f, 0);
    OnnxSize *d = o ? data_room(f, n) : NULL;
    if (!d) return;
    memcpy(d, data, (size_t)n * sizeof *d);
    o->n = n;
    o->data = d;
}

/* ------------------------------------------------------------------ element types */

static bool in_set(const OnnxTypes *t, const OnnxShape *s)
{
    uint64_t bits = s->kind == ONNX_TENSOR || s->kind == ONNX_SPARSE ? t->tensor
                    : s->kind == ONNX_SEQUENCE                       ? t->sequence
                    : s->kind == ONNX_OPTIONAL                       ? t->optional | t->optional_sequence
                                                                     : ~0ull;
    if (s->kind == ONNX_MAP || s->kind == ONNX_OPAQUE) return t->other;
    return s->elem == ONNX_UNDEFINED ? bits != 0 : s->elem > 63 || (bits >> s->elem & 1);
}

static int only_type(const OnnxTypes *t)
{
    if (t->sequence || t->optional || t->optional_sequence || t->other || !t->tensor || (t->tensor & (t->tensor - 1)))
        return ONNX_UNDEFINED;
    return __builtin_ctzll(t->tensor);
}

typedef struct Bound {
    char name[16];
    int kind, elem, from;
} Bound;

static const char *kind_name(int kind)
{
    return kind == ONNX_SEQUENCE ? "a sequence of " : kind == ONNX_OPTIONAL ? "an optional " : "";
}

static void infer_types(OnnxInfer *f)
{
    Bound bound[16];
    int n = 0;
    OnnxParam p;
    for (int i = 0; i < f->node->ninput; i++) {
        const OnnxShape *s = input(f, i);
        if (!s || s->kind == ONNX_KIND_NONE || !onnx_param(f->schema->in, i, &p)) continue;
        const OnnxTypes *t = onnx_types(f->schema, p.type);
        if (t && !in_set(t, s)) {
            check_add(f->c, Q(205), f->place, "input %d, '%.100s', is %s%s, which %s does not take there", i,
                      f->node->input[i], kind_name((int)s->kind), onnx_type_name(s->elem), f->node->op);
            f->bad = true;
            continue;
        }
        if (p.option == '~' || s->elem == ONNX_UNDEFINED) continue;
        int k = 0;
        while (k < n && strcmp(bound[k].name, p.type)) k++;
        if (k == n && n < 16) {
            bound[n] = (Bound){.kind = (int)s->kind, .elem = s->elem, .from = i};
            memcpy(bound[n++].name, p.type, sizeof p.type);
        } else if (k < n && (bound[k].elem != s->elem || bound[k].kind != (int)s->kind)) {
            check_add(f->c, Q(205), f->place, "input %d is %s and input %d is %s; %s wants one type", bound[k].from,
                      onnx_type_name(bound[k].elem), i, onnx_type_name(s->elem), f->node->op);
            f->bad = true;
        }
    }
    for (int k = 0; k < f->node->noutput; k++) {
        if (!onnx_param(f->schema->out, k, &p) || p.option == '~') continue;
        const OnnxTypes *t = onnx_types(f->schema, p.type);
        OnnxShape *o = &f->out[k];
        int only = t ? only_type(t) : ONNX_UNDEFINED;
        for (int b = 0; b < n; b++)
            if (!strcmp(bound[b].name, p.type)) {
                o->kind = (OnnxKind)bound[b].kind;
                o->elem = bound[b].elem;
            }
        if (o->kind == ONNX_KIND_NONE && only != ONNX_UNDEFINED) {
            o->kind = ONNX_TENSOR;
            o->elem = only;
        }
        if (o->kind == ONNX_KIND_NONE && t && t->tensor && !t->sequence && !t->optional && !t->other)
            o->kind = ONNX_TENSOR;
    }
}

static void set_elem(OnnxInfer *f, int k, int64_t elem)
{
    OnnxShape *o = output(f, k);
    if (!o) return;
    OnnxParam p;
    const OnnxTypes *t = onnx_param(f->schema->out, k, &p) ? onnx_types(f->schema, p.type) : NULL;
    if (elem <= 0 || elem > 63 || (t && !(t->tensor >> elem & 1))) {
        check_add(f->c, Q(120), f->place, "element type %lld, which %s does not give", (long long)elem, f->node->op);
        f->bad = true;
        return;
    }
    o->kind = ONNX_TENSOR;
    o->elem = (int)elem;
}

/* Results whose type is an attribute's or another input's. */
static void infer_odd_types(OnnxInfer *f)
{
    const char *op = f->node->op;
    const OnnxAttr *value;
    if (!strcmp(op, "Cast") && f->opset >= 6 && onnx_attr(f->node, "to") && !*onnx_attr(f->node, "to")->ref)
        set_elem(f, 0, infer_int(f, "to", 0));
    else if (infer_among(op, "CastLike RandomUniformLike RandomNormalLike EyeLike Bernoulli")) {
        int from = strcmp(op, "CastLike") ? 0 : 1;
        if (onnx_attr(f->node, "dtype")) set_elem(f, 0, infer_int(f, "dtype", 0));
        else if (input(f, from) && input(f, from)->elem) set_elem(f, 0, input(f, from)->elem);
    } else if (infer_among(op, "RandomUniform RandomNormal")) set_elem(f, 0, infer_int(f, "dtype", ONNX_FLOAT));
    else if (!strcmp(op, "ConstantOfShape")) {
        value = onnx_attr(f->node, "value");
        set_elem(f, 0, value && value->t ? value->t->type : ONNX_FLOAT);
    } else if (!strcmp(op, "QuantizeLinear")) {
        int64_t to = infer_int(f, "output_dtype", 0);
        if (to) set_elem(f, 0, to);
        else if (!input(f, 2) && f->node->ninput < 3) set_elem(f, 0, ONNX_UINT8);
    } else if (infer_among(op, "HannWindow HammingWindow BlackmanWindow"))
        set_elem(f, 0, infer_int(f, "output_datatype", ONNX_FLOAT));
}

/* ------------------------------------------------------------------ sizes */

bool infer_broadcast_into(OnnxInfer *f, OnnxShape *into, const OnnxShape *s)
{
    int rank = into->rank > s->rank ? into->rank : s->rank;
    OnnxSize d[MAX_RANK];
    for (int i = 0; i < rank; i++) {
        int a = i - (rank - into->rank), b = i - (rank - s->rank);
        OnnxSize x = a < 0 ? number(1) : into->dim[a], y = b < 0 ? number(1) : s->dim[b];
        if (differ(x, y) && x.v != 1 && y.v != 1) {
            infer_refuse(f, "axis %d from the end: sizes %lld and %lld do not broadcast", rank - i, (long long)x.v,
                         (long long)y.v);
            return false;
        }
        if (is_one(x)) d[i] = y;
        else if (is_one(y)) d[i] = x;
        else if (is_number(x)) d[i] = x;
        else if (is_number(y)) d[i] = y;
        else d[i] = x.kind == SIZE_SYMBOL && y.kind == SIZE_SYMBOL && x.v == y.v ? x : unknown();
    }
    into->rank = rank;
    memcpy(into->dim, d, (size_t)rank * sizeof *d);
    return true;
}

static void infer_broadcast(OnnxInfer *f, int from, int count)
{
    OnnxShape out = {.rank = 0};
    for (int i = from; i < from + count && i < f->node->ninput; i++) {
        if (!*f->node->input[i]) continue;
        if (!ranked(f, i)) return;
        if (!infer_broadcast_into(f, &out, input(f, i))) return;
    }
    give(f, 0, out.rank, out.dim);
}

static void infer_arithmetic(OnnxInfer *f)
{
    infer_broadcast(f, 0, 2);
    const OnnxShape *a = input(f, 0), *b = input(f, 1);
    OnnxSize d[ONNX_FOLLOWED];
    if (!a || !b || a->n < 0 || b->n < 0 || (a->n != b->n && a->n != 1 && b->n != 1) ||
        !infer_among(f->node->op, "Add Sub Mul Div"))
        return;
    int n = a->n > b->n ? a->n : b->n;
    for (int i = 0; i < n; i++) {
        OnnxSize x = a->data[a->n == 1 ? 0 : i], y = b->data[b->n == 1 ? 0 : i];
        int64_t v = 0;
        bool ok = is_number(x) && is_number(y);
        char op = f->node->op[0];
        if (ok && op == 'A') ok = add_i64(x.v, y.v, &v);
        else if (ok && op == 'S') ok = !__builtin_sub_overflow(x.v, y.v, &v);
        else if (ok && op == 'M') ok = mul_i64(x.v, y.v, &v);
        else if (ok && (ok = y.v != 0 && y.v != -1)) v = x.v / y.v;
        d[i] = ok ? number(v) : op == 'M' && is_one(y) ? x : op == 'M' && is_one(x) ? y : unknown();
    }
    infer_give_data(f, n, d);
}

/* Product of known sizes; false when one is unknown. */
bool infer_numel(int rank, const OnnxSize *d, int64_t *out)
{
    *out = 1;
    for (int i = 0; i < rank; i++)
        if (!is_number(d[i]) || !mul_i64(*out, d[i].v, out)) return false;
    return true;
}

static void infer_sizes(OnnxInfer *f)
{
    static const char same[] =
        "Abs Acos Acosh Asin Asinh Atan Atanh Bernoulli BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh CumProd "
        "CumSum DequantizeLinear Elu Erf Exp EyeLike Floor Gelu HardSigmoid HardSwish "
        "Hardmax Identity IsInf IsNaN LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg Not "
        "QuantizeLinear RandomNormalLike RandomUniformLike Reciprocal Relu ReverseSequence "
        "RotaryEmbedding Round ScatterElements ScatterND Scatter Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus "
        "Softsign Sqrt Swish Tan Tanh TensorScatter ThresholdedRelu Trilu GroupNormalization "
        "InstanceNormalization LRN QuickGelu FastGelu BiasGelu SkipLayerNormalization SkipSimplifiedLayerNormalization";
    const char *op = f->node->op;
    bool plain = !*f->schema->domain || !strcmp(op, "FlexAttention");
    if (infer_among(op, same)) {
        give_same(f, 0, 0);
        if (infer_among(op, "Identity Cast") && input(f, 0) && input(f, 0)->n >= 0)
            infer_give_data(f, input(f, 0)->n, input(f, 0)->data);
        if (infer_among(op, "Softmax LogSoftmax Hardmax") && ranked(f, 0))
            infer_axis(f, infer_int(f, "axis", f->opset < 13 ? 1 : -1), input(f, 0)->rank ? input(f, 0)->rank : 1);
        return;
    }
    if (!plain) return;
    if (infer_among(op, "Add Sub Mul Div Pow PRelu And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual Mod "
                        "BitShift BitwiseAnd BitwiseOr BitwiseXor") &&
        f->opset >= 7)
        infer_arithmetic(f);
    else if (infer_among(op, "Max Min Sum Mean Where") && f->opset >= 8) infer_broadcast(f, 0, f->node->ninput);
    else if (infer_among(op, "MatMul MatMulInteger")) infer_op_matmul(f, 0, 1);
    else if (!strcmp(op, "QLinearMatMul")) infer_op_matmul(f, 0, 3);
    else if (!strcmp(op, "Gemm")) infer_op_gemm(f);
    else if (!strcmp(op, "Transpose")) infer_op_transpose(f);
    else if (!strcmp(op, "Concat")) infer_op_concat(f);
    else if (!strcmp(op, "Reshape")) infer_op_reshape(f);
    else if (!strcmp(op, "Squeeze")) infer_op_squeeze(f, false);
    else if (!strcmp(op, "Unsqueeze")) infer_op_squeeze(f, true);
    else if (!strcmp(op, "Gather")) infer_op_gather(f);
    else if (!strcmp(op, "GatherElements")) give_same(f, 0, 1);
    else if (!strncmp(op, "Reduce", 6) || infer_among(op, "ArgMax ArgMin")) infer_op_reduce(f);
    else if (!strcmp(op, "Slice")) infer_op_slice(f);
    else if (!strcmp(op, "Split")) infer_op_split(f);
    else if (!strcmp(op, "Expand")) infer_op_expand(f);
    else if (infer_among(op, "Conv ConvInteger")) infer_op_conv(f, false);
    else if (!strcmp(op, "GridSample")) infer_op_grid(f);
    else if (infer_among(op, "MaxPool AveragePool LpPool")) infer_op_conv(f, true);
    else if (!strcmp(op, "Shape")) infer_op_shape_of(f);
    else if (!strcmp(op, "Size")) give_rank(f, 0, 0);
    else if (!strcmp(op, "Constant")) infer_op_constant(f);
    else if (!strcmp(op, "ConstantOfShape")) infer_op_from_sizes(f);
    else if (infer_among(op, "LayerNormalization RMSNormalization BatchNormalization")) infer_op_norm(f);
    else if (!strcmp(op, "Attention")) infer_op_attention(f);
    else if (!strcmp(op, "TopK")) infer_op_topk(f);
    else if (!strcmp(op, "Flatten")) infer_op_flatten(f);
    else if (infer_among(op, "Pad Tile")) infer_op_pad_tile(f);
    else if (!strcmp(op, "Resize") && f->opset >= 10) infer_op_resize(f);
    else if (infer_among(op, "RNN LSTM GRU")) infer_op_rnn(f);
    else if (!strcmp(op, "Einsum")) infer_op_einsum(f);
    else if (infer_among(op, "SpaceToDepth DepthToSpace")) infer_op_depth(f, *op == 'D');
    else if (infer_among(op, "GlobalMaxPool GlobalAveragePool GlobalLpPool")) infer_op_global_pool(f);
    else if (infer_among(op, "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss")) infer_op_loss(f);
    else if (!strcmp(op, "StringConcat")) infer_broadcast(f, 0, 2);
    else if (!strcmp(op, "Unique")) infer_op_unique(f);
    else if (!strcmp(op, "Dropout")) {
        give_same(f, 0, 0);
        give_same(f, 1, 0);
        for (int i = 1; i < 3; i++)
            if (ranked(f, i) && input(f, i)->rank)
                infer_refuse(f, "input %d has %d axes, a number is needed", i, input(f, i)->rank);
    } else if (!strcmp(op, "Range")) give_rank(f, 0, 1);
    else if (!strcmp(op, "NonZero")) give_rank(f, 0, 2);
    else if (!strcmp(op, "OneHot") && ranked(f, 0)) give_rank(f, 0, input(f, 0)->rank + 1);
    else infer_op_ranks(f);
}

void onnx_infer(OnnxInfer *f)
{
    infer_types(f);
    infer_odd_types(f);
    if (!f->bad) infer_sizes(f);
}

OnnxShape onnx_shape_of_tensor(Check *c, const OnnxTensor *t)
{
    OnnxShape s = onnx_shape_unknown();
    s.kind = ONNX_TENSOR;
    s.elem = t->type;
    s.rank = t->t.rank;
    for (int i = 0; i < s.rank; i++) s.dim[i] = number(t->t.shape[i]);
    bool integer = t->type == ONNX_INT64 || t->type == ONNX_INT32;
    int64_t n = integer ? tensor_numel(&t->t) : -1;
    if (!integer || s.rank > 1 || n > ONNX_FOLLOWED || (n && !t->t.data)) return s;
    s.data = arena_array(c->arena, OnnxSize, n + 1);
    if (!s.data) {
        c->failed = true;
        return s;
    }
    s.n = (int)n;
    for (int i = 0; i < s.n; i++) s.data[i] = number(tensor_get_i64(&t->t, i));
    return s;
}
