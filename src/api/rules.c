/* Guards and graft functions of the caller's rules (qkv_rule_function), and what they see of a match. */
#include <string.h>
#include "api/api_impl.h"
#include "base/mem.h"
#include "base/number.h"
#include "facts/constant.h"
#include "rewrite/build.h"

enum { MOST_ARGS = 8, NAME_LENGTH = 100 };

struct qkv_match {
    Rewrite *rw;
    int n;
    const Arg *arg;
    bool grafts; /* what is called may build */
    Arg built;
};

typedef struct Own {
    char name[NAME_LENGTH]; /* first: that of its guard and its graft function, by which it is found (rw->called) */
    const qkv_rule_function *f;
} Own;

/* ------------------------------------------------------------------ looking */

/* The next part of a path, up to '/'; the rest of it. */
static const char *part_of(const char *path, char *part, size_t size)
{
    size_t n = strcspn(path, "/");
    size_t kept = n < size ? n : size - 1;
    memcpy(part, path, kept);
    part[kept] = 0;
    return path[n] ? path + n + 1 : NULL;
}

static int index_of(const char *part, int n)
{
    int i = 0;
    for (const char *c = part; *c; c++)
        if (!is_digit(*c) || (i = 10 * i + (*c - '0')) >= n) return -1;
    return *part ? i : -1;
}

/* One step of a path: an argument of the node that computes a tensor, or an element of a list. */
static bool step(const char *part, const Arg *from, Arg *to, Err *err)
{
    if (from->kind == ARG_VALUES || from->kind == ARG_EXPRS) {
        int i = index_of(part, from->n);
        if (i < 0) return fail(err, E_USAGE, "'%s' is not an element of a list of %d", part, from->n);
        *to = from->kind == ARG_EXPRS ? arg_expr(from->es[i]) : from->vs[i] ? arg_value(from->vs[i]) : arg_none();
        return true;
    }
    const Node *n = from->kind == ARG_VALUE ? from->v->def : NULL;
    if (!n) return fail(err, E_USAGE, "'%s' of what no op computes", part);
    int i = op_param(n->op, part);
    if (i < 0) i = index_of(part, n->op->schema->nparams);
    if (i < 0) return fail(err, E_USAGE, "%s has no parameter '%s': %s", n->op->name, part, n->op->schema_text);
    *to = n->arg[i];
    return true;
}

static bool find(const qkv_match *m, const char *path, Arg *out, Err *err)
{
    char part[NAME_LENGTH];
    const char *rest = part_of(path, part, sizeof part);
    int i = index_of(part, m->n);
    if (i < 0) return fail(err, E_USAGE, "path '%s': expected an argument from 0 to %d", path, m->n - 1);
    for (*out = m->arg[i]; rest;) {
        const Arg from = *out;
        rest = part_of(rest, part, sizeof part);
        TRY(step(part, &from, out, err) || within(err, "path '%s'", path));
    }
    return true;
}

static bool ranges(const Value *v, Rewrite *rw, qkv_match_view *out)
{
    int64_t *low = arena_array(rw->scratch, int64_t, v->rank + 1);
    int64_t *high = arena_array(rw->scratch, int64_t, v->rank + 1);
    for (int i = 0; low && high && i < v->rank; i++) ex_range(rw->ex, v->dim[i], &low[i], &high[i]);
    out->low = low;
    out->high = high;
    return low && high;
}

static bool elements(const Value *v, Rewrite *rw, qkv_match_view *out)
{
    const Tensor *t = constant_tensor(rw->g, v);
    qkv_tensor *q = t ? arena_alloc(rw->scratch, 1, sizeof *q) : NULL;
    if (q) *q = (qkv_tensor){(qkv_dtype)t->dtype, t->rank, t->shape, t->stride, t->data};
    out->data = q;
    return !t || q;
}

static bool tensor_view(Value *v, Rewrite *rw, qkv_match_view *out)
{
    const Node *n = v->def;
    const char **names = n ? arena_array(rw->scratch, const char *, n->op->schema->nparams + 1) : NULL;
    out->name = v->name;
    out->uses = rewrite_info(rw, v)->uses;
    out->weight = v->kind == V_WEIGHT ? v->fqn : NULL;
    if (n) {
        out->op = n->op->name;
        out->result = v->out;
        out->n_parameters = n->op->schema->nparams;
        out->parameters = names;
        for (int i = 0; names && i < out->n_parameters; i++) names[i] = n->op->schema->params[i].name;
    }
    return (!n || names) && ranges(v, rw, out) && elements(v, rw, out);
}

