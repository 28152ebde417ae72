/* Functions that are sums or recurrences, as loops over their terms, for ONNX. Contract in loops.h.
 *
 *     chebyshev_polynomial_t(x, n)  ->  p, q, y = loop([1, x, ..], q, 2 x q - p, where(n == turn + 2, 2 x q - p, y))
 *     gcd(a, b)                     ->  a, b = loop([|a|, |b|], b, a mod b) while any b is not 0
 *
 * What is summed is summed in float64.
 */
#include <math.h>
#include "grad/loops.h"

/* ------------------------------------------------------------------ orthogonal polynomials */

/* The polynomial of degree k + 1 from those of degrees k and k - 1, q and p; k is a number in float64. */
static Value *next_degree(Grad *b, char kind, Value *x, Value *k, Value *q, Value *p)
{
    Value *xq = gd_mul(b, x, q), *kp = gd_mul(b, k, p), *odd = plus(b, times(b, k, 2), 1);
    switch (kind) {
    case 'h': return times(b, gd_minus(b, xq, kp), 2);
    case 'e': return gd_minus(b, xq, kp);
    case 'l': return quotient(b, gd_minus(b, gd_minus(b, gd_mul(b, odd, q), xq), kp), plus(b, k, 1));
    case 'p': return quotient(b, gd_minus(b, gd_mul(b, odd, xq), kp), plus(b, k, 1));
    default: return gd_minus(b, times(b, xq, 2), p); /* Chebyshev's four */
    }
}

static Value *first_degree(Grad *d, char kind, Value *x)
{
    switch (kind) {
    case 'u':
    case 'h': return times(d, x, 2);
    case 'v': return plus(d, times(d, x, 2), -1);
    case 'w': return plus(d, times(d, x, 2), 1);
    case 'l': return plus(d, negative(d, x), 1);
    default: return x;
    }
}

/* Operand i in float64, over all elements of the result */
static Value *spread(Grad *d, int i)
{
    const Value *out = d->node->out[0];
    const Arg *a = &d->node->arg[i];
    if (a->kind == ARG_VALUE) return gd_expand(d, gd_cast(d, a->v, DT_F64), out->rank, out->dim);
    return GD(d, full, arg_exprs(d->g, out->rank, out->dim), *a, arg_dtype(DT_F64));
}

/* Of x and a degree n that is cut to a whole number; 0 where that is negative. kind: a letter, after an 's' where x is
 * shifted to 2 x - 1. */
static bool polynomial(Grad *d, const char *kind)
{
    Value *x = spread(d, 0), *n = spread(d, 1);
    bool shifted = kind[0] == 's';
    if (shifted) x = plus(d, times(d, x, 2), -1);
    n = n ? GD(d, trunc, V(n)) : NULL;
    Value *one = x ? gd_full(d, 1, DT_F64, x->rank, x->dim) : NULL, *q = first_degree(d, kind[shifted], x);
    Value *y = gd_where(d, nought(d, n), one, 0);
    Value *is_one = n ? GD(d, eq_Tensor, V(n), arg_float(d->g, 1)) : NULL;
    y = chosen(d, is_one, q, y);
    Value *most = n ? GD(d, amax, V(n), arg_ints(d->g, 0, NULL)) : NULL;
    Loop l;
    TRY(y && most && open_loop(d, &l));
    Grad *b = &l.in;
    Value *p0 = loop_carry(&l, one), *q0 = loop_carry(&l, q), *y0 = loop_carry(&l, y);
    Value *in = loop_capture(&l, x), *degree = loop_capture(&l, n), *last = loop_capture(&l, most);
    Value *k = plus(b, gd_cast(b, l.turn, DT_F64), 1), *k1 = plus(b, k, 1);
    Value *r = next_degree(b, kind[shifted], in, k, q0, p0);
    Value *next[] = {q0, r, chosen(b, equal(b, degree, k1), r, y0)};
    Value *first = GD(d, gt_Tensor, V(most), arg_float(d->g, 1));
    Node *loop = close_loop(&l, NULL, first, above(b, last, k1), next, 0, NULL);
    return loop && loops_give(d, 0, loop->out[2]);
}

bool loops_chebyshev_t(Grad *d) { return polynomial(d, "t"); }
bool loops_chebyshev_u(Grad *d) { return polynomial(d, "u"); }
bool loops_chebyshev_v(Grad *d) { return polynomial(d, "v"); }
bool loops_chebyshev_w(Grad *d) { return polynomial(d, "w"); }
bool loops_shifted_chebyshev_t(Grad *d) { return polynomial(d, "st"); }
bool loops_shifted_chebyshev_u(Grad *d) { return polynomial(d, "su"); }
bool loops_shifted_chebyshev_v(Grad *d) { return polynomial(d, "sv"); }
bool loops_shifted_chebyshev_w(Grad *d) { return polynomial(d, "sw"); }
bool loops_hermite_h(Grad *d) { return polynomial(d, "h"); }
bool loops_hermite_he(Grad *d) { return polynomial(d, "e"); }
bool loops_laguerre(Grad *d) { return polynomial(d, "l"); }
bool loops_legendre(Grad *d) { return polynomial(d, "p"); }

