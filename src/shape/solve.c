/* Solving input sizes for symbols. Contract in solve.h. */
#include "shape/solve.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "base/number.h"
#include "base/vec.h"
#include "expr/translate.h"

static void text_of(const Graph *g, const Expr *e, char *out, size_t n)
{
    Buf b = {0};
    ex_print(g->ex, e, &b);
    snprintf(out, n, "%.200s", b.data ? b.data : "?");
    buf_free(&b);
}

/* "s0 in [1, 8]" */
static void range_text(const Symbol *s, char *out, size_t n)
{
    if (s->hi == INT64_MAX && s->lo == INT64_MIN) snprintf(out, n, "%s any", s->name);
    else if (s->hi == INT64_MAX) snprintf(out, n, "%s at least %lld", s->name, (long long)s->lo);
    else snprintf(out, n, "%s from %lld to %lld", s->name, (long long)s->lo, (long long)s->hi);
}

enum { SEARCHED = 1 << 16 }; /* parts of an expression */

/* The unbound symbols of e: *found is the only one so far, or -1. False: there is another, or too much to look at. */
static bool find_unknown(const Expr *e, const Binding *b, int *found, int *budget)
{
    if (!e->symbols) return true;
    if (e->kind == EX_SYM) {
        if (b->bound[e->i] || *found == (int)e->i) return true;
        if (*found >= 0) return false;
        *found = (int)e->i;
        return true;
    }
    for (int i = 0; i < e->nargs; i++)
        if (--*budget <= 0 || !find_unknown(e->args[i], b, found, budget)) return false;
    return true;
}

/* The only unbound symbol of e; -1 when there is none or more than one. */
static int only_unknown(const Expr *e, const Binding *b)
{
    int found = -1;
    return find_unknown(e, b, &found, &(int){SEARCHED}) ? found : -1;
}

static bool sub_i64(int64_t a, int64_t b, int64_t *out) { return !__builtin_sub_overflow(a, b, out); }

static bool value_at(const Graph *g, const Expr *e, Binding *b, int symbol, int64_t v, int64_t *out)
{
    Err ignored;
    binding_set(b, symbol, v);
    bool ok = ex_eval_i64(g->ex, e, b, out, &ignored);
    binding_unset(b, symbol);
    return ok;
}

/* e(symbol) = size. e is linear for nearly every file: two evaluations give slope and start;
 * otherwise a search over the range. */
static bool solve_one(const Graph *g, const Expr *e, Binding *b, int symbol, int64_t size)
{
    const Symbol *s = expr_symbol(g->ex, symbol);
    int64_t y0, y1, y, run, rise;
    enum { SEARCH = 100000 };
    int64_t from = s->lo > 0 ? s->lo : 0;
    if (!value_at(g, e, b, symbol, 0, &y0)) y0 = 0;
    if (value_at(g, e, b, symbol, 1, &y1) && sub_i64(y1, y0, &run) && run != 0 && sub_i64(size, y0, &rise) &&
        rise % run == 0) {
        int64_t v = rise / run;
        if (value_at(g, e, b, symbol, v, &y) && y == size) {
            binding_set(b, symbol, v);
            return true;
        }
    }
    if (s->hi < from) return false;
    for (int64_t k = 0; k < SEARCH && k <= s->hi - from; k++)
        if (value_at(g, e, b, symbol, from + k, &y) && y == size) {
            binding_set(b, symbol, from + k);
            return true;
        }
    return false;
}

bool expr_linear_in(const Expr *e, const Expr *s)
{
    int n = 0;
    if (e == s || !ex_mentions(e, s)) return true;
    if (e->is_float || (e->kind != EX_ADD && e->kind != EX_MUL)) return false;
    for (int i = 0; i < e->nargs; i++) {
        if (!expr_linear_in(e->args[i], s)) return false;
        n += ex_mentions(e->args[i], s);
    }
    return e->kind == EX_ADD || n == 1;
}

