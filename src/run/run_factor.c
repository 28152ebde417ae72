/* Factors of matrices, and what is solved with them, one matrix of a batch after the other in double.
 *
 *     lu        rows exchanged for the largest pivot;  cholesky  row by row;  qr  Householder (signs are LAPACK's)
 *     ldl       symmetric, blocks of 1 and 2 on the diagonal (Bunch and Kaufman 1977)
 *     svd       one-sided Jacobi (Hestenes 1958);      eigh      cyclic Jacobi
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/elementary.h"
#include "run/pointwise.h"
#include "run/product.h"
#include "run/run_table.h"

/* ------------------------------------------------------------------ matrices of a batch */

typedef struct Matrices {
    int64_t count, rows, cols;
    double *data;
} Matrices;

/* A copy of an operand, to work in. */
static bool copied(Call *c, int i, Matrices *m, Err *err)
{
    const Tensor *x = call_in(c, i);
    Tensor *work = product_scratch(c, DT_F64, x->rank, x->shape, err);
    TRY(work && run_copy_tensor(work, x, c->env->threads));
    *m = (Matrices){1, x->shape[x->rank - 2], x->shape[x->rank - 1], work->data};
    for (int d = 0; d < x->rank - 2; d++) m->count *= x->shape[d];
    return true;
}

static double *matrix(const Matrices *m, int64_t k) { return m->data + k * m->rows * m->cols; }

static double *room(Call *c, int64_t n, Err *err) { return call_scratch(c, (size_t)(n + 1) * sizeof(double), err); }

/* Result i of matrix k has n elements. */
static void put(Call *c, int i, int64_t k, int64_t n, const double *x)
{
    Tensor *out = call_out(c, i);
    size_t size = dtype_size(out->dtype);
    for (int64_t j = 0; j < n; j++) store_f64(out->dtype, (char *)out->data + (size_t)(k * n + j) * size, x[j]);
}

static void put_int(Call *c, int i, int64_t at, int64_t x) { ((int32_t *)call_out(c, i)->data)[at] = (int32_t)x; }

static void swap_rows(double *a, int64_t p, int64_t q, int64_t cols)
{
    for (int64_t j = 0; j < cols && p != q; j++) {
        double t = a[p * cols + j];
        a[p * cols + j] = a[q * cols + j];
        a[q * cols + j] = t;
    }
}

static void identity(double *a, int64_t rows, int64_t cols)
{
    memset(a, 0, (size_t)(rows * cols) * sizeof *a);
    for (int64_t i = 0; i < rows && i < cols; i++) a[i * cols + i] = 1;
}

static void transpose(const double *a, int64_t rows, int64_t cols, double *b)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) b[j * rows + i] = a[i * cols + j];
}

/* ------------------------------------------------------------------ LU */

/* In place: U on and above the diagonal, L below; row i was exchanged with row pivot[i]. Returns 1 + the first pivot
 * that is 0, or 0. */
static int64_t lu(double *a, int64_t rows, int64_t cols, int64_t *pivot)
{
    int64_t zero = 0;
    for (int64_t j = 0; j < rows && j < cols; j++) {
        int64_t p = j;
        for (int64_t i = j + 1; i < rows; i++)
            if (fabs(a[i * cols + j]) > fabs(a[p * cols + j])) p = i;
        pivot[j] = p;
        swap_rows(a, j, p, cols);
        double d = a[j * cols + j];
        if (d == 0) {
            if (!zero) zero = j + 1;
            continue;
        }
        for (int64_t i = j + 1; i < rows; i++) {
            double f = a[i * cols + j] /= d;
            for (int64_t k = j + 1; k < cols; k++) a[i * cols + k] -= f * a[j * cols + k];
        }
    }
    return zero;
}

static int64_t *pivots(Call *c, int64_t n, Err *err) { return call_scratch(c, (size_t)(n + 1) * sizeof(int64_t), err); }

