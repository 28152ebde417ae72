/* Sizes of ONNX ops that compute: products, reductions, convolutions, norms, attention, recurrent layers. */
#include "onnx/check/infer_impl.h"

/* Inputs i and k as factors. */
void infer_op_matmul(OnnxInfer *f, int i, int k)
{
    if (!ranked(f, i) || !ranked(f, k)) return;
    OnnxShape a = infer_copy(input(f, i)), b = infer_copy(input(f, k));
    if (!a.rank || !b.rank) {
        infer_refuse(f, "a product with a scalar: both inputs need an axis");
        return;
    }
    OnnxSize x = a.dim[a.rank - 1], y = b.dim[b.rank > 1 ? b.rank - 2 : 0];
    if (differ(x, y)) {
        infer_refuse(f, "the inner sizes are %lld and %lld", (long long)x.v, (long long)y.v);
        return;
    }
    OnnxSize tail[2];
    int n = 0;
    if (a.rank > 1) tail[n++] = a.dim[a.rank - 2];
    if (b.rank > 1) tail[n++] = b.dim[b.rank - 1];
    a.rank = a.rank > 2 ? a.rank - 2 : 0;
    b.rank = b.rank > 2 ? b.rank - 2 : 0;
    if (!infer_broadcast_into(f, &a, &b) || a.rank + n > MAX_RANK) return;
    memcpy(a.dim + a.rank, tail, (size_t)n * sizeof *tail);
    give(f, 0, a.rank + n, a.dim);
}

void infer_op_gemm(OnnxInfer *f)
{
    if (!ranked(f, 0) || !ranked(f, 1)) return;
    const OnnxShape *a = input(f, 0), *b = input(f, 1);
    if (a->rank != 2 || b->rank != 2) {
        infer_refuse(f, "ranks %d and %d; Gemm takes matrices", a->rank, b->rank);
        return;
    }
    bool ta = infer_int(f, "transA", 0) != 0, tb = infer_int(f, "transB", 0) != 0;
    OnnxSize inner = a->dim[!ta], other = b->dim[tb], out[2] = {a->dim[ta], b->dim[!tb]};
    if (differ(inner, other))
        infer_refuse(f, "the inner sizes are %lld and %lld", (long long)inner.v, (long long)other.v);
    give(f, 0, 2, out);
}

void infer_op_reduce(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    int64_t v[MAX_RANK];
    bool at[MAX_RANK] = {0}, arg = !strncmp(f->node->op, "Arg", 3);
    OnnxSize d[MAX_RANK];
    if (!x || x->rank < 0) return;
    int n = arg ? 1 : infer_axes(f, 1, v), m = 0;
    if (arg) v[0] = infer_int(f, "axis", 0);
    bool keep = infer_int(f, "keepdims", 1) == 1;
    if (n == -2) {
        if (keep) give_rank(f, 0, x->rank);
        return;
    }
    if (n <= 0 && infer_int(f, "noop_with_empty_axes", 0)) {
        give_same(f, 0, 0);
        return;
    }
    for (int i = 0; i < n; i++) {
        int k = infer_axis(f, v[i], x->rank);
        if (k < 0) return;
        at[k] = true;
    }
    for (int i = 0; i < x->rank; i++)
        if (!at[i] && n > 0) d[m++] = x->dim[i];
        else if (keep) d[m++] = number(1);
    give(f, 0, m, d);
}

