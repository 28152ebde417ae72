/* The attention rules' graft functions: how a scores form takes up what is done to it. Contract in makers.h.
 *
 * Formula of the result: Vaswani et al. 2017, eq. 1, with torch.nn.functional.scaled_dot_product_attention's masks;
 * softcap as Gemma 2's.
 */
#include "rewrite/attention/scores.h"
#include <math.h>
#include <string.h>
#include "base/elementary.h"
#include "facts/range.h"

/* What replaces a masked score must be so far below all others that its exponential vanishes: how far is a matter of
 * belief for a finite one. -10000 is the highest that models use; divided by sqrt(d) afterwards it must still be
 * below FILL_SCALED, and a large scale says that scores are large. A number that is added to all scores (softmax does
 * not see it) must not come near. */
enum { FILL_LIMIT = -10000, FILL_SCALED = -1000, FILL_PER_SCALE = 1000, SHIFT_LIMIT = 500 };
/* A finite fill becomes an additive mask that swallows any score, in float32 at least,
 * so that a row without an allowed key stays an average. */
static const double FILL_SWALLOWS = -5e8, FILL_LOW = -1e30, FILL_LOWEST = -3e38, FILL_ABOVE = -1e15,
                    FILL_LIFTED = 0.1;

bool scores_of(Rewrite *rw, const Arg *a, Scores *s)
{
    const Value *v = a->kind == ARG_VALUE ? rewrite_form(rw, a->v, OP_scores) : NULL;
    if (!v) return rewrite_refuse(rw, "no product of queries and keys");
    const Arg *p = v->def->arg;
    *s = (Scores){p[0].v,
                  p[1].v,
                  p[2].kind == ARG_VALUE ? p[2].v : NULL,
                  p[3],
                  p[4],
                  p[5].e->i != 0,
                  (int)p[6].e->i,
                  v->dtype,
                  ex_number(p[8].e),
                  v};
    return true;
}

/* A mask with axes that queries and keys have once, or not at all, makes more scores of them. */
static bool widen(Rewrite *rw, Value **q, Value **k, Value *mask)
{
    Expr *qd[MAX_RANK], *kd[MAX_RANK];
    int r = mask->rank;
    if ((*q)->rank > r) r = (*q)->rank;
    if ((*k)->rank > r) r = (*k)->rank;
    Value *x = rw_pad_rank(rw, *q, r), *y = rw_pad_rank(rw, *k, r);
    TRY(x && y);
    memcpy(qd, x->dim, (size_t)x->rank * sizeof *qd);
    memcpy(kd, y->dim, (size_t)y->rank * sizeof *kd);
    for (int i = r - mask->rank; i < r; i++) {
        Expr *m = mask->dim[i - (r - mask->rank)];
        if (is_one(m)) continue;
        if (i < r - 2 ? is_one(x->dim[i]) && is_one(y->dim[i]) : i == r - 2 && is_one(x->dim[i])) qd[i] = m;
        if (i == r - 1 && is_one(y->dim[r - 2])) kd[r - 2] = m;
    }
    bool higher = mask->rank > (*q)->rank, more_q = higher || !exprs_same(r, qd, x->dim),
         more_k = higher || !exprs_same(r, kd, y->dim);
    if ((more_q || more_k) && scores_seen(rw, mask))
        return rewrite_refuse(rw, "what is added is the wider product of queries and keys");
    if (more_q) TRY(*q = rw_expand(rw, x, r, qd));
    if (more_k) TRY(*k = rw_expand(rw, y, r, kd));
    return true;
}

bool scores_give(Rewrite *rw, const Scores *s, Arg *out)
{
    Value *q = s->q, *k = s->k;
    if (!q || !k || (s->mask && !widen(rw, &q, &k, s->mask))) return false;
    Value *v = RW(rw, scores, arg_value(q), arg_value(k), arg_value(s->mask), s->scale, s->softcap,
                  arg_bool(rw->g, s->normalized), arg_int(rw->g, s->masked_rows), arg_dtype(s->dtype),
                  arg_float(rw->g, s->fill));
    *out = arg_value(v);
    return v != NULL;
}

bool scores_capped(const Scores *s) { return !(ex_is_const(s->softcap.e) && ex_number(s->softcap.e) == 0); }

bool scores_before_softmax(Rewrite *rw, const Scores *s)
{
    return !s->normalized || rewrite_refuse(rw, "it comes after the softmax");
}

