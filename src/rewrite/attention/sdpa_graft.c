/* The last step of the attention rules: probabilities times values becomes aten.scaled_dot_product_attention of rank 4.
 *
 * Leading axes are brought to (batch, heads): none or one is padded, more are merged; B * H that a reshape made is
 * split again; heads that keys share (repeated, or an axis of their own) become grouped-query attention.
 */
#include <math.h>
#include <string.h>
#include "facts/range.h"
#include "rewrite/attention/makers.h"
#include "rewrite/attention/scores.h"

typedef struct Heads {
    Rewrite *rw;
    Value *q, *k, *v, *mask;
    int rank;
    Expr *batch[MAX_RANK]; /* of the result: rank - 2 axes */
    bool grouped;
} Heads;

/* Leading axes of all four from h->batch to `to`. */
static bool regroup(Heads *h, int nto, Expr *const *to)
{
    Value **part[] = {&h->q, &h->k, &h->v, &h->mask};
    for (int i = 0; i < 4; i++)
        if (*part[i]) TRY(*part[i] = rw_regroup(h->rw, *part[i], h->rank - 2, h->batch, nto, to, 2));
    memmove(h->batch, to, (size_t)nto * sizeof *to);
    h->rank = nto + 2;
    return true;
}

/* One leading axis that is a product of two: what a reshape from (B, H, N, D) made. */
static bool split_batch(Heads *h)
{
    Value *part[] = {h->q, h->k, h->v};
    for (int i = 0; i < 3; i++) {
        const Node *n = part[i]->def;
        if (!n || n->op->id != OP_reshape) continue;
        const Value *x = n->arg[0].v;
        if (x->rank == 4 && x->dim[2] == part[i]->dim[1] && x->dim[3] == part[i]->dim[2] &&
            ex_mul(h->rw->ex, x->dim[0], x->dim[1]) == h->batch[0])
            return regroup(h, 2, x->dim);
    }
    return regroup(h, 2, (Expr *[]){ex_int(h->rw->ex, 1), h->batch[0]});
}

/* (..., Hkv, G, N, D) queries on (..., Hkv, 1, M, D) keys and values. */
static bool grouped_axis(Heads *h)
{
    int g = h->rank - 3; /* the axis of groups */
    if (h->rank < 5 || !is_one(h->k->dim[g]) || !is_one(h->v->dim[g]) || is_one(h->batch[g])) return false;
    if (h->k->dim[g - 1] != h->batch[g - 1] || h->v->dim[g - 1] != h->batch[g - 1] ||
        h->q->dim[g - 1] != h->batch[g - 1] || h->q->dim[g] != h->batch[g])
        return false;
    Expr *to[MAX_RANK], *narrow[MAX_RANK];
    memcpy(to, h->batch, sizeof to);
    to[g - 1] = ex_mul(h->rw->ex, h->batch[g - 1], h->batch[g]);
    Value *q = rw_regroup(h->rw, h->q, g + 1, h->batch, g, to, 2), *part[2] = {h->k, h->v}, *mask = h->mask;
    if (mask) mask = rw_regroup(h->rw, mask, g + 1, h->batch, g, to, 2);
    if (!q || (h->mask && !mask)) return false;
    for (int i = 0; i < 2; i++) {
        memcpy(narrow, part[i]->dim, (size_t)g * sizeof *narrow);
        narrow[g] = part[i]->dim[g + 1];
        narrow[g + 1] = part[i]->dim[g + 2];
        if (!(part[i] = rw_reshape(h->rw, part[i], g + 2, narrow))) return false;
    }
    h->q = q;
    h->k = part[0];
    h->v = part[1];
    h->mask = mask;
    h->rank--;
    h->grouped = true;
    memcpy(h->batch, to, sizeof to);
    /* what is left in front of the heads is one axis */
    if (h->rank > 4) {
        Expr *B = product_of(h->rw->ex, h->rank - 3, h->batch), *kv = h->k->dim[h->rank - 3], *lead[MAX_RANK];
        Value **all[] = {&h->q, &h->k, &h->v, &h->mask};
        for (int i = 0; i < 4; i++) {
            if (!*all[i]) continue;
            memcpy(lead, h->batch, sizeof lead);
            if (i == 1 || i == 2) lead[h->rank - 3] = kv;
            *all[i] = rw_regroup(h->rw, *all[i], h->rank - 2, lead, 2, (Expr *[]){B, lead[h->rank - 3]}, 2);
            if (!*all[i]) return false;
        }
        h->batch[1] = h->batch[h->rank - 3];
        h->batch[0] = B;
        h->rank = 4;
    }
    return true;
}

