/* A plan that grows part by part, and whose parts run before the next is added, so that sizes may be numbers which
 * earlier parts found. Every result has memory of its own and its address from the beginning.
 *
 *     GrowingPlan *p = growing_create(&in, &binding, &parts, addresses, &err);
 *     for (int i = 0; i < parts.n; i++) {
 *         growing_add(p, i, &err);
 *         ... the steps of growing_plan(p), which are those of this part, run ...
 *         growing_release(p, i);                they are gone, and what no later part reads
 *     }
 *     growing_give(p, given, slot, &first, address);      what is left goes to a plan of the other nodes
 *     growing_free(p);
 */
#ifndef QKV_PLAN_GROWING_H
#define QKV_PLAN_GROWING_H
#include "plan/plan.h"

typedef struct GrowingPlan GrowingPlan;

/* The nodes of a graph in parts, in each as the graph has them. */
typedef struct PlanParts {
    int n;
    const Node **node; /* of part i: from begin[i] to begin[i + 1] */
    int *begin;
    int *part;   /* by value id: that of its node */
    int *reader; /* by value id: the last part that reads the value beside its nodes */
} PlanParts;

/* in: without fusion, with what is wanted of all parts. All that is passed stays until the last part has run; symbols
 * of the binding may be bound later. `gives`: a plan of the whole graph is made afterwards, of what the parts do not
 * compute, and what it reads stays until the growing plan is freed. NULL on error. */
GrowingPlan *growing_create(const PlanInput *in, const Binding *b, const PlanParts *parts, void *const *address,
                            bool gives, Err *err);
void growing_free(GrowingPlan *g);
Plan *growing_plan(const GrowingPlan *g);
bool growing_add(GrowingPlan *g, int part, Err *err);
void growing_release(GrowingPlan *g, int part);
/* After the last part. By value id: what the other nodes read of the parts' own memory is given, with a slot from
 * `first` on (PlanInput.slot); random numbers that were drawn are given without one, that they are not drawn again.
 * Views of what lies elsewhere are made again. How many slots; address, if not NULL: where each of them is. */
int growing_give(const GrowingPlan *g, const Tensor **given, int *slot, int first, void **address);
size_t growing_bytes(const GrowingPlan *g); /* of results that are there */
#endif
