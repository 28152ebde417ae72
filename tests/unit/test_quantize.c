/* Quantizers: ranges from histograms, where they are put, what the passes for runs make of them. */
#include <math.h>
#include "unit_graph.h"
#include "quantize/integers.h"
#include "quantize/observe.h"
#include "quantize/place.h"

static Scale scale_of(Calibration how, double percentile, const float *x, int64_t n)
{
    Observer o;
    Err err = {0};
    observer_begin(&o, how);
    assert_int_equal(observe_range(&o, x, n), -1);
    if (observer_histogram(&o)) assert_true(observe_histogram(&o, x, n, &err));
    Scale s = observer_scale(&o, percentile, DT_I8);
    observer_free(&o);
    return s;
}

static void test_ranges(void **state)
{
    (void)state;
    enum { N = 100000 };
    static float x[N];
    for (int i = 0; i < N; i++) x[i] = (float)(i % 2001 - 1000) / 1000; /* even in [-1, 1] */
    assert_true(fabs(scale_of(CALIBRATE_MINMAX, 0, x, N).scale - 1.0 / 127) < 1e-9);
    assert_true(fabs(scale_of(CALIBRATE_MSE, 0, x, N).scale - 1.0 / 127) < 0.05 / 127);
    x[5] = 10; /* one that is far */
    assert_true(fabs(scale_of(CALIBRATE_MINMAX, 0, x, N).scale - 10.0 / 127) < 1e-7);
    assert_true(scale_of(CALIBRATE_PERCENTILE, 99.9, x, N).scale < 1.02 / 127);
    assert_true(scale_of(CALIBRATE_ENTROPY, 0, x, N).scale < 2.0 / 127);
    assert_true(scale_of(CALIBRATE_MSE, 0, x, N).scale < 7.0 / 127);
    float zeros[3] = {0}, bad[3] = {1, NAN, 2};
    assert_true(scale_of(CALIBRATE_ENTROPY, 0, zeros, 3).scale == 1);
    Observer o;
    observer_begin(&o, CALIBRATE_AVERAGE);
    assert_int_equal(observe_range(&o, bad, 3), 1);
    float first[1] = {2}, second[1] = {4};
    observer_begin(&o, CALIBRATE_AVERAGE);
    observe_range(&o, first, 1);
    observe_range(&o, second, 1);
    assert_true(fabs(o.high - 2.02) < 1e-12);
    observer_begin(&o, CALIBRATE_MINMAX);
    const float one_side[2] = {0, 2.55f};
    observe_range(&o, one_side, 2);
    Scale s = observer_scale(&o, 0, DT_U8);
    assert_true(s.t == DT_U8 && s.zero == 0 && fabs(s.scale - 0.01) < 1e-8);
}

/* The graph with quantizers, all scales 0.5. */
static Graph *placed(const char *text, const char *target, const char *skip, Placement *p)
{
    Err err = {0};
    Graph *g = unit_graph(text);
    QuantizeOptions o = {.target = quantize_target(target), .skip = &skip, .nskip = skip ? 1 : 0};
    if (!quantize_place(g, &o, p, &err)) STOP("%s", err.msg);
    for (int i = 0; i < p->npoints; i++) {
        p->point[i].seen = true;
        p->point[i].scale = (Scale){0.5, 0, DT_I8};
    }
    if (!quantize_apply(p, &err) || !graph_check(g, &err)) STOP("%s", err.msg);
    return g;
}

static int count(const Graph *g, OpId id)
{
    int n = 0;
    for (const Node *at = g->first; at; at = at->next) n += at->op->id == id;
    return n;
}

