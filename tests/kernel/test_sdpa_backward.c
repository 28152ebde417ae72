/* The gradient of attention against sums in double. Gaps between rows, and what lies around the operands, are NaN. */
#include "sdpa_test.h"

enum { DQ, DK, DV, DMASK, RESULTS };

/* What is expected, dense, how far a float kernel may be from it, and the sums of the magnitudes of what it sums up. */
typedef struct Want {
    double *x[RESULTS], *far[RESULTS], *size[RESULTS];
} Want;

static int64_t sizes(const SdpaBackward *g, int64_t *n)
{
    const Sdpa *a = &g->f;
    n[DQ] = a->B * a->H * a->N * a->D, n[DK] = a->B * a->Hkv * a->M * a->D, n[DV] = a->B * a->Hkv * a->M * a->E;
    n[DMASK] = g->dmask ? (g->dms[1] ? a->H : 1) * (g->dms[2] ? a->N : 1) * (g->dms[3] ? a->M : 1) : 0;
    return n[DQ] + n[DK] + n[DV] + n[DMASK];
}

/* Adds a term x that is off by e, of `count` terms. */
static void add(const Want *w, int result, int64_t at, double x, double e, int64_t count)
{
    w->x[result][at] += x;
    w->size[result][at] += fabs(x);
    w->far[result][at] += (e + fabs(x) * (double)(count + 4)) * 0x1p-24;
}

/* One query and one key. To first order, in units of 2^-24: a score is off by its products and sums (D + 3 times the
 * magnitudes in it), its difference to lse by both, exp by 4, dP and delta by E + 2 times their magnitudes, tanh by 8
 * and what its argument is off by. */
static void add_pair(const SdpaBackward *g, const Want *w, int64_t b, int64_t h, int64_t n, int64_t m)
{
    const Sdpa *a = &g->f;
    int64_t kv = h / (a->H / a->Hkv), masked = b * a->ms[0] + h * a->ms[1] + n * a->ms[2] + m * a->ms[3];
    const float *q = (const float *)a->q + b * a->qs[0] + h * a->qs[1] + n * a->qs[2],
                *k = (const float *)a->k + b * a->ks[0] + kv * a->ks[1] + m * a->ks[2];
    const float *v = (const float *)a->v + b * a->vs[0] + kv * a->vs[1] + m * a->vs[2],
                *dout = (const float *)g->dout + b * g->dos[0] + h * g->dos[1] + n * g->dos[2];
    const float *out = (const float *)a->out + b * a->os[0] + h * a->os[1] + n * a->os[2];
    double lse = (double)((const float *)a->lse)[b * a->ls[0] + h * a->ls[1] + n * a->ls[2]], s = 0, size = 0, dp = 0,
           delta = 0, loose = 0, slope = 1, bend = 0;
    if (m < n + a->lower || m > n + a->upper || (a->truth && !a->truth[masked]) || lse == -INFINITY) return;
    for (int64_t d = 0; d < a->D; d++)
        s += (double)q[d] * k[d] * a->scale, size += fabs((double)q[d] * k[d] * a->scale);
    double c = (double)(a->D + 3) * size;
    if (a->softcap > 0) {
        double t = tanh(s / a->softcap);
        bend = 16 + 2 * c / a->softcap;
        c += 8 * a->softcap;
        s = a->softcap * t, slope = 1 - t * t;
    }
    double extra = a->mask ? (double)a->mask[masked] : 0, p = exp(s + extra - lse),
           e = p * (c + fabs(s) + fabs(lse) + (isinf(extra) ? 0 : 2 * fabs(extra)) + 8);
    if (p == 0) return;
    for (int64_t i = 0; i < a->E; i++) {
        dp += (double)dout[i] * v[i], delta += (double)dout[i] * out[i];
        loose += (double)(a->E + 2) * (fabs((double)dout[i] * v[i]) + fabs((double)dout[i] * out[i]));
    }
    double ds = p * (dp - delta), eds = e * fabs(dp - delta) + p * loose + 4 * fabs(ds);
    if (g->dmask) add(w, DMASK, g->dms[1] * h + g->dms[2] * n + g->dms[3] * m, ds, eds, a->B * a->H * a->N * a->M);
    eds = (eds * slope + fabs(ds) * bend) * fabs(a->scale), ds *= slope * a->scale;
    for (int64_t d = 0; d < a->D; d++) {
        add(w, DQ, ((b * a->H + h) * a->N + n) * a->D + d, ds * k[d], eds * fabs((double)k[d]), a->M);
        add(w, DK, ((b * a->Hkv + kv) * a->M + m) * a->D + d, ds * q[d], eds * fabs((double)q[d]),
            a->N * (a->H / a->Hkv));
    }
    for (int64_t i = 0; i < a->E; i++)
        add(w, DV, ((b * a->Hkv + kv) * a->M + m) * a->E + i, p * dout[i], e * fabs((double)dout[i]),
            a->N * (a->H / a->Hkv));
}

