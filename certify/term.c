/* Sums of products, and numbers. Contract in term.h. */
#include "certify/atom.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "base/number.h"
#include "op/op.h"

static const uint64_t ODD = 0x9e3779b97f4a7c15u; /* what hashes are multiplied by */

static const struct {
    enum { HOLDS, ASSUMED } holds;
    const char *name, *says;
} laws[] = {
#define LAW(id, holds, name, says) {holds, name, says},
#include "certify/laws.def"
#undef LAW
};
const char *law_name(Law l) { return laws[l].name; }
const char *law_says(Law l) { return laws[l].says; }
bool law_is_assumed(Law l) { return laws[l].holds == ASSUMED; }
void term_by(Terms *t, Law l) { t->used |= 1u << l; }

bool terms_open(Terms *t)
{
    terms_close(t);
    t->nslots = 1u << 9;
    t->slot = mem_zeroed(t->nslots, sizeof *t->slot);
    t->arena = arena_create((size_t)1 << 30);
    t->used = 0;
    t->swaps = t->steps = t->nrows = t->x.asked = 0;
    t->cases = t->stuck = false;
    t->why[0] = 0;
    return t->slot && t->arena;
}

void terms_close(Terms *t)
{
    mem_free(t->slot);
    arena_destroy(t->arena);
    t->slot = NULL;
    t->arena = NULL;
    t->count = 0;
}

void *term_refuse(Terms *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!t->why[0]) text_vprintf(t->why, sizeof t->why, fmt, ap);
    va_end(ap);
    return NULL;
}

/* ------------------------------------------------------------------ one of each */

static size_t place(const Term *w, Term *const *slot, size_t nslots)
{
    uint64_t h = ((uint64_t)w->kind << 32) + (uint64_t)w->tag;
    for (int i = 0; i < w->n; i++)
        h = (h ^ h >> 32 ^ (uint64_t)w->part[i].t->id ^ (uint64_t)w->part[i].p << 20 ^ (uint64_t)w->part[i].q << 40) *
            ODD;
    for (int i = 0; i < w->nidx; i++) h = (h ^ h >> 32 ^ w->idx[i]->id) * ODD;
    for (size_t k = (h ^ h >> 32) & (nslots - 1);; k = (k + 1) & (nslots - 1)) {
        const Term *s = slot[k];
        if (!s || (s->kind == w->kind && s->tag == w->tag && s->n == w->n && s->nidx == w->nidx &&
                   s->truth == w->truth && (!w->n || !memcmp(s->part, w->part, (size_t)w->n * sizeof *w->part)) &&
                   (!w->nidx || !memcmp(s->idx, w->idx, (size_t)w->nidx * sizeof(Expr *)))))
            return k;
    }
}

static bool grow(Terms *t)
{
    size_t n = t->nslots * 2;
    Term **s = mem_zeroed(n, sizeof *s);
    for (size_t i = 0; s && i < t->nslots; i++)
        if (t->slot[i]) s[place(t->slot[i], s, n)] = t->slot[i];
    if (!s) return false;
    mem_free(t->slot);
    t->slot = s;
    t->nslots = n;
    return true;
}

Term *term_intern(Terms *t, Term want)
{
    for (int i = 0; i < want.n; i++)
        if (!want.part[i].t) return NULL;
    size_t k = place(&want, t->slot, t->nslots);
    if (++t->steps > MAX_STEPS) return term_refuse(t, "more than %d steps", MAX_STEPS);
    if (t->slot[k]) return t->slot[k];
    if (t->count == MAX_TERMS) return term_refuse(t, "more than %d terms", MAX_TERMS);
    Term *e = arena_new(t->arena, Term);
    Operand *part = arena_array(t->arena, Operand, want.n + 1);
    Expr **idx = arena_array(t->arena, Expr *, want.nidx + 1);
    if (!e || !part || !idx || ((size_t)t->count * 2 > t->nslots && !grow(t))) return term_refuse(t, "out of memory");
    *e = want;
    e->part = part;
    e->idx = idx;
    e->id = t->count++;
    int64_t class = e->kind == T_LEAF ? e->tag : e->kind == T_CALL ? -2 - e->tag : -1;
    e->infinite = e->kind == T_MASK || (class >= 0 && t->infinite && t->infinite[class]);
    for (int i = 0; i < e->n; i++) {
        e->part[i] = want.part[i];
        e->infinite |= e->part[i].t->infinite;
        e->symbols |= e->part[i].t->symbols;
        if (e->part[i].t->height > e->height) e->height = e->part[i].t->height;
    }
    for (int i = 0; i < e->nidx; i++) e->symbols |= (e->idx[i] = want.idx[i])->symbols;
    e->infinite &= !e->truth && e->kind != T_EXP;
    e->height += e->kind == T_SUM || e->kind == T_MAX || e->kind == T_ANY || e->kind == T_EACH;
    return t->slot[place(e, t->slot, t->nslots)] = e;
}

