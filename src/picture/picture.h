/* Pictures of graphs: which part of a graph is shown, as text, as DOT for graphviz, or as SVG with a layout of our own.
 *
 *     PictureOptions o = {.module = "layers.0.attention"};
 *     picture_text(g, &o, &out, err)      the lines of graph_print of these nodes
 *     picture_dot(g, &o, &out, err)
 *     picture_svg(g, &o, &out, err)       at most PICTURE_MOST boxes
 *
 * A node is shown that meets all conditions given. Pictures show what it reads from other nodes and inputs, and what
 * reads it, as boxes of their own; weights are not shown. Errors: E_USAGE (nothing meets a condition), E_LIMIT.
 */
#ifndef QKV_PICTURE_PICTURE_H
#define QKV_PICTURE_PICTURE_H
#include "base/buf.h"
#include "ir/graph.h"

enum { PICTURE_MOST = 4000 };

typedef struct PictureOptions {
    const char *module; /* its nodes, and those of modules in it; NULL: all */
    const char *op;     /* "linear", "aten.linear" or the whole name; NULL: all */
    const char *around; /* this node, and those at most `hops` edges away; NULL: all */
    int hops;
} PictureOptions;

bool picture_text(const Graph *g, const PictureOptions *o, Buf *out, Err *err);
bool picture_dot(const Graph *g, const PictureOptions *o, Buf *out, Err *err);
bool picture_svg(const Graph *g, const PictureOptions *o, Buf *out, Err *err);
#endif
