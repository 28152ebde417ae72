/* The model around the nodes: opset imports, inputs and their symbols, initializers, outputs. Contract in onnx.h. */
#include "onnx/read/read.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/number.h"
#include "onnx/read/read_impl.h"

enum { MIN_OPSET = 1, MAX_OPSET = 28, MAX_IMPORTS = 256, OUTPUT_BYTES = 1024 };

static bool check_opsets(OnnxImport *im)
{
    const OnnxModel *m = &im->file->model;
    if (m->nopset > MAX_IMPORTS)
        return fail(im->err, E_LIMIT, "opset_import: %d domains, at most %d are possible", m->nopset, MAX_IMPORTS);
    for (int i = 0; i < m->nopset; i++) {
        for (int k = 0; k < i; k++)
            if (!strcmp(m->opset[i].domain, m->opset[k].domain))
                return fail(im->err, E_FORMAT, "opset_import: domain '%s' is imported twice (versions %lld and %lld)",
                            *m->opset[i].domain ? m->opset[i].domain : "ai.onnx", (long long)m->opset[k].version,
                            (long long)m->opset[i].version);
        if (*m->opset[i].domain) continue;
        im->source->opset = m->opset[i].version;
        if (m->opset[i].version < 1)
            return fail(im->err, E_FORMAT, "opset_import: version %lld", (long long)m->opset[i].version);
        if (m->opset[i].version < MIN_OPSET || m->opset[i].version > MAX_OPSET)
            return fail(im->err, E_UNSUPPORTED, "opset %lld: versions %d to %d are known",
                        (long long)m->opset[i].version, MIN_OPSET, MAX_OPSET);
    }
    return true;
}

/* ------------------------------------------------------------------ inputs */

/* dim_param: a name ("batch_size"), or an expression as torch.onnx writes it ("2*s0"), whose symbols are other
 * parameters. What cannot name a symbol ("a.b", "inf", a page of text) is made into a name. */
static Expr *param_size(OnnxImport *im, const char *param)
{
    enum { LONGEST = EXPR_NAME_MOST - 16 }; /* a number may follow */
    Expr *e = map_get(&im->symbols, param);
    if (e) return e;
    bool plain = true;
    for (const char *c = param; *c; c++) plain = plain && (is_alnum(*c) || *c == '_');
    plain = plain && strlen(param) <= LONGEST;
    Err ignored = {0};
    if (!plain && strpbrk(param, "*+/(")) e = ex_parse(im->g->ex, param, NULL, NULL, &ignored);
    if (e && (e->is_float || e->is_bool)) e = NULL;
    if (!e) {
        char *name = arena_strndup(im->g->arena, param, strnlen(param, LONGEST));
        for (char *c = name; c && *c; c++)
            if (!is_alnum(*c)) *c = '_';
        if (name && (!expr_is_name(name) || expr_names_float(name))) {
            name = arena_printf(im->g->arena, "d_%s", name);
            plain = false;
        }
        const char *alike = name; /* "a.b" beside "a_b" */
        for (int k = 0; name && !plain && expr_find_symbol(im->g->ex, name); k++)
            name = k ? arena_printf(im->g->arena, "%s_%d", alike, expr_symbol_count(im->g->ex) + k)
                     : arena_printf(im->g->arena, "%s_", alike);
        if (!name) return NULL;
        e = ex_symbol(im->g->ex, name);
    }
    return e && map_put(&im->symbols, param, e) ? e : NULL;
}

static bool read_dims(OnnxImport *im, const OnnxValueInfo *info, Expr **dim)
{
    const OnnxTypeProto *t = &info->type;
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i].known) {
            if (t->dim[i].value < 0)
                return fail(im->err, E_FORMAT, "axis %d has size %lld", i, (long long)t->dim[i].value);
            dim[i] = ex_int(im->g->ex, t->dim[i].value);
        } else if (*t->dim[i].param) dim[i] = param_size(im, t->dim[i].param);
        else {
            const char *plain = plain_name(im, info->name),
                       *name = plain ? arena_printf(im->g->arena, "%s_%d", plain, i) : NULL;
            dim[i] = name ? ex_symbol(im->g->ex, name) : NULL;
        }
        if (!dim[i]) return oom(im->err);
    }
    return true;
}

