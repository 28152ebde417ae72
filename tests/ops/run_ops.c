/* Golden op cases: every row of the op table against PyTorch's answers (made by tools/golden.py). TAP: one line an op.
 *
 *     run_ops tests/ops                      all families; also fails for rows that have no case
 *     run_ops tests/ops add.Tensor softmax   only cases whose op name contains one of the words; prints every case
 *
 * A case `name: aten.add.Tensor(%0, %1, alpha=2)` is lowered, planned and run as a graph of its own, as import would do it: once with
 * the sizes of its tensors as constants, once with every axis (of size 2 or more) a symbol. First each axis gets its own symbol; where
 * an op needs equal sizes, axes of equal size share one. A case marked `# static` is only run the first way; `# fixed 0.1 1`
 * keeps axis 1 of %0 and all axes of %1 constant.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "format/tensors.h"
#include "import/lower.h"
#include "ir/text.h"
#include "run/session.h"
#include "shape/shape.h"
#include "tap.h"

static const char *const families[] = {"view", "pointwise", "reduce", "index", "image", "linalg"};
enum { MAX_TENSORS = 64, MAX_SIZES = 256 };

typedef enum Sizes { CONSTANT, DISTINCT, SHARED } Sizes;
typedef enum Answer { SAME, DIFFERENT, REFUSED } Answer;

/* By op: how many cases, how many failed, the first failure. */
static struct {
    int cases, failed;
    char first[1600];
} seen[OP_COUNT];

/* Largest difference relative to the largest expected value that counts as equal. */
static double tolerance(DType t)
{
    switch (t) {
    case DT_F64: return 1e-10;
    case DT_F32: return 2e-5;
    case DT_F16: return 2e-3;
    case DT_BF16: return 2e-2;
    default: return 0;
    }
}

static bool compare(const Tensor *found, const Tensor *expected, int k, Err *err)
{
    char a[128], b[128];
    if (!found) return fail(err, E_MISMATCH, "output %d: none", k);
    Tensor fr = tensor_as_real(found), er = tensor_as_real(expected);
    const Tensor *got = &fr, *want = &er;
    bool same = got->dtype == want->dtype && got->rank == want->rank;
    for (int i = 0; same && i < got->rank; i++) same = got->shape[i] == want->shape[i];
    if (!same) return fail(err, E_MISMATCH, "output %d: %s, expected %s", k, tensor_describe(got, a, sizeof a), tensor_describe(want, b, sizeof b));
    int64_t n = tensor_numel(want);
    double peak = 0;
    bool real = dtype_is_float(want->dtype);
    for (int64_t i = 0; real && i < n; i++) {
        double w = fabs(tensor_get(want, i));
        if (isfinite(w) && w > peak) peak = w;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!real) {
            int64_t g = tensor_get_i64(got, i), w = tensor_get_i64(want, i);
            if (g != w) return fail(err, E_MISMATCH, "output %d: element %lld is %lld, expected %lld", k, (long long)i, (long long)g, (long long)w);
            continue;
        }
        double g = tensor_get(got, i), w = tensor_get(want, i);
        bool equal = isnan(w) ? isnan(g) : isinf(w) ? g == w : fabs(g - w) <= tolerance(want->dtype) * peak;
        if (!equal) return fail(err, E_MISMATCH, "output %d: element %lld is %.9g, expected %.9g", k, (long long)i, g, w);
    }
    return true;
}

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
static Expr *axis(Graph *g, Sizes how, int64_t size, int64_t *shared, int *nsymbols)
{
    if (how == CONSTANT || size < 2) return ex_int(g->ex, size);
    int k = 0;
    while (how == SHARED && k < *nsymbols && shared[k] != size) k++;
    if (how == DISTINCT || k == *nsymbols) k = (*nsymbols)++;
    if (k >= MAX_SIZES) return NULL;
    shared[k] = size;
    char name[32];
    snprintf(name, sizeof name, "s%d", k);
    Expr *e = ex_symbol(g->ex, name);
    if (!e) return NULL;
    expr_set_range(g->ex, (int)e->i, 2, INT64_MAX);
    expr_symbol(g->ex, (int)e->i)->source = SYM_INPUT;
    return e;
}

/* Builds the graph of one case and gives its outputs; NULL with err set when something refused. */
static Graph *build(const char *call, const char *fixed, const Tensor *const *in, int nin, Sizes how, Err *err)
{
    Graph *g = graph_create();
    if (!g) return NULL;
    int64_t shared[MAX_SIZES];
    int nsymbols = 0;
    for (int i = 0; i < nin; i++) {
        Expr *dim[MAX_RANK];
        char name[16];
        for (int a = 0; a < in[i]->rank; a++) dim[a] = axis(g, is_fixed(fixed, i, a) ? CONSTANT : how, in[i]->shape[a], shared, &nsymbols);
        snprintf(name, sizeof name, "%d", i);
        if (!graph_add_input(g, name, in[i]->dtype, in[i]->rank, dim)) {
            fail(err, E_LIMIT, "out of memory");
            goto error;
        }
    }
    const Op *op;
    Arg *args;
    if (!text_parse_call(g, call, &op, &args, err)) goto error;
    Lower L = {.g = g, .ex = g->ex, .op = op, .arg = args, .name = "y", .err = err};
    if (!lower_op(&L)) goto error;
    int n = L.result.kind == ARG_VALUES ? L.result.n : 1;
    g->output = arena_array(g->arena, Output, n + 1);
    g->noutput = 0;
    for (int k = 0; k < n; k++) {
        Value *v = L.result.kind == ARG_VALUES ? L.result.vs[k] : L.result.kind == ARG_VALUE ? L.result.v : NULL;
        if (!v) continue;
        g->output[g->noutput] = (Output){.name = arena_printf(g->arena, "output_%d", k), .value_name = v->name, .value = v};
        g->noutput++;
    }
    if (!graph_check(g, err)) goto error;
    return g;
error:
    graph_free(g);
    return NULL;
}

