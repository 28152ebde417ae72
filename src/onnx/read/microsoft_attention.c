/* com.microsoft Attention, MultiHeadAttention, GroupQueryAttention and RotaryEmbedding. Contract in onnx_impl.h and
 * onnx_attention.h; meaning: onnxruntime/docs/ContribOperators.md and contrib_ops/cpu/bert, against whose kernels they
 * are tested.
 *
 * A masked key gets `mask_filter_value` added to its score (-10000), here as there: a row that is masked throughout
 * attends as if it were not.
 */
#include <string.h>
#include "onnx/read/attention.h"

static Expr *whole(OnnxOp *o, int64_t n) { return ex_int(o->ex, n); }

static Value *part(OnnxOp *o, Value *x, int axis, Expr *from, Expr *to)
{
    return x ? AS(&o->L, slice_Tensor, v(x), arg_int(o->g, axis), arg_expr(from), arg_expr(to), arg_int(o->g, 1))
             : NULL;
}

static Value *pick(OnnxOp *o, Value *x, int axis, int64_t i)
{
    return x ? AS(&o->L, select_int, v(x), arg_int(o->g, axis), arg_int(o->g, i)) : NULL;
}

static Value *join(OnnxOp *o, Value *a, Value *b, int axis)
{
    if (!a || !b) return b;
    return AS(&o->L, cat, arg_values(o->g, 2, (Value *[]){a, b}), arg_int(o->g, axis));
}

static Value *arange(OnnxOp *o, Expr *n) { return AS(&o->L, arange, arg_expr(n), arg_dtype(DT_I64)); }

/* ------------------------------------------------------------------ masks */

/* Key lengths (B), or lengths and starts (2 B), of keys (M): true where a key is there, (B, 1, 1, M). */
static Value *from_lengths(OnnxOp *o, Value *lengths, Expr *batch, Expr *keys, bool starts)
{
    Expr *one = whole(o, 1), *column[] = {batch, one, one, one};
    lengths = lower_cast(&o->L, lengths, DT_I64);
    Value *end = starts ? part(o, lengths, 0, whole(o, 0), batch) : lengths, *at = arange(o, keys);
    Value *ok = AS(&o->L, lt_Tensor, v(at), v(lower_reshape(&o->L, end, 4, column)));
    if (!starts) return ok;
    Value *start = part(o, lengths, 0, batch, ex_mul(o->ex, batch, whole(o, 2)));
    return both_masks(o, ok, AS(&o->L, ge_Tensor, v(at), v(lower_reshape(&o->L, start, 4, column))));
}

/* The forms of mask_index and key_padding_mask: (B), (2 B), (B, M), (B, N, M), (B, 1, L, L). */
static bool read_mask(OnnxOp *o, int input, const Attend *a, Value **out)
{
    Value *m;
    TRY(op_optional(o, input, &m));
    *out = NULL;
    if (!m) return true;
    Expr *batch = a->q->dim[0], *queries = a->q->dim[2], *keys = a->k->dim[2], *one = whole(o, 1);
    if (m->rank == 1) {
        bool twice = m->dim[0] == ex_mul(o->ex, batch, whole(o, 2));
        if (ex_is_int(m->dim[0]) && ex_is_int(batch) && m->dim[0]->i != batch->i && !twice)
            return op_unsupported(o, "a mask of %lld elements for a batch of %lld", (long long)m->dim[0]->i,
                                  (long long)batch->i);
        *out = from_lengths(o, m, batch, keys, twice);
        return *out != NULL;
    }
    Value *ok = m->dtype == DT_BOOL ? m : AS(&o->L, gt_Tensor, v(m), v(op_number(o, m->dtype, 0)));
    TRY(ok);
    if (m->rank == 2) ok = lower_reshape(&o->L, ok, 4, (Expr *[]){m->dim[0], one, one, m->dim[1]});
    else if (m->rank == 3) ok = lower_reshape(&o->L, ok, 4, (Expr *[]){m->dim[0], one, m->dim[1], m->dim[2]});
    else if (m->rank == 4) { /* the largest mask there is: the last queries, all keys */
        ok = part(o, part(o, ok, 2, ex_sub(o->ex, keys, queries), keys), 3, whole(o, 0), keys);
    } else return op_fail(o, input, "rank %d, expected 1 to 4", m->rank);
    *out = ok;
    return ok != NULL;
}

