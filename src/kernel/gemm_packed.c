/* Our own matrix products: blocking and threads around the tiles of kernel/product.h.
 *
 * All of a's rows are packed first, a superblock of them at a time (where the kernel takes them as they are, and in
 * convolutions, whose rows gemm_conv.c makes, nothing is packed); then tasks of some tiles by some panels go to the
 * threads. Within a task, panels are outside: a sliver of a panel (kc x nr, in L1, with AVX2 and on Zen 4 in L2) meets
 * every tile of the task (in L2), and the next sliver is fetched meanwhile. b is read once a superblock. Sums that K
 * has cut wait in a buffer of the thread. (Goto and van de Geijn 2008, with the panel of b inside.)
 *
 * Weights are packed by gemm_weights.c; gemm_tasks.c runs what is planned here.
 */
#include <assert.h>
#include <string.h>
#include "base/mem.h"
#include "kernel/gemm_packed.h"
#include "team/team.h"

/* WORTH_THREADS, WORTH_BYTES: floating-point operations, bytes of b, some 10 us of a core. A_THREAD: bytes of a's rows
 * for each thread, up to which a superblock has more than its rows. TILES_*: from these sizes on packing both operands
 * is little beside what float32 gains by tiles; KEPT_M: packing a alone, b being kept; CONV_N: columns of all taps, for
 * which a pixel is packed once. A_TILE, B_WHOLE: bytes of a that L1 nearly holds, of b that L2 does: then a tile meets
 * all panels before the next. A_PASSES: bytes of a that L2 nearly holds: all of it meets few panels at a time where
 * they are packed on the way. B_NEAR: of b that L1 keeps beside a tile. IN_PLACE: columns up to which rows of a that
 * are spread stay there. */
enum { SUPERBLOCK = 1024, MAX_THREADS = 1024, WORTH_THREADS = 1 << 20, WORTH_BYTES = 256 << 10, A_THREAD = 1 << 20 };
enum { TILES_M = 768, TILES_N = 128, TILES_K = 64, KEPT_M = 64, CONV_N = 256 };
enum { MOST_PLACES = 64, IN_PLACE = 768, A_TILE = 56 << 10, A_PASSES = 2 << 20 };
enum { B_WHOLE = 1280 << 10, B_NEAR = 24 << 10 };

static ProductIn operand(const Tensor *t, bool rounded)
{
    return (ProductIn){.data = t->data,
                       .dtype = t->dtype,
                       .rs = t->stride[t->rank - 2],
                       .cs = t->stride[t->rank - 1],
                       .rounded = rounded && t->dtype == DT_F32};
}

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

