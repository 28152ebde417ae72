/* Contract in engine.h. */
#include "serve/engine.h"
#include <pthread.h>
#include <string.h>
#include <time.h>
#include "base/mem.h"
#include "qkv_tools.h"

enum {
    MOST_ITEMS = 1024, /* of a run */
    MOST_PASSED = 256, /* items that do not fit a run and are passed over for later ones that do */
    AREA = 8,          /* a run's inputs and outputs, with padding, have at most so many times max_tokens */
    MOST_RETRY = 60
};

typedef struct Queue {
    Item *head, *tail;
} Queue;

typedef struct Slot { /* a name, and the model that serves it */
    const Source *source;
    Model *model;
    Queue level[LEVELS];
    int64_t items, tokens; /* that wait */
    double rate;           /* tokens in a second, of late; 0: not known */
} Slot;

typedef struct Seat { /* a worker's session of a model */
    Model *model;
    qkv_session *session;
    qkv_segmenter *segmenter; /* NULL: the session is for tensors */
} Seat;

typedef struct Batch {
    Item *item[MOST_ITEMS];
    int n;
    int64_t rows, real, longest;
} Batch;

typedef struct Worker {
    Engine *engine;
    pthread_t thread;
    bool runs;
    const Batch *batch;   /* what it runs */
    qkv_session *session; /* and on which; NULL: none now */
    Seat *seat;
    int nseat;
} Worker;

struct Engine {
    EngineOptions o;
    Metrics *metrics;
    Slot *slot;
    int nslot;
    Worker *worker;
    pthread_mutex_t lock, loading;
    pthread_cond_t work;
    int busy; /* workers in a run */
    bool stopping;
};

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ------------------------------------------------------------------ queues; the lock is held */

static int64_t cost(const Item *i) { return i->real > 0 ? i->real : 1; }

static void queue_add(Slot *s, Item *item)
{
    Queue *q = &s->level[item->call->level];
    item->next = NULL;
    if (q->tail) q->tail->next = item;
    else q->head = item;
    q->tail = item;
    s->items++;
    s->tokens += cost(item);
}

/* Takes out *at, which prev is before. */
static void queue_cut(Slot *s, Queue *q, Item *prev, Item *item)
{
    if (prev) prev->next = item->next;
    else q->head = item->next;
    if (q->tail == item) q->tail = prev;
    item->next = NULL;
    s->items--;
    s->tokens -= cost(item);
}

/* One item less is left of a call; the calls that thereby end go to a list, linked through item[0].next. */
static void settle(Item *item, Item **ended)
{
    Call *c = item->call;
    if (--c->left) return;
    c->item[0].next = *ended;
    *ended = &c->item[0];
}

static void drop_waiting(Slot *s, Call *c, Item **ended)
{
    for (int l = 0; l < LEVELS; l++)
        for (Item *at = s->level[l].head, *prev = NULL, *next; at; at = next) {
            next = at->next;
            if (at->call != c) {
                prev = at;
                continue;
            }
            queue_cut(s, &s->level[l], prev, at);
            settle(at, ended);
        }
}

/* Without the lock: whoever submitted them may free them at once. */
static void tell(Engine *e, Item *ended)
{
    static const Event event[] = {
        [CALL_FAILED] = EVENT_FAILED, [CALL_EXPIRED] = EVENT_EXPIRED, [CALL_CANCELLED] = EVENT_CANCELLED};
    for (Item *next; ended; ended = next) {
        Call *c = ended->call;
        next = ended->next;
        c->ended = seconds_now();
        if (c->state != CALL_OK) metrics_event(e->metrics, c->slot, event[c->state]);
        if (c->started > 0) metrics_waited(e->metrics, c->slot, c->started - c->submitted);
        served_drop(c->model);
        c->done(c);
    }
}

static void drop(Engine *e, Call *c, CallState state, Item **ended)
{
    if (c->dropped || !c->left) return;
    c->dropped = true;
    c->state = state;
    drop_waiting(&e->slot[c->slot], c, ended);
}

/* ------------------------------------------------------------------ what runs next; the lock is held */

static int level_now(const Item *i, double now)
{
    return i->call->level - (now - i->call->submitted > i->call->timeout / 2);
}

