/* qkv convert MODEL -o FILE: a model in another format, ONNX for a runtime, or .pt2; a tensor file as another one.
 *
 *     qkv convert bert.pt2 -o bert.onnx --target ort --opset 18
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli.h"

typedef struct ConvertOptions {
    Common common;
    ModelOptions model;
    WriteOptions write;
    const char *weights, *dtype;
    bool rewrite;
} ConvertOptions;

bool profile_of_target(const char *target, qkv_onnx_profile *out)
{
    char name[32];
    if (qkv_onnx_profile_from_name(target, out)) return true;
    for (int i = 0; qkv_quantize_target(i); i++) {
        if (strcmp(qkv_quantize_target(i), target)) continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(target, "-"), target);
        if (!qkv_onnx_profile_from_name(name, out)) *out = QKV_ONNX_ORT;
        return true;
    }
    return false;
}

static int target_of(const WriteOptions *w, qkv_onnx_profile *out)
{
    enum { MOST = 16 };
    const char *names[MOST];
    int n = 0;
    *out = QKV_ONNX_ORT;
    if (!w->target || profile_of_target(w->target, out)) return 0;
    while (n < MOST && (names[n] = qkv_onnx_profile_name((qkv_onnx_profile)n))) n++;
    const char *close = nearest(w->target, names, n);
    return problem(QKV_USAGE, "option '--target': found '%s', expected ort, spec, openvino or tensorrt%s%s%s",
                   w->target, close ? "; did you mean '" : "", close ? close : "", close ? "'?" : "");
}

static void tell(const json_t *report)
{
    size_t i;
    json_t *x;
    json_array_foreach(json_object_get(report, "warnings"), i, x)
        warning("node '%s': %s", text_at(x, "node"), text_at(x, "reason"));
    json_array_foreach(json_object_get(report, "notes"), i, x) note("%s", json_string_value(x));
    json_array_foreach(json_object_get(report, "dropped"), i, x) detail("not in the file: %s", json_string_value(x));
    if (json_array_size(json_object_get(report, "missing")) > 4) /* the message may be cut */
        json_array_foreach(json_object_get(report, "missing"), i, x)
            note("'%s' (%s): %s", text_at(x, "node"), text_at(x, "op"), text_at(x, "reason"));
}

/* *source: what *m was, where the file is certified to compute that. */
static int rewritten(const ConvertOptions *o, qkv_model **m, qkv_model **source)
{
    qkv_error e;
    qkv_rewrite_options call = {.struct_size = sizeof call, .unrounded = 1};
    if (!o->write.certify) return o->rewrite ? replace_model(m, qkv_model_rewrite(*m, NULL, NULL, &e), &e) : 0;
    *source = *m;
    if (o->rewrite) *m = qkv_model_rewrite(*source, &call, NULL, &e);
    return *m ? 0 : problem_of(&e);
}

/* "linear 36, embedding 2" */
static void list_ops(const json_t *list, char *buf, size_t size)
{
    size_t i, at = 0;
    json_t *x;
    snprintf(buf, size, "nothing");
    json_array_foreach(list, i, x)
    {
        const char *op = text_at(x, "op"), *dot = strchr(op, '.'), *name = dot ? dot + 1 : op;
        if (at >= size) return;
        at += (size_t)snprintf(buf + at, size - at, "%s%.*s %d", i ? ", " : "", (int)strcspn(name, "."), name,
                               (int)json_integer_value(json_object_get(x, "nodes")));
    }
}

