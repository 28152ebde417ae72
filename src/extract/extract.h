/* Cutting a part of a graph into a graph of its own.
 *
 *     Graph *g = graph_extract(whole, (const char *[]){"hidden_3", "mask"}, 2, (const char *[]){"hidden_7"}, 1, err);
 *
 * Its inputs are the values named by `from`, which keep their names, sizes and ranges; its outputs those named by `to`
 * (output_0 ... where one is an input). What lies between and nothing else is copied: nodes, weights and bodies of
 * loops (borrowed: the whole graph must outlive it), buffers that a run changes together with what they become, and
 * every condition on sizes that it has.
 *
 * nfrom 0: the inputs of the graph that are needed. nto 0: its outputs. A name is a value's, as the graph's text shows
 * it, an input's or output's label, or either with other characters where the value has '_' (/block.0/Add_output_0
 * finds _block_0_Add_output_0). An input of the graph that is a size may be named, too. A size of a cut value that its
 * new inputs do not tell apart (s0*s1, s0//2) becomes one size of its own.
 *
 * E_USAGE: a name that there is not (with near ones), an input that a result needs and `from` does not give, a size
 * likewise.
 */
#ifndef QKV_EXTRACT_EXTRACT_H
#define QKV_EXTRACT_EXTRACT_H
#include "ir/graph.h"

Graph *graph_extract(const Graph *g, const char *const *from, int nfrom, const char *const *to, int nto, Err *err);
#endif
