/* S-expressions. Contract in sexpr.h. */
#include "rewrite/sexpr.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/number.h"
#include "base/vec.h"

enum { MAX_DEPTH = 64, MAX_TEXT = 1 << 20 };
static const double MAX_WHOLE = 0x1p53; /* beyond, not every whole number is a double */

typedef struct Reader {
    Arena *arena;
    const char *at;
    int line;
    Err *err;
} Reader;

static void skip_space(Reader *r)
{
    for (; *r->at; r->at++) {
        if (*r->at == ';') r->at += strcspn(r->at, "\n");
        if (*r->at == '\n') r->line++;
        else if (!is_space(*r->at)) return;
    }
}

static Sexpr *make(Reader *r, enum SexprKind kind)
{
    Sexpr *s = arena_new(r->arena, Sexpr);
    if (!s) {
        oom(r->err);
        return NULL;
    }
    *s = (Sexpr){.kind = kind, .line = r->line};
    return s;
}

static Sexpr *read_one(Reader *r, int depth);

/* Items up to `close` (0: to the end of the text). */
static Sexpr *read_items(Reader *r, enum SexprKind kind, char close, int depth)
{
    Sexpr *s = make(r, kind);
    if (!s) return NULL;
    for (;;) {
        skip_space(r);
        if (*r->at == close) break;
        if (!*r->at) {
            fail(r->err, E_FORMAT, "line %d: the list that opens here is never closed", s->line);
            return NULL;
        }
        Sexpr *item = read_one(r, depth + 1);
        if (!item) return NULL;
        Sexpr **grown = vec_room(r->arena, s->item, s->n, sizeof *grown);
        if (!grown) {
            oom(r->err);
            return NULL;
        }
        s->item = grown;
        s->item[s->n++] = item;
    }
    if (close) r->at++;
    return s;
}

/* Names and texts of rules reach reports, which are JSON, and so UTF-8. */
static const char *text_of(Reader *r, const char *start, const char *end)
{
    for (const char *s = start; s < end; s += utf8_length(s))
        if (!utf8_length(s)) {
            fail(r->err, E_FORMAT, "line %d: byte 0x%02x begins no character of UTF-8", r->line, (unsigned char)*s);
            return NULL;
        }
    const char *text = arena_strndup(r->arena, start, (size_t)(end - start));
    if (!text) oom(r->err);
    return text;
}

static Sexpr *read_text(Reader *r)
{
    Sexpr *s = make(r, SX_TEXT);
    const char *start = ++r->at;
    TRY_NULL(s);
    while (*r->at && *r->at != '"' && *r->at != '\n') r->at++;
    if (*r->at != '"') {
        fail(r->err, E_FORMAT, "line %d: a text without its closing quote", r->line);
        return NULL;
    }
    s->text = text_of(r, start, r->at++);
    return s->text ? s : NULL;
}

static Sexpr *read_atom(Reader *r)
{
    const char *start = r->at;
    while (*r->at && !is_space(*r->at) && !strchr("()[];\"", *r->at)) r->at++;
    Sexpr *s = make(r, SX_SYMBOL);
    if (!s) return NULL;
    TRY_NULL(s->text = text_of(r, start, r->at));
    const char *end;
    bool digits = is_digit(*start) || ((*start == '-' || *start == '.') && start[1]);
    digits |= !strcmp(s->text, "inf");
    double v = digits ? parse_double(s->text, &end) : 0;
    if (digits && !*end && !isnan(v)) {
        s->kind = SX_NUMBER;
        s->number = v;
        s->integral = !strpbrk(s->text, ".eEinf");
        if ((isinf(v) && !strstr(s->text, "inf")) || (s->integral && fabs(v) > MAX_WHOLE)) {
            fail(r->err, E_FORMAT, "line %d: the number %.40s is too large", r->line, s->text);
            return NULL;
        }
    }
    return s;
}

static Sexpr *read_one(Reader *r, int depth)
{
    if (depth > MAX_DEPTH) {
        fail(r->err, E_FORMAT, "line %d: lists nested deeper than %d", r->line, MAX_DEPTH);
        return NULL;
    }
    switch (*r->at) {
    case '(': r->at++; return read_items(r, SX_LIST, ')', depth);
    case '[': r->at++; return read_items(r, SX_BRACKET, ']', depth);
    case ')':
    case ']': fail(r->err, E_FORMAT, "line %d: '%c' closes nothing", r->line, *r->at); return NULL;
    case '"': return read_text(r);
    default: return read_atom(r);
    }
}

Sexpr *sexpr_parse(Arena *a, const char *text, Err *err)
{
    Reader r = {a, text, 1, err};
    if (strlen(text) > MAX_TEXT) {
        fail(err, E_LIMIT, "%zu bytes of rules, at most %d are read", strlen(text), MAX_TEXT);
        return NULL;
    }
    return read_items(&r, SX_LIST, 0, 0);
}

bool sexpr_is(const Sexpr *s, const char *symbol) { return s->kind == SX_SYMBOL && !strcmp(s->text, symbol); }
bool sexpr_heads(const Sexpr *s, const char *symbol)
{
    return s->kind == SX_LIST && s->n && sexpr_is(s->item[0], symbol);
}
