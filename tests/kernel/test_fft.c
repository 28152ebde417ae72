/* Fourier transforms: every length to 64, primes, products of large primes, long ones; each kind, both directions, on
 * every ISA level against the reference; a line's bits are the same alone, among others, in any lane, on any level. */
#include "kernel_test.h"

enum { IN, OUT, WANT, ROOTS, WORK, MOST_REALS = 1 << 17 };

typedef struct Try {
    FftKind kind;
    bool inverse, whole, wide;
    int64_t n, lines;
} Try;

static int64_t reals_in(const Try *t)
{
    return t->kind == FFT_COMPLEX ? 2 * t->n : t->kind == FFT_TO_COMPLEX ? t->n : 2 * (t->n / 2 + 1);
}

static int64_t reals_out(const Try *t)
{
    if (t->kind == FFT_TO_COMPLEX && !t->whole) return 2 * (t->n / 2 + 1);
    return t->kind == FFT_TO_REAL ? t->n : 2 * t->n;
}

static void fill(const Try *t, void *x, int64_t n)
{
    uint64_t state = 5;
    for (int64_t i = 0; i < n; i++) {
        double v = (double)(unit_random(&state) % 2001) * 1e-3 - 1;
        if (t->wide) ((double *)x)[i] = v;
        else ((float *)x)[i] = (float)v;
    }
}

/* Lines from `first` on, of memory that holds all. Step 1: a line's elements lie together; else line i begins at i. */
static void run(CpuLevel level, const Try *t, bool across, int64_t first, int64_t lines, void *in, void *out)
{
    FftPlan p;
    size_t e = t->wide ? 8 : 4, bytes;
    bool pairs_in = t->kind != FFT_TO_COMPLEX, pairs_out = t->kind != FFT_TO_REAL;
    assert_true(fft_plan(&p, t->n, t->kind != FFT_COMPLEX, t->wide ? DT_F64 : DT_F32));
    fft_plan_fill(&p, room(ROOTS, (int64_t)p.bytes));
    Fft f = {.plan = &p,
             .kind = t->kind,
             .inverse = t->inverse,
             .whole = t->whole,
             .scale = 0.75,
             .rank = 1,
             .shape = {lines},
             .in_stride = {across ? 1 + pairs_in : reals_in(t)},
             .out_stride = {reals_out(t)},
             .in_step = across ? t->lines * (1 + pairs_in) : 1 + pairs_in,
             .in_imag = pairs_in,
             .out_step = 1 + pairs_out,
             .out_imag = pairs_out};
    f.in = (char *)in + (size_t)(first * f.in_stride[0]) * e;
    f.out = (char *)out + (size_t)(first * f.out_stride[0]) * e;
    assert_true(fft_work(&f, 2, &bytes));
    f.work = room(WORK, (int64_t)bytes);
    const FftKernels *k = &kernels_at(level)->fft;
    if (t->wide) k->lines_f64(&f, 2);
    else k->lines_f32(&f, 2);
    assert_guard(f.work);
}

