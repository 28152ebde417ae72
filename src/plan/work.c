/* Operations and bytes per step, by the word WORK of the op table. Contract in work.h. */
#include "plan/work.h"
#include <math.h>

/* How many operations an op makes: so many an element of its first result or first operand,
 * or by a formula of its own. */
typedef struct Rule {
    double per_result, per_operand;
    double (*formula)(const Call *c);
    bool takes_some; /* the first operand is a table of which only as much as the result has is read */
    bool set;        /* the row has the word; without it pointwise ops make 1 per result, others none */
    OpId op;
} Rule;

static double elements(const Tensor *t) { return t ? (double)tensor_numel(t) : 0; }
static double size_at(const Tensor *t, int from_end)
{
    return t && t->rank >= from_end ? (double)t->shape[t->rank - from_end] : 1;
}

/* out (..., N) = input (..., K) weight^T; also matmul, whose K is the last axis of its first operand, too. */
static double product(const Call *c) { return 2 * elements(call_out(c, 0)) * size_at(call_in(c, 0), 1); }

/* Every result is a dot product with a row of the weight, which is a matrix. */
static double windows(const Call *c) { return 2 * elements(call_out(c, 0)) * size_at(call_in(c, 3), 1); }

/* Each row of the first operand (of either form) once with all columns of the second. */
static double grouped(const Call *c)
{
    const Tensor *b = call_in(c, 1);
    return 2 * elements(call_in(c, 0)) * size_at(b, 1);
}

/* Every element of the smaller side of a plain convolution's products is a dot product over C / groups and the
 * kernel; transposed, of the input's. */
static double convolution(const Call *c)
{
    const Tensor *w = call_in(c, 1);
    if (!w || !w->shape[0]) return 0;
    bool transposed = call_bool(c, 6);
    double per = elements(w) / (double)w->shape[0];
    return 2 * per * elements(transposed ? call_in(c, 0) : call_out(c, 0));
}

/* Pairs (i, j) of N queries and M keys with i + lower <= j <= i + upper. */
static double pairs(int64_t N, int64_t M, int64_t lower, int64_t upper)
{
    double sum = 0;
    for (int64_t i = 0; i < N; i++) {
        int64_t first = i + lower > 0 ? i + lower : 0, last = i + upper < M - 1 ? i + upper : M - 1;
        sum += last >= first ? (double)(last - first + 1) : 0;
    }
    return sum;
}

/* 2.5 log2 n for each real of the larger side, along each dim: the count that is usual for the radix 2 transform */
static double fft(const Call *c)
{
    double in = elements(call_in(c, 0)), out = elements(call_out(c, 0)), sum = 0;
    const Tensor *x = in > out ? call_in(c, 0) : call_out(c, 0);
    int64_t dim[MAX_RANK];
    int n = call_ints(c, 1, dim, MAX_RANK);
    for (int i = 0; i < n; i++) sum += x->shape[dim[i]] > 1 ? 2.5 * log2((double)x->shape[dim[i]]) : 0;
    return sum * (in > out ? in : out);
}

enum { FAR = 1 << 30 };

static int64_t bound_or(const Call *c, int i, int64_t far)
{
    int64_t v = call_i64_or(c, i, far);
    return v < -FAR ? -FAR : v > FAR ? FAR : v;
}

/* Pairs of a query and a key over all heads; arguments: the query, the key, is_causal, lower. */
static double attention_pairs(const Call *c, int query, int causal, int lower)
{
    const Tensor *q = call_in(c, query), *k = call_in(c, query + 1);
    int64_t upper = bound_or(c, lower + 1, FAR);
    if (call_bool(c, causal) && upper > 0) upper = 0;
    return (double)q->shape[0] * (double)q->shape[1] * pairs(q->shape[2], k->shape[2], bound_or(c, lower, -FAR), upper);
}

static double attention(const Call *c)
{
    return 2 * attention_pairs(c, 0, 5, 9) * (size_at(call_in(c, 0), 1) + size_at(call_in(c, 2), 1));
}
static double attention_lse(const Call *c)
{
    return 2 * attention_pairs(c, 0, 4, 7) * (size_at(call_in(c, 0), 1) + size_at(call_in(c, 2), 1));
}

/* Scores, dq and dk; dP and dv. */
static double attention_backward(const Call *c)
{
    return 2 * attention_pairs(c, 1, 7, 10) * (3 * size_at(call_in(c, 1), 1) + 2 * size_at(call_in(c, 3), 1));
}

