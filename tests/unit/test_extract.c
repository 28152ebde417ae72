/* Parts of a graph: what is cut out, by its text; and what cannot be cut, by what is said. */
#include "unit_graph.h"
#include "extract/extract.h"

typedef struct Want {
    const char *from[3], *to[3];
} Want;

static int count(const char *const *names)
{
    int n = 0;
    while (n < 3 && names[n]) n++;
    return n;
}

static void expect(const char *whole, Want w, const char *part)
{
    Err err = {0};
    Graph *g = unit_graph(whole);
    Graph *cut = graph_extract(g, w.from, count(w.from), w.to, count(w.to), &err);
    if (!cut) STOP("%s", err.msg);
    OK(graph_check(cut, &err));
    Buf b = {0};
    graph_print(cut, &b);
    if (strcmp(b.data, part)) STOP("found:\n%s\nexpected:\n%s", b.data, part);
    buf_free(&b);
    graph_free(cut);
    graph_free(g);
}

static void refuse(const char *whole, Want w, const char *says)
{
    Err err = {0};
    Graph *g = unit_graph(whole);
    Graph *cut = graph_extract(g, w.from, count(w.from), w.to, count(w.to), &err);
    if (cut) STOP("accepted, expected: %s", says);
    assert_int_equal(err.code, E_USAGE);
    assert_string_equal(err.msg, says);
    graph_free(g);
}

static const char chain[] = "symbol s0 in [1, 8]\n"
                            "symbol s1 in [2, 64]\n"
                            "input %x: f32[s0, 3]\n"
                            "input %mask: f32[s1, 4]\n"
                            "weight %p_w: f32[4, 3] = parameter \"f32[4, 3]\"\n"
                            "weight %p_v: f32[4, 4] = parameter \"f32[4, 4]\"\n"
                            "%linear: f32[s0, 4] = aten.linear.default(%x, %p_w)\n"
                            "%relu: f32[s0, 4] = aten.relu.default(%linear)\n"
                            "%linear_1: f32[s0, 4] = aten.linear.default(%relu, %p_v)\n"
                            "%add: f32[s0, 4] = aten.add.Tensor(%linear_1, %mask)\n"
                            "require s0 < 7 \"guard of x\"\n"
                            "require s0 == s1 \"node 'add': dim 0\"\n"
                            "output output_0 = %add\n";

static void test_chain(void **state)
{
    (void)state;
    expect(chain, (Want){{"linear"}, {"linear_1", "relu"}},
           "symbol s0 in [1, 8]\n"
           "input %linear: f32[s0, 4]\n"
           "weight %p_v: f32[4, 4] = parameter \"f32[4, 4]\"\n"
           "%relu: f32[s0, 4] = aten.relu.default(%linear)\n"
           "%linear_1: f32[s0, 4] = aten.linear.default(%relu, %p_v)\n"
           "require s0 < 7 \"guard of x\"\n"
           "output linear_1 = %linear_1\n"
           "output relu = %relu\n");
    /* from the inputs on: only what is needed of them */
    expect(chain, (Want){{NULL}, {"relu"}},
           "symbol s0 in [1, 8]\n"
           "input %x: f32[s0, 3]\n"
           "weight %p_w: f32[4, 3] = parameter \"f32[4, 3]\"\n"
           "%linear: f32[s0, 4] = aten.linear.default(%x, %p_w)\n"
           "%relu: f32[s0, 4] = aten.relu.default(%linear)\n"
           "require s0 < 7 \"guard of x\"\n"
           "output relu = %relu\n");
    /* up to the outputs, by their name; a weight as an input; both sizes are there, so both conditions are */
    expect(chain, (Want){{"mask", "relu", "p_v"}, {"output_0"}},
           "symbol s1 in [2, 64]\n"
           "symbol s0 in [1, 8]\n"
           "input %mask: f32[s1, 4]\n"
           "input %relu: f32[s0, 4]\n"
           "input %p_v: f32[4, 4]\n"
           "%linear_1: f32[s0, 4] = aten.linear.default(%relu, %p_v)\n"
           "%add: f32[s0, 4] = aten.add.Tensor(%linear_1, %mask)\n"
           "require s0 < 7 \"guard of x\"\n"
           "require s0 == s1 \"node 'add': dim 0\"\n"
           "output add = %add\n");
    /* nothing in between, and an input that nothing reads */
    expect(chain, (Want){{"relu", "mask"}, {"relu"}},
           "symbol s0 in [1, 8]\n"
           "symbol s1 in [2, 64]\n"
           "input %relu: f32[s0, 4]\n"
           "input %mask: f32[s1, 4]\n"
           "require s0 < 7 \"guard of x\"\n"
           "require s0 == s1 \"node 'add': dim 0\"\n"
           "output output_0 = %relu\n");
}

