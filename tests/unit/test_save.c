/* Graphs written as .pt2 and read again: the same values, with rows and arguments that no file of PyTorch holds.
 * PyTorch's own reading of such files is tested in tests/python/test_save.py. */
#include <math.h>
#include "pt2/write/write.h"
#include "pt2/read/read.h"
#include "run/session.h"
#include "shape/solve.h"
#include "unit_graph.h"

static const Tensor *run(Session **s, const Graph *g, int64_t n, uint64_t seed)
{
    Err err = {0};
    Binding b;
    const char *names[] = {"n", "s0"};
    int64_t sizes[] = {n, n};
    *s = session_create(g, NULL, 1, 0, &err);
    if (!*s) STOP("%s", err.msg);
    OK(binding_init(&b, g->ex, &err));
    int known = expr_find_symbol(g->ex, "n") ? 1 : 0;
    OK(choose_sizes(g, names, sizes, known, &b, &err) && session_random_inputs(*s, &b, seed, &err));
    binding_free(&b);
    OK(session_run(*s, &err));
    return session_output(*s, 0);
}

static void same_numbers(const char *text, const Graph *a, const Graph *b, int64_t n)
{
    Session *one, *two;
    const Tensor *x = run(&one, a, n, 7), *y = run(&two, b, n, 7);
    assert_int_equal(a->noutput, b->noutput);
    for (int k = 0; k < a->noutput; k++) {
        x = session_output(one, k);
        y = session_output(two, k);
        char p[200], q[200];
        assert_string_equal(tensor_describe(x, p, sizeof p), tensor_describe(y, q, sizeof q));
        for (int64_t i = 0; i < tensor_numel(x); i++) {
            double u = tensor_get(x, i), v = tensor_get(y, i);
            if (u != v && !(isnan(u) && isnan(v)) && !(fabs(u - v) <= 1e-5 * (1 + fabs(u))))
                STOP("%s\noutput %d [%lld]: %.9g became %.9g", text, k, (long long)i, u, v);
        }
    }
    session_free(one);
    session_free(two);
}

/* Saves, opens, compares at sizes 2 and 5; the text of what was read must be freed. */
static char *saved(const char *text)
{
    Err err = {0};
    Graph *g = unit_graph(text);
    const char *path = unit_path("saved.pt2");
    OK(pt2_save(g, NULL, 0, path, &err));
    Source *p = pt2_open(path, DT_NONE, &err);
    if (!p) STOP("%s\n%s", text, err.msg);
    same_numbers(text, g, p->graph, 2);
    same_numbers(text, g, p->graph, 5);
    char *again = unit_text(p->graph);
    source_close(p);
    graph_free(g);
    return again;
}

static void test_same_text(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "symbol n in [2, 9]\n"
        "input %x: f32[n, 4]\n"
        "weight %w: f32[3, 4] = parameter \"f32[3, 4]\"\n"
        "%y: f32[n, 3] = aten.linear.default(%x, %w)\n"
        "%z: f32[n, 3] = aten.mul.Tensor(%y, 0.5)\n"
        "%m: bool[n, 3] = aten.gt.Tensor(%z, 1)\n"
        "%u: f32[n, 3] = aten.where.self(%m, -inf, %z)\n"
        "%v: f32[n, 3] = aten.pow.Tensor_Tensor(2, %z)\n"
        "%s: f32[n, 3] = aten.sub.Tensor(1, %v)\n"
        "%r: f32[n, 3] = aten.maximum.default(%s, 0.25)\n"
        "output output_0 = %u\n"
        "output output_1 = %r\n",
        "symbol n in [1, 9]\n"
        "symbol k in [1, inf]\n"
        "input %x: f32[2*n + 1, k]\n"
        "input %y: f32[n*k, 3]\n"
        "%a: f32[(2*n + 1)*k] = aten.reshape.default(%x, [(2*k*n + k)])\n"
        "%i: i64[n + 2*k] = aten.arange.start_step(0, (n + 2*k), dtype=i64)\n"
        "%f: f32[Max(n, k), n//2 + 1] = aten.full.default([(Max(n, k)), (n//2 + 1)], (n*1.5), dtype=f32)\n"
        "%p: i64[n + 2*k] = aten.add.Tensor(%i, n)\n"
        "output output_0 = %a\n"
        "output output_1 = %p\n"
        "output output_2 = %f\n",
        "symbol u0 = size %where 0 in [0, inf]\n"
        "symbol n in [2, 9]\n"
        "input %x: f32[n, 3]\n"
        "%pos: bool[n, 3] = aten.gt.Tensor(%x, 0)\n"
        "%where: i64[u0, 2] = aten.nonzero.default(%pos)\n"
        "%one: i64[2*u0 + 1] = aten.arange.start_step(0, (2*u0 + 1), dtype=i64)\n"
        "output output_0 = %where\n"
        "output output_1 = %one\n",
        "input %x: f32[2, 3, 7]\n"
        "%values: f32[2, 3, 2], %indices: i64[2, 3, 2] = aten.topk.default(%x, 2)\n"
        "%pad: f32[2, 3, 10] = aten.reflection_pad1d.default(%x, [1, 2])\n"
        "%up: f32[2, 3, 9] = qkv.upsample.default(%x, [9], \"linear\", scales=[1.3])\n"
        "%bits: i32[2, 3, 7] = aten.view.dtype(%x, i32)\n"
        "output output_0 = %values\n"
        "output output_1 = %indices\n"
        "output output_2 = %pad\n"
        "output output_3 = %up\n"
        "output output_4 = %bits\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Graph *g = unit_graph(texts[i]);
        char *given = unit_text(g), *again = saved(texts[i]);
        assert_string_equal(again, given);
        free(given);
        free(again);
        graph_free(g);
    }
}

