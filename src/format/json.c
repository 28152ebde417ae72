/* JSON into one block. Contract in json.h; writing is at the end. */
#include "format/json.h"
#include "base/mem.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/jsonw.h"
#include "base/number.h"
#include "base/map.h"
#include "base/pages.h"

/* MAX_DEPTH: a program's 32 graphs inside of each other are seven deep each. FEW: keys of an object that are compared
 * one by one; more of them get a hash table. */
enum { MAX_DEPTH = 256, FEW = 8 };
static const size_t max_size = (size_t)512 << 20;

typedef struct Reader {
    char *text, *end, *s; /* the copy, its end (a NUL) and where reading is; strings are unescaped in place */
    json_t *next;         /* the next value to fill */
    const char *problem;  /* what is wrong at s */
    const char *kept;     /* key of arrays that stay text; NULL: none do */
    bool passing;         /* within one of them, whose values are read and forgotten */
} Reader;

/* Brackets outside strings are counted before anything recurses, and with them values and keys:
 * none is missed where the text is JSON. */
static bool survey(const char *s, size_t n, const char *what, size_t *values, size_t *keys, Err *err)
{
    int depth = 0;
    bool in_string = false, in_word = false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (in_string) {
            if (c == '\\') i++;
            else if (c == '"') in_string = false;
            continue;
        }
        bool word = false;
        switch (c) {
        case '"':
            in_string = true;
            ++*values;
            break;
        case '[':
        case '{':
            if (++depth > MAX_DEPTH)
                return fail(err, E_LIMIT, "%s: byte %zu: nested deeper than %d", what, i, MAX_DEPTH);
            ++*values;
            break;
        case ']':
        case '}': depth--; break;
        case ':': ++*keys; break;
        case ',':
        case ' ':
        case '\t':
        case '\n':
        case '\r': break;
        default: word = true; *values += !in_word;
        }
        in_word = word;
    }
    return true;
}

/* ------------------------------------------------------------------ reading */

static bool wrong(Reader *r, const char *problem)
{
    if (!r->problem) r->problem = problem;
    return false;
}

static void skip_space(Reader *r)
{
    while (*r->s == ' ' || *r->s == '\t' || *r->s == '\n' || *r->s == '\r') r->s++;
}

static json_t *put(Reader *r, JsonType t, const char *text)
{
    json_t *v = r->next++;
    *v = (json_t){.at = text ? (uint32_t)(text - (const char *)v) : 0, .type = (unsigned)t & 7, .span = 1};
    return v;
}

bool json_is_utf8(const char *s)
{
    for (int n; *s; s += n)
        if (!(n = utf8_length(s))) return false;
    return true;
}

static int four_hex(const char *s)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int d = s[i] >= '0' && s[i] <= '9'   ? s[i] - '0'
                : s[i] >= 'a' && s[i] <= 'f' ? s[i] - 'a' + 10
                : s[i] >= 'A' && s[i] <= 'F' ? s[i] - 'A' + 10
                                             : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* \uXXXX at r->s, or a pair of them; *to goes on by the character's bytes. */
static bool read_unicode(Reader *r, char **to)
{
    int c = four_hex(r->s + 2), low = -1;
    if (c < 0) return wrong(r, "four hexadecimal digits expected after \\u");
    if (c == 0) return wrong(r, "\\u0000 is not supported");
    if (c >= 0xd800 && c < 0xe000) {
        if (c < 0xdc00 && r->s[6] == '\\' && r->s[7] == 'u') low = four_hex(r->s + 8);
        if (low < 0xdc00 || low > 0xdfff) return wrong(r, "half of a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        r->s += 6;
    }
    r->s += 6;
    char *p = *to;
    if (c < 0x80) *p++ = (char)c;
    else {
        if (c < 0x800) *p++ = (char)(0xc0 | c >> 6);
        else {
            if (c < 0x10000) *p++ = (char)(0xe0 | c >> 12);
            else {
                *p++ = (char)(0xf0 | c >> 18);
                *p++ = (char)(0x80 | (c >> 12 & 0x3f));
            }
            *p++ = (char)(0x80 | (c >> 6 & 0x3f));
        }
        *p++ = (char)(0x80 | (c & 0x3f));
    }
    *to = p;
    return true;
}

static bool read_string(Reader *r)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    char *start = ++r->s, *to = start;
    while (*r->s != '"') {
        unsigned char c = (unsigned char)*r->s;
        if (c == '\\') {
            const char *e = r->s[1] ? strchr(from, r->s[1]) : NULL;
            if (e) {
                *to++ = into[e - from];
                r->s += 2;
            } else if (r->s[1] != 'u') return wrong(r, "invalid escape");
            else if (!read_unicode(r, &to)) return false;
        } else if (c < 0x20)
            return wrong(r, r->s == r->end ? "the text ends within a string" : "control character in a string");
        else {
            int n = utf8_length(r->s);
            if (!n) return wrong(r, "not UTF-8");
            for (; n; n--) *to++ = *r->s++;
        }
    }
    r->s++;
    *to = 0;
    put(r, JSON_STRING, start)->span = (uint32_t)(to - start) & 0x1fffffff;
    return true;
}

