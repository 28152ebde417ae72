/* The pipeline, from a file to a graph that sessions run. */
#ifndef QKV_PROGRAM_PROGRAM_H
#define QKV_PROGRAM_PROGRAM_H
#include "base/forks.h"
#include "onnx/read/read.h"
#include "pt2/read/read.h"
#include "plan/fuse.h"

typedef struct Runs { /* program/prepare.c */
    struct Prepared *first;
    ForkLock lock; /* sessions may be made by several threads */
} Runs;

typedef struct Program {
    Source *source;
    Graph *graph;  /* the source's */
    bool no_fuse;  /* runs take every node as one step */
    DType compute; /* of products in runs: DT_NONE as the graph says */
    Runs *runs;    /* graphs that sessions have asked for */
} Program;

typedef struct OpenOptions {
    DType compute;     /* DT_NONE, DT_BF16 or DT_F16: products in a run (precision/precision.h); with no_fuse the whole
                      graph by autocast's rules */
    bool no_fuse;      /* one step a node */
    bool copy;         /* the file is read into memory, not mapped */
    bool skip_padding; /* program_rewrite follows, with skip_padding */
    Fixed fixed;       /* of an ONNX model: inputs that become constants */
} OpenOptions;
/* A .pt2, an ONNX model or a packed one, told by its first bytes. */
bool program_open(Program *p, const char *path, const OpenOptions *options, Err *err);
/* The same for a graph that was made in memory; takes it, in any case.
 * like: what it was made from, and whose weights it borrows; these stay until both programs are closed. */
bool program_of_graph(Program *p, Graph *g, const Program *like, Err *err);
/* A copy whose graph may be changed; file and weights are shared, and stay until both are closed.
 * `from` is only read. */
bool program_copy(Program *p, const Program *from, Err *err);
/* graph_tangents (grad/grad.h), which api/whole.c sets in libqkv.so and the command; NULL: a program that is linked
 * with libqkv.a, which has what it uses alone, and no gradients for the sake of files that want them. */
extern bool (*program_tangents)(Graph *g, Err *err);
/* The first pass of passes.c. */
bool program_import(Program *p, const char *path, const OpenOptions *options, Err *err);
void program_close(Program *p);
#endif
