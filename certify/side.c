/* Two graphs beside each other: their sizes, the classes of their values, their weights. Contract in certify.h. */
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "base/vec.h"
#include "certify/certify.h"
#include "expr/translate.h"
#include "ir/bodies.h"
#include "ir/copy.h"

/* ------------------------------------------------------------------ sizes */

bool checker_from_data(const Symbol *s) { return symbol_out_of_data(s) && s->value; }

const Symbol *checker_source_size(const Checker *c, const char *name)
{
    const Side *a = &c->side[SOURCE];
    const Symbol *s = expr_find_symbol(a->g->ex, name);
    int class = s && checker_from_data(s) ? a->class[s->value->id] : -1;
    for (int k = 0; class >= 0 && k < (int)s->expr->i; k++) {
        const Symbol *first = expr_symbol(a->g->ex, k);
        if (checker_from_data(first) && first->source == s->source && first->dim == s->dim &&
            a->class[first->value->id] == class)
            return first;
    }
    return s;
}

static Expr *symbol_here(void *user, const Expr *e)
{
    Checker *c = user;
    if (c->translating == c->side[RESULT].g->ex && c->size[e->i]) return c->size[e->i];
    const Symbol *s = checker_source_size(c, expr_symbol(c->translating, (int)e->i)->name);
    const Symbol *own = s ? expr_find_symbol(c->t.x.p, s->name) : NULL;
    return own ? own->expr : NULL;
}

Expr *checker_expr(Checker *c, int side, const Expr *e)
{
    Side *s = &c->side[side];
    if (!e || e->id >= s->nexpr) return NULL;
    if (s->expr[e->id]) return s->expr[e->id];
    c->translating = s->g->ex;
    Expr *own = ix_plain(&c->t.x, expr_translate(c->t.x.p, e, symbol_here, c));
    for (int i = 0; i < c->nsame; i++) own = ix_subst(&c->t.x, own, c->same[i].size, c->same[i].is);
    return s->expr[e->id] = own;
}

static void forget_exprs(Side *s) { memset(s->expr, 0, (s->nexpr + 1) * sizeof *s->expr); }

/* The size of which e is a multiple, by *n; NULL: none. */
static Expr *size_in(Expr *e, int64_t *n)
{
    bool times = e->kind == EX_MUL && e->nargs == 2 && e->args[0]->kind == EX_INT && e->args[0]->i > 0;
    *n = times ? e->args[0]->i : 1;
    e = times ? e->args[1] : e;
    return e->kind == EX_SYM ? e : NULL;
}

/* `size` is `is` from now on. */
static void take_is(Checker *c, Expr *size, Expr *is)
{
    for (int m = 0; m < c->nsame; m++) c->same[m].is = ix_subst(&c->t.x, c->same[m].is, size, is);
    c->same[c->nsame].size = size;
    c->same[c->nsame++].is = is;
    forget_exprs(&c->side[SOURCE]);
}

/* The division by a number of which a condition says that nothing is left: s % 4 == 0, 4*(s//4) == s. NULL: none. */
static const Expr *without_rest(const Expr *cond)
{
    for (int i = 0; i < 2 && cond->kind == EX_EQ; i++) {
        const Expr *e = cond->args[i], *other = cond->args[1 - i];
        if (e->kind == EX_MOD && ex_equals_int(other, 0)) return e;
        const Expr *by = e->kind == EX_MUL && e->nargs == 2 && ex_is_int(e->args[0]) ? e->args[1] : NULL;
        if (by && by->kind == EX_FLOORDIV && by->args[1] == e->args[0] && by->args[0] == other) return by;
    }
    return NULL;
}

/* Of s % 4 == 0: s is 4 times a size of its own, so that what is cut into windows of 4 has no remainder. */
static bool take_multiple(Checker *c, const Expr *cond, Err *err)
{
    const Graph *g = c->side[SOURCE].g;
    ExprPool *p = c->t.x.p;
    const Expr *mod = without_rest(cond);
    if (!mod || mod->args[0]->kind != EX_SYM || !ex_is_int(mod->args[1])) return true;
    const Symbol *of = expr_symbol(g->ex, (int)mod->args[0]->i), *s = expr_find_symbol(p, of->name);
    int64_t n = mod->args[1]->i;
    if (n < 2 || of->source != SYM_INPUT || !s || checker_expr(c, SOURCE, of->expr) != s->expr) return true;
    char *name = arena_printf(c->arena, "%s:%lld", s->name, (long long)n); /* which no file has */
    Expr *part = name ? ex_symbol(p, name) : NULL, *whole = part ? ex_mul(p, ex_int(p, n), part) : NULL;
    if (!whole) return oom(err);
    expr_set_range(p, (int)part->i, s->lo > 0 ? (s->lo - 1) / n + 1 : 0, s->hi == INT64_MAX ? s->hi : s->hi / n);
    take_is(c, s->expr, whole);
    return true;
}

