/* Where two graphs meet: for every value of the result that no node of the source computes, a claim that it is the
 * value of the same name. Contract in certify.h. */
#include "program/certify.h"
#include <stdio.h>
#include <string.h>
#include "base/jsonw.h"
#include "certify/certify.h"
#include "ir/bodies.h"
#include "rewrite/rewrite.h"

enum { MAX_WASTED = 1 << 16 };

/* Where a rule fired: what both graphs call by that name (NULL: nothing), and the first firing of the rule. */
typedef struct Fired {
    const Value *at[2];
    int first;
} Fired;

typedef struct Prover {
    Checker c;
    const RuleAt *firing;
    int nfirings;
    Fired *fired;        /* beside firing */
    int *said;           /* by first firing: the last claim that names the rule */
    Map by_result;       /* of firings: Fired */
    const Value **given; /* by id of the result: the source's output where it is an output */
    bool *leaf, *failed; /* by class of the source; by id of the result: no claim about it holds */
    const Value **pair;  /* by id of the result: the source's operand in its place, of an op without a lemma */
    Buf claims, weights;
    int nclaims;
    bool *placed; /* by id of the source: of places alone */
    unsigned char *through; /* by class of the source: the reaches that look through it */
    bool *below, *met; /* by id of the result, by class of the source: find_met */
    bool reads_failed, all_placed, no_memory;
    char first[900]; /* the first value about which no claim holds, and why */
    int wasted; /* steps for claims that do not hold */
    Err last;   /* why the last claim that was tried does not hold */
} Prover;

/* ------------------------------------------------------------------ weights in rows of others */

static bool is_piece(Prover *p, const Value *weight, int64_t from, int64_t count, const Value *of)
{
    Err ignored = {0};
    if (!checker_piece(&p->c, weight, from, count, of, &ignored)) return false;
    jw_put(&p->weights, "{'weight': %s, 'from': %lld, 'count': %lld", weight->name, (long long)from, (long long)count);
    jw_text(&p->weights, "of", of ? of->name : NULL);
    jw_close(&p->weights, "}");
    return true;
}

/* How many rows from `from` on are a weight of the source that is not 0, all of them perhaps its columns; 0: none. */
static int64_t find_rows(Prover *p, const Value *w, int64_t from)
{
    const Graph *a = p->c.side[SOURCE].g;
    for (int k = 0; k < a->nweight; k++) {
        const Value *of = a->weight[k];
        if (of->dtype != w->dtype || !of->data || of->rank < 1 || of->data->shape[0] < 1) continue;
        if (checker_zero(&p->c, SOURCE, of)) continue;
        if (from == 0 && tensor_numel(of->data) == tensor_numel(w->data) && of->rank != w->rank &&
            is_piece(p, w, 0, w->data->shape[0], of))
            return w->data->shape[0];
        if (of->rank != w->rank) continue;
        if (is_piece(p, w, from, of->data->shape[0], of)) return of->data->shape[0];
        if (from == 0 && is_piece(p, w, 0, w->data->shape[0], of)) return w->data->shape[0];
    }
    return 0;
}

/* The same, or of zeros: those of a parameter may be the first numbers of a bias. */
static int64_t find_piece(Prover *p, const Value *w, int64_t from)
{
    int64_t zeros = 0, rows = 0;
    while (w->rank == 1 && from + zeros < w->data->shape[0] && tensor_get(w->data, from + zeros) == 0) zeros++;
    if (w->weight != W_CONSTANT) rows = find_rows(p, w, from);
    if (rows || !zeros) return rows ? rows : find_rows(p, w, from);
    return is_piece(p, w, from, zeros, NULL) ? zeros : 0;
}

/* A weight that is the numbers of a value of the source that has its name. */
static bool is_constant(Prover *p, const Value *w)
{
    const Value *v = graph_find_value(p->c.side[SOURCE].g, w->name);
    Err ignored = {0};
    if (!v || !v->def || !checker_constant(&p->c, w, v, &ignored)) return false;
    jw_put(&p->weights, "{'weight': %s, 'from': 0, 'count': 0, 'of': %s}", w->name, v->name);
    return true;
}

/* Rows of new weights that are the source's, one after the other. */
static void find_pieces(Prover *p)
{
    const Graph *b = p->c.side[RESULT].g;
    for (int i = 0; i < b->nweight; i++) {
        const Value *w = b->weight[i];
        if (checker_class(&p->c, RESULT, w) >= 0 || !w->data || is_constant(p, w) || w->rank < 1) continue;
        for (int64_t from = 0, n = 1; n && from < w->data->shape[0]; from += n) n = find_piece(p, w, from);
    }
}

