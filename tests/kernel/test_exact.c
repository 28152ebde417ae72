/* Kernels on inputs for which float arithmetic is exact: small integers and powers of two, whose products and sums
 * every order of summation gives without rounding. So every rung must give the same bits as whole numbers do; large
 * ones stand where tiles end. A sum that takes an element twice, none, or its neighbour, differs in its value.
 *
 *     product of M x K and K x N, elements -3 to 3, 512 at the last of a tile's places: below 2^24 for K <= 1000
 */
#include "kernel_test.h"
#include "kernel/gemm_impl.h"
#include "team/team.h"
#include "sdpa_test.h"

static const int64_t edges[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 47, 48, 64, 65, 95, 97, 128, 129};
enum { EDGES = sizeof edges / sizeof *edges };

static bool at_edge(int64_t i, int64_t n) { return i == n - 1 || i % 16 == 15 || i % 48 == 0; }

/* From -3 to 3; at edges of both places a power of two instead, now and then. */
static float small(int64_t i, int64_t n, int64_t k, int64_t m, uint64_t *state)
{
    float x = (float)((int64_t)(unit_random(state) % 7) - 3);
    return at_edge(i, n) && at_edge(k, m) && unit_random(state) % 4 == 0 ? copysignf(512, x) : x;
}

static void *scratch_of(const Packed *g)
{
    size_t n = packed_scratch(g) + 64 - packed_scratch(g) % 64;
    return memset(aligned_alloc(64, n), 0xff, n);
}

static void run_packed(const Packed *g, const GemmBuffers *b)
{
    void *scratch = scratch_of(g);
    Err err = {0};
    if (!packed_run(g, b, scratch, &err)) STOP("%s", err.msg);
    free(scratch);
}

/* ------------------------------------------------------------------ products */

static void check_product(CpuLevel l, int64_t M, int64_t N, int64_t K, bool constant, bool turned, uint64_t *state)
{
    float *a = room(0, M * K * 4), *b = room(1, K * N * 4), *c = room(2, M * N * 4);
    Tensor ta = tensor_of(DT_F32, 3, (int64_t[]){1, M, K}, a), tb = tensor_of(DT_F32, 3, (int64_t[]){1, K, N}, b),
           tc = tensor_of(DT_F32, 3, (int64_t[]){1, M, N}, c);
    if (turned) tb.stride[1] = 1, tb.stride[2] = K;
    for (int64_t i = 0; i < M * K; i++) a[i] = small(i / K, M, i % K, K, state);
    for (int64_t i = 0; i < K * N; i++) b[i] = (float)((int64_t)(unit_random(state) % 7) - 3);
    GemmMatmul d = {.a = &ta, .b = &tb, .c = &tc, .b_constant = constant};
    PackedWeights *w = packed_weights_create(NULL);
    Err err = {0};
    Packed *g = packed_matmul(w, kernels_at(l), &d, &err);
    if (!g) STOP("%s", err.msg);
    run_packed(g, &(GemmBuffers){a, b, NULL, NULL, c});
    packed_free(g);
    packed_weights_free(w);
    for (int64_t i = 0; i < M * N; i++) {
        int64_t sum = 0, m = i / N, n = i % N;
        for (int64_t k = 0; k < K; k++) sum += (int64_t)a[m * K + k] * (int64_t)b[turned ? n * K + k : k * N + n];
        if (c[i] != (float)sum)
            STOP("product on %s, M %d N %d K %d: (%d, %d) is %.9g, expected %lld", cpu_level_name(l), (int)M, (int)N,
                 (int)K, (int)m, (int)n, (double)c[i], (long long)sum);
    }
    assert_guard(c);
}

static void test_products(void **state)
{
    uint64_t seed = 5;
    (void)state;
    team_enter(1, NULL);
    for (CpuLevel l = next_rung_of(product, CPU_REF); l < CPU_LEVELS; l = next_rung_of(product, l))
        for (int i = 0; i < EDGES; i++)
            for (int k = 0; k < 3; k++)
                check_product(l, edges[i], edges[(i * 5 + k * 7) % EDGES],
                              edges[(i * 3 + k * 11) % EDGES] + 300 * (k == 2), k != 1, (i + k) % 2, &seed);
}

