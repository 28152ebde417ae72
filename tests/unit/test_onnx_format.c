/* ONNX files: bytes put together here field by field, so that each can lie, read as the records of onnx.h and written
 * again.
 *
 *     Buf t = {0};
 *     vi(&t, 1, 3); vi(&t, 2, ONNX_FLOAT); by(&t, 9, raw, 12);        TensorProto: dims 3, FLOAT, raw_data
 */
#include "unit.h"
#include <math.h>
#include <sys/stat.h>
#include "onnx/wire/onnx.h"
#include "format/proto.h"
#include "onnx_sample.h"

/* ------------------------------------------------------------------ bytes */

static void var(Buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) buf_add(b, &(uint8_t){(uint8_t)(v | 0x80)}, 1);
    buf_add(b, &(uint8_t){(uint8_t)v}, 1);
}
static void vi(Buf *b, unsigned field, int64_t v) { var(b, field << 3), var(b, (uint64_t)v); }
static void by(Buf *b, unsigned field, const void *p, size_t n) { var(b, field << 3 | 2), var(b, n), buf_add(b, p, n); }
static void st(Buf *b, unsigned field, const char *s) { by(b, field, s, strlen(s)); }
static void fl(Buf *b, unsigned field, float v) { var(b, field << 3 | 5), buf_add(b, &v, 4); }
/* A message in a message; it is freed. */
static void in(Buf *b, unsigned field, Buf *m) { by(b, field, m->data, m->len), buf_free(m), *m = (Buf){0}; }

static Buf pair_of(const char *key, const char *value)
{
    Buf b = {0};
    st(&b, 1, key), st(&b, 2, value);
    return b;
}

/* A model around the fields of its graph. */
static Buf model_of(Buf *graph)
{
    Buf m = {0}, o = {0};
    vi(&m, 1, 10);
    in(&m, 7, graph);
    vi(&o, 2, 21);
    in(&m, 8, &o);
    return m;
}

static Buf model_with(unsigned field, Buf *in_graph)
{
    Buf g = {0};
    in(&g, field, in_graph);
    return model_of(&g);
}

static OnnxFile *opened(const Buf *b, Err *err) { return onnx_open_bytes(b->data, b->len, NULL, err); }

#define REFUSED_BYTES(b, code, part)                                                                                   \
    do {                                                                                                               \
        REFUSED(opened((b), &err), (code));                                                                            \
        if (!strstr(err.msg, (part))) STOP("'%s' lacks '%s'", err.msg, (part));                                        \
        buf_free(b);                                                                                                   \
        *(b) = (Buf){0};                                                                                               \
    } while (0)

/* ------------------------------------------------------------------ the wire */

static void test_wire(void **state)
{
    (void)state;
    Err err = {0};
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } bad[] = {
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, "byte 1: a number of more than 10 bytes"},
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11, "byte 1: a number of more than 64 bits"},
        {"\x08\xff", 2, "byte 1: a number that the end"},
        {"\x0a\x05"
         "abc",
         5, "byte 1: field 1 declares 5 bytes, 3 are left"},
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "field 1 declares 18446744073709551615 bytes, 0 are left"},
        {"\x08\x01\x0b\x0c", 4, "byte 2: a group"},
        {"\x0c", 1, "a group"},
        {"\x0e\x01", 2, "a wire type that does not exist"},
        {"\x0f\x01", 2, "a wire type that does not exist"},
        {"\x00\x01", 2, "field number 0"},
        {"\xf8\xff\xff\xff\x10\x01", 6, "a field number above"},
        {"\x0d\x01\x02\x03", 4, "cuts off"},
        {"\x09\x01\x02\x03\x04\x05\x06\x07", 8, "cuts off"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Pb m = pb_of(bad[i].bytes, bad[i].n);
        PbField f;
        err = (Err){0};
        while (pb_next(&m, &f, &err)) {
        }
        assert_true(m.bad && err.code == E_FORMAT);
        if (!strstr(err.msg, bad[i].says)) STOP("row %zu: '%s' lacks '%s'", i, err.msg, bad[i].says);
        assert_false(pb_next(&m, &f, &err));
    }
    Pb m = pb_of(
        "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x12\x00\x1d\x00\x00\x80\x3f\x21\x01\x00\x00\x00\x00\x00\x00\x80",
        27);
    PbField f;
    int64_t i;
    float x;
    assert_true(pb_next(&m, &f, &err) && f.number == 1 && pb_int(&f, &i, &err) && i == -1);
    assert_true(pb_next(&m, &f, &err) && f.number == 2 && f.wire == PB_BYTES && f.size == 0);
    assert_true(pb_next(&m, &f, &err) && f.number == 3 && pb_float(&f, &x, &err) && x == 1);
    assert_true(pb_next(&m, &f, &err) && f.number == 4 && f.wire == PB_FIXED64 && f.value == 0x8000000000000001u);
    assert_false(pb_next(&m, &f, &err) || m.bad);
    REFUSED(pb_int(&f, &i, &err), E_FORMAT);
}

/* ------------------------------------------------------------------ tensors */

static bool tensor(const Buf *b, Arena *a, OnnxTensor *t, Err *err)
{
    return onnx_read_tensor(a, b->data, b->len, t, err);
}

static Buf head(int type, int rank, const int64_t *dims)
{
    Buf b = {0};
    for (int i = 0; i < rank; i++) vi(&b, 1, dims[i]);
    vi(&b, 2, type);
    return b;
}