/* Everything that is added to scores: filled masks, causality, a bias. */
static bool masked(OnnxOp *o, Attend *a, Value *ok, Value *bias, bool causal, Expr *past, double fill)
{
    DType t = a->q->dtype;
    if (causal) a->upper = past;
    Value *all = ok ? additive_mask(o, ok, t, fill) : NULL;
    if (bias) all = both_masks(o, all, bias);
    a->mask = all;
    return all || (!ok && !bias);
}

/* ------------------------------------------------------------------ Attention */

/* (input, weights, bias, mask_index, past, attention_bias) -> output, present */
bool onnx_ms_attention(OnnxOp *o)
{
    Value *x, *w, *b, *past, *bias, *ok;
    Attend a = {0};
    int64_t heads, causal, rotary;
    const int64_t *sizes;
    int nsizes;
    double fill;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &w) && op_optional(o, 2, &b) && op_optional(o, 4, &past) &&
        op_optional(o, 5, &bias) && op_attr_int(o, "num_heads", 0, &heads) &&
        op_attr_int(o, "unidirectional", 0, &causal) && op_attr_int(o, "do_rotary", 0, &rotary) &&
        op_attr_ints(o, "qkv_hidden_sizes", &sizes, &nsizes) && op_attr_float(o, "scale", 0, &a.scale) &&
        op_attr_float(o, "mask_filter_value", -10000, &fill));
    if (rotary) return op_unsupported(o, "do_rotary");
    if (op_has(o, 6)) return op_unsupported(o, "past_sequence_length (a shared buffer)");
    if (x->rank != 3 || w->rank != 2)
        return op_fail(o, x->rank == 3, "rank %d, expected %d", x->rank == 3 ? w->rank : x->rank, x->rank == 3 ? 2 : 3);
    if (sizes && nsizes != 3)
        return fail(o->im->err, E_FORMAT, "attribute 'qkv_hidden_sizes' has %d elements, expected 3", nsizes);
    Value *qkv = AS(&o->L, matmul, v(x), v(w));
    if (b) qkv = AS(&o->L, add_Tensor, v(qkv), v(b));
    TRY(qkv);
    Expr *end[4] = {whole(o, 0)};
    for (int i = 0; i < 3; i++)
        end[i + 1] = sizes ? ex_add(o->ex, end[i], whole(o, sizes[i]))
                           : ex_floordiv(o->ex, ex_mul(o->ex, w->dim[1], whole(o, i + 1)), whole(o, 3));
    Value **to[] = {&a.q, &a.k, &a.v};
    for (int i = 0; i < 3; i++) TRY((*to[i] = part(o, qkv, 2, end[i], end[i + 1])) && split_heads(o, 0, heads, to[i]));
    Expr *length = whole(o, 0);
    if (past) {
        if (past->rank != 5) return op_fail(o, 4, "rank %d, expected 5", past->rank);
        length = past->dim[3];
        TRY((a.k = join(o, pick(o, past, 0, 0), a.k, 2)) && (a.v = join(o, pick(o, past, 0, 1), a.v, 2)));
    }
    TRY(read_mask(o, 3, &a, &ok) && masked(o, &a, ok, bias, causal != 0, length, fill));
    TRY(op_return(o, 0, merge_heads(o, attend(o, &a))));
    return !op_wants(o, 1) ||
           op_return(o, 1, AS(&o->L, stack, arg_values(o->g, 2, (Value *[]){a.k, a.v}), arg_int(o->g, 0)));
}

/* ------------------------------------------------------------------ MultiHeadAttention */

