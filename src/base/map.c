#include "base/map.h"
#include <string.h>
#include "base/mem.h"

uint64_t hash_bytes(const void *p, size_t n)
{
    const unsigned char *s = p;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ s[i]) * 0x100000001b3u;
    return h;
}

static size_t find(const Map *m, const char *key, uint64_t h)
{
    size_t i = h & (m->nslots - 1);
    for (; m->slots[i]; i = (i + 1) & (m->nslots - 1)) {
        const MapEntry *e = &m->entries[m->slots[i] - 1];
        if (e->hash == h && !strcmp(e->key, key)) break;
    }
    return i;
}

static bool grow(Map *m)
{
    size_t n = m->nslots ? m->nslots * 2 : 64;
    uint32_t *slots = mem_zeroed(n, sizeof *slots);
    MapEntry *e = mem_grow(m->entries, n / 2 * sizeof *e);
    if (e) m->entries = e;
    if (!slots || !e) {
        mem_free(slots);
        return false;
    }
    mem_free(m->slots);
    m->slots = slots;
    m->nslots = n;
    m->cap = n / 2;
    for (size_t k = 0; k < m->count; k++) {
        size_t i = m->entries[k].hash & (n - 1);
        while (slots[i]) i = (i + 1) & (n - 1);
        slots[i] = (uint32_t)k + 1;
    }
    return true;
}

bool map_put(Map *m, const char *key, void *value)
{
    if (m->count == m->cap && !grow(m)) return false;
    uint64_t h = hash_bytes(key, strlen(key));
    size_t i = find(m, key, h);
    if (m->slots[i]) m->entries[m->slots[i] - 1].value = value;
    else {
        m->entries[m->count] = (MapEntry){key, value, h};
        m->slots[i] = (uint32_t)++m->count;
    }
    return true;
}

static const MapEntry *lookup(const Map *m, const char *key)
{
    if (!m->nslots) return NULL;
    size_t i = find(m, key, hash_bytes(key, strlen(key)));
    return m->slots[i] ? &m->entries[m->slots[i] - 1] : NULL;
}

void *map_get(const Map *m, const char *key)
{
    const MapEntry *e = lookup(m, key);
    return e ? e->value : NULL;
}

bool map_has(const Map *m, const char *key) { return lookup(m, key) != NULL; }

void map_free(Map *m)
{
    mem_free(m->entries);
    mem_free(m->slots);
    *m = (Map){0};
}