bool term_mentions(Terms *t, const Term *e, const Expr *var)
{
    if (!(e->symbols & var->symbols)) return false;
    if (++t->steps > MAX_STEPS) return true; /* whatever is made from now on is refused */
    for (int i = 0; i < e->nidx; i++)
        if (ex_mentions(e->idx[i], var)) return true;
    for (int i = 0; i < e->n; i++)
        if (term_mentions(t, e->part[i].t, var)) return true;
    return false;
}

/* ------------------------------------------------------------------ sums of products */

typedef struct Parts { /* in the order of ids, each once */
    int n;
    Operand part[MAX_PARTS];
} Parts;

static bool reduce(int64_t *p, int64_t *q)
{
    if (*q == 0 || *p == INT64_MIN || *q == INT64_MIN) return false;
    int64_t by = *q < 0 ? -gcd_i64(*p, *q) : gcd_i64(*p, *q);
    *p /= by;
    *q /= by;
    return true;
}

static bool times(int64_t p, int64_t q, int64_t r, int64_t s, int64_t *top, int64_t *bottom)
{
    return reduce(&p, &s) && reduce(&r, &q) && mul_i64(p, r, top) && mul_i64(q, s, bottom) && reduce(top, bottom);
}

static bool plus(int64_t p, int64_t q, int64_t r, int64_t s, int64_t *top, int64_t *bottom)
{
    int64_t x, y, both = gcd_i64(q, s);
    return mul_i64(p, s / both, &x) && mul_i64(r, q / both, &y) && add_i64(x, y, top) &&
           mul_i64(q / both, s, bottom) && reduce(top, bottom);
}

static int found(const Parts *s, const Term *part)
{
    int at = 0;
    while (at < s->n && s->part[at].t->id < part->id) at++;
    return at;
}

/* s + p / q part, or s part^(p / q) */
static bool put(Terms *t, Parts *s, Term *part, int64_t p, int64_t q)
{
    if (!part) return false;
    int at = found(s, part);
    Operand *own = &s->part[at];
    bool have = at < s->n && own->t == part;
    if (have && part->infinite && !t->selects && (own->p < 0) != (p < 0)) /* their difference is not 0 */
        return term_refuse(t, "infinities are subtracted");
    if (have && !plus(own->p, own->q, p, q, &own->p, &own->q)) return term_refuse(t, "a number beyond 64 bits");
    if (have && own->p == 0) memmove(own, own + 1, (size_t)(--s->n - at) * sizeof *own);
    if (have || p == 0) return true;
    if (s->n == MAX_PARTS) return term_refuse(t, "a sum or product of more than %d parts", MAX_PARTS);
    memmove(own + 1, own, (size_t)(s->n++ - at) * sizeof *own);
    *own = (Operand){part, p, q};
    return true;
}

static Term *made(Terms *t, TermKind kind, Parts *s)
{
    return term_intern(t, (Term){.kind = kind, .n = s->n, .part = s->part});
}

Term *term_number(Terms *t, int64_t p, int64_t q)
{
    Parts s;
    s.n = 0;
    Term *one = made(t, T_PRODUCT, &s);
    return one && reduce(&p, &q) && put(t, &s, one, p, q) ? made(t, T_POLY, &s) : NULL;
}

Term *term_alone(Terms *t, Term *product)
{
    return term_intern(t, (Term){.kind = T_POLY, .n = 1, .part = &(Operand){product, 1, 1}});
}

/* atom^(p / q) as a sum */
Term *term_raised(Terms *t, Term *atom, int64_t p, int64_t q)
{
    Operand f = {atom, p, q};
    Term *one = atom ? term_intern(t, (Term){.kind = T_PRODUCT, .n = p != 0, .part = &f}) : NULL;
    return one ? term_alone(t, one) : NULL;
}

Term *term_atom_of(Terms *t, Term want) { return term_raised(t, term_intern(t, want), 1, 1); }

/* The sum of n terms as an atom's operands. */
Term *term_atom(Terms *t, TermKind kind, int64_t tag, bool truth, int n, Term *const *arg)
{
    Operand part[MAX_PARTS];
    for (int i = 0; i < n; i++) {
        if (!arg[i] || n > MAX_PARTS) return NULL;
        part[i] = (Operand){arg[i], 1, 1};
    }
    return term_atom_of(t, (Term){.kind = kind, .tag = tag, .truth = truth, .n = n, .part = part});
}

