/* qkv bench MODEL: how long one run takes, after warming up, and where the time goes.
 *
 *     qkv bench vit.pt2 --threads 2 --iterations 50 --json | jq .median_ms
 *     qkv bench vit.pt2 --per-op                                            (bench_ops.c)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "bench.h"

typedef struct BenchOptions {
    Common common;
    ModelOptions model;
    InputOptions inputs;
    const char *trace;
    List keep;
    int64_t iterations, warmup;
    bool per_op, predict;
} BenchOptions;

typedef struct Times {
    double min, median, p95, mean;
} Times;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* p95: the smallest time that 95 % of the runs do not exceed. */
static Times times_of(double *ms, int64_t n)
{
    qsort(ms, (size_t)n, sizeof *ms, by_value);
    Times t = {
        .min = ms[0], .median = (ms[(n - 1) / 2] + ms[n / 2]) / 2, .p95 = ms[(int64_t)ceil(0.95 * (double)n) - 1]};
    for (int64_t i = 0; i < n; i++) t.mean += ms[i] / (double)n;
    return t;
}

/* VmHWM counts this program alone; ru_maxrss, where there is no /proc, starts at what the parent had when it started
 * us. */
static double peak_rss_mb(void)
{
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmHWM:", 6)) kib = strtod(line + 6, NULL);
    if (f) fclose(f);
    struct rusage u;
    if (kib <= 0 && !getrusage(RUSAGE_SELF, &u)) kib = (double)u.ru_maxrss;
    return kib / 1024;
}

/* ------------------------------------------------------------------ timing */

typedef struct Result {
    Times t;
    double first_ms, load_ms;
    qkv_stats stats;
    OpProfile ops;
} Result;

/* Profile and trace are of the timed runs themselves: a clock reading between two steps is all that they add.
 * Switched on for the last run before
 * them, which describes the steps, and again for them. */
static int start_watching(const BenchOptions *o, Loaded *m)
{
    if (o->per_op || o->predict) qkv_session_profile(m->session, 1);
    return trace_start(o->trace, m, o->iterations);
}

static int measure(const BenchOptions *o, Loaded *m, Result *r)
{
    qkv_error e;
    double *ms = must(malloc((size_t)o->iterations * sizeof *ms));
    Progress bar;
    int code = o->per_op || o->predict ? ops_peak(m, &r->ops.before) : 0;
    progress_start(&bar, "bench", o->warmup + o->iterations);
    for (int64_t i = 0; !code && i < o->warmup + o->iterations; i++) {
        if ((i == o->warmup - 1 || i == o->warmup) && (code = start_watching(o, m))) break;
        double start = now_ms();
        if (qkv_session_run(m->session, &e)) code = problem_of(&e);
        double took = now_ms() - start;
        if (i == 0) r->first_ms = took;
        if (i >= o->warmup) ms[i - o->warmup] = took;
        progress_at(&bar, (double)i + 1);
    }
    progress_end(&bar);
    if (!code) r->t = times_of(ms, o->iterations);
    free(ms);
    r->stats.struct_size = sizeof r->stats;
    if (!code && qkv_session_stats(m->session, &r->stats, &e)) code = problem_of(&e);
    if (!code && (o->per_op || o->predict)) code = ops_finish(m, o->iterations, r->t.mean, &r->ops);
    return code ? code : trace_finish(o->trace, m);
}

static json_t *json_inputs(const Loaded *m)
{
    json_t *a = json_array();
    qkv_tensor t;
    for (int i = 0; i < qkv_model_input_count(m->model); i++)
        if (!qkv_session_input(m->session, i, &t, NULL))
            json_array_append_new(a, json_pack("{s:s, s:s, s:o}", "name", qkv_model_input_name(m->model, i), "dtype",
                                               qkv_dtype_name(t.dtype), "shape", json_shape(&t)));
    return a;
}

