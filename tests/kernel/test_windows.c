/* Products whose second operand is windows of a picture, of every rung: against sums in double, and bit for bit against
 * the product with a copy of the windows and that of three threads. Channels innermost or not, groups, depthwise ones,
 * steps, dilations. What lies around the operands, and scratch, is NaN.
 */
#include "kernel_test.h"
#include "kernel/gemm_impl.h"
#include "team/team.h"

enum { A, X, COPY, C, OTHER };

static size_t size_of(DType t) { return t == DT_BF16 ? 2 : 4; }
static int64_t below(uint64_t *state, uint64_t n) { return (int64_t)(unit_random(state) % n); }
static double element(const Tensor *x, int64_t i)
{
    return element_of(x->dtype, x->data, i);
}

static void fill(Tensor *x, int r, int64_t n, uint64_t *state)
{
    x->data = room(r, n * (int64_t)size_of(x->dtype));
    for (int64_t i = 0; i < n; i++)
        store_f64(x->dtype, (char *)x->data + (size_t)i * size_of(x->dtype), (double)random_unit(state));
}

static CpuLevel rung;
static int by_channel, in_place; /* products that went channel by channel, that read both operands where they lie */

/* The product with b, or windows, by `threads`; whether it went channel by channel. */
static bool run(const Tensor *a, const Tensor *b, const Tensor *windows, const Tensor *c, void *to, int threads)
{
    Err err = {0};
    GemmMatmul d = {.a = a, .b = b, .c = c, .windows = windows, .along = 3};
    team_enter(threads, NULL);
    Channels *g = channels_matmul(kernels_at(rung), &d, &err);
    Gradient *gradient = g ? NULL : gradient_matmul(kernels_at(rung), &d, &err);
    PackedWeights *w = packed_weights_create(&err);
    Packed *p = g || gradient ? NULL : packed_matmul(w, kernels_at(rung), &d, &err);
    if (!g && !gradient && !p) STOP("%s", err.msg);
    size_t n = g ? channels_scratch(g) : p ? packed_scratch(p) : 64;
    void *scratch = aligned_alloc(64, (n + 127) / 64 * 64);
    memset(scratch, 0xff, n);
    GemmBuffers m = {.a = a->data, .b = windows ? windows->data : b->data, .c = to};
    if (gradient) gradient_run(gradient, &m);
    else assert_true(g ? channels_run(g, &m, scratch, &err) : packed_run(p, &m, scratch, &err));
    by_channel += g != NULL, in_place += gradient != NULL;
    free(scratch);
    channels_free(g);
    gradient_free(gradient);
    packed_free(p);
    packed_weights_free(w);
    return g != NULL;
}

