/* Comparing two programs. Contract in equal.h. */
#include "program/equal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/jsonw.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/number.h"
#include "format/tensors.h"
#include "program/certify.h"
#include "prove/exact.h"
#include "prove/sizes.h"
#include "rewrite/payload.h"
#include "rewrite/prove.h"
#include "run/session.h"
#include "shape/solve.h"
#include "tensor/tolerance.h"
#include "verify/compare.h"

typedef struct Different {
    bool found, exact; /* exact: on exact payloads; the values are those in double precision */
    int output;
    int64_t place, count, of;
    double a, b, max_abs, max_rel;
    char shapes[160]; /* dtypes or sizes that differ; "" otherwise */
} Different;

/* What the exact payloads at one choice of sizes have said of an output's elements. */
typedef struct Sight {
    bool all;               /* one of them has said something of all */
    unsigned char *unseen;  /* else: 1 for elements of which none has, NULL before the first */
    int64_t left, of;
} Sight;

typedef struct Pair {
    const Graph *g[2];
    const EqualOptions *o;
    int *place;          /* of each input of b, which input of a it is */
    Session *session[2]; /* at the sizes in turn */
    Graph *at[2];        /* the graphs at these sizes; NULL: not possible */
    const Tensor **in;   /* of a, and the same in b's order */
    const Tensor **in_b;
    Sight *sight; /* of each output */
    bool exact;  /* until the payloads say nothing */
    bool single; /* one of the files is ONNX */
    double worked; /* steps of all exact runs; once on floats, the elements of what all runs have computed */
    double bound;  /* of either graph (farthest_bound) */
    double least;  /* the mean of those at the first sizes; 0: none yet */
    Elements fewest[2]; /* of the models at them */
    double values;      /* elements of what both compute at the sizes in turn */
    char why_floats[256];
    int runs;
    Buf sizes; /* JSON */
    Different d;
    bool saved;
    Certified certified;
} Pair;

/* ------------------------------------------------------------------ pairing */

/* place: of each input of b, which one of a has its name; all: each has one. False: out of memory. */
static bool pair_names(const Graph *a, const Graph *b, int *place, bool *all)
{
    Map named = {0};
    bool ok = true;
    *all = true;
    for (int i = a->ninput; ok && i--;) /* of equal names the first */
        ok = map_put(&named, value_label(a->input[i]), (void *)(intptr_t)(i + 1));
    for (int i = 0; ok && i < b->ninput; i++) {
        place[i] = (int)(intptr_t)map_get(&named, value_label(b->input[i])) - 1;
        *all &= place[i] >= 0;
    }
    map_free(&named);
    return ok;
}

/* By name where all names are the same, by position otherwise. */
static bool pair_inputs(Pair *p, Err *err)
{
    const Graph *a = p->g[0], *b = p->g[1];
    bool named;
    if (a->ninput != b->ninput)
        return fail(err, E_UNSUPPORTED, "the first model has %d input%s, the second %d", a->ninput,
                    a->ninput == 1 ? "" : "s", b->ninput);
    if (a->noutput != b->noutput)
        return fail(err, E_UNSUPPORTED, "the first model has %d output%s, the second %d", a->noutput,
                    a->noutput == 1 ? "" : "s", b->noutput);
    if (!pair_names(a, b, p->place, &named)) return oom(err);
    for (int i = 0; !named && i < b->ninput; i++) p->place[i] = i;
    for (int i = 0; i < b->ninput; i++) {
        const Value *x = a->input[p->place[i]], *y = b->input[i];
        if (x->dtype != y->dtype || x->rank != y->rank)
            return fail(err, E_UNSUPPORTED, "input '%s' is %s of rank %d, '%s' of the second model %s of rank %d",
                        value_label(x), dtype_name(x->dtype), x->rank, value_label(y), dtype_name(y->dtype), y->rank);
    }
    return true;
}

static bool comparable(const Graph *g, const char *which, Err *err)
{
    for (const Node *n = g->first; n; n = n->next)
        if (n->op->flags & OPF_RANDOM) return fail(err, E_UNSUPPORTED, "the %s model draws random numbers", which);
    for (int i = 0; i < g->nscalar_input; i++)
        if (g->scalar_input[i].value.kind == ARG_EXPR && !ex_is_const(g->scalar_input[i].value.e))
            return fail(err, E_UNSUPPORTED, "input '%s' of the %s model is a number, not a tensor",
                        g->scalar_input[i].name, which);
    if (graph_mutations(g)) return fail(err, E_UNSUPPORTED, "the %s model writes its buffers", which);
    return true;
}

