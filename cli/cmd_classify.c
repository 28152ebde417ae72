/* qkv classify MODEL x.png...: what is in the pictures? The input's shape says how pictures are read; softmax over
 * the first output.
 *
 *     qkv classify digits.pt2 --labels digits.txt 7.png 3.png
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

typedef struct ClassifyOptions {
    Common common;
    ModelOptions model;
    ImageNorm norm;
    const char *labels;
    int64_t top;
} ClassifyOptions;

enum { MAX_BATCH = 64 };

typedef struct Labels {
    char **line;
    int n;
} Labels;

static int read_labels(const char *path, Labels *l)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    FILE *f = fopen(path, "r");
    if (!f) return problem(QKV_UNREADABLE, "%s: %s", path, strerror(errno));
    while ((len = getline(&line, &cap, f)) > 0) {
        while (len && strchr("\r\n", line[len - 1])) line[--len] = 0;
        l->line = must(realloc(l->line, ((size_t)l->n + 1) * sizeof *l->line));
        l->line[l->n++] = must(strdup(line));
    }
    free(line);
    bool failed = ferror(f) != 0;
    fclose(f);
    return failed ? problem(QKV_UNREADABLE, "%s: cannot be read", path) : 0;
}

static void free_labels(Labels *l)
{
    for (int i = 0; i < l->n; i++) free(l->line[i]);
    free(l->line);
}

/* The picture's sizes from the model's one input; a batch of more than one repeats the picture. */
static int picture_shape(const qkv_model *m, int64_t *shape, int *rank)
{
    *rank = qkv_model_input_rank(m, 0);
    if (qkv_model_input_count(m) != 1 || (*rank != 3 && *rank != 4) || qkv_model_input_dtype(m, 0) != QKV_F32)
        return problem(QKV_USAGE, "qkv classify needs a model with one f32 input: (batch, channels, height, width) or "
                                  "(channels, height, width)");
    for (int k = 0; k < *rank; k++) {
        int64_t max;
        shape[k] = input_fixed_dim(m, 0, k);
        if (*rank == 4 && k == 0 && shape[k] < 0) {
            input_dim_range(m, 0, 0, &shape[0], &max);
            if (shape[0] < 1 && max >= 1) shape[0] = 1;
        }
        if (shape[k] < 0)
            return problem(QKV_USAGE, "input '%s': axis %d is %s; qkv classify needs fixed sizes",
                           qkv_model_input_name(m, 0), k, qkv_model_input_dim(m, 0, k));
    }
    int64_t channels = shape[*rank - 3];
    if (channels != 1 && channels != 3)
        return problem(QKV_USAGE, "input '%s' has %lld channels; an image has 1 or 3", qkv_model_input_name(m, 0),
                       (long long)channels);
    if (*rank == 4 && shape[0] > MAX_BATCH)
        return problem(QKV_USAGE, "input '%s': a batch of at least %lld is too many", qkv_model_input_name(m, 0),
                       (long long)shape[0]);
    return 0;
}

/* Softmax of the first row of the output; p has room for every class. */
static void softmax(const qkv_tensor *t, int64_t classes, double *p)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < classes; i++) max = fmax(max, p[i] = tensor_number(t, i));
    for (int64_t i = 0; i < classes; i++) sum += p[i] = exp(p[i] - max);
    for (int64_t i = 0; i < classes; i++) p[i] /= sum;
}

typedef struct Classifier {
    const ClassifyOptions *o;
    Loaded m;
    Labels labels;
    int rank;
    int64_t shape[4];
    size_t plane; /* floats of one picture */
    float *pixels, mean[4], std[4];
    Table *table;
    json_t *json;
} Classifier;

static const char *label_of(const Classifier *c, int64_t class, char *buf, size_t size)
{
    if (class < c->labels.n) return c->labels.line[class];
    snprintf(buf, size, "%lld", (long long)class);
    return buf;
}

/* The most likely classes, best first. */
static void tell(Classifier *c, const char *path, double *p, int64_t classes, double ms)
{
    char buf[32];
    json_t *best = json_array();
    for (int64_t k = 0; k < c->o->top && k < classes; k++) {
        int64_t at = 0;
        for (int64_t i = 1; i < classes; i++)
            if (p[i] > p[at]) at = i;
        const char *label = label_of(c, at, buf, sizeof buf);
        if (c->table) {
            table_cell(c->table, "%s", k ? "" : path);
            table_cell(c->table, "%s", label);
            table_cell(c->table, "%.1f %%", 100 * p[at]);
            if (k) table_cell(c->table, "%s", "");
            else table_cell(c->table, "%.2f ms", ms);
        } else
            json_array_append_new(best, json_pack("{s:I, s:o, s:o}", "class", (json_int_t)at, "label", json_text(label),
                                                  "probability", json_number(p[at])));
        p[at] = -1;
    }
    if (c->json)
        json_array_append_new(c->json,
                              json_pack("{s:o, s:f, s:O}", "file", json_text(path), "ms", ms, "classes", best));
    json_decref(best);
}

