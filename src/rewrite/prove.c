/* Proofs by evaluation. Contract in prove.h. */
#include "rewrite/prove.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "base/vec.h"
#include "base/splitmix.h"
#include "prove/exact.h"
#include "prove/sizes.h"
#include "rewrite/family.h"
#include "rewrite/payload.h"
#include "rewrite/prove_room.h"
#include "shape/solve.h"
#include "tensor/tolerance.h"

enum { MAX_LEAVES = 256, MAX_STEPS_BACK = 6, MAX_CHAIN = 4000, MAX_MADE = 8 };

typedef struct Cone {
    const Claim *claim;
    const Family *const *families;
    Room *room;
    Value *leaf[MAX_LEAVES];  /* random tensors */
    bool touched[MAX_LEAVES]; /* what is replaced reads it directly */
    int nleaves;
    Value *weight[MAX_LEAVES];
    int nweights;
    struct {
        const Value *weight;
        Value *meaning; /* computed by the nodes before node[at] */
        int at;
    } made[MAX_MADE]; /* new weights of the replacement, for exact payloads */
    int nmade;
    Node **node;       /* in order */
    int nnodes, nfrom; /* the first nfrom compute what is replaced */
    int depth;         /* of the searches below; beyond MAX_CHAIN a claim is too large to be proven */
    Elements fewest;   /* at the smallest sizes */
    double least;      /* steps of the first exact run; 0: none */
    double allowed;    /* largest difference of the first result, relative to its peak */
    bool too_large;    /* the sizes in turn are left out: others are tried */
    bool one_drawn;    /* families draw one tensor of floats at a time: large numbers of several could cancel */
    bool exact;        /* on exact payloads, until they say nothing */
    bool ok;
} Cone;

/* ------------------------------------------------------------------ the two functions */

static bool is_leaf(Cone *c, const Value *v)
{
    for (int i = 0; i < c->nleaves; i++)
        if (c->leaf[i] == v) return c->touched[i] = true;
    return false;
}

static void add_leaf(Cone *c, Value *v)
{
    Value **list = v->kind == V_WEIGHT ? c->weight : c->leaf;
    int *n = v->kind == V_WEIGHT ? &c->nweights : &c->nleaves;
    for (int i = 0; i < *n; i++)
        if (list[i] == v) return;
    if (*n == MAX_LEAVES) c->ok = false;
    else list[(*n)++] = v;
}

/* Is v the result of a loop or branch? Such a result is any tensor: exact payloads and sizes pass through no body. */
static bool opaque(const Value *v)
{
    bool is = false;
    for (int k = 0; v->def && k < v->def->op->schema->nparams; k++) is |= v->def->arg[k].kind == ARG_GRAPH;
    return is;
}

static void cut(Cone *c, Value *v);
static void cut_operand(void *user, Value **slot) { cut(user, *slot); }

/* Where the replacement meets what the replaced value is computed from: those are the common inputs. What follows
 * from weights alone is computed, as a rule may rely on its numbers. */
static void cut(Cone *c, Value *v)
{
    if (marked(&c->room->seen, v) || !c->ok) return;
    mark(&c->room->seen, v, 1);
    if (!(c->ok = ++c->depth < MAX_CHAIN)) return;
    if (v->def && !opaque(v) && !room_common(c->room, c->claim, v, &c->ok)) node_each_operand(v->def, cut_operand, c);
    else add_leaf(c, v);
    c->depth--;
}

static void collect(Cone *c, Value *v);
static void collect_operand(void *user, Value **slot) { collect(user, *slot); }

/* A weight that only the replacement has. */
static void collect_meaning(Cone *c, const Value *weight)
{
    const Claim *claim = c->claim;
    bool new = weight->kind == V_WEIGHT && !marked(&c->room->before, weight);
    Value *m = new && claim->meaning ? claim->meaning(claim->user, weight) : NULL;
    for (int i = 0; i < c->nmade; i++)
        if (c->made[i].weight == weight) return;
    if (!m || c->nmade == MAX_MADE) return;
    collect(c, m);
    c->made[c->nmade].weight = weight;
    c->made[c->nmade].meaning = m;
    c->made[c->nmade++].at = c->nnodes;
}

