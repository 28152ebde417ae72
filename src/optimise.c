/* Rewriting a program. Contract in optimise.h. */
#include "optimise.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/file.h"
#include "format/json.h"
#include "format/tensors.h"
#include "rewrite/prove.h"
#include "run/session.h"

/* ------------------------------------------------------------------ what proofs need of the runtime */

typedef struct Evaluator {
    Session *session;
    const char *counterexample;
} Evaluator;

static void release(void *user)
{
    Evaluator *e = user;
    session_free(e->session);
    e->session = NULL;
}

static bool eval(void *user, const Graph *g, const Tensor *const *in, const Tensor **out, Err *err)
{
    Evaluator *e = user;
    release(e);
    e->session = session_create(g, NULL, 1, 0, err);
    TRY(e->session);
    for (int i = 0; i < g->ninput; i++) TRY(session_set_input(e->session, i, in[i], err));
    TRY(session_run(e->session, err));
    for (int i = 0; i < g->noutput; i++) out[i] = session_output(e->session, i);
    return true;
}

static bool save(void *user, const char *rule, const Graph *g, const Tensor *const *in, const Tensor *from, const Tensor *to, Err *err)
{
    const Evaluator *e = user;
    (void)rule;
    if (!e->counterexample) return true;
    int n = g->ninput;
    const char **name = calloc((size_t)n + 2, sizeof *name);
    Tensor *t = calloc((size_t)n + 2, sizeof *t);
    bool ok = name && t;
    for (int i = 0; ok && i < n; i++) {
        name[i] = g->input[i]->name;
        t[i] = *in[i];
    }
    if (ok) {
        name[n] = "replaced";
        t[n] = *from;
        name[n + 1] = "replacement";
        t[n + 1] = *to;
        ok = tensorfile_write(e->counterexample, name, t, (size_t)n + 2, err);
    } else {
        fail(err, E_LIMIT, "out of memory");
    }
    free(name);
    free(t);
    return ok;
}

/* ------------------------------------------------------------------ the report */

static void put_text(Buf *b, const char *key, const char *text)
{
    buf_printf(b, "\"%s\": ", key);
    if (text) json_put_string(b, text);
    else buf_puts(b, "null");
}

static void put_number(Buf *b, const char *key, double v)
{
    buf_printf(b, ", \"%s\": ", key);
    json_put_number(b, v);
}

static void put_firing(Buf *b, const Firing *f, bool proven)
{
    buf_puts(b, "{");
    put_text(b, "rule", f->rule);
    buf_puts(b, ", ");
    put_text(b, "phase", f->phase);
    buf_puts(b, ", ");
    put_text(b, "result", f->result);
    buf_puts(b, ", ");
    put_text(b, "op", f->op);
    buf_puts(b, ", \"nodes\": [");
    for (int i = 0; i < f->nnodes; i++) {
        buf_puts(b, i ? ", " : "");
        json_put_string(b, f->node[i]);
    }
    buf_puts(b, "], ");
    put_text(b, "note", f->note);
    if (proven) {
        put_number(b, "max_abs", f->proof.max_abs);
        put_number(b, "max_rel_peak", f->proof.max_rel);
        put_number(b, "max_abs_masked_rows", f->proof.masked_abs);
        buf_printf(b, ", \"runs\": %d, ", f->proof.runs);
        put_text(b, "not_proven", f->proof.skipped ? f->proof.why[0] ? f->proof.why : "no sizes could be chosen" : NULL);
    }
    buf_puts(b, "}");
}

static void put_left(Buf *b, const Left *l)
{
    const char *const key[] = {"node", "at", "rule", "matched", "reason", "advice"};
    const char *const text[] = {l->node, l->at, l->rule, l->matched, l->reason, l->advice};
    for (int i = 0; i < 6; i++) {
        buf_puts(b, i ? ", " : "{");
        put_text(b, key[i], text[i]);
    }
    buf_puts(b, "}");
}

static void put_report(Buf *b, const RewriteLog *log, bool proven, double ms)
{
    buf_printf(b, "{\"attentions_fused\": %d, \"attentions_left\": %d, \"nodes_before\": %d, \"nodes_after\": %d, \"proven\": %s, \"ms\": ", log->fused, log->nleft,
               log->nodes_before, log->nodes_after, proven ? "true" : "false");
    json_put_number(b, ms);
    buf_puts(b, ", \"firings\": [");
    for (int i = 0; i < log->nfirings; i++) {
        buf_puts(b, i ? ",\n" : "\n");
        put_firing(b, &log->firing[i], proven);
    }
    buf_puts(b, "], \"left\": [");
    for (int i = 0; i < log->nleft; i++) {
        buf_puts(b, i ? ",\n" : "\n");
        put_left(b, &log->left[i]);
    }
    buf_puts(b, "]}");
}

/* ------------------------------------------------------------------ */

static bool read_rules(RuleSet *rules, const char *path, Err *err)
{
    MappedFile f;
    TRY(file_map(&f, path, err));
    if (f.size && memchr(f.data, 0, f.size)) {
        file_unmap(&f);
        return fail(err, E_FORMAT, "%s: a text of rules has no NUL bytes", path);
    }
    char *text = strndup(f.data ? (const char *)f.data : "", f.size);
    file_unmap(&f);
    bool ok = text ? rules_parse(rules, text, err) : fail(err, E_LIMIT, "out of memory");
    free(text);
    return ok || within(err, "%s", path);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

bool program_rewrite(Program *p, const OptimiseOptions *o, Buf *report, Err *err)
{
    Evaluator evaluator = {.counterexample = o->counterexample};
    Prover prover = {eval, release, save, &evaluator, o->seeds};
    RuleSet *rules = rules_create();
    bool fused = p->fused;
    if (!rules) return fail(err, E_LIMIT, "out of memory");
    bool ok = o->no_builtin || rules_builtin(rules, err);
    for (int i = 0; ok && i < o->nrule_files; i++) ok = read_rules(rules, o->rule_file[i], err);
    if (ok && fused) {
        fusion_free(&p->fusion);
        p->fused = false;
    }
    if (ok) {
        RewriteOptions options = {.rules = rules, .exact_masked_rows = o->exact_masked_rows, .phases = o->phases, .prove = o->prove ? prove_claim : NULL,
                                  .prove_user = &prover, .progress = o->progress, .progress_user = o->progress_user};
        RewriteLog log = {0};
        double start = now_ms();
        ok = rewrite_graph(p->graph, &options, &log, err);
        put_report(report, &log, o->prove, now_ms() - start);
        rewrite_log_free(&log);
        if (ok && fused) ok = p->fused = fuse_graph(p->graph, &p->fusion, err);
    }
    rules_free(rules);
    return ok;
}
