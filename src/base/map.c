#include "base/map.h"
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include "base/mem.h"
#include "base/vec.h"

uint64_t hash_bytes(const void *p, size_t n)
{
    const unsigned char *s = p;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ s[i]) * 0x100000001b3u;
    return h;
}

static uint64_t secret[2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void draw_secret(void)
{
    struct timespec now;
#if defined(__APPLE__)
    if (getentropy(secret, sizeof secret) == 0) return;
#else
    if (getrandom(secret, sizeof secret, GRND_NONBLOCK) == (ssize_t)sizeof secret) return;
#endif
    clock_gettime(CLOCK_REALTIME, &now); /* early at boot, or forbidden: time and where the program is in memory */
    secret[0] = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30;
    secret[1] = (uintptr_t)&now ^ (uint64_t)(uintptr_t)&once << 32;
}

static uint64_t turn(uint64_t x, int by) { return x << by | x >> (64 - by); }

static inline __attribute__((always_inline)) void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = turn(v[1], 13) ^ v[0], v[0] = turn(v[0], 32);
    v[2] += v[3], v[3] = turn(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = turn(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = turn(v[1], 17) ^ v[2], v[2] = turn(v[2], 32);
}

uint64_t hash_keyed(const void *p, size_t n)
{
    pthread_once(&once, draw_secret);
    const char *s = p;
    uint64_t v[4] = {secret[0] ^ 0x736f6d6570736575u, secret[1] ^ 0x646f72616e646f6du, secret[0] ^ 0x6c7967656e657261u,
                     secret[1] ^ 0x7465646279746573u};
    for (size_t left = n;; left -= 8, s += 8) {
        uint64_t word = left < 8 ? (uint64_t)n << 56 : 0;
        memcpy(&word, s, left < 8 ? left : 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
        if (left < 8) break;
    }
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static MapEntry *lookup(const Map *m, const char *key, uint64_t h)
{
    size_t tried = 0;
    int64_t i;
    while ((i = lookup_next(&m->by_key, h, &tried)) >= 0)
        if (!strcmp(m->entries[i].key, key)) return &m->entries[i];
    return NULL;
}

static uint64_t hash_of(const char *key) { return hash_keyed(key, strlen(key)); }

bool map_put(Map *m, const char *key, void *value)
{
    uint64_t h = hash_of(key);
    MapEntry *known = lookup(m, key, h);
    if (known) {
        known->value = value;
        return true;
    }
    MapEntry *grown = vec_grow(m->entries, (int)m->count, sizeof *grown);
    if (grown) m->entries = grown;
    if (!grown || !lookup_add(&m->by_key, h, m->count)) return false;
    m->entries[m->count++] = (MapEntry){key, value};
    return true;
}

void *map_get(const Map *m, const char *key)
{
    const MapEntry *e = lookup(m, key, hash_of(key));
    return e ? e->value : NULL;
}

bool map_has(const Map *m, const char *key) { return lookup(m, key, hash_of(key)) != NULL; }

void map_free(Map *m)
{
    mem_free(m->entries);
    lookup_free(&m->by_key);
    *m = (Map){0};
}
