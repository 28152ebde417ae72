/* Masks that follow from positions alone: "key j is allowed for query i when i + lower <= j <= i + upper" is proven from how the mask is
 * computed (arange and comparisons, tril, triu, constants whose elements are looked at), for all sizes at once.
 *
 *     and(le(arange(M), arange(N)[:, None]), padding[:, None, None, :])    =    upper = 0, and a mask of (B, 1, 1, M)
 */
#include "rewrite/attention/mask.h"
#include "facts/truth.h"
#include "facts/views.h"
#include <math.h>
#include <string.h>

/* MAX_SEARCHED: nodes that a question about a mask looks at; shared ones are met each time. Beyond it the answer is no. */
enum { MAX_DEPTH = 24, MAX_PARTS = 16, MAX_SEARCHED = 2000 };

/* ------------------------------------------------------------------ numbers that are linear in positions */

/* An integer tensor as c + sum of factor[a] * (index along axis a), axes counted from the last. */
typedef struct Linear {
    Expr *c;
    int64_t factor[MAX_RANK];
} Linear;

static bool linear(Rewrite *rw, const Arg *a, Linear *l);

static Expr *integer(Rewrite *rw, Expr *e)
{
    if (e->kind == EX_FLOAT && e->f == floor(e->f) && fabs(e->f) < 1e15) return ex_int(rw->ex, (int64_t)e->f);
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

static bool scaled(Rewrite *rw, Linear *l, int64_t by)
{
    l->c = ex_mul(rw->ex, l->c, ex_int(rw->ex, by));
    for (int i = 0; i < MAX_RANK; i++) l->factor[i] *= by;
    return l->c != NULL;
}

static bool plus(Rewrite *rw, Linear *l, const Linear *m, int64_t by)
{
    l->c = ex_add(rw->ex, l->c, ex_mul(rw->ex, m->c, ex_int(rw->ex, by)));
    for (int i = 0; i < MAX_RANK; i++) l->factor[i] += by * m->factor[i];
    return l->c != NULL;
}

static bool linear_op(Rewrite *rw, const Value *v, Linear *l)
{
    const Arg *a = v->def->arg;
    Linear m;
    int perm[MAX_RANK];
    switch (v->def->op->id) {
    case OP_arange_start_step:
        if (!(l->c = integer(rw, a[0].e)) || !ex_is_int(a[2].e)) return false;
        l->factor[0] = a[2].e->i;
        return true;
    case OP_full: return (l->c = integer(rw, a[1].e)) != NULL;
    case OP_to_copy: return linear(rw, &a[0], l);
    case OP_reshape: return linear(rw, &a[0], &m) && carry(v, a[0].v, &m, l);
    case OP_expand: return linear(rw, &a[0], l);
    case OP_permute:
        if (!linear(rw, &a[0], &m)) return false;
        permutation_of(v->def, perm);
        l->c = m.c;
        for (int i = 0; i < v->rank; i++) l->factor[v->rank - 1 - i] = m.factor[v->rank - 1 - perm[i]];
        return true;
    case OP_slice_Tensor: {
        if (!linear(rw, &a[0], l) || !ex_is_int(a[1].e) || !(a[4].kind == ARG_EXPR && is_one(a[4].e))) return false;
        int64_t axis = a[1].e->i < 0 ? a[1].e->i + v->rank : a[1].e->i;
        if (a[2].kind == ARG_EXPR)
            l->c = ex_add(rw->ex, l->c, ex_mul(rw->ex, ex_int(rw->ex, l->factor[v->rank - 1 - axis]), a[2].e));
        return l->c != NULL &&
               (a[2].kind != ARG_EXPR || l->factor[v->rank - 1 - axis] == 0 || (ex_is_int(a[2].e) && a[2].e->i >= 0));
    }
    case OP_neg: return linear(rw, &a[0], l) && scaled(rw, l, -1);
    case OP_add_Tensor:
    case OP_sub_Tensor:
        return ex_is_int(a[2].e) && linear(rw, &a[0], l) && linear(rw, &a[1], &m) &&
               plus(rw, l, &m, v->def->op->id == OP_add_Tensor ? a[2].e->i : -a[2].e->i);
    case OP_mul_Tensor:
        for (int i = 0; i < 2; i++) {
            Expr *by = number_of(rw->g, &a[i]);
            if (by && (by = integer(rw, by)) && ex_is_int(by)) return linear(rw, &a[1 - i], l) && scaled(rw, l, by->i);
        }
        return false;
    default: return false;
    }
}

static bool linear_node(Rewrite *rw, const Value *v, Linear *l)
{
    if (!linear_op(rw, v, l)) return false;
    for (int i = 0; i < v->rank; i++)
        if (is_one(v->dim[i])) l->factor[v->rank - 1 - i] = 0; /* the index there is 0, also when the axis is widened */
    return true;
}

static bool linear(Rewrite *rw, const Arg *a, Linear *l)
{
    *l = (Linear){.c = ex_int(rw->ex, 0)};
    if (--rw->budget < 0) return false;
    if (a->kind == ARG_VALUE && a->v->dtype != DT_I64 && a->v->dtype != DT_I32 && a->v->dtype != DT_F32 &&
        a->v->dtype != DT_F64)
        return false; /* positions wrap or round there */
    Expr *e = number_of(rw->g, a);
    if (e) return (l->c = integer(rw, e)) != NULL;
    return a->kind == ARG_VALUE && a->v->def && linear_node(rw, a->v, l);
}

/* ------------------------------------------------------------------ bands */

typedef struct Band {
    Rewrite *rw;
    Expr *N, *M;         /* queries and keys */
    Expr *lower, *upper; /* NULL: unbounded */
} Band;

static void at_most(Band *b, Expr *upper) { b->upper = b->upper ? ex_min(b->rw->ex, b->upper, upper) : upper; }
static void at_least(Band *b, Expr *lower) { b->lower = b->lower ? ex_max(b->rw->ex, b->lower, lower) : lower; }

static bool never_positive(Band *b, const Linear *l)
{
    int64_t lo, hi;
    for (int i = 0; i < MAX_RANK; i++)
        if (l->factor[i] > 0) return false;
    ex_range(b->rw->ex, l->c, &lo, &hi);
    return hi <= 0;
}

/* l <= 0 as a band: l = j - i + c bounds above, l = i - j + c below. */
static bool not_positive(Band *b, const Linear *l)
{
    if (never_positive(b, l)) return true;
    for (int i = 2; i < MAX_RANK; i++)
        if (l->factor[i]) return false;
    if (l->factor[0] == 1 && l->factor[1] == -1) at_most(b, ex_neg(b->rw->ex, l->c));
    else if (l->factor[0] == -1 && l->factor[1] == 1) at_least(b, l->c);
    else return false;
    return true;
}

/* Position of the element that v's first element is, along the last two axes of the tensor it is a part of; and how many there are: a
 * matrix with fewer is spread over them, and then no band. */
typedef struct Offset {
    Expr *row, *column, *rows, *columns;
} Offset;

static bool truth(Band *b, const Value *v, bool wanted, Offset at);

/* x <= y, x < y ... as a band where that equals `wanted`. */
static bool comparison(Band *b, const Arg *x, const Arg *y, bool strict, bool wanted)
{
    Rewrite *rw = b->rw;
    const Node *n = x->kind == ARG_VALUE ? x->v->def : NULL;
    Linear l, m;
    if (n && n->op->id == OP_abs && wanted) { /* |d| <= w is d <= w and -d <= w */
        if (!linear(rw, &n->arg[0], &l) || !linear(rw, y, &m)) return false;
        Linear back = l;
        if (!plus(rw, &l, &m, -1) || !scaled(rw, &back, -1) || !plus(rw, &back, &m, -1)) return false;
        if (strict) l.c = ex_add(rw->ex, l.c, ex_int(rw->ex, 1)), back.c = ex_add(rw->ex, back.c, ex_int(rw->ex, 1));
        return not_positive(b, &l) && not_positive(b, &back);
    }
    if (!linear(rw, x, &l) || !linear(rw, y, &m)) return false;
    if (wanted) { /* x - y (+ 1) <= 0 */
        if (!plus(rw, &l, &m, -1)) return false;
    } else { /* not x <= y: y - x + 1 <= 0; not x < y: y - x <= 0 */
        strict = !strict;
        if (!plus(rw, &m, &l, -1)) return false;
        l = m;
    }
    if (strict) l.c = ex_add(rw->ex, l.c, ex_int(rw->ex, 1));
    return l.c && not_positive(b, &l);
}

/* A constant matrix of 0 and 1 (leading axes of 1) that is a band around its diagonal. */
static bool constant_band(Band *b, const Value *v, bool wanted, Offset at)
{
    const Tensor *t = v->data;
    int r = v->rank;
    if (graph_writes(b->rw->g, v) || !t || !t->data || r < 2 || dtype_is_complex(v->dtype) ||
        tensor_numel(t) != t->shape[r - 2] * t->shape[r - 1])
        return false;
    if ((b->rw->budget -= (int)(tensor_numel(t) >> 12)) < 0) return false;
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
    Rewrite *rw = b->rw;
    Expr *shift = ex_sub(rw->ex, at.row, at.column); /* j' - i' = (j - i) of the whole + row - column */
    if (upper != INT64_MAX) at_most(b, ex_add(rw->ex, ex_int(rw->ex, upper), shift));
    if (lower != INT64_MIN) at_least(b, ex_add(rw->ex, ex_int(rw->ex, lower), shift));
    return true;
}

static bool all_ones(Rewrite *rw, const Value *v)
{
    double x;
    return constant_value(rw->g, v, &x) && x == 1;
}

static bool triangle(Band *b, const Node *n, bool wanted, Offset at)
{
    Rewrite *rw = b->rw;
    const Value *x = n->arg[0].v;
    Expr *d = ex_sub(rw->ex, ex_add(rw->ex, n->arg[1].e, at.row), at.column), *one = ex_int(rw->ex, 1);
    bool lower = n->op->id == OP_tril;
    if (!wanted && !all_ones(rw, x)) return false;
    if (wanted && !truth(b, x, true, at)) return false;
    if (lower == wanted) at_most(b, lower ? d : ex_sub(rw->ex, d, one));
    else at_least(b, lower ? ex_add(rw->ex, d, one) : d);
    return true;
}

/* Is (v != 0) == wanted a band, exactly? Adds it. */
static bool truth(Band *b, const Value *v, bool wanted, Offset at)
{
    Rewrite *rw = b->rw;
    if (--rw->budget < 0) return false;
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
    case OP_full: return constant_value(rw->g, n->out[0], &x) && (x != 0) == wanted;
    case OP_to_copy: return zero_or_one(rw->g, a[0].v) && truth(b, a[0].v, wanted, at);
    case OP_mul_Tensor: /* of 0 and 1: both */
        return wanted && zero_or_one(rw->g, v) && a[0].kind == ARG_VALUE && a[1].kind == ARG_VALUE &&
               truth(b, a[0].v, true, at) && truth(b, a[1].v, true, at);
    case OP_eq_Tensor:
    case OP_ne_Tensor: /* against 0 or 1 */
        if (!constant_of(rw->g, &a[1], &x) || (x != 0 && x != 1) || a[0].kind != ARG_VALUE ||
            !zero_or_one(rw->g, a[0].v))
            return false;
        return truth(b, a[0].v, wanted == ((n->op->id == OP_eq_Tensor) == (x == 1)), at);
    case OP_gt_Tensor:
    case OP_ge_Tensor: /* 0/1 tensors above 0 or 0.5 ...; else positions */
        if (a[0].kind == ARG_VALUE && zero_or_one(rw->g, a[0].v) && constant_of(rw->g, &a[1], &x) &&
            (n->op->id == OP_gt_Tensor ? x >= 0 && x < 1 : x > 0 && x <= 1))
            return truth(b, a[0].v, wanted, at);
        return zero_at && comparison(b, &a[1], &a[0], n->op->id == OP_gt_Tensor, wanted);
    case OP_lt_Tensor:
    case OP_le_Tensor: return zero_at && comparison(b, &a[0], &a[1], n->op->id == OP_lt_Tensor, wanted);
    case OP_tril:
    case OP_triu: return whole && triangle(b, n, wanted, at);
    case OP_expand:
        return a[0].v->rank >= 2 && exprs_same(2, &v->dim[v->rank - 2], &a[0].v->dim[a[0].v->rank - 2]) &&
               truth(b, a[0].v, wanted, at);
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
            ex_range(rw->ex, a[2].e, &lo, &hi);
            if (lo < 0) return false; /* may count from the end */
            Expr **o = axis == v->rank - 1 ? &at.column : &at.row;
            if (!(*o = ex_add(rw->ex, *o, a[2].e))) return false;
        }
        return truth(b, a[0].v, wanted, at);
    }
    default: return false;
    }
}

