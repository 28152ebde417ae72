/* Our convolutions and oneDNN's, side by side in one process: the layers of ResNet-50, DETR, ConvNeXt-T, Whisper's
 * stem, SAM 3's neck and mask head, and patch embeddings. Needs a build with oneDNN:
 *
 *     meson setup build-dnnl -Donednn=enabled && ninja -C build-dnnl libqkv_plain.a
 *     cc -O2 -fopenmp -std=gnu17 -DQKV_ONEDNN -Isrc -Iinclude -Ibench -D_GNU_SOURCE bench/convolutions.c \
 *        build-dnnl/libqkv_plain.a -ldnnl -lz -lminizip -lm -o /tmp/convolutions
 *     OMP_NUM_THREADS=1 /tmp/convolutions f32|bf16 [forward|data|weights] [NAME]
 *                                                      a table (Markdown) of the layers whose model is NAME
 *
 * data, weights: the gradients of the picture and of the weights, which change at every run. The weights' is float32,
 * and ours includes the copy of the picture with zeros around it that a plan makes.
 *
 * Weights and pictures are cold as in a model: each layer has as many of both as fill 64 MB (16 at most), taken in
 * turn; HOT=1: one of each. Rounds alternate between the two (ROUNDS, 20); a figure is the least time of a round, of
 * the thread's own CPU time, so that what else runs on the machine costs caches but no time. The peak is the fastest
 * loop of multiply-adds, timed between the layers.
 */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernel/gemm_impl.h"
#include "onednn_back.h"

typedef enum Pass { FORWARD, DATA, WEIGHTS } Pass;

enum {
    MOST = 16,
    PLANES = 1,
    TRANSPOSED = 2,
    DEPTHWISE = 4,
    SUM = 8
}; /* PLANES: x is contiguous, as a model's input */

typedef struct Layer {
    const char *model;
    int C, O, H, W, kh, kw, stride, pad;
    GemmAct act;
    int flags;
} Layer;

#define BOTTLENECK(name, C, M, O, H, W)                                                                                \
    {name, C, M, H, W, 1, 1, 1, 0, GEMM_RELU, 0}, {name, M, M, H, W, 3, 3, 1, 1, GEMM_RELU, 0},                        \
    {                                                                                                                  \
        name, M, O, H, W, 1, 1, 1, 0, GEMM_RELU, SUM                                                                   \
    }
#define STAGE(name, C, M, O, H, W)                                                                                     \
    {name, C, M, H, W, 1, 1, 1, 0, GEMM_RELU, 0}, {name, M, M, H, W, 3, 3, 2, 1, GEMM_RELU, 0},                        \
        {name, C, O, H, W, 1, 1, 2, 0, GEMM_NONE, 0}, BOTTLENECK(name, O, M, O, (H + 1) / 2, (W + 1) / 2)
#define RESNET(name, H, W)                                                                                             \
    {name, 3, 64, H, W, 7, 7, 2, 3, GEMM_RELU, PLANES}, {name, 64, 64, H / 4, W / 4, 1, 1, 1, 0, GEMM_RELU, 0},        \
        BOTTLENECK(name, 256, 64, 256, H / 4, W / 4), STAGE(name, 256, 128, 512, H / 4, W / 4),                        \
        STAGE(name, 512, 256, 1024, H / 8, W / 8), STAGE(name, 1024, 512, 2048, H / 16, W / 16)

