/* Constants of a file are computed before it is written: a static shifted-window mask is one tensor, not 18 nodes.
 *
 *     fold_constants(g, err)
 *
 * What depends on no input and on no parameter becomes a constant, in the graph's arena, where something was computed
 * (a view of a buffer, and one value repeated, stay nodes) and it has at most FOLD_MOST bytes. Parameters and buffers
 * stay as they are. Graphs with bodies are left alone, and those in which it takes more bytes of results than FOLD_ALL,
 * or than FOLD_MOST and FOLD_TIMES their weights: a file of some hundred bytes can ask for any number of them.
 */
#ifndef QKV_PROGRAM_CONSTANTS_H
#define QKV_PROGRAM_CONSTANTS_H
#include "ir/graph.h"

enum { FOLD_MOST = 64 << 20, FOLD_TIMES = 16, FOLD_ALL = 1 << 30 };

bool fold_constants(Graph *g, Err *err);
#endif
