/* A pool of threads for the regions that `#pragma omp` makes. Contract in team.h.
 *
 *     #pragma omp parallel for num_threads(4)           gcc: GOMP_parallel(body, &variables, 4, 0)
 *
 * What a pragma needs that was never used before fails to link.
 *
 * A region takes idle workers, the lowest first, so that a worker gets the same part of one region after the other.
 * Parts are claimed: a worker that sleeps, or to which the system gives no CPU, comes late and finds its part done by
 * others. Who waits looks for some microseconds and then sleeps. Nothing is allocated.
 *
 * On a busy machine a thread may lose its CPU in the middle of a part, for milliseconds, and the others wait. So each
 * thread that opens regions keeps an account: what it waits for others against what it saves by them (as much for each
 * of their parts as one of its own takes). When that is a loss, its regions have one part for a while.
 */
#include "team/team.h"
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include "base/cpu.h"
#include "base/number.h"

enum { PARTS = 256, WORKERS = PARTS - 1, SLOTS = 64, LOOKS = 16, LINE = 64 };
/* Nanoseconds. */
enum {
    PATIENCE = 200000,     /* of who waits, before it sleeps */
    CREDIT = 5000000,      /* saved time that counts */
    SHORT_BREAK = 2000000, /* for which regions have one part; doubled each time that threads are a loss again */
    LONG_BREAK = 256000000
};

/* A count that threads wait for to change. */
typedef struct Gate {
    atomic_uint count;
    atomic_int asleep;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} Gate;

/* Iterations of one part's share that are left. */
typedef struct Share {
    _Alignas(LINE) atomic_long next;
    long end;
} Share;

typedef struct Region {
    void (*run)(void *);
    void *data;
    int size, width;   /* width: team_width() of the thread that opened it, if known */
    bool portable;     /* cpu_is_portable() of that thread */
    TeamStop *stop;    /* of that thread; NULL: none */
    atomic_bool begun; /* its loop: shares are written */
    long chunk;
    Share *share;
} Region;

/* A region of several parts. They belong to `ticket`: who comes late, for an earlier region of the slot, gets none. */
typedef struct Slot {
    atomic_bool taken;
    Region region;
    unsigned long long ticket;
    atomic_ullong part[PARTS]; /* 2 * ticket + 1: to be had; 2 * ticket: taken */
    Gate done;                 /* counts parts that others than the opener have run */
    Share share[PARTS];
} Slot;

typedef struct Worker {
    _Alignas(LINE) atomic_bool idle;
    Slot *slot; /* what it was called for */
    unsigned long long ticket;
    int part, size;
    Gate start;
} Worker;

static const Gate CLOSED = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};
static Worker workers[WORKERS];
static Slot slots[SLOTS];
static atomic_int made;            /* workers that have a thread */
static atomic_int called, staying; /* workers that are not idle; threads between team_enter and team_leave */
static int cpus;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER, dividing = PTHREAD_MUTEX_INITIALIZER,
                       atomics = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local struct Self {
    Region *region;
    int part;
} self;
static _Thread_local TeamStay stay; /* threads 0: not known yet */
static _Thread_local int stays;     /* team_enter without team_leave */
static _Thread_local struct Account {
    int64_t saved, pause, alone_until;
} account;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* ------------------------------------------------------------------ waiting */

static void relax(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

/* Whether the count changes while one looks. */
static bool gate_look(Gate *g, unsigned old, int64_t patience)
{
    for (int64_t end = 0;;) {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(&g->count, memory_order_acquire) != old) return true;
            relax();
        }
        int64_t t = now();
        if (!end) end = t + patience;
        if (t > end) return false;
    }
}

static void gate_wait(Gate *g, unsigned old)
{
    if (gate_look(g, old, PATIENCE)) return;
    pthread_mutex_lock(&g->lock);
    atomic_fetch_add(&g->asleep, 1);
    while (atomic_load(&g->count) == old) pthread_cond_wait(&g->wake, &g->lock);
    atomic_fetch_sub(&g->asleep, 1);
    pthread_mutex_unlock(&g->lock);
}

static void gate_add(Gate *g, unsigned n)
{
    atomic_fetch_add(&g->count, n);
    if (!atomic_load(&g->asleep)) return;
    pthread_mutex_lock(&g->lock); /* who is about to sleep has looked once more before it lets go of the lock */
    pthread_mutex_unlock(&g->lock);
    pthread_cond_broadcast(&g->wake);
}

