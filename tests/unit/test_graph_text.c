/* Graphs as text: what is printed reads back to the same text; other spellings mean the same;
 * everything else is refused with its line. */
#include "unit_graph.h"
#include <math.h>
#include "ir/copy.h"
#include "ir/text.h"

static void expect_same(const char *text)
{
    Graph *g = unit_graph(text);
    Err err = {0};
    char *out = unit_text(g);
    assert_string_equal(out, text);
    free(out);
    Graph *copy = graph_copy(g, &err);
    graph_free(g); /* nothing of it is shared */
    OK(copy && graph_check(copy, &err));
    out = unit_text(copy);
    assert_string_equal(out, text);
    free(out);
    graph_free(copy);
}

static void expect_text(const char *text, const char *want)
{
    Graph *g = unit_graph(text);
    char *out = unit_text(g);
    assert_string_equal(out, want);
    free(out);
    graph_free(g);
    expect_same(want);
}

static void test_same(void **state)
{
    (void)state;
    expect_same("");
    expect_same("input %x: f32[]\noutput o = %x\n");
    expect_same(
        "symbol u2 in [1, 8]\ninput %x: f32[u2]\n" /* u2 and i4 are dtypes, too, but only where one is asked for */
        "%y: i4[2, u2] = aten.full.default([2, u2], u2, dtype=i4)\noutput o = %y\n");
    expect_same("symbol s0 in [1, 8]\n"
                "symbol h in [-inf, inf]\n"
                "input %x: f32[s0, 14*h, 3]\n"
                "input %mask: bool[s0*h, Max(s0, 4), s0//2 + 1]\n"
                "weight %p: f32[4, 3] = parameter \"f32[4, 3]\"\n"
                "weight %b: i64[1] = buffer \"i64[1]\"\n"
                "weight %c: bf16[] = constant \"bf16[]\"\n"
                "%linear: f32[s0, 14*h, 4] = aten.linear.default(%x, %p)\n"
                "%add: f32[s0, 14*h, 4] = aten.add.Tensor(%linear, 2, alpha=-0.5)\n"
                "%gelu: f32[s0, 14*h, 4] = aten.gelu.default(%add, approximate=\"tanh\")\n"
                "%sum: f32[s0, 14*h] = aten.sum.dim_IntList(%gelu, [-1])\n"
                "%amax: f32[s0, 1] = aten.amax.default(%sum, [1], true)\n"
                "%r: f32[28*s0*h, 2] = aten.reshape.default(%gelu, [(28*s0*h), 2])\n"
                "%clamp: f32[28*s0*h, 2] = aten.clamp.default(%r, max=inf)\n"
                "%to: f16[28*s0*h, 2] = aten._to_copy.default(%clamp, dtype=f16)\n"
                "%v: f32[s0, 1], %i: i64[s0, 1] = aten.topk.default(%amax, 1, largest=false)\n"
                "%full: f32[s0] = aten.full.default([s0], nan, dtype=f32)\n"
                "%index: f32[s0, 1, 4] = aten.index.Tensor(%gelu, [none, %b])\n"
                "require s0 < 5 \"guard \\\"of\\\" a\\\\b\\nsecond line\"\n"
                "mutate %b = %b\n"
                "output out.first = %to\n"
                "output out_1 = %i\n");
}

/* A graph as an argument, names that are more than words, one loop in another. */
static void test_bodies(void **state)
{
    (void)state;
    expect_same("symbol s0 in [0, inf]\n"
                "symbol n3 = size %stack 0 in [0, inf]\n"
                "input %x_1: f32[s0] = \"x:1\"\n"
                "input %go: bool[]\n"
                "%y: f32[s0], %stack: f32[n3, s0] = qkv.loop.default(%go, [%x_1], [%x_1], {\n"
                "  symbol d0 in [0, inf]\n"
                "  input %i: i64[]\n"
                "  input %c: bool[]\n"
                "  input %a: f32[d0]\n"
                "  input %x: f32[d0]\n"
                "  %add: f32[d0] = aten.add.Tensor(%a, %x)\n"
                "  %b: f32[d0] = qkv.loop.default(carried=[%add], captured=[], body={\n"
                "    symbol d0 in [0, inf]\n"
                "    input %j: i64[]\n"
                "    input %go: bool[]\n"
                "    input %p: f32[d0]\n"
                "    %mul: f32[d0] = aten.mul.Tensor(%p, 2)\n"
                "    output \"a}b\" = %go\n"
                "    output q = %mul\n"
                "  }, limit=3, sure=true)\n"
                "  output more = %c\n"
                "  output y = %b\n"
                "  output all = %add\n"
                "})\n"
                "output \"/y:0\" = %y\n"
                "output all = %stack\n");
}

