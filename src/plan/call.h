/* A node with its sizes bound: every argument is a tensor or a number.
 * Made by the planner, read by view_NAME (src/plan/view.c) and by run_NAME (src/run). */
#ifndef QKV_PLAN_CALL_H
#define QKV_PLAN_CALL_H
#include "ir/graph.h"

struct RunEnv;

typedef struct CallArg {
    ArgKind kind : 8;
    bool constant; /* the tensor is a weight, or computed from weights alone: its bytes never change (packing may be
                      kept) */
    int n;
    union {
        Tensor *t;   /* ARG_VALUE */
        Tensor **ts; /* ARG_VALUES; elements may be NULL */
        Scalar s;    /* ARG_EXPR */
        Scalar *ss;  /* ARG_EXPRS */
        const char *str;
        DType dtype;
    };
} CallArg;

typedef struct Call {
    const Node *node;
    CallArg *arg; /* by schema position */
    Tensor **out;
    int nout;
    unsigned unused; /* bit k: result k is not read; without memory if its op allows that (src/plan/plan.c) */
    struct RunEnv *env;
    void *state;                /* the step's own; NULL the first time */
    void (*state_free)(void *); /* set together with state */
    const Tensor *windows; /* of a matmul: its second operand (G, K, N), which was not copied: the first axis, then
                              `along` axes that are K together, then N; its own has no strides. NULL: it has */
    int along;
    int64_t least_rows; /* of a product: rows that its result has at all sizes of the inputs, at least; 0: not known */
    /* What the planner fused after this node (src/plan/fuse.c); zero when nothing. Only for ops that declare that they
     * take it. */
    struct Epilogue {
        enum { ACT_NONE, ACT_RELU, ACT_GELU_ERF, ACT_GELU_TANH, ACT_SILU, ACT_QUICK_GELU } act;
        bool times;              /* the residual is multiplied with, not added; not of a convolution */
        bool act_last;           /* the activation comes after the residual */
        bool by_inverse, nan_lowest, clamps; /* clamps: to low and high, before it is rounded */
        Tensor *residual; /* added after the activation; same shape as the output, any strides; NULL = none. Of a
                             convolution it may be the output itself */
        Tensor *residual_scale, *residual_zero; /* the residual is integers, by one scale; NULL: it is not */
        Tensor *scale, *zero; /* of products of integers: rounded at last as quantize_linear does; NULL: not */
        float low, high;
    } epilogue;
} Call;

static inline Tensor *call_in(const Call *c, int i) { return c->arg[i].kind == ARG_VALUE ? c->arg[i].t : NULL; }
static inline Tensor *call_out(const Call *c, int k) { return c->out[k]; }
static inline bool call_given(const Call *c, int i) { return c->arg[i].kind != ARG_NONE; }
static inline int64_t call_i64(const Call *c, int i) { return scalar_i64(c->arg[i].s); }
static inline double call_f64(const Call *c, int i) { return scalar_f64(c->arg[i].s); }
static inline bool call_bool(const Call *c, int i) { return scalar_i64(c->arg[i].s) != 0; }
/* An optional number with a value for None. */
static inline double call_f64_or(const Call *c, int i, double d) { return call_given(c, i) ? call_f64(c, i) : d; }
static inline int64_t call_i64_or(const Call *c, int i, int64_t d) { return call_given(c, i) ? call_i64(c, i) : d; }
/* dim argument normalised to [0, rank). */
static inline int call_dim(const Call *c, int i, int rank)
{
    int64_t d = call_i64(c, i);
    return (int)(d < 0 ? d + (rank ? rank : 1) : d);
}
/* n values of a list into out (at most cap); how many there are. */
int call_ints(const Call *c, int i, int64_t *out, int cap);

/* Column `view` of ops.def: describes the result as a view of the first tensor argument (data pointer included);
 * false when strides cannot express it (then the planner copies). */
typedef bool ViewFn(const Call *c, Tensor *out);
/* The net below all views: is every element of `view`, shift bytes after x's first, among those between x's first and
 * last? */
bool view_within(const Tensor *x, const Tensor *view, int64_t shift);
#endif
