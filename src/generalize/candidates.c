/* Numbers as expressions of sizes: candidates that fit every file, in order of what is likely, and equations. Contract
 * in generalize_impl.h.
 *
 *     sizes s0 = (6, 11), known dims s0, 4*s0;   7, 12 -> s0 + 1     24, 44 -> 4*s0     3, 5 -> s0//2
 *
 * A form with a free constant uses up one file, so forms with two are weak unless there are more files.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/vec.h"
#include "generalize/generalize_impl.h"
#include "base/mem.h"

enum { MAX_NEAR = 32, MAX_PAIRED = 10, MAX_SIZE = 40 };

/* ------------------------------------------------------------------ values */

bool eval_at(const Build *b, const Expr *e, int64_t *v)
{
    Err ignored;
    for (int f = 0; f < b->nfiles; f++)
        if (!e || !ex_eval_i64(b->ex, e, &b->bind[f], &v[f], &ignored)) return false;
    return true;
}

static bool same(const Build *b, const int64_t *x, const int64_t *y)
{
    return !memcmp(x, y, (size_t)b->nfiles * sizeof *x);
}

static bool all_equal(const Build *b, const int64_t *v)
{
    for (int f = 1; f < b->nfiles; f++)
        if (v[f] != v[0]) return false;
    return true;
}

static int tree_size(const Expr *e, int budget)
{
    int n = 1;
    for (int i = 0; i < e->nargs && n < budget; i++) n += tree_size(e->args[i], budget - n);
    return n;
}

static void keep_atom(Atom **list, int *n, const Atom *a)
{
    Atom *grown = vec_grow(*list, *n, sizeof *grown);
    if (!grown) return;
    *list = grown;
    grown[(*n)++] = *a;
}

void build_atom(Build *b, Expr *e, bool number)
{
    if (!e || ex_is_const(e) || e->is_float) return;
    for (int i = 0; i < b->nlevel; i++)
        if (b->level[i].e == e) return;
    for (int i = 0; i < b->natom; i++)
        if (b->atom[i].e == e) {
            b->atom[i].number &= number;
            return;
        }
    for (int i = 0; i < b->nunknown; i++)
        if (ex_mentions(e, b->unknown[i].e)) return;
    Atom a = {.e = e, .size = tree_size(e, 100), .number = number};
    if (!eval_at(b, e, a.v)) return;
    if (all_equal(b, a.v)) keep_atom(&b->level, &b->nlevel, &a);
    else keep_atom(&b->atom, &b->natom, &a);
}

/* ------------------------------------------------------------------ candidates */

void cand_add(const Build *b, Cands *c, const int64_t *v, Expr *e, int rank)
{
    int64_t got[GEN_FILES];
    if (!e || !eval_at(b, e, got) || !same(b, got, v)) return;
    int at = 0;
    while (at < c->n && c->c[at].rank <= rank) {
        if (c->c[at].e == e) return;
        at++;
    }
    if (at == MAX_CAND) return;
    int end = c->n < MAX_CAND ? c->n++ : MAX_CAND - 1;
    memmove(&c->c[at + 1], &c->c[at], (size_t)(end - at) * sizeof *c->c);
    c->c[at] = (Cand){e, rank};
    for (int i = at + 1; i < c->n; i++) { /* the same at a worse rank goes */
        if (c->c[i].e != e) continue;
        memmove(&c->c[i], &c->c[i + 1], (size_t)(c->n - i - 1) * sizeof *c->c);
        c->n--;
        break;
    }
}

static bool seen(const Build *b, int64_t c) { return c >= 0 && c < (int64_t)sizeof b->gen->seen && b->gen->seen[c]; }

static Expr *num(const Build *b, int64_t v) { return ex_int(b->ex, v); }

/* c * ceil(e / c) */
static Expr *filled(const Build *b, Expr *e, int64_t c)
{
    return ex_mul(b->ex, num(b, c), ex_floordiv(b->ex, ex_add(b->ex, e, num(b, c - 1)), num(b, c)));
}

