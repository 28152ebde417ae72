/* Convolutions by loops (gemm_direct.c) against sums in double: groups, transposed, one to three axes, layouts,
 * epilogues, threads. What lies around the operands, and scratch, is NaN.
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
    return load_f64(x->dtype, (const char *)x->data + (size_t)i * size_of(x->dtype));
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

static void run(const GemmConv *d, int threads, void *y)
{
    Err err = {0};
    team_enter(threads, NULL);
    Direct *g = direct_conv(d, &err);
    if (!g) STOP("%s", err.msg);
    size_t n = direct_scratch(g);
    void *scratch = aligned_alloc(64, n + 64 - n % 64);
    memset(scratch, 0xff, n);
    assert_true(
        direct_run(g, &(GemmBuffers){.a = d->x->data, .b = d->w->data, .bias = d->bias ? d->bias->data : NULL, .c = y},
                   scratch, &err));
    free(scratch);
    direct_free(g);
}

static void check(int number, uint64_t *seed)
{
    int spatial = 1 + number % 3;
    bool transposed = number / 3 % 2;
    DType t = number / 6 % 2 ? DT_BF16 : DT_F32;
    int64_t groups = 1 + below(seed, 3), cg = 1 + below(seed, 4), og = 1 + below(seed, 4), B = 1 + below(seed, 2);
    int64_t x_shape[5] = {B, groups * cg}, y_shape[5] = {B, groups * og},
            w_shape[5] = {transposed ? groups * cg : groups * og, transposed ? og : cg};
    int64_t stride[3], padding[3], padding_end[3], dilation[3];
    for (int k = 0; k < spatial; k++) {
        int64_t window = 1 + below(seed, 4), in = window * 2 + below(seed, 9), span;
        stride[k] = 1 + below(seed, 3);
        dilation[k] = 1 + below(seed, 2);
        padding[k] = padding_end[k] = below(seed, (uint64_t)window);
        span = (window - 1) * dilation[k] + 1;
        x_shape[2 + k] = in;
        w_shape[2 + k] = window;
        y_shape[2 + k] = transposed ? (in - 1) * stride[k] + span - 2 * padding[k]
                                    : (in + 2 * padding[k] - span) / stride[k] + 1;
        if (y_shape[2 + k] <= 0) return;
    }
    Tensor x = filled(X, t, 2 + spatial, x_shape, number % 5 == 0, seed),
           w = filled(WEIGHT, t, 2 + spatial, w_shape, false, seed);
    Tensor y = filled(Y, t, 2 + spatial, y_shape, number % 4 == 0, seed),
           bias = filled(BIAS, DT_F32, 1, y_shape + 1, false, seed);
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
                  .sum = number % 7 == 0,
                  .act = number % 2 ? GEMM_NONE : GEMM_RELU};
    int64_t n = tensor_numel(&y);
    double *sums = calloc((size_t)n, sizeof *sums), *sizes = calloc((size_t)n, sizeof *sizes);
    void *other = room(OTHER, n * (int64_t)size_of(t));
    memcpy(other, y.data, tensor_bytes(&y));
    Tensor before = y;
    before.data = other;
    expect(&d, sums, sizes);
    for (int64_t i = 0; i < n; i++) { /* i: in memory */
        int64_t o = number % 4 == 0 ? i % y_shape[1] : i / (n / B / y_shape[1]) % y_shape[1];
        sums[i] += (d.bias ? element(&bias, o) : 0) + (d.sum ? element(&before, i) : 0);
        if (d.act == GEMM_RELU && sums[i] < 0) sums[i] = 0;
    }
    void *again = malloc(tensor_bytes(&y));
    memcpy(again, other, tensor_bytes(&y));
    run(&d, 1, y.data);
    assert_guard(y.data);
    for (int64_t i = 0; i < n; i++) {
        double far = (sizes[i] + 2) * 400 * 0x1p-24 + (t == DT_BF16 ? (fabs(sums[i]) + 0.01) * 0x1.1p-8 : 0);
        if (!(fabs(element(&y, i) - sums[i]) <= far))
            STOP("case %d, element %d: %a, expected %a", number, (int)i, element(&y, i), sums[i]);
    }
    run(&d, 3, again);
    assert_memory_equal(again, y.data, tensor_bytes(&y));
    free(again);
    free(sums);
    free(sizes);
}

static void test_against_sums(void **state)
{
    uint64_t seed = 11;
    (void)state;
    for (int i = 0; i < 420; i++) check(i, &seed);
}

/* As many outputs as wake several threads. */
static void test_large(void **state)
{
    uint64_t seed = 13;
    (void)state;
    Tensor x = filled(X, DT_F32, 4, (int64_t[]){1, 32, 40, 41}, false, &seed),
           w = filled(WEIGHT, DT_F32, 4, (int64_t[]){32, 1, 5, 5}, false, &seed);
    Tensor y = filled(Y, DT_F32, 4, (int64_t[]){1, 32, 40, 41}, false, &seed);
    int64_t one[2] = {1, 1}, two[2] = {2, 2};
    GemmConv d = {.x = &x,
                  .w = &w,
                  .y = &y,
                  .spatial = 2,
                  .stride = one,
                  .padding = two,
                  .padding_end = two,
                  .dilation = one,
                  .groups = 32};
    double *sums = calloc((size_t)tensor_numel(&y), sizeof *sums),
           *sizes = calloc((size_t)tensor_numel(&y), sizeof *sizes);
    void *other = room(OTHER, (int64_t)tensor_bytes(&y));
    expect(&d, sums, sizes);
    run(&d, 1, y.data);
    run(&d, 3, other);
    assert_memory_equal(other, y.data, tensor_bytes(&y));
    for (int64_t i = 0; i < tensor_numel(&y); i++)
        if (!(fabs(element(&y, i) - sums[i]) <= sizes[i] * 32 * 0x1p-24))
            STOP("element %d: %a, expected %a", (int)i, element(&y, i), sums[i]);
    free(sums);
    free(sizes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_sums), cmocka_unit_test(test_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
