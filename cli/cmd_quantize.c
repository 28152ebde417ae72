/* qkv quantize MODEL -o FILE: the model with quantizers, its ranges from data.
 *
 *     qkv quantize model.pt2 --calibrate data.npz -o model.int8.onnx
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli.h"
#include "metric.h"
#include "plot.h"

typedef struct QuantizeOptions {
    Common common;
    ModelOptions model;
    WriteOptions write;
    ImageNorm norm;
    const char *data, *calibration, *cache, *target, *budget, *metric, *weights, *method, *plot;
    double percentile, smooth, massive;
    List skip, dim;
    int64_t batch, seed, group, calls;
    bool asymmetric, dynamic, correct, trainable, explain;
} QuantizeOptions;

static int on_batch(void *user, long long done, long long total)
{
    Progress *p = user;
    if (p->total != total) { /* another look at the data, or the trials of a budget */
        if (p->total) progress_end(p);
        progress_start(p, "calibrate", total);
    }
    progress_at(p, (double)done);
    return 0;
}

/* ------------------------------------------------------------------ what is told */

static void tell_sites(json_t *report)
{
    const bool measured = json_object_get(report, "budget") != NULL;
    Table *t = table_new(measured ? "lllrrrrrl" : "llll");
    size_t i;
    json_t *x;
    table_cell(t, "node");
    table_cell(t, "kind");
    table_cell(t, "quantized");
    if (measured) {
        table_cell(t, "loss alone");
        table_cell(t, "kl");
        table_cell(t, "sqnr dB");
        table_cell(t, "float ms");
        table_cell(t, "integer ms");
    }
    table_cell(t, "why not");
    json_array_foreach(json_object_get(report, "sites"), i, x)
    {
        const char *why = json_string_value(json_object_get(x, "why_not"));
        table_cell(t, "%s", text_at(x, "node"));
        table_cell(t, "%s", text_at(x, "kind"));
        const int bits = (int)json_integer_value(json_object_get(x, "bits"));
        if (bits) table_cell(t, "%d bits", bits);
        else table_cell(t, "%s", why ? "no" : "yes");
        for (int k = 0; measured && k < 5; k++) {
            static const char *const keys[] = {"loss", "kl", "sqnr_db", "float_ms", "integer_ms"};
            json_t *value = json_object_get(x, keys[k]);
            if (value) table_cell(t, k < 2 ? "%.3g" : k == 2 ? "%.1f" : "%.3f", json_number_value(value));
            else table_cell(t, "%s", "");
        }
        table_cell(t, "%s", why ? why : "");
    }
    table_print(t);
    t = table_new("llrrrr");
    table_cell(t, "value");
    table_cell(t, "dtype");
    table_cell(t, "scale");
    table_cell(t, "zero");
    table_cell(t, "least");
    table_cell(t, "largest");
    json_array_foreach(json_object_get(report, "points"), i, x)
    {
        table_cell(t, "%s", text_at(x, "value"));
        table_cell(t, "%s", text_at(x, "dtype"));
        table_cell(t, "%.6g", json_number_value(json_object_get(x, "scale")));
        table_cell(t, "%d", (int)json_integer_value(json_object_get(x, "zero_point")));
        table_cell(t, "%.4g", json_number_value(json_object_get(x, "low")));
        table_cell(t, "%.4g", json_number_value(json_object_get(x, "high")));
    }
    table_print(t);
}

/* Are the data looked at where no ranges are? */
static bool looks(const QuantizeOptions *o)
{
    return o->smooth > 0 || o->correct || o->budget || (o->method && strcmp(o->method, "rtn"));
}

/* "99.72 % (holds 99 %, not 99.9 %)": the two shares of the floats' accuracy that MLPerf asks for. */
static const char *gates(double share, char *text, size_t size)
{
    const bool one = share >= 0.99, two = share >= 0.999;
    snprintf(text, size, "%.2f %% (%s)", floor(share * 1e4) / 100,
             two   ? "holds 99 % and 99.9 %"
             : one ? "holds 99 %, not 99.9 %"
                   : "holds neither 99 % nor 99.9 %");
    return text;
}

