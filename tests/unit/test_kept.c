/* Inputs that are kept from run to run: what depends on them alone is computed once,
 * and the values are those of a run without keeping. */
#include <math.h>
#include "plan/fuse.h"
#include "run/session.h"
#include "unit_graph.h"

typedef struct Pair {
    Graph *g;
    Fusion *fusion;
    Session *kept, *full; /* full: nothing is kept, every input is set again */
} Pair;

static Pair pair(const char *text, const char *keep)
{
    Err err = {0};
    Pair p = {.g = unit_graph(text), .fusion = calloc(1, sizeof *p.fusion)};
    unit_mark_inputs(p.g);
    OK(fuse_graph(p.g, p.fusion, &err));
    p.kept = session_create(p.g, p.fusion, 1, 0, &err);
    p.full = session_create(p.g, p.fusion, 1, 0, &err);
    assert_non_null(p.kept);
    assert_non_null(p.full);
    for (int i = 0; i < p.g->ninput; i++)
        if (strchr(keep, p.g->input[i]->name[0])) OK(session_keep(p.kept, i, &err));
    return p;
}

static void pair_free(Pair *p)
{
    session_free(p->kept);
    session_free(p->full);
    fusion_free(p->fusion);
    free(p->fusion);
    graph_free(p->g);
}

static Tensor matrix(int64_t rows, int64_t cols, float *x, uint64_t seed)
{
    for (int64_t i = 0; i < rows * cols; i++) x[i] = (float)(unit_random(&seed) % 1000) / 100 - 5;
    return tensor_of(DT_F32, 2, (int64_t[]){rows, cols}, x);
}

static void set(Session *s, int i, const Tensor *t)
{
    Err err = {0};
    OK(session_set_input(s, i, t, &err));
}

/* Both run; the same bits. How many steps the whole graph's plan of the kept session has fewer. */
static int run_both(Pair *p)
{
    Err err = {0};
    session_seed(p->kept, 3);
    session_seed(p->full, 3);
    OK(session_run(p->kept, &err));
    OK(session_run(p->full, &err));
    for (int i = 0; i < p->g->noutput; i++) {
        const Tensor *a = session_output(p->kept, i), *b = session_output(p->full, i);
        assert_int_equal(a->rank, b->rank);
        for (int k = 0; k < a->rank; k++) assert_int_equal(a->shape[k], b->shape[k]);
        if (tensor_contiguous(a) && tensor_contiguous(b)) assert_memory_equal(a->data, b->data, tensor_bytes(b));
        else
            for (int64_t k = 0; k < tensor_numel(a); k++) assert_true(tensor_get(a, k) == tensor_get(b, k));
    }
    SessionStats a, b;
    session_stats(p->kept, &a);
    session_stats(p->full, &b);
    assert_int_equal(b.kept_bytes, 0);
    return b.steps - a.steps;
}

static const char grounding[] = "symbol b in [1, 8]\n"
                                "symbol p in [1, 8]\n"
                                "input %x: f32[b, 4]\n"
                                "input %t: f32[p, 4]\n"
                                "weight %w: f32[4, 4] = parameter \"f32[4, 4]\"\n"
                                "%lin: f32[b, 4] = aten.linear.default(%x, %w)\n"
                                "%act: f32[b, 4] = aten.gelu.default(%lin)\n"
                                "%row: f32[b, 1, 4] = aten.reshape.default(%act, [b, 1, 4])\n"
                                "%wide: f32[b, p, 4] = aten.expand.default(%row, [b, p, 4])\n"
                                "%tl: f32[p, 4] = aten.linear.default(%t, %w)\n"
                                "%sum: f32[b, p, 4] = aten.mul.Tensor(%wide, %tl)\n"
                                "%twice: f32[b, 4] = aten.mul.Tensor(%x, 2.0)\n"
                                "%dead: f32[b, 4] = aten.exp.default(%twice)\n"
                                "output output_0 = %sum\n"
                                "output output_1 = %act\n"
                                "output output_2 = %x\n";

