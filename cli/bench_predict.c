/* What a run would take with more threads than this machine has, layer by layer: a simulation on one thread.
 *
 *     layer             steps  loops     MB  GFLOP  measured  ms with 1      2     8    16    64
 *     encoder.layers.0      9     11   28.4    1.4     13.80      27.10  13.61  3.51  1.83  0.55
 *
 * A session with n threads runs on an executor that does the parts of each loop one after the other and reads this
 * thread's CPU time: work is split as n threads split it. A loop takes as long as its longest part, or, where parts
 * claim what others have left (the first finds all of it), an n-th of all; and what opening and closing one takes, as
 * measured here, and CALL_US for each thread that is not here. What lies outside of loops stays as long as it is.
 *
 * As many CPUs as this machine has are not n times as fast as one: they share cores, heat and memory. So for each n up
 * to them multiply-adds and reading are measured with n threads at once. Loops take as much longer as multiply-adds do,
 * and a layer that one thread reads no faster than memory at least what reading `MB` takes (what it moves at least).
 * For more threads than there are CPUs neither is known. Beside it is what the profiled runs took, with as many threads
 * as they had.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "bench.h"

static const int usual[] = {1, 2, 8, 16, 64};
static const double CALL_US = 0.1; /* a line of cache that another core writes: assumed, not measured */
enum { USUAL = sizeof usual / sizeof *usual, MOST = USUAL + 1, RUNS = 3, WARMUP = 2 };

typedef struct Layer { /* or a step */
    const char *name;
    size_t in; /* bytes of the name */
    int steps;
    long loops;
    double bytes, flops, measured, ms[MOST]; /* milliseconds: least of the runs */
} Layer;

typedef struct Simulation {
    Layer *step;
    int n, of; /* of: the step that runs; -1: none so far */
    int width[MOST], nwidth, at;
    double clock_ms, region_ms, since, saved; /* clock_ms: of reading the clock once */
    double alike[MOST], read_gbs[MOST]; /* of n CPUs at once: the rate of each beside that of one alone; 0: not known */
    double *now; /* of this run, by step */
} Simulation;

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static double clock_costs(void)
{
    enum { READS = 200 };
    double best = INFINITY;
    for (int i = 0; i < READS; i++) {
        double t = cpu_ms();
        best = fmin(best, cpu_ms() - t);
    }
    return best;
}

/* The session's own number of threads is one of them. */
static void choose_widths(Simulation *s, int threads)
{
    for (int i = 0; i < USUAL; i++) {
        if (usual[i] > threads && usual[i - 1] < threads) s->width[s->nwidth++] = threads;
        s->width[s->nwidth++] = usual[i];
    }
    if (usual[USUAL - 1] < threads) s->width[s->nwidth++] = threads;
}

/* The time of reading the clock is taken off each part. One that finds nothing left has looked at all others. */
static void simulate(void *user, int n, void (*task)(void *data, int i), void *data)
{
    Simulation *s = user;
    double first = 0, others = 0, begun = cpu_ms();
    for (int i = 0; i < n; i++) {
        double t = cpu_ms();
        task(data, i);
        t = fmax(cpu_ms() - t - s->clock_ms, 0);
        if (!i) first = t;
        else others = fmax(others, t);
    }
    double loop = (others < 0.05 * first ? first / n + others : fmax(first, others)) / s->alike[s->at];
    s->saved += cpu_ms() - begun - loop - s->region_ms;
    if (s->of >= 0 && s->of < s->n && s->width[s->at] == 2) s->step[s->of].loops++;
}

static void end_step(Simulation *s)
{
    double t = cpu_ms();
    if (s->of >= 0 && s->of < s->n) s->now[s->of] = t - s->since - s->saved;
    s->since = t;
    s->saved = 0;
}

static void on_step(void *user, const char *module, double done)
{
    Simulation *s = user;
    (void)module, (void)done;
    end_step(s);
    s->of++;
    s->since = cpu_ms();
}