static Want expected(const SdpaBackward *g)
{
    int64_t n[RESULTS], all = sizes(g, n);
    double *memory = calloc((size_t)(3 * all + 1), sizeof *memory), *at = memory;
    Want w;
    for (int i = 0; i < RESULTS; i++) {
        w.x[i] = at, at += n[i];
        w.far[i] = at, at += n[i];
        w.size[i] = at, at += n[i];
    }
    const Sdpa *a = &g->f;
    for (int64_t i = 0; i < a->B * a->H * a->N * a->M; i++)
        add_pair(g, &w, i / a->M / a->N / a->H, i / a->M / a->N % a->H, i / a->M % a->N, i % a->M);
    return w;
}

/* Results into rooms 12 to 15, rows one gap apart, which nothing writes to. */
static void run(CpuLevel l, SdpaBackward *g, int threads)
{
    const SdpaKernels *k = &kernels_at(l)->sdpa;
    Sdpa *a = &g->f;
    int64_t heads[] = {a->H, a->Hkv, a->Hkv}, rows[] = {a->N, a->M, a->M}, width[] = {a->D, a->D, a->E},
            *stride[] = {g->dqs, g->dks, g->dvs}, size = (int64_t)dtype_size(a->t);
    void **to[] = {&g->dq, &g->dk, &g->dv};
    for (int i = 0; i < 3; i++) {
        stride[i][2] = heads[i] * (width[i] + 3), stride[i][1] = width[i] + 3, stride[i][0] = rows[i] * stride[i][2];
        *to[i] = room(12 + i, span(a->B, heads[i], rows[i], width[i], stride[i]) * size);
    }
    int64_t n[RESULTS];
    sizes(g, n);
    if (g->dmask) g->dmask = room(15, n[DMASK] * 4);
    void *space = room(6, ((int64_t)k->backward_workspace(g, threads) + 63) / 64 * 64);
    k->backward(g, space, threads);
    for (int i = 0; i < 3; i++) assert_guard(*to[i]);
    assert_guard(space);
    if (g->dmask) assert_guard(g->dmask);
}

static double result_at(const SdpaBackward *g, int result, int64_t i)
{
    const Sdpa *a = &g->f;
    int64_t heads = result == DQ ? a->H : a->Hkv, rows = result == DQ ? a->N : a->M, width = result == DV ? a->E : a->D;
    const int64_t *s = result == DQ ? g->dqs : result == DK ? g->dks : g->dvs;
    if (result == DMASK) return (double)((const float *)g->dmask)[i];
    int64_t r = i / width, at = r / rows / heads * s[0] + r / rows % heads * s[1] + r % rows * s[2] + i % width;
    return load_f64(a->t, (const char *)(result == DQ   ? g->dq
                                         : result == DK ? g->dk
                                                        : g->dv) +
                              at * (int64_t)dtype_size(a->t));
}

static void check(CpuLevel l, const SdpaBackward *g, const Want *w, const char *mask)
{
    static const char *const name[] = {"dq", "dk", "dv", "dmask"};
    const Sdpa *a = &g->f;
    int64_t n[RESULTS];
    sizes(g, n);
    double unit = a->t == DT_BF16 ? 0x1p-8 : a->t == DT_F16 ? 0x1p-11 : 0;
    double weights = a->t == DT_BF16 && l >= CPU_AVX512BF16
                         ? 0x1p-8 + 0x1p-13
                         : 0; /* P and dS are rounded to bf16, after a short exponential (x86/sdpa_pairs_back.h) */
    for (int r = 0; r < RESULTS; r++)
        for (int64_t i = 0; i < n[r]; i++) {
            double y = result_at(g, r, i), x = w->x[r][i],
                   far = w->far[r][i] + w->size[r][i] * weights + fabs(x) * (r == DMASK ? 0 : unit) +
                         (unit > 0 ? 0x1p-24 : 0x1p-140);
            if (!(fabs(y - x) <= far))
                STOP("%s of %s on %s, B %d H %d/%d N %d M %d D %d E %d, mask %s, lower %d, upper %d, softcap %g: %d: "
                     "%a, expected %a; %g off, %g allowed",
                     name[r], dtype_name(a->t), cpu_level_name(l), (int)a->B, (int)a->H, (int)a->Hkv, (int)a->N,
                     (int)a->M, (int)a->D, (int)a->E, mask, (int)a->lower, (int)a->upper, a->softcap, (int)i, y, x,
                     fabs(y - x), far);
        }
}

/* The forward pass by the reference, of type t; a copy of everything in floats is f. */
static SdpaBackward make_backward(Sdpa *f, DType t, SdpaBackward *wide, uint64_t *state)
{
    Sdpa a = typed(f, t);
    int64_t os[3], n = span(a.B, a.N, a.H, a.E, (int64_t[]){a.N * a.H * (a.E + 3), a.H * (a.E + 3), a.E + 3});
    SdpaBackward g = {.dos = {0, 0, 0}};
    float *dout = operand(10, a.B, a.H, a.N, a.E, true, g.dos, state), *out = room(5, n * 4);
    os[0] = a.N * a.H * (a.E + 3), os[1] = a.E + 3, os[2] = a.H * (a.E + 3);
    memcpy(a.os, os, sizeof os);
    memcpy(f->os, os, sizeof os);
    place_lse(f);
    f->out = out;
    kernels_at(CPU_REF)->sdpa.run(f, room(6, a.M * 8), 1);
    a.out = (void *)(uintptr_t)in_dtype(16, t, out, n);
    a.lse = f->lse;
    memcpy(a.ls, f->ls, sizeof a.ls);
    g.f = a;
    g.dout = in_dtype(17, t, dout, span(a.B, a.H, a.N, a.E, g.dos));
    *wide = g;
    wide->f = *f;
    wide->dout = dout;
    return g;
}

