/* Lowered precision: where casts end up, by the graph's text. */
#include "unit_graph.h"
#include "precision/precision.h"

static void expect(const char *whole, const char *lowered)
{
    Err err = {0};
    Graph *g = unit_graph(whole);
    if (!lower_precision(g, DT_BF16, &err) || !graph_check(g, &err)) STOP("%s", err.msg);
    Buf b = {0};
    graph_print(g, &b);
    if (strcmp(strstr(b.data, "\n%") + 1, lowered))
        STOP("found:\n%s\nexpected:\n%s", strstr(b.data, "\n%") + 1, lowered);
    buf_free(&b);
    graph_free(g);
}

#define HEAD                                                                                                           \
    "symbol s0 in [1, 8]\n"                                                                                            \
    "input %x: f32[s0, 8]\n"                                                                                           \
    "weight %p_w: f32[8, 8] = parameter \"f32[8, 8]\"\n"                                                               \
    "weight %p_b: f32[8] = parameter \"f32[8]\"\n"

/* One cast of x for both products; biases stay float32; what is between two products is narrow,
 * the sum with x is not. */
static void test_products(void **state)
{
    (void)state;
    expect(HEAD "%a: f32[s0, 8] = aten.linear.default(%x, %p_w, %p_b)\n"
                "%b: f32[s0, 8] = aten.linear.default(%x, %p_w)\n"
                "%c: f32[s0, 8] = aten.matmul.default(%b, %p_w)\n"
                "%d: f32[s0, 8] = aten.add.Tensor(%a, %x)\n"
                "output o = %c\noutput p = %d\n",
           "%x__7: bf16[s0, 8] = aten._to_copy.default(%x, dtype=bf16)\n"
           "%p_w__8: bf16[8, 8] = aten._to_copy.default(%p_w, dtype=bf16)\n"
           "%a: bf16[s0, 8] = aten.linear.default(%x__7, %p_w__8, %p_b)\n"
           "%a__10: f32[s0, 8] = aten._to_copy.default(%a, dtype=f32)\n"
           "%b: bf16[s0, 8] = aten.linear.default(%x__7, %p_w__8)\n"
           "%c: bf16[s0, 8] = aten.matmul.default(%b, %p_w__8)\n"
           "%c__14: f32[s0, 8] = aten._to_copy.default(%c, dtype=f32)\n"
           "%d: f32[s0, 8] = aten.add.Tensor(%a__10, %x)\n"
           "output o = %c__14\n"
           "output p = %d\n");
}

/* After convolutions, activations, pooling and sums stay narrow,
 * but not with values that are not narrow by themselves. */
static void test_convolutions(void **state)
{
    (void)state;
    expect("input %x: f32[1, 4, 8, 8]\n"
           "weight %k: f32[4, 4, 1, 1] = parameter \"f32[4, 4, 1, 1]\"\n"
           "%c: f32[1, 4, 8, 8] = aten.convolution.default(%x, %k, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)\n"
           "%r: f32[1, 4, 8, 8] = aten.relu.default(%c)\n"
           "%m: f32[1, 4, 4, 4], %i: i64[1, 4, 4, 4] = aten.max_pool2d_with_indices.default(%r, [2, 2], [2, 2])\n"
           "%d: f32[1, 4, 4, 4] = aten.convolution.default(%m, %k, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)\n"
           "%a: f32[1, 4, 4, 4] = aten.add.Tensor(%d, %m)\n"
           "%e: f32[1, 4, 8, 8] = aten.add.Tensor(%c, %x)\n"
           "output o = %a\noutput p = %e\noutput i = %i\n",
           "%x__9: bf16[1, 4, 8, 8] = aten._to_copy.default(%x, dtype=bf16)\n"
           "%k__10: bf16[4, 4, 1, 1] = aten._to_copy.default(%k, dtype=bf16)\n"
           "%c: bf16[1, 4, 8, 8] = aten.convolution.default(%x__9, %k__10, stride=[1, 1], padding=[0, 0], dilation=[1, "
           "1], transposed=false, output_padding=[0, 0], groups=1)\n"
           "%c__12: f32[1, 4, 8, 8] = aten._to_copy.default(%c, dtype=f32)\n"
           "%r: bf16[1, 4, 8, 8] = aten.relu.default(%c)\n"
           "%m: bf16[1, 4, 4, 4], %i: i64[1, 4, 4, 4] = aten.max_pool2d_with_indices.default(%r, [2, 2], [2, 2], [0, "
           "0], [1, 1])\n"
           "%d: bf16[1, 4, 4, 4] = aten.convolution.default(%m, %k__10, stride=[1, 1], padding=[0, 0], dilation=[1, "
           "1], transposed=false, output_padding=[0, 0], groups=1)\n"
           "%a: bf16[1, 4, 4, 4] = aten.add.Tensor(%d, %m)\n"
           "%a__22: f32[1, 4, 4, 4] = aten._to_copy.default(%a, dtype=f32)\n"
           "%e: f32[1, 4, 8, 8] = aten.add.Tensor(%c__12, %x)\n"
           "output o = %a__22\n"
           "output p = %e\n"
           "output i = %i\n");
}