/* Query, key and value in one (B, N, H, 3, D), key and value in one (B, M, H, 2, D), or each alone. */
static bool unpack(OnnxOp *o, int64_t heads, Attend *a, Value *b)
{
    Value *key, *value, *q;
    TRY(op_tensor(o, 0, &q) && op_optional(o, 1, &key) && op_optional(o, 2, &value));
    Expr *none = whole(o, 0), *at[4] = {none};
    Value *bias[3] = {NULL};
    int swap[] = {0, 2, 1, 3};
    if (q->rank != 3 && q->rank != 5) return op_fail(o, 0, "rank %d, expected 3 or 5", q->rank);
    Expr *width = q->rank == 3 ? q->dim[2] : ex_mul(o->ex, q->dim[2], q->dim[4]);
    if (b) {
        at[1] = width;
        at[2] = ex_mul(o->ex, width, whole(o, 2));
        at[3] = b->dim[0];
        for (int i = 0; i < 3; i++) TRY(bias[i] = part(o, b, 0, at[i], at[i + 1]));
    }
    Value *three[3] = {q, key, value};
    if (q->rank == 5) {
        for (int i = 0; i < 3; i++) TRY(three[i] = pick(o, q, 3, i));
    } else if (key && key->rank == 5) {
        for (int i = 0; i < 2; i++) TRY(three[1 + i] = pick(o, key, 3, i));
    } else if (!key || !value) return op_fail(o, key ? 2 : 1, "left out");
    Value **to[] = {&a->q, &a->k, &a->v};
    for (int i = 0; i < 3; i++) {
        Value *t = three[i];
        bool spread = q->rank == 5 || (i && key->rank == 5),
             ready = !spread && t->rank == 4; /* (B, N, H, D); (B, H, N, D), of a cache */
        if (bias[i] && spread)
            TRY(t = AS(&o->L, add_Tensor, v(t), v(lower_reshape(&o->L, bias[i], 2, (Expr *[]){t->dim[2], t->dim[3]}))));
        if (bias[i] && !spread && !ready) TRY(t = AS(&o->L, add_Tensor, v(t), v(bias[i])));
        if (spread) TRY(t = lower_permute(&o->L, t, swap));
        *to[i] = t;
        TRY(split_heads(o, i, heads, to[i]));
    }
    return true;
}

bool onnx_ms_multi_head_attention(OnnxOp *o)
{
    Attend a = {0};
    Value *b, *bias, *past_k, *past_v, *ok;
    int64_t heads, causal;
    double fill;
    TRY(op_optional(o, 3, &b) && op_optional(o, 5, &bias) && op_optional(o, 6, &past_k) && op_optional(o, 7, &past_v) &&
        op_attr_int(o, "num_heads", 0, &heads) && op_attr_int(o, "unidirectional", 0, &causal) &&
        op_attr_float(o, "scale", 0, &a.scale) && op_attr_float(o, "mask_filter_value", -10000, &fill));
    if (op_has(o, 8) || op_has(o, 9))
        return op_unsupported(o, "past_sequence_length and cache_indirection (a shared buffer, beams)");
    if (op_wants(o, 3)) return op_unsupported(o, "output 3, the product of queries and keys");
    TRY(unpack(o, heads, &a, b));
    Expr *past = past_k ? past_k->dim[2] : whole(o, 0);
    TRY((a.k = join(o, past_k, a.k, 2)) && (a.v = join(o, past_v, a.v, 2)));
    TRY(read_mask(o, 4, &a, &ok) && masked(o, &a, ok, bias, causal != 0, past, fill));
    TRY(op_return(o, 0, merge_heads(o, attend(o, &a))));
    if (op_wants(o, 1)) TRY(op_return(o, 1, a.k));
    return !op_wants(o, 2) || op_return(o, 2, a.v);
}

/* ------------------------------------------------------------------ RotaryEmbedding */

/* (x, position_ids (1) or (B, N), cos, sin): one position is that of the first token. */
bool onnx_ms_rotary_embedding(OnnxOp *o)
{
    Value *x, *positions, *cos, *sin;
    int64_t interleaved, dim, heads, packed;
    double scale;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &positions) && op_tensor(o, 2, &cos) && op_tensor(o, 3, &sin) &&
        op_attr_int(o, "interleaved", 0, &interleaved) && op_attr_int(o, "rotary_embedding_dim", 0, &dim) &&
        op_attr_int(o, "num_heads", 0, &heads) && op_attr_int(o, "is_packed_batching", 0, &packed) &&
        op_attr_float(o, "scale", 1, &scale));
    if (packed || scale != 1) return op_unsupported(o, packed ? "is_packed_batching" : "a scale");
    if (cos->rank != 2 || sin->rank != 2)
        return op_fail(o, cos->rank == 2 ? 3 : 2, "rank %d, expected 2", cos->rank == 2 ? sin->rank : cos->rank);
    bool flat = x->rank == 3;
    if (flat && heads == 0) {
        Expr *n = ex_floordiv(o->ex, x->dim[2], ex_mul(o->ex, cos->dim[1], whole(o, 2)));
        if (!ex_is_int(n)) return op_unsupported(o, "a number of heads that depends on sizes");
        heads = n->i;
    }
    TRY(split_heads(o, 0, heads, &x));
    if (positions->rank == 1)
        TRY(positions = lower_reshape(
                &o->L, AS(&o->L, add_Tensor, v(arange(o, x->dim[2])), v(lower_cast(&o->L, positions, DT_I64))), 2,
                (Expr *[]){whole(o, 1), x->dim[2]}));
    Value *y = rotate(o, x, angles(o, cos, positions), angles(o, sin, positions), dim, interleaved != 0);
    return op_return(o, 0, flat ? merge_heads(o, y) : y);
}

