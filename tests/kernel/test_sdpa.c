/* Attention against sums in double. Gaps between rows, and what lies around the operands, are NaN. */
#include "sdpa_test.h"

/* One output row and how far a float kernel may be from it. To first order, in units of 2^-24: a score is off by its
 * products and sums (D + 3 times the magnitudes in it), the difference to the maximum by itself, exp by 2; the
 * weighted sum and the normaliser take that on and add one rounding a key; each block of keys may rescale (exp, two
 * products). */
/* lse[0]: the logarithm of the row's sum; lse[1]: how far it may be off. */
static void sdpa_model(const Sdpa *a, int64_t b, int64_t h, int64_t n, double *want, double *far, double *p, double *c,
                       double *lse)
{
    int64_t kv = h / (a->H / a->Hkv);
    double top = -INFINITY, sum = 0, spread = 0;
    const float *q = (const float *)a->q + b * a->qs[0] + h * a->qs[1] + n * a->qs[2],
                *v = (const float *)a->v + b * a->vs[0] + kv * a->vs[1];
    bool nan = false;
    for (int64_t m = 0; m < a->M; m++) {
        const float *k = (const float *)a->k + b * a->ks[0] + kv * a->ks[1] + m * a->ks[2];
        int64_t at = b * a->ms[0] + h * a->ms[1] + n * a->ms[2] + m * a->ms[3];
        double s = 0, size = 0, extra = a->mask ? (double)a->mask[at] : a->truth && !a->truth[at] ? -INFINITY : 0;
        for (int64_t d = 0; d < a->D; d++) s += (double)q[d] * k[d], size += fabs((double)q[d] * k[d]);
        s *= a->scale;
        if (a->softcap > 0) s = a->softcap * tanh(s / a->softcap);
        p[m] = m < n + a->lower || m > n + a->upper ? -INFINITY : s + extra;
        c[m] = (double)(a->D + 3) * size * fabs(a->scale) + (isinf(extra) ? 0 : fabs(extra)) + fabs(p[m]) + 4;
        nan |= isnan(p[m]);
        top = p[m] > top ? p[m] : top;
    }
    for (int64_t m = 0; m < a->M; m++) {
        c[m] += top - p[m];
        sum += p[m] = top == -INFINITY && !nan ? 0 : exp(p[m] - top);
        if (p[m] > 0) spread += p[m] * c[m];
    }
    lse[0] = sum == 0 ? -INFINITY : top + log(sum);
    lse[1] = sum == 0 ? 0 : (spread / sum + fabs(lse[0]) + fabs(top) + (double)a->M + 16) * 0x1p-24;
    for (int64_t e = 0; e < a->E; e++) {
        double s = 0, size = 0, own = 0;
        for (int64_t m = 0; m < a->M && sum != 0; m++) {
            double term = p[m] * v[m * a->vs[2] + e];
            s += term, size += fabs(term);
            if (term != 0) own += fabs(term) * c[m];
        }
        want[e] = sum == 0 ? 0 : s / sum;
        far[e] = sum == 0
                     ? 0
                     : (own + size * (spread / sum + (double)a->M + 16 + 8 * ((double)a->M / 512))) / sum * 0x1p-24 +
                           0x1p-149;
    }
}

enum { KEYS_MOST = 1100, WIDTH_MOST = 100 };

static void check_lse(CpuLevel l, const Sdpa *a, const float *got, int64_t row, const double *lse, const char *mask)
{
    double y = (double)got[row], unit = a->t == DT_BF16 ? 0x1p-13 : 0; /* weights that become bf16 are off by 7.5e-5 */
    if (isnan(lse[0]) ? !isnan(y) : y != lse[0] && !(fabs(y - lse[0]) <= lse[1] + unit))
        STOP("sdpa of %s on %s, B %d H %d/%d N %d M %d D %d E %d, mask %s, lower %d, upper %d, softcap %g: logsumexp "
             "of row %d: %a, expected %a; %g off, %g allowed",
             dtype_name(a->t), cpu_level_name(l), (int)a->B, (int)a->H, (int)a->Hkv, (int)a->N, (int)a->M, (int)a->D,
             (int)a->E, mask, (int)a->lower, (int)a->upper, a->softcap, (int)row, y, lse[0], fabs(y - lse[0]),
             lse[1] + unit);
}

