/* Our own matrix products: blocking and threads around the tiles of kernel/product.h.
 *
 * All of a's rows are packed first, a superblock of them at a time (where the kernel takes them as they are, and in
 * convolutions, whose rows gemm_conv.c makes, nothing is packed); then tasks of some tiles by some panels go to the
 * threads. Within a task, panels are outside: a sliver of a panel (kc x nr, in L1) meets every tile of the task (in
 * L2), and the next sliver is fetched meanwhile. b is read once a superblock. Sums that K has cut wait in a buffer of
 * the thread. (Goto and van de Geijn 2008, with the panel of b inside.)
 *
 * A constant b is packed for keeps at its second use. A product of one superblock packs panels as it comes to them:
 * into their place, or, at the first use, into memory that its thread uses again and again. Who runs a model once
 * writes no second copy of its weights (fresh memory is as dear as packing). A large b that is not constant is packed
 * so at every use.
 *
 * The file is longer than others: plans, packing and tasks read one private struct, which parts would have to share.
 */
#include <assert.h>
#include <string.h>
#include "base/pages.h"
#include "base/mem.h"
#include "base/vec.h"
#include "kernel/gemm_impl.h"
#include "team/team.h"

/* FEW: bytes of panels that are packed together on the way; they, and what the next are made of, stay in L2.
 * WORTH_THREADS, WORTH_BYTES: floating-point operations, bytes of b, some 10 us of a core; FEW_BYTES: of rows that one
 * thread packs. TILES_*: from these sizes on packing both operands is little beside what float32 gains by tiles;
 * KEPT_M: packing a alone, b being kept. A_TILE, B_WHOLE: bytes of a that L1 nearly holds, of b that L2 does: then a
 * tile meets all panels before the next. IN_PLACE: columns up to which rows of a that are spread stay there. */
enum { ALIGN = 64, HUGE = 2 << 20, SUPERBLOCK = 1024, FEW = 300 << 10, MAX_THREADS = 1024, WORTH_THREADS = 1 << 20 };
enum { A_THREAD = 1 << 20 }; /* bytes of a's rows for each thread, up to which a superblock has more than its rows */
enum { WORTH_BYTES = 256 << 10, FEW_BYTES = 32 << 10 };
enum { TILES_M = 768, TILES_N = 128, TILES_K = 64, KEPT_M = 64 };
enum { IN_PLACE = 384, MOST_ROWS = 32, MOST_TILES = 32, A_TILE = 56 << 10, B_WHOLE = 1280 << 10 };

static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/* ------------------------------------------------------------------ packed weights */

/* b as a product takes it: one matrix (K, N) for each tap of a convolution, `apart` elements apart;
 * packed, they follow each other along K. */
typedef struct Weight {
    const void *from;
    const ProductKernel *kernel;
    DType dtype;
    bool rounded, owned;
    int64_t K, N, rs, cs, taps, apart;
    const Windows *windows; /* NULL: at strides */
    const void *data;       /* NULL: not packed so far */
    bool used;              /* by a product that packed it as it went */
    size_t bytes;
} Weight;

struct PackedWeights {
    Weight *w;
    int n;
    size_t bytes; /* of those that are owned */
    void *panels; /* of first uses; given back when a weight is packed for keeps */
    size_t panels_size;
    const char *file; /* what weights are mapped from */
    size_t file_size;
};

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

static int64_t padded_k(const ProductKernel *k, int64_t K) { return round_up(K, k->chunk); }

static size_t panel_bytes(const ProductKernel *k, int64_t K) { return (size_t)(padded_k(k, K) * k->nr * k->size); }

size_t packed_bytes(const ProductKernel *k, int64_t K, int64_t N)
{
    return panel_bytes(k, K) * (size_t)ceil_div(N, k->nr);
}

static ProductIn operand(const Tensor *t, bool rounded)
{
    return (ProductIn){.data = t->data,
                       .dtype = t->dtype,
                       .rs = t->stride[t->rank - 2],
                       .cs = t->stride[t->rank - 1],
                       .rounded = rounded && t->dtype == DT_F32};
}

static Weight weight_of(const ProductKernel *k, const Tensor *b, bool rounded)
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
    int64_t col = panel * k->nr, cols = least(k->nr, w->N - col);
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
    int64_t col = panel * k->nr, cols = least(k->nr, w->N - col);
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
        k->pack_b(to + at * k->nr * k->size, &in, 0, n, cols);
    }
}

static void pack_panel(const Weight *w, void *to, int64_t panel)
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
        w->kernel->pack_b((char *)to + each * (size_t)t, &in, panel, w->K, w->N);
    }
}

static void pack_weight(const Weight *w, void *to, int threads)
{
    int64_t panels = ceil_div(w->N, w->kernel->nr);
    size_t each = panel_bytes(w->kernel, w->K) * (size_t)w->taps;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < panels; i++) pack_panel(w, (char *)to + each * (size_t)i, i);
}

void packed_pack(const ProductKernel *k, void *to, const Tensor *b, bool rounded, int threads)
{
    Weight w = weight_of(k, b, rounded);
    pack_weight(&w, to, threads);
}

/* Whatever they are packed for. */
static bool same_weight(const Weight *w, const Weight *x)
{
    return w->from == x->from && w->dtype == x->dtype && w->rounded == x->rounded && w->K == x->K && w->N == x->N &&
           w->rs == x->rs && w->cs == x->cs && w->taps == x->taps && w->apart == x->apart;
}

