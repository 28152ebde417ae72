/* Resampling along one axis against the same sum in long double;
 * pooling against the reference, whose numbers it must give. */
#include "kernel_test.h"

typedef struct Case {
    int64_t outer, n_in, n_out, inner, taps;
} Case;

/* Rows of one element and of vector widths and their neighbours; sizes above 2^14 start threads. */
static const Case cases[] = {
    {0, 3, 2, 4, 2},  {1, 1, 1, 1, 1},     {1, 1, 9, 1, 2},     {2, 3, 0, 5, 1},  {3, 5, 7, 1, 4},
    {2, 7, 3, 3, 6},  {1, 4, 8, 7, 2},     {1, 4, 8, 8, 2},     {1, 4, 8, 9, 2},  {2, 6, 5, 15, 3},
    {2, 6, 5, 16, 3}, {2, 6, 5, 17, 3},    {1, 9, 4, 31, 9},    {1, 9, 4, 32, 9}, {1, 9, 4, 33, 9},
    {3, 2, 5, 0, 2},  {4, 30, 41, 127, 4}, {300, 17, 64, 1, 4}, {1, 5, 2, 3, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

/* Every tap's weight, product and addition round once to the accumulator's type, which has unit roundoff u;
 * the result once to its own. */
static void check(CpuLevel l, const char *type, double got, int64_t at, const Case *p, const double *in,
                  const int64_t *where, const double *weight, double u, double last, double least)
{
    int64_t j = at / p->inner % p->n_out, plane = at / p->inner / p->n_out * p->n_in;
    long double want = 0, size = 0;
    for (int64_t k = 0; k < p->taps; k++) {
        double x = in[(plane + where[j * p->taps + k]) * p->inner + at % p->inner];
        want += (long double)weight[j * p->taps + k] * x;
        size += fabsl((long double)weight[j * p->taps + k] * x);
    }
    double far = u * (double)(p->taps + 2) * (double)size + last * fabs((double)want) + least;
    bool ok = isnan(want) ? isnan(got) : isinf(want) ? got == (double)want : fabs(got - (double)want) <= far;
    if (!ok)
        STOP("%s on %s: %a at %d, expected %a; %g allowed", type, cpu_level_name(l), got, (int)at, (double)want, far);
}

static void check_case(const Case *p, bool wild, uint64_t *state)
{
    static const int threads[] = {1, 2, 3, 8};
    int64_t nin = p->outer * p->n_in * p->inner, nout = p->outer * p->n_out * p->inner, taps = p->n_out * p->taps;
    float *in = room(0, nin * 4);
    double *wide = room(1, nin * 8), *weight = room(2, taps * 8);
    int64_t *at = room(3, taps * 8);
    for (int64_t i = 0; i < nin; i++) {
        in[i] = random_unit(state);
        if (wild && unit_random(state) % 5 == 0)
            in[i] = awkward[unit_random(state) % 14]; /* without the largest: float would overflow */
        wide[i] = in[i];
    }
    for (int64_t i = 0; i < taps; i++) {
        weight[i] = unit_random(state) % 4 ? (double)random_unit(state) / 3 : 0;
        at[i] = (int64_t)(unit_random(state) % (uint32_t)p->n_in);
    }
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(image, l)) {
        const ImageKernels *k = &kernels_at(l)->image;
        float *first = room(4, nout * 4);
        double *wide_first = room(6, nout * 8);
        k->resample_f32(first, in, p->outer, p->n_in, p->n_out, p->inner, p->taps, at, weight, 1);
        k->resample_f64(wide_first, wide, p->outer, p->n_in, p->n_out, p->inner, p->taps, at, weight, 1);
        for (int64_t i = 0; i < nout; i++) {
            check(l, "f32", (double)first[i], i, p, wide, at, weight, l == CPU_REF ? 0x1p-53 : 0x1p-24, 0x1p-24,
                  0x1p-149 * (double)(p->taps + 1));
            check(l, "f64", wide_first[i], i, p, wide, at, weight, 0x1p-53, 0x1p-53, 0x1p-1074);
        }
        assert_guard(first);
        assert_guard(wide_first);
        for (int t = 1; t < 4; t++) {
            float *y = room(5, nout * 4);
            k->resample_f32(y, in, p->outer, p->n_in, p->n_out, p->inner, p->taps, at, weight, threads[t]);
            assert_memory_equal(y, first, (size_t)nout * 4);
            double *d = room(7, nout * 8);
            k->resample_f64(d, wide, p->outer, p->n_in, p->n_out, p->inner, p->taps, at, weight, threads[t]);
            assert_memory_equal(d, wide_first, (size_t)nout * 8);
        }
    }
}

static void test_resample(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int wild = 0; wild < 2; wild++)
        for (int i = 0; i < CASES; i++) check_case(&cases[i], wild, &seed);
}

