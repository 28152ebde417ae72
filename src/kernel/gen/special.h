/* Special functions in double, for pointwise.c: Bessel functions, the scaled complement of the error function, zeta,
 * incomplete gamma functions, orthogonal polynomials. Values outside of a function's domain are ATen's
 * (ATen/native/Math.h). */
#ifndef QKV_KERNEL_GEN_SPECIAL_H
#define QKV_KERNEL_GEN_SPECIAL_H
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/elementary.h"

static const double PI = 3.14159265358979323846;

/* ------------------------------------------------------------------ Bessel functions */

/* exp(-|x|) I_order(x), order 0 or 1: the series, or for large x the asymptotic one. */
static double bessel_ie(double x, int order)
{
    double z = fabs(x), term = 1, sum = 1, q = z * z / 4;
    if (z < 30) {
        for (int k = 1; term > sum * 1e-18; k++) sum += term *= q / ((double)k * (k + order));
        return real_exp(-z) * sum * (order ? x / 2 : 1);
    }
    for (int k = 1; k < 30; k++) {
        double next = -term * (4 * order - (2 * k - 1) * (2 * k - 1)) / (8 * k * z);
        if (!(fabs(next) < fabs(term))) break;
        sum += term = next;
    }
    return (order && x < 0 ? -sum : sum) / (sqrt(2 * PI) * sqrt(z));
}

/* K_0 and K_1 of small x, as far as doubles go: the first terms of their series. Source: DLMF 10.31. */
static double bessel_k_near(double x, double order)
{
    double log = real_log(x / 2) + 0.57721566490153286061, z = x * x / 4;
    return order > 0 ? 1 / x + x / 2 * (log - 0.5) : z - log * (1 + z);
}

/* exp(x) K_order(x), the integral of exp(-x (cosh t - 1)) cosh(order t) over t > 0. The trapezoidal rule is exact to
 * the last place where its step is short beside the width of the integrand. */
static double bessel_ke(double x, double order)
{
    if (x == 0) return INFINITY;
    if (!(x > 0)) return NAN;
    if (x > 1e12) return sqrt(PI / 2) / sqrt(x); /* the first term of the asymptotic series */
    if (x < 1e-4 && (order == 0 || order == 1)) return real_exp(x) * bessel_k_near(x, order);
    double step = fmin(0.2, 0.6 / sqrt(x)), sum = 0.5;
    for (int k = 1; k < 256; k++) {
        double t = k * step, s = real_sinh(t / 2), part = real_exp(-2 * x * s * s) * real_cosh(order * t);
        sum += part;
        if (part < sum * 1e-18) break;
    }
    return sum * step;
}

static double bessel_k(double x, int order) { return bessel_ke(x, order) * (x > 0 ? real_exp(-x) : 1); }

static double spherical_j0(double x)
{
    if (isinf(x)) return 0;
    return fabs(x) < 1e-4 ? 1 - x * x / 6 : real_sin(x) / x;
}

/* sin(z + pi/4) and cos(z + pi/4) times sums over odd and even terms of the asymptotic series in 1 / z */
static double airy_waves(double x)
{
    double z = 2.0 / 3 * x * sqrt(x), u = 1, even = 1, odd = 0;
    for (int k = 1; k < 40; k++) {
        double next = u * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216.0 * k * (2 * k - 1) * z);
        if (!(next < u)) break;
        u = next;
        if (k % 2) odd += (k % 4 == 1 ? u : -u);
        else even += (k % 4 == 2 ? -u : u);
    }
    return (real_sin(z + PI / 4) * even - real_cos(z + PI / 4) * odd) / sqrt(PI * sqrt(x));
}

/* The power series from -8 to 1; sqrt(x / 3) K_1/3(2/3 x^3/2) / pi above. */
static double airy_ai(double x)
{
    if (!isfinite(x)) return NAN;
    if (x > 103.892) return 0;
    if (x > 1) {
        double z = 2.0 / 3 * x * sqrt(x);
        return sqrt(x / 3) * bessel_ke(z, 1.0 / 3) * real_exp(-z) / PI;
    }
    if (x < -8) return airy_waves(-x);
    double f = 1, g = x, sum_f = 1, sum_g = x, cube = x * x * x;
    for (int k = 1; k < 60; k++) {
        sum_f += f *= cube / ((3.0 * k - 1) * 3 * k);
        sum_g += g *= cube / (3.0 * k * (3 * k + 1));
    }
    return 0.355028053887817239260 * sum_f - 0.258819403792806798405 * sum_g;
}

/* ------------------------------------------------------------------ the error function's relatives */

/* exp(x^2) erfc(x) */
static double erfcx(double x)
{
    if (x != x) return x;
    if (x < 25) return real_exp(x * x) * real_erfc(x);
    double y = 1 / (x * x);
    return (1 - y * (0.5 - y * (0.75 - y * (1.875 - y * (6.5625 - y * 29.53125))))) / (x * sqrt(PI));
}

