/* Proofs by evaluation: what a rule replaces and what it puts there, as two functions of the same tensors, run on
 * random numbers for several bindings of every size symbol and several seeds. A family may draw inputs that matter to
 * its ops itself (family.h).
 *
 *     Prover p = {.eval = eval, .seeds = 3, .families = families_all};
 *     RewriteOptions o = {.prove = prove_claim, .prove_user = &p};
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
    EvalFn *eval;
    void (*release)(void *user); /* the last graph goes away; may be NULL */
    SaveFn *save;                /* may be NULL */
    void *user;
    int seeds;                     /* per binding; 0 = 3 */
    const Family *const *families; /* whose draws count: NULL after the last; may be NULL */
} Prover;

ProveFn prove_claim; /* user is a Prover */
#endif