/* (A, pivot, check_errors) -> LU, pivots from 1, info */
bool run_lu_factor(Call *c, Err *err)
{
    Matrices a;
    TRY(copied(c, 0, &a, err));
    int64_t n = a.rows < a.cols ? a.rows : a.cols, *pivot = pivots(c, n, err);
    TRY(pivot);
    if (!call_i64(c, 1)) return call_fail(c, E_UNSUPPORTED, err, "LU without pivots is not computed on the CPU");
    for (int64_t k = 0; k < a.count; k++) {
        int64_t info = lu(matrix(&a, k), a.rows, a.cols, pivot);
        if (info && call_i64(c, 2)) return call_fail(c, E_USAGE, err, "pivot %lld is zero", (long long)info);
        put(c, 0, k, a.rows * a.cols, matrix(&a, k));
        for (int64_t i = 0; i < n; i++) put_int(c, 1, k * n + i, pivot[i] + 1);
        put_int(c, 2, k, info);
    }
    return true;
}

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

/* ------------------------------------------------------------------ LDL */

/* Rows and columns p and q (q < p) of the part of a symmetric matrix at and below its diagonal are exchanged, from
 * column q on. */
static void swap_symmetric(double *a, int64_t n, int64_t q, int64_t p)
{
    double t = a[q * n + q];
    a[q * n + q] = a[p * n + p];
    a[p * n + p] = t;
    for (int64_t i = q + 1; i < n; i++) {
        if (i == p) continue;
        double *x = a + i * n + q, *y = i < p ? a + p * n + i : a + i * n + p;
        t = *x;
        *x = *y;
        *y = t;
    }
}

/* In place, the triangle below the diagonal: L D L^T by the pivots of Bunch and Kaufman (1977), as LAPACK's sytf2 has
 * them; D has blocks of 1 and of 2, whose pivots are negative. Returns 1 + the first pivot that is 0, or 0. */
static int64_t ldl(double *a, int64_t n, int64_t *pivot)
{
    const double alpha = 0.6403882032022076; /* (1 + sqrt(17)) / 8 */
    int64_t zero = 0, step;
    for (int64_t k = 0; k < n; k += step) {
        int64_t r = k, p = k;
        double here = fabs(a[k * n + k]), below = 0, beside = 0;
        step = 1;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > below) below = fabs(a[i * n + k]), r = i;
        if (!(here > 0 || below > 0) || isnan(here)) {
            if (!zero) zero = k + 1;
            pivot[k] = k + 1;
            continue;
        }
        if (here < alpha * below) {
            for (int64_t j = k; j < n; j++) {
                double x = j == r ? 0 : fabs(j < r ? a[r * n + j] : a[j * n + r]);
                if (x > beside) beside = x;
            }
            if (here >= alpha * below * (below / beside)) p = k;
            else if (fabs(a[r * n + r]) >= alpha * beside) p = r;
            else p = r, step = 2;
        }
        int64_t at = k + step - 1;
        if (p != at) {
            swap_symmetric(a, n, at, p);
            if (step == 2) {
                double t = a[at * n + k];
                a[at * n + k] = a[p * n + k];
                a[p * n + k] = t;
            }
        }
        if (step == 1) {
            double d = a[k * n + k];
            for (int64_t j = k + 1; j < n; j++)
                for (int64_t i = j; i < n; i++) a[i * n + j] -= a[i * n + k] * a[j * n + k] / d;
            for (int64_t i = k + 1; i < n; i++) a[i * n + k] /= d;
            pivot[k] = p + 1;
            continue;
        }
        double s = a[at * n + k], d11 = a[at * n + at] / s, d22 = a[k * n + k] / s, t = 1 / (d11 * d22 - 1) / s;
        for (int64_t j = k + 2; j < n; j++) {
            double x = t * (d11 * a[j * n + k] - a[j * n + at]), y = t * (d22 * a[j * n + at] - a[j * n + k]);
            for (int64_t i = j; i < n; i++) a[i * n + j] -= a[i * n + k] * x + a[i * n + at] * y;
            a[j * n + k] = x;
            a[j * n + at] = y;
        }
        pivot[k] = pivot[at] = -(p + 1);
    }
    return zero;
}

