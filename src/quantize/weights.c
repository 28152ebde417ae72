/* Rounding weights by blocks. Contract in weights.h. */
#include "quantize/weights.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "tensor/dtype.h"

enum { TRIED = 10, TOGETHER = 16 };

bool weight_method(const char *name, WeightMethod *out, Err *err)
{
    static const char *const names[] = {"rtn", "gptq", "awq", "awq+gptq"};
    *out = WEIGHTS_RTN;
    for (int i = 0; name && i < 4; i++)
        if (!strcmp(name, names[i])) {
            *out = (WeightMethod)i;
            return true;
        }
    if (!name) return true;
    return fail(err, E_USAGE, "no way of rounding weights is called '%.40s'; there are rtn, gptq, awq and awq+gptq",
                name);
}

int64_t weights_block(int64_t group, int64_t K)
{
    if (group >= K) return K;
    while (group > 8 && K % group) group /= 2;
    return group >= 8 && K % group == 0 ? group : K;
}

static float of_half(float x) { return bf16_to_f32(f32_to_bf16(x)); }

static int8_t nearest(float x, float scale, int bits)
{
    int most = bits == 4 ? 7 : 127, least = bits == 4 ? -8 : -127;
    float q = rintf(x / scale);
    return (int8_t)(q > (float)most ? most : q < (float)least ? least : (int)q);
}

/* Elements `step` apart. 4 bits: the largest in absolute value is -8 or a little beyond; 8: 127. */
static float scale_of(const float *w, int64_t n, int bits)
{
    float most = 0, best = 1;
    double least = INFINITY;
    for (int64_t i = 0; i < n; i++) most = fabsf(w[i]) > fabsf(most) ? w[i] : most;
    if (most == 0) return 1;
    for (int t = 0; t < (bits == 4 ? TRIED : 1); t++) {
        float scale = of_half(bits == 4 ? most / (-8 + 0.25f * (float)t) : fabsf(most) / 127);
        double loss = 0;
        if (!(fabsf(scale) >= 0x1p-126f)) continue;
        for (int64_t i = 0; i < n; i++) {
            double d = (double)w[i] - (double)scale * nearest(w[i], scale, bits);
            loss += d * d;
        }
        if (loss >= least) continue;
        least = loss;
        best = scale;
    }
    return best;
}

void weights_nearest(float *to, const float *w, int64_t K, int64_t block, int bits)
{
    for (int64_t k = 0; k < K; k += block) {
        int64_t n = K - k < block ? K - k : block;
        float scale = scale_of(w + k, n, bits);
        for (int64_t i = k; i < k + n; i++) to[i] = scale * (float)nearest(w[i], scale, bits);
    }
}

/* ------------------------------------------------------------------ GPTQ */

/* R of h = R^T R, in h's upper triangle. */
static void cholesky(double *h, int64_t K)
{
    for (int64_t k = 0; k < K; k++) {
        double *row = h + k * K, by = sqrt(row[k]);
        for (int64_t j = k; j < K; j++) row[j] /= by;
        for (int64_t i = k + 1; i < K; i++) {
            double *to = h + i * K, a = row[i];
            for (int64_t j = i; j < K; j++) to[j] -= a * row[j];
        }
    }
}

/* The inverse of the upper triangle r in its place; line (K) is room. */
static void invert(double *r, int64_t K, double *line)
{
    for (int64_t i = K - 1; i >= 0; i--) {
        double *row = r + i * K, by = row[i];
        memcpy(line, row, (size_t)K * sizeof *line);
        for (int64_t j = i; j < K; j++) row[j] = j == i;
        for (int64_t k = i + 1; k < K; k++) {
            const double a = line[k], *other = r + k * K;
            for (int64_t j = k; j < K; j++) row[j] -= a * other[j];
        }
        for (int64_t j = i; j < K; j++) row[j] /= by;
    }
}

/* U, upper, of (gram + a hundredth of its mean diagonal)^-1 = U^T U: the factor of the matrix with rows and columns
 * turned round, inverted and turned back. NULL: out of memory. */
static double *inverse_factor(const double *gram, int64_t K)
{
    double *h = mem_zeroed((size_t)(K * K) + 1, sizeof *h), *u = h ? mem_zeroed((size_t)(K * K) + 1, sizeof *u) : NULL,
           mean = 0;
    for (int64_t k = 0; k < K; k++) mean += gram[k * K + k] / (double)K;
    for (int64_t i = 0; u && i < K; i++)
        for (int64_t j = i; j < K; j++)
            h[i * K + j] = gram[(K - 1 - j) * K + K - 1 - i] + (i == j ? 0.01 * mean + (mean > 0 ? 0 : 1) : 0);
    if (u) {
        cholesky(h, K);
        invert(h, K, u);
        for (int64_t i = 0; i < K; i++)
            for (int64_t j = i; j < K; j++) u[i * K + j] = h[(K - 1 - j) * K + K - 1 - i];
    }
    mem_free(h);
    return u;
}

/* Some rows: column after column, what each loses goes to the columns after it. */
static void make_good(const WeightRounding *r, const double *u, int64_t first, int64_t rows)
{
    const int64_t K = r->K, blocks = (K + r->block - 1) / r->block;
    for (int64_t k = 0; k < K; k++) {
        const double *factor = u + k * K;
        for (int64_t n = first; n < first + rows; n++) {
            float *w = r->w + n * K, *scale = r->scale + n * blocks + k / r->block;
            if (k % r->block == 0) *scale = scale_of(w + k, K - k < r->block ? K - k : r->block, r->bits);
            int8_t q = nearest(w[k], *scale, r->bits);
            const float lost = (float)(((double)w[k] - (double)*scale * q) / factor[k]);
            r->q[n * K + k] = q;
            for (int64_t j = k + 1; j < K; j++) w[j] -= lost * (float)factor[j];
        }
    }
}

bool weights_round(const WeightRounding *r, Err *err)
{
    const int64_t K = r->K, blocks = K ? (K + r->block - 1) / r->block : 0;
    if (r->gram) {
        double *u = inverse_factor(r->gram, K);
        if (!u) return oom(err);
        for (int64_t n = 0; n < r->N; n += TOGETHER) make_good(r, u, n, r->N - n < TOGETHER ? r->N - n : TOGETHER);
        mem_free(u);
        return true;
    }
    for (int64_t n = 0; n < r->N; n++)
        for (int64_t b = 0; b < blocks; b++) {
            int64_t at = n * K + b * r->block, here = K - b * r->block < r->block ? K - b * r->block : r->block;
            float scale = r->scale[n * blocks + b] = scale_of(r->w + at, here, r->bits);
            for (int64_t i = at; i < at + here; i++) r->q[i] = nearest(r->w[i], scale, r->bits);
        }
    return true;
}
