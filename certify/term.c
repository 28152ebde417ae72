/* Contract in term.h. */
#include "certify/term.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/map.h"
#include "base/mem.h"
#include "base/number.h"

enum { MAX_ARGS = 128, MAX_POWER = 64 };

static const struct {
    const char *name, *says;
} laws[] = {
#define LAW(id, name, says) {name, says},
#include "certify/laws.def"
#undef LAW
};
const char *law_name(Law l) { return laws[l].name; }
const char *law_says(Law l) { return laws[l].says; }

bool terms_open(Terms *t)
{
    terms_close(t);
    t->nslots = 1u << 12;
    t->slot = mem_zeroed(t->nslots, sizeof *t->slot);
    t->arena = arena_create((size_t)1 << 30);
    t->used = 0;
    t->allowed = ~0u;
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

Term *term_refuse(Terms *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!t->why[0]) text_vprintf(t->why, sizeof t->why, fmt, ap);
    va_end(ap);
    return NULL;
}

bool term_law(Terms *t, Law l)
{
    t->used |= 1u << l;
    if (t->allowed & 1u << l) return true;
    term_refuse(t, "it takes the law '%s', which is not among its steps", law_name(l));
    return false;
}

/* ------------------------------------------------------------------ one of each */

static uint64_t hash_of(const Term *w)
{
    uint64_t h = (uint64_t)w->kind * 0x9e3779b97f4a7c15u + (uint64_t)w->tag;
    for (int i = 0; i < w->n; i++) {
        if (w->arg) h = (h ^ (uint64_t)(w->arg[i]->id + 1)) * 0x100000001b3u;
        if (w->a) h = (h ^ (uint64_t)w->a[i]) * 0x100000001b3u;
        if (w->b) h = (h ^ (uint64_t)w->b[i]) * 0x100000001b3u;
    }
    for (int i = 0; i < w->nidx; i++) h = (h ^ (w->idx[i]->id + 77u)) * 0x100000001b3u;
    return h ^ h >> 29;
}

static bool same(const Term *a, const Term *b)
{
    if (a->kind != b->kind || a->tag != b->tag || a->n != b->n || a->nidx != b->nidx || a->truth != b->truth)
        return false;
    for (int i = 0; i < a->n; i++)
        if ((a->arg && a->arg[i] != b->arg[i]) || (a->a && a->a[i] != b->a[i]) || (a->b && a->b[i] != b->b[i]))
            return false;
    for (int i = 0; i < a->nidx; i++)
        if (a->idx[i] != b->idx[i]) return false;
    return true;
}

static bool grow(Terms *t)
{
    size_t n = t->nslots * 2;
    Term **s = mem_zeroed(n, sizeof *s);
    if (!s) return false;
    for (size_t i = 0; i < t->nslots; i++) {
        if (!t->slot[i]) continue;
        size_t k = hash_of(t->slot[i]) & (n - 1);
        while (s[k]) k = (k + 1) & (n - 1);
        s[k] = t->slot[i];
    }
    mem_free(t->slot);
    t->slot = s;
    t->nslots = n;
    return true;
}

static void *copy_of(Terms *t, const void *list, int n, size_t size)
{
    void *copy = list && n ? arena_alloc(t->arena, (size_t)n, size) : NULL;
    if (copy) memcpy(copy, list, (size_t)n * size);
    return copy;
}

static Term *intern(Terms *t, const Term *want)
{
    size_t k = hash_of(want) & (t->nslots - 1);
    for (; t->slot[k]; k = (k + 1) & (t->nslots - 1))
        if (same(t->slot[k], want)) return t->slot[k];
    Term *e = arena_new(t->arena, Term);
    if (!e || ((size_t)t->count * 2 > t->nslots && !grow(t))) return term_refuse(t, "out of memory");
    *e = *want;
    e->arg = copy_of(t, want->arg, want->n, sizeof *e->arg);
    e->a = copy_of(t, want->a, want->n, sizeof *e->a);
    e->b = copy_of(t, want->b, want->n, sizeof *e->b);
    e->idx = copy_of(t, want->idx, want->nidx, sizeof *e->idx);
    for (int i = 0; i < e->n && e->arg; i++) {
        e->symbols |= e->arg[i]->symbols;
        if (e->arg[i]->height > e->height) e->height = e->arg[i]->height;
    }
    for (int i = 0; i < e->nidx; i++) e->symbols |= e->idx[i]->symbols;
    if (e->kind == T_SUM || e->kind == T_MAX) e->height++;
    e->id = t->count++;
    for (k = hash_of(want) & (t->nslots - 1); t->slot[k];) k = (k + 1) & (t->nslots - 1);
    return t->slot[k] = e;
}

