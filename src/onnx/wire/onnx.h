/* ONNX files as records: what onnx.proto's messages say, checked for form, with no meaning given to ops.
 *
 *     OnnxFile *f = onnx_open("model.onnx", err);       maps the file; weights are borrowed from it (and from
 *                                                       external data files)
 *     for (int i = 0; i < f->model.graph->nnode; i++) use(&f->model.graph->node[i]);
 *     onnx_close(f);
 *
 * What reading promises: every length is inside its message, strings hold no NUL and are valid UTF-8, each message is
 * nested at most ONNX_MAX_DEPTH deep, a tensor's bytes are exactly what its dtype and sizes ask for (raw, typed and
 * packed fields become the same: little endian, 4-bit and 2-bit elements unpacked to one a byte), external data is in a
 * regular file inside the model's folder (no link, no "..", nothing absolute). Absent strings are "". Repeated singular
 * fields: the last one wins, as protobuf says. Errors: E_FORMAT with the path of fields and the byte offset, E_IO,
 * E_LIMIT, E_UNSUPPORTED (dtypes that have no DType).
 *
 * The same records are what emit/ writes: onnx_write. Same records, same bytes.
 */
#ifndef QKV_ONNX_WIRE_ONNX_H
#define QKV_ONNX_WIRE_ONNX_H
#include <stdint.h>
#include "base/arena.h"
#include "base/file.h"
#include "tensor/tensor.h"

enum { ONNX_MAX_DEPTH = 32 }; /* of graphs in attributes, and of calls of functions */

/* Our own metadata: ONNX_RANGE_KEY + a dim_param -> "1..512" or "1..", the sizes that it may have. */
#define ONNX_RANGE_KEY "qkv.range."
/* ONNX_STATE_KEY + an output -> an input with a default: the buffer that takes this output's value after a run. */
#define ONNX_STATE_KEY "qkv.state."
/* Metadata of a tensor: our writer turned this matrix, the model's weight of this name has the axes the other way. */
#define ONNX_TRANSPOSED_KEY "qkv.transposed"

/* onnx.proto, TensorProto.DataType */
enum OnnxType {
    ONNX_UNDEFINED,
    ONNX_FLOAT,
    ONNX_UINT8,
    ONNX_INT8,
    ONNX_UINT16,
    ONNX_INT16,
    ONNX_INT32,
    ONNX_INT64,
    ONNX_STRING,
    ONNX_BOOL,
    ONNX_FLOAT16,
    ONNX_DOUBLE,
    ONNX_UINT32,
    ONNX_UINT64,
    ONNX_COMPLEX64,
    ONNX_COMPLEX128,
    ONNX_BFLOAT16,
    ONNX_FLOAT8E4M3FN,
    ONNX_FLOAT8E4M3FNUZ,
    ONNX_FLOAT8E5M2,
    ONNX_FLOAT8E5M2FNUZ,
    ONNX_UINT4,
    ONNX_INT4,
    ONNX_FLOAT4E2M1,
    ONNX_FLOAT8E8M0,
    ONNX_UINT2,
    ONNX_INT2,
    ONNX_TYPE_COUNT
};
DType dtype_from_onnx(int type);      /* DT_NONE for STRING, UNDEFINED and what is unknown */
int dtype_to_onnx(DType t);           /* ONNX_UNDEFINED when ONNX has none */
const char *onnx_type_name(int type); /* "FLOAT"; "?" out of range */

typedef struct OnnxGraph OnnxGraph;

typedef struct OnnxPair {
    const char *key, *value;
} OnnxPair;

typedef struct OnnxTensor {
    const char *name;
    int type; /* OnnxType as the file says */
    Tensor t; /* read: contiguous, written: a view; t.dtype DT_NONE for strings, whose elements are in `string` */
    const char **string;
    int nstring;
    /* as the file holds it */
    bool external;
    const char *location;    /* external: relative to the model's folder */
    uint64_t offset, length; /* external: in that file */
    OnnxPair *metadata;
    int nmetadata;
} OnnxTensor;

typedef struct OnnxSparse {
    OnnxTensor values, indices;
    int rank;
    int64_t dim[MAX_RANK];
} OnnxSparse;

typedef struct OnnxDim {
    bool known; /* dim_value */
    int64_t value;
    const char *param; /* dim_param, "" when it says nothing */
} OnnxDim;

typedef enum OnnxKind {
    ONNX_KIND_NONE,
    ONNX_TENSOR,
    ONNX_SEQUENCE,
    ONNX_OPTIONAL,
    ONNX_MAP,
    ONNX_SPARSE,
    ONNX_OPAQUE
} OnnxKind;

typedef struct OnnxTypeProto {
    OnnxKind kind;
    int elem; /* ONNX_TENSOR, ONNX_SPARSE: OnnxType */
    bool has_shape;
    int rank;
    OnnxDim *dim;
    const struct OnnxTypeProto *inner; /* of sequences and optionals */
} OnnxTypeProto;

typedef struct OnnxValueInfo {
    const char *name;
    OnnxTypeProto type;
    OnnxPair *metadata;
    int nmetadata;
} OnnxValueInfo;

