/* Which layers stay in floats. Contract in budget.h. */
#include "program/budget.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/mem.h"
#include "base/number.h"
#include "ir/copy.h"
#include "plan/fuse.h"
#include "program/knapsack.h"
#include "quantize/integers.h"

/* UNITS: the dearest layer's cost. WORK: UNITS are fewer where n * n of them would be more. ALIKE: steps of an octave
 * of time. GIVEN_BACK: trials of single layers after the choice. */
enum { TIMED = 9, NAMED = 3, UNITS = 100, WORK = 1 << 26, ALIKE = 4, GIVEN_BACK = 8 };
static const double LEAST_MS = 1e-3, SURE = 0.2; /* what is not told from nothing; of a layer's time */

/* Layers that can be quantized; flags by their number but for `left`, which is by site. */
typedef struct Choice {
    int *tried, n;
    bool *left, *taken, *kept, *refused;
} Choice;

static const struct {
    const char *text;
    BudgetLimit limit;
} ways[] = {{"cosine>=", {.way = BUDGET_COSINE}},
            {"kl<=", {.way = BUDGET_KL}},
            {"metric>=", {.way = BUDGET_OWN}},
            {"metric<=", {.way = BUDGET_OWN, .falling = true}}};

bool budget_read(const char *text, BudgetLimit *out, Err *err)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        size_t n = strlen(ways[i].text);
        if (strncmp(text, ways[i].text, n)) continue;
        const char *end;
        double x = parse_double(text + n, &end);
        *out = ways[i].limit;
        out->share = out->way == BUDGET_OWN && *end == '%';
        if (end == text + n || end[out->share] || !isfinite(x)) break;
        if (out->way != BUDGET_OWN && (!(x > 0) || (out->way == BUDGET_COSINE && x >= 1))) break;
        x = out->share ? x / 100 : x;
        out->loss = out->way == BUDGET_COSINE ? 1 - x : out->way == BUDGET_OWN && !out->falling ? -x : x;
        return true;
    }
    return fail(
        err, E_USAGE,
        "budget '%.60s', expected cosine>=X with X below 1, kl<=X, or metric>=X, metric<=X (X%% of the floats')", text);
}

double budget_shown(const BudgetLimit *l, double loss)
{
    return l->way == BUDGET_COSINE ? 1 - loss : l->way == BUDGET_OWN && !l->falling ? -loss : loss;
}

const char *budget_name(const BudgetLimit *l)
{
    static const char *const names[] = {"cosine", "kl", "metric"};
    return names[l->way];
}

/* ------------------------------------------------------------------ loss */

static bool compared(const Tensor *t) { return t && dtype_is_float(t->dtype); }

static bool keep_results(Budget *b, const Session *s, Err *err)
{
    for (int k = 0; k < b->floats->noutput; k++) {
        const Tensor *t = session_output(s, k);
        int64_t n = compared(t) ? tensor_numel(t) : 0;
        if (b->nwant + n > b->room) {
            b->room = 2 * (b->nwant + n);
            double *grown = mem_grow(b->want, (size_t)b->room * sizeof *grown);
            if (!grown) return oom(err);
            b->want = grown;
        }
        for (int64_t i = 0; i < n; i++) b->want[b->nwant++] = tensor_get(t, i);
    }
    return true;
}

