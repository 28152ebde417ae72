/* Attention as ATen ops: what aten.scaled_dot_product_attention lacks is written around it, or out.
 *
 *     sdpa(q, k, v, mask, upper=0)   ->  sdpa(q, k, v, mask & (arange(M) - arange(N)[:, None] <= 0))
 *     sdpa(q, k, v, softcap=50.)     ->  _safe_softmax(tanh(q @ k.T * scale / 50) * 50) @ v
 *     qkv.sdpa_lse, sdpa_backward    ->  _scaled_dot_product_flash_attention_for_cpu and its backward, where
 *                                        PyTorch's kernel takes them; else products and a softmax; with kernel="flash"
 *                                        and others PyTorch's pair of that name (kernels.c)
 */
#include <math.h>
#include <string.h>
#include "facts/strides.h"
#include "pt2/write/attention.h"

enum { MASK = 3, CAUSAL = 5, GQA = 7, SOFTCAP, LOWER, UPPER };

static Arg number(const Emit *e, double v) { return arg_expr(ex_float(e->g->ex, v)); }
static Arg integer(const Emit *e, int64_t v) { return arg_expr(ex_int(e->g->ex, v)); }

static Value *shaped(Emit *e, const char *base, Value *x, int rank, Expr *const *dim)
{
    Arg size = {.kind = ARG_EXPRS, .n = rank, .es = (Expr **)(uintptr_t)dim};
    return x ? PUT(e, reshape, base, x->dtype, rank, dim, arg_value(x), size) : NULL;
}

Value *pair_cast(Emit *e, Value *x, DType t)
{
    return !x || x->dtype == t ? x : PUT(e, to_copy, "cast", t, x->rank, x->dim, arg_value(x), arg_dtype(t));
}

/* The keys that the bounds allow, as bool (N, M); NULL where there are no bounds. */
static bool window(Attention *a, Value **out)
{
    Emit *e = a->e;
    Expr *N = a->q->dim[2], *M = a->k->dim[2], *one = ex_int(e->g->ex, 1), *both[2] = {N, M};
    *out = NULL;
    if (!a->lower && !a->upper) return true;
    Value *i = PUT(e, arange_start_step, "query", DT_I64, 1, &N, integer(e, 0), arg_expr(N), integer(e, 1),
                   arg_dtype(DT_I64));
    Value *j = PUT(e, arange_start_step, "key", DT_I64, 1, &M, integer(e, 0), arg_expr(M), integer(e, 1),
                   arg_dtype(DT_I64));
    i = shaped(e, "query", i, 2, (Expr *[]){N, one});
    j = shaped(e, "key", j, 2, (Expr *[]){one, M});
    Value *far = i && j ? PUT(e, sub_Tensor, "distance", DT_I64, 2, both, arg_value(j), arg_value(i)) : NULL;
    Value *from = far && a->lower ? PUT(e, ge_Scalar, "window", DT_BOOL, 2, both, arg_value(far), arg_expr(a->lower))
                                  : NULL;
    Value *to = far && a->upper ? PUT(e, le_Scalar, "window", DT_BOOL, 2, both, arg_value(far), arg_expr(a->upper))
                                : NULL;
    *out = from && to ? PUT(e, logical_and, "window", DT_BOOL, 2, both, arg_value(from), arg_value(to))
           : from     ? from
                      : to;
    return *out && (!a->lower || from) && (!a->upper || to);
}

/* The axes of two tensors broadcast, aligned at the last. */
static int broadcast(const Value *a, const Value *b, Expr **dim)
{
    int rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 1; i <= rank; i++) {
        Expr *x = i <= a->rank ? a->dim[a->rank - i] : NULL, *y = i <= b->rank ? b->dim[b->rank - i] : NULL;
        dim[rank - i] = !x || (y && ex_equals_int(x, 1)) ? y : x;
    }
    return rank;
}

