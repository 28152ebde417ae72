/* The signature of a .pt2: which placeholder is which weight or input,
 * which output is a result or a new value of a buffer or input. */
#include <stdio.h>
#include <string.h>
#include "base/vec.h"
#include "pt2/read/read_impl.h"

Slot *scope_find(const Scope *s, const char *name) { return map_get(&s->names, name); }

bool scope_put(Import *im, Scope *s, const char *name, Slot slot)
{
    Slot *p = arena_new(im->g->arena, Slot);
    if (!p) return oom(im->err);
    *p = slot;
    return map_put(&s->names, name, p) || oom(im->err);
}

static bool declare_tensor(Import *im, Scope *s, const char *name, DType *t, int *rank, Expr **dim, const json_t **meta)
{
    *meta = json_object_get(s->tensor_values, name);
    if (!*meta) return fail(im->err, E_FORMAT, "'%s' is not in tensor_values", name);
    return read_meta(im, *meta, t, rank, dim) || within(im->err, "tensor_values: '%s'", name);
}

static bool add_weight(Import *im, Scope *s, const json_t *spec, const char *name_key, int kind)
{
    json_t *arg;
    const char *name, *fqn;
    DType t;
    int rank;
    Expr *dim[MAX_RANK];
    const json_t *meta;
    TRY(json_want_object(spec, "arg", &arg, im->err));
    TRY(json_want_string(arg, "name", &name, im->err));
    TRY(json_want_string(spec, name_key, &fqn, im->err));
    const Tensor *data = map_get(&im->weights, fqn);
    if (!data) data = map_get(&im->constants, fqn);
    if (!data) return fail(im->err, E_FORMAT, "weight '%s' is not in the archive", fqn);
    TRY(declare_tensor(im, s, name, &t, &rank, dim, &meta));
    bool same = t == data->dtype && rank == data->rank;
    for (int i = 0; same && i < rank; i++) same = ex_equals_int(dim[i], data->shape[i]);
    if (!same) {
        char have[200];
        return fail(im->err, E_FORMAT, "weight '%s' is %s in the archive, but the graph declares it otherwise", fqn,
                    tensor_describe(data, have, sizeof have));
    }
    Value *v = graph_add_weight(im->g, name, arena_strdup(im->g->arena, fqn), data);
    Ref *r = v ? ref_root(im->g, v, meta) : NULL;
    if (!r) return oom(im->err);
    v->weight = (unsigned char)kind;
    v->persistent = json_is_true(json_object_get(spec, "persistent"));
    v->frozen = kind == W_PARAMETER && json_is_false(json_object_get(meta, "requires_grad"));
    return scope_put(im, s, name, (Slot){.kind = SLOT_TENSOR, .ref = r});
}

static bool add_scalar_input(Import *im, const char *name, Arg value)
{
    Graph *g = im->g;
    ScalarInput *all = vec_room(g->arena, g->scalar_input, g->nscalar_input, sizeof *all);
    const char *copy = arena_strdup(g->arena, name);
    if (!all || !copy) return oom(im->err);
    int at = g->ninput + g->nscalar_input;
    all[g->nscalar_input++] = (ScalarInput){copy, value, at};
    g->scalar_input = all;
    return true;
}

static bool constant_argument(Import *im, const char *tag, const json_t *v, Arg *out)
{
    Graph *g = im->g;
    *out = arg_none();
    if (!strcmp(tag, "as_int") && json_is_integer(v)) *out = arg_int(g, json_integer_value(v));
    else if (!strcmp(tag, "as_bool") && json_is_boolean(v)) *out = arg_bool(g, json_is_true(v));
    else if (!strcmp(tag, "as_float") && json_is_number(v)) *out = arg_float(g, json_number_value(v));
    else if (!strcmp(tag, "as_float")) {
        out->kind = ARG_EXPR;
        return read_number(im, v, &out->e); /* "Infinity" */
    } else if (!strcmp(tag, "as_string") && json_is_string(v)) *out = arg_str(g, json_string_value(v));
    else if (strcmp(tag, "as_none")) return fail(im->err, E_UNSUPPORTED, "an input of kind %s", tag);
    return true;
}

