/* qkv inspect MODEL: what a file holds, from the library's description (qkv_model_describe lists its keys). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

typedef struct InspectOptions {
    Common common;
    ModelOptions model;
} InspectOptions;

static const char *text_of(const json_t *v)
{
    const char *s = json_string_value(v);
    return s ? s : "";
}

/* [2, "s0", 16] as "(2, s0, 16)"; a number, a truth value or nothing as itself. */
static char *operand_text(const json_t *v, char *buf, size_t size)
{
    size_t i, at = (size_t)snprintf(buf, size, "(");
    json_t *d;
    if (json_is_string(v)) snprintf(buf, size, "%s", text_of(v));
    else if (json_is_boolean(v)) snprintf(buf, size, "%s", json_is_true(v) ? "yes" : "no");
    else if (json_is_number(v)) snprintf(buf, size, "%g", json_number_value(v));
    else if (!json_is_array(v)) snprintf(buf, size, "-");
    else {
        json_array_foreach(v, i, d)
        {
            if (at >= size) return buf;
            if (json_is_integer(d))
                at += (size_t)snprintf(buf + at, size - at, "%s%lld", i ? ", " : "", (long long)json_integer_value(d));
            else at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? ", " : "", text_of(d));
        }
        if (at < size) snprintf(buf + at, size - at, "%s", json_array_size(v) == 1 ? ",)" : ")");
    }
    return buf;
}

static void heading(const char *name, size_t n)
{
    if (n) printf("\n%s%s%s (%zu)\n", color_on(BOLD), name, color_off(BOLD), n);
    else printf("\n%s%s%s: none\n", color_on(BOLD), name, color_off(BOLD));
}

/* A table of the objects in the report's list, one column a key. */
static void print_objects(const char *title, const char *report, const char *list, int nkeys, const char *const *keys,
                          const char *const *head)
{
    static const char align[] = "llllllll";
    const char *at;
    char buf[512];
    size_t n = report_list(report, list, &at);
    heading(title, n);
    if (!n) return;
    Table *t = table_new(align + 8 - nkeys);
    for (int k = 0; k < nkeys; k++) table_cell(t, "%s", head[k]);
    for (; n; n--) {
        json_t *x = report_next(&at);
        for (int k = 0; k < nkeys; k++) table_cell(t, "%s", operand_text(json_object_get(x, keys[k]), buf, sizeof buf));
        json_decref(x);
    }
    table_print(t);
}

static void print_weights(const json_t *j, const char *label, const char *kind)
{
    char key[64], count[32], bytes[32];
    snprintf(key, sizeof key, "%ss", kind);
    long long n = json_integer_value(json_object_get(j, key));
    snprintf(key, sizeof key, "%s_bytes", kind);
    double size = json_number_value(json_object_get(j, key));
    snprintf(key, sizeof key, "%s_tensors", kind);
    long long tensors = json_integer_value(json_object_get(j, key));
    if (!tensors) return;
    printf("%s: %s in %lld tensor%s, %s\n", label, count_text(n, count, sizeof count), tensors, tensors == 1 ? "" : "s",
           bytes_text(size, bytes, sizeof bytes));
}

static void print_symbols(const char *report)
{
    const char *at;
    size_t n = report_list(report, "symbols", &at);
    heading("sizes", n);
    if (!n) return;
    Table *t = table_new("lrrl");
    static const char *const head[] = {"symbol", "min", "max", "from"};
    for (int k = 0; k < 4; k++) table_cell(t, "%s", head[k]);
    for (; n; n--) {
        json_t *s = report_next(&at);
        char min[32], max[32];
        const json_t *lo = json_object_get(s, "min"), *hi = json_object_get(s, "max");
        table_cell(t, "%s", text_of(json_object_get(s, "name")));
        table_cell(t, "%s", json_is_integer(lo) ? operand_text(lo, min, sizeof min) : "any");
        table_cell(t, "%s", json_is_integer(hi) ? operand_text(hi, max, sizeof max) : "any");
        table_cell(t, "%s", text_of(json_object_get(s, "bound_by")));
        json_decref(s);
    }
    table_print(t);
}

