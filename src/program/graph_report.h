/* A graph as JSON, for pages and comparisons. Keys at qkv_model_graph_json in include/qkv_tools.h. */
#ifndef QKV_PROGRAM_GRAPH_REPORT_H
#define QKV_PROGRAM_GRAPH_REPORT_H
#include "model/source.h"

/* g: the source's graph, or one that was made from it. */
bool graph_report(const Source *s, const Graph *g, Buf *out, Err *err);
#endif
