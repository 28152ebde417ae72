/* What an element of each op's result is, as PyTorch documents the op (docs/PROOF.md). Contract of element:
 * certify.h. */
#include <string.h>
#include "base/vec.h"
#include "certify/certify.h"

enum { MAX_WORK = 2000 };

/* An element of a node's result that is asked for. */
typedef struct Ask {
    Checker *c;
    int side, rank;
    const Node *node;
    const Value *v;
    Expr *const *idx;
    LemmaStep *step;
} Ask;

typedef Term *LemmaFn(const Ask *q);

#define LEMMA(op, name, how) static LemmaFn element_##how;
#include "certify/lemmas.def"
#undef LEMMA

static const struct {
    OpId op;
    const char *name;
    LemmaFn *element;
} lemmas[] = {
#define LEMMA(op, name, how) {OP_##op, name, element_##how},
#include "certify/lemmas.def"
#undef LEMMA
};
enum { LEMMAS = sizeof lemmas / sizeof *lemmas, FUNCTION = LEMMAS };

const char *lemma_name(int lemma) { return lemma == FUNCTION ? "function" : lemmas[lemma].name; }

static int lemma_of(const Op *op)
{
    for (int i = 0; i < LEMMAS; i++)
        if (lemmas[i].op == op->id) return i;
    return (op->flags & (OPF_POINTWISE | OPF_RANDOM)) == OPF_POINTWISE ? FUNCTION : -1;
}

int lemma_named(const char *name, const Op *op)
{
    int i = lemma_of(op);
    return i >= 0 && !strcmp(lemma_name(i), name) ? i : -1;
}

/* ------------------------------------------------------------------ operands */

static Index *ix(const Ask *q) { return &q->c->t.x; }
static ExprPool *pool(const Ask *q) { return q->c->t.x.p; }
static Terms *tm(const Ask *q) { return &q->c->t; }
static Expr *here(const Ask *q, const Expr *e) { return checker_expr(q->c, q->side, e); }
static Expr *dim(const Ask *q, const Value *v, int i) { return here(q, v->dim[i]); }
static const Arg *arg(const Ask *q, int k) { return &q->node->arg[k]; }

static Term *number_of(const Ask *q, const Expr *e)
{
    if (e->kind == EX_FLOAT) return term_double(tm(q), e->f);
    if (e->kind == EX_BOOL) return term_number(tm(q), e->i, 1);
    return term_index(tm(q), here(q, e));
}

static Term *number_arg(const Ask *q, int k, int64_t otherwise)
{
    return arg(q, k)->kind == ARG_EXPR ? number_of(q, arg(q, k)->e) : term_number(tm(q), otherwise, 1);
}

/* The operand at the result's index, broadcast. */
static Term *broadcast(const Ask *q, const Value *v, Expr *const *idx, int rank)
{
    Expr *at[MAX_RANK];
    for (int i = 0; i < v->rank; i++)
        at[i] = ex_equals_int(v->dim[i], 1) ? ex_int(pool(q), 0) : idx[rank - v->rank + i];
    return element(q->c, q->side, v, at);
}

static Term *operand(const Ask *q, int k)
{
    if (arg(q, k)->kind == ARG_EXPR) return number_of(q, arg(q, k)->e);
    if (arg(q, k)->kind != ARG_VALUE) return term_refuse(tm(q), "'%s': operand %d is missing", q->node->name, k);
    return broadcast(q, arg(q, k)->v, q->idx, q->rank);
}

static Expr *fresh(const Ask *q, Expr *extent) { return ix_var(ix(q), "f", q->c->depth++, extent); }

static int axis(const Ask *q, const Expr *e, int rank)
{
    (void)q;
    return e->kind != EX_INT ? -1 : (int)(e->i < 0 ? e->i + rank : e->i);
}

/* ------------------------------------------------------------------ views */

static Expr *at_index(const Ask *q, int i) { return ix_var(ix(q), "at", i, dim(q, q->v, i)); }

/* Row-major: ((i0 d1 + i1) d2 + i2) ... */
static Expr *flat(const Ask *q, const Value *v, Expr *const *idx)
{
    Expr *e = ex_int(pool(q), 0);
    for (int i = 0; i < v->rank; i++) e = ex_add(pool(q), ex_mul(pool(q), e, dim(q, v, i)), idx[i]);
    return e;
}

