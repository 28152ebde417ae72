/* Softmax, norms, sums and extremes: double against sums in long double written out here,
 * float against the reference in double, the same bits for every number of threads. */
#include "kernel_test.h"

enum { LONGEST = 100003 };

/* Sixteen vector lanes and beyond, blocks of 1024 and beyond. */
static const int64_t lengths[] = {0,  1,  2,  3,  5,   7,   8,   9,    15,   16,   17,   31,   32,  33,
                                  47, 63, 64, 65, 127, 255, 257, 1000, 1023, 1024, 1025, 2049, 5003};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

/* How often a term of a float sum over n can be rounded: once per addition of its lane in a block of 1024,
 * then as the 16 lanes and up to 15 left over are added. Each time is 2^-24 of the sum of magnitudes. */
static double roundings(int64_t n) { return (double)((n < 1024 ? n : 1024) / 16) + 31; }

typedef enum Fill { CALM, WILD, AWKWARD_ONES, ALL_LOW, LOW_OR_NAN, CONSTANT, STEEP, FILLS } Fill;

static void fill(float *x, int64_t n, Fill f, uint64_t *state)
{
    fill_random(x, n, f == WILD ? 60 : 2, state);
    if (f == AWKWARD_ONES && n) x[unit_random(state) % (uint32_t)n] = awkward[unit_random(state) % AWKWARD];
    for (int64_t i = 0; i < n; i++) {
        if (f == ALL_LOW || f == LOW_OR_NAN) x[i] = f == LOW_OR_NAN && i == n / 2 ? NAN : -INFINITY;
        if (f == CONSTANT) x[i] = i ? 0.1f : 1.1f; /* every addition of a long sum rounds the same way */
        if (f == STEEP) x[i] = -(float)i;
    }
}

static double *widened(int to, const float *x, int64_t n)
{
    double *d = room(to, n * 8);
    for (int64_t i = 0; i < n; i++) d[i] = x[i];
    return d;
}

/* ------------------------------------------------------------------ softmax */

/* One row in long double; rows of NaN where PyTorch has them. */
static void softmax_model(double *out, const double *x, int64_t n, bool logarithm, bool safe)
{
    long double top = -INFINITY, sum = 0;
    bool nan = false;
    for (int64_t i = 0; i < n; i++) {
        nan |= isnan(x[i]);
        if (x[i] > (double)top) top = x[i];
    }
    for (int64_t i = 0; i < n; i++) sum += expl(x[i] - top);
    for (int64_t i = 0; i < n; i++)
        if (nan || top == INFINITY || (top == -INFINITY && !safe)) out[i] = NAN;
        else if (top == -INFINITY) out[i] = 0;
        else out[i] = (double)(logarithm ? x[i] - top - logl(sum) : expl(x[i] - top) / sum);
}

/* Error of one element with a unit roundoff u: d = x - top rounds (the reference's double too), exp and log are
 * within 2 roundoffs (tests/kernel/test_pointwise.c), the sum gathers `adds`, inverse, product or differences one
 * each; a denormal result its step, or all of it where the kernel gives 0 below exp(-87) (f32, vmath.h). */
static double softmax_error(double y, double d, double log_sum, bool logarithm, double adds, double u, double least)
{
    if (logarithm) return u * (adds + 4 + 2 * fabs(log_sum) + 2 * fabs(d));
    return u * y * (adds + 8 + fabs(d)) + least;
}

static void check_softmax_row(CpuLevel l, const char *type, const double *got, const double *want, const double *x,
                              int64_t n, bool logarithm, double adds, double u, double least)
{
    double top = -INFINITY;
    for (int64_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int64_t i = 0; i < n; i++) {
        double d = isinf(top) ? 0 : x[i] - top,
               far = softmax_error(want[i], d, log((double)n), logarithm, adds, u, least);
        if (isnan(want[i]) != isnan(got[i]) ||
            (got[i] != want[i] && !isnan(got[i]) && !(fabs(got[i] - want[i]) <= far)))
            STOP("%ssoftmax %s on %s: %a at %d of %d, expected %a; %g off, %g allowed", logarithm ? "log_" : "", type,
                 cpu_level_name(l), got[i], (int)i, (int)n, want[i], fabs(got[i] - want[i]), far);
    }
}

