/* Convolutions by loops (gemm_direct.c), by tiles of taps (gemm_taps.c) and depthwise (gemm_depthwise.c), the latter
 * two of every rung, against sums in double: groups, transposed, one to three axes, layouts, epilogues, weights that
 * change, threads. What lies around the operands, and scratch, is NaN.
 */
#include "kernel_test.h"
#include "kernel/gemm_impl.h"
#include "team/team.h"

enum { X, WEIGHT, Y, BIAS, OTHER };

static size_t size_of(DType t) { return t == DT_BF16 ? 2 : 4; }

static int64_t below(uint64_t *state, uint64_t n) { return (int64_t)(unit_random(state) % n); }

static Tensor filled(int r, DType t, int rank, const int64_t *shape, bool last, uint64_t *state)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= shape[i];
    Tensor x = tensor_of(t, rank, shape, room(r, n * (int64_t)size_of(t)));
    if (last) strides_channels_last(x.rank, x.shape, x.stride);
    for (int64_t i = 0; i < n; i++) store_f64(t, (char *)x.data + (size_t)i * size_of(t), (double)random_unit(state));
    return x;
}

/* The element of channel c of image b at a place of up to three axes. */
static int64_t place(const Tensor *x, int64_t b, int64_t c, const int64_t *at)
{
    int64_t i = b * x->stride[0] + c * x->stride[1];
    for (int k = 2; k < x->rank; k++) i += at[k - 2] * x->stride[k];
    return i;
}

static double element(const Tensor *x, int64_t i)
{
    return element_of(x->dtype, x->data, i);
}

static void unravel(int64_t i, int n, const int64_t *shape, int64_t *at)
{
    for (int k = n - 1; k >= 0; k--) {
        at[k] = i % shape[k];
        i /= shape[k];
    }
}

/* Each pixel of x meets each tap: where they go is the definition of a transposed convolution,
 * and of the other with x and y exchanged. */
static void expect(const GemmConv *d, double *sums, double *sizes)
{
    const Tensor *walk = d->transposed ? d->x : d->y, *reach = d->transposed ? d->y : d->x;
    int64_t pixels = 1, taps = 1, C = d->x->shape[1], O = d->y->shape[1], cg = C / d->groups, og = O / d->groups;
    for (int k = 0; k < d->spatial; k++) {
        pixels *= walk->shape[2 + k];
        taps *= d->w->shape[2 + k];
    }
    for (int64_t i = 0; i < d->x->shape[0] * pixels * taps; i++) {
        int64_t b = i / taps / pixels, t = i % taps, here[3], k[3], there[3];
        unravel(i / taps % pixels, d->spatial, walk->shape + 2, here);
        unravel(t, d->spatial, d->w->shape + 2, k);
        bool inside = true;
        for (int a = 0; a < d->spatial; a++) {
            there[a] = here[a] * d->stride[a] - d->padding[a] + k[a] * d->dilation[a];
            inside &= there[a] >= 0 && there[a] < reach->shape[2 + a];
        }
        for (int64_t o = 0; inside && o < O; o++)
            for (int64_t c = 0; c < cg; c++) {
                int64_t ci = o / og * cg + c,
                        wi = d->transposed ? (ci * og + o % og) * taps + t : (o * cg + c) * taps + t;
                double z = element(d->x, place(d->x, b, ci, d->transposed ? here : there)) * element(d->w, wi);
                int64_t y = place(d->y, b, o, d->transposed ? there : here);
                sums[y] += z;
                sizes[y] += fabs(z);
            }
    }
}

typedef enum Way { DIRECT, TAPS, DEPTHWISE } Way;

static CpuLevel rung;
static TapWeights *pool;
static PackedWeights *packed;

static void *scratch_of(size_t n)
{
    void *scratch = aligned_alloc(64, n + 64 - n % 64);
    memset(scratch, 0xff, n); /* what is not filled must not be taken */
    return scratch;
}

