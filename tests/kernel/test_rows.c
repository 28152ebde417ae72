/* Rows of pointwise kernels: every length, in place, no overrun, the same answer at every place in a row (the caller
 * cuts rows by the number of threads); loads and stores of every dtype against tensor.h; copies in two dims. */
#include "kernel_test.h"

enum { MOST = 67 };

static const double any_parameters[] = {0.5, 20, 0.75};

/* The bytes of x as float, double and int64, awkward values among them. */
static void make_row(int type, void *x, int64_t n, uint64_t *state)
{
    float f[MOST];
    fill_awkward(f, n, 9, state);
    for (int64_t i = 0; i < n; i++)
        if (type == 0) ((float *)x)[i] = f[i];
        else if (type == 1) ((double *)x)[i] = f[i];
        else ((int64_t *)x)[i] = (int64_t)(unit_random(state) % 41) - 20;
}

static bool unary(const PointwiseKernels *k, int type, PointwiseOp op, void *y, const void *x, int64_t n)
{
    return type == 0   ? k->unary_f32(op, y, x, n, any_parameters)
           : type == 1 ? k->unary_f64(op, y, x, n, any_parameters)
                       : k->unary_i64(op, y, x, n, any_parameters);
}

static bool binary(const PointwiseKernels *k, int type, PointwiseOp op, void *y, const void *a, const void *b,
                   int64_t n)
{
    return type == 0   ? k->binary_f32(op, y, a, b, n)
           : type == 1 ? k->binary_f64(op, y, a, b, n)
                       : k->binary_i64(op, y, a, b, n);
}

static bool compare(const PointwiseKernels *k, int type, PointwiseOp op, uint8_t *y, const void *a, const void *b,
                    int64_t n)
{
    return type == 0   ? k->compare_f32(op, y, a, b, n)
           : type == 1 ? k->compare_f64(op, y, a, b, n)
                       : k->compare_i64(op, y, a, b, n);
}

static bool test(const PointwiseKernels *k, int type, PointwiseOp op, uint8_t *y, const void *x, int64_t n)
{
    return type == 0 ? k->test_f32(op, y, x, n) : type == 1 ? k->test_f64(op, y, x, n) : k->test_i64(op, y, x, n);
}

static void assert_row(int type, const void *got, const void *want, int64_t n, PointwiseOp op, CpuLevel l,
                       const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        bool ok = type == 0   ? same_f32(((const float *)got)[i], ((const float *)want)[i])
                  : type == 1 ? same_f64(((const double *)got)[i], ((const double *)want)[i])
                              : ((const int64_t *)got)[i] == ((const int64_t *)want)[i];
        if (!ok)
            STOP("operation %d, type %d, on %s: element %d of %d differs %s", (int)op, type, cpu_level_name(l), (int)i,
                 (int)n, what);
    }
}

/* Each element by itself is the expectation: 1 is a length too. */
static void check_unary(CpuLevel l, int type, PointwiseOp op, int64_t n, uint64_t *state)
{
    const PointwiseKernels *k = &kernels_at(l)->pointwise;
    int64_t size = type == 0 ? 4 : 8;
    char *x = room(0, n * size), *y = room(1, n * size), *one = room(2, n * size);
    make_row(type, x, n, state);
    for (int64_t i = 0; i < n; i++) unary(k, type, op, one + i * size, x + i * size, 1);
    unary(k, type, op, y, x, n);
    assert_row(type, y, one, n, op, l, "in its row");
    assert_guard(y);
    unary(k, type, op, x, x, n);
    assert_row(type, x, one, n, op, l, "in place");
}

static void check_binary(CpuLevel l, int type, PointwiseOp op, int64_t n, uint64_t *state)
{
    const PointwiseKernels *k = &kernels_at(l)->pointwise;
    int64_t size = type == 0 ? 4 : 8;
    char *a = room(0, n * size), *b = room(1, n * size), *y = room(2, n * size), *one = room(3, n * size);
    make_row(type, a, n, state);
    make_row(type, b, n, state);
    for (int64_t i = 0; i < n; i++) binary(k, type, op, one + i * size, a + i * size, b + i * size, 1);
    binary(k, type, op, y, a, b, n);
    assert_row(type, y, one, n, op, l, "in its row");
    assert_guard(y);
    memcpy(y, a, (size_t)(n * size));
    binary(k, type, op, a, a, b, n);
    assert_row(type, a, one, n, op, l, "in place of the first");
    binary(k, type, op, b, y, b, n);
    assert_row(type, b, one, n, op, l, "in place of the second");
}

static void check_truths(CpuLevel l, int type, PointwiseOp op, int64_t n, uint64_t *state)
{
    const PointwiseKernels *k = &kernels_at(l)->pointwise;
    int64_t size = type == 0 ? 4 : 8;
    char *a = room(0, n * size), *b = room(1, n * size);
    uint8_t *y = room(2, n), *one = room(3, n);
    make_row(type, a, n, state);
    make_row(type, b, n, state);
    if (compare(k, type, op, y, a, b, n)) {
        for (int64_t i = 0; i < n; i++) compare(k, type, op, one + i, a + i * size, b + i * size, 1);
        assert_memory_equal(y, one, (size_t)n);
    }
    if (test(k, type, op, y, a, n)) {
        for (int64_t i = 0; i < n; i++) test(k, type, op, one + i, a + i * size, 1);
        assert_memory_equal(y, one, (size_t)n);
    }
    assert_guard(y);
}

