/* Certificates: that a graph computes the same function of its inputs as another one, over the reals, for all sizes in
 * the declared ranges.
 *
 *     Checker c;
 *     checker_open(&c, source, result, false, err);
 *     checker_replay(&c, json, err)       E_MISMATCH: what is not established, and where
 *     checker_close(&c);
 *
 * It knows how graphs are read (src/ir and what is below it) and nothing of what makes them. A value of the source has
 * a class; one of the result has the class of the source's value that it was shown to be equal to, or one of its own. A
 * claim says that two values are equal functions of others whose equality was shown before (its cut). Both are brought
 * to one form by lemmas (lemmas.def: what an op's element is) and laws (laws.def).
 */
#ifndef QKV_CERTIFY_CERTIFY_H
#define QKV_CERTIFY_CERTIFY_H
#include "base/map.h"
#include "certify/term.h"
#include "format/json.h"
#include "ir/graph.h"

#define CERTIFICATE_NAME "qkv_certificate.json" /* extra file of a .pt2, metadata of an ONNX file that has one */

enum { SOURCE, RESULT };

/* Rows of a weight that only the result has: rows from .. from + count - 1 are those of a weight of the
 * source, or (of: NULL) of rank 1 and zeros. turned: all rows are the columns of a matrix of the source; reshaped: the
 * values are those of the source in their order. */
typedef struct Piece {
    const Value *weight, *of;
    int64_t from, count;
    bool turned, reshaped;
} Piece;

/* A value's step: of a view, the operand's index (map) in at0, at1, ... of the result's axes (at). */
typedef struct Step {
    Expr **map, **at;
    const char *text;
    unsigned seen; /* the last claim that has it (Checker.claim) */
    struct {
        bool known, is;
        int64_t diagonal;
        double below, above;
    } triangle; /* of a weight: one number up to a diagonal and another beyond it */
} Step;

typedef struct Side {
    const Graph *g;
    int *class;  /* by value id */
    Expr **expr; /* by expression id, in the checker's pool */
    uint32_t nexpr;
    Step *step; /* by value id */
    const Node **draws; /* nodes that draw random numbers, or may */
    int ndraws;
    int *drawn;          /* by value id: 1 + which of them has it as its first result */
    unsigned char *zero; /* by value id: is it a bias of zeros? 0: not looked at, 1: no, 2: yes */
    Buf steps;  /* of the claim in hand, as JSON */
    const Value *computes; /* of the claim in hand: what a node gives that does more than move elements */
    int ncomputes;         /* how many there are */
} Side;

/* Of bodies of loops and branches, by input and output of the result: the source's; -1: none. */
typedef struct Inside {
    const int *input, *output;
    bool claimed, infinite; /* may inputs be equal over the reals alone, may they be infinite? */
} Inside;

typedef struct Checker {
    Arena *arena;
    Terms t;
    Side side[2];
    Graph *own[2];       /* copies of graphs with bodies, which hold the weights that they read; NULL: there are none */
    const Inside *inside; /* NULL: the graphs are whole files */
    int *captured;       /* checker_enter's */
    const Value **of_class; /* the source's value */
    int nclasses;
    struct {
        Expr *size, *is;
    } *same; /* sizes of data that a condition of the source says */
    int nsame;
    Expr **size;  /* by symbol of the result: what it is of the source's, where an input tells */
    bool *shared;  /* by class: a value of the result has it */
    bool *claimed; /* by class: by a claim, or computed of such: equal over the reals, perhaps not bit by bit */
    bool same_bits; /* the claim that held last shows that, too */
    bool rests;    /* the node whose key was made last has such an operand */
    Map nodes;    /* the source's nodes by what they compute */
    Piece *piece;
    int npieces;
    /* the claim in hand */
    const bool *leaf; /* by class: an element of it stands for itself */
    bool *cut;        /* by class: such an element was met */
    bool numbers;     /* an element of a weight is the number that it is */
    bool narrow;      /* numbers of nodes in float32 are what float32 has */
    bool triangles;   /* weights that are triangles are what they hold */
    Term **memo;
    int nmemo, depth, work;
    unsigned claim; /* counts those that were tried */
    const ExprPool *translating;
    int nclaims;   /* that hold */
    unsigned laws; /* that they take */
} Checker;

