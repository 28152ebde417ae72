/* The language of lemmas (lemmas.def): the element that a text says, read for the node in hand. Contract: element.h.
 *
 *     "exp(self) / sum(dim: exp(self))"
 */
#include <math.h>
#include <string.h>
#include "base/number.h"
#include "certify/element.h"

enum { MAX_DEFINITIONS = 12 };

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

Term *element_operand(Reader *r, const Arg *a)
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
        if (looked && !(e = element_place(r, e, size_of(r, x, d)))) return NULL;
        if (x && !r->skip && d >= 0 && d < x->rank && !ex_equals_int(x->dim[d], 1)) at[d] = e;
    }
    if (!first && (list || some) && !take(r, list ? ")" : "]")) return wrong(r);
    if (r->skip || (!x && a->kind != ARG_EXPR)) return &absent;
    return x ? element_at(r, x, at) : element_number(r, a->e);
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

bool element_over_axis(const Reader *r, const Arg *a, const char *name, int n, int i)
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
        if (!element_over_axis(r, a, name, n, i)) continue;
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
    if (a) return element_operand(r, a);
    if (is(w, n, "view")) return element_view(r);
    if (is(w, n, "cat")) return element_cat(r);
    if (is(w, n, "indexed")) return element_indexed(r);
    if (is(w, n, "padded")) return element_padded(r);
    if (is(w, n, "written")) return element_written(r);
    if (is(w, n, "put")) return element_put(r);
    if (is(w, n, "cast")) return element_cast(r);
    if (is(w, n, "convolution")) return element_convolution(r);
    if (is(w, n, "rotary")) return element_rotary(r);
    if (is(w, n, "tensors")) return r->skip ? &absent : element_of_tensors(r);
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

/* Are they the same products, but for factors that are truths? */
static bool same_but_truths(const Term *a, const Term *b)
{
    for (int i = 0, k = 0;; i++, k++) {
        while (i < a->n && a->part[i].t->truth) i++;
        while (k < b->n && b->part[k].t->truth) k++;
        if (i == a->n || k == b->n) return i == a->n && k == b->n;
        const Operand *x = &a->part[i], *y = &b->part[k];
        if (x->t != y->t || x->p != y->p || x->q != y->q) return false;
    }
}

enum { MAX_TRUTHS = 6 };

/* The bits of a part's truths in a list that grows; 0 of 0: the list is full. */
static bool truths_of(const Term *part, const Term **list, int *n, unsigned *bits)
{
    *bits = 0;
    for (int k = 0, at = 0; k < part->n; k++, at = 0) {
        if (!part->part[k].t->truth) continue;
        while (at < *n && list[at] != part->part[k].t) at++;
        if (at == MAX_TRUTHS) return false;
        if (at == *n) list[(*n)++] = part->part[k].t;
        *bits |= 1u << at;
    }
    return true;
}

/* Is a product taken away nowhere, whichever truths hold? x is not in x - t x + t y: it is there or it is not. */
static bool never_taken(const Term *v, const Term *product)
{
    const Term *truth[MAX_TRUTHS];
    int n = 0;
    unsigned needs;
    for (int i = 0; i < v->n; i++)
        if (same_but_truths(v->part[i].t, product) && !truths_of(v->part[i].t, truth, &n, &needs)) return false;
    for (unsigned hold = 0; hold < 1u << n; hold++) {
        int64_t times = 0;
        for (int i = 0; i < v->n; i++) {
            const Operand *x = &v->part[i];
            if (!same_but_truths(x->t, product)) continue;
            if (x->q != 1 || !truths_of(x->t, truth, &n, &needs)) return false;
            if ((needs & ~hold) == 0 && !add_i64(times, x->p, &times)) return false;
        }
        if (times < 0) return false;
    }
    return true;
}

/* Is something taken away that may be infinite, but for the largest of a row? */
static bool takes_infinity(const Term *v)
{
    for (int i = 0; i < v->n; i++)
        for (int k = 0; v->part[i].p < 0 && k < v->part[i].t->n; k++) {
            const Term *f = v->part[i].t->part[k].t;
            if (f->infinite && f->kind != T_MAX && !never_taken(v, v->part[i].t)) return true;
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
Term *element_lemma(Reader *r, const char *text)
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
