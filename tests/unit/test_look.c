/* qkv_model_graph_json and qkv_session_memory_json, on the digits model. */
#include "unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "qkv.h"
#include "qkv_tools.h"

static qkv_error e;

static qkv_model *opened(const char *path)
{
    qkv_model *m = qkv_model_load(path, NULL, &e);
    if (!m) STOP("%s", e.message);
    return m;
}

static int times(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) n++;
    return n;
}

static void test_graph(void **state)
{
    (void)state;
    qkv_model *m = opened(DIGITS), *r = qkv_model_rewrite(m, NULL, NULL, &e);
    assert_non_null(r);
    char *before = qkv_model_graph_json(m, "import", &e), *after = qkv_model_graph_json(r, "import", &e),
         *run = qkv_model_graph_json(m, NULL, &e), *described = qkv_model_describe(m, &e);
    assert_non_null(before);
    assert_non_null(after);
    assert_non_null(run);
    assert_int_equal(times(before, "\"op\": "), 135);
    assert_non_null(strstr(described, "\"nodes\": 135"));
    assert_int_equal(times(after, "\"op\": "), 95);
    assert_true(times(run, "\"op\": ") <= 95);
    assert_int_equal(times(before, "\"query\": "), 4);
    assert_non_null(strstr(before, "\"path\": \"encoder.layers.0.norm1.weight\""));
    assert_null(qkv_model_graph_json(m, "nothing", &e));
    assert_int_equal(e.code, QKV_USAGE);
    qkv_free(before);
    qkv_free(after);
    qkv_free(run);
    qkv_free(described);
    qkv_model_free(m); /* r keeps what it needs of the file */
    after = qkv_model_graph_json(r, "import", &e);
    assert_non_null(after);
    qkv_free(after);
    qkv_model_free(r);
}

/* The held blocks at the peak add up to what the peak's step says is alive. */
static void test_memory(void **state)
{
    (void)state;
    qkv_model *m = opened(DIGITS);
    qkv_session *s = qkv_session_create(m, NULL, &e);
    assert_null(qkv_session_memory_json(s, &e));
    assert_int_equal(e.code, QKV_USAGE);
    const char *names[] = {"batch"};
    const int64_t sizes[] = {8};
    assert_int_equal(qkv_session_random_inputs(s, names, sizes, 1, 0, &e), QKV_OK);
    assert_int_equal(qkv_session_run(s, &e), QKV_OK);
    char *json = qkv_session_memory_json(s, &e);
    assert_non_null(json);
    const char *at = strstr(json, "\"peak\": ");
    assert_non_null(at);
    int peak = atoi(at + 8), from, to;
    long long held = 0, bytes, alive = -1;
    for (const char *b = strstr(at, "\"held\""); (b = strstr(b, "\"bytes\": ")); b++) {
        assert_int_equal(sscanf(b, "\"bytes\": %lld, \"from\": %d, \"to\": %d", &bytes, &from, &to), 3);
        assert_true(from <= peak && peak <= to);
        held += bytes;
    }
    at = json;
    for (int i = 0; i <= peak; i++) at = strstr(at + 1, "\"alive_bytes\": ");
    assert_int_equal(sscanf(at, "\"alive_bytes\": %lld", &alive), 1);
    assert_true(held == alive);
    qkv_free(json);
    qkv_session_free(s);
    qkv_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_graph), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