static Expr *start_of(const Ask *q, const Value *x, int axis_of, int k)
{
    const Arg *a = arg(q, k);
    if (a->kind != ARG_EXPR) return ex_int(pool(q), 0);
    Expr *s = here(q, a->e);
    return s && s->kind == EX_INT && s->i < 0 ? ex_add(pool(q), s, dim(q, x, axis_of)) : s;
}

/* The operand's index for the result's, in at0, at1, ... */
static bool view_map(const Ask *q, Expr **map)
{
    const Value *x = arg(q, 0)->v;
    Expr *at[MAX_RANK], *e, *size;
    int d;
    for (int i = 0; i < q->v->rank; i++) at[i] = at_index(q, i);
    switch (q->node->op->id) {
    case OP_reshape:
        e = flat(q, q->v, at);
        for (int i = x->rank - 1; i > 0; i--) {
            size = dim(q, x, i);
            map[i] = ix_mod(ix(q), e, size);
            e = ix_div(ix(q), e, size);
        }
        if (x->rank) map[0] = e;
        return true;
    case OP_permute:
        for (int i = 0; i < x->rank; i++) {
            if ((d = axis(q, arg(q, 1)->es[i], x->rank)) < 0) return false;
            map[d] = at[i];
        }
        return true;
    case OP_expand:
        for (int i = 0; i < x->rank; i++)
            map[i] = ex_equals_int(x->dim[i], 1) ? ex_int(pool(q), 0) : at[q->v->rank - x->rank + i];
        return true;
    case OP_slice_Tensor:
        if ((d = axis(q, arg(q, 1)->e, x->rank)) < 0) return false;
        for (int i = 0; i < x->rank; i++) map[i] = at[i];
        map[d] = ex_add(pool(q), start_of(q, x, d, 2), ex_mul(pool(q), here(q, arg(q, 4)->e), at[d]));
        return true;
    default: /* select */
        if ((d = axis(q, arg(q, 1)->e, x->rank)) < 0) return false;
        for (int i = 0; i < x->rank; i++) map[i] = i == d ? start_of(q, x, d, 2) : at[i - (i > d)];
        return true;
    }
}

/* Is this map the op's? Of a reshape: elements keep their row-major place, and every index is within its axis, so that
 * there is no other one. */
static bool view_holds(const Ask *q, Expr *const *map)
{
    const Value *x = arg(q, 0)->v;
    Expr *want[MAX_RANK], *at[MAX_RANK];
    for (int i = 0; i < q->v->rank; i++) at[i] = at_index(q, i);
    if (q->node->op->id == OP_reshape) {
        Expr *in = flat(q, x, map), *out = flat(q, q->v, at);
        if (!in || in != out) return term_refuse(tm(q), "'%s': the map moves elements", q->node->name) != NULL;
    } else if (!view_map(q, want)) return false;
    for (int i = 0; i < x->rank; i++) {
        if (q->node->op->id != OP_reshape && (!map[i] || map[i] != want[i]))
            return term_refuse(tm(q), "'%s': the map of axis %d is not the op's", q->node->name, i) != NULL;
        if (!ix_within(ix(q), map[i], dim(q, x, i)))
            return term_refuse(tm(q), "'%s': the index of axis %d is not provably within its size", q->node->name, i) !=
                   NULL;
    }
    return true;
}

static Term *element_view(const Ask *q)
{
    const Value *x = arg(q, 0)->v;
    LemmaStep *s = q->step;
    if (!s->map && q->c->recording) {
        Expr *map[MAX_RANK + 1];
        if (!view_map(q, map)) return term_refuse(tm(q), "'%s': the map is not known", q->node->name);
        if (!(s->map = arena_array(q->c->arena, Expr *, x->rank + 1))) return term_refuse(tm(q), "out of memory");
        memcpy(s->map, map, (size_t)x->rank * sizeof *map);
        s->nmap = x->rank;
        s->visited = false;
    }
    if (!s->map || s->nmap != x->rank)
        return term_refuse(tm(q), "'%s': the step has no map of %d axes", q->node->name, x->rank);
    if (!s->visited && !view_holds(q, s->map)) return NULL;
    s->visited = true;
    Expr *at[MAX_RANK];
    for (int i = 0; i < x->rank; i++) at[i] = s->map[i];
    for (int k = 0; k < q->rank; k++) {
        const Expr *own = at_index(q, k);
        for (int i = 0; i < x->rank; i++) at[i] = ix_subst(ix(q), at[i], own, q->idx[k]);
    }
    return element(q->c, q->side, x, at);
}

