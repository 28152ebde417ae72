/* Convolutions by loops: any of them. What no kernel takes: hundreds of groups of several channels, and windows that
 * see little but padding.
 *
 * A row of outputs (along the last axis) of one channel is summed in float32 over channels and taps: each tap is a run
 * of a row of x times one weight.
 *
 *     y[j a' + a] += w x[j b' + b]        a' the stride of a transposed convolution, b' of the others;
 *                                         1 where it is not
 *
 * x is first copied to contiguous float32 where it is laid out otherwise. Rows are shared among threads; a row is
 * summed by one of them, always in the same order.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/elementary.h"
#include "kernel/gemm_impl.h"
#include "base/mem.h"
#include "team/team.h"

enum { AXES = 3, ROUND = 16, WORTH_THREADS = 1 << 20 };

struct Direct {
    int64_t in[AXES], out[AXES], window[AXES], stride[AXES], padding[AXES], dilation[AXES];
    int64_t batch, C, O, groups, apart[AXES], image, channel; /* apart, image, channel: steps of y in elements */
    Tensor x;
    DType type, bias_type;
    bool transposed, sum, copied;
    GemmAct act;
};

static int64_t volume(const int64_t *n) { return n[0] * n[1] * n[2]; }

Direct *direct_conv(const GemmConv *d, Err *err)
{
    Direct *g = mem_zeroed(1, sizeof *g);
    if (!g) {
        oom(err);
        return NULL;
    }
    *g = (Direct){.batch = d->x->shape[0],
                  .C = d->x->shape[1],
                  .O = d->y->shape[1],
                  .groups = d->groups,
                  .image = d->y->stride[0],
                  .channel = d->y->stride[1],
                  .x = *d->x,
                  .type = d->x->dtype,
                  .bias_type = d->bias ? d->bias->dtype : DT_NONE,
                  .transposed = d->transposed,
                  .sum = d->sum,
                  .act = d->act,
                  .copied = d->x->dtype != DT_F32 || !tensor_contiguous(d->x)};
    for (int i = 0; i < AXES; i++) {
        int at = i - (AXES - d->spatial); /* axes in front that are not there have size 1 */
        g->in[i] = at < 0 ? 1 : d->x->shape[2 + at];
        g->out[i] = at < 0 ? 1 : d->y->shape[2 + at];
        g->window[i] = at < 0 ? 1 : d->w->shape[2 + at];
        g->stride[i] = at < 0 ? 1 : d->stride[at];
        g->padding[i] = at < 0 ? 0 : d->padding[at];
        g->dilation[i] = at < 0 ? 1 : d->dilation[at];
        g->apart[i] = at < 0 ? 0 : d->y->stride[2 + at];
    }
    return g;
}

void direct_free(Direct *g) { mem_free(g); }

static size_t row_bytes(const Direct *g) { return (size_t)ceil_div(g->out[AXES - 1], ROUND) * ROUND * sizeof(float); }
static size_t copy_bytes(const Direct *g)
{
    return g->copied ? (size_t)ceil_div(tensor_numel(&g->x), ROUND) * ROUND * sizeof(float) : 0;
}

size_t direct_scratch(const Direct *g) { return copy_bytes(g) + (size_t)team_width() * row_bytes(g); }

/* The taps of axis i that may meet output `at`. */
static Meeting taps_at(const Direct *g, int i, int64_t at)
{
    return taps_meeting(at, g->in[i], g->window[i], g->stride[i], g->padding[i], g->dilation[i], g->transposed);
}

/* Where output `at` of axis i meets tap k: the place in x, or -1. */
static int64_t source(const Direct *g, int i, int64_t at, int64_t k)
{
    int64_t z = g->transposed ? at + g->padding[i] - k * g->dilation[i]
                              : at * g->stride[i] - g->padding[i] + k * g->dilation[i];
    if (g->transposed && (z < 0 || z % g->stride[i])) return -1;
    if (g->transposed) z /= g->stride[i];
    return z >= 0 && z < g->in[i] ? z : -1;
}

/* One tap along the last axis: sums[to + j * step] += weight * x[from + j * jump]. */
static void tap(const Direct *g, float *restrict sums, const float *restrict x, float weight, int64_t k)
{
    int last = AXES - 1;
    int64_t shift = k * g->dilation[last] - g->padding[last], stride = g->stride[last], in = g->in[last],
            out = g->out[last];
    Meeting m = g->transposed ? meeting(in, stride, shift, out) : meeting(out, stride, shift, in);
    if (g->transposed) /* x[j] goes to j * stride + shift */
        for (int64_t j = m.first; j < m.end; j++) sums[j * stride + shift] += weight * x[j];
    else if (stride == 1)
        for (int64_t j = m.first; j < m.end; j++) sums[j] += weight * x[j + shift];
    else
        for (int64_t j = m.first; j < m.end; j++) sums[j] += weight * x[j * stride + shift];
}