static double log_ndtr(double x)
{
    double t = x * 0.70710678118654752440;
    return x < -1 ? real_log(erfcx(-t) / 2) - t * t : real_log1p(-real_erfc(t) / 2);
}

/* The inverse of the normal distribution's integral: Newton's method on its logarithm, which is concave. */
static double ndtri(double p)
{
    if (p == 0) return -INFINITY;
    if (p == 1) return INFINITY;
    if (!(p > 0 && p < 1)) return NAN;
    if (p > 0.5) return -ndtri(1 - p);
    double x = p < 0.1 ? -sqrt(-2 * real_log(p)) : 0, target = real_log(p);
    for (int k = 0; k < 40; k++) {
        double step = (log_ndtr(x) - target) * erfcx(-x * 0.70710678118654752440) * 1.25331413731550025121;
        x -= step;
        if (fabs(step) <= 1e-15 * fabs(x)) break;
    }
    return x;
}

/* ------------------------------------------------------------------ zeta and gamma */

/* Hurwitz' zeta function: the sum of (q + k)^-x, by Euler and Maclaurin (Cephes). */
static double hurwitz(double x, double q)
{
    static const double bernoulli[] = {12.0,
                                       -720.0,
                                       30240.0,
                                       -1209600.0,
                                       47900160.0,
                                       -1.8924375803183791606e9,
                                       7.47242496e10,
                                       -2.950130727918164224e12,
                                       1.1646782814350067249e14,
                                       -4.5979787224074726105e15,
                                       1.8152105401943546773e17,
                                       -7.1661652561756670113e18};
    if (x == 1) return INFINITY;
    if (!(x > 1)) return NAN;
    if (q <= 0 && q == floor(q)) return INFINITY;
    if (q <= 0 && x != floor(x)) return NAN;
    if (q < 0) { /* the terms below 0 are a zeta function from above, without its end */
        double part = q - floor(q), near = hurwitz(x, 1 - part), far = hurwitz(x, 1 - q);
        if (fmod(x, 2) == 0) return hurwitz(x, part) + (near - far);
        return hurwitz(x, part) - near + far; /* the first two may be equal and large */
    }
    double sum = real_pow(q, -x), a = q, b = 0, factor = 1;
    for (int i = 0; i < 9 || a <= 9; i++) {
        a += 1;
        b = real_pow(a, -x);
        sum += b;
        if (b == 0 || fabs(b) < 1.1e-16 * fabs(sum)) return sum;
    }
    double w = a;
    sum += b * w / (x - 1) - 0.5 * b;
    for (int i = 0; i < 12; i++) {
        double k = 2 * i;
        factor *= x + k;
        b /= w;
        double t = factor * b / bernoulli[i];
        sum += t;
        if (fabs(t) < 1.1e-16 * fabs(sum)) return sum;
        factor *= x + k + 1;
        b /= w;
    }
    return sum;
}

/* mu - log(1 + mu) */
static double log_bow(double mu)
{
    return fabs(mu) < 1e-3 ? mu * mu * (0.5 - mu * (1.0 / 3 - mu * (0.25 - mu * (0.2 - mu / 6)))) : mu - real_log1p(mu);
}

/* x^a exp(-x) / gamma(a); where a is large by Stirling's series, whose parts are small */
static double gamma_density(double a, double x)
{
    if (a < 20) return real_exp(a * real_log(x) - x - real_lgamma(a));
    double z = 1 / (a * a), tail = (1.0 / 12 - z * (1.0 / 360 - z * (1.0 / 1260 - z / 1680))) / a;
    return sqrt(a / (2 * PI)) * real_exp(-a * log_bow((x - a) / a) - tail);
}

/* The same share, above x, where a is large: Temme's expansion around the normal distribution, its first term. */
static double gamma_share_large(double a, double x)
{
    double mu = (x - a) / a, half = log_bow(mu);
    double eta = copysign(sqrt(2 * half), mu), c0 = fabs(eta) < 1e-3 ? eta / 12 - 1.0 / 3 : 1 / mu - 1 / eta;
    return 0.5 * real_erfc(eta * sqrt(a / 2)) + real_exp(-a * half) * c0 / sqrt(2 * PI * a);
}

/* The share of the gamma function's integral below x, or with `upper` above it: a series below the peak, a continued
 * fraction (Lentz) above. */
