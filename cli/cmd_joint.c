/* qkv joint MODEL --loss OUTPUT -o FILE: a model with the gradients of its loss.
 *
 *     qkv joint classifier.pt2 --loss output_0 -o joint.pt2
 */
#include <stdio.h>
#include <string.h>
#include "cli.h"

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
        printf("recompute %s%s: what it takes depends on data\n", text_at(r, "how"), sizes);
        return;
    }
    printf("recompute %s%s: %s\n", text_at(r, "how"), sizes, cost_text(with, text, sizeof text));
    printf("        without%s: %s\n", sizes, cost_text(without, text, sizeof text));
}

static void tell(const Options *o, json_t *report)
{
    size_t i, n = json_array_size(json_object_get(report, "gradients"));
    json_t *x;
    if (o->json) {
        json_object_set_new(report, "model", json_text(o->arg[0]));
        json_object_set_new(report, "output", json_text(o->output));
        json_print(json_incref(report));
        return;
    }
    json_array_foreach(json_object_get(report, "without"), i, x)
        note("parameter '%s' does not reach the loss: it has no gradient", json_string_value(x));
    printf("loss %s: %zu gradient%s, %d nodes (the model has %d)\n", text_at(report, "loss"), n, n == 1 ? "" : "s",
           (int)json_integer_value(json_object_get(report, "nodes_after")),
           (int)json_integer_value(json_object_get(report, "nodes_before")));
    if (json_object_get(report, "recompute")) tell_recompute(json_object_get(report, "recompute"));
    json_array_foreach(json_object_get(report, "gradients"), i, x)
        detail("%s %s", text_at(x, "output"), text_at(x, "dtype"));
}

int cmd_joint(const Options *o)
{
    qkv_model *m = NULL, *joint = NULL;
    qkv_error e;
    char *text = NULL;
    Words inputs;
    Sizes dims = {0};
    if (!o->output) return problem(QKV_USAGE, "joint needs -o FILE");
    int code = model_can_write(o);
    if (!code) code = model_load(o, o->arg[0], false, false, &m);
    if (code) return code;
    words_of(&o->grad, &inputs);
    code = sizes_of_dims(o, &dims);
    qkv_joint_options options = {.struct_size = sizeof options,
                                 .loss = o->loss,
                                 .decompose = o->decompose,
                                 .inputs = inputs.name,
                                 .n_inputs = inputs.n,
                                 .inputs_only = o->inputs_only,
                                 .recompute = o->recompute,
                                 .dim_names = (const char *const *)dims.name,
                                 .dims = dims.value,
                                 .n_dims = dims.n};
    if (!code) {
        joint = qkv_model_joint(m, &options, &text, &e);
        code = joint ? model_write(o, joint) : problem_of(&e);
    }
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    if (!code && report) tell(o, report);
    json_decref(report);
    qkv_free(text);
    words_free(&inputs);
    sizes_free(&dims);
    qkv_model_free(joint);
    qkv_model_free(m);
    return code;
}