static void check_softmax(int64_t rows, int64_t n, Fill f, bool logarithm, bool safe, uint64_t *state)
{
    float *x = room(0, rows * n * 4);
    for (int64_t r = 0; r < rows; r++) fill(x + r * n, n, f, state);
    double *wide = widened(1, x, rows * n), *want = room(2, rows * n * 8), *back = room(3, n * 8);
    for (int64_t r = 0; r < rows; r++) softmax_model(want + r * n, wide + r * n, n, logarithm, safe);
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(reduce, l)) {
        const ReduceKernels *k = &kernels_at(l)->reduce;
        double *d = room(4, rows * n * 8);
        k->softmax_f64(d, wide, rows, n, logarithm, safe, 2);
        for (int64_t r = 0; r < rows; r++) /* the sum of doubles may be plain */
            check_softmax_row(l, "f64", d + r * n, want + r * n, wide + r * n, n, logarithm, (double)n, 0x1p-53,
                              0x1p-1074);
        float *y = room(5, rows * n * 4);
        k->softmax_f32(y, x, rows, n, logarithm, safe, 2);
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t i = 0; i < n; i++) back[i] = y[r * n + i];
            check_softmax_row(l, "f32", back, want + r * n, wide + r * n, n, logarithm, roundings(n), 0x1p-24,
                              0x1p-125);
        }
        assert_guard(d);
        assert_guard(y);
    }
}

static void test_softmax(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int how = 0; how < 3; how++)
        for (int f = 0; f < FILLS; f++) {
            for (int i = 0; i < LENGTHS; i++) {
                if ((i + f + how) % ONE_IN) continue;
                check_softmax(1 + i % 3, lengths[i], (Fill)f, how == 1, how == 2, &seed);
            }
            if ((f + how) % ONE_IN == 0) check_softmax(1, LONGEST, (Fill)f, how == 1, how == 2, &seed);
            check_softmax(0, 5, (Fill)f, how == 1, how == 2, &seed);
        }
}

/* A single -inf in a row is 0, also beside an awkward value; log gives -inf there. */
static void test_softmax_masked(void **state)
{
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(reduce, l))
        for (int64_t n = 2; n < 40; n++) {
            float x[40], y[40];
            for (int64_t i = 0; i < n; i++) x[i] = i % 2 ? -INFINITY : 1e30f;
            kernels_at(l)->reduce.softmax_f32(y, x, 1, n, false, false, 1);
            for (int64_t i = 0; i < n; i++)
                assert_true(i % 2 ? y[i] == 0 : fabsf(y[i] * (float)((n + 1) / 2) - 1) < 0x1p-22f);
            kernels_at(l)->reduce.softmax_f32(y, x, 1, n, true, false, 1);
            for (int64_t i = 0; i < n; i++) assert_true(i % 2 ? y[i] == -INFINITY : y[i] <= 0);
        }
}

/* ------------------------------------------------------------------ norms */

typedef struct Norm {
    int64_t rows, n;
    bool w, b, rms, moments;
    double eps;
} Norm;

static void norm_model(double *out, const double *x, const double *w, const double *b, const Norm *p, double *mean,
                       double *rstd)
{
    long double m = 0, square = 0;
    for (int64_t i = 0; i < p->n; i++) m += p->rms ? 0 : x[i];
    m /= p->n;
    for (int64_t i = 0; i < p->n; i++) square += (x[i] - m) * (x[i] - m);
    long double s = 1 / sqrtl(square / p->n + p->eps);
    for (int64_t i = 0; i < p->n; i++) out[i] = (double)((x[i] - m) * s * (p->w ? w[i] : 1) + (p->b ? b[i] : 0));
    *mean = (double)m;
    *rstd = (double)s;
}

/* The mean is off by its sum's roundings of the largest |x| and one of its own; so is each x - mean, and twice that
 * over the standard deviation the variance; then root, inverse and three products, and the sum with b. */
