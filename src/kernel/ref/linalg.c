/* Reference rotary embedding and matrix products: plain loops, double accumulators. Contract in kernel/linalg.h. */
#include "kernel/linalg.h"
#include <math.h>

static double angle(const Rotary *r, const void *table, int64_t row, bool one, int64_t i)
{
    int64_t k = !one ? i : r->interleaved ? i / 2 : i % (r->D / 2);
    return load_f64(r->t, (const char *)table + (size_t)(row + k) * dtype_size(r->t));
}

static void rotary(const Rotary *r, int threads)
{
    int64_t rows = 1;
    size_t size = dtype_size(r->x_t);
    (void)threads;
    for (int i = 0; i < r->rank; i++) rows *= r->shape[i];
    for (int64_t n = 0; n < rows; n++) {
        int64_t left = n, x = 0, c = 0, s = 0, y = 0;
        for (int k = r->rank - 1; k >= 0; left /= r->shape[k--]) {
            x += left % r->shape[k] * r->xs[k];
            c += left % r->shape[k] * r->cs[k];
            s += left % r->shape[k] * r->ss[k];
            y += left % r->shape[k] * r->ys[k];
        }
        for (int64_t i = 0; i < r->D; i++) {
            bool first = r->interleaved ? i % 2 == 0 : i < r->D / 2;
            int64_t other = r->interleaved ? i + (first ? 1 : -1) : i + (first ? r->D / 2 : -r->D / 2);
            double a = load_f64(r->x_t, (const char *)r->x + (size_t)(x + i) * size),
                   b = load_f64(r->x_t, (const char *)r->x + (size_t)(x + other) * size);
            double turned = b * angle(r, r->sin, s, r->one_sin, i);
            store_f64(r->out_t, (char *)r->out + (size_t)(y + i) * dtype_size(r->out_t),
                      a * angle(r, r->cos, c, r->one_cos, i) + (first ? -turned : turned));
        }
    }
}

void linalg_fill_ref(LinalgKernels *k);

static void matmul_f32(float *c, const float *a, const float *b, int64_t M, int64_t N, int64_t K, int64_t ars,
                       int64_t acs, int64_t brs, int64_t bcs)
{
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double s = 0;
            for (int64_t k = 0; k < K; k++) s += (double)a[i * ars + k * acs] * (double)b[k * brs + j * bcs];
            c[i * N + j] = (float)s;
        }
}

static void matmul_f64(double *c, const double *a, const double *b, int64_t M, int64_t N, int64_t K, int64_t ars,
                       int64_t acs, int64_t brs, int64_t bcs)
{
    for (int64_t i = 0; i < M; i++) {
        for (int64_t j = 0; j < N; j++) c[i * N + j] = 0;
        for (int64_t k = 0; k < K; k++)
            for (int64_t j = 0; j < N; j++) c[i * N + j] += a[i * ars + k * acs] * b[k * brs + j * bcs];
    }
}

static void matmul_i64(int64_t *c, const int64_t *a, const int64_t *b, int64_t M, int64_t N, int64_t K, int64_t ars,
                       int64_t acs, int64_t brs, int64_t bcs)
{
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            uint64_t s = 0; /* wraps as PyTorch's does */
            for (int64_t k = 0; k < K; k++) s += (uint64_t)a[i * ars + k * acs] * (uint64_t)b[k * brs + j * bcs];
            c[i * N + j] = (int64_t)s;
        }
}

void linalg_fill_ref(LinalgKernels *k) { *k = (LinalgKernels){matmul_f32, matmul_f64, matmul_i64, rotary, rotary}; }
