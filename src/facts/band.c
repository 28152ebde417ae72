/* Masks that follow from positions alone. Contract in band.h. */
#include "facts/band.h"
#include "facts/axes.h"
#include "facts/constant.h"
#include "facts/positions.h"
#include "facts/truth.h"
#include "facts/views.h"

enum { MAX_SEARCHED = 2000 };

Band band_within(const Graph *g, Expr *N, Expr *M, Expr *lower, Expr *upper)
{
    return (Band){g, N, M, lower, upper, MAX_SEARCHED};
}

void band_at_most(Band *b, Expr *upper) { b->upper = b->upper ? ex_min(b->g->ex, b->upper, upper) : upper; }
void band_at_least(Band *b, Expr *lower) { b->lower = b->lower ? ex_max(b->g->ex, b->lower, lower) : lower; }

static bool never_positive(Band *b, const Linear *l)
{
    int64_t lo, hi;
    for (int i = 0; i < MAX_RANK; i++)
        if (l->factor[i] > 0) return false;
    ex_range(b->g->ex, l->c, &lo, &hi);
    return hi <= 0;
}

/* l <= 0 as a band: l = j - i + c bounds above, l = i - j + c below. */
static bool not_positive(Band *b, const Linear *l)
{
    if (never_positive(b, l)) return true;
    for (int i = 2; i < MAX_RANK; i++)
        if (l->factor[i]) return false;
    if (l->factor[0] == 1 && l->factor[1] == -1) band_at_most(b, ex_neg(b->g->ex, l->c));
    else if (l->factor[0] == -1 && l->factor[1] == 1) band_at_least(b, l->c);
    else return false;
    return true;
}

/* Position of the element that v's first element is, along the last two axes of the tensor it is a part of;
 * and how many there are: a matrix with fewer is spread over them, and then no band. */
typedef struct Offset {
    Expr *row, *column, *rows, *columns;
} Offset;

static bool truth(Band *b, const Value *v, bool wanted, Offset at);

/* x <= y, x < y ... as a band where that equals `wanted`. */
static bool comparison(Band *b, const Arg *x, const Arg *y, bool strict, bool wanted)
{
    ExprPool *p = b->g->ex;
    const Node *n = x->kind == ARG_VALUE ? x->v->def : NULL;
    Linear l, m;
    if (n && n->op->id == OP_abs && wanted) { /* |d| <= w is d <= w and -d <= w */
        if (!linear_in_positions(b->g, &n->arg[0], &l, &b->budget) || !linear_in_positions(b->g, y, &m, &b->budget))
            return false;
        Linear back = l;
        if (!linear_plus(p, &l, &m, -1) || !linear_times(p, &back, -1) || !linear_plus(p, &back, &m, -1)) return false;
        if (strict) l.c = ex_add(p, l.c, ex_int(p, 1)), back.c = ex_add(p, back.c, ex_int(p, 1));
        return not_positive(b, &l) && not_positive(b, &back);
    }
    if (!linear_in_positions(b->g, x, &l, &b->budget) || !linear_in_positions(b->g, y, &m, &b->budget)) return false;
    if (wanted) { /* x - y (+ 1) <= 0 */
        if (!linear_plus(p, &l, &m, -1)) return false;
    } else { /* not x <= y: y - x + 1 <= 0; not x < y: y - x <= 0 */
        strict = !strict;
        if (!linear_plus(p, &m, &l, -1)) return false;
        l = m;
    }
    if (strict) l.c = ex_add(p, l.c, ex_int(p, 1));
    return l.c && not_positive(b, &l);
}