/* onnx.proto, AttributeProto.AttributeType */
typedef enum OnnxAttrType {
    ONNX_ATTR_UNDEFINED,
    ONNX_ATTR_FLOAT,
    ONNX_ATTR_INT,
    ONNX_ATTR_STRING,
    ONNX_ATTR_TENSOR,
    ONNX_ATTR_GRAPH,
    ONNX_ATTR_FLOATS,
    ONNX_ATTR_INTS,
    ONNX_ATTR_STRINGS,
    ONNX_ATTR_TENSORS,
    ONNX_ATTR_GRAPHS,
    ONNX_ATTR_SPARSE_TENSOR,
    ONNX_ATTR_SPARSE_TENSORS,
    ONNX_ATTR_TYPE_PROTO,
    ONNX_ATTR_TYPE_PROTOS
} OnnxAttrType;

typedef struct OnnxAttr {
    const char *name;
    OnnxAttrType type; /* inferred from the field in use where old files leave it out */
    const char *ref;   /* ref_attr_name: in functions, the caller's attribute; "" otherwise */
    float f;
    int64_t i;
    const char *s;
    size_t slen;   /* bytes, NUL-terminated after their end */
    OnnxTensor *t; /* TENSOR: one, TENSORS: n */
    OnnxGraph *g;  /* GRAPH: one, GRAPHS: n */
    OnnxSparse *sparse;
    OnnxTypeProto *tp;
    int n; /* elements of the lists below, of t, g, sparse and tp */
    float *floats;
    int64_t *ints;
    const char **strings;
} OnnxAttr;

typedef struct OnnxNode {
    const char *name, *op, *domain, *overload; /* domain "" is ai.onnx ("ai.onnx" is read as "") */
    const char **input, **output;              /* "" = left out */
    int ninput, noutput;
    OnnxAttr *attr;
    int nattr;
    OnnxPair *metadata;
    int nmetadata;
} OnnxNode;

struct OnnxGraph {
    const char *name, *doc;
    OnnxNode *node;
    int nnode;
    OnnxTensor *init;
    int ninit;
    OnnxSparse *sparse;
    int nsparse; /* named by values.name */
    OnnxValueInfo *input, *output, *info;
    int ninput, noutput, ninfo;
    OnnxPair *metadata;
    int nmetadata;
    bool has_quantization; /* quantization_annotation: not read, reported */
};

typedef struct OnnxOpset {
    const char *domain;
    int64_t version;
} OnnxOpset;

typedef struct OnnxFunction {
    const char *name, *domain, *overload;
    const char **input, **output, **attr;
    int ninput, noutput, nattr;
    OnnxAttr *attr_default;
    int nattr_default;
    OnnxNode *node;
    int nnode;
    OnnxOpset *opset;
    int nopset;
    OnnxValueInfo *info;
    int ninfo;
} OnnxFunction;

typedef struct OnnxModel {
    int64_t ir_version, model_version;
    const char *producer, *producer_version, *domain, *doc;
    OnnxOpset *opset;
    int nopset;
    OnnxGraph *graph;
    OnnxFunction *function;
    int nfunction;
    OnnxPair *metadata;
    int nmetadata;
    bool has_training; /* training_info: not read, reported */
} OnnxModel;

typedef struct OnnxFile {
    Arena *arena;
    Arena *passing; /* nodes and value_info of the model */
    MappedFile file;
    OnnxModel model;
    MappedFile *external;
    const char **external_name;
    int nexternal; /* the data files that were opened */
    uint64_t most; /* bytes that the graph made of it may take */
} OnnxFile;

OnnxFile *onnx_open(const char *path, Err *err); /* messages do not begin with the path; the caller says it */
/* The same from memory, which must outlive it; folder NULL: external data is refused. */
OnnxFile *onnx_open_bytes(const void *bytes, uint64_t size, const char *folder, Err *err);
void onnx_close(OnnxFile *f); /* NULL is fine */
/* Frees the nodes and what is said about values, which nothing reads once a graph is made of them; tensors stay. */
void onnx_forget_nodes(OnnxFile *f);
/* The data files that a model names, each once, as it names them; none is opened. After an error those before it. */
bool onnx_data_files(const char *path, void (*each)(void *user, const char *name), void *user, Err *err);
/* Does a file that begins so look like an ONNX model (and not like a ZIP archive)? */
bool onnx_looks_like(const void *bytes, uint64_t size);

/* A serialized TensorProto, as the standard's tests keep inputs and outputs (input_0.pb);
 * memory in `a`, data borrowed from bytes. */
bool onnx_read_tensor(Arena *a, const void *bytes, uint64_t size, OnnxTensor *out, Err *err);

typedef struct OnnxWriteOptions {
    int external; /* 0: outside only when the file would grow above 2 GiB - 1; 1: always (tensors of 1 KiB and more);
                     -1: never, E_LIMIT */
} OnnxWriteOptions;
/* Writes model to path, whole or not at all; external data goes to the file "<path's last part>.data" beside it,
 * written before. Weights go from where they are to the file, without a copy in between. options may be NULL. */
bool onnx_write(const OnnxModel *model, const char *path, const OnnxWriteOptions *options, Err *err);

const OnnxAttr *onnx_attr(const OnnxNode *n, const char *name); /* NULL when absent */
#endif
