/* What this machine's CPU can do, as ISA levels in one order. Read once; QKV_CPU=ref|gen|avx2|avxvnni|avx512|
 * avx512vnni|avx512bf16|amx forces a lower ISA level. An ISA level that the machine lacks cannot be forced: the best
 * one below it is taken.
 */
#ifndef QKV_BASE_CPU_H
#define QKV_BASE_CPU_H
#include <stdbool.h>

typedef enum CpuLevel {
    CPU_REF,        /* plain C, double accumulators */
    CPU_GEN,        /* portable fast C, baseline ISA */
    CPU_AVX2,       /* AVX2 + FMA + F16C */
    CPU_AVXVNNI,    /* the same and AVX-VNNI: CPUs without AVX-512, and some with it */
    CPU_AVX512,     /* AVX-512 F, BW, VL, DQ, not AVX-VNNI */
    CPU_AVX512VNNI, /* the same and AVX512_VNNI */
    CPU_AVX512BF16, /* the same and AVX512_BF16 */
    CPU_AMX,        /* the same and AMX tile, bf16, int8 */
    CPU_LEVELS
} CpuLevel;

CpuLevel cpu_best(void);  /* what the machine has */
bool cpu_has(CpuLevel l); /* cpu_best() or below, and, of AVX-VNNI, this machine's */
CpuLevel cpu_level(void); /* what to use: cpu_best() limited by QKV_CPU at the first call */
/* From now on the calling thread, and the regions that it opens, compute what has the same bits on every x86 level
 * (kernel/table.c), the reference's too; off: what the level is best at. How it was before. */
bool cpu_portable(bool on);
bool cpu_is_portable(void);
const char *cpu_level_name(CpuLevel level);
/* CPUs worth of time that the cgroups below the folder `root` (v2's cpu.max, v1's cpu/cpu.cfs_quota_us) grant a process
 * whose cgroups the file `own` names, as /proc/self/cgroup does: "0::/a/b" (v2), "4:cpu,cpuacct:/a/b" (v1); the least
 * on the way up. 0: no limit. */
double cpu_quota(const char *root, const char *own);
int cpu_count(void); /* usable CPUs: affinity mask and cgroup quota respected, at least 1 */
#endif
