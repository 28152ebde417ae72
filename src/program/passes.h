/* Passes: everything that is ever done to a graph between a file and a run, as one table (passes.c).
 *
 *     Pipeline s = {.graph = copy, .rewrite = {.rules = rules}, .fusion = &fusion};
 *     passes_run(&s, PASS_BIT(PASS_REWRITE) | PASS_BIT(PASS_FUSE), err)
 *
 * A list of passes is a sum of bits: the order is always the table's. After each of them the graph is well formed,
 * prints as text, and the text parses back; so any pass can be the last, and a pass that goes wrong is found by running
 * longer and longer lists.
 */
#ifndef QKV_PROGRAM_PASSES_H
#define QKV_PROGRAM_PASSES_H
#include "backends/lift_sdpa.h"
#include "grad/grad.h"
#include "padding/skip_padding.h"
#include "program/program.h"
#include "rewrite/prove.h"
#include "rewrite/rewrite.h"

struct Session;

typedef enum PassId {
    PASS_IMPORT,
    PASS_JOINT,
    PASS_TRAIN,
    PASS_SINK,
    PASS_RANKS,
    PASS_DETACH,
    PASS_PAIR,
    PASS_REWRITE,
    PASS_PADDING,
    PASS_LIFT,
    PASS_CONSTANTS,
    PASS_INTEGERS,
    PASS_PRECISION,
    PASS_FOLD,
    PASS_FUSE,
    PASSES
} PassId;

#define PASS_BIT(id) (1u << (id))

/* The lists. What a caller did not ask for (a device to lift for, padding to skip) is taken out of them. */
enum {
    PASSES_LOAD = PASS_BIT(PASS_IMPORT),
    PASSES_JOINT = PASS_BIT(PASS_JOINT),
    PASSES_REWRITE = PASS_BIT(PASS_SINK) | PASS_BIT(PASS_RANKS) | PASS_BIT(PASS_DETACH) | PASS_BIT(PASS_PAIR) |
                     PASS_BIT(PASS_REWRITE) | PASS_BIT(PASS_PADDING) | PASS_BIT(PASS_LIFT),
    PASSES_PLAIN_RUN = PASS_BIT(PASS_PRECISION) | PASS_BIT(PASS_FUSE), /* the nodes of the file */
    PASSES_RUN = PASS_BIT(PASS_SINK) | PASS_BIT(PASS_DETACH) | PASS_BIT(PASS_PAIR) | PASS_BIT(PASS_REWRITE) |
                 PASS_BIT(PASS_INTEGERS) | PASSES_PLAIN_RUN,
    PASSES_WRITE = PASS_BIT(PASS_CONSTANTS), /* a .pt2 or ONNX file */
    PASSES_PACK = (PASSES_RUN | PASS_BIT(PASS_FOLD)) & ~PASS_BIT(PASS_FUSE),
};

/* What passes read and write; each says what it needs in the table. */
typedef struct Pipeline {
    Graph *graph;
    Program *program; /* import fills it; ranks reads what the file had */
    const char *path;
    const OpenOptions *open;
    const JointOptions *joint;
    /* graph_joint, given by who wants it: programs that only run are linked without gradients */
    bool (*differentiate)(Graph *g, const JointOptions *o, Err *err);
    RewriteOptions rewrite;
    const Prover *prover; /* NULL: nothing is proven */
    const SdpaDevice *device;
    DType compute;
    struct Session *folder; /* owns what fold computed; the caller's to free */
    Fusion *fusion;
    RewriteLog log, lifted; /* pipeline_free; log: of pair and of rewrite */
    RewriteLog rest;        /* of rewrite alone, where pair has done something */
    RewriteLog *inside;     /* of rewrite, of each body of a loop or branch */
    int ninside;
    SkipLog skip;
    int detached;
} Pipeline;

/* Runs the passes of `list` in the order of the table and checks the graph after each. */
bool passes_run(Pipeline *s, unsigned list, Err *err);
void pipeline_free(Pipeline *s); /* the logs */

/* The passes that a user may name, in order, and whether sessions run them unasked; NULL after the last. */
const char *pass_listed(int i, bool *ordinary);
/* "detach,rewrite" as a list; NULL is PASSES_RUN. */
bool passes_named(const char *names, unsigned *list, Err *err);
#endif
