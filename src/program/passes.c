/* The table of contents of the program: every pass that a graph may go through, in order. Contract in passes.h. */
#include "program/passes.h"
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "base/vec.h"
#include "ir/bodies.h"
#include "plan/fuse.h"
#include "precision/precision.h"
#include "program/constants.h"
#include "program/pack.h"
#include "quantize/integers.h"

typedef enum Offer { INTERNAL, ASKED, ORDINARY } Offer; /* may a user name it; do sessions run it unasked? */

typedef struct Pass {
    const char *name;
    bool (*run)(Pipeline *s, Err *err);
    Offer offer;
} Pass;

static bool import(Pipeline *s, Err *err);
static bool joint(Pipeline *s, Err *err);
static bool train(Pipeline *s, Err *err);
static bool sink(Pipeline *s, Err *err);
static bool ranks(Pipeline *s, Err *err);
static bool detach(Pipeline *s, Err *err);
static bool pair(Pipeline *s, Err *err);
static bool rewrite(Pipeline *s, Err *err);
static bool padding(Pipeline *s, Err *err);
static bool lift(Pipeline *s, Err *err);
static bool constants(Pipeline *s, Err *err);
static bool integers(Pipeline *s, Err *err);
static bool precision(Pipeline *s, Err *err);
static bool fold(Pipeline *s, Err *err);
static bool fuse(Pipeline *s, Err *err);

static const Pass passes[PASSES] = {
    [PASS_IMPORT] = {"import", import, ORDINARY},    /* a file becomes a plain graph: pure ops, sizes as expressions */
    [PASS_JOINT] = {"joint", joint, INTERNAL},       /* the gradients of a loss follow the model */
    [PASS_TRAIN] = {"train", train, INTERNAL},       /* weights with a gradient are not constants any more */
    [PASS_SINK] = {"sink", sink, INTERNAL},          /* weights that loops and branches capture become their own */
    [PASS_RANKS] = {"ranks", ranks, INTERNAL},       /* attention of the file that had other than 4 axes says so */
    [PASS_DETACH] = {"detach", detach, ORDINARY},    /* aten.detach, which only gradients look at, goes */
    [PASS_PAIR] = {"pair", pair, ORDINARY},          /* a decomposed attention and its backward pass become two ops */
    [PASS_REWRITE] = {"rewrite", rewrite, ORDINARY}, /* the rules */
    [PASS_PADDING] = {"padding", padding, ASKED},    /* the network runs on real tokens only */
    [PASS_LIFT] = {"lift", lift, INTERNAL},          /* attention takes the form that PyTorch has kernels for */
    [PASS_CONSTANTS] = {"constants", constants, ASKED}, /* what depends on no input and no parameter becomes one */
    [PASS_INTEGERS] = {"integers", integers, ORDINARY}, /* products between quantizers multiply integers */
    [PASS_PRECISION] = {"precision", precision,
                        ORDINARY},          /* products in another dtype, where the model was loaded so */
    [PASS_FOLD] = {"fold", fold, ASKED},    /* what depends on weights alone becomes a weight */
    [PASS_FUSE] = {"fuse", fuse, ORDINARY}, /* which nodes vanish into others; changes no node */
};

/* ------------------------------------------------------------------ the passes */

static bool import(Pipeline *s, Err *err)
{
    TRY(program_import(s->program, s->path, s->open, err));
    s->graph = s->program->graph;
    return true;
}

static bool joint(Pipeline *s, Err *err) { return s->differentiate(s->graph, s->joint, err); }

static bool train(Pipeline *s, Err *err)
{
    (void)err;
    for (int i = 0; i < s->graph->noutput; i++) {
        Value *of = s->graph->output[i].gradient_of;
        if (of && of->kind == V_WEIGHT && !graph_repeats_gradient(s->graph, i)) of->changes = true;
    }
    return true;
}

