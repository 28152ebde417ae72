/* WordPiece. Contract in wordpiece.h. The steps are BertTokenizer's (transformers, models/bert/tokenization_bert.py):
 * clean, space out CJK characters, lower-case and strip accents, split at white space and punctuation, then the longest
 * vocabulary pieces from the left.
 */
#include "vision/wordpiece.h"
#include <string.h>
#include <utf8proc.h>
#include "base/arena.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"

enum { MAX_WORD = 100, MAX_TEXT = 1 << 24, MAX_TOKENS = 1 << 22 };

struct Tokenizer {
    Arena *arena;
    Map id; /* token -> id + 1 */
    int64_t unk, cls, sep;
    bool lowercase;
};

static int64_t find(const Tokenizer *t, const char *token) { return (int64_t)(intptr_t)map_get(&t->id, token) - 1; }

static bool read_vocab(Tokenizer *t, const MappedFile *f, Err *err)
{
    const char *p = (const char *)f->data, *end = p + f->size;
    for (intptr_t id = 0; p < end; id++) {
        const char *line = memchr(p, '\n', (size_t)(end - p)), *stop = line ? line : end;
        size_t n = (size_t)(stop - p);
        if (id == MAX_TOKENS) return fail(err, E_LIMIT, "more than %d tokens: not a vocabulary", MAX_TOKENS);
        if (n && p[n - 1] == '\r') n--;
        char *token = arena_strndup(t->arena, p, n);
        if (!token || !map_put(&t->id, token, (void *)(id + 1))) return oom(err);
        p = stop + 1;
    }
    t->unk = find(t, "[UNK]");
    t->cls = find(t, "[CLS]");
    t->sep = find(t, "[SEP]");
    return (t->unk >= 0 && t->cls >= 0 && t->sep >= 0) ||
           fail(err, E_FORMAT, "no [UNK], [CLS] and [SEP] in it: not a WordPiece vocabulary");
}

Tokenizer *wordpiece_open(const char *vocab, bool lowercase, Err *err)
{
    MappedFile f = {0};
    Tokenizer *t = mem_zeroed(1, sizeof *t);
    if (t) t->arena = arena_create(0);
    if (!t || !t->arena) {
        mem_free(t);
        oom(err);
        return NULL;
    }
    t->lowercase = lowercase;
    bool ok = file_map(&f, vocab, err) && (read_vocab(t, &f, err) || within(err, "%s", vocab));
    file_unmap(&f);
    if (ok) return t;
    wordpiece_free(t);
    return NULL;
}

void wordpiece_free(Tokenizer *t)
{
    if (!t) return;
    map_free(&t->id);
    arena_destroy(t->arena);
    mem_free(t);
}

/* ------------------------------------------------------------------ characters */

static bool is_space(utf8proc_int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || (k >= UTF8PROC_CATEGORY_ZS && k <= UTF8PROC_CATEGORY_ZP);
}

static bool is_control(utf8proc_int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return c != '\t' && c != '\n' && c != '\r' &&
           (k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CS ||
            k == UTF8PROC_CATEGORY_CO);
}

static bool is_punctuation(utf8proc_int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126) ||
           (k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO);
}

static bool is_cjk(utf8proc_int32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B820 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static void put(Buf *b, utf8proc_int32_t c)
{
    utf8proc_uint8_t bytes[4];
    buf_add(b, bytes, (size_t)utf8proc_encode_char(c, bytes));
}

/* Punctuation is a word of its own, also where it comes out of decomposing: U+2260 is '=' and a stroke. */
static void put_part(Buf *b, utf8proc_int32_t c)
{
    if (is_punctuation(c)) buf_puts(b, " ");
    put(b, c);
    if (is_punctuation(c)) buf_puts(b, " ");
}

/* One character, lower-cased and decomposed, accents dropped. */
static void put_folded(Buf *b, utf8proc_int32_t c)
{
    utf8proc_int32_t parts[32];
    int last = 0;
    if (c == 0x130) { /* the only character whose lower case is two: i and a combining dot */
        put(b, 'i');
        return;
    }
    utf8proc_ssize_t n = utf8proc_decompose_char(utf8proc_tolower(c), parts, 32, UTF8PROC_DECOMPOSE, &last);
    for (utf8proc_ssize_t i = 0; i < n && i < 32; i++)
        if (utf8proc_category(parts[i]) != UTF8PROC_CATEGORY_MN) put_part(b, parts[i]);
}

/* The text with words apart by single spaces; characters that stand alone (punctuation, CJK) are words. */
static bool clean(const Tokenizer *t, const char *text, Buf *out, Err *err)
{
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)text;
    utf8proc_ssize_t left = (utf8proc_ssize_t)strlen(text);
    if (left > MAX_TEXT) return fail(err, E_LIMIT, "a text of %zd bytes, at most %d are read", (ssize_t)left, MAX_TEXT);
    while (left > 0) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate(p, left, &c);
        if (n < 0) { /* a byte that is not UTF-8 becomes U+FFFD, which is dropped */
            n = 1;
            c = 0xFFFD;
        }
        p += n;
        left -= n;
        if (c == 0 || c == 0xFFFD || is_control(c)) continue;
        bool alone = is_cjk(c) || is_punctuation(c);
        if (alone || is_space(c)) buf_puts(out, " ");
        if (is_space(c)) continue;
        if (t->lowercase) put_folded(out, c);
        else put(out, c);
        if (alone) buf_puts(out, " ");
    }
    return !out->failed || oom(err);
}

/* ------------------------------------------------------------------ pieces */

static size_t char_length(const char *s)
{
    size_t n = 1;
    while (((unsigned char)s[n] & 0xC0) == 0x80) n++;
    return n;
}

typedef struct Ids {
    int64_t *id;
    int n, cap;
} Ids;

static void add(Ids *ids, int64_t id)
{
    if (ids->n < ids->cap) ids->id[ids->n++] = id;
}

/* Longest match first; a word that does not come out is [UNK]. */
static void add_word(const Tokenizer *t, const char *word, size_t n, Ids *ids)
{
    char piece[4 * MAX_WORD + 3];
    int first = ids->n, chars = 0;
    for (size_t i = 0; i < n; i += char_length(word + i)) chars++;
    bool known = chars <= MAX_WORD;
    for (size_t at = 0; known && at < n;) {
        size_t best = 0, end = at;
        int64_t id = -1;
        memcpy(piece, "##", 2);
        while (end < n) {
            end += char_length(word + end);
            memcpy(piece + 2, word + at, end - at);
            piece[2 + end - at] = 0;
            int64_t found = find(t, at ? piece : piece + 2);
            if (found >= 0) {
                id = found;
                best = end;
            }
        }
        known = id >= 0;
        if (known) add(ids, id);
        at = best;
    }
    if (known) return;
    ids->n = first;
    add(ids, t->unk);
}

int wordpiece_encode(const Tokenizer *t, const char *text, int64_t *ids, int capacity, Err *err)
{
    Buf b = {0};
    if (capacity < 2) {
        fail(err, E_USAGE, "room for %d ids, at least 2 are needed", capacity);
        return -1;
    }
    if (!clean(t, text, &b, err)) {
        buf_free(&b);
        return -1;
    }
    Ids out = {ids, 0, capacity - 1};
    add(&out, t->cls);
    for (const char *p = b.len ? b.data : ""; *p;) {
        size_t n = strcspn(p, " ");
        if (n) add_word(t, p, n, &out);
        p += n + (p[n] == ' ');
    }
    buf_free(&b);
    ids[out.n++] = t->sep;
    return out.n;
}
