/* Building and simplifying expressions. Their pool is expr_pool.c, bounds are in expr_range.c, evaluation in
 * expr_eval.c, text in expr_text.c.
 *
 * Integer sums and products are polynomials: a sum of terms, a term an integer times sorted factors; a factor is
 * anything that is not itself a sum or product. Every builder goes from operands to terms and back, so equal
 * polynomials are one pointer.
 */
#include "expr/expr_impl.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"

enum { MAX_TERMS = 64, MAX_FACTORS = 32, DISTRIBUTE = 32, SEARCHED = 1 << 14 };

/* ------------------------------------------------------------------ polynomials */

typedef struct Term {
    int64_t coef;
    int n;
    Expr *factor[MAX_FACTORS]; /* sorted by id */
} Term;

typedef struct Poly {
    int n;
    bool too_big;
    Term *term;
} Poly;

static int compare_factors(const Term *a, const Term *b)
{
    if (a->n != b->n) return a->n < b->n ? -1 : 1; /* low degree first: the constant leads */
    for (int i = 0; i < a->n; i++)
        if (a->factor[i] != b->factor[i]) return a->factor[i]->id < b->factor[i]->id ? -1 : 1;
    return 0;
}

static void poly_add(Poly *p, const Term *t)
{
    int at = 0;
    for (; at < p->n; at++) {
        int c = compare_factors(&p->term[at], t);
        if (c == 0) {
            if (!add_i64(p->term[at].coef, t->coef, &p->term[at].coef)) p->too_big = true;
            if (p->term[at].coef == 0) memmove(&p->term[at], &p->term[at + 1], (size_t)(--p->n - at) * sizeof *t);
            return;
        }
        if (c > 0) break;
    }
    if (t->coef == 0) return;
    if (p->n == MAX_TERMS) {
        p->too_big = true;
        return;
    }
    memmove(&p->term[at + 1], &p->term[at], (size_t)(p->n++ - at) * sizeof *t);
    p->term[at] = *t;
}

static void term_of(Expr *e, Term *t)
{
    *t = (Term){.coef = 1};
    if (e->kind == EX_INT) t->coef = e->i;
    else if (e->kind == EX_MUL && !e->is_float) {
        for (int i = 0; i < e->nargs; i++) {
            if (e->args[i]->kind == EX_INT) t->coef = e->args[i]->i;
            else t->factor[t->n++] = e->args[i];
        }
    } else {
        t->factor[t->n++] = e;
    }
}

static void poly_of(Expr *e, Poly *p)
{
    Term t;
    if (e->kind == EX_ADD && !e->is_float) {
        for (int i = 0; i < e->nargs; i++) {
            term_of(e->args[i], &t);
            poly_add(p, &t);
        }
    } else {
        term_of(e, &t);
        poly_add(p, &t);
    }
}

static bool term_times(const Term *a, const Term *b, Term *out)
{
    if (a->n + b->n > MAX_FACTORS || !mul_i64(a->coef, b->coef, &out->coef)) return false;
    out->n = 0;
    for (int i = 0, j = 0; i < a->n || j < b->n;)
        out->factor[out->n++] = j == b->n || (i < a->n && a->factor[i]->id <= b->factor[j]->id) ? a->factor[i++]
                                                                                                : b->factor[j++];
    return true;
}

/* out = a / b where b's factors are among a's and its coefficient divides. */
static bool term_over(const Term *a, const Term *b, Term *out)
{
    if (b->coef == 0 || (b->coef == -1 && a->coef == INT64_MIN) || a->coef % b->coef) return false;
    *out = (Term){.coef = a->coef / b->coef};
    int j = 0;
    for (int i = 0; i < a->n; i++) {
        if (j < b->n && a->factor[i] == b->factor[j]) j++;
        else out->factor[out->n++] = a->factor[i];
    }
    return j == b->n;
}