bool expr_split(ExprPool *p, Expr *size, const Expr *s, Expr **factor, Expr **rest)
{
    const Expr *term = size->kind == EX_ADD ? NULL : size;
    for (int i = 0; size->kind == EX_ADD && i < size->nargs; i++) {
        if (!ex_mentions(size->args[i], s)) continue;
        if (term) return false;
        term = size->args[i];
    }
    int times = term && term == s;
    *factor = ex_int(p, 1);
    for (int i = 0; term && term->kind == EX_MUL && i < term->nargs; i++) {
        if (term->args[i] == s) times++;
        else if (ex_mentions(term->args[i], s)) return false;
        else *factor = ex_mul(p, *factor, term->args[i]);
    }
    *rest = ex_sub(p, size, (Expr *)(uintptr_t)term);
    return times == 1 && *factor && *rest;
}

/* Only one value of the symbol gives the size: other axes leave a choice ("s0//2"). */
static bool determines(const Graph *g, const Expr *e, Binding *b, int symbol)
{
    int64_t y0, y1;
    if (e->kind == EX_SYM) return true;
    return expr_linear_in(e, expr_symbol(g->ex, symbol)->expr) && value_at(g, e, b, symbol, 0, &y0) &&
           value_at(g, e, b, symbol, 1, &y1) && y0 != y1;
}

/* A linear a*s + c with c = 0, for the wording. */
static int64_t multiple_of(const Expr *e)
{
    return e->kind == EX_MUL && e->nargs == 2 && e->args[0]->kind == EX_INT && e->args[1]->kind == EX_SYM
               ? e->args[0]->i
               : 0;
}

static bool no_solution(const Graph *g, const Value *in, int axis, int64_t size, int symbol, Err *err)
{
    char text[256], range[128];
    text_of(g, in->dim[axis], text, sizeof text);
    range_text(expr_symbol(g->ex, symbol), range, sizeof range);
    int64_t m = multiple_of(in->dim[axis]);
    if (m)
        return fail(err, E_USAGE, "input '%s': axis %d is %lld, expected a multiple of %lld (%s, %s)", in->name, axis,
                    (long long)size, (long long)m, text, range);
    return fail(err, E_USAGE, "input '%s': axis %d is %lld, expected %s with %s", in->name, axis, (long long)size, text,
                range);
}

static bool check_axis(const Graph *g, const Value *in, int axis, int64_t size, const Binding *b, Err *err)
{
    int64_t want;
    char text[256];
    TRY(ex_eval_i64(g->ex, in->dim[axis], b, &want, err) || within(err, "input '%s': axis %d", in->name, axis));
    if (want == size) return true;
    if (ex_is_int(in->dim[axis]))
        return fail(err, E_USAGE, "input '%s': axis %d is %lld, expected %lld (fixed when the model was exported)",
                    in->name, axis, (long long)size, (long long)want);
    text_of(g, in->dim[axis], text, sizeof text);
    return fail(err, E_USAGE, "input '%s': axis %d is %lld, expected %s = %lld from the other sizes", in->name, axis,
                (long long)size, text, (long long)want);
}

static bool check_ranges(const Graph *g, const Tensor *const *input, const Binding *b, Err *err)
{
    for (int i = 0; i < expr_symbol_count(g->ex); i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        char range[128], text[256];
        if (!b->bound[i] || (b->value[i] >= s->lo && b->value[i] <= s->hi)) continue;
        range_text(s, range, sizeof range);
        if (s->source != SYM_INPUT || !s->value)
            return fail(err, E_USAGE, "size %s is %lld, allowed is %s", s->name, (long long)b->value[i], range);
        int k = 0;
        while (k < g->ninput && g->input[k] != s->value) k++;
        int64_t size = k < g->ninput ? input[k]->shape[s->dim] : b->value[i];
        text_of(g, s->value->dim[s->dim], text, sizeof text);
        int64_t m = multiple_of(s->value->dim[s->dim]), lo, hi;
        if (m && s->hi != INT64_MAX && mul_i64(m, s->lo, &lo) && mul_i64(m, s->hi, &hi))
            return fail(err, E_USAGE, "input '%s': axis %d is %lld, allowed is %s from %lld to %lld", s->value->name,
                        s->dim, (long long)size, text, (long long)lo, (long long)hi);
        return fail(err, E_USAGE, "input '%s': axis %d is %lld, allowed is %s", s->value->name, s->dim, (long long)size,
                    range);
    }
    return true;
}

