/* The guards that every rule has: conditions that its picture cannot show. Families have further ones (family.h). */
#include "rewrite/build.h"
#include "rewrite/rewrite.h"

/* A number, or a tensor that is one constant. */
static bool guard_number(Rewrite *rw, int n, const Arg *a)
{
    (void)n;
    return number_of(rw->g, &a[0]) ||
           rewrite_refuse(rw, "'%s' is not a known number", a[0].kind == ARG_VALUE ? a[0].v->name : "?");
}

/* (close ?x 0.7071 tolerance): equal up to rounding in the model's dtype. */
static bool guard_close(Rewrite *rw, int n, const Arg *a)
{
    double x, y, tolerance = 1e-3;
    if (!constant_of(rw->g, &a[0], &x) || !constant_of(rw->g, &a[1], &y) ||
        (n > 2 && !constant_of(rw->g, &a[2], &tolerance)))
        return rewrite_refuse(rw, "'%s' is not a known number", a[0].kind == ARG_VALUE ? a[0].v->name : "?");
    double d = x - y, size = y < 0 ? -y : y;
    return (d < 0 ? -d : d) <= tolerance * size || rewrite_refuse(rw, "the number is %g, expected %g", x, y);
}

static bool guard_float(Rewrite *rw, int n, const Arg *a)
{
    (void)n;
    return (a[0].kind == ARG_VALUE && dtype_is_float(a[0].v->dtype)) || rewrite_refuse(rw, "not a float tensor");
}

static bool guard_bool(Rewrite *rw, int n, const Arg *a)
{
    (void)n;
    return (a[0].kind == ARG_VALUE && a[0].v->dtype == DT_BOOL) || rewrite_refuse(rw, "not a bool tensor");
}

/* Same dtype and provably the same sizes. */
static bool guard_same_shape(Rewrite *rw, int n, const Arg *a)
{
    (void)n;
    const Value *x = a[0].kind == ARG_VALUE ? a[0].v : NULL, *y = a[1].kind == ARG_VALUE ? a[1].v : NULL;
    return (x && y && x->dtype == y->dtype && x->rank == y->rank && exprs_same(x->rank, x->dim, y->dim)) ||
           rewrite_refuse(rw, "sizes are not provably the same");
}

/* (rank ?x 4) */
static bool guard_rank(Rewrite *rw, int n, const Arg *a)
{
    double want;
    (void)n;
    if (a[0].kind != ARG_VALUE || !constant_of(rw->g, &a[1], &want)) return rewrite_refuse(rw, "not a tensor");
    return a[0].v->rank == (int)want ||
           rewrite_refuse(rw, "'%s' has %d axes, expected %d", a[0].v->name, a[0].v->rank, (int)want);
}

/* (is ?x 0): exactly that number. */
static bool guard_is(Rewrite *rw, int n, const Arg *a)
{
    double x, y;
    (void)n;
    return (constant_of(rw->g, &a[0], &x) && constant_of(rw->g, &a[1], &y) && x == y) ||
           rewrite_refuse(rw, "not the number that the rule wants");
}

/* One axis, as a number or a list of one, from the front. */
static bool one_axis(const Arg *a, const Value *of, int64_t *axis)
{
    if ((a->kind == ARG_EXPRS && a->n != 1) || (a->kind != ARG_EXPR && a->kind != ARG_EXPRS)) return false;
    const Expr *e = a->kind == ARG_EXPR ? a->e : a->es[0];
    *axis = ex_is_int(e) ? e->i < 0 ? e->i + of->rank : e->i : -1;
    return ex_is_int(e);
}

/* (same_axes ?d ?e ?x ?y): axis d of x is axis e of y, which x broadcasts to. */
static bool guard_same_axes(Rewrite *rw, int n, const Arg *a)
{
    int64_t d, e;
    (void)n;
    if (a[2].kind != ARG_VALUE || a[3].kind != ARG_VALUE || !one_axis(&a[0], a[2].v, &d) ||
        !one_axis(&a[1], a[3].v, &e))
        return rewrite_refuse(rw, "not one axis");
    return d - a[2].v->rank == e - a[3].v->rank ||
           rewrite_refuse(rw, "the maximum is over axis %d, the sum over axis %d", (int)e, (int)d);
}