static void check_sdpa(CpuLevel l, const Sdpa *a, const float *out, const char *mask)
{
    double lse[2];
    static double want[WIDTH_MOST], far[WIDTH_MOST], p[KEYS_MOST], c[KEYS_MOST];
    for (int64_t row = 0; row < a->B * a->H * a->N; row++) {
        sdpa_model(a, row / a->N / a->H, row / a->N % a->H, row % a->N, want, far, p, c, lse);
        check_lse(l, a, a->lse, row, lse, mask);
        for (int64_t e = 0; e < a->E; e++) {
            double y = out[row * a->E + e];
            if (isnan(want[e]) ? !isnan(y) : y != want[e] && !(fabs(y - want[e]) <= far[e]))
                STOP("sdpa on %s, B %d H %d/%d N %d M %d D %d E %d, mask %s, lower %d, upper %d, softcap %g: row %d, "
                     "%d: %a, expected %a; %g off, %g allowed",
                     cpu_level_name(l), (int)a->B, (int)a->H, (int)a->Hkv, (int)a->N, (int)a->M, (int)a->D, (int)a->E,
                     mask, (int)a->lower, (int)a->upper, a->softcap, (int)row, (int)e, y, want[e], fabs(y - want[e]),
                     far[e]);
        }
    }
}

/* Into room 5, workspace in room 6. */
static float *run_sdpa(CpuLevel l, Sdpa *a, int threads)
{
    const SdpaKernels *k = &kernels_at(l)->sdpa;
    float *out = room(5, a->B * a->H * a->N * a->E * (int64_t)dtype_size(a->t)),
          *space = room(6, ((int64_t)k->workspace(a, threads) + 63) / 64 * 64);
    a->out = out;
    place_lse(a);
    a->os[2] = a->E, a->os[1] = a->N * a->E, a->os[0] = a->H * a->N * a->E;
    k->run(a, space, threads);
    assert_guard(out);
    assert_guard(space);
    assert_guard(a->lse);
    return out;
}

/* Rows in sixes, 24s and 32s, panels of 8, 16, 32 and 64 columns, blocks of 256 and 512 keys, pairs along D and keys,
 * and their neighbours. */
static const int64_t shapes[][7] = {
    {1, 1, 1, 1, 1, 1, 1},      {0, 1, 1, 2, 2, 2, 2},     {1, 1, 1, 0, 3, 4, 4},      {1, 2, 1, 3, 0, 4, 5},
    {1, 2, 2, 3, 4, 0, 5},      {1, 1, 1, 3, 4, 5, 0},     {2, 4, 2, 5, 7, 3, 8},      {1, 3, 1, 6, 8, 8, 7},
    {2, 2, 2, 7, 9, 16, 9},     {1, 2, 1, 13, 15, 17, 15}, {1, 2, 2, 12, 16, 31, 16},  {1, 1, 1, 11, 17, 32, 17},
    {1, 2, 2, 33, 31, 33, 31},  {1, 2, 1, 5, 63, 64, 33},  {1, 1, 1, 64, 64, 65, 64},  {1, 1, 1, 9, 65, 15, 65},
    {1, 1, 1, 7, 511, 8, 8},    {1, 1, 1, 7, 512, 8, 9},   {1, 1, 1, 13, 513, 9, 8},   {1, 2, 1, 4, 1025, 16, 5},
    {1, 1, 1, 1, 1088, 64, 64}, {1, 1, 1, 600, 3, 4, 4},   {1, 1, 1, 25, 130, 96, 98}, {1, 10, 1, 1, 97, 34, 64},
    {2, 1, 1, 31, 259, 1, 66},  {1, 3, 3, 30, 33, 65, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void test_sdpa(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int mask = 0; mask < MASKS; mask++)
            for (int band = 0; band < 5; band++) { /* all, causal, window, causal window, causal with a past */
                if ((i + mask + band) % ONE_IN) continue;
                Sdpa a = make_sdpa(shapes[i], (i + mask) % 2, &seed);
                a.lower = band == 2 || band == 3 ? -3 : -SDPA_ANY;
                a.upper = band == 1 || band == 3 ? 0 : band == 2 ? 4 : band == 4 ? a.M - a.N : SDPA_ANY;
                a.softcap = (i + band) % 3 == 1 ? 1.5f : 0;
                make_mask(&a, (MaskKind)mask, &seed);
                for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(sdpa, l))
                    check_sdpa(l, &a, run_sdpa(l, &a, 1 + i % 3), mask_names[mask]);
            }
}

