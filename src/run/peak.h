/* The machine's peak, measured now: what shares of peak are shares of.
 *
 *     Peak p;
 *     peak_measure(2, &p, err);            about 60 ms
 *     p.f32_gflops                         of two cores together
 *
 * Best of several short loops (kernel/peak.h) on the ISA level in use. A virtual machine's peak moves with its
 * neighbours: measure near what is compared.
 */
#ifndef QKV_RUN_PEAK_H
#define QKV_RUN_PEAK_H
#include "base/err.h"

typedef struct Peak {
    double f32_gflops, bf16_gflops; /* bf16: f32's where the ISA level has no instruction for it */
    double read_gbs;                /* reading 64 MiB a thread, again and again */
    const char *f32_by, *bf16_by;
    double region_us; /* a parallel loop that has nothing to do */
} Peak;

bool peak_measure(int threads, Peak *out, Err *err);
#endif