/* ------------------------------------------------------------------ convolutions */

static int64_t conv_sum(const float *x, const float *w, int64_t C, int64_t H, int64_t W, int64_t o, int64_t y,
                        int64_t z, int64_t step, int64_t pad)
{
    int64_t sum = 0;
    for (int64_t c = 0; c < C; c++)
        for (int64_t t = 0; t < 9; t++) {
            int64_t h = y * step - pad + t / 3, v = z * step - pad + t % 3;
            if (h < 0 || h >= H || v < 0 || v >= W) continue;
            sum += (int64_t)x[(h * W + v) * C + c] * (int64_t)w[(o * C + c) * 9 + t];
        }
    return sum;
}

static void check_conv(CpuLevel l, int64_t C, int64_t O, int64_t H, int64_t W, int64_t step, int64_t pad,
                       uint64_t *state)
{
    int64_t h = (H + 2 * pad - 3) / step + 1, w = (W + 2 * pad - 3) / step + 1, one[2] = {1, 1};
    int64_t stride[2] = {step, step}, padding[2] = {pad, pad};
    float *x = room(0, C * H * W * 4), *weight = room(1, O * C * 9 * 4), *y = room(2, O * h * w * 4);
    Tensor tx = tensor_of(DT_F32, 4, (int64_t[]){1, C, H, W}, x),
           tw = tensor_of(DT_F32, 4, (int64_t[]){O, C, 3, 3}, weight),
           ty = tensor_of(DT_F32, 4, (int64_t[]){1, O, h, w}, y);
    strides_channels_last(4, tx.shape, tx.stride);
    strides_channels_last(4, ty.shape, ty.stride);
    for (int64_t i = 0; i < C * H * W; i++) x[i] = small(i / C / W, H, i % C, C, state);
    for (int64_t i = 0; i < O * C * 9; i++) weight[i] = (float)((int64_t)(unit_random(state) % 5) - 2);
    GemmConv d = {.x = &tx,
                  .w = &tw,
                  .y = &ty,
                  .spatial = 2,
                  .stride = stride,
                  .padding = padding,
                  .padding_end = padding,
                  .dilation = one,
                  .groups = 1,
                  .w_constant = true};
    PackedWeights *p = packed_weights_create(NULL);
    Err err = {0};
    Packed *g = packed_conv(p, kernels_at(l), &d, &err);
    if (!g && *err.msg) STOP("%s", err.msg);
    if (g) run_packed(g, &(GemmBuffers){x, weight, NULL, NULL, y});
    for (int64_t i = 0; g && i < O * h * w; i++) {
        int64_t want = conv_sum(x, weight, C, H, W, i % O, i / O / w, i / O % w, step, pad);
        if (y[i] != (float)want)
            STOP("convolution on %s, C %d O %d H %d W %d, stride %d, padding %d: element %d is %.9g, expected %lld",
                 cpu_level_name(l), (int)C, (int)O, (int)H, (int)W, (int)step, (int)pad, (int)i, (double)y[i],
                 (long long)want);
    }
    if (g) packed_free(g);
    packed_weights_free(p);
}

static void test_convolutions(void **state)
{
    uint64_t seed = 6;
    (void)state;
    for (CpuLevel l = next_rung_of(product, CPU_REF); l < CPU_LEVELS; l = next_rung_of(product, l))
        for (int i = 0; i < EDGES; i++)
            check_conv(l, edges[(i * 5) % EDGES], edges[i], 3 + i % 9, 3 + edges[(i * 7) % EDGES] % 23, 1 + i % 2,
                       i % 3, &seed);
}

/* ------------------------------------------------------------------ attention
 *
 * Queries and keys are numbers in bits of +-1, twice each, and one more place that takes BITS off: a key of the query's
 * number has a score of 0, all others one below -200, whose exponential is 0. So the result is the mean of the values
 * of the keys that match and are visible: exact when their number is a power of two. */

enum { BITS = 20, PLACES = 24, KEYS = 512 };

