/* A graph at one choice of sizes: every size a number.
 *
 *     Graph *c = graph_at_sizes(g, &binding, err);        weights are borrowed from g
 */
#ifndef QKV_PROVE_SIZES_H
#define QKV_PROVE_SIZES_H
#include "ir/graph.h"

/* E_UNSUPPORTED: loops, branches and sizes that depend on data. NULL on error. */
Graph *graph_at_sizes(const Graph *g, const Binding *b, Err *err);
/* The parts of it, for functions that are part of a graph. `from`: the pool that the sizes are of. */
bool sizes_at(Graph *to, const ExprPool *from, const Binding *b, const Value *v, Expr **dim, Err *err);
/* map: by value id, what the values of a are in `to`. */
bool arg_at_sizes(Graph *to, const ExprPool *from, const Binding *b, Value *const *map, const Arg *a, Arg *out,
                  Err *err);
/* The node with arguments at these sizes, added to `to`; map gets its results. */
bool node_at_sizes(Graph *to, const ExprPool *from, const Binding *b, Value **map, const Node *n, Err *err);
#endif