/* Do finite fills still vanish? */
static bool fill_holds(Rewrite *rw, const Scores *s)
{
    double scale = ex_is_const(s->scale.e) ? fabs(ex_number(s->scale.e)) : 1;
    if (s->fill == 0 || (s->fill <= FILL_SCALED && -s->fill >= FILL_PER_SCALE * scale)) return true;
    return rewrite_refuse(rw, "masked scores are %g where scores are products times %g: not surely below all of them",
                          s->fill, scale);
}

/* Its expression is NULL when it would be too large. */
static Arg times(Rewrite *rw, Arg a, Expr *b, bool divide)
{
    if (ex_is_const(a.e) && ex_is_const(b)) {
        double x = ex_number(a.e), y = ex_number(b);
        return arg_float(rw->g, divide ? x / y : x * y);
    }
    return arg_expr(divide ? ex_make(rw->ex, EX_TRUEDIV, a.e, b, NULL) : ex_mul(rw->ex, a.e, b));
}

/* ------------------------------------------------------------------ the product */

Value *without_scale(Rewrite *rw, Value *v, Arg *scale, int depth)
{
    const Node *n = v->def;
    if (!n || depth > 8) return v;
    const Arg *a = n->arg;
    Value *x, *y;
    switch (n->op->id) {
    case OP_mul_Tensor:
    case OP_div_Tensor:
        for (int side = 0; side < (n->op->id == OP_mul_Tensor ? 2 : 1); side++) {
            Expr *c = number_of(rw->g, &a[1 - side]);
            if (!c || a[side].kind != ARG_VALUE || a[side].v->rank != v->rank ||
                !exprs_same(v->rank, a[side].v->dim, v->dim) || a[side].v->dtype != v->dtype)
                continue;
            if (ex_is_const(c) && !(fabs(ex_number(c)) > 0)) continue;
            Arg product = times(rw, *scale, c, n->op->id == OP_div_Tensor);
            if (!product.e) return v;
            *scale = product;
            return without_scale(rw, a[side].v, scale, depth + 1);
        }
        return v;
    case OP_reshape:
    case OP_permute:
    case OP_expand:
        x = a[0].v;
        y = without_scale(rw, x, scale, depth + 1);
        return x == y ? v : rw_view_again(rw, n, y);
    default: return v;
    }
}

bool make_scores(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    if (a[0].kind != ARG_VALUE || a[1].kind != ARG_VALUE || a[0].v->rank < 2 || a[1].v->rank < 2 ||
        !dtype_is_float(a[0].v->dtype))
        return false;
    int rank = a[0].v->rank > a[1].v->rank ? a[0].v->rank : a[1].v->rank;
    Scores s = {.scale = arg_float(rw->g, 1), .softcap = arg_float(rw->g, 0), .dtype = a[0].v->dtype};
    s.q = without_scale(rw, rw_pad_rank(rw, a[0].v, rank), &s.scale, 0);
    s.k = s.q ? rw_swap_last(rw, rw_pad_rank(rw, a[1].v, rank)) : NULL;
    if (s.k) s.k = without_scale(rw, s.k, &s.scale, 0);
    return scores_give(rw, &s, out);
}

/* ------------------------------------------------------------------ scale and softcap */

/* A factor that varies along one of queries, keys (and batch, heads) goes to that operand;
 * one that is a product of such, to both. */
static bool scale_operand(Rewrite *rw, Scores *s, Value *c, bool divide)
{
    int r = s->v->rank;
    const Node *n = c->def;
    if (n && n->op->id == OP_mul_Tensor && n->arg[0].kind == ARG_VALUE && n->arg[1].kind == ARG_VALUE && c->rank == r &&
        !is_one(c->dim[r - 1]) && !is_one(c->dim[r - 2]))
        return scale_operand(rw, s, n->arg[0].v, divide) && scale_operand(rw, s, n->arg[1].v, divide);
    if (s->mask && (s->mask->dtype == DT_BOOL || s->fill != 0))
        return rewrite_refuse(rw, "a mask was put in before the factor '%s', which is not a number", c->name);
    if (scores_capped(s)) return rewrite_refuse(rw, "a factor that is not a number after the softcap");
    if (c->rank > r) return rewrite_refuse(rw, "the factor '%s' has more axes than the scores", c->name);
    if (s->mask) TRY(s->mask = rw_binary(rw, divide ? OP_div_Tensor : OP_mul_Tensor, s->mask, arg_value(c)));
    c = rw_cast(rw, rw_pad_rank(rw, c, r), s->q->dtype);
    TRY(c);
    OpId op = divide ? OP_div_Tensor : OP_mul_Tensor;
    if (is_one(c->dim[r - 1])) s->q = rw_binary(rw, op, rw_pad_rank(rw, s->q, r), arg_value(c));
    else if (is_one(c->dim[r - 2])) s->k = rw_binary(rw, op, rw_pad_rank(rw, s->k, r), arg_value(rw_swap_last(rw, c)));
    else return rewrite_refuse(rw, "the factor '%s' varies along queries and keys", c->name);
    return s->q && s->k;
}

