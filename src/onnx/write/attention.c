/* Attention in ONNX's words: the op Attention where the profile's runtime has it and runs it right, else products and a
 * softmax.
 *
 *     sdpa(q, k, v, mask: bool)   ->  MatMul(Softmax(MatMul(q * scale, k^T) + Where(mask, 0, lowest)), v), and 0 in
 *                                     rows that allow no key
 *
 * The scale goes to the queries, in front of the first product (TensorRT's fused attention asks for it). What makes
 * dead rows 0 comes after the second product, so that the pattern in between is the one that runtimes know.
 */
#include <math.h>
#include "onnx/write/write_impl.h"

enum { Q, K, V, MASK, CAUSAL = 5, SCALE, GQA, SOFTCAP, LOWER, UPPER };

typedef struct Attention {
    Onnx *o;
    const Node *n;
    const Value *q, *k, *v, *mask;
    Expr *lower, *upper; /* key j for query i: i + lower <= j <= i + upper; NULL = no bound */
    double softcap;
    DType t; /* of the work */
    Expr *scale; /* of the scores; NULL: 1 / sqrt(head size) */
    bool rounds; /* the probabilities are quantized (qkv.sdpa_quantized) */
} Attention;


/* The keys that the bounds allow: bool (N, M). */
static Ref window(const Attention *a)
{
    Onnx *o = a->o;
    Ref i = unsqueeze(o, positions(o, size_of(o, a->q->dim[2])), 1),
        j = unsqueeze(o, positions(o, size_of(o, a->k->dim[2])), 0);
    Ref far = bin(o, "Sub", j, i), from = none(), to = none();
    if (a->lower) from = NODE(o, "GreaterOrEqual", DT_BOOL, far, size_scalar(o, a->lower, DT_I64));
    if (a->upper) to = NODE(o, "LessOrEqual", DT_BOOL, far, size_scalar(o, a->upper, DT_I64));
    return !*from.name ? to : !*to.name ? from : NODE(o, "And", DT_BOOL, from, to);
}

/* Is there a key for every query, whatever the sizes? */
static bool window_never_empty(const Attention *a)
{
    int64_t lo, hi;
    if (a->upper) {
        ex_range(a->o->p, a->upper, &lo, &hi);
        if (lo < 0) return false;
    }
    if (!a->lower) return true;
    ex_range(a->o->p, a->lower, &lo, &hi);
    return hi <= 0 && a->q->dim[2] == a->k->dim[2];
}

/* What is added to the scores, and which rows live (no name: all of them). */
static void mask_of(const Attention *a, Ref *bias, Ref *alive)
{
    Onnx *o = a->o;
    Ref mask = a->mask ? ref(o, (Value *)(uintptr_t)a->mask) : none(),
        bounds = a->lower || a->upper ? window(a) : none();
    *bias = *alive = none();
    if (!*mask.name && !*bounds.name) return;
    int rank = a->mask ? a->mask->rank : 2;
    int64_t last = *bounds.name && rank < 2 ? 1 : rank - 1;
    const Expr *keys = !*bounds.name && rank ? a->mask->dim[rank - 1] : a->k->dim[2];
    bool sure = !a->mask && window_never_empty(a);
    if (!*mask.name || mask.t == DT_BOOL) {
        Ref allowed = !*mask.name ? bounds : !*bounds.name ? mask : NODE(o, "And", DT_BOOL, mask, bounds);
        *bias = where(o, allowed, number(o, a->t, 0), number(o, a->t, dtype_lowest(a->t)));
        if (sure) return;
        if (rank || *bounds.name) *alive = any_of(o, allowed, last, keys);
        else *alive = any_of(o, unsqueeze(o, allowed, 0), 0, ex_int(o->p, 1));
        return;
    }
    mask = cast(o, mask, a->t);
    *bias = *bounds.name ? where(o, bounds, mask, number(o, a->t, -INFINITY)) : mask;
    *alive = negated(o, !rank && !*bounds.name ? NODE(o, "Equal", DT_BOOL, *bias, number(o, a->t, -INFINITY))
                                               : all_minus_infinity(o, *bias, last, keys));
}

