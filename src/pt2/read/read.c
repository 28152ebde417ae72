/* The .pt2 archive: entries, weights, symbols. Signature and nodes are in signature.c and nodes.c.
 * Contract in read.h. */
#include "pt2/read/read.h"
#include <stdio.h>
#include <string.h>
#include "base/jsonw.h"
#include "base/pages.h"
#include "format/zip_json.h"
#include "pt2/read/read_impl.h"
#include "shape/shape.h"

/* ------------------------------------------------------------------ archive */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* The archive's root folder: what stands before "archive_format". */
static bool find_root(Source *p, char *root, size_t cap, Err *err)
{
    for (size_t i = 0; i < zip_count(p->zip); i++) {
        const char *name = zip_entry(p->zip, i)->name;
        if (!ends_with(name, "archive_format")) continue;
        size_t n = strlen(name) - strlen("archive_format");
        if (n + 1 > cap || (n && name[n - 1] != '/')) continue;
        memcpy(root, name, n);
        root[n] = 0;
        return true;
    }
    if (zip_find(p->zip, "serialized_exported_program.json"))
        return fail(err, E_UNSUPPORTED,
                    "written by torch 2.7 or older, whose weights are pickles; save it again with torch 2.9 or newer");
    return fail(err, E_FORMAT, "no entry 'archive_format': this ZIP is not a torch.export archive");
}

static bool read_entry(Source *p, const char *root, const char *name, bool crc, const void **bytes, uint64_t *size,
                       Err *err)
{
    char path[1024];
    if (snprintf(path, sizeof path, "%s%s", root, name) >= (int)sizeof path)
        return fail(err, E_FORMAT, "entry name '%.60s...' is too long", name);
    const ZipEntry *e = zip_find(p->zip, path);
    if (!e) return fail(err, E_FORMAT, "entry '%s' is missing", path);
    return zip_data(p->zip, e, crc, bytes, size, err);
}

static bool check_version(Source *p, const char *root, Err *err)
{
    const void *bytes;
    uint64_t n;
    TRY(read_entry(p, root, "archive_format", true, &bytes, &n, err));
    if (n != 3 || memcmp(bytes, "pt2", 3)) return fail(err, E_FORMAT, "archive_format: expected 'pt2'");
    TRY(read_entry(p, root, "archive_version", true, &bytes, &n, err));
    if (n != 1 || *(const char *)bytes != '0')
        return fail(err, E_UNSUPPORTED, "archive_version is '%.*s', only version 0 is known", (int)(n < 8 ? n : 8),
                    (const char *)bytes);
    char path[1024];
    snprintf(path, sizeof path, "%sbyteorder", root);
    if (zip_find(p->zip, path)) {
        TRY(read_entry(p, root, "byteorder", true, &bytes, &n, err));
        if (n != 6 || memcmp(bytes, "little", 6)) return fail(err, E_UNSUPPORTED, "byteorder is not little");
    }
    return true;
}

/* The one models/NAME.json. */
static bool find_model(Source *p, const char *root, char *name, size_t cap, Err *err)
{
    char prefix[1024];
    size_t n = (size_t)snprintf(prefix, sizeof prefix, "%smodels/", root);
    name[0] = 0;
    for (size_t i = 0; i < zip_count(p->zip); i++) {
        const char *e = zip_entry(p->zip, i)->name;
        if (strncmp(e, prefix, n) || !ends_with(e, ".json")) continue;
        size_t len = strlen(e + n) - 5;
        bool first = !name[0];
        if (len == 0 || len >= cap || (!first && strcmp(e + n, "model.json"))) continue;
        memcpy(name, e + n, len);
        name[len] = 0;
    }
    return name[0] || fail(err, E_FORMAT, "no entry '%s*.json': the archive holds no exported program", prefix);
}

