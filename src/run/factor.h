/* Matrices of a batch, in double, for run_factor.c, run_eigen.c and run_solve.c: what they share.
 *
 *     Matrices a;
 *     TRY(copied(c, 0, &a, err));
 *     for (int64_t k = 0; k < a.count; k++) put(c, 0, k, a.rows * a.cols, matrix(&a, k));
 *
 * Num is a real number. run_factor.c and run_eigen.c are built once more with QKV_PAIRS, for rows of complex numbers as
 * pairs of reals (..., 2): there it is a complex one, and run_NAME is called run_NAME_pairs.
 */
#ifndef QKV_RUN_FACTOR_H
#define QKV_RUN_FACTOR_H
#include <math.h>
#include <string.h>
#include "run/pointwise.h"
#include "run/product.h"
#include "run/run_table.h"

#ifdef QKV_PAIRS
#include <complex.h>
typedef double complex Num;
#define RUN_FACTOR(name) run_##name##_pairs
static inline double real_of(Num x) { return creal(x); }
static inline double imaginary(Num x) { return cimag(x); }
static inline Num conjugate(Num x) { return conj(x); }
#else
typedef double Num;
#define RUN_FACTOR(name) run_##name
static inline double real_of(Num x) { return x; }
static inline double imaginary(Num x)
{
    (void)x;
    return 0;
}
static inline Num conjugate(Num x) { return x; }
#endif
enum { WIDTH = sizeof(Num) / sizeof(double) };

typedef struct Matrices {
    int64_t count, rows, cols;
    Num *data;
} Matrices;

/* A copy of an operand, to work in. */
static inline bool copied(Call *c, int i, Matrices *m, Err *err)
{
    const Tensor *x = call_in(c, i);
    int rank = x->rank - (WIDTH == 2);
    Tensor *work = product_scratch(c, DT_F64, x->rank, x->shape, err);
    TRY(work && run_copy_tensor(work, x, c->env->threads));
    *m = (Matrices){1, x->shape[rank - 2], x->shape[rank - 1], work->data};
    for (int d = 0; d < rank - 2; d++) m->count *= x->shape[d];
    return true;
}

static inline Num *matrix(const Matrices *m, int64_t k) { return m->data + k * m->rows * m->cols; }

static inline Num *room(Call *c, int64_t n, Err *err) { return call_scratch(c, (size_t)(n + 1) * sizeof(Num), err); }

/* Result i of matrix k has n elements. */
static inline void put_reals(Call *c, int i, int64_t k, int64_t n, const double *x)
{
    Tensor *out = call_out(c, i);
    size_t size = dtype_size(out->dtype);
    for (int64_t j = 0; j < n; j++) store_f64(out->dtype, (char *)out->data + (size_t)(k * n + j) * size, x[j]);
}

static inline void put(Call *c, int i, int64_t k, int64_t n, const Num *x)
{
    put_reals(c, i, k, n * WIDTH, (const double *)x);
}

static inline void put_int(Call *c, int i, int64_t at, int64_t x)
{
    ((int32_t *)call_out(c, i)->data)[at] = (int32_t)x;
}

static inline int64_t *pivots(Call *c, int64_t n, Err *err)
{
    return call_scratch(c, (size_t)(n + 1) * sizeof(int64_t), err);
}

/* ------------------------------------------------------------------ numbers */

static inline double square(Num x)
{
    double re = real_of(x), im = imaginary(x);
    return WIDTH == 1 ? re * re : re * re + im * im;
}
static inline double length(Num x) { return WIDTH == 1 ? fabs(real_of(x)) : sqrt(square(x)); }
/* LAPACK's measure of what makes a good pivot */
static inline double size_of(Num x) { return WIDTH == 1 ? fabs(real_of(x)) : fabs(real_of(x)) + fabs(imaginary(x)); }

/* ------------------------------------------------------------------ matrices */

static inline void swap_rows(Num *a, int64_t p, int64_t q, int64_t cols)
{
    for (int64_t j = 0; j < cols && p != q; j++) {
        Num t = a[p * cols + j];
        a[p * cols + j] = a[q * cols + j];
        a[q * cols + j] = t;
    }
}

static inline void identity(Num *a, int64_t rows, int64_t cols)
{
    memset(a, 0, (size_t)(rows * cols) * sizeof *a);
    for (int64_t i = 0; i < rows && i < cols; i++) a[i * cols + i] = 1;
}

/* b (cols, rows): of complex numbers the conjugate transpose */
static inline void transpose(const Num *a, int64_t rows, int64_t cols, Num *b)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) b[j * rows + i] = conjugate(a[i * cols + j]);
}

/* In place: U on and above the diagonal, L below; row i was exchanged with row pivot[i]. Returns 1 + the first pivot
 * that is 0, or 0. */
static inline int64_t lu(Num *a, int64_t rows, int64_t cols, int64_t *pivot)
{
    int64_t zero = 0;
    for (int64_t j = 0; j < rows && j < cols; j++) {
        int64_t p = j;
        for (int64_t i = j + 1; i < rows; i++)
            if (size_of(a[i * cols + j]) > size_of(a[p * cols + j])) p = i;
        pivot[j] = p;
        swap_rows(a, j, p, cols);
        Num d = a[j * cols + j];
        if (d == 0) {
            if (!zero) zero = j + 1;
            continue;
        }
        for (int64_t i = j + 1; i < rows; i++) {
            Num f = a[i * cols + j] /= d;
            for (int64_t k = j + 1; k < cols; k++) a[i * cols + k] -= f * a[j * cols + k];
        }
    }
    return zero;
}

/* n elements x[0], x[step], ... become beta, v[1], v[2], ... of the reflection I - tau v v^H, v[0] = 1 */
static inline Num reflection(Num *x, int64_t n, int64_t step)
{
    double rest = 0;
    for (int64_t i = 1; i < n; i++) rest += square(x[i * step]);
    if (rest == 0 && imaginary(x[0]) == 0) return 0;
    Num alpha = x[0];
    double beta = -copysign(sqrt(square(alpha) + rest), real_of(alpha));
    for (int64_t i = 1; i < n; i++) x[i * step] /= alpha - beta;
    x[0] = beta;
    return (beta - alpha) / beta;
}

/* b (rows, cols) = (I - tau v v^H) b; v[0] = 1, then v[step], ... */
static inline void reflect(Num tau, const Num *v, int64_t step, Num *b, int64_t rows, int64_t cols, int64_t width)
{
    for (int64_t j = 0; j < cols; j++) {
        Num s = b[j];
        for (int64_t i = 1; i < rows; i++) s += conjugate(v[i * step]) * b[i * width + j];
        b[j] -= tau * s;
        for (int64_t i = 1; i < rows; i++) b[i * width + j] -= tau * s * v[i * step];
    }
}
#endif
