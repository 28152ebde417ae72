/* The .pt2 archive: weights, signature, symbols. Nodes are in nodes.c, sizes in sizes.c. Contract in write.h. */
#include "pt2/write/write.h"
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/mem.h"
#include "facts/constant.h"
#include "facts/views.h"
#include "ir/bodies.h"
#include "ir/copy.h"
#include "pt2/write/write_impl.h"
#include "format/zip.h"

/* ------------------------------------------------------------------ weights */

/* What one weight is stored as: a view of a record that it may share with others. */
typedef struct Stored {
    const Value *v;
    const char *fqn;
    bool constant;         /* in data/constants, not in data/weights */
    bool copied;           /* strides that PyTorch lacks: written contiguous */
    const char *from, *to; /* the bytes it touches */
    int record;
    int64_t offset; /* of its first element in the record, in elements */
} Stored;

typedef struct Record {
    const char *path, *from, *to;
    const Stored *first; /* in memory */
    int number;          /* of the first weight that is in it */
} Record;

typedef struct Weights {
    Stored *w;
    int n;
    Record *record;
    int nrecord;
    const char **fqn; /* by value id */
} Weights;

static int64_t stride_of(const Stored *s, int i)
{
    int64_t stride[MAX_RANK];
    if (!s->copied) return s->v->data->stride[i];
    strides_contiguous(s->v->rank, s->v->data->shape, stride);
    return stride[i];
}

static int by_place(const void *a, const void *b)
{
    const Stored *x = *(const Stored *const *)a, *y = *(const Stored *const *)b;
    if (x->constant != y->constant) return x->constant ? 1 : -1;
    if (x->v->dtype != y->v->dtype) return x->v->dtype < y->v->dtype ? -1 : 1;
    if (x->from != y->from) return (uintptr_t)x->from < (uintptr_t)y->from ? -1 : 1;
    return x->v->id - y->v->id;
}

/* Weights that share bytes share a record, as tied weights and slices of one tensor do;
 * PyTorch reads a record as one dtype. */
static bool share_records(Emit *e, Weights *all)
{
    Stored **order = arena_array(e->arena, Stored *, all->n + 1);
    if (!order) return oom(e->err);
    for (int i = 0; i < all->n; i++) order[i] = &all->w[i];
    qsort(order, (size_t)all->n, sizeof *order, by_place);
    for (int i = 0; i < all->n; i++) {
        Stored *s = order[i], *before = i ? order[i - 1] : NULL;
        Record *r = all->nrecord ? &all->record[all->nrecord - 1] : NULL;
        size_t size = dtype_size(s->v->dtype);
        bool same = r && before->constant == s->constant && before->v->dtype == s->v->dtype && !s->copied &&
                    !r->first->copied && s->from < s->to;
        same = same && (uintptr_t)s->from < (uintptr_t)r->to && (size_t)(s->from - r->from) % size == 0;
        if (!same) {
            r = &all->record[all->nrecord++];
            *r = (Record){.from = s->from, .to = s->to, .first = s};
        }
        s->record = (int)(r - all->record);
        s->offset = (s->from - r->from) / (int64_t)size;
        if ((uintptr_t)s->to > (uintptr_t)r->to) r->to = s->to;
    }
    return true;
}

/* A name in a state dict is a path of modules: "a.b" makes "a" one, which then cannot be a weight,
 * and no part is empty. */
static const char *path_of(Emit *e, const Value *v, Map *modules)
{
    char *path = arena_strdup(e->arena, v->fqn && *v->fqn ? v->fqn : v->name);
    for (char *c = path; c && *c; c++)
        if (*c == '.' && (c == path || c[-1] == '.' || !c[1])) *c = '_';
    for (const char *dot = path; dot && (dot = strchr(dot, '.')); dot++) {
        const char *module = arena_strndup(e->arena, path, (size_t)(dot - path));
        if (!module || !map_put(modules, module, e)) return NULL;
    }
    return path;
}

/* A name of the state dict that nothing has. */
static const char *state_name(Emit *e, const char *base, const Map *modules, Map *names)
{
    const char *name = base;
    for (int k = 1; name && (map_has(names, name) || map_has(modules, name)); k++)
        name = arena_printf(e->arena, "%s_%d", base, k);
    return name && map_put(names, name, e) ? name : NULL;
}

