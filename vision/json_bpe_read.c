/* Reading a tokenizer.json. Contract in json_bpe.h. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "base/mem.h"
#include "vision/json_bpe_impl.h"

static const char supported[] = "supported is a byte-level BPE (GPT-2, Llama 3, Qwen)";

/* ------------------------------------------------------------------ vocabulary */

/* The byte that a character stands for (bytes_to_unicode): its own where it is printable, the others from U+0100 on;
 * -1: for none. */
static int byte_of(utf8proc_int32_t c)
{
    static const unsigned char other[] = {127, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138,
                                          139, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149, 150,
                                          151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 173};
    if ((c >= 33 && c <= 126) || (c >= 161 && c <= 255 && c != 173)) return c;
    if (c >= 256 && c <= 288) return c - 256;
    return c >= 289 && c < 289 + (int)sizeof other ? other[c - 289] : -1;
}

/* The bytes that a token stands for; its text, which stays, where it has a character that stands for none or where they
 * are the same. */
static bool set_word(JsonBpe *t, int64_t id, const char *token, size_t size, bool special, Err *err)
{
    size_t n = 0;
    while (n < size && token[n] >= 33 && token[n] <= 126) n++;
    if (n == size) {
        t->word[id] = (Word){token, (uint32_t)n, special};
        return true;
    }
    char *bytes = arena_strndup(t->arena, token, size);
    if (!bytes) return oom(err);
    n = 0;
    for (size_t at = 0; at < size;) {
        utf8proc_int32_t c = 0;
        utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)token + at, (utf8proc_ssize_t)(size - at), &c);
        int byte = k > 0 ? byte_of(c) : -1;
        if (byte < 0) {
            memcpy(bytes, token, size);
            n = size;
            break;
        }
        bytes[n++] = (char)byte;
        at += (size_t)k;
    }
    t->word[id] = (Word){bytes, (uint32_t)n, special};
    return true;
}

static bool take_id(JsonBpe *t, const char *token, const json_t *v, int *id, Err *err)
{
    int64_t n = json_to_int(v);
    if (!json_is_integer(v) || n < 0)
        return fail(err, E_FORMAT, "token '%.40s': its id is not an integer of 0 or more", token);
    if (n >= MAX_IDS)
        return fail(err, E_LIMIT, "token '%.40s': its id is %lld, at most %d are read", token, (long long)n, MAX_IDS);
    if (n >= t->size) t->size = n + 1;
    *id = (int)n;
    return true;
}

int json_bpe_in_vocab(const JsonBpe *t, const char *token) { return (int)(intptr_t)map_get(&t->id, token) - 1; }

static bool read_vocab(JsonBpe *t, const json_t *model, Err *err)
{
    json_t *vocab, *v;
    const char *token;
    int id = 0;
    TRY(json_want_object(model, "vocab", &vocab, err));
    json_object_foreach(vocab, token, v)
    {
        TRY(take_id(t, token, v, &id, err));
        const char *key = arena_strdup(t->arena, token);
        if (!key || !map_put(&t->id, key, (void *)(intptr_t)(id + 1))) return oom(err);
    }
    return json_object_size(vocab) || fail(err, E_FORMAT, "vocab: it has no tokens");
}

/* Room for all ids, which are known now. */
static bool read_words(JsonBpe *t, const json_t *model, Err *err)
{
    json_t *v, *vocab = json_find(model, "vocab");
    const char *token;
    int64_t tokens = (int64_t)json_object_size(vocab) + t->nadded;
    if (t->size > SPARSE * tokens + FREE_IDS)
        return fail(err, E_LIMIT, "ids go up to %lld for %lld tokens: at most %d ids a token and %d more are read",
                    (long long)t->size - 1, (long long)tokens, SPARSE, FREE_IDS);
    t->word = mem_zeroed((size_t)t->size + 1, sizeof *t->word);
    if (!t->word) return oom(err);
    for (size_t i = 0; i < t->id.count; i++) {
        const MapEntry *e = &t->id.entries[i];
        TRY(set_word(t, (intptr_t)e->value - 1, e->key, strlen(e->key), false, err));
    }
    for (int i = 0; i < t->nadded; i++) {
        const Added *a = &t->added[i];
        TRY(set_word(t, a->id, a->content, a->size, a->special, err));
    }
    for (int b = 0; b < BYTES; b++) t->byte_id[b] = -1;
    json_object_foreach(vocab, token, v)
    {
        const Word *w = &t->word[json_to_int(v)];
        utf8proc_int32_t c;
        if (w->size != 1) continue;
        utf8proc_iterate((const utf8proc_uint8_t *)token, -1, &c);
        if (byte_of(c) == (unsigned char)w->bytes[0]) t->byte_id[(unsigned char)w->bytes[0]] = (int)json_to_int(v);
    }
    return true;
}

