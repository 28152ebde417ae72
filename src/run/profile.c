/* Clock readings of a session's runs. Contract in profile.h. */
#include "run/profile.h"
#include <math.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "base/vec.h"

static const struct {
    const char *name, *what;
} parts[PARTS] = {
    [PART_INPUTS] = {"(inputs)", "checking inputs, copying those that are not contiguous"},
    [PART_SIZES] = {"(sizes)", "sizes from the inputs, conditions on them, data-dependent sizes"},
    [PART_PLAN] = {"(plan)", "finding or making the plan, memory, addresses"},
    [PART_BUFFERS] = {"(buffers)", "writing the buffers that the model changes"},
    [PART_PROFILE] = {"(profile)", "the profile itself: describing a step that is seen the first time"},
};

const char *part_name(Part p) { return parts[p].name; }
const char *part_what(Part p) { return parts[p].what; }

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void profile_free(Profile *p)
{
    for (int i = 0; i < p->ninfo; i++) {
        mem_free(p->info[i].operands);
        mem_free(p->info[i].result);
    }
    lookup_free(&p->of);
    mem_free(p->info);
    mem_free(p->event);
    *p = (Profile){0};
}

void profile_sums(Profile *p, bool on)
{
    p->sums = on;
    p->runs = 0;
    for (int i = 0; i < p->ninfo; i++) p->info[i].calls = 0;
    for (int i = 0; i < PARTS; i++) {
        p->part_ms[i] = 0;
        p->part_min[i] = INFINITY;
    }
}

bool profile_trace(Profile *p, int64_t n, Err *err)
{
    mem_free(p->event);
    p->event = n > 0 ? mem_zeroed((size_t)n, sizeof *p->event) : NULL;
    p->cap_events = p->event ? n : 0;
    p->nevents = p->dropped = 0;
    p->origin = now_ms();
    return n <= 0 || p->event || fail(err, E_LIMIT, "out of memory: a trace of %lld events", (long long)n);
}

/* ------------------------------------------------------------------ what a step is */

static void add_tensor(char *text, size_t n, const Tensor *t)
{
    char one[256];
    size_t at = strlen(text);
    if (!t || at + 1 >= n) return;
    const char *s = tensor_describe(t, one, sizeof one);
    if (at + strlen(s) + 2 > n) return;
    if (at) text[at++] = ' ';
    memcpy(text + at, s, strlen(s) + 1);
}

/* A step like it in another plan, or in one that is gone: its index, or -1. */
static int known(const Profile *p, const Node *node, const char *operands, uint64_t hash)
{
    size_t tried = 0;
    int64_t i;
    while ((i = lookup_next(&p->of, hash, &tried)) >= 0)
        if (p->info[i].computes == node && !strcmp(p->info[i].operands, operands)) return (int)i;
    return -1;
}

/* The index of the step's description, made the first time that the step is seen; -1 when there is no memory for it. */
static int describe(Profile *p, Step *step)
{
    if (step->info) return step->info - 1;
    const Call *c = &step->call;
    char operands[1024] = "", result[1024] = "";
    for (int i = 0; i < c->node->op->schema->nparams; i++) {
        const CallArg *a = &c->arg[i];
        if (a->kind == ARG_VALUE) add_tensor(operands, sizeof operands, a->t);
        for (int k = 0; a->kind == ARG_VALUES && k < a->n; k++) add_tensor(operands, sizeof operands, a->ts[k]);
    }
    for (int i = 0; i < c->nout; i++) add_tensor(result, sizeof result, c->out[i]);
    uint64_t hash = hash_bytes(operands, strlen(operands)) ^ hash_bytes(&c->node, sizeof(const Node *));
    int at = known(p, c->node, operands, hash);
    if (at >= 0) return step->info = at + 1, at;
    StepInfo *more = vec_grow(p->info, p->ninfo, sizeof *more);
    if (!more) return -1;
    p->info = more;
    StepInfo info = {.node = step->node->name,
                     .module = step->node->module ? step->node->module->path : NULL,
                     .op = c->node->op->name,
                     .operands = mem_strdup(operands),
                     .result = mem_strdup(result),
                     .dtype = c->nout && c->out[0] ? dtype_name(c->out[0]->dtype) : "",
                     .work = work_of(c),
                     .computes = c->node};
    if (!info.operands || !info.result || !lookup_add(&p->of, hash, (size_t)p->ninfo)) {
        mem_free(info.operands);
        mem_free(info.result);
        return -1;
    }
    p->info[p->ninfo] = info;
    step->info = ++p->ninfo;
    return p->ninfo - 1;
}

/* ------------------------------------------------------------------ readings */

static void keep(Profile *p, double start, double ms, int what)
{
    if (p->nevents < p->cap_events) p->event[p->nevents++] = (TraceEvent){start - p->origin, ms, what};
    else if (p->cap_events) p->dropped++;
}

void profile_begin(Profile *p)
{
    if (!profile_is_on(p)) return;
    memset(p->part_run, 0, sizeof p->part_run);
    p->last = p->run_start = now_ms();
}

/* The time since the last reading. */
static double reading(Profile *p, double *start)
{
    double now = now_ms(), ms = now - p->last;
    *start = p->last;
    p->last = now;
    return ms;
}

void profile_part(Profile *p, Part part)
{
    double start;
    if (!profile_is_on(p)) return;
    double ms = reading(p, &start);
    p->part_run[part] += ms;
    keep(p, start, ms, -1 - (int)part);
}

void profile_step(Profile *p, Step *step)
{
    double start;
    if (!profile_is_on(p)) return;
    double ms = reading(p, &start);
    bool first = !step->info;
    int info = describe(p, step);
    if (info >= 0) keep(p, start, ms, info);
    if (p->sums && info >= 0) {
        StepInfo *t = &p->info[info];
        t->min_ms = t->calls && t->min_ms < ms ? t->min_ms : ms;
        t->ms = t->calls ? t->ms + ms : ms;
        t->calls++;
    }
    if (first) profile_part(p, PART_PROFILE);
}

void profile_end(Profile *p)
{
    if (!profile_is_on(p)) return;
    for (int i = 0; p->sums && i < PARTS; i++) {
        p->part_ms[i] += p->part_run[i];
        if (p->part_run[i] < p->part_min[i]) p->part_min[i] = p->part_run[i];
    }
    p->runs += p->sums;
    keep(p, p->run_start, p->last - p->run_start, TRACE_RUN);
}
