/* Attention's forward and backward pass as PyTorch's ops for GPUs.
 *
 *     qkv.sdpa_lse(.., kernel="flash")       ->  aten._scaled_dot_product_flash_attention
 *     qkv.sdpa_backward(.., kernel="flash")  ->  aten._scaled_dot_product_flash_attention_backward
 *
 * as scaled_dot_product_attention itself calls them: heads of a size that the flash kernel does not take are padded,
 * masks of the memory-efficient one start each row at a multiple of 16 bytes. What the forward op leaves for the
 * backward one (logarithms of its own form, random state) stands in Emit.pair.
 */
#include <string.h>
#include "facts/axes.h"
#include "pt2/write/attention.h"

enum { MASK_ALIGNMENT = 8, GRADIENT_ALIGNMENT = 16, LSE_ALIGNMENT = 32, HEAD_MULTIPLE = 8 };

typedef struct KernelPair {
    Value *q, *k, *v, *bias; /* as the kernel takes them */
    Value *out, *lse, *seed, *offset;
} KernelPair;

static Arg number(const Emit *e, double v) { return arg_expr(ex_float(e->g->ex, v)); }
static Arg integer(const Emit *e, int64_t v) { return arg_expr(ex_int(e->g->ex, v)); }
static Arg truth(const Emit *e, bool v) { return arg_expr(ex_bool(e->g->ex, v)); }
static Arg list(int n, Expr **es) { return (Arg){.kind = ARG_EXPRS, .n = n, .es = es}; }

static Expr *rounded_up(ExprPool *p, Expr *n, int64_t to)
{
    return ex_mul(p, ex_floordiv(p, ex_add(p, n, ex_int(p, to - 1)), ex_int(p, to)), ex_int(p, to));
}

/* x with zeros after its last axis. */
static Value *padded(Emit *e, Value *x, int64_t multiple)
{
    ExprPool *p = e->g->ex;
    if (!x) return NULL;
    Expr *last = x->dim[x->rank - 1], *wide = rounded_up(p, last, multiple), *dim[MAX_RANK];
    Expr *more[2] = {ex_int(p, 0), ex_sub(p, wide, last)};
    if (wide == last) return x;
    for (int i = 0; i < x->rank; i++) dim[i] = i + 1 < x->rank ? x->dim[i] : wide;
    return PUT(e, constant_pad_nd, x->name, x->dtype, x->rank, dim, arg_value(x), list(2, more), number(e, 0));
}

/* The first n of the last axis. */
static Value *cut(Emit *e, Value *x, Expr *n)
{
    Expr *dim[MAX_RANK];
    if (!x || x->dim[x->rank - 1] == n) return x;
    for (int i = 0; i < x->rank; i++) dim[i] = i + 1 < x->rank ? x->dim[i] : n;
    return PUT(e, slice_Tensor, x->name, x->dtype, x->rank, dim, arg_value(x), integer(e, x->rank - 1), integer(e, 0),
               arg_expr(n), integer(e, 1));
}

/* preprocess_mask of PyTorch: (B, H, N, M), expanded, of rows that start at a multiple of 8 elements. */
static bool efficient_bias(Attention *a, Value **mask)
{
    Emit *e = a->e;
    Value *m = *mask;
    Expr *M = a->k->dim[2], *full[4] = {a->q->dim[0], a->q->dim[1], a->q->dim[2], M}, *dim[4];
    if (!m) return true;
    for (int i = 0; i < m->rank; i++) dim[i] = i + 1 < m->rank ? m->dim[i] : M;
    if (m->dim[m->rank - 1] != M)
        TRY(m = PUT(e, expand, m->name, m->dtype, m->rank, dim, arg_value(m), list(m->rank, dim)));
    TRY(m = PUT(e, contiguous, m->name, m->dtype, m->rank, m->dim, arg_value(m)));
    TRY(m = cut(e, padded(e, m, MASK_ALIGNMENT), M));
    *mask = PUT(e, expand, m->name, m->dtype, 4, full, arg_value(m), list(4, full));
    return *mask != NULL;
}

static bool operands(Attention *a, const char *kernel, bool causal, KernelPair *p)
{
    Emit *e = a->e;
    bool flash = !strcmp(kernel, "flash"), efficient = !strcmp(kernel, "efficient");
    TRY((p->q = pair_rows(e, a->q)) && (p->k = pair_rows(e, a->k)) && (p->v = pair_rows(e, a->v)));
    if (efficient) TRY((p->k = pair_every_head(a, p->k)) && (p->v = pair_every_head(a, p->v)));
    if (flash)
        TRY((p->q = padded(e, p->q, HEAD_MULTIPLE)) && (p->k = padded(e, p->k, HEAD_MULTIPLE)) &&
            (p->v = padded(e, p->v, HEAD_MULTIPLE)));
    return pair_mask(a, causal, &p->bias) && (!efficient || efficient_bias(a, &p->bias));
}

