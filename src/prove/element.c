/* Exact arithmetic on elements: the words ELEMENT of the op table. Contract in impl.h.
 *
 *     element_exp(x, (Elem[]){a}, NULL)
 *
 * Where a law needs to know an order (a maximum, an absolute value), the values in double precision decide; two of
 * equal residues are equal, if their values say so, too. A residue of 0 beside another value is a product that vanishes
 * in the ring (ring.h): sin(x)^4.
 */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "prove/impl.h"

enum { ALWAYS_ZERO = -700 }; /* an exponential below e^-700 is 0, as in double precision below e^-745 */
/* What is added to a number that only masks have is lost where float32 loses it: -1e9 in place of a score, and beside
 * one, are the same there. */
#define SWALLOWS 0x1p28
#define LOST 0x1p-25
#define NOISE 1e-9 /* of two values, relative to the larger: they may differ by their rounding */

Elem elem_float(Res r, double v) { return (Elem){FLOAT, isfinite(v) ? r : 0, v, 0, false}; }

Elem elem_sum(Res r, double v, double size)
{
    return elem_float(r, r == 0 && isfinite(v) && fabs(v) <= NOISE * size ? 0 : v);
}

Elem elem_int(int64_t i) { return (Elem){INTEGER, 0, 0, i, false}; }
Elem elem_number(double v) { return elem_float(isfinite(v) ? res_number(v) : 0, v); }

static Elem as_float(Elem a) { return a.kind == INTEGER ? elem_float(res_int(a.i), (double)a.i) : a; }
static bool integers(Elem a, Elem b) { return a.kind == INTEGER && b.kind == INTEGER; }

/* f(v) of a value that may be a rounded integer: that integer, if the residue says so. */
static int64_t whole(Elem a, double (*f)(double))
{
    if (a.kind == INTEGER) return a.i;
    double near = nearbyint(a.v);
    bool known = fabs(a.v - near) <= 1e-6 * fmax(1, fabs(near)) && fabs(near) < 0x1p53 && res_int((int64_t)near) == a.r;
    double v = known ? near : f(a.v);
    return v != v ? 0 : v > 0x1p62 ? INT64_MAX : v < -0x1p62 ? INT64_MIN : (int64_t)v;
}

static Elem rounded(Elem a, double (*f)(double))
{
    return a.kind == FLOAT && !isfinite(a.v) ? a : elem_int(whole(a, f));
}

/* ------------------------------------------------------------------ elements of tensors */

Elem elem_get(const ExactTensor *t, int64_t k)
{
    return t->r ? (Elem){FLOAT, t->r[k], t->v[k], 0, false} : (Elem){INTEGER, 0, 0, t->i[k], t->dtype == DT_BOOL};
}

void elem_set(ExactTensor *t, int64_t k, Elem e)
{
    if (t->r) {
        e = as_float(e);
        t->r[k] = e.r;
        t->v[k] = e.v;
    } else if (t->dtype == DT_BOOL) {
        t->i[k] = e.kind == INTEGER ? e.i != 0 : e.r != 0 || e.v != 0;
    } else {
        char bytes[8] = {0};
        store_i64(t->dtype, bytes, whole(e, trunc)); /* wraps around as the dtype does */
        t->i[k] = load_i64(t->dtype, bytes);
    }
}

void elem_move(ExactTensor *to, int64_t k, const ExactTensor *from, int64_t j)
{
    for (int part = 0; part < to->width; part++) {
        int64_t a = k * to->width + part, b = j * from->width + part;
        if (to->r) {
            to->r[a] = from->r[b];
            to->v[a] = from->v[b];
        } else {
            to->i[a] = from->i[b];
        }
    }
}

/* ------------------------------------------------------------------ logarithms
 *
 * log(a) is a residue that looks random and remembers a: sums of such and of plain ones are logarithms again, of the
 * product with the exponential, and exp gives it back. So exp(x - log(sum)) is exp(x) / sum. */

static const Tag *tag_of(const Exact *x, Res r)
{
    for (int at = x->room ? (int)(r % (Res)x->room) : 0; x->room && x->tag[at].r; at = (at + 1) % x->room)
        if (x->tag[at].r == r) return &x->tag[at];
    return NULL;
}

