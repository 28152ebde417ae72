/* The attention rules' graft functions for more keys than one product has: columns beside scores, scores beside scores.
 * Contract in makers.h.
 */
#include <math.h>
#include <string.h>
#include "rewrite/attention/scores.h"

/* A bool mask as numbers. */
static Value *added_mask(Rewrite *rw, Value *mask, DType t)
{
    if (!mask || mask->dtype != DT_BOOL) return mask;
    return RW(rw, where_self, arg_value(mask), arg_value(scores_number(rw, 0, t)),
              arg_value(scores_number(rw, -INFINITY, t)));
}

/* cat([scores, more], -1): keys of zeros, whose scores the mask adds ("attention sinks", or a zero key). */
bool make_scores_cat(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Scores s = {0};
    (void)n;
    TRY(scores_of(rw, &a[0], &s) && scores_before_softmax(rw, &s));
    if (a[1].kind != ARG_VALUE || a[1].v->rank != s.v->rank || scores_capped(&s))
        return rewrite_refuse(rw, "what scores are joined with has other axes");
    bool first = a[2].e->i != 0; /* the scores come first */
    if (s.masked_rows == 4) s.masked_rows = 2;
    Value *more = rw_cast(rw, a[1].v, s.dtype), *k = rw_pad_rank(rw, s.k, s.v->rank);
    TRY(more && k);
    int r = s.v->rank;
    Expr *kd[MAX_RANK], *md[MAX_RANK];
    memcpy(kd, k->dim, (size_t)k->rank * sizeof *kd);
    kd[r - 2] = more->dim[r - 1];
    Value *zero = RW(rw, full, arg_exprs(rw->g, r, kd), arg_float(rw->g, 0), arg_dtype(k->dtype));
    memcpy(md, s.v->dim, (size_t)s.v->rank * sizeof *md);
    TRY(zero);
    s.k = RW(rw, cat, arg_values(rw->g, 2, first ? (Value *[]){k, zero} : (Value *[]){zero, k}), arg_int(rw->g, r - 2));
    double by;
    bool zeros = constant_value(rw->g, more, &by) && by == 0;
    if (!s.mask && zeros) return s.k && scores_give(rw, &s, out);
    Value *mask = s.mask ? s.mask : scores_number(rw, 0, s.dtype);
    mask = rw_cast(rw, added_mask(rw, mask, s.dtype), s.dtype);
    if (mask) mask = rw_expand(rw, rw_pad_rank(rw, mask, r), r, md);
    if (mask)
        s.mask = RW(rw, cat, arg_values(rw->g, 2, first ? (Value *[]){mask, more} : (Value *[]){more, mask}),
                    arg_int(rw->g, r - 1));
    return mask && s.k && s.mask && scores_give(rw, &s, out);
}

/* Scores padded along the keys by numbers: keys of zeros, whose scores the mask adds. */
bool make_scores_pad(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Scores s = {0};
    double value = 0;
    (void)n;
    TRY(scores_of(rw, &a[0], &s) && scores_before_softmax(rw, &s));
    if (a[1].kind != ARG_EXPRS || a[1].n != 2 || scores_capped(&s) ||
        (a[2].kind != ARG_NONE && !constant_of(rw->g, &a[2], &value)))
        return rewrite_refuse(rw, "scores are padded in another way");
    if (s.masked_rows == 4) s.masked_rows = 2;
    Expr *zero = ex_int(rw->ex, 0), **by = a[1].es, *md[MAX_RANK];
    int r = s.v->rank;
    memcpy(md, s.v->dim, (size_t)s.v->rank * sizeof *md);
    Value *mask = added_mask(rw, s.mask, s.dtype);
    if (!mask && value != 0) mask = scores_number(rw, 0, s.dtype);
    if (mask)
        TRY(mask = RW(rw, constant_pad_nd, arg_value(rw_expand(rw, rw_pad_rank(rw, mask, r), r, md)),
                      arg_exprs(rw->g, 2, by), arg_float(rw->g, value)));
    s.mask = mask;
    s.k = RW(rw, constant_pad_nd, arg_value(s.k), arg_exprs(rw->g, 4, (Expr *[]){zero, zero, by[0], by[1]}),
             arg_float(rw->g, 0));
    return s.k && scores_give(rw, &s, out);
}

/* ------------------------------------------------------------------ scores beside scores */

static const Value *before_reshapes(const Value *v)
{
    while (v->def && v->def->op->id == OP_reshape) v = v->def->arg[0].v;
    return v;
}

/* The same value seen through the same views, which may be in the graph twice. */
static bool seen_alike(const Value *a, const Value *b)
{
    while (a != b) {
        if (a->rank != b->rank || !exprs_same(a->rank, a->dim, b->dim)) return false;
        a = before_reshapes(a);
        b = before_reshapes(b);
        const Node *x = a->def, *y = b->def;
        if (a == b) break;
        if (!x || !y || x->op != y->op || !(x->op->flags & OPF_VIEW)) return false;
        for (int i = 1; i < x->op->schema->nparams; i++)
            if (!arg_same(&x->arg[i], &y->arg[i])) return false;
        a = x->arg[0].v;
        b = y->arg[0].v;
    }
    return true;
}

