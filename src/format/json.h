/* JSON that is read once: strict, depth-limited, duplicate keys rejected; errors carry line, column and byte offset.
 *
 *     json_t *root = json_read(bytes, n, "models/model.json", err);
 *     const char *s; if (!json_want_string(obj, "target", &s, err)) ...   "field 'target': missing" / "found integer,
 *                                                                         expected string"
 *     json_free(root);
 *
 * A graph of 100 MB is JSON of ten million values, so a value takes 8 bytes beside its text: all are in one block, in
 * the order of the file, with a copy of the text after them, and an object of many keys has a hash table after its
 * members. The names are those of jansson, which has no place here: its values take 50 to 240 bytes. They are inline
 * here: a program may link both, but one source file cannot include both.
 */
#ifndef QKV_FORMAT_JSON_H
#define QKV_FORMAT_JSON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

typedef enum JsonType {
    JSON_OBJECT,
    JSON_ARRAY,
    JSON_STRING,
    JSON_INTEGER,
    JSON_REAL,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL
} JsonType;

typedef struct JsonValue {
    uint32_t at; /* containers: how many members; others: bytes from here to the text */
    uint32_t type : 3;
    uint32_t span : 29; /* containers: values to the next one beside it, this included; strings: bytes */
} json_t;

/* Rejects: duplicate keys, trailing bytes, invalid UTF-8, lone surrogates, NUL in strings, numbers out of range, a
 * top that is neither object nor array (all E_FORMAT); depth above 64, more than 512 MiB, more than `most` bytes to
 * hold it (E_LIMIT). */
json_t *json_read_within(const void *bytes, size_t size, size_t most, const char *what, Err *err);
static inline json_t *json_read(const void *bytes, size_t size, const char *what, Err *err)
{
    return json_read_within(bytes, size, SIZE_MAX, what, err);
}
/* The same of what file_map gave, whose pages go back to the system once they are copied. */
json_t *json_read_file(const void *bytes, size_t size, size_t most, const char *what, Err *err);
/* The same, but arrays that are members called `key` are checked and stay text: millions of numbers, each of which
 * would take 8 bytes. */
json_t *json_read_keeping(const void *bytes, size_t size, const char *key, const char *what, Err *err);
const char *json_kept(const json_t *v); /* the text of such an array; NULL: v is something else */
/* Its values one after the other, brackets left out: the type, and the text of a number. False: it has ended. *s begins
 * as json_kept(v), *depth as 0; neither goes past a string or an object. */
bool json_kept_value(const char **s, int *depth, JsonType *type, const char **text);
void json_free(json_t *root); /* what json_read gave; NULL is fine */
bool json_is_utf8(const char *s);

/* NULL is a value without a type: asked for members, it has none. */
static inline bool json_is(const json_t *v, JsonType t) { return v && v->type == (unsigned)t; }
static inline JsonType json_typeof(const json_t *v) { return (JsonType)v->type; }
static inline bool json_is_object(const json_t *v) { return json_is(v, JSON_OBJECT); }
static inline bool json_is_array(const json_t *v) { return json_is(v, JSON_ARRAY); }
static inline bool json_is_string(const json_t *v) { return json_is(v, JSON_STRING); }
static inline bool json_is_integer(const json_t *v) { return json_is(v, JSON_INTEGER); }
static inline bool json_is_real(const json_t *v) { return json_is(v, JSON_REAL); }
static inline bool json_is_number(const json_t *v) { return json_is_integer(v) || json_is_real(v); }
static inline bool json_is_true(const json_t *v) { return json_is(v, JSON_TRUE); }
static inline bool json_is_false(const json_t *v) { return json_is(v, JSON_FALSE); }
static inline bool json_is_boolean(const json_t *v) { return json_is_true(v) || json_is_false(v); }
static inline bool json_is_null(const json_t *v) { return json_is(v, JSON_NULL); }

/* Of another type: NULL, 0. */
static inline const char *json_string_value(const json_t *v)
{
    return json_is_string(v) ? (const char *)v + v->at : NULL;
}
static inline size_t json_string_length(const json_t *v) { return json_is_string(v) ? v->span : 0; }
int64_t json_to_int(const json_t *v);
double json_to_double(const json_t *v); /* of an integer, too */
static inline int64_t json_integer_value(const json_t *v) { return json_to_int(v); }
static inline double json_number_value(const json_t *v) { return json_to_double(v); }

static inline size_t json_array_size(const json_t *v) { return json_is_array(v) ? v->at : 0; }
static inline size_t json_object_size(const json_t *v) { return json_is_object(v) ? v->at : 0; }
/* The value beside v; the first value (of an object: key) below v. */
static inline const json_t *json_next(const json_t *v) { return v + (v->type <= JSON_ARRAY ? v->span : 1); }
static inline json_t *json_below(const json_t *v) { return (json_t *)(uintptr_t)(v + 1); }
json_t *json_find(const json_t *obj, const char *key);
json_t *json_element(const json_t *array, size_t i); /* goes there one by one: in loops, json_array_foreach */
static inline json_t *json_object_get(const json_t *obj, const char *key) { return json_find(obj, key); }
static inline json_t *json_array_get(const json_t *array, size_t i) { return json_element(array, i); }

/* What follows element i of an array, for loops over two of them; NULL after the last. */
static inline const json_t *json_following(const json_t *array, size_t i, const json_t *v)
{
    return i + 1 < json_array_size(array) ? json_next(v) : NULL;
}

#define json_array_foreach(array, i, value)                                                                            \
    for ((i) = 0, (value) = json_array_size(array) ? json_below(array) : NULL; (i) < json_array_size(array);           \
         (i)++, (value) = (json_t *)(uintptr_t)json_next(value))
/* How many members; *value: the first one's value, its key is before it. */
static inline size_t json_members(const json_t *obj, json_t **value)
{
    size_t n = json_object_size(obj);
    *value = n ? json_below(obj) + 1 : NULL;
    return n;
}

#define json_object_foreach(obj, name, value)                                                                          \
    for (size_t left_##value = json_members(obj, &(value));                                                            \
         left_##value && ((name) = json_string_value((value)-1), true);                                                \
         left_##value--, (value) = (json_t *)(uintptr_t)json_next(value) + 1)

const char *json_type_name(JsonType t);
const char *json_kind(const json_t *v); /* "object", "string", ...; "nothing" for NULL */
bool json_want_object(const json_t *obj, const char *key, json_t **out, Err *err);
bool json_want_array(const json_t *obj, const char *key, json_t **out, Err *err);
bool json_want_string(const json_t *obj, const char *key, const char **out, Err *err);
bool json_want_int(const json_t *obj, const char *key, int64_t *out, Err *err);
bool json_want_bool(const json_t *obj, const char *key, bool *out, Err *err);
/* *out stays where the member is missing or null. */
bool json_may_bool(const json_t *obj, const char *key, bool *out, Err *err);
/* A union as torch's schema writes it: an object with exactly one key; gives key and value. */
bool json_want_union(const json_t *obj, const char **tag, json_t **value, Err *err);

struct Buf;
/* Appends what was read, its numbers as they were. */
void json_put(struct Buf *b, const char *key, const json_t *v);
#endif