/* Nodes that compute v from the cut, the model's inputs and weights. */
static void collect(Cone *c, Value *v)
{
    if (is_leaf(c, v) || !c->ok) return;
    if (!v->def || opaque(v)) {
        collect_meaning(c, v);
        add_leaf(c, v);
        return;
    }
    for (int k = 0; k < v->def->nout; k++) {
        if (marked(&c->room->seen, v->def->out[k])) return;
        mark(&c->room->seen, v->def->out[k], 1);
    }
    if (!(c->ok = ++c->depth < MAX_CHAIN)) return;
    node_each_operand(v->def, collect_operand, c);
    c->depth--;
    Node **grown = vec_grow(c->node, c->nnodes, sizeof *grown);
    if (!grown) {
        c->ok = false;
        return;
    }
    c->node = grown;
    c->node[c->nnodes++] = v->def;
}

/* Leaves that what is replaced reads only through others are not common inputs: they are computed from what comes
 * before them. False when there was one. */
static bool all_touched(Cone *c)
{
    bool all = true;
    for (int i = 0; i < c->nleaves; i++)
        if (!c->touched[i] && c->leaf[i]->def && !opaque(c->leaf[i])) {
            if (!room_leave_out(c->room, c->leaf[i])) c->ok = false;
            all = false;
        }
    return all;
}

static bool depends(Cone *c, const Value *v, const Value *leaf)
{
    for (int i = 0; i < c->nleaves; i++)
        if (c->leaf[i] == v && v != leaf) return true;
    if (!v->def || marked(&c->room->seen, v) || !c->ok) return false;
    mark(&c->room->seen, v, 1);
    if (!(c->ok = ++c->depth < MAX_CHAIN)) return false;
    bool found = false;
    for (int i = 0; !found && i < v->def->op->schema->nparams; i++) {
        const Arg *a = &v->def->arg[i];
        found = a->kind == ARG_VALUE && depends(c, a->v, leaf);
        for (int k = 0; !found && a->kind == ARG_VALUES && k < a->n; k++)
            found = a->vs[k] && depends(c, a->vs[k], leaf);
    }
    c->depth--;
    return found;
}

/* Leaves that follow from others are computed from them: with numbers of their own they could contradict them. False
 * when there is none. */
static bool drop_dependent(Cone *c)
{
    bool any = false;
    for (int i = 0; i < c->nleaves; i++) {
        forget(&c->room->seen, c->room->n);
        c->depth = 0;
        if (!c->leaf[i]->def || opaque(c->leaf[i]) || !depends(c, c->leaf[i], c->leaf[i])) continue;
        if (!room_leave_out(c->room, c->leaf[i])) c->ok = false;
        any = true;
    }
    return any;
}

/* What v is made of is drawn by a family. */
static void mark_drawn(Cone *c, const Value *v, unsigned char family, int depth)
{
    if (marked(&c->room->drawn, v) || depth > 64) return;
    if (!is_leaf(c, v) && v->def && v->def->op->flags & OPF_PRODUCT) return; /* computed from any numbers */
    mark(&c->room->drawn, v, family);
    if (!v->def || is_leaf(c, v)) return;
    for (int i = 0; i < v->def->op->schema->nparams; i++) {
        const Arg *a = &v->def->arg[i];
        if (a->kind == ARG_VALUE) mark_drawn(c, a->v, family, depth + 1);
        for (int k = 0; a->kind == ARG_VALUES && k < a->n; k++)
            if (a->vs[k]) mark_drawn(c, a->vs[k], family, depth + 1);
    }
}

/* ------------------------------------------------------------------ at one binding */

