/* The attention rules' graft functions for casts and views: how scores follow reshapes, permutes and sums over
 * broadcast products, or move past them. Contract in makers.h.
 */
#include <string.h>
#include "rewrite/attention/scores.h"

bool make_scores_cast(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Scores s = {0};
    (void)n;
    TRY(scores_of(rw, &a[0], &s));
    if (a[1].kind != ARG_DTYPE || !dtype_is_float(a[1].dtype))
        return rewrite_refuse(rw, "scores are cast to a dtype that is not a float");
    if (!s.normalized && dtype_size(a[1].dtype) < dtype_size(s.q->dtype))
        return rewrite_refuse(rw, "scores are rounded to %s, less than queries and keys have", dtype_name(a[1].dtype));
    if (s.normalized && dtype_size(a[1].dtype) > dtype_size(s.dtype) && dtype_size(s.q->dtype) > dtype_size(s.dtype) &&
        !before_upcast(rw, s.q, s.dtype))
        return rewrite_refuse(rw, "probabilities are rounded to %s in between", dtype_name(s.dtype));
    s.dtype = a[1].dtype;
    return scores_give(rw, &s, out);
}

/* The sizes of scores while a reshape is taken apart: leading axes, N, M. */
typedef struct Axes {
    int n;
    Expr *lead[MAX_RANK], *N, *M;
} Axes;

static bool regroup_scores(Rewrite *rw, Scores *s, Axes *x, int n, Expr *const *to)
{
    Value **part[] = {&s->q, &s->k, &s->mask};
    for (int i = 0; i < 3; i++)
        if (*part[i]) TRY(*part[i] = rw_regroup(rw, *part[i], x->n, x->lead, n, to, 2));
    if (n) memmove(x->lead, to, (size_t)n * sizeof *to);
    x->n = n;
    return true;
}

/* b / a where that is known to be whole; NULL otherwise. */
static Expr *quotient(Rewrite *rw, Expr *b, Expr *a)
{
    Expr *g = ex_floordiv(rw->ex, b, a);
    return g && ex_mul(rw->ex, g, a) == b ? g : NULL;
}

/* (..., G * N, M) -> (..., G, N, M): the same keys for all of a group. */
static bool split_queries(Rewrite *rw, Scores *s, Axes *x, Expr *G, Expr *N)
{
    int r = x->n + 2;
    Expr *dim[MAX_RANK];
    Value **part[] = {&s->q, &s->k, &s->mask};
    if (r + 1 > MAX_RANK) return false;
    for (int i = 0; i < 3; i++) {
        Value *v = *part[i];
        if (!v) continue;
        TRY(v = rw_pad_rank(rw, v, r));
        bool queries = i == 0 || (i == 2 && !is_one(v->dim[r - 2]));
        memcpy(dim, v->dim, (size_t)(r - 2) * sizeof *dim);
        dim[r - 2] = queries ? G : ex_int(rw->ex, 1);
        dim[r - 1] = queries ? N : v->dim[r - 2];
        dim[r] = v->dim[r - 1];
        TRY(*part[i] = rw_reshape(rw, v, r + 1, dim));
    }
    x->lead[x->n++] = G;
    x->N = N;
    return true;
}

/* v with size 1 at an axis along which it was expanded. */
static Value *unexpanded(Rewrite *rw, Value *v, int axis)
{
    Expr *dim[MAX_RANK];
    Value *x = v->def && v->def->op->id == OP_expand ? rw_pad_rank(rw, v->def->arg[0].v, v->rank) : NULL;
    if (!x || !is_one(x->dim[axis])) return v;
    memcpy(dim, v->dim, (size_t)v->rank * sizeof *dim);
    dim[axis] = x->dim[axis];
    return rw_expand(rw, x, v->rank, dim);
}

