/* What an element of each op's result is: reads the lemmas of lemmas.def. Contract of element: certify.h. */
#include <math.h>
#include <string.h>
#include "base/jsonw.h"
#include "base/number.h"
#include "base/vec.h"
#include "certify/element.h"

enum { MAX_WORK = 4000, MAX_DEFINITIONS = 12, NO_LEMMA = -1 };
enum { OF_TENSORS = 1 << 24, LOOKED_UP = 1 << 25, PLACE = -1 }; /* tags of calls, beside those of ops and casts */

static const struct {
    OpId op;
    int out;
    const char *name, *element;
} lemmas[] = {
#define LEMMA(op, out, name, element) {OP_##op, out, name, element},
#include "certify/lemmas.def"
#undef LEMMA
};
enum { FUNCTION = sizeof lemmas / sizeof *lemmas };

static int lemma_of(const Op *op, int out)
{
    for (int i = 0; i < FUNCTION; i++)
        if (lemmas[i].op == op->id && lemmas[i].out == out) return i;
    return !out && (op->flags & (OPF_POINTWISE | OPF_RANDOM)) == OPF_POINTWISE ? FUNCTION : NO_LEMMA;
}

bool element_is_known(const Value *v) { return !v->def || lemma_of(v->def->op, v->out) != NO_LEMMA; }

static Term absent = {.n = -1}; /* what is missing or passed over */
static Term *expression(Reader *r);

/* ------------------------------------------------------------------ words and operands */

static bool take(Reader *r, const char *token)
{
    while (*r->at == ' ') r->at++;
    size_t n = strlen(token);
    if (strncmp(r->at, token, n)) return false;
    r->at += n;
    return true;
}

static int word(Reader *r, const char **w)
{
    take(r, "");
    *w = r->at;
    while (is_alnum(*r->at) || *r->at == '_') r->at++;
    return (int)(r->at - *w);
}

static bool is(const char *w, int n, const char *name)
{
    return strlen(name) == (size_t)n && !memcmp(w, name, (size_t)n);
}

static const Arg *argument(const Reader *r, const char *w, int n)
{
    for (int k = 0; k < r->node->op->schema->nparams; k++)
        if (is(w, n, r->node->op->schema->params[k].name)) return &r->node->arg[k];
    return NULL;
}

static Term *to_power(Reader *r, Term *e, Term *by);

/* A size in arithmetic of floats: n ** -0.5, 1 / sqrt(n), 0.5 * n. NULL: it is something else. */
static Term *of_sizes(Reader *r, const Expr *e)
{
    Term *a = element_number(r, e->args[0]), *b = e->nargs > 1 ? element_number(r, e->args[1]) : NULL;
    switch (e->kind) {
    case EX_ADD: return term_add(r->t, a, b);
    case EX_MUL: return element_times(r, a, b);
    case EX_TRUEDIV: return element_times(r, a, term_power(r->t, b, -2));
    case EX_SQRT: return term_power(r->t, a, 1);
    case EX_POW: return a && b ? to_power(r, a, b) : NULL;
    default: return NULL;
    }
}

Term *element_number(Reader *r, const Expr *e)
{
    if (e->kind == EX_FLOAT) return term_double(r->t, e->f);
    if (e->kind == EX_TOFLOAT) return element_number(r, e->args[0]);
    if (e->kind == EX_BOOL) return term_number(r->t, e->i, 1);
    if (e->kind == EX_LT || e->kind == EX_LE) {
        Term *a = element_number(r, e->args[0]), *b = element_number(r, e->args[1]), *least = e->kind == EX_LE ? a : b;
        Term *le = term_nonneg(r->t, term_add(r->t, least == a ? b : a, term_scale(r->t, least, -1, 1)));
        return e->kind == EX_LE ? le : term_add(r->t, term_number(r->t, 1, 1), term_scale(r->t, le, -1, 1));
    }
    Term *size = e->is_float && e->nargs ? of_sizes(r, e) : NULL;
    return size ? size : term_index(r->t, checker_expr(r->c, r->side, e));
}

/* An axis by number, or by the argument that names it. */
static int axis(Reader *r, int rank)
{
    const char *w;
    take(r, "");
    if (is_digit(*r->at) || *r->at == '-') return axis_of(ex_int(r->p, parse_int(r->at, &r->at)), rank);
    int n = word(r, &w);
    const Arg *a = argument(r, w, n);
    return a && a->kind == ARG_EXPR ? axis_of(a->e, rank) : -1;
}