static int classify(Classifier *c, const char *path)
{
    qkv_error e;
    qkv_tensor x = {QKV_F32, c->rank, c->shape, NULL, c->pixels}, y;
    int height = (int)c->shape[c->rank - 2], width = (int)c->shape[c->rank - 1];
    if (qkv_image_read(path, (int)c->shape[c->rank - 3], height, width, c->mean, c->std, c->pixels, &e))
        return problem_of(&e);
    for (int64_t b = 1; c->rank == 4 && b < c->shape[0]; b++)
        memcpy(c->pixels + (size_t)b * c->plane, c->pixels, c->plane * sizeof *c->pixels);
    if (qkv_session_set_input(c->m.session, "0", &x, &e)) return problem_of(&e);
    double start = now_ms();
    if (qkv_session_run(c->m.session, &e)) return problem_of(&e);
    double ms = now_ms() - start;
    if (qkv_session_output(c->m.session, 0, &y, &e)) return problem_of(&e);
    int64_t classes = y.rank ? y.shape[y.rank - 1] : 0;
    char text[256];
    if (classes < 1 || (y.rank != c->rank - 2 && y.rank != 1))
        return problem(QKV_USAGE, "%s is %s, expected (batch, classes)", qkv_model_output_name(c->m.model, 0),
                       shape_text(&y, text, sizeof text));
    if (c->labels.n && c->labels.n != classes)
        return problem(QKV_USAGE, "%s: %d labels for %lld classes", c->o->labels, c->labels.n, (long long)classes);
    double *p = must(malloc((size_t)classes * sizeof *p));
    softmax(&y, classes, p);
    tell(c, path, p, classes, ms);
    free(p);
    return 0;
}

/* The first run plans, the second packs weights; they are done on a blank picture so that the times shown are those
 * of a picture. */
static int warm_up(Classifier *c)
{
    qkv_error e;
    qkv_tensor x = {QKV_F32, c->rank, c->shape, NULL, c->pixels};
    bool ok = !qkv_session_set_input(c->m.session, "0", &x, &e);
    for (int i = 0; ok && i < 2; i++) ok = !qkv_session_run(c->m.session, &e);
    return ok ? 0 : problem_of(&e);
}

static int prepare(Classifier *c, bool bf16)
{
    int code = c->o->labels ? read_labels(c->o->labels, &c->labels) : 0;
    if (code || (code = model_open(&c->o->model, c->o->common.arg[0], bf16, false, &c->m))) return code;
    if ((code = picture_shape(c->m.model, c->shape, &c->rank))) return code;
    if ((code = image_norm(&c->o->norm, (int)c->shape[c->rank - 3], c->mean, c->std))) return code;
    c->plane = (size_t)(c->shape[c->rank - 3] * c->shape[c->rank - 2] * c->shape[c->rank - 1]);
    c->pixels = must(calloc(c->plane * (size_t)(c->rank == 4 ? c->shape[0] : 1) + 1, sizeof *c->pixels));
    return warm_up(c);
}

static int cmd_classify(const void *options)
{
    const ClassifyOptions *o = options;
    static const char *const head[] = {"image", "label", "probability", "time"};
    Classifier c = {.o = o};
    Progress bar;
    bool bf16;
    int code = model_bf16(&o->model, &bf16);
    if (!code) code = prepare(&c, bf16);
    if (o->common.json) c.json = json_array();
    else c.table = table_new("llrr");
    for (int i = 0; c.table && i < 4; i++) table_cell(c.table, "%s", head[i]);
    progress_start(&bar, "classify", o->common.narg - 1);
    for (int i = 1; !code && i < o->common.narg; i++) {
        code = classify(&c, o->common.arg[i]);
        progress_at(&bar, i);
    }
    progress_end(&bar);
    if (!code && o->common.json)
        json_print(json_pack("{s:i, s:o, s:O}", "schema", JSON_SCHEMA, "model", json_text(o->common.arg[0]), "pictures",
                             c.json));
    json_decref(c.json);
    if (!code && c.table) table_print(c.table);
    else if (c.table) table_free(c.table);
    free(c.pixels);
    free_labels(&c.labels);
    model_close(&c.m);
    return code;
}

#define AT(field) offsetof(ClassifyOptions, field)
static const Option own[] = {
    {"labels", TEXT, AT(labels), .arg = "FILE", .help = "Names of the classes, one per line."},
    {"top", INTEGER, AT(top), .arg = "N", .min = 1, .max = 1000,
     .help = "Print the N most likely classes (default 1)."},
    {0},
};

const Command command_classify = {
    .name = "classify",
    .args = "MODEL IMAGE...",
    .summary = "Classify images",
    .text =
        "Reads PNG or JPEG images at the size and with the channels of the model's input, runs the model, and prints "
        "the most likely class, its probability (softmax of the first output) and the time of the run.",
    .examples = "qkv classify digits.pt2 --labels digits.txt 7.png 3.png\tone line per image\n"
                "qkv classify vit.pt2 --mean 0.5 --std 0.5 --top 5 cat.jpg\tthe five most likely classes",
    .min_args = 2,
    .max_args = -1,
    .size = sizeof(ClassifyOptions),
    .defaults = &(const ClassifyOptions){.top = 1},
    .options = {{own},
                {norm_options, AT(norm)},
                {load_options, AT(model)},
                {dtype_option, AT(model)},
                {skip_padding_option, AT(model)},
                {run_options, AT(model)},
                {cache_option, AT(model)},
                {json_option},
                {common_options}},
    .run = cmd_classify,
};
