/* What integers an expression can be: from the ranges of symbols, and from bounds that are checked before anything
 * runs.
 *
 *     s0 in [2, 8]: 3*s0 - 1 in [5, 23]          0 <= s1 - s0 assumed: Max(0, s1 - s0) is s1 - s0
 */
#include "expr/expr_impl.h"

/* Of two lower ends (open: INT64_MIN) or two upper ends (open: INT64_MAX). */
static int64_t sat_add(int64_t a, int64_t b, int64_t open)
{
    int64_t r;
    if (a == open || b == open) return open;
    return add_i64(a, b, &r) ? r : a > 0 ? INT64_MAX : INT64_MIN;
}

static int64_t sat_mul(int64_t a, int64_t b)
{
    int64_t r;
    if (a == 0 || b == 0) return 0;
    bool infinite = a == INT64_MIN || a == INT64_MAX || b == INT64_MIN || b == INT64_MAX;
    return !infinite && mul_i64(a, b, &r) ? r : (a > 0) == (b > 0) ? INT64_MAX : INT64_MIN;
}

static void range_mul(int64_t *lo, int64_t *hi, int64_t l, int64_t h)
{
    int64_t c[4] = {sat_mul(*lo, l), sat_mul(*lo, h), sat_mul(*hi, l), sat_mul(*hi, h)};
    *lo = *hi = c[0];
    for (int i = 1; i < 4; i++) {
        if (c[i] < *lo) *lo = c[i];
        if (c[i] > *hi) *hi = c[i];
    }
}

static void range_of(const ExprPool *p, const Expr *e, int64_t *lo, int64_t *hi)
{
    int64_t l, h, l2, h2;
    *lo = INT64_MIN;
    *hi = INT64_MAX;
    switch (e->kind) {
    case EX_INT:
    case EX_BOOL: *lo = *hi = e->i; return;
    case EX_SYM:
        *lo = p->symbols[e->i]->lo;
        *hi = p->symbols[e->i]->hi;
        return;
    case EX_ADD:
        if (e->is_float) return;
        *lo = *hi = 0;
        for (int i = 0; i < e->nargs; i++) {
            ex_range(p, e->args[i], &l, &h);
            *lo = sat_add(*lo, l, INT64_MIN);
            *hi = sat_add(*hi, h, INT64_MAX);
        }
        return;
    case EX_MUL:
        if (e->is_float) return;
        *lo = *hi = 1;
        for (int i = 0; i < e->nargs; i++) {
            ex_range(p, e->args[i], &l, &h);
            range_mul(lo, hi, l, h);
        }
        return;
    case EX_FLOORDIV:
        ex_range(p, e->args[0], &l, &h);
        ex_range(p, e->args[1], &l2, &h2);
        if (l2 == 0 && h2 > 0) l2 = 1; /* by 0 it has no value */
        if (l2 <= 0) return;
        *lo = l == INT64_MIN ? l : l >= 0 ? (h2 == INT64_MAX ? 0 : l / h2) : floor_div_i64(l, l2);
        *hi = h == INT64_MAX ? h : h >= 0 ? h / l2 : -1;
        return;
    case EX_MOD:
        ex_range(p, e->args[1], &l2, &h2);
        if (l2 <= 0 || e->is_float) return;
        *lo = 0;
        *hi = h2 == INT64_MAX ? h2 : h2 - 1;
        return;
    case EX_MAX:
    case EX_MIN:
        if (e->is_float) return;
        ex_range(p, e->args[0], &l, &h);
        ex_range(p, e->args[1], &l2, &h2);
        *lo = (e->kind == EX_MAX) == (l > l2) ? l : l2;
        *hi = (e->kind == EX_MAX) == (h > h2) ? h : h2;
        return;
    case EX_WHERE:
        if (e->is_float) return;
        ex_range(p, e->args[1], &l, &h);
        ex_range(p, e->args[2], &l2, &h2);
        *lo = l < l2 ? l : l2;
        *hi = h > h2 ? h : h2;
        return;
    default: return;
    }
}