/* Casts go down over views and concatenations after a product, and up over views before one, but not over slices,
 * which would cast more. */
static void test_views(void **state)
{
    (void)state;
    expect(HEAD "%a: f32[s0, 8] = aten.linear.default(%x, %p_w)\n"
                "%r: f32[s0, 2, 4] = aten.reshape.default(%a, [s0, 2, 4])\n"
                "%t: f32[s0, 4, 2] = aten.permute.default(%r, [0, 2, 1])\n"
                "%n: f32[s0, 4, 2] = aten.neg.default(%t)\n"
                "%u: f32[s0, 8] = aten.reshape.default(%n, [s0, 8])\n"
                "%b: f32[s0, 8] = aten.linear.default(%u, %p_w)\n"
                "%k: f32[2*s0, 8] = aten.cat.default([%a, %b], 0)\n"
                "%c: f32[2*s0, 8] = aten.linear.default(%k, %p_w)\n"
                "%m: f32[s0, 8] = aten.neg.default(%x)\n"
                "%s: f32[1, 8] = aten.slice.Tensor(%m, 0, 0, 1)\n"
                "%e: f32[1, 8] = aten.linear.default(%s, %p_w)\n"
                "output o = %c\noutput p = %t\noutput q = %e\n",
           "%x__14: bf16[s0, 8] = aten._to_copy.default(%x, dtype=bf16)\n"
           "%p_w__15: bf16[8, 8] = aten._to_copy.default(%p_w, dtype=bf16)\n"
           "%a: bf16[s0, 8] = aten.linear.default(%x__14, %p_w__15)\n"
           "%r: bf16[s0, 2, 4] = aten.reshape.default(%a, [s0, 2, 4])\n"
           "%t: bf16[s0, 4, 2] = aten.permute.default(%r, [0, 2, 1])\n"
           "%t__30: f32[s0, 4, 2] = aten._to_copy.default(%t, dtype=f32)\n"
           "%n: f32[s0, 4, 2] = aten.neg.default(%t__30)\n"
           "%n__33: bf16[s0, 4, 2] = aten._to_copy.default(%n, dtype=bf16)\n"
           "%u: bf16[s0, 8] = aten.reshape.default(%n__33, [s0, 8])\n"
           "%b: bf16[s0, 8] = aten.linear.default(%u, %p_w__15)\n"
           "%k: bf16[2*s0, 8] = aten.cat.default([%a, %b])\n"
           "%c: bf16[2*s0, 8] = aten.linear.default(%k, %p_w__15)\n"
           "%c__23: f32[2*s0, 8] = aten._to_copy.default(%c, dtype=f32)\n"
           "%m: f32[s0, 8] = aten.neg.default(%x)\n"
           "%s: f32[1, 8] = aten.slice.Tensor(%m, start=0, end=1)\n"
           "%s__24: bf16[1, 8] = aten._to_copy.default(%s, dtype=bf16)\n"
           "%e: bf16[1, 8] = aten.linear.default(%s__24, %p_w__15)\n"
           "%e__26: f32[1, 8] = aten._to_copy.default(%e, dtype=f32)\n"
           "output o = %c__23\n"
           "output p = %t__30\n"
           "output q = %e__26\n");
}

/* A few queries of a cache that comes in as float32 read it as it is; what the graph makes, and many queries of an
 * input, are narrow. */
