/* qkv run MODEL: one run, its outputs written to a file and summarised. */
#include <math.h>
#include <stdlib.h>
#include "cli.h"

typedef struct RunOptions {
    Common common;
    ModelOptions model;
    InputOptions inputs;
    const char *output, *trace;
} RunOptions;

typedef struct Summary {
    double min, max, mean;
    int64_t nonfinite;
} Summary;

static Summary summary_of(qkv_tensor t)
{
    Summary s = {INFINITY, -INFINITY, 0, 0};
    int64_t shape[QKV_MAX_RANK], times = tensor_once(&t, shape), n = tensor_count(&t), finite = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = tensor_number(&t, i);
        if (!isfinite(v)) {
            s.nonfinite += times;
            continue;
        }
        finite++;
        s.min = fmin(s.min, v);
        s.max = fmax(s.max, v);
        s.mean += v;
    }
    s.mean = finite ? s.mean / (double)finite : NAN;
    if (!finite) s.min = s.max = NAN;
    return s;
}

static void print_outputs(const char *const *name, const qkv_tensor *out, int n)
{
    char shape[256];
    Table *t = table_new("lllrrrr");
    static const char *const head[] = {"output", "dtype", "shape", "min", "max", "mean", "not finite"};
    for (int i = 0; i < 7; i++) table_cell(t, "%s", head[i]);
    for (int i = 0; i < n; i++) {
        Summary s = summary_of(out[i]);
        table_cell(t, "%s", name[i]);
        table_cell(t, "%s", qkv_dtype_name(out[i].dtype));
        table_cell(t, "%s", shape_text(&out[i], shape, sizeof shape));
        table_cell(t, "%.6g", s.min);
        table_cell(t, "%.6g", s.max);
        table_cell(t, "%.6g", s.mean);
        table_cell(t, "%lld", (long long)s.nonfinite);
        if (s.nonfinite) table_color(t, RED);
    }
    table_print(t);
}

static void print_json(const RunOptions *o, const char *const *name, const qkv_tensor *out, int n, double ms)
{
    json_t *outputs = json_array();
    for (int i = 0; i < n; i++) {
        Summary s = summary_of(out[i]);
        json_array_append_new(outputs, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:I}", "name", name[i], "dtype",
                                                 qkv_dtype_name(out[i].dtype), "shape", json_shape(&out[i]), "min",
                                                 json_number(s.min), "max", json_number(s.max), "mean",
                                                 json_number(s.mean), "nonfinite", (json_int_t)s.nonfinite));
    }
    json_print(json_pack("{s:i, s:o, s:o, s:o, s:o}", "schema", JSON_SCHEMA, "model", json_text(o->common.arg[0]),
                         "written", json_text(o->output), "run_ms", json_real(ms), "outputs", outputs));
}

static void on_progress(void *user, const char *module, double done)
{
    Progress *bar = user;
    bar->stage = module;
    progress_at(bar, done);
}

static int cmd_run(const void *options)
{
    const RunOptions *o = options;
    Loaded m;
    Progress bar;
    Inputs in = {0};
    qkv_error e;
    bool bf16;
    int code = model_bf16(&o->model, &bf16);
    if (code || (code = model_open(&o->model, o->common.arg[0], bf16, false, &m))) return code;
    int n = qkv_model_output_count(m.model);
    const char **name = must(calloc((size_t)n + 1, sizeof *name));
    qkv_tensor *out = must(calloc((size_t)n + 1, sizeof *out));
    double start = 0, ms = 0;
    code = inputs_set(&o->inputs, &m, &in);
    if (!code) code = trace_start(o->trace, &m, 1);
    if (!code) {
        progress_start(&bar, "run", 1);
        if (bar.on) qkv_session_on_progress(m.session, on_progress, &bar);
        start = now_ms();
        qkv_status status = qkv_session_run(m.session, &e);
        ms = now_ms() - start;
        progress_end(&bar);
        if (status) code = problem_of(&e);
        detail("ran in %.1f ms", ms);
    }
    if (!code) code = trace_finish(o->trace, &m);
    for (int i = 0; !code && i < n; i++) {
        name[i] = qkv_model_output_name(m.model, i);
        if (qkv_session_output(m.session, i, &out[i], &e)) code = problem_of(&e);
    }
    if (!code && o->output && qkv_tensors_write(o->output, name, out, n, &e)) code = problem_of(&e);
    if (!code && o->common.json) print_json(o, name, out, n, ms);
    else if (!code) print_outputs(name, out, n);
    free(name);
    free(out);
    inputs_free(&in);
    model_close(&m);
    return code;
}

static const Option own[] = {
    {"output", TEXT, offsetof(RunOptions, output), .letter = 'o', .arg = "FILE", .writes = true,
     .help = "Write the outputs to a .safetensors or .npz file. The file is written completely or not at all."},
    {0},
};

const Command command_run = {
    .name = "run",
    .args = "MODEL",
    .summary = "Run a model and write its outputs",
    .text =
        "Runs the model once, prints a summary of each output and, with -o, writes the outputs as output_0, output_1, "
        "... in flattened order.\n\n"
        "Inputs come from a file (-i), from images (--image), or are random: roughly normally distributed floats, "
        "integers that are valid indices, and masks that keep the first element of each row.",
    .examples = "qkv run bert.pt2 -i in.safetensors -o out.safetensors\tinputs by name or position\n"
                "qkv run vit.pt2 --image cat.png --mean 0.5 --std 0.5 -o out.npz\tan image\n"
                "qkv run bert.pt2 -D batch=2 -D seq=128 --seed 1\trandom inputs of a given size",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(RunOptions),
    .defaults = &(const RunOptions){.inputs.seed = -1},
    .options = {{input_options, offsetof(RunOptions, inputs)},
                {norm_options, offsetof(RunOptions, inputs.norm)},
                {own},
                {load_options, offsetof(RunOptions, model)},
                {dtype_option, offsetof(RunOptions, model)},
                {skip_padding_option, offsetof(RunOptions, model)},
                {run_options, offsetof(RunOptions, model)},
                {cache_option, offsetof(RunOptions, model)},
                {passes_option, offsetof(RunOptions, model)},
                {trace_option, offsetof(RunOptions, trace)},
                {json_option},
                {common_options}},
    .run = cmd_run,
};
