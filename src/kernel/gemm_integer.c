/* Integer products put together of tiles. Contract in gemm_integer.h.
 *
 * Rows are packed first, a superblock of them at a time, or taken as they are where the kernel reads them so: windows
 * of whole words then read their picture, or a copy of it with its edges around, tap by tap. Tasks of some tiles by
 * some panels go to the threads. Where rows are many and b is small, a thread packs a block of rows and multiplies it
 * by all of b, so that no thread waits for another before the end.
 * Within a task, panels are outside: a panel (K x nr bytes, in L1 or L2) meets every tile of the task (in L2), and the
 * next panel is fetched meanwhile.
 */
#include "kernel/gemm_integer.h"
#include <string.h>
#include "kernel/gemm_impl.h"
#include "kernel/kernel.h"
#include "team/team.h"

/* BLOCK_BYTES: of a task's rows, in L2. */
enum {
    BLOCK_BYTES = 320 * 1024,
    SMALL_B = 256 * 1024, /* bytes, which stay in L2 beside a block */
    SUPERBLOCK = 1024,
    MOST_TILE = 32 * 48,
    MOST_TAPS = 128,
    FEWEST = 4, /* rows of a tile that is worth it */
    LINE = 64,
    PAGE = 4096, /* rows so far apart share a place in L1 */
    WORTH_THREADS = 1 << 21
};

/* How rows are cut into tiles: lines of as many rows, each in tiles of equal height, or all in tiles of mr. Rows that
 * the kernel takes as they are lie in the picture, or in a copy of it with its edges around. */
typedef struct Cut {
    int64_t line, per_line, tiles, each; /* each: bytes of a tile, packed or looked at */
    bool as_they_are, padded;
    int64_t size[3]; /* of the picture with its edges */
    int64_t taps, jump[MOST_TAPS];
} Cut;

typedef struct Blocks {
    int64_t tiles, nrows;  /* tiles of a block; blocks of a superblock */
    int64_t panels, ncols; /* panels of a range; ranges */
    int64_t super;         /* tiles of a superblock, whole blocks */
    bool own;              /* a thread packs its own blocks: there is room for one a thread, and nrows are all */
} Blocks;

/* Windows of whole words, in lines that fill tiles. */
static bool lines_of(const IntegerMatmul *m, Cut *c)
{
    const IntegerWindows *w = m->windows;
    const int mr = kernels()->integer.mr;
    c->taps = w->size[0] * w->size[1] * w->size[2];
    if (w->C % 4 || c->taps > MOST_TAPS || w->out[2] < FEWEST) return false;
    c->line = w->out[2];
    c->per_line = ceil_div(c->line, mr);
    c->tiles = m->M / c->line * c->per_line;
    for (int d = 0; d < 3; d++) {
        c->size[d] = w->in[d] + 2 * w->padding[d];
        c->padded |= w->padding[d] > 0;
    }
    for (int64_t t = 0; t < c->taps; t++) {
        const int64_t z = t / w->size[2] / w->size[1] * w->dilation[0],
                      y = t / w->size[2] % w->size[1] * w->dilation[1], x = t % w->size[2] * w->dilation[2];
        c->jump[t] = ((z * c->size[1] + y) * c->size[2] + x) * w->C;
    }
    return true;
}

static void cut_rows(const IntegerMatmul *m, Cut *c)
{
    const IntegerKernels *k = &kernels()->integer;
    *c = (Cut){.line = m->M, .tiles = ceil_div(m->M, k->mr), .each = (int64_t)k->a_bytes(m->K)};
    if (!k->look || m->a.t != DT_I8 || m->a.zeros || m->a.cs != 1) return;
    c->taps = 1;
    c->as_they_are = m->windows ? lines_of(m, c) : m->K % 4 == 0 && m->a.rs % PAGE;
    if (c->as_they_are) c->each = (int64_t)k->look_bytes;
}