static Answer run_case(const char *call, const char *fixed, const Tensor *const *in, int nin, const Tensor *const *want, Sizes how, Err *err)
{
    Graph *g = build(call, fixed, in, nin, how, err);
    if (!g) return REFUSED;
    Session *s = session_create(g, NULL, 1, 0, err);
    Answer answer = REFUSED;
    bool ok = s != NULL;
    for (int i = 0; ok && i < nin; i++) ok = session_set_input(s, i, in[i], err);
    ok = ok && session_run(s, err);
    if (ok) {
        answer = SAME;
        for (int k = 0; k < g->noutput; k++) {
            int which = atoi(g->output[k].name + strlen("output_"));
            if (which < MAX_TENSORS && want[which] && !compare(session_output(s, k), want[which], which, err)) answer = DIFFERENT;
        }
        for (int k = 0; k < MAX_TENSORS && want[k]; k++) { /* every expected result is there */
            bool there = false;
            for (int j = 0; j < g->noutput; j++) there |= atoi(g->output[j].name + strlen("output_")) == k;
            if (!there) fail(err, E_MISMATCH, "output %d is missing", k);
            if (!there) answer = DIFFERENT;
        }
    }
    session_free(s);
    graph_free(g);
    return answer;
}

static bool one_case(const char *name, const char *call, const char *mark, const TensorFile *file, char *why, size_t size)
{
    const Tensor *in[MAX_TENSORS], *want[MAX_TENSORS] = {NULL};
    int nin = 0;
    char key[256];
    for (; nin < MAX_TENSORS; nin++) {
        snprintf(key, sizeof key, "%s.in%d", name, nin);
        in[nin] = tensorfile_find(file, key);
        if (!in[nin]) break;
    }
    for (int k = 0; k < MAX_TENSORS; k++) {
        snprintf(key, sizeof key, "%s.out%d", name, k);
        want[k] = tensorfile_find(file, key);
    }
    Err err = {0};
    const char *fixed = mark && !strncmp(mark, "fixed ", 6) ? mark + 6 : NULL;
    if (run_case(call, fixed, in, nin, want, CONSTANT, &err) != SAME) {
        snprintf(why, size, "%.60s: %.300s: %.1000s", name, call, err.msg);
        return false;
    }
    if (mark && !fixed) return true;
    Answer a = run_case(call, fixed, in, nin, want, DISTINCT, &err);
    if (a == REFUSED) a = run_case(call, fixed, in, nin, want, SHARED, &err);
    if (a != SAME) snprintf(why, size, "%.60s with symbolic sizes: %.300s: %.1000s", name, call, err.msg);
    return a == SAME;
}

static bool chosen(const char *op, char **words, int n)
{
    for (int i = 0; i < n; i++)
        if (strstr(op, words[i])) return true;
    return n == 0;
}

static bool run_family(const char *dir, const char *family, char **words, int nwords)
{
    char path[1024];
    Err err = {0};
    snprintf(path, sizeof path, "%s/%s.safetensors", dir, family);
    TensorFile *file = tensorfile_open(path, &err);
    snprintf(path, sizeof path, "%s/%s.cases", dir, family);
    FILE *cases = file ? fopen(path, "r") : NULL;
    if (!cases) {
        tensorfile_close(file);
        return tap_ok(false, "%s: %s", path, file ? "cannot be read" : err.msg);
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
        char op_name[256], why[1600] = "";
        snprintf(op_name, sizeof op_name, "%.*s", (int)strcspn(call, "("), call);
        const Op *op = op_find(op_name);
        if (!op || !chosen(op_name, words, nwords)) continue; /* a row was taken away: golden --check says so */
        bool ok = one_case(line, call, mark, file, why, sizeof why);
        if (nwords) tap_ok(ok, "%s%s%s", line, ok ? "" : ": ", why);
        seen[op->id].cases++;
        if (!ok && !seen[op->id].failed++) snprintf(seen[op->id].first, sizeof seen->first, "%s", why);
    }
    free(line);
    fclose(cases);
    tensorfile_close(file);
    return true;
}

static const char *const lowered[OP_COUNT] = {
#define OP(id, name, schema, lower, shape, view, run, flags) [OP_##id] = #lower,
#include "ir/ops.def"
#undef OP
};

/* Rows that cannot have a case: in-place forms (tested through models), asserts, random numbers, rows without a tensor
 * result, and our own (qkv.*), which only other rows are lowered to. */
static bool exempt(const Op *op)
{
    const char *returns = strstr(op->schema_text, "->");
    return (op->flags & (OPF_INPLACE | OPF_EFFECT | OPF_RANDOM)) || strstr(op->schema_text, "(a!)") || !strcmp(lowered[op->id], "ignore") || !returns ||
           !strstr(returns, "Tensor") || !strncmp(op->name, "qkv.", 4);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: run_ops FOLDER [WORD...]\n");
        return 2;
    }
    shape_install();
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) run_family(argv[1], families[f], argv + 2, argc - 2);
    for (OpId id = OP_NONE + 1; argc == 2 && id < OP_COUNT; id++) {
        const Op *op = op_get(id);
        if (seen[id].failed) tap_ok(false, "%s: %d of %d cases: %s", op->name, seen[id].failed, seen[id].cases, seen[id].first);
        else if (seen[id].cases) tap_ok(true, "%s: %d cases", op->name, seen[id].cases);
        else if (!exempt(op)) tap_ok(false, "%s: no golden case (tools/golden_cases)", op->name);
    }
    return tap_done();
}
