/* The nodes of an ONNX graph, one after the other: rows of the op table, local functions, branches and turns of loops.
 * Contract in onnx_impl.h. */
#include <stdio.h>
#include <string.h>
#include "base/buf.h"
#include "import/onnx_impl.h"

enum { MAX_CALLS = 32, MAX_UNROLLED = 1 << 17 };

static const OnnxRow rows[] = {
#define ONNX(domain, name, fn, aten) {domain, name, onnx_##fn, OP_##aten},
#include "import/onnx_ops.def"
#undef ONNX
};

const OnnxRow *onnx_find_row(const char *domain, const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name) && !strcmp(rows[i].domain, domain)) return &rows[i];
    return NULL;
}

/* ------------------------------------------------------------------ names */

Cell *scope_get(const OnnxScope *s, const char *name)
{
    for (; s; s = s->outer) {
        Cell *c = map_get(&s->names, name);
        if (c) return c;
    }
    return NULL;
}

bool scope_set(OnnxImport *im, OnnxScope *s, const char *name, Cell *c)
{
    if (map_has(&s->names, name)) return fail(im->err, E_FORMAT, "'%.100s' is given a value twice", name);
    return map_put(&s->names, name, c) || fail(im->err, E_LIMIT, "out of memory");
}

int64_t scope_opset(const OnnxScope *s, const char *domain)
{
    for (int i = 0; i < s->nopset; i++)
        if (!strcmp(s->opset[i].domain, domain)) return s->opset[i].version;
    return 0;
}

/* ------------------------------------------------------------------ functions */

/* What a node says of the function that it calls. */
static void function_key(Buf *b, const char *domain, const char *name, const char *overload) { buf_printf(b, "%s\n%s\n%s", domain, name, overload); }