/* What a condition of the source says that a size is: u1 + u2 == u0, 64*s2 == 256*s1. */
static bool take_same(Checker *c, Err *err)
{
    const Graph *g = c->side[SOURCE].g;
    ExprPool *p = c->t.x.p;
    c->same = arena_alloc(c->arena, 2 * (size_t)g->nrequire + 1, sizeof *c->same);
    if (!c->same) return oom(err);
    for (int k = 0; k < g->nrequire; k++) {
        const Expr *cond = g->require[k].cond;
        for (int i = 0; i < 2 && cond->kind == EX_EQ; i++) {
            Expr *one = checker_expr(c, SOURCE, cond->args[i]), *other = checker_expr(c, SOURCE, cond->args[1 - i]);
            int64_t n, lo, hi;
            Expr *size = one ? size_in(one, &n) : NULL;
            Expr *is = size && other && !other->is_float ? ix_div(&c->t.x, other, ex_int(p, n)) : NULL;
            const Symbol *s = is ? expr_symbol(p, (int)size->i) : NULL;
            const Symbol *of = s ? expr_find_symbol(g->ex, s->name) : NULL;
            if (!of || !(checker_from_data(of) || of->source == SYM_INPUT) || ex_mentions(is, size)) continue;
            ex_range(p, is, &lo, &hi);
            bool less = lo < s->lo || (!checker_from_data(of) && hi > s->hi); /* would be known */
            if (less || ex_mul(p, is, ex_int(p, n)) != other) continue;
            take_is(c, size, is);
            break;
        }
    }
    for (int k = 0; k < g->nrequire; k++) TRY(take_multiple(c, g->require[k].cond, err));
    forget_exprs(&c->side[SOURCE]); /* of what is read twice nothing is known yet */
    return true;
}

/* One that is an axis of an input, or a factor of one, is 1: nothing is said of empty tensors. */
int64_t *checker_least(const Graph *source)
{
    int n = expr_symbol_count(source->ex);
    int64_t *least = mem_zeroed((size_t)n + 1, sizeof *least);
    for (int i = 0; least && i < n; i++) least[i] = expr_symbol(source->ex, i)->lo;
    for (int i = 0; least && i < source->ninput; i++)
        for (int k = 0; k < source->input[i]->rank; k++) {
            const Expr *e = source->input[i]->dim[k];
            bool product = e->kind == EX_MUL;
            for (int f = 0; f < (product ? e->nargs : 1); f++) {
                const Expr *x = product ? e->args[f] : e;
                if (x->kind == EX_SYM && least[x->i] < 1) least[x->i] = 1;
            }
        }
    return least;
}

/* The source's sizes, with their declared ranges. */
static bool take_sizes(Checker *c, Err *err)
{
    const Graph *g = c->side[SOURCE].g;
    int64_t *least = checker_least(g);
    bool ok = least || oom(err);
    for (int i = 0; ok && i < expr_symbol_count(g->ex); i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        Expr *own = s->source == SYM_GONE ? NULL : ex_symbol(c->t.x.p, s->name);
        /* what a body is given may be empty */
        if (own) expr_set_range(c->t.x.p, (int)own->i, c->inside ? s->lo : least[i], s->hi);
        else if (s->source != SYM_GONE) ok = oom(err);
    }
    mem_free(least);
    return ok;
}

/* The next input from *k on that is a number and not fixed, which moves beyond it; NULL: there are no more. */
static const ScalarInput *next_varying(const Graph *g, int *k)
{
    while (*k < g->nscalar_input) {
        const ScalarInput *s = &g->scalar_input[(*k)++];
        if (s->value.kind == ARG_EXPR && s->value.e->kind == EX_SYM) return s;
    }
    return NULL;
}

/* Where the source runs, its conditions hold: a window of 2 fits, so s//2 is at least 1. */
static void take_bounds(Checker *c)
{
    const Graph *g = c->side[SOURCE].g;
    for (int k = 0; k < g->nrequire; k++) expr_assume(c->t.x.p, checker_expr(c, SOURCE, g->require[k].cond));
    forget_exprs(&c->side[SOURCE]); /* all of them are read again as what they say together makes them */
}

/* The source's input that the i-th of the result is; NULL: none. */
static const Value *input_of(const Checker *c, int i)
{
    const Graph *a = c->side[SOURCE].g;
    int k = c->inside ? c->inside->input[i] : i;
    return k >= 0 && k < a->ninput ? a->input[k] : NULL;
}

