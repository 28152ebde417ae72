/* Threads for the loops of kernels: one pool, shared by all sessions of the process.
 *
 *     #pragma omp parallel for num_threads(threads) if (rows * n > 1 << 14)
 *         for (int64_t i = 0; i < rows; i++) ...
 *
 * The compiler (-fopenmp) makes a function of the loop and calls the functions at the end of team.c; no OpenMP runtime
 * is linked. Such a region has as many parts as the pool has threads for it now, at most `threads`, and each part is
 * run once, by any thread: one thread may run several, one after the other. So there is no barrier within a region (a
 * program with one does not link), and no part may wait for another. A loop that follows on another's results is a
 * region of its own.
 *
 * Iterations of schedule(dynamic) are claimed: first those of the part's own share, then what others have left. A
 * region has at most one such loop; inside `omp parallel` it needs nowait.
 */
#ifndef QKV_TEAM_TEAM_H
#define QKV_TEAM_TEAM_H
#include <stdatomic.h>
#include <stdbool.h>

/* Threads of the caller's. Calls task(data, i) once for each i of [0, n), in any order, from any threads, several at a
 * time or one after the other, and returns when all calls have returned. */
typedef struct TeamExecutor {
    void (*run)(void *user, int n, void (*task)(void *data, int i), void *data);
    void *user;
} TeamExecutor;

/* How a thread is asked to leave its loops, by any other. Once they have seen that, it holds until `seen` is cleared,
 * whatever becomes of `asked`: what they left out is not there. */
typedef struct TeamStop {
    atomic_bool asked, seen;
} TeamStop;

/* What regions of the calling thread take, as it was before; for team_leave. */
typedef struct TeamStay {
    int threads;
    const TeamExecutor *executor;
    TeamStop *stop;
} TeamStay;

/* Until team_leave, regions of the calling thread have up to that many threads (0: as many as before), the executor's
 * where there is one (it must outlive the stay). The thread counts as busy: those of the pool are shared by all threads
 * that stay. */
TeamStay team_enter(int threads, const TeamExecutor *executor);
void team_leave(TeamStay before);
/* Until team_leave, loops of the calling thread end early when that is asked; where one is set already, as around the
 * body of a loop, that one counts. False: it was. */
bool team_heed(TeamStop *stop);
/* Is the calling thread, or the one that opened the region that it is in, asked to stop? Claimed iterations
 * (schedule(dynamic)) look before each; other long loops do so between pieces of some hundred microseconds. Whoever
 * relies on results looks once more after the region. */
bool team_stopped(void);
const TeamExecutor *team_executor(void); /* of the calling thread's stay; NULL: the pool */

int team_default(void); /* QKV_NUM_THREADS, else OMP_NUM_THREADS, else cpu_count() */
int team_width(void);   /* threads that a region of the calling thread has at most: team_default() before any stay */
int team_part(void);    /* within a region: which part this is */
int team_parts(void);   /* and of how many; outside of one 0 and 1 */
#endif
