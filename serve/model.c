/* Opening a model for requests. Contract in model.h. */
#include "serve/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/splitmix.h"
#include "format/json.h"
#include "qkv_tools.h"
#include "serve/batch.h"
#include "tensor/tolerance.h"

bool said(Err *err, const qkv_error *e)
{
    static const ErrCode codes[] = {[QKV_OK] = E_OK,
                                    [QKV_MISMATCH] = E_MISMATCH,
                                    [QKV_USAGE] = E_USAGE,
                                    [QKV_UNREADABLE] = E_FORMAT,
                                    [QKV_UNSUPPORTED] = E_UNSUPPORTED,
                                    [QKV_LIMIT] = E_LIMIT};
    return fail(err, codes[e->code], "%s", e->message);
}

/* ------------------------------------------------------------------ ports */

static bool read_port(const json_t *from, Port *p, Err *err)
{
    const json_t *shape = json_object_get(from, "shape"), *size;
    size_t i;
    p->name = json_string_value(json_object_get(from, "name"));
    p->dtype = dtype_from_name(json_string_value(json_object_get(from, "dtype")));
    p->rank = (int)json_array_size(shape);
    if (p->rank > MAX_RANK) return fail(err, E_LIMIT, "'%s' has %d axes; %d are the most", p->name, p->rank, MAX_RANK);
    json_array_foreach(shape, i, size)
    {
        p->text[i] = json_string_value(size);
        p->dim[i] = p->text[i] ? -1 : json_integer_value(size);
    }
    return true;
}

static bool read_ports(const json_t *list, Port *port, int *n, Err *err)
{
    size_t i;
    const json_t *one;
    if (json_array_size(list) > MOST_PORTS)
        return fail(err, E_LIMIT, "the model has %zu inputs or outputs; %d are the most", json_array_size(list),
                    MOST_PORTS);
    json_array_foreach(list, i, one) TRY(read_port(one, &port[i], err));
    *n = (int)json_array_size(list);
    return true;
}

static bool describe(Model *m, Err *err)
{
    qkv_error e;
    char *text = qkv_model_describe(m->model, &e);
    if (!text) return said(err, &e);
    json_t *root = json_read(text, strlen(text), "description", err);
    qkv_free(text);
    m->described = root;
    TRY(root);
    return read_ports(json_object_get(root, "inputs"), m->in, &m->nin, err) &&
           read_ports(json_object_get(root, "outputs"), m->out, &m->nout, err);
}

static bool same_size(const Port *a, int i, const Port *b, int k)
{
    if (a->text[i] && b->text[k]) return !strcmp(a->text[i], b->text[k]);
    return !a->text[i] && !b->text[k] && a->dim[i] == b->dim[k];
}

/* A symbol of the model, and its range; false for an expression. */
static bool symbol_range(const Model *m, const char *text, int64_t *min, int64_t *max)
{
    const char *name;
    for (int i = 0; (name = qkv_model_symbol(m->model, i, min, max)); i++)
        if (!strcmp(name, text)) return true;
    return false;
}

static void size_range(const Model *m, const Port *p, int axis, int64_t *min, int64_t *max)
{
    *min = p->text[axis] ? 1 : p->dim[axis];
    *max = p->text[axis] ? INT64_MAX : p->dim[axis];
    if (p->text[axis]) symbol_range(m, p->text[axis], min, max);
}

/* ------------------------------------------------------------------ may requests share a run? */

static bool cannot(Model *m, const char *fmt, ...) QKV_PRINTF(2, 3);
static bool cannot(Model *m, const char *fmt, ...)
{
    va_list v;
    va_start(v, fmt);
    text_vprintf(m->why, sizeof m->why, fmt, v);
    va_end(v);
    return false;
}

static bool begins_with_batch(Model *m, const Port *p, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (!p[i].rank || !p[i].text[0] || strcmp(p[i].text[0], m->in[0].text[0]))
            return cannot(m, "the first size of %s '%s' is not the batch", what, p[i].name);
    return true;
}