/* One mask for what mask and bounds allow: bool, or additive in the mask's dtype. */
static bool one_mask(Attention *a, Value **out)
{
    Emit *e = a->e;
    Value *allowed;
    Expr *dim[MAX_RANK];
    TRY(window(a, &allowed));
    *out = allowed ? allowed : a->mask;
    if (!allowed || !a->mask) return true;
    int rank = broadcast(a->mask, allowed, dim);
    *out = a->mask->dtype == DT_BOOL
               ? PUT(e, logical_and, "mask", DT_BOOL, rank, dim, arg_value(a->mask), arg_value(allowed))
               : PUT(e, where_ScalarOther, "mask", a->mask->dtype, rank, dim, arg_value(allowed), arg_value(a->mask),
                     number(e, -INFINITY));
    return *out != NULL;
}

/* (B, Hkv, M, D) with each head as often as queries share it: (B, H, M, D) */
Value *pair_every_head(Attention *a, Value *x)
{
    ExprPool *p = a->e->g->ex;
    Expr *H = a->q->dim[1], *share = ex_floordiv(p, H, x->dim[1]);
    if (x->dim[1] == H) return x;
    Expr *wide[5] = {x->dim[0], x->dim[1], share, x->dim[2], x->dim[3]},
         *thin[5] = {wide[0], wide[1], ex_int(p, 1), wide[3], wide[4]}, *all[4] = {wide[0], H, wide[3], wide[4]};
    Value *y = shaped(a->e, "heads", x, 5, thin);
    y = y ? PUT(a->e, expand, "heads", y->dtype, 5, wide, arg_value(y), (Arg){.kind = ARG_EXPRS, .n = 5, .es = wide})
          : NULL;
    return shaped(a->e, "heads", y, 4, all);
}

Arg pair_scale(const Attention *a)
{
    ExprPool *p = a->e->g->ex;
    Expr *D = a->q->dim[3];
    if (a->scale.kind == ARG_EXPR) return a->scale;
    if (ex_is_int(D)) return number(a->e, 1 / sqrt((double)D->i));
    return arg_expr(ex_make(p, EX_TRUEDIV, ex_float(p, 1),
                            ex_make(p, EX_SQRT, ex_make(p, EX_TOFLOAT, D, NULL, NULL), NULL, NULL), NULL));
}

static Value *turned(Emit *e, Value *x)
{
    Expr *dim[4] = {x->dim[0], x->dim[1], x->dim[3], x->dim[2]},
         *order[4] = {ex_int(e->g->ex, 0), ex_int(e->g->ex, 1), ex_int(e->g->ex, 3), ex_int(e->g->ex, 2)};
    return PUT(e, permute, "turned", x->dtype, 4, dim, arg_value(x), (Arg){.kind = ARG_EXPRS, .n = 4, .es = order});
}

/* x (B, H, N, D) times y (B, H, D, M), of one dtype. */
static Value *multiplied(Emit *e, const char *base, Value *x, Value *y)
{
    if (!x || !y) return NULL;
    return PUT(e, matmul, base, x->dtype, 4, ((Expr *[4]){x->dim[0], x->dim[1], x->dim[2], y->dim[3]}), arg_value(x),
               arg_value(y));
}

/* The masked scores of q and k, whose heads are as many. capped: tanh(scores / softcap), NULL without a softcap. */
static Value *scores_of(Attention *a, Value *q, Value *k, double softcap, Value **capped)
{
    Emit *e = a->e;
    Value *mask, *s = multiplied(e, "scores", q, turned(e, k));
    *capped = NULL;
    if (!s || !one_mask(a, &mask) ||
        !(s = PUT(e, mul_Tensor, "scores", s->dtype, 4, s->dim, arg_value(s), pair_scale(a))))
        return NULL;
    DType t = s->dtype;
    if (softcap > 0) {
        if (!(s = PUT(e, div_Tensor, "scores", t, 4, s->dim, arg_value(s), number(e, softcap))) ||
            !(*capped = PUT(e, tanh, "scores", t, 4, s->dim, arg_value(s))))
            return NULL;
        if (!(s = PUT(e, mul_Tensor, "scores", t, 4, s->dim, arg_value(*capped), number(e, softcap)))) return NULL;
    }
    if (!mask) return s;
    if (mask->dtype == DT_BOOL)
        return PUT(e, where_ScalarOther, "scores", t, 4, s->dim, arg_value(mask), arg_value(s), number(e, -INFINITY));
    return (mask = pair_cast(e, mask, t)) ? PUT(e, add_Tensor, "scores", t, 4, s->dim, arg_value(s), arg_value(mask))
                                          : NULL;
}

