/* What the files of src/grad share: the node that is being differentiated, and builders of nodes after it. */
#ifndef QKV_GRAD_GRAD_IMPL_H
#define QKV_GRAD_GRAD_IMPL_H
#include "facts/axes.h"
#include "grad/grad.h"

/* Part of a value's gradient: of x[.., start : start + n, ..] along an axis.
 * Parts that tile the axis are joined, others padded. */
typedef struct Part {
    struct Part *next;
    int axis;
    Expr *start, *n;
    Value *grad;
} Part;

typedef struct Leaf { /* of a value of the forward graph */
    Value *grad;
    Part *parts;
    const Node *user; /* the node that sent its gradient first: the path from the loss */
    bool wanted;      /* does it depend on a parameter or input whose gradient is requested? */
} Leaf;

typedef struct Grad {
    Graph *g;
    ExprPool *ex;
    Err *err;
    const JointOptions *o;
    Leaf *leaf; /* by value id; those of the forward graph */
    int nleaf;
    const Node *node; /* that is differentiated now */
    Node *at;         /* nodes are added in front of it; NULL: at the end */
    const char *text; /* of its row */
    Value *grad;      /* of its first result that has one */
    Value **grads;    /* of each; NULL: none */
    Value **first;    /* by id of a weight: the first of its names */
    Map outputs;       /* by name */
    Value **beside;   /* by value id: the same value by the formula of its row, where GRAD(follows) needs it */
} Grad;

/* Sends gradients to the operands of d->node. false: d->err says why. */
typedef bool GradFn(Grad *d);
#define GRAD(f, text) GradFn grad_##f;
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"

/* Arguments of the node. */
static inline Value *gd_value(const Grad *d, int i)
{
    return d->node->arg[i].kind == ARG_VALUE ? d->node->arg[i].v : NULL;
}
static inline bool gd_truth(const Grad *d, int i) { return d->node->arg[i].kind == ARG_EXPR && d->node->arg[i].e->i; }
bool gd_wants(const Grad *d, const Value *v); /* false for NULL */
int gd_dim(const Grad *d, int i, int rank);   /* a dim argument, from the front */
/* Adds to the gradient of v, summed over axes along which v was broadcast, in v's dtype. NULL: an error that was
 * reported gives false. */
bool gd_send(Grad *d, Value *v, Value *grad);
bool gd_send_part(Grad *d, Value *v, int axis, Expr *start, Expr *n, Value *grad);
bool gd_refuse(Grad *d, const char *fmt, ...) QKV_PRINTF(2, 3); /* E_UNSUPPORTED: this node has no gradient */

/* The walk over a graph in three steps, for bodies of loops and branches (grad_control.c): leaves are made; the caller
 * marks what is wanted and seeds gradients; all gradients are worked out; each is had, zeros where there is none. */
bool gd_begin(Grad *d);
void gd_spread(Grad *d);
bool gd_walk_back(Grad *d);
Value *gd_gradient_of(Grad *d, Value *v);

/* Nodes: the first result, NULL on error. NULL operands give NULL, so calls nest.
 * Folded where nothing is to be done. */
Value *gd_add_node(Grad *d, OpId op, int n, const Arg *args);
#define GD(d, op, ...)                                                                                                 \
    gd_add_node((d), OP_##op, (int)(sizeof((Arg[]){__VA_ARGS__}) / sizeof(Arg)), (Arg[]){__VA_ARGS__})
#define V(v) gd_arg((d), (v))
Arg gd_arg(Grad *d, Value *v);                /* remembers that an operand was NULL */
Value *gd_formula(Grad *d, const char *text); /* formula.c */
bool decompose_attention(Grad *d);            /* attention.c: every attention as products and softmax */
bool formulas_beside(Grad *d);                /* core.c: the nodes of formulas that gradients go through */
bool recurrent_loops(Grad *d);                /* recurrent.c: recurrent layers as loops */
/* grad_control.c. An input of a body: sizes that are not constants, or not known in it, are symbols of their own. */
Value *gd_body_input(Graph *g, const char *name, DType t, int rank, Expr *const *dim, bool known);
Value *gd_bind_sizes(Graph *g, Value *v); /* symbols that are bound to nothing yet are the sizes of this input */
bool decompose_core(Grad *d); /* core.c: every row as rows of ATen's core, as far as they have such a form */
Value *gd_mul(Grad *d, Value *a, Value *b);
Value *gd_scale(Grad *d, Value *a, Expr *c); /* a times a number */
Value *gd_plus(Grad *d, Value *a, Value *b);
Value *gd_minus(Grad *d, Value *a, Value *b);
Value *gd_zeros(Grad *d, DType t, int rank, Expr *const *dim);
Value *gd_full(Grad *d, double x, DType t, int rank, Expr *const *dim);
Value *gd_reshape(Grad *d, Value *v, int rank, Expr *const *dim);
Value *gd_insert_axis(Grad *d, Value *v, int at); /* an axis of 1 in front of axis `at` */
Value *gd_permute(Grad *d, Value *v, const int *perm);
Value *gd_swap(Grad *d, Value *v, int a, int b); /* two axes, negative ones from the end */
Value *gd_expand(Grad *d, Value *v, int rank, Expr *const *dim);
Value *gd_cast(Grad *d, Value *v, DType t);
Value *gd_matmul(Grad *d, Value *a, Value *b);
Value *gd_slice(Grad *d, Value *v, int axis, Expr *start, Expr *end);
Value *gd_sum(Grad *d, Value *v, int n, const int *dims, bool keep);
Value *gd_mean(Grad *d, Value *v, int n, const int *dims, bool keep);
Value *gd_sum_to(Grad *d, Value *v, int rank,
                 Expr *const *dim); /* v over the axes along which (rank, dim) broadcasts to it */
Value *gd_keep_axes(Grad *d, Value *v, int rank, const bool *gone); /* axes of 1 put back where a reduction took them */
Value *gd_arange(Grad *d, Expr *n);                                 /* 0 .. n - 1, i64 */
Value *gd_where(Grad *d, Value *cond, Value *x, double otherwise);
Expr *gd_product(Grad *d, int n, Expr *const *dim);
Expr *gd_int(Grad *d, int64_t i);
Expr *gd_float(Grad *d, double x);
/* Which of `rank` axes a dims argument names: NULL, none and an empty list mean all. */
void gd_dims(const Arg *a, int rank, bool *set);
int gd_list(const bool *set, int rank, int *dims);
#endif
