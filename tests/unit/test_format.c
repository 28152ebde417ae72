/* JSON, tensor files (.safetensors, .npy, .npz) and pictures: round trips, then files that lie. */
#include "unit.h"
#include <math.h>
#include <jpeglib.h>
#include <png.h>
#include <time.h>
#include <zlib.h>
#include "base/file.h"
#include "base/map.h"
#include "base/number.h"
#include "expr/expr.h"
#include "vision/image.h"
#include "base/jsonw.h"
#include "format/json.h"
#include "format/tensors.h"
#include "format/zip.h"

/* ------------------------------------------------------------------ JSON: list B */

/* Same answers as Python's json.loads with duplicate keys refused, but for what json.h says:
 * a top that is not a container, numbers out of range, lone surrogates and NUL in strings. */
static void test_json_list(void **state)
{
    (void)state;
    static const char *const good[] = {
        "[]",
        "{}",
        " [ 1 , 2 ] ",
        "[-0]",
        "[-0.0]",
        "[1e5]",
        "[1E+5]",
        "[0.5e-3]",
        "[9223372036854775807]",
        "[-9223372036854775808]",
        "[true,false,null]",
        "[\"\\u00e9\\n\\\\\\/\"]",
        "[\"\\ud83d\\ude00\"]",
        "[\"\xc3\xa9\"]",
        "{\"a\":{\"a\":1}}",
        "[\"NaN\",\"Infinity\",\"-Infinity\"]",
        "[[[]]]",
        "[1e-400]",
        "[\"]]]]\"]",
        "[\"\\\"[\"]",
        "\t\r\n[]",
    };
    static const char *const bad[] = {
        "{\"a\":1,\"a\":2}",
        "{\"a\":1,\"\\u0061\":2}",
        "[NaN]",
        "[Infinity]",
        "[-Infinity]",
        "[nan]",
        "[1e999]",
        "[9223372036854775808]",
        "[01]",
        "[1.]",
        "[.5]",
        "[+1]",
        "[0x10]",
        "[1,]",
        "[,1]",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "[1] x",
        "[1][",
        "[",
        "]",
        "[]]",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "[\"",
        "[\"\\",
        "[\"\\u",
        "[\"\\u12",
        "[\"\\ud800\"]",
        "[\"\\udc00\"]",
        "[\"\\u0000\"]",
        "[\"\\x41\"]",
        "[\"a\nb\"]",
        "[\"\xff\"]",
        "[\"\xc0\x80\"]",
        "[\"\xed\xa0\x80\"]",
        "[\"\xe2\x82\"]",
        "\xef\xbb\xbf[]",
        "[1] // x",
        "/* x */ []",
        "[1 2]",
        "[tru]",
        "[truee]",
        "1",
        "\"x\"",
        "null",
        " ",
        "[-]",
        "[1e]",
        "[--1]",
        "[\x01]",
    };
    Err err = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        json_t *j = json_read(good[i], strlen(good[i]), "x.json", &err);
        if (!j) STOP("%s: %s", good[i], err.msg);
        json_free(j);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (Err){0};
        if (json_read(bad[i], strlen(bad[i]), "x.json", &err)) STOP("accepted: %s", bad[i]);
        if (err.code != E_FORMAT || strncmp(err.msg, "x.json: ", 8))
            STOP("%s: code %d: %s", bad[i], (int)err.code, err.msg);
    }
    REFUSED(json_read("\0", 1, "x.json", &err), E_FORMAT);
    REFUSED(json_read("[]\0", 3, "x.json", &err), E_FORMAT);
    REFUSED(json_read("[1,\0 2]", 7, "x.json", &err), E_FORMAT);
    REFUSED(json_read(NULL, 0, "x.json", &err), E_FORMAT);
}

static void test_json_large(void **state)
{
    (void)state;
    Err err = {0};
    enum { N = 100000, DIGITS = 5000000 };
    char *s = malloc(DIGITS + 2);
    memset(s, '[', N);
    REFUSED(json_read(s, N, "deep", &err), E_LIMIT);
    for (int depth = 255; depth <= 257; depth++) {
        memset(s, '[', (size_t)depth);
        memset(s + depth, ']', (size_t)depth);
        json_t *j = json_read(s, 2 * (size_t)depth, "deep", &err);
        assert_true(depth <= 256 ? j != NULL : j == NULL && err.code == E_LIMIT);
        json_free(j);
    }
    s[0] = '[';
    memset(s + 1, '7', DIGITS);
    s[DIGITS + 1] = ']';
    REFUSED(json_read(s, DIGITS + 2, "digits", &err), E_FORMAT);
    free(s);
}

enum { PIECES = 15, PIECE = 4, LOW = 20 };

/* Pieces a and b with which FNV-1a, once the hash of every table here, goes on to the same low bits:
 * 2^15 keys put together from them would all begin to search at one slot. */
static uint64_t collide(uint64_t h, char a[PIECE + 1], char b[PIECE + 1])
{
    static uint32_t seen[1 << LOW];
    memset(seen, 0, sizeof seen);
    for (uint32_t n = 1;; n++) {
        uint64_t to = h;
        for (int i = 0; i < PIECE; i++) {
            b[i] = (char)('a' + (n >> 4 * i & 15));
            to = (to ^ (unsigned char)b[i]) * 0x100000001b3u;
        }
        uint32_t *before = &seen[to & ((1 << LOW) - 1)];
        for (int i = 0; i < PIECE; i++) a[i] = (char)('a' + (*before >> 4 * i & 15));
        if (*before) return to;
        *before = n;
    }
}