/* ------------------------------------------------------------------ cuts */

static void is_placed(void *user, Value **slot)
{
    Prover *p = user;
    p->all_placed &= p->placed[(*slot)->id];
}

/* Integers and truth values of the source that depend on places and sizes alone, as a causal mask does. */
static void find_placed(Prover *p)
{
    for (const Node *n = p->c.side[SOURCE].g->first; n; n = n->next) {
        p->all_placed = n->nout && !(n->op->flags & OPF_RANDOM) && !dtype_is_float(n->out[0]->dtype);
        node_each_operand((Node *)(uintptr_t)n, is_placed, p);
        for (int k = 0; k < n->nout; k++) p->placed[n->out[k]->id] = p->all_placed;
    }
}

/* How far a claim looks back: to values that both have and that are, in the source, no views; neither pointwise; any;
 * neither views nor reductions; none of those that an attention is spelled with, but to where the result's nodes end;
 * none of those. Positions are always looked at. PROJECTED is FAR, and through what an attention may have taken for its
 * projections. */
typedef enum Reach { VIEWS, POINTWISE, SHARED, REDUCED, NEAR, FAR, PROJECTED, REACHES } Reach;

static void count_operand(void *user, Value **slot)
{
    (void)slot;
    ++*(int *)user;
}

static bool looks_through(const Prover *p, const Value *v, Reach reach)
{
    if (!v->def) return false;
    int flags = v->def->op->flags, operands = 0;
    node_each_operand(v->def, count_operand, &operands);
    if (flags & OPF_RANDOM) return false; /* drawn once, and the same for all that read it */
    if (flags & OPF_AS_STORED && !element_is_known(v)) return false; /* bytes, of which nothing is known */
    if (operands == 0 || (dtype_is_int(v->dtype) && (flags & (OPF_VIEW | OPF_POINTWISE)))) return true;
    if (v->dtype == DT_BOOL && p->placed[v->id]) return true;
    switch (reach) {
    case VIEWS: return flags & OPF_VIEW;
    case POINTWISE: return flags & (OPF_VIEW | OPF_POINTWISE);
    case REDUCED: return flags & (OPF_VIEW | OPF_REDUCES);
    case NEAR:
    case FAR:
    case PROJECTED:
        return (flags & (OPF_VIEW | OPF_POINTWISE | OPF_REDUCES | OPF_IN_SCORES)) || v->def->op->id == OP_matmul ||
               (reach == PROJECTED && v->def->op->id == OP_linear);
    default: return false;
    }
}

static void find_through(Prover *p)
{
    const Checker *c = &p->c;
    for (int k = 0; k < c->nclasses; k++)
        for (Reach reach = VIEWS; reach < REACHES; reach++)
            if (looks_through(p, c->of_class[k], reach)) p->through[k] |= (unsigned char)(1 << reach);
}

static void put_below(void *user, Value **slot)
{
    Prover *p = user;
    p->below[(*slot)->id] = true;
}

/* Values that both have and that v is made of by views and by nodes that only the result has. */
static void find_met(Prover *p, const Value *v)
{
    const Checker *c = &p->c;
    memset(p->below, 0, (size_t)c->side[RESULT].g->next_id * sizeof *p->below);
    memset(p->met, 0, (size_t)c->nclasses * sizeof *p->met);
    p->below[v->id] = true;
    for (const Node *n = v->def; n; n = n->prev)
        for (int i = 0; i < n->nout; i++) {
            const Value *x = n->out[i];
            int k = p->below[x->id] ? checker_class(c, RESULT, x) : -1;
            if (k >= 0 && x != v && c->shared[k] && !(p->through[k] >> VIEWS & 1)) p->met[k] = true;
            else if (p->below[x->id]) node_each_operand((Node *)(uintptr_t)n, put_below, p);
        }
}

static void choose_leaves(Prover *p, Reach reach, int but, const Value *v)
{
    const Checker *c = &p->c;
    if (reach == NEAR) find_met(p, v);
    for (int k = 0; k < c->nclasses; k++) {
        bool seen_through = p->through[k] >> reach & 1 && !(reach == NEAR && p->met[k]);
        p->leaf[k] = c->shared[k] && k != but && !seen_through;
    }
}

