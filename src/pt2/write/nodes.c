/* Nodes of a .pt2: names, types of values, and the arguments of a row by ATen's schema, defaults left out.
 *
 *     %y: f32[s0, 4] = aten.linear.default(%x, %p_w)  ->
 *     {"target": "torch.ops.aten.linear.default", "inputs": [{"name": "input", "arg": {"as_tensor": {"name": "x"}},
 *         "kind": 1}, ...
 */
#include <string.h>
#include "base/number.h"
#include "pt2/write/write_impl.h"
#include "ir/text.h"
#include "facts/strides.h"

/* ------------------------------------------------------------------ names */

/* Words that the Python code made from the file must not lose. */
static bool reserved(const char *s)
{
    static const char *const words[] = {
        "False",    "None",   "True",  "and",       "as",     "assert",   "async",   "await", "break",    "class",
        "continue", "def",    "del",   "elif",      "else",   "except",   "finally", "for",   "from",     "global",
        "if",       "import", "in",    "is",        "lambda", "nonlocal", "not",     "or",    "pass",     "raise",
        "return",   "try",    "while", "with",      "yield",  "self",     "torch",   "math",  "operator", "builtins",
        "device",   "inf",    "nan",   "fx_pytree", "pytree", "NoneType", "getattr",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(s, words[i])) return true;
    return false;
}

/* A name of the file that nothing has: base, base_1, ... */
const char *fresh_name(Emit *e, const char *base)
{
    char *plain = arena_printf(e->arena, "%s%s", is_digit(*base) || !*base ? "_" : "", base), *name = plain;
    for (char *c = plain; c && *c; c++)
        if (!is_alnum(*c) && *c != '_') *c = '_';
    int *count = plain ? map_get(&e->taken, plain) : NULL;
    for (int k = count ? *count : plain && reserved(plain); name && (k || count); k++) {
        name = arena_printf(e->arena, "%s_%d", plain, k);
        if (count) *count = k + 1;
        if (name && !map_has(&e->taken, name)) break;
    }
    int *fresh = arena_new(e->arena, int);
    if (!name || !fresh || !map_put(&e->taken, name, fresh)) {
        oom(e->err);
        return NULL;
    }
    *fresh = 1;
    return name;
}

Value *new_value(Emit *e, const char *base, DType t, int rank, Expr *const *dim)
{
    Value *v = arena_new(e->arena, Value);
    Expr **copy = arena_array(e->arena, Expr *, rank + 1);
    const char *name = fresh_name(e, base);
    if (e->nvalues == e->room) {
        int n = e->room * 2 + 64;
        const char **names = arena_array(e->arena, const char *, n);
        bool *written = arena_array(e->arena, bool, n);
        if (names && written) {
            memcpy(names, e->name, (size_t)e->nvalues * sizeof *names);
            memcpy(written, e->written, (size_t)e->nvalues * sizeof *written);
            e->name = names;
            e->written = written;
            e->room = n;
        } else {
            copy = NULL;
        }
    }
    if (!v || !copy || !name) {
        oom(e->err);
        return NULL;
    }
    for (int i = 0; i < rank; i++) {
        copy[i] = dim[i];
        if (!dim[i]) {
            fail(e->err, E_LIMIT, "a size expression is too large");
            return NULL;
        }
    }
    *v = (Value){.name = name, .kind = V_NODE, .dtype = t, .rank = rank, .dim = copy, .id = e->nvalues++};
    e->name[v->id] = name;
    return v;
}

/* ------------------------------------------------------------------ types */

DType held_as(const Value *v)
{
    if (v->kind != V_WEIGHT) return v->dtype;
    return v->dtype == DT_I4 ? DT_I8 : v->dtype == DT_U4 ? DT_U8 : v->dtype;
}

bool requires_grad(const Value *v)
{
    bool floats = dtype_is_float(v->dtype) || dtype_is_complex(v->dtype);
    return floats && (v->kind == V_INPUT ? v->trains : v->kind == V_WEIGHT && v->weight == W_PARAMETER && !v->frozen);
}

