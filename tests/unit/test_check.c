/* qkv check without files: findings of graphs, of ONNX records, of pickles; the table itself. */
#include "unit_graph.h"
#include "verify/check.h"
#include "verify/check_graph.h"
#include "onnx/check/check_onnx.h"
#include "onnx/check/schema.h"

static Check begin(unsigned targets)
{
    Err err = {0};
    Check c = {.targets = targets};
    OK(check_begin(&c, &err));
    return c;
}

static bool made(const Check *c, int number)
{
    for (int i = 0; i < c->n; i++)
        if ((int)c->finding[i].what->id == number) return true;
    return false;
}

/* The findings of a graph's text: exactly `want`, NULL-terminated by 0. */
static void graph_gives(const char *text, unsigned targets, const int *want)
{
    Graph *g = unit_graph(text);
    Check c = begin(targets);
    check_graph(&c, g, g->ninput);
    int n = 0;
    for (; want[n]; n++)
        if (!made(&c, want[n])) STOP("%s\nQ%d is missing", text, want[n]);
    for (int i = 0; i < c.n; i++) {
        bool known = false;
        for (int k = 0; k < n; k++) known |= (int)c.finding[i].what->id == want[k];
        if (!known) STOP("%s\nQ%d: %s: %s", text, (int)c.finding[i].what->id, c.finding[i].place, c.finding[i].text);
    }
    check_end(&c);
    graph_free(g);
}

#define GIVES(targets, text, ...) graph_gives(text, targets, (const int[]){__VA_ARGS__, 0})
#define HEAD "symbol b in [1, inf]\nsymbol s in [1, 4096]\ninput %x: f32[b, s, 32]\n"
#define SCORES                                                                                                         \
    "symbol b in [1, inf]\nsymbol s in [1, 64]\ninput %q: f32[b, 2, s, 8]\ninput %k: f32[b, 2, 8, s]\n"                \
    "input %m: bool[b, 1, 1, s]\ninput %f: f32[b, 1, 1, s]\n"                                                          \
    "%p: f32[b, 2, s, s] = aten.matmul.default(%q, %k)\n"

static void test_sizes(void **state)
{
    (void)state;
    GIVES(0, HEAD "%y: f32[b, s, 4, 8] = aten.reshape.default(%x, [b, s, 4, 8])\noutput output_0 = %y\n", 0);
    GIVES(0, HEAD "%y: f32[2, (b*s)//2, 4, 8] = aten.reshape.default(%x, [2, (b*s)//2, 4, 8])\noutput output_0 = %y\n",
          Q(402));
    GIVES(0, HEAD "%y: f32[1, b*s, 32] = aten.reshape.default(%x, [1, b*s, 32])\noutput output_0 = %y\n", Q(402));
    GIVES(0, HEAD "%y: f32[2, 5, 32] = aten.reshape.default(%x, [2, 5, 32])\noutput output_0 = %y\n", Q(401));
    GIVES(0, "symbol s in [1, 64]\ninput %x: f32[1, s]\n%y: f32[1, s] = aten.relu.default(%x)\noutput output_0 = %y\n",
          Q(403));
    GIVES(0, "input %x: f32[1, 3]\n%y: f32[1, 3] = aten.relu.default(%x)\noutput output_0 = %y\n", Q(404));
}

static void test_position_tables(void **state)
{
    (void)state;
#define TABLE(range)                                                                                                   \
    "symbol s in [1, " range "]\ninput %x: f32[s]\nweight %w: f32[16, 4] = parameter \"f32[16, 4]\"\n"                 \
    "%i: i64[s] = aten.arange.start_step(0, s, 1, dtype=i64)\n%y: f32[s, 4] = aten.embedding.default(%w, %i)\n"        \
    "%z: f32[s, 4] = aten.add.Tensor(%y, %y)\noutput output_0 = %z\n"
    GIVES(0, TABLE("16"), 0);
    GIVES(0, TABLE("17"), Q(405));
    GIVES(0, TABLE("inf"), Q(405));
}