static void test_tensor_raw(void **state)
{
    (void)state;
    Err err = {0};
    Arena *a = arena_create(0);
    OnnxTensor t;
    static _Alignas(16) uint8_t file[256];
    float x[6] = {1, 2, 3, 4, 5, 6};
    for (size_t shift = 0; shift < 4; shift++) { /* borrowed where aligned */
        Buf b = head(ONNX_FLOAT, 2, (int64_t[]){2, 3});
        st(&b, 8, "w");
        by(&b, 9, x, sizeof x);
        memcpy(file + shift, b.data, b.len);
        OK(onnx_read_tensor(a, file + shift, b.len, &t, &err));
        assert_string_equal(t.name, "w");
        assert_true(t.t.dtype == DT_F32 && t.t.rank == 2 && t.t.shape[0] == 2 && t.t.shape[1] == 3 &&
                    tensor_contiguous(&t.t));
        assert_memory_equal(t.t.data, x, sizeof x);
        uint8_t *at = file + shift + b.len - sizeof x;
        assert_int_equal(t.t.data == at, (uintptr_t)at % 4 == 0);
        assert_int_equal((uintptr_t)t.t.data % 4, 0);
        buf_free(&b);
    }
    static const struct {
        int type;
        size_t bytes;
        int8_t want[5];
    } small[] = {
        {ONNX_INT4, 3, {1, -8, -1, 7, 2}}, {ONNX_UINT4, 3, {1, 8, 15, 7, 2}}, {ONNX_FLOAT4E2M1, 3, {1, 8, 15, 7, 2}}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        Buf b = head(small[i].type, 1, (int64_t[]){5});
        by(&b, 9, "\x81\x7f\x02", small[i].bytes);
        OK(tensor(&b, a, &t, &err));
        assert_memory_equal(t.t.data, small[i].want, 5);
        buf_free(&b);
    }
    for (int k = 0; k < 2; k++) {
        Buf b = head(k ? ONNX_INT2 : ONNX_UINT2, 1, (int64_t[]){5});
        by(&b, 9, "\xe4\x03", 2);
        OK(tensor(&b, a, &t, &err));
        assert_memory_equal(t.t.data, k ? ((int8_t[]){0, 1, -2, -1, -1}) : ((int8_t[]){0, 1, 2, 3, 3}), 5);
        buf_free(&b);
    }
    Buf b = head(ONNX_BOOL, 1, (int64_t[]){3}); /* whatever is not 0 is true, and a bool in memory is 0 or 1 */
    by(&b, 9, "\x00\x02\xff", 3);
    OK(tensor(&b, a, &t, &err));
    assert_memory_equal(t.t.data, "\0\1\1", 3);
    buf_free(&b);
    b = head(ONNX_FLOAT, 2, (int64_t[]){0, 7});
    OK(tensor(&b, a, &t, &err));
    assert_true(tensor_numel(&t.t) == 0);
    buf_free(&b);
    arena_destroy(a);
}

