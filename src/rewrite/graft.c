/* Evaluating grafts: from captures to the arguments and nodes that a rule puts in place of what it matched. */
#include <math.h>
#include <string.h>
#include "base/number.h"
#include "rewrite/build.h"
#include "rewrite/rewrite.h"

enum { MAX_LIST = 64, MAX_TAKES = 8 };

static bool math(Rewrite *rw, const Graft *t, const Arg *bound, const bool *has, Arg *out)
{
    Arg a, b = arg_none();
    TRY(rewrite_graft(rw, t->sub[0], bound, has, &a));
    if (t->n > 1) TRY(rewrite_graft(rw, t->sub[1], bound, has, &b));
    Expr *x = number_of(rw->g, &a), *y = t->n > 1 ? number_of(rw->g, &b) : NULL;
    if (!x || (t->n > 1 && !y)) return rewrite_refuse(rw, "not a number that is known");
    bool whole = ex_is_int(x) && y && ex_is_int(y) && t->text[0] != '/'; /* stays a whole number, for sizes */
    bool constant = ex_is_const(x) && (!y || ex_is_const(y)) && !whole;
    double p = constant ? ex_number(x) : 0, q = constant && y ? ex_number(y) : 0;
    Expr *e = NULL;
    switch (t->text[0]) {
    case '+': e = constant ? ex_float(rw->ex, p + q) : ex_add(rw->ex, x, y); break;
    case '-': e = constant ? ex_float(rw->ex, p - q) : ex_sub(rw->ex, x, y); break;
    case '*': e = constant ? ex_float(rw->ex, p * q) : ex_mul(rw->ex, x, y); break;
    case '/': e = constant ? ex_float(rw->ex, p / q) : ex_make(rw->ex, EX_TRUEDIV, x, y, NULL); break;
    default: e = constant ? ex_float(rw->ex, sqrt(p)) : ex_make(rw->ex, EX_SQRT, x, NULL, NULL); break;
    }
    if (!e) return rewrite_refuse(rw, "an expression that is too large");
    *out = arg_expr(e);
    return true;
}

static bool list(Rewrite *rw, const Graft *t, const Arg *bound, const bool *has, Arg *out)
{
    Value *vs[MAX_LIST];
    Expr *es[MAX_LIST];
    if (t->n > MAX_LIST) return rewrite_refuse(rw, "a list of more than %d", MAX_LIST);
    for (int i = 0; i < t->n; i++) {
        Arg a;
        TRY(rewrite_graft(rw, t->sub[i], bound, has, &a));
        if (a.kind != ARG_VALUE && a.kind != ARG_EXPR)
            return rewrite_refuse(rw, "a list of other than tensors or numbers");
        vs[i] = a.kind == ARG_VALUE ? a.v : NULL;
        es[i] = a.kind == ARG_EXPR ? a.e : NULL;
        if (!vs[i] != !vs[0]) return rewrite_refuse(rw, "a list of tensors and numbers");
    }
    *out = t->n && vs[0] ? arg_values(rw->g, t->n, vs) : arg_exprs(rw->g, t->n, es);
    return true;
}

static bool op(Rewrite *rw, const Graft *t, const Arg *bound, const bool *has, Arg *out)
{
    Arg a[64];
    int n = t->op->schema->nparams;
    for (int i = 0; i < n; i++) {
        a[i] = arg_none();
        if (t->param[i]) TRY(rewrite_graft(rw, t->param[i], bound, has, &a[i]));
    }
    Value *v = rw_add(rw, t->op->id, n, a);
    *out = arg_value(v);
    return v != NULL;
}

static bool is_permutation(const Arg *a)
{
    bool seen[MAX_RANK] = {false};
    if (a->n > MAX_RANK) return false;
    for (int i = 0; i < a->n; i++) {
        int64_t d = ex_is_int(a->es[i]) ? a->es[i]->i : MAX_RANK;
        d += d < 0 ? a->n : 0;
        if (d < 0 || d >= a->n || seen[d]) return false;
        seen[d] = true;
    }
    return true;
}

/* Is an argument of the kind that a graft function takes? */
static bool fits(char kind, const Arg *a)
{
    if (is_upper(kind) && a->kind == ARG_NONE) return true;
    switch (to_lower(kind)) {
    case 't': return a->kind == ARG_VALUE;
    case 'l': return a->kind == ARG_VALUE && a->v->def && a->v->def->op->id == OP_linear;
    case 'x': return a->kind == ARG_VALUE || (a->kind == ARG_EXPR && !a->e->is_bool);
    case 'e': return a->kind == ARG_EXPR && !a->e->is_bool;
    case 'i': return a->kind == ARG_EXPR && ex_is_int(a->e);
    case 'b': return a->kind == ARG_EXPR && a->e->kind == EX_BOOL;
    case 'a': return a->kind == ARG_EXPRS;
    case 'p': return a->kind == ARG_EXPRS && is_permutation(a);
    case 'd': return a->kind == ARG_DTYPE;
    default: return true;
    }
}

static bool call(Rewrite *rw, const Graft *t, const Arg *bound, const bool *has, Arg *out)
{
    Arg a[MAX_TAKES] = {{0}};
    for (int i = 0; i < t->n; i++) {
        TRY(rewrite_graft(rw, t->sub[i], bound, has, &a[i]));
        if (!fits(t->maker->takes[i], &a[i]))
            return rewrite_refuse(rw, "argument %d of @%s is of another kind", i + 1, t->maker->name);
    }
    return t->maker->f(rw, t->n, a, out);
}

bool rewrite_graft(Rewrite *rw, const Graft *t, const Arg *bound, const bool *has, Arg *out)
{
    *out = arg_none();
    switch (t->kind) {
    case G_CAPTURE:
        if (has[t->slot]) *out = bound[t->slot];
        return true;
    case G_NUMBER: *out = t->integral ? arg_int(rw->g, (int64_t)t->number) : arg_float(rw->g, t->number); return true;
    case G_BOOL: *out = arg_bool(rw->g, t->number != 0); return true;
    case G_NONE: return true;
    case G_DTYPE: *out = arg_dtype(t->dtype); return true;
    case G_TEXT: *out = arg_str(rw->g, t->text); return true;
    case G_LIST: return list(rw, t, bound, has, out);
    case G_OP: return op(rw, t, bound, has, out);
    case G_OR: return rewrite_graft(rw, has[t->sub[0]->slot] ? t->sub[0] : t->sub[1], bound, has, out);
    case G_MATH: return math(rw, t, bound, has, out);
    case G_CALL: return call(rw, t, bound, has, out);
    }
    return false;
}
