/* qkv extract MODEL: a part of a model as a model of its own, or its weights as a tensor file.
 *
 *     qkv extract bert.pt2 --from add_3,mask --to layer_norm_5 -o block.pt2
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

typedef struct ExtractOptions {
    Common common;
    ModelOptions model;
    WriteOptions write;
    List from, to;
    bool weights, all;
} ExtractOptions;

static void tell(const qkv_model *m)
{
    for (int i = 0; i < qkv_model_input_count(m); i++) note("input %s", qkv_model_input_name(m, i));
    for (int i = 0; i < qkv_model_output_count(m); i++) note("output %s", qkv_model_output_name(m, i));
}

static int cut(const ExtractOptions *o, const qkv_model *m)
{
    qkv_error e;
    Words from, to;
    words_of(&o->from, &from);
    words_of(&o->to, &to);
    qkv_model *part = qkv_model_extract(m, from.name, from.n, to.name, to.n, &e);
    int code = part ? model_write(&o->write, &o->common, part, NULL, NULL) : problem_of(&e);
    if (!code) tell(part);
    qkv_model_free(part);
    words_free(&from);
    words_free(&to);
    return code;
}

static int cmd_extract(const void *options)
{
    const ExtractOptions *o = options;
    qkv_model *m = NULL;
    if (!o->write.output) return problem(QKV_USAGE, "extract needs -o FILE");
    if (o->weights && !is_tensor_file(o->write.output))
        return problem(QKV_USAGE, "option '-o': found '%s', expected a file that ends in .safetensors, .npz or .npy",
                       o->write.output);
    if (o->weights && (o->from.n || o->to.n))
        return problem(QKV_USAGE, "--weights writes those of the whole model and does not go with --from or --to");
    if (!o->weights && !o->from.n && !o->to.n) return problem(QKV_USAGE, "extract needs --from or --to, or --weights");
    if (!o->weights) {
        int code = model_can_write(&o->write, false);
        if (code) return code;
    }
    int code = model_load(&o->model, o->common.arg[0], false, false, &m);
    if (!code) code = o->weights ? write_weights(o->write.output, o->all, m) : cut(o, m);
    qkv_model_free(m);
    return code;
}

#define AT(field) offsetof(ExtractOptions, field)
static const Option own[] = {
    {"from", MANY, AT(from), .arg = "LIST",
     .help = "Values that become the inputs, A,B,C, named as in qkv graph (default: the inputs of the model that are "
             "needed). May be given many times."},
    {"to", MANY, AT(to), .arg = "LIST", .help = "Values that become the outputs (default: those of the model)."},
    {"weights", FLAG, AT(weights),
     .help = "Write the weights of the model, named as in its state dict, instead of a part of it."},
    {"all", FLAG, AT(all), .help = "With --weights: also constants and buffers that are not in the state dict."},
    {"output", TEXT, AT(write.output), .letter = 'o', .arg = "FILE", .writes = true,
     .help = "Output file: FILE.pt2 or FILE.onnx; with --weights FILE.safetensors or FILE.npz. The file is written "
             "completely or not at all."},
    {0},
};

const Command command_extract = {
    .name = "extract",
    .args = "MODEL -o FILE",
    .summary = "Cut a part of a model into its own file, or write its weights",
    .text =
        "Writes what lies between the values of --from and those of --to, which become the inputs and outputs and keep "
        "their names. Sizes stay variable; weights, buffers and conditions on sizes are included where they are "
        "needed. The file is a .pt2, or ONNX when its name ends in .onnx. If a result needs an input that --from does "
        "not list, the error names that input.\n\n"
        "With --weights, the model's parameters and buffers are written as a tensor file, named as in its state dict.",
    .examples = "qkv extract bert.pt2 --to layer_norm_4 -o begin.pt2\tstarting at the inputs\n"
                "qkv extract bert.pt2 --from layer_norm_4,mask --to layer_norm_6 -o block.onnx\tone block, as ONNX\n"
                "qkv extract bert.pt2 --weights -o bert.safetensors\tthe state dict",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(ExtractOptions),
    .options = {{own}, {onnx_options, AT(write)}, {load_options, AT(model)}, {common_options}},
    .run = cmd_extract,
};
