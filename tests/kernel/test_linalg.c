/* Attention and matrix products against sums in long double and 128-bit integers. Gaps between rows, and what lies around the operands, are NaN. */
#include "kernel_test.h"

/* ------------------------------------------------------------------ matrix products */

__extension__ typedef __int128 Wide;

/* One operand of R x C: plain, transposed, rows spread, columns spread, one row for all. Sets the strides; the span in elements. */
static int64_t lay_out(int how, int64_t rows, int64_t cols, int64_t *rs, int64_t *cs)
{
    static const int64_t gap = 3;
    *rs = how == 1 ? 1 : how == 2 ? cols + gap : how == 3 ? cols * 2 : how == 4 ? 0 : cols;
    *cs = how == 1 ? rows : how == 3 ? 2 : 1;
    return rows && cols ? (rows - 1) * *rs + (cols - 1) * *cs + 1 : 0;
}

static void check_matmul(CpuLevel l, int64_t M, int64_t N, int64_t K, int how, uint64_t *state)
{
    const LinalgKernels *k = &kernels_at(l)->linalg;
    int64_t ars, acs, brs, bcs, na = lay_out(how % 5, M, K, &ars, &acs), nb = lay_out(how / 5, K, N, &brs, &bcs);
    float *a = room(0, na * 4), *b = room(1, nb * 4), *c = room(2, M * N * 4);
    double *da = room(3, na * 8), *db = room(4, nb * 8), *dc = room(5, M * N * 8);
    for (int64_t i = 0; i < M * K; i++) a[i / K * ars + i % K * acs] = random_unit(state) * (unit_random(state) % 40 ? 1 : awkward[unit_random(state) % 14]);
    for (int64_t i = 0; i < K * N; i++) b[i / N * brs + i % N * bcs] = random_unit(state);
    for (int64_t i = 0; i < na; i++) da[i] = a[i];
    for (int64_t i = 0; i < nb; i++) db[i] = b[i];
    k->matmul_f32(c, a, b, M, N, K, ars, acs, brs, bcs);
    k->matmul_f64(dc, da, db, M, N, K, ars, acs, brs, bcs);
    for (int64_t i = 0; i < M * N; i++) {
        long double want = 0, size = 0;
        for (int64_t j = 0; j < K; j++) {
            long double term = (long double)da[i / N * ars + j * acs] * db[j * brs + i % N * bcs];
            want += term;
            size += fabsl(term);
        }
        /* K products and sums in double; f32 rounds once more */
        double far = (double)size * (double)(K + 1) * 0x1p-53;
        if (isnan(want) ? !isnan(c[i]) || !isnan(dc[i])
                        : !(isinf(want) ? c[i] == (float)want && dc[i] == (double)want
                                        : fabs((double)c[i] - (double)want) <= far + fabs((double)want) * 0x1p-24 + 0x1p-149 && fabs(dc[i] - (double)want) <= far))
            STOP("matmul %d x %d x %d, layouts %d, on %s: [%d] is %a and %a, expected %a", (int)M, (int)N, (int)K, how, cpu_level_name(l), (int)i, (double)c[i],
                 dc[i], (double)want);
    }
    assert_guard(c);
    assert_guard(dc);
    int64_t *ia = room(3, na * 8), *ib = room(4, nb * 8), *ic = room(5, M * N * 8);
    for (int64_t i = 0; i < na; i++) ia[i] = (int64_t)((uint64_t)unit_random(state) << 33 ^ unit_random(state)); /* products wrap */
    for (int64_t i = 0; i < nb; i++) ib[i] = (int64_t)((uint64_t)unit_random(state) << 33 ^ unit_random(state));
    k->matmul_i64(ic, ia, ib, M, N, K, ars, acs, brs, bcs);
    for (int64_t i = 0; i < M * N; i++) {
        uint64_t want = 0;
        for (int64_t j = 0; j < K; j++) want += (uint64_t)((Wide)ia[i / N * ars + j * acs] * ib[j * brs + i % N * bcs]);
        assert_int_equal(ic[i], want);
    }
    assert_guard(ic);
}