static void check_norm_row(CpuLevel l, const char *type, const Norm *p, const double *got, const double *want,
                           const double *x, const double *w, const double *b, double mean, double rstd, double got_mean,
                           double got_rstd, double adds, double u)
{
    double most = 0;
    for (int64_t i = 0; i < p->n; i++) most = fabs(x[i]) > most ? fabs(x[i]) : most;
    double off = p->rms ? 0 : u * most * (adds + 2), relative = off * rstd + u * (adds + 8);
    bool ok = !p->moments || isnan(rstd) ||
              (fabs(got_mean - mean) <= off && fabs(got_rstd - rstd) <= rstd * relative) || got_rstd == rstd;
    for (int64_t i = 0; ok && i < p->n; i++) {
        double plain = fabs(x[i] - mean) * rstd, scale = p->w ? fabs(w[i]) : 1,
               far = scale * (off * rstd + plain * relative) + u * (fabs(want[i]) + (p->b ? fabs(b[i]) : 0)) * 2;
        ok = isnan(want[i]) ? isnan(got[i]) : got[i] == want[i] || fabs(got[i] - want[i]) <= far;
        if (!ok)
            STOP("norm %s on %s: %a at %d of %d, expected %a; %g off, %g allowed", type, cpu_level_name(l), got[i],
                 (int)i, (int)p->n, want[i], fabs(got[i] - want[i]), far);
    }
    if (!ok)
        STOP("norm %s on %s, n %d: mean %a for %a, rstd %a for %a", type, cpu_level_name(l), (int)p->n, got_mean, mean,
             got_rstd, rstd);
}

static void check_norm(const Norm *p, const float *x, const float *w, const float *b)
{
    int64_t n = p->n;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(reduce, l)) {
        const ReduceKernels *k = &kernels_at(l)->reduce;
        double *wide = widened(3, x, p->rows * n), ww[5003], wb[5003], want[5003], back[5003], mean[4], rstd[4], m, s;
        float *y = room(4, p->rows * n * 4), mean32[4], rstd32[4];
        for (int64_t i = 0; i < n; i++) ww[i] = w[i], wb[i] = b[i];
        double *d = room(5, p->rows * n * 8);
        k->norm_f64(d, wide, p->w ? ww : NULL, p->b ? wb : NULL, p->rows, n, p->eps, p->rms, p->moments ? mean : NULL,
                    p->moments ? rstd : NULL, 2);
        k->norm_f32(y, x, p->w ? w : NULL, p->b ? b : NULL, p->rows, n, p->eps, p->rms, p->moments ? mean32 : NULL,
                    p->moments ? rstd32 : NULL, 2);
        for (int64_t r = 0; r < p->rows; r++) {
            norm_model(want, wide + r * n, ww, wb, p, &m, &s);
            check_norm_row(l, "f64", p, d + r * n, want, wide + r * n, ww, wb, m, s, mean[r], rstd[r], (double)n,
                           0x1p-53);
            for (int64_t i = 0; i < n; i++) back[i] = y[r * n + i];
            check_norm_row(l, "f32", p, back, want, wide + r * n, ww, wb, m, s, (double)mean32[r], (double)rstd32[r],
                           roundings(n), 0x1p-24);
        }
        assert_guard(y);
        assert_guard(d);
    }
}

static void test_norm(void **state)
{
    static const double eps[] = {1e-5, 1e-12, 1};
    uint64_t seed = 2;
    (void)state;
    for (int flags = 0; flags < 16; flags++)
        for (int i = 0; i < LENGTHS; i++) {
            if ((i + flags) % ONE_IN) continue;
            Norm p = {1 + i % 4, lengths[i], flags & 1, flags & 2, flags & 4, flags & 8, eps[(i + flags) % 3]};
            float *x = room(0, p.rows * p.n * 4), *w = room(1, p.n * 4), *b = room(2, p.n * 4), shift = i % 2 ? 100 : 0;
            fill_random(w, p.n, 3, &seed);
            fill_random(b, p.n, 3, &seed);
            for (int64_t r = 0; r < p.rows; r++) {
                fill(x + r * p.n, p.n, r == 1 ? CONSTANT : CALM, &seed);
                for (int64_t k = 0; k < p.n; k++)
                    x[r * p.n + k] = r == 2 ? x[r * p.n + k] * 0x1p-70f : x[r * p.n + k] + shift;
                if (r == 3 && p.n) x[r * p.n + p.n / 2] = (float[]){NAN, INFINITY, -INFINITY}[i % 3];
            }
            check_norm(&p, x, w, b);
        }
}

