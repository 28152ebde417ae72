/* ONNX Attention (opset 23, 24, 25) and RotaryEmbedding (23). Contract in onnx_impl.h; meaning: onnx/docs/Operators.md,
 * and where that leaves questions onnx/reference/ops/op_attention.py.
 *
 * Attention becomes scaled_dot_product_attention, whose row takes softcap and bounds (key j for query i: i + lower <= j
 * <= i + upper), so that causal attention with a past and sliding windows need no mask. A row without an allowed key
 * gives 0 in both.
 */
#include "onnx/read/attention.h"
#include <math.h>
#include <string.h>

static Expr *whole(OnnxOp *o, int64_t n) { return ex_int(o->ex, n); }

bool split_heads(OnnxOp *o, int input, int64_t heads, Value **x)
{
    Value *t = *x;
    if (t->rank == 4) return true;
    if (t->rank != 3) return op_fail(o, input, "rank %d, expected 3 or 4", t->rank);
    if (heads < 1 || heads > MAX_HEADS)
        return fail(o->im->err, E_FORMAT, "%lld heads, expected 1 to %d", (long long)heads, MAX_HEADS);
    Expr *n = whole(o, heads), *size = ex_floordiv(o->ex, t->dim[2], n);
    TRY(graph_require(o->g, ex_make(o->ex, EX_EQ, ex_mul(o->ex, size, n), t->dim[2], NULL), o->im->err,
                      "node '%s': %lld heads divide the last axis of input %d", o->L.name, (long long)heads, input));
    Expr *dim[] = {t->dim[0], t->dim[1], n, size};
    *x = lower_permute(&o->L, lower_reshape(&o->L, t, 4, dim), (int[]){0, 2, 1, 3});
    return *x != NULL;
}

Value *merge_heads(OnnxOp *o, Value *x)
{
    TRY_NULL(x);
    Expr *dim[] = {x->dim[0], x->dim[2], ex_mul(o->ex, x->dim[1], x->dim[3])};
    return lower_reshape(&o->L, lower_permute(&o->L, x, (int[]){0, 2, 1, 3}), 3, dim);
}

Value *additive_mask(OnnxOp *o, Value *mask, DType t, double fill)
{
    TRY_NULL(mask);
    if (mask->dtype != DT_BOOL) return lower_cast(&o->L, mask, t);
    return AS(&o->L, where_self, v(mask), v(op_number(o, t, 0)), v(op_number(o, t, fill)));
}

Value *both_masks(OnnxOp *o, Value *a, Value *b)
{
    if (!a || !b) return a ? a : b;
    if (a->dtype == DT_BOOL && b->dtype == DT_BOOL) return AS(&o->L, logical_and, v(a), v(b));
    if (a->dtype == DT_BOOL || b->dtype == DT_BOOL) {
        Value *allowed = a->dtype == DT_BOOL ? a : b, *bias = a->dtype == DT_BOOL ? b : a;
        return AS(&o->L, where_self, v(allowed), v(bias), v(op_number(o, bias->dtype, -INFINITY)));
    }
    return AS(&o->L, add_Tensor, v(a), v(b));
}

static Value *count(OnnxOp *o, Expr *n, Expr *rows, Expr *columns)
{
    return lower_reshape(&o->L, AS(&o->L, arange, arg_expr(n), arg_dtype(DT_I64)), 2, (Expr *[]){rows, columns});
}

Value *distance(OnnxOp *o, Expr *N, Expr *M, Value *shift)
{
    Expr *one = whole(o, 1);
    Value *d = AS(&o->L, sub_Tensor, v(count(o, M, one, M)), v(count(o, N, N, one)));
    if (!shift) return d;
    TRY_NULL(
        shift = lower_reshape(&o->L, lower_cast(&o->L, shift, DT_I64), 4, (Expr *[]){shift->dim[0], one, one, one}));
    return AS(&o->L, sub_Tensor, v(d), v(shift));
}

static Value *at_most(OnnxOp *o, Value *d, Expr *bound) { return AS(&o->L, le_Tensor, v(d), arg_expr(bound)); }
static Value *at_least(OnnxOp *o, Value *d, Expr *bound) { return AS(&o->L, ge_Tensor, v(d), arg_expr(bound)); }