static bool add_user_input(Import *im, Scope *s, const json_t *spec)
{
    const char *tag, *name = NULL, *inner_tag;
    json_t *arg, *v;
    TRY(json_want_object(spec, "arg", &arg, im->err));
    TRY(json_want_union(arg, &tag, &v, im->err));
    if (!strcmp(tag, "as_tensor")) {
        DType t;
        int rank;
        Expr *dim[MAX_RANK];
        const json_t *meta;
        TRY(json_want_string(v, "name", &name, im->err));
        TRY(declare_tensor(im, s, name, &t, &rank, dim, &meta));
        Value *value = graph_add_input(im->g, name, t, rank, dim);
        Ref *r = value ? ref_root(im->g, value, meta) : NULL;
        if (!r) return oom(im->err);
        value->trains = json_is_true(json_object_get(meta, "requires_grad"));
        for (int i = 0; i < rank; i++)
            if (dim[i]->kind == EX_SYM) {
                Symbol *sym = expr_symbol(im->g->ex, (int)dim[i]->i);
                if (sym->source == SYM_FREE)
                    *sym = (Symbol){sym->name, sym->lo, sym->hi, sym->has_hint, sym->hint,
                                    SYM_INPUT, value,   i,       sym->expr};
            }
        return scope_put(im, s, name, (Slot){.kind = SLOT_TENSOR, .ref = r});
    }
    if (!strcmp(tag, "as_sym_int") || !strcmp(tag, "as_sym_bool") || !strcmp(tag, "as_sym_float")) {
        Expr *e;
        json_t *named;
        TRY(json_want_union(v, &inner_tag, &named, im->err));
        if (strcmp(inner_tag, "as_name") || !json_is_string(named))
            return fail(im->err, E_FORMAT, "an input size without a name");
        name = json_string_value(named);
        const json_t *sym = json_object_get(s->sym_int_values, name);
        if (!sym)
            return fail(im->err, E_UNSUPPORTED, "input '%s' is a dynamic %s; only dynamic integers are supported", name,
                        tag + 7);
        TRY(read_sym(im, sym, &e));
        if (e->kind == EX_SYM) expr_symbol(im->g->ex, (int)e->i)->source = SYM_INPUT;
        TRY(add_scalar_input(im, name, arg_expr(e)));
        return scope_put(im, s, name, (Slot){.kind = SLOT_NUMBER, .e = e});
    }
    Arg value;
    TRY(constant_argument(im, tag, v, &value));
    char unnamed[32];
    snprintf(unnamed, sizeof unnamed, "scalar_%d", im->g->nscalar_input);
    return add_scalar_input(im, unnamed, value);
}

bool add_input(Import *im, Scope *s, const json_t *spec)
{
    const char *tag, *name, *inner;
    json_t *v, *value;
    TRY(json_want_union(spec, &tag, &v, im->err));
    if (!strcmp(tag, "parameter")) return add_weight(im, s, v, "parameter_name", W_PARAMETER);
    if (!strcmp(tag, "buffer")) return add_weight(im, s, v, "buffer_name", W_BUFFER);
    if (!strcmp(tag, "tensor_constant")) return add_weight(im, s, v, "tensor_constant_name", W_CONSTANT);
    if (!strcmp(tag, "user_input")) return add_user_input(im, s, v);
    if (!strcmp(tag, "constant_input")) {
        Arg a;
        TRY(json_want_string(v, "name", &name, im->err));
        TRY(json_want_object(v, "value", &value, im->err));
        TRY(json_want_union(value, &inner, &value, im->err));
        TRY(constant_argument(im, inner, value, &a));
        return add_scalar_input(im, name, a);
    }
    if (!strcmp(tag, "custom_obj") || !strcmp(tag, "token")) return true; /* reported when a node uses it */
    return fail(im->err, E_UNSUPPORTED, "input of kind '%s'", tag);
}

static bool add_output(Import *im, Value *v)
{
    char name[32];
    snprintf(name, sizeof name, "output_%d", im->nresults++);
    return v && graph_add_output(im->g, name, v, im->err);
}

/* Python's int, float or bool as a tensor that holds all of it: a node for a few bytes of the file. */
static bool add_number_output(Import *im, Expr *e)
{
    enum { MOST_NUMBERS = 10000 };
    Graph *g = im->g;
    if (im->nnumbers++ == MOST_NUMBERS)
        return fail(im->err, E_LIMIT, "more than %d numbers among the results", MOST_NUMBERS);
    DType t = e->is_bool ? DT_BOOL : e->is_float ? DT_F64 : DT_I64;
    Node *n = graph_add(g, OP_full, 3, (Arg[]){arg_exprs(g, 0, NULL), arg_expr(e), arg_dtype(t)}, "number", im->err);
    TRY(n && add_output(im, n->out[0]));
    g->output[g->noutput - 1].number = true;
    return true;
}