/* A constant matrix of 0 and 1 (leading axes of 1) that is a band around its diagonal. */
static bool constant_band(Band *b, const Value *v, bool wanted, Offset at)
{
    const Tensor *t = v->data;
    int r = v->rank;
    if (graph_writes(b->g, v) || !t || !t->data || r < 2 || dtype_is_complex(v->dtype) ||
        tensor_numel(t) != t->shape[r - 2] * t->shape[r - 1])
        return false;
    if ((b->budget -= (int)(tensor_numel(t) >> 12)) < 0) return false;
    int64_t N = t->shape[r - 2], M = t->shape[r - 1], lower = INT64_MIN, upper = INT64_MAX;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < N; i++)
            for (int64_t j = 0; j < M; j++) {
                double x = tensor_get(t, i * M + j);
                if (x != 0 && x != 1) return false;
                bool on = (x != 0) == wanted;
                if (pass && on != (j - i >= lower && j - i <= upper)) return false;
                if (pass || on) continue;
                if (j > i && j - i - 1 < upper)
                    upper = j - i - 1; /* what is off above the diagonal bounds it from above */
                if (j <= i && j - i + 1 > lower) lower = j - i + 1;
            }
    ExprPool *p = b->g->ex;
    Expr *shift = ex_sub(p, at.row, at.column); /* j' - i' = (j - i) of the whole + row - column */
    if (upper != INT64_MAX) band_at_most(b, ex_add(p, ex_int(p, upper), shift));
    if (lower != INT64_MIN) band_at_least(b, ex_add(p, ex_int(p, lower), shift));
    return true;
}

static bool all_ones(const Graph *g, const Value *v)
{
    double x;
    return constant_value(g, v, &x) && x == 1;
}

static bool triangle(Band *b, const Node *n, bool wanted, Offset at)
{
    ExprPool *p = b->g->ex;
    const Value *x = n->arg[0].v;
    Expr *d = ex_sub(p, ex_add(p, n->arg[1].e, at.row), at.column), *one = ex_int(p, 1);
    bool lower = n->op->id == OP_tril;
    if (!wanted && !all_ones(b->g, x)) return false;
    if (wanted && !truth(b, x, true, at)) return false;
    if (lower == wanted) band_at_most(b, lower ? d : ex_sub(p, d, one));
    else band_at_least(b, lower ? ex_add(p, d, one) : d);
    return true;
}

/* Is (v != 0) == wanted for each element? That no spreading changes: arange(N)[:, None] >= 0, as encoders without
 * padding have it. */
static bool everywhere(Band *b, const Value *v, bool wanted)
{
    Band all = band_within(b->g, b->N, b->M, NULL, NULL);
    Expr *zero = ex_int(b->g->ex, 0);
    all.budget = b->budget;
    bool is = truth(&all, v, wanted, (Offset){zero, zero, NULL, NULL});
    b->budget = all.budget;
    return is && !all.lower && !all.upper;
}