static Expr *expr_of_term(ExprPool *p, const Term *t)
{
    if (t->n == 0) return ex_int(p, t->coef);
    if (t->n == 1 && t->coef == 1) return t->factor[0];
    Expr *args[MAX_FACTORS + 1];
    int n = 0;
    if (t->coef != 1) args[n++] = ex_int(p, t->coef);
    for (int i = 0; i < t->n; i++) args[n++] = t->factor[i];
    if (!args[0]) return NULL;
    return expr_intern(p, &(Expr){.kind = EX_MUL, .nargs = n, .args = args});
}

static Expr *expr_of_poly(ExprPool *p, const Poly *q)
{
    if (q->too_big) return NULL;
    if (q->n == 0) return ex_int(p, 0);
    Expr *args[MAX_TERMS];
    for (int i = 0; i < q->n; i++)
        if (!(args[i] = expr_of_term(p, &q->term[i]))) return NULL;
    if (q->n == 1) return args[0];
    return expr_intern(p, &(Expr){.kind = EX_ADD, .nargs = q->n, .args = args});
}

static bool poly_new(Poly *p)
{
    *p = (Poly){.term = mem_alloc((MAX_TERMS + 1) * sizeof(Term))};
    return p->term != NULL;
}

/* All of them, or none. */
static bool polys_new(int n, Poly *const *all)
{
    for (int i = 0; i < n; i++) {
        if (poly_new(all[i])) continue;
        while (i--) mem_free(all[i]->term);
        return false;
    }
    return true;
}

static void polys_free(int n, Poly *const *all)
{
    for (int i = 0; i < n; i++) mem_free(all[i]->term);
}

static Expr *float_op(ExprPool *p, ExprKind kind, Expr *a, Expr *b)
{
    if (!a || !b) return NULL;
    if (ex_is_const(a) && ex_is_const(b)) {
        double x = ex_number(a), y = ex_number(b);
        return ex_float(p, kind == EX_ADD ? x + y : x * y);
    }
    return expr_intern(p, &(Expr){.kind = kind, .nargs = 2, .args = (Expr *[]){a, b}, .is_float = true});
}

/* a + scale * b */
static Expr *linear(ExprPool *p, Expr *a, Expr *b, int64_t scale)
{
    if (!a || !b) return NULL;
    if (ex_equals_int(b, 0)) return a;
    if (ex_equals_int(a, 0) && scale == 1) return b;
    Poly s, t, *all[] = {&s, &t};
    if (!polys_new(2, all)) return NULL;
    poly_of(a, &s);
    poly_of(b, &t);
    for (int i = 0; i < t.n; i++) {
        if (!mul_i64(t.term[i].coef, scale, &t.term[i].coef)) s.too_big = true;
        else poly_add(&s, &t.term[i]);
    }
    s.too_big |= t.too_big;
    Expr *e = expr_of_poly(p, &s);
    polys_free(2, all);
    return e;
}

Expr *ex_add(ExprPool *p, Expr *a, Expr *b)
{
    if (!a || !b) return NULL;
    if (a->is_float || b->is_float) return float_op(p, EX_ADD, a, b);
    return linear(p, a, b, 1);
}

Expr *ex_neg(ExprPool *p, Expr *a)
{
    if (!a) return NULL;
    if (a->is_float) return float_op(p, EX_MUL, ex_float(p, -1), a);
    return linear(p, ex_int(p, 0), a, -1);
}

Expr *ex_sub(ExprPool *p, Expr *a, Expr *b)
{
    if (!a || !b) return NULL;
    if (a->is_float || b->is_float) return ex_add(p, a, ex_neg(p, b));
    return linear(p, a, b, -1);
}

