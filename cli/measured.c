/* Where the time and memory of a model's runs go, for the page: the profile of several runs, the timeline of the
 * fastest one, the machine's peak, and what the arena holds.
 *
 *     {"file": .., "inputs": [..], "threads": 2, "runs": 5, "min_ms": 3.1, "steps": [..], "flame": [[0, 0.01, 0.2],
 *      ..], "peak": {..}, "memory": {..}}            flame: index of a step or -1, start and duration in ms
 */
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

/* The index of the step that an event is of, looking on from where the last one was found; -1: none. */
static json_int_t step_of(const json_t *steps, const json_t *event, size_t *from)
{
    size_t n = json_array_size(steps);
    const char *node = text_at(event, "name"), *op = text_at(event, "cat");
    for (size_t i = 0; i < n; i++) {
        const json_t *step = json_array_get(steps, (*from + i) % n);
        if (strcmp(text_at(step, "node"), node) || strcmp(text_at(step, "op"), op)) continue;
        json_int_t found = (json_int_t)((*from + i) % n);
        *from = (*from + i + 1) % n;
        return found;
    }
    return -1;
}

static double number_at(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* The pieces of the fastest run in a trace. */
static json_t *fastest_run(const json_t *trace, const json_t *steps)
{
    const json_t *events = json_object_get(trace, "traceEvents");
    json_t *flame = json_array(), *event;
    size_t i, from = 0;
    double start = 0, end = 0, best = -1;
    json_array_foreach(events, i, event)
    {
        if (strcmp(text_at(event, "cat"), "run")) continue;
        double ms = number_at(event, "dur");
        if (best >= 0 && ms >= best) continue;
        best = ms;
        start = number_at(event, "ts");
        end = start + ms;
    }
    json_array_foreach(events, i, event)
    {
        double ts = number_at(event, "ts");
        if (strcmp(text_at(event, "ph"), "X") || !strcmp(text_at(event, "cat"), "run") || ts < start || ts >= end)
            continue;
        json_int_t step = strcmp(text_at(event, "cat"), "session") ? step_of(steps, event, &from) : -1;
        json_array_append_new(flame, json_pack("[I, f, f]", step, (ts - start) / 1e3, number_at(event, "dur") / 1e3));
    }
    return flame;
}

static int timeline(Loaded *m, const json_t *steps, json_t **out)
{
    qkv_error e;
    char *text = qkv_session_trace_json(m->session, &e);
    if (!text) return problem_of(&e);
    json_t *trace = parsed(text);
    int code = trace ? 0 : problem(EXIT_INTERNAL, "the trace cannot be read");
    if (!code) *out = fastest_run(trace, steps);
    json_decref(trace);
    qkv_session_trace(m->session, 0, &e);
    return code;
}

static int run_once(Loaded *m, double *ms)
{
    qkv_error e;
    double start = now_ms();
    if (qkv_session_run(m->session, &e)) return problem_of(&e);
    start = now_ms() - start;
    if (*ms < 0 || start < *ms) *ms = start;
    return 0;
}

static json_t *peak_of(const qkv_peak *p)
{
    return json_pack("{s:i, s:f, s:f, s:f, s:s, s:s}", "threads", p->threads, "f32_gflops", p->f32_gflops,
                     "bf16_gflops", p->bf16_gflops, "read_gbs", p->read_gbs, "f32_by", p->f32_by, "bf16_by",
                     p->bf16_by);
}

int measured(Loaded *m, int64_t runs, json_t **out)
{
    enum { WARM = 3 };       /* the first plans, the second packs weights */
    const double most = 1e4; /* ms after which no further run begins, but for one of each kind */
    qkv_error e;
    qkv_stats stats = {.struct_size = sizeof stats};
    qkv_peak peak = {.struct_size = sizeof peak};
    json_t *profile = NULL, *flame = NULL;
    double warm = -1, best = -1, start = now_ms();
    int64_t done = 0;
    int code = 0;
    for (int i = 0; i < WARM && !code && (!i || now_ms() - start < most); i++) code = run_once(m, &warm);
    if (code) return code;
    qkv_session_profile(m->session, 1);
    code = trace_start("", m, runs);
    for (; done < runs && !code && (!done || now_ms() - start < most); done++) code = run_once(m, &best);
    if (!code && !(profile = parsed(qkv_session_profile_json(m->session, &e)))) code = problem_of(&e);
    json_t *steps = json_object_get(profile, "steps");
    if (!code) code = timeline(m, steps, &flame);
    qkv_session_profile(m->session, 0);
    if (!code && qkv_session_stats(m->session, &stats, &e)) code = problem_of(&e);
    if (!code && qkv_measure_peak(stats.threads, &peak, &e)) code = problem_of(&e);
    json_t *memory = code ? NULL : parsed(qkv_session_memory_json(m->session, &e));
    if (!code && !memory) code = problem_of(&e);
    if (!code)
        *out = json_pack("{s:o, s:i, s:I, s:f, s:O, s:O, s:o, s:o, s:f, s:f}", "inputs", inputs_of(m), "threads",
                         stats.threads, "runs", (json_int_t)done, "min_ms", best, "steps", steps, "flame", flame,
                         "peak", peak_of(&peak), "memory", memory, "packed_bytes", (double)stats.packed_bytes,
                         "constant_bytes", (double)stats.constant_bytes);
    json_decref(profile);
    json_decref(flame);
    return code;
}