static bool before(const Item *a, const Item *b, double now)
{
    int x = level_now(a, now), y = level_now(b, now);
    return x != y ? x < y : a->call->submitted < b->call->submitted;
}

static Item *first_of(const Slot *s, double now)
{
    Item *best = NULL;
    for (int l = 0; l < LEVELS; l++) {
        Item *head = s->level[l].head;
        if (head && (!best || before(head, best, now))) best = head;
    }
    return best;
}

/* The slot whose turn it is; NULL: none is due. *wake: when the next one will be. */
static Slot *choose(Engine *e, double now, double *wake)
{
    Slot *best = NULL;
    Item *best_first = NULL;
    for (int i = 0; i < e->nslot; i++) {
        Slot *s = &e->slot[i];
        Item *first = first_of(s, now);
        if (!first) continue;
        double due = first->call->submitted + e->o.max_delay;
        bool ready = e->stopping || due <= now || s->tokens >= e->o.max_tokens || !first->call->model->together ||
                     first->call->segment;
        if (!ready && due < *wake) *wake = due;
        if (!ready || (best && !before(first, best_first, now))) continue;
        best = s;
        best_first = first;
    }
    return best;
}

static bool fits(const Engine *e, const Batch *b, const Item *item)
{
    const Item *first = b->item[0];
    const Model *m = first->call->model;
    if (item->call->model != m || b->n == MOST_ITEMS || item->call->segment || b->item[0]->call->segment) return false;
    int64_t rows = b->rows + item->rows, longest = item->tokens > b->longest ? item->tokens : b->longest;
    return b->real + cost(item) <= e->o.max_tokens && rows <= m->max_rows && rows * longest <= AREA * e->o.max_tokens &&
           items_fit(m, first, item);
}

static void batch_add(Batch *b, Item *item)
{
    b->item[b->n++] = item;
    b->rows += item->rows;
    b->real += cost(item);
    if (item->tokens > b->longest) b->longest = item->tokens;
}

/* Takes the first item and what fits beside it out of the queue. */
static void gather(Engine *e, Slot *s, double now, Batch *b)
{
    Item *first = first_of(s, now);
    *b = (Batch){.longest = 1};
    int passed = 0;
    for (int l = -1; l < LEVELS && passed < MOST_PASSED; l++) { /* first, then level by level */
        Queue *q = &s->level[l < 0 ? first->call->level : l];
        for (Item *at = q->head, *prev = NULL, *next; at && passed < MOST_PASSED; at = next) {
            next = at->next;
            if (b->n ? !fits(e, b, at) : at != first) {
                passed += b->n > 0;
                prev = at;
                continue;
            }
            queue_cut(s, q, prev, at);
            batch_add(b, at);
            if (l < 0 || b->real >= e->o.max_tokens) break;
        }
        if (b->real >= e->o.max_tokens || !first->call->model->together || first->call->segment) break;
    }
}

/* ------------------------------------------------------------------ a worker */

static void seat_free(Seat *s)
{
    qkv_segmenter_free(s->segmenter);
    qkv_session_free(s->session);
    served_drop(s->model);
}

static bool serves(const Engine *e, const Model *m)
{
    for (int i = 0; i < e->nslot; i++)
        if (e->slot[i].model == m) return true;
    return false;
}

/* Frees a session of a model that was replaced; false: there is none. The lock is held, and let go meanwhile. */
static bool leave_stale_seat(Worker *w)
{
    for (int i = 0; i < w->nseat; i++) {
        if (serves(w->engine, w->seat[i].model)) continue;
        Seat stale = w->seat[i];
        w->seat[i] = w->seat[--w->nseat];
        pthread_mutex_unlock(&w->engine->lock);
        seat_free(&stale);
        pthread_mutex_lock(&w->engine->lock);
        return true;
    }
    return false;
}

static bool fill_seat(const Engine *e, Seat *seat, Model *m, bool segments, Err *err)
{
    qkv_error why;
    *seat = (Seat){.session = qkv_session_create(m->model, &m->run, &why)};
    if (!seat->session) return said(err, &why);
    if (segments && !(seat->segmenter = served_segmenter(m, seat->session, e->o.features, err))) {
        qkv_session_free(seat->session);
        return false;
    }
    seat->model = served_take(m);
    return true;
}