static void test_places(void **state)
{
    static const int64_t lengths[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, MOST};
    uint64_t seed = 3;
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(pointwise, l))
        for (int type = 0; type < 3; type++)
            for (PointwiseOp op = PW_NONE + 1; op < PW_COUNT; op++)
                for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                    int64_t none[1];
                    if (unary(&kernels_at(l)->pointwise, type, op, none, none, 0))
                        check_unary(l, type, op, lengths[i], &seed);
                    if (binary(&kernels_at(l)->pointwise, type, op, none, none, none, 0))
                        check_binary(l, type, op, lengths[i], &seed);
                    check_truths(l, type, op, lengths[i], &seed);
                }
}

/* ------------------------------------------------------------------ loads and stores */

static const DType convertible[] = {DT_F32, DT_F64, DT_F16, DT_BF16, DT_I64, DT_I32, DT_I16,
                                    DT_I8,  DT_U8,  DT_U16, DT_U32,  DT_U64, DT_BOOL};
enum { TYPES = sizeof convertible / sizeof *convertible };

static bool can_convert(DType t)
{
    for (int i = 0; i < TYPES; i++)
        if (convertible[i] == t) return true;
    return false;
}

/* Random bits, and now and then all ones or a lone top bit; floats include NaN, infinities and denormals that way. */
static void fill_bits(unsigned char *p, int64_t bytes, uint64_t *state)
{
    for (int64_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)(unit_random(state) % 5 ? unit_random(state) : (unit_random(state) & 1) * 0xff);
}

static void check_load(const PointwiseKernels *k, DType t, int64_t stride, int64_t n, uint64_t *state)
{
    int64_t size = (int64_t)dtype_size(t), span = n ? llabs(stride) * (n - 1) + size : 0;
    char *in = room(0, span), *first = stride < 0 && n ? in + span - size : in;
    float *f = room(1, n * 4);
    double *d = room(2, n * 8);
    int64_t *m = room(3, n * 8);
    fill_bits((unsigned char *)in, span, state);
    bool ok = can_convert(t);
    assert_int_equal(k->load_f32(f, t, first, stride, n), ok);
    assert_int_equal(k->load_f64(d, t, first, stride, n), ok);
    assert_int_equal(k->load_i64(m, t, first, stride, n), ok);
    for (int64_t i = 0; ok && i < n; i++) {
        const char *p = first + i * stride;
        double v = load_f64(t, p);
        float narrow = t == DT_I64   ? (float)load_i64(t, p)
                       : t == DT_U64 ? (float)(uint64_t)load_i64(t, p)
                                     : (float)v; /* rounded once */
        if (!same_f64(d[i], v) || !same_f32(f[i], narrow) || m[i] != load_i64(t, p))
            STOP("load of %s, element %d of %d, stride %d: %a, %a, %lld", dtype_name(t), (int)i, (int)n, (int)stride,
                 (double)f[i], d[i], (long long)m[i]);
    }
    assert_guard(f);
    assert_guard(d);
    assert_guard(m);
}

static void test_load(void **state)
{
    static const int steps[] = {1, 2, 3, 0, -1, -2, 17};
    uint64_t seed = 4;
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(pointwise, l))
        for (int t = DT_NONE; t < DT_COUNT; t++)
            for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
                for (int64_t n = 0; n <= 200; n += n < 36 ? 1 : 41)
                    check_load(&kernels_at(l)->pointwise, (DType)t, steps[s] * (int64_t)dtype_size((DType)t), n, &seed);
}

/* What a float becomes in an integer dtype: toward zero, then the low bits of an int32 (8 to 32 bits) or an int64,
 * which is the smallest one when the float does not fit: PyTorch's answers on x86. u32 and u64 are defined for what
 * they hold. */
static bool whole_of(DType t, double v, int64_t *y)
{
    bool narrow = t == DT_I32 || t == DT_I16 || t == DT_I8 || t == DT_U8, fits64 = v >= -0x1p63 && v < 0x1p63;
    if (narrow) *y = v > -0x1p31 - 1 && v < 0x1p31 ? (int64_t)v : INT32_MIN;
    else if (t == DT_U64 && v >= 0x1p63 && v < 0x1p64) *y = (int64_t)(uint64_t)v;
    else *y = fits64 ? (int64_t)v : INT64_MIN;
    return narrow || t == DT_I64 || (v >= 0 && v < (t == DT_U16 ? 0x1p16 : t == DT_U32 ? 0x1p32 : 0x1p64));
}