/* --dtype: what became narrow, and what did not. */
static int retyped(const ConvertOptions *o, qkv_model **m)
{
    qkv_error e;
    char *text = NULL, done[1024], left[1024], before[32], after[32];
    qkv_dtype t = o->dtype ? qkv_dtype_from_name(o->dtype) : QKV_NONE;
    if (!o->dtype) return 0;
    if (t != QKV_F16 && t != QKV_BF16 && t != QKV_F32)
        return problem(QKV_USAGE, "option '--dtype': found '%s', expected f16, bf16 or f32", o->dtype);
    int code = replace_model(m, qkv_model_with_dtype(*m, t, &text, &e), &e);
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    if (report) {
        list_ops(json_object_get(report, "converted"), done, sizeof done);
        list_ops(json_object_get(report, "stays_f32"), left, sizeof left);
        note("%s: %s; weights %s, before %s", qkv_dtype_name(t), done,
             bytes_text((double)json_integer_value(json_object_get(report, "weight_bytes")), after, sizeof after),
             bytes_text((double)json_integer_value(json_object_get(report, "weight_bytes_before")), before,
                        sizeof before));
        if (t != QKV_F32) note("stays f32: inputs, outputs, %s", left);
    }
    json_decref(report);
    qkv_free(text);
    return code;
}

/* The command that builds an engine: "trtexec --onnx=m.onnx --minShapes=ids:1x1 --optShapes=..."; NULL without
 * profiles. The caller's to free. */
static char *trtexec_line(const json_t *t, const char *path)
{
    static const char *const key[] = {"min", "opt", "max"};
    size_t i, k, size = 256 + strlen(path), at;
    json_t *input, *n;
    if (!t || json_array_size(json_object_get(t, "missing"))) return NULL;
    json_array_foreach(json_object_get(t, "profiles"), i, input)
        size += 3 * (strlen(text_at(input, "input")) + 24 * json_array_size(json_object_get(input, "min")) + 8);
    char *line = must(malloc(size));
    const bool typed = json_is_true(json_object_get(t, "strongly_typed")),
               integers = json_is_true(json_object_get(t, "integers"));
    at = (size_t)snprintf(line, size, "trtexec --onnx=%s%s", path,
                          typed ? " --stronglyTyped" : integers ? " --int8 --fp16" : "");
    for (int e = 0; e < 3 && json_array_size(json_object_get(t, "profiles")); e++) {
        at += (size_t)snprintf(line + at, size - at, " --%sShapes=", key[e]);
        json_array_foreach(json_object_get(t, "profiles"), i, input)
        {
            at += (size_t)snprintf(line + at, size - at, "%s%s:", i ? "," : "", text_at(input, "input"));
            json_array_foreach(json_object_get(input, key[e]), k, n)
                at += (size_t)snprintf(line + at, size - at, "%s%lld", k ? "x" : "", (long long)json_integer_value(n));
        }
    }
    return line;
}

/* Adds the line to the report, too. */
static void tell_tensorrt(const WriteOptions *w, const Common *c, json_t *report)
{
    size_t i;
    json_t *size, *t = json_object_get(report, "tensorrt");
    char *line = trtexec_line(t, w->output);
    json_array_foreach(json_object_get(t, "missing"), i, size)
        note("no trtexec line: size '%s' has no upper bound; declare one when exporting (Dim(..., max=N))",
             json_string_value(size));
    if (t) json_object_set_new(t, "trtexec", json_text(line));
    if (line && !c->json) show("%s\n", line);
    free(line);
}

