/* Depthwise rows: a block of channels of a few outputs stays in registers while the taps pass. Included by gen/conv.c. */

enum { OUTPUTS = 8 }; /* of a block */

INLINE V depthwise_load(const DepthwiseRun *d, int64_t at, bool half)
{
    if (!half) return *(const VU *)((const float *)d->x + at);
    float x[W];
    load_row(x, d->x, DT_BF16, at, W);
    return *(const VU *)x;
}

/* n outputs from output i on, a vector of channels from c on. */
INLINE void depthwise_block(const DepthwiseRun *d, int64_t i, int n, int64_t c, bool half)
{
    V s[OUTPUTS];
    for (int o = 0; o < n; o++) s[o] = (V){0};
    const float *w = d->w + c;
    int64_t at = i * d->step + c;
    for (int64_t k = 0; k < d->taps; k++, w += d->w_step) {
        V y = *(const VU *)w;
#pragma GCC unroll 8
        for (int o = 0; o < n; o++) s[o] = (V)fused(s[o], depthwise_load(d, d->tap[k] + at + o * d->step, half), y);
    }
    ConvTile t = {.bias = d->bias ? d->bias + c : NULL,
                  .bias_type = DT_F32,
                  .c_type = d->type,
                  .sum = d->sum,
                  .act = d->act,
                  .rows = n,
                  .cols = W};
    for (int o = 0; o < n; o++) t.c[o] = (char *)d->y + ((i + o) * d->y_step + c) * (half ? 2 : 4);
    finish_1(&t, s);
}

/* Channels from c on that are no whole vector. */
static void depthwise_rest(const DepthwiseRun *d, int64_t i, int64_t c)
{
    bool half = d->type == DT_BF16;
    V s = {0};
    int n = (int)(d->channels - c);
    float x[W] = {0}, y[W] = {0};
    for (int64_t k = 0; k < d->taps; k++) {
        load_row(x, d->x, d->type, d->tap[k] + i * d->step + c, n);
        memcpy(y, d->w + k * d->w_step + c, (size_t)n * sizeof *y);
        s = (V)fused(s, *(const VU *)x, *(const VU *)y);
    }
    ConvTile t = {.c = {(char *)d->y + (i * d->y_step + c) * (half ? 2 : 4)},
                  .bias = d->bias ? d->bias + c : NULL,
                  .bias_type = DT_F32,
                  .c_type = d->type,
                  .sum = d->sum,
                  .act = d->act,
                  .rows = 1,
                  .cols = n};
    finish_1(&t, &s);
}

INLINE void depthwise_of(const DepthwiseRun *d, bool half)
{
    int64_t whole = d->channels / W * W;
    for (int64_t c = 0; c < whole; c += W) {
        int64_t i = 0;
        for (; i + OUTPUTS <= d->n; i += OUTPUTS) depthwise_block(d, i, OUTPUTS, c, half);
        for (; i < d->n; i++) depthwise_block(d, i, 1, c, half);
    }
    for (int64_t i = 0; whole < d->channels && i < d->n; i++) depthwise_rest(d, i, whole);
}

static void depthwise(const DepthwiseRun *d)
{
    if (d->type == DT_BF16) depthwise_of(d, true);
    else depthwise_of(d, false);
}
