/* Calibration: batches through sessions of the float graph, whose values are observed; then the same batches through
 * the new one, to compare. Contract in quantize.h.
 */
#include "program/quantize.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "ir/copy.h"
#include "onnx/write/write.h"
#include "plan/fuse.h"
#include "program/passes.h"
#include "program/prepare.h"
#include "program/constants.h"
#include "program/seen.h"
#include "quantize/integers.h"
#include "quantize/massive.h"
#include "quantize/smooth.h"
#include "quantize/trained.h"
#include "run/session.h"
#include "shape/solve.h"
#include "train/data.h"
#include "verify/compare.h"

enum { RANDOM_BATCHES = 4, COMPARED = 8, TRIED = 2, SAVED_EVERY_MS = 2000 };

typedef struct Batches {
    const QuantizeRequest *r;
    Data *data; /* NULL: random */
    Binding sizes;
    int64_t n, rows, batch, *row;
} Batches;

typedef struct Watch {
    Placement *p;
    Seen seen;
    double saved; /* clock_ms of the last time that the cache was written */
    int *point;   /* by value id: 1 + the first point */
    int nvalues;
    bool histogram;
    float *copy;
    int64_t room, batch;
    Err *err;
} Watch;

/* ------------------------------------------------------------------ batches */

static bool batches_open(Batches *b, const Graph *g, const QuantizeRequest *r, Err *err)
{
    *b = (Batches){.r = r, .n = RANDOM_BATCHES};
    if (!r->tensor) return choose_example_sizes(g, NULL, NULL, 0, &b->sizes, err);
    TRY(b->data = data_create(g, r->tensor, r->batch, err));
    b->rows = data_rows(b->data);
    b->batch = data_batch_size(b->data);
    b->n = data_fixed(b->data) ? b->rows / b->batch : (b->rows + b->batch - 1) / b->batch;
    return (b->row = mem_zeroed((size_t)b->batch + 1, sizeof *b->row)) || oom(err);
}

static void batches_close(Batches *b)
{
    data_free(b->data);
    if (!b->data) binding_free(&b->sizes);
    mem_free(b->row);
}

static bool batch_run(Batches *b, Session *s, int64_t i, Err *err)
{
    if (!b->data) return session_random_inputs(s, &b->sizes, b->r->seed + (uint64_t)i, err) && session_run(s, err);
    int64_t first = i * b->batch, n = b->rows - first < b->batch ? b->rows - first : b->batch;
    for (int64_t k = 0; k < n; k++) b->row[k] = first + k;
    session_reset(s);
    return (data_batch(b->data, s, b->row, n, err) && session_run(s, err)) ||
           within(err, "calibration data, rows %lld to %lld", (long long)first, (long long)(first + n - 1));
}

static bool tell(const QuantizeRequest *r, int64_t done, int64_t total, Err *err)
{
    return !r->progress || r->progress(r->progress_user, done, total) || fail(err, E_USAGE, "stopped by the caller");
}

/* The first of n floats that is NaN, or (infinite) one that is infinite; -1: none. */
static int64_t not_finite(const Tensor *t, bool infinite)
{
    const int64_t n = tensor_numel(t);
    const float *x = t->dtype == DT_F32 && tensor_contiguous(t) ? t->data : NULL;
    for (int64_t i = 0; i < n; i++) {
        const double v = x ? (double)x[i] : tensor_get(t, i);
        if (infinite ? isinf(v) : isnan(v)) return i;
    }
    return -1;
}

