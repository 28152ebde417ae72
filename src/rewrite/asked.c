/* What proofs ask of the rewriter. Contract in rewrite.h. */
#include <math.h>
#include "base/vec.h"
#include "rewrite/rewrite.h"

double rewrite_place(void *user, const Value *v)
{
    const Info *info = rewrite_info(user, v->def->out[0]);
    return info->ghost ? INFINITY : info->order;
}

typedef struct Look {
    Rewrite *rw;
    int n; /* of rw->below */
    bool any, ok;
} Look;

static bool put_below(Look *l, const Value *v)
{
    const Value **grown = vec_grow(l->rw->below, l->n, sizeof *grown);
    if (!grown) return l->ok = false;
    l->rw->below = grown;
    l->rw->below[l->n++] = v;
    return true;
}

static void look_at(void *user, Value **slot)
{
    Look *l = user;
    unsigned known = rewrite_info(l->rw, *slot)->varies;
    if (known >> 1 != l->rw->turn) put_below(l, *slot);
    else l->any |= known & 1;
}

/* Each value is looked at once a turn, those below first. */
bool rewrite_varies(void *user, const Value *v)
{
    Rewrite *rw = user;
    Look l = {rw, 0, false, true};
    for (put_below(&l, v); l.n && l.ok;) {
        const Value *top = rw->below[l.n - 1];
        int n = l.n;
        l.any = top->kind == V_INPUT;
        if (top->def) node_each_operand(top->def, look_at, &l);
        if (l.any || l.n == n) {
            rewrite_info(rw, top)->varies = rw->turn << 1 | l.any;
            l.n = n - 1;
        }
    }
    if (!l.ok) rw->hard = !oom(rw->err);
    return l.ok && rewrite_info(rw, v)->varies & 1;
}