/* Sizes of which each is a's, or b's where a has 1; the last two are a's. */
static void wider(const Value *a, const Value *b, Expr **dim)
{
    memcpy(dim, a->dim, (size_t)a->rank * sizeof *dim);
    for (int i = 0; i < a->rank - 2; i++)
        if (is_one(dim[i])) dim[i] = b->dim[i];
}

static Value *joined_keys(Rewrite *rw, Value *k, Value *l)
{
    Expr *kd[MAX_RANK], *ld[MAX_RANK];
    wider(k, l, kd);
    wider(l, k, ld);
    k = rw_expand(rw, k, k->rank, kd);
    l = rw_expand(rw, l, l->rank, ld);
    return k && l ? RW(rw, cat, arg_values(rw->g, 2, (Value *[]){k, l}), arg_int(rw->g, k->rank - 2)) : NULL;
}

/* A mask of s in sizes of which the last is that of its keys; the others are 1 where they are in both masks. */
static Value *mask_for_keys(Rewrite *rw, const Scores *s, const Scores *t, bool bools)
{
    Expr *dim[MAX_RANK];
    int r = s->v->rank;
    Value *mine = s->mask ? rw_pad_rank(rw, s->mask, r) : NULL, *other = t->mask ? rw_pad_rank(rw, t->mask, r) : NULL;
    for (int i = 0; i < r - 1; i++) {
        bool one = (!mine || is_one(mine->dim[i])) && (!other || is_one(other->dim[i]));
        dim[i] = one ? ex_int(rw->ex, 1) : s->v->dim[i];
    }
    dim[r - 1] = s->v->dim[r - 1];
    if (!mine && bools) return RW(rw, full, arg_exprs(rw->g, r, dim), arg_bool(rw->g, true), arg_dtype(DT_BOOL));
    if (!mine) return RW(rw, full, arg_exprs(rw->g, r, dim), arg_float(rw->g, 0), arg_dtype(s->dtype));
    if (!bools) mine = rw_cast(rw, added_mask(rw, mine, s->dtype), s->dtype);
    return rw_expand(rw, mine, r, dim);
}

static bool joined_masks(Rewrite *rw, const Scores *s, const Scores *t, Value **mask)
{
    bool bools = (!s->mask || s->mask->dtype == DT_BOOL) && (!t->mask || t->mask->dtype == DT_BOOL);
    *mask = NULL;
    if (!s->mask && !t->mask) return true;
    Value *a = mask_for_keys(rw, s, t, bools), *b = a ? mask_for_keys(rw, t, s, bools) : NULL;
    *mask = b ? RW(rw, cat, arg_values(rw->g, 2, (Value *[]){a, b}), arg_int(rw->g, s->v->rank - 1)) : NULL;
    return *mask != NULL;
}

/* What a row without an allowed key gives: one that has some among the first or the second keys is none. */
static int joined_rows(const Scores *s, const Scores *t)
{
    if (!s->mask || !t->mask) return 0;
    if (s->masked_rows == t->masked_rows && s->fill == t->fill) return s->masked_rows;
    bool average = s->masked_rows == 2 || s->masked_rows == 4 || t->masked_rows == 2 || t->masked_rows == 4;
    return average ? 2 : 1;
}

/* cat([scores, scores], -1) of the same queries: scores of all their keys, as where some keys are a memory, or tokens
 * that everybody sees. */
bool make_scores_join(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Scores s = {0}, t = {0};
    (void)n;
    TRY(scores_of(rw, &a[0], &s) && scores_before_softmax(rw, &s));
    TRY(scores_of(rw, &a[1], &t) && scores_before_softmax(rw, &t));
    int r = s.v->rank;
    if (t.v->rank != r || s.dtype != t.dtype || s.k->dtype != t.k->dtype)
        return rewrite_refuse(rw, "scores are joined with others of another dtype or rank");
    const Value *q = rw_pad_rank(rw, s.q, r), *p = q ? rw_pad_rank(rw, t.q, r) : NULL;
    TRY(p);
    if (!seen_alike(q, p) || !arg_same(&s.scale, &t.scale) || !arg_same(&s.softcap, &t.softcap))
        return rewrite_refuse(rw, "scores are joined with others of other queries, or of another scale");
    if (s.fill != 0 && t.fill != 0 && s.fill != t.fill)
        return rewrite_refuse(rw, "masked scores are %g in some of the joined scores, %g in others", s.fill, t.fill);
    Value *k = rw_pad_rank(rw, s.k, r), *l = rw_pad_rank(rw, t.k, r), *mask;
    TRY(k && l && joined_masks(rw, &s, &t, &mask));
    s.masked_rows = joined_rows(&s, &t);
    s.fill = s.fill != 0 ? s.fill : t.fill;
    s.k = joined_keys(rw, k, l);
    s.mask = mask;
    return s.k && scores_give(rw, &s, out);
}
