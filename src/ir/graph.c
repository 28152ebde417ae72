/* Building and changing graphs. Contract in graph.h. */
#include "ir/graph.h"
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "base/number.h"
#include "base/vec.h"
#include "ir/text.h"

enum { MAX_GRAPH_NODES = 2000000 };

Graph *graph_create(void)
{
    Arena *a = arena_create(0);
    if (!a) return NULL;
    Graph *g = arena_new(a, Graph);
    if (g) {
        g->arena = a;
        g->ex = expr_pool(a);
    }
    if (!g || !g->ex) {
        arena_destroy(a);
        return NULL;
    }
    return g;
}

typedef struct Body {
    struct Body *next;
    Graph *graph;
} Body;

void graph_free(Graph *g)
{
    if (!g) return;
    for (Body *b = g->bodies; b; b = b->next) graph_free(b->graph);
    mem_free(g->require);
    map_free(&g->names);
    map_free(&g->modules);
    expr_pool_free(g->ex);
    arena_destroy(g->arena);
}

/* ------------------------------------------------------------------ arguments */

Arg arg_none(void) { return (Arg){.kind = ARG_NONE}; }
Arg arg_value(Value *v) { return v ? (Arg){.kind = ARG_VALUE, .v = v} : arg_none(); }
Arg arg_expr(Expr *e) { return (Arg){.kind = ARG_EXPR, .e = e}; }
Arg arg_int(Graph *g, int64_t v) { return arg_expr(ex_int(g->ex, v)); }
Arg arg_float(Graph *g, double v) { return arg_expr(ex_float(g->ex, v)); }
Arg arg_bool(Graph *g, bool v) { return arg_expr(ex_bool(g->ex, v)); }
Arg arg_dtype(DType t) { return t == DT_NONE ? arg_none() : (Arg){.kind = ARG_DTYPE, .dtype = t}; }
Arg arg_graph(Graph *g, Graph *body)
{
    Body *b = arena_new(g->arena, Body);
    if (!b) {
        graph_free(body);
        return arg_none();
    }
    *b = (Body){g->bodies, body};
    g->bodies = b;
    return (Arg){.kind = ARG_GRAPH, .g = body};
}

Arg arg_str(Graph *g, const char *s) { return (Arg){.kind = ARG_STR, .s = arena_strdup(g->arena, s)}; }

Arg arg_values(Graph *g, int n, Value *const *vs)
{
    Arg a = {.kind = ARG_VALUES, .n = n, .vs = arena_array(g->arena, Value *, n + 1)};
    for (int i = 0; i < n && a.vs; i++) a.vs[i] = vs[i];
    return a;
}

Arg arg_exprs(Graph *g, int n, Expr *const *es)
{
    Arg a = {.kind = ARG_EXPRS, .n = n, .es = arena_array(g->arena, Expr *, n + 1)};
    for (int i = 0; i < n && a.es; i++) a.es[i] = es[i];
    return a;
}

Arg arg_ints(Graph *g, int n, const int64_t *v)
{
    Arg a = {.kind = ARG_EXPRS, .n = n, .es = arena_array(g->arena, Expr *, n + 1)};
    for (int i = 0; i < n && a.es; i++) a.es[i] = ex_int(g->ex, v[i]);
    return a;
}

bool arg_same(const Arg *a, const Arg *b)
{
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case ARG_NONE: return true;
    case ARG_VALUE: return a->v == b->v;
    case ARG_EXPR: return a->e == b->e;
    case ARG_STR: return !strcmp(a->s, b->s);
    case ARG_DTYPE: return a->dtype == b->dtype;
    case ARG_GRAPH: return a->g == b->g;
    case ARG_VALUES: return a->n == b->n && (!a->n || !memcmp(a->vs, b->vs, (size_t)a->n * sizeof *a->vs));
    case ARG_EXPRS: return a->n == b->n && (!a->n || !memcmp(a->es, b->es, (size_t)a->n * sizeof *a->es));
    }
    return false;
}

/* ------------------------------------------------------------------ values */

enum { LONG_NAME = 64 };

/* The length of a name without what was added to it here, time and again: "x__3__8__15" of a buffer that is written
 * in thousands of places. Only long names are cut. */