static void put_tag(Exact *x, Tag t)
{
    int at = (int)(t.r % (Res)x->room);
    while (x->tag[at].r) at = (at + 1) % x->room;
    x->tag[at] = t;
    x->ntags++;
}

static Res logarithm(Exact *x, Res of)
{
    if (of == res_one) return 0;
    Res r = res_hash(501, of);
    if (tag_of(x, r)) return r;
    if (2 * (x->ntags + 1) > x->room) {
        Tag *old = x->tag;
        int n = x->room, room = n ? 2 * n : 256;
        Tag *grown = mem_zeroed((size_t)room, sizeof *grown);
        if (!grown) {
            x->failed = true;
            return r;
        }
        x->tag = grown;
        x->room = room;
        x->ntags = 0;
        for (int i = 0; i < n; i++)
            if (old[i].r) put_tag(x, old[i]);
        mem_free(old);
    }
    put_tag(x, (Tag){r, of});
    return r;
}

static Res inverse(Exact *x, Res a)
{
    if (!res_unit(a)) x->no_inverse = true;
    return res_inverse(a);
}

/* exp of a residue, a logarithm or not */
static Res raised(const Exact *x, Res r)
{
    const Tag *t = tag_of(x, r);
    return t ? t->of : res_exp(r);
}

static Res sum(Exact *x, Res a, Res b)
{
    if (x->ntags && (tag_of(x, a) || tag_of(x, b))) return logarithm(x, res_mul(raised(x, a), raised(x, b)));
    return res_add(a, b);
}

static Res negative(Exact *x, Res a)
{
    const Tag *t = x->ntags ? tag_of(x, a) : NULL;
    return t ? logarithm(x, inverse(x, t->of)) : res_neg(a);
}

/* ------------------------------------------------------------------ arithmetic */

Elem elem_add(Exact *x, Elem a, Elem b)
{
    if (integers(a, b)) return elem_int((int64_t)((uint64_t)a.i + (uint64_t)b.i));
    a = as_float(a), b = as_float(b);
    if (fabs(a.v) >= SWALLOWS && fabs(b.v) < LOST * fabs(a.v)) return a;
    if (fabs(b.v) >= SWALLOWS && fabs(a.v) < LOST * fabs(b.v)) return b;
    return elem_sum(sum(x, a.r, b.r), a.v + b.v, fabs(a.v) + fabs(b.v));
}

static Elem opposite(Exact *x, Elem a)
{
    return a.kind == INTEGER ? elem_int((int64_t)(0 - (uint64_t)a.i)) : elem_float(negative(x, a.r), -a.v);
}

Elem elem_sub(Exact *x, Elem a, Elem b) { return elem_add(x, a, opposite(x, b)); }

Elem elem_mul(Exact *x, Elem a, Elem b)
{
    if (integers(a, b)) return elem_int((int64_t)((uint64_t)a.i * (uint64_t)b.i));
    a = as_float(a), b = as_float(b);
    Res minus = res_neg(res_one);
    if (x->ntags && (a.r == minus || b.r == minus)) return opposite(x, a.r == minus ? b : a);
    return elem_float(res_mul(a.r, b.r), a.v * b.v);
}

Elem elem_div(Exact *x, Elem a, Elem b)
{
    a = as_float(a), b = as_float(b);
    if (!isfinite(b.v) || (b.r == 0 && b.v == 0)) return elem_float(0, a.v / b.v);
    return elem_float(res_mul(a.r, inverse(x, b.r)), a.v / b.v);
}

Elem elem_exp(Exact *x, Elem a)
{
    a = as_float(a);
    return a.v < ALWAYS_ZERO ? elem_float(0, 0) : elem_float(raised(x, a.r), exp(a.v));
}

static bool is_number(Elem a) { return isfinite(a.v) && a.r == res_number(a.v); }

