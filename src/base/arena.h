/* Arena: memory that lives and dies together. Three lifetimes in qkv: model, scratch, session.
 *
 *     Arena *a = arena_create(0);
 *     Node *n = arena_new(a, Node);                  zeroed
 *     int64_t *d = arena_array(a, int64_t, rank);    zeroed, overflow-checked
 *     arena_destroy(a);
 *
 * Out of memory: arena_* return NULL after the arena's limit or the system's; the arena remembers it
 * (arena_failed), so a long builder may check once at its end if it checks each pointer that it writes through.
 */
#ifndef QKV_BASE_ARENA_H
#define QKV_BASE_ARENA_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

typedef struct Arena Arena;

/* limit: most bytes it may take in all, 0 = no limit. NULL when out of memory. */
Arena *arena_create(size_t limit);
void arena_destroy(Arena *a);                           /* NULL is fine */
void arena_allow(Arena *a, size_t more);                /* raises the limit */
/* Zeroed; NULL on overflow or no memory. Aligned to 16 where that many or 64 bytes can need it, else to 8: many names,
 * sizes and results are shorter. */
void *arena_alloc(Arena *a, size_t count, size_t size);
char *arena_strdup(Arena *a, const char *s);
char *arena_strndup(Arena *a, const char *s, size_t n);
char *arena_printf(Arena *a, const char *fmt, ...) QKV_PRINTF(2, 3);
size_t arena_used(const Arena *a);
bool arena_failed(const Arena *a);

#define arena_new(a, T) ((T *)arena_alloc((a), 1, sizeof(T)))
#define arena_array(a, T, n) ((T *)arena_alloc((a), (size_t)(n), sizeof(T)))

/* The one checked product and sum: false on overflow. */
static inline bool mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool mul_i64(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool add_i64(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }
/* Rounded down, as Python's //; b is not 0, and not -1 when a is INT64_MIN. */
static inline int64_t floor_div_i64(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t gcd_i64(int64_t a, int64_t b) /* of both, not negative; INT64_MIN stands for 2^63 */
{
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    for (uint64_t r; y; x = y, y = r) r = x % y;
    return (int64_t)x;
}
/* True when [offset, offset + size) is inside [0, total). */
static inline bool in_range_u64(uint64_t offset, uint64_t size, uint64_t total)
{
    return size <= total && offset <= total - size;
}
#endif