static size_t own_length(const char *name)
{
    size_t n = strlen(name), k;
    while (n > LONG_NAME) {
        for (k = n; name[k - 1] >= '0' && name[k - 1] <= '9' && k > 3; k--) {}
        if (k == n || name[k - 1] != '_' || name[k - 2] != '_') break;
        n = k - 2;
    }
    return n;
}

static const char *unique_name(Graph *g, const char *name)
{
    if (!map_has(&g->names, name)) return arena_strdup(g->arena, name);
    size_t n = own_length(name);
    char *s = arena_alloc(g->arena, n + 16, 1);
    for (int k = g->next_id; s; k++) { /* ids grow, so the first try is nearly always free */
        snprintf(s, n + 16, "%.*s__%d", (int)n, name, k);
        if (!map_has(&g->names, s)) break;
    }
    return s;
}

static Value *new_value(Graph *g, ValueKind kind, const char *name, DType t, int rank, Expr *const *dim)
{
    Value *v = arena_new(g->arena, Value);
    const char *unique = name ? unique_name(g, name) : NULL; /* NULL: there was no memory for it */
    Expr **d = arena_array(g->arena, Expr *, rank);
    if (!v || !unique || !d) return NULL;
    *v = (Value){.name = unique, .kind = kind, .dtype = t, .rank = rank, .dim = d, .id = g->next_id++};
    for (int i = 0; i < rank; i++) d[i] = dim[i];
    g->nvalues++;
    return map_put(&g->names, unique, v) ? v : NULL;
}

static bool append(Graph *g, Value ***list, int *n, Value *v)
{
    Value **all = vec_room(g->arena, *list, *n, sizeof(Value *));
    if (!all) return false;
    all[(*n)++] = v;
    *list = all;
    return true;
}

Value *graph_add_input(Graph *g, const char *name, DType t, int rank, Expr *const *dim)
{
    Value *v = new_value(g, V_INPUT, name, t, rank, dim);
    if (!v || !append(g, &g->input, &g->ninput, v)) return NULL;
    return v;
}

Value *graph_add_weight(Graph *g, const char *name, const char *fqn, const Tensor *data)
{
    Expr *dim[MAX_RANK];
    for (int i = 0; i < data->rank; i++)
        if (!(dim[i] = ex_int(g->ex, data->shape[i]))) return NULL;
    Value *v = new_value(g, V_WEIGHT, name, data->dtype, data->rank, dim);
    if (!v || !append(g, &g->weight, &g->nweight, v)) return NULL;
    v->data = data;
    v->fqn = fqn;
    return v;
}

bool graph_add_output(Graph *g, const char *name, Value *v, Err *err)
{
    Output *all = vec_room(g->arena, g->output, g->noutput, sizeof *all);
    const char *copy = arena_strdup(g->arena, name);
    if (!all || !copy) return oom(err);
    all[g->noutput++] = (Output){.name = copy, .value_name = v->name, .value = v};
    g->output = all;
    return true;
}

const char *output_label(const Output *o) { return o->label ? o->label : o->name; }

int graph_find_output(const Graph *g, const char *name)
{
    for (int i = 0; i < g->noutput; i++)
        if (!strcmp(g->output[i].name, name) || !strcmp(output_label(&g->output[i]), name)) return i;
    return -1;
}

bool graph_add_mutation(Graph *g, Value *target, Value *v, Err *err)
{
    bool input = target->kind == V_INPUT;
    Mutation **list = input ? &g->input_mutation : &g->mutation, *all;
    int *n = input ? &g->ninput_mutation : &g->nmutation;
    all = vec_room(g->arena, *list, *n, sizeof *all);
    if (!all) return oom(err);
    all[(*n)++] = (Mutation){target, v};
    *list = all;
    return true;
}

int graph_mutations(const Graph *g) { return g->nmutation + g->ninput_mutation; }
const Mutation *graph_mutation(const Graph *g, int i)
{
    return i < g->nmutation ? &g->mutation[i] : &g->input_mutation[i - g->nmutation];
}

bool graph_repeats_gradient(const Graph *g, int k)
{
    const Value *of = g->output[k].gradient_of;
    if (!of || of->kind != V_WEIGHT) return false;
    for (int i = 0; i < k; i++) {
        const Value *old = g->output[i].gradient_of;
        if (old && old->kind == V_WEIGHT && graph_same_parameter(g, old, of)) return true;
    }
    return false;
}