static Term *element_cat(const Ask *q)
{
    const Arg *a = arg(q, 0);
    int d = axis(q, arg(q, 1)->e, q->rank);
    Expr *at[MAX_RANK], *from = ex_int(pool(q), 0);
    Term *r = NULL;
    if (d < 0) return NULL;
    memcpy(at, q->idx, (size_t)q->rank * sizeof *at);
    for (int i = 0; i < a->n; i++) {
        if (!a->vs[i] || a->vs[i]->rank != q->rank)
            return term_refuse(tm(q), "'%s': a part of another rank", q->node->name);
        Expr *in = ex_sub(pool(q), q->idx[d], from), *size = dim(q, a->vs[i], d);
        if (!in || !size) return NULL;
        if (ix_nonneg(ix(q), ex_sub(pool(q), ex_int(pool(q), -1), in))) break; /* before this part */
        from = ex_add(pool(q), from, size);
        if (ix_nonneg(ix(q), ex_sub(pool(q), q->idx[d], from))) continue; /* after it */
        at[d] = ex_equals_int(size, 1) ? ex_int(pool(q), 0) : in; /* in this part it is 0 */
        Term *part = element(q->c, q->side, a->vs[i], at);
        r = r ? term_where(tm(q), term_test(tm(q), in), part, r) : part;
        if (!r) return NULL;
    }
    return r;
}

/* ------------------------------------------------------------------ arithmetic */

static Term *element_cast(const Ask *q)
{
    DType from = arg(q, 0)->v->dtype, to = q->v->dtype;
    bool keeps = dtype_is_float(to) || from == to || (to != DT_BOOL && !dtype_is_float(from));
    if (dtype_is_complex(from) || dtype_is_complex(to)) return term_refuse(tm(q), "'%s' is complex", q->node->name);
    Term *x = operand(q, 0);
    return keeps ? x : term_call(tm(q), OP_to_copy * 256 + (int)to, to == DT_BOOL, 1, &x);
}

static Term *element_add(const Ask *q)
{
    if (q->v->dtype == DT_BOOL) return term_refuse(tm(q), "'%s': a sum of truth values", q->node->name);
    Term *b = term_mul(tm(q), operand(q, 1), number_arg(q, 2, 1));
    if (q->node->op->id == OP_sub_Tensor) b = term_scale(tm(q), b, -1, 1);
    return term_add(tm(q), operand(q, 0), b);
}

static Term *element_mul(const Ask *q) { return term_mul(tm(q), operand(q, 0), operand(q, 1)); }

static Term *element_divide(const Ask *q)
{
    if (!dtype_is_float(q->v->dtype)) return term_refuse(tm(q), "'%s': division of integers", q->node->name);
    return term_mul(tm(q), operand(q, 0), term_power(tm(q), operand(q, 1), -2));
}

static Term *element_negate(const Ask *q) { return term_scale(tm(q), operand(q, 0), -1, 1); }

static Term *element_power(const Ask *q)
{
    int64_t halves;
    switch (q->node->op->id) {
    case OP_square: halves = 4; break;
    case OP_sqrt: halves = 1; break;
    case OP_rsqrt: halves = -1; break;
    case OP_reciprocal: halves = -2; break;
    default: {
        const Arg *e = arg(q, 1);
        if (e->kind != ARG_EXPR || !ex_is_const(e->e)) return term_refuse(tm(q), "'%s': a power", q->node->name);
        double h = 2 * ex_number(e->e);
        if (h < -8 || h > 16 || h != (double)(int64_t)h) return term_refuse(tm(q), "'%s': a power", q->node->name);
        halves = (int64_t)h;
    }
    }
    return term_power(tm(q), operand(q, 0), halves);
}

static Term *element_exponential(const Ask *q) { return term_exp(tm(q), operand(q, 0)); }

static Term *element_sigmoid(const Ask *q)
{
    Term *x = operand(q, 0);
    Term *s = term_add(tm(q), term_number(tm(q), 1, 1), term_exp(tm(q), term_scale(tm(q), x, -1, 1)));
    s = term_power(tm(q), s, -2);
    return q->node->op->id == OP_silu ? term_mul(tm(q), x, s) : s;
}