static const Layer layers[] = {
    RESNET("resnet50", 224, 224),
    RESNET("detr", 640, 640),
    {"detr", 2048, 256, 20, 20, 1, 1, 1, 0, GEMM_NONE, 0},
    {"convnext_t", 3, 96, 224, 224, 4, 4, 4, 0, GEMM_NONE, PLANES},
    {"convnext_t", 96, 96, 56, 56, 7, 7, 1, 3, GEMM_NONE, DEPTHWISE},
    {"convnext_t", 96, 192, 56, 56, 2, 2, 2, 0, GEMM_NONE, 0},
    {"convnext_t", 192, 192, 28, 28, 7, 7, 1, 3, GEMM_NONE, DEPTHWISE},
    {"convnext_t", 192, 384, 28, 28, 2, 2, 2, 0, GEMM_NONE, 0},
    {"convnext_t", 384, 384, 14, 14, 7, 7, 1, 3, GEMM_NONE, DEPTHWISE},
    {"convnext_t", 384, 768, 14, 14, 2, 2, 2, 0, GEMM_NONE, 0},
    {"convnext_t", 768, 768, 7, 7, 7, 7, 1, 3, GEMM_NONE, DEPTHWISE},
    {"whisper", 80, 384, 1, 3000, 1, 3, 1, 1, GEMM_GELU_ERF, PLANES},
    {"whisper", 384, 384, 1, 3000, 1, 3, 2, 1, GEMM_GELU_ERF, 0},
    {"whisper", 80, 768, 1, 3000, 1, 3, 1, 1, GEMM_GELU_ERF, PLANES},
    {"whisper", 768, 768, 1, 3000, 1, 3, 2, 1, GEMM_GELU_ERF, 0},
    {"sam3", 1024, 512, 72, 72, 2, 2, 2, 0, GEMM_GELU_ERF, TRANSPOSED},
    {"sam3", 512, 256, 144, 144, 2, 2, 2, 0, GEMM_NONE, TRANSPOSED},
    {"sam3", 256, 256, 288, 288, 1, 1, 1, 0, GEMM_NONE, 0},
    {"sam3", 256, 256, 288, 288, 3, 3, 1, 1, GEMM_NONE, 0},
    {"sam3", 512, 256, 144, 144, 1, 1, 1, 0, GEMM_NONE, 0},
    {"sam3", 256, 256, 144, 144, 3, 3, 1, 1, GEMM_NONE, 0},
    {"sam3", 1024, 256, 72, 72, 1, 1, 1, 0, GEMM_NONE, 0},
    {"sam3", 256, 256, 72, 72, 3, 3, 1, 1, GEMM_NONE, 0},
    {"patches", 3, 768, 224, 224, 16, 16, 16, 0, GEMM_NONE, PLANES},
    {"patches", 3, 768, 224, 224, 32, 32, 32, 0, GEMM_NONE, PLANES},
    {"patches", 3, 384, 518, 518, 14, 14, 14, 0, GEMM_NONE, PLANES},
    {"patches", 3, 1024, 1008, 1008, 14, 14, 14, 0, GEMM_NONE, PLANES},
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *filled(size_t n, DType t)
{
    char *p = aligned_alloc(64, (n * 4 + 63) / 64 * 64);
    for (size_t i = 0; p && i < n; i++) {
        if (t == DT_F32) ((float *)(void *)p)[i] = (float)(i * 7919 % 31) / 31 - 0.5f;
        else ((uint16_t *)(void *)p)[i] = f32_to_bf16((float)(i * 7919 % 31) / 31 - 0.5f);
    }
    return p;
}

/* (1, C, H, W), or (1, C, W) of one row. */
static Tensor picture(DType t, const Layer *l, int64_t C, int64_t H, int64_t W, bool planes)
{
    Tensor x = tensor_of(t, l->H == 1 ? 3 : 4, l->H == 1 ? (int64_t[]){1, C, W} : (int64_t[]){1, C, H, W}, NULL);
    if (!planes) strides_channels_last(x.rank, x.shape, x.stride);
    return x;
}

static double flops(DType t)
{
    float sink;
    double (*loop)(int64_t, float *) = t == DT_BF16 ? kernels()->peak.bf16 : kernels()->peak.f32;
    if (!loop) loop = kernels()->peak.f32;
    double best = 0;
    for (int i = 0; i < 8; i++) {
        double start = now(), n = loop(20000, &sink), rate = n / (now() - start);
        if (rate > best) best = rate;
    }
    return best / 1e9;
}

/* The layer's sizes as gemm.h takes them, and what belongs to it. */
typedef struct Bench {
    const Layer *l;
    DType t;
    Tensor x, w, y, bias;
    int64_t steps[2], ones[2], pads[2], ends[2], multiplications;
    GemmConv d;
} Bench;

static void pad_end(const int64_t *in, const int64_t *k, const int64_t *out, bool turned, Bench *b)
{
    for (int i = 0; i < 2; i++)
        b->ends[i] = turned ? (in[i] - 1) * b->steps[i] + k[i] - b->pads[i] - out[i]
                            : (out[i] - 1) * b->steps[i] + k[i] - b->pads[i] - in[i];
}

static void sizes(Bench *b)
{
    const Layer *l = b->l;
    bool flat = l->H == 1, turned = l->flags & TRANSPOSED;
    int64_t groups = l->flags & DEPTHWISE ? l->C : 1, in[2] = {l->H, l->W}, k[2] = {l->kh, l->kw}, out[2];
    for (int i = 0; i < 2; i++) {
        b->steps[i] = flat && i == 0 ? 1 : l->stride;
        b->pads[i] = flat && i == 0 ? 0 : l->pad;
        b->ones[i] = 1;
        out[i] = turned ? (in[i] - 1) * b->steps[i] + k[i] - 2 * b->pads[i]
                        : (in[i] + 2 * b->pads[i] - k[i]) / b->steps[i] + 1;
    }
    pad_end(in, k, out, turned, b);
    int64_t first = turned ? l->C : l->O, second = (turned ? l->O : l->C) / groups;
    b->x = picture(b->t, l, l->C, l->H, l->W, l->flags & PLANES);
    b->y = picture(b->t, l, l->O, out[0], out[1], false);
    b->w = tensor_of(b->t, flat ? 3 : 4,
                     flat ? (int64_t[]){first, second, k[1]} : (int64_t[]){first, second, k[0], k[1]}, NULL);
    b->bias = tensor_of(DT_F32, 1, (int64_t[]){l->O}, NULL);
    b->multiplications = turned ? tensor_numel(&b->w) * in[0] * in[1] : tensor_numel(&b->w) * out[0] * out[1];
    b->d = (GemmConv){.x = &b->x,
                      .w = &b->w,
                      .bias = &b->bias,
                      .y = &b->y,
                      .spatial = flat ? 1 : 2,
                      .stride = b->steps + flat,
                      .padding = b->pads + flat,
                      .padding_end = b->ends + flat,
                      .dilation = b->ones,
                      .groups = groups,
                      .transposed = turned,
                      .w_constant = true,
                      .sum = l->flags & SUM,
                      .act = l->act};
}

/* ------------------------------------------------------------------ gradients */

/* The picture's gradient: a convolution of y's, transposed where the layer is not. */
static void turn(Bench *b)
{
    const Layer *l = b->l;
    int64_t in[2] = {1, 1}, out[2] = {1, 1}, k[2] = {l->kh, l->kw};
    Tensor x = b->y;
    b->y = picture(b->t, l, b->x.shape[1], l->H, l->W, false);
    b->x = x;
    for (int i = 0; i < b->d.spatial; i++) {
        in[2 - b->d.spatial + i] = x.shape[2 + i];
        out[2 - b->d.spatial + i] = b->y.shape[2 + i];
    }
    b->d.transposed = !b->d.transposed;
    pad_end(in, k, out, b->d.transposed, b);
    b->d.bias = NULL, b->d.sum = false, b->d.act = GEMM_NONE, b->d.w_constant = false;
}

/* The weights' gradient as a plan computes it: the product of y's gradient (groups, O, positions) with windows of the
 * padded picture. Of a transposed layer the two change places. */
typedef struct Weights {
    Tensor large, padded, windows, a, b, c;
    GemmMatmul d;
} Weights;

static void weights_of(const Bench *b, Weights *w)
{
    bool turned = b->d.transposed;
    int n = b->d.spatial;
    const Tensor *small = turned ? &b->x : &b->y;
    int64_t G = b->d.groups, K = 1, N, shape[2 + 2];
    w->large = turned ? b->y : b->x;
    memcpy(shape, w->large.shape, sizeof shape);
    for (int i = 0; i < n; i++) shape[2 + i] += 2 * b->d.padding[i];
    w->padded = tensor_of(b->t, n + 2, shape, NULL);
    if (tensor_channels_last(&w->large)) strides_channels_last(n + 2, shape, w->padded.stride);
    int64_t each = shape[1] / G;
    Tensor *s = &w->windows;
    *s = tensor_of(b->t, 3 + 2 * n, (int64_t[MAX_RANK]){G, 1}, NULL);
    s->stride[0] = each * w->padded.stride[1], s->stride[1] = w->padded.stride[0];
    N = each;
    for (int i = 0; i < n; i++) {
        s->shape[2 + i] = small->shape[2 + i], s->stride[2 + i] = w->padded.stride[2 + i] * b->d.stride[i];
        s->shape[2 + n + i] = b->w.shape[2 + i], s->stride[2 + n + i] = w->padded.stride[2 + i];
        K *= small->shape[2 + i], N *= b->w.shape[2 + i];
    }
    s->shape[2 + 2 * n] = each, s->stride[2 + 2 * n] = w->padded.stride[1];
    w->a = tensor_of(b->t, 3, (int64_t[]){G, small->shape[1] / G, K}, NULL);
    w->a.stride[0] = small->shape[1] / G * small->stride[1];
    w->a.stride[1] = small->stride[1], w->a.stride[2] = small->stride[n + 1];
    w->b = tensor_of(b->t, 3, (int64_t[]){G, K, N}, NULL);
    w->b.stride[0] = s->stride[0];
    w->c = tensor_of(DT_F32, 3, (int64_t[]){G, small->shape[1] / G, N}, NULL);
    w->d = (GemmMatmul){.a = &w->a, .b = &w->b, .c = &w->c, .windows = s, .along = 1 + n};
}

static void weights_run(Gemm *g, Weights *w, const Bench *b, const void *x, const void *y, void *to, char *room,
                        void *scratch, Err *err)
{
    const void *large = b->d.transposed ? y : x, *small = b->d.transposed ? x : y, *from = large;
    int64_t at = 0;
    for (int i = 0; i < b->d.spatial; i++) at += b->d.padding[i] * w->padded.stride[2 + i];
    if (at) {
        const Tensor *l = &w->large, *p = &w->padded;
        bool last = tensor_channels_last(l);
        int64_t size = (int64_t)dtype_size(b->t), C = l->shape[1], W = l->shape[b->d.spatial + 1],
                H = tensor_numel(l) / C / W, n = W * (last ? C : 1) * size, line = p->stride[b->d.spatial];
        memset(room, 0, tensor_bytes(p));
        if (b->d.spatial == 1) line = 0;
        for (int64_t c = 0; c < (last ? 1 : C); c++)
            for (int64_t y = 0; y < H; y++)
                memcpy(room + (at + c * p->stride[1] + y * line) * size, (const char *)large + (c * H + y) * n,
                       (size_t)n);
        from = room;
    }
    gemm_run(g, &(GemmBuffers){.a = small, .b = from, .c = to}, scratch, err);
}

/* The convolution, not transposed, whose gradients oneDNN computes: of a transposed layer, from y to x. */
static GemmConv straight(const Bench *b, bool data)
{
    GemmConv d = b->d;
    if (data || d.transposed) d.x = b->d.y, d.y = b->d.x; /* data: b is turned */
    d.transposed = false;
    return d;
}

static bool measure_gradient(Bench *b, Pass pass, int rounds, double *best)
{
    Err err = {0};
    Weights w = {0};
    bool weights = pass == WEIGHTS, theirs = weights || b->d.transposed; /* else oneDNN's is forward, too */
    double each = (double)(tensor_numel(&b->x) + tensor_numel(&b->w) + tensor_numel(&b->y)) * (double)dtype_size(b->t);
    int L = getenv("HOT") || each > 64e6 ? 1 : 64e6 / each > MOST ? MOST : (int)(64e6 / each);
    GemmPool *pool = gemm_pool_create(&err);
    OneDnnPool *other = onednn_pool_create(&err);
    if (weights) weights_of(b, &w);
    Gemm *own = weights ? gemm_matmul(pool, &w.d, &err) : gemm_conv(pool, &b->d, &err);
    GemmConv d = straight(b, !weights);
    Back *back = own && theirs ? back_create(&d, weights) : NULL;
    OneDnn *their = own && !theirs ? onednn_conv(other, &b->d, &err) : NULL;
    if (!own || !(back || their)) return fprintf(stderr, "%s: no gradient: %s\n", b->l->model, err.msg), false;
    void *wt[MOST], *x[MOST], *y[MOST];
    for (int i = 0; i < L; i++) {
        wt[i] = filled((size_t)tensor_numel(&b->w), weights ? DT_F32 : b->t);
        x[i] = filled((size_t)tensor_numel(&b->x), b->t), y[i] = filled((size_t)tensor_numel(&b->y), b->t);
    }
    size_t room = gemm_scratch(own), more = their ? onednn_scratch(their) : 0;
    void *scratch = aligned_alloc(64, ((room > more ? room : more) + 127) / 64 * 64),
         *padded = weights ? aligned_alloc(64, (tensor_bytes(&w.padded) + 127) / 64 * 64) : NULL;
    best[0] = best[1] = 1e9;
    for (int r = 0; r < rounds; r++)
        for (int which = 0; which < 2; which++) {
            double start = now();
            for (int i = 0; i < L; i++) {
                GemmBuffers m = {.a = x[i], .b = wt[i], .c = y[i]};
                if (which && their) onednn_run(their, &m, scratch, &err);
                else if (which && weights && b->d.transposed) back_run(back, x[i], y[i], wt[i]);
                else if (which && weights) back_run(back, y[i], x[i], wt[i]);
                else if (which) back_run(back, x[i], wt[i], y[i]);
                else if (weights) weights_run(own, &w, b, x[i], y[i], wt[i], padded, scratch, &err);
                else gemm_run(own, &m, scratch, &err);
            }
            double took = (now() - start) / L;
            if (took < best[which]) best[which] = took;
        }
    for (int i = 0; i < L; i++) free(wt[i]), free(x[i]), free(y[i]);
    gemm_free(own), onednn_free(their), back_free(back);
    gemm_pool_free(pool), onednn_pool_free(other);
    free(scratch), free(padded);
    return true;
}

/* ------------------------------------------------------------------ forward */

/* Least seconds of a call of ours and of oneDNN's; false where one of them failed, which is told. */
static bool measure(Bench *b, int rounds, double *best)
{
    Err err = {0};
    double each = (double)(tensor_numel(&b->x) + tensor_numel(&b->w) + tensor_numel(&b->y)) * (double)dtype_size(b->t);
    int L = getenv("HOT") || each > 64e6 ? 1 : 64e6 / each > MOST ? MOST : (int)(64e6 / each);
    GemmPool *pool = gemm_pool_create(&err);
    OneDnnPool *other = onednn_pool_create(&err);
    Gemm *own[MOST];
    OneDnn *their[MOST];
    void *w[MOST], *x[MOST], *y[MOST], *bias = filled((size_t)b->bias.shape[0], DT_F32);
    for (int i = 0; i < L; i++) {
        b->w.data = w[i] = filled((size_t)tensor_numel(&b->w), b->t);
        x[i] = filled((size_t)tensor_numel(&b->x), b->t), y[i] = filled((size_t)tensor_numel(&b->y), b->t);
        own[i] = gemm_conv(pool, &b->d, &err);
        their[i] = onednn_conv(other, &b->d, &err);
        if (!own[i] || !their[i]) return fprintf(stderr, "%s: %s\n", b->l->model, err.msg), false;
    }
    size_t room = gemm_scratch(own[0]) > onednn_scratch(their[0]) ? gemm_scratch(own[0]) : onednn_scratch(their[0]);
    void *scratch = aligned_alloc(64, (room + 127) / 64 * 64);
    best[0] = best[1] = 1e9;
    for (int r = 0; r < rounds; r++)
        for (int which = 0; which < 2; which++) {
            double start = now();
            for (int i = 0; i < L; i++) {
                GemmBuffers m = {.a = x[i], .b = w[i], .bias = bias, .c = y[i]};
                if (b->d.sum && !which) m.residual = y[i];
                if (which) onednn_run(their[i], &m, scratch, &err);
                else gemm_run(own[i], &m, scratch, &err);
            }
            double took = (now() - start) / L;
            if (took < best[which]) best[which] = took;
        }
    for (int i = 0; i < L; i++) gemm_free(own[i]), onednn_free(their[i]), free(w[i]), free(x[i]), free(y[i]);
    gemm_pool_free(pool);
    onednn_pool_free(other);
    free(bias), free(scratch);
    return true;
}

int main(int argc, char **argv)
{
    DType t = argc > 1 && !strcmp(argv[1], "bf16") ? DT_BF16 : DT_F32;
    const char *of = argc > 2 ? argv[2] : "forward", *only = argc > 3 ? argv[3] : NULL;
    Pass pass = !strcmp(of, "data") ? DATA : !strcmp(of, "weights") ? WEIGHTS : FORWARD;
    int rounds = getenv("ROUNDS") ? atoi(getenv("ROUNDS")) : 20, n = 0;
    double logs = 0, lowest = 1e9, peak = flops(t);
    printf("| layer | picture | window | ours ms | oneDNN ms | ratio | of peak |\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const Layer *l = &layers[i];
        Bench b = {.l = l, .t = t};
        double best[2], again = flops(t);
        if (only && strcmp(l->model, only)) continue;
        if (again > peak) peak = again;
        sizes(&b);
        if (pass == DATA) turn(&b);
        if (!(pass == FORWARD ? measure(&b, rounds, best) : measure_gradient(&b, pass, rounds, best))) return 2;
        double ratio = best[1] / best[0];
        printf("| %s %d to %d%s | %d x %d | %d x %d / %d | %.3f | %.3f | %.2f | %.0f %% |\n", l->model, l->C, l->O,
               l->flags & DEPTHWISE    ? " depthwise"
               : l->flags & TRANSPOSED ? " transposed"
                                       : "",
               l->H, l->W, l->kh, l->kw, l->stride, best[0] * 1e3, best[1] * 1e3, ratio,
               2e-7 * (double)b.multiplications / best[0] / peak);
        fflush(stdout);
        logs += log(ratio);
        n++;
        if (ratio < lowest) lowest = ratio;
    }
    printf("\nGeometric mean of %d layers %.2f, lowest %.2f; peak %.0f GFLOP/s (%s).\n", n, exp(logs / n), lowest, peak,
           dtype_name(t));
    return 0;
}
