/* JSON over jansson: strict, depth-limited, duplicate keys rejected; errors carry line, column and byte offset.
 * Readers use jansson's json_t directly; these helpers add typed access whose errors name the path.
 *
 *     json_t *root = json_read(bytes, n, "models/model.json", err);
 *     const char *s; if (!json_want_string(obj, "target", &s, err)) ...   "field 'target': missing" / "found integer, expected string"
 *     json_decref(root);
 */
#ifndef QKV_FORMAT_JSON_H
#define QKV_FORMAT_JSON_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

/* Rejects: duplicate keys, trailing bytes, invalid UTF-8, lone surrogates, NUL in strings, numbers out of range, a top that is neither
 * object nor array (all E_FORMAT); depth above 64, more than 512 MiB (E_LIMIT). */
json_t *json_read(const void *bytes, size_t size, const char *what, Err *err);

const char *json_kind(const json_t *v); /* "object", "string", ...; "nothing" for NULL */
bool json_want_object(const json_t *obj, const char *key, json_t **out, Err *err);
bool json_want_array(const json_t *obj, const char *key, json_t **out, Err *err);
bool json_want_string(const json_t *obj, const char *key, const char **out, Err *err);
bool json_want_int(const json_t *obj, const char *key, int64_t *out, Err *err);
bool json_want_bool(const json_t *obj, const char *key, bool *out, Err *err);
/* A union as torch's schema writes it: an object with exactly one key; gives key and value. */
bool json_want_union(const json_t *obj, const char **tag, json_t **value, Err *err);

struct Buf;
/* Appends a JSON string literal with escapes / a number (NaN and infinities as null; shortest that reads back). */
void json_put_string(struct Buf *b, const char *s);
void json_put_number(struct Buf *b, double v);
#endif