static bool mentions(const Term *e, const Expr *var)
{
    if (!(e->symbols & var->symbols)) return false;
    for (int i = 0; i < e->nidx; i++)
        if (ex_mentions(e->idx[i], var)) return true;
    for (int i = 0; i < e->n && e->arg; i++)
        if (mentions(e->arg[i], var)) return true;
    return false;
}

/* ------------------------------------------------------------------ sums of products */

typedef struct Sum {
    int n;
    Term *arg[MAX_ARGS];
    int64_t p[MAX_ARGS], q[MAX_ARGS];
} Sum;

static bool reduce(int64_t *p, int64_t *q)
{
    int64_t a = *p, b = *q;
    if (b == 0 || a == INT64_MIN || b == INT64_MIN) return false;
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    if (a < 0) a = -a;
    if (*q < 0) a = -a;
    *p /= a;
    *q /= a;
    return true;
}

static bool times(int64_t p, int64_t q, int64_t r, int64_t s, int64_t *top, int64_t *bottom)
{
    return reduce(&p, &s) && reduce(&r, &q) && mul_i64(p, r, top) && mul_i64(q, s, bottom) && reduce(top, bottom);
}

static bool put(Terms *t, Sum *s, Term *product, int64_t p, int64_t q)
{
    int at = 0;
    while (at < s->n && s->arg[at]->id < product->id) at++;
    if (at < s->n && s->arg[at] == product) {
        int64_t x, y, top, bottom;
        if (!mul_i64(s->p[at], q, &x) || !mul_i64(p, s->q[at], &y) || !add_i64(x, y, &top) ||
            !mul_i64(s->q[at], q, &bottom) || !reduce(&top, &bottom))
            return term_refuse(t, "a number beyond 64 bits") != NULL;
        s->p[at] = top;
        s->q[at] = bottom;
        if (top) return true;
        s->n--;
        for (int i = at; i < s->n; i++) s->arg[i] = s->arg[i + 1], s->p[i] = s->p[i + 1], s->q[i] = s->q[i + 1];
        return true;
    }
    if (p == 0) return true;
    if (s->n == MAX_ARGS) return term_refuse(t, "a sum of more than %d terms", MAX_ARGS) != NULL;
    for (int i = s->n++; i > at; i--) s->arg[i] = s->arg[i - 1], s->p[i] = s->p[i - 1], s->q[i] = s->q[i - 1];
    s->arg[at] = product;
    s->p[at] = p;
    s->q[at] = q;
    return true;
}

static Term *sum_of(Terms *t, const Sum *s)
{
    return intern(t, &(Term){.kind = T_POLY, .n = s->n, .arg = (Term **)s->arg, .a = (int64_t *)s->p,
                             .b = (int64_t *)s->q});
}

static Term *product_of(Terms *t, int n, Term **atom, int64_t *halves)
{
    return intern(t, &(Term){.kind = T_PRODUCT, .n = n, .arg = atom, .a = halves});
}

Term *term_number(Terms *t, int64_t p, int64_t q)
{
    Sum s = {.n = 0};
    Term *one = product_of(t, 0, NULL, NULL);
    return one && reduce(&p, &q) && put(t, &s, one, p, q) ? sum_of(t, &s) : NULL;
}

/* c atom^(halves / 2) as a sum */
static Term *atom_power(Terms *t, Term *atom, int64_t halves)
{
    Sum s = {.n = 0};
    Term *one = atom ? product_of(t, 1, &atom, &halves) : NULL;
    return one && put(t, &s, one, 1, 1) ? sum_of(t, &s) : NULL;
}

Term *term_add(Terms *t, Term *a, Term *b)
{
    Sum s = {.n = 0};
    if (!a || !b) return NULL;
    for (int i = 0; i < a->n; i++)
        if (!put(t, &s, a->arg[i], a->a[i], a->b[i])) return NULL;
    for (int i = 0; i < b->n; i++)
        if (!put(t, &s, b->arg[i], b->a[i], b->b[i])) return NULL;
    return sum_of(t, &s);
}

Term *term_scale(Terms *t, Term *a, int64_t p, int64_t q) { return term_mul(t, a, term_number(t, p, q)); }