/* Quantizers of every width keep their range: PyTorch's own take 8 and 16 bits, others are written out. */
static void test_quantizers(void **state)
{
    (void)state;
    static const char *const types[] = {"i8", "u8", "i16", "u16", "i32", "f8e4m3fn", "f8e5m2", "f8e4m3fnuz"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "symbol n in [2, 9]\ninput %%x: f32[n, 4]\n"
                 "weight %%s: f32[] = parameter \"f32[]\"\n"
                 "%%y: %s[n, 4] = qkv.quantize_linear.default(%%x, %%s, dtype=%s)\n"
                 "%%z: f32[n, 4] = aten._to_copy.default(%%y, dtype=f32)\n"
                 "output output_0 = %%z\n",
                 types[i], types[i]);
        free(saved(text));
    }
}

static void test_attention(void **state)
{
    (void)state;
    static const char *const calls[] = {
        "is_causal=true",
        "upper=0",
        "lower=-2, upper=1",
        "lower=1",
        "upper=(n - 3)",
        "softcap=2.0",
        "softcap=2.0, scale=0.7, is_causal=true",
        "%float",
        "%float, is_causal=true",
        "%allowed, upper=0",
        "%allowed, lower=-1, upper=(n//2), scale=0.1",
        "%float, lower=0, softcap=1.5",
        "%allowed, softcap=0.5, upper=-1",
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int grouped = 0; grouped < 2; grouped++) {
            char text[2000];
            snprintf(text, sizeof text,
                     "symbol n in [2, 9]\n"
                     "input %%q: f32[2, 4, n, 8]\n"
                     "input %%k: f32[2, %d, n + 1, 8]\n"
                     "input %%v: f32[2, %d, n + 1, 6]\n"
                     "input %%float: f32[n, n + 1]\n"
                     "%%allowed: bool[n, n + 1] = aten.lt.Tensor(%%float, 0.5)\n"
                     "%%y: f32[2, 4, n, 6] = aten.scaled_dot_product_attention.default(%%q, %%k, %%v, %s%s)\n"
                     "output output_0 = %%y\n",
                     grouped ? 2 : 4, grouped ? 2 : 4, calls[i], grouped ? ", enable_gqa=true" : "");
            free(saved(text));
        }
}

static void test_recurrent(void **state)
{
    (void)state;
    static const char *const layers[] = {
        "%o: f32[n, 2, 3], %c: f32[2, 3] = qkv.lstm_layer.default(%g, %w, %b, %h, %s, none, false)",
        "%o: f32[n, 2, 3], %c: f32[2, 3] = qkv.lstm_layer.default(%g, %w, none, %h, %s, none, true)",
        "%o: f32[n, 2, 3] = qkv.rnn_layer.default(%g3, %w3, %b3, %h, \"gru\", false)\n"
        "%c: f32[2, 3] = aten.neg.default(%h)",
        "%o: f32[n, 2, 3] = qkv.rnn_layer.default(%g1, %w1, none, %h, \"tanh\", true)\n"
        "%c: f32[2, 3] = aten.neg.default(%h)",
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        char text[2000];
        snprintf(text, sizeof text,
                 "symbol n in [1, 9]\n"
                 "input %%x: f32[n, 2, 4]\n"
                 "input %%h: f32[2, 3]\n"
                 "input %%s: f32[2, 3]\n"
                 "input %%g1: f32[n, 2, 3]\n"
                 "input %%w: f32[12, 3]\n"
                 "input %%w3: f32[9, 3]\n"
                 "input %%w1: f32[3, 3]\n"
                 "input %%v: f32[12, 4]\n"
                 "input %%g3: f32[n, 2, 9]\n"
                 "weight %%b: f32[12] = parameter \"f32[12]\"\n"
                 "weight %%b3: f32[9] = parameter \"f32[9]\"\n"
                 "%%g: f32[n, 2, 12] = aten.linear.default(%%x, %%v, %%b)\n"
                 "%s\n"
                 "output output_0 = %%o\n"
                 "output output_1 = %%c\n",
                 layers[i]);
        free(saved(text));
    }
}