/* ------------------------------------------------------------------ merges */

/* "a b", or ["a", "b"] */
static bool merge_parts(const json_t *m, const char **a, size_t *na, const char **b, size_t *nb)
{
    if (json_is_string(m)) {
        const char *gap = strchr(json_string_value(m), ' ');
        *a = json_string_value(m);
        *na = gap ? (size_t)(gap - *a) : 0;
        *b = gap ? gap + 1 : "";
        *nb = strlen(*b);
    } else {
        *a = json_string_value(json_element(m, 0));
        *b = json_string_value(json_element(m, 1));
        *na = *a ? strlen(*a) : 0;
        *nb = *b && json_array_size(m) == 2 ? strlen(*b) : 0;
    }
    return *na && *nb;
}

static bool add_merge(JsonBpe *t, const json_t *m, int rank, Err *err)
{
    const char *a, *b;
    size_t na, nb;
    if (!merge_parts(m, &a, &na, &b, &nb))
        return fail(err, E_FORMAT, "merge %d is not two tokens: expected \"a b\" or [\"a\", \"b\"]", rank);
    char *whole = mem_alloc(na + nb + 1);
    if (!whole) return oom(err);
    memcpy(whole, a, na);
    whole[na] = 0;
    int left = json_bpe_in_vocab(t, whole), right = json_bpe_in_vocab(t, b);
    memcpy(whole + na, b, nb + 1);
    int id = json_bpe_in_vocab(t, whole);
    bool ok = left >= 0 && right >= 0 && id >= 0;
    if (!ok) fail(err, E_FORMAT, "merge %d makes '%.60s': it or one of its parts is not in vocab", rank, whole);
    mem_free(whole);
    TRY(ok);
    Merge *slot = merges_slot(&t->merges, left, right);
    if (!slot->pair) *slot = (Merge){merges_pair(left, right), rank, id};
    else slot->rank = rank; /* `tokenizers` keeps the last of equal ones */
    return true;
}

static bool read_merges(JsonBpe *t, const json_t *model, Err *err)
{
    json_t *list, *m;
    size_t i;
    TRY(json_want_array(model, "merges", &list, err));
    if (json_array_size(list) > MAX_IDS) return fail(err, E_LIMIT, "more than %d merges", MAX_IDS);
    TRY(merges_room(&t->merges, json_array_size(list), err));
    json_array_foreach(list, i, m) TRY(add_merge(t, m, (int)i, err));
    return true;
}

/* ------------------------------------------------------------------ the model */

static bool read_kind(const json_t *model, Err *err)
{
    const char *type = json_string_value(json_find(model, "type"));
    if (!json_is_object(model)) return fail(err, E_FORMAT, "no 'model' in it: not a tokenizer.json");
    if (!type) type = json_find(model, "merges") ? "BPE" : "of a kind that is not named";
    if (strcmp(type, "BPE")) return fail(err, E_UNSUPPORTED, "a tokenizer of kind %.40s; %s", type, supported);
    bool bytes = false;
    TRY(json_may_bool(model, "byte_fallback", &bytes, err));
    if (bytes)
        return fail(err, E_UNSUPPORTED,
                    "a BPE of characters with byte_fallback (SentencePiece's, as of Llama 2, Gemma "
                    "and Mistral); %s",
                    supported);
    const char *const none[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        const char *s = json_string_value(json_find(model, none[i]));
        if (s && *s) return fail(err, E_UNSUPPORTED, "model: %s '%.20s'; %s", none[i], s, supported);
    }
    if (json_is_number(json_find(model, "dropout")) && json_to_double(json_find(model, "dropout")) > 0)
        return fail(err, E_UNSUPPORTED, "model: dropout: the ids of a text would be random");
    return true;
}

static bool read_model(JsonBpe *t, const json_t *model, Err *err)
{
    const char *unk = json_string_value(json_find(model, "unk_token"));
    TRY(read_vocab(t, model, err) && read_merges(t, model, err));
    t->unk = unk ? json_bpe_in_vocab(t, unk) : -1;
    return json_may_bool(model, "fuse_unk", &t->fuse_unk, err) &&
           json_may_bool(model, "ignore_merges", &t->ignore_merges, err);
}

/* ------------------------------------------------------------------ added tokens */

static bool read_flags(Added *a, const json_t *v, Err *err)
{
    return json_may_bool(v, "special", &a->special, err) && json_may_bool(v, "single_word", &a->single_word, err) &&
           json_may_bool(v, "lstrip", &a->lstrip, err) && json_may_bool(v, "rstrip", &a->rstrip, err) &&
           json_may_bool(v, "normalized", &a->normalized, err);
}

