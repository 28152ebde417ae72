/* Atoms: conditions, masks, exponentials, sums over an index. Contract in term.h. */
#include "certify/atom.h"
#include <math.h>
#include <string.h>
#include "op/op.h"

enum { WRAPPED = 1 << 26, LOWEST = 1 << 27 }; /* tags of calls, beside those of function.c */
static const double HIDES = -1e4;              /* what models in f16 put in the place of scores */

Term *term_leaf(Terms *t, int tag, bool truth, int n, Expr *const *idx)
{
    for (int i = 0; i < n; i++)
        if (!idx[i]) return term_refuse(t, "an index beyond 64 bits");
    return term_atom_of(t, (Term){.kind = T_LEAF, .tag = tag, .truth = truth, .nidx = n, .idx = (Expr **)idx});
}

static Term *but(Terms *t, Term *truth) { return term_add(t, term_number(t, 1, 1), term_scale(t, truth, -1, 1)); }

static Term *in_case(Terms *t, const Term *v, const Term *of, bool one);
static Term *case_of(const Term *v);

/* The product v as exp(y) *rest, and of this y; NULL: it is another sum. */
static Term *exponent(Terms *t, const Term *v, Term **rest)
{
    if (v->n != 1) return NULL;
    Term *y = term_number(t, 0, 1);
    *rest = term_number(t, v->part[0].p, v->part[0].q);
    for (int k = 0; k < v->part[0].t->n; k++) {
        const Operand *f = &v->part[0].t->part[k];
        if (f->t->kind == T_EXP) y = term_add(t, y, term_scale(t, f->t->part[0].t, f->p, f->q));
        else *rest = term_mul(t, *rest, term_raised(t, f->t, f->p, f->q));
    }
    return *rest ? y : NULL;
}

/* log(x exp(y)) as log x + y; NULL: there is no such y. */
static Term *logarithm(Terms *t, const Term *v)
{
    Term *x, *y = exponent(t, v, &x);
    if (!y || !y->n) return NULL;
    term_by(t, LAW_LOG);
    return x == term_number(t, 1, 1) ? y : term_add(t, y, term_call(t, OP_log, false, 1, &x));
}

static int sign_of(const Term *v);
static bool rounds(int tag) { return tag == OP_floor || tag == OP_trunc; }

/* What function `tag` of v is known to be; NULL: nothing is. */
static Term *called_of(Terms *t, int tag, Term *v)
{
    const Operand *f = term_factor(v);
    bool whole = rounds(tag) && f && f->t->kind == T_CALL && rounds((int)f->t->tag) && f->p == f->q;
    int sign = tag == OP_abs ? sign_of(v) : 0;
    if (tag == OP_log) return logarithm(t, v);
    if (whole || sign) term_by(t, whole ? LAW_WHOLE : LAW_SIGN);
    return whole ? v : sign ? term_scale(t, v, sign, 1) : NULL;
}

Term *term_call(Terms *t, int tag, bool truth, int n, Term *const *arg)
{
    Term *known = n == 1 && arg[0] ? called_of(t, tag, arg[0]) : NULL;
    if (known) return known;
    Term *own = NULL, *is[2] = {NULL, NULL}, *part[MAX_PARTS];
    for (int i = 0; t->cases && tag >= 0 && i < n && !own; i++) own = arg[i] ? case_of(arg[i]) : NULL;
    if (!own || n > MAX_PARTS) return term_atom(t, T_CALL, tag, truth, n, arg);
    term_by(t, LAW_CASES);
    for (int one = 0; one < 2; one++) {
        for (int i = 0; i < n; i++) part[i] = arg[i] ? in_case(t, arg[i], own, one) : NULL;
        is[one] = term_call(t, tag, truth, n, part);
    }
    Term *yes = term_raised(t, own, 1, 1);
    return term_add(t, term_mul(t, yes, is[1]), term_mul(t, but(t, yes), is[0]));
}

/* Of e >= 0 and of -1 - e >= 0, its contrary, one has a number below 0 among its terms, whatever its variables are
 * called. */
static bool below_zero(const Expr *e)
{
    bool below = e->kind == EX_INT && e->i < 0;
    for (int i = 0; e->kind == EX_ADD && i < e->nargs; i++) below |= e->args[i]->kind == EX_INT && e->args[i]->i < 0;
    return below;
}

static Term *test(Terms *t, Expr *e)
{
    Expr *other = ex_sub(t->x.p, ex_int(t->x.p, -1), e);
    bool always = ix_nonneg(&t->x, e), never = !always && ix_nonneg(&t->x, other);
    if (!e || !other) return term_refuse(t, "an index beyond 64 bits");
    term_by(t, LAW_TEST);
    if (always || never) return term_number(t, always, 1);
    if (below_zero(e)) return but(t, test(t, other));
    return term_atom_of(t, (Term){.kind = T_TEST, .truth = true, .nidx = 1, .idx = &e});
}

static bool masked(const Term *v)
{
    for (int i = 0; i < v->n; i++)
        if (v->part[i].t->kind == T_MASK || masked(v->part[i].t)) return true;
    return false;
}

