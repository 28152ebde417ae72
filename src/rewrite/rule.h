/* Rules: pictures of trees, compiled from the text of .rules files.
 *
 *     (phase recompose)
 *     (rule gelu_tanh                                   ; replaces the root of the pattern by the graft
 *       (mul (mul 0.5 ?x) (add 1 (tanh ...)))           ; pattern
 *       (gelu ?x :approximate "tanh")                   ; graft
 *       (float ?x))                                     ; guards: named C functions (rule_guards.c)
 *     (derive scores_mul                                ; records an equal form of the root, replaces nothing by itself
 *       (mul (= ?s (scores ...)) ?c)
 *       (@scores_mul ?s ?c))                            ; a graft made by a C function of a family
 *
 * Patterns: ?x captures, the same ?x twice must be the same; _ is anything; (op a b :name p) is an op of the plain form
 * with its parameters in schema order or by name; a parameter that is not mentioned must have its default, `...` lets
 * the remaining ones be anything; (= ?x P) captures what P matches; (any P Q) one of them; (opt (op P ...)) P with or
 * without op around it; (shared P) may have other users (inner nodes of a `rule` have one user otherwise); (out K (op
 * ...)) result K of an op with several; (fork P Q) several roots over the same captures; (* STEP ... P) P under any
 * number of nodes that a STEP matches, each with the next in place of its ~, (+ STEP ... P) under at least one; numbers
 * also match constant tensors of one element. Ops that commute match in either order. Parameters called dim, dims count
 * from the end when negative, in patterns and in graphs. Grafts: ?x, numbers, none, (op ...), (@function ...), (fork G
 * H), (or ?x G): G when ?x is not bound; on numbers: (+ a b) (- a b) (* a b) (/ a b) (sqrt a); (size ?x K), (size
 * "2*s0"); (again ?y ?x G): the nodes that compute ?y from ?x, with G in place of ?x.
 */
#ifndef QKV_REWRITE_RULE_H
#define QKV_REWRITE_RULE_H
#include "ir/graph.h"

typedef struct Rewrite Rewrite;
typedef struct Family Family; /* family.h */

enum {
    MAX_VARS = 48,
    MAX_FORK = 8,
    MAX_OUTS = 64,
    MAX_PATTERN = 500,
    MAX_RULES = 10000
}; /* pattern: parts of all patterns of a rule */

/* A guard says whether a match may fire; false also says why with rewrite_refuse. */
typedef bool GuardFn(Rewrite *rw, int n, const Arg *a);
/* A graft function builds the replacement with the builders of build.h; false refuses (rewrite_refuse) or fails. */
typedef bool GraftFn(Rewrite *rw, int n, const Arg *a, Arg *out);

typedef struct Guard {
    const char *name;
    GuardFn *f;
    int min_args, max_args;
} Guard;
typedef struct Maker {
    const char *name;
    GraftFn *f;
    /* what its arguments are, a letter each: t a tensor, l the result of a linear, x a tensor or number, e a number,
     * i a whole one, b true or false, a a list of numbers, p one that is a permutation, d a dtype, * anything; a
     * capital one may also be none, and left out at the end. Others refuse the rule before f is called. */
    const char *takes;
} Maker;
extern const Guard engine_guards[]; /* rule_guards.c: those of any rule; an unnamed one after the last */

typedef struct Pat {
    enum PatKind {
        P_WILD,
        P_CAPTURE,
        P_NUMBER,
        P_BOOL,
        P_NONE,
        P_DTYPE,
        P_TEXT,
        P_LIST,
        P_OP,
        P_OPT,
        P_ANY,
        P_SHARED,
        P_NAMED
    } kind;
    int slot;      /* P_CAPTURE, P_NAMED */
    double number; /* P_NUMBER, P_BOOL */
    DType dtype;
    const char *text;
    int n;
    struct Pat **sub; /* P_LIST, P_ANY; P_OPT, P_SHARED, P_NAMED: one */
    const Op *op;
    struct Pat **param; /* P_OP: per schema parameter; NULL = must have its default */
    int out;
} Pat;

typedef struct Graft {
    enum GraftKind {
        G_CAPTURE,
        G_NUMBER,
        G_BOOL,
        G_NONE,
        G_DTYPE,
        G_TEXT,
        G_LIST,
        G_OP,
        G_CALL,
        G_OR,
        G_MATH,
        G_SIZE,
        G_AGAIN
    } kind;
    int slot;
    double number;
    bool integral;
    DType dtype;
    const char *text; /* G_MATH: "+" "-" "*" "/" "sqrt"; G_SIZE: an expression, NULL: an axis of a tensor */
    int n;
    struct Graft **sub;
    const Op *op;
    struct Graft **param; /* G_OP: per schema parameter; NULL = default */
    const Maker *maker;
} Graft;

typedef struct Where {
    const Guard *guard;
    int n;
    Graft **arg;
} Where;

typedef struct Rule {
    const char *name, *phase;
    int index; /* in its set */
    bool derive;
    bool reorders; /* fires at any cost, once at each value */
    bool builtin;
    int nroots;
    Pat *root[MAX_FORK];
    int out[MAX_FORK]; /* which result of its root each pattern is */
    Graft *graft[MAX_FORK];
    int nwhere;
    Where *where;
    int nvars;
    const char *var[MAX_VARS];
} Rule;

typedef struct RuleSet {
    Arena *arena;
    const Family *const *families; /* NULL after the last */
    int n;
    Rule **rule; /* in the order of the files */
} RuleSet;

/* An empty set, whose rules may name what these families have; `families` must outlive it. NULL when out of memory. */
RuleSet *rules_create(const Family *const *families);
void rules_free(RuleSet *s);
/* Adds the rules of a text. Errors: E_FORMAT, "line 12: rule 'x': ...". A name that is taken replaces that rule. */
bool rules_parse(RuleSet *s, const char *text, Err *err);
bool rules_builtin(RuleSet *s, Err *err); /* those that the families bring along */
void rules_remove(RuleSet *s, const char *name);
/* A graft by itself, in memory of the arena: its variables are var[0 .. *nvars), each once, in the order of their
 * slots. NULL: E_FORMAT. */
Graft *graft_parse(Arena *arena, const Family *const *families, const char *text, const char *var[MAX_VARS], int *nvars,
                   Err *err);
/* The row that a name in a rule means: "matmul", "add.Scalar", "aten.add.Tensor". NULL when none is in the plain
 * form. */
const Op *rule_op(const char *name);
#endif