qkv_status qkv_match_look(qkv_match *m, const char *path, qkv_match_view *out, qkv_error *err)
{
    Err e = api_begin();
    qkv_match_view all = {.struct_size = sizeof all};
    Arg a;
    if (!GIVEN(m) || !GIVEN(path) || !GIVEN(out) || !VERSIONED_WANTED(qkv_match_view, data, out, &e) ||
        !find(m, path, &a, &e) || !api_declared(&a, m->rw->ex, m->rw->scratch, &all.arg, &e))
        return api_give(&e, err);
    const Expr *number = number_of(m->rw->g, &a);
    if ((number && !(all.number = api_expr_text(m->rw->ex, number, m->rw->scratch))) ||
        (a.kind == ARG_VALUE && !tensor_view(a.v, m->rw, &all))) {
        oom(&e);
        return api_give(&e, err);
    }
    versioned_give(out, &all, sizeof all);
    return QKV_OK;
}

/* ------------------------------------------------------------------ building */

static bool build(qkv_match *m, const char *text, Err *err)
{
    const char *var[MAX_VARS];
    Arg bound[MAX_VARS];
    bool has[MAX_VARS];
    int n;
    if (!m->grafts) return fail(err, E_USAGE, "a guard builds nothing");
    const Graft *g = graft_parse(m->rw->scratch, m->rw->o->rules->families, text, var, &n, err);
    if (!g) return within(err, "graft '%.200s'", text);
    for (int i = 0; i < n; i++) {
        TRY(find(m, var[i] + 1, &bound[i], err));
        has[i] = bound[i].kind != ARG_NONE;
    }
    m->rw->why[0] = 0;
    if (rewrite_graft(m->rw, g, bound, has, &m->built)) return true;
    if (m->rw->hard) return false;
    return fail(err, E_MISMATCH, "%s", m->rw->why[0] ? m->rw->why : "it cannot be built");
}

qkv_status qkv_match_build(qkv_match *m, const char *graft, qkv_error *err)
{
    Err e = api_begin();
    if (!GIVEN(m) || !GIVEN(graft)) return api_give(&e, err);
    m->built = arg_none();
    return build(m, graft, &e) ? QKV_OK : api_give(&e, err);
}

/* ------------------------------------------------------------------ being called */

static const qkv_rule_function *called(const Rewrite *rw) { return ((const Own *)(const void *)rw->called)->f; }

static bool call(const qkv_rule_function *f, qkv_rule_call *what, qkv_match *m)
{
    qkv_error e = {0};
    bool refused = mem_ran_out(); /* which the calls inside forget */
    qkv_status status = what(f->user, m, &e);
    if (refused) mem_refused();
    if (m->rw->hard) return false;
    if (status == QKV_OK) return true;
    if (mem_ran_out()) return m->rw->hard = true, oom(m->rw->err);
    return rewrite_refuse(m->rw, "%s: %s", f->name, *e.message ? e.message : "it does not hold");
}

static bool own_guard(Rewrite *rw, int n, const Arg *a)
{
    const qkv_rule_function *f = called(rw);
    return call(f, f->guard, &(qkv_match){.rw = rw, .n = n, .arg = a});
}

static bool own_graft(Rewrite *rw, int n, const Arg *a, Arg *out)
{
    const qkv_rule_function *f = called(rw);
    qkv_match m = {.rw = rw, .n = n, .arg = a, .grafts = true, .built = arg_none()};
    TRY(call(f, f->graft, &m));
    if (m.built.kind == ARG_NONE) return rewrite_refuse(rw, "%s: it built nothing", f->name);
    *out = m.built;
    return true;
}

static bool well_named(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    for (size_t i = 0; i < n; i++)
        if (!is_alnum(name[i]) && name[i] != '_') return false;
    return n > 0 && n < NAME_LENGTH;
}

bool api_rule_functions(const qkv_rule_function *f, int n, Family *to, Err *err)
{
    Guard *guards = mem_zeroed((size_t)n + 1, sizeof *guards + sizeof(Maker) + sizeof(Own));
    if (!guards) return oom(err);
    Maker *makers = (Maker *)(guards + n + 1);
    Own *own = (Own *)(makers + n + 1);
    *to = (Family){.name = "own", .guards = guards, .makers = makers};
    for (int i = 0; i < n; i++) {
        if (!well_named(f[i].name))
            return fail(err, E_USAGE, "functions[%d]: expected a name of letters, digits and '_'", i);
        own[i].f = &f[i];
        strcpy(own[i].name, f[i].name);
        if (f[i].guard) *guards++ = (Guard){own[i].name, own_guard, 0, MOST_ARGS};
        if (f[i].graft) *makers++ = (Maker){own[i].name, own_graft, "ZZZZZZZZ"};
    }
    return true;
}

void api_rule_functions_free(Family *f)
{
    mem_free((void *)(uintptr_t)f->guards); /* makers and names are in the same memory */
    *f = (Family){0};
}
