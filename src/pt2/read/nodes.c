/* The nodes of a .pt2: arguments by name, sizes as expressions, subgraphs inlined,
 * every ATen op lowered to plain form. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/vec.h"
#include "facts/axes.h"
#include "lower/autocast.h"
#include "facts/views.h"
#include "pt2/read/values.h"
#include "shape/shape.h"

/* ------------------------------------------------------------------ targets that are not ATen ops */

/* Python's arithmetic on sizes. */
static const struct {
    const char *target;
    ExprKind kind;
    int nargs;
    bool swap;
} size_ops[] = {
    {"_operator.add", EX_ADD, 2, false},
    {"_operator.mul", EX_MUL, 2, false},
    {"_operator.floordiv", EX_FLOORDIV, 2, false},
    {"_operator.mod", EX_MOD, 2, false},
    {"_operator.truediv", EX_TRUEDIV, 2, false},
    {"_operator.pow", EX_POW, 2, false},
    {"_operator.neg", EX_NEGF, 1, false},
    {"_operator.eq", EX_EQ, 2, false},
    {"_operator.ne", EX_NE, 2, false},
    {"_operator.lt", EX_LT, 2, false},
    {"_operator.le", EX_LE, 2, false},
    {"_operator.gt", EX_LT, 2, true},
    {"_operator.ge", EX_LE, 2, true},
    {"_operator.and_", EX_AND, 2, false},
    {"_operator.or_", EX_OR, 2, false},
    {"_operator.not_", EX_NOT, 1, false},
    {"_operator.lshift", EX_LSHIFT, 2, false},
    {"_operator.rshift", EX_RSHIFT, 2, false},
    {"_operator.abs", EX_ABS, 1, false},
    {"builtins.abs", EX_ABS, 1, false},
    {"math.ceil", EX_CEIL, 1, false},
    {"math.floor", EX_FLOOR, 1, false},
    {"math.trunc", EX_TRUNC, 1, false},
    {"builtins.round", EX_ROUND, 1, false},
    {"math.sqrt", EX_SQRT, 1, false},
    {"torch._sym_sqrt", EX_SQRT, 1, false},
    {"torch.sym_sqrt", EX_SQRT, 1, false},
    {"torch.sym_max", EX_MAX, 2, false},
    {"torch.sym_min", EX_MIN, 2, false},
    {"torch.sym_float", EX_TOFLOAT, 1, false},
    {"torch.sym_int", EX_TRUNC, 1, false},
    {"torch.sym_not", EX_NOT, 1, false},
    {"torch.sym_ite", EX_WHERE, 3, false},
    {"builtins.max", EX_MAX, 2, false},
    {"builtins.min", EX_MIN, 2, false},
};

static int find_size_op(const char *target)
{
    for (size_t i = 0; i < sizeof size_ops / sizeof *size_ops; i++)
        if (!strcmp(size_ops[i].target, target)) return (int)i;
    return -1;
}

/* Higher-order ops that run their graph once, in place: where the graph and its operands are among the arguments. */
static const struct {
    const char *target;
    int graph;
} inlined[] = {
    {"torch.ops.higher_order.wrap_with_set_grad_enabled", 1},
    {"torch.ops.higher_order.wrap_with_autocast", 4},
    {"torch.ops.higher_order.wrap", 0},
    {"torch.ops.higher_order.strict_mode", 0},
    {"torch.ops.higher_order.invoke_subgraph", 0},
    {"torch.ops.higher_order.wrap_activation_checkpoint", 0},
    {"torch.ops.higher_order.tag_activation_checkpoint", 0},
};

static int find_inlined(const char *target)
{
    for (size_t i = 0; i < sizeof inlined / sizeof *inlined; i++)
        if (!strcmp(inlined[i].target, target)) return inlined[i].graph;
    return -1;
}

static const char *plain_target(const char *target)
{
    return !strncmp(target, "torch.ops.", 10) ? target + 10 : target;
}

/* run_decompositions() puts ops that have an effect in an order: with_effects(token, op, arguments ...) gives another
 * token and what the op gives. */