static bool note_ignored(Source *p, const char *root, Err *err)
{
    static const struct {
        const char *folder, *why;
    } skipped[] = {{"data/sample_inputs/", "a pickle, never opened"},
                   {"data/aotinductor/", "compiled code, never loaded"},
                   {"extra/", "extra file"}};
    size_t count = zip_count(p->zip);
    p->ignored = arena_array(p->graph->arena, const char *, count + 1);
    if (!p->ignored) return oom(err);
    for (size_t i = 0; i < count; i++) {
        const char *e = zip_entry(p->zip, i)->name;
        if (strncmp(e, root, strlen(root))) continue; /* outside the root */
        e += strlen(root);
        if (!strcmp(e, "extra/" SIZE_NAMES)) continue; /* read_size_names */
        for (size_t k = 0; k < sizeof skipped / sizeof *skipped; k++)
            if (!strncmp(e, skipped[k].folder, strlen(skipped[k].folder)))
                p->ignored[p->nignored++] = arena_printf(p->graph->arena, "%s (%s)", e, skipped[k].why);
    }
    return true;
}

/* ------------------------------------------------------------------ weights */

static bool constant_int(const json_t *sym, int64_t *out, Err *err)
{
    const json_t *v = json_object_get(sym, "as_int");
    if (!json_is_integer(v)) return fail(err, E_FORMAT, "a weight's size must be a constant integer");
    *out = json_integer_value(v);
    return true;
}

static bool weight_view(const json_t *meta, Tensor *t, int64_t *offset, Err *err)
{
    json_t *sizes, *strides;
    int64_t code;
    TRY(json_want_int(meta, "dtype", &code, err));
    t->dtype = dtype_from_pt2(code);
    if (t->dtype == DT_NONE) return fail(err, E_UNSUPPORTED, "dtype code %lld is not known", (long long)code);
    TRY(json_want_array(meta, "sizes", &sizes, err));
    TRY(json_want_array(meta, "strides", &strides, err));
    size_t rank = json_array_size(sizes);
    if (rank > MAX_RANK) return fail(err, E_UNSUPPORTED, "rank %zu: at most %d is supported", rank, MAX_RANK);
    if (json_array_size(strides) != rank)
        return fail(err, E_FORMAT, "%zu strides for %zu sizes", json_array_size(strides), rank);
    t->rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        TRY(constant_int(json_array_get(sizes, i), &t->shape[i], err));
        TRY(constant_int(json_array_get(strides, i), &t->stride[i], err));
    }
    return constant_int(json_object_get(meta, "storage_offset"), offset, err);
}

/* torch aligns entries to 64 bytes; other ZIP writers do not, and then the entry is copied,
 * once for all tensors that share it. */
static bool align_entry(Import *im, const char *name, uint64_t size, const void **bytes)
{
    if ((uintptr_t)*bytes % 16 == 0) return true;
    void *copy = map_get(&im->aligned, name);
    if (!copy) {
        copy = arena_alloc(im->g->arena, size ? size : 1, 1);
        char *key = arena_strdup(im->g->arena, name);
        if (!copy || !key || !map_put(&im->aligned, key, copy)) return oom(im->err);
        pages_soon(*bytes, size);
        memcpy(copy, *bytes, size);
    }
    *bytes = copy;
    return true;
}

