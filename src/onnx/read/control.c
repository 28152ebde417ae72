/* ONNX's If, Loop and Scan. Contract in onnx_impl.h.
 *
 * A condition that is known chooses its branch; a loop whose few turns are known is unrolled, so that nothing later
 * sees it. What comes out of data becomes qkv.branch or qkv.loop (src/op/control.def), whose bodies are graphs with
 * values and symbols of their own: names of the graph around them that they use are captured, as further inputs.
 */
#include <stdio.h>
#include <string.h>
#include "base/vec.h"
#include "onnx/read/read_impl.h"

enum { MAX_TURNS = 64, MAX_ROUNDS = 8 };

typedef struct OnnxCapture {
    OnnxImport *outer;
    OnnxOp *op; /* the node whose body it is */
    Value **value;
    int n;     /* tensors of the outer graph, in the order of the body's further inputs */
    Map sizes; /* text of an outer size -> its symbol inside */
} OnnxCapture;

static bool body_of(OnnxOp *o, const char *name, const OnnxGraph **body)
{
    const OnnxAttr *a = op_attr(o, name);
    if (!a || a->type != ONNX_ATTR_GRAPH || !a->g)
        return fail(o->im->err, E_FORMAT, "attribute '%s' is missing or not a graph", name);
    *body = a->g;
    return true;
}

/* ------------------------------------------------------------------ bodies as graphs of their own */

static Expr *own_symbol(OnnxImport *im)
{
    char name[32];
    int k = expr_symbol_count(im->g->ex);
    do snprintf(name, sizeof name, "d%d", k++);
    while (expr_find_symbol(im->g->ex, name));
    return ex_symbol(im->g->ex, name);
}

/* Sizes that are one expression outside are one symbol inside. */
static Expr *inner_size(OnnxImport *im, OnnxCapture *cap, const Expr *outer)
{
    if (ex_is_int(outer)) return ex_int(im->g->ex, outer->i);
    char *key = arena_printf(im->g->arena, "%u", outer->id);
    if (!key) return NULL;
    Expr *e = map_get(&cap->sizes, key);
    if (e) return e;
    e = own_symbol(im);
    return e && map_put(&cap->sizes, key, e) ? e : NULL;
}

/* An input of the body for a tensor outside; sizes that change from turn to turn are symbols that nothing else has. */
static Cell *body_input(OnnxImport *im, OnnxCapture *cap, const char *name, const Value *outer, const bool *varies)
{
    Expr *dim[MAX_RANK];
    for (int i = 0; i < outer->rank; i++) {
        dim[i] = varies && varies[i] ? own_symbol(im) : inner_size(im, cap, outer->dim[i]);
        if (!dim[i]) {
            oom(im->err);
            return NULL;
        }
    }
    Value *v = graph_add_input(im->g, plain_name(im, name), outer->dtype, outer->rank, dim);
    if (!v) {
        oom(im->err);
        return NULL;
    }
    for (int i = 0; i < outer->rank; i++) {
        if (dim[i]->kind != EX_SYM) continue;
        Symbol *s = expr_symbol(im->g->ex, (int)dim[i]->i);
        if (s->source != SYM_FREE) continue;
        s->source = SYM_INPUT;
        s->value = v;
        s->dim = i;
        expr_set_range(im->g->ex, (int)dim[i]->i, 0, INT64_MAX);
    }
    return cell_of_value(im, name, v);
}

