/* Writing packed models. Contract in pack.h; read by src/packed/read.c.
 *
 * What is written is what a session would run: the graph after the rules, with what depends on weights alone as
 * weights. The text is read back before it is written, and the graph that comes of it runs once with random inputs of
 * the smallest sizes: its products say which weights they pack, and how.
 */
#include "program/pack.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cpu.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/vec.h"
#include "base/version.h"
#include "format/packfile.h"
#include "ir/copy.h"
#include "kernel/gemm.h"
#include "program/passes.h"
#include "program/prepare.h"
#include "run/session.h"
#include "shape/solve.h"

typedef struct Blobs {
    PackBlob *blob;
    int n;
    Lookup by_bytes; /* those that are not empty */
} Blobs;

/* The bytes of a weight, or of what may become one. */
typedef struct Spot {
    uintptr_t from, to;
    int number;
    int last; /* where the one of those up to here is that ends last */
} Spot;

typedef struct Packer {
    const char *key;
    Graph *g;    /* as it is written; prepared owns it, and what was folded */
    Graph *read; /* as a reader of the text has it */
    Prepared prepared;
    Value **weight; /* of `read`, those of bodies included, in the order of the text */
    int nweight;
    Blobs blobs;
    int *blob_of;  /* by weight */
    Tensor *plain; /* by weight: as it lies in the file; data is owned where it was not contiguous before */
    void **copied;
    Spot *spot; /* of `plain`, sorted */
    void **own; /* packed bytes */
    int nown;
    Buf packed; /* JSON of packed weights, with placeholders for offsets */
    Extras extra;
    int *blob_of_extra;
    Buf text, json;
    PackInfo *info;
    Err *err;
} Packer;

static int add_blob(Packer *k, const void *data, uint64_t size)
{
    Blobs *b = &k->blobs;
    uint64_t h = hash_keyed((uint64_t[]){(uintptr_t)data, size}, 16);
    size_t tried = 0;
    int64_t i;
    while (size && (i = lookup_next(&b->by_bytes, h, &tried)) >= 0) /* tied weights */
        if (b->blob[i].data == data && b->blob[i].size == size) return (int)i;
    PackBlob *grown = vec_grow(b->blob, b->n, sizeof *grown);
    if (grown) b->blob = grown;
    if (!grown || (size && !lookup_add(&b->by_bytes, h, (size_t)b->n))) return -1;
    b->blob[b->n] = (PackBlob){data, size, 0};
    return b->n++;
}

static Spot spot_of(const Tensor *t, int number)
{
    uintptr_t from = (uintptr_t)t->data;
    return (Spot){from, from ? from + tensor_bytes(t) : 0, number, 0};
}

/* Of those that begin together the longest comes first: what shows a part of another one comes after it. */
static int by_place(const void *a, const void *b)
{
    const Spot *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to > y->to ? -1 : 1;
    return x->number - y->number;
}

/* ------------------------------------------------------------------ folding */

/* folds: by value id. Constants of the session, but for those that show bytes of a weight or of another constant: views
 * cost nothing. */
static bool find_constants(const Graph *g, const Session *s, bool *folds)
{
    Spot *spot = mem_zeroed((size_t)g->next_id + 1, sizeof *spot);
    uintptr_t end = 0;
    int n = 0;
    if (!spot) return false;
    for (; n < g->nweight; n++) spot[n] = spot_of(g->weight[n]->data, -1);
    for (const Node *x = g->first; x; x = x->next)
        for (int o = 0; o < x->nout; o++) {
            const Tensor *t = session_constant(s, x->out[o]);
            if (t) spot[n++] = spot_of(t, x->out[o]->id);
        }
    qsort(spot, (size_t)n, sizeof *spot, by_place);
    for (int i = 0; i < n; i++) {
        bool weight = spot[i].number < 0, view = spot[i].from < end;
        if (!weight) folds[spot[i].number] = !view;
        if ((weight || !view) && spot[i].to > end) end = spot[i].to;
    }
    mem_free(spot);
    return true;
}

/* by: by value id, what is read instead. */
static bool add_constants(Graph *g, const Session *s, const bool *folds, Value **by)
{
    for (const Node *n = g->first; n; n = n->next)
        for (int o = 0; o < n->nout; o++) {
            const Value *v = n->out[o];
            Value *w = folds[v->id] ? graph_add_weight(g, v->name, v->name, session_constant(s, v)) : NULL;
            if (folds[v->id] && !w) return false;
            if (w) w->weight = W_CONSTANT;
            by[v->id] = w;
        }
    return true;
}

