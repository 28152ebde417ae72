/* Products with weights of few bits. Contract in gemm_blocks.h.
 *
 * Rows of x are copied once, padded to eights (integers are followed by the sum of each block); then panels go to the
 * threads, and each meets all rows, a tile of them at a time.
 */
#include "kernel/gemm_blocks.h"
#include <string.h>
#include "kernel/kernel.h"
#include "tensor/dtype.h"

enum { MOST_ACC = 8 * 48, LINE = 64, WORTH_THREADS = 1 << 17 };

static size_t lines(size_t n) { return (n + LINE - 1) / LINE * LINE; }

static int panel_columns(void) { return kernels()->blocks.nr; }

/* ------------------------------------------------------------------ packing */

static bool is_half(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return !(u & 0xffff);
}

static int zero_at(const BlockWeight *w, int64_t i)
{
    if (!w->zero) return 0;
    return w->t == DT_U8 || w->t == DT_U4 ? ((const uint8_t *)w->zero)[i] : ((const int8_t *)w->zero)[i];
}

/* What the numbers of an unsigned type are above those of the signed one. */
static int middle(DType t) { return t == DT_U8 ? 128 : t == DT_U4 ? 8 : 0; }

BlockForm blocks_form(const BlockWeight *w, int64_t N, int64_t K, int64_t block, int bits)
{
    BlockForm f = {.N = N, .K = K, .block = block < K ? block : K, .bits = bits, .halves = true};
    int64_t n = N * blocks_of_row(&f);
    for (int64_t i = 0; i < n; i++) {
        f.halves = f.halves && is_half(w->scale[i]);
        f.zeros = f.zeros || zero_at(w, i) != middle(w->t);
    }
    return f;
}

typedef struct Parts { /* of a panel, in bytes */
    size_t zeros, words, all;
} Parts;

static Parts parts_of(const BlockForm *f, int nr)
{
    size_t numbers = (size_t)blocks_of_row(f) * (size_t)nr;
    Parts p;
    p.zeros = lines(numbers * (f->halves ? 2 : 4));
    p.words = p.zeros + (f->zeros ? lines(numbers) : 0);
    p.all = p.words + lines((size_t)row_eights(f) * (size_t)nr * (size_t)f->bits);
    return p;
}

size_t blocks_bytes(const BlockForm *f)
{
    int nr = panel_columns();
    return (size_t)((f->N + nr - 1) / nr) * parts_of(f, nr).all;
}

/* Element k of column n with its offset; past the end, or in a column that is not there, the zero of the signed type.
 * What pads a block meets zeros of x. */
static unsigned element_at(const BlockForm *f, const BlockWeight *w, int64_t n, int64_t k)
{
    unsigned offset = f->bits == 4 ? 8 : 128;
    if (n >= f->N || k >= f->K) return offset;
    const uint8_t *x = (const uint8_t *)w->data + n * w->rs + k * w->cs;
    int v = w->t == DT_U8 || w->t == DT_U4 ? *x - middle(w->t) : (int8_t)*x;
    return ((unsigned)v + offset) & (f->bits == 4 ? 15u : 255u);
}

static void pack_eight(uint8_t *to, const BlockForm *f, const BlockWeight *w, int64_t n, int64_t k, int nr, int j)
{
    unsigned e[8];
    for (int i = 0; i < 8; i++) e[i] = element_at(f, w, n, k + i);
    for (int i = 0; i < 4; i++) {
        if (f->bits == 4) to[4 * j + i] = (uint8_t)(e[i] | e[4 + i] << 4);
        else {
            to[4 * j + i] = (uint8_t)e[i];
            to[4 * (nr + j) + i] = (uint8_t)e[4 + i];
        }
    }
}

