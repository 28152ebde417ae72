/* Where a run's time goes: one clock reading between any two pieces of work, so that the pieces add up to the run.
 *
 *     profile_begin(&s->profile);                        a run starts
 *     ... profile_part(&s->profile, PART_INPUTS);        what came since the last reading was that
 *     ... profile_step(&s->profile, step);               it was this step
 *     profile_end(&s->profile);
 *
 * Sums per step and per part while `sums` is on; while there is room for events, each piece is kept with its
 * start as well, for a trace. Nothing is read or written when both are off. A session owns one; what is said about a
 * step is copied when it is first seen, since plans come and go; what steps of one node and one set of sizes take is
 * one sum.
 */
#ifndef QKV_RUN_PROFILE_H
#define QKV_RUN_PROFILE_H
#include "base/lookup.h"
#include "plan/plan.h"

typedef enum Part { PART_INPUTS, PART_SIZES, PART_PLAN, PART_BUFFERS, PART_PROFILE, PARTS } Part;
const char *part_name(Part p); /* "(inputs)" */
const char *part_what(Part p); /* a sentence */

typedef struct StepInfo {
    const char *node, *op;   /* the graph's */
    const char *module;      /* the path of the node's; NULL: unknown */
    char *operands, *result; /* "f32[1, 197, 768] f32[768, 768]" */
    const char *dtype;       /* of the result */
    Work work;
    const Node *computes; /* the first of the nodes that it covers */
    long calls;           /* and the milliseconds of all of them and of the shortest, while `sums` is on */
    double ms, min_ms;
} StepInfo;

typedef struct TraceEvent {
    double start, ms; /* milliseconds since the trace began */
    int what;         /* index of a StepInfo, -1 - part, or TRACE_RUN */
} TraceEvent;
enum { TRACE_RUN = -1000 };

typedef struct Profile {
    bool sums;
    double last, run_start, origin;
    double part_ms[PARTS], part_min[PARTS], part_run[PARTS]; /* in all runs; the least of any run; in this run */
    long runs;
    StepInfo *info;
    int ninfo;
    Lookup of; /* of StepInfo, by node and operands */
    TraceEvent *event;
    int64_t nevents, cap_events, dropped;
} Profile;

void profile_free(Profile *p);
void profile_sums(Profile *p, bool on); /* zero the parts and switch */
/* Room for n events and an empty trace; 0 switches tracing off and forgets it. */
bool profile_trace(Profile *p, int64_t n, Err *err);

static inline bool profile_is_on(const Profile *p) { return p->sums || p->cap_events; }
void profile_begin(Profile *p);
void profile_part(Profile *p, Part part);
void profile_step(Profile *p, Step *step);
void profile_end(Profile *p);
#endif
