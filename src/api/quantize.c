/* qkv_model_quantize. */
#include <stdio.h>
#include <string.h>
#include "api/api_impl.h"
#include "program/quantize.h"

const char *qkv_quantize_target(int i) { return i < 0 ? NULL : quantize_target_listed(i); }

static bool unknown_target(const char *found, Err *err)
{
    char all[160] = "";
    size_t at = 0;
    for (int i = 0; quantize_target_listed(i); i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", at ? ", " : "", quantize_target_listed(i));
    return fail(err, E_USAGE, "no target is called '%.40s'; there are %s", found, all);
}

/* The data of every input. */
static bool take_data(const Graph *g, const qkv_quantize_options *o, Tensor **out, Err *err)
{
    Tensor *t = mem_zeroed((size_t)g->ninput + 1, sizeof *t);
    *out = t;
    if (!t) return oom(err);
    for (int i = 0; i < o->n_data; i++) {
        int at = api_find_input(g, o->names[i]);
        if (at < 0) return api_unknown_input(g, o->names[i], err) || within(err, "calibration data");
        TRY(api_tensor(&o->data[i], &t[at], err) || within(err, "calibration data '%s'", o->names[i]));
    }
    return true;
}

typedef struct Caller {
    const qkv_quantize_options *o;
    const qkv_model *m;
} Caller;

static bool progress(void *user, int64_t done, int64_t total)
{
    const Caller *c = user;
    return !c->o->progress(c->o->progress_user, (long long)done, (long long)total);
}

static bool metric(void *user, Graph *candidate, double *figure, Err *err)
{
    const Caller *c = user;
    qkv_model *m = api_model_of(candidate, c->m->path, c->m, err);
    bool ok = m &&
              (!c->o->metric(c->o->metric_user, m, figure) || fail(err, E_USAGE, "stopped by the caller's metric"));
    qkv_model_free(m);
    return ok;
}

static bool read_budget(const qkv_quantize_options *o, BudgetLimit *limit, Err *err)
{
    if (!o->budget) return true;
    TRY(budget_read(o->budget, limit, err));
    return limit->way != BUDGET_OWN || o->metric ||
           fail(err, E_USAGE, "budget '%.60s' needs a metric, which finds the figure of a model", o->budget);
}

static bool trained_later(const QuantizeRequest *r, Err *err)
{
    if (!r->place.trainable) return true;
    if (r->place.method == WEIGHTS_RTN && r->smooth <= 0 && !r->correct && !r->place.dynamic) return true;
    return fail(err, E_USAGE,
                "trainable quantizers round to the nearest integer by fixed scales: leave out dynamic, smooth, correct "
                "and weight_method");
}

static bool scales_found_in_runs(const QuantizeRequest *r, Err *err)
{
    return !r->place.dynamic || !r->place.target->constant_scales ||
           fail(err, E_USAGE,
                "target %s takes scales that are constants: leave out dynamic, and give data to calibrate with",
                r->place.target->name);
}

static bool in_float8(const QuantizeRequest *r, Err *err)
{
    const QuantizeOptions *p = &r->place;
    if (!p->target->float8) return true;
    if (p->asymmetric || p->dynamic || p->weight_bits || p->trainable)
        return fail(err, E_USAGE,
                    "target %s has values of float8 by scales of their own: leave out asymmetric, dynamic, weight_bits "
                    "and trainable",
                    p->target->name);
    if (r->how != CALIBRATE_ENTROPY && r->how != CALIBRATE_MSE) return true;
    return fail(err, E_USAGE, "calibration %s cuts ranges for integers: target %s takes minmax, average or percentile",
                calibration_name(r->how), p->target->name);
}

static bool weights_alone(const qkv_quantize_options *o, WeightMethod *method, Err *err)
{
    TRY(weight_method(o->weight_method, method, err));
    if (!o->weight_bits && (o->group || o->weight_method))
        return fail(err, E_USAGE, "a group or a method without weight_bits: they say how weights alone are rounded");
    if (o->weight_bits && o->weight_bits != 4 && o->weight_bits != 8)
        return fail(err, E_USAGE, "weights of %d bits, expected 4 or 8", o->weight_bits);
    if (o->group && (o->group < 8 || o->group > 32768 || o->group % 8))
        return fail(err, E_USAGE, "a group of %d, expected a multiple of 8 up to 32768", o->group);
    return true;
}

/* A cache of ranges is for what has ranges. */
static bool has_ranges(const QuantizeRequest *r, Err *err)
{
    return !r->cache || (!r->place.dynamic && !r->place.weight_bits) ||
           fail(err, E_USAGE, "a calibration cache keeps ranges, and %s has none: leave it out",
                r->place.dynamic ? "dynamic" : "weight_bits");
}

qkv_model *qkv_model_quantize(const qkv_model *m, const qkv_quantize_options *options, char **report, qkv_error *err)
{
    qkv_quantize_options o = {0};
    Err e = api_begin();
    Tensor *data = NULL;
    Buf text = {0};
    if (report) *report = NULL;
    if (!GIVEN(m) || !VERSIONED_TAKE(qkv_quantize_options, budget, &o, options, &e) ||
        !GIVEN_TEXTS(o.names, o.n_data) || !GIVEN_LIST(o.data, o.n_data) || !GIVEN_TEXTS(o.skip, o.n_skip))
        return api_null(&e, err);
    BudgetLimit limit = {0};
    Caller caller = {&o, m};
    QuantizeRequest r = {.place = {.target = quantize_target(o.target ? o.target : "cpu"),
                                   .asymmetric = o.asymmetric != 0,
                                   .dynamic = o.dynamic != 0,
                                   .trainable = o.trainable != 0,
                                   .skip = o.skip,
                                   .nskip = o.n_skip},
                         .how = (Calibration)o.calibration,
                         .percentile = o.percentile > 0 ? o.percentile : 99.99,
                         .batch = o.batch,
                         .smooth = o.smooth,
                         .correct = o.correct != 0,
                         .budget = o.budget ? &limit : NULL,
                         .metric = o.metric ? metric : NULL,
                         .metric_user = &caller,
                         .calls = o.metric_calls ? o.metric_calls : 20,
                         .massive = o.massive > 0 ? o.massive : 1000,
                         .seed = o.seed,
                         .threads = o.threads,
                         .cache = o.calibration_cache,
                         .progress = o.progress ? progress : NULL,
                         .progress_user = &caller};
    r.place.weight_bits = o.weight_bits;
    r.place.group = o.group ? o.group : 32;
    bool ok = api_known(qkv_calibration_name(o.calibration), "qkv_calibration", (int)o.calibration, &e);
    if (!ok) return api_null(&e, err);
    if (!r.place.target) ok = unknown_target(o.target, &e);
    else if (o.percentile > 100)
        ok = fail(&e, E_USAGE, "percentile %g, expected more than 0 and at most 100", o.percentile);
    else if (!(o.smooth >= 0 && o.smooth <= 1)) ok = fail(&e, E_USAGE, "smooth %g, expected 0 to 1", o.smooth);
    else if (!(o.massive >= 0)) ok = fail(&e, E_USAGE, "massive %g, expected how many times the median", o.massive);
    else if (o.batch < 0 || o.threads < 0 || o.metric_calls < 0)
        ok = fail(&e, E_USAGE, "a batch, threads or calls below 0");
    ok = ok && weights_alone(&o, &r.place.method, &e) && trained_later(&r, &e) && in_float8(&r, &e) &&
         scales_found_in_runs(&r, &e) && has_ranges(&r, &e) && read_budget(&o, &limit, &e) &&
         (!o.n_data || take_data(m->program.graph, &o, &data, &e));
    r.tensor = data;
    Graph *g = ok ? program_quantize(&m->program, &r, &text, &e) : NULL;
    qkv_model *made = g ? api_model_of(g, m->path, m, &e) : NULL;
    if (made) made->program.source->carries = true;
    mem_free(data);
    if (api_whole(made != NULL, &e)) {
        if (report) *report = text.data;
        else buf_free(&text);
        return made;
    }
    buf_free(&text);
    qkv_model_free(made);
    return api_null(&e, err);
}
