/* Matrix products and rotary embedding against sums in long double and 128-bit integers.
 * Gaps between rows, and what lies around the operands, are NaN. */
#include "kernel_test.h"

/* ------------------------------------------------------------------ matrix products */

__extension__ typedef __int128 Wide;

/* One operand of R x C: plain, transposed, rows spread, columns spread, one row for all.
 * Sets the strides; the span in elements. */
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
    for (int64_t i = 0; i < M * K; i++)
        a[i / K * ars + i % K * acs] = random_unit(state) *
                                       (unit_random(state) % 40 ? 1 : awkward[unit_random(state) % 14]);
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
        if (isnan(want)
                ? !isnan(c[i]) || !isnan(dc[i])
                : !(isinf(want) ? c[i] == (float)want && dc[i] == (double)want
                                : fabs((double)c[i] - (double)want) <= far + fabs((double)want) * 0x1p-24 + 0x1p-149 &&
                                      fabs(dc[i] - (double)want) <= far))
            STOP("matmul %d x %d x %d, layouts %d, on %s: [%d] is %a and %a, expected %a", (int)M, (int)N, (int)K, how,
                 cpu_level_name(l), (int)i, (double)c[i], dc[i], (double)want);
    }
    assert_guard(c);
    assert_guard(dc);
    int64_t *ia = room(3, na * 8), *ib = room(4, nb * 8), *ic = room(5, M * N * 8);
    for (int64_t i = 0; i < na; i++)
        ia[i] = (int64_t)((uint64_t)unit_random(state) << 33 ^ unit_random(state)); /* products wrap */
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
    static const int64_t sizes[][3] = {{0, 3, 2}, {3, 0, 2}, {3, 2, 0},    {1, 1, 1},    {1, 7, 5},
                                       {5, 1, 8}, {7, 8, 9}, {16, 17, 15}, {33, 31, 32}, {2, 3, 257}};
    uint64_t seed = 1;
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(linalg, l))
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int how = 0; how < 25; how++) check_matmul(l, sizes[i][0], sizes[i][1], sizes[i][2], how, &seed);
}

/* ------------------------------------------------------------------ rotary embedding */

/* An operand of (A, B, D), the first two axes exchanged in memory when `turned`, spread by gaps;
 * one axis of 1 broadcasts. */
static float *rotary_operand(int at, const int64_t *shape, int64_t width, int broadcast, bool turned, int64_t *stride,
                             uint64_t *state)
{
    int64_t n[2] = {broadcast == 1 ? 1 : shape[0], broadcast == 2 ? 1 : shape[1]}, row = width + 3;
    stride[0] = broadcast == 1 ? 0 : turned ? row : n[1] * row;
    stride[1] = broadcast == 2 ? 0 : turned ? n[0] * row : row;
    float *x = room(at, n[0] * n[1] * width > 0 ? (n[0] * n[1] * row - 3) * 4 : 0);
    for (int64_t i = 0; i < n[0] * n[1]; i++)
        for (int64_t k = 0; k < width; k++)
            x[i / n[1] * stride[0] + i % n[1] * stride[1] + k] =
                random_unit(state) * (unit_random(state) % 50 ? 1 : awkward[unit_random(state) % 14]);
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
        const float *xr = x + a * r->xs[0] + b * r->xs[1], *cr = c + a * r->cs[0] + b * r->cs[1],
                    *sr = s + a * r->ss[0] + b * r->ss[1];
        for (int64_t i = 0; i < r->D; i++) {
            bool first = r->interleaved ? i % 2 == 0 : i < h;
            int64_t pair = r->interleaved ? i / 2 : i % h, other = r->interleaved ? i ^ 1 : first ? i + h : i - h;
            double p = (double)xr[i] * (double)cr[r->one_cos ? pair : i],
                   q = (double)xr[other] * (double)sr[r->one_sin ? pair : i], want = first ? p - q : p + q;
            double got = (double)out[a * r->ys[0] + b * r->ys[1] + i], far = (fabs(p) + fabs(q)) * 0x1p-22 + 0x1p-148;
            bool same = isnan(want)                   ? isnan(got)
                        : fabs(want) > 0x1.fffffep127 ? isinf(got) || fabs(got) > 0x1.fffffcp127
                                                      : fabs(got - want) <= far;
            if (!same && !(isnan(got) && fabs(p) > 0x1.fffffep127 &&
                           fabs(q) > 0x1.fffffep127)) /* two products of double that overflow a float */
                STOP("rotary on %s, %d x %d x %d, pairs %d: row %d, %d: %a, expected %a", cpu_level_name(l),
                     (int)r->shape[0], (int)r->shape[1], (int)r->D, r->interleaved, (int)n, (int)i, got, want);
        }
    }
}

