/* Tiles of matrix products in portable C: registers are vectors of the compiler's, as wide as the ISA level's.
 * One multiply-add a term, in the order of K, into one accumulator an element: a row's bits depend on the row alone.
 * Tile sizes: 9 x 48 with 32 registers of 16, 6 x 16 with 16 of 8, 8 x 12 with 32 of 4, 4 x 12 with 16 of 4. Both
 * operands are packed along K, so that a step of K reads neighbours: [K][rows of the tile], [K][columns of the panel].
 * Products of bf16 are those of f32: a is widened as it is packed, and b, too. With AVX-512 b stays bf16, in pairs
 * along K, and is widened sliver by sliver, or in registers where rows are few. Either way a sum has f32's bits.
 */
#include "kernel/gen/fused.h"
#include "kernel/gen/product_impl.h"
#include "kernel/kernel.h"
#include "kernel/variant.h"

#if defined(__AVX512F__)
enum { W = 16, MR = 9, NV = 3 };
#define LAYOUT "f32 panels of 48"
#elif defined(__AVX2__)
enum { W = 8, MR = 6, NV = 2 };
#define LAYOUT "f32 panels of 16"
#elif defined(QKV_FUSED)
enum { W = 8, MR = 1, NV = 1 };
#define LAYOUT "f32 panels of 8"
#elif defined(__aarch64__)
enum { W = 4, MR = 8, NV = 3 };
#define LAYOUT "f32 panels of 12"
#else
enum { W = 4, MR = 4, NV = 3 };
#define LAYOUT "f32 panels of 12"
#endif
/* SLIVER: bytes of a panel that a tile call takes. From L2, which holds more than L1, come 64 bytes in the time of a
 * word's multiply-adds on AVX2 without a wait, and long calls write sums and read them again half as often. */
#if defined(__AVX2__) && !defined(__AVX512F__)
enum { SLIVER = 48 << 10 };
#else
enum { SLIVER = 24 << 10 };
#endif
enum { NR = W * NV, PER_WORD = 1 };
#define MULTIPLY(sum, one, y) fused(sum, every(one), y)
#include "kernel/gen/product_tile.h"
#if defined(__AVX512F__)
#include "kernel/gen/product_narrow.h"
#endif

/* ------------------------------------------------------------------ packing */

/* n elements from `at` on, `step` apart; the rest of the chunk is zero. Where they are laid out so already, no copy is
 * made. */
static inline const float *chunk_of(float *restrict to, const ProductIn *x, int64_t at, int64_t step, int n)
{
    if (n == LANES && step == 1 && x->dtype == DT_F32 && !x->rounded) return (const float *)x->data + at;
    if (n == LANES && step == 1 && x->dtype == DT_F32) {
        const float *from = (const float *)x->data + at;
        for (int i = 0; i < LANES; i++) to[i] = bf16_value(bf16_bits(from[i]));
        return to;
    }
    if (n == LANES && step == 1 && x->dtype == DT_BF16) {
        const uint16_t *from = (const uint16_t *)x->data + at;
        for (int i = 0; i < LANES; i++) to[i] = bf16_value(from[i]);
        return to;
    }
    for (int i = 0; i < LANES; i++) to[i] = i < n ? element(x, at + i * step) : 0;
    return to;
}

INLINE void copy_columns(float *to, const ProductIn *a, int64_t row, int rows, int64_t K)
{
    const float *from = (const float *)a->data + row;
    const uint16_t *half = (const uint16_t *)a->data + row;
    if (a->dtype == DT_BF16)
        for (int64_t k = 0; k < K; k++, to += rows, half += a->cs)
            for (int r = 0; r < rows; r++) to[r] = bf16_value(half[r]);
    else
        for (int64_t k = 0; k < K; k++, to += rows, from += a->cs) memcpy(to, from, (size_t)rows * sizeof *to);
}

/* A tile of rows that are side by side (a transposed operand: the gradient of a weight): a step of K is a copy. Whole
 * chunks of K, as below. */
static void pack_columns(float *to, const ProductIn *a, int64_t row, int rows, int64_t K)
{
    if (rows == MR) copy_columns(to, a, row, MR, K);
    else if (rows == 8) copy_columns(to, a, row, 8, K); /* of powers of two, as channels often are */
    else if (rows == 4) copy_columns(to, a, row, 4, K);
    else copy_columns(to, a, row, rows, K);
    to += K * rows;
    memset(to, 0, (size_t)((K + LANES - 1) / LANES * LANES - K) * (size_t)rows * sizeof *to);
}