static void put_code(float *x, int64_t code, float more)
{
    for (int64_t d = 0; d < PLACES; d++) x[d] = d >= BITS ? 0 : code >> (d / 2) & 1 ? 1 : -1;
    x[BITS] = more;
}

static float number_at(int64_t j, int64_t M, int64_t e)
{
    return (float)((j * 7 + e) % 127 - 63) * (at_edge(j, M) ? 2 : 1);
}

/* Of two keys with the same number the second has 0: their mean is exact even where exp(0) is not quite 1. */
static float power_at(int64_t j, int64_t half, int64_t e)
{
    return j >= half ? 0 : ldexpf((j + e) % 2 ? 1 : -1, (int)((j * 5 + e) % 13 - 6));
}

/* Which number has query n, of numbers that stand `twice` times among the keys: keys j and j + M / 2. */
static void check_attention(CpuLevel l, DType t, int64_t N, int64_t M, int64_t E, bool twice, bool causal,
                            uint64_t *state)
{
    int64_t sizes[7] = {1, 2, 1, N, M, PLACES, E}, half = twice ? M / 2 : M;
    Sdpa f = make_sdpa(sizes, false, state);
    float *q = (float *)(uintptr_t)f.q, *k = (float *)(uintptr_t)f.k, *v = (float *)(uintptr_t)f.v;
    static int64_t code[2][KEYS];
    for (int64_t j = 0; j < M; j++) {
        put_code(k + j * f.ks[2], j % half, 1);
        for (int64_t e = 0; e < E; e++) v[j * f.vs[2] + e] = twice ? power_at(j, half, e) : number_at(j, M, e);
    }
    for (int64_t h = 0; h < 2; h++)
        for (int64_t n = 0; n < N; n++) {
            int64_t last = causal && n < half ? n + 1 : half;
            code[h][n] = (int64_t)(unit_random(state) % (uint64_t)last);
            put_code(q + h * f.qs[1] + n * f.qs[2], code[h][n], -BITS);
        }
    f.scale = 64;
    if (causal) f.upper = 0;
    place_lse(&f);
    Sdpa a = typed(&f, t);
    int64_t row = E + 3, bytes = t == DT_F32 ? 4 : 2;
    a.os[2] = row, a.os[1] = N * row, a.os[0] = 2 * N * row;
    a.out = room(5, (2 * N * row - 3) * bytes);
    a.lse = f.lse;
    memcpy(a.ls, f.ls, sizeof a.ls);
    const SdpaKernels *s = &kernels_at(l)->sdpa;
    size_t space = s->workspace(&a, 1);
    void *work = aligned_alloc(64, space + 64 - space % 64);
    s->run(&a, work, 1);
    free(work);
    for (int64_t i = 0; i < 2 * N * E; i++) {
        int64_t h = i / E / N, n = i / E % N, e = i % E, c = code[h][n];
        bool both = twice && (!causal || c + half <= n);
        float want = both ? (v[c * f.vs[2] + e] + v[(c + half) * f.vs[2] + e]) / 2 : v[c * f.vs[2] + e];
        double got = load_f64(t, (char *)a.out + (h * N * row + n * row + e) * bytes);
        if (t == DT_BF16) want = bf16_to_f32(f32_to_bf16(want));
        if (got != (double)want)
            STOP("attention of %s on %s, N %d M %d E %d: head %d, row %d, element %d is %.9g, expected %.9g",
                 dtype_name(t), cpu_level_name(l), (int)N, (int)M, (int)E, (int)h, (int)n, (int)e, got, (double)want);
    }
}

static void test_attention(void **state)
{
    uint64_t seed = 7;
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(sdpa, l))
        for (int i = 0; i < EDGES; i++)
            for (int kind = 0; kind < 4; kind++) {
                int64_t M = edges[i] * 2;
                check_attention(l, DT_F32, edges[(i * 3 + kind) % EDGES], M, edges[(i * 5) % EDGES] % 80 + 1, kind & 1,
                                kind & 2, &seed);
                check_attention(l, DT_BF16, edges[(i * 3 + kind) % EDGES], M, 16 + 16 * (i % 4), kind & 1, kind & 2,
                                &seed);
            }
}

/* ------------------------------------------------------------------ sums, norms, softmax */