/* Both functions as one graph of constant sizes: inputs are the leaves, outputs from[0], to[0], from[1], ... */
static Graph *concrete(const Cone *c, const Binding *b, Err *err)
{
    const Claim *claim = c->claim;
    Graph *g = graph_create();
    Value **map = c->room->map;
    bool ok = g != NULL;
    Expr *dim[MAX_RANK];
    for (int i = 0; ok && i < c->nleaves; i++) {
        const Value *v = c->leaf[i];
        ok = sizes_at(g, claim->g->ex, b, v, dim, err) &&
             (map[v->id] = graph_add_input(g, v->name, v->dtype, v->rank, dim));
    }
    for (int i = 0; ok && i < c->nweights; i++) {
        const Value *v = c->weight[i];
        ok = (map[v->id] = graph_add_weight(g, v->name, v->fqn, v->data)) != NULL;
    }
    for (int i = 0; ok && i < c->nnodes; i++) {
        for (int k = 0; c->exact && k < c->nmade; k++)
            if (c->made[k].at == i) map[c->made[k].weight->id] = map[c->made[k].meaning->id];
        ok = node_at_sizes(g, claim->g->ex, b, map, c->node[i], err);
    }
    for (int i = 0; ok && i < claim->n; i++)
        ok = graph_add_output(g, "replaced", map[claim->from[i]->id], err) &&
             graph_add_output(g, "replacement", map[claim->to[i]->id], err);
    for (int i = 0; i < c->nleaves; i++) map[c->leaf[i]->id] = NULL;
    for (int i = 0; i < c->nweights; i++) map[c->weight[i]->id] = NULL;
    for (int i = 0; i < c->nnodes; i++)
        for (int k = 0; k < c->node[i]->nout; k++) map[c->node[i]->out[k]->id] = NULL;
    if (ok) return g;
    if (!err->msg[0]) oom(err);
    graph_free(g);
    return NULL;
}

/* ------------------------------------------------------------------ random tensors */

static void randomise(Tensor *t, uint64_t *s)
{
    int64_t n = tensor_numel(t), row = t->rank ? t->shape[t->rank - 1] : 1;
    for (int64_t i = 0; i < n; i++) {
        char *at = (char *)t->data + (size_t)i * dtype_size(t->dtype);
        if (i % row == 0) splitmix_next(s); /* as where a family draws: one for the row */
        if (dtype_is_float(t->dtype)) store_f64(t->dtype, at, splitmix_normal(s));
        else store_i64(t->dtype, at, (int64_t)(splitmix_next(s) & 1));
    }
}

static bool make_inputs(const Cone *c, const Graph *g, int seed, Tensor *in, Err *err)
{
    uint64_t s = 0x1234567 + (uint64_t)seed * 7919;
    int ndrawn = 0, others;
    for (int i = 0; i < g->ninput; i++) ndrawn += marked(&c->room->drawn, c->leaf[i]) != 0;
    others = ndrawn ? seed % ndrawn : 0;
    for (int i = 0; i < g->ninput; i++) {
        const Value *v = g->input[i];
        int64_t shape[MAX_RANK];
        size_t bytes;
        for (int k = 0; k < v->rank; k++) shape[k] = v->dim[k]->i;
        TRY(shape_bytes(v->dtype, v->rank, shape, &bytes, err));
        mem_free(in[i].data);
        in[i] = tensor_of(v->dtype, v->rank, shape, mem_zeroed(bytes + 64, 1));
        if (!in[i].data) return oom(err);
        if (dtype_is_complex(v->dtype)) {
            Tensor parts = tensor_as_real(&in[i]);
            randomise(&parts, &s);
            continue;
        }
        unsigned family = marked(&c->room->drawn, c->leaf[i]);
        if (family && (!c->one_drawn || v->dtype == DT_BOOL || others-- == 0))
            c->families[family - 1]->draw(&in[i], seed, c->claim->waiver, &s);
        else randomise(&in[i], &s);
    }
    return true;
}

typedef struct Trial {
    const Prover *prover;
    const Graph *g;
    const Tensor *const *in;
} Trial;

static bool runs(void *user, Err *err)
{
    const Trial *t = user;
    const Tensor *out[2 * MAX_FORK];
    return t->prover->eval(t->prover->user, t->g, t->in, out, err);
}

/* Integers other than 0 and 1, where both functions run on them and no family draws them. */
static bool more_integers(const Prover *prover, const Cone *c, const Graph *g, int seed, const Tensor *const *in,
                          Err *err)
{
    Trial trial = {prover, g, in};
    for (int i = 0; i < g->ninput; i++) {
        const Value *v = g->input[i];
        if (!dtype_is_int(v->dtype) || marked(&c->room->drawn, c->leaf[i])) continue;
        const Graph *of = g;
        IntegerDraw d = integer_draw(&of, &v, 1);
        TRY(tell_more(in[i], &d, (uint64_t)(seed * MAX_LEAVES + i), runs, &trial, err));
    }
    return true;
}

/* ------------------------------------------------------------------ comparing */

