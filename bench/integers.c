/* Our products of bytes beside those of float32 and bf16 of the same shapes, interleaved in one process, with the
 * machine's peaks of the same run.
 *
 *     cc -O3 -fopenmp -std=gnu17 -Isrc -Iinclude -Ibuild/src -D_GNU_SOURCE bench/integers.c build/libqkv_plain.a
 *         -lz -lminizip -lm -o /tmp/integers
 *     OMP_NUM_THREADS=1 /tmp/integers 197x768x3072 128x768x768 ...          M x K x N
 *
 * Weights are cold as in a model: each shape has as many weights as fill 160 MB (32 at most), multiplied in turn.
 * Operations (two a multiply-add) a second of the best round, in 10^9; i8 with a scale a row and a column, and a bias.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernel/gemm_impl.h"
#include "kernel/gemm_integer.h"
#include "team/team.h"

enum { MOST = 32, KINDS = 3 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *filled(size_t n, DType t)
{
    void *p = aligned_alloc(64, (n * 4 + 63) / 64 * 64);
    for (size_t i = 0; i < n; i++) {
        if (dtype_is_float(t)) store_f64(t, (char *)p + i * dtype_size(t), (double)(i * 7919 % 31) / 31 - 0.5);
        else ((int8_t *)p)[i] = (int8_t)(i * 7919 % 251);
    }
    return p;
}

static double peak_of(double (*loop)(int64_t rounds, float *sink))
{
    float sink;
    double start = now();
    if (!loop) return 0;
    double operations = loop(20000, &sink);
    return operations / (now() - start) / 1e9;
}

/* What one product of floats needs. */
typedef struct Floats {
    Packed *g[MOST];
    void *w[MOST], *a, *scratch;
    GemmBuffers m;
} Floats;

static void floats_begin(Floats *f, DType t, long M, long K, long N, int L, void *c, void *bias)
{
    Err err = {0};
    PackedWeights *weights = packed_weights_create(&err);
    f->a = filled((size_t)(M * K), t);
    Tensor a = tensor_of(t, 2, (int64_t[]){M, K}, f->a), out = tensor_of(t, 2, (int64_t[]){M, N}, c),
           more = tensor_of(DT_F32, 1, (int64_t[]){N}, bias);
    for (int l = 0; l < L; l++) {
        f->w[l] = filled((size_t)(K * N), t);
        Tensor b = tensor_of(t, 2, (int64_t[]){K, N}, f->w[l]);
        b.stride[0] = 1;
        b.stride[1] = K;
        f->g[l] = packed_matmul(weights, kernels(),
                                &(GemmMatmul){.a = &a, .b = &b, .c = &out, .bias = &more, .b_constant = true}, &err);
        if (!f->g[l]) exit(2);
    }
    f->scratch = aligned_alloc(64, (packed_scratch(f->g[0]) + 127) / 64 * 64);
    f->m = (GemmBuffers){.a = f->a, .bias = bias, .c = c};
}

int main(int argc, char **argv)
{
    static char *const usual[] = {"197x768x2304", "197x768x768",  "197x768x3072", "197x3072x768", "128x768x768",
                                  "128x768x3072", "128x3072x768", "512x768x3072", "3136x96x288",  "784x192x768",
                                  "196x1536x384", "49x768x3072",  "7x384x1536",   "1x768x3072"};
    int rounds = getenv("ROUNDS") ? atoi(getenv("ROUNDS")) : 20,
        n = argc > 1 ? argc - 1 : (int)(sizeof usual / sizeof *usual), threads = team_width();
    const IntegerKernels *k = &kernels()->integer;
    for (int i = 0; i < n; i++) {
        long M, K, N;
        Err err = {0};
        if (sscanf((argc > 1 ? argv + 1 : usual)[i], "%ldx%ldx%ld", &M, &K, &N) != 3) return 1;
        int L = (int)(160e6 / ((double)K * (double)N * 4));
        L = L > MOST ? MOST : L < 1 ? 1 : L;
        Floats f[2];
        void *c = filled((size_t)(M * N), DT_F32), *bias = filled((size_t)N, DT_F32), *packed[MOST];
        floats_begin(&f[0], DT_F32, M, K, N, L, c, bias);
        floats_begin(&f[1], DT_BF16, M, K, N, L, c, bias);
        float *scale_a = filled((size_t)M, DT_F32), *scale_b = filled((size_t)N, DT_F32);
        void *a = filled((size_t)(M * K), DT_I8), *w = filled((size_t)(K * N), DT_I8);
        for (int l = 0; l < L; l++) {
            packed[l] = aligned_alloc(64, k->b_bytes(K, N));
            k->pack_b(packed[l], &(IntegerIn){w, DT_I8, 0, 1, K}, K, N);
        }
        IntegerMatmul m = {.M = M,
                           .N = N,
                           .K = K,
                           .a = {a, DT_I8, 0, K, 1},
                           .scale_a = scale_a,
                           .scale_b = scale_b,
                           .step_a = 1,
                           .step_b = 1,
                           .out = {.c = c, .c_type = DT_F32, .c_step = N, .bias = bias, .bias_type = DT_F32}};
        void *scratch = aligned_alloc(64, (integer_scratch(&m, threads) + 63) / 64 * 64);
        double best[KINDS] = {1e9, 1e9, 1e9}, peak[KINDS] = {0};
        for (int r = 0; r < rounds; r++)
            for (int kind = 0; kind < KINDS; kind++) {
                const PeakKernels *by = &kernels()->peak;
                double p = peak_of(kind == 0 ? by->f32 : kind == 1 ? by->bf16 : by->i8), start = now();
                for (int l = 0; l < L; l++) {
                    m.b = packed[l];
                    if (kind < 2) packed_run(f[kind].g[l], &f[kind].m, f[kind].scratch, &err);
                    else integer_matmul(&m, scratch, threads);
                }
                double took = now() - start;
                best[kind] = took < best[kind] ? took : best[kind];
                peak[kind] = p > peak[kind] ? p : peak[kind];
            }
        double ops = 2.0 * (double)M * (double)K * (double)N * L / 1e9;
        printf("%-14s", (argc > 1 ? argv + 1 : usual)[i]);
        for (int kind = 0; kind < KINDS; kind++)
            printf("  %s %6.0f of %5.0f (%3.0f %%)",
                   kind == 0   ? "f32"
                   : kind == 1 ? "bf16"
                               : "i8",
                   ops / best[kind], peak[kind] * threads,
                   peak[kind] > 0 ? 100 * ops / best[kind] / peak[kind] / threads : 0);
        printf("  i8 %.2f x f32, %.2f x bf16\n", best[0] / best[2], best[1] / best[2]);
        fflush(stdout);
        for (int l = 0; l < L; l++) free(packed[l]), free(f[0].w[l]), free(f[1].w[l]);
        free(a), free(w), free(c), free(bias), free(scale_a), free(scale_b), free(scratch);
    }
    return 0;
}
