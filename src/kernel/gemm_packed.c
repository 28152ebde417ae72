/* Our own matrix products: blocking and threads around the tiles of kernel/product.h.
 *
 * All of a's rows are packed first, a superblock of them at a time; then tasks of some tiles by some panels go to the threads. Within a task,
 * panels are outside: a sliver of a panel (kc x nr, in L1) meets every tile of the task (in L2), and the next sliver is fetched meanwhile.
 * b is read once a superblock. Sums that K has cut wait in a buffer of the thread. (Goto and van de Geijn 2008, with the panel of b inside.)
 *
 * A constant b is packed for keeps at its second use. A product of one superblock packs panels as it comes to them: into their place, or, at the first
 * use, into memory that its thread uses again and again. Who runs a model once writes no second copy of its weights (fresh memory is as dear as packing).
 */
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "base/pages.h"
#include "kernel/gemm_impl.h"

/* FEW: bytes of panels that are packed together on the way; they, and what the next are made of, stay in L2. WORTH_THREADS: floating-point operations, some 10 us of a core. */
enum { ALIGN = 64, HUGE = 2 << 20, SUPERBLOCK = 1024, FEW = 300 << 10, MAX_THREADS = 1024, WORTH_THREADS = 1 << 20 };

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* ------------------------------------------------------------------ packed weights */

typedef struct Weight {
    const void *from;
    const ProductKernel *kernel;
    DType dtype;
    bool rounded, owned;
    int64_t K, N, rs, cs;
    const void *data; /* NULL: not packed so far */
    bool used;        /* by a product that packed it as it went */
    size_t bytes;
} Weight;

struct PackedWeights {
    Weight *w;
    int n, cap;
    size_t bytes; /* of those that are owned */
    void *panels; /* of first uses; given back when a weight is packed for keeps */
    size_t panels_size;
};

PackedWeights *packed_weights_create(Err *err)
{
    PackedWeights *p = calloc(1, sizeof *p);
    if (!p) fail(err, E_LIMIT, "out of memory");
    return p;
}

void packed_weights_free(PackedWeights *p)
{
    if (!p) return;
    for (int i = 0; i < p->n; i++)
        if (p->w[i].owned) free((void *)(uintptr_t)p->w[i].data);
    free(p->panels);
    free(p->w);
    free(p);
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

size_t packed_bytes(const ProductKernel *k, int64_t K, int64_t N) { return panel_bytes(k, K) * (size_t)ceil_div(N, k->nr); }

static ProductIn operand(const Tensor *t, bool rounded)
{
    return (ProductIn){.data = t->data, .dtype = t->dtype, .rs = t->stride[t->rank - 2], .cs = t->stride[t->rank - 1], .rounded = rounded && t->dtype == DT_F32};
}

void packed_pack(const ProductKernel *k, void *to, const Tensor *b, bool rounded, int threads)
{
    int64_t K = b->shape[b->rank - 2], N = b->shape[b->rank - 1], panels = ceil_div(N, k->nr);
    ProductIn in = operand(b, rounded);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < panels; i++) k->pack_b((char *)to + panel_bytes(k, K) * (size_t)i, &in, i, K, N);
}

/* Its number; -1: not there. */
static int find(const PackedWeights *p, const ProductKernel *k, const Tensor *b, bool rounded)
{
    for (int i = 0; i < p->n; i++) {
        const Weight *w = &p->w[i];
        if (w->from == b->data && w->kernel == k && w->dtype == b->dtype && w->rounded == (rounded && b->dtype == DT_F32) && w->K == b->shape[b->rank - 2] &&
            w->N == b->shape[b->rank - 1] && w->rs == b->stride[b->rank - 2] && w->cs == b->stride[b->rank - 1])
            return i;
    }
    return -1;
}

/* Its number; -1 when out of memory. data: packed already, and the caller's. */
static int add(PackedWeights *p, const ProductKernel *k, const Tensor *b, bool rounded, const void *data, Err *err)
{
    if (p->n == p->cap) {
        int cap = p->cap ? p->cap * 2 : 64;
        Weight *grown = realloc(p->w, (size_t)cap * sizeof *grown);
        if (!grown) {
            fail(err, E_LIMIT, "out of memory");
            return -1;
        }
        p->w = grown;
        p->cap = cap;
    }
    Weight *w = &p->w[p->n];
    *w = (Weight){.from = b->data, .kernel = k, .dtype = b->dtype, .rounded = rounded && b->dtype == DT_F32, .K = b->shape[b->rank - 2],
                  .N = b->shape[b->rank - 1], .rs = b->stride[b->rank - 2], .cs = b->stride[b->rank - 1], .data = data};
    w->bytes = packed_bytes(k, w->K, w->N);
    return p->n++;
}