/* (B, Hkv, M, D) with each head as often as queries share it. */
static Ref every_head(const Attention *a, Ref x, const Value *v)
{
    Onnx *o = a->o;
    Expr *H = a->q->dim[1], *share = ex_floordiv(o->p, H, v->dim[1]);
    if (v->dim[1] == H) return x;
    Expr *thin[5] = {v->dim[0], v->dim[1], ex_int(o->p, 1), v->dim[2], v->dim[3]},
         *wide[5] = {v->dim[0], v->dim[1], share, v->dim[2], v->dim[3]};
    Expr *all[4] = {v->dim[0], H, v->dim[2], v->dim[3]};
    return reshape(o, expand(o, unsqueeze(o, x, 2), 5, thin, 5, wide), 5, wide, 4, all);
}

/* The factor of the scores, in the dtype of the work. */
static Ref scale_of(const Attention *a)
{
    Onnx *o = a->o;
    Expr *D = a->q->dim[3];
    if (a->scale) return size_scalar(o, a->scale, a->t);
    if (ex_is_int(D)) return number(o, a->t, 1 / sqrt((double)D->i));
    return NODE(o, "Reciprocal", a->t, NODE(o, "Sqrt", a->t, size_scalar(o, D, a->t)));
}

static bool scale_is_one(const Attention *a)
{
    return a->scale && ex_is_const(a->scale) && ex_number(a->scale) == 1;
}

/* Probabilities in few bits and back: arguments scale_p, zero_p, dtype_p of the node. */
static Ref rounded(const Attention *a, Ref p)
{
    Onnx *o = a->o;
    DType t = a->n->arg[6].dtype;
    Ref scale = arg_ref(o, a->n, 4), zero = arg_ref(o, a->n, 5);
    if (!*zero.name) zero = number(o, t, 0);
    return NODE(o, "DequantizeLinear", a->t, NODE(o, "QuantizeLinear", t, p, scale, zero), scale, zero);
}

/* x of keys or values v with every head, and turned. */
static Ref moved(const Attention *a, Ref x, const Value *v, bool turned)
{
    x = every_head(a, x, v);
    return turned ? transpose(a->o, x, 4, (int64_t[]){0, 1, 3, 2}) : x;
}

/* Keys, turned, or values. What one scale makes floats of moves as integers, or, float8, in front of its quantizer, so
 * that DequantizeLinear feeds the product. (ONNX Runtime 1.31 moves quantizers beyond an Unsqueeze, too, to types that
 * it refuses from opset 21 on.) */
static Ref factor_of(const Attention *a, const Value *v, bool turned)
{
    Onnx *o = a->o;
    const Node *d = v->def && v->def->op->id == OP_dequantize_linear ? v->def : NULL;
    bool one = d != NULL && v->dtype == a->t && (turned || v->dim[1] != a->q->dim[1]);
    for (int i = 0; one && i < d->arg[1].v->rank; i++) one = ex_equals_int(d->arg[1].v->dim[i], 1);
    if (!one) return moved(a, cast(o, ref(o, (Value *)(uintptr_t)v), a->t), v, turned);
    const Node *q = d->arg[0].v->def;
    const bool before = q && q->op->id == OP_quantize_linear && dtype_is_float(q->out[0]->dtype);
    Ref x = moved(a, arg_ref(o, before ? q : d, 0), v, turned);
    Ref scale = arg_ref(o, d, 1), zero = arg_ref(o, d, 2);
    if (before) x = NODE(o, "QuantizeLinear", d->arg[0].v->dtype, x, scale, zero);
    return NODE(o, "DequantizeLinear", a->t, x, scale, zero);
}

