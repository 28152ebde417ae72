/* Regions of a convolution's outputs, whose windows see the same taps: those of the middle see all of them, those at an
 * edge of the picture miss the taps that meet the zeros around it, which need not be multiplied. A 3 x 3 window on
 * 14 x 14 pixels has a tenth of its taps there.
 *
 *     3 x 3, padding 1:     nine regions, of 4, 6, 4, 6, 9, 6, 4, 6, 4 taps
 */
#include "base/mem.h"
#include "kernel/gemm_taps.h"

/* MOST_SPLIT: taps along an axis, of which each may begin a region. START: cycles between two tiles; LATENCY: of a
 * multiply-add, which tiles of fewer sums wait for. */
enum { MOST_SPLIT = 8, START = 100, LATENCY = 6 };

/* Taps [low, end) of an axis. */
typedef struct Range {
    int64_t low, end;
} Range;

static Range seen_by(const Axis *a, int64_t output)
{
    int64_t at = output * a->step + a->low;
    Range r = {0, a->taps};
    while (r.low < r.end && (at + r.low * a->gap < 0 || at + r.low * a->gap >= a->in)) r.low++;
    while (r.end > r.low && (at + (r.end - 1) * a->gap < 0 || at + (r.end - 1) * a->gap >= a->in)) r.end--;
    return r.low < r.end ? r : (Range){0, 0};
}

/* The end of the outputs from `output` on that see what it sees; without splitting, all see n taps. */
static int64_t run_from(const Axis *a, int64_t output, bool split, int64_t n, Range *taps)
{
    *taps = split ? seen_by(a, output) : (Range){0, n};
    int64_t end = split ? output + 1 : a->out;
    for (; end < a->out; end++) {
        Range r = seen_by(a, end);
        if (r.low != taps->low || r.end != taps->end) break;
    }
    return end;
}

/* How far after a row's own place a tap is, in bytes. */
static int64_t jump(const Taps *g, const Part *p, int64_t t0, int64_t t1, int64_t t2)
{
    const Axis *a = p->a;
    if (p->cells == IN_PLACE)
        return ((a[0].low + t0 * a[0].gap) * g->xs[0] + (a[1].low + t1 * a[1].gap) * g->xs[1] +
                (a[2].low + t2 * a[2].gap) * g->xs[2]) *
               g->k->size;
    int64_t row = p->cells == PIXELS ? a[1].low + t1 * a[1].gap - lowest(&a[1]) : 0,
            col = p->cells == WINDOWS ? 0 : a[2].low + t2 * a[2].gap - lowest(&a[2]);
    return (t0 * p->slab + row * p->pitch + col) * p->cell;
}

/* The taps of a region. Those of a row whose elements follow each other, in the picture or strip as in the packed
 * weights, are one. */
static void list_taps(const Taps *g, const Part *p, Region *r, Range rows, Range cols, int64_t *jumps, int64_t *at)
{
    const int64_t *n = p->w.n;
    int64_t pixel = p->cells == IN_PLACE ? g->xs[2] * g->k->size : p->cell, wide = cols.end - cols.low,
            width = p->w.kernel->width[p->w.width];
    bool merged = wide > 1 && p->a[2].gap == 1 && pixel == p->words * 4;
    r->jump = jumps, r->at = at, r->taps = 0;
    r->words = merged ? wide * p->words : p->words;
    for (int64_t t0 = 0; t0 < n[0]; t0++)
        for (int64_t t1 = rows.low; t1 < rows.end; t1++)
            for (int64_t t2 = cols.low; t2 < cols.end; t2 += merged ? wide : 1, r->taps++) {
                jumps[r->taps] = jump(g, p, t0, t1, t2);
                at[r->taps] = ((t0 * n[1] + t1) * n[2] + t2) * p->words * width;
            }
}

/* The cycles that a panel of a region takes, a multiply-add of a vector being one. */
static int64_t cycles_of(const Part *p, int64_t outputs, int64_t taps)
{
    const ConvKernel *k = p->w.kernel;
    int64_t tiles = ceil_div(outputs, k->mr[p->w.width]), vectors = k->width[p->w.width] / conv_vector(k);
    return most(outputs * vectors, tiles * LATENCY) * taps * p->words + tiles * START;
}

/* A region on the way through them. */
typedef struct Walk {
    int64_t row, end_row, col, end_col;
    Range rows, cols;
} Walk;

/* The next region in the order of rows, then columns, from a Walk of zeros on; false: there was none. */
static bool next_region(const Part *p, Split s, Walk *w)
{
    const Axis *a = &p->a[1], *c = &p->a[2];
    if (w->end_row == 0 || w->end_col == c->out) {
        if (w->end_row == a->out) return false;
        w->row = w->end_row, w->end_col = 0;
        w->end_row = run_from(a, w->row, s.rows, p->w.n[1], &w->rows);
    }
    w->col = w->end_col;
    w->end_col = run_from(c, w->col, s.cols, p->w.n[2], &w->cols);
    return true;
}

static int64_t cycles_split(const Part *p, Split s)
{
    int64_t cycles = 0;
    for (Walk w = {0}; next_region(p, s, &w);)
        cycles += cycles_of(p, (w.end_row - w.row) * (w.end_col - w.col),
                            (w.rows.end - w.rows.low) * (w.cols.end - w.cols.low));
    return cycles;
}

/* Regions of small pictures are mostly edges, of few outputs. */
Split tap_split(const Part *p)
{
    Split best = {false, false};
    if (p->a[0].taps > 1 || p->a[1].taps > MOST_SPLIT || p->a[2].taps > MOST_SPLIT) return best;
    int64_t least_cycles = cycles_split(p, best);
    for (int i = 1; i < 4; i++) {
        Split s = {i & 1, i & 2};
        int64_t cycles = cycles_split(p, s);
        if (cycles < least_cycles) best = s, least_cycles = cycles;
    }
    return best;
}

bool tap_regions_within(const Part *p)
{
    return inside(&p->a[0]) && (p->split.rows || inside(&p->a[1])) && (p->split.cols || inside(&p->a[2]));
}

bool tap_regions(const Taps *g, Part *p, Err *err)
{
    int64_t most_taps = most(1, taps_of(&p->w));
    p->regions = 0;
    for (Walk w = {0}; next_region(p, p->split, &w);) p->regions++;
    p->region = mem_alloc((size_t)most(1, p->regions) * sizeof *p->region);
    p->jumps = mem_alloc((size_t)(most(1, p->regions) * 2 * most_taps) * sizeof *p->jumps);
    if (!p->region || !p->jumps) return oom(err);
    Region *r = p->region;
    int64_t *room = p->jumps;
    for (Walk w = {0}; next_region(p, p->split, &w); r++, room += 2 * most_taps) {
        *r = (Region){.row = w.row, .rows = w.end_row - w.row, .col = w.col, .cols = w.end_col - w.col};
        list_taps(g, p, r, w.rows, w.cols, room, room + most_taps);
    }
    return true;
}