/* (..., G, N, M) -> (..., G * N, M), where keys do not depend on the group. */
static bool merge_queries(Rewrite *rw, Scores *s, Axes *x)
{
    int r = x->n + 2;
    Expr *G = x->lead[x->n - 1], *dim[MAX_RANK], *rows = ex_mul(rw->ex, G, x->N);
    Value **part[] = {&s->q, &s->k, &s->mask};
    for (int i = 0; i < 3; i++) {
        Value *v = *part[i];
        if (!v) continue;
        TRY(v = rw_pad_rank(rw, v, r));
        if (i == 1) TRY(v = unexpanded(rw, v, r - 3));
        if (i == 1 && !is_one(v->dim[r - 3]))
            return rewrite_refuse(rw, "queries are merged with an axis along which keys differ");
        bool one = i == 2 && is_one(v->dim[r - 3]) && is_one(v->dim[r - 2]);
        memcpy(dim, v->dim, (size_t)r * sizeof *dim);
        if (i != 1 && !one) {
            dim[r - 3] = G;
            dim[r - 2] = x->N;
            TRY(v = rw_expand(rw, v, r, dim));
        }
        dim[r - 3] = i == 1 ? v->dim[r - 2] : one ? ex_int(rw->ex, 1) : rows;
        dim[r - 2] = v->dim[r - 1];
        TRY(*part[i] = rw_reshape(rw, v, r - 1, dim));
    }
    x->n--;
    x->N = rows;
    return true;
}

/* Axis of keys split, (..., N, G * M) -> (..., N, G, M): scores of another leading axis, permuted. */
static bool split_keys(Rewrite *rw, Scores *s, Axes *x, Expr *G, Expr *M, Arg *out)
{
    int r = x->n + 3, perm[MAX_RANK];
    Expr *dim[MAX_RANK];
    if (r > MAX_RANK) return false;
    memcpy(dim, x->lead, (size_t)x->n * sizeof *dim);
    Value *k = rw_pad_rank(rw, s->k, r - 1), *q = k ? rw_pad_rank(rw, s->q, r - 1) : NULL, *m = s->mask;
    TRY(q && k);
    Expr *kd[MAX_RANK], *qd[MAX_RANK];
    memcpy(kd, k->dim, (size_t)k->rank * sizeof *kd);
    memcpy(qd, q->dim, (size_t)q->rank * sizeof *qd);
    kd[r - 3] = G, kd[r - 2] = M, kd[r - 1] = k->dim[r - 2];
    qd[r - 3] = ex_int(rw->ex, 1), qd[r - 2] = q->dim[r - 3], qd[r - 1] = q->dim[r - 2];
    s->k = rw_reshape(rw, k, r, kd);
    s->q = rw_reshape(rw, q, r, qd);
    for (int i = 0; i < r; i++) perm[i] = i == r - 3 ? r - 2 : i == r - 2 ? r - 3 : i;
    if (m) {
        TRY(m = rw_pad_rank(rw, m, r - 1));
        bool one = is_one(m->dim[r - 2]);
        memcpy(dim, m->dim, (size_t)(r - 1) * sizeof *dim);
        dim[r - 2] = one ? ex_int(rw->ex, 1) : G;
        dim[r - 1] = one ? ex_int(rw->ex, 1) : M;
        TRY(s->mask = rw_permute(rw, rw_reshape(rw, m, r, dim), perm));
    }
    Arg p;
    TRY(s->q && s->k && scores_give(rw, s, &p));
    Value *v = rw_permute(rw, p.v, perm);
    *out = arg_value(v);
    return v != NULL;
}

/* Scores of sizes x as scores of sizes dim. */
static bool reshaped(Rewrite *rw, Scores *s, Axes *x, int to, Expr *const *dim, Arg *out)
{
    Expr *rows = dim[to - 2], *G, *lead[MAX_RANK];
    if (rows == x->N) return regroup_scores(rw, s, x, to - 2, dim) && scores_give(rw, s, out);
    if ((G = quotient(rw, x->N, rows)))
        return split_queries(rw, s, x, G, rows) && regroup_scores(rw, s, x, to - 2, dim) && scores_give(rw, s, out);
    if (!(G = quotient(rw, rows, x->N)))
        return rewrite_refuse(rw, "the reshape regroups queries in a way that keys do not follow");
    memcpy(lead, dim, (size_t)(to - 2) * sizeof *lead);
    lead[to - 2] = G;
    return regroup_scores(rw, s, x, to - 1, lead) && merge_queries(rw, s, x) && scores_give(rw, s, out);
}

