/* Contract in index.h. The lemmas are proven in tests/python/test_lemmas.py: quotient, common-factor, bound. */
#include "certify/index.h"
#include <string.h>
#include "base/vec.h"
#include "expr/translate.h"

enum { DEEP = 24, ROUNDS = 64, MOST_STEPS = 1 << 14, MOST_ASKED = 1 << 17 };

static Expr *zero(Index *x) { return ex_int(x->p, 0); }
static Expr *one(Index *x) { return ex_int(x->p, 1); }

static Expr *extent_of(const Index *x, const Expr *e)
{
    return e->kind == EX_SYM && e->i < x->n ? x->extent[e->i] : NULL;
}

Expr *ix_var(Index *x, const char *prefix, int number, Expr *extent)
{
    if (!extent) return NULL;
    if (ex_equals_int(extent, 1)) return zero(x);
    char *name = arena_printf(x->arena, "%s%d#%u", prefix, number, extent->id);
    Expr *e = name ? ex_symbol(x->p, name) : NULL;
    if (!e || extent_of(x, e)) return e;
    while (x->n <= e->i) {
        Expr **all = vec_room(x->arena, x->extent, x->n, sizeof *all);
        if (!all) return NULL;
        all[x->n++] = NULL;
        x->extent = all;
    }
    x->extent[e->i] = extent;
    int64_t lo, hi;
    ex_range(x->p, extent, &lo, &hi);
    expr_set_range(x->p, (int)e->i, 0, hi > 0 && hi != INT64_MAX ? hi - 1 : INT64_MAX);
    return e;
}

/* ------------------------------------------------------------------ sums of products */

/* What a sum (EX_ADD) or a product (EX_MUL) is of; any other expression is one of itself alone. */
static int parts(Expr *e, ExprKind kind, Expr *const **list, Expr **self)
{
    bool many = e->kind == kind && !e->is_float;
    *self = e;
    *list = many ? e->args : self;
    return many ? e->nargs : 1;
}

static int64_t coefficient(Expr *t)
{
    if (t->kind == EX_INT) return t->i;
    return t->kind == EX_MUL && t->nargs && t->args[0]->kind == EX_INT ? t->args[0]->i : 1;
}

/* t / by for products, where that is exact; NULL otherwise. */
static Expr *exact(Index *x, Expr *t, Expr *by)
{
    Expr *q = ex_equals_int(by, 0) ? NULL : ex_floordiv(x->p, t, by);
    return q && ex_mul(x->p, q, by) == t ? q : NULL;
}

/* e = *a * atom + *b, with the atom a factor of no term of *b. */
static bool split(Index *x, Expr *e, Expr *atom, Expr **a, Expr **b)
{
    Expr *const *t, *const *f, *self, *own;
    *a = *b = zero(x);
    int n = parts(e, EX_ADD, &t, &self);
    for (int i = 0; i < n; i++) {
        int m = parts(t[i], EX_MUL, &f, &own), at = 0;
        while (at < m && f[at] != atom) at++;
        if (at == m) *b = ex_add(x->p, *b, t[i]);
        else *a = ex_add(x->p, *a, exact(x, t[i], atom));
    }
    return *a && *b;
}

bool ix_varies(const Index *x, const Expr *e)
{
    for (int i = 0; i < x->n; i++)
        if (x->extent[i] && ex_mentions(e, expr_symbol(x->p, i)->expr)) return true;
    return false;
}

enum { ATOMS = 64 };

/* The factors of its terms, but for numbers: ATOMS of them at most. */
static int atoms_of(Expr *e, Expr **atom)
{
    Expr *const *t, *const *f, *self, *own;
    int n = parts(e, EX_ADD, &t, &self), count = 0;
    for (int i = 0; i < n; i++) {
        int m = parts(t[i], EX_MUL, &f, &own);
        for (int k = 0; k < m && count < ATOMS; k++)
            if (f[k]->kind != EX_INT) atom[count++] = f[k];
    }
    return count;
}