bool graph_rename(Graph *g, Value *v, const char *name, Err *err)
{
    if (!strcmp(v->name, name)) return true;
    Value *other = graph_find_value(g, name);
    const char *mine = arena_strdup(g->arena, name), *old = v->name;
    if (!mine || !map_put(&g->names, mine, v)) return oom(err);
    if (other && !map_put(&g->names, old, other)) return oom(err);
    if (other) other->name = old;
    v->name = mine;
    if (v->def && v->out == 0) v->def->name = mine;
    if (other && other->def && other->out == 0) other->def->name = old;
    return true;
}

const char *value_label(const Value *v) { return v->label ? v->label : v->name; }

Value *graph_find_value(const Graph *g, const char *name) { return map_get(&g->names, name); }

/* ------------------------------------------------------------------ nodes */

static const char *arg_kind_name(const Arg *a)
{
    static const char *const names[] = {
        "None", "a tensor", "a list of tensors", "a number", "a list of numbers", "a string", "a dtype", "a graph"};
    return names[a->kind];
}

static bool wrong_kind(const Param *p, const Arg *a, Err *err)
{
    static const char *const names[] = {"a tensor",   "a list of tensors",
                                        "an integer", "a list of integers",
                                        "a float",    "a list of floats",
                                        "a bool",     "a list of bools",
                                        "a number",   "a list of numbers",
                                        "a string",   "a dtype",
                                        "a graph",    "nothing"};
    return fail(err, E_FORMAT, "argument '%s': found %s, expected %s", p->name, arg_kind_name(a), names[p->type]);
}

/* An argument that is one of a few things: an index into their names, or a name. */
static bool one_of(const Param *p, const Arg *a, Err *err)
{
    char list[200] = "", found[48];
    int64_t n = 0;
    for (; p->choices[n]; n++)
        if (a->kind == ARG_STR && !strcmp(a->s, p->choices[n])) return true;
    if (a->kind == ARG_EXPR && ex_is_int(a->e) && a->e->i >= 0 && a->e->i < n) return true;
    for (int64_t i = 0, at = 0; i < n; i++) {
        const char *before = i == 0 ? "" : i == n - 1 ? " or " : ", ";
        int wrote = a->kind == ARG_STR ? snprintf(list + at, sizeof list - (size_t)at, "%s'%s'", before, p->choices[i])
                                       : snprintf(list + at, sizeof list - (size_t)at, "%s%lld (%s)", before,
                                                  (long long)i, p->choices[i]);
        at += wrote;
    }
    if (a->kind == ARG_STR) snprintf(found, sizeof found, "'%.40s'", a->s);
    else if (ex_is_int(a->e)) snprintf(found, sizeof found, "%lld", (long long)a->e->i);
    else snprintf(found, sizeof found, "a number that varies");
    return fail(err, E_FORMAT, "argument '%s': found %s, expected %s", p->name, found, list);
}

static bool integral(const Expr *e) { return e && !e->is_float; }

/* A truth value that is given as a number is 0 or 1; one given for a number is that. */
static bool plain(Graph *g, const Param *p, Expr **e, Err *err)
{
    bool truth = p->type == PT_BOOL || p->type == PT_BOOLS, number = p->type == PT_INT || p->type == PT_INTS;
    if (truth && ex_is_int(*e) && (uint64_t)(*e)->i > 1)
        return fail(err, E_FORMAT, "argument '%s': found %lld, expected true or false", p->name, (long long)(*e)->i);
    if (truth && ex_is_int(*e)) *e = ex_bool(g->ex, (*e)->i != 0);
    else if (number && (*e)->kind == EX_BOOL) *e = ex_int(g->ex, (*e)->i);
    return *e || oom(err);
}

bool arg_built(const Arg *a)
{
    if (a->kind == ARG_EXPR) return a->e != NULL;
    if (a->kind == ARG_VALUES) return a->vs || !a->n;
    if (a->kind == ARG_STR) return a->s != NULL;
    for (int i = 0; a->kind == ARG_EXPRS && i < a->n; i++)
        if (!a->es || !a->es[i]) return false;
    return true;
}

/* Checks an argument against its parameter and puts it in the form the table promises (a lone int for int[2] is
 * repeated). */
