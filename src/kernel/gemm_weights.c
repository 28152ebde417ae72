/* Weights as the tiles of our own products take them: found again by where they lie, packed by panels.
 *
 * A constant b is packed for keeps at its second use. A product of one superblock packs panels as it comes to them:
 * into their place, or, at the first use, into memory that its thread uses again and again. Who runs a model once
 * writes no second copy of its weights (fresh memory is as dear as packing). A large b that is not constant is packed
 * so at every use.
 */
#include <assert.h>
#include <string.h>
#include "base/map.h"
#include "base/mem.h"
#include "base/pages.h"
#include "base/vec.h"
#include "kernel/gemm_packed.h"

enum { HUGE = 2 << 20 };

PackedWeights *packed_weights_create(Err *err)
{
    PackedWeights *p = mem_zeroed(1, sizeof *p);
    if (!p) oom(err);
    return p;
}

void packed_weights_free(PackedWeights *p)
{
    if (!p) return;
    for (int i = 0; i < p->n; i++)
        if (p->w[i].owned) mem_free((void *)(uintptr_t)p->w[i].data);
    mem_free(p->panels);
    lookup_free(&p->by_place);
    mem_free(p->w);
    mem_free(p);
}

size_t packed_weights_bytes(const PackedWeights *p) { return p->bytes; }

const ProductKernel *packed_kernel(const Kernels *k, const Tensor *b, bool rounded)
{
    if ((b->dtype != DT_F32 && b->dtype != DT_BF16)) return NULL;
    const ProductKernel *p = rounded || b->dtype == DT_BF16 ? &k->product.bf16 : &k->product.f32;
    if (!p->layout) p = &k->product.f32;
    return p->layout ? p : NULL;
}

static size_t panel_bytes(const ProductKernel *k, int64_t K) { return (size_t)(padded_k(k, K) * k->nr * k->size); }

size_t packed_bytes(const ProductKernel *k, int64_t K, int64_t N)
{
    return panel_bytes(k, K) * (size_t)ceil_div(N, k->nr);
}

Weight packed_weight_of(const ProductKernel *k, const Tensor *b, bool rounded)
{
    return (Weight){.from = b->data,
                    .kernel = k,
                    .dtype = b->dtype,
                    .rounded = rounded && b->dtype == DT_F32,
                    .K = b->shape[b->rank - 2],
                    .N = b->shape[b->rank - 1],
                    .rs = b->stride[b->rank - 2],
                    .cs = b->stride[b->rank - 1],
                    .taps = 1};
}

/* A panel of windows, at once where it is rows of floats. */
static void pack_rows_of_windows(const Weight *w, float *to, int64_t panel)
{
    const ProductKernel *k = w->kernel;
    int64_t col = product_column(k, w->N, panel), cols = product_columns(k, w->N, panel);
    for (int64_t i = 0; i < w->K && cols < k->nr; i++)
        memset(to + i * k->nr + cols, 0, (size_t)(k->nr - cols) * sizeof *to);
    memset(to + w->K * k->nr, 0, (size_t)((padded_k(k, w->K) - w->K) * k->nr) * sizeof *to);
    windows_take(w->windows, to, k->nr, w->from, sizeof *to, 0, w->K, col, cols);
}

/* Else some rows at a time, which stay in L1, as the kernel takes them. */
static void pack_windows(const Weight *w, char *to, int64_t panel)
{
    enum { SOME = 128, WIDEST = 64 };
    const ProductKernel *k = w->kernel;
    int64_t col = product_column(k, w->N, panel), cols = product_columns(k, w->N, panel);
    if (k->plain && w->dtype == DT_F32) {
        pack_rows_of_windows(w, (float *)(void *)to, panel);
        return;
    }
    uint32_t part[SOME * WIDEST];
    ProductIn in = {.data = part, .dtype = w->dtype, .rs = cols, .cs = 1, .rounded = w->rounded};
    assert(k->nr <= WIDEST && SOME % k->chunk == 0);
    for (int64_t at = 0; at < w->K; at += SOME) {
        int64_t n = least(SOME, w->K - at);
        windows_take(w->windows, part, cols, w->from, dtype_size(w->dtype), at, n, col, cols);
        k->pack_b(to + at * k->nr * k->size, &in, 0, (int)cols, n);
    }
}

void packed_weight_panel(const Weight *w, void *to, int64_t panel)
{
    size_t each = panel_bytes(w->kernel, w->K);
    if (w->windows) {
        pack_windows(w, to, panel);
        return;
    }
    for (int64_t t = 0; t < w->taps; t++) {
        ProductIn in = {.data = (const char *)w->from + t * w->apart * (int64_t)dtype_size(w->dtype),
                        .dtype = w->dtype,
                        .rs = w->rs,
                        .cs = w->cs,
                        .rounded = w->rounded};
        w->kernel->pack_b((char *)to + each * (size_t)t, &in, product_column(w->kernel, w->N, panel),
                          product_columns(w->kernel, w->N, panel), w->K);
    }
}