/* The results beside those of the floats, and the user's own figure. */
static void tell_accuracy(const QuantizeOptions *o, json_t *report)
{
    size_t i;
    json_t *x, *metric = json_object_get(report, "metric");
    char text[80];
    json_array_foreach(json_object_get(report, "outputs"), i, x)
    {
        const json_int_t rows = json_integer_value(json_object_get(x, "rows")),
                         same = json_integer_value(json_object_get(x, "same_argmax"));
        show("%s: cosine %.6f against the floats, largest difference %.3g", text_at(x, "output"),
             json_number_value(json_object_get(x, "cosine")), json_number_value(json_object_get(x, "max_abs")));
        if (rows)
            show("; the same arg-max in %lld of %lld rows, %s", (long long)same, (long long)rows,
                 gates((double)same / (double)rows, text, sizeof text));
        show("\n");
    }
    if (!metric) return;
    const double floats = json_number_value(json_object_get(metric, "floats")),
                 ours = json_number_value(json_object_get(metric, "quantized"));
    const bool less = o->budget && !strncmp(o->budget, "metric<=", 8);
    show("metric: %.6g in floats, %.6g quantized", floats, ours);
    if (floats > 0 && ours > 0) show(", %s", gates(less ? floats / ours : ours / floats, text, sizeof text));
    show("; %d calls\n", (int)json_integer_value(json_object_get(metric, "calls")));
}

/* A figure that a budget limits: of a cosine or a divergence as many decimals as show two digits of the loss. */
static void figure(const char *name, double x, char *text, size_t size)
{
    const bool cosine = !strcmp(name, "cosine");
    const double loss = cosine ? 1 - x : x;
    const int decimals = loss < 1e-9 ? 10 : loss >= 0.1 ? 2 : 1 - (int)floor(log10(loss));
    if (cosine || !strcmp(name, "kl")) snprintf(text, size, "%.*f", decimals, x);
    else snprintf(text, size, fabs(x) < 1e6 ? "%.6g" : "%.0f", x);
}

/* "cosine 0.999971 with all 17 layers quantized, 0.9999917 with 9 of them left in floats (limit 0.99999)" */
static void tell_budget(json_t *report)
{
    json_t *budget = json_object_get(report, "budget"), *x;
    const char *name = text_at(budget, "metric");
    const int kept = (int)json_integer_value(json_object_get(budget, "kept"));
    const double limit = json_number_value(json_object_get(budget, "limit"));
    char all[40], reached[40];
    int tried = 0;
    size_t i;
    if (!budget) return;
    json_array_foreach(json_object_get(report, "sites"), i, x) tried += json_object_get(x, "rank") != NULL;
    figure(name, json_number_value(json_object_get(budget, "all")), all, sizeof all);
    figure(name, json_number_value(json_object_get(budget, "reached")), reached, sizeof reached);
    show("%s %s with all %d layers quantized", strcmp(name, "kl") ? name : "divergence", all, tried);
    if (!kept) show(", which holds the limit %.9g\n", limit);
    else
        show(", %s with %d of them %s (limit %.9g)\n", reached, kept,
             json_integer_value(json_object_get(report, "weight_bits")) == 4 ? "in 8 bits" : "left in floats", limit);
}

static void tell(const QuantizeOptions *o, json_t *report)
{
    const bool trained = !strcmp(text_at(report, "calibration"), "trained");
    if (!strcmp(text_at(report, "data"), "random") && !trained && ((!o->dynamic && !o->weights) || looks(o)))
        warning(
            "the ranges come from random inputs and say little of a trained model: give real ones with --calibrate");
    if (o->common.json) {
        json_object_set_new(report, "model", json_text(o->common.arg[0]));
        json_object_set_new(report, "output", json_text(o->write.output));
        json_print(json_incref(report));
        return;
    }
    if (o->explain) tell_sites(report);
    tell_budget(report);
    if (trained)
        show("%d weights of %d bits, with the quantizers that the model was trained with\n",
             (int)json_integer_value(json_object_get(report, "weights")),
             (int)json_integer_value(json_object_get(report, "weight_bits")));
    else
        show("%d quantized, %d left in floats, %d weights of %d bits (target %s, %s)\n",
             (int)json_integer_value(json_object_get(report, "quantized")),
             (int)json_integer_value(json_object_get(report, "left")),
             (int)json_integer_value(json_object_get(report, "weights")),
             (int)json_integer_value(json_object_get(report, "weight_bits")), text_at(report, "target"),
             text_at(report, "calibration"));
    tell_accuracy(o, report);
}

