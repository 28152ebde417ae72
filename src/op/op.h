/* The op table: one row of ops.def per ATen overload, read into `Op` with its parsed schema.
 *
 *     const Op *op = op_find("aten.add.Tensor");
 *     op->schema->params[2].name       "alpha"
 *
 * Columns are words; each layer expands its own: lower_##f (src/lower), shape_##f (src/shape), view_##f (src/plan),
 * run_##f (src/run). A layer never sees an op whose row lacks its word, because import lowered it to others.
 */
#ifndef QKV_OP_OP_H
#define QKV_OP_OP_H
#include <stdbool.h>
#include "base/err.h"
#include "tensor/dtype.h"

typedef enum OpId {
    OP_NONE,
#define OP(id, name, schema, ...) OP_##id,
#include "op/ops.def"
    OP_COUNT
} OpId;

enum OpTrait {
#define TRAIT(name) OPF_BIT_##name,
#include "op/traits.def"
#undef TRAIT
};

enum OpFlags {
#define TRAIT(name) OPF_##name = 1 << OPF_BIT_##name,
#include "op/traits.def"
#undef TRAIT
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
    PT_IGNORED, /* ScalarType; a graph that the op runs (qkv.loop); Layout, Device, MemoryFormat, Generator: no
                   meaning here */
} ParamType;

typedef struct Param {
    const char *name;
    ParamType type;
    bool optional; /* Tensor?, int? ... */
    bool kwonly;
    bool aliased;               /* (a) or (a!): the result may share its memory */
    bool written;               /* (a!) */
    int fixed_len;              /* int[2]: a single int is repeated; 0 otherwise */
    bool holes;                 /* Tensor?[]: elements may be missing */
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
    int flags;       /* OPF_* */
    OpId alias_of;   /* OP_NONE: it is not another name of a row */
    bool plain;      /* part of the plain form: has a shape function */
    int cost;        /* what a node costs in the rewriter's search */
    unsigned unread; /* bit k: run leaves result k out when no node reads it */
    const Schema *schema;
} Op;

const Op *op_get(OpId id);
const Op *op_find(
    const char *name); /* NULL when not in the table; accepts "aten.add.Tensor" and "torch.ops.aten.add.Tensor" */
/* Where "add" begins in "aten.add.Tensor", and its length. */
const char *op_base(const Op *op, size_t *n);
/* The index of a schema parameter; -1 when it has none of that name. */
int op_param(const Op *op, const char *name);
#endif