/* False: not made for it. */
static bool run(Way way, const GemmConv *d, int threads, void *y)
{
    Err err = {0};
    GemmBuffers m = {.a = d->x->data, .b = d->w->data, .bias = d->bias ? d->bias->data : NULL, .c = y};
    team_enter(threads, NULL);
    Direct *g = way == DIRECT ? direct_conv(d, &err) : NULL;
    Taps *t = way == TAPS ? tap_conv(pool, packed, kernels_at(rung), d, &err) : NULL;
    Depthwise *w = way == DEPTHWISE ? depthwise_conv(kernels_at(rung), d, &err) : NULL;
    if (*err.msg) STOP("%s", err.msg);
    if (!g && !t && !w) return false;
    void *scratch = scratch_of(g ? direct_scratch(g) : t ? tap_conv_scratch(t) : depthwise_scratch(w));
    bool ok = g   ? direct_run(g, &m, scratch, &err)
              : t ? tap_conv_run(t, &m, scratch, &err)
                  : depthwise_run(w, &m, NULL, scratch, &err);
    assert_true(ok);
    free(scratch);
    direct_free(g);
    tap_conv_free(t);
    depthwise_free(w);
    return true;
}

/* False: the way is not made for the case. */
static bool check(Way way, int number, uint64_t *seed)
{
    int spatial = 1 + number % 3;
    bool transposed = number / 3 % 2;
    DType t = number / 6 % 2 ? DT_BF16 : DT_F32;
    int64_t groups = 1 + below(seed, 3), cg = 1 + below(seed, 4), og = 1 + below(seed, 4), B = 1 + below(seed, 2);
    bool last = way == DIRECT ? number % 4 == 0 : true; /* the result is channels-last */
    if (way == TAPS) {
        static const int64_t many[] = {1, 2, 3, 7, 8, 15, 16, 17, 20, 31, 33, 48, 50, 64, 70, 100};
        groups = number % 4 ? 1 : groups, cg = many[below(seed, spatial < 3 ? 16 : 5)],
        og = many[below(seed, spatial < 3 ? 16 : 5)];
    }
    if (way == DEPTHWISE) groups = 2 + below(seed, spatial < 3 ? 70 : 18), cg = og = 1;
    int64_t x_shape[5] = {B, groups * cg}, y_shape[5] = {B, groups * og},
            w_shape[5] = {transposed ? groups * cg : groups * og, transposed ? og : cg};
    int64_t stride[3], padding[3], padding_end[3], dilation[3];
    for (int k = 0; k < spatial; k++) {
        int64_t window = 1 + below(seed, 4), in = spatial < 3 ? window * 2 + below(seed, 9) : window + below(seed, 4),
                span;
        if (way == DIRECT && number % 7 == 3) window += 4 + below(seed, spatial < 3 ? 12 : 3), in = 1 + below(seed, 3);
        stride[k] = 1 + below(seed, 3);
        dilation[k] = 1 + below(seed, 2);
        padding[k] = padding_end[k] = below(seed, (uint64_t)window);
        span = (window - 1) * dilation[k] + 1;
        x_shape[2 + k] = in;
        w_shape[2 + k] = window;
        y_shape[2 + k] = transposed ? (in - 1) * stride[k] + span - 2 * padding[k]
                                    : (in + 2 * padding[k] - span) / stride[k] + 1;
        if (y_shape[2 + k] <= 0) return false;
    }
    Tensor x = filled(X, t, 2 + spatial, x_shape, number % 5 < 1 + (way != DIRECT), seed),
           w = filled(WEIGHT, t, 2 + spatial, w_shape, false, seed);
    Tensor y = filled(Y, t, 2 + spatial, y_shape, last, seed), bias = filled(BIAS, DT_F32, 1, y_shape + 1, false, seed);
    GemmConv d = {.x = &x,
                  .w = &w,
                  .y = &y,
                  .bias = number % 3 ? &bias : NULL,
                  .spatial = spatial,
                  .stride = stride,
                  .padding = padding,
                  .padding_end = padding_end,
                  .dilation = dilation,
                  .groups = groups,
                  .transposed = transposed,
                  .w_constant = number % 11 > 0,
                  .sum = number % 7 == 0,
                  .act = number % 2 ? GEMM_NONE : GEMM_RELU};
    packed = packed_weights_create(NULL);
    pool = tap_weights_create(NULL);
    int64_t n = tensor_numel(&y);
    double *sums = calloc((size_t)n, sizeof *sums), *sizes = calloc((size_t)n, sizeof *sizes);
    void *other = room(OTHER, n * (int64_t)size_of(t));
    memcpy(other, y.data, tensor_bytes(&y));
    Tensor before = y;
    before.data = other;
    expect(&d, sums, sizes);
    for (int64_t i = 0; i < n; i++) { /* i: in memory */
        int64_t o = last ? i % y_shape[1] : i / (n / B / y_shape[1]) % y_shape[1];
        sums[i] += (d.bias ? element(&bias, o) : 0) + (d.sum ? element(&before, i) : 0);
        if (d.act == GEMM_RELU && sums[i] < 0) sums[i] = 0;
    }
    void *again = malloc(tensor_bytes(&y));
    memcpy(again, other, tensor_bytes(&y));
    bool taken = run(way, &d, 1, y.data);
    assert_guard(y.data);
    for (int64_t i = 0; taken && i < n; i++) {
        double far = (sizes[i] + 2) * 400 * 0x1p-24 + (t == DT_BF16 ? (fabs(sums[i]) + 0.01) * 0x1.1p-8 : 0);
        if (!(fabs(element(&y, i) - sums[i]) <= far))
            STOP("%s way %d case %d, element %d: %a, expected %a", cpu_level_name(rung), (int)way, number, (int)i,
                 element(&y, i), sums[i]);
    }
    if (taken) run(way, &d, 3, again);
    if (taken) assert_memory_equal(again, y.data, tensor_bytes(&y));
    tap_weights_free(pool);
    packed_weights_free(packed);
    free(again);
    free(sums);
    free(sizes);
    return taken;
}

