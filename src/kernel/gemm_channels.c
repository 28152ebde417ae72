/* The gradient of depthwise weights: products of one row with windows, of a batch of channels that are innermost.
 *
 *     c[g, n] = sum over k of a[g, k] * windows[g, k, n]
 *
 * a are the outputs' gradients (channels, 1, positions), windows (channels, positions..., taps...). Some channels at a
 * time, row of positions by row, each tap's sums in the order of positions: as the product of a channel alone gives.
 * Blocks of channels go to threads.
 */
#include <string.h>
#include "base/mem.h"
#include "kernel/gemm_impl.h"
#include "team/team.h"

enum { ALIGN = 64, CHANNELS = 64, WORTH_THREADS = 1 << 20, MAX_THREADS = 1024 };

/* Axes, without those of one element: the last, and what is around it. */
typedef struct Axes {
    int rank;
    int64_t shape[MAX_RANK], stride[MAX_RANK], n, outer; /* n: elements of the last; outer: how often */
} Axes;

struct Channels {
    const ConvKernels *k;
    Axes along, taps;
    int64_t channels, a_step, c_step[2]; /* c_step: from channel to channel, from tap to tap */
    DType type, c_type;
    int threads;
};

static Axes axes_of(const Tensor *t, int first, int end)
{
    Axes a = {.n = 1, .outer = 1};
    for (int i = first; i < end; i++) {
        if (t->shape[i] == 1) continue;
        a.shape[a.rank] = t->shape[i];
        a.stride[a.rank++] = t->stride[i];
    }
    if (a.rank) a.n = a.shape[a.rank - 1];
    for (int i = 0; i + 1 < a.rank; i++) a.outer *= a.shape[i];
    return a;
}

static int64_t step_of(const Axes *a) { return a->rank ? a->stride[a->rank - 1] : 0; }

/* Where number i of what is around the last axis begins. */
static int64_t outer_at(const Axes *a, int64_t i)
{
    int64_t at = 0;
    for (int k = a->rank - 2; k >= 0; i /= a->shape[k--]) at += i % a->shape[k] * a->stride[k];
    return at;
}

Channels *channels_matmul(const Kernels *kernels, const GemmMatmul *d, Err *err)
{
    const Tensor *w = d->windows, *a = d->a, *c = d->c;
    bool plain = w && c->rank == 3 && c->shape[1] == 1 && c->shape[0] > 1 && !d->bias && !d->residual && !d->act;
    if (!plain || !kernels->conv.correlate || a->stride[0] != 1 || w->stride[0] != 1 || a->dtype != w->dtype ||
        d->rounded)
        return NULL;
    Channels *g = mem_zeroed(1, sizeof *g);
    if (!g) return oom(err), NULL;
    g->k = &kernels->conv;
    g->along = axes_of(w, 1, 1 + d->along);
    g->taps = axes_of(w, 1 + d->along, w->rank);
    g->channels = c->shape[0], g->a_step = a->stride[2];
    g->c_step[0] = c->stride[0], g->c_step[1] = c->stride[2];
    g->type = a->dtype, g->c_type = c->dtype;
    double work = 2.0 * (double)g->channels * (double)(g->along.n * g->along.outer) *
                  (double)(g->taps.n * g->taps.outer);
    g->threads = work < WORTH_THREADS ? 1 : (int)least(team_width(), MAX_THREADS);
    return g;
}

void channels_free(Channels *g) { mem_free(g); }

static int64_t sums_of(const Channels *g) { return g->taps.n * g->taps.outer * CHANNELS; }
static size_t own_bytes(const Channels *g)
{
    return ((size_t)sums_of(g) * sizeof(float) + ALIGN - 1) / ALIGN * ALIGN;
}
size_t channels_scratch(const Channels *g) { return own_bytes(g) * (size_t)g->threads + ALIGN; }

static void store(const Channels *g, void *c, int64_t first, int64_t n, const float *sum)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t t = 0; t < g->taps.n * g->taps.outer; t++) {
            int64_t at = (first + i) * g->c_step[0] + t * g->c_step[1];
            float x = sum[t * n + i];
            if (g->c_type == DT_BF16) ((uint16_t *)c)[at] = f32_to_bf16(x);
            else ((float *)c)[at] = x;
        }
}

/* What thread `self` of `threads` does: blocks of channels. */
static void share(const Channels *g, const GemmBuffers *m, float *sum, int self, int threads)
{
    int64_t blocks = ceil_div(g->channels, CHANNELS), size = (int64_t)dtype_size(g->type);
    for (int64_t b = blocks * self / threads; b < blocks * (self + 1) / threads; b++) {
        int64_t first = b * CHANNELS, n = least(CHANNELS, g->channels - first);
        const char *a = (const char *)m->a + first * size, *x = (const char *)m->b + first * size;
        memset(sum, 0, (size_t)sums_of(g) * sizeof *sum);
        for (int64_t i = 0; i < g->along.outer; i++)
            for (int64_t t = 0; t < g->taps.outer; t++)
                g->k->correlate(&(CorrelateRun){.sum = sum + t * g->taps.n * n,
                                                .a = a + i * g->along.n * g->a_step * size,
                                                .x = x + (outer_at(&g->along, i) + outer_at(&g->taps, t)) * size,
                                                .n = g->along.n,
                                                .a_step = g->a_step,
                                                .x_step = step_of(&g->along),
                                                .tap_step = step_of(&g->taps),
                                                .line = g->taps.n,
                                                .channels = n,
                                                .type = g->type});
        store(g, m->c, first, n, sum);
    }
}

bool channels_run(const Channels *g, const GemmBuffers *m, void *scratch, Err *err)
{
    char *base = (char *)(((uintptr_t)scratch + ALIGN - 1) / ALIGN * ALIGN);
    int threads = (int)least(g->threads, team_width());
    (void)err;
    if (threads == 1) {
        share(g, m, (float *)(void *)base, 0, 1);
        return true;
    }
#pragma omp parallel num_threads(threads)
    share(g, m, (float *)(void *)(base + own_bytes(g) * (size_t)team_part()), team_part(), team_parts());
    return true;
}
