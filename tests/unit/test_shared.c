/* Models do not change: what is made from one shares its file and weights, and outlives it; threads need no lock. */
#include "unit.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include "onnx/wire/onnx.h"
#include "qkv_tools.h"

static float weight[3] = {1, -2, 3};
static const float given[3] = {0.5f, 1, -1};
static int64_t shape[] = {3};
static const qkv_tensor x = {QKV_F32, 1, shape, NULL, (void *)(uintptr_t)given};

/* y = s * sigmoid(s) of s = x + w, which a rule makes one node. */
static qkv_model *load(void)
{
    static const char *add_in[] = {"x", "w"}, *s[] = {"s"}, *gate[] = {"g"}, *mul_in[] = {"s", "g"}, *y[] = {"y"};
    Err err = {0};
    qkv_error e = {0};
    OnnxDim dim = {.known = true, .value = 3};
    OnnxTypeProto type = {.kind = ONNX_TENSOR, .elem = ONNX_FLOAT, .has_shape = true, .rank = 1, .dim = &dim};
    OnnxValueInfo in = {.name = "x", .type = type}, out = {.name = "y", .type = type};
    OnnxTensor w = {.name = "w", .type = ONNX_FLOAT, .t = tensor_of(DT_F32, 1, shape, weight)};
    OnnxNode node[] = {{.name = "add", .op = "Add", .input = add_in, .ninput = 2, .output = s, .noutput = 1},
                       {.name = "gate", .op = "Sigmoid", .input = s, .ninput = 1, .output = gate, .noutput = 1},
                       {.name = "mul", .op = "Mul", .input = mul_in, .ninput = 2, .output = y, .noutput = 1}};
    OnnxGraph g = {.name = "main",
                   .node = node,
                   .nnode = 3,
                   .init = &w,
                   .ninit = 1,
                   .input = &in,
                   .ninput = 1,
                   .output = &out,
                   .noutput = 1};
    OnnxOpset opset = {.domain = "", .version = 18};
    OnnxModel m = {.ir_version = 8, .opset = &opset, .nopset = 1, .graph = &g};
    const char *path = unit_path("gated.onnx");
    OK(onnx_write(&m, path, NULL, &err));
    qkv_model *model = qkv_model_load(path, NULL, &e);
    if (!model) STOP("%s", e.message);
    return model;
}

static bool run(const qkv_model *m, float *out)
{
    qkv_error e = {0};
    qkv_tensor y;
    qkv_session *s = qkv_session_create(
        m, &(qkv_session_options){.struct_size = sizeof(qkv_session_options), .threads = 1}, &e);
    bool ok = s && !qkv_session_set_input(s, "x", &x, &e) && !qkv_session_run(s, &e) &&
              !qkv_session_output(s, 0, &y, &e);
    if (ok) memcpy(out, y.data, 3 * sizeof *out);
    qkv_session_free(s);
    return ok;
}

static char *graph_of(const qkv_model *m)
{
    qkv_error e = {0};
    char *text = qkv_model_graph_text(m, &e);
    if (!text) STOP("%s", e.message);
    return text;
}

static qkv_model *with_zeros(const qkv_model *m)
{
    static float zeros[3];
    qkv_error e = {0};
    const char *name = "w";
    const qkv_tensor w = {QKV_F32, 1, shape, NULL, zeros};
    return qkv_model_with_weights(m, &name, &w, 1, &e);
}

static void test_source_stays(void **state)
{
    (void)state;
    qkv_error e = {0};
    qkv_model *m = load(), *rewritten = qkv_model_rewrite(m, NULL, NULL, &e), *zeroed = with_zeros(rewritten);
    float before[3], after[3], other[3];
    char *plain = graph_of(m), *fused = graph_of(rewritten);
    assert_non_null(zeroed);
    assert_null(strstr(plain, "silu"));
    assert_non_null(strstr(fused, "silu"));
    assert_true(run(m, before));
    char *backends = qkv_model_backends(m, NULL, &e), *again = graph_of(m);
    assert_non_null(backends);
    assert_string_equal(again, plain);
    qkv_model_free(m); /* the others keep its file */
    assert_true(run(rewritten, after) && run(zeroed, other));
    for (int i = 0; i < 3; i++) assert_true(before[i] - after[i] < 1e-6f && after[i] - before[i] < 1e-6f);
    assert_true(other[0] != after[0]);
    qkv_model_free(rewritten);
    assert_true(run(zeroed, after));
    assert_memory_equal(after, other, sizeof after);
    qkv_model_free(zeroed);
    qkv_free(plain);
    qkv_free(fused);
    qkv_free(again);
    qkv_free(backends);
}

