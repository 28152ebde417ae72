/* qkv joint MODEL --loss OUTPUT -o FILE: a model with the gradients of its loss.
 *
 *     qkv joint classifier.pt2 --loss output_0 -o joint.pt2
 */
#include <stdio.h>
#include <string.h>
#include "cli.h"

typedef struct JointOptions {
    Common common;
    ModelOptions model;
    WriteOptions write;
    DeviceOptions device;
    const char *loss, *decompose, *recompute;
    List grad, dim;
    bool inputs_only;
} JointOptions;

/* "2.1 MiB of results, 0.31 GFLOP, 12.0 MiB read and written" */
static const char *cost_text(const json_t *c, char *buf, size_t size)
{
    char memory[32], moved[32];
    snprintf(buf, size, "%s of results, %.3g GFLOP, %s read and written",
             bytes_text(json_number_value(json_object_get(c, "memory")), memory, sizeof memory),
             json_number_value(json_object_get(c, "flops")) / 1e9,
             bytes_text(json_number_value(json_object_get(c, "bytes")), moved, sizeof moved));
    return buf;
}

static void tell_recompute(const json_t *r)
{
    const json_t *with = json_object_get(r, "with"), *without = json_object_get(r, "without");
    char text[120], sizes[400] = "";
    const char *name;
    json_t *n;
    size_t used = 0;
    json_object_foreach(json_object_get(r, "sizes"), name, n) if (used < sizeof sizes) used += (size_t)snprintf(
        sizes + used, sizeof sizes - used, "%s%s = %lld", used ? ", " : " at ", name, (long long)json_integer_value(n));
    if (!json_is_object(with) || !json_is_object(without)) {
        show("recompute %s%s: what it takes depends on data\n", text_at(r, "how"), sizes);
        return;
    }
    show("recompute %s%s: %s\n", text_at(r, "how"), sizes, cost_text(with, text, sizeof text));
    printf("        without%s: %s\n", sizes, cost_text(without, text, sizeof text));
}

static void tell_kernels(const json_t *report)
{
    size_t i;
    json_t *x;
    json_array_foreach(json_object_get(report, "attentions"), i, x)
    {
        show("attention %s: %s", text_at(x, "node"), text_at(x, "backend"));
        if (*text_at(x, "assumes")) show(" where %s", text_at(x, "assumes"));
        if (*text_at(x, "rule"))
            show("; %s asks: %s (%s)", text_at(x, "better"), text_at(x, "what"), text_at(x, "rule"));
        printf("\n");
    }
}

static void tell(const JointOptions *o, json_t *report)
{
    size_t i, n = json_array_size(json_object_get(report, "gradients"));
    json_t *x;
    if (o->common.json) {
        json_object_set_new(report, "model", json_text(o->common.arg[0]));
        json_object_set_new(report, "output", json_text(o->write.output));
        json_print(json_incref(report));
        return;
    }
    json_array_foreach(json_object_get(report, "without"), i, x)
        note("parameter '%s' does not reach the loss: it has no gradient", json_string_value(x));
    show("loss %s: %zu gradient%s, %d nodes (the model has %d)\n", text_at(report, "loss"), n, n == 1 ? "" : "s",
         (int)json_integer_value(json_object_get(report, "nodes_after")),
         (int)json_integer_value(json_object_get(report, "nodes_before")));
    tell_kernels(report);
    if (json_object_get(report, "recompute")) tell_recompute(json_object_get(report, "recompute"));
    json_array_foreach(json_object_get(report, "gradients"), i, x)
        detail("%s %s", text_at(x, "output"), text_at(x, "dtype"));
}

