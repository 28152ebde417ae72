/* The gradient of depthwise weights, a row of outputs: the sums of a few taps stay in registers while the row passes.
 * Included after depthwise.h.
 */

/* W channels from element `at` on. */
INLINE V channels_at(const void *p, DType t, int64_t at)
{
    if (t == DT_BF16) return get_half((const uint16_t *)p + at);
    return *(const VU *)((const float *)p + at);
}

/* The same of the n < W channels that are left. */
static V some_channels(const void *p, DType t, int64_t at, int64_t n)
{
    float x[W] = {0};
    for (int64_t c = 0; c < n; c++)
        x[c] = t == DT_BF16 ? bf16_value(((const uint16_t *)p)[at + c]) : ((const float *)p)[at + c];
    return *(const VU *)x;
}

/* `line` taps as far apart as outputs are, W channels from c on: a pixel is read once for all outputs of a block that
 * want it. */
INLINE void correlate_line(const CorrelateRun *r, int64_t c, int line, DType t)
{
    enum { BLOCK = 7 };
    V s[MOST_LINE];
    int64_t i = 0, step = r->x_step;
#pragma GCC unroll 8
    for (int m = 0; m < line; m++) s[m] = *(const VU *)(r->sum + m * r->channels + c);
    for (; i + BLOCK <= r->n; i += BLOCK) {
        V a[BLOCK];
#pragma GCC unroll 8
        for (int k = 0; k < BLOCK; k++) a[k] = channels_at(r->a, t, (i + k) * r->a_step + c);
#pragma GCC unroll 16
        for (int j = 0; j < BLOCK + line - 1; j++) {
            V x = channels_at(r->x, t, (i + j) * step + c);
#pragma GCC unroll 8
            for (int m = 0; m < line; m++)
                if (j - m >= 0 && j - m < BLOCK) s[m] = (V)fused(s[m], a[j - m], x);
        }
    }
    for (; i < r->n; i++) {
        V a = channels_at(r->a, t, i * r->a_step + c);
#pragma GCC unroll 8
        for (int m = 0; m < line; m++) s[m] = (V)fused(s[m], a, channels_at(r->x, t, (i + m) * step + c));
    }
#pragma GCC unroll 8
    for (int m = 0; m < line; m++) *(VU *)(r->sum + m * r->channels + c) = s[m];
}

/* `taps` taps from tap m on, however far apart. */
INLINE void correlate_taps(const CorrelateRun *r, int64_t c, int64_t m, int taps, DType t)
{
    V s[MOST_LINE];
#pragma GCC unroll 8
    for (int k = 0; k < taps; k++) s[k] = *(const VU *)(r->sum + (m + k) * r->channels + c);
    for (int64_t i = 0; i < r->n; i++) {
        V a = channels_at(r->a, t, i * r->a_step + c);
#pragma GCC unroll 8
        for (int k = 0; k < taps; k++)
            s[k] = (V)fused(s[k], a, channels_at(r->x, t, i * r->x_step + (m + k) * r->tap_step + c));
    }
#pragma GCC unroll 8
    for (int k = 0; k < taps; k++) *(VU *)(r->sum + (m + k) * r->channels + c) = s[k];
}

/* Channels from c on, which do not fill a vector. */
static void correlate_rest(const CorrelateRun *r, int64_t c)
{
    int64_t n = r->channels - c;
    for (int64_t m = 0; m < r->line; m++) {
        V s = some_channels(r->sum, DT_F32, m * r->channels + c, n);
        for (int64_t i = 0; i < r->n; i++)
            s = (V)fused(s, some_channels(r->a, r->type, i * r->a_step + c, n),
                         some_channels(r->x, r->type, i * r->x_step + m * r->tap_step + c, n));
        memcpy(r->sum + m * r->channels + c, &s, (size_t)n * sizeof(float));
    }
}

INLINE void correlate_of(const CorrelateRun *r, DType t)
{
    int64_t whole = r->channels / W * W, side = OUTPUTS > 1 && r->x_step == r->tap_step ? r->line : 0;
    for (int64_t c = 0; c < whole; c += W) {
        if (side == 7) correlate_line(r, c, 7, t);
        else if (side == 5) correlate_line(r, c, 5, t);
        else if (side == 3) correlate_line(r, c, 3, t);
        else {
            int64_t m = 0;
            for (; m + 4 <= r->line; m += 4) correlate_taps(r, c, m, 4, t);
            for (; m < r->line; m++) correlate_taps(r, c, m, 1, t);
        }
    }
    if (whole < r->channels) correlate_rest(r, whole);
}

static void correlate(const CorrelateRun *r)
{
    if (r->type == DT_BF16) correlate_of(r, DT_BF16);
    else correlate_of(r, DT_F32);
}
