/* What the files of src/onnx/write share: the file in the making.
 *
 *     Ref y = NODE(o, "Add", x.t, x, number(o, x.t, 1));       a node; its result
 *     attr_int(o, "axis", -1);                                 attributes of the next node
 *     y = NODE(o, "Softmax", x.t, y);
 *     give(o, n, 0, y);                                        is what output 0 of graph node n is called in the
 *                                                              file; y is used up
 *
 * Functions do not fail one by one: refuse() ends a node, broken() the file; after either, what is made is thrown away.
 * A Ref without a name is an input that is left out.
 */
#ifndef QKV_ONNX_WRITE_WRITE_IMPL_H
#define QKV_ONNX_WRITE_WRITE_IMPL_H
#include <stdio.h>
#include <string.h>
#include "onnx/write/write.h"
#include "onnx/wire/onnx.h"

typedef struct Ref {
    const char *name;
    DType t;
} Ref;

typedef struct Onnx {
    const Graph *g;
    ExprPool *p;
    Arena *a;
    OnnxOptions opt;
    Err *err;
    struct OnnxSchemas *schemas; /* below opset 17; NULL otherwise */
    bool broken, refused;        /* no file; not this node */
    char why[512];
    OnnxNode *node;
    int nnode, scope_from; /* the node that is written now begins there */
    bool empty_wrong; /* sizes that may be 0 must not be */
    bool *lent;            /* by node: its result is known under its name to others: a size, another graph node's */
    OnnxTensor *init;
    int ninit;
    OnnxValueInfo *info;
    int ninfo, info_cap;
    OnnxValueInfo *input;
    int ninput;
    OnnxAttr *attr;
    int nattr;         /* of the next node */
    Map taken;         /* name -> how often it was asked for */
    Map constants;     /* content -> name */
    Map shapes;        /* list of sizes -> Ref */
    const char *scope; /* name of the graph node that is written */
    Ref *value;
    bool *written, *asked; /* by value id */
    Lookup by_memory;      /* weights of g that no run changes (graph_weights_by_memory) */
    Ref *tied;             /* by the number of the first that shows its memory, once one of them is written */
    Ref *size;
    bool *size_asked;
    uint32_t nsizes;        /* by Expr id */
    struct Solved **solved; /* by symbol index: the axis that it is computed from, once one is chosen: two symbols of
                               one axis must not be computed from each other */
    const char **wish;      /* by value id: the name that it must have as an output */
    struct SliceAt *slices; /* view.c: by what they cut and where from; NULL: not asked for yet */
    int nslices, *uses;     /* uses: made with them, by value id */
    int depth;
    int attention_ops, attention_written_out;
    Buf missing, warnings, notes, dropped; /* JSON lists */
    int nmissing, nwarnings;
} Onnx;

typedef void OnnxFn(Onnx *o, const Node *n, const char *text);

static inline bool for_ort(const Onnx *o) { return o->opt.profile == ONNX_FOR_ORT; }

/* onnx_build.c: names, constants, nodes */
void refuse(Onnx *o, const char *fmt, ...) QKV_PRINTF(2, 3);
void out_of_memory(Onnx *o);
const char *fresh(Onnx *o, const char *base);
void attr_int(Onnx *o, const char *name, int64_t v);
void attr_float(Onnx *o, const char *name, double v);
void attr_str(Onnx *o, const char *name, const char *v);
void attr_strs(Onnx *o, const char *name, int n, const char *const *v); /* v must outlive the file */
void attr_ints(Onnx *o, const char *name, int n, const int64_t *v);
void attr_tensor(Onnx *o, const char *name, DType t, double v); /* one element */
void attr_graph(Onnx *o, const char *name, OnnxGraph *g);       /* a body; g must outlive the file */
Ref node_of(Onnx *o, const char *op, DType out, int n, const Ref *in);
void nodes_of(Onnx *o, const char *op, int nout, const DType *t, Ref *out, int n, const Ref *in);
Ref contrib_node(Onnx *o, const char *op, DType out, int n, const Ref *in); /* of domain com.microsoft */
#define NODE(o, op, out, ...)                                                                                          \
    node_of((o), (op), (out), (int)(sizeof((Ref[]){__VA_ARGS__}) / sizeof(Ref)), (Ref[]){__VA_ARGS__})
