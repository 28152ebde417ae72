/* JSON over jansson. Contract in json.h. */
#include "format/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/number.h"

enum { MAX_DEPTH = 64 };
static const size_t max_size = (size_t)512 << 20;

/* jansson recurses; brackets outside strings are counted first. */
static bool check_depth(const char *s, size_t n, const char *what, Err *err)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (in_string) {
            if (c == '\\') i++;
            else if (c == '"') in_string = false;
        } else if (c == '"') in_string = true;
        else if (c == '[' || c == '{') {
            if (++depth > MAX_DEPTH) return fail(err, E_LIMIT, "%s: byte %zu: nested deeper than %d", what, i, MAX_DEPTH);
        } else if (c == ']' || c == '}') depth--;
    }
    return true;
}

json_t *json_read(const void *bytes, size_t size, const char *what, Err *err)
{
    json_error_t e;
    if (size == 0) {
        fail(err, E_FORMAT, "%s: empty, expected JSON", what);
        return NULL;
    }
    if (size > max_size) {
        fail(err, E_LIMIT, "%s: %zu bytes of JSON, at most %zu are read", what, size, max_size);
        return NULL;
    }
    if (!check_depth(bytes, size, what, err)) return NULL;
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &e);
    if (!root && json_error_code(&e) == json_error_out_of_memory) fail(err, E_LIMIT, "%s: out of memory", what);
    else if (!root) fail(err, E_FORMAT, "%s: line %d, column %d (byte %d): %s", what, e.line, e.column, e.position, e.text);
    return root;
}

const char *json_kind(const json_t *v)
{
    static const char *const names[] = {"object", "array", "string", "integer", "number", "true", "false", "null"};
    return v ? names[json_typeof(v)] : "nothing";
}

static json_t *field(const json_t *obj, const char *key, const char *expected, bool (*is)(const json_t *), Err *err)
{
    json_t *v = json_object_get(obj, key);
    if (v && is(v)) return v;
    if (!json_is_object(obj)) fail(err, E_FORMAT, "found %s, expected an object with '%s'", json_kind(obj), key);
    else if (!v) fail(err, E_FORMAT, "field '%s': missing", key);
    else fail(err, E_FORMAT, "field '%s': found %s, expected %s", key, json_kind(v), expected);
    return NULL;
}

static bool is_object(const json_t *v) { return json_is_object(v); }
static bool is_array(const json_t *v) { return json_is_array(v); }
static bool is_string(const json_t *v) { return json_is_string(v); }
static bool is_integer(const json_t *v) { return json_is_integer(v); }
static bool is_bool(const json_t *v) { return json_is_boolean(v); }

bool json_want_object(const json_t *obj, const char *key, json_t **out, Err *err)
{
    return (*out = field(obj, key, "an object", is_object, err)) != NULL;
}

bool json_want_array(const json_t *obj, const char *key, json_t **out, Err *err)
{
    return (*out = field(obj, key, "an array", is_array, err)) != NULL;
}

bool json_want_string(const json_t *obj, const char *key, const char **out, Err *err)
{
    json_t *v = field(obj, key, "a string", is_string, err);
    *out = json_string_value(v);
    return v != NULL;
}

bool json_want_int(const json_t *obj, const char *key, int64_t *out, Err *err)
{
    json_t *v = field(obj, key, "an integer", is_integer, err);
    *out = json_integer_value(v);
    return v != NULL;
}

bool json_want_bool(const json_t *obj, const char *key, bool *out, Err *err)
{
    json_t *v = field(obj, key, "a truth value", is_bool, err);
    *out = json_is_true(v);
    return v != NULL;
}

bool json_want_union(const json_t *obj, const char **tag, json_t **value, Err *err)
{
    if (!json_is_object(obj)) return fail(err, E_FORMAT, "found %s, expected an object with one key", json_kind(obj));
    if (json_object_size(obj) != 1) return fail(err, E_FORMAT, "found an object with %zu keys, expected one key", json_object_size(obj));
    void *it = json_object_iter((json_t *)(uintptr_t)obj);
    *tag = json_object_iter_key(it);
    *value = json_object_iter_value(it);
    return true;
}

void json_put_string(Buf *b, const char *s)
{
    buf_puts(b, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') buf_printf(b, "\\%c", c);
        else if (c == '\n') buf_puts(b, "\\n");
        else if (c == '\t') buf_puts(b, "\\t");
        else if (c < 0x20) buf_printf(b, "\\u%04x", c);
        else buf_add(b, s, 1);
    }
    buf_puts(b, "\"");
}

void json_put_number(Buf *b, double v)
{
    char s[DOUBLE_TEXT] = "null";
    if (isfinite(v)) print_double(s, v);
    buf_puts(b, s);
}