static bool agree(const Cone *c, const Tensor *from, const Tensor *to, Proof *p)
{
    int64_t n = tensor_numel(from);
    double peak = 0, worst = 0, allowed = tolerance_of(TOLERANCE_RULE, from->dtype);
    bool fine = true;
    if (c->allowed > allowed) allowed = c->allowed;
    for (int64_t i = 0; i < n; i++) {
        double a = tensor_get(from, i), b = tensor_get(to, i);
        if (isfinite(a) && fabs(a) > peak) peak = fabs(a);
        if (c->claim->waiver == WAIVE_ZEROS && b == 0) {
            double d = isnan(a) ? INFINITY : fabs(a);
            if (d > p->waived_abs) p->waived_abs = d;
            continue;
        }
        if (isnan(a) != isnan(b) || (isinf(a) != isinf(b))) fine = false;
        if (isfinite(a) && isfinite(b) && fabs(a - b) > worst) worst = fabs(a - b);
    }
    if (worst > p->max_abs) p->max_abs = worst;
    double rel = peak > 0 ? worst / peak : worst;
    if (rel > p->max_rel) p->max_rel = rel;
    return fine && rel <= allowed;
}

/* ------------------------------------------------------------------ bindings */

/* The sizes that are wished, without one of those that are not given. */
static bool without_one(const Graph *g, const char **name, int64_t *value, int given, int n, Binding *b, Err *ignored)
{
    bool ok = false;
    for (int i = given; !ok && i < n; i++) {
        const char *left = name[i];
        int64_t size = value[i];
        name[i] = name[n - 1];
        value[i] = value[n - 1];
        ok = choose_sizes(g, name, value, n - 1, b, ignored);
        name[i] = left;
        value[i] = size;
    }
    return ok;
}

bool prove_sizes(const Graph *g, int k, const char *const *given, const int64_t *size, int ngiven, Binding *b)
{
    static const int64_t primes[] = {3, 5, 2, 7, 4, 11, 6, 13};
    int n = expr_symbol_count(g->ex);
    const char **name = mem_zeroed((size_t)(n + ngiven) + 1, sizeof *name);
    int64_t *value = mem_zeroed((size_t)(n + ngiven) + 1, sizeof *value);
    int used = ngiven;
    Err ignored = {0};
    for (int i = 0; name && value && i < ngiven; i++) {
        name[i] = given[i];
        value[i] = size[i];
    }
    for (int i = 0; name && value && i < n; i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        if (s->source != SYM_INPUT || k == 0) continue;
        int64_t v = primes[(i + 3 * k) % 8];
        name[used] = s->name;
        value[used] = v < s->lo ? s->lo + v : v > s->hi ? s->hi : v;
        used++;
    }
    bool ok = choose_sizes(g, name, value, used, b, &ignored) ||
              (ngiven && without_one(g, name, value, ngiven, used, b, &ignored));
    for (int drop = used - 1; !ok && drop >= ngiven; drop--)
        ok = choose_sizes(g, name, value, drop, b, &ignored); /* fewer wishes */
    mem_free(name);
    mem_free(value);
    for (int i = 0; i < n; i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        if (s->expr->is_float) binding_set_float(b, i, 1.5 + k);
        else if (symbol_out_of_data(s)) binding_set(b, i, s->lo > 3 ? s->lo : 3 + k);
    }
    return ok;
}

static bool elements_of(const Graph *g, const Value *v, const Binding *b, double *n)
{
    *n = 1;
    for (int d = 0; d < v->rank; d++) {
        Err ignored;
        int64_t size;
        if (!ex_eval_i64(g->ex, v->dim[d], b, &size, &ignored)) return false;
        *n *= (double)size;
    }
    return true;
}

Elements prove_elements(const Graph *g, const Binding *b)
{
    Elements e = {0, 0};
    double each;
    for (int i = 0; i < g->ninput; i++) e.inputs += elements_of(g, g->input[i], b, &each) ? each : INFINITY;
    for (const Node *n = g->first; n; n = n->next)
        for (int k = 0; k < n->nout; k++)
            if (elements_of(g, n->out[k], b, &each)) e.values += each;
    return e;
}