/* x, where the sum v is rest + |x| or rest - |x|. */
static Term *magnitude(Terms *t, Term *v, bool *minus, Term **rest)
{
    for (int i = 0; i < v->n; i++) {
        const Operand *own = &v->part[i], *f = own->t->n == 1 ? own->t->part : NULL;
        if (!f || f->t->kind != T_CALL || f->t->tag != OP_abs || f->p != f->q || own->q != 1 || own->p * own->p != 1)
            continue;
        *minus = own->p < 0;
        *rest = term_add(t, v, term_scale(t, term_raised(t, f->t, 1, 1), -own->p, 1));
        return *rest ? f->t->part[0].t : NULL;
    }
    return NULL;
}

/* The sum v where the truth value `of` is 0, or 1. */
static Term *in_case(Terms *t, const Term *v, const Term *of, bool one)
{
    Term *r = term_number(t, 0, 1);
    t->selects++;
    for (int i = 0; r && i < v->n; i++) {
        const Term *product = v->part[i].t;
        Term *rest = term_number(t, v->part[i].p, v->part[i].q);
        for (int k = 0; k < product->n && rest; k++) {
            const Operand *f = &product->part[k];
            if (f->t != of) rest = term_mul(t, rest, term_raised(t, f->t, f->p, f->q));
            else if (!one) rest = term_number(t, 0, 1);
        }
        r = term_add(t, r, rest);
    }
    t->selects--;
    return r;
}

/* A truth value in a sum of numbers and of products of truth values alone; NULL: it is another sum. */
static Term *truth_in(const Term *v)
{
    Term *found = NULL;
    for (int i = 0; i < v->n; i++)
        for (int k = 0; k < v->part[i].t->n; k++)
            if (!(found = v->part[i].t->part[k].t)->truth) return NULL;
    return found;
}

/* A number above 0, as a factor. */
static bool positive(const Operand *f)
{
    double c = 0;
    if (f->t->kind == T_CONSTANT) memcpy(&c, &f->t->tag, sizeof c);
    return f->t->kind == T_ROOT || c > 0;
}

/* Is an atom, to this power, minus infinity? */
static bool lowest(const Operand *f) { return f->t->kind == T_MASK && f->t->part[0].t->n == 0 && f->p == f->q; }

static bool infinite(const Term *v)
{
    return v->n == 1 && v->part[0].p > 0 && v->part[0].t->n == 1 && lowest(v->part[0].t->part);
}

/* The sign of an infinity beside something that is none; 0: it is another sum. */
static int sign_of_infinity(const Term *v)
{
    int sign = 0;
    for (int i = 0; i < v->n; i++) {
        const Term *x = v->part[i].t;
        if (x->n == 1 && lowest(x->part)) sign = v->part[i].p > 0 ? -1 : 1;
        else if (x->infinite) return 0;
    }
    return sign;
}

/* The sign of a sum of exponentials, roots and numbers, times powers of such, that are all above 0 or all below; 0: it
 * is another sum. */
static int sign_of(const Term *v)
{
    int sign = v->n ? v->part[0].p > 0 ? 1 : -1 : 0;
    for (int i = 0; i < v->n; i++) {
        if ((v->part[i].p > 0 ? 1 : -1) != sign) return 0;
        for (int k = 0; k < v->part[i].t->n; k++) {
            const Operand *f = &v->part[i].t->part[k];
            if (!positive(f) && (f->t->kind != T_EXP || f->t->part[0].t->infinite)) return 0;
        }
    }
    return sign;
}

/* Is v the sum of exp(f(j)) over the largest exp(f(j)), less a number of 1 at most? */
static bool above_largest(Terms *t, const Term *v)
{
    for (int i = 0; v->n == 2 && i < 2; i++) {
        const Operand *number = &v->part[i], *product = &v->part[1 - i];
        if (number->t->n || -number->p > number->q || product->p != product->q) continue;
        Term *rest = NULL, *one = NULL, *y = exponent(t, term_alone(t, product->t), &rest);
        const Operand *sum = y ? term_factor(rest) : NULL;
        if (!sum || sum->t->kind != T_SUM || sum->p != sum->q) continue;
        Term *f = exponent(t, sum->t->part[0].t, &one);
        Term *less = f && one == term_number(t, 1, 1) ? term_add(t, y, f) : NULL;
        for (int k = 0; less && k < less->n; k++) {
            const Operand *own = &less->part[k];
            const Term *m = own->t->n == 1 && own->p == -own->q ? own->t->part[0].t : NULL;
            bool same = m && m->kind == T_MAX && m->idx[0] == sum->t->idx[0] && own->t->part[0].p == own->t->part[0].q;
            if (same && m->part[0].t == term_add(t, less, term_raised(t, own->t->part[0].t, 1, 1))) return true;
        }
    }
    return false;
}