static bool read_weight(Import *im, const char *root, const char *folder, const char *fqn, const json_t *entry,
                        Map *into)
{
    const char *path;
    json_t *meta;
    Err *err = im->err;
    const json_t *pickled = json_object_get(entry, "use_pickle");
    TRY(json_want_string(entry, "path_name", &path, err));
    if (json_is_true(pickled) || !strncmp(path, "custom_obj_", 11) || !strncmp(path, "opaque_obj_", 11)) {
        if (strcmp(path, "")) /* reported only if the graph uses it: it is then missing */
            im->pt2->ignored[im->pt2->nignored++] = arena_printf(im->g->arena, "%s%s (a pickle, never opened)", folder,
                                                                 path);
        return im->pt2->nignored < (int)zip_count(im->pt2->zip) || fail(err, E_FORMAT, "more pickles than entries");
    }
    if (!json_want_object(entry, "tensor_meta", &meta, err)) return within(err, "'%s'", fqn);
    Tensor *t = arena_new(im->g->arena, Tensor);
    char name[1024];
    const void *bytes;
    uint64_t size;
    int64_t offset = 0;
    if (!t) return oom(err);
    if (snprintf(name, sizeof name, "%s%s", folder, path) >= (int)sizeof name)
        return fail(err, E_FORMAT, "'%s': path too long", fqn);
    size_t need;
    if (!weight_view(meta, t, &offset, err) || !shape_bytes(t->dtype, t->rank, t->shape, &need, err) ||
        !read_entry(im->pt2, root, name, false, &bytes, &size, err))
        return within(err, "'%s'", fqn);
    if (!view_in_storage(t, offset, size))
        return fail(err, E_FORMAT, "'%s': a view at offset %lld reaches beyond the %llu bytes of its entry '%s'", fqn,
                    (long long)offset, (unsigned long long)size, name);
    TRY(align_entry(im, name, size, &bytes));
    t->data = size ? (char *)(uintptr_t)bytes + (size_t)offset * dtype_size(t->dtype) : NULL;
    const char *copy = arena_strdup(im->g->arena, fqn);
    return (copy && map_put(into, copy, t)) || oom(err);
}

static bool read_weights(Import *im, const char *root, const char *folder, const char *model, const char *kind,
                         Map *into)
{
    char config[1024];
    const void *bytes;
    uint64_t size;
    snprintf(config, sizeof config, "%s%s_%s_config.json", folder, model, kind);
    char path[2048];
    snprintf(path, sizeof path, "%s%s", root, config);
    if (!zip_find(im->pt2->zip, path)) {
        snprintf(path, sizeof path, "%s%s%s.pt", root, folder, model);
        if (zip_find(im->pt2->zip, path))
            return fail(im->err, E_UNSUPPORTED,
                        "'%s' is a pickle (torch 2.8); save the file again with torch 2.9 or newer", path);
    }
    TRY(read_entry(im->pt2, root, config, true, &bytes, &size, im->err));
    json_t *top = zip_json(im->pt2->zip, bytes, size, config, im->err), *list;
    if (!top) return false;
    bool ok = json_want_object(top, "config", &list, im->err);
    const char *fqn;
    json_t *entry;
    if (ok) json_object_foreach(list, fqn, entry)
        {
            ok = read_weight(im, root, folder, fqn, entry, into);
            if (!ok) break;
        }
    json_free(top);
    return ok || within(im->err, "%s", config);
}

/* ------------------------------------------------------------------ symbols and types */

bool read_sym(Import *im, const json_t *v, Expr **out)
{
    const char *tag, *text;
    json_t *inner, *hint;
    TRY(json_want_union(v, &tag, &inner, im->err));
    if (!strcmp(tag, "as_int") && json_is_integer(inner)) *out = ex_int(im->g->ex, json_integer_value(inner));
    else if (!strcmp(tag, "as_bool") && json_is_boolean(inner)) *out = ex_bool(im->g->ex, json_is_true(inner));
    else if (!strcmp(tag, "as_float") && json_is_number(inner)) *out = ex_float(im->g->ex, json_number_value(inner));
    else if (!strcmp(tag, "as_expr")) {
        TRY(json_want_string(inner, "expr_str", &text, im->err));
        *out = ex_parse(im->g->ex, text, NULL, NULL, im->err);
        TRY(*out);
        hint = json_object_get(json_object_get(inner, "hint"), "as_int");
        if ((*out)->kind == EX_SYM && json_is_integer(hint)) {
            Symbol *s = expr_symbol(im->g->ex, (int)(*out)->i);
            s->has_hint = true;
            s->hint = json_integer_value(hint);
        }
    } else return fail(im->err, E_FORMAT, "found %s with %s, expected a size", tag, json_kind(inner));
    return *out || fail(im->err, E_LIMIT, "a size expression is too large");
}

