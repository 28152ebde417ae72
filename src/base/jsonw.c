#include "base/jsonw.h"
#include <math.h>
#include <string.h>
#include "base/number.h"

/* Is what comes next the first of its list, or a key's value? */
static bool first(const Buf *b)
{
    size_t n = b->len;
    while (n && is_space(b->data[n - 1])) n--;
    return !n || strchr("{[:,", b->data[n - 1]);
}

/* What is not UTF-8 (a file's name, a client's bytes, a sentence cut inside a character) is U+FFFD. */
static void put_string(Buf *b, const char *s)
{
    buf_puts(b, s ? "\"" : "null");
    for (int n; s && *s; s += n ? n : 1) {
        unsigned char c = (unsigned char)*s;
        n = utf8_length(s);
        if (!n) buf_puts(b, "\\ufffd");
        else if (c == '"' || c == '\\') buf_printf(b, "\\%c", c);
        else if (c == '\n') buf_puts(b, "\\n");
        else if (c == '\t') buf_puts(b, "\\t");
        else if (c < 0x20) buf_printf(b, "\\u%04x", c);
        else buf_add(b, s, (size_t)n);
    }
    if (s) buf_puts(b, "\"");
}

static void put_number(Buf *b, double v)
{
    char s[DOUBLE_TEXT] = "null";
    if (isfinite(v)) print_double(s, v);
    buf_puts(b, v == 0 && signbit(v) ? "-0.0" : s); /* -0 is an integer to those who read it */
}

void jw_key(Buf *b, const char *key)
{
    if (!first(b)) buf_puts(b, ", ");
    if (!key) return;
    put_string(b, key);
    buf_puts(b, ": ");
}

void jw_raw(Buf *b, const char *key, const char *json)
{
    jw_key(b, key);
    buf_puts(b, json);
}

void jw_put(Buf *b, const char *piece, ...)
{
    va_list v;
    va_start(v, piece);
    if (*piece != ']' && *piece != '}') jw_key(b, NULL);
    for (size_t n; *piece; piece += n) {
        n = strcspn(piece, "'%");
        buf_add(b, piece, n);
        piece += n;
        n = *piece != 0;
        if (*piece == '\'') buf_puts(b, "\"");
        if (*piece != '%') continue;
        n = strcspn(piece, "sdugf") + 1;
        if (piece[1] == 's') put_string(b, va_arg(v, const char *));
        else if (piece[1] == 'g') put_number(b, va_arg(v, double));
        else if (piece[1] == '.') buf_printf(b, "%.*f", piece[2] - '0', va_arg(v, double));
        else buf_printf(b, "%lld", piece[1] == 'l' ? va_arg(v, long long) : va_arg(v, int));
    }
    va_end(v);
}

void jw_open(Buf *b, const char *key, char bracket) { jw_raw(b, key, bracket == '{' ? "{" : "["); }
void jw_close(Buf *b, const char *brackets) { buf_puts(b, brackets); }
void jw_bool(Buf *b, const char *key, bool v) { jw_raw(b, key, v ? "true" : "false"); }

void jw_text(Buf *b, const char *key, const char *text)
{
    jw_key(b, key);
    put_string(b, text);
}

void jw_take(Buf *b, const char *key, Buf *text)
{
    b->failed |= text->failed;
    jw_text(b, key, text->data ? text->data : "");
    buf_free(text);
}

void jw_int(Buf *b, const char *key, int64_t v)
{
    jw_key(b, key);
    buf_printf(b, "%lld", (long long)v);
}

void jw_number(Buf *b, const char *key, double v)
{
    jw_key(b, key);
    put_number(b, v);
}

void jw_ints(Buf *b, const char *key, const int64_t *v, int n)
{
    jw_open(b, key, '[');
    for (int i = 0; i < n; i++) jw_int(b, NULL, v[i]);
    jw_close(b, "]");
}

void jw_texts(Buf *b, const char *key, const char *const *text, int n)
{
    jw_open(b, key, '[');
    for (int i = 0; i < n; i++) jw_text(b, NULL, text[i]);
    jw_close(b, "]");
}

void jw_list(Buf *b, const char *key, char bracket, const Buf *items)
{
    b->failed |= items->failed;
    jw_open(b, key, bracket);
    if (items->len) buf_add(b, items->data, items->len);
    jw_close(b, bracket == '{' ? "}" : "]");
}

void jw_line(Buf *b) { buf_puts(b, first(b) ? "\n" : ",\n"); }

void jw_compact(Buf *b)
{
    size_t n = 0;
    bool quoted = false;
    for (size_t i = 0; i < b->len; i++) {
        if (!quoted && is_space(b->data[i])) continue;
        b->data[n++] = b->data[i];
        if (quoted && b->data[i] == '\\') b->data[n++] = b->data[++i];
        else if (b->data[i] == '"') quoted = !quoted;
    }
    b->len = n;
    if (b->data) b->data[n] = 0;
}
