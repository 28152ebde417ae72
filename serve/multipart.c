/* Contract in multipart.h. */
#include "serve/multipart.h"
#include <string.h>
#include "base/number.h"

enum { MOST_BOUNDARY = 70, MOST_HEADERS = 8 << 10 };

typedef struct Body { /* what is left of it */
    const char *at, *end;
    char line[4 + MOST_BOUNDARY + 1]; /* "\r\n--" and the boundary */
    size_t length;
} Body;

/* ------------------------------------------------------------------ parameters: form-data; name="a"; filename="b" */

static const char *skip_space(const char *s, const char *end)
{
    while (s < end && (*s == ' ' || *s == '\t')) s++;
    return s;
}

/* Case does not count. */
static bool begins_with(const char *s, const char *end, const char *word)
{
    for (; *word; word++, s++)
        if (s == end || (*s >= 'A' && *s <= 'Z' ? *s - 'A' + 'a' : *s) != *word) return false;
    return true;
}

/* One value, from after its `=` to the ';' after it; into out, which has room for it, where out is given. */
static const char *take_value(const char *s, const char *end, char *out)
{
    bool quoted = s < end && *s == '"';
    char *to = out;
    for (s += quoted; s < end && *s != (quoted ? '"' : ';'); s++) {
        if (quoted && *s == '\\' && s + 1 < end && (s[1] == '"' || s[1] == '\\')) s++;
        if (out) *to++ = *s;
    }
    while (out && !quoted && to > out && (to[-1] == ' ' || to[-1] == '\t')) to--;
    if (out) *to = 0;
    while (s < end && *s != ';') s++;
    return s;
}

/* The value of `name` among the parameters after a first word; NULL: it is not there. Quotes are taken off. */
static const char *parameter(const char *s, const char *end, const char *name, Arena *a)
{
    size_t n = strlen(name);
    while (s < end && *s != ';') s++;
    while (s < end) {
        s = skip_space(s + 1, end);
        bool mine = begins_with(s, end, name) && s + n < end && s[n] == '=';
        while (s < end && *s != '=' && *s != ';') s++;
        if (s == end || *s == ';') continue;
        char *out = mine ? arena_alloc(a, (size_t)(end - s), 1) : NULL;
        s = take_value(s + 1, end, out);
        if (mine) return out;
    }
    return NULL;
}

static bool read_boundary(const char *type, Arena *a, Body *b, Err *err)
{
    static const char kind[] = "multipart/form-data";
    const char *end = type ? type + strlen(type) : NULL;
    if (!type || !begins_with(type, end, kind))
        return fail(err, E_USAGE, "the body is %.80s, expected multipart/form-data",
                    type ? type : "of no Content-Type");
    const char *boundary = parameter(type, end, "boundary", a);
    size_t n = boundary ? strlen(boundary) : 0;
    if (!n || n > MOST_BOUNDARY)
        return fail(err, E_USAGE, "Content-Type has a boundary of %zu characters, expected 1 to %d", n, MOST_BOUNDARY);
    text_printf(b->line, sizeof b->line, "\r\n--%s", boundary);
    b->length = strlen(b->line);
    return true;
}

/* ------------------------------------------------------------------ parts */

static const char *find(const char *at, const char *end, const char *what, size_t n)
{
    for (; (size_t)(end - at) >= n; at++) {
        at = memchr(at, *what, (size_t)(end - at) - n + 1);
        if (!at) return NULL;
        if (!memcmp(at, what, n)) return at;
    }
    return NULL;
}

/* After a boundary: *last, or the next line begins a part. */
static bool after_boundary(Body *b, bool *last, Err *err)
{
    *last = b->end - b->at >= 2 && !memcmp(b->at, "--", 2);
    if (*last) return true;
    b->at = skip_space(b->at, b->end);
    if (b->end - b->at < 2 || memcmp(b->at, "\r\n", 2))
        return fail(err, E_FORMAT, "the multipart body: a boundary is not followed by the end of its line");
    b->at += 2;
    return true;
}

static bool read_disposition(MultiPart *p, const char *s, const char *end, Arena *a, Err *err)
{
    if (!begins_with(s, end, "form-data"))
        return fail(err, E_FORMAT, "a part's Content-Disposition is '%.*s', expected form-data",
                    end - s < 40 ? (int)(end - s) : 40, s);
    p->name = parameter(s, end, "name", a);
    p->file = parameter(s, end, "filename", a);
    return true;
}

static bool read_encoding(const char *s, const char *end, Err *err)
{
    if (begins_with(s, end, "binary") || begins_with(s, end, "8bit") || begins_with(s, end, "7bit")) return true;
    return fail(err, E_USAGE, "a part's Content-Transfer-Encoding is '%.*s', expected binary",
                end - s < 40 ? (int)(end - s) : 40, s);
}

static bool read_headers(Body *b, MultiPart *p, Arena *a, Err *err)
{
    static const char disposition[] = "content-disposition:", encoding[] = "content-transfer-encoding:";
    const char *limit = b->end - b->at > MOST_HEADERS ? b->at + MOST_HEADERS : b->end;
    for (;;) {
        const char *line = b->at, *end = find(line, limit, "\r\n", 2);
        if (!end && limit == b->end) return fail(err, E_FORMAT, "the body is cut off in the headers of a part");
        if (!end) return fail(err, E_FORMAT, "the headers of a part do not end within %d bytes", MOST_HEADERS);
        b->at = end + 2;
        if (end == line) break;
        if (begins_with(line, end, disposition))
            TRY(read_disposition(p, skip_space(line + sizeof disposition - 1, end), end, a, err));
        if (begins_with(line, end, encoding))
            TRY(read_encoding(skip_space(line + sizeof encoding - 1, end), end, err));
    }
    return p->name || fail(err, E_FORMAT, "a part has no Content-Disposition: form-data; name=\"...\"");
}

static bool read_part(Body *b, MultiPart *p, Arena *a, Err *err)
{
    *p = (MultiPart){0};
    TRY(read_headers(b, p, a, err));
    const char *end = find(b->at - 2, b->end, b->line, b->length); /* the end of the headers may be its first bytes */
    if (!end) return fail(err, E_FORMAT, "part '%.60s' does not end with the boundary: the body is cut off", p->name);
    p->data = b->at;
    p->size = end > b->at ? (size_t)(end - b->at) : 0;
    b->at = end + b->length;
    return true;
}

bool multipart_read(const char *type, const char *body, size_t size, Arena *a, MultiPart *part, int most, int *n,
                    Err *err)
{
    Body b = {.at = body, .end = body + size};
    bool last = false;
    *n = 0;
    TRY(read_boundary(type, a, &b, err));
    bool first = size >= b.length - 2 && !memcmp(body, b.line + 2, b.length - 2);
    const char *found = first ? body : find(body, b.end, b.line, b.length);
    if (!found) return fail(err, E_FORMAT, "the multipart body: its boundary is nowhere in it");
    b.at = found + b.length - (first ? 2 : 0);
    for (;;) {
        TRY(after_boundary(&b, &last, err));
        if (last) return true;
        if (*n == most) return fail(err, E_USAGE, "the body has more than %d parts", most);
        TRY(read_part(&b, &part[(*n)++], a, err));
    }
}