static float element(DType t, const void *data, int64_t i)
{
    return t == DT_BF16 ? bf16_to_f32(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}

/* The same of all taps of a transposed convolution whose window is longer than the picture: pixel by pixel. w: element
 * number `from` of the weights on. */
static void pixel_taps(const Direct *g, float *restrict sums, const float *x, const void *w, int64_t from)
{
    int last = AXES - 1;
    const float *floats = g->type == DT_BF16 ? NULL : (const float *)w + from;
    const uint16_t *halves = (const uint16_t *)w + from;
    for (int64_t j = 0; j < g->in[last]; j++) {
        int64_t shift = j * g->stride[last] - g->padding[last], dilation = g->dilation[last];
        Meeting m = meeting(g->window[last], dilation, shift, g->out[last]);
        if (!floats)
            for (int64_t k = m.first; k < m.end; k++) sums[k * dilation + shift] += x[j] * bf16_to_f32(halves[k]);
        else if (dilation == 1)
            for (int64_t k = m.first; k < m.end; k++) sums[k + shift] += x[j] * floats[k];
        else
            for (int64_t k = m.first; k < m.end; k++) sums[k * dilation + shift] += x[j] * floats[k];
    }
}

static double activated(GemmAct act, double v)
{
    switch (act) {
    case GEMM_RELU: return v < 0 ? 0 : v;
    case GEMM_GELU_ERF: return 0.5 * v * (1 + real_erf(v * sqrt(0.5)));
    case GEMM_GELU_TANH: return 0.5 * v * (1 + real_tanh(sqrt(2 / real_acos(-1.0)) * (v + 0.044715 * v * v * v)));
    case GEMM_SILU: return v / (1 + real_exp(-v));
    case GEMM_QUICK_GELU: return v / (1 + real_exp(-1.702 * v));
    default: return v;
    }
}

/* Row number i of all outputs: (image, channel, depth, height). */
static void row(const Direct *g, const GemmBuffers *m, const float *x, float *sums, int64_t i)
{
    int64_t h = i % g->out[1], d = i / g->out[1] % g->out[0], o = i / g->out[1] / g->out[0] % g->O,
            n = i / g->out[1] / g->out[0] / g->O;
    int64_t cg = g->C / g->groups, og = g->O / g->groups, first = o / og * cg, taps = volume(g->window),
            plane = volume(g->in), last = g->window[2];
    Meeting md = taps_at(g, 0, d), mh = taps_at(g, 1, h);
    memset(sums, 0, row_bytes(g));
    for (int64_t c = 0; c < cg; c++) {
        int64_t weights = g->transposed ? ((first + c) * og + o % og) * taps : (o * cg + c) * taps;
        const float *image = x + (n * g->C + first + c) * plane;
        for (int64_t kd = md.first; kd < md.end; kd++)
            for (int64_t kh = mh.first; kh < mh.end; kh++) {
                int64_t zd = source(g, 0, d, kd), zh = source(g, 1, h, kh), at = (kd * g->window[1] + kh) * last;
                if (zd < 0 || zh < 0) continue;
                const float *line = image + (zd * g->in[1] + zh) * g->in[2];
                if (g->transposed && last > g->in[2]) pixel_taps(g, sums, line, m->b, weights + at);
                else
                    for (int64_t k = 0; k < last; k++)
                        tap(g, sums, line, element(g->type, m->b, weights + at + k), k);
            }
    }
    double bias = m->bias ? (double)element(g->bias_type, m->bias, o) : 0;
    int64_t place = n * g->image + o * g->channel + d * g->apart[0] + h * g->apart[1];
    for (int64_t j = 0; j < g->out[2]; j++, place += g->apart[2]) {
        double v = (double)sums[j] + bias + (g->sum ? (double)element(g->type, m->c, place) : 0);
        store_f64(g->type, (char *)m->c + (size_t)place * dtype_size(g->type), activated(g->act, v));
    }
}

bool direct_run(const Direct *g, const GemmBuffers *m, void *scratch, Err *err)
{
    const float *x = m->a;
    if (!scratch) return fail(err, E_LIMIT, "out of memory: %zu bytes for a convolution", direct_scratch(g));
    int64_t rows = g->batch * g->O * g->out[0] * g->out[1], numel = tensor_numel(&g->x);
    double work = (double)rows * (double)g->out[2] * (double)(g->C / g->groups) * (double)volume(g->window);
    int threads = 2 * work < WORTH_THREADS ? 1 : team_width();
    if (g->copied) {
        float *copy = scratch;
        Tensor from = g->x;
        from.data = (void *)(uintptr_t)m->a;
        for (int64_t i = 0; i < numel; i++) copy[i] = (float)tensor_get(&from, i);
        x = copy;
    }
    char *sums = (char *)scratch + copy_bytes(g);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows; i++)
        if (!team_stopped()) row(g, m, x, (float *)(void *)(sums + (size_t)team_part() * row_bytes(g)), i);
    return true;
}
