/* qkv verify MODEL -i IN -e EXPECTED, qkv verify MODEL OTHER: are the outputs the same?
 *
 * An element differs when |got - expected| > atol + rtol * |expected|. Without --atol the tolerance is a share of the
 * output's largest
 * expected value, which is what "equal to PyTorch" means for a deep network: errors are as large as the terms that
 * were summed.
 */
#include "verify.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ tolerances */

/* "1e-4" or "output_0:1e-4". The name's length is 0 when there is none. */
static bool parse_tolerance(const char *text, int *name_len, double *value)
{
    const char *colon = strrchr(text, ':'), *number = colon ? colon + 1 : text;
    char *end;
    *value = strtod(number, &end);
    *name_len = colon ? (int)(colon - text) : 0;
    return end != number && !*end && isfinite(*value) && *value >= 0;
}

static bool is_called(const char *text, int len, const char *name)
{
    return strlen(name) == (size_t)len && !strncmp(name, text, (size_t)len);
}

static int check_list(const char *option, const List *l, const VerifyOptions *o, const qkv_model *m)
{
    for (int i = 0; i < l->n; i++) {
        int len;
        double v;
        if (!parse_tolerance(l->item[i], &len, &v))
            return problem(QKV_USAGE, "option '--%s': found '%s', expected X or OUTPUT:X", option, l->item[i]);
        bool known = !len || o->nodes;
        for (int k = 0; k < qkv_model_output_count(m); k++) {
            known |= is_called(l->item[i], len, qkv_model_output_name(m, k)) ||
                     is_called(l->item[i], len, qkv_model_output_label(m, k));
        }
        if (!known) return problem(QKV_USAGE, "option '--%s': the model has no output '%.*s'", option, len, l->item[i]);
    }
    return 0;
}

int check_tolerances(const VerifyOptions *o, const qkv_model *m)
{
    int code = check_list("atol", &o->atol, o, m);
    return code ? code : check_list("rtol", &o->rtol, o, m);
}

/* What the user gave for this output, else for all, else -1. */
static double tolerance(const List *l, const char *name, const char *label)
{
    double all = -1, mine = -1, v;
    for (int i = 0, len; i < l->n; i++) {
        parse_tolerance(l->item[i], &len, &v);
        if (!len) all = v;
        else if (is_called(l->item[i], len, name) || is_called(l->item[i], len, label)) mine = v;
    }
    return mine >= 0 ? mine : all;
}

/* ------------------------------------------------------------------ comparing */

static double peak_of(qkv_tensor t)
{
    double peak = 0;
    int64_t shape[QKV_MAX_RANK];
    tensor_once(&t, shape);
    for (int64_t i = 0, n = tensor_count(&t); i < n; i++) {
        double v = fabs(tensor_number(&t, i));
        if (isfinite(v) && v > peak) peak = v;
    }
    return peak;
}

int output_tolerances(const qkv_model *m, const qkv_model *other, double **share)
{
    qkv_error e;
    int n = qkv_model_output_count(m);
    double *more = must(calloc((size_t)n + 1, sizeof *more));
    *share = must(calloc((size_t)n + 1, sizeof **share));
    int code = qkv_model_output_tolerances(m, *share, &e) ||
                       (other && qkv_model_output_count(other) == n && qkv_model_output_tolerances(other, more, &e))
                   ? problem_of(&e)
                   : 0;
    for (int i = 0; i < n; i++) (*share)[i] = fmax((*share)[i], more[i]);
    free(more);
    return code;
}

int compare(const VerifyOptions *o, const char *name, const char *label, const qkv_tensor *got,
            const qkv_tensor *expected, double slack, double least, Compared *out)
{
    qkv_error e;
    *out = (Compared){
        .name = name, .got = *got, .expected = *expected, .same_shape = got->rank == expected->rank, .differs = true};
    for (int i = 0; out->same_shape && i < got->rank; i++) out->same_shape = got->shape[i] == expected->shape[i];
    out->d.index = -1;
    if (!out->same_shape) return 0;
    double rtol = tolerance(&o->rtol, name, label), atol = tolerance(&o->atol, name, label);
    double share = fmax(least, fmax(qkv_tolerance(got->dtype), qkv_tolerance(expected->dtype)));
    out->rtol = rtol < 0 ? 0 : rtol;
    out->atol = atol >= 0 ? atol : share > 0 ? slack * share * peak_of(*expected) : 0;
    qkv_status s = qkv_compare(got, expected, out->atol, out->rtol, &out->d, &e);
    out->differs = s == QKV_MISMATCH;
    return s && s != QKV_MISMATCH ? problem((int)s, "'%s': %s", name, e.message) : 0;
}

