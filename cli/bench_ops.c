/* Where a run's time goes: op by op, node by node, against what the machine does at best.
 *
 *     op                        nodes       ms   share   min ms  GFLOP/s  of peak   GB/s  of reading
 *     aten.linear.default          48  165.032  91.2 %  164.120    204.2   87.6 %    3.2      14.2 %
 *     (sizes)                       1    0.004   0.0 %    0.003
 *
 * Rates are of the shortest calls, shares of the mean. Bytes are those that must move once: where they lie in a
 * cache, reading can be above what
 * memory gives.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench.h"

int ops_peak(const Loaded *m, qkv_peak *out)
{
    qkv_error e;
    qkv_stats stats = {.struct_size = sizeof stats};
    if (qkv_session_stats(m->session, &stats, &e)) return problem_of(&e);
    *out = (qkv_peak){.struct_size = sizeof *out};
    return qkv_measure_peak(stats.threads, out, &e) ? problem_of(&e) : 0;
}

/* ------------------------------------------------------------------ reading the profile */

static double number(const json_t *step, const char *key) { return json_number_value(json_object_get(step, key)); }

static OpTime time_of(const json_t *step, int64_t runs, const qkv_peak *peak)
{
    const char *arithmetic = json_string_value(json_object_get(step, "arithmetic"));
    double per_run = number(step, "calls") / (double)runs, flops = number(step, "flops") * per_run;
    double gflops = arithmetic && !strcmp(arithmetic, "bf16") ? peak->bf16_gflops : peak->f32_gflops;
    return (OpTime){.op = json_string_value(json_object_get(step, "op")),
                    .node = json_string_value(json_object_get(step, "node")),
                    .module = json_string_value(json_object_get(step, "module")),
                    .result = json_string_value(json_object_get(step, "shape")),
                    .nodes = 1,
                    .ms = number(step, "total_ms") / (double)runs,
                    .min_ms = number(step, "min_ms") * per_run,
                    .flops = flops,
                    .bytes = number(step, "bytes") * per_run,
                    .at_peak_ms = gflops > 0 ? flops / gflops / 1e6 : 0};
}

static void add(OpTime *sum, const OpTime *t)
{
    sum->nodes += t->nodes;
    sum->ms += t->ms;
    sum->min_ms += t->min_ms;
    sum->flops += t->flops;
    sum->bytes += t->bytes;
    sum->at_peak_ms += t->at_peak_ms;
}

/* "encoder.layers.0" of "encoder.layers.0.fc1": what repeats is one row. */
size_t block_of(const char *path)
{
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t digits = strspn(dot + 1, "0123456789");
        if (digits && (!dot[1 + digits] || dot[1 + digits] == '.')) return (size_t)(dot + 1 + digits - path);
    }
    return strlen(path);
}

static void add_to_module(OpProfile *p, const OpTime *t)
{
    const char *path = t->module ? t->module : "";
    size_t n = block_of(path);
    int k = 0;
    while (k < p->nmodule && (p->module[k].in != n || strncmp(p->module[k].module, path, n))) k++;
    if (k == p->nmodule) p->module[p->nmodule++] = (OpTime){.module = path, .in = n};
    add(&p->module[k], t);
}

static int slowest(const void *a, const void *b)
{
    const OpTime *x = a, *y = b;
    return x->ms == y->ms ? strcmp(x->op, y->op) : (x->ms < y->ms) - (x->ms > y->ms);
}

static void sum_up(OpProfile *p, int64_t runs)
{
    size_t i;
    json_t *step;
    bool known = false;
    json_array_foreach(p->profile, i, step)
    {
        OpTime t = time_of(step, runs, &p->peak);
        int k = 0;
        while (k < p->nop && strcmp(p->op[k].op, t.op)) k++;
        if (k == p->nop) p->op[p->nop++] = (OpTime){.op = t.op};
        add(&p->op[k], &t);
        add(&p->total, &t);
        add_to_module(p, &t);
        known |= t.module != NULL;
        p->node[p->nnode++] = t;
    }
    p->total.op = "all";
    if (!known) p->nmodule = 0;
    qsort(p->op, (size_t)p->nop, sizeof *p->op, slowest);
}

