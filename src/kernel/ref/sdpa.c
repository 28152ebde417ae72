/* Reference attention: plain loops over one row at a time, double throughout. Contract in kernel/sdpa.h. */
#include <math.h>
#include "kernel/sdpa.h"

static size_t workspace(const Sdpa *a, int threads)
{
    (void)threads;
    return (size_t)a->M * sizeof(double); /* one row of scores */
}

static double at(const Sdpa *a, const char *p, int64_t i) { return load_f64(a->t, p + i * (int64_t)dtype_size(a->t)); }

static double score(const Sdpa *a, const SdpaSequence *s, int64_t b, int64_t h, int64_t n, int64_t m)
{
    int64_t q = h * a->qs[1] + n * a->qs[2], k = h / (a->H / a->Hkv) * a->ks[1] + m * a->ks[2];
    int64_t masked = b * a->ms[0] + h * a->ms[1] + n * a->ms[2] + m * a->ms[3];
    double sum = 0;
    if (m < n + a->lower || m > n + a->upper) return -INFINITY;
    if (a->truth && !a->truth[masked]) return -INFINITY;
    for (int64_t d = 0; d < a->D; d++) sum += at(a, s->q, q + d) * at(a, s->k, k + d);
    sum *= (double)a->scale;
    if (a->softcap > 0) sum = (double)a->softcap * tanh(sum / (double)a->softcap);
    return sum + (a->mask ? (double)a->mask[masked] : 0);
}

static void attend_row(const Sdpa *a, const SdpaSequence *s, int64_t b, int64_t h, int64_t n, double *p)
{
    double top = -INFINITY, sum = 0;
    bool nan = false;
    for (int64_t m = 0; m < s->M; m++) {
        p[m] = score(a, s, b, h, n, m);
        nan |= p[m] != p[m];
        if (p[m] > top) top = p[m];
    }
    for (int64_t m = 0; m < s->M; m++) sum += p[m] = top == -INFINITY && !nan ? 0 : exp(p[m] - top);
    for (int64_t e = 0; e < a->E; e++) {
        double y = 0;
        for (int64_t m = 0; m < s->M; m++) y += p[m] * at(a, s->v, h / (a->H / a->Hkv) * a->vs[1] + m * a->vs[2] + e);
        store_f64(a->t, s->out + (h * a->os[1] + n * a->os[2] + e) * (int64_t)dtype_size(a->t), sum == 0 ? 0 : y / sum);
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

void sdpa_fill_ref(SdpaKernels *k);
void sdpa_fill_ref(SdpaKernels *k) { *k = (SdpaKernels){workspace, sdpa}; }