/* A size of an input of the result is what the source's input has there, whatever it is called. */
static void pair_sizes(Checker *c)
{
    const Graph *a = c->side[SOURCE].g, *b = c->side[RESULT].g;
    for (int i = 0; i < b->ninput; i++)
        for (int k = 0; input_of(c, i) && k < input_of(c, i)->rank && k < b->input[i]->rank; k++) {
            int64_t n;
            Expr *size = size_in(b->input[i]->dim[k], &n), *whole = checker_expr(c, SOURCE, input_of(c, i)->dim[k]);
            Expr *is = size && whole && !c->size[size->i] ? ix_div(&c->t.x, whole, ex_int(c->t.x.p, n)) : NULL;
            if (is && ex_mul(c->t.x.p, is, ex_int(c->t.x.p, n)) == whole) c->size[size->i] = is; /* of 14*h, h */
        }
    const ScalarInput *x, *y;
    for (int i = 0, k = 0; (x = next_varying(a, &i)) && (y = next_varying(b, &k));)
        c->size[y->value.e->i] = checker_expr(c, SOURCE, x->value.e);
}

/* A size that is read from data is taken for the one that is read from the value of the same name, whatever both are
 * called, or, where there is none, for the one of its own name; checker_finish sees whether the values are the same. */
static void pair_data(Checker *c)
{
    const ExprPool *a = c->side[SOURCE].g->ex, *b = c->side[RESULT].g->ex;
    for (int i = 0; i < expr_symbol_count(b); i++) {
        const Symbol *s = expr_symbol(b, i);
        if (c->size[i] || !checker_from_data(s)) continue;
        for (int k = 0; k < expr_symbol_count(a); k++) {
            const Symbol *of = expr_symbol(a, k);
            bool alike = checker_from_data(of) && of->source == s->source && of->dim == s->dim;
            if (alike && !strcmp(of->value->name, s->value->name))
                c->size[i] = expr_find_symbol(c->t.x.p, checker_source_size(c, of->name)->name)->expr;
        }
    }
}

bool checker_same_sizes(Checker *c, const Value *a, const Value *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++) {
        const Expr *e = checker_expr(c, SOURCE, a->dim[i]);
        if (!e || e != checker_expr(c, RESULT, b->dim[i])) return false;
    }
    return true;
}

/* ------------------------------------------------------------------ classes */

int checker_class(const Checker *c, int side, const Value *v) { return c->side[side].class[v->id]; }

bool checker_known(const Checker *c, const Node *n)
{
    for (int k = 0; k < n->nout; k++)
        if (checker_class(c, RESULT, n->out[k]) >= 0) return true;
    return false;
}

/* An axis counts from the front; numbers of an ONNX file are what float32 has. */
static bool key_expr(Checker *c, int side, const Node *n, int param, const Expr *e, Buf *key)
{
    const Value *x = n->arg[0].kind == ARG_VALUE ? n->arg[0].v : NULL;
    bool axis = x && e->kind == EX_INT && e->i < 0 && !strcmp(n->op->schema->params[param].name, "dim");
    if (!(e = axis && n->arg[param].kind == ARG_EXPR ? ex_int(c->t.x.p, e->i + x->rank) : checker_expr(c, side, e)))
        return false;
    bool single = c->t.single && e->kind == EX_FLOAT && n->nout && n->out[0]->dtype != DT_F64;
    if (single) buf_printf(key, "%a,", (double)(float)e->f);
    else buf_printf(key, "%u,", e->id);
    return true;
}

/* A reshape of a reshape keeps the row-major place of what was there first. */
static const Value *before_reshapes(const Node *n, const Value *v)
{
    while (n->op->id == OP_reshape && v->def && v->def->op->id == OP_reshape) v = v->def->arg[0].v;
    return v;
}

/* What a node computes, as text, less how it spells parameter `but`, if any; false: only itself. */
static bool key_of(Checker *c, int side, const Node *n, const char *but, Buf *key)
{
    bool stored = n->op->flags & OPF_AS_STORED && n->op->id != OP_nan_to_num;
    c->rests = false;
    buf_printf(key, "%d", (int)n->op->id);
    for (int k = 0; k < n->op->schema->nparams; k++) {
        const Arg *a = &n->arg[k];
        if (!strncmp(n->op->schema->params[k].name, "cudnn", 5)) continue; /* how, not what */
        if (but && !strcmp(n->op->schema->params[k].name, but)) continue;
        buf_printf(key, "|%d:", (int)a->kind);
        bool values = a->kind == ARG_VALUE || a->kind == ARG_VALUES,
             exprs = a->kind == ARG_EXPR || a->kind == ARG_EXPRS;
        int count = a->kind == ARG_VALUES || a->kind == ARG_EXPRS ? a->n : values || exprs;
        for (int i = 0; i < count; i++) {
            const Value *v = a->kind == ARG_VALUE ? before_reshapes(n, a->v) : values ? a->vs[i] : NULL;
            int class = v ? checker_class(c, side, v) : -2;
            c->rests |= class >= 0 && c->claimed[class];
            if (values) buf_printf(key, "%d,", class);
            else if (!key_expr(c, side, n, k, a->kind == ARG_EXPR ? a->e : a->es[i], key)) return false;
        }
        if (a->kind == ARG_STR) buf_printf(key, "%zu %s", strlen(a->s), a->s);
        if (a->kind == ARG_DTYPE) buf_printf(key, "%d", (int)a->dtype);
        if (a->kind == ARG_GRAPH) return false;
    }
    return !key->failed && !(stored && c->rests); /* bytes and signs of 0 may differ */
}