static const char with_effects[] = "torch.ops.higher_order.with_effects";

static const char *effect_of(const char *target, const json_t *inputs)
{
    if (strcmp(target, with_effects)) return NULL;
    return json_string_value(json_object_get(json_object_get(json_array_get(inputs, 1), "arg"), "as_operator"));
}

/* ------------------------------------------------------------------ missing ops */

typedef struct Missing {
    Map count; /* target -> first node's name */
    Buf text;
    bool foreign; /* one of them is not ATen's */
} Missing;

static bool knows(const char *target, const json_t *inputs)
{
    const Op *op = op_find(target);
    return find_size_op(target) >= 0 || find_inlined(target) >= 0 || control_find(target) >= 0 || vmap_call(target) ||
           dual_find(target) >= 0 || !strcmp(target, with_effects) || !strcmp(target, "_operator.sub") ||
           !strcmp(target, "torch.sym_sum") || !strcmp(target, "_operator.getitem") ||
           (op ? !(op->flags & OPF_INPLACE) || pure_form(op) : out_form(target, inputs) != NULL);
}

bool pt2_knows(const char *target) { return knows(target, NULL); }

static bool scan_graph(Import *im, const json_t *graph, Missing *m, int depth)
{
    json_t *nodes, *node, *inputs, *input;
    size_t i, k;
    if (depth > MAX_SUBGRAPH_DEPTH)
        return fail(im->err, E_LIMIT, "subgraphs nested deeper than %d", MAX_SUBGRAPH_DEPTH);
    TRY(json_want_array(graph, "nodes", &nodes, im->err));
    json_array_foreach(nodes, i, node)
    {
        const char *target, *name = json_string_value(json_object_get(node, "name"));
        TRY(json_want_string(node, "target", &target, im->err) || within(im->err, "node %zu", i));
        inputs = json_object_get(node, "inputs");
        if (effect_of(target, inputs)) target = effect_of(target, inputs);
        if (!knows(target, inputs) && !map_has(&m->count, target)) {
            char place[64];
            snprintf(place, sizeof place, "node %zu", i);
            buf_printf(&m->text, "%s%s (%s%s%s)", m->text.len ? ", " : "", plain_target(target), name ? "node '" : "",
                       name ? name : place, name ? "'" : "");
            m->foreign |= strncmp(plain_target(target), "aten.", 5) != 0;
            if (!map_put(&m->count, target, m)) return oom(im->err);
        }
        json_array_foreach(inputs, k, input)
        {
            const json_t *sub = json_object_get(json_object_get(json_object_get(input, "arg"), "as_graph"), "graph");
            if (sub) TRY(scan_graph(im, sub, m, depth + 1));
        }
    }
    return true;
}

bool find_missing_ops(Import *im, const json_t *graph)
{
    Missing m = {0};
    bool ok = scan_graph(im, graph, &m, 0);
    if (ok && m.count.count)
        ok = fail(im->err, E_UNSUPPORTED, "%zu op%s not supported: %s%s", m.count.count,
                  m.count.count > 1 ? "s are" : " is", m.text.data,
                  m.foreign ? "; ops of your own are added with qkv_register_op" : "");
    map_free(&m.count);
    buf_free(&m.text);
    return ok;
}

/* ------------------------------------------------------------------ one node */

/* Does a backward op of attention hand on the random state of its forward op? Without dropout it is not read. */
static bool hands_on_state(Scope *s, const char *param, const json_t *arg)
{
    static const char *const states[] = {"philox_seed", "philox_offset", "rng_state", "unused"};
    const char *name = json_string_value(json_object_get(json_object_get(arg, "as_tensor"), "name"));
    const Slot *slot = name ? scope_find(s, name) : NULL;
    for (size_t i = 0; slot && slot->kind == SLOT_OTHER && i < sizeof states / sizeof *states; i++)
        if (!strcmp(param, states[i])) return true;
    return false;
}