bool read_meta(Import *im, const json_t *meta, DType *t, int *rank, Expr **dim)
{
    int64_t code;
    json_t *sizes;
    TRY(json_want_int(meta, "dtype", &code, im->err));
    *t = dtype_from_pt2(code);
    if (*t == DT_NONE) return fail(im->err, E_UNSUPPORTED, "dtype code %lld is not known", (long long)code);
    TRY(json_want_array(meta, "sizes", &sizes, im->err));
    if (json_array_size(sizes) > MAX_RANK)
        return fail(im->err, E_UNSUPPORTED, "rank %zu: at most %d is supported", json_array_size(sizes), MAX_RANK);
    *rank = (int)json_array_size(sizes);
    for (int i = 0; i < *rank; i++) {
        TRY(read_sym(im, json_array_get(sizes, (size_t)i), &dim[i]) || within(im->err, "size %d", i));
        if (ex_is_int(dim[i]) && dim[i]->i < 0)
            return fail(im->err, E_FORMAT, "size %d is %lld", i, (long long)dim[i]->i);
        if (dim[i]->is_float) return fail(im->err, E_FORMAT, "size %d is a float, expected an integer", i);
    }
    return true;
}

/* A bound of range_constraints: an integer, or null for none; torch's int_oo arrives as a huge number. */
static bool read_bound(const json_t *v, int64_t none, int64_t *out, Err *err)
{
    *out = none;
    if (!v || json_is_null(v)) return true;
    if (!json_is_integer(v)) return fail(err, E_FORMAT, "found %s, expected an integer or null", json_kind(v));
    *out = json_integer_value(v);
    if (*out <= -(1LL << 62)) *out = INT64_MIN;
    if (*out >= (1LL << 62)) *out = INT64_MAX;
    return true;
}

/* The symbol of 14*s0 or 14*s0 + 1; NULL of anything else. */
static Expr *root_of(Expr *e)
{
    if (e->kind == EX_SYM) return e;
    if ((e->kind != EX_MUL && e->kind != EX_ADD) || e->nargs != 2 || ex_is_int(e->args[0]) == ex_is_int(e->args[1]))
        return NULL;
    return root_of(e->args[ex_is_int(e->args[0])]);
}

enum { MAX_GUARDS = 50000 }; /* one takes 15 bytes in the file, and a thousand here */

/* " <= 64" of each guard that ends so. */
static bool last_bounds(Import *im, const json_t *top, Map *found)
{
    size_t i;
    json_t *guard, *all = json_object_get(top, "guards_code");
    if (json_array_size(all) > MAX_GUARDS)
        return fail(im->err, E_LIMIT, "guards_code: %zu of them, at most %d are read", json_array_size(all),
                    MAX_GUARDS);
    json_array_foreach(all, i, guard)
    {
        const char *text = json_string_value(guard), *space = text ? strrchr(text, ' ') : NULL;
        if (!space || space - text < 3 || memcmp(space - 3, " <=", 3)) continue;
        if (!map_put(found, space - 3, im)) return oom(im->err);
    }
    return true;
}

/* This minimum was not declared: torch writes 2 where a size has none (Dim.AUTO, Dim.DYNAMIC), as sizes of 0 and 1
 * are left out while it traces, and runs 1 all the same. A maximum beside it is then one that tracing found, which is
 * among the guards. */
static bool undeclared(const Map *guards, const char *symbol, int64_t lo, int64_t hi)
{
    char bound[32];
    snprintf(bound, sizeof bound, " <= %lld", (long long)hi);
    if (lo != 2 || symbol[0] != 's')
        return false; /* u0 and the like are data-dependent; torch keeps what was checked of them */
    return hi == INT64_MAX || map_has(guards, bound);
}

/* torch lists 2 as the least value of s0 where 14*s0 is declared from 14 on, and runs 14 all the same: sizes of 0 and
 * 1 are left out of its ranges while it traces, and it puts back the declared minimum of plain symbols and of derived
 * sizes alone. */
