/* Integer products put together of tiles. Contract in gemm_integer.h.
 *
 * Rows are packed first, a superblock of them at a time; then tasks of some tiles by some panels go to the threads.
 * Within a task, panels are outside: a panel (K x nr bytes, in L1 or L2) meets every tile of the task (in L2), and the
 * next panel is fetched meanwhile.
 */
#include "kernel/gemm_integer.h"
#include <string.h>
#include "kernel/kernel.h"
#include "team/team.h"

/* BLOCK_BYTES: of a task's rows, in L2. */
enum { BLOCK_BYTES = 320 * 1024, SUPERBLOCK = 1024, MOST_TILE = 32 * 48, LINE = 64, WORTH_THREADS = 1 << 21 };

typedef struct Blocks {
    int64_t tiles, rows, nrows; /* tiles and rows of a block; blocks of a superblock */
    int64_t panels, ncols;      /* panels of a range; ranges */
    int64_t super;              /* rows of a superblock, whole blocks */
} Blocks;

static int64_t over(int64_t a, int64_t b) { return (a + b - 1) / b; }

static Blocks blocks_of(const IntegerMatmul *m, int threads)
{
    const IntegerKernels *k = &kernels()->integer;
    int64_t most = BLOCK_BYTES / (int64_t)k->a_bytes(m->K), panels = over(m->N, k->nr),
            tiles = over(m->M < SUPERBLOCK ? m->M : SUPERBLOCK, k->mr);
    Blocks b = {.nrows = over(tiles, most < 1 ? 1 : most)};
    b.tiles = over(tiles, b.nrows);
    b.rows = b.tiles * k->mr;
    b.super = b.nrows * b.rows;
    b.ncols = threads == 1 || b.nrows >= 4 * threads ? 1 : over(4 * threads, b.nrows);
    if (b.ncols > panels) b.ncols = panels;
    b.panels = over(panels, b.ncols);
    return b;
}

static size_t packed_bytes(const IntegerMatmul *m, const Blocks *b)
{
    return (size_t)(b->tiles * b->nrows) * kernels()->integer.a_bytes(m->K);
}

/* Of a tile's rows that windows see, for each thread. */
static size_t seen_bytes(const IntegerMatmul *m)
{
    return m->windows ? (size_t)(over(kernels()->integer.mr * m->K, LINE) * LINE) : 0;
}

size_t integer_scratch(const IntegerMatmul *m, int threads)
{
    const Blocks b = blocks_of(m, threads);
    return packed_bytes(m, &b) + (size_t)threads * seen_bytes(m);
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
            const uint8_t *from = picture + (z * w->in[1] + y) * wide;
            if (z < 0 || z >= w->in[0] || y < 0 || y >= w->in[1]) memset(to, none, line);
            else if (whole) copy_few(to, from + at[2] * w->C, line);
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

/* ------------------------------------------------------------------ blocks */

/* What a tile's epilogue adds to and writes comes into L1 while its sums are made. */
static void fetch_ahead(const IntegerMatmul *m, int64_t row, int64_t col, int rows, int cols)
{
    const ProductOut *o = &m->out;
    const size_t size = o->residual ? dtype_size(o->residual_type) : 0, wide = (size_t)cols * size;
    const char *more = (const char *)o->residual + (size_t)(row * o->residual_step + col) * size;
    for (int r = 0; o->residual && r < rows; r++, more += (size_t)o->residual_step * size)
        for (size_t at = 0; at < wide; at += LINE) __builtin_prefetch(more + at, 0, 3);
}

/* Rows [first, last), packed at `room`, by the panels of a range. */
static void run_block(const IntegerMatmul *m, const Blocks *b, int64_t first, int64_t last, int64_t range,
                      const char *room)
{
    const IntegerKernels *k = &kernels()->integer;
    const size_t bytes = k->a_bytes(m->K), panel_bytes = k->b_bytes(m->K, 1);
    const int64_t from = range * b->panels, all = over(m->N, k->nr),
                  to = from + b->panels < all ? from + b->panels : all, tiles = over(last - first, k->mr);
    int32_t acc[MOST_TILE];
    IntegerTile t = {.acc = acc, .b = m->b, .K = m->K, .zero_b = m->zero_b};
    if (k->begin) k->begin();
    for (t.panel = from; t.panel < to; t.panel++) {
        int64_t col = t.panel * k->nr;
        const char *ahead = (const char *)m->b + (size_t)(t.panel + (t.panel + 1 < to)) * panel_bytes;
        t.cols = (int)(m->N - col < k->nr ? m->N - col : k->nr);
        t.lines = (int)over((int64_t)panel_bytes / LINE, tiles);
        for (int64_t i = 0, row = first; i < tiles; i++, row += k->mr) {
            t.rows = (int)(last - row < k->mr ? last - row : k->mr);
            t.a = room + (size_t)i * bytes;
            t.next_a = room + (size_t)(i + 1 < tiles ? i + 1 : 0) * bytes;
            t.ahead = ahead + i * t.lines * LINE;
            fetch_ahead(m, row, col, t.rows, t.cols);
            k->tile(&t);
            k->finish(m, acc, row, col, t.rows, t.cols);
        }
    }
    if (k->end) k->end();
}

/* Tile i of rows [first, last) to `room`; `seen`: room for what its windows see. */
static void pack_tile(const IntegerMatmul *m, int64_t first, int64_t last, int64_t i, char *room, uint8_t *seen)
{
    const IntegerKernels *k = &kernels()->integer;
    const int64_t row = first + i * k->mr;
    const int rows = (int)(last - row < k->mr ? last - row : k->mr);
    void *to = room + (size_t)i * k->a_bytes(m->K);
    IntegerIn in = m->a;
    if (!m->windows) {
        k->pack_a(to, &in, row, rows, m->K);
        return;
    }
    integer_see(m->windows, seen, in.data, row, rows, in.zero);
    in.data = seen;
    in.rs = m->K;
    k->pack_a(to, &in, 0, rows, m->K);
}

static void run_task(const IntegerMatmul *m, const Blocks *b, int64_t first, int64_t last, int64_t i, const char *room)
{
    int64_t row = first + i / b->ncols * b->rows, end = row + b->rows < last ? row + b->rows : last;
    size_t at = (size_t)(i / b->ncols * b->tiles) * kernels()->integer.a_bytes(m->K);
    if (row < end) run_block(m, b, row, end, i % b->ncols, room + at);
}

void integer_matmul(const IntegerMatmul *m, void *scratch, int threads)
{
    if ((double)m->M * (double)m->N * (double)m->K < WORTH_THREADS) threads = 1;
    const Blocks b = blocks_of(m, threads);
    const int mr = kernels()->integer.mr;
    const size_t each = seen_bytes(m);
    uint8_t *seen = (uint8_t *)scratch + packed_bytes(m, &b);
    for (int64_t first = 0; first < m->M; first += b.super) {
        const int64_t last = first + b.super < m->M ? first + b.super : m->M, tiles = over(last - first, mr),
                      tasks = b.nrows * b.ncols;
        if (threads == 1) {
            for (int64_t i = 0; i < tiles; i++) pack_tile(m, first, last, i, scratch, seen);
            for (int64_t i = 0; i < tasks; i++) run_task(m, &b, first, last, i, scratch);
            continue;
        }
#pragma omp parallel for num_threads(threads)
        for (int64_t i = 0; i < tiles; i++)
            pack_tile(m, first, last, i, scratch, seen + (size_t)team_part() * each);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
        for (int64_t i = 0; i < tasks; i++) run_task(m, &b, first, last, i, scratch);
    }
}