/* ------------------------------------------------------------------ */

/* A name of --skip that nothing has: the error, with the weight's name that is nearest to it. */
static int nothing_skipped(const List *skip, const qkv_model *m, const qkv_error *e)
{
    const int count = qkv_model_weight_count(m);
    const char **names = must(calloc((size_t)count + 1, sizeof *names)), *close = NULL;
    int n = 0;
    Words asked;
    words_of(skip, &asked);
    for (int i = 0; i < count; i++) {
        qkv_tensor t;
        names[n] = qkv_model_weight(m, i, &t, NULL, NULL);
        n += t.rank > 1; /* norms and biases are not quantized */
    }
    for (int i = 0; i < asked.n && e->code == QKV_USAGE && !close; i++)
        if (strstr(e->message, " is called '") && strstr(e->message, asked.name[i]))
            close = nearest(asked.name[i], names, n);
    int code = close ? problem((int)e->code, "%s; did you mean '%s'?", e->message, close) : problem_of(e);
    words_free(&asked);
    free(names);
    return code;
}

static int quantize(const QuantizeOptions *o, const qkv_model *m, const NamedTensors *d)
{
    Progress progress = {0};
    WriteOptions write = o->write;
    Words skip;
    qkv_error e;
    char *text = NULL;
    write.target = ends_in(write.output, ".onnx") ? o->target : NULL;
    Metric metric = {o->metric, &write, &progress, 0};
    words_of(&o->skip, &skip);
    qkv_quantize_options call = {.struct_size = sizeof call,
                                 .target = o->target,
                                 .percentile = o->percentile,
                                 .asymmetric = o->asymmetric,
                                 .dynamic = o->dynamic,
                                 .names = d->name,
                                 .data = d->tensor,
                                 .n_data = d->n,
                                 .batch = o->batch,
                                 .skip = skip.name,
                                 .n_skip = skip.n,
                                 .threads = (int)o->model.threads,
                                 .seed = (uint64_t)o->seed,
                                 .progress = on_batch,
                                 .progress_user = &progress,
                                 .smooth = o->smooth,
                                 .correct = o->correct,
                                 .budget = o->budget,
                                 .metric = o->metric ? metric_ask : NULL,
                                 .metric_user = &metric,
                                 .metric_calls = (int)o->calls,
                                 .massive = o->massive,
                                 .calibration_cache = o->cache,
                                 .weight_bits = !o->weights                  ? 0
                                                : strcmp(o->weights, "int4") ? 8
                                                                             : 4,
                                 .group = (int)o->group,
                                 .weight_method = o->method,
                                 .trainable = o->trainable};
    int code = CHOICE("--calibration", o->calibration, calibration, &call.calibration);
    qkv_model *made = code ? NULL : qkv_model_quantize(m, &call, &text, &e);
    progress_end(&progress);
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    if (!code && !made && metric.code) code = metric.code;
    else if (!code)
        code = made ? model_write(&write, &o->common, made, NULL, report) : nothing_skipped(&o->skip, m, &e);
    if (!code && report && o->plot) code = quantize_plot(o->plot, report);
    if (!code && report) tell(o, report);
    json_decref(report);
    qkv_free(text);
    words_free(&skip);
    qkv_model_free(made);
    return code;
}

static int open_data(const QuantizeOptions *o, const qkv_model *m, NamedTensors *data)
{
    struct stat st;
    const bool images = !stat(o->data, &st) && S_ISDIR(st.st_mode);
    if (images) return named_open_images(o->data, &o->norm, &o->dim, m, data);
    if (o->norm.mean || o->norm.std || o->norm.scale > 0 || o->dim.n)
        return problem(QKV_USAGE, "--mean, --std, --scale and -D are for images; '%s' is not a folder of them",
                       o->data);
    int code = named_open(o->data, data);
    return code || data->n ? code
                           : problem(QKV_USAGE,
                                     "'%s' holds no tensors to calibrate with: expected an array for each input, one "
                                     "example a row (.npz, .safetensors, .npy), or a folder of images",
                                     o->data);
}

