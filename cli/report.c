/* Reports of the library and JSON on stdout. A report is read in pieces: jansson's form of a value takes hundreds of
 * bytes, and a model may have a million of them.
 *
 *     json_t *head = report_head(text);                      all but the lists
 *     for (size_t left = report_list(text, "outputs", &at); left; left--) {
 *         json_t *output = report_next(&at);
 *         ...
 *         json_decref(output);
 *     }
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"

static const char *after(const char *at, const char *skipped) { return at + strspn(at, skipped); }

json_t *report_next(const char **at)
{
    json_error_t where;
    *at = after(*at, " \n,");
    json_t *v = must(json_loads(*at, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &where));
    *at += where.position;
    return v;
}

/* What follows the value at `at`; *n: how many elements or members it has, if it is a list or an object. */
static const char *skip(const char *at, size_t *n)
{
    const char *first = after(at + 1, " \n");
    size_t depth = 0;
    *n = *first != ']' && *first != '}';
    do {
        if (*at == '"')
            while (*++at != '"') at += *at == '\\';
        depth += *at == '[' || *at == '{';
        depth -= *at == ']' || *at == '}';
        *n += *at == ',' && depth == 1;
        at++;
    } while (depth || !strchr(",:]} \n", *at));
    return at;
}

/* The member at *at, which moves to the next one: its name in quotes, its value and how many elements that has. */
static bool next_member(const char **at, const char **name, const char **value, size_t *n)
{
    *name = after(*at, "{ \n,");
    if (**name != '"') return false;
    *value = after(skip(*name, n), " \n:");
    *at = skip(*value, n);
    return true;
}

size_t report_list(const char *text, const char *key, const char **first)
{
    const char *name;
    size_t n, length = strlen(key);
    while (next_member(&text, &name, first, &n))
        if (!strncmp(name + 1, key, length) && name[length + 1] == '"') break;
    *first = **first == '[' ? *first + 1 : "";
    return **first ? n : 0;
}

const char *report_list_end(const char *first)
{
    size_t n;
    return *first ? skip(first - 1, &n) - 1 : first;
}

const char *report_member(const char *object, const char *key, size_t *length)
{
    const char *name, *value;
    size_t n, wanted = strlen(key);
    while (next_member(&object, &name, &value, &n))
        if (!strncmp(name + 1, key, wanted) && name[wanted + 1] == '"') {
            *length = (size_t)(object - value);
            return value;
        }
    *length = 0;
    return "";
}

const char *report_skip(const char **at)
{
    size_t n;
    const char *first = after(*at, " \n,");
    *at = skip(first, &n);
    return first;
}

json_t *report_head(const char *text)
{
    json_t *head = must(json_object());
    const char *name, *value;
    for (size_t n; next_member(&text, &name, &value, &n);) {
        if (*value == '[') continue;
        json_t *key = report_next(&name);
        json_object_set_new(head, json_string_value(key), report_next(&value));
        json_decref(key);
    }
    return head;
}

/* One line a key of the outer object and of objects in it, one line an element where its elements are lists or
 * objects. */
static void put(const char **at, int depth, bool inline_all)
{
    const char *sep = "", *first = after(*at + 1, " \n");
    bool object = **at == '{', list = **at == '[', empty = *first == '}' || *first == ']';
    bool broken = !inline_all && (object ? depth < 2 && !empty : *first == '{' || *first == '[');
    int inner = depth + 1;
    if (!object && !list) {
        json_t *v = report_next(at);
        char *text = must(json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10)));
        int n;
        for (const char *p = text; *p; p += n) {
            unsigned c = hidden_character(p, &n); /* of a text, where it may be written in either form */
            if (c > 0xffff) printf("\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
            else if (c) printf("\\u%04x", c);
            else fwrite(p, 1, (size_t)n, stdout);
        }
        free(text);
        json_decref(v);
        return;
    }
    putchar(**at);
    if (broken) putchar('\n');
    for (*at = first; **at != (object ? '}' : ']'); *at = after(*at, " \n,")) {
        printf("%s%*s", sep, broken ? 2 * inner : 0, "");
        if (object) {
            put(at, inner, true);
            fputs(": ", stdout);
            *at = after(*at, " \n:");
        }
        put(at, inner, !broken);
        sep = broken ? ",\n" : ", ";
    }
    if (broken) printf("\n%*s", 2 * depth, "");
    putchar(*(*at)++);
}

void report_print(const char *text)
{
    put(&text, 0, false);
    putchar('\n');
}

void json_print(json_t *v)
{
    char *text = must(json_dumps(v, 0));
    report_print(text);
    free(text);
    json_decref(v);
}