static bool collect_weights(Emit *e, Weights *all)
{
    Map names = {0}, modules = {0};
    const Graph *g = e->g;
    int count[2] = {0, 0};
    bool ok = (all->w = arena_array(e->arena, Stored, g->nweight + 1)) &&
              (all->fqn = arena_array(e->arena, const char *, g->next_id + 1)) &&
              (all->record = arena_array(e->arena, Record, g->nweight + 1));
    for (int i = 0; ok && i < g->nweight; i++) ok = (all->w[i].fqn = path_of(e, g->weight[i], &modules)) != NULL;
    for (int i = 0; ok && i < g->nweight; i++) {
        Stored *s = &all->w[all->n++];
        const Tensor *t = g->weight[i]->data;
        *s = (Stored){.v = g->weight[i], .fqn = state_name(e, s->fqn, &modules, &names), .from = t->data};
        s->constant = s->v->weight == W_CONSTANT || (s->v->weight == W_BUFFER && !s->v->persistent);
        int64_t span = 1;
        for (int k = 0; k < t->rank; k++) {
            s->copied |= t->stride[k] < 0;
            span = t->shape[k] == 0 || span == 0 ? 0 : span + (t->shape[k] - 1) * t->stride[k];
        }
        if (s->copied) span = tensor_numel(t);
        s->to = s->from ? s->from + (size_t)span * dtype_size(t->dtype) : NULL;
        all->fqn[s->v->id] = s->fqn;
        ok = s->fqn != NULL;
    }
    map_free(&names);
    map_free(&modules);
    TRY((ok || oom(e->err)) && share_records(e, all));
    for (int i = 0; i < all->n; i++) { /* numbered as they come */
        Record *r = &all->record[all->w[i].record];
        bool constant = all->w[i].constant;
        if (r->path) continue;
        r->number = i;
        r->path = arena_printf(e->arena, "%s_%d", constant ? "tensor" : "weight", count[constant]++);
        if (!r->path) return oom(e->err);
    }
    return true;
}

static void put_config(const Weights *all, bool constants, Buf *out)
{
    jw_put(out, "{'config': {");
    for (int i = 0; i < all->n; i++) {
        const Stored *s = &all->w[i];
        if (s->constant != constants) continue;
        jw_open(out, s->fqn, '{');
        jw_text(out, "path_name", all->record[s->record].path);
        jw_bool(out, "is_param", s->v->weight == W_PARAMETER);
        jw_put(out, "'use_pickle': false, 'tensor_meta': {'dtype': %d, 'sizes': [", dtype_pt2(held_as(s->v)));
        for (int k = 0; k < s->v->rank; k++) put_int(out, s->v->data->shape[k]);
        jw_close(out, "]");
        put_device(out, s->v);
        jw_open(out, "strides", '[');
        for (int k = 0; k < s->v->rank; k++) put_int(out, stride_of(s, k));
        jw_put(out, "], 'storage_offset': {'as_int': %lld}, 'layout': 7}}", (long long)s->offset);
    }
    jw_close(out, "}}");
}

static bool add_copied(ZipWriter *zip, const char *path, const Tensor *t, Err *err)
{
    void *bytes = mem_alloc(tensor_bytes(t) + 1);
    Tensor copy = tensor_of(t->dtype, t->rank, t->shape, bytes);
    if (!bytes) return oom(err);
    tensor_copy(&copy, t);
    bool ok = zip_add(zip, path, bytes, tensor_bytes(t), err);
    mem_free(bytes);
    return ok;
}

static bool add_weights(Emit *e, ZipWriter *zip, const Weights *all, bool constants)
{
    const char *folder = constants ? "model/data/constants" : "model/data/weights";
    for (int i = 0; i < all->n; i++) { /* each record at the first weight that is in it */
        const Record *r = &all->record[all->w[i].record];
        if (all->w[i].constant != constants || r->number != i) continue;
        char *path = arena_printf(e->arena, "%s/%s", folder, r->path);
        if (!path) return oom(e->err);
        TRY(r->first->copied ? add_copied(zip, path, r->first->v->data, e->err)
                             : zip_add(zip, path, r->from ? r->from : "", (uint64_t)(r->to - r->from), e->err));
    }
    Buf config = {0};
    put_config(all, constants, &config);
    bool ok = !config.failed || oom(e->err);
    ok = ok && zip_add(zip,
                       constants ? "model/data/constants/model_constants_config.json"
                                 : "model/data/weights/model_weights_config.json",
                       config.data, config.len, e->err);
    buf_free(&config);
    return ok;
}