/* false: the data hold a NaN. infinite: an infinite element, which a mask may have, in front of what err says. */
static bool data_finite(const Graph *g, const QuantizeRequest *r, bool infinite, Err *err)
{
    for (int k = 0; r->tensor && k < g->ninput; k++) {
        const Tensor *t = &r->tensor[k];
        const int64_t bad = t->rank && dtype_is_float(t->dtype) ? not_finite(t, infinite) : -1;
        if (bad < 0) continue;
        const int64_t row = tensor_numel(t) / t->shape[0];
        if (infinite)
            return within(err, "the calibration data '%s' are infinite in row %lld (element %lld of it)",
                          value_label(g->input[k]), (long long)(bad / row), (long long)(bad % row));
        return fail(err, E_USAGE, "the calibration data '%s' are NaN in row %lld (element %lld of it): leave it out",
                    value_label(g->input[k]), (long long)(bad / row), (long long)(bad % row));
    }
    return !infinite;
}

/* ------------------------------------------------------------------ watching */

static bool observe(Watch *w, const Value *v, const Tensor *t)
{
    int64_t n = tensor_numel(t);
    const float *x = t->data;
    if (t->dtype != DT_F32) return true;
    if (!tensor_contiguous(t)) {
        if (n > w->room) {
            float *grown = mem_grow(w->copy, (size_t)n * sizeof *grown);
            if (!grown) return oom(w->err);
            w->copy = grown;
            w->room = n;
        }
        Tensor flat = tensor_of(DT_F32, t->rank, t->shape, w->copy);
        tensor_copy(&flat, t);
        x = w->copy;
    }
    for (int i = w->point[v->id] - 1; i < w->p->npoints; i++) {
        if (w->p->point[i].value != v) continue;
        if (w->histogram) {
            TRY(observe_histogram(&w->seen.observer[i], x, n, w->err));
            continue;
        }
        int64_t bad = observe_range(&w->seen.observer[i], x, n), K = t->rank ? t->shape[t->rank - 1] : 1;
        if (bad < 0 && n) TRY(massive_observe(w->seen.massive[i], x, n / K, K, w->err));
        if (bad >= 0)
            return fail(w->err, E_USAGE, "value '%s', element %lld, is %s in batch %lld of the calibration data",
                        v->name, (long long)bad, isnan(x[bad]) ? "NaN" : "infinite", (long long)w->batch);
    }
    return true;
}

static bool on_node(void *user, const Node *n, Tensor *const *out)
{
    Watch *w = user;
    for (int k = 0; k < n->nout; k++)
        if (n->out[k]->id < w->nvalues && w->point[n->out[k]->id] && out[k] && !observe(w, n->out[k], out[k]))
            return false;
    return true;
}

/* All that the ranges follow from but for the version of qkv and the machine. */
static bool key_of(const Placement *p, const Batches *b, char *key, Err *err)
{
    const QuantizeRequest *r = b->r;
    Digest d = {0};
    Buf text = {0};
    graph_print(p->g, &text);
    bool ok = !text.failed || oom(err);
    digest_add(&d, text.data, text.len);
    buf_free(&text);
    for (int i = 0; ok && i < p->g->nweight; i++) ok = tensor_digest(p->g->weight[i]->data, &d, err);
    for (int i = 0; i < p->npoints; i++) digest_text(&d, p->point[i].value->name);
    for (int i = 0; ok && r->tensor && i < p->g->ninput; i++)
        if (r->tensor[i].data) ok = tensor_digest(&r->tensor[i], &d, err);
    digest_text(&d, calibration_name(r->how));
    digest_add(&d, (int64_t[]){b->n, b->batch, (int64_t)r->seed}, 3 * sizeof(int64_t));
    digest_print(&d, key);
    return ok;
}

/* last: of a look at the data, or before the caller stops it. */
static bool keep(Watch *w, const char *path, bool last, Err *err)
{
    const double now = clock_ms();
    if (!path || (!last && now - w->saved < SAVED_EVERY_MS)) return true;
    w->saved = now;
    return seen_save(&w->seen, path, err);
}

