/* Memory planning. Contract in memory.h. */
#include "plan/memory.h"
#include <stdlib.h>
#include "base/arena.h"

enum { ALIGN = 64 };

static int by_size(const void *a, const void *b, void *blocks)
{
    const Block *base = blocks, *x = &base[*(const int *)a], *y = &base[*(const int *)b];
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return *(const int *)a < *(const int *)b ? -1 : 1;
}

static bool round_up(size_t n, size_t *out)
{
    if (!add_size(n, ALIGN - 1, out)) return false;
    *out = *out / ALIGN * ALIGN;
    return true;
}

/* placed: indices of placed blocks, sorted by offset. */
static bool place(Block *block, int *placed, int nplaced, int which)
{
    Block *b = &block[which];
    size_t at = 0, end;
    int where = nplaced;
    for (int k = 0; k < nplaced; k++) {
        const Block *o = &block[placed[k]];
        if (o->last < b->first || b->last < o->first) continue;
        if (o->offset >= at && o->offset - at >= b->size) break;
        if (!add_size(o->offset, o->size, &end)) return false;
        if (end > at) at = end;
    }
    b->offset = at;
    while (where > 0 && block[placed[where - 1]].offset > at) {
        placed[where] = placed[where - 1];
        where--;
    }
    placed[where] = which;
    return true;
}

bool memory_plan(Block *block, int n, int nsteps, size_t *total, size_t *bound, Err *err)
{
    int *order = calloc((size_t)n + 1, sizeof *order), *placed = calloc((size_t)n + 1, sizeof *placed), count = 0;
    size_t *born = calloc((size_t)nsteps + 2, sizeof *born), *dies = calloc((size_t)nsteps + 2, sizeof *dies), alive = 0;
    bool ok = order && placed && born && dies;
    *total = *bound = 0;
    for (int i = 0; ok && i < n; i++) {
        if (!block[i].size) continue;
        ok = round_up(block[i].size, &block[i].size) && add_size(born[block[i].first], block[i].size, &born[block[i].first]);
        dies[block[i].last + 1] += block[i].size;
        order[count++] = i;
    }
    for (int s = 0; ok && s <= nsteps; s++) {
        alive += born[s] - dies[s];
        if (alive > *bound) *bound = alive;
    }
    if (ok) qsort_r(order, (size_t)count, sizeof *order, by_size, block);
    for (int k = 0; ok && k < count; k++) {
        size_t end;
        ok = place(block, placed, k, order[k]) && add_size(block[order[k]].offset, block[order[k]].size, &end);
        if (ok && end > *total) *total = end;
    }
    free(order);
    free(placed);
    free(born);
    free(dies);
    return ok || fail(err, E_LIMIT, "out of memory, or activations larger than the address space");
}