/* ------------------------------------------------------------------ inputs and outputs */

typedef struct Ends {
    Buf inputs, outputs, input_specs, output_specs;
} Ends;

static bool is_target(const Graph *g, const Value *v)
{
    for (int i = 0; i < graph_mutations(g); i++)
        if (graph_mutation(g, i)->target == v) return true;
    return false;
}

/* What a signature says of a tensor: {"buffer": {"arg": {"name": NAME}, "buffer_name": OF; two braces are left open. */
static void open_spec(Buf *out, const char *const what[2], const char *name, const char *of)
{
    jw_open(out, NULL, '{');
    jw_open(out, what[0], '{');
    jw_put(out, "'arg': {'name': %s}", name);
    jw_text(out, what[1], of);
}

static bool put_weight_inputs(Emit *e, const Weights *all, Ends *ends)
{
    static const char *const kind[][2] = {
        {"parameter", "parameter_name"}, {"buffer", "buffer_name"}, {"tensor_constant", "tensor_constant_name"}};
    for (int i = 0; i < all->n; i++) {
        const Value *v = all->w[i].v;
        bool buffer = v->weight == W_BUFFER ||
                      (v->weight == W_CONSTANT && is_target(e->g, v)); /* PyTorch writes no constants */
        const char *name = e->name[v->id], *const *what = kind[buffer ? W_BUFFER : v->weight];
        put_tensor(&ends->inputs, name);
        open_spec(&ends->input_specs, what, name, all->w[i].fqn);
        if (buffer) jw_bool(&ends->input_specs, "persistent", v->weight == W_BUFFER && v->persistent);
        jw_close(&ends->input_specs, "}}");
        e->written[v->id] = true;
        TRY(put_meta(e, v));
    }
    return true;
}

static bool put_constant(Emit *e, const Arg *a, Buf *out)
{
    if (a->kind == ARG_EXPR) return put_number(e, a->e, PT_SCALAR, out);
    if (a->kind == ARG_STR) jw_put(out, "{'as_string': %s}", a->s);
    else jw_put(out, "{'as_none': true}");
    return true;
}

static bool put_scalar_input(Emit *e, const ScalarInput *s, Ends *ends)
{
    Buf *spec = &ends->input_specs;
    if (s->value.kind == ARG_EXPR && !ex_is_const(s->value.e)) {
        put_symbol(&ends->inputs, s->value.e, s->name);
        jw_put(spec, "{'user_input': {'arg': {'as_sym_int': {'as_name': %s}}}}", s->name);
        jw_key(&e->ints, s->name);
        put_size(e, s->value.e, &e->ints);
        return true;
    }
    jw_put(spec, "{'constant_input': {'name': %s, 'value': ", s->name);
    TRY(put_constant(e, &s->value, &ends->inputs) && put_constant(e, &s->value, spec));
    jw_close(spec, "}}");
    return true;
}

/* Tensors and other inputs in the order in which they are passed. */
static bool put_user_inputs(Emit *e, Ends *ends)
{
    const Graph *g = e->g;
    for (int tensor = 0, scalar = 0; tensor < g->ninput || scalar < g->nscalar_input;) {
        if (scalar < g->nscalar_input && (tensor == g->ninput || g->scalar_input[scalar].at <= tensor + scalar)) {
            TRY(put_scalar_input(e, &g->scalar_input[scalar++], ends));
            continue;
        }
        const Value *v = g->input[tensor++];
        const char *name = e->name[v->id];
        put_tensor(&ends->inputs, name);
        jw_put(&ends->input_specs, "{'user_input': {'arg': {'as_tensor': {'name': %s}}}}", name);
        e->written[v->id] = true;
        TRY(put_meta(e, v));
    }
    for (int i = 0; i < g->ninput; i++) TRY(note_value(e, g->input[i]));
    return true;
}

/* PyTorch writes mutated tensors when the graph ends, into the memory that views of them still look at. */
static bool shares_target(const Graph *g, const Value *v) { return is_target(g, through_views(v)); }