static bool sink(Pipeline *s, Err *err) { return bodies_sink(s->graph, err); }

static Expr *argument(const FileAttention *a, const char *name)
{
    int i = op_param(a->op, name);
    return i >= 0 && a->arg[i].kind == ARG_EXPR ? a->arg[i].e : NULL;
}

/* Import made all of them 4 axes; said, and proven, before rules change what they read. */
static bool ranks(Pipeline *s, Err *err)
{
    const Source *source = s->program->source;
    for (int i = 0; i < source->nattention; i++) {
        const FileAttention *a = &source->attention[i];
        const Expr *causal = argument(a, "is_causal"), *gqa = argument(a, "enable_gqa"),
                   *dropout = argument(a, "dropout_p");
        bool drops = dropout && (dropout->kind == EX_FLOAT ? dropout->f > 0 : dropout->i > 0);
        LiftSource from = {a->node, a->q.value,          a->k.value,    a->v.value,          a->mask.value,
                           a->out,  causal && causal->i, gqa && gqa->i, argument(a, "scale")};
        bool apart = false; /* axes that broadcast */
        for (int k = 0; !from.gqa && from.q->rank == 4 && k < 2; k++)
            apart |= from.q->dim[k] != from.k->dim[k] || from.q->dim[k] != from.v->dim[k];
        if (a->op->id == OP_scaled_dot_product_attention && (from.q->rank != 4 || apart) && !drops)
            TRY(lift_rank(s->graph, &from, s->prover, &s->lifted, err));
    }
    return true;
}

static int drop_detach(Graph *g)
{
    Graph *body;
    int n = graph_drop_detach(g);
    for (const Node *node = g->first; node; node = node->next)
        for (int i = 0; (body = body_at(node, i)); i++) n += drop_detach(body);
    return n;
}

static bool detach(Pipeline *s, Err *err)
{
    (void)err;
    s->detached = drop_detach(s->graph);
    return true;
}

/* The gradient of a softmax has a sum; where there is none, and no pair that lacks its forward op,
 * rules need not look. */
static bool may_have_pairs(const Graph *g)
{
    for (const Node *n = g->first; n; n = n->next)
        if (n->op->id == OP_sum_dim_IntList || n->op->id == OP_sdpa_lse) return true;
    return false;
}

/* Pairs are found among equal forms when the rules of the first phase have come to rest: it is over then. */
static bool pair(Pipeline *s, Err *err)
{
    const unsigned first = 1u << PHASE_RECOMPOSE, asked = s->rewrite.phases ? s->rewrite.phases : (1u << PHASES) - 1;
    if (!(asked & first) || !may_have_pairs(s->graph)) return true;
    RewriteOptions o = s->rewrite;
    o.phases = first;
    s->rewrite.phases = asked & ~first;
    s->rewrite.resumes = true;
    return rewrite_graph(s->graph, &o, &s->log, err);
}

/* The rules inside the bodies of g, at any depth. */
static bool rewrite_inside(Pipeline *s, const Graph *g, const RewriteOptions *o, Err *err)
{
    Graph *body;
    for (const Node *n = g->first; n; n = n->next)
        for (int i = 0; (body = body_at(n, i)); i++) {
            RewriteLog *more = vec_grow(s->inside, s->ninside, sizeof *more);
            if (!more) return oom(err);
            s->inside = more;
            RewriteLog *log = &s->inside[s->ninside++];
            *log = (RewriteLog){0};
            TRY((rewrite_graph(body, o, log, err) || within(err, "in node '%s'", n->name)) &&
                (rewrite_log_add(&s->log, log) || oom(err)) && rewrite_inside(s, body, o, err));
        }
    return true;
}

static bool rewrite_rest(Pipeline *s, Err *err)
{
    s->rewrite.rules_only = true;
    if (!s->rewrite.resumes) return rewrite_graph(s->graph, &s->rewrite, &s->log, err);
    if (!s->rewrite.phases) return true;
    bool ok = rewrite_graph(s->graph, &s->rewrite, &s->rest, err);
    return rewrite_log_append(&s->log, &s->rest) ? ok : oom(err);
}