Term *term_add(Terms *t, Term *a, Term *b)
{
    Parts s;
    s.n = 0;
    const Term *both[] = {a, b};
    for (int k = 0; k < 2; k++)
        for (int i = 0; both[k] && i < both[k]->n; i++)
            if (!put(t, &s, both[k]->part[i].t, both[k]->part[i].p, both[k]->part[i].q)) return NULL;
    return a && b ? made(t, T_POLY, &s) : NULL;
}

Term *term_scale(Terms *t, Term *a, int64_t p, int64_t q) { return term_mul(t, a, term_number(t, p, q)); }

bool term_is_number(const Term *a) { return a->n == 0 || (a->n == 1 && a->part[0].t->n == 0); }

const Operand *term_factor(const Term *v)
{
    return v->n == 1 && v->part[0].p == v->part[0].q && v->part[0].t->n == 1 ? v->part[0].t->part : NULL;
}

/* The product of two products and p / q; primes in whole powers go into the number, truth values are their powers. */
static bool multiply(Terms *t, const Term *a, const Term *b, int64_t p, int64_t q, Parts *out)
{
    Parts s;
    s.n = 0;
    for (int i = 0; i < a->n; i++) s.part[s.n++] = a->part[i];
    for (int i = 0; i < b->n; i++) {
        const Operand *f = &b->part[i];
        int at = found(&s, f->t);
        if (at < s.n && s.part[at].t == f->t) term_by(t, f->t->truth ? LAW_TRUTH : LAW_POWER);
        if (f->t->truth && at < s.n && s.part[at].t == f->t) continue;
        if (!put(t, &s, f->t, f->p, f->q)) return false;
    }
    for (int i = 0; i < s.n; i++) {
        Operand *f = &s.part[i];
        if (f->t->kind != T_ROOT) continue;
        for (; f->p < 0 || f->p >= f->q; f->p += f->p < 0 ? f->q : -f->q)
            if (!times(p, q, f->p < 0 ? 1 : f->t->tag, f->p < 0 ? f->t->tag : 1, &p, &q))
                return term_refuse(t, "a number beyond 64 bits");
        if (f->p == 0) memmove(f, f + 1, (size_t)(--s.n - i--) * sizeof *f);
    }
    return put(t, out, made(t, T_PRODUCT, &s), p, q);
}

Term *term_mul(Terms *t, Term *a, Term *b)
{
    Parts s;
    s.n = 0;
    if (!a || !b) return NULL;
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            const Operand *x = &a->part[i], *y = &b->part[j];
            int64_t p, q;
            if (!times(x->p, x->q, y->p, y->q, &p, &q)) return term_refuse(t, "a number beyond 64 bits");
            if (!multiply(t, x->t, y->t, p, q, &s)) return NULL;
        }
    return made(t, T_POLY, &s);
}

/* p / q to the power 1 / k */
static Term *root_of(Terms *t, int64_t p, int64_t q, int k)
{
    Term *r = term_number(t, 1, q);
    int64_t n = p;
    for (int i = 1; i < k; i++)
        if (!mul_i64(n, q, &n) || n > (int64_t)1 << 40) return term_refuse(t, "the root of a large number");
    for (int64_t f = 2; n > 1 && r; f++) {
        if (f * f > n) f = n;
        for (; n % f == 0 && r; n /= f)
            r = term_mul(t, r, term_raised(t, term_intern(t, (Term){.kind = T_ROOT, .tag = f}), 1, k));
    }
    return r;
}

/* 1 / (c x y ...), factor by factor; where a truth value is 0 there is no quotient. */
static Term *inverse(Terms *t, const Operand *product)
{
    Term *r = term_number(t, product->q, product->p);
    for (int i = 0; i < product->t->n && r; i++) {
        const Operand *f = &product->t->part[i];
        if (!f->t->truth) term_by(t, LAW_POWER);
        r = term_mul(t, r, term_raised(t, f->t, f->t->truth ? 1 : -f->p, f->q));
    }
    return r;
}

/* An exponential that all products of a sum have; NULL: none. */
static const Operand *common(const Term *a)
{
    for (int k = 0; a->n > 1 && k < a->part[0].t->n; k++) {
        const Operand *f = &a->part[0].t->part[k];
        bool all = f->t->kind == T_EXP;
        for (int i = 1; i < a->n && all; i++) {
            const Term *b = a->part[i].t;
            int at = 0;
            while (at < b->n && b->part[at].t != f->t) at++;
            all = at < b->n && b->part[at].p == f->p && b->part[at].q == f->q;
        }
        if (all) return f;
    }
    return NULL;
}