static void check_stored(DType t, const char *got, double v, CpuLevel l, const char *from)
{
    char want[16] = {0};
    int64_t whole;
    size_t size = dtype_size(t);
    if (dtype_is_int(t)) {
        if (!whole_of(t, v, &whole)) return;
        store_i64(t, want, whole);
    } else store_f64(t, want, v);
    bool both_nan = dtype_is_float(t) && isnan(v) && isnan(load_f64(t, got));
    if (!both_nan && memcmp(got, want, size))
        STOP("%s to %s on %s of %a (%.17g): %a", from, dtype_name(t), cpu_level_name(l), v, v, load_f64(t, got));
}

static void check_store(CpuLevel l, DType t, int64_t n, uint64_t *state)
{
    static const double magnitudes[] = {2, 300, 70000, 0x1p31, 0x1p33, 0x1p63, 0x1p64, 0x1p-14, 0x1p-24, 0x1p-130};
    const PointwiseKernels *k = &kernels_at(l)->pointwise;
    int64_t size = (int64_t)dtype_size(t);
    float *f = room(0, n * 4);
    double *d = room(1, n * 8);
    int64_t *m = room(2, n * 8);
    fill_awkward(f, n, 1.25f, state);
    fill_bits((unsigned char *)m, n * 8, state);
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(f[i]) && fabsf(f[i]) <= 1.25f) f[i] *= (float)magnitudes[i % 10];
        d[i] = f[i] * (1 + (double)random_unit(state) * 0x1p-24);
    }
    char *y = room(3, n * size);
    assert_int_equal(k->store_f32(t, y, f, n), can_convert(t));
    for (int64_t i = 0; can_convert(t) && i < n; i++) check_stored(t, y + i * size, (double)f[i], l, "f32");
    assert_guard(y);
    assert_int_equal(k->store_f64(t, y, d, n), can_convert(t));
    for (int64_t i = 0; can_convert(t) && i < n; i++) check_stored(t, y + i * size, d[i], l, "f64");
    assert_int_equal(k->store_i64(t, y, m, n), can_convert(t));
    for (int64_t i = 0; can_convert(t) && i < n; i++) {
        char want[16] = {0};
        float once = (float)m[i]; /* f16 and bf16 go through float, as c10's do */
        if (dtype_is_float(t) && t != DT_F64) store_f64(t, want, (double)once);
        else store_i64(t, want, m[i]);
        assert_memory_equal(y + i * size, want, (size_t)size);
    }
    assert_guard(y);
}

static void test_store(void **state)
{
    uint64_t seed = 5;
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(pointwise, l))
        for (int t = DT_NONE; t < DT_COUNT; t++)
            for (int64_t n = 0; n < 400; n += n < 36 ? 1 : 77) check_store(l, (DType)t, n, &seed);
}

/* ------------------------------------------------------------------ copies */

static void check_copy(CpuLevel l, size_t size, int64_t rows, int64_t cols, int64_t rs, int64_t cs, uint64_t *state)
{
    bool empty = rows == 0 || cols == 0;
    int64_t low = empty ? 0 : (rs < 0 ? rs * (rows - 1) : 0) + (cs < 0 ? cs * (cols - 1) : 0);
    int64_t high = empty ? 0 : (rs > 0 ? rs * (rows - 1) : 0) + (cs > 0 ? cs * (cols - 1) : 0) + 1;
    char *in = room(0, (high - low) * (int64_t)size), *out = room(1, rows * cols * (int64_t)size),
         *first = in - low * (int64_t)size;
    fill_bits((unsigned char *)in, (high - low) * (int64_t)size, state);
    assert_true(kernels_at(l)->pointwise.copy_2d(out, first, rows, cols, rs, cs, size));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            if (memcmp(out + (size_t)(r * cols + c) * size, first + (r * rs + c * cs) * (int64_t)size, size))
                STOP("copy of %d-byte elements on %s: [%d, %d] of %d x %d", (int)size, cpu_level_name(l), (int)r,
                     (int)c, (int)rows, (int)cols);
    assert_guard(out);
}

static void test_copy_2d(void **state)
{
    static const int64_t edges[] = {0, 1, 2, 7, 31, 32, 33, 64, 65};
    uint64_t seed = 6;
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(pointwise, l))
        for (size_t size = 1; size <= 16; size *= 2)
            for (int i = 0; i < 9; i++)
                for (int j = 0; j < 9; j++) {
                    int64_t r = edges[i], c = edges[j];
                    check_copy(l, size, r, c, 1, r, &seed);     /* transposed */
                    check_copy(l, size, r, c, c + 3, 1, &seed); /* rows of a wider matrix */
                    check_copy(l, size, r, c, 2, 2 * r + 1, &seed);
                    check_copy(l, size, r, c, 0, 1, &seed); /* one row, again and again */
                    check_copy(l, size, r, c, 1, 0, &seed);
                    check_copy(l, size, r, c, -1, -r, &seed); /* flipped */
                }
    char from[12] = {0}, to[12];
    assert_false(kernels_at(CPU_REF)->pointwise.copy_2d(to, from, 2, 2, 1, 2, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_copy_2d),
    };
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
