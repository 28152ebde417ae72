/* Graphs over the exact algebra (ring.h): an element of a float tensor is a residue, computed exactly, and beside it
 * the same value in double precision, which decides what has no meaning in a ring: which of two is larger, whether it
 * is infinite or NaN, whether an exponential is so small (below e^-700) that it is 0. Integers and truth values are
 * what they are.
 *
 *     Exact *x = exact_create(seed, EXACT_WORK_RULE);
 *     if (exact_run(x, g, in, NULL, err)) exact_same(exact_output(x, 0), exact_output(x, 1), &d)
 *     exact_free(x);
 *
 * Two graphs that are equal by the laws of real arithmetic, of exp, sin, cos, log and roots, and by moving elements,
 * give the same residues. The converse fails where residues vanish (ring.h): what they are then equal in, the values
 * have to be, too, and where nothing but a residue of 0 is left, the payload says nothing. Functions without laws (erf)
 * are functions of their operand's residue that look random, and so are whole ops that are not written here (boxed).
 */
#ifndef QKV_PROVE_EXACT_H
#define QKV_PROVE_EXACT_H
#include "ir/graph.h"
#include "prove/ring.h"

typedef struct ExactTensor {
    DType dtype;
    int rank;
    int64_t shape[MAX_RANK];
    int64_t n; /* elements */
    int width; /* 2 of complex dtypes: parts beside each other, 2n of them below; else 1 */
    Res *r;    /* floats: residues and values; r is 0 where v is not finite */
    double *v;
    int64_t *i; /* the others */
} ExactTensor;

typedef struct Exact Exact;
/* How many steps of elements a run may take. */
#define EXACT_WORK_RULE 1e8                      /* a second */
#define EXACT_WORK_MODEL 3e9                     /* half a minute */
#define EXACT_WORK_PAIR 1e9                      /* of two models: after it and two payloads no other is begun */
/* And where smaller sizes took `least`: a size may be a power of another. At most most, and at least few. */
static inline double exact_work_after(double least, double few, double most)
{
    double n = 512 * least;
    return least <= 0 || n > most ? most : n < few ? few : n;
}
enum { EXACT_AS_GIVEN = 0 };                     /* the seed for which inputs are the numbers that they are */
Exact *exact_create(uint64_t seed, double work); /* NULL: no memory */
void exact_free(Exact *x);
/* Every size of g is a constant. Inputs: floats between -1000 and 1000 stand for random residues, the same for the same
 * position and seed; larger ones and infinities are numbers, as are the elements of weights. place: of each input,
 * which input of another graph it is; NULL: its own.
 * E_UNSUPPORTED: names what is not covered. E_LIMIT: too much work. */
bool exact_run(Exact *x, const Graph *g, const Tensor *const *in, const int *place, Err *err);
double exact_worked(const Exact *x); /* the steps that the last run took */
/* Was that for a divisor without an inverse? Another seed may have none. */
bool exact_unlucky(const Exact *x);
const ExactTensor *exact_output(const Exact *x, int k); /* of g->output[k]; until the next run */
/* The op that was computed as a function without any law, or NULL: a difference may be due to it. */
const char *exact_boxed(const Exact *x);

typedef struct ExactDifference {
    int64_t count, first;    /* elements that differ, and the first one's linear index (of parts) */
    double max_abs, max_rel; /* of the values in double precision; relative to the largest */
    bool kinds;              /* one is NaN or infinite and the other is not */
    int64_t unseen;          /* elements of which the residues say nothing: the values beside them differ, or both
                                residues are 0 and the values are not */
} ExactDifference;
/* Below this max_rel a difference is not a counterexample: the residues may differ by a constant that was rounded, or
 * by a law that the algebra does not have. */
#define EXACT_NO_COUNTEREXAMPLE 1e-6
/* zeros: elements for which b is 0 may differ. False with a count of 0: some are unseen, and exact_unseen says it. */
bool exact_same(const ExactTensor *a, const ExactTensor *b, bool zeros, ExactDifference *d);
/* unseen[0 .. n width): made 0 for every element of which these residues say something; how many are left. */
int64_t exact_see(const ExactTensor *a, const ExactTensor *b, unsigned char *unseen);
void exact_unseen(int64_t unseen, int64_t of, char *why, size_t size);
#endif
