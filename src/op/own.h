/* Ops that the program registers: rows of own.def, given a name and a schema while the program runs.
 *
 *     const Op *op = op_register("my::twice", "(Tensor x, float by=2.0) -> Tensor", &own, err);
 *     op_find("my.twice.default") == op
 *
 * An op stays registered as long as the process. Any thread may register and find ops. Errors: E_USAGE (a name or
 * schema that is none, a name that is taken), E_LIMIT (all rows are taken).
 */
#ifndef QKV_OP_OWN_H
#define QKV_OP_OWN_H
#include "op/op.h"

struct Shape;
struct Call;

typedef struct OwnOp {
    bool (*shape)(const struct OwnOp *own, struct Shape *s);
    bool (*run)(const struct OwnOp *own, struct Call *c, Err *err);
    const char *gradient; /* the name of the op that computes it (src/grad/grad_own.c); NULL: there is none */
    const void *user;
} OwnOp;

enum { OWN_NAME = 200, OWN_SCHEMA = 1000, OWN_PARAMS = 32 }; /* most characters, and parameters */

/* *own is copied; what it points to is not. */
const Op *op_register(const char *name, const char *schema, const OwnOp *own, Err *err);
/* The registered op of this name ("my::op"); NULL: there is none. */
const Op *op_find_own(const char *name);
/* What was registered with the op; NULL for ops of the table. */
const OwnOp *op_own(const Op *op);
#endif