static bool read_args(Import *im, Scope *s, const json_t *inputs, NodeCall *c)
{
    size_t i;
    json_t *input, *v;
    const Schema *schema = c->op->schema;
    Arg given[64] = {{0}};
    json_array_foreach(inputs, i, input)
    {
        const char *name;
        Ref *ref;
        TRY(json_want_string(input, "name", &name, im->err));
        TRY(json_want_object(input, "arg", &v, im->err) || within(im->err, "argument '%s'", name));
        int at = op_param(c->op, name);
        if (at < 0 && c->writes_results && c->nout < MAX_OUT) {
            Arg ignored;
            TRY(read_arg(im, s, v, &ignored, &c->out[c->nout]) || within(im->err, "argument '%s'", name));
            if (!c->out[c->nout++])
                return fail(im->err, E_FORMAT, "argument '%s': expected a tensor to write to", name);
            continue;
        }
        if (at < 0) return fail(im->err, E_FORMAT, "argument '%s': %s has none of that name", name, c->op->name);
        if (hands_on_state(s, name, v)) {
            given[at] = arg_none();
            continue;
        }
        TRY(read_arg(im, s, v, &given[at], &ref) || within(im->err, "argument '%s'", name));
        if (at == 0) c->self = ref;
    }
    c->arg = arena_array(im->g->arena, Arg, schema->nparams + 1);
    if (!c->arg) return oom(im->err);
    return op_fit_args(im->g, c->op, schema->nparams, given, c->arg, im->err);
}

/* ------------------------------------------------------------------ attentions,
 * for those who ask how the file has them */

static const char *name_of_operand(const json_t *inputs, const char *param)
{
    size_t i;
    json_t *input;
    json_array_foreach(inputs, i, input)
    {
        const json_t *arg = json_object_get(input, "arg"), *optional = json_object_get(arg, "as_optional_tensor");
        const char *name = json_string_value(json_object_get(input, "name"));
        if (name && !strcmp(name, param))
            return json_string_value(json_object_get(json_object_get(optional ? optional : arg, "as_tensor"), "name"));
    }
    return NULL;
}

static bool operand_as_is(Import *im, Scope *s, const json_t *inputs, const Op *op, const Arg *arg, const char *param,
                          FileTensor *out)
{
    int at = op_param(op, param);
    const char *name = name_of_operand(inputs, param);
    *out = (FileTensor){0};
    if (at < 0 || arg[at].kind != ARG_VALUE) return true;
    out->value = arg[at].v;
    const json_t *meta = name ? json_object_get(s->tensor_values, name) : NULL,
                 *strides = json_object_get(meta, "strides"), *offset = json_object_get(meta, "storage_offset");
    if (json_array_size(strides) != (size_t)out->value->rank) return true;
    Expr **stride = arena_array(im->g->arena, Expr *, out->value->rank + 1);
    if (!stride) return oom(im->err);
    Err ignored = {0};
    Import probe = *im;
    probe.err = &ignored;
    for (int i = 0; i < out->value->rank; i++)
        if (!read_sym(&probe, json_array_get(strides, (size_t)i), &stride[i])) return true;
    out->stride = stride;
    if (!offset || !read_sym(&probe, offset, &out->offset)) out->offset = NULL;
    return true;
}

/* "L__self__,,M;L__self__layers.0,layers.0,Layer": the innermost module, with this text; nodes that torch made itself
 * have a stack of one word. NULL: unknown. */
static const Module *module_of(Import *im, const json_t *node)
{
    const char *stack = json_string_value(json_object_get(json_object_get(node, "metadata"), "nn_module_stack"));
    if (!stack || !strncmp(stack, "_empty_nn_module_stack", 22)) return NULL;
    const char *last = strrchr(stack, ';'), *comma = strchr(last ? last : stack, ',');
    char *path = comma ? arena_printf(im->g->arena, "%.*s", (int)strcspn(comma + 1, ","), comma + 1) : NULL;
    return path ? graph_module(im->g, path, stack) : NULL;
}