/* (A, hermitian, check_errors) -> LD, pivots from 1, info; LD is 0 above the diagonal */
bool run_ldl_factor(Call *c, Err *err)
{
    Matrices a;
    TRY(copied(c, 0, &a, err));
    int64_t n = a.rows, *pivot = pivots(c, n, err);
    TRY(pivot);
    for (int64_t k = 0; k < a.count; k++) {
        double *x = matrix(&a, k);
        int64_t info = ldl(x, n, pivot);
        if (info && call_i64(c, 2)) return call_fail(c, E_USAGE, err, "pivot %lld is zero", (long long)info);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i + 1; j < n; j++) x[i * n + j] = 0;
        put(c, 0, k, n * n, x);
        for (int64_t i = 0; i < n; i++) put_int(c, 1, k * n + i, pivot[i]);
        put_int(c, 2, k, info);
    }
    return true;
}

/* b -= x times its row `row`, for the elements of column `col` of L from row `from` on; or the other way round. */
static void eliminate(const double *a, int64_t n, int64_t col, int64_t from, double *b, int64_t cols, bool back)
{
    for (int64_t i = from; i < n; i++)
        for (int64_t j = 0; j < cols; j++) {
            if (back) b[col * cols + j] -= a[i * n + col] * b[i * cols + j];
            else b[i * cols + j] -= a[i * n + col] * b[col * cols + j];
        }
}

/* b (n, cols) = (P L D L^T P^T)^-1 b, as LAPACK's sytrs */
static void ldl_solve(const double *a, int64_t n, const int64_t *pivot, double *b, int64_t cols)
{
    for (int64_t k = 0; k < n; k++) {
        if (pivot[k] > 0) {
            swap_rows(b, k, pivot[k] - 1, cols);
            eliminate(a, n, k, k + 1, b, cols, false);
            for (int64_t j = 0; j < cols; j++) b[k * cols + j] /= a[k * n + k];
            continue;
        }
        swap_rows(b, k + 1, -pivot[k] - 1, cols);
        eliminate(a, n, k, k + 2, b, cols, false);
        eliminate(a, n, k + 1, k + 2, b, cols, false);
        double s = a[(k + 1) * n + k], p = a[k * n + k] / s, q = a[(k + 1) * n + k + 1] / s, d = p * q - 1;
        for (int64_t j = 0; j < cols; j++) {
            double x = b[k * cols + j] / s, y = b[(k + 1) * cols + j] / s;
            b[k * cols + j] = (q * x - y) / d;
            b[(k + 1) * cols + j] = (p * y - x) / d;
        }
        k++;
    }
    for (int64_t k = n - 1; k >= 0; k--) {
        eliminate(a, n, k, k + 1, b, cols, true);
        if (pivot[k] > 0) {
            swap_rows(b, k, pivot[k] - 1, cols);
            continue;
        }
        eliminate(a, n, k - 1, k + 1, b, cols, true);
        swap_rows(b, k, -pivot[k] - 1, cols);
        k--;
    }
}

/* Pivots that LAPACK could have given: of rows at or below their own, in pairs where they are negative. */
static bool good_pivots(const int64_t *pivot, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        bool pair = pivot[k] < 0;
        int64_t row = (pair ? -pivot[k] : pivot[k]) - 1;
        if (row < k + pair || row >= n || (pair && (k + 1 >= n || pivot[k + 1] != pivot[k]))) return false;
        k += pair;
    }
    return true;
}

/* (LD, pivots, B, hermitian): lowering made the batches alike */
bool run_ldl_solve(Call *c, Err *err)
{
    Matrices a, b;
    const Tensor *given = call_contiguous(c, call_in(c, 1), DT_NONE, err);
    TRY(given && copied(c, 0, &a, err) && copied(c, 2, &b, err));
    int64_t n = a.rows, *pivot = pivots(c, n, err);
    TRY(pivot);
    for (int64_t k = 0; k < a.count; k++) {
        for (int64_t i = 0; i < n; i++) pivot[i] = tensor_get_i64(given, k * n + i);
        if (!good_pivots(pivot, n)) return call_fail(c, E_USAGE, err, "the pivots are not those of a factor");
        ldl_solve(matrix(&a, k), n, pivot, matrix(&b, k), b.cols);
        put(c, 0, k, n * b.cols, matrix(&b, k));
    }
    return true;
}

