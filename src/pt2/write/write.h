/* Writing a graph as a .pt2 that torch.export.load takes, as ../../docs/PT2.md describes it.
 *
 *     if (!pt2_save(g, NULL, 0, "out.pt2", err)) ...      the file is there whole, or not at all
 *
 * The same graph gives the same bytes. Weights go from where they are (a mapped file) to the new file, without a copy
 * in between. Errors: E_IO, E_LIMIT, E_UNSUPPORTED (names the node that ATen cannot express). Sizes that only the file
 * needs are made in g's pool, as graph_print does: the graph means the same before and after.
 */
#ifndef QKV_PT2_WRITE_WRITE_H
#define QKV_PT2_WRITE_WRITE_H
#include "base/file.h"
#include "ir/graph.h"

/* extra: files that torch.export.load hands out as extra_files. */
bool pt2_save(const Graph *g, const NamedBytes *extra, int nextra, const char *path, Err *err);
#endif