/* Keys that a file chooses may not make look-ups quadratic: with FNV-1a, each of these three takes seconds. */
static void test_colliding_keys(void **state)
{
    (void)state;
    enum { N = 1 << PIECES, LENGTH = PIECES * PIECE };
    char piece[PIECES][2][PIECE + 1] = {0};
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < PIECES; i++) h = collide(h, piece[i][0], piece[i][1]);
    char(*keys)[LENGTH + 1] = calloc(N, sizeof *keys);
    Buf b = {0};
    for (int k = 0; k < N; k++) {
        for (int i = 0; i < PIECES; i++) memcpy(keys[k] + i * PIECE, piece[i][k >> i & 1], PIECE);
        buf_printf(&b, "%s\"%s\": %d", k ? ", " : "{", keys[k], k);
    }
    buf_puts(&b, "}");
    assert_true((hash_bytes(keys[1], LENGTH) & 0xfffff) == (hash_bytes(keys[N - 1], LENGTH) & 0xfffff));
    Err err = {0};
    clock_t start = clock();
    json_t *j = json_read(b.data, b.len, "keys", &err);
    OK(j);
    Map m = {0};
    Arena *arena = arena_create(0);
    ExprPool *pool = expr_pool(arena);
    for (int64_t k = 0; k < N; k++) {
        assert_int_equal(json_integer_value(json_object_get(j, keys[k])), k);
        assert_true(map_put(&m, keys[k], keys[k]));
        assert_non_null(ex_int(pool, k << 47)); /* equal in the bits that a product keeps at the bottom */
    }
    assert_true(m.count == N && expr_node_count(pool) == N);
    if (clock() - start > CLOCKS_PER_SEC) STOP("%g s for %d keys", (double)(clock() - start) / CLOCKS_PER_SEC, N);
    json_free(j);
    map_free(&m);
    expr_pool_free(pool);
    arena_destroy(arena);
    buf_free(&b);
    free(keys);
}

static void test_json_fields(void **state)
{
    (void)state;
    Err err = {0};
    static const char text[] =
        "{\"o\":{\"k\":5},\"a\":[1],\"s\":\"x\",\"i\":-7,\"r\":1.5,\"b\":true,\"n\":null,\"two\":{\"x\":1,\"y\":2}}";
    json_t *j = json_read(text, sizeof text - 1, "x", &err), *v;
    const char *s;
    int64_t i;
    bool b;
    OK(j && json_want_object(j, "o", &v, &err) && json_want_union(v, &s, &v, &err));
    assert_true(!strcmp(s, "k") && json_integer_value(v) == 5);
    OK(json_want_array(j, "a", &v, &err) && json_array_size(v) == 1);
    OK(json_want_string(j, "s", &s, &err) && !strcmp(s, "x"));
    OK(json_want_int(j, "i", &i, &err) && i == -7);
    OK(json_want_bool(j, "b", &b, &err) && b);
    REFUSED(json_want_int(j, "r", &i, &err), E_FORMAT);
    assert_string_equal(err.msg, "field 'r': found number, expected an integer");
    REFUSED(json_want_string(j, "absent", &s, &err), E_FORMAT);
    assert_string_equal(err.msg, "field 'absent': missing");
    REFUSED(json_want_object(j, "n", &v, &err), E_FORMAT);
    REFUSED(json_want_array(j, "s", &v, &err), E_FORMAT);
    REFUSED(json_want_bool(j, "i", &b, &err), E_FORMAT);
    REFUSED(json_want_bool(NULL, "i", &b, &err), E_FORMAT);
    REFUSED(json_want_union(json_object_get(j, "two"), &s, &v, &err), E_FORMAT);
    assert_string_equal(err.msg, "found an object with 2 keys, expected one key");
    REFUSED(json_want_union(json_object_get(j, "a"), &s, &v, &err), E_FORMAT);
    json_free(j);
}

static void test_json_kept(void **state)
{
    (void)state;
    Err err = {0};
    static const char text[] =
        "{\"a\": {\"data\": [1, [ -2.5e1 ,true],[],null,\"x\\n]\"]}, \"data\": 7, \"b\": {\"data\": []}, "
        "\"last\": [8]}";
    static const JsonType types[] = {JSON_INTEGER, JSON_REAL, JSON_TRUE, JSON_NULL, JSON_STRING};
    json_t *j = json_read_keeping(text, sizeof text - 1, "data", "x", &err);
    OK(j);
    assert_int_equal(json_object_size(j), 4);
    assert_null(json_kept(json_object_get(j, "data")));
    assert_null(json_kept(NULL));
    assert_int_equal(json_integer_value(json_object_get(j, "data")), 7);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(j, "last"), 0)), 8);
    const char *s = json_kept(json_object_get(json_object_get(j, "a"), "data")), *value;
    JsonType type;
    int depth = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        assert_true(json_kept_value(&s, &depth, &type, &value) && type == types[i]);
        if (i == 1) assert_true(parse_double(value, NULL) == -25);
    }
    s = json_kept(json_object_get(json_object_get(j, "b"), "data"));
    depth = 0;
    assert_true(s && !json_kept_value(&s, &depth, &type, &value));
    json_free(j);
    static const char *const bad[] = {
        "{\"data\": [1, }",  "{\"data\": [1 2]}",                "{\"data\": [1e999]}",
        "{\"data\": [[1]}", "{\"data\": [1], \"data\": [2]}", "{\"data\": [{\"a\" 1}]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSED(json_read_keeping(bad[i], strlen(bad[i]), "data", "x", &err), E_FORMAT);
}

/* Objects of every size around where they get a table, loops over nested values,
 * and the bound on what all of it takes. */