/* ------------------------------------------------------------------ modified Bessel functions */

/* exp(-|x|) I_order(x), or I_order(x): the series up to |x| = 30, the asymptotic one above. Both have turn + 1 as k. */
static bool bessel(Grad *d, int order, bool scaled)
{
    enum { TERMS = 100, FAR = 30 };
    Value *x = gd_cast(d, gd_value(d, 0), DT_F64), *z = size(d, x);
    Value *q = times(d, square(d, x), 0.25), *one = x ? gd_full(d, 1, DT_F64, x->rank, x->dim) : NULL;
    Value *reach = times(d, z, 8);
    Loop l;
    TRY(one && open_loop(d, &l));
    Grad *b = &l.in;
    Value *near = loop_carry(&l, one), *far = loop_carry(&l, one), *sum = loop_carry(&l, one),
          *tail = loop_carry(&l, one);
    Value *by = loop_capture(&l, q), *over = loop_capture(&l, reach);
    Value *k = plus(b, gd_cast(b, l.turn, DT_F64), 1), *odd = plus(b, times(b, k, 2), -1);
    near = quotient(b, gd_mul(b, near, by), gd_mul(b, k, plus(b, k, order)));
    far = quotient(b, gd_mul(b, far, plus(b, square(b, odd), -4.0 * order)), gd_mul(b, over, k));
    Value *few = k ? GD(b, lt_Tensor, V(k), arg_float(b->g, FAR)) : NULL;
    Value *next[] = {near, far, gd_plus(b, sum, near), gd_plus(b, tail, gd_where(b, few, far, 0))};
    Node *loop = close_loop(&l, gd_int(d, TERMS), NULL, NULL, next, 0, NULL);
    TRY(loop);
    Value *inside = z ? GD(d, lt_Tensor, V(z), arg_float(d->g, FAR)) : NULL;
    Value *below = order ? gd_mul(d, loop->out[2], times(d, x, 0.5)) : loop->out[2];
    Value *out = quotient(d, loop->out[3], root(d, times(d, z, 6.283185307179586)));
    if (order) out = gd_mul(d, out, x ? GD(d, sign, V(x)) : NULL);
    Value *e = z ? GD(d, exp, V(scaled ? negative(d, z) : z)) : NULL;
    Value *y = scaled ? chosen(d, inside, gd_mul(d, below, e), out) : chosen(d, inside, below, gd_mul(d, out, e));
    return loops_give(d, 0, y);
}

bool loops_i0(Grad *d) { return bessel(d, 0, false); }
bool loops_i1(Grad *d) { return bessel(d, 1, false); }
bool loops_i0e(Grad *d) { return bessel(d, 0, true); }
bool loops_i1e(Grad *d) { return bessel(d, 1, true); }

/* exp(x) K_order(x), or K_order(x): the trapezoidal rule for the integral of exp(-x (cosh t - 1)) cosh(order t), as the
 * kernel has it (kernel/gen/special.h), with e^(t / 2) in the hyperbolic functions' places. From FAR on those lose
 * places, and three terms of the asymptotic series have all of them. Source: DLMF 10.40.2. */