/* The rules that fired at nodes of the claim. */
static void put_rules(Prover *p, const Value *b)
{
    jw_open(&p->claims, "rules", '[');
    for (int i = 0; i < p->nfirings; i++) {
        const Fired *f = &p->fired[i];
        bool in = f->at[RESULT] == b;
        for (int s = 0; s < 2 && !in; s++) in = f->at[s] && p->c.side[s].step[f->at[s]->id].seen == p->c.claim;
        if (!in || p->said[f->first] == p->nclaims + 1) continue;
        p->said[f->first] = p->nclaims + 1;
        jw_text(&p->claims, NULL, p->firing[i].rule);
    }
    jw_close(&p->claims, "]");
}

static void put_claim(Prover *p, const Value *a, const Value *b)
{
    jw_open(&p->claims, NULL, '{');
    jw_text(&p->claims, "source", a->name);
    jw_text(&p->claims, "result", b->name);
    put_rules(p, b);
    checker_put_claim(&p->c, &p->claims);
    jw_close(&p->claims, "}");
}

/* ------------------------------------------------------------------ claims */

static bool try_claim(Prover *p, const Value *a, const Value *b)
{
    Checker *c = &p->c;
    int class = checker_class(c, SOURCE, a);
    for (Reach reach = VIEWS; reach < REACHES; reach++) {
        choose_leaves(p, reach, class, b);
        p->last = (Err){0};
        if (!checker_claim(c, a, b, p->leaf, &p->last)) {
            p->wasted += c->t.steps;
            if (p->wasted > MAX_WASTED) return false;
            continue;
        }
        put_claim(p, a, b);
        checker_equal(c, a, b);
        c->laws |= c->t.used;
        p->nclaims++;
        return true;
    }
    return false;
}

static void reads_failed(void *user, Value **slot)
{
    Prover *p = user;
    p->reads_failed |= p->failed[(*slot)->id];
}

/* What is looked up for each claim. */
static bool find_firings(Prover *p)
{
    const Graph *a = p->c.side[SOURCE].g, *b = p->c.side[RESULT].g;
    Map first = {0};
    bool ok = true;
    for (int i = 0; ok && i < p->nfirings; i++) {
        const RuleAt *f = &p->firing[i];
        Fired *of = map_get(&first, f->rule), *x = &p->fired[i];
        *x = (Fired){{graph_find_value(a, f->result), graph_find_value(b, f->result)}, of ? of->first : i};
        ok = (of || map_put(&first, f->rule, x)) &&
             (map_has(&p->by_result, f->result) || map_put(&p->by_result, f->result, x));
    }
    const Value *x, *y;
    for (int i = 0; i < b->noutput && checker_given(&p->c, i, &x, &y); i++)
        if (!p->given[y->id]) p->given[y->id] = x;
    map_free(&first);
    return ok;
}

/* No claim holds about v, which the source calls `of`; what reads it is not tried then. */
static void give_up(Prover *p, const Value *of, const Value *v, Certified *found)
{
    const Fired *at = map_get(&p->by_result, v->name);
    const char *rule = at ? p->firing[at - p->fired].rule : "";
    bool fired = at != NULL;
    bool dear = p->nfirings || p->wasted > MAX_WASTED; /* else the two may have one name by chance */
    p->failed[v->id] = fired || (dear && of->def && of->def->op == v->def->op);
    if (!p->first[0]) snprintf(p->first, sizeof p->first, "'%s': %.800s", v->name, p->last.msg);
    if (!found->why[0] && (fired || p->nfirings == 0))
        snprintf(found->why, sizeof found->why, "%s%s'%s': %.800s", rule, fired ? " at " : "", v->name,
                 p->last.msg);
}

/* Nodes of an op without a lemma are the same where their operands are, whatever those are called. */
static void pair_operands(Prover *p)
{
    const Graph *a = p->c.side[SOURCE].g;
    for (const Node *n = p->c.side[RESULT].g->first; n; n = n->next) {
        const Value *of = n->nout && !element_is_known(n->out[0]) ? graph_find_value(a, n->out[0]->name) : NULL;
        if (!of || !of->def || of->def->op != n->op) continue;
        for (int k = 0; k < n->op->schema->nparams; k++) {
            const Arg *x = &of->def->arg[k], *y = &n->arg[k];
            if (x->kind == ARG_VALUE && y->kind == ARG_VALUE) p->pair[y->v->id] = x->v;
            for (int i = 0; x->kind == ARG_VALUES && y->kind == ARG_VALUES && i < x->n && i < y->n; i++)
                if (x->vs[i] && y->vs[i]) p->pair[y->vs[i]->id] = x->vs[i];
        }
    }
}

