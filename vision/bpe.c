/* CLIP's BPE. Contract in bpe.h. The rules are OpenAI's (CLIP, simple_tokenizer.py): a piece of text is its bytes, the
 * last one marked as the end of a word; of all neighbours the pair that stands first among the merges is joined, until
 * none is left.
 */
#include "vision/bpe.h"
#include <string.h>
#include "base/arena.h"
#include "base/map.h"
#include "base/mem.h"
#include "vision/merges.h"

enum { BYTES = 256, CLIP_MERGES = 48894, MAX_TEXT = 1 << 16 };

struct Bpe {
    Arena *arena;
    Merges table;
    int byte_id[BYTES];
    int merges;
    ClipStyle style;
};

/* ------------------------------------------------------------------ merges */

/* Bytes have the names of printable characters (bytes_to_unicode): their own where they are one, else from U+0100 on;
 * ids in that order. */
static bool name_bytes(Bpe *b, Map *ids, Err *err)
{
    int printable = 0, other = 0, count = 0;
    for (int c = 0; c < BYTES; c++) count += (c >= 33 && c <= 126) || (c >= 161 && c != 173);
    for (int c = 0; c < BYTES; c++) {
        bool own = (c >= 33 && c <= 126) || (c >= 161 && c != 173);
        int code = own ? c : BYTES + other, id = own ? printable++ : count + other++;
        char name[3] = {(char)code, 0, 0};
        if (code >= 0x80) {
            name[0] = (char)(0xC0 | code >> 6);
            name[1] = (char)(0x80 | (code & 0x3F));
        }
        b->byte_id[c] = id;
        const char *plain = arena_strdup(b->arena, name), *last = arena_printf(b->arena, "%s</w>", name);
        if (!plain || !last || !map_put(ids, plain, (void *)(intptr_t)(id + 1)) ||
            !map_put(ids, last, (void *)(intptr_t)(id + BYTES + 1)))
            return oom(err);
    }
    return true;
}

static int id_of(const Map *ids, const char *name) { return (int)(intptr_t)map_get(ids, name) - 1; }

static bool add_merge(Bpe *b, Map *ids, const char *line, size_t n, int number, Err *err)
{
    const char *gap = memchr(line, ' ', n);
    if (!gap || gap == line || gap == line + n - 1 || memchr(gap + 1, ' ', n - 1 - (size_t)(gap - line)))
        return fail(err, E_FORMAT, "line %d is not a merge: expected two tokens and a space between them", number);
    size_t left = (size_t)(gap - line);
    char *a = arena_strndup(b->arena, line, left), *c = arena_strndup(b->arena, gap + 1, n - left - 1);
    char *whole = a && c ? arena_printf(b->arena, "%s%s", a, c) : NULL;
    if (!whole) return oom(err);
    int from = id_of(ids, a), to = id_of(ids, c), id = 2 * BYTES + b->merges;
    if (from < 0 || to < 0)
        return fail(err, E_FORMAT, "line %d joins '%.40s', which no line before it makes", number, from < 0 ? a : c);
    Merge *m = merges_slot(&b->table, from, to);
    if (m->pair) return fail(err, E_FORMAT, "line %d joins what line %d joined already", number, m->rank + 1);
    *m = (Merge){merges_pair(from, to), b->merges++, id};
    return map_put(ids, whole, (void *)(intptr_t)(id + 1)) || oom(err);
}

static bool read_merges(Bpe *b, Map *ids, const char *p, size_t size, Err *err)
{
    const char *end = p + size;
    for (int number = 1; p && p < end && b->merges < CLIP_MERGES; number++) {
        const char *line = p, *stop = memchr(p, '\n', (size_t)(end - p));
        size_t n = stop ? (size_t)(stop - p) : (size_t)(end - p);
        p += n + (stop != NULL);
        if (n && line[n - 1] == '\r') n--;
        if (!n || (number == 1 && memmem(line, n, "#version", 8))) continue;
        TRY(add_merge(b, ids, line, n, number, err));
    }
    return b->merges || fail(err, E_FORMAT, "no merges in it: expected lines such as 'i n'");
}

Bpe *bpe_open(const char *merges, size_t size, ClipStyle style, Err *err)
{
    Map ids = {0};
    Bpe *b = mem_zeroed(1, sizeof *b);
    size_t lines = 1;
    for (size_t i = 0; i < size && lines < CLIP_MERGES; i++) lines += merges[i] == '\n';
    if (b) {
        b->arena = arena_create(0);
        b->style = style;
    }
    bool ok = (b && b->arena) || oom(err);
    ok = ok && merges_room(&b->table, lines, err);
    ok = ok && name_bytes(b, &ids, err) && read_merges(b, &ids, merges, size, err);
    map_free(&ids);
    if (b) { /* names served to read the merges only */
        arena_destroy(b->arena);
        b->arena = NULL;
    }
    if (ok) return b;
    bpe_free(b);
    return NULL;
}

void bpe_free(Bpe *b)
{
    if (!b) return;
    arena_destroy(b->arena);
    merges_free(&b->table);
    mem_free(b);
}