static double better(double a, double b) { return a > b ? a : b; }

int ops_finish(Loaded *m, int64_t runs, double wall_ms, OpProfile *p)
{
    qkv_error e;
    char *text = qkv_session_profile_json(m->session, &e);
    if (!text) return problem_of(&e);
    json_error_t where;
    json_t *report = json_loads(text, 0, &where);
    qkv_free(text);
    if (!report) return problem(EXIT_INTERNAL, "profile: %s", where.text);
    p->profile = json_incref(json_object_get(report, "steps"));
    json_decref(report);
    int code = ops_peak(m, &p->after);
    if (code) return code;
    p->peak = p->after;
    p->peak.f32_gflops = better(p->before.f32_gflops, p->after.f32_gflops);
    p->peak.bf16_gflops = better(p->before.bf16_gflops, p->after.bf16_gflops);
    p->peak.read_gbs = better(p->before.read_gbs, p->after.read_gbs);
    p->wall_ms = wall_ms;
    p->op = must(calloc(json_array_size(p->profile) + 1, sizeof *p->op));
    p->node = must(calloc(json_array_size(p->profile) + 1, sizeof *p->node));
    p->module = must(calloc(json_array_size(p->profile) + 1, sizeof *p->module));
    sum_up(p, runs);
    return 0;
}

void ops_free(OpProfile *p)
{
    free(p->op);
    free(p->node);
    free(p->module);
    json_decref(p->profile);
}

/* ------------------------------------------------------------------ as a table */

static double per(double x, double ms) { return ms > 0 ? x / ms / 1e6 : 0; }

static void rate(Table *t, double x, double of)
{
    if (x <= 0) {
        table_cell(t, "%s", "");
        table_cell(t, "%s", "");
        return;
    }
    table_cell(t, "%.1f", x);
    table_cell(t, "%.1f %%", 100 * of);
}

/* How a module is called: its path, the model itself, or what belongs to none. */
static void put_module(const OpTime *o, char *buf, size_t size)
{
    snprintf(buf, size, "%.*s", (int)(o->in ? o->in : size), !o->module ? "" : *o->module ? o->module : "(model)");
}

static void row(Table *t, const OpProfile *p, const OpTime *o, bool node)
{
    char module[256];
    put_module(o, module, sizeof module);
    if (node) table_cell(t, "%s", o->node);
    table_cell(t, "%s", o->op ? o->op : module);
    if (node) table_cell(t, "%s", module);
    if (node) table_cell(t, "%s", o->result);
    else table_cell(t, "%d", o->nodes);
    table_cell(t, node ? "%.4f" : "%.3f", o->ms);
    table_cell(t, "%.1f %%", p->wall_ms > 0 ? 100 * o->ms / p->wall_ms : 0);
    table_cell(t, node ? "%.4f" : "%.3f", o->min_ms);
    rate(t, per(o->flops, o->min_ms), o->min_ms > 0 ? o->at_peak_ms / o->min_ms : 0);
    rate(t, per(o->bytes, o->min_ms), p->peak.read_gbs > 0 ? per(o->bytes, o->min_ms) / p->peak.read_gbs : 0);
}

static void heading(Table *t, const char *const *words, int n)
{
    for (int i = 0; i < n; i++) table_cell(t, "%s", words[i]);
}