static void test_refused(void **state)
{
    (void)state;
    refuse(chain, (Want){{"linaer"}, {"relu"}}, "there is no value 'linaer'; near it: 'linear'");
    refuse(chain, (Want){{"linear"}, {"nothing_like_it"}},
           "there is no value 'nothing_like_it' (qkv graph shows all names)");
    refuse(chain, (Want){{"linear"}, {"add"}},
           "the results need the input 'mask' (through 'add'), which is not among the given ones");
    refuse(chain, (Want){{"relu"}, {"linear"}},
           "the results need the input 'x' (through 'linear'), which is not among the given ones");
    refuse(chain, (Want){{"relu"}, {"mask"}}, "the results need the input 'mask', which is not among the given ones");
    refuse(chain, (Want){{"relu", "relu"}, {"add"}}, "'relu' is named twice as an input");
    refuse(chain, (Want){{"relu"}, {"add", "output_0"}}, "'output_0' is named twice as a result");
}

static const char sizes[] = "symbol s0 in [1, 8]\n"
                            "symbol s1 in [1, 64]\n"
                            "input %x: f32[s0, 14*s1, 4]\n"
                            "%flat: f32[14*s0*s1, 4] = aten.reshape.default(%x, [(14*s0*s1), 4])\n"
                            "%relu: f32[14*s0*s1, 4] = aten.relu.default(%flat)\n"
                            "%rows: f32[14*s1, 4] = aten.select.int(%x, 0, 0)\n"
                            "%twice: f32[28*s1, 4] = aten.cat.default([%rows, %rows])\n"
                            "%back: f32[s0, 14*s1, 4] = aten.reshape.default(%relu, [s0, (14*s1), 4])\n"
                            "output output_0 = %back\n"
                            "output output_1 = %twice\n";

static void test_sizes(void **state)
{
    (void)state;
    /* a product that the cut does not take apart is one size */
    expect(sizes, (Want){{"flat"}, {"relu"}},
           "symbol flat_0 in [14, 7168]\n"
           "input %flat: f32[flat_0, 4]\n"
           "%relu: f32[flat_0, 4] = aten.relu.default(%flat)\n"
           "output relu = %relu\n");
    refuse(sizes, (Want){{"relu"}, {"back"}},
           "'back' needs the size s0, which the given inputs do not tell; 'x' has it");
    /* a multiple tells its symbol */
    expect(sizes, (Want){{"rows"}, {"twice"}},
           "symbol s1 in [1, 64]\n"
           "input %rows: f32[14*s1, 4]\n"
           "%twice: f32[28*s1, 4] = aten.cat.default([%rows, %rows])\n"
           "output twice = %twice\n");
    /* with one factor given, the other is told */
    expect(sizes, (Want){{"relu", "rows"}, {"back"}},
           "symbol s0 in [1, 8]\n"
           "symbol s1 in [1, 64]\n"
           "input %relu: f32[14*s0*s1, 4]\n"
           "input %rows: f32[14*s1, 4]\n"
           "%back: f32[s0, 14*s1, 4] = aten.reshape.default(%relu, [s0, (14*s1), 4])\n"
           "output back = %back\n");
}

/* A size that a condition makes a number is that number. */
static void test_required_number(void **state)
{
    (void)state;
    expect("symbol s0 in [0, 8]\n"
           "symbol s1 in [1, 8]\n"
           "input %x: f32[s0, 4]\n"
           "input %y: f32[s1, 4]\n"
           "%slice: f32[Min(s0, 1), 4] = aten.slice.Tensor(%x, start=0, end=(Min(s0, 1)))\n"
           "%mul: f32[s1, 4] = aten.mul.Tensor(%slice, %y)\n"
           "%add: f32[s1, 4] = aten.add.Tensor(%slice, %mul)\n"
           "require Min(s0, 1) == 1 \"node 'mul': broadcast sizes\"\n"
           "output output_0 = %add\n",
           (Want){{"slice", "mul"}, {"add"}},
           "symbol s1 in [1, 8]\n"
           "input %slice: f32[1, 4]\n"
           "input %mul: f32[s1, 4]\n"
           "%add: f32[s1, 4] = aten.add.Tensor(%slice, %mul)\n"
           "output add = %add\n");
}