static void widen_root(ExprPool *p, Expr *e, int64_t lo, int64_t hi)
{
    Expr *root = root_of(e);
    if (!root || e == root || expr_symbol(p, (int)root->i)->lo > 2 || expr_symbol(p, (int)root->i)->lo < 1) return;
    int64_t least = 2, top = expr_symbol(p, (int)root->i)->hi, a = lo, b = hi;
    while (least > 0 && a >= lo && b <= hi) {
        expr_set_range(p, (int)root->i, least - 1, least - 1);
        ex_range(p, e, &a, &b);
        if (a >= lo && b <= hi) least--;
    }
    expr_set_range(p, (int)root->i, least, top);
}

/* Plain symbols take their range now; bounds on expressions ("14*s0") become requirements. */
static bool read_ranges(Import *im, const json_t *top, const Map *guards, bool plain)
{
    json_t *ranges, *r;
    const char *key;
    TRY(json_want_object(top, "range_constraints", &ranges, im->err));
    if (json_object_size(ranges) > MAX_GUARDS)
        return fail(im->err, E_LIMIT, "range_constraints: %zu of them, at most %d are read", json_object_size(ranges),
                    MAX_GUARDS);
    json_object_foreach(ranges, key, r)
    {
        int64_t lo, hi;
        if (!read_bound(json_object_get(r, "min_val"), INT64_MIN, &lo, im->err) ||
            !read_bound(json_object_get(r, "max_val"), INT64_MAX, &hi, im->err))
            return within(im->err, "range_constraints: '%.60s'", key);
        if (lo > hi)
            return fail(im->err, E_FORMAT, "range_constraints: '%.60s': minimum %lld is above maximum %lld", key,
                        (long long)lo, (long long)hi);
        Expr *e = ex_parse(im->g->ex, key, NULL, NULL, im->err);
        if (!e) return within(im->err, "range_constraints");
        if (plain && e->kind == EX_SYM)
            expr_set_range(im->g->ex, (int)e->i, undeclared(guards, key, lo, hi) ? 1 : lo, hi);
        if (plain || e->kind == EX_SYM) continue;
        Expr *in = ex_bool(im->g->ex, true);
        if (lo != INT64_MIN)
            in = ex_make(im->g->ex, EX_AND, in, ex_make(im->g->ex, EX_LE, ex_int(im->g->ex, lo), e, NULL), NULL);
        if (hi != INT64_MAX)
            in = ex_make(im->g->ex, EX_AND, in, ex_make(im->g->ex, EX_LE, e, ex_int(im->g->ex, hi), NULL), NULL);
        TRY(graph_require(im->g, in, im->err, RANGE_OF "%.100s", key));
    }
    if (plain) json_object_foreach(ranges, key, r)
        { /* again, now that every symbol has its own range */
            int64_t lo, hi;
            Expr *e = ex_parse(im->g->ex, key, NULL, NULL, im->err);
            TRY(e && read_bound(json_object_get(r, "min_val"), INT64_MIN, &lo, im->err) &&
                read_bound(json_object_get(r, "max_val"), INT64_MAX, &hi, im->err));
            widen_root(im->g->ex, e, lo, hi);
        }
    return true;
}

/* ------------------------------------------------------------------ the program */

enum { MAX_SPECS = 1 << 20 }; /* a number takes 45 bytes in the file, and 150 here */

/* The entries of the signature for inputs (parameters among them) or outputs. */
static bool read_specs(Import *im, const json_t *signature, const char *key, json_t **specs)
{
    TRY(json_want_array(signature, key, specs, im->err));
    size_t n = json_array_size(*specs);
    return n <= MAX_SPECS || fail(im->err, E_LIMIT, "%s: %zu entries, at most %d are read", key, n, MAX_SPECS);
}

/* Is the tensor of this name one of integers, or unknown? */
static bool holds_integers(const json_t *tensor_values, const char *name)
{
    const json_t *meta = name ? json_object_get(tensor_values, name) : NULL;
    DType t = meta ? dtype_from_pt2(json_integer_value(json_object_get(meta, "dtype"))) : DT_NONE;
    return t == DT_NONE || dtype_is_int(t);
}