static void print_json(const BenchOptions *o, const Loaded *m, const Result *r, bool bf16)
{
    const double mb = 1 << 20;
    json_t *j = json_pack("{s:i, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "schema", JSON_SCHEMA, "model",
                          json_text(o->common.arg[0]), "min_ms", r->t.min, "median_ms", r->t.median, "p95_ms", r->t.p95,
                          "mean_ms", r->t.mean, "load_ms", r->load_ms, "first_ms", r->first_ms, "plan_ms",
                          r->stats.plan_ms, "peak_rss_mb", peak_rss_mb());
    json_object_update_new(
        j, json_pack("{s:f, s:f, s:f, s:f, s:i}", "activation_mb", (double)r->stats.activation_bytes / mb, "packed_mb",
                     (double)r->stats.packed_bytes / mb, "constant_mb", (double)r->stats.constant_bytes / mb,
                     "scratch_mb", (double)r->stats.scratch_bytes / mb, "steps", r->stats.steps));
    if (o->keep.n) json_object_set_new(j, "kept_mb", json_real((double)r->stats.kept_bytes / mb));
    json_object_update_new(j, json_pack("{s:i, s:s, s:s, s:s, s:I, s:I, s:o}", "threads", r->stats.threads, "dtype",
                                        bf16 ? "bf16" : "f32", "cpu", qkv_cpu(), "version", qkv_version(), "iterations",
                                        (json_int_t)o->iterations, "warmup", (json_int_t)o->warmup, "inputs",
                                        json_inputs(m)));
    if (o->per_op) ops_json(&r->ops, o->common.verbose > 0, j);
    json_print(j);
}

static void print_text(const BenchOptions *o, const Loaded *m, const Result *r, bool bf16)
{
    char shape[256], a[32], b[32], c[32];
    qkv_tensor t;
    printf("%s%s%s, %s, %d thread%s, %s\n", color_on(BOLD), o->common.arg[0], color_off(BOLD), bf16 ? "bf16" : "f32",
           r->stats.threads, r->stats.threads == 1 ? "" : "s", qkv_cpu());
    for (int i = 0; i < qkv_model_input_count(m->model); i++)
        if (!qkv_session_input(m->session, i, &t, NULL))
            show("  %s %s %s\n", qkv_model_input_name(m->model, i), qkv_dtype_name(t.dtype),
                 shape_text(&t, shape, sizeof shape));
    Table *k = table_new("rrrrr");
    static const char *const head[] = {"runs", "min ms", "median ms", "p95 ms", "mean ms"};
    for (int i = 0; i < 5; i++) table_cell(k, "%s", head[i]);
    table_cell(k, "%lld", (long long)o->iterations);
    const double v[] = {r->t.min, r->t.median, r->t.p95, r->t.mean};
    for (int i = 0; i < 4; i++) table_cell(k, "%.3f", v[i]);
    putchar('\n');
    table_print(k);
    printf("\nloaded in %.1f ms, first run %.1f ms (plan %.1f ms), %d step%s\n", r->load_ms, r->first_ms,
           r->stats.plan_ms, r->stats.steps, r->stats.steps == 1 ? "" : "s");
    if (o->keep.n) printf("kept from run to run: %s\n", bytes_text((double)r->stats.kept_bytes, a, sizeof a));
    printf("peak memory %.1f MiB: activations %s, packed weights %s, scratch %s\n", peak_rss_mb(),
           bytes_text((double)r->stats.activation_bytes, a, sizeof a),
           bytes_text((double)r->stats.packed_bytes, b, sizeof b),
           bytes_text((double)r->stats.scratch_bytes, c, sizeof c));
}

static bool first_of_its_size(const qkv_model *m, int input, int axis)
{
    const char *size = qkv_model_input_dim(m, input, axis);
    for (int i = 0; i <= input; i++)
        for (int k = 0; k < (i < input ? qkv_model_input_rank(m, i) : axis); k++)
            if (!strcmp(qkv_model_input_dim(m, i, k), size)) return false;
    return true;
}

/* Without sizes from the user they are the smallest, where the time says little about a run of real size. */
static void note_sizes(const InputOptions *in, const Loaded *m)
{
    enum { SHOWN = 512 };
    char text[SHOWN] = "";
    size_t used = 0;
    if (in->file || in->dim.n || in->shape.n || in->image.n) return;
    for (int i = 0; i < qkv_model_input_count(m->model); i++) {
        qkv_tensor t;
        if (qkv_session_input(m->session, i, &t, NULL)) continue;
        for (int k = 0; k < t.rank && used < SHOWN; k++)
            if (input_fixed_dim(m->model, i, k) < 0 && first_of_its_size(m->model, i, k))
                used += (size_t)snprintf(text + used, SHOWN - used, "%s%s.%d=%lld", used ? ", " : "",
                                         qkv_model_input_name(m->model, i), k, (long long)t.shape[k]);
    }
    if (used)
        note("no sizes were given, so these are the smallest that the model allows: %s; -D NAME=N sets larger ones",
             text);
}

