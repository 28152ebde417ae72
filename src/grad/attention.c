/* The gradient of attention, and attention as products and a softmax.
 *
 *     S = scale q k^T (+ mask),  P = softmax(S),  out = P v
 *     dv = P^T dout,  dP = dout v^T,  dS = P (dP - sum(P dP)),  dq = scale dS k,  dk = scale dS^T q
 *                                                                       Dao et al. 2022, appendix B.2
 *
 * Attention becomes qkv.sdpa_lse, which keeps the logarithm of each row's sum, and its gradient is one node,
 * qkv.sdpa_backward, which makes P from that again, block by block. With --decompose math both are written out: the
 * forward pass makes P, and the backward pass reads it. For a format that has no such pair (ONNX) attention_written_out
 * does so afterwards: then the backward pass computes P again.
 */
#include <math.h>
#include "grad/grad_impl.h"
#include "ir/bodies.h"
#include "base/mem.h"

/* Where the forms of attention have their operands; softcap, lower and upper follow each other. */
typedef struct Places {
    int q, mask, causal, scale, softcap;
} Places;

static Places places_of(OpId id)
{
    return id == OP_sdpa_lse        ? (Places){0, 3, 4, 5, 6}
           : id == OP_sdpa_backward ? (Places){1, 6, 7, 8, 9}
                                    : (Places){0, 3, 5, 6, 8};
}

typedef struct Attention {
    Places at;
    Value *q, *k, *v,
        *mask; /* q and what has its heads as (B, Hkv, H / Hkv * N, ..): heads of a group are rows of one matrix */
    Expr *B, *H, *Hkv, *N, *M, *rows, *scale;
    Value *scaled; /* scale q */
    Value *capped; /* tanh(S / softcap), NULL without */
    Value *p;      /* (B, H, N, M) */
} Attention;

static Value *grouped(Grad *d, const Attention *a, Value *x)
{
    return x ? gd_reshape(d, x, 4, (Expr *[]){a->B, a->Hkv, a->rows, x->dim[3]}) : NULL;
}
static Value *ungrouped(Grad *d, const Attention *a, Value *x)
{
    return x ? gd_reshape(d, x, 4, (Expr *[]){a->B, a->H, a->N, x->dim[3]}) : NULL;
}

/* Which keys j a query i may see: i + lower <= j <= i + upper; NULL: all. */
static Value *window(Grad *d, const Attention *a, bool *dead)
{
    const Arg *bound = &d->node->arg[a->at.softcap + 1];
    Expr *lower = bound[0].kind == ARG_EXPR ? bound[0].e : NULL, *upper = bound[1].kind == ARG_EXPR ? bound[1].e : NULL,
         *one = gd_int(d, 1);
    if (gd_truth(d, a->at.causal)) upper = upper ? ex_min(d->ex, upper, gd_int(d, 0)) : gd_int(d, 0);
    *dead = lower || (upper && !ex_equals_int(upper, 0));
    if (!lower && !upper) return NULL;
    Value *i = gd_reshape(d, gd_arange(d, a->N), 2, (Expr *[]){a->N, one}), *j = gd_arange(d, a->M), *seen = NULL;
    Value *ahead = i && j ? gd_minus(d, j, i) : NULL;
    if (upper) seen = GD(d, le_Tensor, V(ahead), arg_expr(upper));
    if (lower) {
        Value *from = GD(d, ge_Tensor, V(ahead), arg_expr(lower));
        seen = seen ? GD(d, bitwise_and_Tensor, V(seen), V(from)) : from;
    }
    return seen;
}

/* The operands of d->node, a form of attention. */
static bool read_operands(Grad *d, Attention *a)
{
    const Node *n = d->node;
    Places at = places_of(n->op->id);
    *a = (Attention){.at = at,
                     .q = gd_value(d, at.q),
                     .k = gd_value(d, at.q + 1),
                     .v = gd_value(d, at.q + 2),
                     .mask = gd_value(d, at.mask)};
    if (!a->q || !a->k || !a->v) return gd_refuse(d, "an operand is a number");
    const Arg *dropout = n->op->id == OP_scaled_dot_product_attention ? &n->arg[4] : NULL;
    if (dropout && dropout->kind == ARG_EXPR && dropout->e->kind == EX_FLOAT && dropout->e->f != 0)
        return gd_refuse(d, "it applies dropout of its own");
    a->B = a->q->dim[0];
    a->H = a->q->dim[1];
    a->N = a->q->dim[2];
    a->Hkv = a->k->dim[1];
    a->M = a->k->dim[2];
    return true;
}

