/* Reductions, scans, softmax and norms: the dims to work along are brought to the end (run/rows.h),
 * then rows go to the kernels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/elementary.h"
#include "kernel/kernel.h"
#include "run/pointwise.h"
#include "run/rows.h"
#include "run/run_table.h"
#include "team/team.h"

/* ------------------------------------------------------------------ one number a row */

typedef enum Fold {
    FOLD_SUM,
    FOLD_MEAN,
    FOLD_PROD,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_ARGMAX,
    FOLD_ARGMIN,
    FOLD_ANY,
    FOLD_ALL,
    FOLD_VAR,
    FOLD_STD,
    FOLD_NORM,
    FOLD_LOGSUMEXP
} Fold;

static double fold_float(const Rows *r, const void *row, Fold f, double p)
{
    const ReduceKernels *k = &kernels()->reduce;
    double s, m;
    int64_t n = r->n;
    switch (f) {
    case FOLD_SUM:
    case FOLD_MEAN:
        s = r->t == DT_F32 ? k->sum_f32(row, n) : k->sum_f64(row, n);
        return f == FOLD_SUM ? s : s / (double)n;
    case FOLD_PROD:
        s = 1;
        for (int64_t i = 0; i < n; i++) s *= value_at(r, row, i);
        return s;
    case FOLD_MAX:
    case FOLD_MIN:
        return r->t == DT_F32 ? k->extreme_f32(row, n, f == FOLD_MIN, NULL)
                              : k->extreme_f64(row, n, f == FOLD_MIN, NULL);
    case FOLD_VAR: /* two passes; p is the correction */
        return rows_squares(r, row, fold_float(r, row, FOLD_MEAN, 0)) / ((double)n - p > 0 ? (double)n - p : 0);
    case FOLD_STD: return sqrt(fold_float(r, row, FOLD_VAR, p));
    case FOLD_NORM:
        s = p == -INFINITY ? INFINITY : 0;
        for (int64_t i = 0; i < n; i++) {
            double x = fabs(value_at(r, row, i));
            if (p == 2) s += x * x;
            else if (p == INFINITY) s = x > s || x != x ? x : s;
            else if (p == -INFINITY) s = x < s || x != x ? x : s;
            else s += p == 0 ? x != 0 : p == 1 ? x : real_pow(x, p);
        }
        return p == 2 ? sqrt(s) : p == 0 || p == 1 || isinf(p) ? s : real_pow(s, 1 / p);
    case FOLD_LOGSUMEXP:
        if (n == 0) return -INFINITY;
        m = fold_float(r, row, FOLD_MAX, 0);
        if (isinf(m)) m = m > 0 ? m : 0;
        if (m == INFINITY) return m;
        s = 0;
        for (int64_t i = 0; i < n; i++) s += real_exp(value_at(r, row, i) - m);
        return real_log(s) + m;
    case FOLD_ANY:
    case FOLD_ALL:
        for (int64_t i = 0; i < n; i++)
            if ((value_at(r, row, i) != 0) == (f == FOLD_ANY)) return f == FOLD_ANY;
        return f == FOLD_ALL;
    default: return 0;
    }
}

static int64_t extreme_int(const int64_t *x, int64_t n, bool smallest, int64_t *at)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (smallest ? x[i] < x[best] : x[i] > x[best]) best = i;
    *at = best;
    return x[best];
}

static int64_t fold_int(const Rows *r, const int64_t *x, Fold f)
{
    uint64_t s = f == FOLD_PROD;
    int64_t at;
    switch (f) {
    case FOLD_SUM:
        for (int64_t i = 0; i < r->n; i++) s += (uint64_t)x[i];
        return (int64_t)s;
    case FOLD_PROD:
        for (int64_t i = 0; i < r->n; i++) s *= (uint64_t)x[i];
        return (int64_t)s;
    case FOLD_MAX:
    case FOLD_MIN: return extreme_int(x, r->n, f == FOLD_MIN, &at);
    case FOLD_ANY:
    case FOLD_ALL:
        for (int64_t i = 0; i < r->n; i++)
            if ((x[i] != 0) == (f == FOLD_ANY)) return f == FOLD_ANY;
        return f == FOLD_ALL;
    default: return 0;
    }
}

/* x (float32) as a matrix whose columns are summed: the set dims are stepped over evenly, the others are side by side
 * after them. */
