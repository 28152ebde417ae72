/* Kernels of registered ops (op/own.h). */
#include "op/own.h"
#include "run/run_table.h"

bool run_own(Call *c, Err *err)
{
    const OwnOp *own = op_own(c->node->op); /* shape inference found it */
    return own->run(own, c, err);
}
