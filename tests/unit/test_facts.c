/* Questions about values (src/facts), asked of small graphs. */
#include "unit_graph.h"
#include "facts/attention.h"
#include "facts/axes.h"
#include "facts/band.h"
#include "facts/constant.h"
#include "facts/positions.h"
#include "facts/range.h"
#include "facts/rounding.h"
#include "facts/truth.h"
#include "facts/views.h"
#include "program/describe.h"

static Value *named(const Graph *g, const char *name)
{
    for (int i = 0; i < g->ninput; i++)
        if (!strcmp(g->input[i]->name, name)) return g->input[i];
    for (const Node *n = g->first; n; n = n->next)
        if (!strcmp(n->out[0]->name, name)) return n->out[0];
    STOP("no value is called %s", name);
    return NULL;
}

static bool only_expand(const Node *n, const void *user)
{
    (void)user;
    return n->op->id == OP_expand;
}

static void test_views(void **state)
{
    (void)state;
    Graph *g = unit_graph("input %x: f16[4, 1, 6]\n"
                          "%c: f32[4, 1, 6] = aten._to_copy.default(%x, dtype=f32)\n"
                          "%p: f32[6, 1, 4] = aten.permute.default(%c, [2, 1, 0])\n"
                          "%e: f32[6, 2, 4] = aten.expand.default(%p, [6, 2, 4])\n"
                          "%n: f32[6, 2, 4] = aten.neg.default(%e)\n"
                          "%r: f32[12, 4] = aten.reshape.default(%n, [12, 4])\n"
                          "output e = %e\noutput r = %r\n");
    Value *x = named(g, "x"), *c = named(g, "c"), *p = named(g, "p"), *e = named(g, "e"), *n = named(g, "n"),
          *r = named(g, "r");
    assert_ptr_equal(through_views(e), c);
    assert_ptr_equal(through_casts(e), x);
    assert_ptr_equal(through_casts(r), n);
    assert_ptr_equal(through_views(x), x);
    assert_null(through_views(NULL));
    assert_ptr_equal(value_below(e, only_expand, NULL), p);
    assert_ptr_equal(value_below(p, only_expand, NULL), p);
    assert_true(is_view_of(e, c) && is_view_of(e, p) && is_view_of(e, e));
    assert_false(is_view_of(e, x) || is_view_of(r, e) || is_view_of(c, e));
    graph_free(g);
}

/* q k^T in a scale, a mask and a cast; _safe_softmax; v^T p^T. */
static const char attentions[] =
    "input %q: f32[2, 5, 8]\ninput %k: f32[2, 8, 6]\ninput %v: f32[2, 7, 6]\n"
    "input %v2: f32[2, 6, 4]\n"
    "input %sq: f32[2, 5, 5]\ninput %m: f32[5, 6]\nweight %w: f32[3, 8] = parameter \"f32[3, 8]\"\n"
    "%s: f32[2, 5, 6] = aten.matmul.default(%q, %k)\n"
    "%s2: f32[2, 5, 6] = aten.mul.Tensor(%s, 0.5)\n"
    "%s3: f32[2, 5, 6] = aten.add.Tensor(%m, %s2)\n"
    "%s4: f64[2, 5, 6] = aten._to_copy.default(%s3, dtype=f64)\n"
    "%p: f64[2, 5, 6] = aten._safe_softmax.default(%s4, -1)\n"
    "%p2: f32[2, 5, 6] = aten._to_copy.default(%p, dtype=f32)\n"
    "%pt: f32[2, 6, 5] = aten.permute.default(%p2, [0, 2, 1])\n"
    "%y: f32[2, 7, 5] = aten.matmul.default(%v, %pt)\n"
    "%class: f32[2, 5, 3] = aten.linear.default(%q, %w)\n"
    "%class_p: f32[2, 5, 3] = aten.softmax.int(%class, -1)\n"
    "%mixed: f32[2, 5, 3] = aten.matmul.default(%sq, %class_p)\n"
    "%half: f32[3, 8] = aten.mul.Tensor(%w, 0.5)\n"
    "%gate: f32[2, 5, 3] = aten.linear.default(%q, %half)\n"
    "%gate_e: f32[2, 5, 3] = aten.exp.default(%gate)\n"
    "%gated: f32[2, 5, 3] = aten.matmul.default(%sq, %gate_e)\n"
    "%alone: f32[2, 5, 6] = aten.softmax.int(%s2, -1)\n"
    "%e: f32[2, 5, 6] = aten.exp.default(%s2)\n"
    "%total: f32[2, 5, 1] = aten.sum.dim_IntList(%e, [-1], True)\n"
    "%written: f32[2, 5, 6] = aten.div.Tensor(%e, %total)\n"
    "%z: f32[2, 5, 4] = aten.matmul.default(%written, %v2)\n"
    "output y = %y\noutput z = %z\noutput mixed = %mixed\noutput gated = %gated\noutput alone = %alone\n";

