/* qkv check MODEL: findings about a model file, from the library (qkv_check lists the report's keys). */
#include <stdio.h>
#include <string.h>
#include "sarif.h"

typedef struct CheckOptions {
    Common common;
    const char *target, *explain, *certificate;
    bool security, full, strict, sarif;
} CheckOptions;

static int count_of(const json_t *v, const char *key) { return (int)json_integer_value(json_object_get(v, key)); }

/* "Q501  warning  title", and with one id the rest. */
static int explain(const char *id)
{
    bool all = !strcmp(id, "all");
    if (!all && !qkv_check_explain(id))
        return problem(QKV_USAGE, "no finding is called '%s'; 'qkv check --explain all' lists them", id);
    for (int i = 0; qkv_check_id(i); i++) {
        const char *p = qkv_check_explain(qkv_check_id(i)), *line[4];
        int n[4];
        if (!all && p != qkv_check_explain(id)) continue;
        for (int k = 0; k < 4; k++) {
            line[k] = p;
            n[k] = (int)strcspn(p, "\n");
            p += n[k] + (p[n[k]] != 0);
        }
        printf("%s%s%s  %.*s: %.*s\n", color_on(BOLD), qkv_check_id(i), color_off(BOLD), n[1], line[1], n[0], line[0]);
        if (!all) printf("\n%.*s\n\nTo do: %.*s\n", n[2], line[2], n[3], line[3]);
    }
    return 0;
}

static void print_report(const CheckOptions *o, const json_t *j)
{
    const json_t *list = json_object_get(j, "findings");
    json_t *f;
    size_t i;
    bool shown = count_of(j, "errors") || count_of(j, "warnings") || (!o->common.quiet && json_array_size(list));
    if (shown) {
        Table *t = table_new("llll");
        static const char *const head[] = {"severity", "id", "place", "finding"};
        for (int k = 0; k < 4; k++) table_cell(t, "%s", head[k]);
        json_array_foreach(list, i, f)
        {
            const char *severity = text_at(f, "severity");
            if (o->common.quiet && !strcmp(severity, "note")) continue;
            table_cell(t, "%s", severity);
            table_color(t, !strcmp(severity, "error") ? RED : PLAIN);
            table_cell(t, "%s", text_at(f, "id"));
            table_cell(t, "%s", text_at(f, "place"));
            table_cell(t, "%s", text_at(f, "message"));
        }
        table_print(t);
        putchar('\n');
    }
    int errors = count_of(j, "errors"), warnings = count_of(j, "warnings"), notes = count_of(j, "notes");
    int nodes = count_of(j, "nodes"), weights = count_of(j, "weights");
    show("%s: %d node%s, %d weight%s: %d error%s, %d warning%s, %d note%s\n", text_at(j, "file"), nodes,
         nodes == 1 ? "" : "s", weights, weights == 1 ? "" : "s", errors, errors == 1 ? "" : "s", warnings,
         warnings == 1 ? "" : "s", notes, notes == 1 ? "" : "s");
    if (json_array_size(list)) note("'qkv check --explain %s' says more", text_at(json_array_get(list, 0), "id"));
}

/* Is MODEL what its certificate says of the source? */
static int check_certificate(const CheckOptions *o)
{
    qkv_error e;
    qkv_model *m[2] = {NULL, NULL};
    const char *path[] = {o->certificate, o->common.arg[0]};
    ModelOptions plain = {0};
    char *text = NULL;
    int code = 0;
    for (int i = 0; !code && i < 2; i++) code = model_load(&plain, path[i], false, false, &m[i]);
    if (!code && qkv_certificate_check(m[0], m[1], NULL, &text, &e)) code = problem_of(&e);
    json_t *j = text ? json_loads(text, 0, NULL) : NULL, *a;
    size_t i;
    if (j && o->common.json) json_print(json_incref(j));
    else if (j && !code) {
        json_array_foreach(json_object_get(j, "assuming"), i, a) show("assuming: %s\n", json_string_value(a));
        show("%d claims hold: %s\n", count_of(j, "claims"), text_at(j, "sense"));
    }
    json_decref(j);
    qkv_free(text);
    qkv_model_free(m[0]);
    qkv_model_free(m[1]);
    return code;
}

