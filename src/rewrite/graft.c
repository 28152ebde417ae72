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
    rw->called = t->maker->name;
    return t->maker->f(rw, t->n, a, out);
}

static bool size(Rewrite *rw, const Graft *t, const Arg *bound, const bool *has, Arg *out)
{
    Err e = {0};
    if (t->text) {
        *out = arg_expr(ex_parse(rw->ex, t->text, NULL, NULL, &e));
        return out->e || rewrite_refuse(rw, "size '%s': %s", t->text, e.msg);
    }
    Arg x, axis;
    TRY(rewrite_graft(rw, t->sub[0], bound, has, &x) && rewrite_graft(rw, t->sub[1], bound, has, &axis));
    if (x.kind != ARG_VALUE) return rewrite_refuse(rw, "the size of what is not a tensor");
    int64_t d = axis.e->i + (axis.e->i < 0 ? x.v->rank : 0);
    if (d < 0 || d >= x.v->rank)
        return rewrite_refuse(rw, "'%s' has %d axes, none is %lld", x.v->name, x.v->rank, (long long)axis.e->i);
    *out = arg_expr(x.v->dim[d]);
    return true;
}

/* ------------------------------------------------------------------ nodes once more, with another operand */

enum { MAX_AGAIN = 500 };
typedef struct Again {
    Rewrite *rw;
    double order; /* of the node that computes ?x: nothing before that depends on it */
    int n;
    const Value *seen[MAX_AGAIN];
    Value *made[MAX_AGAIN];
} Again;

static Value *once_more(Again *a, Value *v);

static bool each_again(Again *a, int n, Value *const *v, Value **to, bool *changed)
{
    for (int i = 0; i < n; i++) {
        if ((to[i] = v[i]) && !(to[i] = once_more(a, v[i]))) return false;
        *changed |= to[i] != v[i];
    }
    return true;
}

static Value *node_again(Again *a, Value *v)
{
    Rewrite *rw = a->rw;
    const Node *n = v->def;
    Arg arg[64];
    bool changed = false;
    for (int i = 0; i < n->op->schema->nparams; i++) {
        Value *list[MAX_LIST];
        arg[i] = n->arg[i];
        if (arg[i].kind == ARG_VALUE && !each_again(a, 1, &n->arg[i].v, &arg[i].v, &changed)) return NULL;
        if (arg[i].kind != ARG_VALUES) continue;
        if (arg[i].n > MAX_LIST) return rewrite_refuse(rw, "a list of more than %d", MAX_LIST), NULL;
        if (!each_again(a, arg[i].n, n->arg[i].vs, list, &changed)) return NULL;
        arg[i] = arg_values(rw->g, arg[i].n, list);
    }
    if (!changed) return v;
    if (n->op->flags & (OPF_RANDOM | OPF_EFFECT | OPF_INPLACE))
        return rewrite_refuse(rw, "'%s' cannot be computed again: %s", v->name, n->op->name), NULL;
    const Value *made = rw_add(rw, n->op->id, n->op->schema->nparams, arg);
    return made ? made->def->out[v->out] : NULL;
}

static Value *once_more(Again *a, Value *v)
{
    for (int i = 0; i < a->n; i++)
        if (a->seen[i] == v) return a->made[i];
    const Info *info = v->def ? rewrite_info(a->rw, v->def->out[0]) : NULL;
    if (!info || (!info->ghost && info->order < a->order)) return v;
    if (a->n == MAX_AGAIN) return rewrite_refuse(a->rw, "more than %d nodes", MAX_AGAIN), NULL;
    Value *made = node_again(a, v);
    if (made && a->n < MAX_AGAIN) {
        a->seen[a->n] = v;
        a->made[a->n++] = made;
    }
    return made;
}

/* (again ?y ?x G) */
static bool again(Rewrite *rw, const Graft *t, const Arg *bound, const bool *has, Arg *out)
{
    Arg a[3];
    for (int i = 0; i < 3; i++) {
        TRY(rewrite_graft(rw, t->sub[i], bound, has, &a[i]));
        if (a[i].kind != ARG_VALUE) return rewrite_refuse(rw, "(again ...) takes tensors");
    }
    Again *w = arena_alloc(rw->scratch, 1, sizeof *w);
    if (!w) return rw->hard = true, oom(rw->err);
    *w = (Again){.rw = rw, .n = 1, .seen = {a[1].v}, .made = {a[2].v}};
    if (a[1].v->def) w->order = rewrite_info(rw, a[1].v->def->out[0])->order;
    Value *made = once_more(w, a[0].v);
    if (made == a[0].v && a[2].v != a[1].v)
        return rewrite_refuse(rw, "'%s' is not computed from '%s'", a[0].v->name, a[1].v->name);
    *out = arg_value(made);
    return made != NULL;
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
    case G_SIZE: return size(rw, t, bound, has, out);
    case G_AGAIN: return again(rw, t, bound, has, out);
    }
    return false;
}