static bool has_batch(Model *m)
{
    if (!m->nin || !m->in[0].rank || !m->in[0].text[0]) return cannot(m, "its batch does not vary");
    if (!symbol_range(m, m->in[0].text[0], &m->min_rows, &m->max_rows))
        return cannot(m, "its batch is %s", m->in[0].text[0]);
    if (m->max_rows < 2) return cannot(m, "its batch does not vary");
    if (m->min_rows < 1) m->min_rows = 1;
    int64_t min, max;
    for (int i = 0; i < m->nin; i++)
        for (int k = 1; k < m->in[i].rank; k++)
            if (m->in[i].text[k] && !symbol_range(m, m->in[i].text[k], &min, &max))
                return cannot(m, "input '%s' has the size %s", m->in[i].name, m->in[i].text[k]);
    return begins_with_batch(m, m->in, m->nin, "input") && begins_with_batch(m, m->out, m->nout, "output");
}

/* Marks the axes of tokens; false where a size depends on them in another way, or an input has them elsewhere. */
static bool mark_tokens(Model *m, Port *port, int n, bool inputs)
{
    const char *tokens = m->in[m->mask].text[1];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < port[i].rank; k++) {
            const char *text = port[i].text[k];
            port[i].tokens[k] = text && !strcmp(text, tokens);
            if (port[i].tokens[k] ? inputs && k != 1 : text && strstr(text, tokens))
                return cannot(m, "'%s' has tokens along another axis than its second", port[i].name);
        }
    return true;
}

static bool has_tokens(Model *m, const char *mask)
{
    m->mask = -1;
    for (int i = 0; i < m->nin; i++)
        if (mask && !strcmp(m->in[i].name, mask)) m->mask = i;
    if (m->mask < 0) return cannot(m, "no input is a key padding mask whose padding can be skipped");
    const Port *p = &m->in[m->mask];
    if (p->rank != 2 || !p->text[1] || dtype_is_float(p->dtype))
        return cannot(m, "mask '%s' is not (batch, tokens) of integers", p->name);
    size_range(m, p, 1, &m->min_tokens, &m->max_tokens);
    return mark_tokens(m, m->in, m->nin, true) && mark_tokens(m, m->out, m->nout, false);
}

/* The mask that all of the model's padding follows from, as the rewriting reported it; NULL: none. */
static const char *mask_of(const json_t *report)
{
    const json_t *masks = json_object_get(json_object_get(report, "skip_padding"), "masks"), *one;
    const char *name = NULL;
    size_t i;
    json_array_foreach(masks, i, one)
    {
        if (!json_is_true(json_object_get(one, "applied")) || name) return NULL;
        name = json_string_value(json_object_get(one, "mask"));
    }
    return name;
}

/* ------------------------------------------------------------------ the trial */

typedef struct Trial { /* two requests, and what they gave alone and together */
    Arena *arena;
    Item item[2];
    Tensor out[2][2][MOST_PORTS];
    int together;
} Trial;

static bool keep_outputs(void *user, Item *item, const Tensor *out, Err *err)
{
    Trial *t = user;
    Tensor *to = t->out[t->together][item->index];
    for (int i = 0; out[i].dtype; i++) {
        void *data = arena_alloc(t->arena, tensor_bytes(&out[i]) + 1, 1);
        if (!data) return oom(err);
        to[i] = tensor_of(out[i].dtype, out[i].rank, out[i].shape, data);
        tensor_copy(&to[i], &out[i]);
    }
    return true;
}

