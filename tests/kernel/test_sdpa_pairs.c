/* Attention in bf16 by pairs, and its gradient, against sums in double: on the rungs that this machine has of
 * AVX512_BF16 and AMX, and on both in emulation (emulated/immintrin.h), so that their code runs wherever the tests do.
 * Rows lie apart, what is between them and around the operands is NaN and stays as it is.
 */
#include "kernel_test.h"

void sdpa_fill_emulated_avx512bf16(SdpaKernels *k);
void sdpa_fill_emulated_amx(SdpaKernels *k);

typedef struct Rung {
    const char *name;
    SdpaKernels k;
} Rung;

enum { RUNGS_MOST = CPU_LEVELS + 2, GAP = 3 };

static Rung rungs[RUNGS_MOST];
static int rung_count;

static int fill_rungs(void **state)
{
    (void)state;
    for (int l = CPU_AVX512BF16; l <= (int)cpu_best(); l++)
        rungs[rung_count++] = (Rung){cpu_level_name((CpuLevel)l), kernels_at((CpuLevel)l)->sdpa};
    Rung words = {"emulated AVX512_BF16", kernels_at(CPU_GEN)->sdpa},
         tiles = {"emulated AMX", kernels_at(CPU_GEN)->sdpa};
    sdpa_fill_emulated_avx512bf16(&words.k);
    sdpa_fill_emulated_amx(&tiles.k);
    rungs[rung_count++] = words;
    rungs[rung_count++] = tiles;
    return 0;
}

/* ------------------------------------------------------------------ cases */

typedef enum MaskKind { NO_MASK, KEYS_FLOAT, ROWS_FLOAT, KEYS_TRUTH, ROWS_TRUTH, HEADS_TRUTH, NO_KEY, MASKS } MaskKind;

static const char *const mask_names[] = {"none",         "float (M)",       "float (N, M)", "truth (M)",
                                         "truth (N, M)", "truth (H, 1, M)", "truth, no key"};

static void strides_of(int64_t *stride, int64_t heads, int64_t rows, int64_t width, bool turned)
{
    int64_t row = width + GAP;
    stride[2] = turned ? heads * row : row;
    stride[1] = turned ? row : rows * row;
    stride[0] = rows * heads * row;
}

static int64_t elements(int64_t B, int64_t heads, int64_t rows, int64_t width)
{
    return B * heads * rows * (width + GAP);
}

/* bf16 up to `size` by these strides; NaN between rows. */
static uint16_t *operand(int at, int64_t B, int64_t heads, int64_t rows, int64_t width, bool turned, float size,
                         int64_t *stride, uint64_t *state)
{
    uint16_t *x = room(at, elements(B, heads, rows, width) * 2);
    strides_of(stride, heads, rows, width, turned);
    for (int64_t i = 0; i < B * heads * rows * width; i++) {
        int64_t r = i / width;
        x[r / rows / heads * stride[0] + r / rows % heads * stride[1] + r % rows * stride[2] + i % width] = f32_to_bf16(
            size * random_unit(state));
    }
    return x;
}

static void make_mask(Sdpa *a, MaskKind kind, uint64_t *state)
{
    int64_t n = kind == ROWS_FLOAT || kind == ROWS_TRUTH ? a->N * a->M : kind == HEADS_TRUTH ? a->H * a->M : a->M;
    memset(a->ms, 0, sizeof a->ms);
    if (kind == NO_MASK) return;
    a->ms[3] = 1;
    a->ms[2] = kind == ROWS_FLOAT || kind == ROWS_TRUTH ? a->M : 0;
    a->ms[1] = kind == HEADS_TRUTH ? a->M : 0;
    float *f = room(3, n * 4);
    uint8_t *t = room(4, n);
    for (int64_t i = 0; i < n; i++) {
        f[i] = unit_random(state) % 4 ? random_unit(state) : -INFINITY;
        t[i] = kind != NO_KEY && unit_random(state) % 3 != 0;
    }
    if (kind >= KEYS_TRUTH) a->truth = t;
    else a->mask = f;
}

