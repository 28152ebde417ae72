/* Growing arrays. Contract in vec.h. */
#include "base/vec.h"
#include <string.h>
#include "base/mem.h"

void *vec_room(Arena *a, void *list, int n, size_t size)
{
    if (n & (n - 1)) return list;
    char *grown = arena_alloc(a, n ? (size_t)n * 2 : 1, size);
    if (grown && n) memcpy(grown, list, (size_t)n * size);
    return grown;
}

void *vec_grow(void *list, int n, size_t size)
{
    return n & (n - 1) ? list : mem_grow(list, (n ? (size_t)n * 2 : 1) * size);
}