/* Constants go in as they are, everything else as an input. */
static Cell *captured(OnnxImport *im, OnnxCapture *cap, Cell *outer)
{
    OnnxOp *o = cap->op;
    if (outer->is_list || outer->string) {
        op_unsupported(o, "a body uses '%.100s', a sequence or a tensor of strings, of the graph around it",
                       outer->name);
        return NULL;
    }
    if (!outer->v && cell_constant(outer)) {
        Expr **e = arena_array(im->g->arena, Expr *, outer->n + 1);
        for (int i = 0; e && i < outer->n; i++) {
            const Expr *x = outer->e[i];
            e[i] = x->kind == EX_FLOAT  ? ex_float(im->g->ex, x->f)
                   : x->kind == EX_BOOL ? ex_bool(im->g->ex, x->i != 0)
                                        : ex_int(im->g->ex, x->i);
        }
        if (e) return cell_of_sizes(im, outer->name, outer->dtype, outer->rank, outer->dim, outer->n, e);
        oom(o->im->err);
        return NULL;
    }
    bool weight = outer->v && outer->v->kind == V_WEIGHT && !graph_writes(cap->outer->g, outer->v);
    if (outer->data || weight) {
        Cell *c = arena_new(im->scratch, Cell);
        if (!c) {
            oom(o->im->err);
            return NULL;
        }
        *c = (Cell){.name = outer->name,
                    .data = outer->data ? outer->data : outer->v->data,
                    .parameter = outer->parameter,
                    .n = -1};
        c->dtype = c->data->dtype;
        c->rank = c->data->rank;
        c->dim = c->data->shape;
        return c;
    }
    Value *v = cell_value(cap->outer, outer);
    Value **all = v ? vec_room(cap->outer->g->arena, cap->value, cap->n, sizeof(Value *)) : NULL;
    if (!all) return NULL;
    all[cap->n] = v;
    cap->value = all;
    Cell *c = body_input(im, cap, outer->name, v, NULL);
    if (c) cap->n++;
    return c;
}

Cell *onnx_capture(OnnxImport *im, OnnxScope *s, const char *name)
{
    Cell *outer = scope_get(s->capture->outer, s->outer, name);
    Cell *c = outer ? captured(im, s->capture, outer) : NULL;
    return c && scope_set(im, s, name, c) ? c : NULL;
}

typedef struct Body {
    Graph *g;
    OnnxCapture capture;
    bool sure; /* its first result is always true */
} Body;

static bool add_results(OnnxImport *im, OnnxScope *s, const OnnxGraph *body)
{
    for (int i = 0; i < body->noutput; i++) {
        Cell *c = scope_get(im, s, body->output[i].name);
        if (!c)
            return im->err->code == E_OK
                       ? fail(im->err, E_FORMAT, "the body never computes its result '%.100s'", body->output[i].name)
                       : false;
        Value *v = cell_value(im, c);
        TRY(v && graph_add_output(im->g, body->output[i].name, v, im->err));
    }
    return true;
}

/* The first result of a loop's body, as a bool of rank 0; does it never end the loop? */
static bool fix_condition(OnnxImport *im, OnnxScope *s, const OnnxGraph *body, bool *sure)
{
    Cell *c = scope_get(im, s, body->output[0].name);
    if (!c) return fail(im->err, E_FORMAT, "the body never computes its result '%.100s'", body->output[0].name);
    *sure = (cell_known(im, c) && c->n == 1 && ex_is_const(c->e[0]) && c->e[0]->i) ||
            c == scope_get(im, s, body->input[1].name);
    Value *v = cell_value(im, c);
    Lower L = {.g = im->g, .ex = im->g->ex, .op = op_get(OP_reshape), .name = "condition", .err = im->err};
    TRY(v);
    if (v->dtype != DT_BOOL)
        return fail(im->err, E_FORMAT, "the body's condition is %s, expected bool", dtype_name(v->dtype));
    if (!v->rank) return true;
    Value *number = lower_reshape(&L, v, 0, NULL);
    Cell *flat = number ? cell_of_value(im, c->name, number) : NULL;
    return flat && (map_put(&s->names, body->output[0].name, flat) || oom(im->err));
}

