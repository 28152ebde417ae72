/* The records of a .pt2, without the importer: does model.json say what torch's schema wants, are names defined once
 * and before use, do arguments fit the op's schema, are weights in their entries, do signature and graph agree?
 * Everything is listed, nothing stops it.
 *
 *     node 'linear': argument 'weight' is given twice                Q106
 *     node 'view': uses 'sym_size_int_7', which is not defined     Q108
 */
#include "pt2/check/check_pt2.h"
#include <stdio.h>
#include <string.h>
#include "format/zip_json.h"
#include "op/op.h"
#include "expr/expr.h"

enum { MAX_DEPTH = 32 };

/* A value name of one graph. */
typedef struct Name {
    int at;   /* node that defines it, -1 an input; of names that come later too */
    bool now; /* defined by what was read so far */
    bool used;
} Name;

typedef struct Scope {
    struct Scope *outer;
    Map names; /* -> Name */
    const json_t *graph;
    int depth;
} Scope;

typedef struct Records {
    Check *c;
    ExprPool *pool;
    const json_t *ranges;
    Map weight; /* name in the state dict -> path in the archive */
    int extra_values;
} Records;

static const json_t *get(const json_t *o, const char *key) { return json_object_get(o, key); }
static const char *text(const json_t *o, const char *key) { return json_string_value(get(o, key)); }

static const char *plain(const char *target) { return !strncmp(target, "torch.ops.", 10) ? target + 10 : target; }

static bool begins(const char *s, const char *prefix) { return !strncmp(s, prefix, strlen(prefix)); }

/* ------------------------------------------------------------------ names */

static Name *find(const Scope *s, const char *name)
{
    for (; s; s = s->outer) {
        Name *n = map_get(&s->names, name);
        if (n) return n;
    }
    return NULL;
}

static void define(Records *r, Scope *s, const char *name, int at)
{
    if (map_has(&s->names, name)) return;
    Name *n = arena_new(r->c->arena, Name);
    char *copy = arena_strdup(r->c->arena, name);
    if (!n || !copy || !map_put(&s->names, copy, n)) {
        r->c->failed = true;
        return;
    }
    n->at = at;
}

/* The name in {"as_tensor": {"name": ..}}, {"as_sym_int": {"as_name": ..}}, {"as_custom_obj": {"name": ..}}. */
static const char *named(const json_t *arg)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)arg, key, v)
    {
        if (!json_is_object(v)) return NULL;
        if (!strcmp(key, "as_tensor") || !strcmp(key, "as_custom_obj")) return text(v, "name");
        if (begins(key, "as_sym_")) return text(v, "as_name");
        if (!strcmp(key, "as_optional_tensor")) return named(v);
    }
    return NULL;
}

typedef void NameFn(Records *r, Scope *s, const char *name, int at, const char *place);

/* Every name that an argument or result mentions. */
static void each_name(Records *r, Scope *s, const json_t *arg, int at, const char *place, NameFn *f)
{
    const char *key, *name = named(arg);
    json_t *v, *item;
    size_t i;
    if (name) {
        f(r, s, name, at, place);
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)arg, key, v)
    {
        if (strcmp(key, "as_tensors") && strcmp(key, "as_optional_tensors") && strcmp(key, "as_sym_ints") &&
            strcmp(key, "as_sym_bools") && strcmp(key, "as_sym_floats") && strcmp(key, "as_nested_tensors"))
            continue;
        json_array_foreach(v, i, item)
        {
            const char *inner = text(item, "name");
            if (!inner) inner = text(item, "as_name");
            if (!inner) inner = named(item);
            if (inner) f(r, s, inner, at, place);
        }
    }
}

static void define_name(Records *r, Scope *s, const char *name, int at, const char *place)
{
    (void)place;
    define(r, s, name, at);
}

static void use_name(Records *r, Scope *s, const char *name, int at, const char *place)
{
    Name *n = find(s, name);
    (void)at;
    if (!n) check_add(r->c, Q(108), place, "it uses '%.200s', which is not defined", name);
    else if (!n->now) check_add(r->c, Q(109), place, "it uses '%.200s', which a later node defines", name);
    if (n) n->used = true;
}

