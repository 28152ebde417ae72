/* Texts to ids. Contract in json_bpe.h. The steps are those of Hugging Face's `tokenizers` (0.23): added tokens are
 * taken out of the text, the rest is normalized, added tokens are taken out of that, the rest is split, and every piece
 * is joined from its bytes.
 */
#include "vision/json_bpe.h"
#include <limits.h>
#include <string.h>
#include <utf8proc.h>
#include "base/mem.h"
#include "vision/json_bpe_impl.h"

enum { MAX_TEXT = 1 << 26 };

typedef struct Encoding {
    const JsonBpe *t;
    int64_t *ids;
    int n, cap; /* n goes on above cap */
    Pieces pieces;
    int *symbol;
    size_t room;
    Join join;
    Err *err;
} Encoding;

static void add(Encoding *e, int64_t id)
{
    if (e->n < e->cap) e->ids[e->n] = id;
    e->n++;
}

/* ------------------------------------------------------------------ a piece */

/* Its bytes' ids, without those that the vocabulary lacks; how many. */
static size_t symbols_of(const JsonBpe *t, const char *p, size_t size, int *symbol)
{
    size_t n = 0;
    bool unknown = false;
    for (size_t i = 0; i < size; i++) {
        int id = t->byte_id[(unsigned char)p[i]];
        bool fused = id < 0 && unknown && t->fuse_unk;
        unknown = id < 0;
        if (unknown) id = t->unk;
        if (id >= 0 && !fused) symbol[n++] = id;
    }
    return n;
}

/* A piece that is a token as a whole, whatever the merges say. */
static int whole_word(Encoding *e, const char *p, size_t size)
{
    char token[256];
    size_t n = 0;
    if (!e->t->ignore_merges || size > sizeof token / 4) return -1;
    for (size_t i = 0; i < size; i++) {
        int id = e->t->byte_id[(unsigned char)p[i]];
        if (id < 0) return -1;
        unsigned char c = (unsigned char)p[i];
        int code = (c >= 33 && c <= 126) || (c >= 161 && c != 173) ? c
                   : c <= 32                                       ? 256 + c
                   : c == 173                                      ? 289 + 34
                                                                   : 289 + c - 127;
        n += (size_t)utf8proc_encode_char(code, (utf8proc_uint8_t *)token + n);
    }
    token[n] = 0;
    return json_bpe_in_vocab(e->t, token);
}

static bool add_piece(Encoding *e, const char *p, size_t size)
{
    int whole = whole_word(e, p, size);
    if (whole >= 0) {
        add(e, whole);
        return true;
    }
    if (size > e->room) {
        mem_free(e->symbol);
        e->symbol = mem_alloc(size * sizeof *e->symbol);
        e->room = e->symbol ? size : 0;
        if (!e->symbol) return oom(e->err);
    }
    size_t n = symbols_of(e->t, p, size, e->symbol);
    TRY(!n || merges_join(&e->t->merges, e->symbol, &n, &e->join, e->err));
    for (size_t i = 0; i < n; i++) add(e, e->symbol[i]);
    return true;
}

static bool add_split(Encoding *e, const char *text, size_t size)
{
    TRY(split_text(e->t->splitter, text, size, &e->pieces, e->err));
    for (int i = 0; i < e->pieces.n; i++) {
        size_t from = i ? e->pieces.end[i - 1] : 0;
        TRY(add_piece(e, e->pieces.text + from, e->pieces.end[i] - from));
    }
    return true;
}

/* ------------------------------------------------------------------ added tokens */

static utf8proc_int32_t char_at(const char *p, size_t left, size_t *size)
{
    utf8proc_int32_t c = 0;
    utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)left, &c);
    *size = k > 0 ? (size_t)k : 1;
    return c;
}

static size_t char_before(const char *text, size_t at)
{
    size_t k = 1;
    while (k < at && k < 4 && ((unsigned char)text[at - k] & 0xC0) == 0x80) k++;
    return k;
}

static bool is_white(utf8proc_int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return (c >= 9 && c <= 13) || c == 0x85 || (k >= UTF8PROC_CATEGORY_ZS && k <= UTF8PROC_CATEGORY_ZP);
}