static bool fit_arg(Graph *g, const Param *p, Arg *a, Err *err)
{
    if (!arg_built(a))
        return fail(err, E_LIMIT, "argument '%s': out of memory, or a size expression is too large", p->name);
    if (p->type == PT_IGNORED) {
        *a = arg_none();
        return true;
    }
    if (a->kind == ARG_NONE) {
        if (p->optional || p->def) return true;
        return fail(err, E_FORMAT, "argument '%s': missing", p->name);
    }
    switch (p->type) {
    case PT_TENSOR: /* numbers are tensors of rank 0 to ATen */
        if (a->kind == ARG_VALUE || a->kind == ARG_EXPR) return true;
        break;
    case PT_TENSORS:
        for (int i = 0; a->kind == ARG_VALUES && i < a->n; i++)
            if (!a->vs[i] && !p->holes) return fail(err, E_FORMAT, "argument '%s': element %d is None", p->name, i);
        if (a->kind == ARG_VALUES) return true;
        if (a->kind == ARG_EXPRS && a->n == 0) {
            *a = arg_values(g, 0, NULL);
            return true;
        }
        break;
    case PT_INT:
    case PT_BOOL:
        if (a->kind == ARG_EXPR && integral(a->e)) return plain(g, p, &a->e, err) && (!p->choices || one_of(p, a, err));
        break;
    case PT_SCALAR: /* complex numbers are tensors of rank 0: lowering takes them apart */
        if (a->kind == ARG_VALUE && a->v && dtype_is_complex(a->v->dtype) && !a->v->rank) return true;
        /* fall through */
    case PT_FLOAT:
        if (a->kind == ARG_EXPR && a->e) return true;
        break;
    case PT_INTS:
    case PT_FLOATS:
    case PT_BOOLS:
    case PT_SCALARS:
        if (p->fixed_len && (a->kind == ARG_EXPR || (a->kind == ARG_EXPRS && a->n == 1))) {
            Expr *same[8];
            int n = p->fixed_len < 8 ? p->fixed_len : 8;
            for (int i = 0; i < n; i++) same[i] = a->kind == ARG_EXPR ? a->e : a->es[0];
            *a = arg_exprs(g, n, same);
        }
        if (a->kind == ARG_VALUES && a->n == 0) *a = arg_exprs(g, 0, NULL);
        if (a->kind != ARG_EXPRS) break;
        if (!arg_built(a)) return oom(err);
        for (int i = 0; i < a->n; i++) {
            if (!a->es[i] || (p->type != PT_FLOATS && p->type != PT_SCALARS && !integral(a->es[i])))
                return wrong_kind(p, a, err);
            TRY(plain(g, p, &a->es[i], err));
        }
        return true;
    case PT_STR:
        if (a->kind == ARG_STR) return !p->choices || one_of(p, a, err);
        break;
    case PT_DTYPE:
        if (a->kind == ARG_DTYPE) return true;
        break;
    case PT_GRAPH:
        if (a->kind == ARG_GRAPH) return true;
        break;
    default: break;
    }
    return wrong_kind(p, a, err);
}

bool op_fit_args(Graph *g, const Op *op, int nargs, const Arg *args, Arg *out, Err *err)
{
    if (nargs > op->schema->nparams)
        return fail(err, E_FORMAT, "%s takes %d arguments, found %d", op->name, op->schema->nparams, nargs);
    for (int i = 0; i < op->schema->nparams; i++) {
        const Param *p = &op->schema->params[i];
        out[i] = i < nargs ? args[i] : arg_none();
        if (out[i].kind == ARG_NONE && p->def && strcmp(p->def, "None") && p->type != PT_IGNORED)
            TRY(text_parse_default(g, p, &out[i], err));
        TRY(fit_arg(g, p, &out[i], err));
    }
    return true;
}

static void link_before(Graph *g, Node *n, Node *at)
{
    n->next = at;
    n->prev = at ? at->prev : g->last;
    *(n->prev ? &n->prev->next : &g->first) = n;
    *(at ? &at->prev : &g->last) = n;
    g->nnodes++;
}

const Module *graph_module(Graph *g, const char *path, const char *stack)
{
    const Module *known = map_get(&g->modules, stack ? stack : path);
    if (known) return known;
    Module *m = arena_new(g->arena, Module);
    if (!m) return NULL;
    *m = (Module){arena_strdup(g->arena, path), stack ? arena_strdup(g->arena, stack) : NULL};
    bool ok = m->path && (m->stack || !stack) && map_put(&g->modules, m->stack ? m->stack : m->path, m);
    return ok ? m : NULL;
}