/* The node or input that is being read defines it. */
static void make_name(Records *r, Scope *s, const char *name, int at, const char *place)
{
    Name *n = map_get(&s->names, name);
    if (!*name) check_add(r->c, Q(112), place, "one of its results has no name");
    if (!n) return;
    if (n->now) check_add(r->c, Q(110), place, "'%.200s' is already defined", name);
    (void)at;
    n->now = true;
}

static void count_used(Records *r, Scope *s, const char *name, int at, const char *place)
{
    const Name *n = map_get(&s->names, name);
    (void)at;
    (void)place;
    if (n && n->used) r->extra_values++;
}

/* ------------------------------------------------------------------ types that the file declares */

/* Every symbol that a declared size mentions has a range. */
static void check_symbols(Records *r)
{
    for (int i = 0; i < expr_symbol_count(r->pool); i++) {
        const char *name = expr_symbol(r->pool, i)->name;
        if (!get(r->ranges, name))
            check_add(r->c, Q(206), check_place(r->c, "size '%.100s'", name), "it is not in range_constraints");
    }
}

static void check_size(Records *r, const json_t *sym, const char *place, const char *what)
{
    const json_t *number = get(sym, "as_int");
    const char *expr = text(get(sym, "as_expr"), "expr_str");
    Err e;
    if (json_is_integer(number)) {
        if (json_integer_value(number) < 0)
            check_add(r->c, Q(206), place, "%s is %lld", what, (long long)json_integer_value(number));
        return;
    }
    if (!expr) {
        check_add(r->c, Q(206), place, "%s is %s, neither as_int nor as_expr", what, json_kind(sym));
        return;
    }
    if (!ex_parse(r->pool, expr, NULL, NULL, &e)) check_add(r->c, Q(206), place, "%s: %s", what, e.msg);
}

static void check_meta(Records *r, const json_t *meta, const char *place)
{
    const json_t *sizes = get(meta, "sizes"), *code = get(meta, "dtype");
    json_t *size;
    size_t i;
    if (!json_is_integer(code) || json_integer_value(code) < 1 || json_integer_value(code) > 35)
        check_add(r->c, Q(114), place, "its dtype is %s",
                  json_is_integer(code) ? "a number that stands for none" : json_kind(code));
    if (!json_is_array(sizes)) {
        check_add(r->c, Q(114), place, "its sizes are %s", json_kind(sizes));
        return;
    }
    if (json_is_array(get(meta, "strides")) && json_array_size(get(meta, "strides")) != json_array_size(sizes))
        check_add(r->c, Q(114), place, "%zu strides for %zu sizes", json_array_size(get(meta, "strides")),
                  json_array_size(sizes));
    json_array_foreach(sizes, i, size)
    {
        char what[32];
        snprintf(what, sizeof what, "size %zu", i);
        check_size(r, size, place, what);
    }
}

/* ------------------------------------------------------------------ nodes */

static const char *tag_of(const json_t *arg) { return json_object_size(arg) ? json_string_value(json_below(arg)) : ""; }

static bool one_of(const char *tag, const char *list)
{
    size_t n = strlen(tag);
    for (const char *p = list; (p = strstr(p, tag)); p += n)
        if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ' ')) return n > 0;
    return false;
}

static const char *allowed_tags(ParamType t)
{
    static const char number[] = "as_int as_float as_bool as_sym_int as_sym_float as_sym_bool as_complex as_string";
    switch (t) {
    case PT_TENSOR:
        return "as_tensor as_optional_tensor as_int as_float as_bool as_sym_int as_sym_float as_sym_bool as_complex";
    case PT_TENSORS: return "as_tensors as_optional_tensors as_nested_tensors";
    case PT_INT: return "as_int as_sym_int as_bool as_scalar_type as_layout as_memory_format";
    case PT_INTS: return "as_ints as_sym_ints as_int as_sym_int";
    case PT_FLOAT: return "as_float as_int as_sym_float as_sym_int as_bool";
    case PT_FLOATS: return "as_floats as_ints as_sym_floats as_sym_ints as_float";
    case PT_BOOL: return "as_bool as_sym_bool as_int";
    case PT_BOOLS: return "as_bools as_bool as_sym_bools";
    case PT_SCALAR: return number;
    case PT_SCALARS: return "as_ints as_floats as_sym_ints as_sym_floats as_bools as_int as_float";
    case PT_STR: return "as_string";
    case PT_DTYPE: return "as_scalar_type as_int";
    case PT_GRAPH:
    case PT_IGNORED: return NULL;
    }
    return NULL;
}

