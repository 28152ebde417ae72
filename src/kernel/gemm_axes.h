/* A convolution's axes, one at a time. Along each, output i is at pixel i * step, and tap k is low + k * gap pixels
 * after that. A transposed convolution of stride s is s such convolutions, one for each place that an output has modulo
 * s, each with those taps that reach it, step 1 and every s-th output.
 *
 *     stride 2, window 3, padding 1, transposed:     y[2 i] = x[i] w[1]       y[2 i + 1] = x[i + 1] w[0] + x[i] w[2]
 */
#ifndef QKV_KERNEL_GEMM_AXES_H
#define QKV_KERNEL_GEMM_AXES_H
#include "kernel/gemm_impl.h"

enum { AXES = 3 };

typedef struct Axis {
    int64_t in, out, step, low, gap, taps; /* of the part's outputs */
    int64_t first, every;                  /* the part's outputs are y's first, first + every, ... */
} Axis;

/* Axis i of the part whose outputs are those at `place` modulo the stride (0, where it is not transposed). False: there
 * are none. weight: the first tap's number and the step from tap to tap, in taps of the window. */
static inline bool axis_of(const GemmConv *d, int i, int64_t place, Axis *a, int64_t *weight, int64_t *weight_step)
{
    int at = i - (AXES - d->spatial);
    *weight = 0, *weight_step = 1;
    *a = (Axis){.in = 1, .out = 1, .step = 1, .gap = 1, .taps = 1, .every = 1};
    if (at < 0) return true;
    int64_t k = d->w->shape[2 + at], s = d->stride[at], p = d->padding[at], dil = d->dilation[at],
            out = d->y->shape[2 + at];
    a->in = d->x->shape[2 + at];
    if (!d->transposed) {
        a->out = out, a->step = s, a->low = -p, a->gap = dil, a->taps = k;
        return out > 0;
    }
    a->first = place, a->every = s;
    a->out = place < out ? (out - place - 1) / s + 1 : 0;
    int64_t first = 0, step = 1; /* output i s + place meets tap m at pixel i + (place + p - m dil) / s */
    while (first < least(s, k) && (place + p - first * dil) % s) first++;
    while (step < s && step * dil % s) step++;
    a->taps = first < least(s, k) ? (k - 1 - first) / step + 1 : 0;
    a->low = a->taps ? (place + p - first * dil) / s : 0;
    a->gap = -(step * dil / s);
    *weight = first, *weight_step = step;
    return a->out > 0;
}

static inline int64_t lowest(const Axis *a) { return a->low + least(0, (a->taps - 1) * a->gap); }
static inline int64_t span(const Axis *a) { return a->taps ? (a->taps - 1) * (a->gap < 0 ? -a->gap : a->gap) + 1 : 1; }
static inline bool inside(const Axis *a)
{
    return !a->taps || (lowest(a) >= 0 && (a->out - 1) * a->step + lowest(a) + span(a) <= a->in);
}

/* Strides by axis, those in front that are not there 0. */
static inline void strides_of(const Tensor *t, int spatial, int64_t *to)
{
    for (int i = 0; i < AXES; i++) to[i] = i < AXES - spatial ? 0 : t->stride[2 + i - (AXES - spatial)];
}

/* Whether windows see little of the picture but its padding: tiles take a time for that, and strips of it memory, which
 * neither picture, outputs nor weights account for. */
static inline bool mostly_padding(const GemmConv *d)
{
    enum { MANY_TIMES = 64 };
    double met = 1, pairs = 1, padded = 1, sizes = 1; /* pairs of an output and a tap */
    for (int i = 0; i < d->spatial; i++) {
        int64_t in = d->x->shape[2 + i], out = d->y->shape[2 + i], k = d->w->shape[2 + i], s = d->stride[i],
                dil = d->dilation[i];
        double n = 0;
        for (int64_t t = 0; t < k; t++) {
            int64_t shift = t * dil - d->padding[i];
            Meeting m = d->transposed ? meeting(in, s, shift, out) : meeting(out, s, shift, in);
            n += m.end > m.first ? (double)(m.end - m.first) : 0;
        }
        met *= n;
        pairs *= (double)out * (double)k / (double)(d->transposed ? least(s, k) : 1);
        padded *= (double)(d->transposed ? out : (out - 1) * s + 1) + (double)(k - 1) * (double)dil;
        sizes *= (double)(in + out);
    }
    return pairs > MANY_TIMES * (met + 1) || padded > MANY_TIMES * sizes;
}

/* How many places outputs have modulo the strides, all axes together; more than `limit`: at least limit + 1. */
static inline int64_t places_of(const GemmConv *d, int64_t limit)
{
    int64_t n = 1;
    for (int i = 0; i < d->spatial && d->transposed && n <= limit; i++)
        n = d->stride[i] > limit ? limit + 1 : n * d->stride[i];
    return n;
}

/* Place number i, by axis. */
static inline void place_of(const GemmConv *d, int64_t i, int64_t *place)
{
    for (int a = AXES - 1; a >= 0; a--) {
        int at = a - (AXES - d->spatial);
        int64_t s = at >= 0 && d->transposed ? d->stride[at] : 1;
        place[a] = i % s;
        i /= s;
    }
}
#endif