/* Is (v != 0) == wanted a band, exactly? Adds it. */
static bool truth(Band *b, const Value *v, bool wanted, Offset at)
{
    ExprPool *p = b->g->ex;
    if (--b->budget < 0) return false;
    bool whole = v->rank >= 2 && v->dim[v->rank - 2] == at.rows && v->dim[v->rank - 1] == at.columns;
    if (v->kind == V_WEIGHT) return whole && constant_band(b, v, wanted, at);
    if (!v->def) return false;
    const Node *n = v->def;
    const Arg *a = n->arg;
    double x;
    bool zero_at = ex_equals_int(at.row, 0) && ex_equals_int(at.column, 0);
    Truth part[2];
    int parts = truth_parts(v, wanted, part);
    if (parts) return truth(b, part[0].v, part[0].wanted, at) && (parts < 2 || truth(b, part[1].v, part[1].wanted, at));
    switch (n->op->id) {
    case OP_full: return constant_value(b->g, n->out[0], &x) && (x != 0) == wanted;
    case OP_to_copy: return zero_or_one(b->g, a[0].v) && truth(b, a[0].v, wanted, at);
    case OP_mul_Tensor: /* of 0 and 1: both */
        return wanted && zero_or_one(b->g, v) && a[0].kind == ARG_VALUE && a[1].kind == ARG_VALUE &&
               truth(b, a[0].v, true, at) && truth(b, a[1].v, true, at);
    case OP_eq_Tensor:
    case OP_ne_Tensor: /* against 0 or 1 */
        if (!constant_of(b->g, &a[1], &x) || (x != 0 && x != 1) || a[0].kind != ARG_VALUE || !zero_or_one(b->g, a[0].v))
            return false;
        return truth(b, a[0].v, wanted == ((n->op->id == OP_eq_Tensor) == (x == 1)), at);
    case OP_gt_Tensor:
    case OP_ge_Tensor: /* 0/1 tensors above 0 or 0.5 ...; else positions */
        if (a[0].kind == ARG_VALUE && zero_or_one(b->g, a[0].v) && constant_of(b->g, &a[1], &x) &&
            (n->op->id == OP_gt_Tensor ? x >= 0 && x < 1 : x > 0 && x <= 1))
            return truth(b, a[0].v, wanted, at);
        return zero_at && comparison(b, &a[1], &a[0], n->op->id == OP_gt_Tensor, wanted);
    case OP_lt_Tensor:
    case OP_le_Tensor: return zero_at && comparison(b, &a[0], &a[1], n->op->id == OP_lt_Tensor, wanted);
    case OP_tril:
    case OP_triu: return whole && triangle(b, n, wanted, at);
    case OP_expand:
        if (a[0].v->rank >= 2 && exprs_same(2, &v->dim[v->rank - 2], &a[0].v->dim[a[0].v->rank - 2]))
            return truth(b, a[0].v, wanted, at);
        return everywhere(b, a[0].v, wanted);
    case OP_reshape: { /* leading axes of 1 come and go */
        const Value *y = a[0].v;
        int r = y->rank < v->rank ? y->rank : v->rank;
        if (r < 2 || !exprs_same(r, &v->dim[v->rank - r], &y->dim[y->rank - r])) return false;
        for (int i = 0; i < y->rank - r; i++)
            if (!is_one(y->dim[i])) return false;
        return truth(b, y, wanted, at);
    }
    case OP_slice_Tensor: {
        if (!whole || !ex_is_int(a[1].e) || !(a[4].kind == ARG_EXPR && is_one(a[4].e))) return false;
        int64_t axis = a[1].e->i < 0 ? a[1].e->i + v->rank : a[1].e->i, lo = 0, hi = 0;
        at.rows = a[0].v->dim[v->rank - 2];
        at.columns = a[0].v->dim[v->rank - 1];
        if (a[2].kind == ARG_EXPR && axis >= v->rank - 2) {
            ex_range(p, a[2].e, &lo, &hi);
            if (lo < 0) return false; /* may count from the end */
            Expr **o = axis == v->rank - 1 ? &at.column : &at.row;
            if (!(*o = ex_add(p, *o, a[2].e))) return false;
        }
        return truth(b, a[0].v, wanted, at);
    }
    default: return false;
    }
}

bool band_of(Band *b, const Value *v, bool wanted)
{
    Band trial = *b;
    Expr *zero = ex_int(b->g->ex, 0);
    bool is = v->rank >= 2 && truth(&trial, v, wanted, (Offset){zero, zero, b->N, b->M});
    b->budget = trial.budget;
    if (is) *b = trial;
    return is;
}

/* Casts and leading axes that come and go leave queries and keys as they are. */
static bool keeps_matrix(const Node *n, const void *user)
{
    const Value *v = n->out[0], *x = n->arg[0].v;
    (void)user;
    return (n->op->id == OP_expand || n->op->id == OP_reshape || n->op->id == OP_to_copy) && x->rank >= 2 &&
           v->rank >= 2 && exprs_same(2, &v->dim[v->rank - 2], &x->dim[x->rank - 2]);
}

bool band_of_bias(Band *b, const Value *m)
{
    ExprPool *p = b->g->ex;
    double x, y;
    if (m->rank < 2) return false;
    m = value_below(m, keeps_matrix, NULL);
    const Node *n = m->def;
    if (n && (n->op->id == OP_triu || n->op->id == OP_tril)) { /* triu(full(-inf), 1): numbers above, 0 below */
        Arg inside = n->arg[0];
        if (!constant_of(b->g, &inside, &x) || !(x <= -1e4) || m->dim[m->rank - 2] != b->N ||
            m->dim[m->rank - 1] != b->M)
            return false;
        if (n->op->id == OP_triu) band_at_most(b, ex_sub(p, n->arg[1].e, ex_int(p, 1)));
        else band_at_least(b, ex_add(p, n->arg[1].e, ex_int(p, 1)));
        return true;
    }
    if (!n || n->op->id != OP_where_self || n->arg[0].kind != ARG_VALUE || !constant_of(b->g, &n->arg[1], &x) ||
        !constant_of(b->g, &n->arg[2], &y))
        return false;
    if (x == 0 && y <= -1e4) return band_of(b, n->arg[0].v, true);
    return y == 0 && x <= -1e4 && band_of(b, n->arg[0].v, false);
}
