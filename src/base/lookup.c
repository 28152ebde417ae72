#include "base/lookup.h"
#include "base/mem.h"

enum { FEWEST = 16 };

static void put(struct LookupSlot *slot, size_t n, struct LookupSlot x)
{
    size_t i = x.hash & (n - 1);
    while (slot[i].place) i = (i + 1) & (n - 1);
    slot[i] = x;
}

/* Half of them stay free. */
static bool grow(Lookup *s)
{
    size_t n = s->n ? 2 * s->n : FEWEST;
    struct LookupSlot *slot = mem_zeroed(n, sizeof *slot);
    if (!slot) return false;
    for (size_t i = 0; i < s->n; i++)
        if (s->slot[i].place) put(slot, n, s->slot[i]);
    mem_free(s->slot);
    s->slot = slot;
    s->n = n;
    return true;
}

int64_t lookup_next(const Lookup *s, uint64_t hash, size_t *tried)
{
    while (s->n) {
        struct LookupSlot x = s->slot[((uint32_t)hash + (*tried)++) & (s->n - 1)];
        if (!x.place) return -1;
        if (x.hash == (uint32_t)hash) return (int64_t)x.place - 1;
    }
    return -1;
}

bool lookup_add(Lookup *s, uint64_t hash, size_t place)
{
    if (2 * s->taken >= s->n && !grow(s)) return false;
    put(s->slot, s->n, (struct LookupSlot){(uint32_t)hash, (uint32_t)place + 1});
    s->taken++;
    return true;
}

void lookup_free(Lookup *s)
{
    mem_free(s->slot);
    *s = (Lookup){0};
}
