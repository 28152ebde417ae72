/* Loops and branches as PyTorch's higher-order ops.
 *
 *     qkv.branch                                    cond(condition, true graph, false graph, operands)
 *     qkv.loop with a count, something carried      scan(graph, carried, sequences, captured)
 *     qkv.loop with a count, nothing carried        map_impl(graph, sequences, captured)
 *     qkv.loop with a condition                     while_loop(condition graph, body graph, carried, captured)
 *
 * Both graphs of a branch take all operands. A loop that asks for its turn goes over arange, too; a while_loop carries
 * its turn, where the loop has a limit, and its condition. A result of a graph is never an operand or another result:
 * those are copied.
 */
#include <string.h>
#include "facts/views.h"
#include "ir/bodies.h"
#include "pt2/write/write_impl.h"

typedef struct Inside { /* a body in the making */
    Emit e;
    Emit *outer;
    Buf inputs, outputs;
    const Value **root; /* of results so far: what they are views of */
    int nroots;
} Inside;

static Arg number(Emit *e, int64_t v) { return arg_expr(ex_int(e->g->ex, v)); }
static Arg truth_of(Emit *e, bool v) { return arg_expr(ex_bool(e->g->ex, v)); }

/* ------------------------------------------------------------------ a body */

static bool open_inside(Emit *outer, const Graph *g, Value *const *outside, const bool *sliced, Inside *s)
{
    *s = (Inside){.outer = outer};
    s->e = (Emit){.g = g,
                  .root = outer->root ? outer->root : outer,
                  .arena = outer->arena,
                  .scratch = outer->scratch,
                  .err = outer->err};
    s->root = arena_array(outer->arena, const Value *, g->noutput + 3);
    return (s->root || oom(outer->err)) && name_values(&s->e) && sizes_open_body(&s->e, outer, outside, sliced);
}

static void free_inside(Inside *s)
{
    Emit *e = &s->e;
    Buf *parts[] = {&e->nodes, &e->tensors, &e->ints, &e->bools, &e->floats, &e->guards, &s->inputs, &s->outputs};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) buf_free(parts[i]);
    binding_free(&e->hint);
    map_free(&e->taken);
}

static bool placeholder(Inside *s, const Value *v)
{
    put_tensor(&s->inputs, s->e.name[v->id]);
    s->e.written[v->id] = true;
    return put_meta(&s->e, v);
}

/* An operand that this body does not read: of the other half of a branch. */
static bool unread(Inside *s, const Value *outer)
{
    Emit *e = &s->e, *o = s->outer;
    const char *name = fresh_name(e, "unread");
    TRY(name);
    put_tensor(&s->inputs, name);
    Buf keep = o->tensors;
    const char *own = o->name[outer->id];
    o->tensors = e->tensors;
    o->name[outer->id] = name;
    bool ok = put_meta(o, outer);
    e->tensors = o->tensors;
    o->tensors = keep;
    o->name[outer->id] = own;
    return ok;
}

static bool body_nodes(Inside *s)
{
    const Graph *g = s->e.g;
    for (int i = 0; i < g->ninput; i++)
        if (s->e.written[g->input[i]->id]) TRY(note_value(&s->e, g->input[i]));
    return emit_nodes(&s->e);
}

static bool result(Inside *s, Value *v)
{
    Emit *e = &s->e;
    const Value *root = through_views(v);
    bool again = root->kind != V_NODE;
    for (int i = 0; i < s->nroots; i++) again |= s->root[i] == root;
    s->root[s->nroots++] = root;
    if (again) {
        Value *copy = new_value(e, v->name, v->dtype, v->rank, v->dim);
        TRY(copy && write_node(e, op_find("aten.clone.default"), (Arg[2]){arg_value(v)}, 1, &copy));
        v = copy;
    }
    put_tensor(&s->outputs, e->name[v->id]);
    return true;
}

/* {"name": "", "arg": {"as_graph": ...}, "kind": 1}; single: it gives a tensor, not a tuple of one */
static bool put_graph(Emit *e, Inside *s, const char *base, bool single, Buf *out)
{
    Emit *root = e->root ? e->root : e;
    const char *name = arena_printf(e->arena, "%s_%d", base, root->nbodies++);
    if (!name) return oom(e->err);
    jw_put(out, "{'name': '', 'arg': {'as_graph': {'name': %s, 'graph': {", name);
    jw_list(out, "inputs", '[', &s->inputs);
    jw_list(out, "outputs", '[', &s->outputs);
    jw_list(out, "nodes", '[', &s->e.nodes);
    jw_list(out, "tensor_values", '{', &s->e.tensors);
    jw_list(out, "sym_int_values", '{', &s->e.ints);
    jw_list(out, "sym_bool_values", '{', &s->e.bools);
    jw_bool(out, "is_single_tensor_return", single);
    jw_put(out, "'custom_obj_values': {}");
    jw_list(out, "sym_float_values", '{', &s->e.floats);
    jw_put(out, "}}}, 'kind': 1}");
    return !out->failed || oom(e->err);
}

