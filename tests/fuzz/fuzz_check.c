/* Checking: every .pt2 and ONNX file ends with a report, and what has no errors and was checked whole also loads. */
#include <jansson.h>
#include <string.h>
#include "onnx_seeds.h"
#include "qkv.h"
#include "qkv_tools.h"

static size_t inside(const char *name, uint8_t *data, size_t size, size_t max)
{
    return strstr(name, ".json") ? json_mutate(data, size, max) : LLVMFuzzerMutate(data, size, max);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    (void)seed;
    return size > 1 && data[0] == 'P' && data[1] == 'K' ? archive_mutate(data, size, max, inside)
                                                        : protobuf_mutate(data, size, max);
}

static bool has(const json_t *report, const char *id)
{
    size_t i;
    json_t *f;
    json_array_foreach(json_object_get(report, "findings"), i,
                       f) if (!strcmp(json_string_value(json_object_get(f, "id")), id)) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qkv_error e = {0};
    char *text = NULL;
    qkv_check_options options = {.struct_size = sizeof options,
                                 .targets = QKV_TARGET_ORT | QKV_TARGET_OPENVINO | QKV_TARGET_TENSORRT,
                                 .security = 1,
                                 .full = 1};
    fuzz_set_file(data, size);
    qkv_status st = qkv_check(FUZZ_PATH, &options, &text, &e);
    fuzz_check(st == QKV_OK || (e.code == st && e.message[0]), "what is wrong has a code and a message");
    fuzz_check(text != NULL, "there is a report");
    json_t *report = json_loads(text, 0, NULL);
    fuzz_check(report != NULL, "the report is JSON");
    fuzz_check((st == QKV_OK) == (json_integer_value(json_object_get(report, "errors")) == 0),
               "the status counts errors");
    if (st == QKV_OK && !has(report, "Q199")) {
        qkv_model *m = qkv_model_load(FUZZ_PATH, NULL, &e);
        if (!m) fprintf(stderr, "%s\n%s\n", text, e.message);
        fuzz_check(m != NULL, "what has no errors loads");
        qkv_model_free(m);
    }
    json_decref(report);
    qkv_free(text);
    return 0;
}

const FuzzTarget fuzz_target = {
    .name = "check", .tokens = onnx_tokens, .seeds = onnx_seeds, .ending = ".pt2", .memory_ratio = 64};
