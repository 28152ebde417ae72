/* Rotary embedding in portable C; compiled once per ISA level. Contract in kernel/linalg.h. */
#include "kernel/linalg.h"
#include "kernel/variant.h"

/* Halves: cos and sin of the first and of the second. */
static void rotate_halves(float *restrict y, const float *restrict x, int64_t h, const float *c0, const float *c1,
                          const float *s0, const float *s1)
{
    for (int64_t i = 0; i < h; i++) {
        float a = x[i], b = x[i + h];
        y[i] = a * c0[i] - b * s0[i];
        y[i + h] = b * c1[i] + a * s1[i];
    }
}

/* Pairs: cos and sin of element 2 i at [2 i], or of both at [i]. */
static void rotate_pairs(float *restrict y, const float *restrict x, int64_t h, const float *restrict c,
                         const float *restrict s)
{
    for (int64_t i = 0; i < h; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * c[2 * i] - b * s[2 * i];
        y[2 * i + 1] = b * c[2 * i + 1] + a * s[2 * i + 1];
    }
}

static void rotate_pairs_one(float *restrict y, const float *restrict x, int64_t h, const float *c, int64_t cd,
                             const float *s, int64_t sd)
{
    for (int64_t i = 0; i < h; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * c[i * cd] - b * s[i * sd];
        y[2 * i + 1] = b * c[i * cd + (cd == 2)] + a * s[i * sd + (sd == 2)];
    }
}

static const float *widen(float *restrict out, const uint16_t *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = bf16_to_f32(x[i]);
    return out;
}

static void narrow(uint16_t *restrict out, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = f32_to_bf16(x[i]);
}

static void rotary_rows(const Rotary *r, int64_t from, int64_t to)
{
    int64_t at[MAX_RANK], left = from, xo = 0, co = 0, so = 0, yo = 0, h = r->D / 2;
    for (int k = r->rank - 1; k >= 0; k--) {
        at[k] = left % r->shape[k];
        left /= r->shape[k];
        xo += at[k] * r->xs[k];
        co += at[k] * r->cs[k];
        so += at[k] * r->ss[k];
        yo += at[k] * r->ys[k];
    }
    for (int64_t n = from; n < to; n++) {
        const float *c = (const float *)r->cos + co, *s = (const float *)r->sin + so, *x = (const float *)r->x + xo;
        float *y = (float *)r->out + yo, wide[ROTARY_WIDEST], turned[ROTARY_WIDEST];
        if (r->x_t == DT_BF16) x = widen(wide, (const uint16_t *)r->x + xo, r->D);
        if (r->out_t == DT_BF16) y = turned;
        if (!r->interleaved) rotate_halves(y, x, h, c, r->one_cos ? c : c + h, s, r->one_sin ? s : s + h);
        else if (!r->one_cos && !r->one_sin) rotate_pairs(y, x, h, c, s);
        else rotate_pairs_one(y, x, h, c, r->one_cos ? 1 : 2, s, r->one_sin ? 1 : 2);
        if (r->out_t == DT_BF16) narrow((uint16_t *)r->out + yo, y, r->D);
        for (int k = r->rank - 1; k >= 0; k--) { /* the next row */
            xo += r->xs[k];
            co += r->cs[k];
            so += r->ss[k];
            yo += r->ys[k];
            if (++at[k] < r->shape[k]) break;
            xo -= r->shape[k] * r->xs[k];
            co -= r->shape[k] * r->cs[k];
            so -= r->shape[k] * r->ss[k];
            yo -= r->shape[k] * r->ys[k];
            at[k] = 0;
        }
    }
}

static void rotary(const Rotary *r, int threads)
{
    int64_t rows = 1, chunk;
    for (int i = 0; i < r->rank; i++) rows *= r->shape[i];
    if (rows == 0) return;
    if (rows * r->D < 1 << 15) threads = 1;
    chunk = (rows + threads - 1) / threads;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int t = 0; t < threads; t++)
        rotary_rows(r, t * chunk < rows ? t * chunk : rows, (t + 1) * chunk < rows ? (t + 1) * chunk : rows);
}

void KERNEL(linalg_fill)(LinalgKernels *k);

void KERNEL(linalg_fill)(LinalgKernels *k) { k->rotary_f32 = rotary; }
