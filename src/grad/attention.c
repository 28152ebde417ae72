/* The gradient of attention, and attention as products and a softmax.
 *
 *     S = scale q k^T (+ mask),  P = softmax(S),  out = P v
 *     dv = P^T dout,  dP = dout v^T,  dS = P (dP - sum(P dP)),  dq = scale dS k,  dk = scale dS^T q        Dao et al. 2022, appendix B.2
 *
 * attention_backward is the one place that a fused kernel would replace: it computes P anew, as memory of (B, H, N, M), and reads nothing that the
 * forward pass would have to save. With --decompose math the forward pass makes P, and the backward pass reads it.
 */
#include <math.h>
#include "grad/grad_impl.h"

typedef struct Attention {
    Value *q, *k, *v, *mask;     /* q and what has its heads as (B, Hkv, H / Hkv * N, ..): heads of a group are rows of one matrix */
    Expr *B, *H, *Hkv, *N, *M, *rows, *scale;
    Value *scaled;               /* scale q */
    Value *capped;               /* tanh(S / softcap), NULL without */
    Value *p;                    /* (B, H, N, M) */
} Attention;

static Value *grouped(Grad *d, const Attention *a, Value *x) { return x ? gd_reshape(d, x, 4, (Expr *[]){a->B, a->Hkv, a->rows, x->dim[3]}) : NULL; }
static Value *ungrouped(Grad *d, const Attention *a, Value *x) { return x ? gd_reshape(d, x, 4, (Expr *[]){a->B, a->H, a->N, x->dim[3]}) : NULL; }

/* Which keys j a query i may see: i + lower <= j <= i + upper; NULL: all. */
static Value *window(Grad *d, const Attention *a, bool *dead)
{
    const Arg *arg = d->node->arg;
    Expr *lower = arg[9].kind == ARG_EXPR ? arg[9].e : NULL, *upper = arg[10].kind == ARG_EXPR ? arg[10].e : NULL, *one = gd_int(d, 1);
    if (gd_truth(d, 5)) upper = upper ? ex_min(d->ex, upper, gd_int(d, 0)) : gd_int(d, 0);
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

static bool probabilities(Grad *d, Attention *a)
{
    const Arg *arg = d->node->arg;
    *a = (Attention){.q = gd_value(d, 0), .k = gd_value(d, 1), .v = gd_value(d, 2), .mask = gd_value(d, 3)};
    if (!a->q || !a->k || !a->v) return gd_refuse(d, "an operand is a number");
    if (arg[4].kind == ARG_EXPR && arg[4].e->kind == EX_FLOAT && arg[4].e->f != 0) return gd_refuse(d, "it drops out numbers of its own");
    Expr *D = a->q->dim[3], *one = gd_float(d, 1);
    a->B = a->q->dim[0];
    a->H = a->q->dim[1];
    a->N = a->q->dim[2];
    a->Hkv = a->k->dim[1];
    a->M = a->k->dim[2];
    a->rows = a->H == a->Hkv ? a->N : ex_mul(d->ex, ex_floordiv(d->ex, a->H, a->Hkv), a->N);
    a->scale = arg[6].kind == ARG_EXPR ? arg[6].e
               : ex_is_int(D)          ? gd_float(d, 1 / sqrt((double)D->i))
                                       : ex_make(d->ex, EX_TRUEDIV, one, ex_make(d->ex, EX_SQRT, ex_make(d->ex, EX_TOFLOAT, D, NULL, NULL), NULL, NULL), NULL);
    a->scaled = gd_scale(d, grouped(d, a, a->q), a->scale);
    Value *s = ungrouped(d, a, gd_matmul(d, a->scaled, gd_swap(d, a->k, -1, -2)));
    double cap = arg[8].e->kind == EX_FLOAT ? arg[8].e->f : (double)arg[8].e->i;
    if (cap > 0) {
        a->capped = GD(d, tanh, V(GD(d, div_Tensor, V(s), arg[8])));
        s = gd_scale(d, a->capped, arg[8].e);
    }
    bool dead;
    Value *seen = window(d, a, &dead);
    if (a->mask) s = a->mask->dtype == DT_BOOL ? gd_where(d, a->mask, s, -INFINITY) : gd_plus(d, s, gd_cast(d, a->mask, s ? s->dtype : DT_F32));
    if (seen) s = gd_where(d, seen, s, -INFINITY);
    /* a row without an allowed key gives 0 */
    a->p = a->mask || dead ? GD(d, safe_softmax, V(s), arg_int(d->g, -1)) : GD(d, softmax_int, V(s), arg_int(d->g, -1));
    return a->p != NULL;
}

static bool attention_backward(Grad *d, Attention *a)
{
    Value *p = grouped(d, a, a->p), *out = grouped(d, a, d->grad);
    if (gd_wants(d, a->v)) TRY(gd_send(d, a->v, gd_matmul(d, gd_swap(d, p, -1, -2), out)));
    if (!gd_wants(d, a->q) && !gd_wants(d, a->k) && !gd_wants(d, a->mask)) return true;
    Value *dp = ungrouped(d, a, gd_matmul(d, out, gd_swap(d, a->v, -1, -2))), *each = gd_mul(d, a->p, dp);
    Value *ds = gd_minus(d, each, gd_mul(d, a->p, gd_sum(d, each, 1, (int[]){3}, true)));
    if (gd_wants(d, a->mask)) TRY(gd_send(d, a->mask, ds));
    if (a->capped) ds = gd_mul(d, ds, GD(d, sub_Tensor, arg_float(d->g, 1), V(gd_mul(d, a->capped, a->capped))));
    ds = grouped(d, a, ds);
    if (gd_wants(d, a->q)) TRY(gd_send(d, a->q, ungrouped(d, a, gd_scale(d, gd_matmul(d, ds, a->k), a->scale))));
    return !gd_wants(d, a->k) || gd_send(d, a->k, gd_matmul(d, gd_swap(d, ds, -1, -2), a->scaled));
}

bool grad_attention(Grad *d)
{
    Attention a;
    return probabilities(d, &a) && attention_backward(d, &a);
}

bool decompose_attention(Grad *d)
{
    for (Node *n = d->g->first, *next; n; n = next) {
        next = n->next;
        if (n->op->id != OP_scaled_dot_product_attention) continue;
        Attention a;
        d->node = n;
        d->at = n;
        TRY(probabilities(d, &a));
        Value *out = ungrouped(d, &a, gd_matmul(d, grouped(d, &a, a.p), a.v));
        TRY(out);
        graph_replace_uses(d->g, n->out[0], out);
        graph_remove(d->g, n);
    }
    d->at = NULL;
    d->node = NULL;
    return true;
}
