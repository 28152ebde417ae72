/* A session's memory, for the files that it is made of: session.c (making and running),
 * data_sizes.c (data-dependent sizes), random_inputs.c. */
#ifndef QKV_RUN_SESSION_IMPL_H
#define QKV_RUN_SESSION_IMPL_H
#include "base/pages.h"
#include "plan/growing.h"
#include "run/rng.h"
#include "run/session.h"

enum {
    MAX_PLANS = 64,
    MAX_STAGES = 32,           /* that have a plan each */
    CONSTANT_BYTES = 64 << 20, /* of plans that are not in use */
};
enum { WHOLE = -1, KEPT = -2 }; /* plans of the whole graph; of what depends on kept inputs alone */

/* A plan and what it was made for. */
typedef struct Cached {
    Plan *plan;
    int stage; /* WHOLE, KEPT, or whose symbols this partial plan finds */
    long used;
    Call *count; /* of a partial plan, by symbol of SYM_SIZE: the node whose sizes are asked for; made the first time */
    int ncount;
    size_t scratch; /* of these */
} Cached;

/* Data-dependent symbols that do not need each other, what must be computed for them, and the requirements that can be
 * checked then: what later stages compute relies on them. */
typedef struct Stage {
    int *symbol, n;
    int *require, nrequire;
    unsigned char *wanted; /* by value id; of many stages: NULL, see Session.parts */
} Stage;

/* Memory that grows to what was asked for at most. */
typedef struct Room {
    void *data;
    size_t size;
} Room;

/* A copy of an output: of a view of a buffer, as that was before the run, in memory of the session;
 * of what could not be written into the caller's. */
typedef struct Kept {
    Tensor copy;
    Room room;
    bool used; /* in the last run */
} Kept;

/* Inputs that stay from run to run, and what depends on them alone (kept.c). */
typedef struct Keeping {
    bool *input;           /* by input: is it kept? */
    bool *fresh;           /* by input: set since the last run */
    unsigned char *wanted; /* by value id: kept results that something else uses */
    const Value **value;   /* they */
    int n;
    int *slot;            /* by value id: 1 + its place in `value` */
    const Tensor **given; /* as Session.given, and they */
    bool *symbol;         /* by symbol: a size of a kept input */
    Binding sizes;        /* those alone; what the results were made for is their plan's */
    bool stale;           /* the results are not of the inputs as they are now */
    int plan;             /* number of the plan that the results are of */
    const KeptResults *use; /* what the next run takes instead; NULL: it computes them */
} Keeping;

/* An input that is what an output of the run before was, and such an output (feeds.c). */
typedef struct Feed {
    int from;    /* 1 + the output; 0: it is not fed */
    bool held;   /* it is in the session's memory, not in the caller's */
    Room memory; /* of one that grows */
} Feed;

typedef struct FedOutput {
    int readers;
    bool in_place; /* it lies where its input does */
    Room side[2];  /* otherwise: memory for this run's and the last one's */
    int turn;
} FedOutput;

typedef struct Feeding {
    Feed *input;
    FedOutput *output;
    Grown *grown; /* by input */
} Feeding;

/* What a growing plan computed and the plan of the whole graph takes (data_sizes.c). */
typedef struct Found {
    GrowingPlan *plan;    /* of this run, or of the last one; NULL: there is none */
    const Tensor **given; /* by value id: as that plan was given, and what it computed */
    int *slot;            /* by value id, as PlanInput has it */
    int n, room;          /* addresses after those of outputs; those that there is memory for */
} Found;

