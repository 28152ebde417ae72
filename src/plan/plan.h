/* Plan: a graph with sizes bound. Which nodes are views, which are steps, where every result is.
 *
 *     Plan *p = plan_build(&in, &binding, err);     in.graph, what is wanted, which values are already constant
 *     ... p->step[i].call ...                       tensors have offsets until plan_place gives addresses
 *     plan_free(p);
 *
 * Three kinds of results: views (no step), constants of this plan (computed once when the plan is first used: they
 * depend on sizes and weights alone), and activations (in the arena). Values that depend on weights alone are computed
 * once per session, not per plan: the session passes them in as `fixed`.
 */
#ifndef QKV_PLAN_PLAN_H
#define QKV_PLAN_PLAN_H
#include "plan/call.h"
#include "plan/fuse.h"
#include "plan/work.h"

typedef enum Home { HOME_NONE, HOME_INPUT, HOME_GIVEN, HOME_CONST, HOME_ARENA } Home;

typedef struct Place {
    Home home;     /* where the storage is that the value is in */
    int index;     /* HOME_INPUT: input number; HOME_CONST, HOME_ARENA: index of the block; HOME_GIVEN: nothing */
    size_t offset; /* bytes from the storage's start */
} Place;

typedef struct Step {
    Call call;
    const Node *node; /* the last node that it covers: its result is what the step writes */
    int takes;        /* block of a residual that the result may take the place of; -1: none */
    int info;         /* 1 + its description in the session's Profile; 0: none yet */
    size_t alive;     /* bytes of results alive while it runs */
    size_t top;       /* where its scratch begins in the arena */
    size_t room;      /* how much of it fits there; SIZE_MAX: up to the arena's end */
    size_t scratch;    /* most bytes of scratch that it took so far; 0 before it ran */
    bool constant; /* runs once per plan */
} Step;

/* An input whose memory has room to grow, so that a cat that begins with it writes only what comes after it. */
typedef struct Grown {
    const Value *result; /* of that cat; it lies where the input does. NULL: the input does not grow */
    int axis;
    int64_t room; /* sizes along it that the memory has */
} Grown;

typedef struct PlanInput {
    const Graph *graph;
    const Fusion *fusion;        /* NULL: none */
    const unsigned char *wanted; /* by value id: what must be computed; NULL = outputs and mutations */
    const Tensor *const
        *given; /* by value id: values that already exist (weights, session constants, buffers); others NULL */
    const unsigned char *stable; /* by value id: given values whose bytes never change */
    const int *slot; /* by value id: 1 + the place, after the inputs, of a value given to plan_place; NULL: none */
    int outputs;     /* output i that fills memory of its own has place outputs - 1 + i in plan_place; 0: none has */
    const bool *elsewhere; /* by output: may it fill memory of its own? NULL: all may */
    const Grown *grown;    /* by input; NULL: none grows */
    bool apart; /* what is wanted gets memory of its own, beside the plan's constants: it is given to other plans */
    size_t memory_limit; /* most bytes of activations and constants, 0 = none */
    size_t held;         /* of these, what inputs take that the session made */
} PlanInput;

typedef struct Plan {
    Arena *arena;
    Binding binding; /* the symbols' values; nothing is evaluated with it */
    int nvalues;
    Tensor **value; /* by value id; NULL when the plan does not compute it */
    Place *place;
    Step *step;
    int nsteps;
    struct PlanNode {
        const Node *node;
        int step;
    } * node; /* all nodes of the plan in order; step -1 = a view */
    int nnodes;
    size_t arena_bytes, bound_bytes;
    size_t *const_size; /* bytes per constant block */
    bool *const_kept;   /* is it needed after the constants are computed? */
    int nconst;
    struct Block *block; /* what is in the arena, and when */
    int nblock;
    bool settled;
    void **const_data; /* owned by the session that runs the plan */
    bool constants_done;
    unsigned char *base; /* arena address that the tensors were placed at */
} Plan;

Plan *plan_build(const PlanInput *in, const Binding *b, Err *err);
void plan_free(Plan *p);
/* Gives every tensor its address: the arena at base, constants at const_data, inputs at input[i] (NULL: leave unset),
 * and after the inputs the given values that have a slot, and outputs. */
void plan_place(Plan *p, unsigned char *base, void *const *input);
/* Is a value at input[i] of plan_place, from its beginning? */
static inline bool plan_lies_at(const Plan *p, const Value *v, int i)
{
    return p->place[v->id].home == HOME_INPUT && p->place[v->id].index == i;
}
/* After a run, when the scratch of every step is known: gives results places that leave room for it, where that makes
 * the whole smaller. Tensors stay where they are until plan_place. Does nothing when called again, unless a step took
 * more scratch than before. */
bool plan_settle(Plan *p, Err *err);
/* Evaluates a node's arguments for a binding: tensors by `value`, numbers from expressions. */
bool plan_call(Arena *a, const Graph *g, const Node *n, Tensor *const *value, const Binding *b, Call *c, Err *err);
#endif