static void test_attention_of_a_cache(void **state)
{
    (void)state;
    expect("input %q: f32[1, 2, 1, 16]\n"
           "input %k: f32[1, 2, 8, 16]\n"
           "input %p: f32[1, 2, 9, 16]\n"
           "%n: f32[1, 2, 1, 16] = aten.neg.default(%q)\n"
           "%c: f32[1, 2, 9, 16] = aten.cat.default([%k, %n], 2)\n"
           "%o: f32[1, 2, 1, 16] = aten.scaled_dot_product_attention.default(%q, %c, %c)\n"
           "output o = %o\n",
           "%n: f32[1, 2, 1, 16] = aten.neg.default(%q)\n"
           "%c: f32[1, 2, 9, 16] = aten.cat.default([%k, %n], 2)\n"
           "%o: f32[1, 2, 1, 16] = aten.scaled_dot_product_attention.default(%q, %c, %c)\n"
           "output o = %o\n");
    expect("input %q: f32[1, 2, 1, 16]\n"
           "input %k: f32[1, 2, 8, 16]\n"
           "%n: f32[1, 2, 8, 16] = aten.neg.default(%k)\n"
           "%o: f32[1, 2, 1, 16] = aten.scaled_dot_product_attention.default(%q, %n, %n)\n"
           "%m: f32[1, 2, 8, 16] = aten.scaled_dot_product_attention.default(%k, %k, %k)\n"
           "output o = %o\noutput m = %m\n",
           "%n: f32[1, 2, 8, 16] = aten.neg.default(%k)\n"
           "%q__5: bf16[1, 2, 1, 16] = aten._to_copy.default(%q, dtype=bf16)\n"
           "%n__6: bf16[1, 2, 8, 16] = aten._to_copy.default(%n, dtype=bf16)\n"
           "%o: bf16[1, 2, 1, 16] = aten.scaled_dot_product_attention.default(%q__5, %n__6, %n__6)\n"
           "%o__8: f32[1, 2, 1, 16] = aten._to_copy.default(%o, dtype=f32)\n"
           "%k__9: bf16[1, 2, 8, 16] = aten._to_copy.default(%k, dtype=bf16)\n"
           "%m: bf16[1, 2, 8, 16] = aten.scaled_dot_product_attention.default(%k__9, %k__9, %k__9)\n"
           "%m__11: f32[1, 2, 8, 16] = aten._to_copy.default(%m, dtype=f32)\n"
           "output o = %o__8\n"
           "output m = %m__11\n");
}

/* Attention that is trained: products, its output and gradients are narrow, logsumexp and mask float32;
 * the backward pass reads the same narrow numbers that the forward pass read and made. */
static void test_attention_pair(void **state)
{
    (void)state;
    expect("input %q: f32[1, 2, 8, 16]\n"
           "input %k: f32[1, 2, 9, 16]\n"
           "input %m: f32[8, 9]\n"
           "input %w: f32[16, 16]\n"
           "%o: f32[1, 2, 8, 16], %l: f32[1, 2, 8] = qkv.sdpa_lse.default(%q, %k, %k, %m)\n"
           "%y: f32[1, 2, 8, 16] = aten.matmul.default(%o, %w)\n"
           "%g: f32[1, 2, 8, 16] = aten.neg.default(%y)\n"
           "%dq: f32[1, 2, 8, 16], %dk: f32[1, 2, 9, 16], %dv: f32[1, 2, 9, 16], %dm: f32[8, 9] = "
           "qkv.sdpa_backward.default(%g, %q, %k, %k, %o, %l, %m, grad_mask=true)\n"
           "%e: f32[1, 2, 8, 16] = aten.matmul.default(%dq, %w)\n"
           "%s: f32[1, 2, 9, 16] = aten.add.Tensor(%dk, %dv)\n"
           "output o = %e\noutput p = %s\noutput n = %dm\noutput l = %l\n",
           "%q__14: bf16[1, 2, 8, 16] = aten._to_copy.default(%q, dtype=bf16)\n"
           "%k__15: bf16[1, 2, 9, 16] = aten._to_copy.default(%k, dtype=bf16)\n"
           "%o: bf16[1, 2, 8, 16], %l: f32[1, 2, 8] = qkv.sdpa_lse.default(%q__14, %k__15, %k__15, %m)\n"
           "%w__19: bf16[16, 16] = aten._to_copy.default(%w, dtype=bf16)\n"
           "%y: bf16[1, 2, 8, 16] = aten.matmul.default(%o, %w__19)\n"
           "%y__21: f32[1, 2, 8, 16] = aten._to_copy.default(%y, dtype=f32)\n"
           "%g: f32[1, 2, 8, 16] = aten.neg.default(%y__21)\n"
           "%g__22: bf16[1, 2, 8, 16] = aten._to_copy.default(%g, dtype=bf16)\n"
           "%dq: bf16[1, 2, 8, 16], %dk: bf16[1, 2, 9, 16], %dv: bf16[1, 2, 9, 16], %dm: f32[8, 9] = "
           "qkv.sdpa_backward.default(%g__22, %q__14, %k__15, %k__15, %o, %l, %m, grad_mask=true)\n"
           "%dk__28: f32[1, 2, 9, 16] = aten._to_copy.default(%dk, dtype=f32)\n"
           "%dv__29: f32[1, 2, 9, 16] = aten._to_copy.default(%dv, dtype=f32)\n"
           "%e: bf16[1, 2, 8, 16] = aten.matmul.default(%dq, %w__19)\n"
           "%e__31: f32[1, 2, 8, 16] = aten._to_copy.default(%e, dtype=f32)\n"
           "%s: f32[1, 2, 9, 16] = aten.add.Tensor(%dk__28, %dv__29)\n"
           "output o = %e__31\n"
           "output p = %s\n"
           "output n = %dm\n"
           "output l = %l\n");
}