static void test_json_many(void **state)
{
    (void)state;
    Err err = {0};
    for (int n = 0; n <= 3000; n = n < 40 ? n + 1 : n * 4) {
        Buf b = {0};
        buf_puts(&b, "{");
        for (int i = 0; i < n; i++) buf_printf(&b, "%s\"key_%d\": [%d, [\"x\"], {\"y\": %d.5}]", i ? "," : "", i, i, i);
        buf_puts(&b, "}");
        json_t *j = json_read(b.data, b.len, "many", &err), *v, *x;
        OK(j);
        assert_int_equal(json_object_size(j), n);
        const char *key;
        char name[32];
        int at = 0;
        json_object_foreach(j, key, v)
        {
            snprintf(name, sizeof name, "key_%d", at);
            assert_string_equal(key, name);
            assert_ptr_equal(json_object_get(j, name), v);
            size_t k;
            json_array_foreach(v, k, x) assert_ptr_equal(x, json_array_get(v, k));
            assert_int_equal(k, 3);
            assert_int_equal(json_integer_value(json_array_get(v, 0)), at);
            assert_true(json_number_value(json_object_get(json_array_get(v, 2), "y")) == at + 0.5);
            at++;
        }
        assert_int_equal(at, n);
        assert_null(json_object_get(j, "key_"));
        assert_null(json_object_get(json_array_get(j, 0), "y"));
        json_free(j);
        if (n) { /* the first key once more, at the end */
            b.data[b.len - 1] = ' ';
            buf_puts(&b, ",\"key_0\":0}");
            REFUSED(json_read(b.data, b.len, "many", &err), E_FORMAT);
            assert_non_null(strstr(err.msg, "duplicate"));
        }
        buf_free(&b);
    }
    Buf b = {0};
    buf_puts(&b, "[{}");
    for (int i = 0; i < 9999; i++) buf_puts(&b, ",{}");
    buf_puts(&b, "]");
    REFUSED(json_read_within(b.data, b.len, 4 * b.len - 20000, "bomb", &err), E_LIMIT);
    json_t *j = json_read_within(b.data, b.len, 4 * b.len, "bomb", &err);
    OK(j);
    json_free(j);
    buf_free(&b);
}

static void test_json_write(void **state)
{
    (void)state;
    Buf b = {0}, inner = {0}, text = {0};
    static const int64_t shape[] = {2, -3};
    static const char *const names[] = {"a, [", "b\"", "\xff\xc3", "\xc3\xa4"};
    jw_put(&b, "{'node': %s, 'n': %d, 'big': %lld, 'x': %g, 'ms': %.3f", "it's", 3, 1LL << 40, 0.1, 1.0 / 3);
    jw_text(&b, "none", NULL);
    jw_bool(&b, "yes", true);
    jw_ints(&b, "shape", shape, 2);
    jw_texts(&b, "key \"1\"", names, 4);
    jw_open(&b, "empty", '{');
    jw_put(&b, "}, 'rows': [");
    for (int i = 0; i < 2; i++) {
        jw_line(&b);
        jw_int(&b, NULL, i);
    }
    jw_text(&inner, NULL, NULL);
    jw_put(&inner, "{'k': 1}");
    buf_puts(&text, "a\tb");
    jw_close(&b, "]");
    jw_list(&b, "list", '[', &inner);
    jw_take(&b, "text", &text);
    jw_close(&b, "}");
    assert_null(text.data);
    assert_string_equal(b.data,
                        "{\"node\": \"it's\", \"n\": 3, \"big\": 1099511627776, \"x\": 0.1, \"ms\": 0.333, "
                        "\"none\": null, \"yes\": true, \"shape\": [2, -3], \"key \\\"1\\\"\": [\"a, [\", \"b\\\"\", "
                        "\"\\ufffd\\ufffd\", \"\xc3\xa4\"], "
                        "\"empty\": {}, \"rows\": [\n0,\n1], \"list\": [null, {\"k\": 1}], \"text\": \"a\\tb\"}");
    b.len = 0;
    jw_put(&b, "{'a b': [1, 'c \\\" d\\\\', {}]}");
    jw_line(&b);
    jw_compact(&b);
    assert_string_equal(b.data, "{\"a b\":[1,\"c \\\" d\\\\\",{}]},");
    buf_free(&b);
    buf_free(&inner);
}

static void test_json_put(void **state)
{
    (void)state;
    Err err = {0};
    static const double numbers[] = {0, -1.5, 0.1, 1e300, 5e-324, 1.0 / 3, 16777217, 1e22, -123456789.123};
    static const char odd[] = "a\"b\\c\n\t\x01\x1f\xc3\xa9/";
    Buf b = {0};
    jw_open(&b, NULL, '[');
    jw_text(&b, NULL, odd);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) jw_number(&b, NULL, numbers[i]);
    jw_number(&b, NULL, (double)NAN);
    jw_number(&b, NULL, -0.0);
    jw_close(&b, "]");
    json_t *j = json_read(b.data, b.len, "put", &err);
    OK(j);
    assert_string_equal(json_string_value(json_array_get(j, 0)), odd);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert_true(json_number_value(json_array_get(j, i + 1)) == numbers[i]);
    assert_true(json_is_null(json_array_get(j, json_array_size(j) - 2)));
    assert_true(signbit(json_number_value(json_array_get(j, json_array_size(j) - 1))));
    assert_non_null(strstr(b.data, ", 0.1, ")); /* the shortest that reads back */
    json_free(j);
    buf_free(&b);
}

/* ------------------------------------------------------------------ tensor files */

