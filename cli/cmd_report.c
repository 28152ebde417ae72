/* qkv report MODEL -o report.html: what is in a model, what the rules make of it, and where its time and memory go, on
 * one page (docs/REPORT.md). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "page.h"

typedef struct ReportOptions {
    Common common;
    ModelOptions model;
    InputOptions inputs;
    const char *output, *train_log;
    List device, rules;
    int64_t runs;
    bool no_run, no_prove;
} ReportOptions;

/* ------------------------------------------------------------------ the model, before and after */

static void show_progress(void *user, int done, int total)
{
    Progress *p = user;
    p->total = total;
    progress_at(p, done);
}

/* What PyTorch would choose on each device, a text each. */
static int backends(const ReportOptions *o, const qkv_model *m, char **text)
{
    static const char *const usual[] = {"cpu", "cuda-sm80", "cuda-sm90"};
    int n = o->device.n ? o->device.n : (int)(sizeof usual / sizeof *usual);
    for (int i = 0; i < n; i++) {
        qkv_error e;
        qkv_backends_options options = {.struct_size = sizeof options,
                                        .device = o->device.n ? o->device.item[i] : usual[i]};
        if (!(text[i] = qkv_model_backends(m, &options, &e))) return problem_of(&e);
    }
    return 0;
}

static void put_backends(Page *p, char **text)
{
    page_open(p, "backends", '[');
    for (; *text; text++) page_text(p, NULL, *text);
    page_close(p, "]");
}

static void backends_free(char **text)
{
    for (char **t = text; t && *t; t++) qkv_free(*t);
    free(text);
}

static char **backends_room(const ReportOptions *o)
{
    enum { USUAL = 3 };
    return must(calloc((size_t)o->device.n + USUAL + 1, sizeof(char *)));
}

static int rewrite(const ReportOptions *o, const qkv_model *m, Page *page)
{
    qkv_error e;
    char *text = NULL, **chosen = backends_room(o);
    Progress p;
    qkv_rewrite_options options = {.struct_size = sizeof options,
                                   .rule_files = o->rules.item,
                                   .rule_file_count = o->rules.n,
                                   .prove = !o->no_prove,
                                   .progress = show_progress,
                                   .progress_user = &p};
    progress_start(&p, "proving", 1);
    qkv_model *after = qkv_model_rewrite(m, &options, &text, &e);
    progress_end(&p);
    int code = after ? 0 : problem_of(&e);
    if (!code) page_open_text(page, "rewrite", text);
    qkv_free(text);
    if (!code) code = page_report(page, "graph", qkv_model_graph_json(after, "import", &e), &e);
    if (!code) code = backends(o, after, chosen);
    if (!code) put_backends(page, chosen);
    page_close(page, "}");
    backends_free(chosen);
    qkv_model_free(after);
    return code;
}

/* ------------------------------------------------------------------ runs */

static int time_runs(const ReportOptions *o, bool bf16, const qkv_peak *peak, Page *p)
{
    const Measuring how = {o->common.arg[0], bf16 ? "bf16" : "f32", o->runs, *peak};
    Loaded m;
    Inputs in = {0};
    int code = model_open(&o->model, o->common.arg[0], bf16, false, &m);
    if (code) return code;
    code = inputs_set(&o->inputs, &m, &in);
    if (!code) code = measured(p, &m, &how);
    inputs_free(&in);
    model_close(&m);
    return code;
}

/* What `qkv train --log` wrote: an object a line. */
static int read_log(const char *path, Page *p)
{
    char *line = NULL;
    size_t room = 0;
    int code = 0, number = 0;
    FILE *f = fopen(path, "r");
    if (!f) return problem(QKV_UNREADABLE, "%s: cannot be opened", path);
    while (!code && getline(&line, &room, f) > 0) {
        json_t *entry = json_loads(line, 0, NULL);
        number++;
        if (json_is_object(entry)) page_value(p, NULL, entry);
        else {
            json_decref(entry);
            code = problem(QKV_UNREADABLE, "%s: line %d is not a JSON object as qkv train --log writes them", path,
                           number);
        }
    }
    free(line);
    fclose(f);
    return code;
}

