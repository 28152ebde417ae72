/* The exact algebra. Contract in ring.h. */
#include "prove/ring.h"
#include <math.h>

/* Found by Newton's iteration x (2 - M x), from M: M is odd. */
#define INV1(x) ((x) * (2 - RING_M * (x)))
#define INV3(x) INV1(INV1(INV1(x)))
const Res res_negative_inverse = 0 - INV3(INV3(RING_M));
#define ONE ((Res)(((Wide)1 << 64) % RING_M))
const Res res_one = ONE;
static const Res half = (Res)(((Wide)1 << 63) % RING_M);
static const Res to_montgomery = (Res)((Wide)ONE * ONE % RING_M); /* 2^128 */

Res res_int(int64_t n)
{
    Res r = (Res)((n < 0 ? 0 - (uint64_t)n : (uint64_t)n) % RING_M);
    r = res_mul(r, to_montgomery);
    return n < 0 ? res_neg(r) : r;
}

Res res_pow(Res a, uint64_t n)
{
    Res r = res_one;
    for (; n; n >>= 1, a = res_mul(a, a))
        if (n & 1) r = res_mul(r, a);
    return r;
}

enum { HALF = RING_P / 2 };                       /* (p - 1) / 2: odd */
#define CUBE ((uint64_t)RING_P * RING_P * RING_P) /* units: CUBE (p - 1) of them */

/* Modulo p by Fermat, then modulo p^2 and p^4 by Newton: x (2 - a x). */
Res res_inverse(Res a)
{
    Res x = res_pow(a, RING_P - 2), two = res_add(res_one, res_one);
    for (int i = 0; i < 2; i++) x = res_mul(x, res_sub(two, res_mul(a, x)));
    return x;
}

/* Squares of units are a group of the odd order CUBE (p - 1) / 2. */
Res res_sqrt(Res a) { return res_pow(a, (CUBE * HALF + 1) / 2); }

static Res over(Res a, int n) { return res_mul(a, res_inverse(res_int(n))); }

typedef struct Powers {
    Res x, square, cube; /* p x, (p x)^2 / 2, (p x)^3 / 6 */
} Powers;

static Powers powers(Res a)
{
    static _Atomic Res once; /* the same whoever writes it */
    Res sixth = once;
    if (!sixth) once = sixth = over(res_one, 6);
    Res x = res_mul(res_int(RING_P), a), square = res_mul(x, x);
    return (Powers){x, res_mul(square, half), res_mul(res_mul(square, x), sixth)};
}

Res res_exp(Res a)
{
    Powers k = powers(a);
    return res_add(res_add(res_one, k.x), res_add(k.square, k.cube));
}

Res res_sin(Res a)
{
    Powers k = powers(a);
    return res_sub(k.x, k.cube);
}

Res res_cos(Res a) { return res_sub(res_one, powers(a).square); }

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

Res res_hash(uint64_t a, uint64_t b)
{
    Res r = mix(mix(a + 0x9e3779b97f4a7c15u) ^ (b * 0xd6e8feb86659fd93u + 0x2545f4914f6cdd1du)) % RING_M;
    return res_unit(r) ? r : r + 1;
}

/* ------------------------------------------------------------------ numbers */

Res res_dyadic(double x)
{
    int e;
    Res r = res_int((int64_t)ldexp(frexp(fabs(x), &e), 53));
    e -= 53;
    r = res_mul(r, e < 0 ? res_pow(half, (uint64_t)-e) : res_pow(res_int(2), (uint64_t)e));
    return x < 0 ? res_neg(r) : r;
}

/* a / b within `off` of x > 0 (relative), a b at most `most`: the first convergent of its continued fraction
 * (Khinchin) that is near enough. */
