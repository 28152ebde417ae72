/* Memory: the one place that asks for it. The program's allocator (qkv_set_allocator) or the C library's; what other
 * libraries take for themselves does not come by here.
 *
 *     int *p = mem_zeroed(n, sizeof *p);
 *     if (!p) return oom(err);               (err.h)
 *     ...
 *     mem_free(p);
 *
 * A refusal is remembered until the thread's next call of the interface begins, and every failure reported meanwhile is
 * reported as out of memory (fail): what was read or computed without that memory says nothing about the file.
 */
#ifndef QKV_BASE_MEM_H
#define QKV_BASE_MEM_H
#include <stdbool.h>
#include <stddef.h>

/* All return NULL when there is no memory; 0 bytes are some. */
void *mem_alloc(size_t n);
void *mem_zeroed(size_t count, size_t size);   /* zeroed; NULL on overflow, too */
void *mem_grow(void *p, size_t n);             /* as realloc; not for mem_aligned's */
void *mem_aligned(size_t alignment, size_t n); /* alignment: a power of two; n: a multiple of it */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
void mem_free(void *p);   /* any of these; NULL is fine */
void mem_free_c(void *p); /* what another library took from malloc for us (utf8proc_map) */

/* More than the machine has, swap included, or than the limits of the process's control groups leave beside what is
 * held now: promised without a word, as the kernel does, it would end this process, or another one, when it is touched.
 * The C library's allocator is not asked for it; a program's own decides itself. */
bool mem_hopeless(size_t n);
/* Bytes that can be written to now: what the machine has left, with what the kernel drops for them and free swap, and
 * what the limits of the process's control groups leave. INFINITY: nothing says, or a program's allocator decides. */
double mem_left(void);

void mem_begin(void);   /* a call of the interface begins: refusals so far are forgotten */
bool mem_ran_out(void); /* this thread was refused memory since */
size_t mem_asked(void); /* bytes of the first request that was refused; 0 where another library made it */
void mem_refused(void); /* another library was, on our behalf */

typedef struct MemHooks {
    void *(*alloc)(void *user, size_t alignment, size_t n);
    void *(*grow)(void *user, void *p, size_t n);
    void (*release)(void *user, void *p);
    void *user;
} MemHooks;
bool mem_set(const MemHooks *hooks); /* before the first of all allocations: false after it */
MemHooks mem_hooks(void);            /* those in use, which stay from then on; all NULL: the C library's */
bool mem_hooked(void);
#endif
