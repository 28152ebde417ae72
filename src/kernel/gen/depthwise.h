/* Depthwise rows: a vector of channels of some outputs stays in registers while the taps pass. Included by gen/conv.c. */

enum { OUTPUTS = MR == 9 ? 14 : 7 }; /* of a block */

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

/* n outputs from output i on, a vector of channels from c on. */
INLINE void depthwise_block(const DepthwiseRun *d, int64_t i, int n, int64_t c)
{
    V s[OUTPUTS];
    const float *x = d->x + i * d->step + c, *w = d->w + c;
    int64_t step = d->step;
#pragma GCC unroll 16
    for (int o = 0; o < n; o++) s[o] = (V){0};
    for (int64_t k = 0; k < d->taps; k++, w += d->w_step) {
        const float *from = x + d->tap[k];
        V y = *(const VU *)w;
#pragma GCC unroll 16
        for (int o = 0; o < n; o++) s[o] = (V)fused(s[o], *(const VU *)(from + o * step), y);
    }
    if (d->type == DT_F32 && d->act == GEMM_NONE && !d->sum) {
        float *to = (float *)d->y + i * d->y_step + c;
        V bias = -(V){0}; /* x + -0 is x, for -0 too */
        if (d->bias) bias = *(const VU *)(d->bias + c);
#pragma GCC unroll 16
        for (int o = 0; o < n; o++) *(VU *)(to + o * d->y_step) = s[o] + bias;
        return;
    }
    V out[OUTPUTS];
#pragma GCC unroll 16
    for (int o = 0; o < n; o++) out[o] = s[o];
    depthwise_finish(d, i, n, c, out);
}

/* Channels from c on that are no whole vector. */
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
    depthwise_finish(d, i, 1, c, &s);
}

static void depthwise(const DepthwiseRun *d)
{
    int64_t whole = d->channels / W * W;
    for (int64_t c = 0; c < whole; c += W) {
        int64_t i = 0;
        for (; i + OUTPUTS <= d->n; i += OUTPUTS) depthwise_block(d, i, OUTPUTS, c);
        for (; i + 7 <= d->n; i += 7) depthwise_block(d, i, 7, c);
        for (; i + 3 <= d->n; i += 3) depthwise_block(d, i, 3, c);
        for (; i < d->n; i++) depthwise_block(d, i, 1, c);
    }
    for (int64_t i = 0; whole < d->channels && i < d->n; i++) depthwise_rest(d, i, whole);
}

static void widen(float *to, const void *x, DType t, int64_t step, int64_t n, int64_t C)
{
    for (int64_t j = 0; j < n; j++, to += C) {
        int64_t c = 0;
        const float *f = (const float *)x + j * step;
        const uint16_t *h = (const uint16_t *)x + j * step;
        for (; t == DT_F32 && c + W <= C; c += W) *(VU *)(to + c) = *(const VU *)(f + c);
        for (; t == DT_BF16 && c + W <= C; c += W)
            for (int i = 0; i < W; i++) to[c + i] = bf16_value(h[c + i]);
        for (; c < C; c++) to[c] = t == DT_F32 ? f[c] : bf16_value(h[c]);
    }
}
