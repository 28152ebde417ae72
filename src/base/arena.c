#include "base/arena.h"
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "base/number.h"
#include "base/pages.h"

/* Copies of weights: from LARGE bytes on, several are in one region of huge pages. */
enum { ALIGN = 16, SMALL = 8, WIDE = 64, LARGE = 1 << 20, REGION = 1 << 26, LINE = 64 };
#if defined(ARENA_ALONE) /* tests/oom: a block for each allocation, so that any of them can be refused */
enum { FIRST_BLOCK = 1, BLOCK = 1 };
#else
enum { FIRST_BLOCK = 1 << 10, BLOCK = 1 << 16 };
#endif

typedef struct Block {
    struct Block *next;
    size_t used, size;
    /* data follows, 16-aligned */
} Block;

typedef struct Region {
    struct Region *next;
    Pages pages;
    size_t used;
} Region;

struct Arena {
    Block *blocks;
    Region *regions;
    size_t total, limit;
    bool failed;
};

enum { HEAD = (sizeof(Block) + ALIGN - 1) / ALIGN * ALIGN };

Arena *arena_create(size_t limit)
{
    Arena *a = mem_zeroed(1, sizeof *a);
    if (a) a->limit = limit;
    return a;
}

void arena_destroy(Arena *a)
{
    if (!a) return;
    for (Block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        mem_free(b);
    }
    for (Region *r = a->regions, *next; r; r = next) {
        next = r->next;
        pages_free(&r->pages);
        mem_free(r);
    }
    mem_free(a);
}

void arena_allow(Arena *a, size_t more)
{
    if (a->limit && !add_size(a->limit, more, &a->limit)) a->limit = 0;
}

static void *no_memory(Arena *a)
{
    a->failed = true;
    return NULL;
}

/* Zeroed, as new pages are; NULL where there are none to have. n: from LARGE to half a region. */
static void *large(Arena *a, size_t n)
{
    Region *r = a->regions;
    if (!r || r->pages.size - r->used < n) {
        Pages pages;
        if (!pages_map(&pages, REGION)) return NULL;
        if (!(r = mem_zeroed(1, sizeof *r))) {
            pages_free(&pages);
            return NULL;
        }
        r->pages = pages;
        pages_huge(r->pages.data, REGION);
        r->next = a->regions;
        a->regions = r;
    }
    void *p = r->pages.data + r->used;
    r->used += (n + LINE - 1) / LINE * LINE;
    a->total += n;
    return p;
}

/* Blocks about as large as all before them, between two bounds: the graph of a branch may have one node. */
static size_t block_size(const Arena *a)
{
    return a->total < FIRST_BLOCK ? FIRST_BLOCK : a->total < BLOCK ? a->total : BLOCK;
}

void *arena_alloc(Arena *a, size_t count, size_t size)
{
    size_t n;
    if (!mul_size(count, size, &n) || !add_size(n ? n : 1, ALIGN - 1, &n)) return no_memory(a);
    const bool wide = n - (ALIGN - 1) >= WIDE || size % ALIGN == 0;
    n = wide ? n / ALIGN * ALIGN : (n - (ALIGN - SMALL)) / SMALL * SMALL;
    Block *b = a->blocks;
    size_t at = !b ? 0 : wide ? (b->used + ALIGN - 1) / ALIGN * ALIGN : b->used;
    if (!b || at > b->size || b->size - at < n) {
        size_t least = block_size(a), want = n > least ? n : least, whole;
        if (!add_size(want, HEAD, &whole)) return no_memory(a);
        if (a->limit && (whole > a->limit || a->total > a->limit - whole)) return no_memory(a);
        void *p = n >= LARGE && n <= REGION / 2 ? large(a, n) : NULL;
        if (p) return p;
        Block *fresh = mem_zeroed(1, whole);
        if (!fresh) return no_memory(a);
        fresh->size = want;
        a->total += whole;
        if (b && n > least) { /* a big one goes after the open block, which stays open */
            fresh->next = b->next;
            b->next = fresh;
        } else {
            fresh->next = b;
            a->blocks = fresh;
        }
        b = fresh;
        at = 0;
    }
    void *p = (char *)b + HEAD + at;
    b->used = at + n;
    return p;
}

char *arena_strndup(Arena *a, const char *s, size_t n)
{
    char *p = n < SIZE_MAX ? arena_alloc(a, n + 1, 1) : NULL;
    if (p && n) memcpy(p, s, n);
    return p;
}

char *arena_strdup(Arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

char *arena_printf(Arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = text_vprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n >= 0 ? arena_alloc(a, (size_t)n + 1, 1) : NULL;
    if (p) text_vprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

size_t arena_used(const Arena *a) { return a->total; }
bool arena_failed(const Arena *a) { return a->failed; }