/* s: B, H, Hkv, N, M, D, E. The forward pass is the reference's: out in bf16, lse in float. Rooms 0 to 8. */
static SdpaBackward make_case(const int64_t *s, bool turned, MaskKind mask, int band, uint64_t *state)
{
    Sdpa a = {.t = DT_BF16,
              .B = s[0],
              .H = s[1],
              .Hkv = s[2],
              .N = s[3],
              .M = s[4],
              .D = s[5],
              .E = s[6],
              .scale = 1.5 / sqrt((double)s[5] + 1),
              .lower = -SDPA_ANY,
              .upper = SDPA_ANY};
    SdpaBackward d;
    if (band == 1) a.upper = 0;
    if (band == 2) a.lower = -5, a.upper = 40;
    if (band == 3) a.upper = a.M - a.N;
    a.q = operand(0, a.B, a.H, a.N, a.D, turned, 2, a.qs, state);
    a.k = operand(1, a.B, a.Hkv, a.M, a.D, turned, 2, a.ks, state);
    a.v = operand(2, a.B, a.Hkv, a.M, a.E, !turned, 2, a.vs, state);
    make_mask(&a, mask, state);
    a.out = operand(5, a.B, a.H, a.N, a.E, turned, 0, a.os, state);
    a.lse = room(6, a.B * a.H * a.N * 4);
    a.ls[2] = 1, a.ls[1] = a.N, a.ls[0] = a.H * a.N;
    kernels_at(CPU_REF)->sdpa.run(&a, room(7, a.M * 8), 1);
    d = (SdpaBackward){.f = a};
    d.dout = operand(8, a.B, a.H, a.N, a.E, !turned, 1, d.dos, state);
    strides_of(d.dqs, a.H, a.N, a.D, !turned);
    strides_of(d.dks, a.Hkv, a.M, a.D, !turned);
    strides_of(d.dvs, a.Hkv, a.M, a.E, turned);
    return d;
}

typedef struct Grads {
    uint16_t *dq, *dk, *dv;
} Grads;

/* Into rooms 9 to 11, poisoned before. */
static Grads run_back(const Rung *l, SdpaBackward *d, int threads)
{
    const Sdpa *a = &d->f;
    Grads g = {room(9, elements(a->B, a->H, a->N, a->D) * 2), room(10, elements(a->B, a->Hkv, a->M, a->D) * 2),
               room(11, elements(a->B, a->Hkv, a->M, a->E) * 2)};
    d->dq = g.dq, d->dk = g.dk, d->dv = g.dv;
    void *space = room(7, ((int64_t)l->k.backward_workspace(d, threads) + 63) / 64 * 64);
    l->k.backward(d, space, threads);
    assert_guard(space);
    assert_guard(g.dq);
    assert_guard(g.dk);
    assert_guard(g.dv);
    return g;
}

/* ------------------------------------------------------------------ the truth, and how far bf16 may be from it */

typedef struct Truth {
    double *x, *far;
} Truth;

static double at(const void *x, int64_t i) { return (double)bf16_to_f32(((const uint16_t *)x)[i]); }

/* Sums of terms whose errors are known, and of the terms' magnitudes. */
static void add(Truth t, int64_t i, double *size, double term, double off)
{
    t.x[i] += term;
    t.far[i] += off;
    size[i] += fabs(term);
}

/* To first order. A score in f32 is off by its products and sums ((D + 3) 2^-24 times their magnitudes); with the
 * mask's sum, lse's rounding and the exponent's that is P's relative error, to which the short exponential adds
 * 2^-13. dP and delta are off like the scores. P and dS are rounded to bf16 (2^-8 is a whole last place), what they
 * are multiplied with is exact, sums of n terms lose n 2^-24 of their magnitudes, and the result is rounded to
 * bf16. */