static int write_onnx(const WriteOptions *w, const Common *c, const qkv_model *m, const qkv_model *source,
                      qkv_onnx_profile profile, json_t *into)
{
    qkv_error e;
    char *text = NULL, *certificate = NULL;
    qkv_onnx_options options = {.struct_size = sizeof options,
                                .opset = (int)w->opset,
                                .profile = profile,
                                .external_data = w->external,
                                .source = source,
                                .certificate = &certificate};
    qkv_status status = qkv_model_save_onnx(m, w->output, &options, &text, &e);
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    size_t warnings = json_array_size(json_object_get(report, "warnings"));
    int code = status == QKV_OK ? 0 : problem_of(&e);
    json_t *claims = certificate ? certificate_write(w->certify, certificate, &code) : NULL;
    if (report) tell(report);
    if (!code && w->strict && warnings)
        code = problem(QKV_MISMATCH, "%zu warning%s with --strict", warnings, warnings == 1 ? "" : "s");
    if (report && status == QKV_OK) tell_tensorrt(w, c, report);
    if (report && c->json) {
        json_object_set_new(report, "model", json_text(c->arg[0]));
        json_object_set_new(report, "output", status == QKV_OK ? json_text(w->output) : json_null());
        if (claims) json_object_set_new(report, "certificate", certificate_summary(claims));
        json_object_set_new(report, "error", status == QKV_OK ? json_null() : json_text(e.message));
        if (into) json_object_set(into, "onnx", report);
        else json_print(json_incref(report));
    } else if (report && status == QKV_OK) {
        const json_t *a = json_object_get(report, "attentions");
        printf(
            "opset %d, target %s: %d nodes, %d weights and constants, %d attention%s (%d as one op)\n",
            (int)json_integer_value(json_object_get(report, "opset")), text_at(report, "profile"),
            (int)json_integer_value(json_object_get(report, "nodes")),
            (int)json_integer_value(json_object_get(report, "weights")),
            (int)(json_integer_value(json_object_get(a, "op")) + json_integer_value(json_object_get(a, "decomposed"))),
            json_integer_value(json_object_get(a, "op")) + json_integer_value(json_object_get(a, "decomposed")) == 1
                ? ""
                : "s",
            (int)json_integer_value(json_object_get(a, "op")));
        if (claims) certificate_print(w->certify, claims);
    }
    json_decref(claims);
    json_decref(report);
    qkv_free(text);
    return code;
}

int folder_is_there(const char *path)
{
    struct stat st;
    const char *end = strrchr(path, '/');
    if (!end || end == path) return 0;
    char *folder = must(strndup(path, (size_t)(end - path)));
    const bool there = !stat(folder, &st);
    free(folder);
    return there ? 0 : problem(QKV_UNREADABLE, "cannot write '%s': %s", path, strerror(errno));
}

int model_can_write(const WriteOptions *w, bool packs)
{
    qkv_onnx_profile profile;
    int code = target_of(w, &profile);
    if (code) return code;
    bool onnx = ends_in(w->output, ".onnx");
    if (!onnx && !ends_in(w->output, ".pt2") && !(packs && ends_in(w->output, ".qkv")))
        return problem(QKV_USAGE, "option '-o': found '%s', expected a file that ends in .onnx%s", w->output,
                       packs ? ", .pt2 or .qkv" : " or .pt2");
    if (!onnx && (w->target || w->opset || w->external))
        return problem(QKV_USAGE, "--target, --opset and --external-data are for ONNX");
    return folder_is_there(w->output);
}

static int write_pt2(const WriteOptions *w, const qkv_model *m, const qkv_model *source)
{
    qkv_error e;
    int code = 0;
    if (!source) return qkv_model_save(m, w->output, &e) == QKV_OK ? 0 : problem_of(&e);
    json_t *claims = save_certified(w->output, w->certify, m, source, NULL, &code);
    if (claims) certificate_print(w->certify, claims);
    json_decref(claims);
    return code;
}

int model_write(const WriteOptions *w, const Common *c, const qkv_model *m, const qkv_model *source, json_t *into)
{
    qkv_onnx_profile profile;
    int code = target_of(w, &profile);
    if (code) return code;
    return ends_in(w->output, ".onnx")  ? write_onnx(w, c, m, source, profile, into)
           : ends_in(w->output, ".qkv") ? model_pack(w->output, c, m, into)
                                        : write_pt2(w, m, source);
}