/* Large scores: the maximum moves from block to block, weights underflow;
 * all far below 0, where exp alone would underflow. */
static void test_sdpa_steep(void **state)
{
    static const float low = -200;
    uint64_t seed = 3;
    (void)state;
    for (int i = 0; i < 4; i++) {
        Sdpa a = make_sdpa((int64_t[]){1, 1, 1, 8, 1090, 8, 8}, false, &seed);
        a.scale = (float[]){60, -60, 0, 0.1f}[i];
        if (i == 3) a.mask = &low;
        float *k = (float *)(uintptr_t)a.k;
        for (int64_t m = 0; m < a.M; m++) k[m * a.ks[2]] += (float)m * 0.01f;
        for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(sdpa, l))
            check_sdpa(l, &a, run_sdpa(l, &a, 1), "none");
    }
}

/* bf16 and f16 in and out, out (B, N, H, E) with gaps, which nothing writes to.
 * Weights may be bf16 there: 2^-9 of each term, and the result is rounded. */
static void check_typed(CpuLevel l, const Sdpa *f, const Sdpa *a, const char *mask)
{
    static double want[WIDTH_MOST], far[WIDTH_MOST], size[WIDTH_MOST], p[KEYS_MOST], c[KEYS_MOST];
    const SdpaKernels *k = &kernels_at(l)->sdpa;
    Sdpa o = *a, positive = *f;
    float *v = room(10, span(f->B, f->Hkv, f->M, f->E, f->vs) * 4);
    for (int64_t i = 0; i < span(f->B, f->Hkv, f->M, f->E, f->vs); i++) v[i] = fabsf(((const float *)f->v)[i]);
    positive.v = v;
    o.os[2] = a->H * (a->E + 3), o.os[1] = a->E + 3, o.os[0] = a->N * o.os[2];
    int64_t n = span(o.B, o.H, o.N, o.E, o.os), written = 0;
    uint16_t *out = o.out = room(5, n * 2);
    double lse[2];
    place_lse(&o);
    void *space = room(6, ((int64_t)k->workspace(a, 2) + 63) / 64 * 64);
    k->run(&o, space, 2);
    assert_guard(out);
    assert_guard(space);
    assert_guard(o.lse);
    for (int64_t row = 0; row < a->B * a->H * a->N; row++) {
        int64_t b = row / a->N / a->H, h = row / a->N % a->H, at = row % a->N;
        sdpa_model(&positive, b, h, at, size, far, p, c, lse);
        sdpa_model(f, b, h, at, want, far, p, c, lse);
        check_lse(l, &o, o.lse, row, lse, mask);
        for (int64_t e = 0; e < a->E; e++) {
            uint16_t *y = &out[b * o.os[0] + h * o.os[1] + at * o.os[2] + e];
            double got = (double)(a->t == DT_BF16 ? bf16_to_f32(*y) : f16_to_f32(*y));
            double unit = a->t == DT_BF16 ? 0x1p-8 : 0x1p-11,
                   allowed = far[e] + fabs(want[e]) * unit + (a->t == DT_BF16 ? size[e] * 0x1p-8 : 0) + 0x1p-24;
            if (isnan(want[e]) ? !isnan(got) : got != want[e] && !(fabs(got - want[e]) <= allowed))
                STOP("sdpa of %s on %s, B %d H %d/%d N %d M %d D %d E %d, mask %s, upper %d, row %d, %d: %g, expected "
                     "%g; %g off, %g allowed",
                     dtype_name(a->t), cpu_level_name(l), (int)a->B, (int)a->H, (int)a->Hkv, (int)a->N, (int)a->M,
                     (int)a->D, (int)a->E, mask, (int)a->upper, (int)row, (int)e, got, want[e], fabs(got - want[e]),
                     allowed);
            *y = 0xffff;
        }
    }
    for (int64_t i = 0; i < n; i++) written += out[i] != 0xffff;
    assert_int_equal(written, 0);
}