/* The product of two products and p/q; primes in whole powers go into the number. */
static bool multiply(Terms *t, const Term *a, const Term *b, int64_t p, int64_t q, Sum *out)
{
    Term *atom[MAX_POWER];
    int64_t halves[MAX_POWER];
    int n = 0;
    for (int i = 0, j = 0; i < a->n || j < b->n;) {
        if (n == MAX_POWER) return term_refuse(t, "a product of more than %d factors", MAX_POWER) != NULL;
        bool both = i < a->n && j < b->n && a->arg[i] == b->arg[j];
        bool first = both || j == b->n || (i < a->n && a->arg[i]->id < b->arg[j]->id);
        atom[n] = first ? a->arg[i] : b->arg[j];
        halves[n] = both ? a->a[i] + b->a[j] : first ? a->a[i] : b->a[j];
        i += first;
        j += both || !first;
        if (both && !term_law(t, atom[n]->truth ? LAW_TRUTH : LAW_POWER)) return false;
        if (atom[n]->truth && halves[n] > 2) halves[n] = 2;
        while (atom[n]->kind == T_ROOT && (halves[n] > 1 || halves[n] < 0)) {
            bool up = halves[n] > 1;
            if (!times(p, q, up ? atom[n]->a[0] : 1, up ? 1 : atom[n]->a[0], &p, &q))
                return term_refuse(t, "a number beyond 64 bits") != NULL;
            halves[n] += up ? -2 : 2;
        }
        n += halves[n] != 0;
    }
    Term *one = product_of(t, n, atom, halves);
    return one && put(t, out, one, p, q);
}

Term *term_mul(Terms *t, Term *a, Term *b)
{
    Sum s = {.n = 0};
    if (!a || !b) return NULL;
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            int64_t p, q;
            if (!times(a->a[i], a->b[i], b->a[j], b->b[j], &p, &q)) return term_refuse(t, "a number beyond 64 bits");
            if (!multiply(t, a->arg[i], b->arg[j], p, q, &s)) return NULL;
        }
    return sum_of(t, &s);
}

static Term *group_power(Terms *t, Term *a, int64_t halves)
{
    return a ? atom_power(t, intern(t, &(Term){.kind = T_GROUP, .n = 1, .arg = &a}), halves) : NULL;
}

/* p / q to the power of a half */
static Term *root_of(Terms *t, int64_t p, int64_t q)
{
    Term *r = term_number(t, 1, q);
    int64_t n;
    if (!mul_i64(p, q, &n) || n > (int64_t)1 << 40) return NULL;
    for (int64_t f = 2; n > 1 && r; f++) {
        if (f * f > n) f = n;
        for (; n % f == 0 && r; n /= f)
            r = term_mul(t, r, atom_power(t, intern(t, &(Term){.kind = T_ROOT, .n = 1, .a = &f}), 1));
    }
    return r;
}

Term *term_power(Terms *t, Term *a, int64_t halves)
{
    if (!a || halves == 2) return a;
    if (halves == 0) return term_number(t, 1, 1);
    if (halves > 0 && halves % 2 == 0 && halves <= 16) return term_mul(t, a, term_power(t, a, halves - 2));
    if (a->n == 0) return term_refuse(t, "a power of zero");
    if (halves % 2 == 0 && a->n == 1) { /* of one product: the power of each factor */
        Term *r = halves < 0 ? term_number(t, a->b[0], a->a[0]) : NULL;
        if (!r || halves != -2) return term_refuse(t, "a power of %lld", (long long)(halves / 2));
        for (int i = 0; i < a->arg[0]->n && r; i++) {
            if (a->arg[0]->arg[i]->truth) { /* where it is 0 there is no quotient */
                r = term_mul(t, r, atom_power(t, a->arg[0]->arg[i], 2));
                continue;
            }
            r = term_law(t, LAW_POWER) ? term_mul(t, r, atom_power(t, a->arg[0]->arg[i], -a->arg[0]->a[i])) : NULL;
        }
        return r;
    }
    if (halves < -2 && halves % 2) { /* x^(-3/2) = x^-1 x^-1/2 */
        return term_law(t, LAW_POWER) ? term_mul(t, term_power(t, a, halves + 2), term_power(t, a, -2)) : NULL;
    }
    if (halves != -2 && halves != -1 && halves != 1) return term_refuse(t, "a power of %lld/2", (long long)halves);
    bool number = a->n == 1 && a->arg[0]->n == 0;
    if (a->a[0] > 0 && (number || a->a[0] != 1 || a->b[0] != 1)) { /* the first number in front */
        Term *c = halves == -2 ? term_number(t, a->b[0], a->a[0]) : root_of(t, a->a[0], a->b[0]);
        if (c && halves == -1) c = term_power(t, c, -2);
        if (c && number) return c;
        if (c)
            return term_law(t, LAW_GROUP)
                       ? term_mul(t, c, group_power(t, term_scale(t, a, a->b[0], a->a[0]), halves))
                       : NULL;
    }
    return group_power(t, a, halves);
}

