/* qkv compare A B -o diff.html: two models side by side on one page: graphs, values node by node, time
 * (docs/REPORT.md). */
#include <stdio.h>
#include <stdlib.h>
#include "compare.h"
#include "verify.h"

typedef struct CompareOptions {
    Common common;
    ModelOptions model;
    InputOptions inputs;
    const char *output;
    int64_t runs;
    bool no_run;
} CompareOptions;

static int describe_both(const CompareOptions *o, json_t *models)
{
    int code = 0;
    for (int i = 0; i < 2 && !code; i++) {
        qkv_model *m;
        json_t *about;
        if ((code = model_load(&o->model, o->common.arg[i], false, false, &m))) break;
        if (!(code = model_facts(o->common.arg[i], m, &about))) json_array_append_new(models, about);
        qkv_model_free(m);
    }
    return code;
}

/* Both opened, the second with the first one's inputs. */
static int open_both(const CompareOptions *o, bool no_fuse, Loaded *m, Inputs *in)
{
    int code = model_open(&o->model, o->common.arg[0], false, no_fuse, &m[0]);
    if (!code) code = model_open(&o->model, o->common.arg[1], false, no_fuse, &m[1]);
    if (!code) code = inputs_set(&o->inputs, &m[0], in);
    if (!code) code = inputs_share(&m[0], &m[1]);
    return code;
}

static int compare_outputs(const CompareOptions *o, Loaded *m, json_t *outputs, int *differ)
{
    static const VerifyOptions usual;
    qkv_error e;
    int n[2] = {qkv_model_output_count(m[0].model), qkv_model_output_count(m[1].model)}, code = 0;
    if (n[0] != n[1])
        return problem(QKV_MISMATCH, "number of outputs: %s has %d, %s has %d", o->common.arg[0], n[0],
                       o->common.arg[1], n[1]);
    for (int k = 0; k < 2; k++)
        if (qkv_session_run(m[k].session, &e)) return problem((int)e.code, "%s: %s", o->common.arg[k], e.message);
    double *least = NULL;
    code = output_tolerances(m[0].model, m[1].model, &least);
    for (int i = 0; i < n[0] && !code; i++) {
        qkv_tensor x, y;
        Compared c;
        const char *label = qkv_model_output_label(m[0].model, i);
        if (qkv_session_output(m[0].session, i, &x, &e) || qkv_session_output(m[1].session, i, &y, &e)) {
            code = problem_of(&e);
            break;
        }
        if ((code = compare(&usual, label, label, &x, &y, 1, least[i], &c))) break;
        *differ += c.differs;
        json_array_append_new(outputs, compared_json(&c));
    }
    free(least);
    return code;
}

static int run_both(const CompareOptions *o, json_t *data, int *differ)
{
    Loaded m[2] = {{0}};
    Inputs in = {0};
    json_t *values = NULL, *outputs = json_array(), *time = json_array();
    json_object_set_new(data, "outputs", outputs);
    json_object_set_new(data, "time", time);
    int code = open_both(o, true, m, &in);
    if (!code) code = compare_values(&m[0], &m[1], &values);
    if (!code) json_object_set_new(data, "values", values);
    inputs_free(&in);
    for (int k = 0; k < 2; k++) model_close(&m[k]);
    in = (Inputs){0};
    if (!code) code = open_both(o, false, m, &in);
    if (!code) code = compare_outputs(o, m, outputs, differ);
    for (int k = 0; k < 2 && !code; k++) {
        json_t *run = NULL;
        if ((code = measured(&m[k], o->runs, &run))) break;
        json_object_set_new(run, "file", json_text(o->common.arg[k]));
        json_object_set_new(run, "dtype", json_string("f32"));
        json_array_append_new(time, run);
    }
    inputs_free(&in);
    for (int k = 0; k < 2; k++) model_close(&m[k]);
    return code;
}

/* Where the nodes differ first, and whether the outputs do. */
static void tell(const CompareOptions *o, const json_t *data, int differ)
{
    const json_t *values = json_object_get(data, "values"), *pairs = json_object_get(values, "pairs");
    const json_t *first = json_object_get(values, "first");
    size_t n = json_array_size(pairs), outputs = json_array_size(json_object_get(data, "outputs"));
    if (json_is_integer(first)) {
        const json_t *pair = json_array_get(pairs, (size_t)json_integer_value(first));
        show("of %zu pairs of nodes, '%s' and '%s' are the first that differ\n", n, text_at(pair, "a"),
             text_at(pair, "b"));
    } else if (values) printf("all %zu pairs of nodes agree\n", n);
    if (differ)
        printf("%s%d of %zu output%s differ%s%s\n", color_on(RED), differ, outputs, outputs == 1 ? "" : "s",
               differ == 1 ? "s" : "", color_off(RED));
    else if (values) printf("%sall outputs agree%s\n", color_on(GREEN), color_off(GREEN));
    note("wrote %s", o->output);
}

static int cmd_compare(const void *options)
{
    const CompareOptions *o = options;
    int differ = 0, code = page_can_write(o->output);
    if (code) return code;
    json_t *data = page_of("compare"), *models = json_array();
    json_object_set_new(data, "models", models);
    code = describe_both(o, models);
    if (!code && !o->no_run) code = run_both(o, data, &differ);
    if (!code) code = page_write(o->output, json_incref(data));
    if (!code) tell(o, data, differ);
    json_decref(data);
    return code ? code : differ ? QKV_MISMATCH : 0;
}

#define AT(field) offsetof(CompareOptions, field)
static const Option own[] = {
    {"output", TEXT, AT(output), .letter = 'o', .arg = "FILE", .writes = true,
     .help = "Write FILE.html, the page; FILE.json, its data alone; or FILE.csv, the steps of both models' runs."},
    {"no-run", FLAG, AT(no_run), .help = "Compare the graphs alone: neither model is run."},
    {"runs", INTEGER, AT(runs), .arg = "N", .min = 1, .max = 100000,
     .help = "Number of profiled runs of each, after three others (default 5)."},
    {0},
};

const Command command_compare = {
    .name = "compare",
    .args = "A B",
    .summary = "Write a page that shows two models side by side",
    .text = "Writes one file that any browser opens without a network: the graphs of both models, aligned; the value "
            "of every node that has a partner in the other model, and the first pair that differs; the time of each op "
            "in both. Each may be a .pt2 or an ONNX file: nodes are partners by their names, else by their values, "
            "else by their op and place.\n\n"
            "Both get the same inputs, chosen as for qkv run. The exit code is 1 when an output differs by more than "
            "qkv verify allows.",
    .examples = "qkv compare bert.pt2 bert.onnx -D batch=1 -D seq=128 -o diff.html\twhat an export changed\n"
                "qkv compare before.pt2 after.pt2 --no-run -o diff.html\tthe graphs alone",
    .min_args = 2,
    .max_args = 2,
    .size = sizeof(CompareOptions),
    .defaults = &(const CompareOptions){.inputs.seed = -1, .runs = 5},
    .options = {{own},
                {input_options, AT(inputs)},
                {norm_options, AT(inputs.norm)},
                {load_options, AT(model)},
                {run_options, AT(model)},
                {common_options}},
    .run = cmd_compare,
};