static void expect_same(const Tensor *a, const Tensor *b)
{
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->rank, b->rank);
    for (int i = 0; i < a->rank; i++) assert_int_equal(a->shape[i], b->shape[i]);
    size_t n = tensor_bytes(a);
    char *x = malloc(n + 1), *y = malloc(n + 1);
    Tensor p = tensor_of(a->dtype, a->rank, a->shape, x), q = tensor_of(a->dtype, a->rank, a->shape, y);
    tensor_copy(&p, a);
    tensor_copy(&q, b);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void test_tensor_round_trip(void **state)
{
    (void)state;
    Err err = {0};
    static _Alignas(16) unsigned char bytes[1024];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 31 + 7);
    for (int ending = 0; ending < 2; ending++) {
        Tensor t[DT_COUNT + 4];
        char text[DT_COUNT + 4][24];
        const char *names[DT_COUNT + 4];
        size_t n = 0;
        for (int d = DT_NONE + 1; d < DT_COUNT; d++)
            if (dtype_bits((DType)d) < 8) continue;
            else if (!ending || (dtype_size((DType)d) > 1 && d != DT_C32) || d == DT_U8 || d == DT_I8 || d == DT_BOOL)
                t[n++] = tensor_of((DType)d, 2, (int64_t[]){3, 5}, bytes + (d == DT_BOOL ? 1 : 0));
        t[n++] = tensor_of(DT_F32, 0, NULL, bytes);
        t[n++] = tensor_of(DT_I64, 3, (int64_t[]){2, 0, 3}, NULL);
        t[n] = tensor_of(DT_F32, 2, (int64_t[]){4, 3}, bytes);
        t[n].stride[0] = 1, t[n++].stride[1] = 4;
        t[n] = tensor_of(DT_F16, 2, (int64_t[]){4, 3}, bytes);
        t[n].stride[0] = 0, t[n++].stride[1] = 2;
        for (size_t i = 0; i < n; i++) {
            snprintf(text[i], sizeof text[i], "%s/%zu", dtype_name(t[i].dtype), i);
            names[i] = text[i];
        }
        const char *path = unit_path(ending ? "t.npz" : "t.safetensors");
        OK(tensorfile_write(path, names, t, n, &err));
        TensorFile *f = tensorfile_open(path, &err);
        OK(f);
        assert_int_equal(tensorfile_count(f), n);
        for (size_t i = 0; i < n; i++) {
            const Tensor *r = tensorfile_find(f, names[i]);
            assert_non_null(r);
            assert_string_equal(tensorfile_name(f, i), names[i]);
            assert_ptr_equal(r, tensorfile_at(f, i));
            assert_int_equal((uintptr_t)r->data % dtype_size(r->dtype), 0);
            expect_same(&t[i], r);
        }
        assert_null(tensorfile_find(f, "absent"));
        assert_null(tensorfile_metadata(f, "absent"));
        tensorfile_close(f);
    }
    tensorfile_close(NULL);
}

/* Neither format has types of 4 and 2 bits. */
static void test_tensor_small_types(void **state)
{
    (void)state;
    Err err = {0};
    int8_t bytes[3] = {-2, 1, 0}, codes[3] = {0, 7, 9};
    Tensor t[3] = {tensor_of(DT_I2, 1, (int64_t[]){3}, bytes), tensor_of(DT_U4, 1, (int64_t[]){3}, codes),
                   tensor_of(DT_F4E2M1, 1, (int64_t[]){3}, codes)};
    const char *names[3] = {"i2", "u4", "f4"};
    for (int ending = 0; ending < 2; ending++) {
        const char *path = unit_path(ending ? "small.npz" : "small.safetensors");
        OK(tensorfile_write(path, names, t, 3, &err));
        TensorFile *f = tensorfile_open(path, &err);
        OK(f);
        const Tensor *a = tensorfile_find(f, "i2"), *b = tensorfile_find(f, "u4"), *c = tensorfile_find(f, "f4");
        assert_true(a->dtype == DT_I8 && b->dtype == DT_U8 && c->dtype == DT_F32);
        assert_true(tensor_get_i64(a, 0) == -2 && tensor_get_i64(b, 2) == 9 && tensor_get(c, 1) == 6 &&
                    tensor_get(c, 2) == -0.5);
        tensorfile_close(f);
    }
}

/* What is written is read again, though there is nothing in it; NumPy, too, knows an archive by its first bytes. */
static void test_no_tensors(void **state)
{
    (void)state;
    Err err = {0};
    for (int ending = 0; ending < 2; ending++) {
        const char *path = unit_path(ending ? "none.npz" : "none.safetensors");
        OK(tensorfile_write(path, NULL, NULL, 0, &err));
        TensorFile *f = tensorfile_open(path, &err);
        OK(f);
        assert_int_equal(tensorfile_count(f), 0);
        tensorfile_close(f);
    }
}

static void test_tensor_names(void **state)
{
    (void)state;
    Err err = {0};
    float x[2] = {1, 2};
    Tensor t[2] = {tensor_of(DT_F32, 1, (int64_t[]){2}, x), tensor_of(DT_F32, 1, (int64_t[]){1}, x)};
    const char *cased[] = {"w", "W"}, *same[] = {"w", "w"}, *meta[] = {"__metadata__", "x"}, *broken[] = {"\xff", "x"},
               *out[] = {"../w", "x"};
    for (int ending = 0; ending < 2; ending++) {
        const char *path = unit_path(ending ? "n.npz" : "n.safetensors");
        OK(tensorfile_write(path, cased, t, 2, &err));
        TensorFile *f = tensorfile_open(path, &err);
        OK(f && tensorfile_find(f, "w")->shape[0] == 2 && tensorfile_find(f, "W")->shape[0] == 1);
        tensorfile_close(f);
        REFUSED(tensorfile_write(path, same, t, 2, &err), E_USAGE);
    }
    REFUSED(tensorfile_write(unit_path("n.safetensors"), meta, t, 2, &err), E_USAGE);
    REFUSED(tensorfile_write(unit_path("n.safetensors"), broken, t, 2, &err), E_USAGE);
    REFUSED(tensorfile_write(unit_path("n.npz"), out, t, 2, &err), E_USAGE);
    REFUSED(tensorfile_write(unit_path("n.txt"), cased, t, 2, &err), E_USAGE);
    REFUSED(tensorfile_write(unit_path("n.npy"), cased, t, 2, &err), E_USAGE);
    const char *path = unit_path("array.v1.npy");
    OK(tensorfile_write(path, cased, t, 1, &err));
    TensorFile *f = tensorfile_open(path, &err);
    OK(f);
    assert_string_equal(tensorfile_name(f, 0), "array.v1");
    expect_same(tensorfile_at(f, 0), &t[0]);
    tensorfile_close(f);
    t[0].dtype = DT_F8E5M2;
    REFUSED(tensorfile_write(unit_path("n.npz"), cased, t, 1, &err), E_UNSUPPORTED);
}