/* e == f + *c for a constant c: terms have one order, the constant may stand anywhere among them. */
static bool same_terms(const Expr *e, const Expr *f, int64_t *c)
{
    bool sum = e->kind == EX_ADD && !e->is_float;
    int n = f->kind == EX_ADD ? f->nargs : 1, k = 0;
    *c = 0;
    for (int i = 0; i < (sum ? e->nargs : 1); i++) {
        const Expr *term = sum ? e->args[i] : e;
        if (term->kind == EX_INT) *c = term->i;
        else if (k == n || (f->kind == EX_ADD ? f->args[k++] : (k++, f)) != term) return false;
    }
    return k == n;
}

static void tighten(const ExprPool *p, const Expr *e, int64_t *lo, int64_t *hi)
{
    int64_t c, l, h;
    for (int i = 0; i < p->nfacts; i++) {
        if (!same_terms(e, p->facts[i].e, &c)) continue;
        l = sat_add(p->facts[i].lo, c, INT64_MIN);
        h = sat_add(p->facts[i].hi, c, INT64_MAX);
        if (l > *lo) *lo = l;
        if (h < *hi) *hi = h;
    }
}

/* lo <= e */
static void add_fact(ExprPool *p, Expr *e, int64_t lo)
{
    int64_t c = 0;
    if (!e || e->nargs == 0) return;
    for (int i = 0; e->kind == EX_ADD && i < e->nargs; i++)
        if (e->args[i]->kind == EX_INT) c = e->args[i]->i;
    if (c <= INT64_MIN / 2 || c >= INT64_MAX / 2) return;
    Expr *plain = ex_sub(p, e, ex_int(p, c)), *minus = plain ? ex_neg(p, plain) : NULL;
    if (!minus || p->nfacts + 2 > MAX_FACTS) return;
    if (!p->facts) p->facts = arena_array(p->arena, Fact, MAX_FACTS);
    if (!p->facts) return;
    lo = sat_add(lo, -c, INT64_MIN);
    p->facts[p->nfacts++] = (Fact){plain, lo, INT64_MAX};
    p->facts[p->nfacts++] = (Fact){minus, INT64_MIN, -lo};
    p->stamp++;
}

/* What is known of sums and products that an equality has made others since: of A*B - A >= 0 and A*B == 16 that A is 16
 * at most. */
static void reduce_facts(ExprPool *p)
{
    for (int i = 0, n = p->nfacts; i < n; i++) {
        Fact f = p->facts[i];
        Expr *e = f.lo == INT64_MIN ? NULL : expr_reduced(p, (Expr *)(uintptr_t)f.e); /* the others are its negative */
        if (e && e != f.e) add_fact(p, e, f.lo);
    }
    p->stamp++;
}

/* A quotient that is a number bounds what is divided. */
static void bound_dividend(ExprPool *p, Expr *e, int64_t is)
{
    int64_t least;
    if (e->kind != EX_FLOORDIV || e->args[1]->kind != EX_INT || e->args[1]->i <= 0) return;
    if (!mul_i64(is, e->args[1]->i, &least)) return;
    Expr *more = ex_sub(p, e->args[0], ex_int(p, least));
    add_fact(p, more, 0);
    add_fact(p, ex_sub(p, ex_int(p, e->args[1]->i - 1), more), 0);
}

static void assume_equal(ExprPool *p, Expr *a, Expr *b);

