/* What the files of src/onnx/read share: what names stand for, and how an op's function reads its node and gives its
 * results.
 *
 *     static bool op_transpose(OnnxOp *o)
 *     {
 *         Value *x;
 *         const int64_t *perm;
 *         int n;
 *         TRY(op_tensor(o, 0, &x) && op_attr_ints(o, "perm", &perm, &n));
 *         ... return op_return(o, 0, AS(&o->L, permute, arg_value(x), arg_ints(o->g, n, perm)));
 *     }
 *
 * A function has one row in onnx_ops.def: its domain, ONNX name, the C function, and the ATen op that it mostly is.
 */
#ifndef QKV_ONNX_READ_READ_IMPL_H
#define QKV_ONNX_READ_READ_IMPL_H
#include "lower/lower.h"
#include "onnx/check/schema.h"
#include "onnx/read/read.h"

/* What a name stands for: a tensor, elements that are known as expressions (shapes, axes, counts), or both;
 * or a list of tensors. */
typedef struct Cell {
    const char *name;   /* as the file says */
    Value *v;           /* NULL until somebody asks for a tensor */
    const Tensor *data; /* a constant that has not been asked for yet */
    bool parameter;     /* data: a float initializer */
    bool transposed;    /* data: our writer turned this matrix; the model's weight has the axes the other way */
    DType dtype;
    int rank; /* of what follows */
    const int64_t *dim;
    int n; /* elements that are known, row-major; -1: they are not */
    Expr **e;
    bool is_list, is_none; /* a sequence of tensors; an optional that holds nothing */
    struct Cell **list;
    int nlist;
    const char **string;
    int nstring; /* a tensor of strings; n of them */
} Cell;
enum { CELL_MAX = 1024 }; /* larger constants are data, never sizes */

typedef struct OnnxFrame { /* a call of a local function */
    const struct OnnxScope *caller;
    const OnnxNode *call;
    const OnnxFunction *function;
} OnnxFrame;

typedef struct OnnxScope {
    struct OnnxScope *outer; /* whose names are seen from here; NULL: the model's graph, or a function's */
    const OnnxFrame *frame;  /* NULL outside functions */
    struct OnnxCapture
        *capture; /* of a body that is a graph of its own: names of `outer` become inputs of it; NULL otherwise */
    Map names;    /* name -> Cell* */
    const OnnxOpset *opset;
    int nopset;
    int depth;
} OnnxScope;

typedef struct OnnxProduct { /* integers (..., K) times symmetric columns (K, N), as int32 */
    Value *y, *a, *a_zero, *b;
} OnnxProduct;

typedef struct OnnxImport {
    Source *source;
    OnnxFile *file;
    Graph *g;
    Arena *scratch; /* of cells and of what else the import alone reads */
    const Fixed *fixed;
    Map symbols;   /* dim_param -> Expr* */
    Map functions; /* what onnx_functions found */
    OnnxSchemas schemas;
    bool too_deep;    /* a graph was refused for its depth */
    int64_t unrolled; /* nodes made by turns of loops and calls, against a limit */
    uint64_t bodies;  /* bytes of graphs around this one and in it, against a limit */
    Map state;        /* output -> 1 + the number of the mutation whose value it is */
    Map items;        /* value's id, as text -> EX_SYM that reads it */
    OnnxProduct *product;
    int nproduct;
    Err *err;
} OnnxImport;

typedef struct OnnxOp OnnxOp;
typedef bool OnnxFn(OnnxOp *o);
typedef struct OnnxRow {
    const char *domain, *name;
    OnnxFn *fn;
    OpId aten;
} OnnxRow;

struct OnnxOp {
    OnnxImport *im;
    Graph *g;
    ExprPool *ex;
    OnnxScope *scope;
    const OnnxNode *node;
    OnnxRow row;
    int64_t opset; /* of the node's domain */
    Cell **in;     /* node->ninput of them; NULL where left out */
    Cell **out;    /* node->noutput of them, set by op_return */
    Lower L;       /* for EMIT and AS */
};

OnnxFn onnx_own; /* own.c */