static void check_args(Records *r, const json_t *inputs, const Op *op, const char *place)
{
    bool given[64] = {0};
    json_t *input;
    size_t i;
    const Schema *schema = op->schema;
    json_array_foreach(inputs, i, input)
    {
        const char *name = text(input, "name");
        const json_t *arg = get(input, "arg");
        int at = name ? op_param(op, name) : -1;
        if (!name || !json_is_object(arg) || json_object_size(arg) != 1) {
            check_add(r->c, Q(114), place, "its argument %zu has no name or is not a union of one kind", i);
            continue;
        }
        if (at < 0) {
            check_add(r->c, Q(104), place, "%s has no argument '%.100s'", op->name, name);
            continue;
        }
        if (given[at]) check_add(r->c, Q(106), place, "argument '%s' is given twice", name);
        given[at] = true;
        const char *tag = tag_of(arg), *allowed = allowed_tags(schema->params[at].type);
        bool none = !strcmp(tag, "as_none") && (schema->params[at].optional || schema->params[at].def);
        if (allowed && !none && !one_of(tag, allowed) &&
            !(schema->params[at].optional && one_of(tag, "as_optional_tensor as_optional_tensors")))
            check_add(r->c, Q(105), place, "argument '%s' is %.60s, which %s does not take", name, tag, op->name);
    }
    for (int k = 0; k < schema->nparams && k < 64; k++)
        if (!given[k] && !schema->params[k].def && !schema->params[k].optional)
            check_add(r->c, Q(103), place, "%s needs the argument '%s'", op->name, schema->params[k].name);
}

static void check_target(Records *r, const char *target, const char *place)
{
    static const char *const namespaces[] = {"torch.ops.aten.",
                                             "torch.ops.prims.",
                                             "torch.ops.torchvision.",
                                             "torch.ops.higher_order.",
                                             "torch.ops.quantized_decomposed.",
                                             "_operator.",
                                             "math.",
                                             "builtins.",
                                             "torch.sym_",
                                             "torch._sym_",
                                             "torch._functorch.predispatch.",
                                             "torch.ops.transformers."};
    bool known = false;
    for (size_t i = 0; i < sizeof namespaces / sizeof *namespaces; i++) known |= begins(target, namespaces[i]);
    if (op_find(target)) return;
    if (!known && begins(target, "torch.ops.")) check_add(r->c, Q(102), place, "%.200s is a custom op", plain(target));
    else if (!known) check_add(r->c, Q(101), place, "'%.200s' is not an op", target);
    else if (begins(target, "torch.ops.") && !begins(target, "torch.ops.higher_order.")) {
        if (r->c->targets & TARGET_QKV) check_add(r->c, Q(601), place, "qkv does not have %.200s", plain(target));
        else check_add(r->c, Q(199), place, "%.200s is in no table here", plain(target));
    }
}

static int count_results(const json_t *outputs)
{
    json_t *out;
    size_t i;
    int n = 0;
    json_array_foreach(outputs, i, out) n += get(out, "as_tensors") ? (int)json_array_size(get(out, "as_tensors")) : 1;
    return n;
}

static void scan_graph(Records *r, Scope *s, const char *prefix);

static void scan_subgraphs(Records *r, Scope *s, const json_t *inputs, const char *place)
{
    json_t *input;
    size_t i;
    json_array_foreach(inputs, i, input)
    {
        const json_t *g = get(get(get(input, "arg"), "as_graph"), "graph");
        if (!g) continue;
        Scope inner = {.outer = NULL, .graph = g, .depth = s->depth + 1};
        if (inner.depth > MAX_DEPTH) check_add(r->c, Q(199), place, "subgraphs nested deeper than %d", MAX_DEPTH);
        else scan_graph(r, &inner, place);
        map_free(&inner.names);
    }
}

/* The label that a reader sees, as the importer chooses it. */
static const char *label_of(const json_t *node)
{
    const char *name = text(node, "name");
    json_t *out, *item;
    size_t i, k;
    if (name) return name;
    json_array_foreach(get(node, "outputs"), i, out)
    {
        const char *n = text(get(out, "as_tensor"), "name");
        if (n) return n;
        json_array_foreach(get(out, "as_tensors"), k, item) if ((n = text(item, "name"))) return n;
    }
    return NULL;
}