static void test_tensor_typed(void **state)
{
    (void)state;
    Err err = {0};
    Arena *a = arena_create(0);
    OnnxTensor t;
    static const struct {
        int type, field;
    } ints[] = {{ONNX_INT32, 5}, {ONNX_INT16, 5}, {ONNX_INT8, 5},    {ONNX_UINT16, 5},
                {ONNX_UINT8, 5}, {ONNX_INT64, 7}, {ONNX_UINT32, 11}, {ONNX_UINT64, 11}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        for (int packed = 0; packed < 3; packed++) { /* one by one, together, both */
            Buf b = head(ints[i].type, 1, (int64_t[]){3}), all = {0};
            if (packed == 1) var(&all, 1), var(&all, 2), var(&all, 100), in(&b, (unsigned)ints[i].field, &all);
            else if (packed == 2)
                vi(&b, (unsigned)ints[i].field, 1), var(&all, 2), var(&all, 100), in(&b, (unsigned)ints[i].field, &all);
            else
                vi(&b, (unsigned)ints[i].field, 1), vi(&b, (unsigned)ints[i].field, 2),
                    vi(&b, (unsigned)ints[i].field, 100);
            OK(tensor(&b, a, &t, &err));
            assert_int_equal(t.t.dtype, dtype_from_onnx(ints[i].type));
            assert_true(tensor_get_i64(&t.t, 0) == 1 && tensor_get_i64(&t.t, 1) == 2 && tensor_get_i64(&t.t, 2) == 100);
            buf_free(&b);
        }
    Buf b = head(ONNX_INT8, 1, (int64_t[]){2});
    vi(&b, 5, -1), vi(&b, 5, 255); /* as one writer and another put -1 */
    OK(tensor(&b, a, &t, &err));
    assert_memory_equal(t.t.data, "\xff\xff", 2);
    buf_free(&b);
    b = head(ONNX_FLOAT16, 1, (int64_t[]){2});
    vi(&b, 5, 0x3c00), vi(&b, 5, 0xc000);
    OK(tensor(&b, a, &t, &err));
    assert_true(tensor_get(&t.t, 0) == 1 && tensor_get(&t.t, 1) == -2);
    buf_free(&b);
    float x[4] = {1, 2, 3, 4};
    double y[2] = {-1, 0.5};
    b = head(ONNX_COMPLEX64, 1, (int64_t[]){2});
    by(&b, 4, x, sizeof x);
    OK(tensor(&b, a, &t, &err));
    assert_true(t.t.dtype == DT_C64);
    assert_memory_equal(t.t.data, x, sizeof x);
    buf_free(&b);
    b = head(ONNX_DOUBLE, 1, (int64_t[]){2});
    by(&b, 10, y, sizeof y);
    OK(tensor(&b, a, &t, &err));
    assert_memory_equal(t.t.data, y, sizeof y);
    buf_free(&b);
    b = head(ONNX_INT4, 1, (int64_t[]){3});
    vi(&b, 5, 0xf7), vi(&b, 5, 0x01);
    OK(tensor(&b, a, &t, &err));
    assert_memory_equal(t.t.data, "\x07\xff\x01", 3);
    buf_free(&b);
    b = head(ONNX_STRING, 1, (int64_t[]){2});
    st(&b, 6, "caf\xc3\xa9"), st(&b, 6, "");
    OK(tensor(&b, a, &t, &err));
    assert_true(t.t.dtype == DT_NONE && t.nstring == 2);
    assert_string_equal(t.string[0], "caf\xc3\xa9");
    assert_string_equal(t.string[1], "");
    buf_free(&b);
    arena_destroy(a);
}

static void test_tensor_refused(void **state)
{
    (void)state;
    Err err = {0};
    Arena *a = arena_create(0);
    OnnxTensor t;
    float x[4] = {0};
    static const int64_t huge[3] = {4194305, 4194305, 211106198978564}, many[17] = {1};
    struct {
        Buf b;
        ErrCode code;
        const char *says;
    } bad[] = {
        {head(ONNX_FLOAT, 1, (int64_t[]){4}), E_FORMAT, "the tensor holds 0 bytes, f32[4] needs 16"},
        {head(ONNX_FLOAT, 1, (int64_t[]){5}), E_FORMAT, "raw_data holds 16 bytes, f32[5] needs 20"},
        {head(ONNX_FLOAT, 1, (int64_t[]){-1}), E_FORMAT, "size 0 is -1"},
        {head(ONNX_FLOAT, 3, huge), E_LIMIT, "2^46"},
        {head(ONNX_STRING, 3, huge), E_LIMIT, "2^46"},
        {head(ONNX_FLOAT, 17, many), E_UNSUPPORTED, "rank 17"},
        {head(27, 1, (int64_t[]){4}), E_UNSUPPORTED, "data_type 27"},
        {head(-1, 1, (int64_t[]){4}), E_UNSUPPORTED, "data_type -1"},
        {head(ONNX_UNDEFINED, 0, NULL), E_FORMAT, "UNDEFINED"},
        {head(ONNX_FLOAT, 1, (int64_t[]){4}), E_FORMAT, "float_data and raw_data both"},
        {head(ONNX_FLOAT, 1, (int64_t[]){4}), E_FORMAT,
         "elements in int32_data; those of FLOAT belong into raw_data or float_data"},
        {head(ONNX_FLOAT, 1, (int64_t[]){4}), E_FORMAT, "float_data and int64_data both"},
        {head(ONNX_FLOAT, 1, (int64_t[]){1}), E_FORMAT, "not a multiple of 4"},
        {head(ONNX_FLOAT, 1, (int64_t[]){1}), E_UNSUPPORTED, "segments"},
        {head(ONNX_FLOAT, 1, (int64_t[]){1}), E_FORMAT, "data_location is 2"},
        {head(ONNX_STRING, 1, (int64_t[]){4}), E_FORMAT, "strings in raw_data"},
        {head(ONNX_STRING, 1, (int64_t[]){2}), E_FORMAT, "string_data holds 1 elements, strings [2] needs 2"},
        {head(ONNX_STRING, 1, (int64_t[]){1}), E_FORMAT, "not a string"},
        {head(ONNX_INT64, 1, (int64_t[]){3}), E_FORMAT, "int64_data holds 1 values, i64[3] needs 3"},
        {head(ONNX_INT64, 1, (int64_t[]){1}), E_FORMAT, "a number of more than 10 bytes"},
        {head(ONNX_INT4, 1, (int64_t[]){3}), E_FORMAT, "raw_data holds 3 bytes, i4[3] needs 2"},
        {head(ONNX_FLOAT, 1, (int64_t[]){0}), E_FORMAT, "there is no folder"},
    };
    by(&bad[1].b, 9, x, 16);
    by(&bad[9].b, 4, x, 16), by(&bad[9].b, 9, x, 16);
    by(&bad[10].b, 5, "\1\1\1\1", 4);
    by(&bad[11].b, 4, x, 16), by(&bad[11].b, 7, "\1\1\1\1", 4);
    by(&bad[12].b, 4, x, 5);
    by(&bad[13].b, 3, "", 0);
    vi(&bad[14].b, 14, 2);
    by(&bad[15].b, 9, x, 4);
    st(&bad[16].b, 6, "a");
    by(&bad[17].b, 6, "a\0b", 3);
    vi(&bad[18].b, 7, 1);
    by(&bad[19].b, 7, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
    by(&bad[20].b, 9, x, 3);
    Buf p = pair_of("location", "w.bin");
    in(&bad[21].b, 13, &p), vi(&bad[21].b, 14, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        REFUSED(tensor(&bad[i].b, a, &t, &err), bad[i].code);
        if (!strstr(err.msg, bad[i].says)) STOP("row %zu: '%s' lacks '%s'", i, err.msg, bad[i].says);
        buf_free(&bad[i].b);
    }
    static const char *const text[] = {"\x80",         "\xc0\x80", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                       "\xe0\x80\x80", "a\xff"};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        Buf b = head(ONNX_STRING, 1, (int64_t[]){1});
        st(&b, 6, text[i]);
        REFUSED(tensor(&b, a, &t, &err), E_FORMAT);
        buf_free(&b);
    }
    arena_destroy(a);
}

/* ------------------------------------------------------------------ models */

static void test_model(void **state)
{
    (void)state;
    Err err = {0};
    Buf g = {0}, n = {0}, at = {0}, v = {0}, ty = {0}, tt = {0}, sh = {0}, d = {0}, m = {0}, o = {0},
        p = pair_of("author", "me"), ints = {0};
    st(&n, 1, "x"), st(&n, 1, ""), st(&n, 2, "y"), st(&n, 3, "sum"), st(&n, 4, "Add"), st(&n, 7, "ai.onnx"),
        st(&n, 6, "doc");
    st(&at, 1, "axis"), vi(&at, 3, -1); /* no type: that of the field */
    in(&n, 5, &at);
    st(&at, 1, "alpha"), fl(&at, 2, 0.5f), vi(&at, 20, ONNX_ATTR_FLOAT);
    in(&n, 5, &at);
    st(&at, 1, "mode"), by(&at, 4, "a\0b", 3), vi(&at, 20, ONNX_ATTR_STRING);
    in(&n, 5, &at);
    var(&ints, 7), var(&ints, 8);
    st(&at, 1, "pads"), vi(&at, 8, 6), in(&at, 8, &ints), vi(&at, 20, ONNX_ATTR_INTS);
    in(&n, 5, &at);
    st(&at, 1, "none"), vi(&at, 20, ONNX_ATTR_FLOATS);
    in(&n, 5, &at);
    in(&g, 1, &n);
    st(&g, 2, "first"), st(&g, 2, "main"); /* the last one wins */
    vi(&d, 1, 3), in(&sh, 1, &d), st(&d, 2, "batch"), in(&sh, 1, &d), vi(&d, 1, 5), st(&d, 2, "n"), in(&sh, 1, &d),
        in(&sh, 1, &d);
    vi(&tt, 1, ONNX_FLOAT), in(&tt, 2, &sh), in(&ty, 1, &tt);
    st(&v, 1, "x"), in(&v, 2, &ty), vi(&v, 99, 7); /* 99: no reader knows it */
    in(&g, 11, &v);
    vi(&tt, 1, ONNX_INT64), in(&ty, 1, &tt), in(&tt, 1, &ty),
        in(&ty, 4, &tt); /* a sequence of tensors without a shape */
    st(&v, 1, "y"), in(&v, 2, &ty);
    in(&g, 12, &v);
    vi(&m, 1, 9), vi(&m, 1, 10), st(&m, 2, "someone");
    in(&m, 7, &g);
    st(&o, 1, "ai.onnx"), vi(&o, 2, 21), in(&m, 8, &o);
    st(&o, 1, "com.microsoft"), vi(&o, 2, 1), in(&m, 8, &o);
    in(&m, 14, &p);
    by(&m, 20, "", 0);
    OnnxFile *f = opened(&m, &err);
    OK(f);
    const OnnxModel *r = &f->model;
    assert_true(r->ir_version == 10 && r->nopset == 2 && r->opset[0].version == 21 && r->has_training &&
                r->nmetadata == 1 && r->nfunction == 0);
    assert_string_equal(r->opset[0].domain, "");
    assert_string_equal(r->opset[1].domain, "com.microsoft");
    assert_string_equal(r->metadata[0].value, "me");
    assert_string_equal(r->producer, "someone");
    assert_string_equal(r->doc, "");
    assert_string_equal(r->graph->name, "main");
    const OnnxNode *node = &r->graph->node[0];
    assert_true(r->graph->nnode == 1 && node->ninput == 2 && node->noutput == 1 && node->nattr == 5);
    assert_string_equal(node->input[1], "");
    assert_string_equal(node->domain, "");
    assert_true(onnx_attr(node, "axis")->type == ONNX_ATTR_INT && onnx_attr(node, "axis")->i == -1);
    assert_true(onnx_attr(node, "alpha")->f == 0.5f && !onnx_attr(node, "beta"));
    assert_true(onnx_attr(node, "mode")->slen == 3 && !memcmp(onnx_attr(node, "mode")->s, "a\0b", 4));
    const OnnxAttr *pads = onnx_attr(node, "pads"), *none = onnx_attr(node, "none");
    assert_true(pads->n == 3 && pads->ints[0] == 6 && pads->ints[2] == 8 && none->type == ONNX_ATTR_FLOATS &&
                none->n == 0);
    const OnnxTypeProto *x = &r->graph->input[0].type, *y = &r->graph->output[0].type;
    assert_true(x->kind == ONNX_TENSOR && x->elem == ONNX_FLOAT && x->has_shape && x->rank == 4);
    assert_true(x->dim[0].known && x->dim[0].value == 3 && !x->dim[1].known && !x->dim[2].known && !x->dim[3].known);
    assert_string_equal(x->dim[1].param, "batch");
    assert_string_equal(x->dim[2].param, "n");
    assert_string_equal(x->dim[3].param, "");
    assert_true(y->kind == ONNX_SEQUENCE && y->inner->kind == ONNX_TENSOR && y->inner->elem == ONNX_INT64 &&
                !y->inner->has_shape);
    onnx_close(f);
    for (size_t cut = 0; cut < m.len; cut++) { /* every beginning: no crash, and no model without its graph */
        f = onnx_open_bytes(m.data, cut, NULL, &err);
        assert_true(!f || f->model.graph);
        onnx_close(f);
    }
    buf_free(&m);
    onnx_close(NULL);
}

static void test_model_refused(void **state)
{
    (void)state;
    Err err = {0};
    Buf b = {0}, g = {0}, at = {0};
    REFUSED_BYTES(&b, E_FORMAT, "an empty file");
    vi(&b, 1, 10);
    REFUSED_BYTES(&b, E_FORMAT, "no graph");
    in(&b, 7, &g), in(&b, 7, &g);
    REFUSED_BYTES(&b, E_FORMAT, "field 7, a message that may occur once, occurs 2 times");
    vi(&b, 7, 1);
    REFUSED_BYTES(&b, E_FORMAT, "field 7 is a varint, expected bytes");
    by(&g, 2, "a\0b", 3);
    b = model_of(&g);
    REFUSED_BYTES(&b, E_FORMAT, "graph: byte 6: field 2 is not a string");
    struct {
        const char *says;
        ErrCode code;
        Buf at;
    } attr[] = {{"values of two types, in fields 2 and 3", E_FORMAT, {0}},
                {"type 1, but a value in field 3, which is type 2", E_FORMAT, {0}},
                {"type 15 is not known", E_FORMAT, {0}},
                {"no value", E_FORMAT, {0}},
                {"field 5, a message that may occur once", E_FORMAT, {0}},
                {"not a string", E_FORMAT, {0}}};
    fl(&attr[0].at, 2, 1), vi(&attr[0].at, 3, 1);
    vi(&attr[1].at, 3, 1), vi(&attr[1].at, 20, ONNX_ATTR_FLOAT);
    vi(&attr[2].at, 20, 15);
    vi(&attr[3].at, 20, ONNX_ATTR_GRAPH);
    by(&attr[4].at, 5, "", 0), by(&attr[4].at, 5, "", 0);
    by(&attr[5].at, 9, "a\0b", 3);
    for (size_t i = 0; i < sizeof attr / sizeof *attr; i++) {
        Buf n = {0};
        st(&at, 1, "a"), buf_add(&at, attr[i].at.data, attr[i].at.len), buf_free(&attr[i].at);
        st(&n, 4, "Op"), in(&n, 5, &at);
        b = model_with(1, &n);
        REFUSED(opened(&b, &err), attr[i].code);
        assert_non_null(strstr(err.msg, "graph: node[0] 'Op': attribute 'a': "));
        REFUSED_BYTES(&b, attr[i].code, attr[i].says);
    }
    /* a reference to the caller's attribute has no value */
    Buf n = {0};
    st(&at, 1, "body"), vi(&at, 20, ONNX_ATTR_GRAPH), st(&at, 21, "outer"), in(&n, 5, &at);
    b = model_with(1, &n);
    OnnxFile *f = opened(&b, &err);
    OK(f);
    assert_string_equal(f->model.graph->node[0].attr[0].ref, "outer");
    assert_int_equal(f->model.graph->node[0].attr[0].n, 0);
    onnx_close(f);
    buf_free(&b);
    /* two types for one value */
    Buf ty = {0}, v = {0};
    by(&ty, 1, "", 0), by(&ty, 4, "", 0), in(&v, 2, &ty);
    b = model_with(11, &v);
    REFUSED_BYTES(&b, E_FORMAT, "a second type");
}

/* Graphs in attributes, `depth` deep. */
static Buf nested(int depth)
{
    Buf g = {0};
    for (int i = 0; i < depth; i++) {
        Buf at = {0}, n = {0}, outer = {0};
        st(&at, 1, "body"), in(&at, 6, &g), in(&n, 5, &at), in(&outer, 1, &n);
        g = outer;
    }
    return model_of(&g);
}

static void test_depth(void **state)
{
    (void)state;
    Err err = {0};
    Buf b = nested(ONNX_MAX_DEPTH);
    OnnxFile *f = opened(&b, &err);
    OK(f);
    onnx_close(f);
    buf_free(&b);
    b = nested(ONNX_MAX_DEPTH + 1);
    REFUSED_BYTES(&b, E_LIMIT, "graphs more than 32 deep");
    b = nested(10000);
    REFUSED_BYTES(&b, E_LIMIT, "graphs more than 32 deep");
    Buf ty = {0}, v = {0};
    for (int i = 0; i < 3000; i++) {
        Buf seq = {0};
        if (ty.len) in(&seq, 1, &ty);
        in(&ty, 4, &seq);
    }
    in(&v, 2, &ty);
    b = model_with(11, &v);
    REFUSED_BYTES(&b, E_LIMIT, "types more than 32 deep");
}

/* Two bytes a record: the file may not ask for more than a few times its size. */
static void test_amplification(void **state)
{
    (void)state;
    Err err = {0};
    static const unsigned fields[] = {1, 5, 11, 13};
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
        Buf g = {0};
        for (int i = 0; i < 2000000; i++) by(&g, fields[k], "", 0);
        Buf b = model_of(&g);
        REFUSED_BYTES(&b, E_LIMIT, fields[k] == 13 ? "out of memory" : "are allowed for a file of this size");
    }
    Buf g = {0};
    for (int i = 0; i < 50000; i++) by(&g, 1, "", 0); /* small ones are read, however little of the file a node takes */
    Buf b = model_of(&g);
    OnnxFile *f = opened(&b, &err);
    OK(f);
    assert_int_equal(f->model.graph->nnode, 50000);
    onnx_close(f);
    buf_free(&b);
}