/* A long row keeps its accuracy: the bound of a row of 1024, and the variance of +-0.7 is 0.49 (0.7 rounded). */
static void test_norm_long(void **state)
{
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(reduce, l)) {
        float *x = room(0, (LONGEST - 1) * 4), *y = room(1, (LONGEST - 1) * 4), mean, rstd;
        for (int64_t i = 0; i < LONGEST - 1; i++) x[i] = i % 2 ? 0.7f : -0.7f;
        kernels_at(l)->reduce.norm_f32(y, x, NULL, NULL, 1, LONGEST - 1, 0, false, &mean, &rstd, 1);
        for (int64_t i = 0; i < LONGEST - 1; i++)
            if (fabs(fabs((double)y[i]) - 1) > roundings(LONGEST) * 0x1p-24)
                STOP("norm on %s: %.9g, expected 1", cpu_level_name(l), (double)y[i]);
    }
}

/* ------------------------------------------------------------------ sums and extremes */

static void check_sum(const float *x, int64_t n)
{
    double *d = widened(1, x, n);
    long double exact = 0, size = 0;
    for (int64_t i = 0; i < n; i++) exact += d[i], size += fabs(d[i]);
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(reduce, l)) {
        double f = kernels_at(l)->reduce.sum_f32(x, n), g = kernels_at(l)->reduce.sum_f64(d, n);
        double far = (l == CPU_REF ? (double)n * 0x1p-53 : roundings(n) * 0x1p-24) *
                     (double)size; /* the reference sums in double */
        bool ok = isfinite((double)size)
                      ? fabs(f - (double)exact) <= far && fabs(g - (double)exact) <= (double)size * (double)n * 0x1p-53
                      : same_f64(f, (double)exact) && same_f64(g, (double)exact);
        if (!ok)
            STOP("sum of %d on %s: f32 %.17g, f64 %.17g, expected %.17g", (int)n, cpu_level_name(l), f, g,
                 (double)exact);
    }
}

static void test_sum(void **state)
{
    uint64_t seed = 3;
    (void)state;
    for (int f = 0; f < FILLS; f++)
        for (int i = 0; i <= LENGTHS; i++) {
            int64_t n = i < LENGTHS ? lengths[i] : LONGEST;
            float *x = room(0, n * 4);
            fill(x, n, (Fill)f, &seed);
            for (int64_t k = 0; k < n; k++)
                if (fabsf(x[k]) == 0x1.fffffep127f) x[k] = 1; /* float sums may overflow where double's do not */
            check_sum(x, n);
        }
}

/* Columns of a matrix whose rows are `step` apart, their sums and those of squares about a mean each: what lies between
 * the rows is NaN. */
static void check_columns(CpuLevel l, bool wide, const double *d, const float *x, const double *mean,
                          const float *mean32, int64_t R, int64_t step, int64_t n)
{
    const ReduceKernels *k = &kernels_at(l)->reduce;
    double *sum = room(2, n * 8);
    if (wide) k->columns_f64(sum, d, mean, R, step, n);
    else k->columns_f32(sum, x, mean32, R, step, n);
    for (int64_t j = 0; j < n; j++) {
        long double exact = 0, size = 0;
        for (int64_t r = 0; r < R; r++) {
            long double v = d[r * step + j];
            if (mean) v = (v - mean[j]) * (v - mean[j]);
            exact += v, size += fabsl(v);
        }
        /* 64 rows in float, blocks in double; a difference and a square round three times */
        double far = (wide || l == CPU_REF ? ((double)R + 3) * 0x1p-53 : 69 * 0x1p-24) * (double)size;
        if (mean && l == CPU_REF && !wide) far += 3 * 0x1p-24 * (double)size; /* the difference is a float */
        if (!(fabs(sum[j] - (double)exact) <= far))
            STOP("column %d of %d rows%s on %s: %.17g, expected %.17g", (int)j, (int)R, mean ? " about a mean" : "",
                 cpu_level_name(l), sum[j], (double)exact);
    }
}