/* The body's nodes in a graph of its own. turns: it is a loop's, whose first inputs are the turn and the condition. */
static bool import_body(OnnxOp *o, const OnnxGraph *body, bool turns, int ncarried, Value *const *carried,
                        bool (*varies)[MAX_RANK], Body *out)
{
    *out = (Body){.g = graph_create(), .capture = {.outer = o->im, .op = o}};
    if (!out->g) return oom(o->im->err);
    OnnxImport im = *o->im;
    im.product = NULL;
    im.nproduct = 0;
    im.g = out->g;
    im.symbols = im.items = (Map){0};
    im.bodies += arena_used(o->g->arena);
    OnnxScope s = {.outer = o->scope,
                   .frame = o->scope->frame,
                   .opset = o->scope->opset,
                   .nopset = o->scope->nopset,
                   .capture = &out->capture,
                   .depth = o->scope->depth + 1};
    int first = turns ? 2 : 0;
    bool ok = onnx_opens(o, &s);
    ok = ok && (body->ninput == first + ncarried ||
                fail(im.err, E_FORMAT, "the body takes %d inputs, the node gives %d", body->ninput, first + ncarried));
    for (int i = 0; ok && i < first; i++) {
        Value *v = graph_add_input(im.g, plain_name(&im, body->input[i].name), i ? DT_BOOL : DT_I64, 0, NULL);
        Cell *c = v ? cell_of_value(&im, body->input[i].name, v) : NULL;
        ok = c && scope_set(&im, &s, body->input[i].name, c);
    }
    for (int i = 0; ok && i < ncarried; i++) {
        Cell *c = body_input(&im, &out->capture, body->input[first + i].name, carried[i], varies[i]);
        ok = c && scope_set(&im, &s, body->input[first + i].name, c);
    }
    ok = ok && onnx_repeats(&im, body->nnode, body->ninit + body->ninput + body->noutput) &&
         onnx_constants(&im, &s, body) && onnx_nodes(&im, &s, body->node, body->nnode);
    ok = ok && (!turns || fix_condition(&im, &s, body, &out->sure)) && add_results(&im, &s, body);
    o->im->unrolled = im.unrolled;
    o->im->too_deep |= im.too_deep;
    o->im->bodies = im.bodies - arena_used(o->g->arena) + arena_used(im.g->arena);
    map_free(&s.names);
    map_free(&im.symbols);
    map_free(&im.items);
    map_free(&out->capture.sizes);
    if (ok) graph_dce(out->g);
    ok = ok && graph_check(out->g, im.err);
    if (!ok) {
        graph_free(out->g);
        out->g = NULL;
    }
    return ok;
}

static bool take_results(OnnxOp *o, const Node *n, int first)
{
    for (int i = 0; i < o->node->noutput && first + i < n->nout; i++)
        if (op_wants(o, i)) TRY(op_return(o, i, n->out[first + i]));
    return true;
}

/* ------------------------------------------------------------------ If */

static bool flat_condition(OnnxOp *o, Value **cond)
{
    if ((*cond)->dtype != DT_BOOL) return op_fail(o, 0, "%s, expected bool", dtype_name((*cond)->dtype));
    if ((*cond)->rank) *cond = lower_reshape(&o->L, *cond, 0, NULL);
    return *cond != NULL;
}

bool onnx_if(OnnxOp *o)
{
    const OnnxGraph *body[2] = {NULL, NULL};
    TRY(body_of(o, "then_branch", &body[0]) && body_of(o, "else_branch", &body[1]));
    const Cell *c = op_known(o, 0);
    if (c && c->n == 1 && ex_is_const(c->e[0]))
        return onnx_branch(o, body[c->e[0]->i ? 0 : 1], 0, NULL, o->node->noutput, o->out);
    Value *cond;
    Body half[2];
    Arg arg[4];
    TRY(op_tensor(o, 0, &cond) && flat_condition(o, &cond));
    for (int i = 0; i < 2; i++) {
        if (!import_body(o, body[i], false, 0, NULL, NULL, &half[i]))
            return onnx_places(o) && within(o->im->err, "%s", i ? "else_branch" : "then_branch");
        arg[2 + i] = arg_graph(o->g, half[i].g);
    }
    int n = half[0].capture.n, m = half[1].capture.n;
    Value **all = arena_array(o->g->arena, Value *, n + m + 1);
    if (!all) return oom(o->im->err);
    if (n) memcpy(all, half[0].capture.value, (size_t)n * sizeof *all);
    if (m) memcpy(all + n, half[1].capture.value, (size_t)m * sizeof *all);
    arg[0] = arg_value(cond);
    arg[1] = arg_values(o->g, n + m, all);
    Node *node = lower_emit_node(&o->L, OP_branch, 4, arg);
    return node && take_results(o, node, 0);
}