/* The root of a number and roots; NULL: it is another product. */
static Term *root_of_roots(Terms *t, const Operand *product)
{
    for (int i = 0; i < product->t->n; i++)
        if (product->t->part[i].t->kind != T_ROOT) return NULL;
    Term *r = product->p > 0 ? root_of(t, product->p, product->q, 2) : NULL;
    for (int i = 0; r && i < product->t->n; i++) {
        const Operand *f = &product->t->part[i];
        r = term_mul(t, r, term_raised(t, f->t, f->p, 2 * f->q));
    }
    return r;
}

Term *term_power(Terms *t, Term *a, int64_t halves)
{
    if (!a || halves == 2) return a;
    if (halves == 0) return term_number(t, 1, 1);
    if (halves > 0 && halves % 2 == 0 && halves <= 16) return term_mul(t, a, term_power(t, a, halves - 2));
    if (a->n == 0) return term_refuse(t, "a power of zero");
    if (halves == -2 && a->n == 1) return inverse(t, &a->part[0]);
    if (halves > 1 || halves < -2) return term_refuse(t, "a power of %lld/2", (long long)halves);
    Term *roots = a->n == 1 && a->part[0].t->n ? root_of_roots(t, &a->part[0]) : NULL;
    if (roots) return halves == 1 ? roots : term_power(t, roots, -2);
    const Operand *f = common(a);
    int64_t times;
    if (f && f->q == 1 && mul_i64(f->p, halves, &times)) {
        term_by(t, LAW_COMMON);
        Term *rest = term_mul(t, a, term_raised(t, f->t, -f->p, 1));
        bool whole = times % 2 == 0;
        return term_mul(t, term_raised(t, f->t, whole ? times / 2 : times, whole ? 1 : 2), term_power(t, rest, halves));
    }
    int64_t p = a->part[0].p, q = a->part[0].q;
    if (p <= 0 || (!term_is_number(a) && p == q)) /* else the first number in front */
        return term_raised(t, term_intern(t, (Term){.kind = T_GROUP, .n = 1, .part = &(Operand){a, 1, 1}}), halves, 2);
    Term *c = halves == -2 ? term_number(t, q, p) : root_of(t, p, q, 2);
    if (c && halves == -1) c = term_power(t, c, -2);
    if (c && term_is_number(a)) return c;
    term_by(t, LAW_GROUP);
    return term_mul(t, c, term_power(t, term_scale(t, a, q, p), halves));
}

/* ------------------------------------------------------------------ numbers */

static bool in_single(const Terms *t) { return (t->single && !t->wide) || t->narrow; }
static double held(const Terms *t, double v) { return in_single(t) ? (double)(float)v : v; }

/* Of the continued fraction of v, the first that is below `near` away from it and, but for squares, held as v is. */
static bool small_fraction(const Terms *t, double v, int64_t most, double near, int64_t *p, int64_t *q)
{
    double x = fabs(v);
    int64_t h0 = 0, h1 = 1, k0 = 1, k1 = 0;
    for (int i = 0; i < 40 && x < 1e15; i++) {
        int64_t whole = (int64_t)x, h, k;
        if (!mul_i64(whole, h1, &h) || !add_i64(h, h0, &h) || !mul_i64(whole, k1, &k) || !add_i64(k, k0, &k)) break;
        if (k > most || h > ((int64_t)1 << 40)) break;
        h0 = h1, h1 = h, k0 = k1, k1 = k;
        *p = v < 0 ? -h1 : h1;
        *q = k1;
        double is = (double)h1 / (double)k1;
        if (near > 0 ? fabs(is - fabs(v)) <= near * fabs(v) : held(t, is) == fabs(v)) return true;
        x = 1 / (x - (double)whole);
    }
    return false;
}

/* 2 or 4 where v is that root of a small fraction, as sizes of heads have them in scales; 0 otherwise. */
static int root_degree(const Terms *t, double v, double near, int64_t *p, int64_t *q)
{
    bool single = in_single(t);
    for (int k = 2; k <= 4; k += 2) {
        int64_t most = k == 2 && !single ? 1 << 16 : 4096; /* 0.42 / sqrt(8) is the root of 441/20000 */
        if (!small_fraction(t, k == 2 ? v * v : v * v * v * v, most, near, p, q)) continue;
        double up = sqrt((double)*p / (double)*q), down = sqrt((double)*q / (double)*p);
        if (single && *p * *q > 4096) continue;
        if (k == 4) up = sqrt(up), down = sqrt(down);
        if (single ? held(t, up) == fabs(v) || held(t, 1 / down) == fabs(v) : fabs(up - fabs(v)) <= 0x1p-51 * up)
            return k;
    }
    return 0;
}