/* ------------------------------------------------------------------ exactly */

static bool only_floats(Pair *p, const char *why)
{
    p->exact = false;
    snprintf(p->why_floats, sizeof p->why_floats, "%.250s", why);
    return true;
}

static void value_at(const ExactTensor *t, int64_t k, double *v) { *v = t->r ? t->v[k] : (double)t->i[k]; }

static bool see(Sight *s, const ExactTensor *x, const ExactTensor *y, bool all, Err *err)
{
    size_t n = (size_t)(x->n * x->width);
    s->all |= all;
    s->of = (int64_t)n;
    s->left = 0;
    if (s->all) return true;
    if (!s->unseen) {
        if (!(s->unseen = mem_alloc(n))) return oom(err);
        memset(s->unseen, 1, n);
    }
    s->left = exact_see(x, y, s->unseen);
    return true;
}

/* The elements of which no payload at these sizes has said anything. *of: of how many in these outputs. */
static int64_t out_of_sight(const Pair *p, int64_t *of)
{
    int64_t left = 0;
    *of = 0;
    for (int i = 0; i < p->g[0]->noutput; i++) {
        left += p->sight[i].left;
        if (p->sight[i].left) *of += p->sight[i].of;
    }
    return left;
}

static void forget_sight(Pair *p)
{
    for (int i = 0; p->sight && i < p->g[0]->noutput; i++) {
        mem_free(p->sight[i].unseen);
        p->sight[i] = (Sight){0};
    }
}

/* False: they differ (p->d), or memory ran out. */
static bool same_outputs(Pair *p, const Exact *a, const Exact *b, Err *err)
{
    for (int i = 0; i < p->g[0]->noutput; i++) {
        ExactDifference d;
        const ExactTensor *x = exact_output(a, i), *y = exact_output(b, i);
        bool all = exact_same(x, y, false, &d);
        if (all || (!d.count && !exact_boxed(a) && !exact_boxed(b))) {
            TRY(see(&p->sight[i], x, y, all, err));
            continue;
        }
        const char *boxed = exact_boxed(a) ? exact_boxed(a) : exact_boxed(b);
        char why[200];
        snprintf(why, sizeof why, "%s has no laws in exact arithmetic", boxed ? boxed : "");
        if (boxed) return only_floats(p, why);
        if (d.first >= 0 && !d.kinds && d.max_rel < EXACT_NO_COUNTEREXAMPLE) {
            text_printf(why, sizeof why, "equal only up to %.2g: rounded constants, or a law that is missing",
                        d.max_rel);
            return only_floats(p, why);
        }
        p->d = (Different){true, true, i, d.first, d.count, x->n * x->width, 0, 0, d.max_abs, d.max_rel, ""};
        if (d.first < 0) {
            snprintf(p->d.shapes, sizeof p->d.shapes, "dtypes or sizes differ");
            return false;
        }
        value_at(x, d.first, &p->d.a);
        value_at(y, d.first, &p->d.b);
        return false;
    }
    return true;
}

/* One payload. False: p->d says what differs, or err why nothing can be said at these sizes. */
static bool try_exact(Pair *p, uint64_t seed, Err *err)
{
    enum { TRIES = 8 };
    Exact *x[2] = {NULL, NULL};
    bool ok = false, again = true;
    double most = exact_work_after(p->least, EXACT_WORK_MODEL / 200, EXACT_WORK_MODEL);
    for (int t = 0; again && t < TRIES; t++) {
        for (int k = 0; k < 2; k++) {
            exact_free(x[k]);
            x[k] = exact_create(seed + (uint64_t)t * 1000, most);
        }
        *err = (Err){0};
        ok = x[0] && x[1]
                 ? exact_run(x[0], p->at[0], p->in, NULL, err) && exact_run(x[1], p->at[1], p->in_b, p->place, err)
                 : oom(err);
        again = !ok && x[0] && x[1] && (exact_unlucky(x[0]) || exact_unlucky(x[1]));
    }
    bool same = true;
    p->worked += x[0] && x[1] ? exact_worked(x[0]) + exact_worked(x[1]) : 0;
    if (!ok && p->least > 0 && err->code == E_LIMIT) same = false; /* these sizes are left out */
    else if (!ok) only_floats(p, err->msg);
    else same = same_outputs(p, x[0], x[1], err);
    exact_free(x[0]);
    exact_free(x[1]);
    return same;
}

