/* A model with one of everything that an ONNX file can hold, for tests of reading, writing and fuzzing. It means
 * nothing.
 *
 *     Sample *s = malloc(sizeof *s);
 *     onnx_sample(s);
 *     onnx_write(&s->m, path, NULL, &err);
 */
#ifndef QKV_TESTS_ONNX_SAMPLE_H
#define QKV_TESTS_ONNX_SAMPLE_H
#include <string.h>
#include "onnx/wire/onnx.h"

typedef struct Sample {
    OnnxModel m;
    OnnxGraph g, body;
    OnnxNode node[2], inner;
    OnnxAttr attr[16];
    OnnxTensor init[6];
    OnnxSparse sparse;
    OnnxValueInfo info[5];
    OnnxDim dim[3];
    OnnxTypeProto element, seq;
    OnnxFunction f;
    OnnxOpset opset[2];
    OnnxPair pair;
    float weights[1024];
    int8_t small[5000];
    int64_t index[2];
} Sample;

static const char *sample_names[] = {"x", "", "y", "caf\xc3\xa9"};

static void onnx_sample(Sample *s)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < 1024; i++) s->weights[i] = (float)i - 0.5f;
    for (int i = 0; i < 5000; i++) s->small[i] = (int8_t)(i % 16 - 8);
    s->index[1] = 4;
    s->pair = (OnnxPair){"key", "value"};
    s->init[0] = (OnnxTensor){.name = "big",
                              .type = ONNX_FLOAT,
                              .t = tensor_of(DT_F32, 2, (int64_t[]){2, 512}, s->weights),
                              .metadata = &s->pair,
                              .nmetadata = 1};
    s->init[1] = (OnnxTensor){.name = "tiny", .type = ONNX_FLOAT, .t = tensor_of(DT_F32, 0, NULL, s->weights)};
    s->init[2] = (OnnxTensor){.name = "four", .type = ONNX_INT4, .t = tensor_of(DT_I4, 1, (int64_t[]){4999}, s->small)};
    s->init[3] = (OnnxTensor){.name = "text",
                              .type = ONNX_STRING,
                              .t = {.rank = 1, .shape = {4}, .stride = {1}},
                              .string = sample_names,
                              .nstring = 4};
    s->init[4] = (OnnxTensor){
        .name = "none", .type = ONNX_INT64, .t = tensor_of(DT_I64, 2, (int64_t[]){0, 3}, s->index)};
    s->init[5] = (OnnxTensor){
        .name = "half", .type = ONNX_BFLOAT16, .t = tensor_of(DT_BF16, 1, (int64_t[]){1000}, s->weights)};
    s->sparse = (OnnxSparse){
        .values = {.name = "sp", .type = ONNX_FLOAT, .t = tensor_of(DT_F32, 1, (int64_t[]){2}, s->weights)},
        .indices = {.name = "", .type = ONNX_INT64, .t = tensor_of(DT_I64, 1, (int64_t[]){2}, s->index)},
        .rank = 2,
        .dim = {2, 3}};
    s->element = (OnnxTypeProto){.kind = ONNX_TENSOR, .elem = ONNX_FLOAT, .has_shape = true};
    s->seq = (OnnxTypeProto){.kind = ONNX_SEQUENCE, .inner = &s->element};
    s->info[0] = (OnnxValueInfo){
        .name = "x", .type = {.kind = ONNX_TENSOR, .elem = ONNX_FLOAT, .has_shape = true, .rank = 3, .dim = s->dim}};
    s->dim[0] = (OnnxDim){.param = "batch"};
    s->dim[1] = (OnnxDim){.known = true, .value = -1, .param = ""};
    s->dim[2] = (OnnxDim){.param = ""};
    s->info[1] = (OnnxValueInfo){
        .name = "y", .type = {.kind = ONNX_OPTIONAL, .inner = &s->seq}, .metadata = &s->pair, .nmetadata = 1};
    s->info[2] = (OnnxValueInfo){.name = "z", .type = {.kind = ONNX_SPARSE, .elem = ONNX_INT64}};
    s->body = (OnnxGraph){.name = "body", .node = &s->inner, .nnode = 1, .init = &s->init[1], .ninit = 1};
    s->inner = (OnnxNode){
        .name = "n", .op = "Identity", .input = sample_names, .ninput = 1, .output = sample_names + 2, .noutput = 1};
    static float floats[] = {1, -0.0f};
    static int64_t ints[] = {-1, INT64_MAX};
    const OnnxAttr attr[] = {{.name = "f", .type = ONNX_ATTR_FLOAT, .f = -0.0f},
                             {.name = "i", .type = ONNX_ATTR_INT, .i = INT64_MIN},
                             {.name = "s", .type = ONNX_ATTR_STRING, .s = "a\0b", .slen = 3},
                             {.name = "t", .type = ONNX_ATTR_TENSOR, .t = &s->init[0], .n = 1},
                             {.name = "g", .type = ONNX_ATTR_GRAPH, .g = &s->body, .n = 1},
                             {.name = "fs", .type = ONNX_ATTR_FLOATS, .floats = floats, .n = 2},
                             {.name = "is", .type = ONNX_ATTR_INTS, .ints = ints, .n = 2},
                             {.name = "no", .type = ONNX_ATTR_INTS},
                             {.name = "ss", .type = ONNX_ATTR_STRINGS, .strings = sample_names, .n = 4},
                             {.name = "ts", .type = ONNX_ATTR_TENSORS, .t = s->init, .n = 2},
                             {.name = "gs", .type = ONNX_ATTR_GRAPHS, .g = &s->body, .n = 1},
                             {.name = "sp", .type = ONNX_ATTR_SPARSE_TENSOR, .sparse = &s->sparse, .n = 1},
                             {.name = "sps", .type = ONNX_ATTR_SPARSE_TENSORS, .sparse = &s->sparse, .n = 1},
                             {.name = "tp", .type = ONNX_ATTR_TYPE_PROTO, .tp = &s->seq, .n = 1},
                             {.name = "tps", .type = ONNX_ATTR_TYPE_PROTOS, .tp = &s->seq, .n = 1},
                             {.name = "ref", .type = ONNX_ATTR_GRAPH, .ref = "outer"}};
    memcpy(s->attr, attr, sizeof attr);
    s->node[0] = (OnnxNode){.name = "first",
                            .op = "If",
                            .input = sample_names,
                            .ninput = 2,
                            .output = sample_names + 2,
                            .noutput = 2,
                            .attr = s->attr,
                            .nattr = 16,
                            .metadata = &s->pair,
                            .nmetadata = 1};
    s->node[1] = (OnnxNode){.op = "Local", .domain = "here", .overload = "o", .input = sample_names, .ninput = 1};
    s->f = (OnnxFunction){.name = "Local",
                          .domain = "here",
                          .overload = "o",
                          .input = sample_names,
                          .ninput = 1,
                          .output = sample_names + 2,
                          .noutput = 1,
                          .attr = sample_names,
                          .nattr = 1,
                          .attr_default = s->attr,
                          .nattr_default = 2,
                          .node = &s->inner,
                          .nnode = 1,
                          .opset = s->opset,
                          .nopset = 1,
                          .info = s->info,
                          .ninfo = 1};
    s->opset[0] = (OnnxOpset){.domain = "", .version = 23};
    s->opset[1] = (OnnxOpset){.domain = "here", .version = 1};
    s->g = (OnnxGraph){.name = "main",
                       .doc = "text",
                       .node = s->node,
                       .nnode = 2,
                       .init = s->init,
                       .ninit = 6,
                       .sparse = &s->sparse,
                       .nsparse = 1,
                       .input = s->info,
                       .ninput = 1,
                       .output = s->info + 1,
                       .noutput = 1,
                       .info = s->info + 2,
                       .ninfo = 1,
                       .metadata = &s->pair,
                       .nmetadata = 1};
    s->m = (OnnxModel){.ir_version = 11,
                       .model_version = 3,
                       .producer = "qkv",
                       .producer_version = "1",
                       .domain = "d",
                       .doc = "about",
                       .opset = s->opset,
                       .nopset = 2,
                       .graph = &s->g,
                       .function = &s->f,
                       .nfunction = 1,
                       .metadata = &s->pair,
                       .nmetadata = 1};
}
#endif