/* ------------------------------------------------------------------ loops that are not unrolled */

/* Marks the sizes of carried values that the body changes; false when there are none that were not marked. */
static bool changed(const Body *b, int first, int n, bool (*varies)[MAX_RANK])
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        const Value *in = b->g->input[first + i], *out = b->g->output[first - 1 + i].value;
        for (int d = 0; d < in->rank && in->rank == out->rank; d++)
            if (in->dim[d] != out->dim[d] && !varies[i][d]) any = varies[i][d] = true;
    }
    return any;
}

/* qkv.loop over the body; limit NULL: no limit, cond NULL: true. extra results are stacked by turns. */
static Node *make_loop(OnnxOp *o, const OnnxGraph *body, Value *cond, Expr *limit, int n, Value *const *carried)
{
    bool(*varies)[MAX_RANK] = arena_alloc(o->g->arena, (size_t)n + 1, sizeof *varies);
    Body b = {0};
    if (!varies) {
        oom(o->im->err);
        return NULL;
    }
    const uint64_t bodies = o->im->bodies;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        graph_free(b.g);
        o->im->bodies = bodies;
        if (!import_body(o, body, true, n, carried, varies, &b)) return NULL;
        if (b.g->noutput < 1 + n) {
            fail(o->im->err, E_FORMAT, "the body gives %d results for %d carried values", b.g->noutput, n);
            graph_free(b.g);
            return NULL;
        }
        if (!changed(&b, 2, n, varies)) break;
    }
    Arg arg[] = {
        arg_value(cond),      arg_values(o->g, n, carried),         arg_values(o->g, b.capture.n, b.capture.value),
        arg_graph(o->g, b.g), limit ? arg_expr(limit) : arg_none(), arg_bool(o->g, b.sure)};
    return lower_emit_node(&o->L, OP_loop, 6, arg);
}

/* ------------------------------------------------------------------ Loop */

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
    if (!all) return oom(o->im->err);
    TRY(v);
    if (s->n) memcpy(all, s->part, (size_t)s->n * sizeof *all);
    all[s->n++] = v;
    s->part = all;
    return true;
}

static bool join(OnnxOp *o, const Stack *s, Value **out)
{
    *out = AS(&o->L, stack, arg_values(o->g, s->n, s->part), arg_int(o->g, 0));
    return *out != NULL;
}

static Cell *constant_cell(OnnxOp *o, DType t, Expr *e) { return cell_of_sizes(o->im, "", t, 0, NULL, 1, &e); }

/* Turn by turn; *taken: it was possible. */
static bool unroll(OnnxOp *o, const OnnxGraph *body, int carried, int64_t turns, bool *taken)
{
    int scanned = body->noutput - 1 - carried;
    Cell **in = arena_array(o->g->arena, Cell *, carried + 2),
         **out = arena_array(o->g->arena, Cell *, body->noutput + 1);
    Stack *stack = arena_array(o->g->arena, Stack, scanned + 1);
    *taken = false;
    if (!in || !out || !stack) return oom(o->im->err);
    in[1] = op_has(o, 1) ? o->in[1] : constant_cell(o, DT_BOOL, ex_bool(o->ex, true));
    for (int i = 0; i < carried; i++) in[2 + i] = o->in[2 + i];
    for (int64_t turn = 0; turn < turns; turn++) {
        int go = known_truth(o, in[1]);
        if (go < 0 || turn >= MAX_TURNS) return true;
        if (!go) break;
        TRY(in[0] = constant_cell(o, DT_I64, ex_int(o->ex, turn)));
        TRY(onnx_branch(o, body, carried + 2, in, body->noutput, out) ||
            within(o->im->err, "turn %lld", (long long)turn));
        for (int i = 0; i <= carried; i++) in[1 + i] = out[i];
        for (int i = 0; i < scanned; i++) TRY(push(o, &stack[i], out[1 + carried + i]));
    }
    for (int i = 0; i < scanned; i++)
        if (op_wants(o, carried + i) && !stack[i].n) return true; /* no turns: its shape is not known here */
    *taken = true;
    for (int i = 0; i < carried && i < o->node->noutput; i++)
        TRY(in[2 + i] ? op_return_cell(o, i, in[2 + i])
                      : fail(o->im->err, E_FORMAT, "carried value %d is left out", i));
    for (int i = 0; i < scanned; i++) {
        Value *v;
        if (op_wants(o, carried + i)) TRY(join(o, &stack[i], &v) && op_return(o, carried + i, v) && onnx_fits(o->im));
    }
    return true;
}