static bool scale_by(Rewrite *rw, const Arg *a, bool divide, Arg *out)
{
    Scores s = {0};
    TRY(scores_of(rw, &a[0], &s) && scores_before_softmax(rw, &s));
    Expr *c = number_of(rw->g, &a[1]);
    if (!c) return a[1].kind == ARG_VALUE && scale_operand(rw, &s, a[1].v, divide) && scores_give(rw, &s, out);
    if (scores_capped(&s) && !ex_is_const(c))
        return rewrite_refuse(rw, "a factor that depends on sizes after the softcap");
    if (ex_is_const(c) && (!(fabs(ex_number(c)) > 0) || isinf(ex_number(c))))
        return rewrite_refuse(rw, "the factor is %g", ex_number(c));
    if (s.mask && !(ex_is_const(c) && ex_number(c) > 0))
        return rewrite_refuse(rw, "a mask is multiplied by a factor that is not known to be positive");
    if (s.mask && s.mask->dtype != DT_BOOL)
        s.mask = rw_binary(rw, divide ? OP_div_Tensor : OP_mul_Tensor, s.mask, arg_expr(c));
    s.scale = times(rw, s.scale, c, divide);
    if (s.fill != 0) s.fill = divide ? s.fill / ex_number(c) : s.fill * ex_number(c);
    if (!s.scale.e) return rewrite_refuse(rw, "the scale is too large an expression");
    TRY(fill_holds(rw, &s));
    if (scores_capped(&s))
        s.softcap = times(rw, s.softcap, ex_float(rw->ex, fabs(ex_number(c))),
                          divide); /* -f tanh(s / f) = f tanh(-s / f) */
    return scores_give(rw, &s, out);
}

bool make_scores_mul(Rewrite *rw, int n, const Arg *a, Arg *out) { return n == 2 && scale_by(rw, a, false, out); }
bool make_scores_div(Rewrite *rw, int n, const Arg *a, Arg *out) { return n == 2 && scale_by(rw, a, true, out); }

/* tanh(s) is a softcap of 1; a factor after it scales both. */
bool make_scores_tanh(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Scores s = {0};
    (void)n;
    TRY(scores_of(rw, &a[0], &s) && scores_before_softmax(rw, &s));
    if (s.mask || scores_capped(&s)) return rewrite_refuse(rw, "tanh comes after a mask or another tanh");
    s.softcap = arg_float(rw->g, 1);
    return scores_give(rw, &s, out);
}

/* ------------------------------------------------------------------ masks */

Value *scores_number(Rewrite *rw, double x, DType t)
{
    return RW(rw, full, arg_exprs(rw->g, 0, NULL), arg_float(rw->g, x), arg_dtype(t));
}

/* Where both allow, and the sum of what both add. */
static Value *both_masks(Rewrite *rw, Value *a, Value *b)
{
    if (!a || !b) return a ? a : b;
    if (a->dtype == DT_BOOL && b->dtype == DT_BOOL) return RW(rw, logical_and, arg_value(a), arg_value(b));
    if (a->dtype != DT_BOOL && b->dtype != DT_BOOL) {
        DType t = dtype_size(a->dtype) >= dtype_size(b->dtype) ? a->dtype : b->dtype;
        return RW(rw, add_Tensor, arg_value(rw_cast(rw, a, t)), arg_value(rw_cast(rw, b, t)));
    }
    Value *allow = a->dtype == DT_BOOL ? a : b, *add = a->dtype == DT_BOOL ? b : a;
    return RW(rw, where_self, arg_value(allow), arg_value(add), arg_value(scores_number(rw, -INFINITY, add->dtype)));
}