void put_tensor(Buf *out, const char *name) { jw_put(out, "{'as_tensor': {'name': %s}}", name); }
void put_int(Buf *out, int64_t v) { jw_put(out, "{'as_int': %lld}", (long long)v); }

void put_symbol(Buf *out, const Expr *x, const char *name)
{
    if (x->is_bool) jw_put(out, "{'as_sym_bool': {'as_name': %s}}", name);
    else if (x->is_float) jw_put(out, "{'as_sym_float': {'as_name': %s}}", name);
    else jw_put(out, "{'as_sym_int': {'as_name': %s}}", name);
}

void put_device(Buf *out, const Value *v)
{
    jw_bool(out, "requires_grad", requires_grad(v));
    jw_put(out, "'device': {'type': 'cpu', 'index': null}");
}

enum { MAX_JSON = 512 << 20 }; /* what readers take */

bool put_meta(Emit *e, const Value *v)
{
    Buf *out = &e->tensors;
    if (e->too_long || out->len > MAX_JSON)
        return fail(e->err, E_LIMIT, "the sizes of '%s' are too long to write", v->name);
    if (out->len) jw_line(out);
    jw_open(out, e->name[v->id], '{');
    jw_put(out, "'dtype': %d, 'sizes': [", dtype_pt2(held_as(v)));
    for (int i = 0; i < v->rank; i++) put_size(e, v->dim[i], out);
    jw_close(out, "]");
    put_device(out, v);
    bool own = v->kind == V_WEIGHT && v->data;
    for (int i = 0; own && i < v->rank; i++) own = v->data->stride[i] >= 0;
    Expr *stride[MAX_RANK];
    if (!own && !value_strides(e->g->ex, v, stride)) return fail(e->err, E_LIMIT, "a size expression is too large");
    jw_open(out, "strides", '[');
    for (int i = 0; i < v->rank; i++) {
        if (own) put_int(out, v->data->stride[i]);
        else put_size(e, stride[i], out);
    }
    jw_put(out, "], 'storage_offset': {'as_int': 0}, 'layout': 7}");
    return true;
}

/* ------------------------------------------------------------------ arguments */

static bool same_number(const Expr *a, const Expr *b)
{
    if (!ex_is_const(a) || !ex_is_const(b)) return false;
    double x = ex_number(a), y = ex_number(b);
    return a->kind == b->kind && x == y && (a->kind == EX_FLOAT || a->i == b->i);
}

static bool is_default(Emit *e, const Param *p, const Arg *a)
{
    if (p->type == PT_IGNORED || a->kind == ARG_NONE) return a->kind == ARG_NONE && (p->type == PT_IGNORED || p->def);
    Arg d;
    Err ignored = {0};
    if (!p->def || !text_parse_default(e->scratch, p, &d, &ignored)) return false;
    if (a->kind == ARG_EXPRS && d.kind == ARG_EXPR && p->fixed_len) { /* one number for all */
        for (int i = 0; i < a->n; i++)
            if (!same_number(a->es[i], d.e)) return false;
        return true;
    }
    if (d.kind != a->kind) return false;
    switch (a->kind) {
    case ARG_EXPR: return same_number(a->e, d.e);
    case ARG_STR: return !strcmp(a->s, d.s);
    case ARG_DTYPE: return a->dtype == d.dtype;
    case ARG_EXPRS:
        if (d.n == 1 && p->fixed_len)
            for (int i = 0; i < a->n; i++) {
                if (!same_number(a->es[i], d.es[0])) return false;
            }
        else if (a->n != d.n) return false;
        else
            for (int i = 0; i < a->n; i++)
                if (!same_number(a->es[i], d.es[i])) return false;
        return true;
    default: return false;
    }
}

