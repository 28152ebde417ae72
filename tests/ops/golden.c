/* Golden op cases: reading them, and the graph of one. Contract in golden.h. */
#include "golden.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lower/lower.h"
#include "ir/text.h"
#include "../tap.h"

const char *const golden_families[] = {"view", "pointwise", "reduce", "index", "image", "linalg"};
const int golden_family_count = sizeof golden_families / sizeof *golden_families;

/* Is axis a of tensor i named by "# fixed 0.1 1"? */
static bool is_fixed(const char *fixed, int i, int a)
{
    for (const char *s = fixed; s && *s;) {
        char *end;
        long tensor = strtol(s, &end, 10), axis = -1;
        if (*end == '.') axis = strtol(end + 1, &end, 10);
        if (tensor == i && (axis < 0 || axis == a)) return true;
        s = *end == ' ' ? end + 1 : NULL;
    }
    return false;
}

/* The expression for one axis: a constant, or a symbol of [2, inf). */
static Expr *axis(Graph *g, GoldenSizes how, int64_t size, int64_t *shared, int *nsymbols)
{
    if (how == CONSTANT || size < 2) return ex_int(g->ex, size);
    int k = 0;
    while (how == SHARED && k < *nsymbols && shared[k] != size) k++;
    if (how == DISTINCT || k == *nsymbols) k = (*nsymbols)++;
    if (k >= GOLDEN_SIZES) return NULL;
    shared[k] = size;
    char name[32];
    snprintf(name, sizeof name, "s%d", k);
    Expr *e = ex_symbol(g->ex, name);
    if (!e) return NULL;
    expr_set_range(g->ex, (int)e->i, 2, INT64_MAX);
    expr_symbol(g->ex, (int)e->i)->source = SYM_INPUT;
    return e;
}

Graph *golden_graph(const GoldenCase *c, GoldenSizes how, Err *err)
{
    Graph *g = graph_create();
    if (!g) {
        oom(err);
        return NULL;
    }
    int64_t shared[GOLDEN_SIZES];
    int nsymbols = 0;
    for (int i = 0; i < c->nin; i++) {
        Expr *dim[MAX_RANK];
        char name[16];
        bool ok = true;
        for (int a = 0; a < c->in[i]->rank; a++) {
            dim[a] = axis(g, is_fixed(c->fixed, i, a) ? CONSTANT : how, c->in[i]->shape[a], shared, &nsymbols);
            ok = ok && dim[a];
        }
        snprintf(name, sizeof name, "%d", i);
        if (!ok || !graph_add_input(g, name, c->in[i]->dtype, c->in[i]->rank, dim)) {
            fail(err, E_LIMIT, "out of memory");
            goto error;
        }
    }
    const Op *op;
    Arg *args;
    if (!text_parse_call(g, c->call, &op, &args, err)) goto error;
    Lower L = {.g = g, .ex = g->ex, .op = op, .arg = args, .name = "y", .err = err};
    if (!lower_op(&L)) goto error;
    int n = L.result.kind == ARG_VALUES ? L.result.n : 1;
    g->output = arena_array(g->arena, Output, n + 1);
    g->noutput = 0;
    if (!g->output) {
        oom(err);
        goto error;
    }
    for (int k = 0; k < n; k++) {
        Value *v = L.result.kind == ARG_VALUES ? L.result.vs[k] : L.result.kind == ARG_VALUE ? L.result.v : NULL;
        if (!v) continue;
        g->output[g->noutput] = (Output){
            .name = arena_printf(g->arena, "output_%d", k), .value_name = v->name, .value = v};
        if (!g->output[g->noutput++].name) {
            oom(err);
            goto error;
        }
    }
    if (!graph_check(g, err)) goto error;
    return g;
error:
    graph_free(g);
    return NULL;
}

static bool chosen(const char *op, char **words, int n)
{
    for (int i = 0; i < n; i++)
        if (strstr(op, words[i])) return true;
    return n == 0;
}

static void read_tensors(const TensorFile *file, GoldenCase *c)
{
    char key[256];
    for (c->nin = 0; c->nin < GOLDEN_TENSORS; c->nin++) {
        snprintf(key, sizeof key, "%s.in%d", c->name, c->nin);
        c->in[c->nin] = tensorfile_find(file, key);
        if (!c->in[c->nin]) break;
    }
    for (int k = 0; k < GOLDEN_TENSORS; k++) {
        snprintf(key, sizeof key, "%s.out%d", c->name, k);
        c->want[k] = tensorfile_find(file, key);
    }
}

static int is_cases(const struct dirent *d)
{
    size_t n = strlen(d->d_name), end = strlen(".cases");
    return n > end && !strcmp(d->d_name + n - end, ".cases");
}

/* One op's file of cases, `path` without its ending. */
static bool each_of_file(const char *path, const char *family, char **words, int nwords,
                         void (*f)(void *user, const GoldenCase *c), void *user, Err *err)
{
    char name[1100];
    snprintf(name, sizeof name, "%s.safetensors", path);
    TensorFile *file = tensorfile_open(name, err);
    TRY(file);
    snprintf(name, sizeof name, "%s.cases", path);
    FILE *cases = fopen(name, "r");
    if (!cases) {
        tensorfile_close(file);
        return fail(err, E_IO, "%s: cannot be read", name);
    }
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, cases) > 0) {
        line[strcspn(line, "\n")] = 0;
        char *call = strstr(line, ": "), *mark = strstr(line, "  # ");
        if (!call) continue;
        if (mark) {
            *mark = 0;
            mark += strlen("  # ");
        }
        *call = 0;
        call += 2;
        char op_name[256];
        snprintf(op_name, sizeof op_name, "%.*s", (int)strcspn(call, "("), call);
        const char *fixed = mark && !strncmp(mark, "fixed ", 6) ? mark + 6 : NULL;
        GoldenCase c = {.family = family, .name = line, .call = call, .fixed = fixed, .op = op_find(op_name)};
        c.only_constant = mark && !c.fixed;
        if (!c.op || !chosen(op_name, words, nwords)) continue; /* a row was taken away: golden --check says so */
        read_tensors(file, &c);
        f(user, &c);
    }
    free(line);
    fclose(cases);
    tensorfile_close(file);
    return true;
}

bool golden_each(const char *dir, const char *family, char **words, int nwords,
                 void (*f)(void *user, const GoldenCase *c), void *user, Err *err)
{
    char path[1024];
    struct dirent **entry;
    snprintf(path, sizeof path, "%s/%s", dir, family);
    int n = scandir(path, &entry, is_cases, alphasort);
    bool ok = n > 0 || fail(err, E_IO, "%s: no cases can be read there", path);
    for (int i = 0; i < n; i++) {
        int stem = (int)(strlen(entry[i]->d_name) - strlen(".cases"));
        snprintf(path, sizeof path, "%s/%s/%.*s", dir, family, stem, entry[i]->d_name);
        ok = ok && each_of_file(path, family, words, nwords, f, user, err);
        free(entry[i]);
    }
    if (n >= 0) free(entry);
    return ok;
}

bool golden_all(int argc, char **argv, void (*f)(void *user, const GoldenCase *c))
{
    bool each = argc > 2;
    if (argc < 2) fprintf(stderr, "usage: %s FOLDER [WORD...]\n", argv[0]);
    for (int k = 0; argc > 1 && k < golden_family_count; k++) {
        Err err = {0};
        if (!golden_each(argv[1], golden_families[k], argv + 2, argc - 2, f, &each, &err)) tap_ok(false, "%s", err.msg);
    }
    return argc > 1;
}