/* Weights as PyTorch cannot hold them, and such that share bytes. */
static void test_weights(void **state)
{
    (void)state;
    Err err = {0};
    float room[24];
    for (int i = 0; i < 24; i++) room[i] = (float)i;
    static const char text[] = "input %x: f32[3, 4]\noutput output_0 = %x\n";
    Graph *g = unit_graph(text);
    Tensor back = {.dtype = DT_F32, .rank = 1, .shape = {5}, .stride = {-2}, .data = room + 10};
    Tensor whole = tensor_of(DT_F32, 2, (int64_t[]){4, 6}, room),
           turned = {.dtype = DT_F32, .rank = 2, .shape = {3, 4}, .stride = {1, 6}, .data = room + 2};
    Tensor bytes = tensor_of(DT_U8, 1, (int64_t[]){5}, (char *)room + 1), odd = tensor_of(DT_F32, 0, NULL, room + 23),
           none = tensor_of(DT_F32, 1, (int64_t[]){0}, NULL);
    const Tensor *all[] = {&back, &turned, &whole, &bytes, &odd, &none};
    for (int i = 0; i < 6; i++) {
        Value *v = graph_add_weight(g, "w", i < 4 ? "same.name" : NULL, all[i]);
        assert_non_null(v);
        v->weight = i % 2 ? W_BUFFER : W_PARAMETER;
        v->persistent = i != 3;
    }
    const char *path = unit_path("weights.pt2");
    OK(pt2_save(g, NULL, 0, path, &err));
    Source *p = pt2_open(path, DT_NONE, &err);
    if (!p) STOP("%s", err.msg);
    assert_int_equal(p->graph->nweight, 6);
    for (int i = 0; i < 6; i++) {
        const Tensor *t = p->graph->weight[i]->data;
        assert_int_equal(t->rank, all[i]->rank);
        assert_int_equal(p->graph->weight[i]->weight, g->weight[i]->weight);
        for (int64_t k = 0; k < tensor_numel(all[i]); k++) assert_true(tensor_get(t, k) == tensor_get(all[i], k));
    }
    assert_ptr_equal(p->graph->weight[1]->data->data, (float *)p->graph->weight[2]->data->data + 2);
    source_close(p);
    graph_free(g);
}

static void test_extra_files(void **state)
{
    (void)state;
    static const NamedBytes files[] = {{"notes", "two\nlines\n", 10}, {"a/b.json", "{}", 2}, {"empty", "", 0}},
                            outside = {"../notes", "", 0};
    Err err = {0};
    Extras x;
    Graph *g = unit_graph("input %x: f32[2]\noutput output_0 = %x\n");
    const char *path = unit_path("extra.pt2");
    OK(pt2_save(g, files, 3, path, &err));
    Source *p = pt2_open(path, DT_NONE, &err);
    if (!p) STOP("%s", err.msg);
    OK(extras_open(&x, p, &err));
    assert_int_equal(x.n, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(x.file[i].name, files[i].name);
        assert_int_equal(x.file[i].size, files[i].size);
        assert_memory_equal(x.file[i].bytes, files[i].bytes, files[i].size);
    }
    extras_close(&x);
    source_close(p);
    REFUSED(pt2_save(g, &outside, 1, path, &err), E_USAGE);
    REFUSED(pt2_save(g, (NamedBytes[]){files[0], files[0]}, 2, path, &err), E_USAGE);
    graph_free(g);
}

static void test_refused(void **state)
{
    (void)state;
    Err err;
    Graph *g = unit_graph(
        "symbol n in [0, 9]\ninput %x: f32[n*n]\n%y: i64[n] = aten.arange.start_step(0, n, dtype=i64)\n"
        "output output_0 = %y\n");
    const char *path = unit_path("refused.pt2");
    REFUSED(pt2_save(g, NULL, 0, path, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "node 'y'"));
    assert_int_not_equal(access(path, F_OK), 0);
    REFUSED(pt2_save(g, NULL, 0, "/", &err), E_UNSUPPORTED);
    graph_free(g);
    g = unit_graph("input %x: f32[2]\noutput output_0 = %x\n");
    REFUSED(pt2_save(g, NULL, 0, "/", &err), E_IO);
    REFUSED(pt2_save(g, NULL, 0, "/no/such/folder/x.pt2", &err), E_IO);
    graph_free(g);
}

static void test_rotary(void **state)
{
    (void)state;
    static const char *const tables[] = {"n, 8", "1, 8", "n, 4", "2, 1, n, 8", "4"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (int pairs = 0; pairs < 2; pairs++) {
            char text[1000];
            snprintf(text, sizeof text,
                     "symbol n in [2, 9]\n"
                     "input %%x: f32[2, 3, n, 8]\n"
                     "input %%c: f32[%s]\n"
                     "input %%s: f32[n, 8]\n"
                     "%%y: f32[2, 3, n, 8] = qkv.rotary.default(%%x, %%c, %%s%s)\n"
                     "output output_0 = %%y\n",
                     tables[i], pairs ? ", interleaved=true" : "");
            free(saved(text));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_text),   cmocka_unit_test(test_quantizers),
                                       cmocka_unit_test(test_attention),   cmocka_unit_test(test_rotary),
                                       cmocka_unit_test(test_recurrent),   cmocka_unit_test(test_weights),
                                       cmocka_unit_test(test_extra_files), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests_name("save", tests, NULL, NULL);
}