Term *term_nonneg(Terms *t, Term *v)
{
    Expr *e = term_integer(t, v);
    if (!v || e) return e ? test(t, e) : NULL;
    int end = v->infinite ? sign_of_infinity(v) : 0, sign = sign_of(v);
    if (v->infinite && !end) return term_refuse(t, "an order of infinities");
    if (end && (v->n == 1 || (v->n == 2 && !(v->part[0].t->n && v->part[1].t->n)))) return term_number(t, end > 0, 1);
    if (term_is_number(v)) return term_number(t, v->n == 0 || v->part[0].p > 0, 1);
    if (sign) term_by(t, LAW_SIGN);
    if (sign) return term_number(t, sign > 0, 1);
    bool above = above_largest(t, v);
    if (above) term_by(t, LAW_LARGEST);
    if (above) return term_number(t, 1, 1);
    Term *own = truth_in(v);
    if (own) {
        term_by(t, LAW_CASES);
        Term *yes = term_raised(t, own, 1, 1);
        return term_add(t, term_mul(t, yes, term_nonneg(t, in_case(t, v, own, true))),
                        term_mul(t, but(t, yes), term_nonneg(t, in_case(t, v, own, false))));
    }
    bool minus;
    Term *rest, *x = magnitude(t, v, &minus, &rest);
    if (!x) return term_atom(t, T_CALL, -1, true, 1, &v);
    term_by(t, LAW_MAGNITUDE);
    Term *a = term_nonneg(t, term_add(t, rest, x)), *b = term_nonneg(t, term_add(t, rest, term_scale(t, x, -1, 1)));
    if (minus) return term_mul(t, a, b); /* |x| <= rest */
    return a && b ? but(t, term_mul(t, but(t, a), but(t, b))) : NULL;
}

bool term_is_truth(const Term *v)
{
    bool truth = v && v->n == 1 && v->part[0].p == v->part[0].q;
    for (int i = 0; truth && i < v->part[0].t->n; i++) truth = v->part[0].t->part[i].t->truth;
    return truth;
}

/* A product of sums that nothing masks: products of queries and keys are real numbers, an input may be a mask. */
static bool summed(const Term *product)
{
    for (int i = 0; i < product->n; i++)
        if (product->part[i].t->kind != T_SUM && product->part[i].t->kind != T_ROOT) return false;
    return product->n && !product->infinite;
}

bool term_is_real(const Term *v)
{
    for (int i = 0; i < v->n; i++)
        if (v->part[i].t->n && !summed(v->part[i].t)) return false;
    return true;
}

Term *term_shown(Terms *t, const Term *v, Term **rest)
{
    Term *shown = term_number(t, 1, 1);
    *rest = term_number(t, 0, 1);
    for (int i = 0; shown && *rest && i < v->n; i++) {
        Term *x = v->part[i].t;
        bool mask = x->n == 1 && x->part[0].t->kind == T_MASK && x->part[0].p == x->part[0].q && v->part[i].p > 0;
        if (!mask && x->n && !summed(x)) return NULL;
        if (mask) shown = term_mul(t, shown, x->part[0].t->part[0].t);
        else *rest = term_add(t, *rest, term_scale(t, term_alone(t, x), v->part[i].p, v->part[i].q));
    }
    if (shown) term_by(t, LAW_DISTRIBUTES);
    return shown;
}

/* Of the largest value of a row it is said that it shows a key. */
static bool shows(Terms *t, Term *largest)
{
    term_by(t, LAW_ROWS);
    for (int i = 0; i < t->nrows; i++)
        if (t->row[i] == largest) return true;
    if (t->nrows == MAX_ROWS) return term_refuse(t, "rows of more than %d masks", MAX_ROWS);
    t->row[t->nrows++] = largest;
    return true;
}

Term *term_same(Terms *t, Term *a, Term *b)
{
    const Operand *f = a && b && b->n == 0 && a->n == 1 && a->part[0].t->n == 1 ? a->part[0].t->part : NULL;
    if (a && b && b->n == 0 && (term_is_truth(a) || term_is_truth(but(t, a)))) return but(t, a);
    bool rows = (t->single || t->rows) && f && f->t->kind == T_MAX && !term_is_number(f->t->part[0].t);
    if (rows && (term_is_truth(f->t->part[0].t) || term_is_truth(but(t, f->t->part[0].t))))
        return shows(t, f->t) ? term_number(t, 0, 1) : NULL; /* the largest of truth values */
    if (!a || !b || !infinite(b))
        return a && b ? term_mul(t, term_nonneg(t, term_add(t, a, term_scale(t, b, -1, 1))),
                                 term_nonneg(t, term_add(t, b, term_scale(t, a, -1, 1))))
                      : NULL;
    Term *shown = term_number(t, 1, 1), *rest = term_number(t, 0, 1); /* what masks do not hide; what may be one */
    for (int i = 0; shown && i < a->n; i++) {
        Term *x = a->part[i].t;
        bool plain = x->n == 1 && x->part[0].p == 1 && x->part[0].q == 1 && a->part[i].p > 0;
        if (plain && x->part[0].t->kind == T_MASK) shown = term_mul(t, shown, x->part[0].t->part[0].t);
        else if (summed(x) || !x->n) continue;
        else if (t->single && plain && x->part[0].t->kind == T_MAX) {
            if (!shows(t, x->part[0].t)) return NULL;
        }
        else if (masked(x)) return term_refuse(t, "what may be minus infinity");
        else rest = term_add(t, rest, term_scale(t, term_alone(t, x), a->part[i].p, a->part[i].q));
    }
    if (rest && rest->n) /* an input may be, in a mask */
        shown = term_mul(t, shown, but(t, term_atom(t, T_CALL, LOWEST, true, 1, &rest)));
    return shown ? but(t, shown) : NULL;
}

