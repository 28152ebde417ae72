/* Packed models. Contract in packed.h; written by src/program/pack.c. Nothing in the file is trusted: the graph's
 * text goes through the parser and shape inference, every weight's bytes are inside the file and are as many as its
 * shape wants. */
#include "packed/read.h"
#include <string.h>
#include "format/json.h"
#include "format/packfile.h"
#include "lower/lower.h"

typedef struct Reader {
    Source *s;
    PackFile file;
    json_t *root;
    Tensor *weight; /* in the order in which the text names them */
    int nweight, next;
    Err *err;
} Reader;

bool packed_looks_like(const unsigned char *bytes, uint64_t size) { return packfile_is(bytes, size); }

static char *kept(Reader *r, const char *s) { return arena_strdup(r->s->arena, s); }

static bool array_of(Reader *r, const char *key, json_t **out, int *n)
{
    TRY(json_want_array(r->root, key, out, r->err));
    if (json_array_size(*out) > 1 << 24)
        return fail(r->err, E_FORMAT, "'%s' has %zu elements", key, json_array_size(*out));
    *n = (int)json_array_size(*out);
    return true;
}

/* ------------------------------------------------------------------ weights */

static bool weight(Reader *r, const json_t *from, Tensor *t)
{
    json_t *shape;
    const char *dtype;
    const unsigned char *data;
    int64_t offset, size[MAX_RANK];
    size_t bytes;
    TRY(json_want_string(from, "dtype", &dtype, r->err) && json_want_array(from, "shape", &shape, r->err) &&
        json_want_int(from, "offset", &offset, r->err));
    DType type = dtype_from_name(dtype);
    size_t rank = json_array_size(shape);
    if (type == DT_NONE) return fail(r->err, E_FORMAT, "dtype '%s' is unknown", dtype);
    if (rank > MAX_RANK) return fail(r->err, E_FORMAT, "rank %zu: allowed is 0 to %d", rank, MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        const json_t *n = json_array_get(shape, i);
        if (!json_is_integer(n)) return fail(r->err, E_FORMAT, "shape: found %s, expected integers", json_kind(n));
        size[i] = json_integer_value(n);
    }
    TRY(shape_bytes(type, (int)rank, size, &bytes, r->err) &&
        packfile_blob(&r->file, offset, (int64_t)bytes, &data, r->err));
    *t = tensor_of(type, (int)rank, size, (void *)(uintptr_t)data);
    return true;
}

static bool read_weights(Reader *r)
{
    json_t *list, *from;
    TRY(array_of(r, "weights", &list, &r->nweight));
    r->weight = arena_array(r->s->arena, Tensor, r->nweight + 1);
    if (!r->weight) return oom(r->err);
    size_t i;
    json_array_foreach(list, i, from) TRY(weight(r, from, &r->weight[i]) || within(r->err, "weight %zu", i));
    return true;
}

static const Tensor *next_weight(void *user, const char *fqn)
{
    Reader *r = user;
    (void)fqn;
    return r->next < r->nweight ? &r->weight[r->next++] : NULL;
}

/* The bytes that the product reads as (K, N) must be the weight's own. */
static bool names_weight(const Tensor *w, const Tensor *b, int64_t at)
{
    Tensor whole = tensor_of(w->dtype, 1, (int64_t[]){tensor_numel(w)}, w->data);
    int64_t last, row, col, end;
    if (at < 0 || at % (int64_t)dtype_size(w->dtype) || tensor_numel(w) == 0) return false;
    if (b->stride[0] < 0 || b->stride[1] < 0 || !mul_i64(b->shape[0] - 1, b->stride[0], &row) ||
        !mul_i64(b->shape[1] - 1, b->stride[1], &col))
        return false;
    return add_i64(row, col, &last) && add_i64(last, at / (int64_t)dtype_size(w->dtype), &end) &&
           end < tensor_numel(&whole);
}

static bool packed(Reader *r, const json_t *from, PackedWeight *p)
{
    int64_t which, at, k, n, rs, cs, offset, size;
    const char *layout;
    const unsigned char *data;
    Err *e = r->err;
    TRY(json_want_int(from, "weight", &which, e) && json_want_int(from, "at", &at, e) &&
        json_want_int(from, "k", &k, e) && json_want_int(from, "n", &n, e));
    TRY(json_want_int(from, "row", &rs, e) && json_want_int(from, "column", &cs, e) &&
        json_want_bool(from, "rounded", &p->rounded, e));
    TRY(json_want_string(from, "layout", &layout, e) && json_want_int(from, "offset", &offset, e) &&
        json_want_int(from, "size", &size, e));
    TRY(packfile_blob(&r->file, offset, size, &data, e));
    if (which < 0 || which >= r->nweight)
        return fail(e, E_FORMAT, "weight %lld: there are %d", (long long)which, r->nweight);
    const Tensor *w = &r->weight[which];
    size_t bytes;
    TRY(shape_bytes(w->dtype, 2, (int64_t[]){k, n}, &bytes, e));
    p->b = tensor_of(w->dtype, 2, (int64_t[]){k, n}, NULL);
    p->b.stride[0] = rs;
    p->b.stride[1] = cs;
    if (k < 1 || n < 1 || !names_weight(w, &p->b, at))
        return fail(e, E_FORMAT, "(%lld, %lld) at %lld is not a part of weight %lld", (long long)k, (long long)n,
                    (long long)at, (long long)which);
    p->b.data = (char *)w->data + at;
    p->layout = kept(r, layout);
    p->data = data;
    p->size = (size_t)size;
    return p->layout || oom(r->err);
}