static bool read_added(JsonBpe *t, const json_t *list, Err *err)
{
    json_t *v;
    size_t i;
    if (!list || json_is_null(list)) return true;
    if (!json_is_array(list)) return fail(err, E_FORMAT, "added_tokens: found %s, expected array", json_kind(list));
    t->added = mem_zeroed(json_array_size(list) + 1, sizeof *t->added);
    if (!t->added) return oom(err);
    json_array_foreach(list, i, v)
    {
        const char *content;
        Added *a = &t->added[t->nadded];
        TRY(json_want_string(v, "content", &content, err) || within(err, "added_tokens %zu", i));
        if (!*content) continue;
        *a = (Added){.content = arena_strndup(t->arena, content, strlen(content)),
                     .size = strlen(content)};
        if (!a->content) return oom(err);
        TRY(read_flags(a, v, err) || within(err, "added_tokens %zu", i));
        TRY(take_id(t, content, json_find(v, "id"), &a->id, err));
        if (!map_put(&t->added_id, a->content, (void *)(intptr_t)(a->id + 1))) return oom(err);
        t->nadded++;
    }
    return true;
}

/* By content; of those that are the same the first id comes last, where it is found first. */
static int by_content(const void *x, const void *y)
{
    const Added *a = *(const Added *const *)x, *b = *(const Added *const *)y;
    int sign = memcmp(a->content, b->content, a->size < b->size ? a->size : b->size);
    if (sign) return sign;
    if (a->size != b->size) return a->size < b->size ? -1 : 1;
    return b->id - a->id;
}

static bool begins_with(const Added *a, const Added *start)
{
    return start->size <= a->size && !memcmp(start->content, a->content, start->size);
}

/* Whatever a token begins with comes before it, and what comes between begins so, too. */
static void find_starts(AddedSet *s)
{
    for (int i = 0, at = -1; i < s->n; at = i++) {
        while (at >= 0 && !begins_with(s->token[i], s->token[at])) at = s->start[at];
        s->start[i] = at;
    }
}

/* What a token that is looked for after the normalizer looks like there. */
static bool normalize_added(JsonBpe *t, Err *err)
{
    for (int i = 0; i < t->nadded && t->normal_form; i++) {
        Added *a = &t->added[i];
        if (!a->normalized) continue;
        char *text = json_bpe_normal(t, a->content, a->size, &a->size, err);
        TRY(text);
        a->content = arena_strndup(t->arena, text, a->size);
        mem_free_c(text);
        if (!a->content) return oom(err);
    }
    return true;
}

static bool sort_added(JsonBpe *t, Err *err)
{
    TRY(normalize_added(t, err));
    for (int k = 0; k < 2; k++) {
        AddedSet *s = &t->before_and_after[k];
        s->token = mem_zeroed((size_t)t->nadded + 1, sizeof *s->token);
        s->start = mem_zeroed((size_t)t->nadded + 1, sizeof *s->start);
        if (!s->token || !s->start) return oom(err);
        for (int i = 0; i < t->nadded; i++)
            if (t->added[i].normalized == (k == 1) && t->added[i].size) s->token[s->n++] = &t->added[i];
        qsort(s->token, (size_t)s->n, sizeof *s->token, by_content);
        find_starts(s);
        for (int b = 0, i = 0; b <= BYTES; b++) {
            while (i < s->n && (unsigned char)s->token[i]->content[0] < b) i++;
            s->first[b] = i;
        }
    }
    return true;
}

/* ------------------------------------------------------------------ the rest */

