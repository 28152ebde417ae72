/* The nodes of an ONNX graph, one after the other: rows of the op table, local functions, branches and turns of loops.
 * Contract in onnx_impl.h. */
#include <stdio.h>
#include <string.h>
#include "base/buf.h"
#include "base/mem.h"
#include "base/vec.h"
#include "op/own.h"
#include "onnx/read/read_impl.h"

enum { MAX_UNROLLED = 1 << 17 };

static const OnnxRow rows[] = {
#define ONNX(domain, name, fn, aten) {domain, name, onnx_##fn, OP_##aten},
#include "onnx/read/ops.def"
#undef ONNX
};

/* Those that are one op: rows of the op table. */
static const OnnxRow ops[OP_COUNT] = {
#define FROM_ONNX(name_, f) .domain = "", .name = #name_, .fn = onnx_##f,
#define OP(id, name_, schema, ...) [OP_##id] = {__VA_ARGS__.aten = OP_##id},
#include "op/ops.def"
};

/* Ops that the program registered go first: "twice" of the domain "my" is my::twice. */
/* Most names differ in their first letter, which spares a call. */
static bool same(const char *a, const char *b) { return *a == *b && !strcmp(a, b); }

OnnxRow onnx_find_row(const char *domain, const char *name)
{
    char text[OWN_NAME];
    const Op *own = *domain && snprintf(text, sizeof text, "%s::%s", domain, name) < (int)sizeof text
                        ? op_find_own(text)
                        : NULL;
    if (own && op_own(own)) return (OnnxRow){domain, name, onnx_own, own->id};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (same(rows[i].name, name) && same(rows[i].domain, domain)) return rows[i];
    for (size_t i = 0; i < OP_COUNT && !*domain; i++)
        if (ops[i].name && same(ops[i].name, name)) return ops[i];
    return (OnnxRow){0};
}

/* ------------------------------------------------------------------ names */

Cell *scope_get(OnnxImport *im, OnnxScope *s, const char *name)
{
    for (; s; s = s->outer) {
        Cell *c = map_get(&s->names, name);
        if (c) return c;
        if (s->capture) return onnx_capture(im, s, name);
    }
    return NULL;
}

bool scope_set(OnnxImport *im, OnnxScope *s, const char *name, Cell *c)
{
    if (map_has(&s->names, name)) return fail(im->err, E_FORMAT, "'%.100s' is given a value twice", name);
    return map_put(&s->names, name, c) || oom(im->err);
}

int64_t scope_opset(const OnnxScope *s, const char *domain)
{
    for (int i = 0; i < s->nopset; i++)
        if (!strcmp(s->opset[i].domain, domain)) return s->opset[i].version;
    return 0;
}

/* ------------------------------------------------------------------ functions */

/* What a node says of the function that it calls. */
static void function_key(Buf *b, const char *domain, const char *name, const char *overload)
{
    buf_printf(b, "%s\n%s\n%s", domain, name, overload);
}

bool onnx_functions(OnnxImport *im)
{
    const OnnxModel *m = &im->file->model;
    for (int i = 0; i < m->nfunction; i++) {
        const OnnxFunction *f = &m->function[i];
        Buf b = {0};
        function_key(&b, f->domain, f->name, f->overload);
        const char *key = b.failed ? NULL : arena_strndup(im->scratch, b.data, b.len);
        buf_free(&b);
        if (key && map_has(&im->functions, key))
            return fail(im->err, E_FORMAT, "two functions '%s' of domain '%s'", f->name, f->domain);
        if (!key || !map_put(&im->functions, key, (void *)(uintptr_t)f)) return oom(im->err);
    }
    return true;
}

static const OnnxFunction *find_function(const OnnxImport *im, const OnnxNode *n)
{
    Buf b = {0};
    if (!im->functions.count) return NULL;
    function_key(&b, n->domain, n->op, n->overload);
    const OnnxFunction *f = b.failed ? NULL : map_get(&im->functions, b.data);
    buf_free(&b);
    return f;
}

