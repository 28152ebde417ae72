/* Pointwise operations with whole answers: integers (they wrap at 64 bits, as PyTorch's do), comparisons, predicates,
 * where. The model here is 128 bits wide; every rung must give the same bits. */
#include "kernel_test.h"

__extension__ typedef __int128 Wide;

static const int64_t whole[] = {0,
                                1,
                                -1,
                                2,
                                -2,
                                3,
                                -3,
                                7,
                                -7,
                                10,
                                62,
                                63,
                                64,
                                65,
                                255,
                                -256,
                                4294967296,
                                -4294967297,
                                9007199254740993,
                                INT64_MAX,
                                INT64_MAX - 1,
                                INT64_MIN,
                                INT64_MIN + 1};
enum { WHOLE = sizeof whole / sizeof *whole, N = WHOLE * WHOLE };

static int64_t a[N], b[N], got[N];
static float fa[N], fb[N];
static double da[N], db[N];
static uint8_t truth[N];

static int64_t wrap(Wide v) { return (int64_t)(uint64_t)v; }

static int64_t power(int64_t x, int64_t e)
{
    uint64_t r = 1;
    if (e < 0) return x == 1 ? 1 : x == -1 ? 1 - 2 * (e & 1) : 0;
    for (int i = 63; i >= 0; i--) r = r * r * ((uint64_t)e >> i & 1 ? (uint64_t)x : 1);
    return (int64_t)r;
}