static bool read_normalizer(JsonBpe *t, const json_t *o, int depth, Err *err)
{
    static const struct {
        const char *name;
        int options;
    } forms[] = {{"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
                 {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
                 {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                 {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
    if (!o || json_is_null(o)) return true;
    const char *type = json_string_value(json_find(o, "type"));
    json_t *list = json_find(o, "normalizers");
    if (type && !strcmp(type, "Sequence") && json_is_array(list) && json_array_size(list) <= 1 && depth < 4)
        return read_normalizer(t, json_element(list, 0), depth + 1, err);
    for (size_t i = 0; type && i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(type, forms[i].name)) t->normal_form = forms[i].options;
    return t->normal_form || fail(err, E_UNSUPPORTED, "normalizer '%.40s': supported are NFC, NFD, NFKC, NFKD and none",
                                  type ? type : json_kind(o));
}

/* The ids of a special token of a template. */
static bool template_ids(JsonBpe *t, const json_t *o, const char *name, bool after, Err *err)
{
    const json_t *ids = json_find(json_find(json_find(o, "special_tokens"), name), "ids");
    json_t *v;
    size_t i;
    if (!json_is_array(ids)) return fail(err, E_FORMAT, "special_tokens has no ids of '%.40s'", name);
    json_array_foreach(ids, i, v)
    {
        int *n = after ? &t->nsuffix : &t->nprefix;
        int64_t id = json_to_int(v);
        if (*n == MAX_TEMPLATE) return fail(err, E_LIMIT, "more than %d special tokens", MAX_TEMPLATE);
        if (!json_is_integer(v) || id < 0 || id >= t->size || !t->word[id].bytes)
            return fail(err, E_FORMAT, "the id of '%.40s' is not one of the vocabulary", name);
        (after ? t->suffix : t->prefix)[(*n)++] = id;
    }
    return true;
}

static bool read_template(JsonBpe *t, const json_t *o, Err *err)
{
    json_t *list, *v;
    size_t i;
    bool after = false;
    TRY(json_want_array(o, "single", &list, err));
    json_array_foreach(list, i, v)
    {
        const char *special = json_string_value(json_find(json_find(v, "SpecialToken"), "id"));
        if (special) TRY(template_ids(t, o, special, after, err));
        else if (after || !json_is_object(json_find(v, "Sequence")))
            return fail(err, E_FORMAT, "single: element %zu is neither a SpecialToken nor the one Sequence", i);
        else after = true;
    }
    return after || fail(err, E_FORMAT, "single: there is no Sequence in it");
}

static bool read_post(JsonBpe *t, const json_t *o, int depth, Err *err)
{
    if (!o || json_is_null(o)) return true;
    const char *type = json_string_value(json_find(o, "type"));
    json_t *v, *list = json_find(o, "processors");
    size_t i;
    if (type && !strcmp(type, "Sequence") && json_is_array(list) && depth < 4) {
        json_array_foreach(list, i, v) TRY(read_post(t, v, depth + 1, err));
        return true;
    }
    if (type && !strcmp(type, "ByteLevel")) return true; /* about offsets, which are not given out */
    if (type && !strcmp(type, "TemplateProcessing") && !t->nprefix && !t->nsuffix) return read_template(t, o, err);
    return fail(err, E_UNSUPPORTED, "'%.40s': supported are ByteLevel and one TemplateProcessing",
                type ? type : json_kind(o));
}

static bool read(JsonBpe *t, const json_t *root, Err *err)
{
    const json_t *model = json_find(root, "model");
    TRY(read_kind(model, err) && (read_model(t, model, err) || within(err, "model")));
    TRY(read_added(t, json_find(root, "added_tokens"), err) && read_words(t, model, err));
    TRY(read_normalizer(t, json_find(root, "normalizer"), 0, err) && sort_added(t, err));
    t->splitter = splitter_open(json_find(root, "pre_tokenizer"), err);
    TRY(t->splitter);
    if (!splitter_has_bytes(t->splitter))
        return fail(err, E_UNSUPPORTED, "a BPE without ByteLevel in its pre_tokenizer; %s", supported);
    return read_post(t, json_find(root, "post_processor"), 0, err) || within(err, "post_processor");
}

JsonBpe *json_bpe_open(json_t *root, const char *what, Err *err)
{
    if (!root) return NULL;
    JsonBpe *t = mem_zeroed(1, sizeof *t);
    bool ok = (t && (t->arena = arena_create(0))) || oom(err);
    ok = ok && (read(t, root, err) || within(err, "%s", what));
    json_free(root);
    if (ok) return t;
    json_bpe_free(t);
    return NULL;
}

void json_bpe_free(JsonBpe *t)
{
    if (!t) return;
    for (int k = 0; k < 2; k++) {
        mem_free(t->before_and_after[k].token);
        mem_free(t->before_and_after[k].start);
    }
    splitter_free(t->splitter);
    merges_free(&t->merges);
    map_free(&t->id);
    map_free(&t->added_id);
    mem_free(t->word);
    mem_free(t->added);
    arena_destroy(t->arena);
    mem_free(t);
}

int64_t json_bpe_size(const JsonBpe *t) { return t->size; }

int64_t json_bpe_find(const JsonBpe *t, const char *token)
{
    int added = (int)(intptr_t)map_get(&t->added_id, token) - 1;
    return added >= 0 ? added : json_bpe_in_vocab(t, token);
}

const char *json_bpe_bytes(const JsonBpe *t, int64_t id, size_t *n)
{
    if (id < 0 || id >= t->size || !t->word[id].bytes) return NULL;
    *n = t->word[id].size;
    return t->word[id].bytes;
}

bool json_bpe_is_special(const JsonBpe *t, int64_t id) { return id >= 0 && id < t->size && t->word[id].special; }
