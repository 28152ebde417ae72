/* Elementary functions against the C library's, which are right to a unit or two in the last place: at random
 * arguments of every size, at ends, where arguments are reduced, and where results are small.
 */
#include "unit.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/elementary.h"

enum { ARGUMENTS = 20000 };

static const struct {
    const char *name;
    double (*own)(double), (*libm)(double);
    double units, low, high; /* how far apart; arguments from .. to */
} functions[] = {
    {"exp", real_exp, exp, 2, -760, 720},
    {"exp2", real_exp2, exp2, 2, -1100, 1030},
    {"expm1", real_expm1, expm1, 5, -50, 720},
    {"log", real_log, log, 2, 0, 1e300},
    {"log2", real_log2, log2, 2, 0, 1e300},
    {"log10", real_log10, log10, 3, 0, 1e300},
    {"log1p", real_log1p, log1p, 3, -1, 1e300},
    {"sin", real_sin, sin, 2, -1e300, 1e300},
    {"cos", real_cos, cos, 2, -1e300, 1e300},
    {"tan", real_tan, tan, 4, -1e300, 1e300},
    {"asin", real_asin, asin, 4, -1, 1},
    {"acos", real_acos, acos, 4, -1, 1},
    {"atan", real_atan, atan, 3, -1e300, 1e300},
    {"sinh", real_sinh, sinh, 6, -711, 711},
    {"cosh", real_cosh, cosh, 4, -711, 711},
    {"tanh", real_tanh, tanh, 6, -30, 30},
    {"asinh", real_asinh, asinh, 5, -1e300, 1e300},
    {"acosh", real_acosh, acosh, 5, 1, 1e300},
    {"atanh", real_atanh, atanh, 5, -1, 1},
    {"erf", real_erf, erf, 4, -7, 7},
    {"erfc", real_erfc, erfc, 8, -7, 27},
};

/* In units of the last place of `want`, of numbers that are not normal in the smallest one. */
static double apart(double got, double want)
{
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : HUGE_VAL;
    if (got == want) return signbit(got) == signbit(want) ? 0 : HUGE_VAL;
    if (isinf(want) || isinf(got)) return HUGE_VAL;
    int e;
    frexp(want, &e);
    return fabs(got - want) / ldexp(1, e < -1021 ? -1074 : e - 53);
}

static double share(uint64_t *state)
{
    return ((double)unit_random(state) + (double)unit_random(state) * 0x1p-32) * 0x1p-32;
}

/* Small ones, large ones, and those in between. */
static double argument(double low, double high, uint64_t *state)
{
    double u = share(state), x;
    switch (unit_random(state) % 3) {
    case 0: x = low + u * (high - low); break;
    case 1: x = (unit_random(state) % 2 ? -1 : 1) * exp2(-60 + 120 * u); break;
    default: x = (unit_random(state) % 2 ? -1 : 1) * exp2(-1000 + 2000 * u);
    }
    return x < low || x > high ? argument(low, high, state) : x;
}

static void test_functions(void **state)
{
    (void)state;
    uint64_t random = 1;
    static const double ends[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, DBL_MIN, DBL_MAX, -DBL_MAX, 0x1p-1074, 2};
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        double worst = 0, where = 0;
        for (int i = 0; i < ARGUMENTS; i++) {
            size_t nends = sizeof ends / sizeof *ends;
            double x = (size_t)i < nends ? ends[i] : argument(functions[f].low, functions[f].high, &random);
            double d = apart(functions[f].own(x), functions[f].libm(x));
            if (d > worst) worst = d, where = x;
        }
        if (worst > functions[f].units)
            STOP("%s(%a) is %a, the C library's %a: %g units apart", functions[f].name, where, functions[f].own(where),
                 functions[f].libm(where), worst);
    }
}

