/* Lifetimes to offsets in one arena. */
#ifndef QKV_PLAN_MEMORY_H
#define QKV_PLAN_MEMORY_H
#include <stddef.h>
#include "base/err.h"

typedef struct Block {
    size_t size;     /* bytes; 0 takes no room */
    int first, last; /* steps in which it lives, inclusive */
    size_t offset;   /* out; a multiple of 64 */
} Block;

/* Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): the largest
 * block first, each at the lowest offset that is free during its life. Where that does not reach the bound, other
 * orders (by size and life, by birth) and the tightest gap are tried, and the best is kept. Where tens of thousands of
 * blocks live together, each goes by birth into what is free then, in constant time. *total: bytes of the arena;
 * *bound: the largest sum of sizes alive in one step, which no order of offsets can go below. */
bool memory_plan(Block *block, int n, int nsteps, size_t *total, size_t *bound, Err *err);
#endif