static bool add_mask(Rewrite *rw, const Arg *a, bool subtract, Arg *out)
{
    Scores s = {0};
    TRY(scores_of(rw, &a[0], &s) && scores_before_softmax(rw, &s));
    Expr *c = number_of(rw->g, &a[1]);
    if (c && ex_is_const(c) && ex_number(c) == 0) return scores_give(rw, &s, out);
    Value *m = c                        ? RW(rw, full, arg_exprs(rw->g, 0, NULL), arg_expr(c), arg_dtype(s.dtype))
               : a[1].kind == ARG_VALUE ? a[1].v
                                        : NULL;
    TRY(m);
    if (c && !(ex_is_const(c) && fabs(ex_number(c)) <= SHIFT_LIMIT))
        return rewrite_refuse(rw, "a number that is not small is added to all scores");
    if (!c && s.masked_rows == 4) s.masked_rows = 2;
    if (!dtype_is_float(m->dtype)) return rewrite_refuse(rw, "what is added is %s", dtype_name(m->dtype));
    if (subtract) TRY(m = RW(rw, neg, arg_value(m)));
    if (s.fill != 0 && !(largest_of(rw->g, m) <= -s.fill * FILL_LIFTED))
        return rewrite_refuse(rw, "what is added to masked scores of %g may lift them again", s.fill);
    s.mask = both_masks(rw, s.mask, m);
    return s.mask && scores_give(rw, &s, out);
}

bool make_scores_add(Rewrite *rw, int n, const Arg *a, Arg *out) { return n == 2 && add_mask(rw, a, false, out); }
bool make_scores_sub(Rewrite *rw, int n, const Arg *a, Arg *out) { return n == 2 && add_mask(rw, a, true, out); }

static Value *inverted(Rewrite *rw, Value *c)
{
    bool negation = c->def && (c->def->op->id == OP_logical_not || c->def->op->id == OP_bitwise_not);
    if (negation && c->def->arg[0].kind == ARG_VALUE && c->def->arg[0].v->dtype == DT_BOOL) return c->def->arg[0].v;
    return RW(rw, logical_not, arg_value(c));
}

/* Probabilities that become 0 where their scores were masked by the same condition: nothing but rows without an
 * allowed key changes, which give 0 then as sdpa's do; NaN stays NaN when they are multiplied by 0, and where another
 * mask hid the rest of the row. */
static bool zero_where_masked(Rewrite *rw, Scores *s, Value *allow, double fill, bool times, Arg *out)
{
    const Node *m = s->mask ? s->mask->def : NULL;
    double kept;
    if (fill != 0) return rewrite_refuse(rw, "it comes after the softmax");
    if (s->mask == allow) {
        if (!times) s->masked_rows = 0;
        return scores_give(rw, s, out);
    }
    if (!m || m->op->id != OP_where_self || m->arg[0].v != allow)
        return rewrite_refuse(rw, "it comes after the softmax, with another condition than the scores' mask");
    if (m->arg[1].kind != ARG_VALUE) return false;
    bool alone = constant_of(rw->g, &m->arg[1], &kept) && kept == 0;
    s->mask = alone ? allow
                    : RW(rw, where_self, arg_value(allow), m->arg[1],
                         arg_value(scores_number(rw, -INFINITY, s->mask->dtype)));
    s->masked_rows = alone                                                        ? 0
                     : s->masked_rows == 1                                        ? 1
                     : s->masked_rows == 2 || s->masked_rows == 4 || s->fill != 0 ? 2
                                                                                  : 3;
    return s->mask && scores_give(rw, s, out);
}

/* What an additive mask has where scores become `fill`, after those that became `earlier` (0: none did): low enough to
 * swallow every score, but on the side of the other that it is in the source. There a row without an allowed key takes
 * the keys of the higher one: the query itself, where that is masked by -1e5 and padding by -1e9. */
static double fill_in_mask(double earlier, double fill)
{
    double other = earlier > FILL_SWALLOWS ? FILL_LOW : earlier;
    if (earlier != 0 && fill < earlier) return fill < other ? fill : FILL_LOWEST;
    if (earlier != 0 && fill > earlier && fill > FILL_SWALLOWS) return FILL_ABOVE;
    return fill > FILL_SWALLOWS ? FILL_LOW : fill;
}