/* ------------------------------------------------------------------ threads */

enum { ROUNDS = 40 };

typedef struct Runner {
    const qkv_model *model;
    bool same;
} Runner;

static void *run_often(void *user)
{
    Runner *r = user;
    float first[3], y[3];
    r->same = run(r->model, first);
    for (int i = 0; r->same && i < ROUNDS; i++) r->same = run(r->model, y) && !memcmp(first, y, sizeof y);
    return NULL;
}

/* Rewriting, asking and replacing weights while another thread makes sessions of the same model and runs them. */
static void test_threads(void **state)
{
    (void)state;
    qkv_error e = {0};
    qkv_model *m = load();
    Runner r = {m, false};
    pthread_t thread;
    char *before = graph_of(m);
    assert_int_equal(pthread_create(&thread, NULL, run_often, &r), 0);
    for (int i = 0; i < ROUNDS; i++) {
        qkv_model *rewritten = qkv_model_rewrite(m, NULL, NULL, &e), *zeroed = with_zeros(m);
        char *backends = qkv_model_backends(m, NULL, &e);
        assert_true(rewritten && zeroed && backends);
        qkv_model_free(rewritten);
        qkv_model_free(zeroed);
        qkv_free(backends);
    }
    pthread_join(thread, NULL);
    assert_true(r.same);
    char *after = graph_of(m);
    assert_string_equal(after, before);
    qkv_free(before);
    qkv_free(after);
    qkv_model_free(m);
}

/* ------------------------------------------------------------------ fork */

enum { FORKED = 60 };

typedef struct Busy {
    qkv_model *model[FORKED];
    atomic_int begun; /* models of which a session is being made, or was */
} Busy;

static void *begin_sessions(void *user)
{
    Busy *b = user;
    float y[3];
    for (int i = 0; i < FORKED; i++) {
        atomic_store(&b->begun, i + 1);
        run(b->model[i], y);
    }
    return NULL;
}

static void *keep_loading(void *done)
{
    while (!atomic_load((atomic_bool *)done)) qkv_model_free(load());
    return NULL;
}

/* One thread makes the first session of one model after the other, which it does under the model's lock, another loads
 * and writes files; in a child of that moment these threads are gone, and everything works. */
static void test_forks(void **state)
{
    (void)state;
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__ /* a child finds their allocators' locks held */
    skip();
#endif
    Busy b = {.begun = 0};
    atomic_bool done = false;
    pthread_t first, other;
    float want[3], y[3];
    uint64_t rng = 1;
    for (int i = 0; i < FORKED; i++) b.model[i] = load();
    qkv_model *m = load();
    assert_true(run(m, want));
    assert_int_equal(pthread_create(&other, NULL, keep_loading, &done), 0);
    assert_int_equal(pthread_create(&first, NULL, begin_sessions, &b), 0);
    int wrong = 0, n = 0;
    for (int at; (at = atomic_load(&b.begun)) < FORKED || !n; n++) {
        int status = 0;
        usleep((useconds_t)(unit_random(&rng) % 300));
        pid_t child = fork();
        if (!child) {
            alarm(20);
            qkv_model *again = load();
            bool same = run(b.model[at > 0 ? at - 1 : 0], y) && !memcmp(want, y, sizeof y) && run(again, y) &&
                        !memcmp(want, y, sizeof y);
            _exit(!same);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status) wrong++;
    }
    atomic_store(&done, true);
    pthread_join(first, NULL);
    pthread_join(other, NULL);
    if (wrong) STOP("%d of %d children", wrong, n);
    for (int i = 0; i < FORKED; i++) qkv_model_free(b.model[i]);
    qkv_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_source_stays), cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_forks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
