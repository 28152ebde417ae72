/* Elements far above the median. Contract in massive.h. */
#include "quantize/massive.h"
#include <string.h>
#include "base/buf.h"
#include "base/mem.h"

enum { SHIFT = 21, NAMED = 3 };

Massive *massive_create(Err *err)
{
    Massive *m = mem_zeroed(1, sizeof *m);
    if (!m) oom(err);
    return m;
}

void massive_free(Massive *m)
{
    if (m) mem_free(m->most);
    mem_free(m);
}

bool massive_observe(Massive *m, const float *x, int64_t rows, int64_t K, Err *err)
{
    if (K > m->K) {
        uint32_t *grown = mem_grow(m->most, (size_t)K * sizeof *grown);
        if (!grown) return oom(err);
        memset(grown + m->K, 0, (size_t)(K - m->K) * sizeof *grown);
        m->most = grown;
        m->K = K;
    }
    for (int64_t r = 0; r < rows; r++, x += K) {
        uint32_t largest = 0;
        for (int64_t k = 0; k < K; k++) {
            uint32_t bits;
            memcpy(&bits, &x[k], sizeof bits);
            bits &= 0x7fffffff;
            m->all[bits >> SHIFT]++;
            m->most[k] = bits > m->most[k] ? bits : m->most[k];
            largest = bits > largest ? bits : largest;
        }
        m->rows[largest >> SHIFT]++;
    }
    return true;
}

static double value_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* The bin of the median of what is not 0. */
static int median(const Massive *m)
{
    int64_t n = 0, below = 0;
    int i = 1;
    for (int k = 1; k < MASSIVE_BINS; k++) n += m->all[k];
    while (i < MASSIVE_BINS - 1 && 2 * (below += m->all[i]) < n) i++;
    return i;
}

const char *massive_found(const Massive *m, double times, Arena *a, Err *err)
{
    const double middle = value_of((uint32_t)median(m) << SHIFT), limit = times * middle;
    double largest = 0;
    int64_t channels = 0, tokens = 0, all = 0;
    Buf names = {0};
    for (int64_t k = 0; k < m->K; k++) {
        const double most = value_of(m->most[k]);
        largest = most > largest ? most : largest;
        if (!(most > limit)) continue;
        if (++channels <= NAMED) buf_printf(&names, "%s%lld", channels > 1 ? ", " : "", (long long)k);
    }
    for (int i = 0; i < MASSIVE_BINS; i++) {
        all += m->rows[i];
        tokens += value_of((uint32_t)i << SHIFT) > limit ? m->rows[i] : 0;
    }
    const char *why = NULL;
    if (channels && !(why = arena_printf(a,
                                         "massive activations: the largest is %.3g times the median; channel%s %s%s of "
                                         "%lld, in %lld of %lld tokens",
                                         largest / middle, channels > 1 ? "s" : "", names.data ? names.data : "",
                                         channels > NAMED ? ", ..." : "", (long long)m->K,
                                         (long long)(tokens ? tokens : 1), (long long)all)))
        oom(err);
    buf_free(&names);
    return why;
}
