/* Reading a .pt2: the archive of torch.export.save (torch 2.9 to 2.13), as ../../docs/PT2.md describes it.
 *
 *     Pt2 *p = pt2_open("model.pt2", DT_NONE, err);
 *     ... p->graph ...        weights point into the mapped file
 *     pt2_close(p);
 *
 * Nothing in the archive is unpickled; data/sample_inputs is never read. Errors: E_FORMAT (damaged), E_UNSUPPORTED (names every op that
 * is missing, its node and how often), E_IO, E_LIMIT.
 */
#ifndef QKV_IMPORT_PT2_H
#define QKV_IMPORT_PT2_H
#include "base/file.h"
#include "format/zip.h"
#include "ir/graph.h"

typedef struct Pt2 {
    MappedFile file;
    Zip *zip;
    Graph *graph;
    const char *torch_version; /* "2.13.0+cpu"; "" when the file does not say */
    int schema_major, schema_minor;
    const char **ignored;      /* archive entries that were not read, and why */
    int nignored;
    int nguards, nguards_ignored; /* guards_code: how many were read, how many say nothing about sizes that the graph needs */
} Pt2;

/* compute: see autocast.h. */
Pt2 *pt2_open(const char *path, DType compute, Err *err);
void pt2_close(Pt2 *p);
#endif