/* ------------------------------------------------------------------ on floats */

static bool same_kind(const Tensor *a, const Tensor *b, char *why, size_t n)
{
    char x[64], y[64];
    bool same = a->rank == b->rank && !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) &&
                dtype_is_float(a->dtype) == dtype_is_float(b->dtype);
    if (!same) snprintf(why, n, "%s and %s", tensor_describe(a, x, sizeof x), tensor_describe(b, y, sizeof y));
    return same;
}

static bool run_both(Pair *p, Err *err)
{
    for (int k = 0; k < 2; k++) {
        const Tensor **in = k ? p->in_b : p->in;
        for (int i = 0; k && i < p->g[k]->ninput; i++) TRY(session_set_input(p->session[k], i, in[i], err));
        TRY(session_run(p->session[k], err) || within(err, "the %s model", k ? "second" : "first"));
    }
    return true;
}

static bool same_floats(Pair *p, int output, Err *err)
{
    const Tensor *a = session_output(p->session[0], output), *b = session_output(p->session[1], output);
    Different d = {.output = output, .place = -1};
    double peak = 0, allowed = fmax(tolerance_of(TOLERANCE_MODEL, a->dtype), tolerance_of(TOLERANCE_MODEL, b->dtype));
    if (!same_kind(a, b, d.shapes, sizeof d.shapes)) {
        d.found = true;
        p->d = d;
        return false;
    }
    if (!compare_ends(a, b, err)) return within(err, "output '%s'", p->g[0]->output[output].name);
    Tensor x = tensor_as_real(a), y = tensor_as_real(b);
    d.of = tensor_numel(&x);
    for (int64_t i = 0; i < d.of; i++)
        if (isfinite(tensor_get(&x, i))) peak = fmax(peak, fabs(tensor_get(&x, i)));
    for (int64_t i = 0; i < d.of; i++) {
        double v = tensor_get(&x, i), w = tensor_get(&y, i), off = fabs(v - w);
        bool fine = v == w || (isnan(v) && isnan(w)) || off <= allowed * peak;
        if (!fine && !d.count++) d.place = i, d.a = v, d.b = w;
        if (!fine && isfinite(off)) d.max_abs = fmax(d.max_abs, off);
    }
    d.max_rel = peak > 0 ? d.max_abs / peak : d.max_abs;
    d.found = d.count > 0;
    if (d.found) p->d = d;
    return !d.found;
}

/* Inputs, and the output that differs as both models give it on floats. */
static bool save(Pair *p, Err *err)
{
    const Graph *a = p->g[0];
    int n = 0;
    Err run = {0};
    if (!p->o->counterexample) return true;
    const char **name = mem_zeroed((size_t)a->ninput + 2, sizeof *name);
    Tensor *t = mem_zeroed((size_t)a->ninput + 2, sizeof *t);
    bool ok = (name && t) || oom(err);
    for (int i = 0; ok && i < a->ninput; i++) {
        name[n] = value_label(a->input[i]);
        t[n++] = *p->in[i];
    }
    if (ok && (!p->d.exact || run_both(p, &run))) {
        name[n] = "first";
        t[n++] = *session_output(p->session[0], p->d.output);
        name[n] = "second";
        t[n++] = *session_output(p->session[1], p->d.output);
    }
    ok = ok && tensorfile_write(p->o->counterexample, name, t, (size_t)n, err);
    p->saved = ok;
    mem_free(name);
    mem_free(t);
    return ok;
}

static bool try_floats(Pair *p, Err *err)
{
    TRY(run_both(p, err));
    for (int i = 0; i < p->g[0]->noutput; i++)
        if (!same_floats(p, i, err)) return false;
    return true;
}

/* ------------------------------------------------------------------ one choice of sizes */

static void put_sizes(Pair *p, const Binding *b)
{
    const ExprPool *ex = p->g[0]->ex;
    jw_open(&p->sizes, NULL, '{');
    for (int i = 0; i < expr_symbol_count(ex); i++)
        if (expr_symbol(ex, i)->source == SYM_INPUT && b->bound[i])
            jw_int(&p->sizes, expr_symbol(ex, i)->name, b->value[i]);
    jw_close(&p->sizes, "}");
}

/* What is 0 or 1 may be a mask, and true may hide or show; a row that hides all keys asks for what hardly two spellings
 * agree on. So every row begins with a 1, and, of truth values, with a 0 after it. */