/* single: a number in one of the files is what float32 has in its place in the other one. */
bool checker_open(Checker *c, const Graph *source, const Graph *result, bool single, Err *err);
void checker_close(Checker *c);
/* The certificate's word is taken for nothing. */
bool checker_replay(Checker *c, const json_t *certificate, Err *err);
/* Law i of those that the claims take and that say what a rounded or masked number stands for; NULL: there are no
 * more. */
const char *checker_assumes(const Checker *c, int i);
int64_t *checker_least(const Graph *source); /* of each size the least that it is; the caller frees. NULL: no memory */
bool checker_from_data(const Symbol *s); /* is it read from a value? */
/* The source's size of this name; of two that are read from what is computed twice, the first. */
const Symbol *checker_source_size(const Checker *c, const char *name);

/* ------------------------------------------------------------------ for what writes certificates */

/* Does node n of the result compute what one of the source does? Its values then have that one's classes. */
bool checker_congruent(Checker *c, const Node *n);
/* Are a of the source and b of the result the same function of the leaves? E_MISMATCH: why this is not established. */
bool checker_claim(Checker *c, const Value *a, const Value *b, const bool *leaf, Err *err);
/* Do both sides of the claim in hand, whose form this is, have the same bits: moved elements of one tensor, or those of
 * one node that each side has? */
bool checker_same_bits(Checker *c, const Term *form);
/* The claim that holds, as JSON: cut, laws and steps. */
void checker_put_claim(const Checker *c, Buf *out);
void checker_equal(Checker *c, const Value *a, const Value *b); /* after a claim that holds */
/* What both graphs give as their i-th output or write to the i-th buffer after that; false: there are no more. */
bool checker_given(const Checker *c, int i, const Value **a, const Value **b);
/* Is each element of this weight of the result the number that v of the source, without inputs, has there? */
bool checker_constant(Checker *c, const Value *weight, const Value *v, Err *err);
bool checker_piece(Checker *c, const Value *weight, int64_t from, int64_t count, const Value *of, Err *err);
bool checker_zero(const Checker *c, int side, const Value *weight); /* a bias of zeros: its elements are the number 0 */
bool checker_finish(Checker *c, Err *err); /* outputs, mutations, sizes and conditions */
int checker_same(Checker *c, const Value *a, const Value *b); /* their class from now on */

/* Loops and branches (bodies.c): what runs in them is compared by a checker of its own for each body.
 *
 *     Twins r = {a, b, NULL};
 *     bool same = checker_same_operands(c, &r, err);
 *     for (int i = 0; same && body_at(b, i); i++)
 *         same = checker_enter(&body, c, &r, i, claimed, err) && ... && checker_finish(&body, err), checker_leave(...);
 *     if (same) checker_ran(c, &r, claimed);
 */
typedef struct Twins {
    const Node *a, *b;
    const int *carried; /* by value that b carries, the one of a that it is; -1: a's condition. NULL: the same places */
} Twins;

bool checker_same_operands(Checker *c, const Twins *r, Err *err);
bool checker_rests(const Checker *c, const Twins *r); /* on what is equal over the reals alone? */
/* claimed: what a turn begins with may be equal over the reals alone. checker_leave closes `body`, in any case. */
bool checker_enter(Checker *body, Checker *c, const Twins *r, int i, bool claimed, Err *err);
void checker_leave(Checker *c, Checker *body);
void checker_ran(Checker *c, const Twins *r, bool claimed); /* results are the same from now on */
bool checker_open_body(Checker *c, const Graph *source, const Graph *result, bool single, const Inside *in, Err *err);
Expr *checker_expr(Checker *c, int side, const Expr *e);
bool checker_same_sizes(Checker *c, const Value *a, const Value *b); /* of the source, of the result; and dtypes */
int checker_class(const Checker *c, int side, const Value *v);
bool checker_known(const Checker *c, const Node *n); /* has a result of a node of the result a class? */
bool element_is_known(const Value *v); /* has the op of its node a lemma? */

/* element.c: element idx of v, as a term. NULL: c->t.why */
Term *element(Checker *c, int side, const Value *v, Expr *const *idx);
#endif
