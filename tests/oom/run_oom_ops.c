/* Memory that runs out in each op: every golden case is lowered, planned and run, written as ONNX and read again, with
 * some of its allocations refused, once and from then on. What comes of it is out of memory, or the result as always;
 * nothing stays allocated. TAP: one line a family.
 *
 *     run_oom_ops tests/ops FOLDER [WORD...]      FOLDER: for ONNX files; only ops whose name holds a word
 *
 * QKV_OOM_ALL=1: every allocation, not a few spread over them; files for every case. Under sanitizers the cases take
 * turns (turn.h).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/mem.h"
#include "grad/grad.h"
#include "onnx/read/read.h"
#include "onnx/write/write.h"
#include "ops/golden.h"
#include "run/session.h"
#include "tap.h"
#include "turn.h"

#if defined(__SANITIZE_ADDRESS__)
enum { POINTS = 3 }; /* of a case */
#else
enum { POINTS = 10 };
#endif
enum { FILES = 8, UNREADABLE = 70 }; /* one in so many cases is written; an exit code */

/* ------------------------------------------------------------------ the allocator */

static long live, asked, refuse_at; /* refuse_at 0: nothing is refused. One thread */
static bool for_ever;

static bool refused(void)
{
    asked++;
    return refuse_at && (asked == refuse_at || (for_ever && asked > refuse_at));
}

static void *take(void *user, size_t alignment, size_t n)
{
    (void)user;
    void *p = refused() ? NULL : aligned_alloc(alignment, (n + alignment - 1) / alignment * alignment);
    live += p != NULL;
    return p;
}

static void *grow(void *user, void *p, size_t n)
{
    (void)user;
    return refused() ? NULL : realloc(p, n);
}

static void release(void *user, void *p)
{
    (void)user;
    live--;
    free(p);
}

/* ------------------------------------------------------------------ what is tried */

typedef struct Try {
    const GoldenCase *c;
    const char *path; /* of an ONNX file */
    GoldenSizes how;
    double result; /* a sum over outputs, which another kernel, chosen where memory lacks, may round otherwise */
} Try;

static void take_outputs(Try *t, const Session *s, int n)
{
    t->result = n;
    for (int k = 0; k < n; k++) {
        const Tensor *y = session_output(s, k);
        if (!y) continue;
        Tensor flat = tensor_as_real(y);
        int64_t count = tensor_numel(&flat);
        for (int64_t i = 0; i < count; i++) {
            double v = tensor_get(&flat, i);
            if (isfinite(v)) t->result += fabs(v) * (1 + (double)(i % 13));
        }
    }
}

static bool run(Try *t, Err *err)
{
    Graph *g = golden_graph(t->c, t->how, err);
    Session *s = g ? session_create(g, NULL, 1, 0, err) : NULL;
    bool ok = s != NULL;
    for (int i = 0; ok && i < t->c->nin; i++) ok = session_set_input(s, i, t->c->in[i], err);
    ok = ok && session_run(s, err);
    if (ok) take_outputs(t, s, g->noutput);
    session_free(s);
    if (g) graph_free(g);
    return ok;
}

static bool written(Try *t, Err *err)
{
    OnnxOptions o = {.opset = 23};
    Graph *g = golden_graph(t->c, t->how, err);
    bool ok = g && written_as_loops(g, err) && onnx_save(g, t->path, &o, NULL, err);
    if (g) graph_free(g);
    return ok;
}

static bool read_again(Try *t, Err *err)
{
    Source *s = onnx_import(t->path, NULL, err);
    source_close(s);
    return s != NULL;
}

/* ------------------------------------------------------------------ refusals */

static struct {
    long passed, cases, points, wrong;
    bool all;
    const char *folder;
    char name[200]; /* of the last case that was begun */
} *seen; /* of all processes */