static int cmd_convert(const void *options)
{
    const ConvertOptions *o = options;
    qkv_model *m = NULL, *source = NULL;
    if (!o->write.output) return problem(QKV_USAGE, "convert needs -o FILE.onnx or -o FILE.pt2");
    if (is_tensor_file(o->write.output)) return convert_tensors(o->common.arg[0], o->write.output);
    int code = model_can_write(&o->write, false);
    if (!code && o->write.certify && (o->weights || o->dtype))
        code = problem(QKV_USAGE, "--certify says that the file computes what MODEL does: without --weights-from and "
                                  "--dtype");
    if (!code) code = model_load(&o->model, o->common.arg[0], false, false, &m);
    if (!code && o->weights) code = give_weights(&m, o->weights);
    if (!code) code = rewritten(o, &m, &source);
    if (!code) code = retyped(o, &m);
    if (!code) code = model_write(&o->write, &o->common, m, source, NULL);
    if (source != m) qkv_model_free(source);
    qkv_model_free(m);
    return code;
}

#define AT(field) offsetof(ConvertOptions, field)
static const Option own[] = {
    {"output", TEXT, AT(write.output), .letter = 'o', .arg = "FILE", .writes = true,
     .help = "Output file: FILE.onnx or FILE.pt2, or for a tensor file FILE.safetensors, FILE.npz or FILE.npy. The "
             "file "
             "is written completely or not at all."},
    {"weights-from", TEXT, AT(weights), .arg = "FILE",
     .help = "Replace the model's weights by those of a tensor file, such as qkv train saves, by their names in the "
             "state dict."},
    {"weights", TEXT, AT(weights), .arg = "FILE"},
    {"rewrite", FLAG, AT(rewrite),
     .help = "First turn every spelling of attention and normalisation into one op, as qkv rewrite does."},
    {"dtype", TEXT, AT(dtype), .arg = "f16|bf16|f32",
     .help =
         "Convert weights and computation. f16, bf16: matrix products, convolutions, attention and embedding tables; "
         "norms, sums, activations, inputs and outputs stay f32, and a note names the ops that do. f32: all of a "
         "half-precision model."},
    {"certify", TEXT, AT(write.certify), .arg = "FILE.json", .writes = true,
     .help = "Write a certificate that the file, as it is read again, computes what MODEL does, over the reals and for "
             "all sizes in range: steps that the program qkv-certify replays. It is in the file, too (ONNX: in its "
             "metadata). Constants are then written as the ops that compute them, not folded."},
    {"strict", FLAG, AT(write.strict),
     .help = "Exit with code 1 on a warning about the target; the file is written nevertheless."},
    {0},
};

const Command command_convert = {
    .name = "convert",
    .args = "MODEL -o FILE",
    .summary = "Write a model in another format: ONNX, or .pt2",
    .text =
        "Writes ONNX when FILE ends in .onnx, else a .pt2 that torch.export.load reads. A tensor file (.safetensors, "
        ".npz, .npy) is converted to another one. Inputs keep their names, outputs are output_0, output_1, ..., "
        "weights have their names in the state dict, and variable sizes stay variable.\n\n"
        "--target says which runtime an ONNX file is for: ort (ONNX Runtime), openvino, tensorrt, or spec (the "
        "standard; from opset 23 on with the op Attention). If some ops have no ONNX equivalent, all of them are "
        "listed and the exit code is 4. With tensorrt, whatever keeps TensorRT from fusing an attention is a warning "
        "(--strict makes it exit code 1), and the trtexec line with the least, usual and largest sizes is printed; "
        "--json has them as a list.",
    .examples = "qkv convert bert.pt2 -o bert.onnx\tfor ONNX Runtime\n"
                "qkv convert vit.pt2 -o vit.onnx --target tensorrt --rewrite --dtype f16\thalf precision\n"
                "qkv convert vit.pt2 -o vit.onnx --target tensorrt --strict --rewrite\tattention in the form that "
                "TensorRT fuses\n"
                "qkv convert bert.pt2 -o bert.onnx --target spec --opset 23\twith the op Attention",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(ConvertOptions),
    .options = {{own}, {onnx_options, AT(write)}, {load_options, AT(model)}, {json_option}, {common_options}},
    .run = cmd_convert,
};
