/* bf16 operands of AVX-512 and AMX: two neighbours along K are one word. Lines of 32 elements are 16 words. */
#ifndef QKV_KERNEL_GEN_PRODUCT_PAIRS_H
#define QKV_KERNEL_GEN_PRODUCT_PAIRS_H
#include "kernel/gen/product_impl.h"

enum { CHUNK = 2 * LANES };

static inline uint16_t bf16_element(const ProductIn *x, int64_t at)
{
    return x->dtype == DT_BF16 ? ((const uint16_t *)x->data)[at] : bf16_bits(((const float *)x->data)[at]);
}

/* n elements from `at` on, `step` apart; the rest of the line is zero. */
static inline void line_of(uint16_t *restrict to, const ProductIn *x, int64_t at, int64_t step, int n)
{
    if (n == CHUNK && step == 1 && x->dtype == DT_BF16) memcpy(to, (const uint16_t *)x->data + at, CHUNK * sizeof *to);
    else if (n == CHUNK && step == 1) {
        const float *from = (const float *)x->data + at;
        for (int i = 0; i < CHUNK; i++) to[i] = bf16_bits(from[i]);
    } else
        for (int i = 0; i < CHUNK; i++) to[i] = i < n ? bf16_element(x, at + i * step) : 0;
}

/* A chunk of K from k on (n elements), columns [col, col + cols) of b, 16 at most, as [16 words][16 columns],
 * words `step` apart; columns from `cols` on are zero. */
__attribute__((always_inline)) static inline void pack_chunk(uint32_t *to, int step, const ProductIn *b, int64_t k,
                                                             int n, int64_t col, int cols)
{
    if (b->cs == 1) {
        for (int p = 0; p < LANES; p++, to += step) {
            uint16_t pair[2][LANES] = {{0}};
            for (int h = 0; h < 2 && 2 * p + h < n; h++)
                for (int j = 0; j < cols; j++) pair[h][j] = bf16_element(b, (k + 2 * p + h) * b->rs + col + j);
            for (int j = 0; j < LANES; j++) to[j] = (uint32_t)pair[0][j] | (uint32_t)pair[1][j] << 16;
        }
        return;
    }
    uint16_t line[LANES][CHUNK];
    const float *from[LANES];
    for (int j = 0; j < LANES; j++) {
        line_of(line[j], b, k * b->rs + (col + j) * b->cs, b->rs, j < cols ? n : 0);
        from[j] = (const float *)(const void *)line[j];
    }
    turn_lines((float *)to, step, from, LANES);
}

/* All of K, chunks `chunk` words apart: more columns at once would be more streams than the hardware fetches ahead. */
static inline void pack_words(uint32_t *to, int step, int64_t chunk, const ProductIn *b, int64_t K, int64_t col,
                              int cols)
{
    for (int64_t k = 0; k < K; k += CHUNK, to += chunk)
        pack_chunk(to, step, b, k, K - k < CHUNK ? (int)(K - k) : CHUNK, col, cols);
}

/* A panel of b, columns [col, col + cols): nr columns, [K / 2][nr]. */
static inline void pack_pairs(void *to, int nr, const ProductIn *b, int64_t col, int cols, int64_t K)
{
    for (int j = 0; j < nr; j += LANES) {
        int left = cols - j, some = left < 0 ? 0 : left < LANES ? left : LANES;
        pack_words((uint32_t *)to + j, nr, LANES * nr, b, K, some ? col + j : 0, some);
    }
}
#endif