static void test_attention(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = unit_graph(attentions);
    AttentionFinder f;
    AttentionParts a;
    OK(attention_finder(&f, g, &err));
    assert_true(attention_begins(&f, named(g, "p")->def, &a));
    assert_string_equal(a.scores->name, "s");
    assert_string_equal(a.values->name, "y");
    assert_int_equal(a.n, 4);
    assert_true(attention_reaches(&f, named(g, "pt")->def));
    assert_false(attention_reaches(&f, named(g, "s2")->def));
    assert_false(attention_begins(&f, named(g, "class_p")->def, &a)); /* of a layer */
    assert_false(attention_begins(&f, named(g, "gate_e")->def, &a)); /* of one whose weight is computed */
    assert_true(attention_begins(&f, named(g, "alone")->def, &a));
    assert_null(a.values);
    attention_finder_free(&f);
    graph_free(g);
}

/* What qkv inspect lists: scores, softmax and values, whatever the softmax and the way to the product. */
static void test_described(void **state)
{
    (void)state;
    Graph *g = unit_graph(attentions);
    Buf b = {0};
    describe_model("x.pt2", &(Source){.graph = g, .torch_version = "", .producer = ""}, &b);
    const char *at = strstr(b.data, "\"attentions\": ");
    const char want[] = "\"attentions\": [{\"node\": \"p\", \"op\": \"_safe_softmax\", \"query\": [2, 5, 8], "
                        "\"key\": [2, 8, 6]}, {\"node\": \"e\", \"op\": \"exp\", \"query\": [2, 5, 8], "
                        "\"key\": [2, 8, 6]}], ";
    assert_non_null(at);
    assert_memory_equal(at, want, strlen(want));
    buf_free(&b);
    graph_free(g);
}

static void test_truth(void **state)
{
    (void)state;
    Graph *g = unit_graph("input %a: bool[4]\ninput %b: bool[4]\ninput %i: i64[4]\n"
                          "%not: bool[4] = aten.logical_not.default(%a)\n"
                          "%and: bool[4] = aten.bitwise_and.Tensor(%not, %b)\n"
                          "%or: bool[4] = aten.logical_or.default(%and, %b)\n"
                          "%bits: i64[4] = aten.bitwise_not.default(%i)\n"
                          "output or = %or\noutput bits = %bits\n");
    Truth part[2];
    assert_int_equal(truth_parts(named(g, "not"), true, part), 1);
    assert_true(part[0].v == named(g, "a") && !part[0].wanted);
    assert_int_equal(truth_parts(named(g, "and"), true, part), 2);
    assert_true(part[0].v == named(g, "not") && part[1].v == named(g, "b") && part[0].wanted && part[1].wanted);
    assert_int_equal(truth_parts(named(g, "and"), false, part), 0);
    assert_int_equal(truth_parts(named(g, "or"), false, part), 2);
    assert_true(part[0].v == named(g, "and") && !part[0].wanted && !part[1].wanted);
    assert_int_equal(truth_parts(named(g, "or"), true, part), 0);
    assert_int_equal(truth_parts(named(g, "bits"), true, part), 0);
    assert_int_equal(truth_parts(named(g, "a"), true, part), 0);
    graph_free(g);
}

