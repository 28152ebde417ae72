/* Tiles of matrix products in portable C: registers are vectors of the compiler's, as wide as the rung's.
 * One multiply-add a term, in the order of K, into one accumulator an element: a row's bits depend on the row alone.
 * Tile sizes: 14 x 32 with 32 registers of 16, 6 x 16 with 16 of 8, 8 x 12 with 32 of 4, 4 x 12 with 16 of 4.
 */
#include <string.h>
#include "kernel/gemm.h"
#include "kernel/kernel.h"
#include "kernel/variant.h"
#include "kernel/gen/vmath.h"

#if defined(__AVX512F__)
enum { W = 16, MR = 14, NV = 2 };
#define LAYOUT "f32 panels of 32"
#elif defined(__AVX2__)
enum { W = 8, MR = 6, NV = 2 };
#define LAYOUT "f32 panels of 16"
#elif defined(__aarch64__)
enum { W = 4, MR = 8, NV = 3 };
#define LAYOUT "f32 panels of 12"
#else
enum { W = 4, MR = 4, NV = 3 };
#define LAYOUT "f32 panels of 12"
#endif
enum { NR = W * NV, CHUNK = 16, LINE = 64 };

typedef float V __attribute__((vector_size(W * 4)));
typedef float LooseV __attribute__((vector_size(W * 4), aligned(4)));

/* ------------------------------------------------------------------ packing */

static inline float bf16_value(uint16_t h) { return vm_bits((int32_t)((uint32_t)h << 16)); }

/* f32_to_bf16 (tensor/dtype.h) without a branch: to nearest even, NaN stays NaN. */
static inline uint16_t bf16_bits(float f)
{
    uint32_t u = (uint32_t)vm_int(f), rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)(f != f ? u >> 16 | 0x40 : rounded);
}

static inline float element(const ProductIn *x, int64_t at)
{
    if (x->dtype == DT_BF16) return bf16_value(((const uint16_t *)x->data)[at]);
    float f = ((const float *)x->data)[at];
    return x->rounded ? bf16_value(bf16_bits(f)) : f;
}

/* n elements from `at` on, `step` apart; the rest of the chunk is zero. */
static inline void chunk_of(float *restrict to, const ProductIn *x, int64_t at, int64_t step, int n)
{
    if (n == CHUNK && step == 1 && x->dtype == DT_F32 && !x->rounded) {
        memcpy(to, (const float *)x->data + at, CHUNK * sizeof *to);
        return;
    }
    if (n == CHUNK && step == 1 && x->dtype == DT_BF16) {
        const uint16_t *from = (const uint16_t *)x->data + at;
        for (int i = 0; i < CHUNK; i++) to[i] = bf16_value(from[i]);
        return;
    }
    for (int i = 0; i < CHUNK; i++) to[i] = i < n ? element(x, at + i * step) : 0;
}

static void pack_a(void *to, const ProductIn *a, int64_t row, int rows, int64_t K)
{
    float *p = to;
    for (int64_t k = 0; k < K; k += CHUNK) {
        int n = K - k < CHUNK ? (int)(K - k) : CHUNK;
        for (int r = 0; r < rows; r++, p += CHUNK) chunk_of(p, a, (row + r) * a->rs + k * a->cs, a->cs, n);
    }
}

/* Panels are [K][NR]. Columns that lie along K (a linear's weight) are read a line at a time and turned. */
static void pack_b(void *to, const ProductIn *b, int64_t panel, int64_t K, int64_t N)
{
    int64_t col = panel * NR;
    int cols = N - col < NR ? (int)(N - col) : NR;
    float *p = to;
    if (cols < NR) memset(p, 0, (size_t)K * NR * sizeof *p);
    for (int64_t k = 0; k < K; k += CHUNK, p += CHUNK * NR) {
        int n = K - k < CHUNK ? (int)(K - k) : CHUNK;
        if (b->cs == 1) {
            for (int i = 0; i < n; i++)
                if (cols == NR && b->dtype == DT_F32 && !b->rounded)
                    memcpy(p + i * NR, (const float *)b->data + (k + i) * b->rs + col, NR * sizeof *p);
                else
                    for (int j = 0; j < cols; j++) p[i * NR + j] = element(b, (k + i) * b->rs + col + j);
            continue;
        }
        for (int j = 0; j < cols; j++) {
            float line[CHUNK];
            chunk_of(line, b, k * b->rs + (col + j) * b->cs, b->rs, n);
            for (int i = 0; i < n; i++) p[i * NR + j] = line[i];
        }
    }
}

/* ------------------------------------------------------------------ one tile */