static bool fill_trial(const Model *m, Trial *t, int index, int64_t tokens, uint64_t *state, Err *err)
{
    Item *item = &t->item[index];
    *item = (Item){.index = index, .in = arena_array(t->arena, Tensor, m->nin + 1)};
    if (!item->in) return oom(err);
    for (int i = 0; i < m->nin; i++) {
        const Port *p = &m->in[i];
        int64_t shape[MAX_RANK], max;
        size_t bytes;
        for (int k = 0; k < p->rank; k++) {
            size_range(m, p, k, &shape[k], &max);
            if (p->tokens[k]) shape[k] = tokens;
            if (k == 0 || shape[k] < 1) shape[k] = p->text[k] ? 1 : shape[k];
        }
        TRY(shape_bytes(p->dtype, p->rank, shape, &bytes, err));
        void *data = arena_alloc(t->arena, bytes + 1, 1);
        if (!data) return oom(err);
        Tensor x = item->in[i] = tensor_of(p->dtype, p->rank, shape, data);
        for (int64_t k = 0, n = tensor_numel(&x); k < n; k++) {
            double r = splitmix_uniform(state), v = dtype_is_float(p->dtype) ? 2 * r - 1 : (double)(r < 0.5);
            if (m->ragged && i == m->mask) v = (double)(1 - m->padding);
            store_f64(p->dtype, (char *)data + (size_t)k * dtype_size(p->dtype), v);
        }
    }
    return item_measure(m, item, err);
}

static bool agree(const Tensor *a, const Tensor *b)
{
    double peak = 0, most = 0;
    if (a->rank != b->rank || memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape)) return false;
    for (int64_t i = 0, n = tensor_numel(a); i < n; i++) {
        double x = tensor_get(a, i), y = tensor_get(b, i);
        if (isnan(x) && isnan(y)) continue;
        peak = fmax(peak, fabs(x));
        if (x != y) most = fmax(most, isfinite(x - y) ? fabs(x - y) : INFINITY);
    }
    return most <= tolerance_of(TOLERANCE_PADDING, a->dtype) * peak;
}

/* Two requests of these numbers of tokens give together what each gives alone. */
static bool try_two(Model *m, qkv_session *s, const int64_t tokens[2], Err *err)
{
    uint64_t state = 1;
    Trial t = {.arena = arena_create(0)};
    bool ok = t.arena || oom(err);
    Item *both[] = {&t.item[0], &t.item[1]};
    for (int i = 0; ok && i < 2; i++) ok = fill_trial(m, &t, i, tokens[i], &state, err);
    for (int i = 0; ok && i < 2; i++) ok = batch_run(m, s, &both[i], 1, keep_outputs, &t, err);
    t.together = 1;
    if (ok) ok = batch_run(m, s, both, 2, keep_outputs, &t, err);
    for (int i = 0; ok && i < 2; i++)
        for (int k = 0; ok && k < m->nout; k++)
            ok = agree(&t.out[0][i][k], &t.out[1][i][k]) ||
                 fail(err, E_MISMATCH, "output '%s' of a request changes when another shares its run", m->out[k].name);
    arena_destroy(t.arena);
    return ok;
}

static void forget_tokens(Model *m)
{
    m->ragged = false;
    for (int i = 0; i < MOST_PORTS; i++) {
        memset(m->in[i].tokens, 0, sizeof m->in[i].tokens);
        memset(m->out[i].tokens, 0, sizeof m->out[i].tokens);
    }
}

/* Which value of the mask is padding: the one that may be added without a change. */
static bool try_ragged(Model *m, qkv_session *s)
{
    Err e = {0};
    int64_t least = m->min_tokens > 2 ? m->min_tokens : 2, tokens[] = {least + 3, least};
    if (tokens[0] > m->max_tokens) return cannot(m, "its number of tokens hardly varies");
    m->ragged = true;
    for (m->padding = 0; m->padding < 2; m->padding++) {
        e = (Err){0};
        if (try_two(m, s, tokens, &e)) return true;
    }
    return cannot(m, "padding by its mask changes its results: %s", e.msg);
}