static void test_against_sums(void **state)
{
    uint64_t seed = 11;
    (void)state;
    for (int i = 0; i < 420 / ONE_IN; i++) check(DIRECT, i, &seed);
}

static void test_kernels(void **state)
{
    (void)state;
    for (rung = next_rung_of(conv, CPU_REF); rung < CPU_LEVELS; rung = next_rung_of(conv, rung))
        for (Way way = TAPS; way <= DEPTHWISE; way++) {
            uint64_t seed = 17;
            int taken = 0;
            for (int i = 0; i < 240 / ONE_IN; i++) taken += check(way, i, &seed);
            assert_true(taken > 180 / ONE_IN);
        }
}

/* As many outputs as wake several threads, in blocks of rows and columns, or of groups of panels. */
static void large(Way way, int64_t C, int64_t O, int64_t H, int64_t W, int64_t k)
{
    uint64_t seed = 13;
    int64_t groups = way == TAPS ? 1 : C;
    Tensor x = filled(X, DT_F32, 4, (int64_t[]){1, C, H, W}, way == TAPS, &seed),
           w = filled(WEIGHT, DT_F32, 4, (int64_t[]){O, C / groups, k, k}, false, &seed);
    Tensor y = filled(Y, DT_F32, 4, (int64_t[]){1, O, H, W}, way != DIRECT, &seed);
    int64_t one[2] = {1, 1}, pad[2] = {k / 2, k / 2};
    GemmConv d = {.x = &x,
                  .w = &w,
                  .y = &y,
                  .spatial = 2,
                  .stride = one,
                  .padding = pad,
                  .padding_end = pad,
                  .dilation = one,
                  .groups = groups,
                  .w_constant = true};
    double *sums = calloc((size_t)tensor_numel(&y), sizeof *sums),
           *sizes = calloc((size_t)tensor_numel(&y), sizeof *sizes);
    void *other = room(OTHER, (int64_t)tensor_bytes(&y));
    packed = packed_weights_create(NULL);
    pool = tap_weights_create(NULL);
    expect(&d, sums, sizes);
    assert_true(run(way, &d, 1, y.data) && run(way, &d, 3, other));
    assert_memory_equal(other, y.data, tensor_bytes(&y));
    for (int64_t i = 0; i < tensor_numel(&y); i++)
        if (!(fabs(element(&y, i) - sums[i]) <= sizes[i] * 64 * 0x1p-24))
            STOP("%s way %d element %d: %a, expected %a", cpu_level_name(rung), (int)way, (int)i, element(&y, i),
                 sums[i]);
    tap_weights_free(pool);
    packed_weights_free(packed);
    free(sums);
    free(sizes);
}

