/* splitmix64 (Steele, Lea, Flood 2014): random numbers that are the same on every machine, for inputs that are made up.
 *
 *     uint64_t state = seed;
 *     double x = splitmix_uniform(&state);
 */
#ifndef QKV_BASE_SPLITMIX_H
#define QKV_BASE_SPLITMIX_H
#include <math.h>
#include <stdint.h>
#include "base/elementary.h"

static inline uint64_t splitmix_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* In [0, 1). */
static inline double splitmix_uniform(uint64_t *state) { return (double)(splitmix_next(state) >> 11) * 0x1p-53; }

static inline double splitmix_normal(uint64_t *state)
{
    return sqrt(-2 * real_log(splitmix_uniform(state) + 0x1p-60)) *
           real_cos(6.283185307179586 * splitmix_uniform(state));
}
#endif
