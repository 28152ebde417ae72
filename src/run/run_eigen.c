/* Eigenvalues and eigenvectors of general matrices, in double, one of a batch after the other: A V = V diag(w).
 * Built twice: of real numbers, and of complex ones as pairs (factor.h). w and V are pairs in either case.
 *
 *     balance      rows and columns are exchanged where that isolates an eigenvalue; others are scaled by powers of 2
 *     hessenberg   zeros below the first subdiagonal, by Householder's reflections
 *     triangular   steps of QR with two shifts of a real matrix at a time (Francis 1961), or with one of a complex one;
 *                  a real matrix keeps blocks of 2 for pairs of complex eigenvalues
 *     vector       solved for in the triangular matrix; of length 1, its largest element real
 *
 * Order, signs and phases are LAPACK's: the steps are those of its gebal, gehd2, lahqr, lanv2 and trevc.
 */
#include <complex.h>
#include <float.h>
#include "run/factor.h"

typedef double complex Root;

typedef struct Eigen {
    int64_t n, lo, hi; /* rows lo..hi are not isolated */
    Num *h, *z;        /* A = Z H Z^H after balancing */
    Root *w, *x;       /* eigenvalues; the eigenvector that is worked on */
    double *scale;     /* of rows lo..hi; of the others the row that they were exchanged with */
    double eps;        /* of the results' dtype: what is small beside a number; it decides the order of eigenvalues */
} Eigen;

static double larger(double a, double b) { return a > b ? a : b; }
static double smaller(double a, double b) { return a < b ? a : b; }
static double size_of_root(Root x) { return fabs(creal(x)) + fabs(cimag(x)); }
static double length_of_root(Root x) { return sqrt(creal(x) * creal(x) + cimag(x) * cimag(x)); }

/* What is nothing beside any other element */
static double tiny(const Eigen *e) { return DBL_MIN * ((double)(e->hi - e->lo + 1) / DBL_EPSILON); }

/* ------------------------------------------------------------------ balance */

static void exchange(Eigen *e, int64_t p, int64_t q)
{
    swap_rows(e->h, p, q, e->n);
    for (int64_t i = 0; i < e->n && p != q; i++) {
        Num t = e->h[i * e->n + p];
        e->h[i * e->n + p] = e->h[i * e->n + q];
        e->h[i * e->n + q] = t;
    }
    e->scale[q] = (double)p;
}

/* Is all of row i in columns lo..hi 0 but for its diagonal, or all of that column? */
static bool isolated(const Eigen *e, int64_t i, bool row)
{
    for (int64_t j = e->lo; j <= e->hi; j++)
        if (j != i && e->h[row ? i * e->n + j : j * e->n + i] != 0) return false;
    return true;
}

/* Of row or column i, from lo to hi */
static double norm(const Eigen *e, int64_t i, bool row)
{
    double squares = 0;
    for (int64_t j = e->lo; j <= e->hi; j++) squares += square(e->h[row ? i * e->n + j : j * e->n + i]);
    return sqrt(squares);
}

/* Row i is divided by a power of 2 and column i multiplied by it, so that they are about as large as each other. */
static bool evened(Eigen *e, int64_t i)
{
    double column = norm(e, i, false), row = norm(e, i, true), before = column + row, by = 1;
    if (column == 0 || row == 0) return false;
    for (; column < row / 2 && by < 0x1p300; by *= 2) column *= 2, row /= 2;
    for (; column / 2 >= row && by > 0x1p-300; by /= 2) column /= 2, row *= 2;
    if (column + row >= 0.95 * before) return false;
    for (int64_t j = 0; j < e->n; j++) e->h[i * e->n + j] /= by;
    for (int64_t j = 0; j < e->n; j++) e->h[j * e->n + i] *= by;
    e->scale[i] *= by;
    return true;
}

static void balance(Eigen *e)
{
    e->lo = 0;
    e->hi = e->n - 1;
    for (int64_t i = e->hi; i >= 0 && e->hi > 0; i--)
        if (isolated(e, i, true)) {
            exchange(e, i, e->hi);
            i = e->hi--;
        }
    for (int64_t i = e->lo; i <= e->hi && e->hi > 0; i++)
        if (isolated(e, i, false)) {
            exchange(e, i, e->lo);
            i = e->lo++;
        }
    for (int64_t i = e->lo; i <= e->hi; i++) e->scale[i] = 1;
    for (bool more = true; more;) {
        more = false;
        for (int64_t i = e->lo; i <= e->hi; i++) more |= evened(e, i);
    }
}

