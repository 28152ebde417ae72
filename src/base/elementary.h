/* Elementary functions made of additions, multiplications, divisions and square roots of doubles alone: the same bits
 * on every CPU. A C library takes other code where a CPU fuses multiply-adds, and its results are another's in the last
 * place; tools/checksrc.py refuses its functions where values of a model are computed.
 *
 *     double y = real_exp(x);
 *     float z = real_expf(x);        rounded once more: of float arguments the nearest float, but for a few
 *
 * Arguments outside of a function's domain, infinities and NaN give what C's Annex F says. Errors are below 2 units in
 * the last place, 8 for erfc, log-gamma and Bessel functions away from their zeros (tests/unit/test_elementary.c).
 */
#ifndef QKV_BASE_ELEMENTARY_H
#define QKV_BASE_ELEMENTARY_H
#include <math.h>

/* F(name): of one argument */
#define ELEMENTARY(F)                                                                                                  \
    F(exp)                                                                                                             \
    F(exp2)                                                                                                            \
    F(expm1)                                                                                                           \
    F(log)                                                                                                             \
    F(log2)                                                                                                            \
    F(log10)                                                                                                           \
    F(log1p)                                                                                                           \
    F(sin)                                                                                                             \
    F(cos)                                                                                                             \
    F(tan)                                                                                                             \
    F(asin)                                                                                                            \
    F(acos)                                                                                                            \
    F(atan)                                                                                                            \
    F(sinh)                                                                                                            \
    F(cosh)                                                                                                            \
    F(tanh)                                                                                                            \
    F(asinh)                                                                                                           \
    F(acosh)                                                                                                           \
    F(atanh)                                                                                                           \
    F(erf)                                                                                                             \
    F(erfc)                                                                                                            \
    F(lgamma)                                                                                                          \
    F(j0)                                                                                                              \
    F(j1)                                                                                                              \
    F(y0)                                                                                                              \
    F(y1)

/* F(name): of two */
#define ELEMENTARY_OF_TWO(F)                                                                                           \
    F(pow)                                                                                                             \
    F(atan2)                                                                                                           \
    F(hypot)

#define DECLARE(name)                                                                                                  \
    double real_##name(double x);                                                                                      \
    static inline float real_##name##f(float x) { return (float)real_##name((double)x); }
ELEMENTARY(DECLARE)
#undef DECLARE
#define DECLARE(name)                                                                                                  \
    double real_##name(double x, double y);                                                                            \
    static inline float real_##name##f(float x, float y) { return (float)real_##name((double)x, (double)y); }
ELEMENTARY_OF_TWO(DECLARE)
#undef DECLARE

/* Those that every C library computes exactly, by names of the same kind. */
#define real_fabs fabs
#define real_fabsf fabsf
#define real_sqrt sqrt
#define real_sqrtf sqrtf
#define real_floor floor
#define real_floorf floorf
#define real_ceil ceil
#define real_ceilf ceilf
#define real_trunc trunc
#define real_truncf truncf
#define real_nearbyint nearbyint
#define real_nearbyintf nearbyintf
#define real_copysign copysign
#define real_copysignf copysignf
#define real_nextafter nextafter
#define real_nextafterf nextafterf
#endif