/* Tile i: its rows, the first of them. */
static int64_t rows_at(const IntegerMatmul *m, const Cut *c, int64_t i, int *rows)
{
    const int mr = kernels()->integer.mr;
    if (!c->per_line) {
        *rows = (int)(m->M - i * mr < mr ? m->M - i * mr : mr);
        return i * mr;
    }
    const int64_t j = i % c->per_line, from = c->line * j / c->per_line;
    *rows = (int)(c->line * (j + 1) / c->per_line - from);
    return i / c->per_line * c->line + from;
}

static Blocks blocks_of(const IntegerMatmul *m, const Cut *c, int threads)
{
    const IntegerKernels *k = &kernels()->integer;
    const int64_t bytes = c->as_they_are ? k->mr * m->K / c->taps : c->each, most = BLOCK_BYTES / (bytes ? bytes : 1),
                  panels = ceil_div(m->N, k->nr), tiles = least(c->tiles, ceil_div(SUPERBLOCK, k->mr));
    /* few panels make too few parts for all threads */
    const int64_t shared = threads == 1 ? 1 : ceil_div(4 * threads, panels), fit = most < 1 ? 1 : most;
    if (threads > 1 && c->tiles >= 8 * threads && (int64_t)k->b_bytes(m->K, m->N) <= SMALL_B) {
        const int64_t own = least(ceil_div(c->tiles, 4 * threads), fit);
        return (Blocks){own, ceil_div(c->tiles, own), panels, 1, threads * own, true};
    }
    Blocks b = {.nrows = ceil_div(tiles, fit)};
    if (b.nrows < shared) b.nrows = shared < tiles ? shared : tiles;
    b.tiles = ceil_div(tiles, b.nrows);
    b.super = b.nrows * b.tiles;
    b.ncols = threads == 1 || b.nrows >= 4 * threads ? 1 : ceil_div(4 * threads, b.nrows);
    if (b.ncols > panels) b.ncols = panels;
    b.panels = ceil_div(panels, b.ncols);
    return b;
}

static size_t whole_lines(int64_t n) { return (size_t)(ceil_div(n, LINE) * LINE); }

/* Where a tile is. */
typedef struct Place {
    int64_t row;
    const char *at; /* of rows as they are: the first */
    int rows;
} Place;

static size_t tiles_bytes(const Blocks *b, const Cut *c)
{
    return whole_lines(b->super * c->each) + whole_lines(b->super * (int64_t)sizeof(Place));
}

/* Of a tile's rows that windows see, for each thread. */
static size_t seen_bytes(const IntegerMatmul *m, const Cut *c)
{
    return m->windows && !c->as_they_are ? whole_lines(kernels()->integer.mr * m->K) : 0;
}

/* Of the picture with its edges. */
static size_t padded_bytes(const IntegerMatmul *m, const Cut *c)
{
    const IntegerWindows *w = m->windows;
    if (!c->padded) return 0;
    return whole_lines(m->M / (w->out[0] * w->out[1] * w->out[2]) * c->size[0] * c->size[1] * c->size[2] * w->C);
}

size_t integer_scratch(const IntegerMatmul *m, int threads)
{
    Cut c;
    cut_rows(m, &c);
    const Blocks b = blocks_of(m, &c, threads), alone = blocks_of(m, &c, 1); /* of small products */
    const size_t tiles = tiles_bytes(b.super > alone.super ? &b : &alone, &c);
    return tiles + padded_bytes(m, &c) + (size_t)threads * seen_bytes(m, &c);
}

/* ------------------------------------------------------------------ what windows see */

/* n bytes, which are few: two moves that overlap take less than a call. */
static inline void copy_few(uint8_t *to, const uint8_t *from, size_t n)
{
    enum { HALF = 16 };
    if (n < HALF || n > 2 * HALF) {
        memcpy(to, from, n);
        return;
    }
    uint8_t first[HALF], last[HALF];
    memcpy(first, from, HALF);
    memcpy(last, from + n - HALF, HALF);
    memcpy(to, first, HALF);
    memcpy(to + n - HALF, last, HALF);
}