static Wide greatest_divisor(Wide x, Wide y)
{
    for (x = x < 0 ? -x : x, y = y < 0 ? -y : y; y;) {
        Wide rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}

static Wide least_multiple(Wide x, Wide y)
{
    Wide g = greatest_divisor(x, y), product = g ? wrap(wrap(x / wrap(g)) * y) : 0;
    return product < 0 ? -product : product;
}

static bool unary_model(PointwiseOp op, int64_t v, int64_t *y)
{
    Wide x = v;
    switch (op) {
    case PW_neg: *y = wrap(-x); return true;
    case PW_abs: *y = wrap(x < 0 ? -x : x); return true;
    case PW_sign: *y = x < 0 ? -1 : x > 0; return true;
    case PW_relu: *y = x < 0 ? 0 : v; return true;
    case PW_square: *y = wrap(x * x); return true;
    case PW_clamp: *y = x < -5 ? -5 : x > 9 ? 9 : v; return true;
    case PW_identity: *y = v; return true;
    case PW_threshold: *y = x > -5 ? v : 9; return true;
    case PW_bitwise_not: *y = -1 - v; return true;
    default: return false;
    }
}

/* Division by zero is 0; shifts by less than 0 or more than 63 push every bit out. */
static bool binary_model(PointwiseOp op, int64_t v, int64_t w, int64_t *y)
{
    Wide x = v, z = w, q = w ? x / z : 0, r = w ? x - q * z : 0;
    bool away = r != 0 && (x < 0) != (z < 0), out = w < 0 || w > 63;
    switch (op) {
    case PW_add: *y = wrap(x + z); return true;
    case PW_sub: *y = wrap(x - z); return true;
    case PW_mul: *y = (int64_t)((uint64_t)v * (uint64_t)w); return true;
    case PW_maximum:
    case PW_fmax: *y = x < z ? w : v; return true;
    case PW_minimum:
    case PW_fmin: *y = x > z ? w : v; return true;
    case PW_pow: *y = power(v, w); return true;
    case PW_div_floor: *y = wrap(away ? q - 1 : q); return true;
    case PW_div_trunc: *y = wrap(q); return true;
    case PW_remainder: *y = wrap(away ? r + z : r); return true;
    case PW_fmod: *y = wrap(r); return true;
    case PW_heaviside: *y = x == 0 ? w : x > 0; return true;
    case PW_bitwise_and: *y = v & w; return true;
    case PW_bitwise_or: *y = v | w; return true;
    case PW_bitwise_xor: *y = v ^ w; return true;
    case PW_gcd: *y = wrap(greatest_divisor(x, z)); return true;
    case PW_lcm: *y = wrap(least_multiple(x, z)); return true;
    case PW_shift_left: *y = out ? 0 : wrap(x * ((Wide)1 << w)); return true;
    case PW_shift_right: *y = out ? (x < 0 ? -1 : 0) : wrap(x >> w); return true;
    default: return false;
    }
}

/* Less, equal or greater; NaN is neither. */
static bool compare_model(PointwiseOp op, double x, double z, int order, bool *y)
{
    bool tx = !(x == 0), tz = !(z == 0), nan = isnan(x) || isnan(z);
    switch (op) {
    case PW_eq: *y = !nan && order == 0; return true;
    case PW_ne: *y = nan || order != 0; return true;
    case PW_lt: *y = !nan && order < 0; return true;
    case PW_le: *y = !nan && order <= 0; return true;
    case PW_gt: *y = !nan && order > 0; return true;
    case PW_ge: *y = !nan && order >= 0; return true;
    case PW_logical_and: *y = tx & tz; return true;
    case PW_logical_or: *y = tx | tz; return true;
    case PW_logical_xor: *y = tx ^ tz; return true;
    default: return false;
    }
}

static bool test_model(PointwiseOp op, double x, bool *y)
{
    uint64_t bits, magnitude;
    memcpy(&bits, &x, 8);
    magnitude = bits & INT64_MAX;
    const uint64_t infinite = (uint64_t)0x7ff << 52;
    switch (op) {
    case PW_logical_not: *y = magnitude == 0; return true;
    case PW_isnan: *y = magnitude > infinite; return true;
    case PW_isinf: *y = magnitude == infinite; return true;
    case PW_isfinite: *y = magnitude < infinite; return true;
    case PW_isneginf: *y = bits == (infinite | (uint64_t)1 << 63); return true;
    case PW_isposinf: *y = bits == infinite; return true;
    case PW_signbit: *y = bits >> 63; return true;
    default: return false;
    }
}

/* ------------------------------------------------------------------ the tests */

static void make_pairs(void)
{
    for (int i = 0; i < N; i++) {
        a[i] = whole[i / WHOLE];
        b[i] = whole[i % WHOLE];
        fa[i] = awkward[i * 7 / AWKWARD % AWKWARD];
        fb[i] = awkward[i % AWKWARD];
        da[i] = fa[i] == 1 ? 1 + 0x1p-52 : (double)fa[i];
        db[i] = fb[i];
    }
}

static void test_int(void **state)
{
    (void)state;
    make_pairs();
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(pointwise, l)) {
        const PointwiseKernels *k = &kernels_at(l)->pointwise;
        int unary = 0, binary = 0;
        for (PointwiseOp op = PW_NONE; op < PW_COUNT; op++) {
            int64_t want;
            if (k->unary_i64(op, got, a, N, (double[]){-5, 9, 0})) {
                unary++;
                for (int i = 0; i < N; i++)
                    if (!unary_model(op, a[i], &want) || got[i] != want)
                        STOP("unary operation %d on %s at %lld: %lld", (int)op, cpu_level_name(l), (long long)a[i],
                             (long long)got[i]);
            }
            if (k->binary_i64(op, got, a, b, N)) {
                binary++;
                for (int i = 0; i < N; i++)
                    if (!binary_model(op, a[i], b[i], &want) || got[i] != want)
                        STOP("binary operation %d on %s at %lld, %lld: %lld", (int)op, cpu_level_name(l),
                             (long long)a[i], (long long)b[i], (long long)got[i]);
            }
        }
        assert_int_equal(unary, 9);
        assert_int_equal(binary, 20);
    }
}

static void check_truth(PointwiseOp op, CpuLevel l, const char *type, bool known, int i, bool want)
{
    if (!known || truth[i] != want)
        STOP("operation %d %s on %s, pair %d: %d", (int)op, type, cpu_level_name(l), i, truth[i]);
}

static int order(double x, double y) { return (x > y) - (x < y); }