Elem elem_log(Exact *x, Elem a)
{
    a = as_float(a);
    if (!(a.v > 0) || !isfinite(a.v)) return elem_float(0, log(a.v));
    return is_number(a) ? elem_number(log(a.v)) : elem_float(logarithm(x, a.r), log(a.v));
}

Elem elem_sqrt(Exact *x, Elem a)
{
    (void)x;
    a = as_float(a);
    return elem_float(res_sqrt(a.r), sqrt(a.v));
}

Elem elem_tanh(Exact *x, Elem a) /* 1 - 2 / (1 + exp(2 a)) */
{
    Elem one = elem_int(1), two = elem_int(2);
    Elem e = elem_div(x, two, elem_add(x, one, elem_exp(x, elem_mul(x, two, a))));
    e = elem_sub(x, one, e);
    return elem_float(e.r, tanh(as_float(a).v));
}

int elem_compare(Elem a, Elem b)
{
    if (integers(a, b)) return (a.i > b.i) - (a.i < b.i);
    a = as_float(a), b = as_float(b);
    if (a.v != a.v || b.v != b.v) return 2;
    if (isfinite(a.v) && isfinite(b.v) && a.r == b.r && elem_near(a.v, b.v, NOISE)) return 0;
    return a.v < b.v ? -1 : a.v > b.v ? 1 : isfinite(a.v) ? (a.r > b.r) - (a.r < b.r) : 0;
}

bool elem_near(double a, double b, double least)
{
    return fabs(a - b) <= EXACT_NO_COUNTEREXAMPLE * fmax(fabs(a), fabs(b)) + least;
}

Elem dot_end(const Dot *d) { return elem_sum(res_add(d->done, res_reduce(d->r)), d->v, d->size); }

/* ------------------------------------------------------------------ the words */

#define WORD(name) Elem element_##name(Exact *x, const Elem *a, const char *text)
#define SIMPLE(name, e)                                                                                                \
    WORD(name)                                                                                                         \
    {                                                                                                                  \
        (void)x, (void)text;                                                                                           \
        return e;                                                                                                      \
    }

SIMPLE(add, elem_add(x, a[0], a[1]))
SIMPLE(sub, elem_sub(x, a[0], a[1]))
SIMPLE(mul, elem_mul(x, a[0], a[1]))
SIMPLE(div, elem_div(x, a[0], a[1]))
SIMPLE(neg, opposite(x, a[0]))
SIMPLE(exp, elem_exp(x, a[0]))
SIMPLE(log, elem_log(x, a[0]))
SIMPLE(sqrt, elem_sqrt(x, a[0]))
SIMPLE(tanh, elem_tanh(x, a[0]))
SIMPLE(sin, elem_float(res_sin(as_float(a[0]).r), sin(as_float(a[0]).v)))
SIMPLE(cos, elem_float(res_cos(as_float(a[0]).r), cos(as_float(a[0]).v)))
SIMPLE(abs, elem_compare(a[0], elem_int(0)) == -1 ? opposite(x, a[0]) : a[0])
SIMPLE(floor, rounded(a[0], floor))
SIMPLE(ceil, rounded(a[0], ceil))
SIMPLE(round, rounded(a[0], nearbyint))
SIMPLE(trunc, rounded(a[0], trunc))
SIMPLE(eq, elem_int(elem_compare(a[0], a[1]) == 0))
SIMPLE(ne, elem_int(elem_compare(a[0], a[1]) != 0))
SIMPLE(lt, elem_int(elem_compare(a[0], a[1]) == -1))
SIMPLE(gt, elem_int(elem_compare(a[0], a[1]) == 1))
SIMPLE(le, elem_int(elem_compare(a[0], a[1]) <= 0))
SIMPLE(ge, elem_int(elem_compare(a[0], a[1]) == 0 || elem_compare(a[0], a[1]) == 1))
SIMPLE(where, elem_compare(a[0], elem_int(0)) ? a[1] : a[2])
SIMPLE(isnan, elem_int(a[0].kind == FLOAT && a[0].v != a[0].v))
SIMPLE(isinf, elem_int(a[0].kind == FLOAT && isinf(a[0].v)))
SIMPLE(logical_not, elem_int(elem_compare(a[0], elem_int(0)) == 0))
SIMPLE(bitwise_and, elem_int(a[0].i &a[1].i))
SIMPLE(bitwise_or, elem_int(a[0].i | a[1].i))
SIMPLE(bitwise_xor, elem_int(a[0].i ^ a[1].i))
SIMPLE(bitwise_not, elem_int(a[0].truth ? !a[0].i : ~a[0].i))

