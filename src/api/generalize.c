/* qkv_model_generalize: the solver of src/rewrite, its result run against the static files, and the report. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/api_impl.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "base/number.h"
#include "generalize/generalize.h"

enum { MAX_CHECKS = 3 * GEN_FILES };

typedef struct Check {
    const char *against;     /* the file; NULL: sizes of no file */
    int64_t size[GEN_SIZES]; /* of every variable size, as the axes show it */
    bool sized;              /* they are known */
    bool agrees;
    double of_peak;
    char problem[1024];
} Check;

typedef struct Checks {
    const Generalized *r;
    qkv_model *model;
    qkv_session *session;
    Check check[MAX_CHECKS];
    int n;
    bool no_memory; /* for one of them */
} Checks;

/* ------------------------------------------------------------------ running */

/* Random inputs of the given sizes (of the axes, one a variable size); false when those sizes are not allowed. */
static bool set_sizes(Checks *c, const int64_t *size, qkv_error *e)
{
    const char *name[GEN_SIZES];
    int64_t value[GEN_SIZES];
    int n = 0;
    for (int i = 0; i < c->r->nsize; i++) {
        const GenSize *z = &c->r->size[i];
        if (z->related) continue;
        if (size[i] % z->factor) return false;
        name[n] = z->name;
        value[n++] = size[i] / z->factor;
    }
    bool ok = qkv_session_random_inputs(c->session, name, value, n, 1, e) == QKV_OK;
    c->no_memory |= !ok && mem_ran_out();
    return ok;
}

static double peak_of(const qkv_tensor *t)
{
    double peak = 0;
    Tensor x = {.dtype = (DType)t->dtype, .rank = t->rank, .data = t->data};
    memcpy(x.shape, t->shape, (size_t)t->rank * sizeof *x.shape);
    memcpy(x.stride, t->strides, (size_t)t->rank * sizeof *x.stride);
    for (int64_t i = 0, n = dtype_is_complex(x.dtype) ? 0 : tensor_numel(&x); i < n; i++) {
        double v = fabs(tensor_get(&x, i));
        if (isfinite(v) && v > peak) peak = v;
    }
    return peak;
}

static bool compare_outputs(Checks *c, qkv_session *other, int n, const double *share, Check *k, qkv_error *e)
{
    for (int i = 0; i < n; i++) {
        qkv_tensor got, want;
        qkv_difference d;
        if (qkv_session_output(c->session, i, &got, e) || qkv_session_output(other, i, &want, e)) return false;
        double peak = peak_of(&want);
        qkv_status s = qkv_compare(&got, &want, share[i] * peak, 0, &d, e);
        if (s && s != QKV_MISMATCH) return false;
        if (d.max_abs_over_peak > k->of_peak) k->of_peak = d.max_abs_over_peak;
        if (s != QKV_MISMATCH) continue;
        text_printf(k->problem, sizeof k->problem,
                    "output_%d differs: %lld elements, the largest difference is %.3g of its peak", i,
                    (long long)d.failed, d.max_abs_over_peak);
        return true;
    }
    k->agrees = true;
    return true;
}

/* The model beside a static one, both on the random inputs that are set. */
static bool run_beside(Checks *c, const qkv_model *file, Check *k, qkv_error *e)
{
    qkv_session *s = qkv_session_create(file, NULL, e);
    int n = qkv_model_output_count(file);
    double *share = mem_zeroed((size_t)n + 1, sizeof *share);
    bool ok = s && share && !qkv_model_output_tolerances(file, share, e);
    for (int i = 0; ok && i < qkv_model_input_count(file); i++) {
        qkv_tensor t;
        ok = !qkv_session_input(c->session, i, &t, e) &&
             !qkv_session_set_input(s, qkv_model_input_name(file, i), &t, e);
    }
    ok = ok && !qkv_session_run(s, e) && !qkv_session_run(c->session, e);
    ok = ok && compare_outputs(c, s, n, share, k, e);
    mem_free(share);
    qkv_session_free(s);
    return ok;
}