static bool cloned(Emit *e, Value *v, const char **name)
{
    Value *copy = new_value(e, v->name, v->dtype, v->rank, v->dim);
    TRY(copy && write_node(e, op_find("aten.clone.default"), (Arg[2]){arg_value(v)}, 1, &copy));
    *name = e->name[copy->id];
    return true;
}

static bool put_mutations(Emit *e, Ends *ends, const Weights *all)
{
    static const char *const kind[][2] = {{"parameter_mutation", "parameter_name"},
                                          {"buffer_mutation", "buffer_name"},
                                          {"buffer_mutation", "buffer_name"},
                                          {"user_input_mutation", "user_input_name"}};
    const Graph *g = e->g;
    for (int i = 0; i < graph_mutations(g); i++) {
        const Mutation *m = graph_mutation(g, i);
        const char *name = e->name[m->value->id];
        bool again = m->value->kind != V_NODE || shares_target(g, m->value);
        for (int k = 0; k < g->noutput; k++) again |= g->output[k].value == m->value;
        for (int k = 0; k < i; k++) again |= graph_mutation(g, k)->value == m->value;
        if (again) TRY(cloned(e, m->value, &name));
        put_tensor(&ends->outputs, name);
        const char *const *what = kind[m->target->kind == V_INPUT ? 3 : m->target->weight],
                          *target = e->name[m->target->id];
        for (int k = 0; k < all->n; k++)
            if (all->w[k].v == m->target) target = all->w[k].fqn;
        open_spec(&ends->output_specs, what, name, target);
        jw_close(&ends->output_specs, "}}");
    }
    return true;
}

/* Of a joint graph: which parameter or input a gradient belongs to. */
static void put_gradient(const Emit *e, const Weights *all, const Value *of, const char *name, Buf *out)
{
    static const char *const kind[][2] = {{"gradient_to_parameter", "parameter_name"},
                                          {"gradient_to_user_input", "user_input_name"}};
    open_spec(out, kind[of->kind == V_INPUT], name, of->kind == V_INPUT ? e->name[of->id] : all->fqn[of->id]);
    jw_close(out, "}}");
}

/* The number that a tensor of rank 0 was made of; NULL: it was made of other tensors. */
static Expr *number_in_output(const Graph *g, Value *v)
{
    if (v->def && v->def->op->id == OP_full) return v->def->arg[1].e;
    Expr *x = number_of(g, &(Arg){ARG_VALUE, 1, .v = v});
    return x && v->dtype == DT_BOOL && ex_is_const(x) ? ex_bool(g->ex, ex_number(x) != 0) : x;
}

static bool put_user_outputs(Emit *e, Ends *ends, const Weights *all)
{
    const Graph *g = e->g;
    bool *seen = arena_array(e->arena, bool, g->next_id + 1); /* by value id: an output before this one */
    if (!seen) return oom(e->err);
    for (int tensor = 0, scalar = 0; tensor < g->noutput || scalar < g->nscalar_output;) {
        Buf *specs = &ends->output_specs;
        if (scalar < g->nscalar_output && (tensor == g->noutput || g->scalar_output[scalar].at <= tensor + scalar)) {
            const Arg *a = &g->scalar_output[scalar++].value;
            jw_put(specs, "{'user_output': {'arg': ");
            TRY(put_constant(e, a, &ends->outputs) && put_constant(e, a, specs));
            jw_close(specs, "}}");
            continue;
        }
        const Output *o = &g->output[tensor++];
        /* the signature finds a gradient by its name, so that it needs one of its own */
        bool shared = o->gradient_of && (seen[o->value->id] || o->value->kind != V_NODE);
        seen[o->value->id] = true;
        if (o->number) {
            Expr *x = number_in_output(g, o->value);
            if (!x)
                return fail(e->err, E_UNSUPPORTED, "%s is a number, but follows from '%s'", o->name, o->value->name);
            jw_put(specs, "{'user_output': {'arg': ");
            TRY(put_number(e, x, PT_SCALAR, &ends->outputs) && put_number(e, x, PT_SCALAR, specs));
            jw_close(specs, "}}");
            continue;
        }
        const char *name = e->name[o->value->id];
        if (shares_target(g, o->value) || shared) TRY(cloned(e, o->value, &name));
        put_tensor(&ends->outputs, name);
        if (o->loss) jw_put(specs, "{'loss_output': {'arg': {'name': %s}}}", name);
        else if (o->gradient_of) put_gradient(e, all, o->gradient_of, name, specs);
        else jw_put(specs, "{'user_output': {'arg': {'as_tensor': {'name': %s}}}}", name);
    }
    return true;
}