/* The last op of a result: x in its dtype. */
bool pair_finish(Emit *e, Value *x, Value *out)
{
    if (!x) return false;
    if (x->dtype != out->dtype)
        return write_node(e, op_get(OP_to_copy), (Arg[7]){arg_value(x), arg_dtype(out->dtype)}, 1, &out);
    return write_node(e, op_get(OP_reshape),
                      (Arg[2]){arg_value(x), {.kind = ARG_EXPRS, .n = out->rank, .es = out->dim}}, 1, &out);
}

/* Probabilities as float8 and back: by_inverse or not, a division and two casts. */
static Value *as_float8(Attention *a, Value *p, Value *scale)
{
    Emit *e = a->e;
    DType t = a->n->arg[6].dtype;
    Value *y = PUT(e, div_Tensor, "quotient", DT_F32, 4, p->dim, arg_value(p), arg_value(scale));
    y = y ? PUT(e, to_copy, "rounded", t, 4, p->dim, arg_value(y), arg_dtype(t)) : NULL;
    y = y ? PUT(e, to_copy, "wide", DT_F32, 4, p->dim, arg_value(y), arg_dtype(DT_F32)) : NULL;
    return y ? PUT(e, mul_Tensor, "weights", DT_F32, 4, p->dim, arg_value(y), arg_value(scale)) : NULL;
}

/* Probabilities in few bits and back, by PyTorch's quantizers: arguments scale_p, zero_p, dtype_p of the node. */
static Value *rounded(Attention *a, Value *p)
{
    Emit *e = a->e;
    const Arg *from = a->n->arg;
    DType t = from[6].dtype;
    Value *scale = from[4].v, *zero = from[5].kind == ARG_VALUE ? from[5].v : NULL;
    if (t == DT_F8E4M3) return as_float8(a, p, scale);
    Arg low = integer(e, (int64_t)dtype_lowest(t)), high = integer(e, (int64_t)dtype_highest(t));
    if (zero) zero = PUT(e, to_copy, "zero", DT_I64, zero->rank, zero->dim, arg_value(zero), arg_dtype(DT_I64));
    else zero = PUT(e, full, "zero", DT_I64, 0, NULL, ((Arg){.kind = ARG_EXPRS}), integer(e, 0), arg_dtype(DT_I64));
    Value *q = zero ? PUT(e, quantize_per_tensor_tensor, "rounded", t, 4, p->dim, arg_value(p), arg_value(scale),
                          arg_value(zero), low, high, arg_dtype(t))
                    : NULL;
    return q ? PUT(e, dequantize_per_tensor_tensor, "weights", DT_F32, 4, p->dim, arg_value(q), arg_value(scale),
                   arg_value(zero), low, high, arg_dtype(t))
             : NULL;
}

