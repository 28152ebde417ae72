/* Running one node: what a run_NAME function (column `run` of ops.def) gets. Sizes are bound; everything is a number
 * now.
 *
 *     bool run_relu(Call *c, Err *err)
 *     {
 *         kernel_relu(call_out(c, 0), call_in(c, 0), c->env->threads);
 *         return true;
 *     }
 *
 * Inputs may have any strides (0 and negative too) and any alignment that their dtype has; outputs are contiguous (of
 * ops that src/plan/layout.h names: or channels-last), 64-byte aligned and never overlap the inputs. Import has made
 * the dtypes of binary operands equal already. A run function must not allocate except through call_scratch (freed
 * after the node) and, the first time, for c->state (kept per step of the plan, e.g. a convolution's sizes). Indices
 * that come from data (gather, embedding, index) are checked: E_USAGE with the value and the allowed range.
 */
#ifndef QKV_RUN_RUN_H
#define QKV_RUN_RUN_H
#include "plan/call.h"

typedef struct RunEnv {
    int threads;
    const struct TeamExecutor *executor; /* whose threads; NULL: the pool's (src/team) */
    bool recount;           /* a result has not as many rows as were counted before */
    size_t memory_limit;    /* most bytes of activations, and of scratch; 0 = none */
    int64_t *turns;         /* those that loops, and loops in their bodies, may still take; NULL: any number */
    unsigned char *scratch; /* bump memory for the running step: the arena above what is alive; 64-byte aligned */
    size_t scratch_used, scratch_size;
    void **overflow; /* blocks taken when that was too small; the next run finds a larger arena */
    int noverflow;
    struct Rng *rng; /* the session's generator (src/run/rng.h) */
    void *gemm;      /* the session's packed weights (src/run/run_gemm.c) */
    struct IntegerPool *integers; /* packed weights of integer layers (src/run/integer_pool.h); NULL: none yet */
} RunEnv;

typedef bool RunFn(Call *c, Err *err);

/* Scratch for this node, 64-byte aligned; NULL when out of memory (err is set: E_LIMIT). */
void *call_scratch(Call *c, size_t bytes, Err *err);
/* The tensor itself if it is contiguous (and of dtype t, if t is not DT_NONE),
 * else a contiguous (converted) copy in scratch. */
const Tensor *call_contiguous(Call *c, const Tensor *t, DType want, Err *err);
/* Of an op whose result has as many rows as the data say: without memory for the result they are only counted. False:
 * they are not as many as were counted before, by a plan that rounds otherwise. */
bool call_counted(Call *c, int64_t found, Err *err);
bool call_fail(Call *c, ErrCode code, Err *err, const char *fmt, ...) QKV_PRINTF(4, 5);
#endif