static bool is_band(Band *b, const Value *v, bool wanted)
{
    Band trial = *b;
    Expr *zero = ex_int(b->rw->ex, 0);
    if (v->rank < 2 || !truth(&trial, v, wanted, (Offset){zero, zero, b->N, b->M})) return false;
    *b = trial;
    return true;
}

/* ------------------------------------------------------------------ masks */

typedef struct Parts {
    Band band;
    Value *rest[MAX_PARTS]; /* bool masks that hold beside the band */
    int n;
} Parts;

/* A bool mask taken apart at its conjunctions. */
static bool take_apart(Parts *p, Value *v, int depth)
{
    Truth part[2];
    if (is_band(&p->band, v, true)) return true;
    if (depth < MAX_DEPTH && truth_parts(v, true, part) == 2 && part[0].v->dtype == DT_BOOL &&
        part[1].v->dtype == DT_BOOL)
        return take_apart(p, part[0].v, depth + 1) && take_apart(p, part[1].v, depth + 1);
    if (p->n == MAX_PARTS) return false;
    p->rest[p->n++] = v;
    return true;
}

/* Could a row of the band alone allow no key? Every query sees its own position if that is a key. */
static bool may_be_dead(Rewrite *rw, const Band *b, Expr *N, Expr *M)
{
    int64_t lo, hi;
    if (b->upper) {
        ex_range(rw->ex, b->upper, &lo, &hi);
        if (lo < 0) return true;
    }
    if (!b->lower) return false;
    ex_range(rw->ex, b->lower, &lo, &hi);
    if (hi > 0) return true;
    ex_range(rw->ex, ex_sub(rw->ex, N, M), &lo, &hi);
    return N != M && hi > 0;
}