void infer_op_conv(OnnxInfer *f, bool pool)
{
    const OnnxShape *x = input(f, 0), *w = pool ? NULL : input(f, 1);
    if (!x || x->rank < 0 || (!pool && (!w || w->rank < 0))) return;
    if (x->rank < 3 || (!pool && w->rank != x->rank)) {
        infer_refuse(f, pool ? "an input of %d axes; at least 3 are needed" : "an input of %d axes and weights of %d",
                     x->rank, w ? w->rank : 0);
        return;
    }
    int n = x->rank - 2;
    const OnnxAttr *kernel = infer_ints(f, "kernel_shape"), *stride = infer_ints(f, "strides"),
                   *dilation = infer_ints(f, "dilations"), *pads = infer_ints(f, "pads"),
                   *how = onnx_attr(f->node, "auto_pad");
    const char *pad = how && how->type == ONNX_ATTR_STRING ? how->s : "NOTSET";
    OnnxSize d[MAX_RANK];
    int64_t group = infer_int(f, "group", 1);
    if ((kernel && kernel->n != n) || (stride && stride->n != n) || (dilation && dilation->n != n) ||
        (pads && pads->n != 2 * n)) {
        infer_refuse(f, "kernel_shape, strides, dilations or pads do not fit %d axes", n);
        return;
    }
    int64_t channels;
    if (!pool && is_number(w->dim[1]) && is_number(x->dim[1]) &&
        (!mul_i64(w->dim[1].v, group, &channels) || channels != x->dim[1].v))
        infer_refuse(f, "%lld channels for weights of %lld in %lld groups", (long long)x->dim[1].v,
                     (long long)w->dim[1].v, (long long)group);
    d[0] = x->dim[0];
    d[1] = pool ? x->dim[1] : w->dim[0];
    for (int i = 0; i < n; i++) {
        OnnxSize size = x->dim[i + 2], k = kernel ? number(kernel->ints[i]) : w ? w->dim[i + 2] : unknown();
        int64_t s = stride ? stride->ints[i] : 1, dil = dilation ? dilation->ints[i] : 1, p = 0, reach;
        d[i + 2] = unknown();
        if (pads && !add_i64(pads->ints[i], pads->ints[i + n], &p)) continue;
        if (s <= 0 || dil <= 0) {
            infer_refuse(f, "stride %lld and dilation %lld", (long long)s, (long long)dil);
            return;
        }
        if (!is_number(size) || !is_number(k) || infer_int(f, "ceil_mode", 0)) continue;
        if (p > ONNX_LARGEST || p < -ONNX_LARGEST || s > ONNX_LARGEST || k.v < 0 || k.v > ONNX_LARGEST ||
            !mul_i64(dil, k.v, &reach) || reach > ONNX_LARGEST)
            continue;
        int64_t span = size.v + p - dil * (k.v - 1) - 1;
        if (!strncmp(pad, "SAME", 4)) d[i + 2] = number((size.v + s - 1) / s);
        else if (span < 0)
            infer_refuse(f, "the kernel reaches over %lld elements, the input has %lld",
                         (long long)(dil * (k.v - 1) + 1), (long long)(size.v + p));
        else d[i + 2] = number(span / s + 1);
    }
    give(f, 0, x->rank, d);
    if (pool) give(f, 1, x->rank, d); /* where the largest were */
}

void infer_op_grid(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *grid = input(f, 1);
    OnnxSize d[MAX_RANK];
    if (!x || !grid || x->rank < 0 || grid->rank < 0) return;
    if (x->rank < 3 || grid->rank != x->rank) {
        infer_refuse(f, "an input of %d axes and a grid of %d", x->rank, grid->rank);
        return;
    }
    memcpy(d, x->dim, 2 * sizeof *d);
    for (int i = 2; i < x->rank; i++) d[i] = grid->dim[i - 1];
    give(f, 0, x->rank, d);
}

void infer_op_norm(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0);
    give_same(f, 0, 0);
    if (!x || x->rank < 0) return;
    if (!strcmp(f->node->op, "BatchNormalization")) {
        bool training = f->opset < 14 || infer_int(f, "training_mode", 0);
        if (f->opset >= 14 && f->node->noutput > (training ? 3 : 1))
            infer_refuse(f, "%d outputs; outside training it has one", f->node->noutput);
        if (f->opset >= 14 && f->node->noutput == 2) infer_refuse(f, "2 outputs; it has one, or three in training");
        for (int k = 1; k < f->node->noutput; k++)
            give(f, k, 1, &(OnnxSize){x->rank > 1 ? x->dim[1].kind : SIZE_UNKNOWN, x->rank > 1 ? x->dim[1].v : 0});
        for (int k = 1; k < 5 && x->rank > 1; k++)
            if (ranked(f, k) && (input(f, k)->rank != 1 || differ(input(f, k)->dim[0], x->dim[1])))
                infer_refuse(f, "input %d is not a list of one value per channel", k);
        return;
    }
    int axis = infer_axis(f, infer_int(f, "axis", -1), x->rank);
    for (int k = 1; k < f->node->noutput && axis >= 0;
         k++) { /* mean and deviation: 1 along the axes that are normalised */
        give_same(f, k, 0);
        for (int i = axis; i < x->rank; i++) f->out[k].dim[i] = number(1);
    }
}