static double gamma_share(double a, double x, bool upper)
{
    if (x < 0 || a < 0) return NAN;
    if (a == 0) return x > 0 ? !upper : (double)NAN;
    if (x == 0) return upper;
    if (isinf(a)) return isinf(x) ? (double)NAN : upper;
    if (isinf(x)) return !upper;
    if (isnan(a) || isnan(x)) return NAN; /* here, as in ATen: beside a zero or an infinity the other one decides */
    if (a > 1e4) {
        double above = gamma_share_large(a, x);
        return upper ? above : 1 - above;
    }
    double front = gamma_density(a, x);
    if (x < a + 1) {
        double term = 1 / a, sum = term;
        for (int k = 1; k < 20000 && term > sum * 1e-17; k++) sum += term *= x / (a + k);
        return upper ? 1 - front * sum : front * sum;
    }
    double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int k = 1; k < 20000; k++) {
        double an = -k * (k - a);
        b += 2;
        d = an * d + b;
        c = b + an / c;
        d = 1 / (fabs(d) < 1e-300 ? 1e-300 : d);
        c = fabs(c) < 1e-300 ? 1e-300 : c;
        h *= d * c;
        if (fabs(d * c - 1) < 1e-16) break;
    }
    return upper ? front * h : 1 - front * h;
}

/* ------------------------------------------------------------------ orthogonal polynomials of degree n */

enum { DEGREE_MAX = 1 << 20 }; /* of recurrences; higher ones give NaN */

/* A degree as ATen takes it; what no integer holds is negative. */
static int64_t degree(double n) { return n > -9e15 && n < 9e15 ? (int64_t)n : -1; }

/* Of Chebyshev, x outside of (-1, 1): hyperbolic functions of angle = acosh|x|. */
static double chebyshev_outside(double x, int64_t n, char kind)
{
    double a = real_acosh(fabs(x)), half = (double)n + 0.5, sign = x < 0 && n % 2 ? -1 : 1;
    if (x < 0 && kind > 'u') kind = kind == 'v' ? 'w' : 'v';
    if (kind == 't') return sign * real_cosh((double)n * a);
    if (kind == 'u') return sign * (a == 0 ? (double)(n + 1) : real_sinh((double)(n + 1) * a) / real_sinh(a));
    if (kind == 'v') return sign * real_cosh(half * a) / real_cosh(a / 2);
    return sign * (a == 0 ? (double)(2 * n + 1) : real_sinh(half * a) / real_sinh(a / 2));
}

/* Those of Chebyshev obey p[k+1] = 2 x p[k] - p[k-1] and differ in p[1]; high degrees are functions of an angle. */
static double chebyshev(double x, double degree_of, char kind)
{
    int64_t n = degree(degree_of);
    double first = kind == 't' ? x : kind == 'u' ? 2 * x : kind == 'v' ? 2 * x - 1 : 2 * x + 1, p = 1, q = first;
    if (n < 0) return 0;
    if (n == 0) return 1;
    if (n > 8 && !(fabs(x) < 1)) return chebyshev_outside(x, n, kind);
    if (n > 8) {
        double angle = real_acos(x), half = (double)n + 0.5;
        if (kind == 't') return real_cos((double)n * angle);
        if (kind == 'u') return real_sin((double)(n + 1) * angle) / real_sin(angle);
        return kind == 'v' ? real_cos(half * angle) / real_cos(angle / 2)
                           : real_sin(half * angle) / real_sin(angle / 2);
    }
    for (int64_t k = 1; k < n; k++) {
        double next = 2 * x * q - p;
        p = q;
        q = next;
    }
    return q;
}

/* Of Hermite: p[k+1] = s x p[k] - s k p[k-1] with s = 2 (the physicists') or 1; of degrees up to `limit`. */
static double hermite(double x, double degree_of, double s, int64_t limit)
{
    int64_t n = degree(degree_of);
    double p = 1, q = s * x;
    if (n < 0) return 0;
    if (n == 0) return 1;
    if (n > limit) return NAN;
    for (int64_t k = 1; k < n; k++) {
        double next = s * (x * q - (double)k * p);
        p = q;
        q = next;
    }
    return q;
}

static double laguerre(double x, double degree_of)
{
    int64_t n = degree(degree_of);
    double rise = -x, q = 1 - x; /* p[k] - p[k-1], p[k]: sums of small differences keep their places */
    if (n < 0) return 0;
    if (n == 0 || x == 0) return 1;
    if (n > DEGREE_MAX) return NAN;
    for (int64_t k = 1; k < n && isfinite(q); k++) {
        rise = ((double)k * rise - x * q) / (double)(k + 1);
        q += rise;
    }
    return q;
}

static double legendre(double x, double degree_of)
{
    int64_t n = degree(degree_of);
    double p = 1, q = x;
    if (n < 0) return 0;
    if (n == 0) return 1;
    if (fabs(x) == 1) return x > 0 || n % 2 == 0 ? 1 : -1;
    if (n > DEGREE_MAX) return NAN;
    for (int64_t k = 1; k < n && isfinite(q); k++) {
        double next = ((double)(2 * k + 1) * x * q - (double)k * p) / (double)(k + 1);
        p = q;
        q = next;
    }
    return q;
}
#endif
