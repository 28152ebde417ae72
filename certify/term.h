/* Elements of tensors as terms over the reals, each in one form: a sum of products of powers of atoms.
 *
 *     Term *s = term_over(t, T_SUM, j, extent, term_mul(t, q, k));     sum over 0 <= j < extent of q[.., j] * k[.., j]
 *     term_mul(t, term_exp(t, s), term_power(t, d, -2))                exp(s) / d
 *
 * Equal pointers are equal functions of sizes, index variables and leaves. The laws that a form was made by are noted
 * in t->used. NULL operands give NULL; the first reason is in t->why.
 */
#ifndef QKV_CERTIFY_TERM_H
#define QKV_CERTIFY_TERM_H
#include "certify/index.h"

typedef enum Law {
#define LAW(id, holds, name, says) LAW_##id,
#include "certify/laws.def"
#undef LAW
    LAWS
} Law;
const char *law_name(Law l);
const char *law_says(Law l);
bool law_is_assumed(Law l);

typedef enum TermKind {
    T_POLY,     /* sum of p / q times t, which are T_PRODUCT */
    T_PRODUCT,  /* of t to the power p / q; all other kinds are atoms, whose parts are operands */
    T_LEAF,     /* element idx of the tensor `tag` */
    T_SUM,      /* of the operand over idx[0] */
    T_MAX,      /* the same, the largest */
    T_ANY,      /* the same of a truth value: 1 where it is 1 somewhere */
    T_EACH,     /* the operand as a function of idx[0] */
    T_EXP,      /* of the operand */
    T_CALL,     /* function `tag`, of which nothing is known, of the operands */
    T_INDEX,    /* the integer idx[0] */
    T_CONSTANT, /* the number whose bits, as a double, are `tag` */
    T_ROOT,     /* the prime `tag`, to broken powers */
    T_GROUP,    /* the operand, a sum, as a base of powers */
    T_TEST,     /* 1 where idx[0] >= 0, else 0 */
    T_MASK,     /* 0 where the operand is 1, minus infinity where it is 0 */
    T_FILLED    /* the second operand where the first is 1, and the third, a large negative number, where it is 0 */
} TermKind;

typedef struct Operand {
    struct Term *t;
    int64_t p, q;
} Operand;

typedef struct Term {
    TermKind kind;
    int id, n, nidx, height; /* height: of the sums in it */
    bool truth;              /* an atom that is 0 or 1 */
    bool looked;             /* the source looks up this place */
    bool infinite;           /* it may be: a mask, such a leaf, and what is made of them but exponentials and truths */
    int64_t tag;
    uint64_t symbols;
    Operand *part;
    Expr **idx;
} Term;

enum { MAX_ROWS = 8 };

typedef struct Terms {
    Index x; /* stays when the terms go */
    Arena *arena;
    Term **slot;
    size_t nslots;
    int count;
    unsigned used;
    int swaps;   /* names of their variables */
    int steps;   /* of the claim in hand, against a limit */
    bool cases;  /* sums and exponentials are taken apart where a test changes, as the parts of a cat are */
    bool stuck;  /* what a term was refused for may have another form with cases */
    bool single; /* a number is what float32 has in its place: one of the files says it in float32 */
    bool narrow; /* the same of the node in hand, which computes in float32 */
    bool wide;   /* the node in hand computes in double, which ONNX has, too */
    bool rows;   /* no row of a mask hides all keys */
    int selects; /* above 0 where a case is taken: y in t x + y - t y is nothing where t is 1 */
    Term *row[MAX_ROWS]; /* the largest values that this was said of, in the claim in hand */
    int nrows;
    const bool *infinite; /* by class, the tag of a leaf: an element of it may be infinite */
    char why[200];
} Terms;

bool terms_open(Terms *t); /* no terms */
void terms_close(Terms *t);
void *term_refuse(Terms *t, const char *fmt, ...) QKV_PRINTF(2, 3); /* NULL */

bool term_is_number(const Term *v);
const Operand *term_factor(const Term *v); /* the only factor of what has no number in front; NULL: it is another sum */
bool term_is_truth(const Term *v);  /* a product of truth values */
bool term_positive(const Term *v); /* a number above 0 */
bool term_is_real(const Term *v); /* neither NaN nor infinite: sums that no mask enters, with factors */
/* Where v is not minus infinity, *rest: what it is there. NULL: it is another sum. */
Term *term_shown(Terms *t, const Term *v, Term **rest);
double term_value(Terms *t, const Term *v); /* the number that its digits, roots and fractions are; NaN: it is none */
Term *term_number(Terms *t, int64_t p, int64_t q);
Term *term_double(Terms *t, double v);
Term *term_index(Terms *t, Expr *e);
Expr *term_integer(Terms *t, const Term *v); /* the index expression that v is; NULL: none */
Term *term_leaf(Terms *t, int tag, bool truth, int n, Expr *const *idx);
Term *term_call(Terms *t, int tag, bool truth, int n, Term *const *arg);
Term *term_add(Terms *t, Term *a, Term *b);
Term *term_scale(Terms *t, Term *a, int64_t p, int64_t q);
Term *term_mul(Terms *t, Term *a, Term *b);
Term *term_power(Terms *t, Term *a, int64_t halves);
Term *term_exp(Terms *t, Term *a);
Term *term_over(Terms *t, TermKind sum_max_any_or_each, Expr *var, Expr *extent, Term *body);
Term *term_nonneg(Terms *t, Term *v);             /* 1 where v >= 0, else 0 */
Term *term_same(Terms *t, Term *a, Term *b);      /* 1 where a = b, else 0 */
Term *term_wrapped(Terms *t, Term *j, Term *n); /* j + n where j is below 0, j elsewhere */
Term *term_unwrapped(const Term *i, const Term *n); /* j, where i is that of j and n; NULL: it is not */
Term *term_mask(Terms *t, Term *truth);           /* 0 where that is 1, minus infinity where it is 0 */
Term *term_largest(Terms *t, Term *a, Term *b);
Term *term_where(Terms *t, Term *truth, Term *a, Term *b);
/* Does the form add up exponentials over each row of which it was said that it shows a key, hidden by the same truth
 * values? Where none is shown it divides by 0 then. */
bool term_rows_divide(Terms *t, const Term *form);
/* Are a and b the same for each remainder of the index var, by a number that one of them divides it by? */
bool term_same_apart(Terms *t, Term *a, Term *b, Expr *var, Expr *extent);
#endif