Expr *ex_mul(ExprPool *p, Expr *a, Expr *b)
{
    if (!a || !b) return NULL;
    if (a->is_float || b->is_float) return float_op(p, EX_MUL, a, b);
    if (ex_equals_int(a, 1)) return b;
    if (ex_equals_int(b, 1)) return a;
    if (ex_equals_int(a, 0) || ex_equals_int(b, 0)) return ex_int(p, 0);
    Poly s, t, out, *all[] = {&s, &t, &out};
    if (!polys_new(3, all)) return NULL;
    poly_of(a, &s);
    poly_of(b, &t);
    Expr *e = NULL;
    Term prod;
    if (s.n * t.n > DISTRIBUTE) { /* too many terms: keep both sides as factors */
        Term x = {.coef = 1, .n = 1, .factor = {a}}, y = {.coef = 1, .n = 1, .factor = {b}};
        if (term_times(&x, &y, &prod)) e = expr_of_term(p, &prod);
    } else {
        for (int i = 0; i < s.n; i++)
            for (int j = 0; j < t.n; j++) {
                if (term_times(&s.term[i], &t.term[j], &prod)) poly_add(&out, &prod);
                else out.too_big = true;
            }
        e = expr_of_poly(p, &out);
    }
    polys_free(3, all);
    return e;
}

/* The factors, a number among them, that both terms have. */
static Term common_term(const Term *a, const Term *b)
{
    Term out = {.coef = a->coef};
    for (int64_t r = b->coef, t; r != 0; out.coef = r, r = t) t = r == -1 ? 0 : out.coef % r; /* -2^63 by -1 */
    for (int i = 0, j = 0; i < a->n && j < b->n;) {
        if (a->factor[i] == b->factor[j]) {
            out.factor[out.n++] = a->factor[i++];
            j++;
        } else if (a->factor[i]->id < b->factor[j]->id) {
            i++;
        } else {
            j++;
        }
    }
    return out;
}

/* What both terms have is more than 0: s22*s98 == s98*s1 says as much as s22 == s1. */
static bool leaves_symbol(ExprPool *p, const Term *t, const Term *shared, Expr **symbol)
{
    Term rest, factors = *shared;
    int64_t lo, hi;
    factors.coef = 1;
    ex_range(p, expr_of_term(p, &factors), &lo, &hi);
    if (lo <= 0 || !term_over(t, &factors, &rest)) return false;
    if (rest.n != 1 || rest.factor[0]->kind != EX_SYM) return false;
    *symbol = rest.factor[0];
    return true;
}

bool expr_same_symbols(ExprPool *p, const Expr *cond, Expr **a, Expr **b)
{
    if (!cond || cond->kind != EX_EQ || cond->args[0]->is_float || cond->args[1]->is_float) return false;
    Expr *d = ex_sub(p, cond->args[0], cond->args[1]);
    if (!d || d->kind != EX_ADD || d->nargs != 2) return false;
    Term s, t;
    term_of(d->args[0], &s);
    term_of(d->args[1], &t);
    Term shared = common_term(&s, &t);
    return s.coef != INT64_MIN && s.coef == -t.coef && leaves_symbol(p, &s, &shared, a) &&
           leaves_symbol(p, &t, &shared, b);
}

/* s = q * t; s is used up. */
static bool divide_evenly(Poly *s, const Poly *t, Poly *q)
{
    Term f, prod;
    for (int step = 0; s->n && step < DISTRIBUTE; step++) {
        if (!term_over(&s->term[s->n - 1], &t->term[t->n - 1], &f)) return false;
        poly_add(q, &f);
        if (!mul_i64(f.coef, -1, &f.coef)) return false;
        for (int i = t->n - 1; i >= 0; i--) {
            if (!term_times(&t->term[i], &f, &prod)) return false;
            poly_add(s, &prod);
        }
    }
    return s->n == 0;
}

/* s = q * f and t = rest * f, with all that the terms of s share with the only one of t; false: no symbol. */
static bool divide_by_shared(const Poly *s, const Term *t, Poly *q, Term *rest)
{
    Term f = *t, part;
    for (int i = 0; i < s->n; i++) f = common_term(&f, &s->term[i]);
    bool ok = f.n > 0 && term_over(t, &f, rest);
    for (int i = 0; ok && i < s->n; i++) {
        ok = term_over(&s->term[i], &f, &part);
        if (ok) poly_add(q, &part);
    }
    return ok;
}