static void print_ops(json_t *ops)
{
    const char *name;
    json_t *n;
    heading("ops", json_object_size(ops));
    if (!json_object_size(ops)) return;
    Table *t = table_new("rl");
    table_cell(t, "nodes");
    table_cell(t, "op");
    json_object_foreach(ops, name, n)
    {
        table_cell(t, "%lld", (long long)json_integer_value(n));
        table_cell(t, "%s", name);
    }
    table_print(t);
}

static void print_lines(const char *title, const char *report, const char *list)
{
    const char *at;
    size_t n = report_list(report, list, &at);
    if (n) heading(title, n);
    for (; n; n--) {
        json_t *x = report_next(&at);
        show("%s\n", text_of(x));
        json_decref(x);
    }
}

static bool labelled(const char *report)
{
    const char *at;
    bool found = false;
    for (size_t n = report_list(report, "outputs", &at); n; n--) {
        json_t *x = report_next(&at);
        found |= json_object_get(x, "label") != NULL;
        json_decref(x);
    }
    return found;
}

/* ------------------------------------------------------------------ modules */

typedef struct Part {
    json_t *j;
    int depth, size; /* size: the rows of it and what is in it */
} Part;

static const char *path_at(const Part *p) { return text_of(json_object_get(p->j, "path")); }

static bool is_in(const char *path, const char *outer)
{
    size_t n = strlen(outer);
    return !n ? *path : !strncmp(path, outer, n) && path[n] == '.';
}

/* The list has parents before what is in them. */
static void find_depths(Part *p, int n)
{
    for (int i = 0; i < n; i++) {
        int up = i - 1;
        while (up >= 0 && !is_in(path_at(&p[i]), path_at(&p[up]))) up = p[up].depth ? up - 1 : -1;
        p[i].depth = up < 0 ? 0 : p[up].depth + 1;
        p[i].size = 1;
        for (int k = i - 1, d = p[i].depth; k >= 0 && d > 0; k--)
            if (p[k].depth < d) {
                d = p[k].depth;
                p[k].size++;
            }
    }
}

/* The name within the module around: "attention.q" of "layers.0.attention.q" in layers.0. */
static const char *name_in(const Part *p, int i)
{
    const char *path = path_at(&p[i]);
    int up = i;
    while (up > 0 && p[up].depth >= p[i].depth) up--;
    size_t n = up < i ? strlen(path_at(&p[up])) : 0;
    return n ? path + n + 1 : path;
}

/* Do two modules hold the same, whatever the number at the end of their own names? */
static bool alike(const Part *p, int a, int b)
{
    static const char *const keys[] = {"type", "nodes", "parameters", "attentions"};
    if (p[a].size != p[b].size || p[a].depth != p[b].depth) return false;
    for (int i = 0; i < p[a].size; i++) {
        for (int k = 0; k < 4; k++)
            if (!json_equal(json_object_get(p[a + i].j, keys[k]), json_object_get(p[b + i].j, keys[k]))) return false;
        const char *x = name_in(p, a + i), *y = name_in(p, b + i);
        size_t n = i ? strlen(x) : strcspn(x, "0123456789");
        if (i ? strcmp(x, y) != 0 : strcspn(y, "0123456789") != n || strncmp(x, y, n) || !x[n]) return false;
    }
    return true;
}

static void print_part(Table *t, const Part *p, int i, int more)
{
    static const char *const keys[] = {"nodes", "parameters", "attentions"};
    char name[512], count[32];
    const char *type = text_of(json_object_get(p[i].j, "type")), *dot = strrchr(type, '.'), *own = name_in(p, i);
    if (more) snprintf(name, sizeof name, "%s to %s", own, name_in(p, i + more * p[i].size));
    else snprintf(name, sizeof name, "%s", *own ? own : "(model)");
    table_cell(t, "%*s%s", 2 * p[i].depth, "", name);
    table_cell(t, "%s", dot ? dot + 1 : type);
    for (int k = 0; k < 3; k++) {
        const json_t *n = json_object_get(p[i].j, keys[k]);
        table_cell(t, "%s", json_is_integer(n) ? count_text(json_integer_value(n), count, sizeof count) : "-");
    }
}

/* Modules that are alike and follow each other have one row, with the counts of one. */
static void print_parts(Table *t, const Part *p, int n)
{
    for (int i = 0; i < n; i++) {
        int more = 0, size = p[i].size;
        while (i + (more + 2) * size <= n && alike(p, i, i + (more + 1) * size)) more++;
        print_part(t, p, i, more);
        if (!more) continue;
        for (int k = 1; k < size; k++) print_part(t, p, i + k, 0);
        i += (more + 1) * size - 1;
    }
}