Ref none(void);
Ref number(Onnx *o, DType t, double v);     /* 0-d */
Ref integer(Onnx *o, int64_t v);            /* 0-d i64 */
Ref ints(Onnx *o, int n, const int64_t *v); /* 1-D i64 */
#define INTS(o, ...) ints((o), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
Ref constant_like(Onnx *o, const Tensor *t); /* a number or a list of i64; no name when t is neither */
Ref tensor_const(Onnx *o, const Tensor *t, const char *base);
Ref cast(Onnx *o, Ref x, DType t);
void lend_nodes(Onnx *o, int from); /* those made since keep their names */
void give(Onnx *o, const Node *n, int k, Ref x);

/* nbits.c: ONNX Runtime's MatMulNBits; blocks below opset 21 */
bool out_nbits(Onnx *o, const Node *n); /* false: n is written otherwise */
bool inside_nbits(const Onnx *o, const Node *d);
bool out_rows_of_blocks(Onnx *o, const Node *d);

/* onnx_types.c: which dtypes an op takes, in the standard and in ONNX Runtime */
typedef struct TypeRule {
    const char *op;
    unsigned inputs;          /* bit i: input i is of the type in question */
    bool output;              /* output 0 is, too */
    uint32_t at22, at23, ort; /* bit 1u << DType: in the standard up to opset 22, from 23 on, in ONNX Runtime */
} TypeRule;
const TypeRule *type_rule(const char *op);
/* opset.c: below opset 17, where ops were missing. Refuses the graph node that needs more. */
struct OnnxSchemas;
bool opset_open(Onnx *o);
void opset_close(Onnx *o);
bool opset_takes(const Onnx *o, const TypeRule *r, DType t);
void check_opset(Onnx *o, const char *op, int n, const Ref *in);
/* What came after ONNX_OPSET_DEFAULT: the first opsets that have it (onnx_least_opset). */
enum { SAMPLES_VOLUMES = 20, HAS_BLOCKS = 21 };
int dtype_since(OnnxProfile p, DType t);           /* build.c: tensors of t; 0: always */
int quantizer_since(OnnxProfile p, const Node *n); /* make.c: a quantizer or its inverse, as an op of ONNX */
/* profiles.c: the member "tensorrt" of the report */
bool put_profiles(const Onnx *o, Buf *out);
bool type_taken(const Onnx *o, const TypeRule *r, DType t);
DType type_wider(const Onnx *o, const TypeRule *r, DType t); /* DT_NONE: there is none that holds the same values */

/* onnx_sizes.c */
Ref size_of(Onnx *o, Expr *x);                  /* 1-D, one element; i64, f64 or bool as x is */
Ref size_scalar(Onnx *o, Expr *x, DType t);     /* 0-d */
Ref shape_of(Onnx *o, int n, Expr *const *dim); /* 1-D i64 */
Ref reshape(Onnx *o, Ref x, int from_rank, Expr *const *from, int rank, Expr *const *dim);
Ref to_shape(Onnx *o, Ref x, int rank, Expr *const *dim); /* every size written */
Ref expand(Onnx *o, Ref x, int from_rank, Expr *const *from, int rank, Expr *const *dim);
OnnxTypeProto type_of_value(Onnx *o, DType t, int rank, Expr *const *dim);

/* view.c */
const Node *front_of(Onnx *o, const Value *v, int axis, Expr **count);

/* turned.c */
void store_transposed(Onnx *o, const OnnxValueInfo *output, int noutput); /* weights; unused nodes are left */
/* onnx.c */
bool put_uses(Map *used, const OnnxNode *n, Onnx *o); /* what a node reads, and its bodies, which see names around */
void write_nodes(Onnx *o);  /* all of o->g */
Ref ref(Onnx *o, Value *v); /* v in the file, written now if it is not there yet */
void onnx_note(Onnx *o, const char *fmt, ...) QKV_PRINTF(2, 3);
void onnx_warn(Onnx *o, const Node *n, const char *rule, const char *fmt, ...) QKV_PRINTF(4, 5);

