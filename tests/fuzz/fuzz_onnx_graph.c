/* The whole of loading an .onnx, and one run of what loads with random inputs. */
#include <string.h>
#include "onnx_seeds.h"
#include "qkv.h"
#include "qkv_tools.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    (void)seed;
    return protobuf_mutate(data, size, max);
}

static void said(qkv_status s, const qkv_error *e)
{
    fuzz_check(s == QKV_OK || (e->code == s && e->message[0]), "a refusal has its code and a message");
}

static void run(const qkv_model *m)
{
    qkv_error e = {0};
    qkv_session_options options = {.struct_size = sizeof options, .threads = 1, .memory_limit = (size_t)16 << 20};
    qkv_session *s = qkv_session_create(m, &options, &e);
    if (!s) {
        said(e.code, &e);
        return;
    }
    qkv_status st = qkv_session_random_inputs(s, NULL, NULL, 0, 1, &e);
    said(st, &e);
    if (st == QKV_OK) {
        st = qkv_session_run(s, &e);
        said(st, &e);
    }
    for (int i = 0; st == QKV_OK && i < qkv_model_output_count(m); i++) {
        qkv_tensor t;
        qkv_difference d;
        int64_t n = 1;
        fuzz_check(qkv_session_output(s, i, &t, &e) == QKV_OK, "an output of a run is there");
        for (int k = 0; k < t.rank && n < 1 << 22; k++) n *= t.shape[k] > 1 << 22 ? 1 << 22 : t.shape[k];
        if (n < 1 << 22)
            fuzz_check(qkv_compare(&t, &t, 0, 0, &d, &e) == QKV_OK,
                       "an output equals itself"); /* a view may be larger than any memory */
    }
    qkv_session_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qkv_error e = {0};
    if (!onnx_looks_like(data, size)) return 0;
    fuzz_set_file(data, size);
    qkv_model *m = qkv_model_load(FUZZ_PATH, NULL, &e);
    if (!m) {
        fuzz_check(e.code != QKV_OK && e.message[0], "a refusal has a code and a message");
        return 0;
    }
    char *text = qkv_model_describe(m, &e), *graph = qkv_model_graph_text(m, &e);
    fuzz_check(text && graph, "what loads is described");
    qkv_free(text);
    qkv_free(graph);
    run(m);
    qkv_model_free(m);
    return 0;
}

const FuzzTarget fuzz_target = {
    .name = "onnx_graph", .tokens = onnx_tokens, .seeds = onnx_seeds, .ending = ".onnx", .memory_ratio = 64};