bool make_scores_reshape(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Scores s = {0};
    Axes x = {0};
    (void)n;
    TRY(scores_of(rw, &a[0], &s));
    int r = s.v->rank, to = a[1].n;
    Expr *const *dim = a[1].es;
    x.n = r - 2;
    memcpy(x.lead, s.v->dim, (size_t)x.n * sizeof *x.lead);
    x.N = s.v->dim[r - 2];
    x.M = s.v->dim[r - 1];
    bool swapped = is_one(x.M) && !is_one(x.N) && !s.normalized;
    if (swapped) { /* one key: the same values in the same order as one query */
        Value *q = s.q;
        s.q = s.k;
        s.k = q;
        if (s.mask) TRY(s.mask = rw_swap_last(rw, rw_pad_rank(rw, s.mask, r)));
        x.M = x.N;
        x.N = ex_int(rw->ex, 1);
    }
    Scores part = s;
    Axes axes = x;
    if (to >= 2 && dim[to - 1] == x.M && reshaped(rw, &part, &axes, to, dim, out)) return true;
    if (x.n && is_one(product_of(rw->ex, x.n, x.lead)) && to == 3) TRY(regroup_scores(rw, &s, &x, 0, NULL));
    if (to == x.n + 3 && !s.normalized && dim[to - 3] == x.N && ex_mul(rw->ex, dim[to - 2], dim[to - 1]) == x.M &&
        exprs_same(x.n, x.lead, dim))
        return split_keys(rw, &s, &x, dim[to - 2], dim[to - 1], out);
    Expr *split = to >= 1 && !s.mask && is_one(x.N) && is_one(product_of(rw->ex, x.n, x.lead))
                      ? quotient(rw, x.M, dim[to - 1])
                      : NULL;
    if (split && !s.normalized && !is_one(split)) { /* keys of several batches for one query */
        s.q = rw_reshape(rw, s.q, 3, (Expr *[]){ex_int(rw->ex, 1), ex_int(rw->ex, 1), s.q->dim[s.q->rank - 1]});
        s.k = rw_reshape(rw, s.k, 3, (Expr *[]){split, dim[to - 1], s.k->dim[s.k->rank - 1]});
        swapped = s.q && s.k;
    }
    if (!swapped)
        return to >= 2 && dim[to - 1] == x.M ? false : rewrite_refuse(rw, "the reshape changes the axis of keys");
    Arg p;
    TRY(scores_give(rw, &s, &p)); /* the swapped form, reshaped */
    Value *v = rw_reshape(rw, p.v, to, dim);
    *out = arg_value(v);
    return v != NULL;
}

/* x with its axes in the order of axis[], those beyond its rank 1, and the last one kept. */
static Value *arranged(Rewrite *rw, Value *x, int n, const int *axis)
{
    int perm[MAX_RANK], k = 0, r = x->rank;
    bool used[MAX_RANK] = {false};
    Expr *dim[MAX_RANK];
    for (int i = 0; i < n; i++) {
        dim[i] = axis[i] < 0 ? ex_int(rw->ex, 1) : x->dim[axis[i]];
        if (axis[i] >= 0) used[perm[k++] = axis[i]] = true;
    }
    dim[n] = x->dim[r - 1];
    for (int i = 0; i < r - 1; i++)
        if (!used[i]) perm[k++] = i; /* of 1: they may stand anywhere */
    perm[k] = r - 1;
    return rw_reshape(rw, rw_permute(rw, x, perm), n + 1, dim);
}

/* Products summed over their last axis. Axes that both factors have are batch and heads; the last one that only the
 * one has are its queries, the last that only the other has its keys; a factor that has none is one query. */
