/* The driver: visits the nodes in order, derives equal forms, fires rules, keeps the log. Contract in rewrite.h. */
#include "rewrite/rewrite.h"
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "base/number.h"
#include "base/vec.h"
#include "rewrite/build.h"
#include "rewrite/family.h"

enum { MAX_ROUNDS = 64 };

const char *phase_name(Phase p)
{
    static const char *const names[PHASES] = {"recompose", "convert", "fuse"};
    return p < PHASES ? names[p] : "?";
}

/* ------------------------------------------------------------------ side tables */

enum { INFOS = 1024 }; /* of a block: blocks stay where they are, for who matches one value makes others */

static bool info_room(Rewrite *rw, int id)
{
    while (rw->ninfo <= id) {
        int n = rw->ninfo / INFOS;
        Info **grown = mem_grow(rw->info, (size_t)(n + 1) * sizeof *grown);
        if (!grown) return false;
        rw->info = grown;
        if (!(grown[n] = mem_zeroed(INFOS, sizeof **grown))) return false;
        rw->ninfo += INFOS;
    }
    return true;
}

static Info *info_at(const Rewrite *rw, int id) { return &rw->info[id / INFOS][id % INFOS]; }

static void info_free(Rewrite *rw)
{
    for (int i = 0; i < rw->ninfo; i += INFOS) mem_free(rw->info[i / INFOS]);
    mem_free(rw->info);
}

Info *rewrite_info(Rewrite *rw, const Value *v)
{
    if (info_room(rw, v->id)) return info_at(rw, v->id);
    rw->no_info = (Info){0}; /* whoever ends the rewriting finds that memory ran out */
    return &rw->no_info;
}

bool rewrite_refuse(Rewrite *rw, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(rw->why, sizeof rw->why, fmt, ap);
    va_end(ap);
    return false;
}

Value *rewrite_form(Rewrite *rw, Value *v, OpId id)
{
    if (v->def && v->def->op->id == id) return v;
    for (int i = 0; i < rewrite_info(rw, v)->nalt; i++) {
        Value *alt = rewrite_info(rw, v)->alt[i];
        if (alt->def && alt->def->op->id == id) return alt;
    }
    return NULL;
}

static double *order_of(Rewrite *rw, const Node *n) { return &rewrite_info(rw, n->out[0])->order; }

static void number_nodes(Rewrite *rw)
{
    double k = 0;
    for (const Node *n = rw->g->first; n; n = n->next)
        if (n->nout) *order_of(rw, n) = ++k;
}

static bool start_round(Rewrite *rw)
{
    int *uses = mem_alloc(((size_t)rw->g->next_id + 1) * sizeof *uses);
    if (!uses || !info_room(rw, rw->g->next_id - 1)) {
        mem_free(uses);
        return oom(rw->err);
    }
    graph_count_uses(rw->g, uses);
    for (int i = 0; i < rw->g->next_id; i++) {
        Info *info = info_at(rw, i);
        info->uses = uses[i];
        info->nalt = 0;
        info->derived = false;
        info->rule = info->why = NULL;
        info->refused_by = NULL;
    }
    mem_free(uses);
    number_nodes(rw);
    rw->turn++;
    return true;
}

/* ------------------------------------------------------------------ cost */

/* Products cost most, views least. */
static int rewrite_cost(const Rewrite *rw, const Node *n)
{
    for (const Family *const *f = rw->o->rules->families; *f; f++) {
        int own = (*f)->cost ? (*f)->cost(n) : 0;
        if (own) return own;
    }
    int cost = n->op->cost;
    switch (n->op->id) {
    case OP_linear: /* rows of a permuted operand are copied together first */
        return n->arg[0].v->def && n->arg[0].v->def->op->id == OP_permute ? cost + 2 : cost;
    case OP_mul_Tensor: { /* two tensors that broadcast against each other make as many values as a matrix product
                             does operations */
        const Value *y = n->out[0];
        for (int i = 0; i < 2; i++)
            if (n->arg[i].kind != ARG_VALUE ||
                (n->arg[i].v->rank == y->rank && exprs_same(y->rank, y->dim, n->arg[i].v->dim)))
                return cost;
        return 1000;
    }
    default: return cost;
    }
}