/* Cells from `at` on, `size` of them `dilation` apart, of a line of the picture; `none` beside it. */
static void see_line(const IntegerWindows *w, uint8_t *to, const uint8_t *line, int64_t at, int none)
{
    const int64_t n = w->size[2], C = w->C, in = w->in[2];
    if (w->dilation[2] == 1) {
        int64_t before = at < 0 ? -at : 0, end = in - at < n ? in - at : n;
        if (before > n) before = n;
        if (end < before) end = before;
        if (before) memset(to, none, (size_t)(before * C));
        copy_few(to + before * C, line + (at + before) * C, (size_t)((end - before) * C));
        if (end < n) memset(to + end * C, none, (size_t)((n - end) * C));
        return;
    }
    for (int64_t i = 0; i < n; i++, to += C, at += w->dilation[2])
        if (at < 0 || at >= in) memset(to, none, (size_t)C);
        else memcpy(to, line + at * C, (size_t)C);
}

/* The window at o of a picture. */
static void see_window(const IntegerWindows *w, uint8_t *to, const uint8_t *picture, const int64_t *o, int none)
{
    int64_t at[3];
    for (int d = 0; d < 3; d++) at[d] = o[d] * w->stride[d] - w->padding[d];
    const int64_t wide = w->in[2] * w->C;
    const size_t line = (size_t)(w->size[2] * w->C);
    const bool whole = at[2] >= 0 && at[2] + w->size[2] <= w->in[2] && w->dilation[2] == 1;
    for (int64_t i = 0, z = at[0]; i < w->size[0]; i++, z += w->dilation[0])
        for (int64_t j = 0, y = at[1]; j < w->size[1]; j++, y += w->dilation[1], to += line) {
            if (z < 0 || z >= w->in[0] || y < 0 || y >= w->in[1]) {
                memset(to, none, line);
                continue;
            }
            const uint8_t *from = picture + (z * w->in[1] + y) * wide;
            if (whole) copy_few(to, from + at[2] * w->C, line);
            else see_line(w, to, from, at[2], none);
        }
}

void integer_see(const IntegerWindows *w, uint8_t *to, const uint8_t *picture, int64_t row, int rows, int none)
{
    const int64_t K = w->size[0] * w->size[1] * w->size[2] * w->C, all = w->in[0] * w->in[1] * w->in[2] * w->C;
    int64_t o[3];
    for (int d = 2; d >= 0; row /= w->out[d--]) o[d] = row % w->out[d];
    picture += row * all;
    for (int r = 0; r < rows; r++, to += K) {
        see_window(w, to, picture, o, none);
        int d = 2;
        while (d >= 0 && ++o[d] == w->out[d]) o[d--] = 0;
        if (d < 0) picture += all;
    }
}

/* ------------------------------------------------------------------ rows as they are */

/* Line i of the picture with its edges. */
static void pad_line(const IntegerMatmul *m, const Cut *c, int64_t i, uint8_t *to)
{
    const IntegerWindows *w = m->windows;
    const int64_t y = i % c->size[1] - w->padding[1], z = i / c->size[1] % c->size[0] - w->padding[0],
                  picture = i / c->size[1] / c->size[0], edge = w->padding[2] * w->C, n = w->in[2] * w->C;
    to += i * c->size[2] * w->C;
    if (y < 0 || y >= w->in[1] || z < 0 || z >= w->in[0]) {
        memset(to, m->a.zero, (size_t)(c->size[2] * w->C));
        return;
    }
    memset(to, m->a.zero, (size_t)edge);
    memcpy(to + edge, (const uint8_t *)m->a.data + ((picture * w->in[0] + z) * w->in[1] + y) * n, (size_t)n);
    memset(to + edge + n, m->a.zero, (size_t)edge);
}