static bool note_attention(Import *im, Scope *s, const json_t *inputs, const NodeCall *c, const char *label,
                           const Lower *L)
{
    Source *f = im->pt2;
    bool sdpa = c->op->id == OP_scaled_dot_product_attention;
    if (im->in_body || (!sdpa && strncmp(c->op->name, "aten._scaled_dot_product_", 25))) return true;
    FileAttention *more = vec_room(im->g->arena, f->attention, f->nattention, sizeof *more);
    if (!more) return oom(im->err);
    f->attention = more;
    FileAttention a = {.node = arena_strdup(im->g->arena, label ? label : c->op->name),
                       .path = im->g->module ? im->g->module->path : NULL,
                       .op = c->op,
                       .arg = c->arg,
                       .out = L->result.kind == ARG_VALUE                   ? L->result.v
                              : L->result.kind == ARG_VALUES && L->result.n ? L->result.vs[0]
                                                                            : NULL};
    if (!a.node) return oom(im->err);
    TRY(operand_as_is(im, s, inputs, c->op, c->arg, "query", &a.q) &&
        operand_as_is(im, s, inputs, c->op, c->arg, "key", &a.k));
    TRY(operand_as_is(im, s, inputs, c->op, c->arg, "value", &a.v) &&
        operand_as_is(im, s, inputs, c->op, c->arg,
                      sdpa || op_param(c->op, "attn_mask") >= 0 ? "attn_mask" : "attn_bias", &a.mask));
    if (a.q.value && a.k.value && a.v.value && a.out) f->attention[f->nattention++] = a;
    return true;
}

/* What the op writes to beside its results (running statistics of a batch norm) takes its new value. */
static bool take_writes(Import *im, Scope *s, const json_t *inputs, const Lower *L)
{
    for (int i = 0; i < L->nwrites; i++) {
        const char *param = L->op->schema->params[L->write[i].param].name, *name = name_of_operand(inputs, param);
        Slot *slot = name ? scope_find(s, name) : NULL;
        if (!slot || slot->kind != SLOT_TENSOR)
            return fail(im->err, E_FORMAT, "argument '%s': expected a tensor to write to", param);
        TRY(ref_write(im->g, slot->ref, L->write[i].value, im->err));
    }
    return true;
}

static DType declared_dtype(Scope *s, const char *name)
{
    const json_t *code = name ? json_object_get(json_object_get(s->tensor_values, name), "dtype") : NULL;
    return json_is_integer(code) ? dtype_from_pt2(json_integer_value(code)) : DT_NONE;
}

/* writes_results: op is what an op with out= is without it. */
static bool aten_node(Import *im, Scope *s, const json_t *node, const Op *op, bool writes_results, const char *label)
{
    const json_t *outputs = json_object_get(node, "outputs");
    json_t *inputs;
    size_t room = 1, at;
    json_t *output;
    json_array_foreach(outputs, at, output) room += 1 + json_array_size(json_object_get(output, "as_tensors"));
    const char **names = arena_array(im->g->arena, const char *, room);
    if (!names) return oom(im->err);
    int n = result_names(outputs, names, (int)room);
    NodeCall c = {.op = op, .mark = im->g->next_id, .writes_results = writes_results, .nnames = n};
    c.inputs = json_object_get(node, "inputs");
    TRY(json_want_array(node, "inputs", &inputs, im->err));
    TRY(read_args(im, s, inputs, &c));
    if (op->id == OP_as_strided || op->id == OP_as_strided_copy) TRY(in_storage(im, &c));
    DType declared = declared_dtype(s, n ? names[0] : NULL);
    TRY(autocast_args(im->g, op, c.arg, declared, im->compute, im->err));
    Lower L = {.g = im->g,
               .integers_stay = im->integers_stay,
               .ex = im->g->ex,
               .op = op,
               .arg = c.arg,
               .name = n && names[0] ? names[0] : label,
               .nout_names = n,
               .err = im->err};
    Expr *dim[MAX_RANK];
    DType t;
    const char *number = number_name(outputs);
    const json_t *meta = n && names[0] ? json_object_get(s->tensor_values, names[0]) : NULL;
    if (meta) {
        TRY(read_meta(im, meta, &t, &L.declared_rank, dim) || within(im->err, "tensor_values: '%s'", names[0]));
        L.declared = dim;
    }
    if (number) TRY(declared_number(im, s, number, &L.declared_number));
    bool detach = op->flags & OPF_INPLACE ? false : op->schema->nparams && op->schema->params[0].written;
    if (detach && c.self) /* detach_: the same tensor under another name */
        return !n || scope_put(im, s, names[0], (Slot){.kind = SLOT_TENSOR, .ref = c.self});
    if (op->flags & OPF_INPLACE) return in_place(im, s, &c, &L, n ? names[0] : NULL);
    TRY(lower_op(&L) && note_attention(im, s, inputs, &c, label, &L) && take_writes(im, s, inputs, &L));
    c.other_dtype = L.other_dtype;
    if (writes_results) return write_results(im, s, &c, &L, names, n);
    if (L.result.kind == ARG_EXPR)
        return !number || scope_put(im, s, number, (Slot){.kind = SLOT_NUMBER, .e = L.result.e});
    if (L.result.kind == ARG_VALUE) return !n || !names[0] || take_result(im, s, &c, names[0], L.result.v, 0);
    if (L.result.kind != ARG_VALUES) return true;
    if (n > L.result.n) return fail(im->err, E_FORMAT, "the file names %d results, the op gives %d", n, L.result.n);
    for (int k = 0; k < n; k++)
        if (names[k])
            TRY(L.result.vs[k] ? take_result(im, s, &c, names[k], L.result.vs[k], k)
                               : scope_put(im, s, names[k], (Slot){.kind = SLOT_OTHER}));
    return true;
}