bool prove_too_many(Elements n, Elements fewest, bool given, const Binding *b)
{
    const double times = 512, most_inputs = given ? 5e7 : 1 << 22, few_inputs = given ? most_inputs : 1 << 16;
    const double most_values = 5e8, few_values = given ? 1e8 : 1 << 24;
    bool chosen = given;
    for (int i = 0; i < b->n; i++) chosen |= b->bound[i] != 0;
    return chosen && (n.inputs > fmin(most_inputs, fmax(few_inputs, times * fewest.inputs)) ||
                      n.values > fmax(fewest.values, fmin(most_values, fmax(few_values, times * fewest.values))));
}

const char *sense_text(Sense s)
{
    return s == SENSE_REALS    ? "equal over the reals for all sizes in range"
           : s == SENSE_EXACT  ? "equal on random exact payloads"
           : s == SENSE_FLOATS ? "equal within a tolerance on random floats"
                               : NULL;
}

#define NO_COUNTEREXAMPLE_ROUNDED 1e-3 /* of a rule that says that its constants are rounded */

/* Result i of both functions, exactly. False with E_MISMATCH: they differ; with another code: this says nothing. */
static bool exact_agree(const Cone *c, const Exact *x, int i, Proof *p, Err *err)
{
    ExactDifference d;
    bool zeros = c->claim->waiver == WAIVE_ZEROS;
    const ExactTensor *from = exact_output(x, 2 * i), *to = exact_output(x, 2 * i + 1);
    for (int64_t k = 0; zeros && from->r && k < from->n * from->width; k++)
        if (to->v[k] == 0) p->waived_abs = fmax(p->waived_abs, isnan(from->v[k]) ? INFINITY : fabs(from->v[k]));
    if (exact_same(from, to, zeros, &d)) return true;
    if (exact_boxed(x)) return fail(err, E_UNSUPPORTED, "%s has no laws in exact arithmetic", exact_boxed(x));
    char unseen[160];
    exact_unseen(d.unseen, to->n * to->width, unseen, sizeof unseen);
    if (!d.count) return fail(err, E_UNSUPPORTED, "%s", unseen);
    if (!d.kinds && d.max_rel < (c->claim->rounded ? NO_COUNTEREXAMPLE_ROUNDED : EXACT_NO_COUNTEREXAMPLE))
        return fail(err, E_UNSUPPORTED, "equal only up to %.2g: rounded constants, or a law that is missing",
                    d.max_rel);
    p->max_abs = fmax(p->max_abs, d.max_abs);
    p->max_rel = fmax(p->max_rel, d.max_rel);
    return fail(err, E_MISMATCH,
                "the replacement of '%s' differs on exact payloads, in %lld of %lld elements, by %g (%g of the largest "
                "value)",
                c->claim->from[i]->name, (long long)d.count, (long long)(from->n * from->width), d.max_abs, d.max_rel);
}

static bool any_drawn(const Cone *c)
{
    for (int i = 0; i < c->nleaves; i++)
        if (marked(&c->room->drawn, c->leaf[i])) return true;
    return false;
}

/* One seed at one binding, exactly. False: as exact_agree. */
static bool try_exact(Cone *c, const Graph *g, const Tensor *const *in, int seed, Proof *p, Err *err)
{
    enum { TRIES = 8 };
    Exact *x = NULL;
    bool ok = false, again = true;
    double most = exact_work_after(c->least, EXACT_WORK_RULE / 100, EXACT_WORK_RULE);
    for (int i = 0; again && i < TRIES; i++) {
        exact_free(x);
        x = exact_create((uint64_t)(1 + seed + i * 1000), most);
        ok = x ? exact_run(x, g, in, NULL, err) : oom(err);
        again = x && !ok && exact_unlucky(x);
    }
    if (ok && c->least == 0) c->least = exact_worked(x);
    for (int i = 0; ok && i < c->claim->n; i++) ok = exact_agree(c, x, i, p, err);
    exact_free(x);
    if (ok) p->runs++;
    return ok;
}

/* A difference on exact payloads, as floats show it: for the file of the counterexample. */
static bool save_exact(const Prover *prover, const Cone *c, const Graph *g, const Tensor *const *in, Err *err)
{
    const Tensor *out[2 * MAX_FORK];
    Err e = {0};
    if (!prover->save) return true;
    if (!prover->eval(prover->user, g, in, out, &e)) return true; /* the message says what differs */
    return prover->save(prover->user, c->claim->rule, g, in, out[0], out[1], err);
}