static bool put_numbers(Emit *e, const Arg *a, ParamType as, Buf *out)
{
    bool symbolic = false, is_float = as == PT_FLOATS, is_bool = as == PT_BOOLS;
    for (int i = 0; i < a->n; i++) {
        symbolic |= !ex_is_const(a->es[i]);
        is_float |= a->es[i]->is_float;
        is_bool |= as == PT_SCALARS && a->es[i]->is_bool;
    }
    static const char *const tags[][2] = {
        {"as_ints", "as_sym_ints"}, {"as_floats", "as_sym_floats"}, {"as_bools", "as_sym_bools"}};
    jw_open(out, NULL, '{');
    jw_open(out, tags[is_float ? 1 : is_bool ? 2 : 0][symbolic], '[');
    for (int i = 0; i < a->n; i++) {
        Buf one = {0};
        bool ok = put_number(e, a->es[i], is_float ? PT_FLOAT : is_bool ? PT_BOOL : PT_INT, &one);
        /* {"as_int": 3} as it is in a list of sizes, 3 in one of integers; a size of the graph by name */
        char *text = one.failed ? NULL : one.data, *inner = text ? strchr(text, ' ') : NULL;
        if (inner && (!symbolic || !ex_is_const(a->es[i]))) {
            one.data[one.len - 1] = 0;
            text = inner + 1;
        }
        if (ok) jw_raw(out, NULL, text);
        buf_free(&one);
        TRY(ok);
    }
    jw_close(out, "]}");
    return true;
}

static void put_tensors(Emit *e, const Arg *a, Buf *out)
{
    bool some = false;
    for (int i = 0; i < a->n; i++) some |= !a->vs[i];
    jw_open(out, NULL, '{');
    jw_open(out, some ? "as_optional_tensors" : "as_tensors", '[');
    for (int i = 0; i < a->n; i++) {
        if (!a->vs[i]) jw_put(out, "{'as_none': true}");
        else if (some) put_tensor(out, e->name[a->vs[i]->id]);
        else jw_put(out, "{'name': %s}", e->name[a->vs[i]->id]);
    }
    jw_close(out, "]}");
}

static bool put_arg(Emit *e, const Param *p, const Arg *a, Buf *out)
{
    switch (a->kind) {
    case ARG_NONE: jw_put(out, "{'as_none': true}"); return true;
    case ARG_VALUE: put_tensor(out, e->name[a->v->id]); return true;
    case ARG_VALUES: put_tensors(e, a, out); return true;
    case ARG_EXPR: return put_number(e, a->e, p->type, out);
    case ARG_EXPRS: return put_numbers(e, a, p->type, out);
    case ARG_STR: jw_put(out, "{'as_string': %s}", a->s); return true;
    case ARG_DTYPE:
        if (dtype_pt2(a->dtype) < 0)
            return fail(e->err, E_UNSUPPORTED, "%s, a type that PyTorch does not have: a .pt2 cannot hold it",
                        dtype_name(a->dtype));
        jw_put(out, "{'as_scalar_type': %d}", dtype_pt2(a->dtype));
        return true;
    case ARG_GRAPH: break;
    }
    return false;
}

/* An op that makes a tensor of numbers alone is told where: torch.export.passes.move_to_device_pass changes that. */
static bool makes_on_device(const Op *op, const Param *p)
{
    if (p->type != PT_IGNORED || strcmp(p->name, "device")) return false;
    for (int i = 0; i < op->schema->nparams; i++)
        if (op->schema->params[i].type == PT_TENSOR || op->schema->params[i].type == PT_TENSORS) return false;
    return true;
}

/* Positional as long as none is left out, by keyword from there. PyTorch reads no file without 'from', a word of
 * Python's, whatever its default. */
static bool put_args(Emit *e, const Op *op, const Arg *args, Buf *out)
{
    bool named = false;
    for (int i = 0; i < op->schema->nparams; i++) {
        const Param *p = &op->schema->params[i];
        if (makes_on_device(op, p)) {
            jw_put(out, "{'name': 'device', 'arg': {'as_device': {'type': 'cpu', 'index': null}}, 'kind': 2}");
            named = true;
            continue;
        }
        if (is_default(e, p, &args[i]) && strcmp(p->name, "from") != 0) {
            named = true;
            continue;
        }
        jw_put(out, "{'name': %s, 'arg': ", p->name);
        TRY(put_arg(e, p, &args[i], out) || within(e->err, "argument '%s'", p->name));
        jw_put(out, "'kind': %d}", named || p->kwonly ? 2 : 1);
    }
    return true;
}

/* ------------------------------------------------------------------ nodes */