/* tell false: err does not say which, whose text may be long. */
static bool holds(const Graph *g, const Require *r, const Binding *b, bool tell, Err *err)
{
    Scalar v;
    TRY(ex_eval(g->ex, r->cond, b, &v, err) || within(err, "%s", r->where));
    if (v.kind == SC_FLOAT ? v.f != 0 : v.i != 0) return true;
    if (!tell) return fail(err, E_USAGE, "these sizes are not allowed");
    Buf text = {0}, with = {0};
    ex_print(g->ex, r->cond, &text);
    for (int k = 0; k < expr_symbol_count(g->ex) && k < b->n; k++)
        if (b->bound[k] && ex_mentions(r->cond, expr_symbol(g->ex, k)->expr))
            buf_printf(&with, "%s%s = %lld", with.len ? ", " : "", expr_symbol(g->ex, k)->name, (long long)b->value[k]);
    fail(err, E_USAGE, "these sizes are not allowed: %s: expected %.300s (with %.200s)", r->where,
         text.data ? text.data : "?", with.data ? with.data : "no sizes");
    buf_free(&text);
    buf_free(&with);
    return false;
}

static bool requires_hold(const Graph *g, const Binding *b, bool data_dependent, bool tell, Err *err)
{
    for (int i = 0; i < g->nrequire; i++)
        if (ex_data_dependent(g->ex, g->require[i].cond) == data_dependent) TRY(holds(g, &g->require[i], b, tell, err));
    return true;
}

bool check_require(const Graph *g, int i, const Binding *b, Err *err) { return holds(g, &g->require[i], b, true, err); }

bool check_requires(const Graph *g, const Binding *b, bool data_dependent, Err *err)
{
    return requires_hold(g, b, data_dependent, true, err);
}

/* Axes of inputs, and by symbol those that mention it. */
typedef struct Axes {
    const Graph *g;
    const Tensor *const *input;
    Binding *b;
    int n;
    struct Axis {
        int input, dim;
    } * axis;
    int *first; /* by symbol: 1 + the first of its mentions */
    struct Mention {
        int axis, next;
    } * mention;
    int nmentions;
    unsigned char *open; /* by axis: it may bind a symbol now; 2: one that leaves a choice */
    bool failed;
} Axes;

static void mention(Axes *a, int axis, const Expr *e, int *budget)
{
    if (!e->symbols || a->failed || --*budget <= 0) return;
    for (int i = 0; i < e->nargs; i++) mention(a, axis, e->args[i], budget);
    if (e->kind != EX_SYM || (a->first[e->i] && a->mention[a->first[e->i] - 1].axis == axis)) return;
    struct Mention *more = vec_grow(a->mention, a->nmentions, sizeof *more);
    if (!more) {
        a->failed = true;
        return;
    }
    a->mention = more;
    a->mention[a->nmentions] = (struct Mention){axis, a->first[e->i]};
    a->first[e->i] = ++a->nmentions;
}

/* The usual sizes need no more than these: one pass over all axes after the other, without memory. left: an axis leaves
 * a choice, or there was no end to it. */
static bool bind_usual(const Graph *g, const Tensor *const *input, Binding *b, bool *left, Err *err)
{
    enum { PASSES = 4 };
    bool progress = true;
    for (int pass = 0; pass < PASSES && progress; pass++) {
        progress = *left = false;
        for (int i = 0; i < g->ninput; i++)
            for (int d = 0; d < g->input[i]->rank; d++) {
                const Expr *e = g->input[i]->dim[d];
                int symbol = only_unknown(e, b);
                if (symbol < 0) continue;
                *left = true;
                if (!determines(g, e, b, symbol)) continue;
                if (e->kind == EX_SYM) binding_set(b, symbol, input[i]->shape[d]);
                else if (!solve_one(g, e, b, symbol, input[i]->shape[d]))
                    return no_solution(g, g->input[i], d, input[i]->shape[d], symbol, err);
                progress = true;
            }
    }
    return true;
}

