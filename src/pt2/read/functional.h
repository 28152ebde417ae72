/* Functionaliser: in-place ops and writes through views become pure ops.
 *
 * Every tensor name of the file is a Ref. A root Ref owns a value that changes with each write; a view Ref remembers
 * the op that made it from its parent, so that it can be made again after a write to any Ref of the same root.
 *
 *     y = x.select(0, 1); y.add_(1)     ->  y' = add(select(x, 0, 1), 1); x' = select_scatter(x, y', 0, 1)
 *
 * The result is what torch._functorch's functionalization gives.
 */
#ifndef QKV_PT2_READ_FUNCTIONAL_H
#define QKV_PT2_READ_FUNCTIONAL_H
#include "format/json.h"
#include "lower/lower.h"

typedef struct Ref {
    struct Ref *parent; /* the Ref it is a view of; NULL for a root */
    struct Ref *root;
    Value *value; /* as of `version` */
    int version;  /* root: number of writes; view: the root's when value was made */
    int depth;    /* views between it and its root */
    int64_t views, made; /* root: views of it; nodes made for writes through them */
    const Op *op; /* view: how it was made from the parent's value */
    const Arg *arg;
    int which, nnames;  /* which result of op, and how many the file names */
    const json_t *meta; /* what the file declares: TensorMeta; may be NULL */
} Ref;

Ref *ref_root(Graph *g, Value *v, const json_t *meta);
Ref *ref_view(Graph *g, Ref *parent, const Op *op, const Arg *arg, int which, Value *v, const json_t *meta);
/* The value now: remade if the root was written since. NULL on error. */
Value *ref_value(Graph *g, Ref *r, Err *err);
/* Writes: v has r's shape and dtype. */
bool ref_write(Graph *g, Ref *r, Value *v, Err *err);
#endif