/* NaN and infinity stay in the rows and columns that they touch; a row without a key is 0 whatever the values are. */
static void test_sdpa_special(void **state)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 0x1p-149f, -0.0f};
    uint64_t seed = 4;
    (void)state;
    for (int i = 0; i < 30; i++) {
        int where = i / 5 % 3;
        Sdpa f = make_sdpa((int64_t[]){1, 1, 1, 14, i % 2 ? 20 : 530, 5, 6}, false, &seed);
        float *x = (float *)(uintptr_t)(where == 0   ? f.q
                                        : where == 1 ? f.k
                                                     : f.v) +
                   (where == 0   ? 9 * f.qs[2]
                    : where == 1 ? 17 * f.ks[2]
                                 : 17 * f.vs[2]);
        x[2] = special[i % 5];
        Sdpa b = i < 15 ? f : typed(&f, DT_BF16);
        for (int none = 0; none < (where == 2 ? 2 : 1); none++) {
            if (none) make_mask(&f, TRUTH_NONE, &seed);
            b.truth = f.truth;
            for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(sdpa, l)) {
                if (i < 15) check_sdpa(l, &f, run_sdpa(l, &f, 2), none ? "truth, no key" : "none");
                else check_typed(l, &f, &b, none ? "truth, no key" : "none");
            }
        }
    }
}

/* The same bits for any number of threads. */
static void test_sdpa_threads(void **state)
{
    static const int64_t large[][7] = {
        {1, 1, 1, 400, 70, 8, 9}, {1, 2, 1, 577, 40, 16, 16}, {3, 3, 3, 20, 90, 8, 8}, {1, 5, 5, 200, 33, 4, 3}};
    static const int threads[] = {1, 2, 3, 8};
    static const DType types[] = {DT_F32, DT_BF16, DT_F16};
    uint64_t seed = 5;
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int how = 0; how < 6; how++) {
            if ((i + how) % ONE_IN) continue;
            Sdpa f = make_sdpa(large[i], how % 2, &seed);
            if (how % 2) f.upper = 0;
            Sdpa a = typed(&f, types[how / 2]);
            size_t bytes = (size_t)(a.B * a.H * a.N * a.E) * dtype_size(a.t);
            for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(sdpa, l)) {
                float *first = malloc(bytes);
                for (int t = 0; t < 4; t++) {
                    const float *out = run_sdpa(l, &a, threads[t]);
                    if (t == 0) memcpy(first, out, bytes);
                    else if (memcmp(first, out, bytes))
                        STOP("sdpa of %s on %s, shape %d: %d threads differ", dtype_name(a.t), cpu_level_name(l), i,
                             threads[t]);
                }
                if (a.t == DT_F32) check_sdpa(l, &a, first, "none");
                free(first);
            }
        }
}

static void test_sdpa_types(void **state)
{
    uint64_t seed = 6;
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int how = 0; how < 2 * MASKS; how++) {
            if ((i + how) % ONE_IN) continue;
            Sdpa f = make_sdpa(shapes[i], (i + how) % 2, &seed);
            f.lower = how % 5 == 2 ? -3 : -SDPA_ANY;
            f.upper = how % 5 == 1 ? 0 : how % 5 == 2 ? 4 : SDPA_ANY;
            f.softcap = (i + how) % 7 == 1 ? 1.5f : 0;
            make_mask(&f, (MaskKind)(how / 2), &seed);
            Sdpa a = typed(&f, how % 2 ? DT_F16 : DT_BF16);
            for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(sdpa, l))
                check_typed(l, &f, &a, mask_names[how / 2]);
        }
}

