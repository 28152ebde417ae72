/* Golden op cases: every row of the op table against PyTorch's answers (made by tools/golden.py). TAP: one line an op.
 *
 *     run_ops tests/ops                      all families; also fails for rows that have no case
 *     run_ops tests/ops add.Tensor softmax   only cases whose op name contains one of the words; prints every case
 *
 * A case `name: aten.add.Tensor(%0, %1, alpha=2)` is lowered, planned and run as a graph of its own, as import would do
 * it: once with the sizes of its tensors as constants, once with every axis (of size 2 or more) a symbol. First each
 * axis gets its own symbol; where an op needs equal sizes, axes of equal size share one. A case marked `# static` is
 * only run the first way; `# fixed 0.1 1` keeps axis 1 of %0 and all axes of %1 constant.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "golden.h"
#include "run/session.h"
#include "tap.h"
#include "tensor/tolerance.h"

typedef enum Answer { SAME, DIFFERENT, REFUSED } Answer;

/* By op: how many cases, how many failed, the first failure. */
static struct {
    int cases, failed;
    char first[1600];
} seen[OP_COUNT];

static bool compare(const Tensor *found, const Tensor *expected, int k, Err *err)
{
    char a[128], b[128];
    if (!found) return fail(err, E_MISMATCH, "output %d: none", k);
    Tensor fr = tensor_as_real(found), er = tensor_as_real(expected);
    const Tensor *got = &fr, *want = &er;
    bool same = got->dtype == want->dtype && got->rank == want->rank;
    for (int i = 0; same && i < got->rank; i++) same = got->shape[i] == want->shape[i];
    if (!same)
        return fail(err, E_MISMATCH, "output %d: %s, expected %s", k, tensor_describe(got, a, sizeof a),
                    tensor_describe(want, b, sizeof b));
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
            if (g != w)
                return fail(err, E_MISMATCH, "output %d: element %lld is %lld, expected %lld", k, (long long)i,
                            (long long)g, (long long)w);
            continue;
        }
        double g = tensor_get(got, i), w = tensor_get(want, i);
        bool equal = isnan(w)   ? isnan(g)
                     : isinf(w) ? g == w
                                : fabs(g - w) <= tolerance_of(TOLERANCE_OP, want->dtype) * peak;
        if (!equal)
            return fail(err, E_MISMATCH, "output %d: element %lld is %.9g, expected %.9g", k, (long long)i, g, w);
    }
    return true;
}

static Answer run_case(const GoldenCase *c, GoldenSizes how, Err *err)
{
    Graph *g = golden_graph(c, how, err);
    if (!g) return REFUSED;
    Session *s = session_create(g, NULL, 1, 0, err);
    Answer answer = REFUSED;
    bool ok = s != NULL;
    for (int i = 0; ok && i < c->nin; i++) ok = session_set_input(s, i, c->in[i], err);
    ok = ok && session_run(s, err);
    if (ok) {
        answer = SAME;
        for (int k = 0; k < g->noutput; k++) {
            int which = atoi(g->output[k].name + strlen("output_"));
            if (which < GOLDEN_TENSORS && c->want[which] && !compare(session_output(s, k), c->want[which], which, err))
                answer = DIFFERENT;
        }
        for (int k = 0; k < GOLDEN_TENSORS && c->want[k]; k++) { /* every expected result is there */
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

static bool one_case(const GoldenCase *c, char *why, size_t size)
{
    Err err = {0};
    if (run_case(c, CONSTANT, &err) != SAME) {
        snprintf(why, size, "%.60s: %.300s: %.1000s", c->name, c->call, err.msg);
        return false;
    }
    if (c->only_constant) return true;
    Answer a = run_case(c, DISTINCT, &err);
    if (a == REFUSED) a = run_case(c, SHARED, &err);
    if (a != SAME) snprintf(why, size, "%.60s with symbolic sizes: %.300s: %.1000s", c->name, c->call, err.msg);
    return a == SAME;
}

/* user: print every case? */
static void on_case(void *user, const GoldenCase *c)
{
    char why[1600] = "";
    bool ok = one_case(c, why, sizeof why);
    if (*(bool *)user) tap_ok(ok, "%s%s%s", c->name, ok ? "" : ": ", why);
    seen[c->op->id].cases++;
    if (!ok && !seen[c->op->id].failed++) snprintf(seen[c->op->id].first, sizeof seen->first, "%s", why);
}

static const char *const lowered[OP_COUNT] = {
#define LOWER(f) #f
#define OP(id, name, schema, ...) [OP_##id] = __VA_ARGS__,
#include "op/ops.def"
};

/* Rows that cannot have a case: in-place forms (tested through models), asserts, random numbers, complex halves (no
 * safetensors file holds them), rows without a tensor result, and our own (qkv.*), which only others are lowered to. */
static bool exempt(const Op *op)
{
    const char *returns = strstr(op->schema_text, "->");
    return (op->flags & (OPF_INPLACE | OPF_EFFECT | OPF_RANDOM)) || strstr(op->schema_text, "(a!)") ||
           !strcmp(lowered[op->id], "ignore") || !strcmp(lowered[op->id], "chalf") || !returns ||
           !strstr(returns, "Tensor") || !strncmp(op->name, "qkv.", 4);
}

int main(int argc, char **argv)
{
    if (!golden_all(argc, argv, on_case)) return 2;
    for (OpId id = OP_NONE + 1; argc == 2 && id < OP_COUNT; id++) {
        const Op *op = op_get(id);
        if (seen[id].failed)
            tap_ok(false, "%s: %d of %d cases: %s", op->name, seen[id].failed, seen[id].cases, seen[id].first);
        else if (seen[id].cases) tap_ok(true, "%s: %d cases", op->name, seen[id].cases);
        else if (!exempt(op)) tap_ok(false, "%s: no golden case (tools/golden_cases)", op->name);
    }
    return tap_done();
}