static bool name_class(Checker *c, const Value *v, Err *err)
{
    const Value **all = vec_room(c->arena, c->of_class, c->nclasses, sizeof *all);
    if (!all) return oom(err);
    c->of_class = all;
    all[c->nclasses] = v;
    c->side[SOURCE].class[v->id] = c->nclasses++;
    return true;
}

/* The class of what a reshape leads back to: a value that has, before other reshapes, the same sizes. -1: none. */
static int class_before(const Checker *c, int side, const Node *n)
{
    const Value *v = n->out[0], *x = v;
    while (x->def && x->def->op->id == OP_reshape) {
        x = x->def->arg[0].v;
        bool same = x->rank == v->rank;
        for (int i = 0; same && i < x->rank; i++) same = x->dim[i] == v->dim[i];
        if (same) return checker_class(c, side, x);
    }
    return -1;
}

/* May elements of a weight be infinite, as those of masks are? */
static bool weight_infinite(const Value *v)
{
    int64_t n = v->data && dtype_is_float(v->dtype) ? tensor_numel(v->data) : 0;
    bool single = v->dtype == DT_F32, plain = single || v->dtype == DT_F16 || v->dtype == DT_BF16, is = false;
    if (n && plain && tensor_contiguous(v->data)) { /* 10^9 of them; infinite or NaN: all bits of the exponent */
        const uint32_t *wide = v->data->data, ones = single ? 0x7f800000 : v->dtype == DT_F16 ? 0x7c00 : 0x7f80;
        const uint16_t *half = v->data->data;
        for (int64_t i = 0; single && i < n; i++) is |= (wide[i] & ones) == ones;
        for (int64_t i = 0; !single && i < n; i++) is |= (half[i] & ones) == ones;
        return is;
    }
    for (int64_t i = 0; i < n && !is; i++) is = !isfinite(tensor_get(v->data, i));
    return is;
}

/* What of a graph may be infinite, where inputs are numbers or, in a body, as the loop says. */
typedef struct Infinite {
    Arena *arena;
    const int *class; /* by id; NULL: a body, whose values have no classes */
    bool *is, failed; /* by class or id; without memory */
} Infinite;

static bool *infinite_at(const Infinite *x, const Value *v) { return &x->is[x->class ? x->class[v->id] : v->id]; }
static bool gives_infinite(const Graph *g, Infinite *outer);

/* May a float that a node gives be infinite? What minus infinity is added to or put into, until an exponential makes it
 * 0. */
static bool node_infinite(const Node *n, Infinite *x)
{
    OpId id = n->op->id;
    bool is = false;
    if (id == OP_softmax_int || id == OP_safe_softmax || id == OP_exp || id == OP_nan_to_num) return false;
    for (int k = 0; k < n->op->schema->nparams && !is; k++) {
        const Arg *a = &n->arg[k];
        if (!strcmp(n->op->schema->params[k].name, "attn_mask")) continue; /* an exponential is of it */
        is = (a->kind == ARG_EXPR && a->e->kind == EX_FLOAT && isinf(a->e->f)) ||
             (a->kind == ARG_GRAPH && gives_infinite(a->g, x));
        for (int i = 0; !is && i < (a->kind == ARG_VALUES ? a->n : a->kind == ARG_VALUE); i++) {
            const Value *v = a->kind == ARG_VALUE ? a->v : a->vs[i];
            is = v && *infinite_at(x, v);
        }
    }
    return is;
}

static void mark_infinite(const Graph *g, Infinite *x)
{
    for (int i = 0; i < g->nweight; i++)
        if (weight_infinite(g->weight[i])) *infinite_at(x, g->weight[i]) = true;
    for (const Node *n = g->first; n; n = n->next) {
        bool may = node_infinite(n, x);
        for (int k = 0; k < n->nout && may; k++) /* not the places that topk gives */
            if (dtype_is_float(n->out[k]->dtype)) *infinite_at(x, n->out[k]) = true;
    }
}

