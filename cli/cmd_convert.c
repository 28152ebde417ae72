/* qkv convert MODEL -o FILE: a model in another format, ONNX for a profile's runtime, or .pt2; a tensor file as another one.
 *
 *     qkv convert bert.pt2 -o bert.onnx --profile ort --opset 18
 */
#include <stdio.h>
#include "cli.h"

static int profile_of(const Options *o, qkv_onnx_profile *out)
{
    enum { MOST = 16 };
    const char *names[MOST];
    int n = 0;
    *out = QKV_ONNX_ORT;
    if (!o->profile || qkv_onnx_profile_from_name(o->profile, out)) return 0;
    while (n < MOST && (names[n] = qkv_onnx_profile_name((qkv_onnx_profile)n))) n++;
    const char *close = nearest(o->profile, names, n);
    return problem(QKV_USAGE, "option '--profile': found '%s', expected ort, spec, openvino or tensorrt%s%s%s",
                   o->profile, close ? "; did you mean '" : "", close ? close : "", close ? "'?" : "");
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

static int rewritten(const Options *o, qkv_model *m)
{
    qkv_error e;
    if (!o->rewrite) return 0;
    return qkv_model_rewrite(m, NULL, NULL, &e) == QKV_OK ? 0 : problem_of(&e);
}

static int write_onnx(const Options *o, const qkv_model *m, qkv_onnx_profile profile)
{
    qkv_error e;
    char *text = NULL;
    qkv_onnx_options options = {
        .struct_size = sizeof options, .opset = (int)o->opset, .profile = profile, .external_data = o->external};
    qkv_status status = qkv_model_save_onnx(m, o->output, &options, &text, &e);
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    size_t warnings = json_array_size(json_object_get(report, "warnings"));
    int code = status == QKV_OK ? 0 : problem_of(&e);
    if (report) tell(report);
    if (!code && o->strict && warnings)
        code = problem(QKV_MISMATCH, "%zu warning%s, and --strict", warnings, warnings == 1 ? "" : "s");
    if (report && o->json) {
        json_object_set_new(report, "model", json_text(o->arg[0]));
        json_object_set_new(report, "output", status == QKV_OK ? json_text(o->output) : json_null());
        json_object_set_new(report, "error", status == QKV_OK ? json_null() : json_text(e.message));
        json_print(json_incref(report));
    } else if (report && status == QKV_OK) {
        const json_t *a = json_object_get(report, "attentions");
        printf(
            "opset %d, profile %s: %d nodes, %d weights and constants, %d attention%s (%d as one op)\n",
            (int)json_integer_value(json_object_get(report, "opset")), text_at(report, "profile"),
            (int)json_integer_value(json_object_get(report, "nodes")),
            (int)json_integer_value(json_object_get(report, "weights")),
            (int)(json_integer_value(json_object_get(a, "op")) + json_integer_value(json_object_get(a, "decomposed"))),
            json_integer_value(json_object_get(a, "op")) + json_integer_value(json_object_get(a, "decomposed")) == 1
                ? ""
                : "s",
            (int)json_integer_value(json_object_get(a, "op")));
    }
    json_decref(report);
    qkv_free(text);
    return code;
}

int model_can_write(const Options *o)
{
    qkv_onnx_profile profile;
    int code = profile_of(o, &profile);
    if (code) return code;
    bool onnx = ends_in(o->output, ".onnx");
    if (!onnx && !ends_in(o->output, ".pt2"))
        return problem(QKV_USAGE, "option '-o': found '%s', expected a file that ends in .onnx or .pt2", o->output);
    if (!onnx && (o->profile || o->opset || o->external))
        return problem(QKV_USAGE, "--profile, --opset and --external-data are for ONNX");
    return 0;
}

int model_write(const Options *o, const qkv_model *m)
{
    qkv_error e;
    qkv_onnx_profile profile;
    int code = profile_of(o, &profile);
    if (code) return code;
    if (ends_in(o->output, ".onnx")) return write_onnx(o, m, profile);
    return qkv_model_save(m, o->output, &e) == QKV_OK ? 0 : problem_of(&e);
}

int cmd_convert(const Options *o)
{
    qkv_model *m = NULL;
    if (!o->output) return problem(QKV_USAGE, "convert needs -o FILE.onnx or -o FILE.pt2");
    if (is_tensor_file(o->output)) return convert_tensors(o);
    int code = model_can_write(o);
    if (!code) code = model_load(o, o->arg[0], false, false, &m);
    if (!code && o->weight_file) code = give_weights(m, o->weight_file);
    if (!code) code = rewritten(o, m);
    if (!code) code = model_write(o, m);
    qkv_model_free(m);
    return code;
}