static bool grouped(const Attend *a) { return a->q->dim[1] != a->k->dim[1]; }

/* Keys or values with each head repeated for the queries that share it. */
static Value *repeat_heads(OnnxOp *o, const Attend *a, Value *x)
{
    if (!grouped(a)) return x;
    Expr *times = ex_floordiv(o->ex, a->q->dim[1], x->dim[1]);
    Value *y = lower_reshape(&o->L, x, 5, (Expr *[]){x->dim[0], x->dim[1], whole(o, 1), x->dim[2], x->dim[3]});
    y = AS(&o->L, expand, v(y), arg_exprs(o->g, 5, (Expr *[]){x->dim[0], x->dim[1], times, x->dim[2], x->dim[3]}));
    return lower_reshape(&o->L, y, 4, (Expr *[]){x->dim[0], a->q->dim[1], x->dim[2], x->dim[3]});
}

/* The bounds as a bool mask, NULL without bounds. */
static Value *bounds_mask(OnnxOp *o, const Attend *a)
{
    if (!a->lower && !a->upper) return NULL;
    Value *d = distance(o, a->q->dim[2], a->k->dim[2], NULL);
    Value *m = a->upper ? at_most(o, d, a->upper) : NULL;
    return a->lower ? both_masks(o, m, at_least(o, d, a->lower)) : m;
}

/* sqrt(scale) on both factors, as the specification multiplies; softcap. */
static Value *scores(OnnxOp *o, const Attend *a, bool capped)
{
    double scale = a->scale;
    Value *root;
    if (scale == 0 && ex_is_int(a->q->dim[3])) scale = 1 / sqrt((double)a->q->dim[3]->i);
    if (scale != 0) root = op_number(o, a->q->dtype, sqrt(scale));
    else {
        Value *size = AS(&o->L, full, arg_ints(o->g, 0, NULL), arg_expr(a->q->dim[3]), arg_dtype(a->q->dtype));
        root = AS(&o->L, reciprocal, v(AS(&o->L, sqrt, v(AS(&o->L, sqrt, v(size))))));
    }
    Value *k = lower_permute(&o->L, repeat_heads(o, a, a->k), (int[]){0, 1, 3, 2});
    Value *s = AS(&o->L, matmul, v(AS(&o->L, mul_Tensor, v(a->q), v(root))), v(AS(&o->L, mul_Tensor, v(k), v(root))));
    if (!capped || a->softcap == 0) return s;
    s = AS(&o->L, tanh, v(AS(&o->L, div_Tensor, v(s), arg_float(o->g, a->softcap))));
    return AS(&o->L, mul_Tensor, v(s), arg_float(o->g, a->softcap));
}

/* One more score per head that no value belongs to: softmax over it and the scores, which are kept. */
static Value *attend_with_sink(OnnxOp *o, const Attend *a)
{
    Value *mask = both_masks(o, a->mask, bounds_mask(o, a)), *s = scores(o, a, true), *q = a->q;
    TRY_NULL(s);
    if (mask) s = AS(&o->L, add_Tensor, v(s), v(additive_mask(o, mask, s->dtype, -INFINITY)));
    Value *sink = lower_reshape(&o->L, lower_cast(&o->L, a->sink, s->dtype), 4,
                                (Expr *[]){whole(o, 1), q->dim[1], whole(o, 1), whole(o, 1)});
    sink = AS(&o->L, expand, v(sink), arg_exprs(o->g, 4, (Expr *[]){q->dim[0], q->dim[1], q->dim[2], whole(o, 1)}));
    TRY_NULL(sink);
    Value *all = AS(&o->L, softmax_int, v(AS(&o->L, cat, arg_values(o->g, 2, (Value *[]){s, sink}), arg_int(o->g, 3))),
                    arg_int(o->g, 3));
    Value *p = AS(&o->L, slice_Tensor, v(all), arg_int(o->g, 3), arg_int(o->g, 0), arg_expr(a->k->dim[2]),
                  arg_int(o->g, 1));
    return AS(&o->L, matmul, v(p), v(repeat_heads(o, a, a->v)));
}

