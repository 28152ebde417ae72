/* Order along a dim: sort, topk, median, kthvalue, mode, cummax, cummin; and bincount.
 *
 * NaN is the greatest. Which of several equal elements is the chosen one: for median the first; for topk, kthvalue
 * and mode the one that PyTorch's algorithms happen to leave there (std::nth_element, Sedgewick's quickselect,
 * std::sort), so these are the algorithms here, too.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "run/rows.h"
#include "run/run_table.h"

typedef struct Keyed {
    double f;
    int64_t i, at;
} Keyed;

typedef bool Less(const Keyed *a, const Keyed *b);

static bool is_nan(const Keyed *a) { return a->f != a->f; }

static bool below(const Keyed *a, const Keyed *b)
{
    if (is_nan(a) || is_nan(b)) return !is_nan(a) && is_nan(b);
    return a->f < b->f || (a->f == b->f && a->i < b->i);
}

/* Equal elements, NaN among them, keep their order. */
static bool before(const Keyed *a, const Keyed *b) { return below(a, b) || (!below(b, a) && a->at < b->at); }

static void take_row(const Rows *r, int64_t i, Keyed *row)
{
    const void *p = row_at(r, i);
    for (int64_t j = 0; j < r->n; j++)
        row[j] = (Keyed){r->t == DT_I64 ? 0 : value_at(r, p, j), r->t == DT_I64 ? ((const int64_t *)p)[j] : 0, j};
}

/* Puts the first k of a row to its beginning, in order. */
typedef void Order(Keyed *row, int64_t n, int64_t k);

/* The first k of each row in order: values to out 0, positions to out 1. */
static bool ordered(Call *c, int d, int64_t k, Order *order, Err *err)
{
    Rows r;
    const Tensor *x = call_in(c, 0);
    bool set[MAX_RANK] = {false};
    if (x->rank) set[d] = true;
    if (tensor_numel(call_out(c, 0)) == 0) return true;
    TRY(rows_of(c, x, set, &r, err));
    if (k > r.n)
        return call_fail(c, E_USAGE, err, "k is %lld, but dim %d has %lld elements", (long long)k, d, (long long)r.n);
    Keyed *row = call_scratch(c, (size_t)r.n * sizeof *row, err);
    char *values = call_scratch(c, (size_t)(r.rows * k) * dtype_size(r.t), err);
    int64_t *positions = call_scratch(c, (size_t)(r.rows * k) * sizeof *positions, err);
    if (!row || !values || !positions) return false;
    for (int64_t i = 0; i < r.rows; i++) {
        take_row(&r, i, row);
        order(row, r.n, k);
        for (int64_t j = 0; j < k; j++) {
            int64_t at = i * k + j;
            positions[at] = row[j].at;
            if (r.t == DT_I64) ((int64_t *)(void *)values)[at] = row[j].i;
            else store_f64(r.t, values + (size_t)at * dtype_size(r.t), row[j].f);
        }
    }
    return rows_back(c, call_out(c, 0), values, r.t, d, err) && rows_back(c, call_out(c, 1), positions, DT_I64, d, err);
}

/* ------------------------------------------------------------------ selection */

static bool less_plain(const Keyed *a, const Keyed *b) { return a->f < b->f || (a->f == b->f && a->i < b->i); }

static void swap(Keyed *a, Keyed *b)
{
    Keyed t = *a;
    *a = *b;
    *b = t;
}

static void insertion_sort(Keyed *a, int64_t lo, int64_t hi, Less *less)
{
    for (int64_t i = lo + 1; i < hi; i++) {
        Keyed v = a[i];
        int64_t j = i;
        if (less(&v, &a[lo])) j = lo; /* a new least goes to the front at once, whatever NaN is between */
        else
            while (less(&v, &a[j - 1])) j--;
        memmove(a + j + 1, a + j, (size_t)(i - j) * sizeof *a);
        a[j] = v;
    }
}