static bool columns_of(const Tensor *x, const bool *set, int64_t *rows, int64_t *step, int64_t *n)
{
    int order[MAX_RANK], dims = 0;
    *rows = *n = 1;
    *step = 0;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (x->shape[i] == 1) continue;
        if (!set[i] && x->stride[i] != *n) return false;
        if (!set[i]) *n *= x->shape[i];
        else {
            int k = dims++;
            for (; k > 0 && x->stride[order[k - 1]] > x->stride[i]; k--) order[k] = order[k - 1];
            order[k] = i;
        }
    }
    for (int k = 0; k < dims; k++) {
        int64_t stride = x->stride[order[k]];
        if (k == 0) *step = stride;
        else if (stride != *step * *rows) return false;
        *rows *= x->shape[order[k]];
    }
    return x->dtype == DT_F32 && *n > 1 && *rows > 1 && *step >= *n;
}

/* Parts of rows that do not depend on the number of threads: each has sums of its own, which are added in order. */
enum { PARTS = 16, PART_ROWS = 64 };
static int64_t parts_of(int64_t rows) { return rows < PARTS * PART_ROWS ? (rows + PART_ROWS - 1) / PART_ROWS : PARTS; }

static void add_parts(double *sum, int64_t parts, int64_t n)
{
    for (int64_t p = 1; p < parts; p++)
        for (int64_t i = 0; i < n; i++) sum[i] += sum[p * n + i];
}

/* Sums over dims in front: what a bias or a broadcast operand gathers. */
static bool sum_columns(Call *c, const bool *set, Fold f, bool *done, Err *err)
{
    const Tensor *x = call_in(c, 0);
    Tensor *out = call_out(c, 0);
    int64_t rows, step, n;
    *done = (f == FOLD_SUM || f == FOLD_MEAN) && out->dtype == DT_F32 && tensor_contiguous(out) &&
            columns_of(x, set, &rows, &step, &n);
    if (!*done) return true;
    int64_t parts = parts_of(rows);
    double *sum = call_scratch(c, (size_t)(parts * n) * sizeof *sum, err);
    TRY(sum);
#pragma omp parallel for num_threads(c->env->threads) if (rows * n > 1 << 15)
    for (int64_t p = 0; p < parts; p++) {
        int64_t from = rows * p / parts, to = rows * (p + 1) / parts;
        kernels()->reduce.columns_f32(sum + p * n, (const float *)x->data + from * step, NULL, to - from, step,
                                      n);
    }
    add_parts(sum, parts, n);
    for (int64_t i = 0; i < n; i++) ((float *)out->data)[i] = (float)(f == FOLD_MEAN ? sum[i] / (double)rows : sum[i]);
    return true;
}

static bool reduce(Call *c, const bool *set, Fold f, double p, Err *err)
{
    Rows r;
    Tensor *out = call_out(c, 0);
    bool done;
    TRY(sum_columns(c, set, f, &done, err));
    if (done) return true;
    TRY(rows_of(c, call_in(c, 0), set, &r, err));
    bool needs_one = f == FOLD_MAX || f == FOLD_MIN;
    if (needs_one && r.n == 0 && r.rows) return call_fail(c, E_USAGE, err, "the largest of no elements");
    int threads = r.rows * r.n > 1 << 15 ? c->env->threads : 1;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < r.rows; i++) {
        if (r.t == DT_I64) rows_put(out, i, 0, fold_int(&r, row_at(&r, i), f), false);
        else rows_put(out, i, fold_float(&r, row_at(&r, i), f, p), 0, true);
    }
    return true;
}

static bool reduce_dims(Call *c, Fold f, double p, int arg, Err *err)
{
    bool set[MAX_RANK];
    rows_dims(c, arg, call_in(c, 0)->rank, set);
    return reduce(c, set, f, p, err);
}