/* ------------------------------------------------------------------ the program */

static void put_bounds(const char *key, int64_t lo, int64_t hi, Buf *out)
{
    jw_open(out, key, '{');
    if (lo == INT64_MIN) jw_text(out, "min_val", NULL);
    else jw_int(out, "min_val", lo);
    if (hi == INT64_MAX) jw_text(out, "max_val", NULL);
    else jw_int(out, "max_val", hi);
    jw_close(out, "}");
}

/* 28 <= 14*s0 and 14*s0 <= 84 */
static void bounds_of(const Expr *cond, int64_t *lo, int64_t *hi)
{
    for (int i = 0; cond->kind == EX_AND && i < cond->nargs; i++) bounds_of(cond->args[i], lo, hi);
    if (cond->kind != EX_LE) return;
    if (ex_is_int(cond->args[0])) *lo = cond->args[0]->i;
    else if (ex_is_int(cond->args[1])) *hi = cond->args[1]->i;
}

/* What has no value, or another size's, is not in the file. */
static bool is_written(const Emit *e, int symbol)
{
    SymbolSource from = expr_symbol(e->g->ex, symbol)->source;
    return from != SYM_GONE && from != SYM_FREE && !(e->asserted && e->asserted[symbol]);
}

static void put_ranges(const Emit *e, Buf *out)
{
    static const char prefix[] = RANGE_OF;
    Map named = {0}; /* names of symbols that came before */
    for (int i = 0; i < expr_symbol_count(e->g->ex); i++) {
        const Symbol *s = expr_symbol(e->g->ex, i);
        if (is_written(e, i) && !map_has(&named, e->symbol[i])) put_bounds(e->symbol[i], s->lo, s->hi, out);
        if (s->source != SYM_GONE && !map_put(&named, e->symbol[i], &named)) out->failed = true;
    }
    map_free(&named);
    for (int i = 0; i < e->nbody_symbols; i++)
        put_bounds(e->body_symbol[i].name, e->body_symbol[i].lo, e->body_symbol[i].hi, out);
    for (int i = 0; i < e->g->nrequire; i++) {
        const Require *r = &e->g->require[i];
        int64_t lo = INT64_MIN, hi = INT64_MAX;
        if (strncmp(r->where, prefix, strlen(prefix))) continue;
        bounds_of(r->cond, &lo, &hi);
        put_bounds(r->where + strlen(prefix), lo, hi, out);
    }
}

/* Joint graphs that PyTorch writes have a spec of the model's own results alone,
 * with which .module() cannot give the gradients: theirs is a tuple of all. */
static bool is_joint(const Graph *g)
{
    bool any = false;
    for (int i = 0; i < g->noutput; i++) any |= g->output[i].gradient_of != NULL;
    return any;
}

/* Inputs by position, results as a tuple: of a graph that came from no file. */
static void put_plain_spec(const char *key, int n, bool arguments, Buf *out)
{
    Buf b = {0};
    jw_put(&b, "[1, {'type': 'builtins.tuple', 'context': 'null', 'children_spec': [");
    if (arguments) jw_put(&b, "{'type': 'builtins.tuple', 'context': 'null', 'children_spec': [");
    for (int i = 0; i < n; i++) jw_put(&b, "{'type': null, 'context': null, 'children_spec': []}");
    if (arguments) jw_put(&b, "]}, {'type': 'builtins.dict', 'context': '[]', 'children_spec': []}");
    jw_close(&b, "]}]");
    jw_take(out, key, &b);
}

static void put_call(const Emit *e, Buf *out)
{
    const Graph *g = e->g;
    jw_put(out, "'module_call_graph': [{'fqn': '', 'signature': {'inputs': [], 'outputs': []");
    if (g->in_spec) jw_text(out, "in_spec", g->in_spec);
    else put_plain_spec("in_spec", g->ninput + g->nscalar_input, true, out);
    if (g->out_spec && !is_joint(g)) jw_text(out, "out_spec", g->out_spec);
    else put_plain_spec("out_spec", g->noutput + g->nscalar_output, false, out);
    if (g->forward_args || g->in_spec) jw_raw(out, "forward_arg_names", g->forward_args ? g->forward_args : "null");
    else {
        jw_open(out, "forward_arg_names", '[');
        for (int i = 0; i < g->ninput; i++) jw_text(out, NULL, e->name[g->input[i]->id]);
        jw_close(out, "]");
    }
    jw_put(out, "}}], 'metadata': {}");
    jw_raw(out, "treespec_namedtuple_fields", g->namedtuples ? g->namedtuples : "{}");
}