/* The looks from the first batch on that was not seen. */
static bool watch_batches(Watch *w, Batches *b, Session *s, int64_t total, Err *err)
{
    const Graph *g = w->p->g;
    while (w->seen.done < w->seen.total) {
        w->batch = w->seen.done % b->n;
        w->histogram = w->seen.done >= b->n;
        bool ok = batch_run(b, s, w->batch, err);
        for (int k = 0; ok && k < g->ninput; k++)
            ok = !w->point[g->input[k]->id] || observe(w, g->input[k], session_input(s, k));
        if (!ok && w->err->code) *err = *w->err;
        if (!ok) return data_finite(g, b->r, true, err);
        w->seen.done++;
        const bool go_on = tell(b->r, w->seen.done, total, err);
        TRY(keep(w, b->r->cache, !go_on || w->seen.done == w->seen.total, err) && go_on);
    }
    return true;
}

static bool take_scales(Placement *p, const QuantizeRequest *r, const Seen *seen, Err *err)
{
    for (int i = 0; i < p->npoints; i++) {
        const Observer *o = &seen->observer[i];
        Point *at = &p->point[i];
        at->seen = o->count > 0;
        if (!at->seen) continue;
        Scale scale = observer_scale(o, r->percentile, quantize_type(p->options.target, p->options.asymmetric));
        scale.scale = scale.scale * fabs(at->factor);
        at->scale = scale;
        at->low = o->low;
        at->high = o->high;
        at->massive = massive_found(seen->massive[i], r->massive, p->arena, err);
        if (err->code) return false;
    }
    return true;
}

static bool calibrate(Placement *p, const QuantizeRequest *r, Batches *b, Session *s, int64_t total, Err *err)
{
    Err said = {0};
    Watch w = {.p = p, .nvalues = p->g->next_id, .err = &said, .saved = clock_ms()};
    Seen *seen = &w.seen;
    *seen = (Seen){.n = p->npoints, .total = b->n};
    seen->observer = mem_zeroed((size_t)p->npoints + 1, sizeof *seen->observer);
    seen->massive = mem_zeroed((size_t)p->npoints + 1, sizeof *seen->massive);
    w.point = mem_zeroed((size_t)w.nvalues + 1, sizeof *w.point);
    bool ok = (seen->observer && seen->massive && w.point) || oom(err);
    for (int i = p->npoints - 1; ok && i >= 0; i--) {
        ok = (seen->massive[i] = massive_create(err)) != NULL;
        observer_begin(&seen->observer[i], r->how);
        w.point[p->point[i].value->id] = 1 + i;
        seen->total = observer_histogram(&seen->observer[i]) ? 2 * b->n : b->n;
    }
    ok = ok && (!r->cache || (key_of(p, b, seen->key, err) && seen_load(seen, r->cache, err))) &&
         (seen->done == seen->total || keep(&w, r->cache, true, err)); /* a name that cannot be written is told now */
    if (ok) session_on_node(s, on_node, &w);
    ok = ok && watch_batches(&w, b, s, total, err);
    session_on_node(s, NULL, NULL);
    ok = ok && take_scales(p, r, seen, err);
    for (int i = 0; seen->observer && i < p->npoints; i++) observer_free(&seen->observer[i]);
    for (int i = 0; seen->massive && i < p->npoints; i++) massive_free(seen->massive[i]);
    mem_free(seen->massive);
    mem_free(seen->observer);
    mem_free(w.point);
    mem_free(w.copy);
    return ok;
}

/* ------------------------------------------------------------------ channels */

typedef struct WatchChannels {
    Channels **channels;
    int *at; /* by value id: 1 + its number */
    int nvalues;
    float *copy;
    Err *err;
} WatchChannels;

static bool on_channels(void *user, const Node *n, Tensor *const *out)
{
    WatchChannels *w = user;
    int i = n->nout && n->out[0]->id < w->nvalues ? w->at[n->out[0]->id] : 0;
    if (!i || !out[0]) return true;
    Channels *c = w->channels[i - 1];
    const Tensor *t = out[0];
    if (tensor_contiguous(t)) return channels_observe(c, t->data, tensor_numel(t) / c->K, w->err);
    float *grown = mem_grow(w->copy, (size_t)tensor_numel(t) * sizeof *grown);
    if (!grown) return oom(w->err);
    w->copy = grown;
    Tensor flat = tensor_of(DT_F32, t->rank, t->shape, grown);
    tensor_copy(&flat, t);
    return channels_observe(c, grown, tensor_numel(t) / c->K, w->err);
}