static void show_first(const Tensor *t)
{
    int64_t n = tensor_numel(t), row = t->rank ? t->shape[t->rank - 1] : 1;
    size_t size = dtype_size(t->dtype);
    for (int64_t i = 0; t->dtype == DT_BOOL && row > 1 && i < n; i += row) {
        store_i64(DT_BOOL, (char *)t->data + (size_t)i * size, 1);
        store_i64(DT_BOOL, (char *)t->data + (size_t)(i + 1) * size, 0);
    }
    if (!holds_truths(t)) return;
    for (int64_t i = 0; i < n && row; i += row) store_i64(t->dtype, (char *)t->data + (size_t)i * size, 1);
}

static bool runs(void *user, Err *err) { return run_both(user, err); }

/* Integers that tell more of the models than those of session_random_inputs: others than 0 and 1 where nothing bounds
 * them, and the numbers that they are compared with. */
static bool more_integers(Pair *p, int i, uint64_t seed, Err *err)
{
    const Value *input[2] = {p->g[0]->input[i], NULL};
    for (int k = 0; k < p->g[1]->ninput; k++)
        if (p->place[k] == i) input[1] = p->g[1]->input[k];
    IntegerDraw d = integer_draw(p->g, input, 2);
    return tell_more(p->in[i], &d, seed, runs, p, err);
}

/* Floats are within 4 at first: here they go beyond the bound at which a model cuts them off. */
static void reach(const Tensor *t, double bound)
{
    size_t size = dtype_size(t->dtype);
    for (int64_t i = 0, n = tensor_numel(t); dtype_is_float(t->dtype) && i < n; i++)
        store_f64(t->dtype, (char *)t->data + (size_t)i * size, tensor_get(t, i) * bound / 2);
}

static bool first_inputs(Pair *p, const Binding *b, uint64_t seed, Err *err)
{
    TRY(session_random_inputs(p->session[0], b, seed, err));
    for (int i = 0; i < p->g[0]->ninput; i++) p->in[i] = session_input(p->session[0], i);
    for (int i = 0; i < p->g[1]->ninput; i++) p->in_b[i] = p->in[p->place[i]];
    return true;
}

/* The same, changed to what tells more of the models. */
static bool telling_inputs(Pair *p, uint64_t seed, Err *err)
{
    for (int i = 0; i < p->g[0]->ninput; i++) {
        show_first(p->in[i]);
        if (seed % 2 == 0 && p->bound > 0) reach(p->in[i], p->bound);
    }
    for (int i = 0; i < p->g[0]->ninput; i++)
        if (dtype_is_int(p->in[i]->dtype)) TRY(more_integers(p, i, seed, err));
    return true;
}

static bool worked_enough(const Pair *p) { return p->runs >= 2 && p->worked > EXACT_WORK_PAIR; }

/* Is more computed than is compared? */
static bool too_large(Pair *p, int k, const Binding *b, Err *err)
{
    Elements n = prove_elements(p->g[k], b);
    p->values = k ? p->values + n.values : n.values;
    if (p->fewest[k].values == 0) p->fewest[k] = n;
    if (!prove_too_many(n, p->fewest[k], p->o->ndims > 0, b)) return false;
    fail(err, E_LIMIT, "the %s model's tensors are too large at the sizes that are %s", k ? "second" : "first",
         p->o->ndims ? "given" : "tried");
    return true;
}

/* Has a payload said nothing of any of many elements, as of products of sines? Then no other will. */
static bool hopeless(const Pair *p)
{
    enum { MANY = 64 };
    int64_t of, left = out_of_sight(p, &of);
    return p->exact && left == of && of >= MANY;
}

/* All payloads at these sizes, b's bound by the first inputs. False: err, or p->d. */
static bool at_sizes(Pair *p, const Binding *b, Binding *second, int k, Err *err)
{
    enum { MORE = 8 }; /* payloads for elements that are out of sight: a small one is where constants were rounded */
    int seeds = p->o->seeds > 0 ? p->o->seeds : 2;
    int64_t of;
    Err e = {0};
    for (int s = 0; !hopeless(p) && ((s < seeds && !worked_enough(p)) || (s < seeds + MORE && p->exact &&
                    out_of_sight(p, &of) && p->worked < 4 * EXACT_WORK_PAIR)); s++) {
        uint64_t seed = (uint64_t)(k * 64 + s) + 1;
        TRY(first_inputs(p, b, seed, err));
        if (s == 0 && !solve_sizes(p->g[1], p->in_b, NULL, second, err))
            return within(err, "the sizes of the second model");
        if (s == 0 && too_large(p, 1, second, err)) return false;
        TRY(telling_inputs(p, seed, err));
        if (s == 0 && p->exact) {
            p->at[0] = graph_at_sizes(p->g[0], b, &e);
            p->at[1] = p->at[0] ? graph_at_sizes(p->g[1], second, &e) : NULL;
            if (!p->at[1]) only_floats(p, e.msg);
        }
        bool same = p->exact ? try_exact(p, seed, err) : try_floats(p, err);
        if (!p->exact) p->worked += p->values;
        if (!same) {
            if (p->d.found) save(p, err);
            return false;
        }
        *err = (Err){0};
        if (!p->exact && p->at[1]) return true; /* told by floats: all sizes again */
        p->runs++;
    }
    if (!p->exact || !out_of_sight(p, &of)) return true;
    char why[200];
    exact_unseen(out_of_sight(p, &of), of, why, sizeof why);
    return only_floats(p, why);
}