static void wrong(const Try *t, const char *stage, long n, const char *what, const char *more)
{
    if (seen->wrong++ < 20)
        printf("# %s.%s, %s, allocation %ld of %ld refused %s: %s%s\n", t->c->family, t->c->name, stage, refuse_at, n,
               for_ever ? "for ever" : "once", what, more);
}

static bool tried(bool f(Try *t, Err *err), Try *t, Err *err)
{
    *err = (Err){0};
    asked = 0;
    mem_begin();
    return f(t, err);
}

/* Points spread over those that there are, other ones for each case. */
static bool sweep(bool f(Try *t, Err *err), Try *t, const char *stage)
{
    Err err;
    refuse_at = 0;
    if (!tried(f, t, &err)) return false; /* a form that is refused in any case */
    const double result = t->result;
    const long n = asked, before = live, step = seen->all ? 1 : n / POINTS + 1;
    for (long at = 1 + seen->cases % step; at <= n; at += step)
        for (int ever = 0; ever < 2; ever++) {
            refuse_at = at;
            for_ever = ever;
            bool ok = tried(f, t, &err);
            seen->points++;
            if (ok && fabs(t->result - result) > 1e-3 * result) wrong(t, stage, n, "another result", "");
            if (!ok && (err.code != E_LIMIT || !strstr(err.msg, "out of memory")))
                wrong(t, stage, n, "it ends with: ", err.msg);
            if (live != before) wrong(t, stage, n, "something stays allocated", "");
            live = before;
        }
    refuse_at = 0;
    return true;
}

static void all_of(const GoldenCase *c)
{
    char path[600];
    Try t = {.c = c, .path = path};
    snprintf(path, sizeof path, "%s/case.onnx", seen->folder);
    sweep(run, &t, "run");
    t.how = c->only_constant ? CONSTANT : DISTINCT;
    if (!c->only_constant && !sweep(run, &t, "with symbols")) t.how = SHARED;
    if (!seen->all && seen->cases % FILES) return;
    if (sweep(written, &t, "written")) sweep(read_again, &t, "read again");
    unlink(path);
}

/* In a child, which takes the cases that none has begun: what ends it ends one case. */
static void on_case(void *user, const GoldenCase *c)
{
    long *passed = user, at = (*passed)++;
    if (at < seen->passed) return;
    seen->passed = at + 1;
    if (turn_of_three() >= 0 && at % 3 != turn_of_three()) return;
    seen->cases++;
    snprintf(seen->name, sizeof seen->name, "%s.%s: %s", c->family, c->name, c->op->name);
    all_of(c);
}

/* All cases of a family: can they be read? */
static bool each_of(const char *family, char **argv, int argc)
{
    for (long before = -1; before < seen->passed;) {
        int status = 0;
        before = seen->passed;
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            Err err = {0};
            long passed = 0;
            bool ok = golden_each(argv[1], family, argv + 3, argc - 3, on_case, &passed, &err);
            if (!ok) printf("# %s\n", err.msg);
            fflush(stdout);
            _exit(ok ? 0 : UNREADABLE);
        }
        if (child < 0 || waitpid(child, &status, 0) != child) return false;
        if (WIFEXITED(status) && (!WEXITSTATUS(status) || WEXITSTATUS(status) == UNREADABLE)) return !status;
        printf("# %s: ended by signal %d\n", seen->name, WTERMSIG(status));
        seen->wrong++;
    }
    return false;
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED) return 2;
    seen->folder = argv[2];
    seen->all = getenv("QKV_OOM_ALL") != NULL;
    tap_ok(mem_set(&(MemHooks){take, grow, release, NULL}), "an allocator is set");
    for (int k = 0; k < golden_family_count; k++) {
        seen->passed = seen->cases = seen->points = seen->wrong = 0;
        bool ok = each_of(golden_families[k], argv, argc);
        tap_ok(ok && !seen->wrong, "%s: %ld cases, %ld refusals, %ld wrong", golden_families[k], seen->cases,
               seen->points, seen->wrong);
    }
    return tap_done();
}
