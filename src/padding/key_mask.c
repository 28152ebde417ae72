/* Key padding masks. Contract in key_mask.h. */
#include "padding/key_mask.h"
#include "facts/band.h"
#include "facts/positions.h"
#include "facts/truth.h"
#include "facts/views.h"
#include <stdio.h>
#include <string.h>

/* HIDES: an additive mask at or below this hides a key; the least that is in use is BERT's -10000. */
enum { MAX_DEPTH = 24, MAX_SEARCHED = 200, HIDES = -9999 };

typedef struct Reader {
    Rewrite *rw;
    KeyMask *m;
    Expr *B, *N, *M;
} Reader;

static bool no(Reader *r, const char *what, const Value *v)
{
    if (!r->m->why[0]) snprintf(r->m->why, sizeof r->m->why, "%s ('%.80s')", what, v->name);
    return false;
}

static bool expands(const Node *n, const void *user)
{
    (void)user;
    return n->op->id == OP_expand;
}

/* The same values, one by one, along axes of 1 that come, go or spread. */
static bool spreads(const Node *n, const void *user)
{
    (void)user;
    return n->op->id == OP_reshape || n->op->id == OP_expand || n->op->id == OP_to_copy;
}

/* v broadcasts to (B, H, N, M) and has keys, perhaps batches, but neither heads nor queries. */
static bool of_keys(const Reader *r, const Value *v)
{
    int n = v->rank;
    if (n < 1 || n > 4 || v->dim[n - 1] != r->M || (n >= 2 && !is_one(v->dim[n - 2])) ||
        (n >= 3 && !is_one(v->dim[n - 3])))
        return false;
    return n < 4 || v->dim[0] == r->B || is_one(v->dim[0]);
}

static bool add_part(Reader *r, KeyPart p)
{
    for (int i = 0; i < r->m->n; i++)
        if (r->m->part[i].v == p.v && r->m->part[i].negated == p.negated) return true;
    if (r->m->n == MAX_KEY_PARTS) return no(r, "the mask has too many parts", p.v);
    r->m->part[r->m->n++] = p;
    return true;
}

/* A reshape that leaves queries and keys alone: leading axes of 1 come and go, or (B, H) are one axis before or
 * after. */
static bool only_leading(Reader *r, const Node *n)
{
    const Value *v = n->out[0], *x = n->arg[0].v;
    if (n->op->id != OP_reshape || x->rank < 2 || v->rank < 2 ||
        !exprs_same(2, &v->dim[v->rank - 2], &x->dim[x->rank - 2]))
        return false;
    const Value *four = v->rank == 4 ? v : x, *three = four == v ? x : v;
    return same_but_ones(v, x) ||
           (four->rank == 4 && three->rank == 3 && ex_mul(r->rw->ex, four->dim[0], four->dim[1]) == three->dim[0] &&
            four->dim[0] == r->B);
}

static bool narrow(Reader *r, const Band *b)
{
    r->m->lower = b->lower;
    r->m->upper = b->upper;
    return true;
}

/* A bool mask that shows a key where it is `wanted`. */
static bool shows(Reader *r, Value *v, bool wanted, int depth)
{
    Band b = band_within(r->rw->g, r->N, r->M, r->m->lower, r->m->upper);
    v = value_below(v, expands, NULL);
    const Node *n = v->def;
    const Arg *a = n ? n->arg : NULL;
    double x;
    if (constant_value(r->rw->g, v, &x) && (x != 0) == wanted) return true;
    if (band_of(&b, v, wanted)) return narrow(r, &b);
    if (of_keys(r, v)) return add_part(r, (KeyPart){.v = v, .negated = !wanted});
    if (!n || depth > MAX_DEPTH) return no(r, "the mask is not made of padding and positions", v);
    Truth part[2];
    int parts = truth_parts(v, wanted, part);
    if (parts == 1) return shows(r, part[0].v, part[0].wanted, depth + 1);
    if (parts == 2 && part[0].v->dtype == DT_BOOL && part[1].v->dtype == DT_BOOL)
        return shows(r, part[0].v, part[0].wanted, depth + 1) && shows(r, part[1].v, part[1].wanted, depth + 1);
    switch (n->op->id) {
    case OP_to_copy:
        if (zero_or_one(r->rw->g, a[0].v)) return shows(r, a[0].v, wanted, depth + 1);
        break;
    case OP_reshape:
        if (only_leading(r, n)) return shows(r, a[0].v, wanted, depth + 1);
        break;
    default: break;
    }
    return no(r, "the mask is not made of padding and positions", v);
}

