/* JSON texts: what is read is written and read again, and is the same. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "format/json.h"
#include "fuzz.h"

static const char *const tokens[] = {"{\"a\":",
                                     "[",
                                     "]",
                                     "}",
                                     ",",
                                     "\\ud800",
                                     "\\u0000",
                                     "\\\"",
                                     "1e999",
                                     "-0",
                                     "NaN",
                                     "null",
                                     "\"",
                                     "1e-400",
                                     "true",
                                     "\xef\xbb\xbf",
                                     "\xff",
                                     "/**/",
                                     "9223372036854775808",
                                     NULL};

static void seeds(FuzzAdd *add)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "[1, -2.5e3, true, false, null, \"a\\n\\u00e9\\ud83d\\ude00\"]",
        "{\"a\": {\"b\": [[[]]], \"c\": 9223372036854775807}, \"d\": \"\"}",
        "  [ 0 , 1.0 ]\n",
        "{\"target\": \"aten.add\", \"dim\": 3, \"flag\": true, \"list\": [{\"as_int\": 1}]}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) add(texts[i], strlen(texts[i]));
}

/* Typed access to every value of a small document by every kind. */
static void ask(const json_t *v)
{
    const char *key = "target", *s;
    json_t *any;
    int64_t n;
    bool b;
    Err err = {0};
    if (!json_want_string(v, key, &s, &err)) fuzz_said(&err);
    if (!json_want_int(v, "dim", &n, &err)) fuzz_said(&err);
    if (!json_want_bool(v, "flag", &b, &err)) fuzz_said(&err);
    if (!json_want_array(v, "list", &any, &err)) fuzz_said(&err);
    if (!json_want_object(v, "a", &any, &err)) fuzz_said(&err);
    if (json_want_union(v, &key, &any, &err)) ask(any);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Err err = {0};
    json_t *v = json_read(data, size, "text", &err);
    if (!v) {
        fuzz_said(&err);
        return 0;
    }
    ask(v);
    Buf text = {0}, twice = {0};
    json_put(&text, NULL, v);
    json_t *again = json_read(text.data, text.len, "again", &err);
    if (again) json_put(&twice, NULL, again);
    fuzz_check(again && twice.len == text.len && !memcmp(twice.data, text.data, text.len),
               "a text that was read reads the same when written");
    json_free(again);
    json_free(v);
    buf_free(&text);
    buf_free(&twice);
    return 0;
}

const FuzzTarget fuzz_target = {.name = "json", .tokens = tokens, .seeds = seeds, .memory_ratio = 30};