static bool size_node(Import *im, Scope *s, const json_t *node, const char *target)
{
    json_t *inputs, *v;
    Expr *e[3] = {0}, *out;
    Ref *ref;
    size_t i;
    json_t *input;
    int n = 0;
    ExprPool *p = im->g->ex;
    const char *name = number_name(json_object_get(node, "outputs"));
    TRY(json_want_array(node, "inputs", &inputs, im->err));
    if (!strcmp(target, "torch.sym_sum")) {
        Arg list;
        TRY(json_want_object(json_array_get(inputs, 0), "arg", &v, im->err));
        TRY(read_arg(im, s, v, &list, &ref));
        out = ex_int(p, 0);
        for (int k = 0; list.kind == ARG_EXPRS && k < list.n; k++) out = ex_add(p, out, list.es[k]);
        return !name || !out ? out || fail(im->err, E_LIMIT, "a size expression is too large")
                             : scope_put(im, s, name, (Slot){.kind = SLOT_NUMBER, .e = out});
    }
    json_array_foreach(inputs, i, input)
    {
        Arg a;
        TRY(json_want_object(input, "arg", &v, im->err));
        TRY(read_arg(im, s, v, &a, &ref) || within(im->err, "argument %zu", i));
        if (a.kind != ARG_EXPR || n == 3)
            return fail(im->err, E_FORMAT, "argument %zu of %s is not a number", i, target);
        e[n++] = a.e;
    }
    int k = find_size_op(target);
    if (n != (k < 0 ? 2 : size_ops[k].nargs))
        return fail(im->err, E_FORMAT, "%s takes %d arguments, found %d", target, k < 0 ? 2 : size_ops[k].nargs, n);
    if (k < 0) out = ex_sub(p, e[0], e[1]);
    else if (size_ops[k].swap) out = ex_make(p, size_ops[k].kind, e[1], e[0], NULL);
    else out = ex_make(p, size_ops[k].kind, e[0], e[1], e[2]);
    if (!out) return fail(im->err, E_LIMIT, "a size expression is too large");
    return !name || scope_put(im, s, name, (Slot){.kind = SLOT_NUMBER, .e = out});
}

/* ------------------------------------------------------------------ subgraphs */