/* The modules around a node, as torch.export names them: "L__self__,,;L__self__layers.0,layers.0,". */
static void put_stack(const Module *m, Buf *out)
{
    Buf b = {0};
    if (m->stack) {
        jw_text(out, "nn_module_stack", m->stack);
        return;
    }
    buf_puts(&b, "L__self__,,");
    for (const char *end = m->path; *m->path && end;) {
        end = strchr(end, '.');
        while (end && is_digit(end[1])) end = strchr(end + 1, '.'); /* layers.0 is one module of a list */
        int n = end ? (int)(end - m->path) : (int)strlen(m->path);
        buf_printf(&b, ";L__self__%.*s,%.*s,", n, m->path, n, m->path);
        if (end) end++;
    }
    jw_text(out, "nn_module_stack", b.data);
    out->failed |= b.failed;
    buf_free(&b);
}

void put_node(Emit *e, const char *target, Buf *inputs, Buf *outputs, const char *name)
{
    Buf *out = &e->nodes;
    if (out->len) jw_line(out);
    jw_put(out, "{'target': %s", target);
    jw_list(out, "inputs", '[', inputs);
    jw_list(out, "outputs", '[', outputs);
    jw_open(out, "metadata", '{');
    if (e->module) put_stack(e->module, out);
    jw_put(out, "}, 'is_hop_single_tensor_return': null, 'name': %s}", name);
    buf_free(inputs);
    buf_free(outputs);
}

static bool emit_operand(Emit *e, const Arg *a)
{
    if (a->kind == ARG_VALUE) return emit_value(e, a->v);
    for (int i = 0; a->kind == ARG_VALUES && i < a->n; i++)
        if (a->vs[i]) TRY(emit_value(e, a->vs[i]));
    return true;
}

/* A size that an op gives. */
static bool put_result_number(Emit *e, const Expr *x, Buf *outputs)
{
    const char *name = fresh_name(e, "size");
    if (!name) return oom(e->err);
    jw_put(outputs, "{'as_sym_int': {'as_name': %s}}", name);
    jw_key(&e->ints, name);
    put_size(e, x, &e->ints);
    return true;
}

bool write_node(Emit *e, const Op *op, const Arg *args, int nout, Value *const *out)
{
    return write_node_of(e, op, args, nout, out, NULL);
}

bool write_node_of(Emit *e, const Op *op, const Arg *args, int nout, Value *const *out, Expr *const *number)
{
    Buf inputs = {0}, outputs = {0};
    const char *name = nout == 1 ? e->name[out[0]->id] : NULL,
               *target = arena_printf(e->arena, "torch.ops.%s", op->name);
    if (!name) { /* of the tuple, which nothing else in the file names */
        size_t length;
        const char *base = op_base(op, &length);
        char *plain = arena_strndup(e->arena, base, length);
        name = plain ? fresh_name(e, plain) : NULL;
    }
    bool ok = (name && target) || oom(e->err);
    if (e->g->core && !(op->flags & OPF_ATEN_CORE))
        ok = fail(e->err, E_UNSUPPORTED,
                  "%s is not in ATen's core, and has no form that is; decompose the model into math or not at all",
                  op->name);
    if (op->flags & OPF_OWN && op_base(op, &(size_t){0}) != strchr(op->name, '.') + 1)
        ok = fail(e->err, E_UNSUPPORTED,
                  "PyTorch has no namespaces with a dot: register the op under a name without one to write it");
    for (int i = 0; ok && i < op->schema->nparams; i++) ok = emit_operand(e, &args[i]);
    ok = ok && put_args(e, op, args, &inputs);
    for (int k = 0; ok && k < nout; k++) {
        if (out[k]) put_tensor(&outputs, e->name[out[k]->id]);
        else if (number && number[k]) ok = put_result_number(e, number[k], &outputs);
        else jw_put(&outputs, "{'as_none': true}");
    }
    if (ok) put_node(e, target, &inputs, &outputs, name);
    buf_free(&inputs);
    buf_free(&outputs);
    TRY(ok);
    for (int k = 0; k < nout; k++) {
        if (!out[k]) continue;
        e->written[out[k]->id] = true;
        TRY(put_meta(e, out[k]));
    }
    for (int k = 0; k < nout; k++) TRY(!out[k] || note_value(e, out[k]));
    return true;
}