Term *term_wrapped(Terms *t, Term *j, Term *n)
{
    return j && n ? term_atom(t, T_CALL, WRAPPED, false, 2, (Term *[]){j, n}) : NULL;
}

Term *term_unwrapped(const Term *i, const Term *n)
{
    const Operand *f = term_factor(i);
    bool own = f && f->t->kind == T_CALL && f->t->tag == WRAPPED && f->p == f->q && f->t->part[1].t == n;
    return own ? f->t->part[0].t : NULL;
}

Term *term_mask(Terms *t, Term *truth) { return term_atom(t, T_MASK, 0, false, 1, &truth); }

/* A single number that a mask may put in the place of scores; minus infinity, too. */
static bool fills(const Term *v, double *c)
{
    *c = 0;
    if (v->n != 1 || v->part[0].t->n > 1) return false;
    const Operand *a = v->part[0].t->n ? v->part[0].t->part : NULL;
    if (infinite(v)) *c = -INFINITY;
    else if (a && (a->t->kind != T_CONSTANT || a->p != a->q)) return false;
    else {
        *c = 1;
        if (a) memcpy(c, &a->t->tag, sizeof *c);
        *c *= (double)v->part[0].p / (double)v->part[0].q;
    }
    return *c <= HIDES;
}

Term *term_largest(Terms *t, Term *a, Term *b)
{
    double c;
    if (!a || !b) return NULL;
    if (fills(a, &c) || fills(b, &c) || a->infinite || b->infinite)
        return term_call(t, OP_maximum, false, 2, (Term *[]){a, b});
    Term *more = term_add(t, a, term_scale(t, b, -1, 1));
    return term_add(t, b, term_mul(t, term_nonneg(t, more), more));
}

Term *term_where(Terms *t, Term *truth, Term *a, Term *b)
{
    double left, right;
    Term *no = but(t, truth);
    if (!no || !a || !b) return NULL;
    bool low = fills(a, &left), other = fills(b, &right), infinite = isinf(low ? left : right);
    if (low != other && infinite) {
        term_by(t, LAW_DISTRIBUTES);
        return term_add(t, low ? b : a, term_mask(t, low ? no : truth));
    }
    if (low != other)
        return term_atom(t, T_FILLED, 0, false, 3, (Term *[]){low ? no : truth, low ? b : a, low ? a : b});
    Expr *differ = term_integer(t, term_add(t, b, term_scale(t, a, -1, 1)));
    if (differ && truth == term_mul(t, test(t, differ), test(t, ex_neg(t->x.p, differ)))) {
        term_by(t, LAW_EQUAL);
        return b;
    }
    term_by(t, LAW_WHERE);
    return term_add(t, term_mul(t, truth, a), term_mul(t, no, b));
}

bool term_positive(const Term *v)
{
    bool is = v->n == 1 && v->part[0].p > 0;
    for (int i = 0; is && i < v->part[0].t->n; i++) is = positive(&v->part[0].t->part[i]);
    return is;
}

/* exp(p / q times a product), beside what is `above` at most */
static Term *exp_of(Terms *t, Term *product, int64_t p, int64_t q, double above)
{
    for (int i = 0; i < product->n; i++) {
        const Operand *m = &product->part[i];
        double c;
        if (m->t->kind != T_MASK && m->t->kind != T_FILLED) continue;
        bool scaled = m->t->kind == T_MASK && p > 0 && m->p == m->q;
        for (int k = 0; k < product->n && scaled; k++) scaled = k == i || positive(&product->part[k]);
        if (!scaled && (product->n > 1 || p < 0 || m->p != m->q)) {
            t->stuck = true;
            return term_refuse(t, "a mask is multiplied");
        }
        term_by(t, m->t->kind == T_MASK ? LAW_MASK : LAW_FILL);
        if (m->t->kind == T_MASK) return m->t->part[0].t;
        c = fills(m->t->part[2].t, &c) ? c * (double)p / (double)q : 0;
        if (c > HIDES || above > -c / 2) return term_refuse(t, "a mask is scaled, or something lifts it");
        return term_mul(t, m->t->part[0].t, term_exp(t, term_scale(t, m->t->part[1].t, p, q)));
    }
    const Operand *f = product->n == 1 ? product->part : NULL;
    if (f && f->t->kind == T_CALL && f->t->tag == OP_log && f->p == f->q && 2 % q == 0) {
        term_by(t, LAW_LOG);
        return term_power(t, f->t->part[0].t, 2 * p / q);
    }
    for (int k = 0; f && f->t->kind == T_CALL && f->t->tag == OP_maximum && p > 0 && k < 2; k++) {
        double floor;
        if (!fills(f->t->part[k].t, &floor) || (floor *= (double)p / (double)q) > HIDES || above > -floor / 2) continue;
        term_by(t, LAW_FLOOR);
        return term_exp(t, term_scale(t, f->t->part[1 - k].t, p, q));
    }
    Term *inner = term_alone(t, product);
    return term_raised(t, term_intern(t, (Term){.kind = T_EXP, .n = 1, .part = &(Operand){inner, 1, 1}}), p, q);
}