static bool probabilities(Grad *d, Attention *a)
{
    TRY(read_operands(d, a));
    const Arg *scale = &d->node->arg[a->at.scale], *softcap = &d->node->arg[a->at.softcap];
    Expr *D = a->q->dim[3], *one = gd_float(d, 1);
    a->rows = a->H == a->Hkv ? a->N : ex_mul(d->ex, ex_floordiv(d->ex, a->H, a->Hkv), a->N);
    a->scale = scale->kind == ARG_EXPR ? scale->e
               : ex_is_int(D)
                   ? gd_float(d, 1 / sqrt((double)D->i))
                   : ex_make(d->ex, EX_TRUEDIV, one,
                             ex_make(d->ex, EX_SQRT, ex_make(d->ex, EX_TOFLOAT, D, NULL, NULL), NULL, NULL), NULL);
    a->scaled = gd_scale(d, grouped(d, a, a->q), a->scale);
    Value *s = ungrouped(d, a, gd_matmul(d, a->scaled, gd_swap(d, a->k, -1, -2)));
    double cap = ex_number(softcap->e);
    if (cap > 0) {
        a->capped = GD(d, tanh, V(GD(d, div_Tensor, V(s), *softcap)));
        s = gd_scale(d, a->capped, softcap->e);
    }
    bool dead;
    Value *seen = window(d, a, &dead);
    if (a->mask)
        s = a->mask->dtype == DT_BOOL ? gd_where(d, a->mask, s, -INFINITY)
                                      : gd_plus(d, s, gd_cast(d, a->mask, s ? s->dtype : DT_F32));
    if (seen) s = gd_where(d, seen, s, -INFINITY);
    /* a row without an allowed key gives 0 */
    a->p = a->mask || dead ? GD(d, safe_softmax, V(s), arg_int(d->g, -1)) : GD(d, softmax_int, V(s), arg_int(d->g, -1));
    return a->p != NULL;
}

static Value *attended(Grad *d, Attention *a) { return ungrouped(d, a, gd_matmul(d, grouped(d, a, a->p), a->v)); }

/* ------------------------------------------------------------------ the pair */

/* d->node's gradient as one node; its operands are those of `forward`, an sdpa_lse. */
static bool send_backward(Grad *d, const Attention *a, const Node *forward)
{
    const Arg *f = forward->arg;
    bool masked = gd_wants(d, a->mask);
    const Arg args[] = {V(d->grad), f[0], f[1], f[2], V(forward->out[0]),    V(forward->out[1]), f[3], f[4],
                        f[5],       f[6], f[7], f[8], arg_bool(d->g, masked)};
    Value *first = gd_add_node(d, OP_sdpa_backward, (int)(sizeof args / sizeof *args), args);
    TRY(first);
    Value *const *out = first->def->out;
    TRY(gd_send(d, a->q, out[0]) && gd_send(d, a->k, out[1]) && gd_send(d, a->v, out[2]));
    return !masked || gd_send(d, a->mask, out[3]);
}

bool grad_attention(Grad *d)
{
    Attention a;
    TRY(read_operands(d, &a));
    const Node *n = d->node, *forward = n;
    if (n->op->id == OP_sdpa_lse && d->grads[1])
        return gd_refuse(d, "the logarithms of its sums are used, not its result alone");
    if (n->op->id != OP_sdpa_lse) {
        d->at = (Node *)(uintptr_t)n;
        d->node = NULL; /* no part of the gradient: a name of its own */
        Value *y = GD(d, sdpa_lse, n->arg[0], n->arg[1], n->arg[2], n->arg[3], n->arg[5], n->arg[6], n->arg[8],
                      n->arg[9], n->arg[10]);
        d->at = NULL;
        d->node = n;
        TRY(y);
        forward = y->def;
        graph_replace_uses(d->g, n->out[0], y);
    }
    return send_backward(d, &a, forward);
}

