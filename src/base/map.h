/* Map: string -> pointer, open addressing, insertion order kept for iteration.
 * Keys are borrowed: they must outlive the map (they live in the same arena as a rule).
 *
 *     Map m = {0};
 *     map_put(&m, "x", value);      false when out of memory; an existing key is replaced
 *     Value *v = map_get(&m, "x");  NULL when absent
 *     for (size_t i = 0; i < m.count; i++) use(m.entries[i].key, m.entries[i].value);
 *     map_free(&m);
 */
#ifndef QKV_BASE_MAP_H
#define QKV_BASE_MAP_H
#include "base/lookup.h"

typedef struct MapEntry {
    const char *key;
    void *value;
} MapEntry;

typedef struct Map {
    MapEntry *entries; /* in the order of first insertion */
    size_t count;
    Lookup by_key;
} Map;

bool map_put(Map *m, const char *key, void *value);
void *map_get(const Map *m, const char *key);
bool map_has(const Map *m, const char *key);
void map_free(Map *m);
uint64_t hash_bytes(const void *p, size_t n); /* FNV-1a, 64 bits: the same in every process */
/* SipHash-1-3 with a key that this process drew: for tables whose keys a file chooses,
 * so that it cannot choose keys that collide. */
uint64_t hash_keyed(const void *p, size_t n);
#endif