/* A .safetensors of this header and n data bytes. */
static Buf safetensors(const char *header, size_t n)
{
    Buf b = {0};
    put_le(&b, strlen(header), 8);
    buf_puts(&b, header);
    for (size_t i = 0; i < n; i++) buf_add(&b, &(char){(char)i}, 1);
    return b;
}

static bool opens(const void *bytes, size_t n, Err *err)
{
    unsigned sum = 0;
    TensorFile *f = tensorfile_open(unit_file(bytes, n), err);
    if (!f) return false;
    for (size_t i = 0; i < tensorfile_count(f); i++) {
        const Tensor *t = tensorfile_at(f, i);
        assert_true(t->rank <= MAX_RANK && tensor_bytes(t) <= 1 << 20);
        for (int64_t k = 0; k < tensor_numel(t); k++) sum += tensor_get(t, k) > 0;
    }
    tensorfile_close(f);
    return sum < 1 << 30;
}

/* Every prefix is refused; flipped bits and overwritten numbers never crash. */
static void shake(const Buf *b)
{
    Err err;
    for (size_t n = 0; n < b->len; n++) {
        err = (Err){0};
        if (opens(b->data, n, &err)) STOP("accepted %zu of %zu bytes", n, b->len);
        assert_true(err.code && *err.msg);
    }
    OK(opens(b->data, b->len, &err));
    char *copy = malloc(b->len);
    for (size_t i = 0; i < b->len * 8; i++) {
        memcpy(copy, b->data, b->len);
        copy[i / 8] = (char)(copy[i / 8] ^ 1 << i % 8);
        opens(copy, b->len, &err);
    }
    uint64_t rng = 7;
    for (int round = 0; round < 3000; round++) {
        static const char alphabet[] = "0123456789-{}[](),:'\"\\ef.\0\xff";
        memcpy(copy, b->data, b->len);
        for (uint32_t k = unit_random(&rng) % 4 + 1; k; k--)
            copy[unit_random(&rng) % b->len] = alphabet[unit_random(&rng) % (sizeof alphabet - 1)];
        opens(copy, b->len, &err);
    }
    free(copy);
}

static void test_safetensors(void **state)
{
    (void)state;
    Err err = {0};
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[1,17]},"
        "\"b\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[0,1]},\"c\":{\"dtype\":\"I64\",\"shape\":[0,9],"
        "\"data_offsets\":[17,17]}}  ";
    Buf b = safetensors(header, 17);
    TensorFile *f = tensorfile_open(unit_file(b.data, b.len), &err);
    OK(f);
    assert_string_equal(tensorfile_metadata(f, "format"), "pt");
    const Tensor *a = tensorfile_find(f, "a");
    assert_int_equal((uintptr_t)a->data % 4, 0); /* not aligned in the file: moved */
    assert_memory_equal(a->data, "\1\2\3\4\5\6\7\10", 8);
    tensorfile_close(f);
    shake(&b);
    buf_puts(&b, "x");
    REFUSED(opens(b.data, b.len, &err), E_FORMAT); /* a byte too many */
    buf_free(&b);
}

