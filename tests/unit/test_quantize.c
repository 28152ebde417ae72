/* Quantizers: ranges from histograms, where they are put, what the passes for runs make of them. */
#include <math.h>
#include <string.h>
#include "unit_graph.h"
#include "base/splitmix.h"
#include "program/knapsack.h"
#include "quantize/integers.h"
#include "quantize/massive.h"
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

/* A model that draws random numbers gives others when it is looked at again. */
static void test_other_numbers(void **state)
{
    (void)state;
    Observer o;
    Err err = {0};
    const float seen[2] = {1e-30f, -1e-30f}, later[5] = {3e38f, -1, INFINITY, -NAN, 0};
    observer_begin(&o, CALIBRATE_ENTROPY);
    assert_int_equal(observe_range(&o, seen, 2), -1);
    assert_true(observe_histogram(&o, later, 5, &err));
    assert_true(o.bin[OBSERVER_BINS - 1] == 4 && o.bin[0] == 1);
    observer_free(&o);
}

/* A size that follows from the data may be larger in a later batch. */
static void test_other_channels(void **state)
{
    (void)state;
    enum { MORE = 5000 };
    static float x[MORE];
    Err err = {0};
    Arena *a = arena_create(0);
    Massive *m = massive_create(&err);
    for (int i = 0; i < MORE; i++) x[i] = i == MORE - 1 ? 1e6f : 1;
    assert_true(m && massive_observe(m, x, 1, 2, &err) && massive_observe(m, x, 1, MORE, &err));
    assert_true(massive_observe(m, x, 3, 1, &err));
    const char *why = massive_found(m, 1000, a, &err);
    assert_non_null(why);
    assert_non_null(strstr(why, "channel 4999 of 5000, in 1 of 5 tokens"));
    massive_free(m);
    arena_destroy(a);
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

#define PICTURE                                                                                                        \
    "input %x: f32[1, 64, 4, 4]\n"                                                                                     \
    "weight %p_w: f32[64, 64, 1, 1] = parameter \"f32[64, 64, 1, 1]\"\n"
#define CONVOLVE(to, from)                                                                                             \
    "%" to ": f32[1, 64, 4, 4] = aten.convolution.default(%" from ", %p_w, none, [1, 1], [0, 0], [1, 1], "             \
    "false, [0, 0], 1)\n"
#define PLUS(to, a, b) "%" to ": f32[1, 64, 4, 4] = aten.add.Tensor(%" a ", %" b ")\n"

/* Of a sum with a convolution's result the other side is quantized where it is anyway, or is one, too. */
static void test_residuals(void **state)
{
    (void)state;
    Placement p;
    Err err = {0};
    Graph *g = placed(PICTURE CONVOLVE("a", "x") CONVOLVE("b", "a") PLUS("c", "b", "a") CONVOLVE("d", "c")
                      CONVOLVE("e", "c") PLUS("f", "d", "e") "output o = %f\n",
                      "cpu", NULL, &p);
    assert_int_equal(p.nsites, 6);
    assert_int_equal(count(g, OP_quantize_linear), 4); /* x, a, c, e */
    for (int i = 0; i < 2; i++) {
        const Node *sum = graph_find_value(g, i ? "f" : "c")->def;
        assert_int_equal(sum->arg[1].v->def->op->id, OP_dequantize_linear);
        assert_ptr_equal(sum->arg[0].v->def->op, graph_find_value(g, "b")->def->op);
    }
    assert_true(quantize_integers(g, &err) && graph_check(g, &err));
    assert_int_equal(count(g, OP_convolution_integer), 4);
    assert_int_equal(count(g, OP_dequantize_linear), 2);
    placement_free(&p);
    graph_free(g);
    g = placed(PICTURE "input %y: f32[1, 64, 4, 4]\n" CONVOLVE("a", "x") PLUS("c", "a", "y") "output o = %c\n", "cpu",
               NULL, &p);
    assert_int_equal(p.nsites, 1);
    placement_free(&p);
    graph_free(g);
}

#define POOLED                                                                                                         \
    "input %x: f32[2, 4, 8, 8]\nweight %s: f32[] = buffer \"f32[]\"\n"                                                 \
    "%r: f32[2, 4, 8, 8] = aten.relu.default(%x)\n"                                                                    \
    "%m: f32[2, 4, 4, 4], %i: i64[2, 4, 4, 4] = aten.max_pool2d_with_indices.default(%r, [3, 3], [2, 2], [1, 1])\n"    \
    "%q: i8[2, 4, 4, 4] = qkv.quantize_linear.default(%m, %s, none, i8)\noutput o = %q\n"

/* quantize(max_pool(x)) is max_pool(quantize(x)), where nothing else reads x or the result. */
static void test_pooled(void **state)
{
    (void)state;
    for (int read = 0; read < 2; read++) {
        Err err = {0};
        Graph *g = unit_graph(read ? POOLED "output p = %m\n" : POOLED);
        assert_true(quantize_integers(g, &err) && graph_check(g, &err));
        const Node *last = g->output[0].value->def;
        assert_int_equal(last->op->id, read ? OP_quantize_linear : OP_max_pool2d_with_indices);
        assert_int_equal(last->arg[0].v->def->op->id, read ? OP_max_pool2d_with_indices : OP_quantize_linear);
        graph_free(g);
    }
}

static void test_refused(void **state)
{
    (void)state;
    Placement p;
    Err err = {0};
    Graph *g = unit_graph("input %x: f32[2, 4]\n%y: f32[2, 4] = aten.relu.default(%x)\noutput o = %y\n");
    QuantizeOptions o = {.target = quantize_target("cpu")};
    assert_false(quantize_place(g, &o, &p, &err));
    assert_non_null(strstr(err.msg, "the model has no linear layers"));
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

/* What the rules make of MatMul and Add: a weight of (K, N) that is transposed. One copy, its rows channels. */
static void test_transposed_weights(void **state)
{
    (void)state;
    Placement p;
    Err err = {0};
    Graph *g = placed("input %x: f32[2, 32]\n"
                      "weight %p_w: f32[32, 64] = parameter \"f32[32, 64]\"\n"
                      "weight %p_b: f32[64] = parameter \"f32[64]\"\n"
                      "%t: f32[64, 32] = aten.permute.default(%p_w, [1, 0])\n"
                      "%a: f32[2, 64] = aten.linear.default(%x, %t, %p_b)\n"
                      "%b: f32[2, 64] = aten.linear.default(%x, %t)\n"
                      "%c: f32[2, 64] = aten.matmul.default(%x, %p_w)\n"
                      "output o = %a\noutput p = %b\noutput q = %c\n",
                      "cpu", "c", &p);
    assert_int_equal(p.nsites, 3);
    assert_string_equal(p.site[0].weight, p.site[2].weight);
    assert_true(!p.site[0].why && !p.site[1].why && p.site[2].why);
    assert_int_equal(p.weights, 1);
    const Value *file = graph_find_value(g, "p_w"), *w = graph_find_value(g, "a")->def->arg[1].v;
    const Tensor *scales = w->def->arg[1].v->data, *ints = w->def->arg[0].v->data;
    assert_int_equal(ints->shape[0], 64);
    assert_int_equal(scales->shape[0], 64);
    for (int64_t n = 0; n < 64; n++)
        for (int64_t k = 0; k < 32; k++)
            assert_true(fabs(tensor_get(scales, n) * tensor_get(ints, n * 32 + k) -
                             tensor_get(file->data, k * 64 + n)) <= tensor_get(scales, n) * 0.5001);
    assert_true(quantize_integers(g, &err) && graph_check(g, &err));
    assert_int_equal(count(g, OP_linear_integer), 2);
    placement_free(&p);
    graph_free(g);
}

/* What the greedy choice by worth for cost pays for at least this worth. */
static int64_t greedy_cost(const int64_t *cost, const double *worth, int n, double want)
{
    bool done[16] = {0};
    int64_t paid = 0;
    for (double sum = 0; sum < want;) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!done[i] && (best < 0 || worth[i] * (double)cost[best] > worth[best] * (double)cost[i])) best = i;
        done[best] = true;
        sum += worth[best];
        paid += cost[best];
    }
    return paid;
}

