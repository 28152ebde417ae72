/* Building and simplifying expressions. Comparisons are in expr_make.c, the pool in expr_pool.c, bounds in
 * expr_range.c, evaluation in expr_eval.c, text in expr_text.c.
 *
 * Integer sums and products are polynomials: a sum of terms, a term an integer times sorted factors; a factor is
 * anything that is not itself a sum or product. Every builder goes from operands to terms and back, so equal
 * polynomials are one pointer.
 */
#include "expr/expr_impl.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"

enum { MAX_FACTORS = 32, DISTRIBUTE = 32, REDUCED = 1 << 7, DIVIDED = 24 };

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

static bool poly_new(Poly *p)
{
    *p = (Poly){.term = mem_alloc((MAX_TERMS + 1) * sizeof(Term))};
    return p->term != NULL;
}

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

/* Is t a multiple of the product `of`? */
static bool has_factors(const Term *t, Expr *of)
{
    bool product = of->kind == EX_MUL, number = product && of->args[0]->kind == EX_INT;
    int n = product ? of->nargs : 1, k = number;
    for (int i = 0; i < t->n && k < n; i++) k += t->factor[i] == (product ? of->args[k] : of);
    return k == n && (!number || t->coef % of->args[0]->i == 0);
}

/* The rest of an equality for its lead in a term, which has it. */
static void replace_lead(Poly *q, int at, const Equality *is)
{
    Term lead, f, prod, gone = q->term[at];
    Poly rest;
    term_of(is->lead, &lead);
    bool ok = term_over(&gone, &lead, &f) && mul_i64(gone.coef, -1, &gone.coef) && poly_new(&rest);
    q->too_big |= !ok;
    if (!ok) return;
    poly_of(is->rest, &rest);
    poly_add(q, &gone);
    for (int j = 0; j < rest.n; j++) {
        if (term_times(&rest.term[j], &f, &prod)) poly_add(q, &prod);
        else q->too_big = true;
    }
    mem_free(rest.term);
}

/* The equality whose lead a term of q has, the term by *at; NULL: none. */
static const Equality *equality_in(const ExprPool *p, const Poly *q, int *at)
{
    for (int k = 0; k < p->nequal; k++)
        for (*at = q->n - 1; *at >= 0; --*at)
            if (has_factors(&q->term[*at], p->equal[k].lead)) return &p->equal[k];
    return NULL;
}

/* q as the equalities have it; as it was where that is too large or does not end. */
static void reduce(const ExprPool *p, Poly *q)
{
    int at = 0;
    const Equality *is = q->too_big ? NULL : equality_in(p, q, &at);
    Poly before;
    if (!is || !poly_new(&before)) return;
    before.n = q->n;
    memcpy(before.term, q->term, (size_t)q->n * sizeof *q->term);
    for (int steps = 0; is && !q->too_big; is = equality_in(p, q, &at)) {
        replace_lead(q, at, is);
        q->too_big |= ++steps == REDUCED;
    }
    if (q->too_big) {
        memcpy(q->term, before.term, (size_t)before.n * sizeof *q->term);
        q->n = before.n;
        q->too_big = false;
    }
    mem_free(before.term);
}

