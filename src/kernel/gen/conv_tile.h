/* Tiles of convolutions: up to MR (of four vectors MR4) outputs by NV vectors of W words. Included with W, MR, NV, MR4,
 * PER_WORD and MULTIPLY(sum, word of a, vector of b), as product_tile.h; MR4 is 0 where registers do not suffice.
 * Contract in kernel/conv.h.
 */
typedef float V __attribute__((vector_size(W * 4)));
typedef float VU __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef int32_t Bits __attribute__((vector_size(W * 4)));

#define INLINE static inline __attribute__((always_inline))

typedef const float __attribute__((may_alias)) Word; /* of a: a float, or two bf16 */

enum { MOST_V = 4 };

/* A row of whole vectors without an activation or with ReLU. */
INLINE void finish_row(const ConvTile *t, char *c, const V *s, const V *bias, int nv, bool half, bool relu)
{
    float more[MOST_V * W];
    if (t->sum && half) load_row(more, c, DT_BF16, 0, nv * W);
    for (int v = 0; v < nv; v++) {
        V x = s[v] + bias[v];
        if (t->sum) x += half ? *(const VU *)(more + v * W) : *(const VU *)(const void *)(c + v * W * 4);
        if (relu) x = (V)((Bits)x & ~(Bits)(x < 0)); /* NaN stays */
        if (half) store_row(c, DT_BF16, v * W, (const float *)&x, W);
        else *(VU *)(void *)(c + v * W * 4) = x;
    }
}

INLINE void finish_rows_of(const ConvTile *t, const V *s, int nv)
{
    bool half = t->c_type == DT_BF16, relu = t->act == GEMM_RELU;
    if (t->cols == nv * W && (relu || t->act == GEMM_NONE)) {
        float one[MOST_V * W];
        V bias[MOST_V];
        if (t->bias) load_row(one, t->bias, t->bias_type, 0, nv * W);
        else
            for (int i = 0; i < nv * W; i++) one[i] = -0.0f; /* x + -0 is x, for -0 too */
        for (int v = 0; v < nv; v++) bias[v] = *(const VU *)(one + v * W);
        for (int r = 0; r < t->rows; r++, s += nv) {
            if (half && relu) finish_row(t, t->c[r], s, bias, nv, true, true);
            else if (half) finish_row(t, t->c[r], s, bias, nv, true, false);
            else if (relu) finish_row(t, t->c[r], s, bias, nv, false, true);
            else finish_row(t, t->c[r], s, bias, nv, false, false);
        }
        return;
    }
    ProductOut o = {.bias = t->bias,
                    .c_type = t->c_type,
                    .bias_type = t->bias_type,
                    .residual_type = t->c_type,
                    .act_last = true,
                    .act = t->act};
    for (int r = 0; r < t->rows; r++, s += nv) {
        o.c = t->c[r];
        o.residual = t->sum ? o.c : NULL;
        if (t->cols == nv * W) finish_cols(&o, (const float *)s, 0, 0, 1, 0, nv * W);
        else finish_cols(&o, (const float *)s, 0, 0, 1, 0, t->cols);
    }
}

static __attribute__((noinline)) void finish_1(const ConvTile *t, const V *s) { finish_rows_of(t, s, 1); }
static __attribute__((noinline)) void finish_2(const ConvTile *t, const V *s) { finish_rows_of(t, s, 2); }
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
    const float *b = t->b;
    const char *ahead = t->ahead;
    int64_t pace = t->pace;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) s[r][v] = (V){0};
    for (int64_t k = 0; k < t->taps; k++) {
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
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) out[r * nv + v] = s[r][v];
    if (nv == 1) finish_1(t, out);
    else if (nv == 2) finish_2(t, out);
#if NV > 2
    else if (nv == 3) finish_3(t, out);
#endif
#if MR4
    else if (nv == 4) finish_4(t, out);
#endif
}

#define TILE(rows)                                                                                                     \
    static void tile_##rows(const ConvTile *t)                                                                         \
    {                                                                                                                  \
        if (NV > 2 && t->cols > 2 * W) conv_tile(t, rows, NV, NV *W);                                                  \
        else if (t->cols > W) conv_tile(t, rows, 2, NV *W);                                                            \
        else conv_tile(t, rows, 1, NV *W);                                                                             \
    }
#define WIDE_TILE(rows)                                                                                                \
    static void wide_##rows(const ConvTile *t)                                                                         \
    {                                                                                                                  \
        if (t->cols > 3 * W) conv_tile(t, rows, 4, 4 * W);                                                             \
        else if (t->cols > 2 * W) conv_tile(t, rows, 3, 4 * W);                                                        \
        else if (t->cols > W) conv_tile(t, rows, 2, 4 * W);                                                            \
        else conv_tile(t, rows, 1, 4 * W);                                                                             \
    }
/* clang-format off */
#if MR == 9
#define HEIGHTS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)
#elif MR == 8
#define HEIGHTS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#elif MR == 6
#define HEIGHTS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define HEIGHTS(X) X(1) X(2) X(3) X(4)
#endif
HEIGHTS(TILE)
#define NAMED(rows) tile_##rows,
static void conv_tile_any(const ConvTile *t)
{
    static void (*const of[])(const ConvTile *) = {NULL, HEIGHTS(NAMED)};
    of[t->rows](t);
}
#if MR4
WIDE_TILE(1) WIDE_TILE(2) WIDE_TILE(3) WIDE_TILE(4) WIDE_TILE(5) WIDE_TILE(6)
static void wide_any(const ConvTile *t)
{
    static void (*const of[])(const ConvTile *) = {NULL, wide_1, wide_2, wide_3, wide_4, wide_5, wide_6};
    of[t->rows](t);
}
#endif
/* clang-format on */
