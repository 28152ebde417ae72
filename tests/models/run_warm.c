/* A warm run allocates nothing: malloc and its kin are counted here while each small model (tests/models/small) runs at
 * sizes that it has run at twice before (a weight is packed for keeps when it is used again). What oneDNN and OpenMP's
 * runtime take for themselves comes from their own libraries and is told, not judged. TAP.
 *
 *     run_warm tests/models/small
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "qkv.h"
#include "tap.h"

#if defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)
int main(void) { return tap_done(); } /* the allocator is another one */
#else
#include "folder.h"

enum { MAX_VARIANTS = 8, MAX_SEEN = 8 };

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static bool counting;
static int ours, others;
static const void *seen[MAX_SEEN];
static Dl_info self;

/* Whose call was it? The library is linked into this program; everything else lies in a file of its own. */
static void count(const void *from)
{
    Dl_info i;
    if (!counting) return;
    counting = false;
    bool mine = dladdr(from, &i) && i.dli_fbase == self.dli_fbase;
    counting = true;
    if (mine && ours < MAX_SEEN) seen[ours] = from;
    ours += mine;
    others += !mine;
}

#pragma GCC visibility push(default) /* so that other libraries' calls come here, too */

void *malloc(size_t n)
{
    count(__builtin_return_address(0));
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count(__builtin_return_address(0));
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    count(__builtin_return_address(0));
    return __libc_memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
    count(__builtin_return_address(0));
    *p = __libc_memalign(align, n);
    return *p ? 0 : ENOMEM;
}

#pragma GCC visibility pop

static bool run(qkv_session *s, const qkv_model *m, const qkv_tensors *in, qkv_error *e)
{
    for (int i = 0; i < qkv_model_input_count(m); i++) {
        const qkv_tensor *t = qkv_tensors_find(in, qkv_model_input_name(m, i));
        if (!t || qkv_session_set_input(s, qkv_model_input_name(m, i), t, e) != QKV_OK) return false;
    }
    return qkv_session_run(s, e) == QKV_OK;
}

/* All sizes twice, then all once more, counted. */
static void run_model(const char *dir, const char *name, int threads)
{
    char path[1024];
    qkv_error e = {0};
    qkv_tensors *in[MAX_VARIANTS];
    int n = 0;
    for (; n < MAX_VARIANTS; n++) {
        snprintf(path, sizeof path, "%s/%s.v%d.in.safetensors", dir, name, n);
        if (!(in[n] = qkv_tensors_open(path, NULL))) break;
    }
    snprintf(path, sizeof path, "%s/%s.pt2", dir, name);
    qkv_session_options so = {.struct_size = sizeof so, .threads = threads};
    qkv_model *m = qkv_model_load(path, NULL, &e);
    qkv_session *s = m ? qkv_session_create(m, &so, &e) : NULL;
    bool ok = s && n;
    ours = others = 0;
    for (int k = 0; ok && k < 3 * n; k++) {
        counting = k >= 2 * n;
        ok = run(s, m, in[k % n], &e);
        counting = false;
    }
    tap_ok(ok && !ours, "%s, %d threads: %d allocations of qkv in %d warm runs (%d in other libraries) %s", name,
           threads, ours, n, others, e.message);
    for (int i = 0; i < ours && i < MAX_SEEN; i++)
        printf("# from %s +0x%zx\n", self.dli_fname, (size_t)((const char *)seen[i] - (const char *)self.dli_fbase));
    qkv_session_free(s);
    qkv_model_free(m);
    while (n-- > 0) qkv_tensors_free(in[n]);
}

static void run_named(const char *folder, const char *name, void *user)
{
    (void)user;
    run_model(folder, name, 1);
    run_model(folder, name, 2);
}

int main(int argc, char **argv)
{
    if (!dladdr((const void *)(uintptr_t)&main, &self) || !each_model(argc == 2 ? argv[1] : NULL, run_named, NULL)) {
        fprintf(stderr, "usage: run_warm FOLDER\n");
        return 2;
    }
    return tap_done();
}
#endif