static bool put_operands(Emit *e, int n, Value *const *v, Buf *out)
{
    jw_put(out, "{'name': '', 'arg': {'as_tensors': [");
    for (int i = 0; i < n; i++) {
        TRY(emit_value(e, v[i]));
        jw_put(out, "{'name': %s}", e->name[v[i]->id]);
    }
    jw_put(out, "]}, 'kind': 1}");
    return true;
}

/* The node; what it gives is written from now on. */
static bool put_control(Emit *e, const char *op, Buf *inputs, int nout, Value *const *out)
{
    Buf outputs = {0};
    const char *target = arena_printf(e->arena, "torch.ops.higher_order.%s", op), *name = fresh_name(e, op);
    TRY(name && (target || oom(e->err)));
    for (int k = 0; k < nout; k++) put_tensor(&outputs, e->name[out[k]->id]);
    put_node(e, target, inputs, &outputs, name);
    for (int k = 0; k < nout; k++) {
        e->written[out[k]->id] = true;
        TRY(put_meta(e, out[k]));
    }
    for (int k = 0; k < nout; k++) TRY(note_value(e, out[k]));
    return true;
}

static bool not_core(const Emit *e)
{
    return !e->g->core || fail(e->err, E_UNSUPPORTED, "ATen's core has no control flow: do not decompose the model");
}

/* Captured values, each once. */
static bool distinct(Emit *e, const Arg *list, Value ***out, int *n)
{
    *out = arena_array(e->arena, Value *, list->n + 1);
    *n = 0;
    if (!*out) return oom(e->err);
    for (int i = 0; i < list->n; i++) {
        int k = 0;
        while (k < *n && (*out)[k] != list->vs[i]) k++;
        if (k == *n) (*out)[(*n)++] = list->vs[i];
    }
    return true;
}

/* A placeholder for each of the captured values; input `first` of the body is what gets list[0]. */
static bool put_captured(Inside *s, int first, int count, Value *const *list, int n, Value *const *distinct)
{
    for (int k = 0; k < n; k++) {
        const Value *mine = NULL;
        for (int i = 0; i < count; i++) {
            const Value *v = s->e.g->input[first + i];
            if (list[i] != distinct[k]) continue;
            if (!mine) TRY(placeholder(s, mine = v));
            s->e.name[v->id] = s->e.name[mine->id];
            s->e.written[v->id] = true;
        }
        if (!mine) TRY(unread(s, distinct[k]));
    }
    return true;
}

/* ------------------------------------------------------------------ branches */

static bool put_half(Emit *e, const Node *n, int half, int nall, Value *const *all, Buf *out)
{
    const Graph *g = body_at(n, half);
    Value **outside = n->arg[1].vs + (half ? n->arg[2].g->ninput : 0);
    bool *sliced = arena_array(e->arena, bool, g->ninput + 1);
    Inside s = {0};
    if (!sliced) return oom(e->err);
    bool ok = open_inside(e, g, outside, sliced, &s) && put_captured(&s, 0, g->ninput, outside, nall, all) &&
              body_nodes(&s);
    for (int i = 0; ok && i < g->noutput; i++) ok = result(&s, g->output[i].value);
    ok = ok && put_graph(e, &s, half ? "false_graph" : "true_graph", false, out);
    free_inside(&s);
    return ok;
}

bool spell_branch(Emit *e, const Node *n)
{
    Value **all;
    int count;
    Buf in = {0};
    bool ok = not_core(e) && emit_value(e, n->arg[0].v) && distinct(e, &n->arg[1], &all, &count);
    for (int i = 0; ok && i < count; i++) ok = emit_value(e, all[i]);
    if (ok) jw_put(&in, "{'name': '', 'arg': {'as_tensor': {'name': %s}}, 'kind': 1}", e->name[n->arg[0].v->id]);
    for (int half = 0; ok && half < 2; half++) ok = put_half(e, n, half, count, all, &in);
    ok = ok && put_operands(e, count, all, &in) && put_control(e, "cond", &in, n->nout, n->out);
    buf_free(&in);
    return ok;
}

/* ------------------------------------------------------------------ loops */

typedef struct LoopParts {
    const Node *n;
    const Graph *g;
    const Arg *carried, *captured, *sequences;
    Value **outside; /* by input of the body */
    bool *sliced;
    Value **all;     /* captured values, each once */
    int nall, first; /* input of the body that gets the first captured value */
} LoopParts;

