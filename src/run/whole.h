/* Numbers of a file as places. */
#ifndef QKV_RUN_WHOLE_H
#define QKV_RUN_WHOLE_H
#include <stdint.h>

/* The whole number of x, at most 2^62 away: files give scales, regions and places of any size. */
static inline int64_t whole(double x)
{
    const int64_t far = 1LL << 62;
    return x > -0x1p62 && x < 0x1p62 ? (int64_t)x : x > 0 ? far : x < 0 ? -far : 0;
}
#endif