static int keep_inputs(const BenchOptions *o, Loaded *m)
{
    qkv_error e;
    for (int i = 0; i < o->keep.n; i++)
        if (qkv_session_keep(m->session, o->keep.item[i], &e)) return problem_of(&e);
    return 0;
}

static int cmd_bench(const void *options)
{
    const BenchOptions *o = options;
    Loaded m;
    Inputs in = {0};
    Result r = {0};
    bool bf16;
    int code = model_bf16(&o->model, &bf16);
    if (!code && o->predict && o->common.json) code = problem(QKV_USAGE, "--predict prints a table: leave out --json");
    if (code || (code = model_open(&o->model, o->common.arg[0], bf16, false, &m))) return code;
    r.load_ms = m.load_ms;
    code = keep_inputs(o, &m);
    if (!code) code = inputs_set(&o->inputs, &m, &in);
    if (!code) note_sizes(&o->inputs, &m);
    if (!code) code = measure(o, &m, &r);
    if (!code && o->common.json) print_json(o, &m, &r, bf16);
    else if (!code) {
        print_text(o, &m, &r, bf16);
        if (o->per_op) ops_print(&r.ops, o->common.verbose > 0);
        qkv_session_options like;
        session_options(&o->model, &like);
        if (o->predict) code = predict(&m, &like, &r.ops, r.t.min);
    }
    ops_free(&r.ops);
    inputs_free(&in);
    model_close(&m);
    return code;
}

#define AT(field) offsetof(BenchOptions, field)
static const Option own[] = {
    {"iterations", INTEGER, AT(iterations), .arg = "N", .min = 1, .max = 10000000,
     .help = "Number of timed runs (default 20)."},
    {"warmup", INTEGER, AT(warmup), .arg = "N", .min = 1, .max = 10000000,
     .help = "Number of runs before timing starts (default 3): the first one plans, the second packs weights."},
    {"keep", MANY, AT(keep), .arg = "INPUT",
     .help = "Time runs in which this input does not change, so that whatever depends on it alone is not recomputed, "
             "as "
             "for a second text with the same image. May be given many times."},
    {"per-op", FLAG, AT(per_op),
     .help = "Also print how the time of these runs divides among the ops and whatever else a run does; with -v, among "
             "the nodes. GFLOP/s and GB/s follow from the shapes and are also shown as a fraction of what this machine "
             "achieves at the same time, measured before and after the runs: multiply-adds in registers, and memory "
             "reads."},
    {"predict", FLAG, AT(predict),
     .help =
         "Also print what each layer would take with 2, 8, 16 and 64 threads, simulated on one: loops are split as so "
         "many threads split them, and their parts timed one by one. Up to the number of this machine's CPUs, what "
         "they lose to each other is measured and counted. Beside it stands what the timed runs took, and how far the "
         "simulation of as many threads is from that."},
    {0},
};

const Command command_bench = {
    .name = "bench",
    .args = "MODEL",
    .summary = "Measure how long one run takes",
    .text = "Warms up, then times single runs and prints the minimum, median, 95th percentile and mean in "
            "milliseconds, "
            "the load time, the time of the first run, and the peak resident memory of the process. Inputs are chosen "
            "as for qkv run.",
    .examples = "qkv bench vit.pt2 --threads 1 --iterations 50\tone thread\n"
                "qkv bench bert.pt2 -D batch=8 -D seq=128 --dtype bf16 --json\tfor programs\n"
                "qkv bench vit.pt2 --per-op\twhere the time goes",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(BenchOptions),
    .defaults = &(const BenchOptions){.inputs.seed = -1, .iterations = 20, .warmup = 3},
    .options = {{input_options, AT(inputs)},
                {norm_options, AT(inputs.norm)},
                {own},
                {load_options, AT(model)},
                {dtype_option, AT(model)},
                {skip_padding_option, AT(model)},
                {run_options, AT(model)},
                {cache_option, AT(model)},
                {passes_option, AT(model)},
                {trace_option, AT(trace)},
                {json_option},
                {common_options}},
    .run = cmd_bench,
};
