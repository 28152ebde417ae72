/* Our convolutions of every rung against sums in double: windows, strides, dilations, paddings, layouts, pictures of
 * one row or column, channels around the edges of chunks and panels, epilogues, batches, threads. What lies around the
 * operands, and scratch, is NaN.
 */
#include "kernel_test.h"
#include "kernel/gemm_impl.h"
#include "team/team.h"

enum { X, WEIGHT, Y, BIAS, OTHER };

typedef struct Case {
    int64_t B, C, O, H, W, kh, kw, stride[2], padding[2], dilation[2];
    int spatial;
    bool contiguous, bias, sum, constant; /* contiguous: x is (B, C, H, W) in memory */
    DType t;
    GemmAct act;
} Case;

static CpuLevel rung;

static size_t size_of(DType t) { return t == DT_BF16 ? 2 : 4; }

static Tensor filled(int r, const Case *s, int64_t B, int64_t C, int64_t H, int64_t W, bool last, uint64_t *state)
{
    int64_t shape[4] = {B, C, H, W};
    if (s->spatial == 1) shape[2] = W;
    Tensor x = tensor_of(s->t, 2 + s->spatial, shape, room(r, B * C * H * W * (int64_t)size_of(s->t)));
    if (last) strides_channels_last(x.rank, x.shape, x.stride);
    for (int64_t i = 0; i < tensor_numel(&x); i++)
        store_f64(s->t, (char *)x.data + (size_t)i * size_of(s->t), random_unit(state));
    return x;
}

static double at(const Tensor *x, int64_t b, int64_t c, int64_t h, int64_t w)
{
    bool flat = x->rank == 3;
    int64_t i = b * x->stride[0] + c * x->stride[1] + (flat ? w * x->stride[2] : h * x->stride[2] + w * x->stride[3]);
    return element_of(x->dtype, x->data, i);
}

static Packed *made(PackedWeights *p, const Case *s, const Tensor *x, const Tensor *w, const Tensor *y,
                    const Tensor *bias)
{
    Err err = {0};
    bool flat = s->spatial == 1;
    GemmConv d = {.x = x,
                  .w = w,
                  .bias = bias,
                  .y = y,
                  .spatial = s->spatial,
                  .stride = s->stride + flat,
                  .padding = s->padding + flat,
                  .padding_end = s->padding + flat,
                  .dilation = s->dilation + flat,
                  .groups = 1,
                  .w_constant = s->constant,
                  .sum = s->sum,
                  .act = s->act};
    Packed *g = packed_conv(p, kernels_at(rung), &d, &err);
    if (!g && *err.msg) STOP("%s", err.msg);
    return g;
}

static void run(const Packed *g, const void *x, const void *w, const Tensor *bias, bool sum, void *y)
{
    size_t n = packed_scratch(g);
    void *scratch = aligned_alloc(64, n + 64 - n % 64);
    memset(scratch, 0xff, n); /* cells that are not filled must not be taken */
    Err err = {0};
    if (!packed_run(g, &(GemmBuffers){x, w, bias ? bias->data : NULL, sum ? y : NULL, y}, scratch, &err))
        STOP("%s", err.msg);
    free(scratch);
}

