/* CPU features and count. Contract in cpu.h. */
#include "base/cpu.h"
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[CPU_LEVELS] = {"ref", "gen", "avx2", "avx512", "avx512bf16", "amx"};
static CpuLevel best, level;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
#include <cpuid.h>

static unsigned leaf(unsigned a, unsigned c, int which)
{
    unsigned r[4] = {0};
    return __get_cpuid_count(a, c, &r[0], &r[1], &r[2], &r[3]) ? r[which] : 0;
}

static CpuLevel detect(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CPU_GEN;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq"))
        return CPU_AVX2;
    bool bf16 = (leaf(7, 1, 0) >> 5 & 1) != 0, vnni = __builtin_cpu_supports("avx512vnni") != 0;
    if (!bf16 || !vnni) return CPU_AVX512;
    bool amx = (leaf(7, 0, 3) >> 22 & 1) && (leaf(7, 0, 3) >> 24 & 1) && (leaf(7, 0, 3) >> 25 & 1);
    unsigned lo, hi;
    __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return amx && (lo >> 17 & 3) == 3 ? CPU_AMX : CPU_AVX512BF16;
}
#else
static CpuLevel detect(void) { return CPU_GEN; }
#endif

static void look(void)
{
    best = level = detect();
    const char *want = getenv("QKV_CPU");
    for (int i = 0; want && i < CPU_LEVELS; i++)
        if (!strcmp(want, names[i]) && i < (int)best) level = (CpuLevel)i;
}

CpuLevel cpu_best(void)
{
    pthread_once(&once, look);
    return best;
}

CpuLevel cpu_level(void)
{
    pthread_once(&once, look);
    return level;
}

const char *cpu_level_name(CpuLevel l) { return l < CPU_LEVELS ? names[l] : "unknown"; }

/* CPUs worth of time that the cgroup grants, rounded up; 0 when it sets no limit. */
static int cgroup_quota(void)
{
    double quota = 0, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (f) {
        if (fscanf(f, "%lf %lf", &quota, &period) != 2) quota = 0;
        fclose(f);
    } else if ((f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r"))) {
        if (fscanf(f, "%lf", &quota) != 1) quota = 0;
        fclose(f);
        f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "r");
        if (f) {
            if (fscanf(f, "%lf", &period) != 1) period = 0;
            fclose(f);
        }
    }
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

int cpu_count(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1, quota = cgroup_quota();
    if (quota > 0 && quota < n) n = quota;
    return n > 0 ? n : 1;
}