static void model(const SdpaBackward *d, Truth dq, Truth dk, Truth dv, double *sizes[3])
{
    const Sdpa *a = &d->f;
    for (int64_t row = 0; row < a->B * a->H * a->N; row++) {
        int64_t n = row % a->N, h = row / a->N % a->H, b = row / a->N / a->H, kv = h / (a->H / a->Hkv);
        int64_t qi = b * a->qs[0] + h * a->qs[1] + n * a->qs[2], oi = b * a->os[0] + h * a->os[1] + n * a->os[2],
                gi = b * d->dos[0] + h * d->dos[1] + n * d->dos[2];
        double lse = (double)((const float *)a->lse)[row], delta = 0, delta_size = 0;
        for (int64_t e = 0; e < a->E; e++)
            delta += at(d->dout, gi + e) * at(a->out, oi + e),
                delta_size += fabs(at(d->dout, gi + e) * at(a->out, oi + e));
        for (int64_t m = 0; m < a->M; m++) {
            int64_t ki = b * a->ks[0] + kv * a->ks[1] + m * a->ks[2], vi = b * a->vs[0] + kv * a->vs[1] + m * a->vs[2],
                    mi = b * a->ms[0] + h * a->ms[1] + n * a->ms[2] + m * a->ms[3];
            double s = 0, size = 0, dp = 0, dp_size = 0, extra = a->mask ? (double)a->mask[mi] : 0;
            if (m < n + a->lower || m > n + a->upper || isinf(extra) || isinf(lse) || (a->truth && !a->truth[mi]))
                continue;
            for (int64_t i = 0; i < a->D; i++)
                s += at(a->q, qi + i) * at(a->k, ki + i), size += fabs(at(a->q, qi + i) * at(a->k, ki + i));
            for (int64_t e = 0; e < a->E; e++)
                dp += at(d->dout, gi + e) * at(a->v, vi + e), dp_size += fabs(at(d->dout, gi + e) * at(a->v, vi + e));
            s = (double)(float)(s * a->scale + extra); /* a mask may swallow it */
            double sums = fabs(extra) > 1e8 ? 0
                                            : (double)(a->D + 3) * size * a->scale + fabs(extra) + 2 * fabs(s) +
                                                  2 * fabs(lse); /* a mask that swallows leaves nothing to round */
            double p = exp(s - lse), wrong = (sums + 8) * 0x1p-24 + 0x1p-13, ds = p * (dp - delta);
            double p_off = p * (wrong + 0x1p-8), ds_off = fabs(ds) * (wrong + 0x1p-8 + 0x1p-22) +
                                                          p * (double)(a->E + 3) * (dp_size + delta_size) * 0x1p-24;
            for (int64_t i = 0; i < a->D; i++) {
                add(dq, row * a->D + i, sizes[0], a->scale * ds * at(a->k, ki + i),
                    a->scale * ds_off * fabs(at(a->k, ki + i)));
                add(dk, ((b * a->Hkv + kv) * a->M + m) * a->D + i, sizes[1], a->scale * ds * at(a->q, qi + i),
                    a->scale * ds_off * fabs(at(a->q, qi + i)));
            }
            for (int64_t e = 0; e < a->E; e++)
                add(dv, ((b * a->Hkv + kv) * a->M + m) * a->E + e, sizes[2], p * at(d->dout, gi + e),
                    p_off * fabs(at(d->dout, gi + e)));
        }
    }
}

static void check_one(const char *what, const Rung *l, const SdpaBackward *d, const char *mask, Truth t,
                      const double *size, const uint16_t *got, const int64_t *stride, int64_t heads, int64_t rows,
                      int64_t width, int64_t terms)
{
    const Sdpa *a = &d->f;
    int64_t seen = 0;
    for (int64_t i = 0; i < a->B * heads * rows * width; i++) {
        int64_t r = i / width;
        double y = at(got,
                      r / rows / heads * stride[0] + r / rows % heads * stride[1] + r % rows * stride[2] + i % width);
        double allowed = t.far[i] + size[i] * (double)(terms + 8) * 0x1p-24 + fabs(t.x[i]) * 0x1p-8 + 0x1p-120;
        if (!(fabs(y - t.x[i]) <= allowed))
            STOP("%s on %s, B %d H %d/%d N %d M %d D %d E %d, mask %s, lower %d, upper %d, element %d: %g, expected "
                 "%g; %g off, %g allowed",
                 what, l->name, (int)a->B, (int)a->H, (int)a->Hkv, (int)a->N, (int)a->M, (int)a->D, (int)a->E, mask,
                 (int)a->lower, (int)a->upper, (int)i, y, t.x[i], fabs(y - t.x[i]), allowed);
    }
    for (int64_t i = 0; i < elements(a->B, heads, rows, width); i++) seen += got[i] != 0xffff;
    assert_int_equal(seen, a->B * heads * rows * width); /* nothing was written between rows */
}

static void check_case(SdpaBackward *d, const char *mask, int threads)
{
    const Sdpa *a = &d->f;
    int64_t n[3] = {a->B * a->H * a->N * a->D, a->B * a->Hkv * a->M * a->D, a->B * a->Hkv * a->M * a->E};
    double *of[9];
    for (int i = 0; i < 9; i++) of[i] = calloc((size_t)n[i / 3] + 1, sizeof(double));
    Truth dq = {of[0], of[1]}, dk = {of[3], of[4]}, dv = {of[6], of[7]};
    model(d, dq, dk, dv, (double *[]){of[2], of[5], of[8]});
    for (int i = 0; i < rung_count; i++) {
        Grads g = run_back(&rungs[i], d, threads);
        check_one("dq", &rungs[i], d, mask, dq, of[2], g.dq, d->dqs, a->H, a->N, a->D, a->M);
        check_one("dk", &rungs[i], d, mask, dk, of[5], g.dk, d->dks, a->Hkv, a->M, a->D, a->N * a->H / a->Hkv);
        check_one("dv", &rungs[i], d, mask, dv, of[8], g.dv, d->dvs, a->Hkv, a->M, a->E, a->N * a->H / a->Hkv);
    }
    for (int i = 0; i < 9; i++) free(of[i]);
}