/* The gradient of a weight (G O, each, kh, kw) of a picture (N, G each, H, W): dy (N, G O, h, w) by its windows. */
static void check(int64_t G, int64_t O, int64_t each, int64_t N, const int64_t *out, const int64_t *k,
                  const int64_t *step, const int64_t *gap, bool last, DType t, DType to, uint64_t *state)
{
    int64_t H = (out[0] - 1) * step[0] + (k[0] - 1) * gap[0] + 1, W = (out[1] - 1) * step[1] + (k[1] - 1) * gap[1] + 1,
            K = N * out[0] * out[1], columns = k[0] * k[1] * each;
    Tensor x = tensor_of(t, 4, (int64_t[]){N, G * each, H, W}, NULL), a = tensor_of(t, 3, (int64_t[]){G, O, K}, NULL),
           b = tensor_of(t, 3, (int64_t[]){G, K, columns}, NULL),
           c = tensor_of(to, 3, (int64_t[]){G, O, columns}, NULL);
    if (last) strides_channels_last(4, x.shape, x.stride);
    a.stride[0] = O, a.stride[1] = 1, a.stride[2] = G * O;
    fill(&x, X, tensor_numel(&x), state);
    fill(&a, A, tensor_numel(&a), state);
    Tensor w = tensor_of(t, 7, (int64_t[]){G, N, out[0], out[1], k[0], k[1], each}, x.data);
    memcpy(w.stride,
           (int64_t[]){each * x.stride[1], x.stride[0], x.stride[2] * step[0], x.stride[3] * step[1],
                       x.stride[2] * gap[0], x.stride[3] * gap[1], x.stride[1]},
           7 * sizeof *w.stride);
    c.data = room(C, tensor_numel(&c) * (int64_t)size_of(to));
    Tensor place = b; /* what a plan gives: no strides but the groups' */
    place.stride[0] = w.stride[0], place.stride[1] = place.stride[2] = 0;
    bool channels = run(&a, &place, &w, &c, c.data, 1);
    b.data = room(COPY, tensor_numel(&b) * (int64_t)size_of(t));
    for (int64_t i = 0; i < tensor_numel(&b); i++)
        store_f64(t, (char *)b.data + (size_t)i * size_of(t), tensor_get(&w, i));
    for (int64_t i = 0; i < tensor_numel(&c); i++) {
        int64_t g = i / (O * columns), o = i / columns % O, n = i % columns;
        double sum = 0, size = 0;
        for (int64_t j = 0; j < K; j++) {
            double z = element(&a, g * a.stride[0] + o + j * a.stride[2]) * element(&b, (g * K + j) * columns + n);
            sum += z, size += fabs(z);
        }
        double far = (size + 1) * ((double)K + 8) * 0x1p-24 + (to == DT_BF16 ? (fabs(sum) + 0.01) * 0x1.1p-8 : 0);
        if (!(fabs(element(&c, i) - sum) <= far))
            STOP("groups %d, %d by %d, %d positions on %s: [%d] is %a, expected %a", (int)G, (int)O, (int)columns,
                 (int)K, cpu_level_name(rung), (int)i, element(&c, i), sum);
    }
    assert_guard(c.data);
    size_t bytes = tensor_bytes(&c);
    void *other = room(OTHER, (int64_t)bytes);
    run(&a, &place, &w, &c, other, 3);
    assert_memory_equal(other, c.data, bytes);
    if (channels && t == DT_BF16) return; /* pairs of bf16 are summed otherwise */
    run(&a, &b, NULL, &c, other, 1);
    assert_memory_equal(other, c.data, bytes);
}

static void test_windows(void **state)
{
    static const int64_t lines[] = {1, 2, 3, 5, 7};
    uint64_t seed = 31;
    (void)state;
    for (rung = next_rung_of(product, CPU_REF); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int i = 0; i < 120 / ONE_IN; i++) {
            bool depthwise = i % 3 == 0;
            int64_t G = depthwise ? 2 + below(&seed, 90) : 1 + (i % 5 == 1), O = depthwise ? 1 : 1 + below(&seed, 40),
                    each = depthwise ? 1 : i % 4 < 3 ? 1 + below(&seed, 40) : 16 * (1 + below(&seed, 8));
            int64_t out[2] = {1 + below(&seed, 9), 1 + below(&seed, 20)}, k[2] = {lines[below(&seed, 5)], lines[i % 5]},
                    step[2] = {1 + below(&seed, 2), i % 4 ? 1 : 2}, gap[2] = {1 + below(&seed, 2), i % 7 ? 1 : 2};
            DType t = i / 2 % 2 ? DT_BF16 : DT_F32;
            check(G, O, each, 1 + below(&seed, 2), out, k, step, gap, i % 4 != 3, t, i % 8 < 6 ? DT_F32 : t, &seed);
        }
    assert_true(ONE_IN > 1 || (by_channel > 0 && in_place > 0)); /* a turn of few levels may miss one of them */
}

/* Panels that are packed as tasks come to them: b is larger than what is packed at once; or more positions, and a
 * longer line of them, than are taken at once. */