bool onnx_opens(OnnxOp *o, const OnnxScope *s)
{
    o->im->too_deep = s->depth > ONNX_MAX_DEPTH;
    return !o->im->too_deep ||
           fail(o->im->err, E_LIMIT,
                "functions and subgraphs nested deeper than %d (do they call each other?), down to node '%.100s' "
                "(%.100s)",
                ONNX_MAX_DEPTH, o->L.name, o->node->op);
}

bool onnx_places(const OnnxOp *o) { return !o->im->too_deep || !o->scope->depth; }

bool onnx_repeats(OnnxImport *im, int64_t nodes, int64_t names)
{
    im->unrolled += nodes + names / 8 + 1;
    return im->unrolled <= MAX_UNROLLED ||
           fail(im->err, E_LIMIT, "functions and loop iterations make more than %d nodes", MAX_UNROLLED);
}

bool onnx_fits(OnnxImport *im)
{
    uint64_t used = arena_used(im->g->arena) + arena_used(im->scratch) + im->bodies, most = im->file->most;
    return used <= most ||
           fail(im->err, E_LIMIT, "its graph takes more than %llu MiB, which is the most for a file of this size",
                (unsigned long long)(most >> 20));
}

static bool call_function(OnnxOp *o, const OnnxFunction *f)
{
    OnnxImport *im = o->im;
    if (o->node->ninput > f->ninput)
        return fail(im->err, E_FORMAT, "function '%s' takes %d inputs, %d are given", f->name, f->ninput,
                    o->node->ninput);
    if (o->node->noutput > f->noutput)
        return fail(im->err, E_FORMAT, "function '%s' gives %d results, %d are named", f->name, f->noutput,
                    o->node->noutput);
    for (int i = 0; i < o->node->nattr; i++) {
        const char *name = o->node->attr[i].name;
        bool known = false;
        for (int k = 0; k < f->nattr; k++) known |= !strcmp(f->attr[k], name);
        for (int k = 0; k < f->nattr_default; k++) known |= !strcmp(f->attr_default[k].name, name);
        if (!known) return fail(im->err, E_FORMAT, "function '%s' has no attribute '%.100s'", f->name, name);
    }
    OnnxFrame frame = {o->scope, o->node, f};
    OnnxScope s = {.frame = &frame, .opset = f->opset, .nopset = f->nopset, .depth = o->scope->depth + 1};
    bool ok = onnx_opens(o, &s) && onnx_repeats(im, f->nnode, f->ninput + f->noutput);
    for (int i = 0; ok && i < o->node->ninput; i++)
        if (o->in[i]) ok = scope_set(im, &s, f->input[i], o->in[i]);
    ok = ok && (onnx_nodes(im, &s, f->node, f->nnode) ||
                (onnx_places(o) && within(im->err, "function '%s'", f->name)));
    for (int i = 0; ok && i < o->node->noutput; i++) {
        Cell *c = scope_get(im, &s, f->output[i]);
        if (c) o->out[i] = c;
        else if (*o->node->output[i])
            ok = fail(im->err, E_FORMAT, "function '%s' never computes its result '%s'", f->name, f->output[i]);
    }
    map_free(&s.names);
    return ok;
}

/* ------------------------------------------------------------------ subgraphs */

bool onnx_constants(OnnxImport *im, OnnxScope *s, const OnnxGraph *body)
{
    for (int i = 0; i < body->ninit; i++) {
        Cell *c = cell_of_tensor(im, body->init[i].name, &body->init[i], false);
        TRY(c && scope_set(im, s, body->init[i].name, c));
    }
    return body->nsparse == 0 ||
           fail(im->err, E_UNSUPPORTED, "a sparse initializer '%.100s'", body->sparse[0].values.name);
}

