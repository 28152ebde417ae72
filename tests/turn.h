/* Cases that take turns where they take several times as long, under the address sanitizer and where lines are counted
 * (tools/coverage.py): a third for each commit, which QKV_TURN names (hexadecimal). */
#ifndef QKV_TESTS_TURN_H
#define QKV_TESTS_TURN_H
#include <stdlib.h>

/* 0, 1 or 2: this third; -1: all cases. */
static int turn_of_three(void)
{
#if defined(__SANITIZE_ADDRESS__)
    const char *turn = getenv("QKV_TURN");
#else
    const char *turn = getenv("QKV_COUNTED") ? getenv("QKV_TURN") : NULL;
#endif
    return turn ? (int)(strtoul(turn, NULL, 16) % 3) : -1;
}
#endif
