/* Reading a model with what --fix says, inputs of an ONNX model that become constants; and --skip-padding.
 *
 *     qkv run m.onnx --fix axes=0,2 --fix mask=mask.npy
 */
#include <stdlib.h>
#include <string.h>
#include "cli.h"

typedef struct FixedInputs {
    char **name;
    qkv_tensor *t;
    int64_t (*shape)[1];
    double **number;
    qkv_tensors **file;
    int n;
} FixedInputs;

static void fixed_free(FixedInputs *f)
{
    for (int i = 0; i < f->n; i++) {
        free(f->name[i]);
        free(f->number[i]);
        qkv_tensors_free(f->file[i]);
    }
    free(f->name);
    free(f->t);
    free(f->shape);
    free(f->number);
    free(f->file);
}

/* "3" is a number, "0,2" and "3," are lists */
static bool numbers(const char *text, double **out, int64_t *n, bool *list)
{
    *out = must(calloc(strlen(text) + 1, sizeof **out));
    *n = 0;
    *list = strchr(text, ',') != NULL;
    for (const char *p = text; *p;) {
        char *end;
        (*out)[(*n)++] = strtod(p, &end);
        if (end == p || (*end && *end != ',')) return false;
        p = *end ? end + 1 : end;
    }
    return *n > 0;
}

static int fix_one(const char *text, FixedInputs *f)
{
    const char *eq = strchr(text, '=');
    int i = f->n;
    qkv_error e;
    bool list;
    if (!eq || eq == text || !eq[1])
        return problem(QKV_USAGE, "option '--fix': found '%s', expected NAME=NUMBERS or NAME=FILE", text);
    f->name[i] = must(strndup(text, (size_t)(eq - text)));
    f->n++;
    if (numbers(eq + 1, &f->number[i], &f->shape[i][0], &list)) {
        f->t[i] = (qkv_tensor){.dtype = QKV_F64, .rank = list, .shape = f->shape[i], .data = f->number[i]};
        return 0;
    }
    f->file[i] = qkv_tensors_open(eq + 1, &e);
    if (!f->file[i]) return problem_of(&e);
    const qkv_tensor *t = qkv_tensors_find(f->file[i], f->name[i]);
    if (!t && qkv_tensors_count(f->file[i]) == 1) t = qkv_tensors_at(f->file[i], 0);
    if (!t) return problem(QKV_USAGE, "option '--fix': '%s' holds no tensor called '%s'", eq + 1, f->name[i]);
    f->t[i] = *t;
    return 0;
}

void print_skipped(const json_t *report)
{
    size_t i, k;
    const json_t *skip = json_object_get(report, "skip_padding"), *m, *stop;
    if (!skip) return;
    if (*text_at(skip, "nothing"))
        note("skip-padding: no padding to skip: %s; the model runs dense", text_at(skip, "nothing"));
    json_array_foreach(json_object_get(skip, "masks"), i, m)
    {
        if (!json_is_true(json_object_get(m, "applied"))) {
            note("skip-padding: mask '%s': %s; it runs dense", text_at(m, "mask"), text_at(m, "why"));
            continue;
        }
        int attentions = (int)json_integer_value(json_object_get(m, "attentions"));
        note("skip-padding: mask '%s': %d attention%s and %d other nodes run on real tokens%s", text_at(m, "mask"),
             attentions, attentions == 1 ? "" : "s", (int)json_integer_value(json_object_get(m, "nodes")) - attentions,
             json_is_true(json_object_get(m, "before")) ? " already" : "");
        json_array_foreach(json_object_get(m, "stops"), k, stop)
        {
            note("  dense again: '%s' for '%s'%s%s (%s)", text_at(stop, "value"), text_at(stop, "node"),
                 *text_at(stop, "op") ? ", " : "", text_at(stop, "op"), text_at(stop, "why"));
        }
        if (json_is_string(json_object_get(m, "not_proven"))) note("  not proven: %s", text_at(m, "not_proven"));
        else if (json_object_get(m, "runs"))
            note("  proven by %d evaluations, largest difference %.3g of the peak",
                 (int)json_integer_value(json_object_get(m, "runs")),
                 json_number_value(json_object_get(m, "max_rel_peak")));
    }
}

