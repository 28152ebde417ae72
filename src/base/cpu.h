/* What this machine's CPU can do, as ISA levels in one order. Read once; QKV_CPU=ref|gen|avx2|avxvnni|avx512|
 * avx512vnni|avx512bf16|amx forces an ISA level. One that the machine lacks cannot be forced: what it usually runs is
 * taken.
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
CpuLevel cpu_level(void); /* what to use: QKV_CPU's at the first call, else the usual one */
/* What a machine of this level runs unless QKV_CPU asks for another: the highest, but for Intel's CPUs from Golden Cove
 * on (Sapphire and Emerald Rapids) whose AMX is hidden. Their vdpbf16ps, one in two cycles, makes half as many
 * multiply-adds as two FMA a cycle (bench/results/emerald-rapids.md: 88 and 179 GFLOP/s), so that bf16 is multiplied
 * as float32. A property of the CPU's kind, never timed: the bits of a run must not depend on the machine's load. */
CpuLevel cpu_usual(CpuLevel highest, bool pairs_are_slow);
/* From now on the calling thread, and the regions that it opens, compute what has the same bits on every x86 level
 * (kernel/table.c), the reference's too; off: what the level is best at. How it was before. */
bool cpu_portable(bool on);
bool cpu_is_portable(void);
const char *cpu_level_name(CpuLevel level);
int cpu_count(void); /* usable CPUs: affinity mask and cgroup quota respected, at least 1 */
#endif