/* The number that a function is of numbers; NaN: it is none that tables are made with. */
static double called(Terms *t, const Term *f)
{
    double x = f->n ? term_value(t, f->part[0].t) : NAN;
    switch (f->tag) {
    case OP_sin: return sin(x);
    case OP_cos: return cos(x);
    case OP_log: return log(x);
    case OP_pow_Tensor_Tensor: return pow(x, term_value(t, f->part[1].t));
    default: return NAN;
    }
}

double term_value(Terms *t, const Term *v)
{
    double sum = 0;
    for (int i = 0; i < v->n; i++) {
        double c, product = (double)v->part[i].p / (double)v->part[i].q;
        for (int k = 0; k < v->part[i].t->n; k++) {
            const Operand *f = &v->part[i].t->part[k];
            memcpy(&c, &f->t->tag, sizeof c);
            if (f->t->kind == T_ROOT) term_by(t, LAW_ROOT), c = (double)f->t->tag;
            else if (f->t->kind == T_EXP) c = exp(term_value(t, f->t->part[0].t));
            else if (f->t->kind == T_GROUP) c = term_value(t, f->t->part[0].t);
            else if (f->t->kind == T_CALL) c = called(t, f->t);
            else if (f->t->kind != T_CONSTANT) return NAN;
            product *= f->p == f->q ? c : pow(c, (double)f->p / (double)f->q);
        }
        sum += product;
    }
    return sum;
}

/* A test that is a factor of something in the sum v. */
static Term *case_of(const Term *v)
{
    for (int i = 0; i < v->n; i++)
        for (int k = 0; k < v->part[i].t->n && v->part[i].t->n > 1; k++)
            if (v->part[i].t->part[k].t->kind == T_TEST) return v->part[i].t->part[k].t;
    return NULL;
}

/* What is known of a sum is this at most: of its numbers, with the truth values and indices that multiply them. A fill
 * hides nothing where they lift it again, as (1 - t) (1 - u) c is 0 where u is 1. */
static double most_of(const Terms *t, const Term *v)
{
    double sum = 0;
    for (int i = 0; i < v->n; i++) {
        double c = (double)v->part[i].p / (double)v->part[i].q, is, least = 1, most = 1;
        bool bounded = true;
        for (int k = 0; k < v->part[i].t->n; k++) {
            const Operand *f = &v->part[i].t->part[k];
            int64_t lo = 0, hi = 1;
            if (f->t->kind == T_INDEX) ex_range(t->x.p, f->t->idx[0], &lo, &hi);
            if (f->t->kind == T_ROOT || f->t->kind == T_CONSTANT) {
                memcpy(&is, &f->t->tag, sizeof is);
                c *= pow(f->t->kind == T_ROOT ? (double)f->t->tag : is, (double)f->p / (double)f->q);
            } else if (f->t->kind == T_INDEX) {
                bounded &= lo >= 0 && f->p > 0;
                least *= pow((double)lo, (double)f->p), most *= pow((double)hi, (double)f->p);
            } else if (f->t->truth) least = 0;
            else if (lowest(f) && c < 0) return INFINITY;
            else c = 0; /* a score, of which nothing is known */
        }
        if (c != 0) sum += bounded ? fmax(c * least, c * most) : INFINITY;
    }
    return sum;
}

/* exp(t x + (1 - t) c + y) = t exp(x + y) for a truth value t and a fill c; NULL: it is another sum. */
static Term *exp_filled(Terms *t, Term *a)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < a->part[i].t->n && a->part[i].t->n > 1; k++) {
            Term *own = a->part[i].t->part[k].t;
            Term *yes = own->truth ? in_case(t, a, own, true) : NULL, *no = yes ? in_case(t, a, own, false) : NULL;
            if (!no || most_of(t, no) > HIDES || most_of(t, yes) <= HIDES) continue;
            term_by(t, LAW_WHERE);
            term_by(t, LAW_FILL);
            return term_mul(t, term_raised(t, own, 1, 1), term_exp(t, yes));
        }
    return NULL;
}