static void test_sums(void **state)
{
    uint64_t seed = 8;
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(reduce, l))
        for (int i = 0; i < EDGES; i++) {
            int64_t n = edges[i] * 5, rows = edges[(i * 3) % EDGES];
            float *x = room(0, rows * n * 4);
            double *sums = room(1, n * 8);
            for (int64_t k = 0; k < rows * n; k++) x[k] = small(k / n, rows, k % n, n, &seed);
            const ReduceKernels *k = &kernels_at(l)->reduce;
            k->columns_f32(sums, x, NULL, rows, n, n);
            for (int64_t j = 0; j < n; j++) {
                int64_t want = 0;
                for (int64_t r = 0; r < rows; r++) want += (int64_t)x[r * n + j];
                if (sums[j] != (double)want)
                    STOP("column %d on %s: %.9g, expected %lld", (int)j, cpu_level_name(l), sums[j], (long long)want);
            }
            for (int64_t r = 0; r < rows; r++) {
                int64_t want = 0;
                for (int64_t j = 0; j < n; j++) want += (int64_t)x[r * n + j];
                double got = k->sum_f32(x + r * n, n);
                if (got != (double)want)
                    STOP("sum of %d on %s: %.9g, expected %lld", (int)n, cpu_level_name(l), got, (long long)want);
            }
        }
}

/* Rows of +-a with eps = 3 a^2: the mean is 0, the root 2 a, and the result +-w / 2 + b. */
static void test_norms(void **state)
{
    uint64_t seed = 9;
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(reduce, l))
        for (int i = 0; i < EDGES; i++)
            for (int rms = 0; rms < 2; rms++) {
                int64_t n = edges[i] * 2;
                float *x = room(0, n * 4), *w = room(1, n * 4), *b = room(2, n * 4), *y = room(3, n * 4), mean, rstd;
                float size = ldexpf(1, i % 9 - 4);
                for (int64_t j = 0; j < n; j++) {
                    x[j] = (j / 2) % 2 ? size : -size;
                    w[j] = (float)((int64_t)(unit_random(&seed) % 9) - 4);
                    b[j] = (float)((int64_t)(unit_random(&seed) % 9) - 4);
                }
                for (int64_t j = 0; j < n; j += 2) x[j + 1] = -x[j];
                kernels_at(l)->reduce.norm_f32(y, x, w, rms ? NULL : b, 1, n, 3 * (double)size * (double)size, rms,
                                               rms ? NULL : &mean, rms ? NULL : &rstd, 1);
                for (int64_t j = 0; j < n; j++) {
                    float want = (x[j] > 0 ? 0.5f : -0.5f) * w[j] + (rms ? 0 : b[j]);
                    if (y[j] != want)
                        STOP("norm of %d on %s: element %d is %.9g, expected %.9g", (int)n, cpu_level_name(l), (int)j,
                             (double)y[j], (double)want);
                }
            }
}

/* A power of two of equal elements, the others -inf or far below: each has that share. */
static void test_softmax(void **state)
{
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(reduce, l))
        for (int i = 0; i < EDGES; i++)
            for (int64_t equal = 1; equal <= edges[i]; equal *= 2) {
                int64_t n = edges[i] * 2;
                float *x = room(0, n * 4), *y = room(1, n * 4);
                for (int64_t j = 0; j < n; j++) x[j] = n - 1 - j < equal ? 77 : j % 2 ? -INFINITY : -999;
                kernels_at(l)->reduce.softmax_f32(y, x, 1, n, false, false, 1);
                for (int64_t j = 0; j < n; j++) {
                    float want = n - 1 - j < equal ? 1 / (float)equal : 0;
                    if (y[j] != want)
                        STOP("softmax of %d on %s, %d equal: element %d is %.9g", (int)n, cpu_level_name(l), (int)equal,
                             (int)j, (double)y[j]);
                }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products),  cmocka_unit_test(test_convolutions),
                                       cmocka_unit_test(test_attention), cmocka_unit_test(test_sums),
                                       cmocka_unit_test(test_norms),     cmocka_unit_test(test_softmax)};
    return cmocka_run_group_tests_name("exact", tests, NULL, NULL);
}