/* ------------------------------------------------------------------ tests */

/* Around groups of 24 and 32 rows, blocks of 192 and 256, panels of 64 keys, blocks of 128, steps of 32,
 * and few rows, which go elsewhere. */
static const int64_t shapes[][7] = {
    {1, 1, 1, 9, 1, 1, 1},       {1, 2, 2, 9, 5, 3, 7},       {2, 2, 1, 5, 33, 16, 8},   {1, 1, 1, 33, 31, 33, 31},
    {1, 4, 2, 13, 65, 17, 40},   {1, 1, 1, 64, 64, 64, 64},   {2, 1, 1, 25, 129, 8, 64}, {1, 1, 1, 193, 70, 32, 33},
    {1, 2, 1, 130, 128, 24, 16}, {1, 1, 1, 257, 130, 64, 48}, {1, 1, 1, 40, 0, 4, 4},    {1, 2, 2, 0, 20, 4, 4},
    {1, 2, 1, 600, 20, 8, 8},    {1, 1, 1, 12, 20, 0, 4},     {1, 1, 1, 12, 20, 4, 0},   {1, 1, 1, 3, 20, 8, 8},
    {0, 1, 1, 12, 20, 4, 4},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void test_back(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int mask = 0; mask < MASKS; mask++)
            for (int band = 0; band < 4; band++) { /* all, causal, window, causal with a past */
                if ((i + mask + band) % (shapes[i][3] > 30 ? 3 * ONE_IN : ONE_IN))
                    continue; /* the large ones take turns */
                SdpaBackward d = make_case(shapes[i], (i + mask) % 2, (MaskKind)mask, band, &seed);
                check_case(&d, mask_names[mask], 1 + i % 3);
            }
}

/* Several parts to a stack: the same bits for any number of threads, and for a head alone. */
static void test_back_threads(void **state)
{
    static const int64_t large[][7] = {
        {1, 1, 1, 1250, 70, 9, 12}, {1, 6, 3, 590, 40, 16, 16}, {3, 1, 1, 300, 90, 8, 8}};
    static const int threads[] = {1, 2, 3, 8};
    uint64_t seed = 5;
    (void)state;
    for (int i = ONE_IN > 1 ? 2 : 0; i < 3; i++)
        for (int l = 0; l < rung_count; l++) {
            SdpaBackward d = make_case(large[i], i % 2, NO_MASK, i % 2, &seed);
            int64_t n[3] = {elements(d.f.B, d.f.H, d.f.N, d.f.D), elements(d.f.B, d.f.Hkv, d.f.M, d.f.D),
                            elements(d.f.B, d.f.Hkv, d.f.M, d.f.E)};
            uint16_t *first[3] = {malloc((size_t)n[0] * 2), malloc((size_t)n[1] * 2), malloc((size_t)n[2] * 2)};
            for (int t = 0; t < 4; t++) {
                Grads g = run_back(&rungs[l], &d, threads[t]);
                const uint16_t *now[3] = {g.dq, g.dk, g.dv};
                for (int k = 0; k < 3; k++) {
                    if (t == 0) memcpy(first[k], now[k], (size_t)n[k] * 2);
                    else if (memcmp(first[k], now[k], (size_t)n[k] * 2))
                        STOP("gradient %d on %s, shape %d: %d threads differ", k, rungs[l].name, i, threads[t]);
                }
            }
            uint16_t *dk = d.dk;
            d.f.B = 1, d.f.H /= d.f.Hkv, d.f.Hkv = 1;
            memset(dk, 0xff, (size_t)n[1] * 2);
            rungs[l].k.backward(&d, room(7, ((int64_t)rungs[l].k.backward_workspace(&d, 1) + 63) / 64 * 64), 1);
            for (int64_t m = 0; m < d.f.M; m++)
                if (memcmp(dk + m * d.dks[2], first[1] + m * d.dks[2], (size_t)d.f.D * 2))
                    STOP("dk on %s, shape %d: key %d has other bits alone", rungs[l].name, i, (int)m);
            for (int k = 0; k < 3; k++) free(first[k]);
        }
}

