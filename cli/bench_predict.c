/* What a run would take with more threads than this machine has, layer by layer: a simulation on one thread.
 *
 *     layer             steps  loops     MB  GFLOP  1 thread     2     8    16    64
 *     encoder.layers.0      9     11   28.4    1.4     27.10 13.61  3.51  1.83  0.55
 *
 * A session with n threads runs on an executor that does the parts of each loop one after the other and reads this
 * thread's CPU time: work is split as n threads split it. A loop takes as long as its longest part, or, where parts
 * claim what others have left (the first finds all of it), an n-th of all; and what opening and closing one takes, as
 * measured here, and CALL_US for each thread that is not here. What lies outside of loops stays as long as it is.
 * Memory is not simulated: `MB` says what a layer moves at least, to be held against a machine's rate.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "bench.h"

static const int widths[] = {1, 2, 8, 16, 64};
static const double CALL_US = 0.1; /* a line of cache that another core writes: assumed, not measured */
enum { WIDTHS = sizeof widths / sizeof *widths, RUNS = 3, WARMUP = 2 };

typedef struct Layer { /* or a step */
    const char *name;
    size_t in; /* bytes of the name */
    int steps;
    long loops;
    double bytes, flops, ms[WIDTHS]; /* ms: least of the runs */
} Layer;

typedef struct Simulation {
    Layer *step;
    int n, of; /* of: the step that runs; -1: none so far */
    int width; /* of widths */
    double region_ms, since, saved;
    double *now; /* of this run, by step */
} Simulation;

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void simulate(void *user, int n, void (*task)(void *data, int i), void *data)
{
    Simulation *s = user;
    double first = 0, longest = 0, sum = 0, begun = cpu_ms();
    for (int i = 0; i < n; i++) {
        double t = cpu_ms();
        task(data, i);
        t = cpu_ms() - t;
        if (!i) first = t;
        sum += t;
        longest = t > longest ? t : longest;
    }
    bool claimed = sum - first < 0.05 * first;
    s->saved += cpu_ms() - begun - (claimed ? first / n : longest) - s->region_ms;
    if (s->of >= 0 && s->of < s->n && widths[s->width] == 2) s->step[s->of].loops++;
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
    for (int i = 0; i < s->n; i++) s->step[i].loops = widths[s->width] == 2 ? 0 : s->step[i].loops;
    if (qkv_session_run(session, &e)) return problem_of(&e);
    end_step(s);
    if (s->of + 1 != s->n) return problem(EXIT_INTERNAL, "a run has %d steps, its profile %d", s->of + 1, s->n);
    for (int i = 0; i < s->n; i++) s->step[i].ms[s->width] = fmin(s->step[i].ms[s->width], s->now[i]);
    return 0;
}

static int run_width(Simulation *s, const Loaded *m, const qkv_session_options *like)
{
    qkv_error e;
    qkv_executor executor = {sizeof executor, simulate, s};
    qkv_session_options o = *like;
    o.threads = widths[s->width];
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
    for (int w = 0; w < WIDTHS; w++) to->ms[w] += x->ms[w];
}

static void row(Table *t, const Layer *l)
{
    table_cell(t, "%.*s", l->in ? (int)l->in : 7, l->in ? l->name : "(model)");
    table_cell(t, "%d", l->steps);
    table_cell(t, "%ld", l->loops);
    table_cell(t, "%.1f", l->bytes / 1e6);
    table_cell(t, "%.2f", l->flops / 1e9);
    for (int w = 0; w < WIDTHS; w++) table_cell(t, "%.3f", l->ms[w]);
}

static void print(const Simulation *s, const qkv_peak *peak)
{
    Table *t = table_new("lrrrrrrrrr");
    Layer all = {.name = "all", .in = 3}, *layer = must(calloc((size_t)s->n + 1, sizeof *layer));
    static const char *const words[] = {"layer", "steps", "loops", "MB", "GFLOP"};
    int n = 0;
    for (int i = 0; i < 5; i++) table_cell(t, "%s", words[i]);
    for (int w = 0; w < WIDTHS; w++) table_cell(t, "%s%d", w ? "" : "ms with ", widths[w]);
    for (int i = 0; i < s->n; i++) {
        const Layer *x = &s->step[i];
        int k = 0;
        while (k < n && (layer[k].in != x->in || strncmp(layer[k].name, x->name, x->in))) k++;
        if (k == n) layer[n++] = (Layer){.name = x->name, .in = x->in};
        add(&layer[k], x);
        add(&all, x);
    }
    for (int k = 0; k < n; k++) row(t, &layer[k]);
    row(t, &all);
    putchar('\n');
    table_print(t);
    free(layer);
    printf("\nsimulated on one thread. Measured with %d: %.1f GB/s read; ", peak->threads, peak->read_gbs);
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
        *x = (Layer){.name = o->module ? o->module : "", .bytes = o->bytes, .flops = o->flops};
        x->in = block_of(x->name);
        for (int w = 0; w < WIDTHS; w++) x->ms[w] = INFINITY;
    }
}

int predict(const Loaded *m, const qkv_session_options *like, const OpProfile *p)
{
    Simulation s = {.of = -1};
    int code = 0, threads = p->peak.threads;
    take_steps(&s, p);
    for (s.width = 0; !code && s.width < WIDTHS; s.width++) {
        int more = widths[s.width] - threads;
        s.region_ms = s.width ? (p->peak.region_us + (more > 0 ? more * CALL_US : 0)) * 1e-3 : 0;
        code = run_width(&s, m, like);
    }
    if (!code) print(&s, &p->peak);
    free(s.step);
    free(s.now);
    return code;
}
