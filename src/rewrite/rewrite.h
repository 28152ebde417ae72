/* Rewriting: rules (rule.h) applied to a graph, phase by phase, until none fires.
 *
 *     RewriteOptions o = {.rules = rules};
 *     RewriteLog log = {0};
 *     rewrite_graph(graph, &o, &log, err);
 *     for (int i = 0; i < log.nfirings; i++) log.firing[i].rule ...
 *     rewrite_log_free(&log);
 *
 * How it ends: nodes are visited in order; `derive` rules give a value equal forms beside it, each once, and a `rule`
 * replaces its root only if the summed cost of the graph (rewrite_cost) falls. How it stays right: a graft whose dtype
 * or sizes are not provably the root's, or that would need a new requirement on sizes, is refused; with a `prove`
 * function every firing is evaluated on random inputs before it is committed. Deterministic: the same graph and rules
 * give the same result.
 */
#ifndef QKV_REWRITE_REWRITE_H
#define QKV_REWRITE_REWRITE_H
#include "rewrite/rule.h"

/* What a proof says, from less to more. */
typedef enum Sense {
    SENSE_NONE,   /* nothing could be evaluated */
    SENSE_FLOATS, /* equal within a tolerance on random floats */
    SENSE_EXACT,  /* equal on random exact payloads (prove/exact.h) */
    SENSE_REALS   /* equal over the reals for all sizes in range: certified (certify/certify.h) */
} Sense;
const char *sense_text(Sense s); /* as above; NULL for SENSE_NONE */

typedef struct Proof {
    Sense sense;
    double max_abs, max_rel; /* largest difference, and relative to the largest value */
    double waived_abs;       /* the same where a difference is waived (WAIVE_ZEROS) */
    int runs;                /* bindings times seeds */
    bool skipped;            /* nothing could be evaluated; `why` says why */
    char why[256];
    char why_floats[256]; /* why the exact payloads say nothing, with SENSE_FLOATS */
} Proof;

typedef struct Firing {
    const char *rule, *phase, *result; /* result: name of the first replaced value, which the new one takes over */
    const char *op;                    /* of the new value */
    int nnodes;
    const char **node; /* the nodes that vanished */
    const char *note;  /* what else a user should know; NULL */
    Proof proof;
} Firing;

/* Where a replacement may differ from what it replaces; the firing's note says so. */
typedef enum Waiver {
    WAIVE_NOTHING,
    WAIVE_ZEROS, /* elements for which the replacement gives 0 */
    WAIVE_INPUTS /* results of inputs that the family leaves out of its draws (family.h) */
} Waiver;

/* What `prove` is asked: do from[i] and to[i] always have the same value? */
/* What a prover keeps from one claim to the next; who keeps it calls release at last. */
typedef struct ClaimRoom {
    void (*release)(struct ClaimRoom *room);
} ClaimRoom;

typedef struct Claim {
    const Graph *g;
    const char *rule;
    int n;
    Value *const *from, *const *to;
    Waiver waiver;
    /* What a new weight of `to`, which was computed in numbers and rounded, is in ops; NULL: its numbers. */
    Value *(*meaning)(void *user, const Value *weight);
    void *user;
    bool rounded; /* the rule takes a constant that is near another for that one (guard `close`) */
    /* Where the node of a result is (it rises along the graph and is infinite outside of it), and whether a value is
     * computed from an input. NULL, both: whoever proves the claim looks at the whole graph. */
    double (*place)(void *user, const Value *v);
    bool (*varies)(void *user, const Value *v);
    ClaimRoom **room; /* of all claims about the graph, NULL at first; NULL: of none */
} Claim;
/* False: they differ (E_MISMATCH) or something else failed. */
typedef bool ProveFn(void *user, const Claim *c, Proof *p, Err *err);

typedef struct RewriteOptions {
    const RuleSet *rules;
    bool exact;      /* no firing may waive anything */
    bool rules_only; /* families do nothing between rounds (Family.settled) */
    bool resumes;    /* the graph comes from rewrite_graph: equal nodes were merged */
    bool unrounded;  /* new weights stay the ops that compute them from the old ones */
    unsigned phases; /* bits of Phase; 0 = all */
    ProveFn *prove;  /* NULL: no proofs */
    void *prove_user;
    void (*progress)(void *user, int done, int total);
    void *progress_user;
} RewriteOptions;
typedef enum Phase { PHASE_RECOMPOSE, PHASE_CONVERT, PHASE_FUSE, PHASES } Phase;
const char *phase_name(Phase p);

/* A compound that a family knows and that is still spelled out. */
typedef struct Left {
    const char *node;    /* what it is named after */
    const char *at;      /* the node where recognition stopped */
    const char *rule;    /* the rule that came furthest; NULL when none matches the node */
    const char *matched; /* what was recognised up to there */
    const char *reason, *advice;
} Left;

/* Where a rule that the library does not bring along met what it is about, and did not fire. */
typedef struct Refused {
    const char *rule, *node, *reason;
} Refused;

typedef struct RewriteLog {
    Arena *arena;
    int nfirings;
    Firing *firing;
    int *uses; /* per rule of the set: firings, or equal forms that it gave */
    int nleft;
    Left *left;
    int nrefused;
    Refused *refused; /* in the last round of each phase */
    int fused;        /* what families count as fused in the result */
    int nodes_before, nodes_after;
} RewriteLog;

