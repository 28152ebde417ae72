/* Depthwise rows: a vector of channels of some outputs stays in registers while the taps pass. Included after
 * conv_tile.h.
 */

typedef int32_t Whole __attribute__((vector_size(W * 4), aligned(4), may_alias));

enum { OUTPUTS = MR == 9 ? 14 : MR == 1 ? 1 : 7, MOST_LINE = 7 }; /* outputs of a block, taps that are side by side */

static __attribute__((noinline)) void depthwise_finish(const DepthwiseRun *d, int64_t i, int n, int64_t c, const V *s)
{
    ConvTile t;
    t.bias = d->bias ? d->bias + c : NULL;
    t.bias_type = DT_F32;
    t.c_type = d->type;
    t.sum = d->sum;
    t.act = d->act;
    t.rows = n;
    t.cols = d->channels - c < W ? (int)(d->channels - c) : W;
    for (int o = 0; o < n; o++) t.c[o] = (char *)d->y + ((i + o) * d->y_step + c) * (d->type == DT_BF16 ? 2 : 4);
    finish_1(&t, s);
}

/* `line` taps side by side, each as far from the last as outputs are: a pixel is read once for all that want it. Bit j
 * of `seen`: pixel j is not a zero beside the picture. */
INLINE void depthwise_line(V *s, const float *x, const float *w, int64_t step, int64_t w_step, int n, int line,
                           uint32_t seen)
{
    V y[MOST_LINE];
#pragma GCC unroll 8
    for (int m = 0; m < line; m++) y[m] = *(const VU *)(w + m * w_step);
#pragma GCC unroll 32
    for (int j = 0; j < n + line - 1; j++) {
        if (!(seen >> j & 1)) continue;
        V one = *(const VU *)(x + j * step);
#pragma GCC unroll 8
        for (int m = line - 1; m >= 0; m--)
            if (j - m >= 0 && j - m < n) s[j - m] = (V)fused(s[j - m], one, y[m]);
    }
}

/* Bits [first, end) of 32. */
static inline uint32_t seen_of(int64_t first, int64_t end)
{
    uint32_t before = first <= 0    ? 0
                      : first >= 32 ? UINT32_MAX
                                    : (UINT32_C(1) << first) - 1,
             within = end <= 0    ? 0
                      : end >= 32 ? UINT32_MAX
                                  : (UINT32_C(1) << end) - 1;
    return within & ~before;
}

/* n outputs from output i on, a vector of channels from c on. line: how many taps are side by side; 0: unknown. */
INLINE void depthwise_block(const DepthwiseRun *d, int64_t i, int n, int64_t c, int line)
{
    V s[OUTPUTS];
    const float *x = d->x + i * d->step + c, *w = d->w + c;
    int64_t step = d->step;
    uint32_t seen = n >= MOST_LINE && line == MOST_LINE ? seen_of(d->first - i, d->end - i) : UINT32_MAX; /* worth it */
#pragma GCC unroll 16
    for (int o = 0; o < n; o++) s[o] = (V){0};
    if (line)
        for (int64_t k = 0; k < d->taps; k += line)
            depthwise_line(s, x + d->tap[k], w + k * d->w_step, step, d->w_step, n, line, seen);
    for (int64_t k = 0; !line && k < d->taps; k++, w += d->w_step) {
        const float *from = x + d->tap[k];
        V y = *(const VU *)w;
#pragma GCC unroll 16
        for (int o = 0; o < n; o++) s[o] = (V)fused(s[o], *(const VU *)(from + o * step), y);
    }
    if (d->type == DT_I32) {
        int32_t *to = (int32_t *)d->y + i * d->y_step + c;
#pragma GCC unroll 16
        for (int o = 0; o < n; o++) *(Whole *)(to + o * d->y_step) = __builtin_convertvector(s[o], Whole);
        return;
    }
    bool half = d->type == DT_BF16, relu = d->act == GEMM_RELU;
    if ((relu || d->act == GEMM_NONE) && !d->sum) {
        int64_t size = half ? 2 : 4, apart = d->y_step * size;
        char *to = (char *)d->y + (i * d->y_step + c) * size;
        V bias = -(V){0}; /* x + -0 is x, for -0 too */
        if (d->bias) bias = *(const VU *)(d->bias + c);
#pragma GCC unroll 16
        for (int o = 0; o < n; o++)
            if (half) finish_vector(to + o * apart, s[o] + bias, false, true, relu);
            else finish_vector(to + o * apart, s[o] + bias, false, false, relu);
        return;
    }
    V out[OUTPUTS];
#pragma GCC unroll 16
    for (int o = 0; o < n; o++) out[o] = s[o];
    depthwise_finish(d, i, n, c, out);
}

/* Channels from c on, which do not fill a vector. */
static void depthwise_rest(const DepthwiseRun *d, int64_t i, int64_t c)
{
    V s = {0};
    size_t n = (size_t)(d->channels - c) * sizeof(float);
    for (int64_t k = 0; k < d->taps; k++) {
        V x = {0}, y = {0};
        memcpy(&x, d->x + d->tap[k] + i * d->step + c, n);
        memcpy(&y, d->w + k * d->w_step + c, n);
        s = (V)fused(s, x, y);
    }
    if (d->type == DT_I32) {
        const Whole whole = __builtin_convertvector(s, Whole);
        memcpy((int32_t *)d->y + i * d->y_step + c, &whole, n);
        return;
    }
    depthwise_finish(d, i, 1, c, &s);
}

INLINE void depthwise_lines(const DepthwiseRun *d, int line)
{
    int64_t whole = d->channels / W * W;
    for (int64_t c = 0; c < whole; c += W) {
        int64_t i = 0;
        for (; i + OUTPUTS <= d->n; i += OUTPUTS) depthwise_block(d, i, OUTPUTS, c, line);
        for (; OUTPUTS > 6 && i + 7 <= d->n; i += 7) depthwise_block(d, i, 7, c, line);
        for (; OUTPUTS > 2 && i + 3 <= d->n; i += 3) depthwise_block(d, i, 3, c, line);
        for (; i < d->n; i++) depthwise_block(d, i, 1, c, line);
    }
    for (int64_t i = 0; whole < d->channels && i < d->n; i++) depthwise_rest(d, i, whole);
}

static void depthwise(const DepthwiseRun *d)
{
    if (OUTPUTS == 1) depthwise_lines(d, 0);
    else if (d->line == 7) depthwise_lines(d, 7);
    else if (d->line == 5) depthwise_lines(d, 5);
    else if (d->line == 3) depthwise_lines(d, 3);
    else depthwise_lines(d, 0);
}

static void widen(float *to, const void *x, DType t, int64_t step, int64_t n, int64_t C)
{
    for (int64_t j = 0; j < n; j++, to += C) {
        int64_t c = 0;
        const float *f = (const float *)x + j * step;
        const uint16_t *h = (const uint16_t *)x + j * step;
        const char *next = t == DT_F32 ? (const char *)(f + C) : (const char *)(h + C); /* of the next call: far away */
        for (int64_t at = 0; at < C * (t == DT_F32 ? 4 : 2); at += LINE) __builtin_prefetch(next + at, 0, 3);
        for (; t == DT_F32 && c + W <= C; c += W) *(VU *)(to + c) = *(const VU *)(f + c);
        for (; t == DT_BF16 && c + W <= C; c += W)
            for (int i = 0; i < W; i++) to[c + i] = bf16_value(h[c + i]);
        for (; c < C; c++) to[c] = t == DT_F32 ? f[c] : bf16_value(h[c]);
    }
}
