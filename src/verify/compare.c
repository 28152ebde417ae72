/* Comparing tensors. Contract in compare.h. */
#include "verify/compare.h"
#include <math.h>

static bool same_nonfinite(double x, double y) { return (isnan(x) && isnan(y)) || x == y; }

bool compare_ends(const Tensor *a, const Tensor *b, Err *err)
{
    const int64_t most = (int64_t)1 << 31;
    int64_t n = tensor_numel(a);
    if (n <= most || !tensor_repeats(a) || !tensor_repeats(b)) return true;
    return fail(err, E_LIMIT, "%lld elements, which repeat a few, are too many to compare; at most %lld are",
                (long long)n, (long long)most);
}

bool compare_tensors(const Tensor *got, const Tensor *want, double atol, double rtol, Difference *d, Err *err)
{
    Tensor ar = tensor_as_real(got), br = tensor_as_real(want);
    const Tensor *a = &ar, *b = &br;
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) same = a->shape[i] == b->shape[i];
    if (!same) {
        char x[256], y[256];
        return fail(err, E_USAGE, "shapes differ: %s and expected %s", tensor_describe(got, x, sizeof x),
                    tensor_describe(want, y, sizeof y));
    }
    TRY(compare_ends(a, b, err));
    *d = (Difference){.index = -1, .cosine = 1};
    double dot = 0, aa = 0, bb = 0, peak = 0;
    int64_t n = tensor_numel(a), first_bad = -1;
    for (int64_t i = 0; i < n; i++) {
        double x = tensor_get(a, i), y = tensor_get(b, i);
        if (!isfinite(x) || !isfinite(y)) {
            if (same_nonfinite(x, y)) continue;
            if (first_bad < 0) first_bad = i;
            d->nonfinite++;
            d->failed++;
            continue;
        }
        double e = fabs(x - y);
        dot += x * y;
        aa += x * x;
        bb += y * y;
        if (fabs(y) > peak) peak = fabs(y);
        if (y != 0 && e / fabs(y) > d->max_rel) d->max_rel = e / fabs(y);
        if (e > atol + rtol * fabs(y)) d->failed++;
        if (e > d->max_abs) {
            d->max_abs = e;
            d->index = i;
        }
    }
    if (d->nonfinite) d->index = first_bad;
    if (d->index >= 0) {
        d->a = tensor_get(a, d->index);
        d->b = tensor_get(b, d->index);
        if (dtype_is_complex(got->dtype)) d->index /= 2;
    }
    d->max_abs_over_peak = peak > 0 ? d->max_abs / peak : d->max_abs;
    if (aa > 0 || bb > 0) d->cosine = aa > 0 && bb > 0 ? dot / (sqrt(aa) * sqrt(bb)) : 0;
    return true;
}