/* The mask that there was, with room for FILL_ABOVE above what it fills with. */
static Value *below_others(Rewrite *rw, Value *kept, double earlier)
{
    if (!kept || earlier > FILL_SWALLOWS || earlier < FILL_ABOVE) return kept;
    Value *filled = RW(rw, eq_Tensor, arg_value(kept), arg_float(rw->g, earlier)),
          *low = scores_number(rw, FILL_LOW, kept->dtype);
    return filled && low ? RW(rw, where_self, arg_value(filled), arg_value(low), arg_value(kept)) : NULL;
}

/* Scores that become a finite number where they are not allowed: the same one for all keys of a row that allows none,
 * so that they share the row. */
static bool fill_scores(Rewrite *rw, Scores *s, Value *allow, double fill, Arg *out)
{
    double earlier = s->fill, in_mask = fill_in_mask(earlier, fill);
    s->fill = s->fill == 0 || fill > s->fill ? fill : s->fill;
    TRY(fill_holds(rw, s));
    if (!s->masked_rows && fill > FILL_SWALLOWS) s->masked_rows = s->mask && s->mask->dtype != DT_BOOL ? 2 : 4;
    DType t = s->dtype == DT_F16 ? DT_F32 : s->dtype;
    Value *low = scores_number(rw, in_mask, t), *zero = scores_number(rw, 0, t);
    Value *kept = s->mask && s->mask->dtype == DT_BOOL ? both_masks(rw, s->mask, zero)
                  : s->mask                            ? rw_cast(rw, s->mask, t)
                                                       : zero;
    if (in_mask == FILL_ABOVE) kept = below_others(rw, kept, earlier);
    s->mask = kept && low ? RW(rw, where_self, arg_value(allow), arg_value(kept), arg_value(low)) : NULL;
    return s->mask && scores_give(rw, s, out);
}

/* Scores, or probabilities, that become `fill` where they are not allowed. */
static bool select_scores(Rewrite *rw, const Arg *scores, Value *allow, const Arg *number, bool times, Arg *out)
{
    Scores s = {0};
    double fill;
    TRY(scores_of(rw, scores, &s));
    if (!constant_of(rw->g, number, &fill))
        return rewrite_refuse(rw, "what masked scores become is not a known number");
    if (s.normalized) return zero_where_masked(rw, &s, allow, fill, times, out);
    if (!(fill <= FILL_LIMIT))
        return rewrite_refuse(
            rw, "masked scores become %g, which keeps them in the softmax; only -inf or a number of at most %d masks",
            fill, FILL_LIMIT);
    if (isinf(fill)) {
        s.mask = both_masks(rw, s.mask, allow);
        s.masked_rows = 1;
        return s.mask && scores_give(rw, &s, out);
    }
    return fill_scores(rw, &s, allow, fill, out);
}

bool make_scores_where(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    if (a[1].kind != ARG_VALUE || a[1].v->dtype != DT_BOOL)
        return rewrite_refuse(rw, "the condition is not a bool tensor");
    Value *allow = a[3].e->i ? a[1].v : inverted(rw, a[1].v);
    return allow && select_scores(rw, &a[0], allow, &a[2], false, out);
}

/* scores * m - c * (1 - m) with m of zeros and ones: a condition. */
bool make_scores_zero_one(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    if (a[1].kind != ARG_VALUE) return false;
    Value *m = a[1].v, *keep = m->def && m->def->op->id == OP_to_copy && m->def->arg[0].v->dtype == DT_BOOL
                                   ? m->def->arg[0].v
                                   : RW(rw, ne_Tensor, arg_value(m), arg_int(rw->g, 0));
    return keep && select_scores(rw, &a[0], keep, &a[2], true, out);
}

/* scores that are written at indices: those become a mask of the axes from the first that is indexed on. */
bool make_scores_index_put(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    int first = 0;
    if (a[0].kind != ARG_VALUE || a[1].kind != ARG_VALUES) return rewrite_refuse(rw, "not a list of indices");
    const Value *s = a[0].v;
    while (first < a[1].n && !a[1].vs[first]) first++;
    if (first == a[1].n) return rewrite_refuse(rw, "nothing is indexed");
    Value *all = RW(rw, full, arg_exprs(rw->g, s->rank - first, s->dim + first), arg_bool(rw->g, true),
                    arg_dtype(DT_BOOL)),
          *no = RW(rw, full, arg_exprs(rw->g, 0, NULL), arg_bool(rw->g, false), arg_dtype(DT_BOOL));
    Value *allow = all && no ? RW(rw, index_put, arg_value(all), arg_values(rw->g, a[1].n - first, a[1].vs + first),
                                  arg_value(no), arg_bool(rw->g, false))
                             : NULL;
    return allow && select_scores(rw, &a[0], allow, &a[2], false, out);
}