static bool axes_make(Axes *a)
{
    for (int i = 0; i < a->g->ninput; i++) a->n += a->g->input[i]->rank;
    a->axis = mem_zeroed((size_t)a->n + 1, sizeof *a->axis);
    a->first = mem_zeroed((size_t)expr_symbol_count(a->g->ex) + 1, sizeof *a->first);
    a->open = mem_zeroed((size_t)a->n + 1, 1);
    if (!a->axis || !a->first || !a->open) return false;
    for (int i = 0, n = 0; i < a->g->ninput; i++)
        for (int d = 0; d < a->g->input[i]->rank; d++, n++) {
            const Expr *e = a->g->input[i]->dim[d];
            a->axis[n] = (struct Axis){i, d};
            a->open[n] = e->kind != EX_INT;
            if (a->open[n] && e->kind != EX_SYM) mention(a, n, e, &(int){SEARCHED});
        }
    return !a->failed;
}

static void axes_free(Axes *a)
{
    mem_free(a->axis);
    mem_free(a->first);
    mem_free(a->mention);
    mem_free(a->open);
}

/* Binds the symbol that axis i determines, or where it leaves a choice one of them; axes that mention it are open
 * again. */
static bool bind_axis(Axes *a, int i, bool determined, Err *err)
{
    const struct Axis at = a->axis[i];
    const Expr *e = a->g->input[at.input]->dim[at.dim];
    int64_t size = a->input[at.input]->shape[at.dim];
    int symbol = only_unknown(e, a->b);
    a->open[i] = 0;
    if (symbol < 0) return true;
    if (determined && !determines(a->g, e, a->b, symbol)) {
        a->open[i] = 2;
        return true;
    }
    if (e->kind == EX_SYM) binding_set(a->b, symbol, size);
    else if (!solve_one(a->g, e, a->b, symbol, size))
        return no_solution(a->g, a->g->input[at.input], at.dim, size, symbol, err);
    for (int k = a->first[symbol]; k; k = a->mention[k - 1].next) a->open[a->mention[k - 1].axis] = 1;
    return true;
}

/* Binds symbols from the axes that determine them, and where none does one from the first axis that leaves a choice. */
static bool bind_axes(Axes *a, Err *err)
{
    for (;;) {
        const unsigned char *next = memchr(a->open, 1, (size_t)a->n);
        bool determined = next != NULL;
        if (!next) next = memchr(a->open, 2, (size_t)a->n);
        if (!next) return true;
        TRY(bind_axis(a, (int)(next - a->open), determined, err));
    }
}

bool solve_sizes(const Graph *g, const Tensor *const *input, const int64_t *scalar, Binding *b, Err *err)
{
    for (int i = 0; i < g->nscalar_input; i++) {
        const Arg *a = &g->scalar_input[i].value;
        if (scalar && a->kind == ARG_EXPR && a->e->kind == EX_SYM) binding_set(b, (int)a->e->i, scalar[i]);
    }
    Axes a = {.g = g, .input = input, .b = b};
    bool left;
    TRY(bind_usual(g, input, b, &left, err));
    bool ok = !left || (axes_make(&a) ? bind_axes(&a, err) : oom(err));
    axes_free(&a);
    TRY(ok && check_ranges(g, input, b, err));
    for (int i = 0; i < g->ninput; i++)
        for (int d = 0; d < g->input[i]->rank; d++) TRY(check_axis(g, g->input[i], d, input[i]->shape[d], b, err));
    return check_requires(g, b, false, err);
}

/* ------------------------------------------------------------------ choosing */

