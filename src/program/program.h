/* The pipeline, from a file to a graph that sessions run. */
#ifndef QKV_PROGRAM_PROGRAM_H
#define QKV_PROGRAM_PROGRAM_H
#include <pthread.h>
#include "onnx/read/read.h"
#include "pt2/read/read.h"
#include "plan/fuse.h"

typedef struct Program {
    Source *source;
    Graph *graph; /* the source's */
    Fusion fusion;
    bool fused;
    DType compute; /* of products in runs: DT_NONE as the graph says */
    struct ForRuns
        *for_runs[4];     /* src/program/prepare.c: as the file says, optimised; both again for sessions that train */
    pthread_mutex_t lock; /* of for_runs: sessions may be made by several threads */
} Program;

typedef struct OpenOptions {
    DType compute; /* DT_NONE, DT_BF16 or DT_F16: products in a run (precision/precision.h); with no_fuse the whole graph by autocast's rules */
    bool no_fuse;  /* one step a node */
    Fixed fixed;   /* of an ONNX model: inputs that become constants */
} OpenOptions;
/* A .pt2, an ONNX model or a packed one, told by its first bytes. */
bool program_open(Program *p, const char *path, const OpenOptions *options, Err *err);
/* The same for a graph that was made in memory; takes it, in any case. like: what it was made from. */
bool program_of_graph(Program *p, Graph *g, const Source *like, Err *err);
void program_close(Program *p);
#endif
