/* Outputs that are fed to inputs: the values are those of a caller that copies them itself, in place or not. */
#include "plan/fuse.h"
#include "run/session.h"
#include "unit_graph.h"

/* y = sum over what was seen so far; the past grows along axis 1, in the middle. */
static const char decoder[] = "symbol b in [1, 8]\n"
                              "symbol n in [1, 64]\n"
                              "symbol p in [0, 1000]\n"
                              "input %x: f32[b, n, 3]\n"
                              "input %past: f32[b, p, 3]\n"
                              "%new: f32[b, n, 3] = aten.mul.Tensor(%x, 2.0)\n"
                              "%all: f32[b, n + p, 3] = aten.cat.default([%past, %new], 1)\n"
                              "%y: f32[b, 3] = aten.sum.dim_IntList(%all, [1])\n"
                              "%old: f32[b, 3] = aten.sum.dim_IntList(%past, [1])\n"
                              "output output_0 = %y\n"
                              "output output_1 = %all\n"
                              "output output_2 = %old\n";

/* A state of one size, which two inputs take, and a view of it. */
static const char state_space[] = "input %x: f32[2, 3]\n"
                                  "input %h: f32[2, 3]\n"
                                  "input %g: f32[2, 3]\n"
                                  "input %v: f32[3, 2]\n"
                                  "%k: f32[2, 3] = aten.mul.Tensor(%h, 0.5)\n"
                                  "%l: f32[2, 3] = aten.add.Tensor(%k, %x)\n"
                                  "%m: f32[2, 3] = aten.add.Tensor(%l, %g)\n"
                                  "%r: f32[3, 2] = aten.permute.default(%m, [1, 0])\n"
                                  "%s: f32[3, 2] = aten.add.Tensor(%r, %v)\n"
                                  "output output_0 = %m\n"
                                  "output output_1 = %r\n"
                                  "output output_2 = %s\n";

typedef struct Pair {
    Graph *g;
    Fusion *fusion;
    Session *fed, *plain;
} Pair;

static Pair pair(const char *text)
{
    Err err = {0};
    Pair p = {.g = unit_graph(text), .fusion = calloc(1, sizeof *p.fusion)};
    unit_mark_inputs(p.g);
    OK(fuse_graph(p.g, p.fusion, &err));
    p.fed = session_create(p.g, p.fusion, 1, 0, &err);
    p.plain = session_create(p.g, p.fusion, 1, 0, &err);
    assert_non_null(p.fed);
    assert_non_null(p.plain);
    return p;
}

static void pair_free(Pair *p)
{
    session_free(p->fed);
    session_free(p->plain);
    fusion_free(p->fusion);
    free(p->fusion);
    graph_free(p->g);
}

static void same(const Tensor *a, const Tensor *b)
{
    assert_int_equal(a->rank, b->rank);
    for (int k = 0; k < a->rank; k++) assert_int_equal(a->shape[k], b->shape[k]);
    for (int64_t k = 0; k < tensor_numel(a); k++) assert_true(tensor_get(a, k) == tensor_get(b, k));
}

static void run(Session *s)
{
    Err err = {0};
    if (!session_run(s, &err)) STOP("%s", err.msg);
}

static void set(Session *s, int i, const Tensor *t)
{
    Err err = {0};
    OK(session_set_input(s, i, t, &err));
}

static Tensor sample(float *x, int64_t b, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < b * n * 3; i++) x[i] = (float)(unit_random(&seed) % 1000) / 100 - 5;
    return tensor_of(DT_F32, 3, (int64_t[]){b, n, 3}, x);
}

/* Steps of the decoder from an empty past, the plain session's copied here; how often memory moved. */
static int decode(Pair *p, int64_t b, int steps, int64_t first)
{
    static float x[8 * 64 * 3], held[8 * 1000 * 3];
    const void *at = NULL;
    int moved = 0;
    Tensor past = tensor_of(DT_F32, 3, (int64_t[]){b, 0, 3}, held);
    for (int i = 0; i < steps; i++) {
        Tensor t = sample(x, b, i ? 1 : first, (uint64_t)i + 1);
        set(p->fed, 0, &t);
        set(p->plain, 0, &t);
        set(p->plain, 1, &past);
        run(p->fed);
        run(p->plain);
        for (int o = 0; o < 3; o++) same(session_output(p->fed, o), session_output(p->plain, o));
        same(session_input(p->fed, 1), session_output(p->plain, 1));
        moved += at != session_input(p->fed, 1)->data;
        at = session_input(p->fed, 1)->data;
        past = tensor_of(DT_F32, 3, session_output(p->plain, 1)->shape, held);
        tensor_copy(&past, session_output(p->plain, 1));
    }
    return moved;
}

static void test_grows_in_place(void **state)
{
    (void)state;
    Err err = {0};
    Pair p = pair(decoder);
    OK(session_feed(p.fed, 1, 1, &err));
    assert_int_equal(decode(&p, 2, 200, 7), 3); /* 64, 130, 260 */
    session_reset(p.fed);
    assert_null(session_input(p.fed, 1));
    assert_int_equal(decode(&p, 2, 50, 20), 1); /* the room is there */
    session_reset(p.fed);
    decode(&p, 5, 40, 1); /* another batch */
    pair_free(&p);
}

