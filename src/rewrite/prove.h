/* Proofs by evaluation: what a rule replaces and what it puts there, as two functions of the same tensors, run for
 * several bindings of every size symbol and several seeds: on random payloads of an exact algebra (prove/exact.h),
 * whose results must be the same, or, where that says nothing or is not wanted, on random floats within a tolerance. A
 * family may draw inputs that matter to its ops itself (family.h).
 *
 *     Prover p = {.claim = prove_claim, .eval = eval, .seeds = 3, .families = families_all};
 *     RewriteOptions o = {.prove = p.claim, .prove_user = &p};
 */
#ifndef QKV_REWRITE_PROVE_H
#define QKV_REWRITE_PROVE_H
#include "rewrite/rewrite.h"

/* Runs a graph of constant sizes; out[i] (of g->output[i]) is valid until the next call. */
typedef bool EvalFn(void *user, const Graph *g, const Tensor *const *in, const Tensor **out, Err *err);
/* A counterexample: the graph (both functions), its inputs and the two results that differ. */
typedef bool SaveFn(void *user, const char *rule, const Graph *g, const Tensor *const *in, const Tensor *from,
                    const Tensor *to, Err *err);

typedef struct Prover {
    ProveFn *claim; /* prove_claim, which only those name who want proofs: what loads and runs is linked without it */
    EvalFn *eval;
    void (*release)(void *user); /* the last graph goes away; may be NULL */
    SaveFn *save;                /* may be NULL */
    void *user;
    int seeds;                     /* per binding; 0 = 3 */
    bool floats;                   /* floats only */
    const Family *const *families; /* whose draws count: NULL after the last; may be NULL */
} Prover;

/* Sizes to try: the k-th choice (0: the smallest), every symbol another one where ranges and requirements allow; those
 * that are given (choose_sizes) stay. False when there is none. b was made by binding_init. */
bool prove_sizes(const Graph *g, int k, const char *const *given, const int64_t *size, int ngiven, Binding *b);
/* The elements that a graph's inputs have, and those of what its nodes give. */
typedef struct Elements {
    double inputs, values;
} Elements;
/* Infinite where a size of an input does not come out; a value of such a size is not counted. g: the graph of these
 * sizes, or one at them, whose sizes are numbers. */
Elements prove_elements(const Graph *g, const Binding *b);
/* Sizes that were chosen, or given, and make so many elements that one in a thousand says as much (an input of s0**s0
 * rows, or what is expanded to them). fewest: those of the smallest sizes. */
bool prove_too_many(Elements n, Elements fewest, bool given, const Binding *b);
ProveFn prove_claim; /* user is a Prover */
#endif