/* Median of three as the pivot; where the upper part begins. */
static int64_t partition(Keyed *a, int64_t lo, int64_t hi, Less *less)
{
    Keyed *x = &a[lo + 1], *y = &a[lo + (hi - lo) / 2], *z = &a[hi - 1];
    if (less(x, y)) swap(&a[lo], less(y, z) ? y : less(x, z) ? z : x);
    else swap(&a[lo], less(x, z) ? x : less(y, z) ? z : y);
    for (int64_t i = lo + 1, j = hi;; i++) {
        while (less(&a[i], &a[lo])) i++;
        j--;
        while (less(&a[lo], &a[j])) j--;
        if (i >= j) return i;
        swap(&a[i], &a[j]);
    }
}

static int depth_limit(int64_t n)
{
    int d = 0;
    for (; n > 1; n >>= 1) d += 2;
    return d;
}

/* v sinks from place `hole` of a heap of n whose first is the last in order. */
static void sink(Keyed *a, int64_t hole, int64_t n, Keyed v, Less *less)
{
    int64_t top = hole, child = hole;
    while (child < (n - 1) / 2) {
        child = 2 * child + 2;
        if (less(&a[child], &a[child - 1])) child--;
        a[hole] = a[child];
        hole = child;
    }
    if (n % 2 == 0 && child == (n - 2) / 2) {
        a[hole] = a[2 * child + 1];
        hole = 2 * child + 1;
    }
    for (; hole > top && less(&a[(hole - 1) / 2], &v); hole = (hole - 1) / 2) a[hole] = a[(hole - 1) / 2];
    a[hole] = v;
}

/* The first of a heap of n goes to `at`, which comes into the heap. */
static void exchange(Keyed *a, int64_t n, int64_t at, Less *less)
{
    Keyed v = a[at];
    a[at] = a[0];
    sink(a, 0, n, v, less);
}

/* The first k of n become a heap. */
static void heap_select(Keyed *a, int64_t n, int64_t k, Less *less)
{
    for (int64_t i = k / 2; i-- > 0;) sink(a, i, k, a[i], less);
    for (int64_t i = k; i < n; i++)
        if (less(&a[i], &a[0])) exchange(a, k, i, less);
}

/* std::partial_sort */
static void partial_sort(Keyed *a, int64_t n, int64_t k, Less *less)
{
    heap_select(a, n, k, less);
    while (k-- > 1) exchange(a, k, k, less);
}

static void introsort(Keyed *a, int64_t lo, int64_t hi, int depth, Less *less)
{
    for (; hi - lo > 16; depth--) {
        if (depth == 0) {
            partial_sort(a + lo, hi - lo, hi - lo, less);
            return;
        }
        int64_t cut = partition(a, lo, hi, less);
        introsort(a, cut, hi, depth - 1, less);
        hi = cut;
    }
}

/* std::nth_element: element k comes to its place, no later one before it. */
static void nth_element(Keyed *a, int64_t n, int64_t k, Less *less)
{
    int64_t lo = 0, hi = n;
    for (int depth = depth_limit(n); hi - lo > 3; depth--) {
        if (depth == 0) {
            heap_select(a + lo, hi - lo, k + 1 - lo, less);
            swap(&a[lo], &a[k]);
            return;
        }
        int64_t cut = partition(a, lo, hi, less);
        if (cut <= k) lo = cut;
        else hi = cut;
    }
    insertion_sort(a, lo, hi, less);
}

/* ------------------------------------------------------------------ sort */

/* An element whose order is that of an unsigned number; equal ones keep theirs. */
typedef struct Ranked {
    uint64_t key;
    int64_t at;
} Ranked;

enum { SHORT_ROW = 48, DIGITS = 8, DIGIT = 256 };