/* Data-dependent sizes, under the text's names for them; requirements keep their order whatever nodes require
 * themselves. */
static void test_symbols(void **state)
{
    (void)state;
    expect_same("symbol s0 in [1, 8]\n"
                "symbol s1 in [1, 8]\n"
                "symbol u7 = size %nz 0 in [0, 100]\n"
                "symbol u3 = item %top in [2, 9]\n"
                "input %x: f32[s0, 3]\n"
                "input %y: f32[s1, 3]\n"
                "%nz: i64[u7, 2] = aten.nonzero.default(%x)\n"
                "%top: i64[] = aten.amax.default(%nz, [0, 1])\n"
                "%full: f32[u3 + 1, u7] = aten.full.default([(u3 + 1), u7], 0.5, dtype=f32)\n"
                "%add: f32[s0, 3] = aten.add.Tensor(%x, %y)\n"
                "%relu: i64[u7, 2] = aten.relu.default(%nz)\n"
                "require u3 < u7 \"assert\"\n"
                "require s0 == s1 \"node 'add': sizes of self and other\"\n"
                "require s0 % 2 == 0 \"guard\"\n"
                "output o = %full\n");
    Graph *g = unit_graph("symbol u7 = size %nz 0 in [0, inf]\n"
                          "symbol u3 = item %x in [2, 9]\n"
                          "input %x: i64[]\n"
                          "%nz: i64[u7, 0] = aten.nonzero.default(%x)\n");
    const Symbol *u7 = expr_find_symbol(g->ex, "u7"), *u3 = expr_find_symbol(g->ex, "u3");
    assert_true(u7->source == SYM_SIZE && u7->value == graph_find_value(g, "nz") && u7->dim == 0 && u7->lo == 0 &&
                u7->hi == INT64_MAX);
    assert_true(u3->source == SYM_ITEM && u3->value == g->input[0] && u3->lo == 2 && u3->hi == 9);
    graph_free(g);
}

static void test_spellings(void **state)
{
    (void)state;
    expect_text("# a comment\n"
                "\n"
                "  input %x: f32[ 2,3 ]   # and another\r\n"
                "%a: f32[2, 3] = aten.add.Tensor(other=%x, self=%x, alpha=1)\n"
                "%b: f32[2] = aten.sum.dim_IntList(%a, 1, False, dtype=none)\n"
                "%c: f32[1] = aten.slice.Tensor(%b, 0, 0, (3 - 2), step=1)\n"
                "%d: f32[1] = torch.ops.aten.gelu.default(%c, approximate='none')\n"
                "output o = %d",
                "input %x: f32[2, 3]\n"
                "%a: f32[2, 3] = aten.add.Tensor(%x, %x)\n"
                "%b: f32[2] = aten.sum.dim_IntList(%a, [1])\n"
                "%c: f32[1] = aten.slice.Tensor(%b, start=0, end=1)\n"
                "%d: f32[1] = aten.gelu.default(%c)\n"
                "output o = %d\n");
}

