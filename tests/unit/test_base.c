/* Errors, arenas, buffers, maps, element types, tensor views, files, the CPU ladder. */
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <dirent.h>
#include <time.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/cgroup.h"
#include "base/cpu.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/number.h"
#include "tensor/tensor.h"

static void test_err(void **state)
{
    (void)state;
    Err err = {0};
    assert_false(fail(&err, E_FORMAT, "byte %d", 7));
    assert_false(within(&err, "entry '%s'", "x"));
    assert_false(within(&err, "model.pt2"));
    assert_string_equal(err.msg, "model.pt2: entry 'x': byte 7");
    assert_int_equal(err.code, E_FORMAT);
    fail(&err, E_FORMAT, "the cause");
    for (int i = 0; i < 200; i++) within(&err, "level %d of a message that grows beyond its room", i);
    assert_non_null(strstr(err.msg, "level 199 of"));
    assert_string_equal(err.msg + strlen(err.msg) - strlen("the cause"), "the cause");
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
    assert_memory_equal(err.msg, "level 199 of", 12);
}

/* Large pieces lie side by side in regions of their own: zeroed, apart from each other, counted. */
static void test_arena_large(void **state)
{
    static const size_t size[] = {1 << 20, (1 << 20) + 1, 40 << 20, 20 << 20, 30 << 20, (1 << 25) + 1, 3 << 20, 100};
    enum { N = sizeof size / sizeof *size };
    Arena *a = arena_create(0);
    unsigned char *p[N];
    size_t sum = 0;
    (void)state;
    for (int i = 0; i < N; i++) {
        p[i] = arena_alloc(a, size[i], 1);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        for (size_t k = 0; k < size[i]; k += 4096) assert_int_equal(p[i][k], 0);
        assert_int_equal(p[i][size[i] - 1], 0);
        memset(p[i], i + 1, size[i]);
        sum += size[i];
    }
    for (int i = 0; i < N; i++) assert_true(p[i][0] == i + 1 && p[i][size[i] - 1] == i + 1);
    assert_true(arena_used(a) >= sum && arena_used(a) < sum + (1 << 20));
    arena_destroy(a);
    a = arena_create(5 << 20);
    assert_non_null(arena_alloc(a, 2 << 20, 1));
    assert_non_null(arena_alloc(a, 2 << 20, 1));
    assert_null(arena_alloc(a, 2 << 20, 1));
    assert_true(arena_failed(a));
    arena_destroy(a);
}

static void test_arena(void **state)
{
    (void)state;
    Arena *a = arena_create(0);
    for (size_t n = 0; n < 5000; n += 7) {
        unsigned char *p = arena_alloc(a, n, 1);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (n < 64 ? 8 : 16), 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
        if (n < 64) assert_int_equal((uintptr_t)arena_alloc(a, 1, 16) % 16, 0);
        if (n) memset(p, 0xff, n);
    }
    char *big = arena_alloc(a, 1, 1 << 20), *after = arena_strdup(a, "after");
    memset(big, 1, 1 << 20);
    assert_string_equal(after, "after");
    assert_string_equal(arena_printf(a, "%d-%s", 5, "x"), "5-x");
    assert_string_equal(arena_strndup(a, "abcdef", 3), "abc");
    assert_false(arena_failed(a));
    assert_null(arena_alloc(a, SIZE_MAX / 2, 4));
    assert_null(arena_alloc(a, SIZE_MAX, 1));
    assert_true(arena_failed(a));
    arena_destroy(a);
    a = arena_create(1 << 18);
    assert_non_null(arena_alloc(a, 1 << 17, 1));
    assert_null(arena_alloc(a, 1 << 18, 1));
    assert_true(arena_used(a) <= 1 << 18);
    arena_destroy(a);
    arena_destroy(NULL);
}

static void test_sums(void **state)
{
    (void)state;
    size_t n;
    int64_t i;
    assert_true(mul_size(1u << 20, 1u << 20, &n) && n == (size_t)1 << 40);
    assert_false(mul_size(SIZE_MAX, 2, &n));
    assert_false(add_size(SIZE_MAX, 1, &n));
    assert_false(mul_i64(INT64_MAX, 2, &i));
    assert_false(add_i64(INT64_MIN, -1, &i));
    assert_true(in_range_u64(0, 0, 0) && in_range_u64(4, 6, 10) && in_range_u64(10, 0, 10));
    assert_false(in_range_u64(4, 7, 10) || in_range_u64(11, 0, 10) || in_range_u64(UINT64_MAX, 2, 10) ||
                 in_range_u64(2, UINT64_MAX, 10));
}

static void test_buf(void **state)
{
    (void)state;
    Buf b = {0};
    for (int i = 0; i < 1000; i++) buf_printf(&b, "%d,", i);
    buf_puts(&b, "end");
    buf_add(&b, "", 0);
    assert_false(b.failed);
    assert_int_equal(b.len, strlen(b.data));
    assert_string_equal(b.data + b.len - 7, "999,end");
    buf_free(&b);
    assert_null(b.data);
}