/* False where it is not for our kernels. */
static bool check(const Case *s, uint64_t *state)
{
    int64_t out[2], in[2] = {s->H, s->W}, window[2] = {s->kh, s->kw};
    for (int i = 0; i < 2; i++) {
        out[i] = (in[i] + 2 * s->padding[i] - (window[i] - 1) * s->dilation[i] - 1) / s->stride[i] + 1;
        if (in[i] + 2 * s->padding[i] < (window[i] - 1) * s->dilation[i] + 1) return false;
    }
    Tensor x = filled(X, s, s->B, s->C, s->H, s->W, !s->contiguous, state),
           w = filled(WEIGHT, s, s->O, s->C, s->kh, s->kw, false, state);
    Tensor y = filled(Y, s, s->B, s->O, out[0], out[1], true, state),
           bias = tensor_of(DT_F32, 1, (int64_t[]){s->O}, room(BIAS, s->O * 4));
    fill_random(bias.data, s->O, 1, state);
    size_t bytes = tensor_bytes(&y), image = bytes / (size_t)s->B;
    char *before = room(OTHER, 2 * (int64_t)bytes), *other = before + bytes;
    memcpy(before, y.data, bytes);
    PackedWeights *p = packed_weights_create(NULL);
    const Tensor *pb = s->bias ? &bias : NULL;
    team_enter(1, NULL);
    Packed *g = made(p, s, &x, &w, &y, pb);
    if (!g) {
        packed_weights_free(p);
        return false;
    }
    run(g, x.data, w.data, pb, s->sum, y.data);
    packed_free(g);
    Tensor held = y;
    held.data = before;
    for (int64_t i = 0; i < tensor_numel(&y); i++) {
        int64_t b = i / (s->O * out[0] * out[1]), o = i / (out[0] * out[1]) % s->O, h = i / out[1] % out[0],
                v = i % out[1];
        double sum = s->bias ? (double)((float *)bias.data)[o] : 0, size = 1;
        for (int64_t k = 0; k < s->kh * s->kw; k++) {
            int64_t r = h * s->stride[0] - s->padding[0] + k / s->kw * s->dilation[0],
                    q = v * s->stride[1] - s->padding[1] + k % s->kw * s->dilation[1];
            for (int64_t c = 0; c < s->C && r >= 0 && r < s->H && q >= 0 && q < s->W; c++) {
                double z = at(&x, b, c, r, q) * at(&w, o, c, k / s->kw, k % s->kw);
                sum += z;
                size += fabs(z);
            }
        }
        if (s->sum) sum += at(&held, b, o, h, v);
        double want = s->act == GEMM_RELU   ? (sum > 0 ? sum : 0)
                      : s->act == GEMM_SILU ? sum / (1 + exp(-sum))
                                            : sum,
               got = at(&y, b, o, h, v);
        double far = size * ((double)(s->C * s->kh * s->kw) + 8) * 0x1p-24 +
                     (s->t == DT_BF16 ? (fabs(want) + 0.01) * 0x1.1p-8 : 0);
        if (!(fabs(got - want) <= far))
            STOP("%s %s B %d C %d O %d %d x %d window %d x %d: [%d, %d, %d, %d] is %a, expected %a",
                 cpu_level_name(rung), dtype_name(s->t), (int)s->B, (int)s->C, (int)s->O, (int)s->H, (int)s->W,
                 (int)s->kh, (int)s->kw, (int)b, (int)o, (int)h, (int)v, got, want);
    }
    assert_guard(y.data);
    /* the same bits with three threads, and for the last picture alone */
    memcpy(other, before, bytes);
    team_enter(3, NULL);
    g = made(p, s, &x, &w, &y, pb);
    run(g, x.data, w.data, pb, s->sum, other);
    packed_free(g);
    assert_memory_equal(other, y.data, bytes);
    Tensor one = x, small = y;
    one.shape[0] = small.shape[0] = 1;
    memcpy(other, before + (size_t)(s->B - 1) * image, image);
    g = made(p, s, &one, &w, &small, pb);
    run(g, (char *)x.data + (size_t)(s->B - 1) * (tensor_bytes(&x) / (size_t)s->B), w.data, pb, s->sum, other);
    packed_free(g);
    assert_memory_equal(other, (char *)y.data + (size_t)(s->B - 1) * image, image);
    packed_weights_free(p);
    return true;
}

static const DType types[] = {DT_F32, DT_BF16};

static int64_t one_of(const int64_t *list, int n, uint64_t *state) { return list[unit_random(state) % (uint64_t)n]; }

static void test_geometry(void **state)
{
    static const int64_t Cs[] = {16, 17, 20, 24, 31, 32, 33, 40, 48, 64}, Os[] = {1, 7, 16, 31, 32, 33, 48, 50, 64};
    static const int64_t sizes[] = {1, 2, 3, 5, 7, 8, 14, 19}, windows[] = {1, 1, 2, 3, 3, 5};
    uint64_t seed = 3;
    int taken = 0;
    (void)state;
    for (rung = next_rung_of(product, CPU_REF); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int i = 0; i < 300 / ONE_IN; i++) {
            Case s = {.B = 1 + i % 3,
                      .C = one_of(Cs, 10, &seed),
                      .O = one_of(Os, 9, &seed),
                      .H = i % 7 ? one_of(sizes, 8, &seed) : 1,
                      .W = one_of(sizes, 8, &seed),
                      .kh = one_of(windows, 6, &seed),
                      .kw = one_of(windows, 6, &seed),
                      .t = types[i % 2],
                      .spatial = 2,
                      .contiguous = i % 6 == 5,
                      .bias = i % 3 > 0,
                      .sum = i % 5 == 0,
                      .constant = i % 11 > 0,
                      .act = (GemmAct[]){GEMM_NONE, GEMM_RELU, GEMM_SILU}[i / 2 % 3]};
            for (int k = 0; k < 2; k++) {
                s.stride[k] = 1 + (int64_t)(unit_random(&seed) % 3);
                s.padding[k] = (int64_t)(unit_random(&seed) % 3);
                s.dilation[k] = 1 + (int64_t)(unit_random(&seed) % 4 / 3);
            }
            if (i % 4 == 0) s.stride[0] = s.stride[1] = s.dilation[0] = s.dilation[1] = 1;
            if (i % 10 == 9) s.spatial = 1, s.H = s.kh = s.stride[0] = s.dilation[0] = 1, s.padding[0] = 0;
            taken += check(&s, &seed);
        }
    assert_true(taken > 200 / ONE_IN);
}