/* Data go through g, and n of its values are looked at, channel by channel. */
static bool watch_channels(const Graph *g, Channels **channels, int n, const QuantizeRequest *r, Err *err)
{
    Batches b = {0};
    Err said = {0};
    WatchChannels w = {.channels = channels, .nvalues = g->next_id, .err = &said};
    if (!n) return true;
    w.at = mem_zeroed((size_t)w.nvalues + 1, sizeof *w.at);
    bool ok = (w.at || oom(err)) && batches_open(&b, g, r, err);
    Session *s = ok ? session_create(g, NULL, r->threads, 0, err) : NULL;
    for (int i = 0; s && i < n; i++) w.at[channels[i]->value->id] = 1 + i;
    if (s) session_on_node(s, on_channels, &w);
    ok = s != NULL;
    for (int64_t i = 0; ok && i < b.n; i++) {
        ok = batch_run(&b, s, i, err);
        if (!ok && said.code) *err = said;
        if (!ok) data_finite(g, r, true, err);
        ok = ok && tell(r, i + 1, b.n, err);
    }
    session_free(s);
    batches_close(&b);
    mem_free(w.at);
    mem_free(w.copy);
    return ok;
}

static bool smooth(Graph *g, const QuantizeRequest *r, Err *err)
{
    Smoothing s;
    const bool awq = r->place.method & WEIGHTS_AWQ;
    bool ok = smooth_find(g, &s, err);
    Channels **seen = ok ? mem_zeroed((size_t)s.ngroups + 1, sizeof *seen) : NULL;
    for (int i = 0; seen && i < s.ngroups; i++) seen[i] = &s.group[i].seen;
    for (int i = 0; seen && awq && ok && i < s.ngroups; i++) ok = channels_gram(s.arena, seen[i], err);
    ok = ok && (seen || oom(err)) && watch_channels(g, seen, s.ngroups, r, err) &&
         (awq ? smooth_search(&s, r->place.weight_bits, r->place.group, err) : smooth_apply(&s, r->smooth, err)) &&
         graph_check(g, err);
    mem_free(seen);
    smooth_free(&s);
    return ok;
}

/* A scale a token does not help in tokens with massive elements: the layers that read these are left. */
static bool leave_massive(Placement *p, const QuantizeRequest *r, Err *err)
{
    for (int i = 0; i < p->nsites; i++) {
        Site *s = &p->site[i];
        if (s->why || !s->input || !s->input->massive) continue;
        s->why = massive_found(s->input->massive, r->massive, p->arena, err);
        if (err->code) return false;
    }
    return true;
}

/* Are activations rounded by scales that each run finds, and are there data that say more of them? */
static bool looks_for_massive(const QuantizeRequest *r) { return r->place.dynamic && r->tensor; }

/* What every linear layer reads: its means, for the correction of its bias, for GPTQ products of its channels, and, for
 * scales of tokens, what is massive. */
