/* ONNX files as records: what opens has every byte of every tensor and string there, and what is written of it opens
 * again with the same bytes when written once more. */
#include <string.h>
#include "onnx_seeds.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    (void)seed;
    return protobuf_mutate(data, size, max);
}

/* Sums what the records point to, so that the address sanitizer sees each byte read. */
static uint64_t read_bytes(const void *p, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((const uint8_t *)p)[i];
    return sum;
}

static uint64_t read_tensor(const OnnxTensor *t)
{
    uint64_t sum = read_bytes(t->name, strlen(t->name) + 1);
    for (int i = 0; i < t->nstring; i++) sum += strlen(t->string[i]);
    if (t->t.dtype != DT_NONE) {
        fuzz_check(tensor_contiguous(&t->t) && (uintptr_t)t->t.data % dtype_size(t->t.dtype) == 0,
                   "a tensor is contiguous and aligned");
        sum += read_bytes(t->t.data, tensor_bytes(&t->t));
    }
    return sum;
}

static uint64_t read_graph(const OnnxGraph *g)
{
    uint64_t sum = 0;
    for (int i = 0; i < g->ninit; i++) sum += read_tensor(&g->init[i]);
    for (int i = 0; i < g->nsparse; i++) sum += read_tensor(&g->sparse[i].values) + read_tensor(&g->sparse[i].indices);
    for (int i = 0; i < g->nnode; i++)
        for (int k = 0; k < g->node[i].nattr; k++) {
            const OnnxAttr *a = &g->node[i].attr[k];
            sum += read_bytes(a->s, a->slen + 1);
            for (int j = 0; j < a->n && a->t; j++) sum += read_tensor(&a->t[j]);
            for (int j = 0; j < a->n && a->g; j++) sum += read_graph(&a->g[j]);
        }
    return sum;
}

static void write_again(const OnnxModel *m)
{
    Err err = {0};
    size_t n, k;
    uint8_t *bytes = onnx_written(m, &n, &err);
    if (!bytes) {
        fuzz_said(&err);
        fuzz_check(err.code == E_UNSUPPORTED || err.code == E_LIMIT, "what opens is written, but for maps");
        return;
    }
    OnnxFile *f = onnx_open_bytes(bytes, n, NULL, &err);
    if (!f) fprintf(stderr, "%s\n", err.msg);
    fuzz_check(f != NULL, "what was written opens, without data files");
    uint8_t *again = onnx_written(&f->model, &k, &err);
    fuzz_check(again && n == k && !memcmp(bytes, again, n), "the same records, the same bytes");
    onnx_close(f);
    free(bytes);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile uint64_t sum;
    Err err = {0};
    fuzz_set_file(data, size);
    OnnxFile *f = onnx_open(FUZZ_PATH, &err);
    sum += onnx_looks_like(data, size);
    if (!f) {
        fuzz_said(&err);
        return 0;
    }
    sum += read_graph(f->model.graph);
    write_again(&f->model);
    onnx_close(f);
    return 0;
}

const FuzzTarget fuzz_target = {
    .name = "onnx", .tokens = onnx_tokens, .seeds = onnx_seeds, .ending = ".onnx", .memory_ratio = 12};