bool run_sum(Call *c, Err *err) { return reduce_dims(c, FOLD_SUM, 0, 1, err); }
bool run_mean(Call *c, Err *err) { return reduce_dims(c, FOLD_MEAN, 0, 1, err); }
bool run_prod(Call *c, Err *err) { return reduce_dims(c, FOLD_PROD, 0, 1, err); }
bool run_amax(Call *c, Err *err) { return reduce_dims(c, FOLD_MAX, 0, 1, err); }
bool run_amin(Call *c, Err *err) { return reduce_dims(c, FOLD_MIN, 0, 1, err); }
bool run_any(Call *c, Err *err) { return reduce_dims(c, FOLD_ANY, 0, 1, err); }
bool run_all(Call *c, Err *err) { return reduce_dims(c, FOLD_ALL, 0, 1, err); }
bool run_logsumexp(Call *c, Err *err) { return reduce_dims(c, FOLD_LOGSUMEXP, 0, 1, err); }
bool run_var(Call *c, Err *err) { return reduce_dims(c, FOLD_VAR, call_f64_or(c, 2, 1), 1, err); }
bool run_std(Call *c, Err *err) { return reduce_dims(c, FOLD_STD, call_f64_or(c, 2, 1), 1, err); }
bool run_vector_norm(Call *c, Err *err) { return reduce_dims(c, FOLD_NORM, call_f64(c, 1), 2, err); }

/* values (or NULL) and positions of the extreme of each row */
static bool extremes(Call *c, bool smallest, Tensor *values, Tensor *positions, Err *err)
{
    Rows r;
    bool set[MAX_RANK];
    rows_dims(c, 1, call_in(c, 0)->rank, set);
    TRY(rows_of(c, call_in(c, 0), set, &r, err));
    if (r.n == 0 && r.rows) return call_fail(c, E_USAGE, err, "the largest of no elements");
    for (int64_t i = 0; i < r.rows; i++) {
        int64_t at = 0, v = 0;
        double f = 0;
        if (r.t == DT_I64) v = extreme_int(row_at(&r, i), r.n, smallest, &at);
        else
            f = r.t == DT_F32 ? kernels()->reduce.extreme_f32(row_at(&r, i), r.n, smallest, &at)
                              : kernels()->reduce.extreme_f64(row_at(&r, i), r.n, smallest, &at);
        if (values) rows_put(values, i, f, v, r.t != DT_I64);
        rows_put(positions, i, 0, at, false);
    }
    return true;
}

bool run_argmax(Call *c, Err *err) { return extremes(c, false, NULL, call_out(c, 0), err); }
bool run_argmin(Call *c, Err *err) { return extremes(c, true, NULL, call_out(c, 0), err); }
bool run_max_dim(Call *c, Err *err) { return extremes(c, false, call_out(c, 0), call_out(c, 1), err); }
bool run_min_dim(Call *c, Err *err) { return extremes(c, true, call_out(c, 0), call_out(c, 1), err); }

/* ------------------------------------------------------------------ a row for a row */

typedef struct Line {
    Rows in;
    void *out;   /* where the rows of the result go */
    bool direct; /* that is the output itself */
    int d;
} Line;

/* The row dim last, and a place for the result in the same form. */
static bool line_up(Call *c, int d, DType t, Line *l, Err *err)
{
    const Tensor *x = call_in(c, 0);
    Tensor *out = call_out(c, 0);
    bool set[MAX_RANK] = {false};
    if (x->rank) set[d] = true;
    TRY(rows_of(c, x, set, &l->in, err));
    l->d = d;
    l->direct = out->dtype == t && (x->rank == 0 || d == x->rank - 1);
    l->out = l->direct ? out->data : call_scratch(c, (size_t)(l->in.rows * l->in.n) * dtype_size(t), err);
    return l->out != NULL || l->in.rows * l->in.n == 0;
}

static bool line_down(Call *c, Line *l, DType t, Err *err)
{
    return l->direct || rows_back(c, call_out(c, 0), l->out, t, l->d, err);
}

static bool softmax(Call *c, bool log, bool safe, Err *err)
{
    Line l;
    DType t = row_type(call_out(c, 0)->dtype);
    if (tensor_numel(call_out(c, 0)) == 0) return true;
    TRY(line_up(c, call_dim(c, 1, call_in(c, 0)->rank), t, &l, err));
    const ReduceKernels *k = &kernels()->reduce;
    if (t == DT_F32) k->softmax_f32(l.out, l.in.data, l.in.rows, l.in.n, log, safe, c->env->threads);
    else k->softmax_f64(l.out, l.in.data, l.in.rows, l.in.n, log, safe, c->env->threads);
    return line_down(c, &l, t, err);
}

bool run_softmax(Call *c, Err *err) { return softmax(c, false, false, err); }
bool run_safe_softmax(Call *c, Err *err) { return softmax(c, false, true, err); }
bool run_log_softmax(Call *c, Err *err) { return softmax(c, true, false, err); }

