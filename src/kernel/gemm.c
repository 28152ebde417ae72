/* Which way a product or a convolution goes. Contract in gemm.h. */
#include "kernel/gemm_axes.h"
#include "base/mem.h"
#include "team/team.h"

struct GemmPool {
    PackedWeights *packed;
    TapWeights *taps;
#ifdef QKV_ONEDNN
    OneDnnPool *onednn; /* made when first wanted */
#endif
};

/* A convolution that is not one of our products: oneDNN's, or loops where oneDNN is not built in. */
#ifdef QKV_ONEDNN
typedef OneDnn Other;
static void free_others(GemmPool *p) { onednn_pool_free(p->onednn); }
static size_t others_bytes(const GemmPool *p) { return onednn_pool_bytes(p->onednn); }
static void free_other(Other *g) { onednn_free(g); }
static size_t other_scratch(const Other *g) { return onednn_scratch(g); }
static bool run_other(Other *g, const GemmBuffers *m, void *scratch, Err *err)
{
    return onednn_run(g, m, scratch, err);
}

static Other *other_conv(GemmPool *p, const GemmConv *d, Err *err)
{
    if (cpu_is_portable()) {
        fail(err, E_UNSUPPORTED, "this build computes such a convolution by oneDNN, whose bits are each CPU's own");
        return NULL;
    }
    if (!p->onednn) p->onednn = onednn_pool_create(err);
    return p->onednn ? onednn_conv(p->onednn, d, err) : NULL;
}
#else
typedef Direct Other;
static void free_others(GemmPool *p) { (void)p; } /* loops keep no weights */
static size_t others_bytes(const GemmPool *p) { return (void)p, 0; }
static void free_other(Other *g) { direct_free(g); }
static size_t other_scratch(const Other *g) { return direct_scratch(g); }
static bool run_other(Other *g, const GemmBuffers *m, void *scratch, Err *err)
{
    return direct_run(g, m, scratch, err);
}
static Other *other_conv(GemmPool *p, const GemmConv *d, Err *err) { return (void)p, direct_conv(d, err); }
#endif

struct Gemm { /* one of them */
    Packed *packed;
    Taps *taps;
    Depthwise *depthwise;
    Channels *channels;
    Gradient *gradient;
    Other *other;
    Gemm *rest;     /* of a product in parts: the next */
    bool adds;      /* it adds to what this one gives */
    int64_t a_step; /* bytes of a that this one takes */
};

static void free_ways(Gemm *g)
{
    packed_free(g->packed);
    tap_conv_free(g->taps);
    depthwise_free(g->depthwise);
    channels_free(g->channels);
    gradient_free(g->gradient);
    free_other(g->other);
    gemm_free(g->rest);
}

GemmPool *gemm_pool_create(Err *err)
{
    GemmPool *p = mem_zeroed(1, sizeof *p);
    if (p && (p->packed = packed_weights_create(err)) && (p->taps = tap_weights_create(err))) return p;
    if (!p) oom(err);
    gemm_pool_free(p);
    return NULL;
}

void gemm_pool_free(GemmPool *p)
{
    if (!p) return;
    packed_weights_free(p->packed);
    tap_weights_free(p->taps);
    free_others(p);
    mem_free(p);
}

size_t gemm_pool_bytes(const GemmPool *p)
{
    return p ? packed_weights_bytes(p->packed) + tap_weights_bytes(p->taps) + others_bytes(p) : 0;
}

/* Takes what is not NULL of the ways; all are: NULL. */
static Gemm *gemm_of(Gemm way, Err *err)
{
    if (!way.packed && !way.taps && !way.depthwise && !way.channels && !way.gradient && !way.other) return NULL;
    Gemm *g = mem_alloc(sizeof *g);
    if (g) {
        *g = way;
        return g;
    }
    oom(err);
    free_ways(&way);
    return NULL;
}

/* Windows whose K is longer go in parts, so that those of both operands stay in L2; a part's sums are added to the sums
 * before it. */
enum { DEEP = 512 };

Gemm *gemm_matmul(GemmPool *p, const GemmMatmul *d, Err *err)
{
    Err own = {0};
    Gemm g = {.channels = channels_matmul(kernels(), d, &own)};
    int64_t K = d->a->shape[d->a->rank - 1], n = K > DEEP ? ceil_div(K, ceil_div(K, DEEP)) : K;
    bool sums = d->windows && d->c->dtype == DT_F32 && !d->bias && !d->act && (d->first || !d->residual);
    if (!g.channels) g.gradient = gradient_matmul(kernels(), d, &own);
    if (g.channels || g.gradient) return gemm_of(g, err);
    if (!sums || K <= DEEP) {
        g.packed = packed_matmul(p->packed, kernels(), d, err);
        return gemm_of(g, err);
    }
    Tensor front = *d->a, back = *d->a;
    GemmMatmul part = *d;
    front.shape[front.rank - 1] = n, back.shape[back.rank - 1] = K - n;
    part.a = &front;
    g.packed = packed_matmul(p->packed, kernels(), &part, err);
    g.a_step = n * d->a->stride[d->a->rank - 1] * (int64_t)dtype_size(d->a->dtype);
    part.a = &back, part.first += n, part.residual = d->c;
    g.adds = true;
    g.rest = g.packed ? gemm_matmul(p, &part, err) : NULL;
    if (g.rest) return gemm_of(g, err);
    free_ways(&g);
    return NULL;
}