static void write_out(const Attention *a)
{
    Onnx *o = a->o;
    Ref q = cast(o, ref(o, (Value *)(uintptr_t)a->q), a->t), k = factor_of(a, a->k, true),
        v = factor_of(a, a->v, false), bias, alive;
    mask_of(a, &bias, &alive);
    if (!scale_is_one(a)) q = bin(o, "Mul", q, scale_of(a));
    Ref s = bin(o, "MatMul", q, k);
    if (a->softcap > 0) {
        Ref cap = number(o, a->t, a->softcap);
        s = bin(o, "Mul", NODE(o, "Tanh", a->t, bin(o, "Div", s, cap)), cap);
    }
    if (*bias.name) s = bin(o, "Add", s, bias);
    attr_int(o, "axis", -1);
    Ref p = NODE(o, "Softmax", a->t, s);
    if (a->rounds) p = rounded(a, p);
    Ref y = bin(o, "MatMul", p, v);
    if (*alive.name) y = where(o, alive, y, number(o, a->t, 0));
    o->attention_written_out++;
    give(o, a->n, 0, y);
}

/* ------------------------------------------------------------------ as one op */

/* In the standard masks broadcast to the scores; ONNX Runtime 1.31 wants the axes of queries and keys whole. */
static Ref whole_mask(const Attention *a, Ref mask, int rank, Expr *const *dim)
{
    Onnx *o = a->o;
    Expr *to[4];
    int n = rank < 2 ? 2 : rank;
    for (int i = 0; i < n; i++) to[i] = i == n - 1 ? a->k->dim[2] : i == n - 2 ? a->q->dim[2] : dim[i];
    return expand(o, mask, rank, dim, n, to);
}

static void as_op(const Attention *a, bool causal)
{
    Onnx *o = a->o;
    Ref q = ref(o, (Value *)(uintptr_t)a->q), k = ref(o, (Value *)(uintptr_t)a->k),
        v = ref(o, (Value *)(uintptr_t)a->v);
    Ref mask = a->mask ? ref(o, (Value *)(uintptr_t)a->mask) : none();
    if (a->lower || a->upper) {
        Ref bounds = window(a);
        mask = !*mask.name         ? bounds
               : mask.t == DT_BOOL ? NODE(o, "And", DT_BOOL, mask, bounds)
                                   : where(o, bounds, mask, number(o, mask.t, -INFINITY));
    } else if (a->mask && (o->opt.profile == ONNX_FOR_ORT || a->mask->rank < 2)) {
        mask = whole_mask(a, mask, a->mask->rank, a->mask->dim);
    }
    if (for_ort(o) && q.t == DT_BF16) {
        q = cast(o, q, DT_F32);
        k = cast(o, k, DT_F32);
        v = cast(o, v, DT_F32);
    }
    if (*mask.name && mask.t != DT_BOOL) mask = cast(o, mask, q.t);
    if (causal) attr_int(o, "is_causal", 1);
    if (a->scale) attr_float(o, "scale", ex_number(a->scale));
    if (a->softcap > 0) attr_float(o, "softcap", a->softcap);
    if (q.t == DT_F16 || q.t == DT_BF16) attr_int(o, "softmax_precision", ONNX_FLOAT);
    o->attention_ops++;
    give(o, a->n, 0, NODE(o, "Attention", q.t, q, k, v, mask));
}

/* What ONNX's op says of it; scales must be constants. */
static bool fits_op(const Attention *a)
{
    const Expr *s = a->scale;
    bool has_op = a->o->opt.profile == ONNX_FOR_SPEC || a->o->opt.profile == ONNX_FOR_ORT;
    if (a->o->opt.opset < 23 || !has_op || a->q->dtype == DT_F64) return false; /* a scale is a float32 there */
    if (for_ort(a->o) && a->mask && a->mask->dtype != DT_BOOL)
        return false; /* it takes rows of the lowest number for rows of -inf: 0, not the average */
    return !s || ex_is_const(s);
}

/* ------------------------------------------------------------------ what TensorRT fuses */