/* Does a body give what may be infinite, where it is given numbers? */
static bool gives_infinite(const Graph *g, Infinite *outer)
{
    Infinite x = {outer->arena, NULL, arena_array(outer->arena, bool, g->next_id + 1), false};
    bool is = false;
    if (x.is) mark_infinite(g, &x);
    for (int i = 0; x.is && i < g->noutput; i++) is |= x.is[g->output[i].value->id];
    outer->failed |= !x.is || x.failed;
    return is;
}

/* By class: an element of it may be infinite. */
static bool find_infinite(Checker *c, Err *err)
{
    const Side *s = &c->side[SOURCE];
    Infinite x = {c->arena, s->class, arena_array(c->arena, bool, s->g->next_id + 1), false};
    if (!(c->t.infinite = x.is)) return oom(err);
    for (int i = 0; c->inside && c->inside->infinite && i < s->g->ninput; i++)
        if (dtype_is_float(s->g->input[i]->dtype)) x.is[s->class[s->g->input[i]->id]] = true;
    mark_infinite(s->g, &x);
    return !x.failed || oom(err);
}

/* Every value of the source has a class; nodes that compute the same have the same. */
static bool take_source(Checker *c, Err *err)
{
    const Graph *g = c->side[SOURCE].g;
    for (int i = 0; i < g->ninput; i++) TRY(name_class(c, g->input[i], err));
    Value **first = arena_alloc(c->arena, (size_t)g->nweight + 1, sizeof *first);
    if (!first || !graph_equal_weights(g, false, first)) return oom(err);
    for (int i = 0; i < g->nweight; i++)
        if (first[i] != g->weight[i]) c->side[SOURCE].class[g->weight[i]->id] = checker_class(c, SOURCE, first[i]);
        else TRY(name_class(c, g->weight[i], err));
    for (const Node *n = g->first; n; n = n->next) {
        int before = n->nout ? class_before(c, SOURCE, n) : -1;
        if (before >= 0) {
            c->side[SOURCE].class[n->out[0]->id] = before;
            continue;
        }
        Buf key = {0};
        bool whole = !(n->op->flags & OPF_RANDOM) && key_of(c, SOURCE, n, NULL, &key);
        const Node *twin = whole ? map_get(&c->nodes, key.data) : NULL;
        for (int k = 0; k < n->nout; k++)
            if (twin) c->side[SOURCE].class[n->out[k]->id] = checker_class(c, SOURCE, twin->out[k]);
            else if (!name_class(c, n->out[k], err)) return buf_free(&key), false;
        char *own = whole && !twin ? arena_strdup(c->arena, key.data) : NULL;
        bool ok = !whole || twin || (own && map_put(&c->nodes, own, (void *)(uintptr_t)n));
        buf_free(&key);
        if (!ok) return oom(err);
    }
    return true;
}

/* Does it draw random numbers, or what runs in it? */
static bool draws(const Node *n)
{
    const Graph *body;
    bool does = n->op->flags & OPF_RANDOM;
    for (int i = 0; !does && (body = body_at(n, i)); i++)
        for (const Node *k = body->first; k && !does; k = k->next) does = draws(k);
    return does;
}

static bool find_draws(Checker *c, Side *s, Err *err)
{
    s->draws = arena_array(c->arena, const Node *, s->g->nnodes + 1);
    s->drawn = arena_array(c->arena, int, s->g->next_id + 1);
    if (!s->draws || !s->drawn) return oom(err);
    for (const Node *n = s->g->first; n; n = n->next) {
        if (!draws(n)) continue;
        s->draws[s->ndraws++] = n;
        if (n->nout) s->drawn[n->out[0]->id] = s->ndraws;
    }
    return true;
}

/* What draws what n of the result draws: the source's node of the same place among those that draw, with the
 * same arguments, as the generator gives numbers in this order. */
static const Node *same_draw(Checker *c, const Node *n)
{
    int k = n->nout ? c->side[RESULT].drawn[n->out[0]->id] : 0;
    const Node *m = k && k <= c->side[SOURCE].ndraws ? c->side[SOURCE].draws[k - 1] : NULL;
    Buf a = {0}, b = {0};
    bool same = m && !c->t.single && key_of(c, SOURCE, m, NULL, &a) && key_of(c, RESULT, n, NULL, &b) &&
                !strcmp(a.data, b.data);
    buf_free(&a);
    buf_free(&b);
    return same ? m : NULL;
}

int checker_same(Checker *c, const Value *a, const Value *b)
{
    int class = checker_class(c, SOURCE, a), own = checker_class(c, RESULT, b);
    for (int i = 0; own >= 0 && i < c->side[SOURCE].g->next_id; i++) /* x / 1 is x, which b was known to be */
        if (c->side[SOURCE].class[i] == class) c->side[SOURCE].class[i] = own;
    if (own < 0) c->side[RESULT].class[b->id] = class;
    c->shared[own < 0 ? class : own] = true;
    return own < 0 ? class : own;
}