/* Its number; -1: not there. */
static int find(const PackedWeights *p, const Weight *x)
{
    for (int i = 0; i < p->n; i++)
        if (p->w[i].kernel == x->kernel && same_weight(&p->w[i], x)) return i;
    return -1;
}

/* Its number; -1 when out of memory. data: packed already, and the caller's. */
static int add(PackedWeights *p, const Weight *x, const void *data, Err *err)
{
    Weight *grown = vec_grow(p->w, p->n, sizeof *grown);
    if (!grown) {
        oom(err);
        return -1;
    }
    p->w = grown;
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
    Weight w = weight_of(k, b, rounded);
    return find(p, &w) >= 0 || add(p, &w, packed, err) >= 0;
}

static Tensor plain(const Weight *w)
{
    Tensor b = tensor_of(w->dtype, 2, (int64_t[]){w->K, w->N}, (void *)(uintptr_t)w->from);
    b.stride[0] = w->rs;
    b.stride[1] = w->cs;
    return b;
}

void packed_each(const PackedWeights *p, const Kernels *k,
                 void (*f)(void *user, const Tensor *b, bool rounded, size_t bytes), void *user)
{
    for (int i = 0; i < p->n; i++) {
        const Weight *w = &p->w[i];
        int first = 0;
        while (!same_weight(&p->w[first], w)) first++;
        if (w->taps > 1 || first < i) continue;
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
static bool keep(PackedWeights *p, Weight *w, Err *err)
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

static bool panels_for(PackedWeights *p, size_t n, Err *err)
{
    if (n <= p->panels_size) return true;
    mem_free(p->panels);
    p->panels = memory(n, err);
    p->panels_size = p->panels ? n : 0;
    return p->panels != NULL;
}

/* ------------------------------------------------------------------ a product with its sizes */

struct Packed {
    const ProductKernel *k;
    int64_t M, N, K, batch; /* K of a tap; a product that is not a convolution has one */
    int64_t run, deep;      /* packed: of a tap, of all; whole chunks */
    int dims;               /* batch dims, and the steps of a, b, c, residual in them, in bytes */
    int64_t shape[MAX_RANK], step[MAX_RANK][4];
    ProductIn a;
    Weight b;
    ProductOut out;
    PackedWeights *pool;
    int weight;           /* in the pool: b is constant; else -1 */
    const ConvRows *conv; /* owned; a's rows are made in a strip. NULL: they are in a */
    Windows *windows;     /* owned; NULL: b has strides */
    bool passing;         /* b is not constant, and large: panels are packed as tasks need them */
    bool lined;           /* a's rows are copied, made floats, `row_step` apart */
    bool direct;          /* tiles read rows: a's where they are, or those copies */
    bool rows_first;      /* a tile, which fits into L1, meets all panels before the next */
    int64_t row_step;     /* then: bytes between them */
    const int64_t *jump;
    int threads;
    bool across;               /* threads take whole products of the batch; else they share each */
    int64_t panels, kc, super; /* super: rows of a superblock */
    size_t a_bytes, b_bytes, sums_bytes;
    bool widens;  /* slivers of b are made floats */
    int64_t wide; /* where, among the floats of sums */
};

static void batch_dims(Packed *g, const GemmMatmul *d)
{
    const Tensor *t[4] = {d->a, d->b, d->c, d->residual};
    g->dims = d->c->rank - 2;
    g->batch = 1;
    for (int i = 0; i < g->dims; i++) {
        g->shape[i] = d->c->shape[i];
        g->batch *= g->shape[i];
        for (int k = 0; k < 4; k++)
            g->step[i][k] = !t[k] || t[k]->shape[i] == 1 ? 0 : t[k]->stride[i] * (int64_t)dtype_size(t[k]->dtype);
    }
}

/* Tiles of some rows: heights differ by one unit at most. */
typedef struct Rows {
    int64_t rows, units, tiles, low, higher; /* low: units of a tile; the first `higher` tiles have one more */
    int unit;
} Rows;

static Rows rows_of(const ProductKernel *k, int64_t rows)
{
    int64_t units = ceil_div(rows, k->unit), tiles = ceil_div(units, k->mr / k->unit);
    return (Rows){rows, units, tiles, tiles ? units / tiles : 0, tiles ? units % tiles : 0, k->unit};
}

static int64_t tile_at(const Rows *r, int64_t i) { return (i * r->low + least(i, r->higher)) * r->unit; }

/* Sums of a task wait for the rest of K: its most tiles and panels. */
static int64_t task_tiles(const Packed *g) { return most(1, g->k->mc / g->k->mr); }
static int64_t task_panels(const Packed *g) { return most(1, g->k->nc / g->k->nr); }

static size_t space(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

static size_t panel_of(const Packed *g) { return (size_t)(g->deep * g->k->nr * g->k->size); }
static int64_t few_panels(const Packed *g) { return most(1, FEW / (int64_t)panel_of(g)); }
static size_t panels_of(const Packed *g) { return space(panel_of(g) * (size_t)few_panels(g)); }

/* Blocks, threads and buffers of a product whose sizes and operands are known. Rows of a superblock: `super`. */
static Packed *blocked(Packed *g, PackedWeights *p, int64_t super, bool b_constant, Err *err)
{
    static const int64_t start[1] = {0};
    const ProductKernel *k = g->k;
    int64_t size = product_size_a(k);
    g->pool = p;
    g->weight = b_constant ? find(p, &g->b) : -1;
    if (b_constant && g->weight < 0 && (g->weight = add(p, &g->b, NULL, err)) < 0) {
        packed_free(g);
        return NULL;
    }
    int64_t taps = g->b.taps, run = padded_k(k, g->K);
    assert(task_tiles(g) <= MOST_TILES);
    double terms = (double)g->N * (double)(g->K * taps) * (double)g->batch;
    bool worth = 2 * terms * (double)g->M >= WORTH_THREADS || terms * k->size >= WORTH_BYTES;
    g->threads = worth ? (int)least(team_width(), MAX_THREADS) : 1;
    g->across = g->threads > 1 && g->batch >= g->threads;
    g->panels = ceil_div(g->N, k->nr);
    g->run = run;
    g->deep = taps * run;
    if (!g->conv && !g->across && g->threads > 1)
        super = most(super, g->threads * (int64_t)A_THREAD / most(g->deep * size, 1) / k->mr * k->mr);
    g->super = least(g->M, super);
    bool as_packed = size == (g->a.dtype == DT_BF16 ? 2 : 4) && !g->a.rounded; /* parts of a float are 6 bytes */
    g->direct = g->conv || ((k->in_place || (g->N <= IN_PLACE && rows_spread(g->a.rs * size, k->mr))) && g->a.cs == 1 &&
                            g->K == run && as_packed);
    g->lined = k->line_a && !g->conv && g->a.cs == 1 && g->M > PRODUCT_FEW;
    g->direct |= g->lined;
    g->row_step = g->conv ? g->conv->cell : g->lined ? g->deep * size + ALIGN : g->a.rs * size;
    g->jump = g->conv ? g->conv->jump : start;
    int64_t pieces = ceil_div(g->deep, k->kc);
    bool one_tile = rows_of(k, g->super).tiles <= 1; /* slivers are used once: nothing to gain from short ones */
    int64_t seen = g->conv ? g->conv->C * g->conv->kh * (k->mr + g->conv->kw)
                           : g->deep * k->mr; /* elements of a that a tile reads */
    g->rows_first = k->in_place && g->direct && seen * size <= A_TILE && g->deep * g->N * k->size <= B_WHOLE &&
                    g->M >= 8 * k->mr;
    g->widens = k->widen && (g->direct || g->M > PRODUCT_FEW);
    one_tile &= !g->widens; /* a sliver's floats are to stay in L1 */
    g->kc = pieces <= 1 || one_tile || g->rows_first ? g->deep : round_up(ceil_div(g->deep, pieces), k->chunk);
    int64_t packed_rows = round_up(g->direct ? least(k->mr, g->super) : g->super, k->unit);
    g->a_bytes = (size_t)(g->conv    ? g->conv->cells * g->conv->planes * g->conv->cell
                          : g->lined ? g->super * g->row_step
                                     : packed_rows * g->deep * size);
    g->b_bytes = g->weight >= 0 ? 0 : packed_bytes(k, g->K, g->N) * (size_t)taps;
    g->passing = g->b_bytes > B_WHOLE && g->M <= g->super && !g->conv;
    if (g->passing) g->b_bytes = panels_of(g) * (size_t)(g->across ? 1 : g->threads);
    g->sums_bytes = (size_t)(k->mr * k->nr) * sizeof(float) *
                    (size_t)(g->kc < g->deep ? task_tiles(g) * task_panels(g)
                             : k->overlaps   ? 2
                                             : 1);
    g->wide = (int64_t)(g->sums_bytes / sizeof(float));
    if (g->widens) g->sums_bytes += (size_t)(g->kc * k->nr) * sizeof(float);
    return g;
}

/* Whether float32 goes by tiles, which pack a each time, and b where it is not kept: b is not given packed otherwise,
 * and there is much to do for each element. */
static bool by_tiles(const PackedWeights *p, const Kernels *kernels, const GemmMatmul *d)
{
    const Tensor *c = d->c;
    if (!kernels->product.f32_tiles.layout || d->rounded || d->b->dtype != DT_F32 || d->a->dtype != DT_F32)
        return false;
    Weight plain = weight_of(&kernels->product.f32, d->b, false);
    int i = d->b_constant ? find(p, &plain) : -1;
    bool given = i >= 0 && p->w[i].data && !p->w[i].owned;
    int64_t from = d->b_constant && !d->windows ? KEPT_M : TILES_M;
    return !given && d->least_rows >= from && c->shape[c->rank - 2] >= from && c->shape[c->rank - 1] >= TILES_N &&
           d->a->shape[d->a->rank - 1] >= TILES_K;
}

/* Parts of a weight that many rows share are packed each time: kept, they are half as large again as the weight. */
static bool keeps_weight(const GemmMatmul *d, bool tiles)
{
    return d->b_constant && !d->windows && (!tiles || d->c->shape[d->c->rank - 2] < TILES_M);
}

Packed *packed_matmul(PackedWeights *p, const Kernels *kernels, const GemmMatmul *d, Err *err)
{
    bool tiles = by_tiles(p, kernels, d);
    const ProductKernel *k = tiles ? &kernels->product.f32_tiles : packed_kernel(kernels, d->b, d->rounded);
    if (!k) {
        fail(err, E_UNSUPPORTED, "no product of %s at this ISA level", dtype_name(d->b->dtype));
        return NULL;
    }
    Packed *g = mem_zeroed(1, sizeof *g);
    if (!g) return oom(err), NULL;
    const Tensor *a = d->a, *c = d->c;
    bool rounded = d->rounded || d->b->dtype == DT_BF16;
    g->k = k;
    g->M = c->shape[c->rank - 2];
    g->N = c->shape[c->rank - 1];
    g->K = a->shape[a->rank - 1];
    batch_dims(g, d);
    g->a = operand(a, rounded);
    g->b = weight_of(k, d->b, rounded);
    if (d->windows) {
        if (!(g->windows = windows_of(d->windows, d->along, d->first, g->K, err))) return packed_free(g), NULL;
        g->b.windows = g->windows, g->b.K = g->K, g->b.rs = g->b.cs = 0;
    }
    g->out = (ProductOut){
        .c_type = c->dtype, .c_step = c->stride[c->rank - 2], .act = (int)d->act, .act_last = d->act_last};
    if (d->bias) g->out.bias_type = d->bias->dtype;
    if (d->residual) {
        g->out.residual_type = d->residual->dtype;
        g->out.times = d->times;
        g->out.residual_step = d->residual->stride[d->residual->rank - 2];
    }
    return blocked(g, p, round_up(SUPERBLOCK, k->mr), keeps_weight(d, tiles), err);
}

/* Pictures whose pixels are rows, all of them one after the other: an ordinary product. */
static Packed *pixelwise(PackedWeights *p, const Kernels *kernels, const GemmConv *d, Err *err)
{
    int64_t C = d->x->shape[1], O = d->w->shape[0], rows = C ? tensor_numel(d->x) / C : 0;
    Tensor a = tensor_of(d->x->dtype, 2, (int64_t[]){rows, C}, NULL),
           c = tensor_of(d->y->dtype, 2, (int64_t[]){rows, O}, NULL);
    Tensor b = tensor_of(d->w->dtype, 2, (int64_t[]){C, O}, d->w->data);
    b.stride[0] = d->w->stride[1];
    b.stride[1] = d->w->stride[0];
    GemmMatmul m = {.a = &a,
                    .b = &b,
                    .c = &c,
                    .bias = d->bias,
                    .residual = d->sum ? &c : NULL,
                    .b_constant = d->w_constant,
                    .act_last = d->sum,
                    .act = d->act};
    return packed_matmul(p, kernels, &m, err);
}

Packed *packed_conv(PackedWeights *p, const Kernels *kernels, const GemmConv *d, Err *err)
{
    const ProductKernel *k = packed_kernel(kernels, d->w, false);
    ConvRows rows;
    if (!conv_rows(&rows, d, k)) return NULL;
    if (rows.plain) return pixelwise(p, kernels, d, err);
    Packed *g = mem_zeroed(1, sizeof *g);
    ConvRows *own = g ? mem_alloc(sizeof *own) : NULL;
    if (!own) {
        mem_free(g);
        return oom(err), NULL;
    }
    *own = rows;
    int64_t O = d->w->shape[0], pixels = rows.hout * rows.wout;
    int64_t x_step = (int64_t)dtype_size(d->x->dtype) * rows.C * rows.H * rows.W,
            y_step = (int64_t)dtype_size(d->y->dtype) * O * pixels;
    g->k = k;
    g->conv = own;
    g->M = rows.positions;
    g->N = O;
    g->K = rows.K;
    g->dims = 1;
    g->batch = g->shape[0] = d->x->shape[0];
    memcpy(g->step[0], (int64_t[4]){x_step, 0, y_step, y_step}, sizeof g->step[0]);
    g->b = (Weight){.from = d->w->data,
                    .kernel = k,
                    .dtype = d->w->dtype,
                    .K = rows.K,
                    .N = O,
                    .rs = rows.patches ? 1 : d->w->stride[1],
                    .cs = d->w->stride[0],
                    .taps = rows.taps,
                    .apart = rows.patches ? 0 : 1};
    g->out = (ProductOut){.c_type = d->y->dtype, .c_step = O, .act = (int)d->act, .act_last = d->sum};
    if (d->bias) g->out.bias_type = d->bias->dtype;
    if (d->sum) {
        g->out.residual_type = d->y->dtype;
        g->out.residual_step = O;
    }
    return blocked(g, p, rows.super, d->w_constant, err);
}

void packed_free(Packed *g)
{
    if (g) mem_free((void *)(uintptr_t)g->conv), windows_free(g->windows);
    mem_free(g);
}

size_t packed_scratch(const Packed *g)
{
    size_t shared = space(g->a_bytes) + space(g->b_bytes);
    return (g->across ? shared * (size_t)g->threads : shared) + space(g->sums_bytes) * (size_t)g->threads + ALIGN;
}

/* ------------------------------------------------------------------ running */

/* One product of the batch, with its buffers. */
typedef struct Job {
    const Packed *g;
    ProductIn a;
    Weight b;
    ProductOut out;
    char *packed_a, *packed_b; /* packed_a: a superblock's packed rows, or the strip, or, of rows in place, a tile */
    const char *weight;        /* panels [first, end) of b */
    int64_t first, end;
    char *panels; /* b is packed as tasks need it: all its panels, if they are kept, else room for few_panels of each
                     thread */
    bool keep;
    int64_t row; /* first of the superblock */
    Rows rows;
    int64_t blocks, groups; /* tasks: blocks of tiles by groups of panels */
} Job;

/* Lines that finish will touch, which are far away. */
enum { MOST_LINES = MOST_ROWS * 2 * 5 };
typedef struct Lines {
    const char *at[MOST_LINES];
    int n;
} Lines;

static void lines_of(Lines *l, const char *first, int64_t step, int rows, int64_t bytes)
{
    for (int r = 0; r < rows; r++, first += step)
        for (int64_t at = 0; at < bytes && l->n < MOST_LINES; at += ALIGN) l->at[l->n++] = first + at;
}

/* Rows of c and of the residual. */
static void coming(const ProductDone *d, Lines *l)
{
    const ProductOut *o = d->out;
    int64_t c = o->c_type == DT_BF16 ? 2 : 4, more = o->residual_type == DT_BF16 ? 2 : 4;
    bool other = o->residual && o->residual != o->c;
    for (int r = 0, n; r < d->rows; r += n) {
        int64_t row = d->at ? d->at[r] : d->row;
        for (n = d->at ? 1 : d->rows; d->at && r + n < d->rows && d->at[r + n] == row + n; n++) {
        }
        if (row < 0) continue;
        lines_of(l, (const char *)o->c + (row * o->c_step + d->col) * c, o->c_step * c, n, d->cols * c);
        if (other)
            lines_of(l, (const char *)o->residual + (row * o->residual_step + d->col) * more, o->residual_step * more,
                     n, d->cols * more);
    }
}

/* Positions of a picture: those past the end of a row are none of c's. */
static void rows_of_positions(const ConvRows *v, int64_t position, int rows, int64_t *at)
{
    int64_t i = position / v->pitch, w = position % v->pitch;
    for (int r = 0; r < rows; r++) {
        at[r] = w < v->wout ? i * v->wout + w : -1;
        if (++w == v->pitch) w = 0, i++;
    }
}

static const char *panel_at(const Job *j, int64_t p) { return j->weight + panel_of(j->g) * (size_t)(p - j->first); }

/* What the panels after [p0, p1) will be packed from, where its bytes are side by side: a sliver's share of panel p's
 * successor. NULL: nowhere. */
static const char *source_ahead(const Job *j, int64_t p, int64_t few, int64_t at)
{
    const Packed *g = j->g;
    if (!j->panels || j->b.rs != 1 || j->b.cs != g->K) return NULL;
    return (const char *)j->b.from +
           ((least(p + few, g->panels - 1)) * g->K + at) * g->k->nr * (int64_t)dtype_size(j->b.dtype);
}

/* Rows of a that are read where they are, except at the end of a, after which there is no memory: a tile that is not a
 * whole number of units is packed. */
static bool lies(const Job *j, int64_t tile)
{
    return j->g->direct && (j->g->conv || j->g->lined || tile_at(&j->rows, tile + 1) <= j->rows.rows);
}

static const char *rows_at(const Job *j, int64_t row)
{
    return j->g->conv || j->g->lined ? j->packed_a + row * j->g->row_step
                                     : (const char *)j->a.data + (j->row + row) * j->g->row_step;
}

/* Where direct rows are the rule, there is room for one packed tile. */
static char *packed_at(const Job *j, int64_t tile, int64_t at)
{
    int64_t row = tile_at(&j->rows, tile), high = tile_at(&j->rows, tile + 1) - row;
    return j->packed_a + ((j->g->direct ? 0 : row * j->g->deep) + high * at) * product_size_a(j->g->k);
}

/* A tile of a: its first row in the superblock, its rows (whole units), where it begins, bytes between two elements of
 * K, as far as they are worth fetching. */
typedef struct Place {
    int64_t row;
    const char *a;
    int64_t step;
    int rows;
    bool lies;
} Place;

static Place place_of(const Job *j, int64_t tile)
{
    const Packed *g = j->g;
    int64_t row = tile_at(&j->rows, tile), rows = tile_at(&j->rows, tile + 1) - row, size = product_size_a(g->k);
    if (!lies(j, tile)) return (Place){row, packed_at(j, tile, 0), rows * size, (int)rows, false};
    return (Place){row, rows_at(j, row), g->conv ? 0 : size, (int)rows, true};
}

/* The tile that waits for its finish, and the one that is computed meanwhile. */
typedef struct Pair {
    ProductDone tile[2];
    int64_t at[2][MOST_ROWS];
    int turn;
    const ProductDone *waits;
} Pair;

/* The tile at t by panel p, elements of K from `at` on. What to fetch meanwhile is set in x, and where
 * b's sliver is, unless it is taken as it is packed. */
static void multiply(const Job *j, Pair *pair, ProductTile *x, const Place *t, int64_t p, int64_t at)
{
    const Packed *g = j->g;
    const ProductKernel *k = g->k;
    ProductDone *d = &pair->tile[pair->turn];
    bool last = at + g->kc >= g->deep, fetches = k->fetches && (!k->widen || g->widens);
    Lines soon;
    soon.n = 0;
    if (!x->b) x->b = panel_at(j, p) + at * k->nr * k->size;
    x->n = least(g->kc, g->deep - at);
    x->rows = t->rows;
    x->cols = (int)least(k->nr, g->N - p * k->nr);
    x->add = at > 0;
    if (t->lies) {
        x->a = t->a;
        x->step = g->row_step;
        x->run = g->run;
        x->from = at;
        x->jump = g->jump;
    } else {
        x->n = least(x->n, g->K - at);
        x->a = t->a + at * t->step;
    }
    if (last) {
        *d = (ProductDone){.out = &j->out,
                           .acc = x->acc,
                           .row = j->row + t->row,
                           .col = p * k->nr,
                           .rows = (int)least(t->rows, j->rows.rows - t->row),
                           .cols = x->cols};
        if (g->conv) rows_of_positions(g->conv, d->row, d->rows, pair->at[pair->turn]);
        if (g->conv) d->at = pair->at[pair->turn];
        coming(d, &soon);
    }
    for (int i = 0; i < soon.n && !fetches; i++) __builtin_prefetch(soon.at[i], 1, 3);
    if (!soon.n) soon.at[soon.n++] = (const char *)x->acc;
    x->soon = soon.at, x->soon_end = soon.at + soon.n;
    x->done = pair->waits;
    k->widen && !g->widens ? k->narrow(x) : k->tile(x);
    pair->waits = last && k->overlaps ? d : NULL;
    if (last && k->overlaps) pair->turn = !pair->turn;
    if (last && !k->overlaps) k->finish(d);
}

/* Tiles [t0, t1) by panels [p0, p1). */
static void task(const Job *j, int64_t t0, int64_t t1, int64_t p0, int64_t p1, float *sums)
{
    const Packed *g = j->g;
    const ProductKernel *k = g->k;
    int64_t tile_size = k->mr * k->nr;
    float *wide = g->widens ? sums + g->wide : NULL;
    Pair pair = {.turn = 0};
    Place place[MOST_TILES];
    for (int64_t t = t0; t < t1; t++) place[t - t0] = place_of(j, t);
    for (int64_t t = t0; g->rows_first && t < t1; t++)
        for (int64_t p = p0; p < p1; p++)
            multiply(j, &pair, &(ProductTile){.acc = sums + pair.turn * tile_size}, &place[t - t0], p, 0);
    for (int64_t at = 0; !g->rows_first && at < g->deep; at += g->kc) {
        bool last = at + g->kc >= g->deep, source = source_ahead(j, p0, 0, 0) != NULL;
        int64_t size = source ? (int64_t)dtype_size(j->b.dtype) : k->size;
        int each = (int)ceil_div(g->kc * k->nr * size / ALIGN, t1 - t0);
        for (int64_t p = p0; p < p1; p++) {
            const char *next = p + 1 < p1 ? panel_at(j, p + 1) + at * k->nr * k->size
                               : last     ? panel_at(j, least(p1, j->end - 1))
                                          : panel_at(j, p0) + (at + g->kc) * k->nr * k->size;
            const char *ahead = source ? source_ahead(j, p, p1 - p0, at) : next;
            if (wide) k->widen(wide, panel_at(j, p) + at * k->nr * k->size, least(g->kc, g->deep - at));
            float *acc = sums + (p - p0) * (t1 - t0) * tile_size;
            for (int64_t t = 0; t < t1 - t0; t++, ahead += each * ALIGN, acc += tile_size) {
                const Place *soon = t + 1 < t1 - t0 ? &place[t + 1] : place;
                ProductTile x = {.acc = g->kc < g->deep ? acc : sums + pair.turn * tile_size,
                                 .b = wide,
                                 .lines = each,
                                 .ahead = ahead,
                                 .next_a = soon->a + (soon > place || p + 1 < p1 || last ? at : at + g->kc) * soon->step};
                multiply(j, &pair, &x, &place[t], p, at);
            }
        }
    }
    if (pair.waits) k->finish(pair.waits);
}

/* Lines that other threads have written come slowly: all of a piece at once, not as packing comes to them. */
static void ask_for_rows(const ProductIn *a, int64_t row, int rows, int64_t n)
{
    int64_t size = (int64_t)dtype_size(a->dtype);
    for (int r = 0; r < rows; r++)
        for (int64_t at = 0; at < n * size; at += ALIGN)
            __builtin_prefetch((const char *)a->data + (row + r) * a->rs * size + at, 0, 2);
}

/* Elements of K from `at` on, n of them: whole chunks, but at the end. */
static void pack_rows(const Job *j, int64_t tile, int64_t at, int64_t n)
{
    const Packed *g = j->g;
    int64_t row = tile_at(&j->rows, tile), end = tile_at(&j->rows, tile + 1);
    ProductIn a = j->a;
    if (!g->lined && lies(j, tile)) return;
    a.data = (const char *)a.data + at * a.cs * (int64_t)dtype_size(a.dtype);
    if (n < g->K && a.cs == 1) ask_for_rows(&a, j->row + row, (int)(least(end, j->rows.rows) - row), n);
    if (g->lined)
        g->k->line_a(j->packed_a + row * g->row_step + at * product_size_a(g->k), &a, j->row + row, (int)(end - row), n,
                     g->row_step);
    else g->k->pack_a(packed_at(j, tile, at), &a, j->row + row, (int)(least(end, j->rows.rows) - row), n);
}

/* How a superblock is cut into blocks of tiles by groups of panels. A task takes a tile by a panel in two units, and one
 * for each tile and panel, which come from other threads' caches; the most tasks of a thread decide, where threads are
 * some. Tasks that pack panels as they come to them have panels of their own. */
static void cut(Job *j, int threads, bool packs_panels)
{
    enum { TRIES = 4 };
    const Packed *g = j->g;
    int64_t tiles = j->rows.tiles, fewest = g->rows_first ? 1 : ceil_div(g->panels, task_panels(g)), best = INT64_MAX;
    j->groups = g->rows_first ? 1 : least(round_up(fewest, threads), g->panels);
    j->blocks = most(ceil_div(tiles, task_tiles(g)), least(ceil_div(threads, j->groups), tiles));
    if (threads == 1 || packs_panels || g->rows_first) return;
    for (int64_t blocks = ceil_div(tiles, task_tiles(g)); blocks <= least(tiles, 2 * threads); blocks++)
        for (int64_t i = 0, each = ceil_div(fewest * blocks, threads); i < TRIES; i++) {
            int64_t groups = least(most(ceil_div((each + i) * threads, blocks), fewest), g->panels);
            int64_t high = ceil_div(tiles, blocks), wide = ceil_div(g->panels, groups),
                    cost = ceil_div(groups * blocks, threads) * (2 * high * wide + high + wide);
            if (cost >= best) continue;
            best = cost, j->groups = groups, j->blocks = blocks;
        }
}

/* Tasks [i, last), their panels packed here, once for all their blocks of tiles. */
static void pack_and_multiply(Job *j, int64_t i, int64_t last, float *sums)
{
    const Packed *g = j->g;
    int64_t few = few_panels(g);
    while (i < last) {
        int64_t x = i / j->blocks, y0 = i % j->blocks, y1 = least(j->blocks, y0 + last - i),
                end = g->panels * (x + 1) / j->groups;
        for (int64_t p0 = g->panels * x / j->groups, p1; p0 < end; p0 = p1) {
            p1 = least(p0 + few, end);
            if (!j->keep) j->first = p0, j->end = p1;
            for (int64_t p = p0; p < p1; p++) pack_panel(&j->b, j->panels + panel_of(g) * (size_t)(p - j->first), p);
            for (int64_t y = y0; y < y1; y++)
                task(j, j->rows.tiles * y / j->blocks, j->rows.tiles * (y + 1) / j->blocks, p0, p1, sums);
        }
        i += y1 - y0;
    }
}

/* Tiles [t0, t1) of an a whose rows are side by side, some elements of K of all tiles before the next: a line of a has
 * rows of two tiles or three. */
static void pack_beside(const Job *j, int64_t t0, int64_t t1)
{
    enum { SOME = 16 };
    const Packed *g = j->g;
    int64_t each = round_up(SOME, g->k->chunk);
    ProductIn a = j->a;
    for (int64_t at = 0; at < g->K; at += each) {
        for (int64_t t = t0; t < t1; t++) {
            int64_t row = tile_at(&j->rows, t), end = tile_at(&j->rows, t + 1);
            g->k->pack_a(packed_at(j, t, at), &a, j->row + row, (int)(least(end, j->rows.rows) - row),
                         least(each, g->K - at));
        }
        a.data = (const char *)a.data + each * a.cs * (int64_t)dtype_size(a.dtype);
    }
}

/* Share `self` of `shares` of what is packed before a superblock is multiplied: b before the first, rows of a, in pieces
 * of K where tiles are few. */
static void pack_share(const Job *j, int self, int shares)
{
    enum { SHORTEST = 128 };
    const Packed *g = j->g;
    if (j->weight == j->packed_b && !j->row)
        for (int64_t p = g->panels * self / shares; p < g->panels * (self + 1) / shares; p++)
            pack_panel(&j->b, j->packed_b + panel_of(g) * (size_t)p, p);
    if (g->conv) {
        conv_rows_fill(g->conv, j->packed_a, j->a.data, j->row, j->rows.rows, self, shares);
        return;
    }
    int64_t tiles = j->rows.tiles;
    if (!g->direct && j->a.rs == 1 && j->a.cs > 1) {
        pack_beside(j, tiles * self / shares, tiles * (self + 1) / shares);
        return;
    }
    int64_t pieces = shares == 1 || tiles >= 4 * shares ? 1 : ceil_div(4 * shares, tiles),
            each = round_up(most(ceil_div(g->K, pieces), SHORTEST), g->k->chunk);
    pieces = ceil_div(g->K, each);
    for (int64_t i = tiles * pieces * self / shares; i < tiles * pieces * (self + 1) / shares; i++)
        pack_rows(j, i / pieces, i % pieces * each, least(each, g->K - i % pieces * each));
}

/* Whether that is much: more than a few rows, or the last rows of an a that is read where it is. */
static bool packs(const Job *j)
{
    if ((j->weight == j->packed_b && !j->row) || j->g->conv) return true;
    return (j->g->lined || !j->g->direct) && j->rows.rows * j->g->deep * product_size_a(j->g->k) > FEW_BYTES;
}

static void pack_superblock(const Job *j, int threads)
{
    if (!packs(j)) threads = 1;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int i = 0; i < threads; i++) pack_share(j, i, threads);
}

/* Task i of the superblock: a block of a stays in L2 while b passes. */
static void numbered_task(const Job *j, int64_t i, float *sums)
{
    int64_t x = i % j->groups, y = i / j->groups, groups = j->groups, blocks = j->blocks;
    task(j, j->rows.tiles * y / blocks, j->rows.tiles * (y + 1) / blocks, j->g->panels * x / groups,
         j->g->panels * (x + 1) / groups, sums);
}

static void multiply_superblock(const Job *j, int threads, char *own, size_t each)
{
    const ProductKernel *k = j->g->k;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *sums = (float *)(void *)(own + each * (size_t)team_part());
        if (k->begin) k->begin();
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t i = 0; i < j->groups * j->blocks; i++) numbered_task(j, i, sums);
        if (k->end) k->end();
    }
}