bool onnx_branch(OnnxOp *o, const OnnxGraph *body, int nin, Cell *const *in, int nout, Cell **out)
{
    OnnxImport *im = o->im;
    OnnxScope s = {.outer = o->scope,
                   .frame = o->scope->frame,
                   .opset = o->scope->opset,
                   .nopset = o->scope->nopset,
                   .depth = o->scope->depth + 1};
    TRY(onnx_opens(o, &s));
    if (body->ninput != nin)
        return fail(im->err, E_FORMAT, "the body takes %d inputs, the node gives %d", body->ninput, nin);
    if (body->noutput != nout)
        return fail(im->err, E_FORMAT, "the body gives %d results, the node expects %d", body->noutput, nout);
    TRY(onnx_repeats(im, body->nnode, body->ninit + nin + nout));
    bool ok = onnx_constants(im, &s, body);
    for (int i = 0; ok && i < nin; i++) ok = scope_set(im, &s, body->input[i].name, in[i]);
    ok = ok && onnx_nodes(im, &s, body->node, body->nnode);
    for (int i = 0; ok && i < nout; i++) {
        out[i] = scope_get(im, &s, body->output[i].name);
        if (!out[i]) ok = fail(im->err, E_FORMAT, "the body never computes its result '%.100s'", body->output[i].name);
    }
    map_free(&s.names);
    return ok;
}

/* ------------------------------------------------------------------ one node */

static bool read_inputs(OnnxOp *o)
{
    const OnnxNode *n = o->node;
    for (int i = 0; i < n->ninput; i++) {
        if (!*n->input[i]) continue;
        o->in[i] = scope_get(o->im, o->scope, n->input[i]);
        if (!o->in[i])
            return o->im->err->code == E_OK ? fail(o->im->err, E_FORMAT,
                                                   "input %d '%.100s' is not computed before this node", i, n->input[i])
                                            : false;
    }
    return true;
}

/* The values that this node made are called as the file calls them. */
static bool name_results(OnnxOp *o, int mark)
{
    for (int k = 0; k < o->node->noutput; k++) {
        const char *name = o->node->output[k];
        Cell *c = o->out[k];
        if (!*name) continue;
        if (!c) return fail(o->im->err, E_UNSUPPORTED, "output %d '%.100s' is not computed", k, name);
        if (c->v && c->v->id >= mark && c->v->kind == V_NODE && !strcmp(c->name, name)) {
            const char *plain = plain_name(o->im, name);
            if (!plain) return oom(o->im->err);
            const Value *other = graph_find_value(o->g, plain);
            if (!other || other->id >= mark) TRY(graph_rename(o->g, c->v, plain, o->im->err));
        }
        TRY(scope_set(o->im, o->scope, name, c));
    }
    return true;
}

/* What the op's schema does not have would be read over: an input or attribute that a later version gave a meaning, or
 * a misspelt one. Ops that the standard lacks in this version have none. */
static bool fits_schema(const OnnxOp *o)
{
    const OnnxNode *n = o->node;
    int later;
    bool required;
    if (!SCHEMAS) return true;
    const OnnxSchema *s = onnx_schema(&o->im->schemas, n->domain, n->op, o->opset, &later);
    if (!s) return true;
    if (n->ninput > s->max_in)
        return fail(o->im->err, E_FORMAT, "%d inputs; %s of version %d takes at most %d", n->ninput, n->op, s->since,
                    s->max_in);
    if (n->noutput > s->max_out)
        return fail(o->im->err, E_FORMAT, "%d outputs; %s of version %d gives at most %d", n->noutput, n->op, s->since,
                    s->max_out);
    for (int i = 0; i < n->nattr; i++) {
        const char *name = n->attr[i].name;
        if (!onnx_schema_attr(s, name, &required) && !onnx_schema_attr(s, "*", &required) && strncmp(name, "__", 2))
            return fail(o->im->err, E_FORMAT, "%s of version %d has no attribute '%.100s'", n->op, s->since, name);
    }
    return true;
}

static bool run_row(OnnxOp *o)
{
    bool taken;
    o->opset = scope_opset(o->scope, o->node->domain);
    if (!o->opset)
        return fail(o->im->err, E_FORMAT, "domain '%s' is not among the model's opset imports",
                    *o->node->domain ? o->node->domain : "ai.onnx");
    TRY(fits_schema(o));
    TRY(onnx_fold(o, &taken));
    return taken || o->row.fn(o) ||
           (o->im->err->code == E_OK ? fail(o->im->err, E_UNSUPPORTED, "%s with these inputs", o->node->op) : false);
}