bool checker_congruent(Checker *c, const Node *n)
{
    int before = n->nout ? class_before(c, RESULT, n) : -1;
    if (before >= 0) checker_same(c, c->of_class[before], n->out[0]);
    if (before >= 0) return true;
    Buf key = {0};
    const Node *twin = n->op->flags & OPF_RANDOM ? same_draw(c, n) : NULL;
    if (!(n->op->flags & OPF_RANDOM) && key_of(c, RESULT, n, NULL, &key)) twin = map_get(&c->nodes, key.data);
    bool rests = c->rests;
    buf_free(&key);
    for (int k = 0; twin && k < n->nout; k++)
        if (k >= twin->nout || !checker_same_sizes(c, twin->out[k], n->out[k])) return false;
    for (int k = 0; twin && k < n->nout; k++) c->claimed[checker_same(c, twin->out[k], n->out[k])] |= rests;
    return twin != NULL;
}

bool checker_same_bits(Checker *c, const Term *form)
{
    const Value *a = c->side[SOURCE].computes, *b = c->side[RESULT].computes;
    const Operand *f = term_factor(form);
    bool same = !a && !b && f && f->t->kind == T_LEAF && f->p == f->q;
    if (c->side[SOURCE].ncomputes == 1 && c->side[RESULT].ncomputes == 1 && a->out == b->out) {
        Buf x = {0}, y = {0};
        same = key_of(c, SOURCE, a->def, "keepdim", &x) && !c->rests &&
               key_of(c, RESULT, b->def, "keepdim", &y) && !c->rests && !strcmp(x.data, y.data);
        buf_free(&x);
        buf_free(&y);
    }
    for (int k = 0; same && k < c->nclasses; k++) same = !(c->cut[k] && c->claimed[k]);
    return same;
}

void checker_equal(Checker *c, const Value *a, const Value *b)
{
    c->claimed[checker_same(c, a, b)] |= !c->same_bits;
    c->same_bits = false;
}

bool checker_given(const Checker *c, int i, const Value **a, const Value **b)
{
    const Graph *x = c->side[SOURCE].g, *y = c->side[RESULT].g;
    int n = c->inside || y->noutput < x->noutput ? y->noutput : x->noutput;
    if (i < n) return *a = x->output[c->inside ? c->inside->output[i] : i].value, *b = y->output[i].value, true;
    if (i - n >= graph_mutations(x) || i - n >= graph_mutations(y)) return false;
    return *a = graph_mutation(x, i - n)->value, *b = graph_mutation(y, i - n)->value, true;
}

/* ------------------------------------------------------------------ inputs and weights */

/* The same values: rows from .. from + count - 1 of a, and those of b; count < 0: all, of the same sizes. */
static bool same_rows(const Tensor *a, int64_t from, int64_t count, const Tensor *b)
{
    if (!a || !b || a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int i = count < 0 ? 0 : 1; i < a->rank; i++)
        if (a->shape[i] != b->shape[i]) return false;
    if (count >= 0 && (a->rank < 1 || b->shape[0] != count || from < 0 || from > a->shape[0] - count)) return false;
    Tensor part = *a;
    if (count >= 0) {
        part.shape[0] = count;
        part.data = (char *)a->data + from * a->stride[0] * (int64_t)dtype_size(a->dtype);
    }
    if (tensor_contiguous(&part) && tensor_contiguous(b))
        return !tensor_numel(b) || !memcmp(part.data, b->data, (size_t)tensor_numel(b) * dtype_size(b->dtype));
    for (int64_t i = 0, n = tensor_numel(b); i < n; i++) {
        double x = tensor_get(&part, i), y = tensor_get(b, i);
        if (memcmp(&x, &y, sizeof x) || (dtype_is_int(a->dtype) && tensor_get_i64(&part, i) != tensor_get_i64(b, i)))
            return false;
    }
    return !dtype_is_complex(a->dtype);
}

/* Of dtype, sizes and some elements: tensors that same_rows takes for one have one. */
static uint64_t rows_hash(const Tensor *t)
{
    enum { SOME = 256 };
    double some[SOME];
    if (!t) return 0;
    int64_t n = tensor_numel(t), count = dtype_is_complex(t->dtype) ? 0 : n < SOME ? n : SOME;
    for (int64_t i = 0; i < count; i++) some[i] = tensor_get(t, n / count * i);
    return hash_keyed(some, (size_t)count * sizeof *some) ^ hash_keyed(t->shape, (size_t)t->rank * sizeof *t->shape) ^
           (uint64_t)t->dtype;
}

