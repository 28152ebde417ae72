/* --memory-limit: what a command takes in all. A session keeps its own limit (qkv_session_options); beside it, reading,
 * rewriting, proving and writing may take what reading is promised to (SECURITY.md): 4 times the files of the command
 * line, and 64 MiB. Whoever asks for more is refused, and the command ends with exit code 5 and says how much that was.
 */
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli.h"

enum { BESIDE = 64 << 20, TIMES = 4, ALIGN = 16 };

typedef struct Block {   /* lies before what is given out */
    size_t size, offset; /* of what was asked for; from the block's beginning */
} Block;

static size_t asked, most; /* 0: no limit */
static atomic_size_t held, refused;

size_t memory_limit(void) { return asked; }

static bool take(size_t n)
{
    size_t before = atomic_fetch_add(&held, n);
    if (n <= most && before <= most - n) return true;
    atomic_fetch_sub(&held, n);
    size_t none = 0;
    atomic_compare_exchange_strong(&refused, &none, n);
    return false;
}

static Block *block_of(void *p) { return (Block *)(void *)((char *)p - ALIGN); }

static void *limited_alloc(void *user, size_t alignment, size_t n)
{
    (void)user;
    if (!take(n)) return NULL;
    size_t whole = (alignment + n + alignment - 1) / alignment * alignment;
    char *base = whole > n ? aligned_alloc(alignment, whole) : NULL;
    if (!base) {
        atomic_fetch_sub(&held, n);
        return NULL;
    }
    *block_of(base + alignment) = (Block){n, alignment};
    return base + alignment;
}

static void *limited_grow(void *user, void *p, size_t n)
{
    size_t before = block_of(p)->size;
    (void)user;
    if (n > before && !take(n - before)) return NULL;
    char *base = n < SIZE_MAX - ALIGN ? realloc((char *)p - ALIGN, ALIGN + n) : NULL;
    if (!base) {
        if (n > before) atomic_fetch_sub(&held, n - before);
        return NULL;
    }
    if (n < before) atomic_fetch_sub(&held, before - n);
    block_of(base + ALIGN)->size = n;
    return base + ALIGN;
}

static void limited_release(void *user, void *p)
{
    (void)user;
    atomic_fetch_sub(&held, block_of(p)->size);
    free((char *)p - block_of(p)->offset);
}

static void add_file(void *user, const char *path, PathUse use)
{
    size_t *sum = user;
    struct stat s;
    if (use == PATH_READ && !stat(path, &s) && S_ISREG(s.st_mode) && (uintmax_t)s.st_size < (SIZE_MAX - *sum) / TIMES)
        *sum += TIMES * (size_t)s.st_size;
}

int memory_enter(const Command *command, const Common *o)
{
    qkv_allocator a = {sizeof a, limited_alloc, limited_grow, limited_release, NULL};
    qkv_error e;
    size_t beside = BESIDE;
    asked = (size_t)o->memory_limit;
    if (!asked || command->many_runs) return 0;
    options_each_path(command, o, add_file, &beside);
    most = asked < SIZE_MAX - beside ? asked + beside : SIZE_MAX;
    return qkv_set_allocator(&a, &e) == QKV_OK ? 0 : problem_of(&e);
}

bool memory_refused(char *text, size_t size)
{
    char limit[32], beside[32], now[32], more[32];
    if (!refused) return false;
    snprintf(text, size, "--memory-limit is %s, and %s beside it for reading: %s were in use, %s more were asked for",
             bytes_text((double)asked, limit, sizeof limit), bytes_text((double)(most - asked), beside, sizeof beside),
             bytes_text((double)held, now, sizeof now), bytes_text((double)refused, more, sizeof more));
    return true;
}