json_t *compared_json(const Compared *c)
{
    const qkv_difference *d = &c->d;
    json_t *j = json_pack("{s:s, s:b, s:s, s:o, s:s, s:o}", "name", c->name, "agrees", !c->differs, "dtype",
                          qkv_dtype_name(c->got.dtype), "shape", json_shape(&c->got), "expected_dtype",
                          qkv_dtype_name(c->expected.dtype), "expected_shape", json_shape(&c->expected));
    if (!c->same_shape) return j;
    json_object_update_new(j, json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o}", "max_abs", json_number(d->max_abs),
                                        "max_rel", json_number(d->max_rel), "max_abs_over_peak",
                                        json_number(d->max_abs_over_peak), "cosine", json_number(d->cosine), "failed",
                                        (json_int_t)d->failed, "nonfinite_mismatch", (json_int_t)d->nonfinite_mismatch,
                                        "atol", json_number(c->atol), "rtol", json_number(c->rtol)));
    if (d->index >= 0)
        json_object_update_new(j, json_pack("{s:o, s:o, s:o}", "index", json_index(&c->got, d->index), "got",
                                            json_number(d->a), "expected", json_number(d->b)));
    return j;
}

static void print_table(const Compared *c, int n)
{
    char text[256];
    Table *t = table_new("lllrrrrlrrr");
    static const char *const head[] = {"output", "result", "value", "max abs",  "max rel", "of peak",
                                       "cosine", "at",     "got",   "expected", "differ"};
    for (int i = 0; i < 11; i++) table_cell(t, "%s", head[i]);
    for (int i = 0; i < n; i++) {
        const qkv_difference *d = &c[i].d;
        table_cell(t, "%s", c[i].name);
        table_cell(t, c[i].differs ? "DIFFERS" : "ok");
        table_color(t, c[i].differs ? RED : GREEN);
        table_cell(t, "%s %s", qkv_dtype_name(c[i].got.dtype), shape_text(&c[i].got, text, sizeof text));
        if (!c[i].same_shape) {
            for (int k = 0; k < 6; k++) table_cell(t, "-");
            table_cell(t, "%s", shape_text(&c[i].expected, text, sizeof text));
            table_cell(t, "shape");
            continue;
        }
        table_cell(t, "%.3g", d->max_abs);
        table_cell(t, "%.3g", d->max_rel);
        table_cell(t, "%.3g", d->max_abs_over_peak);
        table_cell(t, "%.7f", d->cosine);
        table_cell(t, "%s", d->index < 0 ? "-" : index_text(&c[i].got, d->index, text, sizeof text));
        if (d->index < 0) {
            table_cell(t, "-");
            table_cell(t, "-");
        } else {
            table_cell(t, isnan(d->a) ? "nan" : "%.9g", d->a); /* without the sign that some machines give */
            table_cell(t, isnan(d->b) ? "nan" : "%.9g", d->b);
        }
        table_cell(t, "%lld", (long long)d->failed);
    }
    table_print(t);
}

/* ------------------------------------------------------------------ against a file */

/* Which output a tensor of the file is: output_2, or "2" by position; -1 for none. */
static int output_called(const VerifyOptions *o, const qkv_model *m, const char *name)
{
    char position[16];
    const char *at = strncmp(name, "output_", 7) ? position_of(o->expected, name)
                                                 : name + 7; /* of a model that has other names, too */
    for (int i = 0; i < qkv_model_output_count(m); i++)
        if (!strcmp(name, qkv_model_output_name(m, i)) || !strcmp(name, qkv_model_output_label(m, i))) return i;
    for (int i = 0; i < qkv_model_output_count(m); i++) {
        snprintf(position, sizeof position, "%d", i);
        if (!strcmp(at, position)) return i;
    }
    return -1;
}

