/* Rewriting a program. Contract in optimise.h. */
#include "program/prepare.h"
#include <string.h>
#include <time.h>
#include "base/file.h"
#include "base/mem.h"
#include "format/json.h"
#include "format/tensors.h"
#include "ir/copy.h"
#include "backends/lift_sdpa.h"
#include "precision/precision.h"
#include "padding/skip_padding.h"
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

static bool save(void *user, const char *rule, const Graph *g, const Tensor *const *in, const Tensor *from,
                 const Tensor *to, Err *err)
{
    const Evaluator *e = user;
    (void)rule;
    if (!e->counterexample) return true;
    int n = g->ninput;
    const char **name = mem_zeroed((size_t)n + 2, sizeof *name);
    Tensor *t = mem_zeroed((size_t)n + 2, sizeof *t);
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
        oom(err);
    }
    mem_free(name);
    mem_free(t);
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
        put_text(b, "not_proven",
                 f->proof.skipped ? f->proof.why[0] ? f->proof.why : "no sizes could be chosen" : NULL);
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

static void put_skip(Buf *b, const SkipMask *m, bool proven)
{
    buf_puts(b, "{");
    put_text(b, "mask", m->mask);
    buf_printf(b, ", \"applied\": %s, ", m->applied ? "true" : "false");
    put_text(b, "why", m->why);
    buf_printf(b, ", \"attentions\": %d, \"nodes\": %d, \"stops\": [", m->applied ? m->attentions : 0,
               m->applied ? m->nodes : 0);
    for (int i = 0; m->applied && i < m->nstops; i++) {
        const char *const key[] = {"node", "op", "value", "why"};
        const char *const text[] = {m->stop[i].node, m->stop[i].op, m->stop[i].value, m->stop[i].why};
        for (int k = 0; k < 4; k++) {
            buf_puts(b, k ? ", " : i ? ", {" : "{");
            put_text(b, key[k], text[k]);
        }
        buf_puts(b, "}");
    }
    buf_puts(b, "]");
    if (m->applied && proven) {
        put_number(b, "max_abs", m->proof.max_abs);
        put_number(b, "max_rel_peak", m->proof.max_rel);
        buf_printf(b, ", \"runs\": %d, ", m->proof.runs);
        put_text(b, "not_proven",
                 m->proof.skipped ? m->proof.why[0] ? m->proof.why : "no sizes could be chosen" : NULL);
    }
    buf_puts(b, "}");
}

static void put_skips(Buf *b, const SkipLog *skip, bool proven)
{
    buf_puts(b, ", \"skip_padding\": {");
    put_text(b, "nothing", skip->nothing);
    buf_puts(b, ", \"masks\": [");
    for (int i = 0; i < skip->nmasks; i++) {
        buf_puts(b, i ? ",\n" : "");
        put_skip(b, &skip->mask[i], proven);
    }
    buf_puts(b, "]}");
}