static const char data[] = "symbol n = size %nonzero 0 in [0, inf]\n"
                           "symbol u0 = item %count in [1, 9]\n"
                           "input %x: f32[4]\n"
                           "input %count: i64[]\n"
                           "%nonzero: i64[n, 1] = aten.nonzero.default(%x)\n"
                           "%neg: i64[n, 1] = aten.neg.default(%nonzero)\n"
                           "%ones: f32[u0] = aten.full.default([u0], 1.0, dtype=f32)\n"
                           "require n < 3 \"assert: few\"\n"
                           "output output_0 = %neg\n"
                           "output output_1 = %ones\n";

static void test_data(void **state)
{
    (void)state;
    expect(data, (Want){{"x"}, {"neg"}},
           "symbol n = size %nonzero 0 in [0, inf]\n"
           "input %x: f32[4]\n"
           "%nonzero: i64[n, 1] = aten.nonzero.default(%x)\n"
           "%neg: i64[n, 1] = aten.neg.default(%nonzero)\n"
           "require n < 3 \"assert: few\"\n"
           "output neg = %neg\n");
    /* after the data, the size is that of an input */
    expect(data, (Want){{"nonzero"}, {"neg"}},
           "symbol n in [0, inf]\n"
           "input %nonzero: i64[n, 1]\n"
           "%neg: i64[n, 1] = aten.neg.default(%nonzero)\n"
           "require n < 3 \"assert: few\"\n"
           "output neg = %neg\n");
    /* a number that is read from a tensor needs the tensor */
    expect(data, (Want){{NULL}, {"ones"}},
           "symbol u0 = item %count in [1, 9]\n"
           "input %count: i64[]\n"
           "%ones: f32[u0] = aten.full.default([u0], 1.0, dtype=f32)\n"
           "output ones = %ones\n");
    refuse(data, (Want){{"x"}, {"ones"}}, "the results need the input 'count', which is not among the given ones");
}

static const char state_text[] = "input %x: f32[2]\n"
                                 "input %y: f32[2]\n"
                                 "weight %b_sum: f32[2] = buffer \"f32[2]\"\n"
                                 "%add: f32[2] = aten.add.Tensor(%b_sum, %x)\n"
                                 "%mul: f32[2] = aten.mul.Tensor(%b_sum, 2)\n"
                                 "%neg: f32[2] = aten.neg.default(%y)\n"
                                 "mutate %b_sum = %add\n"
                                 "output output_0 = %mul\n"
                                 "output output_1 = %neg\n";

/* What a run changes comes with what it becomes. */
static void test_mutation(void **state)
{
    (void)state;
    expect(state_text, (Want){{NULL}, {"mul"}},
           "input %x: f32[2]\n"
           "weight %b_sum: f32[2] = buffer \"f32[2]\"\n"
           "%add: f32[2] = aten.add.Tensor(%b_sum, %x)\n"
           "%mul: f32[2] = aten.mul.Tensor(%b_sum, 2)\n"
           "mutate %b_sum = %add\n"
           "output mul = %mul\n");
    expect(state_text, (Want){{"y"}, {"neg"}},
           "input %y: f32[2]\n"
           "%neg: f32[2] = aten.neg.default(%y)\n"
           "output neg = %neg\n");
    refuse(state_text, (Want){{"y"}, {"mul"}},
           "the results need the input 'x' (through 'add'), which is not among the given ones");
    expect(state_text, (Want){{"b_sum"}, {"mul"}},
           "input %b_sum: f32[2]\n"
           "%mul: f32[2] = aten.mul.Tensor(%b_sum, 2)\n"
           "output mul = %mul\n");
}