static bool bind_operand(Import *im, Scope *outer, Scope *inner, const json_t *placeholder, const json_t *operand)
{
    const char *tag, *name;
    json_t *v;
    TRY(json_want_union(placeholder, &tag, &v, im->err));
    const json_t *given = json_object_get(operand, "arg");
    const char *from = json_string_value(json_object_get(json_object_get(given, "as_tensor"), "name"));
    static const char *const sizes[] = {"as_sym_int", "as_sym_bool", "as_sym_float"};
    for (int i = 0; i < 3 && !from; i++)
        from = json_string_value(json_object_get(json_object_get(given, sizes[i]), "as_name"));
    name = json_string_value(json_object_get(v, strcmp(tag, "as_tensor") ? "as_name" : "name"));
    if (!name) return true; /* a constant operand */
    if (from) {
        Slot *slot = scope_want(im, outer, from);
        return slot && scope_put(im, inner, name, *slot);
    }
    Arg a;
    Ref *ref;
    TRY(read_arg(im, outer, given, &a, &ref));
    if (a.kind != ARG_EXPR)
        return fail(im->err, E_UNSUPPORTED, "operand '%s' of a subgraph is neither a tensor nor a number", name);
    return scope_put(im, inner, name, (Slot){.kind = SLOT_NUMBER, .e = a.e});
}

/* without_grad: under torch.no_grad(), where values from `mark` on were made. */
static bool bind_result(Import *im, Scope *outer, Scope *inner, const json_t *from, const char *name, bool without_grad,
                        int mark)
{
    const char *tag;
    json_t *v;
    if (!name) return true;
    TRY(json_want_union(from, &tag, &v, im->err));
    const char *source = json_string_value(json_object_get(v, strcmp(tag, "as_tensor") ? "as_name" : "name"));
    if (!source) return true;
    Slot *slot = scope_want(im, inner, source);
    TRY(slot);
    Value *made = without_grad && slot->kind == SLOT_TENSOR ? ref_value(im->g, slot->ref, im->err) : NULL;
    TRY(im->err->code == E_OK);
    if (!made || made->id < mark) return scope_put(im, outer, name, *slot);
    Value *still = detached(im->g, made, im->err);
    Ref *r = !still ? NULL : still == made ? slot->ref : ref_root(im->g, still, slot->ref->meta);
    if (still && !r) oom(im->err);
    return r && scope_put(im, outer, name, (Slot){.kind = SLOT_TENSOR, .ref = r});
}

/* Does the node run its graph under torch.no_grad()? */
static bool stops_gradients(const json_t *inputs, int at)
{
    return at == 1 && json_is_false(json_object_get(json_object_get(json_array_get(inputs, 0), "arg"), "as_bool"));
}

/* The name of a node's result, whatever it is: a tensor, or a number that its graph hands out. */
static const char *any_name(const json_t *out)
{
    const char *name = json_string_value(json_object_get(json_object_get(out, "as_tensor"), "name"));
    return name ? name : number_in(out);
}

bool scope_open(Import *im, Scope *around, const json_t *holder, Scope *inner, json_t **placeholders, json_t **results)
{
    json_t *body, *tv;
    if (around->depth >= MAX_SUBGRAPH_DEPTH)
        return fail(im->err, E_LIMIT, "subgraphs nested deeper than %d", MAX_SUBGRAPH_DEPTH);
    TRY(json_want_object(holder, "graph", &body, im->err));
    TRY(json_want_array(body, "inputs", placeholders, im->err));
    TRY(json_want_array(body, "outputs", results, im->err));
    TRY(json_want_object(body, "tensor_values", &tv, im->err));
    *inner = (Scope){.outer = around,
                     .graph = body,
                     .tensor_values = tv,
                     .sym_int_values = json_object_get(body, "sym_int_values"),
                     .sym_bool_values = json_object_get(body, "sym_bool_values"),
                     .sym_float_values = json_object_get(body, "sym_float_values"),
                     .depth = around->depth + 1};
    return true;
}

