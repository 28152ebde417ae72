/* Ranges and scales. Contract in observe.h. */
#include "quantize/observe.h"
#include <math.h>
#include "base/mem.h"

enum { LEVELS = 128, TRIES = 128 };

const char *calibration_name(Calibration c)
{
    static const char *const names[CALIBRATIONS] = {"minmax", "average", "percentile", "entropy", "mse"};
    return names[c];
}

void observer_begin(Observer *o, Calibration how) { *o = (Observer){.how = how}; }

void observer_free(Observer *o)
{
    mem_free(o->bin);
    *o = (Observer){0};
}

bool observer_histogram(const Observer *o) { return o->how >= CALIBRATE_PERCENTILE; }

int64_t observe_range(Observer *o, const float *x, int64_t n)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return i;
        low = (double)x[i] < low ? (double)x[i] : low;
        high = (double)x[i] > high ? (double)x[i] : high;
    }
    if (!n) return -1;
    if (!o->batches++) {
        o->low = low;
        o->high = high;
    } else if (o->how == CALIBRATE_AVERAGE) {
        o->low += 0.01 * (low - o->low);
        o->high += 0.01 * (high - o->high);
    } else {
        o->low = low < o->low ? low : o->low;
        o->high = high > o->high ? high : o->high;
    }
    o->count += n;
    return -1;
}

static double largest(const Observer *o) { return -o->low > o->high ? -o->low : o->high; }

bool observe_histogram(Observer *o, const float *x, int64_t n, Err *err)
{
    double most = largest(o);
    if (!o->bin && !(o->bin = mem_zeroed(OBSERVER_BINS, sizeof *o->bin))) return oom(err);
    for (int64_t i = 0; i < n && most > 0; i++) {
        double k = fabs((double)x[i]) / most * OBSERVER_BINS;
        o->bin[k < OBSERVER_BINS ? (int)k : OBSERVER_BINS - 1]++; /* random ops draw others the second time */
    }
    return true;
}

/* ------------------------------------------------------------------ where to cut: a number of bins */

static int cut_percentile(const Observer *o, double percentile)
{
    double all = 0, sum = 0;
    for (int i = 0; i < OBSERVER_BINS; i++) all += o->bin[i];
    for (int i = 0; i < OBSERVER_BINS; i++)
        if ((sum += o->bin[i]) >= all * percentile / 100) return i + 1;
    return OBSERVER_BINS;
}

/* The divergence of `n` bins, the rest on the last, from the same in LEVELS levels. */
static double divergence(const double *bin, int n)
{
    double all = 0, outside = 0, kl = 0;
    for (int i = 0; i < OBSERVER_BINS; i++) all += bin[i];
    for (int i = n; i < OBSERVER_BINS; i++) outside += bin[i];
    for (int level = 0; level < LEVELS; level++) {
        int from = (int)((int64_t)level * n / LEVELS), to = (int)((int64_t)(level + 1) * n / LEVELS), used = 0;
        double sum = 0;
        for (int i = from; i < to; i++) {
            sum += bin[i];
            used += bin[i] > 0;
        }
        for (int i = from; i < to; i++) {
            double p = bin[i] + (i == n - 1 ? outside : 0), q = used && bin[i] > 0 ? sum / used : 0;
            if (p > 0) kl += q > 0 ? p / all * log(p * (all - outside) / (q * all)) : p / all * 30;
        }
    }
    return kl;
}

/* Of values in the middles of the bins, in bins: rounded to n / 127, or cut at n. */
static double squared_error(const double *bin, int n)
{
    double step = n / 127.0, sum = 0;
    for (int i = 0; i < OBSERVER_BINS; i++) {
        double x = i + 0.5, y = x >= n ? n : rint(x / step) * step;
        sum += bin[i] * (x - y) * (x - y);
    }
    return sum;
}

/* The number of bins, from `first` on, at which to cut loses least; of equal ones the largest. */
static int cut_least(const Observer *o, int first, double (*loss)(const double *bin, int n))
{
    int best = OBSERVER_BINS;
    double least = INFINITY;
    for (int n = first; n <= OBSERVER_BINS; n += OBSERVER_BINS / TRIES) {
        double e = loss(o->bin, n);
        if (e <= least) {
            least = e;
            best = n;
        }
    }
    return best;
}

static int cut(const Observer *o, double percentile)
{
    if (!o->bin) return OBSERVER_BINS;
    switch (o->how) {
    case CALIBRATE_PERCENTILE: return cut_percentile(o, percentile);
    case CALIBRATE_ENTROPY: return cut_least(o, LEVELS, divergence);
    case CALIBRATE_MSE: return cut_least(o, OBSERVER_BINS / TRIES, squared_error);
    default: return OBSERVER_BINS;
    }
}

Scale observer_scale(const Observer *o, double percentile, DType t)
{
    double most = largest(o) * cut(o, percentile) / OBSERVER_BINS;
    if (t != DT_U8) return (Scale){most > 0 ? (double)(float)(most / dtype_highest(t)) : 1, 0, t};
    double low = o->low < -most ? -most : o->low, high = o->high > most ? most : o->high;
    low = low > 0 ? 0 : low;
    high = high < 0 ? 0 : high;
    if (!(high > low)) return (Scale){1, 0, DT_U8};
    double scale = (double)(float)((high - low) / 255), zero = rint(-low / scale);
    return (Scale){scale, (int)(zero > 255 ? 255 : zero), DT_U8};
}