/* --skip-padding gives 0 at padding, a file of expected values what PyTorch computed there: rows of the last axis
 * that are 0 throughout are not compared. The
 * expected values with those rows 0, in memory of its own; NULL when there is none. */
static void *without_padding(const char *name, const qkv_tensor *got, qkv_tensor *want)
{
    int64_t size = got->rank ? got->shape[got->rank - 1] : 0, rows = size ? tensor_count(got) / size : 0, padded = 0;
    if (!rows || tensor_count(want) != rows * size || (want->dtype != QKV_F32 && want->dtype != QKV_F64)) return NULL;
    void *data = must(malloc((size_t)(rows * size) * qkv_dtype_size(want->dtype)));
    qkv_tensor copy = {want->dtype, want->rank, want->shape, NULL, data};
    for (int64_t i = 0; i < rows; i++) {
        bool zero = true;
        for (int64_t k = 0; zero && k < size; k++) zero = tensor_number(got, i * size + k) == 0;
        for (int64_t k = 0; k < size; k++) {
            double x = zero ? 0 : tensor_number(want, i * size + k);
            if (want->dtype == QKV_F32) ((float *)data)[i * size + k] = (float)x;
            else ((double *)data)[i * size + k] = x;
        }
        padded += zero;
    }
    if (padded)
        note("%s: %lld of %lld rows are 0, taken for padding and not compared", name, (long long)padded,
             (long long)rows);
    *want = copy;
    return data;
}

static int compare_file(const VerifyOptions *o, const Loaded *m, const qkv_tensors *file, const double *least,
                        Compared *c, int *n)
{
    qkv_error e;
    int count = qkv_model_output_count(m->model);
    for (int i = 0; i < qkv_tensors_count(file); i++)
        if (output_called(o, m->model, qkv_tensors_name(file, i)) < 0)
            return problem(QKV_USAGE, "%s: '%s' is not an output; the model has %s%s%s", o->expected,
                           qkv_tensors_name(file, i), count ? qkv_model_output_name(m->model, 0) : "none",
                           count > 1 ? " to " : "", count > 1 ? qkv_model_output_name(m->model, count - 1) : "");
    for (int i = 0; i < count; i++) {
        const char *name = qkv_model_output_name(m->model, i);
        const qkv_tensor *want = NULL;
        qkv_tensor got;
        for (int k = 0; k < qkv_tensors_count(file); k++)
            if (output_called(o, m->model, qkv_tensors_name(file, k)) == i) want = qkv_tensors_at(file, k);
        if (!want) warning("%s has no '%s': not compared", o->expected, name);
        if (!want) continue;
        if (qkv_session_output(m->session, i, &got, &e)) return problem_of(&e);
        qkv_tensor expected = *want;
        void *owned = o->model.skip_padding ? without_padding(name, &got, &expected) : NULL;
        int code = compare(o, name, qkv_model_output_label(m->model, i), &got, &expected, 1, least[i],
                           &c[*n]);
        c[(*n)++].owned = owned;
        if (code) return code;
    }
    return *n ? 0 : problem(QKV_USAGE, "%s: holds none of the model's outputs", o->expected);
}

/* ------------------------------------------------------------------ against another model */

static int compare_models(const VerifyOptions *o, const Loaded *m, Loaded *other, const double *least, Compared *c,
                          int *n)
{
    qkv_error e;
    int count = qkv_model_output_count(m->model), code;
    if (count != qkv_model_output_count(other->model))
        return problem(QKV_MISMATCH, "number of outputs: %s has %d, %s has %d", o->common.arg[0], count,
                       o->common.arg[1], qkv_model_output_count(other->model));
    if ((code = inputs_share(m, other))) return code;
    if (qkv_session_run(other->session, &e)) return problem((int)e.code, "%s: %s", o->common.arg[1], e.message);
    for (int i = 0; !code && i < count; i++) {
        qkv_tensor got, want;
        if (qkv_session_output(m->session, i, &got, &e) || qkv_session_output(other->session, i, &want, &e))
            return problem_of(&e);
        code = compare(o, qkv_model_output_name(m->model, i), qkv_model_output_label(m->model, i), &got, &want, 1,
                       least[i], &c[(*n)++]);
    }
    return code;
}