static void test_safetensors_hostile(void **state)
{
    (void)state;
    Err err = {0};
    static const struct {
        ErrCode code;
        const char *text, *header;
    } rows[] = {
        {E_FORMAT, "overlap",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]},\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_"
         "offsets\":[8,16]}}"},
        {E_FORMAT, "belong to no tensor",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[7],\"data_offsets\":[0,7]},\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_"
         "offsets\":[8,16]}}"},
        {E_FORMAT, "the tensors end at byte 15", "{\"a\":{\"dtype\":\"U8\",\"shape\":[15],\"data_offsets\":[0,15]}}"},
        {E_FORMAT, "the tensors end at byte 0", "{}"},
        {E_FORMAT, "outside", "{\"a\":{\"dtype\":\"U8\",\"shape\":[17],\"data_offsets\":[0,17]}}"},
        {E_FORMAT, "outside", "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[16,8]}}"},
        {E_FORMAT, "outside", "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[-1,-1]}}"},
        {E_FORMAT, "outside",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[9223372036854775791,9223372036854775807]}}"},
        {E_FORMAT, "its shape and dtype need 12", "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,16]}}"},
        {E_FORMAT, "size 0 is -4", "{\"a\":{\"dtype\":\"F32\",\"shape\":[-4,-1],\"data_offsets\":[0,16]}}"},
        {E_LIMIT, "2^46",
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[4194305,4194305,211106198978564],\"data_offsets\":[0,16]}}"},
        {E_LIMIT, "2^46", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4,0],\"data_offsets\":[0,0]}}"},
        {E_UNSUPPORTED, "'F4'", "{\"a\":{\"dtype\":\"F4\",\"shape\":[32],\"data_offsets\":[0,16]}}"},
        {E_UNSUPPORTED, "'float32'", "{\"a\":{\"dtype\":\"float32\",\"shape\":[4],\"data_offsets\":[0,16]}}"},
        {E_UNSUPPORTED, "rank 17",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,16],\"data_offsets\":[0,16]}}"},
        {E_FORMAT, "data_offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16,16]}}"},
        {E_FORMAT, "data_offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[]}}"},
        {E_FORMAT, "field 'shape': missing", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,16]}}"},
        {E_FORMAT, "expected an integer", "{\"a\":{\"dtype\":\"U8\",\"shape\":[16.0],\"data_offsets\":[0,16]}}"},
        {E_FORMAT, "found array", "{\"a\":[]}"},
        {E_FORMAT, "duplicate",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]},\"a\":{\"dtype\":\"U8\",\"shape\":[16],"
         "\"data_offsets\":[0,16]}}"},
        {E_FORMAT, "expected an object", "[1]"},
        {E_FORMAT, "__metadata__", "{\"__metadata__\":5}"},
        {E_FORMAT, "__metadata__", "{\"__metadata__\":{\"a\":5}}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Buf b = safetensors(rows[i].header, 16);
        err = (Err){0};
        if (opens(b.data, b.len, &err)) STOP("accepted: %s", rows[i].header);
        if (err.code != rows[i].code || !strstr(err.msg, rows[i].text))
            STOP("%s: code %d: %s", rows[i].header, (int)err.code, err.msg);
        buf_free(&b);
    }
    Buf b = {0};
    put_le(&b, UINT64_MAX, 8);
    buf_puts(&b, "{}");
    REFUSED(opens(b.data, b.len, &err), E_FORMAT);
    buf_free(&b);
}

/* A .npy with this header text and n data bytes. */
static Buf npy(int version, const char *header, size_t n)
{
    Buf b = {0};
    buf_add(&b, "\x93NUMPY", 6);
    put_le(&b, (uint64_t)version, 2);
    put_le(&b, strlen(header), version == 1 ? 2 : 4);
    buf_puts(&b, header);
    for (size_t i = 0; i < n; i++) buf_add(&b, &(char){(char)(i + 1)}, 1);
    return b;
}

