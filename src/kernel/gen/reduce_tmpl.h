/* One type's row kernels; included by reduce.c (and the reference) with T, NAME(x), EXP, ACC set. */

/* Sixteen partial sums, vectorised or not: the error grows with n / 16. */
static ACC NAME(row_sum)(const T *x, int64_t n)
{
    ACC part[16] = {0}, s = 0;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) part[l] += (ACC)x[i + l];
    for (; i < n; i++) s += (ACC)x[i];
    for (int l = 0; l < 16; l++) s += part[l];
    return s;
}

/* In blocks whose sums are added in double: a long row keeps its accuracy. */
static double NAME(sum)(const T *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i += 1024) s += (double)NAME(row_sum)(x + i, n - i < 1024 ? n - i : 1024);
    return s;
}

/* The same of (x - mean)^2. */
static double NAME(squares)(const T *x, T mean, int64_t n)
{
    double s = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        ACC part[16] = {0}, rest = 0;
        end = n - i < 1024 ? n : i + 1024;
        for (; i + 16 <= end; i += 16)
            for (int l = 0; l < 16; l++) part[l] += (ACC)(x[i + l] - mean) * (ACC)(x[i + l] - mean);
        for (; i < end; i++) rest += (ACC)(x[i] - mean) * (ACC)(x[i] - mean);
        for (int l = 0; l < 16; l++) rest += part[l];
        s += (double)rest;
    }
    return s;
}

/* The same of exp(x - top). */
static double NAME(exponentials)(const T *x, T top, int64_t n)
{
    double s = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        ACC part[16] = {0}, rest = 0;
        end = n - i < 1024 ? n : i + 1024;
        for (; i + 16 <= end; i += 16)
            for (int l = 0; l < 16; l++) part[l] += (ACC)EXP(x[i + l] - top);
        for (; i < end; i++) rest += (ACC)EXP(x[i] - top);
        for (int l = 0; l < 16; l++) rest += part[l];
        s += (double)rest;
    }
    return s;
}

static double NAME(extreme)(const T *x, int64_t n, bool smallest, int64_t *at)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n && x[best] == x[best]; i++)
        if (x[i] != x[i] || (smallest ? x[i] < x[best] : x[i] > x[best])) best = i;
    if (at) *at = best;
    return (double)x[best];
}

static T NAME(row_max)(const T *x, int64_t n)
{
    T m = -INFINITY;
#pragma omp simd reduction(max : m)
    for (int64_t i = 0; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}

static void NAME(softmax_row)(T *out, const T *x, int64_t n, bool logarithm, bool safe)
{
    T top = NAME(row_max)(x, n);
    if (safe && top == -INFINITY) {
        bool nan = false;
        for (int64_t i = 0; i < n; i++) nan |= x[i] != x[i];
        if (!nan) {
            for (int64_t i = 0; i < n; i++) out[i] = 0;
            return;
        }
    }
    if (logarithm) {
        T shift = (T)log(NAME(exponentials)(x, top, n));
        for (int64_t i = 0; i < n; i++) out[i] = x[i] - top - shift;
        return;
    }
    for (int64_t i = 0; i < n; i++) out[i] = EXP(x[i] - top);
    T inverse = (T)(1 / NAME(sum)(out, n));
    for (int64_t i = 0; i < n; i++) out[i] *= inverse;
}

static void NAME(softmax)(T *out, const T *x, int64_t rows, int64_t n, bool logarithm, bool safe, int threads)
{
#pragma omp parallel for num_threads(threads) if (rows * n > 1 << 14)
    for (int64_t r = 0; r < rows; r++) NAME(softmax_row)(out + r * n, x + r * n, n, logarithm, safe);
}

static void NAME(norm_row)(T *out, const T *x, const T *w, const T *b, int64_t n, double eps, bool rms, T *mean_out, T *rstd_out)
{
    T mean = rms ? 0 : (T)(NAME(sum)(x, n) / (double)n);
    T rstd = (T)(1 / sqrt(NAME(squares)(x, mean, n) / (double)n + eps));
    if (mean_out) *mean_out = mean;
    if (rstd_out) *rstd_out = rstd;
    if (w && b)
        for (int64_t i = 0; i < n; i++) out[i] = (x[i] - mean) * rstd * w[i] + b[i];
    else if (w)
        for (int64_t i = 0; i < n; i++) out[i] = (x[i] - mean) * rstd * w[i];
    else
        for (int64_t i = 0; i < n; i++) out[i] = (x[i] - mean) * rstd + (b ? b[i] : 0);
}

static void NAME(norm)(T *out, const T *x, const T *w, const T *b, int64_t rows, int64_t n, double eps, bool rms, T *mean, T *rstd, int threads)
{
#pragma omp parallel for num_threads(threads) if (rows * n > 1 << 14)
    for (int64_t r = 0; r < rows; r++)
        NAME(norm_row)(out + r * n, x + r * n, w, b, n, eps, rms, mean ? mean + r : NULL, rstd ? rstd + r : NULL);
}