/* v = e + c, e * c, e / c */
static void one_constant(const Build *b, Cands *out, const int64_t *v, const Atom *e, int worse)
{
    int n = b->nfiles;
    bool sum = true, times = v[0] && e->v[0] && v[0] % e->v[0] == 0, over = v[0] && e->v[0] % v[0] == 0;
    int64_t add, mul = times ? v[0] / e->v[0] : 0, div = over ? e->v[0] / v[0] : 0;
    if (__builtin_sub_overflow(v[0], e->v[0], &add)) return;
    for (int f = 1; f < n; f++) {
        sum = sum && v[f] - e->v[f] == add;
        times = times && e->v[f] * mul == v[f];
        over = over && v[f] * div == e->v[f];
    }
    int64_t far = add < 0 ? -add : add;
    /* n - 1 is what is written most */
    int rank = add == -1                  ? R_ONE
               : add == 1                 ? R_ONE + 1
               : far <= 4 || seen(b, far) ? R_ONE + 2
               : far <= 16                ? R_ONE + 3
                                          : R_WEAK;
    if (sum) cand_add(b, out, v, ex_add(b->ex, e->e, num(b, add)), rank + worse);
    if (times && mul > 1) cand_add(b, out, v, ex_mul(b->ex, e->e, num(b, mul)), R_ONE + (seen(b, mul) ? 0 : 4) + worse);
    if (over && div > 1)
        cand_add(b, out, v, ex_floordiv(b->ex, e->e, num(b, div)), R_ONE + (seen(b, div) ? 0 : 3) + worse);
}

int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a < 0 ? -a : a;
}

/* v = e // c and ceil(e / c) for the constants that fit; few do. */
static void rounded(const Build *b, Cands *out, const int64_t *v, const Atom *e, int worse)
{
    enum { FEW = 4 };
    for (int up = 0; up < 2; up++) {
        int64_t lo = 2, hi = INT64_MAX;
        for (int f = 0; f < b->nfiles; f++) {
            if (v[f] < 1 || e->v[f] < v[f]) return;
            int64_t l = up ? (e->v[f] + v[f] - 1) / v[f] : e->v[f] / (v[f] + 1) + 1;
            int64_t h = up ? (v[f] > 1 ? (e->v[f] - 1) / (v[f] - 1) : INT64_MAX) : e->v[f] / v[f];
            if (l > lo) lo = l;
            if (h < hi) hi = h;
        }
        if (hi == INT64_MAX || hi - lo > 64) continue;
        int given = 0;
        for (int pass = 0; pass < 2; pass++) /* constants that the model contains come first */
            for (int64_t c = lo; c <= hi && given < FEW; c++) {
                if (seen(b, c) == (pass == 1)) continue;
                Expr *above = up ? ex_add(b->ex, e->e, num(b, c - 1)) : e->e;
                cand_add(b, out, v, ex_floordiv(b->ex, above, num(b, c)), R_ONE + 3 + up + 2 * pass + worse);
                given++;
            }
    }
}

/* v = e % c and (-e) % c, for constants c that the model contains */
static void remainders(const Build *b, Cands *out, const int64_t *v, const Atom *e, int worse)
{
    int64_t most = 0, down = 0, up = 0;
    for (int f = 0; f < b->nfiles; f++) {
        if (v[f] < 0) return;
        if (v[f] > most) most = v[f];
        down = common_divisor(down, e->v[f] - v[f]);
        up = common_divisor(up, e->v[f] + v[f]);
    }
    for (int64_t c = most + 1; c < 512; c++) {
        if (c < 2 || !seen(b, c)) continue;
        if (down && down % c == 0) cand_add(b, out, v, ex_mod(b->ex, e->e, num(b, c)), R_ONE + 5 + worse);
        if (up && up % c == 0) cand_add(b, out, v, ex_sub(b->ex, filled(b, e->e, c), e->e), R_ONE + 5 + worse);
    }
}

