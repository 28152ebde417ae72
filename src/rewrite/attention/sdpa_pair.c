/* Attention's backward pass, spelled out, with its forward pass as one pair. Contract in sdpa_pair.h. */
#include "rewrite/attention/sdpa_pair.h"
#include <math.h>
#include <string.h>
#include "facts/views.h"
#include "rewrite/attention/mask.h"
#include "rewrite/attention/scores.h"
#include "rewrite/attention/sdpa_pair_impl.h"

const char sdpa_backward_rule[] = "sdpa_backward";

enum {
    Q,
    K,
    V,
    MASK,
    DROPOUT,
    CAUSAL,
    SCALE,
    GQA,
    SOFTCAP,
    LOWER,
    UPPER
};                                   /* parameters of scaled_dot_product_attention */
static const double ROUNDING = 1e-6; /* of two scales that a source multiplies with each other */

/* ------------------------------------------------------------------ building */

static Value *spread(Rewrite *rw, const Node *n, int i)
{
    const Value *q = n->arg[Q].v, *k = n->arg[K].v;
    Value *x = n->arg[i].kind == ARG_VALUE ? n->arg[i].v : NULL;
    return x ? rw_expand(rw, rw_pad_rank(rw, x, 4), 4, (Expr *[]){q->dim[0], q->dim[1], q->dim[2], k->dim[2]}) : NULL;
}

/* What scores are multiplied with; 0 when that is not known. */
static double scale_of(const Node *n)
{
    const Expr *size = n->arg[Q].v->dim[3];
    if (n->arg[SCALE].kind == ARG_EXPR) return ex_is_const(n->arg[SCALE].e) ? ex_number(n->arg[SCALE].e) : 0;
    return ex_is_int(size) && size->i > 0 ? 1 / sqrt((double)size->i) : 0;
}

/* Has x the heads of each group of n as rows of one matrix, queries (batch, heads of keys, group * rows, size)? */
static bool merges_groups(Rewrite *rw, const Node *x, const Node *n)
{
    const Value *q = x->arg[Q].v, *of = n->arg[Q].v, *k = n->arg[K].v;
    if (q->rank != 4 || of->rank != 4 || of->dim[1] == k->dim[1] || q->dim[1] != k->dim[1] || x->arg[CAUSAL].e->i ||
        x->arg[LOWER].kind != ARG_NONE || x->arg[UPPER].kind != ARG_NONE)
        return false;
    return q->dim[2] == ex_mul(rw->ex, ex_floordiv(rw->ex, of->dim[1], k->dim[1]), of->dim[2]);
}

/* Do two attentions give the same values in the same order? Their masks may be expanded to different sizes. */
static bool same_attention(Rewrite *rw, const Node *x, const Node *n)
{
    double scale = scale_of(n);
    bool same = x->op == n->op && scale != 0 && fabs(scale_of(x) / scale - 1) <= ROUNDING &&
                x->arg[MASK].kind == n->arg[MASK].kind,
         merged = same && merges_groups(rw, x, n);
    for (int i = DROPOUT; same && i < n->op->schema->nparams; i++)
        same = i == SCALE || (merged && i == GQA) || arg_same(&x->arg[i], &n->arg[i]);
    Value *q = !same ? NULL : merged ? rw_reshape(rw, x->arg[Q].v, 4, n->arg[Q].v->dim) : x->arg[Q].v;
    same = q && alike(folded(rw, q, 0), folded(rw, n->arg[Q].v, 0), 0);
    for (int i = K; same && i <= V; i++) same = alike(folded(rw, x->arg[i].v, 0), folded(rw, n->arg[i].v, 0), 0);
    if (!same || n->arg[MASK].kind == ARG_NONE) return same;
    Value *a = spread(rw, x, MASK), *b = spread(rw, n, MASK);
    if (a && b && merged) a = rw_reshape(rw, a, 4, b->dim);
    return a && b && alike(folded(rw, a, 0), folded(rw, b, 0), 0);
}