/* ------------------------------------------------------------------ the command */

static void report(const VerifyOptions *o, const Compared *c, int n, int differ, json_t *nodes)
{
    if (o->common.json) {
        const char *against = o->expected ? o->expected : o->common.narg > 1 ? o->common.arg[1] : NULL;
        json_t *outputs = json_array();
        for (int i = 0; i < n; i++) json_array_append_new(outputs, compared_json(&c[i]));
        json_t *j = json_pack("{s:i, s:o, s:o, s:b, s:o}", "schema", JSON_SCHEMA, "model", json_text(o->common.arg[0]),
                              "against", json_text(against), "agrees",
                              !differ && !(nodes && json_is_true(json_object_get(nodes, "differs"))), "outputs",
                              outputs);
        if (nodes) json_object_set(j, "nodes", nodes);
        json_print(j);
        return;
    }
    if (!n) return;
    for (int i = 0; i < n; i++)
        if (c[i].got.dtype != c[i].expected.dtype)
            warning("%s is %s, expected %s; their values are compared", c[i].name, qkv_dtype_name(c[i].got.dtype),
                    qkv_dtype_name(c[i].expected.dtype));
    if (o->nodes) putchar('\n');
    print_table(c, n);
    if (differ)
        printf("\n%s%d of %d output%s differ%s%s\n", color_on(RED), differ, n, n == 1 ? "" : "s",
               differ == 1 ? "s" : "", color_off(RED));
    else printf("\n%s%s%s\n", color_on(GREEN), n == 1 ? "the output agrees" : "all outputs agree", color_off(GREEN));
}

static int verify(const VerifyOptions *o, Loaded *m, bool *differs)
{
    qkv_error e;
    Inputs in = {0};
    Loaded other = {0};
    qkv_tensors *file = NULL;
    json_t *nodes = NULL;
    double *least = NULL;
    int n = 0, differ = 0, code = check_tolerances(o, m->model);
    Compared *c = must(calloc((size_t)qkv_model_output_count(m->model) + 1, sizeof *c));
    ModelOptions second = o->model; /* names of sizes are the first model's */
    second.name_dim = (List){0};
    if (!code && o->common.narg > 1) code = model_open(&second, o->common.arg[1], false, o->nodes != NULL, &other);
    if (!code && o->expected && !(file = qkv_tensors_open(o->expected, &e))) code = problem_of(&e);
    if (!code) code = inputs_set(&o->inputs, m, &in);
    if (!code && o->nodes) code = verify_nodes(o, m, differs, &nodes);
    if (!code && (file || other.model) && qkv_session_run(m->session, &e)) code = problem_of(&e);
    if (!code) code = output_tolerances(m->model, other.model, &least);
    if (!code && file) code = compare_file(o, m, file, least, c, &n);
    if (!code && other.model) code = compare_models(o, m, &other, least, c, &n);
    for (int i = 0; i < n; i++) differ += c[i].differs;
    *differs |= differ > 0;
    if (!code) report(o, c, n, differ, nodes);
    for (int i = 0; i < n; i++) free(c[i].owned);
    free(c);
    free(least);
    json_decref(nodes);
    inputs_free(&in);
    qkv_tensors_free(file);
    model_close(&other);
    return code;
}

/* ------------------------------------------------------------------ which pass */

static bool any_differs(const Compared *c, int n)
{
    bool any = false;
    for (int i = 0; i < n; i++) any |= c[i].differs;
    return any;
}