/* ------------------------------------------------------------------ hessenberg */

/* b (rows, count) = b (I - tau v v^H); v[0] = 1, then v[step], ... */
static void reflect_right(Num tau, const Num *v, int64_t step, Num *b, int64_t rows, int64_t count, int64_t width)
{
    for (int64_t i = 0; i < rows; i++) {
        Num *x = b + i * width, s = x[0];
        for (int64_t k = 1; k < count; k++) s += x[k] * v[k * step];
        s *= tau;
        x[0] -= s;
        for (int64_t k = 1; k < count; k++) x[k] -= s * conjugate(v[k * step]);
    }
}

static void hessenberg(Eigen *e)
{
    int64_t n = e->n, hi = e->hi;
    for (int64_t i = e->lo; i < hi; i++) {
        Num *v = e->h + (i + 1) * n + i, tau = reflection(v, hi - i, n);
        reflect_right(tau, v, n, e->h + i + 1, hi + 1, hi - i, n);
        reflect(conjugate(tau), v, n, e->h + (i + 1) * n + i + 1, hi - i, n - i - 1, n);
        reflect_right(tau, v, n, e->z + i + 1, n, hi - i, n);
        for (int64_t k = i + 2; k <= hi; k++) e->h[k * n + i] = 0;
    }
}

/* ------------------------------------------------------------------ triangular */

/* The first row of the block that ends with row i: the element before it in its row is as good as 0. */
static int64_t block_start(const Eigen *e, int64_t i)
{
    int64_t n = e->n, k = i;
    for (; k > e->lo; k--) {
        const Num *h = e->h + k * n + k; /* this row's diagonal element */
        double before = size_of(h[-1]), here = size_of(h[0]), sum = size_of(h[-n - 1]) + here;
        if (before <= tiny(e)) break;
        if (sum == 0) {
            if (k - 2 >= e->lo) sum += fabs(real_of(h[-n - 2]));
            if (k + 1 <= e->hi) sum += fabs(real_of(h[n]));
        }
        if (fabs(real_of(h[-1])) > e->eps * sum) continue;
        double above = size_of(h[-n]), gap = size_of(h[-n - 1] - h[0]); /* Ahues and Tisseur 1997 */
        double off = larger(before, above), on = larger(here, gap), all = on + off;
        if (smaller(before, above) * (off / all) <=
            larger(tiny(e), e->eps * (smaller(here, gap) * (on / all))))
            break;
    }
    return k;
}

enum { OTHER_SHIFT = 10, TRIES = 300 };

#ifndef QKV_PAIRS
/* Numbers p[0], p[step], ... and q[0], q[step], ... turned by the angle of cosine c and sine s */
static void turn(double *p, double *q, int64_t count, int64_t step, double c, double s)
{
    for (int64_t i = 0; i < count * step; i += step) {
        double x = p[i], y = q[i];
        p[i] = c * x + s * y;
        q[i] = c * y - s * x;
    }
}