/* log(exp(a) + exp(b)); two infinities of one sign give that infinity */
static double log_add_exp(double a, double b)
{
    if (isnan(a) || isnan(b)) return NAN;
    double lo = a < b ? a : b, hi = a < b ? b : a;
    return lo == hi && isinf(lo) ? lo : hi + real_log1p(real_exp(lo - hi));
}

typedef enum Scan { SCAN_SUM, SCAN_PROD, SCAN_LOGSUMEXP } Scan;

/* Running sums, products and log-sum-exps; floats add up in double, as ATen's cumsum does for float on the CPU. */
static bool scan(Call *c, Scan how, Err *err)
{
    Line l;
    DType t = row_type(call_out(c, 0)->dtype);
    if (tensor_numel(call_out(c, 0)) == 0) return true;
    TRY(line_up(c, call_dim(c, 1, call_in(c, 0)->rank), t, &l, err));
    for (int64_t r = 0; r < l.in.rows; r++) {
        double s = how == SCAN_PROD ? 1 : how == SCAN_SUM ? 0 : -INFINITY;
        uint64_t u = how == SCAN_PROD;
        for (int64_t i = r * l.in.n; i < (r + 1) * l.in.n; i++) {
            if (t == DT_I64) {
                uint64_t v = (uint64_t)((const int64_t *)l.in.data)[i];
                u = how == SCAN_PROD ? u * v : u + v;
                ((int64_t *)l.out)[i] = (int64_t)u;
            } else {
                double v = value_at(&l.in, l.in.data, i);
                s = how == SCAN_PROD ? s * v : how == SCAN_SUM ? s + v : log_add_exp(s, v);
                if (t == DT_F32) ((float *)l.out)[i] = (float)s;
                else ((double *)l.out)[i] = s;
            }
        }
    }
    return line_down(c, &l, t, err);
}

bool run_cumsum(Call *c, Err *err) { return scan(c, SCAN_SUM, err); }
bool run_cumprod(Call *c, Err *err) { return scan(c, SCAN_PROD, err); }
bool run_logcumsumexp(Call *c, Err *err) { return scan(c, SCAN_LOGSUMEXP, err); }

/* ------------------------------------------------------------------ distances */

static double distance(const double *a, const double *b, int64_t n, double p)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = fabs(a[i] - b[i]);
        if (p == 2) s += x * x;
        else if (p == 1) s += x;
        else if (p == 0) s += x != 0;
        else if (isinf(p)) s = x > s || x != x ? x : s;
        else s += real_pow(x, p);
    }
    return p == 2 ? sqrt(s) : p == 1 || p == 0 || isinf(p) ? s : real_pow(s, 1 / p);
}

/* x as contiguous doubles (batch sizes of out, its own last two sizes) */
static const double *spread_batches(Call *c, const Tensor *x, const Tensor *out, Err *err)
{
    Tensor u = *x;
    int lead = out->rank - x->rank;
    u.rank = out->rank;
    for (int i = 0; i < out->rank; i++) {
        int k = i - lead;
        bool own = k >= 0, last = i >= out->rank - 2;
        u.shape[i] = own && last ? x->shape[k] : out->shape[i];
        u.stride[i] = own && (last || x->shape[k] != 1) ? x->stride[k] : 0;
    }
    const Tensor *flat = call_contiguous(c, &u, DT_F64, err);
    return flat ? flat->data : NULL;
}

/* out (..., P, R) = distances of the rows of x (..., P, M) and y (..., R, M) */
bool run_cdist(Call *c, Err *err)
{
    const Tensor *x = call_in(c, 0);
    Tensor *out = call_out(c, 0);
    int64_t R = out->shape[out->rank - 1], P = out->shape[out->rank - 2], M = x->shape[x->rank - 1],
            rows = R ? tensor_numel(out) / R : 0;
    double p = call_f64(c, 2);
    if (tensor_numel(out) == 0) return true;
    const double *a = spread_batches(c, x, out, err), *b = a ? spread_batches(c, call_in(c, 1), out, err) : NULL;
    TRY(b);
#pragma omp parallel for num_threads(c->env->threads) if (rows * R * M > 1 << 15)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < R; k++)
            rows_put(out, i * R + k, distance(a + i * M, b + (i / P * R + k) * M, M, p), 0, true);
    return true;
}

/* ------------------------------------------------------------------ norms */

