/* Contract in openai.h. */
#include "serve/openai.h"
#include <math.h>
#include <string.h>
#include "base/jsonw.h"
#include "base/mem.h"
#include "base/number.h"
#include "format/json.h"
#include "serve/oip.h"

/* ------------------------------------------------------------------ the request */

static bool read_fields(Embeddings *r, Err *err)
{
    const json_t *format = json_object_get(r->root, "encoding_format"),
                 *dimensions = json_object_get(r->root, "dimensions"), *input = json_object_get(r->root, "input");
    if (!json_is_object(r->root)) return fail(err, E_USAGE, "the body is not a JSON object");
    TRY(json_want_string(r->root, "model", &r->model, err));
    if (!input) return fail(err, E_USAGE, "field 'input': missing");
    const char *name = json_string_value(format);
    if (format && !json_is_null(format) && !name)
        return fail(err, E_USAGE, "'encoding_format' is %s, expected \"float\" or \"base64\"", json_kind(format));
    r->base64 = name && !strcmp(name, "base64");
    if (name && !r->base64 && strcmp(name, "float"))
        return fail(err, E_USAGE, "'encoding_format' is '%s', expected \"float\" or \"base64\"", name);
    if (!dimensions || json_is_null(dimensions)) return true;
    r->dimensions = json_to_int(dimensions);
    return (json_is_integer(dimensions) && r->dimensions > 0) ||
           fail(err, E_USAGE, "'dimensions' is not an integer above 0");
}

Embeddings *embeddings_read(const void *body, size_t size, Err *err)
{
    Arena *a;
    Embeddings *r = request_new(sizeof *r, &a, err);
    if (!r) return NULL;
    r->arena = a;
    r->root = request_json(body, size, NULL, err);
    if (r->root && read_fields(r, err)) return r;
    embeddings_free(r);
    return NULL;
}

void embeddings_free(Embeddings *r)
{
    if (!r) return;
    for (int i = 0; r->row && i < r->call.n; i++) mem_free(r->row[i]);
    json_free(r->root);
    arena_destroy(r->arena);
}

/* ------------------------------------------------------------------ tokens */

/* Ids that the caller made itself. */
static bool read_ids(const Model *m, const json_t *list, int at, int64_t *ids, int *length, Err *err)
{
    const json_t *one;
    size_t i, n = json_array_size(list);
    if (!n || n > (size_t)m->capacity)
        return fail(err, E_USAGE, "input %d has %zu tokens, expected 1 to %d", at, n, m->capacity);
    json_array_foreach(list, i, one)
    {
        if (!json_is_integer(one) || json_to_int(one) < 0)
            return fail(err, E_USAGE, "input %d: token %zu is %s, expected an id", at, i, json_kind(one));
        ids[i] = json_to_int(one);
        if (!dtype_holds(m->in[m->role[ROLE_IDS]].dtype, ids[i]))
            return fail(err, E_USAGE, "input %d: token %zu is %lld, which %s does not hold", at, i, (long long)ids[i],
                        dtype_name(m->in[m->role[ROLE_IDS]].dtype));
    }
    *length = (int)n;
    return true;
}

/* A text that is too long is cut. */
static bool encode(const Model *m, const json_t *text, int at, int64_t *ids, int *length, Err *err)
{
    qkv_error e;
    if (!json_is_string(text))
        return fail(err, E_USAGE, "input %d is %s, expected a text or a list of token ids", at, json_kind(text));
    if (!json_string_length(text)) return fail(err, E_USAGE, "input %d is an empty text", at);
    int n = qkv_tokenizer_encode(m->tokenizer, json_string_value(text), ids, m->capacity, &e);
    if (n < 0) {
        said(err, &e);
        if (!mem_ran_out()) err->code = E_USAGE; /* what is wrong with a text is its sender's matter */
        return within(err, "input %d", at);
    }
    if (!n) return fail(err, E_USAGE, "input %d has no tokens", at);
    *length = n < m->capacity ? n : m->capacity;
    return true;
}

static bool make_inputs(const Model *m, Embeddings *r, int at, const int64_t *ids, Err *err)
{
    Item *item = &r->call.item[at];
    int length = r->length[at];
    int64_t shape[] = {1, length > m->least ? length : m->least};
    item->in = arena_array(r->arena, Tensor, m->nin + 1);
    if (!item->in) return oom(err);
    for (int role = 0; role < ROLES; role++) {
        int i = m->role[role];
        if (i < 0) continue;
        size_t size = dtype_size(m->in[i].dtype);
        char *data = arena_alloc(r->arena, (size_t)shape[1] + 1, size);
        if (!data) return oom(err);
        for (int64_t k = 0; k < shape[1]; k++)
            store_i64(m->in[i].dtype, data + (size_t)k * size, text_value((Role)role, ids, length, k));
        item->in[i] = tensor_of(m->in[i].dtype, 2, shape, data);
    }
    r->tokens += length;
    return true;
}