static KernelPair *pair_at(Emit *e, const Value *lse, bool make)
{
    if (!e->pair && !(e->pair = arena_array(e->arena, KernelPair *, e->g->next_id + 1))) return NULL;
    KernelPair **at = &e->pair[lse->id];
    if (make && !*at) *at = arena_array(e->arena, KernelPair, 1);
    return *at;
}

/* The result, which the kernel may give wider. */
static Value *result(Emit *e, KernelPair *p, Value *out)
{
    if (p->v->dim[3] == out->dim[3]) return out;
    return new_value(e, out->name, out->dtype, 4, (Expr *[]){out->dim[0], out->dim[1], out->dim[2], p->v->dim[3]});
}

static bool finish_forward(Emit *e, KernelPair *p, Value *out)
{
    Value *x = p->out == out ? out : cut(e, p->out, out->dim[3]);
    return x == out || pair_finish(e, x, out);
}

bool write_kernel(Attention *a, const char *kernel, bool causal)
{
    Emit *e = a->e;
    ExprPool *p = e->g->ex;
    Expr *B = a->q->dim[0], *H = a->q->dim[1], *N = a->q->dim[2], *none[1] = {ex_int(p, 0)}, *two[1] = {ex_int(p, 2)};
    KernelPair *w = pair_at(e, a->n->out[1], true);
    if (!w) return oom(e->err);
    TRY(operands(a, kernel, causal, w) && (w->out = result(e, w, a->n->out[0])));
    Expr *sizes[9] = {[4] = N, [5] = a->k->dim[2]};
    bool ok;
    if (!strcmp(kernel, "flash")) {
        TRY((w->lse = new_value(e, "logsumexp", DT_F32, 3, (Expr *[]){B, H, N})) &&
            (w->seed = new_value(e, "rng_state", DT_U64, 1, two)) &&
            (w->offset = new_value(e, "unused", DT_U64, 0, NULL)));
        Value *debug = new_value(e, "debug", w->q->dtype, 1, none);
        TRY(debug);
        Arg args[7] = {arg_value(w->q),  arg_value(w->k), arg_value(w->v), number(e, 0),
                       truth(e, causal), truth(e, false), pair_scale(a)};
        ok = write_node_of(e, op_get(OP_scaled_dot_product_flash_attention), args, 9,
                           (Value *[]){w->out, w->lse, NULL, NULL, NULL, NULL, w->seed, w->offset, debug}, sizes);
    } else {
        bool cudnn = !strcmp(kernel, "cudnn");
        Expr *wide[3] = {B, H, rounded_up(p, N, LSE_ALIGNMENT)}, *column[4] = {B, H, N, ex_int(p, 1)};
        TRY((w->lse = new_value(e, "logsumexp", DT_F32, cudnn ? 4 : 3, cudnn ? column : wide)) &&
            (w->seed = new_value(e, "seed", DT_I64, 0, NULL)) && (w->offset = new_value(e, "offset", DT_I64, 0, NULL)));
        Arg bias = w->bias ? arg_value(w->bias) : arg_none();
        Arg args[9] = {arg_value(w->q), arg_value(w->k), arg_value(w->v), bias,
                       truth(e, true),  number(e, 0),    truth(e, causal)};
        args[cudnn ? 8 : 7] = pair_scale(a);
        if (cudnn) args[7] = truth(e, false);
        ok = cudnn ? write_node_of(e, op_get(OP_scaled_dot_product_cudnn_attention), args, 9,
                                   (Value *[]){w->out, w->lse, NULL, NULL, NULL, NULL, w->seed, w->offset, NULL}, sizes)
                   : write_node_of(e, op_get(OP_scaled_dot_product_efficient_attention), args, 4,
                                   (Value *[]){w->out, w->lse, w->seed, w->offset}, NULL);
    }
    return ok && finish_forward(e, w, a->n->out[0]);
}

/* A gradient of an operand: of the size that the kernel saw, then as the node's result. */
typedef struct Slot {
    Value *kernel, *out;
} Slot;

static bool slot(Emit *e, Slot *s, const Value *seen, Value *out)
{
    s->out = out;
    s->kernel = same_dims(seen, out) ? out : new_value(e, out->name, out->dtype, 4, seen->dim);
    if (s->kernel && seen->dim[3] == out->dim[3]) { /* of more heads, in strides of the same order */
        s->kernel->def = out->def;
        s->kernel->out = out->out;
    }
    return s->kernel != NULL;
}