/* Weight or bias as contiguous values of type t; NULL stays NULL. */
static bool vector(Call *c, const Tensor *w, DType t, const void **out, Err *err)
{
    *out = NULL;
    if (!w) return true;
    const Tensor *flat = call_contiguous(c, w, t, err);
    TRY(flat);
    *out = flat->data;
    return true;
}

typedef struct Norm {
    const float *w, *b;
    int64_t rows, n;
    double eps;
    bool rms;
} Norm;

enum { NORM_BLOCK = 8 };

/* Rows of any float, in blocks that a thread widens and rounds in its own room. */
static bool norm_rows(Call *c, const Norm *a, const Tensor *x, Tensor *out, Err *err)
{
    const Kernels *k = kernels();
    if (x->dtype == DT_F32 && out->dtype == DT_F32) {
        k->reduce.norm_f32(out->data, x->data, a->w, a->b, a->rows, a->n, a->eps, a->rms, NULL, NULL, c->env->threads);
        return true;
    }
    int threads = a->rows * a->n < 1 << 14 ? 1 : c->env->threads;
    int64_t block = NORM_BLOCK * a->n;
    float *room = call_scratch(c, (size_t)(2 * block) * sizeof *room * (size_t)threads, err);
    bool ok = true;
    TRY(room);
#pragma omp parallel for num_threads(threads) if (threads > 1) reduction(&& : ok)
    for (int64_t r = 0; r < a->rows; r += NORM_BLOCK) {
        int64_t rows = a->rows - r < NORM_BLOCK ? a->rows - r : NORM_BLOCK;
        float *in = room + 2 * block * team_part(), *y = in + block;
        const char *from = (const char *)x->data + (size_t)(r * a->n) * dtype_size(x->dtype);
        char *to = (char *)out->data + (size_t)(r * a->n) * dtype_size(out->dtype);
        bool wide_in = x->dtype == DT_F32, wide_out = out->dtype == DT_F32;
        if (!wide_in) ok = k->pointwise.load_f32(in, x->dtype, from, (int64_t)dtype_size(x->dtype), rows * a->n) && ok;
        k->reduce.norm_f32(wide_out ? (void *)to : y, wide_in ? (const void *)from : in, a->w, a->b, rows, a->n, a->eps,
                           a->rms, NULL, NULL, 1);
        if (!wide_out) ok = k->pointwise.store_f32(out->dtype, to, y, rows * a->n) && ok;
    }
    return ok ||
           call_fail(c, E_UNSUPPORTED, err, "no kernel from %s to %s", dtype_name(x->dtype), dtype_name(out->dtype));
}

static bool norm(Call *c, const Tensor *w0, const Tensor *b0, double eps, bool rms, Err *err)
{
    const Tensor *x = call_in(c, 0);
    Tensor *out = call_out(c, 0);
    DType t = row_type(x->dtype);
    const void *w, *b;
    int64_t n = 1;
    for (int i = x->rank - c->arg[1].n; i < x->rank; i++) n *= x->shape[i];
    if (tensor_numel(x) == 0) return true;
    TRY(vector(c, w0, t, &w, err) && vector(c, b0, t, &b, err));
    int64_t rows = tensor_numel(x) / n;
    if (t == DT_F32) {
        x = call_contiguous(c, x, DT_NONE, err);
        return x && norm_rows(c, &(Norm){w, b, rows, n, eps, rms}, x, out, err);
    }
    x = call_contiguous(c, x, t, err);
    TRY(x);
    kernels()->reduce.norm_f64(out->data, x->data, w, b, rows, n, eps, rms, NULL, NULL, c->env->threads);
    return true;
}

bool run_layer_norm(Call *c, Err *err) { return norm(c, call_in(c, 2), call_in(c, 3), call_f64(c, 4), false, err); }
bool run_rms_norm(Call *c, Err *err) { return norm(c, call_in(c, 2), NULL, call_f64(c, 3), true, err); }

/* The place for a result, in the type that is computed in. */
static void *result_room(Call *c, int k, DType t, Err *err)
{
    Tensor *out = call_out(c, k);
    return out->dtype == t ? out->data : call_scratch(c, (size_t)tensor_numel(out) * dtype_size(t), err);
}

static bool result_back(Call *c, int k, DType t, void *from)
{
    Tensor *out = call_out(c, k), u = tensor_of(t, out->rank, out->shape, from);
    return from == out->data || run_copy_tensor(out, &u, c->env->threads);
}

