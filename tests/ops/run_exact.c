/* The exact interpreter of proofs (src/prove) on the golden cases: the value in double precision beside each residue is
 * PyTorch's answer, up to PyTorch's rounding.
 * TAP: one line an op that is written exactly, with how many cases it covers.
 *
 *     run_exact tests/ops                    run_exact tests/ops softmax prints every case
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "golden.h"
#include "prove/exact.h"
#include "tap.h"
#include "tensor/tolerance.h"

static struct {
    int covered, cases, failed;
    char first[600];
} seen[OP_COUNT];

static bool near(const ExactTensor *got, const Tensor *want, int k, char *why, size_t size)
{
    Tensor w = tensor_as_real(want);
    int64_t n = tensor_numel(&w);
    double peak = 0, allowed = tolerance_of(TOLERANCE_OP, w.dtype);
    if (got->n * got->width != n) {
        snprintf(why, size, "result %d has %lld elements, expected %lld", k, (long long)got->n, (long long)n);
        return false;
    }
    for (int64_t i = 0; i < n; i++)
        if (isfinite(tensor_get(&w, i))) peak = fmax(peak, fabs(tensor_get(&w, i)));
    for (int64_t i = 0; i < n; i++) {
        double g = got->r ? got->v[i] : (double)got->i[i], e = tensor_get(&w, i);
        bool beyond = isinf(e) && fabs(g) > dtype_highest(w.dtype) && (g < 0) == (e < 0); /* real numbers go on */
        bool same = beyond || (isnan(e) ? isnan(g) : g == e || fabs(g - e) <= allowed * peak);
        if (same) continue;
        snprintf(why, size, "result %d: element %lld is %.9g, expected %.9g", k, (long long)i, g, e);
        return false;
    }
    return true;
}

/* 1: as PyTorch; 0: not; -1: not covered */
static int answer(const GoldenCase *c, const Graph *g, char *why, size_t size)
{
    Err err = {0};
    Exact *x = exact_create(EXACT_AS_GIVEN, EXACT_WORK_RULE);
    int ok = x && exact_run(x, g, c->in, NULL, &err) && !exact_boxed(x) ? 1 : -1;
    if (ok < 0 && err.code != E_UNSUPPORTED && err.code != E_LIMIT && err.code) ok = 0;
    if (!ok) snprintf(why, size, "%.500s", err.msg);
    for (int k = 0; ok == 1 && k < g->noutput; k++) {
        int which = atoi(g->output[k].name + strlen("output_"));
        if (which < GOLDEN_TENSORS && c->want[which] && !near(exact_output(x, k), c->want[which], which, why, size))
            ok = 0;
    }
    exact_free(x);
    return ok;
}

/* Cases whose answer is not that of real numbers. */
static bool apart(const GoldenCase *c)
{
    static const char *const names[] = {"ldexp_Tensor_39",      /* 2^x as a float, times a double */
                                        "special_sinc_1",       /* sin of pi as a float */
                                        "hypot_23",             /* of an infinity and a NaN */
                                        "clamp_18", "clip_18"}; /* -1 is 255 there */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(c->name, names[i])) return true;
    if (strstr(c->op->name, "choose_qparams")) return true; /* quotients of float32, widened */
    if (strstr(c->op->name, "frexp")) return true; /* steps at powers of two, beside a logarithm that is rounded */
    for (int i = 0; i < c->nin; i++) /* half width: rounded on the way */
        if (dtype_is_float(c->in[i]->dtype) && dtype_size(c->in[i]->dtype) < 4) return true;
    for (int i = 0; i < GOLDEN_TENSORS; i++)
        if (c->want[i] && dtype_is_float(c->want[i]->dtype) && dtype_size(c->want[i]->dtype) < 4) return true;
    return false;
}

static void on_case(void *user, const GoldenCase *c)
{
    char why[600] = "";
    Err err = {0};
    Graph *g = golden_graph(c, CONSTANT, &err);
    int ok = g && !apart(c) ? answer(c, g, why, sizeof why) : -1;
    if (*(bool *)user && ok >= 0) tap_ok(ok, "%s%s%s", c->name, ok ? "" : ": ", why);
    seen[c->op->id].cases++;
    seen[c->op->id].covered += ok >= 0;
    if (!ok && !seen[c->op->id].failed++)
        snprintf(seen[c->op->id].first, sizeof seen->first, "%.40s: %.500s", c->name, why);
    graph_free(g);
}

int main(int argc, char **argv)
{
    if (!golden_all(argc, argv, on_case)) return 2;
    for (OpId id = OP_NONE + 1; argc == 2 && id < OP_COUNT; id++) {
        if (!seen[id].covered) continue;
        tap_ok(!seen[id].failed, "%s: %d of %d cases exact%s%s", op_get(id)->name, seen[id].covered, seen[id].cases,
               seen[id].failed ? ": " : "", seen[id].first);
    }
    return tap_done();
}
