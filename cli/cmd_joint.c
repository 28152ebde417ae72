/* qkv joint MODEL --loss OUTPUT -o FILE: a model with the gradients of its loss.
 *
 *     qkv joint classifier.pt2 --loss output_0 -o joint.pt2
 */
#include <stdio.h>
#include <string.h>
#include "cli.h"

static void tell(const Options *o, json_t *report)
{
    size_t i, n = json_array_size(json_object_get(report, "gradients"));
    json_t *x;
    if (o->json) {
        json_object_set_new(report, "schema", json_integer(JSON_SCHEMA));
        json_object_set_new(report, "model", json_text(o->arg[0]));
        json_object_set_new(report, "output", json_text(o->output));
        json_print(json_incref(report));
        return;
    }
    json_array_foreach(json_object_get(report, "without"), i, x) note("parameter '%s' does not reach the loss: it has no gradient", json_string_value(x));
    printf("loss %s: %zu gradient%s, %d nodes (the model has %d)\n", text_at(report, "loss"), n, n == 1 ? "" : "s", (int)json_integer_value(json_object_get(report, "nodes_after")),
           (int)json_integer_value(json_object_get(report, "nodes_before")));
    json_array_foreach(json_object_get(report, "gradients"), i, x) detail("%s %s", text_at(x, "output"), text_at(x, "dtype"));
}

int cmd_joint(const Options *o)
{
    qkv_model *m = NULL, *joint = NULL;
    qkv_error e;
    char *text = NULL;
    Words inputs;
    if (!o->output) return problem(QKV_USAGE, "joint needs -o FILE");
    int code = model_can_write(o);
    if (!code) code = model_load(o, o->arg[0], false, false, &m);
    if (code) return code;
    words_of(&o->grad, &inputs);
    qkv_joint_options options = {.struct_size = sizeof options, .loss = o->loss, .decompose = o->decompose, .inputs = inputs.name, .n_inputs = inputs.n, .inputs_only = o->inputs_only};
    joint = qkv_model_joint(m, &options, &text, &e);
    code = joint ? model_write(o, joint) : problem_of(&e);
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    if (!code && report) tell(o, report);
    json_decref(report);
    qkv_free(text);
    words_free(&inputs);
    qkv_model_free(joint);
    qkv_model_free(m);
    return code;
}