static void test_npy(void **state)
{
    (void)state;
    Err err = {0};
    static const char *const good[] = {
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }          \n",
        "{'descr':'<i2','fortran_order':False,'shape':(2,3)}",
        "{\"shape\": (2L, 3L), \"descr\": \"=i2\", \"fortran_order\": False}\n",
        "{'descr': '|V2', 'fortran_order': False, 'shape': (6,)}\n",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        for (int version = 1; version <= 3; version++) {
            Buf b = npy(version, good[i], 12);
            TensorFile *f = tensorfile_open(unit_file(b.data, b.len), &err);
            OK(f);
            assert_int_equal(tensor_numel(tensorfile_at(f, 0)), 6);
            assert_int_equal(tensorfile_at(f, 0)->dtype, i == 3 ? DT_BF16 : DT_I16);
            tensorfile_close(f);
            buf_free(&b);
        }
    Buf b = npy(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n", 6);
    TensorFile *f = tensorfile_open(unit_file(b.data, b.len), &err);
    OK(f);
    static const int64_t want[] = {1, 3, 5, 2, 4, 6};
    for (int i = 0; i < 6; i++) assert_int_equal(tensor_get_i64(tensorfile_at(f, 0), i), want[i]);
    tensorfile_close(f);
    shake(&b);
    buf_free(&b);
    b = npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n", 4);
    OK(opens(b.data, b.len, &err));
    buf_free(&b);
}

static void test_npy_hostile(void **state)
{
    (void)state;
    Err err = {0};
    static const struct {
        ErrCode code;
        const char *text, *header;
    } rows[] = {
        {E_UNSUPPORTED, "big-endian", "{'descr': '>f4', 'fortran_order': False, 'shape': (4,), }"},
        {E_UNSUPPORTED, "never read", "{'descr': '|O', 'fortran_order': False, 'shape': (4,), }"},
        {E_UNSUPPORTED, "structured", "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }"},
        {E_UNSUPPORTED, "'<U4' is not known", "{'descr': '<U4', 'fortran_order': False, 'shape': (1,), }"},
        {E_UNSUPPORTED, "rank above",
         "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4), }"},
        {E_FORMAT, "need 12", "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"},
        {E_FORMAT, "need 20", "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }"},
        {E_LIMIT, "2^46", "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 4), }"},
        {E_LIMIT, "2^46",
         "{'descr': '<f4', 'fortran_order': True, 'shape': (9223372036854775807, 9223372036854775807, 0), }"},
        {E_FORMAT, "not a number", "{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }"},
        {E_FORMAT, "not a tuple", "{'descr': '<f4', 'fortran_order': False, 'shape': (4), }"},
        {E_FORMAT, "not a tuple", "{'descr': '<f4', 'fortran_order': False, 'shape': 4, }"},
        {E_FORMAT, "not a number", "{'descr': '<f4', 'fortran_order': False, 'shape': (2 2), }"},
        {E_FORMAT, "expected {", "{'descr': '<f4', 'shape': (4,), }"},
        {E_FORMAT, "expected {", "{'descr': '<f4', 'fortran_order': False}"},
        {E_FORMAT, "expected {", "{'descr': '<f4', 'fortran_order': 1, 'shape': (4,), }"},
        {E_FORMAT, "expected {", "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'x': 1}"},
        {E_FORMAT, "expected {", "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (4,)}"},
        {E_FORMAT, "expected {", "{'descr': '<f4', 'fortran_order': False, 'shape': (4,)} __import__('os')"},
        {E_FORMAT, "expected {", ""},
        {E_FORMAT, "not a string", "{'descr': '<f4"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Buf b = npy(1, rows[i].header, 16);
        err = (Err){0};
        if (opens(b.data, b.len, &err)) STOP("accepted: %s", rows[i].header);
        if (err.code != rows[i].code || !strstr(err.msg, rows[i].text))
            STOP("%s: code %d: %s", rows[i].header, (int)err.code, err.msg);
        buf_free(&b);
    }
    Buf b = npy(4, rows[5].header, 12);
    REFUSED(opens(b.data, b.len, &err), E_UNSUPPORTED);
    buf_free(&b);
}

static void test_npz(void **state)
{
    (void)state;
    Err err = {0};
    float x[300];
    for (int i = 0; i < 300; i++) x[i] = (float)(i % 7);
    const char *names[] = {"x", "y"};
    Tensor t[2] = {tensor_of(DT_F32, 2, (int64_t[]){3, 2}, x), tensor_of(DT_F32, 1, (int64_t[]){1}, x)};
    const char *path = unit_path("z.npz");
    OK(tensorfile_write(path, names, t, 2, &err));
    Buf b = unit_read(path);
    shake(&b);
    buf_free(&b);
}

/* ------------------------------------------------------------------ pictures */

static bool reads(const void *bytes, size_t n, Image *im, Err *err) { return image_read(im, unit_file(bytes, n), err); }

static Buf png_of(uint32_t format, int w, int h, const void *pixels)
{
    png_image png = {.version = PNG_IMAGE_VERSION, .width = (png_uint_32)w, .height = (png_uint_32)h, .format = format};
    png_alloc_size_t n = 0;
    Buf b = {0};
    assert_true(png_image_write_to_memory(&png, NULL, &n, 0, pixels, 0, NULL));
    b.data = malloc(n);
    b.len = b.cap = n;
    assert_true(png_image_write_to_memory(&png, b.data, &n, 0, pixels, 0, NULL));
    return b;
}

static Buf jpeg_of(J_COLOR_SPACE space, int channels, int w, int h, bool progressive)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    unsigned char *out = NULL, row[4 * 64];
    unsigned long n = 0;
    c.err = jpeg_std_error(&e);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &n);
    c.image_width = (JDIMENSION)w;
    c.image_height = (JDIMENSION)h;
    c.input_components = channels;
    c.in_color_space = space;
    jpeg_set_defaults(&c);
    if (progressive) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < h; y++) {
        for (int i = 0; i < w * channels; i++) row[i] = (unsigned char)(y * 4 + i * 2);
        jpeg_write_scanlines(&c, &(JSAMPROW){row}, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    Buf b = {0};
    buf_add(&b, out, n);
    free(out);
    return b;
}

/* Every prefix is an error, no flipped bit a crash. */
static void shake_image(const Buf *b)
{
    Err err = {0};
    Image im;
    OK(reads(b->data, b->len, &im, &err));
    image_free(&im);
    for (size_t n = 0; n < b->len; n++) {
        if (reads(b->data, n, &im, &err)) STOP("accepted %zu of %zu bytes", n, b->len);
        assert_null(im.pixels);
    }
    char *copy = malloc(b->len);
    for (size_t i = 0; i < b->len * 8; i++) {
        memcpy(copy, b->data, b->len);
        copy[i / 8] = (char)(copy[i / 8] ^ 1 << i % 8);
        if (i / 8 >= 8 && reads(copy, b->len, &im, &err)) image_free(&im);
    }
    free(copy);
}

static void test_png(void **state)
{
    (void)state;
    Err err = {0};
    uint8_t pixels[5 * 4 * 3];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 11);
    for (int channels = 1; channels <= 3; channels += 2) {
        Image im = {5, 4, channels, pixels}, back;
        OK(image_write_png(&im, unit_path("a.png"), &err) && image_read(&back, unit_path("a.png"), &err));
        assert_true(back.width == 5 && back.height == 4 && back.channels == channels);
        assert_memory_equal(back.pixels, pixels, (size_t)(20 * channels));
        image_free(&back);
        Buf b = unit_read(unit_path("a.png"));
        shake_image(&b);
        buf_free(&b);
    }
    static const uint8_t clear[] = {10, 20, 30, 255, 10, 20, 30, 0, 0, 100, 200, 128};
    Buf b = png_of(PNG_FORMAT_RGBA, 3, 1, clear);
    Image im;
    OK(reads(b.data, b.len, &im, &err));
    assert_int_equal(im.channels, 3);
    assert_memory_equal(im.pixels, "\12\24\36\377\377\377", 6);
    assert_true(im.pixels[6] == 127 && im.pixels[7] == 177 && im.pixels[8] == 227);
    image_free(&im);
    buf_free(&b);
    REFUSED(reads("GIF89a..........", 16, &im, &err), E_FORMAT);
    REFUSED(image_read(&im, unit_path("absent.png"), &err), E_IO);
}

/* Written chunk by chunk: 16 bits are reduced as they are, without gamma;
 * sizes that would take all memory are refused early. */
static void png_chunk(Buf *b, const char *type, const void *data, size_t n)
{
    unsigned char size[4] = {0, 0, (unsigned char)(n >> 8), (unsigned char)n}, sum[4];
    uLong crc = crc32(crc32(0, (const Bytef *)type, 4), data, (uInt)n);
    for (int i = 0; i < 4; i++) sum[i] = (unsigned char)(crc >> (24 - 8 * i));
    buf_add(b, size, 4);
    buf_add(b, type, 4);
    buf_add(b, data, n);
    buf_add(b, sum, 4);
}