/* A finite mask that swallows every score: all keys weigh the same, however the kernel rounds. */
static void test_sdpa_swallowed(void **state)
{
    static const float low[] = {-1e30f, -3.4028234e38f, -1e9f, -5e4f, -7.7e30f, -1e10f, -1.7e38f, -33333.3f};
    uint64_t seed = 8;
    (void)state;
    for (size_t i = 0; i < sizeof low / sizeof *low; i += ONE_IN) {
        Sdpa f = make_sdpa((int64_t[]){1, 2, 1, 40, 150, 64, 64}, false, &seed);
        f.mask = &low[i];
        for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(sdpa, l))
            check_sdpa(l, &f, run_sdpa(l, &f, 1), "swallows all");
        for (int t = 0; t < 2; t++) {
            Sdpa a = typed(&f, t ? DT_F16 : DT_BF16);
            for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(sdpa, l))
                check_typed(l, &f, &a, "swallows all");
        }
    }
}

/* Each sequence of a ragged batch has the bits that it has alone. */
static void test_sdpa_ragged(void **state)
{
    static const int64_t rows[] = {0, 7, 7, 40, 41, 141}, keys[] = {0, 12, 15, 85, 85, 148};
    enum { SEQUENCES = 5, ALL = 141 };
    uint64_t seed = 7;
    (void)state;
    for (int how = 0; how < 12; how += ONE_IN > 1 ? 5 : 1) {
        Sdpa f = make_sdpa((int64_t[]){1, 4, 2, ALL, 148, 24, 40}, how % 2, &seed);
        f.upper = how / 2 % 2 ? 0 : SDPA_ANY;
        Sdpa a = typed(&f, (DType[]){DT_F32, DT_BF16, DT_F16}[how / 4]);
        int64_t size = (int64_t)dtype_size(a.t);
        a.os[2] = a.E * a.H, a.os[1] = a.E, a.os[0] = 0;
        for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(sdpa, l)) {
            const SdpaKernels *k = &kernels_at(l)->sdpa;
            Sdpa r = a;
            char *out = room(5, ALL * a.E * a.H * size), *alone = room(3, ALL * a.E * a.H * size);
            r.B = SEQUENCES, r.N = 100, r.M = 70, r.q_rows = rows, r.k_rows = keys, r.out = out;
            void *space = room(6, ((int64_t)k->workspace(&r, 3) + 63) / 64 * 64);
            k->run(&r, space, 3);
            assert_guard(out);
            assert_guard(space);
            for (int s = 0; s < SEQUENCES; s++) {
                Sdpa one = a;
                one.N = rows[s + 1] - rows[s], one.M = keys[s + 1] - keys[s];
                one.q = (const char *)a.q + rows[s] * a.qs[2] * size,
                one.k = (const char *)a.k + keys[s] * a.ks[2] * size,
                one.v = (const char *)a.v + keys[s] * a.vs[2] * size;
                one.out = alone + rows[s] * a.os[2] * size;
                if (one.N) k->run(&one, room(6, ((int64_t)k->workspace(&one, 1) + 63) / 64 * 64), 1);
            }
            if (memcmp(out, alone, (size_t)(ALL * a.E * a.H * size)))
                STOP("ragged sdpa of %s on %s, case %d: not the bits of each sequence alone", dtype_name(a.t),
                     cpu_level_name(l), how);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sdpa),         cmocka_unit_test(test_sdpa_steep), cmocka_unit_test(test_sdpa_special),
        cmocka_unit_test(test_sdpa_threads), cmocka_unit_test(test_sdpa_types), cmocka_unit_test(test_sdpa_swallowed),
        cmocka_unit_test(test_sdpa_ragged),
    };
    return cmocka_run_group_tests_name("sdpa", tests, NULL, NULL);
}