/* Exporters of PyTorch call nodes "/layers.0/attn/MatMul": the module of what a node becomes. One that
 * is longer than any file's path is left out, not copied. */
static bool find_module(OnnxImport *im, const char *name)
{
    enum { LONGEST = 1 << 16 };
    const char *last = strrchr(name, '/');
    im->g->module = NULL;
    if (*name != '/' || last == name || last - name > LONGEST) return true;
    char *path = arena_strndup(im->g->arena, name + 1, (size_t)(last - name - 1));
    for (char *c = path; c && *c; c++)
        if (*c == '/') *c = '.';
    im->g->module = path ? graph_module(im->g, path, NULL) : NULL;
    return im->g->module || oom(im->err);
}

static bool import_node(OnnxImport *im, OnnxScope *s, const OnnxNode *node)
{
    OnnxOp o = {
        .im = im, .g = im->g, .ex = im->g->ex, .scope = s, .node = node, .row = onnx_find_row(node->domain, node->op)};
    const OnnxFunction *f = find_function(im, node);
    if (!f && !o.row.fn) return fail(im->err, E_UNSUPPORTED, "there is no such op");
    o.in = arena_array(im->scratch, Cell *, node->ninput + 1);
    o.out = arena_array(im->scratch, Cell *, node->noutput + 1);
    if (!o.in || !o.out) return oom(im->err);
    const char *label = node->noutput && *node->output[0] ? node->output[0] : *node->name ? node->name : node->op;
    o.L = (Lower){.g = im->g,
                  .ex = im->g->ex,
                  .op = op_get(f || o.row.aten == OP_NONE ? OP_reshape : o.row.aten),
                  .name = plain_name(im, label),
                  .err = im->err};
    int mark = im->g->next_id;
    TRY(find_module(im, node->name));
    return read_inputs(&o) && (f ? call_function(&o, f) : run_row(&o)) && name_results(&o, mark) && onnx_fits(im);
}

/* Nodes must stand in the order of use; some tools (ONNX Runtime's float16 converter) append theirs all the same,
 * and ONNX Runtime sorts. */
typedef struct Order {
    Map made; /* name -> &node that makes it */
    const OnnxNode *node;
    unsigned char *state; /* of each node: 0, DOING, DONE */
    int *stack, depth, *order, n;
} Order;
enum { DOING = 1, DONE = 2 };

static bool push(Order *r, int at)
{
    int *more = vec_grow(r->stack, r->depth, sizeof *more);
    if (!more) return false;
    r->stack = more;
    more[r->depth++] = at;
    return true;
}

/* Puts the nodes that make what n (or a body in it) reads, and that nothing has begun with, on the stack. */
static bool push_sources(Order *r, const OnnxNode *n)
{
    for (int i = 0; i < n->ninput; i++) {
        const OnnxNode *from = map_get(&r->made, n->input[i]);
        if (from && r->state[from - r->node] == 0) TRY(push(r, (int)(from - r->node)));
    }
    for (int k = 0; k < n->nattr; k++)
        for (int j = 0; n->attr[k].g && j < n->attr[k].n; j++)
            for (int i = 0; i < n->attr[k].g[j].nnode; i++) TRY(push_sources(r, &n->attr[k].g[j].node[i]));
    return true;
}

/* A node comes after its sources. One that is reached again belongs to a cycle: its first use then fails. */
static bool put_in_order(Order *r, int first)
{
    TRY(push(r, first));
    while (r->depth) {
        int top = r->stack[r->depth - 1], below = r->depth;
        if (r->state[top]) {
            r->depth--;
            if (r->state[top] == DOING) r->order[r->n++] = top;
            r->state[top] = DONE;
            continue;
        }
        r->state[top] = DOING;
        TRY(push_sources(r, &r->node[top]));
        for (int i = below, k = r->depth - 1; i < k; i++, k--) { /* the first one is taken first */
            int swap = r->stack[i];
            r->stack[i] = r->stack[k];
            r->stack[k] = swap;
        }
    }
    return true;
}