/* The first weight that shows what w shows; a constant's is a constant. NULL: there is none. */
static const Value *weight_with(const Graph *g, const Lookup *shown, const Value *w)
{
    const Value *found = NULL;
    uint64_t hash = rows_hash(w->data);
    size_t tried = 0;
    int64_t i, first = g->nweight;
    while ((i = lookup_next(shown, hash, &tried)) >= 0) {
        const Value *v = g->weight[i];
        if (i > first || (w->weight == W_CONSTANT && v->weight != W_CONSTANT) || !same_rows(w->data, 0, -1, v->data))
            continue;
        found = v;
        first = i;
    }
    return found;
}

/* Is an input that is a number or a word, where both files have it, the same one, if it is fixed? */
static bool same_number(Checker *c, const ScalarInput *x, const ScalarInput *y)
{
    const Arg *a = &x->value, *b = &y->value;
    if (a->kind != b->kind) return false;
    if (a->kind == ARG_EXPR) return checker_expr(c, SOURCE, a->e) == checker_expr(c, RESULT, b->e);
    return a->kind != ARG_STR || !strcmp(a->s, b->s);
}

static bool take_result(Checker *c, Err *err)
{
    const Graph *a = c->side[SOURCE].g, *b = c->side[RESULT].g;
    if (a->ninput != b->ninput && !c->inside)
        return fail(err, E_MISMATCH, "%d inputs, the source has %d", b->ninput, a->ninput);
    for (int i = 0; i < b->next_id; i++) c->side[RESULT].class[i] = -1;
    for (int i = 0; i < b->ninput; i++) {
        const Value *of = input_of(c, i);
        if (!of) continue;
        bool named = c->inside || !strcmp(value_label(of), value_label(b->input[i]));
        if (!named || !checker_same_sizes(c, of, b->input[i]))
            return fail(err, E_MISMATCH, "input %d is '%s', the source's '%s', or their dtypes or sizes differ", i,
                        value_label(b->input[i]), value_label(of));
        c->claimed[checker_same(c, of, b->input[i])] |= c->inside && c->inside->claimed;
    }
    const ScalarInput *x, *y;
    for (int i = 0, k = 0; x = next_varying(a, &i), y = next_varying(b, &k), x || y;)
        if (!x || !y || strcmp(x->name, y->name)) return fail(err, E_MISMATCH, "the inputs that are numbers differ");
    for (int i = 0; i < a->nscalar_input && a->nscalar_input == b->nscalar_input; i++)
        if (!same_number(c, &a->scalar_input[i], &b->scalar_input[i]))
            return fail(err, E_MISMATCH, "input '%s' is fixed to another value", b->scalar_input[i].name);
    Map named = {0};
    Lookup shown = {0};
    bool ok = true;
    for (int i = 0; i < a->nweight && ok; i++)
        ok = (!a->weight[i]->fqn || map_put(&named, a->weight[i]->fqn, a->weight[i])) &&
             lookup_add(&shown, rows_hash(a->weight[i]->data), (size_t)i);
    for (int i = 0; i < b->nweight && ok; i++) {
        const Value *w = b->weight[i], *of = w->fqn ? map_get(&named, w->fqn) : NULL;
        if (!of || !same_rows(w->data, 0, -1, of->data)) of = weight_with(a, &shown, w);
        if (of && !graph_writes(b, w) == !graph_writes(a, of)) checker_same(c, of, w);
    }
    map_free(&named);
    lookup_free(&shown);
    return ok || oom(err);
}

static bool zero_rows(const Tensor *w, int64_t from, int64_t count)
{
    if (w->rank != 1 || !dtype_is_float(w->dtype) || from < 0 || from > w->shape[0] - count) return false;
    for (int64_t i = from; i < from + count; i++)
        if (tensor_get(w, i) != 0) return false;
    return true;
}

/* Are the rows of w the columns of v, byte by byte? */
static bool is_turned(const Tensor *w, const Tensor *v)
{
    if (!w || !v || w->rank != 2 || v->rank != 2 || w->dtype != v->dtype || w->shape[0] != v->shape[1] ||
        w->shape[1] != v->shape[0])
        return false;
    size_t size = dtype_size(w->dtype);
    const char *a = w->data, *b = v->data;
    for (int64_t i = 0; i < w->shape[0]; i++)
        for (int64_t k = 0; k < w->shape[1]; k++)
            if (memcmp(a + (size_t)(i * w->stride[0] + k * w->stride[1]) * size,
                       b + (size_t)(k * v->stride[0] + i * v->stride[1]) * size, size))
                return false;
    return true;
}

/* The same bytes in their order, of other sizes. */
static bool same_numbers(const Tensor *w, const Tensor *v)
{
    return w && v && w->dtype == v->dtype && tensor_contiguous(w) && tensor_contiguous(v) &&
           tensor_numel(w) == tensor_numel(v) &&
           !memcmp(w->data, v->data, (size_t)tensor_numel(w) * dtype_size(w->dtype));
}

