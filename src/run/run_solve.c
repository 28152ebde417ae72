/* What is solved with matrices, one of a batch after the other in double: rows exchanged for the largest pivot;
 * determinants, Cholesky's factor row by row, exponentials.
 */
#include "base/elementary.h"
#include "run/factor.h"

/* ------------------------------------------------------------------ LU */

/* (LU, pivots) -> P, L, U with P L U the matrix */
bool run_lu_unpack(Call *c, Err *err)
{
    Matrices a;
    const Tensor *pivot = call_contiguous(c, call_in(c, 1), DT_NONE, err);
    TRY(pivot && copied(c, 0, &a, err));
    int64_t m = a.rows, n = a.cols, r = m < n ? m : n;
    double *p = room(c, m * m, err), *q = room(c, m * m, err), *l = room(c, m * r, err), *u = room(c, r * n, err);
    TRY(p && q && l && u);
    for (int64_t k = 0; k < a.count; k++) {
        const double *x = matrix(&a, k);
        identity(p, m, m);
        for (int64_t i = 0; i < r; i++) {
            int64_t row = tensor_get_i64(pivot, k * r + i);
            if (row < 1 || row > m)
                return call_fail(c, E_USAGE, err, "pivot %lld is %lld, expected 1 to %lld", (long long)i + 1,
                                 (long long)row, (long long)m);
            swap_rows(p, i, row - 1, m);
        }
        transpose(p, m, m, q);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < r; j++) l[i * r + j] = i == j ? 1 : i > j ? x[i * n + j] : 0;
        for (int64_t i = 0; i < r; i++)
            for (int64_t j = 0; j < n; j++) u[i * n + j] = i <= j ? x[i * n + j] : 0;
        put(c, 0, k, m * m, q);
        put(c, 1, k, m * r, l);
        put(c, 2, k, r * n, u);
    }
    return true;
}

/* A -> sign and logarithm of the absolute determinant */
bool run_slogdet(Call *c, Err *err)
{
    Matrices a;
    TRY(copied(c, 0, &a, err));
    int64_t *pivot = pivots(c, a.rows, err);
    TRY(pivot);
    for (int64_t k = 0; k < a.count; k++) {
        const double *x = matrix(&a, k);
        lu(matrix(&a, k), a.rows, a.rows, pivot);
        double sign = 1, sum = 0;
        for (int64_t i = 0; i < a.rows; i++) {
            double d = x[i * a.rows + i];
            sign *= (d > 0 ? 1 : d < 0 ? -1 : d) * (pivot[i] == i ? 1 : -1);
            sum += real_log(fabs(d));
        }
        put(c, 0, k, 1, &sign);
        put(c, 1, k, 1, &sum);
    }
    return true;
}

/* ------------------------------------------------------------------ solving */

/* B becomes the solution of A X = B, for a triangular A of n rows. */
static void solve_triangle(const double *a, int64_t n, double *b, int64_t cols, bool upper, bool unit)
{
    for (int64_t s = 0; s < n; s++) {
        int64_t i = upper ? n - 1 - s : s;
        for (int64_t k = upper ? i + 1 : 0; k < (upper ? n : i); k++)
            for (int64_t j = 0; j < cols; j++) b[i * cols + j] -= a[i * n + k] * b[k * cols + j];
        for (int64_t j = 0; j < cols && !unit; j++) b[i * cols + j] /= a[i * n + i];
    }
}

/* (A, B, left, check_errors): lowering made left true and the batches alike -> X with A X = B, info */
bool run_solve(Call *c, Err *err)
{
    Matrices a, b;
    TRY(copied(c, 0, &a, err) && copied(c, 1, &b, err));
    int64_t n = a.rows, *pivot = pivots(c, n, err);
    TRY(pivot);
    for (int64_t k = 0; k < a.count; k++) {
        double *x = matrix(&b, k);
        int64_t info = lu(matrix(&a, k), n, n, pivot);
        if (info && call_i64(c, 3))
            return call_fail(c, E_USAGE, err,
                             "the matrix is singular: element %lld of the diagonal of its factor U is 0",
                             (long long)info);
        for (int64_t i = 0; i < n; i++) swap_rows(x, i, pivot[i], b.cols);
        solve_triangle(matrix(&a, k), n, x, b.cols, false, true);
        solve_triangle(matrix(&a, k), n, x, b.cols, true, false);
        put(c, 0, k, n * b.cols, x);
        put_int(c, 1, k, info);
    }
    return true;
}