static void test_matmul(void **state)
{
    static const int64_t sizes[][3] = {{0, 3, 2}, {3, 0, 2}, {3, 2, 0}, {1, 1, 1}, {1, 7, 5}, {5, 1, 8}, {7, 8, 9}, {16, 17, 15}, {33, 31, 32}, {2, 3, 257}};
    uint64_t seed = 1;
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung(l))
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int how = 0; how < 25; how++) check_matmul(l, sizes[i][0], sizes[i][1], sizes[i][2], how, &seed);
}

/* ------------------------------------------------------------------ attention */

typedef enum MaskKind { NO_MASK, KEYS_ONLY, PER_HEAD, PER_ROW, SPREAD, TRUTH_KEYS, TRUTH_ROW, TRUTH_NONE, MASKS } MaskKind;

static const char *const mask_names[] = {"none", "(M)", "(H, N, M)", "(N, 1)", "(N, M) by 2", "truth (M)", "truth (N, M)", "truth, no key"};

/* q, k, v of (B, rows, heads, width) seen as (B, heads, rows, width), rows 3 apart, or plain. */
static float *operand(int at, int64_t B, int64_t heads, int64_t rows, int64_t width, bool turned, int64_t *stride, uint64_t *state)
{
    int64_t row = width + 3;
    stride[2] = turned ? heads * row : row;
    stride[1] = turned ? row : rows * row;
    stride[0] = rows * heads * row;
    float *x = room(at, rows * width * heads * B > 0 ? (B * rows * heads * row - 3) * 4 : 0);
    for (int64_t i = 0; i < B * heads * rows * width; i++) {
        int64_t r = i / width;
        x[r / rows / heads * stride[0] + r / rows % heads * stride[1] + r % rows * stride[2] + i % width] = random_unit(state) * 2;
    }
    return x;
}

static void make_mask(Sdpa *a, MaskKind kind, uint64_t *state)
{
    static const int64_t none[4] = {0, 0, 0, 0};
    int64_t M = a->M, N = a->N, n = kind == PER_HEAD ? a->H * N * M : kind == PER_ROW ? N : kind == SPREAD ? 2 * N * M : kind == TRUTH_ROW ? N * M : M;
    memcpy(a->ms, none, sizeof none);
    a->mask = NULL;
    a->truth = NULL;
    if (kind == NO_MASK) return;
    a->ms[2] = kind == KEYS_ONLY || kind == TRUTH_KEYS || kind == TRUTH_NONE ? 0 : kind == SPREAD ? 2 * M : kind == PER_ROW ? 1 : M;
    a->ms[3] = kind == PER_ROW ? 0 : kind == SPREAD ? 2 : 1;
    a->ms[1] = kind == PER_HEAD ? N * M : 0;
    float *f = room(3, n * 4);
    uint8_t *t = room(4, n);
    for (int64_t i = 0; i < n; i++) {
        f[i] = unit_random(state) % 4 ? 3 * random_unit(state) : -INFINITY;
        t[i] = (uint8_t)(kind == TRUTH_NONE || unit_random(state) % 3 == 0 ? 0 : 1 + i % 255);
    }
    if (kind >= TRUTH_KEYS) a->truth = t;
    else a->mask = f;
}

/* One output row and how far a float kernel may be from it. To first order, in units of 2^-24: a score is off by its products and sums (D + 3 times
 * the magnitudes in it), the difference to the maximum by itself, exp by 2; the weighted sum and the normaliser take that on and add one rounding
 * a key; each block of keys may rescale (exp, two products). */
