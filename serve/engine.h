/* Requests in, results out: a queue for each model, workers that take from them what fits one run.
 *
 *     Engine *e = engine_open(&options, sources, n, err);      loads the models
 *     Call c = {.model = engine_model(e, 0), .item = items, .n = 1, .take = take, .done = done, .user = me};
 *     if (engine_submit(e, 0, &c, err) == SUBMIT_OK) ...        done(&c) follows, once, from any thread
 *     engine_stop(e);                                          what was accepted is answered
 *     engine_close(e);
 *
 * A run holds at most max_tokens real tokens (rows, for models without a mask), and starts when there are as many, or
 * when its first request has waited for max_delay; a worker that is free with max_delay 0 starts at once. Before
 * others go requests of a higher priority; one that has waited for half of its time limit counts as one level higher.
 * Of several models the one whose first request is the oldest goes first. A model that is loaded again serves what is
 * submitted from then on; what was submitted before still runs on the one before.
 */
#ifndef QKV_SERVE_ENGINE_H
#define QKV_SERVE_ENGINE_H
#include "serve/batch.h"
#include "serve/metrics.h"

typedef struct Engine Engine;

typedef struct EngineOptions {
    int workers; /* runs at a time; each has its own sessions */
    int64_t max_tokens;
    double max_delay;  /* seconds */
    int64_t max_queue; /* items that wait, for each model */
    size_t features;   /* bytes of features of pictures that each worker keeps for each model */
} EngineOptions;

typedef enum CallState { CALL_OK, CALL_FAILED, CALL_EXPIRED, CALL_CANCELLED } CallState;
enum { LEVELS = 3, LEVEL_DEFAULT = 1 }; /* 0 goes first */

/* The caller's; untouched after done. */
typedef struct Call {
    Model *model; /* a reference that the engine drops */
    Item *item;
    int n, level;
    double timeout;                                                    /* seconds from the submission */
    bool (*take)(void *user, Item *item, const Tensor *out, Err *err); /* a worker's; may be called twice for an item */
    bool (*segment)(void *user, qkv_segmenter *g, Err *err);           /* given: it runs alone, in place of tensors */
    void (*done)(struct Call *call);
    void *user;  /* take's and segment's */
    void *owner; /* the caller's, for done */
    /* results */
    CallState state;
    Err err;
    double submitted, started, ended; /* seconds_now; started 0: it never ran */
    /* the engine's own */
    int slot, left;
    atomic_bool dropped;
} Call;

Engine *engine_open(const EngineOptions *o, const Source *source, int n, Metrics *metrics, Err *err);
int engine_find(const Engine *e, const char *name); /* -1: no model is called so */
int engine_count(const Engine *e);
const Source *engine_source(const Engine *e, int model);
Model *engine_model(Engine *e, int model); /* the one that serves now; a reference for the caller */

typedef enum Submitted { SUBMIT_OK, SUBMIT_BAD, SUBMIT_FULL, SUBMIT_STOPPED } Submitted;
/* BAD: sizes that the model does not take. FULL: *retry is when to try again, in seconds. In all but OK the caller
 * keeps its reference to the model. */
Submitted engine_submit(Engine *e, int model, Call *c, int *retry, Err *err);
/* Before done; what has not begun will not, and a run that no other call shares ends. */
void engine_cancel(Engine *e, Call *c);
void engine_tick(Engine *e); /* every few hundredths of a second: ends what has taken too long, as engine_cancel does */
bool engine_load(Engine *e, int model, Err *err); /* again from its file; on failure the one before stays */
int64_t engine_waiting(Engine *e, int model);
bool engine_idle(Engine *e);
void engine_stop(Engine *e);  /* nothing is accepted any more; returns when all is answered */
void engine_close(Engine *e); /* NULL is fine */
double seconds_now(void);
#endif
