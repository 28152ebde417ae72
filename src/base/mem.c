/* Memory from one place. Contract in mem.h. */
#include "base/mem.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/sysinfo.h>
#endif
#include "base/cgroup.h"

enum {
    ALIGN = 16,     /* of every allocation: what malloc gives */
    LARGE = 1 << 26 /* from there on a request is held against what there is */
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

static pthread_once_t looked = PTHREAD_ONCE_INIT;
static double there_is; /* bytes, at most; 0: not known */

static void look(void)
{
#if defined(__linux__)
    struct sysinfo s;
    if (!sysinfo(&s)) there_is = ((double)s.totalram + (double)s.totalswap) * s.mem_unit;
#endif
    double granted = cgroup_memory(CGROUP_ROOT, CGROUP_OWN);
    if (granted > 0 && (there_is == 0 || granted < there_is)) there_is = granted;
}

bool mem_hopeless(size_t n)
{
    if (n < LARGE) return false;
    pthread_once(&looked, look);
    return there_is > 0 && (double)n > there_is;
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