static bool bessel_k(Grad *d, int order, bool scaled)
{
    enum { TERMS = 480, FAR = 1000000 };
    const double mu = 4.0 * order;
    Value *x = gd_cast(d, gd_value(d, 0), DT_F64), *half = x ? gd_full(d, 0.5, DT_F64, x->rank, x->dim) : NULL;
    Value *short_ = quotient(d, half, root(d, times(d, x, 0.5 * 0.5 / 0.36))); /* 0.6 / sqrt(x) */
    Value *step = short_ ? GD(d, clamp, V(short_), arg_none(), arg_float(d->g, 0.2)) : NULL;
    Loop l;
    TRY(half && step && open_loop(d, &l));
    Grad *b = &l.in;
    Value *sum = loop_carry(&l, half), *in = loop_capture(&l, x), *width = loop_capture(&l, step);
    Value *t = gd_mul(b, width, plus(b, gd_cast(b, l.turn, DT_F64), 1)),
          *e = t ? GD(b, exp, V(times(b, t, 0.5))) : NULL;
    Value *back = e ? GD(b, reciprocal, V(e)) : NULL, *sinh = times(b, gd_minus(b, e, back), 0.5);
    Value *part = times(b, gd_mul(b, in, square(b, sinh)), -2);
    if (order) { /* cosh(t) */
        Value *cosh = times(b, gd_plus(b, square(b, e), square(b, back)), 0.5);
        part = part && cosh ? gd_plus(b, part, GD(b, log, V(cosh))) : NULL;
    }
    Value *next = part ? gd_plus(b, sum, GD(b, exp, V(part))) : NULL;
    Node *loop = close_loop(&l, gd_int(d, TERMS), NULL, NULL, &next, 0, NULL);
    TRY(loop);
    Value *u = times(d, GD(d, reciprocal, V(x)), 0.125), *low = GD(d, lt_Tensor, V(x), arg_float(d->g, 0));
    Value *more = gd_mul(d, times(d, u, mu - 1), plus(d, times(d, u, (mu - 9) / 2), 1));
    Value *far = quotient(d, times(d, plus(d, more, 1), 1.2533141373155003), root(d, x)); /* sqrt(pi / 2) */
    Value *y = chosen(d, GD(d, gt_Tensor, V(x), arg_float(d->g, FAR)), far, gd_mul(d, loop->out[0], step));
    if (!scaled) y = gd_mul(d, y, GD(d, exp, V(negative(d, x))));
    return loops_give(d, 0, but(d, low, NAN, but(d, nought(d, x), INFINITY, y)));
}

bool loops_k0(Grad *d) { return bessel_k(d, 0, false); }
bool loops_k1(Grad *d) { return bessel_k(d, 1, false); }
bool loops_k0e(Grad *d) { return bessel_k(d, 0, true); }
bool loops_k1e(Grad *d) { return bessel_k(d, 1, true); }

/* ------------------------------------------------------------------ zeta */

static Value *power(Grad *d, Value *x, Value *y) { return x && y ? GD(d, pow_Tensor_Tensor, V(x), V(y)) : NULL; }

/* Hurwitz' zeta function, the sum of (q + k)^-x: terms up to where q + k is 10 or more, then Euler and Maclaurin's
 * series in 1 / (q + k). */
bool loops_zeta(Grad *d)
{
    static const double series[] = {12, -720, 30240, -1209600, 47900160, -1.8924375803183791606e9, 7.47242496e10};
    enum { FAR = 10, N = sizeof series / sizeof *series };
    Value *x = spread(d, 0), *q = spread(d, 1), *down = negative(d, x);
    Value *under = q ? GD(d, clamp, V(negative(d, q)), arg_float(d->g, 0)) : NULL;
    Value *count = under ? plus(d, GD(d, ceil, V(under)), FAR) : NULL;
    Value *most = count ? GD(d, amax, V(count), arg_ints(d->g, 0, NULL)) : NULL;
    Loop l;
    TRY(most && down && open_loop(d, &l));
    Grad *b = &l.in;
    Value *sum = loop_carry(&l, gd_zeros(d, DT_F64, x->rank, x->dim));
    Value *of = loop_capture(&l, q), *by = loop_capture(&l, down), *own = loop_capture(&l, count);
    Value *last = loop_capture(&l, most), *k = gd_cast(b, l.turn, DT_F64);
    Value *next = gd_plus(b, sum, gd_where(b, above(b, own, k), power(b, gd_plus(b, of, k), by), 0));
    Node *loop = close_loop(&l, NULL, GD(d, gt_Tensor, V(most), arg_float(d->g, 0)), above(b, last, plus(b, k, 1)),
                            &next, 0, NULL);
    TRY(loop);
    Value *a = gd_plus(d, q, count), *at = power(d, a, down), *factor = x, *term = quotient(d, at, a);
    Value *tail = gd_plus(d, quotient(d, gd_mul(d, a, at), plus(d, x, -1)), times(d, at, 0.5));
    for (int i = 0; i < N; i++) {
        if (i) factor = gd_mul(d, factor, gd_mul(d, plus(d, x, 2 * i - 1), plus(d, x, 2 * i)));
        if (i) term = quotient(d, term, square(d, a));
        tail = gd_plus(d, tail, times(d, gd_mul(d, factor, term), 1 / series[i]));
    }
    tail = but(d, nought(d, at), 0, tail); /* where powers are too small, factors may be infinite */
    Value *low = GD(d, lt_Tensor, V(x), arg_float(d->g, 1)), *pole = GD(d, eq_Tensor, V(x), arg_float(d->g, 1));
    return loops_give(d, 0, but(d, pole, INFINITY, but(d, low, NAN, gd_plus(d, loop->out[0], tail))));
}

/* ------------------------------------------------------------------ the most frequent element */