/* 0 times what may be infinite is NaN. */
Term *element_times(Reader *r, Term *a, Term *b)
{
    bool known = a && b && (!a->infinite || term_positive(b)) && (!b->infinite || term_positive(a));
    if (a && b && !known) return term_refuse(r->t, "'%s': what may be infinite is multiplied", r->node->name);
    return term_mul(r->t, a, b);
}

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

/* A tensor: rank, integers or floats, sizes, and the function that its elements are of their places. */
static bool list_tensor(Reader *r, Listed *l, const Value *x)
{
    Expr *var[MAX_RANK];
    int depth = r->c->depth;
    if (!x) return list_number(r, l, -1);
    int64_t dtype = dtype_is_float(x->dtype) ? -1 : (int64_t)x->dtype;
    TRY(!dtype_is_complex(x->dtype) && list_number(r, l, x->rank) && list_number(r, l, dtype));
    for (int i = 0; i < x->rank; i++) {
        TRY(list(l, term_index(r->t, size_of(r, x, i))));
        var[i] = fresh(r, size_of(r, x, i));
    }
    Term *e = element(r->c, r->side, x, var);
    r->c->depth = depth;
    for (int i = x->rank - 1; i >= 0; i--) e = term_over(r->t, T_EACH, var[i], size_of(r, x, i), e);
    return list(l, e);
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
static Term *place(Reader *r, Term *i, Expr *n)
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
    if (!i || (e && ix_nonneg(&r->t->x, e)) || numbers_within(r, i, n)) return place(r, i, n);
    bool below = e && ix_nonneg(&r->t->x, ex_sub(r->p, ex_int(r->p, -1), e));
    return place(r, below ? term_index(r->t, end) : term_wrapped(r->t, i, term_index(r->t, n)), n);
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

static Term *operand(Reader *r, const Arg *a)
{
    Term *at[MAX_RANK] = {NULL};
    const Value *x = a->kind == ARG_VALUE ? a->v : NULL;
    bool optional = take(r, "?"), list = r->at[0] == '(', some = r->at[0] == '[', first = take(r, "(...)");
    if (a->kind != ARG_VALUE && a->kind != ARG_EXPR && !optional && !r->skip) return wrong(r);
    for (int i = 0; !r->skip && x && i < x->rank; i++) { /* broadcast */
        int k = first ? i : r->rank - x->rank + i;
        if (!list && k >= 0 && k < r->rank) at[i] = term_index(r->t, r->idx[k]);
        if (!first && ex_equals_int(x->dim[i], 1)) at[i] = term_number(r->t, 0, 1);
        if (first && k < r->rank) at[i] = term_index(r->t, r->idx[k]);
    }
    for (int i = 0; !first && (list || some) && (i == 0 ? take(r, list ? "(" : "[") : take(r, ",")); i++) {
        int d = list ? i : axis(r, x ? x->rank : MAX_RANK);
        if (some && !take(r, ":")) return wrong(r);
        Term *e = expression(r);
        if (!e || (x && !r->skip && !optional && (d < 0 || d >= x->rank))) return e ? wrong(r) : NULL;
        bool looked = x && !r->skip && d >= 0 && d < x->rank && r->node->op->flags & OPF_PICKS;
        if (looked && !(e = place(r, e, size_of(r, x, d)))) return NULL;
        if (x && !r->skip && d >= 0 && d < x->rank && !ex_equals_int(x->dim[d], 1)) at[d] = e;
    }
    if (!first && (list || some) && !take(r, list ? ")" : "]")) return wrong(r);
    if (r->skip || (!x && a->kind != ARG_EXPR)) return &absent;
    return x ? element_at(r, x, at) : element_number(r, a->e);
}

/* ------------------------------------------------------------------ lemmas about dtypes */

/* An integer as the result's dtype holds it: those of 8 and 16 bits may wrap. */
static Term *wraps(Reader *r, Term *e)
{
    DType to = r->v->dtype;
    bool narrow = e && dtype_is_int(to) && dtype_size(to) < 4;
    if (!narrow || term_is_truth(e) || ix_within(&r->t->x, term_integer(r->t, e), ex_int(r->p, 128))) return e;
    return term_call(r->t, OP_to_copy * 256 + (int)to, false, 1, &e);
}

static Term *cast(Reader *r)
{
    const Value *x = r->node->arg[0].v;
    DType from = x->dtype, to = r->v->dtype;
    if (dtype_is_complex(from) || dtype_is_complex(to)) return wrong(r);
    Term *e = element(r->c, r->side, x, r->idx);
    if (!e || from == to || dtype_is_float(to)) return e;
    if (to == DT_BOOL)
        return term_add(r->t, term_number(r->t, 1, 1),
                        term_scale(r->t, term_same(r->t, e, term_number(r->t, 0, 1)), -1, 1));
    if (dtype_is_float(from)) return term_call(r->t, OP_to_copy * 256 + (int)to, false, 1, &e);
    return from == DT_BOOL ? e : wraps(r, e);
}

/* Beside integers of 8 and 16 bits a number becomes one of them. Is it one? */
static bool numbers_fit(Reader *r)
{
    const Node *n = r->node;
    DType to = DT_NONE;
    for (int k = 0; k < n->op->schema->nparams; k++) {
        const Value *v = n->arg[k].kind == ARG_VALUE ? n->arg[k].v : NULL;
        if (v && dtype_is_int(v->dtype) && dtype_size(v->dtype) < 4) to = v->dtype;
    }
    for (int k = 0; to != DT_NONE && k < n->op->schema->nparams; k++) {
        const Arg *a = &n->arg[k];
        if (a->kind != ARG_EXPR || a->e->is_float || a->e->is_bool) continue;
        Expr *least = ex_int(r->p, (int64_t)dtype_lowest(to)), *most = ex_int(r->p, (int64_t)dtype_highest(to) + 1);
        Expr *over = ex_sub(r->p, checker_expr(r->c, r->side, a->e), least);
        if (!ix_within(&r->t->x, over, ex_sub(r->p, most, least))) return false;
    }
    return true;
}

/* Does an op compute numbers, which its dtype may not hold, rather than pass on those of its operands? */
static bool computes(const Reader *r, int id)
{
    static const char *const passes[] = {"cast", "cat", "pad", "write", "where", "triangle"};
    bool does = id != NO_LEMMA && !(r->node->op->flags & (OPF_VIEW | OPF_PICKS));
    for (size_t i = 0; does && id != FUNCTION && i < sizeof passes / sizeof *passes; i++)
        does = strcmp(lemmas[id].name, passes[i]) != 0;
    return does;
}

/* where(j < 0, j + n, j), as indices of ONNX are read: an index that counts from the end. NULL: it is another. */
static Term *wrapped(Reader *r)
{
    const Arg *a = r->node->arg;
    const Node *below = a[0].kind == ARG_VALUE ? a[0].v->def : NULL;
    const Node *plus = a[1].kind == ARG_VALUE ? a[1].v->def : NULL;
    const Value *j = a[2].kind == ARG_VALUE && dtype_is_int(r->v->dtype) ? a[2].v : NULL;
    bool so = j && below && plus && below->op->id == OP_lt_Tensor && plus->op->id == OP_add_Tensor &&
              below->arg[0].kind == ARG_VALUE && below->arg[0].v == j && plus->arg[0].kind == ARG_VALUE &&
              plus->arg[0].v == j && plus->arg[2].kind == ARG_EXPR && ex_equals_int(plus->arg[2].e, 1);
    r->at = "";
    const Term *zero = so ? operand(r, &below->arg[1]) : NULL;
    Term *i = zero && zero->n == 0 ? operand(r, &a[2]) : NULL;
    return i && !term_integer(r->t, i) ? term_wrapped(r->t, i, operand(r, &plus->arg[1])) : NULL;
}

/* A pointwise op of which nothing is known but that it is a function of its operands. */
static Term *function(Reader *r)
{
    Term *a[MAX_NAMES];
    int n = 0;
    for (int k = 0; k < r->node->op->schema->nparams; k++) {
        ArgKind kind = r->node->arg[k].kind;
        if (n == MAX_NAMES || (kind != ARG_VALUE && kind != ARG_EXPR && kind != ARG_NONE)) return wrong(r);
        r->at = "";
        a[n] = kind == ARG_NONE ? term_call(r->t, OP_NONE, false, 0, NULL) : operand(r, &r->node->arg[k]);
        if (!a[n++]) return NULL;
    }
    if (r->node->op->flags & OPF_AS_STORED) {
        if (r->node->op->id != OP_nan_to_num || n == MAX_NAMES) return wrong(r); /* of bytes and signs of 0 */
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
static Term *of_tensors(Reader *r)
{
    Listed l = {.n = 0};
    bool ok = !(r->node->op->flags & (OPF_RANDOM | OPF_EFFECT | OPF_AS_STORED)) && list_number(r, &l, r->v->out);
    for (int i = 0; ok && i < r->rank; i++) ok = list(&l, term_index(r->t, r->idx[i]));
    for (int k = 0; ok && k < r->node->op->schema->nparams; k++) ok = list_argument(r, &l, k);
    return ok ? term_call(r->t, OF_TENSORS + (int)r->node->op->id, r->v->dtype == DT_BOOL, l.n, l.a) : wrong(r);
}

/* ------------------------------------------------------------------ the language of lemmas */

/* sum(k < n, e) */
static Term *over_variable(Reader *r, const char *name, int n)
{
    Expr *extent = term_integer(r->t, expression(r)), *var = r->skip ? NULL : fresh(r, extent);
    if (!take(r, ",") || (!var && !r->skip) || r->nvars == MAX_NAMES) return wrong(r);
    int at = r->nvars++;
    r->name[at].name = name;
    r->name[at].n = n;
    r->name[at].body = NULL;
    r->name[at].e = var;
    Term *e = expression(r);
    r->nvars = at;
    return r->skip ? &absent : term_over(r->t, T_SUM, var, extent, e);
}

static bool over_axis(const Reader *r, const Arg *a, const char *name, int n, int i)
{
    if (is(name, n, "normalized_shape")) return i >= r->rank - a->n;
    if (is(name, n, "spatial")) return i > 1;
    if (a->kind == ARG_EXPR) return axis_of(a->e, r->rank) == i;
    for (int k = 0; a->kind == ARG_EXPRS && k < a->n; k++)
        if (axis_of(a->es[k], r->rank) == i) return true;
    return a->kind == ARG_NONE || (a->kind == ARG_EXPRS && a->n == 0);
}

/* sum(dim: e): over these axes of the first operand, whose index the place is. */
static Term *over_axes(Reader *r, const char *how, const char *name, int n)
{
    Expr *var[MAX_RANK] = {NULL}, *size[MAX_RANK], *count = ex_int(r->p, 1);
    const Arg *a = argument(r, name, n);
    const Value *x = r->node->arg[0].v;
    if ((!a && !is(name, n, "spatial")) || x->rank != r->rank) return wrong(r);
    Expr *before[MAX_RANK];
    memcpy(before, r->idx, sizeof before);
    for (int i = 0; !r->skip && i < r->rank; i++) {
        if (!over_axis(r, a, name, n, i)) continue;
        count = ex_mul(r->p, count, size[i] = size_of(r, x, i));
        r->idx[i] = var[i] = fresh(r, size[i]);
    }
    Term *e = expression(r);
    memcpy(r->idx, before, sizeof before);
    for (int i = r->rank - 1; i >= 0; i--)
        if (var[i]) e = term_over(r->t, *how == 'm' && how[1] == 'a' ? T_MAX : T_SUM, var[i], size[i], e);
    return *how == 'm' && how[1] == 'e' && !r->skip ? term_mul(r->t, e, term_power(r->t, term_index(r->t, count), -2))
                                                    : e;
}

static Term *over(Reader *r, const char *how)
{
    const char *name;
    int n = word(r, &name), depth = r->c->depth;
    Term *e = take(r, "<") ? over_variable(r, name, n) : take(r, ":") ? over_axes(r, how, name, n) : wrong(r);
    r->c->depth = depth;
    return e;
}

static bool nonzero(const Term *v) { return v && v != &absent && v->n > 0; }

static Term *choice(Reader *r)
{
    bool outer = r->skip;
    Term *c = expression(r), *e = &absent;
    for (int k = 0; k < 2 && take(r, ","); k++) {
        r->skip = outer || nonzero(c) != (k == 0);
        Term *one = expression(r);
        if (!r->skip) e = one;
    }
    r->skip = outer;
    return c ? e : NULL;
}

/* What is known of an argument: is it there; is it true or false, or a number that is; is it an integer; is it this
 * word; its size. */
static Term *known(Reader *r, const char *what)
{
    const char *w, *word_is;
    int n = word(r, &w), m, d;
    const Arg *a = argument(r, w, n);
    const Value *x = is(w, n, "result") ? r->v : a && a->kind == ARG_VALUE ? a->v : NULL;
    bool yes = (a && a->kind != ARG_NONE) || x;
    if (*what == 's') {
        d = take(r, ",") ? axis(r, x ? x->rank : MAX_RANK) : -1;
        return r->skip ? &absent : !x || d < 0 ? wrong(r) : term_index(r->t, size_of(r, x, d));
    }
    if (*what == 't')
        yes = x ? x->dtype == DT_BOOL
                : a && a->kind == ARG_EXPR &&
                      (ex_equals_int(a->e, 0) || ex_equals_int(a->e, 1) || a->e->kind == EX_BOOL);
    if (*what == 'i' && what[1] == 'n') yes = x && dtype_is_int(x->dtype);
    else if (*what == 'i') {
        m = take(r, ",") ? word(r, &word_is) : 0;
        yes = yes && a && a->kind == ARG_STR && is(word_is, m, a->s);
    }
    return term_number(r->t, yes, 1);
}

static Term *quotient(Reader *r, Term *a, Term *b, bool exact)
{
    Expr *x = term_integer(r->t, a), *n = term_integer(r->t, b), *q = x && n ? ix_div(&r->t->x, x, n) : NULL;
    return !q || (exact && ex_mul(r->p, q, n) != x) ? wrong(r) : term_index(r->t, q);
}

/* A function of its arguments. */
static Term *applied(Reader *r, const char *w, int n)
{
    Term *a[3] = {&absent, &absent, &absent};
    char name[40];
    for (int k = 0; k < 3 && (k == 0 || take(r, ",")); k++)
        if (!(a[k] = expression(r))) return NULL;
    if (r->skip) return &absent;
    if (is(w, n, "exp")) return term_exp(r->t, a[0]);
    if (is(w, n, "nonneg")) return term_nonneg(r->t, a[0]);
    if (is(w, n, "same")) return term_same(r->t, a[0], a[1]);
    if (is(w, n, "largest")) return term_largest(r->t, a[0], a[1]);
    if (is(w, n, "mask")) return term_mask(r->t, a[0]);
    if (is(w, n, "where")) return term_where(r->t, a[0], a[1], a[2]);
    if (is(w, n, "whole")) return element_whole(r, a[0]);
    if (is(w, n, "index")) return term_number(r->t, term_integer(r->t, a[0]) != NULL, 1);
    if (is(w, n, "only")) return nonzero(a[0]) ? &absent : wrong(r);
    if (is(w, n, "div") || is(w, n, "exact")) return quotient(r, a[0], a[1], *w == 'e');
    int count = a[1] == &absent ? 1 : 2;
    text_printf(name, sizeof name, "aten.%.*s.%s", n, w, count == 1 ? "default" : "Tensor");
    const Op *op = op_find(name);
    return op ? term_call(r->t, (int)op->id, false, count, a) : wrong(r);
}

static Term *named(Reader *r)
{
    const char *w, *after;
    int n = word(r, &w);
    for (int k = r->nvars - 1; k >= 0; k--) {
        if (r->name[k].n != n || memcmp(r->name[k].name, w, (size_t)n)) continue;
        if (!r->name[k].body) return r->skip ? &absent : term_index(r->t, r->name[k].e);
        after = r->at;
        r->at = r->name[k].body;
        Term *e = r->skip ? &absent : expression(r);
        r->at = after;
        return e;
    }
    const Arg *a = argument(r, w, n);
    if (a) return operand(r, a);
    if (is(w, n, "view")) return element_view(r);
    if (is(w, n, "cat")) return element_cat(r);
    if (is(w, n, "indexed")) return element_indexed(r);
    if (is(w, n, "padded")) return element_padded(r);
    if (is(w, n, "written")) return element_written(r);
    if (is(w, n, "put")) return element_put(r);
    if (is(w, n, "cast")) return cast(r);
    if (is(w, n, "convolution")) return element_convolution(r);
    if (is(w, n, "rotary")) return element_rotary(r);
    if (is(w, n, "tensors")) return r->skip ? &absent : of_tensors(r);
    if (is(w, n, "lowest")) return term_double(r->t, dtype_lowest(r->v->dtype));
    if (is(w, n, "highest")) return term_double(r->t, dtype_highest(r->v->dtype));
    if (!take(r, "(")) return wrong(r);
    Term *e = is(w, n, "sum") || is(w, n, "mean") || is(w, n, "max")                         ? over(r, w)
              : is(w, n, "if")                                                               ? choice(r)
              : is(w, n, "given") || is(w, n, "truth") || is(w, n, "integer") || is(w, n, "is") || is(w, n, "size")
                  ? known(r, w)
                  : applied(r, w, n);
    return take(r, ")") ? e : wrong(r);
}

static Term *primary(Reader *r)
{
    take(r, "");
    if (is_digit(*r->at)) return term_double(r->t, parse_double(r->at, &r->at));
    if (take(r, "(")) {
        Term *e = expression(r);
        return take(r, ")") ? e : wrong(r);
    }
    if (!take(r, "@")) return named(r);
    int d = axis(r, r->rank);
    return r->skip ? &absent : d < 0 ? wrong(r) : term_index(r->t, r->idx[d]);
}

/* The logarithm of 2, or of an exponential of a number; NULL: it is another number. */
static Term *log_of(Reader *r, const Term *e)
{
    const Operand *f = term_factor(e);
    if (e == term_number(r->t, 2, 1)) return term_double(r->t, log(2));
    bool is = f && f->t->kind == T_EXP && term_is_number(f->t->part[0].t);
    return is ? term_scale(r->t, f->t->part[0].t, f->p, f->q) : NULL;
}

static Term *to_power(Reader *r, Term *e, Term *by)
{
    bool fits = by && by != &absent && by->n == 1 && by->part[0].t->n == 0 && 2 % by->part[0].q == 0 &&
                by->part[0].p >= -4 && by->part[0].p <= 16;
    if (fits) return term_power(r->t, e, 2 * by->part[0].p / by->part[0].q);
    Term *of = dtype_is_float(r->v->dtype) ? log_of(r, e) : NULL;
    return of ? term_exp(r->t, element_times(r, by, of))
              : term_call(r->t, OP_pow_Tensor_Tensor, false, 2, (Term *[]){e, by});
}

static Term *factor(Reader *r)
{
    bool minus = take(r, "-");
    Term *e = primary(r);
    if (e && take(r, "^")) {
        Term *by = factor(r);
        if (!r->skip && e != &absent) e = to_power(r, e, by);
    }
    return minus && e && e != &absent ? term_scale(r->t, e, -1, 1) : e;
}

/* Is something taken away that may be infinite, but for the largest of a row? */
static bool takes_infinity(const Term *v)
{
    for (int i = 0; i < v->n; i++)
        for (int k = 0; v->part[i].p < 0 && k < v->part[i].t->n; k++) {
            const Term *f = v->part[i].t->part[k].t;
            if (f->infinite && f->kind != T_MAX) return true;
        }
    return false;
}

/* What is missing changes nothing. */
static Term *joined(Reader *r, Term *a, Term *b, char how)
{
    if (!a || !b || b == &absent) return a && b ? a : NULL;
    if (how == '-') b = term_scale(r->t, b, -1, 1);
    if (how == '/') b = term_power(r->t, b, -2);
    if (!b || a == &absent) return b;
    if (how == '*' || how == '/') return element_times(r, a, b);
    if (a->infinite && b->infinite && (takes_infinity(a) || takes_infinity(b)))
        return term_refuse(r->t, "'%s': infinities are subtracted", r->node->name);
    return term_add(r->t, a, b);
}

static Term *product(Reader *r)
{
    Term *e = factor(r);
    for (char how; e && (how = take(r, "*") ? '*' : take(r, "/") ? '/' : 0);) e = joined(r, e, factor(r), how);
    return e;
}

static Term *expression(Reader *r)
{
    Term *e = product(r);
    for (char how; e && (how = take(r, "+") ? '+' : take(r, "-") ? '-' : 0);) e = joined(r, e, product(r), how);
    return e;
}

/* name := e; ... and the element */
static Term *lemma(Reader *r, const char *text)
{
    for (const char *end; (end = strchr(text, ';')); text = end + 1) {
        r->at = text;
        r->name[r->nvars].n = word(r, &r->name[r->nvars].name);
        if (!take(r, ":=") || r->nvars == MAX_DEFINITIONS) return wrong(r);
        r->name[r->nvars++].body = r->at;
    }
    r->at = text;
    Term *e = expression(r);
    return take(r, "") && !*r->at ? e : wrong(r);
}

/* ------------------------------------------------------------------ elements */

/* Of a buffer of a causal mask: w[.., i, j] is one number where j <= i + diagonal, and another elsewhere. */
static void look_for_triangle(const Tensor *w, Step *s)
{
    enum { MOST = 1 << 24 };
    s->triangle.known = true;
    int64_t rows = w->rank < 2 ? 0 : w->shape[w->rank - 2], cols = w->rank < 2 ? 0 : w->shape[w->rank - 1], d = 0;
    if (rows < 2 || cols < 2 || tensor_numel(w) != rows * cols || rows * cols > MOST || dtype_is_complex(w->dtype))
        return;
    double below = tensor_get(w, (rows - 1) * cols), above = tensor_get(w, cols - 1);
    if (fmax(fabs(below), fabs(above)) >= 0x1p53 && dtype_is_int(w->dtype)) return; /* integers that no double is */
    if (tensor_get(w, 0) == below)
        while (d + 1 < cols && tensor_get(w, d + 1) == below) d++;
    else
        while (-d < rows && tensor_get(w, -d * cols) != below) d--;
    bool is = below != above;
    for (int64_t k = 0; is && k < rows * cols; k++)
        is = tensor_get(w, k) == (k % cols <= k / cols + d ? below : above);
    s->triangle.is = is;
    s->triangle.diagonal = d;
    s->triangle.below = below;
    s->triangle.above = above;
}

static Term *triangle(Checker *c, int side, const Value *v, Expr *const *idx)
{
    Step *s = &c->side[side].step[v->id];
    ExprPool *p = c->t.x.p;
    if (v->kind != V_WEIGHT || !v->data || graph_writes(c->side[side].g, v)) return NULL;
    if (!s->triangle.known) look_for_triangle(v->data, s);
    if (!s->triangle.is) return NULL;
    Expr *over = ex_sub(p, ex_add(p, idx[v->rank - 2], ex_int(p, s->triangle.diagonal)), idx[v->rank - 1]);
    return term_where(&c->t, term_nonneg(&c->t, term_index(&c->t, over)), term_double(&c->t, s->triangle.below),
                      term_double(&c->t, s->triangle.above));
}

/* Is a weight one number everywhere, as the scale of a norm that has none? What a run writes has a counterpart. */
static bool uniform(const Value *v)
{
    if (!v->data || !dtype_is_float(v->dtype)) return false;
    for (int64_t i = tensor_numel(v->data) - 1; i > 0; i--)
        if (tensor_get(v->data, i) != tensor_get(v->data, 0)) return false;
    return tensor_numel(v->data) > 0;
}

static Term *leaf(Checker *c, int side, const Value *v, Expr *const *idx)
{
    int class = checker_class(c, side, v);
    Expr *at[MAX_RANK];
    bool number = v->kind == V_WEIGHT && v->data && !dtype_is_complex(v->dtype) && !graph_writes(c->side[side].g, v);
    int64_t place = 0;
    for (int i = 0; number && i < v->rank; i++) {
        number = idx[i] && idx[i]->kind == EX_INT && idx[i]->i >= 0 && idx[i]->i < v->data->shape[i];
        place = number ? place * v->data->shape[i] + idx[i]->i : 0;
    }
    if (v->kind == V_WEIGHT && checker_zero(c, side, v)) return term_number(&c->t, 0, 1);
    Term *numbers = c->triangles ? triangle(c, side, v, idx) : NULL;
    if (numbers) return numbers;
    bool itself = class >= 0 && (v->weight != W_CONSTANT || v->rank > 0); /* it may stand for itself */
    if (number && (c->numbers || (tensor_numel(v->data) == 1 && !itself)))
        return dtype_is_float(v->dtype) ? term_double(&c->t, tensor_get(v->data, place))
                                        : term_number(&c->t, tensor_get_i64(v->data, place), 1);
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
        if (p->turned) at[0] = idx[1], at[1] = idx[0];
        Expr *flat = ex_int(c->t.x.p, 0);
        for (int k = 0; p->reshaped && k < v->rank; k++)
            flat = ex_add(c->t.x.p, ex_mul(c->t.x.p, flat, ex_int(c->t.x.p, v->data->shape[k])), idx[k]);
        for (int k = p->of->rank - 1; p->reshaped && k >= 0; k--) {
            Expr *n = ex_int(c->t.x.p, p->of->data->shape[k]);
            at[k] = k ? ix_mod(&c->t.x, flat, n) : flat;
            flat = ix_div(&c->t.x, flat, n);
        }
        c->cut[checker_class(c, SOURCE, p->of)] = true;
        return term_leaf(&c->t, checker_class(c, SOURCE, p->of), false, p->of->rank, at);
    }
    if (uniform(v)) return term_double(&c->t, tensor_get(v->data, 0));
    return term_refuse(&c->t, "'%s' has no counterpart in the source", v->name);
}

/* Of a reduction that drops its axes: the place among the first operand's axes. */
static void spread(Reader *r, const Value *x)
{
    Reader of = {.rank = x->rank};
    int dim = op_param(r->node->op, "dim");
    if (r->rank == x->rank || dim < 0 || op_param(r->node->op, "keepdim") < 0) return;
    for (int i = 0, k = 0; i < x->rank; i++)
        of.idx[i] = over_axis(&of, &r->node->arg[dim], "", 0, i) ? zero(r) : r->idx[k++];
    memcpy(r->idx, of.idx, sizeof of.idx);
    r->rank = x->rank;
}

/* The step of a node: ["view_2", "reshape", "at0", "8*at1 + at2"]. */
static void put_step(Reader *r, int id)
{
    Step *s = step_of(r);
    if (!s->text) {
        Buf out = {0};
        jw_open(&out, NULL, '[');
        jw_text(&out, NULL, r->v->name);
        jw_text(&out, NULL, id == FUNCTION || id == NO_LEMMA ? "function" : lemmas[id].name);
        for (int i = 0; s->map && i < r->node->arg[0].v->rank; i++) element_put_index(r, s->map[i], &out);
        jw_close(&out, "]");
        s->text = out.failed ? NULL : arena_strdup(r->c->arena, out.data);
        buf_free(&out);
    }
    if (s->seen != r->c->claim) jw_raw(&r->c->side[r->side].steps, NULL, s->text ? s->text : "[]");
    s->seen = r->c->claim;
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

static Term *element_here(Checker *c, int side, const Value *v, Expr *const *idx)
{
    int class = checker_class(c, side, v);
    bool known = class >= 0 && class < c->nclasses;
    if (!v->def && known && !c->leaf[class] && c->of_class[class]->def)
        return element(c, SOURCE, c->of_class[class], idx); /* numbers that nodes of the source compute */
    if (!v->def || (known && c->leaf[class])) return leaf(c, side, v, idx);
    Term **memo = memo_of(c, side, v, idx);
    if (!memo || *memo) return memo ? *memo : NULL;
    if (++c->work > MAX_WORK) return term_refuse(&c->t, "more than %d elements are followed", MAX_WORK);
    OpId op = v->def->op->id;
    const Arg *a = v->def->arg;
    bool nan = op == OP_isnan || ((op == OP_eq_Tensor || op == OP_ne_Tensor) && a->v == a[1].v); /* of one value */
    int id = nan && !c->t.single ? FUNCTION : lemma_of(v->def->op, v->out); /* in .pt2 files a rule may rest on it */
    ptrdiff_t key = memo - c->memo;
    Reader r = {.c = c, .t = &c->t, .p = c->t.x.p, .side = side, .rank = v->rank, .node = v->def, .v = v, .at = ""};
    memcpy(r.idx, idx, (size_t)v->rank * sizeof *idx);
    bool given = id != NO_LEMMA && v->def->op->schema->nparams && v->def->arg[0].kind == ARG_VALUE;
    if (given) spread(&r, v->def->arg[0].v);
    if (v->def->op->flags & OPF_POINTWISE && !numbers_fit(&r)) return wrong(&r);
    Term *x = op == OP_nan_to_num ? operand(&r, a) : NULL, *e = op == OP_where_self ? wrapped(&r) : NULL;
    if (op == OP_nan_to_num && !x) return wrong(&r);
    if (x && (term_is_real(x) || !dtype_is_float(v->dtype))) e = x;
    else if (x && !c->t.single) id = FUNCTION; /* of NaN, too, which no value of an ONNX file is */
    if (!e) e = id == NO_LEMMA ? of_tensors(&r) : id == FUNCTION ? function(&r) : lemma(&r, lemmas[id].element);
    if (computes(&r, id)) e = wraps(&r, e);
    if (!e) return wrong(&r);
    put_step(&r, id);
    return c->memo[key] = e;
}

Term *element(Checker *c, int side, const Value *v, Expr *const *idx)
{
    bool before = c->t.narrow, wide = c->t.wide;
    c->t.wide = v->dtype == DT_F64;
    c->t.narrow = c->narrow && !wide && dtype_is_float(v->dtype) && dtype_size(v->dtype) <= 4; /* doubles see more */
    Term *e = element_here(c, side, v, idx);
    c->t.narrow = before;
    c->t.wide = wide;
    return e;
}
