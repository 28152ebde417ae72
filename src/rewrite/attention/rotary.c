/* Rotary embeddings, however they are spelled, become qkv.rotary. Contract in rotary.h. */
#include "rewrite/attention/rotary.h"

/* cos or sin: its last axis has a number for each element of x's, or (one) for each pair; a single number is spread. */
static Value *table(Rewrite *rw, Value *t, const Value *x, bool pairs)
{
    Expr *D = x->dim[x->rank - 1], *half = ex_floordiv(rw->ex, D, ex_int(rw->ex, 2));
    if (t->rank && t->rank <= x->rank && t->dim[t->rank - 1] == (pairs ? half : D)) return t;
    rewrite_refuse(rw, "'%s' has not a number for each %s", t->name, pairs ? "pair" : "element");
    return NULL;
}

static bool give(Rewrite *rw, const Arg *a, bool pairs, bool interleaved, Arg *out)
{
    Value *x = a[0].v, *c = table(rw, a[1].v, x, pairs), *s = c ? table(rw, a[2].v, x, pairs) : NULL;
    if (!s) return false;
    Value *y = RW(rw, rotary, arg_value(x), arg_value(c), arg_value(s), arg_bool(rw->g, interleaved));
    *out = arg_value(y);
    return y != NULL;
}

bool make_rotary_halves(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    if (!a[0].v->rank) return false;
    Expr *D = a[0].v->dim[a[0].v->rank - 1];
    if ((a[4].kind == ARG_EXPR && a[4].e != D) || ex_mul(rw->ex, a[3].e, ex_int(rw->ex, 2)) != D)
        return rewrite_refuse(rw, "what is turned are not the two halves of '%s'", a[0].v->name);
    return give(rw, a, a[5].e->i != 0, false, out);
}

/* The sizes that show pairs: the last axis as (D / 2, 2). */
static bool shows_pairs(const Value *x, int rank, Expr *const *size)
{
    return rank == x->rank + 1 && ex_equals_int(size[x->rank], 2) && exprs_same(x->rank - 1, size, x->dim);
}

bool make_rotary_pairs(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    const Value *x = a[0].v, *turned = a[5].v;
    if (!x->rank) return false;
    Expr *D = x->dim[x->rank - 1];
    for (int i = 3; i < 5; i++) {
        bool strided = a[i].kind == ARG_EXPR && a[i].e == D;
        if (!strided && (a[i].kind != ARG_EXPRS || !shows_pairs(x, a[i].n, a[i].es)))
            return rewrite_refuse(rw, "what is turned are not the pairs of '%s'", x->name);
    }
    if (!shows_pairs(x, turned->rank, turned->dim))
        return rewrite_refuse(rw, "the turned pairs of '%s' are not put back as neighbours", x->name);
    return give(rw, a, a[6].e->i != 0, true, out);
}

bool make_reshaped(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    if (a[0].v->dtype != a[1].v->dtype) return rewrite_refuse(rw, "another dtype");
    Value *y = rw_reshape(rw, a[0].v, a[1].v->rank, a[1].v->dim);
    *out = arg_value(y);
    return y != NULL;
}