/* ------------------------------------------------------------------ committing a firing */

enum { MAX_DEAD = 4096 };

/* A firing on trial: roots `from` are to become `to`. */
struct Firer {
    Rewrite *rw;
    Node *const *root;
    Value *from[MAX_FORK], *to[MAX_FORK];
    Node *dead[MAX_DEAD]; /* would have no user left */
    int ndead, n;
    /* putting the new nodes into the graph */
    Node *at, *first; /* in front of what; the first that was put there */
    bool ok, dry;
    int cost, depth;
    const Value *gone; /* must be among the dead; NULL */
    Node *seen[MAX_DEAD];
    int nseen;
};
typedef struct Firer Firer;

static void less_use(void *user, Value **slot)
{
    Rewrite *rw = user;
    rewrite_info(rw, *slot)->uses--;
}
static void more_use(void *user, Value **slot)
{
    Rewrite *rw = user;
    rewrite_info(rw, *slot)->uses++;
}

static bool unused(Rewrite *rw, const Node *n)
{
    if (n->op->flags & OPF_EFFECT) return false;
    for (int k = 0; k < n->nout; k++)
        if (rewrite_info(rw, n->out[k])->uses > 0) return false;
    return true;
}

typedef struct Reached {
    Node *node[64];
    int n;
} Reached;
static void reach(void *user, Value **slot)
{
    Reached *r = user;
    if ((*slot)->def && r->n < 64) r->node[r->n++] = (*slot)->def;
}

/* Takes n and what only it used out of the counts, listing the nodes. */
static void bury(Firer *f, Node *n)
{
    for (int i = 0; i < f->ndead; i++)
        if (f->dead[i] == n) return;
    if (f->ndead == MAX_DEAD) return;
    f->dead[f->ndead++] = n;
    node_each_operand(n, less_use, f->rw);
    Reached r = {.n = 0};
    node_each_operand(n, reach, &r);
    for (int i = 0; i < r.n; i++)
        if (r.node[i]->nout && !rewrite_info(f->rw, r.node[i]->out[0])->ghost && unused(f->rw, r.node[i]))
            bury(f, r.node[i]);
}

static bool is_dead(const Firer *f, const Node *n)
{
    for (int i = 0; i < f->ndead; i++)
        if (f->dead[i] == n) return true;
    return false;
}

static void unbury(Firer *f)
{
    for (int i = f->ndead - 1; i >= 0; i--) node_each_operand(f->dead[i], more_use, f->rw);
    f->ndead = 0;
}

static void link_value(Firer *f, Value *v);
static void link_operand(void *user, Value **slot) { link_value(user, *slot); }

/* What v needs is put into the graph before f->at; dry: only checks and sums up the cost. */
static void link_value(Firer *f, Value *v)
{
    Rewrite *rw = f->rw;
    if (!f->ok || !v->def) return;
    Info *info = rewrite_info(rw, v->def->out[0]);
    if (!info->ghost && info->order < *order_of(rw, f->at)) return;
    for (int i = 0; i < f->nseen; i++)
        if (f->seen[i] == v->def) return;
    bool root = false;
    for (int i = 0; i < f->n; i++) root |= v->def == f->root[i];
    if (root || f->depth > 500 || f->nseen == MAX_DEAD) {
        f->ok = rewrite_refuse(rw, "the replacement needs '%s', which is computed from what it replaces", v->name);
        return;
    }
    f->seen[f->nseen++] = v->def;
    f->depth++;
    node_each_operand(v->def, link_operand, f);
    f->depth--;
    if (!f->ok) return;
    bool fresh = info->ghost;
    if (v->def->op->flags & OPF_INTERNAL) {
        f->ok = rewrite_refuse(rw, "%s is a working form, no op that runs", v->def->op->name);
        return;
    }
    if (fresh) f->cost += rewrite_cost(rw, v->def);
    if (f->dry) return;
    if (!fresh) graph_remove(rw->g, v->def);
    graph_link_before(rw->g, v->def, f->at);
    if (!f->first) f->first = v->def;
    const Node *before = v->def->prev;
    double lo = before && before->nout ? *order_of(rw, before) : 0, hi = *order_of(rw, f->at);
    info->order = (lo + hi) / 2;
    for (int k = 0; k < v->def->nout; k++) rewrite_info(rw, v->def->out[k])->ghost = false;
    if (fresh) node_each_operand(v->def, more_use, rw);
    if (!(lo < info->order && info->order < hi)) number_nodes(rw);
}

