/* Hides instruction sets of this CPU from a process, so that libraries that ask the CPU itself, and have no setting,
 * run as on an older one. x86-64 Linux on CPUs that can refuse `cpuid` (cpuid_fault in /proc/cpuinfo): each such
 * instruction becomes a signal here, and is answered without the bits that the level lacks.
 *
 *     cc -O2 -fPIC -shared bench/hold.c -o hold.so
 *     HOLD=avx2 LD_PRELOAD=$PWD/hold.so python3 ...      avx2, avxvnni, avx512, avx512vnni or avx512bf16
 *
 * What the C library chose before (copies of memory) stays. A process that cannot be held ends with 2.
 */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { AX, BX, CX, DX };
enum { AVX2, AVXVNNI, AVX512, AVX512VNNI, AVX512BF16, LEVELS };
static const char *const names[LEVELS] = {"avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16"};

/* Bits of leaf 7, and the levels that have them: [from, to]. Intel's manual of instruction set extensions, 1.6. */
static const struct {
    unsigned sub, reg, bits;
    int from, to;
} features[] = {
    {0, BX, 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31, AVX512, LEVELS}, /* F, DQ, CD, BW, VL */
    {0, BX, 1u << 21, AVX512VNNI, LEVELS},                                         /* IFMA */
    {0, CX, 1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14, AVX512VNNI, LEVELS}, /* VBMI, VBMI2, VNNI, BITALG,
                                                                                        VPOPCNTDQ */
    {0, DX, 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25, LEVELS, LEVELS},  /* VP2INTERSECT, AMX-BF16, FP16,
                                                                                      AMX-TILE, AMX-INT8 */
    {1, AX, 1u << 4, AVXVNNI, AVXVNNI},                                            /* AVX-VNNI */
    {1, AX, 1u << 5, AVX512BF16, LEVELS},                                          /* AVX512-BF16 */
    {1, AX, 1u << 21 | 1u << 23, LEVELS, LEVELS},                                  /* AMX-FP16, AVX-IFMA */
    {1, DX, 1u << 4 | 1u << 5 | 1u << 8 | 1u << 10 | 1u << 19, LEVELS, LEVELS}, /* AVX-VNNI-INT8, AVX-NE-CONVERT,
                                                                                   AMX-COMPLEX, AVX-VNNI-INT16, AVX10 */
};
static int level;

static long allow_cpuid(long on) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, on); }

static void answer(int signal, siginfo_t *info, void *context)
{
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    unsigned leaf = (unsigned)g[REG_RAX], sub = (unsigned)g[REG_RCX], r[4];
    (void)info;
    if (memcmp((const void *)g[REG_RIP], "\x0f\xa2", 2)) { /* another fault: it happens again, and ends the process */
        struct sigaction usual = {.sa_handler = SIG_DFL};
        sigaction(signal, &usual, NULL);
        return;
    }
    allow_cpuid(1);
    __cpuid_count(leaf, sub, r[AX], r[BX], r[CX], r[DX]);
    allow_cpuid(0);
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (leaf == 7 && sub == features[i].sub && (level < features[i].from || level > features[i].to))
            r[features[i].reg] &= ~features[i].bits;
    g[REG_RAX] = r[AX], g[REG_RBX] = r[BX], g[REG_RCX] = r[CX], g[REG_RDX] = r[DX];
    g[REG_RIP] += 2;
}

__attribute__((constructor)) static void hold(void)
{
    static const char cannot[] = "hold.so: HOLD names no level, or this CPU cannot refuse cpuid\n";
    const char *wanted = getenv("HOLD");
    struct sigaction a = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
    for (level = 0; wanted && level < LEVELS && strcmp(wanted, names[level]); level++) {
    }
    if (wanted && level < LEVELS && !sigaction(SIGSEGV, &a, NULL) && !allow_cpuid(0)) return;
    if (write(2, cannot, sizeof cannot - 1) < 0) _exit(3);
    _exit(2);
}