Term *term_exp(Terms *t, Term *a)
{
    Term *filled = a ? exp_filled(t, a) : NULL;
    if (filled) return filled;
    Term *r = a ? term_number(t, 1, 1) : NULL, *own = a && t->cases ? case_of(a) : NULL;
    if (own) {
        term_by(t, LAW_CASES);
        Term *yes = term_raised(t, own, 1, 1);
        return term_add(t, term_mul(t, yes, term_exp(t, in_case(t, a, own, true))),
                        term_mul(t, but(t, yes), term_exp(t, in_case(t, a, own, false))));
    }
    if (a && a->n > 1) term_by(t, LAW_EXP);
    double above = a ? most_of(t, a) : 0;
    for (int i = 0; r && i < a->n; i++) r = term_mul(t, r, exp_of(t, a->part[i].t, a->part[i].p, a->part[i].q, above));
    return r;
}

/* ------------------------------------------------------------------ sums over an index */

static Term *subst(Terms *t, Term *e, const Expr *var, Expr *own);

/* A term with var replaced: of an atom as a sum, of a product or sum by its parts. */
static Term *subst_atom(Terms *t, Term *e, const Expr *var, Expr *own)
{
    Term *arg[MAX_PARTS];
    Expr *idx[16];
    if (e->nidx > 16) return term_refuse(t, "too many axes");
    for (int i = 0; i < e->n; i++)
        if (!(arg[i] = subst(t, e->part[i].t, var, own))) return NULL;
    for (int i = 0; i < e->nidx; i++)
        if (!(idx[i] = ix_subst(&t->x, e->idx[i], var, own))) return term_refuse(t, "an index beyond 64 bits");
    if (e->kind == T_INDEX) return term_index(t, idx[0]);
    if (e->kind == T_TEST) return test(t, idx[0]);
    if (e->kind == T_EXP) return term_exp(t, arg[0]);
    Operand part[MAX_PARTS];
    for (int i = 0; i < e->n; i++) part[i] = (Operand){arg[i], 1, 1};
    return term_atom_of(
        t,
        (Term){
            .kind = e->kind, .tag = e->tag, .truth = e->truth, .n = e->n, .part = part, .nidx = e->nidx, .idx = idx});
}

static Term *power_of(Terms *t, Term *base, int64_t p, int64_t q)
{
    const Operand *f = base ? term_factor(base) : NULL;
    if (f && f->p == f->q) return term_raised(t, f->t, p, q);
    if (!base) return NULL;
    if (q > 2) return term_refuse(t, "a power of %lld/%lld", (long long)p, (long long)q);
    return term_power(t, base, p * 2 / q);
}

static Term *subst(Terms *t, Term *e, const Expr *var, Expr *own)
{
    if (!term_mentions(t, e, var)) return e;
    Term *r = term_number(t, 0, 1);
    t->selects++;
    for (int i = 0; r && i < e->n; i++) {
        Term *product = term_number(t, e->part[i].p, e->part[i].q);
        for (int k = 0; product && k < e->part[i].t->n; k++) {
            const Operand *f = &e->part[i].t->part[k];
            Term *now;
            if (!term_mentions(t, f->t, var)) now = term_raised(t, f->t, f->p, f->q);
            else if (f->t->kind == T_EXP) /* exp(x)^(p / q) = exp(p / q x) */
                now = term_exp(t, term_scale(t, subst(t, f->t->part[0].t, var, own), f->p, f->q));
            else now = power_of(t, subst_atom(t, f->t, var, own), f->p, f->q);
            product = term_mul(t, product, now);
        }
        r = term_add(t, r, product);
    }
    t->selects--;
    return r;
}

/* A sum whose variable is called by the height of its body, so that the same sum has the same name. Where sums in it
 * have lost parts since they were named, as a test that fails takes them, one of them may have this name: the next. */
static Term *bound(Terms *t, TermKind kind, Expr *var, Expr *extent, Term *body)
{
    int k = body->height;
    Expr *own = ix_var(&t->x, "k", k, extent);
    while (own && own != var && own->kind == EX_SYM && term_mentions(t, body, own)) {
        if (t->steps > MAX_STEPS) return NULL;
        own = ix_var(&t->x, "k", ++k, extent);
    }
    Term *named = own ? subst(t, body, var, own) : NULL;
    if (!named || own->kind == EX_INT) return named;
    return term_atom_of(t, (Term){.kind = kind,
                             .truth = kind == T_ANY,
                             .n = 1,
                             .part = &(Operand){named, 1, 1},
                             .nidx = 1,
                             .idx = &own});
}

/* Has a product an exponential that does not depend on var? */
static bool weighs(Terms *t, const Term *product, const Expr *var)
{
    for (int i = 0; i < product->n; i++)
        if (product->part[i].t->kind == T_EXP && !(var && term_mentions(t, product->part[i].t, var))) return true;
    return false;
}

static Expr *divisor_of(const Expr *e, const Expr *var)
{
    Expr *b = e->kind == EX_FLOORDIV && e->args[0] == var ? e->args[1] : NULL;
    for (int i = 0; i < e->nargs && !b; i++) b = divisor_of(e->args[i], var);
    return b;
}