static bool read_packed(Reader *r)
{
    json_t *list, *from;
    Source *s = r->s;
    TRY(array_of(r, "packed", &list, &s->npacked));
    s->packed = arena_array(s->arena, PackedWeight, s->npacked + 1);
    if (!s->packed) return oom(r->err);
    size_t i;
    json_array_foreach(list, i, from) TRY(packed(r, from, &s->packed[i]) || within(r->err, "packed weight %zu", i));
    return true;
}

/* Files of the source that are only carried; older files have no such list. */
static bool read_extras(Reader *r)
{
    json_t *list, *from;
    int n = 0;
    Source *s = r->s;
    if (!json_object_get(r->root, "extra")) return true;
    TRY(array_of(r, "extra", &list, &n));
    s->extra = arena_array(s->arena, NamedBytes, n + 1);
    s->ignored = arena_array(s->arena, const char *, n + 1);
    if (!s->extra || !s->ignored) return oom(r->err);
    size_t i;
    json_array_foreach(list, i, from)
    {
        NamedBytes *f = &s->extra[i];
        const unsigned char *data;
        int64_t offset, size;
        TRY(json_want_string(from, "name", &f->name, r->err) && json_want_int(from, "offset", &offset, r->err) &&
            json_want_int(from, "size", &size, r->err));
        TRY(packfile_blob(&r->file, offset, size, &data, r->err) || within(r->err, "extra file %zu", i));
        f->bytes = data;
        f->size = (uint64_t)size;
        f->name = kept(r, f->name);
        s->ignored[s->nignored] = f->name ? arena_printf(s->arena, "extra/%s (extra file)", f->name) : NULL;
        if (!s->ignored[s->nignored++]) return oom(r->err);
        s->nextra++;
    }
    return true;
}

/* ------------------------------------------------------------------ nodes */

/* As from any other file: lowering checks the arguments. What was written is plain already, so it stays as it is. */
static bool lowered(Graph *g, const Op *op, const Arg *arg, const char *name, Value **out, int *nout, Err *err)
{
    Lower l = {.g = g, .ex = g->ex, .op = op, .arg = arg, .name = name, .err = err};
    TRY(lower_op(&l) || within(err, "%s", op->name));
    *nout = 0;
    if (l.result.kind == ARG_VALUE) out[(*nout)++] = l.result.v;
    else if (l.result.kind == ARG_VALUES && l.result.n <= 64)
        for (int i = 0; i < l.result.n; i++) out[(*nout)++] = l.result.vs[i];
    else if (l.result.kind != ARG_NONE) return fail(err, E_FORMAT, "%s is not an op of a packed model", op->name);
    for (int i = 0; i < *nout; i++)
        if (!out[i]) return fail(err, E_FORMAT, "%s is not an op of a packed model", op->name);
    return true;
}

/* ------------------------------------------------------------------ what the text does not say */

/* Which input's axis determines a size. */
static bool read_symbols(Reader *r)
{
    json_t *list, *from;
    int n = 0;
    Graph *g = r->s->graph;
    TRY(array_of(r, "sizes", &list, &n));
    size_t i;
    json_array_foreach(list, i, from)
    {
        const char *name;
        int64_t input, axis;
        TRY(json_want_string(from, "name", &name, r->err) && json_want_int(from, "input", &input, r->err) &&
            json_want_int(from, "axis", &axis, r->err));
        Symbol *s = expr_find_symbol(g->ex, name);
        if (!s || (s->source != SYM_FREE && s->source != SYM_INPUT)) /* bound where the text has guards */
            return fail(r->err, E_FORMAT, "size '%s': the graph has none of this name that comes from an input", name);
        s->source = SYM_INPUT;
        if (input < 0) continue; /* a dynamic number among the inputs */
        if (input >= g->ninput || axis < 0 || axis >= g->input[input]->rank ||
            !ex_mentions(g->input[input]->dim[axis], s->expr))
            return fail(r->err, E_FORMAT, "size '%s': axis %lld of input %lld does not determine it", name,
                        (long long)axis, (long long)input);
        s->value = g->input[input];
        s->dim = (int)axis;
    }
    return true;
}

