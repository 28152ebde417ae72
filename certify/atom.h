/* What term.c and atom.c share. */
#ifndef QKV_CERTIFY_ATOM_H
#define QKV_CERTIFY_ATOM_H
#include "certify/term.h"

enum { MAX_PARTS = 128, MAX_TERMS = 1 << 15, MAX_STEPS = 1 << 17 };

void term_by(Terms *t, Law l); /* a form was made by it */
Term *term_intern(Terms *t, Term want);
bool term_mentions(Terms *t, const Term *e, const Expr *var);
Term *term_alone(Terms *t, Term *product);                           /* as a sum */
Term *term_raised(Terms *t, Term *atom, int64_t p, int64_t q);       /* atom^(p / q) as a sum */
Term *term_atom_of(Terms *t, Term want);                             /* the same to the power 1 */
Term *term_atom(Terms *t, TermKind kind, int64_t tag, bool truth, int n, Term *const *arg); /* of n sums */
#endif
