/* Cases that take turns under the address sanitizer, where they take several times as long: a third for each commit,
 * which tools/check.sh names in QKV_TURN (hexadecimal). */
#ifndef QKV_TESTS_TURN_H
#define QKV_TESTS_TURN_H
#include <stdlib.h>

/* 0, 1 or 2: this third; -1: all cases. */
static int turn_of_three(void)
{
#if defined(__SANITIZE_ADDRESS__)
    const char *turn = getenv("QKV_TURN");
    if (turn) return (int)(strtoul(turn, NULL, 16) % 3);
#endif
    return -1;
}
#endif