/* Share i of the superblock's tasks, whose panels are packed on the way. */
static void pack_and_multiply_share(Job j, int i, int shares, float *sums)
{
    int64_t n = j.groups * j.blocks;
    if (!j.keep) j.weight = j.panels += panels_of(j.g) * (size_t)i;
    if (j.g->k->begin) j.g->k->begin();
    pack_and_multiply(&j, n * i / shares, n * (i + 1) / shares, sums);
    if (j.g->k->end) j.g->k->end();
}

/* A product by `threads` threads; own: sums of each thread. */
static void product(Job j, int threads, char *own, size_t each)
{
    const Packed *g = j.g;
    for (; j.row < g->M; j.row += g->super) {
        j.rows = rows_of(g->k, least(g->super, g->M - j.row));
        cut(&j, threads, j.panels);
        pack_superblock(&j, threads);
        if (!j.panels) multiply_superblock(&j, threads, own, each);
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int i = 0; i < (j.panels ? threads : 0); i++)
            pack_and_multiply_share(j, i, threads, (float *)(void *)(own + each * (size_t)i));
    }
}

static Job job_of(const Packed *g, const GemmBuffers *m, int64_t item, char *shared)
{
    const Weight *w = g->weight >= 0 ? &g->pool->w[g->weight] : NULL;
    Job j = {.g = g,
             .a = g->a,
             .b = g->b,
             .out = g->out,
             .packed_a = shared,
             .packed_b = shared + space(g->a_bytes),
             .end = g->panels};
    int64_t at[4] = {0};
    for (int i = g->dims - 1; i >= 0; i--) {
        for (int k = 0; k < 4; k++) at[k] += item % g->shape[i] * g->step[i][k];
        item /= g->shape[i];
    }
    j.weight = w ? w->data : g->passing ? NULL : j.packed_b;
    if (g->passing) j.panels = j.packed_b;
    j.a.data = (const char *)m->a + at[0];
    j.b.from = w ? w->from : (const char *)m->b + at[1];
    j.out.c = (char *)m->c + at[2];
    j.out.bias = m->bias;
    j.out.residual = m->residual ? (const char *)m->residual + at[3] : NULL;
    return j;
}