/* Does an op of the graph write one in place, or what a signature says of buffers? */
static bool writes_integers(const json_t *graph, const json_t *tensor_values, const json_t *output_specs)
{
    size_t i;
    json_t *j, *spec;
    const char *tag;
    json_array_foreach(json_object_get(graph, "nodes"), i, j)
    {
        const char *op = json_string_value(json_object_get(j, "target"));
        const json_t *self = json_object_get(json_array_get(json_object_get(j, "inputs"), 0), "arg");
        self = json_object_get(json_object_get(self, "as_tensor"), "name");
        if (op && strstr(op, "_.") && holds_integers(tensor_values, json_string_value(self))) return true;
    }
    json_array_foreach(output_specs, i, j)
    {
        json_object_foreach(j, tag, spec)
        {
            const char *name = json_string_value(json_object_get(json_object_get(spec, "arg"), "name"));
            if (strstr(tag, "_mutation") && holds_integers(tensor_values, name)) return true;
        }
    }
    return false;
}

static bool read_graph(Import *im, const json_t *top)
{
    json_t *module, *graph, *signature, *specs, *tv;
    Err *err = im->err;
    TRY(json_want_object(top, "graph_module", &module, err));
    TRY(json_want_object(module, "graph", &graph, err));
    TRY(json_want_object(module, "signature", &signature, err));
    TRY(read_specs(im, signature, "input_specs", &specs));
    TRY(json_want_object(graph, "tensor_values", &tv, err));
    if (!im->watch) TRY(find_missing_ops(im, graph));
    Scope s = {.graph = graph,
               .tensor_values = tv,
               .sym_int_values = json_object_get(graph, "sym_int_values"),
               .sym_bool_values = json_object_get(graph, "sym_bool_values"),
               .sym_float_values = json_object_get(graph, "sym_float_values")};
    Map guards = {0};
    im->integers_stay = !writes_integers(graph, tv, json_object_get(signature, "output_specs"));
    bool ok = last_bounds(im, top, &guards) && read_ranges(im, top, &guards, true);
    size_t i;
    json_t *spec;
    json_array_foreach(specs, i, spec)
    {
        if (ok && !add_input(im, &s, spec)) ok = within(err, "input %zu", i);
    }
    im->pt2->ninputs = im->g->ninput;
    ok = ok && read_ranges(im, top, &guards, false);
    map_free(&guards);
    ok = ok && graph_bind_sizes(im->g, err) && import_guards(im, json_object_get(top, "guards_code")) &&
         import_nodes(im, &s);
    ok = ok && read_specs(im, signature, "output_specs", &specs) && add_outputs(im, &s, specs) && add_writes(im, &s);
    ok = ok && graph_bind_sizes(im->g, err) && require_guards(im) && graph_unify_sizes(im->g, NULL, &(int){0}, err);
    map_free(&s.names);
    return ok;
}

/* Text of a part that only writers need. */
static bool kept_json(Import *im, const json_t *v, const char **copy)
{
    *copy = NULL;
    if (!json_is_array(v) && !json_is_object(v)) return true;
    Buf text = {0};
    json_put(&text, NULL, v);
    jw_compact(&text);
    *copy = text.failed ? NULL : arena_strdup(im->g->arena, text.data);
    buf_free(&text);
    return *copy || oom(im->err);
}

static bool read_spec(Import *im, const json_t *top)
{
    const json_t *calls = json_object_get(json_object_get(top, "graph_module"), "module_call_graph");
    const json_t *sig = json_object_get(json_array_get(calls, 0), "signature");
    const char *in = json_string_value(json_object_get(sig, "in_spec")),
               *out = json_string_value(json_object_get(sig, "out_spec"));
    if (in && !(im->g->in_spec = arena_strdup(im->g->arena, in))) return oom(im->err);
    if (out && !(im->g->out_spec = arena_strdup(im->g->arena, out))) return oom(im->err);
    const json_t *fields = json_object_get(json_object_get(top, "graph_module"), "treespec_namedtuple_fields");
    return kept_json(im, json_object_get(sig, "forward_arg_names"), &im->g->forward_args) &&
           kept_json(im, fields, &im->g->namedtuples) && label_outputs(im, fields);
}

