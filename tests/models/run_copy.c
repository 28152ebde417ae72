/* A copy of a graph prints as the graph does, before and after rules, and gives the same bits, for each small model at
 * all its sizes; and after every pass of a run the graph's text reads back. TAP.
 *
 *     run_copy tests/models/small
 */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "format/tensors.h"
#include "ir/copy.h"
#include "program/passes.h"
#include "program/prepare.h"
#include "program/program.h"
#include "run/session.h"
#include "folder.h"
#include "tap.h"

static bool same_text(const Graph *a, const Graph *b)
{
    Buf x = {0}, y = {0};
    graph_print(a, &x);
    graph_print(b, &y);
    bool same = x.len && x.len == y.len && !memcmp(x.data, y.data, x.len);
    buf_free(&x);
    buf_free(&y);
    return same;
}

static bool run(Session *s, const Graph *g, const TensorFile *in, Err *err)
{
    for (int i = 0; i < g->ninput; i++)
        for (size_t k = 0; k < tensorfile_count(in); k++)
            if (!strcmp(tensorfile_name(in, k), value_label(g->input[i])))
                TRY(session_set_input(s, i, tensorfile_at(in, k), err));
    session_seed(s, 0);
    return session_run(s, err);
}

static bool same_bits(const Session *a, const Session *b, int n)
{
    for (int i = 0; i < n; i++) {
        const Tensor *x = session_output(a, i), *y = session_output(b, i);
        size_t bytes = tensor_bytes(x);
        if (bytes != tensor_bytes(y) || (bytes && memcmp(x->data, y->data, bytes))) return false;
    }
    return true;
}

static void run_model(const char *dir, const char *name, bool rewritten)
{
    char path[1024];
    Err err = {0};
    Program p;
    Buf report = {0};
    snprintf(path, sizeof path, "%s/%s.pt2", dir, name);
    if (!program_open(&p, path, &(OpenOptions){0}, &err)) {
        tap_ok(false, "%s: %s", name, err.msg);
        return;
    }
    bool ok = !rewritten || program_rewrite(&p, &(OptimiseOptions){0}, &report, &err);
    Graph *copy = ok ? graph_copy(p.graph, &err) : NULL;
    bool text = copy && same_text(p.graph, copy) && graph_check(copy, &err), bits = true;
    Session *a = text ? session_create(p.graph, NULL, 1, 0, &err) : NULL,
            *b = a ? session_create(copy, NULL, 1, 0, &err) : NULL;
    int v = 0;
    for (ok = b != NULL; ok && bits; v++) {
        snprintf(path, sizeof path, "%s/%s.v%d.in.safetensors", dir, name, v);
        Err none;
        TensorFile *in = tensorfile_open(path, &none);
        if (!in) break;
        ok = run(a, p.graph, in, &err) && run(b, copy, in, &err);
        bits = ok && same_bits(a, b, p.graph->noutput);
        tensorfile_close(in);
    }
    tap_ok(ok && v > 0 && bits, "%s%s: %s%s", name, rewritten ? ", rewritten" : "",
           !text   ? "the copy's text differs "
           : !bits ? "other bits "
                   : "",
           err.msg);
    session_free(a);
    session_free(b);
    if (copy) graph_free(copy);
    buf_free(&report);
    program_close(&p);
}

static const Tensor *next_weight(void *user, const char *fqn)
{
    Value ***next = user;
    (void)fqn;
    return (*(*next)++)->data;
}

static bool reads_back(const Graph *g, Err *err)
{
    Buf text = {0};
    Value **next = g->weight;
    graph_print(g, &text);
    Graph *again = graph_parse(text.data, next_weight, &next, err);
    bool same = again && (same_text(g, again) || fail(err, E_FORMAT, "the text reads back as another"));
    graph_free(again);
    buf_free(&text);
    return same;
}

/* The graph after each pass that a session may run, for products in bf16 so that none has nothing to do. */
static void run_passes(const char *dir, const char *name)
{
    char path[1024];
    Err err = {0};
    Program p;
    const char *pass, *bad = NULL;
    unsigned list = 0;
    bool ordinary;
    snprintf(path, sizeof path, "%s/%s.pt2", dir, name);
    if (!program_open(&p, path, &(OpenOptions){.compute = DT_BF16}, &err)) {
        tap_ok(false, "%s: %s", name, err.msg);
        return;
    }
    for (int i = 0; !bad && (pass = pass_listed(i, &ordinary)); i++) {
        unsigned one;
        Prepared r = {0};
        bool ok = passes_named(pass, &one, &err);
        list |= one;
        ok = ok && program_prepare(&p, list, &r, &err) && reads_back(r.graph ? r.graph : p.graph, &err);
        prepared_free(&r);
        if (!ok) bad = pass;
    }
    tap_ok(!bad && list, "%s, after every pass: %s %s", name, bad ? bad : "", err.msg);
    program_close(&p);
}

static void run_named(const char *folder, const char *name, void *user)
{
    (void)user;
    run_model(folder, name, false);
    run_model(folder, name, true);
    run_passes(folder, name);
}

int main(int argc, char **argv)
{
    if (!each_model(argc == 2 ? argv[1] : NULL, run_named, NULL)) {
        fprintf(stderr, "usage: run_copy FOLDER\n");
        return 2;
    }
    return tap_done();
}
