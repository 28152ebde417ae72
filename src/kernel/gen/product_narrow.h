/* Panels of pairs of bf16, [K / 2][NR], for tiles of floats (product_tile.h, whose includer includes this, too): made
 * floats, or multiplied as they are.
 */
#include "kernel/gen/product_pairs.h"

typedef uint32_t U __attribute__((vector_size(W * 4)));

INLINE V first_of(const uint32_t *pairs) { return (V)(*(const U *)pairs << 16); }
INLINE V second_of(const uint32_t *pairs) { return (V)(*(const U *)pairs & 0xffff0000u); }

/* n elements of K, or one more. */
static void widen(float *to, const void *b, int64_t n)
{
    const uint32_t *pairs = b;
    for (int64_t k = 0; k < n; k += 2, to += 2 * NR, pairs += NR)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) {
            *(V *)(to + v * W) = first_of(pairs + v * W);
            *(V *)(to + NR + v * W) = second_of(pairs + v * W);
        }
}

/* Of weights that are read once, memory is what takes long: lines of the next panels come meanwhile. */
INLINE void narrow_tile_of(int rows, int nv, const ProductTile *t)
{
    int64_t words = (t->n + 1) / 2, pace = words ? t->lines * LINE / words : 0;
    const float *a = t->a;
    const uint32_t *b = t->b;
    const char *ahead = t->ahead;
    V s[MR][NV], y[NV];
    sums_begin(rows, nv, t->acc, t->add, s);
    for (int64_t k = 0; k < t->n; k += 2, a += 2 * rows, b += NR, ahead += pace) {
        __builtin_prefetch(ahead, 0, 2);
        if (pace > LINE) __builtin_prefetch(ahead + LINE, 0, 2);
        if (pace > 2 * LINE) __builtin_prefetch(ahead + 2 * LINE, 0, 2);
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) y[v] = first_of(b + v * W);
        sums_times(rows, nv, (const char *)a, 4, y, s);
        if (k + 1 == t->n) break;
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) y[v] = second_of(b + v * W);
        sums_times(rows, nv, (const char *)(a + rows), 4, y, s);
    }
    sums_end(rows, nv, t->acc, s);
}

#define NARROW(rows)                                                                                                   \
    if (t->cols > 2 * W) narrow_tile_of(rows, NV, t);                                                                  \
    else if (t->cols > W) narrow_tile_of(rows, 2, t);                                                                  \
    else narrow_tile_of(rows, 1, t);                                                                                   \
    break;

/* PRODUCT_FEW rows at most. */
static void narrow(const ProductTile *t)
{
    switch (t->rows) {
    case 1: NARROW(1)
    case 2: NARROW(2)
    case 3: NARROW(3)
    default: NARROW(4)
    }
}

static void pack_narrow(void *to, const ProductIn *b, int64_t col, int cols, int64_t K)
{
    pack_pairs(to, NR, b, col, cols, K);
}
