/* Profiles, traces and the machine's peak, as the public interface has them. Contracts in include/qkv_tools.h. */
#include <stdio.h>
#include <string.h>
#include "api/api_impl.h"
#include "base/mem.h"
#include "base/jsonw.h"
#include "base/file.h"
#include "run/peak.h"
#include "run/session.h"
#include "team/team.h"

/* ------------------------------------------------------------------ profile */

void qkv_session_profile(qkv_session *s, int on)
{
    if (!api_enter_silent(s)) return;
    session_profile(api_session(s), on != 0);
    api_leave(s);
}

static void put_row(Buf *b, const char *node, const char *op, const char *result, long calls, double ms, double min_ms)
{
    if (b->len && b->data[b->len - 1] == '}') jw_line(b);
    jw_put(b, "{'node': %s, 'op': %s, 'shape': %s, 'calls': %ld, 'total_ms': %.6f, 'min_ms': %.6f", node, op, result,
           calls, ms, min_ms); /* the clock counts nanoseconds */
}

static void put_step(void *user, const StepInfo *i)
{
    Buf *b = user;
    put_row(b, i->node, i->op, i->result, i->calls, i->ms, i->min_ms);
    jw_put(b, "'module': %s, 'operands': %s, 'arithmetic': %s, 'flops': %g, 'bytes': %g}", i->module, i->operands,
           i->work.half ? "bf16" : "f32", i->work.flops, i->work.bytes);
}

char *qkv_session_profile_json(const qkv_session *s, qkv_error *err)
{
    Err e = api_begin();
    if (!api_enter(s, &e)) return api_null(&e, err);
    const Profile *p = session_profile_of(api_session(s));
    Buf b = {0};
    jw_report(&b);
    jw_open(&b, "steps", '[');
    session_each_step(api_session(s), put_step, &b);
    for (int i = 0; i < PARTS && p->runs; i++) {
        if (p->part_ms[i] <= 0) continue;
        put_row(&b, "", part_name((Part)i), "", p->runs, p->part_ms[i], p->part_min[i]);
        jw_close(&b, "}");
    }
    jw_close(&b, "]}");
    if (b.failed) oom(&e);
    if (api_done(s, !b.failed, &e, err) == QKV_OK) return b.data;
    buf_free(&b);
    return NULL;
}

/* ------------------------------------------------------------------ trace */

qkv_status qkv_session_trace(qkv_session *s, int64_t events, qkv_error *err)
{
    Err e = api_begin();
    if (!api_enter(s, &e)) return api_give(&e, err);
    return api_done(s, profile_trace(session_profile_of(api_session(s)), events, &e), &e, err);
}

/* "Complete" events of the Trace Event Format: microseconds, and what is known of the piece as args. */
static void put_event(Buf *b, const Profile *p, const TraceEvent *t, int run)
{
    const StepInfo *i = t->what >= 0 ? &p->info[t->what] : NULL;
    Part part = t->what < 0 && t->what != TRACE_RUN ? (Part)(-1 - t->what) : PARTS;
    char name[32];
    snprintf(name, sizeof name, "run %d", run);
    const char *what = i ? i->node : part < PARTS ? part_name(part) : name;
    const char *category = i ? i->op : part < PARTS ? "session" : "run";
    buf_puts(b, ",\n");
    jw_put(b, "{'ph': 'X', 'pid': 1, 'tid': 1, 'name': %s, 'cat': %s, 'ts': %.3f, 'dur': %.3f, 'args': {", what,
           category, t->start * 1e3, t->ms * 1e3);
    if (i) {
        jw_put(b, "'node': %s, 'op': %s, 'module': %s", i->node, i->op, i->module);
        jw_put(b, "'operands': %s, 'result': %s, 'dtype': %s, 'arithmetic': %s", i->operands, i->result, i->dtype,
               i->work.half ? "bf16" : "f32");
        jw_put(b, "'flops': %g, 'bytes': %g, 'GFLOP/s': %g, 'GB/s': %g", i->work.flops, i->work.bytes,
               t->ms > 0 ? i->work.flops / t->ms / 1e6 : 0, t->ms > 0 ? i->work.bytes / t->ms / 1e6 : 0);
    } else if (part < PARTS) jw_text(b, "what", part_what(part));
    jw_close(b, "}}");
}