/* A past that the caller sets in the middle, with strides, is where the next run begins. */
static void test_past_is_set_again(void **state)
{
    (void)state;
    float x[60], y[60];
    Err err = {0};
    Pair p = pair(decoder);
    OK(session_feed(p.fed, 1, 1, &err));
    decode(&p, 2, 5, 3);
    Tensor t = sample(x, 2, 4, 1), past = sample(y, 2, 6, 9);
    past.shape[1] = 3; /* every other one */
    past.stride[1] = 6;
    for (int i = 0; i < 2; i++) {
        Session *s = i ? p.plain : p.fed;
        set(s, 0, &t);
        set(s, 1, &past);
        run(s);
    }
    same(session_output(p.fed, 1), session_output(p.plain, 1));
    memset(y, 0, sizeof y); /* it was taken */
    Tensor more = sample(x, 2, 1, 3);
    Tensor copy = *session_input(p.fed, 1);
    float held[60];
    Tensor own = tensor_of(DT_F32, 3, copy.shape, held);
    tensor_copy(&own, &copy);
    set(p.fed, 0, &more);
    set(p.plain, 0, &more);
    set(p.plain, 1, &own);
    run(p.fed);
    run(p.plain);
    same(session_output(p.fed, 0), session_output(p.plain, 0));
    OK(session_feed(p.fed, 1, -1, &err)); /* no longer fed: the input is not set */
    assert_false(session_run(p.fed, &err));
    assert_non_null(strstr(err.msg, "'past' is not given"));
    pair_free(&p);
}

static void test_a_failed_run_changes_nothing(void **state)
{
    (void)state;
    static float x[64 * 3 * 8];
    Err err = {0};
    Pair p = pair(decoder);
    OK(session_feed(p.fed, 1, 1, &err));
    decode(&p, 2, 3, 3);
    Tensor wrong = sample(x, 3, 1, 5), right = sample(x, 2, 1, 5);
    set(p.fed, 0, &wrong);
    assert_false(session_run(p.fed, &err)); /* b is 3 and 2 */
    assert_int_equal(session_input(p.fed, 1)->shape[1], 5);
    set(p.fed, 0, &right);
    run(p.fed);
    assert_int_equal(session_output(p.fed, 1)->shape[1], 6);
    session_clear_inputs(p.fed); /* a fed input stays */
    assert_int_equal(session_input(p.fed, 1)->shape[1], 6);
    pair_free(&p);
}

static void test_memory_limit(void **state)
{
    (void)state;
    static float x[64 * 3];
    Err err = {0};
    Pair p = pair(decoder);
    session_free(p.fed);
    p.fed = session_create(p.g, p.fusion, 1, 3000, &err);
    OK(session_feed(p.fed, 1, 1, &err));
    Tensor t = sample(x, 1, 40, 1);
    set(p.fed, 0, &t);
    run(p.fed); /* room for 80 */
    int steps = 0;
    for (t = sample(x, 1, 20, 2); steps < 20 && session_set_input(p.fed, 0, &t, &err) && session_run(p.fed, &err);)
        steps++;
    assert_true(steps > 0 && steps < 20);
    assert_int_equal(err.code, E_LIMIT);
    pair_free(&p);
}

static void test_two_blocks_in_turn(void **state)
{
    (void)state;
    float x[6], h[6] = {0}, v[6] = {0};
    Err err = {0};
    Pair p = pair(state_space);
    for (int i = 0; i < 3; i++) OK(session_feed(p.fed, 1 + i, i == 2, &err)); /* h, g from output 0, v from output 1 */
    Tensor zero = tensor_of(DT_F32, 2, (int64_t[]){2, 3}, h), turned = tensor_of(DT_F32, 2, (int64_t[]){3, 2}, v);
    for (int i = 1; i < 4; i++) set(p.fed, i, i == 3 ? &turned : &zero);
    for (int step = 0; step < 5; step++) {
        uint64_t seed = (uint64_t)step + 1;
        for (int i = 0; i < 6; i++) x[i] = (float)(unit_random(&seed) % 100);
        Tensor t = tensor_of(DT_F32, 2, (int64_t[]){2, 3}, x);
        set(p.fed, 0, &t);
        set(p.plain, 0, &t);
        set(p.plain, 1, &zero);
        set(p.plain, 2, &zero);
        set(p.plain, 3, &turned);
        run(p.fed);
        run(p.plain);
        for (int o = 0; o < 3; o++) same(session_output(p.fed, o), session_output(p.plain, o));
        assert_ptr_equal(session_input(p.fed, 1)->data, session_output(p.fed, 0)->data); /* no copy */
        assert_ptr_equal(session_input(p.fed, 2)->data, session_output(p.fed, 0)->data);
        tensor_copy(&zero, session_output(p.plain, 0));
        tensor_copy(&turned, session_output(p.plain, 1));
    }
    pair_free(&p);
}

static void test_what_does_not_fit(void **state)
{
    (void)state;
    Err err = {0};
    Pair p = pair(state_space);
    assert_false(session_feed(p.fed, 1, 1, &err));
    assert_non_null(strstr(err.msg, "axis 0 of input 'h' is 2 and that of output 'output_1' is 3"));
    assert_false(session_feed(p.fed, 1, 3, &err));
    OK(session_keep(p.fed, 2, &err));
    assert_false(session_feed(p.fed, 2, 0, &err));
    assert_non_null(strstr(err.msg, "'g' is kept"));
    OK(session_feed(p.fed, 1, 0, &err));
    assert_false(session_keep(p.fed, 1, &err));
    assert_non_null(strstr(err.msg, "'h' is fed"));
    pair_free(&p);
    Pair q = pair(decoder);
    assert_false(session_feed(q.fed, 1, 0, &err));
    assert_non_null(strstr(err.msg, "input 'past' has rank 3 and output 'output_0' has rank 2"));
    pair_free(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows_in_place),
        cmocka_unit_test(test_past_is_set_again),
        cmocka_unit_test(test_a_failed_run_changes_nothing),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_two_blocks_in_turn),
        cmocka_unit_test(test_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
