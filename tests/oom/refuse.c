/* Before the C library by LD_PRELOAD: refuses one allocation of a program, or all from it on, those of more bytes alone
 * where memory is nearly out.
 *
 *     REFUSE_AT=7 [REFUSE_ON=1 [REFUSE_ABOVE=600]] LD_PRELOAD=librefuse.so qkv inspect m.pt2
 *     REFUSE_COUNT=FILE ...                                        how many there are goes into FILE
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

static atomic_long asked;
static long at;
static size_t above;
static bool on, counting;

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("REFUSE_AT");
    at = text ? strtol(text, NULL, 10) : 0;
    on = getenv("REFUSE_ON") != NULL;
    text = getenv("REFUSE_ABOVE");
    above = text ? strtoul(text, NULL, 10) : 0;
    counting = true;
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("REFUSE_COUNT");
    counting = false;
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%ld\n", atomic_load(&asked));
    fclose(f);
}

static bool refused(size_t n)
{
    if (!counting) return false;
    long k = atomic_fetch_add(&asked, 1) + 1;
    if (!at || (on ? k < at || n <= above : k != at)) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t n) { return refused(n) ? NULL : __libc_malloc(n); }
void *calloc(size_t count, size_t n) { return refused(count * n) ? NULL : __libc_calloc(count, n); }
void *realloc(void *p, size_t n) { return refused(n) ? NULL : __libc_realloc(p, n); }
void *aligned_alloc(size_t alignment, size_t n) { return refused(n) ? NULL : __libc_memalign(alignment, n); }
int posix_memalign(void **p, size_t alignment, size_t n)
{
    if (refused(n) || !(*p = __libc_memalign(alignment, n))) return ENOMEM;
    return 0;
}