static void test_truth_within(void **state)
{
    (void)state;
    Graph *g = unit_graph("input %a: bool[4]\ninput %b: bool[4]\ninput %s: f32[2, 4]\ninput %hidden: f32[]\n"
                          "%and: bool[4] = aten.logical_and.default(%a, %b)\n"
                          "%or: bool[4] = aten.logical_or.default(%a, %b)\n"
                          "%row: bool[1, 4] = aten.reshape.default(%and, [1, 4])\n"
                          "%wide: bool[2, 4] = aten.expand.default(%row, [2, 4])\n"
                          "%column: bool[4, 1] = aten.reshape.default(%and, [4, 1])\n"
                          "%mask: f32[2, 4] = aten.where.self(%wide, %s, %hidden)\n"
                          "output mask = %mask\noutput or = %or\noutput column = %column\n");
    assert_true(truth_within(named(g, "and"), named(g, "b")));
    assert_true(truth_within(named(g, "wide"), named(g, "a")));
    assert_true(truth_within(named(g, "mask"), named(g, "wide")));
    assert_true(truth_within(named(g, "mask"), named(g, "s")));
    assert_false(truth_within(named(g, "mask"), named(g, "hidden")));
    assert_false(truth_within(named(g, "or"), named(g, "a")));
    assert_false(truth_within(named(g, "a"), named(g, "and")));
    assert_false(truth_within(named(g, "column"), named(g, "a")));
    graph_free(g);
}

static void test_axes(void **state)
{
    (void)state;
    Graph *g = unit_graph("symbol N in [1, 8]\n"
                          "input %x: f32[N, 1, 6]\n"
                          "%p: f32[6, N, 1] = aten.permute.default(%x, [-1, 0, 1])\n"
                          "%r: f32[N, 6] = aten.reshape.default(%x, [N, 6])\n"
                          "%s: f32[2*N, 3] = aten.reshape.default(%x, [2*N, 3])\n"
                          "output p = %p\noutput r = %r\noutput s = %s\n");
    const Value *x = named(g, "x"), *p = named(g, "p"), *r = named(g, "r"), *s = named(g, "s");
    int perm[MAX_RANK], from[2 * MAX_RANK + 2], to[2 * MAX_RANK + 2];
    assert_true(same_dims(x, x) && has_dims(r, 2, r->dim));
    assert_false(same_dims(x, r) || same_dims(r, s));
    assert_true(same_but_ones(x, r));
    assert_false(same_but_ones(x, p) || same_but_ones(r, s));
    assert_true(permutation_of(p->def, perm) && perm[0] == 2 && perm[1] == 0 && perm[2] == 1);
    assert_false(permutation_of(r->def, perm));
    assert_ptr_equal(product_of(g->ex, 2, r->dim), product_of(g->ex, 2, s->dim));
    assert_int_equal(axis_groups(g->ex, 3, x->dim, 2, r->dim, from, to), 3);
    assert_true(from[2] == 2 && to[1] == 1 && to[2] == 1 && to[3] == 2); /* the axis of 1 goes alone */
    assert_int_equal(axis_groups(g->ex, 2, r->dim, 2, s->dim, from, to), 1);
    assert_int_equal(axis_groups(g->ex, 2, r->dim, 1, r->dim, from, to), -1);
    graph_free(g);
}

static void test_constants(void **state)
{
    (void)state;
    Graph *g = unit_graph("input %x: f32[4]\nweight %w: f32[1, 4, 1] = parameter \"f32[1, 4, 1]\"\n"
                          "%four: f32[2] = aten.full.default([2], 16.0)\n"
                          "%root: f32[2] = aten.sqrt.default(%four)\n"
                          "%wide: f32[3, 2] = aten.expand.default(%root, [3, 2])\n"
                          "%of: f32[3, 2] = aten.div.Tensor(1.0, %wide)\n"
                          "%sum: f32[1, 4, 1] = aten.add.Tensor(%w, 1.0, alpha=2.0)\n"
                          "%flat: f32[4] = aten.reshape.default(%sum, [4])\n"
                          "%one: f32[2, 2] = aten.full.default([2, 2], 1.0)\n"
                          "%low: f32[2, 2] = aten.tril.default(%one)\n"
                          "%not: f32[4] = aten.mul.Tensor(%x, %flat)\n"
                          "output of = %of\noutput low = %low\noutput not = %not\n");
    float bytes[4] = {1, 2, 3, 4};
    Tensor data = tensor_of(DT_F32, 3, (int64_t[]){1, 4, 1}, bytes);
    Value *w = named(g, "flat")->def->arg[0].v->def->arg[0].v;
    double x = 0, each[4];
    Err why = {0};
    assert_true(constant_value(g, named(g, "of"), &x) && x == 0.25);
    assert_false(constant_value(g, named(g, "x"), &x) || constant_value(g, named(g, "flat"), &x));
    assert_true(zero_or_one(g, named(g, "low")));
    assert_false(zero_or_one(g, named(g, "of")) || zero_or_one(g, named(g, "x")));
    assert_null(constant_tensor(g, named(g, "x")));
    w->data = &data;
    assert_ptr_equal(constant_tensor(g, w), &data);
    assert_true(constant_numbers(g, named(g, "flat"), 4, each, &why) && each[0] == 3 && each[3] == 6);
    assert_false(constant_numbers(g, named(g, "not"), 4, each, &why));
    assert_string_equal(why.msg, "'x' is not a constant");
    graph_free(g);
}

