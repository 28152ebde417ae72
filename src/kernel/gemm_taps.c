/* Convolutions as sums over taps of products, by the tiles of kernel/conv.h: any window, stride, dilation, padding and
 * layout of the picture, one to three axes, groups of some channels, transposed ones.
 *
 * A transposed convolution is one for each place of its outputs modulo the stride (gemm_axes.h); they and groups are
 * the parts of a convolution.
 *
 * Where a picture has its channels innermost, in the kernel's type, and no tap that is multiplied leaves it
 * (gemm_regions.c), its pixels are read where they are. Else the pixels that a block of outputs sees are copied to a
 * strip first, zeros around the picture: cells of all channels of a pixel, or, where channels are few and a window's
 * row is not a line of such cells, of those that one column of a window sees (COLUMNS) or all of a window (WINDOWS;
 * where windows lie side by side). Blocks go to threads; each value is summed by one of them, all of it in one order,
 * so that neither threads nor blocks change a bit.
 */
#include <string.h>
#include "base/map.h"
#include "base/mem.h"
#include "base/pages.h"
#include "base/vec.h"
#include "kernel/gemm_taps.h"
#include "team/team.h"

enum { HUGE = 2 << 20, WORTH_THREADS = 1 << 20, MAX_THREADS = 1024 };
/* bytes of a strip that is wanted; outputs of a block that is read in place; outputs for which a block may have more
 * bytes, for each block reads all weights */
enum { STRIP = 320 << 10, BLOCK = 288, A_BLOCK = 320 << 10, APART = 2048 };
enum { MANY = 128, MORE = 768 << 10, STRIPS = 1 << 20 }; /* STRIPS: of all parts that take turns */

/* ------------------------------------------------------------------ weights */

TapWeights *tap_weights_create(Err *err)
{
    TapWeights *p = mem_zeroed(1, sizeof *p);
    if (!p) oom(err);
    return p;
}

void tap_weights_free(TapWeights *p)
{
    for (int i = 0; p && i < p->n; i++) mem_free(p->w[i].data);
    if (p) {
        lookup_free(&p->by_place);
        mem_free(p->w);
    }
    mem_free(p);
}

size_t tap_weights_bytes(const TapWeights *p) { return p->bytes; }

static size_t weight_bytes(const TapWeight *w) { return (size_t)(panels_of(w) * panel_bytes(w)); }

enum { SOME = 32, WIDEST = 64 }; /* SOME: elements of K whose taps, which lie side by side, are taken before the next */

/* Columns of several places, [n][cols]: those of a channel, which follow each other in memory, at a time. */
static void unfold(const TapWeight *w, void *to, const ProductIn *from, int64_t n, int64_t col, int64_t cols)
{
    enum { AHEAD = 8 };
    const uint32_t *f = from->data;
    const uint16_t *h = from->data;
    int64_t size = (int64_t)dtype_size(w->dtype);
    for (int64_t k = 0; k < n; k++)
        for (int64_t c = 0; c < w->fold; c++) {
            int64_t place = col > c ? ceil_div(col - c, w->fold) : 0,
                    at = k * w->rs + c * w->cs + place * w->fold_apart;
            __builtin_prefetch((const char *)from->data + (at + AHEAD * w->rs) * size, 0, 3);
            for (int64_t j = place * w->fold + c - col; j < cols; j += w->fold, at += w->fold_apart)
                if (size == 4) ((uint32_t *)to)[k * cols + j] = f[at];
                else ((uint16_t *)to)[k * cols + j] = h[at];
        }
}

static int64_t tap_at(const TapWeight *w, int64_t t)
{
    return t / (w->n[1] * w->n[2]) * w->apart[0] + t / w->n[2] % w->n[1] * w->apart[1] + t % w->n[2] * w->apart[2];
}

