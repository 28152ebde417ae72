/* qkv generalize A B [...]: static exports of one model become one with variable sizes, or a list of what stands in
 * the way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

typedef struct GeneralizeOptions {
    Common common;
    const char *output, *certify;
    List name, dynamic, verify;
    bool apart;
} GeneralizeOptions;

enum { MOST_FILES = 8 };

/* The elements of a list with ", " between them. */
static const char *joined(const json_t *list, char *out, size_t n)
{
    size_t i, len = 0;
    const json_t *v;
    *out = 0;
    json_array_foreach(list, i, v)
    {
        const char *text = json_string_value(v);
        int w = text ? snprintf(out + len, n - len, "%s%s", i ? ", " : "", text)
                     : snprintf(out + len, n - len, "%s%lld", i ? ", " : "", (long long)json_integer_value(v));
        if (w < 0 || (size_t)w >= n - len) break;
        len += (size_t)w;
    }
    return out;
}

/* Of a table; an empty line before it, unless it is the first. */
static void heading(const json_t *report, const char *text)
{
    if (json_array_size(json_object_get(report, "sizes"))) puts("");
    printf("%s%s%s\n", color_on(BOLD), text, color_off(BOLD));
}

static void print_sizes(const json_t *report)
{
    const json_t *list = json_object_get(report, "sizes"), *z;
    char values[512];
    size_t i;
    Table *t = table_new("llll");
    static const char *const head[] = {"size", "axes", "in the files", ""};
    if (!json_array_size(list)) {
        table_free(t);
        return;
    }
    for (int k = 0; k < 4; k++) table_cell(t, "%s", head[k]);
    json_array_foreach(list, i, z)
    {
        table_cell(t, "%s", text_at(z, "expr"));
        table_cell(t, "%s", text_at(z, "axes"));
        table_cell(t, "%s", joined(json_object_get(z, "values"), values, sizeof values));
        table_cell(t, "%s", json_is_true(json_object_get(z, "tied")) ? "taken for one size: equal in every file" : "");
    }
    table_print(t);
}

static void print_numbers(const json_t *report, const char *key)
{
    const json_t *list = json_object_get(report, key), *x;
    bool solved = !strcmp(key, "numbers");
    char values[1024];
    size_t i;
    if (!json_array_size(list)) return;
    heading(report, solved ? "Solved" : "Not solved");
    Table *t = table_new("lllll");
    const char *const head[] = {"node", "argument", "in the files", solved ? "is" : "because",
                                solved ? "fits as well" : ""};
    for (int k = 0; k < 5; k++) table_cell(t, "%s", head[k]);
    json_array_foreach(list, i, x)
    {
        long long more = json_integer_value(json_object_get(x, "places")) - 1;
        if (more > 0) table_cell(t, "%s and %lld more", text_at(x, "node"), more);
        else table_cell(t, "%s", text_at(x, "node"));
        table_cell(t, "%s", text_at(x, "argument"));
        table_cell(t, "%s", joined(json_object_get(x, "values"), values, sizeof values));
        table_cell(t, "%s", text_at(x, solved ? "expr" : "why"));
        if (!solved) table_color(t, RED);
        table_cell(t, "%s", text_at(x, "also"));
    }
    table_print(t);
}

static void print_notes(const json_t *report)
{
    const json_t *list = json_object_get(report, "notes"), *v;
    size_t i;
    if (!json_array_size(list)) return;
    heading(report, "Notes");
    json_array_foreach(list, i, v) puts(json_string_value(v));
}

static void print_checks(const json_t *report)
{
    const json_t *list = json_object_get(report, "checks"), *c;
    char sizes[512];
    size_t i;
    if (!json_array_size(list)) return;
    heading(report, "Checked");
    Table *t = table_new("lllr");
    static const char *const head[] = {"against", "sizes", "result", "of peak"};
    for (int k = 0; k < 4; k++) table_cell(t, "%s", head[k]);
    json_array_foreach(list, i, c)
    {
        const char *file = json_string_value(json_object_get(c, "against")), *wrong = text_at(c, "problem");
        const json_t *d = json_object_get(c, "max_abs_over_peak");
        bool agrees = json_is_true(json_object_get(c, "agrees"));
        table_cell(t, "%s", file ? file : "sizes of no file");
        table_cell(t, "%s",
                   json_array_size(json_object_get(c, "sizes"))
                       ? joined(json_object_get(c, "sizes"), sizes, sizeof sizes)
                       : "-");
        table_cell(t, "%s", *wrong ? wrong : !agrees ? "DIFFERS" : file ? "ok" : "runs");
        table_color(t, agrees ? GREEN : RED);
        if (json_is_number(d)) table_cell(t, "%.3g", json_number_value(d));
        else table_cell(t, "-");
    }
    table_print(t);
}

static int load_all(const char *const *path, int n, qkv_model **out)
{
    qkv_error e;
    for (int i = 0; i < n; i++)
        if (!(out[i] = qkv_model_load(path[i], NULL, &e))) return problem_of(&e);
    return 0;
}

