/* Generalize: static exports of one model at several sizes become one graph with symbolic sizes.
 *
 *     a.pt2: x f32[2, 6, 32]    reshape(x, [2, 6, 4, 8])     arange(6)
 *     b.pt2: x f32[3, 11, 32]   reshape(x, [3, 11, 4, 8])    arange(11)
 *     ->     x f32[x_0, x_1, 32]   reshape(x, [x_0, x_1, 4, 8])   arange(x_1)
 *
 * The graphs are aligned node by node. Input sizes that differ become symbols; the graph is built again with them, so
 * that shape inference gives most sizes; every other number that differs is solved as an expression of the sizes
 * (candidates.c), every constant tensor that differs as a small graph (constants.c). A number that two expressions fit
 * is left open at first: what the following nodes require of it decides. What remains undecided is reported, what
 * cannot be solved is reported by node.
 */
#ifndef QKV_GENERALIZE_GENERALIZE_H
#define QKV_GENERALIZE_GENERALIZE_H
#include "ir/graph.h"

enum { GEN_FILES = 8, GEN_SIZES = 64 }; /* at most */

typedef struct GeneralizeOptions {
    const char *const *dim; /* "batch=x.0,mask.0": a name for sizes that belong together */
    int ndim;
    const char *const *dynamic; /* "x.0": must come out variable */
    int ndynamic;
    bool apart; /* sizes that are equal in every file are not taken for one */
} GeneralizeOptions;

typedef struct GenSize { /* a variable size */
    const char *name;    /* of the symbol */
    const char *expr;    /* what the axes show: "x_1", "14*_x_2" */
    const char *axes;    /* "x.0, mask.0" */
    bool tied;           /* several axes that were not tied by name */
    bool related;        /* no symbol of its own: expr is one of other sizes */
    int64_t factor;      /* the axes are factor * symbol */
    int64_t lo, hi;      /* what the axes may be; INT64_MAX: anything */
    int64_t value[GEN_FILES];
} GenSize;

typedef struct GenSolved {            /* a number, or a constant tensor, that differed */
    const char *node, *op, *argument; /* of the first place */
    const char *value[GEN_FILES];
    const char *expr; /* NULL: unsolved */
    const char *also; /* other expressions that fit every file, "; " between them; NULL when there are none */
    const char *why;  /* unsolved: what is known about it */
    int places;       /* nodes with this question and this answer */
    bool tensor;
} GenSolved;

typedef struct Generalized {
    Graph *graph; /* NULL when the structures differ; weights are borrowed from the files */
    bool solved;  /* nothing is open: the graph can be run and written */
    int nfiles;
    GenSize *size;
    int nsize;
    GenSolved *number;
    int nnumber; /* solved ones first */
    int nunsolved;
    const char **note;
    int nnote;    /* structure that differs, nodes that only some files have, requirements that remain */
    Arena *arena; /* of all strings */
} Generalized;

/* Graphs of static exports, and what to call them. False for wrong options or when memory runs out;
 * a model that cannot be generalized is not an error: out->solved is false then. */
bool generalize(const Graph *const *file, const char *const *name, int nfiles, const GeneralizeOptions *o,
                Generalized *out, Err *err);
void generalized_free(Generalized *r); /* with the graph, unless it was taken (set to NULL) */
#endif