/* The attention of the graph that gives the same as n, which was made, or as n with bounds in the place of its mask.
 * NULL: none. */
static const Node *in_graph(Rewrite *rw, const Node *n)
{
    Arg y;
    if (!rewrite_info(rw, n->out[0])->ghost) return n;
    const Node *bounded = n->arg[MASK].kind == ARG_VALUE && make_banded(rw, 1, (Arg[]){arg_value(n->out[0])}, &y)
                              ? y.v->def
                              : n;
    for (const Node *x = rw->g->first; x && !rw->hard; x = x->next)
        if (x->op == n->op && (same_attention(rw, x, n) || (bounded != n && same_attention(rw, x, bounded)))) return x;
    return NULL;
}

static bool reshapes(const Node *n, const void *user)
{
    (void)user;
    return n->op->id == OP_reshape;
}

/* The attention of P and the values as scaled_dot_product_attention. */
static const Node *attention_of(Pair *p)
{
    Rewrite *rw = p->rw;
    Arg y;
    TRY(make_attention(rw, 2, (Arg[]){arg_value(p->base), p->grad_form.v->def->arg[1]}, &y));
    const Value *v = value_below(y.v, reshapes, NULL);
    if (!v->def || v->def->op->id != OP_scaled_dot_product_attention || v->dtype != p->base->dtype) {
        rewrite_refuse(rw, "the gradient would be rounded in another way");
        return NULL;
    }
    return v->def;
}

static Value *replay(Rewrite *rw, const Root *r, Value *v, int from, int to)
{
    int perm[MAX_RANK];
    for (int i = from; v && i < to; i++) {
        const Value *y = r->view[i]->out[0];
        v = permutation_of(r->view[i], perm) ? rw_permute(rw, v, perm) : rw_reshape(rw, v, y->rank, y->dim);
    }
    return v;
}

/* Does the source sum the heads of each group, axis 2 of (batch, heads of keys, group, rows, size), and nothing
 * else? */
static bool sums_group(Rewrite *rw, const Root *r, const Value *grad, Expr *group)
{
    ExprPool *p = rw->ex;
    Expr *dim[5] = {grad->dim[0], grad->dim[1], group, grad->dim[2], grad->dim[3]};
    const Value *x = r->sum->arg[0].v;
    int axis = ex_is_int(r->sum->arg[1].es[0]) ? (int)r->sum->arg[1].es[0]->i : MAX_RANK;
    if (axis < 0) axis += x->rank;
    if (axis >= x->rank || x->dim[axis] != group || product_of(p, axis, x->dim) != product_of(p, 2, dim) ||
        product_of(p, x->rank - axis - 1, x->dim + axis + 1) != product_of(p, 2, dim + 3))
        return false;
    Value *plain = r->transposed ? rw_swap_last(rw, r->product) : r->product;
    const Value *a = rw_reshape(rw, replay(rw, r, r->product, 0, r->summed), 5, dim),
                *b = rw_reshape(rw, plain, 5, dim);
    return a && b && alike(a, b, 0);
}

static Value *times(Rewrite *rw, Value *v, double factor)
{
    return v && fabs(factor - 1) > ROUNDING ? rw_binary(rw, OP_mul_Tensor, v, arg_float(rw->g, factor)) : v;
}

/* The gradient as the source has it: grad (batch, heads, rows, size), of keys with fewer heads than queries already
 * summed: by a sum, or by a product over the rows of a group. */