/* The turn by which ((a, b), (c, d)) becomes upper triangular, or gets two equal diagonal elements and b c < 0 */
static void standard(double *a, double *b, double *c, double *d, double *cosine, double *sine)
{
    double cs = 1, sn = 0, difference = *a - *d, sum = *b + *c, p = 0.5 * difference, t;
    if (*c == 0 || (*b != 0 && difference == 0 && (*b < 0) != (*c < 0))) {
        *cosine = 1, *sine = 0;
        return;
    }
    if (*b == 0) {
        *cosine = 0, *sine = 1;
        t = *d, *d = *a, *a = t;
        *b = -*c, *c = 0;
        return;
    }
    double most = larger(fabs(*b), fabs(*c)), least = smaller(fabs(*b), fabs(*c)) * ((*b < 0) == (*c < 0) ? 1 : -1);
    double scale = larger(fabs(p), most), z = p / scale * p + most / scale * least;
    if (z >= 4 * DBL_EPSILON) { /* two real ones */
        z = p + copysign(sqrt(scale) * sqrt(z), p);
        *a = *d + z;
        *d -= most / z * least;
        t = sqrt(*c * *c + z * z);
        *cosine = z / t, *sine = *c / t;
        *b -= *c, *c = 0;
        return;
    }
    t = sqrt(sum * sum + difference * difference);
    cs = sqrt(0.5 * (1 + fabs(sum) / t));
    sn = -(p / (t * cs)) * copysign(1, sum);
    double aa = *a * cs + *b * sn, bb = *b * cs - *a * sn, cc = *c * cs + *d * sn, dd = *d * cs - *c * sn;
    *a = aa * cs + cc * sn, *b = bb * cs + dd * sn, *c = cc * cs - aa * sn, *d = dd * cs - bb * sn;
    *a = *d = 0.5 * (*a + *d);
    if (*c != 0 && *b == 0) {
        *b = -*c, *c = 0;
        t = cs, cs = -sn, sn = t;
    } else if (*c != 0 && (*b < 0) == (*c < 0)) {
        double u = sqrt(fabs(*b)), v = sqrt(fabs(*c)), over = 1 / sqrt(fabs(*b + *c));
        p = copysign(u * v, *c);
        *a += p, *d -= p;
        *b -= *c, *c = 0;
        t = cs * u * over - sn * v * over;
        sn = cs * v * over + sn * u * over;
        cs = t;
    }
    *cosine = cs, *sine = sn;
}

/* Row i - 1 and row i are a block of their own. */
static void settle_block(const Eigen *e, int64_t i)
{
    int64_t n = e->n;
    double c, s, *h = e->h, *d = h + i * n + i;
    standard(d - n - 1, d - n, d - 1, d, &c, &s);
    turn(d - n + 1, d + 1, n - 1 - i, 1, c, s);
    turn(h + i - 1, h + i, i - 1, n, c, s);
    turn(e->z + i - 1, e->z + i, n, n, c, s);
}

/* The two shifts of the block that ends with row i; a pair of complex ones, or the better of two real ones twice.
 * Now and then others, for what does not converge */
static void shifts(const Eigen *e, int64_t first, int64_t i, int tries, Root r[2])
{
    int64_t n = e->n;
    const double *d = e->h + i * n + i, *top = e->h + first * n + first;
    double a = d[-n - 1], b = d[-n], c = d[-1], h = d[0];
    if (tries % OTHER_SHIFT == 0) {
        bool end = tries % (2 * OTHER_SHIFT) == 0;
        c = end ? fabs(d[-1]) + fabs(d[-n - 2]) : fabs(top[n]) + fabs(top[2 * n + 1]);
        a = h = 0.75 * c + (end ? d[0] : top[0]);
        b = -0.4375 * c;
    }
    double size = fabs(a) + fabs(b) + fabs(c) + fabs(h);
    r[0] = r[1] = 0;
    if (size == 0) return;
    a /= size, b /= size, c /= size, h /= size;
    double middle = (a + h) / 2, det = (a - middle) * (h - middle) - b * c, root = sqrt(fabs(det));
    if (det >= 0) {
        r[0] = middle * size + root * size * I;
        r[1] = conj(r[0]);
    } else {
        r[0] = fabs(middle + root - h) <= fabs(middle - root - h) ? middle + root : middle - root;
        r[1] = r[0] *= size;
    }
}

/* x (count) -= tau v (v . x), elements step apart */
static void bulge(double *x, int64_t step, const double *v, double tau, int64_t count)
{
    double s = x[0];
    for (int64_t k = 1; k < count; k++) s += v[k] * x[k * step];
    x[0] -= s * tau;
    for (int64_t k = 1; k < count; k++) x[k * step] -= s * (tau * v[k]);
}