int replace_model(qkv_model **m, qkv_model *by, const qkv_error *e)
{
    if (!by) return problem_of(e);
    qkv_model_free(*m);
    *m = by;
    return 0;
}

static int skip_padding(qkv_model **m)
{
    qkv_rewrite_options options = {.struct_size = sizeof options, .skip_padding = 1};
    qkv_error e;
    char *text = NULL;
    int code = replace_model(m, qkv_model_rewrite(*m, &options, &text, &e), &e);
    json_t *report = text && !code ? json_loads(text, 0, NULL) : NULL;
    if (report) print_skipped(report);
    json_decref(report);
    qkv_free(text);
    return code;
}

/* --name-dim SIZE=NAME; the library knows which names can be, this which size was meant. */
static int name_sizes(const List *l, qkv_model **m)
{
    enum { MOST = 256 };
    qkv_error e;
    const char *known[MOST], *text;
    int n = 0, code = 0;
    for (; n < MOST && (text = qkv_model_symbol(*m, n, NULL, NULL)); n++) known[n] = text;
    char **size = must(calloc((size_t)l->n + 1, sizeof *size));
    const char **name = must(calloc((size_t)l->n + 1, sizeof *name));
    for (int i = 0; !code && i < l->n; i++) {
        const char *eq = strchr(l->item[i], '=');
        if (!eq || eq == l->item[i])
            code = problem(QKV_USAGE, "option '--name-dim': found '%s', expected SIZE=NAME", l->item[i]);
        if (code) break;
        size[i] = must(strndup(l->item[i], (size_t)(eq - l->item[i])));
        name[i] = eq + 1;
        bool exact = false;
        for (int k = 0; k < n; k++) exact |= !strcmp(known[k], size[i]);
        const char *close = exact ? NULL : nearest(size[i], known, n);
        if (close)
            code = problem(QKV_USAGE, "option '--name-dim': no size is called '%s'; did you mean '%s'?", size[i],
                           close);
    }
    if (!code && l->n)
        code = replace_model(m, qkv_model_with_size_names(*m, (const char *const *)size, name, l->n, &e), &e);
    for (int i = 0; i < l->n; i++) free(size[i]);
    free(size);
    free(name);
    return code;
}

/* A cache that was asked for and cannot be used is worth a line at any time. */
static void tell_cached(const qkv_model *m)
{
    const char *what;
    int used = qkv_model_cached(m, &what);
    if (what && !used) warning("cache %s", what);
    else if (what) detail("cache %s", what);
}

int model_load(const ModelOptions *o, const char *path, bool bf16, bool no_fuse, qkv_model **out)
{
    FixedInputs f = {0};
    size_t n = (size_t)o->fix.n + 1;
    qkv_error e;
    int code = 0;
    f.name = must(calloc(n, sizeof *f.name));
    f.t = must(calloc(n, sizeof *f.t));
    f.shape = must(calloc(n, sizeof *f.shape));
    f.number = must(calloc(n, sizeof *f.number));
    f.file = must(calloc(n, sizeof *f.file));
    for (int i = 0; !code && i < o->fix.n; i++) code = fix_one(o->fix.item[i], &f);
    qkv_load_options load = {.struct_size = sizeof load,
                             .compute = bf16 ? QKV_BF16 : QKV_NONE,
                             .no_fuse = no_fuse,
                             .no_mmap = o->no_mmap,
                             .cache = o->cache,
                             .skip_padding = o->cache && o->skip_padding, /* what is kept has it */
                             .fixed_names = (const char *const *)f.name,
                             .fixed = f.t,
                             .n_fixed = f.n};
    *out = code ? NULL : qkv_model_load(path, &load, &e);
    if (!code && !*out) code = problem_of(&e);
    fixed_free(&f);
    if (!code) problems_are_of(path);
    if (!code) tell_cached(*out);
    if (!code) code = name_sizes(&o->name_dim, out);
    if (!code && o->skip_padding && !o->cache) code = skip_padding(out);
    if (code) {
        qkv_model_free(*out);
        *out = NULL;
    }
    return code;
}