static void check_tensorrt(const Attention *a)
{
    Onnx *o = a->o;
    const Expr *D = a->q->dim[3], *E = a->v->dim[3];
    DType t = a->q->dtype;
    bool integers = a->rounds && a->q->def && a->q->def->op->id == OP_dequantize_linear;
    if (t != DT_F16 && t != DT_BF16 && !integers)
        onnx_warn(o, a->n, "dtype",
                  "queries, keys and values are %s: TensorRT fuses attention of f16, bf16 or quantized int8",
                  dtype_name(t));
    if (!ex_is_int(D))
        onnx_warn(o, a->n, "head-size", "the head size varies: TensorRT fuses attention of fixed head sizes");
    else if (D->i < 16 || D->i > 256 || D->i % 8)
        onnx_warn(o, a->n, "head-size", "the head size is %lld: TensorRT fuses 16 to 256, in steps of 8",
                  (long long)D->i);
    if (D != E)
        onnx_warn(o, a->n, "head-size", "values have another head size than queries: TensorRT fuses equal ones");
    if (a->softcap > 0)
        onnx_warn(o, a->n, "softcap", "scores are capped between the products: TensorRT does not fuse that");
    const Expr *H = a->q->dim[1], *G = a->k->dim[1];
    if (H != G && !(ex_is_int(H) && ex_is_int(G) && G->i > 0 && H->i % G->i == 0))
        onnx_warn(o, a->n, "heads", "the number of query heads is not a known multiple of the number of key heads");
    if (a->lower || (a->upper && !ex_equals_int(a->upper, 0)))
        onnx_warn(o, a->n, "window", "a window becomes a mask of all queries by all keys");
    if (a->mask && a->mask->dtype != DT_BOOL && a->mask->dtype != t)
        onnx_warn(o, a->n, "mask", "the mask is %s beside %s", dtype_name(a->mask->dtype), dtype_name(t));
}

static Expr *optional(const Node *n, const char *name)
{
    int i = op_param(n->op, name);
    return i >= 0 ? arg_e(n, i) : NULL;
}

static Attention attention_of(Onnx *o, const Node *n)
{
    const Expr *cap = optional(n, "softcap");
    return (Attention){.o = o,
                       .n = n,
                       .q = arg_v(n, Q),
                       .k = arg_v(n, K),
                       .v = arg_v(n, V),
                       .mask = arg_v(n, MASK),
                       .lower = optional(n, "lower"),
                       .upper = optional(n, "upper"),
                       .scale = optional(n, "scale"),
                       .softcap = cap ? ex_number(cap) : 0};
}

void out_sdpa(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Attention a = attention_of(o, n);
    bool causal = arg_b(n, CAUSAL);
    bool half = a.q->dtype == DT_F16 || a.q->dtype == DT_BF16;
    a.t = half && o->opt.profile != ONNX_FOR_TENSORRT ? DT_F32 : a.q->dtype;
    if (a.q->rank != 4) {
        refuse(o, "queries of %d axes", a.q->rank);
        return;
    }
    if (o->opt.profile == ONNX_FOR_TENSORRT) check_tensorrt(&a);
    if (fits_op(&a)) {
        bool top_left = causal ||
                        (a.upper && ex_equals_int(a.upper, 0)); /* ONNX's is_causal without a past is PyTorch's */
        if (top_left && a.upper && ex_equals_int(a.upper, 0)) a.upper = NULL;
        as_op(&a, top_left);
        return;
    }
    if (causal) a.upper = a.upper ? ex_min(o->p, a.upper, ex_int(o->p, 0)) : ex_int(o->p, 0);
    write_out(&a);
}

/* Spelled out in every profile, as no op has a quantizer inside. */
void out_sdpa_quantized(Onnx *o, const Node *n, const char *text)
{
    (void)text;
    Attention a = attention_of(o, n);
    a.t = DT_F32;
    a.rounds = true;
    if (a.q->dtype != DT_F32) {
        refuse(o, "attention of %s is a form of runs: write the model before it is prepared for one",
               dtype_name(a.q->dtype));
        return;
    }
    if (o->opt.profile == ONNX_FOR_TENSORRT) check_tensorrt(&a);
    write_out(&a);
}