/* The heads before each was repeated G times: reshape(expand(reshape(x, (B, Hkv, 1, M, D)), (B, Hkv, G, M, D)), (B,
 * Hkv * G, M, D)). NULL when v is not made like that. */
static Value *before_repeat(Heads *h, Value *v)
{
    if (!v->def || v->def->op->id != OP_reshape) return NULL;
    const Value *wide = v->def->arg[0].v;
    if (!wide->def || wide->def->op->id != OP_expand || wide->rank != 5) return NULL;
    Value *x = wide->def->arg[0].v;
    if (x->rank != 5 || !is_one(x->dim[2]) || wide->dim[3] != v->dim[2] || wide->dim[4] != v->dim[3] ||
        wide->dim[0] != v->dim[0])
        return NULL;
    if (ex_mul(h->rw->ex, wide->dim[1], wide->dim[2]) != v->dim[1]) return NULL;
    for (int i = 0; i < 5; i++)
        if (i != 2 && x->dim[i] != wide->dim[i]) return NULL;
    return rw_reshape(h->rw, x, 4, (Expr *[]){x->dim[0], x->dim[1], x->dim[3], x->dim[4]});
}

static void group_heads(Heads *h)
{
    Value *k = before_repeat(h, h->k), *v = before_repeat(h, h->v);
    if (k && v && k->dim[1] == v->dim[1]) {
        h->k = k;
        h->v = v;
        h->grouped = true;
    }
}

static bool widen(Heads *h, Value **x, Expr *B, Expr *H)
{
    return (*x = rw_expand(h->rw, *x, 4, (Expr *[]){B, H, (*x)->dim[2], (*x)->dim[3]})) != NULL;
}

/* Rank 4, sizes as the op wants them. */
static bool settle(Heads *h)
{
    if (h->rank == 2) TRY(regroup(h, 2, (Expr *[]){ex_int(h->rw->ex, 1), ex_int(h->rw->ex, 1)}));
    else if (h->rank == 3) TRY(split_batch(h));
    else if (h->rank > 4 && !grouped_axis(h))
        TRY(regroup(h, 2, (Expr *[]){product_of(h->rw->ex, h->rank - 3, h->batch), h->batch[h->rank - 3]}));
    Expr *B = h->batch[0], *H = h->batch[1];
    if (!h->grouped) {
        Expr *kv = h->k->dim[1];
        if (is_one(kv) && is_one(h->v->dim[1]) && !is_one(H)) h->grouped = true; /* one head of keys for all */
        else TRY(widen(h, &h->k, h->k->dim[0], H) && widen(h, &h->v, h->v->dim[0], H));
    }
    TRY(widen(h, &h->q, B, H) && widen(h, &h->k, B, h->k->dim[1]) && widen(h, &h->v, B, h->v->dim[1]));
    if (!h->grouped) group_heads(h);
    return true;
}

Value *before_upcast(Rewrite *rw, Value *v, DType t)
{
    if (v->dtype == t) return v;
    if (!v->def || dtype_size(v->dtype) < dtype_size(t)) return NULL;
    const Arg *a = v->def->arg;
    if (v->def->op->id == OP_to_copy) return a[0].v->dtype == t ? a[0].v : NULL;
    if (!(v->def->op->flags & OPF_REARRANGES)) return NULL;
    return rw_view_again(rw, v->def, before_upcast(rw, a[0].v, t));
}

static const char *note_of(int masked_rows)
{
    switch (masked_rows) {
    case 1: return "a row without an allowed key gives 0; the source gives NaN there";
    case 2: return "a row without an allowed key may give another average of values than the source";
    case 3: return "a row whose mask is -inf throughout gives 0; the source gives NaN there";
    default: return NULL;
    }
}

/* What quantizes probabilities before they meet the values: scale, zero point, dtype, by_inverse. */
typedef struct Quantizer {
    Arg scale, zero, dtype, by_inverse;
} Quantizer;

