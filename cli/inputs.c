/* A model, and the inputs that the user asks for:
 *
 *     -i FILE                     tensors by name or position
 *     --image NAME=x.png          pictures, at the size that the model fixes or that -D / --shape choose
 *     -D batch=2, --shape, none   random numbers of a valid size
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "cli.h"

/* ------------------------------------------------------------------ models */

int model_bf16(const ModelOptions *o, bool *bf16)
{
    *bf16 = o->dtype && qkv_dtype_from_name(o->dtype) == QKV_BF16;
    if (!o->dtype || *bf16 || qkv_dtype_from_name(o->dtype) == QKV_F32) return 0;
    return problem(QKV_USAGE, "option '--dtype': found '%s', expected f32 or bf16", o->dtype);
}

void session_options(const ModelOptions *o, qkv_session_options *to)
{
    *to = (qkv_session_options){.struct_size = sizeof *to,
                                .threads = (int)o->threads,
                                .memory_limit = memory_limit(),
                                .no_optimize = o->no_optimize,
                                .passes = o->passes,
                                .portable_bits = o->portable_bits};
}

int model_open(const ModelOptions *o, const char *path, bool bf16, bool no_fuse, Loaded *out)
{
    qkv_error e;
    qkv_session_options session;
    double start = now_ms();
    session_options(o, &session);
    *out = (Loaded){0};
    int code = model_load(o, path, bf16, no_fuse, &out->model);
    if (code) return code;
    out->session = qkv_session_create(out->model, &session, &e);
    if (!out->session) {
        model_close(out);
        return problem_of(&e);
    }
    out->load_ms = now_ms() - start;
    detail("%s: loaded in %.1f ms, cpu %s", path, out->load_ms, qkv_cpu());
    return 0;
}

static bool in_list(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *s = list; (s = strstr(s, name)); s += n)
        if ((s == list || s[-1] == ',') && (!s[n] || s[n] == ',')) return true;
    return false;
}

bool passes_upto(const ModelOptions *o, const char *last, char *list, size_t size)
{
    const char *name;
    int ordinary;
    size_t at = 0;
    list[0] = 0;
    for (int i = 0; (name = qkv_pass_name(i, &ordinary)); i++) {
        bool chosen = i == 0 || (o->passes ? in_list(o->passes, name) : ordinary), ends = !strcmp(name, last);
        if (chosen) at += (size_t)snprintf(list + at, size - at, "%s%s", at ? "," : "", name);
        if (ends) return chosen;
    }
    return false;
}

int trace_start(const char *path, Loaded *m, int64_t runs)
{
    enum { MORE = 64, MOST = 1 << 22 };
    qkv_error e;
    qkv_stats stats = {.struct_size = sizeof stats};
    if (!path) return 0;
    if (qkv_session_stats(m->session, &stats, &e)) return problem_of(&e);
    /* before the first run it is not known how many steps there are */
    int64_t steps = stats.steps ? stats.steps + MORE : MOST, n = steps < MOST / runs ? steps * runs : MOST;
    return qkv_session_trace(m->session, n, &e) ? problem_of(&e) : 0;
}

int trace_finish(const char *path, Loaded *m)
{
    qkv_error e;
    return path && qkv_session_trace_write(m->session, path, &e) ? problem_of(&e) : 0;
}

void model_close(Loaded *m)
{
    qkv_session_free(m->session);
    qkv_model_free(m->model);
    *m = (Loaded){0};
}

/* ------------------------------------------------------------------ sizes */

static bool is_number(const char *s) { return *s && strspn(s, "0123456789") == strlen(s); }

int64_t input_fixed_dim(const qkv_model *m, int input, int axis)
{
    const char *text = qkv_model_input_dim(m, input, axis);
    return text && is_number(text) ? strtoll(text, NULL, 10) : -1;
}

void input_dim_range(const qkv_model *m, int input, int axis, int64_t *min, int64_t *max)
{
    const char *text = qkv_model_input_dim(m, input, axis), *name;
    int64_t fixed = input_fixed_dim(m, input, axis), lo, hi;
    *min = fixed >= 0 ? fixed : 1;
    *max = fixed >= 0 ? fixed : INT64_MAX;
    for (int i = 0; fixed < 0 && text && i < qkv_model_symbol_count(m); i++) {
        if (!(name = qkv_model_symbol(m, i, &lo, &hi)) || strcmp(name, text)) continue;
        *min = lo;
        *max = hi;
    }
}