Value *attend(OnnxOp *o, const Attend *a)
{
    if (!a->q || !a->k || !a->v) return NULL;
    if (a->sink) return attend_with_sink(o, a);
    Arg args[] = {v(a->q),
                  v(a->k),
                  v(a->v),
                  v(a->mask),
                  arg_float(o->g, 0),
                  arg_bool(o->g, false),
                  a->scale != 0 ? arg_float(o->g, a->scale) : arg_none(),
                  arg_bool(o->g, grouped(a)),
                  arg_float(o->g, a->softcap),
                  a->lower ? arg_expr(a->lower) : arg_none(),
                  a->upper ? arg_expr(a->upper) : arg_none()};
    if (!a->mask) args[3] = arg_none();
    return lower_emit(&o->L, OP_scaled_dot_product_attention, sizeof args / sizeof *args, args);
}

/* ------------------------------------------------------------------ ai.onnx Attention */

/* A mask whose last axis is shorter than the keys: the rest is not attended to. */
static bool pad_mask(OnnxOp *o, Value **mask, Expr *keys)
{
    Value *m = *mask;
    if (!m || !m->rank || m->dim[m->rank - 1] == keys) return true;
    Expr *missing = ex_sub(o->ex, keys, m->dim[m->rank - 1]);
    TRY(graph_require(o->g, ex_make(o->ex, EX_LE, whole(o, 0), missing, NULL), o->im->err,
                      "node '%s': the mask is not longer than the keys", o->L.name));
    Arg fill = m->dtype == DT_BOOL ? arg_bool(o->g, false) : arg_float(o->g, -INFINITY);
    *mask = AS(&o->L, constant_pad_nd, v(m), arg_exprs(o->g, 2, (Expr *[]){whole(o, 0), missing}), fill);
    return *mask != NULL;
}

static bool finite_attr(OnnxOp *o, const char *name, double *out)
{
    TRY(op_attr_float(o, name, 0, out));
    return isfinite(*out) || fail(o->im->err, E_FORMAT, "attribute '%s' is %g, expected a finite number", name, *out);
}

/* key lengths (B): key j of sample b is there where j < length[b] */
static Value *within_length(OnnxOp *o, Value *length, Expr *keys)
{
    Value *at = AS(&o->L, arange, arg_expr(keys), arg_dtype(DT_I64));
    length = lower_reshape(&o->L, lower_cast(&o->L, length, DT_I64), 4,
                           (Expr *[]){length->dim[0], whole(o, 1), whole(o, 1), whole(o, 1)});
    return AS(&o->L, lt_Tensor, v(at), v(length));
}

/* Output 3: scores at some point on their way to probabilities. */
static bool return_scores(OnnxOp *o, const Attend *a, int64_t mode, int64_t precision)
{
    Value *s = scores(o, a, mode >= 1);
    TRY(s);
    if (mode < 2) return op_return(o, 3, s);
    Value *mask = both_masks(o, a->mask && a->mask->dtype == DT_BOOL ? a->mask : NULL, bounds_mask(o, a));
    Value *bias = mask ? additive_mask(o, mask, s->dtype, -INFINITY) : NULL;
    if (a->mask && a->mask->dtype != DT_BOOL) TRY(bias = both_masks(o, bias, a->mask));
    if (bias) TRY(s = AS(&o->L, add_Tensor, v(s), v(bias)));
    if (mode == 2) return op_return(o, 3, s);
    DType t = s->dtype, wide = precision ? dtype_from_onnx((int)precision) : t;
    return op_return(o, 3,
                     lower_cast(&o->L, AS(&o->L, safe_softmax, v(lower_cast(&o->L, s, wide)), arg_int(o->g, -1)), t));
}