static void check_node(Records *r, Scope *s, const json_t *node, int at, const char *place)
{
    const json_t *inputs = get(node, "inputs"), *outputs = get(node, "outputs");
    const char *target = text(node, "target");
    json_t *v;
    size_t i;
    if (!target || !json_is_array(inputs) || !json_is_array(outputs)) {
        check_add(r->c, Q(114), place, "target, inputs or outputs are missing");
        return;
    }
    const Op *op = op_find(target);
    check_target(r, target, place);
    if (op) check_args(r, inputs, op, place);
    json_array_foreach(inputs, i, v) each_name(r, s, get(v, "arg"), at, place, use_name);
    scan_subgraphs(r, s, inputs, place);
    json_array_foreach(outputs, i, v) each_name(r, s, v, at, place, make_name);
    int n = count_results(outputs);
    if (op && !op->schema->returns_list && n > op->schema->nreturns && op->schema->nreturns > 0)
        check_add(r->c, Q(107), place, "%s gives %d results, the file names %d", op->name, op->schema->nreturns, n);
}

static void check_unused(Records *r, Scope *s, const json_t *node, const char *place)
{
    const char *target = text(node, "target");
    const Op *op = target ? op_find(target) : NULL;
    json_t *v;
    size_t i;
    bool pure = op && !(op->flags & (OPF_INPLACE | OPF_EFFECT | OPF_RANDOM)) &&
                !(op->schema->nparams && op->schema->params[0].written) && !strstr(target, "assert") &&
                !strstr(target, "sym_constrain");
    if (!pure || !count_results(get(node, "outputs"))) return;
    r->extra_values = 0;
    json_array_foreach(get(node, "outputs"), i, v) each_name(r, s, v, 0, place, count_used);
    if (!r->extra_values) check_add(r->c, Q(115), place, "the results of %s are not used", op->name);
}

static void check_declared(Records *r, const Scope *s)
{
    const char *name;
    json_t *meta;
    int unknown = 0;
    const char *first = NULL;
    json_object_foreach((json_t *)(uintptr_t)get(s->graph, "tensor_values"), name, meta)
    {
        if (!map_has(&s->names, name)) {
            unknown++;
            if (!first) first = name;
            continue;
        }
        check_meta(r, meta, check_place(r->c, "value '%.200s'", name));
    }
    if (unknown)
        check_add(r->c, Q(119), "model", "tensor_values describes %d values that no node gives, '%.100s' the first",
                  unknown, first);
}

static const char *node_place(Records *r, const json_t *node, size_t i, const char *prefix)
{
    const char *label = label_of(node);
    if (*prefix) prefix = check_place(r->c, "%s: ", prefix);
    return label ? check_place(r->c, "%snode '%.200s'", prefix, label) : check_place(r->c, "%snode #%zu", prefix, i);
}

static void scan_graph(Records *r, Scope *s, const char *prefix)
{
    json_t *nodes = (json_t *)(uintptr_t)get(s->graph, "nodes"), *node, *v;
    size_t i, k;
    Map labels = {0};
    const char *whole = *prefix ? prefix : "model";
    if (!json_is_array(nodes) || !json_is_object(get(s->graph, "tensor_values"))) {
        check_add(r->c, Q(114), whole, "the graph has no list of nodes, or no tensor_values");
        return;
    }
    json_array_foreach(get(s->graph, "inputs"), i, v) each_name(r, s, v, -1, whole, define_name);
    json_array_foreach(get(s->graph, "inputs"), i, v) each_name(r, s, v, -1, whole, make_name);
    json_array_foreach(nodes, i, node) json_array_foreach(get(node, "outputs"), k, v)
        each_name(r, s, v, (int)i, whole, define_name);
    json_array_foreach(nodes, i, node)
    {
        const char *place = node_place(r, node, i, prefix), *label = text(node, "name");
        if (label && map_has(&labels, label)) check_add(r->c, Q(113), place, "another node has the same name");
        else if (label) r->c->failed |= !map_put(&labels, label, s);
        check_node(r, s, node, (int)i, place);
    }
    json_array_foreach(get(s->graph, "outputs"), i, v)
    {
        const char *name = named(v);
        Name *n = name ? find(s, name) : NULL;
        if (name && !n) check_add(r->c, Q(111), whole, "output '%.200s' is never computed", name);
        if (n) n->used = true;
    }
    check_declared(r, s);
    json_array_foreach(nodes, i, node) check_unused(r, s, node, node_place(r, node, i, prefix));
    map_free(&labels);
}