/* {"name", "at", "value": null, text, or a number's expression in "number"} */
static bool read_scalars(Reader *r)
{
    json_t *list, *from;
    int n = 0;
    Graph *g = r->s->graph;
    TRY(array_of(r, "scalars", &list, &n));
    g->scalar_input = arena_array(g->arena, ScalarInput, n + 1);
    if (!g->scalar_input) return oom(r->err);
    size_t i;
    json_array_foreach(list, i, from)
    {
        const json_t *text = json_object_get(from, "text"), *number = json_object_get(from, "number");
        const char *name;
        int64_t at;
        TRY(json_want_string(from, "name", &name, r->err) && json_want_int(from, "at", &at, r->err));
        if (at < 0 || at > INT32_MAX) return fail(r->err, E_FORMAT, "input '%s': place %lld", name, (long long)at);
        ScalarInput *s = &g->scalar_input[i];
        *s = (ScalarInput){.name = arena_strdup(g->arena, name), .value = arg_none(), .at = (int)at};
        if (json_is_string(text)) s->value = arg_str(g, json_string_value(text));
        else if (json_is_string(number)) {
            Expr *e = ex_parse(g->ex, json_string_value(number), NULL, NULL, r->err);
            if (!e) return within(r->err, "input '%s'", name);
            if (e->kind != EX_SYM && !ex_is_const(e))
                return fail(r->err, E_FORMAT, "input '%s': found '%s', expected a number or a size", name,
                            json_string_value(number));
            s->value = arg_expr(e);
        }
        if (!s->name) return oom(r->err);
        g->nscalar_input++;
    }
    return true;
}

static bool read_labels(Reader *r)
{
    json_t *list, *label;
    int n = 0;
    Graph *g = r->s->graph;
    if (!json_object_get(r->root, "labels")) return true;
    TRY(array_of(r, "labels", &list, &n));
    if (n != g->noutput) return fail(r->err, E_FORMAT, "%d labels, but the graph has %d outputs", n, g->noutput);
    size_t i;
    json_array_foreach(list, i, label)
    {
        if (!json_is_string(label)) continue;
        g->output[i].label = arena_strdup(g->arena, json_string_value(label));
        if (!g->output[i].label) return oom(r->err);
    }
    return true;
}

/* {"qkv": version, "key": text}, where a cache keeps the file (program/cache.c). */
static bool read_kept(Reader *r)
{
    json_t *from;
    const char *by, *key;
    if (!json_object_get(r->root, "kept")) return true;
    TRY(json_want_object(r->root, "kept", &from, r->err) && json_want_string(from, "qkv", &by, r->err) &&
        json_want_string(from, "key", &key, r->err));
    r->s->kept_by = kept(r, by);
    r->s->kept_key = kept(r, key);
    return (r->s->kept_by && r->s->kept_key) || oom(r->err);
}

static bool read_source(Reader *r)
{
    json_t *from;
    const char *torch, *producer, *cpu;
    int64_t major, minor;
    Source *s = r->s;
    TRY(json_want_object(r->root, "source", &from, r->err) && json_want_string(from, "torch", &torch, r->err) &&
        json_want_string(from, "producer", &producer, r->err));
    TRY(json_want_int(from, "schema_major", &major, r->err) && json_want_int(from, "schema_minor", &minor, r->err) &&
        json_want_int(from, "opset", &s->opset, r->err));
    TRY(json_want_string(r->root, "cpu", &cpu, r->err));
    s->schema_major = (int)major;
    s->schema_minor = (int)minor;
    s->torch_version = kept(r, torch);
    s->producer = kept(r, producer);
    s->cpu = kept(r, cpu);
    return (s->torch_version && s->producer && s->cpu) || oom(r->err);
}

static bool read_all(Reader *r)
{
    TRY(packfile_read(&r->file, r->s->file.data, r->s->file.size, r->err));
    r->root = json_read(r->file.json, r->file.json_size, "description", r->err);
    TRY(r->root && read_source(r) && read_kept(r) && read_weights(r) && read_packed(r) && read_extras(r) &&
        packfile_all_named(&r->file, r->err));
    r->s->graph = graph_parse_checked(r->file.text, next_weight, r, lowered, r->err);
    if (!r->s->graph) return within(r->err, "graph");
    if (r->next != r->nweight) return fail(r->err, E_FORMAT, "%d weights, but the graph names %d", r->nweight, r->next);
    r->s->ninputs = r->s->graph->ninput;
    return read_symbols(r) && read_scalars(r) && read_labels(r);
}

Source *packed_open(const char *path, Err *err)
{
    Source *s = source_new(err);
    if (!s) return NULL;
    Reader r = {.s = s, .err = err};
    s->prepared = true;
    s->arena = arena_create(0);
    bool ok = s->arena ? file_map(&s->file, path, err) : oom(r.err);
    if (ok && !read_all(&r)) ok = within(err, "%s", path);
    json_free(r.root);
    if (ok) return s;
    source_close(s);
    return NULL;
}
