/* What is written can be read: a .pt2 or .onnx that loads is written in every form, after rewriting, as a joint graph,
 * quantized and in bf16, and each file loads again, runs and, where it is the same model, computes the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "onnx_seeds.h"
#include "qkv.h"
#include "qkv_tools.h"

enum { MOST_MEMORY = 16 << 20, MOST_OUTPUTS = 8 };

static void seeds(FuzzAdd *add)
{
    onnx_seeds(add);
    add("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
}

static size_t inside(const char *name, uint8_t *data, size_t size, size_t max)
{
    return strstr(name, ".json") ? json_mutate(data, size, max) : LLVMFuzzerMutate(data, size, max);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    (void)seed;
    if (size > 2 && data[0] == 'P' && data[1] == 'K') return archive_mutate(data, size, max, inside);
    return protobuf_mutate(data, size, max);
}

static void said(qkv_status s, const qkv_error *e)
{
    fuzz_check(s == QKV_OK || (e->code == s && e->message[0]), "a refusal has its code and a message");
}

static void hold(bool holds, const char *form, const char *what, const qkv_error *e)
{
    if (!holds) fprintf(stderr, "%s: %s\n", form, e->message);
    fuzz_check(holds, what);
}

/* A session that has run, on random inputs or those of another; NULL where the model needs more than is given. */
static qkv_session *ran(const qkv_model *m, qkv_session *as)
{
    qkv_error e = {0};
    qkv_session_options options = {.struct_size = sizeof options, .threads = 1, .memory_limit = MOST_MEMORY};
    qkv_session *s = qkv_session_create(m, &options, &e);
    qkv_status st = s ? QKV_OK : e.code;
    if (s && !as) st = qkv_session_random_inputs(s, NULL, NULL, 0, 1, &e);
    for (int i = 0; s && as && st == QKV_OK && i < qkv_model_input_count(m); i++) {
        qkv_tensor t;
        st = qkv_session_input(as, i, &t, &e);
        if (st == QKV_OK) st = qkv_session_set_input(s, qkv_model_input_name(m, i), &t, &e);
    }
    if (st == QKV_OK) st = qkv_session_run(s, &e);
    said(st, &e);
    if (st == QKV_OK) return s;
    qkv_session_free(s);
    return NULL;
}

/* A .pt2 is the same graph, and has the same bits; ONNX has other ops, whose rounding differs, and fewer dtypes. */
static void same(qkv_session *a, qkv_session *b, int n, const char *form)
{
    bool exact = !strcmp(form, "pt2");
    for (int i = 0; i < n && i < MOST_OUTPUTS; i++) {
        qkv_error e = {0};
        qkv_tensor x, y;
        qkv_difference d = {0};
        if (qkv_session_output(a, i, &x, &e) != QKV_OK || qkv_session_output(b, i, &y, &e) != QKV_OK) continue;
        qkv_status st = qkv_compare(&y, &x, 0, 0, &d, &e);
        if (st == QKV_LIMIT) continue;
        hold(st != QKV_USAGE, form, "what was written has the same sizes", &e);
        if (exact) hold(st == QKV_OK, form, "what was written computes the same", &e);
    }
}

/* m as `form`: where the writer says that it is written, it loads, and runs as m did (`first`). */
static void written(const qkv_model *m, const char *form, qkv_session *first)
{
    qkv_error e = {0};
    char path[80];
    snprintf(path, sizeof path, "/dev/shm/qkv-write-%ld.%s", (long)getpid(), form);
    qkv_status st = !strcmp(form, "qkv")    ? qkv_model_pack(m, path, NULL, &e)
                    : !strcmp(form, "onnx") ? qkv_model_save_onnx(m, path, NULL, NULL, &e)
                                            : qkv_model_save(m, path, &e);
    said(st, &e);
    fuzz_check(st == QKV_OK || access(path, F_OK) != 0, "a refusal leaves no file");
    uint8_t *bytes = st == QKV_OK ? fuzz_take_file(path) : NULL;
    if (!bytes) return;
    qkv_model *again = qkv_model_load(FUZZ_PATH, NULL, &e);
    free(bytes);
    hold(again != NULL, form, "what was written loads", &e);
    if (first && qkv_model_input_count(again) == qkv_model_input_count(m) &&
        qkv_model_output_count(again) == qkv_model_output_count(m)) {
        qkv_session *s = ran(again, first);
        if (s) same(first, s, qkv_model_output_count(m), form);
        qkv_session_free(s);
    }
    qkv_model_free(again);
}

/* What was made of a model that runs, or of one that does not. */
static void derived(qkv_model *m, bool runs, const qkv_error *e)
{
    if (!m) {
        said(e->code, e);
        return;
    }
    qkv_session *s = runs ? ran(m, NULL) : NULL;
    written(m, "pt2", s);
    written(m, "onnx", s);
    qkv_session_free(s);
    qkv_model_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qkv_error e = {0};
    if ((size < 2 || data[0] != 'P' || data[1] != 'K') && !onnx_looks_like(data, size)) return 0;
    fuzz_set_file(data, size);
    qkv_model *m = qkv_model_load(FUZZ_PATH, NULL, &e);
    if (!m) return 0;
    qkv_session *s = ran(m, NULL);
    written(m, "pt2", s);
    written(m, "onnx", s);
    if (s) written(m, "qkv", NULL); /* packing runs the model */
    const qkv_joint_options joint = {.struct_size = sizeof joint};
    const qkv_quantize_options dynamic = {.struct_size = sizeof dynamic, .dynamic = 1, .threads = 1};
    derived(qkv_model_rewrite(m, NULL, NULL, &e), s != NULL, &e);
    derived(qkv_model_joint(m, &joint, NULL, &e), s != NULL, &e);
    derived(qkv_model_with_dtype(m, QKV_BF16, NULL, &e), false, &e);
    if (s) derived(qkv_model_quantize(m, &dynamic, NULL, &e), true, &e);
    qkv_session_free(s);
    qkv_model_free(m);
    return 0;
}

const FuzzTarget fuzz_target = {
    .name = "write", .tokens = onnx_tokens, .seeds = seeds, .ending = ".pt2", .memory_ratio = 512};
