/* Peak of an ISA level's vectors: as many accumulators as hide a multiply-add's latency and fit its registers. Contract
 * in kernel/peak.h. */
#include "kernel/peak.h"
#include "kernel/gen/fused.h"
#include "kernel/variant.h"

#if defined(__AVX512F__)
enum { BYTES = 64, ACCUMULATORS = 16 };
#define BY "AVX-512"
#elif defined(__AVX2__)
enum { BYTES = 32, ACCUMULATORS = 12 };
#define BY "AVX2"
#elif defined(__aarch64__)
enum { BYTES = 16, ACCUMULATORS = 16 };
#define BY "NEON"
#else
enum { BYTES = 16, ACCUMULATORS = 12 };
#define BY "vectors of 16 bytes"
#endif
typedef float Vector __attribute__((vector_size(BYTES)));
enum { LANES = BYTES / 4 };

static double f32(int64_t rounds, float *sink)
{
    Vector a[ACCUMULATORS], most = every(0.9f), rest = every(0.2f);
    for (int i = 0; i < ACCUMULATORS; i++) a[i] = every((float)i);
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 16
        for (int i = 0; i < ACCUMULATORS; i++)
            a[i] = fused(rest, a[i], most); /* a product and a sum take twice as long */
    Vector s = {0};
    for (int i = 0; i < ACCUMULATORS; i++) s += a[i];
    *sink = 0;
    for (int i = 0; i < LANES; i++) *sink += s[i];
    return 2.0 * LANES * ACCUMULATORS * (double)rounds;
}

/* Four places at once: processors fetch ahead a little of each stream that they see. */
static float read_all(const float *x, int64_t n)
{
    const Vector *v = (const Vector *)(const void *)x;
    int64_t quarter = n / LANES / 4;
    Vector s[8] = {0};
    for (int64_t i = 0; i < quarter; i += 2)
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) s[k] += v[i + k % 2 + k / 2 * quarter];
    Vector t = {0};
    for (int k = 0; k < 8; k++) t += s[k];
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += t[i];
    return sum;
}

void KERNEL(peak_fill)(PeakKernels *k);
void KERNEL(peak_fill)(PeakKernels *k) { *k = (PeakKernels){.f32 = f32, .read = read_all, .f32_by = BY}; }