static bool read_loop(Emit *e, const Node *n, LoopParts *l)
{
    *l = (LoopParts){.n = n, .g = n->arg[3].g, .carried = &n->arg[1], .captured = &n->arg[2], .sequences = &n->arg[6]};
    l->outside = arena_array(e->arena, Value *, l->g->ninput + 1);
    l->sliced = arena_array(e->arena, bool, l->g->ninput + 1);
    if (!l->outside || !l->sliced) return oom(e->err);
    int at = 2;
    for (int i = 0; i < l->carried->n; i++) {
        const Value *in = l->g->input[at], *next = l->g->output[1 + i].value;
        bool same = true; /* sizes that a turn changes are the body's own */
        for (int d = 0; d < in->rank; d++) same &= in->dim[d] == next->dim[d];
        l->outside[at++] = same ? l->carried->vs[i] : NULL;
    }
    for (int i = 0; i < l->sequences->n; i++) {
        l->sliced[at] = true;
        l->outside[at++] = l->sequences->vs[i];
    }
    l->first = at;
    for (int i = 0; i < l->captured->n; i++) l->outside[at++] = l->captured->vs[i];
    TRY(distinct(e, l->captured, &l->all, &l->nall));
    for (int i = 0; i < l->first; i++)
        if (l->outside[i]) TRY(emit_value(e, l->outside[i]));
    for (int i = 0; i < l->nall; i++) TRY(emit_value(e, l->all[i]));
    return true;
}

static void mark_read(void *user, Value **slot) { ((bool *)user)[(*slot)->id] = true; }

/* Does the body read input i, beyond handing it on as its condition? */
static bool reads(Emit *e, const Graph *g, int i)
{
    bool *read = arena_array(e->arena, bool, g->next_id + 1);
    if (!read) return true;
    for (Node *n = g->first; n; n = n->next) node_each_operand(n, mark_read, read);
    for (int k = 1; k < g->noutput; k++) read[g->output[k].value->id] = true;
    for (int k = 0; k < expr_symbol_count(g->ex); k++) {
        const Symbol *s = expr_symbol(g->ex, k);
        if (s->value && s->source == SYM_ITEM) read[s->value->id] = true;
    }
    return read[g->input[i]->id];
}

/* The condition of a loop that has a count is true in every turn. */
static bool always_true(Inside *s)
{
    Value *v = s->e.g->input[1];
    return write_node(&s->e, op_get(OP_full), (Arg[6]){{.kind = ARG_EXPRS}, truth_of(&s->e, true), arg_dtype(DT_BOOL)},
                      1, &v);
}

static bool spell_counted(Emit *e, LoopParts *l)
{
    int nc = l->carried->n, ns = l->sequences->n;
    bool turns = !ns || reads(e, l->g, 0), scans = nc > 0;
    Value **xs = arena_array(e->arena, Value *, ns + 2);
    Inside s = {0};
    Buf in = {0};
    if (!xs) return oom(e->err);
    if (ns) memcpy(xs, l->sequences->vs, (size_t)ns * sizeof *xs);
    if (turns) {
        Expr *limit = l->n->arg[4].e;
        TRY(xs[ns++] = PUT(e, arange_start_step, "turns", DT_I64, 1, &limit, number(e, 0), arg_expr(limit),
                           number(e, 1)));
    }
    bool ok = open_inside(e, l->g, l->outside, l->sliced, &s);
    for (int i = 0; ok && i < nc + l->sequences->n; i++) ok = placeholder(&s, l->g->input[2 + i]);
    if (ok && turns) ok = placeholder(&s, l->g->input[0]);
    ok = ok && put_captured(&s, l->first, l->captured->n, l->captured->vs, l->nall, l->all);
    if (ok && reads(e, l->g, 1)) ok = always_true(&s);
    ok = ok && body_nodes(&s);
    for (int i = 1; ok && i < l->g->noutput; i++) ok = result(&s, l->g->output[i].value);
    ok = ok && put_graph(e, &s, scans ? "scan_combine_graph" : "body_graph", false, &in);
    if (ok && scans) ok = put_operands(e, nc, l->carried->vs, &in);
    ok = ok && put_operands(e, ns, xs, &in) && put_operands(e, l->nall, l->all, &in) &&
         put_control(e, scans ? "scan" : "map_impl", &in, l->n->nout, l->n->out);
    free_inside(&s);
    buf_free(&in);
    return ok;
}

static bool begin_turn(Emit *e, LoopParts *l, bool limited, Inside *s)
{
    TRY(open_inside(e, l->g, l->outside, l->sliced, s));
    TRY(!limited || placeholder(s, l->g->input[0]));
    for (int i = 1; i < 2 + l->carried->n; i++) TRY(placeholder(s, l->g->input[i]));
    return put_captured(s, l->first, l->captured->n, l->captured->vs, l->nall, l->all);
}