/* The exact payloads say nothing of this claim: floats from now on. */
static bool only_floats(Cone *c, Proof *p, const Err *why)
{
    c->exact = false;
    *p = (Proof){0};
    snprintf(p->why_floats, sizeof p->why_floats, "%.250s", why->msg);
    return true;
}

static bool try_binding(const Prover *prover, Cone *c, const Binding *b, int k, Proof *p, Err *err)
{
    const Claim *claim = c->claim;
    const Tensor *out[2 * MAX_FORK], *view[MAX_LEAVES];
    Tensor in[MAX_LEAVES] = {0};
    Err e = {0};
    bool ok = true;
    Graph *g = concrete(c, b, &e);
    if (!g) { /* sizes that do not fit together: no counterexample */
        snprintf(p->why, sizeof p->why, "%.250s", e.msg);
        return true;
    }
    Elements elements = prove_elements(g, b);
    if (c->fewest.values == 0) c->fewest = elements;
    if (prove_too_many(elements, c->fewest, false, b)) {
        c->too_large = true;
        graph_free(g);
        return true;
    }
    int seeds = prover->seeds > 0 ? prover->seeds : 3;
    if (c->exact && !any_drawn(c) && seeds > 2) seeds = 2; /* no masks, whose kinds go by seeds */
    for (int seed = 0; ok && seed < seeds; seed++) {
        if (!make_inputs(c, g, seed, in, &e)) {
            snprintf(p->why, sizeof p->why, "%.250s", e.msg);
            break;
        }
        for (int i = 0; i < g->ninput; i++) view[i] = &in[i];
        if (!(ok = more_integers(prover, c, g, seed, view, err))) break;
        if (c->exact) {
            bool later = c->least > 0;
            if (try_exact(c, g, view, seed + 64 * k, p, &e)) continue;
            if (e.code == E_LIMIT && later && !mem_ran_out()) {
                c->too_large = true;
                break;
            }
            if (e.code == E_MISMATCH) {
                Err saved = {0};
                ok = false;
                *err = save_exact(prover, c, g, view, &saved) ? e : saved;
            } else {
                only_floats(c, p, &e);
            }
            break;
        }
        if (!prover->eval(prover->user, g, view, out, &e)) {
            snprintf(p->why, sizeof p->why, "%.250s", e.msg);
            break;
        }
        p->runs++;
        for (int i = 0; ok && i < claim->n; i++) {
            if (agree(c, out[2 * i], out[2 * i + 1], p)) continue;
            ok = fail(err, E_MISMATCH, "the replacement of '%s' differs by %g (%g of the largest value)",
                      claim->from[i]->name, p->max_abs, p->max_rel);
            Err saved = {0};
            if (prover->save && !prover->save(prover->user, claim->rule, g, view, out[2 * i], out[2 * i + 1], &saved))
                *err = saved;
        }
    }
    for (int i = 0; i < c->nleaves; i++) mem_free(in[i].data);
    if (prover->release) prover->release(prover->user);
    graph_free(g);
    return ok;
}

static void reaches(void *user, Value **slot) { mark(&((Cone *)user)->room->seen, *slot, 1); }

/* Rounding to fewer bits on the way is in the source, too; but not what only decides a comparison. */
static void find_tolerance(Cone *c)
{
    Marks *seen = &c->room->seen;
    forget(seen, c->room->n);
    c->allowed = 0;
    for (int i = 0; i < c->claim->n; i++) mark(seen, c->claim->from[i], 1);
    for (int i = c->nfrom - 1; i >= 0; i--) {
        Node *x = c->node[i];
        bool used = false;
        for (int k = 0; k < x->nout; k++) {
            DType t = x->out[k]->dtype;
            if (!marked(seen, x->out[k]) || !dtype_is_float(t)) continue;
            used = true;
            c->allowed = fmax(c->allowed, tolerance_of(TOLERANCE_RULE, t));
        }
        if (used) node_each_operand(x, reaches, c);
    }
}

