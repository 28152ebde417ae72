/* Shape functions: one per row of ops.def (column `shape`), giving dtype and symbolic shape of every output.
 *
 *     bool shape_linear(Shape *s) { ... return shape_out(s, 0, dtype, rank, dims); }
 *
 * They work on expressions; what cannot be proven from them becomes a requirement that is checked once per size
 * binding. Errors: E_FORMAT, "argument 'x': found ..., expected ..."; the caller adds the node's name.
 */
#ifndef QKV_SHAPE_SHAPE_H
#define QKV_SHAPE_SHAPE_H
#include "ir/graph.h"

typedef struct Shape {
    Graph *g;
    ExprPool *ex;
    Node *node;
    Err *err;
} Shape;
typedef bool ShapeFn(Shape *s);

/* Arguments by schema position. */
const Arg *shape_arg(const Shape *s, int i);
Value *shape_value(const Shape *s, int i);           /* NULL when None */
bool shape_want_value(Shape *s, int i, Value **out); /* fails when None */
bool shape_const_int(Shape *s, int i, int64_t *out); /* fails when symbolic: "must be a constant" */
bool shape_const_bool(Shape *s, int i, bool *out);
DType shape_dtype(const Shape *s, int i, DType otherwise);               /* an optional ScalarType */
bool shape_fail(Shape *s, int i, const char *fmt, ...) QKV_PRINTF(3, 4); /* "argument 'NAME': ..." */
/* dim argument: normalised to [0, rank) (a 0-d tensor counts as rank 1); fails with the value and the allowed range. */
bool shape_dim(Shape *s, int i, int rank, int *dim);
/* e, of argument i of a convolution or pool: a stride, dilation, padding or kernel size from `least` on that no file
 * may ask to be larger than MAX_WINDOW. */
enum { MAX_WINDOW = 1 << 30 };
bool shape_window(Shape *s, int i, const Expr *e, int64_t least);
/* A list of dims, or None / empty = all; sets a bit per dim. */
bool shape_dims(Shape *s, int i, int rank, bool *set);

bool shape_out(Shape *s, int k, DType t, int rank, Expr *const *dim);
bool shape_out_like(Shape *s, int k, const Value *v, DType t);
/* Broadcasts b into (rank, dim): numpy rules on expressions; where neither side is provably 1 or equal,
 * equality is required. */
bool shape_broadcast(Shape *s, int *rank, Expr **dim, int rank_b, Expr *const *dim_b, const char *what);
/* A size of at most 1 beside one that may be more: Min(s0, 1) of x[:, :1] beside s1.
 * Broadcasting takes it for 1, which is then required. */
bool shape_stands_for_one(Shape *s, const Expr *from, const Expr *to);
bool shape_require_equal(Shape *s, Expr *a, Expr *b, const char *what);
Expr *shape_numel(Shape *s, const Value *v);
/* For results whose size depends on data: a new symbol, bound at run time from dim `dim` of output `k` once that is
 * computed. Call it after shape_out has been given it: Expr *n = shape_fresh_symbol(s); shape_out(s, 0, t, 2, (Expr
 * *[]){n, two}); shape_size_of(s, n, 0, 0). */
Expr *shape_fresh_symbol(Shape *s);
bool shape_size_of(Shape *s, Expr *symbol, int k, int dim);
/* Renames those fresh symbols to what the file calls them: declared is the file's sizes of node n's first output. */
bool shape_declare(Graph *g, Node *n, int rank, Expr *const *declared, Err *err);
/* PyTorch's result type of tensors and scalars (at::result_type):
 * dimensioned tensors first, then 0-d tensors, then numbers. */
typedef struct Promote {
    DType dim, zero, number;
} Promote;
void promote_value(Promote *p, const Value *v);
void promote_expr(Promote *p, const Expr *e);
DType promote_result(const Promote *p); /* DT_NONE when PyTorch has none */
#endif