bool make_scores_sum(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    if (a[0].kind != ARG_VALUE || a[1].kind != ARG_VALUE || a[2].kind != ARG_VALUE || !dtype_is_float(a[0].v->dtype))
        return false;
    Value *y = a[2].v; /* the sum */
    int r = a[0].v->rank > a[1].v->rank ? a[0].v->rank : a[1].v->rank, N = -1, M = -1, lead = 0, qa[MAX_RANK],
        ka[MAX_RANK], perm[MAX_RANK], back[MAX_RANK];
    Value *q = rw_pad_rank(rw, a[0].v, r), *k = q ? rw_pad_rank(rw, a[1].v, r) : NULL;
    TRY(k && r >= 2);
    for (int i = 0; i < r - 1; i++) {
        if (!is_one(q->dim[i]) && is_one(k->dim[i])) N = i;
        if (is_one(q->dim[i]) && !is_one(k->dim[i])) M = i;
    }
    if (M < 0 && N >= 0) { /* the first factor has the keys */
        Value *t = q;
        q = k;
        k = t;
        M = N;
        N = -1;
    }
    if (M < 0) return rewrite_refuse(rw, "both factors vary along the same axes");
    for (int i = 0; i < r - 1; i++)
        if (i != N && i != M) qa[lead] = ka[lead] = perm[lead] = i, lead++;
    qa[lead] = N;
    ka[lead] = M;
    Scores s = {.q = arranged(rw, q, lead + 1, qa),
                .k = NULL,
                .scale = arg_float(rw->g, 1),
                .softcap = arg_float(rw->g, 0),
                .dtype = q->dtype};
    s.k = s.q ? arranged(rw, k, lead + 1, ka) : NULL;
    Arg p;
    TRY(s.k && scores_give(rw, &s, &p));
    if (N < 0) { /* (..., 1, M) with M in the place of the sum's axis */
        for (int i = 0; i < lead; i++) back[perm[i]] = i;
        Expr *dim[MAX_RANK];
        memcpy(dim, p.v->dim, (size_t)lead * sizeof *dim);
        dim[lead] = p.v->dim[lead + 1];
        back[M] = lead;
        p.v = rw_permute(rw, rw_reshape(rw, p.v, lead + 1, dim), back);
    } else {
        for (int i = 0; i < lead; i++) back[perm[i]] = i;
        back[N] = lead;
        back[M] = lead + 1;
        p.v = rw_permute(rw, p.v, back);
    }
    Value *v = rw_reshape(rw, p.v, y->rank, y->dim);
    *out = arg_value(v);
    return v != NULL;
}

bool make_scores_permute(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Scores s = {0};
    int perm[MAX_RANK], own[MAX_RANK];
    (void)n;
    TRY(scores_of(rw, &a[0], &s));
    int r = s.v->rank;
    if (a[1].n != r) return false;
    for (int i = 0; i < r; i++) perm[i] = (int)(a[1].es[i]->i < 0 ? a[1].es[i]->i + r : a[1].es[i]->i);
    bool straight = perm[r - 2] == r - 2 && perm[r - 1] == r - 1,
         swapped = perm[r - 2] == r - 1 && perm[r - 1] == r - 2;
    int b = perm[r - 2];
    const Value *padded;
    if (!straight && !swapped && perm[r - 1] == r - 1 && (padded = rw_pad_rank(rw, s.k, r)) && is_one(padded->dim[b])) {
        /* queries change places with an axis along which keys do not differ */
        memcpy(own, perm, sizeof own);
        for (int i = 0; i < r - 2; i++)
            if (perm[i] == r - 2) own[i] = b;
        own[r - 2] = r - 2;
        s.q = rw_permute(rw, rw_pad_rank(rw, s.q, r), perm);
        s.k = rw_permute(rw, rw_pad_rank(rw, s.k, r), own);
        if (s.mask) TRY(s.mask = rw_permute(rw, rw_pad_rank(rw, s.mask, r), perm));
        return scores_give(rw, &s, out);
    }
    if (!straight && !swapped) return rewrite_refuse(rw, "queries or keys change places with batch or heads");
    if (swapped && s.normalized) return rewrite_refuse(rw, "probabilities are transposed");
    memcpy(own, perm, sizeof own);
    own[r - 2] = r - 2;
    own[r - 1] = r - 1;
    Value *q = rw_permute(rw, rw_pad_rank(rw, s.q, r), own),
          *k = q ? rw_permute(rw, rw_pad_rank(rw, s.k, r), own) : NULL;
    s.q = swapped ? k : q;
    s.k = swapped ? q : k;
    if (s.mask) TRY(s.mask = rw_permute(rw, rw_pad_rank(rw, s.mask, r), perm));
    return scores_give(rw, &s, out);
}

