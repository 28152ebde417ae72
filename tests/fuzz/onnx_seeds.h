/* ONNX models to begin with: one of everything, and small ones that mean something. */
#ifndef QKV_FUZZ_ONNX_SEEDS_H
#define QKV_FUZZ_ONNX_SEEDS_H
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "../unit/onnx_sample.h"
#include "fuzz.h"

static const char *const onnx_tokens[] = {"x",
                                          "y",
                                          "w",
                                          "n",
                                          "Add",
                                          "MatMul",
                                          "Softmax",
                                          "Reshape",
                                          "Transpose",
                                          "Loop",
                                          "If",
                                          "Scan",
                                          "Attention",
                                          "Concat",
                                          "Gather",
                                          "Slice",
                                          "Constant",
                                          "Expand",
                                          "com.microsoft",
                                          "ai.onnx",
                                          "axis",
                                          "perm",
                                          "to",
                                          "value",
                                          "body",
                                          "then_branch",
                                          "else_branch",
                                          "location",
                                          FUZZ_DATA,
                                          "offset",
                                          "length",
                                          "../w.bin",
                                          "-1",
                                          NULL};

/* The file that onnx_write makes, whole; NULL when it refuses. */
static uint8_t *onnx_written(const OnnxModel *m, size_t *n, Err *err)
{
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/qkv-fuzz-%ld.onnx", (long)getpid());
    *n = 0;
    if (!onnx_write(m, path, &(OnnxWriteOptions){-1}, err)) {
        fuzz_check(access(path, F_OK) != 0, "a refusal leaves no file");
        return NULL;
    }
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) abort();
    size_t size = (size_t)ftell(f);
    uint8_t *bytes = malloc(size + 1);
    rewind(f);
    if (!bytes || fread(bytes, 1, size, f) != size) abort();
    fclose(f);
    unlink(path);
    *n = size;
    return bytes;
}

static void add_model(FuzzAdd *add, const OnnxModel *m)
{
    Err err = {0};
    size_t n;
    uint8_t *bytes = onnx_written(m, &n, &err);
    if (bytes) add(bytes, n);
    free(bytes);
}

typedef struct Seed {
    OnnxNode node[4];
    const char *in[12], *out[4];
    OnnxAttr attr[4];
    OnnxTensor init[2];
    OnnxValueInfo value[3];
    OnnxGraph graph;
    OnnxOpset opset;
    OnnxModel model;
} Seed;

static OnnxValueInfo seed_value(const char *name, int elem, int rank)
{
    static const char *const axes[] = {"b", "n", "d", "e"};
    static OnnxDim room[64];
    static int used;
    OnnxValueInfo v = {
        .name = name,
        .type = {.kind = ONNX_TENSOR, .elem = elem, .has_shape = true, .rank = rank, .dim = &room[used % 60]}};
    used += rank;
    for (int i = 0; i < rank; i++)
        v.type.dim[i] = i + 1 < rank || rank == 1 ? (OnnxDim){.param = axes[i]}
                                                  : (OnnxDim){.known = true, .value = 4, .param = ""};
    return v;
}

/* One node of op over x (b, n, 4), w (4) and what else is named. */
static void add_op(FuzzAdd *add, const char *op, int nin, const OnnxAttr *attr, int nattr, const OnnxTensor *more,
                   int rank)
{
    static float w[16] = {1, 2, 3, 4};
    Seed s = {.in = {"x", "w", "c"}, .out = {"y"}};
    s.node[0] = (OnnxNode){.name = "op",
                           .op = op,
                           .input = s.in,
                           .ninput = nin,
                           .output = s.out,
                           .noutput = 1,
                           .attr = s.attr,
                           .nattr = nattr};
    for (int i = 0; i < nattr; i++) s.attr[i] = attr[i];
    s.init[0] = (OnnxTensor){.name = "w", .type = ONNX_FLOAT, .t = tensor_of(DT_F32, 1, (int64_t[]){4}, w)};
    if (more) s.init[1] = *more;
    s.value[0] = seed_value("x", ONNX_FLOAT, rank);
    s.value[1] = seed_value("y", ONNX_FLOAT, 0);
    s.value[1].type.has_shape = false;
    s.graph = (OnnxGraph){.name = "g",
                          .node = s.node,
                          .nnode = 1,
                          .init = s.init,
                          .ninit = more ? 2 : 1,
                          .input = s.value,
                          .ninput = 1,
                          .output = s.value + 1,
                          .noutput = 1};
    s.opset = (OnnxOpset){.version = 23};
    s.model = (OnnxModel){.ir_version = 11, .opset = &s.opset, .nopset = 1, .graph = &s.graph};
    add_model(add, &s.model);
}

