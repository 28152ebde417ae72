/* What the kernel tests share: the rungs of this machine, memory that notices an overrun, awkward inputs, distances in
 * last places.
 *
 *     for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung(l)) kernels_at(l)->reduce.sum_f32(x, n);
 */
#ifndef QKV_TESTS_KERNEL_TEST_H
#define QKV_TESTS_KERNEL_TEST_H
#include "unit/unit.h"
#include <math.h>
#include "kernel/kernel.h"

/* ------------------------------------------------------------------ rungs */

/* The next rung that this machine has and at which these bytes of the kernels differ; CPU_LEVELS after the last. */
__attribute__((unused)) static CpuLevel next_different(CpuLevel l, size_t at, size_t bytes)
{
    const char *k = (const char *)kernels_at(l) + at;
    for (l++; l <= cpu_best(); l++)
        if (memcmp((const char *)kernels_at(l) + at, k, bytes)) return l;
    return CPU_LEVELS;
}

/* At which any kernel differs, or one of this family: what uses no other is not run twice. */
#define next_rung(l) next_different(l, 0, sizeof(Kernels))
#define next_rung_of(family, l) next_different(l, offsetof(Kernels, family), sizeof((Kernels){0}.family))

/* Of many cases one in so many: rooms (below) tell of a byte too far without sanitizers, and all cases run there. */
#if defined(SANITIZED)
enum { ONE_IN = 8 };
#else
enum { ONE_IN = 1 };
#endif

/* ------------------------------------------------------------------ memory */

enum { ROOMS = 20, ROOM_BYTES = 6 << 20, GUARD = 64 };

/* Room i, of these bytes, which end where an unreadable page begins: reading or writing past them faults. They and
 * the GUARD bytes in front of them are poison at first (0xff: NaN, -1). Good until the next call for the same i. */
__attribute__((unused)) static void *room(int i, int64_t bytes)
{
    static char *base[ROOMS];
    assert_true(i < ROOMS && bytes >= 0 && bytes <= ROOM_BYTES - GUARD);
    if (!base[i]) {
        base[i] = mmap(NULL, ROOM_BYTES + 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(base[i] != MAP_FAILED && mprotect(base[i], ROOM_BYTES, PROT_READ | PROT_WRITE) == 0);
    }
    char *p = base[i] + ROOM_BYTES - bytes;
    return (char *)memset(p - GUARD, 0xff, (size_t)bytes + GUARD) + GUARD;
}

/* Nothing was written in front of a room. */
__attribute__((unused)) static void assert_guard(const void *p)
{
    for (int i = 1; i <= GUARD; i++) assert_int_equal(((const unsigned char *)p)[-i], 0xff);
}

/* ------------------------------------------------------------------ inputs */

static const float awkward[] = {
    0.0f,
    -0.0f,
    1,
    -1,
    NAN,
    -NAN,
    INFINITY,
    -INFINITY,
    0x1p-149f,
    -0x1p-149f,
    0x1.fffffcp-127f,
    -0x1.fffffcp-127f,
    0x1p-126f,
    -0x1p-126f,
    0x1.fffffep127f,
    -0x1.fffffep127f,
    0.5f,
    -0.5f,
    1.5f,
    -1.5f,
    2.5f,
    -2.5f,
    2,
    -2,
    3,
    -3,
    6,
    -6,
    1 + 0x1p-23f,
    1 - 0x1p-24f,
    -1 + 0x1p-24f,
    0x1p23f,
    0x1.000002p24f,
    -0x1p31f,
    0x1p31f,
    0x1p63f,
    -0x1p63f,
    88.722839f,
    88.72284f,
    -87.33655f,
    -103.97208f,
    -104,
    0.625f,
    0.92773438f,
    4,
    20,
};
enum { AWKWARD = sizeof awkward / sizeof *awkward };

/* Between -1 and 1. */
__attribute__((unused)) static float random_unit(uint64_t *state) { return (float)unit_random(state) * 0x1p-30f - 1; }

/* Every third awkward at random, the others of magnitude up to `size`. */
__attribute__((unused)) static void fill_awkward(float *x, int64_t n, float size, uint64_t *state)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = unit_random(state) % 3 ? size * random_unit(state) : awkward[unit_random(state) % AWKWARD];
}

__attribute__((unused)) static void fill_random(float *x, int64_t n, float size, uint64_t *state)
{
    for (int64_t i = 0; i < n; i++) x[i] = size * random_unit(state);
}

/* Element i, as load_f64 gives it by a call. */
__attribute__((unused)) static inline double element_of(DType t, const void *p, int64_t i)
{
    if (t == DT_F32) return (double)((const float *)p)[i];
    if (t == DT_BF16) return (double)bf16_to_f32(((const uint16_t *)p)[i]);
    return load_f64(t, (const char *)p + (size_t)i * dtype_size(t));
}

/* ------------------------------------------------------------------ distances */

/* |got - want| in units of the last place that a float of want's size has; 0 for NaN and NaN.
 * Infinity counts as 2^128, so that a result on the edge of overflow may fall on either side. */
__attribute__((unused)) static double ulps_f32(double got, double want)
{
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
    if (isinf((float)want)) want = copysign(0x1p128, want);
    if (isinf(got)) got = copysign(0x1p128, got);
    int e = want == 0 ? -126 : ilogb(want);
    return fabs(got - want) / ldexp(1, (e < -126 ? -126 : e > 127 ? 127 : e) - 23);
}

__attribute__((unused)) static double ulps_f64(double got, double want)
{
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
    if (got == want) return 0;
    int e = want == 0 ? -1022 : ilogb(want);
    return fabs(got - want) / ldexp(1, (e < -1022 ? -1022 : e) - 52);
}

/* The same bits, any NaN for any NaN. */
__attribute__((unused)) static bool same_f32(float a, float b) { return isnan(a) ? isnan(b) : !memcmp(&a, &b, 4); }
__attribute__((unused)) static bool same_f64(double a, double b) { return isnan(a) ? isnan(b) : !memcmp(&a, &b, 8); }
#endif