static bool rewrite(Pipeline *s, Err *err)
{
    RewriteOptions inside = s->rewrite;
    if (inside.resumes) inside.phases |= 1u << PHASE_RECOMPOSE; /* what pair took out of them */
    inside.resumes = false;
    return rewrite_rest(s, err) && rewrite_inside(s, s->graph, &inside, err);
}

static bool padding(Pipeline *s, Err *err) { return skip_padding(s->graph, s->prover, &s->skip, err); }
static bool lift(Pipeline *s, Err *err) { return lift_sdpa(s->graph, s->device, s->prover, &s->lifted, err); }

static bool lower_inside(Graph *g, DType t, Err *err)
{
    Graph *body;
    TRY(lower_precision(g, t, err));
    for (const Node *n = g->first; n; n = n->next)
        for (int i = 0; (body = body_at(n, i)); i++)
            TRY(lower_inside(body, t, err) && (graph_check(body, err) || within(err, "in node '%s'", n->name)));
    return true;
}

static bool integers(Pipeline *s, Err *err) { return quantize_integers(s->graph, err); }

static bool precision(Pipeline *s, Err *err)
{
    return s->compute == DT_NONE || lower_inside(s->graph, s->compute, err);
}

static bool constants(Pipeline *s, Err *err) { return fold_constants(s->graph, err); }
static bool fold(Pipeline *s, Err *err) { return pack_fold(s->graph, &s->folder, err); }
static bool fuse(Pipeline *s, Err *err) { return fuse_graph(s->graph, s->fusion, err); }

/* ------------------------------------------------------------------ running them */

bool passes_run(Pipeline *s, unsigned list, Err *err)
{
    for (int i = 0; i < PASSES; i++) {
        if (!(list & PASS_BIT(i))) continue;
        TRY(passes[i].run(s, err));
        TRY(graph_check(s->graph, err) || within(err, "after pass '%s'", passes[i].name));
    }
    return true;
}

void pipeline_free(Pipeline *s)
{
    rewrite_log_free(&s->log);
    rewrite_log_free(&s->rest);
    rewrite_log_free(&s->lifted);
    skip_log_free(&s->skip);
    for (int i = 0; i < s->ninside; i++) rewrite_log_free(&s->inside[i]);
    mem_free(s->inside);
}

/* ------------------------------------------------------------------ names */

const char *pass_listed(int i, bool *ordinary)
{
    for (int k = 0; k < PASSES; k++) {
        if (passes[k].offer == INTERNAL || i--) continue;
        *ordinary = passes[k].offer == ORDINARY;
        return passes[k].name;
    }
    return NULL;
}

static bool unknown_pass(const char *name, size_t n, Err *err)
{
    char all[160] = "";
    size_t at = 0;
    for (int k = 0; k < PASSES; k++)
        if (passes[k].offer != INTERNAL)
            at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", at ? ", " : "", passes[k].name);
    return fail(err, E_USAGE, "no pass is called '%.*s'; there are %s", (int)(n < 40 ? n : 40), name, all);
}

bool passes_named(const char *names, unsigned *list, Err *err)
{
    *list = names ? 0 : PASSES_RUN;
    for (const char *s = names; s; s = *s ? s + 1 : NULL) {
        size_t n = strcspn(s, ",");
        int k = 0;
        while (k < PASSES &&
               (passes[k].offer == INTERNAL || strlen(passes[k].name) != n || strncmp(passes[k].name, s, n)))
            k++;
        if (k == PASSES) return unknown_pass(s, n, err);
        *list |= PASS_BIT(k);
        s += n;
    }
    *list &= ~(unsigned)PASSES_LOAD; /* a model that is there has been imported */
    return true;
}
