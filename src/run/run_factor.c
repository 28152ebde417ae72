/* Factors of matrices, one of a batch after the other in double. Built twice: of real numbers, and of complex ones as
 * pairs (factor.h).
 *
 *     lu        rows exchanged for the largest pivot;  qr  Householder (signs and phases are LAPACK's)
 *     ldl       symmetric or Hermitian, blocks of 1 and 2 on the diagonal (Bunch and Kaufman 1977)
 *     svd       one-sided Jacobi (Hestenes 1958);      eigh      cyclic Jacobi
 */
#include <float.h>
#include <stdlib.h>
#include "run/factor.h"

/* ------------------------------------------------------------------ LU */

/* (A, pivot, check_errors) -> LU, pivots from 1, info */
bool RUN_FACTOR(lu_factor)(Call *c, Err *err)
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

/* ------------------------------------------------------------------ LDL */

/* x, or its conjugate in a Hermitian matrix */
static Num mirrored(Num x, bool hermitian) { return hermitian ? conjugate(x) : x; }

/* How large an element of the diagonal is, which in a Hermitian matrix is real whatever is there */
static double on_diagonal(Num x, bool hermitian) { return hermitian ? fabs(real_of(x)) : size_of(x); }

/* Rows and columns p and q (q < p) of the part of a symmetric matrix at and below its diagonal are exchanged, from
 * column q on. */
static void swap_symmetric(Num *a, int64_t n, int64_t q, int64_t p, bool hermitian)
{
    Num t = a[q * n + q];
    a[q * n + q] = a[p * n + p];
    a[p * n + p] = t;
    for (int64_t i = q + 1; i < n; i++) {
        Num *x = a + i * n + q, *y = i <= p ? a + p * n + (i == p ? q : i) : a + i * n + p;
        t = mirrored(*x, hermitian && i <= p);
        *x = mirrored(*y, hermitian && i <= p);
        *y = t;
    }
}

/* In place, the triangle below the diagonal: L D L^T, or L D L^H, by the pivots of Bunch and Kaufman (1977), as
 * LAPACK's sytf2 and hetf2 have them; D has blocks of 1 and of 2, whose pivots are negative. Returns 1 + the first
 * pivot that is 0, or 0. */
static int64_t ldl(Num *a, int64_t n, bool hermitian, int64_t *pivot)
{
    const double alpha = 0.6403882032022076; /* (1 + sqrt(17)) / 8 */
    int64_t zero = 0, step;
    for (int64_t k = 0; k < n; k += step) {
        int64_t r = k, p = k;
        double here = on_diagonal(a[k * n + k], hermitian), below = 0, beside = 0;
        step = 1;
        for (int64_t i = k + 1; i < n; i++)
            if (size_of(a[i * n + k]) > below) below = size_of(a[i * n + k]), r = i;
        if (!(here > 0 || below > 0) || isnan(here)) {
            if (!zero) zero = k + 1;
            pivot[k] = k + 1;
            continue;
        }
        if (here < alpha * below) {
            for (int64_t j = k; j < n; j++) {
                double x = j == r ? 0 : size_of(j < r ? a[r * n + j] : a[j * n + r]);
                if (x > beside) beside = x;
            }
            if (here >= alpha * below * (below / beside)) p = k;
            else if (on_diagonal(a[r * n + r], hermitian) >= alpha * beside) p = r;
            else p = r, step = 2;
        }
        int64_t at = k + step - 1;
        if (p != at) {
            swap_symmetric(a, n, at, p, hermitian);
            if (step == 2) {
                Num t = a[at * n + k];
                a[at * n + k] = a[p * n + k];
                a[p * n + k] = t;
            }
        }
        for (int64_t i = k; hermitian && i < n; i++) a[i * n + i] = real_of(a[i * n + i]);
        if (step == 1) {
            Num d = a[k * n + k];
            for (int64_t j = k + 1; j < n; j++)
                for (int64_t i = j; i < n; i++) a[i * n + j] -= a[i * n + k] * mirrored(a[j * n + k], hermitian) / d;
            for (int64_t i = k + 1; i < n; i++) a[i * n + k] /= d;
            pivot[k] = p + 1;
            continue;
        }
        Num s = hermitian ? length(a[at * n + k]) : a[at * n + k], u = hermitian ? a[at * n + k] / s : 1;
        Num d11 = a[at * n + at] / s, d22 = a[k * n + k] / s, t = 1 / (d11 * d22 - 1) / s;
        for (int64_t j = k + 2; j < n; j++) {
            Num x = t * (d11 * a[j * n + k] - u * a[j * n + at]);
            Num y = t * (d22 * a[j * n + at] - conjugate(u) * a[j * n + k]);
            for (int64_t i = j; i < n; i++)
                a[i * n + j] -= a[i * n + k] * mirrored(x, hermitian) + a[i * n + at] * mirrored(y, hermitian);
            a[j * n + k] = x;
            a[j * n + at] = y;
        }
        pivot[k] = pivot[at] = -(p + 1);
    }
    return zero;
}

