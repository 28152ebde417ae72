/* Memory of results and scratch stays within 1.1 times what the order of steps needs at least (and a few cache lines,
 * for models of a few), for each small model (tests/models/small) at all its sizes, with 1 and with 2 threads,
 * rewritten and not. TAP.
 *
 *     run_memory tests/models/small
 */
#include <stdlib.h>
#include <string.h>
#include "program/program.h"
#include "format/tensors.h"
#include "program/passes.h"
#include "program/prepare.h"
#include "run/session.h"
#include "folder.h"
#include "tap.h"

enum { MAX_VARIANTS = 8, LINES = 4 * 64 };

static bool set_inputs(Session *s, const Graph *g, const TensorFile *in, Err *err)
{
    for (int i = 0; i < g->ninput; i++)
        for (size_t k = 0; k < tensorfile_count(in); k++)
            if (!strcmp(tensorfile_name(in, k), value_label(g->input[i])))
                TRY(session_set_input(s, i, tensorfile_at(in, k), err));
    return true;
}

/* Twice at each size: the first run tells how much scratch there is. */
static void run_model(const char *dir, const char *name, bool rewritten, int threads)
{
    char path[1024];
    Err err = {0};
    Program p;
    OpenOptions open = {0};
    OptimiseOptions optimise = {0};
    Buf report = {0};
    SessionStats st;
    double worst = 1;
    snprintf(path, sizeof path, "%s/%s.pt2", dir, name);
    if (!program_open(&p, path, &open, &err)) {
        tap_ok(false, "%s: %s", name, err.msg);
        return;
    }
    bool ok = !rewritten || program_rewrite(&p, &optimise, &report, &err);
    const Graph *g;
    const Fusion *fusion;
    ok = ok && program_for_runs(&p, PASSES_PLAIN_RUN, &g, &fusion, &err);
    Session *s = ok ? session_create(g, fusion, threads, 0, &err) : NULL;
    int v = 0;
    for (ok = s != NULL; ok && v < MAX_VARIANTS; v++) {
        snprintf(path, sizeof path, "%s/%s.v%d.in.safetensors", dir, name, v);
        Err none;
        TensorFile *in = tensorfile_open(path, &none);
        if (!in) break;
        ok = set_inputs(s, p.graph, in, &err) && session_run(s, &err) && session_run(s, &err);
        tensorfile_close(in);
        session_stats(s, &st);
        size_t have = st.arena_bytes + st.scratch_bytes;
        double now = have > st.bound_bytes + LINES && st.bound_bytes ? (double)have / (double)st.bound_bytes : 1;
        if (now > worst) worst = now;
    }
    tap_ok(ok && v > 0 && worst <= 1.1, "%s%s, %d threads: %.3f times the bound %s", name,
           rewritten ? ", rewritten" : "", threads, worst, err.msg);
    session_free(s);
    buf_free(&report);
    program_close(&p);
}

static void run_named(const char *folder, const char *name, void *user)
{
    (void)user;
    for (int how = 0; how < 4; how++) run_model(folder, name, how & 1, 1 + how / 2);
}

int main(int argc, char **argv)
{
    if (!each_model(argc == 2 ? argv[1] : NULL, run_named, NULL)) {
        fprintf(stderr, "usage: run_memory FOLDER\n");
        return 2;
    }
    return tap_done();
}