Firing *rewrite_new_firing(RewriteLog *log)
{
    Firing *all = vec_room(log->arena, log->firing, log->nfirings, sizeof *all);
    if (!all) return NULL;
    log->firing = all;
    return &all[log->nfirings++];
}

static bool log_firing(Firer *f, const Rule *rule, const Proof *proof)
{
    Rewrite *rw = f->rw;
    RewriteLog *log = rw->log;
    Firing *x = rewrite_new_firing(log);
    if (!x) return oom(rw->err);
    log->uses[rule->index]++;
    *x = (Firing){.rule = arena_strdup(log->arena, rule->name),
                  .phase = rule->phase,
                  .result = arena_strdup(log->arena, f->from[0]->name),
                  .op = f->to[0]->def ? f->to[0]->def->op->name : "",
                  .nnodes = f->ndead,
                  .node = arena_array(log->arena, const char *, f->ndead + 1),
                  .note = rw->note ? arena_strdup(log->arena, rw->note) : NULL,
                  .proof = *proof};
    if (!x->rule || !x->result || !x->node) {
        log->nfirings--; /* a report of what failed reads the others */
        return oom(rw->err);
    }
    for (int i = 0; i < f->ndead; i++) x->node[i] = arena_strdup(log->arena, f->dead[i]->name);
    return true;
}

static bool same_form(Rewrite *rw, const Value *from, const Value *to)
{
    if (from->dtype != to->dtype)
        return rewrite_refuse(rw, "the result would be %s, not %s", dtype_name(to->dtype), dtype_name(from->dtype));
    if (from->rank == to->rank && exprs_same(from->rank, from->dim, to->dim)) return true;
    Buf a = {0}, b = {0};
    for (int i = 0; i < from->rank; i++) buf_puts(&a, i ? ", " : ""), ex_print(rw->ex, from->dim[i], &a);
    for (int i = 0; i < to->rank; i++) buf_puts(&b, i ? ", " : ""), ex_print(rw->ex, to->dim[i], &b);
    rewrite_refuse(rw, "the result would have sizes (%s), not provably (%s)", b.data ? b.data : "",
                   a.data ? a.data : "");
    buf_free(&a);
    buf_free(&b);
    return false;
}

/* Ghosts that were made from a value which is gone use the new one. */
static void redirect(Rewrite *rw, Value *from, Value *to)
{
    int *last = &rewrite_info(rw, from)->holders, first = *last;
    if (!first) return;
    for (; *last; last = &rw->holder[*last - 1].next) {
        Node *n = rw->holder[*last - 1].node;
        if (!rewrite_info(rw, n->out[0])->ghost) continue;
        for (int k = 0; k < n->op->schema->nparams; k++) {
            Arg *a = &n->arg[k];
            if (a->kind == ARG_VALUE && a->v == from) a->v = to;
            for (int j = 0; a->kind == ARG_VALUES && j < a->n; j++)
                if (a->vs[j] == from) a->vs[j] = to;
        }
    }
    *last = rewrite_info(rw, to)->holders; /* they are the new one's holders from now on */
    rewrite_info(rw, to)->holders = first;
    rewrite_info(rw, from)->holders = 0;
}