static size_t plain_bytes(const Weight *w)
{
    return (size_t)((w->K - 1) * w->rs + (w->N - 1) * w->cs + (w->taps - 1) * w->apart + 1) * dtype_size(w->dtype);
}

void packed_let_go(const PackedWeights *p, const void *from, size_t n)
{
    uintptr_t at = (uintptr_t)from, file = (uintptr_t)p->file;
    if (p->file && at >= file && n <= p->file_size && at - file <= p->file_size - n) pages_done(from, n);
}

/* Where a constant b is packed on the way, and whether it is kept there;
 * *to is NULL where it is packed already, or packed here. */
static bool prepare_weight(const Packed *g, int threads, char **to, bool *keeps, Err *err)
{
    Weight *w = g->weight >= 0 ? &g->pool->w[g->weight] : NULL;
    bool way = g->M <= g->super && g->batch == 1, first = w && !w->used;
    *to = NULL;
    if (!w || w->data) return true;
    w->used = true;
    *keeps = !way || !first;
    pages_soon(w->from, plain_bytes(w));
    TRY(*keeps ? keep(g->pool, w, err) : panels_for(g->pool, panels_of(g) * (size_t)threads, err));
    Job j = {.g = g, .rows = rows_of(g->k, g->M)};
    cut(&j, threads, true);
    if (!*keeps) *to = g->pool->panels;
    else if (way && (threads == 1 || j.blocks == 1))
        *to = (char *)(uintptr_t)w->data; /* else two threads would write one panel */
    else pack_weight(w, (void *)(uintptr_t)w->data, team_width());
    return true;
}

bool packed_run(const Packed *g, const GemmBuffers *m, void *scratch, Err *err)
{
    size_t shared = space(g->a_bytes) + space(g->b_bytes), sums = space(g->sums_bytes);
    char *base = (char *)(((uintptr_t)scratch + ALIGN - 1) / ALIGN * ALIGN),
         *own = base + (g->across ? shared * (size_t)g->threads : shared);
    int threads = (int)least(g->threads, team_width());
    char *panels;
    bool keeps = false;
    TRY(prepare_weight(g, threads, &panels, &keeps, err));
    if (g->across) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int64_t i = 0; i < g->batch; i++) {
            size_t self = (size_t)team_part();
            product(job_of(g, m, i, base + shared * self), 1, own + sums * self, sums);
        }
    }
    for (int64_t i = 0; i < g->batch && !g->across; i++) {
        Job j = job_of(g, m, i, base);
        if (panels) j.panels = panels;
        j.keep = keeps;
        product(j, threads, own, sums);
    }
    if (keeps) packed_let_go(g->pool, g->pool->w[g->weight].from, plain_bytes(&g->pool->w[g->weight]));
    return true;
}