static void free_at(Pair *p)
{
    forget_sight(p);
    for (int k = 0; k < 2; k++) {
        graph_free(p->at[k]);
        p->at[k] = NULL;
    }
}

/* The smallest sizes have masks of one key, which true may hide. */
static bool has_truth(const Graph *g)
{
    for (int i = 0; i < g->ninput; i++)
        if (g->input[i]->dtype == DT_BOOL) return true;
    return false;
}

/* What there is at least, where the sizes in turn are given. */
static bool smallest(Pair *p, Err *err)
{
    for (int k = 0; k < 2; k++) {
        Binding b;
        TRY(binding_init(&b, p->g[k]->ex, err));
        if (prove_sizes(p->g[k], 0, NULL, NULL, 0, &b)) p->fewest[k] = prove_elements(p->g[k], &b);
        binding_free(&b);
    }
    return true;
}

/* What does not fit the sizes of one choice does not say anything of the models: the next choice may. */
static bool all_sizes(Pair *p, Err *err)
{
    int choices = p->o->choices > 0 ? p->o->choices : 4, first = has_truth(p->g[0]), end = choices + first;
    Err last = {0};
    if (p->o->ndims) TRY(smallest(p, err));
    for (int k = first; k < end && !worked_enough(p); k++) {
        Binding a, b;
        Err e = {0};
        bool was_exact = p->exact;
        int before = p->runs;
        TRY(binding_init(&a, p->g[0]->ex, err));
        if (!binding_init(&b, p->g[1]->ex, err)) {
            binding_free(&a);
            return false;
        }
        bool ok = !prove_sizes(p->g[0], k, p->o->dim_name, p->o->dim, p->o->ndims, &a);
        if (!ok && !too_large(p, 0, &a, &e)) ok = at_sizes(p, &a, &b, k, &e);
        if ((p->runs > before && p->exact == was_exact) || p->d.found) put_sizes(p, &a);
        if (p->least == 0 && p->exact && p->runs) p->least = p->worked / p->runs;
        free_at(p);
        binding_free(&a);
        binding_free(&b);
        if (!ok && (p->d.found || mem_ran_out())) {
            *err = e;
            return false;
        }
        if (!ok) last = e;
        if (!ok && e.code == E_LIMIT && end < 2 * choices + first) end++; /* smaller ones may follow */
        if (p->exact == was_exact) continue;
        p->runs = 0; /* once more, all on floats */
        p->worked = 0;
        buf_free(&p->sizes);
        p->sizes = (Buf){0};
        k = first - 1;
    }
    return p->runs || fail(err, last.code == E_LIMIT ? E_LIMIT : E_UNSUPPORTED, "no sizes could be compared: %.900s",
                           last.msg[0] ? last.msg : "the ranges of the first model allow none that were chosen");
}

/* Equal at sizes that were tried: for all others, too? */
static bool certified(Pair *p, Err *err)
{
    Buf claims = {0};
    bool ok = certify_graphs(p->g[0], p->g[1], p->single, NULL, 0, &p->certified, &claims, err);
    buf_free(&claims);
    return ok;
}

/* ------------------------------------------------------------------ the report */

static Sense sense_of(const Pair *p)
{
    return !p->runs ? SENSE_NONE : p->certified.whole ? SENSE_REALS : p->exact ? SENSE_EXACT : SENSE_FLOATS;
}

