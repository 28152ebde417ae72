/* The exact algebra of proofs: integers modulo p^4 with p = 31391, in which real arithmetic is a homomorphism.
 *
 *     Res x = res_hash(1, seed), y = res_hash(2, seed);
 *     res_mul(res_exp(x), res_exp(y)) == res_exp(res_add(x, y))
 *
 * Why this ring. Integers modulo 2^w (FpSan in Triton) hold only half of all quotients, and none by a sum of an even
 * number of exponentials, which every softmax may have. Two primes with q | p - 1 (Mirage) have all quotients, but the
 * exponent of an exponential is lost: exp(exp(x)) has no value, and a network has a softmax inside a softmax. Modulo
 * p^4 all elements that p does not divide have an inverse (31390 of 31391), and
 *
 *     exp(x) = 1 + p x + (p x)^2 / 2 + (p x)^3 / 6        cos(x) = 1 - (p x)^2 / 2        sin(x) = p x - (p x)^3 / 6
 *
 * are exp(px), cos(px) and sin(px) of the p-adic integers, cut where p^4 is 0: exp(x + y) = exp(x) exp(y), the angle
 * sums and sin^2 + cos^2 = 1 hold exactly and at any depth. Every exponential on the way moves what it sees of its
 * argument up by one digit of base p, so a difference that passes through four of them and nothing beside them is not
 * seen; residual connections keep it in sight. sqrt(x) is a power of x, multiplicative, and a root of all squares; p is
 * 7 modulo 8 and 2, 3, 5 ... 29 are squares modulo p, so the roots of head sizes are.
 *
 * Functions that are 0 at 0 (sin, tan, sinh, tanh, exp(x) - 1) are multiples of p, and a product of four such is 0. It
 * has to be so where exp is a homomorphism at any depth: a sum of p^4 equal elements is 0, so exp(x) to the power p^4
 * is 1, and modulo p only 1 itself has such a power. The value in double precision beside a residue sees what is lost
 * (exact.h).
 *
 * Schwartz and Zippel: two polynomials of degree d that differ modulo p agree in at most d / p of random points.
 * Elements are in Montgomery form (Montgomery 1985), R = 2^64.
 */
#ifndef QKV_PROVE_RING_H
#define QKV_PROVE_RING_H
#include <stdbool.h>
#include <stdint.h>

typedef uint64_t Res;
__extension__ typedef unsigned __int128 Wide;

#define RING_P 31391u
#define RING_M ((Res)RING_P * RING_P * RING_P * RING_P)
enum { RING_LAZY = 16 }; /* so many products may be added up before res_reduce */

extern const Res res_one;

/* x / 2^64 modulo M; x < 2^64 M. 0x... = -1/M modulo 2^64. */
static inline Res res_reduce(Wide x)
{
    extern const Res res_negative_inverse;
    Res m = (Res)x * res_negative_inverse, t = (Res)((x + (Wide)m * RING_M) >> 64);
    return t >= RING_M ? t - RING_M : t;
}
static inline Res res_mul(Res a, Res b) { return res_reduce((Wide)a * b); }
static inline Res res_add(Res a, Res b) { return a + b >= RING_M ? a + b - RING_M : a + b; }
static inline Res res_sub(Res a, Res b) { return a >= b ? a - b : a + RING_M - b; }
static inline Res res_neg(Res a) { return a ? RING_M - a : 0; }
static inline bool res_unit(Res a) { return a % RING_P != 0; }

Res res_int(int64_t n);
Res res_pow(Res a, uint64_t n);
Res res_inverse(Res a); /* of a unit */
/* A root of a square. One of a unit and its negative is a square: positive small fractions and exponentials are. */
Res res_sqrt(Res a);
Res res_exp(Res a);
Res res_sin(Res a);
Res res_cos(Res a);
/* A function of its two arguments that looks random: a unit. */
Res res_hash(uint64_t a, uint64_t b);
/* What a number of a file or of a row stands for: integers and short binary fractions exactly; 0.1, 1/3, 1/sqrt(d),
 * sqrt(2/pi), ln 2 ... as these, whether they were rounded to double or to float; others as the binary fraction that
 * they are. Finite. */
Res res_number(double x);
Res res_dyadic(double x); /* always as the binary fraction */
#endif