/* (query, key, value, attn_mask, scale_p, zero_p, dtype_p, scale, softcap, lower, upper) */
static double attention_quantized(const Call *c)
{
    const Tensor *q = call_in(c, 0), *k = call_in(c, 1);
    double seen = pairs(q->shape[2], k->shape[2], bound_or(c, 9, -FAR), bound_or(c, 10, FAR));
    return 2 * (double)q->shape[0] * (double)q->shape[1] * seen * (size_at(q, 1) + size_at(call_in(c, 2), 1));
}

/* Rows of sequence b are between offsets b and b + 1; q is (rows, H, D). */
static double attention_ragged(const Call *c)
{
    const Tensor *q = call_in(c, 0), *v = call_in(c, 2), *qo = call_in(c, 3), *ko = call_in(c, 4);
    double sum = 0;
    for (int64_t b = 0; b + 1 < tensor_numel(qo); b++)
        sum += pairs(tensor_get_i64(qo, b + 1) - tensor_get_i64(qo, b),
                     tensor_get_i64(ko, b + 1) - tensor_get_i64(ko, b), bound_or(c, 8, -FAR), bound_or(c, 9, FAR));
    return 2 * sum * size_at(q, 2) * (size_at(q, 1) + size_at(v, 1));
}

/* Gates (..., T, 4 H or H) come ready; each step multiplies the hidden state with the recurrent weight. */
static double recurrent(const Call *c)
{
    const Tensor *gates = call_in(c, 0), *w = call_in(c, 1);
    return 2 * elements(gates) * size_at(w, 1);
}

static double pooled(const Call *c)
{
    double window = 1;
    int64_t k[3];
    int n = call_ints(c, 1, k, 3);
    for (int i = 0; i < n; i++) window *= (double)k[i];
    return window * elements(call_out(c, 0));
}

#define WORK(kind, x) .set = true, WORK_##kind(x)
#define WORK_result(x) .per_result = x,
#define WORK_operand(x) .per_operand = x,
#define WORK_picked(x) .per_result = x, .takes_some = true,
#define WORK_formula(x) .formula = x,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
static const Rule rules[OP_COUNT] = {
#include "op/ops.def"
};

/* Elements in memory: an axis of stride 0 is one element long. */
static double bytes_of(const Tensor *t)
{
    if (!t) return 0;
    double n = (double)dtype_size(t->dtype);
    for (int i = 0; i < t->rank; i++) n *= t->stride[i] || !t->shape[i] ? (double)t->shape[i] : 1;
    return n;
}

static bool is_half(const Tensor *t) { return t && (t->dtype == DT_BF16 || t->dtype == DT_F16); }

/* What a packed weight of few bits takes less than its plain elements and scales (kernel/blocks.h). */
static double unpacked(const Call *c)
{
    return bytes_of(call_in(c, 2)) * (1 - (double)call_i64(c, 6) / 8) + bytes_of(call_in(c, 3)) / 2;
}

Work work_of(const Call *c)
{
    Rule r = rules[c->node->op->id];
    if (!r.set && c->node->op->flags & OPF_POINTWISE) r.per_result = 1;
    const Tensor *out = c->nout ? call_out(c, 0) : NULL, *first = NULL;
    Work w = {0};
    for (int i = 0; i < c->node->op->schema->nparams; i++) {
        const CallArg *a = &c->arg[i];
        for (int k = 0; k < (a->kind == ARG_VALUE ? 1 : a->kind == ARG_VALUES ? a->n : 0); k++) {
            const Tensor *t = a->kind == ARG_VALUE ? a->t : a->ts[k];
            bool some = r.takes_some && !first;
            if (!first) first = t;
            w.bytes += some ? bytes_of(out) : bytes_of(t);
        }
    }
    for (int i = 0; i < c->nout; i++) w.bytes += bytes_of(c->out[i]);
    if (c->node->op->id == OP_linear_blocks) w.bytes -= unpacked(c);
    w.bytes += bytes_of(c->epilogue.residual);
    if (!out) return w;
    w.flops = r.formula ? r.formula(c) : r.per_result * elements(out) + r.per_operand * elements(first);
    w.flops += elements(out) * ((c->epilogue.act != ACT_NONE) + (c->epilogue.residual != NULL));
    w.half = r.formula && is_half(first);
    return w;
}