/* "lo..hi", hi left out: no bound */
static bool read_range(const char *text, int64_t *lo, int64_t *hi)
{
    const char *end;
    *lo = parse_int(text, &end);
    if (end == text || strncmp(end, "..", 2) || *lo < 0) return false;
    const char *last = end + 2;
    *hi = *last ? parse_int(last, &end) : INT64_MAX;
    return !(*last && (end == last || *end)) && *hi >= *lo;
}

/* The ranges that our own writer noted. */
static void known_ranges(const OnnxModel *m, Graph *g)
{
    size_t prefix = strlen(ONNX_RANGE_KEY);
    for (int i = 0; i < m->nmetadata; i++) {
        const OnnxPair *p = &m->metadata[i];
        int64_t lo, hi;
        const Symbol *s = strncmp(p->key, ONNX_RANGE_KEY, prefix) ? NULL : expr_find_symbol(g->ex, p->key + prefix);
        if (s && s->source == SYM_INPUT && read_range(p->value, &lo, &hi))
            expr_set_range(g->ex, (int)s->expr->i, lo, hi);
    }
}

static bool bind_symbols(const OnnxModel *model, Graph *g, Err *err)
{
    TRY(graph_bind_sizes(g, err));
    for (int i = 0; i < expr_symbol_count(g->ex); i++)
        if (expr_symbol(g->ex, i)->source == SYM_INPUT) expr_set_range(g->ex, i, 0, INT64_MAX);
    known_ranges(model, g);
    return true;
}

static const Tensor *fixed_value(const OnnxImport *im, const char *name)
{
    for (int i = 0; im->fixed && i < im->fixed->n; i++)
        if (!strcmp(im->fixed->name[i], name)) return &im->fixed->value[i];
    return NULL;
}

/* The caller's tensor, copied: it is a constant of the model from now on. */
static bool fix_input(OnnxImport *im, OnnxScope *s, const OnnxValueInfo *info, const Tensor *given)
{
    OnnxTensor *t = arena_new(im->g->arena, OnnxTensor);
    DType want = dtype_from_onnx(info->type.elem);
    void *bytes = arena_alloc(im->g->arena, (size_t)tensor_numel(given) + 1, want == DT_NONE ? 1 : dtype_size(want));
    if (!t || !bytes) return oom(im->err);
    if (want == DT_NONE) return fail(im->err, E_UNSUPPORTED, "input '%.100s' is not a numeric tensor", info->name);
    t->name = info->name;
    t->t = tensor_of(want, given->rank, given->shape, bytes);
    tensor_copy(&t->t, given);
    for (int64_t i = 0, n = given->dtype == want ? 0 : tensor_numel(given); i < n; i++)
        if (tensor_get(&t->t, i) != tensor_get(given, i))
            return fail(im->err, E_USAGE, "input '%.100s' is fixed to %g, which is not a %s", info->name,
                        tensor_get(given, i), dtype_name(want));
    Cell *c = cell_of_tensor(im, info->name, t, false);
    return c && scope_set(im, s, info->name, c);
}

static bool add_input(OnnxImport *im, OnnxScope *s, const OnnxValueInfo *info)
{
    const OnnxTypeProto *t = &info->type;
    const Tensor *given = fixed_value(im, info->name);
    Expr *dim[MAX_RANK];
    if (given) return fix_input(im, s, info, given);
    if (t->kind != ONNX_TENSOR)
        return fail(im->err, E_UNSUPPORTED, "a sequence, map or optional; what it holds must be known when loading");
    DType dtype = dtype_from_onnx(t->elem);
    if (t->elem == ONNX_STRING)
        return fail(im->err, E_UNSUPPORTED, "a tensor of strings, which must be known when loading (an initializer)");
    if (dtype == DT_NONE) return fail(im->err, E_UNSUPPORTED, "dtype %s", onnx_type_name(t->elem));
    if (!t->has_shape)
        return fail(im->err, E_UNSUPPORTED,
                    "its rank is not declared; write the shape into the model (axes may stay symbols)");
    TRY(read_dims(im, info, dim));
    Value *v = graph_add_input(im->g, plain_name(im, info->name), dtype, t->rank, dim);
    if (!v) return oom(im->err);
    if (strcmp(v->name, info->name)) v->label = arena_strdup(im->g->arena, info->name);
    Cell *c = cell_of_value(im, info->name, v);
    return c && scope_set(im, s, info->name, c);
}

static bool is_transposed(const OnnxTensor *t)
{
    for (int i = 0; t->t.rank == 2 && i < t->nmetadata; i++)
        if (!strcmp(t->metadata[i].key, ONNX_TRANSPOSED_KEY)) return true;
    return false;
}