static Value *attention_op(Rewrite *rw, const Heads *h, const Quantizer *by, Arg scale, Arg softcap)
{
    if (!by)
        return RW(rw, scaled_dot_product_attention, arg_value(h->q), arg_value(h->k), arg_value(h->v),
                  arg_value(h->mask), arg_float(rw->g, 0), arg_bool(rw->g, false), scale, arg_bool(rw->g, h->grouped),
                  softcap);
    Arg none = arg_none();
    return RW(rw, sdpa_quantized, arg_value(h->q), arg_value(h->k), arg_value(h->v), arg_value(h->mask), by->scale,
              by->zero, by->dtype, scale, softcap, none, none, none, none, none, none, none, none, by->by_inverse);
}

static bool attention(Rewrite *rw, Value *p, Value *v, const Quantizer *by, Arg *out)
{
    Value *form = rewrite_form(rw, p, OP_scores);
    if (!form) return false;
    const Arg *s = form->def->arg;
    Heads h = {.rw = rw, .q = s[0].v, .k = s[1].v, .v = v, .mask = s[2].kind == ARG_VALUE ? s[2].v : NULL};
    int masked_rows = (int)s[6].e->i;
    DType t = v->dtype;
    if (masked_rows == 3 && !may_be_minus_inf(rw->g, s[2].v)) masked_rows = 0;
    if (rw->o->exact && masked_rows >= 1 && masked_rows <= 3)
        return rewrite_refuse(rw, "rows without an allowed key would give %s (exact_masked_rows)",
                              masked_rows == 2 ? "another average of values" : "0 instead of NaN");
    /* no model's values are; a random graph's were its own masked scores */
    bool memory = true, infinite = holds_infinity(rw->g, v, &memory);
    if (!memory) return rw->hard = true, oom(rw->err);
    if (infinite) return rewrite_refuse(rw, "the values may be infinite, and 0 times that is NaN");
    h.rank = form->rank > v->rank ? form->rank : v->rank;
    /* sizes of the result: those of the product */
    Value *like = RW(rw, matmul, arg_value(form), arg_value(v));
    TRY(like && like->rank == h.rank);
    memcpy(h.batch, like->dim, (size_t)(h.rank - 2) * sizeof *h.batch);
    Value **part[] = {&h.q, &h.k, &h.v, &h.mask};
    for (int i = 0; i < 4; i++)
        if (*part[i]) TRY(*part[i] = rw_pad_rank(rw, *part[i], h.rank));
    /* one dtype: that of the values, if queries and keys are upcasts of it; else the widest */
    DType result = t;
    Value *q = before_upcast(rw, h.q, t), *k = q ? before_upcast(rw, h.k, t) : NULL;
    if (k) {
        h.q = q;
        h.k = k;
    } else {
        Value *low = before_upcast(rw, h.v, h.q->dtype);
        if (dtype_size(h.q->dtype) < dtype_size(t) && !low)
            return rewrite_refuse(rw, "queries and keys are rounded to %s, values are %s", dtype_name(h.q->dtype),
                                  dtype_name(t));
        if (low) h.v = low;
        t = h.q->dtype;
        h.q = rw_cast(rw, h.q, t);
        h.k = rw_cast(rw, h.k, t);
        h.v = rw_cast(rw, h.v, t);
    }
    TRY(h.q && h.k && h.v && settle(&h));
    if (h.mask && h.mask->dtype != DT_BOOL && h.mask->dtype != t && h.mask->dtype != DT_F32)
        TRY(h.mask = rw_cast(rw, h.mask, t));
    if (by && t != DT_F32)
        return rewrite_refuse(rw, "queries, keys and values beside quantized probabilities are %s", dtype_name(t));
    Value *y = attention_op(rw, &h, by, s[3], s[4]);
    y = rw_cast(rw, rw_reshape(rw, y, like->rank, like->dim), result);
    rw->note = note_of(masked_rows);
    rw->waiver = masked_rows == 2 ? WAIVE_INPUTS : masked_rows == 1 || masked_rows == 3 ? WAIVE_ZEROS : WAIVE_NOTHING;
    *out = arg_value(y);
    return y != NULL;
}

bool attention_give(Rewrite *rw, Value *p, Value *v, Arg *out) { return attention(rw, p, v, NULL, out); }

/* A scaled_dot_product_attention whose keys and values were repeated for groups of heads: the same on the heads
 * before that. */