static bool subgraph_node(Import *im, Scope *s, const json_t *node, int at)
{
    json_t *inputs, *placeholders, *results;
    Scope inner;
    TRY(json_want_array(node, "inputs", &inputs, im->err));
    const json_t *holder = json_object_get(json_object_get(json_array_get(inputs, (size_t)at), "arg"), "as_graph");
    if (im->in_region && stops_gradients(inputs, at)) /* which tangents pass, and gradients do not */
        return fail(im->err, E_UNSUPPORTED, "torch.no_grad() inside a forward derivative");
    TRY(scope_open(im, s, holder, &inner, &placeholders, &results) || within(im->err, "argument %d", at));
    size_t first = (size_t)at + 1, n = json_array_size(placeholders), given = json_array_size(inputs);
    /* invoke_subgraph puts an identifier between the graph and its operands */
    if (given > first + n) first = given - n;
    bool ok = given >= first + n ||
              fail(im->err, E_FORMAT, "the subgraph takes %zu operands, %zu are given", n, given - first);
    int mark = im->g->next_id;
    const json_t *operand = json_array_get(inputs, first);
    json_t *placeholder;
    size_t i;
    json_array_foreach(placeholders, i, placeholder)
    {
        ok = ok && bind_operand(im, s, &inner, placeholder, operand);
        operand = ok ? json_following(inputs, first + i, operand) : NULL;
    }
    ok = ok && import_nodes(im, &inner);
    const json_t *named = json_object_get(node, "outputs"),
                 *list = json_object_get(json_array_get(named, 0), "as_tensors");
    size_t r;
    json_t *out;
    json_array_foreach(results, r, out)
    {
        const char *name = list ? json_string_value(json_object_get(json_array_get(list, r), "name"))
                                : any_name(json_array_get(named, r));
        if (ok) ok = bind_result(im, s, &inner, out, name, stops_gradients(inputs, at), mark);
    }
    map_free(&inner.names);
    return ok;
}

/* ------------------------------------------------------------------ all nodes */

/* The op's arguments come after the token and its name, those without a name by position; its results after the token
 * that is handed on, which nothing here needs: nodes are run in the file's order where that matters. */
static bool effect_node(Import *im, Scope *s, const json_t *node, const char *effect, const char *label)
{
    const Op *op = op_find(effect);
    json_t *inputs, *input, *v;
    size_t i;
    Arg given[64] = {{0}};
    Ref *ref;
    if (!op || op->flags & OPF_INPLACE) return fail(im->err, E_UNSUPPORTED, "an effect of %s", plain_target(effect));
    TRY(json_want_array(node, "inputs", &inputs, im->err));
    json_array_foreach(inputs, i, input)
    {
        if (i < 2) continue;
        const char *name = json_string_value(json_object_get(input, "name"));
        int at = name && *name ? op_param(op, name) : (int)i - 2;
        if (at < 0 || at >= op->schema->nparams)
            return fail(im->err, E_FORMAT, "argument %zu: %s has no such parameter", i, op->name);
        TRY((json_want_object(input, "arg", &v, im->err) && read_arg(im, s, v, &given[at], &ref)) ||
            within(im->err, "argument %zu", i));
    }
    Arg *arg = arena_array(im->g->arena, Arg, op->schema->nparams + 1);
    Lower L = {.g = im->g, .ex = im->g->ex, .op = op, .arg = arg, .name = label, .err = im->err};
    if (!arg) return oom(im->err);
    TRY(op_fit_args(im->g, op, op->schema->nparams, given, arg, im->err) && lower_op(&L));
    const json_t *outputs = json_object_get(node, "outputs");
    Value *const *made = L.result.kind == ARG_VALUE ? &L.result.v : L.result.vs;
    size_t n = L.result.kind == ARG_VALUE ? 1 : L.result.kind == ARG_VALUES ? (size_t)L.result.n : 0;
    json_t *output;
    json_array_foreach(outputs, i, output)
    {
        const char *name = any_name(output);
        Slot slot = {.kind = SLOT_OTHER};
        if (!name) continue;
        if (i && i <= n && made[i - 1]) {
            slot.kind = SLOT_TENSOR;
            slot.ref = ref_root(im->g, made[i - 1], json_object_get(s->tensor_values, name));
            if (!slot.ref) return oom(im->err);
        }
        TRY(scope_put(im, s, name, slot));
    }
    return true;
}