static void test_columns(void **state)
{
    static const int64_t rows[] = {0, 1, 2, 63, 64, 65, 200}, columns[] = {1, 2, 15, 16, 63, 64, 65, 129};
    uint64_t seed = 8;
    (void)state;
    for (int i = 0; i < 7 * 8; i++) {
        int64_t R = rows[i / 8], n = columns[i % 8], step = n + i % 3;
        float *x = room(0, R * step * 4), *mean32 = room(3, n * 4);
        double *d = room(1, R * step * 8), *mean = room(4, n * 8);
        fill_random(x, R * step, 2, &seed);
        fill_random(mean32, n, 2, &seed);
        for (int64_t k = 0; k < R * step; k++) d[k] = x[k] = k % step < n ? x[k] : NAN;
        for (int64_t k = 0; k < n; k++) mean[k] = mean32[k];
        for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(reduce, l))
            for (int how = 0; how < 4; how++)
                check_columns(l, how & 1, d, x, how & 2 ? mean : NULL, how & 2 ? mean32 : NULL, R, step, n);
    }
}

/* The gradient of a norm by its formula in long double. What is added to stays: dw and db begin at 1. */
static void norm_back_model(double *dx, double *dw, double *db, const double *dy, const double *x, const double *w,
                            int64_t rows, int64_t n, double eps, bool rms)
{
    for (int64_t i = 0; i < n; i++) dw[i] = db[i] = 1;
    for (int64_t r = 0; r < rows; r++, dx += n, dy += n, x += n) {
        long double mean = 0, square = 0, first = 0, second = 0;
        for (int64_t i = 0; i < n && !rms; i++) mean += x[i] / (long double)n;
        for (int64_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean) / (long double)n;
        long double rstd = 1 / sqrtl(square + eps);
        for (int64_t i = 0; i < n; i++) {
            if (!rms) first += (long double)dy[i] * w[i] / (long double)n;
            second += (long double)dy[i] * w[i] * (x[i] - mean) * rstd / (long double)n;
        }
        for (int64_t i = 0; i < n; i++) {
            long double h = (x[i] - mean) * rstd;
            dx[i] = (double)(((long double)dy[i] * w[i] - first - h * second) * rstd);
            dw[i] += (double)(dy[i] * h);
            db[i] += dy[i];
        }
    }
}

static void check_norm_back(const double *got, const double *want, int64_t n, double scale, double far,
                            const char *what, CpuLevel l)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= far * scale))
            STOP("%s %d of %d on %s: %.9g, expected %.9g", what, (int)i, (int)n, cpu_level_name(l), got[i], want[i]);
}

static void test_norm_back(void **state)
{
    uint64_t seed = 9;
    (void)state;
    for (int i = 1; i < 2 * LENGTHS; i++) {
        int64_t n = lengths[i % LENGTHS], rows = 1 + i % 4;
        bool rms = i % 2;
        if (!n) continue;
        float *x = room(0, rows * n * 4), *dy = room(1, rows * n * 4), *w = room(2, n * 4), *dx = room(3, rows * n * 4);
        fill_random(x, rows * n, 2, &seed);
        fill_random(dy, rows * n, 2, &seed);
        fill_random(w, n, 2, &seed);
        double *x2 = widened(4, x, rows * n), *dy2 = widened(5, dy, rows * n), *w2 = widened(6, w, n),
               *want = room(7, (rows + 2) * n * 8), *got = room(8, (rows + 2) * n * 8);
        norm_back_model(want, want + rows * n, want + (rows + 1) * n, dy2, x2, w2, rows, n, 1e-3, rms);
        double top = 1;
        for (int64_t k = 0; k < rows * n; k++) top = fmax(top, fabs(want[k]));
        for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(reduce, l))
            for (int wide = 0; wide < 2; wide++) {
                for (int64_t k = 0; k < 2 * n; k++) got[rows * n + k] = 1;
                if (wide)
                    kernels_at(l)->reduce.norm_back_f64(got, got + rows * n, got + (rows + 1) * n, dy2, x2, w2, rows, n,
                                                        1e-3, rms);
                else
                    kernels_at(l)->reduce.norm_back_f32(dx, got + rows * n, got + (rows + 1) * n, dy, x, w, rows, n,
                                                        1e-3, rms);
                for (int64_t k = 0; k < rows * n && !wide; k++) got[k] = dx[k];
                check_norm_back(got, want, (rows + 2) * n, top, wide ? 1e-12 : 1e-5, "number", l); /* dx, dw, db */
            }
    }
}