/* Windows side by side, of one pixel too, over pictures with few channels and over contiguous ones. */
static void test_patches(void **state)
{
    uint64_t seed = 5;
    int taken = 0;
    (void)state;
    for (rung = next_rung_of(product, CPU_REF); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int i = 0; i < 40; i++) {
            int64_t kh = i % 7 == 6 ? 1 : 2 + (int64_t)(unit_random(&seed) % 7), kw = i % 3 || kh == 1 ? kh : 4;
            Case s = {.B = 1 + i % 2,
                      .C = (int64_t[]){3, 1, 4, 20}[i / 2 % 4],
                      .O = 5 + i,
                      .H = kh * (1 + i % 4) + i % 2,
                      .W = kw * (1 + i % 5) + i % 3 % 2,
                      .kh = kh,
                      .kw = kw,
                      .t = types[i % 2],
                      .stride = {kh, kw},
                      .dilation = {1, 1},
                      .spatial = 2,
                      .contiguous = i % 5 > 0,
                      .bias = i % 3 > 0,
                      .constant = true};
            taken += check(&s, &seed);
        }
    assert_true(taken > 30);
}

/* Windows that overlap and leave the picture, over few channels. */
static void test_few_channels(void **state)
{
    uint64_t seed = 11;
    int taken = 0;
    (void)state;
    for (rung = next_rung_of(product, CPU_REF); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int i = 0; i < 120; i++) {
            Case s = {.B = 1 + i % 2,
                      .C = 1 + (int64_t)(unit_random(&seed) % 8),
                      .O = 1 + (int64_t)(unit_random(&seed) % 40),
                      .H = 8 + i % 5,
                      .W = i % 4 ? 9 + i % 31 : 90,
                      .kh = 1 + (int64_t)(unit_random(&seed) % 8),
                      .kw = 2 + (int64_t)(unit_random(&seed) % 10),
                      .t = types[i % 2],
                      .dilation = {1, 1},
                      .spatial = i % 8 ? 2 : 1,
                      .contiguous = i % 9 > 0,
                      .bias = i % 3 > 0,
                      .constant = true,
                      .act = i % 4 == 1 ? GEMM_RELU : GEMM_NONE};
            for (int k = 0; k < 2; k++) {
                s.stride[k] = 1 + (int64_t)(unit_random(&seed) % 4);
                s.padding[k] = (int64_t)(unit_random(&seed) % 5);
            }
            if (i % 5 == 4) s.kh = 8, s.kw = 4, s.C = 1 + i % 2; /* a patch ends with a line of the cache */
            if (s.spatial == 1) s.H = s.kh = s.stride[0] = 1, s.padding[0] = 0;
            taken += check(&s, &seed);
        }
    assert_true(taken > 50);
}

/* More positions than a strip has, more channels than a sliver. */
static void test_large(void **state)
{
    uint64_t seed = 7;
    (void)state;
    for (rung = next_rung_of(product, CPU_REF); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int i = 0; i < 4; i++) {
            Case s = {.B = 1,
                      .C = i < 2 ? 32 : 300,
                      .O = i < 2 ? 9 : 40,
                      .H = i < 2 ? 70 : 9,
                      .W = i < 2 ? 77 : 15,
                      .kh = 3,
                      .kw = 3,
                      .stride = {1, 1 + i / 2},
                      .padding = {1, 1},
                      .dilation = {1, 1},
                      .spatial = 2,
                      .constant = true,
                      .t = types[i % 2],
                      .act = GEMM_RELU};
            assert_true(check(&s, &seed));
        }
}

/* NaN and infinity come through, and stay in their windows. */
static void test_extremes(void **state)
{
    enum { C = 64, O = 33, H = 9, V = 10 };
    uint64_t seed = 9;
    (void)state;
    for (rung = next_rung_of(product, CPU_REF); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int low = 0; low < 2; low++) {
            Case s = {.B = 1,
                      .C = C,
                      .O = O,
                      .H = H,
                      .W = V,
                      .kh = 3,
                      .kw = 3,
                      .stride = {1, 1},
                      .padding = {1, 1},
                      .dilation = {1, 1},
                      .spatial = 2,
                      .constant = true,
                      .t = types[low]};
            Tensor x = filled(X, &s, 1, C, H, V, true, &seed), w = filled(WEIGHT, &s, O, C, 3, 3, false, &seed),
                   y = filled(Y, &s, 1, O, H, V, true, &seed);
            store_f64(s.t, (char *)x.data + (size_t)((4 * V + V - 1) * C + 3) * size_of(s.t), (double)NAN);
            PackedWeights *p = packed_weights_create(NULL);
            Packed *g = made(p, &s, &x, &w, &y, NULL);
            run(g, x.data, w.data, NULL, false, y.data);
            for (int64_t i = 0; i < O * H * V; i++) {
                int64_t h = i / V % H, v = i % V;
                bool sees = h >= 3 && h <= 5 && v >= V - 2;
                if (isnan(at(&y, 0, i / (H * V), h, v)) != sees)
                    STOP("[%d, %d, %d] on %s", (int)(i / (H * V)), (int)h, (int)v, cpu_level_name(rung));
            }
            packed_free(g);
            packed_weights_free(p);
        }
}

