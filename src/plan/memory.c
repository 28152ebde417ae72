/* Memory planning. Contract in memory.h. */
#include "plan/memory.h"
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/mem.h"

enum { ALIGN = 64, MANY = 4096 }; /* of more blocks, one order is enough */

/* What to place first. None is the best for every graph; the first one is the best for most. */
typedef enum Order { BY_SIZE, BY_SIZE_BEST_FIT, BY_AREA, BY_BIRTH, ORDERS } Order;

typedef struct Sorting {
    const Block *block;
    Order order;
} Sorting;

static int compare(size_t x, size_t y) { return x < y ? 1 : x > y ? -1 : 0; }

static size_t life(const Block *b) { return (size_t)(b->last - b->first) + 1; }

static int before(const void *a, const void *b, void *user)
{
    const Sorting *s = user;
    int i = *(const int *)a, k = *(const int *)b, c = 0;
    const Block *x = &s->block[i], *y = &s->block[k];
    size_t ax, ay;
    if (s->order == BY_AREA && mul_size(x->size, life(x), &ax) && mul_size(y->size, life(y), &ay)) c = compare(ax, ay);
    if (s->order == BY_BIRTH) c = x->first - y->first;
    if (!c) c = compare(x->size, y->size);
    return c ? c : i - k;
}

static bool round_up(size_t n, size_t *out)
{
    if (!add_size(n, ALIGN - 1, out)) return false;
    *out = *out / ALIGN * ALIGN;
    return true;
}

/* placed: indices of placed blocks, sorted by offset. tight: the smallest gap that is large enough; else the lowest. */
static bool place(Block *block, int *placed, int nplaced, int which, bool tight)
{
    Block *b = &block[which];
    size_t at = 0, end, best = 0, room = SIZE_MAX;
    int where = nplaced;
    for (int k = 0; k < nplaced; k++) {
        const Block *o = &block[placed[k]];
        if (o->last < b->first || b->last < o->first) continue;
        if (o->offset >= at && o->offset - at >= b->size && o->offset - at < room) {
            best = at;
            room = o->offset - at;
            if (!tight || room == b->size) break;
        }
        if (!add_size(o->offset, o->size, &end)) return false;
        if (end > at) at = end;
    }
    if (room < SIZE_MAX) at = best;
    b->offset = at;
    while (where > 0 && block[placed[where - 1]].offset > at) where--;
    memmove(placed + where + 1, placed + where, (size_t)(nplaced - where) * sizeof *placed);
    placed[where] = which;
    return true;
}

/* All blocks of `order`; *total: where the last one ends. */
static bool place_all(Block *block, int *order, int *placed, int count, Order how, size_t *total)
{
    Sorting s = {block, how};
    qsort_r(order, (size_t)count, sizeof *order, before, &s);
    *total = 0;
    for (int k = 0; k < count; k++) {
        size_t end;
        if (!place(block, placed, k, order[k], how == BY_SIZE_BEST_FIT) ||
            !add_size(block[order[k]].offset, block[order[k]].size, &end))
            return false;
        if (end > *total) *total = end;
    }
    return true;
}

/* The first order, and others as long as the bound is not reached: the best of them. */
static bool place_best(Block *block, int *order, int *placed, size_t *kept, int count, size_t bound, size_t *total)
{
    if (!place_all(block, order, placed, count, BY_SIZE, total)) return false;
    for (Order how = BY_SIZE + 1; how<ORDERS && * total> bound && count <= MANY; how++) {
        size_t now;
        for (int k = 0; k < count; k++) kept[order[k]] = block[order[k]].offset;
        bool better = place_all(block, order, placed, count, how, &now) && now < *total;
        if (better) *total = now;
        for (int k = 0; !better && k < count; k++) block[order[k]].offset = kept[order[k]];
    }
    return true;
}

bool memory_plan(Block *block, int n, int nsteps, size_t *total, size_t *bound, Err *err)
{
    int *order = mem_zeroed((size_t)n + 1, sizeof *order), *placed = mem_zeroed((size_t)n + 1, sizeof *placed),
        count = 0;
    size_t *born = mem_zeroed((size_t)nsteps + 2, sizeof *born), *dies = mem_zeroed((size_t)nsteps + 2, sizeof *dies),
           alive = 0;
    size_t *kept = mem_zeroed((size_t)n + 1, sizeof *kept);
    bool ok = order && placed && born && dies && kept;
    *total = *bound = 0;
    for (int i = 0; ok && i < n; i++) {
        if (!block[i].size) continue;
        ok = round_up(block[i].size, &block[i].size) &&
             add_size(born[block[i].first], block[i].size, &born[block[i].first]);
        dies[block[i].last + 1] += block[i].size;
        order[count++] = i;
    }
    for (int s = 0; ok && s <= nsteps; s++) {
        alive += born[s] - dies[s];
        if (alive > *bound) *bound = alive;
    }
    ok = ok && place_best(block, order, placed, kept, count, *bound, total);
    mem_free(order);
    mem_free(placed);
    mem_free(born);
    mem_free(dies);
    mem_free(kept);
    return ok || fail(err, E_LIMIT, "out of memory, or activations larger than the address space");
}
