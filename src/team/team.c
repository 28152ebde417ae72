/* Threads of parallel regions without an OpenMP runtime (-Dopenmp=disabled, or a compiler that has none). gcc turns
 * `#pragma omp` into calls of GOMP_parallel and a few more functions, clang into calls of __kmpc_fork_call and others,
 * which are defined here; what a pragma needs that was never used before fails to link.
 *
 *     #pragma omp parallel for num_threads(4)           GOMP_parallel(body, &variables, 4, 0)
 *
 * A region takes idle workers from a pool that all sessions share, the lowest first, so that a worker gets the same
 * part of one region after the other. Whoever waits, a worker for a region or a thread for the others of its region,
 * looks for some ten microseconds and then sleeps: on a busy machine it is not in the way. There may be fewer threads
 * than wanted (none to be had, too many regions at a time), and within a region there is one; results do not depend on
 * their number. Nothing is allocated.
 */
#include "omp.h"
#include "base/cpu.h"
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

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

static void barrier(void)
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

/* A region of that many threads; 0: as many as the thread's regions have. */
static void region(void (*run)(void *), void *data, int threads)
{
    struct Self outer = self;
    Team alone = {.passed = CLOSED};
    Worker *w[WORKERS];
    int want = outer.team ? 1 : threads ? threads : omp_get_max_threads(), got = 0;
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
    if (got) barrier();
    self = outer;
    atomic_store(&t->taken, false);
}

/* A loop whose iterations [start, end) are handed out `chunk` at a time. The first thread that arrives begins it. */
static void loop_begin(long start, long end, long chunk)
{
    Team *t = self.team;
    pthread_mutex_lock(&t->passed.lock);
    if (t->loops == self.loops++) {
        t->loops++, t->end = end, t->chunk = chunk;
        atomic_store(&t->next, start);
    }
    pthread_mutex_unlock(&t->passed.lock);
}

static bool loop_next(long *from, long *to)
{
    Team *t = self.team;
    *from = atomic_fetch_add(&t->next, t->chunk);
    *to = *from + t->chunk < t->end ? *from + t->chunk : t->end;
    return *from < t->end;
}

void omp_set_num_threads(int n) { self.wanted = n; }
int omp_get_max_threads(void)
{
    if (self.wanted < 1) self.wanted = cpu_count();
    return self.wanted;
}
int omp_get_num_threads(void) { return self.team ? self.team->size : 1; }
int omp_get_thread_num(void) { return self.id; }
int omp_pause_resource_all(omp_pause_resource_t kind) { return kind == omp_pause_soft ? 0 : 1; }

#ifndef __clang__ /* ------------------------------------------------- what gcc calls; loops count upwards */

void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags);
void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags)
{
    (void)flags;
    region(run, data, (int)threads);
}

bool GOMP_loop_nonmonotonic_dynamic_next(long *from, long *to);
bool GOMP_loop_nonmonotonic_dynamic_next(long *from, long *to) { return loop_next(from, to); }

bool GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long step, long chunk, long *from, long *to);
bool GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long step, long chunk, long *from, long *to)
{
    loop_begin(start, end, step * chunk);
    return loop_next(from, to);
}

void GOMP_barrier(void);
void GOMP_barrier(void) { barrier(); }
void GOMP_loop_end(void);
void GOMP_loop_end(void) { barrier(); }
void GOMP_atomic_start(void);
void GOMP_atomic_start(void) { pthread_mutex_lock(&atomics); }
void GOMP_atomic_end(void);
void GOMP_atomic_end(void) { pthread_mutex_unlock(&atomics); }

#else /* -------------------------- what clang calls; loops count from 0 by 1, and name their last iteration */

enum { ARGUMENTS = 32, STATIC_CHUNKED = 33 };
typedef struct Place Place; /* in the source */
typedef void Body(int32_t *thread, int32_t *zero, ...);
typedef struct Call {
    Body *body;
    void *a[ARGUMENTS];
} Call;
static _Thread_local int pushed;    /* threads of the next region */
static _Thread_local Team serial;   /* of regions whose `if` says no, */
static _Thread_local int in_serial; /* of which so many are open; */
static _Thread_local struct Self outside;

/* Clang's body takes its variables one by one; those that it has not are ignored. */
static void call_body(void *call)
{
    Call *c = call;
    void **a = c->a;
    int32_t thread = self.id, zero = 0;
    typedef void All(int32_t *, int32_t *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                     void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                     void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);
    ((All *)c->body)(&thread, &zero, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12],
                     a[13], a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26],
                     a[27], a[28], a[29], a[30], a[31]);
}

void __kmpc_fork_call(Place *at, int32_t n, Body *body, ...);
void __kmpc_fork_call(Place *at, int32_t n, Body *body, ...)
{
    (void)at;
    assert(n <= ARGUMENTS);
    Call call = {.body = body};
    int threads = pushed;
    va_list args;
    va_start(args, body);
    for (int i = 0; i < n; i++) call.a[i] = va_arg(args, void *);
    va_end(args);
    pushed = 0;
    region(call_body, &call, threads);
}