static bool commit(Firer *f)
{
    Rewrite *rw = f->rw;
    f->dry = false;
    f->nseen = 0;
    f->first = NULL;
    for (int i = 0; i < f->n; i++) link_value(f, f->to[i]);
    for (int i = 0; i < f->n; i++) {
        Info *from = rewrite_info(rw, f->from[i]), *to = rewrite_info(rw, f->to[i]);
        graph_replace_uses_after(rw->g, f->from[i], f->to[i], f->root[i]->next, from->uses);
        to->uses += from->uses;
        from->uses = 0;
        redirect(rw, f->from[i], f->to[i]);
        if (rw->o->prove && rewrite_varies(rw, f->from[i]) != rewrite_varies(rw, f->to[i]))
            rw->turn++; /* what is computed from it may depend on no input any more */
    }
    for (int i = 0; i < f->n; i++)
        if (unused(rw, f->root[i])) bury(f, f->root[i]);
    rw->resume = f->first ? f->first : f->root[0]->next;
    while (rw->resume && is_dead(f, rw->resume)) rw->resume = rw->resume->next;
    for (int i = 0; i < f->ndead; i++) { /* may be made again */
        graph_remove(rw->g, f->dead[i]);
        for (int k = 0; k < f->dead[i]->nout; k++) rewrite_info(rw, f->dead[i]->out[k])->ghost = true;
    }
    for (int i = 0; i < f->n; i++) /* the new value goes by the old one's name, so that traces of the model still fit */
        if (f->to[i]->kind == V_NODE && is_dead(f, f->root[i]) &&
            !graph_rename(rw->g, f->to[i], f->from[i]->name, rw->err)) {
            rw->hard = true;
            return false;
        }
    return true;
}

/* Builds the grafts of all roots. */
static bool build(Firer *f, const Rule *rule, const Arg *bound, const bool *has)
{
    Rewrite *rw = f->rw;
    for (int i = 0; i < f->n; i++) {
        Arg a;
        const Node *root = f->root[i];
        f->from[i] = root->out[rule->out[i]];
        TRY(rewrite_graft(rw, rule->graft[i], bound, has, &a));
        if (a.kind != ARG_VALUE) return rewrite_refuse(rw, "the graft is not a tensor");
        f->to[i] = a.v;
        TRY(same_form(rw, f->from[i], f->to[i]));
        if (f->from[i] == f->to[i]) return rewrite_refuse(rw, "it is there already");
        for (int k = 0; k < root->nout; k++)
            if (root->out[k] != f->from[i] && rewrite_info(rw, root->out[k])->uses)
                return rewrite_refuse(rw, "another result of '%s' is used", root->name);
    }
    return true;
}

static void hold(Firer *f, void (*change)(void *, Value **), int by)
{
    for (int i = 0; i < f->nseen; i++)
        if (rewrite_info(f->rw, f->seen[i]->out[0])->ghost) node_each_operand(f->seen[i], change, f->rw);
    for (int i = 0; i < f->n; i++) rewrite_info(f->rw, f->to[i])->uses += by;
}

static Value *meaning_of(void *user, const Value *weight)
{
    const Info *info = rewrite_info(user, weight);
    return info ? info->meaning : NULL;
}

static bool takes_rounded(const Rule *rule)
{
    for (int i = 0; i < rule->nwhere; i++)
        if (!strcmp(rule->where[i].guard->name, "close")) return true;
    return false;
}

/* Cheaper, possible, and (if asked) proven? Logs it then. All counts are as before afterwards. */
static bool worth_it(Firer *f, const Rule *rule)
{
    Rewrite *rw = f->rw;
    Proof proof = {0};
    int uses[MAX_FORK], before = 0;
    f->at = f->root[0];
    for (int i = 1; i < f->n; i++)
        if (*order_of(rw, f->root[i]) < *order_of(rw, f->at)) f->at = f->root[i];
    f->ok = f->dry = true;
    f->cost = f->depth = f->nseen = f->ndead = 0;
    for (int i = 0; i < f->n; i++) {
        uses[i] = rewrite_info(rw, f->from[i])->uses;
        rewrite_info(rw, f->from[i])->uses = 0;
    }
    for (int i = 0; i < f->n; i++) link_value(f, f->to[i]);
    hold(f, more_use, 1);
    for (int i = 0; i < f->n; i++)
        if (unused(rw, f->root[i])) bury(f, f->root[i]);
    for (int i = 0; i < f->ndead; i++) before += rewrite_cost(rw, f->dead[i]);
    if (f->ok && f->gone && !is_dead(f, f->gone->def))
        f->ok = rewrite_refuse(rw, "'%s' is read by others, too", f->gone->name);
    if (f->ok && f->cost >= before && !rule->reorders)
        f->ok = rewrite_refuse(rw, "it would not make the graph smaller (cost %d, was %d)", f->cost, before);
    if (f->ok && rw->o->prove) {
        Claim c = {rw->g,      rule->name, f->n,           f->from,        f->to,  rw->waiver,
                   meaning_of, rw,         takes_rounded(rule), rewrite_place, rewrite_varies, &rw->room};
        f->ok = rw->o->prove(rw->o->prove_user, &c, &proof, rw->err) && !rw->hard;
        if (!f->ok && !rw->hard) {
            within(rw->err, "rule '%s' at '%s'", rule->name, f->from[0]->name);
            rw->hard = true;
        }
    }
    if (f->ok && !log_firing(f, rule, &proof)) {
        rw->hard = true;
        f->ok = false;
    }
    unbury(f);
    hold(f, less_use, -1);
    for (int i = 0; i < f->n; i++) rewrite_info(rw, f->from[i])->uses = uses[i];
    return f->ok;
}

