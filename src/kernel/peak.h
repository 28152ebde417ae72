/* What one core can do at best: multiply-adds on registers, and reading memory. For shares of peak (src/run/peak.h),
 * never for results.
 *
 *     float sink;
 *     double operations = kernels()->peak.f32(100000, &sink);       so many rounds; time it
 *
 * f32, bf16 and i8 make as many independent multiply-adds a round as the ISA level's latency needs to be hidden, and
 * say how many operations (two a multiply-add) they made; *sink takes a number that depends on all, so that nothing is
 * left out. bf16 (products of bf16 summed in f32) and i8 (of bytes, summed in 32 bits) are NULL where the ISA level has
 * no instruction for it. read sums n floats, 64-byte aligned, n a multiple of 256.
 */
#ifndef QKV_KERNEL_PEAK_H
#define QKV_KERNEL_PEAK_H
#include <stdint.h>

typedef struct PeakKernels {
    double (*f32)(int64_t rounds, float *sink);
    double (*bf16)(int64_t rounds, float *sink);
    double (*i8)(int64_t rounds, float *sink);
    float (*read)(const float *x, int64_t n);
    const char *f32_by, *bf16_by; /* "AVX-512", "AMX" */
} PeakKernels;
#endif
