/* What an antialiased resize reads: of every output pixel where its input pixels begin, how many they are, and their
 * weights.
 *
 *     Taps t;
 *     taps_make(&t, in, out, err);      out[i] = sum over k < t.n[i] of t.w[i * t.most + k] * in[t.first[i] + k]
 *     taps_free(&t);
 *
 * The triangle filter, widened by the reduction factor, as Pillow's BILINEAR (Resample.c: precompute_coeffs) and
 * PyTorch's bilinear with antialias have it.
 */
#ifndef QKV_VISION_TAPS_H
#define QKV_VISION_TAPS_H
#include "base/err.h"

typedef struct Taps {
    int most; /* weights laid out for each output pixel */
    int *first, *n;
    double *w; /* (out, most); they sum to 1, those from n on are 0 */
} Taps;

bool taps_make(Taps *t, int in, int out, Err *err);
void taps_free(Taps *t);
#endif