static void put_head(Buf *b, const Profile *p, int threads)
{
    jw_put(b, "{'displayTimeUnit': 'ms', 'otherData': {'version': %s, 'cpu': %s, 'threads': %d, 'dropped': %lld}",
           qkv_version(), qkv_cpu(), threads, (long long)p->dropped);
    jw_line(b);
    jw_open(b, "traceEvents", '[');
    jw_line(b);
    jw_put(b, "{'ph': 'M', 'pid': 1, 'name': 'process_name', 'args': {'name': 'qkv'}}");
    jw_line(b);
    jw_put(b, "{'ph': 'M', 'pid': 1, 'tid': 1, 'name': 'thread_name', 'args': {'name': 'session'}}");
}

/* Without a file, the text stays where it is. */
static bool flush(Buf *b, OutFile *f, Err *err)
{
    if (b->failed) return oom(err);
    if (!f) return true;
    bool ok = outfile_write(f, b->data, b->len, err);
    b->len = 0;
    return ok;
}

/* A run's own event was kept when it ended, after its pieces: it goes before them, so that starts never fall. */
static bool write_events(const Profile *p, Buf *b, OutFile *f, Err *err)
{
    int run = 0;
    for (int64_t from = 0, to; from < p->nevents; from = to) {
        for (to = from; to < p->nevents && p->event[to].what != TRACE_RUN; to++) {
        }
        if (to < p->nevents) put_event(b, p, &p->event[to], ++run);
        for (int64_t i = from; i < to; i++) put_event(b, p, &p->event[i], run);
        to += to < p->nevents;
        TRY(flush(b, f, err));
    }
    return true;
}

static bool write_trace(const qkv_session *s, Buf *b, OutFile *f, Err *err)
{
    const Profile *p = session_profile_of(api_session(s));
    SessionStats stats;
    session_stats(api_session(s), &stats);
    put_head(b, p, stats.threads);
    TRY(flush(b, f, err) && write_events(p, b, f, err));
    buf_puts(b, "\n]}\n");
    return flush(b, f, err);
}

static bool is_traced(const qkv_session *s, Err *err)
{
    return session_profile_of(api_session(s))->cap_events || fail(err, E_USAGE, "no trace was switched on");
}

qkv_status qkv_session_trace_write(const qkv_session *s, const char *path, qkv_error *err)
{
    Err e = api_begin();
    Buf b = {0};
    if (!GIVEN(path) || !api_enter(s, &e)) return api_give(&e, err);
    if (!is_traced(s, &e)) return api_done(s, within(&e, "%s", path), &e, err);
    OutFile *f = outfile_open(path, &e);
    bool ok = f && write_trace(s, &b, f, &e);
    buf_free(&b);
    return api_done(s, ok ? outfile_commit(f, &e) : (outfile_abort(f), false), &e, err);
}

char *qkv_session_trace_json(const qkv_session *s, qkv_error *err)
{
    Err e = api_begin();
    Buf b = {0};
    if (!api_enter(s, &e)) return api_null(&e, err);
    if (api_done(s, is_traced(s, &e) && write_trace(s, &b, NULL, &e), &e, err) == QKV_OK) return b.data;
    buf_free(&b);
    return NULL;
}

/* ------------------------------------------------------------------ peak */

qkv_status qkv_measure_peak(int threads, qkv_peak *out, qkv_error *err)
{
    Err e = api_begin();
    Peak p;
    if (!GIVEN(out) || !VERSIONED_WANTED(qkv_peak, bf16_by, out, &e)) return api_give(&e, err);
    if (threads < 1) threads = team_default();
    if (!peak_measure(threads, &p, &e)) return api_give(&e, err);
    qkv_peak all = {.threads = threads,
                    .f32_gflops = p.f32_gflops,
                    .bf16_gflops = p.bf16_gflops,
                    .read_gbs = p.read_gbs,
                    .f32_by = p.f32_by,
                    .bf16_by = p.bf16_by,
                    .region_us = p.region_us};
    versioned_give(out, &all, sizeof all);
    return QKV_OK;
}