/* Options that contradict each other, or would do nothing. */
static int check_options(const QuantizeOptions *o)
{
    const bool ranges = !o->dynamic && !o->weights, by_metric = o->budget && !strncmp(o->budget, "metric", 6);
    if (!o->write.output) return problem(QKV_USAGE, "quantize needs -o FILE");
    if (o->weights && strcmp(o->weights, "int8") && strcmp(o->weights, "int4"))
        return problem(QKV_USAGE, "--weights-only %.40s: expected int8 or int4", o->weights);
    if (by_metric && !o->metric)
        return problem(QKV_USAGE, "--budget '%s' limits the figure of --metric COMMAND: give it, too", o->budget);
    if (o->plot && !ends_in(o->plot, ".svg"))
        return problem(QKV_USAGE, "option '--plot': found '%s', expected a file that ends in .svg", o->plot);
    if (o->plot && !o->budget) return problem(QKV_USAGE, "--plot draws what --budget measures: give it, too");
    if (!o->weights && (o->group || o->method))
        return problem(QKV_USAGE, "--group and --method say how --weights-only rounds: give it, too");
    if (o->calls && !(by_metric && o->metric))
        return problem(QKV_USAGE, "--metric-calls is how often --budget 'metric>=X' asks --metric: give both, too");
    if (!ranges && (o->calibration || o->cache || o->percentile > 0))
        return problem(QKV_USAGE,
                       "--calibration, --calibration-cache and --percentile are about ranges, and %s has none: leave "
                       "them out",
                       o->dynamic ? "--dynamic" : "--weights-only");
    if (o->percentile > 0 && (!o->calibration || strcmp(o->calibration, "percentile")))
        return problem(QKV_USAGE, "--percentile goes with --calibration percentile");
    if (o->weights && !o->dynamic && (o->asymmetric || o->massive > 0))
        return problem(QKV_USAGE, "--asymmetric and --massive are about what layers read, which --weights-only leaves "
                                  "in floats: give --dynamic, too, or leave them out");
    if (o->write.opset && o->write.opset < 19 && o->target && strstr(o->target, "fp8"))
        return problem(QKV_USAGE, "option '--opset': found %d, and float8 is quantized from opset 19 on",
                       (int)o->write.opset);
    if (o->trainable && ends_in(o->write.output, ".qkv"))
        return problem(QKV_USAGE, "--trainable makes a model to be trained, which a packed one cannot be: expected -o "
                                  "FILE.pt2 or FILE.onnx");
    int code = o->plot ? folder_is_there(o->plot) : 0;
    if (!code && o->cache) code = folder_is_there(o->cache);
    return code ? code : model_can_write(&o->write, true);
}

static int cmd_quantize(const void *options)
{
    const QuantizeOptions *o = options;
    qkv_model *m = NULL;
    NamedTensors data = {0};
    int code = check_options(o);
    if (!code) code = model_load(&o->model, o->common.arg[0], false, false, &m);
    if (!code && o->data) code = open_data(o, m, &data);
    if (!code) code = quantize(o, m, &data);
    named_close(&data);
    qkv_model_free(m);
    return code;
}

static const char *listed(const char *of(int i))
{
    static char text[160];
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; of(i); i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s%s", i ? ", " : "", of(i), i ? "" : " (default)");
    snprintf(text + at, sizeof text - at, ".");
    return text;
}

static const char *listed_targets(void) { return listed(qkv_quantize_target); }
static const char *calibration_at(int i) { return qkv_calibration_name((qkv_calibration)i); }
static const char *listed_calibrations(void) { return listed(calibration_at); }