static int run_once(Simulation *s, qkv_session *session)
{
    qkv_error e;
    s->of = -1;
    s->saved = 0;
    for (int i = 0; i < s->n; i++) s->step[i].loops = s->width[s->at] == 2 ? 0 : s->step[i].loops;
    if (qkv_session_run(session, &e)) return problem_of(&e);
    end_step(s);
    if (s->of + 1 != s->n) return problem(EXIT_INTERNAL, "a run has %d steps, its profile %d", s->of + 1, s->n);
    for (int i = 0; i < s->n; i++) s->step[i].ms[s->at] = fmin(s->step[i].ms[s->at], s->now[i]);
    return 0;
}

/* Layers that wait for memory, for all numbers of threads whose rate is known. */
static void hold_to_memory(Simulation *s)
{
    for (int i = 0; i < s->n; i++) {
        Layer *x = &s->step[i];
        bool cached = x->bytes > x->ms[0] * s->read_gbs[0] * 1e6;
        for (int w = 1; w < s->nwidth && !cached; w++)
            if (s->read_gbs[w] > 0) x->ms[w] = fmax(x->ms[w], x->bytes / s->read_gbs[w] / 1e6);
    }
}

/* The better of two measurements of n threads at once. */
static int rates_of(int n, double *gflops, double *read_gbs)
{
    qkv_error e;
    *gflops = *read_gbs = 0;
    for (int i = 0; i < 2; i++) {
        qkv_peak p = {.struct_size = sizeof p};
        if (qkv_measure_peak(n, &p, &e)) return problem_of(&e);
        *gflops = fmax(*gflops, p.f32_gflops);
        *read_gbs = fmax(*read_gbs, p.read_gbs);
    }
    return 0;
}

static int measure_rates(Simulation *s, int *cpus)
{
    qkv_error e;
    qkv_peak all = {.struct_size = sizeof all};
    double one = 0;
    if (qkv_measure_peak(0, &all, &e)) return problem_of(&e);
    *cpus = all.threads;
    for (int w = 0; w < s->nwidth; w++) {
        double gflops;
        int n = s->width[w];
        s->alike[w] = 1;
        if (n > *cpus) continue;
        int code = rates_of(n, &gflops, &s->read_gbs[w]);
        if (code) return code;
        if (!w) one = gflops;
        if (one > 0 && gflops > 0) s->alike[w] = fmin(gflops / n / one, 1);
    }
    return 0;
}

static int run_width(Simulation *s, const Loaded *m, const qkv_session_options *like)
{
    qkv_error e;
    qkv_executor executor = {sizeof executor, simulate, s};
    qkv_session_options o = *like;
    o.threads = s->width[s->at];
    o.executor = &executor;
    Loaded own = {.model = m->model, .session = qkv_session_create(m->model, &o, &e)};
    if (!own.session) return problem_of(&e);
    int code = inputs_share(m, &own);
    for (int i = 0; !code && i < WARMUP; i++)
        if (qkv_session_run(own.session, &e)) code = problem_of(&e);
    qkv_session_on_progress(own.session, on_step, s);
    for (int i = 0; !code && i < RUNS; i++) code = run_once(s, own.session);
    qkv_session_free(own.session);
    return code;
}

static void add(Layer *to, const Layer *x)
{
    to->steps++;
    to->loops += x->loops;
    to->bytes += x->bytes;
    to->flops += x->flops;
    to->measured += x->measured;
    for (int w = 0; w < MOST; w++) to->ms[w] += x->ms[w];
}

static void row(Table *t, const Simulation *s, const Layer *l)
{
    table_cell(t, "%.*s", l->in ? (int)l->in : 7, l->in ? l->name : "(model)");
    table_cell(t, "%d", l->steps);
    table_cell(t, "%ld", l->loops);
    table_cell(t, "%.1f", l->bytes / 1e6);
    table_cell(t, "%.2f", l->flops / 1e9);
    table_cell(t, "%.3f", l->measured);
    for (int w = 0; w < s->nwidth; w++) table_cell(t, "%.3f", l->ms[w]);
}