/* a / b as polynomials when it comes out even, else, unless it must (even), x // c of (n * x) // (n * c), as n is not 0
 * where the quotient is defined; NULL where it is neither. */
static Expr *quotient(ExprPool *p, Expr *a, Expr *b, bool even)
{
    Poly s, t, q, *all[] = {&s, &t, &q};
    if (!polys_new(3, all)) return NULL;
    poly_of(a, &s);
    poly_of(b, &t);
    Term rest = {.coef = 1};
    bool one_term = t.n == 1 && t.term[0].n > 0;
    bool ok = t.n > 0 && !s.too_big && !t.too_big &&
              (one_term ? divide_by_shared(&s, &t.term[0], &q, &rest) : divide_evenly(&s, &t, &q));
    ok = ok && !s.too_big && !q.too_big;
    Expr *e = ok ? expr_of_poly(p, &q) : NULL, *by = ok ? expr_of_term(p, &rest) : NULL;
    polys_free(3, all);
    if (!e || !by) return NULL;
    if (ex_equals_int(by, 1)) return e;
    return even ? quotient(p, e, by, true) : ex_floordiv(p, e, by);
}

/* a = c * quotient + rest, the rest's constant in [0, c). */
static bool split_multiple(ExprPool *p, Expr *a, int64_t c, Expr **quotient, Expr **rest)
{
    Poly s, q, r, *all[] = {&s, &q, &r};
    if (!polys_new(3, all)) return false;
    poly_of(a, &s);
    for (int i = 0; i < s.n; i++) {
        Term t = s.term[i];
        int64_t m = t.coef % c;
        if (m < 0) m += c;
        if (t.n && m) { /* a symbolic term stays whole unless it divides */
            poly_add(&r, &t);
            continue;
        }
        Term u = t;
        t.coef = floor_div_i64(t.coef, c);
        u.coef = m;
        poly_add(&q, &t);
        poly_add(&r, &u);
    }
    *quotient = expr_of_poly(p, &q);
    *rest = expr_of_poly(p, &r);
    polys_free(3, all);
    return *quotient && *rest;
}

static bool divides(const Expr *e) /* x//c, x % c */
{
    return (e->kind == EX_FLOORDIV || e->kind == EX_MOD) && !e->args[0]->is_float && e->args[1]->kind == EX_INT &&
           e->args[1]->i > 1;
}

/* What has the same remainder as e by m: x for x % k, where k is a multiple of m. */
static Expr *same_remainder(ExprPool *p, Expr *e, int64_t m)
{
    Expr *sum = ex_int(p, 0);
    bool plain = true;
    for (int i = 0; i < (e->kind == EX_ADD ? e->nargs : 1); i++) {
        Expr *part = e->kind == EX_ADD ? e->args[i] : e;
        Term t;
        term_of(part, &t);
        const Expr *f = t.n == 1 ? t.factor[0] : NULL;
        bool inner = f && f->kind == EX_MOD && divides(f) && f->args[1]->i % m == 0;
        plain = plain && !inner;
        sum = ex_add(p, sum, inner ? ex_mul(p, ex_int(p, t.coef), f->args[0]) : part);
    }
    return plain ? e : sum;
}

/* a / b where that comes out even; of a // (x//c) it is (c*a) / x, if x is known to be a multiple of c. */
static Expr *even_quotient(ExprPool *p, Expr *a, Expr *b)
{
    Expr *by = ex_int(p, 1);
    bool product = b->kind == EX_MUL && !b->is_float;
    for (int i = 0; i < (product ? b->nargs : 1); i++) {
        Expr *f = product ? b->args[i] : b;
        bool even = f->kind == EX_FLOORDIV && divides(f) && ex_equals_int(ex_mod(p, f->args[0], f->args[1]), 0);
        if (even) a = ex_mul(p, a, f->args[1]);
        by = ex_mul(p, by, even ? f->args[0] : f);
    }
    return a && by ? quotient(p, a, by, true) : NULL;
}