/* The value of the other graph that has the name of v, a value of the side's graph, and its sizes; NULL: none. */
static const Value *namesake(Prover *p, int side, const Value *v)
{
    const Value *w = graph_find_value(p->c.side[!side].g, v->name);
    bool same = w && checker_same_sizes(&p->c, side == SOURCE ? v : w, side == SOURCE ? w : v);
    return same ? w : NULL;
}

/* First results of a graph's nodes that have no namesake. */
static const Value **without_namesake(Prover *p, int side, int *n)
{
    const Graph *g = p->c.side[side].g;
    const Value **all = arena_array(p->c.arena, const Value *, g->nnodes + 1);
    *n = 0;
    for (const Node *k = g->first; all && k; k = k->next)
        if (k->nout && !namesake(p, side, k->out[0])) all[(*n)++] = k->out[0];
    return all;
}

/* Values of one op, dtype and sizes: how many each graph has, and where the source's begin among all. */
typedef struct Kind {
    const Value *v;
    int side, n[2], first, paired;
} Kind;

static bool alike(Prover *p, int side, const Value *v, const Kind *k)
{
    bool same = v->def->op == k->v->def->op && v->dtype == k->v->dtype && v->rank == k->v->rank;
    for (int d = 0; same && d < v->rank; d++) {
        const Expr *e = checker_expr(&p->c, side, v->dim[d]);
        same = e == checker_expr(&p->c, k->side, k->v->dim[d]);
    }
    return same;
}

/* The kind of v among those of the table, which is put there if it is new; NULL: of sizes that the checker lacks. */
static Kind *kind_of(Prover *p, Kind *table, size_t slots, int side, const Value *v)
{
    size_t h = (size_t)v->def->op->id * 31 + (size_t)v->rank;
    for (int d = 0; d < v->rank; d++) {
        const Expr *e = checker_expr(&p->c, side, v->dim[d]);
        if (!e) return NULL;
        h = h * 1000003 + e->id;
    }
    for (h = (h ^ h >> 20) & (slots - 1); table[h].v && !alike(p, side, v, &table[h]);) h = (h + 1) & (slots - 1);
    if (!table[h].v) table[h] = (Kind){.v = v, .side = side};
    return &table[h];
}

/* Values that another exporter calls otherwise: the k-th of an op with these sizes is the source's k-th, where both
 * have as many of them. */
static bool pair_in_order(Prover *p)
{
    int n[2], first = 0;
    const Value **all[2] = {without_namesake(p, SOURCE, &n[SOURCE]), without_namesake(p, RESULT, &n[RESULT])};
    size_t slots = 16;
    while (slots < 2 * ((size_t)n[0] + (size_t)n[1])) slots *= 2;
    Kind *table = arena_array(p->c.arena, Kind, slots);
    const Value **ordered = arena_array(p->c.arena, const Value *, n[SOURCE] + 1);
    if (!all[SOURCE] || !all[RESULT] || !table || !ordered) return false;
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < n[side]; i++) {
            Kind *k = kind_of(p, table, slots, side, all[side][i]);
            if (k) k->n[side]++;
        }
    for (size_t k = 0; k < slots; k++) {
        table[k].first = first;
        first += table[k].n[SOURCE];
    }
    for (int i = 0; i < n[SOURCE]; i++) {
        Kind *k = kind_of(p, table, slots, SOURCE, all[SOURCE][i]);
        if (k) ordered[k->first + k->paired++] = all[SOURCE][i];
    }
    for (size_t k = 0; k < slots; k++) table[k].paired = 0;
    for (int i = 0; i < n[RESULT]; i++) {
        const Value *v = all[RESULT][i];
        Kind *k = kind_of(p, table, slots, RESULT, v);
        if (!k || k->n[SOURCE] != k->n[RESULT]) continue;
        if (!p->pair[v->id]) p->pair[v->id] = ordered[k->first + k->paired];
        k->paired++;
    }
    return true;
}

/* ------------------------------------------------------------------ loops and branches */

static void prove(Prover *p, Certified *found, Err *err);