/* ---- reading a node. Errors name the input or attribute. */
int op_ninputs(const OnnxOp *o);                 /* trailing absent ones not counted */
bool op_has(const OnnxOp *o, int i);             /* is input i given? */
bool op_tensor(OnnxOp *o, int i, Value **out);   /* E_FORMAT when it is left out */
bool op_optional(OnnxOp *o, int i, Value **out); /* *out NULL when it is left out */
bool op_wants(const OnnxOp *o, int i);           /* is output i named, so that somebody may use it? */
/* Elements of a small integer, bool or float input as expressions; those of a tensor that is computed are read from
 * it when it is there (rank 0 or 1 of constant size). op_known asks without making anything. */
bool op_sizes(OnnxOp *o, int i, int *n, Expr ***e);
const Cell *op_known(OnnxOp *o, int i); /* NULL when the elements are not known */
bool op_const_ints(OnnxOp *o, int i, int *n,
                   const int64_t **v); /* all constant: E_UNSUPPORTED says to give them with --fix otherwise */
const OnnxAttr *op_attr(const OnnxOp *o, const char *name); /* through ref_attr_name of functions; NULL when absent */
bool op_attr_int(OnnxOp *o, const char *name, int64_t otherwise, int64_t *out);
bool op_attr_float(OnnxOp *o, const char *name, double otherwise, double *out);
bool op_attr_ints(OnnxOp *o, const char *name, const int64_t **v, int *n); /* *v NULL when absent */
/* n sizes of windows, steps or margins, each from `least` to MAX_WINDOW; `otherwise` where the attribute is absent. */
bool op_attr_sizes(OnnxOp *o, const char *name, int n, int64_t otherwise, int64_t least, int64_t *out);
bool op_attr_string(OnnxOp *o, const char *name, const char *otherwise, const char **out);
bool op_attr_dtype(OnnxOp *o, const char *name, DType otherwise, DType *out); /* a TensorProto.DataType */
bool op_axis(OnnxOp *o, const char *what, int64_t axis, int rank, int *out);  /* -rank .. rank - 1 -> 0 .. rank - 1 */
/* Axes from attribute "axes" or, from opset `moved` on, from input i; *n -1: not given.
 * Normalised for rank, each at most once. */
bool op_axes(OnnxOp *o, int64_t moved, int i, int rank, int *n, int *axis);
bool op_new_axes(OnnxOp *o, int rank, int *n, int *axis); /* Unsqueeze's, in a result of rank + *n */
bool op_fail(OnnxOp *o, int i, const char *fmt, ...) QKV_PRINTF(3, 4); /* E_FORMAT "input 1 'x': ..." */
bool op_unsupported(OnnxOp *o, const char *fmt, ...) QKV_PRINTF(2, 3);

/* ---- results */
bool op_return(OnnxOp *o, int k, Value *v); /* false when v is NULL (an error is set) */
bool op_return_cell(OnnxOp *o, int k, Cell *c);
bool op_return_sizes(OnnxOp *o, int k, DType t, int rank, const int64_t *dim, int n, Expr *const *e);

/* ---- making things (onnx_cells.c) */
Cell *cell_of_value(OnnxImport *im, const char *name, Value *v);
Cell *cell_of_tensor(OnnxImport *im, const char *name, const OnnxTensor *t, bool parameter);
Cell *cell_of_sizes(OnnxImport *im, const char *name, DType t, int rank, const int64_t *dim, int n, Expr *const *e);
Cell *cell_of_list(OnnxImport *im, const char *name, int n, Cell *const *list);
Value *cell_value(OnnxImport *im, Cell *c); /* as a tensor; NULL on error */
bool cell_known(OnnxImport *im, Cell *c);   /* are its elements known? c->n, c->e then hold them */
bool cell_constant(const Cell *c);          /* all its elements are known, and are numbers */
Lower lower_for(OnnxImport *im, const char *name); /* outside nodes */
DType cell_dtype(const Cell *c);
int cell_rank(const Cell *c);
const char *plain_name(OnnxImport *im,
                       const char *name); /* as a name of Python: letters, digits and '_' (a .pt2 keeps it); graphs
                                             copy it, it is gone when the import ends */