static double at(const Try *t, const void *x, int64_t i)
{
    return t->wide ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* The reference's own error in double is n roundings of n terms. */
static void assert_close(const Try *t, CpuLevel l, const void *got, const void *want)
{
    double most = 0, worst = 0;
    for (int64_t i = 0; i < t->lines * reals_out(t); i++) {
        double x = fabs(at(t, want, i)), d = fabs(at(t, got, i) - at(t, want, i));
        most = x > most ? x : most;
        worst = d <= worst ? worst : d;
    }
    if (!(worst <= most * (t->wide ? 2e-16 * (double)(t->n + 50) : 1e-6)))
        STOP("kind %d, inverse %d, length %d, f%d, on %s: %g of %g", t->kind, t->inverse, (int)t->n, t->wide ? 64 : 32,
             cpu_level_name(l), worst, most);
}

static void try(const Try *t)
{
    int64_t e = t->wide ? 8 : 4, n = t->lines * reals_out(t);
    assert_true(n <= MOST_REALS);
    void *in = room(IN, t->lines * reals_in(t) * e), *want = room(WANT, n * e);
    fill(t, in, t->lines * reals_in(t));
    for (int across = 0; across < 2; across++) {
        static unsigned char bits[MOST_REALS * 8];
        run(CPU_REF, t, across, 0, t->lines, in, want);
        for (CpuLevel l = next_rung_of(fft, CPU_REF); l < CPU_LEVELS; l = next_rung_of(fft, l)) {
            void *out = room(OUT, n * e);
            run(l, t, across, 0, t->lines, in, out);
            assert_guard(out);
            assert_close(t, l, out, want);
            if (l == CPU_GEN) memcpy(bits, out, (size_t)(n * e));
            assert_memory_equal(out, bits, (size_t)(n * e));
            for (int64_t line = 0; line < t->lines; line++) run(l, t, across, line, 1, in, out);
            assert_memory_equal(out, bits, (size_t)(n * e));
        }
    }
}

static void every_kind(int64_t n, int64_t lines)
{
    for (int wide = 0; wide < 2; wide++) {
        try(&(Try){FFT_COMPLEX, false, false, wide, n, lines});
        try(&(Try){FFT_COMPLEX, true, false, wide, n, lines});
        try(&(Try){FFT_TO_COMPLEX, false, false, wide, n, lines});
        try(&(Try){FFT_TO_COMPLEX, false, true, wide, n, lines});
        try(&(Try){FFT_TO_REAL, true, false, wide, n, lines});
    }
}

static void short_lengths(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 64; n++) every_kind(n, n % 3 ? 5 : 19);
}

static void long_lengths(void **state)
{
    (void)state;
    static const int64_t n[] = {67, 74, 97, 101, 128, 169, 202, 211, 256, 400, 512, 961, 1000, 1009, 1023, 1024, 2003};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) every_kind(n[i], 2);
}

/* What is not finite stays in its line. */
static void lines_apart(void **state)
{
    (void)state;
    Try t = {FFT_TO_COMPLEX, false, false, false, 20, 18};
    float *in = room(IN, t.lines * 20 * 4), *out = room(OUT, t.lines * 22 * 4);
    fill(&t, in, t.lines * 20);
    in[3 * 20 + 7] = NAN;
    in[5 * 20] = INFINITY;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(fft, l)) {
        run(l, &t, false, 0, t.lines, in, out);
        for (int64_t line = 0; line < t.lines; line++)
            assert_true(isfinite(out[line * 22 + 4]) == (line != 3 && line != 5));
    }
}

/* The transform of a wave is one bin. */
static void known_values(void **state)
{
    (void)state;
    enum { LENGTH = 37, BIN = 5 };
    Try t = {FFT_TO_COMPLEX, false, false, true, LENGTH, 1};
    double *in = room(IN, LENGTH * 8), *out = room(OUT, 38 * 8);
    for (int i = 0; i < LENGTH; i++) in[i] = cos(6.283185307179586 * BIN * i / LENGTH);
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(fft, l)) {
        run(l, &t, false, 0, 1, in, out);
        for (int k = 0; k < 19; k++) {
            assert_true(fabs(out[2 * k] - (k == BIN ? 0.75 * LENGTH / 2 : 0)) < 1e-12);
            assert_true(fabs(out[2 * k + 1]) < 1e-12);
        }
    }
}

static void lengths_that_are_refused(void **state)
{
    (void)state;
    FftPlan p;
    assert_false(fft_plan(&p, 0, false, DT_F32));
    assert_false(fft_plan(&p, -4, true, DT_F32));
    assert_false(fft_plan(&p, INT64_MAX, true, DT_F64));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_lengths),
        cmocka_unit_test(long_lengths),
        cmocka_unit_test(lines_apart),
        cmocka_unit_test(known_values),
        cmocka_unit_test(lengths_that_are_refused),
    };
    return cmocka_run_group_tests_name("fft", tests, NULL, NULL);
}