/* All taps of a panel at once, where they lie within a line. False: they do not. */
static bool pack_taps(const TapWeight *w, const void *from, char *to, int64_t col, int cols)
{
    int at[CONV_TAPS];
    int64_t taps = taps_of(w), n = 0;
    for (; n < taps && n < CONV_TAPS && tap_at(w, n) >= 0 && tap_at(w, n) < CONV_TAPS; n++) at[n] = (int)tap_at(w, n);
    if (!w->kernel->pack_taps || w->fold || w->dtype != DT_F32 || n < taps || taps < 2) return false;
    ProductIn in = {.data = from, .dtype = w->dtype, .rs = w->rs, .cs = w->cs};
    w->kernel->pack_taps(to, tap_bytes(w), &in, at, (int)taps, w->K, col, cols, w->kernel->width[w->width]);
    return true;
}

void tap_pack_panel(const TapWeight *w, const void *from, char *to, int64_t panel)
{
    int width = w->kernel->width[w->width], cols = (int)least(width, w->N - panel * width);
    int64_t taps = taps_of(w), each = tap_bytes(w), col = panel * width, some = taps > 1 || w->fold ? SOME : w->K;
    uint32_t part[SOME * WIDEST];
    if (pack_taps(w, from, to, col, cols)) return;
    for (int64_t k = 0; k < w->K; k += some)
        for (int64_t t = 0; t < taps; t++) {
            int64_t at = tap_at(w, t) + k * w->rs;
            ProductIn in = {.data = (const char *)from + at * (int64_t)dtype_size(w->dtype),
                            .dtype = w->dtype,
                            .rs = w->rs,
                            .cs = w->cs};
            if (w->fold) {
                unfold(w, part, &in, least(some, w->K - k), col, cols);
                in = (ProductIn){.data = part, .dtype = w->dtype, .rs = cols, .cs = 1};
            }
            w->kernel->pack(to + t * each + k / w->kernel->per_word * width * 4, &in, least(some, w->K - k),
                            w->fold ? 0 : col, cols, width);
        }
}

static bool alike(const TapWeight *a, const TapWeight *b)
{
    return a->from == b->from && a->kernel == b->kernel && a->dtype == b->dtype && a->width == b->width &&
           a->K == b->K && a->N == b->N && a->rs == b->rs && a->cs == b->cs && a->fold == b->fold &&
           a->fold_apart == b->fold_apart && !memcmp(a->n, b->n, sizeof a->n) &&
           !memcmp(a->apart, b->apart, sizeof a->apart);
}

static uint64_t hash_of(const TapWeight *w)
{
    int64_t all[6 + 2 * AXES] = {(int64_t)(uintptr_t)w->from, w->width, w->K, w->N, w->rs, w->cs};
    memcpy(all + 6, w->n, sizeof w->n);
    memcpy(all + 6 + AXES, w->apart, sizeof w->apart);
    return hash_keyed(all, sizeof all);
}

/* Its number in the pool; -1 when out of memory. */
static int weight_number(TapWeights *p, const TapWeight *w, Err *err)
{
    size_t tried = 0;
    uint64_t h = hash_of(w);
    int64_t i;
    while ((i = lookup_next(&p->by_place, h, &tried)) >= 0)
        if (alike(&p->w[i], w)) return (int)i;
    TapWeight *grown = vec_grow(p->w, p->n, sizeof *grown);
    if (grown) p->w = grown;
    if (!grown || !lookup_add(&p->by_place, h, (size_t)p->n)) {
        oom(err);
        return -1;
    }
    p->w[p->n] = *w;
    return p->n++;
}

static size_t plain_bytes(const TapWeight *w)
{
    int64_t each = w->fold ? w->fold : w->N,
            last = (w->K - 1) * w->rs + (each - 1) * w->cs + (w->N / each - 1) * w->fold_apart;
    for (int i = 0; i < AXES; i++) last += (w->n[i] - 1) * most(w->apart[i], 0);
    return (size_t)(last + 1) * dtype_size(w->dtype);
}