/* A step of QR on rows first..i, by the two shifts */
static void step(const Eigen *e, int64_t first, int64_t i, int tries)
{
    int64_t n = e->n, m = i - 2;
    double v[3];
    Root r[2];
    shifts(e, first, i, tries, r);
    for (;; m--) { /* two small subdiagonal elements in a row: the step begins there */
        const double *d = e->h + m * n + m;
        double below = fabs(d[n]), size = fabs(d[0] - creal(r[1])) + fabs(cimag(r[1])) + below;
        below = d[n] / size;
        v[0] = below * d[1] + (d[0] - creal(r[0])) * ((d[0] - creal(r[1])) / size) - cimag(r[0]) * (cimag(r[1]) / size);
        v[1] = below * (d[0] + d[n + 1] - creal(r[0]) - creal(r[1]));
        v[2] = below * d[2 * n + 1];
        size = fabs(v[0]) + fabs(v[1]) + fabs(v[2]);
        for (int k = 0; k < 3; k++) v[k] /= size;
        if (m == first) break;
        if (fabs(d[-1]) * (fabs(v[1]) + fabs(v[2])) <=
            e->eps * fabs(v[0]) * (fabs(d[-n - 1]) + fabs(d[0]) + fabs(d[n + 1])))
            break;
    }
    for (int64_t k = m; k < i; k++) {
        int64_t count = k + 2 <= i ? 3 : 2;
        double *d = e->h + k * n + k;
        for (int64_t j = 0; j < count && k > m; j++) v[j] = d[j * n - 1];
        double tau = reflection(v, count, 1);
        if (k > m) {
            d[-1] = v[0];
            for (int64_t j = 1; j < count; j++) d[j * n - 1] = 0;
        } else if (m > first) d[-1] *= 1 - tau;
        for (int64_t j = k; j < n; j++) bulge(e->h + k * n + j, n, v, tau, count);
        for (int64_t j = 0; j <= (k + 3 < i ? k + 3 : i); j++) bulge(e->h + j * n + k, 1, v, tau, count);
        for (int64_t j = 0; j < n; j++) bulge(e->z + j * n + k, 1, v, tau, count);
    }
}
#else
static void settle_block(const Eigen *e, int64_t i)
{
    (void)e;
    (void)i;
}

static Num square_root(Num x)
{
    double re = real_of(x), im = imaginary(x), t = sqrt((length(x) + fabs(re)) / 2);
    if (t == 0) return 0;
    return re >= 0 ? t + im / (2 * t) * I : fabs(im) / (2 * t) + copysign(t, im) * I;
}

/* The shift of the block that ends with row i: the eigenvalue of its last two rows that is nearer to the end. Now and
 * then another, for what does not converge */
static Num shift(const Eigen *e, int64_t first, int64_t i, int tries)
{
    int64_t n = e->n;
    const Num *d = e->h + i * n + i, *top = e->h + first * n + first;
    if (tries % (2 * OTHER_SHIFT) == 0) return d[0] + 0.75 * fabs(real_of(d[-1]));
    if (tries % OTHER_SHIFT == 0) return top[0] + 0.75 * fabs(real_of(top[n]));
    Num u = square_root(d[-n]) * square_root(d[-1]), x, y;
    double size = size_of(u), beside;
    if (size == 0) return d[0];
    x = 0.5 * (d[-n - 1] - d[0]);
    beside = size_of(x);
    size = larger(size, beside);
    y = size * square_root((x / size) * (x / size) + (u / size) * (u / size));
    if (beside > 0 && real_of(x / beside) * real_of(y) + imaginary(x / beside) * imaginary(y) < 0) y = -y;
    return d[0] - u * (u / (x + y));
}

/* Row k from its diagonal on times f, column k up to it over f; a unit, so that H stays what it is of A */
static void rotate(const Eigen *e, int64_t k, Num f)
{
    int64_t n = e->n;
    for (int64_t j = k + 1; j < n; j++) e->h[k * n + j] *= f;
    for (int64_t j = 0; j < k; j++) e->h[j * n + k] *= conjugate(f);
    for (int64_t j = 0; j < n; j++) e->z[j * n + k] *= conjugate(f);
}