static Seat *seat_of(Worker *w, Model *m, bool segments, Err *err)
{
    for (int i = 0; i < w->nseat; i++)
        if (w->seat[i].model == m && (w->seat[i].segmenter != NULL) == segments) return &w->seat[i];
    Seat *seat = mem_grow(w->seat, ((size_t)w->nseat + 1) * sizeof *seat);
    if (!seat) {
        oom(err);
        return NULL;
    }
    w->seat = seat;
    return fill_seat(w->engine, &seat[w->nseat], m, segments, err) ? &seat[w->nseat++] : NULL;
}

/* Ends runs that no request waits for any more; the lock is held. */
static void end_unwanted(Engine *e)
{
    for (int i = 0; i < e->o.workers; i++) {
        const Worker *w = &e->worker[i];
        bool wanted = !w->session;
        for (int k = 0; !wanted && k < w->batch->n; k++) wanted = !w->batch->item[k]->call->dropped;
        if (!wanted) qkv_session_cancel(w->session, 1);
    }
}

/* From here on the run may be ended; NULL: no longer. */
static void may_end(Worker *w, const Batch *b, qkv_session *s)
{
    pthread_mutex_lock(&w->engine->lock);
    if (w->session) qkv_session_cancel(w->session, 0);
    w->batch = b;
    w->session = s;
    end_unwanted(w->engine);
    pthread_mutex_unlock(&w->engine->lock);
}

static bool hand_over(void *user, Item *item, const Tensor *out, Err *err)
{
    (void)user;
    return item->call->dropped || item->call->take(item->call->user, item, out, err);
}

static void failed(Item *item, const Err *why)
{
    if (item->call->dropped || item->call->state == CALL_FAILED) return;
    item->call->state = CALL_FAILED;
    item->call->err = *why;
}

static bool run_segmenter(Worker *w, Seat *seat, Item *item, Err *err)
{
    Call *c = item->call;
    int64_t looked, had, before[2];
    qkv_segmenter_features(seat->segmenter, &before[0], &before[1]);
    bool ok = c->dropped || c->segment(c->user, seat->segmenter, err);
    qkv_segmenter_features(seat->segmenter, &looked, &had);
    metrics_pictures(w->engine->metrics, c->slot, looked - before[0], had - before[1]);
    return ok;
}

/* Where several fail together, each runs alone, so that only the one that is to blame fails. */
static void run_on(Worker *w, Seat *seat, Batch *b, Err err)
{
    Model *m = b->item[0]->call->model;
    qkv_session *s = seat ? seat->session : NULL;
    if (seat && seat->segmenter) {
        if (!run_segmenter(w, seat, b->item[0], &err)) failed(b->item[0], &err);
        return;
    }
    if (s && batch_run(m, s, b->item, b->n, hand_over, NULL, &err)) return;
    for (int i = 0; i < b->n; i++) {
        Err own = err;
        bool again = s && b->n > 1;
        if (again) own = (Err){0};
        if (!again || !batch_run(m, s, &b->item[i], 1, hand_over, NULL, &own)) failed(b->item[i], &own);
    }
}

static void run_batch(Worker *w, Batch *b)
{
    Err err = {0};
    mem_begin();
    Seat *seat = seat_of(w, b->item[0]->call->model, b->item[0]->call->segment != NULL, &err);
    if (seat) may_end(w, b, seat->session);
    run_on(w, seat, b, err);
    if (seat) may_end(w, NULL, NULL);
}

static void run_next(Worker *w, Slot *slot, double now)
{
    Engine *e = w->engine;
    Batch b;
    gather(e, slot, now, &b);
    for (int i = 0; i < b.n; i++)
        if (!(b.item[i]->call->started > 0)) b.item[i]->call->started = now;
    e->busy++;
    pthread_mutex_unlock(&e->lock);
    run_batch(w, &b);
    double seconds = seconds_now() - now;
    BatchSize size = batch_size(b.item, b.n);
    metrics_batch(e->metrics, (int)(slot - e->slot), size.rows, size.real, size.padded, seconds);
    Item *ended = NULL;
    pthread_mutex_lock(&e->lock);
    e->busy--;
    double rate = (double)b.real / (seconds > 1e-6 ? seconds : 1e-6);
    slot->rate = slot->rate > 0 ? 0.9 * slot->rate + 0.1 * rate : rate;
    for (int i = 0; i < b.n; i++) settle(b.item[i], &ended);
    pthread_mutex_unlock(&e->lock);
    tell(e, ended);
    pthread_mutex_lock(&e->lock);
}

