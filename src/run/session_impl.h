/* A session's memory, for the files that it is made of: session.c (making and running), sizes.c (sizes that come out of data), random.c. */
#ifndef QKV_RUN_SESSION_IMPL_H
#define QKV_RUN_SESSION_IMPL_H
#include <sys/types.h>
#include "base/pages.h"
#include "run/rng.h"
#include "run/session.h"

enum { MAX_PLANS = 64 };

/* A plan and what it was made for. */
typedef struct Cached {
    Plan *plan;
    int stage; /* -1: the whole graph; else the symbol that this partial plan finds */
    long used;
    Call count; /* a partial plan of SYM_SIZE: the node whose sizes are asked for; made the first time */
    size_t scratch; /* its */
} Cached;

/* A symbol that comes out of data, and what must be computed for it. */
typedef struct Stage {
    int symbol, at;        /* at: the place of its source in the graph */
    unsigned char *wanted; /* by value id */
} Stage;

/* Memory that grows to what was asked for at most. */
typedef struct Room {
    void *data;
    size_t size;
} Room;

/* An output that is a view of a buffer as it was before the run: a copy, owned. */
typedef struct Kept {
    Tensor copy;
    Room room;
    bool used; /* in the last run */
} Kept;

struct Session {
    const Graph *g;
    const Fusion *fusion;
    RunEnv env;
    Rng rng;
    Tensor *input;          /* what the caller set */
    bool *input_set;
    const Tensor **sizes;   /* their addresses */
    Room *own_input;        /* contiguous copies, and random inputs */
    void **input_data;      /* address per input for the current run */
    void **placed_input;    /* the addresses that the current plan was placed at */
    int64_t *scalar;
    Binding binding;        /* of the current run */
    Stage *stage;           /* in the graph's order */
    int nstages;
    Tensor **given;         /* by value id: weights, session constants, buffers */
    unsigned char *stable;
    void **owned;           /* memory of session constants and buffers */
    int nowned, cap_owned;
    Tensor *state;          /* per mutation: the buffer's value, owned */
    Room *early;            /* per mutation: the new value, where it looks at a buffer */
    Kept *kept;             /* per output */
    Pages arena;            /* results of the current plan, and scratch above what is alive in each step */
    size_t needed;          /* most bytes of it that any step would have used */
    Cached cached[MAX_PLANS];
    int ncached;
    long clock;
    Plan *current;
    int plans_made;
    double plan_ms;
    Profile profile;
    NodeFn *on_node;
    void *on_node_user;
    pid_t pid;
};

/* Memory for input i, kept by the session; NULL when out of memory. */
void *session_own_input(Session *s, int i, size_t bytes);

/* The plan for a binding, made or found again. wanted: NULL for the whole graph (stage -1). */
Cached *session_plan(Session *s, const Binding *b, int stage, const unsigned char *wanted, Err *err);
/* Memory, constants and addresses of p, which becomes the current plan. */
bool session_ready(Session *s, Plan *p, Err *err);
bool session_run_steps(Session *s, Plan *p, bool constants, Err *err);
/* One run function; its scratch is `room` bytes of the arena from `top` on (or what there is). *scratch: what it took, if that is more. */
bool session_call(Session *s, Call *c, size_t top, size_t room, size_t *scratch, Err *err);

/* sizes.c: the stages of a graph, and running them so that every symbol of s->binding is bound. */
bool stages_make(Session *s, Err *err);
void stages_free(Session *s);
bool stages_run(Session *s, Err *err);
#endif