static bool finish_slot(Attention *a, const Slot *s)
{
    Emit *e = a->e;
    if (s->kernel == s->out) return true;
    Value *x = cut(e, s->kernel, s->out->dim[3]);
    return pair_finish(e, pair_shared_heads(a, x, s->out), s->out);
}

/* The kernel gives it in rows of a multiple of 16. */
static Value *bias_gradient(Emit *e, const Value *bias)
{
    Expr *const *d = bias->dim, *M = d[3], *wide[4] = {d[0], d[1], d[2], rounded_up(e->g->ex, M, GRADIENT_ALIGNMENT)};
    Value *v = new_value(e, "grad", bias->dtype, 4, d), *rows = v ? new_value(e, "rows", bias->dtype, 4, wide) : NULL;
    Arg args[5] = {arg_value(rows), integer(e, 3), integer(e, 0), arg_expr(M), integer(e, 1)};
    return rows && declare_value(e, v, op_get(OP_slice_Tensor), args) ? v : NULL;
}

static bool write_efficient_backward(Attention *a, const KernelPair *w, Value *grad, bool causal, Slot *s)
{
    Emit *e = a->e;
    bool wanted = w->bias && a->n->arg[op_param(a->n->op, "grad_mask")].e->i;
    Value *dbias = wanted ? bias_gradient(e, w->bias) : NULL;
    Expr *yes = ex_bool(e->g->ex, true), *which[4] = {yes, yes, yes, ex_bool(e->g->ex, wanted)};
    if (wanted) TRY(dbias);
    Arg args[13] = {arg_value(grad),   arg_value(w->q),   arg_value(w->k),    arg_value(w->v),      arg_value(w->bias),
                    arg_value(w->out), arg_value(w->lse), arg_value(w->seed), arg_value(w->offset), number(e, 0),
                    list(4, which),    truth(e, causal),  pair_scale(a)};
    if (!w->bias) args[4] = arg_none();
    TRY(write_node_of(e, op_get(OP_scaled_dot_product_efficient_attention_backward), args, 4,
                      (Value *[]){s[0].kernel, s[1].kernel, s[2].kernel, dbias}, NULL));
    return !wanted || pair_finish(e, pair_mask_gradient(a, dbias), a->n->out[3]);
}

bool write_kernel_backward(Attention *a, const char *kernel, bool causal)
{
    Emit *e = a->e;
    const Value *lse = a->n->arg[op_param(a->n->op, "logsumexp")].v;
    KernelPair *w = pair_at(e, lse, false);
    if (!w) return fail(e->err, E_UNSUPPORTED, "the logarithms of '%s' are not those of a kernel", a->n->name);
    bool flash = !strcmp(kernel, "flash");
    Value *grad = pair_rows(e, a->n->arg[0].v);
    if (flash) grad = padded(e, grad, HEAD_MULTIPLE);
    Slot s[3];
    TRY(grad && slot(e, &s[0], w->q, a->n->out[0]) && slot(e, &s[1], w->k, a->n->out[1]) &&
        slot(e, &s[2], w->v, a->n->out[2]));
    Arg N = arg_expr(a->q->dim[2]), M = arg_expr(a->k->dim[2]), none = arg_none();
    Value *results[3] = {s[0].kernel, s[1].kernel, s[2].kernel};
    Arg first[6] = {arg_value(grad), arg_value(w->q),   arg_value(w->k),
                    arg_value(w->v), arg_value(w->out), arg_value(w->lse)};
    if (flash) {
        Arg args[15] = {[6] = none,           none,         N, M, number(e, 0), truth(e, causal), arg_value(w->seed),
                        arg_value(w->offset), pair_scale(a)};
        memcpy(args, first, sizeof first);
        TRY(write_node(e, op_get(OP_scaled_dot_product_flash_attention_backward), args, 3, results));
    } else if (!strcmp(kernel, "cudnn")) {
        Arg args[16] = {[6] = arg_value(w->seed),
                        arg_value(w->offset),
                        w->bias ? arg_value(w->bias) : none,
                        none,
                        none,
                        N,
                        M,
                        number(e, 0),
                        truth(e, causal),
                        pair_scale(a)};
        memcpy(args, first, sizeof first);
        TRY(write_node(e, op_get(OP_scaled_dot_product_cudnn_attention_backward), args, 3, results));
    } else {
        TRY(write_efficient_backward(a, w, grad, causal, s));
    }
    return finish_slot(a, &s[0]) && finish_slot(a, &s[1]) && finish_slot(a, &s[2]);
}
