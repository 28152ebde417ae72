/* Where the time and memory of a model's runs go, for the page: the profile of several runs, the timeline of the
 * fastest one, the machine's peak, and what the arena holds.
 *
 *     {"file": .., "inputs": [..], "threads": 2, "runs": 5, "min_ms": 3.1, "steps": [..], "flame": [[0, 0.01, 0.2],
 *      ..], "peak": {..}, "memory": {..}}            flame: index of a step or -1, start and duration in ms
 */
#include <stdlib.h>
#include <string.h>
#include "page.h"

static json_t *inputs_of(const Loaded *m)
{
    json_t *list = json_array();
    qkv_tensor t;
    for (int i = 0; i < qkv_model_input_count(m->model); i++)
        if (!qkv_session_input(m->session, i, &t, NULL))
            json_array_append_new(list,
                                  json_pack("{s:o, s:s, s:o}", "name", json_text(qkv_model_input_name(m->model, i)),
                                            "dtype", qkv_dtype_name(t.dtype), "shape", json_shape(&t)));
    return list;
}

typedef struct Piece {
    const char *at;
    size_t n;
} Piece;

static Piece member(const char *object, const char *key)
{
    Piece p;
    p.at = report_member(object, key, &p.n);
    return p;
}

static bool same(Piece a, Piece b) { return a.n == b.n && !memcmp(a.at, b.at, a.n); }
static bool is(Piece a, const char *text) { return same(a, (Piece){text, strlen(text)}); }

static double number_of(Piece p)
{
    json_t *v = report_next(&p.at);
    double d = json_number_value(v);
    json_decref(v);
    return d;
}

typedef struct Steps {
    struct {
        Piece node, op;
    } *of;
    size_t n, from; /* from: where the one is looked for that is next */
} Steps;

static Steps steps_of(const char *profile)
{
    const char *at;
    Steps s = {.n = report_list(profile, "steps", &at)};
    s.of = must(calloc(s.n + 1, sizeof *s.of));
    for (size_t i = 0; i < s.n; i++) {
        const char *step = report_skip(&at);
        s.of[i].node = member(step, "node");
        s.of[i].op = member(step, "op");
    }
    return s;
}

/* The index of the step that an event is of; -1: none. */
static json_int_t step_of(Steps *s, Piece node, Piece op)
{
    for (size_t i = 0; i < s->n; i++) {
        size_t k = (s->from + i) % s->n;
        if (!same(s->of[k].node, node) || !same(s->of[k].op, op)) continue;
        s->from = (k + 1) % s->n;
        return (json_int_t)k;
    }
    return -1;
}

/* The pieces of the run in a trace: its own event is the first. */
static void put_flame(Page *p, const char *trace, Steps *steps)
{
    const char *at;
    double start = 0;
    page_open(p, "flame", '[');
    for (size_t left = report_list(trace, "traceEvents", &at); left; left--) {
        const char *event = report_skip(&at);
        if (!is(member(event, "ph"), "\"X\"")) continue;
        Piece category = member(event, "cat");
        double ts = number_of(member(event, "ts"));
        if (is(category, "\"run\"")) start = ts;
        else {
            json_int_t step = is(category, "\"session\"") ? -1 : step_of(steps, member(event, "name"), category);
            page_value(p, NULL,
                       json_pack("[I, f, f]", step, (ts - start) / 1e3, number_of(member(event, "dur")) / 1e3));
        }
    }
    page_close(p, "]");
}

typedef struct Measured {
    double min_ms;
    int64_t runs;
    char *trace, *profile; /* of the fastest run; of all */
} Measured;

static int run_once(Loaded *m, double *ms)
{
    qkv_error e;
    double start = now_ms();
    if (qkv_session_run(m->session, &e)) return problem_of(&e);
    *ms = now_ms() - start;
    return 0;
}

/* The fastest of the runs and its trace, which is kept alone: a node takes half a kilobyte of it. */
static int time_runs(Loaded *m, int64_t runs, double most, Measured *to)
{
    qkv_error e;
    double start = now_ms(), ms;
    int code = 0;
    for (; to->runs < runs && !code && (!to->runs || now_ms() - start < most); to->runs++) {
        if ((code = trace_start("", m, 1)) || (code = run_once(m, &ms))) break;
        if (to->trace && ms >= to->min_ms) continue;
        to->min_ms = ms;
        qkv_free(to->trace);
        if (!(to->trace = qkv_session_trace_json(m->session, &e))) code = problem_of(&e);
    }
    qkv_session_trace(m->session, 0, &e);
    return code;
}

static json_t *peak_of(const qkv_peak *p)
{
    return json_pack("{s:i, s:f, s:f, s:f, s:s, s:s}", "threads", p->threads, "f32_gflops", p->f32_gflops,
                     "bf16_gflops", p->bf16_gflops, "read_gbs", p->read_gbs, "f32_by", p->f32_by, "bf16_by",
                     p->bf16_by);
}

/* All that is told of the runs but what else the memory holds. */
static void put_runs(Page *p, const Loaded *m, const char *file, int threads, const Measured *of)
{
    page_open(p, NULL, '{');
    page_value(p, "inputs", inputs_of(m));
    page_value(p, "threads", json_integer(threads));
    page_value(p, "runs", json_integer((json_int_t)of->runs));
    page_value(p, "min_ms", json_real(of->min_ms));
    page_steps(p, file, of->profile);
    Steps steps = steps_of(of->profile);
    put_flame(p, of->trace, &steps);
    free(steps.of);
}

int measure_machine(const ModelOptions *o, qkv_peak *out)
{
    qkv_error e;
    *out = (qkv_peak){.struct_size = sizeof *out};
    return qkv_measure_peak((int)o->threads, out, &e) ? problem_of(&e) : 0;
}

int measured(Page *p, Loaded *m, const Measuring *how)
{
    enum { WARM = 3 };       /* the first plans, the second packs weights */
    const double most = 1e4; /* ms after which no further run begins, but for one of each kind */
    qkv_error e;
    qkv_stats stats = {.struct_size = sizeof stats};
    Measured of = {0};
    double start = now_ms(), ms;
    int code = 0;
    for (int i = 0; i < WARM && !code && (!i || now_ms() - start < most); i++) code = run_once(m, &ms);
    if (code) return code;
    qkv_session_profile(m->session, 1);
    code = time_runs(m, how->runs, most - (now_ms() - start), &of);
    if (!code && !(of.profile = qkv_session_profile_json(m->session, &e))) code = problem_of(&e);
    qkv_session_profile(m->session, 0);
    if (!code && qkv_session_stats(m->session, &stats, &e)) code = problem_of(&e);
    if (!code) put_runs(p, m, how->file, stats.threads, &of);
    qkv_free(of.trace);
    qkv_free(of.profile);
    if (code) return code;
    page_value(p, "peak", peak_of(&how->peak));
    code = page_report(p, "memory", qkv_session_memory_json(m->session, &e), &e);
    page_value(p, "packed_bytes", json_real((double)stats.packed_bytes));
    page_value(p, "constant_bytes", json_real((double)stats.constant_bytes));
    page_value(p, "file", json_text(how->file));
    page_value(p, "dtype", json_string(how->dtype));
    page_close(p, "}");
    return code;
}
