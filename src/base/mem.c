/* Memory from one place. Contract in mem.h. */
#include "base/mem.h"
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/sysinfo.h>
#endif
#include "base/cgroup.h"
#include "base/number.h"

enum {
    ALIGN = 16,     /* of every allocation: what malloc gives */
    STEP = 1 << 24 /* from there on a request is held against what there is, smaller ones each time that they add up to
                    * it: then so much must be left */
};

static MemHooks hooks; /* alloc NULL: the C library's */
static atomic_bool used;
static _Thread_local bool ran_out;
static _Thread_local size_t asked; /* for what was refused first */

static void *seen(void *p, size_t n)
{
    if (p) return p;
    if (!ran_out) asked = n;
    ran_out = true;
    return NULL;
}

static void begin_use(void)
{
    if (!atomic_load_explicit(&used, memory_order_relaxed)) atomic_store_explicit(&used, true, memory_order_relaxed);
}

/* What the machine has in all, and free swap; all: INFINITY where nothing says. */
static double whole_machine(double *swap)
{
    *swap = 0;
#if defined(__linux__)
    struct sysinfo s;
    if (!sysinfo(&s)) {
        *swap = (double)s.freeswap * s.mem_unit;
        return ((double)s.totalram + (double)s.totalswap) * s.mem_unit;
    }
#endif
    return INFINITY;
}

/* What the groups of this process leave, which may move what they hold into free swap. What was granted and never
 * touched is not held. */
static double left_by_groups(double swap)
{
    double left = cgroup_memory(CGROUP_ROOT, CGROUP_OWN);
    return left > 0 ? left + swap : INFINITY;
}

/* What the kernel can give without swap, pages of files that it drops included. */
static double left_by_machine(void)
{
    static const char name[] = "MemAvailable:";
    char line[128];
    double bytes = INFINITY;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, name, sizeof name - 1)) bytes = 1024 * parse_double(line + sizeof name - 1, NULL);
    if (f) fclose(f);
    return bytes;
}

double mem_left(void)
{
    double swap, all;
    if (hooks.alloc) return INFINITY;
    all = whole_machine(&swap);
    return fmin(all, fmin(left_by_machine() + swap, left_by_groups(swap)));
}

static bool no_room(double n)
{
    double swap, all = whole_machine(&swap);
    return n > all || n > left_by_groups(swap);
}

bool mem_hopeless(size_t n)
{
    static _Thread_local size_t since; /* bytes of small requests */
    if (n < STEP && (since += n) < STEP) return false;
    since = 0;
    return no_room((double)(n < STEP ? STEP : n));
}

void *mem_aligned(size_t alignment, size_t n)
{
    begin_use();
    if (hooks.alloc) return seen(hooks.alloc(hooks.user, alignment > ALIGN ? alignment : ALIGN, n ? n : 1), n);
    return seen(mem_hopeless(n) ? NULL : aligned_alloc(alignment, n ? n : alignment), n);
}

void *mem_alloc(size_t n)
{
    if (hooks.alloc) return mem_aligned(ALIGN, n);
    begin_use();
    return seen(mem_hopeless(n) ? NULL : malloc(n ? n : 1), n);
}

void *mem_zeroed(size_t count, size_t size)
{
    size_t n;
    if (__builtin_mul_overflow(count, size, &n)) return seen(NULL, SIZE_MAX);
    if (!hooks.alloc) {
        begin_use();
        return seen(mem_hopeless(n) ? NULL : calloc(count ? count : 1, size ? size : 1), n);
    }
    void *p = mem_alloc(n);
    return p && n ? memset(p, 0, n) : p;
}

void *mem_grow(void *p, size_t n)
{
    if (!p) return mem_alloc(n);
    if (hooks.alloc) return seen(hooks.grow(hooks.user, p, n ? n : 1), n);
    return seen(mem_hopeless(n) ? NULL : realloc(p, n ? n : 1), n);
}

static char *text_of(const char *s, size_t length)
{
    char *p = mem_alloc(length + 1);
    if (!p) return NULL;
    memcpy(p, s, length);
    p[length] = 0;
    return p;
}

char *mem_strdup(const char *s) { return text_of(s, strlen(s)); }
char *mem_strndup(const char *s, size_t n) { return text_of(s, strnlen(s, n)); }

void mem_free(void *p)
{
    if (!hooks.alloc) free(p);
    else if (p) hooks.release(hooks.user, p);
}

void mem_free_c(void *p) { free(p); }

void mem_begin(void) { ran_out = false; }
bool mem_ran_out(void) { return ran_out; }
size_t mem_asked(void) { return ran_out ? asked : 0; }
void mem_refused(void) { seen(NULL, 0); }

bool mem_set(const MemHooks *h)
{
    if (atomic_load(&used)) return false;
    hooks = *h;
    return true;
}

MemHooks mem_hooks(void)
{
    begin_use();
    return hooks;
}

bool mem_hooked(void) { return hooks.alloc != NULL; }