/* Whether there is another turn, of what the turn before gave. */
static bool put_test(Emit *e, LoopParts *l, bool limited, Buf *out)
{
    Inside s = {0};
    bool ok = begin_turn(e, l, limited, &s);
    Value *go = l->g->input[1];
    if (ok && limited) {
        Value *top = new_value(&s.e, "limit", DT_I64, 0, NULL), *less = NULL;
        if (!top) return free_inside(&s), false;
        put_tensor(&s.inputs, s.e.name[top->id]);
        s.e.written[top->id] = true;
        ok = put_meta(&s.e, top);
        less = ok ? PUT(&s.e, lt_Tensor, "lt", DT_BOOL, 0, NULL, arg_value(l->g->input[0]), arg_value(top)) : NULL;
        go = less ? PUT(&s.e, logical_and, "go", DT_BOOL, 0, NULL, arg_value(go), arg_value(less)) : NULL;
    }
    ok = ok && go && result(&s, go) && put_graph(e, &s, "while_loop_cond_graph", true, out);
    free_inside(&s);
    return ok;
}

static bool put_step(Emit *e, LoopParts *l, bool limited, Buf *out)
{
    Inside s = {0};
    Value *next = NULL;
    bool ok = begin_turn(e, l, limited, &s);
    if (ok && limited) { /* the limit, which only the condition reads */

        Value *top = new_value(&s.e, "limit", DT_I64, 0, NULL);
        ok = top != NULL;
        if (ok) put_tensor(&s.inputs, s.e.name[top->id]);
        ok = ok && put_meta(&s.e, top);
    }
    ok = ok && body_nodes(&s);
    if (ok && limited) {
        next = PUT(&s.e, add_Tensor, "next", DT_I64, 0, NULL, arg_value(l->g->input[0]), number(&s.e, 1),
                   number(&s.e, 1));
        ok = next && result(&s, next);
    }
    for (int i = 0; ok && i <= l->carried->n; i++) ok = result(&s, l->g->output[i].value);
    ok = ok && put_graph(e, &s, "while_loop_body_graph", false, out);
    free_inside(&s);
    return ok;
}

static bool spell_while(Emit *e, LoopParts *l)
{
    const Node *n = l->n;
    int nc = l->carried->n, k = 0, m = 0;
    bool limited = n->arg[4].kind == ARG_EXPR || reads(e, l->g, 0);
    if (n->nout > nc)
        return fail(e->err, E_UNSUPPORTED,
                    "a loop that stacks results of its turns, and whose count depends on data: PyTorch has none");
    Value **carried = arena_array(e->arena, Value *, nc + 3), **out = arena_array(e->arena, Value *, nc + 3),
          *top = NULL;
    if (!carried || !out) return oom(e->err);
    Arg none = {.kind = ARG_EXPRS};
    if (limited) {
        Expr *limit = n->arg[4].kind == ARG_EXPR ? n->arg[4].e : ex_int(e->g->ex, INT64_MAX);
        TRY(top = PUT(e, full, "limit", DT_I64, 0, NULL, none, arg_expr(limit), arg_dtype(DT_I64)));
        TRY(carried[k++] = PUT(e, full, "turn", DT_I64, 0, NULL, none, number(e, 0), arg_dtype(DT_I64)));
        TRY(out[m++] = new_value(e, "turns", DT_I64, 0, NULL));
    }
    if (n->arg[0].kind == ARG_VALUE) TRY(emit_value(e, carried[k++] = n->arg[0].v));
    else TRY(carried[k++] = PUT(e, full, "go", DT_BOOL, 0, NULL, none, truth_of(e, true), arg_dtype(DT_BOOL)));
    TRY(out[m++] = new_value(e, "condition", DT_BOOL, 0, NULL));
    for (int i = 0; i < nc; i++) {
        carried[k++] = l->carried->vs[i];
        out[m++] = n->out[i];
    }
    Value **captured = arena_array(e->arena, Value *, l->nall + 2);
    if (!captured) return oom(e->err);
    for (int i = 0; i < l->nall; i++) captured[i] = l->all[i];
    if (limited) captured[l->nall] = top;
    Buf in = {0};
    bool ok = put_test(e, l, limited, &in) && put_step(e, l, limited, &in) && put_operands(e, k, carried, &in) &&
              put_operands(e, l->nall + limited, captured, &in) && put_control(e, "while_loop", &in, m, out);
    buf_free(&in);
    return ok;
}

bool spell_loop(Emit *e, const Node *n)
{
    LoopParts l;
    bool counted = n->arg[0].kind == ARG_NONE && n->arg[5].e->i && n->arg[4].kind == ARG_EXPR;
    TRY(not_core(e) && read_loop(e, n, &l));
    if (counted) return spell_counted(e, &l);
    if (l.sequences->n)
        return fail(e->err, E_UNSUPPORTED, "a loop over sequences that may end early: PyTorch has none");
    return spell_while(e, &l);
}
