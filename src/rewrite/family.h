/* What a family of ops plugs into the engine: the text of its rules, the C functions that they name, and what it does
 * while a graph is rewritten. A set of rules is made for a list of families; the engine itself knows no op family.
 *
 *     static const Family norms = {.name = "norms", .rules = norms_rules, .makers = makers};
 *     const Family *const families_all[] = {&norms, &attention_family, &modules, NULL};      rewrite/families/all.c
 *     RuleSet *rules = rules_create(families_all);
 *
 * Every member but the name may be left out.
 */
#ifndef QKV_REWRITE_FAMILY_H
#define QKV_REWRITE_FAMILY_H
#include "rewrite/rewrite.h"

struct Family {
    const char *name;
    const char *const *rules;   /* texts, NULL after the last; rules are tried in their order */
    const Guard *guards;        /* an unnamed one after the last */
    const Maker *makers;        /* the same */
    int (*cost)(const Node *n); /* of nodes of its own ops; 0: the engine's (rewrite_cost) */
    /* No rule of the phase fires any more, all forms are there (not with RewriteOptions.rules_only).
     * *changed: something fired, and the rules are tried again. False: rw->err. */
    bool (*settled)(Rewrite *rw, Phase phase, bool *changed);
    /* The phase is over: what is still spelled out goes into log->left. */
    bool (*leftovers)(Rewrite *rw, Phase phase, RewriteLog *log, Err *err);
    bool (*left)(const Graph *g, RewriteLog *log, Err *err); /* log->left, corrected for the result */
    int (*fused)(const Graph *g);                            /* its fused ops in the result, for log->fused */
    /* For proofs: an operand of n whose numbers are the family's to choose (a mask); NULL: none. The tensors that it is
     * made of are filled by draw. seed: 0 is for plain numbers, 1 for odd ones, others for both. */
    const Value *(*drawn)(const Node *n);
    void (*draw)(Tensor *t, int seed, Waiver waiver, uint64_t *random);
};
#endif
