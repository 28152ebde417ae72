/* Session: runs one graph. It owns plans, memory, the values of buffers that the graph writes, and belongs to one
 * thread at a time.
 *
 *     Session *s = session_create(graph, fusion, threads, 0, err);
 *     session_set_input(s, 0, &tensor, err);          borrowed until session_run returns
 *     session_run(s, err);
 *     const Tensor *y = session_output(s, 0);         valid until the next run
 *     session_free(s);
 *
 * Data-dependent sizes (item, nonzero) are found first, by running just the nodes that they need; then the whole graph
 * is planned with all sizes known.
 */
#ifndef QKV_RUN_SESSION_H
#define QKV_RUN_SESSION_H
#include "plan/plan.h"
#include "run/profile.h"
#include "run/run.h"
#include "team/team.h"

typedef struct Session Session;

/* Made within a stay with an executor (team.h), the session and what is made beside it run on that one's threads; made
 * while cpu_is_portable(), they compute portable bits. */
Session *session_create(const Graph *g, const Fusion *fusion, int threads, size_t memory_limit, Err *err);
/* The same for who runs a model only to look at it: until the session is freed its loops, and those in their bodies,
 * take up to `turns` turns in all; then E_LIMIT. 0: any number. */
Session *session_create_bounded(const Graph *g, const Fusion *fusion, int threads, size_t memory_limit, int64_t turns,
                                Err *err);
/* Of a graph that a node runs, within what the session around it, whose `env` this is, may take. */
Session *session_create_body(const RunEnv *env, const Graph *g, const Fusion *fusion, Err *err);
/* A session beside one that trains: weights that change (Value.changes) are those of `lender`, by name,
 * and not copies of their own. It must outlive this one, and the two do not run at the same time. */
Session *session_create_beside(const Session *lender, const Graph *g, const Fusion *fusion, int threads,
                               size_t memory_limit, Err *err);
const Graph *session_graph(const Session *s);
void session_free(Session *s);
/* dtype and rank must be the input's (E_USAGE names it); sizes are checked by session_run. */
bool session_set_input(Session *s, int i, const Tensor *t, Err *err);
/* A result that depends on weights alone and was computed when the session was made; NULL for any other value. */
const Tensor *session_constant(const Session *s, const Value *v);
struct GemmPool *session_products(const Session *s);  /* packed weights */
const Tensor *session_input(const Session *s, int i); /* NULL when not set */
/* Input i stays as it is from when it is set (again, if it is set now) until it is set again: the session copies it,
 * and what depends on kept inputs and weights alone, random numbers excepted, is computed once and is in memory of its
 * own. */
bool session_keep(Session *s, int i, Err *err);
/* A copy of what a run computed from kept inputs alone, for later runs of this session with the same values of them;
 * NULL: an error. E_USAGE where there is nothing of the kind. */
typedef struct KeptResults KeptResults;
KeptResults *session_kept_results(Session *s, Err *err);
size_t kept_results_bytes(const KeptResults *r);
void kept_results_free(KeptResults *r); /* NULL is fine */
/* The next run takes these and computes none of it, though kept inputs were set again before: they must have the values
 * that they had then. Results that do not fit any more are computed. r must stay until that run. */
void session_use_kept(Session *s, const KeptResults *r);
/* From the next run's end on, input i is what output `from` of the run before was, without a copy; from < 0: it is not
 * any more. Where the output is a cat of the input and something after it, the input grows in place, and begins empty
 * if it was not set. Until it is fed again, what session_set_input gives it counts. Outputs that are fed are not asked
 * for by OutputMemory, may have strides, and are in the session's memory. */
bool session_feed(Session *s, int i, int from, Err *err);
bool session_is_fed(const Session *s, int output);
/* Inputs are not set any more, but for kept ones that the session has copied and fed ones. */
void session_clear_inputs(Session *s);
bool session_set_scalar(Session *s, int i,
                        int64_t value); /* a dynamic scalar input, by position in graph->scalar_input */
bool session_run(Session *s, Err *err);
/* From any thread, or a signal handler: while on, the run that is under way and those that follow end in the middle of
 * a long loop, with E_LIMIT and without results. Runs of graphs that are arguments end with that around them. */
void session_cancel(Session *s, bool on);
/* What weight `name` is to the next run, where runs or training change it: contiguous, the session's;
 * may be written between runs. NULL for any other. */
Tensor *session_weight(const Session *s, const char *name);
/* on: runs leave written buffers as they are; session_commit gives them the values of the last run. */
void session_hold(Session *s, bool on);
bool session_commit(Session *s, Err *err);
struct Rng *session_generator(Session *s);
int session_threads(const Session *s);
/* Around what is computed for the session: on its threads, by its kernels. */
typedef struct SessionStay {
    TeamStay team;
    bool portable;
} SessionStay;
SessionStay session_enter(const Session *s);
void session_leave(SessionStay before);
const Tensor *session_output(const Session *s, int i); /* NULL before the first run */
/* Asked for every output of a run, with its dtype, shape and strides, when they are known:
 * memory for it, aligned to 64 bytes. NULL stops the run. */
typedef void *OutputMemory(void *user, int i, const Tensor *t);
void session_output_memory(Session *s, OutputMemory *f, void *user);
void session_reset(Session *s); /* written buffers have the file's values again; fed inputs are not set */
void session_seed(Session *s, uint64_t seed);
/* Fills unset or all inputs with random values owned by the session, sizes from b. */
bool session_random_inputs(Session *s, const Binding *b, uint64_t seed, Err *err);

typedef struct SessionStats {
    double plan_ms;
    size_t arena_bytes;   /* results of the current plan */
    size_t scratch_bytes; /* beyond them, for the scratch of a step that does not fit where nothing is alive */
    size_t bound_bytes; /* what the order of steps needs at least: the largest sum of what is alive in one */
    size_t constant_bytes, packed_bytes;
    size_t kept_bytes; /* results that depend on kept inputs alone */
    int steps, plans, threads;
} SessionStats;
void session_stats(const Session *s, SessionStats *out);
const Plan *session_last_plan(const Session *s); /* of the last run; NULL before the first */
void session_profile(Session *s, bool on);
/* Calls f for every step that ran since session_profile was switched on. */
void session_each_step(const Session *s, void (*f)(void *user, const StepInfo *step), void *user);
Profile *session_profile_of(Session *s);
/* After every node with its results; f returns false to stop the run. */
typedef bool NodeFn(void *user, const Node *n, Tensor *const *out);
void session_on_node(Session *s, NodeFn *f, void *user);
/* Before every step that runs: its module (modules.h), and the share of the run's work that is done,
 * 0 while it is not known. */
typedef void ProgressFn(void *user, const char *module, double done);
void session_on_progress(Session *s, ProgressFn *f, void *user);
#endif