/* The program is written in parts, so that its nodes and tensors are not copied. */
typedef struct Program {
    Buf head, middle, tail; /* before, between and after the lines of both */
} Program;

static void put_program(const Emit *e, const Ends *ends, Program *p)
{
    Buf *out = &p->head;
    jw_put(out, "{'graph_module': {'graph': {");
    jw_list(out, "inputs", '[', &ends->inputs);
    jw_list(out, "outputs", '[', &ends->outputs);
    jw_open(out, "nodes", '[');
    buf_puts(out, "\n");
    buf_puts(&p->middle, "\n");
    jw_put(&p->middle, "], 'tensor_values': {");
    buf_puts(&p->middle, "\n");
    out = &p->tail;
    buf_puts(out, "\n");
    jw_close(out, "}");
    jw_list(out, "sym_int_values", '{', &e->ints);
    jw_list(out, "sym_bool_values", '{', &e->bools);
    jw_put(out, "'is_single_tensor_return': false, 'custom_obj_values': {}");
    jw_list(out, "sym_float_values", '{', &e->floats);
    jw_put(out, "}, 'signature': {");
    jw_list(out, "input_specs", '[', &ends->input_specs);
    jw_list(out, "output_specs", '[', &ends->output_specs);
    jw_close(out, "}");
    put_call(e, out);
    jw_put(out, "}, 'opset_version': {'aten': 10}, 'range_constraints': {");
    put_ranges(e, out);
    jw_put(out,
           "}, 'schema_version': {'major': 8, 'minor': 20}, 'verifiers': ['TRAINING'], 'torch_version': '2.13.0+qkv'");
    jw_list(out, "guards_code", '[', &e->guards);
    jw_close(out, "}");
}

static bool has_code(const Emit *e, const Value *v)
{
    if (dtype_pt2(held_as(v)) >= 0) return true;
    return fail(e->err, E_UNSUPPORTED, "'%s' is %s, a type that PyTorch does not have: a .pt2 cannot hold it", v->name,
                dtype_name(v->dtype));
}

static bool check_dtypes(const Emit *e)
{
    const Graph *g = e->g;
    for (int i = 0; i < g->nweight; i++) TRY(has_code(e, g->weight[i]));
    for (int i = 0; i < g->ninput; i++) TRY(has_code(e, g->input[i]));
    for (const Node *n = g->first; n; n = n->next)
        for (int k = 0; k < n->nout; k++) TRY(has_code(e, n->out[k]));
    return true;
}

bool name_values(Emit *e)
{
    const Graph *g = e->g;
    e->nvalues = g->next_id;
    e->room = g->next_id + 64;
    e->name = arena_array(e->arena, const char *, e->room);
    e->written = arena_array(e->arena, bool, e->room);
    if (!e->name || !e->written) return oom(e->err);
    for (int i = 0; i < g->nweight; i++) TRY(e->name[g->weight[i]->id] = fresh_name(e, g->weight[i]->name));
    for (int i = 0; i < g->ninput; i++) TRY(e->name[g->input[i]->id] = fresh_name(e, g->input[i]->name));
    for (int i = 0; i < g->nscalar_input; i++) TRY(fresh_name(e, g->scalar_input[i].name));
    for (const Node *n = g->first; n; n = n->next)
        for (int k = 0; k < n->nout; k++) TRY(e->name[n->out[k]->id] = fresh_name(e, n->out[k]->name));
    return true;
}

static bool make_program(Emit *e, const Weights *all, Program *p)
{
    Ends ends = {0};
    bool ok = name_values(e) && sizes_open(e) && put_weight_inputs(e, all, &ends) && put_user_inputs(e, &ends) &&
              put_guards(e) && emit_nodes(e);
    ok = ok && put_mutations(e, &ends, all) && put_user_outputs(e, &ends, all);
    if (ok) put_program(e, &ends, p);
    if (ok && (p->head.failed || p->middle.failed || p->tail.failed || e->nodes.failed || e->tensors.failed))
        ok = oom(e->err);
    buf_free(&ends.inputs);
    buf_free(&ends.outputs);
    buf_free(&ends.input_specs);
    buf_free(&ends.output_specs);
    return ok;
}