/* What is not wanted is not made; the rest has the same bits. */
static void test_back_some(void **state)
{
    uint64_t seed = 6;
    (void)state;
    for (int l = 0; l < rung_count; l++)
        for (int want = 0; want < 8; want++) {
            SdpaBackward d = make_case((int64_t[]){1, 2, 1, 30, 70, 16, 24}, false, NO_MASK, 1, &seed);
            int64_t n[3] = {elements(1, 2, 30, 16), elements(1, 1, 70, 16), elements(1, 1, 70, 24)};
            uint16_t *all[3] = {malloc((size_t)n[0] * 2), malloc((size_t)n[1] * 2), malloc((size_t)n[2] * 2)};
            Grads g = run_back(&rungs[l], &d, 1);
            uint16_t *now[3] = {g.dq, g.dk, g.dv};
            for (int k = 0; k < 3; k++) {
                memcpy(all[k], now[k], (size_t)n[k] * 2);
                memset(now[k], 0xff, (size_t)n[k] * 2);
            }
            if (!(want & 1)) d.dq = NULL;
            if (!(want & 2)) d.dk = NULL;
            if (!(want & 4)) d.dv = NULL;
            rungs[l].k.backward(&d, room(7, ((int64_t)rungs[l].k.backward_workspace(&d, 1) + 63) / 64 * 64), 1);
            for (int k = 0; k < 3; k++) {
                for (int64_t i = 0; i < n[k] && !(want >> k & 1); i++) assert_int_equal(now[k][i], 0xffff);
                if (want >> k & 1) assert_memory_equal(now[k], all[k], (size_t)n[k] * 2);
                free(all[k]);
            }
        }
}

/* A mask that adds the same to all scores, so that lse is far from 0: the product of lse and log2(e) is rounded by
 * more than the scores are apart, or overflows. From -1e9 on it swallows the scores; lse is the mask then, and
 * weights are 1, as PyTorch has them. */
static void test_back_far(void **state)
{
    static const float low[] = {-200, 900, -1e4f, -1e9f, -3.4028234e38f};
    uint64_t seed = 7;
    (void)state;
    for (int i = 0; i < 5; i++) {
        SdpaBackward d = make_case((int64_t[]){1, 2, 2, 40, 70, 16, 16}, true, NO_MASK, 0, &seed);
        d.f.mask = &low[i];
        kernels_at(CPU_REF)->sdpa.run(&d.f, room(7, d.f.M * 8), 1);
        check_case(&d, "far", 1);
    }
}

/* The forward pass, on the rungs that are emulated: out and lse against the reference's. */
static void test_forward(void **state)
{
    uint64_t seed = 8;
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int mask = 0; mask < MASKS; mask++) {
            SdpaBackward d = make_case(shapes[i], (i + mask) % 2, (MaskKind)mask, (i + mask) % 4, &seed);
            Sdpa a = d.f;
            int64_t n = a.B * a.H * a.N;
            for (int l = 0; l < rung_count; l++) {
                a.out = room(9, elements(a.B, a.H, a.N, a.E) * 2);
                float *lse = a.lse = room(10, n * 4);
                void *space = room(11, ((int64_t)rungs[l].k.workspace(&a, 2) + 63) / 64 * 64);
                rungs[l].k.run(&a, space, 2);
                assert_guard(space);
                for (int64_t r = 0; r < n; r++) {
                    float want = ((const float *)d.f.lse)[r];
                    if (isinf(want) ? lse[r] != want
                                    : !(fabsf(lse[r] - want) <= 0x1p-13f + 0x1p-20f * (fabsf(want) + (float)a.D)))
                        STOP("lse on %s, shape %d, mask %s, row %d: %g, expected %g", rungs[l].name, i,
                             mask_names[mask], (int)r, (double)lse[r], (double)want);
                    for (int64_t e = 0; e < a.E; e++) {
                        int64_t o = r / a.N / a.H * a.os[0] + r / a.N % a.H * a.os[1] + r % a.N * a.os[2] + e;
                        double y = at(a.out, o),
                               x = at(d.f.out, o); /* weights of 2^-8, values up to 2, both results rounded */
                        if (!(fabs(y - x) <= 2 * 0x1p-8 + 2 * fabs(x) * 0x1p-8))
                            STOP("out on %s, shape %d, mask %s, row %d, %d: %g, expected %g", rungs[l].name, i,
                                 mask_names[mask], (int)r, (int)e, y, x);
                    }
                }
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),   cmocka_unit_test(test_back),     cmocka_unit_test(test_back_threads),
        cmocka_unit_test(test_back_some), cmocka_unit_test(test_back_far),
    };
    return cmocka_run_group_tests_name("sdpa in pairs", tests, fill_rungs, NULL);
}