/* e//n with g out of n and of e's terms but its number k: (g*x + k)//n is (x + k//g)//(n/g). NULL: g is 1. */
static Expr *in_lowest_terms(ExprPool *p, Expr *e, int64_t n)
{
    Poly s, q, *both[] = {&s, &q};
    if (!polys_new(2, both)) return NULL;
    poly_of(e, &s);
    int64_t g = n;
    for (int i = 0; i < s.n; i++) g = s.term[i].n ? gcd_i64(g, s.term[i].coef) : g;
    for (int i = 0; i < s.n && g > 1; i++) {
        Term t = s.term[i];
        t.coef = floor_div_i64(t.coef, g);
        poly_add(&q, &t);
    }
    Expr *x = g > 1 && !s.too_big && !q.too_big ? expr_of_poly(p, &q) : NULL;
    polys_free(2, both);
    return x ? ex_floordiv(p, x, ex_int(p, n / g)) : NULL;
}

/* The x//m of e = x//m + k, where m > 1 and k are numbers; NULL: e is not that. */
static const Expr *quotient_and_number(const Expr *e, int64_t *k)
{
    const Expr *q = e;
    *k = 0;
    if (e->kind == EX_ADD && e->nargs == 2) {
        int at = e->args[0]->kind == EX_INT ? 0 : 1;
        if (e->args[at]->kind != EX_INT) return NULL;
        *k = e->args[at]->i;
        q = e->args[1 - at];
    }
    return q->kind == EX_FLOORDIV && divides(q) ? q : NULL;
}

Expr *ex_floordiv(ExprPool *p, Expr *a, Expr *b)
{
    if (!a || !b) return NULL;
    if (a->is_float || b->is_float) return ex_make(p, EX_FLOOR, ex_make(p, EX_TRUEDIV, a, b, NULL), NULL, NULL);
    if (ex_equals_int(b, 1)) return a;
    if (a->kind == EX_INT && b->kind == EX_INT && b->i != 0 && !(b->i == -1 && a->i == INT64_MIN))
        return ex_int(p, floor_div_i64(a->i, b->i));
    if (ex_equals_int(a, 0) && !ex_equals_int(b, 0)) return a;
    Expr *less = ex_equals_int(b, 0) ? NULL : quotient(p, a, b, false);
    if (!less && (b->kind == EX_FLOORDIV || b->kind == EX_MUL)) less = even_quotient(p, a, b);
    if (less) return less;
    if (b->kind == EX_INT && b->i > 0) {
        Expr *q, *r;
        if (!split_multiple(p, a, b->i, &q, &r)) return NULL;
        if (r->kind == EX_INT) return q;
        if (!ex_equals_int(q, 0)) return ex_add(p, q, ex_floordiv(p, r, b));
        int64_t lo, hi, prod, more;
        ex_range(p, a, &lo, &hi);
        if (lo >= 0 && hi < b->i) return ex_int(p, 0);
        Expr *lowest = in_lowest_terms(p, a, b->i);
        if (lowest) return lowest;
        const Expr *inner = quotient_and_number(a, &more); /* (x//m + k) // n is (x + m*k) // (m*n) */
        if (inner && mul_i64(inner->args[1]->i, b->i, &prod) && mul_i64(inner->args[1]->i, more, &more))
            return ex_floordiv(p, ex_add(p, inner->args[0], ex_int(p, more)), ex_int(p, prod));
    }
    return expr_intern(p, &(Expr){.kind = EX_FLOORDIV, .nargs = 2, .args = (Expr *[]){a, b}});
}