/* (1 - x) * low, x integers or truth: 0 where x is 1. */
static bool two_values(Reader *r, const Value *v)
{
    const Node *n = value_below(v, spreads, NULL)->def;
    double low, one;
    if (!n || n->op->id != OP_mul_Tensor) return false;
    for (int i = 0; i < 2; i++) {
        const Node *s = n->arg[i].kind == ARG_VALUE ? n->arg[i].v->def : NULL;
        if (!constant_of(r->rw->g, &n->arg[1 - i], &low) || !(low <= HIDES) || !s || s->op->id != OP_sub_Tensor ||
            !is_one(s->arg[2].e))
            continue;
        const Value *x = s->arg[1].kind == ARG_VALUE ? value_below(s->arg[1].v, spreads, NULL) : NULL;
        if (x && !dtype_is_float(x->dtype) && constant_of(r->rw->g, &s->arg[0], &one) && one == 1) return true;
    }
    return false;
}

static bool adds(Reader *r, Value *v, int depth)
{
    double x, y;
    Band b = band_within(r->rw->g, r->N, r->M, r->m->lower, r->m->upper);
    v = value_below(v, expands, NULL);
    const Node *n = v->def;
    const Arg *a = n ? n->arg : NULL;
    if (constant_value(r->rw->g, v, &x) && x == 0) return true;
    if (band_of_bias(&b, v)) return narrow(r, &b);
    bool fixed = n && n->op->id == OP_where_self && a[0].kind == ARG_VALUE && constant_of(r->rw->g, &a[1], &x) &&
                 constant_of(r->rw->g, &a[2], &y);
    if (fixed && x == 0 && y <= HIDES) return shows(r, a[0].v, true, depth + 1);
    if (fixed && y == 0 && x <= HIDES) return shows(r, a[0].v, false, depth + 1);
    if (n && n->op->id == OP_to_copy && dtype_is_float(a[0].v->dtype)) return adds(r, a[0].v, depth + 1);
    if (n && only_leading(r, n) && !of_keys(r, v)) return adds(r, a[0].v, depth + 1);
    if (n && n->op->id == OP_reshape && of_keys(r, v)) { /* where(padding, -inf, 0) seen as (B, 1, 1, S) */
        const Node *w = a[0].v->def;
        bool inside = w && w->op->id == OP_where_self && constant_of(r->rw->g, &w->arg[1], &x) &&
                      constant_of(r->rw->g, &w->arg[2], &y) && ((x == 0 && y <= HIDES) || (y == 0 && x <= HIDES));
        return add_part(r, (KeyPart){.v = v, .additive = true, .biased = !inside && !two_values(r, v)});
    }
    if (n && n->op->id == OP_add_Tensor && a[0].kind == ARG_VALUE && a[1].kind == ARG_VALUE && is_one(a[2].e) &&
        depth < MAX_DEPTH)
        return adds(r, a[0].v, depth + 1) && adds(r, a[1].v, depth + 1);
    if (of_keys(r, v)) return add_part(r, (KeyPart){.v = v, .additive = true, .biased = !two_values(r, v)});
    return no(r, "the mask is not made of padding and positions", v);
}

bool key_mask_of(Rewrite *rw, const Node *n, KeyMask *m)
{
    Reader r = {rw, m, n->arg[0].v->dim[0], n->arg[0].v->dim[2], n->arg[1].v->dim[2]};
    *m = (KeyMask){0};
    if (n->arg[3].kind != ARG_VALUE) return rewrite_refuse(rw, "there is no mask");
    Value *mask = n->arg[3].v;
    TRY(mask->dtype == DT_BOOL ? shows(&r, mask, true, 0) : adds(&r, mask, 0));
    ExprPool *p = rw->ex;
    if (n->arg[9].kind == ARG_EXPR) m->lower = m->lower ? ex_max(p, m->lower, n->arg[9].e) : n->arg[9].e;
    if (n->arg[10].kind == ARG_EXPR) m->upper = m->upper ? ex_min(p, m->upper, n->arg[10].e) : n->arg[10].e;
    if (n->arg[5].e->i) m->upper = m->upper ? ex_min(p, m->upper, ex_int(p, 0)) : ex_int(p, 0);
    return m->n > 0 || no(&r, "the mask hides no keys for all queries alike", mask);
}

static Value *first_operand(Value *v, OpId op)
{
    return v && v->def && v->def->op->id == op ? v->def->arg[0].v : NULL;
}