/* ------------------------------------------------------------------ the command */

static int fill(const ReportOptions *o, Page *p)
{
    qkv_model *m;
    bool bf16;
    qkv_peak peak;
    char **chosen = backends_room(o);
    int code = model_bf16(&o->model, &bf16);
    if (!code && !o->no_run) code = measure_machine(&o->model, &peak);
    if (!code) code = model_load(&o->model, o->common.arg[0], false, false, &m);
    if (code) {
        backends_free(chosen);
        return code;
    }
    page_open(p, "models", '[');
    code = page_open_model(p, o->common.arg[0], m);
    if (!code) code = rewrite(o, m, p);
    if (!code) code = backends(o, m, chosen);
    qkv_model_free(m);
    page_close(p, "}]");
    page_open(p, "time", '[');
    if (!code && !o->no_run) code = time_runs(o, bf16, &peak, p);
    page_close(p, "]");
    put_backends(p, chosen);
    backends_free(chosen);
    page_open(p, "training", '[');
    if (!code && o->train_log) code = read_log(o->train_log, p);
    page_close(p, "]");
    return code;
}

static int cmd_report(const void *options)
{
    const ReportOptions *o = options;
    Page *p;
    int code = page_can_write(o->output);
    if (!code) code = page_begin(o->output, "report", &p);
    if (code) return code;
    code = page_end(p, fill(o, p));
    if (!code) note("wrote %s", o->output);
    return code;
}

#define AT(field) offsetof(ReportOptions, field)
static const Option own[] = {
    {"output", TEXT, AT(output), .letter = 'o', .arg = "FILE", .writes = true,
     .help = "Write FILE.html, the page; FILE.json, its data alone; or FILE.csv, the steps of its runs. The file is "
             "written completely or not at all."},
    {"no-run", FLAG, AT(no_run), .help = "Leave out time and memory: the model is not run."},
    {"no-prove", FLAG, AT(no_prove),
     .help = "Do not evaluate the replacements: the page then does not show how far their two sides differ."},
    {"runs", INTEGER, AT(runs), .arg = "N", .min = 1, .max = 100000,
     .help = "Number of profiled runs, after three others (default 5)."},
    {"rules", MANY, AT(rules), .arg = "FILE", .help = "Read more rules, as qkv rewrite does. May be given many times."},
    {"device", MANY, AT(device), .arg = "NAME",
     .help = "A device for which PyTorch's choice of an attention kernel is shown: cpu, or cuda-smNN. May be given "
             "many times (default cpu, cuda-sm80, cuda-sm90)."},
    {"train-log", TEXT, AT(train_log), .arg = "FILE.jsonl",
     .help = "Show the loss curves of a training run: the file that qkv train --log wrote."},
    {0},
};

const Command command_report = {
    .name = "report",
    .args = "MODEL",
    .summary = "Write a page that shows a model, its rewriting, time and memory",
    .text = "Writes one file that any browser opens without a network: what the model holds, its graph before and "
            "after rewriting side by side, every attention with how it was recognised and the proof, what was left "
            "and why, where the time of a run goes, memory over time, and the kernels that PyTorch would take.\n\n"
            "Inputs are chosen as for qkv run. The result of qkv compare is such a page for two files.",
    .examples = "qkv report bert.pt2 -D batch=1 -D seq=128 -o bert.html\tthe page, timed at these sizes\n"
                "qkv report sam3.pt2 --no-run --no-prove -o sam3.html\tthe graph alone, without running it\n"
                "qkv report vit.pt2 -o vit.csv\tthe steps of its runs, for a spreadsheet",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(ReportOptions),
    .defaults = &(const ReportOptions){.inputs.seed = -1, .runs = 5},
    .options = {{own},
                {input_options, AT(inputs)},
                {norm_options, AT(inputs.norm)},
                {load_options, AT(model)},
                {dtype_option, AT(model)},
                {run_options, AT(model)},
                {common_options}},
    .run = cmd_report,
};