static void test_sparse(void **state)
{
    (void)state;
    Err err = {0};
    float x[2] = {1, 2};
    static const struct {
        int64_t index[2], bound;
        const char *says;
    } rows[] = {{{1, 5}, 6, NULL},
                {{1, 6}, 6, "index 1 of a sparse tensor is 6, its size 6"},
                {{-1, 2}, 6, "is -1"},
                {{3, 3}, 6, "does not come after"},
                {{4, 3}, 6, "does not come after"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Buf s = {0}, values = head(ONNX_FLOAT, 1, (int64_t[]){2}), indices = head(ONNX_INT64, 1, (int64_t[]){2});
        st(&values, 8, "w"), by(&values, 9, x, 8), by(&indices, 9, rows[i].index, 16);
        in(&s, 1, &values), in(&s, 2, &indices), vi(&s, 3, 2), vi(&s, 3, 3);
        Buf b = model_with(15, &s);
        if (rows[i].says) {
            REFUSED_BYTES(&b, E_FORMAT, rows[i].says);
            continue;
        }
        OnnxFile *f = opened(&b, &err);
        OK(f);
        const OnnxSparse *r = &f->model.graph->sparse[0];
        assert_true(f->model.graph->nsparse == 1 && r->rank == 2 && r->dim[1] == 3 &&
                    tensor_get_i64(&r->indices.t, 1) == 5);
        assert_string_equal(r->values.name, "w");
        onnx_close(f);
        buf_free(&b);
    }
    Buf s = {0}, values = head(ONNX_FLOAT, 1, (int64_t[]){2}), indices = head(ONNX_INT64, 2, (int64_t[]){2, 2});
    by(&values, 9, x, 8), by(&indices, 9, (int64_t[]){0, 1, 1, 3}, 32);
    in(&s, 1, &values), in(&s, 2, &indices), vi(&s, 3, 2), vi(&s, 3, 3);
    Buf b = model_with(15, &s);
    REFUSED_BYTES(&b, E_FORMAT, "index 1 of a sparse tensor is 3, its size 3");
    by(&s, 1, "", 0);
    b = model_with(15, &s);
    REFUSED_BYTES(&b, E_FORMAT, "without indices");
}

static void test_looks_like(void **state)
{
    (void)state;
    Buf g = {0}, b;
    Buf t = head(ONNX_FLOAT, 1, (int64_t[]){3});
    st(&g, 2, "main");
    b = model_of(&g);
    for (size_t n = 1; n <= b.len; n++) assert_true(onnx_looks_like(b.data, n));
    assert_false(onnx_looks_like(b.data, 0) || onnx_looks_like(NULL, 0));
    assert_false(onnx_looks_like(t.data, t.len));
    assert_false(onnx_looks_like("PK\3\4abcd", 8) || onnx_looks_like("{\"a\":1}", 7) ||
                 onnx_looks_like("hello world", 11) || onnx_looks_like("\x08\0\0\0\0\0\0\0{}", 10));
    buf_free(&b);
    buf_free(&t);
}

/* ------------------------------------------------------------------ data in other files */

static void spit(const char *name, const void *p, size_t n)
{
    FILE *f = fopen(unit_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

/* A model in the test's folder with one tensor of two floats outside; NULL leaves a key away. */
static OnnxFile *with_external(const char *location, const char *offset, const char *length, const char *more, Err *err)
{
    Buf t = head(ONNX_FLOAT, 1, (int64_t[]){2}), p;
    st(&t, 8, "w");
    if (location) p = pair_of("location", location), in(&t, 13, &p);
    if (offset) p = pair_of("offset", offset), in(&t, 13, &p);
    if (length) p = pair_of("length", length), in(&t, 13, &p);
    if (more) p = pair_of(more, "?"), in(&t, 13, &p);
    vi(&t, 14, 1);
    Buf b = model_with(5, &t);
    spit("ext.onnx", b.data, b.len);
    buf_free(&b);
    return onnx_open(unit_path("ext.onnx"), err);
}

static void see_name(void *user, const char *name) { buf_printf(user, "%s;", name); }

/* Names are told as they are, and no file is opened: most of these are not there. */
static void test_names_of_data(void **state)
{
    (void)state;
    Err err = {0};
    static const char *const location[] = {"none.bin", "../w.bin", "/etc/passwd", "."};
    for (size_t i = 0; i < sizeof location / sizeof *location; i++) {
        Buf names = {0};
        char want[32];
        onnx_close(with_external(location[i], "99999", NULL, NULL, &err));
        OK(onnx_data_files(unit_path("ext.onnx"), see_name, &names, &err));
        snprintf(want, sizeof want, "%s;", location[i]);
        assert_string_equal(names.data, want);
        buf_free(&names);
    }
    onnx_close(with_external("w.bin", NULL, "7", NULL, &err)); /* found before what is wrong, or not at all */
    REFUSED(onnx_data_files(unit_path("ext.onnx"), see_name, NULL, &err), E_FORMAT);
    REFUSED(onnx_data_files(unit_path("no.onnx"), see_name, NULL, &err), E_IO);
}

static void test_external(void **state)
{
    (void)state;
    Err err = {0};
    float x[4] = {1, 2, 3, 4};
    char folder[128];
    spit("w.bin", x, sizeof x);
    snprintf(folder, sizeof folder, "%s", unit_path("sub"));
    assert_int_equal(mkdir(folder, 0777), 0);
    spit("sub/w.bin", x, sizeof x);
    static const struct {
        const char *location, *offset, *length, *more;
        float first;
    } good[] = {{"w.bin", "8", "8", NULL, 3},
                {"w.bin", NULL, NULL, "checksum", 1},
                {"./w.bin", "4", NULL, NULL, 2},
                {"sub/w.bin", "0", "8", NULL, 1},
                {"sub//w.bin", "1", "8", NULL, 0}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        OnnxFile *f = with_external(good[i].location, good[i].offset, good[i].length, good[i].more, &err);
        OK(f);
        const OnnxTensor *t = &f->model.graph->init[0];
        assert_true(t->external && t->length == 8 && f->nexternal == 1);
        assert_string_equal(t->location, good[i].location);
        float want = good[i].first;
        if (!want) memcpy(&want, (uint8_t *)x + 1, 4); /* an odd offset: a copy */
        else assert_ptr_equal(t->t.data, f->external[0].data + t->offset);
        assert_memory_equal(t->t.data, &want, 4);
        onnx_close(f);
    }
    assert_int_equal(symlink("w.bin", unit_path("link.bin")), 0);
    assert_int_equal(symlink("sub", unit_path("way")), 0);
    assert_int_equal(link(unit_path("w.bin"), unit_path("hard.bin")), 0);
    assert_int_equal(mkfifo(unit_path("fifo.bin"), 0666), 0);
    static const struct {
        const char *location, *offset, *length, *more;
        ErrCode code;
        const char *says;
    } bad[] = {
        {"/etc/passwd", NULL, NULL, NULL, E_FORMAT, "absolute"},
        {"../w.bin", NULL, NULL, NULL, E_FORMAT, "leaves the model's folder"},
        {"sub/../w.bin", NULL, NULL, NULL, E_FORMAT, "leaves the model's folder"},
        {"..", NULL, NULL, NULL, E_FORMAT, "leaves the model's folder"},
        {"link.bin", NULL, NULL, NULL, E_IO, "'link.bin' is a symbolic link"},
        {"way/w.bin", NULL, NULL, NULL, E_IO, "'way' is a symbolic link"},
        {"hard.bin", NULL, NULL, NULL, E_IO, "hard link"},
        {"fifo.bin", NULL, NULL, NULL, E_IO, "not a regular file"},
        {"sub", NULL, NULL, NULL, E_IO, "a folder"},
        {".", NULL, NULL, NULL, E_IO, "a folder"},
        {"none.bin", NULL, NULL, NULL, E_IO, "No such file"},
        {"w.bin/w.bin", NULL, NULL, NULL, E_IO, "Not a directory"},
        {"", NULL, NULL, NULL, E_FORMAT, "without a location"},
        {NULL, NULL, NULL, NULL, E_FORMAT, "without a location"},
        {"sub/w.bin", NULL, NULL, "key", E_FORMAT, "the key 'key' is not known"},
        {"sub/w.bin", "9", NULL, NULL, E_FORMAT, "bytes 9 to 9 + 8 are outside 'sub/w.bin', which has 16"},
        {"sub/w.bin", "18446744073709551615", "8", NULL, E_FORMAT, "are outside"},
        {"sub/w.bin", "18446744073709551616", NULL, NULL, E_FORMAT, "expected a number below 2^64"},
        {"sub/w.bin", "-1", NULL, NULL, E_FORMAT, "offset is '-1', expected a number"},
        {"sub/w.bin", "", NULL, NULL, E_FORMAT, "offset is empty"},
        {"sub/w.bin", "0", "16", NULL, E_FORMAT, "external data holds 16 bytes, f32[2] needs 8"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        REFUSED(with_external(bad[i].location, bad[i].offset, bad[i].length, bad[i].more, &err), bad[i].code);
        if (!strstr(err.msg, bad[i].says)) STOP("row %zu: '%s' lacks '%s'", i, err.msg, bad[i].says);
        assert_non_null(strstr(err.msg, "graph: initializer[0]: tensor 'w'"));
    }
}

/* ------------------------------------------------------------------ writing */

/* Fields in the order of their numbers, absent ones left away: the bytes of a small model, one by one. */
static void test_write_bytes(void **state)
{
    (void)state;
    Err err = {0};
    int8_t small[3] = {-1, 7, 2};
    OnnxTensor w = {.name = "w", .type = ONNX_INT4, .t = tensor_of(DT_I4, 1, (int64_t[]){3}, small)};
    const char *input[] = {"x", "w"}, *output[] = {"y"};
    OnnxAttr axis = {.name = "axis", .type = ONNX_ATTR_INT, .i = 1};
    OnnxNode n = {.op = "Add", .input = input, .ninput = 2, .output = output, .noutput = 1, .attr = &axis, .nattr = 1};
    OnnxValueInfo x = {.name = "x",
                       .type = {.kind = ONNX_TENSOR,
                                .elem = ONNX_INT4,
                                .has_shape = true,
                                .rank = 2,
                                .dim = (OnnxDim[]){{.param = "b"}, {.known = true, .value = 3}}}};
    OnnxGraph g = {.name = "g", .node = &n, .nnode = 1, .init = &w, .ninit = 1, .input = &x, .ninput = 1};
    OnnxOpset o = {.version = 21};
    OnnxModel m = {.ir_version = 10, .opset = &o, .nopset = 1, .graph = &g};
    static const uint8_t want[] = {0x08,
                                   10,
                                   0x3a,
                                   67,
                                   /* node */ 0x0a,
                                   27,
                                   0x0a,
                                   1,
                                   'x',
                                   0x0a,
                                   1,
                                   'w',
                                   0x12,
                                   1,
                                   'y',
                                   0x22,
                                   3,
                                   'A',
                                   'd',
                                   'd',
                                   0x2a,
                                   11,
                                   0x0a,
                                   4,
                                   'a',
                                   'x',
                                   'i',
                                   's',
                                   0x18,
                                   1,
                                   0xa0,
                                   0x01,
                                   2,
                                   /* name */ 0x12,
                                   1,
                                   'g',
                                   /* initializer */ 0x2a,
                                   11,
                                   0x08,
                                   3,
                                   0x10,
                                   ONNX_INT4,
                                   0x42,
                                   1,
                                   'w',
                                   0x4a,
                                   2,
                                   0x7f,
                                   0x02,
                                   /* input */ 0x5a,
                                   20,
                                   0x0a,
                                   1,
                                   'x',
                                   0x12,
                                   15,
                                   0x0a,
                                   13,
                                   0x08,
                                   ONNX_INT4,
                                   0x12,
                                   9,
                                   0x0a,
                                   3,
                                   0x12,
                                   1,
                                   'b',
                                   0x0a,
                                   2,
                                   0x08,
                                   3,
                                   /* opset */ 0x42,
                                   2,
                                   0x10,
                                   21};
    const char *path = unit_path("small.onnx");
    OK(onnx_write(&m, path, NULL, &err));
    Buf b = unit_read(path);
    assert_int_equal(b.len, sizeof want);
    assert_memory_equal(b.data, want, sizeof want);
    buf_free(&b);
    w.type = ONNX_FLOAT;
    REFUSED(onnx_write(&m, unit_path("wrong.onnx"), NULL, &err), E_UNSUPPORTED);
    assert_int_equal(access(unit_path("wrong.onnx"), F_OK), -1);
}

static void same_tensors(const Sample *s, const OnnxModel *m)
{
    assert_int_equal(m->graph->ninit, 6);
    for (int i = 0; i < 6; i++) {
        const OnnxTensor *a = &s->init[i], *b = &m->graph->init[i];
        assert_string_equal(a->name, b->name);
        assert_true(a->type == b->type && a->t.dtype == b->t.dtype && a->t.rank == b->t.rank &&
                    !memcmp(a->t.shape, b->t.shape, sizeof a->t.shape));
        if (tensor_bytes(&a->t)) assert_memory_equal(a->t.data, b->t.data, tensor_bytes(&a->t));
        for (int k = 0; k < a->nstring; k++) assert_string_equal(a->string[k], b->string[k]);
    }
}

/* Writing, reading and writing again: the same bytes, and the same records as far as they are looked at here. */
static void test_write_round_trip(void **state)
{
    (void)state;
    Err err = {0};
    Sample *s = malloc(sizeof *s);
    onnx_sample(s);
    char one[160], two[160];
    snprintf(one, sizeof one, "%s", unit_path("one.onnx"));
    snprintf(two, sizeof two, "%s", unit_path("two.onnx"));
    OK(onnx_write(&s->m, one, &(OnnxWriteOptions){-1}, &err));
    OnnxFile *f = onnx_open(one, &err);
    OK(f);
    same_tensors(s, &f->model);
    const OnnxNode *n = &f->model.graph->node[0];
    assert_true(n->nattr == 16 && f->model.nfunction == 1 && f->model.function[0].nattr_default == 2 &&
                f->model.graph->nsparse == 1);
    for (int i = 0; i < 16; i++) assert_true(n->attr[i].type == s->attr[i].type && n->attr[i].n == s->attr[i].n);
    assert_true(onnx_attr(n, "f")->f == 0 && signbit(onnx_attr(n, "f")->f) && onnx_attr(n, "i")->i == INT64_MIN &&
                onnx_attr(n, "g")->g->nnode == 1);
    assert_true(f->model.graph->output[0].type.kind == ONNX_OPTIONAL &&
                f->model.graph->output[0].type.inner->inner->elem == ONNX_FLOAT);
    OK(onnx_write(&f->model, two, NULL, &err));
    onnx_close(f);
    Buf a = unit_read(one), b = unit_read(two);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    buf_free(&a);
    buf_free(&b);
    free(s);
}

/* Tensors of 1 KiB and more go outside, each at its own place; the model names the file beside it. */
static void test_write_external(void **state)
{
    (void)state;
    Err err = {0};
    Sample *s = malloc(sizeof *s);
    onnx_sample(s);
    char path[160], data[170];
    snprintf(path, sizeof path, "%s", unit_path("ext2.onnx"));
    snprintf(data, sizeof data, "%s.data", path);
    OK(onnx_write(&s->m, path, &(OnnxWriteOptions){1}, &err));
    OnnxFile *f = onnx_open(path, &err);
    OK(f);
    same_tensors(s, &f->model);
    assert_int_equal(f->nexternal, 1);
    assert_string_equal(f->external_name[0], "ext2.onnx.data");
    const OnnxTensor *t = f->model.graph->init;
    assert_true(t[0].external && !t[1].external && t[2].external && !t[3].external && !t[4].external && t[5].external);
    assert_true(t[0].offset == 0 && t[0].length == 4096 && t[2].offset == 4096 && t[2].length == 2500 &&
                t[5].offset == 4096 + 2560);
    assert_ptr_equal(t[0].t.data, f->external[0].data);
    OK(onnx_write(&f->model, path, &(OnnxWriteOptions){1}, &err)); /* over the very files that it reads */
    same_tensors(s, &f->model);
    onnx_close(f);
    f = onnx_open(path, &err);
    OK(f);
    same_tensors(s, &f->model);
    onnx_close(f);
    /* nothing is left of what cannot be written */
    s->init[5].type = ONNX_FLOAT;
    REFUSED(onnx_write(&s->m, unit_path("bad.onnx"), &(OnnxWriteOptions){1}, &err), E_UNSUPPORTED);
    s->init[5].type = ONNX_BFLOAT16;
    REFUSED(onnx_write(&s->m, unit_path("nowhere/x.onnx"), NULL, &err), E_IO);
    assert_true(access(unit_path("bad.onnx"), F_OK) && access(unit_path("bad.onnx.data"), F_OK));
    free(s);
}

/* Above 2 GiB: the file's limit is counted before anything is written. */
static void test_write_large(void **state)
{
    (void)state;
    Err err = {0};
    int64_t n = (int64_t)1 << 31;
    void *zeros = mmap(NULL, (size_t)n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(zeros != MAP_FAILED);
    OnnxTensor w = {.name = "w", .type = ONNX_UINT8, .t = tensor_of(DT_U8, 1, &n, zeros)};
    OnnxAttr value = {.name = "value", .type = ONNX_ATTR_TENSOR, .t = &w, .n = 1};
    OnnxNode constant = {.op = "Constant", .attr = &value, .nattr = 1};
    OnnxGraph g = {.name = "g", .init = &w, .ninit = 1}, inside = {.name = "g", .node = &constant, .nnode = 1};
    OnnxModel m = {.graph = &g}, c = {.graph = &inside};
    REFUSED(onnx_write(&m, unit_path("large.onnx"), &(OnnxWriteOptions){-1}, &err), E_LIMIT);
    REFUSED(onnx_write(&c, unit_path("large.onnx"), NULL, &err), E_LIMIT);
    assert_int_equal(access(unit_path("large.onnx"), F_OK), -1);
    munmap(zeros, (size_t)n);
}

static void test_types(void **state)
{
    (void)state;
    for (int t = DT_NONE + 1; t < DT_COUNT; t++) {
        int type = dtype_to_onnx((DType)t);
        assert_int_equal(dtype_from_onnx(type), t == DT_C32 ? DT_NONE : t); /* ONNX has no complex32 */
    }
    assert_string_equal(onnx_type_name(ONNX_FLOAT8E4M3FNUZ), "FLOAT8E4M3FNUZ");
    assert_string_equal(onnx_type_name(ONNX_TYPE_COUNT), "?");
    assert_string_equal(onnx_type_name(-1), "?");
    assert_true(dtype_from_onnx(ONNX_STRING) == DT_NONE && dtype_from_onnx(1000) == DT_NONE &&
                dtype_to_onnx(DT_NONE) == ONNX_UNDEFINED);
}

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire),           cmocka_unit_test(test_types),
        cmocka_unit_test(test_tensor_raw),     cmocka_unit_test(test_tensor_typed),
        cmocka_unit_test(test_tensor_refused), cmocka_unit_test(test_model),
        cmocka_unit_test(test_model_refused),  cmocka_unit_test(test_depth),
        cmocka_unit_test(test_amplification),  cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_looks_like),     cmocka_unit_test(test_external),
        cmocka_unit_test(test_names_of_data),
        cmocka_unit_test(test_write_bytes),    cmocka_unit_test(test_write_round_trip),
        cmocka_unit_test(test_write_external), cmocka_unit_test(test_write_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