static bool truth(Elem a) { return elem_compare(a, elem_int(0)) != 0; }
SIMPLE(logical_and, elem_int(truth(a[0]) && truth(a[1])))
SIMPLE(logical_or, elem_int(truth(a[0]) || truth(a[1])))
SIMPLE(logical_xor, elem_int(truth(a[0]) != truth(a[1])))

WORD(sign)
{
    (void)x, (void)text;
    int c = elem_compare(a[0], elem_int(0));
    return elem_int(c == 2 ? 0 : c);
}

static Elem larger(Elem a, Elem b, int wanted)
{
    int c = elem_compare(a, b);
    if (c == 2) return as_float(a).v != as_float(a).v ? a : b;
    return c == wanted ? a : b;
}

SIMPLE(maximum, larger(a[0], a[1], 1))
SIMPLE(minimum, larger(a[0], a[1], -1))

WORD(clamp)
{
    (void)x, (void)text;
    Elem y = a[0];
    if (as_float(y).v != as_float(y).v) return y;
    if (a[1].kind && elem_compare(y, a[1]) == -1) y = a[1];
    if (a[2].kind && elem_compare(y, a[2]) == 1) y = a[2];
    return y;
}

/* The divisor's sign, as in Python; whole quotients of integers are exact. */
static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static Elem quotient(Exact *x, Elem a, Elem b, bool down)
{
    if (integers(a, b))
        return b.i == 0 || (b.i == -1 && a.i == INT64_MIN) ? elem_int(0)
                                                           : elem_int(down ? floor_div(a.i, b.i) : a.i / b.i);
    Elem q = elem_div(x, a, b);
    if (down && isinf(as_float(a).v) && as_float(b).v != 0)
        return elem_float(0, NAN); /* a less a remainder that is none */
    if (down && isinf(as_float(b).v) && !isnan(q.v)) return elem_int(signbit(q.v) && as_float(a).v != 0 ? -1 : 0);
    return isfinite(q.v) ? elem_int(whole(q, down ? floor : trunc)) : q;
}

WORD(div_mode) { return text ? quotient(x, a[0], a[1], !strcmp(text, "floor")) : elem_div(x, a[0], a[1]); }

static Elem rest(Exact *x, Elem a, Elem b, bool down)
{
    Elem q = quotient(x, a, b, down);
    if (isfinite(as_float(a).v) && isinf(as_float(b).v)) return down && as_float(a).v * as_float(b).v < 0 ? b : a;
    if (q.kind == FLOAT) return elem_float(0, NAN);
    return elem_sub(x, a, elem_mul(x, q, b));
}

SIMPLE(remainder, rest(x, a[0], a[1], true))
SIMPLE(fmod, rest(x, a[0], a[1], false))

static Elem whole_power(Exact *x, Elem a, int64_t n)
{
    Elem y = elem_int(1);
    for (int64_t i = n < 0 ? -n : n; i > 0; i--) y = elem_mul(x, y, a);
    return n < 0 ? elem_div(x, elem_int(1), y) : y;
}

WORD(pow)
{
    (void)text;
    if (integers(a[0], a[1])) return a[1].i > 64 ? elem_int(0) : whole_power(x, a[0], a[1].i);
    Elem b = as_float(a[0]), e = as_float(a[1]);
    double twice = 2 * e.v;
    if (twice == nearbyint(twice) && fabs(twice) <= 64 && is_number(e)) {
        int64_t n = (int64_t)floor(e.v);
        Elem y = whole_power(x, b, n);
        y = 2 * (double)n == twice ? as_float(y) : elem_mul(x, y, elem_sqrt(x, b));
        return elem_float(y.r, y.r == 0 && isfinite(y.v) ? y.v : pow(b.v, e.v));
    }
    if (b.r == 0) return elem_float(e.r == 0 ? res_one : 0, pow(b.v, e.v));
    Elem y = elem_exp(x, elem_mul(x, e, elem_log(x, b)));
    return elem_float(y.r, pow(b.v, e.v));
}