static bool look_at_inputs(Placement *p, const QuantizeRequest *r, Err *err)
{
    const bool gram = r->place.method & WEIGHTS_GPTQ;
    Channels **seen = mem_zeroed((size_t)p->nsites + 1, sizeof *seen);
    bool ok = seen || oom(err);
    int n = 0;
    for (int i = 0; ok && i < p->nsites; i++) {
        Site *s = &p->site[i];
        Value *x = s->kind == SITE_LINEAR ? s->node->arg[0].v : NULL;
        s->correct = r->correct;
        if (!x || s->why || !x->def || x->dtype != DT_F32) continue;
        for (int k = 0; k < n && !s->input; k++)
            if (seen[k]->value == x) s->input = seen[k];
        if (s->input) continue;
        Channels *c = arena_new(p->arena, Channels);
        if (c) *c = channels_of(p->arena, x, x->dim[x->rank - 1]->i);
        if (!c || !c->most) ok = oom(err);
        else if (gram && !channels_gram(p->arena, c, err)) ok = false;
        else if (looks_for_massive(r) && !(c->massive = massive_create(err))) ok = false;
        else s->input = seen[n++] = c;
    }
    ok = ok && watch_channels(p->g, seen, n, r, err) && leave_massive(p, r, err);
    for (int i = 0; i < n; i++) {
        massive_free(seen[i]->massive);
        seen[i]->massive = NULL;
    }
    mem_free(seen);
    return ok;
}

/* ------------------------------------------------------------------ comparing */

typedef struct Likeness {
    double ab, aa, bb, max_abs;
    int64_t rows, same; /* along the last axis; those whose largest element is in the same place */
} Likeness;

/* The place of the largest of n elements from `first` on; a NaN is none. */
static int64_t largest_of(const Tensor *t, int64_t first, int64_t n)
{
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (tensor_get(t, first + i) > tensor_get(t, first + at)) at = i;
    return at;
}

static void liken(Likeness *l, const Tensor *a, const Tensor *b)
{
    int64_t n = tensor_numel(a);
    for (int64_t i = 0; i < n; i++) {
        double x = tensor_get(a, i), y = tensor_get(b, i);
        if (!isfinite(x) || !isfinite(y)) continue;
        l->ab += x * y;
        l->aa += x * x;
        l->bb += y * y;
        l->max_abs = fabs(x - y) > l->max_abs ? fabs(x - y) : l->max_abs;
    }
    const int64_t row = a->rank ? a->shape[a->rank - 1] : 1;
    for (int64_t i = 0; row > 1 && i < n; i += row, l->rows++)
        l->same += largest_of(a, i, row) == largest_of(b, i, row);
}

static double cosine(const Likeness *l)
{
    return l->aa > 0 && l->bb > 0 ? l->ab / sqrt(l->aa * l->bb) : l->aa == l->bb;
}

/* Each output of `made`, as runs compute it, beside the same of `g`, over the first batches. In integers: pairs around
 * a weight would be a copy of it in floats. */
static bool compare(const Graph *g, const Graph *made, Batches *b, int threads, int64_t from, int64_t total,
                    Buf *report, Err *err)
{
    Fusion fusion = {0};
    Graph *integers = graph_copy(made, err);
    bool ok = integers && quantize_integers(integers, err) && fuse_graph(integers, &fusion, err);
    Session *s = ok ? session_create(g, NULL, threads, 0, err) : NULL,
            *q = s ? session_create(integers, &fusion, threads, 0, err) : NULL;
    int64_t n = b->n < COMPARED ? b->n : COMPARED;
    Likeness *like = mem_zeroed((size_t)g->noutput + 1, sizeof *like);
    ok = q && (like || oom(err));
    for (int64_t i = 0; ok && i < n; i++) {
        ok = batch_run(b, s, i, err) && batch_run(b, q, i, err) && tell(b->r, from + i + 1, total, err);
        for (int k = 0; ok && k < g->noutput; k++)
            if (dtype_is_float(session_output(s, k)->dtype) &&
                tensor_numel(session_output(s, k)) == tensor_numel(session_output(q, k)))
                liken(&like[k], session_output(s, k), session_output(q, k));
    }
    jw_open(report, "outputs", '[');
    for (int k = 0; ok && k < g->noutput; k++)
        if (dtype_is_float(g->output[k].value->dtype))
            jw_put(report, "{'output': %s, 'cosine': %g, 'max_abs': %g, 'rows': %lld, 'same_argmax': %lld}",
                   output_label(&g->output[k]), cosine(&like[k]), like[k].max_abs, (long long)like[k].rows,
                   (long long)like[k].same);
    jw_close(report, "]");
    session_free(s);
    session_free(q);
    fusion_free(&fusion);
    graph_free(integers);
    mem_free(like);
    return ok;
}