/* The value that a rule has put there has the name of the one that it replaced. */
static bool has_fired(const RewriteLog *log, const Rule *rule, const Value *at)
{
    for (int i = 0; i < log->nfirings; i++)
        if (!strcmp(log->firing[i].rule, rule->name) && !strcmp(log->firing[i].result, at->name)) return true;
    return false;
}

static bool fire_rule(Rewrite *rw, const Rule *rule, Node *const *root, const Arg *bound, const bool *has)
{
    Firer *f = rw->firer;
    f->rw = rw;
    f->root = root;
    f->n = rule->nroots;
    rw->note = NULL;
    rw->waiver = WAIVE_NOTHING;
    f->gone = NULL;
    if (rule->reorders && has_fired(rw->log, rule, root[0]->out[rule->out[0]])) {
        rw->why[0] = 0;
        return false;
    }
    return build(f, rule, bound, has) && worth_it(f, rule) && commit(f);
}

bool rewrite_fire(Rewrite *rw, const Rule *rule, int n, Node *const *root, Value *const *from, Value *const *to,
                  const Value *gone)
{
    Firer *f = rw->firer;
    f->rw = rw;
    f->root = root;
    f->n = n;
    f->gone = gone;
    for (int i = 0; i < n; i++) {
        f->from[i] = from[i];
        f->to[i] = to[i];
        TRY(same_form(rw, from[i], to[i]));
    }
    return worth_it(f, rule) && commit(f);
}

/* ------------------------------------------------------------------ deriving */

static void derive(Rewrite *rw, Node *n, int depth);

static bool fire_derive(Rewrite *rw, const Rule *rule, Node *const *root, const Arg *bound, const bool *has)
{
    Arg a;
    rw->note = NULL;
    if (!rewrite_graft(rw, rule->graft[0], bound, has, &a)) return false;
    Value *v = root[0]->out[rule->out[0]];
    if (a.kind != ARG_VALUE || a.v == v) return false;
    if (!same_form(rw, v, a.v)) return false;
    Info *info = rewrite_info(rw, v);
    for (int i = 0; i < info->nalt; i++)
        if (info->alt[i] == a.v) return true;
    if (info->nalt == (int)(sizeof info->alt / sizeof *info->alt)) return true;
    info->alt[info->nalt++] = a.v;
    rw->log->uses[rule->index]++;
    return true;
}

static void note_refusal(Rewrite *rw, const Node *n, const Rule *rule)
{
    Arena *a = rw->log->arena;
    if (!rw->why[0]) return;
    if (!rule->builtin && !rewrite_info(rw, n->out[0])->ghost &&
        !rewrite_log_refused(rw->log, (Refused){arena_strdup(a, rule->name), arena_strdup(a, n->out[0]->name),
                                                arena_strdup(a, rw->why)}))
        rw->hard = !oom(rw->err);
    Info *info = rewrite_info(rw, n->out[0]);
    const Rule *before = info->refused_by;
    if (before && before->derive && !rule->derive)
        return; /* what was not recognised says more than what could not be replaced */
    info->refused_by = rule;
    info->rule = rule->name;
    info->why = arena_strdup(rw->scratch, rw->why);
    rw->why[0] = 0;
}