/* What packing computes: casts of all weights and more, but not any size that a small file names. The run that says
 * which weights are packed takes less beside them, for a model whose inputs and results are many times its weights
 * gains nothing by packing them ahead. */
enum { MOST_FOLDED = 4096, MOST_RUN = 48 }; /* MiB */

static size_t most_memory(const Graph *g, size_t mebibytes)
{
    enum { TIMES = 4 };
    size_t n = mebibytes << 20;
    for (int i = 0; i < g->nweight; i++)
        if (!add_size(n, TIMES * tensor_bytes(g->weight[i]->data), &n)) return SIZE_MAX;
    return n;
}

/* What packing runs is small sizes of a model that may have been made to hold it up. */
enum { MOST_TURNS = 1 << 16 };

bool pack_fold(Graph *g, Session **folder, Err *err)
{
    *folder = session_create_bounded(g, NULL, cpu_count(), most_memory(g, MOST_FOLDED), MOST_TURNS, err);
    if (!*folder) return false;
    int before = g->nweight;
    size_t values = (size_t)g->next_id + 1;
    bool *folds = mem_zeroed(values, sizeof *folds);
    Value **by = mem_zeroed(values, sizeof *by);
    bool ok = folds && by && find_constants(g, *folder, folds) && add_constants(g, *folder, folds, by);
    if (ok) graph_replace_all(g, by);
    mem_free(folds);
    mem_free(by);
    if (!ok) return oom(err);
    if (g->nweight > before) graph_dce(g);
    int *uses = mem_zeroed((size_t)g->next_id + 1, sizeof *uses), kept = 0;
    if (!uses) return oom(err);
    graph_count_uses(g, uses);
    for (int i = 0; i < g->nweight; i++)
        if (uses[g->weight[i]->id] || graph_writes(g, g->weight[i])) g->weight[kept++] = g->weight[i];
    g->nweight = kept;
    mem_free(uses);
    return true;
}

/* ------------------------------------------------------------------ which products pack what */

static bool sort_spots(Packer *k)
{
    Spot *s = k->spot = mem_zeroed((size_t)k->nweight + 1, sizeof *s);
    if (!s) return oom(k->err);
    for (int i = 0; i < k->nweight; i++) s[i] = spot_of(&k->plain[i], i);
    qsort(s, (size_t)k->nweight, sizeof *s, by_place);
    for (int i = 1; i < k->nweight; i++) s[i].last = s[i].to > s[s[i - 1].last].to ? i : s[i - 1].last;
    return true;
}

/* The weight that all of b lies in, the shortest that begins with it, else any; *at: how far after its begin. -1: none,
 * or one that is read as another dtype. */
static int weight_at(const Packer *k, const Tensor *b, int64_t *at)
{
    int64_t reach = (b->shape[0] - 1) * b->stride[0] + (b->shape[1] - 1) * b->stride[1] + 1;
    uintptr_t from = (uintptr_t)b->data, to = from + (size_t)reach * dtype_size(b->dtype);
    int below = 0, end = k->nweight; /* those below begin before b, or with it and end after it */
    while (below < end) {
        int middle = below + (end - below) / 2;
        const Spot *s = &k->spot[middle];
        if (s->from < from || (s->from == from && s->to >= to)) below = middle + 1;
        else end = middle;
    }
    const Spot *s = below ? &k->spot[below - 1] : NULL;
    if (s && s->from < from) s = &k->spot[s->last];
    if (!s || s->to < to || b->shape[0] < 1 || b->shape[1] < 1 || k->plain[s->number].dtype != b->dtype) return -1;
    *at = (int64_t)(from - s->from);
    return s->number;
}

