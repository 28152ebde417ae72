/* Integer products put together of tiles. Contract in gemm_integer.h.
 *
 * Rows are packed first, a superblock of them at a time; then tasks of some tiles by some panels go to the threads.
 * Within a task, panels are outside: a panel (K x nr bytes, in L1 or L2) meets every tile of the task (in L2), and the
 * next panel is fetched meanwhile.
 */
#include "kernel/gemm_integer.h"
#include "kernel/kernel.h"

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

size_t integer_scratch(const IntegerMatmul *m, int threads)
{
    const Blocks b = blocks_of(m, threads);
    return (size_t)(b.tiles * b.nrows) * kernels()->integer.a_bytes(m->K);
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
            k->tile(&t);
            k->finish(m, acc, row, col, t.rows, t.cols);
        }
    }
    if (k->end) k->end();
}

static void pack_tile(const IntegerMatmul *m, int64_t first, int64_t last, int64_t i, char *room)
{
    const IntegerKernels *k = &kernels()->integer;
    int64_t row = first + i * k->mr;
    k->pack_a(room + (size_t)i * k->a_bytes(m->K), &m->a, row, (int)(last - row < k->mr ? last - row : k->mr), m->K);
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
    for (int64_t first = 0; first < m->M; first += b.super) {
        const int64_t last = first + b.super < m->M ? first + b.super : m->M, tiles = over(last - first, mr),
                      tasks = b.nrows * b.ncols;
        if (threads == 1) {
            for (int64_t i = 0; i < tiles; i++) pack_tile(m, first, last, i, scratch);
            for (int64_t i = 0; i < tasks; i++) run_task(m, &b, first, last, i, scratch);
            continue;
        }
#pragma omp parallel for num_threads(threads)
        for (int64_t i = 0; i < tiles; i++) pack_tile(m, first, last, i, scratch);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
        for (int64_t i = 0; i < tasks; i++) run_task(m, &b, first, last, i, scratch);
    }
}
