/* Threads of parallel regions without an OpenMP runtime (-Dopenmp=disabled). gcc turns `#pragma omp` into calls of GOMP_parallel and a few more
 * functions, which are defined here; whatever is missing for a pragma that nobody used before fails to link.
 *
 *     #pragma omp parallel for num_threads(4)           GOMP_parallel(body, &variables, 4, 0)
 *
 * A region takes idle workers from a pool that all sessions share, the lowest first, so that a worker gets the same part of one region after the
 * other. Whoever waits, a worker for a region or a thread for the others of its region, looks for some ten microseconds and then sleeps: on a
 * busy machine it is not in the way. There may be fewer threads than wanted (none to be had, too many regions at a time), and within a region
 * there is one; results do not depend on their number. Nothing is allocated.
 */
#include "omp.h"
#include "base/cpu.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { WORKERS = 255, TEAMS = 64, LOOKS = 1000 };

/* A count that threads wait for to change. */
typedef struct Gate {
    atomic_uint count;
    atomic_int asleep;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} Gate;

typedef struct Team {
    atomic_bool taken;
    void (*run)(void *);
    void *data;
    int size, wanted;
    atomic_int arrived;
    Gate passed; /* opens once all have arrived */
    long loops;  /* that have begun, and of the last one: */
    long end, chunk;
    atomic_long next;
} Team;

typedef struct Worker {
    atomic_bool idle;
    int id; /* in the team */
    Team *team;
    Gate start;
} Worker;

static const Gate CLOSED = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};
static Worker workers[WORKERS];
static Team teams[TEAMS];
static atomic_int made; /* workers that have a thread */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER, atomics = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local struct Self {
    Team *team;
    int id, wanted; /* threads of its regions; 0: not set */
    long loops;
} self;