static Term *element_gelu(const Ask *q)
{
    Term *x = operand(q, 0), *y;
    bool by_tanh = arg(q, 1)->kind == ARG_STR && !strcmp(arg(q, 1)->s, "tanh");
    if (by_tanh) {
        Term *cube = term_mul(tm(q), term_double(tm(q), 0.044715), term_power(tm(q), x, 6));
        y = term_mul(tm(q), term_double(tm(q), 0.7978845608028654), term_add(tm(q), x, cube));
    } else y = term_mul(tm(q), term_double(tm(q), 0.7071067811865476), x);
    y = y ? term_call(tm(q), by_tanh ? OP_tanh : OP_erf, false, 1, &y) : NULL;
    return term_scale(tm(q), term_mul(tm(q), x, term_add(tm(q), term_number(tm(q), 1, 1), y)), 1, 2);
}

/* A pointwise op of which nothing is known but that it is a function of its operands. */
static Term *element_function(const Ask *q)
{
    Term *a[8];
    int n = 0;
    for (int k = 0; k < q->node->op->schema->nparams; k++) {
        if (arg(q, k)->kind == ARG_NONE) continue;
        if (n == 8 || (arg(q, k)->kind != ARG_VALUE && arg(q, k)->kind != ARG_EXPR))
            return term_refuse(tm(q), "'%s': %s has an argument without a lemma", q->node->name, q->node->op->name);
        if (!(a[n++] = operand(q, k))) return NULL;
    }
    if (n > 1 && q->node->op->schema->nparams != n)
        return term_refuse(tm(q), "'%s': %s without a lemma", q->node->name, q->node->op->name);
    return term_call(tm(q), (int)q->node->op->id, q->v->dtype == DT_BOOL, n, a);
}

/* ------------------------------------------------------------------ sums */

static Term *dot(const Ask *q, const Value *a, Expr **ai, const Value *b, Expr **bi, Expr **slot_a, Expr **slot_b,
                 Expr *extent)
{
    int depth = q->c->depth;
    Expr *j = fresh(q, extent);
    *slot_a = *slot_b = j;
    Term *body = term_mul(tm(q), element(q->c, q->side, a, ai), element(q->c, q->side, b, bi));
    q->c->depth = depth;
    return term_over(tm(q), T_SUM, j, extent, body);
}

static void leading(const Ask *q, const Value *v, int own, int of, Expr **at)
{
    for (int i = 0; i < v->rank - own; i++)
        at[i] = ex_equals_int(v->dim[i], 1) ? ex_int(pool(q), 0) : q->idx[q->rank - of - (v->rank - own) + i];
}

static Term *element_matmul(const Ask *q)
{
    const Value *a = arg(q, 0)->v, *b = arg(q, 1)->v;
    Expr *ai[MAX_RANK], *bi[MAX_RANK];
    if (a->rank < 2 || b->rank < 2) return term_refuse(tm(q), "'%s': a product of vectors", q->node->name);
    leading(q, a, 2, 2, ai);
    leading(q, b, 2, 2, bi);
    ai[a->rank - 2] = q->idx[q->rank - 2];
    bi[b->rank - 1] = q->idx[q->rank - 1];
    return dot(q, a, ai, b, bi, &ai[a->rank - 1], &bi[b->rank - 2], dim(q, a, a->rank - 1));
}

static Term *element_linear(const Ask *q)
{
    const Value *x = arg(q, 0)->v, *w = arg(q, 1)->v;
    Expr *xi[MAX_RANK], *wi[2];
    if (w->rank != 2 || x->rank < 1) return term_refuse(tm(q), "'%s': a weight of rank %d", q->node->name, w->rank);
    memcpy(xi, q->idx, (size_t)q->rank * sizeof *xi);
    wi[0] = q->idx[q->rank - 1];
    Term *y = dot(q, x, xi, w, wi, &xi[x->rank - 1], &wi[1], dim(q, w, 1));
    if (arg(q, 2)->kind != ARG_VALUE) return y;
    return term_add(tm(q), y, element(q->c, q->side, arg(q, 2)->v, &wi[0]));
}

static Term *element_softmax(const Ask *q)
{
    const Value *x = arg(q, 0)->v;
    int d = axis(q, arg(q, 1)->e, x->rank), depth = q->c->depth;
    Expr *at[MAX_RANK];
    if (d < 0 || d >= x->rank) return NULL;
    memcpy(at, q->idx, (size_t)q->rank * sizeof *at);
    Term *top = term_exp(tm(q), element(q->c, q->side, x, at));
    at[d] = fresh(q, dim(q, x, d));
    Term *all = term_exp(tm(q), element(q->c, q->side, x, at));
    q->c->depth = depth;
    all = term_over(tm(q), T_SUM, at[d], dim(q, x, d), all);
    return term_mul(tm(q), top, term_power(tm(q), all, -2));
}