/* A result that is not a tensor: what it was at export, or the size it is. */
static bool add_scalar_output(Import *im, Scope *s, const char *kind, const json_t *arg)
{
    Graph *g = im->g;
    Arg value = arg_none();
    const char *name = json_string_value(json_object_get(arg, "as_name"));
    Slot *slot = name ? scope_find(s, name) : NULL;
    Expr *e = NULL;
    if (!strncmp(kind, "as_sym_", 7)) {
        if (slot && slot->kind == SLOT_NUMBER) e = slot->e;
        else if (name) return fail(im->err, E_FORMAT, "output '%s' is never computed", name);
        else TRY(read_sym(im, arg, &e));
        value = arg_expr(e);
    } else if (json_is_number(arg) || json_is_boolean(arg) || json_is_string(arg))
        TRY(constant_argument(im, kind, arg, &value));
    if (value.kind == ARG_EXPR) return add_number_output(im, value.e);
    ScalarOutput *all = vec_room(g->arena, g->scalar_output, g->nscalar_output, sizeof *all);
    if (!all) return oom(im->err);
    int at = g->noutput + g->nscalar_output;
    all[g->nscalar_output++] = (ScalarOutput){value, at};
    g->scalar_output = all;
    return true;
}

/* Which key of an output's entry names what takes the new value; NULL for other kinds of outputs. */
static const char *mutation_key(const char *tag)
{
    static const char *const keys[][2] = {{"buffer_mutation", "buffer_name"},
                                          {"parameter_mutation", "parameter_name"},
                                          {"user_input_mutation", "user_input_name"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(tag, keys[i][0])) return keys[i][1];
    return NULL;
}

/* A result of a joint graph: the loss, or the gradient of what the entry names. */
static bool add_gradient(Import *im, Value *v, const char *tag, const json_t *spec)
{
    Graph *g = im->g;
    Value *of = NULL;
    const char *name;
    bool input = !strcmp(tag, "gradient_to_user_input");
    TRY(json_want_string(spec, input ? "user_input_name" : "parameter_name", &name, im->err));
    for (int k = 0; k < (input ? g->ninput : g->nweight); k++)
        if (!strcmp(input ? g->input[k]->name : g->weight[k]->fqn, name)) of = input ? g->input[k] : g->weight[k];
    if (!of)
        return fail(im->err, E_FORMAT, "a gradient of '%s', which is not a %s", name, input ? "input" : "parameter");
    const char *output = arena_printf(g->arena, "grad.%s", name);
    if (!output) return oom(im->err);
    TRY(graph_add_output(g, output, v, im->err));
    g->output[g->noutput - 1].gradient_of = of;
    return true;
}

bool add_outputs(Import *im, Scope *s, const json_t *specs)
{
    size_t i;
    json_t *spec, *v, *arg;
    json_array_foreach(specs, i, spec)
    {
        const char *tag, *kind, *name, *fqn = NULL;
        TRY(json_want_union(spec, &tag, &v, im->err));
        bool user = !strcmp(tag, "user_output"), loss = !strcmp(tag, "loss_output"),
             gradient = !strncmp(tag, "gradient_to_", 12);
        const char *target = mutation_key(tag);
        if (!user && !target && !loss && !gradient) continue; /* a token */
        TRY(json_want_object(v, "arg", &arg, im->err));
        if (user) {
            TRY(json_want_union(arg, &kind, &arg, im->err));
            if (strcmp(kind, "as_tensor")) {
                TRY(add_scalar_output(im, s, kind, arg));
                continue;
            }
        } else if (target) {
            TRY(json_want_string(v, target, &fqn, im->err));
        }
        TRY(json_want_string(arg, "name", &name, im->err));
        Slot *slot = scope_find(s, name);
        if (!slot || slot->kind != SLOT_TENSOR) return fail(im->err, E_FORMAT, "output '%s' is never computed", name);
        Value *value = ref_value(im->g, slot->ref, im->err);
        TRY(value);
        if (!target) {
            TRY(gradient ? add_gradient(im, value, tag, v) : add_output(im, value));
            im->g->output[im->g->noutput - 1].loss = loss;
            im->g->output[im->g->noutput - 1].value_name = arena_strdup(im->g->arena, name);
            continue;
        }
        bool input = !strcmp(target, "user_input_name");
        for (int k = 0; k < (input ? im->g->ninput : im->g->nweight); k++) {
            Value *w = input ? im->g->input[k] : im->g->weight[k];
            if (strcmp(input ? w->name : w->fqn, fqn) || w == value) continue;
            Lower L = {.g = im->g, .ex = im->g->ex, .op = op_get(OP_copy), .name = name, .err = im->err};
            Value *taken = input ? value : AS(&L, copy, arg_value(w), arg_value(value)); /* self.mean = x.mean() */
            TRY((taken && graph_add_mutation(im->g, w, taken, im->err)) || within(im->err, "buffer '%s'", fqn));
        }
    }
    return true;
}

/* How many results a pytree's spec has. */
static int leaves(const json_t *spec)
{
    json_t *child, *children = json_object_get(spec, "children_spec");
    size_t i;
    int n = json_is_null(json_object_get(spec, "type"));
    json_array_foreach(children, i, child) n += leaves(child);
    return n;
}

typedef struct Labels {
    Import *im;
    const json_t *fields; /* of namedtuples */
    int leaf, scalar, output;
} Labels;

static bool label_leaf(Labels *l, const char *path)
{
    Graph *g = l->im->g;
    int at = l->leaf++;
    if (l->scalar < g->nscalar_output && g->scalar_output[l->scalar].at == at) {
        l->scalar++;
        return true;
    }
    Output *o = &g->output[l->output++];
    bool position = *path >= '0' && *path <= '9';
    if (!*path || position || graph_find_output(g, path) >= 0) return true;
    o->label = arena_strdup(g->arena, path);
    return o->label || oom(l->im->err);
}

/* A container's context has the keys of a dict or ModelOutput, the fields of a dataclass as the first of two lists, or
 * the namedtuple whose fields are in the file. Parts of lists and tuples have their positions. */
static bool label_parts(Labels *l, const json_t *spec, const char *path)
{
    if (json_is_null(json_object_get(spec, "type"))) return label_leaf(l, path);
    const char *context = json_string_value(json_object_get(spec, "context"));
    Err ignored; /* a context of an unknown kind names nothing */
    json_t *read = context && *context == '[' ? json_read(context, strlen(context), "context", &ignored) : NULL;
    const json_t *first = json_array_get(read, 0), *names = json_is_array(first) ? first : read;
    if (context && !read) names = json_object_get(json_object_get(l->fields, context), "field_names");
    const json_t *name = json_array_get(names, 0);
    json_t *child, *children = json_object_get(spec, "children_spec");
    size_t i;
    bool ok = true;
    json_array_foreach(children, i, child)
    {
        const char *key = json_string_value(name), *dot = *path ? "." : "";
        Arena *a = l->im->g->arena;
        const char *at = key ? arena_printf(a, "%s%s%s", path, dot, key) : arena_printf(a, "%s%s%zu", path, dot, i);
        ok = ok && (at || oom(l->im->err)) && label_parts(l, child, at);
        name = name ? json_following(names, i, name) : NULL;
    }
    json_free(read);
    return ok;
}

bool label_outputs(Import *im, const json_t *fields)
{
    const char *text = im->g->out_spec;
    Err ignored; /* writers keep it as it is; runs do without it */
    json_t *read = text ? json_read(text, strlen(text), "out_spec", &ignored) : NULL;
    const json_t *spec = json_array_get(read, 1);
    Labels l = {.im = im, .fields = fields};
    bool ok = leaves(spec) != im->g->noutput + im->g->nscalar_output || label_parts(&l, spec, "");
    json_free(read);
    return ok;
}

/* Buffers and inputs that in-place ops wrote (training IR shows no mutation of them). */
bool add_writes(Import *im, Scope *s)
{
    Graph *g = im->g;
    for (int k = 0; k < g->nweight + g->ninput; k++) {
        bool input = k >= g->nweight;
        Value *w = input ? g->input[k - g->nweight] : g->weight[k];
        const Mutation *list = input ? g->input_mutation : g->mutation;
        Slot *slot = scope_find(s, w->name);
        bool known = false;
        for (int m = 0; m < (input ? g->ninput_mutation : g->nmutation); m++) known |= list[m].target == w;
        if (known || !slot || slot->kind != SLOT_TENSOR || slot->ref->value == w) continue;
        TRY(graph_add_mutation(g, w, slot->ref->value, im->err));
    }
    return true;
}