/* Places of numbers, all of which have one of four hashes, as often as they were put in. */
static void test_lookup(void **state)
{
    (void)state;
    enum { N = 500, HASHES = 4 };
    static const uint64_t hash[HASHES] = {0, 1, UINT32_MAX, (uint64_t)7 << 32 | UINT32_MAX};
    Lookup s = {0};
    size_t tried = 0;
    assert_int_equal(lookup_next(&s, 0, &tried), -1);
    for (size_t i = 0; i < N; i++) assert_true(lookup_add(&s, hash[i % HASHES], i));
    for (size_t h = 0; h < HASHES; h++) {
        bool seen[N] = {false};
        int n = 0;
        tried = 0;
        for (int64_t at; (at = lookup_next(&s, hash[h], &tried)) >= 0; n++) {
            assert_true(at < N && !seen[at]);
            seen[at] = true;
        }
        assert_int_equal(n, h < 2 ? N / HASHES : N / 2); /* of 64 bits 32 count */
        for (size_t i = h; i < N; i += HASHES) assert_true(seen[i]);
    }
    tried = 0;
    assert_int_equal(lookup_next(&s, 2, &tried), -1);
    lookup_free(&s);
    assert_int_equal(s.taken, 0);
}

static void test_map(void **state)
{
    (void)state;
    enum { N = 5000 };
    static char keys[N][16];
    Map m = {0};
    assert_null(map_get(&m, "x"));
    for (int i = 0; i < N; i++) {
        snprintf(keys[i], sizeof keys[i], "key%d", i);
        assert_true(map_put(&m, keys[i], keys[i]));
    }
    assert_true(map_put(&m, "key7", NULL)); /* replaced, present, NULL */
    assert_int_equal(m.count, N);
    assert_true(map_has(&m, "key7"));
    assert_null(map_get(&m, "key7"));
    assert_false(map_has(&m, "key5000"));
    for (int i = 0; i < N; i++) {
        assert_string_equal(m.entries[i].key, keys[i]);
        if (i != 7) assert_ptr_equal(map_get(&m, keys[i]), keys[i]);
    }
    map_free(&m);
}

/* Values of the reference implementation (xxhsum -H1). */
static void test_digest(void **state)
{
    (void)state;
    static unsigned char bytes[200000];
    char a[DIGEST_TEXT], b[DIGEST_TEXT];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)i;
    assert_true(digest_xxh64("", 0, 0) == 0xef46db3751d8e999u);
    assert_true(digest_xxh64("abc", 3, 0) == 0x44bc2cf5ad770999u);
    assert_true(digest_xxh64("Nobody inspects the spammish repetition", 39, 0) == 0xfbcea83c8a378bf1u);
    for (size_t n = 0; n < 70; n++) assert_true(digest_xxh64(bytes, n, 7) != digest_xxh64(bytes, n + 1, 7));
    Digest one = {0}, two = {0};
    digest_add(&one, bytes, sizeof bytes);
    bytes[150000] ^= 1;
    digest_add(&two, bytes, sizeof bytes);
    digest_print(&one, a);
    digest_print(&two, b);
    assert_int_equal(strlen(a), DIGEST_TEXT - 1);
    assert_true(one.half[0] != two.half[0] && one.half[1] != two.half[1] && strcmp(a, b) != 0);
    Digest together = {0}, apart = {0};
    digest_text(&together, "ab");
    digest_text(&apart, "a");
    digest_text(&apart, "b");
    assert_true(together.half[0] != apart.half[0]);
}

/* ------------------------------------------------------------------ element types */

static void test_dtype(void **state)
{
    (void)state;
    for (int t = DT_NONE + 1; t < DT_COUNT; t++) {
        assert_int_equal(dtype_from_name(dtype_name((DType)t)), t);
        assert_in_range(dtype_size((DType)t), 1, 16);
        if (dtype_bits((DType)t) < 8) { /* ONNX's, which PyTorch and safetensors lack */
            assert_null(dtype_safetensors((DType)t));
            assert_int_equal(dtype_pt2((DType)t), -1);
            continue;
        }
        assert_int_equal(dtype_bits((DType)t), 8 * dtype_size((DType)t));
        assert_int_equal(dtype_from_name(dtype_safetensors((DType)t)), t);
        assert_int_equal(dtype_from_pt2(dtype_pt2((DType)t)), t);
    }
    assert_int_equal(dtype_from_pt2(-1), DT_NONE);
    assert_int_equal(dtype_from_name(""), DT_NONE);
    assert_int_equal(dtype_from_name("torch.bfloat16"), DT_BF16);
    assert_int_equal(dtype_from_name("float32"), DT_F32);
    assert_int_equal(dtype_from_name("string"), DT_NONE);
    assert_int_equal(dtype_from_pt2(999), DT_NONE);
    assert_int_equal(dtype_from_pt2((1ll << 32) + dtype_pt2(DT_F32)), DT_NONE);
}

