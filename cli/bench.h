/* qkv bench in three files: cmd_bench.c times runs, bench_ops.c says where their time goes, bench_predict.c what they
 * would take with more threads. */
#ifndef QKV_CLI_BENCH_H
#define QKV_CLI_BENCH_H
#include "cli.h"

/* Steps of one op together, or one step; times of one run. */
typedef struct OpTime {
    const char *op, *node, *result; /* the profile's; node NULL for a sum, op NULL for one of a module */
    const char *module;             /* its path; NULL: unknown */
    size_t in;                      /* of a sum: bytes of the path that all its steps share */
    int nodes;
    double ms, min_ms;   /* mean over the runs; sum of the shortest calls */
    double flops, bytes; /* of one run */
    double at_peak_ms;   /* what the operations would take at peak */
} OpTime;

typedef struct OpProfile {
    qkv_peak before, after, peak; /* peak: the better of the two */
    json_t *profile;
    OpTime *op, *node, *module, total;
    int nop, nnode, nmodule; /* nmodule 0: the file says of no step where it belongs */
    double wall_ms;          /* mean of the same runs, measured around them */
} OpProfile;

int ops_peak(const Loaded *m, qkv_peak *out);
/* After `runs` runs that took wall_ms on average. */
int ops_finish(Loaded *m, int64_t runs, double wall_ms, OpProfile *p);
void ops_print(const OpProfile *p, bool nodes);
void ops_json(const OpProfile *p, bool nodes, json_t *into);
void ops_free(OpProfile *p);
size_t block_of(const char *path); /* bytes of a module's path up to its first number */

/* Prints what each layer would take with 2 to 64 threads, and what it took; `like`: the session's options, least_ms:
 * the quickest run. */
int predict(const Loaded *m, const qkv_session_options *like, const OpProfile *p, double least_ms);
#endif
