/* Buf: bytes that grow. Text is kept NUL-terminated, so `b.data` prints.
 *
 *     Buf b = {0};
 *     buf_printf(&b, "%s = %d\n", name, n);
 *     ... b.data, b.len ...
 *     buf_free(&b);
 *
 * A failed append sets b.failed and leaves the rest alone; check once at the end.
 */
#ifndef QKV_BASE_BUF_H
#define QKV_BASE_BUF_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

typedef struct Buf {
    char *data;
    size_t len, cap;
    bool failed;
} Buf;

void buf_add(Buf *b, const void *bytes, size_t n);
void buf_puts(Buf *b, const char *s);
void buf_printf(Buf *b, const char *fmt, ...) QKV_PRINTF(2, 3);
void buf_vprintf(Buf *b, const char *fmt, va_list ap) QKV_PRINTF(2, 0);
/* "s", with a backslash before quotes and backslashes, and line ends as \n. */
void buf_quoted(Buf *b, const char *s);
void buf_free(Buf *b);
#endif