static Value *as_source(Pair *p, Root *r, Value *grad, const Value *o, double factor)
{
    Rewrite *rw = p->rw;
    const Value *x = r->product;
    Expr *dim[MAX_RANK];
    Value *v;
    Expr *group = ex_floordiv(rw->ex, o->dim[1], grad->dim[1]);
    if (grad->dim[1] != o->dim[1] && r->over != ex_mul(rw->ex, group, o->dim[2])) {
        if (!r->sum || !sums_group(rw, r, grad, group))
            return rewrite_refuse(rw, "the gradient of '%s' is not summed over the heads that share keys", x->name),
                   NULL;
        v = replay(rw, r, rw_reshape(rw, grad, r->sum->out[0]->rank, r->sum->out[0]->dim), r->summed, r->nviews);
    } else {
        memcpy(dim, x->dim, (size_t)x->rank * sizeof *dim);
        if (r->transposed) swap_last(x->rank, dim);
        v = rw_reshape(rw, grad, x->rank, dim);
        if (r->transposed && v) v = rw_swap_last(rw, v);
        v = replay(rw, r, v, 0, r->sum ? r->summed : r->nviews);
        if (r->sum) {
            r->from = r->unsummed;
            factor *= r->summed_factor / r->factor;
        }
    }
    return times(rw, v, factor);
}

typedef struct Made {
    const Node *forward; /* in the graph */
    Node *lse, *backward;
    Value *result; /* of the forward attention, from lse */
    double scale;  /* of what comes back, as the form has it */
} Made;

/* What comes back, as (batch, heads, queries, size): *scale times the form's. The source's own value where the
 * gradient of the values reads it. */
static Value *incoming(Pair *p, const Value *o, double *scale)
{
    Rewrite *rw = p->rw;
    Value *x = p->grad_form.v->def->arg[0].v;
    Expr *dim[MAX_RANK];
    Arg c = arg_float(rw->g, 1);
    int r = p->base->rank;
    *scale = 1;
    memcpy(dim, p->base->dim, (size_t)(r - 2) * sizeof *dim);
    dim[r - 2] = o->dim[2], dim[r - 1] = o->dim[3];
    x = rw_reshape(rw, rw_expand(rw, rw_pad_rank(rw, x, r), r, dim), 4, o->dim);
    Value *own = p->dout ? rw_reshape(rw, p->dout, 4, o->dim) : NULL,
          *bare = own ? without_scale(rw, own, &c, 0) : NULL;
    if (!x || !bare || !ex_is_const(c.e) || !alike(bare, x, 0)) return x;
    *scale = ex_number(c.e);
    return own;
}

/* arg: queries, keys and values of the forward pass; the mask as P has it, or bounds in its place as far as it
 * follows from positions. whole: the gradient of the mask is wanted, as large as the scores. */
static bool choose_mask(Pair *p, const Node *attention, bool grad, bool whole, Arg *arg)
{
    Rewrite *rw = p->rw;
    Arg y;
    for (int i = MASK; i <= UPPER; i++) arg[i] = attention->arg[i];
    if (whole) arg[MASK] = arg_value(spread(rw, attention, MASK));
    if (arg[MASK].kind != ARG_VALUE || grad) return true;
    Value *same = rw_add(rw, OP_scaled_dot_product_attention, UPPER + 1, arg);
    if (same && make_banded(rw, 1, (Arg[]){arg_value(same)}, &y)) memcpy(arg, y.v->def->arg, (UPPER + 1) * sizeof *arg);
    return same && !rw->hard;
}

static bool make_pair(Pair *p, const Node *attention, Made *m)
{
    Rewrite *rw = p->rw;
    const Value *mask = attention->arg[MASK].kind == ARG_VALUE ? attention->arg[MASK].v : NULL;
    bool grad = false, whole = false;
    Arg a[UPPER + 1];
    for (int i = 0; i < p->nroots; i++) {
        if (p->root[i].which != GRAD_MASK) continue;
        grad = true;
        whole |= !mask || !same_but_ones(p->root[i].from, mask);
    }
    for (int i = 0; whole && i < p->nroots; i++)
        if (p->root[i].which == GRAD_MASK) p->root[i].from = p->ds;
    memcpy(a, (merges_groups(rw, m->forward, attention) ? attention : m->forward)->arg, sizeof a);
    TRY(choose_mask(p, attention, grad, whole, a));
    Value *o = RW(rw, sdpa_lse, a[Q], a[K], a[V], a[MASK], a[CAUSAL], a[SCALE], a[SOFTCAP], a[LOWER], a[UPPER]),
          *dout = o ? incoming(p, o, &m->scale) : NULL;
    if (!dout) return false;
    m->lse = o->def;
    m->result = rw_reshape(rw, o, m->forward->out[0]->rank, m->forward->out[0]->dim);
    Value *g = RW(rw, sdpa_backward, arg_value(dout), a[Q], a[K], a[V], arg_value(o), arg_value(m->lse->out[1]),
                  a[MASK], a[CAUSAL], a[SCALE], a[SOFTCAP], a[LOWER], a[UPPER], arg_bool(rw->g, grad));
    m->backward = g ? g->def : NULL;
    return g != NULL && m->result;
}