static bool try_together(Model *m, const char *mask, Err *err)
{
    qkv_error e;
    Err why = {0};
    qkv_session *s = qkv_session_create(m->model, &m->run, &e);
    if (!s) return said(err, &e);
    m->together = true;
    if (!has_tokens(m, mask) || !try_ragged(m, s)) {
        forget_tokens(m);
        int64_t tokens = m->min_tokens > 2 ? m->min_tokens : 2;
        m->together = try_two(m, s, (int64_t[]){tokens, tokens}, &why);
        if (!m->together) cannot(m, "%s", why.msg);
    }
    qkv_session_free(s);
    return true;
}

/* ------------------------------------------------------------------ texts */

static bool no_texts(Model *m, const char *fmt, ...) QKV_PRINTF(2, 3);
static bool no_texts(Model *m, const char *fmt, ...)
{
    va_list v;
    va_start(v, fmt);
    text_vprintf(m->no_texts, sizeof m->no_texts, fmt, v);
    va_end(v);
    return true;
}

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

static bool beside(const Source *s, const char *file, char *out, size_t size)
{
    const char *slash = strrchr(s->path, '/');
    text_printf(out, size, "%.*s%s", slash ? (int)(slash - s->path) + 1 : 0, s->path, file);
    return access(out, R_OK) == 0;
}

static bool open_tokenizer(Model *m, const Source *s, Err *err)
{
    qkv_error e;
    char found[4096];
    const char *path = s->tokenizer;
    if (!path && (beside(s, "vocab.txt", found, sizeof found) || beside(s, "tokenizer.json", found, sizeof found)))
        path = found;
    if (!path) return no_texts(m, "it has no tokenizer: neither vocab.txt nor tokenizer.json lies beside its file");
    m->tokenizer = ends_in(path, ".json") ? qkv_tokenizer_json(path, &e) : qkv_tokenizer_wordpiece(path, !s->cased, &e);
    if (m->tokenizer) return true;
    return s->tokenizer ? said(err, &e) : no_texts(m, "%s", e.message);
}

static int embedding_output(const Model *m)
{
    const Port *ids = &m->in[m->role[ROLE_IDS]];
    int rank[MOST_PORTS];
    for (int i = 0; i < m->nout; i++) {
        const Port *p = &m->out[i];
        bool fits = p->rank && same_size(p, 0, ids, 0) && (p->rank == 2 || (p->rank == 3 && same_size(p, 1, ids, 1)));
        rank[i] = fits ? p->rank : 0;
    }
    return text_output(rank, m->nout);
}

static bool open_texts(Model *m, const Source *s, Err *err)
{
    Err why = {0};
    int64_t rows, most;
    if (!text_roles(m->model, m->role, &why)) return no_texts(m, "%s", why.msg);
    const Port *ids = &m->in[m->role[ROLE_IDS]];
    size_range(m, ids, 1, &m->least, &most);
    size_range(m, ids, 0, &rows, &(int64_t){0});
    if (!ids->text[0] && rows != 1) return no_texts(m, "it takes exactly %lld texts at a time", (long long)rows);
    int64_t limit = s->text_tokens ? s->text_tokens : TEXT_TOKENS;
    m->capacity = (int)(most < limit ? most : limit);
    if (m->capacity < 2) return no_texts(m, "it takes %d tokens at most", m->capacity);
    m->embeds = embedding_output(m);
    if (m->embeds < 0) return no_texts(m, "no output is (batch, tokens, E) or (batch, E)");
    const Port *out = &m->out[m->embeds];
    m->width = out->dim[out->rank - 1];
    m->cls = s->cls;
    return open_tokenizer(m, s, err);
}

/* ------------------------------------------------------------------ pictures */

qkv_segmenter *served_segmenter(const Model *m, qkv_session *s, size_t features, Err *err)
{
    qkv_error e;
    qkv_segment_options o = {.struct_size = sizeof o,
                             .tokenizer = m->source->tokenizer,
                             .processor = m->source->processor,
                             .features = features};
    qkv_segmenter *g = qkv_segmenter_create(m->model, s, &o, &e);
    if (!g) said(err, &e);
    return g;
}

