/* Hides instruction sets of this CPU from a process, so that libraries that ask the CPU itself, and have no setting,
 * run as on an older one. x86-64 Linux: each `cpuid` of the libraries that HOLD_SITES names becomes an invalid
 * instruction as its library is loaded, before anything in it runs, and is answered here without the bits that the
 * level lacks. bench/hold.py finds the sites, builds this and sets what it wants:
 *
 *     HOLD=avx2 HOLD_SITES=/tmp/sites LD_AUDIT=/tmp/hold.so python3 ...
 *                                                 avx2, avxvnni, avx512, avx512vnni or avx512bf16
 *
 * A line of HOLD_SITES: an offset in a file, hexadecimal, and the file's real path. What the C library chose before
 * (copies of memory) stays. A process that cannot be held ends with 2.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

static const char cpuid[2] = {0x0f, (char)0xa2}, invalid[2] = {0x0f, 0x0b}; /* ud2 */

static void end(const char *why)
{
    if (write(2, why, strlen(why)) < 0) _exit(3);
    _exit(2);
}

static void answer(int signal, siginfo_t *info, void *context)
{
    greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
    unsigned leaf = (unsigned)g[REG_RAX], sub = (unsigned)g[REG_RCX], r[4];
    (void)info;
    if (memcmp((const void *)g[REG_RIP], invalid, 2)) { /* another one: it happens again, and ends the process */
        struct sigaction usual = {.sa_handler = SIG_DFL};
        sigaction(signal, &usual, NULL);
        return;
    }
    __cpuid_count(leaf, sub, r[AX], r[BX], r[CX], r[DX]);
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (leaf == 7 && sub == features[i].sub && (level < features[i].from || level > features[i].to))
            r[features[i].reg] &= ~features[i].bits;
    g[REG_RAX] = r[AX], g[REG_RBX] = r[BX], g[REG_RCX] = r[CX], g[REG_RDX] = r[DX];
    g[REG_RIP] += 2;
}

/* The byte at `offset` of the file, where it is loaded; NULL: it is not. */
static char *loaded(const struct link_map *map, unsigned long offset)
{
    const ElfW(Ehdr) *head = (const void *)map->l_addr; /* libraries begin at 0 */
    const ElfW(Phdr) *part = (const void *)(map->l_addr + head->e_phoff);
    for (int i = 0; i < head->e_phnum; i++)
        if (part[i].p_type == PT_LOAD && offset >= part[i].p_offset && offset < part[i].p_offset + part[i].p_filesz)
            return (char *)map->l_addr + part[i].p_vaddr + (offset - part[i].p_offset);
    return NULL;
}

static void hide(const struct link_map *map, unsigned long offset)
{
    char *at = loaded(map, offset);
    if (!at || memcmp(at, cpuid, 2)) end("hold.so: HOLD_SITES is of another library\n");
    char *page = (char *)((size_t)at & ~(size_t)4095);
    size_t bytes = (size_t)(at + 2 - page);
    if (mprotect(page, bytes, PROT_READ | PROT_WRITE)) end("hold.so: cannot write to a library\n");
    memcpy(at, invalid, 2);
    mprotect(page, bytes, PROT_READ | PROT_EXEC);
}

unsigned la_version(unsigned version)
{
    const char *wanted = getenv("HOLD");
    struct sigaction a = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
    for (level = 0; wanted && level < LEVELS && strcmp(wanted, names[level]); level++) {
    }
    if (!wanted || level == LEVELS || sigaction(SIGILL, &a, NULL)) end("hold.so: HOLD names no level\n");
    return version;
}

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    char path[PATH_MAX], line[PATH_MAX + 32];
    const char *list = getenv("HOLD_SITES");
    FILE *f = list && realpath(map->l_name, path) ? fopen(list, "r") : NULL;
    (void)space, (void)cookie;
    while (f && fgets(line, sizeof line, f)) {
        char *name;
        unsigned long offset = strtoul(line, &name, 16);
        name[strcspn(name, "\n")] = 0;
        if (*name == ' ' && !strcmp(name + 1, path)) hide(map, offset);
    }
    if (f) fclose(f);
    return 0;
}
