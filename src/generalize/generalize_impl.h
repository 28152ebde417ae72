/* What the files of generalize share. A "file" is one static graph; v[f] is always what something is in file f. */
#ifndef QKV_GENERALIZE_GENERALIZE_IMPL_H
#define QKV_GENERALIZE_GENERALIZE_IMPL_H
#include "base/buf.h"
#include "base/map.h"
#include "generalize/generalize.h"

typedef struct Baked Baked; /* how a constant tensor follows from sizes; constants.c */

/* A value of the common graph. */
typedef struct Merged {
    Value *in[GEN_FILES];
    int prev[GEN_FILES]; /* an earlier merged value that is the same in file f (unchanged in between); -1 */
    bool weight;
    Baked *baked;   /* weights: set when first looked at */
    int baked_open; /* how many numbers were open then: sizes that it could have been split by */
} Merged;

/* A node of the common graph. */
typedef struct Step {
    const Node *node[GEN_FILES]; /* NULL: not there, because it changes nothing at that file's sizes */
    int base;                    /* a file that has it */
    int out;                     /* merged index of its first result */
    int noperand, *operand;      /* merged indices in the order of node_each_operand */
} Step;

typedef struct Aligned {
    Arena *arena;
    int nfiles;
    const Graph *const *file;
    const char *const *file_name;
    Step *step;
    int nstep;
    Merged *value;
    int nvalue;
    int *of[GEN_FILES]; /* by value id: the last merged index, -1 */
    int *output;        /* merged index of each output */
    int *mutation;      /* two merged indices each: target, value */
    char *differs;      /* why the graphs cannot be aligned; NULL when they are */
} Aligned;

/* False only when memory runs out. */
bool align_graphs(Aligned *a, Err *err);
void align_free(Aligned *a);
/* Operand i of node n in the order of node_each_operand; NULL after the last. */
Value *node_operand(const Node *n, int i);

/* ------------------------------------------------------------------ solving */

typedef struct Size {
    const char *name, *symbol; /* symbol: name, or "_name" once it has a factor */
    int naxes;
    struct {
        int input, axis; /* input -1: axis is a scalar input */
    } * at;
    int64_t v[GEN_FILES];
    int64_t factor;       /* the axes are factor * symbol */
    const char *relation; /* the axes are this expression of other sizes; NULL */
    bool named, tied;
} Size;

typedef enum HoleState { HOLE_AUTO, HOLE_OPEN, HOLE_DECIDED } HoleState;

/* A number of a node (or of a baked constant) that differs, or that is being reconsidered. */
typedef struct Hole {
    int step, arg, elem;
    HoleState state;
    const char *forced; /* what the equations say it is */
    int pick;           /* which candidate */
    /* of the last build */
    Scalar v[GEN_FILES];
    const char *text, *also, *why; /* what it is; what else fits; unsolved: more about it */
    int ncand, rank, build;        /* rank: of the best candidate; build: which one met it last */
    bool constant, unsolved;
    const char *what;             /* a baked constant's number: which */
    const char *shown[GEN_FILES]; /* instead of v: a whole tensor */
} Hole;

typedef struct Atom { /* an expression that some dim has */
    Expr *e;
    int64_t v[GEN_FILES];
    int size;    /* nodes of it */
    bool number; /* no dim has it: the start of a slice */
} Atom;

typedef struct Cand {
    Expr *e;
    int rank; /* lower is better */
} Cand;
enum { MAX_CAND = 64 };
typedef struct Cands {
    int n;
    Cand c[MAX_CAND];
} Cands;

typedef struct Gen {
    Arena *arena;
    Aligned al;
    Size *size;
    int nsize;
    Map holes;                /* "step.arg.elem" -> Hole */
    unsigned char seen[1024]; /* constants that reshapes, windows and strides of the files contain */
    int builds;
} Gen;

typedef struct Residual { /* an equality of sizes that does not follow from the expressions */
    int step;
    Expr *cond;
} Residual;

typedef struct Build {
    Gen *gen;
    Graph *g;
    ExprPool *ex;
    int nfiles;
    Binding bind[GEN_FILES];
    Value **val; /* by merged index */
    Atom *atom;  /* those that differ between the files */
    int natom;
    Atom *level; /* those that happen not to: both heights are padded to 12 */
    int nlevel;
    struct {
        Expr *e;
        Hole *h;
    } * unknown;
    int nunknown;
    Residual *residual;
    int nresidual;
    int number;      /* of this build */
    uint64_t batch;  /* symbols (as Expr.symbols) that are only first axes */
    int solved;      /* holes that equations settled in this build */
    int failed_step; /* -1, or the step that could not be built, and why */
    Err failure;
    int step; /* being built */
    Err *err;
} Build;

enum Rank { R_FACTOR = 5, R_LOCAL = 10, R_NEAR = 15, R_PAD = 17, R_KNOWN = 20, R_ONE = 30, R_WEAK = 38 };

/* Made when new; NULL: out of memory. Negative args: the constant tensor -1 - arg. */
Hole *gen_hole(Gen *gen, int step, int arg, int elem);
bool eval_at(const Build *b, const Expr *e, int64_t *v); /* v[f] for every file; false when it has no integer value */
void build_atom(Build *b, Expr *e, bool number);
int64_t common_divisor(int64_t a, int64_t b); /* the greatest; 0 only of 0 and 0 */
/* What stands for a number with values v[f]; `local`: sizes of the operands, best candidates. `given`, or NULL:
 * candidates that the caller knows, in front. Never NULL but on error: an open number is a symbol of its own. */
enum {
    SOLVE_NEAR = 1, /* what is near the operands' sizes before other sizes: an index is compared */
    SOLVE_SIZE = 2, /* where a size may stand: an equal number may be one, too */
    SOLVE_SPACE = 4 /* a height, a width, a length: hardly made of the batch */
};
Expr *solve_number(Build *b, Hole *h, const Scalar *v, Value *const *local, int nlocal, const Cands *given, int how);
void cand_add(const Build *b, Cands *c, const int64_t *v, Expr *e, int rank);
void cand_known(const Build *b, Cands *c, const int64_t *v, int rank); /* expressions of dims that have these values */
bool solve_reshape(Build *b, const Value *x, const Scalar (*v)[GEN_FILES], int n, Expr **out);
/* Candidates made of the sizes of `own` alone, all before what else is known. */
void cand_of(const Build *b, Cands *c, const int64_t *v, const Value *own);
/* Candidates that follow from one size alone: remainders, what is missing to a constant. */
void cand_own(const Build *b, Cands *c, const int64_t *v, Expr *size);
/* A float that goes with the size e: e/4, (e + 0.1)/4. */
void cand_float_of(const Build *b, Cands *c, const double *v, Expr *e);
/* Pads that fill up to a multiple: the candidates for (before, after) of an axis. */
void cand_pad(const Build *b, Expr *dim, const int64_t *before, const int64_t *after, Cands *first, Cands *last);
/* u as an expression of what else cond (an equality) mentions; NULL when it does not follow. */
Expr *equation_for(const Build *b, const Expr *cond, Expr *u);
Expr *factor_for(const Build *b, const Expr *cond, Expr *u); /* the same, where several factors are open */
const char *expr_text(const Build *b, const Expr *e);        /* in the generalizer's arena */

/* ------------------------------------------------------------------ constant tensors */

/* The merged weight as a value of the graph: itself where all files agree, else nodes that make it; consumer: the
 * step that uses it first, NULL for a result of the model. NULL on error; *b->failure is set when it cannot be
 * solved. */
Value *build_weight(Build *b, int merged, const Step *consumer);
#endif
