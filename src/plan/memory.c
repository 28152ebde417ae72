/* Memory planning. Contract in memory.h. */
#include "plan/memory.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/mem.h"

enum {
    ALIGN = 64,
    MANY = 4096,             /* of more blocks, one order is enough */
    MOST_LOOKED_AT = 1 << 26 /* placed blocks, for all that are placed: from there on by birth */
};

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
    size_t looked_at;
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
    p->looked_at += (size_t)n;
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

/* All blocks of `order`, if that is not too much work; *total: where the last one ends. */
static bool place_all(Block *block, int *order, Placed *p, int count, Order how, size_t *total)
{
    Sorting s = {block, how};
    qsort_r(order, (size_t)count, sizeof *order, before, &s);
    *total = 0;
    p->n = p->sorted = 0;
    p->looked_at = 0;
    memset(p->lives.n, 0, sizeof p->lives.n);
    memset(p->lives.head, 0, p->lives.buckets * sizeof *p->lives.head);
    for (int k = 0; k < count && p->looked_at <= MOST_LOOKED_AT; k++) {
        size_t end;
        if (!place(block, p, order[k], how == BY_SIZE_BEST_FIT) ||
            !add_size(block[order[k]].offset, block[order[k]].size, &end))
            return false;
        if (end > *total) *total = end;
    }
    return true;
}

/* ------------------------------------------------------------------ as they are born */

enum { CLASSES = 64, TRIED = 32 };

/* A stretch of the arena, free or a block's, between its neighbours; -1: there is none. */
typedef struct Part {
    size_t at, size;
    int before, after;
    bool free;
    int previous, next; /* free ones whose size has the same highest bit */
} Part;

typedef struct Parts {
    Part *part;
    int n, last;
    int first[CLASSES];
} Parts;

static int *first_of(Parts *p, size_t size) { return &p->first[63 - __builtin_clzll(size)]; }

static void offer(Parts *p, int i)
{
    Part *x = &p->part[i];
    int *first = first_of(p, x->size);
    x->free = true;
    x->previous = -1;
    x->next = *first;
    if (x->next >= 0) p->part[x->next].previous = i;
    *first = i;
}

static void take(Parts *p, int i)
{
    Part *x = &p->part[i];
    x->free = false;
    if (x->next >= 0) p->part[x->next].previous = x->previous;
    if (x->previous >= 0) p->part[x->previous].next = x->next;
    else *first_of(p, x->size) = x->next;
}

/* After part i; -1: at the beginning. */
static int add_part(Parts *p, int i, size_t at, size_t size)
{
    int k = p->n++, after = i >= 0 ? p->part[i].after : -1;
    p->part[k] = (Part){.at = at, .size = size, .before = i, .after = after};
    if (i >= 0) p->part[i].after = k;
    if (after >= 0) p->part[after].before = k;
    else p->last = k;
    return k;
}

/* The smallest of some free ones that are large enough; -1: there is none. */
static int free_part(Parts *p, size_t size)
{
    for (int *first = first_of(p, size); first < p->first + CLASSES; first++) {
        int best = -1, tried = 0;
        for (int i = *first; i >= 0 && tried < TRIED; i = p->part[i].next, tried++)
            if (p->part[i].size >= size && (best < 0 || p->part[i].size < p->part[best].size)) best = i;
        if (best >= 0) return best;
    }
    return -1;
}

/* A block's part, or -1: larger than the address space. */
static int part_of(Parts *p, size_t size)
{
    int i = free_part(p, size);
    size_t end;
    if (i >= 0) {
        take(p, i);
        size_t rest = p->part[i].size - size;
        p->part[i].size = size;
        if (rest) offer(p, add_part(p, i, p->part[i].at + size, rest));
        return i;
    }
    if (p->last >= 0 && p->part[p->last].free) { /* the last one grows */
        i = p->last;
        take(p, i);
        p->part[i].size = size;
    } else {
        i = add_part(p, p->last, p->last >= 0 ? p->part[p->last].at + p->part[p->last].size : 0, size);
    }
    return add_size(p->part[i].at, size, &end) ? i : -1;
}

/* Part i is free again, as one with the free ones beside it. */
static void give_back(Parts *p, int i)
{
    Part *x = &p->part[i];
    for (int side = 0; side < 2; side++) {
        int k = side ? x->before : x->after;
        if (k < 0 || !p->part[k].free) continue;
        take(p, k);
        if (side) x->at = p->part[k].at;
        x->size += p->part[k].size;
        int beyond = side ? p->part[k].before : p->part[k].after;
        if (side) x->before = beyond;
        else x->after = beyond;
        if (beyond >= 0 && side) p->part[beyond].after = i;
        else if (beyond >= 0) p->part[beyond].before = i;
        else if (!side) p->last = i;
    }
    offer(p, i);
}

/* Each block in the order of births into what is free then: where so many live together that looking at all of them
 * takes long. */
static bool place_in_turn(Block *block, int *order, Placed *placed, int count, size_t *total)
{
    Sorting s = {block, BY_BIRTH};
    Parts p = {.part = mem_zeroed((size_t)count + 1, sizeof *p.part), .last = -1};
    int *dying = placed->lives.head, *next = placed->lives.next, *part = placed->near, step = 0;
    bool ok = p.part != NULL;
    for (int k = 0; k < CLASSES; k++) p.first[k] = -1;
    qsort_r(order, (size_t)count, sizeof *order, before, &s);
    memset(dying, 0, placed->lives.buckets * sizeof *dying);
    *total = 0;
    for (int k = 0; ok && k < count; k++) {
        Block *b = &block[order[k]];
        for (; step < b->first; step++)
            for (int i = dying[step]; i; i = next[i - 1]) give_back(&p, part[i - 1]);
        int i = part[order[k]] = part_of(&p, b->size);
        if (!(ok = i >= 0)) break;
        b->offset = p.part[i].at;
        next[order[k]] = dying[b->last];
        dying[b->last] = order[k] + 1;
        if (b->offset + b->size > *total) *total = b->offset + b->size;
    }
    mem_free(p.part);
    return ok;
}

/* The first order, and others as long as the bound is not reached: the best of them. */
static bool place_best(Block *block, int *order, Placed *placed, size_t *kept, int count, size_t bound, size_t *total)
{
    if (!place_all(block, order, placed, count, BY_SIZE, total)) return false;
    if (placed->looked_at > MOST_LOOKED_AT) return place_in_turn(block, order, placed, count, total);
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
