/* Resizing in 8 bits. Contract and source in resize.h. */
#include "picture/resize.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"

/* Of every output pixel: where its input pixels begin, how many they are, their weights times 2^bits. */
typedef struct Taps {
    int most, bits;
    int *first, *n;
    int16_t *w; /* most for each */
} Taps;

static void taps_free(Taps *t)
{
    free(t->first);
    free(t->n);
    free(t->w);
}

static int clamp(int v, int lo, int hi) { return v < lo ? lo : v > hi ? hi : v; }

/* The triangle filter in double, then in 16 bits with as many fraction bits as the largest weight leaves. */
static bool make_taps(Taps *t, int in, int out, Err *err)
{
    double scale = (double)in / out, support = scale >= 1 ? scale : 1, inverse = scale >= 1 ? 1 / scale : 1, largest = 0;
    t->most = (int)ceil(support) * 2 + 1;
    size_t count;
    double *w = mul_size((size_t)out, (size_t)t->most, &count) ? calloc(count, sizeof *w) : NULL;
    t->first = calloc((size_t)out, sizeof *t->first);
    t->n = calloc((size_t)out, sizeof *t->n);
    t->w = w ? calloc(count, sizeof *t->w) : NULL;
    if (!t->w || !t->first || !t->n) {
        free(w);
        return fail(err, E_LIMIT, "out of memory");
    }
    for (int i = 0; i < out; i++) {
        double centre = scale * (i + 0.5), sum = 0, *row = w + (size_t)i * (size_t)t->most;
        int first = (int)(centre - support + 0.5), last = (int)(centre + support + 0.5);
        first = first > 0 ? first : 0;
        t->first[i] = first;
        t->n[i] = clamp((last < in ? last : in) - first, 0, t->most);
        for (int k = 0; k < t->n[i]; k++) {
            double x = fabs((k + first - centre + 0.5) * inverse);
            sum += row[k] = x < 1 ? 1 - x : 0;
        }
        for (int k = 0; k < t->n[i]; k++) {
            if (sum != 0) row[k] /= sum;
            largest = fmax(largest, row[k]);
        }
    }
    for (t->bits = 0; t->bits < 22; t->bits++)
        if ((int)(0.5 + largest * (1 << (t->bits + 1))) >= 1 << 15) break;
    for (size_t i = 0; i < count; i++) t->w[i] = (int16_t)(0.5 + w[i] * (1 << t->bits));
    free(w);
    return true;
}

static uint8_t rounded(int v, int bits) { return (uint8_t)clamp(v >> bits, 0, 255); }

/* (rows, in, 3) with `stride` bytes a row to (rows, out, 3) */
static void across(const Taps *t, const uint8_t *from, size_t stride, int rows, int out, uint8_t *to)
{
    for (int y = 0; y < rows; y++, from += stride)
        for (int x = 0; x < out; x++, to += 3) {
            const uint8_t *p = from + 3 * (size_t)t->first[x];
            const int16_t *w = t->w + (size_t)x * (size_t)t->most;
            int s0 = 1 << (t->bits - 1), s1 = s0, s2 = s0;
            for (int k = 0; k < t->n[x]; k++, p += 3) {
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
static void down(const Taps *t, const uint8_t *from, size_t stride, size_t line, int out, int *sum, uint8_t *to)
{
    for (int y = 0; y < out; y++, to += line) {
        const int16_t *w = t->w + (size_t)y * (size_t)t->most;
        for (size_t i = 0; i < line; i++) sum[i] = 1 << (t->bits - 1);
        for (int k = 0; k < t->n[y]; k++) {
            const uint8_t *p = from + (size_t)(t->first[y] + k) * stride;
            for (size_t i = 0; i < line; i++) sum[i] += w[k] * p[i];
        }
        for (size_t i = 0; i < line; i++) to[i] = rounded(sum[i], t->bits);
    }
}

bool picture_resize(const Image *im, int x, int y, int w, int h, int height, int width, uint8_t *out, Err *err)
{
    Taps tx = {0}, ty = {0};
    size_t line = 3 * (size_t)width, stride = 3 * (size_t)im->width;
    const uint8_t *from = im->pixels + (size_t)y * stride + 3 * (size_t)x;
    uint8_t *rows = malloc((size_t)h * line);
    int *sum = malloc(line * sizeof *sum);
    bool ok = (rows && sum) || fail(err, E_LIMIT, "out of memory");
    ok = ok && make_taps(&tx, w, width, err) && make_taps(&ty, h, height, err);
    if (ok) {
        across(&tx, from, stride, h, width, rows);
        down(&ty, rows, line, line, height, sum, out);
    }
    taps_free(&tx);
    taps_free(&ty);
    free(rows);
    free(sum);
    return ok;
}

bool picture_to_input(const Image *im, int x, int y, int w, int h, int height, int width, const float *mean, const float *std, bool fused, float *out, Err *err)
{
    size_t plane = (size_t)height * (size_t)width;
    uint8_t *small = malloc(3 * plane);
    bool ok = small || fail(err, E_LIMIT, "out of memory");
    ok = ok && picture_resize(im, x, y, w, h, height, width, small, err);
    for (size_t c = 0; ok && c < 3; c++) {
        float scale = fused ? 1 : 255, m = fused ? mean[c] * 255 : mean[c], s = fused ? std[c] * 255 : std[c], of[256];
        for (int v = 0; v < 256; v++) of[v] = ((float)v / scale - m) / s;
        for (size_t i = 0; i < plane; i++) out[c * plane + i] = of[small[3 * i + c]];
    }
    free(small);
    return ok;
}
