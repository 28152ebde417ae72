/* Random programs of calls of any row of the op table, small enough to be compared in many ways.
 *
 *     Program p = {0};
 *     program_make(&p, &golden, 17);                         the same seed, the same program
 *     Graph *g = program_graph(&p, &err);                    inputs x0, x1, ..., results y0, y1, ...
 *
 * A call is one of the golden cases, with tensors of its own or those of earlier calls, or its arguments are made up
 * from the row's schema: a value of each parameter's type, near what its name asks for, until lowering takes them.
 */
#ifndef QKV_TESTS_CALLS_H
#define QKV_TESTS_CALLS_H
#include "ir/graph.h"

enum { CALLS = 5, CALL_INPUTS = 24, VARIANTS = 3 };

/* What golden cases call, by row. */
typedef struct Known {
    struct Known *next;
    char *call, *fixed;
    bool constant; /* its sizes are */
    int nin;
    DType dtype[CALL_INPUTS];
    int rank[CALL_INPUTS];
    int64_t shape[CALL_INPUTS][MAX_RANK];
    Tensor values[CALL_INPUTS];
} Known;

typedef struct Golden {
    Known *of[OP_COUNT];
    int n[OP_COUNT];
    uint64_t takes[OP_COUNT]; /* bit t: one of them has an operand of dtype t */
    OpId row[OP_COUNT]; /* those that calls are made of */
    int rows;
} Golden;

/* Reads the folder; rows whose name contains one of the words, all without words. */
bool golden_read(Golden *g, const char *folder, char **words, int nwords);
void golden_free(Golden *g);

typedef struct ProgramInput {
    DType dtype;
    int rank;
    int64_t shape[MAX_RANK];
    bool symbolic[MAX_RANK]; /* of size k: the symbol nk */
    const Tensor *values;    /* a golden case's; NULL: made up */
} ProgramInput;

typedef struct Program {
    ProgramInput input[CALL_INPUTS];
    char *call[CALLS];
    int ninput, ncall;
    unsigned outputs; /* bit k: results of call k are outputs; those of the last one always are */
    int least;        /* of every symbol */
    bool dynamic;
    uint64_t state;
} Program;

bool program_make(Program *p, const Golden *g, uint64_t seed);
/* One call, with its inputs' types before it, n before a size that is a symbol: "u8[2,n3]: aten.neg.default(%x0)". */
bool program_parse(Program *p, const char *text);
void program_free(Program *p);
Graph *program_graph(const Program *p, Err *err);
void program_print(const Program *p);
/* The size that symbol nk has in a variant; 0: as the golden case has it. */
int64_t program_size(const Program *p, int64_t k, int variant);
#endif