/* onnx_args.c: arguments of a graph node */
bool given(const Node *n, int i);
Value *arg_v(const Node *n, int i);                              /* NULL when none */
Ref arg_ref(Onnx *o, const Node *n, int i);                      /* a tensor; no name when none */
Ref operand(Onnx *o, const Node *n, int i, DType t);             /* a tensor or a number, as t */
int64_t arg_i(Onnx *o, const Node *n, int i, int64_t otherwise); /* a constant integer; refuses a variable one */
double arg_f(Onnx *o, const Node *n, int i, double otherwise);
bool arg_b(const Node *n, int i);
const char *arg_s(const Node *n, int i, const char *otherwise);
Expr *arg_e(const Node *n, int i);                                    /* NULL when none */
int arg_axis(Onnx *o, const Node *n, int i, int rank);                /* counted from the front */
int arg_axes(Onnx *o, const Node *n, int i, int rank, int64_t *axis); /* none or empty = all; sorted */
int arg_ints_of(Onnx *o, const Node *n, int i, int64_t *v);           /* a list of constants */

/* small words that many ops are made of */
Ref transpose(Onnx *o, Ref x, int rank, const int64_t *perm);
Ref squeeze(Onnx *o, Ref x, int64_t axis);
Ref unsqueeze(Onnx *o, Ref x, int64_t axis);
Ref reduce(Onnx *o, const char *op, Ref x, int n, const int64_t *axis,
           bool keep); /* ReduceSum ..., in the spelling of the opset */
Ref slice(Onnx *o, Ref x, int64_t axis, Ref from, Ref to, int64_t step); /* from, to: 1-D */
void split(Onnx *o, Ref x, int64_t axis, Ref lengths, int n, Ref *out); /* parts of an axis; lengths: 1-D */
Ref where(Onnx *o, Ref cond, Ref a, Ref b);
Ref negated(Onnx *o, Ref truth);
const Value *plain_index(const Value *i);
Ref index_of(Onnx *o, const Value *i); /* indices of an axis: negative ones count from its end in ONNX, too */
bool may_be_empty(const Onnx *o, const Expr *size); /* may it be 0? */
/* Of each row; the axis, of that size, stays. ONNX leaves open what the largest of no truth values is: where there may
 * be none, they are counted. */
Ref any_of(Onnx *o, Ref truth, int64_t axis, const Expr *size);
Ref all_minus_infinity(Onnx *o, Ref x, int64_t axis, const Expr *size);
Ref flat(Onnx *o, Ref x);                             /* 1-D */
Ref positions(Onnx *o, Ref count);                    /* 0 .. count-1, from a 1-D or 0-d i64 */
Ref like(Onnx *o, Ref x, double v);                   /* the constant v of x's dtype */
/* An op whose result has its first operand's dtype. */
static inline Ref un(Onnx *o, const char *op, Ref x) { return NODE(o, op, x.t, x); }
static inline Ref bin(Onnx *o, const char *op, Ref a, Ref b) { return NODE(o, op, a.t, a, b); }
static inline Ref below(Onnx *o, Ref x, double limit) { return NODE(o, "Less", DT_BOOL, x, like(o, x, limit)); }
/* onnx_pointwise.c */
Ref widened(Onnx *o, Ref x); /* in the dtype that compounds are worked in */
Ref is_nan(Onnx *o, Ref x);
Ref truncated(Onnx *o, Ref x);
Ref expm1_of(Onnx *o, Ref x);
Ref log1p_of(Onnx *o, Ref x);
Ref softplus_of(Onnx *o, Ref x);
/* special.c, double.c */
Ref erf_of(Onnx *o, Ref x);
Ref in_double(Onnx *o, const char *op, Ref x); /* op of float64 where only float32 has it; DT_NONE: no form is known */

#define ONNX(f, text) OnnxFn out_##f;
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"
#endif
