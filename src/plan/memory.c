/* Memory planning. Contract in memory.h. */
#include "plan/memory.h"
#include <stdint.h>
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

/* ------------------------------------------------------------------ who is alive together */

enum { LEVELS = 31, FEW = 1024 }; /* of so few placed blocks all are looked at */

/* Placed blocks by life: level k has those of 2^k to 2^(k+1) - 1 steps, in buckets of 2^k steps by their first one. */
typedef struct Lives {
    int *head, *next;            /* block + 1; 0 ends a bucket */
    int base[LEVELS], n[LEVELS]; /* a level's first bucket, and its blocks */
    size_t buckets;
} Lives;

typedef struct Placed {
    int *by_offset, n, sorted; /* all; the first `sorted` of them in order */
    int *near;                 /* room for some */
    Lives lives;
} Placed;

static int level_of(const Block *b)
{
    int k = 0;
    for (size_t n = life(b); n > 1; n /= 2) k++;
    return k;
}

static void lives_add(Lives *l, const Block *block, int which)
{
    const Block *b = &block[which];
    int k = level_of(b), *head = &l->head[l->base[k] + (b->first >> k)];
    l->next[which] = *head;
    *head = which + 1;
    l->n[k]++;
}

/* Blocks alive at some step of b's life into `near`; -1 when they are more than `most`. */
static int lives_beside(const Lives *l, const Block *block, const Block *b, int *near, int most)
{
    int n = 0;
    for (int k = 0; k < LEVELS; k++) {
        int64_t from = b->first - ((int64_t)2 << k) + 1;
        for (int64_t at = from > 0 ? from >> k : 0; l->n[k] && at <= b->last >> k; at++)
            for (int i = l->head[l->base[k] + at]; i; i = l->next[i - 1]) {
                const Block *o = &block[i - 1];
                if (o->last < b->first || b->last < o->first) continue;
                if (n == most) return -1;
                near[n++] = i - 1;
            }
    }
    return n;
}

static int lower(const void *a, const void *b, void *user)
{
    const Block *block = user;
    return -compare(block[*(const int *)a].offset, block[*(const int *)b].offset);
}

/* All placed blocks in order; few are out of it where this is asked for time and again. */
static const int *all_by_offset(Placed *p, Block *block)
{
    enum { SOME = 32 };
    if (p->n - p->sorted > SOME) qsort_r(p->by_offset, (size_t)p->n, sizeof *p->by_offset, lower, block);
    else
        for (; p->sorted < p->n; p->sorted++) {
            int which = p->by_offset[p->sorted], where = p->sorted;
            while (where > 0 && block[p->by_offset[where - 1]].offset > block[which].offset) where--;
            memmove(p->by_offset + where + 1, p->by_offset + where, (size_t)(p->sorted - where) * sizeof which);
            p->by_offset[where] = which;
        }
    p->sorted = p->n;
    return p->by_offset;
}

/* ------------------------------------------------------------------ placing */

/* tight: the smallest gap that is large enough; else the lowest. */
static bool place(Block *block, Placed *p, int which, bool tight)
{
    Block *b = &block[which];
    size_t at = 0, end, best = 0, room = SIZE_MAX;
    int n = p->n > FEW ? lives_beside(&p->lives, block, b, p->near, p->n / 32) : -1;
    const int *beside = p->near;
    if (n >= 0) qsort_r(p->near, (size_t)n, sizeof *p->near, lower, block);
    else beside = all_by_offset(p, block), n = p->n;
    for (int k = 0; k < n; k++) {
        const Block *o = &block[beside[k]];
        if (o->last < b->first || b->last < o->first) continue;
        if (o->offset >= at && o->offset - at >= b->size && o->offset - at < room) {
            best = at;
            room = o->offset - at;
            if (!tight || room == b->size) break;
        }
        if (!add_size(o->offset, o->size, &end)) return false;
        if (end > at) at = end;
    }
    b->offset = room < SIZE_MAX ? best : at;
    p->by_offset[p->n++] = which;
    lives_add(&p->lives, block, which);
    return true;
}

/* All blocks of `order`; *total: where the last one ends. */
static bool place_all(Block *block, int *order, Placed *p, int count, Order how, size_t *total)
{
    Sorting s = {block, how};
    qsort_r(order, (size_t)count, sizeof *order, before, &s);
    *total = 0;
    p->n = p->sorted = 0;
    memset(p->lives.n, 0, sizeof p->lives.n);
    memset(p->lives.head, 0, p->lives.buckets * sizeof *p->lives.head);
    for (int k = 0; k < count; k++) {
        size_t end;
        if (!place(block, p, order[k], how == BY_SIZE_BEST_FIT) ||
            !add_size(block[order[k]].offset, block[order[k]].size, &end))
            return false;
        if (end > *total) *total = end;
    }
    return true;
}

/* The first order, and others as long as the bound is not reached: the best of them. */
static bool place_best(Block *block, int *order, Placed *placed, size_t *kept, int count, size_t bound, size_t *total)
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

static bool placed_make(Placed *p, int n, int nsteps)
{
    *p = (Placed){0};
    for (int k = 0; k < LEVELS; k++) {
        p->lives.base[k] = (int)p->lives.buckets;
        p->lives.buckets += ((size_t)nsteps >> k) + 1;
    }
    p->by_offset = mem_zeroed((size_t)n + 1, sizeof *p->by_offset);
    p->near = mem_zeroed((size_t)n + 1, sizeof *p->near);
    p->lives.head = mem_zeroed(p->lives.buckets, sizeof *p->lives.head);
    p->lives.next = mem_zeroed((size_t)n + 1, sizeof *p->lives.next);
    return p->by_offset && p->near && p->lives.head && p->lives.next;
}

static void placed_free(Placed *p)
{
    mem_free(p->by_offset);
    mem_free(p->near);
    mem_free(p->lives.head);
    mem_free(p->lives.next);
}

bool memory_plan(Block *block, int n, int nsteps, size_t *total, size_t *bound, Err *err)
{
    int *order = mem_zeroed((size_t)n + 1, sizeof *order), count = 0;
    Placed placed;
    size_t *born = mem_zeroed((size_t)nsteps + 2, sizeof *born), *dies = mem_zeroed((size_t)nsteps + 2, sizeof *dies),
           alive = 0;
    size_t *kept = mem_zeroed((size_t)n + 1, sizeof *kept);
    bool ok = placed_make(&placed, n, nsteps + 1) && order && born && dies && kept;
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
    ok = ok && place_best(block, order, &placed, kept, count, *bound, total);
    mem_free(order);
    placed_free(&placed);
    mem_free(born);
    mem_free(dies);
    mem_free(kept);
    return ok || fail(err, E_LIMIT, "out of memory, or activations larger than the address space");
}