/* ------------------------------------------------------------------ parts */

static bool claim(Slot *s, unsigned long long ticket, int part)
{
    unsigned long long open = 2 * ticket + 1;
    return atomic_load_explicit(&s->part[part], memory_order_relaxed) == open &&
           atomic_compare_exchange_strong(&s->part[part], &open, 2 * ticket);
}

static void run_part(Region *r, int part)
{
    struct Self outer = self;
    self = (struct Self){.region = r, .part = part};
    bool portable = cpu_portable(r->portable);
    r->run(r->data);
    cpu_portable(portable);
    self = outer;
}

/* Runs what can be had of a region, part `first` first; how many. */
static int run_parts(Slot *s, unsigned long long ticket, int first, int size)
{
    int n = 0;
    for (int i = 0; i < size; i++) {
        int part = first + i < size ? first + i : first + i - size;
        if (!claim(s, ticket, part)) continue;
        run_part(&s->region, part);
        n++;
    }
    return n;
}

static void *work(void *worker)
{
    Worker *w = worker;
    for (unsigned calls = 0;; calls++) {
        gate_wait(&w->start, calls);
        Slot *s = w->slot;
        int n = run_parts(s, w->ticket, w->part, w->size);
        atomic_fetch_sub(&called, 1);
        atomic_store(&w->idle, true); /* before the opener goes on: its next region finds it */
        if (n) gate_add(&s->done, (unsigned)n);
    }
    return NULL;
}

/* ------------------------------------------------------------------ the pool */