static void test_large(void **state)
{
    (void)state;
    large(DIRECT, 32, 32, 40, 41, 5);
    for (rung = next_rung_of(conv, CPU_REF); rung < CPU_LEVELS; rung = next_rung_of(conv, rung)) {
        large(DEPTHWISE, 72, 72, 40, 41, 5);
        large(TAPS, 36, 24, 30, 130, 3);
        large(TAPS, 24, 200, 3, 5, 3);
        large(TAPS, 128, 200, 5, 9, 1);
    }
}

/* Pictures made of patches: transposed, windows side by side, whose columns go together where channels are few. */
static void patches(int spatial, int64_t C, int64_t O, int64_t window, int number)
{
    uint64_t seed = 19;
    DType t = number % 2 ? DT_BF16 : DT_F32;
    int64_t x_shape[5] = {1 + number % 2, C, 3, 4, 5}, w_shape[5] = {C, O}, y_shape[5] = {x_shape[0], O}, steps[3],
            none[3] = {0}, one[3] = {1, 1, 1};
    for (int k = 0; k < spatial; k++) {
        steps[k] = w_shape[2 + k] = window;
        y_shape[2 + k] = x_shape[2 + k] * window;
    }
    Tensor x = filled(X, t, 2 + spatial, x_shape, true, &seed),
           w = filled(WEIGHT, t, 2 + spatial, w_shape, false, &seed),
           y = filled(Y, t, 2 + spatial, y_shape, true, &seed),
           bias = filled(BIAS, number / 4 % 2 ? DT_F32 : t, 1, y_shape + 1, false, &seed);
    GemmConv d = {.x = &x,
                  .w = &w,
                  .y = &y,
                  .bias = number % 3 ? &bias : NULL,
                  .spatial = spatial,
                  .stride = steps,
                  .padding = none,
                  .padding_end = none,
                  .dilation = one,
                  .groups = 1,
                  .transposed = true,
                  .w_constant = number % 5 < 3,
                  .sum = number % 7 == 0,
                  .act = number % 4 == 3 ? GEMM_RELU : GEMM_NONE};
    int64_t n = tensor_numel(&y);
    double *sums = calloc((size_t)n, sizeof *sums), *sizes = calloc((size_t)n, sizeof *sizes);
    Tensor before = y;
    before.data = room(OTHER, n * (int64_t)size_of(t));
    memcpy(before.data, y.data, tensor_bytes(&y));
    packed = packed_weights_create(NULL);
    pool = tap_weights_create(NULL);
    expect(&d, sums, sizes);
    assert_true(run(TAPS, &d, 1, y.data));
    assert_guard(y.data);
    for (int64_t i = 0; i < n; i++) {
        double want = sums[i] + (d.bias ? element(&bias, i % O) : 0) + (d.sum ? element(&before, i) : 0);
        if (d.act == GEMM_RELU && want < 0) want = 0;
        double far = (sizes[i] + 2) * 400 * 0x1p-24 + (t == DT_BF16 ? (fabs(want) + 0.01) * 0x1.1p-8 : 0);
        if (!(fabs(element(&y, i) - want) <= far))
            STOP("%s case %d, element %d: %a, expected %a", cpu_level_name(rung), number, (int)i, element(&y, i), want);
    }
    assert_true(run(TAPS, &d, 3, before.data));
    assert_memory_equal(before.data, y.data, tensor_bytes(&y));
    tap_weights_free(pool);
    packed_weights_free(packed);
    free(sums);
    free(sizes);
}