/* Half types are worked on in float32, as kernels of one op do. */
static bool write_out(Attention *a, double softcap)
{
    Emit *e = a->e;
    Value *s, *capped, *out = a->n->out[0];
    DType t = a->q->dtype == DT_F64 ? DT_F64 : DT_F32;
    Value *q = pair_cast(e, a->q, t), *k = pair_cast(e, pair_every_head(a, a->k), t),
          *v = pair_cast(e, pair_every_head(a, a->v), t);
    TRY(q && k && v && (s = scores_of(a, q, k, softcap, &capped)));
    TRY(s = PUT(e, safe_softmax, "weights", t, 4, s->dim, arg_value(s), integer(e, -1)));
    if (a->n->op->id == OP_sdpa_quantized) TRY(s = rounded(a, s));
    Arg product[2] = {arg_value(s), arg_value(v)};
    if (out->dtype == t) return write_node(e, op_get(OP_matmul), product, 1, a->n->out);
    Value *y = put(e, OP_matmul, 2, product, "wide", t, out->rank, out->dim);
    return y && pair_finish(e, y, out);
}

static Expr *optional(const Node *n, const char *name)
{
    int i = op_param(n->op, name);
    return i >= 0 && n->arg[i].kind == ARG_EXPR ? n->arg[i].e : NULL;
}

static Attention attention_of(Emit *e, const Node *n)
{
    return (Attention){e,
                       n,
                       n->arg[0].v,
                       n->arg[1].v,
                       n->arg[2].v,
                       n->arg[MASK].kind == ARG_VALUE ? n->arg[MASK].v : NULL,
                       optional(n, "lower"),
                       optional(n, "upper"),
                       n->arg[op_param(n->op, "scale")]};
}

/* PyTorch's kernel for CPUs puts -inf where is_causal forbids a key, and multiplies by the scale after that: with one
 * that is not above 0 every row is NaN. */
static bool causal_holds(const Attention *a)
{
    return a->scale.kind != ARG_EXPR || !ex_is_const(a->scale.e) || ex_number(a->scale.e) > 0;
}

bool spell_attention(Emit *e, const Node *n)
{
    Attention a = attention_of(e, n);
    ExprPool *p = e->g->ex;
    const Expr *softcap = optional(n, "softcap");
    bool causal = n->arg[CAUSAL].kind == ARG_EXPR && n->arg[CAUSAL].e->i;
    Arg args[16] = {{0}};
    for (int i = 0; i <= GQA; i++) args[i] = n->arg[i];
    double cap = !softcap ? 0 : ex_number(softcap);
    bool alone = causal || (a.upper &&
                            ex_equals_int(a.upper, 0)); /* ATen's is_causal expresses it, where there is nothing else */
    if (cap <= 0 && !a.mask && !a.lower && alone && (!causal || !a.upper) && causal_holds(&a)) {
        args[CAUSAL] = arg_expr(ex_bool(p, true));
        return write_node(e, n->op, args, 1, n->out);
    }
    if (causal) a.upper = a.upper ? ex_min(p, a.upper, ex_int(p, 0)) : ex_int(p, 0);
    if (cap > 0) return write_out(&a, cap);
    Value *mask;
    TRY(one_mask(&a, &mask));
    if (mask && mask->rank < 2) { /* PyTorch reads both of its last axes */
        Expr *one = ex_int(p, 1);
        TRY(mask = shaped(e, "mask", mask, 2, (Expr *[]){one, mask->rank ? mask->dim[0] : one}));
    }
    args[MASK] = arg_value(mask);
    args[CAUSAL] = arg_expr(ex_bool(p, false));
    return write_node(e, n->op, args, 1, n->out);
}

/* Spelled out: no op of ATen's has a quantizer inside. */
bool spell_sdpa_quantized(Emit *e, const Node *n)
{
    Attention a = attention_of(e, n);
    const Expr *softcap = optional(n, "softcap");
    if (a.q->dtype != DT_F32)
        return fail(e->err, E_UNSUPPORTED, "attention of %s is a form of runs: write the model before it is prepared",
                    dtype_name(a.q->dtype));
    return write_out(&a, softcap ? ex_number(softcap) : 0);
}

/* ------------------------------------------------------------------ forward and backward */

static Value *operand(const Node *n, int i) { return n->arg[i].kind == ARG_VALUE ? n->arg[i].v : NULL; }