static void wait_until(Engine *e, double when)
{
    if (when > 1e15) {
        pthread_cond_wait(&e->work, &e->lock);
        return;
    }
    struct timespec t = {(time_t)when, (long)((when - (double)(time_t)when) * 1e9)};
    pthread_cond_timedwait(&e->work, &e->lock, &t);
}

static bool nothing_waits(const Engine *e)
{
    for (int i = 0; i < e->nslot; i++)
        if (e->slot[i].items) return false;
    return true;
}

static void *work(void *user)
{
    Worker *w = user;
    Engine *e = w->engine;
    pthread_mutex_lock(&e->lock);
    while (!e->stopping || !nothing_waits(e)) {
        double now = seconds_now(), wake = 1e18;
        Slot *slot = choose(e, now, &wake);
        if (slot) run_next(w, slot, now);
        else if (!leave_stale_seat(w) && !e->stopping) wait_until(e, wake);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ------------------------------------------------------------------ what others call */

static void clear(Call *c)
{
    c->state = CALL_OK;
    c->err = (Err){0};
    c->started = c->ended = 0;
    c->dropped = false;
    c->left = c->n;
}

Submitted engine_submit(Engine *e, int model, Call *c, int *retry, Err *err)
{
    Slot *s = &e->slot[model];
    if (c->n < 1 || c->n > e->o.max_queue) {
        fail(err, E_USAGE, "the request has %d texts; 1 to %lld are taken", c->n, (long long)e->o.max_queue);
        return SUBMIT_BAD;
    }
    for (int i = 0; i < c->n; i++) {
        c->item[i].call = c;
        c->item[i].index = i;
        if (!c->segment && !item_measure(c->model, &c->item[i], err)) return SUBMIT_BAD;
    }
    clear(c);
    c->slot = model;
    c->submitted = seconds_now();
    pthread_mutex_lock(&e->lock);
    Submitted result = e->stopping ? SUBMIT_STOPPED : s->items + c->n > e->o.max_queue ? SUBMIT_FULL : SUBMIT_OK;
    if (result == SUBMIT_OK)
        for (int i = 0; i < c->n; i++) queue_add(s, &c->item[i]);
    double wait = s->rate > 0 ? (double)s->tokens / s->rate : 1;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    if (result != SUBMIT_FULL) return result;
    *retry = wait > MOST_RETRY ? MOST_RETRY : wait < 1 ? 1 : (int)(wait + 0.999);
    metrics_event(e->metrics, model, EVENT_REFUSED);
    fail(err, E_LIMIT, "the queue of model '%s' is full (%lld wait); try again in %d s", s->source->name,
         (long long)e->o.max_queue, *retry);
    return result;
}

void engine_cancel(Engine *e, Call *c)
{
    Item *ended = NULL;
    pthread_mutex_lock(&e->lock);
    drop(e, c, CALL_CANCELLED, &ended);
    end_unwanted(e);
    pthread_mutex_unlock(&e->lock);
    tell(e, ended);
}

static Call *find_expired(const Slot *s, double now)
{
    for (int l = 0; l < LEVELS; l++)
        for (const Item *at = s->level[l].head; at; at = at->next)
            if (now - at->call->submitted > at->call->timeout) return at->call;
    return NULL;
}

void engine_tick(Engine *e)
{
    Item *ended = NULL;
    double now = seconds_now();
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->nslot; i++)
        for (Call *c; (c = find_expired(&e->slot[i], now));) drop(e, c, CALL_EXPIRED, &ended);
    for (int i = 0; i < e->o.workers; i++)
        for (int k = 0; e->worker[i].session && k < e->worker[i].batch->n; k++) {
            Call *c = e->worker[i].batch->item[k]->call;
            if (now - c->submitted > c->timeout) drop(e, c, CALL_EXPIRED, &ended);
        }
    end_unwanted(e);
    pthread_mutex_unlock(&e->lock);
    tell(e, ended);
}

int engine_find(const Engine *e, const char *name)
{
    for (int i = 0; i < e->nslot; i++)
        if (!strcmp(e->slot[i].source->name, name)) return i;
    return -1;
}

int engine_count(const Engine *e) { return e->nslot; }
const Source *engine_source(const Engine *e, int model) { return e->slot[model].source; }

Model *engine_model(Engine *e, int model)
{
    pthread_mutex_lock(&e->lock);
    Model *m = served_take(e->slot[model].model);
    pthread_mutex_unlock(&e->lock);
    return m;
}

int64_t engine_waiting(Engine *e, int model)
{
    pthread_mutex_lock(&e->lock);
    int64_t n = e->slot[model].items;
    pthread_mutex_unlock(&e->lock);
    return n;
}

bool engine_idle(Engine *e)
{
    pthread_mutex_lock(&e->lock);
    bool idle = !e->busy && nothing_waits(e);
    pthread_mutex_unlock(&e->lock);
    return idle;
}

/* All names that share the model get the new one. */
bool engine_load(Engine *e, int model, Err *err)
{
    pthread_mutex_lock(&e->loading);
    Slot *s = &e->slot[model];
    Model *fresh = served_open(s->source, err);
    metrics_event(e->metrics, model, fresh ? EVENT_LOAD : EVENT_FAILED_LOAD);
    pthread_mutex_lock(&e->lock);
    Model *old = s->model;
    for (int i = 0; fresh && i < e->nslot; i++) {
        if (e->slot[i].model != old) continue;
        e->slot[i].model = served_take(fresh);
        served_drop(old);
    }
    pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->lock);
    served_drop(fresh);
    pthread_mutex_unlock(&e->loading);
    return fresh != NULL;
}