static bool digits(Reader *r)
{
    const char *start = r->s;
    while (*r->s >= '0' && *r->s <= '9') r->s++;
    return r->s > start || wrong(r, "digit expected");
}

static size_t number_length(const char *s) { return strspn(s, "+-0123456789.eE"); }

static bool read_number(Reader *r)
{
    const char *start = r->s;
    bool real = false;
    r->s += *r->s == '-';
    if (*r->s == '0') r->s++;
    else if (!digits(r)) return false;
    if (*r->s == '.') {
        real = true;
        r->s++;
        if (!digits(r)) return false;
    }
    if (*r->s == 'e' || *r->s == 'E') {
        real = true;
        r->s++;
        r->s += *r->s == '+' || *r->s == '-';
        if (!digits(r)) return false;
    }
    if (real && !isfinite(parse_double(start, NULL))) return wrong(r, "number too large");
    if (!real && r->s - start >= 19) {
        errno = 0;
        parse_int(start, NULL);
        if (errno) return wrong(r, "integer too large for 64 bits");
    }
    put(r, real ? JSON_REAL : JSON_INTEGER, start);
    return true;
}

static bool read_word(Reader *r, const char *word, JsonType t)
{
    if (strncmp(r->s, word, strlen(word))) return wrong(r, "a value expected");
    r->s += strlen(word);
    put(r, t, NULL);
    return true;
}

/* Slots of the table after an object's members: places of keys, counted from the object; 0 = free. */
static uint32_t table_size(uint32_t members)
{
    uint32_t n = 2 * FEW;
    if (members <= FEW) return 0;
    while (n < members + members / 2) n *= 2;
    return n;
}

static uint32_t *table_of(const json_t *obj, uint32_t n) { return (uint32_t *)(uintptr_t)(obj + obj->span) - n; }

/* Where `key` stands or would stand. */
static uint32_t *slot_of(const json_t *obj, uint32_t *table, uint32_t n, const char *key, size_t length)
{
    for (uint64_t i = hash_keyed(key, length);; i++) {
        uint32_t *slot = &table[i & (n - 1)];
        if (!*slot || !strcmp(json_string_value(obj + *slot), key)) return slot;
    }
}

static bool close_object(Reader *r, json_t *obj)
{
    uint32_t n = table_size(obj->at), *table = (uint32_t *)r->next, i = 0;
    const json_t *k = obj + 1;
    memset(table, 0, n * sizeof *table);
    r->next += n / 2;
    obj->span = (uint32_t)(r->next - obj) & 0x1fffffff;
    for (; i < obj->at; i++, k = json_next(k + 1)) {
        const char *key = json_string_value(k);
        if (n) {
            uint32_t *slot = slot_of(obj, table, n, key, json_string_length(k));
            if (*slot) return wrong(r, "duplicate object key in the object that ends here");
            *slot = (uint32_t)(k - obj);
            continue;
        }
        for (const json_t *j = obj + 1; j < k; j = json_next(j + 1))
            if (!strcmp(json_string_value(j), key))
                return wrong(r, "duplicate object key in the object that ends here");
    }
    return true;
}

static bool read_value(Reader *r);

static bool read_kept(Reader *r)
{
    json_t *v = r->next;
    const char *start = r->s;
    r->passing = true;
    if (!read_value(r)) return false;
    r->passing = false;
    r->next = v;
    put(r, JSON_NULL, start);
    return true;
}

static bool read_members(Reader *r, bool object)
{
    char close = object ? '}' : ']';
    json_t *v = put(r, object ? JSON_OBJECT : JSON_ARRAY, NULL);
    r->s++;
    skip_space(r);
    while (*r->s != close) {
        if (v->at) {
            if (*r->s != ',') return wrong(r, object ? "',' or '}' expected" : "',' or ']' expected");
            r->s++;
            skip_space(r);
        }
        bool kept = false;
        if (object) {
            const json_t *key = r->next;
            if (*r->s != '"') return wrong(r, "a key in quotes expected");
            if (!read_string(r)) return false;
            kept = r->kept && !r->passing && !strcmp(json_string_value(key), r->kept);
            skip_space(r);
            if (*r->s != ':') return wrong(r, "':' expected");
            r->s++;
            skip_space(r);
        }
        if (!(kept && *r->s == '[' ? read_kept(r) : read_value(r))) return false;
        skip_space(r);
        v->at++;
        if (r->passing) r->next = v + 1;
    }
    r->s++;
    if (r->passing) return true;
    v->span = (uint32_t)(r->next - v) & 0x1fffffff;
    return !object || close_object(r, v);
}