/* ------------------------------------------------------------------ weights */

static bool weight_size(const json_t *v, int64_t *out)
{
    const json_t *n = get(v, "as_int");
    *out = json_integer_value(n);
    return json_is_integer(n);
}

static void check_weight(Records *r, Zip *z, const char *root, const char *folder, const char *fqn, const json_t *entry,
                         Map *touched)
{
    const char *path = text(entry, "path_name"), *place = check_place(r->c, "weight '%.200s'", fqn);
    const json_t *meta = get(entry, "tensor_meta"), *sizes = get(meta, "sizes"), *strides = get(meta, "strides");
    if (!path || !*path || !json_is_object(entry)) {
        if (!path) check_add(r->c, Q(114), place, "path_name is missing");
        return; /* "": an object without bytes */
    }
    char *key = arena_printf(r->c->arena, "%s", path), *name = arena_strdup(r->c->arena, fqn);
    r->c->failed |= !key || !name || !map_put(&r->weight, name, key);
    const char *full = arena_printf(r->c->arena, "%s%s%s", root, folder, path);
    const ZipEntry *e = full ? zip_find(z, full) : NULL;
    if (full) map_put(touched, full, r);
    if (!e) {
        check_add(r->c, Q(302), place, "the archive has no entry '%.300s'", full ? full : path);
        return;
    }
    if (json_is_true(get(entry, "use_pickle"))) {
        check_add(r->c, Q(199), place, "it is a pickle, which is never opened");
        return;
    }
    if (!json_is_object(meta)) return; /* a custom object */
    Tensor t = {.dtype = dtype_from_pt2(json_integer_value(get(meta, "dtype"))), .rank = (int)json_array_size(sizes)};
    int64_t offset;
    Err err;
    size_t bytes;
    if (t.dtype == DT_NONE || t.rank > MAX_RANK || json_array_size(strides) != json_array_size(sizes) ||
        !weight_size(get(meta, "storage_offset"), &offset)) {
        check_add(r->c, Q(310), place,
                  "dtype, sizes, strides and offset of the archive's entry do not describe a tensor");
        return;
    }
    for (int i = 0; i < t.rank; i++)
        if (!weight_size(json_array_get(sizes, (size_t)i), &t.shape[i]) ||
            !weight_size(json_array_get(strides, (size_t)i), &t.stride[i])) {
            check_add(r->c, Q(310), place, "size or stride %d is not a constant", i);
            return;
        }
    if (!shape_bytes(t.dtype, t.rank, t.shape, &bytes, &err)) check_add(r->c, Q(310), place, "%s", err.msg);
    else if (!view_in_storage(&t, offset, e->size))
        check_add(r->c, Q(301), place, "its sizes, strides and offset reach beyond the %llu bytes of '%.300s'",
                  (unsigned long long)e->size, e->name);
}

static bool check_config(Records *r, Zip *z, const char *root, const char *folder, const char *model, const char *kind,
                         Map *touched, Err *err)
{
    const char *name = arena_printf(r->c->arena, "%s%s%s_%s_config.json", root, folder, model, kind);
    const ZipEntry *e = name ? zip_find(z, name) : NULL;
    const void *bytes;
    uint64_t size;
    if (!e) {
        check_add(r->c, Q(302), "archive", "there is no entry '%.300s'", name ? name : kind);
        return true;
    }
    map_put(touched, name, r);
    TRY(zip_data(z, e, true, &bytes, &size, err));
    json_t *top = zip_json(z, bytes, size, name, err), *entry;
    if (!top) return false;
    const char *fqn;
    json_object_foreach((json_t *)(uintptr_t)get(top, "config"), fqn, entry)
        check_weight(r, z, root, folder, fqn, entry, touched);
    json_free(top);
    return true;
}

/* ------------------------------------------------------------------ signature */

/* What a spec {"parameter": {"arg": {"name": ..}, ..}} or {"user_input": {"arg": {"as_tensor": {"name": ..}}}} names;
 * *fqn: the weight. */