/* ONNX's Cast: from a float to the nearer end of the range, from an integer the low bits. */
static void test_small_types(void **state)
{
    (void)state;
    static const struct {
        DType t;
        double v;
        int byte;
    } rows[] = {
        {DT_I4, 7.9, 7},      {DT_I4, 8, 7},        {DT_I4, -9, -8},   {DT_I4, -7.9, -7},    {DT_I4, INFINITY, 7},
        {DT_U4, 20, 15},      {DT_U4, -1, 0},       {DT_I2, 3, 1},     {DT_I2, -5, -2},      {DT_U2, 2.5, 2},
        {DT_U2, 9, 3},        {DT_I4, NAN, 0},      {DT_F4E2M1, 6, 7}, {DT_F4E2M1, 100, 7},  {DT_F4E2M1, -INFINITY, 15},
        {DT_F4E2M1, 0.25, 0}, {DT_F4E2M1, 0.75, 2}, {DT_F4E2M1, 5, 6}, {DT_F4E2M1, 5.01, 7}, {DT_F4E2M1, -0.5, 9},
        {DT_F4E2M1, NAN, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int8_t byte = 99;
        store_f64(rows[i].t, &byte, rows[i].v);
        assert_int_equal(byte, rows[i].byte);
    }
    static const int64_t whole[][4] = {{DT_I4, 200, -8}, {DT_I4, 23, 7}, {DT_I4, -1, -1}, {DT_U4, 23, 7},
                                       {DT_U4, -1, 15},  {DT_I2, 2, -2}, {DT_I2, 5, 1},   {DT_U2, 7, 3}};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        int8_t byte = 99;
        store_i64((DType)whole[i][0], &byte, whole[i][1]);
        assert_int_equal(byte, whole[i][2]);
        assert_int_equal(load_i64((DType)whole[i][0], &byte), whole[i][2]);
        assert_true(load_f64((DType)whole[i][0], &byte) == (double)whole[i][2]);
    }
    for (uint8_t code = 0; code < 16; code++) {
        uint8_t back = 99;
        store_f64(DT_F4E2M1, &back, load_f64(DT_F4E2M1, &code));
        assert_int_equal(back, code);
    }
    float from[3] = {-9, 1.5, 300};
    int8_t to[3];
    Tensor dst = tensor_of(DT_I4, 1, (int64_t[]){3}, to), src = tensor_of(DT_F32, 1, (int64_t[]){3}, from);
    tensor_copy(&dst, &src);
    assert_true(to[0] == -8 && to[1] == 1 && to[2] == 7);
    assert_int_equal(dtype_promote(DT_I4, DT_I8), DT_NONE);
}

static void test_promotion(void **state)
{
    (void)state;
    static const DType rows[][3] = {
        {DT_F32, DT_I64, DT_F32},  {DT_F16, DT_BF16, DT_F32}, {DT_F16, DT_F64, DT_F64},    {DT_U8, DT_I8, DT_I16},
        {DT_U8, DT_I32, DT_I32},   {DT_BOOL, DT_U8, DT_U8},   {DT_BOOL, DT_BOOL, DT_BOOL}, {DT_I32, DT_I64, DT_I64},
        {DT_F64, DT_C64, DT_C128}, {DT_F32, DT_C64, DT_C64},  {DT_F16, DT_C32, DT_C32},    {DT_I64, DT_BF16, DT_BF16},
        {DT_BOOL, DT_F16, DT_F16}, {DT_I8, DT_I16, DT_I16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(dtype_promote(rows[i][0], rows[i][1]), rows[i][2]);
        assert_int_equal(dtype_promote(rows[i][1], rows[i][0]), rows[i][2]);
    }
    for (int t = DT_NONE + 1; t < DT_COUNT; t++) assert_int_equal(dtype_promote((DType)t, (DType)t), t);
}

static void test_half(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h), g = bf16_to_f32((uint16_t)h);
        if (isnan(f)) assert_true(isnan(f16_to_f32(f32_to_f16(f))));
        else assert_int_equal(f32_to_f16(f), h);
        if (isnan(g)) assert_true(isnan(bf16_to_f32(f32_to_bf16(g))));
        else assert_int_equal(f32_to_bf16(g), h);
    }
    assert_int_equal(f32_to_f16(1 + 0x1p-11f), 0x3c00);     /* tie to even, down */
    assert_int_equal(f32_to_f16(1 + 3 * 0x1p-11f), 0x3c02); /* tie to even, up */
    assert_int_equal(f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(0x1p-25f), 0);
    assert_int_equal(f32_to_bf16(1 + 0x1p-8f), 0x3f80);
}

/* ATen's bits: the middle of -1 .. 1 is not always 0 */
static void test_linspace(void **state)
{
    (void)state;
    static const struct {
        DType t;
        double start, end;
        int64_t n, at;
        double v;
    } rows[] = {
        {DT_F32, -1, 1, 7, 3, -0x1.0000000000000p-25}, {DT_F32, -1, 1, 15, 7, -0x1.8000000000000p-25},
        {DT_F32, -1, 1, 5, 2, 0x0.0p+0}, {DT_F32, 0.1, 2.3, 1, 0, 0x1.99999a0000000p-4},
        {DT_F64, -1, 1, 7, 3, 0x1.0000000000000p-54}, {DT_F64, -1, 1, 15, 7, 0x1.0000000000000p-54},
        {DT_F16, -3.7, 9.1, 40, 19, 0x1.4480000000000p+1}, {DT_BF16, -1, 1, 300, 299, 0x1.0000000000000p+0},
        {DT_BF16, -1, 1, 300, 30, -0x1.9a00000000000p-1}, {DT_I64, 65, -81, 299, 149, -7},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[300 * 8];
        linspace_into(rows[i].t, line, rows[i].start, rows[i].end, rows[i].n);
        assert_true(load_f64(rows[i].t, line + (size_t)rows[i].at * dtype_size(rows[i].t)) == rows[i].v);
    }
}

