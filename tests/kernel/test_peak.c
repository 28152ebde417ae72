/* The loops that measure a machine's peak do what they count: sums are right, operations grow with the rounds,
 * on every rung. */
#include "kernel_test.h"

static void test_read(void **state)
{
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung(l)) {
        float *x = room(0, 1024 * (int64_t)sizeof *x);
        for (int i = 0; i < 1024; i++) x[i] = (float)(i % 7);
        double sum = 0;
        for (int i = 0; i < 1024; i++) sum += x[i];
        assert_true(kernels_at(l)->peak.read(x, 1024) == (float)sum);
    }
}

static void test_arithmetic(void **state)
{
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung(l)) {
        const PeakKernels *k = &kernels_at(l)->peak;
        float sink = NAN;
        double once = k->f32(1, &sink), often = k->f32(1000, &sink);
        assert_true(once >= 8 && often == 1000 * once && k->f32_by);
        assert_true(sink > 0 && sink < 4096); /* x -> x / 2 + 1 goes to 2 in every accumulator */
        assert_true(fabsf(remainderf(sink, 2)) < 1e-3f);
        assert_true(!k->bf16 == !k->bf16_by);
        if (k->i8) assert_true(k->i8(1, &sink) >= 512 && k->i8(1000, &sink) == 1000 * k->i8(1, &sink));
        if (!k->bf16) continue;
        once = k->bf16(1, &sink);
        often = k->bf16(1000, &sink);
        assert_true(once >= 512 && often == 1000 * once && isfinite(sink) && sink > 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_read), cmocka_unit_test(test_arithmetic)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