Expr *ex_mod(ExprPool *p, Expr *a, Expr *b)
{
    if (!a || !b) return NULL;
    if (!a->is_float && !b->is_float) {
        if (ex_equals_int(b, 1)) return ex_int(p, 0);
        if (a->kind == EX_INT && b->kind == EX_INT && b->i != 0) {
            int64_t m = b->i == -1 ? 0 : a->i % b->i;
            return ex_int(p, m != 0 && (m < 0) != (b->i < 0) ? m + b->i : m);
        }
        if (!ex_equals_int(b, 0) && even_quotient(p, a, b)) return ex_int(p, 0);
        if (b->kind == EX_INT && b->i > 0) {
            Expr *q, *r;
            int64_t lo, hi;
            if (!split_multiple(p, a, b->i, &q, &r)) return NULL;
            if (r->kind == EX_INT) return r;
            ex_range(p, r, &lo, &hi);
            if (lo >= 0 && hi < b->i) return r;
            a = same_remainder(p, r, b->i);
            if (a != r) return ex_mod(p, a, b);
        }
    }
    Expr *e = expr_intern(
        p, &(Expr){.kind = EX_MOD, .nargs = 2, .args = (Expr *[]){a, b}, .is_float = a->is_float || b->is_float});
    int64_t lo, hi;
    ex_range(p, e, &lo, &hi);
    return lo == 0 && hi == 0 ? ex_int(p, 0) : e;
}

/* The coefficient of the term t in e. */
static int64_t coefficient(Expr *e, const Term *t)
{
    Term u;
    for (int i = 0; i < (e->kind == EX_ADD ? e->nargs : 1); i++) {
        term_of(e->kind == EX_ADD ? e->args[i] : e, &u);
        if (compare_factors(&u, t) == 0) return u.coef;
    }
    return 0;
}

static Term term_at(Expr *e, int i)
{
    Term t;
    term_of(e->kind == EX_ADD ? e->args[i] : e, &t);
    return t;
}

/* e without its x, which is c*(x//c) + x % c. NULL: x is not in it. */
static Expr *without(ExprPool *p, Expr *e, Expr *x, Expr *c)
{
    Term atom = term_at(x, x->kind == EX_ADD ? x->nargs - 1 : 0);
    int64_t has = atom.n ? coefficient(e, &atom) : 0;
    if (!has || has % atom.coef) return NULL;
    Expr *zero = ex_sub(p, ex_add(p, ex_mul(p, c, ex_floordiv(p, x, c)), ex_mod(p, x, c)), x);
    return ex_add(p, e, ex_mul(p, ex_int(p, has / atom.coef), zero));
}

/* e as its range says more: n - n//2 is n//2 + n % 2, and n//2 - n//4 is n//4 + n//2 % 2. Of the ways to do that the
 * k-th; NULL: there are fewer. */
static Expr *by_quotient(ExprPool *p, Expr *e, int k)
{
    int terms = e->kind == EX_ADD ? e->nargs : 1;
    for (int i = 0; i < terms; i++) {
        Term t = term_at(e, i);
        for (int f = 0; f < t.n; f++) {
            const Expr *q = t.factor[f];
            if (!divides(q)) continue;
            Expr *other = without(p, e, q->args[0], q->args[1]);
            for (int j = 0; j < terms && !other && q->kind == EX_FLOORDIV; j++) {
                Term u = term_at(e, j);
                Expr *d = u.n == 1 ? u.factor[0] : NULL; /* x//c of x//(c*m) */
                if (d && d->kind == EX_FLOORDIV && divides(d) && d->args[0] == q->args[0] && d != q &&
                    q->args[1]->i % d->args[1]->i == 0)
                    other = without(p, e, d, ex_int(p, q->args[1]->i / d->args[1]->i));
            }
            if (other && k-- == 0) return other;
        }
    }
    return NULL;
}

static bool not_negative(ExprPool *p, Expr *e)
{
    int64_t lo, hi;
    ex_range(p, e, &lo, &hi);
    for (int k = 0; lo < 0 && k < 2; k++) {
        Expr *other = by_quotient(p, e, k);
        if (!other) return false;
        ex_range(p, other, &lo, &hi);
    }
    return lo >= 0;
}