/* v = e filled up, or cut down, to a multiple of a constant that the model contains */
static void multiples(const Build *b, Cands *out, const int64_t *v, const Atom *e, int worse)
{
    int64_t common = 0;
    bool up = true, down = true;
    for (int f = 0; f < b->nfiles; f++) {
        common = common_divisor(common, v[f]);
        up = up && v[f] >= e->v[f];
        down = down && v[f] <= e->v[f] && v[f] > 0;
    }
    if (up == down) return; /* e itself, or neither */
    for (int64_t c = 2; c <= common && c < 512; c++) {
        if (!seen(b, c) || common % c) continue;
        if (up) cand_add(b, out, v, filled(b, e->e, c), R_ONE + 3 + worse);
        else cand_add(b, out, v, ex_mul(b->ex, num(b, c), ex_floordiv(b->ex, e->e, num(b, c))), R_ONE + 3 + worse);
    }
}

/* v = e filled up to a multiple of 2, less 1: 2*ceil(e/2) - 1 positions are between the ends of ceil(e/2) pairs */
static void pairs_less_one(const Build *b, Cands *out, const int64_t *v, const Atom *e, int worse)
{
    for (int f = 0; f < b->nfiles; f++)
        if (v[f] != e->v[f] + e->v[f] % 2 - 1) return;
    cand_add(b, out, v, ex_sub(b->ex, filled(b, e->e, 2), num(b, 1)), R_ONE + 4 + worse);
}

/* v = a*e + c */
static void two_constants(const Build *b, Cands *out, const int64_t *v, const Atom *e, int worse)
{
    int other = 1;
    while (other < b->nfiles && e->v[other] == e->v[0]) other++;
    if (other == b->nfiles) return;
    int64_t rise = v[other] - v[0], run = e->v[other] - e->v[0];
    if (rise % run) return;
    int64_t a = rise / run, c = v[0] - a * e->v[0], far = c < 0 ? -c : c;
    if (a == 0 || a == 1) return;
    int rank = a == 2 && far == 1             ? R_ONE + (c == 1) + 1
               : a == -1 && far <= 64         ? R_ONE + 6
               : a > 1 && a <= 16 && far <= 4 ? R_ONE + 4
                                              : R_WEAK + 4;
    if (a < -1) rank = R_WEAK + 5;
    cand_add(b, out, v, ex_add(b->ex, ex_mul(b->ex, e->e, num(b, a)), num(b, c)), rank + worse);
}

/* v = x * y, x + y, x - y, y - x; a product or a sum with one constant */
static void paired(const Build *b, Cands *out, const int64_t *v, const Atom *x, const Atom *y, int worse)
{
    Atom product = {.e = ex_mul(b->ex, x->e, y->e)}, sum = {.e = ex_add(b->ex, x->e, y->e)},
         less = {.e = ex_sub(b->ex, x->e, y->e)};
    Atom back = {.e = ex_sub(b->ex, y->e, x->e)};
    for (int f = 0; f < b->nfiles; f++) {
        if (__builtin_mul_overflow(x->v[f], y->v[f], &product.v[f])) return;
        sum.v[f] = x->v[f] + y->v[f];
        less.v[f] = x->v[f] - y->v[f];
        back.v[f] = -less.v[f];
    }
    if (same(b, product.v, v)) cand_add(b, out, v, product.e, R_ONE + 1 + worse);
    if (same(b, sum.v, v)) cand_add(b, out, v, sum.e, R_ONE + 2 + worse);
    if (same(b, less.v, v)) cand_add(b, out, v, less.e, R_ONE + 2 + worse);
    if (same(b, back.v, v)) cand_add(b, out, v, back.e, R_ONE + 2 + worse);
    one_constant(b, out, v, &product, 3 + worse);
    one_constant(b, out, v, &sum, 5 + worse);
}

/* All forms of the near dims, of which the first nlocal are the operands' */
static void forms(const Build *b, Cands *out, const int64_t *v, const Atom *near, int nnear, int nlocal)
{
    for (int i = 0; i < nnear; i++) {
        int worse = i < nlocal ? 0 : 1;
        one_constant(b, out, v, &near[i], worse);
        rounded(b, out, v, &near[i], worse);
        remainders(b, out, v, &near[i], worse);
        multiples(b, out, v, &near[i], worse);
        pairs_less_one(b, out, v, &near[i], worse);
        two_constants(b, out, v, &near[i], worse);
    }
    for (int i = 0; i < nnear && i < MAX_PAIRED; i++)
        for (int k = i; k < nnear && k < MAX_PAIRED; k++)
            paired(b, out, v, &near[i], &near[k], i < nlocal && k < nlocal ? 0 : 1);
}

