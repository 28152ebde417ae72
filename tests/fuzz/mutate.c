/* Mutations of bytes, and of the values of JSON texts. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz.h"

static uint64_t state;

void mutate_seed(uint64_t seed) { state = seed; }

/* splitmix64 (Steele, Lea, Flood 2014). */
size_t fuzz_random(size_t n)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return n ? (size_t)(z % n) : 0;
}

static int64_t number(void)
{
    static const int64_t edges[] = {0,         1,         2,         3,         4,         7,          8,
                                    15,        16,        17,        63,        64,        65,         127,
                                    128,       255,       256,       1000,      4095,      4096,       32767,
                                    32768,     65535,     65536,     1 << 20,   INT32_MAX, UINT32_MAX, 1LL << 32,
                                    1LL << 40, 1LL << 46, 1LL << 61, 1LL << 62, INT64_MAX, INT64_MIN,  INT32_MIN};
    int64_t v = edges[fuzz_random(sizeof edges / sizeof *edges)];
    size_t change = fuzz_random(8);
    if (change < 3) return v == INT64_MIN ? v : -v;
    return change == 3 ? (int64_t)((uint64_t)v - 1) : change == 4 ? (int64_t)((uint64_t)v + 1) : v;
}

/* ------------------------------------------------------------------ bytes */

/* Makes room for n bytes at `at`, or as many as fit. */
static size_t open_gap(uint8_t *data, size_t *size, size_t max, size_t at, size_t n)
{
    if (n > max - *size) n = max - *size;
    memmove(data + at + n, data + at, *size - at);
    *size += n;
    return n;
}

static size_t put(uint8_t *data, size_t size, size_t max, const void *bytes, size_t n, bool insert)
{
    size_t at = fuzz_random(size + 1);
    n = insert ? open_gap(data, &size, max, at, n) : n < size - at ? n : size - at;
    memcpy(data + at, bytes, n);
    return size;
}

/* A binary number of 1 to 8 bytes: an edge, a little more or less, or a size of this input. */
static void length_field(uint8_t *data, size_t size)
{
    size_t width = (size_t)1 << fuzz_random(4), how = fuzz_random(4);
    if (size < width) return;
    size_t at = fuzz_random(size - width + 1);
    bool big = fuzz_random(4) == 0;
    uint64_t v = 0;
    for (size_t i = 0; i < width; i++) v |= (uint64_t)data[at + i] << 8 * (big ? width - 1 - i : i);
    if (how == 0) v = (uint64_t)number();
    else if (how == 1) v = size - fuzz_random(2) * at;
    else v += fuzz_random(33) - 16;
    for (size_t i = 0; i < width; i++) data[at + i] = (uint8_t)(v >> 8 * (big ? width - 1 - i : i));
}

/* A number written in digits. */
static size_t decimal(uint8_t *data, size_t size, size_t max)
{
    size_t at = fuzz_random(size);
    while (at < size && !isdigit(data[at])) at++;
    size_t end = at;
    while (end < size && isdigit(data[end])) end++;
    if (at == size) return size;
    char text[32];
    size_t n = (size_t)snprintf(text, sizeof text, "%lld", (long long)number());
    memmove(data + at, data + end, size - end);
    size -= end - at;
    n = open_gap(data, &size, max, at, n);
    memcpy(data + at, text, n);
    return size;
}

static size_t mutate_once(uint8_t *data, size_t size, size_t max)
{
    size_t at = fuzz_random(size), n = 1 + fuzz_random(fuzz_random(2) ? 8 : size - at), tokens = 0, other;
    if (!size) return put(data, 0, max, "0", 1, true);
    switch (fuzz_random(11)) {
    case 0: data[at] ^= (uint8_t)(1u << fuzz_random(8)); return size;
    case 1: data[at] = (uint8_t)fuzz_random(256); return size;
    case 2:
    case 3: length_field(data, size); return size;
    case 4: /* take a piece out */
        if (n > size - at) n = size - at;
        memmove(data + at, data + at + n, size - at - n);
        return size - n;
    case 5: /* repeat a piece */
        if (n > size - at) n = size - at;
        n = open_gap(data, &size, max, at, n);
        memmove(data + at, data + at + n, n);
        return size;
    case 6: return fuzz_random(4) ? size : fuzz_random(size);
    case 7: return decimal(data, size, max);
    case 8: { /* a piece of another input */
        const uint8_t *from = driver_other(&other);
        size_t begin = fuzz_random(other);
        n = 1 + fuzz_random(fuzz_random(2) ? 64 : other - begin);
        return put(data, size, max, from + begin, n < other - begin ? n : other - begin, fuzz_random(2));
    }
    default:
        while (fuzz_target.tokens[tokens]) tokens++;
        if (!tokens) return size;
        const char *token = fuzz_target.tokens[fuzz_random(tokens)];
        return put(data, size, max, token, strlen(token), fuzz_random(2));
    }
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max)
{
    for (size_t i = fuzz_random(4) + 1; i; i--) size = mutate_once(data, size, max);
    return size;
}