static bool declared_as(const OnnxValueInfo *info, const Tensor *t)
{
    bool same = info->type.kind == ONNX_TENSOR && dtype_from_onnx(info->type.elem) == t->dtype &&
                info->type.has_shape && info->type.rank == t->rank;
    for (int i = 0; same && i < t->rank; i++)
        same = info->type.dim[i].known && info->type.dim[i].value == t->shape[i];
    return same;
}

static bool by_name(Map *all, const OnnxValueInfo *info, int n)
{
    for (int i = 0; i < n; i++) TRY(map_put(all, info[i].name, (void *)(uintptr_t)&info[i]));
    return true;
}

/* A buffer that a run changes: a weight instead of a constant, so that its elements are not known. What another program
 * has changed since, so that a name or a type differs, stays an output. */
static bool note_state(OnnxImport *im, Cell *c, const OnnxValueInfo *out)
{
    if (!out || !c || !c->data || c->transposed || !declared_as(out, c->data)) return true;
    Value *v = cell_value(im, c);
    TRY(v && graph_add_mutation(im->g, v, v, im->err)); /* add_outputs has the new value */
    v->weight = W_BUFFER;
    c->data = NULL;
    return map_put(&im->state, out->name, (void *)(intptr_t)im->g->nmutation) || oom(im->err);
}

/* As our own writer noted them. */
static bool add_state(OnnxImport *im, OnnxScope *s, const OnnxGraph *g)
{
    const OnnxModel *m = &im->file->model;
    const size_t prefix = strlen(ONNX_STATE_KEY);
    Map inputs = {0}, outputs = {0};
    bool ok = (by_name(&inputs, g->input, g->ninput) && by_name(&outputs, g->output, g->noutput)) || oom(im->err);
    for (int i = 0; ok && i < m->nmetadata; i++) {
        const OnnxPair *p = &m->metadata[i];
        if (!strncmp(p->key, ONNX_STATE_KEY, prefix) && map_has(&inputs, p->value))
            ok = note_state(im, scope_get(im, s, p->value), map_get(&outputs, p->key + prefix)) ||
                 within(im->err, "metadata '%.100s'", p->key);
    }
    map_free(&inputs);
    map_free(&outputs);
    return ok;
}

static bool add_inputs(OnnxImport *im, OnnxScope *s, const OnnxGraph *g)
{
    for (int i = 0; i < g->ninit; i++) {
        if (fixed_value(im, g->init[i].name)) continue;
        Cell *c = cell_of_tensor(im, g->init[i].name, &g->init[i],
                                 dtype_is_float(g->init[i].t.dtype) && tensor_numel(&g->init[i].t) > 1);
        TRY(c && scope_set(im, s, g->init[i].name, c));
        c->transposed = is_transposed(&g->init[i]);
    }
    TRY(add_state(im, s, g));
    if (g->nsparse)
        return fail(im->err, E_UNSUPPORTED, "sparse initializer '%.100s'; write it dense", g->sparse[0].values.name);
    for (int i = 0; i < g->ninput; i++) {
        const Cell *same = scope_get(im, s, g->input[i].name);
        if (!*g->input[i].name) return fail(im->err, E_FORMAT, "input %d has no name", i);
        if (same && same->v && same->v->kind == V_WEIGHT) continue; /* a buffer */
        if (same && !same->data) return fail(im->err, E_FORMAT, "two inputs '%.100s'", g->input[i].name);
        if (same) { /* with a default */
            im->source->ignored[im->source->nignored++] = arena_printf(
                im->g->arena,
                "input '%s' (has a default value in the file, which is used unless another is given when loading)",
                g->input[i].name);
            continue;
        }
        TRY((add_input(im, s, &g->input[i]) && onnx_fits(im)) || within(im->err, "input '%.100s'", g->input[i].name));
    }
    for (int i = 0; im->fixed && i < im->fixed->n; i++)
        if (!scope_get(im, s, im->fixed->name[i]))
            return fail(im->err, E_USAGE, "there is no input '%.100s' to fix", im->fixed->name[i]);
    return bind_symbols(&im->file->model, im->g, im->err);
}

/* ------------------------------------------------------------------ outputs */