/* The common inputs, and the nodes of both functions in order. */
static void find_functions(Cone *c)
{
    const Claim *claim = c->claim;
    Room *r = c->room;
    for (bool again = true; again; again = c->ok && !all_touched(c)) {
        c->depth = 0;
        forget(&r->seen, r->n);
        memset(c->touched, 0, sizeof c->touched);
        c->nleaves = c->nweights = c->nnodes = c->nfrom = c->nmade = 0;
        for (int i = 0; i < claim->n; i++) cut(c, claim->to[i]);
        forget(&r->seen, r->n);
        for (int i = 0; i < claim->n; i++) collect(c, claim->from[i]);
    }
    c->nfrom = c->nnodes;
    for (int i = 0; i < claim->n; i++) collect(c, claim->to[i]);
    find_tolerance(c);
    forget(&r->drawn, r->n);
    for (int i = 0; i < c->nnodes; i++) {
        const Node *x = c->node[i];
        for (int f = 0; c->families && c->families[f]; f++) {
            const Value *v = c->families[f]->drawn ? c->families[f]->drawn(x) : NULL;
            if (v) mark_drawn(c, v, (unsigned char)(f + 1), 0);
        }
        if (x->op->flags & OPF_RANDOM) c->ok = false;
    }
}

/* All bindings and seeds; once more from the first where exact payloads turn out to say nothing. */
static bool evaluate(const Prover *prover, Cone *c, Proof *p, Err *err)
{
    bool ok = true;
    *p = (Proof){0};
    c->exact = !prover->floats;
    c->fewest = (Elements){0, 0};
    c->least = 0;
    if (!c->ok) snprintf(p->why, sizeof p->why, "too large, or random");
    /* the smallest sizes may have no inputs but those that are waived */
    int first = c->claim->waiver == WAIVE_INPUTS, end = MAX_BINDINGS;
    for (int k = first; ok && c->ok && k < end; k++) {
        Err e = {0};
        bool exact = c->exact;
        c->too_large = false;
        const Binding *b = room_sizes(c->room, c->claim->g, k, &e);
        if (b) ok = try_binding(prover, c, b, k, p, err);
        else if (e.code) *err = e, ok = false;
        if (c->too_large) snprintf(p->why, sizeof p->why, "its tensors are too large for the sizes that are tried");
        if (c->too_large && end < 2 * MAX_BINDINGS) end++;
        if (exact && !c->exact) k = first - 1;
    }
    p->sense = p->runs == 0 ? SENSE_NONE : c->exact ? SENSE_EXACT : SENSE_FLOATS;
    return ok;
}

/* A difference may come from values that the model never has there (negative ones after an abs): what the common
 * inputs are computed from takes their place. False when that is nothing, or too large; the functions are as before
 * then. */
static bool step_back(Cone *c)
{
    bool any = false;
    int left = c->room->nleft;
    while (c->ok && drop_dependent(c)) {
        any = true;
        find_functions(c);
    }
    for (int i = 0; !any && c->ok && i < c->nleaves; i++)
        if (c->leaf[i]->def && !opaque(c->leaf[i])) c->ok = room_leave_out(c->room, c->leaf[i]);
    if (!any && (any = c->room->nleft > left)) find_functions(c);
    if (!c->ok) {
        room_take_back(c->room, left);
        c->ok = true;
        find_functions(c);
        any = false;
    }
    return any;
}

bool prove_claim(void *user, const Claim *claim, Proof *p, Err *err)
{
    const Prover *prover = user;
    Prover quiet = *prover; /* saves nothing: the difference may turn out to be none */
    Err e = {0};
    Cone c = {.claim = claim, .families = prover->families, .room = room_of(claim, &e), .ok = true};
    bool ok = c.room != NULL;
    quiet.save = NULL;
    if (ok) {
        find_functions(&c);
        ok = evaluate(&quiet, &c, p, &e);
        c.one_drawn = !ok;
        if (!ok && e.code == E_MISMATCH) ok = evaluate(&quiet, &c, p, &e);
        for (int step = 0; !ok && e.code == E_MISMATCH && step < MAX_STEPS_BACK && step_back(&c); step++)
            ok = evaluate(&quiet, &c, p, &e);
        for (int i = 0; !ok && e.code == E_MISMATCH && i < c.nleaves; i++)
            if (opaque(c.leaf[i])) { /* its numbers may be none that the model has there */
                *p = (Proof){.why = "a loop or branch"};
                ok = true;
            }
        if (!ok && e.code == E_MISMATCH) ok = evaluate(prover, &c, p, &e);
    }
    p->skipped = ok && p->runs == 0;
    if (!ok) *err = e;
    room_end(claim, c.room);
    mem_free(c.node);
    return ok;
}