#define ATTENTION                                                                                                      \
    "symbol s0 in [1, 8]\n"                                                                                            \
    "input %x: f32[s0, 8, 64]\n"                                                                                       \
    "weight %p_w: f32[64, 64] = parameter \"f32[64, 64]\"\n"                                                           \
    "weight %p_b: f32[64] = parameter \"f32[64]\"\n"                                                                   \
    "%q: f32[s0, 8, 64] = aten.linear.default(%x, %p_w, %p_b)\n"                                                       \
    "%k: f32[s0, 8, 64] = aten.linear.default(%x, %p_w)\n"                                                             \
    "%qr: f32[s0, 8, 4, 16] = aten.reshape.default(%q, [s0, 8, 4, 16])\n"                                              \
    "%qp: f32[s0, 4, 8, 16] = aten.permute.default(%qr, [0, 2, 1, 3])\n"                                               \
    "%kr: f32[s0, 8, 4, 16] = aten.reshape.default(%k, [s0, 8, 4, 16])\n"                                              \
    "%kp: f32[s0, 4, 8, 16] = aten.permute.default(%kr, [0, 2, 1, 3])\n"                                               \
    "%a: f32[s0, 4, 8, 16] = aten.scaled_dot_product_attention.default(%qp, %kp, %kp)\n"                               \
    "%ap: f32[s0, 8, 4, 16] = aten.permute.default(%a, [0, 2, 1, 3])\n"                                                \
    "%ar: f32[s0, 8, 64] = aten.reshape.default(%ap, [s0, 8, 64])\n"                                                   \
    "%y: f32[s0, 8, 64] = aten.linear.default(%ar, %p_w)\n"                                                            \
    "output o = %y\n"

static void test_attention(void **state)
{
    (void)state;
    Placement p;
    Err err = {0};
    Graph *g = placed(ATTENTION, "tensorrt-10", NULL, &p);
    assert_int_equal(p.weights, 1);                    /* three layers share it */
    assert_int_equal(count(g, OP_quantize_linear), 4); /* x, q, k (which is v, too), a */
    assert_int_equal(count(g, OP_sdpa_quantized), 1);
    assert_int_equal(count(g, OP_mul_Tensor), 1); /* the scale, in front of q's */
    const Node *a = graph_find_value(g, "a")->def;
    for (int i = 0; i < 3; i++) assert_int_equal(a->arg[i].v->def->op->id, OP_dequantize_linear);
    assert_true(a->arg[0].v->def->arg[0].v->def->op->id == OP_permute); /* views move integers */
    assert_true(quantize_integers(g, &err) && graph_check(g, &err));
    assert_int_equal(count(g, OP_linear_integer), 3);
    assert_int_equal(count(g, OP_dequantize_linear), 0);
    assert_int_equal(graph_find_value(g, "a")->def->arg[0].v->dtype, DT_I8);
    placement_free(&p);
    graph_free(g);
}

static void test_left(void **state)
{
    (void)state;
    Placement p;
    Graph *g = placed(ATTENTION, "cpu", "k", &p);
    const char *why[4] = {0};
    assert_int_equal(p.nsites, 4);
    for (int i = 0; i < 4; i++) why[i] = p.site[i].why;
    assert_true(!why[0] && strstr(why[1], "asked to be left") && strstr(why[2], "in floats") && !why[3]);
    placement_free(&p);
    graph_free(g);
    g = placed("symbol s0 in [1, 600]\n"
               "input %x: f32[2, 4, s0, 16]\n"
               "input %y: f32[2, 64]\n"
               "weight %p_w: f32[64, 64] = parameter \"f32[64, 64]\"\n"
               "%a: f32[2, 4, s0, 16] = aten.scaled_dot_product_attention.default(%x, %x, %x)\n"
               "%b: f32[2, 64] = aten.linear.default(%y, %p_w)\n"
               "output o = %a\noutput p = %b\n",
               "tensorrt-10", NULL, &p);
    assert_non_null(strstr(p.site[0].why, "up to 600 queries, tensorrt-10 fuses at most 512"));
    placement_free(&p);
    graph_free(g);
}

static void test_refused(void **state)
{
    (void)state;
    Placement p;
    Err err = {0};
    Graph *g = unit_graph("input %x: f32[2, 4]\n%y: f32[2, 4] = aten.relu.default(%x)\noutput o = %y\n");
    QuantizeOptions o = {.target = quantize_target("cpu")};
    assert_false(quantize_place(g, &o, &p, &err));
    assert_non_null(strstr(err.msg, "no product with a weight"));
    placement_free(&p);
    graph_free(g);
    g = unit_graph("input %x: f32[2, 4]\nweight %s: f32[] = buffer \"f32[]\"\n"
                   "%q: i8[2, 4] = qkv.quantize_linear.default(%x, %s, none, i8)\noutput o = %q\n");
    err = (Err){0};
    assert_false(quantize_place(g, &o, &p, &err));
    assert_non_null(strstr(err.msg, "quantized already: node 'q'"));
    placement_free(&p);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges), cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_left), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