/* real_offsets of sdpa_varlen, as tokens_start (skip_tokens.c) makes them, back to what marks the tokens. */
bool key_mask_of_packed(Rewrite *rw, const Node *n, KeyMask *m)
{
    Reader r = {rw, m, NULL, NULL, NULL};
    Value *ends = first_operand(n->arg[3].v, OP_constant_pad_nd),
          *ones = first_operand(first_operand(ends, OP_cumsum), OP_sum_dim_IntList),
          *v = first_operand(ones, OP_to_copy);
    double x;
    *m = (KeyMask){0};
    TRY(v);
    KeyPart p = {.v = v};
    const Node *real = v->def;
    if (real && real->op->id == OP_gt_Tensor && dtype_is_float(real->arg[0].v->dtype) &&
        constant_of(rw->g, &real->arg[1], &x) && x == HIDES)
        p = (KeyPart){.v = real->arg[0].v, .additive = true, .biased = !two_values(&r, real->arg[0].v)};
    return add_part(&r, p);
}

bool key_mask_same(const KeyMask *a, const KeyMask *b)
{
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++)
        same = a->part[i].v == b->part[i].v && a->part[i].negated == b->part[i].negated;
    return same;
}

/* ------------------------------------------------------------------ as nodes */

static Value *put(Graph *g, OpId op, int n, const Arg *args, const char *name, Err *err)
{
    for (int i = 0; i < n; i++)
        if (args[i].kind == ARG_VALUE && !args[i].v) return NULL;
    const Node *node = graph_add(g, op, n, args, name, err);
    return node ? node->out[0] : NULL;
}

/* (B, 1, 1, S), (1, S), (S) ... as (B, S) */
static Value *as_tokens(Graph *g, Value *v, Expr *B, Expr *S, Err *err)
{
    bool batched = v->rank == 4 && v->dim[0] == B;
    Expr *dim[2] = {batched ? B : ex_int(g->ex, 1), S};
    if (v->rank != 2 || v->dim[0] != dim[0])
        v = put(g, OP_reshape, 2, (Arg[]){arg_value(v), arg_exprs(g, 2, dim)}, "key_mask", err);
    if (batched || is_one(B) || !v) return v;
    return put(g, OP_expand, 2, (Arg[]){arg_value(v), arg_exprs(g, 2, (Expr *[]){B, S})}, "key_mask", err);
}

Value *key_mask_real(Graph *g, const KeyMask *m, Expr *B, Expr *S, Err *err)
{
    Value *real = NULL;
    for (int i = 0; i < m->n; i++) {
        const KeyPart *p = &m->part[i];
        Value *v = as_tokens(g, p->v, B, S, err);
        if (v && p->additive) v = put(g, OP_gt_Tensor, 2, (Arg[]){arg_value(v), arg_float(g, HIDES)}, "real", err);
        else if (v && p->negated) v = put(g, OP_logical_not, 1, (Arg[]){arg_value(v)}, "real", err);
        if (v && real) v = put(g, OP_logical_and, 2, (Arg[]){arg_value(real), arg_value(v)}, "real", err);
        if (!v) return NULL;
        real = v;
    }
    return real;
}

bool key_mask_bias(Graph *g, const KeyMask *m, Expr *B, Expr *S, Value **bias, Err *err)
{
    *bias = NULL;
    for (int i = 0; i < m->n; i++) {
        if (!m->part[i].biased) continue;
        Value *v = as_tokens(g, m->part[i].v, B, S, err);
        if (v && *bias) v = put(g, OP_add_Tensor, 2, (Arg[]){arg_value(*bias), arg_value(v)}, "key_bias", err);
        TRY(*bias = v);
    }
    return true;
}

/* ------------------------------------------------------------------ what the mask is made of */

/* Is v, seen with the axes of `out`, the index along one axis of it, and nothing else? That axis from the last; -1. */
static int index_along(const Graph *g, Value *v)
{
    Linear l;
    int axis = -1;
    if (!v || !linear_in_positions(g, &(Arg){.kind = ARG_VALUE, .v = v}, &l, &(int){MAX_SEARCHED}) ||
        !ex_equals_int(l.c, 0))
        return -1;
    for (int i = 0; i < MAX_RANK; i++) {
        if (l.factor[i] == 0) continue;
        if (l.factor[i] != 1 || axis >= 0) return -1;
        axis = i;
    }
    return axis;
}

static bool has_size(const Value *v, int from_last, const Expr *size)
{
    return from_last >= 0 && from_last < v->rank && v->dim[v->rank - 1 - from_last] == size;
}

/* x[batch positions, token positions]: x itself */
static bool picks_all(const Graph *g, const Node *n)
{
    const Value *x = n->arg[0].v, *v = n->out[0];
    if (x->rank != 2 || n->arg[1].n != 2) return false;
    int row = index_along(g, n->arg[1].vs[0]), column = index_along(g, n->arg[1].vs[1]);
    return row > 0 && column == 0 && has_size(v, row, x->dim[0]) && has_size(v, 0, x->dim[1]);
}