static Check *new_check(Checks *c, const char *against)
{
    if (c->n == MAX_CHECKS) return NULL;
    Check *k = &c->check[c->n++];
    *k = (Check){.against = against};
    return k;
}

static void keep_problem(Checks *c, Check *k, const qkv_error *e)
{
    c->no_memory |= mem_ran_out();
    k->agrees = false;
    snprintf(k->problem, sizeof k->problem, "%s", e->message);
}

static void check_known(Checks *c, const qkv_model *file, int f)
{
    qkv_error e = {0};
    Check *k = new_check(c, file->path);
    if (!k) return;
    k->sized = true;
    for (int i = 0; i < c->r->nsize; i++) k->size[i] = c->r->size[i].value[f];
    if (!set_sizes(c, k->size, &e) || !run_beside(c, file, k, &e)) keep_problem(c, k, &e);
}

/* The axis that a size is named after first; input -1: a scalar input. */
static void first_axis(const Graph *g, const GenSize *z, int *input, int *axis)
{
    size_t n = strcspn(z->axes, ",");
    const char *dot = memrchr(z->axes, '.', n);
    *input = *axis = -1;
    for (int v = 0; dot && v < g->ninput; v++) {
        if (strlen(g->input[v]->name) != (size_t)(dot - z->axes) ||
            strncmp(g->input[v]->name, z->axes, (size_t)(dot - z->axes)))
            continue;
        *input = v;
        *axis = (int)parse_int(dot + 1, NULL);
    }
    for (int v = 0; *input < 0 && v < g->nscalar_input; v++)
        if (strlen(g->scalar_input[v].name) == n && !strncmp(g->scalar_input[v].name, z->axes, n)) *axis = v;
}

static bool all_static(const Graph *g)
{
    for (int i = 0; i < g->ninput; i++)
        for (int d = 0; d < g->input[i]->rank; d++)
            if (!ex_is_int(g->input[i]->dim[d])) return false;
    return true;
}

/* A further static file: its sizes are found at the axes that the report names first. */
static void check_further(Checks *c, const qkv_model *file)
{
    qkv_error e = {0};
    Check *k = new_check(c, file->path);
    const Graph *g = file->program.graph, *mine = c->model->program.graph;
    bool same = g->ninput == mine->ninput && g->noutput == mine->noutput;
    if (!k) return;
    for (int i = 0; same && i < g->ninput; i++)
        same = !strcmp(g->input[i]->name, mine->input[i]->name) && g->input[i]->rank == mine->input[i]->rank;
    if (!same || !all_static(g)) {
        snprintf(k->problem, sizeof k->problem,
                 same ? "its sizes are variable; expected a static export"
                      : "its inputs and outputs are not those of the other files");
        return;
    }
    k->sized = true;
    for (int i = 0; i < c->r->nsize; i++) {
        int input, axis;
        first_axis(g, &c->r->size[i], &input, &axis);
        bool number = input < 0 && axis >= 0 && g->scalar_input[axis].value.kind == ARG_EXPR;
        k->size[i] = input >= 0 ? g->input[input]->dim[axis]->i : number ? g->scalar_input[axis].value.e->i : 0;
    }
    if (!set_sizes(c, k->size, &e)) {
        if (!e.code) snprintf(e.message, sizeof e.message, "its sizes are not multiples of what the model needs");
        keep_problem(c, k, &e);
    } else if (!run_beside(c, file, k, &e)) keep_problem(c, k, &e);
}