static void test_call(void **state)
{
    (void)state;
    Err err = {0};
    const Op *op;
    Arg *args;
    Graph *g = unit_graph("input %x: f32[2, 3]\n");
    OK(text_parse_call(g, "aten.sum.dim_IntList(%x, [-1], true, dtype=f64)", &op, &args, &err));
    assert_true(op->id == OP_sum_dim_IntList && args[0].v == g->input[0] && args[1].n == 1 && args[1].es[0]->i == -1);
    assert_true(args[2].e->kind == EX_BOOL && args[2].e->i == 1 && args[3].dtype == DT_F64);
    OK(text_parse_call(g, "aten.clamp.default(%x, -inf, nan)", &op, &args, &err));
    assert_true(args[1].e->f < 0 && isinf(args[1].e->f) && isnan(args[2].e->f));
    REFUSED(text_parse_call(g, "aten.relu.default(%x) x", &op, &args, &err), E_FORMAT);
    REFUSED(text_parse_call(g, "aten.relu.nothing(%x)", &op, &args, &err), E_UNSUPPORTED);
    graph_free(g);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"nonsense", "line 1"},
        {"input x: f32[2]", "line 1: near 'x: f32[2]': expected '%'"},
        {"input %x: f33[2]", "unknown dtype"},
        {"input %x: f32[2", "expected ','"},
        {"input %x: f32[2,]", "expected an argument"},
        {"input %x: f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "rank too large"},
        {"input %x: f32[2] extra", "unexpected text"},
        {"input %x: f32[2]\ninput %x: f32[2]", "line 2: value '%x' is defined twice"},
        {"weight %w: f32[2] = parameter \"nowhere\"", "weight 'nowhere': no data given"},
        {"weight %w: f32[3] = parameter \"f32[2]\"", "data of another dtype or shape"},
        {"weight %w: f64[2] = parameter \"f32[2]\"", "data of another dtype or shape"},
        {"weight %w: f32[2] = thing \"f32[2]\"", "expected parameter, buffer or constant"},
        {"weight %w: f32[2] = buffer f32[2]", "expected a string"},
        {"weight %w: f32[2] = buffer \"f32[2]", "string does not end"},
        {"symbol s0 in [1", "expected ','"},
        {"symbol s0", "expected 'in'"},
        {"symbol u0 = item %y in [0, 1]", "value '%y' is not defined"},
        {"symbol u0 = size %x 1 in [0, 1]\ninput %x: f32[2]", "has 1 axes, not axis 1"},
        {"symbol u0 = thing %x in [0, 1]", "expected 'size'"},
        {"%y: f32[] = qkv.loop.default(none, [], [], {\ninput %i: i64[]\n", "no '}' closes it"},
        {"%y: f32[] = qkv.loop.default(none, [], [], {\n  input i\n})", "line 1: body: line 2: near 'i"},
        {"%y: f32[] = qkv.loop.default(none, [], [], {\n  input %i: i64[]\n  input %c: bool[]\n})",
         "the body has 2 inputs and 0 results"},
        {"output o = %y", "value '%y' is not defined"},
        {"mutate %y = %y", "value '%y' is not defined"},
        {"require s0 < \"x\"", "line 1"},
        {"require s0 < 4", "expected a string"},
        {"require 4 < 3 \"why\"", "why: can never hold"},
    };
    static const struct {
        const char *text, *message; /* after an input %x: f32[2, 3] */
    } nodes[] = {
        {"%a: f32[2, 3] = aten.nothing.default(%x)", "line 2: op 'aten.nothing.default' is not in the table"},
        {"%a: f32[2, 3] = aten.relu.default(%y)", "line 2: value '%y' is not defined"},
        {"%a: f32[2, 3] = aten.relu.default()", "argument 'self': missing"},
        {"%a: f32[2, 3] = aten.relu.default(%x, %x)", "takes 1 arguments"},
        {"%a: f32[2, 3] = aten.relu.default(%x, depth=3)", "has no argument 'depth'"},
        {"%a: f32[2, 3] = aten.relu.default(%x", "expected ','"},
        {"%a: f32[2, 3] = aten.relu.default %x", "expected '('"},
        {"%a: f32[2, 3] aten.relu.default(%x)", "expected '='"},
        {"%a: f64[2, 3] = aten.relu.default(%x)", "declared type of a result is not what the op gives"},
        {"%a: f32[6] = aten.relu.default(%x)", "declared type of a result is not what the op gives"},
        {"%a: f32[3, 2] = aten.relu.default(%x)", "the declared size 3 of a result is not what the op gives, 2"},
        {"%a: f32[s9, 3] = aten.relu.default(%x)", "the declared size s9 of a result is not what the op gives"},
        {"%a: f32[2, 3], %b: f32[2, 3] = aten.relu.default(%x)", "wrong number of results"},
        {"%a: f32[2, 1] = aten.topk.default(%x, 1)", "wrong number of results"},
        {"%x: f32[2, 3] = aten.relu.default(%x)", "line 2: value '%x' is defined twice"},
        {"%a: f32[2, 1], %a: i64[2, 1] = aten.topk.default(%x, 1)", "two values are called 'a'"},
        {"%a: f32[4, 3] = aten.cat.default([%x, 3])", "mixed list"},
        {"%a: f32[4, 3] = aten.cat.default([%x", "expected ','"},
        {"%a: f32[3, 3] = aten.reshape.default(%x, [3, 3])", "node 'a' (aten.reshape.default)"},
        {"%a: f32[2, 3] = aten.view.default(%x, [2, 3])", "not in plain form"},
        {"%a: f32[2, 3] = aten.gelu.default(%x, approximate=\"tanh)", "string does not end"},
        {"%a: f32[2, 3] = aten.add.Tensor(%x, 99999999999999999999)", "does not fit"},
    };
    Err err = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows + sizeof nodes / sizeof *nodes; i++) {
        char text[512];
        size_t k = i - sizeof rows / sizeof *rows;
        bool node = i >= sizeof rows / sizeof *rows;
        snprintf(text, sizeof text, "%s%s", node ? "input %x: f32[2, 3]\n" : "", node ? nodes[k].text : rows[i].text);
        err = (Err){0};
        Graph *g = graph_parse(text, unit_weight, NULL, &err);
        if (g) STOP("accepted: %s", text);
        if ((err.code != E_FORMAT && err.code != E_UNSUPPORTED) ||
            !strstr(err.msg, node ? nodes[k].message : rows[i].message))
            STOP("%s\ncode %d: %s", text, (int)err.code, err.msg);
    }
    err = (Err){0};
    if (graph_parse("weight %w: f32[2] = buffer \"f32[2]\"", NULL, NULL, &err)) STOP("a weight without data");
}