/* A session is made only for a model that may be one. */
static bool open_pictures(Model *m, Err *err)
{
    qkv_error e;
    Err why = {0};
    bool any = false;
    for (int i = 0; i < m->nin; i++) any |= m->in[i].rank == 4 && m->in[i].dtype == DT_F32;
    if (!any) {
        text_printf(m->no_segments, sizeof m->no_segments, "it takes no picture (B, 3, H, W)");
        return true;
    }
    qkv_session *s = qkv_session_create(m->model, &m->run, &e);
    if (!s) return said(err, &e);
    qkv_segmenter *g = served_segmenter(m, s, 0, &why);
    m->segments = g != NULL;
    if (!g) text_printf(m->no_segments, sizeof m->no_segments, "%s", why.msg);
    qkv_segmenter_free(g);
    qkv_session_free(s);
    return true;
}

/* ------------------------------------------------------------------ opening */

static qkv_model *load(const Source *s, bool cached, Err *err)
{
    qkv_error e;
    qkv_load_options load = {.struct_size = sizeof load,
                             .compute = s->bf16 ? QKV_BF16 : QKV_NONE,
                             .no_mmap = s->no_mmap,
                             .cache = cached ? s->cache : NULL,
                             .skip_padding = cached};
    qkv_model *m = qkv_model_load(s->path, &load, &e);
    if (!m) said(err, &e);
    return m;
}

/* The model on real tokens only, where that is possible; *report is to be freed. */
static bool load_skipping(Model *m, const Source *s, json_t **report, Err *err)
{
    qkv_error e;
    char *text = NULL;
    qkv_rewrite_options options = {.struct_size = sizeof options, .skip_padding = 1};
    qkv_model *plain = load(s, false, err);
    TRY(plain);
    m->model = qkv_model_rewrite(plain, &options, &text, &e);
    if (!m->model) said(err, &e);
    qkv_model_free(plain);
    *report = text && m->model ? json_read(text, strlen(text), "report", err) : NULL;
    qkv_free(text);
    TRY(*report);
    if (!s->cache) return true;
    qkv_model_free(m->model);
    m->model = load(s, true, err);
    return m->model != NULL;
}

static bool fill(Model *m, const Source *s, Err *err)
{
    json_t *report = NULL;
    m->run = (qkv_session_options){.struct_size = sizeof m->run,
                                   .threads = s->threads,
                                   .memory_limit = s->memory_limit,
                                   .no_optimize = s->no_optimize,
                                   .portable_bits = s->portable_bits};
    bool ok = load_skipping(m, s, &report, err) && describe(m, err);
    if (ok) {
        m->resets = qkv_model_state(m->model) != 0;
        m->mask = -1;
        if (s->no_batch) cannot(m, "each request was asked to run alone");
        else if (m->resets) cannot(m, "a run leaves something for the next one");
        else if (has_batch(m)) ok = try_together(m, mask_of(report), err);
    }
    json_free(report);
    return ok && open_pictures(m, err) && (m->segments || open_texts(m, s, err));
}

Model *served_open(const Source *s, Err *err)
{
    mem_begin();
    Model *m = mem_zeroed(1, sizeof *m);
    if (!m) {
        oom(err);
        return NULL;
    }
    atomic_init(&m->references, 1);
    m->source = s;
    if (fill(m, s, err)) return m;
    within(err, "model '%s'", s->name);
    served_drop(m);
    return NULL;
}

Model *served_take(Model *m)
{
    atomic_fetch_add(&m->references, 1);
    return m;
}

void served_drop(Model *m)
{
    if (!m || atomic_fetch_sub(&m->references, 1) > 1) return;
    qkv_tokenizer_free(m->tokenizer);
    qkv_model_free(m->model);
    json_free((json_t *)(uintptr_t)m->described);
    mem_free(m);
}
