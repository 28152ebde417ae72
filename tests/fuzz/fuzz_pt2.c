/* The whole of loading a .pt2, one run of what loads with random inputs, saving (what is written loads again),
 * and cutting parts out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fuzz.h"
#include "qkv.h"
#include "qkv_tools.h"

static const char *const tokens[] = {"s0",
                                     "s1",
                                     "u0",
                                     "x",
                                     "Symbol('s0', positive=True, integer=True)",
                                     "Integer(2)",
                                     "14*s0",
                                     "Max(s0, 2)",
                                     "FloorDiv(s0, Integer(0))",
                                     "as_int",
                                     "as_ints",
                                     "as_tensor",
                                     "as_tensors",
                                     "as_expr",
                                     "as_none",
                                     "as_bool",
                                     "as_float",
                                     "as_string",
                                     "as_sym_int",
                                     "as_scalar_type",
                                     "torch.ops.aten.view.default",
                                     "torch.ops.aten.expand.default",
                                     "torch.ops.aten.index.Tensor",
                                     "torch.ops.aten.add_.Tensor",
                                     "torch.ops.aten.slice.Tensor",
                                     "torch.ops.aten.as_strided.default",
                                     "torch.ops.aten.select.int",
                                     "torch.ops.aten.cat.default",
                                     "torch.ops.aten.unfold.default",
                                     "torch.ops.aten.sym_size.int",
                                     "torch.ops.aten.copy_.default",
                                     "dim",
                                     "size",
                                     "weight_0",
                                     "L['x'].size()[0] == 2",
                                     "-1",
                                     "9223372036854775807",
                                     "null",
                                     NULL};

/* Archives come from the corpus alone. */
static void seeds(FuzzAdd *add) { add("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22); }

static size_t inside(const char *name, uint8_t *data, size_t size, size_t max)
{
    return strstr(name, ".json") ? json_mutate(data, size, max) : LLVMFuzzerMutate(data, size, max);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    (void)seed;
    return archive_mutate(data, size, max, inside);
}

static void said(qkv_status s, const qkv_error *e)
{
    fuzz_check(s == QKV_OK || (e->code == s && e->message[0]), "a refusal has its code and a message");
}

/* Every byte of every output is there. */
static void look(qkv_session *s, const qkv_model *m)
{
    for (int i = 0; i < qkv_model_output_count(m); i++) {
        qkv_error e = {0};
        qkv_tensor t;
        qkv_difference d;
        qkv_status st = qkv_session_output(s, i, &t, &e);
        said(st, &e);
        if (st == QKV_OK) fuzz_check(qkv_compare(&t, &t, 0, 0, &d, &e) == QKV_OK, "an output equals itself");
    }
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
    for (int k = 0; k < 2 && st == QKV_OK; k++) { /* the second time with buffers written by the first */
        st = qkv_session_run(s, &e);
        said(st, &e);
        if (st == QKV_OK) look(s, m);
    }
    qkv_session_free(s);
}

static void save(const qkv_model *m)
{
    qkv_error e = {0};
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/qkv-fuzz-%ld.pt2", (long)getpid());
    qkv_status st = qkv_model_save(m, path, &e);
    said(st, &e);
    fuzz_check(st == QKV_OK || access(path, F_OK) != 0, "a refusal leaves no file");
    uint8_t *bytes = st == QKV_OK ? fuzz_take_file(path) : NULL;
    if (!bytes) return;
    qkv_model *again = qkv_model_load(FUZZ_PATH, NULL, &e);
    free(bytes);
    if (!again) fprintf(stderr, "%s\n", e.message);
    fuzz_check(again != NULL, "what was saved loads");
    qkv_model_free(again);
}

/* The k-th of the values that the text defines, in `name`; false when there are fewer. */
static bool value_at(const char *text, size_t k, char *name, size_t cap)
{
    for (const char *s = text; (s = strchr(s, '%')); s++) {
        size_t n = strcspn(s + 1, ":, )]\n");
        if (s[1 + n] != ':' || k--) continue;
        if (n >= cap) return false;
        memcpy(name, s + 1, n);
        name[n] = 0;
        return true;
    }
    return false;
}

/* The parts before and after a value, and between it and another. */
static void cut(const qkv_model *m, const char *text, size_t size)
{
    char a[300], b[300];
    size_t n = 0;
    while (value_at(text, n, a, sizeof a)) n++;
    if (!n || !value_at(text, size * 31 % n, a, sizeof a) || !value_at(text, size * 17 % n, b, sizeof b)) return;
    const char *one = a, *other = b;
    for (int i = 0; i < 3; i++) {
        qkv_error e = {0};
        qkv_model *part = qkv_model_extract(m, &one, i > 0, &other, i != 1, &e);
        if (!part) {
            said(e.code, &e);
            fuzz_check(e.code != QKV_OK && e.code != QKV_UNREADABLE, "a part that cannot be cut says why");
            continue;
        }
        char *again = qkv_model_graph_text(part, &e);
        fuzz_check(again != NULL, "a part is described");
        qkv_free(again);
        run(part);
        qkv_model_free(part);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    qkv_error e = {0};
    fuzz_set_file(data, size);
    qkv_model *m = qkv_model_load(FUZZ_PATH, NULL, &e);
    if (!m) {
        fuzz_check(e.code != QKV_OK && e.message[0], "a refusal has a code and a message");
        return 0;
    }
    char *text = qkv_model_describe(m, &e), *graph = qkv_model_graph_text(m, &e);
    fuzz_check(text && graph, "what loads is described");
    run(m);
    save(m);
    cut(m, graph, size);
    qkv_free(text);
    qkv_free(graph);
    qkv_model_free(m);
    return 0;
}

const FuzzTarget fuzz_target = {.name = "pt2", .tokens = tokens, .seeds = seeds, .ending = ".pt2", .memory_ratio = 64};