/* ------------------------------------------------------------------ report */

static const char *kind_name(SiteKind k)
{
    static const char *const names[] = {"linear", "convolution", "attention", "residual"};
    return names[k];
}

static void put_budget(const Budget *of, Buf *b)
{
    const BudgetLimit *l = &of->limit;
    jw_put(b, "'budget': {'metric': %s, 'limit': %g, 'all': %g, 'reached': %g, 'kept': %d}", budget_name(l),
           budget_shown(l, l->loss), budget_shown(l, of->all), budget_shown(l, of->reached), of->kept);
}

static void put_losses(const BudgetLimit *l, const BudgetSite *s, Buf *b)
{
    jw_put(b, "'loss': %g, 'kl': %g, 'sqnr_db': %g, 'float_ms': %g, 'integer_ms': %g, 'rank': %d",
           l->way == BUDGET_KL ? s->losses.kl : s->losses.cosine, s->losses.kl,
           -10 * log10(fmax(s->losses.noise, 1e-30)), s->float_ms, s->integer_ms, s->rank);
}

static void put_sites(const Placement *p, const char *const *name, const Budget *budget, Buf *b)
{
    int done = 0, left = 0;
    for (int i = 0; i < p->nsites; i++) *(p->site[i].why ? &left : &done) += 1;
    jw_put(b, "'quantized': %d, 'left': %d, 'weights': %d, 'sites': [", done, left, p->weights);
    for (int i = 0; i < p->nsites; i++) {
        jw_line(b);
        jw_open(b, NULL, '{');
        jw_put(b, "'node': %s, 'kind': %s, 'weight': %s, 'why_not': %s", name[i], kind_name(p->site[i].kind),
               p->site[i].weight, p->site[i].why);
        if (budget && budget->site[i].tried) put_losses(&budget->limit, &budget->site[i], b);
        if (p->options.weight_bits && !p->site[i].why) jw_put(b, "'bits': %d", site_bits(p, &p->site[i]));
        jw_close(b, "}");
    }
    jw_put(b, "], 'points': [");
    for (int i = 0; i < p->npoints; i++) {
        const Point *at = &p->point[i];
        if (!at->used) continue;
        jw_line(b);
        jw_put(b, "{'value': %s, 'dtype': %s, 'scale': %g, 'zero_point': %d, 'low': %g, 'high': %g}", at->value->name,
               dtype_name(at->scale.t), at->scale.scale, at->scale.zero, at->low, at->high);
    }
    jw_close(b, "]");
}

typedef struct Trials {
    Batches *b;
} Trials;

static bool run_trial(void *user, Session *s, int64_t i, Err *err) { return batch_run(((Trials *)user)->b, s, i, err); }

static bool tell_trial(void *user, int64_t done, int64_t total, Err *err)
{
    return tell(((Trials *)user)->b->r, done, total, err);
}

static bool choose_layers(Budget *of, const Graph *g, Placement *p, Batches *b, Err *err)
{
    Trials trials = {b};
    *of = (Budget){.floats = g,
                   .p = p,
                   .limit = *b->r->budget,
                   .threads = b->r->threads,
                   .run = run_trial,
                   .done = tell_trial,
                   .user = &trials,
                   .metric = b->r->metric,
                   .metric_user = b->r->metric_user,
                   .calls = b->r->calls,
                   .batches = b->n < TRIED ? b->n : TRIED};
    return budget_choose(of, err);
}