/* Blocks of 48 rows, of 64 and 96 keys, ranges of keys, tiles of 8, 16 and 64 columns, and their neighbours. */
static const int64_t shapes[][7] = {
    {1, 1, 1, 1, 1, 1, 1},     {0, 1, 1, 2, 2, 2, 2},     {1, 1, 1, 0, 3, 4, 4},    {1, 2, 1, 3, 0, 4, 5},
    {1, 1, 1, 3, 4, 5, 0},     {2, 4, 2, 5, 7, 3, 8},     {1, 3, 1, 6, 8, 8, 7},    {1, 2, 1, 13, 65, 17, 15},
    {1, 1, 1, 47, 97, 32, 17}, {3, 3, 3, 49, 64, 33, 31}, {1, 2, 1, 50, 193, 8, 8}, {2, 4, 4, 20, 100, 16, 65},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void set_band(Sdpa *a, int band)
{
    a->lower = band == 2 || band == 3 ? -3 : -SDPA_ANY;
    a->upper = band == 1 || band == 3 ? 0 : band == 2 ? 4 : SDPA_ANY;
}

static void test_backward(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int mask = 0; mask < MASKS; mask++)
            for (int band = 0; band < 4; band++) { /* all, causal, window, causal window */
                if ((i + mask + band) % ONE_IN) continue;
                Sdpa f = make_sdpa(shapes[i], (i + mask) % 2, &seed);
                SdpaBackward wide, g;
                set_band(&f, band);
                f.softcap = (i + band) % 3 == 1 ? 1.5 : 0;
                make_mask(&f, (MaskKind)mask, &seed);
                g = make_backward(&f, (DType[]){DT_F32, DT_BF16, DT_F16}[(i + mask + band) % 3], &wide, &seed);
                if (f.mask && mask != SPREAD) {
                    wide.dmask = g.dmask = &g; /* wanted */
                    for (int k = 0; k < 4; k++) wide.dms[k] = g.dms[k] = f.ms[k];
                }
                Want w = expected(&wide);
                for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(sdpa, l)) {
                    run(l, &g, 1 + i % 3);
                    check(l, &g, &w, mask_names[mask]);
                }
                free(w.x[0]);
            }
}

/* The same bits for any number of threads, and with results that no caller wants left out. */
static void test_backward_threads(void **state)
{
    static const int64_t large[][7] = {{1, 1, 1, 120, 400, 8, 9}, {1, 4, 2, 77, 130, 16, 16}, {3, 3, 3, 20, 90, 8, 8}};
    uint64_t seed = 5;
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int band = 0; band < 2; band++) {
            Sdpa f = make_sdpa(large[i], band, &seed);
            SdpaBackward wide, g;
            set_band(&f, band);
            g = make_backward(&f, DT_F32, &wide, &seed);
            for (CpuLevel l = CPU_GEN; l < CPU_LEVELS; l = next_rung_of(sdpa, l)) {
                int64_t n[RESULTS], all = sizes(&g, n);
                double *first = malloc((size_t)all * sizeof *first);
                for (int threads = 1; threads < 9; threads += 1 + threads / 3) {
                    double *to = first;
                    run(l, &g, threads);
                    for (int r = 0; r < RESULTS; r++)
                        for (int64_t k = 0; k < n[r]; k++, to++) {
                            if (threads == 1) *to = result_at(&g, r, k);
                            else if (*to != result_at(&g, r, k))
                                STOP("gradient of sdpa on %s, shape %d: %d threads differ", cpu_level_name(l), i,
                                     threads);
                        }
                }
                free(first);
            }
        }
}

/* O((N + M) (D + E)) a thread: never the N * M of the weights. */
static void test_backward_memory(void **state)
{
    (void)state;
    SdpaBackward g = {.f = {.t = DT_F32, .B = 1, .H = 16, .Hkv = 16, .N = 8192, .M = 8192, .D = 64, .E = 64}};
    for (CpuLevel l = CPU_GEN; l < CPU_LEVELS; l = next_rung_of(sdpa, l)) {
        size_t have = kernels_at(l)->sdpa.backward_workspace(&g, 2), most = 2u * (8192 + 8192) * (64 + 64) * 8;
        if (have > most)
            STOP("gradient of sdpa on %s takes %zu bytes, expected at most %zu", cpu_level_name(l), have, most);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_backward), cmocka_unit_test(test_backward_threads),
                                       cmocka_unit_test(test_backward_memory)};
    return cmocka_run_group_tests_name("sdpa_backward", tests, NULL, NULL);
}