static void test_lengths(void **state)
{
    (void)state;
#define IDS(n)                                                                                                         \
    "symbol b in [1, 8]\ninput %x: i64[b, " n "]\nweight %w: f32[16, 4] = parameter \"f32[16, 4]\"\n%y: f32[b, " n     \
    ", 4] = aten.embedding.default(%w, %x)\noutput output_0 = %y\n"
    GIVES(0, IDS("16"), Q(403));
    GIVES(0, IDS("15"), 0);
}

static void test_masks(void **state)
{
    (void)state;
#define END "%r: f32[b, 2, s, s] = aten.softmax.int(%w, -1)\noutput output_0 = %r\n"
    GIVES(0, SCORES "%w: f32[b, 2, s, s] = aten.where.self(%m, %p, -inf)\n" END, Q(501));
    GIVES(0, SCORES "%w: f32[b, 2, s, s] = aten.where.self(%m, %p, -1e9)\n" END, Q(502));
    GIVES(0, SCORES "%w: f32[b, 2, s, s] = aten.add.Tensor(%p, %f)\n" END, Q(501));
    GIVES(0,
          SCORES
          "%c: f32[b, 1, 1, s] = aten._to_copy.default(%m, dtype=f32)\n"
          "%d: f32[b, 1, 1, s] = aten.mul.Tensor(%c, -10000.0)\n%w: f32[b, 2, s, s] = aten.add.Tensor(%p, %d)\n" END,
          Q(502));
    /* a causal mask comes from sizes alone and leaves each row a key */
    GIVES(0,
          SCORES
          "%o: bool[s, s] = aten.full.default([s, s], true, dtype=bool)\n%t: bool[s, s] = aten.tril.default(%o)\n"
          "%w: f32[b, 2, s, s] = aten.where.self(%t, %p, -inf)\n" END,
          0);
    /* 0 where a row allowed nothing */
    GIVES(0,
          SCORES "%w: f32[b, 2, s, s] = aten.where.self(%m, %p, -inf)\n%r: f32[b, 2, s, s] = aten.softmax.int(%w, -1)\n"
                 "%z: f32[b, 2, s, s] = aten.where.self(%m, %r, 0.0)\noutput output_0 = %z\n",
          0);
}

static void test_attention(void **state)
{
    (void)state;
#define SDPA(type)                                                                                                     \
    "symbol b in [1, inf]\nsymbol s in [1, 64]\ninput %q: " type "[b, 2, s, 12]\ninput %m: bool[b, 1, 1, s]\n"         \
    "%y: " type "[b, 2, s, 12] = aten.scaled_dot_product_attention.default(%q, %q, %q, %m)\noutput output_0 = %y\n"
    GIVES(0, SDPA("f32"), Q(503));
    GIVES(TARGET_ORT, SDPA("f32"), Q(503), Q(605));
    GIVES(TARGET_TENSORRT, SDPA("f16"), Q(503), Q(604));
    GIVES(TARGET_ORT, SDPA("bf16"), Q(503), Q(602), Q(605));
    GIVES(TARGET_TENSORRT, "input %x: f64[3]\n%y: f64[3] = aten.relu.default(%x)\noutput output_0 = %y\n", Q(404),
          Q(607));
    GIVES(TARGET_TENSORRT, "input %x: i16[3]\n%y: i16[3] = aten.relu.default(%x)\noutput output_0 = %y\n", Q(404),
          Q(602));
    GIVES(0, "input %x: f16[3]\ninput %m: bool[3]\n%y: f16[3] = aten.where.self(%m, %x, -3e38)\noutput output_0 = %y\n",
          Q(404), Q(504));
}

/* ------------------------------------------------------------------ ONNX */