static void test_float8(void **state)
{
    (void)state;
    static const DType types[] = {DT_F8E4M3, DT_F8E5M2, DT_F8E4M3FNUZ, DT_F8E5M2FNUZ, DT_F8E8M0};
    for (size_t k = 0; k < 5; k++)
        for (int code = 0; code < 256; code++) {
            uint8_t in = (uint8_t)code, out;
            double v = load_f64(types[k], &in);
            store_f64(types[k], &out, v);
            if (isnan(v)) assert_true(isnan(load_f64(types[k], &out)));
            else assert_int_equal(out, code);
        }
    static const struct {
        DType t;
        uint8_t code;
        double v;
    } rows[] = {{DT_F8E4M3, 0x7e, 448},       {DT_F8E4M3, 0x01, 0x1p-9},   {DT_F8E4M3, 0x38, 1},
                {DT_F8E5M2, 0x7b, 57344},     {DT_F8E5M2, 0x7c, INFINITY}, {DT_F8E4M3FNUZ, 0x7f, 240},
                {DT_F8E5M2FNUZ, 0x7f, 57344}, {DT_F8E8M0, 127, 1},         {DT_F8E4M3, 0xc0, -2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(load_f64(rows[i].t, &rows[i].code) == rows[i].v);
    uint8_t code;
    store_f64(DT_F8E4M3, &code, 500);
    assert_int_equal(code, 0x7e);
    store_f64(DT_F8E4M3FNUZ, &code, 500);
    assert_int_equal(code, 0x80);
    store_f64(DT_F8E5M2, &code, -1e9);
    assert_int_equal(code, 0xfc);
    store_f64(DT_F8E4M3, &code, 1.0625); /* between 1 and 1.125: to even */
    assert_int_equal(code, 0x38);
}

/* ------------------------------------------------------------------ tensors */

static void test_view(void **state)
{
    (void)state;
    float x[12];
    Tensor t = tensor_of(DT_F32, 2, (int64_t[]){3, 4}, x), s = tensor_of(DT_F32, 0, NULL, x);
    char text[64];
    assert_int_equal(tensor_numel(&t), 12);
    assert_int_equal(tensor_bytes(&t), 48);
    assert_int_equal(tensor_numel(&s), 1);
    assert_string_equal(tensor_describe(&t, text, sizeof text), "f32[3, 4]");
    assert_string_equal(tensor_describe(&s, text, sizeof text), "f32[]");
    assert_string_equal(tensor_describe(&t, text, 6), "f32[3");
    assert_true(tensor_contiguous(&t) && tensor_contiguous(&s));
    Tensor u = t;
    u.shape[0] = 4, u.shape[1] = 3, u.stride[0] = 1, u.stride[1] = 4;
    assert_false(tensor_contiguous(&u));
    u.shape[0] = 1, u.stride[0] = 77, u.stride[1] = 1;
    assert_true(tensor_contiguous(&u));
    u.shape[0] = 0, u.stride[1] = 9;
    assert_true(tensor_contiguous(&u));
}

static void test_storage(void **state)
{
    (void)state;
    Tensor t = tensor_of(DT_F32, 2, (int64_t[]){3, 4}, NULL);
    assert_true(view_in_storage(&t, 0, 48) && view_in_storage(&t, 1, 52));
    assert_false(view_in_storage(&t, 0, 47) || view_in_storage(&t, 1, 48) || view_in_storage(&t, -1, 48));
    t.stride[0] = -4;
    assert_true(view_in_storage(&t, 8, 48));
    assert_false(view_in_storage(&t, 7, 48) || view_in_storage(&t, 9, 48));
    t.stride[0] = INT64_MAX / 2;
    assert_false(view_in_storage(&t, 0, UINT64_MAX));
    t.shape[0] = 0;
    assert_true(view_in_storage(&t, 0, 0));
    assert_false(view_in_storage(&t, 1, 0));
    t.shape[1] = -1;
    assert_false(view_in_storage(&t, 0, 48));
    t = tensor_of(DT_F32, 1, (int64_t[]){1}, NULL);
    assert_false(view_in_storage(&t, INT64_MAX, UINT64_MAX));
    t.dtype = DT_NONE;
    assert_false(view_in_storage(&t, 0, 48));
}

static void test_shape_bytes(void **state)
{
    (void)state;
    Err err = {0};
    size_t n;
    OK(shape_bytes(DT_F32, 2, (int64_t[]){3, 4}, &n, &err));
    assert_int_equal(n, 48);
    OK(shape_bytes(DT_F32, 3, (int64_t[]){3, 0, 4}, &n, &err));
    assert_int_equal(n, 0);
    REFUSED(shape_bytes(DT_F32, 1, (int64_t[]){-1}, &n, &err), E_FORMAT);
    REFUSED(shape_bytes(DT_F32, 3, (int64_t[]){4194305, 4194305, 211106198978564}, &n, &err), E_LIMIT);
    REFUSED(shape_bytes(DT_F32, 3, (int64_t[]){INT64_MAX, INT64_MAX, 0}, &n, &err), E_LIMIT);
    REFUSED(shape_bytes(DT_U8, 1, (int64_t[]){((int64_t)1 << 46) + 1}, &n, &err), E_LIMIT);
}

static void test_copy(void **state)
{
    (void)state;
    float x[6] = {0, 1, 2.9f, -3.9f, 1e20f, 0.5f}, y[6] = {0};
    int64_t i[6];
    uint8_t flag[6];
    uint16_t h[6];
    Tensor s = tensor_of(DT_F32, 2, (int64_t[]){2, 3}, x), turned = s, d = tensor_of(DT_F32, 2, (int64_t[]){3, 2}, y);
    turned.shape[0] = 3, turned.shape[1] = 2, turned.stride[0] = 1, turned.stride[1] = 3;
    tensor_copy(&d, &turned);
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 2; c++)
            assert_true(y[r * 2 + c] == x[c * 3 + r] && tensor_get(&turned, r * 2 + c) == (double)x[c * 3 + r]);
    Tensor back = turned; /* writing through strides */
    float z[6] = {0};
    back.data = z;
    tensor_copy(&back, &d);
    assert_memory_equal(z, x, sizeof x);
    Tensor reversed = s;
    reversed.data = x + 5, reversed.stride[0] = -3, reversed.stride[1] = -1;
    d = tensor_of(DT_F32, 2, (int64_t[]){2, 3}, y);
    tensor_copy(&d, &reversed);
    for (int k = 0; k < 6; k++) assert_true(y[k] == x[5 - k]);
    Tensor di = tensor_of(DT_I64, 2, s.shape, i), df = tensor_of(DT_BOOL, 2, s.shape, flag),
           dh = tensor_of(DT_F16, 2, s.shape, h);
    tensor_copy(&di, &s);
    assert_true(i[1] == 1 && i[2] == 2 && i[3] == -3);
    tensor_copy(&df, &s);
    assert_memory_equal(flag, "\0\1\1\1\1\1", 6);
    tensor_copy(&dh, &s);
    assert_true(h[5] == 0x3800 && h[4] == 0x7c00);
    Tensor spread = tensor_of(DT_F32, 2, (int64_t[]){2, 3}, x); /* one element, stride 0 */
    spread.stride[0] = spread.stride[1] = 0;
    tensor_copy(&d, &spread);
    for (int k = 0; k < 6; k++) assert_true(y[k] == x[0]);
    double c128[4];
    float c64[4] = {1, 2, 3, 4};
    Tensor from = tensor_of(DT_C64, 1, (int64_t[]){2}, c64), to = tensor_of(DT_C128, 1, (int64_t[]){2}, c128);
    tensor_copy(&to, &from);
    assert_true(c128[0] == 1 && c128[1] == 2 && c128[2] == 3 && c128[3] == 4);
    Tensor scalar = tensor_of(DT_F32, 0, NULL, x + 2), wide = tensor_of(DT_F64, 0, NULL, c128);
    tensor_copy(&wide, &scalar);
    assert_true(c128[0] == (double)2.9f);
    int64_t large = INT64_MAX - 1, copy;
    Tensor l = tensor_of(DT_I64, 0, NULL, &large), m = tensor_of(DT_U64, 0, NULL, &copy);
    tensor_copy(&m, &l);
    assert_true(copy == large && tensor_get_i64(&l, 0) == large);
}

/* ------------------------------------------------------------------ files */

static int files_in(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

static void expect_text(const char *path, const char *text)
{
    Buf b = unit_read(path);
    assert_string_equal(b.data, text);
    buf_free(&b);
}

static void test_map_file(void **state)
{
    (void)state;
    Err err = {0};
    MappedFile f;
    char fifo[160];
    REFUSED(file_map(&f, unit_path("absent"), &err), E_IO);
    REFUSED(file_map(&f, "/", &err), E_IO);
    REFUSED(file_map(&f, "/dev/zero", &err), E_IO);
    snprintf(fifo, sizeof fifo, "%s", unit_path("fifo"));
    assert_int_equal(mkfifo(fifo, 0600), 0);
    REFUSED(file_map(&f, fifo, &err), E_IO); /* and does not wait for a writer */
    OK(file_map(&f, unit_file("", 0), &err));
    assert_true(f.data == NULL && f.size == 0);
    file_unmap(&f);
    OK(file_map(&f, unit_file("abc", 3), &err));
    assert_true(f.size == 3 && !memcmp(f.data, "abc", 3));
    file_unmap(&f);
    assert_null(f.data);
    unlink(fifo);
}

static void test_outfile(void **state)
{
    (void)state;
    Err err = {0};
    char folder[160], path[200], link[200];
    snprintf(folder, sizeof folder, "%s", unit_path("out"));
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/a", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    OutFile *o = outfile_open(path, &err);
    OK(o && outfile_write(o, "first", 5, &err));
    assert_true(access(path, F_OK) != 0); /* nothing there before the commit */
    OK(outfile_commit(o, &err));
    expect_text(path, "first");
    o = outfile_open(path, &err);
    OK(o && outfile_write(o, "second", 6, &err));
    expect_text(path, "first");
    outfile_abort(o);
    expect_text(path, "first");
    assert_int_equal(files_in(folder), 1);
    assert_int_equal(symlink(path, link), 0);
    o = outfile_open(link, &err);
    OK(o && outfile_write(o, "third", 5, &err) && outfile_commit(o, &err));
    struct stat st;
    assert_true(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
    expect_text(path, "third");
    o = outfile_open(path, &err); /* a signal: the handler removes what is half written */
    assert_int_equal(files_in(folder), 3);
    outfile_abort_all();
    assert_int_equal(files_in(folder), 2);
    outfile_abort(o);
    REFUSED(outfile_open(folder, &err), E_IO);
    REFUSED(outfile_open("/dev/null", &err), E_IO);
    REFUSED(outfile_open("/nonexistent/folder/x", &err), E_IO);
    outfile_abort(NULL);
    char name[300] = {0}; /* the longest name that a file system takes still has room for its temporary file */
    snprintf(name, sizeof name, "%s/", folder);
    memset(name + strlen(name), 'n', 255);
    o = outfile_open(name, &err);
    OK(o && outfile_commit(o, &err));
}

/* What killed processes left in the folder goes with the next write, unless its process may still be writing. */
static void test_outfile_stale(void **state)
{
    (void)state;
    Err err = {0};
    char folder[160], path[300];
    snprintf(folder, sizeof folder, "%s", unit_path("stale"));
    assert_int_equal(mkdir(folder, 0700), 0);
    pid_t gone = fork();
    if (!gone) _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    const struct {
        long pid;
        const char *end;
        bool old, stays;
    } files[] = {{gone, "1.tmp", true, false},        {gone, "2.tmp", false, true}, {getppid(), "3.tmp", true, true},
                 {getpid(), "4000.tmp", true, false}, {gone, "5.tmp2", true, true}, {gone, ".tmp", true, true}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct timespec when = {.tv_sec = time(NULL) - (files[i].old ? 7200 : 0)};
        snprintf(path, sizeof path, "%s/.qkv-%ld-%s", folder, files[i].pid, files[i].end);
        FILE *f = fopen(path, "wx");
        assert_non_null(f);
        fclose(f);
        assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){when, when}, 0), 0);
    }
    snprintf(path, sizeof path, "%s/model", folder);
    OK(outfile_all(path, "x", 1, &err));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/.qkv-%ld-%s", folder, files[i].pid, files[i].end);
        if ((access(path, F_OK) == 0) != files[i].stays) STOP("%s", path);
    }
}

