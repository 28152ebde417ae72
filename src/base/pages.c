/* Memory in pages. Contract in pages.h. */
#include "base/pages.h"
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/mem.h"

enum { ALIGN = 64, SOON = 1 << 16, HUGE = 1 << 21 };

#if defined(__SANITIZE_ADDRESS__)
enum { MAPPED = 0 }; /* so that what is read past the end is seen */
#else
enum { MAPPED = 1 };
#endif

void pages_huge(void *data, size_t n)
{
#ifdef MADV_HUGEPAGE
    uintptr_t from = ((uintptr_t)data + HUGE - 1) / HUGE * HUGE, to = ((uintptr_t)data + n) / HUGE * HUGE;
    if (to > from) madvise((void *)from, to - from, MADV_HUGEPAGE); /* a wish: a refusal changes nothing */
#else
    (void)data;
    (void)n;
#endif
}

void pages_soon(const void *data, size_t n)
{
#ifdef MADV_POPULATE_READ
    if (n < SOON) return;
    uintptr_t from = (uintptr_t)data & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    madvise((void *)from, (uintptr_t)data + n - from,
            MADV_POPULATE_READ); /* what cannot be had now is found out when it is read */
#else
    (void)data;
    (void)n;
#endif
}

void pages_done(const void *data, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)data + page - 1) / page * page,
              to = ((uintptr_t)data + n) / page * page;
    if (n >= SOON && to > from) madvise((void *)from, to - from, MADV_DONTNEED);
}

bool pages_map(Pages *p, size_t n)
{
    size_t whole;
    if (!MAPPED || mem_hooked() || !add_size(n, HUGE, &whole) || mem_hopeless(n)) return false;
    void *m = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) return false;
    uintptr_t at = ((uintptr_t)m + HUGE - 1) / HUGE * HUGE;
    *p = (Pages){.data = (unsigned char *)at, .size = n, .mapped = whole, .from = m};
    return true;
}

bool pages_take(Pages *p, size_t n, size_t slack)
{
    size_t with;
    pages_free(p);
    if (add_size(n, slack, &with) && pages_map(p, with)) {
        pages_huge(p->data, n);
        return true;
    }
    if (!add_size(n, ALIGN, &with)) return false;
    p->from = p->data = mem_aligned(ALIGN, with / ALIGN * ALIGN);
    p->size = p->data ? n : 0;
    return p->data != NULL;
}

void pages_free(Pages *p)
{
    if (p->mapped) munmap(p->from, p->mapped);
    else mem_free(p->from);
    *p = (Pages){0};
}