void __kmpc_serialized_parallel(Place *at, int32_t thread);
void __kmpc_serialized_parallel(Place *at, int32_t thread)
{
    (void)at, (void)thread;
    pushed = 0;
    if (in_serial++) return;
    outside = self;
    serial = (Team){.size = 1, .passed = CLOSED};
    self = (struct Self){.team = &serial, .wanted = outside.wanted};
}

void __kmpc_end_serialized_parallel(Place *at, int32_t thread);
void __kmpc_end_serialized_parallel(Place *at, int32_t thread)
{
    (void)at, (void)thread;
    if (!--in_serial) self = outside;
}

/* This thread's part of [*lower, *upper]. */
static void share(int32_t schedule, int32_t *last, int64_t *lower, int64_t *upper, int64_t *stride, int64_t chunk)
{
    int64_t n = omp_get_num_threads(), id = self.id, count = *upper - *lower + 1, each = count / n, more = count % n;
    if (schedule == STATIC_CHUNKED) {
        *last = (count - 1) / chunk % n == id;
        *lower += id * chunk;
        *upper = *lower + chunk - 1;
        *stride = n * chunk;
    } else {
        *last = id == n - 1;
        *lower += id * each + (id < more ? id : more);
        *upper = *lower + each - (id < more ? 0 : 1);
        *stride = count;
    }
}

#define STATIC_INIT(name, type)                                                                                        \
    void name(Place *at, int32_t thread, int32_t schedule, int32_t *last, type *lower, type *upper, type *stride,      \
              type by, type chunk);                                                                                    \
    void name(Place *at, int32_t thread, int32_t schedule, int32_t *last, type *lower, type *upper, type *stride,      \
              type by, type chunk)                                                                                     \
    {                                                                                                                  \
        (void)at, (void)thread, (void)by;                                                                              \
        int64_t l = (int64_t)*lower, u = (int64_t)*upper, s = 0;                                                       \
        share(schedule, last, &l, &u, &s, (int64_t)chunk);                                                             \
        *lower = (type)l, *upper = (type)u, *stride = (type)s;                                                         \
    }
STATIC_INIT(__kmpc_for_static_init_4, int32_t)
STATIC_INIT(__kmpc_for_static_init_8, int64_t)
STATIC_INIT(__kmpc_for_static_init_8u, uint64_t)
void __kmpc_for_static_fini(Place *at, int32_t thread);
void __kmpc_for_static_fini(Place *at, int32_t thread) { (void)at, (void)thread; }

void __kmpc_dispatch_init_8(Place *at, int32_t thread, int32_t schedule, int64_t lower, int64_t upper, int64_t by,
                            int64_t chunk);
void __kmpc_dispatch_init_8(Place *at, int32_t thread, int32_t schedule, int64_t lower, int64_t upper, int64_t by,
                            int64_t chunk)
{
    (void)at, (void)thread, (void)schedule, (void)by;
    loop_begin(lower, upper + 1, chunk);
}

int32_t __kmpc_dispatch_next_8(Place *at, int32_t thread, int32_t *last, int64_t *lower, int64_t *upper,
                               int64_t *stride);
int32_t __kmpc_dispatch_next_8(Place *at, int32_t thread, int32_t *last, int64_t *lower, int64_t *upper,
                               int64_t *stride)
{
    (void)at, (void)thread;
    long from, to;
    bool more = loop_next(&from, &to);
    *last = more && to == self.team->end;
    *lower = from, *upper = to - 1, *stride = 1;
    return more;
}

/* clang 19 and later */
void __kmpc_dispatch_deinit(Place *at, int32_t thread);
void __kmpc_dispatch_deinit(Place *at, int32_t thread) { (void)at, (void)thread; }

/* 1: the caller adds its part, and says when it is done. */
int32_t __kmpc_reduce_nowait(Place *at, int32_t thread, int32_t n, size_t size, void *data, void (*add)(void *, void *),
                             void *lock);
int32_t __kmpc_reduce_nowait(Place *at, int32_t thread, int32_t n, size_t size, void *data, void (*add)(void *, void *),
                             void *lock)
{
    (void)at, (void)thread, (void)n, (void)size, (void)data, (void)add, (void)lock;
    pthread_mutex_lock(&atomics);
    return 1;
}
void __kmpc_end_reduce_nowait(Place *at, int32_t thread, void *lock);
void __kmpc_end_reduce_nowait(Place *at, int32_t thread, void *lock)
{
    (void)at, (void)thread, (void)lock;
    pthread_mutex_unlock(&atomics);
}

void __kmpc_barrier(Place *at, int32_t thread);
void __kmpc_barrier(Place *at, int32_t thread)
{
    (void)at, (void)thread;
    barrier();
}
int32_t __kmpc_global_thread_num(Place *at);
int32_t __kmpc_global_thread_num(Place *at) { return (void)at, self.id; }
void __kmpc_push_num_threads(Place *at, int32_t thread, int32_t n);
void __kmpc_push_num_threads(Place *at, int32_t thread, int32_t n)
{
    (void)at, (void)thread;
    pushed = n;
}
#endif