static Expr *batch(const Ask *q, const Value *v)
{
    return ex_equals_int(v->dim[0], 1) ? ex_int(pool(q), 0) : q->idx[0];
}

/* Of key j: scale q . k, capped, with what masks and bounds add. */
static Term *score(const Ask *q, Expr *kv, Expr *j)
{
    const Value *Q = arg(q, 0)->v, *K = arg(q, 1)->v;
    Expr *qi[4] = {batch(q, Q), q->idx[1], q->idx[2], NULL}, *ki[4] = {batch(q, K), kv, j, NULL};
    Expr *at[4] = {q->idx[0], q->idx[1], q->idx[2], j};
    Term *s = dot(q, Q, qi, K, ki, &qi[3], &ki[3], dim(q, Q, 3));
    Term *scale = arg(q, 6)->kind == ARG_EXPR ? number_of(q, arg(q, 6)->e)
                                              : term_power(tm(q), term_index(tm(q), dim(q, Q, 3)), -1);
    s = term_mul(tm(q), s, scale);
    double cap = arg(q, 8)->kind == ARG_EXPR && ex_is_const(arg(q, 8)->e) ? ex_number(arg(q, 8)->e) : 0;
    if (cap != 0) {
        s = term_mul(tm(q), s, term_power(tm(q), term_double(tm(q), cap), -2));
        s = s ? term_mul(tm(q), term_double(tm(q), cap), term_call(tm(q), OP_tanh, false, 1, &s)) : NULL;
    }
    if (arg(q, 3)->kind == ARG_VALUE) {
        Term *m = broadcast(q, arg(q, 3)->v, at, 4);
        s = term_add(tm(q), s, arg(q, 3)->v->dtype == DT_BOOL ? term_mask(tm(q), m) : m);
    }
    bool causal = arg(q, 5)->kind == ARG_EXPR && arg(q, 5)->e->i;
    for (int k = 9; k < 11; k++) { /* i + lower <= j <= i + upper */
        Expr *by = arg(q, k)->kind == ARG_EXPR ? here(q, arg(q, k)->e) : k == 10 && causal ? ex_int(pool(q), 0) : NULL;
        if (!by) continue;
        Expr *over = ex_sub(pool(q), ex_add(pool(q), q->idx[2], by), j);
        if (k == 9) over = ex_neg(pool(q), over);
        s = term_add(tm(q), s, term_mask(tm(q), term_test(tm(q), over)));
    }
    return s;
}

static Term *element_attention(const Ask *q)
{
    const Value *K = arg(q, 1)->v, *V = arg(q, 2)->v;
    if (q->rank != 4 || K->rank != 4 || V->rank != 4 || (arg(q, 4)->kind == ARG_EXPR && ex_number(arg(q, 4)->e) != 0))
        return term_refuse(tm(q), "'%s': an attention of another rank, or with dropout", q->node->name);
    if (arg(q, 5)->kind == ARG_EXPR && arg(q, 5)->e->i && arg(q, 10)->kind == ARG_EXPR)
        return term_refuse(tm(q), "'%s': causal, and bounded from above", q->node->name);
    Expr *H = dim(q, arg(q, 0)->v, 1), *own = dim(q, K, 1), *M = dim(q, K, 2), *G = ix_div(ix(q), H, own);
    if (!G || ex_mul(pool(q), G, own) != H) return term_refuse(tm(q), "'%s': heads do not divide", q->node->name);
    int depth = q->c->depth;
    Expr *kv = ix_div(ix(q), q->idx[1], G), *j = fresh(q, M), *vi[4] = {batch(q, V), kv, j, q->idx[3]};
    Term *e = term_exp(tm(q), score(q, kv, j));
    Term *y = term_mul(tm(q), e, element(q->c, q->side, V, vi));
    q->c->depth = depth;
    return term_mul(tm(q), term_over(tm(q), T_SUM, j, M, y), term_power(tm(q), term_over(tm(q), T_SUM, j, M, e), -2));
}

/* Over the axes of x that `gone` marks, whose indices in at are replaced: sums of f, with the count of elements. */
typedef struct Over {
    Expr *at[MAX_RANK], *var[MAX_RANK], *count;
    const Value *x;
    bool gone[MAX_RANK];
} Over;