static int cmd_generalize(const void *options)
{
    const GeneralizeOptions *o = options;
    qkv_model *file[MOST_FILES] = {NULL}, *check[MOST_FILES] = {NULL}, *made = NULL;
    qkv_error e = {0};
    char *text = NULL;
    if (o->common.narg > MOST_FILES || o->verify.n > MOST_FILES)
        return problem(QKV_USAGE, "at most %d files", MOST_FILES);
    if (o->certify && !o->output) return problem(QKV_USAGE, "--certify needs -o FILE");
    json_t *claims = NULL;
    int code = load_all(o->common.arg, o->common.narg, file);
    if (!code) code = load_all(o->verify.item, o->verify.n, check);
    if (!code) {
        qkv_generalize_options g = {.struct_size = sizeof g,
                                    .dims = o->name.item,
                                    .n_dims = o->name.n,
                                    .dynamic = o->dynamic.item,
                                    .n_dynamic = o->dynamic.n,
                                    .apart = o->apart,
                                    .check = (const qkv_model *const *)check,
                                    .n_check = o->verify.n};
        made = qkv_model_generalize((const qkv_model *const *)file, o->common.narg, &g, &text, &e);
        code = made ? 0 : (int)e.code;
    }
    json_t *report = text ? json_loads(text, 0, NULL) : NULL;
    if (report && o->common.json) {
        if (made && o->output) json_object_set_new(report, "output", json_text(o->output));
    } else if (report) {
        print_sizes(report);
        print_numbers(report, "numbers");
        print_numbers(report, "unsolved");
        print_notes(report);
        print_checks(report);
        fflush(stdout);
    }
    if (made && o->output && o->certify) claims = save_certified(o->output, o->certify, made, file[0], NULL, &code);
    else if (made && o->output && qkv_model_save(made, o->output, &e)) code = (int)e.code;
    if (claims && o->common.json) json_object_set_new(report, "certificate", certificate_summary(claims));
    else if (claims) certificate_print(o->certify, claims);
    if (claims) note("the range are the sizes of %s, which are fixed", o->common.arg[0]);
    json_decref(claims);
    if (report && o->common.json) json_print(report);
    else json_decref(report);
    if (code && e.code) problem_of(&e);
    qkv_free(text);
    qkv_model_free(made);
    for (int i = 0; i < MOST_FILES; i++) {
        qkv_model_free(file[i]);
        qkv_model_free(check[i]);
    }
    return code;
}

#define AT(field) offsetof(GeneralizeOptions, field)
static const Option own[] = {
    {"output", TEXT, AT(output), .letter = 'o', .arg = "FILE", .writes = true,
     .help =
         "Write the model with variable sizes, a .pt2 that torch.export.load reads. The file is written completely or "
         "not at all."},
    {"certify", TEXT, AT(certify), .arg = "FILE.json", .writes = true,
     .help = "Write a certificate that the file of --output computes, at the sizes of the first MODEL, what that does, "
             "over the reals: steps that the program qkv-certify replays. It is in the file, too."},
    {"dim-name", MANY, AT(name), .letter = 'D', .arg = "NAME=AXES",
     .help =
         "Name a variable size and list the axes that have it: batch=x.0,mask.0. For an input that is a number, give "
         "its name as the axis."},
    {"dim", MANY, AT(name), .arg = "NAME=AXES"},
    {"apart", FLAG, AT(apart),
     .help = "Do not treat axes as one size because they are equal in every file; only join those that the graph "
             "requires to be equal."},
    {"dynamic", MANY, AT(dynamic), .arg = "AXIS",
     .help = "Make this axis (x.0) variable; otherwise an axis that is equal in every file stays fixed."},
    {"verify", MANY, AT(verify), .arg = "FILE",
     .help = "Another static export, with whose outputs the result must agree at its sizes. May be given many times."},
    {"check", MANY, AT(verify), .arg = "FILE"},
    {0},
};

const Command command_generalize = {
    .name = "generalize",
    .args = "MODEL MODEL...",
    .summary = "Make one model with variable sizes from static exports at several sizes",
    .text =
        "Compares torch.export files of one model, exported without dynamic_shapes at two or more sizes. Input sizes "
        "that differ become variable; every constant that differs, scalar or tensor, is solved as an expression of "
        "them, by shape inference first. The result is run at the sizes of every file, where its outputs must be "
        "identical, and at sizes that are in none of the files. What cannot be solved is listed by node, and the "
        "exit code is 1.\n\n"
        "Choose sizes of at least 2 without common factors: 2x44x52 and 3x60x70 rather than 1x224x224 and 2x448x448, "
        "where a height looks like a width, and half of one like a quarter of the other. A third file settles what "
        "two leave open; the column \"fits as well\" shows where that is the case.",
    .examples = "qkv generalize a.pt2 b.pt2 -o dyn.pt2\tbatch and length, whatever differs\n"
                "qkv generalize a.pt2 b.pt2 --verify c.pt2 -D batch=x.0,mask.0\tnames; a third export to verify with\n"
                "qkv generalize a.pt2 b.pt2 c.pt2 --json\tall three are used to solve",
    .min_args = 2,
    .max_args = -1,
    .size = sizeof(GeneralizeOptions),
    .options = {{own}, {json_option}, {common_options}},
    .run = cmd_generalize,
};