void ops_print(const OpProfile *p, bool nodes)
{
    static const char *const of_op[] = {"op",      "nodes",   "ms",   "share",     "min ms",
                                        "GFLOP/s", "of peak", "GB/s", "of reading"};
    static const char *const of_node[] = {"node",   "op",      "module",  "result", "ms",        "share",
                                          "min ms", "GFLOP/s", "of peak", "GB/s",   "of reading"};
    static const char *const of_module[] = {"module",  "nodes",   "ms",   "share",     "min ms",
                                            "GFLOP/s", "of peak", "GB/s", "of reading"};
    Table *t = table_new("lrrrrrrrr");
    heading(t, of_op, 9);
    for (int i = 0; i < p->nop; i++) row(t, p, &p->op[i], false);
    row(t, p, &p->total, false);
    putchar('\n');
    table_print(t);
    printf("\naccounted for %.1f %% of the wall time of these runs\n",
           p->wall_ms > 0 ? 100 * p->total.ms / p->wall_ms : 0);
    printf("peak of %d thread%s: f32 %.0f GFLOP/s (%s; before %.0f, after %.0f), bf16 %.0f (%s; %.0f, %.0f), reading "
           "%.1f GB/s (%.1f, %.1f)\n",
           p->peak.threads, p->peak.threads == 1 ? "" : "s", p->peak.f32_gflops, p->peak.f32_by, p->before.f32_gflops,
           p->after.f32_gflops, p->peak.bf16_gflops, p->peak.bf16_by, p->before.bf16_gflops, p->after.bf16_gflops,
           p->peak.read_gbs, p->before.read_gbs, p->after.read_gbs);
    if (p->nmodule) {
        t = table_new("lrrrrrrrr");
        heading(t, of_module, 9);
        for (int i = 0; i < p->nmodule; i++) row(t, p, &p->module[i], false);
        putchar('\n');
        table_print(t);
    }
    if (!nodes) return;
    t = table_new("llllrrrrrrr");
    heading(t, of_node, 11);
    for (int i = 0; i < p->nnode; i++) row(t, p, &p->node[i], true);
    putchar('\n');
    table_print(t);
}

/* ------------------------------------------------------------------ as JSON */

static json_t *json_row(const OpProfile *p, const OpTime *o)
{
    return json_pack("{s:s*, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "op", o->op, "nodes", o->nodes, "ms",
                     o->ms, "min_ms", o->min_ms, "share", p->wall_ms > 0 ? o->ms / p->wall_ms : 0, "flops", o->flops,
                     "bytes", o->bytes, "gflops", per(o->flops, o->min_ms), "share_of_peak",
                     o->min_ms > 0 ? o->at_peak_ms / o->min_ms : 0, "gbs", per(o->bytes, o->min_ms), "share_of_reading",
                     p->peak.read_gbs > 0 ? per(o->bytes, o->min_ms) / p->peak.read_gbs : 0);
}

static json_t *json_peak(const qkv_peak *p)
{
    return json_pack("{s:f, s:f, s:f, s:s, s:s}", "f32_gflops", p->f32_gflops, "bf16_gflops", p->bf16_gflops,
                     "read_gbs", p->read_gbs, "f32_by", p->f32_by, "bf16_by", p->bf16_by);
}

void ops_json(const OpProfile *p, bool nodes, json_t *into)
{
    json_t *ops = json_array(), *list = json_array(), *modules = json_array();
    for (int i = 0; i < p->nop; i++) json_array_append_new(ops, json_row(p, &p->op[i]));
    for (int i = 0; nodes && i < p->nnode; i++) {
        json_t *j = json_row(p, &p->node[i]);
        json_object_set_new(j, "node", json_text(p->node[i].node));
        json_object_set_new(j, "module", json_text(p->node[i].module));
        json_object_set_new(j, "result", json_text(p->node[i].result));
        json_array_append_new(list, j);
    }
    for (int i = 0; i < p->nmodule; i++) {
        json_t *j = json_row(p, &p->module[i]);
        json_object_set_new(j, "module", json_stringn(p->module[i].module, p->module[i].in));
        json_array_append_new(modules, j);
    }
    json_object_set_new(into, "ops", ops);
    json_object_set_new(into, "all", json_row(p, &p->total));
    json_object_set_new(into, "modules", modules);
    if (nodes) json_object_set_new(into, "per_node", list);
    else json_decref(list);
    json_object_set_new(into, "accounted", json_real(p->wall_ms > 0 ? p->total.ms / p->wall_ms : 0));
    json_object_set_new(into, "peak",
                        json_pack("{s:i, s:o, s:o}", "threads", p->peak.threads, "before", json_peak(&p->before),
                                  "after", json_peak(&p->after)));
}