bool tap_keep(Taps *g, TapWeight *w, Err *err)
{
    size_t n = weight_bytes(w), align = n >= HUGE ? HUGE : ALIGN;
    if (w->data || !n) return true;
    w->data = mem_aligned(align, (n + align - 1) / align * align);
    if (!w->data) return fail(err, E_LIMIT, "out of memory: %zu bytes of packed weights", n);
    if (n >= HUGE) pages_huge(w->data, n);
    int64_t panels = panels_of(w);
#pragma omp parallel for num_threads(g->threads) if (g->threads > 1)
    for (int64_t i = 0; i < panels; i++) tap_pack_panel(w, w->from, w->data + i * panel_bytes(w), i);
    g->pool->bytes += n;
    packed_let_go(g->packed, w->from, plain_bytes(w));
    return true;
}

/* ------------------------------------------------------------------ geometry */

/* Whether windows lie side by side along axis 2, as those of patches. */
static bool side_by_side(const Axis *a) { return a->gap == 1 && a->step >= a->taps; }

static Cells cells_of(const Taps *g, const Part *p, bool folds)
{
    bool words = g->C % g->k->per_word == 0 && g->type == (g->k->size == 2 ? DT_BF16 : DT_F32);
    bool innermost = g->xc == 1 || g->C == 1, within = tap_regions_within(p),
         far = g->xs[2] * p->a[2].step * g->k->size % 4096 != 0; /* rows of a tile would share a few lines of L1 */
    if (folds && (g->C < FEW_CHANNELS || !innermost) && side_by_side(&p->a[2]) && g->xs[2] == 1) return WINDOWS;
    bool line = words && p->a[2].gap == 1; /* pixels of a window's row follow each other in a strip */
    if (folds && g->C < FEW_CHANNELS && !line) return COLUMNS;
    return innermost && words && within && far ? IN_PLACE : PIXELS;
}

/* Rows of outputs whose strip has so many bytes. */
static int64_t rows_in(const Part *p, int64_t strip, int64_t high, int64_t step)
{
    int64_t rows = strip / (p->cell * p->pitch * p->a[0].taps + 1);
    return rows > high ? (rows - high) / step + 1 : 1;
}

/* Blocks of outputs: a strip that stays in L2; half the columns where rows are long. */
static void block_of(const Taps *g, Part *p)
{
    const Axis *r = &p->a[1], *c = &p->a[2];
    p->rows = r->out, p->cols = c->out;
    if (p->cells == IN_PLACE) {
        int64_t seen = least(r->step, r->taps) * least(c->step, c->taps), /* pixels that no other output sees */
            each = most(1, seen * g->C * g->k->size), outputs = least(BLOCK, A_BLOCK / each);
        if (outputs < MANY) outputs = most(32, least(MANY, MORE / each));
        p->cols = least(c->out, outputs);
        p->rows = most(1, least(r->out, outputs / p->cols));
        return;
    }
    int64_t high = p->cells == PIXELS ? span(r) : 1, row_step = p->cells == PIXELS ? r->step : 1, rows;
    for (;; p->cols = (p->cols + 1) / 2) {
        p->pitch = p->cells == WINDOWS ? p->cols : (p->cols - 1) * c->step + span(c);
        rows = rows_in(p, STRIP, high, row_step);
        if (rows > 3 || rows >= r->out || p->cols <= 32) break;
    }
    if (rows * p->cols < MANY) rows = most(rows, least(ceil_div(MANY, p->cols), rows_in(p, MORE, high, row_step)));
    p->rows = least(r->out, rows);
    p->rows = ceil_div(r->out, ceil_div(r->out, p->rows));
    p->cols = ceil_div(c->out, ceil_div(c->out, p->cols));
    p->pitch = p->cells == WINDOWS ? p->cols : (p->cols - 1) * c->step + span(c);
    p->slab = ((p->rows - 1) * row_step + high) * p->pitch;
    p->strip = (size_t)(p->slab * p->a[0].taps * p->cell);
}

/* ------------------------------------------------------------------ who does what */

/* A part's units of work are panels of blocks, the panels of a block one after the other. Threads take ranges of them
 * that weigh about the same: a unit weighs as much as it has outputs times vectors. */

