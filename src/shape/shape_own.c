/* Shapes of registered ops (op/own.h). */
#include "op/own.h"
#include "shape/shape_table.h"

bool shape_own(Shape *s)
{
    const OwnOp *own = op_own(s->node->op);
    return own ? own->shape(own, s) : fail(s->err, E_FORMAT, "%s is not registered", s->node->op->name);
}
