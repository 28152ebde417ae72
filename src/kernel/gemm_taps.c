/* Convolutions as sums over taps of products, by the tiles of kernel/conv.h: any window, stride, dilation, padding and
 * layout of the picture, one to three axes, groups of some channels, transposed ones.
 *
 * A transposed convolution is one for each place of its outputs modulo the stride (gemm_axes.h); they and groups are
 * the parts of a convolution.
 *
 * Where a picture has its channels innermost, in the kernel's type, and no window leaves it, its pixels are read where
 * they are. Else the pixels that a block of outputs sees are copied to a strip first, zeros around the picture: cells
 * of all channels of a pixel, or, where channels are few, of those that one column of a window sees (COLUMNS) or all of
 * a window (WINDOWS; where windows lie side by side). Blocks go to threads; each value is summed by one of them, all of
 * it in one order, so that neither threads nor blocks change a bit.
 */
#include <string.h>
#include "base/mem.h"
#include "base/pages.h"
#include "base/vec.h"
#include "kernel/gemm_axes.h"
#include "team/team.h"

enum { ALIGN = 64, HUGE = 2 << 20, FEW_CHANNELS = 8, WORTH_THREADS = 1 << 20, MAX_THREADS = 1024 };
enum { MOST_PARTS = 256, MOST_ROWS = 16, LINES = 64 };
/* bytes of a strip that is wanted, of weights that stay in L2; outputs of a block that is read in place; outputs for
 * which a block may have more bytes, for each block reads all weights */
enum { STRIP = 320 << 10, B_WHOLE = 640 << 10, BLOCK = 288, A_BLOCK = 320 << 10, APART = 2048 };
enum { MANY = 128, MORE = 768 << 10, STRIPS = 1 << 20 }; /* STRIPS: of all parts that take turns */

typedef enum Cells { IN_PLACE, PIXELS, COLUMNS, WINDOWS } Cells;

/* Weights of a part, packed. */
typedef struct TapWeight {
    const void *from;
    const ConvKernel *kernel;
    DType dtype;
    int width; /* of kernel->width */
    int64_t K, N, rs, cs, n[AXES], apart[AXES];
    int64_t fold, fold_apart; /* columns of a place, from place to place; fold 0: all columns are cs apart */
    char *data;               /* NULL: not packed so far, or not constant */
} TapWeight;

typedef struct Part {
    Axis a[AXES];
    Cells cells;
    int64_t K, taps, words;    /* K elements, `words` words of each tap */
    int64_t cell, pitch, slab; /* bytes; cells of a row, of a slab (axis 0) of the strip */
    int64_t rows, cols;        /* outputs of a block at most, along axes 1 and 2 */
    int64_t row_cuts, col_cuts; /* blocks along them */
    int64_t *jump, x_at, y_at; /* bytes, by tap; elements: the group's first channels */
    size_t strip;              /* bytes */
    TapWeight w;               /* not constant: `from` is its offset in the weights */
    int weight;                /* constant: its number in the pool, else -1 */
    bool passing;              /* not constant, and used by one block: panels are packed as it comes to them */
} Part;

struct TapWeights {
    TapWeight *w;
    int n;
    size_t bytes;
};

struct Taps {
    TapWeights *pool;
    PackedWeights *packed; /* which knows the file that weights are mapped from */
    const ConvKernel *k;
    const ConvKernels *all;
    int64_t batch, C, O, outputs;               /* C, O of a group; outputs: what all images have */
    int64_t xs[AXES], xc, xn, ys[AXES], yc, yn; /* elements */
    int64_t fold, fold_apart; /* of weights */
    DType type, bias_type;
    bool sum, constant;
    int act, threads;
    Part *part;
    int parts;
    size_t strip, changing; /* bytes: the largest strip; packed weights that are not constant, or a panel of them */
    size_t panel, strips;   /* bytes: the largest panel of those that are packed on the way; a thread's strips */
    bool together;          /* all parts are passing: they take turns, panel by panel, and each has a strip */
};

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
    if (p) mem_free(p->w);
    mem_free(p);
}

