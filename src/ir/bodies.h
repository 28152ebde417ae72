/* Graphs that a graph's nodes run: bodies of loops and branches.
 *
 *     for (int i = 0; (body = body_at(node, i)); i++) ...
 */
#ifndef QKV_IR_BODIES_H
#define QKV_IR_BODIES_H
#include "ir/graph.h"

Graph *body_at(const Node *n, int i); /* NULL after the last */
bool graph_asks_derivatives(const Graph *g); /* in a body, too */
bool has_bodies(const Graph *g);
/* Weights of bodies, at any depth, become weights of g that the bodies capture: then they are g's to differentiate, to
 * train and to write. parameters: only what is trained. E_LIMIT. */
bool bodies_lift(Graph *g, bool parameters, Err *err);
/* The other way: what a body captures of g's weights, and no run changes, is a weight of the body, which products pack
 * and rules look at. E_LIMIT. */
bool bodies_sink(Graph *g, Err *err);
#endif