static void test_patches(void **state)
{
    static const int64_t channels[] = {1, 3, 5, 16, 20}, windows[] = {2, 3, 4, 7, 14, 16};
    (void)state;
    for (rung = next_rung(CPU_REF); rung < CPU_LEVELS; rung = next_rung(rung)) {
        for (int i = 0; i < 60 / ONE_IN; i++)
            patches(1 + i % 3, 1 + i * 7 % 40, channels[i % 5], windows[i % 3 == 2 ? i % 2 : i % 6], i);
        patches(2, 33, 3, 32, 1);
        patches(2, 130, 3, 16, 4);
    }
}

/* Weights that change, used by one block of outputs: several panels, taps at once and one by one. */
static void test_changing(void **state)
{
    (void)state;
    for (rung = next_rung(CPU_REF); rung < CPU_LEVELS; rung = next_rung(rung))
        for (int i = 0; i < 12; i++) {
            uint64_t seed = 23;
            bool transposed = i % 2;
            int64_t k = 2 + i / 2 % 3, C = 21 + i, O = 90 + 17 * (i % 4), step[2] = {1 + i / 6, 1 + i / 6},
                    pad[2] = {1, 1}, one[2] = {1, 1}, in[2] = {7, 8}, out[2];
            for (int a = 0; a < 2; a++)
                out[a] = transposed ? (in[a] - 1) * step[a] + k - 2 : (in[a] + 2 - k) / step[a] + 1;
            Tensor x = filled(X, DT_F32, 4, (int64_t[]){1, C, in[0], in[1]}, true, &seed),
                   w = filled(WEIGHT, DT_F32, 4, (int64_t[]){transposed ? C : O, transposed ? O : C, k, k}, false,
                              &seed),
                   y = filled(Y, DT_F32, 4, (int64_t[]){1, O, out[0], out[1]}, true, &seed);
            GemmConv d = {.x = &x,
                          .w = &w,
                          .y = &y,
                          .spatial = 2,
                          .stride = step,
                          .padding = pad,
                          .padding_end = pad,
                          .dilation = one,
                          .groups = 1,
                          .transposed = transposed};
            int64_t n = tensor_numel(&y);
            double *sums = calloc((size_t)n, sizeof *sums), *sizes = calloc((size_t)n, sizeof *sizes);
            void *other = room(OTHER, n * 4);
            packed = packed_weights_create(NULL);
            pool = tap_weights_create(NULL);
            expect(&d, sums, sizes);
            assert_true(run(TAPS, &d, 1, y.data) && run(TAPS, &d, 3, other));
            assert_memory_equal(other, y.data, tensor_bytes(&y));
            for (int64_t e = 0; e < n; e++)
                if (!(fabs(element(&y, e) - sums[e]) <= (sizes[e] + 1) * 400 * 0x1p-24))
                    STOP("%s case %d, element %d: %a, expected %a", cpu_level_name(rung), i, (int)e, element(&y, e),
                         sums[e]);
            tap_weights_free(pool);
            packed_weights_free(packed);
            free(sums);
            free(sizes);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_sums), cmocka_unit_test(test_kernels),
                                       cmocka_unit_test(test_large), cmocka_unit_test(test_patches),
                                       cmocka_unit_test(test_changing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