static void test_large(void **state)
{
    uint64_t seed = 37;
    (void)state;
    for (rung = next_rung_of(product, CPU_REF); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int i = 0; i < 2; i++) {
            check(1, 40, 40, 2, (int64_t[]){15, 40}, (int64_t[]){3, 3}, (int64_t[]){1, 1}, (int64_t[]){1, 1}, true,
                  i ? DT_BF16 : DT_F32, DT_F32, &seed);
            check(1, 23, 64, 2, (int64_t[]){15, 40}, (int64_t[]){3, 2}, (int64_t[]){1 + i, 1}, (int64_t[]){1, 1}, true,
                  DT_F32, DT_F32, &seed);
            check(1, 11, 32, 1, (int64_t[]){2, 600}, (int64_t[]){1, 3}, (int64_t[]){1, 2}, (int64_t[]){1, 1}, true,
                  DT_F32, DT_F32, &seed);
        }
}

/* A long K goes in parts, whose sums are added up: as near, and the same bits for any threads. */
static void test_parts(void **state)
{
    enum { G = 2, O = 5, EACH = 6, H = 31, W = 50, K = (H - 2) * (W - 1), N = 3 * 2 * EACH };
    Err err = {0};
    uint64_t seed = 41;
    (void)state;
    if (cpu_level() == CPU_REF) return;
    Tensor x = tensor_of(DT_F32, 4, (int64_t[]){1, G * EACH, H, W}, NULL),
           a = tensor_of(DT_F32, 3, (int64_t[]){G, O, K}, NULL), b = tensor_of(DT_F32, 3, (int64_t[]){G, K, N}, NULL),
           c = tensor_of(DT_F32, 3, (int64_t[]){G, O, N}, NULL);
    strides_channels_last(4, x.shape, x.stride);
    a.stride[0] = O, a.stride[1] = 1, a.stride[2] = G * O;
    fill(&x, X, tensor_numel(&x), &seed);
    fill(&a, A, tensor_numel(&a), &seed);
    Tensor w = tensor_of(DT_F32, 6, (int64_t[]){G, H - 2, W - 1, 3, 2, EACH}, x.data);
    memcpy(w.stride, (int64_t[]){EACH, x.stride[2], x.stride[3], x.stride[2], x.stride[3], 1}, 6 * sizeof *w.stride);
    b.stride[0] = w.stride[0], b.stride[1] = b.stride[2] = 0;
    GemmMatmul d = {.a = &a, .b = &b, .c = &c, .windows = &w, .along = 2};
    for (int threads = 1; threads < 4; threads += 2) {
        team_enter(threads, NULL);
        GemmPool *pool = gemm_pool_create(&err);
        Gemm *g = gemm_matmul(pool, &d, &err);
        assert_non_null(g);
        float *to = room(threads == 1 ? C : OTHER, (int64_t)tensor_bytes(&c));
        void *scratch = aligned_alloc(64, (gemm_scratch(g) + 127) / 64 * 64);
        assert_true(gemm_run(g, &(GemmBuffers){.a = a.data, .b = x.data, .c = to}, scratch, &err));
        free(scratch);
        gemm_free(g);
        gemm_pool_free(pool);
        if (threads == 1) c.data = to;
        else assert_memory_equal(to, c.data, tensor_bytes(&c));
    }
    for (int64_t i = 0; i < tensor_numel(&c); i++) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < K; k++) {
            double z = element(&a, i / (O * N) * O + i / N % O + k * a.stride[2]) *
                       tensor_get(&w, (i / (O * N) * K + k) * N + i % N);
            sum += z, size += fabs(z);
        }
        if (!(fabs(element(&c, i) - sum) <= (size + 1) * (K + 8) * 0x1p-24))
            STOP("[%d] is %a, expected %a", (int)i, element(&c, i), sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_windows), cmocka_unit_test(test_large),
                                       cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
