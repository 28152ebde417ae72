/* Lookup: where in a list a thing is, found by its hash. The list is the caller's, and so is the comparison, for things
 * that differ may have one hash.
 *
 *     size_t tried = 0;
 *     int64_t i;
 *     while ((i = lookup_next(&s, hash, &tried)) >= 0)
 *         if (same(&list[i], x)) return i;
 *     lookup_add(&s, hash, n);       x is list[n] from now on; false: out of memory
 *     lookup_free(&s);
 */
#ifndef QKV_BASE_LOOKUP_H
#define QKV_BASE_LOOKUP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Lookup {
    struct LookupSlot {
        uint32_t hash, place; /* place: 1 + where in the list; 0: free */
    } * slot;
    size_t n, taken;
} Lookup;

/* The next place of a thing with this hash, -1 after the last; *tried: 0 before the first. */
int64_t lookup_next(const Lookup *s, uint64_t hash, size_t *tried);
bool lookup_add(Lookup *s, uint64_t hash, size_t place);
void lookup_free(Lookup *s);
#endif