bool onnx_functions(OnnxImport *im)
{
    const OnnxModel *m = &im->file->model;
    for (int i = 0; i < m->nfunction; i++) {
        const OnnxFunction *f = &m->function[i];
        Buf b = {0};
        function_key(&b, f->domain, f->name, f->overload);
        const char *key = b.failed ? NULL : arena_strndup(im->g->arena, b.data, b.len);
        buf_free(&b);
        if (key && map_has(&im->functions, key)) return fail(im->err, E_FORMAT, "two functions '%s' of domain '%s'", f->name, f->domain);
        if (!key || !map_put(&im->functions, key, (void *)(uintptr_t)f)) return fail(im->err, E_LIMIT, "out of memory");
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

/* Turns of loops and calls of functions make nodes without end out of a small file. */
static bool made_nodes(OnnxImport *im, int n)
{
    im->unrolled += n;
    return im->unrolled <= MAX_UNROLLED || fail(im->err, E_LIMIT, "functions and turns of loops make more than %d nodes", MAX_UNROLLED);
}

static bool call_function(OnnxOp *o, const OnnxFunction *f)
{
    OnnxImport *im = o->im;
    if (o->node->ninput > f->ninput)
        return fail(im->err, E_FORMAT, "function '%s' takes %d inputs, %d are given", f->name, f->ninput, o->node->ninput);
    if (o->node->noutput > f->noutput)
        return fail(im->err, E_FORMAT, "function '%s' gives %d results, %d are named", f->name, f->noutput, o->node->noutput);
    OnnxFrame frame = {o->scope, o->node, f};
    OnnxScope s = {.frame = &frame, .opset = f->opset, .nopset = f->nopset, .depth = o->scope->depth + 1};
    bool ok = s.depth <= MAX_CALLS || fail(im->err, E_LIMIT, "functions and subgraphs nested deeper than %d (do they call each other?)", MAX_CALLS);
    ok = ok && made_nodes(im, f->nnode);
    for (int i = 0; ok && i < o->node->ninput; i++)
        if (o->in[i]) ok = scope_set(im, &s, f->input[i], o->in[i]);
    ok = ok && (onnx_nodes(im, &s, f->node, f->nnode) || within(im->err, "function '%s'", f->name));
    for (int i = 0; ok && i < o->node->noutput; i++) {
        Cell *c = scope_get(&s, f->output[i]);
        if (c) o->out[i] = c;
        else if (*o->node->output[i]) ok = fail(im->err, E_FORMAT, "function '%s' never computes its result '%s'", f->name, f->output[i]);
    }
    map_free(&s.names);
    return ok;
}

/* ------------------------------------------------------------------ subgraphs */

static bool add_constants(OnnxImport *im, OnnxScope *s, const OnnxGraph *body)
{
    for (int i = 0; i < body->ninit; i++) {
        Cell *c = cell_of_tensor(im, body->init[i].name, &body->init[i], false);
        TRY(c && scope_set(im, s, body->init[i].name, c));
    }
    return body->nsparse == 0 || fail(im->err, E_UNSUPPORTED, "a sparse initializer '%.100s'", body->sparse[0].values.name);
}

bool onnx_branch(OnnxOp *o, const OnnxGraph *body, int nin, Cell *const *in, int nout, Cell **out)
{
    OnnxImport *im = o->im;
    OnnxScope s = {.outer = o->scope, .frame = o->scope->frame, .opset = o->scope->opset, .nopset = o->scope->nopset, .depth = o->scope->depth + 1};
    if (s.depth > MAX_CALLS) return fail(im->err, E_LIMIT, "functions and subgraphs nested deeper than %d", MAX_CALLS);
    if (body->ninput != nin) return fail(im->err, E_FORMAT, "the body takes %d inputs, the node gives %d", body->ninput, nin);
    if (body->noutput != nout) return fail(im->err, E_FORMAT, "the body gives %d results, the node expects %d", body->noutput, nout);
    TRY(made_nodes(im, body->nnode));
    bool ok = add_constants(im, &s, body);
    for (int i = 0; ok && i < nin; i++) ok = scope_set(im, &s, body->input[i].name, in[i]);
    ok = ok && onnx_nodes(im, &s, body->node, body->nnode);
    for (int i = 0; ok && i < nout; i++) {
        out[i] = scope_get(&s, body->output[i].name);
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
        o->in[i] = scope_get(o->scope, n->input[i]);
        if (!o->in[i]) return fail(o->im->err, E_FORMAT, "input %d '%.100s' is not computed before this node", i, n->input[i]);
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
            const Value *other = graph_find_value(o->g, plain);
            if (!other || other->id >= mark) TRY(graph_rename(o->g, c->v, plain, o->im->err));
        }
        TRY(scope_set(o->im, o->scope, name, c));
    }
    return true;
}

static bool run_row(OnnxOp *o)
{
    bool taken;
    o->opset = scope_opset(o->scope, o->node->domain);
    if (!o->opset) return fail(o->im->err, E_FORMAT, "domain '%s' is not among the model's opset imports", *o->node->domain ? o->node->domain : "ai.onnx");
    TRY(onnx_fold(o, &taken));
    return taken || o->row->fn(o) || (o->im->err->code == E_OK ? fail(o->im->err, E_UNSUPPORTED, "%s with these inputs", o->node->op) : false);
}

static bool import_node(OnnxImport *im, OnnxScope *s, const OnnxNode *node)
{
    OnnxOp o = {.im = im, .g = im->g, .ex = im->g->ex, .scope = s, .node = node, .row = onnx_find_row(node->domain, node->op)};
    const OnnxFunction *f = find_function(im, node);
    if (!f && !o.row) return fail(im->err, E_UNSUPPORTED, "there is no such op");
    o.in = arena_array(im->g->arena, Cell *, node->ninput + 1);
    o.out = arena_array(im->g->arena, Cell *, node->noutput + 1);
    if (!o.in || !o.out) return fail(im->err, E_LIMIT, "out of memory");
    const char *label = node->noutput && *node->output[0] ? node->output[0] : *node->name ? node->name : node->op;
    o.L = (Lower){.g = im->g, .ex = im->g->ex, .op = op_get(f || o.row->aten == OP_NONE ? OP_reshape : o.row->aten), .name = plain_name(im, label), .err = im->err};
    int mark = im->g->next_id;
    return read_inputs(&o) && (f ? call_function(&o, f) : run_row(&o)) && name_results(&o, mark);
}

bool onnx_nodes(OnnxImport *im, OnnxScope *s, const OnnxNode *node, int n)
{
    for (int i = 0; i < n; i++) {
        if (import_node(im, s, &node[i])) continue;
        char number[32];
        snprintf(number, sizeof number, "#%d", i);
        const char *label = *node[i].name ? node[i].name : node[i].noutput && *node[i].output[0] ? node[i].output[0] : number;
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
        if (onnx_find_row(node[i].domain, node[i].op) || find_function(m->im, &node[i])) continue;
        char *key = arena_printf(m->im->g->arena, "%s%s%s", node[i].domain, *node[i].domain ? "." : "", node[i].op);
        if (!key) return fail(m->im->err, E_LIMIT, "out of memory");
        if (map_has(&m->count, key)) continue;
        if (!map_put(&m->count, key, m)) return fail(m->im->err, E_LIMIT, "out of memory");
        if (m->kinds++ < 20) buf_printf(&m->text, "%s%s (node '%.60s')", m->kinds > 1 ? ", " : "", key, *node[i].name ? node[i].name : node[i].noutput ? node[i].output[0] : "");
    }
    return true;
}

bool onnx_missing(OnnxImport *im)
{
    Missing m = {.im = im};
    const OnnxModel *model = &im->file->model;
    bool ok = look_graph(&m, model->graph);
    for (int i = 0; ok && i < model->nfunction; i++) ok = look(&m, model->function[i].node, model->function[i].nnode);
    if (ok && m.kinds) ok = fail(im->err, E_UNSUPPORTED, "%d op%s not known: %s%s", m.kinds, m.kinds == 1 ? " is" : "s are", m.text.data, m.kinds > 20 ? " ..." : "");
    buf_free(&m.text);
    map_free(&m.count);
    return ok;
}

/* ------------------------------------------------------------------ If, Loop, Scan */

static bool body_of(OnnxOp *o, const char *name, const OnnxGraph **body)
{
    const OnnxAttr *a = op_attr(o, name);
    if (!a || a->type != ONNX_ATTR_GRAPH || !a->g) return fail(o->im->err, E_FORMAT, "attribute '%s' is missing or no graph", name);
    *body = a->g;
    return true;
}

static bool same_shape(const Value *a, const Value *b)
{
    bool same = a->rank == b->rank && a->dtype == b->dtype;
    for (int i = 0; same && i < a->rank; i++) same = a->dim[i] == b->dim[i];
    return same;
}

/* A condition that comes out of data: both branches are computed, which is allowed as they are pure, and one is taken. */
static bool choose(OnnxOp *o, Value *cond, Cell *const *yes, Cell *const *no)
{
    if (cond->rank) TRY(cond = lower_reshape(&o->L, cond, 0, NULL));
    for (int i = 0; i < o->node->noutput; i++) {
        Value *a = cell_value(o->im, yes[i]), *b = cell_value(o->im, no[i]);
        TRY(a && b);
        if (!same_shape(a, b))
            return op_unsupported(o, "the condition is computed and the branches give '%.100s' different shapes or dtypes; give the values that decide it when loading (--fix)",
                                  o->node->output[i]);
        TRY(op_return(o, i, AS(&o->L, where_self, arg_value(cond), arg_value(a), arg_value(b))));
    }
    return true;
}

bool onnx_if(OnnxOp *o)
{
    const OnnxGraph *yes = NULL, *no = NULL;
    Cell **out = arena_array(o->g->arena, Cell *, 2 * o->node->noutput + 2);
    TRY(body_of(o, "then_branch", &yes) && body_of(o, "else_branch", &no));
    if (!out) return fail(o->im->err, E_LIMIT, "out of memory");
    const Cell *c = op_known(o, 0);
    if (c && c->n == 1 && ex_is_const(c->e[0])) return onnx_branch(o, c->e[0]->i ? yes : no, 0, NULL, o->node->noutput, o->out);
    Value *cond;
    TRY(op_tensor(o, 0, &cond));
    Cell **other = out + o->node->noutput;
    TRY(onnx_branch(o, yes, 0, NULL, o->node->noutput, out) && onnx_branch(o, no, 0, NULL, o->node->noutput, other));
    return choose(o, cond, out, other);
}

/* A constant condition: 1, 0, or -1 when it is computed. */
static int known_truth(OnnxOp *o, Cell *c)
{
    if (!c) return 1;
    if (!cell_known(o->im, c) || c->n != 1 || !ex_is_const(c->e[0])) return -1;
    return c->e[0]->i != 0;
}

typedef struct Stack { /* what the turns of a loop give, to be joined along a new axis */
    Value **part;
    int n;
} Stack;

static bool push(OnnxOp *o, Stack *s, Cell *c)
{
    Value **all = arena_array(o->g->arena, Value *, s->n + 1);
    Value *v = cell_value(o->im, c);
    if (!all) return fail(o->im->err, E_LIMIT, "out of memory");
    TRY(v);
    if (s->n) memcpy(all, s->part, (size_t)s->n * sizeof *all);
    all[s->n++] = v;
    s->part = all;
    return true;
}

static bool join(OnnxOp *o, Stack *s, int axis, bool backwards, Value **out)
{
    for (int i = 0; backwards && i < s->n / 2; i++) {
        Value *t = s->part[i];
        s->part[i] = s->part[s->n - 1 - i];
        s->part[s->n - 1 - i] = t;
    }
    *out = AS(&o->L, stack, arg_values(o->g, s->n, s->part), arg_int(o->g, axis));
    return *out != NULL;
}

static Cell *constant_cell(OnnxOp *o, DType t, Expr *e) { return cell_of_sizes(o->im, "", t, 0, NULL, 1, &e); }

/* ONNX Loop: (trip count, condition, carried ...) -> (carried ..., scanned ...); the body takes (turn, condition, carried ...). */
bool onnx_loop(OnnxOp *o)
{
    const OnnxGraph *body = NULL;
    int64_t turns = INT64_MAX;
    TRY(body_of(o, "body", &body));
    int carried = o->node->ninput > 2 ? o->node->ninput - 2 : 0, scanned = body->noutput - 1 - carried;
    if (scanned < 0) return fail(o->im->err, E_FORMAT, "the body gives %d results for %d carried values", body->noutput, carried);
    if (o->node->noutput > carried + scanned) return fail(o->im->err, E_FORMAT, "%d results are named, the loop gives %d", o->node->noutput, carried + scanned);
    if (op_has(o, 0)) {
        int n;
        const int64_t *v;
        TRY(op_const_ints(o, 0, &n, &v));
        if (n != 1) return op_fail(o, 0, "%d elements, expected one trip count", n);
        turns = v[0];
    }
    Cell **in = arena_array(o->g->arena, Cell *, carried + 2), **out = arena_array(o->g->arena, Cell *, body->noutput + 1);
    Stack *stack = arena_array(o->g->arena, Stack, scanned + 1);
    if (!in || !out || !stack) return fail(o->im->err, E_LIMIT, "out of memory");
    in[1] = op_has(o, 1) ? o->in[1] : constant_cell(o, DT_BOOL, ex_bool(o->ex, true));
    for (int i = 0; i < carried; i++) in[2 + i] = o->in[2 + i];
    for (int64_t turn = 0; turn < turns; turn++) {
        int go = known_truth(o, in[1]);
        if (go < 0) return op_unsupported(o, "whether the loop goes on is computed from data (turn %lld); only loops with a known number of turns are supported", (long long)turn);
        if (!go) break;
        TRY(in[0] = constant_cell(o, DT_I64, ex_int(o->ex, turn)));
        TRY(onnx_branch(o, body, carried + 2, in, body->noutput, out) || within(o->im->err, "turn %lld", (long long)turn));
        for (int i = 0; i <= carried; i++) in[1 + i] = out[i];
        for (int i = 0; i < scanned; i++) TRY(push(o, &stack[i], out[1 + carried + i]));
    }
    for (int i = 0; i < carried && i < o->node->noutput; i++)
        TRY(in[2 + i] ? op_return_cell(o, i, in[2 + i]) : fail(o->im->err, E_FORMAT, "carried value %d is left out", i));
    for (int i = 0; i < scanned; i++) {
        Value *v;
        if (!op_wants(o, carried + i)) continue;
        if (!stack[i].n) return op_unsupported(o, "a loop of no turns has no shape to give '%.100s'", o->node->output[carried + i]);
        TRY(join(o, &stack[i], 0, false, &v) && op_return(o, carried + i, v));
    }
    return true;
}

/* One of a Scan's per-input attributes (axes, directions), 0 where it says nothing. */
static bool scan_list(OnnxOp *o, const char *name, int n, int64_t *out)
{
    const int64_t *v;
    int given;
    TRY(op_attr_ints(o, name, &v, &given));
    if (v && given && given != n) return fail(o->im->err, E_FORMAT, "attribute '%s' has %d elements, expected %d", name, given, n);
    for (int i = 0; i < n; i++) out[i] = v && given ? v[i] : 0;
    return true;
}

/* ONNX Scan (opset 9 and later): (state ..., sequences ...) -> (state ..., sequences ...). */
bool onnx_scan(OnnxOp *o)
{
    const OnnxGraph *body = NULL;
    int64_t m;
    TRY(body_of(o, "body", &body) && op_attr_int(o, "num_scan_inputs", 0, &m));
    int states = o->node->ninput - (int)m, scanned = body->noutput - states;
    if (m < 1 || m > o->node->ninput || scanned < 0)
        return fail(o->im->err, E_FORMAT, "num_scan_inputs is %lld for %d inputs and %d results of the body", (long long)m, o->node->ninput, body->noutput);
    int n = (int)m, room = n > scanned ? n : scanned;
    int64_t *axis = arena_array(o->g->arena, int64_t, room + 1), *back = arena_array(o->g->arena, int64_t, room + 1), *back_out = arena_array(o->g->arena, int64_t, room + 1),
            *axis_out = arena_array(o->g->arena, int64_t, room + 1), turns = -1;
    Value **x = arena_array(o->g->arena, Value *, n + 1);
    Cell **in = arena_array(o->g->arena, Cell *, o->node->ninput + 1), **out = arena_array(o->g->arena, Cell *, body->noutput + 1);
    Stack *stack = arena_array(o->g->arena, Stack, scanned + 1);
    if (!axis || !back || !back_out || !axis_out || !x || !in || !out || !stack) return fail(o->im->err, E_LIMIT, "out of memory");
    TRY(scan_list(o, "scan_input_axes", n, axis) && scan_list(o, "scan_input_directions", n, back) && scan_list(o, "scan_output_axes", scanned, axis_out) &&
        scan_list(o, "scan_output_directions", scanned, back_out));
    for (int i = 0; i < n; i++) {
        int at;
        TRY(op_tensor(o, states + i, &x[i]));
        if (!x[i]->rank) return op_fail(o, states + i, "a number, expected a sequence");
        TRY(op_axis(o, "scan_input_axes", axis[i], x[i]->rank, &at));
        axis[i] = at;
        const Expr *len = x[i]->dim[at];
        if (!ex_is_int(len)) return op_unsupported(o, "the length of the sequence '%.100s' varies; only scans of a known length are supported", o->node->input[states + i]);
        if (turns >= 0 && len->i != turns) return op_fail(o, states + i, "%lld elements to scan, the others have %lld", (long long)len->i, (long long)turns);
        turns = len->i;
    }
    if (turns == 0) return op_unsupported(o, "a scan of empty sequences");
    for (int i = 0; i < states; i++) in[i] = o->in[i];
    for (int64_t t = 0; t < turns; t++) {
        for (int i = 0; i < n; i++) {
            Value *v = AS(&o->L, select_int, arg_value(x[i]), arg_int(o->g, axis[i]), arg_int(o->g, back[i] ? turns - 1 - t : t));
            TRY(v && (in[states + i] = cell_of_value(o->im, "", v)));
        }
        TRY(onnx_branch(o, body, states + n, in, body->noutput, out) || within(o->im->err, "turn %lld", (long long)t));
        for (int i = 0; i < states; i++) in[i] = out[i];
        for (int i = 0; i < scanned; i++) TRY(push(o, &stack[i], out[states + i]));
    }
    for (int i = 0; i < states && i < o->node->noutput; i++) TRY(op_return_cell(o, i, in[i]));
    for (int i = 0; i < scanned; i++) {
        Value *v;
        int at;
        if (!op_wants(o, states + i)) continue;
        TRY(op_axis(o, "scan_output_axes", axis_out[i], stack[i].part[0]->rank + 1, &at));
        TRY(join(o, &stack[i], at, back_out[i] != 0, &v) && op_return(o, states + i, v));
    }
    return true;
}
