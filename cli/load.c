/* Reading a model with what --fix says: inputs of an ONNX model that become constants.
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
    if (!eq || eq == text || !eq[1]) return problem(QKV_USAGE, "option '--fix': found '%s', expected NAME=NUMBERS or NAME=FILE", text);
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

int model_load(const Options *o, const char *path, bool bf16, bool no_fuse, qkv_model **out)
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
    qkv_load_options load = {.struct_size = sizeof load, .compute = bf16 ? QKV_BF16 : QKV_NONE, .no_fuse = no_fuse, .fixed_names = (const char *const *)f.name,
                             .fixed = f.t, .n_fixed = f.n};
    *out = code ? NULL : qkv_model_load(path, &load, &e);
    if (!code && !*out) code = problem_of(&e);
    fixed_free(&f);
    return code;
}