bool packed_give(PackedWeights *p, const ProductKernel *k, const Tensor *b, bool rounded, const void *packed, Err *err)
{
    return find(p, k, b, rounded) >= 0 || add(p, k, b, rounded, packed, err) >= 0;
}

static Tensor plain(const Weight *w)
{
    Tensor b = tensor_of(w->dtype, 2, (int64_t[]){w->K, w->N}, (void *)(uintptr_t)w->from);
    b.stride[0] = w->rs;
    b.stride[1] = w->cs;
    return b;
}

void packed_each(const PackedWeights *p, void (*f)(void *user, const Tensor *b, bool rounded, size_t bytes), void *user)
{
    for (int i = 0; i < p->n; i++) {
        const Weight *w = &p->w[i];
        Tensor b = plain(w);
        f(user, &b, w->rounded, w->bytes);
    }
}

static void *memory(size_t n, Err *err)
{
    size_t align = n >= HUGE ? HUGE : ALIGN;
    void *data = aligned_alloc(align, (n + align - 1) / align * align);
    if (!data) fail(err, E_LIMIT, "out of memory: %zu bytes of packed weights", n);
    return data;
}

/* Huge pages: a panel's slivers lie 100 KB to 1 MB apart, each on pages of its own otherwise. */
static bool keep(PackedWeights *p, Weight *w, Err *err)
{
    void *data = memory(w->bytes, err);
    TRY(data);
    if (w->bytes >= HUGE) pages_huge(data, w->bytes);
    w->data = data;
    w->owned = true;
    p->bytes += w->bytes;
    free(p->panels);
    p->panels = NULL;
    p->panels_size = 0;
    return true;
}

static bool panels_for(PackedWeights *p, size_t n, Err *err)
{
    if (n <= p->panels_size) return true;
    free(p->panels);
    p->panels = memory(n, err);
    p->panels_size = p->panels ? n : 0;
    return p->panels != NULL;
}

/* ------------------------------------------------------------------ a product with its sizes */

struct Packed {
    const ProductKernel *k;
    int64_t M, N, K, batch;
    int dims; /* batch dims, and the steps of a, b, c, residual in them, in bytes */
    int64_t shape[MAX_RANK], step[MAX_RANK][4];
    ProductIn a, b;
    ProductOut out;
    PackedWeights *pool;
    int weight; /* in the pool: b is constant; else -1 */
    int threads;
    bool across;        /* threads take whole products of the batch; else they share each */
    int64_t panels, kc, super; /* super: rows of a superblock */
    size_t a_bytes, b_bytes, sums_bytes;
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
    int64_t rows, units, tiles;
    int unit;
} Rows;

static Rows rows_of(const ProductKernel *k, int64_t rows)
{
    int64_t units = ceil_div(rows, k->unit);
    return (Rows){rows, units, ceil_div(units, k->mr / k->unit), k->unit};
}

static int64_t tile_at(const Rows *r, int64_t i) { return (i * (r->units / r->tiles) + least(i, r->units % r->tiles)) * r->unit; }

/* Sums of a task wait for the rest of K: its most tiles and panels. */
static int64_t task_tiles(const Packed *g) { return most(1, g->k->mc / g->k->mr); }
static int64_t task_panels(const Packed *g) { return most(1, g->k->nc / g->k->nr); }