/* Blocks, threads and buffers of a product whose sizes and operands are known. Rows of a superblock: `super`. */
static Packed *blocked(Packed *g, PackedWeights *p, int64_t super, bool b_constant, Err *err)
{
    static const int64_t start[1] = {0};
    const ProductKernel *k = g->k;
    int64_t size = product_size_a(k);
    g->pool = p;
    g->weight = b_constant ? packed_weight_find(p, &g->b) : -1;
    if (b_constant && g->weight < 0 && (g->weight = packed_weight_add(p, &g->b, NULL, err)) < 0) {
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
    if (!g->conv && g->M > super) { /* equal ones: each reads all of b */
        int64_t blocks = (2 * g->M + super) / (2 * super);
        g->super = round_up(ceil_div(g->M, blocks), k->mr);
    }
    bool as_packed = size == (g->a.dtype == DT_BF16 ? 2 : 4) && !g->a.rounded; /* parts of a float are 6 bytes */
    bool spread = rows_spread(g->a.rs * size, k->in_place ? k->unit : k->mr);
    bool stays = k->in_place ? spread || g->N <= IN_PLACE || g->M <= k->mr : spread && g->N <= IN_PLACE;
    g->direct = g->conv || (stays && g->a.cs == 1 && g->K == run && as_packed);
    g->lined = k->line_a && !g->conv && g->a.cs == 1 && g->M > PRODUCT_FEW;
    g->direct |= g->lined;
    g->row_step = g->conv ? g->conv->cell : g->lined ? g->deep * size + ALIGN : g->a.rs * size;
    g->jump = g->conv ? g->conv->jump : start;
    /* Taps of a convolution read the same cells, which stay in L1 then: fewer sums wait. */
    int64_t pieces = ceil_div(g->deep, k->kc * (g->conv && k->in_place ? 2 : 1));
    bool one_tile = rows_of(k, g->super).tiles <= 1; /* slivers are used once: nothing to gain from short ones */
    int64_t seen = g->conv ? g->conv->C * g->conv->kh * (k->mr + g->conv->kw)
                           : g->deep * k->mr; /* elements of a that a tile reads */
    g->rows_first = (k->in_place || (g->conv && k->cell_a)) && g->direct && seen * size <= A_TILE &&
                    g->deep * g->N * k->size <= B_WHOLE && g->M >= 8 * k->mr;
    g->widens = k->widen && (g->direct || g->M > PRODUCT_FEW);
    one_tile &= !g->widens; /* a sliver's floats are to stay in L1 */
    bool whole = pieces <= 1 || one_tile || g->rows_first;
    g->kc = whole ? g->deep : round_up(ceil_div(g->deep, pieces), k->chunk);
    if (g->rows_first) g->once = g->deep * g->N * k->size > B_NEAR ? PRODUCT_B : PRODUCT_NEITHER;
    else g->once = !whole && !g->conv ? PRODUCT_A : PRODUCT_NEITHER;
    int64_t packed_rows = round_up(g->direct ? least(k->mr, g->super) : g->super, k->unit);
    g->a_bytes = (size_t)(g->conv    ? g->conv->cells * g->conv->planes * g->conv->cell
                          : g->lined ? g->super * g->row_step
                                     : packed_rows * g->deep * size);
    g->b_bytes = g->weight >= 0 ? 0 : packed_bytes(k, g->K, g->N) * (size_t)taps;
    bool near = round_up(g->M, k->unit) * g->deep * size <= A_PASSES;
    g->passing = g->b_bytes > B_WHOLE && g->M <= g->super && !g->conv && near;
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
    Weight plain = packed_weight_of(&kernels->product.f32, d->b, false);
    int i = d->b_constant ? packed_weight_find(p, &plain) : -1;
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
    g->b = packed_weight_of(k, d->b, rounded);
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

/* c = a b with d's ending; rows of a are pixels. */
static Packed *product_of_pixels(PackedWeights *p, const Kernels *kernels, const GemmConv *d, const Tensor *a,
                                 const Tensor *b, const Tensor *c, Err *err)
{
    GemmMatmul m = {.a = a,
                    .b = b,
                    .c = c,
                    .bias = d->bias,
                    .residual = d->sum ? c : NULL,
                    .b_constant = d->w_constant,
                    .act_last = d->sum,
                    .act = d->act,
                    .least_rows = a->shape[0] / most(1, d->x->shape[0])};
    return packed_matmul(p, kernels, &m, err);
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
    return product_of_pixels(p, kernels, d, &a, &b, &c, err);
}

bool packed_places(const GemmConv *d)
{
    bool taken = d->transposed && d->groups == 1 && d->spatial <= 2 && tensor_channels_last(d->x) &&
                 tensor_channels_last(d->y) && tensor_numel(d->x);
    int64_t places = 1;
    for (int i = 0; i < d->spatial && taken; i++) {
        taken = d->w->shape[2 + i] == d->stride[i] && !d->padding[i] && d->dilation[i] == 1 &&
                d->y->shape[2 + i] == d->x->shape[2 + i] * d->stride[i] && d->stride[i] <= MOST_PLACES;
        places *= d->stride[i];
    }
    return taken && places <= MOST_PLACES;
}

Packed *packed_place(PackedWeights *p, const Kernels *kernels, const GemmConv *d, int64_t place, Err *err)
{
    const Tensor *w = d->w;
    int last = d->x->rank - 1;
    int64_t C = d->x->shape[1], O = d->y->shape[1], rows = tensor_numel(d->x) / C, across = d->stride[d->spatial - 1],
            W = d->x->shape[last], size = (int64_t)dtype_size(d->y->dtype), at[2] = {place / across, place % across};
    Tensor a = tensor_of(d->x->dtype, 2, (int64_t[]){rows, C}, NULL),
           b = tensor_of(w->dtype, 2, (int64_t[]){C, O}, NULL),
           c = tensor_of(d->y->dtype, 2, (int64_t[]){rows, O}, NULL);
    int64_t from = at[1] * w->stride[last] + (d->spatial > 1 ? at[0] * w->stride[2] : 0);
    b.data = (void *)((uintptr_t)w->data + (size_t)from * dtype_size(w->dtype));
    b.stride[0] = w->stride[0], b.stride[1] = w->stride[1];
    c.stride[0] = across * O;
    Packed *g = product_of_pixels(p, kernels, d, &a, &b, &c, err);
    if (!g) return NULL;
    g->line = W;
    g->line_step = W * (d->spatial > 1 ? d->stride[0] : 1);
    g->c_at = (size_t)((at[0] * W * across + at[1]) * O * size);
    g->b_at = (size_t)from * dtype_size(w->dtype);
    return g;
}

/* As by_tiles: a picture's outputs are its rows, and each tap multiplies them. */
const ProductKernel *packed_conv_kernel(const Kernels *k, const GemmConv *d)
{
    const ProductKernel *tiles = &k->product.f32_tiles;
    int64_t O = d->w->shape[0], taps = 1, pixels = 1;
    for (int i = 0; i < d->spatial; i++) taps *= d->w->shape[2 + i], pixels *= d->y->shape[2 + i];
    bool large = d->w->shape[1] >= TILES_K && O * taps >= CONV_N && pixels >= KEPT_M;
    return tiles->layout && d->w->dtype == DT_F32 && large ? tiles : packed_kernel(k, d->w, false);
}

Packed *packed_conv(PackedWeights *p, const Kernels *kernels, const GemmConv *d, Err *err)
{
    const ProductKernel *k = packed_conv_kernel(kernels, d);
    ConvRows rows;
    if (!conv_rows(&rows, d, kernels, k)) return NULL;
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
                    .rs = rows.patches   ? 1
                          : rows.stacked ? rows.kw
                                         : d->w->stride[1],
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