static void test_schemas(void **state)
{
    (void)state;
    OnnxSchemas all;
    OnnxParam p;
    int later;
    bool required;
    assert_true(onnx_schemas(&all));
    assert_int_equal(onnx_schema(&all, "", "Softmax", 12, &later)->since, 11);
    assert_int_equal(onnx_schema(&all, "", "Softmax", 13, &later)->since, 13);
    assert_null(onnx_schema(&all, "", "Attention", 22, &later));
    assert_int_equal(later, 23);
    assert_null(onnx_schema(&all, "", "NoSuchOp", 22, &later));
    assert_int_equal(later, 0);
    assert_true(onnx_schema(&all, "", "Upsample", 10, &later)->deprecated);
    const OnnxSchema *s = onnx_schema(&all, "", "Attention", 24, &later);
    assert_true(onnx_param(s->in, 3, &p) && p.option == '?' && !strcmp(p.type, "U"));
    assert_false(onnx_param(s->in, 7, &p));
    assert_int_equal(onnx_schema_attr(s, "scale", &required), 'f');
    assert_int_equal(onnx_schema_attr(s, "scal", &required), 0);
    assert_true(onnx_types(s, "U")->tensor >> ONNX_BOOL & 1);
    s = onnx_schema(&all, "", "Concat", 13, &later);
    assert_true(onnx_param(s->in, 9, &p) && p.option == '*');
    assert_int_equal(onnx_schema_attr(s, "axis", &required), 'i');
    assert_true(required);
    assert_non_null(onnx_schema(&all, "com.microsoft", "MultiHeadAttention", 1, &later));
    onnx_schemas_free(&all);
}

/* y = op(x, z) of opset 18, x (2, 3) and z (columns, 4). */
static Check check_op(const char *op, int64_t columns, int elem, unsigned targets)
{
    static const char *in[] = {"x", "z"}, *out[] = {"y"};
    OnnxNode node = {
        .name = "n", .op = op, .domain = "", .overload = "", .input = in, .output = out, .ninput = 2, .noutput = 1};
    OnnxDim dim[3][2] = {
        {{true, 2, ""}, {true, 3, ""}}, {{true, columns, ""}, {true, 4, ""}}, {{true, 2, ""}, {true, 4, ""}}};
    OnnxTypeProto a = {.kind = ONNX_TENSOR, .elem = elem, .has_shape = true, .rank = 2, .dim = dim[0]}, b = a, y = a;
    b.dim = dim[1];
    y.dim = dim[2];
    OnnxValueInfo inputs[] = {{.name = "x", .type = a}, {.name = "z", .type = b}}, output = {.name = "y", .type = y};
    OnnxGraph graph = {.name = "g",
                       .doc = "",
                       .node = &node,
                       .nnode = 1,
                       .input = inputs,
                       .ninput = 2,
                       .output = &output,
                       .noutput = 1};
    OnnxOpset opset = {"", 18};
    OnnxModel m = {.ir_version = 9, .opset = &opset, .nopset = 1, .graph = &graph};
    Check c = begin(targets);
    check_onnx(&c, &m);
    return c;
}

static void onnx_gives(const char *op, int64_t columns, int elem, unsigned targets, int want)
{
    Check c = check_op(op, columns, elem, targets);
    if (want ? !made(&c, want) : c.count[SEVERITY_ERROR]) STOP("%s: Q%d is %s", op, want, want ? "missing" : "made");
    check_end(&c);
}

static void test_onnx(void **state)
{
    (void)state;
    onnx_gives("MatMul", 3, ONNX_FLOAT, TARGET_ORT, 0);
    onnx_gives("MatMul", 5, ONNX_FLOAT, 0, Q(204));
    onnx_gives("MatMul", 3, ONNX_STRING, 0, Q(205));
    onnx_gives("MatMul", 3, ONNX_BFLOAT16, 0, 0);
    onnx_gives("MatMul", 3, ONNX_BFLOAT16, TARGET_ORT, Q(602));
    onnx_gives("MatMul", 3, ONNX_FLOAT16, TARGET_ORT, 0);
    onnx_gives("Add", 3, ONNX_FLOAT, 0, Q(204));
    onnx_gives("Relu", 3, ONNX_FLOAT, 0, Q(107));
    onnx_gives("MatMull", 3, ONNX_FLOAT, 0, Q(101));
    onnx_gives("Cast", 3, ONNX_FLOAT, 0, Q(103));
    onnx_gives("Attention", 3, ONNX_FLOAT, 0, Q(125));
}

