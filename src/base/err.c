#include "base/err.h"
#include <stdarg.h>
#include <string.h>
#include "base/number.h"
#include "base/mem.h"

static const char no_memory[] = "out of memory";

bool fail(Err *err, ErrCode code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    err->code = code;
    text_vprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    if (mem_ran_out()) { /* what looks wrong may just not have fitted */
        err->code = E_LIMIT;
        if (!strstr(err->msg, no_memory)) text_printf(err->msg, sizeof err->msg, "%s", no_memory);
        if (!strcmp(err->msg, no_memory) && mem_asked())
            text_printf(err->msg, sizeof err->msg, "%s: %zu bytes were asked for", no_memory, mem_asked());
    }
    return false;
}

bool oom(Err *err) { return fail(err, E_LIMIT, "%s", no_memory); }

bool within(Err *err, const char *fmt, ...)
{
    char where[512];
    va_list ap;
    va_start(ap, fmt);
    text_vprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    size_t n = strlen(where), m = strlen(err->msg), cap = sizeof err->msg;
    if (n + 3 > cap) n = cap - 3;
    const char *what = err->msg;
    bool cut = m > cap - n - 3;
    if (cut) { /* the cause comes last: it stays */
        what += m - (cap - n - 3);
        m = cap - n - 3;
    }
    memmove(err->msg + n + 2, what, m);
    if (cut) memcpy(err->msg + n + 2, "...", m < 3 ? m : 3);
    memcpy(err->msg, where, n);
    memcpy(err->msg + n, ": ", 2);
    err->msg[n + 2 + m] = 0;
    return false;
}

int err_exit_code(ErrCode code)
{
    switch (code) {
    case E_OK: return 0;
    case E_MISMATCH: return 1;
    case E_USAGE: return 2;
    case E_FORMAT:
    case E_IO: return 3;
    case E_UNSUPPORTED: return 4;
    default: return 5;
    }
}