/* ------------------------------------------------------------------ written out */

/* An sdpa_backward's results as products and a softmax that is computed again. */
static bool write_backward(Grad *d, Attention *a)
{
    const Node *n = d->node;
    Value *p = grouped(d, a, a->p), *out = grouped(d, a, gd_value(d, 0));
    Value *dv = gd_matmul(d, gd_swap(d, p, -1, -2), out),
          *dp = ungrouped(d, a, gd_matmul(d, out, gd_swap(d, a->v, -1, -2))), *each = gd_mul(d, a->p, dp);
    Value *ds = gd_minus(d, each, gd_mul(d, a->p, gd_sum(d, each, 1, (int[]){3}, true)));
    Value *dmask = gd_truth(d, 12) ? gd_cast(d, gd_sum_to(d, ds, a->mask->rank, a->mask->dim), a->mask->dtype) : NULL;
    if (gd_truth(d, 12)) TRY(dmask);
    if (a->capped) ds = gd_mul(d, ds, GD(d, sub_Tensor, arg_float(d->g, 1), V(gd_mul(d, a->capped, a->capped))));
    ds = grouped(d, a, ds);
    Value *dq = ungrouped(d, a, gd_scale(d, gd_matmul(d, ds, a->k), a->scale)),
          *dk = gd_matmul(d, gd_swap(d, ds, -1, -2), a->scaled);
    TRY(dq && dk && dv);
    graph_replace_uses(d->g, n->out[0], dq);
    graph_replace_uses(d->g, n->out[1], dk);
    graph_replace_uses(d->g, n->out[2], dv);
    if (dmask) graph_replace_uses(d->g, n->out[3], dmask);
    return true;
}

/* An sdpa_lse whose logarithms are not read (any more) as the op of the forward pass alone. */
static bool write_forward(Grad *d)
{
    const Arg *f = d->node->arg;
    Attention a;
    TRY(read_operands(d, &a));
    Value *y = GD(d, scaled_dot_product_attention, f[0], f[1], f[2], f[3], arg_float(d->g, 0), f[4], f[5],
                  arg_bool(d->g, a.H != a.Hkv), f[6], f[7], f[8]);
    TRY(y);
    graph_replace_uses(d->g, d->node->out[0], y);
    return true;
}

/* Nodes of op `id` through `write`; those that it has replaced go. */
static bool each_node(Grad *d, OpId id, bool (*write)(Grad *d))
{
    bool ok = true;
    for (Node *n = d->g->first; n && ok; n = n->next) {
        d->node = n;
        d->at = n;
        if (n->op->id == id) ok = write(d);
    }
    d->at = NULL;
    d->node = NULL;
    graph_dce(d->g);
    return ok;
}

static bool backward_out(Grad *d)
{
    Attention a;
    return probabilities(d, &a) && write_backward(d, &a);
}

static bool forward_out(Grad *d)
{
    int *uses = mem_zeroed((size_t)d->g->next_id + 1, sizeof *uses);
    if (!uses) return oom(d->err);
    graph_count_uses(d->g, uses);
    bool read = uses[d->node->out[1]->id] != 0;
    mem_free(uses);
    return read || write_forward(d);
}

bool attention_written_out(Graph *g, Err *err)
{
    Grad d = {.g = g, .ex = g->ex, .err = err};
    for (const Node *n = g->first; n; n = n->next)
        for (int i = 0; body_at(n, i); i++) TRY(attention_written_out(body_at(n, i), err));
    return each_node(&d, OP_sdpa_backward, backward_out) && each_node(&d, OP_sdpa_lse, forward_out);
}

static bool product_out(Grad *d)
{
    Attention a;
    Value *out = probabilities(d, &a) ? attended(d, &a) : NULL;
    TRY(out);
    graph_replace_uses(d->g, d->node->out[0], out);
    return true;
}

bool decompose_attention(Grad *d)
{
    return each_node(d, OP_sdpa_lse, forward_out) && each_node(d, OP_scaled_dot_product_attention, product_out);
}