/* The size b that a term takes var apart by, as var // b; NULL: none. */
static Expr *apart(const Term *e, const Expr *var)
{
    Expr *b = NULL;
    for (int i = 0; i < e->nidx && !b; i++) b = divisor_of(e->idx[i], var);
    for (int i = 0; i < e->n && !b && e->symbols & var->symbols; i++) b = apart(e->part[i].t, var);
    return b;
}

/* sum_i c(i) sum_j exp(a(j)) f(i, j), where c has no exponentials, with the sum over j as the outer one: the sums of an
 * attention and of what weighs its values have one order. Otherwise as it is. */
static Term *sum_of(Terms *t, Expr *var, Expr *extent, Term *in)
{
    const Term *product = in->part[0].t;
    Expr *b = apart(in, var),
         *a = b && ix_nonneg(&t->x, ex_sub(t->x.p, b, ex_int(t->x.p, 1))) ? ix_div(&t->x, extent, b) : NULL;
    if (a && !ex_equals_int(a, 1) && ex_mul(t->x.p, a, b) == extent) {
        term_by(t, LAW_SPLIT);
        Expr *i = ix_var(&t->x, "w", t->swaps++, a), *j = ix_var(&t->x, "w", t->swaps++, b);
        Term *both = i && j ? subst(t, in, var, ex_add(t->x.p, ex_mul(t->x.p, b, i), j)) : NULL;
        return term_over(t, T_SUM, i, a, term_over(t, T_SUM, j, b, both));
    }
    for (int i = 0; i < product->n && !weighs(t, product, NULL); i++) {
        const Operand *f = &product->part[i];
        const Term *s = f->t->kind == T_SUM && f->p > 0 && f->q == 1 ? f->t->part[0].t : NULL;
        if (!s || s->n != 1 || !weighs(t, s->part[0].t, var)) continue;
        Term *rest = term_number(t, 1, 1);
        for (int k = 0; k < product->n; k++) {
            const Operand *g = &product->part[k];
            rest = term_mul(t, rest, term_raised(t, g->t, g->p - (k == i), g->q));
        }
        term_by(t, LAW_SWAP);
        Expr *j = f->t->idx[0], *n = t->x.extent[j->i], *own = ix_var(&t->x, "w", t->swaps++, n);
        Term *inner = term_over(t, T_SUM, var, extent, term_mul(t, rest, subst(t, f->t->part[0].t, j, own)));
        return term_over(t, T_SUM, own, n, inner);
    }
    return bound(t, T_SUM, var, extent, in);
}

/* Where a test in e of var and sizes changes, as var grows; NULL: nowhere within the extent. */
static Expr *turn_of(Terms *t, const Term *e, Expr *var, Expr *extent)
{
    if (!(e->symbols & var->symbols) || ++t->steps > MAX_STEPS) return NULL;
    if (e->kind == T_TEST) {
        ExprPool *p = t->x.p;
        Expr *first = ix_subst(&t->x, e->idx[0], var, ex_int(p, 0)), *rise = ex_sub(p, e->idx[0], first);
        Expr *n = !rise || !first          ? NULL
                  : rise == var            ? ex_neg(p, first)
                  : ex_neg(p, rise) == var ? ex_add(p, first, ex_int(p, 1))
                                           : NULL;
        if (n && !ix_varies(&t->x, n) && ix_nonneg(&t->x, n) && ix_nonneg(&t->x, ex_sub(p, extent, n))) return n;
    }
    Expr *n = NULL;
    for (int i = 0; i < e->n && !n; i++) n = turn_of(t, e->part[i].t, var, extent);
    return n;
}

Term *term_over(Terms *t, TermKind kind, Expr *var, Expr *extent, Term *body)
{
    if (!body || !var || !extent) return NULL;
    Expr *turn = t->cases && kind == T_SUM && var->kind == EX_SYM ? turn_of(t, body, var, extent) : NULL;
    if (turn) {
        term_by(t, LAW_RANGE);
        Expr *rest = ex_sub(t->x.p, extent, turn), *i = ix_var(&t->x, "w", t->swaps++, turn),
             *j = ix_var(&t->x, "w", t->swaps++, rest);
        if (!i || !j) return NULL;
        return term_add(t, term_over(t, kind, i, turn, subst(t, body, var, i)),
                        term_over(t, kind, j, rest, subst(t, body, var, ex_add(t->x.p, turn, j))));
    }
    bool some = ix_nonneg(&t->x, ex_sub(t->x.p, extent, ex_int(t->x.p, 1)));
    if ((kind == T_MAX || kind == T_ANY) && some && !term_mentions(t, body, var)) return body;
    if (kind == T_SUM && ex_equals_int(extent, 2)) { /* of a pair, as rotary positions turn them: what is summed */
        term_by(t, LAW_RANGE);
        return term_add(t, subst(t, body, var, ex_int(t->x.p, 0)), subst(t, body, var, ex_int(t->x.p, 1)));
    }
    if (kind != T_SUM || ex_equals_int(extent, 1)) return bound(t, kind, var, extent, body);
    Term *r = term_number(t, 0, 1);
    if (body->n > 1) term_by(t, LAW_ADD);
    for (int i = 0; r && i < body->n; i++) {
        const Operand *b = &body->part[i];
        Term *out = term_number(t, b->p, b->q), *in = term_number(t, 1, 1), *before = out;
        for (int k = 0; k < b->t->n; k++) {
            const Operand *f = &b->t->part[k];
            Term **side = term_mentions(t, f->t, var) ? &in : &out;
            *side = term_mul(t, *side, term_raised(t, f->t, f->p, f->q));
        }
        if (!out || !in) return NULL;
        if (b->t->n && (out != before || b->p != b->q)) term_by(t, LAW_FACTOR);
        if (term_is_number(in)) term_by(t, LAW_CONSTANT);
        r = term_add(t, r, term_mul(t, out, term_is_number(in) ? term_index(t, extent) : sum_of(t, var, extent, in)));
    }
    return r;
}

