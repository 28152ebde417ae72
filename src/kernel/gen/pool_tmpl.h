/* Pooling for one type; T, TYPE (its DT_), LOAD(v), LOAD_WIDE(v) (without a branch), STORE(v) and NAME(x) are set by
 * the includer.
 * Contract in kernel/image.h. */

/* A block of neighbours, `wide` vectors of them, whose maxima stay in registers. */
INLINE void NAME(largest_block)(T *out, const T *in, const int64_t *tap, int64_t taps, int wide)
{
    Vec best[WIDE];
#pragma GCC unroll 4
    for (int j = 0; j < wide; j++) best[j] = vec_load(TYPE, in + tap[0] + j * LANES);
    for (int64_t k = 1; k < taps; k++)
#pragma GCC unroll 4
        for (int j = 0; j < wide; j++) best[j] = vec_larger(best[j], vec_load(TYPE, in + tap[k] + j * LANES));
#pragma GCC unroll 4
    for (int j = 0; j < wide; j++) vec_put_back(TYPE, out + j * LANES, best[j]);
}

/* Every second neighbour, a vector of results: the windows of a picture that is halved. */
INLINE void NAME(largest_halving)(T *out, const T *in, const int64_t *tap, int64_t taps)
{
    Vec best = {0};
    for (int64_t k = 0; k < taps; k++) {
        float x[LANES];
        for (int j = 0; j < LANES; j++) x[j] = LOAD_WIDE(in[tap[k] + 2 * j]);
        best = k ? vec_larger(best, vec_at(x)) : vec_at(x);
    }
    vec_put_back(TYPE, out, best);
}

static void NAME(largest)(T *out, const T *in, const int64_t *tap, int64_t taps, int64_t n, int64_t step)
{
    int64_t i = 0;
    for (; step == 1 && i + WIDE * LANES <= n; i += WIDE * LANES) NAME(largest_block)(out + i, in + i, tap, taps, WIDE);
    for (; step == 1 && i + LANES <= n; i += LANES) NAME(largest_block)(out + i, in + i, tap, taps, 1);
    for (; step == 2 && i + LANES <= n; i += LANES) NAME(largest_halving)(out + i, in + 2 * i, tap, taps);
    for (; i < n; i++) {
        float best = LOAD(in[tap[0] + i * step]);
        for (int64_t k = 1; k < taps; k++) {
            float v = LOAD(in[tap[k] + i * step]), more = v > best ? v : best;
            best = v != v ? v : more;
        }
        out[i] = STORE(best);
    }
}

INLINE void NAME(mean_by)(T *out, const T *in, const int64_t *tap, int64_t taps,
                                                                int64_t n, int64_t step, double divisor)
{
    enum { BLOCK = 16 };
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        double sum[BLOCK] = {0};
        for (int64_t k = 0; k < taps; k++) {
            const T *x = in + tap[k] + i * step;
            for (int j = 0; j < BLOCK; j++) sum[j] += (double)LOAD(x[j * step]);
        }
        for (int j = 0; j < BLOCK; j++) out[i + j] = STORE((float)(sum[j] / divisor));
    }
    for (; i < n; i++) {
        double sum = 0;
        for (int64_t k = 0; k < taps; k++) sum += (double)LOAD(in[tap[k] + i * step]);
        out[i] = STORE((float)(sum / divisor));
    }
}

static void NAME(mean)(T *out, const T *in, const int64_t *tap, int64_t taps, int64_t n, int64_t step, double divisor)
{
    if (step == 1) NAME(mean_by)(out, in, tap, taps, n, 1, divisor);
    else NAME(mean_by)(out, in, tap, taps, n, step, divisor);
}