static void test_compare(void **state)
{
    (void)state;
    make_pairs();
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(pointwise, l)) {
        const PointwiseKernels *k = &kernels_at(l)->pointwise;
        int count = 0;
        for (PointwiseOp op = PW_NONE; op < PW_COUNT; op++) {
            bool want = false, known;
            if (!k->compare_f32(op, truth, fa, fb, N)) continue;
            count++;
            for (int i = 0; i < N; i++) {
                known = compare_model(op, (double)fa[i], (double)fb[i], order((double)fa[i], (double)fb[i]), &want);
                check_truth(op, l, "f32", known, i, want);
            }
            assert_true(k->compare_f64(op, truth, da, db, N));
            for (int i = 0; i < N; i++) {
                known = compare_model(op, da[i], db[i], order(da[i], db[i]), &want);
                check_truth(op, l, "f64", known, i, want);
            }
            assert_true(k->compare_i64(op, truth, a, b, N));
            for (int i = 0; i < N; i++) { /* neighbours that double cannot tell apart are told apart */
                known = compare_model(op, (double)a[i], (double)b[i], (a[i] > b[i]) - (a[i] < b[i]), &want);
                check_truth(op, l, "i64", known, i, want);
            }
        }
        assert_int_equal(count, 9);
    }
}

static void test_predicates(void **state)
{
    (void)state;
    make_pairs();
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(pointwise, l)) {
        const PointwiseKernels *k = &kernels_at(l)->pointwise;
        int count = 0;
        for (PointwiseOp op = PW_NONE; op < PW_COUNT; op++) {
            bool want = false, known;
            if (!k->test_f32(op, truth, fb, N)) continue;
            count++;
            for (int i = 0; i < N; i++) {
                known = test_model(op, (double)fb[i], &want);
                if (!isnan(fb[i]) || op != PW_signbit)
                    check_truth(op, l, "f32", known, i, want); /* widening a NaN may drop its sign */
            }
            assert_true(k->test_f64(op, truth, da, N));
            for (int i = 0; i < N; i++) {
                known = test_model(op, da[i], &want);
                check_truth(op, l, "f64", known, i, want);
            }
            assert_true(k->test_i64(op, truth, a, N));
            for (int i = 0; i < N; i++) {
                known = test_model(op, (double)a[i], &want);
                check_truth(op, l, "i64", known, i, want);
            }
        }
        assert_int_equal(count, 7);
    }
}

/* Bits move: a NaN keeps its payload, any non-zero byte is true. */
static void test_where(void **state)
{
    (void)state;
    make_pairs();
    static const uint8_t bytes[] = {0, 1, 2, 0x80, 0xff, 0};
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(pointwise, l))
        for (int64_t n = 0; n < 140; n++) {
            const PointwiseKernels *k = &kernels_at(l)->pointwise;
            uint8_t *c = room(0, n);
            float *x = memcpy(room(1, n * 4), fa, (size_t)n * 4), *y = memcpy(room(2, n * 4), fb, (size_t)n * 4),
                  *f = room(3, n * 4);
            for (int64_t i = 0; i < n; i++) c[i] = bytes[(i * 5 + n) % 6];
            k->where_f32(f, c, x, y, n);
            for (int64_t i = 0; i < n; i++) assert_memory_equal(f + i, c[i] ? x + i : y + i, 4);
            assert_guard(f);
            double *dx = memcpy(room(1, n * 8), da, (size_t)n * 8), *dy = memcpy(room(2, n * 8), db, (size_t)n * 8),
                   *d = room(3, n * 8);
            k->where_f64(d, c, dx, dy, n);
            for (int64_t i = 0; i < n; i++) assert_memory_equal(d + i, c[i] ? dx + i : dy + i, 8);
            assert_guard(d);
            int64_t *ix = memcpy(room(1, n * 8), a, (size_t)n * 8), *iy = memcpy(room(2, n * 8), b, (size_t)n * 8),
                    *m = room(3, n * 8);
            k->where_i64(m, c, ix, iy, n);
            for (int64_t i = 0; i < n; i++) assert_int_equal(m[i], c[i] ? ix[i] : iy[i]);
            assert_guard(m);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_predicates),
        cmocka_unit_test(test_where),
    };
    return cmocka_run_group_tests_name("integer", tests, NULL, NULL);
}
