/* Between the files of prove/: how an op of the table is computed exactly. A row names its function: EXACT(f) is
 * exact_f, for a whole node; a pointwise row has ELEMENT(f), element_f on one element, or FORMULA or LAW, its meaning
 * in other rows. A pointwise row with none of them is a function without laws.
 *
 *     bool exact_flip(Exact *x, const Node *n, Err *err)
 *     Elem element_neg(Exact *x, const Elem *a, const char *text)
 */
#ifndef QKV_PROVE_IMPL_H
#define QKV_PROVE_IMPL_H
#include <math.h>
#include "prove/exact.h"

/* One element: of a float (a residue and its value), of an integer; NONE: an argument left out. */
typedef struct Elem {
    enum { NONE, FLOAT, INTEGER } kind;
    Res r;
    double v;
    int64_t i;
    bool truth; /* INTEGER: of a tensor of truth values */
} Elem;

typedef bool ExactFn(Exact *x, const Node *n, Err *err);
/* a: all parameters of the schema that are tensors or numbers, in order; text: the one that is a text */
typedef Elem ElementFn(Exact *x, const Elem *a, const char *text);

/* ------------------------------------------------------------------ tensors of a node (exact.c) */

const ExactTensor *exact_in(Exact *x, const Value *v);
const ExactTensor *exact_arg(Exact *x, const Node *n, int k); /* NULL: it is not given */
ExactTensor *exact_out(Exact *x, const Node *n, int k, Err *err);
ExactTensor *exact_scratch(Exact *x, DType t, int rank, const int64_t *shape, Err *err); /* freed after the node */
void exact_scratch_drop(Exact *x, int left);                                             /* all but the first `left` */
bool exact_work(Exact *x, double operations, Err *err);                                  /* E_LIMIT */
int64_t exact_int(const Node *n, int k, int64_t missing);
double exact_number(const Node *n, int k, double missing);
int exact_ints(const Node *n, int k, int64_t *list); /* how many; MAX_RANK at most */
int exact_dim(int64_t d, int rank);                  /* -1 is the last */
/* Axes that argument k lists; none or an empty list: all. */
void exact_axes(const Node *n, int k, int rank, bool *on);
void exact_strides(int rank, const int64_t *shape, int64_t *stride);
int64_t exact_count(int rank, const int64_t *shape);
/* The next index in row-major order. */
void exact_next(int rank, const int64_t *shape, int64_t *at);
bool exact_unsupported(const Node *n, const char *what, Err *err);

static inline bool exact_floats(const ExactTensor *t) { return t->r != NULL; }

/* ------------------------------------------------------------------ elements (element.c) */

Elem elem_float(Res r, double v); /* the residue of what is not finite is 0 */
/* Of terms that are `size` in sum without their signs: where all cancels, rounding leaves no value. */
Elem elem_sum(Res r, double v, double size);
Elem elem_int(int64_t i);
Elem elem_number(double v); /* a constant of a file or of a formula */
Elem elem_get(const ExactTensor *t, int64_t k);
void elem_set(ExactTensor *t, int64_t k, Elem e); /* converted to t's dtype as a cast does */
void elem_move(ExactTensor *to, int64_t k, const ExactTensor *from, int64_t j); /* same kind of dtype; all parts */
Elem elem_op(Exact *x, OpId op, int n, const Elem *a);                          /* a pointwise op of the table */
Elem elem_add(Exact *x, Elem a, Elem b);
Elem elem_sub(Exact *x, Elem a, Elem b);
Elem elem_mul(Exact *x, Elem a, Elem b);
Elem elem_div(Exact *x, Elem a, Elem b);
Elem elem_exp(Exact *x, Elem a);
Elem elem_log(Exact *x, Elem a);
Elem elem_sqrt(Exact *x, Elem a);
Elem elem_tanh(Exact *x, Elem a);
int elem_compare(Elem a, Elem b); /* -1, 0, 1; 2: a NaN */
/* Finite values that may be of one number, which was computed in two ways: less than `least` apart, or by rounding. */
bool elem_near(double a, double b, double least);
/* The sum of x_k y_k: residues summed before they are reduced. */
typedef struct Dot {
    Wide r;
    Res done;
    int pending;
    double v, size;
} Dot;
static inline void dot_add(Dot *d, Res a, Res b, double va, double vb)
{
    d->r += (Wide)a * b;
    d->v += va * vb;
    d->size += fabs(va * vb);
    if (++d->pending < RING_LAZY) return;
    d->done = res_add(d->done, res_reduce(d->r));
    d->r = 0;
    d->pending = 0;
}
Elem dot_end(const Dot *d);

#define EXACT(f) ExactFn exact_##f;
#define ELEMENT(f) ElementFn element_##f;
#define OP(id, name, schema, ...) __VA_ARGS__
#include "op/ops.def"
ExactFn exact_pointwise;
void exact_rows_free(Exact *x);

/* ------------------------------------------------------------------ the run's own memory */

typedef struct Tag { /* a residue that stands for log(of) */
    Res r, of;
} Tag;

struct Formulas;
struct Exact {
    uint64_t seed;
    const Graph *g;
    ExactTensor **value; /* by id */
    int *uses;
    ExactTensor *scratch[16];
    int nscratch;
    const ExactTensor *output[64];
    Tag *tag; /* open addressing; r 0: free */
    int ntags, room;
    struct Formulas *formulas; /* by op id, read once */
    const char *boxed;
    DType dtype; /* of the result of the pointwise op in turn */
    double work, most;
    bool failed; /* out of memory, or a divisor without an inverse: the run says which */
    bool no_inverse;
};
#endif