/* Writing fails half-way (the file would grow beyond the limit): an error, the old file whole, no rubbish. */
static void test_outfile_full(void **state)
{
    (void)state;
    char folder[160], path[200];
    snprintf(folder, sizeof folder, "%s", unit_path("full"));
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/a", folder);
    Err err = {0};
    OutFile *o = outfile_open(path, &err);
    OK(o && outfile_write(o, "old", 3, &err) && outfile_commit(o, &err));
    pid_t child = fork();
    if (child == 0) {
        static char block[65536];
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){100000, 100000});
        o = outfile_open(path, &err);
        bool first = outfile_write(o, block, sizeof block, &err), second = outfile_write(o, block, sizeof block, &err);
        outfile_abort(o);
        _exit(first && !second && err.code == E_IO ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect_text(path, "old");
    assert_int_equal(files_in(folder), 1);
}

/* Killed at any time: the old file or the new one, never a part. */
static void test_outfile_killed(void **state)
{
    (void)state;
    enum { SIZE = 1 << 18 };
    char path[200];
    snprintf(path, sizeof path, "%s", unit_path("killed"));
    uint64_t rng = 1;
    for (int round = 0; round < 30; round++) {
        pid_t child = fork();
        if (child == 0) {
            char *block = malloc(SIZE);
            Err err;
            for (int k = 0; block; k++) {
                memset(block, 'a' + k % 26, SIZE);
                OutFile *o = outfile_open(path, &err);
                if (!o || !outfile_write(o, block, SIZE, &err) || !outfile_commit(o, &err)) _exit(1);
            }
            _exit(1);
        }
        usleep(unit_random(&rng) % 10000);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        if (access(path, F_OK)) continue;
        Buf b = unit_read(path);
        assert_int_equal(b.len, SIZE);
        for (size_t i = 1; i < b.len; i++)
            if (b.data[i] != b.data[0]) STOP("a mixed file");
        buf_free(&b);
    }
}