/* A step of QR on rows first..i, by one shift. The first subdiagonal is real before and after it. */
static void step(const Eigen *e, int64_t first, int64_t i, int tries)
{
    int64_t n = e->n, m = i - 1;
    Num t = shift(e, first, i, tries), v[2];
    for (;; m--) {
        const Num *d = e->h + m * n + m;
        double below = real_of(d[n]), size = size_of(d[0] - t) + fabs(below);
        v[0] = (d[0] - t) / size;
        v[1] = below / size;
        if (m == first) break;
        if (fabs(real_of(d[-1])) * fabs(real_of(v[1])) <=
            e->eps * (size_of(v[0]) * (size_of(d[0]) + size_of(d[n + 1]))))
            break;
    }
    for (int64_t k = m; k < i; k++) {
        Num *d = e->h + k * n + k;
        if (k > m) v[0] = d[-1], v[1] = d[n - 1];
        Num tau = reflection(v, 2, 1);
        if (k > m) d[-1] = v[0], d[n - 1] = 0;
        reflect(conjugate(tau), v, 1, d, 2, n - k, n);
        reflect_right(tau, v, 1, e->h + k, (k + 2 < i ? k + 2 : i) + 1, 2, n);
        reflect_right(tau, v, 1, e->z + k, n, 2, n);
        if (k != m || m == first) continue;
        Num f = 1 - tau; /* what d[-1] would have been multiplied by stays 1: the rows below are turned instead */
        f /= length(f);
        e->h[(m + 1) * n + m] *= conjugate(f);
        if (m + 2 <= i) e->h[(m + 2) * n + m + 1] *= f;
        for (int64_t j = m; j <= i; j++)
            if (j != m + 1) rotate(e, j, f);
    }
    Num *end = e->h + i * n + i - 1;
    if (imaginary(*end) == 0) return;
    Num f = *end / length(*end);
    *end = length(*end);
    rotate(e, i, conjugate(f));
}

/* Subdiagonal elements become real. */
static void real_subdiagonal(const Eigen *e)
{
    int64_t n = e->n;
    for (int64_t i = e->lo + 1; i <= e->hi; i++) {
        Num *below = e->h + i * n + i - 1;
        if (imaginary(*below) == 0) continue;
        Num f = conjugate(*below) / length(*below);
        *below = length(*below);
        if (i < e->hi) below[n + 1] *= conjugate(f);
        rotate(e, i, f);
    }
}
#endif

static bool triangular(const Eigen *e)
{
    int tries = 0;
    for (int64_t i = e->hi; i >= e->lo;) {
        int64_t first = block_start(e, i);
        if (first > e->lo) e->h[first * e->n + first - 1] = 0;
        if (first >= i - (WIDTH == 1)) {
            if (first < i) settle_block(e, i);
            i = first - 1;
            tries = 0;
        } else if (tries++ < TRIES) step(e, first, i, tries);
        else return false;
    }
    return true;
}

/* ------------------------------------------------------------------ vectors */

/* Do rows k - 1 and k of the triangular matrix have a pair of complex eigenvalues? */
static bool paired(const Eigen *e, int64_t k)
{
    return WIDTH == 1 && k > 0 && k < e->n && e->h[k * e->n + k - 1] != 0;
}

static void roots(const Eigen *e)
{
    for (int64_t k = 0; k < e->n; k++) {
        const Num *d = e->h + k * e->n + k;
        e->w[k] = d[0];
        if (!paired(e, k)) continue;
        double im = sqrt(fabs(real_of(d[-e->n]))) * sqrt(fabs(real_of(d[-1])));
        e->w[k - 1] = real_of(d[0]) + im * I;
        e->w[k] = conj(e->w[k - 1]);
    }
}

/* minus the sum of row j of T times x, from column `from` to the last one of x */
static Root rest(const Eigen *e, int64_t j, int64_t from, int64_t last)
{
    Root s = 0;
    for (int64_t k = from; k <= last; k++) s -= e->h[j * e->n + k] * e->x[k];
    return s;
}

/* x: (T - w) x = 0, where w is the eigenvalue of row `last`, or the first one of the pair that ends there */
static void solve_back(const Eigen *e, int64_t last)
{
    int64_t n = e->n, j = last - 1;
    const Num *h = e->h;
    Root w = e->w[last], *x = e->x;
    memset(x, 0, (size_t)n * sizeof *x);
    x[last] = 1;
    if (paired(e, last)) {
        double b = real_of(h[(last - 1) * n + last]), c = real_of(h[last * n + last - 1]);
        w = e->w[last - 1];
        j = last - 2;
        x[last - 1] = fabs(b) >= fabs(c) ? 1 : -cimag(w) / c;
        x[last] = fabs(b) >= fabs(c) ? cimag(w) / b * I : I;
    }
    double least = larger(DBL_EPSILON * size_of_root(w), tiny(e)), size = 0;
    for (; j >= 0; j--) {
        Root r = rest(e, j, j + 1, last), d = h[j * n + j] - w;
        if (paired(e, j)) {
            Root q = rest(e, j - 1, j + 1, last), a = h[(j - 1) * n + j - 1] - w, b = h[(j - 1) * n + j],
                 c = h[j * n + j - 1], det = a * d - b * c;
            if (size_of_root(det) < least * least) det = least * least;
            x[j - 1] = (q * d - b * r) / det;
            x[j] = (a * r - c * q) / det;
            size = larger(size_of_root(x[j - 1]), size_of_root(x[j]));
            j--;
        } else {
            x[j] = r / (size_of_root(d) < least ? least : d);
            size = size_of_root(x[j]);
        }
        for (int64_t k = 0; size > 1e100 && k <= last; k++) x[k] /= size;
    }
}