void cand_known(const Build *b, Cands *c, const int64_t *v, int rank)
{
    for (int i = 0; i < b->natom; i++) {
        const Atom *a = &b->atom[i];
        if (same(b, a->v, v)) cand_add(b, c, v, a->e, rank + (a->size > 1) + (a->size > 7) + 3 * a->number);
    }
}

/* Sizes of the operands first, then the plain symbols, then the simplest of what is known. */
static int gather_near(const Build *b, Value *const *local, int nlocal, Atom *near, int *nfirst)
{
    int n = 0;
    for (int i = 0; i < nlocal; i++)
        for (int d = local[i]->rank - 1; d >= 0 && n < MAX_NEAR; d--)
            for (int k = 0; k < b->natom; k++) {
                bool there = b->atom[k].e != local[i]->dim[d];
                for (int m = 0; !there && m < n; m++) there = near[m].e == b->atom[k].e;
                if (!there) near[n++] = b->atom[k];
            }
    *nfirst = n;
    for (int most = 1; most <= MAX_SIZE && n < MAX_NEAR; most++)
        for (int k = 0; k < b->natom && n < MAX_NEAR; k++) {
            bool there = b->atom[k].size != most;
            for (int m = 0; !there && m < n; m++) there = near[m].e == b->atom[k].e;
            if (!there) near[n++] = b->atom[k];
        }
    return n;
}

/* A height that happens to equal the batch in every file: anything else that is known comes first. */
static bool of_batch(const Build *b, const Expr *e, int how) { return how & SOLVE_SPACE && e->symbols & b->batch; }

/* Dims that have the values first, then what is made of one or two dims and a constant;
 * v <= 0 as the negative of such a form. */
static void integer_candidates(const Build *b, Cands *out, const int64_t *v, Value *const *local, int nlocal, int how)
{
    enum { BATCH_WORSE = 12 }; /* further than uncertain() looks */
    bool near_first = how & SOLVE_NEAR;
    Atom near[MAX_NEAR];
    int nfirst, n = gather_near(b, local, nlocal, near, &nfirst);
    for (int i = 0; i < nfirst; i++)
        if (same(b, near[i].v, v))
            cand_add(b, out, v, near[i].e, R_LOCAL + (of_batch(b, near[i].e, how) ? BATCH_WORSE : 0));
    Cands known = {0};
    cand_known(b, &known, v, R_KNOWN);
    for (int i = 0; i < known.n; i++)
        cand_add(b, out, v, known.c[i].e, known.c[i].rank + (of_batch(b, known.c[i].e, how) ? BATCH_WORSE : 0));
    for (int i = 0; near_first && i < nfirst; i++) {
        int64_t c = v[0] - near[i].v[0];
        bool fits = c > -64 && c < 64;
        for (int f = 1; fits && f < b->nfiles; f++) fits = v[f] - near[i].v[f] == c;
        if (fits) cand_add(b, out, v, ex_add(b->ex, near[i].e, num(b, c)), R_NEAR);
    }
    if (out->n && out->c[0].rank < R_ONE && out->c[0].rank != R_NEAR) return; /* a known dim: no need to make one up */
    bool negative = true, zero = true;
    int64_t minus[GEN_FILES];
    for (int f = 0; f < b->nfiles; f++) {
        negative = negative && v[f] <= 0 && v[f] > INT64_MIN;
        zero = zero && v[f] == 0;
        minus[f] = negative ? -v[f] : 0;
    }
    Cands made = {0};
    uint64_t kin = 0;
    for (int i = 0; i < nfirst; i++) kin |= near[i].e->symbols;
    forms(b, &made, v, near, n, nfirst);
    for (int i = 0; i < made.n; i++) { /* made of the sizes that the operands have, rather than of the batch */
        const Expr *e = made.c[i].e;
        bool strange = (kin && e->symbols & ~kin) || of_batch(b, e, how);
        bool absurd = e->kind == EX_ADD && e->symbols & b->batch && !nlocal &&
                      made.c[i].rank >= R_ONE + 4; /* models do not count up to 4*batch - 1 */
        cand_add(b, out, v, made.c[i].e, absurd ? R_WEAK + 5 : made.c[i].rank + (strange ? 2 : 0));
    }
    if (!negative || zero) return;
    Cands other = {0};
    integer_candidates(b, &other, minus, local, nlocal, how);
    for (int i = 0; i < other.n; i++)
        cand_add(b, out, v, ex_neg(b->ex, other.c[i].e), other.c[i].rank < R_ONE ? R_ONE : other.c[i].rank);
}