/* ------------------------------------------------------------------ numbers */

static bool small_fraction(double v, int64_t most, double within, int64_t *p, int64_t *q)
{
    double x = fabs(v);
    int64_t h0 = 0, h1 = 1, k0 = 1, k1 = 0;
    for (int i = 0; i < 40 && x < 1e15; i++) { /* continued fractions */
        int64_t whole = (int64_t)x, h, k;
        if (!mul_i64(whole, h1, &h) || !add_i64(h, h0, &h) || !mul_i64(whole, k1, &k) || !add_i64(k, k0, &k)) break;
        if (k > most || h > ((int64_t)1 << 40)) break;
        h0 = h1, h1 = h, k0 = k1, k1 = k;
        if (fabs((double)h1 / (double)k1 - fabs(v)) <= within * fabs(v)) {
            *p = v < 0 ? -h1 : h1;
            *q = k1;
            return true;
        }
        x = 1 / (x - (double)whole);
    }
    return false;
}

Term *term_mask(Terms *t, Term *truth)
{
    return truth ? atom_power(t, intern(t, &(Term){.kind = T_MASK, .n = 1, .arg = &truth}), 2) : NULL;
}

Term *term_double(Terms *t, double v)
{
    int64_t p, q;
    if (v == -INFINITY) return term_mask(t, term_number(t, 0, 1));
    if (!isfinite(v)) return term_refuse(t, "a constant that is not finite");
    if (v == floor(v) && fabs(v) < 0x1p52) return term_number(t, (int64_t)v, 1);
    if (small_fraction(v, 4096, 0, &p, &q)) {
        bool power = (q & (q - 1)) == 0;
        return power || term_law(t, LAW_FRACTION) ? term_number(t, p, q) : NULL;
    }
    if (small_fraction(v * v, 4096, 0x1p-51, &p, &q) &&
        (sqrt((double)p / (double)q) == fabs(v) || 1 / sqrt((double)q / (double)p) == fabs(v))) {
        Term *r = term_law(t, LAW_ROOT) ? root_of(t, p, q) : NULL;
        return v < 0 ? term_scale(t, r, -1, 1) : r;
    }
    int64_t ten = 1;
    for (int k = 0; k < 16; k++, ten *= 10) {
        double scaled = nearbyint(v * (double)ten);
        if (fabs(scaled) >= 1 && fabs(scaled) < 1e15 && scaled / (double)ten == v)
            return term_law(t, LAW_FRACTION) ? term_number(t, (int64_t)scaled, ten) : NULL;
    }
    int64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return atom_power(t, intern(t, &(Term){.kind = T_CONSTANT, .n = 1, .a = &bits}), 2);
}

Term *term_index(Terms *t, Expr *e)
{
    if (!e || e->is_float || e->is_bool) return term_refuse(t, "a size that is not an integer");
    if (e->kind == EX_INT) return term_number(t, e->i, 1);
    if (e->kind != EX_ADD && e->kind != EX_MUL)
        return atom_power(t, intern(t, &(Term){.kind = T_INDEX, .nidx = 1, .idx = &e}), 2);
    Term *r = term_number(t, e->kind == EX_MUL, 1);
    for (int i = 0; i < e->nargs && r; i++) {
        Term *part = term_index(t, e->args[i]);
        r = e->kind == EX_MUL ? term_mul(t, r, part) : term_add(t, r, part);
    }
    return r;
}

Expr *term_integer(Terms *t, const Term *v)
{
    Expr *e = ex_int(t->x.p, 0);
    for (int i = 0; v && i < v->n; i++) {
        Expr *part = ex_int(t->x.p, v->a[i]);
        if (v->b[i] != 1) return NULL;
        for (int k = 0; k < v->arg[i]->n; k++) {
            const Term *f = v->arg[i]->arg[k];
            if (f->kind != T_INDEX || v->arg[i]->a[k] < 0 || v->arg[i]->a[k] % 2) return NULL;
            for (int64_t m = 0; m < v->arg[i]->a[k] / 2; m++) part = ex_mul(t->x.p, part, f->idx[0]);
        }
        e = ex_add(t->x.p, e, part);
    }
    return v ? e : NULL;
}

