/* Tiles of convolutions: up to MR (of four vectors MR4) outputs by NV vectors of W words. Included with W, MR, NV, MR4,
 * PER_WORD and MULTIPLY(sum, word of a, vector of b), as product_tile.h; MR4 is 0 where registers do not suffice.
 * Contract in kernel/conv.h.
 */
typedef float V __attribute__((vector_size(W * 4)));
#include "kernel/gen/above.h"
typedef float VU __attribute__((vector_size(W * 4), aligned(4), may_alias));

typedef const float __attribute__((may_alias)) Word; /* of a: a float, or two bf16 */

typedef uint32_t Words __attribute__((vector_size(W * 4)));
typedef uint16_t Halves __attribute__((vector_size(W * 2), aligned(2), may_alias));

enum { MOST_V = 4, BYTES = 4 / PER_WORD };
#define OWN_TYPE (PER_WORD == 2 ? DT_BF16 : DT_F32) /* of results that are finished in registers */

INLINE V get_half(const void *p)
{
#ifdef __AVX512F__ /* which gcc 12 would convert by quarters */
    return (V)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16);
#else
    return (V)(__builtin_convertvector(*(const Halves *)p, Words) << 16);
#endif
}

/* bf16_bits of each. */
INLINE void put_half(void *p, V x)
{
#ifdef __AVX512BF16__
    _mm256_storeu_si256(p, (__m256i)_mm512_cvtneps_pbh((__m512)x));
#else
    Words u = (Words)x, nan = (Words)(x != x), r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    *(Halves *)p = __builtin_convertvector((nan & (u >> 16 | 0x40)) | (~nan & r), Halves);
#endif
}

/* Results of the kernel's own type. */
INLINE V get_own(const char *p)
{
    if (OWN_TYPE == DT_BF16) return get_half(p);
    return *(const VU *)(const void *)p;
}
INLINE void put_own(char *p, V x)
{
    if (OWN_TYPE == DT_BF16) put_half(p, x);
    else *(VU *)(void *)p = x;
}

/* What a convolution without an activation or with ReLU does with a sum. */
INLINE void finish_vector(char *c, V x, bool sum, bool half, bool relu)
{
    if (sum && half) x += get_half(c);
    else if (sum) x += *(const VU *)(const void *)c;
    if (relu) x = above((V){0}, x);
    if (half) put_half(c, x);
    else *(VU *)(void *)c = x;
}

INLINE void load_bias(const ConvTile *t, int nv, V *bias)
{
#pragma GCC unroll 4
    for (int v = 0; v < nv; v++)
        if (!t->bias) bias[v] = -(V){0}; /* x + -0 is x, for -0 too */
        else if (t->bias_type == DT_BF16) bias[v] = get_half((const uint16_t *)t->bias + v * W);
        else bias[v] = *(const VU *)((const float *)t->bias + v * W);
}

INLINE void finish_plain(const ConvTile *t, const V *s, const V *bias, int nv, bool half, bool relu)
{
    for (int r = 0; r < t->rows; r++, s += nv)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            finish_vector((char *)t->c[r] + v * W * (half ? 2 : 4), s[v] + bias[v], t->sum, half, relu);
}

/* Any activation, any columns: rows of sums `step` floats apart. One function for all widths: it is large. */
static __attribute__((noinline)) void finish_any(const ConvTile *t, const float *s, int step)
{
    ProductOut o = {.bias = t->bias,
                    .c_type = t->c_type,
                    .bias_type = t->bias_type,
                    .residual_type = t->c_type,
                    .act_last = true,
                    .act = t->act};
    for (int r = 0; r < t->rows; r++, s += step) {
        o.c = t->c[r];
        o.residual = t->sum ? o.c : NULL;
        for (int c = 0; c < t->cols; c += W)
            finish_cols(&o, s + c, 0, c, 1, W, t->cols - c < W ? t->cols - c : W);
    }
}

INLINE void finish_rows_of(const ConvTile *t, const V *s, int nv)
{
    bool half = t->c_type == DT_BF16, relu = t->act == GEMM_RELU;
    if (t->cols == nv * W && (relu || t->act == GEMM_NONE)) {
        V bias[MOST_V];
        load_bias(t, nv, bias);
        if (half && relu) finish_plain(t, s, bias, nv, true, true);
        else if (half) finish_plain(t, s, bias, nv, true, false);
        else if (relu) finish_plain(t, s, bias, nv, false, true);
        else finish_plain(t, s, bias, nv, false, false);
        return;
    }
    finish_any(t, (const float *)s, nv * W);
}

static __attribute__((noinline)) void finish_1(const ConvTile *t, const V *s) { finish_rows_of(t, s, 1); }
#if NV > 1
static __attribute__((noinline)) void finish_2(const ConvTile *t, const V *s) { finish_rows_of(t, s, 2); }
#endif
#if NV > 2
static __attribute__((noinline)) void finish_3(const ConvTile *t, const V *s) { finish_rows_of(t, s, 3); }
#endif
#if MR4
static __attribute__((noinline)) void finish_4(const ConvTile *t, const V *s) { finish_rows_of(t, s, 4); }
#endif