static void put_proof(const Prover *p, Buf *out)
{
    jw_list(out, "weights", '[', &p->weights);
    jw_list(out, "claims", '[', &p->claims);
    jw_close(out, "}");
}

static void close_prover(Prover *p)
{
    map_free(&p->by_result);
    buf_free(&p->weights);
    buf_free(&p->claims);
}

/* Are the bodies the same functions? *claimed: of what may be equal over the reals alone; it becomes true where that is
 * all that is known of what they give, and a next turn may be given. */
static bool same_bodies(Prover *p, const Twins *r, bool *claimed, int *claims, Buf *out)
{
    bool same = true;
    *claims = 0;
    for (int i = 0; same && body_at(r->b, i); i++) {
        Prover q = {.firing = p->firing, .nfirings = p->nfirings, .wasted = p->wasted};
        Certified found = {0};
        bool open = checker_enter(&q.c, &p->c, r, i, *claimed, &p->last);
        if (open) prove(&q, &found, &p->last);
        p->wasted = q.wasted;
        p->no_memory |= q.no_memory || p->last.code == E_LIMIT;
        same = open && found.whole && (*claimed || !(q.nclaims || q.weights.len));
        if (open && !found.whole) p->last = (Err){0}, fail(&p->last, E_MISMATCH, "body %d: %s", i, found.why);
        jw_open(out, NULL, '{');
        put_proof(&q, out);
        *claims += q.nclaims;
        *claimed |= found.whole && !same;
        checker_leave(&p->c, &q.c);
        close_prover(&q);
    }
    return same;
}

/* A loop or branch that the source has under the name of a result. torch's loops carry their condition, too. */
static bool try_runs(Prover *p, const Node *n)
{
    Checker *c = &p->c;
    const Value *of = NULL;
    int k = 0, nc = n->op->id == OP_loop ? n->arg[1].n : 0;
    for (; k < n->nout; k++) {
        of = p->given[n->out[k]->id];
        if (!of) of = graph_find_value(c->side[SOURCE].g, n->out[k]->name);
        if (!of) of = p->pair[n->out[k]->id];
        if (of && of->def && of->def->op == n->op) break;
    }
    p->last = (Err){0};
    if (k == n->nout) return fail(&p->last, E_MISMATCH, "'%s' is not in the source", n->name);
    int *carried = arena_array(c->arena, int, nc + 1), inside;
    if (!carried) return oom(&p->last);
    int own = nc ? of->def->arg[1].n : 0;
    for (int i = 0; i < nc; i++) carried[i] = i - (nc > own);
    const Twins r = {of->def, n, nc > own ? carried : NULL};
    if (!checker_same_operands(c, &r, &p->last)) return false;
    bool claimed = checker_rests(c, &r), first = claimed;
    Buf bodies = {0};
    bool same = same_bodies(p, &r, &claimed, &inside, &bodies);
    if (!same && claimed != first) {
        buf_free(&bodies);
        bodies = (Buf){0};
        same = same_bodies(p, &r, &claimed, &inside, &bodies);
    }
    if (same) {
        jw_open(&p->claims, NULL, '{');
        jw_text(&p->claims, "source", of->name);
        jw_text(&p->claims, "result", n->out[k]->name);
        if (r.carried) jw_open(&p->claims, "carried", '[');
        for (int i = 0; r.carried && i < nc; i++) jw_int(&p->claims, NULL, carried[i]);
        if (r.carried) jw_close(&p->claims, "]");
        jw_list(&p->claims, "bodies", '[', &bodies);
        jw_close(&p->claims, "}");
        checker_ran(c, &r, claimed);
        p->nclaims += inside + 1;
    }
    buf_free(&bodies);
    return same;
}

static void find_claims(Prover *p, Certified *found)
{
    const Graph *a = p->c.side[SOURCE].g, *b = p->c.side[RESULT].g;
    for (const Node *n = b->first; n; n = n->next) {
        if (checker_congruent(&p->c, n) || (body_at(n, 0) && try_runs(p, n))) continue;
        p->reads_failed = false;
        node_each_operand((Node *)(uintptr_t)n, reads_failed, p);
        for (int k = 0; k < n->nout; k++) {
            const Value *v = n->out[k], *of = p->given[v->id];
            bool output = of != NULL;
            if (!of) of = graph_find_value(a, v->name);
            if (of && !output && !checker_same_sizes(&p->c, of, v)) of = NULL; /* another exporter counts its views */
            if (!of) of = p->pair[v->id];
            if (p->reads_failed && (!output || p->wasted > MAX_WASTED)) p->failed[v->id] = true;
            else if (of && of->def && (body_at(n, 0) || !try_claim(p, of, v))) give_up(p, of, v, found);
        }
    }
}