/* ------------------------------------------------------------------ atoms */

Term *term_leaf(Terms *t, int tag, bool truth, int n, Expr *const *idx)
{
    for (int i = 0; i < n; i++)
        if (!idx[i]) return term_refuse(t, "an index beyond 64 bits");
    return atom_power(
        t, intern(t, &(Term){.kind = T_LEAF, .tag = tag, .truth = truth, .nidx = n, .idx = (Expr **)idx}), 2);
}

Term *term_call(Terms *t, int tag, bool truth, int n, Term *const *arg)
{
    for (int i = 0; i < n; i++)
        if (!arg[i]) return NULL;
    return atom_power(t, intern(t, &(Term){.kind = T_CALL, .tag = tag, .truth = truth, .n = n, .arg = (Term **)arg}),
                      2);
}

Term *term_test(Terms *t, Expr *e)
{
    if (!e) return term_refuse(t, "an index beyond 64 bits");
    Expr *other = ex_sub(t->x.p, ex_int(t->x.p, -1), e);
    bool always = ix_nonneg(&t->x, e), never = !always && ix_nonneg(&t->x, other);
    if (always || never) return term_law(t, LAW_TEST) ? term_number(t, always, 1) : NULL;
    if (other && other->id < e->id)
        return term_add(t, term_number(t, 1, 1), term_scale(t, term_test(t, other), -1, 1));
    return atom_power(t, intern(t, &(Term){.kind = T_TEST, .truth = true, .nidx = 1, .idx = &e}), 2);
}

/* A single number that a mask may put in the place of scores; minus infinity, too. */
static bool fills(const Term *v, double *c)
{
    *c = 0;
    if (v->n != 1 || v->arg[0]->n > 1) return false;
    const Term *atom = v->arg[0]->n ? v->arg[0]->arg[0] : NULL;
    if (atom && atom->kind == T_MASK && atom->arg[0]->n == 0) *c = -INFINITY;
    else if (atom && (atom->kind != T_CONSTANT || v->arg[0]->a[0] != 2)) return false;
    else {
        *c = 1;
        if (atom) memcpy(c, atom->a, sizeof *c);
        *c *= (double)v->a[0] / (double)v->b[0];
    }
    return *c <= -0x1p20;
}

/* truth is 0 or 1. */
Term *term_where(Terms *t, Term *truth, Term *a, Term *b)
{
    double left, right;
    if (!truth || !a || !b) return NULL;
    Term *no = term_add(t, term_number(t, 1, 1), term_scale(t, truth, -1, 1));
    bool low = fills(a, &left), other = fills(b, &right);
    if (!no) return NULL;
    if (low != other && isinf(low ? left : right))
        return term_law(t, LAW_DISTRIBUTES) ? term_add(t, low ? b : a, term_mask(t, low ? no : truth)) : NULL;
    if (low != other) {
        Term *arg[] = {low ? no : truth, low ? b : a, low ? a : b};
        return atom_power(t, intern(t, &(Term){.kind = T_FILLED, .n = 3, .arg = arg}), 2);
    }
    return term_law(t, LAW_WHERE) ? term_add(t, term_mul(t, truth, a), term_mul(t, no, b)) : NULL;
}

/* exp(p / q times a product) */
static Term *exp_of(Terms *t, Term *product, int64_t p, int64_t q)
{
    for (int i = 0; i < product->n; i++) {
        const Term *m = product->arg[i];
        double c;
        if (m->kind != T_MASK && m->kind != T_FILLED) continue;
        if (product->n > 1 || p < 0 || product->a[i] != 2) return term_refuse(t, "a mask is multiplied");
        if (m->kind == T_MASK) return term_law(t, LAW_MASK) ? m->arg[0] : NULL;
        if (!fills(m->arg[2], &c) || c * (double)p / (double)q > -0x1p20) return term_refuse(t, "a mask is scaled");
        return term_law(t, LAW_FILL) ? term_mul(t, m->arg[0], term_exp(t, term_scale(t, m->arg[1], p, q))) : NULL;
    }
    Sum s = {.n = 0};
    Term *inner = put(t, &s, product, 1, q) ? sum_of(t, &s) : NULL;
    return inner ? atom_power(t, intern(t, &(Term){.kind = T_EXP, .n = 1, .arg = &inner}), 2 * p) : NULL;
}

