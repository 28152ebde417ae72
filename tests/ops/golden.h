/* Golden op cases (made by tools/golden.py), read: FAMILY/OP.cases holds lines `name: aten.add.Tensor(%0, %1,
 * alpha=2)`, FAMILY/OP.safetensors beside it the tensors.
 *
 *     golden_each(dir, "pointwise", words, nwords, on_case, user)      on_case gets every case whose op name contains
 *                                                                      one of the words
 */
#ifndef QKV_TESTS_GOLDEN_H
#define QKV_TESTS_GOLDEN_H
#include "format/tensors.h"
#include "ir/graph.h"

enum { GOLDEN_TENSORS = 64, GOLDEN_SIZES = 256 };
extern const char *const golden_families[];
extern const int golden_family_count;

typedef struct GoldenCase {
    const char *family, *name, *call, *fixed; /* fixed: "0.1 1": axes that stay constant; NULL */
    bool only_constant;                       /* # static */
    const Op *op;
    const Tensor *in[GOLDEN_TENSORS], *want[GOLDEN_TENSORS]; /* want[k]: the k-th result, NULL where none is compared */
    int nin;
} GoldenCase;

/* Sizes of axes: constants; each its own symbol; equal ones share a symbol. */
typedef enum GoldenSizes { CONSTANT, DISTINCT, SHARED } GoldenSizes;

bool golden_each(const char *dir, const char *family, char **words, int nwords,
                 void (*f)(void *user, const GoldenCase *c), void *user, Err *err);
/* All families of the folder argv[1], the words after it; user points to a bool: are there words? A family that cannot
 * be read is a failed test. false: there is no folder, and the usage was printed. */
bool golden_all(int argc, char **argv, void (*f)(void *user, const GoldenCase *c));
/* The graph of one case, lowered as import does it; outputs are named output_K after the results. NULL: refused. */
Graph *golden_graph(const GoldenCase *c, GoldenSizes how, Err *err);
#endif
