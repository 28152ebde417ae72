/* Lowering: from the ops of a file (every ATen overload, composites, aliases, in-place forms) to the plain form that
 * the rest of qkv knows. Column `lower` of ops.def:
 *
 *     keep    the row itself is the plain form: casts for type promotion are inserted by lower_keep for rows whose
 *             lower token is `promote`, then the node is added as it is
 *     drop    the result is the first argument (alias, contiguous, dropout in eval)
 *     NAME    bool lower_NAME(Lower *L): reads L->arg, emits plain nodes, sets L->result
 *
 * In-place rows (OPF_INPLACE) are lowered as their pure form by name (add_ -> add); the functionaliser around them
 * updates aliases.
 */
#ifndef QKV_LOWER_LOWER_H
#define QKV_LOWER_LOWER_H
#include "ir/graph.h"

typedef struct LowerWrite { /* an argument that the op writes to beside its results, which its schema need not say:
                               running statistics */
    int param;
    Value *value;
} LowerWrite;

typedef struct Lower {
    Graph *g;
    ExprPool *ex;
    const Op *op;
    const Arg *arg;               /* op->schema->nparams, defaults filled in, sizes already expressions */
    const char *name; /* name for the (first) result */
    int nout_names;   /* how many results the file names; 0: it does not say */
    Expr *const *declared; /* sizes the file declares for the first result; NULL when it declares none (OPF_DATA_SIZE
                              needs them) */
    int declared_rank;
    Expr *declared_number; /* what the file says a size or truth result is; NULL when it says nothing */
    LowerWrite write[2];
    int nwrites;
    bool integers_stay; /* what is computed from buffers of integers alone is the same in every run */
    int depth;          /* ops that this one is written for, each by the one before */
    bool other_dtype;   /* PyTorch's Meta function, and so a file, declares another dtype than the kernel gives */
    Arg result;         /* ARG_VALUE, ARG_VALUES (several results, or a list), ARG_EXPR (sym_size, item) */
    Err *err;
} Lower;
typedef bool LowerFn(Lower *L);

/* Lowers one op by its table row; lower_row: by the word LOWER alone, whatever its operands are. */
bool lower_op(Lower *L);
bool lower_row(Lower *L);

/* x, through aten.detach where a parameter that is trained, or an input of floats, is what it comes from.
 * NULL on error. */
Value *detached(Graph *g, Value *x, Err *err);
/* When a graph is complete: attentions whose logarithms of sums (qkv.sdpa_lse) are not read become
 * scaled_dot_product_attention. */
bool sdpa_lse_unread(Graph *g, Err *err);

static inline Arg v(Value *x) { return arg_value(x); } /* as an argument of EMIT and AS */

/* For lower_NAME functions. */
Value *lower_value(Lower *L, int i);                          /* NULL when None */
bool lower_two(Lower *L, int i, int k, Value **a, Value **b); /* neither is None, or it fails */
bool lower_is_none(const Lower *L, int i);
bool lower_is_number(const Arg *a, double x);        /* a missing one is 1 */
Expr *lower_expr(Lower *L, int i);                   /* int, float, bool argument; NULL when None */
bool lower_const_int(Lower *L, int i, int64_t *out); /* fails when symbolic */
bool lower_const_bool(Lower *L, int i, bool *out);
bool lower_dim(Lower *L, int i, int rank, int *dim); /* normalised; fails out of range */
bool lower_fail(Lower *L, int i, const char *fmt, ...) QKV_PRINTF(3, 4);
/* emit: adds a plain node, gives its first output; EMIT(L, softmax_int, arg_value(x), arg_int(L->g, -1)).
 * NULL on error. */
Value *lower_emit(Lower *L, OpId op, int n, const Arg *args);
Node *lower_emit_node(Lower *L, OpId op, int n, const Arg *args);
#define EMIT(L, op, ...)                                                                                               \
    lower_emit((L), OP_##op, (int)(sizeof((Arg[]){__VA_ARGS__}) / sizeof(Arg)), (Arg[]){__VA_ARGS__})
/* as: another row with its own lowering (promotion, names, composites) and defaults; gives its first result. NULL
 * after any error, so that calls can be nested: AS(L, add_Tensor, arg_value(AS(L, exp, arg_value(x))), arg_int(L->g,
 * 1)). */
Value *lower_as(Lower *L, OpId op, int n, const Arg *args);
#define AS(L, op, ...) lower_as((L), OP_##op, (int)(sizeof((Arg[]){__VA_ARGS__}) / sizeof(Arg)), (Arg[]){__VA_ARGS__})
/* all: as `as`, of a row with several results; gives all of them */
Value *const *lower_all(Lower *L, OpId op, int n, const Arg *args);
#define ALL(L, op, ...) lower_all((L), OP_##op, (int)(sizeof((Arg[]){__VA_ARGS__}) / sizeof(Arg)), (Arg[]){__VA_ARGS__})
Expr *lower_number_for(Lower *L, Expr *e, DType t); /* a number in the kind that a dtype holds */
/* A tensor of a number as dtype t holds it: 0.5 is true, or the integer 0. value: a number, or a value of rank 0. */
Value *lower_filled(Lower *L, int rank, Expr *const *dim, Arg value, DType t);
/* y where all of `valid` holds: PyTorch refuses it otherwise, and so does every reader of a file, as there is no second
 * row. */
Value *lower_only_if(Lower *L, Value *valid, Value *y);
Value *lower_among(Lower *L, Value *x, Expr *n); /* x, of integers 0 to n - 1: looked up, which refuses others */
Value *lower_reshape(Lower *L, Value *x, int rank, Expr *const *dim); /* x itself if the shape is the same */
Value *lower_piece(Lower *L, Value *x, int d, Expr *from, Expr *to); /* of axis d */
Value *lower_permute(Lower *L, Value *x, const int *perm);
Value *lower_cast(Lower *L, Value *x, DType t); /* x itself if it has that dtype */
/* The operands in float32 where they are half; *t: the dtype of the first, for the results. The first n are tensors. */
bool lower_widened(Lower *L, int n, DType *t);
/* Normal numbers of the shape of `like`, one pair after the other. */
Value *lower_normal_pairs(Lower *L, const Value *like, DType t);
Arg lower_number_as(Lower *L, Arg number, DType t); /* of an integer dtype its whole part */
bool lower_return_values(Lower *L, int n, Value *const *vs);
/* The file's name for the size of a mask's nonzero is found in the sizes that it declares for the result y. */
bool lower_declare_sizes(Lower *L, Value *y);
/* lower_complex.c. Is it for the word COMPLEX of the op's row: a complex operand, or a complex dtype? */
bool lower_is_complex(OpId op, int n, const Arg *args);
bool lower_complex_operands(Lower *L, bool *taken);     /* such an op, in reals; *taken: it was one, L->result is set */
Value *lower_complex_cast(Lower *L, Value *x, DType t); /* from or to a complex dtype; the imaginary part is dropped */
bool lower_complex_nodes(const Lower *L, const Node *from); /* do all nodes after `from` know complex numbers? */
/* For readers of files: the pairs (..., 2) of a complex value, others as they are; a complex value of pairs; a number,
 * which takes the width of what it meets: complex64 if that holds it, else complex128. NULL on error. */
Value *lower_shown(Graph *g, Value *v, Err *err);
Value *lower_hidden(Graph *g, Value *pairs, Err *err);
Value *lower_complex_number(Graph *g, double re, double im, Err *err);
bool lower_return(Lower *L, Value *v); /* sets L->result; false if v is NULL */
#endif
