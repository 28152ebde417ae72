/* Attention in ATen's words: what aten.scaled_dot_product_attention lacks is written around it, or out.
 *
 *     sdpa(q, k, v, mask, upper=0)   ->  sdpa(q, k, v, mask & (arange(M) - arange(N)[:, None] <= 0))
 *     sdpa(q, k, v, softcap=50.)     ->  _safe_softmax(tanh(q @ k.T * scale / 50) * 50) @ v
 */
#include <math.h>
#include "emit/pt2_impl.h"

enum { MASK = 3, CAUSAL = 5, SCALE = 6, GQA = 7 };

typedef struct Attention {
    Emit *e;
    const Node *n;
    Value *q, *k, *v, *mask;
    Expr *lower, *upper; /* key j for query i: i + lower <= j <= i + upper; NULL = no bound */
} Attention;

static Arg number(const Emit *e, double v) { return arg_expr(ex_float(e->g->ex, v)); }
static Arg integer(const Emit *e, int64_t v) { return arg_expr(ex_int(e->g->ex, v)); }

static Value *shaped(Emit *e, const char *base, Value *x, int rank, Expr *const *dim)
{
    Arg size = {.kind = ARG_EXPRS, .n = rank, .es = (Expr **)(uintptr_t)dim};
    return x ? PUT(e, reshape, base, x->dtype, rank, dim, arg_value(x), size) : NULL;
}

static Value *cast(Emit *e, Value *x, DType t)
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
    Value *i = PUT(e, arange_start_step, "query", DT_I64, 1, &N, integer(e, 0), arg_expr(N), integer(e, 1), arg_dtype(DT_I64));
    Value *j = PUT(e, arange_start_step, "key", DT_I64, 1, &M, integer(e, 0), arg_expr(M), integer(e, 1), arg_dtype(DT_I64));
    i = shaped(e, "query", i, 2, (Expr *[]){N, one});
    j = shaped(e, "key", j, 2, (Expr *[]){one, M});
    Value *far = i && j ? PUT(e, sub_Tensor, "distance", DT_I64, 2, both, arg_value(j), arg_value(i)) : NULL;
    Value *from = far && a->lower ? PUT(e, ge_Scalar, "window", DT_BOOL, 2, both, arg_value(far), arg_expr(a->lower)) : NULL;
    Value *to = far && a->upper ? PUT(e, le_Scalar, "window", DT_BOOL, 2, both, arg_value(far), arg_expr(a->upper)) : NULL;
    *out = from && to ? PUT(e, logical_and, "window", DT_BOOL, 2, both, arg_value(from), arg_value(to)) : from ? from : to;
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

/* One mask for what mask and bounds say: bool, or additive in the mask's dtype. */
static bool one_mask(Attention *a, Value **out)
{
    Emit *e = a->e;
    Value *allowed;
    Expr *dim[MAX_RANK];
    TRY(window(a, &allowed));
    *out = allowed ? allowed : a->mask;
    if (!allowed || !a->mask) return true;
    int rank = broadcast(a->mask, allowed, dim);
    *out = a->mask->dtype == DT_BOOL ? PUT(e, logical_and, "mask", DT_BOOL, rank, dim, arg_value(a->mask), arg_value(allowed))
                                     : PUT(e, where_ScalarOther, "mask", a->mask->dtype, rank, dim, arg_value(allowed), arg_value(a->mask), number(e, -INFINITY));
    return *out != NULL;
}

/* (B, Hkv, M, D) with each head as often as queries share it: (B, H, M, D) */
static Value *every_head(Attention *a, Value *x)
{
    ExprPool *p = a->e->g->ex;
    Expr *H = a->q->dim[1], *share = ex_floordiv(p, H, x->dim[1]);
    if (x->dim[1] == H) return x;
    Expr *wide[5] = {x->dim[0], x->dim[1], share, x->dim[2], x->dim[3]}, *thin[5] = {wide[0], wide[1], ex_int(p, 1), wide[3], wide[4]}, *all[4] = {wide[0], H, wide[3], wide[4]};
    Value *y = shaped(a->e, "heads", x, 5, thin);
    y = y ? PUT(a->e, expand, "heads", y->dtype, 5, wide, arg_value(y), (Arg){.kind = ARG_EXPRS, .n = 5, .es = wide}) : NULL;
    return shaped(a->e, "heads", y, 4, all);
}

