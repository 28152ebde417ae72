/* TAP for test programs: one line a check, a plan at the end.
 *
 *     tap_ok(x == 3, "x is %d", x);      "ok 1 - x is 3"
 *     return tap_done();                 "1..1", exit status
 */
#ifndef QKV_TESTS_TAP_H
#define QKV_TESTS_TAP_H
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int tap_count, tap_failed;

__attribute__((format(printf, 2, 3), unused)) static bool tap_ok(bool ok, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("%sok %d - ", ok ? "" : "not ", ++tap_count);
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
    tap_failed += !ok;
    fflush(stdout);
    return ok;
}

__attribute__((unused)) static int tap_done(void)
{
    printf("1..%d\n", tap_count);
    return tap_failed > 0;
}
#endif