/* The least cost of all subsets. */
static int64_t least_cost(const int64_t *cost, const double *worth, int n, double want)
{
    int64_t least = INT64_MAX;
    for (int set = 0; set < 1 << n; set++) {
        double sum = 0;
        int64_t paid = 0;
        for (int i = 0; i < n; i++)
            if (set >> i & 1) {
                sum += worth[i];
                paid += cost[i];
            }
        if (sum >= want && paid < least) least = paid;
    }
    return least;
}

static void test_knapsack(void **state)
{
    (void)state;
    enum { N = 10 };
    Err err = {0};
    Knapsack k;
    /* By worth for cost the first comes first, and the second then has to be paid, too: the second alone is enough. */
    const int64_t two[2] = {10, 50};
    const double of_two[2] = {11, 50};
    bool taken[N];
    assert_true(knapsack_solve(&k, two, of_two, 2, &err));
    assert_int_equal(k.npoints, 4);
    knapsack_set(&k, 2, taken);
    assert_true(!taken[0] && taken[1] && k.point[2].cost == 50 && k.point[2].worth == 50);
    assert_int_equal(greedy_cost(two, of_two, 2, 50), 60);
    knapsack_free(&k);
    uint64_t seed = 3;
    int better = 0;
    for (int turn = 0; turn < 50; turn++) {
        int64_t cost[N];
        double worth[N];
        for (int i = 0; i < N; i++) {
            cost[i] = 1 + (int64_t)(splitmix_next(&seed) % 30);
            worth[i] = (double)(splitmix_next(&seed) % 64);
        }
        assert_true(knapsack_solve(&k, cost, worth, N, &err));
        for (int64_t i = 0; i < k.npoints; i++) {
            double sum = 0;
            int64_t paid = 0;
            knapsack_set(&k, i, taken);
            for (int j = 0; j < N; j++) {
                sum += taken[j] ? worth[j] : 0;
                paid += taken[j] ? cost[j] : 0;
            }
            assert_true(sum == k.point[i].worth && paid == k.point[i].cost);
            assert_int_equal(paid, least_cost(cost, worth, N, sum));
            better += paid < greedy_cost(cost, worth, N, sum);
        }
        knapsack_free(&k);
    }
    assert_true(better > 100);
    assert_true(knapsack_solve(&k, two, of_two, 0, &err) && k.npoints == 1);
    knapsack_free(&k);
}

/* A name that there was no memory for comes as NULL. */
static void test_buffers(void **state)
{
    (void)state;
    Err err = {0};
    Graph *g = graph_create();
    const Value *first = quantize_buffer(g, "a.scale", DT_F32, 0, NULL, &err);
    const Value *second = quantize_buffer(g, "a.scale", DT_F32, 0, NULL, &err);
    assert_true(first && second);
    assert_string_equal(first->fqn, "a.scale");
    assert_string_equal(second->fqn, "a.scale_1");
    assert_null(quantize_buffer(g, NULL, DT_F32, 0, NULL, &err));
    assert_int_equal(err.code, E_LIMIT);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges), cmocka_unit_test(test_buffers),
                                       cmocka_unit_test(test_other_numbers),
                                       cmocka_unit_test(test_other_channels),
                                       cmocka_unit_test(test_attention), cmocka_unit_test(test_left),
                                       cmocka_unit_test(test_transposed_weights),
                                       cmocka_unit_test(test_residuals), cmocka_unit_test(test_pooled),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_knapsack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