static int cmd_joint(const void *options)
{
    const JointOptions *o = options;
    qkv_model *m = NULL, *joint = NULL;
    qkv_error e;
    char *text = NULL;
    Words inputs;
    Sizes dims = {0};
    json_t *report = NULL;
    if (!o->write.output) return problem(QKV_USAGE, "joint needs -o FILE");
    int code = model_can_write(&o->write, false);
    if (!code) code = model_load(&o->model, o->common.arg[0], false, false, &m);
    if (code) return code;
    words_of(&o->grad, &inputs);
    code = sizes_of_dims(&o->dim, &dims);
    qkv_joint_options call = {.struct_size = sizeof call,
                              .loss = o->loss,
                              .inputs = inputs.name,
                              .n_inputs = inputs.n,
                              .inputs_only = o->inputs_only,
                              .dim_names = (const char *const *)dims.name,
                              .dims = dims.value,
                              .n_dims = dims.n,
                              .device = o->device.device};
    if (!code && o->device.cudnn && !o->device.device)
        code = problem(QKV_USAGE, "--cudnn needs --device: which GPU the file is for");
    if (!code) code = cudnn_of(o->device.cudnn, &call.cudnn);
    if (!code) code = CHOICE("--decompose", o->decompose, decompose, &call.decompose);
    if (!code) code = CHOICE("--recompute", o->recompute, recompute, &call.recompute);
    if (!code) {
        joint = qkv_model_joint(m, &call, &text, &e);
        report = text ? json_loads(text, 0, NULL) : NULL;
        code = joint ? model_write(&o->write, &o->common, joint, NULL, report) : problem_of(&e);
    }
    if (!code && report) tell(o, report);
    json_decref(report);
    qkv_free(text);
    words_free(&inputs);
    sizes_free(&dims);
    qkv_model_free(joint);
    qkv_model_free(m);
    return code;
}

#define AT(field) offsetof(JointOptions, field)
static const Option own[] = {
    {"loss", TEXT, AT(loss), .arg = "OUTPUT",
     .help = "Output to differentiate, which must be a single number (default: the only output)."},
    {"grad", MANY, AT(grad), .arg = "LIST",
     .help = "Also compute the gradients of these inputs, A,B,C; '*' means all floating-point inputs. Inputs that "
             "required a gradient when the model was exported are always included. May be given many times."},
    {"inputs-only", FLAG, AT(inputs_only), .help = "Do not compute gradients of parameters."},
    {"decompose", TEXT, AT(decompose), .arg = "HOW",
     .help = "none (default): attention stays one op, and its backward pass recomputes the probabilities. math: it "
             "becomes products and a softmax, whose result the backward pass reads, which takes more memory and less "
             "time. core: as math, with every other op in core ATen ops; an op without such a form is an error."},
    {"recompute", TEXT, AT(recompute), .arg = "HOW",
     .help = "What the backward pass recomputes instead of keeping in memory; results do not change. none (default): "
             "nothing. cheap: norms, activations, softmax and similar ops whose operands are kept anyway. blocks: "
             "everything between a few cuts, like torch.utils.checkpoint. Prints memory and work with and without."},
    {"dim", MANY, AT(dim), .letter = 'D', .arg = "NAME=N",
     .help = "Set a size for which --recompute computes memory and --device chooses kernels. " DIM_NAME
             " Other sizes are those of the example in the "
             "file."},
    {"output", TEXT, AT(write.output), .letter = 'o', .arg = "FILE", .writes = true,
     .help = "Output file: FILE.pt2 or FILE.onnx. The file is written completely or not at all."},
    {0},
};

const Command command_joint = {
    .name = "joint",
    .args = "MODEL --loss OUTPUT -o FILE",
    .summary = "Write a model with the gradients of its loss: forward and backward in one graph",
    .text =
        "Differentiates the output that --loss names, a single number, with respect to every parameter that requires "
        "a gradient, and writes forward and backward pass as one model: the model's outputs, then grad.NAME for each "
        "parameter in the order of the state dict, then those of inputs. The file is a .pt2 whose signature says which "
        "gradient belongs to which parameter, and which torch.export.load reads; or ONNX when its name ends in .onnx. "
        "qkv run computes loss and gradients.\n\n"
        "Only what lies between the loss and a requested gradient is differentiated. An op without a gradient is an "
        "error (exit code 4) that names the op and its path to the loss.",
    .examples = "qkv joint classifier.pt2 --loss output_0 -o joint.pt2\tgradients of all parameters\n"
                "qkv joint bert.pt2 --device cuda-sm90 -o joint.pt2\tattention as PyTorch's ops for that GPU\n"
                "qkv joint classifier.pt2 --loss output_0 --grad x -o joint.pt2\tof the input x as well\n"
                "qkv run joint.pt2 -i batch.npz -o step.npz\tloss and gradients",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(JointOptions),
    .options = {{own},
                {device_options, AT(device)},
                {onnx_options, AT(write)},
                {load_options, AT(model)},
                {json_option},
                {common_options}},
    .run = cmd_joint,
};
