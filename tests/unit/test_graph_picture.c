/* Parts of graphs: which nodes conditions choose, and their pictures as DOT and SVG. */
#include "unit_graph.h"
#include "picture/picture.h"

static const char graph[] = "symbol s0 in [1, 8]\n"
                            "input %x: f32[s0, 4]\n"
                            "weight %w: f32[4, 4] = parameter \"f32[4, 4]\"\n"
                            "%a: f32[s0, 4] = aten.linear.default(%x, %w) in layers.0.fc\n"
                            "%b: f32[s0, 4] = aten.relu.default(%a) in layers.0\n"
                            "%c: f32[s0, 4] = aten.linear.default(%b, %w) in layers.1.fc\n"
                            "%d: f32[s0, 4] = aten.relu.default(%c) in layers.10\n"
                            "%e: f32[s0, 4] = aten.add.Tensor(%d, %a)\n"
                            "output o = %e\n";

static void expect_nodes(PictureOptions o, const char *names)
{
    Graph *g = unit_graph(graph);
    Buf b = {0};
    Err err = {0};
    char found[32] = "";
    if (!picture_text(g, &o, &b, &err)) STOP("%s", err.msg);
    for (const char *s = b.data; s && *s; s = strchr(s, '\n') + 1) strncat(found, s + 1, 1);
    assert_string_equal(found, names);
    buf_free(&b);
    graph_free(g);
}

static void expect_refused(PictureOptions o, const char *words)
{
    Graph *g = unit_graph(graph);
    bool (*const draw[])(const Graph *, const PictureOptions *, Buf *, Err *) = {picture_text, picture_dot,
                                                                                 picture_svg};
    for (int i = 0; i < 3; i++) {
        Buf b = {0};
        Err err = {0};
        assert_false(draw[i](g, &o, &b, &err));
        assert_int_equal(err.code, E_USAGE);
        if (!strstr(err.msg, words)) STOP("%s", err.msg);
        buf_free(&b);
    }
    graph_free(g);
}

static void test_chosen(void **state)
{
    (void)state;
    expect_nodes((PictureOptions){0}, "abcde");
    expect_nodes((PictureOptions){.module = "layers.0"}, "ab");
    expect_nodes((PictureOptions){.module = "layers.1"}, "c"); /* not layers.10 */
    expect_nodes((PictureOptions){.module = "layers"}, "abcd");
    expect_nodes((PictureOptions){.op = "relu"}, "bd");
    expect_nodes((PictureOptions){.op = "aten.linear"}, "ac");
    expect_nodes((PictureOptions){.op = "aten.add.Tensor"}, "e");
    expect_nodes((PictureOptions){.around = "b"}, "b");
    expect_nodes((PictureOptions){.around = "b", .hops = 1}, "abc");
    expect_nodes((PictureOptions){.around = "e", .hops = 1}, "ade");
    expect_nodes((PictureOptions){.around = "e", .hops = 2}, "abcde");
    expect_nodes((PictureOptions){.around = "b", .hops = 1, .op = "linear"}, "ac");
    expect_refused((PictureOptions){.module = "layer"}, "no node belongs to a module 'layer'");
    expect_refused((PictureOptions){.op = "rel"}, "no node of the graph is 'rel'");
    expect_refused((PictureOptions){.around = "x"}, "no node of the graph is called 'x'");
    expect_refused((PictureOptions){.module = "layers.0", .op = "add"}, "no node meets all");
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *s = text; (s = strstr(s, word)); s++) n++;
    return n;
}

/* Boxes: the nodes, what is beside them, inputs and outputs; edges between them, one for two uses. */
static void test_pictures(void **state)
{
    (void)state;
    static const struct {
        PictureOptions o;
        int boxes, dashed, edges;
    } cases[] = {{{0}, 7, 0, 7}, {{.module = "layers.0"}, 5, 2, 4}, {{.around = "d"}, 3, 2, 2}};
    Graph *g = unit_graph(graph);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf dot = {0}, svg = {0};
        Err err = {0};
        OK(picture_dot(g, &cases[i].o, &dot, &err) && picture_svg(g, &cases[i].o, &svg, &err));
        assert_int_equal(count(dot.data, "[label = "), cases[i].boxes);
        assert_int_equal(count(dot.data, "style = dashed"), cases[i].dashed);
        assert_int_equal(count(dot.data, " -> "), cases[i].edges);
        assert_int_equal(count(dot.data, "{"), count(dot.data, "}"));
        assert_int_equal(count(svg.data, "<g>"), cases[i].boxes);
        assert_int_equal(count(svg.data, "class=\"outside\""), cases[i].dashed);
        assert_int_equal(count(svg.data, "<path d="), cases[i].edges);
        buf_free(&dot);
        buf_free(&svg);
    }
    graph_free(g);
}

static void test_empty(void **state)
{
    (void)state;
    Graph *g = unit_graph("");
    Buf b = {0};
    Err err = {0};
    const PictureOptions all = {0};
    OK(picture_svg(g, &all, &b, &err) && picture_dot(g, &all, &b, &err) && picture_text(g, &all, &b, &err));
    buf_free(&b);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chosen), cmocka_unit_test(test_pictures),
                                       cmocka_unit_test(test_empty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