/* Sizes of no file: shapes must follow and the model must run. Several are tried, for not all are allowed. */
static void check_elsewhere(Checks *c)
{
    enum { TRIES = 12 };
    qkv_error e = {0};
    Check *k = new_check(c, NULL);
    if (!k) return;
    k->sized = true;
    for (int t = 0; t < TRIES; t++) {
        for (int i = 0; i < c->r->nsize; i++) {
            const GenSize *z = &c->r->size[i];
            int64_t lo = INT64_MAX, hi = 0;
            for (int f = 0; f < c->r->nfiles; f++) {
                if (z->value[f] < lo) lo = z->value[f];
                if (z->value[f] > hi) hi = z->value[f];
            }
            lo /= z->factor;
            hi /= z->factor;
            const int64_t to[TRIES] = {
                hi + 1, hi + (hi - lo),    (lo + hi) / 2, hi + 2, hi + 3, lo > 2 ? lo - 1 : hi + 5,
                2 * hi, (lo + hi) / 2 + 1, lo + 1,        hi + 4, hi + 8, 1};
            k->size[i] = (z->factor > 1 || t ? to[t] : to[t] + i % 3) * z->factor; /* not all by the same step */
        }
        if (!set_sizes(c, k->size, &e)) continue;
        for (int i = 0; i < c->r->nsize; i++) { /* those that follow from others */
            qkv_tensor in;
            int input, axis;
            first_axis(c->model->program.graph, &c->r->size[i], &input, &axis);
            if (c->r->size[i].related && input >= 0 && !qkv_session_input(c->session, input, &in, &e))
                k->size[i] = in.shape[axis];
        }
        if (qkv_session_run(c->session, &e)) {
            keep_problem(c, k, &e);
            return;
        }
        k->agrees = true;
        return;
    }
    snprintf(k->problem, sizeof k->problem, "no other sizes are allowed: %.400s", e.message);
}

/* ------------------------------------------------------------------ report */

static void put_sizes(Buf *b, const Generalized *r)
{
    jw_open(b, "sizes", '[');
    for (int i = 0; i < r->nsize; i++) {
        const GenSize *z = &r->size[i];
        jw_open(b, NULL, '{');
        jw_text(b, "name", z->related ? NULL : z->name);
        jw_put(b, "'expr': %s, 'axes': %s", z->expr, z->axes);
        jw_ints(b, "values", z->value, r->nfiles);
        jw_bool(b, "tied", z->tied);
        jw_close(b, "}");
    }
    jw_close(b, "]");
}

static void put_numbers(Buf *b, const Generalized *r, bool solved)
{
    jw_open(b, solved ? "numbers" : "unsolved", '[');
    for (int i = 0; i < r->nnumber; i++) {
        const GenSolved *n = &r->number[i];
        if ((n->expr != NULL) != solved) continue;
        jw_put(b, "{'node': %s, 'op': %s, 'argument': %s", n->node, n->op, n->argument);
        jw_texts(b, "values", n->value, n->value[0] ? r->nfiles : 0);
        if (solved) jw_put(b, "'expr': %s, 'also': %s", n->expr, n->also);
        else jw_text(b, "why", n->why);
        jw_put(b, "'places': %d}", n->places);
    }
    jw_close(b, "]");
}

static void put_checks(Buf *b, const Checks *c)
{
    jw_open(b, "checks", '[');
    for (int i = 0; i < c->n; i++) {
        const Check *k = &c->check[i];
        jw_put(b, "{'against': %s", k->against);
        jw_ints(b, "sizes", k->size, k->sized ? c->r->nsize : 0);
        jw_bool(b, "agrees", k->agrees);
        jw_number(b, "max_abs_over_peak", k->against && !k->problem[0] ? k->of_peak : NAN);
        jw_text(b, "problem", k->problem[0] ? k->problem : NULL);
        jw_close(b, "}");
    }
    jw_close(b, "]");
}

static char *report_json(const Generalized *r, const Checks *c, const char *const *name, bool solved)
{
    Buf b = {0};
    jw_report(&b);
    jw_bool(&b, "solved", solved);
    jw_texts(&b, "files", name, r->nfiles);
    put_sizes(&b, r);
    put_numbers(&b, r, true);
    put_numbers(&b, r, false);
    jw_texts(&b, "notes", r->note, r->nnote);
    put_checks(&b, c);
    jw_close(&b, "}");
    if (!b.failed) return b.data;
    buf_free(&b);
    return NULL;
}