/* The symbol that a user's name for a size means; *scale: the axis is scale * symbol. */
static int symbol_called(const Graph *g, const char *name, int64_t *scale, Err *err)
{
    *scale = 1;
    Symbol *s = expr_find_symbol(g->ex, name);
    if (s && s->source == SYM_INPUT) return (int)s->expr->i;
    static const struct {
        const char *name;
        int axis, rank_min, rank_max;
    } customary[] = {{"batch", 0, 1, 16},   {"b", 0, 1, 16},     {"seq", 1, 2, 3},
                     {"sequence", 1, 2, 3}, {"length", 1, 2, 3}, {"height", 2, 4, 4},
                     {"h", 2, 4, 4},        {"width", 3, 4, 4},  {"w", 3, 4, 4}};
    const char *dot = strrchr(name, '.');
    const char *end = NULL;
    long axis = dot ? parse_int(dot + 1, &end) : -1;
    if (dot && (*end || end == dot + 1)) dot = NULL;
    for (int i = 0; i < g->ninput; i++) {
        const Value *v = g->input[i];
        for (int d = 0; d < v->rank; d++) {
            bool hit = dot && strlen(v->name) == (size_t)(dot - name) &&
                       !strncmp(v->name, name, (size_t)(dot - name)) && axis == d;
            for (size_t k = 0; k < sizeof customary / sizeof *customary; k++)
                hit |= !strcmp(name, customary[k].name) && customary[k].axis == d && v->rank >= customary[k].rank_min &&
                       v->rank <= customary[k].rank_max;
            const Expr *e = v->dim[d];
            if (!hit || ex_is_int(e)) continue;
            if (e->kind == EX_SYM) return (int)e->i;
            *scale = multiple_of(e);
            if (*scale) return (int)e->args[1]->i;
        }
    }
    Buf b = {0};
    for (int i = 0; i < expr_symbol_count(g->ex); i++) {
        const Symbol *k = expr_symbol(g->ex, i);
        if (k->source != SYM_INPUT) continue;
        buf_printf(&b, "%s%s", b.len ? ", " : "", k->name);
        if (k->value) buf_printf(&b, " (%s.%d)", k->value->name, k->dim);
    }
    fail(err, E_USAGE, "no size is called '%s'; this model has %s", name, b.len ? b.data : "no variable sizes");
    buf_free(&b);
    return -1;
}

static bool satisfied(const Graph *g, const Binding *b, bool tell, Err *err)
{
    for (int i = 0; i < g->ninput; i++)
        for (int d = 0; d < g->input[i]->rank; d++) {
            int64_t n;
            TRY(ex_eval_i64(g->ex, g->input[i]->dim[d], b, &n, err) ||
                within(err, "input '%s': axis %d", g->input[i]->name, d));
            if (n < 0)
                return fail(err, E_USAGE, "input '%s': axis %d would be %lld", g->input[i]->name, d, (long long)n);
        }
    return requires_hold(g, b, false, tell, err);
}

static int64_t raised(const Symbol *s, int64_t base, int64_t up) { return up < s->hi - base ? base + up : s->hi; }

enum { SPAN = 24 }; /* numbers of a size that are tried */

/* The sizes that the model was exported with, each as small as the others then allow: a grid of patches for which the
 * model has a table is far from all minima. */
static bool search_examples(const Graph *g, const int *symbol, const int64_t *base, int nfree, Binding *b, Err *err)
{
    for (int k = 0; k < nfree; k++) {
        const Symbol *s = expr_symbol(g->ex, symbol[k]);
        binding_set(b, symbol[k], s->has_hint && s->hint >= base[k] && s->hint <= s->hi ? s->hint : base[k]);
    }
    TRY(satisfied(g, b, true, err));
    Err ignored;
    for (int k = 0; k < nfree; k++) {
        int64_t most = b->value[symbol[k]], least = base[k];
        binding_set(b, symbol[k], least);
        while (least < most && !satisfied(g, b, false, &ignored)) {
            least = least - base[k] < SPAN ? least + 1 : most;
            binding_set(b, symbol[k], least);
        }
    }
    return true;
}

/* Counts up the free symbols from their minimum until the file's conditions hold: first all together, then as one
 * number for all that may have it, as sizes that must be equal from different minima on, then odometer-wise. */
static bool search_free(const Graph *g, const int *symbol, int nfree, Binding *b, Err *err)
{
    enum { TOGETHER = 64, TRIES = 20000 };
    int64_t *base = mem_zeroed((size_t)nfree + 1, sizeof *base);
    if (!base) return oom(err);
    for (int k = 0; k < nfree; k++) {
        const Symbol *s = expr_symbol(g->ex, symbol[k]);
        base[k] = s->lo > 1 ? s->lo : 1;
        if (base[k] > s->hi) base[k] = s->hi;
        binding_set(b, symbol[k], base[k]);
    }
    bool ok = satisfied(g, b, false, err);
    for (int64_t t = 1; !ok && nfree && t < 2 * TOGETHER; t++) {
        int64_t up = t % TOGETHER;
        for (int k = 0; k < nfree; k++) {
            int64_t rise = t < TOGETHER ? up : base[k] > 0 && up > base[k] ? up - base[k] : 0;
            binding_set(b, symbol[k], raised(expr_symbol(g->ex, symbol[k]), base[k], rise));
        }
        ok = satisfied(g, b, false, err);
    }
    for (int64_t t = 1; !ok && nfree && t < TRIES; t++) {
        int64_t rest = t;
        for (int k = 0; k < nfree; k++, rest /= SPAN) {
            const Symbol *s = expr_symbol(g->ex, symbol[k]);
            binding_set(b, symbol[k], raised(s, base[k], rest % SPAN));
        }
        ok = satisfied(g, b, false, err);
    }
    ok = ok || search_examples(g, symbol, base, nfree, b, err);
    mem_free(base);
    return ok;
}