/* Under QKV_TEST_LOCALE (a decimal comma) as without. */
static void test_number(void **state)
{
    (void)state;
    static const double doubles[] = {0, -0.5, 0.1, 1.0 / 3, 1e30, 5e-324, 1.7976931348623157e308, INFINITY, -INFINITY};
    static const char *const shortest[] = {
        "0", "-0.5", "0.1", "0.3333333333333333", "1e+30", "5e-324", "1.7976931348623157e+308", "inf", "-inf"};
    char text[DOUBLE_TEXT];
    const char *end;
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        print_double(text, doubles[i]);
        assert_string_equal(text, shortest[i]);
        assert_true(parse_double(text, &end) == doubles[i] && !*end);
    }
    print_double(text, -NAN);
    assert_string_equal(text, "nan");
    uint64_t rng = 5;
    for (int i = 0; i < 30000; i++) { /* any bits; few digits; powers of two, whose neighbours are not equally near */
        double v = i % 3 == 2 ? ldexp(1, i % 2098 - 1074) : (double)(unit_random(&rng) % 100000) * pow(10, i % 40 - 20);
        uint64_t bits = (uint64_t)unit_random(&rng) << 32 | unit_random(&rng);
        char least[DOUBLE_TEXT] = "";
        if (i % 3 == 0) memcpy(&v, &bits, sizeof v);
        for (int digits = 1; digits <= 17 && parse_double(least, NULL) != v; digits++)
            text_printf(least, sizeof least, "%.*g", digits, isnan(v) ? NAN : v);
        print_double(text, v);
        if (v != 0) assert_string_equal(text, least);
    }
    assert_true(parse_double("0.25,5", &end) == 0.25);
    assert_string_equal(end, ",5");
    assert_true(parse_double("x", &end) == 0);
    assert_string_equal(end, "x");
    assert_int_equal(text_printf(text, sizeof text, "%.2f %g %s", 1.5, 2.25, "x"), 11);
    assert_string_equal(text, "1.50 2.25 x");
    Buf b = {0};
    buf_printf(&b, "%.3g", 0.125);
    assert_string_equal(b.data, "0.125");
    buf_free(&b);
    Err err;
    fail(&err, E_USAGE, "%g", 0.5);
    assert_string_equal(err.msg, "0.5");

    static const struct {
        const char *text;
        int64_t value;
        size_t used;
        bool fits;
    } whole[] = {
        {"0", 0, 1, true},
        {" \t-12x", -12, 5, true},
        {"+7", 7, 2, true},
        {"9223372036854775807", INT64_MAX, 19, true},
        {"-9223372036854775808", INT64_MIN, 20, true},
        {"9223372036854775808", INT64_MAX, 19, false},
        {"-99999999999999999999.5", INT64_MIN, 21, false},
        {"", 0, 0, true},
        {" -", 0, 0, true},
        {"x1", 0, 0, true},
    };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        errno = 0;
        assert_true(parse_int(whole[i].text, &end) == whole[i].value);
        assert_int_equal(end - whole[i].text, whole[i].used);
        assert_int_equal(errno, whole[i].fits ? 0 : ERANGE);
    }
    assert_int_equal(parse_int("5", NULL), 5);
}

