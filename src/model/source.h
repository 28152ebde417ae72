/* A model file that was read: its graph, what it says about itself, and the bytes that the weights point into.
 *
 *     Source *s = pt2_open("model.pt2", DT_NONE, err);      or onnx_import
 *     ... s->graph ...
 *     source_close(s);
 */
#ifndef QKV_MODEL_SOURCE_H
#define QKV_MODEL_SOURCE_H
#include <stdatomic.h>
#include "base/file.h"
#include "onnx/wire/onnx.h"
#include "format/zip.h"
#include "ir/copy.h"

/* A weight that a .qkv holds as matrix products take it (kernel/gemm.h). */
typedef struct PackedWeight {
    Tensor b; /* (K, N): which bytes of which weight, by their address and strides */
    bool rounded;
    const char *layout; /* of the bytes; where a CPU lays them out otherwise, the file is for another one */
    const void *data;
    size_t size;
} PackedWeight;

/* An operand of an attention as the file has it. */
typedef struct FileTensor {
    Value *value;           /* NULL: there is none */
    Expr **stride, *offset; /* as the file declares them; NULL where it does not */
} FileTensor;

/* An attention of the file, before import made it (batch, heads, length, size). */
typedef struct FileAttention {
    const char *node;
    const char *path; /* of its module, "encoder.layers.0"; "" outside of any, NULL when the file does not say */
    const Op *op;     /* scaled_dot_product_attention, or one of its backends' own */
    const Arg *arg;   /* of op */
    FileTensor q, k, v, mask;
    Value *out;
} FileAttention;

typedef struct Source {
    struct Source *origin; /* NULL: it owns the file; otherwise what its graph was made from, which stays open */
    bool carries;          /* the origin's extra files are its own: it is the same model, rounded */
    MappedFile file;       /* of a .pt2 or a .qkv */
    Zip *zip;
    OnnxFile *onnx;
    Graph *graph;
    const char *torch_version;      /* .pt2: "2.13.0+cpu"; "" when the file does not say, and of ONNX */
    int schema_major, schema_minor; /* .pt2 */
    const char *producer;           /* ONNX: "pytorch 2.13.0"; "" of a .pt2 */
    int64_t opset;                  /* ONNX: of ai.onnx; 0 of a .pt2 */
    bool prepared;                  /* a .qkv: rewritten for runs when it was packed; the four above are its source's */
    const char *cpu;                /* of a .qkv: the level that it was packed at */
    const char *kept_by, *kept_key; /* of a .qkv that a cache keeps: the version that wrote it, its key; NULL */
    PackedWeight *packed;           /* of a .qkv */
    int npacked;
    NamedBytes *extra; /* of a .qkv: its source's extra files */
    int nextra;
    Arena *arena;         /* of a .qkv: the weights' tensors */
    const char **ignored; /* what was not read, and why */
    int nignored;
    FileAttention *attention; /* of a .pt2, in the graph's arena; none once the graph is rewritten */
    int nattention;
    int nloops; /* of a .pt2: how often the bodies of loops were read */
    Map lines;  /* of a .pt2: node name -> "model.py:31 in forward: ...", in the graph's arena; where there is an
                  origin, the origin has them */
    int ninputs; /* of the file; after pt2_open_watched the graph may have more */
    int nguards,
        nguards_ignored; /* guards_code: how many were read, how many say nothing about sizes that the graph needs */
    atomic_int users; /* closings until it ends: of who opened it, and of sources whose origin it is; the last member */
} Source;

/* Receives each node that does not fit, and each declared type, while an import goes on. */
typedef struct SourceWatch {
    void *user;
    void (*problem)(void *user, const char *node, const Err *why);
    void (*declared)(void *user, const Graph *g, const char *node, const Value *v, DType t, int rank, Expr *const *dim);
} SourceWatch;

Source *source_new(Err *err); /* with nothing in it */
/* `from` with a copy of its graph: the file and the weights are shared,
 * and stay until the last of the two is closed. */
Source *source_copy(Source *from, Err *err);
/* A graph that was made from `from`, which keeps the weights it borrows; takes the graph, in any case. Of the file only
 * versions and producer are told. */
Source *source_of_graph(Graph *g, Source *from, Err *err);
void source_close(Source *s); /* NULL is fine */
/* The line of Python that made a node of the file, also after its graph was rewritten; NULL: unknown. */
const char *source_line(const Source *s, const char *node);

/* Files that came with a model, which mean nothing to it: ARCHIVE/extra/NAME of a .pt2 (torch.export.save's
 * extra_files), or what a .qkv carries of them. */
typedef struct Extras {
    NamedBytes *file; /* by NAME; bytes live as long as this and the source */
    int n;
    NamedBytes *own;
    Zip *zip;
} Extras;

bool extras_open(
    Extras *x, const Source *s,
    Err *err); /* every one is read and its checksum held against it; x may be closed after a failure, too */
void extras_close(Extras *x);
#endif