/* Places of a transposed convolution from number `place` on. */
static Gemm *places(GemmPool *p, const GemmConv *d, int64_t place, Err *err)
{
    int64_t n = d->stride[0] * (d->spatial > 1 ? d->stride[1] : 1);
    Gemm g = {.packed = packed_place(p->packed, kernels(), d, place, err)};
    if (g.packed && place + 1 < n && !(g.rest = places(p, d, place + 1, err))) {
        free_ways(&g);
        return NULL;
    }
    return gemm_of(g, err);
}

/* AMX takes whole tiles of rows that are a constant step apart (gemm_conv.c); all else is depthwise, or tiles of taps.
 * Loops, or oneDNN where it is built in, are for what neither has a kernel for, and for what is mostly padding. */
Gemm *gemm_conv(GemmPool *p, const GemmConv *d, Err *err)
{
    const ProductKernel *k = packed_conv_kernel(kernels(), d);
    Err own = {0};
    bool loops = mostly_padding(d);
    Gemm g = {.depthwise = loops ? NULL : depthwise_conv(kernels(), d, &own)};
    bool tiles = k && (k->in_place || k->cell_a);
    if (!loops && !g.depthwise && tiles && packed_places(d)) return places(p, d, 0, err);
    if (!loops && !g.depthwise && tiles) g.packed = packed_conv(p->packed, kernels(), d, &own);
    if (!loops && !g.depthwise && !g.packed) g.taps = tap_conv(p->taps, p->packed, kernels(), d, &own);
    if (!g.depthwise && !g.packed && !g.taps) g.other = other_conv(p, d, err);
    return gemm_of(g, err);
}

void gemm_free(Gemm *g)
{
    if (g) free_ways(g);
    mem_free(g);
}

static size_t scratch_of(const Gemm *g)
{
    return g->packed      ? packed_scratch(g->packed)
           : g->taps      ? tap_conv_scratch(g->taps)
           : g->depthwise ? depthwise_scratch(g->depthwise)
           : g->channels  ? channels_scratch(g->channels)
           : g->gradient  ? 0
                          : other_scratch(g->other);
}

size_t gemm_scratch(const Gemm *g)
{
    size_t n = 0;
    for (; g; g = g->rest)
        if (scratch_of(g) > n) n = scratch_of(g);
    return n;
}

static bool run(Gemm *g, const GemmBuffers *m, void *scratch, Err *err)
{
    return g->packed      ? packed_run(g->packed, m, scratch, err)
           : g->taps      ? tap_conv_run(g->taps, m, scratch, err)
           : g->depthwise ? depthwise_run(g->depthwise, m, NULL, scratch, err)
           : g->channels  ? channels_run(g->channels, m, scratch, err)
           : g->gradient  ? (gradient_run(g->gradient, m), true)
                          : run_other(g->other, m, scratch, err);
}

/* ------------------------------------------------------------------ packed weights in files */

const char *gemm_layout(const Tensor *b, bool rounded)
{
    const ProductKernel *k = packed_kernel(kernels(), b, rounded);
    return k ? k->layout : NULL;
}

size_t gemm_packed_bytes(const Tensor *b, bool rounded)
{
    return packed_bytes(packed_kernel(kernels(), b, rounded), b->shape[b->rank - 2], b->shape[b->rank - 1]);
}

void gemm_pack(void *to, const Tensor *b, bool rounded)
{
    packed_pack(packed_kernel(kernels(), b, rounded), to, b, rounded, team_width());
}

void gemm_pool_mapped(GemmPool *p, const void *file, size_t size) { packed_mapped(p->packed, file, size); }

bool gemm_pool_give(GemmPool *p, const Tensor *b, bool rounded, const void *packed, Err *err)
{
    return packed_give(p->packed, packed_kernel(kernels(), b, rounded), b, rounded, packed, err);
}

void gemm_pool_each(const GemmPool *p, void (*f)(void *user, const Tensor *b, bool rounded, size_t bytes), void *user)
{
    packed_each(p->packed, kernels(), f, user);
}

bool gemm_run(Gemm *g, const GemmBuffers *m, void *scratch, Err *err)
{
    GemmBuffers part = *m;
    for (; g; g = g->rest) {
        TRY(run(g, &part, scratch, err));
        part.a = (const char *)part.a + g->a_step;
        if (g->adds) part.residual = part.c;
    }
    return true;
}