/* (A, B, upper, left, unitriangular): as for solve */
bool run_solve_triangular(Call *c, Err *err)
{
    Matrices a, b;
    TRY(copied(c, 0, &a, err) && copied(c, 1, &b, err));
    for (int64_t k = 0; k < a.count; k++) {
        solve_triangle(matrix(&a, k), a.rows, matrix(&b, k), b.cols, call_i64(c, 2) != 0, call_i64(c, 4) != 0);
        put(c, 0, k, a.rows * b.cols, matrix(&b, k));
    }
    return true;
}

/* ------------------------------------------------------------------ Cholesky */

/* (A, upper, check_errors) -> L with L L^T = A, or its transpose; info. The other triangle is not read. */
bool run_cholesky(Call *c, Err *err)
{
    Matrices a;
    TRY(copied(c, 0, &a, err));
    int64_t n = a.rows;
    bool upper = call_i64(c, 1) != 0;
    double *l = room(c, n * n, err), *y = room(c, n * n, err);
    TRY(l && y);
    for (int64_t k = 0; k < a.count; k++) {
        const double *x = matrix(&a, k);
        int64_t info = 0;
        memset(l, 0, (size_t)(n * n) * sizeof *l);
        for (int64_t i = 0; i < n && !info; i++)
            for (int64_t j = 0; j <= i && !info; j++) {
                double s = upper ? x[j * n + i] : x[i * n + j];
                for (int64_t p = 0; p < j; p++) s -= l[i * n + p] * l[j * n + p];
                if (i == j && !(s > 0)) info = i + 1;
                l[i * n + j] = i == j ? sqrt(s) : s / l[j * n + j];
            }
        if (info && call_i64(c, 2))
            return call_fail(c, E_USAGE, err,
                             "the matrix is not positive-definite: its leading minor of order %lld is not",
                             (long long)info);
        if (upper) transpose(l, n, n, y);
        put(c, 0, k, n * n, upper ? y : l);
        put_int(c, 1, k, info);
    }
    return true;
}

/* ------------------------------------------------------------------ exponential */

static void multiply(const double *a, const double *b, int64_t n, double *y)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double s = 0;
            for (int64_t k = 0; k < n; k++) s += a[i * n + k] * b[k * n + j];
            y[i * n + j] = s;
        }
}

/* Taylor's series of A / 2^s, squared s times */
bool run_matrix_exp(Call *c, Err *err)
{
    Matrices a;
    TRY(copied(c, 0, &a, err));
    int64_t n = a.rows, size = n * n;
    double *sum = room(c, size, err), *term = room(c, size, err), *next = room(c, size, err);
    TRY(sum && term && next);
    for (int64_t k = 0; k < a.count; k++) {
        double *x = matrix(&a, k), largest = 0;
        int squarings = 0;
        for (int64_t i = 0; i < n; i++) {
            double row = 0;
            for (int64_t j = 0; j < n; j++) row += fabs(x[i * n + j]);
            if (row > largest) largest = row;
        }
        for (; largest > 0.5 && squarings < 1000; largest /= 2) squarings++;
        for (int64_t i = 0; i < size; i++) x[i] = ldexp(x[i], -squarings);
        identity(sum, n, n);
        identity(term, n, n);
        for (int p = 1; p <= 16; p++) {
            multiply(term, x, n, next);
            for (int64_t i = 0; i < size; i++) sum[i] += term[i] = next[i] / p;
        }
        for (int p = 0; p < squarings; p++) {
            multiply(sum, sum, n, next);
            memcpy(sum, next, (size_t)size * sizeof *sum);
        }
        put(c, 0, k, size, sum);
    }
    return true;
}