static bool fraction(double x, double off, double most, int64_t *a, int64_t *b)
{
    double p0 = 0, q0 = 1, p1 = 1, q1 = 0, rest = x;
    for (int i = 0; i < 40; i++) {
        double whole = floor(rest), p = whole * p1 + p0, q = whole * q1 + q0;
        if (p * q > most || p > 1e15 || q > 1e15) return false;
        if (p > 0 && fabs(p / q - x) <= off * x) {
            *a = (int64_t)p;
            *b = (int64_t)q;
            return true;
        }
        if (rest - whole < 1e-17) return false;
        rest = 1 / (rest - whole);
        p0 = p1, p1 = p, q0 = q1, q1 = q;
    }
    return false;
}

/* Decimals of at most six digits that were rounded to float. */
static bool decimal(double x, int64_t *a, int64_t *b)
{
    if (x != (double)(float)x || x < 1e-13 || x > 1e6) return false;
    int e = (int)floor(log10(x));
    for (int digits = 1; digits <= 6; digits++) {
        double scale = pow(10, digits - 1 - e), n = round(x * scale);
        if ((float)(n / scale) != (float)x || scale > 1e18) continue;
        *a = scale < 1 ? (int64_t)round(n / scale) : (int64_t)n;
        *b = scale < 1 ? 1 : (int64_t)round(scale);
        return true;
    }
    return false;
}

static Res quotient(int64_t a, int64_t b) { return res_mul(res_int(a), res_inverse(res_int(b))); }

/* Constants beside the roots of fractions: powers of elements of their own. */
static const struct Constant {
    double value;
    uint64_t base;
    int power;
} constants[] = {{1, 0, 0},
                 {0.56418958354775628695, 1, -1}, /* 1 / sqrt(pi) */
                 {1.77245385090551602730, 1, 1},
                 {3.14159265358979323846, 1, 2},
                 {0.31830988618379067154, 1, -2},
                 {0.69314718055994530942, 2, 1}, /* ln 2 */
                 {1.44269504088896340736, 2, -1},
                 {2.30258509299404568402, 3, 1}, /* ln 10 */
                 {0.43429448190325182765, 3, -1}};

static Res constant(const struct Constant *c)
{
    if (!c->power) return res_one;
    Res x = res_hash(77, c->base), power = res_mul(x, x); /* a square, as all that are positive */
    if (c->power < 0) power = res_inverse(power);
    return c->power % 2 ? power : res_mul(power, power);
}

/* As a / b times a constant, or as a root of a / b times it. */
static bool nice(double x, Res *out)
{
    for (unsigned k = 0; k < sizeof constants / sizeof *constants; k++) {
        double y = x / constants[k].value, error = 1;
        for (int roots = 0; roots < 3; roots++, y *= y, error *= 2) {
            int64_t a, b;
            bool near = ((k || roots) && fraction(y, 0x1p-49 * error, 0x1p26, &a, &b)) ||
                        fraction(y, 0x1p-23 * error, k ? 0x1p7 : 0x1p12, &a, &b);
            if (!near || a % RING_P == 0 || b % RING_P == 0) continue;
            Res r = quotient(a, b);
            for (int i = 0; i < roots; i++) r = res_sqrt(r);
            *out = res_mul(r, constant(&constants[k]));
            return true;
        }
    }
    return false;
}

static bool short_binary(double x)
{
    int e;
    double m = frexp(x, &e);
    return ldexp(m, 13) == floor(ldexp(m, 13)) || (x == floor(x) && x < 0x1p53);
}

Res res_number(double x)
{
    double positive = fabs(x);
    int64_t a, b;
    Res r;
    if (x == 0) return 0;
    if (short_binary(positive)) return res_dyadic(x);
    bool ratio = fraction(positive, 0x1p-50, 0x1p40, &a, &b) && b & (b - 1); /* not just its own digits */
    if (ratio || decimal(positive, &a, &b)) r = quotient(a, b);
    else if (!nice(positive, &r)) return res_dyadic(x);
    return x < 0 ? res_neg(r) : r;
}