/* A floor division: of indices before one of sizes. */
static Expr *first_quotient(const Index *x, int n, Expr *const *atom)
{
    Expr *size = NULL;
    for (int i = 0; i < n; i++) {
        if (atom[i]->kind != EX_FLOORDIV) continue;
        if (ix_varies(x, atom[i])) return atom[i];
        if (!size) size = atom[i];
    }
    return size;
}

static Expr *first_variable(const Index *x, int n, Expr *const *atom)
{
    for (int i = 0; i < n; i++)
        if (extent_of(x, atom[i])) return atom[i];
    return NULL;
}

/* A variable that is below a quotient (v < s0 // 8), and in none of these atoms. */
static Expr *variable_below(const Index *x, int n, Expr *const *atom)
{
    Expr *inside[ATOMS];
    for (int i = 0; i < n; i++) {
        Expr *extent = extent_of(x, atom[i]);
        bool free = extent && first_quotient(x, atoms_of(extent, inside), inside);
        for (int k = 0; free && k < n; k++) free = atom[k]->kind != EX_FLOORDIV || !ex_mentions(atom[k], atom[i]);
        if (free) return atom[i];
    }
    return NULL;
}

/* ------------------------------------------------------------------ bounds */

/* Only sizes are left: each is its least value and something that is not negative. */
static bool sizes_nonneg(Index *x, Expr *e)
{
    int64_t lo, hi;
    ex_range(x->p, e, &lo, &hi);
    if (lo >= 0) return true;
    for (int i = 0, n = expr_symbol_count(x->p); i < n; i++) {
        const Symbol *s = expr_symbol(x->p, i);
        if (s->lo <= 0 || s->lo > INT32_MAX || !ex_mentions(e, s->expr)) continue;
        char *name = arena_printf(x->arena, "over#%s", s->name);
        Expr *over = name ? ex_symbol(x->p, name) : NULL;
        if (!over) return false;
        expr_set_range(x->p, (int)over->i, 0, s->hi == INT64_MAX ? s->hi : s->hi - s->lo);
        e = ix_subst(x, e, s->expr, ex_add(x->p, over, ex_int(x->p, s->lo)));
        if (!e) return false;
    }
    Expr *const *t, *self;
    int n = parts(e, EX_ADD, &t, &self);
    for (int i = 0; i < n; i++) {
        ex_range(x->p, t[i], &lo, &hi);
        if (lo < 0) return false;
    }
    return true;
}

static bool nonneg(Index *x, Expr *e, int depth);

/* Is e, of which the quotient q is a part, provably not negative? */
static bool quotient_nonneg(Index *x, Expr *e, Expr *q, int depth)
{
    int64_t lo, hi;
    Expr *a, *b, *top = q->args[0], *n = q->args[1];
    if (!nonneg(x, ex_sub(x->p, n, one(x)), depth + 1) || !split(x, e, q, &a, &b)) return false;
    bool falls = nonneg(x, ex_neg(x->p, a), depth + 1);
    if (!falls && !nonneg(x, a, depth + 1)) return false;
    ex_range(x->p, q, &lo, &hi);
    if ((falls ? hi <= 0 : lo >= 0) && nonneg(x, b, depth + 1)) return true;
    /* n q is top less 0 to n - 1; e is an integer, so that n e > -n is enough */
    Expr *least = ex_add(x->p, ex_mul(x->p, n, b), ex_mul(x->p, a, top));
    if (!falls) least = ex_sub(x->p, least, ex_mul(x->p, a, ex_sub(x->p, n, one(x))));
    return nonneg(x, ex_add(x->p, least, ex_sub(x->p, n, one(x))), depth + 1);
}

/* The same of an index variable, 0 <= v < extent. */
static bool variable_nonneg(Index *x, Expr *e, Expr *v, int depth)
{
    Expr *a, *b;
    if (!split(x, e, v, &a, &b)) return false;
    if (nonneg(x, a, depth + 1)) return nonneg(x, b, depth + 1);
    if (!nonneg(x, ex_neg(x->p, a), depth + 1)) return false;
    return nonneg(x, ex_add(x->p, b, ex_mul(x->p, a, ex_sub(x->p, extent_of(x, v), one(x)))), depth + 1);
}

/* The places of chunks, (at0 * q + at1) * 8 with q = (s0 + 7) // 8 chunks a row: at1 < q goes before q, which then
 * stands for itself. */