/* ------------------------------------------------------------------ GroupQueryAttention */

/* past (B, H, P, D) and the new (B, H, N, D) in one of T positions, sample b's new ones from start[b] on. */
static Value *into_cache(OnnxOp *o, Value *past, Value *fresh, Value *at, Expr *total)
{
    Expr *batch = fresh->dim[0], *n = fresh->dim[2];
    Value *cache;
    int swap[] = {0, 2, 1, 3};
    if (past)
        cache = AS(
            &o->L, constant_pad_nd, v(past),
            arg_exprs(o->g, 4, (Expr *[]){whole(o, 0), whole(o, 0), whole(o, 0), ex_sub(o->ex, total, past->dim[2])}));
    else
        cache = AS(&o->L, full, arg_exprs(o->g, 4, (Expr *[]){batch, fresh->dim[1], total, fresh->dim[3]}),
                   arg_float(o->g, 0), arg_dtype(fresh->dtype));
    cache = lower_permute(&o->L, cache, swap);
    Value *rows = AS(&o->L, expand, v(lower_reshape(&o->L, arange(o, batch), 2, (Expr *[]){batch, whole(o, 1)})),
                     arg_exprs(o->g, 2, (Expr *[]){batch, n}));
    Value *new = lower_permute(&o->L, fresh, swap);
    if (!cache || !rows || !new) return NULL;
    cache = AS(&o->L, index_put, v(cache), arg_values(o->g, 2, (Value *[]){rows, at}), v(new), arg_bool(o->g, false));
    return lower_permute(&o->L, cache, swap);
}

typedef struct Grouped {
    int64_t heads, kv_heads, window, rotary, interleaved, smooth, causal;
    Value *past_k, *past_v, *cos, *sin, *positions, *bias, *sink;
} Grouped;

static bool read_grouped(OnnxOp *o, Grouped *g, Attend *a)
{
    Value *q, *k, *value;
    TRY(op_tensor(o, 0, &q) && op_optional(o, 1, &k) && op_optional(o, 2, &value) && op_optional(o, 3, &g->past_k) &&
        op_optional(o, 4, &g->past_v) && op_optional(o, 7, &g->cos) && op_optional(o, 8, &g->sin) &&
        op_optional(o, 9, &g->positions) && op_optional(o, 10, &g->bias) && op_optional(o, 11, &g->sink));
    TRY(op_attr_int(o, "num_heads", 0, &g->heads) && op_attr_int(o, "kv_num_heads", 0, &g->kv_heads) &&
        op_attr_int(o, "local_window_size", -1, &g->window) && op_attr_int(o, "do_rotary", 0, &g->rotary) &&
        op_attr_int(o, "rotary_interleaved", 0, &g->interleaved) && op_attr_int(o, "smooth_softmax", 0, &g->smooth) &&
        op_attr_int(o, "causal", 1, &g->causal) && op_attr_float(o, "scale", 0, &a->scale) &&
        op_attr_float(o, "softcap", 0, &a->softcap));
    for (int i = 12; i < 16; i++)
        if (op_has(o, i)) return op_unsupported(o, "input %d (a quantised cache, or norms of queries and keys)", i);
    if (op_wants(o, 3)) return op_unsupported(o, "output 3, the product of queries and keys");
    if (g->kv_heads < 1 || g->heads < 1 || g->heads > MAX_HEADS || g->heads % g->kv_heads)
        return fail(o->im->err, E_FORMAT,
                    "%lld heads of queries, %lld of keys: expected 1 to %d, and that the second divide the first",
                    (long long)g->heads, (long long)g->kv_heads, MAX_HEADS);
    if (q->rank != 3) return op_fail(o, 0, "rank %d, expected 3", q->rank);
    if (!k) { /* (B, N, (H + 2 Hkv) D) */
        Expr *size = ex_floordiv(o->ex, q->dim[2], whole(o, g->heads + 2 * g->kv_heads));
        Expr *first = ex_mul(o->ex, size, whole(o, g->heads)),
             *second = ex_mul(o->ex, size, whole(o, g->heads + g->kv_heads));
        value = part(o, q, 2, second, q->dim[2]);
        k = part(o, q, 2, first, second);
        q = part(o, q, 2, whole(o, 0), first);
        TRY(q && k && value);
    }
    if (!value) return op_fail(o, 2, "left out");
    if (!g->past_k != !g->past_v)
        return op_fail(o, g->past_k ? 4 : 3, "left out; past_key and past_value belong together");
    if (g->rotary && (!g->cos || !g->sin)) return op_fail(o, g->cos ? 8 : 7, "left out, but do_rotary is set");
    a->q = q;
    a->k = k;
    a->v = value;
    return split_heads(o, 0, g->heads, &a->q) && split_heads(o, 1, g->kv_heads, &a->k) &&
           split_heads(o, 2, g->kv_heads, &a->v);
}