static bool import_node(Import *im, Scope *s, const json_t *node, const char *target, const char *label)
{
    int at = find_inlined(target);
    const char *effect = effect_of(target, json_object_get(node, "inputs"));
    if (effect) return effect_node(im, s, node, effect, label);
    if (at >= 0) return subgraph_node(im, s, node, at);
    if ((at = control_find(target)) >= 0) return control_node(im, s, node, at);
    if ((at = dual_find(target)) >= 0) return dual_node(im, s, node, at);
    const Op *op = op_find(target);
    if (op) return aten_node(im, s, node, op, false, label);
    if ((op = out_form(target, json_object_get(node, "inputs")))) return aten_node(im, s, node, op, true, label);
    if (vmap_call(target)) return fail(im->err, E_FORMAT, "it stands in no vmap");
    return size_node(im, s, node, target);
}

/* The results of a node that cannot be imported, as the file declares them. */
static bool take_declared(Import *im, Scope *s, const json_t *node)
{
    const json_t *outputs = json_object_get(node, "outputs");
    const char *name[64], *number = number_name(outputs);
    int n = result_names(outputs, name, 64);
    Expr *e = NULL;
    if (number) {
        TRY(declared_number(im, s, number, &e));
        TRY(scope_put(im, s, number, (Slot){.kind = SLOT_NUMBER, .e = e ? e : ex_symbol(im->g->ex, number)}));
    }
    for (int i = 0; i < n; i++) {
        const json_t *meta = name[i] ? json_object_get(s->tensor_values, name[i]) : NULL;
        DType t;
        int rank;
        Expr *dim[MAX_RANK];
        if (!meta || scope_find(s, name[i])) continue;
        TRY(read_meta(im, meta, &t, &rank, dim));
        const char *own = graph_find_value(im->g, name[i])
                              ? arena_printf(im->g->arena, "%s.%d", name[i], im->g->next_id)
                              : name[i];
        Value *v = own ? graph_add_input(im->g, own, t, rank, dim) : NULL;
        Ref *r = v ? ref_root(im->g, v, meta) : NULL;
        if (!r) return oom(im->err);
        TRY(scope_put(im, s, name[i], (Slot){.kind = SLOT_TENSOR, .ref = r}));
    }
    return true;
}

bool import_range(Import *im, Scope *s, const NodeList *nodes, size_t from, size_t to)
{
    for (size_t i = from, next; i < to; i = next) {
        const json_t *node = nodes->at[i];
        const char *target, *name = json_string_value(json_object_get(node, "name"));
        next = i + 1;
        if (!node) continue;
        TRY(json_want_string(node, "target", &target, im->err) || within(im->err, "node %zu", i));
        const char *label = name, *first = NULL;
        result_names(json_object_get(node, "outputs"), &first, 1);
        if (!label) label = first;
        char number[32];
        snprintf(number, sizeof number, "#%zu", i);
        int mark = im->g->next_id;
        im->g->module = module_of(im, node);
        VmapCall call = vmap_call(target);
        if (call == VMAP_LOAD) continue;
        bool ok = call == VMAP_BEGIN ? vmap_region(im, s, nodes, i, to, &next)
                                     : import_node(im, s, node, target, label);
        if (ok && note_line(im, node, mark)) continue;
        if (im->watch && im->err->code != E_LIMIT) {
            im->watch->problem(im->watch->user, label ? label : number, im->err);
            *im->err = (Err){0}; /* lowering goes on only without an error */
            if (take_declared(im, s, node)) continue;
        }
        return within(im->err, "node '%s' (%s)", label ? label : number, plain_target(target));
    }
    im->g->module = NULL;
    return true;
}

bool import_nodes(Import *im, Scope *s)
{
    json_t *nodes;
    NodeList list;
    TRY(json_want_array(s->graph, "nodes", &nodes, im->err));
    bool ok = node_list(&list, nodes, im->err) && import_range(im, s, &list, 0, list.n);
    node_list_free(&list);
    return ok;
}