/* Packed into zeros: what a kernel leaves out between its panels would be whatever was in memory. */
static void take_packed(void *user, const Tensor *b, bool rounded, size_t bytes)
{
    Packer *k = user;
    int64_t at = 0;
    const char *layout = gemm_layout(b, rounded);
    int which = weight_at(k, b, &at);
    void *own = which >= 0 && layout
                    ? mem_aligned(PACKFILE_ALIGN, (bytes + PACKFILE_ALIGN) / PACKFILE_ALIGN * PACKFILE_ALIGN)
                    : NULL;
    void **list = own ? vec_grow(k->own, k->nown, sizeof *list) : NULL;
    if (!list) {
        mem_free(own);
        return;
    }
    k->own = list;
    list[k->nown++] = own;
    memset(own, 0, bytes);
    gemm_pack(own, b, rounded);
    int blob = add_blob(k, own, bytes);
    if (blob < 0) return;
    buf_printf(&k->packed, "%d %d %lld %lld %lld %lld %lld %d %s\n", blob, which, (long long)at, (long long)b->shape[0],
               (long long)b->shape[1], (long long)b->stride[0], (long long)b->stride[1], rounded, layout);
    k->info->packed++;
    k->info->packed_bytes += bytes;
}

static bool run_once(const Packer *k, Session *s, Err *err)
{
    Binding b;
    TRY(binding_init(&b, k->read->ex, err));
    bool ok = choose_sizes(k->read, NULL, NULL, 0, &b, err) && session_random_inputs(s, &b, 0, err);
    binding_free(&b);
    return ok && session_run(s, err);
}

/* Packs by running. A model that refuses random inputs, or whose smallest sizes are too large for that,
 * is written without packed weights. */
static bool run_products(Packer *k, Session **s)
{
    Err why = {0};
    Fusion f = {0};
    size_t most = most_memory(k->read, MOST_RUN);
    bool ok = passes_run(&(Pipeline){.graph = k->read, .fusion = &f}, PASS_BIT(PASS_FUSE), k->err) &&
              (*s = session_create_bounded(k->read, &f, cpu_count(), most, MOST_TURNS, k->err));
    bool ran = ok && run_once(k, *s, &why);
    fusion_free(&f);
    if (ran) gemm_pool_each(session_products(*s), take_packed, k);
    else if (ok) snprintf(k->info->message, sizeof k->info->message, "%.200s", why.msg);
    return ok;
}

/* ------------------------------------------------------------------ writing */

static bool collect_weights(Packer *k, const Graph *g)
{
    for (int i = 0; i < g->nweight; i++) {
        Value **grown = vec_grow(k->weight, k->nweight, sizeof *grown);
        if (!grown) return oom(k->err);
        k->weight = grown;
        k->weight[k->nweight++] = g->weight[i];
    }
    for (const Node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->op->schema->nparams; i++)
            if (n->arg[i].kind == ARG_GRAPH) TRY(collect_weights(k, n->arg[i].g));
    return true;
}

typedef struct Reading {
    const Packer *k;
    int next;
} Reading;

static const Tensor *next_weight(void *user, const char *fqn)
{
    Reading *r = user;
    (void)fqn;
    return r->next < r->k->nweight ? r->k->weight[r->next++]->data : NULL;
}

/* The text, which must read back, and a graph like a reader's: weights are given other memory there. */
static bool print_graph(Packer *k)
{
    Reading r = {k, 0};
    graph_print(k->g, &k->text);
    if (k->text.failed || !k->text.data) return oom(k->err);
    k->read = graph_copy(k->g, k->err);
    TRY(k->read && collect_weights(k, k->read));
    Graph *again = graph_parse(k->text.data, next_weight, &r, k->err);
    graph_free(again);
    if (again) return true;
    if (k->err->code == E_FORMAT) k->err->code = E_UNSUPPORTED; /* the model is whole, only its text is not read */
    return within(k->err, "it cannot be packed, for as text it does not read back");
}

static bool place_weights(Packer *k)
{
    k->blob_of = mem_zeroed((size_t)k->nweight + 1, sizeof *k->blob_of);
    k->plain = mem_zeroed((size_t)k->nweight + 1, sizeof *k->plain);
    k->copied = mem_zeroed((size_t)k->nweight + 1, sizeof *k->copied);
    if (!k->blob_of || !k->plain || !k->copied) return oom(k->err);
    for (int i = 0; i < k->nweight; i++) {
        const Tensor *w = k->weight[i]->data;
        Tensor *t = &k->plain[i];
        size_t bytes = tensor_bytes(w);
        *t = *w;
        if (!tensor_contiguous(w)) {
            *t = tensor_of(w->dtype, w->rank, w->shape, k->copied[i] = mem_alloc(bytes + 1));
            if (!t->data) return oom(k->err);
            tensor_copy(t, w);
            k->weight[i]->data = t; /* products see what a reader of the file will see */
        }
        k->blob_of[i] = add_blob(k, t->data, bytes);
        if (k->blob_of[i] < 0) return oom(k->err);
        k->info->weight_bytes += bytes;
    }
    k->info->weights = k->nweight;
    return sort_spots(k);
}