/* x = Z x, and back through the balancing; of length 1, the largest element real */
static void finish(const Eigen *e, int64_t last, bool real, Root *y)
{
    int64_t n = e->n, most = 0;
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        y[i] = 0;
        for (int64_t k = 0; k <= last; k++) y[i] += e->z[i * n + k] * e->x[k];
        if (i >= e->lo && i <= e->hi) y[i] *= e->scale[i];
    }
    for (int64_t k = 1; k <= n; k++) { /* the last exchange first: of rows before lo, then of those after hi */
        int64_t i = k <= e->lo ? e->lo - k : k - 1;
        if (k > e->lo && i <= e->hi) continue;
        Root t = y[i], *other = y + (int64_t)e->scale[i];
        y[i] = *other;
        *other = t;
    }
    for (int64_t i = 0; i < n; i++) squares += creal(y[i]) * creal(y[i]) + cimag(y[i]) * cimag(y[i]);
    for (int64_t i = 0; i < n; i++) {
        y[i] /= sqrt(squares);
        if (length_of_root(y[i]) > length_of_root(y[most])) most = i;
    }
    if (real) return;
    double size = length_of_root(y[most]);
    bool steep = fabs(creal(y[most])) <= fabs(cimag(y[most]));
    if (WIDTH == 1 && creal(y[most]) < 0 && !steep) size = -size; /* LAPACK turns real and imaginary parts: lartg */
    Root phase = conj(y[most]) / size;
    for (int64_t i = 0; i < n; i++) y[i] = i == most ? size : y[i] * phase;
}

static bool all_finite(const Num *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(real_of(x[i])) || !isfinite(imaginary(x[i]))) return false;
    return true;
}

static Root *roots_room(Call *c, int64_t n, Err *err) { return call_scratch(c, (size_t)(n + 1) * sizeof(Root), err); }

/* A -> eigenvalues, and eigenvectors as columns */
bool RUN_FACTOR(eig)(Call *c, Err *err)
{
    Matrices a;
    TRY(copied(c, 0, &a, err));
    int64_t n = a.rows;
    Root *w = roots_room(c, n, err), *x = roots_room(c, n, err), *y = roots_room(c, n, err),
         *vectors = roots_room(c, n * n, err);
    Num *z = room(c, n * n, err);
    double *scale = call_scratch(c, (size_t)(n + 1) * sizeof *scale, err);
    double eps = call_in(c, 0)->dtype == DT_F32 ? (double)FLT_EPSILON : DBL_EPSILON;
    TRY(w && x && y && vectors && z && scale);
    for (int64_t k = 0; k < a.count; k++) {
        Eigen e = {n, 0, n - 1, matrix(&a, k), z, w, x, scale, eps};
        if (!all_finite(e.h, n * n)) return call_fail(c, E_USAGE, err, "a matrix has an element that is not finite");
        balance(&e);
        identity(z, n, n);
        hessenberg(&e);
#ifdef QKV_PAIRS
        real_subdiagonal(&e);
#endif
        if (!triangular(&e)) return call_fail(c, E_USAGE, err, "the eigenvalues of a matrix did not converge");
        roots(&e);
        for (int64_t last = 0; last < n; last++) {
            bool first_of_two = paired(&e, last + 1), second = paired(&e, last);
            if (first_of_two) continue;
            solve_back(&e, last);
            finish(&e, last, WIDTH == 1 && !second, y);
            for (int64_t i = 0; i < n; i++) {
                vectors[i * n + last] = second ? conj(y[i]) : y[i];
                if (second) vectors[i * n + last - 1] = y[i];
            }
        }
        put_reals(c, 0, k, 2 * n, (const double *)w);
        put_reals(c, 1, k, 2 * n * n, (const double *)vectors);
    }
    return true;
}
