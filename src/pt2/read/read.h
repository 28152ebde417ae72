/* Reading a .pt2: the archive of torch.export.save (torch 2.9 to 2.15), as ../../docs/PT2.md describes it.
 *
 *     Source *p = pt2_open("model.pt2", DT_NONE, err);
 *     ... p->graph ...        weights point into the mapped file
 *     source_close(p);
 *
 * Nothing in the archive is unpickled; data/sample_inputs is never read. Errors: E_FORMAT (damaged), E_UNSUPPORTED
 * (names every op that is missing, its node and how often), E_IO, E_LIMIT.
 */
#ifndef QKV_PT2_READ_READ_H
#define QKV_PT2_READ_READ_H
#include "model/source.h"

/* compute: see autocast.h. */
Source *pt2_open(const char *path, DType compute, Err *err);
/* For a checker: what loading would refuse in a node is reported, and the file's word is taken for that node's results
 * (as inputs of the graph). */
Source *pt2_open_watched(const char *path, const SourceWatch *watch, Err *err);
/* Whether nodes of a .pt2 may have this target: "aten.add.Tensor", "torch.ops.aten.add.Tensor", "_operator.mul". */
bool pt2_knows(const char *target);
#endif