/* The figures of the floats and of what was made: a budget by it knows both. */
static bool put_metric(Budget *of, const Graph *g, const Graph *made, const QuantizeRequest *r, Buf *b, Err *err)
{
    double floats = of->own_floats, ours = r->budget ? budget_shown(&of->limit, of->reached) : 0;
    if (!r->metric) return true;
    if (!r->budget || r->budget->way != BUDGET_OWN) {
        of->metric = r->metric;
        of->metric_user = r->metric_user;
        TRY(budget_figure(of, g, &floats, err) && budget_figure(of, made, &ours, err));
    }
    jw_put(b, "'metric': {'floats': %g, 'quantized': %g, 'calls': %d}", floats, ours, of->called);
    return true;
}

static void begin_report(Buf *report, const QuantizeRequest *r, const Graph *made, const char *calibration,
                         int64_t batches, int bits)
{
    jw_report(report);
    jw_put(report, "'target': %s, 'calibration': %s, 'data': %s, 'batches': %lld", r->place.target->name, calibration,
           r->tensor ? "given" : "random", (long long)batches);
    jw_put(report, "'weight_bits': %d, 'opset': %d", bits, onnx_least_opset(made, ONNX_FOR_SPEC));
}

static bool work(Graph *g, Graph *made, const QuantizeRequest *r, Placement *p, Buf *report, Err *err)
{
    Batches b = {0};
    Budget budget = {0};
    bool looked = r->correct || r->place.method & WEIGHTS_GPTQ || looks_for_massive(r);
    bool ok = (!looked || look_at_inputs(p, r, err)) && batches_open(&b, g, r, err);
    Observer way = {.how = r->how};
    int64_t looks = p->npoints ? 1 + observer_histogram(&way) : 0, compared = b.n < COMPARED ? b.n : COMPARED,
            total = looks * b.n + compared;
    Session *s = ok && looks ? session_create(made, NULL, r->threads, 0, err) : NULL;
    ok = ok && (!looks || (s && calibrate(p, r, &b, s, total, err)));
    session_free(s);
    const char **name = mem_zeroed((size_t)p->nsites + 1, sizeof *name);
    ok = ok && (name || oom(err));
    for (int i = 0; ok && i < p->nsites; i++) name[i] = p->site[i].name;
    if (ok) leave_unfit(p);
    ok = ok && quantize_any(p, err) && (!r->budget || choose_layers(&budget, g, p, &b, err)) &&
         quantize_apply(p, err) && graph_check(made, err);
    if (ok) {
        begin_report(report, r, made,
                     p->options.dynamic       ? "dynamic"
                     : p->options.weight_bits ? "weights"
                                              : calibration_name(r->how),
                     b.n, p->options.weight_bits ? p->options.weight_bits : 8);
        if (p->options.weight_bits) jw_put(report, "'group': %lld", (long long)p->options.group);
        if (r->budget) put_budget(&budget, report);
        put_sites(p, name, r->budget ? &budget : NULL, report);
        ok = put_metric(&budget, g, made, r, report, err) &&
             compare(g, made, &b, r->threads, looks * b.n, total, report, err);
        jw_close(report, "}");
    }
    budget_free(&budget);
    mem_free(name);
    batches_close(&b);
    return ok;
}

/* Bits of the weights that became integers. */
static int bits_of(const Graph *g)
{
    bool four = false, eight = false;
    for (int i = 0; i < g->nweight; i++) {
        four |= g->weight[i]->dtype == DT_I4;
        eight |= g->weight[i]->dtype == DT_I8 && g->weight[i]->rank > 1;
    }
    return four && !eight ? 4 : 8;
}

static int by_address(const void *a, const void *b)
{
    const Tensor *x = *(Tensor *const *)a, *y = *(Tensor *const *)b;
    return (x > y) - (x < y);
}

/* Values before `fresh` borrow their weights from the graph that was prepared. The file's stay; those that rules made
 * go with that graph, and become our own. */