/* Casts and leading axes that come and go leave queries and keys as they are. */
static bool keeps_matrix(const Node *n, const void *user)
{
    const Value *v = n->out[0], *x = n->arg[0].v;
    (void)user;
    return (n->op->id == OP_expand || n->op->id == OP_reshape || n->op->id == OP_to_copy) && x->rank >= 2 &&
           v->rank >= 2 && exprs_same(2, &v->dim[v->rank - 2], &x->dim[x->rank - 2]);
}

/* An additive mask that is 0 where a band allows and hides elsewhere. */
static bool additive_band(Rewrite *rw, Band *b, Value *m)
{
    double x, y;
    m = value_below(m, keeps_matrix, NULL);
    const Node *n = m->def;
    if (n && (n->op->id == OP_triu || n->op->id == OP_tril)) { /* triu(full(-inf), 1): numbers above, 0 below */
        Arg inside = n->arg[0];
        if (!constant_of(rw->g, &inside, &x) || !(x <= -1e4) || m->dim[m->rank - 2] != b->N ||
            m->dim[m->rank - 1] != b->M)
            return false;
        if (n->op->id == OP_triu) at_most(b, ex_sub(rw->ex, n->arg[1].e, ex_int(rw->ex, 1)));
        else at_least(b, ex_add(rw->ex, n->arg[1].e, ex_int(rw->ex, 1)));
        return true;
    }
    if (!n || n->op->id != OP_where_self || n->arg[0].kind != ARG_VALUE || !constant_of(rw->g, &n->arg[1], &x) ||
        !constant_of(rw->g, &n->arg[2], &y))
        return false;
    if (x == 0 && y <= -1e4) return is_band(b, n->arg[0].v, true);
    return y == 0 && x <= -1e4 && is_band(b, n->arg[0].v, false);
}