static bool is_zero(const Term *v) { return v && v->n == 0; }

/* Is the sum v 0 wherever w is, which a truth value in it or an exponential says? */
static bool zero_with(Terms *t, const Term *v, const Term *w)
{
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < w->part[i].t->n; k++) {
            const Term *f = w->part[i].t->part[k].t;
            if (f->truth && !(is_zero(in_case(t, w, f, false)) && is_zero(in_case(t, v, f, false)))) return false;
            bool number = f->kind == T_ROOT || (f->kind == T_EXP && term_is_number(f->part[0].t));
            for (int m = 0; !f->truth && !number && m < v->n; m++) {
                const Term *product = v->part[m].t;
                int at = 0;
                while (at < product->n && (product->part[at].t != f || product->part[at].p < 0)) at++;
                if (at == product->n) return false;
            }
        }
    return w->n > 0;
}

/* Is this divisor a sum over the places of row that is 0 where row shows none of them? */
static bool hidden_by(Terms *t, Term *divisor, const Term *row)
{
    Expr *extent = t->x.extent[row->idx[0]->i], *var = ix_var(&t->x, "w", t->swaps++, extent);
    const Term *sums = divisor->kind == T_GROUP ? divisor->part[0].t : term_raised(t, divisor, 1, 1);
    Term *shown = var ? subst(t, row->part[0].t, row->idx[0], var) : NULL, *all = term_number(t, 0, 1);
    if (!sums || !shown || !all) return false;
    for (int i = 0; i < sums->n; i++) {
        const Term *product = sums->part[i].t, *sum = NULL;
        Term *each = term_number(t, sums->part[i].p, sums->part[i].q);
        for (int k = 0; k < product->n; k++) {
            const Operand *f = &product->part[k];
            bool over = !sum && f->t->kind == T_SUM && f->p == f->q && t->x.extent[f->t->idx[0]->i] == extent;
            if (over) sum = f->t;
            Term *by = over ? subst(t, sum->part[0].t, sum->idx[0], var) : term_raised(t, f->t, f->p, f->q);
            each = term_mul(t, each, by);
        }
        if (!sum || !(all = term_add(t, all, each))) return false;
    }
    if (!term_is_truth(shown) && !term_is_truth(but(t, shown))) shown = term_exp(t, shown);
    return shown && zero_with(t, all, shown);
}

/* Has the form v such a divisor? seen: by id, terms that were looked at. */
static bool divides(Terms *t, const Term *row, const Term *v, bool *seen)
{
    if (seen[v->id]) return false;
    seen[v->id] = true;
    for (int i = 0; i < v->n; i++)
        if ((v->kind == T_PRODUCT && v->part[i].p < 0 && hidden_by(t, v->part[i].t, row)) ||
            divides(t, row, v->part[i].t, seen)) return true;
    return false;
}

bool term_rows_divide(Terms *t, const Term *form)
{
    bool all = true;
    for (int i = 0; i < t->nrows && all; i++) {
        bool *seen = arena_array(t->arena, bool, MAX_TERMS);
        all = seen && divides(t, t->row[i], form, seen);
    }
    return all;
}

bool term_same_apart(Terms *t, Term *a, Term *b, Expr *var, Expr *extent)
{
    enum { MOST = 16 };
    Expr *n = var->kind == EX_SYM ? apart(a, var) : NULL;
    if (!n && var->kind == EX_SYM) n = apart(b, var);
    if (!n || n->kind != EX_INT || n->i < 2 || n->i > MOST) return false;
    Expr *many = ix_div(&t->x, extent, n), *i = ix_var(&t->x, "w", t->swaps++, many);
    if (!i || ex_mul(t->x.p, many, n) != extent) return false;
    for (int64_t c = 0; c < n->i; c++) {
        Expr *own = ex_add(t->x.p, ex_mul(t->x.p, n, i), ex_int(t->x.p, c));
        const Term *left = subst(t, a, var, own);
        if (!left || left != subst(t, b, var, own)) return false;
    }
    term_by(t, LAW_PLACES);
    return true;
}