/* Negative floats have all bits turned, others the sign; both zeros are equal, NaN is the greatest. */
static uint64_t float_key(double f)
{
    uint64_t bits;
    f += 0.0;
    if (f != f) return UINT64_MAX;
    memcpy(&bits, &f, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

static void rank_row(const Rows *r, int64_t row, bool descending, Ranked *to)
{
    const void *p = row_at(r, row);
    for (int64_t j = 0; j < r->n; j++) {
        uint64_t key = r->t == DT_I64 ? (uint64_t)((const int64_t *)p)[j] ^ (uint64_t)1 << 63
                                      : float_key(value_at(r, p, j));
        to[j] = (Ranked){descending ? ~key : key, j};
    }
}

static void insert_ranked(Ranked *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        Ranked x = a[i];
        int64_t j = i;
        for (; j > 0 && x.key < a[j - 1].key; j--) a[j] = a[j - 1];
        a[j] = x;
    }
}

/* By one digit after the other, the lowest first; a digit that all have alike is passed over. Gives a or b. */
static Ranked *sort_ranked(Ranked *a, Ranked *b, int64_t n)
{
    int64_t count[DIGITS][DIGIT] = {0};
    if (n <= SHORT_ROW) {
        insert_ranked(a, n);
        return a;
    }
    for (int64_t i = 0; i < n; i++)
        for (int d = 0; d < DIGITS; d++) count[d][a[i].key >> 8 * d & (DIGIT - 1)]++;
    for (int d = 0; d < DIGITS; d++) {
        int64_t *to = count[d], first = 0;
        if (to[a[0].key >> 8 * d & (DIGIT - 1)] == n) continue;
        for (int k = 0; k < DIGIT; k++) {
            int64_t many = to[k];
            to[k] = first;
            first += many;
        }
        for (int64_t i = 0; i < n; i++) b[to[a[i].key >> 8 * d & (DIGIT - 1)]++] = a[i];
        Ranked *swapped = a;
        a = b;
        b = swapped;
    }
    return a;
}

bool run_sort(Call *c, Err *err)
{
    Rows r;
    const Tensor *x = call_in(c, 0);
    int d = call_dim(c, 1, x->rank);
    bool set[MAX_RANK] = {false};
    if (x->rank) set[d] = true;
    if (tensor_numel(x) == 0) return true;
    TRY(rows_of(c, x, set, &r, err));
    size_t size = dtype_size(r.t);
    Ranked *a = call_scratch(c, (size_t)r.n * sizeof *a, err), *b = call_scratch(c, (size_t)r.n * sizeof *b, err);
    char *values = call_scratch(c, (size_t)(r.rows * r.n) * size, err);
    int64_t *positions = call_scratch(c, (size_t)(r.rows * r.n) * sizeof *positions, err);
    if (!a || !b || !values || !positions) return false;
    for (int64_t i = 0; i < r.rows; i++) {
        const char *row = row_at(&r, i);
        rank_row(&r, i, call_bool(c, 2), a);
        const Ranked *sorted = sort_ranked(a, b, r.n);
        for (int64_t j = 0; j < r.n; j++) {
            positions[i * r.n + j] = sorted[j].at;
            memcpy(values + (size_t)(i * r.n + j) * size, row + (size_t)sorted[j].at * size, size);
        }
    }
    return rows_back(c, call_out(c, 0), values, r.t, d, err) && rows_back(c, call_out(c, 1), positions, DT_I64, d, err);
}

/* As ATen's topk_impl_loop. */
static void order_top(Keyed *a, int64_t n, int64_t k, bool sort, Less *less)
{
    if (k * 64 <= n) {
        partial_sort(a, n, k, less);
        return;
    }
    nth_element(a, n, k - 1, less);
    if (!sort) return;
    introsort(a, 0, k - 1, depth_limit(k - 1), less);
    insertion_sort(a, 0, k - 1, less);
}

static bool above(const Keyed *a, const Keyed *b) { return below(b, a); }
static void most(Keyed *a, int64_t n, int64_t k) { order_top(a, n, k, true, above); }
static void least(Keyed *a, int64_t n, int64_t k) { order_top(a, n, k, true, below); }
static void most_unsorted(Keyed *a, int64_t n, int64_t k) { order_top(a, n, k, false, above); }
static void least_unsorted(Keyed *a, int64_t n, int64_t k) { order_top(a, n, k, false, below); }

bool run_topk(Call *c, Err *err)
{
    static Order *const orders[] = {least_unsorted, least, most_unsorted, most};
    Order *order = orders[call_bool(c, 3) * 2 + call_bool(c, 4)];
    return ordered(c, call_dim(c, 2, call_in(c, 0)->rank), call_i64(c, 1), order, err);
}

/* Sedgewick's: element k of the sorted row comes to place k. */
static void quickselect(Keyed *a, int64_t n, int64_t k, Less *less)
{
    int64_t lo = 0, hi = n - 1;
    while (hi > lo + 1) {
        swap(&a[lo + (hi - lo) / 2], &a[lo + 1]);
        if (less(&a[hi], &a[lo + 1])) swap(&a[lo + 1], &a[hi]);
        if (less(&a[hi], &a[lo])) swap(&a[lo], &a[hi]);
        if (less(&a[lo], &a[lo + 1])) swap(&a[lo + 1], &a[lo]);
        Keyed pivot = a[lo];
        int64_t i = lo + 1, j = hi;
        for (;;) {
            do i++;
            while (less(&a[i], &pivot));
            do j--;
            while (less(&pivot, &a[j]));
            if (j < i) break;
            swap(&a[i], &a[j]);
        }
        swap(&a[lo], &a[j]);
        if (j <= k) lo = i;
        if (j >= k) hi = j - 1;
    }
    if (hi == lo + 1 && less(&a[hi], &a[lo])) swap(&a[lo], &a[hi]);
}

/* Rearranges a row of n and says which place holds the answer. */
typedef int64_t Pick(Keyed *row, int64_t n, int64_t k);

static int64_t pick_median(Keyed *row, int64_t n, int64_t k)
{
    (void)k;
    for (int64_t j = 0; j < n; j++)
        if (is_nan(&row[j])) return j;
    quickselect(row, n, (n - 1) / 2, before);
    return (n - 1) / 2;
}

static int64_t pick_nanmedian(Keyed *row, int64_t n, int64_t k)
{
    int64_t m = 0;
    (void)k;
    for (int64_t j = 0; j < n; j++) m += !is_nan(&row[j]);
    if (!m) nth_element(row, n, 0, below); /* ATen's choice among NaN */
    else quickselect(row, n, (m - 1) / 2, before);
    return m ? (m - 1) / 2 : 0;
}

static int64_t pick_kth(Keyed *row, int64_t n, int64_t k)
{
    quickselect(row, n, k, below);
    return k;
}

/* The most frequent, the least of those; short rows are compared as ATen does, without regard for NaN. */
static int64_t pick_mode(Keyed *row, int64_t n, int64_t k)
{
    int64_t best = 0, most = 0;
    (void)k;
    if (n > 16) introsort(row, 0, n, depth_limit(n), below);
    insertion_sort(row, 0, n, n > 16 ? below : less_plain);
    for (int64_t j = 0, run = 0; j < n; j++) {
        run = j && row[j].f == row[j - 1].f && row[j].i == row[j - 1].i ? run + 1 : 1;
        if (run <= most) continue;
        most = run;
        best = j;
    }
    return best;
}

static bool pick(Call *c, const bool *set, Pick *f, int64_t k, Err *err)
{
    Rows r;
    Tensor *values = call_out(c, 0), *positions = c->nout > 1 ? call_out(c, 1) : NULL;
    TRY(rows_of(c, call_in(c, 0), set, &r, err));
    if (r.rows == 0) return true;
    if (r.n == 0 && positions) return call_fail(c, E_USAGE, err, "a choice among no elements");
    if (k >= r.n && k)
        return call_fail(c, E_USAGE, err, "k is %lld, but there are %lld elements", (long long)k + 1, (long long)r.n);
    Keyed *row = call_scratch(c, (size_t)r.n * sizeof *row, err);
    TRY(row);
    for (int64_t i = 0; i < r.rows; i++) {
        Keyed none = {NAN, INT64_MIN, 0}, *at = &none; /* what PyTorch gives for the median of nothing */
        take_row(&r, i, row);
        if (r.n) at = &row[f(row, r.n, k)];
        rows_put(values, i, at->f, at->i, r.t != DT_I64);
        if (positions) rows_put(positions, i, 0, at->at, false);
    }
    return true;
}

static bool pick_along(Call *c, int dim, Pick *f, int64_t k, Err *err)
{
    bool set[MAX_RANK] = {false};
    const Tensor *x = call_in(c, 0);
    if (x->rank) set[call_dim(c, dim, x->rank)] = true;
    return pick(c, set, f, k, err);
}

static bool pick_of_all(Call *c, Pick *f, Err *err)
{
    bool set[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) set[i] = true;
    return pick(c, set, f, 0, err);
}

bool run_median(Call *c, Err *err) { return pick_of_all(c, pick_median, err); }
bool run_nanmedian(Call *c, Err *err) { return pick_of_all(c, pick_nanmedian, err); }
bool run_median_dim(Call *c, Err *err) { return pick_along(c, 1, pick_median, 0, err); }
bool run_nanmedian_dim(Call *c, Err *err) { return pick_along(c, 1, pick_nanmedian, 0, err); }
bool run_mode(Call *c, Err *err) { return pick_along(c, 1, pick_mode, 0, err); }

bool run_kthvalue(Call *c, Err *err)
{
    int64_t k = call_i64(c, 1);
    if (k < 1) return call_fail(c, E_USAGE, err, "k is %lld, expected at least 1", (long long)k);
    return pick_along(c, 2, pick_kth, k - 1, err);
}

/* ------------------------------------------------------------------ running extremes */

/* Of equal elements the last; a NaN stays. */
static bool running(Call *c, bool smallest, Err *err)
{
    Rows r;
    const Tensor *x = call_in(c, 0);
    bool set[MAX_RANK] = {false};
    int d = call_dim(c, 1, x->rank);
    if (x->rank) set[d] = true;
    if (tensor_numel(x) == 0) return true;
    TRY(rows_of(c, x, set, &r, err));
    char *values = call_scratch(c, (size_t)(r.rows * r.n) * 8, err);
    int64_t *positions = call_scratch(c, (size_t)(r.rows * r.n) * sizeof *positions, err);
    if (!values || !positions) return false;
    for (int64_t i = 0; i < r.rows; i++) {
        const void *row = row_at(&r, i);
        int64_t best = 0;
        for (int64_t j = 0; j < r.n; j++) {
            int64_t at = i * r.n + j;
            if (r.t == DT_I64) {
                const int64_t *v = row;
                if (smallest ? v[j] <= v[best] : v[j] >= v[best]) best = j;
                ((int64_t *)(void *)values)[at] = v[best];
            } else {
                double v = value_at(&r, row, j), b = value_at(&r, row, best);
                if (v != v || (smallest ? v <= b : v >= b)) best = j;
                store_f64(r.t, values + (size_t)at * dtype_size(r.t), value_at(&r, row, best));
            }
            positions[at] = best;
        }
    }
    return rows_back(c, call_out(c, 0), values, r.t, d, err) && rows_back(c, call_out(c, 1), positions, DT_I64, d, err);
}

bool run_cummax(Call *c, Err *err) { return running(c, false, err); }
bool run_cummin(Call *c, Err *err) { return running(c, true, err); }

/* ------------------------------------------------------------------ counting */

/* Without memory for its result it counts only, as run_nonzero does. */
bool run_bincount(Call *c, Err *err)
{
    const Tensor *x = call_contiguous(c, call_in(c, 0), DT_I64, err), *w = call_in(c, 1);
    Tensor *out = call_out(c, 0);
    TRY(x);
    const int64_t *v = x->data;
    int64_t n = x->shape[0], bins = call_i64(c, 2);
    if (bins < 0) return call_fail(c, E_USAGE, err, "minlength is %lld, expected at least 0", (long long)bins);
    if (w && w->shape[0] != n)
        return call_fail(c, E_USAGE, err, "%lld weights for %lld values", (long long)w->shape[0], (long long)n);
    for (int64_t i = 0; i < n; i++) {
        if (v[i] < 0 || v[i] >= 1LL << 40)
            return call_fail(c, E_USAGE, err, "found %lld, expected small integers of at least 0", (long long)v[i]);
        if (v[i] >= bins) bins = v[i] + 1;
    }
    TRY(call_counted(c, bins, err));
    if (!out->data) return true;
    memset(out->data, 0, tensor_bytes(out));
    for (int64_t i = 0; i < n; i++) {
        if (out->dtype == DT_I64) ((int64_t *)out->data)[v[i]]++;
        else if (out->dtype == DT_F32) ((float *)out->data)[v[i]] += (float)tensor_get(w, i);
        else ((double *)out->data)[v[i]] += tensor_get(w, i);
    }
    return true;
}
