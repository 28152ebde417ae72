/* Values that are linear in positions. Contract in positions.h. */
#include "facts/positions.h"
#include <math.h>
#include <string.h>
#include "facts/axes.h"
#include "facts/constant.h"

/* A question: budget is how many values are looked at, shared ones each time; beyond it the answer is no. */
typedef struct Asked {
    const Graph *g;
    ExprPool *ex;
    int *budget;
} Asked;

static bool linear(const Asked *q, const Arg *a, Linear *l);

static Expr *integer(ExprPool *p, Expr *e)
{
    if (e->kind == EX_FLOAT && e->f == floor(e->f) && fabs(e->f) < 1e15) return ex_int(p, (int64_t)e->f);
    return e->is_float ? NULL : e;
}

/* factor of the k-th axis of `inner` that is not 1 moves to the k-th such axis of v. */
static bool carry(const Value *v, const Value *inner, const Linear *from, Linear *to)
{
    int i = inner->rank - 1;
    to->c = from->c;
    memset(to->factor, 0, sizeof to->factor);
    for (int k = v->rank - 1; k >= 0; k--) {
        if (is_one(v->dim[k])) continue;
        while (i >= 0 && is_one(inner->dim[i])) i--;
        if (i < 0 || inner->dim[i] != v->dim[k]) return false;
        to->factor[v->rank - 1 - k] = from->factor[inner->rank - 1 - i];
        i--;
    }
    while (i >= 0 && is_one(inner->dim[i])) i--;
    return i < 0;
}

bool linear_times(ExprPool *p, Linear *l, int64_t by)
{
    l->c = ex_mul(p, l->c, ex_int(p, by));
    for (int i = 0; i < MAX_RANK; i++) l->factor[i] *= by;
    return l->c != NULL;
}

bool linear_plus(ExprPool *p, Linear *l, const Linear *m, int64_t by)
{
    l->c = ex_add(p, l->c, ex_mul(p, m->c, ex_int(p, by)));
    for (int i = 0; i < MAX_RANK; i++) l->factor[i] += by * m->factor[i];
    return l->c != NULL;
}

const Value *index_from_end(const Graph *g, const Value *v)
{
    const Node *n = v->def, *below = NULL;
    double zero;
    if (!n || n->op->id != OP_where_self || n->arg[0].kind != ARG_VALUE || n->arg[2].kind != ARG_VALUE) return v;
    below = n->arg[0].v->def;
    const Value *x = n->arg[2].v;
    bool wraps = below && below->op->id == OP_lt_Tensor && below->arg[0].kind == ARG_VALUE && below->arg[0].v == x &&
                 constant_of(g, &below->arg[1], &zero) && zero == 0 && same_dims(x, v);
    return wraps ? x : v;
}

/* Are they at least 0, whatever the sizes are? */
static bool never_negative(const Linear *l)
{
    for (int i = 0; i < MAX_RANK; i++)
        if (l->factor[i] < 0) return false;
    return ex_is_int(l->c) && l->c->i >= 0;
}

static bool linear_op(const Asked *q, const Value *v, Linear *l)
{
    const Arg *a = v->def->arg;
    Linear m;
    int perm[MAX_RANK];
    switch (v->def->op->id) {
    case OP_arange_start_step:
        if (!(l->c = integer(q->ex, a[0].e)) || !ex_is_int(a[2].e)) return false;
        l->factor[0] = a[2].e->i;
        return true;
    case OP_full: return (l->c = integer(q->ex, a[1].e)) != NULL;
    case OP_to_copy: return linear(q, &a[0], l);
    case OP_reshape: return linear(q, &a[0], &m) && carry(v, a[0].v, &m, l);
    case OP_expand: return linear(q, &a[0], l);
    case OP_permute:
        if (!linear(q, &a[0], &m)) return false;
        permutation_of(v->def, perm);
        l->c = m.c;
        for (int i = 0; i < v->rank; i++) l->factor[v->rank - 1 - i] = m.factor[v->rank - 1 - perm[i]];
        return true;
    case OP_slice_Tensor: {
        if (!linear(q, &a[0], l) || !ex_is_int(a[1].e) || !(a[4].kind == ARG_EXPR && is_one(a[4].e))) return false;
        int64_t axis = a[1].e->i < 0 ? a[1].e->i + v->rank : a[1].e->i;
        if (a[2].kind == ARG_EXPR)
            l->c = ex_add(q->ex, l->c, ex_mul(q->ex, ex_int(q->ex, l->factor[v->rank - 1 - axis]), a[2].e));
        return l->c != NULL &&
               (a[2].kind != ARG_EXPR || l->factor[v->rank - 1 - axis] == 0 || (ex_is_int(a[2].e) && a[2].e->i >= 0));
    }
    case OP_neg: return linear(q, &a[0], l) && linear_times(q->ex, l, -1);
    case OP_add_Tensor:
    case OP_sub_Tensor:
        return ex_is_int(a[2].e) && linear(q, &a[0], l) && linear(q, &a[1], &m) &&
               linear_plus(q->ex, l, &m, v->def->op->id == OP_add_Tensor ? a[2].e->i : -a[2].e->i);
    case OP_mul_Tensor:
        for (int i = 0; i < 2; i++) {
            Expr *by = number_of(q->g, &a[i]);
            if (by && (by = integer(q->ex, by)) && ex_is_int(by))
                return linear(q, &a[1 - i], l) && linear_times(q->ex, l, by->i);
        }
        return false;
    case OP_where_self: {
        const Value *x = index_from_end(q->g, v);
        return x != v && linear(q, &a[2], l) && never_negative(l);
    }
    default: return false;
    }
}

static bool linear_node(const Asked *q, const Value *v, Linear *l)
{
    if (!linear_op(q, v, l)) return false;
    for (int i = 0; i < v->rank; i++)
        if (is_one(v->dim[i])) l->factor[v->rank - 1 - i] = 0; /* the index there is 0, also when the axis is widened */
    return true;
}

static bool linear(const Asked *q, const Arg *a, Linear *l)
{
    *l = (Linear){.c = ex_int(q->ex, 0)};
    if (--*q->budget < 0) return false;
    if (a->kind == ARG_VALUE && a->v->dtype != DT_I64 && a->v->dtype != DT_I32 && a->v->dtype != DT_F32 &&
        a->v->dtype != DT_F64)
        return false; /* positions wrap or round there */
    Expr *e = number_of(q->g, a);
    if (e) return (l->c = integer(q->ex, e)) != NULL;
    return a->kind == ARG_VALUE && a->v->def && linear_node(q, a->v, l);
}

bool linear_in_positions(const Graph *g, const Arg *a, Linear *l, int *budget)
{
    return linear(&(Asked){g, g->ex, budget}, a, l);
}