/* Runtimes by their own names, or by those of qkv quantize (tensorrt-10), which say whose kernels it placed for. */
static int targets_of(const char *list, unsigned *out)
{
    for (const char *s = list; s && *s;) {
        char name[32];
        qkv_onnx_profile profile;
        const size_t n = strcspn(s, ",");
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), s);
        for (int i = 0; qkv_quantize_target(i); i++)
            if (!strcmp(qkv_quantize_target(i), name) && profile_of_target(name, &profile))
                snprintf(name, sizeof name, "%s", qkv_onnx_profile_name(profile));
        int code = CHOICES("--target", name, target, out);
        if (code) return code;
        s += n + (s[n] == ',');
    }
    return 0;
}

static int cmd_check(const void *options)
{
    const CheckOptions *o = options;
    qkv_error e;
    char *text = NULL;
    qkv_check_options call = {
        .struct_size = sizeof call,
        .security = o->security,
        .full = o->full,
        .strict = o->strict,
    };
    if (o->explain) return explain(o->explain);
    if (!o->common.narg)
        return problem(QKV_USAGE, "an argument is missing: qkv check MODEL; 'qkv help check' says more");
    if (o->certificate) return check_certificate(o);
    int code = targets_of(o->target, &call.targets);
    if (code) return code;
    qkv_status status = qkv_check(o->common.arg[0], &call, &text, &e);
    if (text) utf8_clean(text);
    json_t *j = text ? json_loads(text, 0, NULL) : NULL;
    bool readable = json_is_true(json_object_get(j, "readable"));
    if (text && !j) status = (qkv_status)problem(EXIT_INTERNAL, "the report cannot be read");
    else if (j && o->sarif) json_print(sarif_of(j));
    else if (j && o->common.json) json_print(json_incref(j));
    else if (j && (readable || json_array_size(json_object_get(j, "findings")) > 1)) print_report(o, j);
    if (status != QKV_OK && status != QKV_MISMATCH && !(text && !j)) problem_of(&e);
    json_decref(j);
    qkv_free(text);
    return (int)status;
}

/* Before a file from elsewhere is looked at. */
static bool wants_sandbox(const void *options) { return ((const CheckOptions *)options)->security; }

#define AT(field) offsetof(CheckOptions, field)
static const Option own[] = {
    {"target", TEXT, AT(target), .arg = "LIST",
     .help = "Also report what these runtimes lack or refuse: some of qkv,ort,openvino,tensorrt, or names of qkv "
             "quantize --target."},
    {"profile", TEXT, AT(target), .arg = "LIST"},
    {"security", FLAG, AT(security),
     .help = "Also check the container itself: pickles and what they would import, code, names that leave the folder, "
             "entries that are duplicated, overlap, or are zip bombs. Runs in the sandbox of qkv --sandbox."},
    {"full", FLAG, AT(full), .help = "Also check the checksums of the weights."},
    {"strict", FLAG, AT(strict), .help = "Exit with code 1 on warnings as well."},
    {"certificate", TEXT, AT(certificate), .arg = "SOURCE",
     .help = "Instead, replay the certificate inside of MODEL (qkv rewrite --certify): that it computes what SOURCE "
             "does, over the reals and for all sizes in range. Exit code 1: it does not hold, and where it breaks."},
    {"sarif", FLAG, AT(sarif),
     .help = "Print the findings as SARIF 2.1.0, the format that code scanning (GitHub, Azure, editors) reads."},
    {"explain", TEXT, AT(explain), .arg = "ID",
     .help = "Explain a finding, such as Q501, and what to do about it; 'all' lists every one. No model is read."},
    {0},
};

const Command command_check = {
    .name = "check",
    .args = "MODEL",
    .summary = "Look for errors and traps in a model file, without running it",
    .text =
        "Checks a .pt2 or ONNX file with code independent of the loader: schema, names, order, types and sizes by "
        "symbolic inference, weights (NaN, infinities, duplicates, unused), constants that were probably meant to "
        "vary, masks whose rows become NaN in some runtimes. All findings are listed, each with an id, a severity, a "
        "place and a remedy.\n\n"
        "The exit code is 0 without errors, 1 with errors (with --strict also with warnings), and 3 when the file "
        "cannot be read at all.",
    .examples = "qkv check bert.pt2\tall findings\n"
                "qkv check bert.onnx --target ort,openvino --strict -q\tin a build\n"
                "qkv check stranger.pt2 --security --full\tbefore using a file from elsewhere\n"
                "qkv check bert.onnx --sarif > findings.sarif\tfor code scanning\n"
                "qkv check --explain Q501\twhat a finding means",
    .min_args = 0,
    .max_args = 1,
    .size = sizeof(CheckOptions),
    .options = {{own}, {json_option}, {common_options}},
    .run = cmd_check,
    .wants_sandbox = wants_sandbox,
};