int bpe_vocabulary(const Bpe *b) { return 2 * BYTES + b->merges + 2; }

/* ------------------------------------------------------------------ pieces */

typedef struct Ids {
    int64_t *id;
    int n, cap; /* n goes on above cap */
} Ids;

static void add(Ids *ids, int64_t id)
{
    if (ids->n < ids->cap) ids->id[ids->n] = id;
    ids->n++;
}

/* Room for what a text is made of. */
typedef struct Work {
    int *symbol; /* one a byte */
    Join join;
    Err *err;
} Work;

static bool add_piece(const Bpe *b, const char *text, size_t n, Work *w, Ids *ids)
{
    for (size_t i = 0; i < n; i++) w->symbol[i] = b->byte_id[(unsigned char)text[i]] + (i + 1 == n ? BYTES : 0);
    TRY(merges_join(&b->table, w->symbol, &n, &w->join, w->err));
    for (size_t i = 0; i < n; i++) add(ids, w->symbol[i]);
    return true;
}

static size_t begins(const char *p, size_t left, const char *with)
{
    size_t n = strlen(with);
    return n <= left && !memcmp(p, with, n) ? n : 0;
}

static const char *const special[2][2] = {{"<start_of_text>", "<end_of_text>"}, {"<|startoftext|>", "<|endoftext|>"}};

/* 's|'t|'re|'ve|'m|'ll|'d, letters, one number, or anything else but space: the length of the piece at p. */
static size_t piece(const char *p, size_t left, ClipStyle style)
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    size_t n, k;
    for (int i = 0; i < 7; i++)
        if ((n = begins(p, left, endings[i]))) return n;
    if (style == CLIP_META && (n = begins(p, left, "'\xc5\xbf")))
        return n; /* matched without case: the long s is an s */
    ClipClass class = clip_class(p, left, &n);
    while (n < left && class != CLIP_NUMBER && class != CLIP_SPACE && clip_class(p + n, left - n, &k) == class) n += k;
    return n;
}

/* A cleaned text. transformers splits a spelled-out special token once more, by GPT-2's pattern:
 * "<|", the word, "|>". */
static bool add_text(const Bpe *b, const char *p, size_t left, Work *work, Ids *ids)
{
    while (left) {
        size_t n, unused;
        int which = -1;
        for (int i = 0; i < 2; i++)
            if ((n = begins(p, left, special[b->style][i]))) which = i;
        if (which >= 0 && b->style == CLIP_META) {
            add(ids, 2 * BYTES + b->merges + which);
            n = strlen(special[b->style][which]);
        } else if (which >= 0) {
            n = strlen(special[b->style][which]);
            TRY(add_piece(b, p, 2, work, ids) && add_piece(b, p + 2, n - 4, work, ids) &&
                add_piece(b, p + n - 2, 2, work, ids));
        } else {
            n = piece(p, left, b->style);
            TRY(clip_class(p, left, &unused) == CLIP_SPACE || add_piece(b, p, n, work, ids));
        }
        p += n;
        left -= n;
    }
    return true;
}

static bool add_cleaned(const Bpe *b, const char *text, size_t n, Ids *ids, Err *err)
{
    Buf clean = {0};
    bool ok = clip_clean(text, n, b->style, &clean, err);
    Work work = {.symbol = ok ? mem_alloc((clean.len + 1) * sizeof *work.symbol) : NULL, .err = err};
    ok = ok && (work.symbol || oom(err)) && add_text(b, clean.data, clean.len, &work, ids);
    mem_free(work.symbol);
    join_free(&work.join);
    buf_free(&clean);
    return ok;
}

int bpe_encode(const Bpe *b, const char *text, int64_t *ids, int context, Err *err)
{
    size_t left = strlen(text);
    int start = 2 * BYTES + b->merges, end = start + 1;
    Ids out = {ids, 0, context};
    bool ok = context >= 2 || fail(err, E_USAGE, "room for %d ids, at least 2 are needed", context);
    if (ok && left > MAX_TEXT) ok = fail(err, E_LIMIT, "a text of %zu bytes, at most %d are read", left, MAX_TEXT);
    if (!ok) return -1;
    add(&out, start);
    while (ok && left) { /* transformers takes its special tokens out of the text as it was given */
        size_t n = 0, skip = 0;
        int which = 0;
        for (; n < left && b->style == CLIP_HF && !skip; n += !skip)
            for (int i = 0; i < 2 && !skip; i++)
                if ((skip = begins(text + n, left - n, special[CLIP_HF][i]))) which = i;
        if (b->style == CLIP_META) n = left;
        if (n) ok = add_cleaned(b, text, n, &out, err);
        if (skip) add(&out, start + which);
        text += n + skip;
        left -= n + skip;
    }
    if (!ok) return -1;
    add(&out, end);
    for (int i = out.n; i < context; i++) ids[i] = b->style == CLIP_META ? 0 : end;
    if (out.n > context) ids[context - 1] = end;
    return out.n;
}