static void test_range(void **state)
{
    (void)state;
    Graph *g = unit_graph("input %m: bool[4]\ninput %x: f32[4]\n"
                          "%f: f32[4] = aten._to_copy.default(%m, dtype=f32)\n"
                          "%not: f32[4] = aten.sub.Tensor(1.0, %f)\n"
                          "%mask: f32[4] = aten.mul.Tensor(%not, -10000.0)\n"
                          "%far: f32[4] = aten.mul.Tensor(%x, 5000.0)\n"
                          "%log: f32[4] = aten.log.default(%f)\n"
                          "%e: f32[4] = aten.exp.default(%x)\n"
                          "output mask = %mask\noutput far = %far\noutput log = %log\noutput e = %e\n");
    assert_true(largest_of(g, named(g, "mask")) == 0 && largest_of(g, named(g, "far")) == 5000);
    assert_true(largest_of(g, named(g, "f")) == 1 && largest_of(g, named(g, "e")) == 100); /* unknown */
    assert_true(may_be_minus_inf(g, named(g, "log")) && may_be_minus_inf(g, named(g, "x")));
    assert_false(may_be_minus_inf(g, named(g, "mask")) || may_be_minus_inf(g, named(g, "m")));
    graph_free(g);
}

static void test_positions(void **state)
{
    (void)state;
    Graph *g = unit_graph("symbol N in [1, 64]\nsymbol M in [1, 64]\ninput %x: f32[N, M]\n"
                          "%i: i64[N] = aten.arange.start_step(0, N, 1)\n"
                          "%j: i64[M] = aten.arange.start_step(0, M, 1)\n"
                          "%row: i64[N, 1] = aten.reshape.default(%i, [N, 1])\n"
                          "%more: i64[N, 1] = aten.add.Tensor(%row, 2)\n"
                          "%d: i64[N, M] = aten.sub.Tensor(%j, %more)\n"
                          "%seen: bool[N, M] = aten.le.Tensor(%j, %more)\n"
                          "%near: bool[N, M] = aten.gt.Tensor(%j, %row)\n"
                          "%both: bool[N, M] = aten.logical_and.default(%seen, %near)\n"
                          "%low: f32[N, M] = aten.full.default([N, M], -inf)\n"
                          "%bias: f32[N, M] = aten.triu.default(%low, 1)\n"
                          "%of: bool[N, M] = aten.gt.Tensor(%x, 0)\n"
                          "%under: bool[N, 1] = aten.lt.Tensor(%more, 0)\n"
                          "%end: i64[N, 1] = aten.add.Tensor(%more, N)\n"
                          "%at: i64[N, 1] = aten.where.self(%under, %end, %more)\n"
                          "%back: bool[N, M] = aten.lt.Tensor(%d, 0)\n"
                          "%far: i64[N, M] = aten.add.Tensor(%d, M)\n"
                          "%wraps: i64[N, M] = aten.where.self(%back, %far, %d)\n"
                          "output d = %d\noutput both = %both\noutput bias = %bias\noutput of = %of\n"
                          "output at = %at\noutput wraps = %wraps\n");
    Expr *N = named(g, "seen")->dim[0], *M = named(g, "seen")->dim[1];
    Linear l;
    int budget = 100;
    assert_true(linear_in_positions(g, &(Arg){.kind = ARG_VALUE, .v = named(g, "d")}, &l, &budget));
    assert_true(ex_equals_int(l.c, -2) && l.factor[0] == 1 && l.factor[1] == -1 && budget < 100);
    assert_false(linear_in_positions(g, &(Arg){.kind = ARG_VALUE, .v = named(g, "x")}, &l, &budget));
    /* an index of ONNX, which counts from the end where it is negative: 2 + i never is, j - i - 2 may be */
    assert_true(index_from_end(g, named(g, "at")) == named(g, "more"));
    assert_true(index_from_end(g, named(g, "wraps")) == named(g, "d"));
    assert_true(index_from_end(g, named(g, "d")) == named(g, "d"));
    assert_true(linear_in_positions(g, &(Arg){.kind = ARG_VALUE, .v = named(g, "at")}, &l, &budget));
    assert_true(ex_equals_int(l.c, 2) && l.factor[1] == 1 && !l.factor[0]);
    assert_false(linear_in_positions(g, &(Arg){.kind = ARG_VALUE, .v = named(g, "wraps")}, &l, &budget));
    Band b = band_within(g, N, M, NULL, NULL);
    assert_false(band_of(&b, named(g, "of"), true) || b.upper || b.lower);
    assert_true(band_of(&b, named(g, "both"), true));
    assert_true(ex_equals_int(b.upper, 2) && ex_equals_int(b.lower, 1));
    b = band_within(g, N, M, NULL, NULL);
    assert_true(band_of(&b, named(g, "seen"), false) && ex_equals_int(b.lower, 3) && !b.upper);
    b = band_within(g, N, M, NULL, ex_int(g->ex, 7));
    assert_true(band_of_bias(&b, named(g, "bias")) && ex_equals_int(b.upper, 0));
    graph_free(g);
}