/* The input that a user's name means: a name, a position, or the only one; -1 after a message. */
static int input_called(const qkv_model *m, const char *name, size_t n)
{
    int count = qkv_model_input_count(m);
    const char **names = must(calloc((size_t)count + 1, sizeof *names));
    char given[128];
    int found = -1;
    snprintf(given, sizeof given, "%.*s", (int)n, name);
    for (int i = 0; i < count; i++) {
        names[i] = qkv_model_input_name(m, i);
        if (!strcmp(names[i], given)) found = i;
    }
    if (found < 0 && is_number(given) && atoi(given) < count) found = atoi(given);
    if (found < 0) {
        const char *close = nearest(given, names, count);
        if (close) problem(QKV_USAGE, "no input is called '%s'; did you mean '%s'?", given, close);
        else problem(QKV_USAGE, "no input is called '%s'; 'qkv inspect' lists them", given);
    }
    free(names);
    return found;
}

/* The sizes that -D, --shape and the number of pictures ask for, as names and values for the library. */
static void size_add(Sizes *s, const char *name, int len, int axis, int64_t value)
{
    s->name = must(realloc(s->name, ((size_t)s->n + 1) * sizeof *s->name));
    s->value = must(realloc(s->value, ((size_t)s->n + 1) * sizeof *s->value));
    if ((axis < 0 ? asprintf(&s->name[s->n], "%.*s", len, name)
                  : asprintf(&s->name[s->n], "%.*s.%d", len, name, axis)) < 0)
        must(NULL);
    s->value[s->n++] = value;
}

void sizes_free(Sizes *s)
{
    for (int i = 0; i < s->n; i++) free(s->name[i]);
    free(s->name);
    free(s->value);
}

int sizes_of_dims(const List *dim, Sizes *s)
{
    for (int i = 0; i < dim->n; i++) {
        const char *text = dim->item[i], *eq = strrchr(text, '=');
        if (!eq || eq == text || !is_number(eq + 1) || strlen(eq + 1) > 18)
            return problem(QKV_USAGE, "option '-D': found '%s', expected NAME=N such as batch=2", text);
        size_add(s, text, (int)(eq - text), -1, strtoll(eq + 1, NULL, 10));
    }
    return 0;
}

/* "x:1x3x224x224", "x:[1,3,224,224]", "x:1,3,224,224"; the name may be left out for a model with one input. */
static int parse_shape(const qkv_model *m, const char *text, int *input, int64_t *shape, int *rank)
{
    const char *colon = strrchr(text, ':'), *p = colon ? colon + 1 : text;
    *input = colon ? input_called(m, text, (size_t)(colon - text)) : 0;
    if (*input < 0) return QKV_USAGE;
    if (!colon && qkv_model_input_count(m) != 1)
        return problem(QKV_USAGE, "option '--shape': '%s' does not name an input, and the model has %d", text,
                       qkv_model_input_count(m));
    bool bracket = *p == '[', ok = true;
    *rank = 0;
    for (p += bracket; ok && *p && *p != ']';) {
        char *end;
        int64_t v = strtoll(p, &end, 10);
        ok = end != p && v >= 0 && *rank < QKV_MAX_RANK && (!*end || strchr("xX,]", *end));
        if (ok) shape[(*rank)++] = v;
        p = *end && *end != ']' ? end + 1 : end;
    }
    if (!ok || (bracket && strcmp(p, "]")) || (!bracket && *p))
        return problem(QKV_USAGE, "option '--shape': found '%s', expected a shape such as x:1x3x224x224", text);
    int want = qkv_model_input_rank(m, *input);
    if (*rank != want)
        return problem(QKV_USAGE, "option '--shape': input '%s' has rank %d, found %d sizes in '%s'",
                       qkv_model_input_name(m, *input), want, *rank, text);
    return 0;
}

static int take_shape(const qkv_model *m, const char *text, Sizes *s)
{
    int input, rank, code;
    int64_t shape[QKV_MAX_RANK];
    if ((code = parse_shape(m, text, &input, shape, &rank))) return code;
    const char *name = qkv_model_input_name(m, input);
    for (int k = 0; k < rank; k++)
        if (!strpbrk(qkv_model_input_dim(m, input, k), "+-(/") && input_fixed_dim(m, input, k) < 0)
            size_add(s, name, (int)strlen(name), k, shape[k]);
    return 0;
}

