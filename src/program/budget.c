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
#include "quantize/integers.h"

enum { TIMED = 5, NAMED = 3 };

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

static void note_time(void *user, const Step *step)
{
    const Timing *t = user;
    const Node *n = step->call.node;
    if (!n || !n->nout || !step->calls) return;
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

/* What keeping a site costs is the time that integers save, at least a microsecond; of weights alone their size. */
static double worth(const Budget *b, int i)
{
    const BudgetSite *s = &b->site[i];
    const double loss = ranked(b, &s->losses);
    if (!b->p->options.weight_bits) return loss / fmax(s->float_ms - s->integer_ms, 1e-3);
    return loss / (double)tensor_numel(b->p->site[i].node->arg[1].v->data);
}

static int sort_sites(const Budget *b, int *order)
{
    int n = 0;
    for (int i = 0; i < b->p->nsites; i++) {
        if (!b->site[i].tried) continue;
        int at = n++;
        for (; at > 0 && worth(b, order[at - 1]) < worth(b, i); at--) order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

/* The loss where the first `keep` of the order are left. */
static bool with_kept(Budget *b, const int *order, int keep, bool *left, double *loss, Err *err)
{
    Losses losses;
    for (int i = 0; i < b->p->nsites; i++) left[i] = false;
    for (int i = 0; i < keep; i++) left[order[i]] = true;
    return trial(b, left, KEPT, &losses, loss, err);
}

static bool cannot(const Budget *b, const int *order, int n, double best, Err *err)
{
    static const char *const what[] = {"the cosine", "the divergence", "the metric"};
    const bool own = b->limit.way == BUDGET_OWN;
    Buf names = {0}, floats = {0};
    for (int i = 0; i < n && i < NAMED; i++) buf_printf(&names, "%s%s", i ? ", " : "", b->p->site[order[i]].name);
    if (own) buf_printf(&floats, ", the floats have %.9g", b->own_floats);
    fail(err, E_UNSUPPORTED,
         "the budget cannot be met: with all layers but one in %s %s is %.9g at best, %.9g was asked for%s; "
         "%s lose most for their %s",
         budget_keeps_eight(b) ? "8 bits" : "floats", what[b->limit.way], budget_shown(&b->limit, best),
         budget_shown(&b->limit, b->limit.loss), own && floats.data ? floats.data : "",
         names.data ? names.data : "they", b->p->options.weight_bits ? "size" : "time");
    buf_free(&names);
    buf_free(&floats);
    return false;
}

static bool asked_enough(const Budget *b) { return b->limit.way == BUDGET_OWN && b->called >= b->calls; }

/* As few of the order as hold the limit: *keep. */
static bool fewest(Budget *b, const int *order, int n, bool *left, int *keep, Err *err)
{
    double loss = b->all, best = b->all;
    int low = 0, high = n; /* the first `low` do not do, `high` do */
    b->reached = b->all;
    *keep = 0;
    if (b->all <= b->limit.loss) return true;
    while (high - low > 1 && !asked_enough(b)) {
        int middle = low + (high - low) / 2;
        TRY(with_kept(b, order, middle, left, &loss, err));
        best = fmin(best, loss);
        if (loss <= b->limit.loss) {
            high = middle;
            b->reached = loss;
        } else low = middle;
    }
    *keep = high;
    if (high < n) return true;
    if (high - low <= 1) return cannot(b, order, n, loss, err);
    return fail(err, E_LIMIT,
                "the metric was asked for %d times, and no candidate held %.9g: with %d of %d layers in %s it is %.9g, "
                "the floats have %.9g; allow more calls",
                b->called, budget_shown(&b->limit, b->limit.loss), low, n, budget_keeps_eight(b) ? "8 bits" : "floats",
                budget_shown(&b->limit, best), b->own_floats);
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

static bool choose(Budget *b, int *order, bool *left, Err *err)
{
    const int sites = b->p->nsites;
    Losses all;
    double loss;
    for (int i = 0; i < sites; i++) left[i] = false;
    TRY(own_floats(b, err));
    TRY(trial(b, left, ALL, &all, &b->all, err));
    for (int i = 0; i < sites; i++) {
        if (!b->site[i].tried) continue;
        for (int k = 0; k < sites; k++) left[k] = k != i;
        TRY(trial(b, left, ALONE, &b->site[i].losses, &loss, err));
    }
    int n = sort_sites(b, order), keep;
    for (int i = 0; i < n; i++) b->site[order[i]].rank = i + 1;
    TRY(fewest(b, order, n, left, &keep, err));
    for (int i = 0; i < keep; i++) {
        Site *s = &b->p->site[order[i]];
        s->eight = budget_keeps_eight(b);
        if (s->eight) continue;
        s->why = arena_printf(b->p->arena, "the budget keeps it: alone it loses %.3g",
                              ranked(b, &b->site[order[i]].losses));
        if (!s->why) return oom(err);
    }
    b->kept = keep;
    return true;
}

bool budget_choose(Budget *b, Err *err)
{
    const int sites = b->p->nsites;
    int n = 0;
    b->site = mem_zeroed((size_t)sites + 1, sizeof *b->site);
    int *order = mem_zeroed((size_t)sites + 1, sizeof *order);
    bool *left = mem_zeroed((size_t)sites + 1, sizeof *left), ok = (b->site && order && left) || oom(err);
    for (int i = 0; ok && i < sites; i++)
        n += b->site[i].tried = !b->p->site[i].why && b->p->site[i].kind != SITE_RESIDUAL;
    for (b->total = n + 1; n; n /= 2) b->total++;
    ok = ok && floats(b, err) && choose(b, order, left, err);
    mem_free(order);
    mem_free(left);
    return ok;
}

void budget_free(Budget *b)
{
    mem_free(b->site);
    mem_free(b->want);
    b->site = NULL;
    b->want = NULL;
}