/* ------------------------------------------------------------------ opening and closing */

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

/* One copy of a file that has two names. */
static Model *open_once(Engine *e, int at, Err *err)
{
    const Source *s = e->slot[at].source;
    for (int i = 0; i < at; i++) {
        const Source *o = e->slot[i].source;
        if (!strcmp(o->path, s->path) && same_text(o->tokenizer, s->tokenizer) &&
            same_text(o->processor, s->processor))
            return served_take(e->slot[i].model);
    }
    return served_open(s, err);
}

static bool start_workers(Engine *e, Err *err)
{
    for (int i = 0; i < e->o.workers; i++) {
        Worker *w = &e->worker[i];
        w->engine = e;
        if (pthread_create(&w->thread, NULL, work, w)) return fail(err, E_LIMIT, "a thread cannot be started");
        w->runs = true;
    }
    return true;
}

static void open_locks(Engine *e)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&e->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->loading, NULL);
}

Engine *engine_open(const EngineOptions *o, const Source *source, int n, Metrics *metrics, Err *err)
{
    Engine *e = mem_zeroed(1, sizeof *e);
    if (!e) {
        oom(err);
        return NULL;
    }
    open_locks(e);
    e->o = *o;
    e->metrics = metrics;
    e->slot = mem_zeroed((size_t)n + 1, sizeof *e->slot);
    e->worker = mem_zeroed((size_t)o->workers + 1, sizeof *e->worker);
    bool ok = (e->slot && e->worker) || oom(err);
    for (int i = 0; ok && i < n; i++) {
        e->slot[i].source = &source[i];
        e->slot[i].model = open_once(e, i, err);
        ok = e->slot[i].model != NULL;
        e->nslot = i + ok;
        if (ok) metrics_event(metrics, i, EVENT_LOAD);
    }
    if (ok && start_workers(e, err)) return e;
    engine_close(e);
    return NULL;
}

void engine_stop(Engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; e->worker && i < e->o.workers; i++) {
        if (!e->worker[i].runs) continue;
        pthread_join(e->worker[i].thread, NULL);
        e->worker[i].runs = false;
    }
}

void engine_close(Engine *e)
{
    if (!e) return;
    engine_stop(e);
    for (int i = 0; e->worker && i < e->o.workers; i++) {
        for (int k = 0; k < e->worker[i].nseat; k++) seat_free(&e->worker[i].seat[k]);
        mem_free(e->worker[i].seat);
    }
    for (int i = 0; i < e->nslot; i++) served_drop(e->slot[i].model);
    mem_free(e->worker);
    mem_free(e->slot);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->loading);
    mem_free(e);
}