/* The pair, and what takes the place of each root. */
static bool build_pair(Pair *p, Made *m, Value **to)
{
    Rewrite *rw = p->rw;
    const Node *attention = attention_of(p);
    if (!attention) return false;
    m->forward = in_graph(rw, attention);
    if (!m->forward)
        return rewrite_refuse(rw,
                              "there is no attention of the same queries, keys, values and mask in the forward pass");
    TRY(make_pair(p, attention, m));
    double come = ex_number(p->grad_form.v->def->arg[3].e) / m->scale, by = ex_number(p->form.v->def->arg[3].e);
    for (int i = 0; i < p->nroots; i++) {
        Root *r = &p->root[i];
        Value *grad = m->backward->out[r->which];
        if (r->which == GRAD_MASK) to[i] = times(rw, rw_reshape(rw, grad, r->from->rank, r->from->dim), come);
        else
            to[i] = as_source(p, r, grad, m->lse->out[0],
                              r->which == GRAD_VALUE ? r->factor / m->scale : r->factor * come / by);
        if (!to[i]) return false;
    }
    return true;
}

/* Roots that became one: the whole gradient of the scores, read several times. */
static int merge_roots(Pair *p, Value **to)
{
    int n = 0;
    for (int i = 0; i < p->nroots; i++) {
        bool again = false;
        for (int k = 0; k < n; k++) again |= p->root[k].from == p->root[i].from;
        if (again) continue;
        to[n] = to[i];
        p->root[n++] = p->root[i];
    }
    return n;
}

/* Bounds that show every query the first key, and no mask. */
static bool shows_a_key(const Node *lse)
{
    const Arg *a = lse->arg; /* mask, is_causal, scale, softcap, lower, upper from the fourth on */
    return a[3].kind == ARG_NONE && a[7].kind == ARG_NONE &&
           (a[8].kind == ARG_NONE || (ex_is_int(a[8].e) && a[8].e->i >= 0));
}

/* An additive mask that may hide a whole row by finite numbers: so low that the logarithm of the row's sum is lost
 * beside them. */
static bool may_swallow(Rewrite *rw, const Node *lse)
{
    const Value *m = lse->arg[3].kind == ARG_VALUE ? through_views(lse->arg[3].v) : NULL;
    const Node *n;
    double shown, hidden;
    if (!m || m->dtype == DT_BOOL) return false;
    n = m->def;
    return !n || n->op->id != OP_where_self || !constant_of(rw->g, &n->arg[1], &shown) ||
           !constant_of(rw->g, &n->arg[2], &hidden) || shown != 0 || !isinf(hidden);
}

static void note_rows(Pair *p, const Node *lse)
{
    Rewrite *rw = p->rw;
    int rows = (int)p->form.v->def->arg[6].e->i;
    bool zero = rw->waiver == WAIVE_ZEROS,
         other = rw->waiver == WAIVE_INPUTS || (p->masked_again && rows == 4) || may_swallow(rw, lse);
    rw->note = NULL;
    rw->waiver = (zero || other) && !shows_a_key(lse) ? WAIVE_INPUTS : WAIVE_NOTHING;
    if (!rw->waiver) return;
    rw->note =
        zero
            ? "gradients of a row without an allowed key are 0; the source gives NaN there, and in all keys and values "
              "that the row meets"
            : "gradients of a row whose keys are all hidden may be others than the source's";
}