/* ------------------------------------------------------------------ QR */

/* n elements x[0], x[step], ... become beta, v[1], v[2], ... of the reflection I - tau v v^T, v[0] = 1 */
static double reflection(double *x, int64_t n, int64_t step)
{
    double rest = 0;
    for (int64_t i = 1; i < n; i++) rest += x[i * step] * x[i * step];
    if (rest == 0) return 0;
    double alpha = x[0], beta = -copysign(sqrt(alpha * alpha + rest), alpha);
    for (int64_t i = 1; i < n; i++) x[i * step] /= alpha - beta;
    x[0] = beta;
    return (beta - alpha) / beta;
}

/* b (rows, cols) = (I - tau v v^T) b; v[0] = 1, then v[step], ... */
static void reflect(double tau, const double *v, int64_t step, double *b, int64_t rows, int64_t cols, int64_t width)
{
    for (int64_t j = 0; j < cols; j++) {
        double s = b[j];
        for (int64_t i = 1; i < rows; i++) s += v[i * step] * b[i * width + j];
        b[j] -= tau * s;
        for (int64_t i = 1; i < rows; i++) b[i * width + j] -= tau * s * v[i * step];
    }
}

/* a (m, n) becomes R above the diagonal and the reflections' vectors below it; tau has their factors */
static void triangularize(double *x, int64_t m, int64_t n, double *tau)
{
    for (int64_t j = 0; j < m && j < n; j++) {
        tau[j] = reflection(x + j * n + j, m - j, n);
        reflect(tau[j], x + j * n + j, n, x + j * n + j + 1, m - j, n - j - 1, n);
    }
}

bool run_geqrf(Call *c, Err *err)
{
    Matrices a;
    TRY(copied(c, 0, &a, err));
    int64_t r = a.rows < a.cols ? a.rows : a.cols;
    double *tau = room(c, r, err);
    TRY(tau);
    for (int64_t k = 0; k < a.count; k++) {
        triangularize(matrix(&a, k), a.rows, a.cols, tau);
        put(c, 0, k, a.rows * a.cols, matrix(&a, k));
        put(c, 1, k, r, tau);
    }
    return true;
}

/* (A, mode) -> Q, R: reduced, complete, or r alone */
bool run_qr(Call *c, Err *err)
{
    Matrices a;
    TRY(copied(c, 0, &a, err));
    const char *mode = c->arg[1].str;
    int64_t m = a.rows, n = a.cols, r = m < n ? m : n, wide = *mode == 'c' ? m : r;
    double *q = room(c, m * wide, err), *tau = room(c, r, err);
    TRY(q && tau);
    for (int64_t k = 0; k < a.count; k++) {
        double *x = matrix(&a, k);
        triangularize(x, m, n, tau);
        identity(q, m, wide);
        for (int64_t j = r - 1; j >= 0; j--) reflect(tau[j], x + j * n + j, n, q + j * wide + j, m - j, wide - j, wide);
        for (int64_t i = 1; i < m; i++)
            for (int64_t j = 0; j < i && j < n; j++) x[i * n + j] = 0;
        if (*mode != 'r' || mode[1]) put(c, 0, k, m * wide, q);
        put(c, 1, k, wide * n, x);
    }
    return true;
}

/* ------------------------------------------------------------------ Jacobi */

typedef struct Turn {
    double c, s;
} Turn;

static void turn(Turn t, double *p, double *q, int64_t n, int64_t step)
{
    for (int64_t i = 0; i < n * step; i += step) {
        double x = p[i];
        p[i] = t.c * x - t.s * q[i];
        q[i] = t.s * x + t.c * q[i];
    }
}