static void derive(Rewrite *rw, Node *n, int depth)
{
    Rule **list = rw->by_op[1][n->op->id];
    if (!n->nout || rewrite_info(rw, n->out[0])->derived || depth > 40) return;
    rewrite_info(rw, n->out[0])->derived = true;
    if (rewrite_info(rw, n->out[0])->ghost) { /* operands first */
        Reached r = {.n = 0};
        node_each_operand(n, reach, &r);
        for (int i = 0; i < r.n; i++)
            if (r.node[i]->nout && rewrite_info(rw, r.node[i]->out[0])->ghost) derive(rw, r.node[i], depth + 1);
    }
    for (; list && *list && !rw->hard; list++) {
        rw->rule = *list;
        rw->why[0] = 0;
        if (!rewrite_match(rw, *list, n, n, fire_derive)) {
            note_refusal(rw, n, *list);
            continue;
        }
        /* forms of what was just made */
        Info *info = rewrite_info(rw, n->out[0]);
        if (!info->nalt) continue;
        Value *alt = info->alt[info->nalt - 1];
        if (alt->def && rewrite_info(rw, alt)->ghost) derive(rw, alt->def, depth + 1);
        /* an equal form's equal forms are its own */
        info = rewrite_info(rw, n->out[0]);
        Info *of = rewrite_info(rw, alt);
        for (int k = 0; k < of->nalt && info->nalt < MAX_FORMS; k++) {
            bool have = of->alt[k] == n->out[0];
            for (int j = 0; j < info->nalt; j++) have |= info->alt[j] == of->alt[k];
            if (!have) info->alt[info->nalt++] = of->alt[k];
        }
    }
}

/* ------------------------------------------------------------------ rounds */

/* Tries the rules at n, seen as one of its forms. */
static bool try_rules(Rewrite *rw, Node *n, const Node *form)
{
    for (Rule **list = rw->by_op[0][form->op->id]; list && *list && !rw->hard; list++) {
        rw->rule = *list;
        rw->why[0] = 0;
        if (rewrite_match(rw, *list, n, form, fire_rule)) return true;
        note_refusal(rw, n, *list);
    }
    return false;
}

static bool visit(Rewrite *rw, Node *n)
{
    rw->made_before = rw->nghosts;
    rw->g->module = n->module; /* of what takes its place */
    derive(rw, n, 0);
    if (try_rules(rw, n, n)) return true;
    for (int i = 0; n->nout == 1 && i < rewrite_info(rw, n->out[0])->nalt; i++) {
        const Value *alt = rewrite_info(rw, n->out[0])->alt[i];
        if (alt->def && rewrite_info(rw, alt)->ghost && try_rules(rw, n, alt->def)) return true;
    }
    return false;
}

static void forget_made(Rewrite *rw)
{
    rw->nghosts = 0;
    for (int i = 0; i < rw->ninfo; i++) info_at(rw, i)->holders = 0;
    rw->nholders = 0;
    if (rw->nbuckets) memset(rw->bucket, 0, (size_t)rw->nbuckets * sizeof *rw->bucket);
}

/* Of a joint graph: where the backward pass begins. */
static const Node *loss_node(const Graph *g)
{
    for (int i = 0; i < g->noutput; i++)
        if (g->output[i].loss) return g->output[i].value->def;
    return NULL;
}

/* user: by value id, what takes its place. */
static void swap_merged(void *user, Value **slot)
{
    Value *of = *slot ? ((Value **)user)[(*slot)->id] : NULL;
    if (of) *slot = of;
}

/* The same op on the same arguments is computed once. In a joint graph once a pass: what its backward pass computes
 * again need not be kept until then. */
