/* Our matrix products and oneDNN's, side by side in one process, with the machine's multiply-add peak of the same run.
 * Needs a build with oneDNN (meson setup build-dnnl -Donednn=enabled).
 *
 *     cc -O3 -fopenmp -std=gnu17 -Isrc -Iinclude -D_GNU_SOURCE bench/products.c build-dnnl/libqkv_plain.a -ldnnl -lz
 *         -lminizip -lm -o /tmp/products
 *     OMP_NUM_THREADS=1 /tmp/products f32 197x768x3072 128x768x768 ...          M x K x N
 *     OMP_NUM_THREADS=1 /tmp/products bf16
 *
 * Weights are cold as in a model: each shape has as many weights as fill 160 MB (32 at most), multiplied in turn.
 * GFLOP/s of the best round.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernel/gemm_impl.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* f32 multiply-adds of one core at this ISA level, GFLOP/s. */
static double peak_once(void)
{
    enum { TURNS = 20000 };
    float sink;
    double t = now(), operations = kernels()->peak.f32(TURNS, &sink);
    return operations / (now() - t) / 1e9;
}

static void *filled(size_t n, DType t)
{
    void *p = aligned_alloc(64, (n * 4 + 63) / 64 * 64);
    for (size_t i = 0; i < n; i++) store_f64(t, (char *)p + i * dtype_size(t), (double)(i * 7919 % 31) / 31 - 0.5);
    return p;
}

int main(int argc, char **argv)
{
    static char *const usual[] = {"197x768x2304",   "197x768x768",  "197x768x3072", "197x3072x768", "128x768x768",
                                  "128x768x3072",   "128x3072x768", "512x768x3072", "512x3072x768", "1024x1024x4096",
                                  "1024x4096x1024", "3136x96x288",  "784x192x768",  "196x1536x384", "49x768x3072",
                                  "77x512x2048",    "12x384x1536",  "1x768x3072",   "1x2048x5632"};
    Err err = {0};
    DType t = argc > 1 && !strcmp(argv[1], "bf16") ? DT_BF16 : DT_F32;
    int act = getenv("ACT") ? atoi(getenv("ACT")) : 0, rounds = getenv("ROUNDS") ? atoi(getenv("ROUNDS")) : 20,
        n = argc > 2 ? argc - 2 : (int)(sizeof usual / sizeof *usual);
    char *const *shapes = argc > 2 ? argv + 2 : usual;
    for (int i = 0; i < n; i++) {
        long M, K, N;
        if (sscanf(shapes[i], "%ldx%ldx%ld", &M, &K, &N) != 3) return 1;
        int L = (int)(160e6 / ((double)K * (double)N * (double)dtype_size(t)));
        L = L > 32 ? 32 : L < 1 ? 1 : L;
        Packed *own[32];
        OneDnn *their[32];
        PackedWeights *weights = packed_weights_create(&err);
        OneDnnPool *pool = onednn_pool_create(&err);
        void *wdata[32], *adata = filled((size_t)(M * K), t), *cdata = filled((size_t)(M * N), t),
                         *bdata = filled((size_t)N, DT_F32);
        Tensor a = tensor_of(t, 2, (int64_t[]){M, K}, adata), c = tensor_of(t, 2, (int64_t[]){M, N}, cdata),
               bias = tensor_of(DT_F32, 1, (int64_t[]){N}, bdata);
        for (int l = 0; l < L; l++) {
            wdata[l] = filled((size_t)(K * N), t);
            Tensor b = tensor_of(t, 2, (int64_t[]){K, N}, wdata[l]);
            b.stride[0] = 1;
            b.stride[1] = K;
            GemmMatmul d = {.a = &a,
                            .b = &b,
                            .c = &c,
                            .bias = &bias,
                            .b_constant = true,
                            .act = (GemmAct)act,
                            .least_rows = M};
            own[l] = packed_matmul(weights, kernels(), &d, &err);
            their[l] = onednn_matmul(pool, &d, &err);
            if (!own[l] || !their[l]) return 2;
        }
        size_t room = packed_scratch(own[0]) > onednn_scratch(their[0]) ? packed_scratch(own[0])
                                                                        : onednn_scratch(their[0]);
        void *scratch = aligned_alloc(64, (room + 127) / 64 * 64);
        GemmBuffers m = {.a = adata, .bias = bdata, .c = cdata};
        double best[2] = {1e9, 1e9}, peak = 0;
        for (int r = 0; r < rounds; r++) {
            double p = peak_once(), start = now();
            for (int l = 0; l < L; l++) m.b = wdata[l], packed_run(own[l], &m, scratch, &err);
            double mid = now();
            for (int l = 0; l < L; l++) onednn_run(their[l], &m, scratch, &err);
            double end = now();
            if (p > peak) peak = p;
            if (mid - start < best[0]) best[0] = mid - start;
            if (end - mid < best[1]) best[1] = end - mid;
        }
        double f = 2.0 * (double)M * (double)K * (double)N * L / 1e9;
        printf("%-16s ours %7.1f  oneDNN %7.1f  ratio %.2f  f32 peak of a core %.0f: ours %.0f %%\n", shapes[i],
               f / best[0], f / best[1], best[1] / best[0], peak, 100 * f / best[0] / peak);
        fflush(stdout);
        for (int l = 0; l < L; l++) {
            packed_free(own[l]);
            onednn_free(their[l]);
            free(wdata[l]);
        }
        packed_weights_free(weights);
        onednn_pool_free(pool);
        free(adata), free(cdata), free(bdata), free(scratch);
    }
    return 0;
}