static bool real_numbers(const Node *n, Err *err)
{
    for (int i = 0; i < n->op->schema->nparams; i++)
        if (n->op->schema->params[i].type == PT_SCALAR && n->arg[i].kind == ARG_VALUE)
            return fail(err, E_FORMAT, "argument '%s': found a complex number, expected a real one",
                        n->op->schema->params[i].name);
    return true;
}

Node *graph_add_before(Graph *g, Node *at, OpId id, int nargs, const Arg *args, const char *name, Err *err)
{
    const Op *op = op_get(id);
    size_t length;
    const char *base = op_base(op, &length);
    Node *n = arena_new(g->arena, Node);
    if (n) n->arg = arena_array(g->arena, Arg, op->schema->nparams);
    if (n && n->arg) n->name = name ? name : arena_strndup(g->arena, base, length);
    if (!n || !n->arg || !n->name) {
        oom(err);
        return NULL;
    }
    if (g->nnodes >= MAX_GRAPH_NODES) {
        fail(err, E_LIMIT, "more than %d nodes", MAX_GRAPH_NODES);
        return NULL;
    }
    n->op = op;
    n->module = g->module || !at ? g->module : at->module;
    if (!op_fit_args(g, op, nargs, args, n->arg, err) || !real_numbers(n, err) || !graph_infer(g, n, err)) {
        within(err, "node '%s' (%s)", n->name, op->name);
        return NULL;
    }
    n->name = n->nout ? n->out[0]->name : arena_strdup(g->arena, n->name);
    if (!n->name) {
        oom(err);
        return NULL;
    }
    link_before(g, n, at);
    return n;
}

Node *graph_add_declared(Graph *g, const Op *op, Arg *args, int nout, const char *name, Err *err)
{
    Node *n = arena_new(g->arena, Node);
    const char *copy = arena_strdup(g->arena, name);
    if (!n || !copy) {
        oom(err);
        return NULL;
    }
    *n = (Node){.op = op, .name = copy, .module = g->module, .arg = args};
    if (!graph_set_nout(g, n, nout, err)) return NULL;
    link_before(g, n, NULL);
    return n;
}

Node *graph_add(Graph *g, OpId op, int nargs, const Arg *args, const char *name, Err *err)
{
    return graph_add_before(g, NULL, op, nargs, args, name, err);
}

bool graph_set_nout(Graph *g, Node *n, int nout, Err *err)
{
    n->nout = nout;
    n->out = arena_array(g->arena, Value *, nout);
    return n->out || oom(err);
}

bool node_set_out(Graph *g, Node *n, int k, DType t, int rank, Expr *const *dim, Err *err)
{
    if (!n->out && !graph_set_nout(g, n, n->op->schema->nreturns, err)) return false;
    if (rank > MAX_RANK) return fail(err, E_UNSUPPORTED, "result of rank %d: at most %d is supported", rank, MAX_RANK);
    char name[32];
    const char *base = n->name;
    if (k) {
        snprintf(name, sizeof name, "_out%d", k);
        base = arena_printf(g->arena, "%s%s", n->name, name);
    }
    for (int i = 0; i < rank; i++)
        if (!dim[i]) return fail(err, E_LIMIT, "size %d of the result is too large an expression", i);
    Value *v = base ? new_value(g, V_NODE, base, t, rank, dim) : NULL;
    if (!v) return oom(err);
    v->def = n;
    v->out = k;
    n->out[k] = v;
    return true;
}

bool node_new_result(Graph *g, Node *n, const char *name, DType t, int rank, Expr *const *dim, Err *err)
{
    const Value *old = n->out[0];
    const char *mine = name ? unique_name(g, name) : old->name;
    Value *v = arena_new(g->arena, Value);
    Expr **d = dim == old->dim ? old->dim : arena_array(g->arena, Expr *, rank);
    if (!v || !d || !mine || !map_put(&g->names, mine, v)) return oom(err);
    for (int i = 0; i < rank; i++) d[i] = dim[i];
    *v = (Value){.name = mine, .kind = V_NODE, .dtype = t, .rank = rank, .dim = d, .def = n, .id = g->next_id++};
    n->out[0] = v;
    n->name = mine;
    return true;
}

/* What a condition says is the number *n; NULL: it says something else. */
static const Expr *is_number(const Expr *cond, int64_t *n)
{
    for (int i = 0; cond->kind == EX_EQ && i < 2; i++)
        if (ex_is_int(cond->args[i])) {
            *n = cond->args[i]->i;
            return cond->args[1 - i];
        }
    return NULL;
}