bool declare_value(Emit *e, Value *v, const Op *op, const Arg *args)
{
    Node *n = arena_new(e->arena, Node);
    Arg *copy = arena_array(e->arena, Arg, op->schema->nparams + 1);
    if (!n || !copy) return oom(e->err);
    for (int i = 0; i < op->schema->nparams; i++) copy[i] = args[i];
    *n = (Node){.op = op, .name = v->name, .arg = copy, .nout = 1};
    v->def = n;
    return true;
}

Value *put(Emit *e, OpId id, int n, const Arg *args, const char *base, DType t, int rank, Expr *const *dim)
{
    const Op *op = op_get(id);
    Value *v = new_value(e, base, t, rank, dim);
    Arg all[64] = {{0}};
    for (int i = 0; i < n; i++) {
        all[i] = args[i];
        if (args[i].kind == ARG_EXPR && !args[i].e) {
            fail(e->err, E_LIMIT, "a size expression is too large");
            return NULL;
        }
    }
    if (v && op->flags & OPF_VIEW && !declare_value(e, v, op, all)) return NULL;
    return v && write_node(e, op, all, 1, &v) ? v : NULL;
}

/* Overloads of ATen for a number in place of a tensor. Other rows take numbers as they are. */
static const struct {
    const char *second, *first, *both;
    OpId op;
} overloads[OP_COUNT] = {
#define NUMBERS(second_, first_, both_) .second = second_, .first = first_, .both = both_,
#define OP(id, name, schema, ...) [OP_##id] = {__VA_ARGS__.op = OP_##id},
#include "op/ops.def"
};

static const Op *overload_of(const Node *n, Arg *args)
{
    OpId id = n->op->id;
    int at = id == OP_where_self;
    bool first = args[at].kind == ARG_EXPR, second = args[at + 1].kind == ARG_EXPR;
    const char *name = first && second ? overloads[id].both
                       : first         ? overloads[id].first
                       : second        ? overloads[id].second
                                       : NULL;
    if (!name) return n->op;
    if (id == OP_sub_Tensor) { /* rsub: the number comes second */
        Arg a = args[at];
        args[at] = args[at + 1];
        args[at + 1] = a;
    }
    return op_find(name);
}

static bool emit_node(Emit *e, const Node *n)
{
    bool done = false;
    Arg args[64] = {{0}};
    if (e->g->core) TRY(core_spell(e, n, &done));
    if (!done) TRY(spell_node(e, n, &done));
    if (done) return true;
    for (int i = 0; i < n->op->schema->nparams && i < 64; i++) args[i] = n->arg[i];
    const Op *op = overload_of(n, args);
    if (e->g->core && !(op->flags & OPF_ATEN_CORE)) {
        TRY(core_overload(e, n, args));
        op = n->op;
    }
    if (strncmp(n->op->name, "qkv.", 4)) return write_node(e, op, args, n->nout, n->out);
    return fail(e->err, E_UNSUPPORTED, "ATen has no such op");
}

static bool emit_named(Emit *e, const Node *n)
{
    const Module *around = e->module;
    if (n->nout && e->written[n->out[0]->id]) return true;
    e->module = n->module;
    bool ok = emit_node(e, n) || within(e->err, "node '%s' (%s)", n->name, n->op->name);
    e->module = around;
    return ok;
}

bool emit_value(Emit *e, Value *v)
{
    if (e->written[v->id] || v->kind != V_NODE || !v->def) return true;
    if (++e->depth > 1000)
        return fail(e->err, E_UNSUPPORTED, "size out of '%s' is used too far in front of it", v->name);
    bool ok = emit_named(e, v->def);
    e->depth--;
    return ok;
}

bool emit_nodes(Emit *e)
{
    TRY(find_absorbed(e) && (!e->g->core || core_open(e)));
    for (const Node *n = e->g->first; n; n = n->next)
        if (!n->nout || !e->absorbed[n->out[0]->id]) TRY(emit_named(e, n));
    return true;
}
