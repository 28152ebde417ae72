/* Operations and bytes of a step, against figures worked out by hand: one row per family. */
#include "unit_graph.h"
#include "plan/plan.h"

/* The work of the graph's last step. */
static Work last_work(const char *text)
{
    Err err = {0};
    Binding b;
    UnitGiven s;
    Graph *g = unit_graph(text);
    make_given(g, true, &s);
    OK(binding_init(&b, g->ex, &err));
    Plan *p = plan_build(&(PlanInput){.graph = g, .given = s.given, .stable = s.stable}, &b, &err);
    OK(p);
    assert_true(p->nsteps > 0);
    Work w = work_of(&p->step[p->nsteps - 1].call);
    plan_free(p);
    free_given(g, &s);
    binding_free(&b);
    graph_free(g);
    return w;
}

static void expect(const char *text, double flops, double bytes, bool half)
{
    Work w = last_work(text);
    if (w.flops != flops || w.bytes != bytes || w.half != half)
        STOP("%s\n%g operations, %g bytes, half %d; expected %g, %g, %d", text, w.flops, w.bytes, w.half, flops, bytes,
             half);
}

static void test_products(void **state)
{
    (void)state;
    expect("input %x: f32[2, 5, 4]\ninput %w: f32[3, 4]\ninput %b: f32[3]\n"
           "%y: f32[2, 5, 3] = aten.linear.default(%x, %w, %b)\noutput o = %y\n",
           2 * 10 * 3 * 4, 4 * (40 + 12 + 3 + 30), false);
    expect("input %x: bf16[5, 4]\ninput %w: bf16[3, 4]\n%y: bf16[5, 3] = aten.linear.default(%x, %w)\noutput o = %y\n",
           2 * 5 * 3 * 4, 2 * (20 + 12 + 15), true);
    /* an axis of b that broadcasts lies in memory once */
    expect("input %a: f32[7, 5, 4]\ninput %b: f32[4, 3]\n%e: f32[7, 4, 3] = aten.expand.default(%b, [7, 4, 3])\n"
           "%y: f32[7, 5, 3] = aten.matmul.default(%a, %e)\noutput o = %y\n",
           2 * 7 * 5 * 3 * 4, 4 * (140 + 12 + 105), false);
    /* two groups of 4 channels, kernel 3 x 3, 6 x 6 outputs of 8 channels */
    expect("input %x: f32[1, 8, 8, 8]\ninput %w: f32[8, 4, 3, 3]\n"
           "%y: f32[1, 8, 6, 6] = aten.convolution.default(%x, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 2)\n"
           "output o = %y\n",
           2.0 * 8 * 36 * 4 * 9, 4 * (512 + 288 + 288), false);
    /* transposed: every input element goes to 5 channels x 2 x 2 */
    expect("input %x: f32[1, 3, 4, 4]\ninput %w: f32[3, 5, 2, 2]\n"
           "%y: f32[1, 5, 8, 8] = aten.convolution.default(%x, %w, none, [2, 2], [0, 0], [1, 1], true, [0, 0], 1)\n"
           "output o = %y\n",
           2.0 * 48 * 5 * 4, 4 * (48 + 60 + 320), false);
}

static void expect_attention(const char *rest, double pairs)
{
    char text[512];
    snprintf(text, sizeof text,
             "input %%q: f32[1, 2, 4, 8]\ninput %%k: f32[1, 2, 6, 8]\ninput %%v: f32[1, 2, 6, 8]\n"
             "%%y: f32[1, 2, 4, 8] = aten.scaled_dot_product_attention.default(%%q, %%k, %%v%s)\noutput o = %%y\n",
             rest);
    expect(text, 4 * 2 * pairs * 8, 4 * (64 + 96 + 96 + 64), false);
}

static void test_attention(void **state)
{
    (void)state;
    expect_attention("", 4 * 6);
    expect_attention(", is_causal=true", 1 + 2 + 3 + 4);
}

static void test_others(void **state)
{
    (void)state;
    expect("input %x: f32[4, 6]\n%y: f32[4, 6] = aten.exp.default(%x)\noutput o = %y\n", 24, 4 * 48, false);
    expect("input %x: f32[4, 6]\n%y: f32[4] = aten.amax.default(%x, [1])\noutput o = %y\n", 24, 4 * 28, false);
    expect("input %x: f32[4, 6]\n%y: f32[4, 6] = aten.layer_norm.default(%x, [6])\noutput o = %y\n", 7 * 24, 4 * 48,
           false);
    /* of a table, what is taken; the indices; the result */
    expect("input %t: f32[1000, 8]\ninput %i: i64[3]\n%y: f32[3, 8] = aten.embedding.default(%t, %i)\noutput o = %y\n",
           0, 4 * 24 + 8 * 3 + 4 * 24, false);
    expect("input %a: f32[2, 3]\ninput %b: f32[2, 5]\n%y: f32[2, 8] = aten.cat.default([%a, %b], 1)\noutput o = %y\n",
           0, 4 * (6 + 10 + 16), false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_others)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