static void over_open(const Ask *q, Over *o)
{
    o->count = ex_int(pool(q), 1);
    for (int i = 0; i < o->x->rank; i++) {
        if (!o->gone[i]) continue;
        Expr *n = dim(q, o->x, i);
        o->at[i] = o->var[i] = fresh(q, n);
        o->count = ex_mul(pool(q), o->count, n);
    }
}

static Term *over_close(const Ask *q, const Over *o, TermKind kind, Term *body)
{
    for (int i = o->x->rank - 1; i >= 0; i--)
        if (o->gone[i]) body = term_over(tm(q), kind, o->var[i], dim(q, o->x, i), body);
    return body;
}

static Term *per(const Ask *q, Term *sum, Expr *count)
{
    return term_mul(tm(q), sum, term_power(tm(q), term_index(tm(q), count), -2));
}

static Term *element_reduce(const Ask *q)
{
    const Arg *d = arg(q, 1);
    Over o = {.x = arg(q, 0)->v};
    bool keep = arg(q, 2)->kind == ARG_EXPR && arg(q, 2)->e->i;
    int depth = q->c->depth, k = 0;
    if (!dtype_is_float(q->v->dtype)) return term_refuse(tm(q), "'%s': a sum of integers", q->node->name);
    for (int i = 0; i < o.x->rank; i++) o.gone[i] = d->kind != ARG_EXPRS || d->n == 0;
    for (int i = 0; d->kind == ARG_EXPRS && i < d->n; i++) {
        int a = axis(q, d->es[i], o.x->rank);
        if (a < 0 || a >= o.x->rank) return NULL;
        o.gone[a] = true;
    }
    for (int i = 0; i < o.x->rank; i++) {
        if (!o.gone[i]) o.at[i] = q->idx[k];
        k += keep || !o.gone[i];
    }
    over_open(q, &o);
    Term *x = element(q->c, q->side, o.x, o.at);
    q->c->depth = depth;
    Term *r = over_close(q, &o, q->node->op->id == OP_amax ? T_MAX : T_SUM, x);
    return q->node->op->id == OP_mean_dim ? per(q, r, o.count) : r;
}

/* layer_norm and rms_norm: over as many last axes as normalized_shape has. */
static Term *element_norm(const Ask *q)
{
    bool centred = q->node->op->id == OP_layer_norm;
    const Arg *eps = arg(q, centred ? 4 : 3);
    int n = arg(q, 1)->n, depth = q->c->depth;
    Over o = {.x = arg(q, 0)->v};
    if (eps->kind != ARG_EXPR) return term_refuse(tm(q), "'%s': an epsilon of the dtype", q->node->name);
    memcpy(o.at, q->idx, (size_t)q->rank * sizeof *o.at);
    for (int i = q->rank - n; i < q->rank; i++) o.gone[i] = true;
    over_open(q, &o);
    Term *x = element(q->c, q->side, o.x, o.at), *own = element(q->c, q->side, o.x, q->idx), *zero = NULL;
    q->c->depth = depth;
    if (centred) {
        zero = term_scale(tm(q), per(q, over_close(q, &o, T_SUM, x), o.count), -1, 1);
        x = term_add(tm(q), x, zero);
        own = term_add(tm(q), own, zero);
    }
    Term *var = per(q, over_close(q, &o, T_SUM, term_mul(tm(q), x, x)), o.count);
    Term *y = term_mul(tm(q), own, term_power(tm(q), term_add(tm(q), var, number_of(q, eps->e)), -1));
    for (int k = 2; k < 3 + centred; k++)
        if (arg(q, k)->kind == ARG_VALUE) {
            Term *w = broadcast(q, arg(q, k)->v, q->idx, q->rank);
            y = k == 2 ? term_mul(tm(q), y, w) : term_add(tm(q), y, w);
        }
    return y;
}

static Term *element_batch_norm(const Ask *q)
{
    Term *w[5];
    bool known = arg(q, 3)->kind == ARG_VALUE && arg(q, 4)->kind == ARG_VALUE && !arg(q, 5)->e->i;
    if (!known || q->rank < 2) return term_refuse(tm(q), "'%s': statistics of the batch", q->node->name);
    for (int k = 1; k < 5; k++)
        w[k] = arg(q, k)->kind == ARG_VALUE ? element(q->c, q->side, arg(q, k)->v, &q->idx[1])
                                            : term_number(tm(q), k == 1, 1);
    Term *x = term_add(tm(q), operand(q, 0), term_scale(tm(q), w[3], -1, 1));
    x = term_mul(tm(q), x, term_power(tm(q), term_add(tm(q), w[4], number_of(q, arg(q, 7)->e)), -1));
    return term_add(tm(q), term_mul(tm(q), x, w[1]), w[2]);
}