bool mask_band(Rewrite *rw, const Value *v, bool wanted, Expr *N, Expr *M, Expr **lower, Expr **upper)
{
    Band b = {rw, N, M, *lower, *upper};
    rw->budget = MAX_SEARCHED;
    TRY(is_band(&b, v, wanted));
    *lower = b.lower;
    *upper = b.upper;
    return true;
}

bool mask_additive_band(Rewrite *rw, Value *v, Expr *N, Expr *M, Expr **lower, Expr **upper)
{
    Band b = {rw, N, M, *lower, *upper};
    rw->budget = MAX_SEARCHED;
    TRY(v->rank >= 2 && additive_band(rw, &b, v));
    *lower = b.lower;
    *upper = b.upper;
    return true;
}

bool make_banded(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    const Node *y = n == 1 && a[0].kind == ARG_VALUE ? a[0].v->def : NULL;
    if (!y || y->op->id != OP_scaled_dot_product_attention || y->arg[3].kind != ARG_VALUE)
        return rewrite_refuse(rw, "there is no mask");
    Value *mask = y->arg[3].v;
    Expr *N = y->arg[0].v->dim[2], *M = y->arg[1].v->dim[2];
    Parts p = {.band = {.rw = rw, .N = N, .M = M}};
    if (mask->rank < 2) return rewrite_refuse(rw, "the mask is the same for all queries");
    rw->budget = MAX_SEARCHED;
    if (mask->dtype == DT_BOOL) TRY(take_apart(&p, mask, 0));
    else if (!additive_band(rw, &p.band, mask) || may_be_dead(rw, &p.band, N, M))
        return rewrite_refuse(rw, "the mask is not a band whose every row allows a key");
    if (!p.band.lower && !p.band.upper) {
        if (p.n == 1 && p.rest[0] == mask)
            return rewrite_refuse(rw, "no part of the mask is a band around the diagonal");
    }
    Value *rest = p.n ? p.rest[0] : NULL;
    for (int i = 1; i < p.n; i++) rest = RW(rw, logical_and, arg_value(rest), arg_value(p.rest[i]));
    if (p.n && !rest) return false;
    Arg arg[16];
    memcpy(arg, y->arg, (size_t)y->op->schema->nparams * sizeof *arg);
    if (arg[9].kind == ARG_EXPR) at_least(&p.band, arg[9].e);
    if (arg[10].kind == ARG_EXPR) at_most(&p.band, arg[10].e);
    if (arg[5].e->i) at_most(&p.band, ex_int(rw->ex, 0));
    bool causal = p.band.upper && ex_equals_int(p.band.upper, 0);
    arg[3] = arg_value(rest);
    arg[5] = arg_bool(rw->g, causal);
    arg[9] = p.band.lower ? arg_expr(p.band.lower) : arg_none();
    arg[10] = p.band.upper && !causal ? arg_expr(p.band.upper) : arg_none();
    Value *v = rw_add(rw, y->op->id, y->op->schema->nparams, arg);
    *out = arg_value(v);
    return v != NULL;
}