static void print_modules(const char *report)
{
    static const char *const head[] = {"module", "class", "nodes", "parameters", "attentions"};
    const char *at;
    size_t n = report_list(report, "modules", &at);
    if (n < 2) return;
    Part *p = must(calloc(n, sizeof *p));
    for (size_t i = 0; i < n; i++) p[i].j = report_next(&at);
    find_depths(p, (int)n);
    heading("modules", n - 1);
    Table *t = table_new("llrrr");
    for (int k = 0; k < 5; k++) table_cell(t, "%s", head[k]);
    print_parts(t, p, (int)n);
    table_print(t);
    for (size_t i = 0; i < n; i++) json_decref(p[i].j);
    free(p);
}

/* ------------------------------------------------------------------ */

static void print_text(const char *report)
{
    static const char *const value_keys[] = {"name", "dtype", "shape", "value", "label"};
    static const char *const attention_keys[] = {"node", "op", "query", "key", "value", "mask", "causal", "scale"};
    static const char *const require_keys[] = {"condition", "where"};
    static const char *const scalar_keys[] = {"name", "value"};
    const char *first;
    json_t *j = report_head(report);
    char made[128];
    long long opset = (long long)json_integer_value(json_object_get(j, "opset"));
    const char *producer = text_of(json_object_get(j, "producer"));
    if (opset) snprintf(made, sizeof made, "ONNX opset %lld%s%.80s", opset, *producer ? ", by " : "", producer);
    else
        snprintf(made, sizeof made, "torch %.60s, schema %.20s", text_of(json_object_get(j, "torch")),
                 text_of(json_object_get(j, "schema_version")));
    fputs(color_on(BOLD), stdout);
    show("%s", text_of(json_object_get(j, "file")));
    printf("%s: ", color_off(BOLD));
    show("%s, %lld nodes\n", made, (long long)json_integer_value(json_object_get(j, "nodes")));
    print_weights(j, "parameters", "parameter");
    print_weights(j, "buffers", "buffer");
    print_weights(j, "constants", "constant");
    print_objects("inputs", report, "inputs", 3, value_keys, value_keys);
    if (report_list(report, "scalar_inputs", &first))
        print_objects("inputs that are not tensors", report, "scalar_inputs", 2, scalar_keys, scalar_keys);
    print_symbols(report);
    print_objects("outputs", report, "outputs", labelled(report) ? 5 : 4, value_keys, value_keys);
    print_objects("attentions", report, "attentions", 8, attention_keys, attention_keys);
    print_modules(report);
    print_ops(json_object_get(j, "ops"));
    if (report_list(report, "requirements", &first))
        print_objects("conditions on sizes", report, "requirements", 2, require_keys, require_keys);
    print_lines("buffers that a run changes", report, "written_buffers");
    print_lines("entries of the file that are ignored", report, "ignored_entries");
    json_decref(j);
}

static int cmd_inspect(const void *options)
{
    const InspectOptions *o = options;
    qkv_error e;
    qkv_model *m;
    int code = model_load(&o->model, o->common.arg[0], false, true, &m);
    if (code) return code;
    char *text = qkv_model_describe(m, &e);
    qkv_model_free(m);
    code = text ? 0 : problem_of(&e);
    if (!code) {
        utf8_clean(text);
        if (o->common.json) report_print(text);
        else print_text(text);
    }
    qkv_free(text);
    return code;
}

const Command command_inspect = {
    .name = "inspect",
    .args = "MODEL",
    .summary = "Show what a model file contains",
    .text =
        "Prints the inputs and outputs, the variable sizes and their ranges, the number and size of the weights, where "
        "the attentions are, the modules as a tree, how often each op occurs, and the conditions that sizes must meet. "
        "Nothing in the file is executed.",
    .examples = "qkv inspect vit.pt2\tfor reading\n"
                "qkv inspect vit.pt2 --json | jq .inputs\tfor programs",
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(InspectOptions),
    .options = {{load_options, offsetof(InspectOptions, model)}, {json_option}, {common_options}},
    .run = cmd_inspect,
};