/* least_ms: of the runs that were measured. */
static void print(const Simulation *s, const qkv_peak *peak, double least_ms, int cpus)
{
    Table *t = table_new(s->nwidth == USUAL ? "lrrrrrrrrrr" : "lrrrrrrrrrrr");
    Layer all = {.name = "all", .in = 3}, *layer = must(calloc((size_t)s->n + 1, sizeof *layer));
    static const char *const words[] = {"layer", "steps", "loops", "MB", "GFLOP", "measured"};
    int n = 0, own = 0;
    for (int i = 0; i < 6; i++) table_cell(t, "%s", words[i]);
    for (int w = 0; w < s->nwidth; w++) table_cell(t, "%s%d", w ? "" : "ms with ", s->width[w]);
    for (int i = 0; i < s->n; i++) {
        const Layer *x = &s->step[i];
        int k = 0;
        while (k < n && (layer[k].in != x->in || strncmp(layer[k].name, x->name, x->in))) k++;
        if (k == n) layer[n++] = (Layer){.name = x->name, .in = x->in};
        add(&layer[k], x);
        add(&all, x);
    }
    for (int k = 0; k < n; k++) row(t, s, &layer[k]);
    row(t, s, &all);
    while (s->width[own] != peak->threads) own++;
    putchar('\n');
    table_print(t);
    free(layer);
    printf("\n%d thread%s: simulated %.3f ms, measured %.3f in the quickest run: %+.1f %%\n", peak->threads,
           peak->threads == 1 ? "" : "s", all.ms[own], least_ms, (all.ms[own] / least_ms - 1) * 100);
    for (int w = 1; w < s->nwidth; w++)
        if (s->width[w] <= cpus)
            printf("%d at once: each has %.0f %% of one thread's multiply-adds; %.1f GB/s read together\n", s->width[w],
                   100 * s->alike[w], s->read_gbs[w]);
    if (s->width[s->nwidth - 1] > cpus)
        printf("more than %d: as if each CPU were as fast as one alone, and memory as fast as it takes\n", cpus);
    printf("simulated on one thread. Measured with %d: %.1f GB/s read; ", peak->threads, peak->read_gbs);
    if (peak->region_us > 0) printf("%.1f us to open and close a loop\n", peak->region_us);
    else printf("to open and close a loop is left out: the others had no CPU\n");
}

/* The profile's steps in their order, without what is not a step: "(sizes)". */
static void take_steps(Simulation *s, const OpProfile *p)
{
    s->step = must(calloc((size_t)p->nnode + 1, sizeof *s->step));
    s->now = must(calloc((size_t)p->nnode + 1, sizeof *s->now));
    for (int i = 0; i < p->nnode; i++) {
        const OpTime *o = &p->node[i];
        if (*o->op == '(') continue;
        Layer *x = &s->step[s->n++];
        *x = (Layer){.name = o->module ? o->module : "", .bytes = o->bytes, .flops = o->flops, .measured = o->min_ms};
        x->in = block_of(x->name);
        for (int w = 0; w < s->nwidth; w++) x->ms[w] = INFINITY;
    }
}

int predict(const Loaded *m, const qkv_session_options *like, const OpProfile *p, double least_ms)
{
    Simulation s = {.of = -1, .clock_ms = clock_costs()};
    int threads = p->peak.threads, cpus = 0;
    choose_widths(&s, threads);
    take_steps(&s, p);
    int code = measure_rates(&s, &cpus);
    for (s.at = 0; !code && s.at < s.nwidth; s.at++) {
        int more = s.width[s.at] - threads;
        s.region_ms = s.at ? (p->peak.region_us + (more > 0 ? more * CALL_US : 0)) * 1e-3 : 0;
        code = run_width(&s, m, like);
    }
    if (!code) hold_to_memory(&s);
    if (!code) print(&s, &p->peak, least_ms, cpus);
    free(s.step);
    free(s.now);
    return code;
}