Packed *packed_matmul(PackedWeights *p, const Kernels *kernels, const GemmMatmul *d, Err *err)
{
    const ProductKernel *k = packed_kernel(kernels, d->b, d->rounded);
    if (!k) {
        fail(err, E_UNSUPPORTED, "no product of %s on this CPU level", dtype_name(d->b->dtype));
        return NULL;
    }
    Packed *g = calloc(1, sizeof *g);
    if (!g) {
        fail(err, E_LIMIT, "out of memory");
        return NULL;
    }
    const Tensor *a = d->a, *c = d->c;
    bool rounded = d->rounded || d->b->dtype == DT_BF16;
    g->k = k;
    g->pool = p;
    g->weight = -1;
    g->M = c->shape[c->rank - 2];
    g->N = c->shape[c->rank - 1];
    g->K = a->shape[a->rank - 1];
    batch_dims(g, d);
    g->a = operand(a, rounded);
    g->b = operand(d->b, rounded);
    g->out = (ProductOut){.c_type = c->dtype, .c_step = c->stride[c->rank - 2], .act = (int)d->act};
    if (d->bias) g->out.bias_type = d->bias->dtype;
    if (d->residual) {
        g->out.residual_type = d->residual->dtype;
        g->out.times = d->times;
        g->out.residual_step = d->residual->stride[d->residual->rank - 2];
    }
    if (d->b_constant) {
        g->weight = find(p, k, d->b, rounded);
        if (g->weight < 0 && (g->weight = add(p, k, d->b, rounded, NULL, err)) < 0) {
            free(g);
            return NULL;
        }
    }
    g->panels = ceil_div(g->N, k->nr);
    int64_t deep = padded_k(k, g->K), pieces = ceil_div(deep, k->kc);
    g->super = least(g->M, round_up(SUPERBLOCK, k->mr));
    bool one_tile = rows_of(k, g->super).tiles <= 1; /* slivers are used once: nothing to gain from short ones */
    g->kc = pieces <= 1 || one_tile ? deep : round_up(ceil_div(deep, pieces), k->chunk);
    g->threads = 2.0 * (double)g->M * (double)g->N * (double)g->K * (double)g->batch < WORTH_THREADS ? 1 : (int)least(omp_get_max_threads(), MAX_THREADS);
    g->across = g->threads > 1 && g->batch >= g->threads;
    g->a_bytes = (size_t)(round_up(g->super, k->unit) * deep * k->size);
    g->b_bytes = g->weight >= 0 ? 0 : packed_bytes(k, g->K, g->N);
    g->sums_bytes = (size_t)(k->mr * k->nr) * sizeof(float) * (size_t)(g->kc < deep ? task_tiles(g) * task_panels(g) : 1);
    return g;
}

void packed_free(Packed *g) { free(g); }