/* ASCII alone: in a locale of one byte a letter, isalpha(0xe4) holds. */
static void test_characters(void **state)
{
    (void)state;
    for (int c = -128; c < 256; c++) {
        bool digit = c > 0 && strchr("0123456789", c), upper = c > 0 && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ", c),
             lower = c > 0 && strchr("abcdefghijklmnopqrstuvwxyz", c);
        assert_true(is_digit(c) == digit && is_upper(c) == upper && is_alpha(c) == (upper || lower) &&
                    is_alnum(c) == (digit || upper || lower));
        assert_true(is_space(c) == (c > 0 && strchr(" \t\n\v\f\r", c)));
        assert_int_equal(to_lower(c), upper ? c + 32 : c);
    }
    assert_true(same_word("bFloat16", "BFLOAT16") && same_word("", ""));
    assert_false(same_word("float", "float1") || same_word("float1", "float") || same_word("a", "b"));
}

static void test_cpu(void **state)
{
    (void)state;
    assert_true(cpu_level() <= cpu_best() && cpu_best() >= CPU_GEN && cpu_best() < CPU_LEVELS);
    assert_string_equal(cpu_level_name(CPU_AVX512BF16), "avx512bf16");
    assert_true(cpu_has(cpu_level()) && cpu_has(CPU_GEN) && (cpu_best() == CPU_AMX || !cpu_has(cpu_best() + 1)));
    for (int slow = 0; slow < 2; slow++)
        for (CpuLevel l = CPU_GEN; l < CPU_LEVELS; l++)
            assert_int_equal(cpu_usual(l, slow), slow && l == CPU_AVX512BF16 ? CPU_AVX512VNNI : l);
    assert_in_range(cpu_count(), 1, 1 << 20);
}