/* Tiles are [K][rows]. */
static void pack_a(void *to, const ProductIn *a, int64_t row, int rows, int64_t K)
{
    float *p = to, line[MR][LANES];
    const float *from[MR];
    if (a->rs == 1 && a->cs != 1 && !a->rounded) {
        pack_columns(to, a, row, rows, K);
        return;
    }
    for (int64_t k = 0; k < K; k += LANES, p += rows * LANES) {
        int n = K - k < LANES ? (int)(K - k) : LANES;
        for (int r = 0; r < rows; r++) from[r] = chunk_of(line[r], a, (row + r) * a->rs + k * a->cs, a->cs, n);
        turn(p, rows, from, rows);
    }
}

#if defined(__AVX512F__)
/* Rows stay rows, floats of whole chunks of pairs: widening alone is half of what turning them is. */
static void line_a(void *to, const ProductIn *a, int64_t row, int rows, int64_t K, int64_t step)
{
    for (int r = 0; r < rows; r++) {
        float *p = (float *)(void *)((char *)to + r * step);
        int64_t at = (row + r) * a->rs, k = 0;
        for (; k + LANES <= K; k += LANES) {
            const float *from = chunk_of(p + k, a, at + k, 1, LANES);
            if (from != p + k) memcpy(p + k, from, LANES * sizeof *p);
        }
        for (; k < (K + CHUNK - 1) / CHUNK * CHUNK; k++) p[k] = k < K ? element(a, at + k) : 0;
    }
}
#endif

/* Panels are [K][NR]. Columns that run along K (a linear's weight) are read a line at a time and turned, 16 columns by
 * all of K: more streams than that are not fetched ahead by the hardware. */
static void pack_b(void *to, const ProductIn *b, int64_t col, int cols, int64_t K)
{
    float *p = to, line[LANES][LANES];
    const float *from[LANES];
    int64_t whole = cols < NR ? 0 : K / LANES * LANES;
    memset(p + whole * NR, 0, (size_t)((K + LANES - 1) / LANES * LANES - whole) * NR * sizeof *p);
    if (b->cs == 1) {
        for (int64_t k = 0; k < K; k++, p += NR)
            if (b->dtype == DT_F32 && !b->rounded)
                memcpy(p, (const float *)b->data + k * b->rs + col, (size_t)cols * sizeof *p);
            else
                for (int j = 0; j < cols; j++) p[j] = element(b, k * b->rs + col + j);
        return;
    }
    for (int j = 0; j < cols; j += LANES) {
        int some = cols - j < LANES ? cols - j : LANES;
        for (int64_t k = 0; k < K; k += LANES) {
            int n = K - k < LANES ? (int)(K - k) : LANES;
            for (int i = 0; i < some; i++) from[i] = chunk_of(line[i], b, k * b->rs + (col + j + i) * b->cs, b->rs, n);
            turn_lines(p + k * NR + j, NR, from, some);
        }
    }
}

/* ------------------------------------------------------------------ the ISA level */

static void finish_some(const ProductOut *o, const float *acc, int64_t row, int64_t col, int rows, int cols)
{
    finish_cols(o, acc, row, col, rows, NR, cols);
}

static void finish(const ProductDone *d) { finish_rows(d, NR, 0, d->rows, finish_some); }

void KERNEL(product_fill)(ProductKernels *k);
void KERNEL(product_fill)(ProductKernels *k)
{
    k->f32 = (ProductKernel){.layout = LAYOUT,
                             .mr = MR,
                             .unit = 1,
                             .nr = NR,
                             .chunk = LANES,
                             .size = 4,
                             .kc = SLIVER / (NR * 4) / LANES * LANES,
                             .nc = 4 * NR,
                             .mc = 32 * MR,
                             .pack_a = pack_a,
                             .pack_b = pack_b,
                             .tile = tile,
                             .finish = finish,
                             .fetches = true,
                             .straight = W,
                             .plain = true};
#if defined(__AVX2__)
    k->f32.few = FEW;
    k->f32.beside = beside;
#endif
#if defined(__AVX512F__)
    k->bf16 = k->f32;
    k->bf16.layout = "bf16 pairs, panels of 48";
    k->bf16.chunk = CHUNK;
    k->bf16.size = 2;
    k->bf16.plain = false;
    k->bf16.kc = k->f32.kc / CHUNK * CHUNK;
    k->bf16.line_a = line_a;
    k->bf16.pack_b = pack_narrow;
    k->bf16.widen = widen;
    k->bf16.narrow = narrow;
    k->bf16.few = 0;
#endif
}