/* a <= b by their ranges, or by how they are made: Min(b, ..) <= b, a <= Max(a, ..), Max(0, b - 1) <= b, x % b <= b.
 * What was bounded once is so bounded to itself: lowering a slice again, as a packed model is read, gives the same
 * sizes. */
static bool at_most(ExprPool *p, Expr *a, Expr *b, int depth)
{
    int64_t lo, hi;
    if (a == b) return true;
    if (a->is_float || b->is_float) return false;
    if (a->kind == EX_MOD && a->args[1] == b) {
        ex_range(p, b, &lo, &hi);
        return lo > 0;
    }
    Expr *room = ex_sub(p, b, a);
    if (!room) return false;
    if (not_negative(p, room)) return true;
    if (depth == 0) return false;
    if (a->kind == EX_MIN && (at_most(p, a->args[0], b, depth - 1) || at_most(p, a->args[1], b, depth - 1)))
        return true;
    if (b->kind == EX_MAX && (at_most(p, a, b->args[0], depth - 1) || at_most(p, a, b->args[1], depth - 1)))
        return true;
    if (a->kind == EX_MAX && at_most(p, a->args[0], b, depth - 1) && at_most(p, a->args[1], b, depth - 1)) return true;
    return b->kind == EX_MIN && at_most(p, a, b->args[0], depth - 1) && at_most(p, a, b->args[1], depth - 1);
}

static Expr *min_max(ExprPool *p, ExprKind kind, Expr *a, Expr *b)
{
    if (!a || !b) return NULL;
    if (a == b) return a;
    bool is_float = a->is_float || b->is_float;
    if (!is_float) {
        int64_t lo, hi;
        ex_range(p, ex_sub(p, a, b), &lo, &hi);
        if (lo >= 0) return kind == EX_MAX ? a : b;
        if (hi <= 0) return kind == EX_MAX ? b : a;
        if (at_most(p, a, b, 2)) return kind == EX_MAX ? b : a;
        if (at_most(p, b, a, 2)) return kind == EX_MAX ? a : b;
    }
    Expr *args[2] = {a->id < b->id ? a : b, a->id < b->id ? b : a};
    return expr_intern(p, &(Expr){.kind = kind, .nargs = 2, .args = args, .is_float = is_float});
}

Expr *ex_max(ExprPool *p, Expr *a, Expr *b) { return min_max(p, EX_MAX, a, b); }
Expr *ex_min(ExprPool *p, Expr *a, Expr *b) { return min_max(p, EX_MIN, a, b); }

/* ------------------------------------------------------------------ everything else */

static Expr *power(ExprPool *p, Expr *a, Expr *b)
{
    if (!a->is_float && b->kind == EX_INT && b->i >= 0 && b->i <= 8) {
        Expr *e = ex_int(p, 1);
        for (int64_t k = 0; k < b->i; k++) e = ex_mul(p, e, a);
        return e;
    }
    bool is_float = a->is_float || b->is_float || (b->kind == EX_INT && b->i < 0);
    return expr_intern(p, &(Expr){.kind = EX_POW, .nargs = 2, .args = (Expr *[]){a, b}, .is_float = is_float});
}

static Expr *comparison(ExprPool *p, ExprKind kind, Expr *a, Expr *b)
{
    if (a == b) return ex_bool(p, kind == EX_EQ || kind == EX_LE);
    if (!a->is_float && !b->is_float && !a->is_bool && !b->is_bool) {
        Expr *d = ex_sub(p, a, b);
        if (!d) return NULL;
        int64_t lo, hi;
        ex_range(p, d, &lo, &hi);
        bool apart = lo > 0 || hi < 0;
        if (kind == EX_EQ && apart) return ex_bool(p, false);
        if (kind == EX_NE && apart) return ex_bool(p, true);
        if (kind == EX_LT && (hi < 0 || lo >= 0)) return ex_bool(p, hi < 0);
        if (kind == EX_LE && (hi <= 0 || lo > 0)) return ex_bool(p, hi <= 0);
        if (kind == EX_LE && at_most(p, a, b, 2)) return ex_bool(p, true);
    }
    return expr_intern(p, &(Expr){.kind = kind, .nargs = 2, .args = (Expr *[]){a, b}, .is_bool = true});
}

