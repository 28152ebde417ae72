/* Merges of a BPE: pairs of ids that become one, the earlier the lower their rank.
 *
 *     Merges m = {0};
 *     merges_room(&m, 50000, err);
 *     Merge *slot = merges_slot(&m, 64, 65);         slot->pair is 0: not there yet
 *     *slot = (Merge){merges_pair(64, 65), rank, id};
 *     n = merges_join(&m, symbols, n, &join, err);   joins until no pair of neighbours is a merge
 */
#ifndef QKV_VISION_MERGES_H
#define QKV_VISION_MERGES_H
#include <stdint.h>
#include "base/err.h"

typedef struct Merge {
    uint64_t pair; /* left << 32 | right, + 1 so that 0 is free */
    int rank, id;
} Merge;

typedef struct Merges {
    Merge *slots; /* open addressing */
    size_t mask;
} Merges;

bool merges_room(Merges *m, size_t count, Err *err); /* before the first: for at most `count` merges */
void merges_free(Merges *m);
static inline uint64_t merges_pair(int left, int right) { return ((uint64_t)left << 32 | (uint64_t)right) + 1; }
Merge *merges_slot(const Merges *m, int left, int right);

typedef struct Join { /* room for joining, reused from piece to piece */
    int *next, *before;
    struct Candidate *heap;
    size_t size;
} Join;
void join_free(Join *j);

/* Of all neighbours the pair of the lowest rank is joined, of several the leftmost, until there is none: in
 * O(n log n). What is left in *n. */
bool merges_join(const Merges *m, int *symbol, size_t *n, Join *j, Err *err);
#endif