/* A sequence NAME of n tensors is the outputs NAME_0 ... */
static bool add_sequence(OnnxImport *im, const char *name, const Cell *c)
{
    for (int i = 0; i < c->nlist; i++) {
        char *part = arena_printf(im->g->arena, "%s_%d", name, i);
        Value *v = cell_value(im, c->list[i]);
        if (!v) return within(im->err, "output '%.100s'", name);
        if (!part) return oom(im->err);
        im->bodies += OUTPUT_BYTES;
        TRY(graph_add_output(im->g, part, v, im->err) && onnx_fits(im));
    }
    return true;
}

static bool add_outputs(OnnxImport *im, OnnxScope *s, const OnnxGraph *g)
{
    for (int i = 0; i < g->noutput; i++) {
        Cell *c = scope_get(im, s, g->output[i].name);
        if (!c) return fail(im->err, E_FORMAT, "output '%.100s' is never computed", g->output[i].name);
        if (c->is_list) {
            TRY(add_sequence(im, g->output[i].name, c));
            continue;
        }
        Value *v = cell_value(im, c);
        const char *name = arena_strdup(im->g->arena, g->output[i].name);
        if (!v) return within(im->err, "output '%.100s'", g->output[i].name);
        if (!name) return oom(im->err);
        DType declared = g->output[i].type.kind == ONNX_TENSOR ? dtype_from_onnx(g->output[i].type.elem) : DT_NONE;
        if (declared != DT_NONE && declared != v->dtype)
            return fail(im->err, E_FORMAT, "output '%.100s' is declared %s, but the nodes compute %s", name,
                        dtype_name(declared), dtype_name(v->dtype));
        const intptr_t state = (intptr_t)map_get(&im->state, name);
        if (!state) {
            TRY(graph_add_output(im->g, name, v, im->err));
            continue;
        }
        Mutation *m = &im->g->mutation[state - 1];
        Lower L = lower_for(im, name);
        TRY((m->value = AS(&L, copy, arg_value(m->target), arg_value(v))) || within(im->err, "output '%.100s'", name));
    }
    return true;
}

static bool read_model(OnnxImport *im)
{
    const OnnxModel *m = &im->file->model;
    OnnxScope s = {.opset = m->opset, .nopset = m->nopset};
    if (!m->graph) return fail(im->err, E_FORMAT, "the model has no graph");
    im->source->ignored = arena_array(im->g->arena, const char *, m->graph->ninput + 3);
    im->source->producer = arena_printf(im->g->arena, "%s%s%s", m->producer, *m->producer_version ? " " : "",
                                        m->producer_version);
    for (int i = 0; i < m->nmetadata; i++)
        if (!strcmp(m->producer, "qkv") && !strcmp(m->metadata[i].key, "torch"))
            im->source->torch_version = m->metadata[i].value;
    if (!im->source->ignored || !im->source->producer) return oom(im->err);
    if (m->has_training) im->source->ignored[im->source->nignored++] = "training_info (training graphs are not read)";
    if (m->graph->has_quantization)
        im->source->ignored[im->source->nignored++] =
            "quantization_annotation (what it says is in QuantizeLinear nodes, if at all)";
    bool ok = check_opsets(im) && (!SCHEMAS || onnx_schemas(&im->schemas) || oom(im->err)) && onnx_functions(im) &&
              onnx_missing(im) && add_inputs(im, &s, m->graph) && onnx_nodes(im, &s, m->graph->node, m->graph->nnode) &&
              add_outputs(im, &s, m->graph) && onnx_products(im) &&
              graph_unify_sizes(im->g, NULL, &(int){0}, im->err);
    map_free(&s.names);
    map_free(&im->symbols);
    map_free(&im->items);
    map_free(&im->state);
    map_free(&im->functions);
    onnx_schemas_free(&im->schemas);
    if (!ok) return false;
    graph_dce(im->g);
    return graph_check(im->g, im->err);
}

Source *onnx_import(const char *path, const Fixed *fixed, Err *err)
{
    Source *p = source_new(err);
    if (!p) return NULL;
    p->onnx = onnx_open(path, err);
    if (p->onnx) {
        OnnxImport im = {
            .source = p, .file = p->onnx, .g = graph_create(), .scratch = arena_create(0), .fixed = fixed, .err = err};
        p->graph = im.g;
        bool ok = im.g && im.scratch ? read_model(&im) : oom(err);
        arena_destroy(im.scratch);
        if (ok) onnx_forget_nodes(p->onnx);
        if (ok) return p;
    }
    within(err, "%s", path);
    source_close(p);
    return NULL;
}
