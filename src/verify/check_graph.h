/* What a graph's sizes, masks and ops say after import: the same for every format. */
#ifndef QKV_VERIFY_CHECK_GRAPH_H
#define QKV_VERIFY_CHECK_GRAPH_H
#include "ir/graph.h"
#include "verify/check.h"

/* ninput: how many of g's inputs are the file's; the ones after them stand for nodes that could not be imported. */
void check_graph(Check *c, Graph *g, int ninput);
/* The sizes that a file declares for the results of `node` against those that the op gives. */
void check_declared_type(Check *c, const Graph *g, const char *node, const Value *v, DType t, int rank,
                         Expr *const *dim);
#endif
