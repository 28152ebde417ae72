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

bool budget_read(const char *text, BudgetLimit *out, Err *err)
{
    static const char *const ways[] = {"cosine>=", "kl<="};
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(ways[i]);
        if (strncmp(text, ways[i], n)) continue;
        const char *end;
        double x = parse_double(text + n, &end);
        if (end == text + n || *end || !(x > 0) || (!i && x >= 1)) break;
        *out = (BudgetLimit){.kl = i, .loss = i ? x : 1 - x};
        return true;
    }
    return fail(err, E_USAGE, "budget '%.60s', expected cosine>=X with X below 1, or kl<=X", text);
}

double budget_shown(const BudgetLimit *l, double loss) { return l->kl ? loss : 1 - loss; }

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

static bool add_result(Sums *s, const double *want, const Tensor *t, bool kl, Err *err)
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
        if (kl) s->kl += divergence(want + first, y, row);
        s->rows++;
    }
    mem_free(y);
    return true;
}

static double loss_of(const Sums *s, bool kl)
{
    double cosine = s->aa > 0 && s->bb > 0 ? s->ab / sqrt(s->aa * s->bb) : s->aa == s->bb;
    double loss = kl ? s->kl / (double)(s->rows ? s->rows : 1) : 1 - cosine;
    return loss == loss ? fmax(loss, 0) : INFINITY;
}

/* The worst output's loss over the batches. */
static bool measure(Budget *b, Session *s, double *loss, Err *err)
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
            else ok = add_result(&sums[k], want, t, b->limit.kl, err);
            want += tensor_numel(t);
        }
    }
    *loss = 0;
    for (int k = 0; ok && k < b->floats->noutput; k++) *loss = fmax(*loss, loss_of(&sums[k], b->limit.kl));
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

/* Sites with a why in left are left; the placement's scales and means are b's. */
static bool trial(Budget *b, const bool *left, Trial of, double *loss, Err *err)
{
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
    }
    for (int i = 0; ok && i < q.nsites; i++) {
        q.site[i].input = b->p->site[i].input;
        q.site[i].correct = b->p->site[i].correct;
        if (left[i] && budget_keeps_eight(b)) q.site[i].eight = true;
        else if (left[i] && !q.site[i].why) q.site[i].why = why;
    }
    ok = ok && quantize_apply(&q, err) && quantize_integers(g, err) && fuse_graph(g, &fusion, err);
    Session *s = ok ? session_create(g, &fusion, b->threads, 0, err) : NULL;
    ok = s && measure(b, s, loss, err) && (of != ALL || time_sites(b, s, true, err));
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
    if (!b->p->options.weight_bits) return s->loss / fmax(s->float_ms - s->integer_ms, 1e-3);
    return s->loss / (double)tensor_numel(b->p->site[i].node->arg[1].v->data);
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
    for (int i = 0; i < b->p->nsites; i++) left[i] = false;
    for (int i = 0; i < keep; i++) left[order[i]] = true;
    return trial(b, left, KEPT, loss, err);
}

static bool cannot(const Budget *b, const int *order, int n, double best, Err *err)
{
    Buf names = {0};
    for (int i = 0; i < n && i < NAMED; i++) buf_printf(&names, "%s%s", i ? ", " : "", b->p->site[order[i]].name);
    fail(err, E_UNSUPPORTED,
         "the budget cannot be met: with all layers but one in %s %s is %.9g at best, %.9g was asked for; "
         "%s lose most for their %s",
         budget_keeps_eight(b) ? "8 bits" : "floats", b->limit.kl ? "the divergence" : "the cosine",
         budget_shown(&b->limit, best), budget_shown(&b->limit, b->limit.loss), names.data ? names.data : "they",
         b->p->options.weight_bits ? "size" : "time");
    buf_free(&names);
    return false;
}

/* As few of the order as hold the limit: *keep. */
static bool fewest(Budget *b, const int *order, int n, bool *left, int *keep, Err *err)
{
    double loss = b->all;
    int low = 0, high = n; /* the first `low` do not do, `high` do */
    b->reached = b->all;
    *keep = 0;
    if (b->all <= b->limit.loss) return true;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        TRY(with_kept(b, order, middle, left, &loss, err));
        if (loss <= b->limit.loss) {
            high = middle;
            b->reached = loss;
        } else low = middle;
    }
    *keep = high;
    return high < n || cannot(b, order, n, loss, err);
}

static bool choose(Budget *b, int *order, bool *left, Err *err)
{
    const int sites = b->p->nsites;
    for (int i = 0; i < sites; i++) left[i] = false;
    TRY(trial(b, left, ALL, &b->all, err));
    for (int i = 0; i < sites; i++) {
        if (!b->site[i].tried) continue;
        for (int k = 0; k < sites; k++) left[k] = k != i;
        TRY(trial(b, left, ALONE, &b->site[i].loss, err));
    }
    int n = sort_sites(b, order), keep;
    TRY(fewest(b, order, n, left, &keep, err));
    for (int i = 0; i < keep; i++) {
        Site *s = &b->p->site[order[i]];
        b->site[order[i]].kept = true;
        s->eight = budget_keeps_eight(b);
        if (s->eight) continue;
        s->why = arena_printf(b->p->arena, "the budget keeps it: alone it loses %.3g", b->site[order[i]].loss);
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