static void relax(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static void gate_wait(Gate *g, unsigned old)
{
    for (int i = 0; i < LOOKS; i++) {
        if (atomic_load_explicit(&g->count, memory_order_acquire) != old) return;
        relax();
    }
    pthread_mutex_lock(&g->lock);
    atomic_fetch_add(&g->asleep, 1);
    while (atomic_load(&g->count) == old) pthread_cond_wait(&g->wake, &g->lock);
    atomic_fetch_sub(&g->asleep, 1);
    pthread_mutex_unlock(&g->lock);
}

static void gate_open(Gate *g)
{
    atomic_fetch_add(&g->count, 1);
    if (!atomic_load(&g->asleep)) return;
    pthread_mutex_lock(&g->lock);
    pthread_cond_broadcast(&g->wake);
    pthread_mutex_unlock(&g->lock);
}

static void arrive(Team *t)
{
    int size = t->size; /* read first: once all have arrived, the team may be another region's */
    if (atomic_fetch_add(&t->arrived, 1) + 1 < size) return;
    atomic_store(&t->arrived, 0);
    gate_open(&t->passed);
}

void GOMP_barrier(void);
void GOMP_barrier(void)
{
    Team *t = self.team;
    unsigned old = atomic_load(&t->passed.count);
    arrive(t);
    gate_wait(&t->passed, old);
}

static void *work(void *worker)
{
    Worker *w = worker;
    for (unsigned regions = 0;; regions++) {
        gate_wait(&w->start, regions);
        Team *t = w->team;
        self = (struct Self){.team = t, .id = w->id, .wanted = t->wanted};
        t->run(t->data);
        atomic_store(&w->idle, true); /* before the others go on: the next region finds it */
        arrive(t);
    }
    return NULL;
}

static void before_fork(void) { pthread_mutex_lock(&making); }
static void in_parent(void) { pthread_mutex_unlock(&making); }
static void clear(void)
{
    for (int i = 0; i < TEAMS; i++) teams[i] = (Team){.passed = CLOSED};
    atomic_store(&made, 0);
}
static void in_child(void)
{
    clear();
    pthread_mutex_unlock(&making);
}
static void begin(void)
{
    clear();
    pthread_atfork(before_fork, in_parent, in_child);
}

/* Makes worker i, whose thread waits for a region. Signals are for the program's own threads. */
static bool worker_make(int i)
{
    pthread_mutex_lock(&making);
    bool ok = i < atomic_load(&made);
    if (!ok) {
        sigset_t all, before;
        pthread_t thread;
        workers[i] = (Worker){.idle = true, .start = CLOSED};
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        ok = !pthread_create(&thread, NULL, work, &workers[i]);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (ok) {
            pthread_detach(thread);
            atomic_store(&made, i + 1);
        }
    }
    pthread_mutex_unlock(&making);
    return ok;
}

static Team *team_take(void)
{
    pthread_once(&once, begin);
    for (int i = 0; i < TEAMS; i++)
        if (!atomic_exchange(&teams[i].taken, true)) return &teams[i];
    return NULL;
}

/* Up to n idle workers; their number. */
static int enlist(Worker **w, int n)
{
    int got = 0;
    for (int i = 0; i < WORKERS && got < n; i++) {
        if (i >= atomic_load(&made) && !worker_make(i)) break;
        if (atomic_exchange(&workers[i].idle, false)) w[got++] = &workers[i];
    }
    return got;
}

void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags);
void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags)
{
    (void)flags;
    struct Self outer = self;
    Team alone = {.passed = CLOSED};
    Worker *w[WORKERS];
    int want = outer.team ? 1 : threads ? (int)threads : omp_get_max_threads(), got = 0;
    Team *t = want > 1 ? team_take() : NULL;
    if (t) got = enlist(w, want - 1);
    else t = &alone;
    t->run = run, t->data = data, t->size = got + 1, t->loops = 0, t->wanted = outer.wanted;
    for (int i = 0; i < got; i++) {
        w[i]->team = t, w[i]->id = i + 1;
        gate_open(&w[i]->start);
    }
    self = (struct Self){.team = t, .wanted = outer.wanted};
    run(data);
    if (got) GOMP_barrier();
    self = outer;
    atomic_store(&t->taken, false);
}

bool GOMP_loop_nonmonotonic_dynamic_next(long *from, long *to);
bool GOMP_loop_nonmonotonic_dynamic_next(long *from, long *to)
{
    Team *t = self.team;
    *from = atomic_fetch_add(&t->next, t->chunk);
    *to = *from + t->chunk < t->end ? *from + t->chunk : t->end;
    return *from < t->end;
}

/* Loops count upwards. The first thread that arrives begins the loop. */
bool GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long step, long chunk, long *from, long *to);
bool GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long step, long chunk, long *from, long *to)
{
    Team *t = self.team;
    pthread_mutex_lock(&t->passed.lock);
    if (t->loops == self.loops++) {
        t->loops++, t->end = end, t->chunk = step * chunk;
        atomic_store(&t->next, start);
    }
    pthread_mutex_unlock(&t->passed.lock);
    return GOMP_loop_nonmonotonic_dynamic_next(from, to);
}

void GOMP_loop_end(void);
void GOMP_loop_end(void) { GOMP_barrier(); }
void GOMP_atomic_start(void);
void GOMP_atomic_start(void) { pthread_mutex_lock(&atomics); }
void GOMP_atomic_end(void);
void GOMP_atomic_end(void) { pthread_mutex_unlock(&atomics); }

void omp_set_num_threads(int n) { self.wanted = n; }
int omp_get_max_threads(void)
{
    if (self.wanted < 1) self.wanted = cpu_count();
    return self.wanted;
}
int omp_get_num_threads(void) { return self.team ? self.team->size : 1; }
int omp_get_thread_num(void) { return self.id; }
int omp_pause_resource_all(omp_pause_resource_t kind) { return kind == omp_pause_soft ? 0 : 1; }