/* A triangle of trues, or what it leaves out. */
static Value *triangle(Rewrite *rw, const Value *like, Expr *diagonal, bool lower)
{
    if (like->rank < 2) return rewrite_refuse(rw, "a triangle of one axis"), NULL;
    Value *all = RW(rw, full, arg_exprs(rw->g, 2, like->dim + like->rank - 2), arg_bool(rw->g, true),
                    arg_dtype(DT_BOOL));
    if (!all) return NULL;
    return lower ? RW(rw, tril, arg_value(all), arg_expr(diagonal)) : RW(rw, triu, arg_value(all), arg_expr(diagonal));
}

bool make_tril_of(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    Value *v = triangle(rw, a[0].v, a[1].e, true);
    *out = arg_value(v);
    return v != NULL;
}

/* scores whose diagonal is written: a mask of what is below it and above it. */
bool make_scores_diagonal(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    const Value *s = a[0].v;
    const Arg *p = a[1].v->def->arg;
    int r = s->rank;
    int64_t offset = p[2].e->i, d1 = p[3].e->i, d2 = p[4].e->i;
    d1 += d1 < 0 ? r : 0;
    d2 += d2 < 0 ? r : 0;
    if (d1 == r - 1 && d2 == r - 2) offset = -offset;
    else if (d1 != r - 2 || d2 != r - 1) return rewrite_refuse(rw, "not a diagonal of queries and keys");
    Value *below = triangle(rw, s, ex_int(rw->ex, offset - 1), true),
          *above = triangle(rw, s, ex_int(rw->ex, offset + 1), false);
    Value *allow = below && above ? RW(rw, logical_or, arg_value(below), arg_value(above)) : NULL;
    return allow && select_scores(rw, &a[0], allow, &a[2], false, out);
}

/* Of scores: nothing, as they are finite, but for those that a mask made -inf, which become a finite number. Of
 * probabilities: NaN becomes 0, as in a safe softmax. */
bool make_scores_nan_to_num(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Scores s = {0};
    double nan = 0, low;
    (void)n;
    TRY(scores_of(rw, &a[0], &s));
    const Node *node = a[1].v->def;
    const Arg *of_nan = &node->arg[1], *of_low = &node->arg[3];
    if (s.normalized) {
        if (of_nan->kind != ARG_NONE && (!constant_of(rw->g, of_nan, &nan) || nan != 0))
            return rewrite_refuse(rw, "probabilities that are NaN become %g", nan);
        if (s.masked_rows == 1 || s.masked_rows == 3) s.masked_rows = 0;
        return scores_give(rw, &s, out);
    }
    bool memory = true, diverges = may_diverge(rw->g, s.q, &memory) || may_diverge(rw->g, s.k, &memory);
    if (!memory) return rw->hard = true, oom(rw->err);
    if (diverges)
        return rewrite_refuse(rw, "queries or keys may hold NaN or infinities, which become numbers in the scores");
    bool conditions = s.mask && s.mask->dtype == DT_BOOL;
    if (!s.mask || (!conditions && !may_be_minus_inf(rw->g, s.mask))) return scores_give(rw, &s, out);
    if (of_low->kind == ARG_NONE) low = dtype_lowest(s.dtype);
    else if (!constant_of(rw->g, of_low, &low)) return false;
    if (!(low <= FILL_LIMIT))
        return rewrite_refuse(rw, "masked scores become %g, which keeps them in the softmax", low);
    Value *allow = s.mask;
    if (!conditions) allow = RW(rw, ne_Tensor, arg_value(allow), arg_float(rw->g, -INFINITY));
    if (conditions) s.mask = NULL;
    if (s.masked_rows == 1) s.masked_rows = 0;
    if (!s.masked_rows && low <= FILL_SWALLOWS) s.masked_rows = 4;
    return allow && fill_scores(rw, &s, allow, low, out);
}

