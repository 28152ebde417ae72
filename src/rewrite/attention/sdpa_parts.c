/* Attentions of some of the keys, and their sums: one attention over all. Contract in makers.h.
 *
 *     p[..., :5] w + p[..., 5:] v       two of the first kind, values padded with zeros: sdpa(q, k, cat(w, v))
 */
#include <string.h>
#include "rewrite/attention/scores.h"

/* Some of the keys' probabilities are used: the others get values of 0. */
bool make_attention_slice(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    Value *form = a[0].kind == ARG_VALUE ? rewrite_form(rw, a[0].v, OP_scores) : NULL;
    if (!form || a[3].kind != ARG_VALUE || a[3].v->rank < 2) return false;
    Value *v = a[3].v;
    Expr *M = form->dim[form->rank - 1], *zero = ex_int(rw->ex, 0), *front = a[1].kind == ARG_EXPR ? a[1].e : zero;
    Expr *back = ex_sub(rw->ex, ex_sub(rw->ex, M, front), v->dim[v->rank - 2]);
    if (ex_is_int(front) && front->i < 0) front = ex_sub(rw->ex, M, ex_int(rw->ex, -front->i)), back = zero;
    if (!ex_is_int(front)) {
        int64_t low, high;
        ex_range(rw->ex, front, &low, &high);
        if (!ex_equals_int(back, 0) || low < 0) return rewrite_refuse(rw, "where the taken keys begin is not known");
    }
    Value *wide = RW(rw, constant_pad_nd, arg_value(v), arg_exprs(rw->g, 4, (Expr *[]){zero, zero, front, back}),
                     arg_float(rw->g, 0));
    return wide && attention_give(rw, a[0].v, wide, out);
}

/* x of values that a padding by zeros in front of and after their rows made, seen through views of the leading axes:
 * those before the padding, as wide. NULL: they are made otherwise. */
static Value *before_padding(Rewrite *rw, Value *v, Expr **front, Expr **back)
{
    const Node *n = v->def;
    double by = 0;
    Expr *dim[MAX_RANK];
    if (!n || v->rank < 2) return NULL;
    const Arg *a = n->arg;
    if (n->op->id == OP_constant_pad_nd) {
        bool rows = a[1].n == 4 && ex_equals_int(a[1].es[0], 0) && ex_equals_int(a[1].es[1], 0);
        if (!rows || (a[2].kind != ARG_NONE && (!constant_of(rw->g, &a[2], &by) || by != 0))) return NULL;
        *front = a[1].es[2];
        *back = a[1].es[3];
        return a[0].v;
    }
    if (n->op->id != OP_reshape && n->op->id != OP_expand) return NULL;
    Value *x = a[0].v;
    int r = x->rank;
    if (r < 2 || x->dim[r - 1] != v->dim[v->rank - 1] || x->dim[r - 2] != v->dim[v->rank - 2] ||
        !(x = before_padding(rw, x, front, back)))
        return NULL;
    memcpy(dim, v->dim, (size_t)v->rank * sizeof *dim);
    dim[v->rank - 2] = x->dim[x->rank - 2];
    return n->op->id == OP_reshape ? rw_reshape(rw, x, v->rank, dim) : rw_expand(rw, x, v->rank, dim);
}

/* Values of the first and of the last keys, each padded to all of them: side by side. NULL: they are not. */
static Value *side_by_side(Rewrite *rw, Value *v, Value *w)
{
    Expr *front[2], *back[2];
    Value *x = before_padding(rw, v, &front[0], &back[0]), *y = x ? before_padding(rw, w, &front[1], &back[1]) : NULL;
    if (!y || x->rank != y->rank) return NULL;
    bool first = ex_equals_int(front[0], 0) && ex_equals_int(back[1], 0) && back[0] == y->dim[y->rank - 2] &&
                 front[1] == x->dim[x->rank - 2],
         last = ex_equals_int(front[1], 0) && ex_equals_int(back[0], 0) && back[1] == x->dim[x->rank - 2] &&
                front[0] == y->dim[y->rank - 2];
    if (!first && !last) return NULL;
    return RW(rw, cat, arg_values(rw->g, 2, first ? (Value *[]){x, y} : (Value *[]){y, x}),
              arg_int(rw->g, x->rank - 2));
}

/* sdpa(q, k, v) + sdpa(q, k, w) with the same mask: sdpa(q, k, v + w). */
bool make_attention_of_sum(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    enum { VALUES = 2, DROPOUT = 4 };
    Arg arg[16];
    double dropout = 0;
    (void)n;
    const Node *x = a[0].v->def, *y = a[1].v->def;
    if (!x || !y || x->op != y->op || x->op->schema->nparams > 16) return false;
    for (int i = 0; i < x->op->schema->nparams; i++)
        if (i != VALUES && !arg_same(&x->arg[i], &y->arg[i]))
            return rewrite_refuse(rw, "the attentions of a sum differ in more than their values");
    if (!constant_of(rw->g, &x->arg[DROPOUT], &dropout) || dropout != 0)
        return rewrite_refuse(rw, "each attention of a sum drops weights of its own");
    Value *v = x->arg[VALUES].v, *w = y->arg[VALUES].v, *both = side_by_side(rw, v, w);
    if (!both && v->rank == w->rank && exprs_same(v->rank, v->dim, w->dim))
        both = RW(rw, add_Tensor, arg_value(v), arg_value(w));
    TRY(both);
    memcpy(arg, x->arg, (size_t)x->op->schema->nparams * sizeof *arg);
    arg[VALUES] = arg_value(both);
    Value *sum = rw_add(rw, x->op->id, x->op->schema->nparams, arg);
    *out = arg_value(sum);
    return sum != NULL;
}