__attribute__((always_inline)) static inline void tile_of(int rows, float *acc, const float *a, const float *b, int64_t n, bool add, const char *ahead, int lines)
{
    V s[MR][NV];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) s[r][v] = add ? *(const V *)(acc + r * NR + v * W) : (V){0};
    int each = (int)(lines * CHUNK / (n + CHUNK)) + 1;
    for (; n > 0; n -= CHUNK) {
        const float *x = a, *end = a + (n < CHUNK ? n : CHUNK);
        for (int i = 0; i < each && lines > 0; i++, lines--, ahead += LINE) __builtin_prefetch(ahead, 0, 2);
        for (; x < end; x++, b += NR) {
            V y[NV];
#pragma GCC unroll 4
            for (int v = 0; v < NV; v++) y[v] = *(const V *)(b + v * W);
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++) {
                float one = x[r * CHUNK];
#pragma GCC unroll 4
                for (int v = 0; v < NV; v++) s[r][v] += one * y[v];
            }
        }
        a += rows * CHUNK;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) *(V *)(acc + r * NR + v * W) = s[r][v];
}

#define TILE(rows) \
    case rows: tile_of(rows, acc, a, b, n, add, ahead, lines); break;
static void tile(float *acc, const void *a, const void *b, int64_t n, int rows, bool add, const char *ahead, int lines)
{
    switch (rows) {
        TILE(1) TILE(2) TILE(3) TILE(4)
#if defined(__AVX2__) || defined(__aarch64__)
        TILE(5) TILE(6)
#endif
#if defined(__AVX512F__) || defined(__aarch64__)
        TILE(7) TILE(8)
#endif
#if defined(__AVX512F__)
        TILE(9) TILE(10) TILE(11) TILE(12) TILE(13) TILE(14)
#endif
    }
}

/* ------------------------------------------------------------------ epilogue */

static inline void load_row(float *to, const void *from, DType t, int64_t at, int n)
{
    if (t == DT_F32) memcpy(to, (const float *)from + at, (size_t)n * sizeof *to);
    else
        for (int i = 0; i < n; i++) to[i] = bf16_value(((const uint16_t *)from)[at + i]);
}

__attribute__((always_inline)) static inline void finish_cols(const ProductOut *o, const float *acc, int64_t row, int64_t col, int rows, int step, int cols)
{
    float bias[NR], more[NR], t[NR];
    if (o->bias) load_row(bias, o->bias, o->bias_type, col, cols);
    for (int r = 0; r < rows; r++, acc += step) {
        for (int i = 0; i < cols; i++) t[i] = acc[i];
        if (o->bias)
            for (int i = 0; i < cols; i++) t[i] += bias[i];
        switch (o->act) {
        case GEMM_RELU:
            for (int i = 0; i < cols; i++) t[i] = t[i] < 0 ? 0 : t[i];
            break;
        case GEMM_GELU_ERF:
            for (int i = 0; i < cols; i++) t[i] = vm_gelu(t[i]);
            break;
        case GEMM_GELU_TANH:
            for (int i = 0; i < cols; i++) t[i] = vm_gelu_tanh(t[i]);
            break;
        case GEMM_SILU:
            for (int i = 0; i < cols; i++) t[i] = vm_silu(t[i]);
            break;
        case GEMM_QUICK_GELU:
            for (int i = 0; i < cols; i++) t[i] = vm_silu(1.702f * t[i]) * (1 / 1.702f);
            break;
        default: break;
        }
        if (o->residual) {
            load_row(more, o->residual, o->residual_type, (row + r) * o->residual_step + col, cols);
            for (int i = 0; i < cols; i++) t[i] = o->times ? t[i] * more[i] : t[i] + more[i];
        }
        int64_t at = (row + r) * o->c_step + col;
        if (o->c_type == DT_F32) memcpy((float *)o->c + at, t, (size_t)cols * sizeof *t);
        else
            for (int i = 0; i < cols; i++) ((uint16_t *)o->c)[at + i] = bf16_bits(t[i]);
    }
}

static void finish(const ProductOut *o, const float *acc, int64_t row, int64_t col, int rows, int cols)
{
    if (cols == NR) finish_cols(o, acc, row, col, rows, NR, NR);
    else finish_cols(o, acc, row, col, rows, NR, cols);
}

void KERNEL(product_fill)(ProductKernels *k);
void KERNEL(product_fill)(ProductKernels *k)
{
    k->f32 = (ProductKernel){.layout = LAYOUT, .mr = MR, .unit = 1, .nr = NR, .chunk = CHUNK, .size = 4, .kc = 256, .nc = 4 * NR, .mc = 32 * MR,
                             .pack_a = pack_a, .pack_b = pack_b, .tile = tile, .finish = finish};
}