static void pad(const IntegerMatmul *m, const Cut *c, uint8_t *to, int threads)
{
    const IntegerWindows *w = m->windows;
    const int64_t lines = m->M / (w->out[0] * w->out[1] * w->out[2]) * c->size[0] * c->size[1];
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < lines; i++) pad_line(m, c, i, to);
}

/* The first of rows; picture: a.data, or what `pad` made. */
static const char *row_from(const IntegerMatmul *m, const Cut *c, const char *picture, int64_t row)
{
    const IntegerWindows *w = m->windows;
    int64_t at[3];
    if (!w) return picture + row * m->a.rs;
    for (int d = 2; d >= 0; row /= w->out[d--]) at[d] = row % w->out[d] * w->stride[d];
    return picture + (((row * c->size[0] + at[0]) * c->size[1] + at[1]) * c->size[2] + at[2]) * w->C;
}

static IntegerRows rows_as_they_are(const IntegerMatmul *m, const Cut *c)
{
    const IntegerWindows *w = m->windows;
    return (IntegerRows){.step = w ? w->stride[2] * w->C : m->a.rs, .taps = c->taps, .each = m->K / c->taps,
                         .jump = c->jump};
}

/* ------------------------------------------------------------------ blocks */

typedef struct Work {
    const IntegerMatmul *m;
    Cut cut;
    Blocks b;
    char *room, *picture; /* of tiles; rows as they are */
    Place *place;         /* of the superblock's tiles */
    uint8_t *seen;        /* by thread */
} Work;

/* What a tile's epilogue adds to comes into L1 while its sums are made. */
static void fetch_ahead(const IntegerMatmul *m, int64_t row, int64_t col, int rows, int cols)
{
    const ProductOut *o = &m->out;
    const size_t size = o->residual ? dtype_size(o->residual_type) : 0, wide = (size_t)cols * size;
    const char *more = (const char *)o->residual + (size_t)(row * o->residual_step + col) * size;
    for (int r = 0; o->residual && r < rows; r++, more += (size_t)o->residual_step * size)
        for (size_t at = 0; at < wide; at += LINE) __builtin_prefetch(more + at, 0, 3);
}

/* Tiles [first, last) of a superblock by the panels of a range. */
static void run_block(const Work *w, int64_t first, int64_t last, int64_t range)
{
    const IntegerMatmul *m = w->m;
    const IntegerKernels *k = &kernels()->integer;
    const Place *place = w->place + first;
    const size_t bytes = (size_t)w->cut.each, panel_bytes = k->b_bytes(m->K, 1);
    const char *room = w->room + (size_t)first * bytes;
    const int64_t from = range * w->b.panels, all = ceil_div(m->N, k->nr),
                  to = from + w->b.panels < all ? from + w->b.panels : all, tiles = last - first;
    int32_t acc[MOST_TILE];
    IntegerTile t = {.acc = acc, .b = m->b, .K = m->K, .zero_b = m->zero_b};
    if (w->cut.as_they_are) t.from = rows_as_they_are(m, &w->cut);
    if (k->begin) k->begin();
    for (t.panel = from; t.panel < to; t.panel++) {
        const int64_t col = t.panel * k->nr;
        const char *ahead = (const char *)m->b + (size_t)(t.panel + (t.panel + 1 < to)) * panel_bytes;
        t.cols = (int)(m->N - col < k->nr ? m->N - col : k->nr);
        t.lines = (int)ceil_div((int64_t)panel_bytes / LINE, tiles);
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t after = i + 1 < tiles ? i + 1 : 0;
            t.rows = place[i].rows;
            t.a = room + (size_t)i * bytes;
            t.next_a = room + (size_t)after * bytes;
            t.from.at = place[i].at;
            t.next = place[after].at;
            t.ahead = ahead + i * t.lines * LINE;
            fetch_ahead(m, place[i].row, col, t.rows, t.cols);
            k->tile(&t);
            k->finish(m, acc, place[i].row, col, t.rows, t.cols);
        }
    }
    if (k->end) k->end();
}