bool graph_require(Graph *g, Expr *cond, Err *err, const char *fmt, ...)
{
    char where[256];
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    if (!cond) return fail(err, E_LIMIT, "%s: condition too large", where);
    if (cond->kind == EX_BOOL && cond->i) return true;
    if (cond->kind == EX_BOOL) return fail(err, E_FORMAT, "%s: can never hold", where);
    int64_t n, other;
    const Expr *size = is_number(cond, &n);
    for (int i = 0; i < g->nrequire; i++) {
        if (g->require[i].cond == cond) return true;
        if (size && is_number(g->require[i].cond, &other) == size && other != n)
            return fail(err, E_FORMAT, "%s: a size that is %lld here is %lld elsewhere (%s): no input has both", where,
                        (long long)n, (long long)other, g->require[i].where);
    }
    Require *all = vec_grow(g->require, g->nrequire, sizeof *all);
    if (!all) return oom(err);
    g->require = all;
    char *copy = arena_strdup(g->arena, where);
    if (!copy) return oom(err);
    g->require[g->nrequire++] = (Require){cond, copy};
    return true;
}

/* ------------------------------------------------------------------ changing */

void node_each_operand(Node *n, void (*f)(void *user, Value **slot), void *user)
{
    for (int i = 0; i < n->op->schema->nparams; i++) {
        Arg *a = &n->arg[i];
        if (a->kind == ARG_VALUE) f(user, &a->v);
        else if (a->kind == ARG_VALUES)
            for (int k = 0; k < a->n; k++)
                if (a->vs[k]) f(user, &a->vs[k]);
    }
}

typedef struct Swap {
    Value *from, *to;
    int left; /* uses that are not found yet */
} Swap;

static void swap_operand(void *user, Value **slot)
{
    Swap *s = user;
    if (*slot != s->from) return;
    *slot = s->to;
    s->left--;
}

static void each_slot_outside_nodes(Graph *g, void (*f)(void *user, Value **slot), void *user)
{
    for (int i = 0; i < g->noutput; i++) f(user, &g->output[i].value);
    for (int i = 0; i < g->nmutation; i++) f(user, &g->mutation[i].value);
    for (int i = 0; i < g->ninput_mutation; i++) f(user, &g->input_mutation[i].value);
    for (int i = 0; i < expr_symbol_count(g->ex); i++) {
        Symbol *sym = expr_symbol(g->ex, i);
        if (symbol_out_of_data(sym)) f(user, &sym->value);
    }
}

void graph_each_operand(Graph *g, void (*f)(void *user, Value **slot), void *user)
{
    each_slot_outside_nodes(g, f, user);
    for (Node *n = g->first; n; n = n->next) node_each_operand(n, f, user);
}

void graph_replace_uses_after(Graph *g, Value *from, Value *to, Node *at, int uses)
{
    Swap s = {from, to, uses};
    each_slot_outside_nodes(g, swap_operand, &s);
    for (Node *n = at; n && s.left; n = n->next) node_each_operand(n, swap_operand, &s);
}

void graph_replace_uses(Graph *g, Value *from, Value *to) { graph_replace_uses_after(g, from, to, g->first, INT_MAX); }

void graph_remove(Graph *g, Node *n)
{
    *(n->prev ? &n->prev->next : &g->first) = n->next;
    *(n->next ? &n->next->prev : &g->last) = n->prev;
    g->nnodes--;
    g->nvalues -= n->nout;
}

static void instead(void *user, Value **slot)
{
    Value **by = user;
    if (*slot && by[(*slot)->id]) *slot = by[(*slot)->id];
}

void graph_replace_all(Graph *g, Value **by) { graph_each_operand(g, instead, by); }

static void undetached(void *user, Value **slot)
{
    const Node *n = *slot ? (*slot)->def : NULL;
    (void)user;
    if (n && n->op->id == OP_detach) *slot = n->arg[0].v;
}

/* In one pass: what a detach reads is never of another one when its readers are looked at. */
int graph_drop_detach(Graph *g)
{
    int before = g->nnodes;
    for (Node *n = g->first; n; n = n->next) node_each_operand(n, undetached, NULL);
    each_slot_outside_nodes(g, undetached, NULL);
    for (Node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (n->op->id == OP_detach) graph_remove(g, n);
    }
    return before - g->nnodes;
}