/* What the source gives may have another class than what the result gives: x / 1 is not x until a claim says so. */
static void claim_given(Prover *p)
{
    const Value *a, *b;
    for (int i = 0; checker_given(&p->c, i, &a, &b); i++) {
        int class = checker_class(&p->c, RESULT, b);
        if (a->def && class >= 0 && class != checker_class(&p->c, SOURCE, a)) try_claim(p, a, b);
    }
}

/* All claims about the two graphs of an open checker. */
static void prove(Prover *p, Certified *found, Err *err)
{
    const Graph *a = p->c.side[SOURCE].g, *b = p->c.side[RESULT].g;
    p->leaf = arena_array(p->c.arena, bool, p->c.nclasses + 1);
    p->failed = arena_array(p->c.arena, bool, b->next_id + 1);
    p->pair = arena_array(p->c.arena, const Value *, b->next_id + 1);
    p->placed = arena_array(p->c.arena, bool, a->next_id + 1);
    p->given = arena_array(p->c.arena, const Value *, b->next_id + 1);
    p->through = arena_array(p->c.arena, unsigned char, p->c.nclasses + 1);
    p->below = arena_array(p->c.arena, bool, b->next_id + 1);
    p->met = arena_array(p->c.arena, bool, p->c.nclasses + 1);
    p->fired = arena_array(p->c.arena, Fired, p->nfirings + 1);
    p->said = arena_array(p->c.arena, int, p->nfirings + 1);
    bool room = p->leaf && p->failed && p->pair && p->placed && p->given && p->through && p->below && p->met &&
                p->fired && p->said;
    bool ok = (room && find_firings(p)) || oom(err);
    if (ok) {
        find_placed(p);
        find_through(p);
        pair_operands(p);
        ok = p->nfirings || pair_in_order(p) || oom(err); /* a rewriting keeps names */
    }
    if (!ok) return;
    find_pieces(p);
    find_claims(p, found);
    claim_given(p);
    found->whole = checker_finish(&p->c, err);
    found->claims = p->nclaims;
    if (p->no_memory) found->whole = oom(err);
    if (!found->whole && !found->why[0])
        snprintf(found->why, sizeof found->why, "%s", p->first[0] ? p->first : err->msg);
    if (found->whole) found->why[0] = 0;
}

bool certify_graphs(const Graph *source, const Graph *result, bool single, const RuleAt *firings, int n,
                    Certified *found, Buf *out, Err *err)
{
    Prover p = {.firing = firings, .nfirings = n};
    Err why = {0};
    *found = (Certified){0};
    if (checker_open(&p.c, source, result, single, &why)) {
        prove(&p, found, &why);
        for (int i = 0; (found->assuming[i] = checker_assumes(&p.c, i)); i++) {
        }
    }
    if (!found->whole && !found->why[0]) snprintf(found->why, sizeof found->why, "%s", why.msg);
    jw_put(out, "{'format': 'qkv certificate 2'");
    jw_bool(out, "single", single);
    jw_bool(out, "whole", found->whole);
    jw_text(out, "why", found->whole ? NULL : found->why);
    put_proof(&p, out);
    checker_close(&p.c);
    close_prover(&p);
    return why.code != E_LIMIT || fail(err, E_LIMIT, "%s", why.msg);
}

bool certify_replay(const Graph *source, const Graph *result, bool single, const void *certificate, size_t size,
                    Buf *report, Err *err)
{
    Checker c = {0};
    json_t *cert = json_read(certificate, size, "certificate", err);
    bool ok = cert && checker_open(&c, source, result, single, err) && checker_replay(&c, cert, err);
    jw_report(report);
    jw_bool(report, "holds", ok);
    jw_text(report, "sense", ok ? sense_text(SENSE_REALS) : NULL);
    jw_text(report, "why", ok ? NULL : err->msg);
    jw_int(report, "claims", c.nclaims);
    jw_open(report, "assuming", '[');
    for (int i = 0; ok && checker_assumes(&c, i); i++) jw_text(report, NULL, checker_assumes(&c, i));
    jw_close(report, "]}");
    if (cert) checker_close(&c);
    json_free(cert);
    return ok;
}