static bool nonneg(Index *x, Expr *e, int depth)
{
    int64_t lo, hi;
    if (!e || depth > DEEP || x->steps++ > MOST_STEPS || (x->asked += 1 + e->nargs) > MOST_ASKED) return false;
    ex_range(x->p, e, &lo, &hi);
    if (lo >= 0) return true;
    Expr *atom[ATOMS];
    int n = atoms_of(e, atom);
    Expr *q = first_quotient(x, n, atom), *v = q ? variable_below(x, n, atom) : NULL;
    if (v && variable_nonneg(x, e, v, depth + 1)) return true;
    if (q && quotient_nonneg(x, e, q, depth + 1)) return true;
    v = first_variable(x, n, atom);
    return v ? variable_nonneg(x, e, v, depth) : !q && sizes_nonneg(x, e);
}

/* Where what was asked about e and n is remembered: layers ask the same. */
static int slot_of(const Expr *e, const Expr *n) { return (int)((e->id * 31u + (n ? n->id + 7u : 0)) % INDEX_MEMO); }

bool ix_nonneg(Index *x, Expr *e)
{
    if (!e) return false;
    int k = slot_of(e, NULL);
    if (x->memo[k].e != e || x->memo[k].n) {
        x->steps = 0;
        Expr *is = nonneg(x, e, 0) ? e : NULL;
        x->memo[k].e = e, x->memo[k].n = NULL, x->memo[k].is = is;
    }
    return x->memo[k].is != NULL;
}

bool ix_within(Index *x, Expr *e, Expr *n)
{
    return e && n && ix_nonneg(x, e) && ix_nonneg(x, ex_sub(x->p, ex_sub(x->p, n, one(x)), e));
}

/* ------------------------------------------------------------------ quotients */

/* e = n * *q + *r by polynomial division. */
static bool divide(Index *x, Expr *e, Expr *n, Expr **q, Expr **r)
{
    Expr *const *t, *self;
    *q = zero(x);
    *r = e;
    int count = parts(n, EX_ADD, &t, &self);
    Expr *lead = t[count - 1];
    for (int round = 0; round < ROUNDS; round++) {
        Expr *const *s, *own, *by = NULL;
        int terms = parts(*r, EX_ADD, &s, &own);
        for (int i = terms - 1; i >= 0 && !by; i--) {
            bool whole = s[i]->kind == EX_INT && n->kind == EX_INT && n->i; /* rounded down */
            int64_t down = whole ? floor_div_i64(s[i]->i, n->i) : 0;
            if (!ex_equals_int(s[i], 0)) by = !whole ? exact(x, s[i], lead) : down ? ex_int(x->p, down) : NULL;
        }
        if (!by) return true;
        *q = ex_add(x->p, *q, by);
        *r = ex_sub(x->p, *r, ex_mul(x->p, by, n));
        if (!*q || !*r) return false;
    }
    return false;
}

/* The greatest product that divides both. */
static Expr *common(Index *x, Expr *a, Expr *b)
{
    int64_t m = coefficient(a), k = coefficient(b);
    Expr *const *f, *self, *g = ex_int(x->p, m == INT64_MIN || k == INT64_MIN ? 1 : gcd_i64(m, k));
    int n = parts(b, EX_MUL, &f, &self);
    for (int i = 0; i < n; i++) {
        Expr *more = f[i]->kind == EX_INT ? NULL : ex_mul(x->p, g, f[i]);
        if (more && exact(x, a, more)) g = more;
    }
    return g;
}

/* floor((g a + b) / (g m)) = floor(a / m) where 0 <= b < g: tries what n shares with a term of r. NULL: none. */
static Expr *reduced(Index *x, Expr *r, Expr *n)
{
    Expr *const *t, *self;
    int count = parts(r, EX_ADD, &t, &self);
    for (int i = 0; i < count && n->kind != EX_ADD; i++) {
        Expr *g = t[i]->kind == EX_INT ? NULL : common(x, t[i], n), *a = zero(x), *b = zero(x);
        if (!g || ex_equals_int(g, 1) || g == n) continue;
        for (int k = 0; k < count; k++) {
            Expr *by = exact(x, t[k], g);
            if (by) a = ex_add(x->p, a, by);
            else b = ex_add(x->p, b, t[k]);
        }
        Expr *m = b && ix_within(x, b, g) ? exact(x, n, g) : NULL;
        if (m && ix_nonneg(x, m)) return ix_div(x, a, m); /* m < 0 rounds the other way */
    }
    return NULL;
}