/* ------------------------------------------------------------------ floats */

/* c, or the integer or the 1/integer that it is but for rounding */
static double whole(double c)
{
    double r = nearbyint(c), near = fabs(c - r) <= 1e-9 * fmax(1, fabs(c)) ? r : c, inverse = nearbyint(1 / c);
    return near != r && c != 0 && fabs(1 / c - inverse) <= 1e-9 * fabs(inverse) ? 1 / inverse : near;
}

static bool constant_ratio(const Build *b, const double *v, const double *e, double *c)
{
    for (int f = 0; f < b->nfiles; f++)
        if (e[f] == 0 || v[f] == 0 || !isfinite(v[f]) || fabs(v[f] / e[f] - v[0] / e[0]) > 1e-9 * fabs(v[0] / e[0]))
            return false;
    *c = whole(v[0] / e[0]);
    return true;
}

/* By rank like cand_add; the values were checked by who calls. */
static void add_float(Cands *out, Expr *e, int rank)
{
    if (!e || out->n == MAX_CAND) return;
    int at = 0;
    while (at < out->n && out->c[at].rank <= rank)
        if (out->c[at++].e == e) return;
    memmove(&out->c[at + 1], &out->c[at], (size_t)(out->n++ - at) * sizeof *out->c);
    out->c[at] = (Cand){e, rank};
}

/* How unlikely a factor is: 1, 2 and 0.5 are what authors write. */
static int odd(double c)
{
    double a = fabs(c);
    return a == 1 ? 0 : a == 2 || a == 0.5 ? 1 : a == nearbyint(a) || 1 / a == nearbyint(1 / a) ? 3 : 4;
}

/* v = c * e, c / e, c * sqrt(e), c / sqrt(e) for a size e, and c * e + d when c is a number such as 1/8 */
static void float_forms(const Build *b, Cands *out, const double *v, Atom *near, int n, int nfirst)
{
    int single = n;
    for (int i = 0; i < single; i++)
        for (int k = -1; k <= 1 && n < 2 * MAX_NEAR; k += 2) {
            near[n] = (Atom){.e = ex_add(b->ex, near[i].e, num(b, k))};
            for (int f = 0; f < b->nfiles; f++) near[n].v[f] = near[i].v[f] + k;
            n += near[n].e != NULL;
        }
    for (int i = 0; i < n; i++) {
        double e[GEN_FILES], inverse[GEN_FILES], root[GEN_FILES], inverse_root[GEN_FILES], c;
        int rank = R_ONE + (i < nfirst ? 0 : i < single ? 1 : 2);
        for (int f = 0; f < b->nfiles; f++) {
            e[f] = (double)near[i].v[f];
            inverse[f] = 1 / e[f];
            root[f] = sqrt(e[f]);
            inverse_root[f] = 1 / root[f];
        }
        Expr *x = ex_make(b->ex, EX_TOFLOAT, near[i].e, NULL, NULL),
             *r = ex_make(b->ex, EX_POW, x, ex_float(b->ex, 0.5), NULL);
        if (constant_ratio(b, v, e, &c)) add_float(out, ex_mul(b->ex, ex_float(b->ex, c), x), rank + odd(c));
        if (constant_ratio(b, v, inverse, &c))
            add_float(out, ex_make(b->ex, EX_TRUEDIV, ex_float(b->ex, c), x, NULL), rank + odd(c));
        if (constant_ratio(b, v, root, &c)) add_float(out, ex_mul(b->ex, ex_float(b->ex, c), r), rank + odd(c));
        if (constant_ratio(b, v, inverse_root, &c))
            add_float(out, ex_make(b->ex, EX_TRUEDIV, ex_float(b->ex, c), r, NULL), rank + odd(c));
        int f = 1;
        while (f < b->nfiles && e[f] == e[0]) f++;
        if (i >= single || f == b->nfiles) continue;
        double slope = whole((v[f] - v[0]) / (e[f] - e[0])), inverse_slope = 1 / slope, start = v[0] - slope * e[0];
        int far = (slope == 1 ? 1 : 4) + (i < nfirst ? 0 : 1);
        bool fits = slope != 0 &&
                    (slope == nearbyint(slope) || inverse_slope == nearbyint(inverse_slope) || b->nfiles > 2);
        for (int k = 0; fits && k < b->nfiles; k++) fits = fabs(slope * e[k] + start - v[k]) <= 1e-9 * fabs(v[k]);
        if (fits && fabs(start) > 1e-9)
            add_float(out, ex_add(b->ex, ex_mul(b->ex, ex_float(b->ex, slope), x), ex_float(b->ex, start)),
                      R_ONE + far);
    }
}

