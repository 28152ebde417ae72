/* Integer products put together of tiles. Contract in gemm_integer.h.
 *
 * A task is a block of rows by a range of panels: its rows are packed once and stay in the cache while every panel
 * passes over them. Few rows are one block, whose columns the threads share.
 */
#include "kernel/gemm_integer.h"
#include "kernel/kernel.h"

enum { BLOCK_BYTES = 96 * 1024, MOST_TILE = 16 * 64 };

typedef struct Blocks {
    int64_t tiles, rows, nrows, panels, ncols; /* tiles and rows of a block; blocks; panels of a range; ranges */
    size_t bytes;                              /* of a task's scratch */
} Blocks;

static int64_t over(int64_t a, int64_t b) { return (a + b - 1) / b; }

static Blocks blocks_of(const IntegerMatmul *m, int threads)
{
    const IntegerKernels *k = &kernels()->integer;
    size_t tile = k->a_bytes(m->K);
    int64_t most = BLOCK_BYTES / (int64_t)tile, panels = over(m->N, k->nr);
    Blocks b = {.tiles = most < 1 ? 1 : most};
    if (b.tiles > over(m->M, k->mr)) b.tiles = over(m->M, k->mr);
    b.rows = b.tiles * k->mr;
    b.nrows = over(m->M, b.rows);
    b.ncols = b.nrows >= 2 * threads ? 1 : over(2 * threads, b.nrows);
    if (b.ncols > panels) b.ncols = panels;
    b.panels = over(panels, b.ncols);
    b.bytes = (size_t)b.tiles * tile;
    return b;
}

size_t integer_scratch(const IntegerMatmul *m, int threads) { return blocks_of(m, threads).bytes * (size_t)threads; }

/* Sums as floats through the epilogue, from (row, col) on. */
static void finish_tile(const IntegerMatmul *m, const int32_t *acc, int64_t row, int64_t col, int rows, int cols)
{
    const Kernels *k = kernels();
    const int nr = k->integer.nr;
    float y[MOST_TILE], line[MOST_TILE];
    for (int r = 0; r < rows; r++) {
        float by = m->scale_a[(row + r) * m->step_a];
        const float *per = m->scale_b + col * m->step_b;
        if (m->step_b)
            for (int j = 0; j < cols; j++) y[r * nr + j] = (float)acc[r * nr + j] * (by * per[j]);
        else
            for (int j = 0; j < cols; j++) y[r * nr + j] = (float)acc[r * nr + j] * (by * *per);
        for (int j = cols; j < nr; j++) y[r * nr + j] = 0;
    }
    ProductDone done = {.out = &m->out, .acc = y, .row = row, .col = col, .rows = rows, .cols = cols};
    if (!m->q) {
        k->product.f32.finish(&done);
        return;
    }
    ProductOut here = m->out; /* c is this tile alone */
    size_t size = here.bias ? dtype_size(here.bias_type) : 0, more = here.residual ? dtype_size(here.residual_type) : 0;
    here.c = line;
    here.c_type = DT_F32;
    here.c_step = nr;
    if (here.bias) here.bias = (const char *)here.bias + (size_t)col * size;
    if (here.residual) here.residual = (const char *)here.residual + (size_t)(row * here.residual_step + col) * more;
    done = (ProductDone){.out = &here, .acc = y, .rows = rows, .cols = cols};
    k->product.f32.finish(&done);
    for (int r = 0; r < rows; r++) {
        int64_t at = (row + r) * m->q_step + col;
        if (m->q_type == DT_I8) k->integer.round_i8((int8_t *)m->q + at, line + r * nr, cols, &m->rounding);
        else k->integer.round_u8((uint8_t *)m->q + at, line + r * nr, cols, &m->rounding);
    }
}

static void run_block(const IntegerMatmul *m, const Blocks *b, int64_t block, int64_t range, char *room)
{
    const IntegerKernels *k = &kernels()->integer;
    const size_t bytes = k->a_bytes(m->K);
    int64_t first = block * b->rows, last = first + b->rows < m->M ? first + b->rows : m->M;
    int64_t from = range * b->panels, to = from + b->panels, all = over(m->N, k->nr);
    int32_t acc[MOST_TILE];
    if (to > all) to = all;
    for (int64_t row = first, i = 0; row < last; row += k->mr, i++)
        k->pack_a(room + (size_t)i * bytes, &m->a, row, (int)(last - row < k->mr ? last - row : k->mr), m->K);
    for (int64_t panel = from; panel < to; panel++) {
        int64_t col = panel * k->nr;
        int cols = (int)(m->N - col < k->nr ? m->N - col : k->nr);
        for (int64_t row = first, i = 0; row < last; row += k->mr, i++) {
            int rows = (int)(last - row < k->mr ? last - row : k->mr);
            k->tile(acc, room + (size_t)i * bytes, m->b, panel, rows, m->K, m->zero_b);
            finish_tile(m, acc, row, col, rows, cols);
        }
    }
}

void integer_matmul(const IntegerMatmul *m, void *scratch, int threads)
{
    const Blocks b = blocks_of(m, threads);
    const int64_t n = b.nrows * b.ncols;
    if (n == 1 || threads == 1) {
        for (int64_t i = 0; i < n; i++) run_block(m, &b, i / b.ncols, i % b.ncols, scratch);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int64_t t = 0; t < threads; t++)
        for (int64_t i = t; i < n; i += threads)
            run_block(m, &b, i / b.ncols, i % b.ncols, (char *)scratch + (size_t)t * b.bytes);
}
