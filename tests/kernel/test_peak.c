/* The loops that measure a machine's peak do what they count: sums are right, operations grow with the rounds,
 * on every rung. */
#include "kernel_test.h"

static void test_read(void **state)
{
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(peak, l)) {
        float *x = room(0, 1024 * (int64_t)sizeof *x);
        for (int i = 0; i < 1024; i++) x[i] = (float)(i % 7);
        double sum = 0;
        for (int i = 0; i < 1024; i++) sum += x[i];
        assert_true(kernels_at(l)->peak.read(x, 1024) == (float)sum);
    }
}

/* The loop's sum after some rounds, whose products are rounded before they are added, or not. */
static float loop_of(int accumulators, int lanes, int rounds, bool fuses)
{
    float sum = 0, all = 0;
    for (int i = 0; i < accumulators; i++) {
        float x = (float)i;
        for (int r = 0; r < rounds; r++) {
            volatile float product = x * 0.9f;
            x = fuses ? fmaf(x, 0.9f, 0.2f) : product + 0.2f;
        }
        sum += x;
    }
    for (int i = 0; i < lanes; i++) all += sum;
    return all;
}

/* Two instructions in place of one would be half of the peak, and every share of it twice too large. */
static void test_fused(void **state)
{
    (void)state;
    for (CpuLevel l = CPU_AVX2; l <= cpu_best(); l++) {
        int lanes = l < CPU_AVX512 ? 8 : 16, accumulators = l < CPU_AVX512 ? 12 : 16, differ = 0;
        for (int rounds = 1; rounds < 10; rounds++) {
            float sink, want = loop_of(accumulators, lanes, rounds, true);
            kernels_at(l)->peak.f32(rounds, &sink);
            assert_true(sink == want);
            differ += want != loop_of(accumulators, lanes, rounds, false);
        }
        assert_true(differ);
    }
}

static void test_arithmetic(void **state)
{
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(peak, l)) {
        const PeakKernels *k = &kernels_at(l)->peak;
        float sink = NAN;
        double once = k->f32(1, &sink), often = k->f32(1000, &sink);
        assert_true(once >= 8 && often == 1000 * once && k->f32_by);
        assert_true(sink > 0 && sink < 4096); /* x -> 0.9 x + 0.2 goes to 2 in every accumulator */
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_read), cmocka_unit_test(test_arithmetic),
                                       cmocka_unit_test(test_fused)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