static const char *spec_name(const json_t *spec, const char **fqn)
{
    static const char *const keys[] = {"parameter_name", "buffer_name", "tensor_constant_name"};
    const char *tag = tag_of(spec);
    const json_t *body = get(spec, tag), *arg = get(body, "arg");
    *fqn = NULL;
    for (int i = 0; i < 3; i++)
        if (text(body, keys[i]) && !strstr(tag, "mutation")) *fqn = text(body, keys[i]);
    const char *name = named(arg);
    return name ? name : text(arg, "name");
}

static bool tied_and_used(const Records *r, const Scope *s, const json_t *specs, const char *path)
{
    json_t *spec;
    size_t i;
    json_array_foreach(specs, i, spec)
    {
        const char *fqn, *name = spec_name(spec, &fqn), *other = fqn ? map_get(&r->weight, fqn) : NULL;
        const Name *n = name ? map_get(&s->names, name) : NULL;
        if (other && n && n->used && !strcmp(other, path)) return true;
    }
    return false;
}

static void check_inputs(Records *r, const Scope *s, const json_t *specs, Map *listed)
{
    json_t *spec;
    const json_t *inputs = get(s->graph, "inputs"), *input = json_array_get(inputs, 0);
    size_t i;
    if (json_array_size(specs) != json_array_size(inputs))
        check_add(r->c, Q(117), "model", "the signature lists %zu inputs, the graph %zu", json_array_size(specs),
                  json_array_size(inputs));
    json_array_foreach(specs, i, spec)
    {
        const char *fqn, *name = spec_name(spec, &fqn), *graph = named(input),
                         *path = fqn ? map_get(&r->weight, fqn) : NULL;
        const Name *n = name ? map_get(&s->names, name) : NULL;
        input = json_following(inputs, i, input);
        if (fqn) r->c->failed |= !map_put(listed, fqn, r);
        if (name && graph && strcmp(name, graph))
            check_add(r->c, Q(117), "model", "input %zu is '%.200s' in the signature and '%.200s' in the graph", i,
                      name, graph);
        if (fqn && !path && !get(spec, "custom_obj"))
            check_add(r->c, Q(302), check_place(r->c, "weight '%.200s'", fqn), "the archive lists no such weight");
        if (n && !n->used && path && !tied_and_used(r, s, specs, path))
            check_add(r->c, get(spec, "buffer") ? Q(311) : Q(307), check_place(r->c, "weight '%.200s'", fqn),
                      "no node uses '%.200s'", name);
        if (n && !n->used && !fqn && get(spec, "user_input"))
            check_add(r->c, Q(116), check_place(r->c, "input '%.200s'", name), "no node uses it");
    }
}

static void check_outputs(Records *r, const Scope *s, const json_t *specs)
{
    json_t *spec;
    const json_t *outputs = get(s->graph, "outputs"), *output = json_array_get(outputs, 0);
    size_t i;
    if (json_array_size(specs) != json_array_size(outputs))
        check_add(r->c, Q(117), "model", "the signature lists %zu outputs, the graph %zu", json_array_size(specs),
                  json_array_size(outputs));
    json_array_foreach(specs, i, spec)
    {
        const char *fqn, *name = spec_name(spec, &fqn), *graph = named(output);
        output = json_following(outputs, i, output);
        if (name && graph && strcmp(name, graph))
            check_add(r->c, Q(117), "model", "output %zu is '%.200s' in the signature and '%.200s' in the graph", i,
                      name, graph);
        else if (name && !find(s, name)) check_add(r->c, Q(111), "model", "output '%.200s' is never computed", name);
    }
}

static void check_ranges(Records *r)
{
    const char *name;
    json_t *range;
    json_object_foreach((json_t *)(uintptr_t)r->ranges, name, range)
    {
        const json_t *lo = get(range, "min_val"), *hi = get(range, "max_val");
        if (json_is_integer(lo) && json_is_integer(hi) && json_integer_value(lo) > json_integer_value(hi))
            check_add(r->c, Q(207), check_place(r->c, "size '%.100s'", name), "from %lld to %lld",
                      (long long)json_integer_value(lo), (long long)json_integer_value(hi));
    }
}

