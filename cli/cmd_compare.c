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

static int describe_both(const CompareOptions *o, Page *p)
{
    int code = 0;
    page_open(p, "models", '[');
    for (int i = 0; i < 2 && !code; i++) {
        qkv_model *m;
        if ((code = model_load(&o->model, o->common.arg[i], false, false, &m))) break;
        code = page_open_model(p, o->common.arg[i], m);
        page_close(p, "}");
        qkv_model_free(m);
    }
    page_close(p, "]");
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

typedef struct Told {
    int outputs, differ;
    Differing first;
} Told;

static int compare_outputs(const CompareOptions *o, Page *p, Loaded *m, Told *told)
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
    told->outputs = n[0];
    code = output_tolerances(m[0].model, m[1].model, &least);
    page_open(p, "outputs", '[');
    for (int i = 0; i < n[0] && !code; i++) {
        qkv_tensor x, y;
        Compared c;
        const char *label = qkv_model_output_label(m[0].model, i);
        if (qkv_session_output(m[0].session, i, &x, &e) || qkv_session_output(m[1].session, i, &y, &e)) {
            code = problem_of(&e);
            break;
        }
        if ((code = compare(&usual, label, label, &x, &y, 1, least[i], &c))) break;
        told->differ += c.differs;
        page_value(p, NULL, compared_json(&c));
    }
    page_close(p, "]");
    free(least);
    return code;
}

static void close_both(Loaded *m, Inputs *in)
{
    inputs_free(in);
    *in = (Inputs){0};
    for (int k = 0; k < 2; k++) model_close(&m[k]);
}

static int run_both(const CompareOptions *o, Page *p, const qkv_peak *peak, Told *told)
{
    Loaded m[2] = {{0}};
    Inputs in = {0};
    int code = open_both(o, false, m, &in);
    if (!code) code = compare_outputs(o, p, m, told);
    page_open(p, "time", '[');
    for (int k = 0; k < 2 && !code; k++) {
        const Measuring how = {o->common.arg[k], "f32", o->runs, *peak};
        code = measured(p, &m[k], &how);
    }
    page_close(p, "]");
    close_both(m, &in);
    if (!code) code = open_both(o, true, m, &in);
    if (!code) code = compare_values(p, &m[0], &m[1], &told->first);
    close_both(m, &in);
    return code;
}

/* Where the nodes differ first, and whether the outputs do. */
static void tell(const CompareOptions *o, const Told *t)
{
    if (t->first.a)
        show("of %zu pairs of nodes, '%s' and '%s' are the first that differ\n", t->first.pairs, t->first.a,
             t->first.b);
    else if (!o->no_run) printf("all %zu pairs of nodes agree\n", t->first.pairs);
    if (t->differ)
        printf("%s%d of %d output%s differ%s%s\n", color_on(RED), t->differ, t->outputs, t->outputs == 1 ? "" : "s",
               t->differ == 1 ? "s" : "", color_off(RED));
    else if (!o->no_run) printf("%sall outputs agree%s\n", color_on(GREEN), color_off(GREEN));
    note("wrote %s", o->output);
}

static int cmd_compare(const void *options)
{
    const CompareOptions *o = options;
    Told told = {0};
    int code = page_can_write(o->output);
    Page *p;
    if (!code) code = page_begin(o->output, "compare", &p);
    if (code) return code;
    qkv_peak peak;
    if (!o->no_run) code = measure_machine(&o->model, &peak);
    if (!code) code = describe_both(o, p);
    if (!code && !o->no_run) code = run_both(o, p, &peak, &told);
    code = page_end(p, code);
    if (!code) tell(o, &told);
    free(told.first.a);
    free(told.first.b);
    return code ? code : told.differ ? QKV_MISMATCH : 0;
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