bool onnx_ms_group_query_attention(OnnxOp *o)
{
    Attend a = {0};
    Grouped g = {0};
    Value *lengths;
    Expr **total;
    int n;
    TRY(read_grouped(o, &g, &a) && op_tensor(o, 5, &lengths) && op_sizes(o, 6, &n, &total));
    if (n != 1) return op_fail(o, 6, "%d elements, expected one value", n);
    Expr *batch = a.q->dim[0], *queries = a.q->dim[2], *one = whole(o, 1), *zero = whole(o, 0);
    Expr *keys = g.past_k ? ex_max(o->ex, g.past_k->dim[2], total[0]) : queries;
    if (!g.past_k)
        TRY(graph_require(o->g, ex_make(o->ex, EX_EQ, total[0], queries, NULL), o->im->err,
                          "node '%s': total_sequence_length is the number of queries, without a past", o->L.name));
    bool prompt = !g.past_k || ex_equals_int(g.past_k->dim[2], 0); /* nothing precedes the queries */
    /* seqlens_k is each sample's number of keys less 1; a prompt padded on the right starts at 0 all the same */
    Value *start = AS(&o->L, sub_Tensor,
                      v(lower_cast(&o->L, lower_reshape(&o->L, lengths, 2, (Expr *[]){batch, one}), DT_I64)),
                      arg_expr(ex_sub(o->ex, queries, one)));
    start = AS(&o->L, clamp_min, v(start), arg_int(o->g, 0));
    Value *at = AS(&o->L, add_Tensor, v(start), v(arange(o, queries)));
    TRY(at && (at = AS(&o->L, expand, v(at), arg_exprs(o->g, 2, (Expr *[]){batch, queries}))));
    if (g.rotary) {
        Value *where = g.positions ? g.positions : at, *cos = angles(o, g.cos, where), *sin = angles(o, g.sin, where);
        TRY(cos && sin);
        Expr *width = ex_mul(o->ex, cos->dim[3], whole(o, 2));
        int64_t dim = ex_is_int(width) ? width->i : 0;
        TRY((a.q = rotate(o, a.q, cos, sin, dim, g.interleaved != 0)) &&
            (a.k = rotate(o, a.k, cos, sin, dim, g.interleaved != 0)));
    }
    if (!prompt || queries != keys)
        TRY((a.k = into_cache(o, g.past_k, a.k, at, keys)) && (a.v = into_cache(o, g.past_v, a.v, at, keys)));
    if (prompt) {
        if (g.causal) a.upper = zero;
        if (g.window > 0) a.lower = ex_sub(o->ex, one, whole(o, g.window));
    } else {
        Value *d = distance(o, queries, keys, start ? lower_reshape(&o->L, start, 1, &batch) : NULL);
        if (g.causal) TRY(a.mask = AS(&o->L, le_Tensor, v(d), arg_expr(zero)));
        if (g.window > 0) TRY(a.mask = both_masks(o, a.mask, AS(&o->L, gt_Tensor, v(d), arg_int(o->g, -g.window))));
    }
    if (g.bias) TRY(a.mask = both_masks(o, a.mask, g.bias));
    a.sink = g.sink;
    if (g.smooth && !a.sink)
        TRY(a.sink = AS(&o->L, full, arg_ints(o->g, 1, &g.heads), arg_float(o->g, 0), arg_dtype(a.q->dtype)));
    TRY(op_return(o, 0, merge_heads(o, attend(o, &a))));
    if (op_wants(o, 1)) TRY(op_return(o, 1, a.k));
    return !op_wants(o, 2) || op_return(o, 2, a.v);
}