/* *order NULL: they stand in order. */
static bool sort_nodes(OnnxImport *im, const OnnxNode *node, int n, int **order)
{
    Order r = {.node = node, .state = arena_array(im->scratch, unsigned char, n + 1)};
    bool ok = r.state != NULL;
    *order = NULL;
    for (int i = 0; ok && i < n; i++)
        for (int k = 0; ok && k < node[i].noutput; k++)
            ok = !*node[i].output[k] || map_put(&r.made, node[i].output[k], (void *)(uintptr_t)&node[i]);
    for (int i = 0; ok && i < n && !r.depth; i++) {
        ok = push_sources(&r, &node[i]);
        r.state[i] = DONE;
    }
    if (ok && r.depth) {
        r.depth = 0;
        memset(r.state, 0, (size_t)n);
        ok = (r.order = arena_array(im->scratch, int, n + 1)) != NULL;
        for (int i = 0; ok && i < n; i++) ok = r.state[i] || put_in_order(&r, i);
        *order = r.order;
    }
    map_free(&r.made);
    mem_free(r.stack);
    return ok || oom(im->err);
}

bool onnx_nodes(OnnxImport *im, OnnxScope *s, const OnnxNode *node, int n)
{
    int *order;
    TRY(sort_nodes(im, node, n, &order));
    for (int k = 0; k < n; k++) {
        int i = order ? order[k] : k;
        bool ok = import_node(im, s, &node[i]);
        im->g->module = NULL;
        if (ok) continue;
        char number[32];
        snprintf(number, sizeof number, "#%d", i);
        const char *label = *node[i].name                           ? node[i].name
                            : node[i].noutput && *node[i].output[0] ? node[i].output[0]
                                                                    : number;
        if (im->too_deep && s->depth) return false;
        return within(im->err, "node '%.100s' (%s%s%s)", label, node[i].domain, *node[i].domain ? "." : "", node[i].op);
    }
    return true;
}

/* ------------------------------------------------------------------ what is missing */

typedef struct Missing {
    OnnxImport *im;
    Buf text;
    Map count; /* "domain.op" -> &turn */
    int kinds;
} Missing;

static bool look(Missing *m, const OnnxNode *node, int n);

static bool look_graph(Missing *m, const OnnxGraph *g) { return look(m, g->node, g->nnode); }

static bool look(Missing *m, const OnnxNode *node, int n)
{
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < node[i].nattr; k++)
            for (int j = 0; node[i].attr[k].g && j < node[i].attr[k].n; j++) TRY(look_graph(m, &node[i].attr[k].g[j]));
        if (onnx_find_row(node[i].domain, node[i].op).fn || find_function(m->im, &node[i])) continue;
        char *key = arena_printf(m->im->g->arena, "%s%s%s", node[i].domain, *node[i].domain ? "." : "", node[i].op);
        if (!key) return oom(m->im->err);
        if (map_has(&m->count, key)) continue;
        if (!map_put(&m->count, key, m)) return oom(m->im->err);
        if (m->kinds++ < 20)
            buf_printf(&m->text, "%s%s (node '%.60s')", m->kinds > 1 ? ", " : "", key,
                       *node[i].name     ? node[i].name
                       : node[i].noutput ? node[i].output[0]
                                         : "");
    }
    return true;
}

bool onnx_missing(OnnxImport *im)
{
    Missing m = {.im = im};
    const OnnxModel *model = &im->file->model;
    bool ok = look_graph(&m, model->graph);
    for (int i = 0; ok && i < model->nfunction; i++) ok = look(&m, model->function[i].node, model->function[i].nnode);
    if (ok && m.kinds)
        ok = fail(im->err, E_UNSUPPORTED, "%d op%s not known: %s%s; ops of your own are added with qkv_register_op",
                  m.kinds, m.kinds == 1 ? " is" : "s are", m.text.data, m.kinds > 20 ? " ..." : "");
    buf_free(&m.text);
    map_free(&m.count);
    return ok;
}