/* ------------------------------------------------------------------ pickles, weights, the list */

static void pickle_gives(const char *bytes, size_t n, int want)
{
    Check c = begin(0);
    check_pickle(&c, "p", (const unsigned char *)bytes, n);
    if (c.n != 1 || (int)c.finding[0].what->id != want)
        STOP("Q%d: found %d", want, c.n ? (int)c.finding[0].what->id : 0);
    check_end(&c);
}

static void test_pickles(void **state)
{
    (void)state;
#define PICKLE(text, want) pickle_gives(text, sizeof text - 1, want)
    PICKLE("\x80\x02"
           "ctorch._utils\n_rebuild_tensor_v2\nq\x00.",
           Q(901));
    PICKLE("\x80\x02"
           "cos\nsystem\nq\x00.",
           Q(902));
    PICKLE("\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x94.", Q(902));
    PICKLE("\x80\x04\x8c\x02os\x94\x8c\x06system\x94"
           "00h\x00h\x01\x93.",
           Q(902)); /* from the memo */
    PICKLE("\x80\x04"
           "ccollections\nCounter\n.",
           Q(915));
    PICKLE("\x80\x04\xff", Q(199));
    PICKLE("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff", Q(199)); /* a string longer than the file */
    PICKLE("\x80\x04\x8c", Q(199));
}

static void test_weights(void **state)
{
    (void)state;
    enum { N = 512 };
    static float a[N], b[N], mask[N];
    for (int i = 0; i < N; i++) {
        a[i] = b[i] = (float)i;
        mask[i] = i % 2 ? -__builtin_inff() : 0;
    }
    const int64_t shape[] = {N};
    Tensor ta = tensor_of(DT_F32, 1, shape, a), tb = tensor_of(DT_F32, 1, shape, b),
           tm = tensor_of(DT_F32, 1, shape, mask), tied = ta;
    const NamedTensor list[] = {{"a", &ta, false}, {"tied", &tied, false}, {"b", &tb, false}, {"mask", &tm, false}};
    Check c = begin(0);
    check_weights(&c, list, 4);
    assert_int_equal(c.n, 1);
    assert_true(made(&c, Q(306)));
    b[3] = __builtin_nanf("");
    b[4] = __builtin_inff();
    check_weights(&c, list, 4);
    assert_true(made(&c, Q(304)) && made(&c, Q(305)));
    check_end(&c);
}

static void test_list(void **state)
{
    (void)state;
    for (int i = 0; finding_name(i); i++) {
        assert_non_null(finding_explained(finding_name(i)));
        assert_true(!i || finding_at(i - 1)->id < finding_at(i)->id);
    }
    assert_null(finding_explained("Q1"));
    Check c = begin(0);
    Buf b = {0};
    check_add(&c, Q(115), "a \"place\"\n\xff", "a note with \\ and \xc3\xa9");
    check_add(&c, Q(204), "n", "an error");
    assert_true(check_is_wrong(&c, "n") && !check_is_wrong(&c, "m"));
    check_json(&c, NULL, &b);
    assert_true(strstr(b.data, "Q204") < strstr(b.data, "Q115"));
    assert_non_null(strstr(b.data, "a \\\"place\\\"??"));
    assert_non_null(strstr(b.data, "a note with \\\\ and \xc3\xa9"));
    for (int i = 0; i < MAX_FINDINGS + 5; i++) check_add(&c, Q(115), "n", "again");
    assert_int_equal(c.n, MAX_FINDINGS);
    b.len = 0;
    check_json(&c, NULL, &b);
    assert_non_null(strstr(b.data, "Q198"));
    buf_free(&b);
    check_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes),     cmocka_unit_test(test_position_tables),
                                       cmocka_unit_test(test_lengths),   cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_attention), cmocka_unit_test(test_schemas),
                                       cmocka_unit_test(test_onnx),      cmocka_unit_test(test_pickles),
                                       cmocka_unit_test(test_weights),   cmocka_unit_test(test_list)};
    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