static void onnx_seeds(FuzzAdd *add)
{
    static int64_t perm[] = {0, 2, 1}, shape[] = {0, -1};
    static uint8_t yes = 1;
    Sample *all = malloc(sizeof *all);
    if (!all) abort();
    onnx_sample(all);
    add_model(add, &all->m);
    free(all);
    OnnxAttr transpose = {.name = "perm", .type = ONNX_ATTR_INTS, .ints = perm, .n = 3},
             axis = {.name = "axis", .type = ONNX_ATTR_INT, .i = -1};
    OnnxTensor s = {.name = "w", .type = ONNX_INT64, .t = tensor_of(DT_I64, 1, (int64_t[]){2}, shape)},
               c = {.name = "c", .type = ONNX_BOOL, .t = tensor_of(DT_BOOL, 0, NULL, &yes)};
    add_op(add, "Add", 2, NULL, 0, NULL, 3);
    add_op(add, "Transpose", 1, &transpose, 1, NULL, 3);
    add_op(add, "Softmax", 1, &axis, 1, NULL, 2);
    add_op(add, "LayerNormalization", 2, &axis, 1, NULL, 3);
    s.name = "s";
    Seed r = {.in = {"x", "s"}, .out = {"y"}};
    r.node[0] = (OnnxNode){.op = "Reshape", .input = r.in, .ninput = 2, .output = r.out, .noutput = 1};
    r.init[0] = s;
    r.value[0] = seed_value("x", ONNX_FLOAT, 3);
    r.value[1] = seed_value("y", ONNX_FLOAT, 2);
    r.graph = (OnnxGraph){.name = "g",
                          .node = r.node,
                          .nnode = 1,
                          .init = r.init,
                          .ninit = 1,
                          .input = r.value,
                          .ninput = 1,
                          .output = r.value + 1,
                          .noutput = 1};
    r.opset = (OnnxOpset){.version = 21};
    r.model = (OnnxModel){.ir_version = 10, .opset = &r.opset, .nopset = 1, .graph = &r.graph};
    add_model(add, &r.model);
    /* attention, and a branch around the reshape */
    Seed a = r;
    a.in[1] = a.in[2] = "x";
    a.node[0] = (OnnxNode){.op = "Attention", .input = a.in, .ninput = 3, .output = a.out, .noutput = 1};
    a.value[0] = seed_value("x", ONNX_FLOAT, 4);
    a.value[1] = seed_value("y", ONNX_FLOAT, 4);
    a.opset.version = 23;
    a.graph = (OnnxGraph){
        .name = "g", .node = a.node, .nnode = 1, .input = a.value, .ninput = 1, .output = a.value + 1, .noutput = 1};
    a.model.opset = &a.opset;
    a.model.graph = &a.graph;
    add_model(add, &a.model);
    OnnxGraph body = r.graph;
    body.input = NULL, body.ninput = 0;
    OnnxAttr branches[] = {{.name = "then_branch", .type = ONNX_ATTR_GRAPH, .g = &body, .n = 1},
                           {.name = "else_branch", .type = ONNX_ATTR_GRAPH, .g = &body, .n = 1}};
    OnnxNode branch = {.op = "If",
                       .input = (const char *[]){"c"},
                       .ninput = 1,
                       .output = (const char *[]){"z"},
                       .noutput = 1,
                       .attr = branches,
                       .nattr = 2};
    OnnxValueInfo z = seed_value("z", ONNX_FLOAT, 2);
    OnnxGraph g = {.name = "g",
                   .node = &branch,
                   .nnode = 1,
                   .init = &c,
                   .ninit = 1,
                   .input = r.value,
                   .ninput = 1,
                   .output = &z,
                   .noutput = 1};
    OnnxModel m = {.ir_version = 10, .opset = &r.opset, .nopset = 1, .graph = &g};
    add_model(add, &m);
}
#endif