/* ------------------------------------------------------------------ truth and positions */

static Term *element_where(const Ask *q)
{
    if (arg(q, 0)->kind != ARG_VALUE || arg(q, 0)->v->dtype != DT_BOOL)
        return term_refuse(tm(q), "'%s': a condition that is not a truth value", q->node->name);
    return term_where(tm(q), operand(q, 0), operand(q, 1), operand(q, 2));
}

static Term *element_conjunction(const Ask *q)
{
    for (int k = 0; k < 2; k++)
        if (q->v->dtype != DT_BOOL || arg(q, k)->kind != ARG_VALUE || arg(q, k)->v->dtype != DT_BOOL)
            return term_refuse(tm(q), "'%s': not of truth values", q->node->name);
    return term_mul(tm(q), operand(q, 0), operand(q, 1));
}

static Term *element_negation(const Ask *q)
{
    if (arg(q, 0)->v->dtype != DT_BOOL) return term_refuse(tm(q), "'%s': not of truth values", q->node->name);
    return term_add(tm(q), term_number(tm(q), 1, 1), term_scale(tm(q), operand(q, 0), -1, 1));
}

/* Elements on and below a diagonal, or on and above it; 0 elsewhere. */
static Term *element_triangle(const Ask *q)
{
    Expr *d = arg(q, 1)->kind == ARG_EXPR ? here(q, arg(q, 1)->e) : ex_int(pool(q), 0);
    Expr *below = ex_sub(pool(q), ex_add(pool(q), q->idx[q->rank - 2], d), q->idx[q->rank - 1]);
    if (q->node->op->id == OP_triu) below = ex_neg(pool(q), below);
    return term_mul(tm(q), term_test(tm(q), below), operand(q, 0));
}

static Term *element_compare(const Ask *q)
{
    Term *both[2] = {operand(q, 0), operand(q, 1)}, *minus = term_scale(tm(q), both[0], -1, 1);
    OpId id = q->node->op->id;
    if (arg(q, 0)->kind == ARG_VALUE && arg(q, 0)->v->dtype == DT_BOOL && both[1] && both[1]->n == 0)
        return id == OP_eq_Tensor   ? term_add(tm(q), term_number(tm(q), 1, 1), minus)
               : id == OP_ne_Tensor ? both[0]
                                    : term_refuse(tm(q), "'%s': an order of truth values", q->node->name);
    Expr *a = term_integer(tm(q), both[0]), *b = term_integer(tm(q), both[1]), *one = ex_int(pool(q), 1);
    bool integers = a && b && arg(q, 0)->kind == ARG_VALUE && !dtype_is_float(arg(q, 0)->v->dtype) &&
                    (arg(q, 1)->kind != ARG_VALUE || !dtype_is_float(arg(q, 1)->v->dtype));
    if (!integers || id == OP_eq_Tensor || id == OP_ne_Tensor) return term_call(tm(q), (int)id, true, 2, both);
    switch (id) {
    case OP_le_Tensor: return term_test(tm(q), ex_sub(pool(q), b, a));
    case OP_lt_Tensor: return term_test(tm(q), ex_sub(pool(q), ex_sub(pool(q), b, a), one));
    case OP_ge_Tensor: return term_test(tm(q), ex_sub(pool(q), a, b));
    default: return term_test(tm(q), ex_sub(pool(q), ex_sub(pool(q), a, b), one));
    }
}

/* What a dtype holds as it is: of integers and truth values, only what needs no rounding. */
static Term *made(const Ask *q, Term *v)
{
    const Expr *e = dtype_is_float(q->v->dtype) ? NULL : term_integer(tm(q), v);
    bool fits = dtype_is_float(q->v->dtype) || (e && (q->v->dtype != DT_BOOL || (e->kind == EX_INT && e->i >> 1 == 0)));
    return fits ? v : term_refuse(tm(q), "'%s': a number that its dtype rounds", q->node->name);
}

static Term *element_arange(const Ask *q)
{
    Term *i = term_mul(tm(q), number_arg(q, 2, 1), term_index(tm(q), q->idx[0]));
    return made(q, term_add(tm(q), number_arg(q, 0, 0), i));
}