/* Rows go in parts that do not depend on the number of threads, each with sums of its own for weight and bias. */
bool run_norm_backward(Call *c, Err *err)
{
    DType t = row_type(call_in(c, 1)->dtype);
    const Tensor *dy = call_contiguous(c, call_in(c, 0), t, err),
                 *x = dy ? call_contiguous(c, call_in(c, 1), t, err) : NULL,
                 *w = x ? call_contiguous(c, call_in(c, 3), t, err) : NULL;
    TRY(w);
    int64_t n = tensor_numel(w), rows = n ? tensor_numel(x) / n : 0, parts = rows ? parts_of(rows) : 1;
    double eps = call_f64(c, 4), *sum = call_scratch(c, (size_t)(parts * 2 * n) * sizeof *sum, err);
    bool rms = call_bool(c, 5), wide = t == DT_F64;
    void *dx = result_room(c, 0, t, err), *dw = result_room(c, 1, t, err), *db = result_room(c, 2, t, err);
    if (n == 0) return true;
    TRY(sum && dx && dw && db);
    memset(sum, 0, (size_t)(parts * 2 * n) * sizeof *sum);
    const ReduceKernels *k = &kernels()->reduce;
#pragma omp parallel for num_threads(c->env->threads) if (rows * n > 1 << 14)
    for (int64_t p = 0; p < parts; p++) {
        int64_t from = rows * p / parts, many = rows * (p + 1) / parts - from, at = from * n;
        double *own = sum + p * 2 * n;
        if (wide)
            k->norm_back_f64((double *)dx + at, own, own + n, (const double *)dy->data + at,
                             (const double *)x->data + at, w->data, many, n, eps, rms);
        else
            k->norm_back_f32((float *)dx + at, own, own + n, (const float *)dy->data + at, (const float *)x->data + at,
                             w->data, many, n, eps, rms);
    }
    add_parts(sum, parts, 2 * n);
    for (int64_t i = 0; i < n; i++) {
        if (wide) ((double *)dw)[i] = sum[i], ((double *)db)[i] = sum[n + i];
        else ((float *)dw)[i] = (float)sum[i], ((float *)db)[i] = (float)sum[n + i];
    }
    return result_back(c, 0, t, dx) && result_back(c, 1, t, dw) && result_back(c, 2, t, db);
}

/* aten::histc: equal bins over [min, max], of the data where both are the same; what is outside, and NaN, is not
 * counted. The bin is computed in the tensor's own precision (aten/src/ATen/native/cpu/HistogramKernel.cpp). */
bool run_histc(Call *c, Err *err)
{
    const Tensor *x = call_in(c, 0);
    Tensor *out = call_out(c, 0);
    DType t = x->dtype;
    int64_t n = tensor_numel(x), bins = out->shape[0];
    double lo = round_to(t, call_f64(c, 2)), hi = round_to(t, call_f64(c, 3));
    if (lo > hi) return call_fail(c, E_USAGE, err, "min %g is above max %g", lo, hi);
    if (bins < 1) return call_fail(c, E_USAGE, err, "%lld bins, expected at least 1", (long long)bins);
    int64_t *count = call_scratch(c, (size_t)bins * sizeof *count, err);
    TRY(count);
    memset(count, 0, (size_t)bins * sizeof *count);
    if (lo == hi && n > 0) {
        lo = hi = tensor_get(x, 0);
        for (int64_t i = 1; i < n; i++) {
            double v = tensor_get(x, i);
            lo = v < lo || v != v ? v : lo;
            hi = v > hi || v != v ? v : hi;
        }
    }
    if (lo == hi) {
        lo -= 1;
        hi += 1;
    }
    if (!isfinite(lo) || !isfinite(hi)) return call_fail(c, E_USAGE, err, "the range [%g, %g] is not finite", lo, hi);
    for (int64_t i = 0; i < n; i++) {
        double v = tensor_get(x, i);
        if (!(v >= lo && v <= hi)) continue;
        double at = round_to(t, round_to(t, round_to(t, v - lo) * round_to(t, (double)bins)) /
                                   round_to(t, hi - lo)); /* infinite where a f16 overflows */
        count[at < (double)bins ? (int64_t)at : bins - 1]++;
    }
    for (int64_t i = 0; i < bins; i++)
        store_f64(out->dtype, (char *)out->data + (size_t)i * dtype_size(out->dtype), (double)count[i]);
    return true;
}