static void check_program(Records *r, const json_t *top)
{
    const json_t *module = get(top, "graph_module"), *signature = get(module, "signature"),
                 *major = get(get(top, "schema_version"), "major");
    Scope s = {.graph = get(module, "graph")};
    r->ranges = get(top, "range_constraints");
    if (!json_is_integer(major)) check_add(r->c, Q(114), "model", "schema_version is missing");
    else if (json_integer_value(major) != 8)
        check_add(r->c, Q(114), "model", "schema version %lld; torch 2.9 to 2.15 write 8",
                  (long long)json_integer_value(major));
    if (!json_is_object(s.graph) || !json_is_object(signature) || !json_is_object(r->ranges)) {
        check_add(r->c, Q(114), "model", "graph, signature or range_constraints are missing");
        return;
    }
    check_ranges(r);
    scan_graph(r, &s, "");
    check_symbols(r);
    Map listed = {0};
    check_inputs(r, &s, get(signature, "input_specs"), &listed);
    check_outputs(r, &s, get(signature, "output_specs"));
    for (size_t i = 0; i < r->weight.count; i++)
        if (!map_has(&listed, r->weight.entries[i].key))
            check_add(r->c, Q(307), check_place(r->c, "weight '%.200s'", r->weight.entries[i].key),
                      "the signature does not list it");
    map_free(&listed);
    map_free(&s.names);
}

/* ------------------------------------------------------------------ the archive */

static bool ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && !strcmp(s + n - m, suffix);
}

/* Weights that no configuration mentions; with --full every entry's checksum. */
static void check_entries(Records *r, Zip *z, const char *root, const Map *touched)
{
    const void *bytes;
    uint64_t size;
    Err err;
    for (size_t i = 0; i < zip_count(z); i++) {
        const ZipEntry *e = zip_entry(z, i);
        const char *name = begins(e->name, root) ? e->name + strlen(root) : e->name;
        const char *place = check_place(r->c, "entry '%.300s'", e->name);
        bool data = begins(name, "data/weights/") || begins(name, "data/constants/");
        if (data && !map_has(touched, e->name))
            check_add(r->c, Q(309), place, "no weight is in its %llu bytes", (unsigned long long)e->size);
        if (r->c->full && !zip_data(z, e, true, &bytes, &size, &err)) check_add(r->c, Q(308), place, "%s", err.msg);
    }
}

bool check_pt2(Check *c, Zip *z, Err *err)
{
    const char *root = NULL, *model = NULL;
    for (size_t i = 0; i < zip_count(z) && !root; i++)
        if (ends(zip_entry(z, i)->name, "archive_format"))
            root = arena_strndup(c->arena, zip_entry(z, i)->name,
                                 strlen(zip_entry(z, i)->name) - strlen("archive_format"));
    if (!root) return fail(err, E_FORMAT, "no entry 'archive_format': this ZIP is not a torch.export archive");
    const char *folder = arena_printf(c->arena, "%smodels/", root);
    for (size_t i = 0; folder && i < zip_count(z); i++) {
        const char *name = zip_entry(z, i)->name;
        if (begins(name, folder) && ends(name, ".json") && (!model || ends(name, "/model.json")))
            model = arena_strndup(c->arena, name + strlen(folder), strlen(name + strlen(folder)) - 5);
    }
    if (!model)
        return fail(err, E_FORMAT, "no entry '%s*.json': the archive holds no exported program",
                    folder ? folder : "models/");
    Arena *scratch = arena_create(0);
    Records r = {.c = c, .pool = scratch ? expr_pool(scratch) : NULL};
    Map touched = {0};
    const void *bytes;
    uint64_t size;
    bool ok = r.pool || oom(err);
    ok = ok && check_config(&r, z, root, "data/weights/", model, "weights", &touched, err) &&
         check_config(&r, z, root, "data/constants/", model, "constants", &touched, err);
    const char *entry = arena_printf(c->arena, "%s%s.json", folder, model);
    ok = ok && (entry || oom(err));
    json_t *top = ok && zip_data(z, zip_find(z, entry), true, &bytes, &size, err) ? zip_json(z, bytes, size, entry, err)
                                                                                  : NULL;
    if (top) check_program(&r, top);
    if (top) check_entries(&r, z, root, &touched);
    json_free(top);
    if (r.pool) expr_pool_free(r.pool);
    arena_destroy(scratch);
    map_free(&r.weight);
    map_free(&touched);
    return top != NULL;
}