void cand_of(const Build *b, Cands *c, const int64_t *v, const Value *own)
{
    Atom near[MAX_NEAR];
    Cands found = {0};
    int n = 0;
    for (int d = own->rank - 1; d >= 0 && n < MAX_NEAR; d--) {
        bool there = ex_is_const(own->dim[d]);
        for (int i = 0; !there && i < n; i++) there = near[i].e == own->dim[d];
        near[n].e = own->dim[d];
        if (!there && eval_at(b, own->dim[d], near[n].v)) n++;
    }
    bool negative = true;
    int64_t minus[GEN_FILES];
    for (int f = 0; f < b->nfiles; f++) negative = negative && v[f] < 0 && v[f] > INT64_MIN;
    for (int f = 0; f < b->nfiles; f++) minus[f] = negative ? -v[f] : v[f];
    for (int i = 0; i < n; i++) cand_add(b, &found, minus, near[i].e, 0);
    forms(b, &found, minus, near, n, n);
    for (int i = 0; i < found.n; i++)
        if (found.c[i].rank < R_WEAK)
            cand_add(b, c, v, negative ? ex_neg(b->ex, found.c[i].e) : found.c[i].e,
                     found.c[i].rank ? 4 + (found.c[i].rank - R_ONE) / 2 : 3);
}

static void float_candidates(const Build *b, Cands *out, const double *v, Value *const *local, int nlocal)
{
    Atom near[2 * MAX_NEAR];
    int nfirst, n = gather_near(b, local, nlocal, near, &nfirst);
    float_forms(b, out, v, near, n, nfirst);
}

void cand_float_of(const Build *b, Cands *c, const double *v, Expr *e)
{
    Atom near[2 * MAX_NEAR] = {{.e = e}};
    Cands found = {0};
    if (!eval_at(b, e, near[0].v) || ex_is_const(e)) return;
    float_forms(b, &found, v, near, 1, 1);
    for (int i = 0; i < found.n; i++) add_float(c, found.c[i].e, 1 + i);
}

/* ------------------------------------------------------------------ choosing */

const char *expr_text(const Build *b, const Expr *e)
{
    Buf t = {0};
    ex_print(b->ex, e, &t);
    char *copy = t.data ? arena_strdup(b->gen->arena, t.data) : NULL;
    buf_free(&t);
    return copy;
}