/* A size may be written as its writer knew it: it must be what the op gives when it runs. */
static void test_declared_otherwise(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = graph_parse("symbol N in [1, 8]\ninput %x: f32[N, 3]\n"
                           "%a: f32[N % 5, 3] = aten.relu.default(%x)\noutput a = %a\n",
                           NULL, NULL, &err);
    if (!g) STOP("%s", err.msg);
    assert_int_equal(g->nrequire, 1);
    assert_string_equal(g->require[0].where, "line 3: the declared size of a result");
    assert_true(g->output[0].value->dim[0] == g->input[0]->dim[0]);
    graph_free(g);
    g = graph_parse("symbol N in [1, 8]\ninput %x: f32[N, 3]\n%a: f32[N + 1, 3] = aten.relu.default(%x)\n", NULL, NULL,
                    &err);
    assert_null(g);
    assert_non_null(strstr(err.msg, "the declared size N + 1 of a result"));
    g = graph_parse("symbol u0 = item %k in [-inf, inf]\ninput %x: f32[5]\ninput %k: i64[]\n"
                    "%a: f32[Max(u0, 0)] = aten.slice.Tensor(%x, 0, 0, u0)\noutput a = %a\n",
                    NULL, NULL, &err);
    if (!g) STOP("%s", err.msg); /* of data: as its values say */
    assert_int_equal(g->nrequire, 1);
    graph_free(g);
}

/* Cut anywhere, or with any one byte changed: read or refused, nothing for the sanitizers;
 * what is read prints stably. */
