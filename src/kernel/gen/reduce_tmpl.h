/* One type's row kernels; included by reduce.c (and the reference) with T, NAME(x), EXP, ACC set. */

/* By halves, which wait for each other four times instead of sixteen. */
static inline ACC NAME(of_parts)(ACC *part)
{
#pragma GCC unroll 4
    for (int n = 8; n; n /= 2)
#pragma GCC unroll 8
        for (int l = 0; l < n; l++) part[l] += part[l + n];
    return part[0];
}

/* Sixteen partial sums, vectorised or not: the error grows with n / 16. */
static ACC NAME(row_sum)(const T *x, int64_t n)
{
    ACC part[16] = {0}, s = 0;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) part[l] += (ACC)x[i + l];
    for (; i < n; i++) s += (ACC)x[i];
    return s + NAME(of_parts)(part);
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
        s += (double)(rest + NAME(of_parts)(part));
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
        s += (double)(rest + NAME(of_parts)(part));
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
        T shift = (T)real_log(NAME(exponentials)(x, top, n));
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

/* Some rows, one step of all of them before the next: within a row each step waits for the one before. */
static void NAME(norm_rows)(T *out, const T *x, const T *w, const T *b, int64_t rows, int64_t n, double eps, bool rms,
                            T *mean, T *rstd)
{
    for (int64_t r = 0; r < rows; r++) mean[r] = rms ? 0 : (T)(NAME(sum)(x + r * n, n) / (double)n);
    for (int64_t r = 0; r < rows; r++) rstd[r] = (T)(1 / sqrt(NAME(squares)(x + r * n, mean[r], n) / (double)n + eps));
    for (int64_t r = 0; r < rows; r++, out += n, x += n) {
        T m = mean[r], s = rstd[r];
        if (w && b)
            for (int64_t i = 0; i < n; i++) out[i] = (x[i] - m) * s * w[i] + b[i];
        else if (w)
            for (int64_t i = 0; i < n; i++) out[i] = (x[i] - m) * s * w[i];
        else
            for (int64_t i = 0; i < n; i++) out[i] = (x[i] - m) * s + (b ? b[i] : 0);
    }
}

static void NAME(norm)(T *out, const T *x, const T *w, const T *b, int64_t rows, int64_t n, double eps, bool rms,
                       T *mean, T *rstd, int threads)
{
    enum { TOGETHER = 4 };
#pragma omp parallel for num_threads(threads) if (rows * n > 1 << 14)
    for (int64_t r = 0; r < rows; r += TOGETHER) {
        T room[2][TOGETHER];
        NAME(norm_rows)(out + r * n, x + r * n, w, b, rows - r < TOGETHER ? rows - r : TOGETHER, n, eps, rms,
                        mean ? mean + r : room[0], rstd ? rstd + r : room[1]);
    }
}

/* Sums of columns, or, with `mean`, of (x - mean)^2: in strips of columns and blocks of rows whose sums are added in
 * double. */
static void NAME(columns)(double *sum, const T *x, const T *mean, int64_t rows, int64_t step, int64_t n)
{
    enum { STRIP = 64, BLOCK = 64 };
    for (int64_t at = 0; at < n; at += STRIP) {
        int64_t cols = n - at < STRIP ? n - at : STRIP;
        double total[STRIP] = {0};
        T about[STRIP] = {0};
        for (int64_t l = 0; mean && l < cols; l++) about[l] = mean[at + l];
        for (int64_t r = 0, end; r < rows; r = end) {
            ACC part[STRIP] = {0};
            const T *from = x + r * step + at;
            end = rows - r < BLOCK ? rows : r + BLOCK;
            if (mean && cols == STRIP)
                for (int64_t k = r; k < end; k++, from += step)
                    for (int l = 0; l < STRIP; l++) part[l] += (ACC)(from[l] - about[l]) * (ACC)(from[l] - about[l]);
            else if (mean)
                for (int64_t k = r; k < end; k++, from += step)
                    for (int64_t l = 0; l < cols; l++)
                        part[l] += (ACC)(from[l] - about[l]) * (ACC)(from[l] - about[l]);
            else if (cols == STRIP)
                for (int64_t k = r; k < end; k++, from += step)
                    for (int l = 0; l < STRIP; l++) part[l] += (ACC)from[l];
            else
                for (int64_t k = r; k < end; k++, from += step)
                    for (int64_t l = 0; l < cols; l++) part[l] += (ACC)from[l];
            for (int64_t l = 0; l < cols; l++) total[l] += (double)part[l];
        }
        for (int64_t l = 0; l < cols; l++) sum[at + l] = total[l];
    }
}

/* Sums of dy w and of dy w h over a row, h = (x - mean) rstd. */
static void NAME(norm_back_sums)(const T *dy, const T *x, const T *w, T mean, T rstd, int64_t n, double *first,
                                 double *second)
{
    *first = *second = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        ACC a[16] = {0}, b[16] = {0}, s = 0, t = 0;
        end = n - i < 1024 ? n : i + 1024;
        for (; i + 16 <= end; i += 16)
            for (int l = 0; l < 16; l++) {
                ACC g = (ACC)dy[i + l] * (ACC)w[i + l];
                a[l] += g;
                b[l] += g * (ACC)((x[i + l] - mean) * rstd);
            }
        for (; i < end; i++) {
            ACC g = (ACC)dy[i] * (ACC)w[i];
            s += g;
            t += g * (ACC)((x[i] - mean) * rstd);
        }
        *first += (double)(s + NAME(of_parts)(a));
        *second += (double)(t + NAME(of_parts)(b));
    }
}

static void NAME(norm_back)(T *dx, double *dw, double *db, const T *dy, const T *x, const T *w, int64_t rows, int64_t n,
                            double eps, bool rms)
{
    for (int64_t r = 0; r < rows; r++, dx += n, dy += n, x += n) {
        double first, second;
        T mean = rms ? 0 : (T)(NAME(sum)(x, n) / (double)n),
          rstd = (T)(1 / sqrt(NAME(squares)(x, mean, n) / (double)n + eps));
        NAME(norm_back_sums)(dy, x, w, mean, rstd, n, &first, &second);
        T all = rms ? 0 : (T)(first / (double)n), along = (T)(second / (double)n);
        for (int64_t i = 0; i < n; i++) {
            T h = (x[i] - mean) * rstd;
            dx[i] = (dy[i] * w[i] - all - h * along) * rstd;
            dw[i] += (double)(dy[i] * h);
            db[i] += (double)dy[i];
        }
    }
}