/* One part of scores, along axis d, where they are `whole` wide: the same of x, which may have 1 there for all. */
static Value *picked(Rewrite *rw, const Node *node, Value *x, int d, const Expr *whole)
{
    Arg arg[8];
    Expr *dim[MAX_RANK];
    bool select = node->op->id == OP_select_int;
    if (!is_one(x->dim[d]) || (is_one(whole) && !select)) {
        memcpy(arg, node->arg, (size_t)node->op->schema->nparams * sizeof *arg);
        arg[0] = arg_value(x);
        arg[1] = arg_int(rw->g, d);
        return rw_add(rw, node->op->id, node->op->schema->nparams, arg);
    }
    if (!select) return x;
    for (int i = 0; i + 1 < x->rank; i++) dim[i] = x->dim[i + (i >= d)];
    return rw_reshape(rw, x, x->rank - 1, dim);
}

bool make_scores_pick(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Scores s = {0};
    (void)n;
    const Node *node = a[1].kind == ARG_VALUE ? a[1].v->def : NULL;
    TRY(node && node->op->schema->nparams <= 8 && scores_of(rw, &a[0], &s));
    int r = s.v->rank;
    int64_t d = node->arg[1].kind == ARG_EXPR ? node->arg[1].e->i : 0;
    if (d < 0) d += r;
    if (d == r - 1 || (d == r - 2 && node->op->id == OP_select_int))
        return rewrite_refuse(rw, d == r - 1 ? "some of the keys are taken" : "one query is taken, without its axis");
    Value **part[] = {&s.q, &s.k, &s.mask};
    for (int i = 0; i < 3; i++) {
        if (!*part[i]) continue;
        TRY(*part[i] = rw_pad_rank(rw, *part[i], r));
        if (i != 1 || d < r - 2) TRY(*part[i] = picked(rw, node, *part[i], (int)d, s.v->dim[d]));
    }
    return scores_give(rw, &s, out);
}

/* ------------------------------------------------------------------ what moves past a view */

/* Is v scores seen through at most four views? */
static bool shows_scores(Rewrite *rw, Value *v)
{
    for (int i = 0; i < 4; i++) {
        if (rewrite_form(rw, v, OP_scores)) return true;
        if (!v->def || (v->def->op->id != OP_permute && v->def->op->id != OP_reshape)) return false;
        v = v->def->arg[0].v;
    }
    return false;
}

bool scores_seen(Rewrite *rw, Value *v)
{
    const Info *info = rewrite_info(rw, v);
    bool seen = shows_scores(rw, v);
    for (int i = 0; !seen && i < info->nalt; i++) seen = shows_scores(rw, info->alt[i]);
    return seen;
}

/* y, a view of x, as that view of one of x's forms that are views of scores. */
bool make_view(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    int perm[MAX_RANK];
    const Node *node = n == 1 && a[0].kind == ARG_VALUE ? a[0].v->def : NULL;
    if (!node) return false;
    Value *x = node->arg[0].v, *v = NULL;
    bool permute = permutation_of(node, perm);
    for (int i = -1; i < rewrite_info(rw, x)->nalt; i++) { /* -1: what x is itself */
        Value *form = i < 0 ? x : rewrite_info(rw, x)->alt[i];
        if (!form->def || (form->def->op->id != OP_permute && form->def->op->id != OP_reshape) ||
            !shows_scores(rw, form))
            continue;
        Value *y = permute ? rw_permute(rw, form, perm) : rw_reshape(rw, form, a[0].v->rank, a[0].v->dim);
        if (rw->hard) return false;
        if (!y || y == a[0].v || !shows_scores(rw, y)) continue;
        v = y;
        if (rewrite_form(rw, y, OP_scores) || !permute) break;
    }
    *out = arg_value(v);
    return v != NULL;
}