/* (last_axis ?dims ?x): a dim, or a list of one, that is the last axis of x. */
static bool guard_last_axis(Rewrite *rw, int n, const Arg *a)
{
    (void)n;
    int64_t axis;
    if (a[1].kind != ARG_VALUE || !one_axis(&a[0], a[1].v, &axis)) return rewrite_refuse(rw, "not one axis");
    return axis == a[1].v->rank - 1 || rewrite_refuse(rw, "the axis is not the last one");
}

/* (last_size ?n ?x): n is the size of the last axis of x. */
static bool guard_last_size(Rewrite *rw, int n, const Arg *a)
{
    (void)n;
    const Value *x = a[1].kind == ARG_VALUE ? a[1].v : NULL;
    return (x && x->rank && a[0].kind == ARG_EXPR && a[0].e == x->dim[x->rank - 1]) ||
           rewrite_refuse(rw, "not the size of the last axis");
}

/* A weight that no run changes. */
static bool guard_weight(Rewrite *rw, int n, const Arg *a)
{
    (void)n;
    const Value *v = a[0].kind == ARG_VALUE ? a[0].v : NULL;
    return (v && v->kind == V_WEIGHT && !graph_writes(rw->g, v)) ||
           rewrite_refuse(rw, "'%s' is not a constant weight", v ? v->name : "?");
}

/* (constant_along ?m ?d ?x): m, which broadcasts to x, is the same along axis d. */
static bool guard_constant_along(Rewrite *rw, int n, const Arg *a)
{
    int64_t d;
    (void)n;
    if (a[2].kind != ARG_VALUE || !one_axis(&a[1], a[2].v, &d) || d < 0 || d >= a[2].v->rank)
        return rewrite_refuse(rw, "not one axis");
    if (a[0].kind != ARG_VALUE) return true;
    const Value *m = a[0].v;
    int64_t k = d - (a[2].v->rank - m->rank);
    return k < 0 || is_one(m->dim[k]) || rewrite_refuse(rw, "what is subtracted varies along the axis of the sum");
}

/* (one_axis ?d ?e ?x ?y): like same_axes, where ?d need not be there. */
static bool guard_one_axis(Rewrite *rw, int n, const Arg *a)
{
    return a[0].kind == ARG_NONE || guard_same_axes(rw, n, a);
}

/* (wide ?x): float32 or float64, in which a fused op rounds as its parts do. */
static bool guard_wide(Rewrite *rw, int n, const Arg *a)
{
    (void)n;
    return (a[0].kind == ARG_VALUE && (a[0].v->dtype == DT_F32 || a[0].v->dtype == DT_F64)) ||
           rewrite_refuse(rw, "the parts round to a half type, the op would round once");
}

/* (count ?n ?x ?dims): n is the number of elements of x along dims. */
static bool guard_count(Rewrite *rw, int n, const Arg *a)
{
    (void)n;
    const Value *x = a[1].kind == ARG_VALUE ? a[1].v : NULL;
    Expr *have = number_of(rw->g, &a[0]), *want = ex_int(rw->ex, 1);
    if (!x || !have || a[2].kind != ARG_EXPRS || !a[2].n) return rewrite_refuse(rw, "not a known number of elements");
    for (int i = 0; i < a[2].n; i++) {
        int64_t d = ex_is_int(a[2].es[i]) ? a[2].es[i]->i + (a[2].es[i]->i < 0 ? x->rank : 0) : -1;
        if (d < 0 || d >= x->rank) return rewrite_refuse(rw, "not an axis");
        want = ex_mul(rw->ex, want, x->dim[d]);
    }
    bool same = want &&
                (have == want || (ex_is_const(have) && ex_is_const(want) && ex_number(have) == ex_number(want)));
    return same || rewrite_refuse(rw, "the sum is divided by something else than its number of elements");
}

const Guard engine_guards[] = {
    {"wide", guard_wide, 1, 1},
    {"count", guard_count, 3, 3},
    {"constant_along", guard_constant_along, 3, 3},
    {"one_axis", guard_one_axis, 4, 4},
    {"is", guard_is, 2, 2},
    {"same_axes", guard_same_axes, 4, 4},
    {"bool", guard_bool, 1, 1},
    {"number", guard_number, 1, 1},
    {"close", guard_close, 2, 3},
    {"float", guard_float, 1, 1},
    {"same_shape", guard_same_shape, 2, 2},
    {"rank", guard_rank, 2, 2},
    {"last_axis", guard_last_axis, 2, 2},
    {"weight", guard_weight, 1, 1},
    {"last_size", guard_last_size, 2, 2},
    {0},
};