static bool fire_pair(Pair *p, const Rule *backward, const Rule *forward)
{
    Rewrite *rw = p->rw;
    Value *from[MAX_FORK], *to[MAX_FORK];
    Node *root[MAX_FORK];
    Made m = {0};
    rw->rule = backward;
    rw->note = NULL;
    rw->waiver = WAIVE_NOTHING;
    rw->made_before = rw->nghosts;
    TRY(build_pair(p, &m, to));
    note_rows(p, m.lse);
    if (rw->waiver && rw->o->exact)
        return rewrite_refuse(rw, "gradients of rows without an allowed key would be others (exact_masked_rows)");
    int n = merge_roots(p, to);
    for (int i = 0; i < n; i++) {
        from[i] = p->root[i].from;
        root[i] = from[i]->def;
    }
    TRY(rewrite_fire(rw, backward, n, root, from, to, p->base));
    Waiver waiver = rw->waiver;
    rw->rule = forward;
    rw->note = NULL;
    rw->waiver = waiver;
    Node *old = (Node *)(uintptr_t)m.forward;
    rewrite_fire(rw, forward, 1, &old, old->out, &m.result, NULL);
    return true;
}

/* A forward pass that was decomposed beside a gradient that was not (PyTorch's core decompositions do that): it
 * gives what the gradient's sdpa_lse gives, too. */
static void join_forward(Rewrite *rw, const Rule *rule, Node *lse, bool *changed)
{
    const Arg *a = lse->arg;
    Arg y;
    rw->rule = rule;
    rw->made_before = rw->nghosts;
    Value *plain = RW(rw, scaled_dot_product_attention, a[0], a[1], a[2], a[3], arg_float(rw->g, 0), a[4], a[5],
                      arg_bool(rw->g, a[0].v->dim[1] != a[1].v->dim[1]), a[6], a[7], a[8]);
    for (Node *x = rw->g->first; plain && x && !rw->hard; x = x->next) {
        if (x->op->id != OP_scaled_dot_product_attention) continue;
        bool same = same_attention(rw, x, plain->def);
        if (!same && x->arg[MASK].kind == ARG_VALUE && make_banded(rw, 1, (Arg[]){arg_value(x->out[0])}, &y))
            same = same_attention(rw, y.v->def, plain->def);
        rw->note = NULL;
        rw->waiver = WAIVE_NOTHING;
        Value *result = same ? rw_reshape(rw, lse->out[0], x->out[0]->rank, x->out[0]->dim) : NULL;
        if (!result || !rewrite_fire(rw, rule, 1, &x, x->out, &result, NULL)) continue;
        *changed = true;
        return;
    }
}

bool sdpa_pairs(Rewrite *rw, bool *changed)
{
    Readers readers = {0};
    Rule backward = {.name = sdpa_backward_rule, .phase = "recompose", .index = rw->o->rules->n, .builtin = true},
         forward = backward;
    forward.name = "sdpa_lse";
    bool fresh = false;
    for (Node *n = rw->g->first, *next; n && !rw->hard; n = next) {
        next = n->next;
        Value *form = n->nout == 1 ? rewrite_form(rw, n->out[0], OP_softmax_backward) : NULL;
        if (!form) continue;
        if (!fresh && !find_readers(rw, &readers)) {
            rw->hard = true;
            break;
        }
        fresh = true;
        Pair p = {.rw = rw, .readers = &readers, .ds = n->out[0]};
        rw->why[0] = 0;
        if (find_pair(&p, form) && fire_pair(&p, &backward, &forward)) {
            *changed = true;
            fresh = false;
            next = rw->g->first;
        } else if (rw->why[0] && p.base) {
            Info *info = rewrite_info(rw, p.base);
            info->rule = sdpa_backward_rule;
            info->why = arena_strdup(rw->scratch, rw->why);
        }
    }
    free_readers(&readers);
    for (Node *n = rw->g->first, *next; n && !rw->hard; n = next) {
        next = n->next;
        if (n->op->id == OP_sdpa_lse) join_forward(rw, &forward, n, changed);
    }
    return !rw->hard;
}