bool make_through_permute(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    int perm[MAX_RANK], back[MAX_RANK];
    Arg arg[64];
    (void)n;
    const Node *node = a[0].kind == ARG_VALUE ? a[0].v->def : NULL;
    if (!node || a[1].kind != ARG_VALUE || a[2].n != a[0].v->rank || a[1].v->rank != a[2].n) return false;
    int r = a[2].n, np = node->op->schema->nparams;
    for (int i = 0; i < r; i++) perm[i] = (int)(a[2].es[i]->i < 0 ? a[2].es[i]->i + r : a[2].es[i]->i);
    for (int i = 0; i < r; i++) back[perm[i]] = i;
    memcpy(arg, node->arg, (size_t)np * sizeof *arg);
    for (int i = 0; i < np; i++) {
        if (arg[i].kind != ARG_VALUE) continue;
        Value *p = rewrite_form(rw, arg[i].v, OP_permute);
        Value *x = p && p->def->arg[0].v == a[1].v && arg_same(&p->def->arg[1], &a[2]) ? a[1].v : NULL;
        if (!x && !(x = rw_permute(rw, rw_pad_rank(rw, arg[i].v, r), back))) return false;
        arg[i] = arg_value(x);
    }
    if (node->op->id == OP_softmax_int || node->op->id == OP_safe_softmax) {
        if (!ex_is_int(arg[1].e)) return false;
        int64_t d = arg[1].e->i < 0 ? arg[1].e->i + r : arg[1].e->i;
        arg[1] = arg_int(rw->g, perm[d]);
    }
    Value *v = rw_permute(rw, rw_add(rw, node->op->id, np, arg), perm);
    *out = arg_value(v);
    return v != NULL;
}

/* A pointwise op or a softmax after a reshape of scores is that reshape after it;
 * other operands take the sizes before the reshape. */
bool make_through_reshape(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Arg arg[16];
    (void)n;
    const Node *node = a[0].kind == ARG_VALUE ? a[0].v->def : NULL;
    if (!node || a[1].kind != ARG_VALUE || node->op->schema->nparams > 16) return false;
    const Value *y = a[0].v;
    Value *s = a[1].v;
    int np = node->op->schema->nparams;
    memcpy(arg, node->arg, (size_t)np * sizeof *arg);
    if (node->op->id == OP_softmax_int || node->op->id == OP_safe_softmax) {
        int64_t d = ex_is_int(node->arg[1].e) ? node->arg[1].e->i : y->rank;
        bool last = d == -1 || d < y->rank;
        if (d < 0) d += y->rank;
        for (int64_t k = d + 1; k < y->rank; k++) last = last && is_one(y->dim[k]);
        if (!last || d < 0) return rewrite_refuse(rw, "the softmax runs over an axis other than the last");
        if (!s->rank || y->dim[d] != s->dim[s->rank - 1])
            return rewrite_refuse(rw, "the reshape before the softmax changes the axis of keys");
        arg[0] = arg_value(s);
        arg[1] = arg_int(rw->g, -1);
    } else {
        for (int i = 0; i < np; i++) {
            if (arg[i].kind != ARG_VALUE) continue;
            Value *form = rewrite_form(rw, arg[i].v, OP_reshape), *x = arg[i].v;
            bool one = true;
            for (int k = 0; k < x->rank; k++) one &= is_one(x->dim[k]);
            if (form && form->def->arg[0].v == s) x = s;
            else if (one) x = rw_reshape(rw, x, 0, NULL);
            else x = rw_reshape(rw, rw_expand(rw, rw_pad_rank(rw, x, y->rank), y->rank, y->dim), s->rank, s->dim);
            TRY(x);
            arg[i] = arg_value(x);
        }
    }
    Value *v = rw_reshape(rw, rw_add(rw, node->op->id, np, arg), y->rank, y->dim);
    *out = arg_value(v);
    return v != NULL;
}