/* The turn that makes the off-diagonal pq of ((pp, pq), (pq, qq)) zero. */
static Turn turn_of(double pp, double qq, double pq)
{
    double z = (qq - pp) / (2 * pq), t = (z < 0 ? -1 : 1) / (fabs(z) + sqrt(1 + z * z)), c = 1 / sqrt(1 + t * t);
    return (Turn){c, c * t};
}

typedef struct Ranked {
    double by;
    int64_t at;
} Ranked;

static int rising(const void *a, const void *b)
{
    double x = ((const Ranked *)a)->by, y = ((const Ranked *)b)->by;
    return x < y ? -1 : x > y;
}

static int falling(const void *a, const void *b) { return rising(b, a); }

/* (A, UPLO) -> eigenvalues, rising, and eigenvectors as columns, of a symmetric matrix of which one triangle is read */
bool run_eigh(Call *c, Err *err)
{
    Matrices a;
    TRY(copied(c, 0, &a, err));
    int64_t n = a.rows;
    bool upper = *c->arg[1].str == 'U';
    double *v = room(c, n * n, err), *w = room(c, n, err), *y = room(c, n * n, err);
    Ranked *order = call_scratch(c, (size_t)(n + 1) * sizeof *order, err);
    TRY(v && w && y && order);
    for (int64_t k = 0; k < a.count; k++) {
        double *x = matrix(&a, k);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < i; j++) {
                if (upper) x[i * n + j] = x[j * n + i];
                else x[j * n + i] = x[i * n + j];
            }
        identity(v, n, n); /* rows are vectors */
        bool more = true;
        for (int sweep = 0; more && sweep < 60; sweep++) {
            more = false;
            for (int64_t p = 0; p < n; p++)
                for (int64_t q = p + 1; q < n; q++) {
                    double pq = x[p * n + q], pp = x[p * n + p], qq = x[q * n + q];
                    if (!(fabs(pq) > 1e-16 * sqrt(fabs(pp * qq)) && fabs(pq) > DBL_MIN)) continue;
                    Turn t = turn_of(pp, qq, pq);
                    turn(t, x + p * n, x + q * n, n, 1);
                    turn(t, x + p, x + q, n, n);
                    turn(t, v + p * n, v + q * n, n, 1);
                    more = true;
                }
        }
        for (int64_t i = 0; i < n; i++) order[i] = (Ranked){x[i * n + i], i};
        qsort(order, (size_t)n, sizeof *order, rising);
        for (int64_t i = 0; i < n; i++) {
            w[i] = order[i].by;
            for (int64_t j = 0; j < n; j++) y[j * n + i] = v[order[i].at * n + j];
        }
        put(c, 0, k, n, w);
        put(c, 1, k, n * n, y);
    }
    return true;
}

/* Makes rows from..rows - 1 of q (rows, n) unit vectors that are orthogonal to each other and to the rows before. */
static void complete(double *q, int64_t from, int64_t rows, int64_t n)
{
    for (int64_t r = from, axis = 0; r < rows && axis < n; axis++) {
        double *x = q + r * n, length = 0;
        memset(x, 0, (size_t)n * sizeof *x);
        x[axis] = 1;
        for (int64_t p = 0; p < 2 * r; p++) { /* twice, for rounding */
            const double *y = q + p % r * n;
            double s = 0;
            for (int64_t i = 0; i < n; i++) s += x[i] * y[i];
            for (int64_t i = 0; i < n; i++) x[i] -= s * y[i];
        }
        for (int64_t i = 0; i < n; i++) length += x[i] * x[i];
        if (length < 0.5 / (double)n) continue;
        for (int64_t i = 0; i < n; i++) x[i] /= sqrt(length);
        r++;
    }
}

/* a (rows, n), rows <= n, becomes s times unit vectors, s falling; v (rows, rows), unless NULL, the turns that did it:
 * a = v^T diag(s) u */