static const char pair[] = "input %x: f32[4]\n"
                           "%values: f32[2], %indices: i64[2] = aten.topk.default(%x, 2)\n"
                           "%neg: i64[2] = aten.neg.default(%indices)\n"
                           "%add: f32[2] = aten.add.Tensor(%values, %neg)\n"
                           "output output_0 = %add\n";

/* A node of two results, one of which is an input of the cut: the other is computed all the same. */
static void test_two_results(void **state)
{
    (void)state;
    expect(pair, (Want){{"values", "indices"}, {"add"}},
           "input %values: f32[2]\n"
           "input %indices: i64[2]\n"
           "%neg: i64[2] = aten.neg.default(%indices)\n"
           "%add: f32[2] = aten.add.Tensor(%values, %neg)\n"
           "output add = %add\n");
    Err err = {0};
    Graph *g = unit_graph(pair),
          *cut = graph_extract(g, (const char *[]){"indices", "x"}, 2, (const char *[]){"add"}, 1, &err);
    OK(cut && graph_check(cut, &err));
    assert_true(cut->ninput == 2 && cut->nnodes == 3);
    assert_ptr_equal(cut->last->prev->arg[0].v, cut->input[0]);
    assert_string_equal(cut->first->out[0]->name, "values");
    assert_true(strcmp(cut->first->out[1]->name, "indices") != 0);
    graph_free(cut);
    graph_free(g);
}

/* What a loop runs comes with it. */
static void test_loop(void **state)
{
    (void)state;
    static const char body[] = "  symbol d0 in [0, inf]\n"
                               "  input %i: i64[]\n"
                               "  input %c: bool[]\n"
                               "  input %a: f32[d0]\n"
                               "  %mul: f32[d0] = aten.mul.Tensor(%a, 2)\n"
                               "  output more = %c\n"
                               "  output y = %mul\n"
                               "  output all = %a\n"
                               "})\n";
    char whole[2000], part[2000];
    snprintf(whole, sizeof whole,
             "symbol s0 in [0, inf]\n"
             "symbol n3 = size %%stack 0 in [0, inf]\n"
             "input %%x: f32[s0]\n"
             "input %%go: bool[]\n"
             "%%neg: f32[s0] = aten.neg.default(%%x)\n"
             "%%y: f32[s0], %%stack: f32[n3, s0] = qkv.loop.default(%%go, [%%neg], [], {\n%s"
             "%%relu: f32[n3, s0] = aten.relu.default(%%stack)\n"
             "output output_0 = %%y\n"
             "output output_1 = %%relu\n",
             body);
    snprintf(part, sizeof part,
             "symbol s0 in [0, inf]\n"
             "symbol n3 = size %%stack 0 in [0, inf]\n"
             "input %%neg: f32[s0]\n"
             "input %%go: bool[]\n"
             "%%y: f32[s0], %%stack: f32[n3, s0] = qkv.loop.default(%%go, [%%neg], [], {\n%s"
             "%%relu: f32[n3, s0] = aten.relu.default(%%stack)\n"
             "output relu = %%relu\n",
             body);
    expect(whole, (Want){{"neg", "go"}, {"relu"}}, part);
    expect(whole, (Want){{"stack"}, {"relu"}},
           "symbol n3 in [0, inf]\n"
           "symbol s0 in [0, inf]\n"
           "input %stack: f32[n3, s0]\n"
           "%relu: f32[n3, s0] = aten.relu.default(%stack)\n"
           "output relu = %relu\n");
}

/* Names of ONNX files. */
static void test_names(void **state)
{
    (void)state;
    expect("input %x: f32[2]\n"
           "%_block.0_Neg_output_0: f32[2] = aten.neg.default(%x)\n"
           "%y: f32[2] = aten.relu.default(%_block.0_Neg_output_0)\n"
           "output output_0 = %y\n",
           (Want){{"/block.0/Neg:output_0"}, {"y"}},
           "input %_block.0_Neg_output_0: f32[2]\n"
           "%y: f32[2] = aten.relu.default(%_block.0_Neg_output_0)\n"
           "output y = %y\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain),           cmocka_unit_test(test_refused), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_required_number), cmocka_unit_test(test_data),    cmocka_unit_test(test_mutation),
        cmocka_unit_test(test_two_results),     cmocka_unit_test(test_names),   cmocka_unit_test(test_loop),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