static void put_difference(Buf *out, const Pair *p)
{
    const Different *d = &p->d;
    jw_open(out, "difference", '{');
    jw_text(out, "output", output_label(&p->g[0]->output[d->output]));
    jw_text(out, "on", d->exact ? "exact payloads" : "floats");
    jw_text(out, "shapes", d->shapes[0] ? d->shapes : NULL);
    jw_int(out, "index", d->place);
    jw_number(out, "first", d->a);
    jw_number(out, "second", d->b);
    jw_int(out, "count", d->count);
    jw_int(out, "of", d->of);
    jw_number(out, "max_abs", d->max_abs);
    jw_number(out, "max_rel_peak", d->max_rel);
    jw_close(out, "}");
}

static void put_report(Buf *out, Pair *p, bool ok, const Err *err)
{
    jw_report(out);
    jw_text(out, "result", ok ? "equal" : p->d.found ? "different" : "unknown");
    jw_text(out, "sense", ok ? sense_text(sense_of(p)) : NULL);
    jw_text(out, "why", ok ? NULL : err->msg);
    jw_text(out, "why_floats", p->why_floats[0] ? p->why_floats : NULL);
    jw_open(out, "inputs", '[');
    for (int i = 0; p->place && i < p->g[1]->ninput && p->g[0]->ninput == p->g[1]->ninput; i++)
        jw_put(out, "{'first': %s, 'second': %s}", value_label(p->g[0]->input[p->place[i]]),
               value_label(p->g[1]->input[i]));
    jw_close(out, "]");
    jw_list(out, "sizes", '[', &p->sizes);
    jw_int(out, "runs", p->runs);
    jw_int(out, "claims", p->certified.claims);
    jw_text(out, "why_not_all_sizes", p->certified.why[0] ? p->certified.why : NULL);
    jw_open(out, "assuming", '[');
    for (int i = 0; ok && p->certified.whole && p->certified.assuming[i]; i++)
        jw_text(out, NULL, p->certified.assuming[i]);
    jw_close(out, "]");
    if (p->d.found) put_difference(out, p);
    else jw_text(out, "difference", NULL);
    jw_text(out, "counterexample", p->saved ? p->o->counterexample : NULL);
    jw_close(out, "}");
}

static bool say_difference(const Pair *p, Err *err)
{
    const Different *d = &p->d;
    const char *name = output_label(&p->g[0]->output[d->output]);
    if (d->shapes[0]) return fail(err, E_MISMATCH, "output '%s': %s", name, d->shapes);
    return fail(
        err, E_MISMATCH,
        "output '%s' differs on %s in %lld of %lld elements, by %g (%g of the largest value); the first at %lld: "
        "%g and %g",
        name, d->exact ? "exact payloads" : "floats", (long long)d->count, (long long)d->of, d->max_abs, d->max_rel,
        (long long)d->place, d->a, d->b);
}

/* Of a model's loops in all runs: a second where a turn does little. */
enum { MOST_TURNS = 1 << 20 };

bool program_equal(const Program *a, const Program *b, const EqualOptions *o, Buf *report, Err *err)
{
    Pair p = {.g = {a->graph, b->graph}, .o = o, .exact = !o->floats, .single = a->source->opset || b->source->opset};
    size_t n = (size_t)(a->graph->ninput > b->graph->ninput ? a->graph->ninput : b->graph->ninput) + 1;
    p.place = mem_zeroed(n, sizeof *p.place);
    p.in = mem_zeroed(n, sizeof *p.in);
    p.in_b = mem_zeroed(n, sizeof *p.in_b);
    p.sight = mem_zeroed((size_t)a->graph->noutput + 1, sizeof *p.sight);
    bool ok = p.place && p.in && p.in_b && p.sight ? pair_inputs(&p, err) : oom(err);
    ok = ok && comparable(p.g[0], "first", err) && comparable(p.g[1], "second", err);
    for (int k = 0; ok && k < 2; k++) ok = (p.session[k] = session_create_bounded(p.g[k], NULL, 0, 0, MOST_TURNS, err));
    p.bound = fmax(farthest_bound(a->graph), farthest_bound(b->graph));
    ok = ok && all_sizes(&p, err) && (o->floats || certified(&p, err));
    if (p.d.found && err->code == E_OK) say_difference(&p, err);
    else if (!ok && err->code != E_LIMIT && err->code != E_IO) err->code = E_UNSUPPORTED;
    put_report(report, &p, ok, err);
    for (int k = 0; k < 2; k++) session_free(p.session[k]);
    buf_free(&p.sizes);
    forget_sight(&p);
    mem_free(p.sight);
    mem_free(p.place);
    mem_free(p.in);
    mem_free(p.in_b);
    return ok;
}
