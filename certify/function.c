/* Functions of operands of which nothing more is known: ops without a lemma, lookups at places that are data.
 * Contract: element.h.
 *
 *     w[i]        the function of w that i is looked up in, of i
 *     sort(x)     a function of the place, of x's rank, sizes and elements, and of the numbers and words beside it
 */
#include <string.h>
#include "certify/element.h"

enum { OF_TENSORS = 1 << 24, LOOKED_UP = 1 << 25, PLACE = -1 }; /* tags of calls, beside those of ops and casts */

/* What an op without a lemma is a function of, one after the other: nothing of one op is also something else. */
enum { MOST_LISTED = 96 };
typedef struct Listed {
    Term *a[MOST_LISTED];
    int n;
} Listed;

static bool list(Listed *l, Term *e)
{
    if (!e || l->n == MOST_LISTED) return false;
    l->a[l->n++] = e;
    return true;
}

static bool list_number(Reader *r, Listed *l, int64_t v) { return list(l, term_number(r->t, v, 1)); }

/* A pool takes pictures with a batch and without one, which is a batch of one. Does it lack it here? */
static bool lacks_batch(const Reader *r)
{
    const Arg *a = r->node->arg;
    int size = op_param(r->node->op, "kernel_size");
    if (size < 0) size = op_param(r->node->op, "output_size");
    return size > 0 && a->kind == ARG_VALUE && a[size].kind == ARG_EXPRS && a->v->rank == a[size].n + 1;
}

/* A tensor: rank, integers or floats, sizes, and the function that its elements are of their places. */
static bool list_tensor(Reader *r, Listed *l, const Value *x)
{
    Expr *var[MAX_RANK], *one = ex_int(r->p, 1), *alone = NULL;
    int depth = r->c->depth;
    if (!x) return list_number(r, l, -1);
    int64_t dtype = dtype_is_float(x->dtype) ? -1 : (int64_t)x->dtype;
    bool batch = x == r->node->arg[0].v && lacks_batch(r);
    TRY(!dtype_is_complex(x->dtype) && list_number(r, l, x->rank + batch) && list_number(r, l, dtype));
    if (batch) TRY((alone = fresh(r, one)) && list_number(r, l, 1));
    for (int i = 0; i < x->rank; i++) {
        TRY(list(l, term_index(r->t, size_of(r, x, i))));
        var[i] = fresh(r, size_of(r, x, i));
    }
    Term *e = element(r->c, r->side, x, var);
    r->c->depth = depth;
    for (int i = x->rank - 1; i >= 0; i--) e = term_over(r->t, T_EACH, var[i], size_of(r, x, i), e);
    return list(l, batch ? term_over(r->t, T_EACH, alone, one, e) : e);
}

/* An element at a place that is data, of a tensor that is not a leaf. */
static Term *looked_up(Reader *r, const Value *x, Term **at)
{
    Listed l = {.n = 0};
    bool ok = true;
    for (int i = 0; ok && i < x->rank; i++) ok = list(&l, at[i]);
    ok = ok && list_tensor(r, &l, x);
    return ok ? term_call(r->t, LOOKED_UP, x->dtype == DT_BOOL, l.n, l.a) : wrong(r);
}

/* Does the source look up place i of n, elsewhere an error? It then does from here on. */
static bool looks(Reader *r, Term *i, Expr *n, bool from_now)
{
    Term *place = term_call(r->t, PLACE, true, 2, (Term *[]){i, term_index(r->t, n)});
    if (place && from_now) place->looked = true;
    return place && place->looked;
}

/* Is i an element of a weight whose integers are all within n? */
static bool numbers_within(Reader *r, const Term *i, Expr *n)
{
    const Operand *f = term_factor(i);
    if (!f || f->t->kind != T_LEAF || f->p != f->q) return false;
    const Value *v = r->c->of_class[f->t->tag];
    int64_t most = -1;
    bool all = v->data && dtype_is_int(v->dtype) && !graph_writes(r->c->side[SOURCE].g, v);
    for (int64_t k = 0; all && k < tensor_numel(v->data); k++) {
        int64_t own = tensor_get_i64(v->data, k);
        all = own >= 0;
        if (own > most) most = own;
    }
    return all && ix_within(&r->t->x, ex_int(r->p, most), n);
}

/* An index of a lookup. The source is said where its indices are inside; the result must not ask for more. */
Term *element_place(Reader *r, Term *i, Expr *n)
{
    Term *own = i ? term_unwrapped(i, term_index(r->t, n)) : NULL;
    if (own && (looks(r, own, n, false) || numbers_within(r, own, n))) return own;
    if (!i || ix_within(&r->t->x, term_integer(r->t, i), n) || numbers_within(r, i, n)) return i;
    if (looks(r, i, n, r->side == SOURCE)) return i;
    return term_refuse(r->t, "'%s': an index that the source may not look up", r->node->name);
}