/* The decimal of the fewest digits, and less than most of them as a number, that is held as v; false: none. */
static bool short_decimal(const Terms *t, double v, double most, int64_t *p, int64_t *q)
{
    *q = 1;
    for (int k = 0; k < 16; k++, *q *= 10) {
        double scaled = nearbyint(v * (double)*q);
        if (fabs(scaled) < 1 || fabs(scaled) >= most || held(t, scaled / (double)*q) != v) continue;
        *p = (int64_t)scaled;
        return true;
    }
    return false;
}

/* The float32 whose exponential v is, as learned temperatures have it; 0: none. */
static double logarithm(double v)
{
    double x = v > 0 ? (double)(float)log(v) : 0;
    return fabs(exp(x) - v) <= 0x1p-52 * v ? x : 0;
}

Term *term_double(Terms *t, double number)
{
    bool single = in_single(t);
    double v = held(t, number), near = single ? 0x1p-22 : 0x1p-49;
    int64_t p, q, bits, most = single ? 64 : 4096;
    if (isinf(v)) return term_scale(t, term_mask(t, term_number(t, 0, 1)), v < 0 ? 1 : -1, 1);
    if (isnan(v)) return term_refuse(t, "a constant that is not a number");
    if (v == floor(v) && fabs(v) < 0x1p52) return term_number(t, (int64_t)v, 1);
    bool fraction = small_fraction(t, v, most, 0, &p, &q);
    if (fraction && !(q & (q - 1))) return term_number(t, p, q);
    if (single) term_by(t, LAW_SINGLE);
    if (fraction) term_by(t, LAW_FRACTION);
    if (fraction) return term_number(t, p, q);
    int degree = root_degree(t, v, near, &p, &q);
    if (degree) term_by(t, LAW_ROOT);
    if (degree) return term_scale(t, root_of(t, p, q, degree), v < 0 ? -1 : 1, 1);
    for (int k = 0; k < 7; k++) { /* of a scale that was divided by a power of two, a digit less: 5.4730064863875 / 4 */
        double digits = single ? 1e6 : 1e15;
        if (!short_decimal(t, ldexp(v, k), k ? digits / 10 : digits, &p, &q)) continue;
        term_by(t, LAW_FRACTION);
        return term_scale(t, term_number(t, p, q), 1, (int64_t)1 << k);
    }
    double x = single ? 0 : logarithm(v);
    if (x) term_by(t, LAW_EXPONENTIAL);
    if (x) return term_exp(t, term_double(t, x));
    if (v == held(t, log(2))) return term_power(t, term_double(t, 1 / log(2)), -2);
    if (v == held(t, 1 / log(2))) term_by(t, LAW_BASE);
    memcpy(&bits, &v, sizeof bits);
    return term_atom_of(t, (Term){.kind = T_CONSTANT, .tag = bits});
}

Term *term_index(Terms *t, Expr *e)
{
    if (!e || e->is_float || e->is_bool) return term_refuse(t, "a size that is not an integer");
    if (e->kind == EX_INT) return term_number(t, e->i, 1);
    if (e->kind != EX_ADD && e->kind != EX_MUL) return term_atom_of(t, (Term){.kind = T_INDEX, .nidx = 1, .idx = &e});
    Term *r = term_number(t, e->kind == EX_MUL, 1);
    for (int i = 0; i < e->nargs && r; i++)
        r = (e->kind == EX_MUL ? term_mul : term_add)(t, r, term_index(t, e->args[i]));
    return r;
}

Expr *term_integer(Terms *t, const Term *v)
{
    Expr *e = ex_int(t->x.p, 0);
    for (int i = 0; v && i < v->n; i++) {
        Expr *part = ex_int(t->x.p, v->part[i].p);
        if (v->part[i].q != 1) return NULL;
        for (int k = 0; k < v->part[i].t->n; k++) {
            const Operand *f = &v->part[i].t->part[k];
            if (f->t->kind != T_INDEX || f->p < 0 || f->q != 1) return NULL;
            for (int64_t m = 0; m < f->p; m++) part = ex_mul(t->x.p, part, f->t->idx[0]);
        }
        e = ex_add(t->x.p, e, part);
    }
    return v ? e : NULL;
}