static void before_fork(void) { pthread_mutex_lock(&making); }
static void in_parent(void) { pthread_mutex_unlock(&making); }
static void clear(void)
{
    for (int i = 0; i < SLOTS; i++) {
        atomic_store(&slots[i].taken, false);
        slots[i].done = CLOSED;
    }
    atomic_store(&made, 0);
    atomic_store(&called, 0);
    cpus = cpu_count();
}
/* The child has the forking thread alone. */
static void in_child(void)
{
    clear();
    dividing = atomics = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_store(&staying, stays > 0);
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

static Slot *slot_take(void)
{
    for (int i = 0; i < SLOTS; i++)
        if (!atomic_load_explicit(&slots[i].taken, memory_order_relaxed) && !atomic_exchange(&slots[i].taken, true))
            return &slots[i];
    return NULL;
}

/* How many workers a region may call that has `want` threads at most: all that run regions take the CPUs together. */
static int room(int want)
{
    int all = want > cpus ? want : cpus, others = atomic_load(&staying) - (stays > 0) + atomic_load(&called),
        left = all - 1 - others;
    return left < want - 1 ? left : want - 1;
}

/* Up to n idle workers; their number. */
static int enlist(Worker **w, int n)
{
    int got = 0;
    for (int i = 0; i < WORKERS && got < n; i++) {
        if (i >= atomic_load(&made) && !worker_make(i)) break;
        if (atomic_load_explicit(&workers[i].idle, memory_order_relaxed) && atomic_exchange(&workers[i].idle, false))
            w[got++] = &workers[i];
    }
    atomic_fetch_add(&called, got);
    return got;
}

/* ------------------------------------------------------------------ regions */

static void run_alone(void (*run)(void *), void *data)
{
    Share share;
    Region r = {.run = run,
                .data = data,
                .size = 1,
                .width = stay.threads,
                .portable = cpu_is_portable(),
                .stop = self.region ? self.region->stop : stay.stop,
                .share = &share};
    run_part(&r, 0);
}

/* The slot's next region. */
static void open_region(Slot *s, void (*run)(void *), void *data, int size)
{
    s->ticket++;
    s->region.run = run, s->region.data = data, s->region.size = size, s->region.width = stay.threads;
    s->region.portable = cpu_is_portable();
    s->region.stop = stay.stop;
    s->region.share = s->share;
    atomic_store_explicit(&s->region.begun, false, memory_order_relaxed);
    atomic_store_explicit(&s->done.count, 0, memory_order_relaxed);
    for (int i = 0; i < size; i++) atomic_store_explicit(&s->part[i], 2 * s->ticket + 1, memory_order_release);
}

static void wait_for(Slot *s, int parts)
{
    for (unsigned n; (n = atomic_load(&s->done.count)) != (unsigned)parts;) gate_wait(&s->done, n);
}

static void settle(int64_t saved, int64_t waited)
{
    account.saved += saved - waited;
    if (account.saved > CREDIT) account.saved = CREDIT, account.pause = 0;
    if (account.saved >= 0) return;
    account.pause = !account.pause ? SHORT_BREAK : account.pause < LONG_BREAK ? 2 * account.pause : LONG_BREAK;
    account.saved = 0;
    account.alone_until = now() + account.pause;
}

static void run_by_pool(Slot *s, void (*run)(void *), void *data, Worker **w, int n, int64_t opened)
{
    open_region(s, run, data, n + 1);
    for (int i = 0; i < n; i++) {
        w[i]->slot = s, w[i]->ticket = s->ticket, w[i]->part = i + 1, w[i]->size = n + 1;
        gate_add(&w[i]->start, 1);
    }
    int own = run_parts(s, s->ticket, 0, n + 1), others = n + 1 - own;
    int64_t mine = now();
    if (others) wait_for(s, others);
    if (own) settle((mine - opened) * others / own, others ? now() - mine : 0);
}

static void run_task(void *slot, int part)
{
    Slot *s = slot;
    if (part < 0 || part >= s->region.size || !claim(s, s->ticket, part)) return;
    run_part(&s->region, part);
    gate_add(&s->done, 1);
}

/* Parts that the executor leaves out are run here. */
static void run_by_executor(Slot *s, void (*run)(void *), void *data, int size)
{
    open_region(s, run, data, size);
    stay.executor->run(stay.executor->user, size, run_task, s);
    wait_for(s, size - run_parts(s, s->ticket, 0, size));
}

/* A region of that many threads; 0: as many as the thread's regions have. */
static void region(void (*run)(void *), void *data, int threads)
{
    Worker *w[WORKERS];
    int want = self.region ? 1 : threads ? threads : team_width(), got = 0;
    int64_t opened = 0;
    if (want > PARTS) want = PARTS;
    if (want > 1) pthread_once(&once, begin);
    if (want > 1 && !stay.executor && (opened = now()) < account.alone_until) want = 1;
    Slot *s = want > 1 ? slot_take() : NULL;
    if (s && stay.executor) {
        run_by_executor(s, run, data, want);
    } else if (s && (got = enlist(w, room(want)))) {
        run_by_pool(s, run, data, w, got, opened);
    } else {
        run_alone(run, data);
    }
    if (s) atomic_store(&s->taken, false);
}

TeamStay team_enter(int threads, const TeamExecutor *executor)
{
    TeamStay before = stay;
    pthread_once(&once, begin);
    if (!stays++) atomic_fetch_add(&staying, 1);
    if (threads > 0) stay.threads = threads;
    stay.executor = executor;
    return before;
}

void team_leave(TeamStay before)
{
    stay = before;
    if (!--stays) atomic_fetch_sub(&staying, 1);
}

bool team_heed(TeamStop *stop)
{
    if (stay.stop) return false;
    stay.stop = stop;
    return true;
}

bool team_stopped(void)
{
    TeamStop *s = self.region ? self.region->stop : stay.stop;
    if (!s || !atomic_load_explicit(&s->asked, memory_order_relaxed))
        return s && atomic_load_explicit(&s->seen, memory_order_relaxed);
    atomic_store_explicit(&s->seen, true, memory_order_relaxed);
    return true;
}

const TeamExecutor *team_executor(void) { return stay.executor; }

int team_default(void)
{
    static const char *const names[] = {"QKV_NUM_THREADS", "OMP_NUM_THREADS"};
    for (int i = 0; i < 2; i++) {
        const char *s = getenv(names[i]);
        long n = s ? parse_int(s, NULL) : 0;
        if (n > 0 && n < 4096) return (int)n;
    }
    return cpu_count();
}

int team_width(void)
{
    if (self.region && self.region->width > 0) return self.region->width;
    if (stay.threads < 1) stay.threads = team_default();
    return stay.threads;
}
int team_part(void) { return self.part; }
int team_parts(void) { return self.region ? self.region->size : 1; }

/* ------------------------------------------------------------------ loops whose iterations are claimed */

/* Writes the shares of [start, end), whose iterations are handed out `chunk` at a time. */
static void loop_divide(Region *r, long start, long end, long chunk)
{
    long n = end > start ? (end - start + chunk - 1) / chunk : 0;
    r->chunk = chunk;
    for (int i = 0; i < r->size; i++) {
        long to = start + n * (i + 1) / r->size * chunk;
        r->share[i].end = to < end ? to : end;
        atomic_store_explicit(&r->share[i].next, start + n * i / r->size * chunk, memory_order_relaxed);
    }
    atomic_store_explicit(&r->begun, true, memory_order_release);
}

/* The first part that arrives divides the loop. */
static void loop_begin(long start, long end, long chunk)
{
    Region *r = self.region;
    if (atomic_load_explicit(&r->begun, memory_order_acquire)) return;
    pthread_mutex_lock(&dividing);
    if (!atomic_load_explicit(&r->begun, memory_order_relaxed)) loop_divide(r, start, end, chunk);
    pthread_mutex_unlock(&dividing);
}

static bool loop_next(long *from, long *to)
{
    Region *r = self.region;
    if (team_stopped()) return false;
    for (int i = 0; i < r->size; i++) {
        Share *s = &r->share[(self.part + i) % r->size];
        if (atomic_load_explicit(&s->next, memory_order_relaxed) >= s->end) continue;
        *from = atomic_fetch_add_explicit(&s->next, r->chunk, memory_order_relaxed);
        *to = *from + r->chunk < s->end ? *from + r->chunk : s->end;
        if (*from < s->end) return true;
    }
    return false;
}

/* ------------------------------------------------------------------ what both compilers call */

int omp_get_num_threads(void);
int omp_get_num_threads(void) { return team_parts(); }
int omp_get_thread_num(void);
int omp_get_thread_num(void) { return team_part(); }

#ifndef __clang__ /* ------------------------------------------------- what gcc calls; loops count upwards */

void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags);
void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags)
{
    (void)flags;
    region(run, data, (int)threads);
}