static bool own_weights(Graph *made, const Graph *file, int fresh, Err *err)
{
    const Tensor **kept = mem_zeroed((size_t)file->nweight + 1, sizeof *kept);
    if (!kept) return oom(err);
    for (int i = 0; i < file->nweight; i++) kept[i] = file->weight[i]->data;
    qsort(kept, (size_t)file->nweight, sizeof *kept, by_address);
    bool ok = true;
    for (int i = 0; ok && i < made->nweight; i++) {
        Value *w = made->weight[i];
        if (w->id >= fresh || bsearch(&w->data, kept, (size_t)file->nweight, sizeof *kept, by_address)) continue;
        Tensor *t = arena_new(made->arena, Tensor);
        void *room = t ? arena_alloc(made->arena, tensor_bytes(w->data) + 64, 1) : NULL;
        ok = room || oom(err);
        if (!ok) break;
        *t = tensor_of(w->data->dtype, w->data->rank, w->data->shape, room);
        tensor_copy(t, w->data);
        w->data = t;
    }
    mem_free(kept);
    return ok;
}

/* The model was trained with quantizers: they are kept, and `weights` weights become integers. */
static bool keep_trained(const Graph *g, Graph *made, int weights, const QuantizeRequest *r, Buf *report, Err *err)
{
    Batches b = {0};
    Placement none = {.g = made, .options = r->place, .weights = weights};
    if (r->place.dynamic || r->place.weight_bits || r->place.trainable || r->smooth > 0 || r->correct || r->budget ||
        r->cache || r->place.nskip)
        return fail(
            err, E_USAGE,
            "the model was trained with quantizers, which are kept: leave out the options that say where others "
            "go");
    TRY(fold_constants(made, err) && trained_settle(made, err) && graph_check(made, err));
    bool ok = batches_open(&b, g, r, err);
    if (ok) {
        begin_report(report, r, made, "trained", b.n, bits_of(made));
        put_sites(&none, NULL, NULL, report);
        ok = put_metric(&(Budget){0}, g, made, r, report, err) &&
             compare(g, made, &b, r->threads, 0, b.n < COMPARED ? b.n : COMPARED, report, err);
        jw_close(report, "}");
    }
    batches_close(&b);
    return ok;
}

/* Quantizers put into `made`, a copy of g. */
static bool place_new(Graph *g, Graph *made, const QuantizeRequest *r, Placement *p, Buf *report, Err *err)
{
    return ((r->smooth <= 0 && !(r->place.method & WEIGHTS_AWQ)) || smooth(made, r, err)) &&
           quantize_place(made, &r->place, p, err) && work(g, made, r, p, report, err);
}

Graph *program_quantize(const Program *from, const QuantizeRequest *r, Buf *report, Err *err)
{
    Prepared ready;
    Placement p = {0};
    if (from->graph->bodies || from->source->prepared) {
        fail(err, E_UNSUPPORTED,
             from->graph->bodies ? "a model with loops or branches is not quantized"
                                 : "a packed model is not quantized: take the model that was packed");
        return NULL;
    }
    const unsigned list = PASS_BIT(PASS_DETACH) | PASS_BIT(PASS_PAIR) | PASS_BIT(PASS_REWRITE);
    if (!data_finite(from->graph, r, false, err) || !program_prepare_waiving(from, list, &ready, err)) return NULL;
    Graph *made = graph_copy(ready.graph, err);
    const int fresh = made ? made->next_id : 0;
    int *used = made ? mem_zeroed((size_t)fresh + 1, sizeof *used) : NULL;
    if (used) graph_count_uses(made, used);
    const int trained = made ? trained_weights(made) : 0;
    bool ok = made && (used || oom(err)) &&
              (trained ? keep_trained(ready.graph, made, trained, r, report, err)
                       : place_new(ready.graph, made, r, &p, report, err)) &&
              graph_drop_weights(made, used, fresh, err) && own_weights(made, from->graph, fresh, err);
    mem_free(used);
    ok = ok && (!(mem_ran_out() || report->failed) || oom(err));
    placement_free(&p);
    prepared_free(&ready);
    if (ok) return made;
    graph_free(made);
    return NULL;
}