/* ONNX Loop: (trip count, condition, carried ...) -> (carried ..., scanned ...);
 * the body takes (turn, condition, carried ...). */
bool onnx_loop(OnnxOp *o)
{
    const OnnxGraph *body = NULL;
    Expr *limit = NULL;
    TRY(body_of(o, "body", &body));
    int carried = o->node->ninput > 2 ? o->node->ninput - 2 : 0, scanned = body->noutput - 1 - carried;
    if (scanned < 0)
        return fail(o->im->err, E_FORMAT, "the body gives %d results for %d carried values", body->noutput, carried);
    if (body->ninput != carried + 2)
        return fail(o->im->err, E_FORMAT, "the body takes %d inputs, expected %d", body->ninput, carried + 2);
    if (o->node->noutput > carried + scanned)
        return fail(o->im->err, E_FORMAT, "%d results are named, the loop gives %d", o->node->noutput,
                    carried + scanned);
    if (op_has(o, 0)) {
        int n;
        Expr **e;
        TRY(op_sizes(o, 0, &n, &e));
        if (n != 1) return op_fail(o, 0, "%d elements, expected one trip count", n);
        limit = ex_is_int(e[0]) && e[0]->i < 0 ? ex_int(o->ex, 0) : e[0];
    }
    bool taken = false, few = limit ? ex_is_int(limit) && limit->i <= MAX_TURNS : true;
    if (few && known_truth(o, op_has(o, 1) ? o->in[1] : NULL) >= 0)
        TRY(unroll(o, body, carried, limit ? limit->i : INT64_MAX, &taken));
    if (taken) return true;
    Value *cond = NULL, **all = arena_array(o->g->arena, Value *, carried + 1);
    if (!all) return oom(o->im->err);
    if (known_truth(o, op_has(o, 1) ? o->in[1] : NULL) != 1) TRY(op_tensor(o, 1, &cond) && flat_condition(o, &cond));
    for (int i = 0; i < carried; i++) TRY(op_tensor(o, 2 + i, &all[i]));
    Node *node = make_loop(o, body, cond, limit, carried, all);
    return node && take_results(o, node, 0);
}

/* ------------------------------------------------------------------ Scan */

typedef struct Scan {
    const OnnxGraph *body;
    int states, n, scanned; /* states, sequences to scan, sequences that it gives */
    int64_t *axis, *back, *axis_out, *back_out;
    Value **x;
    Expr *turns;
} Scan;

/* One of a Scan's per-sequence attributes (axes, directions), 0 where it says nothing. */
static bool scan_list(OnnxOp *o, const char *name, int n, int64_t **out)
{
    const int64_t *v;
    int given;
    *out = arena_array(o->g->arena, int64_t, n + 1);
    TRY(op_attr_ints(o, name, &v, &given));
    if (!*out) return oom(o->im->err);
    if (v && given && given != n)
        return fail(o->im->err, E_FORMAT, "attribute '%s' has %d elements, expected %d", name, given, n);
    for (int i = 0; i < n; i++) (*out)[i] = v && given ? v[i] : 0;
    return true;
}