static bool read_value(Reader *r)
{
    switch (*r->s) {
    case '{': return read_members(r, true);
    case '[': return read_members(r, false);
    case '"': return read_string(r);
    case 't': return read_word(r, "true", JSON_TRUE);
    case 'f': return read_word(r, "false", JSON_FALSE);
    case 'n': return read_word(r, "null", JSON_NULL);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return read_number(r);
    default: return wrong(r, r->s == r->end ? "the text ends within a value" : "a value expected");
    }
}

static bool read_top(Reader *r)
{
    skip_space(r);
    if (*r->s != '{' && *r->s != '[') return wrong(r, "'[' or '{' expected");
    if (!read_value(r)) return false;
    skip_space(r);
    return r->s == r->end || wrong(r, "end of the text expected");
}

static void locate(const char *text, size_t n, int *line, int *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n') {
            ++*line;
            *column = 1;
        } else *column += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
}

static json_t *read_text(const void *bytes, size_t size, size_t most, const char *kept, bool file, const char *what,
                         Err *err)
{
    size_t values = 0, keys = 0, need, table;
    json_t *root = NULL;
    if (size == 0) {
        fail(err, E_FORMAT, "%s: empty, expected JSON", what);
        return NULL;
    }
    if (size > max_size) {
        fail(err, E_LIMIT, "%s: %zu bytes of JSON, at most %zu are read", what, size, max_size);
        return NULL;
    }
    if (!survey(bytes, size, what, &values, &keys, err)) return NULL;
    /* Room for tables: 3 slots of 4 bytes a key at most. What is not needed of it is never written,
     * and so takes no memory. */
    if (!mul_size(values, sizeof *root, &need) || !mul_size(keys, 3 * sizeof(uint32_t), &table) ||
        !add_size(need, table, &need) || !add_size(need, size + 1, &need) || need > UINT32_MAX || need > most) {
        fail(err, E_LIMIT,
             "%s: its %zu bytes hold %zu values, which take %zu MiB to read; at most %zu are allowed for a file of "
             "this size",
             what, size, values, need >> 20, (need > most ? most : UINT32_MAX) >> 20);
        return NULL;
    }
    root = mem_alloc(need);
    if (!root) {
        fail(err, E_LIMIT, "%s: out of memory", what);
        return NULL;
    }
    Reader r = {.text = (char *)root + (need - size - 1), .next = root, .kept = kept};
    memcpy(r.text, bytes, size);
    if (file) pages_done(bytes, size);
    r.s = r.text;
    r.end = r.text + size;
    *r.end = 0;
    if (read_top(&r)) return root;
    int line, column;
    locate(bytes, (size_t)(r.s - r.text), &line, &column);
    fail(err, E_FORMAT, "%s: line %d, column %d (byte %zu): %s", what, line, column, (size_t)(r.s - r.text), r.problem);
    mem_free(root);
    return NULL;
}

json_t *json_read_within(const void *bytes, size_t size, size_t most, const char *what, Err *err)
{
    return read_text(bytes, size, most, NULL, false, what, err);
}

json_t *json_read_file(const void *bytes, size_t size, size_t most, const char *what, Err *err)
{
    return read_text(bytes, size, most, NULL, true, what, err);
}

json_t *json_read_keeping(const void *bytes, size_t size, const char *key, const char *what, Err *err)
{
    return read_text(bytes, size, SIZE_MAX, key, false, what, err);
}

void json_free(json_t *root) { mem_free(root); }

/* ------------------------------------------------------------------ arrays that stay text */

const char *json_kept(const json_t *v) { return json_is_null(v) && v->at ? (const char *)v + v->at : NULL; }

/* The text after a number; whether it is a real one. */
static const char *after_number(const char *s, bool *real)
{
    for (*real = false; is_digit(*s) || *s == '-' || *s == '+' || *s == '.' || *s == 'e' || *s == 'E'; s++)
        *real |= *s == '.' || *s == 'e' || *s == 'E';
    return s;
}

bool json_kept_value(const char **s, int *depth, JsonType *type, const char **text)
{
    for (;; ++*s) {
        if (**s == '[') ++*depth;
        else if (**s == ']' && !--*depth) return false;
        else if (!strchr("], \t\n\r", **s)) break;
    }
    bool real;
    *text = *s;
    switch (**s) {
    case '"': *type = JSON_STRING; break;
    case '{': *type = JSON_OBJECT; break;
    case 't': *type = JSON_TRUE, *s += 4; break;
    case 'f': *type = JSON_FALSE, *s += 5; break;
    case 'n': *type = JSON_NULL, *s += 4; break;
    default: *s = after_number(*s, &real), *type = real ? JSON_REAL : JSON_INTEGER;
    }
    return true;
}

