/* The engine of qkv serve: runs that requests share, budgets, priorities, limits, cancelling, loading, stopping. */
#include "unit.h"
#include <math.h>
#include <pthread.h>
#include <unistd.h>
#include "serve/engine.h"
#include "serve/oip.h"
#include "tensor/tolerance.h"

enum { MOST = 24, WIDTH = 8 };

typedef struct Ask { /* one request of eager.pt2 */
    Call call;
    Item item;
    Tensor in[2];
    float x[16 * WIDTH], out[16 * WIDTH];
    uint8_t mask[16];
    int ended; /* its place among those that ended; 0: not yet */
} Ask;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int ended, entered;
    bool closed; /* takes wait until it opens */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

static Metrics metrics;

static void set_gate(bool closed)
{
    pthread_mutex_lock(&gate.lock);
    gate.closed = closed;
    gate.entered = 0;
    pthread_cond_broadcast(&gate.change);
    pthread_mutex_unlock(&gate.lock);
}

static bool take(void *user, Item *item, const Tensor *out, Err *err)
{
    Ask *a = user;
    (void)item, (void)err;
    pthread_mutex_lock(&gate.lock);
    gate.entered++;
    pthread_cond_broadcast(&gate.change);
    while (gate.closed) pthread_cond_wait(&gate.change, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    Tensor to = tensor_of(DT_F32, out[0].rank, out[0].shape, a->out);
    tensor_copy(&to, &out[0]);
    return true;
}

static void done(Call *c)
{
    Ask *a = c->owner;
    pthread_mutex_lock(&gate.lock);
    a->ended = ++gate.ended;
    pthread_cond_broadcast(&gate.change);
    pthread_mutex_unlock(&gate.lock);
}

static void wait_for(const Ask *a)
{
    pthread_mutex_lock(&gate.lock);
    while (!a->ended) pthread_cond_wait(&gate.change, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void wait_entered(void)
{
    pthread_mutex_lock(&gate.lock);
    while (!gate.entered) pthread_cond_wait(&gate.change, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

/* A request of `tokens` tokens, all of them real. */
static void ask(Ask *a, int tokens, int seed)
{
    *a = (Ask){.call = {.n = 1, .level = LEVEL_DEFAULT, .timeout = 60, .take = take, .done = done}};
    for (int i = 0; i < tokens * WIDTH; i++) a->x[i] = (float)((i * 37 + seed * 11) % 19 - 9) / 8;
    memset(a->mask, 1, (size_t)tokens);
    a->in[0] = tensor_of(DT_F32, 3, (int64_t[]){1, tokens, WIDTH}, a->x);
    a->in[1] = tensor_of(DT_BOOL, 2, (int64_t[]){1, tokens}, a->mask);
    a->item.in = a->in;
    a->call.item = &a->item;
    a->call.user = a->call.owner = a;
}

static Submitted submit(Engine *e, Ask *a, Err *err)
{
    int retry = 0;
    a->call.model = engine_model(e, 0);
    Submitted s = engine_submit(e, 0, &a->call, &retry, err);
    if (s != SUBMIT_OK) served_drop(a->call.model);
    assert_int_equal(s == SUBMIT_FULL, retry > 0);
    return s;
}

static Engine *engine_of(const Source *s, EngineOptions o)
{
    Err err = {0};
    if (!o.workers) o.workers = 1;
    if (!o.max_tokens) o.max_tokens = 1024;
    if (!o.max_queue) o.max_queue = 100;
    gate.ended = 0;
    set_gate(false);
    metrics_close(&metrics);
    OK(metrics_open(&metrics, &s->name, 1, &err));
    Engine *e = engine_open(&o, s, 1, &metrics, &err);
    if (!e) STOP("%s", err.msg);
    return e;
}

static const Source eager = {.name = "eager", .path = MODELS "/eager.pt2", .threads = 1};

static double difference(const Ask *a, const Ask *b, int tokens)
{
    double peak = 0, most = 0;
    for (int i = 0; i < tokens * WIDTH; i++) {
        peak = fmax(peak, fabs((double)a->out[i]));
        most = fmax(most, fabs((double)a->out[i] - (double)b->out[i]));
    }
    return most / peak;
}

/* ------------------------------------------------------------------ */

static void test_lengths_share_a_run(void **state)
{
    static const int tokens[] = {3, 9, 2, 16, 5};
    static Ask apart[5], together[5];
    Err err = {0};
    (void)state;
    Source alone = eager;
    alone.no_batch = true;
    Engine *e = engine_of(&alone, (EngineOptions){0});
    for (int i = 0; i < 5; i++) {
        ask(&apart[i], tokens[i], i);
        assert_int_equal(submit(e, &apart[i], &err), SUBMIT_OK);
    }
    engine_stop(e);
    assert_int_equal(metrics.model[0].rows.n, 5);
    engine_close(e);

    e = engine_of(&eager, (EngineOptions){.max_delay = 0.2});
    Model *m = engine_model(e, 0);
    assert_true(m->together && m->ragged);
    assert_int_equal(m->padding, 0);
    served_drop(m);
    for (int i = 0; i < 5; i++) {
        ask(&together[i], tokens[i], i);
        assert_int_equal(submit(e, &together[i], &err), SUBMIT_OK);
    }
    for (int i = 0; i < 5; i++) wait_for(&together[i]);
    engine_close(e);
    assert_int_equal(metrics.model[0].rows.n, 1);
    assert_int_equal(metrics.model[0].real, 3 + 9 + 2 + 16 + 5);
    assert_int_equal(metrics.model[0].padded, 5 * 16);
    for (int i = 0; i < 5; i++)
        assert_true(difference(&apart[i], &together[i], tokens[i]) <= tolerance_of(TOLERANCE_PADDING, DT_F32));
}

static void test_a_run_has_a_budget(void **state)
{
    static Ask a[8];
    Err err = {0};
    (void)state;
    Engine *e = engine_of(&eager, (EngineOptions){.max_tokens = 20, .max_delay = 0.05});
    set_gate(true); /* the first run is held, and the others wait */
    for (int i = 0; i < 8; i++) {
        ask(&a[i], 8, i);
        assert_int_equal(submit(e, &a[i], &err), SUBMIT_OK);
        if (!i) wait_entered();
    }
    set_gate(false);
    engine_close(e);
    assert_int_equal(metrics.model[0].real, 64);
    assert_int_equal(metrics.model[0].rows.n, 5); /* 1, then 7 of them by twos */
}

static void test_priorities(void **state)
{
    static Ask a[4];
    static const int level[] = {1, 2, 1, 0};
    Err err = {0};
    (void)state;
    Engine *e = engine_of(&eager, (EngineOptions){.max_tokens = 4});
    set_gate(true);
    for (int i = 0; i < 4; i++) {
        ask(&a[i], 4, i);
        a[i].call.level = level[i];
        assert_int_equal(submit(e, &a[i], &err), SUBMIT_OK);
        if (!i) wait_entered();
    }
    set_gate(false);
    engine_close(e);
    assert_int_equal(a[0].ended, 1);
    assert_int_equal(a[3].ended, 2);
    assert_int_equal(a[2].ended, 3);
    assert_int_equal(a[1].ended, 4);
}

/* One that has waited for half of its time goes before a fresh one of the level above it. */
static void test_waiting_raises(void **state)
{
    static Ask a[3];
    Err err = {0};
    (void)state;
    Engine *e = engine_of(&eager, (EngineOptions){.max_tokens = 4});
    set_gate(true);
    for (int i = 0; i < 3; i++) {
        ask(&a[i], 4, i);
        a[i].call.level = i == 1 ? 2 : 1;
        a[i].call.timeout = i == 1 ? 0.05 : 60;
        if (i == 2) usleep(40000);
        assert_int_equal(submit(e, &a[i], &err), SUBMIT_OK);
        if (!i) wait_entered();
    }
    set_gate(false);
    engine_close(e);
    assert_int_equal(a[1].ended, 2);
}

static void test_full_expired_cancelled(void **state)
{
    static Ask a[5];
    Err err = {0};
    (void)state;
    Engine *e = engine_of(&eager, (EngineOptions){.max_queue = 3});
    set_gate(true);
    for (int i = 0; i < 5; i++) {
        ask(&a[i], 4, i);
        if (i == 1) a[i].call.timeout = 0.01;
        assert_int_equal(submit(e, &a[i], &err), i < 4 ? SUBMIT_OK : SUBMIT_FULL);
        if (!i) wait_entered();
    }
    assert_non_null(strstr(err.msg, "the queue of model 'eager' is full (3 wait)"));
    usleep(20000);
    engine_tick(e);
    wait_for(&a[1]);
    assert_int_equal(a[1].call.state, CALL_EXPIRED);
    engine_cancel(e, &a[2].call);
    wait_for(&a[2]);
    assert_int_equal(a[2].call.state, CALL_CANCELLED);
    engine_cancel(e, &a[0].call); /* runs: it ends as cancelled when its run does */
    assert_int_equal(a[0].ended, 0);
    assert_int_equal(engine_waiting(e, 0), 1);
    set_gate(false);
    engine_close(e);
    assert_int_equal(a[0].call.state, CALL_CANCELLED);
    assert_int_equal(a[3].call.state, CALL_OK);
    assert_int_equal(metrics.model[0].refused, 1);
    assert_int_equal(metrics.model[0].expired, 1);
    assert_int_equal(metrics.model[0].cancelled, 2);
}

static void test_stopping_answers_all(void **state)
{
    static Ask a[MOST];
    Err err = {0};
    (void)state;
    Engine *e = engine_of(&eager, (EngineOptions){.workers = 2, .max_tokens = 8, .max_delay = 30});
    for (int i = 0; i < MOST; i++) {
        ask(&a[i], 2 + i % 3, i);
        assert_int_equal(submit(e, &a[i], &err), SUBMIT_OK);
    }
    engine_stop(e);
    for (int i = 0; i < MOST; i++) assert_true(a[i].ended > 0 && a[i].call.state == CALL_OK);
    Ask late;
    ask(&late, 2, 0);
    assert_int_equal(submit(e, &late, &err), SUBMIT_STOPPED);
    engine_close(e);
}

/* What the model refuses to run together with another request fails alone. */
static void test_only_the_culprit_fails(void **state)
{
    static const Source words = {.name = "words", .path = MODELS "/words.pt2", .threads = 1};
    static Ask a[3];
    static int64_t ids[3][4] = {{1, 2, 3, 4}, {1, 2, 99, 4}, {5, 6, 7, 8}}, ones[4] = {1, 1, 1, 1}, zeros[4];
    static Tensor in[3][3];
    Err err = {0};
    (void)state;
    Engine *e = engine_of(&words, (EngineOptions){.max_delay = 0.1});
    for (int i = 0; i < 3; i++) {
        ask(&a[i], 4, i);
        void *data[] = {ids[i], ones, zeros};
        for (int k = 0; k < 3; k++) in[i][k] = tensor_of(DT_I64, 2, (int64_t[]){1, 4}, data[k]);
        a[i].item.in = in[i];
        assert_int_equal(submit(e, &a[i], &err), SUBMIT_OK);
    }
    for (int i = 0; i < 3; i++) wait_for(&a[i]);
    engine_close(e);
    assert_int_equal(metrics.model[0].rows.n, 1);
    assert_int_equal(a[0].call.state, CALL_OK);
    assert_int_equal(a[1].call.state, CALL_FAILED);
    assert_int_equal(a[2].call.state, CALL_OK);
    assert_int_equal(a[1].call.err.code, E_USAGE);
    assert_non_null(strstr(a[1].call.err.msg, "99"));
}

static void copy_file(const char *from, const char *to)
{
    static char bytes[1 << 17];
    char fresh[600];
    snprintf(fresh, sizeof fresh, "%s.fresh", to);
    FILE *f = fopen(from, "rb"), *g = fopen(fresh, "wb");
    assert_true(f && g);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    assert_int_equal(fwrite(bytes, 1, n, g), n);
    fclose(f);
    fclose(g);
    assert_int_equal(rename(fresh, to), 0);
}

static void test_loading_again(void **state)
{
    static Ask a[3];
    static char path[512];
    Err err = {0};
    (void)state;
    snprintf(path, sizeof path, "%s", unit_path("reload.pt2"));
    copy_file(MODELS "/eager.pt2", path);
    Source s = eager;
    s.path = path;
    Engine *e = engine_of(&s, (EngineOptions){.max_tokens = 4});
    set_gate(true);
    for (int i = 0; i < 2; i++) { /* one runs, one waits */
        ask(&a[i], 4, i);
        assert_int_equal(submit(e, &a[i], &err), SUBMIT_OK);
        if (!i) wait_entered();
    }
    copy_file(MODELS "/affine.pt2", path);
    OK(engine_load(e, 0, &err));
    ask(&a[2], 4, 2);
    assert_int_equal(submit(e, &a[2], &err), SUBMIT_BAD); /* the new model has one input of other sizes */
    assert_non_null(strstr(err.msg, "input 'x' is f32[1, 4, 8], expected f32 with 2 axes"));
    unlink(path);
    assert_false(engine_load(e, 0, &err));
    assert_non_null(strstr(err.msg, "model 'eager'"));
    Model *m = engine_model(e, 0);
    assert_int_equal(m->nin, 1); /* the one before stayed */
    served_drop(m);
    set_gate(false);
    engine_close(e);
    assert_true(a[0].call.state == CALL_OK && a[1].call.state == CALL_OK);
    assert_int_equal(metrics.model[0].loads, 2);
    assert_int_equal(metrics.model[0].failed_loads, 1);
}

/* The ends of each integer dtype are among its values. */
static void test_integers_fit(void **state)
{
    (void)state;
    assert_true(dtype_holds(DT_I64, INT64_MAX) && dtype_holds(DT_I64, INT64_MIN));
    assert_true(dtype_holds(DT_I32, INT32_MAX) && !dtype_holds(DT_I32, INT32_MAX + INT64_C(1)));
    assert_true(dtype_holds(DT_U64, INT64_MAX) && !dtype_holds(DT_U64, -1));
    assert_true(dtype_holds(DT_U8, 255) && !dtype_holds(DT_U8, 256) && !dtype_holds(DT_U8, -1));
    assert_true(dtype_holds(DT_I8, -128) && !dtype_holds(DT_I8, 128));
}

static void test_sizes_are_refused(void **state)
{
    static Ask a;
    Err err = {0};
    (void)state;
    Engine *e = engine_of(&eager, (EngineOptions){0});
    ask(&a, 4, 0);
    a.in[1].shape[1] = 3;
    assert_int_equal(submit(e, &a, &err), SUBMIT_BAD);
    assert_string_equal(err.msg, "input 'x' has 4 tokens, 'mask' has 3");
    a.in[1].shape[1] = 4;
    a.in[1].shape[0] = 2;
    assert_int_equal(submit(e, &a, &err), SUBMIT_BAD);
    assert_string_equal(err.msg, "input 'mask' has 2 rows, 'x' has 1");
    a.in[1].shape[0] = 1;
    a.in[0].shape[2] = 7;
    assert_int_equal(submit(e, &a, &err), SUBMIT_BAD);
    assert_string_equal(err.msg, "input 'x' has 7 along axis 2, expected 8");
    ask(&a, 4, 0);
    a.in[0].shape[1] = a.in[1].shape[1] = 17;
    assert_int_equal(submit(e, &a, &err), SUBMIT_BAD);
    assert_string_equal(err.msg, "input 'mask' has 17 tokens, the model takes 2 to 16");
    engine_close(e);
    metrics_close(&metrics);
}

/* What is wrong with a request's tensors, told by input and place. */
static void test_requests_are_refused(void **state)
{
    static const Model m = {.nin = 4,
                            .nout = 3,
                            .in = {{.name = "x", .dtype = DT_F32, .rank = 1, .dim = {-1}},
                                   {.name = "i", .dtype = DT_U8, .rank = 1, .dim = {-1}},
                                   {.name = "on", .dtype = DT_BOOL, .rank = 1, .dim = {-1}},
                                   {.name = "odd", .dtype = DT_C64, .rank = 1, .dim = {-1}}},
                            .out = {{.name = "y", .dtype = DT_F32, .rank = 1, .dim = {-1}},
                                    {.name = "half", .dtype = DT_F16, .rank = 1, .dim = {-1}},
                                    {.name = "z", .dtype = DT_C64, .rank = 1, .dim = {-1}}},
                            .role = {-1, -1, -1, -1}};
#define INPUT(name, type, rest)                                                                                        \
    "{\"inputs\": [{\"name\": \"" name "\", \"datatype\": \"" type "\", \"shape\": [1], " rest "}]}"
#define OUTPUTS(list) "{\"inputs\": [], \"outputs\": [" list "]}"
    static const struct {
        const char *json, *says;
    } cases[] = {
        {INPUT("x", "FP32", "\"data\": [1e3]"), "input 'i' is missing"},
        {INPUT("x", "FP32", "\"data\": [true]"), "input 'x': value 0 is true, expected a number"},
        {INPUT("x", "FP64", "\"data\": [1]"), "input 'x' has the datatype 'FP64', expected FP32"},
        {INPUT("i", "UINT8", "\"data\": [256]"), "input 'i': value 0 is 256, which UINT8 does not hold"},
        {INPUT("i", "UINT8", "\"data\": [[1.5]]"), "input 'i': value 0 is number, expected an integer"},
        {INPUT("on", "BOOL", "\"data\": [1]"), "input 'on': value 0 is integer, expected true or false"},
        {INPUT("i", "UINT8", "\"data\": [\"a]\", 1]"), "input 'i': value 0 is string, expected an integer"},
        {INPUT("i", "UINT8", "\"data\": [[1, {\"a\": 1, \"a\": 2}]]"),
         "input 'i': value 1 is object, expected an integer"},
        {INPUT("i", "UINT8", "\"data\": [1, [2, []]]"), "input 'i': data has 2 values, its shape 1"},
        {INPUT("i", "UINT8", "\"data\": [ ]"), "input 'i': data has 0 values, its shape 1"},
        {INPUT("i", "UINT8", "\"data\": {\"data\": [1]}"), "input 'i': field 'data': found object, expected an array"},
        {INPUT("i", "UINT8", "\"data\": null"), "input 'i': field 'data': found null, expected an array"},
        {INPUT("odd", "BYTES", "\"data\": [1]"), "input 'odd' is c64, which the protocol has no name for"},
        {INPUT("x", "FP32", "\"parameters\": {\"shared_memory_region\": \"a\"}"),
         "input 'x': shared memory is not supported"},
        {INPUT("x", "FP32", "\"parameters\": {\"binary_data_size\": 4}"),
         "input 'x': 1 bytes of binary data are left in the body, its shape takes 4"},
        {INPUT("on", "BOOL", "\"parameters\": {\"binary_data_size\": 1}"), "input 'x' is missing"},
    };
    Model one = m, none = m;
    (void)state;
    one.nout = 1;
    none.nin = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Err err = {0};
        size_t n = strlen(cases[i].json);
        char body[256];
        snprintf(body, sizeof body, "%s!", cases[i].json); /* a byte after the JSON */
        assert_null(infer_read(&one, body, n + 1, n, &err));
        assert_string_equal(err.msg, cases[i].says);
    }
    static const struct {
        const char *json, *says;
    } asked[] = {
        {OUTPUTS("{\"name\": \"y\"}, {\"name\": \"y\"}"), "output 'y' is asked for twice"},
        {OUTPUTS("{\"name\": \"y\", \"parameters\": {\"classification\": 1}}"),
         "output 'y': classification and shared memory are not supported"},
        {OUTPUTS("{\"name\": \"half\"}"), "output 'half' is FP16: ask for it as binary data"},
        {OUTPUTS("{\"name\": \"z\"}"), "output 'z' is c64, which the protocol has no name for"},
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        Err err = {0};
        assert_null(infer_read(&none, asked[i].json, strlen(asked[i].json), INFER_JSON, &err));
        assert_string_equal(err.msg, asked[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths_share_a_run),
        cmocka_unit_test(test_a_run_has_a_budget),
        cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_waiting_raises),
        cmocka_unit_test(test_full_expired_cancelled),
        cmocka_unit_test(test_stopping_answers_all),
        cmocka_unit_test(test_only_the_culprit_fails),
        cmocka_unit_test(test_loading_again),
        cmocka_unit_test(test_integers_fit),
        cmocka_unit_test(test_sizes_are_refused),
        cmocka_unit_test(test_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