/* Outputs of all blocks before block `at`. */
static int64_t outputs_before(const Part *p, int64_t at)
{
    int64_t high = p->a[1].out, wide = p->a[2].out, each = p->row_cuts * p->col_cuts, r = at % each / p->col_cuts,
            row = cut_at(high, r, p->row_cuts), rows = cut_at(high, r + 1, p->row_cuts) - row;
    return at / each * high * wide + row * wide + rows * cut_at(wide, at % p->col_cuts, p->col_cuts);
}

/* Vectors of a panel, and of all panels. */
static void vectors_of(const Part *p, int64_t *panel, int64_t *all)
{
    const ConvKernel *k = p->w.kernel;
    int64_t width = k->width[p->w.width], vector = conv_vector(k);
    *panel = width / vector;
    *all = p->w.N / width * *panel + ceil_div(p->w.N % width, vector);
}

static int64_t weight_before(const Part *p, int64_t unit)
{
    int64_t panels = panels_of(&p->w), panel, all, at = unit / panels, before = outputs_before(p, at);
    vectors_of(p, &panel, &all);
    int64_t more = unit % panels ? (outputs_before(p, at + 1) - before) * (unit % panels) * panel : 0;
    return before * all + more;
}

static int64_t blocks_of(const Taps *g, const Part *p) { return g->batch * p->a[0].out * p->row_cuts * p->col_cuts; }

int64_t tap_share_at(const Taps *g, const Part *p, int64_t self, int64_t shares)
{
    int64_t panels = panels_of(&p->w), panel, all, low = 0, end = blocks_of(g, p);
    if (self == shares) return end * panels;
    vectors_of(p, &panel, &all);
    int64_t wanted = outputs_before(p, end) * all / shares * self;
    while (end - low > 1) { /* the block in which so much is done */
        int64_t middle = (low + end) / 2;
        if (outputs_before(p, middle) * all <= wanted) low = middle;
        else end = middle;
    }
    int64_t before = outputs_before(p, low), outputs = outputs_before(p, low + 1) - before;
    int64_t vectors = (wanted - before * all) / most(1, outputs);
    return low * panels + least(panels, (vectors + panel / 2) / panel);
}

/* The largest share of `shares`, in thousandths of what an even one is. */
static int64_t largest_share(const Taps *g, const Part *p, int64_t shares)
{
    int64_t largest = 0, from = 0, all = weight_before(p, blocks_of(g, p) * panels_of(&p->w));
    for (int64_t i = 0; i < shares; i++) {
        int64_t to = weight_before(p, tap_share_at(g, p, i + 1, shares));
        largest = most(largest, to - from);
        from = to;
    }
    return largest * 1000 * shares / most(1, all);
}

/* Cuts blocks smaller where that makes the threads' shares more even, and costs no reading of weights once more. */
static void cut(const Taps *g, Part *p)
{
    enum { EVEN = 1030, WORTH = 20 };
    const Axis *r = &p->a[1], *c = &p->a[2];
    p->row_cuts = ceil_div(r->out, p->rows), p->col_cuts = ceil_div(c->out, p->cols);
    if (g->threads == 1) return;
    int64_t best = p->row_cuts, last = least(r->out, best + g->threads), least_share = INT64_MAX;
    if (weight_bytes(&p->w) > B_WHOLE) last = most(best, least(last, r->out * c->out / (MANY * p->col_cuts)));
    for (int64_t n = best; n <= last && least_share > EVEN; n++) {
        p->row_cuts = n;
        int64_t share = largest_share(g, p, g->threads);
        if (share + WORTH < least_share) best = n, least_share = share;
    }
    p->row_cuts = best;
}

