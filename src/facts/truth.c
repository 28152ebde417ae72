/* Masks taken apart at their connectives. Contract in truth.h. */
#include "facts/truth.h"

int truth_parts(const Value *v, bool wanted, Truth part[2])
{
    if (v->kind != V_NODE || v->dtype != DT_BOOL) return 0;
    const Arg *a = v->def->arg;
    switch (v->def->op->id) {
    case OP_logical_not:
    case OP_bitwise_not: part[0] = (Truth){a[0].v, !wanted}; return 1;
    case OP_logical_and:
    case OP_bitwise_and_Tensor:
        if (!wanted) return 0;
        break;
    case OP_logical_or:
    case OP_bitwise_or_Tensor:
        if (wanted) return 0;
        break;
    default: return 0;
    }
    if (a[0].kind != ARG_VALUE || a[1].kind != ARG_VALUE) return 0;
    part[0] = (Truth){a[0].v, wanted};
    part[1] = (Truth){a[1].v, wanted};
    return 2;
}