Expr *ex_make(ExprPool *p, ExprKind kind, Expr *a, Expr *b, Expr *c)
{
    int n = kind == EX_WHERE ? 3 : kind == EX_TOFLOAT || (kind >= EX_CEIL && kind <= EX_ABS) || kind == EX_NOT ? 1 : 2;
    if (!a || (n > 1 && !b) || (n > 2 && !c)) return NULL;
    switch (kind) {
    case EX_ADD: return ex_add(p, a, b);
    case EX_MUL: return ex_mul(p, a, b);
    case EX_FLOORDIV: return ex_floordiv(p, a, b);
    case EX_MOD: return ex_mod(p, a, b);
    case EX_MAX:
    case EX_MIN: return min_max(p, kind, a, b);
    case EX_POW: return power(p, a, b);
    case EX_EQ:
    case EX_NE:
    case EX_LT:
    case EX_LE: return comparison(p, kind, a, b);
    case EX_NEGF: return ex_neg(p, a);
    case EX_CEIL:
    case EX_FLOOR:
    case EX_TRUNC:
    case EX_ROUND:
        if (!a->is_float) return a;
        break;
    case EX_TOFLOAT:
        if (a->is_float) return a;
        break;
    case EX_AND:
    case EX_OR:
        if (a->kind == EX_BOOL) return (kind == EX_AND) == (a->i != 0) ? b : a;
        if (b->kind == EX_BOOL) return (kind == EX_AND) == (b->i != 0) ? a : b;
        break;
    case EX_WHERE:
        if (a->kind == EX_BOOL) return a->i ? b : c;
        if (b == c) return b;
        break;
    default: break;
    }
    Expr *args[3] = {a, b, c};
    Expr want = {.kind = kind, .nargs = n, .args = args};
    want.is_bool = kind == EX_AND || kind == EX_OR || kind == EX_NOT;
    want.is_float = kind == EX_TRUEDIV || kind == EX_TOFLOAT || kind == EX_SQRT || (kind == EX_ABS && a->is_float) ||
                    (kind == EX_WHERE && (b->is_float || c->is_float));
    bool constant = ex_is_const(a) && (n < 2 || ex_is_const(b)) && (n < 3 || ex_is_const(c));
    Expr *e = expr_intern(p, &want);
    if (!e || !constant) return e;
    Scalar v;
    Err ignored;
    if (!ex_eval(p, e, &(Binding){0}, &v, &ignored)) return e; /* e.g. a division by zero: reported when evaluated */
    return v.kind == SC_FLOAT ? ex_float(p, v.f) : v.kind == SC_BOOL ? ex_bool(p, v.i != 0) : ex_int(p, v.i);
}

/* ------------------------------------------------------------------ what is in it */

/* budget: how many nodes are looked at. Shared parts are met each time; when it is used up the answer is yes. */
static bool any_symbol(const ExprPool *p, const Expr *e, const Expr *wanted, int *budget)
{
    if (wanted && !(e->symbols & wanted->symbols)) return false;
    if (e->kind == EX_SYM) {
        if (wanted) return e == wanted;
        return symbol_out_of_data(p->symbols[e->i]);
    }
    if (!e->symbols) return false;
    for (int i = 0; i < e->nargs; i++)
        if (--*budget <= 0 || any_symbol(p, e->args[i], wanted, budget)) return true;
    return false;
}

bool ex_data_dependent(const ExprPool *p, const Expr *e) { return any_symbol(p, e, NULL, &(int){SEARCHED}); }
bool ex_mentions(const Expr *e, const Expr *symbol) { return any_symbol(NULL, e, symbol, &(int){SEARCHED}); }