typedef struct Loop {
    void (*run)(void *);
    void *data;
    long start, end, chunk;
} Loop;

static void run_loop(void *loop)
{
    Loop *l = loop;
    loop_begin(l->start, l->end, l->chunk);
    l->run(l->data);
}

void GOMP_parallel_loop_nonmonotonic_dynamic(void (*run)(void *), void *data, unsigned threads, long start, long end,
                                             long step, long chunk, unsigned flags);
void GOMP_parallel_loop_nonmonotonic_dynamic(void (*run)(void *), void *data, unsigned threads, long start, long end,
                                             long step, long chunk, unsigned flags)
{
    (void)flags;
    Loop l = {run, data, start, end, step * chunk};
    region(run_loop, &l, (int)threads);
}

bool GOMP_loop_nonmonotonic_dynamic_next(long *from, long *to);
bool GOMP_loop_nonmonotonic_dynamic_next(long *from, long *to) { return loop_next(from, to); }

bool GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long step, long chunk, long *from, long *to);
bool GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long step, long chunk, long *from, long *to)
{
    loop_begin(start, end, step * chunk);
    return loop_next(from, to);
}

void GOMP_loop_end_nowait(void);
void GOMP_loop_end_nowait(void) {}
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
static _Thread_local Region serial; /* of regions whose `if` says no, */
static _Thread_local Share serial_share;
static _Thread_local int in_serial; /* of which so many are open; */
static _Thread_local struct Self outside;

/* Clang's body takes its variables one by one; those that it has not are ignored. */
static void call_body(void *call)
{
    Call *c = call;
    void **a = c->a;
    int32_t thread = self.part, zero = 0;
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
    serial = (Region){.size = 1, .width = team_width(), .share = &serial_share};
    self = (struct Self){.region = &serial};
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
    int64_t n = team_parts(), id = self.part, count = *upper - *lower + 1, each = count / n, more = count % n;
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
    *last = 0; /* no loop here has a variable that keeps the last iteration's value */
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

int32_t __kmpc_global_thread_num(Place *at);
int32_t __kmpc_global_thread_num(Place *at) { return (void)at, self.part; }
void __kmpc_push_num_threads(Place *at, int32_t thread, int32_t n);
void __kmpc_push_num_threads(Place *at, int32_t thread, int32_t n)
{
    (void)at, (void)thread;
    pushed = n;
}
#endif