/* The divergence of the softmax of n numbers y from that of x. */
static double divergence(const double *x, const double *y, int64_t n)
{
    double mx = -INFINITY, my = -INFINITY, sx = 0, sy = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        mx = fmax(mx, x[i]);
        my = fmax(my, y[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        sx += exp(x[i] - mx);
        sy += exp(y[i] - my);
    }
    for (int64_t i = 0; i < n; i++) {
        double p = x[i] - mx - log(sx);
        sum += exp(p) * (p - (y[i] - my - log(sy)));
    }
    return sum;
}

typedef struct Sums {
    double ab, aa, bb, kl;
    int64_t rows;
} Sums;

static bool add_result(Sums *s, const double *want, const Tensor *t, Err *err)
{
    int64_t n = tensor_numel(t), row = t->rank ? t->shape[t->rank - 1] : 1;
    double *y = mem_grow(NULL, (size_t)(row + 1) * sizeof *y);
    if (!y) return oom(err);
    for (int64_t first = 0; first < n; first += row) {
        for (int64_t i = 0; i < row; i++) {
            double x = want[first + i];
            y[i] = tensor_get(t, first + i);
            s->ab += x * y[i];
            s->aa += x * x;
            s->bb += y[i] * y[i];
        }
        s->kl += divergence(want + first, y, row);
        s->rows++;
    }
    mem_free(y);
    return true;
}

static void take_worst(Losses *l, const Sums *s)
{
    double cosine = s->aa > 0 && s->bb > 0 ? s->ab / sqrt(s->aa * s->bb) : s->aa == s->bb;
    double of[3] = {1 - cosine, s->kl / (double)(s->rows ? s->rows : 1),
                    s->aa > 0 ? (s->aa - 2 * s->ab + s->bb) / s->aa : s->bb};
    for (int i = 0; i < 3; i++) of[i] = of[i] == of[i] ? fmax(of[i], 0) : INFINITY;
    *l = (Losses){fmax(l->cosine, of[0]), fmax(l->kl, of[1]), fmax(l->noise, of[2])};
}

/* By what layers are ordered, and, but for the caller's own figure, what is limited. */
static double ranked(const Budget *b, const Losses *l) { return b->limit.way == BUDGET_KL ? l->kl : l->cosine; }

/* Over the batches. */
static bool measure(Budget *b, Session *s, Losses *losses, Err *err)
{
    Sums *sums = mem_zeroed((size_t)b->floats->noutput + 1, sizeof *sums);
    bool ok = sums || oom(err);
    const double *want = b->want;
    for (int64_t i = 0; ok && i < b->batches; i++) {
        ok = b->run(b->user, s, i, err);
        for (int k = 0; ok && k < b->floats->noutput; k++) {
            const Tensor *t = session_output(s, k);
            if (!compared(t)) continue;
            if (want + tensor_numel(t) > b->want + b->nwant)
                ok = fail(err, E_UNSUPPORTED, "output %d has other sizes once it is quantized", k);
            else ok = add_result(&sums[k], want, t, err);
            want += tensor_numel(t);
        }
    }
    *losses = (Losses){0};
    for (int k = 0; ok && k < b->floats->noutput; k++) take_worst(losses, &sums[k]);
    mem_free(sums);
    return ok;
}

/* ------------------------------------------------------------------ time */

typedef struct Timing {
    Budget *b;
    bool integers;
} Timing;

static void note_time(void *user, const StepInfo *step)
{
    const Timing *t = user;
    const Node *n = step->computes;
    if (!n->nout) return;
    for (int i = 0; i < t->b->p->nsites; i++)
        if (!strcmp(t->b->p->site[i].name, n->out[0]->name))
            *(t->integers ? &t->b->site[i].integer_ms : &t->b->site[i].float_ms) = step->min_ms;
}

static bool time_sites(Budget *b, Session *s, bool integers, Err *err)
{
    Timing t = {b, integers};
    for (int i = 0; i < TIMED; i++) {
        if (i == 1) session_profile(s, true); /* the first plans and packs */
        TRY(b->run(b->user, s, 0, err));
    }
    session_each_step(s, note_time, &t);
    session_profile(s, false);
    return true;
}

/* ------------------------------------------------------------------ trials */

bool budget_keeps_eight(const Budget *b) { return b->p->options.weight_bits == 4; }

/* What a trial is of. */
typedef enum Trial { ALL, ALONE, KEPT } Trial;

bool budget_figure(Budget *b, const Graph *g, double *figure, Err *err)
{
    Graph *made = graph_copy(g, err);
    int *all = made ? mem_zeroed((size_t)made->next_id + 1, sizeof *all) : NULL;
    for (int i = 0; all && i < made->next_id; i++) all[i] = 1; /* weights that nothing reads leave it */
    bool ok = made && (all || oom(err)) && graph_drop_weights(made, all, made->next_id, err);
    mem_free(all);
    b->called++;
    if (ok) return b->metric(b->metric_user, made, figure, err);
    graph_free(made);
    return false;
}

/* A candidate's figure, as a loss. */
static bool own_loss(Budget *b, const Graph *g, double *loss, Err *err)
{
    double x;
    TRY(budget_figure(b, g, &x, err));
    *loss = x == x ? budget_shown(&b->limit, x) : INFINITY;
    return true;
}

/* Sites with a why in left are left; the placement's scales and means are b's. *loss: what is limited. */
static bool trial(Budget *b, const bool *left, Trial of, Losses *losses, double *loss, Err *err)
{
    const bool own = b->limit.way == BUDGET_OWN && of != ALONE, runs = !own || of == ALL;
    static const char *const why = "left in this trial";
    Placement q = {0};
    Fusion fusion = {0};
    Graph *g = graph_copy(b->p->g, err);
    QuantizeOptions options = b->p->options;
    if (of == ALONE) options.method = WEIGHTS_RTN; /* to rank them: GPTQ takes as long for one as for all */
    bool ok = g && quantize_place(g, &options, &q, err);
    for (int i = 0; ok && i < q.npoints; i++) {
        const Point *from = &b->p->point[i];
        q.point[i].seen = from->seen;
        q.point[i].scale = from->scale;
        q.point[i].massive = from->massive;
    }
    for (int i = 0; ok && i < q.nsites; i++) {
        q.site[i].input = b->p->site[i].input;
        q.site[i].correct = b->p->site[i].correct;
        if (!q.site[i].why) q.site[i].why = b->p->site[i].why;
        if (left[i] && budget_keeps_eight(b)) q.site[i].eight = true;
        else if (left[i] && !q.site[i].why) q.site[i].why = why;
    }
    ok = ok && quantize_apply(&q, err) && (!own || own_loss(b, g, loss, err)) &&
         (!runs || (quantize_integers(g, err) && fuse_graph(g, &fusion, err)));
    Session *s = ok && runs ? session_create(g, &fusion, b->threads, 0, err) : NULL;
    ok = ok && (!runs || (s && measure(b, s, losses, err) && (of != ALL || time_sites(b, s, true, err))));
    if (ok && !own) *loss = ranked(b, losses);
    session_free(s);
    fusion_free(&fusion);
    placement_free(&q);
    graph_free(g);
    return ok && (!b->done || b->done(b->user, ++b->trials, b->total, err));
}

static bool floats(Budget *b, Err *err)
{
    Fusion fusion = {0};
    bool ok = fuse_graph(b->floats, &fusion, err);
    Session *s = ok ? session_create(b->floats, &fusion, b->threads, 0, err) : NULL;
    ok = s != NULL;
    for (int64_t i = 0; ok && i < b->batches; i++) ok = b->run(b->user, s, i, err) && keep_results(b, s, err);
    ok = ok && time_sites(b, s, false, err);
    session_free(s);
    fusion_free(&fusion);
    return ok;
}

/* ------------------------------------------------------------------ choosing */

/* Layers of one shape do the same work: what differs between their times is noise. */
static bool same_work(const Site *a, const Site *b)
{
    const Value *x = a->node->out[0], *y = b->node->out[0], *v = a->node->arg[1].v, *w = b->node->arg[1].v;
    if (a->kind != b->kind || x->rank != y->rank || v->rank != w->rank) return false;
    for (int i = 0; i < x->rank; i++)
        if (x->dim[i] != y->dim[i]) return false;
    for (int i = 0; i < v->rank; i++)
        if (v->dim[i] != w->dim[i]) return false;
    return true;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Each layer's times become the medians of those of its shape. */
static bool pool_times(Budget *b, Err *err)
{
    const int n = b->p->nsites;
    double *ms = mem_zeroed((size_t)n + 1, 2 * sizeof *ms);
    bool *done = mem_zeroed((size_t)n + 1, sizeof *done), ok = (ms && done) || oom(err);
    for (int i = 0; ok && i < n; i++) {
        int like = 0;
        if (done[i] || !b->site[i].tried) continue;
        for (int k = i; k < n; k++) {
            if (!b->site[k].tried || !same_work(&b->p->site[i], &b->p->site[k])) continue;
            ms[like] = b->site[k].float_ms;
            ms[n + like++] = b->site[k].integer_ms;
        }
        qsort(ms, (size_t)like, sizeof *ms, by_size);
        qsort(ms + n, (size_t)like, sizeof *ms, by_size);
        for (int k = i; k < n; k++) {
            if (!b->site[k].tried || !same_work(&b->p->site[i], &b->p->site[k])) continue;
            b->site[k].float_ms = ms[like / 2];
            b->site[k].integer_ms = ms[n + like / 2];
            done[k] = true;
        }
    }
    mem_free(done);
    mem_free(ms);
    return ok;
}

/* What keeping a site takes away: the milliseconds that integers save there, or, of weights alone, its elements. A
 * saving that the next call may not see is none. */
static double price(const Budget *b, int i)
{
    Tensor as;
    if (b->p->options.weight_bits && quantize_weight(b->p->g, b->p->site[i].node, &as))
        return (double)tensor_numel(&as);
    const double saved = b->site[i].float_ms - b->site[i].integer_ms;
    return saved < SURE * b->site[i].float_ms ? 0 : saved;
}

/* It as a whole number, 1 of the largest's UNITS at least. Times that are alike are made equal, so that the choice
 * between their layers is by loss, which is the same in every call. */
static void set_costs(Budget *b, int n)
{
    const int64_t units = n ? (int64_t)fmax(1, fmin(UNITS, WORK / n / n)) : 1;
    double most = b->p->options.weight_bits ? 1 : LEAST_MS * (double)units;
    for (int i = 0; i < b->p->nsites; i++)
        if (b->site[i].tried) most = fmax(most, price(b, i));
    for (int i = 0; i < b->p->nsites; i++) {
        double x = fmax(price(b, i) / most * (double)units, 1);
        if (!b->p->options.weight_bits) x = exp2(round(ALIKE * log2(x)) / ALIKE);
        b->site[i].cost = b->site[i].tried ? (int64_t)round(x) : 0;
    }
}

/* Losses as the knapsack takes them: what becomes NaN is far worse than all others. */
static double worth(const Budget *b, int i)
{
    const double loss = ranked(b, &b->site[i].losses);
    double most = 0;
    if (isfinite(loss)) return loss;
    for (int k = 0; k < b->p->nsites; k++) {
        const double x = ranked(b, &b->site[k].losses);
        if (b->site[k].tried && isfinite(x)) most = fmax(most, x);
    }
    return 1e3 * fmax(most, 1);
}

/* The loss where those of `tried` that are taken are left. */
static bool with_kept(Budget *b, const Choice *c, const bool *taken, double *loss, Err *err)
{
    Losses losses;
    for (int i = 0; i < b->p->nsites; i++) c->left[i] = false;
    for (int i = 0; i < c->n; i++) c->left[c->tried[i]] = taken[i];
    return trial(b, c->left, KEPT, &losses, loss, err);
}

static int taken_of(const bool *taken, int n)
{
    int count = 0;
    for (int i = 0; i < n; i++) count += taken[i];
    return count;
}

/* Those that are kept first, then by loss for their cost. */
static bool before(const Budget *b, const Choice *c, int i, int k)
{
    const BudgetSite *x = &b->site[c->tried[i]], *y = &b->site[c->tried[k]];
    if (c->kept[i] != c->kept[k]) return c->kept[i];
    return worth(b, c->tried[i]) * (double)y->cost > worth(b, c->tried[k]) * (double)x->cost;
}

static void rank_sites(Budget *b, const Choice *c)
{
    for (int i = 0; i < c->n; i++) {
        int rank = 1;
        for (int k = 0; k < c->n; k++) rank += k != i && (before(b, c, k, i) || (k < i && !before(b, c, i, k)));
        b->site[c->tried[i]].rank = rank;
    }
}

static const char *kept_as(const Budget *b) { return budget_keeps_eight(b) ? "8 bits" : "floats"; }

static bool cannot(Budget *b, const Choice *c, double best, Err *err)
{
    static const char *const what[] = {"the cosine", "the divergence", "the metric"};
    const bool own = b->limit.way == BUDGET_OWN;
    Buf names = {0}, floats = {0};
    for (int i = 0; i < c->n; i++) c->kept[i] = false;
    rank_sites(b, c);
    for (int rank = 1; rank <= NAMED; rank++)
        for (int i = 0; i < c->n; i++)
            if (b->site[c->tried[i]].rank == rank)
                buf_printf(&names, "%s%s", rank > 1 ? ", " : "", b->p->site[c->tried[i]].name);
    if (own) buf_printf(&floats, ", the floats have %.9g", b->own_floats);
    fail(err, E_UNSUPPORTED,
         "the budget cannot be met: with all layers but one in %s %s is %.9g at best, %.9g was asked for%s; "
         "%s lose most for their %s",
         kept_as(b), what[b->limit.way], budget_shown(&b->limit, best), budget_shown(&b->limit, b->limit.loss),
         own && floats.data ? floats.data : "", names.data ? names.data : "they",
         b->p->options.weight_bits ? "size" : "time");
    buf_free(&names);
    buf_free(&floats);
    return false;
}

static bool asked_enough(const Budget *b) { return b->limit.way == BUDGET_OWN && b->called >= b->calls; }

/* All but the one that loses least: the last thing to try. */
static bool all_but_one(Budget *b, const Choice *c, double *best, Err *err)
{
    int least = 0;
    double loss;
    for (int i = 1; i < c->n; i++)
        if (worth(b, c->tried[i]) < worth(b, c->tried[least])) least = i;
    for (int i = 0; i < c->n; i++) c->kept[i] = i != least;
    TRY(with_kept(b, c, c->kept, &loss, err));
    *best = fmin(*best, loss);
    b->reached = loss;
    return loss <= b->limit.loss || cannot(b, c, *best, err);
}

/* The cheapest of the knapsack's sets that holds the limit in a run. */
static bool cheapest(Budget *b, const Knapsack *k, const Choice *c, Err *err)
{
    double loss, best = b->all;
    int64_t low = 0, high = k->npoints; /* the first `low` + 1 do not do; `high` does, or is past the end */
    int failed = 0;
    while (high - low > 1 && !asked_enough(b)) {
        const int64_t middle = low + (high - low) / 2;
        knapsack_set(k, middle, c->taken);
        const int kept = taken_of(c->taken, c->n);
        if (kept == c->n) { /* that is the floats */
            high = middle;
            continue;
        }
        TRY(with_kept(b, c, c->taken, &loss, err));
        best = fmin(best, loss);
        if (loss <= b->limit.loss) {
            high = middle;
            b->reached = loss;
            for (int i = 0; i < c->n; i++) c->kept[i] = c->taken[i];
        } else {
            low = middle;
            failed = kept;
        }
    }
    if (taken_of(c->kept, c->n)) return true;
    if (!asked_enough(b)) return all_but_one(b, c, &best, err);
    return fail(err, E_LIMIT,
                "the metric was asked for %d times, and no candidate held %.9g: with %d of %d layers in %s it is %.9g, "
                "the floats have %.9g; allow more calls",
                b->called, budget_shown(&b->limit, b->limit.loss), failed, c->n, kept_as(b),
                budget_shown(&b->limit, best), b->own_floats);
}

/* Losses add up only about: the dearest layers without which the limit may hold are quantized, if it does. */
static bool give_back(Budget *b, const Choice *c, Err *err)
{
    double sum = 0, loss;
    for (int i = 0; i < c->n; i++) sum += worth(b, c->tried[i]);
    for (int tries = 0; tries < GIVEN_BACK && !asked_enough(b); tries++) {
        int dearest = -1;
        for (int i = 0; i < c->n; i++) {
            const double more = worth(b, c->tried[i]) / sum * b->all;
            if (!c->kept[i] || c->refused[i] || b->reached + more / 2 > b->limit.loss) continue;
            if (dearest < 0 || b->site[c->tried[i]].cost > b->site[c->tried[dearest]].cost) dearest = i;
        }
        if (dearest < 0 || b->limit.way == BUDGET_OWN) return true;
        for (int i = 0; i < c->n; i++) c->taken[i] = c->kept[i] && i != dearest;
        TRY(with_kept(b, c, c->taken, &loss, err));
        if (loss <= b->limit.loss) {
            b->reached = loss;
            c->kept[dearest] = false;
        } else c->refused[dearest] = true;
    }
    return true;
}

static bool fewest(Budget *b, const Choice *c, Err *err)
{
    Knapsack k;
    int64_t *cost = mem_zeroed((size_t)c->n + 1, sizeof *cost);
    double *loss = mem_zeroed((size_t)c->n + 1, sizeof *loss);
    bool ok = (cost && loss) || oom(err);
    b->reached = b->all;
    for (int i = 0; ok && i < c->n; i++) {
        cost[i] = b->site[c->tried[i]].cost;
        loss[i] = worth(b, c->tried[i]);
    }
    if (ok && b->all > b->limit.loss && (ok = knapsack_solve(&k, cost, loss, c->n, err))) {
        b->total = b->trials + GIVEN_BACK;
        for (int64_t left = k.npoints; left > 1; left /= 2) b->total++;
        ok = cheapest(b, &k, c, err) && give_back(b, c, err);
        knapsack_free(&k);
    }
    mem_free(loss);
    mem_free(cost);
    if (ok) rank_sites(b, c);
    return ok;
}

/* The floats' own figure, and the limit where it is a share of that. */
static bool own_floats(Budget *b, Err *err)
{
    BudgetLimit *l = &b->limit;
    if (l->way != BUDGET_OWN) return true;
    TRY(budget_figure(b, b->floats, &b->own_floats, err));
    if (l->share && !(b->own_floats > 0))
        return fail(err, E_USAGE, "the metric of the floats is %.9g, and the budget a share of it: give a figure",
                    b->own_floats);
    if (l->share) l->loss *= b->own_floats;
    if (budget_shown(l, b->own_floats) <= l->loss) return true;
    return fail(err, E_UNSUPPORTED, "the budget cannot be met: the metric of the floats is %.9g, %.9g was asked for",
                b->own_floats, budget_shown(l, l->loss));
}

static bool measure_alone(Budget *b, const Choice *c, Err *err)
{
    double loss;
    for (int i = 0; i < c->n; i++) {
        for (int k = 0; k < b->p->nsites; k++) c->left[k] = k != c->tried[i];
        TRY(trial(b, c->left, ALONE, &b->site[c->tried[i]].losses, &loss, err));
    }
    return true;
}

static bool keep(Budget *b, const Choice *c, Err *err)
{
    for (int i = 0; i < c->n; i++) {
        const int at = c->tried[i];
        Site *s = &b->p->site[at];
        if (!c->kept[i]) continue;
        b->kept++;
        s->eight = budget_keeps_eight(b);
        if (s->eight) continue;
        s->why =
            arena_printf(b->p->arena, "the budget keeps it: alone it loses %.3g", ranked(b, &b->site[at].losses));
        if (!s->why) return oom(err);
    }
    return true;
}

static bool choose(Budget *b, const Choice *c, Err *err)
{
    Losses all;
    TRY(own_floats(b, err));
    TRY(trial(b, c->left, ALL, &all, &b->all, err));
    TRY(pool_times(b, err));
    set_costs(b, c->n);
    return measure_alone(b, c, err) && fewest(b, c, err) && keep(b, c, err);
}

bool budget_choose(Budget *b, Err *err)
{
    const int sites = b->p->nsites;
    const size_t room = (size_t)sites + 1;
    b->site = mem_zeroed(room, sizeof *b->site);
    Choice c = {.tried = mem_zeroed(room, sizeof *c.tried),
                .left = mem_zeroed(room, sizeof *c.left),
                .taken = mem_zeroed(room, sizeof *c.taken),
                .kept = mem_zeroed(room, sizeof *c.kept),
                .refused = mem_zeroed(room, sizeof *c.refused)};
    bool ok = (b->site && c.tried && c.left && c.taken && c.kept && c.refused) || oom(err);
    for (int i = 0; ok && i < sites; i++) {
        b->site[i].tried = !b->p->site[i].why && b->p->site[i].kind != SITE_RESIDUAL;
        if (b->site[i].tried) c.tried[c.n++] = i;
    }
    b->total = c.n + 1;
    ok = ok && floats(b, err) && choose(b, &c, err);
    mem_free(c.tried);
    mem_free(c.left);
    mem_free(c.taken);
    mem_free(c.kept);
    mem_free(c.refused);
    return ok;
}

void budget_free(Budget *b)
{
    mem_free(b->site);
    mem_free(b->want);
    b->site = NULL;
    b->want = NULL;
}