static bool make_part(Taps *g, const GemmConv *d, int64_t group, const int64_t *place, Part *p, bool *none, Err *err)
{
    const Tensor *w = d->w;
    int64_t first[AXES], step[AXES], base = 0, n[AXES];
    *p = (Part){.x_at = group * g->C * g->xc, .y_at = group * g->O * g->yc};
    *none = false;
    for (int i = 0; i < AXES; i++)
        if (!axis_of(d, i, place[i], &p->a[i], &first[i], &step[i])) return *none = true;
    TapWeight tw = {.kernel = g->k, .dtype = w->dtype, .width = conv_width(g->k, g->O), .N = g->O};
    int64_t rows = w->shape[0] / d->groups, wc = d->transposed ? w->stride[0] : w->stride[1];
    base = group * rows * w->stride[0];
    tw.cs = d->transposed ? w->stride[1] : w->stride[0];
    tw.fold = g->fold, tw.fold_apart = g->fold_apart;
    for (int i = 0; i < AXES; i++) {
        int at = i - (AXES - d->spatial);
        n[i] = p->a[i].taps;
        tw.apart[i] = at < 0 ? 0 : w->stride[2 + at] * step[i];
        if (at >= 0) base += first[i] * w->stride[2 + at];
    }
    p->K = g->C, p->words = ceil_div(p->K, g->k->per_word);
    tw.rs = wc;
    p->w = tw;
    memcpy(p->w.n, n, sizeof n);
    /* a window's elements follow each other */
    bool whole = !d->transposed && tensor_contiguous(w) && (d->spatial < AXES || w->shape[2] == 1);
    p->split = tap_split(p);
    p->cells = cells_of(g, p, whole);
    if (p->cells >= COLUMNS) {
        p->split = (Split){false, false};
        p->K *= n[1], tw.rs = w->stride[w->rank - 1] * w->shape[w->rank - 1], n[1] = 1;
    }
    if (p->cells == WINDOWS) p->K *= n[2], tw.rs = w->stride[w->rank - 1], n[2] = 1;
    p->words = ceil_div(p->K, g->k->per_word);
    p->cell = p->words * 4;
    if (p->cell % APART == 0) p->cell += ALIGN;
    tw.K = p->K;
    memcpy(tw.n, n, sizeof n);
    base *= (int64_t)dtype_size(w->dtype);
    tw.from = g->constant ? (const char *)w->data + base : (const void *)(uintptr_t)base;
    p->w = tw;
    block_of(g, p);
    cut(g, p);
    TRY(tap_regions(g, p, err));
    p->weight = g->constant ? weight_number(g->pool, &tw, err) : -1;
    TRY(!g->constant || p->weight >= 0);
    p->passing = !g->constant && blocks_of(g, p) == 1;
    if (p->passing) g->panel = (size_t)most((int64_t)g->panel, panel_bytes(&tw));
    else if (!g->constant) g->changing = (size_t)most((int64_t)g->changing, (int64_t)weight_bytes(&tw));
    if (p->strip > g->strip) g->strip = p->strip;
    return true;
}

void tap_conv_free(Taps *g)
{
    for (int i = 0; g && i < g->parts; i++) mem_free(g->part[i].region), mem_free(g->part[i].jumps);
    if (g) mem_free(g->part);
    mem_free(g);
}

/* A convolution said more simply, and the tensors and steps of it that are not the caller's. */
typedef struct Simpler {
    GemmConv d;
    Tensor x, w, y;
    int64_t stride[AXES];
} Simpler;

/* Along axes whose window is one pixel, the pixels that a step leaves out are not there. */
static void leave_out(Simpler *s)
{
    for (int i = 0; i < s->d.spatial && !s->d.transposed && s->x.stride[1] == 1; i++) {
        int64_t step = s->stride[i], out = s->y.shape[2 + i];
        if (s->w.shape[2 + i] > 1 || s->d.padding[i] || step == 1 || (out - 1) * step >= s->x.shape[2 + i]) continue;
        s->x.shape[2 + i] = out, s->x.stride[2 + i] *= step, s->stride[i] = 1;
    }
}

/* Outputs of a transposed convolution whose windows lie side by side are columns, those along the last axis together:
 * where channels are few, they fill vectors. How many columns a place has; 0: left as it is. */
