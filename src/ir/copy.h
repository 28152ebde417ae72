/* Copies of graphs: the same values, nodes, sizes and facts in memory of their own; weights' bytes are borrowed.
 *
 *     GraphCopy c;
 *     Graph *mine = graph_copy_with(g, &c, err);
 *     c.value[v->id]                              what `v` of g is in the copy
 *     graph_copy(g, err)                          the same without a map
 *
 * g is only read: any number of threads may copy it at once. A new field of a graph, value or node is copied here and
 * nowhere else.
 */
#ifndef QKV_IR_COPY_H
#define QKV_IR_COPY_H
#include "ir/graph.h"

typedef struct GraphCopy {
    Value **value; /* by id; NULL: it was not part of the graph any more. In the copy's arena, as is expr */
    Expr *expr;    /* by id */
} GraphCopy;

Graph *graph_copy_with(const Graph *g, GraphCopy *map, Err *err); /* NULL when out of memory */
Graph *graph_copy(const Graph *g, Err *err);
/* A copy in place of *g, which it frees, where most of the values that it ever had are gone: a graph's memory and the
 * tables by id count those as well. The weights are in other memory than *g's. False when out of memory; *g stays. */
bool graph_compact(Graph **g, Err *err);
/* What an argument of g, whose values are in the copy, is there. False when out of memory. */
bool graph_copy_arg(Graph *to, const GraphCopy *map, const Arg *from, Arg *out);
#endif