/* The first of the largest, or the first NaN. */
static int64_t extreme_model(const double *x, int64_t n, bool smallest)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(x[i])) return i;
    int64_t best = 0;
    for (int64_t i = n - 1; i >= 0; i--)
        if (smallest ? x[i] <= x[best] : x[i] >= x[best]) best = i;
    return best;
}

static void test_extreme(void **state)
{
    uint64_t seed = 4;
    (void)state;
    for (int round = 0; round < 6 * LENGTHS; round++) {
        int64_t n = lengths[round % LENGTHS], at = -1;
        if (n == 0) continue; /* the caller refuses it */
        float *x = room(0, n * 4);
        for (int64_t i = 0; i < n; i++) x[i] = (float)(unit_random(&seed) % 6) - 3; /* ties */
        if (round >= 3 * LENGTHS) fill(x, n, AWKWARD_ONES, &seed);
        if (round >= 5 * LENGTHS) x[n - 1] = x[n / 2] = NAN;
        double *d = widened(1, x, n);
        for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(reduce, l))
            for (int smallest = 0; smallest < 2; smallest++) {
                const ReduceKernels *k = &kernels_at(l)->reduce;
                int64_t want = extreme_model(d, n, smallest);
                assert_true(same_f64(k->extreme_f32(x, n, smallest, &at), d[want]));
                assert_int_equal(at, want);
                assert_true(same_f64(k->extreme_f64(d, n, smallest, &at), d[want]));
                assert_int_equal(at, want);
                assert_true(same_f64(k->extreme_f32(x, n, smallest, NULL), d[want]));
                assert_true(same_f64(k->extreme_f64(d, n, smallest, NULL), d[want]));
            }
    }
}

/* ------------------------------------------------------------------ threads */

static void check_threads(CpuLevel l, int64_t rows, int64_t n, uint64_t *state)
{
    static const int threads[] = {1, 2, 3, 8};
    const ReduceKernels *k = &kernels_at(l)->reduce;
    float *x = room(0, rows * n * 4), *first[4] = {NULL};
    for (int64_t r = 0; r < rows; r++) fill(x + r * n, n, r % 5 ? WILD : CALM, state);
    double *d = widened(1, x, rows * n), *wide_first[3] = {NULL};
    int64_t bytes = rows * n * 4;
    for (int t = 0; t < 4; t++)
        for (int how = 0; how < 4; how++) {
            float *y = room(2, bytes);
            if (how < 2) k->softmax_f32(y, x, rows, n, how == 1, false, threads[t]);
            else k->norm_f32(y, x, x, NULL, rows, n, 1e-5, how == 3, NULL, NULL, threads[t]);
            if (t == 0) first[how] = memcpy(malloc((size_t)bytes), y, (size_t)bytes);
            else assert_memory_equal(y, first[how], (size_t)bytes);
            if (t == 3) free(first[how]);
        }
    for (int t = 0; t < 4; t++)
        for (int how = 0; how < 3; how++) {
            double *y = room(2, bytes * 2);
            if (how < 2) k->softmax_f64(y, d, rows, n, how == 1, false, threads[t]);
            else k->norm_f64(y, d, d, d, rows, n, 1e-5, false, NULL, NULL, threads[t]);
            if (t == 0) wide_first[how] = memcpy(malloc((size_t)bytes * 2), y, (size_t)bytes * 2);
            else assert_memory_equal(y, wide_first[how], (size_t)bytes * 2);
            if (t == 3) free(wide_first[how]);
        }
}

static void test_threads(void **state)
{
    uint64_t seed = 5;
    (void)state;
    for (CpuLevel l = CPU_REF; l < CPU_LEVELS; l = next_rung_of(reduce, l)) {
        check_threads(l, 70, 257, &seed); /* above the sizes where threads start: 2^14 elements */
        check_threads(l, 5, 8191, &seed);
        check_threads(l, 20011, 1, &seed);
        check_threads(l, 3, 7, &seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax),   cmocka_unit_test(test_softmax_masked),
        cmocka_unit_test(test_norm),      cmocka_unit_test(test_norm_long),
        cmocka_unit_test(test_sum),       cmocka_unit_test(test_extreme),
        cmocka_unit_test(test_threads),   cmocka_unit_test(test_columns),
        cmocka_unit_test(test_norm_back),
    };
    return cmocka_run_group_tests_name("reduce", tests, NULL, NULL);
}