void infer_op_resize(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *scales = input(f, f->opset < 11 ? 1 : 2),
                    *sizes = f->opset < 11 ? NULL : input(f, 3);
    bool has_scales = scales && !(scales->rank == 1 && is_number(scales->dim[0]) && !scales->dim[0].v),
         axes = infer_ints(f, "axes") != NULL;
    if (f->opset >= 11 && has_scales && sizes) infer_refuse(f, "both scales and sizes are given");
    if (f->opset >= 11 && f->node->ninput < 3) infer_refuse(f, "neither scales nor sizes are given");
    for (int k = 0; k < 2; k++) {
        const OnnxShape *s = k ? sizes : has_scales ? scales : NULL;
        if (!s || s->rank < 0) continue;
        if (s->rank != 1) infer_refuse(f, "%s have %d axes", k ? "sizes" : "scales", s->rank);
        else if (x && x->rank >= 0 && !axes && is_number(s->dim[0]) && s->dim[0].v != x->rank)
            infer_refuse(f, "%lld %s for %d axes", (long long)s->dim[0].v, k ? "sizes" : "scales", x->rank);
    }
    if (!x || x->rank < 0) return;
    give_rank(f, 0, x->rank);
    if (sizes && sizes->n == x->rank && !axes && !infer_is(f, "keep_aspect_ratio_policy", "not_larger") &&
        !infer_is(f, "keep_aspect_ratio_policy", "not_smaller"))
        give(f, 0, x->rank, sizes->data);
}

/* Y (steps, directions, batch, hidden), then the last states. */
void infer_op_rnn(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *w = input(f, 1), *r = input(f, 2);
    for (int i = 0; i < 3; i++)
        if (ranked(f, i) && input(f, i)->rank != 3) {
            infer_refuse(f, "input %d has %d axes, 3 are needed", i, input(f, i)->rank);
            return;
        }
    if (!x || x->rank < 0) return;
    bool last = infer_int(f, "layout", 0) != 0;
    int64_t hidden = infer_int(f, "hidden_size", 0), directions = infer_is(f, "direction", "bidirectional") ? 2 : 1;
    OnnxSize h = hidden > 0          ? number(hidden)
                 : r && r->rank == 3 ? r->dim[2]
                                     : unknown(),
             d = number(directions), steps = x->dim[last], batch = x->dim[!last];
    if (w && w->rank == 3 && differ(w->dim[0], d))
        infer_refuse(f, "weights of %lld directions, the node has %lld", (long long)w->dim[0].v, (long long)directions);
    give(f, 0, 4, last ? (OnnxSize[]){batch, steps, d, h} : (OnnxSize[]){steps, d, batch, h});
    for (int k = 1; k < 3; k++) give(f, k, 3, last ? (OnnxSize[]){batch, d, h} : (OnnxSize[]){d, batch, h});
}

/* Letters of a term in order; false for what cannot be followed: "...", or a rank that does not fit. */
static bool einsum_term(OnnxInfer *f, const char **p, int i, OnnxSize *of, bool *known)
{
    const OnnxShape *x = input(f, i);
    int k = 0;
    for (; **p && **p != ',' && !(**p == '-' && (*p)[1] == '>'); (*p)++) {
        if (**p == ' ') continue;
        if (!((**p >= 'a' && **p <= 'z') || (**p >= 'A' && **p <= 'Z')) || !x || x->rank < 0) return false;
        if (k == x->rank) {
            infer_refuse(f, "the equation gives input %d more than its %d axes", i, x->rank);
            return false;
        }
        int letter = **p & 0x7f;
        if (known[letter] && differ(of[letter], x->dim[k]) && of[letter].v != 1 && x->dim[k].v != 1) {
            infer_refuse(f, "'%c' is %lld and %lld", letter, (long long)of[letter].v, (long long)x->dim[k].v);
            return false;
        }
        if (!known[letter] || (is_one(of[letter]) || !is_number(of[letter]))) of[letter] = x->dim[k];
        known[letter] = true;
        k++;
    }
    if (x && x->rank >= 0 && k != x->rank)
        infer_refuse(f, "the equation gives input %d %d axes, it has %d", i, k, x->rank);
    return x && k == x->rank;
}