/* ------------------------------------------------------------------ access */

int64_t json_to_int(const json_t *v) { return json_is_integer(v) ? parse_int((const char *)v + v->at, NULL) : 0; }

double json_to_double(const json_t *v)
{
    return json_is_real(v) ? parse_double((const char *)v + v->at, NULL) : (double)json_integer_value(v);
}

json_t *json_find(const json_t *obj, const char *key)
{
    if (!json_is_object(obj)) return NULL;
    uint32_t n = table_size(obj->at);
    if (n) {
        uint32_t at = *slot_of(obj, table_of(obj, n), n, key, strlen(key));
        return at ? (json_t *)(uintptr_t)(obj + at + 1) : NULL;
    }
    const json_t *k = obj + 1;
    for (uint32_t i = 0; i < obj->at; i++, k = json_next(k + 1))
        if (!strcmp(json_string_value(k), key)) return (json_t *)(uintptr_t)(k + 1);
    return NULL;
}

json_t *json_element(const json_t *array, size_t i)
{
    if (i >= json_array_size(array)) return NULL;
    const json_t *v = array + 1;
    for (; i; i--) v = json_next(v);
    return (json_t *)(uintptr_t)v;
}

const char *json_type_name(JsonType t)
{
    static const char *const names[] = {"object", "array", "string", "integer", "number", "true", "false", "null"};
    return names[t];
}

const char *json_kind(const json_t *v) { return v ? json_type_name(json_typeof(v)) : "nothing"; }

static json_t *field(const json_t *obj, const char *key, const char *expected, bool (*is)(const json_t *), Err *err)
{
    json_t *v = json_object_get(obj, key);
    if (v && is(v)) return v;
    if (!json_is_object(obj)) fail(err, E_FORMAT, "found %s, expected an object with '%s'", json_kind(obj), key);
    else if (!v) fail(err, E_FORMAT, "field '%s': missing", key);
    else fail(err, E_FORMAT, "field '%s': found %s, expected %s", key, json_kind(v), expected);
    return NULL;
}

bool json_want_object(const json_t *obj, const char *key, json_t **out, Err *err)
{
    return (*out = field(obj, key, "an object", json_is_object, err)) != NULL;
}

bool json_want_array(const json_t *obj, const char *key, json_t **out, Err *err)
{
    return (*out = field(obj, key, "an array", json_is_array, err)) != NULL;
}

bool json_want_string(const json_t *obj, const char *key, const char **out, Err *err)
{
    json_t *v = field(obj, key, "a string", json_is_string, err);
    *out = json_string_value(v);
    return v != NULL;
}

bool json_want_int(const json_t *obj, const char *key, int64_t *out, Err *err)
{
    json_t *v = field(obj, key, "an integer", json_is_integer, err);
    *out = json_integer_value(v);
    return v != NULL;
}

bool json_want_bool(const json_t *obj, const char *key, bool *out, Err *err)
{
    json_t *v = field(obj, key, "a truth value", json_is_boolean, err);
    *out = json_is_true(v);
    return v != NULL;
}

bool json_may_bool(const json_t *obj, const char *key, bool *out, Err *err)
{
    const json_t *v = json_find(obj, key);
    return !v || json_is_null(v) || json_want_bool(obj, key, out, err);
}

bool json_want_union(const json_t *obj, const char **tag, json_t **value, Err *err)
{
    if (!json_is_object(obj)) return fail(err, E_FORMAT, "found %s, expected an object with one key", json_kind(obj));
    if (json_object_size(obj) != 1)
        return fail(err, E_FORMAT, "found an object with %zu keys, expected one key", json_object_size(obj));
    *tag = json_string_value(obj + 1);
    *value = json_below(obj) + 1;
    return true;
}

/* ------------------------------------------------------------------ writing */

void json_put(Buf *b, const char *key, const json_t *v)
{
    const char *name;
    json_t *below;
    size_t i;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        jw_open(b, key, '{');
        json_object_foreach(v, name, below) json_put(b, name, below);
        jw_close(b, "}");
        break;
    case JSON_ARRAY:
        jw_open(b, key, '[');
        json_array_foreach(v, i, below) json_put(b, NULL, below);
        jw_close(b, "]");
        break;
    case JSON_STRING: jw_text(b, key, json_string_value(v)); break;
    case JSON_INTEGER:
    case JSON_REAL:
        jw_key(b, key);
        buf_add(b, (const char *)v + v->at, number_length((const char *)v + v->at));
        break;
    case JSON_TRUE:
    case JSON_FALSE: jw_bool(b, key, json_is_true(v)); break;
    default: jw_text(b, key, NULL);
    }
}
