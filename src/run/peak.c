/* Timing the peak kernels. Contract in peak.h. */
#include "run/peak.h"
#include <math.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "kernel/kernel.h"
#include "team/team.h"

enum { TRIES = 8, READ_BYTES = 64 << 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef double Loop(int64_t rounds, float *sink);

/* Rounds that take one thread about a millisecond. */
static int64_t rounds_of(Loop *loop)
{
    float sink;
    for (int64_t n = 1000;; n *= 4) {
        double t = now();
        loop(n, &sink);
        t = now() - t;
        if (t > 1e-4 || n > 1 << 28) return (int64_t)((double)n * 1e-3 / (t > 1e-9 ? t : 1e-9)) + 1;
    }
}

/* GFLOP/s of all threads: their operations over the time from the first one's start to the last one's end. */
static double arithmetic(Loop *loop, int threads)
{
    int64_t rounds = rounds_of(loop);
    double best = 0;
    for (int i = 0; i < TRIES; i++) {
        double operations = 0, first = INFINITY, last = 0;
#pragma omp parallel num_threads(threads) reduction(+ : operations) reduction(min : first) reduction(max : last)
        {
            float sink;
            first = now();
            operations += loop(rounds, &sink);
            last = now();
        }
        if (last > first && operations / (last - first) > best) best = operations / (last - first);
    }
    return best * 1e-9;
}

static double reading(int threads, Err *err)
{
    const PeakKernels *k = &kernels()->peak;
    size_t bytes = (size_t)threads * READ_BYTES;
    float *x = mem_aligned(64, bytes);
    if (!x) {
        fail(err, E_LIMIT, "out of memory: %zu bytes, by which the speed of reading is measured", bytes);
        return -1;
    }
    double best = 0;
    volatile float total = 0; /* wanted, so that the loop is not left out */
#pragma omp parallel for num_threads(threads)
    for (int i = 0; i < threads; i++) memset((char *)x + (size_t)i * READ_BYTES, 0, READ_BYTES);
    for (int i = 0; i < TRIES / 2; i++) {
        double read = 0, first = INFINITY, last = 0;
        float sum = 0;
#pragma omp parallel num_threads(threads) reduction(min : first) reduction(max : last) reduction(+ : read, sum)
        {
            first = now();
            sum += k->read(x + (size_t)team_part() * (READ_BYTES / sizeof *x), READ_BYTES / sizeof *x);
            read += READ_BYTES;
            last = now();
        }
        total = total + sum;
        if (last > first && read / (last - first) > best) best = read / (last - first);
    }
    mem_free(x);
    return best * 1e-9;
}

/* Microseconds from opening a region to its end, of the quickest that had all threads; 0 where none had. */
static double region(int threads)
{
    double best = INFINITY;
    for (int i = 0; i < 64 * TRIES; i++) {
        int parts = 0;
        double t = now();
#pragma omp parallel num_threads(threads)
        if (team_part() == 0) parts = team_parts();
        t = now() - t;
        if (parts == threads) best = fmin(best, t);
    }
    return best < INFINITY ? best * 1e6 : 0;
}

bool peak_measure(int threads, Peak *out, Err *err)
{
    const PeakKernels *k = &kernels()->peak;
    *out = (Peak){.f32_by = k->f32_by, .bf16_by = k->bf16 ? k->bf16_by : k->f32_by};
    out->f32_gflops = arithmetic(k->f32, threads);
    out->bf16_gflops = k->bf16 ? arithmetic(k->bf16, threads) : out->f32_gflops;
    out->region_us = region(threads);
    out->read_gbs = reading(threads, err);
    return out->read_gbs >= 0;
}