static Expr *quotient(Index *x, Expr *e, Expr *n)
{
    Expr *q, *r;
    if (!divide(x, e, n, &q, &r)) return NULL;
    if (ix_within(x, r, n)) return q;
    Expr *less = reduced(x, r, n);
    return ex_add(x->p, q, less ? less : ex_floordiv(x->p, r, n));
}

Expr *ix_div(Index *x, Expr *e, Expr *n)
{
    if (!e || !n || ex_equals_int(n, 0)) return NULL;
    if (ex_equals_int(n, 1)) return e;
    if (coefficient(n) < 0) return ex_floordiv(x->p, e, n); /* what follows rounds the other way there */
    int k = slot_of(e, n);
    if (x->memo[k].e != e || x->memo[k].n != n) {
        Expr *is = quotient(x, e, n);
        x->memo[k].e = e, x->memo[k].n = n, x->memo[k].is = is;
    }
    return x->memo[k].is;
}

Expr *ix_mod(Index *x, Expr *e, Expr *n) { return ex_sub(x->p, e, ex_mul(x->p, n, ix_div(x, e, n))); }

/* e // n, of what is not negative where sizes are positive: -s0 // 8 is -((s0 + 7) // 8). */
static Expr *rounded_down(Index *x, Expr *e, Expr *n)
{
    Expr *q = ex_floordiv(x->p, e, n);
    if (!q || q->kind != EX_FLOORDIV) return q;
    Expr *const *t, *self, *top = q->args[0];
    int count = parts(top, EX_ADD, &t, &self);
    if (coefficient(t[count - 1]) >= 0) return q;
    Expr *up = ex_add(x->p, ex_neg(x->p, top), ex_sub(x->p, q->args[1], one(x)));
    return ex_neg(x->p, ex_floordiv(x->p, up, q->args[1]));
}

static Expr *plain_part(void *user, Expr *e) { return ix_plain(user, e); }

Expr *ix_plain(Index *x, Expr *e)
{
    enum { DEEPEST = 8 }; /* what is divided twice stands there twice */
    if (!e || e->is_float || !e->nargs || e->depth > DEEPEST) return e;
    bool divides = e->kind == EX_MOD || e->kind == EX_FLOORDIV;
    if (!divides || !ex_is_int(e->args[1]) || e->args[1]->i <= 0) return expr_map(x->p, e, plain_part, x);
    Expr *top = ix_plain(x, e->args[0]), *by = e->args[1], *q = top ? rounded_down(x, top, by) : NULL;
    return e->kind == EX_FLOORDIV ? q : ex_sub(x->p, top, ex_mul(x->p, by, q));
}

Expr *ix_subst(Index *x, Expr *e, const Expr *var, Expr *by)
{
    if (!e || !var || !by || e == var) return e && var ? by : NULL;
    if (!ex_mentions(e, var)) return e;
    Expr *r = e->kind == EX_MUL ? one(x) : zero(x), *arg[3] = {NULL, NULL, NULL};
    if (!e->is_float && (e->kind == EX_ADD || e->kind == EX_MUL)) {
        for (int i = 0; i < e->nargs; i++) {
            Expr *part = ix_subst(x, e->args[i], var, by);
            r = e->kind == EX_ADD ? ex_add(x->p, r, part) : ex_mul(x->p, r, part);
        }
        return r;
    }
    for (int i = 0; i < e->nargs && i < 3; i++)
        if (!(arg[i] = ix_subst(x, e->args[i], var, by))) return NULL;
    if (e->kind == EX_FLOORDIV) return ix_div(x, arg[0], arg[1]);
    if (e->kind == EX_MOD) return ix_mod(x, arg[0], arg[1]);
    return ex_make(x->p, e->kind, arg[0], arg[1], arg[2]);
}