static Expr *expr_of_poly(ExprPool *p, Poly *q)
{
    reduce(p, q);
    if (q->too_big) return NULL;
    if (q->n == 0) return ex_int(p, 0);
    Expr *args[MAX_TERMS];
    for (int i = 0; i < q->n; i++)
        if (!(args[i] = expr_of_term(p, &q->term[i]))) return NULL;
    if (q->n == 1) return args[0];
    return expr_intern(p, &(Expr){.kind = EX_ADD, .nargs = q->n, .args = args});
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

/* A truth is 1 or 0 in arithmetic, as in Python. */
static Expr *counted(ExprPool *p, Expr *e) { return e->kind == EX_BOOL ? ex_int(p, e->i) : e; }

/* a + scale * b */
static Expr *linear(ExprPool *p, Expr *a, Expr *b, int64_t scale)
{
    if (!a || !b || !(a = counted(p, a)) || !(b = counted(p, b))) return NULL;
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
    if (!(a = counted(p, a)) || !(b = counted(p, b))) return NULL;
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

Expr *expr_reduced(ExprPool *p, Expr *e)
{
    Poly q;
    if (e->is_float || e->is_bool || !poly_new(&q)) return e;
    poly_of(e, &q);
    e = expr_of_poly(p, &q);
    mem_free(q.term);
    return e;
}

/* A quotient, remainder, least or largest, which may be what an equality is about. */
static Expr *atom(ExprPool *p, ExprKind kind, Expr *a, Expr *b, bool is_float)
{
    Expr *e = expr_intern(p, &(Expr){.kind = kind, .nargs = 2, .args = (Expr *[]){a, b}, .is_float = is_float});
    int64_t lo = 0, hi = 1;
    if (!e || !p->nequal || is_float) return e;
    ex_range(p, e, &lo, &hi);
    return lo == hi ? ex_int(p, lo) : expr_reduced(p, e);
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

static int64_t content(const Poly *q)
{
    int64_t g = 0;
    for (int i = 0; i < q->n; i++) g = gcd_i64(g, q->term[i].coef);
    return g;
}

/* May the others stand for the term at `at` of q == 0? Not for a symbol, nor for a multiple but c*(x//c) where it is
 * x. */
static bool leads(const Poly *q, int at)
{
    const Term *t = &q->term[at], *x = q->n == 2 ? &q->term[1 - at] : t;
    if (!t->n || (t->n == 1 && t->factor[0]->kind == EX_SYM)) return false;
    if (t->coef == 1 || t->coef == -1) return true;
    const Expr *part = t->factor[0];
    int64_t whole;
    return t->n == 1 && part->kind == EX_FLOORDIV && x->n == 1 && x->factor[0] == part->args[0] &&
           part->args[1]->kind == EX_INT && mul_i64(x->coef, part->args[1]->i, &whole) && whole != INT64_MIN &&
           t->coef == -whole;
}

/* The term of q == 0 that the others stand for: it stands there once, and none has more factors. Of two sizes the
 * first, which a has, goes on, as where they are broadcast. -1: there is none. */
static int lead_of(const Poly *q, Expr *a)
{
    int last = q->n - 1;
    bool two = q->n == 2 && q->term[0].n == 1 && q->term[1].n == 1 && coefficient(a, &q->term[1]);
    for (int k = 0; k < q->n; k++) {
        int i = two ? k : last - k;
        if (q->term[i].n == q->term[last].n && leads(q, i)) return i;
    }
    return -1;
}

bool expr_equate(ExprPool *p, Expr *a, Expr *b)
{
    Poly q;
    Expr *d = ex_sub(p, a, b), *rest = NULL, *e = NULL;
    if (!d || p->nequal == MAX_EQUALITIES || !poly_new(&q)) return false;
    if (!p->equal) p->equal = arena_array(p->arena, Equality, MAX_EQUALITIES);
    poly_of(d, &q);
    int64_t by = content(&q);
    for (int i = 0; by > 0 && i < q.n; i++) q.term[i].coef /= by;
    int at = p->equal && by > 0 && !q.too_big ? lead_of(&q, a) : -1;
    if (at >= 0) {
        Term lead = q.term[at];
        memmove(&q.term[at], &q.term[at + 1], (size_t)(--q.n - at) * sizeof lead);
        rest = expr_of_poly(p, &q);
        if (lead.coef > 0) rest = ex_neg(p, rest);
        lead.coef = lead.coef < 0 ? -lead.coef : lead.coef;
        e = expr_of_term(p, &lead);
    }
    mem_free(q.term);
    if (!rest || !e) return false;
    Expr *number = ex_is_int(a) ? a : ex_is_int(b) ? b : NULL;
    p->equal[p->nequal++] = (Equality){e, rest, !number ? NULL : number == a ? b : a, number ? number->i : 0};
    return true;
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

/* a / b where an equality says that a number in all of a's terms is a multiple of b: 196*c / h is c*w where h*w is
 * 196. */
static Expr *quotient_of_number(ExprPool *p, Expr *a, const Expr *b)
{
    for (int k = 0; k < p->nequal; k++) {
        const Equality *is = &p->equal[k];
        Poly s, t, q, *all[] = {&s, &t, &q};
        if (!is->whole || !is->number || !polys_new(3, all)) continue;
        Expr *e = NULL, *times;
        Term number = {.coef = is->number}, part;
        poly_of((Expr *)(uintptr_t)b, &t);
        poly_of(is->whole, &s);
        bool ok = t.n && !t.too_big && divide_evenly(&s, &t, &q) && !q.too_big;
        times = ok ? expr_of_poly(p, &q) : NULL;
        poly_of(a, &s);
        q.n = 0;
        for (int i = 0; ok && i < s.n; i++)
            if ((ok = term_over(&s.term[i], &number, &part))) poly_add(&q, &part);
        if (ok && times) e = ex_mul(p, expr_of_poly(p, &q), times);
        polys_free(3, all);
        if (e) return e;
    }
    return NULL;
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
    if (!e || !by) return p->nequal ? quotient_of_number(p, a, b) : NULL;
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

/* The same of what an equality has in the place of x//m, the last one first: those before it know less. */
static const Expr *quotient_before(ExprPool *p, Expr *e, int64_t *k)
{
    for (int i = p->nequal - 1; i >= 0; i--) {
        const Equality *is = &p->equal[i];
        const Expr *more = is->lead->kind == EX_FLOORDIV && divides(is->lead) ? ex_sub(p, e, is->rest) : NULL;
        if (!ex_is_int(more)) continue;
        *k = more->i;
        return is->lead;
    }
    return NULL;
}

/* a // b of integers. */
static Expr *divided(ExprPool *p, Expr *a, Expr *b)
{
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
        if (!inner) inner = quotient_before(p, a, &more);
        if (inner && mul_i64(inner->args[1]->i, b->i, &prod) && mul_i64(inner->args[1]->i, more, &more))
            return ex_floordiv(p, ex_add(p, inner->args[0], ex_int(p, more)), ex_int(p, prod));
    }
    return atom(p, EX_FLOORDIV, a, b, false);
}

Expr *ex_floordiv(ExprPool *p, Expr *a, Expr *b)
{
    if (!a || !b) return NULL;
    if (a->is_float || b->is_float) return ex_make(p, EX_FLOOR, ex_make(p, EX_TRUEDIV, a, b, NULL), NULL, NULL);
    if (!(a = counted(p, a)) || !(b = counted(p, b))) return NULL;
    if (p->divides == DIVIDED) return atom(p, EX_FLOORDIV, a, b, false); /* n//2 == n - 1 leads back to itself */
    p->divides++;
    Expr *e = divided(p, a, b);
    p->divides--;
    return e;
}

Expr *ex_mod(ExprPool *p, Expr *a, Expr *b)
{
    if (!a || !b || !(a = counted(p, a)) || !(b = counted(p, b))) return NULL;
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
    Expr *e = atom(p, EX_MOD, a, b, a->is_float || b->is_float);
    int64_t lo, hi;
    ex_range(p, e, &lo, &hi);
    return lo == 0 && hi == 0 ? ex_int(p, 0) : e;
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

/* e without the sizes that all of its terms have, if these are not negative: of h*w - w it is h - 1. */
static Expr *without_shared(ExprPool *p, Expr *e)
{
    Poly s, q, *all[] = {&s, &q};
    int64_t lo = -1, hi;
    Term part;
    if (e->kind != EX_ADD || !polys_new(2, all)) return e;
    poly_of(e, &s);
    Term shared = s.term[0];
    for (int i = 1; i < s.n; i++) shared = common_term(&shared, &s.term[i]);
    shared.coef = 1;
    if (shared.n) ex_range(p, expr_of_term(p, &shared), &lo, &hi);
    for (int i = 0; lo >= 0 && i < s.n; i++)
        if (term_over(&s.term[i], &shared, &part)) poly_add(&q, &part);
    if (lo >= 0) e = expr_of_poly(p, &q);
    polys_free(2, all);
    return e;
}

static bool not_negative(ExprPool *p, Expr *e)
{
    int64_t lo, hi;
    ex_range(p, e, &lo, &hi);
    if (lo < 0) ex_range(p, without_shared(p, e), &lo, &hi);
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
bool expr_at_most(ExprPool *p, Expr *a, Expr *b, int depth)
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
    if (a->kind == EX_MIN && (expr_at_most(p, a->args[0], b, depth - 1) || expr_at_most(p, a->args[1], b, depth - 1)))
        return true;
    if (b->kind == EX_MAX && (expr_at_most(p, a, b->args[0], depth - 1) || expr_at_most(p, a, b->args[1], depth - 1)))
        return true;
    if (a->kind == EX_MAX && expr_at_most(p, a->args[0], b, depth - 1) && expr_at_most(p, a->args[1], b, depth - 1))
        return true;
    return b->kind == EX_MIN && expr_at_most(p, a, b->args[0], depth - 1) && expr_at_most(p, a, b->args[1], depth - 1);
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
        if (expr_at_most(p, a, b, 2)) return kind == EX_MAX ? b : a;
        if (expr_at_most(p, b, a, 2)) return kind == EX_MAX ? a : b;
    }
    return a->id < b->id ? atom(p, kind, a, b, is_float) : atom(p, kind, b, a, is_float);
}

Expr *ex_max(ExprPool *p, Expr *a, Expr *b) { return min_max(p, EX_MAX, a, b); }
Expr *ex_min(ExprPool *p, Expr *a, Expr *b) { return min_max(p, EX_MIN, a, b); }