/* g stays valid also when it fails. Errors: E_MISMATCH (a proof), E_LIMIT. */
bool rewrite_graph(Graph *g, const RewriteOptions *o, RewriteLog *log, Err *err);
/* One more at the log's end; NULL when out of memory. */
Firing *rewrite_new_firing(RewriteLog *log);
/* One more that was refused; its texts must outlive the log. False: no memory, or one of them is NULL. */
bool rewrite_log_refused(RewriteLog *log, Refused r);
/* The entry of a softmax, or NULL. */
const Left *left_named(const Left *left, int n, const char *node);
/* What `then`, the log of the same graph's next rewriting, adds; its firings stay in its own arena.
 * False: no memory. */
bool rewrite_log_append(RewriteLog *log, const RewriteLog *then);
/* What the log of another graph, a body of this one, adds; its texts stay in its own arena. False: no memory. */
bool rewrite_log_add(RewriteLog *log, const RewriteLog *body);
void rewrite_log_free(RewriteLog *log);

/* ------------------------------------------------------------------ for families:
 * guards, graft functions and what they do between phases */

enum { MAX_FORMS = 6 };

typedef struct Info {      /* by value id */
    Value *alt[MAX_FORMS]; /* equal forms */
    int nalt, uses;
    bool ghost;             /* made by a graft, not in the graph (yet) */
    int holders;            /* ghosts that it is an operand of: 1 + index of the first in rw->holder */
    bool derived;           /* derive rules have been tried */
    double order;           /* rises along the graph */
    unsigned varies;        /* is it computed from an input? In rw->turn: turn << 1, and 1 if it is */
    const Rule *refused_by; /* at the node that defines it, and why */
    const char *rule, *why;
    Value *meaning; /* of a new weight: what it was computed from, in ops (Claim.meaning) */
} Info;

typedef struct Holder {
    Node *node;
    int next; /* 1 + index */
} Holder;

/* Weights that rules make out of others (families/weights.c). */
typedef struct WeightsMade {
    struct NewWeight *list;
    int n;
    Lookup by_source; /* of the list: what each was made from */
    int known;        /* weights of the graph that are in these two */
    Lookup by_memory;
    Map by_name; /* fqn: how often a number was put after it */
} WeightsMade;

struct Rewrite {
    Graph *g;
    ExprPool *ex;
    const RewriteOptions *o;
    Arena *scratch;
    Info **info, no_info; /* by value id, in blocks (rewrite.c); no_info: what there was no memory for */
    int ninfo;
    Node **ghost; /* every node made by a graft, in order */
    int nghosts;
    int made_before; /* ghosts there were when deriving began at the node of the graph in turn */
    Holder *holder;
    int nholders;
    int *bucket, *chain, nbuckets; /* hash of ghost nodes: index + 1 */
    const Rule *rule;              /* being tried */
    const char *note;              /* set by a graft function for the firing's log */
    Waiver waiver;                 /* set by a graft function; see Claim */
    int nested;                    /* views being folded into each other */
    char why[256];
    const char *called; /* the guard or graft function that is called: the name in its table */
    void *goals;        /* match.c */
    bool hard;          /* err holds a failure that must end everything */
    RewriteLog *log;
    Rule ***by_op[2]; /* [derive][op id]: lists ended by NULL */
    struct Firer *firer;
    ClaimRoom *room;     /* of proofs */
    unsigned turn;       /* of what is known of values that vary */
    const Value **below; /* being looked at for that */
    WeightsMade made;
    Node *resume; /* where to go on after a firing */
    Err *err;
};

Info *rewrite_info(Rewrite *rw, const Value *v); /* which stays where it is; never NULL */
/* A claim's place and varies (asked.c); user: the Rewrite. */
double rewrite_place(void *user, const Value *v);
bool rewrite_varies(void *user, const Value *v);
/* Says why a rule does not fire; returns false. */
bool rewrite_refuse(Rewrite *rw, const char *fmt, ...) QKV_PRINTF(2, 3);
/* The value itself or an equal form whose node is of op `id`; NULL when there is none. */
Value *rewrite_form(Rewrite *rw, Value *v, OpId id);
/* match.c: all ways in which `rule` matches at n, seen as `form` (n itself, or the node of an equal form of its first
 * result); calls fire for each until it returns true. */
typedef bool FireFn(Rewrite *rw, const Rule *rule, Node *const *root, const Arg *bound, const bool *has);
bool rewrite_match(Rewrite *rw, const Rule *rule, Node *n, const Node *form, FireFn *fire);
/* Replaces from[i], results of root[i], by to[i] when that is cheaper, of the same dtypes and sizes, and proven if
 * asked; logs it as `rule`. gone: a value that must lose its last reader; NULL. False: rewrite_refuse says why, or
 * rw->hard. */
bool rewrite_fire(Rewrite *rw, const Rule *rule, int n, Node *const *root, Value *const *from, Value *const *to,
                  const Value *gone);
/* graft.c: evaluates a graft. */
bool rewrite_graft(Rewrite *rw, const Graft *t, const Arg *bound, const bool *has, Arg *out);
#endif
