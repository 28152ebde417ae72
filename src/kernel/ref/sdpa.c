/* Reference attention and its gradient: plain loops over one row at a time, double throughout.
 * Contract in kernel/sdpa.h. */
#include <math.h>
#include <string.h>
#include "base/elementary.h"
#include "kernel/sdpa.h"

static size_t workspace(const Sdpa *a, int threads)
{
    (void)threads;
    return (size_t)a->M * sizeof(double); /* one row of scores */
}

static double at(const Sdpa *a, const void *p, int64_t i)
{
    return load_f64(a->t, (const char *)p + i * (int64_t)dtype_size(a->t));
}
static void put(const Sdpa *a, void *p, int64_t i, double x)
{
    store_f64(a->t, (char *)p + i * (int64_t)dtype_size(a->t), x);
}

/* What is summed up or passed on in float: in double when the operands are. */
static double wide_at(const Sdpa *a, const void *p, int64_t i)
{
    return a->t == DT_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static void put_wide(const Sdpa *a, void *p, int64_t i, double x)
{
    if (a->t == DT_F64) ((double *)p)[i] = x;
    else ((float *)p)[i] = (float)x;
}

/* *slope: its derivative by the product of query and key. */
static double score(const Sdpa *a, const SdpaSequence *s, int64_t b, int64_t h, int64_t n, int64_t m, double *slope)
{
    int64_t q = h * a->qs[1] + n * a->qs[2], k = h / (a->H / a->Hkv) * a->ks[1] + m * a->ks[2];
    int64_t masked = b * a->ms[0] + h * a->ms[1] + n * a->ms[2] + m * a->ms[3];
    double sum = 0;
    *slope = 0;
    if (m < n + a->lower || m > n + a->upper) return -INFINITY;
    if (a->truth && !a->truth[masked]) return -INFINITY;
    for (int64_t d = 0; d < a->D; d++) sum += at(a, s->q, q + d) * at(a, s->k, k + d);
    sum *= a->scale;
    *slope = a->scale;
    if (a->softcap > 0) {
        double t = real_tanh(sum / a->softcap);
        *slope *= 1 - t * t;
        sum = a->softcap * t;
    }
    return sum + (a->mask_f64 ? a->mask_f64[masked] : a->mask ? (double)a->mask[masked] : 0);
}

static void attend_row(const Sdpa *a, const SdpaSequence *s, int64_t b, int64_t h, int64_t n, double *p)
{
    double top = -INFINITY, sum = 0, slope;
    bool nan = false;
    for (int64_t m = 0; m < s->M; m++) {
        p[m] = score(a, s, b, h, n, m, &slope);
        nan |= p[m] != p[m];
        if (p[m] > top) top = p[m];
    }
    for (int64_t m = 0; m < s->M; m++) sum += p[m] = top == -INFINITY && !nan ? 0 : real_exp(p[m] - top);
    if (a->lse)
        put_wide(a, a->lse, b * a->ls[0] + h * a->ls[1] + n * a->ls[2], sum == 0 ? -INFINITY : top + real_log(sum));
    for (int64_t e = 0; e < a->E; e++) {
        double y = 0;
        for (int64_t m = 0; m < s->M; m++) y += p[m] * at(a, s->v, h / (a->H / a->Hkv) * a->vs[1] + m * a->vs[2] + e);
        put(a, s->out, h * a->os[1] + n * a->os[2] + e, sum == 0 ? 0 : y / sum);
    }
}

static void sdpa(const Sdpa *a, void *space, int threads)
{
    (void)threads;
    for (int64_t b = 0; b < a->B; b++) {
        SdpaSequence s = sdpa_sequence(a, b);
        for (int64_t h = 0; h < a->H; h++)
            for (int64_t n = 0; n < s.N; n++) attend_row(a, &s, b, h, n, space);
    }
}

/* ------------------------------------------------------------------ gradient */

/* What query n of head h and key m give: their weight, and the gradients of the score after the mask and of the product
 * of the two. */
typedef struct Pair {
    double p, dmask, dproduct;
} Pair;

static Pair pair_of(const SdpaBackward *g, int64_t b, int64_t h, int64_t n, int64_t m)
{
    const Sdpa *a = &g->f;
    SdpaSequence s = sdpa_sequence(a, b);
    double slope, x = score(a, &s, b, h, n, m, &slope),
                  lse = wide_at(a, a->lse, b * a->ls[0] + h * a->ls[1] + n * a->ls[2]), sum = 0;
    int64_t v = h / (a->H / a->Hkv) * a->vs[1] + m * a->vs[2], o = h * a->os[1] + n * a->os[2],
            d = b * g->dos[0] + h * g->dos[1] + n * g->dos[2];
    double p = lse == -INFINITY ? 0 : real_exp(x - lse);
    if (p == 0) return (Pair){0, 0, 0};
    for (int64_t e = 0; e < a->E; e++) sum += at(a, g->dout, d + e) * (at(a, s.v, v + e) - at(a, s.out, o + e));
    return (Pair){p, p * sum, p * sum * slope};
}

static size_t backward_workspace(const SdpaBackward *g, int threads)
{
    (void)threads;
    return (size_t)(g->f.D + g->f.E) * sizeof(double); /* a row of dq, or of dk and dv */
}

static void query_row(const SdpaBackward *g, int64_t b, int64_t h, int64_t n, double *sum)
{
    const Sdpa *a = &g->f;
    memset(sum, 0, (size_t)a->D * sizeof *sum);
    for (int64_t m = 0; m < a->M; m++) {
        Pair x = pair_of(g, b, h, n, m);
        for (int64_t d = 0; d < a->D && x.p != 0; d++)
            sum[d] += x.dproduct * at(a, a->k, b * a->ks[0] + h / (a->H / a->Hkv) * a->ks[1] + m * a->ks[2] + d);
    }
    for (int64_t d = 0; d < a->D; d++) put(a, g->dq, b * g->dqs[0] + h * g->dqs[1] + n * g->dqs[2] + d, sum[d]);
}

static void key_row(const SdpaBackward *g, int64_t b, int64_t kv, int64_t m, double *sum)
{
    const Sdpa *a = &g->f;
    int64_t per = a->H / a->Hkv;
    memset(sum, 0, (size_t)(a->D + a->E) * sizeof *sum);
    for (int64_t h = kv * per; h < (kv + 1) * per; h++)
        for (int64_t n = 0; n < a->N; n++) {
            Pair x = pair_of(g, b, h, n, m);
            for (int64_t d = 0; d < a->D && x.p != 0; d++)
                sum[d] += x.dproduct * at(a, a->q, b * a->qs[0] + h * a->qs[1] + n * a->qs[2] + d);
            for (int64_t e = 0; e < a->E && x.p != 0; e++)
                sum[a->D + e] += x.p * at(a, g->dout, b * g->dos[0] + h * g->dos[1] + n * g->dos[2] + e);
        }
    for (int64_t d = 0; d < a->D && g->dk; d++)
        put(a, g->dk, b * g->dks[0] + kv * g->dks[1] + m * g->dks[2] + d, sum[d]);
    for (int64_t e = 0; e < a->E && g->dv; e++)
        put(a, g->dv, b * g->dvs[0] + kv * g->dvs[1] + m * g->dvs[2] + e, sum[a->D + e]);
}

/* The mask's element at i, summed over the axes along which it broadcasts. */
static void mask_element(const SdpaBackward *g, const int64_t *i)
{
    const Sdpa *a = &g->f;
    int64_t size[4] = {a->B, a->H, a->N, a->M}, from[4], to[4];
    double sum = 0;
    for (int k = 0; k < 4; k++) from[k] = g->dms[k] ? i[k] : 0, to[k] = g->dms[k] ? i[k] + 1 : size[k];
    for (int64_t b = from[0]; b < to[0]; b++)
        for (int64_t h = from[1]; h < to[1]; h++)
            for (int64_t n = from[2]; n < to[2]; n++)
                for (int64_t m = from[3]; m < to[3]; m++) sum += pair_of(g, b, h, n, m).dmask;
    put_wide(a, g->dmask, i[0] * g->dms[0] + i[1] * g->dms[1] + i[2] * g->dms[2] + i[3] * g->dms[3], sum);
}

static void backward(const SdpaBackward *g, void *space, int threads)
{
    const Sdpa *a = &g->f;
    int64_t i[4], n[4] = {a->B, a->H, a->N, a->M};
    (void)threads;
    for (i[0] = 0; i[0] < a->B && g->dq; i[0]++)
        for (i[1] = 0; i[1] < a->H; i[1]++)
            for (i[2] = 0; i[2] < a->N; i[2]++) query_row(g, i[0], i[1], i[2], space);
    for (i[0] = 0; i[0] < a->B && (g->dk || g->dv); i[0]++)
        for (i[1] = 0; i[1] < a->Hkv; i[1]++)
            for (i[2] = 0; i[2] < a->M; i[2]++) key_row(g, i[0], i[1], i[2], space);
    if (!g->dmask) return;
    for (int k = 0; k < 4; k++) n[k] = g->dms[k] ? n[k] : 1;
    for (i[0] = 0; i[0] < n[0]; i[0]++)
        for (i[1] = 0; i[1] < n[1]; i[1]++)
            for (i[2] = 0; i[2] < n[2]; i[2]++)
                for (i[3] = 0; i[3] < n[3]; i[3]++) mask_element(g, i);
}

void sdpa_fill_ref(SdpaKernels *k);
void sdpa_fill_ref(SdpaKernels *k) { *k = (SdpaKernels){workspace, sdpa, backward_workspace, backward}; }