static bool read_scan(OnnxOp *o, Scan *s)
{
    int64_t m;
    TRY(body_of(o, "body", &s->body) && op_attr_int(o, "num_scan_inputs", 0, &m));
    s->n = m < 1 || m > o->node->ninput ? 0 : (int)m;
    s->states = o->node->ninput - s->n;
    s->scanned = s->body->noutput - s->states;
    if (!s->n || s->scanned < 0 || s->body->ninput != o->node->ninput)
        return fail(o->im->err, E_FORMAT, "num_scan_inputs is %lld for %d inputs, a body of %d inputs and %d results",
                    (long long)m, o->node->ninput, s->body->ninput, s->body->noutput);
    TRY(scan_list(o, "scan_input_axes", s->n, &s->axis) && scan_list(o, "scan_input_directions", s->n, &s->back) &&
        scan_list(o, "scan_output_axes", s->scanned, &s->axis_out) &&
        scan_list(o, "scan_output_directions", s->scanned, &s->back_out));
    s->x = arena_array(o->g->arena, Value *, s->n + 1);
    if (!s->x) return oom(o->im->err);
    for (int i = 0; i < s->n; i++) {
        int at;
        TRY(op_tensor(o, s->states + i, &s->x[i]));
        if (!s->x[i]->rank) return op_fail(o, s->states + i, "a number, expected a sequence");
        TRY(op_axis(o, "scan_input_axes", s->axis[i], s->x[i]->rank, &at));
        s->axis[i] = at;
        Expr *len = s->x[i]->dim[at];
        if (s->turns)
            TRY(graph_require(o->g, ex_make(o->ex, EX_EQ, len, s->turns, NULL), o->im->err,
                              "node '%s': the sequences to scan are equally long", o->L.name));
        else s->turns = len;
    }
    return true;
}

static bool give_scanned(OnnxOp *o, const Scan *s, int i, Value *stacked)
{
    int at;
    if (s->back_out[i]) stacked = AS(&o->L, flip, arg_value(stacked), arg_ints(o->g, 1, (int64_t[]){0}));
    TRY(stacked && op_axis(o, "scan_output_axes", s->axis_out[i], stacked->rank, &at));
    return op_return(o, s->states + i,
                     at ? AS(&o->L, movedim_int, arg_value(stacked), arg_int(o->g, 0), arg_int(o->g, at)) : stacked);
}

static bool unroll_scan(OnnxOp *o, const Scan *s)
{
    Cell **in = arena_array(o->g->arena, Cell *, o->node->ninput + 1),
         **out = arena_array(o->g->arena, Cell *, s->body->noutput + 1);
    Stack *stack = arena_array(o->g->arena, Stack, s->scanned + 1);
    int64_t turns = s->turns->i;
    if (!in || !out || !stack) return oom(o->im->err);
    for (int i = 0; i < s->states; i++) in[i] = o->in[i];
    for (int64_t t = 0; t < turns; t++) {
        for (int i = 0; i < s->n; i++) {
            Value *v = AS(&o->L, select_int, arg_value(s->x[i]), arg_int(o->g, s->axis[i]),
                          arg_int(o->g, s->back[i] ? turns - 1 - t : t));
            TRY(v && (in[s->states + i] = cell_of_value(o->im, "", v)));
        }
        TRY(onnx_branch(o, s->body, s->states + s->n, in, s->body->noutput, out) ||
            within(o->im->err, "turn %lld", (long long)t));
        for (int i = 0; i < s->states; i++) in[i] = out[i];
        for (int i = 0; i < s->scanned; i++) TRY(push(o, &stack[i], out[s->states + i]));
    }
    for (int i = 0; i < s->states && i < o->node->noutput; i++) TRY(op_return_cell(o, i, in[i]));
    for (int i = 0; i < s->scanned; i++) {
        Value *v;
        if (op_wants(o, s->states + i)) TRY(join(o, &stack[i], &v) && give_scanned(o, s, i, v));
    }
    return true;
}

