/* Constants of files: what is computed before a file is written, and what stays. */
#include "unit_graph.h"
#include "program/constants.h"

static void expect(const char *whole, const char *folded)
{
    Err err = {0};
    Graph *g = unit_graph(whole);
    if (!fold_constants(g, &err) || !graph_check(g, &err)) STOP("%s", err.msg);
    char *text = unit_text(g);
    if (strcmp(text, folded)) STOP("found:\n%s\nexpected:\n%s", text, folded);
    free(text);
    graph_free(g);
}

/* Buffers and made values, through views; the last one that an input meets becomes a weight. */
static void test_folded(void **state)
{
    (void)state;
    expect("input %x: f32[4]\n"
           "weight %t: f32[4] = buffer \"f32[4]\"\n"
           "%i: i64[4] = aten.arange.start_step(0, 4, dtype=i64)\n"
           "%f: f32[4] = aten._to_copy.default(%i, dtype=f32)\n"
           "%m: f32[4] = aten.mul.Tensor(%t, %f)\n"
           "%y: f32[4] = aten.add.Tensor(%x, %m)\n"
           "output o = %y\n",
           "input %x: f32[4]\n"
           "weight %t: f32[4] = buffer \"f32[4]\"\n"
           "weight %m: f32[4] = constant \"folded_m\"\n"
           "%y: f32[4] = aten.add.Tensor(%x, %m)\n"
           "output o = %y\n");
}

/* What depends on a parameter, an input's size or a written buffer, a view of a buffer, a filled tensor, an output. */
static void test_kept(void **state)
{
    (void)state;
    static const char *const same[] = {
        "input %x: f32[4]\nweight %w: f32[4] = parameter \"f32[4]\"\n"
        "%m: f32[4] = aten.mul.Tensor(%w, 2)\n%y: f32[4] = aten.add.Tensor(%x, %m)\noutput o = %y\n",
        "symbol s0 in [1, 8]\ninput %x: f32[s0]\n%i: i64[s0] = aten.arange.start_step(0, s0, dtype=i64)\n"
        "%y: f32[s0] = aten.add.Tensor(%x, %i)\noutput o = %y\n",
        "input %x: f32[4]\nweight %t: f32[4] = buffer \"f32[4]\"\n%m: f32[4] = aten.mul.Tensor(%t, 2)\n"
        "%y: f32[4] = aten.add.Tensor(%x, %m)\nmutate %t = %y\noutput o = %y\n",
        "input %x: f32[2, 2]\nweight %t: f32[4] = buffer \"f32[4]\"\n%m: f32[2, 2] = aten.reshape.default(%t, [2, 2])\n"
        "%y: f32[2, 2] = aten.add.Tensor(%x, %m)\noutput o = %y\n",
        "weight %t: f32[4] = buffer \"f32[4]\"\n%m: f32[4] = aten.mul.Tensor(%t, 2)\noutput o = %m\n",
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) expect(same[i], same[i]);
}

/* A buffer that is called as the value would be. */
static void test_taken_name(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = unit_graph("input %x: f32[4]\nweight %t: f32[4] = buffer \"f32[4]\"\n"
                          "%m: f32[4] = aten.mul.Tensor(%t, 2)\n%y: f32[4] = aten.add.Tensor(%x, %m)\noutput o = %y\n");
    g->weight[0]->fqn = "folded_m";
    OK(fold_constants(g, &err));
    assert_int_equal(g->nweight, 2);
    assert_string_equal(g->weight[1]->name, "m");
    assert_string_equal(g->weight[1]->fqn, "folded_m_");
    for (int i = 0; i < 4; i++) assert_true(tensor_get(g->weight[1]->data, i) == 2 * (i + 1));
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_folded), cmocka_unit_test(test_kept),
                                       cmocka_unit_test(test_taken_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
