/* Elementary functions. Contract in elementary.h.
 *
 * Arguments are reduced to where a Taylor series or a few terms of a table suffice: exp by multiples of ln 2, log by
 * powers of 2, sine and cosine by multiples of pi / 2, atan by eighths. What a result must not lose is carried as the
 * sum of two doubles (Two).
 */
#include "base/elementary.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* high + low, low small beside high */
typedef struct Two {
    double high, low;
} Two;

static const double LN2 = 0x1.62e42fefa39efp-1, LN2_HIGH = 0x1.62e42fefp-1, LN2_LOW = 0x1.473de6af278edp-34;
static const double PI = 0x1.921fb54442d18p+1, HALF_PI = 0x1.921fb54442d18p+0, HALF_PI_LOW = 0x1.1a62633145c07p-54;
static const double EULER = 0.57721566490153286061, WHOLE = 0x1.8p52; /* WHOLE: x + WHOLE - WHOLE is a whole number */

static uint64_t bits_of(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static double of_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static double nearest(double x) { return x + WHOLE - WHOLE; } /* |x| < 2^51 */

/* x * 2^n, rounded once: n in [-1100, 1100], x about 1 */
static double scaled(double x, int n)
{
    int half = n / 2;
    return x * of_bits((uint64_t)(half + 1023) << 52) * of_bits((uint64_t)(n - half + 1023) << 52);
}

/* ------------------------------------------------------------------ sums of two */

static Two sum_of(double a, double b)
{
    double s = a + b, part = s - a;
    return (Two){s, (a - (s - part)) + (b - part)};
}

/* The same where |a| >= |b|. */
static Two sum_of_ordered(double a, double b)
{
    double s = a + b;
    return (Two){s, b - (s - a)};
}

/* The upper 26 bits of x. */
static double upper(double x) { return of_bits(bits_of(x) & ~UINT64_C(0x7ffffff)); }

/* Exactly, where nothing overflows. */
static Two product_of(double a, double b)
{
    double p = a * b, ah = upper(a), al = a - ah, bh = upper(b), bl = b - bh;
    return (Two){p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}

static Two times(Two a, Two b)
{
    Two p = product_of(a.high, b.high);
    return sum_of_ordered(p.high, p.low + (a.high * b.low + a.low * b.high));
}

/* c[0] + c[1] x + ... */
static double series(const double *c, int n, double x)
{
    double y = c[--n];
    while (n) y = y * x + c[--n];
    return y;
}

/* ------------------------------------------------------------------ powers */

/* (e^x - 1 - x) / x^2 for |x| < 0.35 */
static double exp_rest(double x)
{
    static const double c[] = {1 / 2.0,       1 / 6.0,        1 / 24.0,        1 / 120.0,
                               1 / 720.0,     1 / 5040.0,     1 / 40320.0,     1 / 362880.0,
                               1 / 3628800.0, 1 / 39916800.0, 1 / 479001600.0, 1 / 6227020800.0};
    return series(c, sizeof c / sizeof *c, x);
}

/* e^x of x.high + x.low */
static double exp_of(Two x)
{
    if (x.high != x.high) return x.high;
    if (x.high > 710) return INFINITY;
    if (x.high < -746) return 0;
    double n = nearest(x.high * 0x1.71547652b82fep+0);
    Two r = sum_of(x.high - n * LN2_HIGH, x.low - n * LN2_LOW);
    return scaled(1 + (r.high + (r.low + r.high * r.high * exp_rest(r.high))), (int)n);
}

double real_exp(double x) { return exp_of((Two){x, 0}); }

double real_exp2(double x)
{
    if (x != x) return x;
    if (x > 1100) return INFINITY;
    if (x < -1100) return 0;
    double n = nearest(x), r = (x - n) * LN2;
    return scaled(1 + (r + r * r * exp_rest(r)), (int)n);
}

double real_expm1(double x)
{
    if (x == 0) return x;
    if (fabs(x) < 0.35) return x + x * x * exp_rest(x);
    return real_exp(x) - 1;
}

/* ------------------------------------------------------------------ logarithms */

/* x = m 2^e with m in [sqrt 1/2, sqrt 2); x > 0 and finite */
static double mantissa(double x, int *e)
{
    *e = 0;
    if (x < 0x1p-1022) x *= 0x1p54, *e = -54;
    uint64_t u = bits_of(x) + (UINT64_C(0x3ff0000000000000) - UINT64_C(0x3fe6a09e667f3bcd));
    *e += (int)(u >> 52) - 1023;
    return of_bits((u & UINT64_C(0xfffffffffffff)) + UINT64_C(0x3fe6a09e667f3bcd));
}

/* 2 (z / 3 + z^2 / 5 + ...), z = s^2, |s| < 0.172: ln((1 + s) / (1 - s)) = s (2 + this) */
static double log_rest(double z)
{
    static const double c[] = {2 / 3.0,  2 / 5.0,  2 / 7.0,  2 / 9.0,  2 / 11.0, 2 / 13.0,
                               2 / 15.0, 2 / 17.0, 2 / 19.0, 2 / 21.0, 2 / 23.0};
    return z * series(c, sizeof c / sizeof *c, z);
}

/* ln(1 + f) less f, 1 + f a mantissa */
static double log_of_more(double f)
{
    double s = f / (2 + f), half = 0.5 * f * f;
    return s * (half + log_rest(s * s)) - half;
}

static bool has_log(double x) { return x > 0 && x < INFINITY; }
static double without_log(double x) { return x == 0 ? -INFINITY : x < 0 ? (double)NAN : x; }

double real_log(double x)
{
    if (!has_log(x)) return without_log(x);
    int e;
    double f = mantissa(x, &e) - 1, n = e;
    return n * LN2_HIGH + (f + (log_of_more(f) + n * LN2_LOW));
}

/* ln x in two parts, right to 2^-65 of it */
static Two log_two(double x)
{
    int e;
    double m = mantissa(x, &e), f = m - 1, n = e;
    Two d = sum_of_ordered(2, f), s = {f / d.high, 0};
    Two back = product_of(s.high, d.high);
    s.low = (((f - back.high) - back.low) - s.high * d.low) / d.high;
    Two z = times(s, s), third = times(z, (Two){0x1.5555555555555p-2, 0x1.5555555555555p-56});
    double rest = (log_rest(z.high) - z.high * (2 / 3.0)) / 2;
    Two more = sum_of_ordered(third.high, third.low + rest);
    Two p = times(s, more), y = sum_of_ordered(s.high, p.high);
    y.low += s.low + p.low;
    Two all = sum_of(n * LN2_HIGH, 2 * y.high);
    return sum_of_ordered(all.high, all.low + (2 * y.low + n * LN2_LOW));
}

/* log x / log base, of whole powers exactly; high and low: log 2 in that base, and 1 / ln base in two parts */
static double log_in(double x, double high, double low, Two inverse)
{
    if (!has_log(x)) return without_log(x);
    int e;
    double f = mantissa(x, &e) - 1, n = e;
    Two y = sum_of_ordered(f, log_of_more(f)), part = times(y, inverse), whole = sum_of(n * high, part.high);
    return whole.high + (whole.low + (part.low + n * low));
}

double real_log2(double x) { return log_in(x, 1, 0, (Two){0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56}); }

double real_log10(double x)
{
    return log_in(x, 0x1.34413508p-2, 0x1.f79fef311f12bp-34, (Two){0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57});
}

double real_log1p(double x)
{
    double u = 1 + x;
    if (u == 1 || !has_log(u)) return u == 1 ? x : without_log(u);
    return real_log(u) + (x - (u - 1)) / u;
}

/* ------------------------------------------------------------------ x^y */

static bool is_whole(double y) { return y == floor(y); }
static bool is_odd(double y) { return fabs(y) < 0x1p53 && is_whole(y) && !is_whole(y / 2); }

/* x is 0 or infinite */
static double pow_of_end(double x, double y)
{
    double size = (x == 0) == (y > 0) ? 0 : INFINITY;
    return signbit(x) && is_odd(y) ? -size : size;
}

double real_pow(double x, double y)
{
    if (y == 0 || x == 1) return 1;
    if (x != x || y != y) return x + y;
    double a = fabs(x);
    if (isinf(y)) return a == 1 ? 1 : (a > 1) == (y > 0) ? INFINITY : 0;
    if (a == 0 || isinf(x)) return pow_of_end(x, y);
    if (x < 0 && !is_whole(y)) return NAN;
    double sign = x < 0 && is_odd(y) ? -1 : 1;
    if (a == 1) return sign;
    if (fabs(y) > 0x1p65) return (a > 1) == (y > 0) ? sign * (double)INFINITY : sign * 0;
    Two log = log_two(a), p = product_of(y, log.high);
    return sign * exp_of(sum_of_ordered(p.high, p.low + y * log.low));
}

double real_hypot(double x, double y)
{
    double a = fabs(x), b = fabs(y);
    if (isinf(a) || isinf(b)) return INFINITY;
    if (a < b) a = fabs(y), b = fabs(x);
    if (!(b > 0) || a + b == a) return a + b;
    double by = a > 0x1p500 ? 0x1p-600 : b < 0x1p-450 ? 0x1p600 : 1;
    a *= by, b *= by;
    return sqrt(a * a + b * b) / by;
}

/* ------------------------------------------------------------------ sine and cosine */

/* x less the nearest multiple of pi / 2, which is returned modulo 4; |x| < 2^20 */
static int turn_small(double x, Two *r)
{
    static const double part[] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2ep-69, 0x1.b839a252049c1p-104};
    double n = nearest(x * 0x1.45f306dc9c883p-1);
    Two first = sum_of(x - n * part[0], -n * part[1]), second = sum_of(first.high, -n * part[2]);
    *r = sum_of(second.high, second.low + first.low - n * part[3]);
    return (int)((int64_t)n & 3);
}

/* The same for any x of 2^20 and more: of the bits of 2 / pi those that do not give whole turns, times x's. */
static int turn_large(double x, Two *r)
{
    static const uint64_t two_by_pi[] = {0,
                                         0xa2f9836e4e441529,
                                         0xfc2757d1f534ddc0,
                                         0xdb6295993c439041,
                                         0xfe5163abdebbc561,
                                         0xb7246e3a424dd2e0,
                                         0x06492eea09d1921c,
                                         0xfe1deb1cb129a73e,
                                         0xe88235f52ebb4484,
                                         0xe99c7026b45f7e41,
                                         0x3991d639835339f4,
                                         0x9c845f8bbdf9283b,
                                         0x1ff897ffde05980f,
                                         0xef2f118b5a0a6d1f,
                                         0x6d367ecf27cb09b7,
                                         0x4f463f669e5fea2d,
                                         0x7527bac7ebe5f17b,
                                         0x3d0739f78a5292ea,
                                         0x6bfb5fb11f8d5d08,
                                         0x56033046fc7b6bab};
    __extension__ typedef unsigned __int128 Wide;
    uint64_t u = bits_of(x), m = (u & UINT64_C(0xfffffffffffff)) | UINT64_C(0x10000000000000), w[3];
    int from = (int)(u >> 52 & 2047) - 1075 - 2 + 64; /* |x| = m 2^e; the bits of 2 / pi before e - 2 */
    for (int i = 0; i < 3; i++) {
        int at = from / 64 + i, shift = from % 64;
        w[i] = two_by_pi[at] << shift | (shift ? two_by_pi[at + 1] >> (64 - shift) : 0);
    }
    Wide middle = (Wide)m * w[1] + (uint64_t)((Wide)m * w[2] >> 64);
    Wide quarters = ((Wide)(m * w[0]) << 64) + middle; /* modulo 4, the point after two bits */
    int n = (int)(quarters >> 126);
    bool past = quarters >> 125 & 1; /* more than half a quarter: the next one less the rest */
    quarters <<= 2;
    if (past) quarters = -quarters, n++;
    uint64_t high = (uint64_t)(quarters >> 64), low = (uint64_t)quarters;
    Two f = {(double)(high >> 11) * 0x1p-53, (double)(high & 2047) * 0x1p-64 + (double)low * 0x1p-128};
    *r = times(f, (Two){HALF_PI, HALF_PI_LOW});
    if (past != signbit(x)) *r = (Two){-r->high, -r->low};
    return (signbit(x) ? -n : n) & 3;
}

static int turn(double x, Two *r)
{
    if (fabs(x) < 0.785) return *r = (Two){x, 0}, 0;
    return fabs(x) < 0x1p20 ? turn_small(x, r) : turn_large(x, r);
}

static double sine(Two x)
{
    static const double c[] = {-1 / 6.0,        1 / 120.0,        -1 / 5040.0,          1 / 362880.0,
                               -1 / 39916800.0, 1 / 6227020800.0, -1 / 1307674368000.0, 1 / 355687428096000.0};
    double z = x.high * x.high;
    if (x.high == 0) return x.high;
    return x.high + (x.high * z * series(c, sizeof c / sizeof *c, z) + x.low * (1 - 0.5 * z));
}

static double cosine(Two x)
{
    static const double c[] = {1 / 24.0,        -1 / 720.0,         1 / 40320.0,          -1 / 3628800.0,
                               1 / 479001600.0, -1 / 87178291200.0, 1 / 20922789888000.0, -1 / 6402373705728000.0};
    double z = x.high * x.high, half = 0.5 * z, y = 1 - half;
    return y + (((1 - y) - half) + (z * z * series(c, sizeof c / sizeof *c, z) - x.high * x.low));
}

/* sin(x + quarters pi / 2) */
static double wave(double x, int quarters)
{
    Two r;
    if (!isfinite(x)) return NAN;
    int n = (turn(x, &r) + quarters) & 3;
    double y = n & 1 ? cosine(r) : sine(r);
    return n & 2 ? -y : y;
}

double real_sin(double x) { return wave(x, 0); }
double real_cos(double x) { return wave(x, 1); }

double real_tan(double x)
{
    Two r;
    if (!isfinite(x)) return NAN;
    int n = turn(x, &r);
    return n & 1 ? -cosine(r) / sine(r) : sine(r) / cosine(r);
}

/* ------------------------------------------------------------------ and their inverses */

double real_atan(double x)
{
    static const double eighth[] = {0,
                                    0.12435499454676143503,
                                    0.24497866312686415417,
                                    0.3587706702705722204,
                                    0.46364760900080611621,
                                    0.55859931534356243597,
                                    0.6435011087932843868,
                                    0.71882999962162450542,
                                    0.78539816339744830962};
    static const double c[] = {1 / 3.0, -1 / 5.0, 1 / 7.0, -1 / 9.0, 1 / 11.0, -1 / 13.0, 1 / 15.0};
    double a = fabs(x), t = a > 1 ? 1 / a : a;
    if (x != x) return x;
    int i = (int)(t * 8 + 0.5);
    double u = (t - i * 0.125) / (1 + t * (i * 0.125)), z = u * u;
    double y = eighth[i] + (u - u * z * series(c, sizeof c / sizeof *c, z));
    if (a > 1) y = HALF_PI - (y - HALF_PI_LOW);
    return copysign(y, x);
}

double real_atan2(double y, double x)
{
    if (x != x || y != y) return x + y;
    double a = fabs(y), b = fabs(x), angle;
    if (a == 0) angle = 0;
    else if (b == 0 || (isinf(a) && !isinf(b))) angle = HALF_PI;
    else if (isinf(a)) angle = HALF_PI / 2;
    else angle = real_atan(a / b);
    if (signbit(x)) angle = PI - (angle - 2 * HALF_PI_LOW);
    return copysign(angle, y);
}

double real_asin(double x) { return fabs(x) == 1 ? copysign(HALF_PI, x) : real_atan(x / sqrt((1 - x) * (1 + x))); }
double real_acos(double x) { return 2 * real_atan(sqrt((1 - x) / (1 + x))); }

/* ------------------------------------------------------------------ hyperbolic functions */

double real_sinh(double x)
{
    double a = fabs(x), t = real_expm1(a), half = real_exp(a / 2);
    double y = a < 22 ? (t + t / (t + 1)) / 2 : half / 2 * half;
    return copysign(y, x);
}

double real_cosh(double x)
{
    double a = fabs(x), e = real_exp(a), half = real_exp(a / 2);
    return a < 22 ? e / 2 + 0.5 / e : half / 2 * half;
}

double real_tanh(double x)
{
    double a = fabs(x), t = real_expm1(2 * a);
    if (x != x) return x;
    return copysign(a > 22 ? 1 : t / (t + 2), x);
}

double real_asinh(double x)
{
    double a = fabs(x);
    if (!isfinite(x)) return x;
    return copysign(a > 0x1p28 ? real_log(a) + LN2 : real_log1p(a + a * a / (1 + sqrt(a * a + 1))), x);
}

double real_acosh(double x)
{
    double t = x - 1;
    if (x < 1) return NAN;
    return x > 0x1p28 ? real_log(x) + LN2 : real_log1p(t + sqrt(2 * t + t * t));
}

double real_atanh(double x)
{
    double a = fabs(x);
    return copysign(0.5 * real_log1p(2 * a / (1 - a)), x);
}

/* ------------------------------------------------------------------ the error function */

/* e^(-x x) */
static double bell(double x)
{
    if (x > 30) return 0;
    Two p = product_of(x, x);
    return exp_of((Two){-p.high, -p.low});
}

/* erfc for x >= 0: e^(-x x) / (1 + 2 x) times a Chebyshev series in (x - 15/4) / (x + 15/4) (after M. M. Shepherd and
 * J. G. Laframboise 1981; coefficients computed with 200 bits) */
static double erfc_above(double x)
{
    static const double c[] = {
        1.1775789345674017541,       -0.0045900545806464773309,  -0.084249133366517915584,   0.059209939998191890498,
        -0.026658668435305752277,    0.0090749976707052650939,   -0.0024131635404176081909,  0.00049077583652580863229,
        -0.000069169733025012063671, 4.1390279860730101675e-6,   7.7403830661984906686e-7,   -2.1886401049234395661e-7,
        1.0764999465670910377e-8,    4.5219598112182868979e-9,   -7.7544002088313511065e-10, -6.3180883408866844944e-11,
        2.8687950109306698981e-11,   1.945586854577734723e-13,   -9.6546967484334389059e-13, 3.2525481481487398415e-14,
        3.3478119482868053878e-14,   -1.8645628804193131015e-15, -1.2507950530688647085e-15, 7.418235256624043463e-17};
    double t = (x - 3.75) / (x + 3.75), b = 0, above = 0;
    for (int k = sizeof c / sizeof *c - 1; k > 0; k--) {
        double next = 2 * t * b - above + c[k];
        above = b;
        b = next;
    }
    return bell(x) * (t * b - above + c[0]) / (1 + 2 * x);
}

double real_erf(double x)
{
    double a = fabs(x), term = a, sum = a;
    if (x != x) return x;
    if (a > 6) return copysign(1, x);
    if (a >= 1) return copysign(1 - erfc_above(a), x);
    for (int k = 1; term > sum * 0x1p-56; k++) sum += term *= 2 * a * a / (2 * k + 1);
    return copysign(1.12837916709551257390 * bell(a) * sum, x);
}

double real_erfc(double x)
{
    if (x != x) return x;
    if (x < 0.5) return 1 - real_erf(x);
    return isinf(x) ? 0 : erfc_above(x);
}

/* ------------------------------------------------------------------ the logarithm of the gamma function */

/* ln of x.high + x.low */
static Two log_of(Two x)
{
    Two y = log_two(x.high);
    return sum_of_ordered(y.high, y.low + x.low / x.high);
}

/* Stirling's series beyond 10; below, x (x + 1) ... is divided out: of two large numbers little may be left. */
static double lgamma_above(double x)
{
    static const double c[] = {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360, 1.0 / 156};
    Two product = {1, 0}, far = {x, 0};
    if (x == 1 || x == 2) return 0;
    for (int n = 0; far.high < 10; far = sum_of(x, ++n)) product = times(product, far);
    double z = 1 / far.high, tail = series(c, sizeof c / sizeof *c, z * z) * z;
    Two l = log_of(far), less = sum_of(l.high, -1), by = sum_of(far.high, -0.5), p = log_of(product);
    Two main = times(by, (Two){less.high, less.low + l.low}), sum = sum_of(main.high, -p.high);
    return sum.high + (sum.low + (main.low + far.low * less.high - p.low) + (0.41893853320467274178 + tail));
}

double real_lgamma(double x)
{
    if (x != x) return x;
    if (isinf(x) || x > 2.55998332785163e305) return INFINITY; /* those of larger ones overflow */
    if (x > 0) return lgamma_above(x);
    double part = fabs(x - rint(x));
    if (part == 0) return INFINITY;
    return real_log(PI / (real_sin(PI * part) * -x)) - lgamma_above(-x);
}

/* ------------------------------------------------------------------ Bessel functions */

/* Of orders 0 and 1, x > 0. */
typedef struct Bessel {
    double j[2], y[2];
} Bessel;

/* Hankel's asymptotic series, whose terms shrink as long as k < 2 x */
static Bessel bessel_far(double x)
{
    Bessel b;
    double s = real_sin(x), c = real_cos(x), by = 1 / sqrt(PI * x);
    for (int n = 0; n < 2; n++) {
        double even = 1, odd = 0, term = 1;
        for (int k = 1; k < 60; k++) {
            double next = term * (4 * n - (2 * k - 1) * (2 * k - 1)) / (8 * k * x);
            if (fabs(next) >= fabs(term) || fabs(next) < 1e-20) break;
            term = next;
            if (k & 1) odd += k & 2 ? -term : term;
            else even += k & 2 ? -term : term;
        }
        double cosine = n ? s - c : c + s, sine = n ? -s - c : s - c; /* times sqrt 2, of x - n pi/2 - pi/4 */
        b.j[n] = by * (even * cosine - odd * sine);
        b.y[n] = by * (even * sine + odd * cosine);
    }
    return b;
}

/* All orders from the recurrence downwards, scaled so that J0 + 2 J2 + 2 J4 + ... = 1; Y by Neumann's series. */
static Bessel bessel_near(double x)
{
    enum { ORDERS = 96 };
    double j[ORDERS + 2] = {[ORDERS] = 1e-300}, sum = 0, log = real_log(x / 2) + EULER, even = 0, odd = 0;
    for (int n = ORDERS; n > 0; n--) {
        j[n - 1] = 2 * n / x * j[n] - j[n + 1];
        if (fabs(j[n - 1]) > 1e250)
            for (int k = n - 1; k <= ORDERS; k++) j[k] *= 1e-250;
    }
    for (int n = ORDERS; n > 0; n -= 2) sum += 2 * j[n];
    sum += j[0];
    for (int n = 0; n <= ORDERS; n++) j[n] /= sum;
    for (int k = ORDERS / 2 - 1; k > 0; k--) {
        double sign = k & 1 ? -1 : 1;
        even += sign * j[2 * k] / k;
        odd += sign * (2 * k + 1) * j[2 * k + 1] / ((double)k * (k + 1));
    }
    return (Bessel){.j = {j[0], j[1]},
                    .y = {2 / PI * (log * j[0] - 2 * even), 2 / PI * ((log - 1) * j[1] - j[0] / x - odd)}};
}

static Bessel bessel(double x) { return x > 25 ? bessel_far(x) : bessel_near(x); }

static double bessel_j(double x, int n)
{
    double a = fabs(x);
    if (x != x) return x;
    if (isinf(x)) return 0;
    if (a < 1e-9) return n ? x / 2 : 1;
    double y = bessel(a).j[n];
    return n && x < 0 ? -y : y;
}

static double bessel_y(double x, int n)
{
    if (!(x > 0)) return x == 0 ? -INFINITY : (double)NAN;
    if (isinf(x)) return 0;
    if (x < 1e-9) return n ? -2 / (PI * x) : 2 / PI * (real_log(x / 2) + EULER);
    return bessel(x).y[n];
}

double real_j0(double x) { return bessel_j(x, 0); }
double real_j1(double x) { return bessel_j(x, 1); }
double real_y0(double x) { return bessel_y(x, 0); }
double real_y1(double x) { return bessel_y(x, 1); }