WORD(nan_to_num)
{
    (void)text;
    if (a[0].kind != FLOAT || isfinite(a[0].v)) return a[0];
    if (a[0].v != a[0].v) return a[1].kind ? a[1] : elem_int(0);
    const Elem *to = a[0].v > 0 ? &a[2] : &a[3];
    return to->kind ? *to : elem_number(copysign(dtype_highest(x->dtype), a[0].v));
}

WORD(gelu) /* x (1 + erf(x / sqrt 2)) / 2, or by the hyperbolic tangent (Hendrycks and Gimpel 2016) */
{
    Elem inner, v = as_float(a[0]);
    if (text && !strcmp(text, "tanh")) {
        Elem cube = elem_mul(x, v, elem_mul(x, v, v));
        inner = elem_add(x, v, elem_mul(x, elem_number(0.044715), cube));
        inner = elem_tanh(x, elem_mul(x, elem_number(0.79788456080286535588), inner));
    } else {
        Elem half = elem_mul(x, v, elem_number(0.70710678118654752440));
        inner = elem_op(x, OP_erf, 1, &half);
    }
    return elem_mul(x, elem_mul(x, v, elem_number(0.5)), elem_add(x, elem_int(1), inner));
}

WORD(gelu_backward) /* a[0] times the derivative */
{
    Elem v = as_float(a[1]), one = elem_int(1), half = elem_number(0.5), slope, value;
    if (text && !strcmp(text, "tanh")) {
        Elem c = elem_number(0.79788456080286535588), k = elem_number(0.044715), square = elem_mul(x, v, v);
        Elem t = elem_tanh(x, elem_mul(x, c, elem_add(x, v, elem_mul(x, k, elem_mul(x, v, square)))));
        slope = elem_mul(x, c, elem_add(x, one, elem_mul(x, elem_int(3), elem_mul(x, k, square))));
        slope = elem_mul(x, slope, elem_sub(x, one, elem_mul(x, t, t)));
        slope = elem_mul(x, half, slope);
        value = elem_mul(x, half, elem_add(x, one, t));
    } else {
        Elem scaled = elem_mul(x, v, elem_number(0.70710678118654752440));
        value = elem_mul(x, half, elem_add(x, one, elem_op(x, OP_erf, 1, &scaled)));
        slope = elem_exp(x, elem_mul(x, elem_number(-0.5), elem_mul(x, v, v)));
        slope = elem_mul(x, slope, elem_number(0.39894228040143267794));
    }
    return elem_mul(x, a[0], elem_add(x, value, elem_mul(x, v, slope)));
}

/* ------------------------------------------------------------------ functions without laws */

#define WITHOUT_LAWS(name, tag, f, odd)                                                                                \
    WORD(name)                                                                                                         \
    {                                                                                                                  \
        (void)x, (void)text;                                                                                           \
        Elem e = as_float(a[0]);                                                                                       \
        if (!isfinite(e.v)) return elem_number(f(e.v));                                                                \
        bool turned = (odd) && e.v < 0;                                                                                \
        Res r = e.r == 0 && (odd) ? 0 : res_hash(tag, turned ? res_neg(e.r) : e.r);                                    \
        return elem_float(turned ? res_neg(r) : r, f(e.v));                                                            \
    }

WITHOUT_LAWS(erf, 601, erf, true)
WITHOUT_LAWS(asin, 602, asin, true)
WITHOUT_LAWS(acos, 603, acos, false)
WITHOUT_LAWS(atan, 604, atan, true)
WITHOUT_LAWS(asinh, 605, asinh, true)
WITHOUT_LAWS(acosh, 606, acosh, false)
WITHOUT_LAWS(atanh, 607, atanh, true)
WITHOUT_LAWS(lgamma, 608, lgamma, false)
