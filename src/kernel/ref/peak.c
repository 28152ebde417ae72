/* The reference ISA level's peak: one number at a time. Contract in kernel/peak.h. */
#include "kernel/peak.h"

static double f32(int64_t rounds, float *sink)
{
    double a = 1, b = 1, c = 1, d = 1;
    for (int64_t i = 0; i < rounds; i++) {
        a = a * 0.5 + 1;
        b = b * 0.5 + 1;
        c = c * 0.5 + 1;
        d = d * 0.5 + 1;
    }
    *sink = (float)(a + b + c + d);
    return 8 * (double)rounds;
}

static float read_all(const float *x, int64_t n)
{
    float s = 0;
    for (int64_t i = 0; i < n; i++) s += x[i];
    return s;
}

void peak_fill_ref(PeakKernels *k);
void peak_fill_ref(PeakKernels *k) { *k = (PeakKernels){.f32 = f32, .read = read_all, .f32_by = "scalar double"}; }