/* x seen as (B * S, 1), its rows S * batch position + token position: x itself */
static bool picks_rows(const Graph *g, const Node *n)
{
    const Node *flat = n->arg[0].v->def;
    const Value *x = flat && flat->op->id == OP_reshape ? flat->arg[0].v : NULL;
    const Value *at = index_from_end(g, n->arg[1].v);
    if (!x || x->rank != 2 || n->arg[0].v->rank != 2 || !is_one(n->arg[0].v->dim[1])) return false;
    const Node *sum = at->def;
    if (!sum || sum->op->id != OP_add_Tensor || !is_one(sum->arg[2].e)) return false;
    for (int i = 0; i < 2; i++) {
        if (sum->arg[i].kind != ARG_VALUE || sum->arg[1 - i].kind != ARG_VALUE) return false;
        const Node *rows = sum->arg[i].v->def;
        if (!rows || rows->op->id != OP_mul_Tensor || index_along(g, sum->arg[1 - i].v) != 0) continue;
        for (int k = 0; k < 2; k++) {
            int row = rows->arg[k].kind == ARG_VALUE ? index_along(g, rows->arg[k].v) : -1;
            if (row > 0 && number_of(g, &rows->arg[1 - k]) == x->dim[1] && has_size(at, row, x->dim[0]) &&
                has_size(at, 0, x->dim[1]))
                return true;
        }
    }
    return false;
}

const Value *key_mask_below(Rewrite *rw, const Value *v, bool *other)
{
    double c;
    const Node *n = v->def;
    *other = false;
    if (!n || n->arg[0].kind != ARG_VALUE) return NULL;
    const Value *x = n->arg[0].v;
    bool counts = !dtype_is_float(x->dtype);
    switch (n->op->id) {
    case OP_to_copy:
    case OP_reshape:
    case OP_expand: return x;
    case OP_index_Tensor: return picks_all(rw->g, n) ? x : NULL;
    case OP_embedding: return picks_rows(rw->g, n) ? x : NULL;
    case OP_logical_not: *other = true; return x;
    case OP_bitwise_not: *other = true; return v->dtype == DT_BOOL ? x : NULL;
    case OP_ne_Tensor:
    case OP_eq_Tensor:
        if (!constant_of(rw->g, &n->arg[1], &c) || (c != 0 && (c != 1 || !counts))) return NULL;
        *other = (n->op->id == OP_eq_Tensor) == (c == 0);
        return x;
    case OP_gt_Tensor: return counts && constant_of(rw->g, &n->arg[1], &c) && c == 0 ? x : NULL;
    default: return NULL;
    }
}

/* sign 1: v is 0 at padding and only there; 2: at real tokens and only there */
static void witness(Rewrite *rw, const Value *v, unsigned char sign, unsigned char *set, const Value **first)
{
    for (int depth = 0; depth < MAX_DEPTH && v; depth++) {
        bool other;
        set[v->id] = sign;
        *first = v;
        v = key_mask_below(rw, v, &other);
        if (other) sign ^= 3;
    }
}

const Value *key_mask_witnesses(Rewrite *rw, const KeyMask *m, unsigned char *set)
{
    const Value *first = m->part[0].v;
    for (int i = 0; i < m->n; i++) {
        const KeyPart *p = &m->part[i];
        const Value *v = p->v, *low;
        unsigned char sign = p->negated ? 2 : 1;
        if (m->n > 1) break; /* each part alone is 0 at some of the padding only */
        if (p->additive) v = value_below(v, spreads, NULL);
        if (p->additive && v->def && v->def->op->id == OP_where_self && v->def->arg[0].kind == ARG_VALUE) {
            double x;
            sign = constant_of(rw->g, &v->def->arg[1], &x) && x == 0 ? 1 : 2;
            witness(rw, v->def->arg[0].v, sign, set, &first);
        } else if (p->additive && v->def && v->def->op->id == OP_mul_Tensor) {
            for (int k = 0; k < 2; k++) {
                const Node *s = v->def->arg[k].kind == ARG_VALUE ? v->def->arg[k].v->def : NULL;
                low = s && s->op->id == OP_sub_Tensor && s->arg[1].kind == ARG_VALUE ? s->arg[1].v : NULL;
                if (low && !p->biased) witness(rw, low, 1, set, &first);
            }
        } else if (!p->additive) {
            witness(rw, v, sign, set, &first);
        } else {
            first = v;
        }
    }
    return first;
}