struct Session {
    const Graph *g;
    const Fusion *fusion;
    RunEnv env;
    TeamStop stop;
    int64_t turns; /* those that its loops may still take, where that is bounded */
    bool portable; /* bits that are the same on every x86 level */
    Rng rng;
    Tensor *input; /* what the caller set */
    bool *input_set;
    const Tensor **sizes; /* their addresses */
    Room *own_input;      /* contiguous copies, and random inputs */
    void **input_data;    /* addresses for the current run: of inputs, of results of kept inputs, of outputs that the
                             caller has memory for, of what was found with sizes */
    void **placed_input;  /* the addresses that the current plan was placed at */
    int64_t *scalar;
    Binding binding; /* of the current run */
    Stage *stage;    /* each needs those before it */
    int nstages;
    PlanParts parts; /* of more than MAX_STAGES: the graph by stages, and what is wanted of all; n 0: of fewer */
    unsigned char *parts_wanted;
    Found found;
    Tensor **given; /* by value id: weights, session constants, buffers */
    unsigned char *stable;
    void **owned; /* memory of session constants and buffers */
    int nowned;
    Tensor *state;    /* per mutation: the buffer's value, owned */
    Tensor *changing; /* by place in g->weight: the value of one that changes between runs, owned or lent; no data for
                         the others */
    bool hold;        /* written buffers wait for session_commit */
    Room *early;      /* per mutation: the new value, where it looks at a buffer */
    Kept *kept;       /* per output */
    OutputMemory *memory; /* the caller's, for outputs; NULL: they are in the session's */
    void *memory_user, **output_data;
    Keeping *keep;    /* NULL: no input is kept */
    Feeding *feeding; /* NULL: no input is fed */
    bool *elsewhere;  /* by output: a run is given memory for it */
    Pages arena;      /* results of the current plan, and scratch above what is alive in each step */
    size_t needed;    /* most bytes of it that any step would have used */
    Cached cached[MAX_PLANS];
    int ncached;
    long clock;
    Plan *current;
    int plans_made;
    double plan_ms;
    Profile profile;
    NodeFn *on_node;
    void *on_node_user;
    ProgressFn *on_progress;
    void *on_progress_user;
    const char **module; /* by value id; NULL: not asked for */
    double work, done;   /* of the current run, while on_progress is set; work 0: not known yet */
};

/* Memory for input i, kept by the session; NULL when out of memory or above the session's limit. */
void *session_own_input(Session *s, int i, size_t bytes, Err *err);

/* The plan for a binding, made or found again. wanted: NULL for the whole graph (stage WHOLE).
 * Of stage KEPT there is one plan at a time. */
Cached *session_plan(Session *s, const Binding *b, int stage, const unsigned char *wanted, Err *err);
/* Memory, constants and addresses of p, which becomes the current plan. */
bool session_ready(Session *s, Plan *p, Err *err);
int session_output_place(const Session *s); /* where outputs' addresses begin in input_data */
/* Those from step `from` on that are constants, or that are not. */
bool session_run_steps(Session *s, Plan *p, int from, bool constants, Err *err);
/* One run function; its scratch is `room` bytes of the arena from `top` on (or what there is).
 * *scratch: what it took, if that is more. */
bool session_call(Session *s, Call *c, size_t top, size_t room, size_t *scratch, Err *err);

/* All plans are made again. */
void session_forget_plans(Session *s);
/* But for that of kept inputs, whose results may be in use. */
void session_forget_sizes(Session *s);
/* Which outputs are written to memory that a run is given. */
void session_sort_outputs(Session *s);
/* Bytes of inputs that are the session's own. */
size_t session_held(const Session *s);
/* 64-byte aligned memory; at least n bytes in r, where what was there is lost if it must grow. NULL when out of it. */
void *session_block(size_t n);
void *session_room(Room *r, size_t n);

/* feeds.c. Before a run: an input that grows and was not set begins empty, the other sizes as inputs that were set have
 * them; false where none has. */
bool feeding_start_empty(Session *s, int i);
bool feeding_grows(const Session *s, int i);
const Grown *feeding_grown(const Session *s);
/* When sizes are known: room for what the run adds to inputs that grow. */
bool feeding_reserve(Session *s, Err *err);
bool feeding_output(const Session *s, int o); /* does an input take it? */
bool feeding_apart(const Session *s, int o);  /* and is it written to a block of its own: */
void *feeding_memory(Session *s, int o, size_t bytes);
void feeding_pass(Session *s);               /* after a run: outputs become inputs */
bool feeding_holds(const Session *s, int i); /* is input i what a run left? */
void feeding_was_set(Session *s, int i);     /* by the caller */
void feeding_let_go(Session *s);             /* fed inputs are not set any more */
size_t feeding_bytes(const Session *s);
void feeding_free(Session *s);

/* kept.c: runs what depends on kept inputs alone, unless its results are there;
 * the whole graph's plan is then given them. */
bool keeping_run(Session *s, Err *err);
void keeping_free(Session *s);

/* data_sizes.c: the stages of a graph, and running them so that every symbol of s->binding is bound. */
bool stages_make(Session *s, Err *err);
void stages_free(Session *s);
void stages_let_go(Session *s); /* of what they found in the last run */
bool stages_run(Session *s, Err *err);
/* From now on every node is computed once, for its size and for its results. */
bool stages_once(Session *s, Err *err);
/* Marks by value id what they want. */
void stages_want(const Session *s, unsigned char *wanted);
/* The plan of a stage or of all, but for what it is a plan of (session.c). */
PlanInput session_plan_input(const Session *s, int stage, const unsigned char *wanted);
#endif