static bool merge_nodes(Rewrite *rw, Value **merged)
{
    Graph *g = rw->g;
    const Node *loss = loss_node(g);
    for (Node *n = g->first, *next; n; n = next) {
        next = n->next;
        node_each_operand(n, swap_merged, merged);
        if (loss && n->prev == loss) forget_made(rw);
        if (!n->nout || (n->op->flags & (OPF_RANDOM | OPF_EFFECT | OPF_DATA_SIZE | OPF_INPLACE))) continue;
        Node *same = rewrite_made(rw, n->op, n->arg);
        bool fits = same != NULL;
        for (int k = 0; fits && k < n->nout; k++)
            fits = same->out[k]->rank == n->out[k]->rank &&
                   exprs_same(n->out[k]->rank, n->out[k]->dim, same->out[k]->dim);
        if (!fits) {
            if (!same && !rewrite_remember(rw, n)) return oom(rw->err);
            continue;
        }
        for (int k = 0; k < n->nout; k++) merged[n->out[k]->id] = same->out[k];
        graph_remove(g, n);
    }
    graph_each_operand(g, swap_merged, merged);
    forget_made(rw);
    return true;
}

static bool merge_equal(Rewrite *rw)
{
    if (!graph_merge_constants(rw->g)) return oom(rw->err);
    if (!start_round(rw)) return false;
    Value **merged = mem_zeroed((size_t)rw->g->next_id + 1, sizeof *merged);
    bool ok = merged ? merge_nodes(rw, merged) : oom(rw->err);
    mem_free(merged);
    return ok;
}

static bool one_round(Rewrite *rw, bool *changed)
{
    int done = 0, total = rw->g->nnodes;
    TRY(start_round(rw));
    for (Node *n = rw->g->first; n && !rw->hard;) {
        if (n->nout && visit(rw, n)) {
            *changed = true;
            n = rw->resume; /* the first of what took its place */
        } else {
            n = n->next;
        }
        if (rw->o->progress && (++done & 255) == 0)
            rw->o->progress(rw->o->progress_user, done < total ? done : total, total);
    }
    return !rw->hard;
}

static void roots_of(const Pat *p, bool *op)
{
    if (p->kind == P_OP) op[p->op->id] = true;
    for (int i = 0; i < p->n && p->kind != P_OP; i++) roots_of(p->sub[i], op);
}

static bool index_rules(Rewrite *rw, const char *phase)
{
    for (int d = 0; d < 2; d++) {
        rw->by_op[d] = arena_array(rw->scratch, Rule **, OP_COUNT);
        if (!rw->by_op[d]) return oom(rw->err);
        int count[OP_COUNT] = {0};
        for (int pass = 0; pass < 2; pass++) {
            for (int i = 0; i < rw->o->rules->n; i++) {
                Rule *r = rw->o->rules->rule[i];
                bool op[OP_COUNT] = {false};
                if (r->derive != (d == 1) || strcmp(r->phase, phase)) continue;
                roots_of(r->root[0], op);
                for (int k = 0; k < OP_COUNT; k++) {
                    if (!op[k]) continue;
                    if (pass) rw->by_op[d][k][count[k]] = r;
                    count[k]++;
                }
            }
            for (int k = 0; k < OP_COUNT && !pass; k++) {
                if (count[k] && !(rw->by_op[d][k] = arena_array(rw->scratch, Rule *, count[k] + 1)))
                    return oom(rw->err);
                count[k] = 0;
            }
        }
    }
    return true;
}

static bool settled(Rewrite *rw, Phase phase, bool *changed)
{
    bool ok = true;
    for (const Family *const *f = rw->o->rules->families; ok && *f; f++)
        if ((*f)->settled) ok = (*f)->settled(rw, phase, changed);
    return ok;
}

static bool leftovers(Rewrite *rw, Phase phase, RewriteLog *log, Err *err)
{
    bool ok = true;
    for (const Family *const *f = rw->o->rules->families; ok && *f; f++)
        if ((*f)->leftovers) ok = (*f)->leftovers(rw, phase, log, err);
    return ok;
}

static bool left(const RuleSet *rules, const Graph *g, RewriteLog *log, Err *err)
{
    bool ok = true;
    for (const Family *const *f = rules->families; ok && *f; f++)
        if ((*f)->left) ok = (*f)->left(g, log, err);
    return ok;
}

static int fused(const RuleSet *rules, const Graph *g)
{
    int n = 0;
    for (const Family *const *f = rules->families; *f; f++)
        if ((*f)->fused) n += (*f)->fused(g);
    return n;
}

typedef struct Relink {
    Graph *g;
    bool *linked; /* by value id */
    int *uses;    /* the same */
} Relink;

