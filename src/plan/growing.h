/* A plan that grows part by part, and whose parts run before the next is added, so that sizes may be numbers which
 * earlier parts found. Every result has memory of its own and its address from the beginning.
 *
 *     GrowingPlan *p = growing_create(&in, &binding, &parts, addresses, &err);
 *     for (int i = 0; i < parts.n; i++) {
 *         int from = growing_plan(p)->nsteps;
 *         growing_add(p, i, &err);
 *         ... the steps from `from` on run ...
 *         growing_release(p, i);                memory that no later part reads
 *     }
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

/* in: without fusion, with what is wanted of all parts. All that is passed stays until the plan is freed; symbols of
 * the binding may be bound later. NULL on error. */
GrowingPlan *growing_create(const PlanInput *in, const Binding *b, const PlanParts *parts, void *const *address,
                            Err *err);
void growing_free(GrowingPlan *g);
Plan *growing_plan(const GrowingPlan *g);
bool growing_add(GrowingPlan *g, int part, Err *err);
void growing_release(GrowingPlan *g, int part);
#endif