bool onnx_attention(OnnxOp *o)
{
    Attend a = {0};
    Value *mask, *past_k, *past_v, *lengths = NULL;
    int64_t hq, hk, causal, mode, precision, left, right;
    TRY(op_tensor(o, 0, &a.q) && op_tensor(o, 1, &a.k) && op_tensor(o, 2, &a.v) && op_optional(o, 3, &mask) &&
        op_optional(o, 4, &past_k) && op_optional(o, 5, &past_v));
    if (o->opset >= 24) TRY(op_optional(o, 6, &lengths));
    TRY(op_attr_int(o, "q_num_heads", 0, &hq) && op_attr_int(o, "kv_num_heads", 0, &hk) &&
        op_attr_int(o, "is_causal", 0, &causal) && op_attr_int(o, "qk_matmul_output_mode", 0, &mode) &&
        op_attr_int(o, "softmax_precision", 0, &precision) && op_attr_int(o, "left_window_size", -1, &left) &&
        op_attr_int(o, "right_window_size", -1, &right) && finite_attr(o, "scale", &a.scale) &&
        finite_attr(o, "softcap", &a.softcap));
    if (a.q->rank != a.k->rank || a.q->rank != a.v->rank)
        return op_fail(o, 1, "rank %d, but the query has rank %d and the value %d", a.k->rank, a.q->rank, a.v->rank);
    if (a.q->dtype != a.k->dtype || a.q->dtype != a.v->dtype)
        return op_unsupported(o, "key in %s, query in %s and value in %s", dtype_name(a.k->dtype),
                              dtype_name(a.q->dtype), dtype_name(a.v->dtype));
    if (!past_k != !past_v) return op_fail(o, past_k ? 5 : 4, "left out; past_key and past_value belong together");
    if (past_k && lengths) return op_fail(o, 6, "nonpad_kv_seqlen cannot be given together with past_key");
    if (left < -1 || right < -1)
        return fail(o->im->err, E_FORMAT, "window sizes %lld and %lld: expected -1 or more", (long long)left,
                    (long long)right);
    if (mode < 0 || mode > 3)
        return fail(o->im->err, E_FORMAT, "attribute 'qk_matmul_output_mode' is %lld, expected 0 to 3",
                    (long long)mode);
    if (precision &&
        !dtype_is_float(dtype_from_onnx(precision > 0 && precision < ONNX_TYPE_COUNT ? (int)precision : 0)))
        return fail(o->im->err, E_FORMAT, "attribute 'softmax_precision' is %lld, expected a float type",
                    (long long)precision);
    bool flat = a.q->rank == 3;
    TRY(split_heads(o, 0, hq, &a.q) && split_heads(o, 1, hk, &a.k) && split_heads(o, 2, hk, &a.v));
    if (a.q->rank != 4) return op_fail(o, 0, "rank %d, expected 3 or 4", a.q->rank);
    Expr *past = whole(o, 0);
    if (past_k) {
        if (past_k->rank != 4 || past_v->rank != 4) return op_fail(o, 4, "rank %d, expected 4", past_k->rank);
        past = past_k->dim[2];
        TRY(a.k = AS(&o->L, cat, arg_values(o->g, 2, (Value *[]){past_k, a.k}), arg_int(o->g, 2)));
        TRY(a.v = AS(&o->L, cat, arg_values(o->g, 2, (Value *[]){past_v, a.v}), arg_int(o->g, 2)));
    }
    Expr *queries = a.q->dim[2], *keys = a.k->dim[2];
    TRY(pad_mask(o, &mask, keys));
    if (mask && mask->dtype != DT_BOOL && mask->dtype != a.q->dtype)
        return op_unsupported(o, "a mask in %s, queries in %s", dtype_name(mask->dtype), dtype_name(a.q->dtype));
    bool bounded = causal || right >= 0;
    int64_t reach = causal ? 0 : right;
    if (lengths) { /* each sample has its own offset: length - queries */
        if (lengths->rank != 1) return op_fail(o, 6, "rank %d, expected 1", lengths->rank);
        Value *d = NULL, *ok = within_length(o, lengths, keys);
        if (bounded || left >= 0)
            TRY(d = distance(o, queries, keys,
                             AS(&o->L, sub_Tensor, v(lower_cast(&o->L, lengths, DT_I64)), arg_expr(queries))));
        if (bounded) TRY(ok = both_masks(o, ok, at_most(o, d, whole(o, reach))));
        if (left >= 0) TRY(ok = both_masks(o, ok, at_least(o, d, whole(o, -left))));
        TRY(ok && (mask = both_masks(o, mask, ok)));
    } else {
        if (bounded) a.upper = ex_add(o->ex, past, whole(o, reach));
        if (left >= 0) a.lower = ex_sub(o->ex, past, whole(o, left));
    }
    a.mask = mask;
    Value *y = attend(o, &a);
    TRY(op_return(o, 0, flat ? merge_heads(o, y) : y));
    if (op_wants(o, 1)) TRY(op_return(o, 1, a.k));
    if (op_wants(o, 2)) TRY(op_return(o, 2, a.v));
    return !op_wants(o, 3) || return_scores(o, &a, mode, precision);
}