/* The least of the most frequent elements, and where it stands last: every element is held against every other. */
bool loops_mode(Grad *d)
{
    Value *x = gd_value(d, 0), *n = NULL;
    int axis = x->rank ? gd_dim(d, 1, x->rank) : 0;
    bool keep = gd_truth(d, 2);
    if (x->rank == MAX_RANK) return true;
    if (!x->rank) x = gd_reshape(d, x, 1, (Expr *[]){gd_int(d, 1)});
    Expr *count = x ? x->dim[axis] : NULL;
    x = gd_swap(d, x, axis, -1);
    TRY(x);
    int last = x->rank - 1;
    Arg by = arg_ints(d->g, 1, (int64_t[]){-1}), stays = arg_bool(d->g, true);
    Value *same = equal(d, gd_insert_axis(d, x, last + 1), gd_insert_axis(d, x, last));
    n = gd_sum(d, gd_cast(d, same, DT_I64), 1, &(int){last + 1}, false);
    Value *often = equal(d, n, n ? GD(d, amax, V(n), by, stays) : NULL);
    Value *rank = GD(d, topk, V(x), arg_expr(count), arg_int(d->g, -1), arg_bool(d->g, false)); /* rising */
    Value *order = rank ? rank->def->out[1] : NULL, *at = gd_arange(d, count);
    Value *of = order ? GD(d, gather, V(often), arg_int(d->g, -1), V(order)) : NULL;
    Value *first = of ? GD(d, argmax, V(gd_cast(d, of, DT_I64)), arg_int(d->g, -1), stays) : NULL;
    Value *value = first ? GD(d, gather, V(rank), arg_int(d->g, -1), V(first)) : NULL;
    Value *where = equal(d, x, value);
    where = where ? GD(d, where_self, V(where), V(at), arg_int(d->g, -1)) : NULL;
    where = where ? GD(d, amax, V(where), by, stays) : NULL;
    Value *y[] = {gd_swap(d, value, axis, -1), gd_swap(d, where, axis, -1)};
    for (int k = 0; k < 2; k++) {
        const Value *out = d->node->out[k];
        if (y[k] && !(keep && y[k]->rank == out->rank)) y[k] = gd_reshape(d, y[k], out->rank, out->dim);
        TRY(loops_give(d, k, y[k]));
    }
    return true;
}

/* ------------------------------------------------------------------ whole numbers */

/* Operand i without its sign in i64, over all elements of the result */
static Value *whole(Grad *d, int i)
{
    const Value *out = d->node->out[0];
    const Arg *a = &d->node->arg[i];
    if (a->kind == ARG_VALUE) return gd_expand(d, size(d, gd_cast(d, a->v, DT_I64)), out->rank, out->dim);
    return size(d, GD(d, full, arg_exprs(d->g, out->rank, out->dim), *a, arg_dtype(DT_I64)));
}

/* Is any element of b not 0? */
static Value *left(Grad *d, Value *b)
{
    int every[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) every[i] = i;
    Value *some = b ? GD(d, ne_Tensor, V(b), arg_int(d->g, 0)) : NULL;
    some = gd_sum(d, gd_cast(d, some, DT_I64), b ? b->rank : 0, every, false);
    return some ? GD(d, gt_Tensor, V(some), arg_int(d->g, 0)) : NULL;
}

/* Euclid's: a, b = b, a mod b, until b is 0 everywhere */
static Value *divisor(Grad *d, Value *a, Value *b)
{
    Loop l;
    Value *first = left(d, b);
    if (!first || !open_loop(d, &l)) return NULL;
    Grad *in = &l.in;
    Value *x = loop_carry(&l, a), *y = loop_carry(&l, b);
    Value *done = y ? GD(in, eq_Tensor, V(y), arg_int(in->g, 0)) : NULL;
    Value *by = done ? GD(in, where_self, V(done), arg_int(in->g, 1), V(y)) : NULL;
    Value *rest = x && by ? GD(in, fmod_Tensor, V(x), V(by)) : NULL;
    Value *next[] = {chosen(in, done, x, y), rest};
    Node *loop = close_loop(&l, NULL, first, left(in, rest), next, 0, NULL);
    return loop ? loop->out[0] : NULL;
}

bool loops_gcd(Grad *d) { return loops_give(d, 0, divisor(d, whole(d, 0), whole(d, 1))); }

/* a / gcd(a, b) b; 0 where both are 0 */
bool loops_lcm(Grad *d)
{
    Value *a = whole(d, 0), *b = whole(d, 1), *g = divisor(d, a, b);
    Value *none = g ? GD(d, eq_Tensor, V(g), arg_int(d->g, 0)) : NULL;
    Value *by = none ? GD(d, where_self, V(none), arg_int(d->g, 1), V(g)) : NULL;
    Value *share = a && by ? GD(d, div_Tensor_mode, V(a), V(by), arg_str(d->g, "trunc")) : NULL;
    return loops_give(d, 0, size(d, gd_mul(d, share, b)));
}