/* rows x nv vectors, of a panel `width` words wide. One multiply-add a word, in the order of taps and words, into one
 * accumulator an element. */
INLINE void conv_tile(const ConvTile *t, int rows, int nv, int width)
{
    V s[MR][MOST_V], out[MR * MOST_V];
    const char *ahead = t->ahead;
    int64_t pace = t->pace;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        char *c = (char *)t->c[r] + t->c_ahead;
        __builtin_prefetch(c, 1, 3); /* what is far away is fetched while the tile is computed */
        if (nv * W * BYTES > LINE) __builtin_prefetch(c + LINE, 1, 3);
        if (nv * W * BYTES > 2 * LINE) __builtin_prefetch(c + 2 * LINE, 1, 3);
        if (nv * W * BYTES > 3 * LINE) __builtin_prefetch(c + 3 * LINE, 1, 3);
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) s[r][v] = (V){0};
    }
    for (int64_t k = 0; k < t->taps; k++) {
        const float *b = (const float *)t->b + t->at[k];
        const char *p[MR];
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) p[r] = (const char *)t->row[r] + t->jump[k];
        for (int64_t i = 0; i < t->words; i++, b += width, ahead += pace) {
            V y[MOST_V];
            __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++) y[v] = *(const V *)(b + v * W);
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++) {
                float one = *(Word *)(const void *)(p[r] + 4 * i);
#pragma GCC unroll 4
                for (int v = 0; v < nv; v++) s[r][v] = MULTIPLY(s[r][v], one, y[v]);
            }
        }
    }
    if (t->cols == nv * W && t->c_type == OWN_TYPE && (t->act == GEMM_RELU || t->act == GEMM_NONE)) {
        V bias[MOST_V], low = (V){0} - (t->act == GEMM_RELU ? 0.0f : INFINITY);
        load_bias(t, nv, bias);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++) s[r][v] += bias[v];
        if (t->sum) {
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
                for (int v = 0; v < nv; v++) s[r][v] += get_own((const char *)t->c[r] + v * W * BYTES);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++) put_own((char *)t->c[r] + v * W * BYTES, above(low, s[r][v]));
        return;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) out[r * nv + v] = s[r][v];
    if (nv == 1) finish_1(t, out);
#if NV > 1
    else if (nv == 2) finish_2(t, out);
#endif
#if NV > 2
    else if (nv == 3) finish_3(t, out);
#endif
#if MR4
    else if (nv == 4) finish_4(t, out);
#endif
}

INLINE void conv_tile_of(const ConvTile *t, int rows)
{
    if (NV > 2 && t->cols > 2 * W) conv_tile(t, rows, NV, NV * W);
    else if (NV > 1 && t->cols > W) conv_tile(t, rows, 2, NV * W);
    else conv_tile(t, rows, 1, NV * W);
}

INLINE void wide_of(const ConvTile *t, int rows)
{
    if (t->cols > 3 * W) conv_tile(t, rows, 4, 4 * W);
    else if (t->cols > 2 * W) conv_tile(t, rows, 3, 4 * W);
    else if (t->cols > W) conv_tile(t, rows, 2, 4 * W);
    else conv_tile(t, rows, 1, 4 * W);
}

/* clang-format off */
#if MR == 9
#define HEIGHTS(X, name, T) \
    X(name, T, 1) X(name, T, 2) X(name, T, 3) X(name, T, 4) X(name, T, 5) X(name, T, 6) X(name, T, 7) X(name, T, 8) \
    X(name, T, 9)
#elif MR == 8
#define HEIGHTS(X, name, T) \
    X(name, T, 1) X(name, T, 2) X(name, T, 3) X(name, T, 4) X(name, T, 5) X(name, T, 6) X(name, T, 7) X(name, T, 8)
#elif MR == 6
#define HEIGHTS(X, name, T) X(name, T, 1) X(name, T, 2) X(name, T, 3) X(name, T, 4) X(name, T, 5) X(name, T, 6)
#elif MR == 4
#define HEIGHTS(X, name, T) X(name, T, 1) X(name, T, 2) X(name, T, 3) X(name, T, 4)
#else
#define HEIGHTS(X, name, T) X(name, T, 1)
#endif
#define WIDE_HEIGHTS(X, name, T) X(name, T, 1) X(name, T, 2) X(name, T, 3) X(name, T, 4) X(name, T, 5) X(name, T, 6)
#define OF_HEIGHT(name, T, rows) static void name##_##rows(const T *t) { name##_of(t, rows); }
#define NAMED(name, T, rows) name##_##rows,
/* name_any: name_of(t, rows) by a function of each height, whose sums stay in registers. */
#define ANY_HEIGHT(heights, name, T)                                                                                   \
    heights(OF_HEIGHT, name, T)                                                                                        \
    static void name##_any(const T *t)                                                                                 \
    {                                                                                                                  \
        static void (*const of[])(const T *) = {NULL, heights(NAMED, name, T)};                                        \
        of[t->rows](t);                                                                                                \
    }
ANY_HEIGHT(HEIGHTS, conv_tile, ConvTile)
#if MR4
ANY_HEIGHT(WIDE_HEIGHTS, wide, ConvTile)
#endif
/* clang-format on */
