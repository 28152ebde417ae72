/* Masks taken apart at their connectives. Contract in truth.h. */
#include "facts/truth.h"
#include "facts/axes.h"

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

/* Does an operator that reads its result broadcast it as it would its operand? */
static bool broadcasts(const Node *n)
{
    const Value *x = n->arg[0].v, *y = n->out[0];
    int more = y->rank - x->rank;
    if (n->op->id == OP_expand) return true;
    if (n->op->id != OP_reshape || more < 0 || !exprs_same(x->rank, x->dim, y->dim + more)) return false;
    for (int i = 0; i < more; i++)
        if (!ex_equals_int(y->dim[i], 1)) return false;
    return true;
}

static bool within_depth(const Value *v, const Value *all, int depth)
{
    const Node *n = v ? v->def : NULL;
    Truth part[2];
    if (v == all) return true;
    if (!n || depth > 6) return false;
    if (n->op->id == OP_where_self)
        return n->arg[0].kind == ARG_VALUE &&
               (n->arg[0].v == all || (n->arg[1].kind == ARG_VALUE && within_depth(n->arg[1].v, all, depth + 1)));
    for (int i = truth_parts(v, true, part) - 1; i >= 0; i--)
        if (part[i].wanted && within_depth(part[i].v, all, depth + 1)) return true;
    if (!(n->op->flags & OPF_REARRANGES)) return false;
    if (broadcasts(n) && within_depth(n->arg[0].v, all, depth + 1)) return true;
    return all->def && all->def->op == n->op && arg_same(&n->arg[1], &all->def->arg[1]) &&
           within_depth(n->arg[0].v, all->def->arg[0].v, depth + 1);
}

bool truth_within(const Value *v, const Value *all) { return within_depth(v, all, 0); }