/* Multiples of pi / 2 as near as doubles come, whose sines or cosines are small. */
static void test_turns(void **state)
{
    (void)state;
    for (int k = 1; k < 2000; k++) {
        double x = k * 1.57079632679489661923, up = nextafter(x, INFINITY);
        assert_true(apart(real_sin(x), sin(x)) <= 2 && apart(real_cos(x), cos(x)) <= 2);
        assert_true(apart(real_sin(up), sin(up)) <= 2 && apart(real_cos(up), cos(up)) <= 2);
    }
    /* the double that is nearest to a multiple of pi / 2 of all (J.-M. Muller, Elementary Functions) */
    double x = 6381956970095103 * 0x1p797;
    assert_true(apart(real_cos(x), cos(x)) <= 2 && apart(real_sin(x), sin(x)) <= 2);
}

static void test_pow(void **state)
{
    (void)state;
    uint64_t random = 2;
    static const double ends[] = {0.0, -0.0, INFINITY, -INFINITY, NAN,   1,         -1,     2,   -2,
                                  0.5, -0.5, 3,        -3,        1e300, 0x1p-1074, 0x1p53, 1e17};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            if (apart(real_pow(ends[i], ends[k]), pow(ends[i], ends[k])) > 1)
                STOP("pow(%a, %a) is %a, expected %a", ends[i], ends[k], real_pow(ends[i], ends[k]),
                     pow(ends[i], ends[k]));
            if (apart(real_atan2(ends[i], ends[k]), atan2(ends[i], ends[k])) > 2)
                STOP("atan2(%a, %a) is %a, expected %a", ends[i], ends[k], real_atan2(ends[i], ends[k]),
                     atan2(ends[i], ends[k]));
            if (apart(real_hypot(ends[i], ends[k]), hypot(ends[i], ends[k])) > 1)
                STOP("hypot(%a, %a) is %a, expected %a", ends[i], ends[k], real_hypot(ends[i], ends[k]),
                     hypot(ends[i], ends[k]));
        }
    for (int i = 0; i < ARGUMENTS; i++) {
        double x = argument(0, 1e300, &random), y = argument(-50, 50, &random), want = pow(x, y);
        if (apart(real_pow(x, y), want) > 2) STOP("pow(%a, %a) is %a, expected %a", x, y, real_pow(x, y), want);
        double s = argument(-1e300, 1e300, &random), a = atan2(s, y), h = hypot(s, y);
        if (apart(real_atan2(s, y), a) > 3) STOP("atan2(%a, %a) is %a, expected %a", s, y, real_atan2(s, y), a);
        if (apart(real_hypot(s, y), h) > 1) STOP("hypot(%a, %a) is %a, expected %a", s, y, real_hypot(s, y), h);
    }
    for (int k = 0; k < 20; k++) assert_true(real_pow(10, k) == pow(10, k) && real_log10(pow(10, k)) == k);
    for (int k = -1074; k < 1024; k++) assert_true(real_log2(ldexp(1, k)) == k && real_exp2(k) == ldexp(1, k));
}

/* Near their zeros these are right to a share of 1, elsewhere of themselves. */
static void test_gamma_and_bessel(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double (*own)(double), (*libm)(double), low, high;
    } some[] = {{"lgamma", real_lgamma, lgamma, -30, 300},
                {"j0", real_j0, j0, -200, 200},
                {"j1", real_j1, j1, -200, 200},
                {"y0", real_y0, y0, 0, 200},
                {"y1", real_y1, y1, 0, 200}};
    static const double ends[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, 2, -3, 1e-12, 25, 25.5, 1e10};
    uint64_t random = 3;
    for (size_t f = 0; f < sizeof some / sizeof *some; f++)
        for (int i = 0; i < ARGUMENTS; i++) {
            size_t nends = sizeof ends / sizeof *ends;
            double x = (size_t)i < nends ? ends[i] : some[f].low + (some[f].high - some[f].low) * share(&random);
            double got = some[f].own(x), want = some[f].libm(x);
            if (!(got == want || (isnan(got) && isnan(want)) ||
                  fabs(got - want) <= (f ? 2e-13 : 2e-15) * fmax(1, fabs(want))))
                STOP("%s(%a) is %.17g, the C library's %.17g", some[f].name, x, got, want);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_pow),
        cmocka_unit_test(test_gamma_and_bessel),
    };
    return cmocka_run_group_tests_name("elementary", tests, NULL, NULL);
}
