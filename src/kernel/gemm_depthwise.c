/* Depthwise convolutions: one picture channel for each output channel. Any stride, dilation, padding and layout of the
 * picture, one to three axes, transposed ones.
 *
 *     y[i, c] = act(sum over k of x[i * step + low + k * gap, c] * w[k, c] + bias[c] [+ y[i, c]])
 *
 * Some channels of the rows that a block of outputs sees are copied to a strip, as float32, zeros beside the picture:
 * cells of a few channels, so that all that a row's windows see stays in L1. Blocks go to threads; a value is summed by
 * one of them, in the order of taps.
 *
 * Pictures of integers of 8 bits (kernel/gemm_integer.h) become floats there, with their zero point off: products of
 * whole numbers have exact sums (DEPTHWISE_DEEPEST), which go through the epilogue of products of integers.
 */
#include <string.h>
#include "base/mem.h"
#include "kernel/gemm_axes.h"
#include "kernel/gemm_integer.h"
#include "team/team.h"

enum {
    ALIGN = 64,
    CHANNELS = 64,
    STRIP = 256 << 10,
    WORTH_THREADS = 1 << 20,
    MAX_THREADS = 1024,
    MOST_PLACES = 64,
    MOST_LINE = 64
};

/* The outputs of one place modulo the strides. */
typedef struct Place {
    Axis a[AXES];
    int64_t first[AXES], every[AXES]; /* weights: the first tap, from tap to tap */
    int64_t taps, rows, pitch, slab;  /* rows: of a block's outputs; pitch: cells of a row; slab: rows of a depth */
    float *w;                         /* pack */
} Place;

struct Depthwise {
    const ConvKernels *k;
    Tensor weight, x;
    int64_t xs[AXES], ys[AXES], yn, batch, C, taps; /* taps: the most of a place */
    int64_t most, sums;                             /* channels of a cell; bytes of a row's sums of integers */
    DType type, bias_type;
    bool sum, constant;
    int act, threads, places;
    Place *place;
    size_t strip, weights; /* bytes: of the largest strip; of all weights as floats */
};

static bool of_integers(const Depthwise *g) { return g->type == DT_I8 || g->type == DT_U8; }

void depthwise_free(Depthwise *g)
{
    if (g && g->place) mem_free(g->place[0].w); /* one block for all */
    if (g) mem_free(g->place);
    mem_free(g);
}

static size_t space(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }
/* The bias as floats, and weights that are not constant; then for each thread the taps of a row, and a strip. */
static size_t shared_bytes(const Depthwise *g)
{
    return space((size_t)g->C * sizeof(float) + (g->constant ? 0 : g->weights));
}
static size_t own_bytes(const Depthwise *g)
{
    return space((size_t)g->taps * sizeof(int64_t)) + space((size_t)g->sums) + space(g->strip);
}
size_t depthwise_scratch(const Depthwise *g) { return shared_bytes(g) + own_bytes(g) * (size_t)g->threads + ALIGN; }