Expr *const *value_dims(const Value *v);
Value *op_number(OnnxOp *o, DType t, double v); /* a tensor of rank 0 */
Value *op_cast(OnnxOp *o, Value *x,
               DType to); /* with ONNX's meaning for small types: attributes saturate, round_mode (onnx_quantize.c) */
/* p: integers of 8 bits, their scale of float32 (one, or one an index of `axis`) and zero point, as floats. NULL
 * without an error: they have another form. */
Value *op_dequantized(OnnxOp *o, Value *const *p, int axis);
/* The floats y by such a scale and zero point. */
Value *op_quantized(OnnxOp *o, Value *y, Value *scale, Value *zero);
/* Whole numbers of at most 9 bits as two factors, so that float32 holds every sum of `terms` products with others of
 * at most 9 bits exactly: w = 16 high + low. False without an error: there are too many terms. (onnx_quantize.c) */
bool op_two_factors(OnnxOp *o, Value *w, const Expr *terms, Value **high, Value **low);
/* products.c: bytes with a scale each, and zero points that are all 0? */
bool op_symmetric_columns(const OnnxOp *o, const Value *b, const Value *scale, const Value *zero);
bool op_remember_product(OnnxOp *o, Value *y, Value *a, Value *a_zero, Value *b, const Value *b_zero);
bool onnx_products(OnnxImport *im); /* those whose scales follow */
Value *op_item(OnnxOp *o, Value *v, int at,
               Expr **e); /* reads element `at` of a vector (or the number, rank 0) as a size; v, or NULL on error */

/* ---- nodes (onnx_nodes.c) */
OnnxRow onnx_find_row(const char *domain, const char *name); /* fn NULL: there is none */
bool onnx_functions(OnnxImport *im);                         /* fills im->functions; E_FORMAT when two are one */
bool onnx_missing(OnnxImport *im); /* E_UNSUPPORTED with all the ops that there is no row for */
bool onnx_nodes(OnnxImport *im, OnnxScope *s, const OnnxNode *node, int n);
bool onnx_branch(OnnxOp *o, const OnnxGraph *body, int nin, Cell *const *in, int nout,
                 Cell **out); /* the body's nodes, once, in a scope of its own */
bool onnx_opens(OnnxOp *o, const OnnxScope *s); /* a scope inside the op; E_LIMIT where it is too deep */
bool onnx_places(const OnnxOp *o); /* does a message name this place? Of what is too deep, only the outermost */
/* Turns of loops and calls of functions make nodes, and names for values, without end out of a small file: E_LIMIT. */
bool onnx_repeats(OnnxImport *im, int64_t nodes, int64_t names);
/* Is the graph within what a file of this size may ask for? Rows that become many nodes ask as they go. */
bool onnx_fits(OnnxImport *im);
bool onnx_constants(OnnxImport *im, OnnxScope *s, const OnnxGraph *body); /* a body's initializers */
Cell *scope_get(OnnxImport *im, OnnxScope *s, const char *name);          /* NULL: there is none, or an error is set */
bool scope_set(OnnxImport *im, OnnxScope *s, const char *name, Cell *c);
int64_t scope_opset(const OnnxScope *s, const char *domain); /* 0 when the domain is not imported */
/* onnx_control.c: a name of the graph around a body, inside it */
Cell *onnx_capture(OnnxImport *im, OnnxScope *s, const char *name);
/* onnx_sizes.c: computes with elements that are known; *taken: it did, results are set. */
bool onnx_fold(OnnxOp *o, bool *taken);

#define ONNX(domain, name, fn, aten) bool onnx_##fn(OnnxOp *o);
#include "onnx/read/ops.def"
#undef ONNX
#define FROM_ONNX(name, f) bool onnx_##f(OnnxOp *o);
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"

/* Nodes are held against the table of the standard, 100 KB, but in a build for size (docs/PLATFORMS.md). */
#ifdef __OPTIMIZE_SIZE__
enum { SCHEMAS = 0 };
#else
enum { SCHEMAS = 1 };
#endif
#endif
