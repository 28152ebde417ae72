/* CPU features and count. Contract in cpu.h. */
#include "base/cpu.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cgroup.h"
#include "base/version.h"

static const char *const names[CPU_LEVELS] = {"ref",    "gen",        "avx2",       "avxvnni",
                                              "avx512", "avx512vnni", "avx512bf16", "amx"};
_Static_assert(CPU_AMX == 7 && QKV_HIGHEST >= CPU_GEN && QKV_HIGHEST < CPU_LEVELS, "QKV_HIGHEST is a level");
static CpuLevel best, level;
static bool avx_vnni, slow_pairs;
static _Thread_local bool portable;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

static unsigned leaf(unsigned a, unsigned c, int which)
{
    unsigned r[4] = {0};
    return __get_cpuid_count(a, c, &r[0], &r[1], &r[2], &r[3]) ? r[which] : 0;
}

/* Linux keeps the 8 KB of tile registers from a process that has not asked (Documentation/arch/x86/xstate.rst). */
static bool tiles_allowed(void)
{
    enum { ASK = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM */
    return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
}

static bool intel(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx && c == signature_INTEL_ecx &&
           d == signature_INTEL_edx;
}

/* Asks the CPU itself: what __builtin_cpu_supports reads is not filled in by every compiler's runtime library. */
static CpuLevel detect(void)
{
    enum { A, B, C, D };
    bool avx = (leaf(1, 0, C) >> 28 & 1) &&
               (leaf(1, 0, C) >> 27 & 1); /* OSXSAVE: xgetbv can be asked what the system keeps */
    unsigned lo = 0, hi, b = leaf(7, 0, B);
    if (avx) __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    bool fma = leaf(1, 0, C) >> 12 & 1, f16c = leaf(1, 0, C) >> 29 & 1, avx2 = b >> 5 & 1, bmi2 = b >> 8 & 1;
    if ((lo & 6) != 6 || !fma || !f16c || !avx2 || !bmi2) return CPU_GEN;
    bool f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31;
    avx_vnni = leaf(7, 1, A) >> 4 & 1;
    if ((lo & 0xe6) != 0xe6 || !f || !dq || !bw || !vl) return avx_vnni ? CPU_AVXVNNI : CPU_AVX2;
    bool bf16 = leaf(7, 1, A) >> 5 & 1, vnni = leaf(7, 0, C) >> 11 & 1;
    if (!vnni) return CPU_AVX512;
    if (!bf16) return CPU_AVX512VNNI;
    slow_pairs = intel() && (leaf(7, 0, D) >> 23 & 1); /* AVX512_FP16: Golden Cove and later, not Cooper Lake */
    bool amx = (leaf(7, 0, D) >> 22 & 1) && (leaf(7, 0, D) >> 24 & 1) && (leaf(7, 0, D) >> 25 & 1);
    return amx && (lo >> 17 & 3) == 3 && tiles_allowed() ? CPU_AMX : CPU_AVX512BF16;
}
#else
static CpuLevel detect(void) { return CPU_GEN; }
#endif

static void look(void)
{
    best = detect(); /* a build may leave out higher levels (-Dlevel) */
    if ((int)best > QKV_HIGHEST) best = (CpuLevel)QKV_HIGHEST;
    level = cpu_usual(best, slow_pairs);
    const char *want = getenv("QKV_CPU");
    for (int i = 0; want && i < CPU_LEVELS; i++)
        if (!strcmp(want, names[i]) && i <= (int)best) level = (CpuLevel)i;
    if (level == CPU_AVXVNNI && !avx_vnni) level = CPU_AVX2;
}

CpuLevel cpu_best(void)
{
    pthread_once(&once, look);
    return best;
}

CpuLevel cpu_usual(CpuLevel highest, bool pairs_are_slow)
{
    return highest == CPU_AVX512BF16 && pairs_are_slow ? CPU_AVX512VNNI : highest;
}

bool cpu_has(CpuLevel l) { return l <= cpu_best() && (l != CPU_AVXVNNI || avx_vnni); }

CpuLevel cpu_level(void)
{
    pthread_once(&once, look);
    return portable && level == CPU_REF ? CPU_GEN : level;
}

bool cpu_portable(bool on)
{
    bool before = portable;
    portable = on;
    return before;
}

bool cpu_is_portable(void) { return portable; }

const char *cpu_level_name(CpuLevel l) { return l < CPU_LEVELS ? names[l] : "unknown"; }

/* ------------------------------------------------------------------ how many */

int cpu_count(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
#if defined(__linux__)
    cpu_set_t set; /* above 1024 CPUs it is too small */
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
#endif
    double quota = cgroup_cpus(CGROUP_ROOT, CGROUP_OWN);
    if (quota > 0 && quota < (double)n) n = (long)(quota + 0.999); /* a fraction of a CPU counts as one */
    return n > 0 ? (int)n : 1;
}