/* A row of n windows of `taps` places, which begin anywhere in a plane; the last one ends where the memory does. */
static void check_pool(int64_t n, int64_t step, int64_t taps, bool wild, uint64_t *state)
{
    const ImageKernels *ref = &kernels_at(CPU_REF)->image;
    int64_t tap[64], far = 0;
    for (int64_t k = 0; k < taps; k++) {
        tap[k] = (int64_t)(unit_random(state) % 300);
        if (tap[k] > far) far = tap[k];
    }
    int64_t size = far + (n - 1) * step + 1;
    float *in = room(0, size * 4), *want = room(1, n * 4);
    uint16_t *half = room(2, size * 2), *want_half = room(3, n * 2);
    if (wild) fill_awkward(in, size, 1, state);
    else fill_random(in, size, 1, state);
    for (int64_t i = 0; i < size; i++) half[i] = f32_to_bf16(in[i]);
    for (int mean = 0; mean < 2; mean++) {
        double divisor = (double)(unit_random(state) % 9 + 1);
        if (mean)
            ref->mean_f32(want, in, tap, taps, n, step, divisor),
                ref->mean_bf16(want_half, half, tap, taps, n, step, divisor);
        else ref->largest_f32(want, in, tap, taps, n, step), ref->largest_bf16(want_half, half, tap, taps, n, step);
        for (CpuLevel l = next_rung_of(image, CPU_REF); l < CPU_LEVELS; l = next_rung_of(image, l)) {
            const ImageKernels *k = &kernels_at(l)->image;
            float *y = room(4, n * 4);
            uint16_t *h = room(5, n * 2);
            if (mean)
                k->mean_f32(y, in, tap, taps, n, step, divisor), k->mean_bf16(h, half, tap, taps, n, step, divisor);
            else k->largest_f32(y, in, tap, taps, n, step), k->largest_bf16(h, half, tap, taps, n, step);
            for (int64_t i = 0; i < n; i++) {
                float a = bf16_to_f32(h[i]), b = bf16_to_f32(want_half[i]);
                if (!same_f32(y[i], want[i]) && !(y[i] == 0 && want[i] == 0))
                    STOP("%s of %d taps on %s: %a at %d, expected %a", mean ? "mean" : "largest", (int)taps,
                         cpu_level_name(l), (double)y[i], (int)i, (double)want[i]);
                if (!same_f32(a, b) && !(a == 0 && b == 0))
                    STOP("bf16 %s of %d taps on %s: %a at %d, expected %a", mean ? "mean" : "largest", (int)taps,
                         cpu_level_name(l), (double)a, (int)i, (double)b);
            }
            assert_guard(y);
            assert_guard(h);
        }
    }
}

/* The largest of bytes, of which the last window ends where the memory does. */
static void check_bytes(int64_t n, int64_t taps, uint64_t *state)
{
    int64_t tap[64], far = 0;
    for (int64_t k = 0; k < taps; k++) {
        tap[k] = (int64_t)(unit_random(state) % 300);
        if (tap[k] > far) far = tap[k];
    }
    uint8_t *in = room(0, far + n), *want = room(1, n), *y = room(2, n);
    for (int64_t i = 0; i < far + n; i++) in[i] = (uint8_t)unit_random(state);
    for (int i8 = 0; i8 < 2; i8++)
        for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(image, l)) {
            const ImageKernels *k = &kernels_at(l)->image;
            if (i8) k->largest_i8((int8_t *)y, (const int8_t *)in, tap, taps, n);
            else k->largest_u8(y, in, tap, taps, n);
            for (int64_t i = 0; l == CPU_REF && i < n; i++) {
                int most = -200;
                for (int64_t t = 0; t < taps; t++) {
                    int v = i8 ? (int8_t)in[tap[t] + i] : in[tap[t] + i];
                    most = v > most ? v : most;
                }
                want[i] = (uint8_t)most;
            }
            assert_memory_equal(y, want, (size_t)n);
            assert_guard(y);
        }
}

static void test_pool(void **state)
{
    static const int64_t rows[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 200}, windows[] = {1, 2, 9, 49};
    uint64_t seed = 7;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) check_bytes(rows[i], windows[k], &seed);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < sizeof windows / sizeof *windows; k++)
            for (int step = 1; step < 4; step++)
                for (int wild = 0; wild < 2; wild++) check_pool(rows[i], step, windows[k], wild, &seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resample), cmocka_unit_test(test_pool)};
    return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