/* Attention's operands of a row of the pair: the query is argument `first`, and so on; parameters by name. causal:
 * ATen's is_causal expresses all of its bounds. */
static Attention pair_of(Emit *e, const Node *n, int first, bool *causal, double *softcap)
{
    ExprPool *p = e->g->ex;
    Attention a = {e,
                   n,
                   n->arg[first].v,
                   n->arg[first + 1].v,
                   n->arg[first + 2].v,
                   operand(n, op_param(n->op, "attn_mask")),
                   optional(n, "lower"),
                   optional(n, "upper"),
                   n->arg[op_param(n->op, "scale")]};
    const Expr *cap = optional(n, "softcap"), *is_causal = optional(n, "is_causal");
    *softcap = !cap ? 0 : ex_number(cap);
    if (is_causal && is_causal->i) a.upper = a.upper ? ex_min(p, a.upper, ex_int(p, 0)) : ex_int(p, 0);
    *causal = !a.mask && !a.lower && a.upper && ex_equals_int(a.upper, 0) && causal_holds(&a);
    return a;
}

/* NULL: none is named. */
static const char *pair_kernel(const Node *n)
{
    const Arg *a = &n->arg[op_param(n->op, "kernel")];
    return a->kind == ARG_STR ? a->s : NULL;
}

/* Does PyTorch's kernel for CPUs take it? */
static bool kernel_takes(const Attention *a, double softcap) { return softcap <= 0 && a->q->dim[3] == a->v->dim[3]; }

/* With the last axis contiguous, as that kernel reads it. */
Value *pair_rows(Emit *e, Value *x)
{
    Expr *stride[MAX_RANK];
    if (!value_strides(e->g->ex, x, stride)) {
        fail(e->err, E_LIMIT, "a size expression is too large");
        return NULL;
    }
    return ex_equals_int(stride[3], 1) || ex_equals_int(x->dim[3], 1)
               ? x
               : PUT(e, contiguous, x->name, x->dtype, 4, x->dim, arg_value(x));
}

/* That kernel's mask: additive, of 2 or 4 axes. */
bool pair_mask(Attention *a, bool causal, Value **out)
{
    Emit *e = a->e;
    Expr *one = ex_int(e->g->ex, 1), *dim[4] = {one, one, one, one};
    *out = NULL;
    if (causal) return true;
    TRY(one_mask(a, out));
    Value *m = *out;
    if (!m) return true;
    if (m->dtype == DT_BOOL)
        TRY(m = PUT(e, where_Scalar, "mask", DT_F32, m->rank, m->dim, arg_value(m), number(e, 0),
                    number(e, -INFINITY)));
    TRY(m = pair_cast(e, m, a->q->dtype));
    for (int i = 0; i < m->rank; i++) dim[4 - m->rank + i] = m->dim[i];
    *out = m->rank == 2 || m->rank == 4 ? m : shaped(e, "mask", m, 4, dim);
    return *out != NULL;
}

static bool is_read(const Emit *e, const Value *v, OpId but)
{
    for (int i = 0; i < e->g->noutput; i++)
        if (e->g->output[i].value == v) return true;
    for (const Node *n = e->g->first; n; n = n->next)
        for (int i = 0; n->op->id != but && i < n->op->schema->nparams; i++) {
            if (n->arg[i].kind == ARG_VALUE && n->arg[i].v == v) return true;
            for (int k = 0; n->arg[i].kind == ARG_VALUES && k < n->arg[i].n; k++)
                if (n->arg[i].vs[k] == v) return true;
        }
    return false;
}