static void put_place(Buf *b, const PackBlob *at)
{
    jw_put(b, "'offset': %llu, 'size': %llu}", (unsigned long long)at->offset, (unsigned long long)at->size);
}

static void put_weights(Packer *k)
{
    Buf *b = &k->json;
    jw_open(b, "weights", '[');
    for (int i = 0; i < k->nweight; i++) {
        const Tensor *w = &k->plain[i];
        jw_line(b);
        jw_put(b, "{'dtype': %s", dtype_name(w->dtype));
        jw_ints(b, "shape", w->shape, w->rank);
        jw_int(b, "offset", (int64_t)k->blobs.blob[k->blob_of[i]].offset);
        jw_close(b, "}");
    }
    jw_close(b, "]");
    jw_line(b);
    jw_open(b, "packed", '[');
    const char *line = k->packed.data, *end;
    for (; line && *line; line = end + 1) {
        enum { BLOB, WEIGHT, AT, K_SIZE, N_SIZE, ROW, COLUMN, ROUNDED, NUMBERS };
        int64_t v[NUMBERS];
        end = strchr(line, '\n');
        for (int i = 0; i < NUMBERS; i++) v[i] = parse_int(line, &line);
        line += *line == ' ';
        Buf layout = {0};
        buf_add(&layout, line, (size_t)(end - line));
        jw_line(b);
        jw_open(b, NULL, '{');
        static const char *const names[NUMBERS] = {NULL, "weight", "at", "k", "n", "row", "column"};
        for (int i = WEIGHT; i < ROUNDED; i++) jw_int(b, names[i], v[i]);
        jw_bool(b, "rounded", v[ROUNDED] != 0);
        jw_take(b, "layout", &layout);
        put_place(b, &k->blobs.blob[v[BLOB]]);
    }
    jw_close(b, "]");
    jw_line(b);
}

/* The source's extra files: blobs like any other. */
static bool place_extras(Packer *k, const Source *from)
{
    TRY(extras_open(&k->extra, from, k->err));
    k->blob_of_extra = mem_zeroed((size_t)k->extra.n + 1, sizeof *k->blob_of_extra);
    if (!k->blob_of_extra) return oom(k->err);
    for (int i = 0; i < k->extra.n; i++) {
        k->blob_of_extra[i] = add_blob(k, k->extra.file[i].bytes, k->extra.file[i].size);
        if (k->blob_of_extra[i] < 0) return oom(k->err);
    }
    return true;
}

static void put_extras(Packer *k)
{
    Buf *b = &k->json;
    jw_open(b, "extra", '[');
    for (int i = 0; i < k->extra.n; i++) {
        jw_line(b);
        jw_put(b, "{'name': %s", k->extra.file[i].name);
        put_place(b, &k->blobs.blob[k->blob_of_extra[i]]);
    }
    jw_close(b, "]");
    jw_line(b);
}

static int input_number(const Graph *g, const Value *v)
{
    for (int i = 0; v && i < g->ninput; i++)
        if (g->input[i] == v) return i;
    return -1;
}

static void put_sizes(Packer *k)
{
    Buf *b = &k->json;
    const Graph *g = k->g;
    jw_open(b, "sizes", '[');
    for (int i = 0; i < expr_symbol_count(g->ex); i++) {
        const Symbol *s = expr_symbol(g->ex, i);
        if (s->source != SYM_INPUT) continue;
        jw_put(b, "{'name': %s, 'input': %d, 'axis': %d}", s->name, input_number(g, s->value), s->dim);
    }
    jw_close(b, "]");
    jw_line(b);
    jw_open(b, "scalars", '[');
    for (int i = 0; i < g->nscalar_input; i++) {
        const ScalarInput *s = &g->scalar_input[i];
        jw_put(b, "{'name': %s, 'at': %d", s->name, s->at);
        if (s->value.kind == ARG_STR) jw_text(b, "text", s->value.s);
        else if (s->value.kind == ARG_EXPR) {
            Buf e = {0};
            ex_print(g->ex, s->value.e, &e);
            jw_take(b, "number", &e);
        }
        jw_close(b, "}");
    }
    jw_close(b, "]");
}