/* ------------------------------------------------------------------ all */

static bool all_checks(Checks *c, const qkv_model *const *models, int n, const qkv_generalize_options *o, Err *err)
{
    qkv_error e = {0};
    c->session = qkv_session_create(c->model, NULL, &e);
    if (!c->session) return fail(err, E_LIMIT, "%s", e.message);
    for (int f = 0; f < n; f++) check_known(c, models[f], f);
    for (int i = 0; i < o->n_check && i < GEN_FILES; i++) check_further(c, o->check[i]);
    check_elsewhere(c);
    qkv_session_free(c->session);
    if (c->no_memory) return oom(err);
    for (int i = 0; i < c->n; i++)
        if (!c->check[i].agrees)
            return fail(err, E_MISMATCH, "checked %s%s: %s", c->check[i].against ? "against " : "at sizes of no file",
                        c->check[i].against ? c->check[i].against : "", c->check[i].problem);
    return true;
}

static bool why_not(const Generalized *r, Err *err)
{
    if (!r->nunsolved) return fail(err, E_MISMATCH, "%s", r->nnote ? r->note[0] : "sizes are left open");
    const GenSolved *n = &r->number[r->nnumber - r->nunsolved];
    return fail(err, E_MISMATCH, "%d %s not solved, the first at node '%s' (%s)%s%s: %s", r->nunsolved,
                r->nunsolved == 1 ? "difference is" : "differences are", n->node, n->op, *n->argument ? ", " : "",
                n->argument, n->why);
}

qkv_model *qkv_model_generalize(const qkv_model *const *models, int n, const qkv_generalize_options *options,
                                char **report, qkv_error *err)
{
    qkv_generalize_options o = {0};
    Err e = api_begin();
    if (report) *report = NULL;
    if (!VERSIONED_TAKE(qkv_generalize_options, n_check, &o, options, &e) || !GIVEN_LIST(models, n) ||
        !GIVEN_TEXTS(o.dims, o.n_dims) || !GIVEN_TEXTS(o.dynamic, o.n_dynamic) || !GIVEN_LIST(o.check, o.n_check))
        return api_null(&e, err);
    for (int f = 0; f < n; f++)
        if (!GIVEN(models[f])) return api_null(&e, err);
    for (int i = 0; i < o.n_check; i++)
        if (!GIVEN(o.check[i])) return api_null(&e, err);
    const Graph *graph[GEN_FILES] = {NULL};
    const char *name[GEN_FILES] = {NULL};
    for (int f = 0; f < n && f < GEN_FILES; f++) {
        graph[f] = models[f]->program.graph;
        name[f] = models[f]->path;
    }
    GeneralizeOptions g = {o.dims, o.n_dims, o.dynamic, o.n_dynamic, o.apart != 0};
    Generalized r;
    if (!generalize(graph, name, n, &g, &r, &e)) {
        api_give(&e, err);
        return NULL;
    }
    Checks *c = mem_zeroed(1, sizeof *c);
    bool ok = c != NULL || oom(&e);
    if (ok) {
        c->r = &r;
        ok = r.solved || why_not(&r, &e);
    }
    if (ok) {
        Graph *made = r.graph;
        r.graph = NULL;
        c->model = api_model_of(made, "generalized", models[0], &e);
        ok = c->model && all_checks(c, models, n, &o, &e);
    }
    if (c && report && (ok || e.code == E_MISMATCH)) {
        *report = report_json(&r, c, name, ok);
        if (!*report) ok = oom(&e);
    }
    qkv_model *model = c ? c->model : NULL;
    if (!ok) {
        qkv_model_free(model);
        model = NULL;
        api_give(&e, err);
    }
    mem_free(c);
    generalized_free(&r);
    return model;
}