static Term *element_full(const Ask *q) { return made(q, number_arg(q, 1, 0)); }

/* ------------------------------------------------------------------ elements */

static Term *leaf(Checker *c, int side, const Value *v, Expr *const *idx)
{
    int class = checker_class(c, side, v);
    Expr *at[MAX_RANK];
    bool number = v->kind == V_WEIGHT && v->data && dtype_is_float(v->dtype) && tensor_numel(v->data) == 1;
    number = number && (class < 0 || (v->weight == W_CONSTANT && v->rank == 0)); /* otherwise it may stand for itself */
    if (number && !graph_writes(c->side[side].g, v)) return term_double(&c->t, tensor_get(v->data, 0));
    if (class >= 0 && class < c->nclasses) {
        c->cut[class] = true;
        return term_leaf(&c->t, class, v->dtype == DT_BOOL, v->rank, idx);
    }
    for (int i = 0; i < c->npieces; i++) {
        const Piece *p = &c->piece[i];
        if (p->weight != v) continue;
        memcpy(at, idx, (size_t)v->rank * sizeof *at);
        at[0] = ex_sub(c->t.x.p, idx[0], ex_int(c->t.x.p, p->from));
        if (!ix_within(&c->t.x, at[0], ex_int(c->t.x.p, p->count))) continue;
        if (!p->of) return term_number(&c->t, 0, 1);
        c->cut[checker_class(c, SOURCE, p->of)] = true;
        return term_leaf(&c->t, checker_class(c, SOURCE, p->of), false, v->rank, at);
    }
    return term_refuse(&c->t, "'%s' has no counterpart in the source", v->name);
}

/* The step of a node: the one that was read, or, while recording, one more. */
static LemmaStep *step_of(Checker *c, int side, const Node *n)
{
    LemmaSteps *s = &c->steps[side];
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->step[i].node, n->name)) return &s->step[i];
    if (!c->recording) return NULL;
    LemmaStep *all = vec_room(c->arena, s->step, s->n, sizeof *all);
    if (!all) return NULL;
    s->step = all;
    all[s->n] = (LemmaStep){.node = n->name, .lemma = lemma_of(n->op)};
    return &all[s->n++];
}

static Term **memo_of(Checker *c, int side, const Value *v, Expr *const *idx)
{
    Term *key = term_leaf(&c->t, -1 - (2 * v->id + side), false, v->rank, idx);
    if (!key) return NULL;
    while (c->nmemo <= key->id) {
        Term **all = vec_room(c->t.arena, c->memo, c->nmemo, sizeof *all);
        if (!all) return NULL;
        all[c->nmemo++] = NULL;
        c->memo = all;
    }
    return &c->memo[key->id];
}

Term *element(Checker *c, int side, const Value *v, Expr *const *idx)
{
    int class = checker_class(c, side, v);
    if (!v->def || (class >= 0 && class < c->nclasses && c->leaf[class])) return leaf(c, side, v, idx);
    Term **memo = memo_of(c, side, v, idx);
    if (!memo || *memo) return memo ? *memo : NULL;
    if (++c->work > MAX_WORK) return term_refuse(&c->t, "more than %d elements are followed", MAX_WORK);
    if (v->out) return term_refuse(&c->t, "'%s' is another result of its node", v->name);
    LemmaStep *s = step_of(c, side, v->def);
    if (!s) return term_refuse(&c->t, "'%s' has no step", v->def->name);
    if (s->lemma < 0 || s->lemma != lemma_of(v->def->op))
        return term_refuse(&c->t, "'%s': %s has no lemma", v->def->name, v->def->op->name);
    if (s->map && (s->lemma == FUNCTION || lemmas[s->lemma].element != element_view))
        return term_refuse(&c->t, "'%s': %s takes no map", v->def->name, v->def->op->name);
    Ask q = {c, side, v->rank, v->def, v, idx, s};
    ptrdiff_t key = memo - c->memo;
    Term *r = s->lemma == FUNCTION ? element_function(&q) : lemmas[s->lemma].element(&q);
    if (!r) return term_refuse(&c->t, "'%s': %s here has no lemma", v->def->name, v->def->op->name);
    for (int i = 0; i < c->steps[side].n; i++) /* the list may have grown */
        if (!strcmp(c->steps[side].step[i].node, v->def->name)) c->steps[side].step[i].visited = true;
    return c->memo[key] = r;
}