static Buf raw_png(const unsigned char header[13], const void *rows, size_t n)
{
    unsigned char z[200];
    uLongf length = sizeof z;
    assert_int_equal(compress(z, &length, rows, n), Z_OK);
    Buf b = {0};
    buf_add(&b, "\x89PNG\r\n\x1a\n", 8);
    png_chunk(&b, "IHDR", header, 13);
    png_chunk(&b, "gAMA", "\0\1\206\240", 4); /* 1.0: must change nothing */
    png_chunk(&b, "IDAT", z, length);
    png_chunk(&b, "IEND", "", 0);
    return b;
}

static void test_png_raw(void **state)
{
    (void)state;
    Err err = {0};
    Image im;
    Buf b = raw_png((const unsigned char[]){0, 0, 0, 2, 0, 0, 0, 1, 16, 0, 0, 0, 0}, "\0\200\200\20\20", 5);
    OK(reads(b.data, b.len, &im, &err));
    assert_true(im.channels == 1 && im.pixels[0] == 0x80 && im.pixels[1] == 0x10);
    image_free(&im);
    buf_free(&b);
    b = raw_png((const unsigned char[]){0x40, 0, 0, 0, 0x40, 0, 0, 0, 8, 2, 0, 0, 0}, "\0", 1);
    REFUSED(reads(b.data, b.len, &im, &err), E_FORMAT);
    buf_free(&b);
    b = raw_png((const unsigned char[]){0, 1, 0, 0, 0, 1, 0, 0, 8, 2, 0, 0, 0}, "\0", 1);
    REFUSED(reads(b.data, b.len, &im, &err), E_LIMIT);
    buf_free(&b);
    b = raw_png((const unsigned char[]){0, 0, 0, 9, 0, 0, 0, 9, 8, 2, 0, 0, 0}, "\0", 1); /* too few rows */
    REFUSED(reads(b.data, b.len, &im, &err), E_FORMAT);
    buf_free(&b);
}

static void test_jpeg(void **state)
{
    (void)state;
    Err err = {0};
    Image im;
    for (int kind = 0; kind < 4; kind++) {
        bool color = kind & 1, progressive = kind & 2;
        Buf b = jpeg_of(color ? JCS_RGB : JCS_GRAYSCALE, color ? 3 : 1, 40, 24, progressive);
        OK(reads(b.data, b.len, &im, &err));
        assert_true(im.width == 40 && im.height == 24 && im.channels == (color ? 3 : 1));
        image_free(&im);
        shake_image(&b);
        buf_free(&b);
    }
    Buf b = jpeg_of(JCS_CMYK, 4, 8, 8, false);
    REFUSED(reads(b.data, b.len, &im, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "CMYK"));
    buf_free(&b);
}

static void test_image_to_tensor(void **state)
{
    (void)state;
    Err err = {0};
    uint8_t pixels[4 * 4 * 3];
    float out[3 * 16];
    for (int i = 0; i < 48; i++) pixels[i] = (uint8_t)(i * 5);
    Image im = {4, 4, 3, pixels};
    OK(image_to_tensor(&im, 3, 4, 4, (float[]){0, 0.5f, 0}, (float[]){1, 0.5f, 1}, out,
                       &err)); /* the same size: the pixels themselves */
    for (int i = 0; i < 16; i++) {
        assert_true(fabsf(out[i] - (float)pixels[3 * i] / 255) < 1e-6f);
        assert_true(fabsf(out[16 + i] - ((float)pixels[3 * i + 1] / 255 - 0.5f) / 0.5f) < 1e-6f);
    }
    OK(image_to_tensor(&im, 1, 2, 2, NULL, NULL, out, &err));
    uint8_t gray[16] = {0, 0, 100, 100, 0, 0, 100, 100, 0, 0, 100, 100, 0, 0, 100, 100};
    Image g = {4, 4, 1, gray};
    OK(image_to_tensor(&g, 3, 1, 2, NULL, NULL, out, &err)); /* Pillow: weights 1/8 3/8 3/8 1/8, cut at the border */
    for (int c = 0; c < 3; c++)
        assert_true(fabsf(out[2 * c] * 255 - 100.0f / 7) < 1e-3f && fabsf(out[2 * c + 1] * 255 - 600.0f / 7) < 1e-3f);
    memset(gray, 77, sizeof gray);
    OK(image_to_tensor(&g, 1, 7, 5, NULL, NULL, out, &err)); /* a plain picture stays plain */
    for (int i = 0; i < 35; i++) assert_true(fabsf(out[i] * 255 - 77) < 1e-3f);
    REFUSED(image_to_tensor(&im, 2, 4, 4, NULL, NULL, out, &err), E_USAGE);
    REFUSED(image_to_tensor(&im, 3, 0, 4, NULL, NULL, out, &err), E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_list),
        cmocka_unit_test(test_colliding_keys),
        cmocka_unit_test(test_json_large),
        cmocka_unit_test(test_json_fields),
        cmocka_unit_test(test_json_kept),
        cmocka_unit_test(test_json_many),
        cmocka_unit_test(test_json_write),
        cmocka_unit_test(test_json_put),
        cmocka_unit_test(test_tensor_round_trip),
        cmocka_unit_test(test_tensor_small_types),
        cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_tensor_names),
        cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_safetensors_hostile),
        cmocka_unit_test(test_npy),
        cmocka_unit_test(test_npy_hostile),
        cmocka_unit_test(test_npz),
        cmocka_unit_test(test_png),
        cmocka_unit_test(test_png_raw),
        cmocka_unit_test(test_jpeg),
        cmocka_unit_test(test_image_to_tensor),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