static void put(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

/* Cgroups as files: the least quota on the way up counts, of version 2 and of version 1. */
static void test_cgroups(void **state)
{
    (void)state;
    char root[160], own[200], path[200];
    strcpy(root, unit_path("cgroup"));
    snprintf(own, sizeof own, "%s/own", root);
    for (const char *const *d = (const char *const[]){"", "/a", "/a/b", "/cpu", "/cpu/v1", NULL}; *d; d++) {
        snprintf(path, sizeof path, "%s%s", root, *d);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    put(root, "own", "0::/a/b\n");
    assert_true(cgroup_cpus(root, own) == 0);
    put(root, "a/b/cpu.max", "max 100000\n");
    assert_true(cgroup_cpus(root, own) == 0);
    put(root, "a/b/cpu.max", "250000 100000\n");
    assert_true(cgroup_cpus(root, own) == 2.5);
    put(root, "a/cpu.max", "50000 100000\n");
    assert_true(cgroup_cpus(root, own) == 0.5);
    put(root, "a/cpu.max", "400000 100000\n");
    assert_true(cgroup_cpus(root, own) == 2.5);
    put(root, "cpu.max", "150000 100000\n"); /* what a container sees of its own cgroup */
    assert_true(cgroup_cpus(root, own) == 1.5);
    put(root, "cpu/v1/cpu.cfs_quota_us", "30000\n");
    put(root, "cpu/v1/cpu.cfs_period_us", "25000\n");
    assert_true(cgroup_cpus(root, own) == 1.5);
    put(root, "own", "7:memory:/x\n4:cpu,cpuacct:/v1\n0::/a/b\n");
    assert_true(cgroup_cpus(root, own) == 1.2);
    put(root, "cpu/v1/cpu.cfs_quota_us", "-1\n");
    assert_true(cgroup_cpus(root, own) == 1.5);
    put(root, "cpu.max", "nonsense\n");
    assert_true(cgroup_cpus(root, own) == 2.5);
    assert_true(cgroup_cpus("/nowhere", "/nowhere/own") == 0);

    put(root, "own", "0::/a/b\n");
    assert_true(cgroup_memory(root, own) == 0);
    put(root, "a/b/memory.max", "max\n");
    assert_true(cgroup_memory(root, own) == 0);
    put(root, "a/memory.max", "536870912\n");
    assert_true(cgroup_memory(root, own) == 536870912);
    assert_int_equal(mkdir(strcat(strcpy(path, root), "/memory"), 0700), 0);
    put(root, "memory/memory.limit_in_bytes", "268435456\n"); /* what a container sees of its own group */
    assert_true(cgroup_memory(root, own) == 268435456);
    put(root, "memory/memory.limit_in_bytes", "9223372036854771712\n"); /* version 1's word for none */
    assert_true(cgroup_memory(root, own) == 536870912);
    put(root, "a/memory.stat", "anon 36870912\nanon_thp 7\nfile 900000000\n"); /* the kernel can drop pages of files */
    assert_true(cgroup_memory(root, own) == 500000000);
    put(root, "memory/memory.limit_in_bytes", "268435456\n");
    put(root, "memory/memory.stat", "rss 5\ntotal_rss 168435456\n");
    assert_true(cgroup_memory(root, own) == 100000000);
    put(root, "a/memory.stat", "anon 600000000\n");
    assert_true(cgroup_memory(root, own) == 1); /* nothing is left: 0 would be no limit */
    assert_true(cgroup_memory("/nowhere", "/nowhere/own") == 0);
}

/* More than any machine has is refused, and small requests are never held against anything. */
static void test_hopeless(void **state)
{
    (void)state;
    assert_false(mem_hopeless(1 << 20));
    assert_true(mem_hopeless(SIZE_MAX / 2));
    assert_null(mem_zeroed(SIZE_MAX / 4, 2));
    assert_true(mem_ran_out());
    mem_begin();
}

/* A process that may use one CPU counts one. */
static void test_cpu_affinity(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (!child) {
        cpu_set_t all, one;
        size_t first = 0;
        if (sched_getaffinity(0, sizeof all, &all)) _exit(2);
        while (!CPU_ISSET(first, &all)) first++;
        CPU_ZERO(&one);
        CPU_SET(first, &one);
        _exit(sched_setaffinity(0, sizeof one, &one) ? 2 : cpu_count() != 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static double as_stored(DType t, double v)
{
    char p[16];
    store_f64(t, p, v);
    return load_f64(t, p);
}

/* The figures of dtype.def against the code that stores and loads. */
static void test_extremes(void **state)
{
    (void)state;
    for (int i = DT_NONE + 1; i < DT_COUNT; i++) {
        DType t = (DType)i;
        if (dtype_is_complex(t)) continue;
        double low = dtype_lowest(t), high = dtype_highest(t), eps = dtype_epsilon(t);
        assert_true(as_stored(t, low) == low && as_stored(t, high) == high && low < high);
        assert_true(dtype_is_float(t) ? eps > 0 && as_stored(t, 1 + eps) == 1 + eps : eps == 0);
        if (!dtype_is_float(t)) assert_true(low == 0 || high == -low - 1 || t == DT_I64);
        else if (t != DT_F8E8M0) {
            assert_true(low == -high && as_stored(t, 1 + eps / 4) == 1);
            assert_true(!(as_stored(t, high * (1 + eps)) > high) || isinf(as_stored(t, high * (1 + eps))));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_err),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_large),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_buf),
        cmocka_unit_test(test_lookup), cmocka_unit_test(test_map),
        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_dtype),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_small_types),
        cmocka_unit_test(test_promotion),
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_linspace),
        cmocka_unit_test(test_float8),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_storage),
        cmocka_unit_test(test_shape_bytes),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_map_file),
        cmocka_unit_test(test_outfile),
        cmocka_unit_test(test_outfile_stale),
        cmocka_unit_test(test_outfile_full),
        cmocka_unit_test(test_outfile_killed),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_cgroups),
        cmocka_unit_test(test_hopeless),
        cmocka_unit_test(test_cpu_affinity),
        cmocka_unit_test(test_number),
        cmocka_unit_test(test_characters),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