void infer_op_einsum(OnnxInfer *f)
{
    const OnnxAttr *a = onnx_attr(f->node, "equation");
    OnnxSize of[128], d[MAX_RANK];
    bool known[128] = {0};
    int n = 0, i = 0;
    if (!a || a->type != ONNX_ATTR_STRING) return;
    const char *p = a->s, *arrow = strstr(p, "->");
    if (!arrow || strchr(p, '.')) return; /* letters that occur once, in order; broadcast axes: not followed */
    for (;; p++, i++) {
        if (i >= f->node->ninput) {
            infer_refuse(f, "the equation has more terms than there are inputs");
            return;
        }
        if (!einsum_term(f, &p, i, of, known)) return;
        if (*p != ',') break;
    }
    if (i + 1 != f->node->ninput) {
        infer_refuse(f, "%d inputs for %d terms", f->node->ninput, i + 1);
        return;
    }
    for (p = arrow + 2; *p; p++) {
        if (*p == ' ') continue;
        if (n == MAX_RANK || !known[*p & 0x7f]) {
            infer_refuse(f, "the equation's result has '%c', which no input has", *p);
            return;
        }
        d[n++] = of[*p & 0x7f];
    }
    give(f, 0, n, d);
}

/* One value per axis after the channels. */
void infer_op_global_pool(OnnxInfer *f)
{
    give_same(f, 0, 0);
    OnnxShape *o = output(f, 0);
    for (int i = 2; o && i < o->rank; i++) o->dim[i] = number(1);
}

void infer_op_loss(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *t = input(f, 1);
    bool none = infer_is(f, "reduction", "none");
    if (x && x->rank >= 0 && x->rank < 2) infer_refuse(f, "scores of %d axes, at least 2 are needed", x->rank);
    else if (x && t && x->rank >= 0 && t->rank >= 0) {
        if (t->rank != x->rank - 1) infer_refuse(f, "targets of %d axes for scores of %d", t->rank, x->rank);
        for (int i = 0; i < t->rank && t->rank == x->rank - 1; i++)
            if (differ(t->dim[i], x->dim[i ? i + 1 : 0]))
                infer_refuse(f, "axis %d of the targets is %lld, of the scores %lld", i, (long long)t->dim[i].v,
                             (long long)x->dim[i ? i + 1 : 0].v);
    }
    if (f->bad) return;
    if (!none) give_rank(f, 0, 0);
    else give_same(f, 0, 1);
    if (f->node->noutput > 1) give_same(f, 1, 0);
}