void packed_weight_all(const Weight *w, void *to, int threads)
{
    int64_t panels = ceil_div(w->N, w->kernel->nr);
    size_t each = panel_bytes(w->kernel, w->K) * (size_t)w->taps;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < panels; i++) packed_weight_panel(w, (char *)to + each * (size_t)i, i);
}

void packed_pack(const ProductKernel *k, void *to, const Tensor *b, bool rounded, int threads)
{
    Weight w = packed_weight_of(k, b, rounded);
    packed_weight_all(&w, to, threads);
}

/* Whatever they are packed for. */
static bool same_weight(const Weight *w, const Weight *x)
{
    return w->from == x->from && w->dtype == x->dtype && w->rounded == x->rounded && w->K == x->K && w->N == x->N &&
           w->rs == x->rs && w->cs == x->cs && w->taps == x->taps && w->apart == x->apart;
}

static uint64_t hash_of(const Weight *w)
{
    const int64_t all[] = {(int64_t)(uintptr_t)w->from, w->dtype, w->rounded, w->K, w->N,
                           w->rs, w->cs, w->taps, w->apart};
    return hash_keyed(all, sizeof all);
}

int packed_weight_find(const PackedWeights *p, const Weight *x)
{
    size_t tried = 0;
    uint64_t h = hash_of(x);
    int64_t i;
    while ((i = lookup_next(&p->by_place, h, &tried)) >= 0)
        if (p->w[i].kernel == x->kernel && same_weight(&p->w[i], x)) break;
    return (int)i;
}

int packed_weight_add(PackedWeights *p, const Weight *x, const void *data, Err *err)
{
    Weight *grown = vec_grow(p->w, p->n, sizeof *grown);
    if (grown) p->w = grown;
    if (!grown || !lookup_add(&p->by_place, hash_of(x), (size_t)p->n)) {
        oom(err);
        return -1;
    }
    Weight *w = &p->w[p->n];
    *w = *x;
    w->data = data;
    w->bytes = packed_bytes(w->kernel, w->K, w->N) * (size_t)w->taps;
    return p->n++;
}

void packed_mapped(PackedWeights *p, const void *file, size_t size)
{
    p->file = file;
    p->file_size = size;
}

bool packed_give(PackedWeights *p, const ProductKernel *k, const Tensor *b, bool rounded, const void *packed, Err *err)
{
    Weight w = packed_weight_of(k, b, rounded);
    return packed_weight_find(p, &w) >= 0 || packed_weight_add(p, &w, packed, err) >= 0;
}

static Tensor plain(const Weight *w)
{
    Tensor b = tensor_of(w->dtype, 2, (int64_t[]){w->K, w->N}, (void *)(uintptr_t)w->from);
    b.stride[0] = w->rs;
    b.stride[1] = w->cs;
    return b;
}

/* Is it one that is there already, packed for something else? */
static bool repeats(const PackedWeights *p, int i)
{
    size_t tried = 0;
    uint64_t h = hash_of(&p->w[i]);
    int64_t k;
    while ((k = lookup_next(&p->by_place, h, &tried)) >= 0)
        if (k < i && same_weight(&p->w[k], &p->w[i])) return true;
    return false;
}

void packed_each(const PackedWeights *p, const Kernels *k,
                 void (*f)(void *user, const Tensor *b, bool rounded, size_t bytes), void *user)
{
    for (int i = 0; i < p->n; i++) {
        const Weight *w = &p->w[i];
        if (w->taps > 1 || repeats(p, i)) continue;
        Tensor b = plain(w);
        f(user, &b, w->rounded, packed_bytes(packed_kernel(k, &b, w->rounded), w->K, w->N));
    }
}

static void *memory(size_t n, Err *err)
{
    size_t align = n >= HUGE ? HUGE : ALIGN;
    void *data = mem_aligned(align, (n + align - 1) / align * align);
    if (!data) fail(err, E_LIMIT, "out of memory: %zu bytes of packed weights", n);
    return data;
}

/* Huge pages: a panel's slivers are 100 KB to 1 MB apart, each on pages of its own otherwise. */
bool packed_weight_keep(PackedWeights *p, Weight *w, Err *err)
{
    void *data = memory(w->bytes, err);
    TRY(data);
    if (w->bytes >= HUGE) pages_huge(data, w->bytes);
    w->data = data;
    w->owned = true;
    p->bytes += w->bytes;
    mem_free(p->panels);
    p->panels = NULL;
    p->panels_size = 0;
    return true;
}

bool packed_weight_room(PackedWeights *p, size_t n, Err *err)
{
    if (n <= p->panels_size) return true;
    mem_free(p->panels);
    p->panels = memory(n, err);
    p->panels_size = p->panels ? n : 0;
    return p->panels != NULL;
}

size_t packed_weight_plain(const Weight *w)
{
    return (size_t)((w->K - 1) * w->rs + (w->N - 1) * w->cs + (w->taps - 1) * w->apart + 1) * dtype_size(w->dtype);
}

void packed_let_go(const PackedWeights *p, const void *from, size_t n)
{
    uintptr_t at = (uintptr_t)from, file = (uintptr_t)p->file;
    if (p->file && at >= file && n <= p->file_size && at - file <= p->file_size - n) pages_done(from, n);
}