static void test_bytes(void **state)
{
    (void)state;
    static const char text[] = "symbol s0 in [1, 8]\n"
                               "symbol u0 = size %nz 0 in [0, inf]\n"
                               "input %x: f32[s0, 3]\n"
                               "weight %w: f32[4, 3] = parameter \"f32[4, 3]\"\n"
                               "%l: f32[s0, 4] = aten.linear.default(%x, %w)\n"
                               "%nz: i64[u0, 2] = aten.nonzero.default(%l)\n"
                               "%v: f32[s0, 1], %i: i64[s0, 1] = aten.topk.default(%l, 1, largest=false)\n"
                               "%f: f32[s0//2] = aten.full.default([(s0//2)], -1e-05, dtype=f32)\n"
                               "require s0 % 2 == 0 \"a \\\"b\"\n"
                               "mutate %w = %w\n"
                               "output o = %v\n";
    uint64_t r = 3;
    char copy[sizeof text];
    int accepted = 0;
    expect_same(text);
    for (size_t i = 0; i < 4 * sizeof text; i++) {
        memcpy(copy, text, sizeof text);
        if (i < sizeof text) copy[i] = 0;
        else copy[i % (sizeof text - 1)] = "\"%[](),=:s0x9- \n\\"[unit_random(&r) % 17];
        Err err = {0};
        Graph *g = graph_parse(copy, unit_weight, NULL, &err);
        if (!g) {
            assert_true(err.code != E_OK && *err.msg);
            continue;
        }
        accepted++;
        char *once = unit_text(g), *twice;
        Graph *back = graph_parse(once, unit_weight, NULL, &err);
        if (!back) STOP("%s\n->\n%s%s", copy, once, err.msg);
        twice = unit_text(back);
        assert_string_equal(once, twice);
        free(once);
        free(twice);
        graph_free(g);
        graph_free(back);
    }
    assert_true(accepted > 10);
}

/* Modules of nodes, one word or not; of the model itself; shared, and kept by copies. */
static void test_modules(void **state)
{
    (void)state;
    expect_same("input %x: f32[2]\n"
                "%a: f32[2] = aten.relu.default(%x) in layers.0.act\n"
                "%b: f32[2] = aten.relu.default(%a) in \"layers.0@1/x\"\n"
                "%c: f32[2] = aten.relu.default(%b) in \"\"\n"
                "%d: f32[2] = aten.relu.default(%c)\n"
                "output o = %d\n");
    Graph *g = graph_create();
    const Module *m = graph_module(g, "a.b", NULL), *n = graph_module(g, "a.b", "L__self__,,M;x,a.b,T");
    assert_ptr_equal(graph_module(g, "a.b", NULL), m);
    assert_ptr_not_equal(m, n);
    assert_string_equal(n->path, m->path);
    graph_free(g);
}

static void expect_not_renamed(Graph *g, const char *from, const char *to, const char *words)
{
    Err err = {0};
    assert_false(graph_rename_size(g, from, to, &err));
    assert_int_equal(err.code, E_USAGE);
    if (!strstr(err.msg, words)) STOP("%s", err.msg);
}

/* Sizes under another name, declared ranges included; the old one still finds the size, in copies, too. */
static void test_renamed(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = unit_graph("symbol s0 in [1, 8]\nsymbol s1 in [1, 8]\ninput %x: f32[2*s0, s1]\n"
                          "require 2*s0 < 15 \"range of 2*s0\"\noutput o = %x\n");
    OK(graph_rename_size(g, "s0", "h", &err) && graph_rename_size(g, "h", "h", &err));
    Graph *copy = graph_copy(g, &err);
    assert_non_null(copy);
    assert_ptr_equal(expr_find_symbol(copy->ex, "s0"), expr_find_symbol(copy->ex, "h"));
    char *text = unit_text(copy);
    assert_string_equal(text, "symbol h in [1, 8]\nsymbol s1 in [1, 8]\ninput %x: f32[2*h, s1]\n"
                              "require 2*h < 15 \"range of 2*h\"\noutput o = %x\n");
    free(text);
    expect_not_renamed(g, "s7", "a", "no size is called 's7'");
    expect_not_renamed(g, "h", "s1", "'s1' is already the name of another size");
    expect_not_renamed(g, "h", "true", "'true' is not a name");
    expect_not_renamed(g, "h", "a-b", "'a-b' is not a name");
    expect_not_renamed(g, "h", "", "'' is not a name");
    graph_free(g);
    graph_free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),      cmocka_unit_test(test_bodies),  cmocka_unit_test(test_symbols),
        cmocka_unit_test(test_spellings), cmocka_unit_test(test_call),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bytes),     cmocka_unit_test(test_modules), cmocka_unit_test(test_renamed),
        cmocka_unit_test(test_declared_otherwise),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