bool make_grouped(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    const Node *y = n == 1 && a[0].kind == ARG_VALUE ? a[0].v->def : NULL;
    Arg arg[16];
    if (!y || y->op->id != OP_scaled_dot_product_attention || y->arg[7].e->i)
        return rewrite_refuse(rw, "heads are grouped already");
    Heads h = {.rw = rw, .k = y->arg[1].v, .v = y->arg[2].v};
    group_heads(&h);
    if (!h.grouped) return rewrite_refuse(rw, "keys and values are not repeated");
    memcpy(arg, y->arg, (size_t)y->op->schema->nparams * sizeof *arg);
    arg[1] = arg_value(h.k);
    arg[2] = arg_value(h.v);
    arg[7] = arg_bool(rw->g, true);
    Value *v = rw_add(rw, y->op->id, y->op->schema->nparams, arg);
    *out = arg_value(v);
    return v != NULL;
}

bool make_attention(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    return n == 2 && a[0].kind == ARG_VALUE && a[1].kind == ARG_VALUE && a[1].v->rank >= 2 &&
           attention(rw, a[0].v, a[1].v, NULL, out);
}

static bool one_number(const Value *v)
{
    for (int i = 0; i < v->rank; i++)
        if (!is_one(v->dim[i])) return false;
    return true;
}

/* Probabilities that are quantized by one scale on their way to the values. A clamp of the integers may only take off
 * what probabilities do not reach. */
bool make_attention_quantized(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    enum { P, VALUES, S, ZERO, DTYPE, INVERSE, LOW, HIGH };
    (void)n;
    if (a[P].kind != ARG_VALUE || a[VALUES].kind != ARG_VALUE || a[VALUES].v->rank < 2 || a[DTYPE].kind != ARG_DTYPE)
        return false;
    DType t = a[DTYPE].dtype;
    double zero = 0, low = dtype_lowest(t), high = dtype_highest(t);
    if (t != DT_I8 && t != DT_U8 && t != DT_F8E4M3)
        return rewrite_refuse(rw, "probabilities are quantized to %s", dtype_name(t));
    if (!one_number(a[S].v)) return rewrite_refuse(rw, "probabilities are quantized by more than one scale");
    if (a[LOW].kind != ARG_NONE || a[HIGH].kind != ARG_NONE) {
        if (a[LOW].kind == ARG_EXPR && ex_is_const(a[LOW].e)) low = ex_number(a[LOW].e);
        if (a[HIGH].kind == ARG_EXPR && ex_is_const(a[HIGH].e)) high = ex_number(a[HIGH].e);
        if (a[ZERO].kind == ARG_VALUE && !constant_value(rw->g, a[ZERO].v, &zero))
            return rewrite_refuse(rw, "the zero point of clamped probabilities is not a constant");
        if (low > zero || high < dtype_highest(t))
            return rewrite_refuse(rw, "quantized probabilities are clamped to %g to %g", low, high);
    }
    const Quantizer by = {a[S], a[ZERO], a[DTYPE], a[INVERSE]};
    return attention(rw, a[P].v, a[VALUES].v, &by, out);
}

/* probabilities times a factor per row, or replaced by a number in whole rows: the same on the product. */
bool make_rows(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Arg arg[8], product;
    (void)n;
    const Node *node = a[0].kind == ARG_VALUE ? a[0].v->def : NULL;
    if (!node || a[1].kind != ARG_VALUE || a[2].kind != ARG_VALUE || a[2].v->rank < 2 || node->op->schema->nparams > 8)
        return false;
    memcpy(arg, node->arg, (size_t)node->op->schema->nparams * sizeof *arg);
    int times = 0;
    for (int i = 0; i < node->op->schema->nparams; i++) {
        const Value *x = arg[i].kind == ARG_VALUE ? arg[i].v : NULL;
        double c;
        if (x && x != a[1].v && x->rank && constant_of(rw->g, &arg[i], &c)) { /* zeros of all sizes: one is enough */
            arg[i] = arg_value(scores_number(rw, c, x->dtype));
            if (!arg[i].v) return false;
            continue;
        }
        if (x == a[1].v && x && ++times > 1)
            return rewrite_refuse(rw, "probabilities meet themselves, after the softmax");
        if (x == a[1].v || !x) continue;
        if (x->rank && !is_one(x->dim[x->rank - 1]))
            return rewrite_refuse(rw, "probabilities are changed key by key, after the softmax");
    }
    if (node->op->id ==
        OP_where_self) /* a row of one number c times the values is c times their sum: only 0 is simple */
        for (int i = 1; i < 3; i++) {
            double c;
            if (arg[i].kind == ARG_VALUE && arg[i].v == a[1].v) continue;
            if (!constant_of(rw->g, &arg[i], &c) || c != 0)
                return rewrite_refuse(rw, "rows of probabilities are replaced by another number than 0");
        }
    TRY(attention(rw, a[1].v, a[2].v, NULL, &product));
    for (int i = 0; i < node->op->schema->nparams; i++)
        if (arg[i].kind == ARG_VALUE && arg[i].v == a[1].v) arg[i] = product;
    Value *v = rw_add(rw, node->op->id, node->op->schema->nparams, arg);
    *out = arg_value(v);
    return v != NULL;
}