/* One run with the passes of --passes; *worst: the largest difference as a share of the peak. */
static int run_with(const VerifyOptions *o, bool *differs, double *worst)
{
    qkv_error e;
    Inputs in = {0};
    Loaded m = {0}, other = {0};
    ModelOptions plain = o->model;
    qkv_tensors *file = NULL;
    double *least = NULL;
    bool bf16;
    int n = 0, code = model_bf16(&o->model, &bf16);
    plain.passes = NULL;
    if (!code) code = model_open(&o->model, o->common.arg[0], bf16, false, &m);
    if (code) return code;
    Compared *c = must(calloc((size_t)qkv_model_output_count(m.model) + 1, sizeof *c));
    code = check_tolerances(o, m.model);
    if (!code && !o->expected) code = model_open(&plain, o->common.arg[1], false, false, &other);
    if (!code && o->expected && !(file = qkv_tensors_open(o->expected, &e))) code = problem_of(&e);
    if (!code) code = inputs_set(&o->inputs, &m, &in);
    if (!code && qkv_session_run(m.session, &e)) code = problem_of(&e);
    if (!code) code = output_tolerances(m.model, other.model, &least);
    if (!code) code = file ? compare_file(o, &m, file, least, c, &n) : compare_models(o, &m, &other, least, c, &n);
    *differs = any_differs(c, n);
    *worst = 0;
    for (int i = 0; i < n; i++) *worst = fmax(*worst, c[i].d.max_abs_over_peak);
    for (int i = 0; i < n; i++) free(c[i].owned);
    free(c);
    free(least);
    inputs_free(&in);
    qkv_tensors_free(file);
    model_close(&m);
    model_close(&other);
    return code;
}

static void report_bisect(const VerifyOptions *o, const char *first, json_t *runs)
{
    json_t *run;
    size_t i;
    if (o->common.json) {
        json_print(json_pack("{s:i, s:o, s:o, s:O}", "schema", JSON_SCHEMA, "model", json_text(o->common.arg[0]),
                             "first_pass_that_differs", json_text(first), "passes", runs));
        return;
    }
    Table *t = table_new("llr");
    table_cell(t, "after");
    table_cell(t, "result");
    table_cell(t, "of peak");
    json_array_foreach(runs, i, run)
    {
        bool agrees = json_is_true(json_object_get(run, "agrees"));
        table_cell(t, "%s", json_string_value(json_object_get(run, "after")));
        table_cell(t, agrees ? "ok" : "DIFFERS");
        table_color(t, agrees ? GREEN : RED);
        table_cell(t, "%.3g", json_number_value(json_object_get(run, "max_abs_over_peak")));
    }
    table_print(t);
    if (first) printf("\n%soutputs differ from pass '%s' on%s\n", color_on(RED), first, color_off(RED));
    else printf("\n%sthe outputs agree after every pass%s\n", color_on(GREEN), color_off(GREEN));
}

/* More and more of the passes that a session runs, or of --passes. */
static int bisect(const VerifyOptions *o, bool *differs)
{
    VerifyOptions with = *o;
    const char *first = NULL, *name;
    json_t *runs = json_array();
    int code = 0;
    for (int i = 0; !code && (name = qkv_pass_name(i, NULL)); i++) {
        char list[256];
        bool wrong;
        double worst;
        if (!passes_upto(&o->model, name, list, sizeof list)) continue;
        with.model.passes = list;
        if ((code = run_with(&with, &wrong, &worst))) break;
        if (wrong && !first) first = name;
        json_array_append_new(runs, json_pack("{s:s, s:b, s:o}", "after", name, "agrees", !wrong, "max_abs_over_peak",
                                              json_number(worst)));
    }
    *differs = first != NULL;
    if (!code) report_bisect(o, first, runs);
    json_decref(runs);
    return code;
}

static int cmd_verify(const void *options)
{
    const VerifyOptions *o = options;
    Loaded m;
    bool bf16, differs = false;
    int code = model_bf16(&o->model, &bf16);
    if (code) return code;
    if (o->common.narg > 1 && o->expected)
        return problem(QKV_USAGE, "compare with OTHER or with -e EXPECTED, not with both");
    if (o->common.narg == 1 && !o->expected && !o->nodes)
        return problem(QKV_USAGE, "nothing to compare with: give OTHER, -e EXPECTED or --per-node FILE");
    if ((o->expected || o->nodes) && !o->inputs.file && !o->inputs.image.n)
        return problem(QKV_USAGE, "-i FILE is missing: the inputs that the expected values belong to");
    if (o->all && !o->nodes) return problem(QKV_USAGE, "--all goes with --per-node FILE");
    if (o->bisect && o->nodes) return problem(QKV_USAGE, "--per-node runs the file's nodes: it takes no --bisect");
    if (o->bisect) return (code = bisect(o, &differs)) ? code : differs ? QKV_MISMATCH : 0;
    if ((code = model_open(&o->model, o->common.arg[0], bf16, o->nodes != NULL, &m))) return code;
    code = verify(o, &m, &differs);
    model_close(&m);
    return code ? code : differs ? QKV_MISMATCH : 0;
}