/* ------------------------------------------------------------------ JSON */

/* A place in a document that holds a value. */
typedef struct Place {
    json_t *parent, *value;
    const char *key; /* in an object; NULL in an array */
    size_t index;
} Place;

typedef struct Places {
    Place *place;
    size_t n, cap;
} Places;

static void collect(Places *all, json_t *parent);

static void add_place(Places *all, Place p)
{
    if (p.key && !strcmp(p.key, "metadata")) json_object_clear(p.value); /* most of a .pt2, and hardly read */
    if (p.key && !strcmp(p.key, "module_call_graph")) json_array_clear(p.value);
    if (all->n == all->cap) {
        all->cap = all->cap ? 2 * all->cap : 256;
        all->place = realloc(all->place, all->cap * sizeof *all->place);
        if (!all->place) abort();
    }
    all->place[all->n++] = p;
    collect(all, p.value);
}

static void collect(Places *all, json_t *parent)
{
    const char *key;
    size_t i;
    json_t *v;
    if (json_is_object(parent)) {
        json_object_foreach(parent, key, v) add_place(all, (Place){parent, v, key, 0});
    } else {
        json_array_foreach(parent, i, v) add_place(all, (Place){parent, v, NULL, i});
    }
}

static void set(const Place *p, json_t *v) /* takes v */
{
    if (p->key) json_object_set_new_nocheck(p->parent, p->key, v);
    else json_array_set_new(p->parent, p->index, v);
}

/* A value of the same kind from elsewhere in the document, most of the time. */
static json_t *elsewhere(const Places *all, const Place *p)
{
    const Place *q = &all->place[fuzz_random(all->n)];
    for (int tries = 0; tries < 50 && fuzz_random(10) && json_typeof(q->value) != json_typeof(p->value); tries++)
        q = &all->place[fuzz_random(all->n)];
    return json_deep_copy(q->value);
}

static json_t *changed_string(const char *s)
{
    char text[256];
    size_t n = strlen(s);
    if (n >= sizeof text / 2) return json_string("");
    memcpy(text, s, n);
    n = LLVMFuzzerMutate((uint8_t *)text, n, sizeof text - 1);
    json_t *v = json_stringn(text, n);
    return v ? v : json_string("?");
}

static json_t *changed(const Places *all, const Place *p)
{
    json_t *v = p->value;
    if (fuzz_random(3) == 0) return elsewhere(all, p);
    if (json_is_integer(v))
        return json_integer(fuzz_random(2) ? (json_int_t)((uint64_t)json_integer_value(v) + fuzz_random(9) - 4)
                                           : number());
    if (json_is_real(v)) return json_real((double)number());
    if (json_is_string(v)) return changed_string(json_string_value(v));
    if (json_is_boolean(v)) return json_boolean(!json_is_true(v));
    return fuzz_random(2) ? elsewhere(all, p) : json_null();
}

static void edit(const Places *all, const Place *p)
{
    switch (fuzz_random(8)) {
    case 0:
        if (p->key) json_object_del(p->parent, p->key);
        else json_array_remove(p->parent, p->index);
        return;
    case 1:
        if (p->key) set(p, elsewhere(all, p));
        else json_array_insert_new(p->parent, p->index, elsewhere(all, p));
        return;
    case 2:
        if (p->key && fuzz_random(4) == 0)
            json_object_set_new(p->parent, fuzz_target.tokens[0], json_deep_copy(p->value));
        else if (!p->key && p->index) json_array_set(p->parent, p->index, json_array_get(p->parent, p->index - 1));
        return;
    default: set(p, changed(all, p));
    }
}

size_t json_mutate(uint8_t *data, size_t size, size_t max)
{
    json_t *root = fuzz_random(8) ? json_loadb((const char *)data, size, 0, NULL) : NULL;
    if (!root) return LLVMFuzzerMutate(data, size, max);
    for (size_t i = fuzz_random(3) + 1; i; i--) { /* places are found again: an edit may have freed some */
        Places all = {0};
        collect(&all, root);
        if (all.n) edit(&all, &all.place[fuzz_random(all.n)]);
        free(all.place);
    }
    size_t n = json_dumpb(root, (char *)data, max, JSON_COMPACT);
    json_decref(root);
    return n <= max ? n : max;
}