/* Products over a few numbers, and of other floats, stay. */
static void test_stays(void **state)
{
    (void)state;
    const char *same = "%q: f32[s0, 2] = aten.slice.Tensor(%x, 1, 0, 2)\n"
                       "%v: f32[2, 8] = aten.slice.Tensor(%p_w, start=0, end=2)\n"
                       "%a: f32[s0, 8] = aten.matmul.default(%q, %v)\n"
                       "%y: f64[s0, 8] = aten._to_copy.default(%x, dtype=f64)\n"
                       "%z: f64[8, 8] = aten._to_copy.default(%p_w, dtype=f64)\n"
                       "%d: f64[s0, 8] = aten.matmul.default(%y, %z)\n"
                       "output o = %a\noutput p = %d\n";
    char whole[1024];
    snprintf(whole, sizeof whole, "%s%s", HEAD, same);
    expect(whole, same);
}

/* For files: bias, masks and tables are narrow, too; a weight that only narrow ops read has the type itself. */
static void test_files(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = unit_graph(HEAD "%a: f32[s0, 8] = aten.linear.default(%x, %p_w, %p_b)\n"
                               "%b: f32[s0, 8] = aten.add.Tensor(%a, %p_b)\n"
                               "output o = %b\n");
    OK(convert_precision(g, DT_F16, &err));
    char *text = unit_text(g);
    assert_non_null(strstr(text, "weight %p_w: f16[8, 8] = parameter \"f32[8, 8]\""));
    assert_non_null(strstr(text, "weight %p_b: f32[8] = parameter \"f32[8]\"")); /* the sum reads it */
    assert_non_null(strstr(text, ": f16[8] = parameter \"f32[8].f16\""));
    assert_non_null(strstr(text, "aten.add.Tensor(%a__"));
    free(text);
    OK(convert_precision(g, DT_F32, &err));
    text = unit_text(g);
    assert_null(strstr(text, "f16["));
    assert_null(strstr(text, "_to_copy"));
    free(text);
    graph_free(g);
}

static void test_too_large(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = unit_graph("input %x: f32[2, 8]\nweight %w: f32[8, 8] = parameter \"f32[8, 8]\"\n"
                          "%a: f32[2, 8] = aten.linear.default(%x, %w)\noutput o = %a\n");
    Tensor copy = *g->weight[0]->data;
    copy.data = calloc(1, tensor_bytes(&copy));
    store_f64(DT_F32, copy.data, 1e6);
    g->weight[0]->data = &copy;
    assert_false(convert_precision(g, DT_F16, &err));
    assert_int_equal(err.code, E_USAGE);
    assert_non_null(strstr(err.msg, "1e+06, which f16 cannot: take bf16"));
    free(copy.data);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_convolutions),
                                       cmocka_unit_test(test_views),    cmocka_unit_test(test_attention_pair),
                                       cmocka_unit_test(test_attention_of_a_cache),
                                       cmocka_unit_test(test_stays),    cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_too_large)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