static float element(DType t, const void *data, int64_t i)
{
    if (t == DT_I8) return ((const int8_t *)data)[i];
    return t == DT_BF16 ? bf16_to_f32(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}

/* Weights (C, 1, window) from `data` on: of each place, one after the other, [blocks of channels][taps][channels]. */
static void pack(const Depthwise *g, const void *data, float *to)
{
    const Tensor *w = &g->weight;
    for (int i = 0; i < g->places; i++) {
        const Place *p = &g->place[i];
        for (int64_t b = 0; b < ceil_div(g->C, g->most) * p->taps; b++) {
            int64_t t = b % p->taps, first = b / p->taps * g->most,
                    n[AXES] = {t / (p->a[1].taps * p->a[2].taps), t / p->a[2].taps % p->a[1].taps, t % p->a[2].taps},
                    at = 0;
            for (int k = AXES - (w->rank - 2); k < AXES; k++)
                at += (p->first[k] + n[k] * p->every[k]) * w->stride[2 + k - (AXES - (w->rank - 2))];
            for (int64_t c = first; c < least(g->C, first + g->most); c++)
                *to++ = element(w->dtype, data, at + c * w->stride[0]);
        }
    }
}

static void sizes(const Depthwise *g, Place *p)
{
    const Axis *r = &p->a[1], *c = &p->a[2];
    p->taps = p->a[0].taps * r->taps * c->taps;
    p->pitch = (c->out - 1) * c->step + span(c);
    int64_t row = p->pitch * least(g->most, g->C) * (int64_t)sizeof(float) * most(1, p->a[0].taps), high = span(r),
            rows = STRIP / row;
    p->rows = least(r->out, rows > high ? (rows - high) / r->step + 1 : 1);
    p->rows = ceil_div(r->out, ceil_div(r->out, p->rows));
    p->slab = ((p->rows - 1) * r->step + high) * p->pitch;
}

Depthwise *depthwise_conv(const Kernels *kernels, const GemmConv *d, Err *err)
{
    int64_t places = places_of(d, MOST_PLACES);
    bool taken = kernels->conv.depthwise && d->groups > 1 && d->groups == d->x->shape[1] &&
                 d->groups == d->y->shape[1] && tensor_channels_last(d->y) && places <= MOST_PLACES;
    if (!taken || tensor_numel(d->x) == 0 || tensor_numel(d->w) == 0 || tensor_numel(d->y) == 0) return NULL;
    Depthwise *g = mem_zeroed(1, sizeof *g);
    if (!g || !(g->place = mem_zeroed((size_t)places, sizeof *g->place))) {
        mem_free(g);
        return oom(err), NULL;
    }
    g->k = &kernels->conv;
    g->most = d->x->dtype == DT_I8 || d->x->dtype == DT_U8 ? kernels->integer.nr : CHANNELS;
    g->weight = *d->w, g->x = *d->x;
    g->batch = d->x->shape[0], g->C = d->groups;
    strides_of(d->x, d->spatial, g->xs);
    strides_of(d->y, d->spatial, g->ys);
    g->yn = d->y->stride[0];
    g->type = d->x->dtype, g->bias_type = d->bias ? d->bias->dtype : DT_NONE;
    g->sum = d->sum, g->constant = d->w_constant, g->act = (int)d->act;
    double work = 2.0 * (double)tensor_numel(d->y) * (double)tensor_numel(d->w) / (double)g->C;
    g->threads = work < WORTH_THREADS ? 1 : (int)least(team_width(), MAX_THREADS);
    int64_t taps = 0;
    for (int64_t i = 0; i < places; i++) {
        int64_t at[AXES];
        bool any = true;
        Place *p = &g->place[g->places];
        place_of(d, i, at);
        for (int k = 0; k < AXES; k++) any = axis_of(d, k, at[k], &p->a[k], &p->first[k], &p->every[k]) && any;
        if (!any) continue;
        sizes(g, p);
        size_t strip = (size_t)(p->slab * most(1, p->a[0].taps) * least(g->most, g->C)) * sizeof(float);
        if (strip > g->strip) g->strip = strip;
        g->taps = most(g->taps, p->taps);
        if (of_integers(g)) g->sums = most(g->sums, p->a[2].out * g->most * (int64_t)sizeof(int32_t));
        taps += p->taps;
        g->places++;
    }
    g->weights = (size_t)(taps * g->C) * sizeof(float);
    if (!g->constant || !g->places) return g;
    float *w = mem_alloc(g->weights + ALIGN);
    if (!w) return depthwise_free(g), oom(err), NULL;
    pack(g, d->w->data, w);
    for (int i = 0; i < g->places; w += g->place[i++].taps * g->C) g->place[i].w = w;
    return g;
}

/* ------------------------------------------------------------------ running */

typedef struct Block {
    const Depthwise *g;
    const Place *p;
    const IntegerMatmul *ending; /* of integers */
    const char *x;               /* of the image, from the block's first channel on */
    char *y;
    float *strip;
    int32_t *sums; /* of integers: of a row */
    int64_t image, first;
    const float *w, *bias;
    int64_t *tap;
    int64_t depth, row, rows, channels; /* outputs [row, row + rows), channels of a cell */
} Block;

/* n cells of `channels` floats from `to` on, pixels from element `at` on. */
static void cells(const Block *b, float *to, int64_t at, int64_t n)
{
    const Depthwise *g = b->g;
    int64_t step = g->xs[2], C = b->channels, xc = g->x.stride[1], size = (int64_t)dtype_size(g->type);
    if (of_integers(g)) g->k->whole(to, b->x + at, g->type, b->ending->a.zero, step, n, C);
    else if (xc == 1) g->k->widen(to, b->x + at * size, g->type, step, n, C);
    else if (g->type == DT_F32 && step == 1) {
        const void *from[CHANNELS];
        for (int64_t c = 0; c < C; c++) from[c] = (const float *)(const void *)b->x + at + c * xc;
        g->k->columns_4(to, C, from, (int)C, n);
    } else
        for (int64_t j = 0; j < n; j++)
            for (int64_t c = 0; c < C; c++) to[j * C + c] = element(g->type, b->x, at + c * xc + j * step);
}

/* Cells of a row of the strip: `zeros` before the picture, `data` of it. */
static void cells_of(const Place *p, int64_t *zeros, int64_t *data)
{
    const Axis *c = &p->a[2];
    *zeros = least(p->pitch, most(0, -lowest(c)));
    *data = most(0, least(p->pitch, c->in - lowest(c)) - *zeros);
}

/* Rows of the block's strip. Those outside the picture are zeros, or, where there is one depth, left out: their taps
 * are. */
static void fill(const Block *b)
{
    const Place *p = b->p;
    const Axis *d = &p->a[0], *r = &p->a[1];
    int64_t left = lowest(&p->a[2]), high = (b->rows - 1) * r->step + span(r), C = b->channels, zeros, data;
    cells_of(p, &zeros, &data);
    for (int64_t t = 0; t < d->taps; t++) {
        int64_t z = b->depth * d->step + d->low + t * d->gap;
        for (int64_t i = 0; i < high; i++) {
            int64_t y = b->row * r->step + lowest(r) + i, from = zeros;
            float *to = b->strip + (t * p->slab + i * p->pitch) * C;
            bool out = z < 0 || z >= d->in || y < 0 || y >= r->in;
            if (out && d->taps == 1 && d->in == 1) continue;
            if (out || !data) from = p->pitch;
            memset(to, 0, (size_t)(from * C) * sizeof *to);
            if (from == p->pitch) continue;
            cells(b, to + zeros * C, z * b->g->xs[0] + y * b->g->xs[1] + (left + zeros) * b->g->xs[2], data);
            memset(to + (zeros + data) * C, 0, (size_t)((p->pitch - zeros - data) * C) * sizeof *to);
        }
    }
}

/* How far after a row's first cell each tap is, in cells of C channels. */
static void taps_of(const Place *p, int64_t C, int64_t *tap)
{
    const Axis *a = p->a;
    for (int64_t t = 0; t < a[0].taps; t++)
        for (int64_t k = 0; k < a[1].taps; k++)
            for (int64_t m = 0; m < a[2].taps; m++)
                *tap++ = (t * p->slab + (a[1].low + k * a[1].gap - lowest(&a[1])) * p->pitch + a[2].low + m * a[2].gap -
                          lowest(&a[2])) *
                         C;
}

/* A row's sums of integers, a few at a time, to where they belong. */
static void finish_row(const Block *b, int64_t row)
{
    const IntegerKernels *k = &kernels()->integer;
    const Axis *a = b->p->a;
    const int64_t at = ((b->image * a[0].out + b->depth) * a[1].out + b->row + row) * a[2].out;
    for (int64_t i = 0; i < a[2].out; i += k->mr)
        k->finish(b->ending, b->sums + i * b->g->most, at + i, b->first, (int)least(k->mr, a[2].out - i),
                  (int)b->channels);
}

/* Output row number `row` of the block; of one depth the rows of the window that are in the picture. */
static void run_row(const Block *b, int64_t row)
{
    const Depthwise *g = b->g;
    const Place *p = b->p;
    const Axis *d = &p->a[0], *r = &p->a[1], *c = &p->a[2];
    int64_t out = (int64_t)dtype_size(g->type), first = 0, end = r->taps, y = (b->row + row) * r->step + r->low, zeros,
            data;
    cells_of(p, &zeros, &data);
    if (d->taps == 1 && d->in == 1) {
        while (first < end && (y + first * r->gap < 0 || y + first * r->gap >= r->in)) first++;
        while (first < end && (y + (end - 1) * r->gap < 0 || y + (end - 1) * r->gap >= r->in)) end--;
    }
    const bool integers = b->ending != NULL;
    int64_t at = (d->first + b->depth * d->every) * g->ys[0] + (r->first + (b->row + row) * r->every) * g->ys[1] +
                 c->first * g->ys[2];
    g->k->depthwise(&(DepthwiseRun){.x = b->strip + row * r->step * p->pitch * b->channels,
                                    .y = integers ? (void *)b->sums : b->y + at * out,
                                    .w = b->w + first * c->taps * b->channels,
                                    .bias = integers ? NULL : b->bias,
                                    .tap = b->tap + first * c->taps,
                                    .taps = d->taps * (end - first) * c->taps,
                                    .n = c->out,
                                    .step = c->step * b->channels,
                                    .w_step = b->channels,
                                    .y_step = integers ? g->most : c->every * g->ys[2],
                                    .channels = b->channels,
                                    .type = integers ? DT_I32 : g->type,
                                    .sum = g->sum,
                                    .act = g->act,
                                    .line = c->gap == c->step ? (int)least(c->taps, MOST_LINE) : 0,
                                    .first = ceil_div(zeros, c->step),
                                    .end = ceil_div(zeros + data, c->step)});
    if (integers) finish_row(b, row);
}

/* What thread `self` of `threads` does of a place: blocks of rows of some channels. */
static void share(const Depthwise *g, const Place *p, const GemmBuffers *m, const IntegerMatmul *ending,
                  const float *w, const float *bias, char *own, int self, int threads)
{
    int64_t parts = ceil_div(g->C, g->most), blocks = ceil_div(p->a[1].out, p->rows), depths = p->a[0].out,
            n = g->batch * depths * parts * blocks, size = (int64_t)dtype_size(g->type);
    Block b = {.g = g, .p = p, .ending = ending, .tap = (int64_t *)(void *)own};
    b.sums = (int32_t *)(void *)(own + space((size_t)p->taps * sizeof *b.tap));
    b.strip = (float *)(void *)((char *)b.sums + space((size_t)g->sums));
    for (int64_t i = n * self / threads; i < n * (self + 1) / threads; i++) {
        int64_t block = i % blocks, first = i / blocks % parts * g->most, image = i / blocks / parts / depths;
        b.depth = i / blocks / parts % depths;
        b.image = image;
        b.first = first;
        int64_t channels = least(g->most, g->C - first);
        if (channels != b.channels) taps_of(p, channels, b.tap);
        b.channels = channels;
        b.x = (const char *)m->a + (image * g->x.stride[0] + first * g->x.stride[1]) * size;
        b.y = ending ? NULL : (char *)m->c + (image * g->yn + first) * size;
        b.w = w + first * p->taps;
        b.bias = bias ? bias + first : NULL;
        b.row = p->a[1].out * block / blocks;
        b.rows = p->a[1].out * (block + 1) / blocks - b.row;
        fill(&b);
        for (int64_t r = 0; r < b.rows; r++) run_row(&b, r);
    }
}

bool depthwise_run(const Depthwise *g, const GemmBuffers *m, const IntegerMatmul *ending, void *scratch, Err *err)
{
    char *base = (char *)(((uintptr_t)scratch + ALIGN - 1) / ALIGN * ALIGN);
    int threads = (int)least(g->threads, team_width());
    float *bias = (float *)(void *)base, *w = bias + g->C;
    char *own = base + shared_bytes(g);
    (void)err;
    for (int64_t c = 0; m->bias && c < g->C; c++) bias[c] = element(g->bias_type, m->bias, c);
    if (!g->constant) pack(g, m->b, w);
    for (int i = 0; i < g->places; i++) {
        const Place *p = &g->place[i];
        const float *of = g->constant ? p->w : w;
        w += p->taps * g->C;
        if (threads == 1) {
            share(g, p, m, ending, of, m->bias ? bias : NULL, own, 0, 1);
            continue;
        }
#pragma omp parallel num_threads(threads)
        share(g, p, m, ending, of, m->bias ? bias : NULL, own + own_bytes(g) * (size_t)team_part(), team_part(),
              team_parts());
    }
    return true;
}