/* (A, hermitian, check_errors) -> LD, pivots from 1, info; LD is 0 above the diagonal */
bool RUN_FACTOR(ldl_factor)(Call *c, Err *err)
{
    Matrices a;
    TRY(copied(c, 0, &a, err));
    int64_t n = a.rows, *pivot = pivots(c, n, err);
    bool hermitian = WIDTH == 2 && call_i64(c, 1) != 0;
    TRY(pivot);
    for (int64_t k = 0; k < a.count; k++) {
        Num *x = matrix(&a, k);
        int64_t info = ldl(x, n, hermitian, pivot);
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
static void eliminate(const Num *a, int64_t n, int64_t col, int64_t from, Num *b, int64_t cols, bool back,
                      bool hermitian)
{
    for (int64_t i = from; i < n; i++)
        for (int64_t j = 0; j < cols; j++) {
            if (back) b[col * cols + j] -= mirrored(a[i * n + col], hermitian) * b[i * cols + j];
            else b[i * cols + j] -= a[i * n + col] * b[col * cols + j];
        }
}

/* b (n, cols) = (P L D L^T P^T)^-1 b, as LAPACK's sytrs; or of L D L^H, as hetrs */
static void ldl_solve(const Num *a, int64_t n, const int64_t *pivot, Num *b, int64_t cols, bool hermitian)
{
    for (int64_t k = 0; k < n; k++) {
        if (pivot[k] > 0) {
            swap_rows(b, k, pivot[k] - 1, cols);
            eliminate(a, n, k, k + 1, b, cols, false, hermitian);
            Num d = hermitian ? real_of(a[k * n + k]) : a[k * n + k];
            for (int64_t j = 0; j < cols; j++) b[k * cols + j] /= d;
            continue;
        }
        swap_rows(b, k + 1, -pivot[k] - 1, cols);
        eliminate(a, n, k, k + 2, b, cols, false, hermitian);
        eliminate(a, n, k + 1, k + 2, b, cols, false, hermitian);
        Num s = a[(k + 1) * n + k], above = mirrored(s, hermitian);
        Num p = a[k * n + k] / above, q = a[(k + 1) * n + k + 1] / s, d = p * q - 1;
        for (int64_t j = 0; j < cols; j++) {
            Num x = b[k * cols + j] / above, y = b[(k + 1) * cols + j] / s;
            b[k * cols + j] = (q * x - y) / d;
            b[(k + 1) * cols + j] = (p * y - x) / d;
        }
        k++;
    }
    for (int64_t k = n - 1; k >= 0; k--) {
        eliminate(a, n, k, k + 1, b, cols, true, hermitian);
        if (pivot[k] > 0) {
            swap_rows(b, k, pivot[k] - 1, cols);
            continue;
        }
        eliminate(a, n, k - 1, k + 1, b, cols, true, hermitian);
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
bool RUN_FACTOR(ldl_solve)(Call *c, Err *err)
{
    Matrices a, b;
    const Tensor *given = call_contiguous(c, call_in(c, 1), DT_NONE, err);
    TRY(given && copied(c, 0, &a, err) && copied(c, 2, &b, err));
    int64_t n = a.rows, *pivot = pivots(c, n, err);
    TRY(pivot);
    for (int64_t k = 0; k < a.count; k++) {
        for (int64_t i = 0; i < n; i++) pivot[i] = tensor_get_i64(given, k * n + i);
        if (!good_pivots(pivot, n)) return call_fail(c, E_USAGE, err, "the pivots are not those of a factor");
        ldl_solve(matrix(&a, k), n, pivot, matrix(&b, k), b.cols, WIDTH == 2 && call_i64(c, 3) != 0);
        put(c, 0, k, n * b.cols, matrix(&b, k));
    }
    return true;
}

/* ------------------------------------------------------------------ QR */

/* a (m, n) becomes R above the diagonal and the reflections' vectors below it; tau has their factors */
static void triangularize(Num *x, int64_t m, int64_t n, Num *tau)
{
    for (int64_t j = 0; j < m && j < n; j++) {
        tau[j] = reflection(x + j * n + j, m - j, n);
        reflect(conjugate(tau[j]), x + j * n + j, n, x + j * n + j + 1, m - j, n - j - 1, n);
    }
}

bool RUN_FACTOR(geqrf)(Call *c, Err *err)
{
    Matrices a;
    TRY(copied(c, 0, &a, err));
    int64_t r = a.rows < a.cols ? a.rows : a.cols;
    Num *tau = room(c, r, err);
    TRY(tau);
    for (int64_t k = 0; k < a.count; k++) {
        triangularize(matrix(&a, k), a.rows, a.cols, tau);
        put(c, 0, k, a.rows * a.cols, matrix(&a, k));
        put(c, 1, k, r, tau);
    }
    return true;
}

/* (A, mode) -> Q, R: reduced, complete, or r alone */
bool RUN_FACTOR(qr)(Call *c, Err *err)
{
    Matrices a;
    TRY(copied(c, 0, &a, err));
    const char *mode = c->arg[1].str;
    int64_t m = a.rows, n = a.cols, r = m < n ? m : n, wide = *mode == 'c' ? m : r;
    Num *q = room(c, m * wide, err), *tau = room(c, r, err);
    TRY(q && tau);
    for (int64_t k = 0; k < a.count; k++) {
        Num *x = matrix(&a, k);
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
    Num phase; /* of pq: q is multiplied by it first */
} Turn;

static void turn(Turn t, Num *p, Num *q, int64_t n, int64_t step)
{
    for (int64_t i = 0; i < n * step; i += step) {
        Num x = p[i], y = WIDTH == 1 ? q[i] : t.phase * q[i];
        p[i] = t.c * x - t.s * y;
        q[i] = t.s * x + t.c * y;
    }
}

static Turn conjugate_turn(Turn t) { return (Turn){t.c, t.s, conjugate(t.phase)}; }

/* The turn that makes the off-diagonal pq of ((pp, pq), (pq*, qq)) zero. */
static Turn turn_of(double pp, double qq, Num pq)
{
    double size = WIDTH == 1 ? real_of(pq) : length(pq);
    double z = (qq - pp) / (2 * size), t = (z < 0 ? -1 : 1) / (fabs(z) + sqrt(1 + z * z)), c = 1 / sqrt(1 + t * t);
    return (Turn){c, c * t, WIDTH == 1 ? 1 : pq / size};
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

/* NaN has no factors, and infinity no vectors: rotations would end nowhere. */
static bool has_factors(Call *c, const Num *x, int64_t n, bool vectors, Err *err)
{
    const double *part = (const double *)x;
    for (int64_t i = 0; i < n * WIDTH; i++)
        if (vectors ? !isfinite(part[i]) : isnan(part[i]))
            return call_fail(c, E_USAGE, err, "an element of the matrix is %s", isnan(part[i]) ? "NaN" : "infinite");
    return true;
}

/* (A, UPLO) -> eigenvalues, rising, and eigenvectors as columns, of a symmetric or Hermitian matrix of which one
 * triangle is read */
bool RUN_FACTOR(eigh)(Call *c, Err *err)
{
    Matrices a;
    TRY(copied(c, 0, &a, err));
    int64_t n = a.rows;
    bool upper = *c->arg[1].str == 'U';
    Num *v = room(c, n * n, err), *y = room(c, n * n, err);
    double *w = call_scratch(c, (size_t)(n + 1) * sizeof *w, err);
    Ranked *order = call_scratch(c, (size_t)(n + 1) * sizeof *order, err);
    TRY(v && w && y && order);
    for (int64_t k = 0; k < a.count; k++) {
        Num *x = matrix(&a, k);
        for (int64_t i = 0; i < n; i++) {
            x[i * n + i] = real_of(x[i * n + i]);
            for (int64_t j = 0; j < i; j++) {
                if (upper) x[i * n + j] = conjugate(x[j * n + i]);
                else x[j * n + i] = conjugate(x[i * n + j]);
            }
        }
        TRY(has_factors(c, x, n * n, true, err));
        identity(v, n, n); /* rows are vectors */
        bool more = true;
        for (int sweep = 0; more && sweep < 60; sweep++) {
            more = false;
            for (int64_t p = 0; p < n; p++)
                for (int64_t q = p + 1; q < n; q++) {
                    Num pq = x[p * n + q];
                    double pp = real_of(x[p * n + p]), qq = real_of(x[q * n + q]), size = length(pq);
                    if (!(size > 1e-16 * sqrt(fabs(pp * qq)) && size > DBL_MIN)) continue;
                    Turn t = turn_of(pp, qq, pq);
                    turn(t, x + p * n, x + q * n, n, 1);
                    turn(conjugate_turn(t), x + p, x + q, n, n);
                    turn(t, v + p * n, v + q * n, n, 1);
                    more = true;
                }
        }
        for (int64_t i = 0; i < n; i++) order[i] = (Ranked){real_of(x[i * n + i]), i};
        qsort(order, (size_t)n, sizeof *order, rising);
        for (int64_t i = 0; i < n; i++) {
            w[i] = order[i].by;
            for (int64_t j = 0; j < n; j++) y[j * n + i] = conjugate(v[order[i].at * n + j]);
        }
        put_reals(c, 0, k, n, w);
        put(c, 1, k, n * n, y);
    }
    return true;
}

/* Makes rows from..rows - 1 of q (rows, n) unit vectors that are orthogonal to each other and to the rows before. */
static void complete(Num *q, int64_t from, int64_t rows, int64_t n)
{
    for (int64_t r = from, axis = 0; r < rows && axis < n; axis++) {
        Num *x = q + r * n;
        double squares = 0;
        memset(x, 0, (size_t)n * sizeof *x);
        x[axis] = 1;
        for (int64_t p = 0; p < 2 * r; p++) { /* twice, for rounding */
            const Num *y = q + p % r * n;
            Num s = 0;
            for (int64_t i = 0; i < n; i++) s += x[i] * conjugate(y[i]);
            for (int64_t i = 0; i < n; i++) x[i] -= s * y[i];
        }
        for (int64_t i = 0; i < n; i++) squares += square(x[i]);
        if (squares < 0.5 / (double)n) continue;
        for (int64_t i = 0; i < n; i++) x[i] /= sqrt(squares);
        r++;
    }
}

/* a (rows, n), rows <= n, becomes s times unit vectors, s falling; v (rows, rows), unless NULL, the turns that did it:
 * a = v^H diag(s) u */
static bool jacobi(Call *c, Num *a, int64_t rows, int64_t n, double *s, Num *v, Err *err)
{
    Ranked *order = call_scratch(c, (size_t)(rows + 1) * sizeof *order, err);
    Num *copy = room(c, rows * (n > rows ? n : rows), err);
    TRY(order && copy && has_factors(c, a, rows * n, v, err));
    if (v) identity(v, rows, rows);
    bool more = true;
    for (int sweep = 0; more && sweep < 60; sweep++) {
        more = false;
        for (int64_t p = 0; p < rows; p++)
            for (int64_t q = p + 1; q < rows; q++) {
                Num *x = a + p * n, *y = a + q * n, pq = 0;
                double pp = 0, qq = 0;
                for (int64_t i = 0; i < n; i++) {
                    pp += square(x[i]);
                    qq += square(y[i]);
                    pq += x[i] * conjugate(y[i]);
                }
                if (!(length(pq) > 1e-15 * sqrt(pp * qq))) continue;
                Turn t = turn_of(pp, qq, pq);
                turn(t, x, y, n, 1);
                if (v) turn(t, v + p * rows, v + q * rows, rows, 1);
                more = true;
            }
    }
    for (int64_t p = 0; p < rows; p++) {
        order[p] = (Ranked){0, p};
        for (int64_t i = 0; i < n; i++) order[p].by += square(a[p * n + i]);
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
    Num *b = room(c, a->count * a->rows * a->cols, err);
    TRY(b);
    for (int64_t k = 0; k < a->count; k++) transpose(matrix(a, k), a->rows, a->cols, b + k * a->rows * a->cols);
    *a = (Matrices){a->count, a->cols, a->rows, b};
    return true;
}

#ifndef QKV_PAIRS
bool run_singular_values(Call *c, Err *err)
{
    Matrices a;
    bool turned;
    TRY(copied(c, 0, &a, err) && lying(c, &a, &turned, err));
    double *s = room(c, a.rows, err);
    TRY(s);
    for (int64_t k = 0; k < a.count; k++) {
        TRY(jacobi(c, matrix(&a, k), a.rows, a.cols, s, NULL, err));
        if (a.rows && isinf(s[0])) /* of infinite elements, as PyTorch */
            for (int64_t i = 0; i < a.rows; i++) s[i] = NAN;
        put(c, 0, k, a.rows, s);
    }
    return true;
}
#endif

/* (A, full_matrices) -> U, S, Vh */
bool RUN_FACTOR(svd)(Call *c, Err *err)
{
    Matrices a;
    bool turned, full = call_i64(c, 1) != 0;
    TRY(copied(c, 0, &a, err) && lying(c, &a, &turned, err));
    int64_t r = a.rows, n = a.cols, wide = full ? n : r;
    double *s = call_scratch(c, (size_t)(r + 1) * sizeof *s, err);
    Num *v = room(c, r * r, err), *u = room(c, wide * n, err), *t = room(c, n > r ? n * n : r * r, err);
    TRY(s && v && u && t);
    for (int64_t k = 0; k < a.count; k++) { /* a = v^H diag(s) u, or its conjugate transpose */
        const Num *x = matrix(&a, k);
        TRY(jacobi(c, matrix(&a, k), r, n, s, v, err));
        int64_t known = 0;
        for (; known < r && s[known] > 1e-15 * s[0]; known++)
            for (int64_t i = 0; i < n; i++) u[known * n + i] = x[known * n + i] / s[known];
        complete(u, known, wide, n);
        put_reals(c, 1, k, r, s);
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