/* What the author calls the sizes, where qkv.export has written it. A name that cannot be is left out. */
static bool read_size_names(Import *im, const char *root)
{
    const void *bytes;
    uint64_t size;
    const char *from;
    char path[1024];
    json_t *to;
    Err ignored = {0};
    snprintf(path, sizeof path, "%sextra/" SIZE_NAMES, root);
    if (!zip_find(im->pt2->zip, path)) return true;
    TRY(read_entry(im->pt2, root, "extra/" SIZE_NAMES, true, &bytes, &size, im->err));
    json_t *names = zip_json(im->pt2->zip, bytes, size, "extra/" SIZE_NAMES, im->err);
    TRY(names);
    json_object_foreach(names, from, to)
    {
        if (json_is_string(to)) graph_rename_size(im->g, from, json_string_value(to), &ignored);
    }
    json_free(names);
    return ignored.code != E_LIMIT || oom(im->err);
}

static bool read_program(Import *im, const json_t *top)
{
    int64_t major = 0, minor = 0;
    json_t *version;
    TRY(json_want_object(top, "schema_version", &version, im->err));
    TRY(json_want_int(version, "major", &major, im->err));
    TRY(json_want_int(version, "minor", &minor, im->err));
    if (major != 8)
        return fail(im->err, E_UNSUPPORTED, "schema version %lld.%lld: version 8 is what torch 2.9 to 2.15 write",
                    (long long)major, (long long)minor);
    im->pt2->schema_major = (int)major;
    im->pt2->schema_minor = (int)minor;
    const char *torch = json_string_value(json_object_get(top, "torch_version"));
    im->pt2->torch_version = arena_strdup(im->g->arena, torch ? torch : "");
    return read_graph(im, top) && read_spec(im, top);
}

static bool open_archive(Source *p, DType compute, const SourceWatch *watch, Err *err)
{
    char root[512], model[256], entry[512];
    const void *bytes;
    uint64_t size;
    p->zip = zip_open(p->file.data, p->file.size, err);
    TRY(p->zip);
    p->graph = graph_create();
    if (!p->graph) return oom(err);
    p->torch_version = "";
    TRY(find_root(p, root, sizeof root, err));
    TRY(check_version(p, root, err));
    TRY(find_model(p, root, model, sizeof model, err));
    TRY(note_ignored(p, root, err));
    snprintf(entry, sizeof entry, "models/%s.json", model);
    TRY(read_entry(p, root, entry, true, &bytes, &size, err));
    Import im = {.pt2 = p, .g = p->graph, .compute = compute, .watch = watch, .err = err};
    json_t *top = zip_json(p->zip, bytes, size, entry, err);
    bool ok = top && read_weights(&im, root, "data/weights/", model, "weights", &im.weights) &&
              read_weights(&im, root, "data/constants/", model, "constants", &im.constants);
    ok = ok && (read_program(&im, top) || within(err, "%s", entry)) && read_size_names(&im, root);
    json_free(top);
    map_free(&im.weights);
    map_free(&im.constants);
    map_free(&im.aligned);
    if (!ok) return false;
    graph_dce(p->graph);
    return sdpa_lse_unread(p->graph, err) && graph_check(p->graph, err);
}

static Source *open_file(const char *path, DType compute, const SourceWatch *watch, Err *err)
{
    Source *p = source_new(err);
    if (!p) return NULL;
    if (file_map(&p->file, path, err)) { /* which names the file itself where it fails */
        if (open_archive(p, compute, watch, err)) return p;
        within(err, "%s", path);
    }
    source_close(p);
    return NULL;
}

Source *pt2_open(const char *path, DType compute, Err *err) { return open_file(path, compute, NULL, err); }
Source *pt2_open_watched(const char *path, const SourceWatch *watch, Err *err)
{
    return open_file(path, DT_NONE, watch, err);
}