static int64_t fold(Simpler *s, const ConvKernel *k, int64_t *apart)
{
    int last = s->w.rank - 1, at = s->d.spatial - 1, vector = conv_vector(k);
    int64_t O = s->y.shape[1], n = s->w.shape[last];
    bool taken = s->d.transposed && s->d.groups == 1 && n > 1 && s->stride[at] == n && s->d.dilation[at] == 1 &&
                 !s->d.padding[at] && s->y.shape[last] == n * s->x.shape[last] && s->y.stride[last] == O;
    if (!taken || ceil_div(O, vector) * n == ceil_div(O * n, vector)) return 0;
    *apart = s->w.stride[last];
    s->w.shape[1] *= n, s->w.shape[last] = 1;
    s->y.shape[1] *= n, s->y.stride[1] = 1, s->y.shape[last] /= n, s->y.stride[last] *= n;
    s->stride[at] = 1;
    return O;
}

static void simplify(Simpler *s, const GemmConv *d)
{
    *s = (Simpler){.d = *d, .x = *d->x, .w = *d->w, .y = *d->y};
    memcpy(s->stride, d->stride, (size_t)d->spatial * sizeof *s->stride);
    s->d.x = &s->x, s->d.w = &s->w, s->d.y = &s->y, s->d.stride = s->stride;
    leave_out(s);
}

Taps *tap_conv(TapWeights *pool, PackedWeights *packed, const Kernels *kernels, const GemmConv *of, Err *err)
{
    const ConvKernel *k = of->x->dtype == DT_BF16 && kernels->conv.bf16.size ? &kernels->conv.bf16 : &kernels->conv.f32;
    if (!k->size || !tensor_channels_last(of->y) || tensor_numel(of->x) == 0 || tensor_numel(of->w) == 0 ||
        tensor_numel(of->y) == 0)
        return NULL;
    Simpler s;
    int64_t apart = 0;
    simplify(&s, of);
    int64_t columns = fold(&s, k, &apart);
    const GemmConv *d = &s.d;
    int64_t parts = places_of(d, MOST_PARTS) * d->groups;
    if (parts > MOST_PARTS) return NULL;
    Taps *g = mem_zeroed(1, sizeof *g);
    if (!g || !(g->part = mem_zeroed((size_t)parts, sizeof *g->part))) {
        mem_free(g);
        return oom(err), NULL;
    }
    g->pool = pool, g->packed = packed, g->k = k, g->all = &kernels->conv;
    g->fold = columns, g->fold_apart = apart;
    g->batch = d->x->shape[0], g->C = d->x->shape[1] / d->groups, g->O = d->y->shape[1] / d->groups;
    g->outputs = tensor_numel(d->y) / d->y->shape[1];
    strides_of(d->x, d->spatial, g->xs);
    strides_of(d->y, d->spatial, g->ys);
    g->xc = d->x->stride[1], g->xn = d->x->stride[0], g->yc = d->y->shape[1] == 1 ? 1 : d->y->stride[1];
    g->yn = d->y->stride[0];
    g->type = d->x->dtype, g->bias_type = d->bias ? d->bias->dtype : DT_NONE;
    g->sum = d->sum, g->constant = d->w_constant, g->act = (int)d->act;
    double work = 2.0 * (double)tensor_numel(d->w) *
                  (double)(d->transposed ? tensor_numel(d->x) / d->x->shape[1] : g->outputs);
    g->threads = work < WORTH_THREADS ? 1 : (int)least(team_width(), MAX_THREADS);
    for (int64_t i = 0; i < parts; i++) {
        int64_t place[AXES];
        bool none;
        place_of(d, i / d->groups, place);
        if (make_part(g, d, i % d->groups, place, &g->part[g->parts], &none, err)) g->parts += !none;
        else { /* what it has already goes, too */
            g->parts++;
            return tap_conv_free(g), NULL;
        }
    }
    size_t sum = 0;
    g->together = g->parts > 1;
    for (int i = 0; i < g->parts; i++) {
        g->together &= g->part[i].passing;
        sum += space(g->part[i].strip);
    }
    g->together &= sum <= STRIPS;
    g->strips = g->together ? sum : space(g->strip);
    return g;
}

size_t tap_conv_scratch(const Taps *g)
{
    return space(g->changing) + strips(g) + space(bias_bytes(g)) + space(g->panel) * (size_t)g->threads + ALIGN;
}
