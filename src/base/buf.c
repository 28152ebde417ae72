#include "base/buf.h"
#include <string.h>
#include "base/arena.h"
#include "base/mem.h"
#include "base/number.h"

static bool reserve(Buf *b, size_t more)
{
    size_t need;
    if (b->failed || !add_size(b->len, more, &need) || !add_size(need, 1, &need)) return !(b->failed = true);
    if (need <= b->cap) return true;
    size_t cap = b->cap < 256 ? 256 : b->cap;
    while (cap < need)
        if (!mul_size(cap, 2, &cap)) return !(b->failed = true);
    char *p = mem_grow(b->data, cap);
    if (!p) return !(b->failed = true);
    b->data = p;
    b->cap = cap;
    return true;
}

void buf_add(Buf *b, const void *bytes, size_t n)
{
    if (!reserve(b, n)) return;
    if (n) memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = 0;
}

void buf_puts(Buf *b, const char *s)
{
    if (s) buf_add(b, s, strlen(s));
    else b->failed = true; /* the text of another Buf, for which there was no memory */
}

void buf_vprintf(Buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = text_vprintf(NULL, 0, fmt, ap);
    if (n < 0) b->failed = true;
    else if (reserve(b, (size_t)n)) {
        text_vprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void buf_printf(Buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

void buf_quoted(Buf *b, const char *s)
{
    buf_puts(b, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') buf_puts(b, "\\");
        if (*s == '\n') buf_puts(b, "\\n");
        else buf_add(b, s, 1);
    }
    buf_puts(b, "\"");
}

void buf_free(Buf *b)
{
    mem_free(b->data);
    *b = (Buf){0};
}
