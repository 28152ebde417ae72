/* Row kernels, portable; compiled once per ISA level. Contract in kernel/reduce.h. */
#include "kernel/reduce.h"
#if defined(__AVX512F__)
#include <immintrin.h>
#endif
#include "base/elementary.h"
#include "kernel/gen/vmath.h"
#include "kernel/variant.h"

#define T float
#define ACC float
#define NAME(x) x##_f32
#define EXP vm_exp_down /* of differences to the largest */
#include "kernel/gen/reduce_tmpl.h"

#if defined(__AVX512F__)
/* The template's norm of a few rows of whole vectors, up to one of its blocks, bit for bit: its sixteen partial sums
 * are a register, its tree is the instruction set's, and no row waits for another. */
enum { TOGETHER = 4, BLOCK = 1024 };

static inline double added(__m512 part) { return (double)(0.0f + _mm512_reduce_add_ps(part)); }

static void norm_few(float *out, const float *x, const float *w, const float *b, int64_t n, double eps, float *mean,
                     float *rstd)
{
    __m512 part[TOGETHER], m[TOGETHER], s[TOGETHER];
    for (int r = 0; r < TOGETHER; r++) part[r] = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += 16)
        for (int r = 0; r < TOGETHER; r++) part[r] = _mm512_add_ps(part[r], _mm512_loadu_ps(x + r * n + i));
    for (int r = 0; r < TOGETHER; r++) {
        mean[r] = (float)(added(part[r]) / (double)n);
        m[r] = _mm512_set1_ps(mean[r]);
        part[r] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < n; i += 16)
        for (int r = 0; r < TOGETHER; r++) {
            const __m512 d = _mm512_sub_ps(_mm512_loadu_ps(x + r * n + i), m[r]);
            part[r] = _mm512_add_ps(part[r], _mm512_mul_ps(d, d));
        }
    for (int r = 0; r < TOGETHER; r++) {
        rstd[r] = (float)(1 / sqrt(added(part[r]) / (double)n + eps));
        s[r] = _mm512_set1_ps(rstd[r]);
    }
    for (int64_t i = 0; i < n; i += 16) {
        const __m512 by = _mm512_loadu_ps(w + i), more = _mm512_loadu_ps(b + i);
        for (int r = 0; r < TOGETHER; r++) {
            const __m512 d = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + r * n + i), m[r]), s[r]);
            _mm512_storeu_ps(out + r * n + i, _mm512_add_ps(_mm512_mul_ps(d, by), more));
        }
    }
}

static void norm_whole(float *out, const float *x, const float *w, const float *b, int64_t rows, int64_t n, double eps,
                       bool rms, float *mean, float *rstd, int threads)
{
    if (rms || !w || !b || n % 16 || n > BLOCK) {
        norm_f32(out, x, w, b, rows, n, eps, rms, mean, rstd, threads);
        return;
    }
#pragma omp parallel for num_threads(threads) if (rows * n > 1 << 14)
    for (int64_t r = 0; r < rows; r += TOGETHER) {
        float room[2][TOGETHER], *to_mean = mean ? mean + r : room[0], *to_rstd = rstd ? rstd + r : room[1];
        if (rows - r < TOGETHER)
            norm_rows_f32(out + r * n, x + r * n, w, b, rows - r, n, eps, false, to_mean, to_rstd);
        else norm_few(out + r * n, x + r * n, w, b, n, eps, to_mean, to_rstd);
    }
}
#endif

void KERNEL(reduce_fill)(ReduceKernels *k);

void KERNEL(reduce_fill)(ReduceKernels *k)
{
    k->softmax_f32 = softmax_f32;
#if defined(__AVX512F__)
    k->norm_f32 = norm_whole;
#else
    k->norm_f32 = norm_f32;
#endif
    k->sum_f32 = sum_f32;
    k->extreme_f32 = extreme_f32;
    k->columns_f32 = columns_f32;
    k->norm_back_f32 = norm_back_f32;
}