static void test_sizes(void **state)
{
    (void)state;
    float x[40], y[40], t[40];
    Err err = {0};
    Pair p = pair(grounding, "x");
    Tensor a = matrix(3, 4, x, 1), c = matrix(2, 4, t, 2);
    set(p.kept, 1, &c);
    assert_false(session_run(p.kept, &err)); /* x must be set after session_keep */
    assert_non_null(strstr(err.msg, "'x' is not given"));
    set(p.kept, 0, &a);
    for (int prompts = 1; prompts <= 5; prompts++) {
        Tensor b = matrix(prompts, 4, t, (uint64_t)prompts);
        a = matrix(3, 4, x, 1);
        set(p.full, 0, &a);
        set(p.full, 1, &b);
        set(p.kept, 1, &b);
        assert_int_equal(run_both(&p), 1); /* linear with gelu */
        memset(x, 0x55, sizeof x);         /* the caller's memory may go */
    }
    SessionStats st;
    session_stats(p.kept, &st);
    assert_int_equal(st.kept_bytes, 48);
    assert_int_equal(st.plans, 6);
    a = matrix(5, 4, y, 7); /* another size, other values */
    set(p.kept, 0, &a);
    set(p.full, 0, &a);
    run_both(&p);
    run_both(&p);
    session_stats(p.kept, &st);
    assert_int_equal(st.plans, 8);
    a = matrix(3, 4, y, 8); /* back */
    set(p.kept, 0, &a);
    set(p.full, 0, &a);
    run_both(&p);
    a = matrix(9, 4, y, 9); /* too large: nothing ran; the next picture does */
    set(p.kept, 0, &a);
    assert_false(session_run(p.kept, &err));
    a = matrix(3, 4, y, 10);
    set(p.kept, 0, &a);
    set(p.full, 0, &a);
    run_both(&p);
    pair_free(&p);
}

static void test_results_of_other_values(void **state)
{
    (void)state;
    float x[12], y[12], t[8];
    Err err = {0};
    Pair p = pair(grounding, "x");
    Tensor a = matrix(3, 4, x, 1), b = matrix(3, 4, y, 2), c = matrix(2, 4, t, 3);
    assert_null(session_kept_results(p.kept, &err));
    assert_non_null(strstr(err.msg, "run first"));
    set(p.full, 1, &c);
    set(p.kept, 1, &c);
    KeptResults *of[2];
    for (int i = 0; i < 2; i++) {
        set(p.kept, 0, i ? &b : &a);
        set(p.full, 0, i ? &b : &a);
        run_both(&p);
        OK((of[i] = session_kept_results(p.kept, &err)) != NULL);
        assert_int_equal(kept_results_bytes(of[i]), 48);
    }
    for (int prompts = 1; prompts <= 2; prompts++)
        for (int i = 0; i < 2; i++) {
            c = matrix(prompts, 4, t, 4);
            set(p.full, 0, i ? &b : &a);
            set(p.kept, 0, i ? &b : &a);
            set(p.full, 1, &c);
            set(p.kept, 1, &c);
            session_use_kept(p.kept, of[i]);
            run_both(&p);
        }
    /* they are taken, and for one run only: given those of a for b, the first two outputs are a's */
    for (int i = 0; i < 2; i++) {
        set(p.kept, 0, &b);
        set(p.full, 0, i ? &b : &a);
        if (!i) session_use_kept(p.kept, of[0]);
        OK(session_run(p.kept, &err));
        OK(session_run(p.full, &err));
        for (int k = 0; k < 2; k++)
            assert_memory_equal(session_output(p.kept, k)->data, session_output(p.full, k)->data, 48);
    }
    /* of other sizes, and so of another plan: they are computed */
    Tensor small = matrix(2, 4, x, 5);
    set(p.kept, 0, &small);
    set(p.full, 0, &small);
    session_use_kept(p.kept, of[1]);
    run_both(&p);
    for (int i = 0; i < 2; i++) kept_results_free(of[i]);
    pair_free(&p);
}

static int ran;

static bool count_node(void *user, const Node *n, Tensor *const *out)
{
    (void)user;
    (void)out;
    ran += n->nout > 0;
    return true;
}

static void test_observer(void **state)
{
    (void)state;
    float x[12], t[8];
    Pair p = pair(grounding, "xt");
    Tensor a = matrix(3, 4, x, 1), b = matrix(2, 4, t, 2);
    Session *both[] = {p.kept, p.full};
    for (int i = 0; i < 2; i++) {
        set(both[i], 0, &a);
        set(both[i], 1, &b);
    }
    assert_int_equal(run_both(&p), 3); /* everything is kept */
    for (int i = 0; i < 2; i++) session_on_node(both[i], count_node, NULL);
    run_both(&p);
    assert_int_equal(ran, 12); /* all nodes but the dead ones */
    for (int i = 0; i < 2; i++) session_on_node(both[i], NULL, NULL);
    run_both(&p);
    assert_int_equal(ran, 12);
    pair_free(&p);
}

/* A product whose residual comes from elsewhere runs with it; random numbers,
 * buffers and sizes from data are never kept. */
