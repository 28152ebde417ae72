/* The op table: one row of ops.def per ATen overload, read into `Op` with its parsed schema.
 *
 *     const Op *op = op_find("aten.add.Tensor");
 *     op->schema->params[2].name       "alpha"
 *
 * Columns are tokens; each layer expands its own: lower_##x (src/lower), shape_##x (src/shape), view_##x (src/plan),
 * run_##x (src/run). `none` means that the layer never sees the op, because import lowered it to others.
 */
#ifndef QKV_IR_OP_H
#define QKV_IR_OP_H
#include <stdbool.h>
#include "base/err.h"
#include "tensor/dtype.h"

typedef enum OpId {
    OP_NONE,
#define OP(id, name, schema, lower, shape, view, run, flags) OP_##id,
#include "ir/ops.def"
#undef OP
    OP_COUNT
} OpId;

enum OpFlags {
    OPF_COMMUTES = 1,  /* f(a, b) = f(b, a) */
    OPF_INPLACE = 2,   /* writes its first argument (ATen's trailing underscore, or an out= alias in the schema) */
    OPF_VIEW = 4,      /* the result aliases the first argument where strides allow */
    OPF_DATA_SIZE = 8, /* output size depends on data (nonzero, masked_select) */
    OPF_EFFECT = 16,   /* an assert: kept even if nobody uses its result */
    OPF_RANDOM = 32,
    OPF_INTERNAL = 64, /* a working form of the rewriter: never in a file, never run */
};

typedef enum ParamType {
    PT_TENSOR,
    PT_TENSORS, /* Tensor, Tensor[]; Tensor?[] has optional elements */
    PT_INT,
    PT_INTS,
    PT_FLOAT,
    PT_FLOATS,
    PT_BOOL,
    PT_BOOLS,
    PT_SCALAR,
    PT_SCALARS,
    PT_STR,
    PT_DTYPE,
    PT_GRAPH,
    PT_IGNORED, /* ScalarType; a graph that the op runs (qkv.loop); Layout, Device, MemoryFormat, Generator: no meaning here */
} ParamType;

typedef struct Param {
    const char *name;
    ParamType type;
    bool optional; /* Tensor?, int? ... */
    bool kwonly;
    bool aliased;               /* (a) or (a!): the result may share its memory */
    bool written;               /* (a!) */
    int fixed_len;              /* int[2]: a single int is repeated; 0 otherwise */
    const char *def;            /* text of the default; NULL when required */
    const char *const *choices; /* what it is one of, NULL at the end (choices.def); NULL: anything */
} Param;

typedef struct Schema {
    int nparams, nreturns;
    bool returns_list; /* -> Tensor[] */
    Param *params;
} Schema;

typedef struct Op {
    OpId id;
    const char *name; /* "aten.add.Tensor" */
    const char *schema_text;
    int flags;
    const Schema *schema;
} Op;

const Op *op_get(OpId id);
const Op *op_find(
    const char *name); /* NULL when not in the table; accepts "aten.add.Tensor" and "torch.ops.aten.add.Tensor" */
/* The index of a schema parameter; -1 when it has none of that name. */
int op_param(const Op *op, const char *name);
#endif