/* Given in bf16, and moved: exact. Computed in it: whatever follows, in float32 or not. */
static void test_rounded(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = unit_graph("input %x: f32[4, 8]\n"
                          "input %h: bf16[4, 8]\n"
                          "%wide: f32[4, 8] = aten._to_copy.default(%h, dtype=f32)\n"
                          "%exact: f32[4, 8] = aten.add.Tensor(%x, %wide)\n"
                          "%given: bf16[4, 8] = aten._to_copy.default(%x, dtype=bf16)\n"
                          "%still: f32[4, 8] = aten._to_copy.default(%given, dtype=f32)\n"
                          "%plain: f32[4, 8] = aten.mul.Tensor(%still, %x)\n"
                          "%low: bf16[4, 8] = aten._to_copy.default(%plain, dtype=bf16)\n"
                          "%turned: bf16[8, 4] = aten.permute.default(%low, [1, 0])\n"
                          "%back: f32[8, 4] = aten._to_copy.default(%turned, dtype=f32)\n"
                          "%far: f32[8, 4] = aten.add.Tensor(%back, 1.0)\n"
                          "%half: f16[4, 8] = aten._to_copy.default(%exact, dtype=f16)\n"
                          "%both: f64[4, 8] = aten._to_copy.default(%half, dtype=f64)\n"
                          "output a = %exact\noutput b = %plain\noutput c = %far\noutput d = %both\n");
    static const struct {
        const char *name;
        DType to;
    } cases[] = {{"wide", DT_F32}, {"exact", DT_F32}, {"plain", DT_F32}, {"low", DT_BF16},
                 {"turned", DT_BF16}, {"far", DT_BF16}, {"half", DT_F16}, {"both", DT_F16}};
    DType *to = calloc((size_t)g->next_id + 1, sizeof *to);
    assert_true(rounded_to(g, to, &err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(to[named(g, cases[i].name)->id], cases[i].to);
    free(to);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_views),     cmocka_unit_test(test_axes),
                                       cmocka_unit_test(test_constants), cmocka_unit_test(test_range),
                                       cmocka_unit_test(test_positions), cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_described), cmocka_unit_test(test_truth),
                                       cmocka_unit_test(test_truth_within), cmocka_unit_test(test_rounded)};
    return cmocka_run_group_tests_name("facts", tests, NULL, NULL);
}