/* The names of sizes that PyTorch would misread, and that the file therefore calls otherwise. */
static bool add_size_names(Emit *e, ZipWriter *zip)
{
    Buf b = {0};
    for (int i = 0; i < expr_symbol_count(e->g->ex); i++) {
        const Symbol *s = expr_symbol(e->g->ex, i);
        if (s->source == SYM_INPUT && strcmp(s->name, e->symbol[i])) jw_text(&b, e->symbol[i], s->name);
    }
    Buf all = {0};
    if (b.len) jw_list(&all, NULL, '{', &b);
    bool ok = !all.len || zip_add(zip, "model/extra/" SIZE_NAMES, all.data, all.len, e->err);
    if (b.failed || all.failed) ok = oom(e->err);
    buf_free(&b);
    buf_free(&all);
    return ok;
}

static ZipPart part(const Buf *b) { return (ZipPart){b->data, b->len}; }

static bool write_archive(Emit *e, const Weights *all, const Program *p, const NamedBytes *extra, int nextra,
                          const char *path)
{
    static const struct {
        const char *name, *text;
    } fixed[] = {{"model/data/sample_inputs/model.pt", ""},
                 {"model/archive_format", "pt2"},
                 {"model/archive_version", "0"},
                 {"model/.data/version", "6\n"},
                 {"model/byteorder", "little"}};
    const ZipPart program[] = {part(&p->head), part(&e->nodes), part(&p->middle), part(&e->tensors), part(&p->tail)};
    OutFile *out = outfile_open(path, e->err);
    ZipWriter *zip = out ? zip_writer(out, e->err) : NULL;
    bool ok = zip && add_weights(e, zip, all, false) && add_weights(e, zip, all, true) &&
              zip_add_parts(zip, "model/models/model.json", program, sizeof program / sizeof *program, e->err);
    for (size_t i = 0; ok && i < sizeof fixed / sizeof *fixed; i++)
        ok = zip_add(zip, fixed[i].name, fixed[i].text, strlen(fixed[i].text), e->err);
    for (int i = 0; ok && i < nextra; i++) {
        if (!strcmp(extra[i].name, SIZE_NAMES)) continue;
        const char *name = arena_printf(e->arena, "model/extra/%s", extra[i].name);
        ok = name ? zip_add(zip, name, extra[i].bytes, extra[i].size, e->err) : oom(e->err);
    }
    ok = ok && add_size_names(e, zip);
    if (zip) {
        Err ignored = {0};
        ok = zip_finish(zip, ok ? e->err : &ignored) && ok;
    }
    if (!ok) outfile_abort(out);
    return ok && outfile_commit(out, e->err);
}

static bool save_graph(const Graph *g, const NamedBytes *extra, int nextra, const char *path, Err *err)
{
    Emit e = {.g = g, .arena = arena_create(0), .scratch = graph_create(), .err = err};
    Weights all = {0};
    Program program = {0};
    bool ok = (e.arena && e.scratch) || oom(err);
    ok = ok && check_dtypes(&e) && collect_weights(&e, &all) && make_program(&e, &all, &program) &&
         (!mem_ran_out() || oom(err)) && /* what memory lacked for may just be missing from the program */
         write_archive(&e, &all, &program, extra, nextra, path);
    Buf *parts[] = {&program.head, &program.middle, &program.tail, &e.nodes, &e.tensors,
                    &e.ints,       &e.bools,        &e.floats,     &e.guards};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) buf_free(parts[i]);
    binding_free(&e.hint);
    map_free(&e.taken);
    graph_free(e.scratch);
    arena_destroy(e.arena);
    return ok;
}

/* PyTorch's bodies have no weights of their own. */
bool pt2_save(const Graph *g, const NamedBytes *extra, int nextra, const char *path, Err *err)
{
    if (!has_bodies(g)) return save_graph(g, extra, nextra, path, err);
    Graph *lifted = graph_copy(g, err);
    bool ok = lifted && bodies_lift(lifted, false, err) && save_graph(lifted, extra, nextra, path, err);
    if (lifted) graph_free(lifted);
    return ok;
}