bool spell_sdpa_lse(Emit *e, const Node *n)
{
    bool causal;
    double softcap;
    Attention a = pair_of(e, n, 0, &causal, &softcap);
    Value *mask, *capped;
    const char *kernel = pair_kernel(n);
    if (kernel && strcmp(kernel, "math")) return write_kernel(&a, kernel, causal);
    if (!kernel && kernel_takes(&a, softcap)) {
        Value *q = pair_rows(e, a.q), *k = q ? pair_rows(e, a.k) : NULL, *v = k ? pair_rows(e, a.v) : NULL;
        TRY(v && pair_mask(&a, causal, &mask));
        Arg args[7] = {arg_value(q),    arg_value(k), arg_value(v), number(e, 0), arg_expr(ex_bool(e->g->ex, causal)),
                       arg_value(mask), a.scale};
        return write_node(e, op_get(OP_scaled_dot_product_flash_attention_for_cpu), args, 2, n->out);
    }
    Arg args[UPPER + 1] = {arg_value(a.q),
                           arg_value(a.k),
                           arg_value(a.v),
                           arg_value(a.mask),
                           number(e, 0),
                           arg_expr(ex_bool(e->g->ex, false)),
                           a.scale,
                           arg_expr(ex_bool(e->g->ex, a.q->dim[1] != a.k->dim[1])),
                           number(e, softcap),
                           arg_expr(a.lower),
                           arg_expr(a.upper)};
    if (!a.lower) args[LOWER] = (Arg){0};
    if (!a.upper) args[UPPER] = (Arg){0};
    Node plain = {
        .op = op_get(OP_scaled_dot_product_attention), .name = n->name, .arg = args, .out = n->out, .nout = 1};
    TRY(spell_attention(e, &plain));
    if (!is_read(e, n->out[1], OP_sdpa_backward))
        return true; /* its backward pass is written out, too, and reads the scores */
    DType t = n->out[1]->dtype;
    Value *q = pair_cast(e, a.q, t), *k = pair_cast(e, pair_every_head(&a, a.k), t),
          *s = q && k ? scores_of(&a, q, k, softcap, &capped) : NULL;
    Expr *last = ex_int(e->g->ex, -1);
    return s &&
           write_node(
               e, op_get(OP_logsumexp),
               (Arg[3]){arg_value(s), {.kind = ARG_EXPRS, .n = 1, .es = &last}, arg_expr(ex_bool(e->g->ex, false))}, 1,
               &n->out[1]);
}

static Value *summed(Emit *e, Value *x, int naxes, const int *axis, bool keep)
{
    Expr *dim[MAX_RANK], *axes[MAX_RANK];
    int rank = 0, k = 0;
    if (!x || !naxes) return x;
    for (int i = 0; i < naxes; i++) axes[i] = ex_int(e->g->ex, axis[i]);
    for (int i = 0; i < x->rank; i++) {
        bool gone = k < naxes && axis[k] == i;
        k += gone;
        if (!gone) dim[rank++] = x->dim[i];
        else if (keep) dim[rank++] = ex_int(e->g->ex, 1);
    }
    return PUT(e, sum_dim_IntList, "sum", x->dtype, rank, dim, arg_value(x),
               ((Arg){.kind = ARG_EXPRS, .n = naxes, .es = axes}), arg_expr(ex_bool(e->g->ex, keep)));
}

static Value *product(Emit *e, Value *x, Value *y)
{
    return x && y ? PUT(e, mul_Tensor, "grad", x->dtype, x->rank, x->dim, arg_value(x), arg_value(y)) : NULL;
}

/* What comes back to heads that queries share: (B, H, M, D) summed to (B, Hkv, M, D). */
Value *pair_shared_heads(const Attention *a, Value *x, const Value *like)
{
    Expr *H = a->q->dim[1], *share = ex_floordiv(a->e->g->ex, H, like->dim[1]);
    if (!x || like->dim[1] == H) return x;
    return summed(a->e, shaped(a->e, "heads", x, 5, (Expr *[]){x->dim[0], like->dim[1], share, x->dim[2], x->dim[3]}),
                  1, (int[]){2}, false);
}