static void test_others(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int fewer;
    } cases[] = {
        {"%l: f32[b, 4] = aten.linear.default(%x, %w)\n%y: f32[b, 4] = aten.add.Tensor(%l, %t)\n", 0},
        {"%l: f32[b, 4] = aten.linear.default(%x, %w)\n%r: f32[b, 4] = aten.relu.default(%l)\n"
         "%y: f32[b, 4] = aten.add.Tensor(%r, %x)\n",
         1},
        {"%l: f32[b, 4] = aten.linear.default(%t, %w)\n%e: f32[b, 4] = aten.exp.default(%x)\n"
         "%y: f32[b, 4] = aten.add.Tensor(%l, %e)\n",
         1},
        {"%e: f32[b, 4] = aten.exp.default(%x)\n%r: f32[b, 4] = aten.bernoulli.p(%e, 0.5)\n"
         "%y: f32[b, 4] = aten.add.Tensor(%r, %t)\n",
         1},
        {"%o: f32[1, 4] = aten.add.Tensor(%c, 1.0)\n%y: f32[b, 4] = aten.mul.Tensor(%x, %o)\n", 0},
        {"%e: f32[b, 4] = aten.exp.default(%x)\n%f: f32[4, b] = aten.permute.default(%e, [1, 0])\n"
         "%y: f32[4, 4] = aten.matmul.default(%f, %t)\n",
         1},
        {"%e: f32[b, 4] = aten.exp.default(%x)\n%g: bool[b, 4] = aten.gt.Tensor(%e, 1.0)\n"
         "%y: i64[u, 2] = aten.nonzero.default(%g)\n",
         2},
        {"%i: i64[b] = aten.arange.start_step(0, b)\n%f: f32[b] = aten._to_copy.default(%i, dtype=f32)\n"
         "%e: f32[4, b] = aten.mul.Tensor(%f, %z)\n"
         "%y: f32[4, b] = aten.exp.default(%e)\n",
         2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2000];
        bool counts = strstr(cases[i].text, "nonzero"), writes = strstr(cases[i].text, "%c");
        snprintf(text, sizeof text,
                 "symbol b in [1, 8]\n%sinput %%x: f32[b, 4]\ninput %%z: f32[4, b]\ninput %%t: f32[b, 4]\n"
                 "weight %%w: f32[4, 4] = parameter \"f32[4, 4]\"\nweight %%c: f32[1, 4] = buffer \"f32[1, 4]\"\n"
                 "%s%s%soutput output_0 = %%y\n",
                 counts ? "symbol u = size %y 0 in [0, 100]\n" : "", cases[i].text,
                 writes ? "%n: f32[1, 4] = aten.add.Tensor(%c, 1.0)\n" : "", writes ? "mutate %c = %n\n" : "");
        Pair p = pair(text, "xz");
        float x[40], z[40], t[40];
        for (int round = 0; round < 6; round++) {
            int64_t b = round < 4 ? 3 : 2;
            Tensor a = matrix(b, 4, x, round < 2 ? 1 : 2), d = matrix(4, b, z, 3), c = matrix(b, 4, t, (uint64_t)round);
            if (round % 2 == 0) set(p.kept, 0, &a);
            if (round % 2 == 0) set(p.kept, 1, &d);
            set(p.kept, 2, &c);
            set(p.full, 0, &a);
            set(p.full, 1, &d);
            set(p.full, 2, &c);
            int fewer = run_both(&p);
            if (fewer != cases[i].fewer) STOP("%s%d steps fewer, expected %d", cases[i].text, fewer, cases[i].fewer);
        }
        pair_free(&p);
    }
}

/* More sizes than plans are kept: the results of kept inputs stay. */
static void test_many_plans(void **state)
{
    (void)state;
    float x[12], *t = calloc(800, sizeof *t);
    char text[sizeof grounding];
    memcpy(text, grounding, sizeof text);
    memcpy(strstr(text, "symbol p in [1, 8]"), "symbol p in [1,99]", 18);
    Pair p = pair(text, "x");
    Tensor a = matrix(3, 4, x, 1);
    set(p.kept, 0, &a);
    set(p.full, 0, &a);
    for (int round = 0; round < 150; round++) {
        Tensor b = matrix(1 + round % 90, 4, t, (uint64_t)round);
        set(p.kept, 1, &b);
        set(p.full, 1, &b);
        assert_int_equal(run_both(&p), 1);
    }
    pair_free(&p);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_results_of_other_values),
        cmocka_unit_test(test_observer),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_many_plans),
    };
    return cmocka_run_group_tests_name("kept", tests, NULL, NULL);
}