/* Y has Q's sizes, but for the head size, which is V's. */
void infer_op_attention(OnnxInfer *f)
{
    const OnnxShape *q = input(f, 0), *k = input(f, 1), *v = input(f, 2);
    int64_t heads = infer_int(f, "q_num_heads", 0), kv = infer_int(f, "kv_num_heads", 0);
    if (!q || q->rank < 0 || !k || k->rank < 0 || !v || v->rank < 0) return;
    if (q->rank != k->rank || q->rank != v->rank || (q->rank != 3 && q->rank != 4)) {
        infer_refuse(f, "Q, K and V have %d, %d and %d axes; all have 3, or all have 4", q->rank, k->rank, v->rank);
        return;
    }
    if (q->rank == 3 && (heads <= 0 || kv <= 0 || heads > 1 << 20 || kv > 1 << 20)) {
        infer_refuse(f, "with 3 axes, q_num_heads and kv_num_heads must be above 0: %lld and %lld", (long long)heads,
                     (long long)kv);
        return;
    }
    int last = q->rank - 1;
    OnnxSize d[4] = {q->dim[0], q->dim[1], q->dim[2], v->dim[last]}, hq = q->rank == 4 ? q->dim[1] : number(heads),
             hk = k->rank == 4 ? k->dim[1] : number(kv);
    if (is_number(hq) && is_number(hk) && hk.v > 0 && hq.v % hk.v)
        infer_refuse(f, "%lld query heads do not divide among %lld", (long long)hq.v, (long long)hk.v);
    if (q->rank == 4 && differ(q->dim[3], k->dim[3]))
        infer_refuse(f, "queries have head size %lld, keys %lld", (long long)q->dim[3].v, (long long)k->dim[3].v);
    if (q->rank == 3) {
        if (is_number(q->dim[2]) && q->dim[2].v % heads)
            infer_refuse(f, "%lld channels do not divide among %lld heads", (long long)q->dim[2].v, (long long)heads);
        d[2] = is_number(v->dim[2]) ? number(v->dim[2].v / kv * heads) : unknown();
    }
    give(f, 0, q->rank, d);
    for (int i = 1; i < 4; i++) give_rank(f, i, 4); /* present keys and values, scores */
    const OnnxNode *n = f->node;
    bool key = n->noutput > 1 && *n->output[1], value = n->noutput > 2 && *n->output[2], past = input(f, 4) != NULL,
         past_value = input(f, 5) != NULL;
    if (key != value && past) infer_refuse(f, "present_key and present_value are given together or not at all");
    if (past != past_value) infer_refuse(f, "past_key and past_value are given together or not at all");
    const OnnxShape *p = input(f, 4), *next = NULL;
    for (int i = 0; i < 2; i++) {
        p = input(f, 4 + i);
        next = i ? v : k;
        if (p && p->rank >= 0 && p->rank != 4)
            infer_refuse(f, "past_%s has %d axes, 4 are needed", i ? "value" : "key", p->rank);
        OnnxShape *o = output(f, 1 + i);
        if (!o || o->rank != 4) continue;
        o->dim[0] = next->dim[0];
        o->dim[1] = hk;
        OnnxSize length = next->rank == 4 ? next->dim[2] : next->dim[1], before = p && p->rank == 4 ? p->dim[2]
                                                                                  : past            ? unknown()
                                                                                                    : number(0);
        o->dim[2] = is_number(length) && is_number(before) ? number(length.v + before.v) : unknown();
        o->dim[3] = next->rank == 4 ? next->dim[3] : is_number(next->dim[2]) ? number(next->dim[2].v / kv) : unknown();
    }
}

void infer_op_topk(OnnxInfer *f)
{
    const OnnxShape *x = input(f, 0), *k = input(f, 1);
    if (!x || x->rank < 0) return;
    int axis = infer_axis(f, infer_int(f, "axis", -1), x->rank);
    if (axis < 0) return;
    for (int i = 0; i < 2; i++) {
        give_same(f, i, 0);
        if (output(f, i)) output(f, i)->dim[axis] = k && k->n == 1 ? k->data[0] : unknown();
    }
    if (k && k->n == 1 && is_number(k->data[0]) && is_number(x->dim[axis]) && k->data[0].v > x->dim[axis].v)
        infer_refuse(f, "the largest %lld of %lld", (long long)k->data[0].v, (long long)x->dim[axis].v);
}

void infer_op_unique(OnnxInfer *f)
{
    bool flat = !onnx_attr(f->node, "axis");
    if (flat) give_rank(f, 0, 1);
    else if (ranked(f, 0) && infer_axis(f, infer_int(f, "axis", 0), input(f, 0)->rank) >= 0)
        give_rank(f, 0, input(f, 0)->rank);
    for (int k = 1; k < 4; k++) give_rank(f, k, 1);
}

/* Ops whose result has its input's rank and other sizes; the ranks that their inputs must have, "3 3 1" ('-': any). */
void infer_op_ranks(OnnxInfer *f)
{
    static const char *const needs[][2] = {{"CausalConvWithState", "331"},
                                           {"FlexAttention", "444"},
                                           {"RoiAlign", "421"},
                                           {"LinearAttention", "333"},
                                           {"DFT", ""},
                                           {"BitCast", ""},
                                           {"MaxUnpool", ""},
                                           {"SwiGLU", ""},
                                           {"ConvTranspose", ""}};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        if (strcmp(needs[i][0], f->node->op)) continue;
        for (int k = 0; needs[i][1][k]; k++)
            if (ranked(f, k) && input(f, k)->rank != needs[i][1][k] - '0') {
                infer_refuse(f, "input %d has %d axes, %c are needed", k, input(f, k)->rank, needs[i][1][k]);
                return;
            }
        if (ranked(f, 0)) give_rank(f, 0, input(f, 0)->rank);
    }
}