/* x % c is 0: x is c*(x//c) then, and n//4 is at least 1 where n is at least 2. */
static void assume_multiple(ExprPool *p, Expr *rest)
{
    int64_t lo, hi;
    Expr *x = rest->args[0], *c = rest->args[1];
    add_fact(p, ex_neg(p, rest), 0); /* a remainder is not negative */
    if (c->kind != EX_INT || c->i <= 0) return; /* by a negative number it never is more than 0 */
    ex_range(p, x, &lo, &hi);
    if (lo > INT64_MIN) add_fact(p, ex_floordiv(p, x, c), floor_div_i64(lo, c->i) + (lo % c->i != 0));
    assume_equal(p, ex_mul(p, c, ex_floordiv(p, x, c)), x);
}

/* Of an equality c*(x//c) == x that x % c is 0. */
static void assume_remainder(ExprPool *p, const Equality *is)
{
    if (is->lead->kind != EX_MUL || is->lead->nargs != 2 || is->lead->args[1]->kind != EX_FLOORDIV) return;
    Expr *c = is->lead->args[0], *part = is->lead->args[1];
    Expr *rest = part->args[0] == is->rest && part->args[1] == c ? ex_mod(p, is->rest, c) : NULL;
    if (rest && rest->kind == EX_MOD) assume_multiple(p, rest);
}

/* Both sides are read as what was assumed before makes them: of n//(n//4) == 4 and n == n//4*(n//(n//4)) that n is
 * 4*(n//4). */
static void assume_equal(ExprPool *p, Expr *a, Expr *b)
{
    a = a ? expr_reduced(p, a) : NULL;
    b = b ? expr_reduced(p, b) : NULL;
    Expr *room = ex_sub(p, a, b);
    if (!room || ex_equals_int(room, 0)) return;
    if (expr_equate(p, a, b)) {
        Equality is = p->equal[p->nequal - 1];
        reduce_facts(p);
        if (is.rest->kind == EX_INT) bound_dividend(p, is.lead, is.rest->i);
        assume_remainder(p, &is);
    } else {
        add_fact(p, room, 0);
        add_fact(p, ex_neg(p, room), 0);
    }
}

void expr_assume(ExprPool *p, const Expr *cond)
{
    if (!cond || cond->nargs != 2) return;
    Expr *a = cond->args[0], *b = cond->args[1];
    if (cond->kind == EX_AND) {
        expr_assume(p, a);
        expr_assume(p, b);
    } else if (cond->kind == EX_EQ && !a->is_float && !b->is_float && !ex_data_dependent(p, cond)) {
        if (b->kind == EX_MOD && ex_equals_int(a, 0)) assume_multiple(p, b);
        else if (a->kind == EX_MOD && ex_equals_int(b, 0)) assume_multiple(p, a);
        else assume_equal(p, a, b);
    } else if ((cond->kind == EX_LE || cond->kind == EX_LT) && !a->is_float && !b->is_float &&
               !ex_data_dependent(p, cond)) {
        if (cond->kind == EX_LE && a->kind == EX_MOD && ex_equals_int(b, 0)) assume_multiple(p, a);
        else add_fact(p, ex_sub(p, b, a), cond->kind == EX_LT);
    }
}

/* The memo is valid while p->stamp stands; ranges change only during import, which is single-threaded. */
void ex_range(const ExprPool *p, const Expr *e, int64_t *lo, int64_t *hi)
{
    if (!e) {
        *lo = INT64_MIN;
        *hi = INT64_MAX;
        return;
    }
    if (e->nargs == 0) {
        range_of(p, e, lo, hi);
        return;
    }
    Expr *m = (Expr *)(uintptr_t)e;
    if (m->stamp != p->stamp) {
        range_of(p, e, &m->lo, &m->hi);
        tighten(p, e, &m->lo, &m->hi);
        m->stamp = p->stamp;
    }
    *lo = m->lo;
    *hi = m->hi;
}

void expr_set_range(ExprPool *p, int symbol, int64_t lo, int64_t hi)
{
    Symbol *s = p->symbols[symbol];
    if (s->lo == lo && s->hi == hi) return; /* what was computed with it holds */
    s->lo = lo;
    s->hi = hi;
    p->stamp++;
}