static bool take_embedding(void *user, Item *item, const Tensor *out, Err *err)
{
    Embeddings *r = user;
    const Model *m = r->call.model;
    const Tensor *y = &out[m->embeds];
    int64_t width = y->shape[y->rank - 1];
    float *row = mem_alloc((size_t)width * sizeof *row + 1);
    if (!row) return oom(err);
    text_pool(y, 0, r->length[item->index], m->cls, row);
    mem_free(r->row[item->index]);
    r->row[item->index] = row;
    if (!item->index) r->width = width;
    return true;
}

static bool is_id_list(const json_t *input) { return json_is_array(input) && json_is_integer(json_element(input, 0)); }

/* One text, several, the ids of one, those of several. */
static bool bind(Embeddings *r, const Model *m, Err *err)
{
    const json_t *input = json_object_get(r->root, "input"), *one;
    bool several = json_is_array(input) && !is_id_list(input);
    size_t n = several ? json_array_size(input) : 1;
    if (!n || n > MOST_TEXTS) return fail(err, E_USAGE, "'input' has %zu texts, expected 1 to %d", n, MOST_TEXTS);
    if (r->dimensions && m->width >= 0 && r->dimensions > m->width)
        return fail(err, E_USAGE, "'dimensions' is %lld, the model's embeddings have %lld", (long long)r->dimensions,
                    (long long)m->width);
    r->call.item = arena_array(r->arena, Item, n);
    r->length = arena_array(r->arena, int, n);
    r->row = arena_array(r->arena, float *, n);
    int64_t *ids = arena_array(r->arena, int64_t, m->capacity + 1);
    if (!r->call.item || !r->length || !r->row || !ids) return oom(err);
    r->call.n = (int)n;
    one = several ? json_below(input) : input;
    for (int i = 0; i < (int)n; i++) {
        TRY(json_is_array(one) ? read_ids(m, one, i, ids, &r->length[i], err)
                               : encode(m, one, i, ids, &r->length[i], err));
        TRY(make_inputs(m, r, i, ids, err));
        if (i + 1 < (int)n) one = json_next(one);
    }
    return true;
}

bool embeddings_bind(Embeddings *r, const Model *m, Err *err)
{
    if (!m->tokenizer) return fail(err, E_USAGE, "model '%s' takes no texts: %s", r->model, m->no_texts);
    r->call.take = take_embedding;
    r->call.user = r;
    r->call.level = LEVEL_DEFAULT;
    return bind(r, m, err);
}

/* ------------------------------------------------------------------ the answer */

void base64_put(Buf *out, const void *bytes, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)b[i] << 16 | (i + 1 < n ? (unsigned)b[i + 1] << 8 : 0) | (i + 2 < n ? b[i + 2] : 0u);
        char four[] = {digit[v >> 18], digit[v >> 12 & 63], i + 1 < n ? digit[v >> 6 & 63] : '=',
                       i + 2 < n ? digit[v & 63] : '='};
        buf_add(out, four, sizeof four);
    }
}

static void put_floats(const float *v, int64_t n, Buf *out)
{
    char text[DOUBLE_TEXT];
    buf_puts(out, "[");
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(v[i])) text_printf(text, sizeof text, i ? ",%.9g" : "%.9g", (double)v[i]);
        else text_printf(text, sizeof text, i ? ",null" : "null");
        buf_puts(out, text);
    }
    buf_puts(out, "]");
}

bool embeddings_write(const Embeddings *r, Buf *out, Err *err)
{
    int64_t width = r->dimensions ? r->dimensions : r->width;
    if (width > r->width)
        return fail(err, E_USAGE, "'dimensions' is %lld, the model's embeddings have %lld", (long long)width,
                    (long long)r->width);
    jw_put(out, "{'object': 'list', 'data': [");
    for (int i = 0; i < r->call.n; i++) {
        if (width < r->width) text_normalize(r->row[i], width);
        jw_put(out, "{'object': 'embedding', 'index': %d", i);
        jw_key(out, "embedding");
        if (r->base64) {
            buf_puts(out, "\"");
            base64_put(out, r->row[i], (size_t)width * sizeof *r->row[i]);
            buf_puts(out, "\"");
        } else put_floats(r->row[i], width, out);
        jw_close(out, "}");
    }
    jw_put(out, "], 'model': %s", r->model);
    jw_put(out, "'usage': {'prompt_tokens': %lld, 'total_tokens': %lld}}", (long long)r->tokens, (long long)r->tokens);
    return !out->failed || oom(err);
}

void openai_model(const char *name, int64_t created, Buf *out)
{
    jw_put(out, "{'id': %s, 'object': 'model', 'created': %lld, 'owned_by': 'qkv'}", name, (long long)created);
}