Term *term_exp(Terms *t, Term *a)
{
    Term *r = a ? term_number(t, 1, 1) : NULL;
    if (a && a->n > 1 && !term_law(t, LAW_EXP)) return NULL;
    for (int i = 0; r && i < a->n; i++) r = term_mul(t, r, exp_of(t, a->arg[i], a->a[i], a->b[i]));
    return r;
}

/* ------------------------------------------------------------------ sums over an index */

static Term *subst(Terms *t, Term *e, const Expr *var, Expr *by);

static Term *subst_atom(Terms *t, Term *e, const Expr *var, Expr *by)
{
    Term *arg[MAX_POWER];
    Expr *idx[16];
    if (e->n > MAX_POWER || e->nidx > 16) return term_refuse(t, "too many operands");
    for (int i = 0; i < e->n && e->arg; i++)
        if (!(arg[i] = subst(t, e->arg[i], var, by))) return NULL;
    for (int i = 0; i < e->nidx; i++)
        if (!(idx[i] = ix_subst(&t->x, e->idx[i], var, by))) return term_refuse(t, "an index beyond 64 bits");
    if (e->kind == T_INDEX) return term_index(t, idx[0]);
    if (e->kind == T_TEST) return term_test(t, idx[0]);
    if (e->kind == T_EXP) return term_exp(t, arg[0]);
    Term copy = *e;
    copy.arg = e->arg ? arg : NULL;
    copy.idx = e->nidx ? idx : NULL;
    copy.symbols = 0;
    copy.height = 0;
    return atom_power(t, intern(t, &copy), 2);
}

static Term *subst(Terms *t, Term *e, const Expr *var, Expr *by)
{
    if (!mentions(e, var)) return e;
    Term *r = term_number(t, 0, 1);
    for (int i = 0; r && i < e->n; i++) {
        Term *product = term_number(t, e->a[i], e->b[i]);
        for (int k = 0; product && k < e->arg[i]->n; k++) {
            Term *atom = e->arg[i]->arg[k], *now = mentions(atom, var) ? subst_atom(t, atom, var, by) : NULL;
            if (!now && mentions(atom, var)) return NULL;
            if (now && now->n == 1 && now->arg[0]->n == 1 && now->arg[0]->a[0] == 2 && now->a[0] == 1 && now->b[0] == 1)
                now = atom_power(t, now->arg[0]->arg[0], e->arg[i]->a[k]);
            else now = now ? term_power(t, now, e->arg[i]->a[k]) : atom_power(t, atom, e->arg[i]->a[k]);
            product = term_mul(t, product, now);
        }
        r = term_add(t, r, product);
    }
    return r;
}

/* A sum whose variable is called by the height of its body, so that the same sum has the same name. */
static Term *bound(Terms *t, TermKind kind, Expr *var, Expr *extent, Term *body)
{
    Expr *own = ix_var(&t->x, "k", body->height, extent);
    Term *named = own ? subst(t, body, var, own) : NULL;
    if (!named || own->kind == EX_INT) return named;
    return atom_power(t, intern(t, &(Term){.kind = kind, .n = 1, .arg = &named, .nidx = 1, .idx = &own}), 2);
}

Term *term_over(Terms *t, TermKind kind, Expr *var, Expr *extent, Term *body)
{
    if (!body || !var || !extent) return NULL;
    if (kind == T_MAX || ex_equals_int(extent, 1)) return bound(t, kind, var, extent, body);
    Term *r = term_number(t, 0, 1);
    if (body->n > 1 && !term_law(t, LAW_ADD)) return NULL;
    for (int i = 0; r && i < body->n; i++) {
        Term *out = term_number(t, body->a[i], body->b[i]), *in = term_number(t, 1, 1);
        const Term *f = body->arg[i];
        for (int k = 0; k < f->n; k++) {
            Term **part = mentions(f->arg[k], var) ? &in : &out;
            *part = term_mul(t, *part, atom_power(t, f->arg[k], f->a[k]));
        }
        if (!out || !in) return NULL;
        if (f->n && !(out->n == 1 && out->arg[0]->n == 0 && out->a[0] == 1 && out->b[0] == 1) &&
            !term_law(t, LAW_FACTOR))
            return NULL;
        if (in->n == 1 && in->arg[0]->n == 0) {
            if (!term_law(t, LAW_CONSTANT)) return NULL;
            out = term_mul(t, out, term_index(t, extent));
        } else out = term_mul(t, out, bound(t, T_SUM, var, extent, in));
        r = term_add(t, r, out);
    }
    return r;
}