/* What comes back to the mask, summed where it broadcasts. */
Value *pair_mask_gradient(const Attention *a, Value *ds)
{
    int axis[4], n = 0;
    for (int i = 0; i < 4; i++) {
        int at = i - (4 - a->mask->rank);
        if ((at < 0 || ex_equals_int(a->mask->dim[at], 1)) && !ex_equals_int(ds->dim[i], 1)) axis[n++] = i;
    }
    return shaped(a->e, "grad", summed(a->e, ds, n, axis, true), a->mask->rank, a->mask->dim);
}

/* dv = P^T dO, dP = dO v^T, dS = P (dP - sum(P dP)), dq = s dS k, dk = s dS^T q, of what is read. */
static bool write_backward(Attention *a, const Node *n, double softcap)
{
    Emit *e = a->e;
    DType t = a->q->dtype == DT_F64 ? DT_F64 : DT_F32;
    Value *q = pair_cast(e, a->q, t), *k = pair_cast(e, pair_every_head(a, a->k), t),
          *v = pair_cast(e, pair_every_head(a, a->v), t), *dout = pair_cast(e, n->arg[0].v, t), *capped, *s;
    TRY(q && k && v && dout && (s = scores_of(a, q, k, softcap, &capped)));
    Value *p = PUT(e, safe_softmax, "weights", t, 4, s->dim, arg_value(s), integer(e, -1));
    if (is_read(e, n->out[2], OP_NONE))
        TRY(p && pair_finish(e, pair_shared_heads(a, multiplied(e, "grad", turned(e, p), dout), a->v), n->out[2]));
    Value *each = product(e, p, multiplied(e, "grad", dout, turned(e, v))),
          *rest = product(e, p, summed(e, each, 1, (int[]){3}, true));
    Value *ds = rest ? PUT(e, sub_Tensor, "grad", t, 4, s->dim, arg_value(each), arg_value(rest)) : NULL;
    TRY(ds);
    if (n->arg[op_param(n->op, "grad_mask")].e->i) TRY(pair_finish(e, pair_mask_gradient(a, ds), n->out[3]));
    if (capped) {
        Value *square = product(e, capped, capped),
              *slope = square ? PUT(e, rsub_Scalar, "grad", t, 4, s->dim, arg_value(square), number(e, 1)) : NULL;
        TRY(ds = product(e, ds, slope));
    }
    TRY(ds = PUT(e, mul_Tensor, "grad", t, 4, s->dim, arg_value(ds), pair_scale(a)));
    if (is_read(e, n->out[0], OP_NONE)) TRY(pair_finish(e, multiplied(e, "grad", ds, k), n->out[0]));
    return !is_read(e, n->out[1], OP_NONE) ||
           pair_finish(e, pair_shared_heads(a, multiplied(e, "grad", turned(e, ds), q), a->k), n->out[1]);
}

bool spell_sdpa_backward(Emit *e, const Node *n)
{
    bool causal;
    double softcap;
    Attention a = pair_of(e, n, 1, &causal, &softcap);
    Value *mask;
    const char *kernel = pair_kernel(n);
    if (kernel && strcmp(kernel, "math")) return write_kernel_backward(&a, kernel, causal);
    if (kernel || !kernel_takes(&a, softcap) || n->arg[op_param(n->op, "grad_mask")].e->i)
        return write_backward(&a, n, softcap);
    Value *d = pair_rows(e, n->arg[0].v), *q = d ? pair_rows(e, a.q) : NULL, *k = q ? pair_rows(e, a.k) : NULL,
          *v = k ? pair_rows(e, a.v) : NULL;
    TRY(v && pair_mask(&a, causal, &mask));
    Arg args[10] = {arg_value(d),    arg_value(q), arg_value(k), arg_value(v),
                    n->arg[4],       n->arg[5],    number(e, 0), arg_expr(ex_bool(e->g->ex, causal)),
                    arg_value(mask), a.scale};
    return write_node(e, op_get(OP_scaled_dot_product_flash_attention_for_cpu_backward), args, 3, n->out);
}