/* Tile i of the superblock that begins at tile `first`; `seen`: room for what its windows see. */
static void pack_tile(const Work *w, int64_t first, int64_t i, uint8_t *seen)
{
    const IntegerMatmul *m = w->m;
    const IntegerKernels *k = &kernels()->integer;
    char *to = w->room + i * w->cut.each;
    int rows;
    const int64_t row = rows_at(m, &w->cut, first + i, &rows);
    IntegerIn in = m->a;
    w->place[i] = (Place){row, w->cut.as_they_are ? row_from(m, &w->cut, w->picture, row) : NULL, rows};
    if (w->cut.as_they_are) {
        IntegerRows from = rows_as_they_are(m, &w->cut);
        from.at = w->place[i].at;
        k->look(to, &from, in.zero, rows);
    } else if (!m->windows) k->pack_a(to, &in, row, rows, m->K);
    else {
        integer_see(m->windows, seen, in.data, row, rows, in.zero);
        in.data = seen;
        in.rs = m->K;
        k->pack_a(to, &in, 0, rows, m->K);
    }
}

/* Of a superblock of so many tiles. */
static void run_task(const Work *w, int64_t tiles, int64_t i)
{
    const Blocks *b = &w->b;
    const int64_t from = i / b->ncols * b->tiles, to = from + b->tiles < tiles ? from + b->tiles : tiles;
    if (from < to) run_block(w, from, to, i % b->ncols);
}

/* Block i of all, by thread `self`: tiles from i * b.tiles on, packed to the thread's room. */
static void own_block(Work w, int64_t i, int self)
{
    const int64_t first = i * w.b.tiles, left = w.cut.tiles - first, n = left < w.b.tiles ? left : w.b.tiles;
    uint8_t *seen = w.seen + (size_t)self * seen_bytes(w.m, &w.cut);
    w.room += self * w.b.tiles * w.cut.each;
    w.place += self * w.b.tiles;
    for (int64_t at = 0; at < n; at++) pack_tile(&w, first, at, seen);
    run_block(&w, 0, n, 0);
}

void integer_matmul(const IntegerMatmul *m, void *scratch, int threads)
{
    if ((double)m->M * (double)m->N * (double)m->K < WORTH_THREADS) threads = 1;
    Work w = {.m = m, .room = scratch, .picture = (char *)(uintptr_t)m->a.data};
    cut_rows(m, &w.cut);
    w.b = blocks_of(m, &w.cut, threads);
    const size_t each = seen_bytes(m, &w.cut);
    w.place = (Place *)(void *)(w.room + whole_lines(w.b.super * w.cut.each));
    if (w.cut.padded) {
        w.picture = w.room + tiles_bytes(&w.b, &w.cut);
        pad(m, &w.cut, (uint8_t *)w.picture, threads);
    }
    w.seen = (uint8_t *)scratch + tiles_bytes(&w.b, &w.cut) + padded_bytes(m, &w.cut);
    if (w.b.own) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
        for (int64_t i = 0; i < w.b.nrows; i++) own_block(w, i, team_part());
        return;
    }
    for (int64_t first = 0; first < w.cut.tiles; first += w.b.super) {
        const int64_t left = w.cut.tiles - first, tiles = left < w.b.super ? left : w.b.super,
                      tasks = w.b.nrows * w.b.ncols;
        if (threads == 1) {
            for (int64_t i = 0; i < tiles; i++) pack_tile(&w, first, i, w.seen);
            for (int64_t i = 0; i < tasks; i++) run_task(&w, tiles, i);
            continue;
        }
#pragma omp parallel for num_threads(threads)
        for (int64_t i = 0; i < tiles; i++) pack_tile(&w, first, i, w.seen + (size_t)team_part() * each);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
        for (int64_t i = 0; i < tasks; i++) run_task(&w, tiles, i);
    }
}