static bool jacobi(Call *c, double *a, int64_t rows, int64_t n, double *s, double *v, Err *err)
{
    Ranked *order = call_scratch(c, (size_t)(rows + 1) * sizeof *order, err);
    double *copy = room(c, rows * (n > rows ? n : rows), err);
    TRY(order && copy);
    if (v) identity(v, rows, rows);
    bool more = true;
    for (int sweep = 0; more && sweep < 60; sweep++) {
        more = false;
        for (int64_t p = 0; p < rows; p++)
            for (int64_t q = p + 1; q < rows; q++) {
                double pp = 0, qq = 0, pq = 0, *x = a + p * n, *y = a + q * n;
                for (int64_t i = 0; i < n; i++) {
                    pp += x[i] * x[i];
                    qq += y[i] * y[i];
                    pq += x[i] * y[i];
                }
                if (!(fabs(pq) > 1e-15 * sqrt(pp * qq))) continue;
                Turn t = turn_of(pp, qq, pq);
                turn(t, x, y, n, 1);
                if (v) turn(t, v + p * rows, v + q * rows, rows, 1);
                more = true;
            }
    }
    for (int64_t p = 0; p < rows; p++) {
        order[p] = (Ranked){0, p};
        for (int64_t i = 0; i < n; i++) order[p].by += a[p * n + i] * a[p * n + i];
    }
    qsort(order, (size_t)rows, sizeof *order, falling);
    memcpy(copy, a, (size_t)(rows * n) * sizeof *a);
    for (int64_t p = 0; p < rows; p++) {
        s[p] = sqrt(order[p].by);
        memcpy(a + p * n, copy + order[p].at * n, (size_t)n * sizeof *a);
    }
    if (!v) return true;
    memcpy(copy, v, (size_t)(rows * rows) * sizeof *v);
    for (int64_t p = 0; p < rows; p++) memcpy(v + p * rows, copy + order[p].at * rows, (size_t)rows * sizeof *v);
    return true;
}

/* The shorter side as rows. */
static bool lying(Call *c, Matrices *a, bool *turned, Err *err)
{
    *turned = a->rows > a->cols;
    if (!*turned) return true;
    double *b = room(c, a->count * a->rows * a->cols, err);
    TRY(b);
    for (int64_t k = 0; k < a->count; k++) transpose(matrix(a, k), a->rows, a->cols, b + k * a->rows * a->cols);
    *a = (Matrices){a->count, a->cols, a->rows, b};
    return true;
}

bool run_singular_values(Call *c, Err *err)
{
    Matrices a;
    bool turned;
    TRY(copied(c, 0, &a, err) && lying(c, &a, &turned, err));
    double *s = room(c, a.rows, err);
    TRY(s);
    for (int64_t k = 0; k < a.count; k++) {
        TRY(jacobi(c, matrix(&a, k), a.rows, a.cols, s, NULL, err));
        put(c, 0, k, a.rows, s);
    }
    return true;
}

/* (A, full_matrices) -> U, S, Vh */
bool run_svd(Call *c, Err *err)
{
    Matrices a;
    bool turned, full = call_i64(c, 1) != 0;
    TRY(copied(c, 0, &a, err) && lying(c, &a, &turned, err));
    int64_t r = a.rows, n = a.cols, wide = full ? n : r;
    double *s = room(c, r, err), *v = room(c, r * r, err), *u = room(c, wide * n, err),
           *t = room(c, n > r ? n * n : r * r, err);
    TRY(s && v && u && t);
    for (int64_t k = 0; k < a.count; k++) { /* a = v^T diag(s) u, or its transpose */
        const double *x = matrix(&a, k);
        TRY(jacobi(c, matrix(&a, k), r, n, s, v, err));
        int64_t known = 0;
        for (; known < r && s[known] > 1e-15 * s[0]; known++)
            for (int64_t i = 0; i < n; i++) u[known * n + i] = x[known * n + i] / s[known];
        complete(u, known, wide, n);
        put(c, 1, k, r, s);
        if (turned) {
            transpose(u, wide, n, t);
            put(c, 0, k, n * wide, t);
            put(c, 2, k, r * r, v);
        } else {
            transpose(v, r, r, t);
            put(c, 0, k, r * r, t);
            put(c, 2, k, wide * n, u);
        }
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