static void relink(void *user, Value **slot)
{
    Relink *r = user;
    Node *n = (*slot)->def;
    r->uses[(*slot)->id]++;
    if (!n || r->linked[n->out[0]->id]) return;
    for (int k = 0; k < n->nout; k++) r->linked[n->out[k]->id] = true;
    node_each_operand(n, relink, r);
    graph_link_before(r->g, n, r->g->first);
}

/* Weights that the rules made become the ops that they stand for. */
static bool unfold_weights(Rewrite *rw, int fresh)
{
    Graph *g = rw->g;
    size_t n = (size_t)g->next_id + 1;
    Relink r = {g, arena_alloc(rw->scratch, n, sizeof(bool)), arena_alloc(rw->scratch, n, sizeof(int))};
    Value **by = arena_alloc(rw->scratch, n, sizeof *by);
    if (!r.uses || !r.linked || !by) return oom(rw->err);
    graph_count_uses(g, r.uses);
    for (const Node *x = g->first; x; x = x->next)
        for (int k = 0; k < x->nout; k++) r.linked[x->out[k]->id] = true;
    for (int i = g->nweight - 1; i >= 0; i--) { /* the last may be made of those before */
        Value *w = g->weight[i], *m = w->id >= fresh && rewrite_info(rw, w) ? rewrite_info(rw, w)->meaning : NULL;
        if (!m || !r.uses[w->id]) continue;
        relink(&r, &m);
        by[w->id] = m;
    }
    for (int i = 0; i < g->nweight; i++) {
        Value *m = by[g->weight[i]->id];
        if (m && by[m->id]) by[g->weight[i]->id] = by[m->id];
    }
    graph_replace_all(g, by);
    return graph_sort(g, rw->err);
}

bool rewrite_graph(Graph *g, const RewriteOptions *o, RewriteLog *log, Err *err)
{
    Rewrite rw = {.g = g, .ex = g->ex, .o = o, .log = log, .err = err, .scratch = arena_create(0)};
    *log = (RewriteLog){.arena = arena_create(0), .nodes_before = g->nnodes};
    rw.firer = mem_zeroed(1, sizeof *rw.firer);
    if (log->arena) log->uses = arena_array(log->arena, int, o->rules->n + 1);
    int fresh = g->next_id, *used = mem_alloc(((size_t)fresh + 1) * sizeof *used);
    bool ok = rw.scratch && log->uses && rw.firer && used;
    if (ok) graph_count_uses(g, used);
    else oom(err);
    ok = ok && (o->resumes || merge_equal(&rw));
    for (int p = 0; ok && p < PHASES; p++) {
        if (o->phases && !(o->phases & 1u << p)) continue;
        bool changed = true;
        int refused = log->nrefused;
        ok = index_rules(&rw, phase_name((Phase)p));
        for (int round = 0; ok && changed && round < MAX_ROUNDS; round++) {
            changed = false;
            log->nrefused = refused; /* the last round tells how it ended */
            ok = one_round(&rw, &changed);
            if (ok && !changed && !o->rules_only) ok = settled(&rw, (Phase)p, &changed);
        }
        ok = ok && leftovers(&rw, (Phase)p, log, err);
    }
    g->module = NULL;
    if (ok && o->unrounded) ok = unfold_weights(&rw, fresh);
    graph_dce(g);
    if (used && !graph_drop_weights(g, used, fresh, err)) ok = false;
    if (ok) ok = graph_check(g, err) || within(err, "after rewriting");
    ok = ok && left(o->rules, g, log, err);
    log->fused = fused(o->rules, g);
    log->nodes_after = g->nnodes;
    mem_free(used);
    mem_free(rw.firer);
    mem_free(rw.below);
    if (rw.room) rw.room->release(rw.room);
    info_free(&rw);
    mem_free(rw.ghost);
    mem_free(rw.holder);
    mem_free(rw.bucket);
    mem_free(rw.chain);
    map_free(&rw.made.by_name);
    lookup_free(&rw.made.by_memory);
    lookup_free(&rw.made.by_source);
    arena_destroy(rw.scratch);
    return ok;
}