size_t tap_weights_bytes(const TapWeights *p) { return p->bytes; }

static int64_t panels_of(const TapWeight *w) { return ceil_div(w->N, w->kernel->width[w->width]); }
static int64_t taps_of(const TapWeight *w) { return w->n[0] * w->n[1] * w->n[2]; }
static int64_t words_of(const TapWeight *w) { return ceil_div(w->K, w->kernel->per_word); }
static int64_t tap_bytes(const TapWeight *w) { return words_of(w) * w->kernel->width[w->width] * 4; }
static int64_t panel_bytes(const TapWeight *w) { return taps_of(w) * tap_bytes(w); }
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

/* To `to`, where the panel is to be. */
static void pack_panel(const TapWeight *w, const void *from, char *to, int64_t panel)
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

/* Its number in the pool; -1 when out of memory. */
static int weight_number(TapWeights *p, const TapWeight *w, Err *err)
{
    for (int i = 0; i < p->n; i++)
        if (alike(&p->w[i], w)) return i;
    TapWeight *grown = vec_grow(p->w, p->n, sizeof *grown);
    if (!grown) {
        oom(err);
        return -1;
    }
    p->w = grown;
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

/* Packed once, at the first run. */
static bool keep(Taps *g, TapWeight *w, Err *err)
{
    size_t n = weight_bytes(w), align = n >= HUGE ? HUGE : ALIGN;
    if (w->data || !n) return true;
    w->data = mem_aligned(align, (n + align - 1) / align * align);
    if (!w->data) return fail(err, E_LIMIT, "out of memory: %zu bytes of packed weights", n);
    if (n >= HUGE) pages_huge(w->data, n);
    int64_t panels = panels_of(w);
#pragma omp parallel for num_threads(g->threads) if (g->threads > 1)
    for (int64_t i = 0; i < panels; i++) pack_panel(w, w->from, w->data + i * panel_bytes(w), i);
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
    bool innermost = g->xc == 1 || g->C == 1, within = true, far = true;
    for (int i = 0; i < AXES; i++) within &= inside(&p->a[i]);
    far = g->xs[2] * p->a[2].step * g->k->size % 4096 != 0; /* rows of a tile would share a few lines of L1 */
    if (folds && (g->C < FEW_CHANNELS || !innermost) && side_by_side(&p->a[2]) && g->xs[2] == 1) return WINDOWS;
    if (folds && g->C < FEW_CHANNELS) return COLUMNS;
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
        int64_t each = most(1, g->C * g->k->size), outputs = least(BLOCK, A_BLOCK / each);
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
static int64_t cut_at(int64_t n, int64_t i, int64_t cuts) { return n * i / cuts; }

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

/* The unit that share `self` of `shares` begins with. */
static int64_t share_at(const Taps *g, const Part *p, int64_t self, int64_t shares)
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
        int64_t to = weight_before(p, share_at(g, p, i + 1, shares));
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

/* How far after a row's own place each tap is. */
static void jumps(const Taps *g, Part *p)
{
    int64_t n[AXES] = {p->a[0].taps, p->cells > PIXELS ? 1 : p->a[1].taps, p->cells == WINDOWS ? 1 : p->a[2].taps};
    int64_t i = 0, size = g->k->size;
    for (int64_t t0 = 0; t0 < n[0]; t0++)
        for (int64_t t1 = 0; t1 < n[1]; t1++)
            for (int64_t t2 = 0; t2 < n[2]; t2++) {
                const Axis *a = p->a;
                if (p->cells == IN_PLACE)
                    p->jump[i++] = ((a[0].low + t0 * a[0].gap) * g->xs[0] + (a[1].low + t1 * a[1].gap) * g->xs[1] +
                                    (a[2].low + t2 * a[2].gap) * g->xs[2]) *
                                   size;
                else
                    p->jump[i++] = (t0 * p->slab +
                                    (p->cells == PIXELS ? a[1].low + t1 * a[1].gap - lowest(&a[1]) : 0) * p->pitch +
                                    (p->cells == WINDOWS ? 0 : a[2].low + t2 * a[2].gap - lowest(&a[2]))) *
                                   p->cell;
            }
}

/* Taps of a row whose elements follow each other, in the picture or strip as in the packed weights, are one. */
static void merge(const Taps *g, Part *p)
{
    int64_t n = p->cells == WINDOWS ? 1 : p->a[2].taps, pixel = p->cells == IN_PLACE ? g->xs[2] * g->k->size : p->cell;
    if (n < 2 || p->a[2].gap != 1 || pixel != p->words * 4) return;
    p->taps /= n, p->words *= n;
    for (int64_t i = 0; i < p->taps; i++) p->jump[i] = p->jump[i * n];
}

static bool make_part(Taps *g, const GemmConv *d, int64_t group, const int64_t *place, Part *p, bool *none, Err *err)
{
    const Tensor *w = d->w;
    int64_t first[AXES], step[AXES], base = 0, n[AXES];
    *p = (Part){.x_at = group * g->C * g->xc, .y_at = group * g->O * g->yc};
    *none = false;
    for (int i = 0; i < AXES; i++)
        if (!axis_of(d, i, place[i], &p->a[i], &first[i], &step[i])) return *none = true;
    /* a window's elements follow each other */
    bool whole = !d->transposed && tensor_contiguous(w) && (d->spatial < AXES || w->shape[2] == 1);
    p->cells = cells_of(g, p, whole);
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
    p->K = g->C;
    tw.rs = wc;
    if (p->cells >= COLUMNS) p->K *= n[1], tw.rs = w->stride[w->rank - 1] * w->shape[w->rank - 1], n[1] = 1;
    if (p->cells == WINDOWS) p->K *= n[2], tw.rs = w->stride[w->rank - 1], n[2] = 1;
    p->words = ceil_div(p->K, g->k->per_word);
    p->cell = p->words * 4;
    if (p->cell % APART == 0) p->cell += ALIGN;
    p->taps = n[0] * n[1] * n[2];
    tw.K = p->K;
    memcpy(tw.n, n, sizeof n);
    base *= (int64_t)dtype_size(w->dtype);
    tw.from = g->constant ? (const char *)w->data + base : (const void *)(uintptr_t)base;
    p->w = tw;
    p->jump = mem_alloc((size_t)most(1, p->taps) * sizeof *p->jump);
    if (!p->jump) return oom(err);
    block_of(g, p);
    cut(g, p);
    jumps(g, p);
    merge(g, p);
    p->weight = g->constant ? weight_number(g->pool, &tw, err) : -1;
    TRY(!g->constant || p->weight >= 0);
    p->passing = !g->constant && blocks_of(g, p) == 1;
    if (p->passing) g->panel = (size_t)most((int64_t)g->panel, panel_bytes(&tw));
    else if (!g->constant) g->changing = (size_t)most((int64_t)g->changing, (int64_t)weight_bytes(&tw));
    if (p->strip > g->strip) g->strip = p->strip;
    return true;
}

static size_t space(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

void tap_conv_free(Taps *g)
{
    for (int i = 0; g && i < g->parts; i++) mem_free(g->part[i].jump);
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
        else return tap_conv_free(g), NULL;
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

static size_t strips(const Taps *g) { return g->strips * (size_t)g->threads; }
/* The bias of every column, where places are columns. */
static size_t bias_bytes(const Taps *g) { return g->fold ? (size_t)g->O * dtype_size(g->bias_type) : 0; }
size_t tap_conv_scratch(const Taps *g)
{
    return space(g->changing) + strips(g) + space(bias_bytes(g)) + space(g->panel) * (size_t)g->threads + ALIGN;
}

/* ------------------------------------------------------------------ filling a strip */

/* What is filled: outputs [row, row + rows) x [col, col + cols) along axes 1 and 2, at `depth` along axis 0. */
typedef struct Block {
    const Taps *g;
    const Part *p;
    const char *x;
    char *y, *strip;
    const char *b, *bias; /* b: from panel `first` on */
    int64_t panel, first; /* bytes of a panel */
    int64_t depth, row, rows, col, cols;
} Block;

static const char *pixel(const Block *b, int64_t at) { return b->x + at * (int64_t)dtype_size(b->g->type); }

/* n elements, `step` apart, to the kernel's type. */
static void take(const Block *b, char *to, int64_t at, int64_t step, int64_t n)
{
    const char *x = pixel(b, at);
    bool half = b->g->type == DT_BF16;
    if (b->g->k->size == 2)
        for (int64_t i = 0; i < n; i++) ((uint16_t *)(void *)to)[i] = ((const uint16_t *)(const void *)x)[i * step];
    else if (half)
        for (int64_t i = 0; i < n; i++)
            ((float *)(void *)to)[i] = bf16_to_f32(((const uint16_t *)(const void *)x)[i * step]);
    else
        for (int64_t i = 0; i < n; i++) ((float *)(void *)to)[i] = ((const float *)(const void *)x)[i * step];
}

static bool same_type(const Taps *g) { return g->type == (g->k->size == 2 ? DT_BF16 : DT_F32); }

/* n cells from `to` on, of C channels of a row's pixels from element `at` on. */
static void pixels(const Block *b, char *to, int64_t at, int64_t n)
{
    const Taps *g = b->g;
    int64_t step = g->xs[2], cell = b->p->cell, bytes = g->C * g->k->size;
    if ((g->xc == 1 || g->C == 1) && same_type(g)) {
        if (bytes == cell && step == g->C) memcpy(to, pixel(b, at), (size_t)(n * bytes));
        else
            for (int64_t j = 0; j < n; j++, to += cell, at += step) {
                memcpy(to, pixel(b, at), (size_t)bytes);
                if (g->C % g->k->per_word) memset(to + bytes, 0, (size_t)g->k->size);
            }
        return;
    }
    if (g->xc == 1 && g->k->size == 4) {
        int64_t together = bytes == cell ? n : 1;
        for (int64_t j = 0; j < n; j += together, to += cell, at += step)
            g->all->widen((float *)(void *)to, pixel(b, at), g->type, step, together, g->C);
        return;
    }
    if (g->xc == 1 || step != 1 || !same_type(g)) {
        for (int64_t j = 0; j < n; j++, to += cell, at += step) {
            take(b, to, at, g->xc, g->C);
            if (g->C % g->k->per_word) memset(to + bytes, 0, (size_t)g->k->size);
        }
        return;
    }
    for (int64_t c = 0; c < g->C; c += LINES) {
        const void *from[LINES];
        int some = (int)least(LINES, g->C - c);
        for (int i = 0; i < some; i++) from[i] = pixel(b, at + (c + i) * g->xc);
        if (g->k->size == 2) g->all->columns_2(to + c * 2, cell / 2, from, some, n);
        else g->all->columns_4(to + c * 4, cell / 4, from, some, n);
    }
    if (g->C % g->k->per_word)
        for (int64_t j = 0; j < n; j++) memset(to + j * cell + bytes, 0, (size_t)g->k->size);
}

/* n cells of columns of windows: those of row `top` of the windows, pixels from column `left` on. */
static void columns(const Block *b, char *to, int64_t plane, int64_t top, int64_t left, int64_t n)
{
    const Taps *g = b->g;
    const Axis *a = &b->p->a[1];
    int64_t size = g->k->size, cell = b->p->cell, lines = g->C * a->taps;
    const void *from[FEW_CHANNELS * MOST_ROWS];
    int count = 0;
    bool fast = g->xs[2] == 1 && same_type(g) && lines <= FEW_CHANNELS * MOST_ROWS;
    for (int64_t e = 0; e < lines; e++) {
        int64_t y = top + e % a->taps * a->gap, at = plane + e / a->taps * g->xc + y * g->xs[1] + left * g->xs[2];
        bool in = y >= 0 && y < a->in;
        if (fast && in) from[count++] = pixel(b, at);
        if (fast && in) continue;
        if (count)
            (size == 2 ? g->all->columns_2 : g->all->columns_4)(to + (e - count) * size, cell / size, from, count, n);
        count = 0;
        for (int64_t j = 0; j < n; j++) {
            if (in) take(b, to + j * cell + e * size, at + j * g->xs[2], 1, 1);
            else memset(to + j * cell + e * size, 0, (size_t)size);
        }
    }
    if (count)
        (size == 2 ? g->all->columns_2 : g->all->columns_4)(to + (lines - count) * size, cell / size, from, count, n);
    for (int64_t j = 0; j < n && lines % g->k->per_word; j++) memset(to + j * cell + lines * size, 0, (size_t)size);
}

/* n bytes, which are known to be few and at least 4: moves instead of a call. */
static inline void move(char *to, const char *from, int64_t n)
{
    if (n < 16) {
        for (int64_t i = 0; i + 2 <= n; i += 2) memcpy(to + i, from + i, 2);
        return;
    }
    for (int64_t i = 0; i + 16 <= n; i += 16) memcpy(to + i, from + i, 16);
    memcpy(to + n - 16, from + n - 16, 16);
}

/* n runs of `bytes`, `apart` bytes from each other, to cells. */
static void runs(char *to, int64_t cell, const char *from, int64_t apart, int64_t bytes, int64_t n)
{
    if (bytes == 16)
        for (int64_t j = 0; j < n; j++) memcpy(to + j * cell, from + j * apart, 16);
    else if (bytes == 8)
        for (int64_t j = 0; j < n; j++) memcpy(to + j * cell, from + j * apart, 8);
    else
        for (int64_t j = 0; j < n; j++) move(to + j * cell, from + j * apart, bytes);
}

/* A row of cells that are windows: C x taps of axis 1 runs of those of axis 2. */
static void windows(const Block *b, char *to, int64_t plane, int64_t top)
{
    const Taps *g = b->g;
    const Axis *a = &b->p->a[1], *c = &b->p->a[2];
    int64_t size = g->k->size, bytes = c->taps * size, cell = b->p->cell, left = b->col * c->step + c->low, j = 0;
    bool whole = same_type(g) && left >= 0 && left + (b->cols - 1) * c->step + c->taps <= c->in;
    for (int64_t line = 0; line < g->C * a->taps; line++, to += bytes) {
        int64_t y = top + line % a->taps * a->gap, at = plane + line / a->taps * g->xc + y * g->xs[1];
        bool in = y >= 0 && y < a->in;
        if (in && whole) {
            runs(to, cell, pixel(b, at + left), c->step * size, bytes, b->cols);
            continue;
        }
        for (j = 0; j < b->cols; j++) {
            int64_t from = left + j * c->step, first = most(0, -from), end = least(c->taps, c->in - from);
            memset(to + j * cell, 0, (size_t)bytes);
            if (in && first < end) take(b, to + j * cell + first * size, at + from + first, 1, end - first);
        }
    }
    for (j = 0; j < b->cols && b->p->K % g->k->per_word; j++) memset(to + j * cell, 0, (size_t)size);
}

static void fill(const Block *b)
{
    const Part *p = b->p;
    const Axis *d = &p->a[0], *r = &p->a[1], *c = &p->a[2];
    int64_t left = b->col * c->step + lowest(c), n = (b->cols - 1) * c->step + span(c),
            zeros = least(n, most(0, -left)), data = most(0, least(n, c->in - left) - zeros);
    int64_t rows = p->cells == PIXELS ? (b->rows - 1) * r->step + span(r) : b->rows;
    for (int64_t t = 0; t < d->taps; t++) {
        int64_t z = b->depth * d->step + d->low + t * d->gap, plane = z * b->g->xs[0];
        for (int64_t i = 0; i < rows; i++) {
            char *to = b->strip + (t * p->slab + i * p->pitch) * p->cell;
            int64_t y = p->cells == PIXELS ? b->row * r->step + lowest(r) + i : (b->row + i) * r->step + r->low;
            bool out = z < 0 || z >= d->in || (p->cells == PIXELS && (y < 0 || y >= r->in));
            if (out || (p->cells != WINDOWS && !data)) {
                memset(to, 0, (size_t)((p->cells == WINDOWS ? b->cols : n) * p->cell));
                continue;
            }
            if (p->cells == WINDOWS) {
                windows(b, to, plane, y);
                continue;
            }
            memset(to, 0, (size_t)(zeros * p->cell));
            if (p->cells == PIXELS)
                pixels(b, to + zeros * p->cell, plane + y * b->g->xs[1] + (left + zeros) * b->g->xs[2], data);
            else columns(b, to + zeros * p->cell, plane, y, left + zeros, data);
            memset(to + (zeros + data) * p->cell, 0, (size_t)((n - zeros - data) * p->cell));
        }
    }
}

/* ------------------------------------------------------------------ running */

/* Where the rows of outputs [first, first + rows) of the block begin, and their results. */
static void rows_of(const Block *b, int64_t first, ConvTile *t)
{
    const Taps *g = b->g;
    const Part *p = b->p;
    int64_t i = first / b->cols, j = first % b->cols, size = g->k->size, out = (int64_t)dtype_size(g->type), row, col,
            at[2];
    const Axis *r = &p->a[1], *c = &p->a[2];
    const char *from;
    if (p->cells == IN_PLACE) {
        from = b->x +
               (b->depth * p->a[0].step * g->xs[0] + b->row * r->step * g->xs[1] + b->col * c->step * g->xs[2]) * size;
        row = r->step * g->xs[1] * size, col = c->step * g->xs[2] * size;
    } else {
        from = b->strip;
        row = (p->cells == PIXELS ? r->step : 1) * p->pitch * p->cell;
        col = (p->cells == WINDOWS ? 1 : c->step) * p->cell;
    }
    char *to = b->y + ((p->a[0].first + b->depth * p->a[0].every) * g->ys[0] +
                       (r->first + b->row * r->every) * g->ys[1] + (c->first + b->col * c->every) * g->ys[2]) *
                          out;
    at[0] = r->every * g->ys[1] * out, at[1] = c->every * g->ys[2] * out;
    for (int k = 0; k < t->rows; k++) {
        t->row[k] = from + i * row + j * col;
        t->c[k] = to + i * at[0] + j * at[1];
        if (++j == b->cols) j = 0, i++;
    }
}

/* A tile of a block's outputs by panel q. What to fetch meanwhile is set in t. */
static void tile_run(const Block *b, ConvTile *t, int64_t q)
{
    const Taps *g = b->g;
    const TapWeight *w = &b->p->w;
    int width = g->k->width[w->width];
    t->b = b->b + (q - b->first) * b->panel;
    t->cols = (int)least(width, g->O - q * width);
    if (b->bias) t->bias = b->bias + q * width * (int64_t)dtype_size(g->bias_type);
    g->k->tile[w->width](t);
}

static void columns_on(ConvTile *t, int64_t bytes)
{
    for (int r = 0; r < t->rows; r++) t->c[r] = (char *)t->c[r] + bytes;
}

/* Panels [p0, p1) of a block: a tile meets all panels before the next where they stay in L2, else a panel all tiles. */
static void block_run(const Block *b, int64_t p0, int64_t p1)
{
    const Taps *g = b->g;
    const Part *p = b->p;
    int64_t outputs = b->rows * b->cols, tiles = ceil_div(outputs, g->k->mr[p->w.width]), low = outputs / tiles,
            higher = outputs % tiles, words = most(1, p->taps * p->words), first = 0;
    int64_t width = g->k->width[p->w.width] * (int64_t)dtype_size(g->type);
    ConvTile t;
    t.bias = NULL, t.bias_type = g->bias_type, t.c_type = g->type;
    t.jump = p->jump, t.taps = p->taps, t.words = p->words;
    t.sum = g->sum, t.act = g->act;
    if (b->panel * (p1 - p0) <= B_WHOLE) {
        for (int64_t i = 0; i < tiles; i++, first += t.rows) {
            t.rows = (int)(low + (i < higher));
            rows_of(b, first, &t);
            columns_on(&t, p0 * width);
            t.ahead = (const char *)t.row[t.rows - 1] + (p->cells == IN_PLACE ? p->words * 4 : 0);
            t.pace = p->cells == IN_PLACE ? t.rows * 4 : 0; /* the next tile's rows, whose pixels follow */
            for (int64_t q = p0; q < p1; q++, columns_on(&t, width), t.pace = 0) tile_run(b, &t, q);
        }
        return;
    }
    int64_t part = b->panel / tiles / ALIGN * ALIGN;
    for (int64_t q = p0; q < p1; q++) {
        const char *next = b->b + (least(q + 1, p1 - 1) - b->first) * b->panel; /* each tile fetches a part of it */
        first = 0;
        for (int64_t i = 0; i < tiles; i++, first += t.rows) {
            t.rows = (int)(low + (i < higher));
            rows_of(b, first, &t);
            columns_on(&t, q * width);
            t.ahead = next + i * part;
            t.pace = q + 1 < p1 ? part / words : 0;
            tile_run(b, &t, q);
        }
    }
}

/* Panels [p0, p1) of a block, packed to `room` one after the other. */
static void pack_and_run(Block *b, const void *from, char *room, int64_t p0, int64_t p1)
{
    for (int64_t q = p0; q < p1; q++) {
        pack_panel(&b->p->w, from, room, q);
        b->b = room, b->first = q;
        block_run(b, q, q + 1);
    }
}

/* A part's weights: packed, or (NULL) what they are packed from on the way, and where the thread's panels go. */
typedef struct Packing {
    const char *packed, *from;
    char *panels;
} Packing;

/* Block number `at` of a part. */
static Block block_at(const Taps *g, const Part *p, const GemmBuffers *m, int64_t at, char *strip)
{
    int64_t out = (int64_t)dtype_size(g->type), c = at % p->col_cuts, r = at / p->col_cuts % p->row_cuts,
            rest = at / p->col_cuts / p->row_cuts, image = rest / p->a[0].out;
    Block b = {.g = g, .p = p, .strip = strip, .panel = panel_bytes(&p->w), .depth = rest % p->a[0].out};
    if (m->bias) b.bias = (const char *)m->bias + p->y_at / g->yc * (int64_t)dtype_size(g->bias_type);
    b.x = (const char *)m->a + (image * g->xn + p->x_at) * out;
    b.y = (char *)m->c + (image * g->yn + p->y_at) * out;
    b.row = cut_at(p->a[1].out, r, p->row_cuts), b.rows = cut_at(p->a[1].out, r + 1, p->row_cuts) - b.row;
    b.col = cut_at(p->a[2].out, c, p->col_cuts), b.cols = cut_at(p->a[2].out, c + 1, p->col_cuts) - b.col;
    return b;
}

/* What thread `self` of `threads` does of a part: units, one after the other, of a panel of a block each. */
static void share(const Taps *g, const Part *p, const GemmBuffers *m, const Packing *w, char *strip, int self,
                  int threads)
{
    int64_t held = -1, panels = panels_of(&p->w), end = share_at(g, p, self + 1, threads);
    for (int64_t i = share_at(g, p, self, threads), n; i < end; i += n) {
        int64_t at = i / panels, p0 = i % panels;
        n = least(panels - p0, end - i);
        Block b = block_at(g, p, m, at, strip);
        b.b = w->packed;
        if (p->cells != IN_PLACE && at != held) fill(&b);
        held = at;
        if (w->packed) block_run(&b, p0, p0 + n);
        else pack_and_run(&b, w->from, w->panels + space(g->panel) * (size_t)self, p0, p0 + n);
    }
}

static void run_part(const Taps *g, const Part *p, const GemmBuffers *m, char *base, int threads)
{
    const char *from = p->weight >= 0 ? NULL : (const char *)m->b + (uintptr_t)p->w.from;
    char *strips_at = base + space(g->changing);
    int64_t panels = panels_of(&p->w);
    Packing w = {.packed = p->weight >= 0 ? g->pool->w[p->weight].data : p->passing ? NULL : base,
                 .from = from,
                 .panels = strips_at + strips(g) + space(bias_bytes(g))};
    if (from && w.packed) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int64_t i = 0; i < panels; i++) pack_panel(&p->w, from, base + i * panel_bytes(&p->w), i);
    }
    if (threads == 1) {
        share(g, p, m, &w, strips_at, 0, 1);
        return;
    }
#pragma omp parallel num_threads(threads)
    share(g, p, m, &w, strips_at + g->strips * (size_t)team_part(), team_part(), team_parts());
}

/* What thread `self` of `threads` does of parts that take turns: a panel of each, which come from the same lines of the
 * weights, before the next. */
static void share_together(const Taps *g, const GemmBuffers *m, char *strip, char *panel, int self, int threads)
{
    bool filled[MOST_PARTS] = {false};
    int64_t n = g->parts * panels_of(&g->part[0].w);
    for (int64_t i = n * self / threads; i < n * (self + 1) / threads; i++) {
        int number = (int)(i % g->parts);
        const Part *p = &g->part[number];
        Block b = block_at(g, p, m, 0, strip);
        for (int k = 0; k < number; k++) b.strip += space(g->part[k].strip);
        if (p->cells != IN_PLACE && !filled[number]) fill(&b);
        filled[number] = true;
        pack_and_run(&b, (const char *)m->b + (uintptr_t)p->w.from, panel, i / g->parts, i / g->parts + 1);
    }
}

static void run_together(const Taps *g, const GemmBuffers *m, char *base, int threads)
{
    char *strips_at = base + space(g->changing), *panels = strips_at + strips(g) + space(bias_bytes(g));
#pragma omp parallel num_threads(threads) if (threads > 1)
    share_together(g, m, strips_at + g->strips * (size_t)team_part(), panels + space(g->panel) * (size_t)team_part(),
                   team_part(), team_parts());
}

bool tap_conv_run(Taps *g, const GemmBuffers *m, void *scratch, Err *err)
{
    char *base = (char *)(((uintptr_t)scratch + ALIGN - 1) / ALIGN * ALIGN);
    int threads = (int)least(g->threads, team_width());
    GemmBuffers folded = *m;
    if (m->bias && g->fold) {
        size_t n = (size_t)g->fold * dtype_size(g->bias_type);
        char *to = base + space(g->changing) + strips(g);
        folded.bias = to;
        for (size_t at = 0; at < bias_bytes(g); at += n) memcpy(to + at, m->bias, n);
        m = &folded;
    }
    for (int i = 0; i < g->parts; i++)
        if (g->part[i].weight >= 0) TRY(keep(g, &g->pool->w[g->part[i].weight], err));
    if (g->together) run_together(g, m, base, threads);
    for (int i = 0; i < g->parts && !g->together; i++) run_part(g, &g->part[i], m, base, threads);
    return true;
}