static void sdpa_model(const Sdpa *a, int64_t b, int64_t h, int64_t n, double *want, double *far, double *p, double *c)
{
    int64_t kv = h / (a->H / a->Hkv);
    double top = -INFINITY, sum = 0, spread = 0;
    const float *q = a->q + b * a->qs[0] + h * a->qs[1] + n * a->qs[2], *v = a->v + b * a->vs[0] + kv * a->vs[1];
    bool nan = false;
    for (int64_t m = 0; m < a->M; m++) {
        const float *k = a->k + b * a->ks[0] + kv * a->ks[1] + m * a->ks[2];
        int64_t at = b * a->ms[0] + h * a->ms[1] + n * a->ms[2] + m * a->ms[3];
        double s = 0, size = 0, extra = a->mask ? (double)a->mask[at] : a->truth && !a->truth[at] ? -INFINITY : 0;
        for (int64_t d = 0; d < a->D; d++) s += (double)q[d] * k[d], size += fabs((double)q[d] * k[d]);
        s *= (double)a->scale;
        if (a->softcap > 0) s = (double)a->softcap * tanh(s / (double)a->softcap);
        p[m] = m < n + a->lower || m > n + a->upper ? -INFINITY : s + extra;
        c[m] = (double)(a->D + 3) * size * fabs((double)a->scale) + (isinf(extra) ? 0 : fabs(extra)) + fabs(p[m]) + 4;
        nan |= isnan(p[m]);
        top = p[m] > top ? p[m] : top;
    }
    for (int64_t m = 0; m < a->M; m++) {
        c[m] += top - p[m];
        sum += p[m] = top == -INFINITY && !nan ? 0 : exp(p[m] - top);
        if (p[m] > 0) spread += p[m] * c[m];
    }
    for (int64_t e = 0; e < a->E; e++) {
        double s = 0, size = 0, own = 0;
        for (int64_t m = 0; m < a->M && sum != 0; m++) {
            double term = p[m] * v[m * a->vs[2] + e];
            s += term, size += fabs(term);
            if (term != 0) own += fabs(term) * c[m];
        }
        want[e] = sum == 0 ? 0 : s / sum;
        far[e] = sum == 0 ? 0 : (own + size * (spread / sum + (double)a->M + 16 + 8 * ((double)a->M / 512))) / sum * 0x1p-24 + 0x1p-149;
    }
}

enum { KEYS_MOST = 1100, WIDTH_MOST = 70 };

static void check_sdpa(CpuLevel l, const Sdpa *a, const float *out, const char *mask)
{
    static double want[WIDTH_MOST], far[WIDTH_MOST], p[KEYS_MOST], c[KEYS_MOST];
    for (int64_t row = 0; row < a->B * a->H * a->N; row++) {
        sdpa_model(a, row / a->N / a->H, row / a->N % a->H, row % a->N, want, far, p, c);
        for (int64_t e = 0; e < a->E; e++) {
            double y = out[row * a->E + e];
            if (isnan(want[e]) ? !isnan(y) : y != want[e] && !(fabs(y - want[e]) <= far[e]))
                STOP("sdpa on %s, B %d H %d/%d N %d M %d D %d E %d, mask %s, lower %d, upper %d, softcap %g: row %d, %d: %a, expected %a; %g off, %g allowed", cpu_level_name(l), (int)a->B,
                     (int)a->H, (int)a->Hkv, (int)a->N, (int)a->M, (int)a->D, (int)a->E, mask, (int)a->lower, (int)a->upper, (double)a->softcap, (int)row, (int)e, y, want[e], fabs(y - want[e]), far[e]);
        }
    }
}

/* Into room 5, workspace in room 6. */
static float *run_sdpa(CpuLevel l, Sdpa *a, int threads)
{
    const LinalgKernels *k = &kernels_at(l)->linalg;
    float *out = room(5, a->B * a->H * a->N * a->E * 4), *space = room(6, k->sdpa_workspace(a) * threads * 4);
    a->out = out;
    k->sdpa_f32(a, space, threads);
    assert_guard(out);
    assert_guard(space);
    return out;
}

static Sdpa make_sdpa(const int64_t *s, bool turned, uint64_t *state)
{
    Sdpa a = {.B = s[0], .H = s[1], .Hkv = s[2], .N = s[3], .M = s[4], .D = s[5], .E = s[6], .scale = 0.7f / sqrtf((float)(s[5] + 1)), .lower = -SDPA_ANY, .upper = SDPA_ANY};
    a.q = operand(0, a.B, a.H, a.N, a.D, turned, a.qs, state);
    a.k = operand(1, a.B, a.Hkv, a.M, a.D, turned, a.ks, state);
    a.v = operand(2, a.B, a.Hkv, a.M, a.E, turned, a.vs, state);
    return a;
}