/* The body with nodes in front that take this turn's elements out of the sequences: a Loop's body. */
static bool loop_body(OnnxOp *o, const Scan *s, OnnxGraph *body, OnnxScope *around)
{
    Arena *a = o->g->arena;
    const OnnxGraph *b = s->body;
    body->node = arena_array(a, OnnxNode, b->nnode + 2 * s->n + 2);
    body->input = arena_array(a, OnnxValueInfo, s->states + 2);
    body->output = arena_array(a, OnnxValueInfo, b->noutput + 1);
    body->init = b->init;
    body->ninit = b->ninit;
    if (!body->node || !body->input || !body->output) return oom(o->im->err);
    body->input[body->ninput++].name = "qkv turn";
    body->input[body->ninput++].name = "qkv condition";
    for (int i = 0; i < s->states; i++) body->input[body->ninput++] = b->input[i];
    body->output[body->noutput++].name = "qkv condition";
    for (int i = 0; i < b->noutput; i++) body->output[body->noutput++] = b->output[i];
    for (int i = 0; i < s->n; i++) {
        /* around the body the sequence has the scanned axis first and runs forward,
         * so that one Gather takes its element */
        Value *x = s->x[i];
        if (s->axis[i]) x = AS(&o->L, movedim_int, arg_value(x), arg_int(o->g, s->axis[i]), arg_int(o->g, 0));
        if (s->back[i] && x) x = AS(&o->L, flip, arg_value(x), arg_ints(o->g, 1, (int64_t[]){0}));
        char *name = arena_printf(a, "qkv sequence %d", i);
        const char **in = arena_array(a, const char *, 2), **out = arena_array(a, const char *, 1);
        if (!x || !name || !in || !out) return o->im->err->code == E_OK ? oom(o->im->err) : false;
        TRY(scope_set(o->im, around, name, cell_of_value(o->im, name, x)));
        in[0] = name;
        in[1] = "qkv turn";
        out[0] = b->input[s->states + i].name;
        body->node[body->nnode++] = (OnnxNode){.name = name,
                                               .op = "Gather",
                                               .domain = "",
                                               .overload = "",
                                               .input = in,
                                               .output = out,
                                               .ninput = 2,
                                               .noutput = 1};
    }
    for (int i = 0; i < b->nnode; i++) body->node[body->nnode++] = b->node[i];
    return true;
}

/* ONNX Scan (opset 9 and later): (state ..., sequences ...) -> (state ..., sequences ...). */
bool onnx_scan(OnnxOp *o)
{
    Scan s = {0};
    TRY(read_scan(o, &s));
    if (ex_is_int(s.turns) && s.turns->i > 0 && s.turns->i <= MAX_TURNS) return unroll_scan(o, &s);
    OnnxGraph body = {.name = s.body->name, .doc = ""};
    OnnxScope around = {.outer = o->scope,
                        .frame = o->scope->frame,
                        .opset = o->scope->opset,
                        .nopset = o->scope->nopset,
                        .depth = o->scope->depth};
    OnnxOp inner = *o;
    inner.scope = &around;
    Value **all = arena_array(o->g->arena, Value *, s.states + 1);
    bool ok = all || oom(o->im->err);
    for (int i = 0; ok && i < s.states; i++) ok = op_tensor(o, i, &all[i]);
    ok = ok && loop_body(o, &s, &body, &around);
    Node *node = ok ? make_loop(&inner, &body, NULL, s.turns, s.states, all) : NULL;
    map_free(&around.names);
    TRY(node);
    for (int i = 0; i < s.states && i < o->node->noutput; i++)
        if (op_wants(o, i)) TRY(op_return(o, i, node->out[i]));
    for (int i = 0; i < s.scanned; i++)
        if (op_wants(o, s.states + i)) TRY(give_scanned(o, &s, i, node->out[s.states + i]));
    return true;
}