/* ------------------------------------------------------------------ RotaryEmbedding */

Value *angles(OnnxOp *o, Value *table, Value *positions)
{
    TRY_NULL(positions = lower_cast(&o->L, positions, DT_I64));
    Value *rows = AS(&o->L, embedding, v(table), v(positions));
    TRY_NULL(rows);
    return lower_reshape(&o->L, rows, 4, (Expr *[]){rows->dim[0], whole(o, 1), rows->dim[1], rows->dim[2]});
}

/* The rotary row wants axes that are x's or 1. */
static Value *fitted(OnnxOp *o, Value *angle, const Value *x)
{
    TRY_NULL(angle);
    Expr *dim[4];
    bool same = true;
    for (int i = 0; i < 4; i++) {
        bool one = ex_equals_int(angle->dim[i], 1);
        dim[i] = i == 3 || one ? angle->dim[i] : x->dim[i];
        same &= dim[i] == angle->dim[i];
    }
    return same ? angle : AS(&o->L, expand, v(angle), arg_exprs(o->g, 4, dim));
}

Value *rotate(OnnxOp *o, Value *x, Value *cos, Value *sin, int64_t dim, bool interleaved)
{
    if (!x || !cos || !sin) return NULL;
    cos = fitted(o, lower_cast(&o->L, cos, x->dtype), x);
    sin = fitted(o, lower_cast(&o->L, sin, x->dtype), x);
    Arg last = arg_int(o->g, 3), one = arg_int(o->g, 1);
    bool part = dim > 0 && !ex_equals_int(x->dim[3], dim);
    Value *turned = part ? AS(&o->L, slice_Tensor, v(x), last, arg_int(o->g, 0), arg_int(o->g, dim), one) : x;
    turned = AS(&o->L, rotary, v(turned), v(cos), v(sin), arg_bool(o->g, interleaved));
    if (!part) return turned;
    Value *rest = AS(&o->L, slice_Tensor, v(x), last, arg_int(o->g, dim), arg_expr(x->dim[3]), one);
    return turned && rest ? AS(&o->L, cat, arg_values(o->g, 2, (Value *[]){turned, rest}), last) : NULL;
}

bool onnx_rotary_embedding(OnnxOp *o)
{
    Value *x, *cos, *sin, *positions;
    int64_t interleaved, dim, heads;
    TRY(op_tensor(o, 0, &x) && op_tensor(o, 1, &cos) && op_tensor(o, 2, &sin) && op_optional(o, 3, &positions) &&
        op_attr_int(o, "interleaved", 0, &interleaved) && op_attr_int(o, "rotary_embedding_dim", 0, &dim) &&
        op_attr_int(o, "num_heads", 0, &heads));
    bool flat = x->rank == 3;
    TRY(split_heads(o, 0, heads, &x));
    int want = positions ? 2 : 3;
    for (int i = 1; i < 3; i++) {
        Value *c = i == 1 ? cos : sin;
        if (c->rank != want)
            return op_fail(o, i, "rank %d, expected %d %s position_ids", c->rank, want, positions ? "with" : "without");
    }
    if (dim < 0 || dim % 2)
        return fail(o->im->err, E_FORMAT, "attribute 'rotary_embedding_dim' is %lld, expected an even number",
                    (long long)dim);
    for (int i = 0; i < 2; i++) {
        Value **c = i ? &sin : &cos;
        *c = positions ? angles(o, *c, positions)
                       : lower_reshape(&o->L, *c, 4, (Expr *[]){(*c)->dim[0], whole(o, 1), (*c)->dim[1], (*c)->dim[2]});
        TRY(*c);
    }
    Value *y = rotate(o, x, cos, sin, dim, interleaved != 0);
    return op_return(o, 0, flat ? merge_heads(o, y) : y);
}
