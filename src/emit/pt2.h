/* Writing a graph as a .pt2 that torch.export.load takes, as ../../docs/PT2.md describes it.
 *
 *     if (!pt2_save(g, "out.pt2", err)) ...      the file is there whole, or not at all
 *
 * The same graph gives the same bytes. Weights go from where they lie (a mapped file) to the new file, without a copy in between. Errors:
 * E_IO, E_LIMIT, E_UNSUPPORTED (names the node that ATen cannot say).
 * Sizes that only the file needs are made in g's pool, as graph_print does: the graph means the same before and after.
 */
#ifndef QKV_EMIT_PT2_H
#define QKV_EMIT_PT2_H
#include "ir/graph.h"

bool pt2_save(const Graph *g, const char *path, Err *err);
#endif
