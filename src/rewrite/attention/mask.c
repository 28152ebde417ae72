/* Masks that follow from positions become bounds.
 *
 *     and(le(arange(M), arange(N)[:, None]), padding[:, None, None, :])    =    upper = 0, and a mask of (B, 1, 1, M)
 */
#include "rewrite/attention/mask.h"
#include <string.h>
#include "facts/band.h"
#include "facts/truth.h"

enum { MAX_DEPTH = 24, MAX_PARTS = 16 };

typedef struct Parts {
    Band band;
    Value *rest[MAX_PARTS]; /* bool masks that hold beside the band */
    int n;
} Parts;

/* A bool mask taken apart at its conjunctions. */
static bool take_apart(Parts *p, Value *v, int depth)
{
    Truth part[2];
    if (band_of(&p->band, v, true)) return true;
    if (depth < MAX_DEPTH && truth_parts(v, true, part) == 2 && part[0].v->dtype == DT_BOOL &&
        part[1].v->dtype == DT_BOOL)
        return take_apart(p, part[0].v, depth + 1) && take_apart(p, part[1].v, depth + 1);
    if (p->n == MAX_PARTS) return false;
    p->rest[p->n++] = v;
    return true;
}

/* Could a row of the band alone allow no key? Every query sees its own position if that is a key. */
static bool may_be_dead(Rewrite *rw, const Band *b, Expr *N, Expr *M)
{
    int64_t lo, hi;
    if (b->upper) {
        ex_range(rw->ex, b->upper, &lo, &hi);
        if (lo < 0) return true;
    }
    if (!b->lower) return false;
    ex_range(rw->ex, b->lower, &lo, &hi);
    if (hi > 0) return true;
    ex_range(rw->ex, ex_sub(rw->ex, N, M), &lo, &hi);
    return N != M && hi > 0;
}

bool make_banded(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    const Node *y = n == 1 && a[0].kind == ARG_VALUE ? a[0].v->def : NULL;
    if (!y || y->op->id != OP_scaled_dot_product_attention || y->arg[3].kind != ARG_VALUE)
        return rewrite_refuse(rw, "there is no mask");
    Value *mask = y->arg[3].v;
    Expr *N = y->arg[0].v->dim[2], *M = y->arg[1].v->dim[2];
    Parts p = {.band = band_within(rw->g, N, M, NULL, NULL)};
    if (mask->rank < 2) return rewrite_refuse(rw, "the mask is the same for all queries");
    if (mask->dtype == DT_BOOL) TRY(take_apart(&p, mask, 0));
    else if (!band_of_bias(&p.band, mask) || may_be_dead(rw, &p.band, N, M))
        return rewrite_refuse(rw, "the mask is not a band whose every row allows a key");
    if (!p.band.lower && !p.band.upper) {
        if (p.n == 1 && p.rest[0] == mask)
            return rewrite_refuse(rw, "no part of the mask is a band around the diagonal");
    }
    Value *rest = p.n ? p.rest[0] : NULL;
    for (int i = 1; i < p.n; i++) rest = RW(rw, logical_and, arg_value(rest), arg_value(p.rest[i]));
    if (p.n && !rest) return false;
    Arg arg[16];
    memcpy(arg, y->arg, (size_t)y->op->schema->nparams * sizeof *arg);
    if (arg[9].kind == ARG_EXPR) band_at_least(&p.band, arg[9].e);
    if (arg[10].kind == ARG_EXPR) band_at_most(&p.band, arg[10].e);
    if (arg[5].e->i) band_at_most(&p.band, ex_int(rw->ex, 0));
    bool causal = p.band.upper && ex_equals_int(p.band.upper, 0);
    arg[3] = arg_value(rest);
    arg[5] = arg_bool(rw->g, causal);
    arg[9] = p.band.lower ? arg_expr(p.band.lower) : arg_none();
    arg[10] = p.band.upper && !causal ? arg_expr(p.band.upper) : arg_none();
    Value *v = rw_add(rw, y->op->id, y->op->schema->nparams, arg);
    *out = arg_value(v);
    return v != NULL;
}