/* Transposed, windows side by side: a product for each place of the window. */
static void test_places(void **state)
{
    uint64_t seed = 13;
    (void)state;
    for (rung = next_rung_of(product, CPU_REF); rung < CPU_LEVELS; rung = next_rung_of(product, rung))
        for (int i = 0; i < 48 / ONE_IN; i++) {
            int64_t window[2] = {1 + i % 3, 1 + i / 3 % 4}, O = (int64_t[]){5, 33, 130}[i % 3];
            Case s = {.B = 1 + i % 2,
                      .C = (int64_t[]){64, 20, 33, 70}[i / 2 % 4],
                      .O = O,
                      .H = i % 5 ? 1 + i % 6 : 9,
                      .W = 1 + i % 11,
                      .spatial = i % 7 ? 2 : 1,
                      .t = types[i % 2]};
            if (s.spatial == 1) s.H = window[0] = 1;
            if (i == 38) s.H = 30, s.W = 27; /* parts of a weight that many rows share are not kept */
            static const int64_t none[2] = {0, 0}, one[2] = {1, 1};
            Tensor x = filled(X, &s, s.B, s.C, s.H, s.W, true, &seed),
                   w = filled(WEIGHT, &s, s.C, O, window[0], window[1], false, &seed),
                   y = filled(Y, &s, s.B, O, s.H * window[0], s.W * window[1], true, &seed),
                   bias = tensor_of(DT_F32, 1, (int64_t[]){O}, room(BIAS, O * 4));
            fill_random(bias.data, O, 1, &seed);
            size_t bytes = tensor_bytes(&y);
            Tensor held = y;
            held.data = memcpy(room(OTHER, (int64_t)bytes), y.data, bytes);
            GemmConv d = {.x = &x,
                          .w = &w,
                          .bias = i % 3 ? &bias : NULL,
                          .y = &y,
                          .spatial = s.spatial,
                          .stride = window + (s.spatial == 1),
                          .padding = none,
                          .padding_end = none,
                          .dilation = one,
                          .groups = 1,
                          .transposed = true,
                          .w_constant = i % 4 > 0,
                          .sum = i % 5 == 1,
                          .act = i % 4 == 1 ? GEMM_RELU : GEMM_NONE};
            team_enter(1 + i % 3, NULL);
            assert_true(packed_places(&d));
            PackedWeights *p = packed_weights_create(NULL);
            for (int64_t place = 0; place < window[0] * window[1]; place++) {
                Packed *g = packed_place(p, kernels_at(rung), &d, place, NULL);
                run(g, x.data, w.data, d.bias, d.sum, y.data);
                packed_free(g);
            }
            packed_weights_free(p);
            for (int64_t k = 0; k < tensor_numel(&y); k++) {
                int64_t v = k % y.shape[y.rank - 1], h = k / y.shape[y.rank - 1] % (s.H * window[0]),
                        o = k / (s.H * window[0] * s.W * window[1]) % O, b = k / (tensor_numel(&y) / s.B);
                double sum = d.bias ? (double)((float *)bias.data)[o] : 0, size = 1;
                for (int64_t c = 0; c < s.C; c++) {
                    double z = at(&x, b, c, h / window[0], v / window[1]) * at(&w, c, o, h % window[0], v % window[1]);
                    sum += z;
                    size += fabs(z);
                }
                if (d.sum) sum += at(&held, b, o, h, v);
                double want = d.act == GEMM_RELU && sum < 0 ? 0 : sum, got = at(&y, b, o, h, v),
                       far = size * ((double)s.C + 8) * 0x1p-24 + (s.t == DT_BF16 ? (fabs(want) + 0.01) * 0x1.1p-8 : 0);
                if (!(fabs(got - want) <= far))
                    STOP("%s, case %d: [%d, %d, %d, %d] is %a, expected %a", cpu_level_name(rung), i, (int)b, (int)o,
                         (int)h, (int)v, got, want);
            }
            assert_guard(y.data);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_geometry), cmocka_unit_test(test_patches),
                                       cmocka_unit_test(test_few_channels), cmocka_unit_test(test_large),
                                       cmocka_unit_test(test_extremes), cmocka_unit_test(test_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