/* The same of x[i, j], where a negative one counts from the end. */
Term *element_from_end(Reader *r, Term *i, Expr *n)
{
    Expr *e = i ? term_integer(r->t, i) : NULL, *end = e ? ex_add(r->p, e, n) : NULL;
    if (!i || (e && ix_nonneg(&r->t->x, e)) || numbers_within(r, i, n)) return element_place(r, i, n);
    bool below = e && ix_nonneg(&r->t->x, ex_sub(r->p, ex_int(r->p, -1), e));
    return element_place(r, below ? term_index(r->t, end) : term_wrapped(r->t, i, term_index(r->t, n)), n);
}

/* Element `at` of x; where that is data a lookup: a function of it. */
Term *element_at(Reader *r, const Value *x, Term **at)
{
    Expr *idx[MAX_RANK];
    bool known = true;
    for (int i = 0; i < x->rank; i++) {
        if (!at[i]) return NULL;
        known = (idx[i] = term_integer(r->t, at[i])) && known;
    }
    if (known) return element(r->c, r->side, x, idx);
    int class = checker_class(r->c, r->side, x);
    bool leaf = class >= 0 && class < r->c->nclasses && (!x->def || r->c->leaf[class]);
    if (!leaf) return looked_up(r, x, at);
    r->c->cut[class] = true;
    return term_call(r->t, -2 - class, x->dtype == DT_BOOL, x->rank, at);
}

/* A pointwise op of which nothing is known but that it is a function of its operands. */
Term *element_function(Reader *r)
{
    Term *a[MAX_NAMES];
    int n = 0;
    for (int k = 0; k < r->node->op->schema->nparams; k++) {
        ArgKind kind = r->node->arg[k].kind;
        if (n == MAX_NAMES || (kind != ARG_VALUE && kind != ARG_EXPR && kind != ARG_NONE)) return wrong(r);
        r->at = "";
        a[n] = kind == ARG_NONE ? term_call(r->t, OP_NONE, false, 0, NULL) : element_operand(r, &r->node->arg[k]);
        if (!a[n++]) return NULL;
    }
    if (r->node->op->flags & OPF_AS_STORED) {
        if (r->node->op->id != OP_nan_to_num || n == MAX_NAMES)
            return term_refuse(r->t, "%s reads bytes or the sign of 0, of what is equal over the reals alone",
                               r->node->op->name);
        a[n++] = term_number(r->t, (int64_t)r->v->dtype, 1);
    }
    return term_call(r->t, (int)r->node->op->id, r->v->dtype == DT_BOOL, n, a);
}

static bool list_argument(Reader *r, Listed *l, int param)
{
    const Arg *a = &r->node->arg[param], *first = r->node->arg;
    bool dim = first->kind == ARG_VALUE && !strcmp(r->node->op->schema->params[param].name, "dim");
    int d = dim && a->kind == ARG_EXPR ? axis_of(a->e, first->v->rank) : -1;
    TRY(a->kind != ARG_GRAPH && list_number(r, l, a->kind));
    if (a->kind == ARG_VALUES || a->kind == ARG_EXPRS) TRY(list_number(r, l, a->n));
    switch (a->kind) {
    case ARG_VALUE: return list_tensor(r, l, a->v);
    case ARG_EXPR: return d < 0 ? list(l, element_number(r, a->e)) : list_number(r, l, d);
    case ARG_DTYPE: return list_number(r, l, (int64_t)a->dtype);
    case ARG_VALUES:
        for (int i = 0; i < a->n; i++) TRY(list_tensor(r, l, a->vs[i]));
        return true;
    case ARG_EXPRS:
        for (int i = 0; i < a->n; i++) TRY(list(l, element_number(r, a->es[i])));
        return true;
    case ARG_STR:
        for (const char *w = a->s; *w; w++) TRY(list_number(r, l, (unsigned char)*w));
        return list_number(r, l, 0);
    default: return true;
    }
}

/* An op of which nothing is known but that it computes the same of the same tensors, numbers and words. */
Term *element_of_tensors(Reader *r)
{
    Listed l = {.n = 0};
    bool ok = !(r->node->op->flags & (OPF_RANDOM | OPF_EFFECT | OPF_AS_STORED)) && list_number(r, &l, r->v->out);
    if (ok && lacks_batch(r)) ok = list_number(r, &l, 0);
    for (int i = 0; ok && i < r->rank; i++) ok = list(&l, term_index(r->t, r->idx[i]));
    for (int k = 0; ok && k < r->node->op->schema->nparams; k++) ok = list_argument(r, &l, k);
    return ok ? term_call(r->t, OF_TENSORS + (int)r->node->op->id, r->v->dtype == DT_BOOL, l.n, l.a) : wrong(r);
}