#define AT(field) offsetof(VerifyOptions, field)
static const Option own[] = {
    {"expected", TEXT, AT(expected), .letter = 'e', .arg = "FILE",
     .help = "Expected outputs: a .safetensors or .npz file with output_0, output_1, ... (or 0, 1, ..., or the "
             "module's names, such as logits)."},
    {"atol", MANY, AT(atol), .arg = "[OUTPUT:]X",
     .help = "Absolute tolerance, for all outputs or for one. The default is a fraction of the largest expected value "
             "that depends on the dtype: f32 2e-5, f64 1e-12, f16 4e-3, bf16 3e-2, others 0; where the model rounds to "
             "narrower floats on the way to an output, on theirs."},
    {"rtol", MANY, AT(rtol), .arg = "[OUTPUT:]X",
     .help = "Tolerance relative to each expected value, added to --atol (default 0)."},
    {"per-node", TEXT, AT(nodes), .arg = "FILE",
     .help = "Compare every node with the value of its name in FILE, a .safetensors file, and report the first that "
             "differs. The default tolerance of a node is ten times that of an output."},
    {"all", FLAG, AT(all),
     .help = "With --per-node: go on after the first difference, and print a table by module. A node's inputs are what "
             "this run computed, so differences are handed on; the row where they begin is the one to look at. With "
             "-v, every node has a row."},
    {"bisect", FLAG, AT(bisect),
     .help = "Run the model with more and more passes, starting with the nodes of the file, and report the first pass "
             "after which an output differs."},
    {0},
};

const Command command_verify = {
    .name = "verify",
    .args = "MODEL [OTHER]",
    .summary = "Compare a model's outputs with expected ones or with another model's",
    .text =
        "Prints for each output the largest absolute and relative difference, the largest difference as a fraction of "
        "the largest expected value, the cosine, and where the largest difference is. The exit code is 1 when an "
        "output differs.\n\n"
        "An element differs when |got - expected| > atol + rtol * |expected|, or when only one of the two is NaN or "
        "the same infinity. OTHER is a second model file that gets the same inputs; its outputs are the expected "
        "ones. With --dtype bf16 only MODEL runs in bfloat16.\n\n"
        "With --per-node, every node of the file runs by itself and is compared with a recorded value (the Python "
        "package records them); the first node that differs is reported, and how many agreed before it; with "
        "--all, a table by module. With --bisect, the passes that qkv runs over a graph are added one by one, and the "
        "first pass after which an output differs is reported.",
    .examples = "qkv verify vit.pt2 -i in.safetensors -e out.safetensors\tagainst PyTorch's outputs\n"
                "qkv verify vit.pt2 vit.pt2 --dtype bf16 --atol 0.05\twhat bfloat16 costs\n"
                "qkv verify vit.pt2 -i in.safetensors --per-node nodes.safetensors\twhere it goes wrong\n"
                "qkv verify vit.pt2 -i in.safetensors -e out.safetensors --bisect\twhich pass goes wrong",
    .min_args = 1,
    .max_args = 2,
    .size = sizeof(VerifyOptions),
    .defaults = &(const VerifyOptions){.inputs.seed = -1},
    .options = {{input_options, AT(inputs)},
                {norm_options, AT(inputs.norm)},
                {own},
                {load_options, AT(model)},
                {dtype_option, AT(model)},
                {skip_padding_option, AT(model)},
                {run_options, AT(model)},
                {passes_option, AT(model)},
                {json_option},
                {common_options}},
    .run = cmd_verify,
};