/* A symbol of its own for an open number, with its value in every file: what follows may settle it. */
static Expr *open_symbol(Build *b, Hole *h, const int64_t *v, bool is_float)
{
    char name[96];
    snprintf(name, sizeof name, "open_%d_%d_%d", h->step, h->arg + 1, h->elem);
    Expr *e = ex_symbol(b->ex, name);
    if (!e) return NULL;
    int64_t least = v[0];
    for (int f = 0; f < b->nfiles; f++) {
        if (e->i >= b->bind[f].n) return NULL;
        binding_set(&b->bind[f], (int)e->i, v[f]);
        if (v[f] < least) least = v[f];
    }
    expr_set_range(b->ex, (int)e->i, least > 0 ? 1 : least == 0 ? 0 : INT64_MIN, INT64_MAX);
    void *grown = vec_grow(b->unknown, b->nunknown, sizeof *b->unknown);
    if (!grown) return NULL;
    b->unknown = grown;
    b->unknown[b->nunknown].e = e;
    b->unknown[b->nunknown++].h = h;
    return is_float ? ex_make(b->ex, EX_TOFLOAT, e, NULL, NULL) : e;
}

/* What else fits and is about as likely as the chosen candidate (-1: none of them was chosen). */
static void note_others(const Build *b, Hole *h, const Cands *c, int chosen)
{
    enum { SHOWN = 3 };
    Buf t = {0};
    int shown = 0;
    for (int i = 0; i < c->n && shown < SHOWN; i++) {
        int rank = c->c[i].rank;
        if (i == chosen || (rank >= R_ONE && rank > (chosen < 0 ? R_ONE + 3 : c->c[chosen].rank + 1))) continue;
        buf_puts(&t, shown++ ? "; " : "");
        ex_print(b->ex, c->c[i].e, &t);
    }
    h->also = t.data ? arena_strdup(b->gen->arena, t.data) : NULL;
    buf_free(&t);
}

/* Made up rather than known, or two of which neither is clearly the likelier one:
 * what follows from it may settle it. */
static bool uncertain(const Cands *c)
{
    return c->c[0].rank >= R_ONE || (c->n > 1 && c->c[1].rank < R_ONE && c->c[1].rank - c->c[0].rank < 12);
}

/* Sizes that happen to be this number in every file. */
static void level_candidates(const Build *b, Cands *c, const int64_t *v)
{
    for (int i = 0; i < b->nlevel && v[0] > 1; i++)
        if (same(b, b->level[i].v, v)) cand_add(b, c, v, b->level[i].e, R_KNOWN);
}