#define AT(field) offsetof(QuantizeOptions, field)
static const Option own[] = {
    {"calibrate", TEXT, AT(data), .arg = "FILE",
     .help = "Example inputs (.npz, .safetensors, .npy), tensors by the names of inputs, one example a row; or a "
             "folder of PNG and JPEG images for a model whose input is one. Without it the ranges come from random "
             "inputs, which is only good for measuring speed."},
    {"dim", MANY, AT(dim), .letter = 'D', .arg = "NAME=N",
     .help = "Set a size of the images where the model leaves it open. " DIM_NAME},
    {"calibration", TEXT, AT(calibration), .arg = "HOW", .more = listed_calibrations,
     .help = "How what was seen becomes a range:"},
    {"calibration-cache", TEXT, AT(cache), .arg = "FILE", .writes = true, .reads = true,
     .help = "Keep what calibration has seen in FILE (.safetensors): a run that was stopped goes on there, and one "
             "with the same model, data and --calibration does not look again."},
    {"percentile", REAL, AT(percentile), .arg = "P",
     .help = "With --calibration percentile: what so many of 100 absolute values stay below (default 99.99)."},
    {"smooth", REAL, AT(smooth), .arg = "ALPHA",
     .help = "SmoothQuant: before anything is rounded, what is far larger in a few channels of norms moves into the "
             "weights that read them, the more the nearer ALPHA is to 1. 0.4 to 0.6 suit most models; the data that it "
             "looks at are those of --calibrate, with --dynamic, too (default 0: not)."},
    {"correct-biases", FLAG, AT(correct),
     .help = "Add to every bias what rounding the weights takes from the mean result over the data."},
    {"budget", TEXT, AT(budget), .arg = "LIMIT",
     .help = "How near to stay to the floats: cosine>=0.999, or kl<=0.01 (of the softmax of the results). Each layer "
             "is measured, quantized alone and in time, and those stay in floats (with --weights-only int4 in 8 "
             "bits) that cost the least time (size) and hold the limit; --explain lists the figures. metric>=0.98, "
             "metric<=12 and metric>=99% (of the floats' figure) limit the figure of --metric."},
    {"plot", TEXT, AT(plot), .arg = "FILE.svg", .writes = true,
     .help = "Draw what --budget measured: of each layer what it loses alone, its time both ways, and which went back "
             "to floats."},
    {"metric", TEXT, AT(metric), .arg = "COMMAND",
     .help =
         "A figure of yours, such as the accuracy on labelled data: the shell runs COMMAND with the path of a model "
         "where {} stands, or after it; the last line that it prints has one number. Told of the floats and of what "
         "is written, and what --budget limits: layers go back to floats until it holds."},
    {"metric-calls", INTEGER, AT(calls), .arg = "N", .min = 2, .max = 1 << 20,
     .help = "How often --budget runs the command of --metric at most (default 20)."},
    {"massive", REAL, AT(massive), .arg = "N",
     .help =
         "Leave in floats what reads values with elements N times their median (default 1000), in a few channels or "
         "tokens: one scale, or one a token, would round the others to 0. With --dynamic they are looked for in the "
         "data of --calibrate, if given."},
    {"batch", INTEGER, AT(batch), .arg = "N", .min = 1, .max = 1 << 24,
     .help = "Rows of the data a run takes (default: the model's batch where it is fixed, else 32, or the nearest that "
             "it allows)."},
    {"seed", INTEGER, AT(seed), .arg = "N", .min = 0, .max = INT64_MAX, .help = "Of random inputs (default 0)."},
    {"dynamic", FLAG, AT(dynamic),
     .help = "Quantize every linear layer with a scale a token, which each run finds: no calibration. Attention stays "
             "in floats."},
    {"weights-only", TEXT, AT(weights), .arg = "TYPE",
     .help = "int8 or int4: round the weights of linear layers alone, by a scale for --group elements of a row. What "
             "layers read stays in floats or, with --dynamic, is rounded by a scale a token. No calibration but for "
             "--method."},
    {"group", INTEGER, AT(group), .arg = "N", .min = 8, .max = 32768,
     .help = "With --weights-only: elements of a row that share a scale, a multiple of 8, halved until it divides the "
             "row; longer than a row: a scale a row (default 32)."},
    {"method", TEXT, AT(method), .arg = "HOW",
     .help = "With --weights-only: rtn (default) rounds to the nearest, gptq makes good by later columns what rounding "
             "a column loses, awq multiplies the weights that read the largest channels of norms, which are "
             "divided, awq+gptq does both. They look at the data of --calibrate."},
    {"trainable", FLAG, AT(trainable),
     .help =
         "Leave weights in floats, each with its quantizer, through which gradients go straight: for qkv joint and "
         "qkv train. A model that was trained so keeps its quantizers when it is quantized, without further options."},
    {"asymmetric", FLAG, AT(asymmetric),
     .help = "Quantize activations to unsigned integers with a zero point. By default they are signed and symmetric, "
             "which TensorRT asks for."},
    {"target", TEXT, AT(target), .arg = "NAME", .more = listed_targets,
     .help = "Runtime whose kernels decide where quantizers go, and for which an ONNX file is written:"},
    {"skip", MANY, AT(skip), .arg = "LIST",
     .help = "Leave these nodes, weights or ops (aten.convolution*) in floats, A,B,C, with * and ?. May be given many "
             "times. A name that no layer, weight or op has is an error."},
    {"explain", FLAG, AT(explain),
     .help = "Also list every layer and attention, with the reason where it is left, and "
             "every scale."},
    {"opset", INTEGER, AT(write.opset), .arg = "N", .min = 13, .max = 25,
     .help = "ONNX opset, 13 to 25 (default: the first from 18 on that has the quantizers: 19 for float8, 21 for "
             "scales of blocks, which --dynamic and --weights-only have)."},
    {"external-data", FLAG, AT(write.external),
     .help = "Write the weights to FILE.data, next to the model. By default this is done above 2 GiB only."},
    {"threads", INTEGER, AT(model.threads), .arg = "N", .min = 1, .max = 1024,
     .help = "Threads of the runs (default: all). Results do not depend on it."},
    {"output", TEXT, AT(write.output), .letter = 'o', .arg = "FILE", .writes = true,
     .help = "Output file: FILE.onnx, FILE.pt2, or FILE.qkv for this CPU, as qkv pack writes it. The file is written "
             "completely or not at all."},
    {0},
};