/* Rows in sixes, panels of 8, 16 and 64 columns, blocks of 512 keys, and their neighbours. */
static const int64_t shapes[][7] = {
    {1, 1, 1, 1, 1, 1, 1},    {0, 1, 1, 2, 2, 2, 2},    {1, 1, 1, 0, 3, 4, 4},      {1, 2, 1, 3, 0, 4, 5},      {1, 2, 2, 3, 4, 0, 5},   {1, 1, 1, 3, 4, 5, 0},
    {2, 4, 2, 5, 7, 3, 8},    {1, 3, 1, 6, 8, 8, 7},    {2, 2, 2, 7, 9, 16, 9},     {1, 2, 1, 13, 15, 17, 15},  {1, 2, 2, 12, 16, 31, 16}, {1, 1, 1, 11, 17, 32, 17},
    {1, 2, 2, 33, 31, 33, 31}, {1, 2, 1, 5, 63, 64, 33}, {1, 1, 1, 64, 64, 65, 64},  {1, 1, 1, 9, 65, 15, 65},   {1, 1, 1, 7, 511, 8, 8}, {1, 1, 1, 7, 512, 8, 9},
    {1, 1, 1, 13, 513, 9, 8}, {1, 2, 1, 4, 1025, 16, 5}, {1, 1, 1, 1, 1088, 64, 64}, {1, 1, 1, 600, 3, 4, 4},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void test_sdpa(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int mask = 0; mask < MASKS; mask++)
            for (int band = 0; band < 5; band++) { /* all, causal, window, causal window, causal with a past */
                Sdpa a = make_sdpa(shapes[i], (i + mask) % 2, &seed);
                a.lower = band == 2 || band == 3 ? -3 : -SDPA_ANY;
                a.upper = band == 1 || band == 3 ? 0 : band == 2 ? 4 : band == 4 ? a.M - a.N : SDPA_ANY;
                a.softcap = (i + band) % 3 == 1 ? 1.5f : 0;
                make_mask(&a, (MaskKind)mask, &seed);
                for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung(l)) check_sdpa(l, &a, run_sdpa(l, &a, 1 + i % 3), mask_names[mask]);
            }
}

/* Large scores: the maximum moves from block to block, weights underflow; all far below 0, where exp alone would underflow. */
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
        for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung(l)) check_sdpa(l, &a, run_sdpa(l, &a, 1), "none");
    }
}

/* NaN and infinity stay in the rows and columns that they touch; a row without a key is 0 whatever the values are. */
static void test_sdpa_special(void **state)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 0x1p-149f, -0.0f};
    uint64_t seed = 4;
    (void)state;
    for (int i = 0; i < 15; i++) {
        Sdpa a = make_sdpa((int64_t[]){1, 1, 1, 14, i % 2 ? 20 : 530, 5, 6}, false, &seed);
        float *x = (float *)(uintptr_t)(i / 5 == 0 ? a.q + 9 * a.qs[2] : i / 5 == 1 ? a.k + 17 * a.ks[2] : a.v + 17 * a.vs[2]);
        x[2] = special[i % 5];
        for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung(l)) check_sdpa(l, &a, run_sdpa(l, &a, 2), "none");
        make_mask(&a, TRUTH_NONE, &seed);
        if (i / 5 == 2)
            for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung(l)) check_sdpa(l, &a, run_sdpa(l, &a, 2), "truth, no key");
    }
}

static void test_sdpa_threads(void **state)
{
    static const int64_t large[][7] = {{1, 1, 1, 400, 70, 8, 9}, {1, 2, 1, 577, 40, 16, 16}, {3, 3, 3, 20, 90, 8, 8}, {1, 5, 5, 200, 33, 4, 3}};
    static const int threads[] = {1, 2, 3, 8};
    uint64_t seed = 5;
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int causal = 0; causal < 2; causal++) {
            Sdpa a = make_sdpa(large[i], causal, &seed);
            if (causal) a.upper = 0;
            size_t bytes = (size_t)(a.B * a.H * a.N * a.E) * 4;
            for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung(l)) {
                float *first = malloc(bytes);
                for (int t = 0; t < 4; t++) {
                    const float *out = run_sdpa(l, &a, threads[t]);
                    if (t == 0) memcpy(first, out, bytes);
                    else if (memcmp(first, out, bytes)) STOP("sdpa on %s, shape %d: %d threads differ", cpu_level_name(l), i, threads[t]);
                }
                check_sdpa(l, &a, first, "none");
                free(first);
            }
        }
}

/* ------------------------------------------------------------------ rotary embedding */