static Arg scale_of(const Attention *a)
{
    const Arg *given = &a->n->arg[SCALE];
    ExprPool *p = a->e->g->ex;
    Expr *D = a->q->dim[3];
    if (given->kind == ARG_EXPR) return *given;
    if (ex_is_int(D)) return number(a->e, 1 / sqrt((double)D->i));
    return arg_expr(ex_make(p, EX_TRUEDIV, ex_float(p, 1), ex_make(p, EX_SQRT, ex_make(p, EX_TOFLOAT, D, NULL, NULL), NULL, NULL), NULL));
}

/* Half types are worked on in float32, as kernels of one op do. */
static bool write_out(Attention *a, double softcap)
{
    Emit *e = a->e;
    Value *mask, *s, *out = a->n->out[0];
    DType t = a->q->dtype == DT_F64 ? DT_F64 : DT_F32;
    TRY(one_mask(a, &mask));
    Value *q = cast(e, a->q, t), *k = cast(e, every_head(a, a->k), t), *v = cast(e, every_head(a, a->v), t);
    TRY(q && k && v);
    Expr *turned[4] = {k->dim[0], k->dim[1], k->dim[3], k->dim[2]}, *dim[4] = {q->dim[0], q->dim[1], q->dim[2], k->dim[2]};
    Expr *order[4] = {ex_int(e->g->ex, 0), ex_int(e->g->ex, 1), ex_int(e->g->ex, 3), ex_int(e->g->ex, 2)};
    Value *kt = PUT(e, permute, "turned", t, 4, turned, arg_value(k), (Arg){.kind = ARG_EXPRS, .n = 4, .es = order});
    TRY(kt && (s = PUT(e, matmul, "scores", t, 4, dim, arg_value(q), arg_value(kt))));
    TRY(s = PUT(e, mul_Tensor, "scores", t, 4, dim, arg_value(s), scale_of(a)));
    TRY(s = PUT(e, div_Tensor, "scores", t, 4, dim, arg_value(s), number(e, softcap)));
    TRY(s = PUT(e, tanh, "scores", t, 4, dim, arg_value(s)));
    TRY(s = PUT(e, mul_Tensor, "scores", t, 4, dim, arg_value(s), number(e, softcap)));
    if (mask && mask->dtype == DT_BOOL) s = PUT(e, where_ScalarOther, "scores", t, 4, dim, arg_value(mask), arg_value(s), number(e, -INFINITY));
    else if (mask) s = (mask = cast(e, mask, t)) ? PUT(e, add_Tensor, "scores", t, 4, dim, arg_value(s), arg_value(mask)) : NULL;
    TRY(s && (s = PUT(e, safe_softmax, "weights", t, 4, dim, arg_value(s), integer(e, -1))));
    Arg product[2] = {arg_value(s), arg_value(v)};
    if (out->dtype == t) return write_node(e, op_get(OP_matmul), product, 1, a->n->out);
    Value *y = put(e, OP_matmul, 2, product, "wide", t, out->rank, out->dim);
    return y && write_node(e, op_get(OP_to_copy), (Arg[7]){arg_value(y), arg_dtype(out->dtype)}, 1, a->n->out);
}

static Expr *optional(const Node *n, const char *name)
{
    int i = op_param(n->op, name);
    return i >= 0 && n->arg[i].kind == ARG_EXPR ? n->arg[i].e : NULL;
}

bool spell_attention(Emit *e, const Node *n)
{
    Attention a = {e, n, n->arg[0].v, n->arg[1].v, n->arg[2].v, n->arg[MASK].kind == ARG_VALUE ? n->arg[MASK].v : NULL, optional(n, "lower"), optional(n, "upper")};
    ExprPool *p = e->g->ex;
    const Expr *softcap = optional(n, "softcap");
    bool causal = n->arg[CAUSAL].kind == ARG_EXPR && n->arg[CAUSAL].e->i;
    Arg args[16] = {{0}};
    for (int i = 0; i <= GQA; i++) args[i] = n->arg[i];
    double cap = !softcap ? 0 : softcap->kind == EX_FLOAT ? softcap->f : (double)softcap->i;
    bool alone = causal || (a.upper && ex_equals_int(a.upper, 0)); /* ATen's is_causal says it, where nothing else is said */
    if (cap <= 0 && !a.mask && !a.lower && alone && (!causal || !a.upper)) {
        args[CAUSAL] = arg_expr(ex_bool(p, true));
        return write_node(e, n->op, args, 1, n->out);
    }
    if (causal) a.upper = a.upper ? ex_min(p, a.upper, ex_int(p, 0)) : ex_int(p, 0);
    if (cap > 0) return write_out(&a, cap);
    Value *mask;
    TRY(one_mask(&a, &mask));
    args[MASK] = arg_value(mask);
    args[CAUSAL] = arg_expr(ex_bool(p, false));
    return write_node(e, n->op, args, 1, n->out);
}