/* Probabilities (L, b, a, K) whose rows, turned, are multiplied as one, by values that heads share:
 * y (L, a, b, M) of left (L, a*b, K) and right (L, K, M). */
static bool merged_rows(Rewrite *rw, const Value *y, Value *left, Value *right, Arg *out)
{
    static const int swap[4] = {0, 2, 1, 3};
    int perm[MAX_RANK];
    if (y->rank != 4 || y->dim[0] != left->dim[0] || product_of(rw->ex, 2, &y->dim[1]) != left->dim[1] ||
        is_one(y->dim[1]) || is_one(y->dim[2]))
        return false;
    left = rw_reshape(rw, left, 4, (Expr *[]){y->dim[0], y->dim[1], y->dim[2], left->dim[2]});
    right = rw_reshape(rw, right, 4, (Expr *[]){right->dim[0], ex_int(rw->ex, 1), right->dim[1], right->dim[2]});
    if (!left || !right || !left->def || !permutation_of(left->def, perm) || memcmp(perm, swap, sizeof swap))
        return false;
    Value *p = left->def->arg[0].v, *form = rewrite_form(rw, p, OP_scores);
    if (!form || !form->def->arg[5].e->i) return false;
    Value *product = RW(rw, matmul, arg_value(p), arg_value(right)),
          *turned = product ? rw_permute(rw, product, swap) : NULL;
    *out = arg_value(turned);
    return turned != NULL;
}

/* Are these probabilities, or those of some keys? */
static bool of_probabilities(Rewrite *rw, Value *p)
{
    if (p->def && p->def->op->id == OP_slice_Tensor) p = p->def->arg[0].v;
    const Value *form = rewrite_form(rw, p, OP_scores);
    return form && form->def->arg[5].e->i;
}

/* Probabilities (..., rows ..., K) whose rows are multiplied as one, by values that they share: y (..., rows ..., M) of
 * left (L, rows, K) and right (L, K, M). */
static bool rows_apart(Rewrite *rw, const Value *y, Value *left, Value *right, Arg *out)
{
    Value *p = left->def && left->def->op->id == OP_reshape ? left->def->arg[0].v : NULL;
    Expr *dim[MAX_RANK];
    int r = y->rank, lead = 1;
    if (!p || p->rank != r || r < 4 || !exprs_same(r - 1, p->dim, y->dim) || p->dim[r - 1] != left->dim[2] ||
        !of_probabilities(rw, p))
        return false;
    while (lead < r - 2 && product_of(rw->ex, lead, y->dim) != left->dim[0]) lead++;
    if (product_of(rw->ex, lead, y->dim) != left->dim[0]) return false;
    for (int i = 0; i < r - 2; i++) dim[i] = i < lead ? y->dim[i] : ex_int(rw->ex, 1);
    memcpy(dim + r - 2, &right->dim[1], 2 * sizeof *dim);
    right = rw_reshape(rw, right, r, dim);
    Value *product = right ? RW(rw, matmul, arg_value(p), arg_value(right)) : NULL;
    *out = arg_value(product);
    return product != NULL;
}

/* No reshape, or one that puts in or takes out axes of 1 only. */
static bool keeps_axes(const Value *v)
{
    return !v->def || v->def->op->id != OP_reshape || same_but_ones(v, v->def->arg[0].v);
}

