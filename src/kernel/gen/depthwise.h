/* Depthwise rows: a vector of channels of some outputs stays in registers while the taps pass. Included by gen/conv.c. */

enum { OUTPUTS = MR == 9 ? 14 : 7 }; /* of a block */

/* n outputs from output i on, a vector of channels from c on. */
INLINE void depthwise_block(const DepthwiseRun *d, int64_t i, int n, int64_t c)
{
    V s[OUTPUTS], out[OUTPUTS];
    const float *x = d->x + i * d->step + c, *w = d->w + c;
    int64_t step = d->step;
#pragma GCC unroll 16
    for (int o = 0; o < n; o++) s[o] = (V){0};
    for (int64_t k = 0; k < d->taps; k++) {
        const float *from = x + d->tap[k];
        V y = *(const VU *)(w + d->weight[k]);
#pragma GCC unroll 16
        for (int o = 0; o < n; o++) s[o] = (V)fused(s[o], *(const VU *)(from + o * step), y);
    }
#pragma GCC unroll 16
    for (int o = 0; o < n; o++) out[o] = s[o];
    ConvTile t = {.bias = d->bias ? d->bias + c : NULL,
                  .bias_type = DT_F32,
                  .c_type = d->type,
                  .sum = d->sum,
                  .act = d->act,
                  .rows = n,
                  .cols = W};
    for (int o = 0; o < n; o++) t.c[o] = (char *)d->y + ((i + o) * d->y_step + c) * (d->type == DT_BF16 ? 2 : 4);
    finish_1(&t, out);
}

/* Channels from c on that are no whole vector. */
static void depthwise_rest(const DepthwiseRun *d, int64_t i, int64_t c)
{
    V s = {0};
    size_t n = (size_t)(d->channels - c) * sizeof(float);
    for (int64_t k = 0; k < d->taps; k++) {
        V x = {0}, y = {0};
        memcpy(&x, d->x + d->tap[k] + i * d->step + c, n);
        memcpy(&y, d->w + d->weight[k] + c, n);
        s = (V)fused(s, x, y);
    }
    ConvTile t = {.c = {(char *)d->y + (i * d->y_step + c) * (d->type == DT_BF16 ? 2 : 4)},
                  .bias = d->bias ? d->bias + c : NULL,
                  .bias_type = DT_F32,
                  .c_type = d->type,
                  .sum = d->sum,
                  .act = d->act,
                  .rows = 1,
                  .cols = (int)(d->channels - c)};
    finish_1(&t, &s);
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
