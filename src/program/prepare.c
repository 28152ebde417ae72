/* Rewriting a program. Contract in prepare.h. */
#include "program/prepare.h"
#include <string.h>
#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "format/tensors.h"
#include "ir/copy.h"
#include "program/passes.h"
#include "rewrite/families/all.h"
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

/* What a replacement differs by from what it replaces. */
static void put_proof(Buf *b, const Proof *p, bool masked_rows)
{
    jw_text(b, "sense", sense_text(p->sense));
    jw_text(b, "why_floats", p->sense == SENSE_FLOATS && p->why_floats[0] ? p->why_floats : NULL);
    jw_put(b, "'max_abs': %g, 'max_rel_peak': %g", p->max_abs, p->max_rel);
    if (masked_rows) jw_number(b, "max_abs_masked_rows", p->waived_abs);
    jw_int(b, "runs", p->runs);
    jw_text(b, "not_proven", !p->skipped ? NULL : p->why[0] ? p->why : "no sizes could be chosen");
}

static const char *module_of(const Graph *g, const char *node)
{
    const Value *v = graph_find_value(g, node);
    return v && v->def && v->def->module ? v->def->module->path : NULL;
}

static void put_firing(Buf *b, const Graph *g, const Firing *f, bool proven)
{
    jw_line(b);
    jw_put(b, "{'rule': %s, 'phase': %s, 'result': %s, 'op': %s", f->rule, f->phase, f->result, f->op);
    jw_texts(b, "nodes", f->node, f->nnodes);
    jw_text(b, "module", module_of(g, f->result));
    jw_text(b, "note", f->note);
    if (proven) put_proof(b, &f->proof, true);
    jw_close(b, "}");
}

static void put_left(Buf *b, const Graph *g, const Left *l)
{
    jw_line(b);
    jw_put(b, "{'node': %s, 'module': %s, 'at': %s, 'rule': %s, 'matched': %s, 'reason': %s, 'advice': %s}", l->node,
           module_of(g, l->node), l->at, l->rule, l->matched, l->reason, l->advice);
}

static void put_refused(Buf *b, const Graph *g, const Refused *r)
{
    jw_line(b);
    jw_put(b, "{'rule': %s, 'node': %s, 'module': %s, 'reason': %s}", r->rule, r->node, module_of(g, r->node),
           r->reason);
}

static void put_skip(Buf *b, const SkipMask *m, bool proven)
{
    jw_put(b, "{'mask': %s", m->mask);
    jw_bool(b, "applied", m->applied);
    jw_put(b, "'why': %s, 'attentions': %d, 'nodes': %d, 'stops': [", m->why, (m->applied ? m->attentions : 0),
           (m->applied ? m->nodes : 0));
    for (int i = 0; m->applied && i < m->nstops; i++) {
        jw_put(b, "{'node': %s, 'op': %s, 'value': %s, 'why': %s}", m->stop[i].node, m->stop[i].op, m->stop[i].value,
               m->stop[i].why);
    }
    jw_close(b, "]");
    if (m->applied) jw_bool(b, "before", m->before);
    if (m->applied && proven && !m->before) put_proof(b, &m->proof, false);
    jw_close(b, "}");
}

static void put_skips(Buf *b, const SkipLog *skip, bool proven)
{
    jw_put(b, "'skip_padding': {'nothing': %s, 'masks': [", skip->nothing);
    for (int i = 0; i < skip->nmasks; i++) {
        if (i) jw_line(b);
        put_skip(b, &skip->mask[i], proven);
    }
    jw_close(b, "]}");
}

