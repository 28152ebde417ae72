/* Targets of reshapes, shared out among the sizes they come from, and equations between sizes. Contract in
 * generalize_impl.h.
 *
 *     (B, H, W, 32) -> (B, 6, 4, 7, 4, 32) with H = 24, W = 28:  groups {B} {H: 6, 4} {W: 7, 4} {32}, so 6 is H//4
 *                                                                and 7 is W//4
 */
#include <string.h>
#include "generalize/generalize_impl.h"

static Expr *num(const Build *b, int64_t v) { return ex_int(b->ex, v); }
static bool same(const Build *b, const int64_t *x, const int64_t *y)
{
    return !memcmp(x, y, (size_t)b->nfiles * sizeof *x);
}

typedef struct Group { /* source dims whose product is that of target dims */
    int s0, s1, t0, t1;
} Group;

static Expr *quotient(const Build *b, Expr *whole, Expr *part) { return ex_floordiv(b->ex, whole, part); }

static bool divides(const Build *b, Expr *all, Expr *part)
{
    Expr *q = all ? ex_floordiv(b->ex, all, part) : NULL;
    return q && ex_mul(b->ex, q, part) == all;
}

static bool times(const Build *b, int64_t *p, const int64_t *v)
{
    for (int f = 0; f < b->nfiles; f++)
        if (!mul_i64(p[f], v[f], &p[f])) return false;
    return true;
}

/* The product of those source dims of the group, from its first on, that the targets up to t are made of:
 * of (B*C*h, w) -> (B, C, h*w) B comes from B*C*h, though w may have the same values. */
static Expr *front_of(const Build *b, const Value *x, const Scalar (*v)[GEN_FILES], Group g, int t)
{
    int used = g.s0;
    for (int f = 0; f < b->nfiles; f++) {
        int64_t want = 1, have = 1, n[GEN_FILES];
        int i = g.s0;
        for (int k = g.t0; k <= t; k++) want *= v[k][f].i;
        while (i < g.s1 && (have < want || i == g.s0) && eval_at(b, x->dim[i], n)) {
            have *= n[f];
            i++;
        }
        if (i > used) used = i;
    }
    Expr *product = num(b, 1);
    for (int i = g.s0; i < used; i++) product = ex_mul(b->ex, product, x->dim[i]);
    return product;
}

/* The numbers of one group: constants are taken out of the source's product, the rest is shared among the others. */
static bool solve_group(Build *b, const Value *x, const Scalar (*v)[GEN_FILES], Group g, Expr **out)
{
    int step = b->step, nopen = 0, open[MAX_RANK];
    Value *local[1] = {(Value *)(uintptr_t)x};
    Expr *rest = num(b, 1);
    for (int i = g.s0; i < g.s1; i++) rest = ex_mul(b->ex, rest, x->dim[i]);
    bool any = false;
    for (int t = g.t0; t < g.t1; t++)
        for (int f = 1; f < b->nfiles; f++) any |= v[t][f].i != v[t][0].i;
    bool coincidence = !any && rest &&
                       !ex_is_const(rest); /* equal numbers, though the source varies: H*W with the sizes swapped */
    int last = -1;                         /* the last that could be a constant */
    for (int t = g.t0; t < g.t1; t++) {
        Hole *h = gen_hole(b->gen, step, 1, t);
        bool equal = true;
        for (int f = 1; f < b->nfiles; f++) equal = equal && v[t][f].i == v[t][0].i;
        if (!h) return false;
        bool constant = !coincidence || v[t][0].i < 2 || divides(b, rest, num(b, v[t][0].i));
        if (equal && v[t][0].i > 1) last = t;
        if (equal && h->state == HOLE_AUTO && !h->pick && v[t][0].i > 1 && rest &&
            !divides(b, rest, num(b, v[t][0].i))) {
            for (int i = 0; i < b->nlevel && !out[t]; i++) /* not a factor, but a size of the same number is */
                if (b->level[i].v[0] == v[t][0].i && divides(b, rest, b->level[i].e)) out[t] = b->level[i].e;
            if (out[t]) {
                rest = quotient(b, rest, out[t]);
                continue;
            }
        }
        if (equal && h->state == HOLE_AUTO && !h->pick && constant) {
            out[t] = num(b, v[t][0].i);
            h->constant = true;
            h->text = NULL;
            if (v[t][0].i > 1) rest = quotient(b, rest, out[t]);
        } else open[nopen++] = t;
    }
    if (coincidence && !nopen && last >= 0 && rest && !ex_equals_int(rest, 1)) {
        rest = ex_mul(b->ex, rest, out[last]);
        open[nopen++] = last;
    }
    for (int k = 0; k < nopen; k++) {
        int t = open[k];
        int64_t vi[GEN_FILES];
        Hole *h = gen_hole(b->gen, step, 1, t);
        Cands c = {0};
        for (int f = 0; f < b->nfiles; f++) vi[f] = v[t][f].i;
        if (k == nopen - 1) cand_add(b, &c, vi, rest, 1);
        else {
            Cands known = {0};
            Expr *front = front_of(b, x, v, g, t);
            for (int d = 0; d < x->rank; d++)
                if (!ex_is_const(x->dim[d])) cand_add(b, &known, vi, x->dim[d], 2);
            cand_known(b, &known, vi, 3);
            for (int i = 0; i < known.n; i++) {
                int rank = known.c[i].rank + (divides(b, front, known.c[i].e) ? 0 : 3);
                if (divides(b, rest, known.c[i].e))
                    cand_add(b, &c, vi, known.c[i].e, rank < R_LOCAL ? rank : R_LOCAL - 1);
            }
        }
        if (c.n > 1 && h->state == HOLE_AUTO && !h->pick)
            h->state = HOLE_DECIDED; /* factors of one product: taken in the order of appearance */
        out[t] = solve_number(b, h, v[t], local, 1, &c, 0);
        if (!out[t]) return false;
        rest = quotient(b, rest, out[t]);
    }
    return true;
}

