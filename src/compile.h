/* The pipeline, from a file to a graph that sessions run. */
#ifndef QKV_COMPILE_H
#define QKV_COMPILE_H
#include "import/pt2.h"
#include "plan/fuse.h"

typedef struct Program {
    Pt2 *pt2;
    Graph *graph;   /* the pt2's */
    Fusion fusion;
    bool fused;
} Program;

/* compute: DT_NONE, DT_BF16 or DT_F16 (autocast's rules over the whole graph). fuse: false keeps one step a node. */
bool program_open(Program *p, const char *path, DType compute, bool fuse, Err *err);
/* The same for a graph that was made in memory; takes it, in any case. like: what it was made from. */
bool program_of_graph(Program *p, Graph *g, const Pt2 *like, Err *err);
void program_close(Program *p);
#endif