const Command command_quantize = {
    .name = "quantize",
    .args = "MODEL -o FILE",
    .summary = "Write a model whose linear layers and attentions multiply integers of 8 bits",
    .text =
        "Recognises attention, runs the model on example inputs, and writes it with quantizers where the target "
        "multiplies integers: weights by a scale a channel, activations by one scale each, the probabilities of "
        "attention by 1/127. Biases, norms and softmax stay in floats. ONNX gets QuantizeLinear and DequantizeLinear, "
        ".pt2 gets quantized_decomposed ops (import torch.ao.quantization.fx._decomposed before torch.export.load); "
        "qkv runs both in integers, and .qkv, which holds them as it runs them (qkv pack). --weights-only rounds the "
        "weights of linear layers alone, in blocks, for decoding token by token: DequantizeLinear by blocks from opset "
        "21 on, ONNX Runtime's MatMulNBits below.\n\n"
        "Prints how near the results are to those of the floats. What the target cannot run as integers stays in "
        "floats, and --explain says why.",
    .examples = "qkv quantize vit.pt2 --calibrate images.npz -o vit.int8.onnx\twith the least and largest values seen\n"
                "qkv quantize vit.pt2 --calibrate photos --mean 0.5 --std 0.5 -o vit.int8.onnx\ta folder of images\n"
                "qkv quantize vit.pt2 --calibrate images.npz --target tensorrt-10 --explain -o vit.onnx\t"
                "where TensorRT fuses attention\n"
                "qkv quantize vit.pt2 --calibrate images.npz --metric 'python3 accuracy.py' --budget 'metric>=99.9%' "
                "-o vit.onnx\tas fast as the accuracy that you measure allows\n"
                "qkv quantize bert.pt2 --dynamic -o bert.int8.pt2\tno data needed\n"
                "qkv quantize bert.pt2 --dynamic -o bert.int8.qkv\tpacked for this machine\n"
                "qkv quantize llama.pt2 --weights-only int4 --group 64 -o llama.int4.onnx\tfor decoding token by token",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(QuantizeOptions),
    .options = {{own}, {norm_options, AT(norm)}, {load_options, AT(model)}, {json_option}, {common_options}},
    .run = cmd_quantize,
};
