/* Resizing in 8 bits. Contract and source in resize.h. */
#include "vision/resize.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "vision/taps.h"

/* Weights times 2^bits, for sums in integers. */
typedef struct Taps16 {
    Taps t;
    int bits;
    int16_t *w; /* as t.w */
} Taps16;

static void taps16_free(Taps16 *t)
{
    taps_free(&t->t);
    mem_free(t->w);
}

static int clamp(int v, int lo, int hi) { return v < lo ? lo : v > hi ? hi : v; }

/* As many fraction bits as the largest weight leaves in 16. */
static bool taps16_make(Taps16 *t, int in, int out, Err *err)
{
    TRY(taps_make(&t->t, in, out, err));
    size_t count = (size_t)out * (size_t)t->t.most;
    double largest = 0;
    t->w = mem_zeroed(count, sizeof *t->w);
    if (!t->w) return oom(err);
    for (size_t i = 0; i < count; i++) largest = fmax(largest, t->t.w[i]);
    for (t->bits = 0; t->bits < 22; t->bits++)
        if ((int)(0.5 + largest * (1 << (t->bits + 1))) >= 1 << 15) break;
    for (size_t i = 0; i < count; i++) t->w[i] = (int16_t)(0.5 + t->t.w[i] * (1 << t->bits));
    return true;
}

static uint8_t rounded(int v, int bits) { return (uint8_t)clamp(v >> bits, 0, 255); }

/* (rows, in, 3) with `stride` bytes a row to (rows, out, 3) */
static void across(const Taps16 *t, const uint8_t *from, size_t stride, int rows, int out, uint8_t *to)
{
    for (int y = 0; y < rows; y++, from += stride)
        for (int x = 0; x < out; x++, to += 3) {
            const uint8_t *p = from + 3 * (size_t)t->t.first[x];
            const int16_t *w = t->w + (size_t)x * (size_t)t->t.most;
            int s0 = 1 << (t->bits - 1), s1 = s0, s2 = s0;
            for (int k = 0; k < t->t.n[x]; k++, p += 3) {
                s0 += w[k] * p[0];
                s1 += w[k] * p[1];
                s2 += w[k] * p[2];
            }
            to[0] = rounded(s0, t->bits);
            to[1] = rounded(s1, t->bits);
            to[2] = rounded(s2, t->bits);
        }
}

/* (in, line) with `stride` bytes a row to (out, line); sum has room for a line */
static void down(const Taps16 *t, const uint8_t *from, size_t stride, size_t line, int out, int *sum, uint8_t *to)
{
    for (int y = 0; y < out; y++, to += line) {
        const int16_t *w = t->w + (size_t)y * (size_t)t->t.most;
        for (size_t i = 0; i < line; i++) sum[i] = 1 << (t->bits - 1);
        for (int k = 0; k < t->t.n[y]; k++) {
            const uint8_t *p = from + (size_t)(t->t.first[y] + k) * stride;
            for (size_t i = 0; i < line; i++) sum[i] += w[k] * p[i];
        }
        for (size_t i = 0; i < line; i++) to[i] = rounded(sum[i], t->bits);
    }
}

bool picture_resize(const Image *im, int x, int y, int w, int h, int height, int width, uint8_t *out, Err *err)
{
    Taps16 tx = {0}, ty = {0};
    size_t line = 3 * (size_t)width, stride = 3 * (size_t)im->width;
    const uint8_t *from = im->pixels + (size_t)y * stride + 3 * (size_t)x;
    uint8_t *rows = mem_alloc((size_t)h * line);
    int *sum = mem_alloc(line * sizeof *sum);
    bool ok = (rows && sum) || oom(err);
    ok = ok && taps16_make(&tx, w, width, err) && taps16_make(&ty, h, height, err);
    if (ok) {
        across(&tx, from, stride, h, width, rows);
        down(&ty, rows, line, line, height, sum, out);
    }
    taps16_free(&tx);
    taps16_free(&ty);
    mem_free(rows);
    mem_free(sum);
    return ok;
}

bool picture_to_input(const Image *im, int x, int y, int w, int h, int height, int width, const float *mean,
                      const float *std, bool fused, float *out, Err *err)
{
    size_t plane = (size_t)height * (size_t)width;
    uint8_t *small = mem_alloc(3 * plane);
    bool ok = small || oom(err);
    ok = ok && picture_resize(im, x, y, w, h, height, width, small, err);
    for (size_t c = 0; ok && c < 3; c++) {
        float scale = fused ? 1 : 255, m = fused ? mean[c] * 255 : mean[c], s = fused ? std[c] * 255 : std[c], of[256];
        for (int v = 0; v < 256; v++) of[v] = ((float)v / scale - m) / s;
        for (size_t i = 0; i < plane; i++) out[c * plane + i] = of[small[3 * i + c]];
    }
    mem_free(small);
    return ok;
}