static void put_report(Buf *b, const Graph *g, const RewriteLog *log, const RewriteLog *lifted, const SkipLog *skip,
                       bool proven, double ms)
{
    jw_report(b);
    jw_put(b, "'attentions_fused': %d, 'attentions_left': %d, 'nodes_before': %d, 'nodes_after': %d", log->fused,
           log->nleft, log->nodes_before, log->nodes_after);
    jw_bool(b, "proven", proven);
    jw_number(b, "ms", ms);
    jw_open(b, "firings", '[');
    for (int i = 0; i < log->nfirings; i++) put_firing(b, g, &log->firing[i], proven);
    for (int i = 0; i < lifted->nfirings; i++) put_firing(b, g, &lifted->firing[i], proven);
    jw_put(b, "], 'left': [");
    for (int i = 0; i < log->nleft; i++) put_left(b, g, &log->left[i]);
    jw_put(b, "], 'refused': [");
    for (int i = 0; i < log->nrefused; i++) put_refused(b, g, &log->refused[i]);
    jw_close(b, "]");
    if (skip) put_skips(b, skip, proven);
    jw_close(b, "}");
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

/* ------------------------------------------------------------------ */

static bool all_rules(RuleSet *rules, const OptimiseOptions *o, Err *err)
{
    TRY(o->no_builtin || rules_builtin(rules, err));
    for (int i = 0; i < o->nrule_files; i++) TRY(read_rules(rules, o->rule_file[i], err));
    for (int i = 0; i < o->nrule_texts; i++)
        TRY(rules_parse(rules, o->rule_text[i], err) || within(err, "rules of text %d", i));
    return true;
}

/* families_all and the caller's own. */
static const Family **families_with(const Family *own)
{
    int n = 0;
    while (families_all[n]) n++;
    const Family **all = mem_zeroed((size_t)n + 2, sizeof *all);
    for (int i = 0; all && i < n; i++) all[i] = families_all[i];
    if (all) all[n] = own;
    return all;
}

bool program_rewrite(Program *p, const OptimiseOptions *o, Buf *report, Err *err)
{
    Evaluator evaluator = {.counterexample = o->counterexample};
    Prover prover = {o->prove, eval, release, save, &evaluator, o->seeds, o->prove_floats, families_all};
    SdpaDevice device;
    const Family **families = families_with(o->own);
    RuleSet *rules = families ? rules_create(families) : NULL;
    if (!rules) {
        mem_free(families);
        return oom(err);
    }
    bool ok = all_rules(rules, o, err) && (!o->lift || sdpa_device(o->lift, o->cudnn, &device, err));
    if (ok) {
        unsigned list = PASSES_REWRITE;
        Pipeline s = {.graph = p->graph,
                      .program = p,
                      .device = &device,
                      .prover = o->prove ? &prover : NULL,
                      .rewrite = {.rules = rules,
                                  .exact = o->exact_masked_rows,
                                  .unrounded = o->unrounded,
                                  .phases = o->phases,
                                  .prove = o->prove,
                                  .prove_user = &prover,
                                  .progress = o->progress,
                                  .progress_user = o->progress_user}};
        if (!o->lift) list &= ~(PASS_BIT(PASS_RANKS) | PASS_BIT(PASS_LIFT));
        if (!o->skip_padding) list &= ~PASS_BIT(PASS_PADDING);
        double start = clock_ms();
        ok = passes_run(&s, list, err);
        p->source->nattention = 0; /* what the file had is gone */
        s.log.nodes_before += s.detached;
        if (o->lift) s.log.nodes_after = p->graph->nnodes;
        put_report(report, p->graph, &s.log, &s.lifted, o->skip_padding ? &s.skip : NULL, o->prove, clock_ms() - start);
        pipeline_free(&s);
        ok = ok && (!(mem_ran_out() || report->failed) || oom(err));
    }
    rules_free(rules);
    mem_free(families);
    return ok;
}

/* ------------------------------------------------------------------ what sessions run */

/* Rules of a run keep every value of the source; products pack weights by themselves. */
static RuleSet *rules_for_runs(Err *err)
{
    RuleSet *rules = rules_create(families_all);
    if (!rules) return oom(err), NULL;
    if (!rules_builtin(rules, err)) {
        rules_free(rules);
        return NULL;
    }
    rules_remove(rules, "pack_qkv");
    rules_remove(rules, "pack_kv");
    return rules;
}

/* What is left of a list for this program: some graphs run as they are. */
static bool list_for(const Program *p, unsigned *list, Err *err)
{
    bool fixed = p->source->prepared;
    if (p->no_fuse) *list &= PASS_BIT(PASS_FOLD);
    if (fixed && *list & PASS_BIT(PASS_TRAIN)) return fail(err, E_UNSUPPORTED, "a packed model does not train");
    if (fixed) *list &= PASS_BIT(PASS_FOLD) | PASS_BIT(PASS_FUSE);
    if (p->compute == DT_NONE) *list &= ~PASS_BIT(PASS_PRECISION);
    return true;
}

/* Has g, a copy of the program's graph, no weights but those of the program? Rules' own are in the memory of g. */
static bool borrows_all(const Program *p, const Graph *g)
{
    int k = 0;
    for (int i = 0; i < g->nweight; i++, k++) {
        while (k < p->graph->nweight && p->graph->weight[k]->data != g->weight[i]->data) k++;
        if (k == p->graph->nweight) return false;
    }
    return !g->bodies;
}

static bool compact(const Program *p, Graph **g, Err *err)
{
    return !*g || !borrows_all(p, *g) || graph_compact(g, err);
}

static bool prepare(const Program *p, unsigned list, bool exact, Prepared *out, Err *err)
{
    const unsigned last = PASS_BIT(PASS_FOLD) | PASS_BIT(PASS_FUSE); /* what these give looks at the graph */
    RuleSet *rules = NULL;
    *out = (Prepared){.list = list};
    TRY(list_for(p, &list, err));
    if (list & ~PASS_BIT(PASS_FUSE)) TRY(out->graph = graph_copy(p->graph, err));
    bool ok = !(list & (PASS_BIT(PASS_PAIR) | PASS_BIT(PASS_REWRITE))) || (rules = rules_for_runs(err));
    Pipeline s = {.graph = out->graph ? out->graph : p->graph,
                  .rewrite = {.rules = rules, .exact = exact},
                  .compute = p->compute,
                  .fusion = &out->fusion};
    ok = ok && passes_run(&s, list & ~last, err) && compact(p, &out->graph, err);
    if (out->graph) s.graph = out->graph;
    ok = ok && passes_run(&s, list & last, err);
    out->folder = s.folder;
    out->fused = ok && list & PASS_BIT(PASS_FUSE);
    pipeline_free(&s);
    rules_free(rules);
    if (!ok) prepared_free(out);
    return ok;
}

bool program_prepare(const Program *p, unsigned list, Prepared *out, Err *err)
{
    return prepare(p, list, true, out, err);
}

bool program_prepare_waiving(const Program *p, unsigned list, Prepared *out, Err *err)
{
    return prepare(p, list, false, out, err);
}

bool program_prepare_named(const Program *p, const char *names, Prepared *out, Err *err)
{
    unsigned list;
    return passes_named(names, &list, err) && program_prepare(p, list, out, err);
}

void prepared_free(Prepared *r)
{
    fusion_free(&r->fusion);
    session_free(r->folder);
    if (r->graph) graph_free(r->graph);
    *r = (Prepared){0};
}

bool program_for_runs(const Program *p, unsigned list, const Graph **g, const Fusion **fusion, Err *err)
{
    bool ok = true;
    Runs *runs = p->runs;
    fork_lock_take(&runs->lock);
    Prepared *r = runs->first;
    while (r && (r->list != list || r->portable != cpu_is_portable())) r = r->next;
    if (!r) {
        r = mem_zeroed(1, sizeof *r);
        ok = r ? program_prepare(p, list, r, err) : oom(err);
        if (ok) {
            r->portable = cpu_is_portable();
            r->next = runs->first;
            runs->first = r;
        } else {
            mem_free(r);
        }
    }
    if (ok) {
        *g = r->graph ? r->graph : p->graph;
        *fusion = r->fused ? &r->fusion : NULL;
    }
    fork_lock_leave(&runs->lock);
    return ok;
}

void program_forget_runs(Program *p)
{
    for (Prepared *r = p->runs ? p->runs->first : NULL, *next; r; r = next) {
        next = r->next;
        prepared_free(r);
        mem_free(r);
    }
    if (p->runs) p->runs->first = NULL;
}
