/* Weights of a resize. Contract and sources in taps.h. */
#include "vision/taps.h"
#include <math.h>
#include "base/arena.h"
#include "base/mem.h"

void taps_free(Taps *t)
{
    mem_free(t->first);
    mem_free(t->n);
    mem_free(t->w);
    *t = (Taps){0};
}

bool taps_make(Taps *t, int in, int out, Err *err)
{
    double scale = (double)in / out, support = scale >= 1 ? scale : 1, inverse = scale >= 1 ? 1 / scale : 1;
    *t = (Taps){.most = (int)ceil(support) * 2 + 1};
    size_t count;
    t->w = mul_size((size_t)out, (size_t)t->most, &count) ? mem_zeroed(count, sizeof *t->w) : NULL;
    t->first = mem_zeroed((size_t)out, sizeof *t->first);
    t->n = mem_zeroed((size_t)out, sizeof *t->n);
    if (!t->w || !t->first || !t->n) {
        taps_free(t);
        return oom(err);
    }
    for (int i = 0; i < out; i++) {
        double centre = scale * (i + 0.5), sum = 0, *w = t->w + (size_t)i * (size_t)t->most;
        int first = (int)(centre - support + 0.5), last = (int)(centre + support + 0.5);
        first = first > 0 ? first : 0;
        int n = (last < in ? last : in) - first;
        t->first[i] = first;
        t->n[i] = n < 0 ? 0 : n > t->most ? t->most : n;
        for (int k = 0; k < t->n[i]; k++) {
            double x = fabs((k + first - centre + 0.5) * inverse);
            sum += w[k] = x < 1 ? 1 - x : 0;
        }
        for (int k = 0; k < t->n[i]; k++)
            if (sum != 0) w[k] /= sum;
    }
    return true;
}