/* What --shape asked for must be what the sizes gave. */
static int check_shapes(const InputOptions *o, const Loaded *m)
{
    for (int i = 0; i < o->shape.n; i++) {
        int input, rank, code;
        int64_t shape[QKV_MAX_RANK];
        qkv_tensor t;
        qkv_error e;
        if ((code = parse_shape(m->model, o->shape.item[i], &input, shape, &rank))) return code;
        if (qkv_session_input(m->session, input, &t, &e)) return problem_of(&e);
        for (int k = 0; k < rank; k++) {
            const char *why = input_fixed_dim(m->model, input, k) < 0 ? "to agree with the other sizes"
                                                                      : "(fixed when the model was exported)";
            if (t.shape[k] != shape[k])
                return problem(QKV_USAGE, "input '%s': axis %d is %lld, expected %s %s",
                               qkv_model_input_name(m->model, input), k, (long long)shape[k],
                               qkv_model_input_dim(m->model, input, k), why);
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ pictures */

/* "0.48,0.46,0.41" or one number for all channels. */
static int parse_list(const char *option, const char *text, int channels, float *out)
{
    int n = 0;
    for (const char *p = text; *p;) {
        char *end;
        float v = strtof(p, &end);
        if (end == p || n == channels || (*end && *end != ',')) break;
        out[n++] = v;
        p = *end ? end + 1 : end;
        if (!*p) {
            for (int k = 1; n == 1 && k < channels; k++) out[k] = v;
            if (n == 1 || n == channels) return 0;
        }
    }
    return problem(QKV_USAGE, "option '--%s': found '%s', expected one number or %d, separated by commas", option, text,
                   channels);
}

int image_norm(const ImageNorm *o, int channels, float *mean, float *std)
{
    float scale = o->scale > 0 ? (float)o->scale : 1;
    for (int c = 0; c < channels; c++) {
        mean[c] = 0;
        std[c] = 1;
    }
    int code = o->mean ? parse_list("mean", o->mean, channels, mean) : 0;
    if (!code && o->std) code = parse_list("std", o->std, channels, std);
    for (int c = 0; !code && c < channels; c++) {
        if (!(std[c] > 0)) return problem(QKV_USAGE, "option '--std': %g, expected values above 0", (double)std[c]);
        mean[c] /= scale; /* (x * scale - mean) / std = (x - mean / scale) / (std / scale) */
        std[c] /= scale;
    }
    return code;
}

/* The file of a --image option, and its input. */
static const char *image_of(const qkv_model *m, const char *option, int *input)
{
    const char *eq = strchr(option, '=');
    *input = 0;
    if (eq) *input = input_called(m, option, (size_t)(eq - option));
    else if (qkv_model_input_count(m) != 1) {
        problem(QKV_USAGE, "option '--image': the model has %d inputs; say which: --image NAME=%s",
                qkv_model_input_count(m), option);
        *input = -1;
    }
    return eq ? eq + 1 : option;
}

static int count_images(const InputOptions *o, const qkv_model *m, int input)
{
    int n = 0, at;
    for (int i = 0; i < o->image.n; i++) {
        image_of(m, o->image.item[i], &at);
        n += at == input;
    }
    return n;
}

/* Can this input be a picture, and is its size known? */
static int check_picture(const InputOptions *o, const qkv_model *m, int input)
{
    const char *name = qkv_model_input_name(m, input);
    int rank = qkv_model_input_rank(m, input);
    if ((rank != 3 && rank != 4) || qkv_model_input_dtype(m, input) != QKV_F32)
        return problem(QKV_USAGE,
                       "input '%s' is %s of rank %d; an image is f32 of rank 4 (batch, channels, height, width) or 3",
                       name, qkv_dtype_name(qkv_model_input_dtype(m, input)), rank);
    for (int k = rank - 3; k < rank; k++)
        if (input_fixed_dim(m, input, k) < 0 && !o->dim.n && !o->shape.n)
            return problem(QKV_USAGE, "input '%s': axis %d is %s; choose the size of the image with -D %s=N or --shape",
                           name, k, qkv_model_input_dim(m, input, k),
                           k == rank - 2   ? "height"
                           : k == rank - 1 ? "width"
                                           : qkv_model_input_dim(m, input, k));
    return 0;
}

/* Fills the input, whose shape the session knows by now, with its pictures. */
static int set_pictures(const InputOptions *o, Loaded *m, int input, Inputs *in)
{
    qkv_error e;
    qkv_tensor t;
    float mean[4], std[4];
    char shape[128];
    const char *name = qkv_model_input_name(m->model, input);
    int n = count_images(o, m->model, input), at, code, rank = qkv_model_input_rank(m->model, input);
    if (qkv_session_input(m->session, input, &t, &e)) return problem_of(&e);
    int64_t sizes[4], channels = t.shape[rank - 3], plane = t.shape[rank - 2] * t.shape[rank - 1];
    memcpy(sizes, t.shape, (size_t)rank * sizeof *sizes);
    if (channels != 1 && channels != 3)
        return problem(QKV_USAGE, "input '%s' is %s; an image has 1 or 3 channels", name,
                       shape_text(&t, shape, sizeof shape));
    if (n != (rank == 4 ? t.shape[0] : 1))
        return problem(QKV_USAGE, "input '%s' is %s, but %d images were given", name,
                       shape_text(&t, shape, sizeof shape), n);
    if (in->npixels == (int)(sizeof in->pixels / sizeof *in->pixels))
        return problem(QKV_USAGE, "images for more than %d inputs", in->npixels);
    if ((code = image_norm(&o->norm, (int)channels, mean, std))) return code;
    float *pixels = must(malloc((size_t)(n * channels * plane) * sizeof *pixels + 1));
    in->pixels[in->npixels++] = pixels;
    for (int i = 0, k = 0; i < o->image.n; i++) {
        const char *path = image_of(m->model, o->image.item[i], &at);
        if (at != input) continue;
        float *at_k = pixels + k++ * channels * plane;
        if (qkv_image_read(path, (int)channels, (int)sizes[rank - 2], (int)sizes[rank - 1], mean, std, at_k, &e))
            return problem_of(&e);
    }
    qkv_tensor x = {QKV_F32, rank, sizes, NULL, pixels};
    return qkv_session_set_input(m->session, name, &x, &e) ? problem_of(&e) : 0;
}

/* ------------------------------------------------------------------ all inputs */

/* Random inputs; when pictures follow, just to know their sizes. */
static int set_random(const InputOptions *o, Loaded *m, bool quiet)
{
    Sizes s = {0};
    qkv_error e;
    qkv_tensor t;
    char shape[256];
    int64_t seed = o->seed < 0 ? 0 : o->seed;
    int code = 0, at;
    for (int i = 0; !code && i < o->image.n; i++) {
        image_of(m->model, o->image.item[i], &at);
        const char *name = qkv_model_input_name(m->model, at);
        int64_t pictures = count_images(o, m->model, at), min, max;
        input_dim_range(m->model, at, 0, &min, &max);
        if (qkv_model_input_rank(m->model, at) != 4 || input_fixed_dim(m->model, at, 0) >= 0) continue;
        if (pictures < min || pictures > max)
            code = problem(QKV_USAGE, "input '%s': %lld image%s given; its batch is %s, from %lld to %lld", name,
                           (long long)pictures, pictures == 1 ? " was" : "s were", qkv_model_input_dim(m->model, at, 0),
                           (long long)min, (long long)max);
        else size_add(&s, name, (int)strlen(name), 0, pictures);
    }
    if (!code) code = sizes_of_dims(&o->dim, &s);
    for (int i = 0; !code && i < o->shape.n; i++) code = take_shape(m->model, o->shape.item[i], &s);
    if (!code && qkv_session_random_inputs(m->session, (const char *const *)s.name, s.value, s.n, (uint64_t)seed, &e))
        code = problem_of(&e);
    sizes_free(&s);
    if (!code) code = check_shapes(o, m);
    for (int i = 0; !code && !quiet && i < qkv_model_input_count(m->model); i++)
        if (!count_images(o, m->model, i) && !qkv_session_input(m->session, i, &t, &e))
            note("random %s: %s %s, seed %lld", qkv_model_input_name(m->model, i), qkv_dtype_name(t.dtype),
                 shape_text(&t, shape, sizeof shape), (long long)seed);
    return code;
}

/* numpy.savez calls unnamed arrays arr_0, arr_1, ...; a .npy file is one array, called like the file. */
const char *position_of(const char *file, const char *name)
{
    size_t n = strlen(file);
    if (n > 4 && !strcmp(file + n - 4, ".npy")) return "0";
    return !strncmp(name, "arr_", 4) && is_number(name + 4) ? name + 4 : name;
}

int named_open(const char *path, NamedTensors *t)
{
    qkv_error e;
    t->file = qkv_tensors_open(path, &e);
    if (!t->file) return problem_of(&e);
    t->n = qkv_tensors_count(t->file);
    t->name = must(calloc((size_t)t->n + 1, sizeof *t->name));
    t->tensor = must(calloc((size_t)t->n + 1, sizeof *t->tensor));
    for (int i = 0; i < t->n; i++) {
        t->name[i] = position_of(path, qkv_tensors_name(t->file, i));
        t->tensor[i] = *qkv_tensors_at(t->file, i);
    }
    return 0;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int images_in(const char *folder, Names *out)
{
    DIR *d = opendir(folder);
    if (!d) return problem(QKV_UNREADABLE, "cannot open the folder '%s': %s", folder, strerror(errno));
    for (struct dirent *f; (f = readdir(d));) {
        const char *dot = strrchr(f->d_name, '.');
        if (f->d_name[0] == '.' || !dot ||
            (strcasecmp(dot, ".png") && strcasecmp(dot, ".jpg") && strcasecmp(dot, ".jpeg")))
            continue;
        out->item = must(realloc(out->item, ((size_t)out->n + 1) * sizeof *out->item));
        out->item[out->n++] = must(strdup(f->d_name));
    }
    closedir(d);
    if (!out->n) return problem(QKV_USAGE, "'%s' holds no .png, .jpg or .jpeg", folder);
    qsort(out->item, (size_t)out->n, sizeof *out->item, by_name);
    return 0;
}

void names_free(Names *n)
{
    for (int i = 0; i < n->n; i++) free(n->item[i]);
    free(n->item);
}

/* The input's shape at the sizes that were asked for. A session solves for those that the file leaves open. */
static int image_shape(const qkv_model *m, const List *sizes, int64_t *shape)
{
    bool fixed = !sizes->n;
    for (int i = 1; i < 4; i++) fixed &= (shape[i] = input_fixed_dim(m, 0, i)) > 0;
    if (fixed) return 0;
    qkv_error e;
    qkv_tensor t;
    Sizes s = {0};
    qkv_session *session = qkv_session_create(m, NULL, &e);
    int code = session ? sizes_of_dims(sizes, &s) : problem_of(&e);
    if (!code && (qkv_session_random_inputs(session, (const char *const *)s.name, s.value, s.n, 0, &e) ||
                  qkv_session_input(session, 0, &t, &e)))
        code = problem_of(&e);
    if (!code) memcpy(shape, t.shape, 4 * sizeof *shape);
    sizes_free(&s);
    qkv_session_free(session);
    return code;
}

int named_open_images(const char *folder, const ImageNorm *norm, const List *sizes, const qkv_model *m, NamedTensors *t)
{
    qkv_error e;
    Names names = {0};
    int64_t shape[4] = {0};
    float mean[4], std[4];
    const InputOptions given = {.dim = *sizes};
    if (qkv_model_input_count(m) != 1 || qkv_model_input_rank(m, 0) != 4)
        return problem(
            QKV_USAGE,
            "%s is a folder of images, for a model with one input (batch, channels, height, width); found %d "
            "input%s, '%s' of rank %d: give a .npz or .safetensors file",
            folder, qkv_model_input_count(m), qkv_model_input_count(m) == 1 ? "" : "s",
            qkv_model_input_count(m) ? qkv_model_input_name(m, 0) : "",
            qkv_model_input_count(m) ? qkv_model_input_rank(m, 0) : 0);
    int code = check_picture(&given, m, 0);
    if (!code) code = image_shape(m, sizes, shape);
    if (!code && shape[1] != 1 && shape[1] != 3)
        code = problem(QKV_USAGE, "input '%s' has %lld channels; an image has 1 or 3", qkv_model_input_name(m, 0),
                       (long long)shape[1]);
    if (!code) code = image_norm(norm, (int)shape[1], mean, std);
    if (!code) code = images_in(folder, &names);
    const size_t each = code ? 0 : (size_t)(shape[1] * shape[2] * shape[3]);
    float *pixels = t->pixels = must(malloc((size_t)names.n * each * sizeof *pixels + 1));
    for (int i = 0; !code && i < names.n; i++) {
        char *path;
        if (asprintf(&path, "%s/%s", folder, names.item[i]) < 0) must(NULL);
        if (qkv_image_read(path, (int)shape[1], (int)shape[2], (int)shape[3], mean, std, pixels + (size_t)i * each, &e))
            code = problem_of(&e);
        free(path);
    }
    int64_t *whole = must(malloc(sizeof shape));
    memcpy(whole, shape, sizeof shape);
    whole[0] = names.n;
    t->shape = whole;
    t->name = must(calloc(1, sizeof *t->name));
    t->tensor = must(calloc(1, sizeof *t->tensor));
    t->name[0] = qkv_model_input_name(m, 0);
    t->tensor[0] = (qkv_tensor){QKV_F32, 4, whole, NULL, pixels};
    t->n = 1;
    names_free(&names);
    return code;
}

void named_close(NamedTensors *t)
{
    free(t->pixels);
    free(t->shape);
    qkv_tensors_free(t->file);
    free(t->name);
    free(t->tensor);
}

static int set_from_file(const InputOptions *o, Loaded *m, Inputs *in)
{
    qkv_error e;
    in->file = qkv_tensors_open(o->file, &e);
    if (!in->file) return problem_of(&e);
    for (int i = 0; i < qkv_tensors_count(in->file); i++) {
        const char *name = qkv_tensors_name(in->file, i);
        qkv_status s = qkv_session_set_input(m->session, name, qkv_tensors_at(in->file, i), &e);
        const char *position = position_of(o->file, name);
        if (s == QKV_USAGE && position != name)
            s = qkv_session_set_input(m->session, position, qkv_tensors_at(in->file, i), &e);
        if (s) return problem((int)e.code, "%s: %s", o->file, e.message);
    }
    return 0;
}

int inputs_set(const InputOptions *o, Loaded *m, Inputs *in)
{
    *in = (Inputs){0};
    int code = 0, n = qkv_model_input_count(m->model), at;
    bool sized = o->dim.n || o->shape.n, random = !o->file && (sized || o->seed >= 0 || !o->image.n);
    if (o->file && !o->image.n && sized)
        return problem(QKV_USAGE, "-i reads the inputs, -D and --shape make random ones: use one or the other");
    if (o->seed >= 0) qkv_session_seed(m->session, (uint64_t)o->seed);
    for (int i = 0; i < o->image.n; i++) {
        image_of(m->model, o->image.item[i], &at);
        if (at < 0) return QKV_USAGE;
        if ((code = check_picture(o, m->model, at))) return code;
    }
    int pictures = 0;
    for (int i = 0; i < n; i++) pictures += count_images(o, m->model, i) > 0;
    if (!o->file && !random && pictures < n) /* only pictures were given, and not for all inputs */
        for (int i = 0; i < n; i++)
            if (!count_images(o, m->model, i))
                return problem(QKV_USAGE, "input '%s' is not given; -i FILE gives it, --seed N makes random inputs",
                               qkv_model_input_name(m->model, i));
    if (random || o->image.n) code = set_random(o, m, !random);
    if (!code && o->file) code = set_from_file(o, m, in);
    for (int i = 0; !code && i < n; i++)
        if (count_images(o, m->model, i)) code = set_pictures(o, m, i, in);
    return code;
}

void inputs_free(Inputs *in)
{
    for (int i = 0; i < in->npixels; i++) free(in->pixels[i]);
    qkv_tensors_free(in->file);
    *in = (Inputs){0};
}

int inputs_share(const Loaded *a, Loaded *b)
{
    qkv_error e;
    int n = qkv_model_input_count(a->model);
    for (int i = 0; i < qkv_model_input_count(b->model); i++) {
        const char *name = qkv_model_input_name(b->model, i);
        int at = -1;
        qkv_tensor t;
        for (int k = 0; k < n; k++)
            if (!strcmp(name, qkv_model_input_name(a->model, k))) at = k;
        if (at < 0) at = i;
        if (at >= n) return problem(QKV_USAGE, "the first model does not have the other model's input '%s'", name);
        if (qkv_session_input(a->session, at, &t, &e) || qkv_session_set_input(b->session, name, &t, &e))
            return problem_of(&e);
    }
    return 0;
}
