/* A plan while it is made, for the files that make plans: plan.c (of a whole graph) and growing.c (part by part). */
#ifndef QKV_PLAN_PLAN_IMPL_H
#define QKV_PLAN_PLAN_IMPL_H
#include "plan/plan.h"

typedef struct Builder {
    const PlanInput *in;
    const Graph *g;
    Plan *p;
    const Binding *b;
    unsigned char *need;     /* by value id */
    unsigned char *constant; /* by value id: depends on sizes and weights alone */
    unsigned char *stable;   /* by value id: bytes stay for the session */
    unsigned char *leaves;   /* by value id: an output or the new value of a buffer */
    Arena *views;            /* arguments of nodes that may be views, while they are asked; NULL: none yet */
    Arena *calls;            /* arguments of steps; NULL: they are the plan's */
    int most;                /* nodes that the plan has at a time; 0: those of the graph */
    const Tensor **windows;  /* by value id: what a matmul reads in place of it, whose elements have no strides */
    struct GrowingPlan *growing; /* NULL: the plan is made at once */
    void *const *address;        /* of inputs, where it grows */
    Err *err;
} Builder;

/* The plan with its weights and inputs, and no node; where that fails, s holds nothing. */
bool builder_begin(Builder *s);
bool builder_add(Builder *s, const Node *n);
/* What was needed while the plan was made; the plan stays. */
void builder_free(Builder *s);
/* Memory that the plan owns, beside the arena: its number, or -1. */
int builder_owned(Builder *s, size_t bytes, bool kept);

/* growing.c: a tensor that lives until nothing reads it, memory for a result of the part that is added now, and a
 * result that looks at another's. */
Tensor *growing_tensor(Builder *s, const Value *v);
bool growing_storage(Builder *s, const Value *v, Tensor *t, size_t bytes);
void growing_view(Builder *s, const Value *v);
#endif