bool checker_zero(const Checker *c, int side, const Value *weight)
{
    const Tensor *w = weight->data;
    unsigned char *zero = &c->side[side].zero[weight->id];
    if (!w || w->rank != 1) return false;
    if (!*zero) *zero = !graph_writes(c->side[side].g, weight) && zero_rows(w, 0, w->shape[0]) ? 2 : 1;
    return *zero == 2;
}

bool checker_piece(Checker *c, const Value *weight, int64_t from, int64_t count, const Value *of, Err *err)
{
    bool kept = weight->kind == V_WEIGHT && !graph_writes(c->side[RESULT].g, weight) && count >= 0 &&
                (!of || (of->kind == V_WEIGHT && !graph_writes(c->side[SOURCE].g, of)));
    bool rows = kept && (of ? same_rows(weight->data, from, count, of->data) : zero_rows(weight->data, from, count));
    bool turned = kept && !rows && of && from == 0 && is_turned(weight->data, of->data) &&
                  count == weight->data->shape[0];
    bool reshaped = kept && !rows && !turned && of && from == 0 && count == weight->data->shape[0] &&
                    same_numbers(weight->data, of->data);
    if (!rows && !turned && !reshaped)
        return fail(err, E_MISMATCH, "weight '%s': %lld rows from row %lld on are not '%s'", weight->name,
                    (long long)count, (long long)from, of ? of->name : "0");
    Piece *all = vec_room(c->arena, c->piece, c->npieces, sizeof *all);
    if (!all) return oom(err);
    c->piece = all;
    all[c->npieces++] = (Piece){weight, of, from, count, turned, reshaped};
    return true;
}

/* g, or a copy of it whose bodies hold the weights that they capture. */
static const Graph *with_weights(Checker *c, int side, const Graph *g, Err *err)
{
    if (!has_bodies(g)) return g;
    Graph *own = c->own[side] = graph_copy(g, err);
    return own && bodies_sink(own, err) ? own : NULL;
}

bool checker_open(Checker *c, const Graph *source, const Graph *result, bool single, Err *err)
{
    *c = (Checker){0};
    const Graph *a = with_weights(c, SOURCE, source, err), *b = a ? with_weights(c, RESULT, result, err) : NULL;
    return b && checker_open_body(c, a, b, single, NULL, err);
}

bool checker_open_body(Checker *c, const Graph *source, const Graph *result, bool single, const Inside *in, Err *err)
{
    c->arena = arena_create(0);
    if (!c->arena) return oom(err);
    c->inside = in;
    c->t.single = single;
    if (single) c->laws = 1u << LAW_SINGLE;
    c->t.x = (Index){.p = expr_pool(c->arena), .arena = c->arena};
    c->t.x.memo = arena_alloc(c->arena, INDEX_MEMO, sizeof *c->t.x.memo);
    c->cut = arena_array(c->arena, bool, source->next_id + 1);
    c->shared = arena_array(c->arena, bool, source->next_id + 1);
    c->claimed = arena_array(c->arena, bool, source->next_id + 1);
    const Graph *g[] = {source, result};
    for (int s = 0; s < 2; s++) {
        c->side[s] = (Side){.g = g[s], .class = arena_array(c->arena, int, g[s]->next_id + 1)};
        c->side[s].nexpr = expr_node_count(g[s]->ex);
        c->side[s].expr = arena_array(c->arena, Expr *, c->side[s].nexpr + 1);
        c->side[s].step = arena_array(c->arena, Step, g[s]->next_id + 1);
        c->side[s].zero = arena_array(c->arena, unsigned char, g[s]->next_id + 1);
        if (!c->side[s].class || !c->side[s].expr || !c->side[s].step || !c->side[s].zero) return oom(err);
        TRY(find_draws(c, &c->side[s], err));
    }
    if (!c->t.x.p || !c->t.x.memo || !c->cut || !c->shared || !c->claimed || !terms_open(&c->t)) return oom(err);
    c->size = arena_array(c->arena, Expr *, expr_symbol_count(result->ex) + 1);
    if (!c->size) return oom(err);
    for (int i = 0; i < source->next_id; i++) c->side[SOURCE].class[i] = -1;
    TRY(take_sizes(c, err) && take_same(c, err));
    take_bounds(c);
    TRY(take_source(c, err) && find_infinite(c, err));
    pair_sizes(c);
    pair_data(c);
    return take_result(c, err);
}

void checker_close(Checker *c)
{
    terms_close(&c->t);
    map_free(&c->nodes);
    for (int s = 0; s < 2; s++) buf_free(&c->side[s].steps);
    for (int s = 0; s < 2; s++) graph_free(c->own[s]);
    if (c->t.x.p) expr_pool_free(c->t.x.p);
    arena_destroy(c->arena);
}