static void test_rotary(void **state)
{
    static const int64_t sizes[][3] = {{0, 2, 4},  {1, 1, 2},  {2, 3, 4},  {3, 1, 14},  {2, 5, 16},
                                       {4, 3, 30}, {2, 2, 34}, {3, 7, 64}, {5, 130, 66}};
    uint64_t seed = 6;
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 24; how++) {
            Rotary r = {.t = DT_F32,
                        .x_t = DT_F32,
                        .out_t = DT_F32,
                        .rank = 2,
                        .shape = {sizes[i][0], sizes[i][1]},
                        .D = sizes[i][2],
                        .interleaved = how & 1,
                        .one_cos = how >> 1 & 1,
                        .one_sin = how >> 2 & 1};
            const float *x = rotary_operand(0, r.shape, r.D, 0, how % 3 == 1, r.xs, &seed);
            const float *c = rotary_operand(1, r.shape, r.one_cos ? r.D / 2 : r.D, how / 8, false, r.cs, &seed);
            const float *s = rotary_operand(2, r.shape, r.one_sin ? r.D / 2 : r.D, how % 3, true, r.ss, &seed);
            r.ys[0] = how & 8 ? r.D : r.shape[1] * r.D, r.ys[1] = how & 8 ? r.shape[0] * r.D : r.D;
            for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(linalg, l))
                check_rotary(l, &r, x, c, s, 1 + how % 3);
        }
}

/* Rows of bf16 are those that the same values in float32 give, rounded. */
static void test_rotary_narrow(void **state)
{
    static const int64_t widths[] = {2, 6, 16, 30, 64, 66, 128, ROTARY_WIDEST};
    uint64_t seed = 7;
    (void)state;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int how = 0; how < 2; how++) {
            int64_t D = widths[i], n = 6 * D;
            float *x = room(0, n * 4), *table = room(1, n * 4), *wide = room(2, n * 4);
            uint16_t *low = room(3, n * 2), *out = room(4, n * 2);
            for (int64_t k = 0; k < n; k++) {
                table[k] = random_unit(&seed);
                store_f64(DT_BF16, &low[k],
                          random_unit(&seed) * (unit_random(&seed) % 50 ? 1 : awkward[unit_random(&seed) % 14]));
                x[k] = (float)load_f64(DT_BF16, &low[k]);
            }
            Rotary r = {.t = DT_F32,
                        .x_t = DT_F32,
                        .out_t = DT_F32,
                        .rank = 2,
                        .shape = {2, 3},
                        .D = D,
                        .interleaved = how,
                        .x = x,
                        .cos = table,
                        .sin = table,
                        .out = wide,
                        .xs = {3 * D, D},
                        .cs = {3 * D, D},
                        .ss = {0, D},
                        .ys = {3 * D, D}};
            for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(linalg, l)) {
                Rotary narrow = r;
                kernels_at(l)->linalg.rotary_f32(&r, 1);
                narrow.x_t = narrow.out_t = DT_BF16;
                narrow.x = low;
                narrow.out = out;
                kernels_at(l)->linalg.rotary_f32(&narrow, 2);
                assert_guard(out);
                for (int64_t k = 0; k < n; k++) {
                    uint16_t want;
                    store_f64(DT_BF16, &want, (double)wide[k]);
                    bool nan = isnan(wide[k]);
                    if (nan ? !isnan(load_f64(DT_BF16, &out[k])) : out[k] != want)
                        STOP("rotary of bf16 on %s, width %d, element %d: %x, expected %x", cpu_level_name(l), (int)D,
                             (int)k, (unsigned)out[k], (unsigned)want);
                }
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_rotary_narrow),
    };
    return cmocka_run_group_tests_name("linalg", tests, NULL, NULL);
}