/* The names of the module's outputs, where there are any. */
static void put_labels(Packer *k)
{
    const Graph *g = k->g;
    bool any = false;
    for (int i = 0; i < g->noutput; i++) any |= g->output[i].label != NULL;
    if (!any) return;
    jw_line(&k->json);
    jw_open(&k->json, "labels", '[');
    for (int i = 0; i < g->noutput; i++) jw_text(&k->json, NULL, g->output[i].label);
    jw_close(&k->json, "]");
}

static bool write_file(Packer *k, const Source *from, const char *path)
{
    Buf *b = &k->json;
    TRY(packfile_place(k->blobs.blob, k->blobs.n, k->err));
    jw_put(b, "{'cpu': %s", k->info->cpu);
    jw_line(b);
    jw_put(b, "'source': {'torch': %s, 'producer': %s, 'schema_major': %d, 'schema_minor': %d, 'opset': %lld}",
           from->torch_version, from->producer, from->schema_major, from->schema_minor, (long long)from->opset);
    if (k->key) jw_put(b, "'kept': {'qkv': %s, 'key': %s}", QKV_VERSION, k->key);
    jw_line(b);
    put_weights(k);
    put_extras(k);
    put_sizes(k);
    put_labels(k);
    jw_close(b, "}");
    buf_puts(b, "\n");
    if (b->failed || k->packed.failed || !b->data || mem_ran_out()) return oom(k->err);
    return packfile_write(path, b->data, k->text.data, k->blobs.blob, k->blobs.n, k->err);
}

bool program_pack(const Program *p, const char *name, const char *path, const char *key, PackInfo *info, Err *err)
{
    Session *s = NULL;
    Packer k = {.key = key, .info = info, .err = err};
    *info = (PackInfo){.cpu = cpu_level_name(cpu_level())};
    if (!program_prepare(p, PASSES_PACK, &k.prepared, err)) return within(err, "%s", name);
    k.g = k.prepared.graph;
    bool made = print_graph(&k) && place_weights(&k) && run_products(&k, &s) && place_extras(&k, p->source),
         ok = made ? write_file(&k, p->source, path) : within(err, "%s", name);
    session_free(s);
    if (k.read) graph_free(k.read);
    prepared_free(&k.prepared);
    for (int i = 0; k.copied && i < k.nweight; i++) mem_free(k.copied[i]);
    mem_free(k.copied);
    mem_free(k.plain);
    mem_free(k.spot);
    for (int i = 0; i < k.nown; i++) mem_free(k.own[i]);
    mem_free(k.own);
    mem_free(k.blob_of);
    mem_free(k.blob_of_extra);
    extras_close(&k.extra);
    mem_free(k.weight);
    mem_free(k.blobs.blob);
    lookup_free(&k.blobs.by_bytes);
    buf_free(&k.packed);
    buf_free(&k.text);
    buf_free(&k.json);
    return ok;
}

/* ------------------------------------------------------------------ using */

bool program_packed_fits(const Source *s, Err *err)
{
    for (int i = 0; i < s->npacked; i++) {
        const PackedWeight *w = &s->packed[i];
        const char *mine = gemm_layout(&w->b, w->rounded);
        if (!mine || strcmp(mine, w->layout))
            return fail(err, E_UNSUPPORTED,
                        "its weights are packed for %s (layout %s), this CPU runs %s (layout %s): run 'qkv pack' on "
                        "the model's source here",
                        s->cpu, w->layout, cpu_level_name(cpu_level()), mine ? mine : "none");
        if (gemm_packed_bytes(&w->b, w->rounded) != w->size)
            return fail(err, E_FORMAT, "packed weight %d has %zu bytes, its layout wants %zu", i, w->size,
                        gemm_packed_bytes(&w->b, w->rounded));
    }
    return true;
}

bool program_give_packed(const Program *p, Session *s, Err *err)
{
    gemm_pool_mapped(session_products(s), p->source->file.data, p->source->file.size);
    for (int i = 0; i < p->source->npacked; i++) {
        const PackedWeight *w = &p->source->packed[i];
        const char *mine = gemm_layout(&w->b, w->rounded);
        if (cpu_is_portable() && (!mine || strcmp(mine, w->layout)))
            return fail(err, E_UNSUPPORTED,
                        "its weights are packed for %s (layout %s), portable bits are computed from layout %s: run the "
                        "model's source",
                        p->source->cpu, w->layout, mine ? mine : "none");
        TRY(gemm_pool_give(session_products(s), &w->b, w->rounded, w->data, err));
    }
    return true;
}