/* \w */
static bool is_word(utf8proc_int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_PC || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL);
}

static bool stands_alone(const char *text, size_t size, size_t from, size_t to)
{
    size_t k, before = from ? char_before(text, from) : 0;
    return !(before && is_word(char_at(text + from - before, before, &k))) &&
           !(to < size && is_word(char_at(text + to, size - to, &k)));
}

/* The longest token that the text begins with: the last one that does not come after the text, or what that one begins
 * with. */
static const Added *added_at(const AddedSet *s, const char *p, size_t left)
{
    unsigned char c = (unsigned char)*p;
    int below = s->first[c], end = s->first[c + 1], i;
    while (below < end) {
        int middle = below + (end - below) / 2;
        const Added *a = s->token[middle];
        int sign = memcmp(a->content, p, a->size < left ? a->size : left);
        if (sign < 0 || (sign == 0 && a->size <= left)) below = middle + 1;
        else end = middle;
    }
    if (below == s->first[c]) return NULL;
    const Added *a = s->token[i = below - 1];
    size_t same = 0;
    while (same < a->size && same < left && a->content[same] == p[same]) same++;
    while (i >= 0 && s->token[i]->size > same) i = s->start[i];
    return i >= 0 ? s->token[i] : NULL;
}

typedef bool Rest(Encoding *e, const char *text, size_t size);

/* Takes the tokens of a set out of a text, and gives what is between them to `rest`. */
static bool take_added(Encoding *e, const AddedSet *s, const char *text, size_t size, Rest *rest)
{
    size_t done = 0, k;
    for (size_t at = 0; at < size;) {
        const Added *a = added_at(s, text + at, size - at);
        size_t from = at, to = a ? at + a->size : at + 1;
        at = to;
        if (!a || (a->single_word && !stands_alone(text, size, from, to))) continue;
        while (a->lstrip && from > done && is_white(char_at(text + from - char_before(text, from), 4, &k)))
            from -= char_before(text, from);
        while (a->rstrip && to < size && is_white(char_at(text + to, size - to, &k))) to += k;
        TRY(from == done || rest(e, text + done, from - done));
        add(e, a->id);
        done = at = to;
    }
    return done == size || rest(e, text + done, size - done);
}

char *json_bpe_normal(const JsonBpe *t, const char *text, size_t size, size_t *n, Err *err)
{
    utf8proc_uint8_t *out = NULL;
    utf8proc_ssize_t k = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &out,
                                      (utf8proc_option_t)t->normal_form);
    if (k < 0) {
        if (k == UTF8PROC_ERROR_NOMEM) oom(err);
        else fail(err, E_FORMAT, "%s", utf8proc_errmsg(k));
        return NULL;
    }
    *n = (size_t)k;
    return (char *)out;
}

static bool add_normal(Encoding *e, const char *text, size_t size)
{
    if (!e->t->normal_form) return take_added(e, &e->t->before_and_after[1], text, size, add_split);
    size_t n;
    char *normal = json_bpe_normal(e->t, text, size, &n, e->err);
    bool ok = normal && take_added(e, &e->t->before_and_after[1], normal, n, add_split);
    mem_free_c(normal);
    return ok;
}

int json_bpe_encode(const JsonBpe *t, const char *text, int64_t *ids, int capacity, Err *err)
{
    Encoding e = {.t = t, .ids = ids, .cap = capacity, .err = err};
    size_t size = strlen(text);
    bool ok = size <= MAX_TEXT || fail(err, E_LIMIT, "a text of %zu bytes, at most %d are read", size, MAX_TEXT);
    if (ok && !json_is_utf8(text)) ok = fail(err, E_USAGE, "the text is not UTF-8");
    for (int i = 0; i < t->nprefix; i++) add(&e, t->prefix[i]);
    ok = ok && take_added(&e, &t->before_and_after[0], text, size, add_normal);
    for (int i = 0; i < t->nsuffix; i++) add(&e, t->suffix[i]);
    pieces_free(&e.pieces);
    join_free(&e.join);
    mem_free(e.symbol);
    return ok ? e.n : -1;
}