bool bind_named(const Graph *g, const char *const *name, const int64_t *value, int n, Binding *b, Err *err)
{
    for (int k = 0; k < n; k++) {
        int64_t scale;
        int i = symbol_called(g, name[k], &scale, err);
        if (i < 0) return false;
        const Symbol *s = expr_symbol(g->ex, i);
        char range[128];
        range_text(s, range, sizeof range);
        if (value[k] % scale)
            return fail(err, E_USAGE, "%s = %lld: expected a multiple of %lld", name[k], (long long)value[k],
                        (long long)scale);
        if (value[k] / scale < s->lo || value[k] / scale > s->hi)
            return fail(err, E_USAGE, "%s = %lld: allowed is %s%s", name[k], (long long)value[k], range,
                        scale > 1 ? " (times its factor)" : "");
        if (b->bound[i] && b->value[i] != value[k] / scale)
            return fail(err, E_USAGE, "%s = %lld: %s is %lld already", name[k], (long long)value[k], s->name,
                        (long long)b->value[i]);
        binding_set(b, i, value[k] / scale);
    }
    return true;
}

Expr *expr_bound(ExprPool *p, Expr *e, const Binding *b)
{
    if (!e) return NULL;
    Expr **known = mem_zeroed((size_t)e->id + 1, sizeof *known), *bound = NULL,
         **by = mem_zeroed((size_t)expr_symbol_count(p) + 1, sizeof *by);
    bool ok = known && by;
    for (int i = 0; ok && i < b->n; i++) ok = !b->bound[i] || (by[i] = ex_int(p, b->value[i]));
    if (ok) bound = expr_replace(p, e, by, known);
    mem_free(by);
    mem_free(known);
    return bound;
}

bool choose_sizes(const Graph *g, const char *const *name, const int64_t *value, int n, Binding *b, Err *err)
{
    TRY(bind_named(g, name, value, n, b, err));
    int nfree = 0, *symbol = mem_zeroed((size_t)expr_symbol_count(g->ex) + 1, sizeof *symbol);
    if (!symbol) return oom(err);
    for (int i = 0; i < expr_symbol_count(g->ex); i++)
        if (expr_symbol(g->ex, i)->source == SYM_INPUT && !b->bound[i]) symbol[nfree++] = i;
    bool ok = search_free(g, symbol, nfree, b, err);
    mem_free(symbol);
    return ok;
}

bool choose_example_sizes(const Graph *g, const char *const *name, const int64_t *value, int n, Binding *b, Err *err)
{
    int all = 0, symbols = expr_symbol_count(g->ex);
    const char **names = arena_array(g->arena, const char *, n + symbols + 1);
    int64_t *values = arena_array(g->arena, int64_t, n + symbols + 1);
    if (!names || !values) return oom(err);
    for (int i = 0; i < n; i++) {
        names[all] = name[i];
        values[all++] = value[i];
    }
    TRY(binding_init(b, g->ex, err));
    if (!bind_named(g, names, values, all, b, err)) return binding_free(b), false;
    for (int i = 0; i < symbols; i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        if (s->source != SYM_INPUT || !s->has_hint || b->bound[i]) continue;
        names[all] = s->name;
        values[all++] = s->hint;
    }
    binding_clear(b);
    Err hints = {0};
    if (choose_sizes(g, names, values, all, b, &hints)) return true;
    binding_clear(b);
    if (choose_sizes(g, names, values, n, b, err)) return true;
    binding_free(b);
    return false;
}
