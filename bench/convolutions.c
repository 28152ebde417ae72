/* Our convolutions and oneDNN's, side by side in one process: ResNet-50's shapes, channels-last, with bias and ReLU.
 *
 *     cc -O3 -fopenmp -std=gnu17 -Isrc -Iinclude -D_GNU_SOURCE bench/convolutions.c build/libqkv_plain.a \
 *        -ldnnl -lz -lminizip -lm -o /tmp/convolutions
 *     OMP_NUM_THREADS=1 /tmp/convolutions bf16 [C,O,H,W,kernel,stride[,residual] ...]
 *
 * Weights and pictures are cold as in a model: each shape has as many of both as fill 64 MB (16 at most), taken in
 * turn. GFLOP/s of the best round, and what it costs to make one whose weights are packed: of oneDNN's with
 * DNNL_PRIMITIVE_CACHE_CAPACITY=0, else it was kept. HOT=1: one of each.
 */
#include <omp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernel/gemm_impl.h"

enum { MOST = 16 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *filled(size_t n, DType t)
{
    char *p = aligned_alloc(64, (n * 4 + 63) / 64 * 64);
    for (size_t i = 0; i < n; i++) {
        if (t == DT_F32) ((float *)(void *)p)[i] = (float)(i * 7919 % 31) / 31 - 0.5f;
        else ((uint16_t *)(void *)p)[i] = f32_to_bf16((float)(i * 7919 % 31) / 31 - 0.5f);
    }
    return p;
}

static Tensor last(DType t, int64_t C, int64_t H, int64_t W, void *data)
{
    Tensor x = tensor_of(t, 4, (int64_t[]){1, C, H, W}, data);
    strides_channels_last(4, x.shape, x.stride);
    return x;
}

int main(int argc, char **argv)
{
    static char *const usual[] = {
        "64,64,160,160,1,1",    "64,256,160,160,1,1,1", "256,64,160,160,1,1",  "64,64,160,160,3,1",
        "256,128,160,160,1,1",  "128,128,160,160,3,2",  "256,512,160,160,1,2", "128,512,80,80,1,1,1",
        "512,128,80,80,1,1",    "128,128,80,80,3,1",    "256,256,80,80,3,2",   "512,1024,80,80,1,2",
        "256,1024,40,40,1,1,1", "1024,256,40,40,1,1",   "256,256,40,40,3,1",   "512,512,40,40,3,2",
        "512,2048,20,20,1,1,1", "2048,512,20,20,1,1",   "512,512,20,20,3,1",   "64,64,56,56,3,1",
        "128,128,28,28,3,1",    "256,256,14,14,3,1",    "512,512,7,7,3,1",     "512,2048,7,7,1,1,1"};
    Err err = {0};
    DType t = argc > 1 && !strcmp(argv[1], "bf16") ? DT_BF16 : DT_F32;
    int rounds = getenv("ROUNDS") ? atoi(getenv("ROUNDS")) : 20,
        n = argc > 2 ? argc - 2 : (int)(sizeof usual / sizeof *usual);
    char *const *shapes = argc > 2 ? argv + 2 : usual;
    for (int i = 0; i < n; i++) {
        long C, O, H, W, kernel, stride, more = 0;
        if (sscanf(shapes[i], "%ld,%ld,%ld,%ld,%ld,%ld,%ld", &C, &O, &H, &W, &kernel, &stride, &more) < 6) return 1;
        int64_t pad = kernel / 2, h = (H + 2 * pad - kernel) / stride + 1, w = (W + 2 * pad - kernel) / stride + 1,
                wn = O * C * kernel * kernel;
        int64_t steps[2] = {stride, stride}, ones[2] = {1, 1}, pads[2] = {pad, pad},
                ends[2] = {(h - 1) * stride + kernel - pad - H, (w - 1) * stride + kernel - pad - W};
        int L = (int)(64e6 / (double)(wn + C * H * W + O * h * w) / (double)dtype_size(t));
        L = getenv("HOT") || L < 1 ? 1 : L > MOST ? MOST : L;
        Packed *own[MOST];
        OneDnn *their[MOST];
        PackedWeights *weights = packed_weights_create(&err);
        OneDnnPool *pool = onednn_pool_create(&err);
        void *wdata[MOST], *xdata[MOST], *ydata[MOST], *bdata = filled((size_t)O, DT_F32);
        Tensor bias = tensor_of(DT_F32, 1, (int64_t[]){O}, bdata);
        double made[2] = {0, 0};
        for (int l = 0; l < L; l++) {
            wdata[l] = filled((size_t)wn, t), xdata[l] = filled((size_t)(C * H * W), t),
            ydata[l] = filled((size_t)(O * h * w), t);
            Tensor k = tensor_of(t, 4, (int64_t[]){O, C, kernel, kernel}, wdata[l]), x = last(t, C, H, W, NULL),
                   y = last(t, O, h, w, NULL);
            GemmConv d = {.x = &x,
                          .w = &k,
                          .bias = &bias,
                          .y = &y,
                          .spatial = 2,
                          .stride = steps,
                          .padding = pads,
                          .padding_end = ends,
                          .dilation = ones,
                          .groups = 1,
                          .w_constant = true,
                          .sum = more,
                          .act = GEMM_RELU};
            own[l] = packed_conv(weights, kernels(), &d, &err);
            their[l] = onednn_conv(pool, &d, &err);
            if (!own[l] || !their[l]) return printf("%s: %s\n", shapes[i], own[l] ? err.msg : "not ours"), 2;
            if (l) continue;
            double start = now();
            packed_free(own[l]);
            own[l] = packed_conv(weights, kernels(), &d, &err);
            made[0] = now() - start;
            start = now();
            onednn_free(their[l]);
            their[l] = onednn_conv(pool, &d, &err);
            made[1] = now() - start;
        }
        size_t room = packed_scratch(own[0]) > onednn_scratch(their[0]) ? packed_scratch(own[0])
                                                                        : onednn_scratch(their[0]);
        void *scratch = aligned_alloc(64, (room + 127) / 64 * 64);
        double best[2] = {1e9, 1e9};
        for (int r = 0; r < rounds; r++)
            for (int which = 0; which < 2; which++) {
                double start = now();
                for (int l = 0; l < L; l++) {
                    GemmBuffers m = {.a = xdata[l], .bias = bdata, .residual = ydata[l], .c = ydata[l]};
                    if (!more || which) m.residual = NULL;
                    if (which) onednn_run(their[l], &m, scratch, &err);
                    else packed_run(own[l], &m, scratch, &err);
                }
                double end = now();
                if (end - start < best[which]) best[which] = end - start;
            }
        double f = 2.0 * (double)wn * (double)(h * w) * L / 1e9;
        printf("%-24s ours %7.3f ms %7.1f  oneDNN %7.3f ms %7.1f  ratio %.2f  made in %.3f, %.3f ms\n", shapes[i],
               best[0] / L * 1e3, f / best[0], best[1] / L * 1e3, f / best[1], best[1] / best[0], made[0] * 1e3,
               made[1] * 1e3);
        fflush(stdout);
        for (int l = 0; l < L; l++) {
            packed_free(own[l]);
            onednn_free(their[l]);
            free(wdata[l]), free(xdata[l]), free(ydata[l]);
        }
        packed_weights_free(weights);
        onednn_pool_free(pool);
        free(bdata), free(scratch);
    }
    return 0;
}
