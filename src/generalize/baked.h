/* How a constant tensor that differs between the files follows from sizes: found from its values alone, file beside
 * file.
 *
 *     [0, 1, .. 5], [0, 1, .. 10]               affine: 0 + 1*i over an axis of 6, 11
 *     tril of ones (6, 6), (11, 11)             runs: one axis pair i - j, two runs, the second from i - j = 0 on
 *     (12, 16, 16), (20, 16, 16) window masks   the first axis as 3*4, 4*5 (sizes that the graph knows); runs over both
 *     rows of one table                         prefix: the larger one, cut
 */
#ifndef QKV_GENERALIZE_BAKED_H
#define QKV_GENERALIZE_BAKED_H
#include "generalize/generalize_impl.h"

enum { MAX_PARTS = 12, MAX_RUNS = 16, MAX_NUMBERS = 64 };

typedef struct Part { /* an axis, or one of the two factors of an axis */
    int axis;
    int64_t n[GEN_FILES];
    bool varies;
} Part;

typedef struct Coef { /* one number, in each file; or the same table over the parts that do not vary */
    bool table, integral;
    double v[GEN_FILES];
    double *at; /* table: over the fixed parts, row-major */
} Coef;

typedef struct RunAxis { /* a part, or the difference of two, along which the tensor is made of runs */
    int part, minus;     /* minus -1: one part alone */
    int nruns;
    int64_t start[MAX_RUNS][GEN_FILES]; /* of run r + 1: value of the index (or difference) from which on it holds */
} RunAxis;

typedef enum BakedKind { BAKED_SAME, BAKED_NUMBERS, BAKED_AFFINE, BAKED_RUNS, BAKED_PREFIX, BAKED_UNKNOWN } BakedKind;

struct Baked {
    BakedKind kind;
    DType dtype;
    int nparts;
    Part part[MAX_PARTS];
    Coef start, step[MAX_PARTS]; /* AFFINE; step of a varying part */
    int nruns_axes;
    RunAxis runs[MAX_PARTS];            /* RUNS; parts that vary, each once */
    Tensor table;                       /* RUNS: the runs of every axis in front, then the fixed parts */
    int file;                           /* PREFIX: which file's tensor */
    int64_t shape[MAX_RANK][GEN_FILES]; /* of the tensor */
    int rank;
    double number[MAX_NUMBERS][GEN_FILES]; /* NUMBERS */
    const char *why;                       /* UNKNOWN */
};

/* t[f] is file f's tensor; parameter: learned values, which no size explains. pair: (n) -> splits of an axis into known
 * sizes. NULL when memory runs out. */
typedef struct Split {
    int64_t left[GEN_FILES], right[GEN_FILES];
} Split;
Baked *baked_find(Arena *arena, const Tensor *const *t, int nfiles, const char *const *file_name, bool parameter,
                  const Split *split, int nsplit);
#endif