static void pack_panel(char *to, const BlockForm *f, const BlockWeight *w, int64_t col, int nr)
{
    const Parts p = parts_of(f, nr);
    const int64_t blocks = blocks_of_row(f), eights = row_eights(f);
    memset(to, 0, p.words);
    for (int64_t b = 0; b < blocks; b++)
        for (int j = 0; j < nr && col + j < f->N; j++) {
            int64_t from = (col + j) * blocks + b, at = b * nr + j;
            uint32_t u;
            memcpy(&u, &w->scale[from], sizeof u);
            if (f->halves) ((uint16_t *)(void *)to)[at] = (uint16_t)(u >> 16);
            else ((float *)(void *)to)[at] = w->scale[from];
            if (f->zeros) ((int8_t *)to + p.zeros)[at] = (int8_t)(zero_at(w, from) - middle(w->t));
        }
    uint8_t *words = (uint8_t *)to + p.words;
    for (int j = 0; j < nr; j++)
        for (int64_t i = 0; i < eights; i++) pack_eight(words + i * nr * f->bits, f, w, col + j, 8 * i, nr, j);
}

void blocks_pack(void *to, const BlockForm *f, const BlockWeight *w, int threads)
{
    const int nr = panel_columns();
    const size_t bytes = parts_of(f, nr).all;
    const int64_t panels = (f->N + nr - 1) / nr;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && panels > 1)
    for (int64_t i = 0; i < panels; i++) pack_panel((char *)to + (size_t)i * bytes, f, w, i * nr, nr);
}

/* ------------------------------------------------------------------ rows */

static size_t row_bytes(const BlockForm *f, bool integers)
{
    size_t n = (size_t)row_eights(f) * 8;
    return integers ? lines(n) + lines((size_t)blocks_of_row(f) * sizeof(int32_t)) : lines(n * sizeof(float));
}

size_t blocks_scratch(const BlockMatmul *m) { return (size_t)m->M * row_bytes(m->form, m->scale_x != NULL); }

static void copy_row(char *to, const BlockMatmul *m, int64_t row)
{
    const BlockForm *f = m->form;
    const size_t K = (size_t)f->K, n = (size_t)row_eights(f) * 8, size = m->scale_x ? 1 : sizeof(float);
    memcpy(to, (const char *)m->x + (size_t)row * K * size, K * size);
    memset(to + K * size, 0, (n - K) * size);
    if (!m->scale_x) return;
    int32_t *sum = (int32_t *)(void *)(to + lines(n));
    const int8_t *x = (const int8_t *)to;
    for (int64_t b = 0, blocks = blocks_of_row(f); b < blocks; b++) {
        int64_t end = (b + 1) * f->block < f->K ? (b + 1) * f->block : f->K;
        sum[b] = 0;
        for (int64_t k = b * f->block; k < end; k++) sum[b] += x[k];
    }
}

/* ------------------------------------------------------------------ products */

static void run_panel(const BlockMatmul *m, const char *rows, int64_t panel)
{
    const BlockKernels *k = &kernels()->blocks;
    const bool integers = m->scale_x != NULL;
    const size_t step = row_bytes(m->form, integers);
    const int64_t col = panel * k->nr, left = m->form->N - col;
    float acc[MOST_ACC] __attribute__((aligned(LINE))), scale[8];
    for (int64_t row = 0; row < m->M; row += k->mr) {
        BlockTile t = {.form = m->form,
                       .acc = acc,
                       .panel = (const char *)m->packed + (size_t)panel * parts_of(m->form, k->nr).all,
                       .x = rows + (size_t)row * step,
                       .scale_x = integers ? scale : NULL,
                       .rows = (int)(m->M - row < k->mr ? m->M - row : k->mr)};
        for (int r = 0; integers && r < t.rows; r++) scale[r] = m->scale_x[(row + r) * m->step_x];
        (integers ? k->integers : k->floats)(&t);
        kernels()->product.f32.finish(&(ProductDone){.out = &m->out,
                                                     .acc = acc,
                                                     .row = row,
                                                     .col = col,
                                                     .rows = t.rows,
                                                     .cols = (int)(left < k->nr ? left : k->nr)});
    }
}

void blocks_matmul(const BlockMatmul *m, void *scratch, int threads)
{
    const size_t step = row_bytes(m->form, m->scale_x != NULL);
    const int64_t nr = panel_columns(), panels = (m->form->N + nr - 1) / nr;
    char *rows = scratch;
    if ((double)m->M * (double)m->form->N * (double)m->form->K < WORTH_THREADS) threads = 1;
    for (int64_t i = 0; i < m->M; i++) copy_row(rows + (size_t)i * step, m, i);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t i = 0; i < panels; i++) run_panel(m, rows, i);
}
