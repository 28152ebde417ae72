/* The CPU ladder: one Kernels per ISA level, the reference first, each better ISA level overwriting what it does
 * better. */
#include <pthread.h>
#include <stdatomic.h>
#include "base/version.h"
#include "kernel/kernel.h"

#define FAMILY(name, T)                                                                                                \
    void name##_fill_ref(T *k);                                                                                        \
    void name##_fill_gen(T *k);                                                                                        \
    void name##_fill_avx2(T *k);                                                                                       \
    void name##_fill_avx512(T *k);
KERNEL_FAMILIES(FAMILY)
#undef FAMILY

#if defined(__x86_64__)
void integer_fill_avxvnni(IntegerKernels *k);
void integer_fill_avx512vnni(IntegerKernels *k);
void blocks_fill_avxvnni(BlockKernels *k);
void blocks_fill_avx512vnni(BlockKernels *k);
void peak_fill_avx512vnni(PeakKernels *k);
void product_fill_avx512bf16(ProductKernels *k);
void conv_fill_avx512bf16(ConvKernels *k);
void integer_fill_amx(IntegerKernels *k);
void product_fill_amx(ProductKernels *k);
void peak_fill_avx512bf16(PeakKernels *k);
void peak_fill_amx(PeakKernels *k);
void sdpa_fill_avx512bf16(SdpaKernels *k);
void sdpa_fill_amx(SdpaKernels *k);
#endif

/* What portable bits need where there is no AVX2 (fill_portable). */
#define FUSED_FAMILIES(FAMILY)                                                                                         \
    FAMILY(product, ProductKernels)                                                                                    \
    FAMILY(conv, ConvKernels)                                                                                          \
    FAMILY(blocks, BlockKernels)                                                                                       \
    FAMILY(sdpa, SdpaKernels)
#define FAMILY(name, T) void name##_fill_fused(T *k);
FUSED_FAMILIES(FAMILY)
#undef FAMILY

static Kernels table[CPU_LEVELS], portable[CPU_LEVELS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The same bits on every ISA level of x86. Kernels fuse multiply-adds where the source says so, and add up an element's
 * terms in an order that does not depend on the width of vectors, on every level from AVX2 to AVX512_VNNI; but for
 * attention, whose rows are summed lane by lane: that is AVX2's. Levels above add pairs of bf16 in an order of their
 * own. Below AVX2 nothing fuses, and the kernels that do are built a second time (fused.h). */
static void fill_portable(void)
{
    for (int level = CPU_REF; level <= (int)cpu_best(); level++) {
        Kernels *k = &portable[level];
        *k = table[level < CPU_GEN ? CPU_GEN : level > CPU_AVX512VNNI ? CPU_AVX512VNNI : level];
#if defined(__x86_64__)
        if (level >= CPU_AVX2) k->sdpa = table[CPU_AVX2].sdpa;
        else {
#define FAMILY(name, T) name##_fill_fused(&k->name);
            FUSED_FAMILIES(FAMILY)
#undef FAMILY
        }
#endif
    }
}

static void fill(void)
{
    for (int level = CPU_REF; level <= (int)cpu_best();
         level++) { /* an ISA level's fill is compiled with its instructions, too */
        Kernels *k = &table[level];
#define FAMILY(name, T)                                                                                                \
    name##_fill_ref(&k->name);                                                                                         \
    if (level >= CPU_GEN) name##_fill_gen(&k->name);
        KERNEL_FAMILIES(FAMILY)
#undef FAMILY
#if defined(__x86_64__) && QKV_HIGHEST >= 2
#define FAMILY(name, T)                                                                                                \
    if (level >= CPU_AVX2) name##_fill_avx2(&k->name);
        KERNEL_FAMILIES(FAMILY)
#undef FAMILY
#endif
#if defined(__x86_64__) && QKV_HIGHEST >= 3
        if (level >= CPU_AVXVNNI && cpu_has(CPU_AVXVNNI)) {
            integer_fill_avxvnni(&k->integer);
            blocks_fill_avxvnni(&k->blocks);
        }
#endif
#if defined(__x86_64__) && QKV_HIGHEST >= 4
#define FAMILY(name, T)                                                                                                \
    if (level >= CPU_AVX512) name##_fill_avx512(&k->name);
        KERNEL_FAMILIES(FAMILY)
#undef FAMILY
#endif
#if defined(__x86_64__) && QKV_HIGHEST >= 5
        if (level >= CPU_AVX512VNNI) {
            integer_fill_avx512vnni(&k->integer);
            blocks_fill_avx512vnni(&k->blocks);
            peak_fill_avx512vnni(&k->peak);
        }
#endif
#if defined(__x86_64__) && QKV_HIGHEST >= 6
        if (level >= CPU_AVX512BF16) {
            peak_fill_avx512bf16(&k->peak);
            product_fill_avx512bf16(&k->product);
            conv_fill_avx512bf16(&k->conv);
            sdpa_fill_avx512bf16(&k->sdpa);
        }
#endif
#if defined(__x86_64__) && QKV_HIGHEST >= 7
        if (level >= CPU_AMX) {
            peak_fill_amx(&k->peak);
            product_fill_amx(&k->product);
            integer_fill_amx(&k->integer);
            sdpa_fill_amx(&k->sdpa);
        }
#endif
    }
    fill_portable();
}

const Kernels *kernels_at(CpuLevel level)
{
    pthread_once(&once, fill);
    return &table[level < cpu_best() ? level : cpu_best()];
}

const Kernels *kernels_portable_at(CpuLevel level) { return &portable[kernels_at(level) - table]; }

const Kernels *kernels(void)
{
    static const Kernels *_Atomic known[2]; /* a process's level stays */
    bool same_bits = cpu_is_portable();
    const Kernels *k = atomic_load_explicit(&known[same_bits], memory_order_acquire);
    if (k) return k;
    k = same_bits ? kernels_portable_at(cpu_level()) : kernels_at(cpu_level());
    atomic_store_explicit(&known[same_bits], k, memory_order_release);
    return k;
}
