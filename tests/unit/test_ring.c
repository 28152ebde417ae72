/* The exact algebra (prove/ring.h): laws of units, and what numbers stand for.
 *
 *     res_mul(a, res_inverse(a)) == res_one
 */
#include <math.h>
#include "prove/ring.h"
#include "unit.h"

enum { MANY = 2000 };

static Res unit(int i) { return res_hash(7, (uint64_t)i); }

static void test_inverse(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++) assert_int_equal(res_mul(unit(i), res_inverse(unit(i))), res_one);
    for (int n = 1; n < MANY; n++) assert_int_equal(res_mul(res_int(n), res_inverse(res_int(n))), res_one);
}

static bool has_root(Res a)
{
    Res root = res_sqrt(a);
    return res_mul(root, root) == a;
}

/* Of a and -a one is a square. */
static void test_roots(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++) {
        Res a = unit(i);
        assert_true(has_root(a) != has_root(res_neg(a)));
        assert_true(has_root(res_mul(a, a)));
        assert_true(has_root(res_exp(a)));
    }
}

static void test_integers(void **state)
{
    (void)state;
    static const int64_t at[] = {0, 1, -1, 2, RING_P, -(int64_t)RING_P, (int64_t)RING_M - 1, INT64_MAX, INT64_MIN + 1};
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++) {
        assert_int_equal(res_add(res_int(at[i]), res_int(-at[i])), 0);
        if (at[i] >= 0) assert_int_equal(res_reduce(res_int(at[i])), (uint64_t)at[i] % RING_M);
    }
    assert_int_equal(res_int(INT64_MIN), res_sub(res_int(INT64_MIN + 1), res_one));
}

/* x 2^e is that of x, doubled or halved e times. */
static void test_binary_fractions(void **state)
{
    (void)state;
    static const double at[] = {1, -3, 0.1, 1e-30, -12345.678, 0x1.fffffffffffffp0};
    for (unsigned i = 0; i < sizeof at / sizeof *at; i++)
        for (int e = 1; e < 400; e += 7) {
            Res two = res_pow(res_int(2), (uint64_t)e), x = res_dyadic(at[i]);
            assert_int_equal(res_dyadic(ldexp(at[i], e)), res_mul(x, two));
            assert_int_equal(res_mul(res_dyadic(ldexp(at[i], -e)), two), x);
        }
    assert_int_equal(res_dyadic(0.375), res_mul(res_int(3), res_inverse(res_int(8))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inverse),
        cmocka_unit_test(test_roots),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_binary_fractions),
    };
    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