/* ------------------------------------------------------------------ sums of probabilities */

enum { MAX_SUM = 16 };

typedef struct Sum {
    Rewrite *rw;
    Value *v;
    const Arg *mask; /* of the first attention */
    int n, masked_rows;
    const char *note;
    Waiver waiver;
} Sum;

static const Arg *probabilities(Rewrite *rw, Value *p)
{
    const Value *form = rewrite_form(rw, p, OP_scores);
    return form && form->def->arg[5].e->i ? form->def->arg : NULL;
}

static bool sums(const Node *n) { return n->op->flags & OPF_ARITHMETIC || n->op->id == OP_neg; }

static bool adds(const Node *n) { return n->op->id == OP_add_Tensor || n->op->id == OP_sub_Tensor; }

/* Are there probabilities in p? sum: as a term, at least, of a sum */
static bool has_probabilities(Rewrite *rw, Value *p, bool sum, int depth)
{
    if (probabilities(rw, p)) return !sum;
    bool any = false;
    for (int i = 0; p->def && sums(p->def) && depth < MAX_SUM && i < 2 && !any; i++)
        any = p->def->arg[i].kind == ARG_VALUE &&
              has_probabilities(rw, p->def->arg[i].v, sum && !adds(p->def), depth + 1);
    return any;
}

static Value *one_of_sum(Sum *s, Value *p)
{
    Rewrite *rw = s->rw;
    const Arg *form = probabilities(rw, p);
    int masked_rows = (int)form[6].e->i;
    Arg y;
    if (s->n++ == 0) {
        s->mask = &form[2];
        s->masked_rows = masked_rows;
    } else if ((masked_rows || s->masked_rows) && (masked_rows != s->masked_rows || !arg_same(s->mask, &form[2]))) {
        rewrite_refuse(rw, "the attentions of a sum have other masks, and rows without an allowed key would differ");
        return NULL;
    }
    if (!attention(rw, p, s->v, NULL, &y)) return NULL;
    if (rw->note) s->note = rw->note;
    if (rw->waiver != WAIVE_NOTHING) s->waiver = rw->waiver;
    return y.v;
}

/* Does x have one value for all keys of probabilities p? */
static bool for_rows(const Value *x, const Value *p)
{
    return x->rank <= p->rank && (!x->rank || is_one(x->dim[x->rank - 1]));
}

static Value *sum_of(Sum *s, Value *p, int depth)
{
    const Node *n = p->def;
    Arg arg[8];
    if (probabilities(s->rw, p)) return one_of_sum(s, p);
    if (!n || !sums(n) || depth == MAX_SUM) {
        rewrite_refuse(s->rw, "'%s', in a sum of probabilities, are none", p->name);
        return NULL;
    }
    bool terms = adds(n), met = false;
    memcpy(arg, n->arg, (size_t)n->op->schema->nparams * sizeof *arg);
    for (int i = 0; i < (n->op->id == OP_neg ? 1 : 2); i++) {
        Value *x = arg[i].kind == ARG_VALUE ? arg[i].v : NULL;
        bool holds = x && (i == 0 || n->op->id != OP_div_Tensor) && has_probabilities(s->rw, x, false, 0);
        if (holds && met && !terms) {
            rewrite_refuse(s->rw, "probabilities are multiplied by probabilities");
            return NULL;
        } else if (holds) {
            met = true;
            if (x->dim[x->rank - 1] != p->dim[p->rank - 1]) {
                rewrite_refuse(s->rw, "'%s' has another number of keys than the sum", x->name);
                return NULL;
            }
            if (!(x = sum_of(s, x, depth + 1))) return NULL;
            arg[i] = arg_value(x);
        } else if (terms) {
            rewrite_refuse(s->rw, "what is added to probabilities is none itself");
            return NULL;
        } else if (x && !for_rows(x, p)) {
            rewrite_refuse(s->rw, "probabilities are changed key by key, after the softmax");
            return NULL;
        }
    }
    return rw_add(s->rw, n->op->id, n->op->schema->nparams, arg);
}

