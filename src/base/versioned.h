/* Structs of the public interface that grow at their end: the first field is `size_t struct_size`, the caller's sizeof.
 * What an older caller does not have keeps its default; what a newer caller sets and this library does not know is an
 * error, never ignored.
 *
 *     qkv_load_options o = {0};
 *     if (!VERSIONED_TAKE(qkv_load_options, skip_padding, &o, options, &e)) return ...;      skip_padding: the last
 *         field of version 1
 *
 * A field is added after all others and never in the padding at the end (docs/ABI.md), so that every version has a size
 * of its own.
 */
#ifndef QKV_BASE_VERSIONED_H
#define QKV_BASE_VERSIONED_H
#include "base/err.h"

/* Up to and including a field. */
#define SIZE_THROUGH(type, field) (offsetof(type, field) + sizeof((type){0}.field))

/* Options that a caller gives; NULL: *to keeps its defaults. */
#define VERSIONED_TAKE(type, last, to, from, err)                                                                      \
    versioned_take((to), sizeof(type), SIZE_THROUGH(type, last), (from), #type, (err))
bool versioned_take(void *to, size_t size, size_t first, const void *from, const char *type, Err *err);

/* A struct that a caller wants filled, looked at before anything is done; then filled:
 * fields beyond those known here become 0. */
#define VERSIONED_WANTED(type, last, to, err) versioned_wanted((to), SIZE_THROUGH(type, last), #type, (err))
bool versioned_wanted(const void *to, size_t first, const char *type, Err *err);
void versioned_give(void *to, const void *from, size_t size);
#endif