bool make_scores_floor(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Scores s = {0};
    double low;
    (void)n;
    TRY(scores_of(rw, &a[0], &s) && scores_before_softmax(rw, &s));
    if (!constant_of(rw->g, &a[1], &low) || !(low <= (s.dtype == DT_F16 ? -6e4 : -1e30)))
        return rewrite_refuse(rw, "the scores are cut at a number that they may reach");
    if (rw->o->exact)
        return rewrite_refuse(rw,
                              "rows without an allowed key would give another average of values (exact_masked_rows)");
    s.masked_rows = 2;
    return scores_give(rw, &s, out);
}

/* ------------------------------------------------------------------ softmax */

bool make_scores_softmax(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Scores s = {0};
    (void)n;
    TRY(scores_of(rw, &a[0], &s) && scores_before_softmax(rw, &s));
    int r = s.v->rank, axis = ex_is_int(a[1].e) ? (int)a[1].e->i : MAX_RANK;
    if (axis < 0) axis += r;
    s.normalized = true;
    if (a[2].e->i && s.masked_rows == 1) s.masked_rows = 0;
    if (!a[2].e->i && !s.masked_rows && s.mask && s.mask->dtype != DT_BOOL)
        s.masked_rows = 3; /* NaN, if the mask is -inf throughout a row */
    if (axis == r - 1) return scores_give(rw, &s, out);
    if (axis != r - 2)
        return rewrite_refuse(rw, "the softmax runs over axis %d of %d; over the keys it would be -1", axis, r);
    Value *q = s.q;
    s.q = s.k;
    s.k = q;
    if (s.mask) TRY(s.mask = rw_swap_last(rw, rw_pad_rank(rw, s.mask, r)));
    Arg p;
    TRY(scores_give(rw, &s, &p));
    Value *v = rw_swap_last(rw, p.v);
    *out = arg_value(v);
    return v != NULL;
}

bool make_softmax(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    if (a[0].kind != ARG_VALUE || (a[1].kind != ARG_EXPR && (a[1].kind != ARG_EXPRS || a[1].n != 1)))
        return rewrite_refuse(rw, "not over one axis");
    Value *v = RW(rw, softmax_int, a[0], arg_expr(a[1].kind == ARG_EXPR ? a[1].e : a[1].es[0]));
    *out = arg_value(v);
    return v != NULL;
}

/* exp(x) / (sum(exp(x)) + exp(s)): softmax over x and one more column s, which is left out of the result ("attention
 * sink"; s = 0: "off by one", https://www.evanmiller.org/attention-is-off-by-one.html). */
bool make_softmax_sink(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    const Expr *dim = a[1].kind == ARG_EXPR ? a[1].e : a[1].kind == ARG_EXPRS && a[1].n == 1 ? a[1].es[0] : NULL;
    Value *x = a[0].v, *column;
    int r = x->rank;
    double c;
    bool plain = a[3].e->i != 0;
    if (r < 1 || !dim || (dim->i != -1 && dim->i != r - 1)) return rewrite_refuse(rw, "not over the last axis");
    Expr *d[MAX_RANK], *one = ex_int(rw->ex, 1);
    memcpy(d, x->dim, (size_t)x->rank * sizeof *d);
    d[r - 1] = one;
    if (constant_of(rw->g, &a[2], &c)) {
        if (plain && !(c > 0)) return rewrite_refuse(rw, "what joins the sum is not an exponential");
        bool log = plain && c != 1; /* as an op: the rounded number would be another one */
        column = RW(rw, full, arg_exprs(rw->g, r, d), arg_float(rw->g, plain && !log ? 0 : c), arg_dtype(x->dtype));
        if (column && log) column = RW(rw, log, arg_value(column));
    } else {
        if (a[2].kind != ARG_VALUE || a[2].v->rank > r || a[2].v->dtype != x->dtype)
            return rewrite_refuse(rw, "what joins the sum has other axes");
        column = rw_expand(rw, rw_pad_rank(rw, a[2].v, r), r, d);
    }
    Value *wide = column ? RW(rw, cat, arg_values(rw->g, 2, (Value *[]){x, column}), arg_int(rw->g, r - 1)) : NULL;
    Value *p = wide ? RW(rw, softmax_int, arg_value(wide), arg_int(rw->g, -1)) : NULL;
    Value *y = p ? RW(rw, slice_Tensor, arg_value(p), arg_int(rw->g, -1), arg_int(rw->g, 0), arg_expr(x->dim[r - 1]),
                      arg_int(rw->g, 1))
                 : NULL;
    *out = arg_value(y);
    return y != NULL;
}