/* An operand of (A, B, D), the first two axes exchanged in memory when `turned`, spread by gaps; one axis of 1 broadcasts. */
static float *rotary_operand(int at, const int64_t *shape, int64_t width, int broadcast, bool turned, int64_t *stride, uint64_t *state)
{
    int64_t n[2] = {broadcast == 1 ? 1 : shape[0], broadcast == 2 ? 1 : shape[1]}, row = width + 3;
    stride[0] = broadcast == 1 ? 0 : turned ? row : n[1] * row;
    stride[1] = broadcast == 2 ? 0 : turned ? n[0] * row : row;
    float *x = room(at, n[0] * n[1] * width > 0 ? (n[0] * n[1] * row - 3) * 4 : 0);
    for (int64_t i = 0; i < n[0] * n[1]; i++)
        for (int64_t k = 0; k < width; k++) x[i / n[1] * stride[0] + i % n[1] * stride[1] + k] = random_unit(state) * (unit_random(state) % 50 ? 1 : awkward[unit_random(state) % 14]);
    return x;
}

static void check_rotary(CpuLevel l, Rotary *r, const float *x, const float *c, const float *s, int threads)
{
    float *out = room(3, r->shape[0] * r->shape[1] * r->D * 4);
    int64_t h = r->D / 2;
    r->x = x, r->cos = c, r->sin = s, r->out = out;
    kernels_at(l)->linalg.rotary_f32(r, threads);
    assert_guard(out);
    for (int64_t n = 0; n < r->shape[0] * r->shape[1]; n++) {
        int64_t a = n / r->shape[1], b = n % r->shape[1];
        const float *xr = x + a * r->xs[0] + b * r->xs[1], *cr = c + a * r->cs[0] + b * r->cs[1], *sr = s + a * r->ss[0] + b * r->ss[1];
        for (int64_t i = 0; i < r->D; i++) {
            bool first = r->interleaved ? i % 2 == 0 : i < h;
            int64_t pair = r->interleaved ? i / 2 : i % h, other = r->interleaved ? i ^ 1 : first ? i + h : i - h;
            double p = (double)xr[i] * (double)cr[r->one_cos ? pair : i], q = (double)xr[other] * (double)sr[r->one_sin ? pair : i], want = first ? p - q : p + q;
            double got = (double)out[n * r->D + i], far = (fabs(p) + fabs(q)) * 0x1p-22 + 0x1p-148;
            bool same = isnan(want) ? isnan(got) : fabs(want) > 0x1.fffffep127 ? isinf(got) || fabs(got) > 0x1.fffffcp127 : fabs(got - want) <= far;
            if (!same && !(isnan(got) && fabs(p) > 0x1.fffffep127 && fabs(q) > 0x1.fffffep127)) /* two products of double that overflow a float */
                STOP("rotary on %s, %d x %d x %d, pairs %d: row %d, %d: %a, expected %a", cpu_level_name(l), (int)r->shape[0], (int)r->shape[1], (int)r->D, r->interleaved, (int)n, (int)i,
                     got, want);
        }
    }
}

static void test_rotary(void **state)
{
    static const int64_t sizes[][3] = {{0, 2, 4}, {1, 1, 2}, {2, 3, 4}, {3, 1, 14}, {2, 5, 16}, {4, 3, 30}, {2, 2, 34}, {3, 7, 64}, {5, 130, 66}};
    uint64_t seed = 6;
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 24; how++) {
            Rotary r = {.t = DT_F32, .rank = 2, .shape = {sizes[i][0], sizes[i][1]}, .D = sizes[i][2], .interleaved = how & 1, .one_cos = how >> 1 & 1, .one_sin = how >> 2 & 1};
            const float *x = rotary_operand(0, r.shape, r.D, 0, how % 3 == 1, r.xs, &seed);
            const float *c = rotary_operand(1, r.shape, r.one_cos ? r.D / 2 : r.D, how / 8, false, r.cs, &seed);
            const float *s = rotary_operand(2, r.shape, r.one_sin ? r.D / 2 : r.D, how % 3, true, r.ss, &seed);
            for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung(l)) check_rotary(l, &r, x, c, s, 1 + how % 3);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul), cmocka_unit_test(test_sdpa), cmocka_unit_test(test_sdpa_steep), cmocka_unit_test(test_sdpa_special),
        cmocka_unit_test(test_sdpa_threads), cmocka_unit_test(test_rotary),
    };
    return cmocka_run_group_tests_name("linalg", tests, NULL, NULL);
}