Expr *solve_number(Build *b, Hole *h, const Scalar *v, Value *const *local, int nlocal, const Cands *given, int how)
{
    int64_t vi[GEN_FILES];
    double vf[GEN_FILES];
    bool integral = true, is_float = false, equal = true;
    for (int f = 0; f < b->nfiles; f++) {
        h->v[f] = v[f];
        vf[f] = scalar_f64(v[f]);
        is_float |= v[f].kind == SC_FLOAT;
        integral = integral && vf[f] == nearbyint(vf[f]) && fabs(vf[f]) < 1e15;
        vi[f] = integral ? (int64_t)vf[f] : 0;
        equal = equal && (vf[f] == vf[0] || (isnan(vf[f]) && isnan(vf[0])));
        if (v[f].kind == SC_INT) vi[f] = v[f].i;
    }
    h->constant = equal;
    h->build = b->number;
    h->unsolved = false;
    h->text = h->also = h->why = NULL;
    bool exact = given && given->n && given->c[0].rank < R_LOCAL;
    Cands level = {0};
    if (equal && integral && !is_float && how & SOLVE_SIZE && v[0].kind == SC_INT) level_candidates(b, &level, vi);
    if (equal && !level.n && h->state == HOLE_AUTO && !h->pick && !exact) {
        if (v[0].kind == SC_BOOL) return ex_bool(b->ex, v[0].i != 0);
        if (given && given->n && vi[0]) { /* a pad of 2 at every size, or what was missing to a multiple at these? */
            h->text = expr_text(b, num(b, vi[0]));
            note_others(b, h, given, -1);
        }
        return is_float ? ex_float(b->ex, vf[0]) : num(b, vi[0]);
    }
    if (h->forced) {
        Expr *e = ex_parse(b->ex, h->forced, NULL, NULL, b->err);
        int64_t got[GEN_FILES];
        if (!e) return NULL;
        if (eval_at(b, e, got) && same(b, got, vi)) {
            h->text = expr_text(b, e);
            return is_float ? ex_make(b->ex, EX_TOFLOAT, e, NULL, NULL) : e;
        }
    }
    Cands c = {0};
    if (given) c = *given;
    if (integral && v[0].kind != SC_BOOL && !exact && !equal) integer_candidates(b, &c, vi, local, nlocal, how);
    for (int i = 0; i < level.n; i++) cand_add(b, &c, vi, level.c[i].e, R_KNOWN);
    bool floats = !integral || (is_float && !c.n); /* 2.0 and 5.0 may be roots of 4 and 25 */
    if (floats && !exact) float_candidates(b, &c, vf, local, nlocal);
    if (b->nfiles < 3)
        while (c.n && c.c[c.n - 1].rank >= R_WEAK + 4) /* two constants from two files: anything fits */
            if (!--c.n)
                h->why = arena_printf(b->gen->arena,
                                      "%s fits, but two free constants fit any two values: give a third file",
                                      expr_text(b, c.c[0].e));
    if (equal && !floats) cand_add(b, &c, vi, num(b, vi[0]), exact ? R_KNOWN + 4 : level.n ? R_LOCAL : 0);
    h->ncand = c.n;
    h->rank = c.n ? c.c[0].rank : INT_MAX;
    bool open = h->state == HOLE_OPEN || !c.n || (h->state == HOLE_AUTO && !h->pick && uncertain(&c));
    if (open && !floats && v[0].kind != SC_BOOL) {
        h->unsolved = !c.n;
        return open_symbol(b, h, vi, is_float);
    }
    if (!c.n) { /* nothing that inference could settle: go on with the first file's value */
        h->unsolved = true;
        return v[0].kind == SC_BOOL ? ex_bool(b->ex, v[0].i != 0) : ex_float(b->ex, vf[0]);
    }
    int pick = h->pick < c.n ? h->pick : 0;
    note_others(b, h, &c, pick);
    h->text = expr_text(b, c.c[pick].e);
    return is_float && !c.c[pick].e->is_float ? ex_make(b->ex, EX_TOFLOAT, c.c[pick].e, NULL, NULL) : c.c[pick].e;
}

/* ------------------------------------------------------------------ pads */

void cand_own(const Build *b, Cands *c, const int64_t *v, Expr *size)
{
    Atom e = {.e = size};
    Cands found = {0};
    if (ex_is_const(size) || !eval_at(b, size, e.v)) return;
    remainders(b, &found, v, &e, 0);
    two_constants(b, &found, v, &e, 0);
    for (int i = 0; i < found.n; i++)
        if (found.c[i].rank < R_WEAK) cand_add(b, c, v, found.c[i].e, R_KNOWN + 3 + (found.c[i].rank > R_ONE + 5));
}

void cand_pad(const Build *b, Expr *dim, const int64_t *before, const int64_t *after, Cands *first, Cands *last)
{
    int64_t e[GEN_FILES], all[GEN_FILES], common = 0, most = 0;
    bool any_before = false, any_after = false;
    if (!eval_at(b, dim, e) || ex_is_const(dim)) return;
    for (int f = 0; f < b->nfiles; f++) {
        if (before[f] < 0 || after[f] < 0) return;
        all[f] = before[f] + after[f];
        any_before |= before[f] != 0;
        any_after |= after[f] != 0;
        common = common_divisor(common, e[f] + all[f]);
        if (all[f] > most) most = all[f];
    }
    for (int pass = 0; pass < 2; pass++)
        for (int64_t c = most + 1; c <= common && c < 1024; c++) {
            if (c < 2 || common % c || seen(b, c) == (pass == 1)) continue;
            Expr *fill = ex_sub(b->ex, filled(b, dim, c), dim), *half = ex_floordiv(b->ex, fill, num(b, 2));
            int rank = pass ? R_ONE + 3 : R_PAD; /* multiples of what the model has are much likelier */
            if (!any_before) cand_add(b, last, after, fill, rank);
            if (!any_after) cand_add(b, first, before, fill, rank);
            if (!any_before || !any_after) continue;
            cand_add(b, first, before, half, rank);
            cand_add(b, last, after, ex_sub(b->ex, fill, half), rank);
        }
}