static void put_report(Buf *b, const RewriteLog *log, const RewriteLog *lifted, const SkipLog *skip, bool proven,
                       double ms)
{
    buf_printf(
        b,
        "{\"attentions_fused\": %d, \"attentions_left\": %d, \"nodes_before\": %d, \"nodes_after\": %d, \"proven\": %s, \"ms\": ",
        log->fused, log->nleft, log->nodes_before, log->nodes_after, proven ? "true" : "false");
    json_put_number(b, ms);
    buf_puts(b, ", \"firings\": [");
    for (int i = 0; i < log->nfirings + lifted->nfirings; i++) {
        buf_puts(b, i ? ",\n" : "\n");
        put_firing(b, i < log->nfirings ? &log->firing[i] : &lifted->firing[i - log->nfirings], proven);
    }
    buf_puts(b, "], \"left\": [");
    for (int i = 0; i < log->nleft; i++) {
        buf_puts(b, i ? ",\n" : "\n");
        put_left(b, &log->left[i]);
    }
    buf_puts(b, "]");
    if (skip) put_skips(b, skip, proven);
    buf_puts(b, "}");
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
    char *text = mem_strndup(f.data ? (const char *)f.data : "", f.size);
    file_unmap(&f);
    bool ok = text ? rules_parse(rules, text, err) : oom(err);
    mem_free(text);
    return ok || within(err, "%s", path);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ------------------------------------------------------------------ attention for PyTorch's kernels */

static Expr *argument(const FileAttention *a, const char *name)
{
    int i = op_param(a->op, name);
    return i >= 0 && a->arg[i].kind == ARG_EXPR ? a->arg[i].e : NULL;
}

/* Import made all of them 4 axes; said, and proven, before rules change what they read. */
static bool lift_ranks(const Program *p, const Prover *prover, RewriteLog *lifted, Err *err)
{
    for (int i = 0; i < p->source->nattention; i++) {
        const FileAttention *a = &p->source->attention[i];
        const Expr *causal = argument(a, "is_causal"), *gqa = argument(a, "enable_gqa"),
                   *dropout = argument(a, "dropout_p");
        bool drops = dropout && (dropout->kind == EX_FLOAT ? dropout->f > 0 : dropout->i > 0);
        LiftSource s = {a->node, a->q.value,          a->k.value,    a->v.value,          a->mask.value,
                        a->out,  causal && causal->i, gqa && gqa->i, argument(a, "scale")};
        bool apart = false; /* axes that broadcast */
        for (int k = 0; !s.gqa && s.q->rank == 4 && k < 2; k++)
            apart |= s.q->dim[k] != s.k->dim[k] || s.q->dim[k] != s.v->dim[k];
        if (a->op->id == OP_scaled_dot_product_attention && (s.q->rank != 4 || apart) && !drops)
            TRY(lift_rank(p->graph, &s, prover, lifted, err));
    }
    return true;
}

bool program_rewrite(Program *p, const OptimiseOptions *o, Buf *report, Err *err)
{
    Evaluator evaluator = {.counterexample = o->counterexample};
    Prover prover = {eval, release, save, &evaluator, o->seeds};
    RuleSet *rules = rules_create();
    bool fused = p->fused;
    if (!rules) return oom(err);
    bool ok = o->no_builtin || rules_builtin(rules, err);
    for (int i = 0; ok && i < o->nrule_files; i++) ok = read_rules(rules, o->rule_file[i], err);
    program_forget_runs(p);
    if (ok && fused) {
        fusion_free(&p->fusion);
        p->fused = false;
    }
    if (ok) {
        RewriteOptions options = {.rules = rules,
                                  .exact_masked_rows = o->exact_masked_rows,
                                  .phases = o->phases,
                                  .prove = o->prove ? prove_claim : NULL,
                                  .prove_user = &prover,
                                  .progress = o->progress,
                                  .progress_user = o->progress_user};
        RewriteLog log = {0};
        RewriteLog lifted = {0};
        SkipLog skip = {0};
        SdpaDevice device;
        double start = now_ms();
        if (o->lift)
            ok = sdpa_device(o->lift, o->cudnn, &device, err) && lift_ranks(p, o->prove ? &prover : NULL, &lifted, err);
        ok = ok && rewrite_graph(p->graph, &options, &log, err);
        p->source->nattention = 0; /* what the file had is no more */
        if (ok && o->skip_padding) ok = skip_padding(p->graph, o->prove ? &prover : NULL, &skip, err);
        if (ok && o->lift) {
            ok = lift_sdpa(p->graph, &device, o->prove ? &prover : NULL, &lifted, err);
            log.nodes_after = p->graph->nnodes;
        }
        put_report(report, &log, &lifted, o->skip_padding ? &skip : NULL, o->prove, now_ms() - start);
        rewrite_log_free(&log);
        rewrite_log_free(&lifted);
        skip_log_free(&skip);
        ok = ok && (!(mem_ran_out() || report->failed) || oom(err));
    }
    if (fused && !p->fused) { /* also where rewriting failed: without, the graph runs as well, but slower */
        Err again;
        p->fused = fuse_graph(p->graph, &p->fusion, ok ? err : &again);
        ok = ok && p->fused;
    }
    rules_free(rules);
    return ok;
}

/* ------------------------------------------------------------------ the copy that sessions run */

typedef struct ForRuns {
    Graph *graph; /* NULL: the program's own */
    Fusion fusion;
} ForRuns;

static bool rewrite_for_runs(Graph *g, Err *err)
{
    RuleSet *rules = rules_create();
    RewriteLog log = {0};
    if (!rules) return oom(err);
    bool ok = rules_builtin(rules, err);
    rules_remove(rules, "pack_qkv"); /* products pack weights by themselves */
    rules_remove(rules, "pack_kv");
    RewriteOptions options = {.rules = rules, .exact_masked_rows = true};
    if (ok) {
        ok = rewrite_graph(g, &options, &log, err);
        rewrite_log_free(&log);
    }
    rules_free(rules);
    return ok;
}

static void mark_trained(Graph *g)
{
    for (int i = 0; i < g->noutput; i++)
        if (g->output[i].gradient_of && g->output[i].gradient_of->kind == V_WEIGHT)
            g->output[i].gradient_of->changes = true;
}

static bool make_for_runs(const Program *p, bool optimise, bool trains, ForRuns *r, Err *err)
{
    Err ignored;
    r->graph = p->source->prepared || p->graph->bodies ? NULL : graph_copy(p->graph, &ignored);
    if (!r->graph && mem_ran_out()) return oom(err);
    if (!r->graph && trains)
        return fail(err, E_UNSUPPORTED, "a packed model, or one with loops or branches, does not train");
    if (!r->graph)
        return p->compute == DT_NONE ||
               fail(err, E_UNSUPPORTED, "a model with loops or branches has no other compute dtype");
    if (trains) mark_trained(r->graph);
    bool ok = !optimise || rewrite_for_runs(r->graph, err);
    ok = ok && (p->compute == DT_NONE || lower_precision(r->graph, p->compute, err));
    if (ok && fuse_graph(r->graph, &r->fusion, err)) return true;
    graph_free(r->graph);
    return false;
}

bool program_for_runs(Program *p, bool optimise, bool trains, const Graph **g, const Fusion **fusion, Err *err)
{
    bool ok = true;
    struct ForRuns **made = &p->for_runs[optimise + 2 * trains];
    pthread_mutex_lock(&p->lock);
    if (p->fused && !*made && (optimise || trains || p->compute != DT_NONE)) {
        ForRuns *r = mem_zeroed(1, sizeof *r);
        ok = r ? make_for_runs(p, optimise, trains, r, err) : oom(err);
        if (ok) *made = r;
        else mem_free(r);
    }
    bool copy = ok && *made && (*made)->graph;
    *g = copy ? (*made)->graph : p->graph;
    *fusion = copy ? &(*made)->fusion : p->fused ? &p->fusion : NULL;
    pthread_mutex_unlock(&p->lock);
    return ok;
}

void program_forget_runs(Program *p)
{
    for (size_t i = 0; i < sizeof p->for_runs / sizeof *p->for_runs; i++) {
        ForRuns *r = p->for_runs[i];
        if (r && r->graph) {
            fusion_free(&r->fusion);
            graph_free(r->graph);
        }
        mem_free(r);
        p->for_runs[i] = NULL;
    }
}