static size_t space(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

static int64_t few_panels(const Packed *g) { return most(1, FEW / (int64_t)panel_bytes(g->k, g->K)); }
static size_t panels_of(const Packed *g) { return space(panel_bytes(g->k, g->K) * (size_t)few_panels(g)); }

size_t packed_scratch(const Packed *g)
{
    size_t shared = space(g->a_bytes) + space(g->b_bytes);
    return (g->across ? shared * (size_t)g->threads : shared) + space(g->sums_bytes) * (size_t)g->threads + ALIGN;
}

/* ------------------------------------------------------------------ running */

/* One product of the batch, with its buffers. */
typedef struct Job {
    const Packed *g;
    ProductIn a, b;
    ProductOut out;
    char *packed_a, *packed_b;
    const char *weight; /* panels [first, end) of b */
    int64_t first, end;
    char *panels;       /* b is packed as tasks need it: all its panels, if they are kept, else room for few_panels of each thread */
    bool keep;
    int64_t row; /* first of the superblock */
    Rows rows;
    int64_t blocks, groups; /* tasks: blocks of tiles by groups of panels */
} Job;

static void lines_of(const void *data, DType t, int64_t at, int cols, bool written)
{
    const char *first = (const char *)data + at * (int64_t)dtype_size(t), *end = first + (int64_t)cols * (int64_t)dtype_size(t);
    for (const char *p = first; p < end; p += ALIGN) written ? __builtin_prefetch(p, 1, 3) : __builtin_prefetch(p, 0, 3);
}

/* What finish will touch is far away: rows of c and of the residual, fetched while the tile is computed. */
static void coming(const ProductOut *o, int64_t row, int64_t col, int rows, int cols)
{
    for (int64_t r = row; r < row + rows; r++) {
        lines_of(o->c, o->c_type, r * o->c_step + col, cols, true);
        if (o->residual) lines_of(o->residual, o->residual_type, r * o->residual_step + col, cols, false);
    }
}

static const char *panel_at(const Job *j, int64_t p) { return j->weight + panel_bytes(j->g->k, j->g->K) * (size_t)(p - j->first); }

/* What the panels behind [p0, p1) will be packed from, where its bytes lie side by side: a sliver's share of panel p's successor. NULL: nowhere. */
static const char *source_ahead(const Job *j, int64_t p, int64_t few, int64_t at)
{
    const Packed *g = j->g;
    if (!j->panels || j->b.rs != 1 || j->b.cs != g->K) return NULL;
    return (const char *)j->b.data + ((least(p + few, g->panels - 1)) * g->K + at) * g->k->nr * (int64_t)dtype_size(j->b.dtype);
}

/* Tiles [t0, t1) by panels [p0, p1). */
static void task(const Job *j, int64_t t0, int64_t t1, int64_t p0, int64_t p1, float *sums)
{
    const Packed *g = j->g;
    const ProductKernel *k = g->k;
    int64_t deep = padded_k(k, g->K), tile_size = k->mr * k->nr;
    size_t panel = panel_bytes(k, g->K);
    for (int64_t at = 0; at < deep; at += g->kc) {
        int64_t n = least(g->kc, g->K - at);
        bool last = at + g->kc >= deep;
        int64_t low = tile_at(&j->rows, t0 + 1) - tile_at(&j->rows, t0);
        const char *first = j->packed_a + (size_t)(tile_at(&j->rows, t0) * deep + low * at) * (size_t)k->size;
        bool source = source_ahead(j, p0, 0, 0) != NULL;
        int64_t size = source ? (int64_t)dtype_size(j->b.dtype) : k->size;
        int each = (int)ceil_div(g->kc * k->nr * size / ALIGN, t1 - t0);
        for (int64_t p = p0; p < p1; p++) {
            const char *b = panel_at(j, p) + (size_t)(at * k->nr * k->size);
            const char *ahead = source ? source_ahead(j, p, p1 - p0, at) : p + 1 < p1 ? b + panel : last ? panel_at(j, least(p1, j->end - 1)) : panel_at(j, p0) + (size_t)((at + g->kc) * k->nr * k->size);
            int cols = (int)least(k->nr, g->N - p * k->nr);
            for (int64_t t = t0; t < t1; t++, ahead += each * ALIGN) {
                int64_t row = tile_at(&j->rows, t), end = tile_at(&j->rows, t + 1), high = end - row;
                float *acc = g->kc < deep ? sums + ((p - p0) * (t1 - t0) + t - t0) * tile_size : sums;
                const char *a = j->packed_a + (size_t)(row * deep + high * at) * (size_t)k->size;
                const char *next = t + 1 < t1 ? a + (size_t)(high * deep) * (size_t)k->size : first + (p + 1 < p1 || last ? 0 : (size_t)(low * g->kc) * (size_t)k->size);
                if (last) coming(&j->out, j->row + row, p * k->nr, (int)high, cols);
                k->tile(&(ProductTile){acc, a, b, n, (int)high, cols, at > 0, each, ahead, next});
                if (last) k->finish(&j->out, acc, j->row + row, p * k->nr, (int)(least(end, j->rows.rows) - row), cols);
            }
        }
    }
}

static void pack_rows(const Job *j, int64_t tile)
{
    const Packed *g = j->g;
    int64_t row = tile_at(&j->rows, tile), end = tile_at(&j->rows, tile + 1), deep = padded_k(g->k, g->K);
    g->k->pack_a(j->packed_a + (size_t)(row * deep * g->k->size), &j->a, j->row + row, (int)(least(end, j->rows.rows) - row), g->K);
}

/* How a superblock is cut: enough tasks for the threads, a multiple of them where panels allow. */
static void cut(Job *j, int threads)
{
    const Packed *g = j->g;
    j->groups = least(round_up(ceil_div(g->panels, task_panels(g)), threads), g->panels);
    j->blocks = most(ceil_div(j->rows.tiles, task_tiles(g)), least(ceil_div(threads, j->groups), j->rows.tiles));
}

static void meet(int threads)
{
    if (threads > 1) {
#pragma omp barrier
    }
}

/* Tasks [i, last), their panels packed here, once for all their blocks of tiles. */
static void pack_and_multiply(Job *j, int64_t i, int64_t last, float *sums)
{
    const Packed *g = j->g;
    int64_t few = few_panels(g);
    while (i < last) {
        int64_t x = i / j->blocks, y0 = i % j->blocks, y1 = least(j->blocks, y0 + last - i), end = g->panels * (x + 1) / j->groups;
        for (int64_t p0 = g->panels * x / j->groups, p1; p0 < end; p0 = p1) {
            p1 = least(p0 + few, end);
            if (!j->keep) j->first = p0, j->end = p1;
            for (int64_t p = p0; p < p1; p++) g->k->pack_b(j->panels + panel_bytes(g->k, g->K) * (size_t)(p - j->first), &j->b, p, g->K, g->N);
            for (int64_t y = y0; y < y1; y++) task(j, j->rows.tiles * y / j->blocks, j->rows.tiles * (y + 1) / j->blocks, p0, p1, sums);
        }
        i += y1 - y0;
    }
}

/* What thread `self` of `threads` does; all come here. */
static void share(Job j, int self, int threads, float *sums)
{
    const Packed *g = j.g;
    const ProductKernel *k = g->k;
    if (k->begin) k->begin();
    if (j.panels && !j.keep) j.weight = j.panels += panels_of(g) * (size_t)self;
    if (j.weight == j.packed_b)
        for (int64_t p = g->panels * self / threads; p < g->panels * (self + 1) / threads; p++)
            k->pack_b(j.packed_b + panel_bytes(k, g->K) * (size_t)p, &j.b, p, g->K, g->N);
    for (; j.row < g->M; j.row += g->super) {
        j.rows = rows_of(k, least(g->super, g->M - j.row));
        cut(&j, threads);
        for (int64_t t = j.rows.tiles * self / threads; t < j.rows.tiles * (self + 1) / threads; t++) pack_rows(&j, t);
        meet(threads);
        int64_t n = j.groups * j.blocks;
        if (j.panels) pack_and_multiply(&j, n * self / threads, n * (self + 1) / threads, sums);
        for (int64_t i = n * self / threads; i < n * (self + 1) / threads && !j.panels; i++) {
            int64_t x = i % j.groups, y = i / j.groups; /* a block of a stays in L2 while b passes */
            task(&j, j.rows.tiles * y / j.blocks, j.rows.tiles * (y + 1) / j.blocks, g->panels * x / j.groups, g->panels * (x + 1) / j.groups, sums);
        }
        if (j.row + g->super < g->M) meet(threads);
    }
    if (k->end) k->end();
}

static Job job_of(const Packed *g, const GemmBuffers *m, int64_t item, char *shared)
{
    const Weight *w = g->weight >= 0 ? &g->pool->w[g->weight] : NULL;
    Job j = {.g = g, .a = g->a, .b = g->b, .out = g->out, .packed_a = shared, .packed_b = shared + space(g->a_bytes), .end = g->panels};
    int64_t at[4] = {0};
    for (int i = g->dims - 1; i >= 0; i--) {
        for (int k = 0; k < 4; k++) at[k] += item % g->shape[i] * g->step[i][k];
        item /= g->shape[i];
    }
    j.weight = w ? w->data : j.packed_b;
    j.a.data = (const char *)m->a + at[0];
    j.b.data = w ? w->from : (const char *)m->b + at[1];
    j.out.c = (char *)m->c + at[2];
    j.out.bias = m->bias;
    j.out.residual = m->residual ? (const char *)m->residual + at[3] : NULL;
    return j;
}

/* Where a constant b is packed on the way, and whether it is kept there; *to is NULL where it is packed already, or packed here. */
static bool prepare_weight(const Packed *g, int threads, char **to, bool *keeps, Err *err)
{
    Weight *w = g->weight >= 0 ? &g->pool->w[g->weight] : NULL;
    bool way = g->M <= g->super && g->batch == 1, first = w && !w->used;
    *to = NULL;
    if (!w || w->data) return true;
    w->used = true;
    *keeps = !way || !first;
    pages_soon(w->from, (size_t)((w->K - 1) * w->rs + (w->N - 1) * w->cs + 1) * dtype_size(w->dtype));
    TRY(*keeps ? keep(g->pool, w, err) : panels_for(g->pool, panels_of(g) * (size_t)threads, err));
    Job j = {.g = g, .rows = rows_of(g->k, g->M)};
    cut(&j, threads);
    if (!*keeps) *to = g->pool->panels;
    else if (way && (threads == 1 || j.blocks == 1)) *to = (char *)(uintptr_t)w->data; /* else two threads would write one panel */
    else {
        Tensor b = plain(w);
        packed_pack(g->k, (void *)(uintptr_t)w->data, &b, w->rounded, omp_get_max_threads());
    }
    return true;
}

bool packed_run(const Packed *g, const GemmBuffers *m, void *scratch, Err *err)
{
    size_t shared = space(g->a_bytes) + space(g->b_bytes), sums = space(g->sums_bytes);
    char *base = (char *)(((uintptr_t)scratch + ALIGN - 1) / ALIGN * ALIGN), *own = base + (g->across ? shared * (size_t)g->threads : shared);
    int threads = (int)least(g->threads, omp_get_max_threads());
    char *panels;
    bool keeps = false;
    TRY(prepare_weight(g, threads, &panels, &keeps, err));
    if (g->across) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int64_t i = 0; i < g->batch; i++) {
            size_t self = (size_t)omp_get_thread_num();
            share(job_of(g, m, i, base + shared * self), 0, 1, (float *)(own + sums * self));
        }
        return true;
    }
    for (int64_t i = 0; i < g->batch; i++) {
        Job j = job_of(g, m, i, base);
        j.panels = panels;
        j.keep = keeps;
        if (threads == 1) share(j, 0, 1, (float *)own);
        else {
#pragma omp parallel num_threads(threads)
            share(j, omp_get_thread_num(), omp_get_num_threads(), (float *)(own + sums * (size_t)omp_get_thread_num()));
        }
    }
    return true;
}