bool solve_reshape(Build *b, const Value *x, const Scalar (*v)[GEN_FILES], int n, Expr **out)
{
    Group g = {0, 0, 0, 0};
    int64_t ps[GEN_FILES], pt[GEN_FILES], sv[MAX_RANK][GEN_FILES], tv[MAX_RANK][GEN_FILES];
    for (int i = 0; i < x->rank; i++)
        if (!eval_at(b, x->dim[i], sv[i])) return fail(b->err, E_LIMIT, "a size expression is too large");
    for (int t = 0; t < n; t++)
        for (int f = 0; f < b->nfiles; f++) tv[t][f] = v[t][f].i;
    while (g.s0 < x->rank || g.t0 < n) {
        g.s1 = g.s0;
        g.t1 = g.t0;
        for (int f = 0; f < b->nfiles; f++) ps[f] = pt[f] = 1;
        bool closed = false, ok = true;
        while (!closed && ok) {
            bool source_less = false, target_less = false;
            for (int f = 0; f < b->nfiles; f++) {
                source_less |= ps[f] < pt[f];
                target_less |= pt[f] < ps[f];
            }
            bool both = !source_less && !target_less, begun = g.s1 > g.s0 && g.t1 > g.t0;
            if (both && begun) {
                closed = true;
                break;
            }
            bool take_source = (source_less || (both && g.s1 == g.s0)) && g.s1 < x->rank;
            if (!take_source && g.t1 == n) take_source = g.s1 < x->rank;
            if (take_source) ok = times(b, ps, sv[g.s1++]);
            else if (g.t1 < n) ok = times(b, pt, tv[g.t1++]);
            else break;
        }
        if (!ok) return fail(b->err, E_LIMIT, "a product of sizes is too large");
        TRY(solve_group(b, x, v, g, out));
        g.s0 = g.s1;
        g.t0 = g.t1;
    }
    return true;
}

/* ------------------------------------------------------------------ equations */

Expr *equation_for(const Build *b, const Expr *cond, Expr *u)
{
    if (cond->kind != EX_EQ || cond->args[0]->is_float || cond->args[1]->is_float || cond->args[0]->is_bool)
        return NULL;
    ExprPool *p = b->ex;
    Expr *d = ex_sub(p, cond->args[0], cond->args[1]), *factor = num(b, 0), *rest = num(b, 0);
    if (!d) return NULL;
    int n = d->kind == EX_ADD ? d->nargs : 1;
    for (int i = 0; i < n; i++) {
        Expr *t = d->kind == EX_ADD ? d->args[i] : d;
        if (!ex_mentions(t, u)) {
            rest = ex_add(p, rest, t);
            continue;
        }
        Expr *q = ex_floordiv(p, t, u);
        if (!q || ex_mentions(q, u) || ex_mul(p, q, u) != t) return NULL;
        factor = ex_add(p, factor, q);
    }
    if (!factor || ex_equals_int(factor, 0)) return NULL;
    Expr *minus = ex_neg(p, rest), *e = ex_floordiv(p, minus, factor);
    if (!e || (ex_mul(p, e, factor) != minus && factor->kind != EX_INT)) return NULL;
    int64_t want[GEN_FILES], got[GEN_FILES];
    return eval_at(b, u, want) && eval_at(b, e, got) && same(b, want, got) ? e : NULL;
}

static bool has_factor(const Expr *term, const Expr *f)
{
    for (int i = 0; term->kind == EX_MUL && i < term->nargs; i++)
        if (term->args[i] == f) return true;
    return term == f;
}

/* u*v*w == a*b*w: u is the factor of the other side that has its values, if only one has. */
Expr *factor_for(const Build *b, const Expr *cond, Expr *u)
{
    if (cond->kind != EX_EQ || cond->args[0]->is_float || cond->args[1]->is_float || cond->args[0]->is_bool)
        return NULL;
    Expr *d = ex_sub(b->ex, cond->args[0], cond->args[1]), *found = NULL;
    if (!d || d->kind != EX_ADD || d->nargs != 2) return NULL;
    int mine = has_factor(d->args[0], u) ? 0 : has_factor(d->args[1], u) ? 1 : -1;
    int64_t want[GEN_FILES], got[GEN_FILES];
    if (mine < 0 || !eval_at(b, u, want)) return NULL;
    Expr *other = d->args[1 - mine];
    for (int i = 0; other->kind == EX_MUL && i < other->nargs; i++) {
        Expr *f = other->args[i];
        if (ex_is_const(f) || has_factor(d->args[mine], f) || !eval_at(b, f, got) || !same(b, want, got)) continue;
        if (found && found != f) return NULL;
        found = f;
    }
    return found;
}