/* (c0 p0 - c1 p1) v = c0 (p0 v) - c1 (p1 v), where a factor c is the same for all keys. */
bool make_attention_sum(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    if (a[0].kind != ARG_VALUE || a[1].kind != ARG_VALUE || a[1].v->rank < 2 || a[0].v->rank < 2 ||
        !has_probabilities(rw, a[0].v, true, 0))
        return false;
    Sum s = {.rw = rw, .v = a[1].v};
    Value *y = sum_of(&s, a[0].v, 0);
    rw->note = s.note;
    rw->waiver = s.waiver;
    *out = arg_value(y);
    return y != NULL;
}

static int axis_of(const Node *cat)
{
    int64_t d = ex_is_int(cat->arg[1].e) ? cat->arg[1].e->i : 0;
    return (int)(d < 0 ? d + cat->out[0]->rank : d);
}

/* cat(p0, p1) cat(v0, v1) = p0 v0 + p1 v1, where each p is made of probabilities. */
bool make_attention_parts(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    (void)n;
    const Node *p = a[0].kind == ARG_VALUE ? a[0].v->def : NULL, *v = a[1].kind == ARG_VALUE ? a[1].v->def : NULL;
    if (!p || !v || p->arg[0].n != v->arg[0].n || axis_of(p) != p->out[0]->rank - 1 ||
        axis_of(v) != v->out[0]->rank - 2)
        return rewrite_refuse(rw, "probabilities are joined in another way than the values");
    Sum s = {.rw = rw};
    Value *sum = NULL;
    for (int i = 0; i < p->arg[0].n; i++) {
        Value *x = p->arg[0].vs[i];
        s.v = v->arg[0].vs[i];
        if (x->dim[x->rank - 1] != s.v->dim[s.v->rank - 2] || !has_probabilities(rw, x, false, 0))
            return rewrite_refuse(rw, "probabilities are joined in another way than the values");
        Value *y = sum_of(&s, x, 0);
        sum = y && sum ? RW(rw, add_Tensor, arg_value(sum), arg_value(y)) : y;
        TRY(sum);
    }
    rw->note = s.note;
    rw->waiver = s.waiver;
    *out = arg_value(sum);
    return true;
}

bool make_attention_transposed(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Arg y;
    if (n != 3 || a[0].kind != ARG_VALUE || a[0].v->rank < 2 || a[1].kind != ARG_VALUE) return false;
    int r = a[2].n;
    for (int i = 0; i < r; i++)
        if (a[2].es[i]->i != (i < r - 2 ? i : 2 * r - 3 - i) && a[2].es[i]->i + r != (i < r - 2 ? i : 2 * r - 3 - i))
            return rewrite_refuse(rw, "probabilities are permuted in another way");
    Value *v = rw_swap_last(rw, a[0].v);
    TRY(v && attention(rw, a[1].v, v, NULL, &y));
    Value *t = rw_swap_last(rw, y.v);
    *out = arg_value(t);
    return t != NULL;
}

/* ------------------------------------------------------------------ scale */

bool make_attention_scale(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    Arg arg[16], scale;
    (void)n;
    const Node *node = a[0].kind == ARG_VALUE ? a[0].v->def : NULL;
    if (!node || node->op->id != OP_scaled_dot_product_attention) return rewrite_refuse(rw, "not an attention");
    memcpy(arg, node->arg, (size_t)node->op->schema->nparams * sizeof *arg);
    const Value *q = arg[0].v;
    scale = arg[6];
    if (scale.kind != ARG_EXPR) {
        double d = ex_is_int(q->dim[q->rank - 1]) ? (double)q->dim[q->rank - 1]->i : 0;
        if (!(d > 0)) return rewrite_refuse(rw, "the size of the heads is not known");
        scale = arg_float(rw->g, 1 / sqrt(d));
    }
    Value *plain[2];
    for (int i = 0; i < 2; i++) plain[i] = without_scale(rw, arg[i].v, &scale, 0);
    if (!plain[0] || !plain[1] || !scale.e || (plain[0] == arg[0].v && plain[1] == arg[1].v))
        return rewrite_refuse(rw, "neither queries nor keys are scaled");
    arg[0] = arg_value(plain[0]);
    arg[1] = arg_value(plain[1]);
    arg[6] = scale;
    Value *y = rw_add(rw, node->op->id, node->op->schema->nparams, arg);
    *out = arg_value(y);
    return y != NULL;
}