void graph_link_before(Graph *g, Node *n, Node *at)
{
    link_before(g, n, at);
    g->nvalues += n->nout;
}

typedef struct Sorting {
    unsigned char *placed; /* by value id */
    Node **stack, *waiting;
    int n;
} Sorting;

static void wait_for(void *user, Value **slot)
{
    Sorting *t = user;
    if (!t->waiting && (*slot)->def && !t->placed[(*slot)->id]) t->waiting = (*slot)->def;
}

bool graph_sort(Graph *g, Err *err)
{
    Node *first = g->first;
    Sorting t = {mem_zeroed((size_t)g->next_id + 1, 1), mem_zeroed((size_t)g->nnodes + 1, sizeof(Node *)), NULL, 0};
    Node **all = mem_zeroed((size_t)g->nnodes + 1, sizeof *all);
    int n = 0;
    bool ok = t.placed && t.stack && all;
    for (Node *x = first; ok && x; x = x->next) all[n++] = x;
    if (ok) {
        g->first = g->last = NULL;
        g->nnodes = 0;
    }
    for (int i = 0; ok && i < n; i++) {
        if (all[i]->nout && t.placed[all[i]->out[0]->id]) continue;
        t.stack[t.n++] = all[i];
        while (t.n) {
            Node *x = t.stack[t.n - 1];
            t.waiting = NULL;
            node_each_operand(x, wait_for, &t);
            if (t.waiting) {
                t.stack[t.n++] = t.waiting;
                continue;
            }
            t.n--;
            for (int k = 0; k < x->nout; k++) t.placed[x->out[k]->id] = 1;
            link_before(g, x, NULL);
        }
    }
    mem_free(t.placed);
    mem_free(t.stack);
    mem_free(all);
    return ok || oom(err);
}

static void count_operand(void *user, Value **slot) { ((int *)user)[(*slot)->id]++; }

/* A symbol that is read from a value keeps that value alive. */
static void count_symbols(const Graph *g, int *uses)
{
    for (int i = 0; i < expr_symbol_count(g->ex); i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        if (s->value && symbol_out_of_data(s)) uses[s->value->id]++;
    }
}

void graph_count_uses(const Graph *g, int *uses)
{
    memset(uses, 0, (size_t)g->next_id * sizeof *uses);
    for (Node *n = g->first; n; n = n->next) node_each_operand(n, count_operand, uses);
    for (int i = 0; i < g->noutput; i++) {
        uses[g->output[i].value->id]++;
        if (g->output[i].gradient_of) uses[g->output[i].gradient_of->id]++; /* it stays in the graph, as it is */
    }
    for (int i = 0; i < g->nmutation; i++) uses[g->mutation[i].value->id]++;
    for (int i = 0; i < g->ninput_mutation; i++) uses[g->input_mutation[i].value->id]++;
    count_symbols(g, uses);
}

static void uncount_operand(void *user, Value **slot) { ((int *)user)[(*slot)->id]--; }

int graph_dce(Graph *g)
{
    int *uses = mem_alloc(((size_t)g->next_id + 1) * sizeof *uses), removed = 0;
    if (!uses) return 0;
    graph_count_uses(g, uses);
    for (Node *n = g->last, *prev; n; n = prev) {
        prev = n->prev;
        bool used = (n->op->flags & (OPF_EFFECT | OPF_RANDOM)) != 0;
        for (int k = 0; k < n->nout; k++) used |= uses[n->out[k]->id] > 0;
        if (used) continue;
        node_each_operand(n, uncount_operand, uses);
        graph_remove(g, n);
        removed++;
    }
    mem_free(uses);
    return removed;
}

bool graph_drop_weights(Graph *g, const int *used, int fresh, Err *err)
{
    int *uses = mem_alloc(((size_t)g->next_id + 1) * sizeof *uses), n = 0;
    if (!uses) return oom(err);
    graph_count_uses(g, uses);
    for (int i = 0; i < g->nweight; i++) {
        Value *v = g->weight[i];
        if (uses[v->id] || graph_writes(g, v) || (v->id < fresh && !used[v->id])) g->weight[n++] = v;
    }
    g->nvalues -= g->nweight - n;
    g->nweight = n;
    mem_free(uses);
    return true;
}