/* Matrices multiplied with their leading axes as one (einsum, bmm), and apart again; one row may have lost its axis. */
bool make_flat_product(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    const Value *y = a[0].v;
    Value *left = a[1].v, *right = a[2].v, *product;
    Expr *ld[MAX_RANK], *rd[MAX_RANK];
    int r = y->rank;
    if (left->rank != 3 || right->rank != 3 || left->dim[0] != right->dim[0] || r < 3 || y->dim[r - 1] != right->dim[2])
        return rewrite_refuse(rw, "the product takes other axes together");
    if (merged_rows(rw, y, left, right, out) || rows_apart(rw, y, left, right, out)) return true;
    bool rows = y->dim[r - 2] == left->dim[1] && product_of(rw->ex, r - 2, y->dim) == left->dim[0];
    int lead = rows ? r - 2 : r - 1;
    if (lead < 2 || lead + 2 > MAX_RANK ||
        (!rows && !(is_one(left->dim[1]) && product_of(rw->ex, lead, y->dim) == left->dim[0])))
        return rewrite_refuse(rw, "the product takes other axes together");
    memcpy(ld, y->dim, (size_t)lead * sizeof *ld);
    memcpy(rd, y->dim, (size_t)lead * sizeof *rd);
    memcpy(ld + lead, &left->dim[1], 2 * sizeof *ld);
    memcpy(rd + lead, &right->dim[1], 2 * sizeof *rd);
    left = rw_reshape(rw, left, lead + 2, ld);
    right = left ? rw_reshape(rw, right, lead + 2, rd) : NULL;
    if (!right) return false;
    if (!keeps_axes(left) || !keeps_axes(right)) return rewrite_refuse(rw, "a factor has these axes together");
    product = RW(rw, matmul, arg_value(left), arg_value(right));
    if (product && !rows) product = rw_reshape(rw, product, r, y->dim);
    *out = arg_value(product);
    return product != NULL;
}

/* ------------------------------------------------------------------ sums */

/* A reduction that drops an axis which a reshape puts back as 1, or keeps one that a reshape drops. */
bool make_keepdim(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    const Node *node = a[1].kind == ARG_VALUE ? a[1].v->def : NULL;
    Arg arg[16];
    int keep = node ? op_param(node->op, "keepdim") : -1;
    if (keep < 0 || node->op->schema->nparams > 16) return false;
    memcpy(arg, node->arg, (size_t)node->op->schema->nparams * sizeof *arg);
    arg[keep] = arg_bool(rw->g, !arg[keep].e->i);
    Value *v = rw_add(rw, node->op->id, node->op->schema->nparams, arg);
    *out = arg_value(v);
    return v != NULL && (v->rank == a[0].n && exprs_same(v->rank, v->dim, a[0].es));
}

/* Products summed over another axis than the last, probabilities (..., N, M, 1) * values (..., 1, M, E):
 * their matrix product. */
bool make_product_sum(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    if (a[0].kind != ARG_VALUE || a[1].kind != ARG_VALUE || a[3].kind != ARG_VALUE || a[2].kind != ARG_EXPRS ||
        a[2].n != 1)
        return false;
    const Value *y = a[3].v;
    int r = y->rank + 1;
    if (r < 2 || a[0].v->rank > r || a[1].v->rank > r || (a[2].es[0]->i != -2 && a[2].es[0]->i != r - 2)) return false;
    Value *p = rw_pad_rank(rw, a[0].v, r), *v = p ? rw_pad_rank(rw, a[1].v, r) : NULL;
    TRY(v);
    if (is_one(v->dim[r - 1]) && !is_one(p->dim[r - 1])) {
        Value *t = p;
        p = v;
        v = t;
    }
    if (!is_one(p->dim[r - 1])) return false;
    Expr *pd[MAX_RANK], *vd[MAX_RANK];
    memcpy(pd, p->dim, (size_t)p->rank * sizeof *pd);
    memcpy(vd, v->dim, (size_t)v->rank * sizeof *vd);
    Value *prod;
    if (r >= 3 && is_one(v->dim[r - 3])) { /* an axis of queries */
        vd[r - 3] = v->dim[r - 2], vd[r - 2] = v->dim[r - 1];
        prod = RW(rw, matmul, arg_value(rw_reshape(rw, p, r - 1, pd)), arg_value(rw_reshape(rw, v, r - 1, vd)));
    } else { /* one query */
        pd[r - 2] = ex_int(rw->ex, 1), pd[r - 1] = p->dim[r - 2];
        prod = RW(rw, matmul, arg_value(rw_reshape(rw, p, r, pd)), arg_value(v));
    }
    prod = rw_reshape(rw, prod, y->rank, y->dim);
    *out = arg_value(prod);
    return prod != NULL;
}
